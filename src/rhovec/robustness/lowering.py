"""Postfix programs -> instructions for the engines: what to compute, over which times, and where.

Going down from the root, each node learns the range of times that its parent needs, so that an
evaluation at time 0 touches only a prefix of the trace; negations are pushed into the operators below
them (exact: min and max are dual). Results live in an arena of rows, a row being one time for all the
traces that an engine takes at once; a stack discipline places them, the operand that needs more room
first (as Sethi and Ullman order registers), so that the arena of a formula grows with the logarithm of
its size. An atom that is joined to something by min or max is read where it is used.

Time runs backwards for past operators: `once` on times in reverse order is `eventually`. So rows stand
in the order that their operator wants, "backward" ones from the latest time to the earliest. Operators
without a window take the order that their parent asks for, atoms read a channel or its mirror image,
and REVERSE stands only where past and future alternate; a window of one time shifts times in any order.

A range of times [first, last) is in the node's own order: for backward rows it is that of -t. Held
traces: a sub-formula changes only between two times, `low` and `high` (0 and P - 1 for an atom; an
operator that looks ahead moves `low` down, one that looks back moves `high` up), so a window is clipped
there, at the far end. Under end="strict" these are the first and the last time at which the node has a
value, and only unbounded windows ever reach them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from ..errors import HorizonError
from ..formula import operators as ops
from ..formula.expand import expand_programs
from ..formula.programs import Programs
from ..formula.shape import lags

# Instructions.
(ATOM, MINIMUM_ATOM, MAXIMUM_ATOM, CONSTANT, NEGATE, MINIMUM, MAXIMUM, EQUIVALENT, WINDOW_MIN,
 WINDOW_MAX, UNTIL_SCAN, REVERSE) = range(12)  # fmt: skip

# Columns of an instruction. Places are rows of the arena.
OP = 0
TO = 1  # where the result goes, and where a unary operand or the first of two is
FROM = 2  # where the other operand is, until's right one; an atom's channel
LEFT = 3  # where until's left operand is
SCRATCH = 4  # free room for until
LENGTH = 5  # rows (times) of the result
INPUT = 6  # rows of a window's operand; of until's right operand
OFFSET = 7  # an atom's first row of its channel; how much later until's right operand starts
WIDTH = 8  # times in a window; larger than any input when it is unbounded
DELAY = 9  # until: the left bound
COMPARISON = 10  # of an atom
START = 11  # in a formula's last instruction: the time of the result's first row
COLUMNS = 12  # a multiple of four, for wide loads

_FAR = 1 << 60  # no time is further away


@dataclass(frozen=True)
class Instructions:
    table: np.ndarray  # (instructions, COLUMNS) int32
    values: np.ndarray  # (instructions,) float64: an atom's threshold, a constant's value
    offsets: np.ndarray  # (B + 1,) int64: formula b is table[offsets[b]:offsets[b+1]]
    arena: np.ndarray  # (B,) int64: rows that formula b needs
    times: np.ndarray  # (rows,) int64: the times of the rows of a channel that atoms read

    def read(self, x: Any, lag: int = 0) -> Any:
        """x (..., P), an array or a tensor, as it was `lag` steps before the times of the rows.

        Beyond the ends, the first and the last sample are held.
        """
        index = np.clip(self.times - lag, 0, x.shape[-1] - 1)
        if index[0] == 0 and (np.diff(index) == 1).all():
            return x[..., : len(index)]
        return x[..., index]


def lower(programs: Programs, points: int, *, trace: bool, strict: bool) -> Instructions:
    """Instructions for traces of `points` points, for time 0 or (trace=True) for all times.

    Under strict, every formula must have a value at time 0, or at some time of the trace, and a trace
    has rows only for the times that have one. Operators that no engine knows are expanded first;
    channels keep the numbers that they have in `programs`.
    """
    programs = expand_programs(programs)
    known_lags = np.array(lags(programs.channels), np.int64)
    table, values, offsets, arena, times, at_fault = _lower(
        programs.code, programs.thresholds, programs.offsets, known_lags, points, trace, strict
    )
    if at_fault >= 0:
        raise HorizonError(
            f"formula {at_fault} must be known more than {ops.MAX_PAST} steps beyond the ends of the "
            "traces, because operators that look ahead and back are nested; give them shorter bounds"
        )
    return Instructions(table, values, offsets, arena, times)


@njit(cache=True, nogil=True)
def _lower(code, thresholds, offsets, lag, points, trace, strict):  # type: ignore[no-untyped-def]
    count = len(offsets) - 1
    # An until takes up to four instructions: itself, its negation, to hold its rows, and with past
    # operators to reverse them. The spare rows keep a wrong count from writing beyond the table.
    total = 0
    longest = 0
    looks_back = False
    for b in range(count):
        longest = max(longest, offsets[b + 1] - offsets[b])
        for i in range(offsets[b], offsets[b + 1]):
            total += 3 if code[i, 0] == ops.UNTIL else 1
            looks_back |= ops.IS_PAST[code[i, 0]]
    if looks_back:
        total = 4 * len(code)
    spare = total + 4
    table = np.zeros((spare, COLUMNS), np.int32)
    values = np.zeros(spare)
    starts = np.zeros(count + 1, np.int64)
    arena = np.zeros(count, np.int64)
    mirrored = np.zeros(spare, np.bool_)  # atoms that read times backward
    begin = np.array((0, _FAR))  # of the times that atoms read forward, and backward
    reach = np.array((0, -_FAR))

    size = np.empty(longest, np.int64)
    low = np.empty(longest, np.int64)  # times between which the node changes, or has a value
    high = np.empty(longest, np.int64)
    first = np.empty(longest, np.int64)  # times [first, last) are needed
    last = np.empty(longest, np.int64)
    room = np.empty(longest, np.int64)  # rows needed to compute the node
    negative = np.empty(longest, np.bool_)
    backward = np.empty(longest, np.bool_)  # the order of the rows
    turned = np.empty(longest, np.bool_)  # the parent wants the other order
    todo = np.empty((2 * longest + 2, 3), np.int64)  # node, place, whether its operands are done

    n_out = 0
    for b in range(count):
        base = offsets[b]
        n = offsets[b + 1] - base
        # Upwards: sizes, and the times between which each node changes (strict: has a value).
        for i in range(n):
            op = code[base + i, 0]
            size[i] = 1
            turned[i] = False
            if ops.ARITY[op] == 0:
                least, greatest = lag[code[base + i, 3]]
                low[i], high[i] = least, points - 1 + greatest
                if strict:
                    low[i], high[i] = greatest, points - 1 + least
                continue
            right = i - 1
            left = right - size[right] if ops.ARITY[op] == 2 else right
            size[i] += size[right] + (size[left] if left < right else 0)
            near, far = _window_of(op, code[base + i, 1], code[base + i, 2])
            p = low[left], high[left]
            q = low[right], high[right]
            if ops.IS_PAST[op]:  # the same with the opposite sign of time
                p, q = (-p[1], -p[0]), (-q[1], -q[0])
            if not strict:
                earliest, latest = min(p[0], q[0]) - far, max(p[1], q[1])
            else:
                earliest, latest = q[0] - near, min(p[1], q[1]) - far
                if left < right:
                    earliest = max(p[0], earliest)
            earliest, latest = max(earliest, -_FAR), min(latest, _FAR)
            low[i], high[i] = (-latest, -earliest) if ops.IS_PAST[op] else (earliest, latest)
        # Downwards: which times are needed, in which order, and under how many negations (modulo 2).
        root = n - 1
        first[root], last[root] = 0, points if trace else 1
        if strict:
            first[root], last[root] = max(0, low[root]), min(last[root], high[root] + 1)
        start = first[root]
        negative[root], backward[root] = False, False
        for i in range(n - 1, -1, -1):
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            before, beyond = first[i], last[i] - points
            if backward[i]:
                before, beyond = 1 - last[i], 1 - first[i] - points
            if max(-before, beyond) > ops.MAX_PAST:
                return table, values, starts, arena, begin, b
            if ops.ARITY[op] == 0:
                continue
            right = i - 1
            left = right - size[right] if ops.ARITY[op] == 2 else right
            timed = ops.IS_TIMED[op] or op == ops.NEXT
            turned[i] = timed and ops.IS_PAST[op] != backward[i]
            shifted = turned[i] and left == right and (lo == hi or op == ops.NEXT)
            if shifted:
                turned[i] = False
            elif turned[i]:
                first[i], last[i], backward[i] = 1 - last[i], 1 - first[i], not backward[i]
            first[right], last[right], negative[right] = first[i], last[i], negative[i]
            backward[right] = backward[i]
            if left < right:
                first[left], last[left], negative[left] = first[i], last[i], negative[i]
                backward[left] = backward[i]
            if op == ops.NOT:
                negative[right] = not negative[i]
            elif op == ops.IMPLIES:
                negative[left] = not negative[i]
            elif op == ops.IFF:
                negative[right] = False
            elif shifted:
                # Against the order of its rows a shift reads earlier ones, alike up to `constant`.
                _, shift = _window_of(op, lo, hi)
                constant = -high[right] if backward[i] else low[right]
                last[right] = max(last[i] - shift, constant + 1)
                first[right] = last[right] - (last[i] - first[i])
            elif timed:
                near, far = _window_of(op, lo, hi)
                end = -low[right] if backward[i] else high[right]
                if left < right:
                    other = -low[left] if backward[i] else high[left]
                    end = min(end, other) if strict else max(end, other)
                    first[left] = min(first[i], end)
                    negative[left], negative[right] = False, False
                first[right] = min(first[i] + near, end)
                last[right] = (end if hi == ops.UNBOUNDED else min(last[i] - 1 + far, end)) + 1
                if left < right:
                    last[left] = last[right]
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
            if op == ops.UNTIL or op == ops.SINCE:
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
                mirrored[n_out] = backward[i]
                _extend(begin, reach, backward[i], first[i], last[i])
            elif ops.ARITY[op] == 0:
                row[OP] = CONSTANT
                values[n_out] = np.inf if (op == ops.TRUE) != flip else -np.inf
            elif op == ops.NOT:
                continue
            elif op == ops.NEXT or (ops.IS_TIMED[op] and ops.ARITY[op] == 1):
                inputs = last[right] - first[right]
                most = max(points, inputs) + 1
                width = 1 if op == ops.NEXT else most if hi == ops.UNBOUNDED else hi - lo + 1
                if width == 1 and inputs == length:
                    continue
                lowest = op == ops.ALWAYS or op == ops.HISTORICALLY
                row[OP] = WINDOW_MIN if lowest != flip else WINDOW_MAX
                row[INPUT], row[WIDTH] = inputs, min(width, most)
            elif joins_atom:
                row[OP] = MINIMUM_ATOM if (op == ops.AND) != flip else MAXIMUM_ATOM
                row[FROM], row[OFFSET] = code[base + other, 3], first[other]
                row[COMPARISON] = _negated(code[base + other, 0], negative[other])
                values[n_out] = thresholds[base + other]
                mirrored[n_out] = backward[other]
                _extend(begin, reach, backward[other], first[other], last[other])
            elif ops.IS_JUNCTION[op]:
                row[OP] = MINIMUM if (op == ops.AND) != flip else MAXIMUM
                row[FROM] = place + held
            elif op == ops.IFF:
                row[OP], row[FROM] = EQUIVALENT, place + held
            elif op != ops.UNTIL and op != ops.SINCE:
                raise ValueError("an engine has no rule for an operator; expand it first")
            else:
                inputs = min(length, last[left] - first[left])
                row[OP], row[LENGTH] = UNTIL_SCAN, inputs
                row[LEFT] = place if begun == left else place + held
                row[FROM] = place if begun == right else place + held
                row[SCRATCH] = place + held + last[other] - first[other]
                row[INPUT] = last[right] - first[right]
                row[OFFSET] = last[left] - first[left] - row[INPUT]  # they end at the same time
                most = max(points, last[left] - first[left])
                row[WIDTH] = most + 1 if hi == ops.UNBOUNDED else min(hi - lo, most) + 1
                row[DELAY] = min(lo, most)
                if flip:
                    n_out += 1
                    row = table[n_out]
                    row[OP], row[TO], row[LENGTH] = NEGATE, place, inputs
                if inputs < length:  # beyond the end of both operands: the last row, held
                    n_out += 1
                    row = table[n_out]
                    row[OP], row[TO], row[LENGTH] = WINDOW_MAX, place, length
                    row[INPUT], row[WIDTH] = inputs, 1
            if turned[i] and length > 1:
                n_out += 1
                row = table[n_out]
                row[OP], row[TO], row[LENGTH] = REVERSE, place, length
            n_out += 1
            if n_out > total:
                raise AssertionError("formulae take more instructions than were counted")
        table[n_out - 1, START] = start
        starts[b + 1] = n_out
    times = np.arange(begin[0], max(reach[0], begin[0] + 1))
    if begin[0] < 0 or begin[1] < reach[1]:
        for k in range(n_out):
            op = table[k, OP]
            if op == ATOM or op == MINIMUM_ATOM or op == MAXIMUM_ATOM:
                table[k, OFFSET] += len(times) - begin[1] if mirrored[k] else -begin[0]
    if begin[1] < reach[1]:
        times = np.concatenate((times, -np.arange(begin[1], reach[1])))
    return table[:n_out].copy(), values[:n_out].copy(), starts, arena, times, -1


@njit(cache=True, nogil=True, inline="always")
def _window_of(op, lo, hi):  # type: ignore[no-untyped-def]
    """(near, far) bound of an operator, where an unbounded one counts its near bound only."""
    if op == ops.NEXT:
        return 1, 1
    return lo, lo if hi == ops.UNBOUNDED else hi


@njit(cache=True, nogil=True, inline="always")
def _extend(begin, reach, backward, first, last):  # type: ignore[no-untyped-def]
    order = 1 if backward else 0
    begin[order] = min(begin[order], first)
    reach[order] = max(reach[order], last)


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
