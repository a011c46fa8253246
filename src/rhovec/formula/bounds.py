"""Numbers of a text, and the windows of timed operators: steps, seconds, durations with units."""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from . import lexer
from . import operators as ops
from .core import Formula
from .expressions import ARITHMETIC, Expression, Linear, Quantity, names_of
from .options import Definition, Options
from .units import SECONDS

_LIMITS = {  # of the bounds of timed operators, in steps
    op: ops.MAX_PAST if row.past else ops.MAX_BOUND for op, row in enumerate(ops.TABLE) if row.timed
}


class BoundReader(lexer.Cursor):
    """Reads windows, and what names in them stand for."""

    def __init__(self, text: str, options: Options, definitions: Mapping[str, Definition]):
        super().__init__(text)
        self.options = options
        self.definitions = definitions

    def read_window(self, op: int) -> tuple[int, int]:
        """The window of a timed operator, `[a,b]`; without one, [0,inf]."""
        limit = _LIMITS[op]
        if self.options.step is None and (match := lexer.PLAIN_WINDOW.match(self.text, self.end)):
            lo, right = int(match[1]), match[2]
            hi = ops.UNBOUNDED if right == "inf" else int(right)
            if lo <= limit and (hi == ops.UNBOUNDED or lo <= hi <= limit):
                self.end = match.end()
                return lo, hi
        elif not lexer.BRACKET.match(self.text, self.end):
            return 0, ops.UNBOUNDED
        self.advance()
        opened = self.position
        self.advance()
        lo, left_unit = self.read_bound("left", limit)
        if self.token not in (",", ":"):
            raise self.fail(f"expected ',' between the bounds, found {self.found()}")
        self.advance()
        hi, right_unit = self.read_bound("right", limit)
        if self.token != "]":
            raise self.fail(f"expected ']' after the right bound, found {self.found()}")
        window = self.text[opened : opened + 60].split("]")[0] + "]"
        units = {left_unit, right_unit} - {"any"}
        if "" in units and units - {"", "s"}:
            raise self.fail(f"give both bounds of {window} a unit, or none", opened)
        if hi != ops.UNBOUNDED and hi < lo:
            raise self.fail(
                f"interval {window} ends before it starts; write the smaller bound first", opened
            )
        return lo, hi

    def read_bound(self, side: str, limit: int) -> tuple[int, str]:
        """The current token as a number of steps, and its unit; the token after it becomes current.

        The unit is empty if there is none, and "any" for 0 and inf, which need none.
        """
        token, start = self.token, self.position
        if token == "inf" and side == "right":
            self.advance()
            return ops.UNBOUNDED, "any"
        if token in ("-", "+"):
            raise self.fail("a time bound must not be negative or signed")
        if token in self.definitions:
            token, unit = self.defined_number(token)
            value = self.number(token)
        elif self.kind == "number":
            value = self.number(token)
            unit = self.advance() if self.peek()[0] == "name" else ""
        else:
            raise self.fail(f"expected a number as {side} bound, found {self.found()}")
        if unit and unit not in SECONDS:
            raise self.fail(f"{unit} is not a unit of time; use {', '.join(SECONDS)}")
        step = self.options.step
        if step is None:
            if unit or not lexer.DIGITS.fullmatch(token):
                raise self.fail(
                    f"time bound {token} {unit}".rstrip() + " is not a whole number of steps; "
                    "to give bounds in seconds, pass the sampling step (dt)",
                    start,
                )
            steps = Fraction(value)
        else:
            steps = Fraction(value) * SECONDS[unit or "s"] / step
            if steps.denominator != 1:
                if self.options.rounding is None:
                    raise self.fail(
                        f"time bound {token} {unit or 's'} is not a whole number of steps of "
                        f"{float(step):g} s; "
                        'change it, or pass rounding="nearest", "down" or "up"',
                        start,
                    )
                shift = {"nearest": Fraction(1, 2), "down": Fraction(0), "up": Fraction(1)}
                steps = Fraction(math.floor(steps + shift[self.options.rounding]))
        if steps > limit:
            why = ", the limit of operators that look back" if limit < ops.MAX_BOUND else ""
            raise self.fail(f"time bound is larger than {limit} steps{why}; use inf", start)
        self.advance()
        return int(steps), unit if unit or value else "any"

    def defined_number(self, name: str) -> tuple[str, str]:
        """Number and unit that a name stands for in a time bound."""
        value = self.definition(name)
        if isinstance(value, Linear) and not names_of(value):
            parts = [(c, v.unit) for v, c in value.terms.items() if isinstance(v, Quantity)]
            parts += [(value.constant, "")] if value.constant or not parts else []
            ((amount, unit), *others) = parts
            if not others and amount >= 0:
                return f"{amount:f}", unit
        raise self.fail(f"a time bound is a number, 0 or more, and {name} is not")

    def number(self, token: str) -> Decimal:
        try:
            value = ARITHMETIC.create_decimal(token)
        except decimal.DecimalException:
            value = Decimal("inf")
        if math.isinf(float(value)):
            raise self.fail(f"number {token[:40]} is too large")
        return value

    def definition(self, name: str) -> Formula | Expression:
        found = self.definitions[name]
        if isinstance(found, str):
            raise self.fail(found)
        return found
