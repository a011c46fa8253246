"""Simplification: the same robustness bit for bit, one result however the formula was written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.formula import Formula, parse, simplify
from rhovec.formula import operators as ops
from rhovec.formula.operators import Row
from rhovec.formula.strategies import formulae
from rhovec.robustness.reference import satisfaction_trace

DEEP = 100_000
LESS = 10_000  # where nothing collapses
NAMES = ("x_0", "x_1", "x_2")

# Few thresholds and variables, so that operands repeat, imply and absorb each other.
TEXTS = [
    f"{name} {comparison} {threshold}"
    for name in NAMES[:2]
    for comparison in ("<", "<=", ">", ">=")
    for threshold in (-1, 0, 0.5)
] + ["x_0 - prev x_0 > 0", "(next x_1) >= 0", "true", "false"]


@st.composite
def crowded(draw: st.DrawFn) -> Formula:
    """Formulae in which the rules for and/or find something to do."""

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        window = st.sampled_from(["", "[0,0]", "[1,1]", "[0,3]", "[2,inf]", "[1,30]"])
        binary = st.sampled_from(["and", "and", "or", "or", "->", "<->"])
        unary = st.sampled_from(["not", "next", "prev", "rise", "fall"])
        timed = st.sampled_from(["always", "eventually", "historically", "once"])
        over_time = st.sampled_from(["until", "since", "release", "weak_until"])
        return st.one_of(
            st.builds(lambda a, op, b: f"({a} {op} {b})", inner, binary, inner),
            st.builds(lambda op, a: f"{op} ({a})", unary, inner),
            st.builds(lambda op, w, a: f"{op}{w} ({a})", timed, window, inner),
            st.builds(lambda a, op, w, b: f"({a} {op}{w} {b})", inner, over_time, window, inner),
        )

    return parse(draw(st.recursive(st.sampled_from(TEXTS), extend, max_leaves=12)))


any_formula = (
    formulae(NAMES, max_bound=12, max_leaves=8)
    | formulae(NAMES, max_bound=5, max_leaves=8, past=True, linear=True, max_lag=3)
    | crowded()
)


def traces(points: int, seed: int = 0) -> np.ndarray:
    """(4, 3, points), half of them with ties."""
    x = np.random.default_rng(seed).normal(size=(4, 3, points))
    x[:2] = np.round(2 * x[:2]) / 2
    return x


def same_robustness(phi: Formula, psi: Formula, points: int) -> bool:
    a, b = rv.robustness([phi, psi], traces(points), trace=True)
    return np.array_equal(a, b)


# -- properties ------------------------------------------------------------------------------------


@given(any_formula, st.sampled_from([1, 2, 9]))
def test_robustness_stays_the_same(phi: Formula, points: int) -> None:
    assert same_robustness(phi, simplify(phi), points)


@given(any_formula)
def test_satisfaction_stays_the_same(phi: Formula) -> None:
    x = dict(zip(NAMES, traces(5).transpose(1, 0, 2), strict=True))
    assert np.array_equal(satisfaction_trace(phi, x), satisfaction_trace(simplify(phi), x))


@given(any_formula)
def test_a_second_time_changes_nothing_and_nothing_gets_longer(phi: Formula) -> None:
    once = simplify(phi)
    assert simplify(once) == once
    assert once.size <= phi.size


@given(any_formula)
def test_the_negation_is_simplified_alike(phi: Formula) -> None:
    assert simplify(~~phi) == simplify(phi)
    assert same_robustness(~phi, simplify(~phi), 4)


@pytest.mark.parametrize("past", [False, True])
def test_random_formulae_stay_the_same(past: bool) -> None:
    drawn = rv.random_formulae(400, seed=5, past=past)
    simple = [simplify(phi) for phi in drawn]
    x = traces(20, seed=1)
    assert np.array_equal(rv.robustness(drawn, x, trace=True), rv.robustness(simple, x, trace=True))
    assert sum(s.size for s in simple) < sum(phi.size for phi in drawn)


def shuffled(phi: Formula, seed: int) -> Formula:
    """Operands of and, or and iff swapped at random, everywhere."""
    rng = np.random.default_rng(seed)
    stack: list[list[Row]] = []
    for row in phi.rows():
        operands = [stack.pop() for _ in range(ops.arity(row[0]))][::-1]
        if row[0] in (ops.AND, ops.OR, ops.IFF) and rng.random() < 0.5:
            operands.reverse()
        stack.append([r for operand in operands for r in operand] + [row])
    return Formula.from_rows(stack[0])


@given(any_formula, st.integers(0, 10**6))
@example(parse("not (x_0 > 0 <-> x_1 > 0)"), 2)  # the negation once stayed with the first operand
def test_the_order_of_operands_does_not_matter(phi: Formula, seed: int) -> None:
    assert simplify(shuffled(phi, seed)) == simplify(phi)


@given(st.permutations(TEXTS[:-4]), st.integers(2, 8), st.sampled_from(["and", "or"]))
def test_the_nesting_of_and_and_or_does_not_matter(texts: list[str], n: int, op: str) -> None:
    leaning_left = f" {op} ".join(texts[:n])
    leaning_right = f" {op} (".join(texts[:n][::-1]) + ")" * (n - 1)
    assert simplify(parse(leaning_left)) == simplify(parse(leaning_right))


# -- rules, one by one -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        # constants
        ("x > 0 and true", "x > 0"),
        ("x > 0 and false", "false"),
        ("x > 0 or true", "true"),
        ("x > 0 or false", "x > 0"),
        ("false -> x > 0", "true"),
        ("true -> x > 0", "x > 0"),
        ("x > 0 -> false", "x <= 0"),
        ("x > 0 -> true", "true"),
        ("x > 0 <-> true", "x > 0"),
        ("false <-> x > 0", "x <= 0"),
        ("true <-> false", "false"),
        ("not true", "false"),
        ("always[3,9] true", "true"),
        ("eventually next false", "false"),
        ("x > 0 until false", "false"),
        ("false until[2,5] x > 0", "false"),
        ("true until[2,5] x > 0", "eventually[2,5] x > 0"),
        ("x > 0 until[2,5] true", "always[0,2] x > 0"),
        ("x > 0 until true", "x > 0"),
        # negation
        ("not not x > 0", "x > 0"),
        ("not x >= 0", "x < 0"),
        ("not (x > 0 and y > 0)", "x <= 0 or y <= 0"),
        ("not (x > 0 or y > 0)", "x <= 0 and y <= 0"),
        ("not (x > 0 -> y > 0)", "x > 0 and y <= 0"),
        ("not always[1,3] x > 0", "eventually[1,3] x <= 0"),
        ("not eventually x > 0", "always x <= 0"),
        ("not next x > 0", "always[1,1] x <= 0"),
        ("not (x > 0 until y > 0)", "not (x > 0 until y > 0)"),
        ("not not (x > 0 until y > 0)", "x > 0 until y > 0"),
        ("not (x > 0 <-> y > 0)", "x > 0 <-> y <= 0"),
        ("not (y > 0 <-> x > 0)", "x > 0 <-> y <= 0"),
        ("x <= 0 <-> y <= 0", "x > 0 <-> y > 0"),
        ("x > 0 -> y > 0", "x <= 0 or y > 0"),
        # windows
        ("always[0,0] x > 0", "x > 0"),
        ("eventually[0,0] x > 0", "x > 0"),
        ("always[1,2] always[3,4] x > 0", "always[4,6] x > 0"),
        ("eventually[1,2] eventually[3,inf] x > 0", "eventually[4,inf] x > 0"),
        ("always always x > 0", "always x > 0"),
        ("next next next x > 0", "always[3,3] x > 0"),
        ("next eventually[2,5] x > 0", "eventually[3,6] x > 0"),
        ("eventually[2,5] next x > 0", "eventually[3,6] x > 0"),
        ("eventually[4,4] always[1,2] next x > 0", "always[6,7] x > 0"),
        ("always[0,2] eventually[0,3] x > 0", "always[0,2] eventually[0,3] x > 0"),
        ("not next not next x > 0", "always[2,2] x > 0"),
        # until
        ("x > 0 until[0,0] y > 0", "x > 0 and y > 0"),
        ("x > 0 until[0,7] x > 0", "x > 0"),
        ("x > 0 until[1,7] x > 0", "always[0,1] x > 0"),
        # release and weak until; the left operand holds to the end, so `p weak_until true` is p
        ("x > 0 weak_until true", "x > 0"),
        ("x > 0 weak_until[2,5] true", "always[0,2] x > 0"),
        ("x > 0 weak_until[2,5] false", "always[0,5] x > 0"),
        ("true weak_until x > 0", "true"),
        ("false weak_until[1,2] x > 0", "false"),
        ("x > 0 weak_until[0,0] y > 0", "x > 0"),
        ("x > 0 weak_until[2,5] x > 0", "always[0,2] x > 0"),
        ("x > 0 weak_until not not y > 0", "x > 0 weak_until y > 0"),
        ("true release x > 0", "true"),
        ("false release[1,3] x > 0", "always[1,3] x > 0"),
        ("x > 0 release true", "true"),
        ("x > 0 release[1,3] false", "eventually[0,1] x > 0"),
        ("x > 0 release[0,0] y > 0", "x > 0 or y > 0"),
        ("x > 0 release[1,3] x > 0", "eventually[0,1] x > 0"),
        ("x > 0 release y > 0", "x > 0 release y > 0"),
        ("not (x > 0 release y > 0)", "x <= 0 until y <= 0"),
        ("(x > 0 release y > 0) and z > 0", "z > 0 and x > 0 release y > 0"),
        # negations that would be more than there were
        ("(x > 0 until y > 0) -> z > 0", "(x > 0 until y > 0) -> z > 0"),
        ("not (x > 0 until y > 0) or not (x > 0 until z > 0)",
         "not (x > 0 until y > 0 and x > 0 until z > 0)"),
        ("x <= 0 <-> y > 0 until z > 0", "x <= 0 <-> y > 0 until z > 0"),
        # past
        ("once[1,2] once[3,4] x > 0", "once[4,6] x > 0"),
        ("historically historically[2,3] x > 0", "historically[2,inf] x > 0"),
        ("not once[1,3] x > 0", "historically[1,3] x <= 0"),
        ("not prev x > 0", "historically[1,1] x <= 0"),
        ("prev prev prev x > 0", "historically[3,3] x > 0"),
        ("once[2,5] prev x > 0", "once[3,6] x > 0"),
        ("once[0,0] x > 0", "x > 0"),
        ("true since[2,5] x > 0", "once[2,5] x > 0"),
        ("x > 0 since[2,5] true", "historically[0,2] x > 0"),
        ("x > 0 since[2,5] x > 0", "historically[0,2] x > 0"),
        ("x > 0 since[0,0] y > 0", "x > 0 and y > 0"),
        ("x > 0 since false", "false"),
        ("not (x > 0 since y > 0)", "not (x > 0 since y > 0)"),
        ("rise(true)", "false"),
        ("fall(false)", "false"),
        ("rise(not not x > 0)", "rise(x > 0)"),
        # past and future
        ("next prev x > 0", "x > 0"),
        ("prev next (x > 0 until y > 0)", "x > 0 until y > 0"),
        ("prev next next x > 0", "always[1,1] x > 0"),
        ("eventually[2,5] once[0,2] x > 0", "eventually[0,5] x > 0"),
        ("eventually[0,5] once[0,2] x > 0", "eventually[0,5] once[0,2] x > 0"),
        ("once[0,2] eventually[0,5] x > 0", "eventually[0,5] once[0,2] x > 0"),
        ("once[0,2] eventually[3,5] x > 0", "eventually[1,5] x > 0"),
        ("historically[1,4] always[2,3] x > 0", "always[0,2] historically[0,2] x > 0"),
        ("once[0,3] always[0,3] x > 0", "once[0,3] always[0,3] x > 0"),
        ("always[3,9] once eventually[2,inf] x > 0", "eventually once x > 0"),
        ("historically[2,2] eventually[5,7] x > 0", "eventually[3,5] x > 0"),
        # steps move to where fewer are needed
        ("prev (next x > 0 and next y > 0)", "x > 0 and y > 0"),
        ("next x > 0 and next y > 0", "always[1,1] (x > 0 and y > 0)"),
        ("prev (next x > 0 and y > 0)", "x > 0 and historically[1,1] y > 0"),
        ("next x > 0 until[1,2] next y > 0", "always[1,1] (x > 0 until[1,2] y > 0)"),
        ("prev (next x > 0 since not next y > 0)", "x > 0 since y <= 0"),
        ("eventually[0,2] (prev x > 0 <-> prev y > 0)", "eventually[0,1] once[0,1] (x > 0 <-> y > 0)"),
        ("next (x - prev x > 0)", "(next x) - x > 0"),
        ("next ((prev x) > 0)", "x > 0"),
        # windows over one operand
        ("always[0,2] x > 0 and always[3,5] x > 0", "always[0,5] x > 0"),
        ("x > 0 and always[1,5] x > 0", "always[0,5] x > 0"),
        ("x > 0 and historically x > 0", "historically x > 0"),
        ("always x > 0 and historically[1,inf] x > 0", "always historically x > 0"),
        ("x > 0 or eventually[1,2] x > 0", "eventually[0,2] x > 0"),
        ("always[0,2] x > 0 and always[4,5] x > 0", "always[0,2] x > 0 and always[4,5] x > 0"),
        ("always[0,2] x > 0 and eventually[2,9] x > 0", "always[0,2] x > 0"),
        ("always[0,2] x > 0 or eventually[2,9] x > 0", "eventually[2,9] x > 0"),
        ("always[0,2] x > 0 or always[1,2] x > 0", "always[1,2] x > 0"),
        ("eventually[0,2] x > 0 and eventually[1,2] x > 0", "eventually[1,2] x > 0"),
        # and, or
        ("y > 0 and x > 0", "x > 0 and y > 0"),
        ("(z > 0 and y > 0) and (x > 0 and y > 0)", "x > 0 and y > 0 and z > 0"),
        ("x > 0 and x > 0", "x > 0"),
        ("x > 0 and x > 1", "x > 1"),
        ("x > 0 or x > 1", "x > 0"),
        ("x < 0 and x < 1", "x < 0"),
        ("x < 0 or x < 1", "x < 1"),
        ("x >= 1 and x > 1", "x > 1"),
        ("x >= 1 or x > 1", "x >= 1"),
        ("x <= 1 or x < 1", "x <= 1"),
        ("x > 0 and x < 1", "x > 0 and x < 1"),
        ("x > 0 and (x > 0 or y > 0)", "x > 0"),
        ("x > 0 or (y > 0 and x > 0)", "x > 0"),
        ("(always x > 0 or y > 0) and always x > 0", "always x > 0"),
        ("y > 0 <-> x > 0", "x > 0 <-> y > 0"),
    ],
)  # fmt: skip
def test_rule(text: str, simple: str) -> None:
    assert simplify(parse(text)) == parse(simple)


def test_a_future_formula_gets_no_past() -> None:
    drawn = [rv.parse("(x > 0 or next y > 0) until next z > 0 and next x > 0")]
    drawn += rv.random_formulae(300, seed=8)
    for phi in drawn:
        assert not simplify(phi).looks_back


@given(any_formula, st.integers(1, 3), st.booleans())
def test_steps_to_and_fro_change_nothing(phi: Formula, steps: int, first: bool) -> None:
    there, back = ("next ", "prev ") if first else ("prev ", "next ")
    both = parse(f"{steps * there}{steps * back}({phi})")
    assert simplify(both) == simplify(phi)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6),
    st.sampled_from(["always", "eventually", "historically", "once"]),
)
def test_nested_windows_of_one_kind_become_one(windows: list[tuple[int, int]], name: str) -> None:
    text = " ".join(f"{name}[{lo},{lo + width}]" for lo, width in windows) + " x_0 > 0"
    lo, width = (sum(each) for each in zip(*windows, strict=True))
    step = "always" if name in ("always", "eventually") else "historically"
    label = step if width == 0 else name  # a window of one step is both
    expected = "x_0 > 0" if lo == width == 0 else f"{label}[{lo},{lo + width}] x_0 > 0"
    assert simplify(parse(text)) == parse(expected)


@pytest.mark.parametrize(
    "text",
    [
        f"always[0,{ops.MAX_BOUND}] always[0,1] x_0 > 0",
        f"once[0,{ops.MAX_PAST}] once[0,1] x_0 > 0",
        f"historically[{ops.MAX_PAST},{ops.MAX_PAST}] historically[1,1] x_0 > 0",
    ],
)
def test_windows_are_not_merged_beyond_the_largest_bound(text: str) -> None:
    phi = parse(text)
    assert simplify(phi) == phi
    assert same_robustness(phi, simplify(phi), 3)


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("not " * DEEP + "x > 1", "x > 1"),
        ("next " * DEEP + "x > 1", f"always[{DEEP},{DEEP}] x > 1"),
        ("x > 1 and " * DEEP + "y > 1", "x > 1 and y > 1"),
        ("(" * DEEP + "x > 1" + " or y > 1)" * DEEP, "x > 1 or y > 1"),
        ("x > 1 -> " * DEEP + "y > 1", "x <= 1 or y > 1"),
        ("(" * LESS + "x > 1" + " and y > 1) or z > 1" * LESS, None),
        ("x > 1 <-> " * LESS + "y > 1", None),
        ("not (x > 1 <-> " * LESS + "y > 1" + ")" * LESS, None),
        ("not (x > 1 and " * LESS + "y > 1" + ")" * LESS, None),
        (" and ".join(f"x_{i} > {i}" for i in range(LESS)), None),
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_deep_and_wide_formulae(text: str, simple: str | None) -> None:
    result = simplify(parse(text))
    if simple is not None:
        assert result == parse(simple)
    assert simplify(result) == result
