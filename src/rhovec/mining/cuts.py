"""The best threshold for one number per trace, exactly, by sorting.

A trace is predicted positive if its number is at least the threshold (direction 0), or below it
(direction 1, which is the negated formula). A threshold lies in the middle between two neighbouring
numbers, so that no trace is at the border. Loss is the summed cost of wrong traces; among equal
losses the widest gap wins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

MAX_NUMBER = 1e6  # beyond, a number is no position of a threshold, but stands for true or false


@cache
def _scanner(decoded: bool) -> Callable[..., Any]:
    """Compiled when first used; decoded: keys are the bits of float32 numbers, not ranks."""
    from numba import njit

    @njit(cache=True, nogil=True, inline="always")
    def value(key, levels):  # type: ignore[no-untyped-def]
        if decoded:
            bits = np.int32(key & ~1)
            return np.float64(np.int32(bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(np.float32))
        return levels[key >> 1]

    @njit(cache=True, nogil=True)
    def scan(keys, levels, n_positive, miss, alarm, loss, gap, at):  # type: ignore[no-untyped-def]
        """Rows of sorted keys (R, N), each twice a position plus 1 if the trace is positive.

        Writes loss, gap and threshold (R, 2), one column per direction; the loss is inf where
        no threshold separates two traces.
        """
        rows, n = keys.shape
        for r in range(rows):
            loss[r] = np.inf
            gap[r] = 0.0
            at[r] = 0.0
            low_positive = 0
            for k in range(n - 1):
                low_positive += keys[r, k] & 1
                if keys[r, k] >> 1 == keys[r, k + 1] >> 1:
                    continue
                low_negative = k + 1 - low_positive
                up = miss * low_positive + alarm * (n - n_positive - low_negative)
                down = miss * (n_positive - low_positive) + alarm * low_negative
                if up > loss[r, 0] and down > loss[r, 1]:
                    continue
                below, above = value(keys[r, k], levels), value(keys[r, k + 1], levels)
                if below < -MAX_NUMBER or above > MAX_NUMBER:
                    continue
                width = above - below
                if up < loss[r, 0] or (up == loss[r, 0] and width > gap[r, 0]):
                    loss[r, 0], gap[r, 0], at[r, 0] = up, width, below + 0.5 * width
                if down < loss[r, 1] or (down == loss[r, 1] and width > gap[r, 1]):
                    loss[r, 1], gap[r, 1], at[r, 1] = down, width, below + 0.5 * width

    return scan


def cut_ranks(
    ranks: np.ndarray, levels: np.ndarray, positive: np.ndarray, costs: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loss, gap and threshold (R, 2) for rows of ranks (R, N), where rank i means levels[i]."""
    keys = ranks * 2
    keys |= positive.astype(ranks.dtype)
    return _cut(_scanner(False), keys, levels, positive, costs)


def cut_values(
    values: np.ndarray, positive: np.ndarray, costs: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loss, gap and threshold (R, 2) for rows of float32 numbers (R, N).

    Numbers that differ in their last bit only count as equal: the label takes its place.
    """
    bits = np.ascontiguousarray(values + np.float32(0)).view(np.int32)  # -0.0 becomes 0.0
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)) & ~np.int32(1)
    keys |= positive.astype(np.int32)
    return _cut(_scanner(True), keys, np.empty(0), positive, costs)


def _cut(
    scan: Callable[..., Any], keys: np.ndarray, levels: np.ndarray, positive: np.ndarray,
    costs: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    keys.sort(axis=1)
    loss, gap, at = (np.empty((len(keys), 2)) for _ in range(3))
    scan(keys, levels, int(positive.sum()), *map(float, costs), loss, gap, at)
    return loss, gap, at
