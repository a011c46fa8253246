"""Seed formulae built as engineers build requirements, drawn inside compiled code.

A seed has up to three propositions about its channels (a limit, a band, a box, two channels of one
sign, or neighbouring bands of one channel, as the codes of a mode have) and uses them again and again:
invariants, responses, settling, edges, until, and combinations of two such parts. Windows are often
short, single steps, or as long as the trace, where those of other seeds (draw.py) are uniform.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ..formula import operators as ops
from .draw import below, normal, rounded, uniform
from .trees import CHANNEL, HI, LO, OP, THRESHOLD, TOKENS, UNIT, WRAPPING, append

LAST_BOUND = 100  # steps
PROPOSITIONS = 3
_SIDES = 4  # channels of a box at most
# Symbols still to be written out; smaller numbers are operators.
_PART, _SIMPLE, _BODY, _PROPOSITION = 100, 101, 102, 103
_LIMIT, _BAND, _OUTSIDE, _BOX, _SAME_SIGN = range(5)


@njit(cache=True, nogil=True)
def draw_requirement(state, palette, max_nodes, max_tokens, prefix, out):  # type: ignore[no-untyped-def]
    """Draw a seed into out; returns its length. Seeds that are too large are drawn again.

    prefix: scratch of out's shape, for the nodes root first, right operands before left ones.
    """
    todo = np.empty((4 * max_nodes + 16, 3), np.int64)  # symbol, lo or number, hi
    kinds = np.empty(PROPOSITIONS, np.int64)
    channels = np.empty((PROPOSITIONS, _SIDES), np.int64)
    limits = np.empty((PROPOSITIONS, 3), np.int64)  # low, high, and the number of channels
    while True:
        _draw_propositions(state, palette, kinds, channels, limits)
        n, pending = 0, 1
        todo[0] = _PART, 0, 0
        while pending > 0 and n + pending <= max_nodes:
            pending -= 1
            symbol, first, second = todo[pending]
            if symbol < _PART:
                row = prefix[n]
                row[OP], row[LO], row[HI], row[CHANNEL], row[THRESHOLD] = (
                    symbol,
                    first,
                    second,
                    -1,
                    0,
                )
                n += 1
            elif symbol == _PROPOSITION:
                if n + 4 * _SIDES > max_nodes:
                    pending = max_nodes
                    break
                n = _write(kinds[first], channels[first], limits[first], prefix, n)
            elif symbol == _BODY:
                pending = _draw_body(state, todo, pending)
            else:
                pending = _draw_part(state, symbol == _PART, todo, pending)
        if pending > 0:
            continue
        length = 0
        for i in range(n - 1, -1, -1):
            row = prefix[i]
            length = append(out, length, row[OP], row[LO], row[HI], row[CHANNEL], row[THRESHOLD])
        if out[length - 1, TOKENS] + WRAPPING <= max_tokens:
            return length


@njit(cache=True, nogil=True)
def _draw_propositions(state, palette, kinds, channels, limits):  # type: ignore[no-untyped-def]
    modes = uniform(state) < 0.2  # all three are neighbouring bands of one channel
    mode = palette[below(state, len(palette))]
    width = uniform(state, 0.3, 2.0)
    start = normal(state) - 1.5 * width
    for i in range(PROPOSITIONS):
        sides = min(len(palette), 2 + below(state, _SIDES - 1))
        at = below(state, len(palette))
        for side in range(_SIDES):
            channels[i, side] = palette[(at + side) % len(palette)]
        u = uniform(state)
        half = abs(normal(state))
        if uniform(state) < 0.2:
            half *= 0.03
        middle = 0.0 if uniform(state) < 0.5 else normal(state)
        low, high = middle - half, middle + half
        kinds[i] = _LIMIT
        if modes:
            kinds[i], channels[i, 0] = _BAND, mode
            low, high = start + i * width, start + (i + 1) * width
        elif u < 0.4:  # above low, or below high
            low, high = 1.5 * normal(state), 0.0
            if uniform(state) < 0.5:
                low, high = 0.0, low
            sides = 1 if low == 0.0 else 0
        elif u < 0.7:
            kinds[i] = _BAND
        elif u < 0.75:
            kinds[i] = _OUTSIDE
        elif sides > 1 and u < 0.9:
            kinds[i] = _BOX
            low, high = low - abs(normal(state)), high + abs(normal(state))
        elif sides > 1:
            kinds[i] = _SAME_SIGN
            low, high = -half, half
        limits[i, 0], limits[i, 1], limits[i, 2] = rounded(UNIT * low), rounded(UNIT * high), sides


@njit(cache=True, nogil=True)
def _write(kind, channels, limits, prefix, n):  # type: ignore[no-untyped-def]
    """Write a proposition to prefix[n:]; returns the new length."""
    low, high, sides = limits
    if kind == _LIMIT:
        if sides == 1:
            return _atom(prefix, n, ops.LE, channels[0], high)
        return _atom(prefix, n, ops.GE, channels[0], low)
    if kind == _BAND or kind == _OUTSIDE:
        inside = kind == _BAND
        n = _join(prefix, n, ops.AND if inside else ops.OR)
        n = _atom(prefix, n, ops.LE if inside else ops.GE, channels[0], high)
        return _atom(prefix, n, ops.GE if inside else ops.LE, channels[0], low)
    if kind == _BOX:
        for side in range(sides):
            if side < sides - 1:
                n = _join(prefix, n, ops.AND)
            n = _join(prefix, n, ops.AND)
            n = _atom(prefix, n, ops.LE, channels[side], high)
            n = _atom(prefix, n, ops.GE, channels[side], low)
        return n
    n = _join(prefix, n, ops.OR)  # two channels on the same side of zero
    for comparison, threshold in ((ops.GE, high), (ops.LE, low)):
        n = _join(prefix, n, ops.AND)
        n = _atom(prefix, n, comparison, channels[0], threshold)
        n = _atom(prefix, n, comparison, channels[1], threshold)
    return n


@njit(cache=True, nogil=True)
def _join(prefix, n, op):  # type: ignore[no-untyped-def]
    row = prefix[n]
    row[OP], row[LO], row[HI], row[CHANNEL], row[THRESHOLD] = op, 0, 0, -1, 0
    return n + 1


@njit(cache=True, nogil=True)
def _atom(prefix, n, op, channel, threshold):  # type: ignore[no-untyped-def]
    row = prefix[n]
    row[OP], row[LO], row[HI], row[CHANNEL], row[THRESHOLD] = op, 0, 0, channel, threshold
    return n + 1


@njit(cache=True, nogil=True)
def _draw_body(state, todo, pending):  # type: ignore[no-untyped-def]
    """A proposition, its negation, or two of them joined."""
    u = uniform(state)
    one, two = below(state, PROPOSITIONS), below(state, PROPOSITIONS)
    if u < 0.5:
        return _push(todo, pending, _PROPOSITION, one, 0)
    if u < 0.65:
        pending = _push(todo, pending, _PROPOSITION, one, 0)
        return _push(todo, pending, ops.NOT, 0, 0)
    pending = _push(todo, pending, _PROPOSITION, one, 0)
    pending = _push(todo, pending, _PROPOSITION, two, 0)
    return _push(todo, pending, ops.AND if u < 0.83 else ops.OR, 0, 0)


@njit(cache=True, nogil=True)
def _draw_part(state, whole, todo, pending):  # type: ignore[no-untyped-def]
    """A requirement of one sort; `whole`: it may also be a combination of two.

    What is pushed last is written first, so each line reads from the inside to the outside.
    """
    u = uniform(state)
    if not whole:
        u *= 0.78
    if u >= 0.78:  # two parts: both, one of them, or one if the other
        pending = _push(todo, pending, _SIMPLE, 0, 0)
        if u >= 0.92:
            pending = _push(todo, pending, ops.NOT, 0, 0)
        pending = _push(todo, pending, _SIMPLE, 0, 0)
        return _push(todo, pending, ops.AND if u < 0.86 else ops.OR, 0, 0)
    lo, hi = draw_window(state)
    if u >= 0.70:  # until
        pending = _push(todo, pending, _BODY, 0, 0)
        pending = _push(todo, pending, _BODY, 0, 0)
        return _push(todo, pending, ops.UNTIL, lo, hi)
    outer = ops.EVENTUALLY if uniform(state) < 0.2 else ops.ALWAYS
    if u < 0.24:  # invariant
        pending = _push(todo, pending, _BODY, 0, 0)
    elif u < 0.36:  # settling, recurrence
        inner_lo, inner_hi = draw_window(state)
        pending = _push(todo, pending, _BODY, 0, 0)
        if uniform(state) < 0.3:
            last_lo, last_hi = draw_window(state)
            pending = _push(todo, pending, outer, last_lo, last_hi)
        other = ops.ALWAYS if outer == ops.EVENTUALLY else ops.EVENTUALLY
        pending = _push(todo, pending, other, inner_lo, inner_hi)
    elif u < 0.60:  # response, or a limit that applies under a condition
        pending = _push(todo, pending, _BODY, 0, 0)
        pending = _push(todo, pending, ops.NOT, 0, 0)
        pending = _push(todo, pending, _BODY, 0, 0)
        if u < 0.53:
            inner_lo, inner_hi = draw_window(state)
            inner = ops.EVENTUALLY if u < 0.46 else ops.ALWAYS
            pending = _push(todo, pending, inner, inner_lo, inner_hi)
        pending = _push(todo, pending, ops.OR, 0, 0)
    else:  # what begins to hold goes on, for a while
        inner_lo, inner_hi = draw_window(state)
        chosen = below(state, PROPOSITIONS)
        pending = _push(todo, pending, _PROPOSITION, chosen, 0)
        pending = _push(todo, pending, ops.NOT, 0, 0)
        pending = _push(todo, pending, _PROPOSITION, chosen, 0)
        pending = _push(todo, pending, ops.EVENTUALLY, 1, 1)
        pending = _push(todo, pending, ops.AND, 0, 0)
        pending = _push(todo, pending, ops.NOT, 0, 0)
        pending = _push(todo, pending, _PROPOSITION, chosen, 0)
        pending = _push(todo, pending, ops.ALWAYS, inner_lo, inner_hi)
        pending = _push(todo, pending, ops.EVENTUALLY, 1, 1)
        pending = _push(todo, pending, ops.OR, 0, 0)
    return _push(todo, pending, outer, lo, hi)


@njit(cache=True, nogil=True)
def _push(todo, pending, symbol, first, second):  # type: ignore[no-untyped-def]
    todo[pending] = symbol, first, second
    return pending + 1


@njit(cache=True, nogil=True)
def draw_window(state):  # type: ignore[no-untyped-def]
    """(left, right) of a window, often from now on, short, or a single step."""
    u = uniform(state)
    if u < 0.15:
        return 0, ops.UNBOUNDED
    length = np.int64(math.exp(uniform(state, 0.0, math.log(LAST_BOUND + 1.0))))  # 1 ... LAST_BOUND
    if u < 0.25:
        return length, length
    if u < 0.75:
        return 0, length
    lo = below(state, LAST_BOUND // 3)
    if u < 0.8:
        return lo, ops.UNBOUNDED
    return lo, min(LAST_BOUND, lo + length)
