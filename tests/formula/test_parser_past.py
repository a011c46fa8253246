"""The past in texts: prev and next of signals, edges, changes and rates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import ParseError
from rhovec.formula import operators as ops
from rhovec.formula.operators import Channel, Shifted
from rhovec.formula.parser import parse
from rhovec.robustness.reference import robustness_trace

X, PREV_X, NEXT_X = "x", Shifted("x", 1), Shifted("x", -1)
CHANGE: Channel = ((X, 1.0), (PREV_X, -1.0))


@pytest.mark.parametrize(
    ("text", "op", "channel", "threshold"),
    [
        ("x - prev x > 2", ops.GT, CHANGE, 2.0),
        ("2 < x - prev x", ops.GT, CHANGE, 2.0),
        ("(prev x) - x < -2", ops.GT, CHANGE, 2.0),
        ("(prev x) > 3", ops.GT, ((PREV_X, 1.0),), 3.0),
        ("((prev (x))) > 3", ops.GT, ((PREV_X, 1.0),), 3.0),
        ("3 < prev x", ops.GT, ((PREV_X, 1.0),), 3.0),
        ("-prev x > 3", ops.LT, ((PREV_X, 1.0),), -3.0),
        ("2 * prev x >= 3", ops.GE, ((PREV_X, 2.0),), 3.0),
        ("y > prev prev x", ops.GT, (("y", 1.0), (Shifted("x", 2), -1.0)), 0.0),
        ("0 < prev(2*x + y - 1)", ops.GT, ((PREV_X, 2.0), (Shifted("y", 1), 1.0)), 1.0),
        ("(prev (x - 1)) > 2", ops.GT, ((PREV_X, 1.0),), 3.0),
        ("(next x) - x > 2", ops.GT, ((NEXT_X, 1.0), (X, -1.0)), 2.0),
        ("0 < next x - x", ops.GT, ((NEXT_X, 1.0), (X, -1.0)), 0.0),
        ("0 < X x - Y x", ops.GT, ((NEXT_X, 1.0), (PREV_X, -1.0)), 0.0),
        ("y > next prev x", ops.GT, (("y", 1.0), (X, -1.0)), 0.0),
        ("x - prev > 2", ops.GT, ((X, 1.0), ("prev", -1.0)), 2.0),
        ("x > prev prev", ops.GT, ((X, 1.0), (Shifted("prev", 1), -1.0)), 0.0),
        ("y > prev `a b`", ops.GT, (("y", 1.0), (Shifted("a b", 1), -1.0)), 0.0),
        ("y > prev 'x'".replace("'", '"'), ops.GT, (("y", 1.0), (PREV_X, -1.0)), 0.0),
    ],
)
def test_shifts_in_expressions(text: str, op: int, channel: Channel, threshold: float) -> None:
    phi = parse(text)
    assert phi.rows() == [(op, 0, 0, channel, threshold)]
    assert parse(str(phi)) == phi
    assert set(phi.variables) == {v.name if isinstance(v, Shifted) else v for v, _ in channel}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("abs(x - prev x) > 2", "x - prev x > 2 or x - prev x < -2"),
        ("max(prev x, y) > 1", "(prev x) > 1 or y > 1"),
        ("2 > prev max(x, y - 1)", "(prev x) < 2 and (prev y) < 3"),
        ("max(prev x - y, z) > 0", "(prev x) - y > 0 or z > 0"),
        ("0 < prev x < 5", "(prev x) > 0 and (prev x) < 5"),
        ("prev (prev x) > 1", "prev ((prev x) > 1)"),
        ("prev prev x > 1", "prev (prev (x > 1))"),
        ("prev x > 3", "prev (x > 3)"),
        ("prev x - 1 > 2", "prev (x > 3)"),
        ("prev 2 * x > 6", "prev (2 * x > 6)"),
        ("prev -x > 3", "prev (x < -3)"),
        ("prev(x) > 3", "prev (x > 3)"),
        ("prev(x + y) > 3", "prev (x + y > 3)"),
        ("prev abs(x) > 3", "prev (x > 3 or x < -3)"),
        ("prev 0 < x < 1", "prev (x > 0 and x < 1)"),
        ("prev x > 3 and y > 1", "(prev (x > 3)) and y > 1"),
        ("prev not x > 3", "prev (not (x > 3))"),
        ("not prev x > 3", "not (prev (x > 3))"),
        ("next x > y", "next (x > y)"),  # as in releases that had no prev
        ("next x - y > 2", "next (x - y > 2)"),
        ("next(x) > y", "next (x > y)"),
    ],
)
def test_what_prev_takes(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    "text",
    ["prev x > y", "prev x > x", "prev(x) > y", "prev x - y > 2", "prev x + prev x > 2", "Y x < x",
     "prev 0 < x < y", "prev 2 * x > y", "(prev x - y) > 2", "(next x - y) > 2", "prev x == y",
     "not prev prev x > y", "prev max(x, y) > z"],
)  # fmt: skip
def test_two_readings_with_different_meanings_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"write \((prev|next) x\) or (prev|next) \(\.\.\.\)"):
        parse(text, tolerance=1)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("rise(x > 3)", ["x > 3"]),
        ("rise (x)", ["x >= 0.5"]),
        ("rise((x > 3 and y))", ["x > 3 and y >= 0.5"]),
        ("rise(prev x > 3)", ["prev (x > 3)"]),
        ("rise(rise(x))", ["rise(x)"]),
    ],
)
def test_edges(text: str, same: list[str]) -> None:
    (operand,) = map(parse, same)
    assert parse(text).rows() == [*operand.rows(), ops.node(ops.RISE)]
    fall = parse(text.replace("rise", "fall", 1))
    assert fall.rows() == [*operand.rows(), ops.node(ops.FALL)]
    assert parse(str(fall)) == fall


def test_edges_among_other_formulae() -> None:
    phi = parse("a > 1 and rise(b > 1) -> fall(c) until d")
    assert str(phi) == ("( ( a > 1 and rise ( b > 1 ) ) -> ( fall ( c >= 0.5 ) until d >= 0.5 ) )")


@pytest.mark.parametrize(
    ("text", "options", "same"),
    [
        ("changed(x)", {}, "x - prev x < 0 or x - prev x > 0"),
        ("changed(x)", {"discrete": ["x"]}, "x - prev x < -0.5 or x - prev x > 0.5"),
        ("changed(x)", {"tolerance": 0.1}, "x - prev x < -0.1 or x - prev x > 0.1"),
        ("changed(x)", {"tolerance": {"y": 1}}, "x - prev x < 0 or x - prev x > 0"),
        ("changed(x)", {"labels": {"x": {"on": 1}}}, "x - prev x < -0.5 or x - prev x > 0.5"),
        ("changed(prev x + 3)", {}, "(prev x) - prev prev x < 0 or (prev x) - prev prev x > 0"),
        ("not changed(x) until y", {}, "(not changed(x)) until y >= 0.5"),
    ],
)
def test_changes(text: str, options: dict[str, object], same: str) -> None:
    assert parse(text, **options) == parse(same)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "dt", "same"),
    [
        ("rate(x) > 2", 0.5, "2 * x - 2 * prev x > 2"),
        ("abs(rate(x)) <= 2", 0.1, "10 * x - 10 * prev x <= 2 and 10 * x - 10 * prev x >= -2"),
        ("rate(2 * x - 7) < 3", 4, "0.5 * x - 0.5 * prev x < 3"),
        ("rate(rate(x)) > 1", 0.5, "4 * x - 8 * prev x + 4 * prev prev x > 1"),
        ("prev rate(x) > 1", 1, "prev (x - prev x > 1)"),
        ("rate(x) - rate(y) > 1", 1, "x - prev x - y + prev y > 1"),
    ],
)
def test_rates(text: str, dt: float, same: str) -> None:
    assert parse(text, dt=dt) == parse(same)


# -- what they mean --------------------------------------------------------------------------------

POINTS, PAD = 7, 16  # samples of a trace, and held ones on each side
SAMPLES = np.random.default_rng(4).normal(0, 3, (2, 20, POINTS))
TRACES = dict(zip("xy", SAMPLES, strict=True))
Evaluated = tuple[str, np.ndarray]  # the text of an expression, its value on held traces


def held(values: np.ndarray) -> np.ndarray:
    return np.pad(values, [(0, 0), (PAD, PAD)], mode="edge")


def shifted_expressions() -> st.SearchStrategy[Evaluated]:
    """Expressions with prev and next, computed on traces that hold their ends long enough."""
    leaves = st.sampled_from([(name, held(values)) for name, values in TRACES.items()])

    def extend(inner: st.SearchStrategy[Evaluated]) -> st.SearchStrategy[Evaluated]:
        return st.one_of(
            inner.map(lambda e: (f"(prev {e[0]})", np.roll(e[1], 1, axis=1))),
            inner.map(lambda e: (f"(next {e[0]})", np.roll(e[1], -1, axis=1))),
            st.builds(lambda a, b: (f"({a[0]} - {b[0]})", a[1] - b[1]), inner, inner),
            inner.map(lambda e: (f"(0.5 * {e[0]})", 0.5 * e[1])),
            inner.map(lambda e: (f"rate({e[0]})", (e[1] - np.roll(e[1], 1, axis=1)) / 0.25)),
            st.builds(lambda a, b: (f"max({a[0]}, {b[0]})", np.maximum(a[1], b[1])), inner, inner),
        )

    return st.recursive(leaves, extend, max_leaves=4)


@given(shifted_expressions(), st.sampled_from(["", "0 + ", "-"]))
def test_shifted_expressions_mean_what_numpy_computes(e: Evaluated, before: str) -> None:
    try:
        phi = parse(f"{before}{e[0]} > 1", dt=0.25)
    except ParseError as error:
        assume("no variable" not in error.message and "expands to more" not in error.message)
        raise
    want = (-e[1] if before == "-" else e[1])[:, PAD : PAD + POINTS] - 1
    got = robustness_trace(phi, TRACES)
    assert np.allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("word", ["prev", "next"])
def test_a_shifted_comparison_is_one_of_the_shifted_signal(word: str) -> None:
    for comparison in ("{} > 1", "{} <= -1", "0 < {} < 2", "abs({}) > 1", "{} == 1"):
        both = [comparison.format(f"({word} x)"), f"{word} ({comparison.format('x')})"]
        one, other = (robustness_trace(parse(text, tolerance=1), TRACES) for text in both)
        assert (one == other).all()
    x = TRACES["x"]
    same = (
        x[:, [0, *range(POINTS - 1)]] if word == "prev" else x[:, [*range(1, POINTS), POINTS - 1]]
    )
    assert (robustness_trace(parse(f"{word} x > 1"), TRACES) == same - 1).all()


def test_edges_changes_and_rates_at_the_first_sample() -> None:
    """The first sample is held, so nothing has changed there."""
    traces = {"x": np.array([[1.0, 1, 0, 0, 1]]), "v": np.array([[3.0, 3, 4, 2, 2]])}
    for text, want in {
        "rise(x)": [-0.5, -0.5, -0.5, -0.5, 0.5],
        "fall(x)": [-0.5, -0.5, 0.5, -0.5, -0.5],
        "changed(x)": [-0.5, -0.5, 0.5, -0.5, 0.5],
        "changed(v)": [0, 0, 1, 2, 0],
        "rate(v) > 2": [-2, -2, 0, -6, -2],
        "abs(rate(v)) < 3": [3, 3, 1, -1, 3],
    }.items():
        phi = parse(text, dt=0.5, discrete=["x"])
        assert robustness_trace(phi, traces).tolist() == [want], text
        assert rv.robustness(phi, traces, trace=True).tolist() == [want], text
