"""Postfix programs -> instructions for the engines: what to compute, over which times, and where.

Going down from the root, each node learns the range of times that its parent needs, so that an
evaluation at time 0 touches only a prefix of the trace; negations are pushed into the operators below
them (exact: min and max are dual). Results live in an arena of rows, a row being one time for all the
traces that an engine takes at once; a stack discipline places them, the operand that needs more room
first (as Sethi and Ullman order registers), so that the arena of a formula grows with the logarithm of
its size. An atom that is joined to something by min or max is read where it is used.

Held traces: beyond the last sample nothing changes, so a window is clipped at the last index. Under
end="strict" each node has its own last index, the length minus its horizon, and only unbounded
windows ever reach it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from ..formula import operators as ops
from ..formula.expand import expand_programs
from ..formula.programs import Programs

# Instructions.
(ATOM, MINIMUM_ATOM, MAXIMUM_ATOM, CONSTANT, NEGATE, MINIMUM, MAXIMUM, EQUIVALENT, WINDOW_MIN,
 WINDOW_MAX, UNTIL_SCAN) = range(11)  # fmt: skip

# Columns of an instruction. Places are rows of the arena.
OP = 0
TO = 1  # where the result goes, and where a unary operand or the first of two is
FROM = 2  # where the other operand is, until's right one; an atom's channel
LEFT = 3  # where until's left operand is
SCRATCH = 4  # free room for until
LENGTH = 5  # rows (times) of the result
INPUT = 6  # rows of a window's operand; of until's right operand
OFFSET = 7  # an atom's first time; how much later until's right operand starts than its left one
WIDTH = 8  # times in a window; larger than any input when it is unbounded
DELAY = 9  # until: the left bound
COMPARISON = 10  # of an atom
COLUMNS = 12  # a multiple of four, for wide loads


@dataclass(frozen=True)
class Instructions:
    table: np.ndarray  # (instructions, COLUMNS) int32
    values: np.ndarray  # (instructions,) float64: an atom's threshold, a constant's value
    offsets: np.ndarray  # (B + 1,) int64: formula b is table[offsets[b]:offsets[b+1]]
    arena: np.ndarray  # (B,) int64: rows that formula b needs
    reach: int  # times of the trace that atoms read


def lower(programs: Programs, points: int, *, trace: bool, strict: bool) -> Instructions:
    """Instructions for traces of `points` points, for time 0 or (trace=True) for all times.

    Under strict, every formula's horizon must be below `points`; a trace of formula b then has
    points - horizon rows. Operators that no engine knows are expanded first; channels keep the
    numbers that they have in `programs`.
    """
    programs = expand_programs(programs)
    table, values, offsets, arena, reach = _lower(
        programs.code, programs.thresholds, programs.offsets, points, trace, strict
    )
    return Instructions(table, values, offsets, arena, int(reach))


@njit(cache=True, nogil=True)
def _lower(code, thresholds, offsets, points, trace, strict):  # type: ignore[no-untyped-def]
    count = len(offsets) - 1
    total = 0  # an until under a negation takes two instructions
    longest = 0
    for b in range(count):
        longest = max(longest, offsets[b + 1] - offsets[b])
        for i in range(offsets[b], offsets[b + 1]):
            total += 2 if code[i, 0] == ops.UNTIL else 1
    table = np.zeros((total, COLUMNS), np.int32)
    values = np.zeros(total)
    starts = np.zeros(count + 1, np.int64)
    arena = np.zeros(count, np.int64)
    reach = 0

    size = np.empty(longest, np.int64)
    known = np.empty(longest, np.int64)  # times at which the node has a value
    first = np.empty(longest, np.int64)  # times [first, last) are needed
    last = np.empty(longest, np.int64)
    room = np.empty(longest, np.int64)  # rows needed to compute the node
    negative = np.empty(longest, np.bool_)
    todo = np.empty((2 * longest + 2, 3), np.int64)  # node, place, whether its operands are done

    n_out = 0
    for b in range(count):
        base = offsets[b]
        n = offsets[b + 1] - base
        # Upwards: sizes, and how far each node is known.
        for i in range(n):
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            size[i], known[i] = 1, points
            if ops.ARITY[op] == 0:
                continue
            right = i - 1
            size[i] += size[right]
            known[i] = known[right]
            if ops.ARITY[op] == 2:
                left = right - size[right]
                size[i] += size[left]
                known[i] = min(known[left], known[right])
            if strict:
                if op == ops.NEXT:
                    known[i] -= 1
                elif op == ops.ALWAYS or op == ops.EVENTUALLY or op == ops.UNTIL:
                    known[i] -= lo if hi == ops.UNBOUNDED else hi
        # Downwards: which times are needed, and under how many negations (modulo 2).
        root = n - 1
        first[root], last[root], negative[root] = 0, known[root] if trace else 1, False
        for i in range(n - 1, -1, -1):
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            if ops.ARITY[op] == 0:
                continue
            right = i - 1
            first[right], last[right], negative[right] = first[i], last[i], negative[i]
            if op == ops.NOT:
                negative[right] = not negative[i]
            elif op == ops.NEXT or op == ops.ALWAYS or op == ops.EVENTUALLY:
                if op == ops.NEXT:
                    lo, hi = 1, 1
                end = known[right] - 1
                first[right] = min(first[i] + min(lo, points), end)
                last[right] = (
                    end if hi == ops.UNBOUNDED else min(last[i] - 1 + min(hi, points), end)
                ) + 1
            elif ops.ARITY[op] == 2:
                left = right - size[right]
                first[left], last[left], negative[left] = first[i], last[i], negative[i]
                if op == ops.IMPLIES:
                    negative[left] = not negative[i]
                elif op == ops.IFF:
                    negative[right] = False
                elif op == ops.UNTIL:
                    negative[left], negative[right] = False, False
                    end = min(known[left], known[right]) - 1
                    stop = (
                        end if hi == ops.UNBOUNDED else min(last[i] - 1 + min(hi, points), end)
                    ) + 1
                    first[right] = min(first[i] + min(lo, points), end)
                    last[left], last[right] = stop, stop
        # Upwards again: how much room each node needs.
        for i in range(n):
            op = code[base + i, 0]
            room[i] = last[i] - first[i]
            if ops.ARITY[op] == 0:
                continue
            right = i - 1
            if ops.ARITY[op] < 2:
                room[i] = max(room[i], room[right])
                continue
            left = right - size[right]
            begun, other = _order(op, left, right, code[base + left, 0], code[base + right, 0],
                                  room, first, last)  # fmt: skip
            if ops.IS_JUNCTION[op] and ops.IS_ATOM[code[base + other, 0]]:
                room[i] = room[begun]
                continue
            held = max(last[begun] - first[begun], room[i])
            room[i] = max(room[begun], held + room[other])
            if op == ops.UNTIL:
                both = held + last[other] - first[other]
                room[i] = max(room[i], both + last[right] - first[right])
        # Depth first: the order of execution, and the places.
        depth = 1
        todo[0] = root, 0, 0
        arena[b] = room[root]
        while depth > 0:
            depth -= 1
            i, place, done = todo[depth]
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            length = last[i] - first[i]
            right = i - 1
            left, begun, other = right, right, right
            held = length
            joins_atom = False
            if ops.ARITY[op] == 2:
                left = right - size[right]
                begun, other = _order(op, left, right, code[base + left, 0], code[base + right, 0],
                                      room, first, last)  # fmt: skip
                held = max(last[begun] - first[begun], length)
                joins_atom = ops.IS_JUNCTION[op] and ops.IS_ATOM[code[base + other, 0]]
            if done == 0 and ops.ARITY[op] > 0:
                todo[depth] = i, place, 1
                depth += 1
                if ops.ARITY[op] == 2 and not joins_atom:
                    todo[depth] = other, place + held, 0
                    depth += 1
                todo[depth] = begun, place, 0
                depth += 1
                continue
            row = table[n_out]
            row[TO], row[LENGTH] = place, length
            flip = negative[i]
            if ops.IS_ATOM[op]:
                row[OP], row[FROM], row[OFFSET] = ATOM, code[base + i, 3], first[i]
                row[COMPARISON] = _negated(op, flip)
                values[n_out] = thresholds[base + i]
                reach = max(reach, last[i])
            elif ops.ARITY[op] == 0:
                row[OP] = CONSTANT
                values[n_out] = np.inf if (op == ops.TRUE) != flip else -np.inf
            elif op == ops.NOT:
                continue
            elif op == ops.NEXT or op == ops.ALWAYS or op == ops.EVENTUALLY:
                inputs = last[right] - first[right]
                width = 1 if op == ops.NEXT else points + 1 if hi == ops.UNBOUNDED else hi - lo + 1
                if width == 1 and inputs == length:
                    continue
                row[OP] = WINDOW_MIN if (op == ops.ALWAYS) != flip else WINDOW_MAX
                row[INPUT], row[WIDTH] = inputs, min(width, points + 1)
            elif joins_atom:
                low = (op == ops.AND) != flip
                row[OP] = MINIMUM_ATOM if low else MAXIMUM_ATOM
                row[FROM], row[OFFSET] = code[base + other, 3], first[other]
                row[COMPARISON] = _negated(code[base + other, 0], negative[other])
                values[n_out] = thresholds[base + other]
                reach = max(reach, last[other])
            elif ops.IS_JUNCTION[op]:
                row[OP] = MINIMUM if (op == ops.AND) != flip else MAXIMUM
                row[FROM] = place + held
            elif op == ops.IFF:
                row[OP], row[FROM] = EQUIVALENT, place + held
            elif op != ops.UNTIL:
                raise ValueError("an engine has no rule for an operator; expand it first")
            else:
                row[OP] = UNTIL_SCAN
                row[LEFT] = place if begun == left else place + held
                row[FROM] = place if begun == right else place + held
                row[SCRATCH] = place + held + last[other] - first[other]
                row[INPUT] = last[right] - first[right]
                row[OFFSET] = first[right] - first[left]
                row[WIDTH] = points + 1 if hi == ops.UNBOUNDED else min(hi - lo + 1, points + 1)
                row[DELAY] = min(lo, points)
                if flip:
                    n_out += 1
                    row = table[n_out]
                    row[OP], row[TO], row[LENGTH] = NEGATE, place, length
            n_out += 1
        starts[b + 1] = n_out
    return table[:n_out].copy(), values[:n_out].copy(), starts, arena, reach


@njit(cache=True, nogil=True, inline="always")
def _negated(op, flip):  # type: ignore[no-untyped-def]
    """The comparison, or its negation: >= and <, > and <=."""
    if not flip:
        return op
    return (
        ops.LT if op == ops.GE else ops.LE if op == ops.GT else ops.GT if op == ops.LE else ops.GE
    )


@njit(cache=True, nogil=True)
def _order(op, left, right, left_op, right_op, room, first, last):  # type: ignore[no-untyped-def]
    """(the operand to compute first, the other one).

    First the one that needs more room beyond its own result; an atom last, as it may need none.
    """
    if ops.IS_JUNCTION[op] and ops.IS_ATOM[left_op] != ops.IS_ATOM[right_op]:
        return (right, left) if ops.IS_ATOM[left_op] else (left, right)
    left_more = room[left] - (last[left] - first[left])
    right_more = room[right] - (last[right] - first[right])
    return (right, left) if right_more > left_more else (left, right)
