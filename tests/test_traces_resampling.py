"""Resampling against a slow definition, one point at a time; and derived channels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rhovec.errors import ParseError, TraceError
from rhovec.formula import parse
from rhovec.formula.derived import Derived
from rhovec.formula.requirements import read_data, resolve
from rhovec.formula.vocabulary import flags_in, labels_in, names_in
from rhovec.traces import Channel, Log, derive, resample

nan = math.nan


@st.composite
def logs(draw: st.DrawFn) -> Log:
    # Multiples of 1/8 are exact, so that the definition below needs no tolerance.
    steps = draw(st.lists(st.integers(1, 12), min_size=0, max_size=12))
    times = draw(st.integers(-8, 8)) / 8 + np.cumsum([0, *steps]) / 8
    value = st.one_of(st.just(nan), st.integers(-3, 3).map(float))
    column = st.lists(value, min_size=len(times), max_size=len(times)).map(np.array)
    kinds = ("number", "flag", "number")
    return Log(
        "log", "a.csv", times, {f"c{i}": Channel(draw(column), k) for i, k in enumerate(kinds)}
    )  # type: ignore[arg-type]


def defined(log: Log, name: str, t: float, missing: str, max_gap: float, hold: bool) -> float:
    """The value at time t, NaN where it is unknown."""
    values = log.channels[name].values
    samples = [(float(a), float(v)) for a, v in zip(log.times, values, strict=True) if v == v]
    if any(a == t for a, _ in samples):
        return dict(samples)[t]
    before = [s for s in samples if s[0] < t]
    after = [s for s in samples if s[0] > t]
    if not before:
        return nan
    (a, u), (b, v) = before[-1], after[0] if after else (float(log.times[-1]), nan)
    if b - a > max_gap:
        return nan
    empty = any(a < s < b for s in log.times) or not after
    if hold or log.channels[name].kind == "flag" or (missing == "hold" and empty):
        return u
    return u + (t - a) / (b - a) * (v - u)


@given(
    logs(),
    st.sampled_from([0.125, 0.25, 0.5, 0.75]),
    st.sampled_from(["hold", "interpolate"]),
    st.sampled_from([0.0, 0.5, 1.0, math.inf]),
    st.booleans(),
)
def test_a_grid_is_as_defined(
    log: Log, dt: float, missing: str, max_gap: float, held: bool
) -> None:
    hold = ["c2"] if held else []
    grid = resample(log, dt, missing=missing, max_gap=max_gap, hold=hold)  # type: ignore[arg-type]
    assert grid.times[0] == log.times[0]
    assert 0 <= log.times[-1] - grid.times[-1] < dt
    reports = {one.channel: one for one in grid.report}
    for v, name in enumerate(grid.variables):
        expected = [
            defined(log, name, t, missing, max_gap, name in hold) for t in grid.times.tolist()
        ]
        np.testing.assert_allclose(grid.values[v], expected, rtol=1e-12, atol=1e-12)
        assert np.array_equal(grid.known[v], ~np.isnan(expected))
        made_up = 0
        for p, t in enumerate(grid.times):
            to = math.inf if p == len(grid.times) - 1 else t + dt / 2
            own = [
                float(x)
                for s, x in zip(log.times, log.channels[name].values, strict=True)
                if t - dt / 2 <= s < to and x == x
            ]
            made_up += bool(grid.known[v, p]) and not own
            own += [expected[p]] if grid.known[v, p] else []
            np.testing.assert_allclose(grid.least[v, p], min(own, default=nan), atol=1e-12)
            np.testing.assert_allclose(grid.greatest[v, p], max(own, default=nan), atol=1e-12)
        one = reports.get(name)
        assert (one.made_up if one else 0) == made_up
        assert (one.unknown if one else 0) == sum(map(math.isnan, expected))


def test_rounded_times_count_as_the_same() -> None:
    times = np.round(1_700_000_000 + np.arange(200) * 0.1, 1)
    flag = (np.arange(200) % 2).astype(float)
    log = Log("a", "a", times, {"f": Channel(flag, "flag"), "x": Channel(flag)})
    grid = resample(log, 0.1)
    assert np.array_equal(grid.values, [flag, flag])
    assert grid.report == ()


@pytest.mark.parametrize("start", [0.0, 1717171717.0])
def test_the_last_sample_is_on_the_grid_whenever_the_log_begins(start: float) -> None:
    times = start + np.array([0, 0.1, 0.2, 0.3])
    grid = resample(Log("a", "a", times, {"x": Channel(np.arange(4.0))}), 0.1)
    np.testing.assert_allclose(grid.values, [[0, 1, 2, 3]], atol=1e-5)
    assert len(grid.times) == 4


def test_an_even_log_needs_no_step() -> None:
    times = np.array([5, 5.1, 5.2, 5.3])
    grid = resample(Log("a", "a", times, {"x": Channel(np.arange(4.0))}))
    assert grid.dt == 0.1
    assert grid.times is times
    assert grid.values.tolist() == [[0, 1, 2, 3]]


def test_a_step_is_proposed_from_the_fastest_channel() -> None:
    times = np.unique(np.concatenate([np.arange(0, 9, 0.25), np.arange(0, 9, 0.0998)]))
    fast = np.where(np.isin(times, np.arange(0, 9, 0.0998)), 1.0, nan)
    slow = np.where(np.isin(times, np.arange(0, 9, 0.25)), 1.0, nan)
    log = Log("a", "a", times, {"slow": Channel(slow), "fast": Channel(fast)})
    with pytest.raises(TraceError, match=r"--resample 0\.1$"):
        resample(log)


# -- derived channels ------------------------------------------------------------------------------


def test_what_is_not_linear_becomes_a_channel() -> None:
    derived = Derived()
    phi = parse("always (a * (b + 1) > 2 and rate(a / b) < 3 and 2 * a < 4)", derived=derived)
    assert phi.variables == ("a", "a * (b + 1)", "rate(`a / b`)")
    assert list(derived.channels) == ["a * (b + 1)", "a / b", "rate(`a / b`)"]
    assert derived.inputs(phi.variables) == {"a", "b"}
    times = np.array([0, 0.5, 0.7, 1.0])
    a, b = np.array([1.0, 2, 3, 4]), np.array([1.0, 4, 2, 0])
    log = derive(Log("l", "l.csv", times, {"a": Channel(a), "b": Channel(b)}), derived)
    np.testing.assert_allclose(log.channels["a * (b + 1)"].values, a * (b + 1))
    np.testing.assert_array_equal(log.channels["a / b"].values, [1, 0.5, 1.5, nan])
    np.testing.assert_allclose(
        log.channels["rate(`a / b`)"].values, [-1, -1, (1.5 - 0.5) / (0.7 - 0.5), nan]
    )
    assert log.notes == ("a / b: 1 sample with a divisor of 0 left out",)


def test_products_that_are_too_large_are_left_out() -> None:
    derived = Derived()
    parse("always a * b < 3", derived=derived)
    channels = {"a": Channel(np.array([1e200, 2])), "b": Channel(np.array([1e200, 1]))}
    log = derive(Log("l", "l.csv", np.array([0.0, 1]), channels), derived)
    np.testing.assert_array_equal(log.channels["a * b"].values, [nan, 2])
    assert log.notes == ("a * b: 1 sample too large for a number left out",)


def test_only_a_rate_that_is_asked_for_needs_times() -> None:
    derived = Derived()
    parse("rate(x) > 0 and a * b > 0", derived=derived)
    channels = {name: Channel(np.array([1.0, 2])) for name in "xab"}
    log = Log("l", "l.csv", np.array([0.0, 1]), channels, timed=False)
    assert derive(log, derived, ["a * b"]).channels["a * b"].values.tolist() == [1, 4]
    with pytest.raises(TraceError, match="no times, without which there is no rate"):
        derive(log, derived)


def test_rate_uses_the_original_times() -> None:
    derived = Derived()
    parse("rate(max(x, 2 - x)) > 0", derived=derived)
    times = np.array([0.0, 0.1, 0.11, 5, 6])
    x = np.array([2, 3, nan, 4, 9])
    log = derive(Log("l", "l", times, {"x": Channel(x)}), derived)
    (rate,) = derived.channels
    np.testing.assert_allclose(log.channels[rate].values, [10, 10, nan, 1 / 4.9, 5])


def test_products_of_channels_with_their_own_rates() -> None:
    derived = Derived()
    parse("x * f > 1", derived=derived)
    times = np.arange(6.0)
    x = Channel(np.array([0, nan, 2, nan, nan, 5]))
    f = Channel(np.array([1, 2, nan, nan, 3, nan]), "flag")
    log = derive(Log("l", "l", times, {"x": x, "f": f}), derived)
    np.testing.assert_array_equal(log.channels["x * f"].values, [0, 2, 4, nan, 12, 15])
    log = derive(Log("l", "l", times, {"x": x, "f": f}), derived, max_gap=2)
    np.testing.assert_array_equal(log.channels["x * f"].values, [0, 2, nan, nan, nan, 15])


def test_definitions_name_derived_channels() -> None:
    text = (
        "power := torque * speed\nA: always power < 3 kW\nB: always (torque * speed > 1 and go)\n"
    )
    derived = Derived()
    found, problems = resolve(
        read_data(text.encode(), "a.stl"),
        derived=derived,
        units={"torque": "N*m", "speed": "rad/s"},
    )
    assert not problems
    assert [r.formula.variables for r in found] == [("power",), ("go", "torque * speed")]
    assert str(found[0].formula) == "always ( power < 3000 )"
    assert derived.inputs(["power"]) == {"torque", "speed"}
    one = Log("l", "l", np.arange(1.0), {n: Channel(np.ones(1)) for n in ("torque", "speed")})
    assert list(derive(one, derived, ["power"]).channels) == ["torque", "speed", "power"]
    assert flags_in(r.formula for r in found) == {"go"}


def test_rates_have_units() -> None:
    phi = parse("rate(v) > 3.6 km/h/s", derived=Derived(), units={"v": "m/s"})
    assert str(phi) == "`rate(v)` > 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x * prev y > 1", "prev and next cannot stand inside a product, a quotient or a rate"),
        ("x * (y + 3 m) > 1", "numbers have no unit"),
        ("x * y > 1 km", "has no unit to compare km with"),
    ],
)
def test_what_cannot_be_derived(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text, derived=Derived(), units={"z": "m"})


def test_what_cannot_be_computed() -> None:
    derived = Derived()
    parse("x * y > rate(x)", derived=derived)
    x, y = Channel(np.ones(2)), Channel(np.ones(2), "enumeration", {"D": 1})
    with pytest.raises(TraceError, match=r"there is no channel 'y' for x \* y"):
        derive(Log("l", "l", np.arange(2.0), {"x": x}), derived)
    with pytest.raises(TraceError, match="'y' holds names"):
        derive(Log("l", "l", np.arange(2.0), {"x": x, "y": y}), derived)
    with pytest.raises(TraceError, match="there are no times, without which there is no rate"):
        derive(Log("l", "l", np.arange(2.0), {"x": x, "y": x}, timed=False), derived)


def test_names_and_labels_are_found_before_parsing() -> None:
    texts = [
        'always (gear == "D" -> `Wheel Speed` < 3)',
        'gear != "R" and "door" > 1 or gear == "D"',
    ]
    assert labels_in(texts) == {"gear": {"D": 0, "R": 1}}
    assert {"gear", "Wheel Speed", "door"} <= names_in(texts)
    assert not {"D", "R"} & names_in(texts)
    for text in texts:
        assert parse(text, labels=labels_in(texts)).variables


def test_what_is_no_log() -> None:
    with pytest.raises(TraceError, match=r"must be a Log, not 'a\.csv'"):
        resample("a.csv", 0.1)  # type: ignore[arg-type]
