"""Measures of how well a matrix S of inner products reproduces a kernel matrix K, (B, B) each."""

from __future__ import annotations

import numpy as np

TIED = 1e-9  # kernel values that are this close differ only by rounding


def alignment(kernel: np.ndarray, similarity: np.ndarray) -> float:
    """Cosine of the two matrices, read as vectors."""
    return float((kernel * similarity).sum() / np.linalg.norm(kernel) / np.linalg.norm(similarity))


def centred_alignment(kernel: np.ndarray, similarity: np.ndarray) -> float:
    """Alignment after centring rows and columns, so that a constant matrix scores nothing.

    NaN if one of the two matrices is constant.
    """
    k, s = _centred(kernel), _centred(similarity)
    if min(np.abs(k).max(), np.abs(s).max()) < TIED:
        return float("nan")
    return alignment(k, s)


def uniformity(similarity: np.ndarray) -> float:
    """Log of the mean of exp(-2 |z_i - z_j|^2) over all B^2 pairs of unit vectors, including i = j."""
    return float(np.log(np.exp(-4 + 4 * similarity).mean()))


def mean_error(kernel: np.ndarray, similarity: np.ndarray) -> float:
    """Mean |K - S| over i != j."""
    gap = np.abs(kernel - similarity)
    n = len(gap)
    return float((gap.sum() - np.trace(gap)) / (n * (n - 1)))


def weighted_loss(
    kernel: np.ndarray, similarity: np.ndarray, gamma: float = 2.0, cap: float = 10.0
) -> float:
    """The paper's loss: mean of w (K - S)^2 over all pairs, w = min(g / mean g, cap), g = |K - S|^gamma.

    The mean of g is over the whole matrix, so values of different B cannot be compared.
    """
    gap = np.abs(kernel - similarity)
    focus = gap**gamma
    if not focus.any():
        return 0.0
    return float((np.minimum(focus / focus.mean(), cap) * gap**2).mean())


def rank_correlation(kernel: np.ndarray, similarity: np.ndarray) -> float:
    """Spearman's correlation over i < j, with mean ranks for ties; NaN if all values are equal."""
    above = np.triu_indices(len(kernel), 1)
    ranks = [_ranks(matrix[above]) for matrix in (kernel, similarity)]
    k, s = (r - r.mean() for r in ranks)
    scale = np.linalg.norm(k) * np.linalg.norm(s)
    return float(k @ s / scale) if scale else float("nan")


def neighbour_shares(kernel: np.ndarray, similarity: np.ndarray, k: int = 10) -> np.ndarray:
    """Share of the k nearest formulae by S that are among the k nearest by K, (B,).

    If ties in K leave open which the k nearest are, all tied formulae count as near.
    """
    others = ~np.eye(len(kernel), dtype=bool)
    truth = np.where(others, kernel, -np.inf)
    found = np.argsort(np.where(others, -similarity, np.inf), axis=1, kind="stable")[:, :k]
    least = np.partition(truth, -k, axis=1)[:, -k]  # the k-th largest of each row
    near = np.take_along_axis(truth, found, axis=1) >= least[:, None] - TIED
    shares: np.ndarray = near.mean(axis=1)
    return shares


def _centred(matrix: np.ndarray) -> np.ndarray:
    centred: np.ndarray = matrix - matrix.mean(0) - matrix.mean(1, keepdims=True) + matrix.mean()
    return centred


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank of each value, counted from 0; ties share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts + 1) / 2)[place]
    return ranks
