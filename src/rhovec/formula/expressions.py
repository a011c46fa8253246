"""The algebra of atoms: linear expressions, and the max and min of such, in exact decimals.

Every expression of the language is one or the other: sums are distributed over max and min, abs(e)
is max(e, -e), and products are by constants. Decimals of 50 digits make `x + 0.1 >= 0.4` the same
as `x >= 0.3`. Size and nesting stay below MAX_LINEAR, so walking an expression may recurse.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from .operators import MAX_PAST, Shifted, Variable, lag_of, name_of

MAX_LINEAR = 256  # linear atoms that one comparison may expand to
MAX_VARIABLES = 256  # terms of one linear expression
ARITHMETIC = decimal.Context(prec=50, Emax=10_000, Emin=-10_000)
ARITHMETIC.traps[decimal.Underflow] = False
ZERO, ONE, MINUS_ONE = Decimal(0), Decimal(1), Decimal(-1)
_NO_ORDER: frozenset[int] = frozenset()
_VALUE = frozenset({0})


class Quantity(NamedTuple):
    """One of a unit, as a term: `120 km/h` is 120 times Quantity("km/h") until it is compared."""

    unit: str


Term = Variable | Quantity


class Linear(NamedTuple):
    """A linear expression: decimal coefficients by term, of variables never zero, and a constant.

    orders: 0 if variables occur as they are, 1 if their rates do, 2 for rates of rates; it says
        which unit a quantity beside them must have.
    """

    terms: dict[Term, Decimal]
    constant: Decimal
    orders: frozenset[int] = _NO_ORDER


class Extremum(NamedTuple):
    """The max or min of two or more expressions."""

    is_max: bool
    parts: tuple[Expression, ...]


Expression = Linear | Extremum


class ExpressionError(Exception):
    """What is wrong with an expression; the parser says where."""

    PARTS = f"this expands to more than {MAX_LINEAR} linear expressions"
    VARIABLES = f"a sum may have at most {MAX_VARIABLES} variables; make it a channel of its own"
    LAG = f"a signal may be shifted by at most {MAX_PAST} steps"


def constant(value: Decimal) -> Linear:
    return Linear({}, value)


def variable(name: str) -> Linear:
    return Linear({name: ONE}, ZERO, _VALUE)


def lone_variable(value: Expression) -> Variable | None:
    """The variable, if the expression is nothing else."""
    if isinstance(value, Linear) and len(value.terms) == 1 and value.constant == 0:
        ((term, coefficient),) = value.terms.items()
        if coefficient == 1 and not isinstance(term, Quantity):
            return term
    return None


def negated(value: Expression) -> Expression:
    return scaled(value, MINUS_ONE)


def scaled(value: Expression, factor: Decimal) -> Expression:
    """value * factor."""
    if isinstance(value, Extremum):
        parts = tuple(scaled(p, factor) for p in value.parts)
        return Extremum(value.is_max == (factor > 0), parts) if factor != 0 else parts[0]
    multiply = ARITHMETIC.multiply
    terms = {name: multiply(c, factor) for name, c in value.terms.items()}
    return Linear(_kept(terms), multiply(value.constant, factor), value.orders)


def divided(value: Expression, divisor: Decimal) -> Expression:
    """value / divisor, which is not zero; rounded once, unlike value * (1 / divisor)."""
    if isinstance(value, Extremum):
        parts = tuple(divided(p, divisor) for p in value.parts)
        return Extremum(value.is_max == (divisor > 0), parts)
    divide = ARITHMETIC.divide
    terms = {name: divide(c, divisor) for name, c in value.terms.items()}
    return Linear(_kept(terms), divide(value.constant, divisor), value.orders)


def _kept(terms: dict[Term, Decimal]) -> dict[Term, Decimal]:
    """Drop variables with the coefficient 0, but no quantities: 0 degC is not nothing."""
    return {n: c for n, c in terms.items() if c != 0 or isinstance(n, Quantity)}


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
            if total == 0 and not isinstance(name, Quantity):
                del terms[name]
            else:
                terms[name] = total
        if len(terms) > MAX_VARIABLES:
            raise ExpressionError(ExpressionError.VARIABLES)
        return Linear(terms, ARITHMETIC.add(a.constant, b.constant), a.orders | b.orders)
    if count(a) * count(b) > MAX_LINEAR:
        raise ExpressionError(ExpressionError.PARTS)
    if isinstance(a, Linear):
        a, b = b, a
    assert isinstance(a, Extremum)
    return extremum(a.is_max, [added(copied(p), copied(b)) for p in a.parts])


def shifted(value: Expression, steps: int) -> Expression:
    """The expression as it was `steps` ago; a negative number is a time ahead."""
    if isinstance(value, Extremum):
        return Extremum(value.is_max, tuple(shifted(p, steps) for p in value.parts))
    return value._replace(terms={_shifted(v, steps): c for v, c in value.terms.items()})


def _shifted(term: Term, steps: int) -> Term:
    if isinstance(term, Quantity):
        return term
    name, lag = name_of(term), lag_of(term) + steps
    if abs(lag) > MAX_PAST:
        raise ExpressionError(ExpressionError.LAG)
    return Shifted(name, lag) if lag else name


def change(value: Expression) -> Expression:
    """value - prev value."""
    return added(copied(value), negated(shifted(value, 1)))


def rate(value: Expression, step: Decimal) -> Expression:
    """The change of an expression per second."""
    return _differentiated(divided(change(value), step))


def _differentiated(value: Expression) -> Expression:
    if isinstance(value, Extremum):
        return Extremum(value.is_max, tuple(map(_differentiated, value.parts)))
    variables: dict[Term, Decimal] = {
        v: c for v, c in value.terms.items() if not isinstance(v, Quantity)
    }  # quantities cancel
    return Linear(variables, value.constant, frozenset(order + 1 for order in value.orders))


def copied(value: Expression) -> Expression:
    """A copy whose terms may be reused; an Extremum's parts are copied when they are added to."""
    return value._replace(terms=dict(value.terms)) if isinstance(value, Linear) else value


def extremum(is_max: bool, parts: list[Expression]) -> Expression:
    flat: list[Expression] = []
    for part in parts:
        if isinstance(part, Extremum) and part.is_max == is_max:
            flat += part.parts
        else:
            flat.append(part)
    return Extremum(is_max, tuple(flat)) if len(flat) > 1 else flat[0]


def count(value: Expression) -> int:
    """Number of linear atoms that a comparison with this expression expands to."""
    return 1 if isinstance(value, Linear) else sum(map(count, value.parts))


def linear_parts(value: Expression) -> Iterator[Linear]:
    if isinstance(value, Linear):
        yield value
    else:
        for part in value.parts:
            yield from linear_parts(part)


def names_of(value: Expression) -> set[str]:
    """Names of the variables, shifted or not."""
    if isinstance(value, Linear):
        return {name_of(term) for term in value.terms if not isinstance(term, Quantity)}
    return set().union(*map(names_of, value.parts))
