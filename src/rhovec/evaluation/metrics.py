"""Measures of agreement between a kernel matrix K and the inner products S of vectors, (B, B) each."""

from __future__ import annotations

import numpy as np


def alignment(kernel: np.ndarray, similarity: np.ndarray) -> float:
    """Cosine of the two matrices as vectors."""
    return float((kernel * similarity).sum() / np.linalg.norm(kernel) / np.linalg.norm(similarity))


def centred_alignment(kernel: np.ndarray, similarity: np.ndarray) -> float:
    """Alignment after rows and columns have mean zero: a constant matrix gains nothing."""
    return alignment(_centred(kernel), _centred(similarity))


def uniformity(similarity: np.ndarray) -> float:
    """log of the mean of exp(-2 |z_i - z_j|^2) over all B^2 pairs of unit vectors, i = j included."""
    return float(np.log(np.exp(-4 + 4 * similarity).mean()))


def mean_error(kernel: np.ndarray, similarity: np.ndarray) -> float:
    """Mean |K - S| over i != j."""
    gap = np.abs(kernel - similarity)
    n = len(gap)
    return float((gap.sum() - np.trace(gap)) / (n * (n - 1)))


def _centred(matrix: np.ndarray) -> np.ndarray:
    centred: np.ndarray = matrix - matrix.mean(0) - matrix.mean(1, keepdims=True) + matrix.mean()
    return centred
