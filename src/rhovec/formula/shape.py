"""Size, depth and reach in time of the subtrees of postfix programs: one function for lists and arrays.

Plain Python runs it on the lists of one formula, exact whatever the bounds; compiled code runs it on
the arrays of a batch, where a reach beyond MAX_HORIZON counts as that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from . import operators as ops
from .operators import Channel

COMPILED_FROM = 600  # rows of a batch: fewer are not worth loading a compiler for
MAX_HORIZON = 1 << 62
_UNLIMITED = 1 << 200


@cache
def compiled(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled on first use, so that nothing is compiled that is not needed."""
    from numba import njit

    out: Callable[..., Any] = njit(cache=True, nogil=True)(plain)
    return out


def plain_or_compiled(plain: Callable[..., Any], large: bool) -> Callable[..., Any]:
    return compiled(plain) if large else plain


def lags(channels: Sequence[Channel]) -> list[tuple[int, int]]:
    """(least, greatest) lag of each channel: at t it reads samples t - greatest ... t - least.

    One more pair stands at the end, for nodes without a channel (-1).
    """
    found = ([ops.lag_of(variable) for variable, _ in channel] for channel in channels)
    return [*((min(steps), max(steps)) for steps in found), (0, 0)]


def shape_of(
    code: list[list[int]], channels: Sequence[Channel]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """(size, depth, last, first) of the subtree under each row (operator, lo, hi, channel).

    The value at time t depends on the samples from t + first to t + last, and `first` may be negative;
    an unbounded window counts its near bound only.
    """
    sizes, depths, last, first = ([0] * len(code) for _ in range(4))
    out = sizes, depths, last, first
    _fill(code, lags(channels), _ARITY, _TIMED, _PAST, _UNLIMITED, *out)  # type: ignore[no-untyped-call]
    return out


def shapes(
    code: np.ndarray, channels: Sequence[Channel]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`shape_of` each row of a batch of programs (rows, 4), as int64."""
    if len(code) < COMPILED_FROM:
        sizes, depths, last, first = shape_of(code.tolist(), channels)
        return np.array(sizes), np.array(depths), _clipped(last), _clipped(first)
    out = np.empty((4, len(code)), np.int64)
    facts = np.array(lags(channels), np.int64), ops.ARITY, ops.IS_TIMED, ops.IS_PAST
    compiled(_fill)(code, *facts, MAX_HORIZON, *out)
    return out[0], out[1], out[2], out[3]


def _clipped(values: list[int]) -> np.ndarray:
    return np.clip(values, -MAX_HORIZON, MAX_HORIZON).astype(np.int64)


_ARITY, _TIMED, _PAST = ops.ARITY.tolist(), ops.IS_TIMED.tolist(), ops.IS_PAST.tolist()


def _fill(code, lag, arity, timed, past, limit, size, depth, last, first):  # type: ignore[no-untyped-def]
    # Operands stand before their operator, so formulae one after the other need no separation.
    for i in range(len(code)):
        op, lo, hi = code[i][0], code[i][1], code[i][2]
        size[i], depth[i] = 1, 0
        if arity[op] == 0:
            nearest = lag[code[i][3]]
            last[i], first[i] = -nearest[0], -nearest[1]
            continue
        right = i - 1
        size[i], depth[i] = size[right] + 1, depth[right] + 1
        near, far = 0, 0  # of the window, in steps
        if op == ops.NEXT or op == ops.PREV:
            near, far = 1, 1
        elif op == ops.RISE or op == ops.FALL:
            far = 1
        elif timed[op]:
            near, far = lo, lo if hi == ops.UNBOUNDED else hi
        if past[op]:
            last[i], first[i] = last[right] - near, first[right] - far
        else:
            last[i], first[i] = last[right] + far, first[right] + near
        if arity[op] == 2:  # the left operand of a timed one is needed from t on
            left = right - size[right]
            size[i] += size[left]
            depth[i] = max(depth[i], depth[left] + 1)
            last[i] = max(last[i], last[left] + (0 if past[op] else far))
            first[i] = min(first[i], first[left] - (far if past[op] else 0))
        last[i] = max(min(last[i], limit), -limit)
        first[i] = max(min(first[i], limit), -limit)
