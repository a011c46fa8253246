"""Text -> Formula: a regex lexer and one operator-precedence loop with an explicit stack.

Expressions and formulae share the loop, because an opening parenthesis may start either. Operators
are written out in postfix order the moment they are complete, which is the form a Formula has, so
nesting is limited by memory alone. Numbers are decimals (50 digits) until they become float64, so
that `x + 0.1 >= 0.4` is `x >= 0.3` and 0.3 s is three steps of 0.1 s.

Binding, tightest first: unary minus; * /; + -; comparisons; not, next, always, eventually;
until (right-associative); and; or; -> (right-associative); <->.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from ..errors import ParseError, RhovecError
from .core import (
    ALWAYS,
    AND,
    EVENTUALLY,
    FALSE,
    GE,
    GT,
    IFF,
    IMPLIES,
    LE,
    LT,
    MAX_BOUND,
    NAMES,
    NEXT,
    NOT,
    OR,
    TRUE,
    UNBOUNDED,
    UNTIL,
    Formula,
    Row,
    canonical_channel,
    is_timed,
)

LINEAR_LIMIT = 256  # linear atoms one comparison may expand to, and terms one of them may have
_ARITHMETIC = decimal.Context(prec=50, Emax=10_000, Emin=-10_000)
_ARITHMETIC.traps[decimal.Underflow] = False

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
      | (?P<symbol><->|<=>|->|=>|<=|>=|==|!=|&&|\|\||/\\|\\/|[-+*/<>=!~&|()\[\],:¬∧∨→↔≤≥≠□◇⊤⊥])
    """,
    re.VERBOSE,
)
_DIGITS = re.compile(r"\d+")

# Spelling -> operator. `==` and `!=` are expanded, so they are no operators of a Formula.
_EQ, _NE, _ADD, _SUB, _MUL, _DIV, _NEG, _POS, _OPEN, _CALL = range(100, 110)
_UNARY = {
    "not": NOT, "!": NOT, "~": NOT, "¬": NOT, "next": NEXT, "X": NEXT,
    "always": ALWAYS, "globally": ALWAYS, "alw": ALWAYS, "alw_": ALWAYS, "G": ALWAYS, "□": ALWAYS,
    "eventually": EVENTUALLY, "finally": EVENTUALLY, "ev": EVENTUALLY, "ev_": EVENTUALLY,
    "F": EVENTUALLY, "◇": EVENTUALLY, "-": _NEG, "+": _POS,
}  # fmt: skip
_BINARY = {
    "until": UNTIL, "until_": UNTIL, "U": UNTIL,
    "and": AND, "&": AND, "&&": AND, "/\\": AND, "∧": AND,
    "or": OR, "|": OR, "||": OR, "\\/": OR, "∨": OR,
    "implies": IMPLIES, "->": IMPLIES, "=>": IMPLIES, "→": IMPLIES,
    "iff": IFF, "<->": IFF, "<=>": IFF, "↔": IFF,
    ">=": GE, "≥": GE, ">": GT, "<=": LE, "≤": LE, "<": LT,
    "==": _EQ, "=": _EQ, "!=": _NE, "≠": _NE, "+": _ADD, "-": _SUB, "*": _MUL, "/": _DIV,
}  # fmt: skip
_CONSTANTS = {"true": TRUE, "⊤": TRUE, "false": FALSE, "⊥": FALSE}
_FUNCTIONS = ("abs", "min", "max")
RESERVED = frozenset({*_UNARY, *_BINARY, *_CONSTANTS, *_FUNCTIONS, "inf"})
_BINDING = {
    _NEG: 10, _POS: 10, _MUL: 9, _DIV: 9, _ADD: 8, _SUB: 8,
    GE: 7, GT: 7, LE: 7, LT: 7, _EQ: 7, _NE: 7,
    NOT: 6, NEXT: 6, ALWAYS: 6, EVENTUALLY: 6, UNTIL: 5, AND: 4, OR: 3, IMPLIES: 2, IFF: 1,
    _OPEN: 0, _CALL: 0,
}  # fmt: skip
_PREFIX = (_NEG, _POS, NOT, NEXT, ALWAYS, EVENTUALLY)
_RIGHT_ASSOCIATIVE = (UNTIL, IMPLIES)
_FLIPPED = {GE: LE, GT: LT, LE: GE, LT: GT}


class Linear(NamedTuple):
    """A linear expression: decimal coefficients by name, and a constant."""

    terms: dict[str, Decimal]
    constant: Decimal


class Extremum(NamedTuple):
    """The max or min of expressions."""

    is_max: bool
    parts: tuple[Expression, ...]


Expression = Linear | Extremum


class _Operator(NamedTuple):
    op: int
    position: int
    lo: int = 0
    hi: int = 0
    name: str = ""


class _Operand(NamedTuple):
    """What stands on the operand stack: a formula that is already written out, or an expression, or
    a chain of comparisons (expressions and the operators between them)."""

    position: int
    expressions: tuple[Expression, ...] = ()
    comparisons: tuple[int, ...] = ()

    @property
    def is_formula(self) -> bool:
        return not self.expressions


def exact_step(dt: float | str | Decimal) -> Fraction:
    """The sampling step as the exact decimal that it is written as (0.1 is 1/10)."""
    try:
        step = Fraction(str(dt))
    except (ValueError, ZeroDivisionError):
        step = Fraction(0)
    if not 0 < step < 10**15 or step.denominator > 10**15:
        raise RhovecError(f"dt must be a positive number of seconds, not {dt!r}")
    return step


def parse(
    text: str,
    *,
    dt: float | str | None = None,
    rounding: str | None = None,
    discrete: Iterable[str] = (),
    tolerance: float | Mapping[str, float] | None = None,
) -> Formula:
    """Read a formula.

    dt: the sampling step in seconds; time bounds are then read as seconds, otherwise as steps.
    rounding: what to do with a bound that is no whole number of steps: "nearest", "down" or "up";
        by default it is an error.
    discrete: variables whose values are modes or gears; `gear == 3` then means |gear - 3| <= 0.5.
    tolerance: the tolerance of `==` and `!=` on all other variables, one number or one by name.

    >>> str(parse("G[0,10] x_0 > 0.3 & x_1 < 2"))
    '( always[0,10] ( x_0 > 0.3 ) and x_1 < 2 )'
    """
    if not isinstance(text, str):
        raise RhovecError(f"parse takes text, not {type(text).__name__}")
    if rounding not in (None, "nearest", "down", "up"):
        raise RhovecError(f'rounding must be "nearest", "down" or "up", not {rounding!r}')
    step = None if dt is None else exact_step(dt)
    return _Parser(text, step, rounding, frozenset(discrete), tolerance).run()


class _Parser:
    def __init__(
        self,
        text: str,
        step: Fraction | None,
        rounding: str | None,
        discrete: frozenset[str],
        tolerance: float | Mapping[str, float] | None,
    ):
        self.text = text
        self.step = step
        self.rounding = rounding
        self.discrete = discrete
        self.tolerance = tolerance
        self.rows: list[Row] = []
        self.operators: list[_Operator] = []
        self.operands: list[_Operand] = []
        self.position = 0  # of the current token
        self.end = 0  # where the current token ends
        self.kind: str | None = None
        self.token = ""

    def fail(self, message: str, position: int | None = None) -> ParseError:
        return ParseError(message, self.text, self.position if position is None else position)

    def advance(self) -> None:
        while True:
            self.position = self.end
            match = _TOKEN.match(self.text, self.position)
            if match is None:
                self.kind, self.token = None, self.text[self.position : self.position + 1]
                if self.token:
                    raise self.fail(f"unexpected character {self.token!r}")
                return
            self.end = match.end()
            if match.lastgroup != "space":
                self.kind, self.token = match.lastgroup, match.group()
                return

    def run(self) -> Formula:
        self.advance()
        expects_operand = True
        while True:
            if expects_operand:
                expects_operand = self.read_operand()
            elif self.kind is None:
                break
            else:
                expects_operand = self.read_operator()
        self.reduce_above(0, left=True)
        if self.operators:
            opened = self.operators[-1]
            raise self.fail(f"expected ')' to close the one opened here, found {self.found()}",
                            opened.position)  # fmt: skip
        self.complete_formula(self.operands[-1], 0)
        return Formula.from_rows(self.rows)

    def found(self) -> str:
        return repr(self.token) if self.kind is not None else "the end of the text"

    # -- reading ---------------------------------------------------------------------------

    def read_operand(self) -> bool:
        """Read what may start an operand. True while another operand start must follow."""
        token, start = self.token, self.position
        if self.kind == "number":
            value = self.number(token)
            self.operands.append(_Operand(start, (Linear({}, value),)))
        elif token == "(":
            self.operators.append(_Operator(_OPEN, start))
            self.advance()
            return True
        elif self.kind is not None and token in _UNARY:
            op = _UNARY[token]
            self.advance()
            lo, hi = self.read_interval() if is_timed(op) else (0, 0)
            self.operators.append(_Operator(op, start, lo, hi))
            return True
        elif self.kind is not None and token in _CONSTANTS:
            self.rows.append((_CONSTANTS[token], 0, 0, None, 0.0))
            self.operands.append(_Operand(start))
        elif token in _FUNCTIONS:
            self.advance()
            if self.token != "(":
                raise self.fail(f"expected '(' after {token}, found {self.found()}")
            self.operators.append(_Operator(_CALL, start, name=token, lo=len(self.operands)))
            self.advance()
            return True
        elif self.kind == "name" and token not in RESERVED:
            self.operands.append(_Operand(start, (Linear({token: Decimal(1)}, Decimal(0)),)))
        else:
            hint = " ('inf' may only stand in an interval)" if token == "inf" else ""
            raise self.fail(f"expected a formula or an expression, found {self.found()}{hint}")
        self.advance()
        return False

    def read_operator(self) -> bool:
        """Read what may follow an operand. True when an operand must follow."""
        token, start = self.token, self.position
        if token == ")":
            self.close_parenthesis()
            self.advance()
            return False
        if token == ",":
            self.reduce_above(0, left=True)
            if not self.operators or self.operators[-1].op != _CALL:
                raise self.fail("unexpected ','")
            self.advance()
            return True
        if token not in _BINARY:
            raise self.fail(f"expected an operator or the end of the text, found {self.found()}")
        op = _BINARY[token]
        binding = _BINDING[op]
        self.reduce_above(binding, left=op not in _RIGHT_ASSOCIATIVE)
        if binding <= _BINDING[UNTIL]:
            self.operands[-1] = self.complete_formula(self.operands[-1], start)
        self.advance()
        lo, hi = self.read_interval() if op == UNTIL else (0, 0)
        self.operators.append(_Operator(op, start, lo, hi))
        return True

    def read_interval(self) -> tuple[int, int]:
        """An optional `[a,b]`; without one, [0,inf]."""
        if self.token != "[":
            return 0, UNBOUNDED
        opened = self.position
        self.advance()
        lo = self.read_bound("left")
        if self.token not in (",", ":"):
            raise self.fail(f"expected ',' between the bounds, found {self.found()}")
        self.advance()
        hi = self.read_bound("right")
        if self.token != "]":
            raise self.fail(f"expected ']' after the right bound, found {self.found()}")
        self.advance()
        if hi != UNBOUNDED and hi < lo:
            raise self.fail(
                f"interval {self.text[opened : opened + 60].split(']')[0]}] ends before it starts; "
                "write the smaller bound first",
                opened,
            )
        return lo, hi

    def read_bound(self, side: str) -> int:
        token, start = self.token, self.position
        if token == "inf" and side == "right":
            self.advance()
            return UNBOUNDED
        if token in ("-", "+"):
            raise self.fail("a time bound must not be negative or signed")
        if self.kind != "number":
            raise self.fail(f"expected a number as {side} bound, found {self.found()}")
        value = self.number(token)
        if self.step is None:
            if not _DIGITS.fullmatch(token):
                raise self.fail(
                    f"time bound {token} is no whole number of steps; "
                    "to give bounds in seconds, pass the sampling step (dt)"
                )
            steps = Fraction(value)
        elif value > MAX_BOUND:
            steps = Fraction(MAX_BOUND + 1)
        else:
            steps = Fraction(value) / self.step
            if steps.denominator != 1:
                if self.rounding is None:
                    raise self.fail(
                        f"time bound {token} s is no whole number of steps of {float(self.step):g} s;"
                        ' change it, or pass rounding="nearest", "down" or "up"'
                    )
                shift = {"nearest": Fraction(1, 2), "down": Fraction(0), "up": Fraction(1)}
                steps = Fraction(math.floor(steps + shift[self.rounding]))
        if steps > MAX_BOUND:
            raise self.fail(f"time bound is larger than {MAX_BOUND} steps; use inf", start)
        self.advance()
        return int(steps)

    def number(self, token: str) -> Decimal:
        try:
            value = _ARITHMETIC.create_decimal(token)
        except decimal.DecimalException:
            value = Decimal("inf")
        if math.isinf(float(value)):
            raise self.fail(f"number {token[:40]} is too large")
        return value

    # -- reducing --------------------------------------------------------------------------

    def reduce_above(self, binding: int, left: bool) -> None:
        """Complete the operators on the stack that bind tighter (or as tight, if associative left)."""
        while self.operators:
            top = _BINDING[self.operators[-1].op]
            if top == 0 or top < binding or (top == binding and not left):
                return
            self.reduce(self.operators.pop())

    def reduce(self, operator: _Operator) -> None:
        op = operator.op
        right = self.operands.pop()
        if op in (_NEG, _POS):
            factor = Decimal(-1 if op == _NEG else 1)
            self.push(operator, right, scale(self.expression(right, operator), factor))
        elif op in _PREFIX:
            right = self.complete_formula(right, operator.position)
            self.write(operator)
            self.operands.append(_Operand(operator.position))
        elif _BINDING[op] >= _BINDING[_ADD]:
            left = self.operands.pop()
            a, b = self.expression(left, operator), self.expression(right, operator)
            self.push(operator, left, self.arithmetic(operator, a, b))
        elif _BINDING[op] == _BINDING[GE]:
            left = self.operands.pop()
            if left.is_formula:
                raise self.fail(f"{self.spelling(operator)} compares numbers, but its left side is a"
                                " formula", left.position)  # fmt: skip
            b = self.expression(right, operator)
            self.operands.append(
                _Operand(left.position, (*left.expressions, b), (*left.comparisons, op))
            )
        else:
            left = self.operands.pop()
            self.complete_formula(right, operator.position)
            self.write(operator)
            self.operands.append(_Operand(left.position))

    def spelling(self, operator: _Operator) -> str:
        for spellings in (_BINARY, _UNARY):
            for spelling, op in spellings.items():
                if op == operator.op:
                    return repr(spelling)
        return repr(operator.name)

    def write(self, operator: _Operator) -> None:
        self.rows.append((operator.op, operator.lo, operator.hi, None, 0.0))

    def push(self, operator: _Operator, first: _Operand, value: Expression) -> None:
        position = min(operator.position, first.position)
        if count(value) > LINEAR_LIMIT:
            raise self.fail(f"this expands to more than {LINEAR_LIMIT} linear expressions", position)
        self.operands.append(_Operand(position, (value,)))

    def expression(self, operand: _Operand, operator: _Operator) -> Expression:
        if len(operand.expressions) != 1:
            raise self.fail(
                f"{self.spelling(operator)} takes numbers and variables, but this is a formula",
                operand.position,
            )
        return operand.expressions[0]

    def arithmetic(self, operator: _Operator, a: Expression, b: Expression) -> Expression:
        try:
            if operator.op in (_ADD, _SUB):
                return add(a, scale(b, Decimal(-1)) if operator.op == _SUB else b)
            if isinstance(b, Linear) and not b.terms:
                if operator.op == _MUL:
                    return scale(a, b.constant)
                if b.constant == 0:
                    raise self.fail("division by zero", operator.position)
                return scale(a, _ARITHMETIC.divide(Decimal(1), b.constant), b.constant)
            if operator.op == _MUL and isinstance(a, Linear) and not a.terms:
                return scale(b, a.constant)
        except OverflowError:
            raise self.fail(
                f"this expands to more than {LINEAR_LIMIT} linear expressions", operator.position
            ) from None
        except decimal.DecimalException:
            raise self.fail("a constant here is too large", operator.position) from None
        what = "a product of variables" if operator.op == _MUL else "a division by a variable"
        raise self.fail(f"{what} is not linear; one factor must be a number", operator.position)

    def close_parenthesis(self) -> None:
        self.reduce_above(0, left=True)
        if not self.operators:
            raise self.fail("')' closes nothing")
        opened = self.operators.pop()
        if opened.op == _CALL:
            arguments = self.operands[opened.lo :]
            del self.operands[opened.lo :]
            parts = [self.expression(operand, opened) for operand in arguments]
            if opened.name == "abs":
                if len(parts) != 1:
                    raise self.fail(f"abs takes one argument, not {len(parts)}", opened.position)
                parts = [parts[0], scale(parts[0], Decimal(-1))]
            self.push(opened, _Operand(opened.position), extremum(opened.name != "min", parts))
            return
        operand = self.operands[-1]
        if operand.comparisons:
            operand = self.complete_formula(operand, self.position)
        self.operands[-1] = operand._replace(position=opened.position)

    def complete_formula(self, operand: _Operand, position: int) -> _Operand:
        """Write out a chain of comparisons; an expression alone is an error."""
        if operand.is_formula:
            return operand
        if not operand.comparisons:
            raise self.fail(
                "expected a formula, but this is an expression; compare it with something",
                operand.position,
            )
        for i, op in enumerate(operand.comparisons):
            try:
                difference = add(
                    operand.expressions[i], scale(operand.expressions[i + 1], Decimal(-1))
                )
                self.write_comparison(op, difference, operand.position)
            except OverflowError:
                raise self.fail(
                    f"this expands to more than {LINEAR_LIMIT} linear expressions", operand.position
                ) from None
            except decimal.DecimalException:
                raise self.fail("a constant here is too large", operand.position) from None
            if i:
                self.rows.append((AND, 0, 0, None, 0.0))
        return _Operand(operand.position)

    # -- atoms -----------------------------------------------------------------------------

    def write_comparison(self, op: int, difference: Expression, position: int) -> None:
        """Write `difference op 0` as linear atoms joined by and/or."""
        if op not in (_EQ, _NE):
            self.write_extremum(op, difference, position)
            return
        tolerance = self.equality_tolerance(difference, position)
        shift = Linear({}, tolerance)
        upper, lower = (LE, GE) if op == _EQ else (GT, LT)
        minus_shift = scale(shift, Decimal(-1))
        self.write_extremum(lower, add(copy(difference), shift), position)
        self.write_extremum(upper, add(difference, minus_shift), position)
        self.rows.append((AND if op == _EQ else OR, 0, 0, None, 0.0))

    def equality_tolerance(self, difference: Expression, position: int) -> Decimal:
        names = names_of(difference)
        if names and names <= self.discrete:
            return Decimal("0.5")
        tolerance = self.tolerance
        if isinstance(tolerance, Mapping):
            given = {float(tolerance[n]) for n in names if n in tolerance}
            tolerance = given.pop() if len(given) == 1 else None
        if tolerance is None:
            raise self.fail(
                f"== and != on {', '.join(sorted(names)) or 'constants'} need a tolerance: pass "
                "tolerance=..., or declare the variables discrete",
                position,
            )
        value = Decimal(repr(float(tolerance)))
        if not (value.is_finite() and value >= 0):
            raise RhovecError(f"the tolerance of == must be a number >= 0, not {tolerance!r}")
        return value

    def write_extremum(self, op: int, value: Expression, position: int) -> None:
        if isinstance(value, Linear):
            self.rows.append(self.atom(op, value, position))
            return
        joined = OR if value.is_max == (op in (GE, GT)) else AND
        for i, part in enumerate(value.parts):
            self.write_extremum(op, part, position)
            if i:
                self.rows.append((joined, 0, 0, None, 0.0))

    def atom(self, op: int, value: Linear, position: int) -> Row:
        terms = {name: float(c) for name, c in value.terms.items() if c != 0}
        threshold = float(-value.constant)
        if not terms:
            raise self.fail(
                "this comparison has no variable (left); write true or false instead", position
            )
        if not all(map(math.isfinite, [*terms.values(), threshold])) or 0.0 in terms.values():
            raise self.fail("a number here is too large or too small for float64", position)
        channel, sign = canonical_channel(terms)
        if sign < 0:
            op, threshold = _FLIPPED[op], -threshold
        return op, 0, 0, channel, threshold


# -- expressions ---------------------------------------------------------------------------------


def copy(value: Expression) -> Expression:
    return Linear(dict(value.terms), value.constant) if isinstance(value, Linear) else value


def scale(value: Expression, factor: Decimal, divisor: Decimal | None = None) -> Expression:
    """value * factor; with a divisor, value / divisor (factor only tells the sign)."""
    if isinstance(value, Extremum):
        parts = tuple(scale(p, factor, divisor) for p in value.parts)
        return Extremum(value.is_max == (factor > 0), parts) if factor != 0 else parts[0]

    def times(c: Decimal) -> Decimal:
        if divisor is None:
            return _ARITHMETIC.multiply(c, factor)
        return _ARITHMETIC.divide(c, divisor)

    terms = {name: times(c) for name, c in value.terms.items()}
    return Linear({n: c for n, c in terms.items() if c != 0}, times(value.constant))


def add(a: Expression, b: Expression) -> Expression:
    """a + b; sums over max and min are distributed. Linear operands may be reused for the result."""
    if isinstance(a, Linear) and isinstance(b, Linear):
        if len(a.terms) < len(b.terms):
            a, b = b, a
        terms = a.terms
        for name, c in b.terms.items():
            total = _ARITHMETIC.add(terms.get(name, Decimal(0)), c)
            if total == 0:
                del terms[name]
            else:
                terms[name] = total
        if len(terms) > LINEAR_LIMIT:
            raise OverflowError
        return Linear(terms, _ARITHMETIC.add(a.constant, b.constant))
    if count(a) * count(b) > LINEAR_LIMIT:
        raise OverflowError
    if isinstance(a, Linear):
        a, b = b, a
    assert isinstance(a, Extremum)
    return extremum(a.is_max, [add(copy(p), copy(b)) for p in a.parts])


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
    return 1 if isinstance(value, Linear) else sum(count(p) for p in value.parts)


def names_of(value: Expression) -> set[str]:
    if isinstance(value, Linear):
        return set(value.terms)
    return set().union(*(names_of(p) for p in value.parts))


assert all(NAMES[op] in RESERVED for op in range(len(NAMES)))
