"""Fidelity: how well the inner products of vectors reproduce the kernel, over all pairs of one set.

Measures: those of the paper (loss, alignment, uniformity), two on which a constant matrix scores badly
(centred alignment, error), and two that matter for search (rank correlation, overlap of neighbours).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import RhovecError
from .bootstrap import ends, mean_interval, resampled
from .metrics import (
    alignment,
    centred_alignment,
    mean_error,
    neighbour_shares,
    rank_correlation,
    uniformity,
    weighted_loss,
)

NEIGHBOURS = 10


def fidelity(
    kernel: np.ndarray, similarity: np.ndarray, groups: np.ndarray | None = None, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Measures by name, of the kernel matrix (B, B) against the inner products (B, B).

    groups: (B,) int, equal for formulae that are variants of one another (default: none are).
    An entry has `n` = B and `value`; alignment, error, uniformity and overlap also have `low` and
    `high`, uniformity also `kernel_value`, that of the kernel matrix. Undefined values are None. Ten
    formulae or fewer have no overlap.
    """
    b = len(kernel)
    if b < 2:
        raise RhovecError(f"fidelity compares pairs; give 2 formulae or more, not {b}")
    groups = np.arange(b) if groups is None else groups
    first, second = (groups[x.ravel()] for x in np.indices((b, b)))
    k, s = kernel.ravel(), similarity.ravel()
    apart = 1.0 - np.eye(b).ravel()
    values = (k * s, k * k, s * s, apart * np.abs(k - s), apart, np.exp(4 * s - 4), np.ones(b * b))
    ks, kk, ss, gap, pairs, near, all_pairs = resampled(values, first, second, seed)
    some = pairs > 0.5  # resamples of few formulae may be copies of one
    intervals = {
        "alignment": ends(ks / np.sqrt(kk * ss)),
        "mean absolute error": ends(gap[some] / pairs[some]),
        "uniformity": ends(np.log(near / all_pairs)),
    }
    found: dict[str, dict[str, Any]] = {
        "mean absolute error": {"value": mean_error(kernel, similarity)},
        "alignment": {"value": alignment(kernel, similarity)},
        "centred alignment": {"value": centred_alignment(kernel, similarity)},
        "uniformity": {"value": uniformity(similarity), "kernel_value": uniformity(kernel)},
        "weighted loss": {"value": weighted_loss(kernel, similarity)},
        "rank correlation": {"value": rank_correlation(kernel, similarity)},
    }
    if b > NEIGHBOURS:
        shares = neighbour_shares(kernel, similarity, NEIGHBOURS)
        overlap = f"overlap of {NEIGHBOURS} neighbours"
        found[overlap] = {"value": float(shares.mean())}
        intervals[overlap] = mean_interval(shares, groups, groups, seed)
    for name, (low, high) in intervals.items():
        found[name] |= {"low": low, "high": high}
    for entry in found.values():
        entry["n"] = b
        if np.isnan(entry["value"]):
            entry["value"] = None
    return found
