"""Fidelity: how well the inner products of vectors are the kernel, over all pairs of one set.

The measures of the paper (loss, alignment, uniformity), those that a constant matrix cannot please
(centred alignment, error), and those that a search depends on (rank correlation, neighbours).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import RhovecError
from .bootstrap import interval, mean_interval
from .metrics import (
    alignment,
    centred_alignment,
    mean_error,
    neighbour_overlap,
    rank_correlation,
    uniformity,
    weighted_loss,
)

NEIGHBOURS = 10


def fidelity(
    kernel: np.ndarray, similarity: np.ndarray, groups: np.ndarray | None = None, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Each measure of the kernel matrix (B, B) against the inner products (B, B) by name.

    groups: (B,) int, formulae of one number are variants of one another (default: none are).
    An entry has `n` = B and `value`; alignment and error also `low` and `high`, uniformity also
    `kernel_value`, the kernel's own. A value that is not defined is None.
    """
    b = len(kernel)
    if b <= NEIGHBOURS:
        raise RhovecError(f"fidelity needs more than {NEIGHBOURS} formulae, not {b}")
    groups = np.arange(b) if groups is None else groups
    i, j = (x.ravel() for x in np.indices((b, b)))
    k, s = kernel.ravel(), similarity.ravel()
    apart = i != j
    aligned = interval(
        lambda ks, kk, ss: ks / np.sqrt(kk * ss), (k * s, k * k, s * s), groups[i], groups[j], seed
    )
    error = mean_interval(np.abs(k - s)[apart], groups[i][apart], groups[j][apart], seed)
    found: dict[str, dict[str, Any]] = {
        "mean absolute error": {"value": mean_error(kernel, similarity)},
        "alignment": {"value": alignment(kernel, similarity)},
        "centred alignment": {"value": centred_alignment(kernel, similarity)},
        "uniformity": {"value": uniformity(similarity), "kernel_value": uniformity(kernel)},
        "weighted loss": {"value": weighted_loss(kernel, similarity)},
        "rank correlation": {"value": rank_correlation(kernel, similarity)},
        f"overlap of {NEIGHBOURS} neighbours": {
            "value": neighbour_overlap(kernel, similarity, NEIGHBOURS)
        },
    }
    for name, (low, high) in (("alignment", aligned), ("mean absolute error", error)):
        found[name] |= {"low": low, "high": high}
    for entry in found.values():
        entry["n"] = b
        if np.isnan(entry["value"]):
            entry["value"] = None
    return found
