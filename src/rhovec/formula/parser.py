"""Text -> Formula: a regex lexer and one operator-precedence loop with an explicit stack.

Expressions and formulae share the loop, because an opening parenthesis may start either. Operators
are written out in postfix order the moment they are complete, which is the form a Formula has, so
nesting is limited only by memory. Two shortcuts carry most texts: a plain atom (`x_0 >= 0.3`) is
one match written straight to its row, and so is a window of whole steps. All other numbers stay
exact decimals until they become float64, so that 0.3 s is three steps of 0.1 s.

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
from functools import lru_cache
from typing import Any

from ..errors import ParseError, RhovecError
from . import operators as ops
from .core import Formula, canonical_channel
from .expressions import (
    ARITHMETIC,
    MAX_LINEAR,
    ONE,
    ZERO,
    Expression,
    Extremum,
    Linear,
    TooLargeError,
    added,
    copied,
    count,
    divided,
    extremum,
    names_of,
    negated,
    scaled,
)
from .operators import Channel, Row

# Possessive quantifiers (*+, ++, ?+): a token is as long as it can be, and nothing is tried twice.
_NUMBER = r"(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+"
NAME = r"[^\W\d]\w*+(?:\.[^\W\d]\w*+)*+"
_TOKEN = re.compile(
    rf"""\s*+(?: (?P<symbol><->|<=>|->|=>|<=|>=|==|!=|&&|\|\||/\\|\\/
                    |[-+*/<>=!~&|()\[\],:¬∧∨→↔≤≥≠□◇⊤⊥])
               | (?P<name>{NAME}) | (?P<number>{_NUMBER}) | (?P<end>\Z) | (?P<unknown>.) )""",
    re.VERBOSE | re.DOTALL,
)
# A variable against a number, unless arithmetic or another comparison follows.
_PLAIN_ATOM = re.compile(
    rf"""\s*+({NAME}) \s*+(>=|<=|[<>≤≥]) \s*+([-+]?{_NUMBER})
         (?= \s*+(?: [^-+*/<>=!≤≥≠] | <?-> | <?=> | /\\ | \Z ))""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_WINDOW = re.compile(r"\s*+\[\s*+(\d{1,15}+)\s*+[,:]\s*+(\d{1,15}+|inf)\s*+\]")
_WHOLE_NAME = re.compile(NAME)
_BRACKET = re.compile(r"\s*+\[")
_DIGITS = re.compile(r"\d+")
_DECIMAL = re.compile(_NUMBER)

# Spelling -> operator. `==` and `!=` are expanded, so they are no operators of a Formula.
_EQ, _NE, _ADD, _SUB, _MUL, _DIV, _NEG, _POS, _OPEN, _ABS, _MIN, _MAX = range(100, 112)
_SPELLINGS = {
    spelling: op for op, row in enumerate(ops.TABLE) for spelling in (row.name, *row.spellings)
}
_UNARY = {s: op for s, op in _SPELLINGS.items() if ops.arity(op) == 1} | {"-": _NEG, "+": _POS}
_BINARY = {
    s: op for s, op in _SPELLINGS.items() if ops.arity(op) == 2 or op in ops.COMPARISONS
} | {
    "==": _EQ, "=": _EQ, "!=": _NE, "≠": _NE, "+": _ADD, "-": _SUB, "*": _MUL, "/": _DIV,
}  # fmt: skip
_CONSTANTS = {s: op for s, op in _SPELLINGS.items() if op in (ops.TRUE, ops.FALSE)}
_FUNCTIONS = {"abs": _ABS, "min": _MIN, "max": _MAX}
RESERVED = frozenset({*_SPELLINGS, *_UNARY, *_BINARY, *_FUNCTIONS, "inf"})
_BINDING = {op: row.binding for op, row in enumerate(ops.TABLE)} | {
    _NEG: 10, _POS: 10, _MUL: 9, _DIV: 9, _ADD: 8, _SUB: 8, _EQ: 7, _NE: 7,
    _OPEN: 0, _ABS: 0, _MIN: 0, _MAX: 0,
}  # fmt: skip
_RIGHT_ASSOCIATIVE = {op for op, row in enumerate(ops.TABLE) if row.right_associative}
_SUM, _COMPARISON, _PREFIX, _UNTIL = (_BINDING[op] for op in (_ADD, ops.GE, ops.NOT, ops.UNTIL))
# Operators' words that are also read as names: those of binary operators where an operand is expected,
# the letters of unary ones if no formula can follow (`F >= 0`, `x + F > 1`).
_BINARY_WORDS = {"U", "R", "W", "release", "weak_until", "unless"}
UNARY_LETTERS = {"G", "F", "X"}
_AFTER_NAMES = {*_BINARY, ")", ","} - _BINARY_WORDS - {"+", "-"}
_TIMED = {op for op, row in enumerate(ops.TABLE) if row.timed}
_FLIPPED = {ops.GE: ops.LE, ops.GT: ops.LT, ops.LE: ops.GE, ops.LT: ops.GT}

# On the operator stack: binding, operator, position, lo, hi. An open function holds in lo how many
# operands stood before it. A plain tuple, because one is made for every operator that is read.
_Operator = tuple[int, int, int, int, int]


class _Comparison:
    """On the operand stack: expressions with the comparisons between them, or a single expression.

    A formula, which is already written out, stands there as the position of its first character.
    """

    __slots__ = ("expressions", "operators", "position")

    def __init__(self, position: int, expression: Expression):
        self.position = position
        self.expressions = [expression]
        self.operators: list[int] = []


_Operand = int | _Comparison
# What a name that is defined stands for; a text says why it cannot be used.
Definition = Formula | Expression | str
MAX_WRITTEN_OUT = 100_000  # nodes of a formula with its definitions written out


def _position(operand: _Operand) -> int:
    return operand if isinstance(operand, int) else operand.position


@lru_cache(maxsize=4096)
def _plain_channel(name: str) -> Channel | None:
    """Channel of a single variable, one object for all its uses; None for a reserved word."""
    return None if name in RESERVED else ((name, 1.0),)


def is_name(text: str) -> bool:
    """Whether the parser can read this text as the name of a variable."""
    positional = UNARY_LETTERS | _BINARY_WORDS
    return _WHOLE_NAME.fullmatch(text) is not None and (text not in RESERVED or text in positional)


def exact_step(dt: float | str | Decimal) -> Fraction:
    """The sampling step as the exact decimal that it is written as (0.1 is 1/10)."""
    text = str(dt)
    try:
        value = Decimal(text) if _DECIMAL.fullmatch(text) else ZERO
    except decimal.InvalidOperation:  # an exponent that no Decimal has
        value = ZERO
    if not Decimal("1e-15") <= value < 10**15 or (step := Fraction(value)).denominator > 10**15:
        raise RhovecError(
            f"dt must be a positive decimal number of seconds from 1e-15 to 1e15, not {dt!r}"
        )
    return step


def parse(
    text: str,
    *,
    dt: float | str | None = None,
    rounding: str | None = None,
    discrete: Iterable[str] = (),
    tolerance: float | Mapping[str, float] | None = None,
    definitions: Mapping[str, Definition] | None = None,
    dialect: str | None = None,
) -> Formula:
    """Read a formula.

    dt: the sampling step in seconds; time bounds are then read as seconds, otherwise as steps.
    rounding: what to do with a bound that is no whole number of steps: "nearest", "down" or "up";
        by default it is an error.
    discrete: variables whose values are modes or gears; `gear == 3` then means |gear - 3| <= 0.5.
    tolerance: the tolerance of `==` and `!=` on all other variables, one number or one by name.
    definitions: formulae by name, which a text may use as if they stood there in parentheses.
    dialect: "rtamt" or "breach": the text is in that tool's language, where bounds are in seconds and
        samples without `dt` are 1 s apart, and means what it means there.

    >>> str(parse("G[0,10] x_0 > 0.3 & x_1 < 2"))
    '( always[0,10] ( x_0 > 0.3 ) and x_1 < 2 )'
    """
    parser = _parser(text, dt, rounding, discrete, tolerance, definitions)
    if dialect is None:
        return parser.run()
    if discrete or tolerance is not None or definitions:
        raise RhovecError(
            f"tolerances and definitions are for rhovec's language, not for {dialect}"
        )
    from .dialects import read

    return read(text, dialect, dt, rounding)


def parse_definition(text: str, **options: Any) -> Formula | Expression:
    """Read a formula or an expression. The options are those of `parse`."""
    return _parser(text, **options).run_definition()


def _parser(
    text: str,
    dt: float | str | None = None,
    rounding: str | None = None,
    discrete: Iterable[str] = (),
    tolerance: float | Mapping[str, float] | None = None,
    definitions: Mapping[str, Definition] | None = None,
) -> _Parser:
    if not isinstance(text, str):
        raise RhovecError(f"parse takes text, not {type(text).__name__}")
    if rounding not in (None, "nearest", "down", "up"):
        raise RhovecError(f'rounding must be "nearest", "down" or "up", not {rounding!r}')
    if isinstance(discrete, str):
        raise RhovecError(f"discrete takes a list of names; write [{discrete!r}]")
    for value in tolerance.values() if isinstance(tolerance, Mapping) else (tolerance,):
        if value is not None and not _is_tolerance(value):
            raise RhovecError(f"the tolerance of == must be a number >= 0, not {value!r}")
    step = None if dt is None else exact_step(dt)
    return _Parser(text, step, rounding, frozenset(discrete), tolerance, definitions or {})


def _is_tolerance(value: object) -> bool:
    try:
        return 0 <= float(value) < math.inf  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


class _Parser:
    def __init__(
        self,
        text: str,
        step: Fraction | None,
        rounding: str | None,
        discrete: frozenset[str],
        tolerance: float | Mapping[str, float] | None,
        definitions: Mapping[str, Definition],
    ):
        self.text = text
        self.step = step
        self.rounding = rounding
        self.discrete = discrete
        self.tolerance = tolerance
        self.definitions = definitions
        self.rows: list[Row] = []
        self.operators: list[_Operator] = []
        self.operands: list[_Operand] = []
        self.kind = ""  # of the current token
        self.token = ""
        self.position = 0  # where it starts
        self.end = 0  # where it ends
        self.letter = ""  # the last operator that was spelled G, F or X

    def fail(self, message: str, position: int | None = None) -> ParseError:
        return ParseError(message, self.text, self.position if position is None else position)

    def advance(self) -> str:
        """Read the next token."""
        match = _TOKEN.match(self.text, self.end)
        assert match is not None  # the last two groups see to it
        self.kind = kind = str(match.lastgroup)
        self.token = token = match[kind]
        self.end = end = match.end()
        self.position = end - len(token)
        if kind == "unknown":
            raise self.fail(f"unexpected character {token!r}")
        return token

    def found(self) -> str:
        return "the end of the text" if self.kind == "end" else repr(self.token)

    def run(self) -> Formula:
        self.read()
        self.complete_formula()
        return Formula.from_rows(self.rows, check=False)

    def run_definition(self) -> Formula | Expression:
        self.read()
        last = self.operands[-1]
        if isinstance(last, _Comparison) and not last.operators:
            return last.expressions[0]
        self.complete_formula()
        return Formula.from_rows(self.rows, check=False)

    def read(self) -> None:
        """Read the whole text; one operand is left."""
        while True:
            while self.read_operand():
                pass
            while not self.read_operator():
                if self.kind == "end":
                    return self.finish()

    def finish(self) -> None:
        self.reduce(1)
        if self.operators:
            opened = self.operators[-1][2]
            raise self.fail(
                f"expected ')' to close the one opened here, found {self.found()}", opened
            )

    # -- reading ---------------------------------------------------------------------------

    def read_operand(self) -> bool:
        """Read what may start an operand. True while another operand start must follow."""
        operators = self.operators
        if (not operators or operators[-1][0] < _COMPARISON) and self.read_plain_atom():
            return False
        token = self.advance()
        start = self.position
        if token == "(":
            operators.append((0, _OPEN, start, 0, 0))
            return True
        op = _UNARY.get(token)
        if op is not None and token in UNARY_LETTERS:
            if self.is_name(token):
                op = None
            else:
                self.letter = token
        if op is not None:
            lo, hi = self.read_window() if op in _TIMED else (0, 0)
            operators.append((_BINDING[op], op, start, lo, hi))
            return True
        if token in _FUNCTIONS:
            if self.advance() != "(":
                raise self.fail(f"expected '(' after {token}, found {self.found()}")
            operators.append((0, _FUNCTIONS[token], start, len(self.operands), 0))
            return True
        if self.kind == "number":
            self.operands.append(_Comparison(start, Linear({}, self.number(token))))
        elif token in _CONSTANTS:
            self.rows.append((_CONSTANTS[token], 0, 0, None, 0.0))
            self.operands.append(start)
        elif token in self.definitions:
            self.write_definition(token, self.definitions[token])
        elif self.kind == "name" and (token not in RESERVED or self.is_name(token)):
            self.operands.append(_Comparison(start, Linear({token: ONE}, ZERO)))
        else:
            hint = " ('inf' may only stand in an interval)" if token == "inf" else ""
            raise self.fail(f"expected a formula or an expression, found {self.found()}{hint}")
        return False

    def write_definition(self, name: str, definition: Definition) -> None:
        """Put what a name stands for in its place, as if in parentheses."""
        start = self.position
        if isinstance(definition, str):
            raise self.fail(definition)
        if not isinstance(definition, Formula):
            self.operands.append(_Comparison(start, copied(definition)))
            return
        if len(self.rows) + definition.size > MAX_WRITTEN_OUT:
            raise self.fail(
                f"with {name} and other definitions written out, the formula has over "
                f"{MAX_WRITTEN_OUT:,} nodes; use fewer or smaller definitions"
            )
        self.rows += definition.rows()
        self.operands.append(start)

    def defined_number(self, name: str) -> str:
        """The number that a name stands for in a time bound."""
        definition = self.definitions[name]
        if isinstance(definition, str):
            raise self.fail(definition)
        if not isinstance(definition, Linear) or definition.terms or definition.constant < 0:
            raise self.fail(f"a time bound is a number from 0 on, and {name} is none")
        return f"{definition.constant:f}"

    def is_name(self, token: str) -> bool:
        """Whether an operator's word stands for a variable, here where an operand is expected."""
        if token not in UNARY_LETTERS:
            return token in _BINARY_WORDS
        if self.operators:
            binding, op, *_ = self.operators[-1]
            if binding >= _COMPARISON or op in (_ABS, _MIN, _MAX):
                return True
        follower = _TOKEN.match(self.text, self.end)
        assert follower is not None
        return follower[follower.lastgroup or 0] in _AFTER_NAMES

    def letter_hint(self) -> str:
        """For an error that may come from a variable with an operator's letter as its name."""
        if not self.letter:
            return ""
        name = ops.NAMES[_UNARY[self.letter]]
        return f" (here {self.letter!r} means {name}; write the variable as `1 * {self.letter}`)"

    def read_plain_atom(self) -> bool:
        """Read and write out `variable comparison number`, if that is what comes next."""
        match = _PLAIN_ATOM.match(self.text, self.end)
        if match is None:
            return False
        name, comparison, number = match.groups()
        channel = _plain_channel(name)
        threshold = float(number)
        if channel is None or math.isinf(threshold) or name in self.definitions:
            return False
        self.rows.append((_BINARY[comparison], 0, 0, channel, threshold))
        self.operands.append(match.start(1))
        self.end = match.end()
        return True

    def read_operator(self) -> bool:
        """Read what may follow an operand. True when an operand must follow."""
        token = self.advance()
        if token == ")":
            self.close_parenthesis()
            return False
        if token in _BINARY:
            start = self.position
            op = _BINARY[token]
            binding = _BINDING[op]
            self.reduce(binding + (op in _RIGHT_ASSOCIATIVE))
            if binding <= _UNTIL:
                self.complete_formula()
            lo, hi = self.read_window() if op in _TIMED else (0, 0)
            self.operators.append((binding, op, start, lo, hi))
            return True
        if token == ",":
            self.reduce(1)
            if not self.operators or self.operators[-1][1] == _OPEN:
                raise self.fail("unexpected ','")
            return True
        if self.kind != "end":
            raise self.fail(f"expected an operator or the end of the text, found {self.found()}")
        return False

    def read_window(self) -> tuple[int, int]:
        """An optional `[a,b]`; without one, [0,inf]."""
        if self.step is None and (match := _PLAIN_WINDOW.match(self.text, self.end)):
            lo, right = int(match[1]), match[2]
            hi = ops.UNBOUNDED if right == "inf" else int(right)
            if hi == ops.UNBOUNDED or lo <= hi:
                self.end = match.end()
                return lo, hi
        elif not _BRACKET.match(self.text, self.end):
            return 0, ops.UNBOUNDED
        self.advance()
        opened = self.position
        self.advance()
        lo = self.read_bound("left")
        if self.token not in (",", ":"):
            raise self.fail(f"expected ',' between the bounds, found {self.found()}")
        self.advance()
        hi = self.read_bound("right")
        if self.token != "]":
            raise self.fail(f"expected ']' after the right bound, found {self.found()}")
        if hi != ops.UNBOUNDED and hi < lo:
            raise self.fail(
                f"interval {self.text[opened : opened + 60].split(']')[0]}] ends before it starts; "
                "write the smaller bound first",
                opened,
            )
        return lo, hi

    def read_bound(self, side: str) -> int:
        """The current token as a number of steps; the token after it becomes the current one."""
        token, start = self.token, self.position
        if token == "inf" and side == "right":
            self.advance()
            return ops.UNBOUNDED
        if token in ("-", "+"):
            raise self.fail("a time bound must not be negative or signed")
        if token in self.definitions:
            token = self.defined_number(token)
        elif self.kind != "number":
            raise self.fail(f"expected a number as {side} bound, found {self.found()}")
        value = self.number(token)
        if self.step is None:
            if not _DIGITS.fullmatch(token):
                raise self.fail(
                    f"time bound {token} is no whole number of steps; "
                    "to give bounds in seconds, pass the sampling step (dt)"
                )
            steps = Fraction(value)
        elif value > ops.MAX_BOUND:
            steps = Fraction(ops.MAX_BOUND + 1)
        else:
            steps = Fraction(value) / self.step
            if steps.denominator != 1:
                if self.rounding is None:
                    raise self.fail(
                        f"time bound {token} s is no whole number of steps of "
                        f"{float(self.step):g} s; "
                        'change it, or pass rounding="nearest", "down" or "up"'
                    )
                shift = {"nearest": Fraction(1, 2), "down": Fraction(0), "up": Fraction(1)}
                steps = Fraction(math.floor(steps + shift[self.rounding]))
        if steps > ops.MAX_BOUND:
            raise self.fail(f"time bound is larger than {ops.MAX_BOUND} steps; use inf", start)
        self.advance()
        return int(steps)

    def number(self, token: str) -> Decimal:
        try:
            value = ARITHMETIC.create_decimal(token)
        except decimal.DecimalException:
            value = Decimal("inf")
        if math.isinf(float(value)):
            raise self.fail(f"number {token[:40]} is too large")
        return value

    # -- reducing --------------------------------------------------------------------------

    def reduce(self, binding: int) -> None:
        """Complete the operators on the stack that bind at least so tight."""
        operators, operands = self.operators, self.operands
        while operators and operators[-1][0] >= binding:
            operator = operators.pop()
            tightness, op, position, lo, hi = operator
            if tightness > _PREFIX:
                self.calculate(operator)
                continue
            self.complete_formula()
            self.rows.append((op, lo, hi, None, 0.0))
            if tightness == _PREFIX:
                operands[-1] = position
            else:
                operands.pop()  # the left operand, complete since its operator was read, stays

    def calculate(self, operator: _Operator) -> None:
        """Complete an arithmetic operator or a comparison."""
        binding, op, position, _, _ = operator
        right = self.operands.pop()
        if op in (_NEG, _POS):
            value = self.expression(right, op)
            self.push(min(position, _position(right)), negated(value) if op == _NEG else value)
            return
        left = self.operands.pop()
        if binding >= _SUM:
            a, b = self.expression(left, op), self.expression(right, op)
            self.push(min(position, _position(left)), self.arithmetic(op, position, a, b))
        elif isinstance(left, int):
            message = f"{spelling(op)} compares numbers, but its left side is a formula"
            raise self.fail(message, left)
        else:
            left.expressions.append(self.expression(right, op))
            left.operators.append(op)
            self.operands.append(left)

    def push(self, position: int, value: Expression) -> None:
        if count(value) > MAX_LINEAR:
            raise self.fail(TooLargeError.PARTS, position)
        self.operands.append(_Comparison(position, value))

    def expression(self, operand: _Operand, op: int) -> Expression:
        if isinstance(operand, int) or operand.operators:
            raise self.fail(
                f"{spelling(op)} takes numbers and variables, but this is a formula"
                + self.letter_hint(),
                _position(operand),
            )
        return operand.expressions[0]

    def arithmetic(self, op: int, position: int, a: Expression, b: Expression) -> Expression:
        try:
            if op in (_ADD, _SUB):
                return added(a, negated(b) if op == _SUB else b)
            if isinstance(b, Linear) and not b.terms:
                if op == _MUL:
                    return scaled(a, b.constant)
                if b.constant == 0:
                    raise self.fail("division by zero", position)
                return divided(a, b.constant)
            if op == _MUL and isinstance(a, Linear) and not a.terms:
                return scaled(b, a.constant)
        except TooLargeError as error:
            raise self.fail(str(error), position) from None
        except decimal.DecimalException:
            raise self.fail("a constant here is too large", position) from None
        what = "a product of variables" if op == _MUL else "a division by a variable"
        raise self.fail(f"{what} is not linear; one factor must be a number", position)

    def close_parenthesis(self) -> None:
        self.reduce(1)
        if not self.operators:
            raise self.fail("')' closes nothing")
        _, op, opened, before, _ = self.operators.pop()
        if op != _OPEN:
            parts = [self.expression(operand, op) for operand in self.operands[before:]]
            del self.operands[before:]
            if op == _ABS:
                if len(parts) != 1:
                    raise self.fail(f"abs takes one argument, not {len(parts)}", opened)
                parts.append(negated(parts[0]))
            self.push(opened, extremum(op != _MIN, parts))
            return
        operand = self.operands[-1]
        if isinstance(operand, _Comparison) and not operand.operators:
            operand.position = opened
        else:
            self.complete_formula()
            self.operands[-1] = opened

    def complete_formula(self) -> None:
        """Write out the last operand if it is a chain of comparisons; an expression is an error."""
        chain = self.operands[-1]
        if isinstance(chain, int):
            return
        if not chain.operators:
            raise self.fail(
                "expected a formula, but this is an expression; compare it with something",
                chain.position,
            )
        for i, op in enumerate(chain.operators):
            left, right = chain.expressions[i : i + 2]
            try:
                self.write_comparison(op, added(left, negated(right)), chain.position)
            except TooLargeError as error:
                raise self.fail(str(error), chain.position) from None
            except decimal.DecimalException:
                raise self.fail("a constant here is too large", chain.position) from None
            if i:
                self.rows.append((ops.AND, 0, 0, None, 0.0))
        self.operands[-1] = chain.position

    # -- atoms -----------------------------------------------------------------------------

    def write_comparison(self, op: int, difference: Expression, position: int) -> None:
        """Write `difference op 0` as linear atoms joined by and/or."""
        if op not in (_EQ, _NE):
            self.write_extremum(op, difference, position)
            return
        tolerance = self.equality_tolerance(difference, position)
        upper, lower = (ops.LE, ops.GE) if op == _EQ else (ops.GT, ops.LT)
        self.write_extremum(lower, added(copied(difference), Linear({}, tolerance)), position)
        self.write_extremum(upper, added(difference, Linear({}, tolerance.copy_negate())), position)
        self.rows.append((ops.AND if op == _EQ else ops.OR, 0, 0, None, 0.0))

    def equality_tolerance(self, difference: Expression, position: int) -> Decimal:
        names = names_of(difference)
        if names and names <= self.discrete:
            return Decimal("0.5")
        tolerance = self.tolerance
        if isinstance(tolerance, Mapping):
            given = {tolerance[n] for n in names if n in tolerance}
            tolerance = given.pop() if len(given) == 1 else None
        if tolerance is None:
            raise self.fail(
                f"== and != on {', '.join(sorted(names)) or 'constants'} need a tolerance: pass "
                "tolerance=..., or declare the variables discrete",
                position,
            )
        return Decimal(repr(float(tolerance)))

    def write_extremum(self, op: int, value: Expression, position: int) -> None:
        if isinstance(value, Extremum) and any(
            isinstance(part, Linear) and not part.terms for part in value.parts
        ):
            raise self.fail(
                "an argument of min or max has no variable; compare the others without it", position
            )
        if isinstance(value, Linear):
            self.rows.append(self.atom(op, value, position))
            return
        joined = ops.OR if value.is_max == (op in (ops.GE, ops.GT)) else ops.AND
        for i, part in enumerate(value.parts):
            self.write_extremum(op, part, position)
            if i:
                self.rows.append((joined, 0, 0, None, 0.0))

    def atom(self, op: int, value: Linear, position: int) -> Row:
        terms = {name: float(c) for name, c in value.terms.items()}
        threshold = -float(value.constant)
        if not terms:
            raise self.fail(
                "this comparison has no variable (left); write true or false instead"
                + self.letter_hint(),
                position,
            )
        if not all(map(math.isfinite, [*terms.values(), threshold])) or 0.0 in terms.values():
            raise self.fail("a number here is too large or too small for float64", position)
        channel, sign = canonical_channel(terms)
        if sign < 0:
            op, threshold = _FLIPPED[op], -threshold
        return op, 0, 0, channel, threshold


def spelling(op: int) -> str:
    """The first spelling of an operator, for messages."""
    return next(repr(s) for table in (_BINARY, _UNARY, _FUNCTIONS) for s in table if table[s] == op)


assert all(name in RESERVED for name in ops.NAMES)
