"""Edit distances between sequences of symbols, all pairs at once, bit-parallel.

A column of the usual table is stored as the differences of neighbouring entries, which are -1, 0 or
+1: two bits each, 64 rows per machine word (Myers 1999, in blocks as Hyyrö 2003). So the cost of a pair
is the product of its lengths divided by 64.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
from numba import njit

_0, _1 = np.uint64(0), np.uint64(1)
_LAST = np.uint64(63)


def edit_distances(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Numbers of insertions, deletions and replacements that turn one into the other, (B, B) int32.

    Symbols are small non-negative integers.
    """
    ends = np.cumsum([0, *map(len, sequences)])
    symbols = np.fromiter(chain.from_iterable(sequences), np.int64, ends[-1])
    out = np.zeros((len(sequences), len(sequences)), np.int32)
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda i: _distances(symbols, ends, out, i, threads), range(threads)))
    return out


@njit(cache=True, nogil=True)
def _distances(symbols, ends, out, first, step):  # type: ignore[no-untyped-def]
    """Fill rows first, first + step, ... of `out` from the diagonal on, and the mirrored columns."""
    count = len(ends) - 1
    longest = (np.diff(ends).max() + 63) // 64 if count else 0
    alphabet = symbols.max() + 1 if len(symbols) else 0
    where = np.empty((alphabet, longest), np.uint64)
    up, down = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    for i in range(first, count, step):
        pattern = symbols[ends[i] : ends[i + 1]]
        where[:] = _0
        for at, symbol in enumerate(pattern):
            where[symbol, at // 64] |= _1 << np.uint64(at % 64)
        for j in range(i + 1, count):
            distance = _distance(len(pattern), where, symbols[ends[j] : ends[j + 1]], up, down)
            out[i, j] = out[j, i] = distance


@njit(cache=True, nogil=True)
def _distance(length, where, text, up, down):  # type: ignore[no-untyped-def]
    """Edit distance of a pattern and a text.

    where (alphabet, blocks): bits of the positions of each symbol in the pattern. up and down
    (blocks,): rows of the current column that are one more, or one less, than the row above them.
    """
    if length == 0:
        return len(text)
    blocks = (length + 63) // 64
    up[:blocks], down[:blocks] = ~_0, _0
    bottom = np.uint64((length - 1) % 64)
    distance = length
    for symbol in text:
        # By how much the row above a block grew from the last column to this one: -1, 0 or +1. The
        # topmost row counts the symbols of the text.
        grown, shrunk = _1, _0
        for block in range(blocks):
            equal, plus, minus = where[symbol, block], up[block], down[block]
            vertical = equal | minus
            equal |= shrunk
            horizontal = (((equal & plus) + plus) ^ plus) | equal
            grows = minus | ~(horizontal | plus)
            shrinks = plus & horizontal
            edge = bottom if block == blocks - 1 else _LAST
            grown_below, shrunk_below = (grows >> edge) & _1, (shrinks >> edge) & _1
            grows = (grows << _1) | grown
            shrinks = (shrinks << _1) | shrunk
            up[block] = shrinks | ~(vertical | grows)
            down[block] = grows & vertical
            grown, shrunk = grown_below, shrunk_below
        distance += np.int64(grown) - np.int64(shrunk)
    return distance
