"""Units: of time in bounds, and of thresholds, which pint converts (the extra `units`).

Conversions are exact fractions. From one unit to another a value x becomes factor * x + offset, where
the offset is zero but for temperatures.

For pint an angle has no dimension, so that 1 Hz is 1 rad/s and 1 rpm is 0.105 Hz. Here an angle is a
dimension of its own: rpm, rad/s and deg/s convert to one another, and none of them to Hz but rpm,
because revolutions can also be counted: 60 rpm are 1 Hz. Nm is a torque, which is energy per angle, so
that Nm times rad/s or rpm is a power and Nm times 1/min is none; N*m can be a torque or an energy. In a
product with a unit of angle, such as rad/s times m, the angle is that of an arc: the result is in m/s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, cast

from ..errors import needed
from . import lexer
from .expressions import Expression, ExpressionError, Quantity, linear_parts
from .operators import Variable, name_of

# Units of time in bounds, in seconds.
SECONDS = {
    "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600),
}  # fmt: skip

# Added to pint's own. What engineers write is there unknown, or something else: Nm is a unit of yarn, PS
# 10^15 S, kmph a thousand miles per hour, and Pas a plural.
_DEFINITIONS = (
    "radian = [angle] = rad",
    "newton_meter = newton * meter / radian = Nm",
    "newton_meter_second = newton_meter * second = Nms",
    "pascal_second = pascal * second = Pas",
    "@alias kilometer_per_hour = kmh = kmph",
    "@alias metric_horsepower = PS",
    "@alias ohm = Ohm",
    "@alias revolutions_per_minute = RPM",
    "@alias turn = rev",
)
_SPELLINGS = (
    (re.compile("·"), "*"),
    (re.compile(r"\bU\b"), "rev"),  # U/min; for pint, of an enzyme
    (re.compile(r"(?<=[a-z])(-?[123])\b"), r"^\1"),  # m/s2, min-1
)
_WORD = re.compile(r"[^\W\d]\w*")
_DOUBTFUL = re.compile(r"\b[gG]rad\b")


class UnitError(ExpressionError):
    """A quantity that cannot be converted."""

    def __init__(self, unit: str, message: str):
        super().__init__(message)
        self.unit = unit  # as it is written beside the number


@lru_cache(maxsize=4096)
def conversion(unit: str, target: str) -> tuple[Fraction, Fraction]:
    """(factor, offset) from one unit to another."""
    if unit == target:
        return Fraction(1), Fraction(0)
    pint, registry = _registry()
    source, sink = (_parsed(text, unit) for text in (unit, target))
    try:
        if source.dimensionality != sink.dimensionality:
            source, sink = map(_other_reading, (source, sink))
        if not any(map(_counts, (unit, target))):
            source = _without_arcs(source, sink)
        values = [registry.Quantity(Fraction(x), source).to(sink).magnitude for x in range(3)]
    except pint.DimensionalityError:
        raise UnitError(
            unit, f"{unit} cannot be converted to {target}{_why(unit, target)}"
        ) from None
    except (pint.PintError, TypeError):  # pint takes logarithms of floats only, and alone
        values = []
    if len(values) < 3 or values[2] - values[1] != values[1] - values[0]:
        raise UnitError(
            unit,
            f"from {unit} to {target} it takes more than a factor; write the number in {target}",
        )
    return values[1] - values[0], values[0]


def same(unit: str, other: str) -> bool:
    """Whether numbers in the two units are the same."""
    try:
        return conversion(unit, other) == (Fraction(1), Fraction(0))
    except UnitError:
        return False


def require_one_unit(value: Expression, units: Mapping[str, str]) -> None:
    """Refuse sums, minima and maxima of numbers in different units.

    A factor may convert a variable, as in `v - 3.6 * w`, so only terms with coefficients of one size
    must share a unit. A linear part with quantities is left to their conversion.
    """
    seen: dict[object, tuple[str, str]] = {}
    for part in linear_parts(value):
        if any(isinstance(term, Quantity) for term in part.terms) or len(part.orders) > 1:
            continue
        for term, coefficient in part.terms.items():
            name = name_of(cast(Variable, term))
            unit = units.get(name)
            if not unit:
                continue
            other, known = seen.setdefault((part.orders, abs(coefficient)), (name, unit))
            if not _may_be_added(unit, known, bool(part.constant)):
                raise ExpressionError(
                    f"{other} is in {known} and {name} in {unit}, but they are compared or added as "
                    "plain numbers; convert one of them in the file, or by a factor in the formula"
                )


def _may_be_added(unit: str, other: str, shifted: bool) -> bool:
    """Whether numbers in these units may be added: not if they are known to differ.

    shifted: a number is added, too, which converts between degC and K.
    """
    if unit == other:
        return True
    try:
        factor, offset = conversion(unit, other)
    except UnitError:
        return not (_is_known(unit) and _is_known(other))
    return factor == 1 and (shifted or not offset)


def _is_known(unit: str) -> bool:
    try:
        _parsed(unit, unit)
    except UnitError:
        return False
    return True


def _counts(unit: str) -> bool:
    """Whether this is a number per time, as 1/min and Hz/s are: of radians, or of revolutions?"""
    words = [_parsed(word, unit) for word in _WORD.findall(unit)]
    return all({*word.dimensionality} == {"[time]"} for word in words)


def _without_arcs(source: Any, sink: Any) -> Any:
    """The source with as many angles as the sink, if one of them has a unit of angle and they differ in
    nothing else."""
    pint, registry = _registry()
    more = dict((source / sink).dimensionality)
    units = {*pint.util.to_units_container(source), *pint.util.to_units_container(sink)}
    if more.keys() == {"[angle]"} and any(
        dict(registry.Unit(one).dimensionality).get("[angle]", 0) > 0 for one in units
    ):
        return source / registry.radian ** more["[angle]"]
    return source


def _other_reading(unit: Any) -> Any:
    """The unit with revolutions per time as a count per time, and with N*m as a torque."""
    pint, registry = _registry()
    powers = pint.util.to_units_container(unit)
    dimensions = dict(unit.dimensionality)
    counted = any("revolution" in name or name == "turn" for name in powers)
    if counted and dimensions.pop("[angle]", 0) == 1 and dimensions.keys() == {"[time]"}:
        return unit / registry.turn
    factors = [registry.Unit(name).dimensionality for name, power in powers.items() if power == 1]
    if registry.newton.dimensionality in factors and registry.meter.dimensionality in factors:
        return unit / registry.radian
    return unit


def _why(unit: str, target: str) -> str:
    """For the message that a unit cannot be converted: how the two are understood."""
    pint, _ = _registry()
    units = {text: _parsed(text, unit) for text in (unit, target)}
    if {*(units[unit] / units[target]).dimensionality} == {"[angle]"}:
        return (
            ", because only one of them contains an angle (Nm is energy per angle); instead of "
            "1/min, 1/s or Hz, give rpm, rps or rad/s as the unit"
        )
    names = {text: " ".join(pint.util.to_units_container(one)) for text, one in units.items()}
    return "".join(
        f"; {text} is {name.replace('_', ' ')}"
        for text, name in names.items()
        if text.isalpha() and name != text
    )


def _parsed(text: str, written: str) -> Any:
    pint, registry = _registry()
    if doubtful := _DOUBTFUL.search(text):
        raise UnitError(written, f"{doubtful[0]!r} may be a degree or a gon; write deg or gon")
    spelt = text
    for pattern, spelling in _SPELLINGS:
        spelt = pattern.sub(spelling, spelt)
    try:
        if lexer.WHOLE_UNIT.fullmatch(spelt):
            return registry.parse_units(spelt)
    except (pint.PintError, ValueError, TypeError, AttributeError):
        pass
    raise UnitError(written, f"there is no unit {text!r}; write it as pint does, like km/h or degC")


@cache
def _registry() -> tuple[Any, Any]:
    pint = needed("pint", "converting units", "units")
    registry = pint.UnitRegistry(non_int_type=Fraction, on_redefinition="ignore")
    for definition in _DEFINITIONS:
        registry.define(definition)
    registry._build_cache()  # what it knows of degrees, say, is from before
    return pint, registry
