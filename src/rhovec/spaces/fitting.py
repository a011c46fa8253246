"""Formulae about a system at hand, and the directions in which their signatures vary most.

Formulae are drawn as for the training corpus, half of them at random, half as engineers build
requirements, over channels of about unit size and traces of 100 points. Here the thresholds of half of
them go to the quantiles of the traces, and the windows of half of them are stretched to their length.

The directions are the leading right singular vectors of the signatures (formulae x traces), found by
subspace iteration: a full decomposition of 4,096 traces would take a minute.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..formula import operators as ops
from ..formula.programs import Programs
from ..kernel import kernel_of_cosine
from ..robustness import robustness
from .scales import Scales

DIMENSIONS = (32, 48, 64, 96, 128, 192, 256)
DRAWN = 100  # points of the traces that drawn windows are meant for
LEVELS = 1001  # quantiles that are kept per channel
OVERSAMPLED = 32  # extra directions of the iteration
ROUNDS = 3
ROWS = 2048  # formulae evaluated at once
MIN_SIZE = 1e-3  # of robustness, in standard deviations of a channel


class Directions(NamedTuple):
    """Orthonormal directions (N, D) float32, and the mean error of K that is due to the others."""

    basis: np.ndarray
    error: float


def draw_formulae(scales: Scales, n: int, seed: int, max_nodes: int = 48) -> Programs:
    """n formulae about standardised traces, over the channels that vary."""
    from ..corpus.families import Recipe, draw_families

    low, high = scales.values.min(axis=(0, 2)), scales.values.max(axis=(0, 2))
    moving = np.flatnonzero(low < high)
    if not len(moving):
        moving = np.arange(1)
    recipe = Recipe(seed=seed, family_size=1, channels=len(moving), max_nodes=max_nodes,
                    shares=(1.0, 0.0, 0.0, 0.0), requirements=0.5)  # fmt: skip
    drawn = draw_families(recipe, np.arange(n)).programs
    code, thresholds = drawn.code.copy(), drawn.thresholds.copy()
    rng = np.random.default_rng(seed)
    sizes = np.diff(drawn.offsets)
    by_quantile, stretched = (np.repeat(rng.random(n) < 0.5, sizes) for _ in range(2))
    place_thresholds(scales, moving, code, thresholds, by_quantile)
    factor = scales.values.shape[2] / DRAWN
    for column in (1, 2):
        bounds = code[:, column]
        chosen = stretched & (bounds != ops.UNBOUNDED)
        bounds[chosen] = np.rint(bounds[chosen] * factor)
    names = scales.variables
    channels = tuple(((names[i], 1.0),) for i in moving.tolist())
    return Programs(code, thresholds, drawn.offsets, channels)


def distinct(drawn: Programs, scales: Scales, centred: bool) -> Programs:
    """Formulae whose robustness has a size; for a correlation, one that differs between traces."""
    kept = []
    for start in range(0, len(drawn), ROWS):
        part = drawn.part(start, min(start + ROWS, len(drawn)))
        values = robustness(part, scales.values, variables=scales.variables).astype(np.float64)
        if centred:
            values -= values.mean(axis=1, keepdims=True)
        kept.append((values**2).mean(axis=1) > MIN_SIZE**2)
    return drawn.select(np.flatnonzero(np.concatenate(kept)))


def place_thresholds(
    scales: Scales,
    moving: np.ndarray,
    code: np.ndarray,
    thresholds: np.ndarray,
    by_quantile: np.ndarray,
) -> None:
    """Move thresholds that were drawn from N(0, 1) to the traces' quantiles, in place.

    Those of discrete channels go halfway between two whole numbers in any case.
    """
    levels = np.linspace(0, 1, LEVELS)
    normal = np.sort(np.random.default_rng(0).standard_normal(100_000))
    for local, i in enumerate(moving.tolist()):
        atoms = code[:, 3] == local
        discrete = scales.schema.channels[i].discrete
        chosen = atoms if discrete else atoms & by_quantile
        values = thresholds[chosen]
        share = np.searchsorted(normal, values) / len(normal)
        quantiles = np.quantile(scales.values[:, i], levels)
        moved = np.interp(share, levels, quantiles)
        thresholds[chosen] = np.floor(moved) + 0.5 if discrete else moved


def find_directions(signatures: np.ndarray, weights: np.ndarray, seed: int) -> np.ndarray:
    """(N, M) float32: the leading right singular vectors of weighted rows (B, N), at most 256."""
    rows = signatures * weights[:, None].astype(np.float32)
    most = min(DIMENSIONS[-1], rows.shape[1] - 1)
    gram = rows.T @ rows
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((len(gram), min(most + OVERSAMPLED, len(gram))), np.float32)
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(gram @ basis)
    _, turn = np.linalg.eigh((basis.T @ gram @ basis).astype(np.float64))
    found = basis @ turn[:, ::-1][:, :most].astype(np.float32)
    largest = found[np.abs(found).argmax(0), np.arange(most)]
    return np.ascontiguousarray(found * np.sign(largest), np.float32)


def cut(found: np.ndarray, probes: np.ndarray, sigma2: float, error: float) -> Directions:
    """The fewest of the directions (N, M) that reach the error of K on signatures (B, N)."""
    upper = np.triu_indices(len(probes), 1)
    exact = kernel_of_cosine(np.clip(probes @ probes.T, -1, 1)[upper].astype(np.float64), sigma2)
    whole = probes @ found
    sizes = [d for d in DIMENSIONS if d <= found.shape[1]]
    for size in sizes:
        part = whole[:, :size]
        part = part / np.linalg.norm(part, axis=1, keepdims=True)
        near = kernel_of_cosine(np.clip(part @ part.T, -1, 1)[upper].astype(np.float64), sigma2)
        reached = float(np.abs(near - exact).mean())
        if reached <= error:
            break
    return Directions(np.ascontiguousarray(found[:, :size]), reached)
