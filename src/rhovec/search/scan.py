"""The nearest of many int8 rows to a vector, by compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit

from .numbers import Numbers

FAST = {"reassoc", "contract", "nsz"}  # lets sums be computed in vectors


def nearest(
    numbers: Numbers,
    codes: np.ndarray,
    scales: np.ndarray,
    point: np.ndarray,
    count: int,
    spans: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` rows of codes (n, width) nearest to `point` (D,): rows (m,) and inner products (m,).

    scales: (n,), by numbers.scales. spans: (s, 2), the rows to look at, begin and end; by default all.
    allowed: (n,) bool, rows to choose from. They come in no order; fewer if there are no more.
    """
    if spans is None:
        spans = np.array([[0, len(codes)]])
    total = int((spans[:, 1] - spans[:, 0]).sum())
    rows = np.empty(min(count, total), np.int64)
    scores = np.empty(len(rows), np.float32)
    if allowed is None:
        allowed = np.empty(0, bool)
    found = _scan(codes, scales, numbers.weights(point), spans, allowed, rows, scores)
    return rows[:found], scores[:found]


@njit(cache=True, nogil=True, fastmath=FAST)
def _scan(codes, scales, weights, spans, allowed, rows, scores):  # type: ignore[no-untyped-def]
    """Fill rows and scores with the best, kept as a heap whose first one is the least; their number."""
    room, found = len(rows), 0
    if room == 0:
        return 0
    for span in range(len(spans)):
        for r in range(spans[span, 0], spans[span, 1]):
            if len(allowed) and not allowed[r]:
                continue
            row, score = codes[r], np.float32(0)
            for j in range(len(weights)):
                score += np.float32(row[j]) * weights[j]
            score *= scales[r]
            if found < room:
                place = found
                found += 1
                while place and scores[(place - 1) >> 1] > score:
                    above = (place - 1) >> 1
                    rows[place], scores[place] = rows[above], scores[above]
                    place = above
            elif score > scores[0]:
                place = 0
                while True:
                    below = 2 * place + 1
                    if below + 1 < room and scores[below + 1] < scores[below]:
                        below += 1
                    if below >= room or scores[below] >= score:
                        break
                    rows[place], scores[place] = rows[below], scores[below]
                    place = below
            else:
                continue
            rows[place], scores[place] = r, score
    return found
