"""The middle of the windows and thresholds that fit the training traces.

Many parameters of one structure label the training traces equally well. The search stops at any of them,
mostly near the edge of that region; its middle labels new traces better. Chains sample the parameters
with density exp(-beta * loss) under a uniform prior. A step moves a window, integrates one threshold out
exactly (with one threshold free, the loss is a step function of it), accepts or rejects by the ratio of
the integrals, and draws the threshold. beta is the log odds of a right label, estimated from the loss:
noisy labels are not fitted to the last trace. A trace that is right by less than half of the margin
of the start counts as wrong.

Where the classes lie apart, the middle of the widest gap, which the search has found, is better and
stays. Classes count as apart if the nearest trace is more than half as far from the border as the
twentieth. If traces lay evenly around the border, that would happen once in 500,000 times.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..formula import operators as ops
from .data import Candidate, Data, Node
from .moves import SHIFT, TIMED
from .search import measured, numbers

CHAINS, STEPS, BURN_IN = 24, 60, 20
NEAREST = 20  # traces next to the border that tell whether it runs through a gap
STILL = 0.1  # share of steps that move no window


def centred(
    candidate: Candidate, data: Data, seed: int, deadline: float | None = None
) -> Candidate | None:
    """The candidate with windows and thresholds in the middle of those that fit the traces; None if the
    deadline passes before that is known.

    The answer never has a larger loss than the average sample has.
    """
    free = [i for i, node in enumerate(candidate) if node[3] >= 0 and not data.flags[node[3]]]
    if not free:
        return candidate
    rho = numbers(data, [(candidate, SHIFT)], np.float64)[0]
    distances = np.sort(np.abs(rho))[:NEAREST]
    if distances[0] > distances[-1] / 2:  # a gap, whose middle the search has found
        return candidate
    samples = _samples(candidate, free, data, distances[0] / 2, seed, deadline)
    if not samples:
        return None
    rows = np.array([[node[1:3] + node[4:] for node in one] for one in samples])  # (S, nodes, 3)
    mean = rows.mean(axis=0)
    middle = tuple(
        (op, int(lo + 0.5), int(hi + 0.5), channel, float(z))
        for (op, _, _, channel, _), (lo, hi, z) in zip(candidate, mean, strict=True)
    )
    spread = np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    distance = (((rows - mean) / spread) ** 2).sum(axis=(1, 2))
    nearest = [samples[i] for i in np.argsort(distance, kind="stable")[:CHAINS]]
    found = measured(data, [middle, *nearest, candidate])
    limit = max(found[-1].loss, float(np.mean([one.loss for one in found[1:-1]])))
    return next(one.candidate for one in found if one.loss <= limit)


def _samples(
    candidate: Candidate,
    free: Sequence[int],
    data: Data,
    margin: float,
    seed: int,
    deadline: float | None,
) -> list[Candidate]:
    rng = np.random.default_rng(seed)
    loss = measured(data, [candidate])[0].loss * data.n_traces / data.total
    wrong = (loss + 0.5) / (data.n_traces + 1)
    beta = max(0.0, np.log((1 - wrong) / wrong)) * data.n_traces / data.total
    timed = [i for i, node in enumerate(candidate) if node[0] in TIMED]
    state, out = [candidate] * CHAINS, []
    for step in range(STEPS):
        if deadline is not None and time.monotonic() > deadline:
            return []
        moved = [_moved(one, timed, data.points - 1, rng) for one in state]
        chosen = rng.choice(free, CHAINS).tolist()
        z, draw = _conditional([*state, *moved], chosen * 2, data, beta, margin, rng)
        accepted = np.log(rng.random(CHAINS)) < z[CHAINS:] - z[:CHAINS]
        for k, yes in enumerate(accepted.tolist()):
            one, i = (moved if yes else state)[k], chosen[k]
            op, _, _, channel, _ = one[i]
            state[k] = (*one[:i], (op, 0, 0, channel, float(draw[k + CHAINS * yes])), *one[i + 1 :])
        if step >= BURN_IN:
            out += state
    return out


def _moved(one: Candidate, timed: Sequence[int], last: int, rng: np.random.Generator) -> Candidate:
    """One bound of one window, or both, moved by a random step within the traces."""
    if not timed or rng.random() < STILL:
        return one
    i = timed[int(rng.integers(len(timed)))]
    op, lo, hi, *_ = one[i]
    step = int(max(1, last) ** (0.6 * rng.random())) * (1 if rng.random() < 0.5 else -1)
    kind = rng.random()
    lo, hi = lo + step * (kind < 0.6), hi + step * (kind >= 0.3)
    if not 0 <= lo <= hi <= last:
        return one
    node: Node = (op, lo, hi, -1, 0.0)
    return (*one[:i], node, *one[i + 1 :])


def _conditional(
    rows: Sequence[Candidate], free: Sequence[int], data: Data, beta: float,
    margin: float, rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Per row, with one threshold free: the log of the integral over it, and a draw of it."""
    critical = numbers(data, list(zip(rows, free, strict=True)), np.float64)  # (R, N)
    critical += np.where(data.positive, -margin, margin)
    nodes = [row[i] for row, i in zip(rows, free, strict=True)]
    sign = np.array([1.0 if node[0] == ops.GE else -1.0 for node in nodes])[:, None]
    channels = [node[3] for node in nodes]
    ends = sign * np.stack([data.lowest[channels], data.highest[channels]], axis=1)
    low, high = ends.min(axis=1, keepdims=True), ends.max(axis=1, keepdims=True)
    order = np.argsort(critical, axis=1, kind="stable")
    inner = np.clip(np.take_along_axis(critical, order, axis=1), low, high)
    edges = np.concatenate([low, inner, high], axis=1)
    # A threshold above k numbers misses the positive ones of them, and accepts negative ones above.
    positive = data.positive[order]
    steps = np.where(positive, data.costs[0], -data.costs[1])
    alarms = data.costs[1] * (~data.positive).sum()
    loss = alarms + np.concatenate([np.zeros_like(low), np.cumsum(steps, axis=1)], axis=1)
    width = np.diff(edges, axis=1)
    least = np.where(width > 0, loss, np.inf).min(axis=1, keepdims=True)
    weight = np.cumsum(width * np.exp(-beta * np.maximum(0.0, loss - least)), axis=1)
    total = weight[:, -1:]
    place = (weight < total * rng.random(total.shape)).sum(axis=1, keepdims=True)
    place = np.minimum(place, width.shape[1] - 1)
    start, size = np.take_along_axis(edges, place, 1), np.take_along_axis(width, place, 1)
    draw = sign * (start + size * rng.random(total.shape))
    return (np.log(total) - beta * least)[:, 0], draw[:, 0]
