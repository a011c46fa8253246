"""The past in texts: prev and next of signals, edges, changes and rates."""

from __future__ import annotations

import pytest

from rhovec.errors import ParseError
from rhovec.formula import operators as ops
from rhovec.formula.operators import Channel, Shifted
from rhovec.formula.parser import parse

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
    assert str(phi) == (
        "( ( a > 1 and rise ( b > 1 ) ) -> ( fall ( c >= 0.5 ) until d >= 0.5 ) )"
    )


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
