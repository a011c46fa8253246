"""`prefix`: a formula as a short sequence for a decoder to write, operators before their operands.

`always[3,inf] x_1 >= -0.25` is BEGIN, always, left 3, right inf, `>= x_1`, -0, decimals 25, decimals 00,
END. What a token may be is told by those before it, so that `Grammar` can keep sequences, many at once,
to those that parse and stay within limits.

Said is what robustness on traces of 100 points tells apart: > is >=, a left bound beyond 99 is 99, a
right bound from 99 on is inf. Thresholds are rounded to four decimals and end at +-99.9999.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index

import numpy as np

from ..errors import FormulaError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.fragment import programs_in_fragment
from ..formula.operators import Row
from ..formula.programs import Programs
from ..formula.shape import COMPILED_FROM, plain_or_compiled
from .tree import variable_numbers

PAD, BEGIN, END = range(3)
OPERATOR = 3
OPERATORS = (ops.NOT, ops.AND, ops.OR, ops.ALWAYS, ops.EVENTUALLY, ops.UNTIL)
CHANNELS, BOUNDS, WHOLES, CENTS = 8, 100, 100, 100
ATOM = OPERATOR + len(OPERATORS)  # >= x_0, >= x_1, ..., then <= x_0, ...
LEFT = ATOM + 2 * CHANNELS
RIGHT = LEFT + BOUNDS
INF = RIGHT + BOUNDS
WHOLE = INF + 1  # -99 ... -0, 0 ... 99
TENTHS = WHOLE + 2 * WHOLES  # decimals 1 and 2
LAST = TENTHS + CENTS  # decimals 3 and 4
VOCABULARY = LAST + CENTS
UNIT = CENTS * CENTS  # a threshold is a whole number of these parts

ATOM_TOKENS = 4
# By operator of the language: its token, and how many tokens say the node without its operands.
_TOKEN = np.zeros(ops.UNTIL + 1, np.int64)
_TOKEN[list(OPERATORS)] = np.arange(OPERATOR, ATOM)
_LENGTH = np.where([ops.is_timed(op) for op in range(ops.UNTIL + 1)], 3, 1)
_LENGTH[: ops.LT + 1] = ATOM_TOKENS


def prefix_lengths(programs: Programs) -> np.ndarray:
    """(B,) int64: tokens of formulae of the six operators, with BEGIN and END."""
    lengths: np.ndarray = np.add.reduceat(_LENGTH[programs.code[:, 0]], programs.offsets[:-1]) + 2
    return lengths


def prefix_tokens(programs: Programs, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens (B, length) int16, PAD behind END; lengths (B,) int64, with BEGIN and END)."""
    programs = programs_in_fragment(programs)
    lengths = prefix_lengths(programs)
    b = int(lengths.argmax())
    if lengths[b] > length:
        raise FormulaError(
            f"formula {b} has {lengths[b]} prefix tokens, more than {length}; "
            "shorten it (rv.simplify may do), or use longer rows"
        )
    # A single formula's code is frozen, which compiled code would take for another type.
    code = np.require(programs.code, requirements="W")
    atoms = ops.IS_ATOM[code[:, 0]]
    variable = np.zeros(len(code), np.int64)
    variable[atoms] = variable_numbers(programs)[code[atoms, 3]]
    if variable.max() >= CHANNELS:
        raise FormulaError(
            f"a formula uses x_{variable.max()}; prefix tokens know x_0 ... x_{CHANNELS - 1}"
        )
    limit = WHOLES - 1 / UNIT
    units = np.rint(programs.thresholds.clip(-limit, limit) * UNIT).astype(np.int64)
    write = plain_or_compiled(_write, len(code) >= COMPILED_FROM)
    ids: np.ndarray = write(code, variable, units, programs.offsets, length)
    return ids, lengths


def from_prefix(ids: Iterable[int]) -> Formula:
    """The formula of its tokens: BEGIN, what `Grammar` allows, END, and any number of PAD."""
    tokens = [index(i) for i in ids]
    while tokens and tokens[-1] == PAD:
        tokens.pop()
    if tokens[:1] != [BEGIN] or tokens[-1] != END:
        raise FormulaError("prefix tokens must start with BEGIN and end with END")
    rows: list[Row] = []
    pending: list[tuple[Row, int]] = []  # operators, and how many operands they lack
    state, at = _ANY, 1
    while state != _END:
        node: list[int] = []  # a node's tokens
        while not node or _SUCCESSOR[node[-1]] != _ANY:
            token = tokens[at]
            if not (0 <= token < VOCABULARY and _ALLOWED[state, token]):
                raise FormulaError(f"token {at} of the sequence, {token}, cannot stand there")
            node.append(token)
            state, at = int(_SUCCESSOR[token]), at + 1
        if node[0] < ATOM:
            op, lo, hi = OPERATORS[node[0] - OPERATOR], 0, 0
            if ops.is_timed(op):
                lo, hi = node[1] - LEFT, ops.UNBOUNDED if node[2] == INF else node[2] - RIGHT
            pending.append(((op, lo, hi, None, 0.0), ops.arity(op)))
            continue
        rows.append(_atom(*node))
        while pending and pending[-1][1] == 1:
            rows.append(pending.pop()[0])
        if pending:
            pending[-1] = (pending[-1][0], pending[-1][1] - 1)
        else:
            state = _END
    if at != len(tokens) - 1:
        raise FormulaError(f"the formula ends before token {at}, and the sequence does not")
    return Formula.from_rows(rows)


class Grammar:
    """What may come next in B sequences, each BEGIN to start with.

    Whichever allowed tokens are chosen, a sequence ends with END, parses, and keeps
    to the limits on nodes, on operators along a path, and on tokens (BEGIN and END included). After END
    there is only PAD.
    """

    def __init__(self, batch: int, max_nodes: int, max_depth: int, max_tokens: int):
        if max_nodes < 1 or max_depth < 0 or max_tokens < ATOM_TOKENS + 2:
            raise FormulaError(
                f"no formula has fewer nodes than 1, less depth than 0 or fewer tokens than "
                f"{ATOM_TOKENS + 2}; raise the limits"
            )
        self.max_depth = max_depth
        self.nodes = np.full(batch, max_nodes)  # left
        self.tokens = np.full(batch, max_tokens - 1)  # left
        self.open = np.ones(batch, np.int64)  # operands not begun
        self.depths = np.zeros((batch, max_depth + 1), np.int64)  # of these, the next one last
        self.state = self._operand(np.arange(batch))

    @property
    def done(self) -> np.ndarray:
        """(B,) bool: END has been chosen."""
        done: np.ndarray = self.state == _DONE
        return done

    def allowed(self) -> np.ndarray:
        """(B, VOCABULARY) bool; a row is never empty."""
        allowed: np.ndarray = _ALLOWED[self.state]
        return allowed

    def advance(self, ids: np.ndarray) -> None:
        """Append the tokens ids (B,), which must be allowed."""
        if not _ALLOWED[self.state, ids].all():
            raise FormulaError("a token was chosen that is not allowed there")
        self.tokens -= ids != PAD
        (rows,) = np.nonzero((ids >= OPERATOR) & (ids < LEFT))
        if len(rows):
            operands = _ARITY[ids[rows]]
            top = self.open[rows] - 1
            below = self.depths[rows, top] + 1
            self.nodes[rows] -= 1
            self.open[rows] += operands - 1
            for n in (1, 2):
                more = operands >= n
                self.depths[rows[more], top[more] + n - 1] = below[more]
        self.state = _SUCCESSOR[ids]
        (rows,) = np.nonzero(self.state == _ANY)
        self.state[rows] = self._operand(rows)

    def take(self, rows: np.ndarray) -> None:
        """Go on with these sequences (int), any of them none, once or several times."""
        for name in ("nodes", "tokens", "open", "depths", "state"):
            setattr(self, name, getattr(self, name)[rows])

    def _operand(self, rows: np.ndarray) -> np.ndarray:
        """The states of sequences whose next token begins an operand, or END if none is open."""
        count = self.open[rows]
        deeper = self.depths[rows, count - 1] < self.max_depth
        states = np.zeros(len(rows), np.int64)
        for bit, (operands, length) in enumerate(_SHAPES):
            after = count - 1 + operands
            nodes = self.nodes[rows] - 1 >= after
            tokens = self.tokens[rows] - length >= ATOM_TOKENS * after + 1
            states |= (deeper & nodes & tokens) << bit
        return np.where(count == 0, _END, states)


# States of a sequence. In the first sixteen an operand is to begin, with an atom or with operators of
# those shapes (operands, tokens) whose bit is set; in the last ones a right bound is to follow the
# left one 0, 1, ...
_SHAPES = ((1, 1), (2, 1), (1, 3), (2, 3))
_ANY = 15
_LEFT, _WHOLE, _TENTHS, _LAST, _END, _DONE, _RIGHT = range(16, 23)

_ARITY = np.zeros(VOCABULARY, np.int64)
_ARITY[OPERATOR:ATOM] = [ops.arity(op) for op in OPERATORS]


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """(allowed tokens of a state (states, VOCABULARY) bool, state after a token (VOCABULARY,))."""
    allowed = np.zeros((_RIGHT + BOUNDS, VOCABULARY), bool)
    successor = np.full(VOCABULARY, _ANY)
    allowed[: _ANY + 1, ATOM:LEFT] = True
    for token, op in enumerate(OPERATORS, start=OPERATOR):
        bit = _SHAPES.index((ops.arity(op), int(_LENGTH[op])))
        allowed[: _ANY + 1, token] = np.arange(_ANY + 1) >> bit & 1
        if ops.is_timed(op):
            successor[token] = _LEFT
    for state, first, end in (
        (_LEFT, LEFT, RIGHT), (_WHOLE, WHOLE, TENTHS), (_TENTHS, TENTHS, LAST),
        (_LAST, LAST, VOCABULARY), (_END, END, END + 1), (_DONE, PAD, PAD + 1),
    ):  # fmt: skip
        allowed[state, first:end] = True
    for bound in range(BOUNDS):
        allowed[_RIGHT + bound, RIGHT + bound : WHOLE] = True
    successor[ATOM:LEFT] = _WHOLE
    successor[LEFT:RIGHT] = _RIGHT + np.arange(BOUNDS)
    successor[WHOLE:TENTHS] = _TENTHS
    successor[TENTHS:LAST] = _LAST
    successor[[END, PAD]] = _DONE
    return allowed, successor


_ALLOWED, _SUCCESSOR = _tables()


def _atom(comparison: int, whole: int, tenths: int, last: int) -> Row:
    greater = comparison < ATOM + CHANNELS
    variable = (comparison - ATOM) % CHANNELS
    signed = whole - WHOLE - WHOLES  # -100 ... -1 for -99 ... -0
    size = (signed if signed >= 0 else -1 - signed) * UNIT + (tenths - TENTHS) * CENTS + last - LAST
    threshold = (size if signed >= 0 else -size) / UNIT
    return (ops.GE if greater else ops.LE, 0, 0, ((f"x_{variable}", 1.0),), threshold)


def _write(code, variable, units, offsets, length):  # type: ignore[no-untyped-def]
    """Tokens (B, length). A node's place is known once all subtrees have been measured."""
    out = np.zeros((len(offsets) - 1, length), np.int16)
    most = np.diff(offsets).max()
    size = np.empty(most, np.int64)  # of the subtree, in nodes
    tokens = np.empty(most, np.int64)  # of the subtree
    place = np.empty(most, np.int64)
    for b in range(len(offsets) - 1):
        base, n = offsets[b], offsets[b + 1] - offsets[b]
        for i in range(n):
            op = code[base + i, 0]
            size[i], tokens[i] = 1, _LENGTH[op]
            if not ops.IS_ATOM[op]:
                size[i] += size[i - 1]
                tokens[i] += tokens[i - 1]
            if ops.ARITY[op] == 2:
                left = i - 1 - size[i - 1]
                size[i] += size[left]
                tokens[i] += tokens[left]
        row = out[b]
        row[0], row[tokens[n - 1] + 1] = BEGIN, END
        place[n - 1] = 1
        for i in range(n - 1, -1, -1):
            op, lo, hi, at = code[base + i, 0], code[base + i, 1], code[base + i, 2], place[i]
            if ops.IS_ATOM[op]:
                value = abs(units[base + i])
                whole = value // UNIT
                row[at] = ATOM + (CHANNELS if not ops.IS_ABOVE[op] else 0) + variable[base + i]
                row[at + 1] = WHOLE + WHOLES + (whole if units[base + i] >= 0 else -1 - whole)
                row[at + 2] = TENTHS + value // CENTS % CENTS
                row[at + 3] = LAST + value % CENTS
                continue
            row[at] = _TOKEN[op]
            if op == ops.ALWAYS or op == ops.EVENTUALLY or op == ops.UNTIL:
                row[at + 1] = LEFT + min(lo, BOUNDS - 1)
                row[at + 2] = INF if hi == ops.UNBOUNDED or hi >= BOUNDS - 1 else RIGHT + hi
            place[i - 1] = at + _LENGTH[op]
            if ops.ARITY[op] == 2:
                left = i - 1 - size[i - 1]
                place[left] = place[i - 1]
                place[i - 1] += tokens[left]
    return out
