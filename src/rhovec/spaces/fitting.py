"""Formulae about a system at hand, and the directions in which their signatures vary most.

Formulae are drawn as for the training corpus, half of them at random, half as engineers build
requirements, over channels of about unit size and traces of 100 points. Here the thresholds of half of
them go to the quantiles of the traces, and the windows of half of them are stretched to their length.

Three quarters of the directions are the leading right singular vectors of the signatures (formulae x
traces), found by subspace iteration: a full decomposition of 4,096 traces would take a minute. The
others are random, and stand for all that the leading ones miss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.operators import Row
from ..formula.programs import Programs
from ..kernel import kernel_of_cosine
from ..robustness import robustness
from ..traces.measure import varying
from .scales import Scales

DIMENSIONS = (32, 48, 64, 96, 128, 192, 256)
DRAWN = 100  # points of the traces that drawn windows are meant for
LEVELS = 1001  # quantiles that are kept per channel
OVERSAMPLED = 32  # extra directions of the iteration
ROUNDS = 3
TINY = 1e-12
ROWS = 2048  # formulae evaluated at once
MIN_SIZE = 1e-3  # of robustness, in standard deviations of a channel


class Directions(NamedTuple):
    """Orthonormal directions (N, D) float32, and the mean error of K that is due to the others."""

    basis: np.ndarray
    error: float


def moving_channels(scales: Scales) -> np.ndarray:
    """Indices of the channels that are not constant in all traces; of the first, if all are."""
    found = np.flatnonzero(varying(scales.values))
    return found if len(found) else np.arange(1)


def draw_formulae(scales: Scales, n: int, seed: int, max_nodes: int = 48) -> Programs:
    """n formulae about standardised traces, over the channels that vary."""
    from ..corpus.families import Recipe, draw_families

    moving = moving_channels(scales)
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


def draw_boxes(scales: Scales, n: int, seed: int) -> Programs:
    """n formulae about standardised traces that go into a box of two channels, or stay in or out of it.

    The sides are quantiles of the traces, so that a box has its own place and size in each channel.
    """
    rng = np.random.default_rng(seed)
    moving = moving_channels(scales)
    levels = np.linspace(0, 1, LEVELS)
    quantiles = [np.quantile(scales.values[:, i], levels) for i in moving.tolist()]
    points = scales.values.shape[2]
    code, thresholds = np.zeros((n, 8, 4), np.int64), np.zeros((n, 8))
    code[:, :, 3] = -1
    for i in range(n):
        pair = rng.choice(len(moving), 2, replace=len(moving) < 2)
        outer, inside = ((ops.EVENTUALLY, 1), (ops.ALWAYS, 0), (ops.ALWAYS, 1))[rng.integers(3)]
        low_op, high_op, join = (ops.GE, ops.LE, ops.AND) if inside else (ops.LE, ops.GE, ops.OR)
        for side, channel in enumerate(pair.tolist()):
            bounds = np.interp(np.sort(rng.uniform(size=2)), levels, quantiles[channel])
            first = 3 * side
            code[i, first : first + 2, 0] = low_op, high_op
            code[i, first : first + 2, 3] = channel
            thresholds[i, first : first + 2] = bounds
            code[i, first + 2, 0] = join
        code[i, 6, 0] = join
        end = ops.UNBOUNDED if rng.random() < 0.3 else int(rng.integers(1, max(2, points)))
        code[i, 7, :3] = outer, 0, end
    names = scales.variables
    channels = tuple(((names[i], 1.0),) for i in moving.tolist())
    offsets = np.arange(n + 1) * 8
    return Programs(code.reshape(-1, 4), thresholds.ravel(), offsets, channels)


def draw_responses(scales: Scales, n: int, seed: int) -> Programs:
    """n formulae about standardised traces that ask for something whenever a channel is in an interval,
    or, half of them, enters it: to stay there, to leave it, or another channel to be somewhere.

    An interval of a discrete channel is one of its values.
    """
    rng = np.random.default_rng(seed)
    moving = moving_channels(scales)
    points = scales.values.shape[2]
    shares = np.linspace(0, 1, 1001)
    quantiles = np.quantile(scales.values, shares, axis=(0, 2)).T

    def interval() -> tuple[Row, Row]:
        i = int(rng.choice(moving))
        if scales.schema.channels[i].discrete:
            middle = np.rint(rng.choice(scales.values[:, i].ravel()))
            sides = middle - 0.5, middle + 0.5
        else:
            sides = tuple(np.interp(np.sort(rng.uniform(size=2)), shares, quantiles[i]))
        channel = ((scales.variables[i], 1.0),)
        return (ops.GE, 0, 0, channel, float(sides[0])), (ops.LE, 0, 0, channel, float(sides[1]))

    def inside(sides: tuple[Row, Row]) -> list[Row]:
        return [*sides, _plain(ops.AND)]

    def outside(sides: tuple[Row, Row]) -> list[Row]:
        (_, _, _, channel, a), (_, _, _, _, b) = sides
        return [(ops.LE, 0, 0, channel, a), (ops.GE, 0, 0, channel, b), _plain(ops.OR)]

    out = []
    for _ in range(n):
        cause, enters = interval(), rng.random() < 0.5
        answer = (inside(cause), outside(cause), inside(interval()), outside(interval()))[
            rng.integers(4)
        ]
        operator = (ops.ALWAYS, ops.EVENTUALLY)[rng.integers(2)]
        begin = 1 if enters else int(rng.integers(0, 2))
        end = begin + int(rng.integers(1, max(2, points // 5)))
        rows: list[Row] = outside(cause)
        if enters:
            rows = [*inside(cause), *rows, (ops.ALWAYS, 1, 1, None, 0.0), _plain(ops.OR)]
        last = ops.UNBOUNDED if rng.random() < 0.3 else int(rng.integers(1, max(2, points)))
        rows += [*answer, (operator, begin, end, None, 0.0), _plain(ops.OR)]
        out.append(Formula.from_rows([*rows, (ops.ALWAYS, 0, last, None, 0.0)]))
    return Programs.pack(out)


def _plain(op: int) -> Row:
    return op, 0, 0, None, 0.0


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


def cut(
    found: np.ndarray, probes: np.ndarray, sigma2: float, error: float, seed: int
) -> Directions:
    """The fewest of the directions (N, M) that reach the error of K on signatures (B, N)."""
    upper = np.triu_indices(len(probes), 1)
    exact = kernel_of_cosine(np.clip(probes @ probes.T, -1, 1)[upper].astype(np.float64), sigma2)
    for size in (d for d in DIMENSIONS if d <= found.shape[1]):
        basis = with_sketch(found[:, : principal(size)], size, seed)
        near = vectors_of(probes, basis.astype(np.float64))[0]
        near = kernel_of_cosine(np.clip(near @ near.T, -1, 1)[upper], sigma2)
        reached = float(np.abs(near - exact).mean())
        if reached <= error:
            break
    return Directions(basis, reached)


def principal(size: int) -> int:
    """How many of `size` directions are principal; the others are a sketch of the rest."""
    return size - size // 4


def with_sketch(found: np.ndarray, size: int, seed: int) -> np.ndarray:
    """(N, size) float32: the directions, and random ones that are orthogonal to them."""
    rng = np.random.default_rng(seed)
    other = rng.standard_normal((len(found), size - found.shape[1]))
    exact = found.astype(np.float64)
    for _ in range(2):  # the second time for what rounding has left
        other -= exact @ (exact.T @ other)
        other, _ = np.linalg.qr(other)
    return np.ascontiguousarray(np.concatenate([exact, other], axis=1), np.float32)


def vectors_of(signatures: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors (B, D) float64 of signatures (B, N), and how much the directions miss, (B,).

    The sketch is brought to the length of what the principal directions miss. Without it, scaling
    vectors to length one would make all cosines too large, ten times the error of K. The product is
    taken in the precision of the arguments: only in float64 is a vector the same in every batch.
    """
    rows = (signatures @ basis).astype(np.float64, copy=False)
    leading, rest = rows[:, : principal(rows.shape[1])], rows[:, principal(rows.shape[1]) :]
    missed = np.sqrt(np.maximum(0, 1 - (leading**2).sum(axis=1)))
    length = np.linalg.norm(rest, axis=1)
    rest *= (missed / np.maximum(length, TINY))[:, None]
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), TINY)
    return rows, missed
