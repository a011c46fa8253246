"""Physical units on thresholds, converted by pint to the unit of the variable."""

from __future__ import annotations

import sys
from fractions import Fraction

import pytest

from rhovec.errors import MissingDependencyError, ParseError
from rhovec.formula import units as units_module
from rhovec.formula.derived import Derived
from rhovec.formula.parser import parse

UNITS = {
    "speed": "m/s", "rpm": "rpm", "temp": "K", "oven": "degC", "p": "bar", "throttle": "%", "v1": "m/s",
    "v2": "km/h", "volt": "V", "omega": "rad/s", "Ambient (T)": "degC", "timer": "s", "power": "dBm",
    "n": "1/min", "f": "Hz", "M": "Nm", "work": "J", "P": "W", "a": "m/s2", "U/min": "U/min",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("speed > 120 km/h", f"speed > {120 / 3.6!r}"),
        ("speed > 36km/h", "speed > 10"),
        ("speed > 36 km / h and rpm < 900 rpm", "speed > 10 and rpm < 900"),
        ("speed > -36 km/h", "speed > -10"),
        ("36 km/h < speed < 72 km/h", "10 < speed < 20"),
        ("speed > 36 km/h + 5", "speed > 15"),
        ("speed > 36 km/h + 5 m/s", "speed > 15"),
        ("speed > 2 * 18 km/h", "speed > 10"),
        ("speed > 72 km/h / 2", "speed > 10"),
        ("abs(speed - v1) > 36 km/h", "abs(speed - v1) > 10"),
        ("max(speed, v1) > 36 km/h", "max(speed, v1) > 10"),
        ("2 * speed > 36 km/h", "2 * speed > 10"),
        ("v2 >= 5 m/s", "v2 >= 18"),
        ("G[0,2] speed > 36 km/h -> F speed < 18 km/h", "G[0,2] speed > 10 -> F speed < 5"),
        ("p < 200 kPa", "p < 2"),
        ("p < 1e5 N/m^2", "p < 1"),
        ("p < 1e5 kg*m^-1*s**-2", "p < 1"),
        ("throttle > 95 %", "throttle > 95"),
        ("timer > 3 min", "timer > 180"),
        ("volt > 500 mV", "volt > 0.5"),
        ("power > 3 dBm", "power > 3"),
        # A revolution is both an angle and a count; an angle per time is no frequency.
        ("n < 4000 rpm", "n < 4000"),
        ("f < 60 rpm", "f < 1"),
        ("rpm < 10 Hz", "rpm < 600"),
        ("n < 10 rps", "n < 600"),
        ("omega < 1 rpm", "omega < 0.10471975511965978"),
        ("rpm < 6 deg/s", "rpm < 1"),
        ("omega < 180 deg/s", "omega < 3.141592653589793"),
        ("n < 4000 1/min and n < 4000 U/min", "n < 4000 and n < 4000"),
        ("f < 60U / min U x > 1", "f < 1 U x > 1"),
        ("`U/min` < 1 Hz", "`U/min` < 60"),
        # Nm is a torque, and not pint's unit of yarn.
        ("M < 5 N*m", "M < 5"),
        ("M < 5 kNm", "M < 5000"),
        ("work < 5 N*m", "work < 5"),
        # What engineers write.
        ("P < 3 kW", "P < 3000"),
        ("P < 2 PS", "P < 1470.9975"),
        ("a < 2 g_n and a < 2 m/s²", "a < 19.6133 and a < 2"),
        ("v2 < 50 kmh and v2 < 50 kmph", "v2 < 50 and v2 < 50"),
        # Offsets: a sum of variables whose coefficients add up to zero is a difference.
        ("temp > 30 degC", "temp > 303.15"),
        ("temp > 0 degC", "temp > 273.15"),
        ("temp > 68 degF", "temp > 293.15"),
        ("temp >= 30 °C", "temp >= 303.15"),
        ("oven < 300 K", "oven < 26.85"),
        ("30 degC < oven < 86 degF", "oven > 30 and oven < 30"),
        ("oven - `Ambient (T)` > 18 degF", "oven - `Ambient (T)` > 10"),
        ("temp - prev temp > 2 degC", "temp - prev temp > 2"),
        ("(prev temp) > 30 degC", "(prev temp) > 303.15"),
        ("abs(temp - 5 degC) < 5 degC", "temp < 283.15 and temp > 273.15"),
        ("abs(temp - 20 degC) < 10 degC", "temp < 303.15 and temp > 283.15"),
        ("2 * temp > 60 degC", "2 * temp > 606.3"),
        ("temp > 20 degC + 5 degC", "temp > 298.15"),
    ],
)
def test_quantities(text: str, same: str) -> None:
    assert parse(text, units=UNITS) == parse(same)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("rate(speed) > 2 m/s^2", "rate(speed) > 2"),
        ("rate(speed) > 36 km/h/s", "rate(speed) > 10"),
        ("abs(rate(oven)) < 120 degC/min", "abs(rate(oven)) < 2"),
        ("rate(temp) < 9 degF/s", "rate(temp) < 5"),
        ("rate(n) < 2 Hz/s", "rate(n) < 120"),
        ("rate(f) < 120 rpm/s", "rate(f) < 2"),
        ("rate(omega) < 180 deg/s^2", "rate(omega) < 3.141592653589793"),
        ("rate(rate(speed)) > 7.2 km/h/s^2", "rate(rate(speed)) > 2"),
        ("rate(speed - 3 km/h) > 2 m/s^2", "rate(speed) > 2"),
        ("prev rate(speed) > 2 m/s^2", "prev (rate(speed) > 2)"),
    ],
)
def test_quantities_of_rates(text: str, same: str) -> None:
    assert parse(text, units=UNITS, dt=0.1) == parse(same, dt=0.1)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("x > 3 km/h", 7, "x has no unit to compare km/h with; pass its unit in units=..."),
        ("speed - x > 3 km/h", 15, "x has no unit to compare km/h with"),
        ("speed > 3 kg", 11, "kg cannot be converted to m/s"),
        (
            "omega < 3 Hz",
            11,
            "Hz cannot be converted to rad/s, because only one of them contains an",
        ),
        ("n < 3 rad/s", 7, "instead of 1/min, 1/s or Hz, give rpm, rps or rad/s as the unit"),
        ("f < 3 deg/s", 7, "deg/s cannot be converted to Hz, because"),
        ("f < 3 rpm/s", 7, "rpm/s cannot be converted to Hz"),
        ("M < 5 km/kg", 7, "km/kg cannot be converted to Nm"),
        (
            "M < 5 J",
            7,
            "J cannot be converted to Nm, because only one of them contains an angle (Nm is",
        ),
        ("a < 2 g", 7, "g cannot be converted to m/s2; g is gram"),
        ("oven < 20 C", 11, "C cannot be converted to degC; C is coulomb; degC is degree Celsius"),
        ("omega < 5 Grad/s", 11, "'Grad' may be a degree or a gon; write deg or gon"),
        ("speed > 3 furlongz", 11, "there is no unit 'furlongz'; write it as pint does"),
        ("speed > 3 m * speed", 11, "there is no unit 'm*speed'"),
        ("speed - v2 > 3 km/h", 16, "speed is in m/s and v2 in km/h, so that no unit fits"),
        ("speed - volt > 3 km/h", 18, "speed is in m/s and volt in V, so that no unit fits"),
        ("rate(speed) + speed > 3 km/h", 25, "a rate and a value are added here"),
        ("rate(speed) > 3 km/h", 17, "km/h cannot be converted to m/s/s"),
        (
            "temp > 30 degC + 5 K",
            11,
            "degC has another zero than K; write all quantities here in one",
        ),
        ("power > 3 mW", 11, "from mW to dBm it takes more than a factor; write the number in dBm"),
        ("speed * 3 m > 2", 7, "a factor or divisor is a plain number; leave out its unit"),
        ("3 m * speed > 2", 1, ""),
        ("speed / 3 m > 2", 7, "a factor or divisor is a plain number; leave out its unit"),
        ("3 m > 2 m", 1, "this comparison has no variable"),
        ("max(speed, 3 m/s) > 2 m/s", 1, "an argument of min or max has no variable"),
        ("speed > 5 W", 12, "(here 'W' means weak_until"),
        ("speed > 5 m^100", 12, "unexpected character '^'"),
    ],
)
def test_quantities_that_are_refused(text: str, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, units=UNITS, dt=0.1)
    assert message in caught.value.message
    assert not message or caught.value.column == column, caught.value


@pytest.mark.parametrize(
    "unit", ["", "furlongz", "m/(s", "m^999999999", "3", "m s", "m\n", "1/x y", "dB/dB"]
)
def test_units_of_variables_that_are_none(unit: str) -> None:
    with pytest.raises(ParseError, match=r"no unit|takes more than a factor|cannot be converted"):
        parse("x > 3 km/h", units={"x": unit})


COMMON = """
    rpm rps Hz kHz 1/min 1/s min^-1 cycle/s rad/s deg/s °/s mrad/s rpm/s Hz/s rad/s^2 deg rad turn
    km/h kph mph m/s m/s^2 m/s/s km/h/s g_n Nm kNm N*m kN*m N·m J kJ kWh W kW hp rpm*Nm rad/s*Nm
    Nm/s N*m/s V mV A mA Ah mAh C ohm degC °C K degF bar mbar hPa kPa Pa MPa psi % ppm g kg t
    l/h L/min m^3/h kg/h g/s g/kWh min s ms µs h l mm m N kN lm lx
"""


@pytest.mark.parametrize(
    "text",
    [
        "speed > v2",
        "speed == v2",
        "0 < speed < v2",
        "2 * speed - 2 * v2 > 3",
        "abs(speed - v2) < 3",
        "min(speed, v2) > 3",
        "max(speed, 3) > v2",
        "speed + 3 > prev v2",
        "changed(speed + v2)",
        "rate(speed) > rate(v2)",
        "rate(speed - v2) > 3",
        "temp > oven",
        "speed > v1 and not (x > 2 or speed < v2)",
    ],
)
def test_plain_comparisons_of_different_units_are_refused(text: str) -> None:
    """They compared the numbers as they are: 10 m/s was less than 20 km/h."""
    for derived in (None, Derived()):
        with pytest.raises(ParseError, match=r"is in .* and .* in .*; convert one of them"):
            parse(text, units=UNITS, dt=0.1, tolerance=0.1, derived=derived)
    parse(text, dt=0.1, tolerance=0.1)


@pytest.mark.parametrize(
    "text",
    [
        "3.6 * speed > v2",
        "speed > v1",
        "speed > x",
        "rpm < n",
        "P > volt * 3 + 2",
        "speed > 3 and v2 > 3",
        "min(speed, v2) > 36 km/h",
        "max(speed / 50, v2 / 180) > 1",
        "changed(speed)",
        "rate(speed) > 3",
    ],
)
def test_comparisons_that_are_left_alone(text: str) -> None:
    parse(text, units=UNITS, dt=0.1)


def _known(unit: str, target: str) -> tuple[Fraction, Fraction] | None:
    try:
        return units_module.conversion(unit, target)
    except units_module.UnitError:
        return None


def test_conversions_agree_with_one_another() -> None:
    """There and back is the identity, and so is a detour by a third unit."""
    units = COMMON.split()
    known = {(a, b): _known(a, b) for a in units for b in units}
    for (a, b), there in known.items():
        if there is None:
            assert known[b, a] is None, (a, b)
            continue
        back = known[b, a]
        assert back is not None, (a, b)
        assert _after(back, there) == (1, 0), (a, b)
        for c in units:
            onward, direct = known[b, c], known[a, c]
            if onward is not None and direct is not None:
                assert _after(onward, there) == direct, (a, b, c)


@pytest.mark.parametrize(
    ("unit", "target", "factor"),
    [
        ("rpm*Nm", "W", 0.10471975511965978),
        ("rpm*N*m", "W", 0.10471975511965978),
        ("rad/s*Nm", "W", 1),
        ("kW/rpm", "Nm", 9549.29658551372),
        ("1/min*Nm", "W", None),
        ("Hz*kNm", "kW", None),
        ("Nm/s", "N*m/s", 1),
        ("Nm/s", "W", None),
        ("lbf*ft", "Nm", 1.3558179483314003),
        ("mPas", "mPa*s", 1),
        ("Nms", "Nm*s", 1),
        ("kOhm", "ohm", 1000),
        ("m3/h", "l/h", 1000),
        ("rev/min", "rpm", 1),
        ("W", "kW", 0.001),
        ("grad", "deg", None),
    ],
)
def test_units_that_are_traps(unit: str, target: str, factor: float | None) -> None:
    known = _known(unit, target)
    assert (known and float(known[0])) == factor


def _after(
    second: tuple[Fraction, Fraction], first: tuple[Fraction, Fraction]
) -> tuple[Fraction, Fraction]:
    return second[0] * first[0], second[0] * first[1] + second[1]


def test_without_units_of_variables() -> None:
    with pytest.raises(ParseError, match="found 'km'; a product is written with"):
        parse("x > 3 km/h")


def test_a_unit_that_is_the_variable_s_own_needs_no_pint(monkeypatch: pytest.MonkeyPatch) -> None:
    units_module.conversion.cache_clear()
    units_module._registry.cache_clear()
    monkeypatch.setitem(sys.modules, "pint", None)
    assert parse("x > 3 frobs", units={"x": "frobs"}) == parse("x > 3")
    with pytest.raises(MissingDependencyError, match=r'pip install "rhovec\[units\]"'):
        parse("x > 3 km/h", units={"x": "m/s"})


def test_conversions_are_exact() -> None:
    for number in ("0.1", "36", "119.99", "1e-7"):
        factor = parse(f"x > {number} km/h", units={"x": "m/s"}).thresholds[0]
        assert factor == parse(f"x > {number} / 3.6").thresholds[0]


@pytest.mark.parametrize("torque", ["Nm", "N*m", "N·m"])
def test_a_power_is_torque_times_revolutions(torque: str) -> None:
    def limit(speed: str) -> float:
        units = {"n": speed, "M": torque}
        (threshold,) = parse("n * M < 1 kW", units=units, derived=Derived()).thresholds
        return float(threshold)

    assert limit("rpm") == limit("U/min") == pytest.approx(9549.296585513721)
    assert limit("rad/s") == 1000
    for speed in ("1/min", "Hz"):
        with pytest.raises(ParseError, match="give rpm, rps or rad/s as the unit"):
            limit(speed)


def test_a_force_times_a_distance_is_an_energy() -> None:
    units = {"F": "N", "d": "m"}
    assert parse("F * d < 5 kJ", units=units, derived=Derived()).thresholds[0] == 5000


ROTATION = {
    "omega": "rad/s", "d": "deg/s", "n": "rpm", "f": "1/min", "r": "m", "v": "m/s", "a": "m/s^2",
    "phi": "rad", "s": "m", "J": "kg*m^2", "alpha": "rad/s^2", "T": "Nm", "P": "Nm/min",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("omega * r < 10 m/s", 10), ("d * r < 10 m/s", 572.9577951308232),
        ("n * r < 10 m/s", 95.4929658551372), ("omega * omega * r < 9.81 m/s^2", 9.81),
        ("phi * r < 5 m", 5), ("v / r < 5 rad/s", 5), ("J * alpha < 100 Nm", 100),
        ("J * alpha < 100 N*m", 100), ("omega * r - v < 1", 1), ("v * omega - a < 1", 1),
        ("phi * r - s < 1", 1), ("v / r - omega < 1", 1), ("J * alpha - T < 1", 1),
    ],
)  # fmt: skip
def test_angles_times_lengths_are_arcs(text: str, limit: float) -> None:
    (threshold,) = parse(text, units=ROTATION, derived=Derived()).thresholds
    assert abs(threshold) == pytest.approx(limit)


@pytest.mark.parametrize(
    "text", ["T * f < 5 kW", "omega < 5 Hz", "omega < 5 1/s", "f < 5 rad/s", "rate(T) < 5 kW",
             "rate(f) < 5 rad/s^2", "P < 5 kW", "omega - f < 1", "omega * r - n < 1"]
)  # fmt: skip
def test_what_may_count_radians_or_revolutions_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"cannot be converted|as plain numbers"):
        parse(text, units=ROTATION, derived=Derived())


def test_products_with_decibels_have_no_unit_to_convert() -> None:
    with pytest.raises(ParseError, match="it takes more than a factor"):
        parse("T * x < 5 Nm", units={"T": "Nm", "x": "dB"}, derived=Derived())


def test_units_that_are_spelt_or_shifted_otherwise_may_be_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = {
        "a": "1/min",
        "b": "min-1",
        "p": "bar",
        "q": "bar abs",
        "c": "degC",
        "k": "K",
        "m": "m",
    }
    for text in ("abs(a - b) < 10", "b < 4000 rpm", "p < q", "c + 273.15 < k", "k - c < 273.15"):
        parse(text, units=units)
    for text in ("c < k", "a < k", "m < k"):
        with pytest.raises(ParseError, match="compared or added as plain numbers"):
            parse(text, units=units)
    units_module.conversion.cache_clear()
    units_module._registry.cache_clear()
    monkeypatch.setitem(sys.modules, "pint", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "rhovec\[units\]"'):
        parse("a < b", units=units)
