"""Units: of time in bounds, and of thresholds, which pint converts (the extra `units`).

Conversions are exact fractions. From one unit to another a value x becomes factor * x + offset, where
the offset is zero but for temperatures.

For pint an angle has no dimension, so that 1 Hz is 1 rad/s and 1 rpm is 0.105 Hz. Here an angle is a
dimension of its own: rpm, rad/s and deg/s convert to one another, and none of them to Hz but rpm,
because revolutions can also be counted: 60 rpm are 1 Hz.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from ..errors import needed
from . import lexer
from .expressions import ExpressionError

# Units of time in bounds, in seconds.
SECONDS = {
    "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600),
}  # fmt: skip

_DEFINITIONS = ("radian = [angle] = rad",)


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
    if source.dimensionality != sink.dimensionality:
        source, sink = map(_without_revolutions, (source, sink))
    try:
        values = [registry.Quantity(Fraction(x), source).to(sink).magnitude for x in range(3)]
    except pint.DimensionalityError:
        raise UnitError(
            unit, f"{unit} cannot be converted to {target}{_hint(source, sink)}"
        ) from None
    except (pint.PintError, TypeError):  # pint takes logarithms of floats only
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


def _without_revolutions(unit: Any) -> Any:
    """The unit with revolutions per time as a count per time: 1/min for rpm."""
    pint, registry = _registry()
    names = pint.util.to_units_container(unit)
    dimensions = dict(unit.dimensionality)
    counted = any("revolution" in name or name == "turn" for name in names)
    if counted and dimensions.pop("[angle]", 0) == 1 and dimensions.keys() == {"[time]"}:
        return unit / registry.turn
    return unit


def _hint(source: Any, sink: Any) -> str:
    """For units that differ in an angle."""
    if {*(source / sink).dimensionality} == {"[angle]"}:
        return (
            ", because only one of them contains an angle; where 1/min or Hz counts revolutions, the "
            "unit is rpm or rps"
        )
    return ""


def _parsed(text: str, written: str) -> Any:
    pint, registry = _registry()
    matched = lexer.UNIT.fullmatch(text.removeprefix("1/"))
    try:
        if matched:
            return registry.parse_units(text.replace("·", "*"))
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
