"""Time bounds: steps, seconds as exact decimals, durations with units, rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rhovec.errors import ParseError, RhovecError
from rhovec.formula import operators as ops
from rhovec.formula.options import exact_step
from rhovec.formula.parser import parse


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
    ("window", "dt", "steps"),
    [
        ("[0,2 s]", 0.1, (0, 20)),
        ("[0 s, 2s]", 0.1, (0, 20)),
        ("[500 ms, 2 s]", 0.1, (5, 20)),
        ("[500ms:1500ms]", "0.5", (1, 3)),
        ("[1 min, 3 h]", 30, (2, 360)),
        ("[0, 250 us]", 1e-5, (0, 25)),
        ("[2 µs, 3000 ns]", 1e-6, (2, 3)),
        ("[0.3 ms, 1.2 ms]", 1e-4, (3, 12)),
        ("[1 min, inf]", 1, (60, ops.UNBOUNDED)),
        ("[1, 2 s]", 0.5, (2, 4)),
        ("[1 s, 2]", 0.5, (2, 4)),
        ("[0, 2e15 ns]", 1e4, (0, 200)),
        ("[0, 1 h]", 0.01, (0, 360_000)),
    ],
)
def test_durations(window: str, dt: float | str, steps: tuple[int, int]) -> None:
    for operator in ("always", "once", "true since", "H", "x > 1 S"):
        assert parse(f"{operator}{window} x > 0", dt=dt).rows()[-1][1:3] == steps


@pytest.mark.parametrize(
    ("window", "dt", "column", "message"),
    [
        (
            "[0, 2 s]",
            None,
            11,
            "time bound 2 s is not a whole number of steps; to give bounds in seconds",
        ),
        ("[0, 2 parsec]", 0.1, 13, "parsec is not a unit of time; use ns, us, µs, ms, s, min, h"),
        ("[500, 900 ms]", 0.1, 7, "give both bounds of [500, 900 ms] a unit, or none"),
        ("[2 min, 5]", 0.1, 7, "give both bounds of [2 min, 5] a unit, or none"),
        ("[0, 250 ms]", 0.1, 11, "time bound 250 ms is not a whole number of steps of 0.1 s"),
        ("[2 s, 1 s]", 0.1, 7, "interval [2 s, 1 s] ends before it starts"),
        ("[0, 1e13 min]", 0.1, 11, "larger than 1000000000000000 steps; use inf"),
        ("[0, 2 s s]", 0.1, 15, "expected ']' after the right bound, found 's'"),
        ("[0, inf s]", 0.1, 15, "expected ']' after the right bound, found 's'"),
    ],
)
def test_durations_that_are_refused(
    window: str, dt: float | None, column: int, message: str
) -> None:
    with pytest.raises(ParseError) as caught:
        parse(f"always{window} x > 0", dt=dt)
    assert (caught.value.column, message in caught.value.message) == (column, True), caught.value


def test_bounds_of_the_past_are_limited() -> None:
    for operator in ("once", "historically", "x > 1 since"):
        assert parse(f"{operator}[0,1000000] x > 0").history == ops.MAX_PAST
        assert parse(f"{operator}[3,inf] x > 0").rows()[-1][1:3] == (3, ops.UNBOUNDED)
        for window, dt in (("[0,1000001]", None), ("[1000001,inf]", None), ("[0,1000.001]", 0.001)):
            with pytest.raises(ParseError, match="than 1000000 steps, the limit of operators that"):
                parse(f"{operator}{window} x > 0", dt=dt)


def test_durations_are_rounded_as_asked() -> None:
    assert parse("F[0,250 ms] x > 0", dt=0.1, rounding="up") == parse("F[0,3] x > 0")
    assert parse("F[0,250 ms] x > 0", dt=0.1, rounding="down") == parse("F[0,2] x > 0")


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


def test_windows_of_both_kinds_share_a_parser() -> None:
    """[a,b] of whole steps has a shortcut: it must agree with bounds read one by one."""
    for op, name in ((ops.ALWAYS, "always"), (ops.EVENTUALLY, "eventually")):
        for text, window in (("[ 3 , 007 ]", (3, 7)), ("[00000000000000000005:9]", (5, 9))):
            assert parse(f"{name}{text} x > 0").rows()[-1][:3] == (op, *window)
