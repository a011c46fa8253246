"""The algebra of atoms: linear expressions, and the max and min of such, in exact decimals.

Every expression of the language is one or the other: sums are distributed over max and min, abs(e)
is max(e, -e), and products are by constants. Decimals of 50 digits make `x + 0.1 >= 0.4` the same
as `x >= 0.3`. Size and nesting stay below MAX_LINEAR, so walking an expression may recurse.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import NamedTuple

MAX_LINEAR = 256  # linear atoms that one comparison may expand to
MAX_VARIABLES = 256  # terms of one linear expression
ARITHMETIC = decimal.Context(prec=50, Emax=10_000, Emin=-10_000)
ARITHMETIC.traps[decimal.Underflow] = False
ZERO, ONE, MINUS_ONE = Decimal(0), Decimal(1), Decimal(-1)


class Linear(NamedTuple):
    """A linear expression: decimal coefficients by name, none of them zero, and a constant."""

    terms: dict[str, Decimal]
    constant: Decimal


class Extremum(NamedTuple):
    """The max or min of two or more expressions."""

    is_max: bool
    parts: tuple[Expression, ...]


Expression = Linear | Extremum


class TooLargeError(Exception):
    """An expression would pass a limit, which the message names; the parser says where."""

    PARTS = f"this expands to more than {MAX_LINEAR} linear expressions"
    VARIABLES = f"a sum may have at most {MAX_VARIABLES} variables; make it a channel of its own"


def negated(value: Expression) -> Expression:
    return scaled(value, MINUS_ONE)


def scaled(value: Expression, factor: Decimal) -> Expression:
    """value * factor."""
    if isinstance(value, Extremum):
        parts = tuple(scaled(p, factor) for p in value.parts)
        return Extremum(value.is_max == (factor > 0), parts) if factor != 0 else parts[0]
    multiply = ARITHMETIC.multiply
    terms = {name: multiply(c, factor) for name, c in value.terms.items()}
    return Linear({n: c for n, c in terms.items() if c != 0}, multiply(value.constant, factor))


def divided(value: Expression, divisor: Decimal) -> Expression:
    """value / divisor, which is not zero; rounded once, unlike value * (1 / divisor)."""
    if isinstance(value, Extremum):
        parts = tuple(divided(p, divisor) for p in value.parts)
        return Extremum(value.is_max == (divisor > 0), parts)
    divide = ARITHMETIC.divide
    terms = {name: divide(c, divisor) for name, c in value.terms.items()}
    return Linear({n: c for n, c in terms.items() if c != 0}, divide(value.constant, divisor))


def added(a: Expression, b: Expression) -> Expression:
    """a + b, sums over max and min distributed.

    The terms of the longer linear operand are reused for the result, so that a sum of n terms takes
    n steps; neither operand may be used again.
    """
    if isinstance(a, Linear) and isinstance(b, Linear):
        if len(a.terms) < len(b.terms):
            a, b = b, a
        terms = a.terms
        for name, c in b.terms.items():
            total = ARITHMETIC.add(terms.get(name, ZERO), c)
            if total == 0:
                del terms[name]
            else:
                terms[name] = total
        if len(terms) > MAX_VARIABLES:
            raise TooLargeError(TooLargeError.VARIABLES)
        return Linear(terms, ARITHMETIC.add(a.constant, b.constant))
    if count(a) * count(b) > MAX_LINEAR:
        raise TooLargeError(TooLargeError.PARTS)
    if isinstance(a, Linear):
        a, b = b, a
    assert isinstance(a, Extremum)
    return extremum(a.is_max, [added(copied(p), copied(b)) for p in a.parts])


def copied(value: Expression) -> Expression:
    """A copy whose terms may be reused; an Extremum's parts are copied when they are added to."""
    return Linear(dict(value.terms), value.constant) if isinstance(value, Linear) else value


def extremum(is_max: bool, parts: list[Expression]) -> Expression:
    flat: list[Expression] = []
    for part in parts:
        if isinstance(part, Extremum) and part.is_max == is_max:
            flat += part.parts
        else:
            flat.append(part)
    return Extremum(is_max, tuple(flat)) if len(flat) > 1 else flat[0]


def count(value: Expression) -> int:
    """How many linear atoms a comparison with this expression expands to."""
    return 1 if isinstance(value, Linear) else sum(map(count, value.parts))


def names_of(value: Expression) -> set[str]:
    if isinstance(value, Linear):
        return set(value.terms)
    return set().union(*map(names_of, value.parts))
