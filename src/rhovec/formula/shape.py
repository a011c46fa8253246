"""Size, depth and horizon of every subtree of postfix programs, by one function for lists and arrays.

Plain Python runs it on the lists of one formula, exact whatever the bounds; compiled code runs it on
the arrays of a batch, where a horizon beyond MAX_HORIZON counts as that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from . import operators as ops

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


def shape_of(code: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
    """(size, depth, horizon) of the subtree under each row (operator, lo, hi, ...) of one formula."""
    sizes, depths, horizons = ([0] * len(code) for _ in range(3))
    _fill(code, _ARITY, _TIMED, _UNLIMITED, sizes, depths, horizons)  # type: ignore[no-untyped-call]
    return sizes, depths, horizons


def shapes(code: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(size, depth, horizon) int64 of the subtree under each row of a batch of programs (rows, 4)."""
    if len(code) < COMPILED_FROM:
        sizes, depths, horizons = shape_of(code.tolist())
        return np.array(sizes), np.array(depths), np.minimum(horizons, MAX_HORIZON).astype(np.int64)
    out = np.empty((3, len(code)), np.int64)
    compiled(_fill)(code, ops.ARITY, ops.IS_TIMED, MAX_HORIZON, out[0], out[1], out[2])
    return out[0], out[1], out[2]


_ARITY, _TIMED = ops.ARITY.tolist(), ops.IS_TIMED.tolist()


def _fill(code, arity, timed, limit, size, depth, horizon):  # type: ignore[no-untyped-def]
    # Operands stand before their operator, so formulae one after the other need no separation.
    for i in range(len(code)):
        op, lo, hi = code[i][0], code[i][1], code[i][2]
        size[i], depth[i], horizon[i] = 1, 0, 0
        if arity[op] == 0:
            continue
        right = i - 1
        size[i], depth[i], horizon[i] = size[right] + 1, depth[right] + 1, horizon[right]
        if arity[op] == 2:
            left = right - size[right]
            size[i] += size[left]
            depth[i] = max(depth[i], depth[left] + 1)
            horizon[i] = max(horizon[i], horizon[left])
        if op == ops.NEXT:
            horizon[i] += 1
        elif timed[op]:
            horizon[i] += lo if hi == ops.UNBOUNDED else hi
        horizon[i] = min(horizon[i], limit)
