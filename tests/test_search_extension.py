"""Vectors and storage from outside of the package: one class each, nothing in rhovec changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula import Formula
from rhovec.search import Backend, Batch, Entry, Facts, Filter, Index, Signatures, describe

TEXTS = [
    "always[0,5] x_0 > 0", "not eventually[0,5] x_0 <= 0", "x_1 > 1", "always x_1 < 2 and x_0 > 0",
]  # fmt: skip


class Shapes:
    """Vectors that know how often a formula uses each variable, and its depth; inner products are k'."""

    fingerprint = "shapes-1"
    kind = "cosine"

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        counts = [
            [str(phi).count(f"x_{i}") for i in range(3)] + [1 + phi.depth] for phi in formulae
        ]
        vectors = np.array(counts, np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> rv.StlKernel:
        return rv.StlKernel(n_traces=n_traces, sigma2=0.5, seed=seed)


class Lists(Backend):
    """Entries in two lists."""

    name = "a list"

    def __init__(self, facts: Facts):
        self.facts = facts
        self.entries: dict[int, Entry] = {}
        self.vectors: dict[int, np.ndarray] = {}
        self.last = 0

    def add(self, batches: Iterator[Batch]) -> list[int]:
        new = [row for batch in batches for row in zip(*batch, strict=True)]
        ids = list(range(self.last + 1, self.last + 1 + len(new)))
        for i, (requirement, vector) in zip(ids, new, strict=True):
            self.entries[i] = Entry(i, replace(requirement, tags=tuple(sorted(requirement.tags))))
            self.vectors[i] = vector
        self.last += len(new)
        return ids

    def delete(self, ids: Collection[int]) -> None:
        if missing := set(ids) - set(self.entries):
            raise RhovecError(f"{self.name} has no entry {min(missing)}")
        for i in set(ids):
            del self.entries[i], self.vectors[i]

    def count(self) -> int:
        return len(self.entries)

    def search(self, points: np.ndarray, k: int, chosen: Filter) -> list[list[tuple[Entry, float]]]:
        fitting = [
            entry
            for entry in self.entries.values()
            if chosen.variables <= set(entry.requirement.formula.variables)
            and chosen.tags <= set(entry.requirement.tags)
            and (chosen.max_depth is None or entry.requirement.formula.depth <= chosen.max_depth)
        ]
        found = []
        for point in points:
            scored = [(entry, float(self.vectors[entry.id] @ point)) for entry in fitting]
            found.append(sorted(scored, key=lambda pair: (-pair[1], pair[0].id))[:k])
        return found

    def neighbours(self, lowest, done, progress=None):  # type: ignore[no-untyped-def]
        for i, vector in list(self.vectors.items()):
            if i in done:
                continue
            (found,) = self.search(vector[None], self.count(), Filter())
            near = [(e, s) for e, s in found if s >= lowest and e.id != i and e.id not in done]
            if near:
                yield [(self.entries[i], 1.0), *near]

    def flush(self) -> None: ...

    def close(self) -> None: ...


def test_vectors_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "library"
    Index.build(TEXTS, path, vectors=Shapes()).close()
    with Index.open(path, vectors=Shapes()) as index:
        products = Shapes().embed([rv.parse(text) for text in TEXTS])
        expected = np.exp((products @ products[2] - 1) / 0.5)
        found = {hit.id: hit.similarity for hit in index.search("x_1 > 1", 4)}
        assert [found[i] for i in (1, 2, 3, 4)] == pytest.approx(expected, abs=1e-6)
        assert index.add("x_2 > 1") == 5
    with Index.open(path) as index, pytest.raises(RhovecError, match="vectors=, that model"):
        index.search("x_1 > 1")
    with pytest.raises(RhovecError, match="holds vectors of the model shapes-1"):
        Index.open(path, vectors=rv.StlKernel(n_traces=4))


def test_a_backend_from_outside_answers_as_the_file_does(tmp_path: Path) -> None:
    kernel, formulae = rv.StlKernel(n_traces=64), rv.random_formulae(60, 3)
    maker = Signatures(kernel)
    tags = [["even"] if i % 2 == 0 else [] for i in range(60)]
    ours = Index.build(formulae, tmp_path / "library", vectors=kernel, tags=tags)
    other = Index(Lists(describe(maker, 64)), kernel)
    assert other.add(formulae, tags=tags) == list(range(1, 61))
    for index in (ours, other):
        assert index.add(TEXTS, requirements=["A", "B", "C", None]) == [61, 62, 63, 64]
        index.delete([3, 64])
        with pytest.raises(RhovecError, match="no entry 3"):
            index.delete([4, 3])
        index.flush()
        assert len(index) == 62
    asked = ({}, {"variables": "x_1", "max_depth": 3}, {"tags": "even"}, {"rerank": True})
    for options in asked:
        for one, two in zip(
            ours.search(TEXTS, 7, **options), other.search(TEXTS, 7, **options), strict=True
        ):
            assert [hit.id for hit in one] == [hit.id for hit in two]
            assert [hit.requirement for hit in one] == [hit.requirement for hit in two]
            assert [h.similarity for h in one] == pytest.approx(
                [h.similarity for h in two], abs=1e-4
            )
    groups = [[hit.id for hit in group] for group in ours.duplicates(0.95)]
    assert groups and [61, 62] in groups
    assert [sorted(hit.id for hit in group) for group in other.duplicates(0.95)] == [
        sorted(group) for group in groups
    ]
    with pytest.raises(RhovecError, match="a list cannot be verified"):
        other.verify()
    with pytest.raises(RhovecError, match="a list cannot be copied"):
        other.save(tmp_path / "copy")
    ours.close()
