"""Random formulae follow the distribution that the module states (fixed seeds, wide margins)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rhovec.formula import operators as ops
from rhovec.formula import random_formulae
from rhovec.formula.operators import Row
from rhovec.formula.sample import (
    LAST_BOUND,
    LEAF_PROBABILITY,
    MAX_DEPTH,
    OPERATORS,
    PAST_OPERATORS,
)

DRAWN = random_formulae(12_000, seed=0)
ROWS: list[Row] = [row for phi in DRAWN for row in phi.rows()]
ATOMS = [row for row in ROWS if row[3] is not None]
WINDOWS = [row[1:3] for row in ROWS if ops.is_timed(row[0])]


def check_share(hits: int, total: int, probability: float) -> None:
    """Within four standard deviations of the stated probability."""
    spread = (total * probability * (1 - probability)) ** 0.5
    assert total > 500
    assert abs(hits - total * probability) < 4 * spread, (hits / total, probability)


def test_the_same_seed_gives_the_same_formulae() -> None:
    assert random_formulae(50, seed=7) == random_formulae(50, seed=7)
    assert random_formulae(20, seed=7) == random_formulae(50, seed=7)[:20]
    assert random_formulae(50, seed=7) != random_formulae(50, seed=8)
    assert random_formulae(0, seed=7) == []


def test_roots_are_operators_all_alike() -> None:
    roots = Counter(phi.rows()[-1][0] for phi in DRAWN)
    assert set(roots) == set(OPERATORS)
    for count in roots.values():
        check_share(count, len(DRAWN), 1 / 6)


def test_operators_below_the_root_are_alike_too() -> None:
    counts = Counter(row[0] for row in ROWS if row[3] is None)
    assert set(counts) == set(OPERATORS)
    for op, count in counts.items():
        assert abs(count / sum(counts.values()) - 1 / 6) < 0.02, ops.NAMES[op]


def depth_distribution() -> dict[int, float]:
    """Probability of each depth of a formula, from the stated probabilities."""
    binary = sum(ops.arity(op) == 2 for op in OPERATORS) / len(OPERATORS)
    total = dict.fromkeys(range(1, MAX_DEPTH + 1), 0.0)
    for limit in range(1, MAX_DEPTH + 1):
        # at_most[d]: that a node's subtree is at most d deep; from the limit, where it is an atom.
        at_most = [1.0] * (MAX_DEPTH + 1)
        for depth in range(limit - 1, -1, -1):
            at_most = [0.0] + [(1 - binary) * p + binary * p * p for p in at_most[:-1]]
            if depth > 0:
                at_most = [LEAF_PROBABILITY + (1 - LEAF_PROBABILITY) * p for p in at_most]
        for d in total:
            total[d] += (at_most[d] - at_most[d - 1]) / MAX_DEPTH
    return total


def test_depths_follow_from_leaves_and_uniform_limits() -> None:
    depths = Counter(phi.depth for phi in DRAWN)
    expected = depth_distribution()
    assert sum(expected.values()) == pytest.approx(1)
    assert set(depths) == set(expected)
    for depth, probability in expected.items():
        check_share(depths[depth], len(DRAWN), probability)


def test_leaves_come_with_their_probability() -> None:
    """The root's last operand is an atom at a limit of 1, otherwise with the leaf probability."""
    atoms = sum(phi.rows()[-2][3] is not None for phi in DRAWN)
    check_share(atoms, len(DRAWN), 1 / MAX_DEPTH + (1 - 1 / MAX_DEPTH) * LEAF_PROBABILITY)


def test_atoms() -> None:
    check_share(sum(row[0] == ops.GE for row in ATOMS), len(ATOMS), 0.5)
    assert {row[0] for row in ATOMS} == {ops.GE, ops.LE}
    variables = Counter(row[3] for row in ATOMS)
    assert set(variables) == {((f"x_{i}", 1.0),) for i in range(3)}
    for count in variables.values():
        check_share(count, len(ATOMS), 1 / 3)
    thresholds = np.array([row[4] for row in ATOMS])
    assert (thresholds == np.round(thresholds, 4)).all()
    assert abs(thresholds.mean()) < 5 / len(thresholds) ** 0.5
    assert thresholds.std() == pytest.approx(1, abs=0.03)
    check_share(int((abs(thresholds) < 0.6745).sum()), len(thresholds), 0.5)


def test_windows() -> None:
    whole = WINDOWS.count((0, ops.UNBOUNDED))
    left_of_zero = 0.9 * 0.2 / LAST_BOUND  # right-unbounded with left 0 looks the same
    check_share(whole, len(WINDOWS), 0.1 + left_of_zero)
    open_ended = [lo for lo, hi in WINDOWS if hi == ops.UNBOUNDED]
    check_share(len(open_ended), len(WINDOWS), 0.1 + 0.9 * 0.2)
    closed = [(lo, hi) for lo, hi in WINDOWS if hi != ops.UNBOUNDED]
    assert all(0 <= lo < hi <= LAST_BOUND for lo, hi in closed)
    lefts = Counter(lo for lo, _ in closed)
    assert set(lefts) == set(range(LAST_BOUND))
    for count in lefts.values():
        check_share(count, len(closed), 1 / LAST_BOUND)
    # The right bound is uniform in (left, 35]: its place in that range has mean 1/2.
    places = [(hi - lo - 0.5) / (LAST_BOUND - lo) for lo, hi in closed]
    assert np.mean(places) == pytest.approx(0.5, abs=5 * 0.29 / len(places) ** 0.5)
    assert set(open_ended) == set(range(LAST_BOUND))


def test_number_of_variables() -> None:
    (one,) = {name for phi in random_formulae(50, 1, n_variables=1) for name in phi.variables}
    assert one == "x_0"
    many = {name for phi in random_formulae(400, 1, n_variables=12) for name in phi.variables}
    assert many == {f"x_{i}" for i in range(12)}


def test_past_operators_if_asked() -> None:
    drawn = random_formulae(2000, 1, past=True)
    counts = Counter(row[0] for phi in drawn for row in phi.rows() if row[3] is None)
    assert set(counts) == {*OPERATORS, *PAST_OPERATORS}
    for op, count in counts.items():
        assert abs(count / sum(counts.values()) - 1 / 9) < 0.02, ops.NAMES[op]
