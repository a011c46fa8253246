"""Counting, on traces of a measure, how often both of two formulae hold, only one, or neither.

The intervals are those of Clopper and Pearson: they hold at least as often as they say for every
probability and every number of traces, also for the rare cases that matter here, where
approximations are at their worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..errors import TraceError
from ..formula.core import Formula
from ..kernel import Progress, StlKernel
from ..robustness import robustness, satisfaction
from ..traces import BaseMeasure

MAX_VARIABLES = 1000  # of the measure that is made for formulae without one
CHUNK = 4096  # traces evaluated at once


class Counts(NamedTuple):
    """What the traces of a measure show about two formulae."""

    cases: list[int]  # traces on which BOTH, ONLY_A, ONLY_B, NEITHER hold
    has_angle: bool  # neither formula's robustness is 0 on all traces
    trace: np.ndarray | None  # (V, P): where they differ most; None if they are equal on all


def count(pair: list[Formula], kernel: StlKernel, progress: Progress | None) -> Counts:
    """Evaluate two formulae on all traces of a kernel."""
    names, total = kernel.measure.variables, kernel.measure.count(kernel.n_traces)
    counts = np.zeros(4, np.int64)
    nonzero = np.zeros(2, bool)
    best, trace = (False, 0.0), None  # whether just one formula holds, and the gap
    for block in kernel.traces():
        for start in range(0, len(block), CHUNK):
            part = block[start : start + CHUNK]
            # In float64 thresholds are not rounded, so that no trace contradicts a proof.
            holds = satisfaction(pair, part.astype(np.float64), variables=names)
            rho = robustness(pair, part, variables=names)
            counts += np.bincount(3 - 2 * holds[0] - holds[1], minlength=4)
            nonzero |= (rho != 0).any(axis=1)
            differs = holds[0] != holds[1]
            with np.errstate(over="ignore", invalid="ignore"):  # the kernel refuses such values
                gap = abs(rho[0] - rho[1])
            place = int(np.where(differs, gap, -1.0).argmax() if differs.any() else gap.argmax())
            key = (bool(differs[place]), float(gap[place]))
            if key > best:
                best, trace = key, part[place]
            if progress:
                progress(int(counts.sum()) / total)
    return Counts(counts.tolist(), bool(nonzero.all()), trace)


def default_measure(formulae: Iterable[Formula], points: int = 100) -> BaseMeasure:
    """mu0 with the variables x_0, x_1, ... up to the last one that the formulae use."""
    numbers = [n[2:] for phi in formulae for n in phi.variables if n[:2] == "x_"]
    n = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
    if n > MAX_VARIABLES:
        raise TraceError(
            f"x_{n - 1} would need {n} random variables; number the variables from x_0 on, "
            "or give a measure"
        )
    return BaseMeasure(n, points)


def interval(k: int, n: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval (low, high) for a probability with k hits in n trials."""
    tail = (1 - confidence) / 2
    return _lower(k, n, tail), 1 - _lower(n - k, n, tail)


def _lower(k: int, n: int, tail: float) -> float:
    """The p at which k or more hits in n trials have the probability `tail`, by bisection.

    Up to p = k / n the terms of that tail fall, by ratios that fall themselves, so a multiple of
    sqrt(n) of them is all that a float64 can hold.
    """
    if k == 0:
        return 0.0
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    j = np.arange(k, min(n, k + 64 + 12 * math.isqrt(n)))
    ratios = (n - j) / (j + 1)
    low, high = 0.0, k / n
    while low < (p := (low + high) / 2) < high:
        odds = p / (1 - p)
        first = math.exp(choose + k * math.log(p) + (n - k) * math.log1p(-p))
        if first * (1 + float(np.cumprod(ratios * odds).sum())) < tail:
            low = p
        else:
            high = p
    return p
