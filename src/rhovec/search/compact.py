"""Compact vectors: a few numbers that stand for a long unit vector when candidates are searched.

A unit vector x becomes (P x, r), where P x are its leading principal coordinates and r is the norm of
the rest. That is a unit vector again. Inner products of compact vectors are upper bounds of the true
ones, tight between neighbours: about a hundred numbers stand for a thousand.
"""

from __future__ import annotations

import numpy as np


def principal_directions(sample: np.ndarray, width: int) -> np.ndarray:
    """Orthonormal columns (D, width - 1) float32 for compact vectors of `width` numbers.

    sample: unit vectors (m, D). If D is less than width - 1, there are D columns.
    """
    moments = (sample.T @ sample).astype(np.float64)
    directions = np.linalg.eigh(moments)[1][:, ::-1][:, : width - 1].astype(np.float32)
    return np.ascontiguousarray(directions)


def compacted(vectors: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Compact vectors (n, d) float32 of unit vectors (n, D)."""
    inside = vectors @ directions
    rest = np.sqrt(np.maximum(0, 1 - (inside * inside).sum(1, keepdims=True)))
    return np.concatenate([inside, rest], axis=1, dtype=np.float32)
