"""Simplest forms: the same robustness, bit for bit, and one form however a formula was written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rhovec as rv
from rhovec.corpus.canonical import MAX_NODES, canonical
from rhovec.corpus.families import KINDS, Recipe, draw_families
from rhovec.errors import FormulaError
from rhovec.formula import Formula
from rhovec.formula import operators as ops
from rhovec.formula.programs import Programs

from .test_rules import wide_formulae

NUMBERS = np.arange(600)


def family(kind: str, channels: int = 3, full_depth: bool = False) -> Programs:
    shares = tuple(float(name == kind) for name in KINDS)
    recipe = Recipe(3, 1, channels, 63, shares, full_depth=full_depth)
    return draw_families(recipe, NUMBERS).programs


def sizes(programs: Programs) -> np.ndarray:
    return np.diff(programs.offsets)


SOURCES = {
    **{kind: family(kind) for kind in KINDS},
    "deep": family("seed", 8, full_depth=True),
    "wide": Programs.pack(wide_formulae(600, seed=7)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_robustness_stays_on_traces_of_up_to_that_many_points(name: str) -> None:
    given = SOURCES[name]
    before = given.unpack()
    rng = np.random.default_rng(0)
    for points in (1, 7, 30, 100):
        after = canonical(given, points).unpack()
        for length in {1, points // 2 + 1, points}:
            x = rng.normal(size=(4, 8, length))
            assert np.array_equal(rv.robustness(before, x), rv.robustness(after, x))


@pytest.mark.parametrize("name", SOURCES)
def test_the_robustness_stays_at_all_times_if_no_trace_is_too_long(name: str) -> None:
    given = SOURCES[name]
    before, after = given.unpack(), canonical(given, 10**6).unpack()
    x = np.random.default_rng(1).normal(size=(2, 8, 40))
    assert np.array_equal(rv.robustness(before, x, trace=True), rv.robustness(after, x, trace=True))


@pytest.mark.parametrize("name", SOURCES)
def test_a_simplest_form_is_its_own_and_in_normal_form(name: str) -> None:
    once = canonical(SOURCES[name])
    assert once.unpack() == canonical(once).unpack()
    for phi in once.unpack():
        size, operators = phi.shape()[0], phi.code[:, 0].tolist()
        for i, op in enumerate(operators):
            assert op in (ops.GE, ops.LE) or ops.ARITY[op] > 0
            if op == ops.NOT:
                assert operators[i - 1] == ops.UNTIL
            elif op in (ops.AND, ops.OR):
                assert operators[i - 1 - size[i - 1]] != op


@pytest.mark.parametrize("name", SOURCES)
def test_none_is_larger_than_what_simplify_finds(name: str) -> None:
    given = SOURCES[name]
    theirs = np.array([rv.simplify(phi).size for phi in given.unpack()])
    found = canonical(given, 10**6)
    ours = sizes(found)
    # Unlike here, simplify writes one negation for several untils, and moves steps in time.
    op, lo, hi, _ = found.code.T
    spare = np.add.reduceat((op == ops.NOT) | (ops.IS_TIMED[op] & (lo == hi)), found.offsets[:-1])
    assert (ours <= theirs + spare).all()
    assert (ours <= theirs).mean() > 0.98
    assert (ours < theirs).mean() > 0.02


def test_rewrites_are_undone() -> None:
    seeds, rewritten = canonical(SOURCES["seed"]), canonical(SOURCES["equivalent"])
    same = [a == b for a, b in zip(seeds.unpack(), rewritten.unpack(), strict=True)]
    assert np.mean(same) > 0.85
    assert sizes(rewritten).mean() < 1.2 * sizes(seeds).mean()


def mirrored(phi: Formula) -> Formula:
    """The operands of every and/or in the other order."""
    stack: list[list[tuple[int, int, int, object, float]]] = []
    for row in phi.rows():
        op = row[0]
        if ops.ARITY[op] == 0:
            stack.append([row])
        elif ops.ARITY[op] < 2:
            stack[-1].append(row)
        else:
            b, a = stack.pop(), stack.pop()
            stack.append([*b, *a, row] if op in (ops.AND, ops.OR) else [*a, *b, row])
    return Formula.from_rows(stack[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SOURCES)
def test_the_order_of_operands_does_not_matter(name: str) -> None:
    given = SOURCES[name]
    other = canonical(Programs.pack([mirrored(phi) for phi in given.unpack()])).unpack()
    same = [a == b for a, b in zip(canonical(given).unpack(), other, strict=True)]
    assert np.mean(same) > 0.99  # operands that can merge in two ways do so in the order they come


@pytest.mark.parametrize(
    ("text", "simplest"),
    [
        ("not (x_0 > 1 or not x_1 <= 2)", "x_0 <= 1 and x_1 <= 2"),
        ("not always[1,2] eventually[3,4] x_0 >= 1", "eventually[1,2] always[3,4] x_0 <= 1"),
        ("not not (x_0 >= 1 until[1,2] not not x_1 >= 0)", "x_0 >= 1 until[1,2] x_1 >= 0"),
        ("not (x_0 >= 1 until[1,2] x_1 >= 0)", "not (x_0 >= 1 until[1,2] x_1 >= 0)"),
        ("always[1,2] always[3,5] x_0 >= 1", "always[4,7] x_0 >= 1"),
        ("always[2,2] eventually[3,5] x_0 >= 1", "eventually[5,7] x_0 >= 1"),
        ("(x_2 >= 1 and x_1 >= 1) and (x_0 >= 1 and x_2 >= 1)",
         "x_0 >= 1 and (x_1 >= 1 and x_2 >= 1)"),
        ("x_0 >= 1 and x_0 >= 2", "x_0 >= 2"),
        ("eventually[0,3] x_0 >= 1 or eventually[4,9] x_0 >= 1", "eventually[0,9] x_0 >= 1"),
        ("always[0,3] x_0 >= 1 and always[0,3] x_1 >= 1", "always[0,3] (x_0 >= 1 and x_1 >= 1)"),
        ("x_0 >= 1 and always[0,3] x_0 >= 1", "always[0,3] x_0 >= 1"),
        ("x_0 >= 1 or (x_0 >= 1 until[2,3] x_1 >= 1)", "x_0 >= 1"),
        ("x_0 >= 1 until[3,9] x_0 >= 1", "always[0,3] x_0 >= 1"),
        ("x_0 >= 1 until[3,9] (x_0 >= 1 and x_1 >= 1)", "x_0 >= 1 until[3,9] x_1 >= 1"),
        ("(x_0 >= 1 until[1,3] x_1 >= 1) or (x_0 >= 1 until[3,9] x_1 >= 1)",
         "x_0 >= 1 until[1,9] x_1 >= 1"),
        ("eventually[3,9] x_1 >= 1 and (x_0 >= 1 until[3,inf] x_1 >= 1)",
         "x_0 >= 1 until[3,9] x_1 >= 1"),
        ("always[0,3] x_0 >= 1 and eventually[3,3] (x_0 >= 1 until[0,6] x_1 >= 1)",
         "x_0 >= 1 until[3,9] x_1 >= 1"),
        ("always[0,5] (x_0 >= 1 until x_1 >= 1)", "x_0 >= 1 until[5,inf] x_1 >= 1"),
        ("always[40,50] eventually[50,60] x_0 >= 1", "always[40,50] eventually[50,inf] x_0 >= 1"),
        ("eventually[40,50] always[60,70] (x_0 >= 1 until[2,3] x_1 >= 1)",
         "always[99,inf] (x_0 >= 1 and x_1 >= 1)"),
    ],
)  # fmt: skip
def test_laws(text: str, simplest: str) -> None:
    (found,) = canonical(Programs.pack([rv.parse(text)])).unpack()
    assert found == rv.parse(simplest)


def test_what_it_cannot_read_is_named() -> None:
    with pytest.raises(FormulaError, match="no <->"):
        canonical(Programs.pack([rv.parse("x_0 >= 1 <-> x_1 >= 1")]))
    with pytest.raises(FormulaError, match="no once"):
        canonical(Programs.pack([rv.parse("always once[0,3] x_0 >= 1")]))
    with pytest.raises(FormulaError, match="no lags, as in x_0 - prev x_0"):
        canonical(Programs.pack([rv.parse("x_0 - prev x_0 >= 1")]))
    large = rv.parse(" and ".join(f"x_0 >= {i}" for i in range(MAX_NODES)))
    with pytest.raises(FormulaError, match="nodes, more than"):
        canonical(Programs.pack([large]))
    assert len(canonical(replace(SOURCES["seed"]).part(0, 0))) == 0
