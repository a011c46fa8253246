"""Exhaustive scans of small classes of formulae, which give the certificates.

One temporal operator over one atom: every window, every channel, every threshold. Two operators over
one atom, and until between two atoms: the windows of a grid, and for until also a grid of thresholds on
the left; the other threshold is exact. Minima and maxima commute with ranks, so the scans work on whole
numbers and are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..formula import operators as ops
from ..machine import cores
from .cuts import cut_ranks
from .data import Candidate, Data, atom, dual, plain

MAX_NUMBERS = 400_000_000  # sorted in one scan; what exceeds it is thinned to a grid
MAX_UNTILS = 50_000_000  # the same for until, whose atoms come in pairs
NUMBERS_WORTH_THREADS = 3_000_000
KEPT = 64  # candidates of a scan that the search starts from, per kind of formula


@dataclass(frozen=True)
class Certificate:
    """No formula of a class, true on some training traces and false on others, has a smaller loss."""

    formulae: str  # the class
    windows: str  # which were tried
    thresholds: str
    tried: int  # windows x atoms; for each, all thresholds
    loss: float  # the smallest
    best: Candidate
    complete: bool  # no grid


def grid(points: int, count: int) -> np.ndarray:
    """Up to `count` times from 0 to points - 1: all, or denser near 0 and both ends kept."""
    if count >= points:
        return np.arange(points)
    even = np.linspace(0, points - 1, count)
    return np.unique(np.rint(even).astype(np.int64))


def widths(points: int, count: int) -> np.ndarray:
    """Up to `count` widths from 1 to points - 1, in about geometric steps."""
    if points < 2:
        return np.empty(0, np.int64)
    return np.unique(np.rint(np.geomspace(1, points - 1, count)).astype(np.int64))


# -- what is scanned -------------------------------------------------------------------------------


Found = tuple[float, float, Candidate]  # loss, minus the gap around the threshold, formula
Rows = tuple[np.ndarray, np.ndarray, Callable[[int, float], Candidate]]


@dataclass(frozen=True)
class Scan:
    """What a class of formulae gives on the training traces."""

    formulae: str
    windows: str
    thresholds: str
    complete: bool
    tried: int
    best: list[Found]  # by loss, then by the width of the gap

    def certificate(self) -> Certificate:
        loss, _, phi = self.best[0]
        return Certificate(
            self.formulae,
            self.windows,
            self.thresholds,
            self.tried,
            loss,
            plain(phi),
            self.complete,
        )

    def candidates(self, count: int = KEPT) -> list[Candidate]:
        return [phi for _, _, phi in self.best[:count]]


def _run(
    data: Data, jobs: Sequence[tuple[Any, ...]], rows: Callable[..., Rows]
) -> tuple[int, list[Found]]:
    """Rows tried, and the best formulae.

    rows(*job) gives ranks (R, N), the levels that they mean, and a function from (row, threshold) to
    the formula "number >= threshold".
    """

    def work(job: tuple[Any, ...]) -> Any:
        ranks, levels, formula = rows(*job)
        loss, gap, at = (x.ravel() for x in cut_ranks(ranks, levels, data.positive, data.costs))
        kept = np.lexsort((-gap, loss))[:8]
        return len(ranks), [
            (float(loss[i]), -float(gap[i]), int(i), float(at[i]), formula)
            for i in kept if np.isfinite(loss[i])
        ]  # fmt: skip

    found, tried = [], 0
    with ThreadPoolExecutor(cores()) as pool:
        # The first job tells how much work the others are; little is not worth the threads.
        first = work(jobs[0])
        is_much = first[0] * data.n_traces * len(jobs) > NUMBERS_WORTH_THREADS
        for count, best in chain([first], (pool.map if is_much else map)(work, jobs[1:])):
            tried += count
            found += best
    found.sort(key=lambda one: one[:2])  # stable: the order of jobs breaks ties
    out = []
    for loss, gap, i, at, formula in found[: 2 * KEPT]:
        phi = formula(i // 2, at)
        out.append((loss, gap, dual(phi) if i % 2 else phi))
    return tried, out


def _running(ranks: np.ndarray, smallest: bool) -> np.ndarray:
    function = np.minimum if smallest else np.maximum
    return function.accumulate(ranks, axis=0)


def _sliding(ranks: np.ndarray, width: int, smallest: bool) -> np.ndarray:
    """Extreme over t ... t + width (P, N), held at the end, by doubling."""
    function, out, covered = (np.minimum if smallest else np.maximum), ranks, 1
    while covered < width + 1:
        step = min(covered, width + 1 - covered)
        later = np.concatenate([out[step:], np.repeat(out[-1:], min(step, len(out)), axis=0)])
        out = function(out, later[: len(out)])
        covered += step
    return out


def _window(op: int, lo: int, hi: int) -> tuple[Any, ...]:
    return (op, lo, hi, -1, 0.0)


def one_operator(data: Data, n_times: int | None = None) -> Scan:
    """Always and eventually over an atom: all windows, or a grid where there are too many."""
    if n_times is None:
        n_rows = MAX_NUMBERS / (2 * data.n_channels * data.n_traces)
        n_times = max(2, int((2 * n_rows) ** 0.5))
    times = grid(data.points, n_times)

    def rows(channel: int, smallest: bool, k: int) -> Rows:
        lo = int(times[k])
        ends = times[k:]
        ranks = _running(data.ranks[channel][lo:], smallest)[ends - lo]

        def formula(row: int, threshold: float) -> Candidate:
            one = atom(ops.GE, channel, threshold)
            hi = int(ends[row])
            if lo == hi == 0:
                return (one,)
            return (one, _window(ops.ALWAYS if smallest else ops.EVENTUALLY, lo, hi))

        return ranks, data.levels[channel], formula

    kinds = [(c, smallest) for c in range(data.n_channels) for smallest in (True, False)]
    tried, best = _run(data, [(*kind, k) for kind in kinds for k in range(len(times))], rows)
    complete = len(times) == data.points
    windows = f"all {data.points * (data.points + 1) // 2:,}" if complete else _grid_text(times)
    return Scan(
        "always or eventually over one comparison of a channel with a number", windows, "all",
        complete, tried, best,
    )  # fmt: skip


def _grid_text(times: np.ndarray) -> str:
    shown = ", ".join(map(str, times[:3])) + ", ..., " + str(times[-1])
    return f"bounds from {len(times)} times ({shown})"


def two_operators(data: Data, n_times: int = 21, n_widths: int = 10) -> Scan | None:
    """always eventually[0,w] and eventually always[0,w] over an atom, on a grid of windows.

    Traces of one point have no windows.
    """
    times, inner = grid(data.points, n_times), widths(data.points, n_widths)
    if not len(inner):
        return None

    def rows(channel: int, smallest: bool, width: int) -> Rows:
        slid = _sliding(data.ranks[channel], width, smallest)
        blocks = [_running(slid[lo:], not smallest)[times[k:] - lo] for k, lo in enumerate(times)]
        spans = [(int(lo), int(hi)) for k, lo in enumerate(times) for hi in times[k:]]
        within, around = (ops.ALWAYS, ops.EVENTUALLY) if smallest else (ops.EVENTUALLY, ops.ALWAYS)

        def formula(row: int, threshold: float) -> Candidate:
            one = atom(ops.GE, channel, threshold)
            return (one, _window(within, 0, int(width)), _window(around, *spans[row]))

        return np.concatenate(blocks), data.levels[channel], formula

    kinds = [(c, smallest) for c in range(data.n_channels) for smallest in (True, False)]
    tried, best = _run(data, [(*kind, int(w)) for kind in kinds for w in inner], rows)
    windows = f"outer: {_grid_text(times)}; inner: [0,w] for w = {', '.join(map(str, inner))}"
    return Scan(
        "always eventually, or eventually always, over one comparison", windows, "all",
        False, tried, best,
    )  # fmt: skip


def untils(data: Data, n_times: int = 9, n_levels: int = 24) -> Scan | None:
    """p until q between two atoms, on a grid of windows and of thresholds of p.

    The grid is coarser for many channels; for very many there is none.
    """

    def numbers() -> float:
        windows = n_times * (n_times + 1) / 2
        return (2 * data.n_channels) ** 2 * n_levels * windows * data.n_traces

    while numbers() > MAX_UNTILS and n_times > 3:
        n_levels, n_times = (n_levels // 2, n_times) if n_levels > 6 else (n_levels, n_times - 2)
    if numbers() > 4 * MAX_UNTILS:
        return None
    times = grid(data.points, n_times)
    each = np.arange(data.n_traces)
    parts = [
        (right, smallest, k, _running(data.ranks[right][lo:], smallest))
        for right in range(data.n_channels)
        for smallest in (False, True)
        for k, lo in enumerate(times)
    ]
    spans = [
        (right, smallest, int(times[k]), int(hi))
        for right, smallest, k, _ in parts
        for hi in times[k:]
    ]
    # One table of levels for all channels on the right: ranks are moved to their part of it.
    starts = np.concatenate([[0], np.cumsum([len(x) for x in data.levels])])
    moved = starts[[span[0] for span in spans]].astype(np.int32)[:, None]
    table = np.concatenate(data.levels)

    def rows(left: int, comparison: int, level: float) -> Rows:
        values = data.levels[left][data.ranks[left]]
        holds = values >= level if comparison == ops.GE else values <= level
        fails = np.where(holds.all(axis=0), data.points, np.argmin(holds, axis=0))  # (N,)
        blocks = []
        for right, smallest, k, running in parts:
            nothing = len(data.levels[right]) - 1 if smallest else 0
            last = np.minimum(times[k:, None], fails - 1) - times[k]  # (windows, N)
            blocks.append(np.where(last < 0, nothing, running[np.maximum(last, 0), each]))
        ranks = np.concatenate(blocks).astype(np.int32) + moved

        def formula(row: int, threshold: float) -> Candidate:
            right, smallest, lo, hi = spans[row]
            until = (
                atom(comparison, left, level),
                atom(ops.LE if smallest else ops.GE, right, threshold),
                _window(ops.UNTIL, lo, hi),
            )
            # A small minimum makes it true, so "number >= threshold" is the negation.
            return dual(until) if smallest else until

        return ranks, table, formula

    tried, best = _run(data, list(_left_atoms(data, n_levels)), rows)
    return Scan(
        "one until, or its negation, between two comparisons", _grid_text(times),
        f"left: {n_levels} quantiles of each channel; right: all", False, tried, best,
    )  # fmt: skip


def _left_atoms(data: Data, n_levels: int) -> Iterator[tuple[int, int, float]]:
    for channel in range(data.n_channels):
        finite = data.levels[channel][1:-1]
        middles = (finite[1:] + finite[:-1]) / 2
        values = finite[data.ranks[channel].ravel() - 1]
        shares = (np.arange(n_levels) + 0.5) / n_levels
        at = np.quantile(values, shares, method="lower")
        places = np.unique(np.minimum(np.searchsorted(finite, at), len(middles) - 1))
        for place in places:
            for comparison in (ops.GE, ops.LE):
                yield channel, comparison, float(middles[place])
