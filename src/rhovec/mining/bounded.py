"""Examples of one system only: a formula that they satisfy, and that says as much as it can.

Half of the traces choose the structure. On one part of them the search looks for formulae that hold on
all and reject most of what is made from them by simple damage (offsets, gains, reversal, shuffled time,
drift); the other part tells how much of that is left on traces that the search has not seen, which
chooses the size. The other half sets the shift: all thresholds move together until the worst of these n
traces is at the border. So a new trace of the same system satisfies the formula with probability at
least n / (n + 1) on average, and with confidence 1 - beta the share of satisfying traces is at least
beta ** (1 / n), if all traces are drawn alike and independently.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.core import Formula
from .cuts import MAX_NUMBER
from .data import Candidate, Data, Node, Scale
from .moves import SHIFT
from .result import About
from .search import Search, numbers, settled

DAMAGED = 4  # damaged traces per trace
DIGITS = 3  # thresholds are loosened to this many digits of a standard deviation


@dataclass(frozen=True)
class Bound:
    """One formula of the front."""

    formula: Formula
    tightness: float  # share of damaged traces that it rejects, shifted by traces next to them
    calibrated: float  # the same, shifted by the calibration traces, as it is here

    @property
    def size(self) -> int:
        return self.formula.size


@dataclass(frozen=True)
class Bounded:
    """Formulae that hold on examples of one system, from the smallest up, each tighter than the last.

    `formula` is the smallest whose tightness is within one standard error of the best; this choice
    does not look at the calibration traces.
    """

    front: tuple[Bound, ...]
    chosen: int
    n_structure: int
    n_calibration: int
    about: About
    notes: tuple[str, ...]
    evaluations: int
    seconds: float
    stopped: str

    @property
    def formula(self) -> Formula:
        return self.front[self.chosen].formula

    @property
    def text(self) -> str:
        return self.formula.to_text(self.about.dt)

    @property
    def coverage(self) -> float:
        """Least probability, on average, that a new trace satisfies the formula: n / (n + 1)."""
        return self.n_calibration / (self.n_calibration + 1)

    def coverage_at(self, confidence: float = 0.95) -> float:
        """Share of traces that satisfy it at least, with this confidence."""
        if not 0 < confidence < 1:
            raise RhovecError(f"confidence must be between 0 and 1, not {confidence}")
        return float((1 - confidence) ** (1 / self.n_calibration))

    @property
    def statement(self) -> str:
        return (
            f"a new trace of the same system satisfies it with probability at least "
            f"{self.coverage:.3f} on average, and at least {self.coverage_at():.3f} with 95 % "
            f"confidence ({self.n_calibration} calibration traces)"
        )

    def robustness(self, traces: Any) -> np.ndarray:
        return self.about.robustness(self.formula, traces)

    def predict(self, traces: Any) -> np.ndarray:
        """(N,) bool: whether traces satisfy the formula."""
        out: np.ndarray = self.robustness(traces) >= 0
        return out

    def requirements(self, name: str = "mined") -> str:
        """A requirement file that holds the chosen formula, and the rest of the front as comments."""
        return self.about.requirement_file(
            f"{self.n_structure + self.n_calibration} traces of one system",
            self.statement,
            f"{name}: {self.text}",
            [
                (one.formula, f"rejects {one.calibrated:.3f} of damaged traces")
                for one in self.front
                if one.formula is not self.formula
            ],
        )

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "size": one.size,
                "chosen": i == self.chosen,
                "tightness": one.tightness,
                "calibrated": one.calibrated,
                "formula": one.formula.to_text(self.about.dt),
            }
            for i, one in enumerate(self.front)
        ]

    def __str__(self) -> str:
        lines = ["  nodes  rejects  calibrated  formula"]
        lines += [
            f"{'>' if row['chosen'] else ' '} {row['size']:5}  {row['tightness']:7.3f}  "
            f"{row['calibrated']:10.3f}  {row['formula']}"
            for row in self.rows()
        ]
        notes = [f"note: {note}" for note in (self.statement, *self.notes)]
        return "\n".join([*lines, *notes])


def bound(
    values: np.ndarray, names: Sequence[str], about: About, notes: list[str], *, max_size: int,
    budget: int, seed: int, seconds: float | None,
) -> Bounded:  # fmt: skip
    """Formulae for traces (N, V, P) of one system, of which no channel is constant."""
    began = time.monotonic()
    if len(values) < 8:
        raise RhovecError(f"at least eight traces of one system are needed, not {len(values)}")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(values))
    scale = Scale.of(values[order[::2]], names)
    seen, check, held = (
        scale.standardise(values[order[part]]) for part in (np.s_[::4], np.s_[2::4], np.s_[1::2])
    )
    broken = damaged(seen, scale.flags, rng)
    data = Data(
        np.concatenate([seen, broken]), np.arange(len(seen) + len(broken)) < len(seen),
        (float(len(broken)), 1.0), scale.flags,
    )  # fmt: skip
    search = Search(data, max_size, budget, seed, None if seconds is None else began + seconds)
    search.run()
    against = damaged(check, scale.flags, rng)
    front: list[Bound] = []
    rejected: list[np.ndarray] = []
    for one in search.front():
        trial, final = (_shifted(one.candidate, part, scale) for part in (check, held))
        if trial is None or final is None:  # a flag differs, which no shift mends
            continue
        before, after = (
            _robustness(phi, against, scale) < 0 for phi in (trial, _loosened(final, scale))
        )
        if not front or before.mean() > front[-1].tightness:
            formula = scale.formula(_loosened(final, scale))
            front.append(Bound(formula, float(before.mean()), float(after.mean())))
            rejected.append(before)
    if not front:
        raise RhovecError(
            "no formula was found that holds on all traces: their flags differ; leave flags out"
        )
    best = rejected[-1]
    least = best.mean() - best.std() / math.sqrt(len(best))
    chosen = next(i for i, one in enumerate(front) if one.tightness >= least)
    return Bounded(
        tuple(front), chosen, len(seen) + len(check), len(held), about, tuple(notes), search.spent,
        time.monotonic() - began, search.stopped,
    )  # fmt: skip


def _robustness(phi: Candidate, values: np.ndarray, scale: Scale) -> np.ndarray:
    """(N,) in standard deviations, on standardised traces."""
    data = Data(values, np.ones(len(values), bool), (1.0, 1.0), scale.flags)
    rho: np.ndarray = numbers(data, [(phi, SHIFT)], np.float64)[0]
    return rho


def _shifted(phi: Candidate, values: np.ndarray, scale: Scale) -> Candidate | None:
    """All thresholds moved until the worst trace is at the border."""
    worst = float(_robustness(phi, values, scale).min())
    return None if abs(worst) > MAX_NUMBER else settled((phi, SHIFT), worst, 0, scale.flags)


def damaged(values: np.ndarray, flags: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Traces (DAMAGED * N, V, P) of standardised ones, each with one channel changed in one way.

    Flags are negated for a part of the time instead.
    """
    out = np.concatenate([values] * DAMAGED)
    points = values.shape[2]
    times = np.arange(points)
    for trace in out:
        v = int(rng.integers(len(trace)))
        x, kind = trace[v], int(rng.integers(5))
        if flags[v]:
            a, b = np.sort(rng.integers(0, points + 1, 2))
            x[a:b] *= -1
        elif kind == 0:
            x += rng.normal() * 2
        elif kind == 1:
            x *= np.exp(rng.normal())
        elif kind == 2:
            x[:] = x[::-1].copy()
        elif kind == 3:
            cuts = np.sort(rng.integers(0, points, 3))
            pieces = np.split(x.copy(), cuts)
            x[:] = np.concatenate([pieces[i] for i in rng.permutation(4)])
        else:
            x += rng.normal() * 2 * times / max(1, points - 1)
    return out


def _loosened(candidate: Candidate, scale: Scale) -> Candidate:
    """Thresholds with fewer digits, moved so that the formula only gets easier to satisfy."""
    rows: list[Node] = []
    for op, lo, hi, channel, threshold in candidate:
        if channel >= 0 and not scale.flags[channel]:
            size = float(scale.scale[channel])
            unit = 10.0 ** (math.floor(math.log10(size)) - DIGITS + 1)
            raw = scale.raw(channel, threshold) / unit
            raw = (math.floor(raw) if op == ops.GE else math.ceil(raw)) * unit
            digits = max(0, DIGITS - 1 - math.floor(math.log10(size)))
            threshold = (round(raw, digits) - float(scale.centre[channel])) / size
        rows.append((op, lo, hi, channel, threshold))
    return tuple(rows)
