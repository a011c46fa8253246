"""Postfix programs that grow inside compiled code: the rows of seeds and rewrites.

A row is a node; its operands precede it. It holds the size, depth and tokens of its whole subtree, so
that a subtree can be copied, measured and undone without a walk. Thresholds are integers in units of
1/10,000: all numbers of the corpus have at most four decimals, exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..formula import operators as ops

OP, LO, HI, CHANNEL, THRESHOLD, SIZE, DEPTH, TOKENS = range(8)
COLUMNS = 8  # int64: one cache line per row
UNIT = 10_000
UNSIGNED_UNIT = np.uint64(UNIT)
WRAPPING = 4  # tokens of `/s`, a space, a space and `s` around a formula


@njit(cache=True, nogil=True)
def append(out, n, op, lo, hi, channel, threshold):  # type: ignore[no-untyped-def]
    """Write a node at out[n], on top of the subtrees that end there; returns the new length."""
    size, depth, tokens = 1, 0, node_tokens(op, lo, hi, channel, threshold)
    if ops.ARITY[op] > 0:
        right = n - 1
        size += out[right, SIZE]
        depth = out[right, DEPTH] + 1
        tokens += out[right, TOKENS]
        if ops.ARITY[op] == 2:
            left = right - out[right, SIZE]
            size += out[left, SIZE]
            depth = max(depth, out[left, DEPTH] + 1)
            tokens += out[left, TOKENS]
    out[n, OP], out[n, LO], out[n, HI], out[n, CHANNEL] = op, lo, hi, channel
    out[n, THRESHOLD], out[n, SIZE], out[n, DEPTH], out[n, TOKENS] = threshold, size, depth, tokens
    return n + 1


@njit(cache=True, nogil=True)
def copy(out, n, source, root):  # type: ignore[no-untyped-def]
    """Copy the subtree of source[root] to out[n:]; returns the new length."""
    size = source[root, SIZE]
    target, origin = out[n : n + size], source[root - size + 1 : root + 1]
    for i in range(size):
        for column in range(COLUMNS):  # slices, so that this becomes one wide load and store
            target[i, column] = origin[i, column]
    return n + size


@njit(cache=True, nogil=True)
def node_tokens(op, lo, hi, channel, threshold):  # type: ignore[no-untyped-def]
    """Symbols of the 35-symbol vocabulary that a node adds to the canonical text."""
    if ops.IS_ATOM[op]:  # x_ index space comparison space number
        return 4 + digits(channel) + number_length(threshold)
    around = 7 if ops.ARITY[op] == 2 else 6  # the name; `( `, ` `, ` `, ` )` or ` ( `, ` )`
    return around + interval_tokens(op, lo, hi)


@njit(cache=True, nogil=True)
def interval_tokens(op, lo, hi):  # type: ignore[no-untyped-def]
    if not ops.IS_TIMED[op] or (lo == 0 and hi == ops.UNBOUNDED):
        return 0
    return 3 + digits(lo) + (1 if hi == ops.UNBOUNDED else digits(hi))


@njit(cache=True, nogil=True)
def digits(value):  # type: ignore[no-untyped-def]
    """Decimal digits of a non-negative integer."""
    count, power = 1, 10
    while value >= power:
        power *= 10
        count += 1
    return count


@njit(cache=True, nogil=True)
def number_length(threshold):  # type: ignore[no-untyped-def]
    """Characters, which are also tokens, of a threshold: sign, whole part, point, decimals."""
    size = np.uint64(abs(threshold))  # unsigned: remainders without a correction of the sign
    whole, rest = size // UNSIGNED_UNIT, size % UNSIGNED_UNIT
    length = digits(np.int64(whole)) + (1 if threshold < 0 else 0)
    if rest == 0:
        return length
    if rest % np.uint64(10) != 0:
        return length + 5
    if rest % np.uint64(100) != 0:
        return length + 4
    return length + (3 if rest % np.uint64(1000) != 0 else 2)
