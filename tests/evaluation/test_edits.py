"""Bit-parallel edit distances against the usual table."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rhovec.evaluation.edits import edit_distances


def by_table(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]


def check(sequences: list[list[int]]) -> None:
    found = edit_distances(sequences)
    assert np.array_equal(found, [[by_table(a, b) for b in sequences] for a in sequences])


@given(st.lists(st.lists(st.integers(0, 3), max_size=150), min_size=1, max_size=5))
def test_random_sequences(sequences: list[list[int]]) -> None:
    check(sequences)


def test_lengths_at_the_edges_of_words() -> None:
    rng = np.random.default_rng(0)
    lengths = (0, 1, 63, 64, 65, 127, 128, 129, 300, 512)
    check([rng.integers(0, 35, n).tolist() for n in lengths])


def test_one_edit() -> None:
    a = list(range(35)) * 10
    b = a.copy()
    b[200] = 34 - b[200]
    assert edit_distances([a, b, a[:70] + a[71:], [7, *a]])[0].tolist() == [0, 1, 1, 1]
