"""What is evaluated on: held-out families, files, and pairs that really are equivalent."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import rhovec as rv
from rhovec.corpus import Recipe, draw_families, stream
from rhovec.corpus.families import SPLITS, _split, find_families
from rhovec.corpus.trees import COLUMNS, UNIT, append
from rhovec.errors import RhovecError
from rhovec.evaluation import sets
from rhovec.evaluation.sets import (
    MAX_NODES,
    complete_seeds,
    equivalent_of,
    headline,
    held_out,
    is_complete,
    mixture,
    read_formulae,
    thin,
)
from rhovec.formula import Formula, simplify
from rhovec.formula.strategies import formulae


def assert_equivalent(pairs: list[tuple[Formula, Formula]], channels: int = 3) -> None:
    traces = rv.BaseMeasure(n_variables=channels).sample(50, seed=9)
    first, second = (list(side) for side in zip(*pairs, strict=True))
    assert all(a != b for a, b in pairs)
    assert np.array_equal(rv.robustness(first, traces), rv.robustness(second, traces))


def shipped() -> list[Formula]:
    return [
        rv.parse(line)
        for line in gzip.decompress(sets.HEADLINE.read_bytes()).decode().split("\n")[:-1]
    ]


def split_of(phi: Formula) -> str:
    """The split of a family that has this seed, by whatever recipe it is drawn."""
    rows = np.empty((phi.size, COLUMNS), np.int64)
    n = 0
    for op, lo, hi, channel, threshold in phi.rows():
        number = -1 if channel is None else int(channel[0][0].removeprefix("x_"))
        n = append(rows, n, op, lo, hi, number, round(threshold * UNIT))
    return SPLITS[_split(rows, n)]


def test_the_headline_set() -> None:
    found = headline()
    assert found.sha256 == sets.HEADLINE_SHA256
    assert len(set(found.formulae)) == len(found.formulae) == 3000
    assert Counter(phi.depth for phi in found.formulae) == dict.fromkeys(range(1, 7), 500)
    assert {name for phi in found.formulae for name in phi.variables} == {"x_0", "x_1", "x_2"}
    assert all(map(is_complete, found.formulae))
    assert not found.has_families
    assert len(found.equivalent) > 2900
    assert_equivalent(found.equivalent[::10])


def test_no_headline_formula_is_a_seed_of_the_training_split() -> None:
    assert {split_of(phi) for phi in shipped()} == {"test"}
    for full_depth in (False, True):
        recipe = Recipe(family_size=1, full_depth=full_depth, shares=(1.0, 0.0, 0.0, 0.0))
        trained = draw_families(recipe, find_families(recipe, 0, 3000, "train")).programs.unpack()
        assert {split_of(phi) for phi in trained} == {"train"}
        assert not set(trained) & set(shipped())


def test_the_headline_set_can_be_made_again(tmp_path: Path) -> None:
    sets.write_headline(tmp_path / "again.gz")
    again = gzip.decompress((tmp_path / "again.gz").read_bytes())
    assert hashlib.sha256(again).hexdigest() == sets.HEADLINE_SHA256
    assert complete_seeds(20) == shipped()[:20]  # a part is the beginning of the whole
    assert [phi.depth for phi in shipped()[:8]] == [1, 2, 3, 4, 5, 6, 1, 2]


def test_a_changed_headline_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x_0 >= 1\n"))
    monkeypatch.setattr(sets, "HEADLINE", tmp_path / "a.gz")
    with pytest.raises(RhovecError, match="not the set that was shipped"):
        headline()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x_0 >= 1", True),
        ("not x_0 >= 1", True),
        ("always (x_0 >= 1 and x_1 >= 1)", True),
        ("x_0 >= 1 and not x_1 >= 1", False),
        ("always (not x_0 >= 1 until x_1 >= 1)", False),
        ("(not x_0 >= 1) or always x_1 >= 1", True),
    ],
)
def test_complete_trees(text: str, expected: bool) -> None:
    assert is_complete(rv.parse(text)) == expected


def test_held_out_families() -> None:
    found = held_out(10, channels=4, seed=3, size=5, pairs=40)
    assert len(found.formulae) == len(found.groups) == 50
    assert found.has_families
    batch = draw_families(Recipe(3, 5, 4), np.unique(found.groups))
    assert (batch.split == 2).all()  # test
    assert held_out(10, channels=4, seed=3, size=5, pairs=40).sha256 == found.sha256
    text = "\n".join(map(str, found.formulae)) + "\n"
    assert found.sha256 == hashlib.sha256(text.encode()).hexdigest()
    trained = next(stream(Recipe(3, 5, 4), batch=5000))
    assert not set(trained.family.tolist()) & set(found.groups.tolist())

    assert 39 <= len(found.equivalent) <= 40
    assert_equivalent(found.equivalent, channels=4)
    assert found.unsimplified.tolist() == [simplify(a) != simplify(b) for a, b in found.equivalent]
    assert 0 < found.unsimplified.sum() < len(found.equivalent)


def test_files(tmp_path: Path) -> None:
    texts = ["always[0,20] ( x_0 >= 0.5 )", "( x_0 <= 1.23456789 until[3,9] x_1 >= 2 )"]
    lines, table = tmp_path / "a.stl", tmp_path / "a.csv"
    lines.write_text("# two formulae\n\n" + "\n".join(texts) + "\n")
    table.write_text("".join(f'{i},"{t}"\n' for i, t in [("number", "formula"), *enumerate(texts)]))
    for path in (lines, table):
        found = read_formulae(path)
        assert [str(phi) for phi in found.formulae] == texts
        assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert found.groups.tolist() == [0, 1]
        assert not found.has_families
        assert [str(phi) for phi, _ in found.equivalent] == texts
        assert_equivalent(found.equivalent)
    assert read_formulae(lines, seed=1).equivalent != found.equivalent


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.stl", b"x_0 >= 1\nx_0 >=\n", "a.stl:2, column 7"),
        ("a.stl", b"# nothing\n", "no formula in it"),
        ("a.stl", b"\xff\xfe\n", "UTF-8"),
        ("a.csv", b"text\nx_0 >= 1\n", "no column `formula`"),
        ("b.stl", None, "cannot be read"),
    ],
)
def test_files_that_are_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RhovecError, match=message):
        read_formulae(tmp_path / name)


@settings(max_examples=60)
@given(formulae(linear=True, max_bound=50, constants=False))
def test_any_formula_has_an_equivalent(phi: Formula) -> None:
    psi = equivalent_of(phi, seed=5)
    assert psi is not None
    assert psi.size <= MAX_NODES
    assert psi == equivalent_of(phi, seed=5)
    assert_equivalent([(phi, psi)])


def test_what_cannot_be_rewritten() -> None:
    assert equivalent_of(rv.parse("x_0 >= 1 or true"), seed=0) is None
    assert equivalent_of(rv.parse("always[0,50000] x_0 >= 1"), seed=0) is None
    many = " and ".join(f"x_0 >= {i}" for i in range(MAX_NODES))
    assert equivalent_of(rv.parse(many), seed=0) is None


def test_thresholds_of_any_size_survive() -> None:
    phi = rv.parse("always[0,9] ( x_0 >= 1e30 or x_0 <= -1e11 or x_1 <= 1e-9 or x_1 <= 0.1 )")
    for number in range(20):
        psi = equivalent_of(phi, seed=0, number=number)
        assert psi is not None
        assert set(phi.thresholds.tolist()) <= set(psi.thresholds.tolist())
        assert_equivalent([(phi, psi)])
    assert equivalent_of(rv.parse("always x_0 >= 1e308"), seed=0) is not None


def test_a_thin_set_keeps_families_whole() -> None:
    whole = held_out(20, size=4, pairs=30)
    part = thin(whole, 24)
    assert len(part.formulae) == 24 and len(set(part.groups.tolist())) == 6
    assert part.name.endswith("(24 of 80)") and part.sha256 != whole.sha256
    assert len(part.equivalent) == len(part.unsimplified) == 24
    assert max(whole.equivalent.index(pair) for pair in part.equivalent) > 24
    assert thin(whole, 80) is whole


def test_a_mixture_has_families_and_seeds_of_the_test_split() -> None:
    found = mixture(50, seed=3)
    assert len(found) == 50
    families, single = Recipe(seed=3), Recipe(3, 1, shares=(1.0, 0.0, 0.0, 0.0))
    for recipe, part in ((families, found[:22]), (single, found[22:])):
        numbers = find_families(recipe, 0, 50, "test")
        drawn = draw_families(recipe, numbers).programs.unpack()
        assert drawn[: len(part)] == part
