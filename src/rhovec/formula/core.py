"""A formula as a value: a frozen, flat postfix program.

Row i of `code` is (operator, lo, hi, channel): an operator's operands stand before it, the root is
the last row. Atoms compare a linear channel (a tuple of (variable, coefficient) terms) with
`thresholds[i]`. Being flat, a formula of any depth can be hashed, compared, copied and evaluated
without recursion, and engines read its arrays as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from ..errors import FormulaError
from . import operators as ops
from .lexer import is_name
from .operators import Channel, Row, Shifted, Variable
from .shape import shape_of


@lru_cache(maxsize=65536)
def natural_key(variable: Variable) -> tuple[Any, ...]:
    """Sort key under which x_2 comes before x_10, and of one variable the earlier sample first."""
    key: list[tuple[int, int, str]] = []
    for part in re.findall(r"\d+|\D+", ops.name_of(variable)):
        digits = part.lstrip("0")
        key.append((0, len(digits), part) if part.isdecimal() else (1, 0, part))
    return tuple(key), -ops.lag_of(variable)


def canonical_channel(terms: dict[Variable, float]) -> tuple[Channel, int]:
    """Terms in canonical order and sign, and the sign that was taken out (+1 or -1).

    Positive terms come first, each group in name order. Of an expression and its negative, the one
    with more positive coefficients is canonical; on a tie, the one whose last name is positive
    (so `y5 - y4`, and `x - prev x`).
    """
    names = sorted((n for n, c in terms.items() if c != 0), key=natural_key)
    positive = sum(terms[n] > 0 for n in names)
    balance = 2 * positive - len(names)
    sign = -1 if balance < 0 or (balance == 0 and names and terms[names[-1]] < 0) else 1
    ordered = sorted(names, key=lambda n: (sign * terms[n] < 0, natural_key(n)))
    return tuple((n, sign * terms[n]) for n in ordered), sign


class Formula:
    """An STL formula, frozen. Build one with `rv.parse`, or with ~a, a & b, a | b, a >> b."""

    __slots__ = ("_hash", "_shape", "channels", "code", "thresholds")

    code: np.ndarray  # (nodes, 4) int64: operator, lo, hi, channel
    thresholds: np.ndarray  # (nodes,) float64, 0 where the node is not an atom
    channels: tuple[Channel, ...]  # in order of first use
    _hash: int | None
    _shape: tuple[np.ndarray, np.ndarray, int, int] | None

    def __init__(self) -> None:
        raise TypeError(
            "build a Formula with rv.parse, Formula.from_rows, or ~a, a & b, a | b, a >> b"
        )

    @classmethod
    def trusted(
        cls, code: np.ndarray, thresholds: np.ndarray, channels: tuple[Channel, ...]
    ) -> Formula:
        """Wrap arrays that are known to be a formula's, without any check."""
        self = object.__new__(cls)
        for name, value in (("code", code), ("thresholds", thresholds)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "channels", channels)
        object.__setattr__(self, "_hash", None)
        object.__setattr__(self, "_shape", None)
        return self

    @classmethod
    def from_rows(cls, rows: Sequence[Row], *, check: bool = True) -> Formula:
        """Build from postfix rows (operator, lo, hi, channel or None, threshold).

        check: refuse rows that are not a formula; without it they are taken on trust.
        """
        if check:
            try:
                rows = list(rows)
            except TypeError:
                raise FormulaError(f"rows must be a list, not {type(rows).__name__}") from None
            check_rows(rows)
        channels: dict[Channel, int] = {}
        code: list[int] = []
        thresholds: list[float] = []
        for op, lo, hi, channel, threshold in rows:
            if channel is None:
                code += (op, lo, hi, -1)
                thresholds.append(0.0)
            else:
                code += (op, lo, hi, channels.setdefault(channel, len(channels)))
                thresholds.append(threshold + 0.0)  # -0.0 becomes 0.0
        return cls.trusted(
            np.array(code, np.int64).reshape(-1, 4), np.array(thresholds), tuple(channels)
        )

    def rows(self) -> list[Row]:
        channels = self.channels
        return [
            (op, lo, hi, channels[c] if c >= 0 else None, t)
            for (op, lo, hi, c), t in zip(self.code.tolist(), self.thresholds.tolist(), strict=True)
        ]

    # -- what it is ------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of nodes: operators, atoms and constants."""
        return len(self.code)

    @property
    def depth(self) -> int:
        """Operators on the longest path from the root to an atom; an atom has depth 0."""
        return int(self.shape()[1][-1])

    @property
    def horizon(self) -> int:
        """Steps after t that its value depends on; an unbounded window counts its left bound."""
        return max(0, self.shape()[2])

    @property
    def history(self) -> int:
        """Steps before t that its value depends on; an unbounded window counts its left bound."""
        return max(0, -self.shape()[3])

    @property
    def looks_back(self) -> bool:
        """Whether its value depends on earlier samples."""
        return self.history > 0 or bool(ops.IS_PAST[self.code[:, 0]].any())

    @property
    def only_looks_back(self) -> bool:
        """Whether it looks back and never ahead, so that at time 0 it reads the first sample only."""
        op, _, hi, _ = self.code.T
        ahead = ops.IS_TIMED[op] & ~ops.IS_PAST[op] & (hi == ops.UNBOUNDED)
        return self.looks_back and not self.horizon and not ahead.any()

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables, in natural order."""
        names = {ops.name_of(variable) for channel in self.channels for variable, _ in channel}
        return tuple(sorted(names, key=natural_key))

    def shape(self) -> tuple[np.ndarray, np.ndarray, int, int]:
        """(subtree sizes, subtree depths, last and first time that it depends on), computed once.

        Times are relative to t; `first` is negative if the formula looks back.
        """
        if self._shape is None:
            sizes, depths, last, first = shape_of(self.code.tolist(), self.channels)
            shape = (np.array(sizes, np.int64), np.array(depths, np.int64), last[-1], first[-1])
            object.__setattr__(self, "_shape", shape)
        assert self._shape is not None
        return self._shape

    def subformula(self, node: int) -> Formula:
        """The sub-formula with row `node` as its root."""
        rows = self.rows()
        size = int(self.shape()[0][node])
        return Formula.from_rows(rows[node + 1 - size : node + 1], check=False)

    def subformulae(self) -> Iterator[Formula]:
        """All sub-formulae in the order of the rows: operands before operators, itself last."""
        return map(self.subformula, range(self.size))

    # -- text ------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        text = self.to_text()
        return f"Formula({text if len(text) <= 200 else text[:197] + '...'!r})"

    def to_text(self, dt: float | str | None = None, dialect: str | None = None) -> str:
        """The canonical text; with `dt`, time bounds are printed in seconds instead of steps.

        dialect: "rtamt" or "breach": a text that means the same to that tool.
        """
        from . import dialects, printer

        return printer.to_text(self, dt) if dialect is None else dialects.write(self, dialect, dt)

    # -- a value ---------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Formula):
            return NotImplemented
        return (
            self.channels == other.channels
            and np.array_equal(self.code, other.code)
            and np.array_equal(self.thresholds, other.thresholds)
        )

    def __hash__(self) -> int:
        if self._hash is None:
            key = (self.code.tobytes(), self.thresholds.tobytes(), self.channels)
            object.__setattr__(self, "_hash", hash(key))
        assert self._hash is not None
        return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Formula is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Formula is frozen")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Formula.trusted, (self.code, self.thresholds, self.channels))

    def __copy__(self) -> Formula:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Formula:
        return self

    # -- composition -----------------------------------------------------------------------

    def __invert__(self) -> Formula:
        return compose(ops.NOT, self)

    def __and__(self, other: Formula) -> Formula:
        return compose(ops.AND, self, other)

    def __or__(self, other: Formula) -> Formula:
        return compose(ops.OR, self, other)

    def __rshift__(self, other: Formula) -> Formula:
        return compose(ops.IMPLIES, self, other)

    def __bool__(self) -> NoReturn:
        raise TypeError("a Formula has no truth value; combine formulae with &, | and ~")


def check_rows(rows: Sequence[Row]) -> None:
    """Refuse rows that are not the postfix program of one formula, naming the row at fault."""
    depth = 0  # complete subtrees so far
    for i, row in enumerate(rows):
        try:
            op, lo, hi, channel, threshold = row
        except (TypeError, ValueError):
            raise FormulaError(
                f"row {i} must be (operator, lo, hi, channel or None, threshold), not {row!r}"
            ) from None
        if any(not isinstance(v, int | np.integer) or isinstance(v, bool) for v in (op, lo, hi)):
            raise FormulaError(
                f"row {i}: operator and bounds must be whole numbers, not {row[:3]!r}"
            )
        if not 0 <= op < len(ops.TABLE):
            raise FormulaError(f"row {i}: there is no operator with number {op}")
        name, needed = ops.NAMES[op], ops.arity(op)
        if ops.IS_ATOM[op]:
            _check_atom(i, channel, threshold)
        elif channel is not None or not _is_number(threshold) or threshold != 0:
            raise FormulaError(f"row {i}: {name} has no channel and no threshold; give None and 0")
        if ops.is_timed(op):
            try:
                check_bounds(op, lo, hi)
            except FormulaError as error:
                raise FormulaError(f"row {i}: {error}") from None
        elif lo or hi:
            raise FormulaError(f"row {i}: {name} has no time bounds; give 0 and 0")
        if depth < needed:
            raise FormulaError(
                f"row {i}: {name} needs {needed} operand(s) before it, but there are {depth}"
            )
        depth += 1 - needed
    if depth != 1:
        raise FormulaError(
            "no formula given: there are no rows" if not rows
            else f"the rows are {depth} formulae side by side; join them with an operator"
        )  # fmt: skip


def _check_atom(i: int, channel: object, threshold: object) -> None:
    try:
        # Outside of the cache, which cannot tell a Shifted from a plain tuple that equals it.
        canonical = (
            isinstance(channel, tuple)
            and all(_is_variable(variable) for variable, _ in channel)
            and _is_canonical(channel)
        )
    except (TypeError, ValueError, OverflowError):  # no pairs, not hashable, or no float64
        canonical = False
    if not canonical:
        raise FormulaError(
            f"row {i}: a channel is a tuple of (name, coefficient) in canonical order and sign, as "
            f"`canonical_channel` gives it, with names that can be read back, not {channel!r}"
        )
    if not _is_number(threshold):
        raise FormulaError(f"row {i}: a threshold must be a finite number, not {threshold!r}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating | np.integer):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


@lru_cache(maxsize=65536)
def _is_canonical(channel: tuple[Any, ...]) -> bool:
    for term in channel:
        if not isinstance(term, tuple) or not is_name(ops.name_of(term[0])):
            return False
        if not _is_number(term[1]):
            return False
    return bool(channel) and canonical_channel(dict(channel))[0] == channel


def _is_variable(value: object) -> bool:
    if not isinstance(value, Shifted):
        return isinstance(value, str)
    name, steps = value
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    return isinstance(name, str) and whole and 0 < abs(steps) <= ops.MAX_PAST


def compose(op: int, *operands: Formula, lo: int = 0, hi: int = ops.UNBOUNDED) -> Formula:
    """The formula `op` applied to operands; lo and hi are the window of a timed operator."""
    if not all(isinstance(o, Formula) for o in operands):
        raise FormulaError("an operand is not a Formula; parse text with rv.parse first")
    if len(operands) != ops.arity(op):
        raise FormulaError(f"{ops.NAMES[op]} takes {ops.arity(op)} operand(s), not {len(operands)}")
    if ops.is_timed(op):
        check_bounds(op, lo, hi)
    else:
        lo = hi = 0
    rows = [row for o in operands for row in o.rows()]
    return Formula.from_rows([*rows, (op, lo, hi, None, 0.0)])


def check_bounds(op: int, lo: int, hi: int) -> None:
    """Refuse a window that a timed operator cannot have."""
    if lo < 0 or (hi != ops.UNBOUNDED and hi < lo):
        raise FormulaError(f"interval [{lo},{hi}] must satisfy 0 <= left <= right")
    if max(lo, hi) > ops.MAX_BOUND:
        raise FormulaError(
            f"time bound {max(lo, hi)} is larger than {ops.MAX_BOUND} steps; use inf"
        )
    if ops.IS_PAST[op] and max(lo, hi) > ops.MAX_PAST:
        raise FormulaError(
            f"time bound {max(lo, hi)} of {ops.NAMES[op]} is larger than {ops.MAX_PAST} steps, the "
            "limit of operators that look back; use a smaller bound, or inf on the right"
        )
