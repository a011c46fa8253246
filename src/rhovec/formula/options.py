"""What the text of a formula leaves open, checked: the sampling step, tolerances, units, labels."""

from __future__ import annotations

import decimal
import math
from collections import ChainMap
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import NamedTuple

from ..errors import RhovecError
from . import lexer
from .core import Formula
from .derived import Derived
from .expressions import ZERO, Expression, ExpressionError

# What a name that is defined stands for; a text says why it cannot be used.
Definition = Formula | Expression | str


# In the place of units that only a log will tell: thresholds are taken as if they were in the right one.
ANY_UNIT: Mapping[str, str] = {"": ""}


class Options(NamedTuple):
    """What the text of a formula leaves open; see `parser.parse`."""

    step: Fraction | None = None
    rounding: str | None = None
    discrete: frozenset[str] = frozenset()
    tolerance: float | Mapping[str, float] | None = None
    units: Mapping[str, str] = {}
    labels: Mapping[str, Mapping[str, float]] = {}
    derived: Derived | None = None

    @property
    def any_unit(self) -> bool:
        """Whether units are not known yet."""
        return self.units is ANY_UNIT


def exact_step(dt: float | str | Decimal) -> Fraction:
    """The sampling step as the exact decimal that it is written as (0.1 is 1/10)."""
    text = str(dt)
    try:
        value = Decimal(text) if lexer.DECIMAL.fullmatch(text) else ZERO
    except decimal.InvalidOperation:  # an exponent that no Decimal has
        value = ZERO
    if not Decimal("1e-15") <= value < 10**15 or (step := Fraction(value)).denominator > 10**15:
        raise RhovecError(
            f"dt must be a positive decimal number of seconds from 1e-15 to 1e15, not {dt!r}"
        )
    return step


def options_of(
    dt: float | str | None = None,
    rounding: str | None = None,
    discrete: Iterable[str] = (),
    tolerance: float | Mapping[str, float] | None = None,
    units: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, float]] | None = None,
    derived: Derived | None = None,
) -> Options:
    if rounding not in (None, "nearest", "down", "up"):
        raise RhovecError(f'rounding must be "nearest", "down" or "up", not {rounding!r}')
    if isinstance(discrete, str):
        raise RhovecError(f"discrete takes a list of names; write [{discrete!r}]")
    for value in tolerance.values() if isinstance(tolerance, Mapping) else (tolerance,):
        if value is not None and not _is_tolerance(value):
            raise RhovecError(f"the tolerance of == must be a number >= 0, not {value!r}")
    if units:
        _check_texts(units, "units", '{"speed": "m/s"}')
    if labels:
        _check_labels(labels)
    step = None if dt is None else exact_step(dt)
    known = frozenset(discrete).union(labels or ())
    every_unit = units or {}
    if derived is not None and every_unit is not ANY_UNIT:
        every_unit = ChainMap(derived.units, dict(every_unit))
    return Options(step, rounding, known, tolerance, every_unit, labels or {}, derived)


def _is_tolerance(value: object) -> bool:
    try:
        return 0 <= float(value) < math.inf  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def _check_texts(given: object, what: str, example: str) -> None:
    texts = [*given, *given.values()] if isinstance(given, Mapping) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise RhovecError(f"{what} must be a dict such as {example}, not {given!r}")


def _check_labels(labels: object) -> None:
    tables = list(labels.values()) if isinstance(labels, Mapping) else [None]
    for table in tables:
        codes = list(table.values()) if isinstance(table, Mapping) else [None]
        if not all(isinstance(code, Real) and float(code).is_integer() for code in codes):
            raise RhovecError(
                'labels must be a dict such as {"gear": {"P": 0, "D": 3}}, with whole numbers, '
                f"not {labels!r}"
            )


def code_of(token: str, name: str | None, codes: Mapping[str, float]) -> Decimal:
    """The code of a label; token: as it is written, name: of the variable if there is one."""
    label = lexer.unquoted(token)
    if label in codes:
        return Decimal(int(codes[label]))
    known = ", ".join(map(repr, codes))
    raise ExpressionError(
        f"{token} is a label, and {name or 'what it is compared with'} has "
        + (
            f"only the labels {known}; take one of them"
            if known
            else "no labels; pass labels=..., with its codes"
        )
        + f", or write a variable in backticks: {lexer.quoted(label)}"
    )
