"""Comparisons of expressions as rows of a formula: linear atoms joined by and/or.

What the options of `parse` say about variables is applied here: tolerances of ==, and units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from . import operators as ops
from .core import canonical_channel
from .expressions import (
    Expression,
    ExpressionError,
    Linear,
    Quantity,
    added,
    change,
    constant,
    copied,
    names_of,
)
from .lexer import EQ, NE
from .operators import Row
from .options import Options
from .units import UnitError, conversion, require_one_unit, same

_FLIPPED = {ops.GE: ops.LE, ops.GT: ops.LT, ops.LE: ops.GE, ops.LT: ops.GT}
_HALF = Decimal("0.5")


class NoVariableError(ExpressionError):
    """A comparison of constants."""


def comparison(op: int, difference: Expression, options: Options) -> Iterator[Row]:
    """Rows of `difference op 0`."""
    if options.units:
        require_one_unit(difference, options.units)
    if op not in (EQ, NE):
        return _extremum(op, difference, options)
    tolerance = _tolerance(difference, options)
    if tolerance is None:
        raise ExpressionError(
            f"== and != on {', '.join(sorted(names_of(difference))) or 'constants'} need a "
            "tolerance: pass tolerance=..., or declare the variables discrete"
        )
    return _equality(op, difference, tolerance, options)


def changed(value: Expression, options: Options) -> Iterator[Row]:
    """Rows of `value != prev value`, with no tolerance unless one is known."""
    difference = change(value)
    if options.units:
        require_one_unit(difference, options.units)
    return _equality(NE, difference, _tolerance(difference, options) or Decimal(0), options)


def _equality(
    op: int, difference: Expression, tolerance: Decimal, options: Options
) -> Iterator[Row]:
    upper, lower = (ops.LE, ops.GE) if op == EQ else (ops.GT, ops.LT)
    yield from _extremum(lower, added(copied(difference), constant(tolerance)), options)
    yield from _extremum(upper, added(difference, constant(tolerance.copy_negate())), options)
    yield ops.node(ops.AND if op == EQ else ops.OR)


def _tolerance(difference: Expression, options: Options) -> Decimal | None:
    names = names_of(difference)
    if names and names <= options.discrete:
        return _HALF
    tolerance = options.tolerance
    if isinstance(tolerance, Mapping):
        given = {tolerance[n] for n in names if n in tolerance}
        tolerance = given.pop() if len(given) == 1 else None
    return None if tolerance is None else Decimal(repr(float(tolerance)))


def _extremum(op: int, value: Expression, options: Options) -> Iterator[Row]:
    if isinstance(value, Linear):
        yield _atom(op, value, options)
        return
    if any(isinstance(part, Linear) and not names_of(part) for part in value.parts):
        raise ExpressionError(
            "an argument of min or max has no variable; compare the others without it"
        )
    joined = ops.OR if value.is_max == (op in (ops.GE, ops.GT)) else ops.AND
    for i, part in enumerate(value.parts):
        yield from _extremum(op, part, options)
        if i:
            yield ops.node(joined)


def _atom(op: int, value: Linear, options: Options) -> Row:
    terms = {v: float(c) for v, c in value.terms.items() if not isinstance(v, Quantity)}
    if not terms:
        raise NoVariableError("this comparison has no variable (left); write true or false instead")
    try:
        plain = len(terms) == len(value.terms)
        threshold = -float(value.constant if plain else _in_one_unit(value, options))
    except OverflowError:
        threshold = math.inf
    if not all(map(math.isfinite, [*terms.values(), threshold])) or 0.0 in terms.values():
        raise ExpressionError("a number here is too large or too small for float64")
    channel, sign = canonical_channel(terms)
    if sign < 0:
        op, threshold = _FLIPPED[op], -threshold
    return op, 0, 0, channel, threshold


def _in_one_unit(value: Linear, options: Options) -> Fraction:
    """The constant with all quantities added to it, in the unit of the variables.

    A unit with an offset applies to the expression as a whole: `t1 - t2 > 5 degC` compares a
    difference, which has none.
    """
    quantities = {v.unit: Fraction(c) for v, c in value.terms.items() if isinstance(v, Quantity)}
    if options.any_unit:
        return Fraction(value.constant) + sum(quantities.values())
    first, *others = sorted(names_of(value))
    unit = next(iter(quantities))
    for name in (first, *others):
        if not options.units.get(name):
            raise UnitError(
                unit, f"{name} has no unit to compare {unit} with; pass its unit in units=..."
            )
    own = options.units[first]
    for name in others:
        if not same(options.units[name], own):
            raise UnitError(
                unit,
                f"{first} is in {own} and {name} in {options.units[name]}, so that no unit fits "
                "their sum; convert one of them in the file",
            )
    if len(value.orders) > 1:
        raise UnitError(unit, "a rate and a value are added here, so that no unit fits their sum")
    (order,) = value.orders
    weight = sum(Fraction(c) for v, c in value.terms.items() if not isinstance(v, Quantity))
    total = Fraction(value.constant)
    for unit, amount in quantities.items():
        factor, offset = conversion(unit, own + order * "/s")
        if offset and len(quantities) > 1:
            raise UnitError(
                unit, f"{unit} has another zero than {own}; write all quantities here in one unit"
            )
        total += factor * amount - offset * weight
    return total
