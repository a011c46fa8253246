"""Text -> Formula: one operator-precedence loop with an explicit stack.

Expressions and formulae share the loop, because an opening parenthesis may start either. Operators
are written out in postfix order the moment they are complete, which is the form a Formula has, so
nesting is limited only by memory. Two shortcuts carry most texts: a plain atom (`x_0 >= 0.3`) is
one match written straight to its row, and so is a window of whole steps. All other numbers stay
exact decimals until they become float64, so that 0.3 s is three steps of 0.1 s.

Binding, tightest first: unary minus, and prev and next inside an expression; * /; + -; comparisons;
not, prev, next, always, eventually, once, historically; until, release, weak_until, since
(right-associative); and; or; -> (right-associative); <->.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from ..errors import ParseError, RhovecError
from . import atoms, lexer
from . import operators as ops
from .atoms import NoVariableError
from .bounds import BoundReader
from .core import Formula
from .derived import Derived
from .expressions import (
    ARITHMETIC,
    MAX_LINEAR,
    ZERO,
    Expression,
    ExpressionError,
    Linear,
    Quantity,
    added,
    constant,
    copied,
    count,
    divided,
    extremum,
    lone_variable,
    names_of,
    negated,
    rate,
    scaled,
    shifted,
    variable,
)
from .lexer import BINARY, BINDING, EQ, FUNCTIONS, NE, spelling
from .operators import Row
from .options import Definition, Options, code_of, options_of
from .units import UnitError

_TIMED = {op for op, row in enumerate(ops.TABLE) if row.timed}
_RIGHT_ASSOCIATIVE = {op for op, row in enumerate(ops.TABLE) if row.right_associative}
# Local names of what is looked up for every token.
_PLAIN_ATOM, _plain_channel = lexer.PLAIN_ATOM, lexer.plain_channel
_UNARY, _UNARY_WORDS, _RESERVED = lexer.UNARY, lexer.UNARY_WORDS, lexer.RESERVED
_SUM, _COMPARISON, _PREFIX, _UNTIL = (BINDING[op] for op in (lexer.ADD, ops.GE, ops.NOT, ops.UNTIL))
# Functions whose arguments are expressions.
_OF_EXPRESSIONS = {lexer.ABS, lexer.MIN, lexer.MAX, lexer.RATE, lexer.CHANGED}
_SHIFTS = {ops.PREV: 1, ops.NEXT: -1}  # steps into the past

_NO_NAMES: tuple[str, ...] = ()
_DEFAULTS = Options()

# On the operator stack: binding, operator, position, lo, hi. An open function holds in lo how many
# operands stood before it; prev and next before a comparison hold how many names had been read before
# them, and before what follows their first operand (`shift_goes_on`). A plain tuple, because one is
# made for every operator that is read.
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
_EQUALS = {
    EQ: " (for formulae write <->; a flag stands alone: flag, not flag)",
    NE: " (for formulae write not (a <-> b); a flag stands alone: flag, not flag)",
}
MAX_WRITTEN_OUT = 100_000  # nodes of a formula with its definitions written out


def _hint(word: str, op: int) -> str:
    """For an error that may come from a variable with an operator's letter as its name."""
    if len(word) > 1:
        return ""
    return f" (here {word!r} means {ops.NAMES[op]}; write the variable as `{word}`, in backticks)"


def _position(operand: _Operand) -> int:
    return operand if isinstance(operand, int) else operand.position


def parse(
    text: str,
    *,
    dt: float | str | None = None,
    rounding: str | None = None,
    discrete: Iterable[str] = _NO_NAMES,
    tolerance: float | Mapping[str, float] | None = None,
    units: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, float]] | None = None,
    definitions: Mapping[str, Definition] | None = None,
    dialect: str | None = None,
    derived: Derived | None = None,
) -> Formula:
    """Read a formula.

    dt: the sampling step in seconds; time bounds are then read as seconds, otherwise as steps.
    rounding: what to do with a bound that is not a whole number of steps: "nearest", "down" or "up";
        by default it is an error.
    discrete: variables whose values are modes or gears; `gear == 3` then means |gear - 3| <= 0.5.
    tolerance: the tolerance of `==` and `!=` on all other variables, one number or one by name.
    units: the units of variables, {"speed": "m/s"}, for thresholds such as `speed > 120 km/h`.
    labels: names of a discrete variable's values, {"gear": {"P": 0, "D": 3}}, for `gear == "D"`.
    definitions: formulae by name, which a text may use as if they stood there in parentheses.
    dialect: "rtamt" or "breach": the text is in that tool's language, where bounds are in seconds and
        samples without `dt` are 1 s apart, and means what it means there.
    derived: takes products, quotients and rates of signals, which are then variables of the formula,
        to be computed for each log.

    >>> str(parse("G[0,10] x_0 > 0.3 & x_1 < 2"))
    '( always[0,10] ( x_0 > 0.3 ) and x_1 < 2 )'
    """
    plain = dt is None and rounding is None and tolerance is None and units is None
    plain = plain and labels is None and derived is None
    if plain and discrete is _NO_NAMES:  # which most texts are, so that nothing needs a check
        options = _DEFAULTS
    else:
        options = options_of(dt, rounding, discrete, tolerance, units, labels, derived)
    if dialect is None:
        return _Parser(text, options, definitions or {}).run()
    if tolerance is not None or any((discrete, units, labels, definitions)):
        raise RhovecError(
            "tolerances, units, labels and definitions belong to rhovec's own language; leave them out "
            f"to read {dialect}'s"
        )
    from .dialects import read

    return read(text, dialect, dt, rounding)


def parse_definition(
    text: str,
    *,
    definitions: Mapping[str, Definition] | None = None,
    dialect: str | None = None,
    **options: Any,
) -> Formula | Expression:
    """Read a formula or an expression; a number may have any unit. The options are those of `parse`."""
    if dialect is not None:
        raise ParseError(f"{dialect} has no such definitions; write it out where it is used", text)
    return _Parser(text, options_of(**options), definitions or {}).run_definition()


class _Parser(BoundReader):
    def __init__(self, text: str, options: Options, definitions: Mapping[str, Definition]):
        if not isinstance(text, str):
            raise RhovecError(f"parse takes text, not {type(text).__name__}")
        super().__init__(text, options, definitions)
        self.takes_units = bool(options.units)
        self.defines = False  # whether an expression will do instead of a formula
        self.rows: list[Row] = []
        self.operators: list[_Operator] = []
        self.operands: list[_Operand] = []
        self.names = 0  # variables read so far, but for plain atoms
        self.hint = ""  # for an error that may come from a word that was read as an operator
        self.place = 0  # of the operation whose expressions are at work, for their errors
        self.unit_places: dict[str, int] = {}

    def run(self) -> Formula:
        self.read()
        return Formula.from_rows(self.rows, check=False)

    def run_definition(self) -> Formula | Expression:
        self.defines = self.takes_units = True
        self.read()
        last = self.operands[-1]
        if isinstance(last, _Comparison):
            return last.expressions[0]
        return Formula.from_rows(self.rows, check=False)

    def read(self) -> None:
        """Read the whole text; one operand is left."""
        try:
            while True:
                while self.read_operand():
                    pass
                while not self.read_operator():
                    if self.kind == "end":
                        return self.finish()
        except (ExpressionError, decimal.DecimalException) as error:
            raise self.located(error) from None

    def finish(self) -> None:
        self.reduce(1)
        if self.operators:
            opened = self.operators[-1][2]
            raise self.fail(
                f"expected ')' to close the one opened here, found {self.found()}", opened
            )
        last = self.operands[-1]
        if not (self.defines and isinstance(last, _Comparison) and not last.operators):
            self.complete_formula()

    # -- reading ---------------------------------------------------------------------------

    def read_operand(self) -> bool:
        """Read what may start an operand. True while another operand start must follow."""
        operators = self.operators
        if (not operators or operators[-1][0] < _COMPARISON) and self.read_plain_atom():
            return False
        token = self.advance()
        start = self.position
        if token == "(":
            operators.append((0, lexer.OPEN, start, 0, 0))
            return True
        if token in self.definitions:
            self.push_definition(token)
            return False
        op = _UNARY.get(token)
        if op is not None and not (token in _UNARY_WORDS and self.is_variable(token)):
            if op in _SHIFTS:
                binding = BINDING[lexer.NEG] if self.in_expression() else _PREFIX
                operators.append((binding, op, start, self.names, -1))
                return True
            lo, hi = self.read_window(op) if op in _TIMED else (0, 0)
            operators.append((BINDING[op], op, start, lo, hi))
            return True
        if self.kind == "name" and (token not in _RESERVED or self.is_variable(token)):
            self.push_variable(token)
            return False
        if token in FUNCTIONS:
            if self.advance() != "(":
                raise self.fail(f"expected '(' after {token}, found {self.found()}")
            operators.append((0, FUNCTIONS[token], start, len(self.operands), 0))
            return True
        if self.kind == "number":
            self.operands.append(_Comparison(start, self.read_quantity()))
        elif self.kind == "quoted":
            if token[0] == '"' and operators and operators[-1][1] in (EQ, NE):
                self.operands.append(_Comparison(start, constant(self.code_of(token))))
            else:
                self.push_variable(lexer.unquoted(token))
        elif token in lexer.CONSTANTS:
            self.rows.append(ops.node(lexer.CONSTANTS[token]))
            self.operands.append(start)
        else:
            hint = self.hint
            if operators and (letter := self.text[operators[-1][2]]) in lexer.BINARY_WORDS:
                hint = _hint(letter, operators[-1][1])
            if token == "inf":
                hint = " ('inf' may only stand in an interval)"
            elif self.kind == "name":
                hint = f" (a variable with this name is written `{token}`, in backticks)"
            raise self.fail(f"expected a formula or an expression, found {self.found()}{hint}")
        return False

    def push_variable(self, name: str) -> None:
        self.names += 1
        self.operands.append(_Comparison(self.position, variable(name)))

    def push_definition(self, name: str) -> None:
        """Put what a name stands for in its place, as if in parentheses."""
        definition = self.definition(name)
        if not isinstance(definition, Formula):
            self.names += bool(names_of(definition))
            self.operands.append(_Comparison(self.position, copied(definition)))
            return
        if len(self.rows) + definition.size > MAX_WRITTEN_OUT:
            raise self.fail(
                f"with {name} and other definitions written out, the formula has over "
                f"{MAX_WRITTEN_OUT:,} nodes; use fewer or smaller definitions"
            )
        self.rows += definition.rows()
        self.operands.append(self.position)

    def in_expression(self) -> bool:
        """Whether only an expression can stand here, and no formula."""
        if not self.operators:
            return False
        binding, op, *_ = self.operators[-1]
        return binding >= _COMPARISON or op in _OF_EXPRESSIONS

    def is_variable(self, token: str) -> bool:
        """Whether an operator's word stands for a variable, here where an operand is expected."""
        if token in lexer.BINARY_WORDS:
            return True
        if token not in lexer.UNARY_WORDS and token not in lexer.FUNCTION_WORDS:
            return False
        kind, follower = self.peek()
        if token in lexer.FUNCTION_WORDS:
            return follower != "("
        if self.in_expression():
            starts = follower in ("(", "`", '"') or (kind == "name" and follower not in BINARY)
            return not (starts and _UNARY[token] in _SHIFTS)
        if follower in lexer.AFTER_NAMES:
            return True
        self.hint = _hint(token, _UNARY[token])
        return False

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
        self.rows.append((BINARY[comparison], 0, 0, channel, threshold))
        self.operands.append(match.start(1))
        self.end = match.end()
        return True

    def read_operator(self) -> bool:
        """Read what may follow an operand. True when an operand must follow."""
        token = self.advance()
        if token == ")":
            self.close_parenthesis()
            return False
        if token in BINARY:
            start = self.position
            op = BINARY[token]
            binding = BINDING[op]
            self.reduce(binding + (op in _RIGHT_ASSOCIATIVE))
            if binding <= _UNTIL:
                self.complete_formula()
            elif self.operators:
                self.shift_goes_on()
            lo, hi = self.read_window(op) if op in _TIMED else (0, 0)
            self.operators.append((binding, op, start, lo, hi))
            return True
        if token == ",":
            self.reduce(1)
            if not self.operators or self.operators[-1][1] == lexer.OPEN:
                raise self.fail("unexpected ','")
            return True
        if self.kind != "end":
            raise self.fail(
                f"expected an operator or the end of the text, found {self.found()}{self.misspelt()}"
            )
        return False

    # -- numbers ---------------------------------------------------------------------------

    def read_quantity(self) -> Expression:
        """The current token, a number, with the unit that may follow it."""
        value = self.number(self.token)
        match = lexer.UNIT.match(self.text, self.end)
        if match is None:
            return constant(value)
        if not self.takes_units:
            self.advance()
            hint = self.misspelt() or (
                "; a product is written with *, and a unit needs the units of the variables (units=...)"
            )
            raise self.fail(
                f"expected an operator or the end of the text, found {self.found()}{hint}"
            )
        self.end = match.end()
        unit = "".join(match[1].split())
        self.unit_places.setdefault(unit, match.start(1))
        return Linear({Quantity(unit): value}, ZERO)

    def code_of(self, token: str) -> Decimal:
        """The code of a label, which stands to the right of == or !=."""
        left = self.operands[-1]
        compared = None if isinstance(left, int) else lone_variable(left.expressions[-1])
        name = None if compared is None else ops.name_of(compared)
        try:
            return code_of(token, name, self.options.labels.get(name or "", {}))
        except ExpressionError as error:
            raise self.fail(str(error)) from None

    # -- reducing --------------------------------------------------------------------------

    def reduce(self, binding: int) -> None:
        """Complete the operators on the stack that bind at least this tightly."""
        operators, operands = self.operators, self.operands
        while operators and operators[-1][0] >= binding:
            operator = operators.pop()
            tightness, op, position, lo, hi = operator
            if tightness > _PREFIX:
                self.calculate(operator)
                continue
            if tightness < _PREFIX:
                self.complete_formula()
                operands.pop()  # the left operand, complete since its operator was read, stays
            elif op not in _SHIFTS:
                self.complete_formula()
                operands[-1] = position
            elif self.shift_expression(operator):
                continue
            else:
                lo = hi = 0
            self.rows.append((op, lo, hi, None, 0.0))

    def shift_goes_on(self) -> None:
        """After `prev x`, where arithmetic or a comparison follows: note how many names were read."""
        binding, op, position, before, after = self.operators[-1]
        if binding == _PREFIX and op in _SHIFTS and after < 0 and self.names > before:
            self.operators[-1] = binding, op, position, before, self.names

    def shift_expression(self, operator: _Operator) -> bool:
        """Complete prev or next where a formula may stand: True if it takes an expression.

        `prev x > 3` is prev (x > 3), which is (prev x) > 3. The two differ if another variable
        follows, as in `prev x > y`, and only `next`, which has always taken the comparison, may then
        do without parentheses.
        """
        _, op, position, _, after = operator
        operand = self.operands[-1]
        is_expression = isinstance(operand, _Comparison) and not operand.operators
        if 0 <= after < self.names:
            name = ops.NAMES[op]
            if is_expression or op != ops.NEXT:
                raise self.fail(
                    f"{name} may take the first variable here or all that follows; write "
                    f"({name} x) or {name} (...)",
                    position,
                )
            self.hint = " (next takes the whole comparison; for a single variable, write (next x))"
        if is_expression:
            assert isinstance(operand, _Comparison)
            self.operands.pop()
            self.place = position
            self.push(position, shifted(operand.expressions[0], _SHIFTS[op]))
        else:
            self.complete_formula()
            self.operands[-1] = position
        return is_expression

    def calculate(self, operator: _Operator) -> None:
        """Complete an arithmetic operator or a comparison."""
        binding, op, position, _, _ = operator
        self.place = position
        right = self.operands.pop()
        if binding == BINDING[lexer.NEG]:
            value = self.expression(right, op)
            if op == lexer.NEG:
                value = negated(value)
            elif op in _SHIFTS:
                value = shifted(value, _SHIFTS[op])
            self.push(min(position, _position(right)), value)
            return
        left = self.operands.pop()
        if binding >= _SUM:
            a, b = self.expression(left, op), self.expression(right, op)
            self.push(min(position, _position(left)), self.arithmetic(op, position, a, b))
        elif isinstance(left, int):
            message = f"{spelling(op)} compares numbers, but its left side is a formula"
            raise self.fail(message + _EQUALS.get(op, ""), left)
        else:
            left.expressions.append(self.expression(right, op))
            left.operators.append(op)
            self.operands.append(left)

    def push(self, position: int, value: Expression) -> None:
        if count(value) > MAX_LINEAR:
            raise self.fail(ExpressionError.PARTS, position)
        self.operands.append(_Comparison(position, value))

    def expression(self, operand: _Operand, op: int) -> Expression:
        if isinstance(operand, int) or operand.operators:
            raise self.fail(
                f"{spelling(op)} takes numbers and variables, but this is a formula"
                + (self.hint or _EQUALS.get(op, "")),
                _position(operand),
            )
        return operand.expressions[0]

    def arithmetic(self, op: int, position: int, a: Expression, b: Expression) -> Expression:
        if op in (lexer.ADD, lexer.SUB):
            return added(a, negated(b) if op == lexer.SUB else b)
        if isinstance(b, Linear) and not b.terms:
            if op == lexer.MUL:
                return scaled(a, b.constant)
            if b.constant == 0:
                raise self.fail("division by zero", position)
            return divided(a, b.constant)
        if op == lexer.MUL and isinstance(a, Linear) and not a.terms:
            return scaled(b, a.constant)
        if not names_of(b) or (op == lexer.MUL and not names_of(a)):
            raise self.fail("a factor or divisor is a plain number; leave out its unit", position)
        if (derived := self.options.derived) is not None:
            return derived.add("*" if op == lexer.MUL else "/", (a, b), self.options.units)
        what = "product" if op == lexer.MUL else "quotient"
        raise self.fail(
            f"a {what} of signals is not linear; make it a channel of the traces (`rhovec check` does)",
            position,
        )

    def located(self, error: Exception) -> ParseError:
        """What is wrong with an expression, as an error that says where."""
        if isinstance(error, decimal.DecimalException):
            return self.fail("a constant here is too large", self.place)
        place = self.place
        if isinstance(error, UnitError):
            place = self.unit_places.get(error.unit, place)  # that of a definition has none
        return self.fail(str(error) + self.hint * isinstance(error, NoVariableError), place)

    def close_parenthesis(self) -> None:
        self.reduce(1)
        if not self.operators:
            raise self.fail("')' closes nothing")
        _, op, opened, before, _ = self.operators.pop()
        if op != lexer.OPEN:
            self.close_function(op, opened, before)
            return
        operand = self.operands[-1]
        if isinstance(operand, _Comparison) and not operand.operators:
            operand.position = opened
        else:
            self.complete_formula()
            self.operands[-1] = opened

    def close_function(self, op: int, opened: int, before: int) -> None:
        """Complete a function, whose arguments are the operands from `before` on."""
        name = spelling(op)[1:-1]
        given = len(self.operands) - before
        if op not in (lexer.MIN, lexer.MAX) and given != 1:
            raise self.fail(f"{name} takes one argument, not {given}", opened)
        if op not in _OF_EXPRESSIONS:
            self.complete_formula()
            self.rows.append(ops.node(op))
            self.operands[-1] = opened
            return
        parts = [self.expression(operand, op) for operand in self.operands[before:]]
        del self.operands[before:]
        self.place = opened
        if op == lexer.CHANGED:
            self.rows += atoms.changed(parts[0], self.options)
            self.operands.append(opened)
        elif op == lexer.RATE and (derived := self.options.derived) is not None:
            self.push(opened, derived.add("rate", tuple(parts), self.options.units))
        elif op == lexer.RATE:
            step = self.options.step
            if step is None:
                raise self.fail("rate needs the sampling step; pass dt", opened)
            seconds = ARITHMETIC.divide(Decimal(step.numerator), Decimal(step.denominator))
            self.push(opened, rate(parts[0], seconds))
        else:
            if op == lexer.ABS:
                parts.append(negated(parts[0]))
            self.push(opened, extremum(op != lexer.MIN, parts))

    # -- formulae --------------------------------------------------------------------------

    def complete_formula(self) -> None:
        """Write out the last operand, unless it is a formula that already is."""
        chain = self.operands[-1]
        if isinstance(chain, int):
            return
        if not chain.operators:
            self.write_flag(chain)
        self.place = chain.position
        for i, op in enumerate(chain.operators):
            left, right = chain.expressions[i : i + 2]
            self.rows += atoms.comparison(op, added(left, negated(right)), self.options)
            if i:
                self.rows.append(ops.node(ops.AND))
        self.operands[-1] = chain.position

    def write_flag(self, chain: _Comparison) -> None:
        """A variable by itself where a formula is expected: it is at least one half."""
        flag = lone_variable(chain.expressions[0])
        if flag is None:
            raise self.fail(
                "expected a formula, but this is an expression; compare it with something "
                "(only a variable may stand alone, as a flag)",
                chain.position,
            )
        steps = ops.lag_of(flag)
        self.rows.append((ops.GE, 0, 0, ((ops.name_of(flag), 1.0),), 0.5))
        self.rows += [ops.node(ops.PREV if steps > 0 else ops.NEXT)] * abs(steps)
