"""Changes of a whole formula: other numbers or one opposite operator, which change its meaning, and
duality, which does not.

A perturbation changes all numbers of the formula, by a vibration or by a shift with probability 1/2
each: thresholds by up to 10 % or by [-6, 6], left bounds by up to 15 % or by [-15, 40] but not below
0. In both cases widths are scaled by [0.6, 1.8], and the right bound is the left one plus the width,
which is at least 1. Unbounded windows stay unbounded.
"""

from __future__ import annotations

from numba import njit

from ..formula import operators as ops
from ..formula.sample import LAST_BOUND
from .draw import below, rounded, uniform
from .trees import CHANNEL, HI, LO, OP, THRESHOLD, UNIT, append

THRESHOLD_VIBRATION, THRESHOLD_SHIFT = 0.10, 6.0
BOUND_VIBRATION, BOUND_SHIFT_DOWN, BOUND_SHIFT_UP = 0.15, 15, 40
MIN_WIDENING, MAX_WIDENING = 0.6, 1.8
DUALITY = 0.4
EXCHANGE = 0.4
MAX_BOUND = LAST_BOUND + BOUND_SHIFT_UP + int(MAX_WIDENING * LAST_BOUND)  # of any formula


@njit(cache=True, nogil=True)
def perturb(state, source, n, out):  # type: ignore[no-untyped-def]
    """Write source[:n] to out with other numbers; returns the length, which stays the same."""
    shift = uniform(state) < 0.5
    for i in range(n):
        row = source[i]
        op, lo, hi, threshold = row[OP], row[LO], row[HI], row[THRESHOLD]
        if ops.IS_ATOM[op]:
            if shift:
                threshold += rounded(UNIT * uniform(state, -THRESHOLD_SHIFT, THRESHOLD_SHIFT))
            else:
                factor = uniform(state, 1.0 - THRESHOLD_VIBRATION, 1.0 + THRESHOLD_VIBRATION)
                threshold = rounded(threshold * factor)
        elif ops.IS_TIMED[op]:
            width = hi - lo
            if shift:
                shifts = BOUND_SHIFT_DOWN + BOUND_SHIFT_UP + 1
                lo = max(0, lo - BOUND_SHIFT_DOWN + below(state, shifts))
            else:
                lo = rounded(lo * uniform(state, 1.0 - BOUND_VIBRATION, 1.0 + BOUND_VIBRATION))
            if hi != ops.UNBOUNDED:
                hi = lo + max(1, rounded(width * uniform(state, MIN_WIDENING, MAX_WIDENING)))
        append(out, i, op, lo, hi, row[CHANNEL], threshold)
    return n


@njit(cache=True, nogil=True)
def oppose(state, source, n, out):  # type: ignore[no-untyped-def]
    """Write source[:n] to out with one operator or comparison replaced by its opposite.

    always and eventually, `and` and `or`, >= and <= change places; until becomes `and`. If `always`
    stands directly over `eventually` somewhere, or the other way round, then with probability EXCHANGE
    the last such two change places instead. Returns the length, which stays the same.
    """
    eligible, upper = 0, 0
    for i in range(n):
        eligible += source[i, OP] != ops.NOT
        if i > 0 and (
            (source[i, OP] == ops.ALWAYS and source[i - 1, OP] == ops.EVENTUALLY)
            or (source[i, OP] == ops.EVENTUALLY and source[i - 1, OP] == ops.ALWAYS)
        ):
            upper = i
    both = upper > 0 and uniform(state) < EXCHANGE
    chosen, place = upper, 0
    if not both:
        chosen, place = 0, below(state, eligible)
        while source[chosen, OP] == ops.NOT or place > 0:
            place -= source[chosen, OP] != ops.NOT
            chosen += 1
    for i in range(n):
        row = source[i]
        op, lo, hi = row[OP], row[LO], row[HI]
        if i == chosen or (both and i == chosen - 1):
            if op == ops.ALWAYS:
                op = ops.EVENTUALLY
            elif op == ops.EVENTUALLY:
                op = ops.ALWAYS
            elif op == ops.AND:
                op = ops.OR
            elif op == ops.OR:
                op = ops.AND
            elif op == ops.UNTIL:
                op, lo, hi = ops.AND, 0, 0
            else:
                op = ops.LE if op == ops.GE else ops.GE
        append(out, i, op, lo, hi, row[CHANNEL], row[THRESHOLD])
    return n


@njit(cache=True, nogil=True)
def dualise(source, n, out):  # type: ignore[no-untyped-def]
    """Write source[:n] to out with G_I A as ¬F_I ¬A and F_I A as ¬G_I ¬A; returns the length."""
    length = 0
    for i in range(n):
        row = source[i]
        op = row[OP]
        if op in (ops.ALWAYS, ops.EVENTUALLY):
            dual = ops.EVENTUALLY if op == ops.ALWAYS else ops.ALWAYS
            length = append(out, length, ops.NOT, 0, 0, -1, 0)
            length = append(out, length, dual, row[LO], row[HI], -1, 0)
            length = append(out, length, ops.NOT, 0, 0, -1, 0)
        else:
            length = append(out, length, op, row[LO], row[HI], row[CHANNEL], row[THRESHOLD])
    return length
