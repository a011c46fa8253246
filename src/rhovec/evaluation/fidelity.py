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
    `high`, uniformity also `kernel_value`, that of the kernel matrix. Undefined values are None.
    """
    b = len(kernel)
    if b <= NEIGHBOURS:
        raise RhovecError(f"fidelity needs more than {NEIGHBOURS} formulae, not {b}")
    groups = np.arange(b) if groups is None else groups
    first, second = (groups[x.ravel()] for x in np.indices((b, b)))
    k, s = kernel.ravel(), similarity.ravel()
    apart = 1.0 - np.eye(b).ravel()
    values = (k * s, k * k, s * s, apart * np.abs(k - s), apart, np.exp(4 * s - 4), np.ones(b * b))
    ks, kk, ss, gap, pairs, near, all_pairs = resampled(values, first, second, seed)
    shares = neighbour_shares(kernel, similarity, NEIGHBOURS)
    overlap = f"overlap of {NEIGHBOURS} neighbours"
    intervals = {
        "alignment": ends(ks / np.sqrt(kk * ss)),
        "mean absolute error": ends(gap / pairs),
        "uniformity": ends(np.log(near / all_pairs)),
        overlap: mean_interval(shares, groups, groups, seed),
    }
    found: dict[str, dict[str, Any]] = {
        "mean absolute error": {"value": mean_error(kernel, similarity)},
        "alignment": {"value": alignment(kernel, similarity)},
        "centred alignment": {"value": centred_alignment(kernel, similarity)},
        "uniformity": {"value": uniformity(similarity), "kernel_value": uniformity(kernel)},
        "weighted loss": {"value": weighted_loss(kernel, similarity)},
        "rank correlation": {"value": rank_correlation(kernel, similarity)},
        overlap: {"value": float(shares.mean())},
    }
    for name, (low, high) in intervals.items():
        found[name] |= {"low": low, "high": high}
    for entry in found.values():
        entry["n"] = b
        if np.isnan(entry["value"]):
            entry["value"] = None
    return found
