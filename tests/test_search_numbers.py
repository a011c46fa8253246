"""Vectors in eight bits: what is lost, and a search over them against one over all numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula.requirements import Requirement
from rhovec.search import Batch, Facts, Filter, Index, coarse
from rhovec.search import file as file_module
from rhovec.search.file import FileBackend
from rhovec.search.numbers import Numbers
from rhovec.search.scan import nearest

from .libraries import change

FORMULAE = rv.random_formulae(300, seed=4)


def unit(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def lopsided(n: int, dimension: int, seed: int) -> np.ndarray:
    """Unit vectors in groups, most of whose length is in few numbers, as those of a model are."""
    rng = np.random.default_rng(seed)
    sizes = 1 / (1 + np.arange(dimension)) ** 1.2
    centres = rng.standard_normal((max(1, n // 20), dimension)) * sizes
    around = rng.standard_normal((n, dimension)) * sizes * 0.1
    return unit(centres[rng.integers(len(centres), size=n)] + around)


@pytest.mark.parametrize("seed", range(12))
def test_rounding_loses_little_and_only_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dimension = int(rng.choice([1, 2, 5, 6, 31, 96, 300]))
    vectors = lopsided(200, dimension, seed)
    numbers = Numbers.learn(vectors[: int(rng.choice([1, 7, 200]))])
    stored = numbers.encode(vectors)
    assert stored.dtype == np.int8 and stored.shape == (200, dimension + dimension // 6)
    back = numbers.decode(stored)
    assert np.allclose(np.linalg.norm(back, axis=1), 1, atol=1e-5)
    # No number is off by more than half a step, up to the scale, which the norm gives.
    steps = np.abs(vectors / numbers.sizes).max(1, keepdims=True) / 127 * np.array(numbers.sizes)
    assert (np.linalg.norm(back - vectors, axis=1) <= np.linalg.norm(steps, axis=1) + 1e-6).all()
    assert np.array_equal(numbers.encode(back), stored)
    products = (stored @ numbers.weights(vectors[0])) * numbers.scales(stored)
    assert np.allclose(products, back @ vectors[0], atol=1e-5)


def test_the_loss_is_the_one_that_is_documented() -> None:
    """docs/libraries.md: directions of the shipped model, and signatures."""
    model = rv.load().directions
    for vectors, mean, most in (
        (model.embed(FORMULAE, warn=False), 5e-5, 0.002),
        (rv.StlKernel(n_traces=1000).signatures(FORMULAE), 2e-4, 0.002),
    ):
        numbers = Numbers.learn(vectors)
        back = numbers.decode(numbers.encode(vectors))
        errors = np.abs(back @ vectors.T - vectors @ vectors.T)
        assert errors.mean() <= mean and errors.max() <= most


def test_sizes_that_were_not_seen_are_coarser_but_not_lost() -> None:
    """A library may be built from one formula and filled with others."""
    numbers = Numbers.learn(lopsided(4096, 96, 0))
    strange = unit(np.eye(96) + 0.03 * np.random.default_rng(0).standard_normal((96, 96)))
    errors = np.linalg.norm(numbers.decode(numbers.encode(strange)) - strange, axis=1)
    assert errors.max() <= 0.06


@pytest.mark.parametrize("seed", range(8))
def test_a_scan_finds_the_nearest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, dimension = int(rng.integers(1, 400)), int(rng.choice([1, 7, 96]))
    vectors = lopsided(n, dimension, seed)
    vectors[rng.integers(n, size=n // 3)] = vectors[0]  # ties
    numbers = Numbers.learn(vectors)
    codes = numbers.encode(vectors)
    scales, back = numbers.scales(codes), numbers.decode(codes)
    for count in (0, 1, 10, n, n + 5):
        point = unit(rng.standard_normal((1, dimension)))[0]
        begin = np.sort(rng.integers(0, n + 1, 4)).reshape(2, 2)
        allowed = rng.random(n) < 0.7
        for spans, chosen in ((None, None), (begin, None), (begin, allowed), (None, allowed)):
            rows, scores = nearest(numbers, codes, scales, point, count, spans, chosen)
            possible = np.zeros(n, bool)
            for first, last in [(0, n)] if spans is None else spans.tolist():
                possible[first:last] = True
            possible &= True if chosen is None else chosen
            expected = np.sort(back[possible] @ point)[::-1][:count]
            assert possible[rows].all() and len(set(rows.tolist())) == len(rows)
            assert np.allclose(np.sort(scores)[::-1], expected, atol=1e-5)
            assert np.allclose(scores, back[rows] @ point, atol=1e-5)


def library(path: Path | None, vectors: np.ndarray, numbers: Numbers) -> FileBackend:
    facts = Facts("1", "cosine", 0.2, vectors.shape[1], numbers.stored, sizes=numbers.sizes)
    batches = (
        Batch([Requirement(FORMULAE[0])] * len(part), part)
        for start in range(0, len(vectors), 512)
        for part in [vectors[start : start + 512]]
    )
    return FileBackend.create(path, facts, batches)


@pytest.mark.parametrize("dimension", [96, 200])
@pytest.mark.parametrize("stored", ["int8", "float32"])
def test_large_libraries_find_what_exact_search_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str, dimension: int
) -> None:
    """Rows that came before and after the approximate index, some deleted; also opened again."""
    monkeypatch.setattr(file_module, "MAX_EXACT", dimension * 400)
    monkeypatch.setattr(coarse, "SINGLE_LIST", 100)
    monkeypatch.setattr(coarse, "SCANNED", 600)
    monkeypatch.setattr(coarse, "SORTED", 1000)  # several temporary files
    vectors = lopsided(4000, dimension, 1)
    numbers = Numbers.learn(vectors[:512])
    if stored == "float32":
        numbers = Numbers("float32", dimension)
    path = tmp_path / "library"
    backend = library(path, vectors[:3700], numbers)
    gone = np.random.default_rng(0).choice(np.arange(1, 4001), 200, replace=False)
    backend.add(iter([Batch([Requirement(FORMULAE[0])] * 300, vectors[3700:])]))
    backend.delete(gone.tolist())
    alive = np.setdiff1d(np.arange(1, 4001), gone)
    held = backend._coarse
    assert (
        held is not None
        and len(held) == 3700
        and held.is_whole == (stored == "int8" and dimension == 96)
    )
    queries = vectors[::40]
    exact = queries @ vectors[alive - 1].T
    back = dict(
        zip(alive.tolist(), numbers.decode(numbers.encode(vectors))[alive - 1], strict=True)
    )
    for used in (backend, FileBackend.open(path)):
        found = used.search(queries, 10, Filter())
        shares = []
        for query, hits, scores in zip(queries, found, exact, strict=True):
            ids = np.array([entry.id for entry, _ in hits])
            assert np.isin(ids, alive).all() and len(set(ids.tolist())) == 10
            told = [score for _, score in hits]
            assert told == sorted(told, reverse=True)
            assert np.allclose(told, [back[i] @ query for i in ids.tolist()], atol=1e-5)
            tenth = np.sort(scores)[-10]
            shares.append((scores[np.searchsorted(alive, ids)] >= tenth - 1e-4).mean())
        assert np.mean(shares) >= 0.97
        used.verify()
        used.close()


@pytest.mark.parametrize("large", [False, True])
def test_a_library_in_eight_bits_is_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(file_module, "MAX_EXACT", 0)
    model = rv.load().directions
    path = tmp_path / "library"
    Index.build(FORMULAE, path, vectors=model, stored="int8").close()
    wide = Index.build(FORMULAE, vectors=model)
    with Index.open(path) as index:
        index.verify()
        for hits, exact in zip(
            index.search(FORMULAE[:20], 300), wide.search(FORMULAE[:20], 300), strict=True
        ):
            assert hits[0].similarity == pytest.approx(1, abs=1e-4)
            expected = {hit.id: hit.similarity for hit in exact}
            assert max(abs(hit.similarity - expected[hit.id]) for hit in hits) <= 0.01
        groups = [[hit.id for hit in group] for group in index.duplicates()]
        assert groups == [[hit.id for hit in group] for group in wide.duplicates()] and groups
        (tmp_path / "copies").mkdir()
        index.save(tmp_path / "copies" / "copy")
        few = index.search(FORMULAE[3], 5, variables="x_1", max_depth=3)
        assert all("x_1" in hit.formula.variables and hit.formula.depth <= 3 for hit in few)
        index.delete(range(1, 250))
        assert len(index.search(FORMULAE[3], 300)) == 51
    change(path, ("UPDATE rows SET vector = zeroblob(112) WHERE id = 270", ()))
    with Index.open(path) as index, pytest.raises(RhovecError, match=r"damaged"):
        index.verify()


def test_sizes_are_part_of_what_is_checked() -> None:
    sizes = (1.0, 0.5)
    good = Facts("1", "cosine", 0.2, 2, "int8", sizes=sizes)
    assert Facts.from_json(good.to_json(), None) == good
    for wrong in ((1.0,), (1.0, 0.0), (1.0, float("nan")), (1.0, "x"), (1.0, 2.0), None):
        with pytest.raises(RhovecError, match="size"):
            replace(good, sizes=wrong)
    with pytest.raises(RhovecError, match="size"):
        Facts("1", "cosine", 0.2, 2, sizes=sizes)
    assert "sizes" not in Facts("1", "cosine", 0.2, 2).to_json()  # as it was before int8
