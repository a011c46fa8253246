"""95 % bootstrap intervals of statistics over pairs of formulae.

Groups are drawn with replacement: families where there are families, whose members are alike and so no
independent evidence, and otherwise single formulae. A pair between two groups is weighted by the product
of the numbers of times that they were drawn, and a pair within a group by the number for that group: a
copy of a formula is never paired with itself, which would be a pair without error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

RESAMPLES = 1000
LEVEL = 0.95


def interval(
    statistic: Callable[..., np.ndarray],
    values: tuple[np.ndarray, ...],
    first: np.ndarray,
    second: np.ndarray,
    seed: int,
) -> tuple[float, float]:
    """(low, high) of a statistic that maps the sums from `resampled` to its values (R,)."""
    return ends(statistic(*resampled(values, first, second, seed)))


def resampled(
    values: tuple[np.ndarray, ...], first: np.ndarray, second: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Sums (R,) in R resamples of each of the values (n,) of n pairs.

    first, second: (n,) int, the groups of each pair's two formulae.
    """
    names = np.unique(np.concatenate([first, second]))
    n_groups = len(names)
    places = np.searchsorted(names, first) * n_groups + np.searchsorted(names, second)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), RESAMPLES).astype(float)

    def sums(weights: np.ndarray) -> np.ndarray:
        between = np.bincount(places, weights, n_groups**2).reshape(n_groups, n_groups)
        within = np.diag(between).copy()
        np.fill_diagonal(between, 0)
        total: np.ndarray = ((drawn @ between) * drawn).sum(1) + drawn @ within
        return total

    # A resample of a small set may contain no pair at all; it is left out.
    some = sums(np.ones(len(places))) > 0.5
    return [sums(v)[some] for v in values]


def ends(statistics: np.ndarray) -> tuple[float, float]:
    """(low, high) between which a share LEVEL of the statistics (R,) lies."""
    low, high = np.quantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def mean_interval(
    values: np.ndarray, first: np.ndarray, second: np.ndarray, seed: int
) -> tuple[float, float]:
    """(low, high) of the mean of values (n,)."""
    return interval(lambda total, n: total / n, (values, np.ones(len(values))), first, second, seed)
