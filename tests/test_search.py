"""Search: exact against brute force, approximate against exact, duplicates, what a library keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import FormulaError, ParseError, RhovecError, TraceError
from rhovec.formula import Formula, Schema
from rhovec.formula.schema import SchemaChannel
from rhovec.search import Hit, Index, coarse, entries
from rhovec.search import file as file_module
from rhovec.search import index as index_module
from rhovec.spaces import Signatures

KERNEL = rv.StlKernel(n_traces=64)
FORMULAE = rv.random_formulae(400, 0)
QUERIES = rv.random_formulae(20, 1)


class Model:
    """Vectors that are no signatures, as those of a neural model: a library keeps no recipe."""

    def __init__(self, fingerprint: str = "1", width: int = 64):
        self.fingerprint, self.width = fingerprint, width

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        return self.kernel(self.width, 7).signatures(formulae)

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> rv.StlKernel:
        return rv.StlKernel(n_traces=n_traces, seed=seed)


@pytest.fixture
def small() -> Iterator[Index]:
    with Index.build(FORMULAE, vectors=KERNEL) as index:
        yield index


@pytest.fixture
def many_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Already a few hundred rows are a large library."""
    monkeypatch.setattr(file_module, "MAX_EXACT", 64 * 50)
    monkeypatch.setattr(coarse, "SINGLE_LIST", 50)
    monkeypatch.setattr(coarse, "SCANNED", 150)
    monkeypatch.setattr(coarse, "CANDIDATES", 40)


def ids(hits: list[Hit]) -> list[int]:
    return [hit.id for hit in hits]


def recall(found: list[list[Hit]], expected: list[list[Hit]]) -> float:
    """Share of the expected hits that are found, or as good."""
    return float(np.mean([
        hit.similarity >= best[-1].similarity - 1e-6
        for hits, best in zip(found, expected, strict=True)
        for hit in hits
    ]))  # fmt: skip


# -- exact -----------------------------------------------------------------------------------------


def test_search_is_brute_force(small: Index) -> None:
    gram = KERNEL.gram(QUERIES, FORMULAE)
    for row, hits in zip(gram, small.search(QUERIES, 15), strict=True):
        expected = np.sort(row)[::-1][:15]
        assert np.allclose([hit.similarity for hit in hits], expected, atol=1e-3)
        assert np.allclose([row[hit.id - 1] for hit in hits], expected, atol=1e-3)
        assert all(hit.formula == FORMULAE[hit.id - 1] for hit in hits)
    assert len(small.search(QUERIES[0], 1000)) == len(small) == len(FORMULAE)


def test_a_query_is_a_formula_its_text_its_vector_or_many(small: Index) -> None:
    phi = FORMULAE[17]
    (vector,) = KERNEL.signatures([phi])
    first = small.search(phi, 3)
    assert first[0].id == 18
    assert first[0].similarity == pytest.approx(1, abs=1e-4)
    assert small.search(str(phi), 3) == first
    assert small.search([phi], 3) == [first]
    assert ids(small.search(vector, 3)) == ids(first)
    assert ids(small.search(np.stack([vector, -vector]), 3)[0]) == ids(first)
    for scale in (5, 1e-30, 1e30, 1e300):  # squares of the last three have no 32-bit float
        scaled = small.search(scale * vector.astype(np.float64), 3)
        assert ids(scaled) == ids(first)
        assert [h.similarity for h in scaled] == pytest.approx([h.similarity for h in first])
    large = small.search(vector * np.float32(3e38), 3)
    assert [h.similarity for h in large] == pytest.approx([h.similarity for h in first])


def test_a_model_is_searched_by_inner_products() -> None:
    model = Model()
    index = Index.build(FORMULAE, vectors=model)
    products = model.embed(QUERIES) @ model.embed(FORMULAE).T
    for row, hits in zip(products, index.search(QUERIES, 5), strict=True):
        assert np.allclose([hit.similarity for hit in hits], np.sort(row)[::-1][:5], atol=1e-3)


@pytest.mark.parametrize("large", [False, True])
def test_filters(large: bool, request: pytest.FixtureRequest) -> None:
    if large:
        request.getfixturevalue("many_lists")
    tags = [["even", "all"] if i % 2 == 0 else ["all"] for i in range(len(FORMULAE))]
    index = Index.build(FORMULAE, vectors=KERNEL, tags=tags)
    for names, depth, tagged in [
        ({"x_1"}, None, ()), ({"x_2"}, 3, ()), ((), 2, {"even"}), ({"x_0", "x_1"}, None, {"all"}),
    ]:  # fmt: skip
        fitting = [
            i + 1
            for i, phi in enumerate(FORMULAE)
            if set(names) <= set(phi.variables)
            and (depth is None or phi.depth <= depth)
            and set(tagged) <= set(tags[i])
        ]
        assert 0 < len(fitting) < len(FORMULAE)
        asked = {"variables": names, "max_depth": depth, "tags": tagged}
        assert sorted(ids(index.search(QUERIES[0], 1000, **asked))) == fitting
        places = np.array(fitting) - 1
        gram = KERNEL.gram(QUERIES, [FORMULAE[i] for i in places])
        for row, hits in zip(gram, index.search(QUERIES, 5, **asked), strict=True):
            assert set(ids(hits)) <= set(fitting)
            assert hits[0].similarity == pytest.approx(row.max(), abs=1e-3)
    assert index.search("x_0 > 0", variables="x_0", tags="odd") == []


def test_the_kernel_orders_what_vectors_found(small: Index) -> None:
    kernel = rv.StlKernel(n_traces=500, seed=3)
    for phi in QUERIES[:3]:
        hits = small.search(phi, 5, rerank=kernel)
        found = small.search(phi, 50)
        exact = kernel.similarity([hit.formula for hit in found], phi)
        assert [hit.kernel for hit in hits] == pytest.approx(np.sort(exact)[::-1][:5])
        assert [hit.standard_error for hit in hits] == pytest.approx(
            kernel.standard_error([hit.formula for hit in hits], phi)
        )
        usual = small.search(phi, 5, rerank=True)
        judge = rv.StlKernel(n_traces=10_000, seed=1)
        assert [h.kernel for h in usual] == pytest.approx(
            judge.similarity([h.formula for h in usual], phi)
        )
    with pytest.raises(RhovecError, match="needs a formula"):
        small.search(np.ones(64), rerank=True)


# -- changing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_add_and_delete(tmp_path: Path, large: bool, request: pytest.FixtureRequest) -> None:
    if large:
        request.getfixturevalue("many_lists")
    path = tmp_path / "library"
    with Index.build(FORMULAE, path, vectors=KERNEL) as index, Index.open(path) as other:
        assert ids(other.search(FORMULAE[3], 1)) == [4]
        new = index.add(QUERIES, tags="new")
        assert new == list(range(401, 421))
        assert index.add("x_0 > 0.5 and x_2 > 0.25") == 421
        assert len(index) == len(other) == 421
        for phi, number in zip(QUERIES, new, strict=True):
            best = other.search(phi, 2)[0]
            assert best.similarity == pytest.approx(1, abs=1e-4)
            assert number in ids(other.search(phi, 5))
        other.delete([402, 4])
        index.delete(421)
        assert len(index) == len(other) == 418
        for library in (index, other):
            assert {4, 402, 421}.isdisjoint(ids(library.search(FORMULAE[3], 1000)))
            assert len(library.search(QUERIES[1], 1000)) == 418
            assert ids(library.search(QUERIES[1], 400, tags="new")) == ids(
                library.search(QUERIES[1], 20, tags="new")
            )
        with pytest.raises(RhovecError, match="no entry 402"):
            index.delete([5, 402])
        assert 5 in ids(index.search(FORMULAE[4], 1000))
        assert index.add("x_0 > 7") == 422
        index.delete(range(10, 390))
        assert len(index.search(QUERIES[0], 1000)) == len(other.search(QUERIES[0], 1000)) == 39


def test_ids_and_other_numbers_are_whole(small: Index) -> None:
    small.delete(np.int64(3))
    small.delete(np.array([4, 5]))
    small.delete({6, np.uint8(7)})
    assert len(small) == len(FORMULAE) - 5
    for wrong in ("12", [5.9], 5.0, [True], ["9"], b"8", None, [None], np.array([8.0]), [[8]]):
        with pytest.raises(RhovecError, match="ids must be whole numbers, not"):
            small.delete(wrong)
    assert len(small) == len(FORMULAE) - 5
    assert len(small.search("x_0 > 0", np.int32(3), max_depth=np.int8(9))) == 3
    for wrong in (1.5, "3", None, True):
        with pytest.raises(RhovecError, match="k must be a whole number, not"):
            small.search("x_0 > 0", wrong)
    with pytest.raises(RhovecError, match="max_depth must be a whole number, not"):
        small.search("x_0 > 0", max_depth=1.5)
    for name in ("tags", "variables"):
        for wrong in ([1], 1, None, ["a", None]):
            with pytest.raises(RhovecError, match=f"{name} must be text, not"):
                small.search("x_0 > 0", **{name: wrong})
    for wrong in ([1], 1, None, [["a"], [2]], [["a"], 2]):
        with pytest.raises(RhovecError, match="tags must be text, not"):
            small.add(["x_0 > 0", "x_0 > 1"], tags=wrong)
    assert len(small) == len(FORMULAE) - 5


@pytest.mark.parametrize("wrong", [3, b"name", "", "a\0b", ["name"]])
def test_a_path_is_the_name_of_a_file(wrong: Any, small: Index, tmp_path: Path) -> None:
    def fails(call: Callable[[], object]) -> None:
        with pytest.raises(RhovecError, match="path must be the name of a file, not"):
            call()

    fails(lambda: Index.build(["x_0 > 1"], wrong))
    fails(lambda: Index.upgrade(wrong, tmp_path / "new"))
    fails(lambda: Index.upgrade(tmp_path / "old", wrong))
    for value in (wrong, None):
        fails(lambda value=value: Index.open(value))  # type: ignore[misc]
        fails(lambda value=value: small.save(value))  # type: ignore[misc]


def test_requirements_have_identifiers(tmp_path: Path) -> None:
    path = tmp_path / "library"
    names = [f"REQ-{i}" if i % 2 else None for i in range(9)]
    with Index.build(FORMULAE[:9], path, vectors=KERNEL, requirements=names) as index:
        index.add("x_0 > 7", requirements="SYS-1")
    with Index.open(path) as index:
        found = {hit.id: hit.requirement for hit in index.search("x_0 > 7", 100)}
        assert [found[i] for i in range(1, 11)] == [*names, "SYS-1"]
        assert index.search("x_0 > 7", 1, rerank=True)[0].requirement == "SYS-1"
        for wrong in ([7], ["a\nb"], [" "], 7, ["\udcff"]):
            with pytest.raises(
                RhovecError, match="requirements must be identifiers such as REQ-12"
            ):
                index.add(["x_0 > 0"], requirements=wrong)
        with pytest.raises(RhovecError, match="more formulae than requirements, which end at 1"):
            index.add(["x_0 > 0", "x_0 > 1"], requirements="REQ-1")
        assert len(index) == 10


def test_add_is_all_or_nothing(small: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "CHUNK", 3)
    for bad, error in (("true", FormulaError), ("x_0 >", ParseError), ("speed > 1", TraceError)):
        with pytest.raises(error):
            small.add([*FORMULAE[:7], bad])
    with pytest.raises(RhovecError, match="more formulae than tags"):
        small.add(FORMULAE[:7], tags=[["a"]] * 5)
    assert len(small) == len(FORMULAE) == len(small.search(QUERIES[0], 1000))
    assert small.add(FORMULAE[:7]) == list(range(401, 408))


def test_found_entries_are_read_once_and_not_too_many_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_module, "MAX_ENTRIES", 25)
    index = Index.build(FORMULAE[:60], vectors=KERNEL)
    read: list[int] = []
    entries = index._backend._rows.entries
    monkeypatch.setattr(
        index._backend._rows, "entries", lambda ids: read.extend(ids.tolist()) or entries(ids)
    )
    first = index.search(FORMULAE[0], k=20)
    assert index.search(FORMULAE[0], k=20) == first and len(read) == 20
    for phi in FORMULAE[:60]:
        found = index.search(phi, k=20)
        assert [hit.formula for hit in found] == [FORMULAE[hit.id - 1] for hit in found]
        assert len(index._backend._entries) <= 25
    index.delete(first[0].id)
    assert index.search(FORMULAE[0], k=19) == first[1:]
    assert len(index.search(FORMULAE[0], k=59)) == 59  # more than are held


# -- approximate -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("many_lists")
def test_the_approximate_index_finds_what_a_scan_finds(tmp_path: Path, small: Index) -> None:
    formulae = rv.random_formulae(3000, 5)
    exact = Index.build(formulae[:1], vectors=KERNEL)
    exact.add(formulae[1:])
    expected = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_module, "MAX_EXACT", 10**9)
        expected = exact.search(QUERIES, 10)
        assert exact._backend._coarse is None
    path = tmp_path / "library"
    with Index.build(formulae, path, vectors=KERNEL) as index:
        assert index._backend._coarse is not None
        assert len(index._backend._coarse.centroids) == 54
        assert len(index._backend._coarse) == 3000
        assert recall(index.search(QUERIES, 10), expected) >= 0.95
        assert len(index.search(QUERIES[0], 3000)) == 3000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["library", "library.coarse"]


@pytest.mark.usefixtures("many_lists")
def test_the_approximate_index_is_a_cache(tmp_path: Path) -> None:
    path, cache = tmp_path / "library", tmp_path / "library.coarse"
    with Index.build(FORMULAE, path, vectors=KERNEL) as index:
        expected = index.search(QUERIES, 5)
    good = cache.read_bytes()
    Index.build(FORMULAE[::-1], tmp_path / "other", vectors=KERNEL).close()
    foreign = (tmp_path / "other.coarse").read_bytes()
    flipped = bytearray(good)
    flipped[-1000] ^= 1
    for content in (None, b"", b"no cache", good[:-100], good[:200], bytes(flipped), foreign):
        if content is None:
            cache.unlink()
        else:
            cache.write_bytes(content)
        with Index.open(path) as index:
            assert index.search(QUERIES, 5) == expected
        assert cache.read_bytes() == good
    assert len(list(tmp_path.iterdir())) == 4  # no temporary file is left

    with Index.open(path) as index:
        index.add(QUERIES)  # 20 rows: fewer than a scan takes, so the cache stays as it is
        assert [hits[0].similarity for hits in index.search(QUERIES, 1)] == pytest.approx(
            [1] * 20, abs=1e-4
        )
        assert cache.read_bytes() == good
        index.flush()
        assert len(cache.read_bytes()) > len(good)
        before = index._backend._coarse
        index.add(rv.random_formulae(600, 9))
        index.search(QUERIES[0])
        assert index._backend._coarse is not None
        assert len(index._backend._coarse) == len(index) == 1020
        assert len(index._backend._coarse.centroids) > len(before.centroids)  # learned anew


@pytest.mark.usefixtures("many_lists")
def test_a_cache_that_lies_is_not_followed(tmp_path: Path) -> None:
    """Its checksum is right, but lists lie outside of the rows."""
    path = tmp_path / "library"
    with Index.build(FORMULAE, path, vectors=KERNEL) as index:
        expected, held = index.search(QUERIES, 5), index._backend._coarse
        assert held is not None
        identity, state = index._backend._rows.identity, index._backend._rows.state()
        extent = coarse.Extent(state.last, state.deletions, state.digest)
    for change in (
        {"offsets": held.offsets + 10**6}, {"offsets": held.offsets[::-1].copy()},
        {"offsets": held.offsets[:1]}, {"labels": held.labels[:5]},
        {"directions": held.directions[:7]}, {"ids": held.ids.astype(np.float64)},
    ):  # fmt: skip
        replace(held, **change).save(tmp_path / "library.coarse", identity, extent)
        with Index.open(path) as index:
            assert index.search(QUERIES, 5) == expected


def test_coarse_products_bound_the_true_ones() -> None:
    vectors = rv.StlKernel(n_traces=300).signatures(FORMULAE)
    made = coarse.Coarse.learn(vectors, len(vectors))
    points = coarse.compacted(vectors, made.directions)
    assert points.shape == (400, coarse.WIDTH)
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-5)
    gap = points @ points.T - vectors @ vectors.T
    assert gap.min() > -1e-5
    assert np.median(gap) < 0.01


# -- duplicates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_known_equivalents_are_one_group(large: bool, request: pytest.FixtureRequest) -> None:
    if large:
        request.getfixturevalue("many_lists")
    families = [
        ["always[0,5] x_0 > 0", "not eventually[0,5] x_0 <= 0",
         "always[0,2] x_0 > 0 and always[2,5] x_0 > 0"],
        ["x_0 > 0.3 until[2,9] x_1 > 0", "eventually[2,9] x_1 > 0 and x_0 > 0.3 until[2,inf] x_1 > 0"],
        ["x_1 > 0 -> eventually[3,20] x_2 < -0.5", "not (x_1 > 0) or eventually[3,20] x_2 < -0.5"],
    ]  # fmt: skip
    single = ["eventually x_2 > 2", "always[10,30] x_1 < 0.5", "x_0 > 0 <-> x_1 > 0"]
    others = [str(phi) for phi in FORMULAE[:60]] if large else []
    formulae = [text for family in families for text in family] + single
    index = Index.build([*formulae, *others], vectors=KERNEL)
    groups = [set(ids(group)) for group in index.duplicates(0.999)]
    begin = 1
    for family in families:
        assert set(range(begin, begin + len(family))) in groups
        begin += len(family)
    if not large:
        assert len(groups) == len(families)
    index.delete(2)
    assert index.duplicates(0.999)[0][0].id == 1
    assert ids(index.duplicates(0.999)[0]) == [1, 3]


def test_groups_are_confirmed_and_complete() -> None:
    kernel, threshold = rv.StlKernel(n_traces=400, seed=5), 0.9
    gram = kernel.gram(FORMULAE)
    groups = Index.build(FORMULAE, vectors=kernel).duplicates(threshold, kernel=kernel)
    assert len(groups) > 5
    grouped = [i for group in groups for i in ids(group)]
    assert len(set(grouped)) == len(grouped)
    for first, *others in groups:
        assert first.kernel == 1
        for hit in others:
            assert hit.kernel == pytest.approx(gram[first.id - 1, hit.id - 1])
            assert hit.kernel >= threshold
    alone = np.setdiff1d(np.arange(400), np.array(grouped) - 1)
    rest = gram[np.ix_(alone, alone)] - np.eye(len(alone))
    assert rest.max() < threshold


# -- what a library keeps --------------------------------------------------------------------------


def test_saved_and_opened_it_answers_the_same(tmp_path: Path, small: Index) -> None:
    path = tmp_path / "a library?#.rhovec"
    small.delete([7, 9])
    small.save(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with Index.open(path) as index:
        assert index.search(QUERIES, 5) == small.search(QUERIES, 5)
        assert len(index) == 398
        assert "398 formulae" in repr(index)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with pytest.raises(RhovecError, match="of this name already"):
        small.save(path)


@pytest.mark.parametrize("kind", [rv.StlKernel, rv.BooleanKernel, rv.IntegratedKernel])
def test_traces_are_kept(tmp_path: Path, kind: type) -> None:
    values = np.random.default_rng(0).normal(size=(40, 2, 12))
    kernel = kind(rv.TraceMeasure(values, ["speed", "rpm"]), 30, seed=4)
    texts = ["always speed < 1", "eventually rpm > 0.5", "speed - rpm > 0", "speed > 0"]
    with Index.build(texts, tmp_path / "library", vectors=kernel) as index:
        expected = index.search("always speed < 0.9", 4, rerank=True)
    with Index.open(tmp_path / "library") as index:
        assert index.search("always speed < 0.9", 4, rerank=True) == expected
    assert expected[0].kernel == pytest.approx(
        kernel.similarity("always speed < 0.9", expected[0].formula)
    )
    with Index.open(tmp_path / "library", vectors=kernel) as index:
        assert index.add("rpm > 0") == 5
    with pytest.raises(RhovecError, match="leave out vectors="):
        Index.open(tmp_path / "library", vectors=replace(kernel, seed=5))


def test_how_texts_are_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["always[0,1] x_0 > 36 km/h", "gear == 3"]
    reading = {
        "dt": Decimal("0.5"),
        "units": {"x_0": "m/s"},
        "discrete": {"gear"},
        "tolerance": 0.1,
    }
    measure = rv.TraceMeasure(np.random.default_rng(0).normal(size=(9, 2, 5)), ["x_0", "gear"])
    kernel = rv.StlKernel(measure)
    with Index.build(texts, tmp_path / "library", vectors=kernel, reading=reading):
        pass
    with Index.open(tmp_path / "library") as index:
        assert index.search(texts, 1)[0][0].formula == rv.parse(texts[0], **reading)
        index.add("always[0,500 ms] x_0 > 10")
        (hit,) = index.search("always[0,500 ms] x_0 > 10", 1)
        assert (hit.id, str(hit.formula)) == (3, "always[0,1] ( x_0 > 10 )")
    for wrong, words in (
        ({"dt": -1}, "dt must be"), ({"definitions": {}}, "not definitions"), ("dt", "not 'dt'"),
        ({"discrete": 5}, "reading must be"), ({"discrete": [[1]]}, "reading must be"),
        ({("a",): 1}, "reading must be"), (3, "not 3"),
    ):  # fmt: skip
        with pytest.raises(rv.RhovecError, match=words):
            Index.build(texts, vectors=kernel, reading=wrong)  # type: ignore[arg-type]
    odd = {"labels": {"gear": {"P": np.int64(1)}}, "tolerance": Fraction(1, 2), "rounding": "up"}
    Index.build(['gear == "P"'], tmp_path / "odd", vectors=kernel, reading=odd).close()
    with Index.open(tmp_path / "odd") as index:
        assert index.reading == {"labels": {"gear": {"P": 1}}, "tolerance": 0.5, "rounding": "up"}
    for n, wrong in enumerate(
        ({"dt": -1}, {"units": 5}, {"tolerance": "q"}, {"discrete": 5}, {"a": 1})
    ):
        with monkeypatch.context() as patch:  # as a hand would write it into the file
            patch.setattr(index_module, "reader_of", lambda *_: None)
            patch.setattr(index_module, "plain_options", lambda given: given)
            Index.build(["gear > 0"], tmp_path / f"{n}", vectors=kernel, reading=wrong).close()
        with pytest.raises(rv.RhovecError, match="its description is damaged"):
            Index.open(tmp_path / f"{n}")
    schema = Schema((SchemaChannel("x_0"),), dt=0.5)
    with pytest.raises(rv.RhovecError, match="leave out reading"):
        Index.build(texts, schema=schema, reading=reading)


def test_a_schema_is_kept(tmp_path: Path) -> None:
    schema = Schema(
        (SchemaChannel("speed", 60, 20), SchemaChannel("gear", 3, 1, discrete=True)), dt=0.5
    )
    texts = ["always[0,10] speed < 120", "gear == 2 -> speed < 50", "eventually[0,5] speed > 90"]
    with Index.build(texts, tmp_path / "library", schema=schema) as index:
        assert len(index.duplicates()) == 0
    with Index.open(tmp_path / "library") as index:
        (hit,) = index.search("not (gear == 2) or speed < 50", 1, rerank=True)
        assert hit.id == 2
        assert hit.kernel == pytest.approx(1)
        assert hit.formula == schema.parse(texts[1])
        assert hit.formula.variables == ("gear", "speed")
        assert ids(index.search("always[0,10] speed < 119", variables="speed"))[0] == 1


def test_other_vectors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "signatures"
    Index.build(FORMULAE[:9], path, vectors=KERNEL).close()
    for other in (replace(KERNEL, seed=1), replace(KERNEL, sigma2=0.3), Model()):
        with pytest.raises(
            RhovecError, match=r"holds vectors of the signatures .* leave out vectors="
        ):
            Index.open(path, vectors=other)
    Index.open(path, vectors=replace(KERNEL)).close()
    path = tmp_path / "model"
    Index.build(FORMULAE[:9], path, vectors=Model()).close()
    for other in (Model("2"), KERNEL):
        with pytest.raises(RhovecError, match="holds vectors of the model 1, not of"):
            Index.open(path, vectors=other)
    with Index.open(path) as index:
        assert len(index.search(np.ones(64), 3)) == 3
        with pytest.raises(RhovecError, match="vectors=, that model"):
            index.search("x_0 > 0")
        with pytest.raises(RhovecError, match="vectors=, that model"):
            index.add("x_0 > 0")
    with Index.open(path, vectors=Model()) as index:
        assert index.search(FORMULAE[2], 1)[0].id == 3
        assert index.search(FORMULAE[2], 1, rerank=True)[0].kernel == pytest.approx(1)
    with (
        Index.open(path, vectors=Model("1", 32)) as index,
        pytest.raises(RhovecError, match="64 numbers, not of 32"),
    ):
        index.add("x_0 > 0")


# -- mistakes and strangers ------------------------------------------------------------------------


def test_vectors_of_one_model_have_two_kinds(tmp_path: Path) -> None:
    """A library holds directions; one of kernel vectors, as they were before, opens with the model."""
    model = rv.load()

    class Kernel:
        fingerprint, kernel = model.fingerprint, model.kernel

        def embed(self, formulae: list[Formula]) -> np.ndarray:
            return model.embed(formulae, warn=False)

    assert model.directions.fingerprint != model.fingerprint
    for vectors, dimension in ((model, 96), (Kernel(), 1024)):
        path = tmp_path / type(vectors).__name__
        Index.build(FORMULAE[:20], path, vectors=vectors).close()
        for known in (None, model):
            with Index.open(path, vectors=known) as index:
                assert index._backend.facts.dimension == dimension
                hit = index.search(FORMULAE[3], k=1)[0]
                assert hit.formula == FORMULAE[3]
                assert hit.similarity == pytest.approx(1, abs=1e-5)
    with pytest.raises(RhovecError, match="holds vectors of the model"):
        Index.open(tmp_path / "Kernel", vectors=model.directions)
    with pytest.raises(RhovecError, match="holds vectors of the model"):
        Index.open(tmp_path / "Model", vectors=Kernel())


def test_mistakes_are_named(small: Index, tmp_path: Path) -> None:
    for query, words in (
        (np.ones(3), r"64 numbers; the query has shape \(3,\)"),
        (np.ones((1, 2, 64)), "query has shape"),
        (np.zeros(64), "finite and not zero"),
        (np.full(64, np.nan), "finite and not zero"),
        (np.ma.masked_array(np.ones(64), [True] * 64), "must hold numbers, not masked ones"),
        ([], "list is empty"),
        ([3], "not a formula"),
    ):
        with pytest.raises(RhovecError, match=words):
            small.search(query)
    with pytest.raises(RhovecError, match="k must be 1"):
        small.search("x_0 > 0", 0)
    with pytest.raises(RhovecError, match="threshold must be"):
        small.duplicates(1.5)
    with pytest.raises(RhovecError, match="normalised=True"):
        Index.build(FORMULAE, vectors=rv.StlKernel(normalised=False))
    with pytest.raises(RhovecError, match="list is empty"):
        Index.build([], tmp_path / "library")
    broken = Model()
    for vectors, words in ((np.ones((1, 64)), "norms 8.0"), (np.ones(64) / 8, "a row for each")):
        broken.embed = lambda formulae, vectors=vectors: vectors
        with pytest.raises(RhovecError, match=words):
            Index.build(["x_0 > 0"], tmp_path / "library", vectors=broken)
    with pytest.raises(FormulaError, match="constant"):
        Index.build([*FORMULAE[:9], "true"], tmp_path / "library", vectors=KERNEL)
    with pytest.raises(RhovecError, match="cannot be written"):
        Index.build(FORMULAE[:9], tmp_path / "nowhere" / "library", vectors=KERNEL)
    assert list(tmp_path.iterdir()) == []
    small.close()
    with pytest.raises(RhovecError, match="was closed"):
        small.search("x_0 > 0")
    assert repr(small) == "Index(the library: closed)"


def test_the_fingerprint_tells_signatures_apart() -> None:
    values = np.random.default_rng(0).normal(size=(9, 2, 5))
    kernels = [
        KERNEL, replace(KERNEL, n_traces=65), replace(KERNEL, seed=1), replace(KERNEL, sigma2=0.1),
        rv.BooleanKernel(n_traces=64), rv.StlKernel(rv.BaseMeasure(points=50), 64),
        rv.StlKernel(rv.TraceMeasure(values)), rv.StlKernel(rv.TraceMeasure(values + 1)),
        rv.StlKernel(rv.TraceMeasure(values, ["a", "b"])),
    ]  # fmt: skip
    prints = [Signatures(kernel).fingerprint for kernel in kernels]
    assert len(set(prints)) == len(kernels)
    for kernel, expected in zip(kernels, prints, strict=True):
        again = Signatures.from_recipe(*Signatures(kernel).recipe())
        assert again.fingerprint == expected


def test_lists_that_do_not_fit_the_formulae_are_refused() -> None:
    index = rv.Index.build(["x_0 > 0", "x_1 > 0"])
    for wrong in ({"requirements": ["a", "b"]}, {"tags": [["a"], ["b"]]}):
        with pytest.raises(rv.RhovecError, match=r"more .* than formulae"):
            index.add(["x_0 > 1"], **wrong)
    for tag in ("", "a\x00b", "\ud800"):
        with pytest.raises(rv.RhovecError, match="printable"):
            index.add("x_0 > 1", tags=tag)
    assert len(index) == 2


def test_arguments_of_the_wrong_kind_are_named(tmp_path: Path) -> None:
    rv.Index.build(["x_0 > 0"], tmp_path / "library").close()
    with pytest.raises(rv.RhovecError, match="vectors must be a space, a model or a kernel"):
        rv.Index.open(tmp_path / "library", vectors="x")  # type: ignore[arg-type]
    index = rv.Index.open(tmp_path / "library")
    with pytest.raises(rv.RhovecError, match="rerank must be"):
        index.search("x_0 > 0", rerank="yes")  # type: ignore[arg-type]
    with pytest.raises(rv.RhovecError, match="formulae must be"):
        index.add(None)  # type: ignore[arg-type]
    with pytest.raises(rv.RhovecError, match="threshold must be"):
        index.duplicates("1")  # type: ignore[arg-type]
    with pytest.raises(rv.RhovecError, match='stored must be "float32", "float16" or "int8"'):
        rv.Index.build(["x_0 > 0"], stored="float64")  # type: ignore[arg-type]
    with pytest.raises(rv.RhovecError, match="schema must be a Schema, not 3"):
        rv.Index.build(["x_0 > 0"], schema=3)  # type: ignore[arg-type]
