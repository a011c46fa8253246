"""A Schema lowers formulae without changing their meaning, and lifts them back."""

from __future__ import annotations

import json
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhovec.errors import ParseError, SchemaError
from rhovec.formula import Formula, parse
from rhovec.formula import operators as ops
from rhovec.formula.sample import random_formulae
from rhovec.formula.schema import Schema, SchemaChannel, SharedVariableWarning
from rhovec.robustness.reference import robustness_trace, satisfaction_trace

SPEED = SchemaChannel("speed", mean=60.0, std=25.0, unit="km/h")
GEAR = SchemaChannel("gear", mean=2.5, std=1.1, discrete=True)
DISTANCE = SchemaChannel("y5 - y4", mean=12.0, std=3.0, unit="m")
SCHEMA = Schema((SPEED, GEAR, DISTANCE), dt=0.1)

any_speed = settings(deadline=None)
numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 4))
scales = st.floats(1e-6, 1e6)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    return Schema(
        tuple(SchemaChannel(e, draw(numbers), draw(scales)) for e in ("speed", "b - a", "2 * z")),
        dt=draw(st.sampled_from([0.1, 0.25, 1, 5e-4, 300.0])),
        stride=draw(st.sampled_from([1, 1, 2, 7])),
    )


formulae = st.integers(0, 10**6).map(lambda seed: random_formulae(1, seed)[0])


@any_speed
@given(schemas(), formulae)
def test_what_was_lifted_comes_back(schema: Schema, lowered: Formula) -> None:
    named = schema.lift(lowered)
    assert named.variables and set(named.variables) <= {"speed", "a", "b", "z"}
    assert schema.lift(schema.lower(named)) == named
    again = schema.lower(named)
    assert np.array_equal(again.code, lowered.code) and again.channels == lowered.channels
    room = 1e-12 * max(1, *(abs(c.mean) / c.std for c in schema.channels))
    assert again.thresholds == pytest.approx(lowered.thresholds, rel=1e-12, abs=room)
    assert schema.parse(schema.to_text(lowered)) == named


@any_speed
@given(schemas(), st.lists(numbers, min_size=3, max_size=3))
def test_written_thresholds_come_back_as_written(schema: Schema, values: list[float]) -> None:
    a, b, c = values
    phi = parse(f"always[0,21] speed >= {a!r} and not (a - b < {b!r} until[7,inf] 2 * z > {c!r})")
    largest = max(abs(channel.mean) for channel in schema.channels)
    assert schema.lift(schema.lower(phi)).thresholds == pytest.approx(
        phi.thresholds, rel=1e-13, abs=1e-12 * max(1, largest)
    )


def test_thresholds_are_rounded_by_the_channels_scale() -> None:
    channels = [SchemaChannel("rpm", 2000.123456, 987.0), SchemaChannel("gap", 0.0123456, 0.00321)]
    schema = Schema(tuple(channels), dt=0.5)
    text = "always[0,4] ( ( x_0 > 1.2345 and x_1 < 0.5 ) )"
    assert schema.to_text(text) == ("always[0,2] ( ( rpm > 3218.574956 and gap < 0.0139506 ) )")
    assert schema.to_text(text, decimals=2) == "always[0,2] ( ( rpm > 3219 and gap < 0.01395 ) )"


@any_speed
@given(formulae, st.integers(0, 2**32 - 1))
def test_standardising_keeps_satisfaction(lowered: Formula, seed: int) -> None:
    """The named formula on raw traces is the lowered one on standardised traces."""
    channels = (SPEED, GEAR, SchemaChannel("2 * z", mean=-4.0, std=0.5))
    named = Schema(channels, dt=0.1).lift(lowered)
    x = np.random.default_rng(seed).normal(size=(3, 20, 40))
    raw = {
        "speed": 60 + 25 * x[0],
        "gear": 2.5 + 1.1 * x[1],
        "z": (-4 + 0.5 * x[2]) / 2,
    }
    standardised = {f"x_{i}": x[i] for i in range(3)}
    expected = satisfaction_trace(lowered, standardised)
    assert np.array_equal(satisfaction_trace(named, raw), expected)


@any_speed
@given(formulae, st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_a_stride_only_slows_time_down(lowered: Formula, stride: int, seed: int) -> None:
    """On samples repeated `stride` times, the lifted formula has the lowered one's values."""
    identity = Schema(tuple(SchemaChannel(f"x_{i}") for i in range(3)), stride=stride)
    x = np.random.default_rng(seed).integers(-3, 4, size=(3, 2, 12)) / 2
    slow = np.repeat(x, stride, axis=2)
    expected = robustness_trace(lowered, {f"x_{i}": x[i] for i in range(3)})
    lifted = identity.lift(lowered)
    values = robustness_trace(lifted, {f"x_{i}": slow[i] for i in range(3)})
    assert np.array_equal(values[:, ::stride], expected)


def test_next_is_lifted_by_a_stride_and_kept_without() -> None:
    plain = Schema((SPEED,), dt=0.5)
    phi = parse("next speed > 85")
    assert plain.lift(plain.lower(phi)) == phi
    assert plain.lower(phi).code[-1, 0] == ops.NEXT
    slow = replace(plain, stride=4)
    assert slow.to_text("next ( x_0 > 1 )") == "eventually[2,2] ( speed > 85 )"
    with pytest.raises(SchemaError, match="next"):
        slow.lower(phi)


def test_lower_by_hand() -> None:
    phi = SCHEMA.parse("always[0,2.5] (speed < 110 and gear == 3) -> y4 - y5 >= -15")
    lowered = SCHEMA.lower(phi)
    assert str(lowered) == (
        "( always[0,25] ( ( x_0 < 2 and ( x_1 >= 0 and x_1 <= 0.9090909090909091 ) ) )"
        " -> x_2 <= 1 )"
    )
    assert SCHEMA.lower(str(phi).replace("25", "2.5")) == lowered
    assert SCHEMA.lift(lowered) == phi
    assert SCHEMA.to_text(lowered).startswith("( always[0,2.5] ( ( speed < 110 and ")
    assert str(SCHEMA.lower("true or false")) == "( true or false )"


def test_tolerance_is_used() -> None:
    with pytest.raises(SchemaError, match="tolerance must be >= 0"):
        replace(SCHEMA, tolerance=-1)
    with pytest.raises(ValueError, match="need a tolerance"):
        SCHEMA.parse("speed == 50")
    phi = replace(SCHEMA, tolerance=2).parse("speed == 50")
    assert str(phi) == "( speed >= 48 and speed <= 52 )"


@pytest.mark.parametrize(
    ("stride", "window", "lowered"),
    [
        (10, "[0,20]", "[0,2]"),
        (10, "[4,26]", "[0,3]"),
        (10, "[5,25]", "[1,3]"),
        (10, "[14,inf]", "[1,inf]"),
        (10, "[30,30]", "[3,3]"),
        (10, "[0,0]", "[0,0]"),
        (10, "[4,inf]", ""),
        (3, "[1,5]", "[0,2]"),
    ],
)
def test_bounds_under_a_stride(stride: int, window: str, lowered: str) -> None:
    schema = Schema((SPEED,), stride=stride)
    assert str(schema.lower(f"always{window} speed > 60")) == f"always{lowered} ( x_0 > 0 )"


@pytest.mark.parametrize("window", ["[0,4]", "[4,4]", "[11,14]", "[16,24]"])
@pytest.mark.parametrize("text", ["always{} speed > 0", "true until{} speed > 0"])
def test_collapsing_bounds_are_refused(window: str, text: str) -> None:
    with pytest.raises(SchemaError, match=r"collapse.*smaller stride"):
        Schema((SPEED,), stride=10).lower(text.format(window))


def test_lifting_past_the_largest_bound_is_refused() -> None:
    with pytest.raises(SchemaError, match="use inf"):
        Schema((SPEED,), stride=10).lift(f"always[0,{10**15}] x_0 > 0")


@any_speed
@given(formulae, st.integers(2, 9))
def test_a_stride_never_moves_a_bound_by_more_than_half(phi: Formula, stride: int) -> None:
    schema = Schema(tuple(SchemaChannel(f"x_{i}") for i in range(3)), stride=stride)
    try:
        lowered = schema.lower(phi)
    except SchemaError:
        return
    moved = schema.lift(lowered)
    timed = np.array([ops.is_timed(op) for op in phi.code[:, 0]])
    bounded = phi.code[:, 2] != ops.UNBOUNDED
    assert (abs(moved.code[:, 1] - phi.code[:, 1]) * 2 <= stride).all()
    assert (abs(moved.code[bounded, 2] - phi.code[bounded, 2]) * 2 <= stride).all()
    assert np.array_equal(moved.code[:, 2] == ops.UNBOUNDED, ~bounded)
    wide = timed & bounded & (phi.code[:, 1] < phi.code[:, 2])
    assert (lowered.code[wide, 1] < lowered.code[wide, 2]).all()


def test_deep_formulae() -> None:
    levels = 100_000
    phi = parse("not " * levels + "always[0,10] speed > 60")
    schema = Schema((SPEED,), stride=5)
    lowered = schema.lower(phi)
    assert lowered.size == levels + 2
    assert schema.lift(lowered) == phi
    assert schema.to_text(lowered).count("not") == levels


# -- what a schema lacks -----------------------------------------------------------------------


def test_unknown_channels_are_named() -> None:
    with pytest.raises(SchemaError, match=r"no channel 'rpm'; it has: speed, gear, y5 - y4"):
        SCHEMA.lower("speed > 1 and rpm < 4750")
    with pytest.raises(SchemaError, match=r"no channel '2 \* speed'"):
        SCHEMA.lower("2 * speed > 1")
    with pytest.raises(SchemaError, match=r"'x_3' is not a channel.*x_0 ... x_2"):
        SCHEMA.lift("x_3 > 1")
    with pytest.raises(SchemaError, match="'speed' is not a channel of a lowered formula"):
        SCHEMA.lift("speed > 1")


def test_a_threshold_out_of_range_is_refused() -> None:
    tiny = Schema((SchemaChannel("speed", std=1e-300),))
    with pytest.raises(SchemaError, match=r"'speed'.*std"):
        tiny.lower("speed > 1e200")
    with pytest.raises(SchemaError, match=r"'x_0'.*std"):
        Schema((SchemaChannel("speed", std=1e300),)).lift("x_0 > 1e200")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "not an expression"),
        ("y4 - y5", r"written as 'y5 - y4'.*negate its mean"),
        ("-speed", "written as 'speed'"),
        ("speed - 3", "without a constant"),
        ("abs(speed)", "one linear expression"),
        ("speed) >= 0 and (gear", "one linear expression"),
        ("speed >= 3", "not an expression"),
        ("always", "not an expression"),
        ("3", "not an expression"),
        (7, "must be of type str"),
    ],
)
def test_bad_expressions(expression: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        SchemaChannel(expression)


def test_expressions_are_kept_canonical() -> None:
    assert SchemaChannel("-y4 + 1*y5").expression == "y5 - y4"
    assert SchemaChannel("y5 - y4").terms == (("y5", 1.0), ("y4", -1.0))
    with pytest.raises(SchemaError, match="'y5 - y4' is given twice"):
        Schema((DISTANCE, SPEED, SchemaChannel("-y4 + y5")))


def test_shared_variables_warn_once() -> None:
    schema = Schema(tuple(SchemaChannel(e) for e in ("y2 - y1", "z", "y3 - y2", "y1")))
    assert schema.shared_variables() == [("y2 - y1", "y3 - y2"), ("y2 - y1", "y1")]
    with pytest.warns(SharedVariableWarning, match=r"your own traces") as caught:
        schema.lower("z > 0")
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema.lower("y2 - y1 > 0")
        assert SCHEMA.shared_variables() == []
        SCHEMA.lower("speed > 0")


# -- storage -----------------------------------------------------------------------------------


@any_speed
@given(schemas())
def test_json_round_trip(schema: Schema) -> None:
    text = schema.to_json()
    assert Schema.from_json(text) == schema
    assert Schema.from_json(json.loads(text)) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(pickle.loads(pickle.dumps(schema))) == hash(schema)


def test_json_defaults_and_units() -> None:
    schema = Schema.from_json('{"channels": [{"expression": "T", "unit": "°C"}]}')
    assert schema == Schema((SchemaChannel("T", 0.0, 1.0, "°C", False),), dt=1.0, stride=1)
    assert "°C" in schema.to_json()


GOOD = {"expression": "speed"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "must be a JSON object, not list"),
        ("{}", "lacks the key 'channels'"),
        ({"channels": []}, "at least one channel"),
        ({"channels": {"speed": {}}}, "channels must be of type list"),
        ({"channels": ["speed"]}, "channel 0 must be a JSON object"),
        ({"channels": [{"mean": 1}]}, "channel 0 lacks the key 'expression'"),
        ({"channels": [GOOD, {**GOOD, "sd": 1}]}, "channel 1 has an unknown key 'sd'.*std"),
        ({"channels": [GOOD], "Dt": 1}, "unknown key 'Dt'"),
        ({"channels": [GOOD], "_warned": True}, "unknown key '_warned'"),
        ({"channels": [GOOD, GOOD]}, "'speed' is given twice"),
        ({"channels": [{**GOOD, "std": 0}]}, "std of channel 'speed' must be a positive"),
        ({"channels": [{**GOOD, "std": -2}]}, "std of channel 'speed' must be a positive"),
        ({"channels": [{**GOOD, "mean": float("nan")}]}, "mean of channel 'speed'.*finite"),
        ({"channels": [{**GOOD, "mean": 10**400}]}, "mean of channel 'speed'.*finite"),
        ({"channels": [{**GOOD, "mean": "1"}]}, "mean of channel 'speed' must be a number"),
        ({"channels": [{**GOOD, "mean": True}]}, "mean of channel 'speed' must be a number"),
        ({"channels": [{**GOOD, "unit": None}]}, "unit of channel 'speed'"),
        ({"channels": [{**GOOD, "discrete": 1}]}, "discrete of channel 'speed'"),
        ({"channels": [GOOD], "dt": 0}, "dt must be a positive"),
        ({"channels": [GOOD], "dt": float("inf")}, "dt must be a positive"),
        ({"channels": [GOOD], "dt": 1e-30}, "dt must be a positive"),
        ({"channels": [GOOD], "stride": 0}, "stride must be a whole number"),
        ({"channels": [GOOD], "stride": 1.5}, "stride must be of type int"),
        ({"channels": [GOOD], "stride": True}, "stride must be of type int"),
        ({"channels": [GOOD], "tolerance": float("nan")}, "tolerance must be a finite"),
    ],
)
def test_bad_json(source: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_json(source)


# -- fitting -----------------------------------------------------------------------------------


def test_fit_standardises_the_traces() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal([[[3.0], [100.0], [0.0]]], [[[1.0], [20.0], [5.0]]], size=(50, 3, 40))
    names = ["gear", "speed", "y"]
    library = ["always[0,2] speed - y > 3", parse("gear >= 2 and speed < 5"), "y - speed < 1"]
    schema = Schema.fit(
        library, x, names, dt=0.5, discrete=["gear"], units={"speed": "km/h", "y": "km/h"}
    )
    assert [c.expression for c in schema.channels] == ["gear", "speed", "y - speed"]
    assert [c.discrete for c in schema.channels] == [True, False, False]
    assert [c.unit for c in schema.channels] == ["", "km/h", "km/h"]
    assert schema.dt == 0.5
    difference = x[:, 2] - x[:, 1]
    assert schema.channels[2].mean == pytest.approx(difference.mean())
    assert schema.channels[2].std == pytest.approx(difference.std())
    same = [
        (list(x), names),
        ([x[:7].swapaxes(0, 1).reshape(3, -1), *x[7:]], names),
        ({name: x[:, i] for i, name in enumerate(names)}, None),
    ]
    for traces, variables in same:
        other = Schema.fit(library, traces, variables, dt=0.5, discrete=["gear"])
        assert [c.mean for c in other.channels] == pytest.approx([c.mean for c in schema.channels])
        assert [c.std for c in other.channels] == pytest.approx([c.std for c in schema.channels])
    assert Schema.fit("x_2 > 0", x).channels[0].mean == pytest.approx(x[:, 2].mean())


def test_fit_does_not_depend_on_the_order_of_the_library() -> None:
    x = np.random.default_rng(1).normal(size=(4, 12, 9))
    library = [f"x_{i} > 0" for i in range(12)] + ["x_10 - x_2 > 1"]
    schema = Schema.fit(library, x)
    assert schema == Schema.fit(library[::-1], x)
    assert [c.expression for c in schema.channels[:12]] == [f"x_{i}" for i in range(12)]


def test_fit_refuses_what_has_no_scale() -> None:
    x = np.ones((2, 2, 5)) * 0.1
    x[0, 1, 0] = 7
    with pytest.raises(SchemaError, match=r"constant in the traces.*'x_0'.*discrete"):
        Schema.fit("x_0 > 0 and x_1 > 0", x)
    gear = Schema.fit("gear == 3 and y > 0", x, ["gear", "y"], discrete=["gear"]).channels[0]
    assert gear.std == 1.0 and gear.mean == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("traces", "variables", "message"),
    [
        (np.zeros((2, 3)), None, "traces must be"),
        (np.zeros((2, 2, 3)), ["x_0"], "traces must be"),
        ([np.zeros((2, 3)), np.zeros((3, 3))], None, "traces must be"),
        ([], None, "traces must be"),
        (3, None, "traces must be"),
        ([["a"]], None, "traces must be"),
        (np.zeros((2, 2, 0)), None, "'x_0' has no samples"),
        ({"x_0": [1, np.nan]}, None, "'x_0'.*not finite"),
        ({"x_0": [1, 2], "y": [1]}, None, "different numbers of samples"),
        ({"y": [1, 2]}, None, "no variable 'x_0'; they have: y"),
    ],
)
def test_fit_names_bad_traces(traces: object, variables: list[str] | None, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.fit("x_0 > 0", traces, variables)


def test_fit_needs_channels() -> None:
    with pytest.raises(SchemaError, match="at least one channel"):
        Schema.fit([], np.zeros((1, 1, 3)))


def test_thresholds_in_other_units_than_the_channel() -> None:
    schema = Schema((SPEED, DISTANCE))
    assert schema.parse("speed > 10 m/s and y5 - y4 < 200 cm") == schema.parse(
        "speed > 36 and y5 - y4 < 2"
    )
    assert schema.lower("speed > 10 m/s") == schema.lower("speed > 36")


def test_channels_of_different_units_are_not_compared() -> None:
    schema = Schema((SchemaChannel("v", unit="m/s"), SchemaChannel("w", unit="km/h")))
    with pytest.raises(ParseError, match="v is in m/s and w in km/h"):
        schema.parse("v > w")


def test_channels_that_are_shifted_in_time_are_written_by_hand() -> None:
    with pytest.raises(SchemaError, match="'x_0 - prev x_0', which is shifted in time"):
        Schema.fit("x_0 - prev x_0 > 1", np.arange(6.0).reshape(1, 1, 6))
    schema = Schema((SchemaChannel("x - prev x", std=2.0),))
    assert schema.lower("x - prev x > 4") == parse("x_0 > 2")
    assert schema.lift("x_0 > 2") == parse("x - prev x > 4")
    assert schema.channels[0].variables == ("x",)


@pytest.mark.parametrize("text", ["next x > 1", "prev x > 1", "rise(x > 1)", "fall(x > 1)"])
def test_single_steps_do_not_fit_a_stride(text: str) -> None:
    schema = Schema((SchemaChannel("x"),), stride=5)
    with pytest.raises(SchemaError, match="looks one sampling step away, which a stride of 5"):
        schema.lower(parse(text))


def test_past_windows_count_lowered_steps() -> None:
    schema = Schema((SchemaChannel("x"),), stride=5)
    assert schema.lower(parse("once[5,20] x > 1")) == parse("once[1,4] x_0 > 1")
    assert schema.lift("x_0 > 1 since[1,4] prev x_0 < 0") == parse(
        "x > 1 since[5,20] once[5,5] x < 0"
    )
    with pytest.raises(SchemaError, match=r"once\[0,2\] would collapse to \[0,0\]"):
        schema.lower(parse("once[0,2] x > 1"))
    with pytest.raises(SchemaError, match="`rise` looks one sampling step away"):
        schema.lift("rise(x_0 > 1)")
