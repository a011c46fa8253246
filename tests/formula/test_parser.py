"""The language: every spelling and precedence, exact numbers, and an error for all other text."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import ParseError, RhovecError
from rhovec.formula import operators as ops
from rhovec.formula import parser
from rhovec.formula.core import Formula
from rhovec.formula.parser import exact_step, parse
from rhovec.robustness.reference import robustness_trace, satisfaction_trace

DEEP = 100_000

# -- spellings -------------------------------------------------------------------------------------

UNARY_SPELLINGS = {
    "not": ("!", "~", "¬"),
    "next": ("X",),
    "always": ("globally", "alw", "alw_", "G", "□"),
    "eventually": ("finally", "ev", "ev_", "F", "◇"),
}
BINARY_SPELLINGS = {
    "and": ("&", "&&", "/\\", "∧"),
    "or": ("|", "||", "\\/", "∨"),
    "->": ("implies", "=>", "→"),
    "<->": ("iff", "<=>", "↔"),
    "until": ("until_", "U"),
    "release": ("R",),
    "weak_until": ("W", "unless"),
}
COMPARISON_SPELLINGS = {">=": ("≥",), "<=": ("≤",), "==": ("=",), "!=": ("≠",)}


@pytest.mark.parametrize(
    ("name", "spelling"), [(n, s) for n, others in UNARY_SPELLINGS.items() for s in others]
)
def test_spellings_of_unary_operators(name: str, spelling: str) -> None:
    assert parse(f"{spelling} (x > 1)") == parse(f"{name} ( x > 1 )")
    assert parse(f"a < 2 & {spelling}(x > 1)") == parse(f"a < 2 and {name} x > 1")
    if name in ("always", "eventually"):
        assert parse(f"{spelling}[2,7](x > 1)") == parse(f"{name} [ 2 , 7 ] x > 1")


@pytest.mark.parametrize(
    ("name", "spelling"), [(n, s) for n, others in BINARY_SPELLINGS.items() for s in others]
)
def test_spellings_of_binary_operators(name: str, spelling: str) -> None:
    expected = parse(f"( x > 1 {name} y < 2 )")
    assert parse(f"x > 1 {spelling} y < 2") == expected
    assert parse(f"(x > 1){spelling}(y < 2)") == expected
    assert parse(f"x + 1 > 2 {spelling} 2 > y") == expected
    if name == "until":
        assert parse(f"(x > 1) {spelling}[2:7] (y < 2)") == parse("x > 1 until[2,7] y < 2")


@pytest.mark.parametrize(
    ("name", "spelling"), [(n, s) for n, others in COMPARISON_SPELLINGS.items() for s in others]
)
def test_spellings_of_comparisons(name: str, spelling: str) -> None:
    assert parse(f"x{spelling}1", tolerance=0.5) == parse(f"x {name} 1", tolerance=0.5)


def test_the_lists_above_are_all_there_is() -> None:
    listed = {"⊤", "⊥", "true", "false", "abs", "min", "max", "inf", *"+-*/", ">", "<"}
    for spellings in (UNARY_SPELLINGS, BINARY_SPELLINGS, COMPARISON_SPELLINGS):
        listed |= {*spellings, *(s for others in spellings.values() for s in others)}
    assert listed == parser.RESERVED
    assert set(ops.NAMES) <= listed


def test_the_text_of_the_design() -> None:
    phi = parse("always[0,10] ( eventually ( x_0 >= 0.3 ) and not ( x_1 < 2 ) )")
    assert phi == parse("G[0,10](F x_0>=.3&!x_1<2)")
    assert str(phi) == "always[0,10] ( ( eventually ( x_0 >= 0.3 ) and not ( x_1 < 2 ) ) )"


def test_constants_and_window_defaults() -> None:
    assert parse("⊤") == parse("true")
    assert parse("⊥") == parse("( false )")
    assert parse("always x > 1") == parse("always[0,inf] x > 1")
    assert parse("true until x > 1") == parse("true until[0, inf] x > 1")
    assert parse("next x > 1").rows()[-1][1:3] == (0, 0)


@pytest.mark.parametrize(
    "number", ["0.5", ".5", "5e-1", "5E-1", "50e-02", "+.5", "0.50", "0000.5", "5.e-1"]
)
def test_numbers_in_any_notation(number: str) -> None:
    expected = parse("x >= 0.5")
    for text in (f"x >= {number}", f"x>={number}", f"{number} <= x", f"x - {number} >= 0"):
        assert parse(text) == expected
    assert parse(f"x >= -{number.lstrip('+')}") == parse("-0.5 <= x")


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}(\.[a-z]\w{0,3})?", fullmatch=True).filter(
    lambda name: name not in parser.RESERVED
)
numbers = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.decimals(
    -(10**9), 10**9, allow_nan=False, places=12
).map(str)


@given(
    names, st.sampled_from([">=", ">", "<=", "<", "≥", "≤"]), numbers, st.sampled_from([" ", ""])
)
def test_the_shortcut_for_plain_atoms_changes_nothing(
    name: str, comparison: str, number: str, space: str
) -> None:
    plain = parse(f"{name}{space}{comparison}{space}{number}")
    general = parse(f"{name} + 0 {comparison} {number}")  # arithmetic, so read the long way
    assert plain == general
    assert plain.rows()[0][3:] == (((name, 1.0),), float(number) + 0.0)


def test_the_shortcut_for_plain_atoms_sees_what_follows() -> None:
    for text, same in {
        "x < 1 <= y": "x < 1 and y >= 1",
        "x < 1<y": "x < 1 and y > 1",
        "x < 1 = y": "x < 1 and 1 = y",
        "x < 1 != y": "x < 1 and 1 != y",
        "x < 1 ≥ y ≤ 3": "x < 1 and 1 >= y and y <= 3",
        "x < 1 + y": "x - y < 1",
        "x < 1-y": "x + y < 1",
        "x < 3 * y": "x - 3 * y < 0",
        "x < 6 / 2": "x < 3",
        "x < 1->y > 1": "(x < 1) -> (y > 1)",
        "x < 1<->y > 1": "(x < 1) <-> (y > 1)",
        "x < 1=>y > 1": "(x < 1) -> (y > 1)",
        "x < 1<=>y > 1": "(x < 1) <-> (y > 1)",
        "x < 1/\\y > 1": "(x < 1) and (y > 1)",
        "2 * x < 1 and 3 - x < 1": "(2 * x < 1) and (x > 2)",
        "0 < x < 1 or -x < 1": "(x > 0 and x < 1) or (x > -1)",
    }.items():
        assert parse(text, tolerance=0.5) == parse(same, tolerance=0.5), text


def test_names() -> None:
    for name in ("engine.rpm", "_a", "Grün", "F1", "always_on", "x_0"):
        assert parse(f"{name} > 1 and 2 < {name}").variables == (name,)


# -- precedence ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("a>0 <-> b>0 -> c>0", "a>0 <-> (b>0 -> c>0)"),
        ("a>0 -> b>0 <-> c>0", "(a>0 -> b>0) <-> c>0"),
        ("a>0 <-> b>0 <-> c>0", "(a>0 <-> b>0) <-> c>0"),
        ("a>0 -> b>0 -> c>0", "a>0 -> (b>0 -> c>0)"),
        ("a>0 or b>0 -> c>0", "(a>0 or b>0) -> c>0"),
        ("a>0 -> b>0 or c>0", "a>0 -> (b>0 or c>0)"),
        ("a>0 or b>0 and c>0", "a>0 or (b>0 and c>0)"),
        ("a>0 and b>0 or c>0", "(a>0 and b>0) or c>0"),
        ("a>0 or b>0 or c>0", "(a>0 or b>0) or c>0"),
        ("a>0 and b>0 and c>0", "(a>0 and b>0) and c>0"),
        ("a>0 and b>0 until c>0", "a>0 and (b>0 until c>0)"),
        ("a>0 until b>0 and c>0", "(a>0 until b>0) and c>0"),
        ("a>0 until b>0 until[1,2] c>0", "a>0 until (b>0 until[1,2] c>0)"),
        ("not a>0 until b>0", "(not (a>0)) until b>0"),
        ("a>0 until not b>0", "a>0 until (not (b>0))"),
        ("always a>0 and b>0", "(always (a>0)) and b>0"),
        ("always[1,2] a>0 until b>0", "(always[1,2] (a>0)) until b>0"),
        ("a>0 until eventually b>0 until c>0", "a>0 until ((eventually (b>0)) until c>0)"),
        ("not next always not a>0", "not (next (always (not (a>0))))"),
        ("not a>0 -> b>0", "(not (a>0)) -> b>0"),
        ("not a + 1 > 2 * b", "not (a + 1 > 2 * b)"),
        ("a - b - c > 0", "(a - b) - c > 0"),
        ("a - 2 * b + c > 0", "(a - (2 * b)) + c > 0"),
        ("-a * 2 + b > 0", "((-a) * 2) + b > 0"),
        ("a / 2 / 4 > 1", "(a / 2) / 4 > 1"),
        ("a / 2 * 4 > 1", "(a / 2) * 4 > 1"),
        ("- - a > 1", "a > 1"),
        ("2 * -a > 1", "2 * (-a) > 1"),
        ("+a > + 1", "a > 1"),
    ],
)
def test_precedence_and_associativity(text: str, grouped: str) -> None:
    assert parse(text) == parse(grouped)


def test_chains_are_conjunctions_of_neighbours() -> None:
    assert parse("1.75 < pos < 2.25") == parse("pos > 1.75 and pos < 2.25")
    assert parse("a < b <= c > 3") == parse("(a < b and b <= c) and c > 3")
    assert parse("not 0 < a < 1") == parse("not (a > 0 and a < 1)")
    assert parse("0 < a < 1 until b > 0") == parse("(a > 0 and a < 1) until b > 0")


# -- expressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("y4 - y5 <= -8", "y5 - y4 >= 8"),
        ("8 <= y5 - y4", "y5 - y4 >= 8"),
        ("-y4 > -y5 + 8", "y5 - y4 > 8"),
        ("-x >= 1", "x <= -1"),
        ("-x - y < 1", "x + y > -1"),
        ("x_10 + x_2 > 0", "x_2 + x_10 > 0"),
        ("b - 3 * c + a > 0", "a + b - 3 * c > 0"),
        ("-a - b + c <= 2", "a + b - c >= -2"),
        ("a + a + a > 3 * 2", "3 * a > 6"),
        ("x + 0.1 >= 0.4", "x >= 0.3"),
        ("0.1 + 0.2 <= x", "x >= 0.3"),
        ("3 * x / 3 >= 1 / 3", "x >= 0.3333333333333333"),
        ("x + y - y > 1e-300 * 1e300", "x > 1"),
        ("x >= -0.0", "x >= 0"),
        ("2 * (x - (1 - y) / 4) < 0", "2 * x + 0.5 * y < 0.5"),
        ("abs(x - 1) <= 2", "( x <= 3 and x >= -1 )"),
        ("abs(x - 1) > 2", "( x > 3 or x < -1 )"),
        ("max(x, y) > min(1, z)", "( ( ( x > 1 or z - x < 0 ) or y > 1 ) or z - y < 0 )"),
    ],
)
def test_atoms_have_one_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


SAMPLES = np.random.default_rng(0).normal(0, 3, (3, 40, 1))  # variable, trace, point
TRACES = dict(zip("abc", SAMPLES, strict=True))
Evaluated = tuple[str, np.ndarray]  # the text of an expression, its value on TRACES (40, 1)


def expressions() -> st.SearchStrategy[Evaluated]:
    """Any expression of the language, with its value computed directly."""
    constant = st.integers(-80, 80).map(lambda k: k / 8)
    leaves = st.sampled_from(sorted(TRACES)).map(lambda n: (n, TRACES[n])) | constant.map(
        lambda c: (f"({c!r})", np.full((40, 1), c))
    )

    def extend(inner: st.SearchStrategy[Evaluated]) -> st.SearchStrategy[Evaluated]:
        nonzero = constant.filter(bool)
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            st.builds(lambda x, y: (f"({x[0]} + {y[0]})", x[1] + y[1]), inner, inner),
            st.builds(lambda x, y: (f"({x[0]} - {y[0]})", x[1] - y[1]), inner, inner),
            st.builds(lambda x, c: (f"{c!r} * {x[0]}", c * x[1]), inner, constant),
            st.builds(lambda x, c: (f"({x[0]} / {c!r})", x[1] / c), inner, nonzero),
            inner.map(lambda x: (f"(-{x[0]})", -x[1])),
            inner.map(lambda x: (f"abs({x[0]})", abs(x[1]))),
            several.map(lambda xs: _function("min", np.minimum.reduce, xs)),
            several.map(lambda xs: _function("max", np.maximum.reduce, xs)),
        )

    return st.recursive(leaves, extend, max_leaves=6)


def _function(name: str, reduce: Callable[..., np.ndarray], parts: list[Evaluated]) -> Evaluated:
    return f"{name}({', '.join(text for text, _ in parts)})", reduce([value for _, value in parts])


def parse_or_skip(text: str, **options: float) -> Formula:
    """Random expressions may lose their variables, or grow too large; both have their own tests."""
    try:
        return parse(text, **options)
    except ParseError as error:
        assume("no variable" not in error.message and "expands to more" not in error.message)
        raise


@given(expressions(), st.sampled_from(["<", "<=", ">", ">="]), expressions())
def test_expressions_mean_what_numpy_computes(
    left: Evaluated, comparison: str, right: Evaluated
) -> None:
    phi = parse_or_skip(f"{left[0]} {comparison} {right[0]}")
    difference = left[1] - right[1] if comparison[0] == ">" else right[1] - left[1]
    size = 1 + abs(left[1]) + abs(right[1])
    assert (abs(robustness_trace(phi, TRACES) - difference) <= 1e-9 * size).all()


@given(expressions(), expressions(), st.integers(0, 40).map(lambda k: k / 8))
def test_equality_is_within_the_tolerance(
    left: Evaluated, right: Evaluated, tolerance: float
) -> None:
    phi = parse_or_skip(f"{left[0]} == {right[0]}", tolerance=tolerance)
    distance = abs(left[1] - right[1])
    size = 1 + abs(left[1]) + abs(right[1])
    rho = robustness_trace(phi, TRACES)
    assert (abs(rho - (tolerance - distance)) <= 1e-9 * size).all()
    other = parse(f"{left[0]} != {right[0]}", tolerance=tolerance)
    assert (robustness_trace(other, TRACES) == -rho).all()
    assert (satisfaction_trace(other, TRACES) == ~satisfaction_trace(phi, TRACES)).all()


def test_tolerances() -> None:
    assert parse("gear == 3", discrete=["gear"]) == parse("gear >= 2.5 and gear <= 3.5")
    assert parse("gear != 3", discrete=["gear"]) == parse("gear < 2.5 or gear > 3.5")
    assert parse("a == b", discrete=["a", "b"]) == parse("b - a <= 0.5 and b - a >= -0.5")
    by_name = {"x": 0.1, "y": 0.2, "z": 0.1}
    assert parse("x = 1", tolerance=by_name) == parse("x >= 0.9 and x <= 1.1")
    assert parse("z - x = 1", tolerance=by_name) == parse("z - x == 1", tolerance=0.1)
    assert parse("1 == x", tolerance=0) == parse("x <= 1 and x >= 1")
    for conflict in ("x == y", "w == 1"):
        with pytest.raises(ParseError, match="need a tolerance"):
            parse(conflict, tolerance=by_name)
    with pytest.raises(ParseError, match="need a tolerance"):
        parse("gear == x", discrete=["gear"])


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "dt", "steps"),
    [
        ("[0,0.3]", 0.1, (0, 3)),
        ("[0.1,0.7]", 0.1, (1, 7)),
        ("[0,0.3]", "0.1", (0, 3)),
        ("[1.10,2.20]", 0.05, (22, 44)),
        ("[1e-3, 1]", 1e-3, (1, 1000)),
        ("[5,inf]", 2.5, (2, ops.UNBOUNDED)),
        ("[0,60]", 60, (0, 1)),
        ("[ 0.5 : 1 ]", 0.25, (2, 4)),
        ("", 0.1, (0, ops.UNBOUNDED)),
    ],
)
def test_bounds_in_seconds(window: str, dt: float | str, steps: tuple[int, int]) -> None:
    for operator in ("always", "eventually", "true until"):
        assert parse(f"{operator}{window} x > 0", dt=dt).rows()[-1][1:3] == steps


@pytest.mark.parametrize(
    ("rounding", "first", "second"),
    [("nearest", (0, 3), (1, 3)), ("down", (0, 2), (0, 3)), ("up", (1, 3), (1, 4))],
)
def test_rounding_rules(rounding: str, first: tuple[int, int], second: tuple[int, int]) -> None:
    """In steps: [0.2, 2.9] and [0.5, 3.1]; whole numbers of steps are never moved."""

    def window(text: str) -> tuple[int, int]:
        return parse(f"always{text} x > 0", dt=0.1, rounding=rounding).rows()[-1][1:3]

    assert window("[0.02,0.29]") == first
    assert window("[0.05,0.31]") == second
    assert window("[0.1,0.3]") == (1, 3)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0.1, 0.3, 0.007, 1e-4, 7]))
def test_every_whole_number_of_steps_is_exact(lo: int, width: int, dt: float) -> None:
    step = exact_step(dt)
    phi = parse(f"eventually[{lo},{lo + width}] x > 0")
    seconds = [float(bound * step) for bound in (lo, lo + width)]
    text = f"eventually[{seconds[0]!r},{seconds[1]!r}] x > 0"
    assert parse(text, dt=dt) == phi
    assert parse(phi.to_text(dt=dt), dt=dt) == phi


def test_steps_of_other_types() -> None:
    assert exact_step(np.float32(0.1)) == exact_step(0.1) == exact_step("1e-1")
    assert exact_step(3) == 3


@pytest.mark.parametrize(
    "dt",
    ["1/3", "", "0", 0, -1, "-0.1", "nan", "inf", float("inf"), True, "1_0", "abc", "1e-16", "1e15",
     "1e999999999", "1e-999999999", "1e99999999999999999999", 0.1234567890123456789e-3, None, []],
)  # fmt: skip
def test_steps_that_are_no_decimal_number(dt: object) -> None:
    with pytest.raises(RhovecError, match="dt must be a positive decimal number"):
        exact_step(dt)  # type: ignore[arg-type]


# -- errors ----------------------------------------------------------------------------------------

ERRORS = [
    ("", (1, 1), "expected a formula or an expression, found the end of the text"),
    (" \n\t\n ", (3, 2), "found the end of the text"),
    ("x", (1, 1), "expected a formula, but this is an expression; compare it"),
    ("x > 1 and (y + 2)", (1, 11), "expected a formula, but this is an expression"),
    ("not x", (1, 5), "expected a formula, but this is an expression"),
    ("x until y > 1", (1, 1), "expected a formula, but this is an expression"),
    ("x > ", (1, 5), "expected a formula or an expression, found the end of the text"),
    ("x > 1 and", (1, 10), "found the end of the text"),
    ("x > 1\nand\n  > 2", (3, 3), "expected a formula or an expression, found '>'"),
    ("x > 1 y < 2", (1, 7), "expected an operator or the end of the text, found 'y'"),
    ("x > 1 not y < 2", (1, 7), "expected an operator or the end of the text, found 'not'"),
    ("x 5 > 1", (1, 3), "expected an operator or the end of the text, found '5'"),
    ("x > 1 and\n y # 2", (2, 4), "unexpected character '#'"),
    ("x . y", (1, 3), "unexpected character '.'"),
    ("(x > 1", (1, 1), "expected ')' to close the one opened here"),
    ("a > 1 and ((x > 1) or y > 2", (1, 11), "expected ')' to close the one opened here"),
    ("abs(x > 1", (1, 1), "expected ')' to close the one opened here"),
    ("x > 1)", (1, 6), "')' closes nothing"),
    ("()", (1, 2), "expected a formula or an expression, found ')'"),
    ("x > 1, y > 2", (1, 6), "unexpected ','"),
    ("(x, y) > 1", (1, 3), "unexpected ','"),
    ("always[5,2] x > 1", (1, 7), "interval [5,2] ends before it starts; write the smaller"),
    ("x > 1 until[3, 1] y > 1", (1, 12), "interval [3, 1] ends before it starts"),
    ("always[-1,2] x > 1", (1, 8), "a time bound must not be negative or signed"),
    ("always[0,-2] x > 1", (1, 10), "a time bound must not be negative or signed"),
    ("always[0.5,2] x > 1", (1, 8), "time bound 0.5 is no whole number of steps"),
    ("always[0,2.0] x > 1", (1, 10), "pass the sampling step (dt)"),
    ("always[0,1e3] x > 1", (1, 10), "time bound 1e3 is no whole number of steps"),
    ("always[0,1000000000000001] x > 1", (1, 10), "larger than 1000000000000000 steps; use inf"),
    ("always[0,99999999999999999999] x>1", (1, 10), "larger than 1000000000000000 steps; use inf"),
    ("always[inf,inf] x > 1", (1, 8), "expected a number as left bound, found 'inf'"),
    ("always[0,y] x > 1", (1, 10), "expected a number as right bound, found 'y'"),
    ("always[0,", (1, 10), "expected a number as right bound, found the end of the text"),
    ("always[0 2] x > 1", (1, 10), "expected ',' between the bounds, found '2'"),
    ("always[0,2) x > 1", (1, 11), "expected ']' after the right bound, found ')'"),
    ("always[0,2]", (1, 12), "found the end of the text"),
    ("next[0,1] x > 1", (1, 5), "expected a formula or an expression, found '['"),
    ("x > inf", (1, 5), "('inf' may only stand in an interval)"),
    ("inf > x", (1, 1), "('inf' may only stand in an interval)"),
    ("x == 3", (1, 1), "== and != on x need a tolerance: pass tolerance=..., or declare"),
    ("y > 1 and x - y != 3", (1, 11), "== and != on x, y need a tolerance"),
    ("x > 1e999", (1, 5), "number 1e999 is too large"),
    ("x > -1e999", (1, 6), "number 1e999 is too large"),
    ("x > " + "9" * 400, (1, 5), "is too large"),
    ("1e400 * x > 1", (1, 1), "number 1e400 is too large"),
    ("1e300 * 1e300 * x > 1", (1, 1), "a number here is too large or too small for float64"),
    ("1e-300 * 1e-300 * x > 1", (1, 1), "a number here is too large or too small for float64"),
    ("x * y > 1", (1, 3), "a product of variables is not linear; one factor must be a number"),
    ("x * abs(y) > 1", (1, 3), "a product of variables is not linear"),
    ("1 / x > 1", (1, 3), "a division by a variable is not linear"),
    ("x / 0 > 1", (1, 3), "division by zero"),
    ("x / (1 - 1) > 1", (1, 3), "division by zero"),
    ("1 > 2", (1, 1), "this comparison has no variable (left); write true or false instead"),
    ("x - x > 1", (1, 1), "this comparison has no variable"),
    ("until > 1", (1, 1), "expected a formula or an expression, found 'until'"),
    ("x + and > 1", (1, 5), "expected a formula or an expression, found 'and'"),
    ("abs > 1", (1, 5), "expected '(' after abs, found '>'"),
    ("abs(x, y) > 1", (1, 1), "abs takes one argument, not 2"),
    ("max() > 1", (1, 5), "expected a formula or an expression, found ')'"),
    ("min(x, ) > 1", (1, 8), "expected a formula or an expression, found ')'"),
    ("abs(x > 1) > 1", (1, 5), "'abs' takes numbers and variables, but this is a formula"),
    ("max(x, true) > 1", (1, 8), "'max' takes numbers and variables, but this is a formula"),
    ("(x > 1) + 1 > 2", (1, 1), "'+' takes numbers and variables, but this is a formula"),
    ("-(x > 1)", (1, 2), "'-' takes numbers and variables, but this is a formula"),
    ("2 * not x > 1", (1, 5), "'*' takes numbers and variables, but this is a formula"),
    ("(x > 1) > 1", (1, 1), "'>' compares numbers, but its left side is a formula"),
    ("1 < (x > 1)", (1, 5), "'<' takes numbers and variables, but this is a formula"),
    (" + ".join(f"x_{i}" for i in range(300)) + " > 1", (1, 1937), "at most 256 variables"),
    ("max(" + ", ".join(f"x_{i}" for i in range(300)) + ") > 1", (1, 1), "more than 256 linear"),
    ("abs(a) + abs(b) + abs(c) + abs(d) + abs(e) + abs(f) + abs(g) + abs(h) + abs(i) > 1", (1, 71),
     "this expands to more than 256 linear expressions"),
    ("abs(" * 9 + "x" + ")" * 9 + " > 1", (1, 1), "more than 256 linear"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "message"), ERRORS, ids=lambda value: str(value)[:30])
def test_errors_say_where_and_what(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == place, error
    assert message in error.message
    assert str(error).startswith(f"line {place[0]}, column {place[1]}: {error.message}\n")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.line, copy.column) == (str(error), error.line, error.column)


def test_errors_point_at_the_place() -> None:
    with pytest.raises(ParseError) as caught:
        parse("always (x > 1 and\n  eventually[7,3] y < 2)")
    *_, excerpt, pointer = str(caught.value).split("\n")
    assert excerpt[pointer.index("^") :].startswith("[7,3]")


def test_a_bound_between_two_steps_is_an_error() -> None:
    with pytest.raises(
        ParseError, match=r"0\.25 s is no whole number of steps of 0\.1 s"
    ) as caught:
        parse("always[0,0.25] x > 1", dt=0.1)
    assert caught.value.column == 10
    with pytest.raises(ParseError, match="use inf"):
        parse("always[0,1e14] x > 1", dt=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounding": "towards zero"}, "rounding must be"),
        ({"tolerance": -1}, "tolerance of == must be a number >= 0"),
        ({"tolerance": float("nan")}, "tolerance of == must be a number >= 0"),
        ({"tolerance": "much"}, "tolerance of == must be a number >= 0"),
        ({"discrete": "gear"}, r"discrete takes a list of names; write \['gear'\]"),
        ({"dt": "1/3"}, "dt must be a positive decimal number"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(RhovecError, match=message):
        parse("x == 1", **options)  # type: ignore[arg-type]


def test_only_text_is_parsed() -> None:
    with pytest.raises(RhovecError, match="parse takes text, not bytes"):
        parse(b"x > 1")  # type: ignore[arg-type]


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("(" * DEEP + "x > 1" + ")" * DEEP, 1),
        ("(" * DEEP + "x" + ")" * DEEP + " > 1", 1),
        ("not " * DEEP + "x > 1", DEEP + 1),
        ("always[0,1] (" * DEEP + "x > 1" + ")" * DEEP, DEEP + 1),
        ("x > 1 -> " * DEEP + "x > 1", 2 * DEEP + 1),
        ("x > 1 until[0,1] " * DEEP + "x > 1", 2 * DEEP + 1),
        ("(" * DEEP + "x > 1" + " and y > 2)" * DEEP, 2 * DEEP + 1),
        ("x + 0 > 1 or " * DEEP + "x > 1", 2 * DEEP + 1),
        ("-" * DEEP + "x > 1", 1),
        ("0" + " < x" * DEEP, 0),
        ("x" + " + 1" * DEEP + " > 1", 1),
        ("max(" * DEEP + "x" + ")" * DEEP + "> 1", 1),
    ],
    ids=lambda value: str(value)[:20],
)
def test_size_is_limited_by_memory_alone(text: str, size: int) -> None:
    if size:
        assert parse(text).size == size
    else:
        with pytest.raises(ParseError, match="no variable"):
            parse(text)


def test_expressions_nest_to_their_limit() -> None:
    text = "x"
    for i in range(255):
        text = f"{('min', 'max')[i % 2]}({text}, y_{i})"
    phi = parse(f"-({text}) / 2 + z <= 0")
    assert phi.size == 2 * 256 - 1


# -- fuzzing ---------------------------------------------------------------------------------------

FUZZ = 1_000_000  # texts
ALPHABET = "()[]<>=!&|~+-*/.,:0123456789eEinfxyGFUX_ \n\t¬∧∨→↔≤≥≠□◇⊤⊥@\\"
WORDS = [
    *sorted(parser.RESERVED), *"()()()[],:", "[0,5]", "[2,inf]", "[3,1]", "[0.5,2]", "x_0",
    "x_1 > 2", "y <= -0.3", "abs(x)", "1", "2.5", "1e9", "1e999", ".5", "speed",
    "\n", "0 < x < 1", "==", "@",
]  # fmt: skip


def random_text(draw: random.Random, valid: list[str]) -> str:
    kind = draw.random()
    if kind < 0.15:
        return "".join(draw.choices(ALPHABET, k=draw.randrange(30)))
    if kind < 0.25:
        return draw.randbytes(draw.randrange(30)).decode("latin-1")
    if kind < 0.5:
        return " ".join(draw.choices(WORDS, k=draw.randrange(15)))
    text = draw.choice(valid)
    for _ in range(draw.randrange(1, 3)):
        i = draw.randrange(len(text) + 1)
        j, k = i + draw.randrange(1, 8), i + draw.randrange(8, 16)
        kind = draw.random()
        if kind < 0.25:
            text = text[:i] + text[j:]
        elif kind < 0.5:
            text = text[:i] + text[i:j] + text[i:]
        elif kind < 0.75:
            text = text[:i] + text[j:k] + text[i:j] + text[k:]
        else:
            text = f"{text[:i]} {draw.choice(WORDS)} {text[i:]}"
    return text


def fuzz(seed: int, texts: int) -> int:
    """Parse texts: a Formula that prints and reads back, or a ParseError; how many parsed."""
    warnings.simplefilter("error")
    draw = random.Random(seed)
    valid = [str(phi) for phi in rv.random_formulae(200, seed) if phi.size < 12]
    valid += ["abs(x - 2 * y) <= 3 and max(x, y, 1) > min(2, z) / 4", "0 < x < 1 -> gear = 3"]
    parsed = 0
    for _ in range(texts):
        text = random_text(draw, valid)
        try:
            phi = parse(text, tolerance=0.5)
        except ParseError as error:
            if min(error.line, error.column) < 1:
                raise AssertionError(f"no place in {text!r}") from error
        else:
            assert parse(str(phi)) == phi, text
            parsed += 1
    return parsed


def test_any_text_is_a_formula_or_a_parse_error() -> None:
    parts, each = 16, FUZZ // 16
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.starmap_async(fuzz, [(seed, each) for seed in range(parts)], chunksize=1)
        parsed = sum(results.get(timeout=3600))  # only a hang takes so long
    assert 0.03 < parsed / (parts * each) < 0.5


def test_windows_of_both_kinds_share_a_parser() -> None:
    """[a,b] of whole steps has a shortcut: it must agree with bounds read one by one."""
    for op, name in ((ops.ALWAYS, "always"), (ops.EVENTUALLY, "eventually")):
        for text, window in (("[ 3 , 007 ]", (3, 7)), ("[00000000000000000005:9]", (5, 9))):
            assert parse(f"{name}{text} x > 0").rows()[-1][:3] == (op, *window)


# -- operators' letters as names -------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["G", "F", "X", "U", "R", "W", "release", "unless"])
@pytest.mark.parametrize(
    "text",
    ["{} > 0", "not {} >= 1", "1 < {}", "x + {} > 1", "2 * {} <= 3", "{} * 2 <= 3", "({}) > 1",
     "max(x, {}) > 1", "abs({}) < 2", "G[0,3] {} < 1 and x > 0", "x > {} and y < {}",
     "x > 1 U {} > 2", "F {} > 1"],
)  # fmt: skip
def test_a_letter_is_a_name_where_only_a_name_can_stand(letter: str, text: str) -> None:
    plain = [(op, lo, hi, channel and tuple((letter if n == "speed" else n, c) for n, c in channel), t)
             for op, lo, hi, channel, t in parse(text.replace("{}", "speed")).rows()]  # fmt: skip
    phi = parse(text.replace("{}", letter))
    assert {name for channel in phi.channels for name, _ in channel} >= {letter}
    if (
        "max" not in text and "x + " not in text and "x > {}" not in text
    ):  # the order of terms is by name
        assert phi.rows() == plain
    assert parse(str(phi)) == phi


@pytest.mark.parametrize("text", ["1 * F + x >= 0", "1 * G - y > 1", "U - x > 0", "x - F > 0"])
def test_sums_with_letters_print_as_they_are_read(text: str) -> None:
    phi = parse(text)
    assert parse(str(phi)) == phi
    assert len(phi.channels[0]) == 2


def test_a_letter_before_a_formula_is_an_operator() -> None:
    assert parse("F -x > 0") == parse("eventually (-x > 0)")
    assert parse("F F > 0") == parse("eventually (1 * F > 0)")
    with pytest.raises(ParseError, match=r"'F' means eventually; write the variable as `1 \* F`"):
        parse("F + 1 > 0")


def test_the_limit_of_a_sum_is_named_as_what_it_is() -> None:
    with pytest.raises(ParseError, match="at most 256 variables"):
        parse(" + ".join(f"v{i}" for i in range(20_000)) + " > 0")
    with pytest.raises(ParseError, match="more than 256 linear expressions"):
        parse(" + ".join(f"abs(v{i})" for i in range(20)) + " > 0")


# -- release and weak until ------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["", "[0,4]", "[2,7]", "[3,inf]"])
def test_release_and_weak_until_by_their_laws(window: str) -> None:
    rng = np.random.default_rng(3)
    x = {name: rng.normal(size=(40, 15)) for name in ("x", "y")}
    a, b = "x > 0.2", "y >= -0.1"
    to_end = "always" + (window.replace("[2", "[0").replace("[3", "[0"))
    for written, same in (
        (f"{a} release{window} {b}", f"not (not {a} until{window} not {b})"),
        (f"{a} weak_until{window} {b}", f"({a} until{window} {b}) or {to_end} {a}"),
        (f"not ({a} release{window} {b})", f"not {a} until{window} not {b}"),
    ):
        one, other = parse(written), parse(same)
        assert one.horizon == other.horizon
        assert (robustness_trace(one, x) == robustness_trace(other, x)).all()
        assert (satisfaction_trace(one, x) == satisfaction_trace(other, x)).all()
        assert parse(str(one)) == one and one != other
        got = rv.robustness(one, x, trace=True)
        assert (got == robustness_trace(one, x)).all()
        assert (rv.satisfaction(one, x, trace=True) == satisfaction_trace(one, x)).all()
