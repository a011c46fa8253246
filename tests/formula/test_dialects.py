"""The languages of rtamt and Breach: what they mean, and what is refused.

That rtamt itself means this is measured by benchmarks/translation.py; tests/data/rtamt.jsonl is a small
sample of its answers.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import FormulaError, ParseError, RhovecError
from rhovec.formula import Formula
from rhovec.formula import operators as ops
from rhovec.formula.strategies import formulae
from rhovec.robustness.reference import robustness_trace

TRACES = dict(zip("xyz", np.random.default_rng(3).integers(-9, 10, (3, 40, 12)) / 4, strict=True))
P, Q = "(x > 0.5)", "(y < 0.25)"


def values(phi: Formula | str) -> np.ndarray:
    return robustness_trace(rv.parse(phi) if isinstance(phi, str) else phi, TRACES)


def rtamt(text: str, **options: float) -> Formula:
    return rv.parse(text, dialect="rtamt", **options)


def breach(text: str, **options: float) -> Formula:
    return rv.parse(text, dialect="breach", **options)


def assert_same(phi: Formula, psi: Formula | str) -> None:
    np.testing.assert_array_equal(values(phi), values(psi))


# -- rtamt: meaning --------------------------------------------------------------------------------

WINDOWS = [(lo, hi) for lo in range(4) for hi in range(lo, 5)]


def left_open(lo: int, hi: int, back: bool = False) -> str:
    """rtamt's until, or since, by its definition: at t' = t + k q, and p on [t, t')."""
    throughout, at = ("historically", "once") if back else ("always", "eventually")
    cases = [
        f"({throughout}[0,{k - 1}] {P} and {at}[{k},{k}] {Q})" for k in range(max(lo, 1), hi + 1)
    ]
    return " or ".join([Q] * (lo == 0) + cases)


@pytest.mark.parametrize(("lo", "hi"), WINDOWS)
def test_the_left_operand_of_rtamts_until_and_since_is_asked_for_before_the_right_one(
    lo: int, hi: int
) -> None:
    assert_same(rtamt(f"{P} until[{lo}:{hi}] {Q}"), left_open(lo, hi))
    assert_same(rtamt(f"{P} since[{lo}:{hi}] {Q}"), left_open(lo, hi, back=True))
    assert_same(rtamt(f"{P} unless[{lo}:{hi}] {Q}"), f"always[0,{hi}] {P} or {left_open(lo, hi)}")


def test_unbounded_until_and_since_of_rtamt() -> None:
    points = TRACES["x"].shape[1]
    assert_same(rtamt(f"{P} until {Q}"), left_open(0, points))
    assert_same(rtamt(f"{P} since {Q}"), left_open(0, points, back=True))
    assert_same(rtamt(f"{P} unless {Q}"), f"always {P} or {left_open(0, points)}")


@pytest.mark.parametrize(
    ("lo", "hi"), [*((lo, str(hi)) for lo, hi in WINDOWS), (0, "inf"), (2, "inf")]
)
@pytest.mark.parametrize("op", ["until", "since", "release", "weak_until"])
def test_what_is_written_for_rtamt_means_the_same(op: str, lo: int, hi: str) -> None:
    phi = rv.parse(f"{P} {op}[{lo},{hi}] {Q}")
    assert_same(rtamt(phi.to_text(dialect="rtamt")), phi)


@given(formulae(variables=("x", "y", "z"), constants=False, max_leaves=5, max_bound=4))
def test_out_and_in_again_means_the_same(phi: Formula) -> None:
    assert_same(rtamt(phi.to_text(dialect="rtamt")), phi)
    if ops.SINCE not in phi.code[:, 0]:
        assert_same(breach(phi.to_text(dialect="breach")), phi)


def test_rtamts_own_values() -> None:
    """Text of rtamt, trace and values, as rtamt computed them (benchmarks/translation.py --golden)."""
    lines = (Path(__file__).parents[1] / "data" / "rtamt.jsonl").read_text().splitlines()
    samples, *rows = map(json.loads, lines)
    traces = {f"x_{i}": np.array([values]) for i, values in enumerate(samples["traces"])}
    for row in rows:
        phi = rv.parse(row["formula"])
        if row["way"] == "in":
            assert rtamt(row["rtamt"]) == phi
        else:
            assert phi.to_text(dialect="rtamt") == row["rtamt"]
        found = robustness_trace(phi, traces, end="strict")[0]
        start = row["from"]
        np.testing.assert_array_equal(found[start : start + len(row["values"])], row["values"])
    ways = [row["way"] for row in rows]
    assert min(ways.count("in"), ways.count("out")) == 30


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        # bindings: all infix operators associate to the left; * before /, + before -; until before since
        ("x > 0 -> y > 0 -> z > 0", "(x > 0 -> y > 0) -> z > 0"),
        ("x > 0 or y > 0 and z > 0", "x > 0 or (y > 0 and z > 0)"),
        ("z > 0 implies x > 0 or y > 0", "z > 0 -> (x > 0 or y > 0)"),
        ("z > 0 or x > 0 implies y > 0 implies x > 0", "((z > 0 or x > 0) -> y > 0) -> x > 0"),
        ("x > 0 & y > 0 | z > 0 -> y > 1", "((x > 0 and y > 0) or z > 0) -> y > 1"),
        ("x > 0 U y > 0 and z > 0", "((x > 0 or y > 0) until y > 0) and z > 0"),
        ("x - y + z > 0", "x - (y + z) > 0"),
        ("x / 2 * 4 > 1", "x / 8 > 1"),
        ("not x > 0 and y > 0", "(not x > 0) and y > 0"),
        ("G[0:1] x > 0 and y > 0", "(always[0,1] x > 0) and y > 0"),
        (
            "x > 0 since[1:2] y > 0 until[1:2] z > 0",
            "x > 0 since[0,1] prev (y > 0 until[0,1] next z > 0)",
        ),
        # a signal is its own robustness, and so is a comparison
        ("always[0:2] x", "always[0,2] x > 0"),
        ("x > 0.5 > y", "x - 0.5 - y > 0"),
        ("abs(x > 1) - y > 0", "abs(x - 1) - y > 0"),
        # equality
        ("x == 1", "x <= 1 and x >= 1"),
        ("x !== 1", "x < 1 or x > 1"),
        ("x > 1 iff y > 2", "x - 1 <= y - 2 and x - 1 >= y - 2"),
        ("x xor y", "x < y or x > y"),
        # the past, the next sample, edges, strong and weak
        ("once[1:2] rise(x > 0)", "once[1,2] rise(x > 0)"),
        ("H fall(x > 0)", "historically fall(x > 0)"),
        ("s_prev x > 0 and prev y > 0", "prev (x > 0) and prev (y > 0)"),
        ("sX x > 0 and X y > 0", "next (x > 0) and next (y > 0)"),
        ("x - (prev x) + (next y) > 0.5", "x - ((prev x) + next y) > 0.5"),
        ("x - prev x > 0", "x - prev x > 0"),
        # names of results, comments, numbers
        ("out = x > -1 // limit", "x > -1"),
        ("x /* volts */ > 1e-1", "x > 0.1"),
    ],
)
def test_texts_of_rtamt(text: str, ours: str) -> None:
    assert_same(rtamt(text), ours)


@pytest.mark.parametrize(
    ("text", "dt", "ours"),
    [
        ("once[0:2] x > 0", None, "once[0,2] x > 0"),  # samples are 1 s apart
        (
            "once[1:2s] x > 0",
            None,
            "once[1,2] x > 0",
        ),  # the left bound has the unit of the right one
        ("once[500ms:2s] x > 0", 0.5, "once[1,4] x > 0"),
        ("G[0,0.3] x > 0", 0.1, "always[0,3] x > 0"),
        ("F[0:2000us] x > 0", 0.001, "eventually[0,2] x > 0"),
        ("F[1000000ns:2ms] x > 0", 0.001, "eventually[1,2] x > 0"),
    ],
)
def test_bounds_of_rtamt_are_seconds(text: str, dt: float | None, ours: str) -> None:
    assert rv.parse(text, dialect="rtamt", dt=dt) == rv.parse(ours)


def test_names_that_mean_something_here_are_quoted() -> None:
    assert rtamt("release + $min > max") == rv.parse("`release` + `$min` > `max`")
    assert breach("R[t] > W[t]") == rv.parse("`R` > `W`")
    assert rv.parse("`release` > 1").to_text(dialect="rtamt") == "release > 1"
    assert rv.parse("`Tank Temp` > 1").variables == ("Tank Temp",)


def test_shifted_signals() -> None:
    assert breach("x[t-0.2] > y[t + 0.1]", dt=0.1) == rv.parse("(prev prev x) > next y")
    assert rv.parse("x - prev x > 1").to_text(dialect="rtamt") == "x - (prev x) > 1"
    with pytest.raises(FormulaError, match="Breach interpolates x"):
        rv.parse("x - prev x > 1").to_text(dialect="breach")


def test_seconds_are_written_with_their_unit() -> None:
    phi = rv.parse("once[1,4] x > 0 until[0,3] y > 0")
    text = phi.to_text(dialect="rtamt", dt=0.5)
    assert "once[0.5s:2s]" in text and "until[0s:1.5s]" in text
    assert_same(rtamt(text, dt=0.5), phi)
    assert "once_[0.5, 2]" in phi.to_text(dialect="breach", dt=0.5)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("(x > 0 and y > 0) <-> z > 0", "have the value -|p - q|", 19),
        ("(always x) - 1 > 0", "computes with the robustness of this formula", 1),
        ("x/y > 0", "reads x/y as one name", 1),
        ("x * y > 0", "is not linear", 1),
        ("pow(x, 2) > 0", "pow is not linear", 1),
        ("true", "true is a word of rtamt", 1),
        ("once[500ms:2s] x", "not a whole number of steps", 6),
        ("once[1s:2] x", "needs a unit at the right bound", 6),
        ("once[2:1] x", "ends before it starts", 6),
        ("once[0:inf] x", "expected a window of numbers", 5),
        ("x > 0 and", "found the end of the text", 10),
        ("x > 0 y > 0", "expected an operator", 7),
        ("(x > 0", "expected ')'", 1),
        ("x > 0)", "unexpected ')'", 6),
        ("abs x > 0", "expected '(' after abs", 5),
        ("x, y > 0", "unexpected ','", 2),
        ("x ? 0", "unexpected character '?'", 3),
        ("5 > 3", "no variable", 1),
        ("-x > 0", "expected a formula", 1),
    ],
)
def test_rtamt_is_refused_with_a_reason(text: str, message: str, column: int) -> None:
    with pytest.raises(ParseError) as error:
        rtamt(text)
    assert message in str(error.value) and error.value.column == column


@pytest.mark.parametrize(
    ("formula", "dialect", "message"),
    [
        ("true until x > 0", "rtamt", "rtamt has no true"),
        ("s > 0", "rtamt", "rtamt cannot read a variable with the name s"),
        ("motor.speed > 0", "rtamt", "motor.speed"),
        ("x > 0 since y > 0", "breach", "Breach has no since"),
        ("always_on > 0", "breach", "Breach cannot read a signal with the name always_on"),
        ("motor.speed > 0", "breach", "motor.speed"),
        ("`Tank Temp` > 0", "rtamt", "Tank Temp"),
        ("x > 0", "matlab", "there is no dialect 'matlab'; give one of rtamt, breach"),
    ],
)
def test_writing_is_refused_with_a_reason(formula: str, dialect: str, message: str) -> None:
    with pytest.raises(RhovecError, match=message):
        rv.parse(formula).to_text(dialect=dialect)


def test_a_formula_that_would_explode_is_refused() -> None:
    phi = reduce(lambda inner, _: f"(({inner}) until[0,1] y > 0)", range(40), "x > 0")
    with pytest.raises(FormulaError, match="nested too deep"):
        rv.parse(phi).to_text(dialect="rtamt")


def test_depth_has_no_limit() -> None:
    assert rtamt("not " * 20_000 + "x > 0").depth == 20_000
    assert breach("(" * 20_000 + "x[t] > 0" + ")" * 20_000).depth == 0


# -- Breach ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("alw_[0,5] (x[t] > 0)", "always[0,5] x > 0"),
        ("not ev (x[t] <= 2.5)", "not eventually x <= 2.5"),
        ("always_[1, inf] eventually_[0, 3] x[t] > 1", "always[1,inf] eventually[0,3] x > 1"),
        ("once_[1 2] x[t] > 0 and hist y[t] > 0", "(once[1,2] x > 0) and (historically y > 0)"),
        ("x[t] > 0 until_[1,3] y[t] > 0", "x > 0 until[1,3] y > 0"),  # closed, as ours
        # `or` is the loosest; all but arithmetic associate to the right
        ("x[t] > 0 or y[t] > 0 => z[t] > 0", "x > 0 or (y > 0 -> z > 0)"),
        ("x[t] > 0 => y[t] > 0 => z[t] > 0", "x > 0 -> (y > 0 -> z > 0)"),
        ("x[t] > 0 until y[t] > 0 until_[0,1] z[t] > 0", "x > 0 until (y > 0 until[0,1] z > 0)"),
        ("x[t] > 0 until_[0,1] y[t] > 0 until z[t] > 0", "(x > 0 until[0,1] y > 0) until z > 0"),
        ("x[t] - y[t] + z[t] > 2", "x - y + z > 2"),
        ("-x[t] / 2 * 4 < abs(y[t])", "-2 * x < abs(y)"),
        ("max(x[t], y[t]) < 3", "max(x, y) < 3"),
        ("true and x[t] > 0 or false", "(true and x > 0) or false"),
    ],
)
def test_texts_of_breach(text: str, ours: str) -> None:
    assert breach(text) == rv.parse(ours)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("x[t] == 1", "Breach's == has the value 1", 6),
        ("a * x[t] > 1", "a without [t] is a parameter", 1),
        ("x[t]", "expected a formula, but this is an expression", 1),
        ("0 < x[t] < 1", "computes with the robustness of this formula", 1),
        ("construed[t] > 1", "cannot read a signal with the name construed", 1),
        ("alw_ (x[t] > 0)", "expected a window of numbers", 5),
        ("alw_[a, 5] (x[t] > 0)", "expected a window of numbers", 5),
        ("x[t] > 0 since y[t] > 0", "expected an operator", 10),
        ("x[2*t] > 0", "without [t]", 1),
    ],
)
def test_breach_is_refused_with_a_reason(text: str, message: str, column: int) -> None:
    with pytest.raises(ParseError) as error:
        breach(text)
    assert message in str(error.value) and error.value.column == column


def test_an_unbounded_hist_is_written_with_its_window() -> None:
    assert rv.parse("historically x > 0").to_text(dialect="breach") == "hist_[0, inf] ( x[t] > 0 )"


# -- both ------------------------------------------------------------------------------------------

PIECES = (
    "x y s t x[t] x/y 1 0.5 1e9 -1 ( ) [ ] [0:2] _[0,2] [1s:2] , : ; = == !== != >= < > -> <-> => & | ! "
    "and or not until until_ since unless iff xor rise fall prev next s_prev always alw alw_ ev_ once "
    "once_ hist H G F abs( max( pow( true false inf $ ? // /* */ é"
)
TEXTS = st.lists(st.sampled_from(PIECES.split()), max_size=12).map(" ".join)


@given(TEXTS, st.sampled_from(["rtamt", "breach"]))
def test_any_text_is_read_or_refused(text: str, dialect: str) -> None:
    try:
        phi = rv.parse(text, dialect=dialect)
    except ParseError as error:
        assert error.message and 1 <= error.column <= len(text) + 1
    else:
        assert rv.parse(str(phi)) == phi


def test_options_of_our_own_language_are_refused() -> None:
    with pytest.raises(RhovecError, match="rhovec's own language"):
        rv.parse("x > 0", dialect="rtamt", tolerance=0.1)
