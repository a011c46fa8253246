"""Postfix programs -> instructions for the engines: what to compute, over which times, in which slot.

Going down from the root, each node learns the range of times that its parent needs, so that time 0
alone touches only a prefix of the trace; negations are pushed into the operators below them (exact:
min and max are dual); then operands are ordered so that the heavier one comes first
(Sethi-Ullman), which keeps the number of slots logarithmic in the size of a formula.

Held traces: beyond the last sample nothing changes, so a window is clipped at the last index. Under
end="strict" each node has its own last index, the length minus its horizon, and only unbounded
windows ever reach it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from ..formula.core import (
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
    NEXT,
    NOT,
    OR,
    TRUE,
    UNBOUNDED,
    UNTIL,
)
from ..formula.programs import Programs

# Instructions. The first four are the atoms, with the numbers that formulae use.
CONSTANT, NEGATE, MINIMUM, MAXIMUM, EQUIVALENT, WINDOW_MIN, WINDOW_MAX, UNTIL_SCAN = range(4, 12)

# Columns of an instruction.
OP = 0
TO = 1  # the slot s of the result; a unary operand is in s, binary ones are in s and s + 1
FROM = 2  # the slot of the right operand (s or s + 1); an atom's channel
SCRATCH = 3  # a free slot (until)
LENGTH = 4  # rows (times) of the result
INPUT = 5  # rows of a window's operand; of until's right operand
OFFSET = 6  # an atom's first time; how much later until's right operand starts than its left one
WIDTH = 7  # times in a window; larger than any input when it is unbounded
DELAY = 8  # until: the left bound
COLUMNS = 9


@dataclass(frozen=True)
class Instructions:
    table: np.ndarray  # (instructions, COLUMNS) int32
    values: np.ndarray  # (instructions,) float64: an atom's threshold, a constant's value
    rows: np.ndarray  # (instructions,) int64: the program row an atom comes from, else -1
    offsets: np.ndarray  # (B + 1,) int64: formula b is table[offsets[b]:offsets[b+1]]
    slots: int  # how many slots a formula needs at most
    length: int  # rows a slot holds at most
    reach: int  # times of the trace that atoms read


def lower(programs: Programs, points: int, *, trace: bool, strict: bool) -> Instructions:
    """Instructions for traces of `points` points, for time 0 or (trace=True) for all times.

    Under strict, every formula's horizon must be below `points`; result b of a trace then has
    points - horizon rows.
    """
    table, values, rows, offsets, limits = _lower(
        programs.code, programs.thresholds, programs.offsets, points, trace, strict
    )
    slots, length, reach = (int(v) for v in limits)
    return Instructions(table, values, rows, offsets, slots, length, reach)


@njit(cache=True, nogil=True)
def _lower(code, thresholds, offsets, points, trace, strict):  # type: ignore[no-untyped-def]
    count = len(offsets) - 1
    total = 0  # until under a negation takes two instructions
    longest = 0
    for b in range(count):
        longest = max(longest, offsets[b + 1] - offsets[b])
        for i in range(offsets[b], offsets[b + 1]):
            total += 2 if code[i, 0] == UNTIL else 1
    table = np.zeros((total, COLUMNS), np.int32)
    values = np.zeros(total)
    rows = np.full(total, -1, np.int64)
    starts = np.zeros(count + 1, np.int64)
    limits = np.zeros(3, np.int64)

    size = np.empty(longest, np.int64)
    weight = np.empty(longest, np.int64)  # slots needed (Sethi-Ullman number)
    known = np.empty(longest, np.int64)  # times at which the node has a value
    first = np.empty(longest, np.int64)  # times [first, last) are needed
    last = np.empty(longest, np.int64)
    negative = np.empty(longest, np.bool_)
    todo = np.empty((2 * longest + 2, 3), np.int64)  # node, slot, operands done

    n_out = 0
    for b in range(count):
        base = offsets[b]
        n = offsets[b + 1] - base
        # Upwards: sizes, slots, and how far each node is known.
        for i in range(n):
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            size[i], weight[i], known[i] = 1, 1, points
            if op <= FALSE:
                continue
            right = i - 1
            size[i] += size[right]
            weight[i], known[i] = weight[right], known[right]
            if op >= AND:
                left = right - size[right]
                size[i] += size[left]
                known[i] = min(known[left], known[right])
                heavy, light = max(weight[left], weight[right]), min(weight[left], weight[right])
                weight[i] = heavy + 1 if heavy == light else heavy
                if op == UNTIL:
                    weight[i] = max(weight[i], 3)
            if strict:
                if op == NEXT:
                    known[i] -= 1
                elif op == ALWAYS or op == EVENTUALLY or op == UNTIL:
                    known[i] -= lo if hi == UNBOUNDED else hi
        # Downwards: which times are needed, and under how many negations (modulo 2).
        root = n - 1
        first[root], last[root], negative[root] = 0, known[root] if trace else 1, False
        for i in range(n - 1, -1, -1):
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            if op <= FALSE:
                continue
            right = i - 1
            first[right], last[right], negative[right] = first[i], last[i], negative[i]
            if op == NOT:
                negative[right] = not negative[i]
            elif op == NEXT or op == ALWAYS or op == EVENTUALLY:
                if op == NEXT:
                    lo, hi = 1, 1
                end = known[right] - 1
                first[right] = min(first[i] + min(lo, points), end)
                last[right] = (end if hi == UNBOUNDED else min(last[i] - 1 + min(hi, points), end)) + 1
            elif op >= AND:
                left = right - size[right]
                first[left], last[left], negative[left] = first[i], last[i], negative[i]
                if op == IMPLIES:
                    negative[left] = not negative[i]
                elif op == IFF:
                    negative[right] = False
                elif op == UNTIL:
                    negative[left], negative[right] = False, False
                    end = min(known[left], known[right]) - 1
                    stop = (end if hi == UNBOUNDED else min(last[i] - 1 + min(hi, points), end)) + 1
                    first[right] = min(first[i] + min(lo, points), end)
                    last[left], last[right] = stop, stop
        # Depth first, the heavier operand first: the order of execution.
        depth = 1
        todo[0] = root, 0, 0
        while depth > 0:
            depth -= 1
            i, slot, done = todo[depth]
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            length = last[i] - first[i]
            if done == 0 and op > FALSE:
                right = i - 1
                todo[depth] = i, slot, 1
                depth += 1
                if op < AND:
                    todo[depth] = right, slot, 0
                    depth += 1
                else:
                    left = right - size[right]
                    swapped = weight[right] > weight[left]
                    light, heavy = (left, right) if swapped else (right, left)
                    todo[depth] = light, slot + 1, 0
                    todo[depth + 1] = heavy, slot, 0
                    depth += 2
                continue
            limits[0] = max(limits[0], slot + 1)
            limits[1] = max(limits[1], length)
            row = table[n_out]
            row[TO], row[LENGTH] = slot, length
            flip = negative[i]
            if op <= LT:
                if flip:
                    op = LT if op == GE else LE if op == GT else GT if op == LE else GE
                row[OP], row[FROM], row[OFFSET] = op, code[base + i, 3], first[i]
                values[n_out] = thresholds[base + i]
                rows[n_out] = base + i
                limits[2] = max(limits[2], last[i])
            elif op <= FALSE:
                row[OP] = CONSTANT
                values[n_out] = np.inf if (op == TRUE) != flip else -np.inf
            elif op == NOT:
                continue
            elif op == NEXT or op == ALWAYS or op == EVENTUALLY:
                inputs = last[i - 1] - first[i - 1]
                width = 1 if op == NEXT else points + 1 if hi == UNBOUNDED else hi - lo + 1
                width = min(width, points + 1)
                if width == 1 and inputs == length:
                    continue
                row[OP] = WINDOW_MIN if (op == ALWAYS) != flip else WINDOW_MAX
                row[INPUT], row[WIDTH] = inputs, width
                limits[1] = max(limits[1], inputs)
            else:
                right = i - 1
                left = right - size[right]
                row[FROM] = slot + 1
                limits[0] = max(limits[0], slot + 2)
                if op == AND or op == OR:
                    row[OP] = MINIMUM if (op == AND) != flip else MAXIMUM
                elif op == IMPLIES:
                    row[OP] = MINIMUM if flip else MAXIMUM
                elif op == IFF:
                    row[OP] = EQUIVALENT
                else:
                    if weight[right] > weight[left]:
                        row[FROM] = slot
                    row[OP], row[SCRATCH] = UNTIL_SCAN, slot + 2
                    row[INPUT] = last[right] - first[right]
                    row[OFFSET] = first[right] - first[left]
                    row[WIDTH] = points + 1 if hi == UNBOUNDED else min(hi - lo + 1, points + 1)
                    row[DELAY] = min(lo, points)
                    limits[0] = max(limits[0], slot + 3)
                    limits[1] = max(limits[1], last[left] - first[left])
                    if flip:
                        n_out += 1
                        row = table[n_out]
                        row[OP], row[TO], row[LENGTH] = NEGATE, slot, length
            n_out += 1
        starts[b + 1] = n_out
    return table[:n_out].copy(), values[:n_out].copy(), rows[:n_out].copy(), starts, limits
