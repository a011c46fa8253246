"""Units: of time in bounds, and of thresholds, which pint converts (the extra `units`).

Conversions are exact fractions. From one unit to another a value x becomes factor * x + offset, where
the offset is zero but for temperatures.
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
        values = [registry.Quantity(Fraction(x), source).to(sink).magnitude for x in range(3)]
    except pint.DimensionalityError:
        raise UnitError(unit, f"{unit} cannot be converted to {target}") from None
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
    return pint, pint.UnitRegistry(non_int_type=Fraction)
