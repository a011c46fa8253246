"""Reading formulae of other tools: one operator-precedence loop with explicit stacks.

Tables of a subclass tell the languages apart (dialects.py). Expressions become text of our language,
which the parser reads.
"""

from __future__ import annotations

import re
from typing import ClassVar, NoReturn

from ..errors import ParseError
from . import operators as ops
from .core import Formula
from .operators import Row, Shifted
from .parser import parse
from .printer import variable_text

Parts = list[str | tuple[str, int]]  # an expression of our language: text, and variables with lags

NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
PREFIX, COMPARED = 15, 22  # bindings; a higher number binds tighter
COMPARISONS = {s: (COMPARED, s) for s in (">=", ">", "<=", "<", "==")}
OPEN, NEGATIVE = "(", "negative"


class Operand:
    """What stands between operators: an expression, a formula, or in rtamt both at once."""

    __slots__ = ("parts", "position", "rows")

    def __init__(self, position: int, parts: Parts | None = None, rows: list[Row] | None = None):
        self.position = position
        self.parts = parts  # None: no expression
        self.rows = rows  # None: no formula, or rtamt's `parts > 0`


class Reader:
    """One operator-precedence loop with explicit stacks, for both languages; tables tell them apart."""

    tool: ClassVar[str]
    token_pattern: ClassVar[re.Pattern[str]]
    window_pattern: ClassVar[re.Pattern[str]]
    window_form: ClassVar[str]  # for messages
    prefix: ClassVar[dict[str, int | str]]  # spelling -> operator
    infix: ClassVar[dict[str, tuple[int, int | str]]]  # spelling -> binding, operator
    functions: ClassVar[tuple[str, ...]]
    right_associative: ClassVar[bool]

    def __init__(self, text: str, dt: float | str | None, rounding: str | None):
        self.text = text
        self.dt, self.rounding = dt, rounding
        self.operands: list[Operand] = []
        # Binding, operator, position, lo, hi; a parenthesis or function has binding 0 and holds in lo
        # how many operands stood before it.
        self.operators: list[tuple[int, int | str, int, int, int]] = []
        self.kind = self.token = ""  # the current token
        self.position = self.end = 0  # where it starts and ends

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        raise ParseError(message, self.text, self.position if position is None else position)

    def advance(self) -> str:
        match = self.token_pattern.match(self.text, self.end)
        assert match is not None  # the last groups match anything
        self.kind = str(match.lastgroup)
        self.token, self.position, self.end = match[self.kind], match.start(self.kind), match.end()
        if self.kind == "unknown":
            self.fail(f"unexpected character {self.token!r}")
        return self.token

    def found(self) -> str:
        return "the end of the text" if self.kind == "end" else repr(self.token)

    def run(self) -> Formula:
        """The formula, its operators with the meaning that they have in the tool."""
        while True:
            while self.read_operand():
                pass
            while not self.read_operator():
                if self.kind == "end":
                    self.reduce(1)
                    if self.operators:
                        self.fail(
                            "expected ')' to close the one opened here", self.operators[-1][2]
                        )
                    return Formula.from_rows(self.formula(self.operands.pop()))

    def read_operand(self) -> bool:
        """Read what may start an operand. True while another start must follow."""
        token = self.advance()
        start = self.position
        if token == "(":
            self.operators.append((0, OPEN, start, len(self.operands), 0))
            return True
        if token in self.prefix:
            op = self.prefix[token]
            binding = PREFIX if isinstance(op, int) else 30
            self.operators.append((binding, op, start, *self.read_window(op)))
            return True
        if token in self.functions:
            if self.advance() != "(":
                self.fail(f"expected '(' after {token}, found {self.found()}")
            self.operators.append((0, token, start, len(self.operands), 0))
            return True
        if self.kind == "number":
            self.operands.append(Operand(start, [token]))
        elif self.kind == "name" and token not in self.infix:
            self.read_name()
        else:
            self.fail(f"expected a formula or an expression, found {self.found()}")
        return False

    def read_name(self) -> None:
        raise NotImplementedError

    def read_operator(self) -> bool:
        """Read what may follow an operand. True when an operand must follow."""
        token = self.advance()
        if token in self.infix:
            start = self.position
            binding, op = self.infix[token]
            self.reduce(binding + (self.right_associative and binding < COMPARED))
            self.operators.append((binding, op, start, *self.read_window(op)))
            return True
        if token in (")", ","):
            self.reduce(1)
            if not self.operators or (token == "," and self.operators[-1][1] == OPEN):
                self.fail(f"unexpected {token!r}")
            if token == ")":
                self.close(*self.operators.pop()[1:4])
            return token == ","
        if self.kind != "end":
            self.fail(f"expected an operator or the end of the text, found {self.found()}")
        return False

    def has_window(self) -> bool:
        raise NotImplementedError

    def read_window(self, op: int | str) -> tuple[int, int]:
        """The window that follows a timed operator, in steps."""
        if not isinstance(op, int) or not ops.is_timed(op):
            return 0, 0
        if not self.has_window():
            return 0, ops.UNBOUNDED
        match = self.window_pattern.match(self.text, self.end)
        if match is None:
            self.fail(f"expected a window of numbers, {self.window_form}", self.end)
        self.position, self.end = match.start("lo"), match.end()
        return self.steps(*self.seconds(match), past=bool(ops.IS_PAST[op]))

    def seconds(self, match: re.Match[str]) -> tuple[str, str]:
        """The bounds that a window has, as numbers of seconds."""
        raise NotImplementedError

    def steps(self, lo: str, hi: str, past: bool) -> tuple[int, int]:
        """A window of seconds in steps, by our own rules. Without a step, samples are 1 s apart."""
        dt = 1 if self.dt is None else self.dt
        try:
            window = parse(
                f"{'once' if past else 'always'}[{lo},{hi}] true", dt=dt, rounding=self.rounding
            )
        except ParseError as error:
            self.fail(error.message)
        return int(window.code[-1, 1]), int(window.code[-1, 2])

    def reduce(self, binding: int) -> None:
        """Complete the operators on the stack that bind at least this tightly."""
        while self.operators and self.operators[-1][0] >= binding:
            _, op, position, lo, hi = self.operators.pop()
            last = self.operands.pop()
            if op == NEGATIVE:
                self.operands.append(Operand(position, ["-(", *self.expression(last), ")"]))
            elif isinstance(op, int) and ops.arity(op) == 1:
                rows = self.formula(last)
                rows.append(ops.node(op, lo, hi))
                self.operands.append(Operand(position, self.moved(op, last), rows))
            elif isinstance(op, int):
                left = self.operands[-1]
                left.rows = [*self.formula(left), *self.formula(last), ops.node(op, lo, hi)]
                left.parts = None
            else:
                self.calculate(op, position, self.operands[-1], last)

    def calculate(self, op: str, position: int, left: Operand, right: Operand) -> None:
        """Complete arithmetic or a comparison; the result takes the place of its left operand."""
        a, b = self.expression(left), self.expression(right)
        if op in COMPARISONS:
            left.rows = self.atom(["(", *a, f") {op} (", *b, ")"], left.position)
        left.parts = ["(", *a, f") {'-' if op in COMPARISONS else op} (", *b, ")"]

    def close(self, op: int | str, opened: int, before: int) -> None:
        """Complete a parenthesis or a function."""
        arguments = self.operands[before:]
        if op == OPEN:
            arguments[0].position = opened
            return
        del self.operands[before:]
        parts: Parts = [f"{op}("]
        for argument in arguments:
            parts += [", "] * (len(parts) > 1) + self.expression(argument)
        self.operands.append(Operand(opened, [*parts, ")"]))

    def moved(self, op: int, operand: Operand) -> Parts | None:
        """An operator's result as an expression, if it is one."""
        return None

    def expression(self, operand: Operand) -> Parts:
        if operand.parts is None:
            self.fail(
                f"{self.tool} computes with the robustness of this formula, which a formula of rhovec "
                "cannot; compare signals instead, and join formulae by and, or, not and ->",
                operand.position,
            )
        return operand.parts

    def formula(self, operand: Operand) -> list[Row]:
        if operand.rows is None:
            self.fail("expected a formula, but this is an expression", operand.position)
        return operand.rows

    def atom(self, parts: Parts, position: int) -> list[Row]:
        """The rows of a comparison that is written in our language."""
        try:
            return parse("".join(map(part_text, parts))).rows()
        except ParseError as error:
            self.fail(error.message, position)

    def variable(self, name: str, steps: int = 0) -> None:
        """A variable as it was `steps` ago."""
        self.operands.append(Operand(self.position, [(name, steps)]))


def part_text(part: str | tuple[str, int]) -> str:
    if isinstance(part, str):
        return part
    name, steps = part
    return variable_text(Shifted(name, steps) if steps else name, leads=True)
