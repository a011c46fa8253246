"""A row of a report: what one log shows about one requirement, in seconds and words."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..formula import operators as ops
from ..formula.operators import Channel
from ..formula.printer import channel_text
from ..formula.requirements import Requirement
from .bounds import BEST, evaluate
from .explain import Explanation, explained
from .parts import core
from .sampled import Sampled, moment
from .verdict import Outcome, PartVerdict, Verdict

BINS = 240  # of a curve
MIN_AROUND = 30  # samples that a picture shows before and after the violated stretches

Span = tuple[float, float]  # first and last time, in seconds; in samples if a log has no times
Spans = tuple[Span, ...]


class Curve(NamedTuple):
    """A signal over a log, its extremes kept: least and greatest value in bins of equal length."""

    least: np.ndarray  # (bins,); NaN where nothing is known
    greatest: np.ndarray

    def coarser(self, bins: int) -> Curve:
        """The curve in no more than this many bins."""
        n = len(self.least)
        starts = np.unique(np.linspace(0, n, min(bins, n), False).astype(np.int64))
        return Curve(np.fmin.reduceat(self.least, starts), np.fmax.reduceat(self.greatest, starts))


class Figure(NamedTuple):
    """What a picture of a violation shows: the log around the violated stretches."""

    log: Span
    start: float  # of what is shown
    end: float
    channel: str  # the expression that the deciding atom compares
    unit: str
    limit: float | None  # None for flags and modes
    names: Mapping[float, str]  # of the values of these
    signal: Curve
    robustness: Curve  # of the body of the requirement
    violated: Spans
    moment: float
    timed: bool


class Answered(NamedTuple):
    """How often the responses of a requirement were asked for."""

    triggered: int = 0
    answered: int = 0
    violated: int = 0
    slowest: float | None = None  # from a trigger to its answer

    def plus(self, other: Answered) -> Answered:
        slowest = [s for s in (self.slowest, other.slowest) if s is not None]
        return Answered(
            self.triggered + other.triggered, self.answered + other.answered,
            self.violated + other.violated, max(slowest, default=None),
        )  # fmt: skip


COLUMNS = (  # of `Row.record`
    "requirement", "title", "source", "trace", "file", "verdict", "robustness", "unit", "since",
    "intervals", "explanation", "depends_on_resampling", "doubtful", "doubt", "robustness_held",
    "satisfied_held", "robustness_least", "robustness_greatest", "vacuous", "triggered", "answered",
    "slowest",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What one log shows about one requirement. Times are seconds, or samples without times."""

    requirement: str  # its identifier, otherwise the formula as it was written
    title: str
    source: str  # of the requirement
    trace: str
    file: str
    verdict: Outcome
    robustness: float | None  # as the log shows it; None if open, infinite for flags and modes
    unit: str
    intervals: Spans  # where it is violated, or an obligation is open
    explanation: str
    depends_on_resampling: bool
    doubtful: Spans  # where samples that were recorded between those of the grid could turn it
    doubt: float | None  # the robustness at the worst of these
    bounds: Span  # on the robustness, for all values of the unknown samples
    held: float  # the robustness if unknown samples are held
    satisfied_held: bool
    answers: Answered | None  # of responses
    vacuous: bool  # of responses that were never asked for
    channel: str = ""  # the expression that decides; its scale ranks the margin
    figure: Figure | None = None
    timed: bool = True  # whether times are seconds

    @property
    def since(self) -> float | None:
        return self.intervals[0][0] if self.intervals else None

    def record(self) -> dict[str, Any]:
        """The row for JSON and tables."""
        answers = self.answers or Answered()
        return dict(zip(COLUMNS, (
            self.requirement, self.title, self.source, self.trace, self.file, str(self.verdict),
            self.robustness, self.unit, self.since, [list(span) for span in self.intervals],
            self.explanation, self.depends_on_resampling, [list(span) for span in self.doubtful],
            self.doubt, self.held, self.satisfied_held, self.bounds[0], self.bounds[1], self.vacuous,
            answers.triggered if self.answers else None, answers.answered if self.answers else None,
            answers.slowest,
        ), strict=True))  # fmt: skip


class Moments(NamedTuple):
    """Number, mean and sum of squared deviations of samples, which can be added up."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def plus(self, other: Moments) -> Moments:
        n = self.n + other.n
        if not n:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.n / n
        return Moments(
            n, mean, self.squares + other.squares + apart * apart * (self.n * other.n / n)
        )

    @property
    def deviation(self) -> float:
        """Infinite for samples so large that their squares are."""
        found = math.sqrt(self.squares / self.n) if self.n else 0.0
        return math.inf if math.isnan(found) else found


class Context(NamedTuple):
    """What the rows of a log have in common."""

    log: Sampled
    file: str
    begin: str
    discrete: Collection[str]
    units: Mapping[str, str]
    labels: Mapping[str, Mapping[str, int]]
    figures: bool


def row_of(requirement: Requirement, verdict: Verdict, context: Context) -> Row:
    """The row of a verdict; violated and open ones are explained."""
    log, outcome = context.log, verdict.outcome
    decides = [part for part in verdict.parts if part.outcome == outcome]
    spans: Iterable[tuple[int, int]] = ()
    text, unit, channel, figure = "", "", "", None
    if outcome in (Outcome.VIOLATED, Outcome.OPEN):
        violated = outcome == Outcome.VIOLATED
        spans = _union([part.violated if violated else part.open for part in decides])
        why = explained(
            verdict, log, context.begin, context.discrete, context.units, context.labels
        )
        text, unit = str(why), why.unit
        channel = channel_text(why.atom.channels[0]) if why.atom.channels else ""
        if context.figures and violated and channel:
            figure = _figure(why, context)
    else:
        unit = _unit(verdict.deciding, context)
        text = _least_margin(verdict.deciding, log, unit)
    doubts = [part.doubt for part in verdict.parts if part.doubt is not None]
    return Row(
        requirement.key, requirement.title, requirement.source, log.name,
        context.file, outcome, verdict.margin, unit, _times(log, spans), text,
        verdict.depends_on_resampling, _times(log, _union([p.doubtful for p in verdict.parts])),
        min(doubts, default=None), verdict.robustness, verdict.held, verdict.satisfied_held,
        _answered(verdict.parts, log), verdict.vacuous, channel, figure, log.dt is not None,
    )  # fmt: skip


def _least_margin(part: PartVerdict, log: Sampled, unit: str) -> str:
    """What holds by how much, and where the least; empty for flags and modes."""
    if part.margin is None or not math.isfinite(part.margin):
        return ""
    ((when, _),) = _times(log, [(part.worst or 0, 0)])
    at = moment(when, log.dt is not None)
    by = f"{part.margin:.6g} {unit}".rstrip()
    return f"{part.outcome} by {by} at least, which is at {at}"


def _unit(part: PartVerdict, context: Context) -> str:
    """The unit of all that a part compares, if it is one."""
    found = set()
    for channel in part.part.body.channels:
        names = [ops.name_of(variable) for variable, _ in channel]
        if not set(names) <= set(context.discrete):
            found |= {context.units.get(name, "") if len(names) == 1 else "" for name in names}
    return found.pop() if len(found) == 1 else ""


def _times(log: Sampled, spans: Iterable[tuple[int, int]]) -> Spans:
    """Stretches of samples as times, without the last digits that steps add up to."""
    return tuple((_round(log.time(a)), _round(log.time(b))) for a, b in spans)


def _round(time: float) -> float:
    return round(float(time), 9)


def _union(stretches: Sequence[Iterable[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Stretches of several parts as one list, in order and joined where they touch."""
    out: list[tuple[int, int]] = []
    for a, b in sorted(span for spans in stretches for span in spans):
        if out and a <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], b))
        else:
            out.append((a, b))
    return out


def _answered(parts: Iterable[PartVerdict], log: Sampled) -> Answered | None:
    total = None
    for part in parts:
        if (one := part.answers) is not None:
            step = 1 if log.dt is None else log.dt
            slowest = None if one.slowest is None else _round(one.slowest * step)
            total = (total or Answered()).plus(
                Answered(one.triggered, one.answered, one.violated, slowest)
            )
    return total


# -- signals ---------------------------------------------------------------------------------------


def values_of(channel: Channel, samples: Mapping[str, np.ndarray]) -> np.ndarray:
    """The expression of a channel, (P,); NaN where a sample is unknown."""
    total: np.ndarray | None = None
    for variable, coefficient in channel:
        x = samples[ops.name_of(variable)]
        if lag := ops.lag_of(variable):
            shifted = np.full(len(x), np.nan)
            if abs(lag) < len(x):
                shifted[max(0, lag) : len(x) + min(0, lag)] = x[max(0, -lag) : len(x) - max(0, lag)]
            x = shifted
        x = x if coefficient == 1 else coefficient * x
        total = x if total is None else total + x
    assert total is not None
    return total


def moments_of(values: np.ndarray) -> Moments:
    known = values[~np.isnan(values)]
    if not len(known):
        return Moments()
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(known.mean())
        return Moments(len(known), mean, float(((known - mean) ** 2).sum()))


def _figure(why: Explanation, context: Context) -> Figure:
    log, channel = context.log, why.atom.channels[0]
    least = greatest = values_of(channel, log.samples)
    if len(channel) == 1 and channel[0][1] == 1 and (name := str(channel[0][0])) in log.least:
        least, greatest = np.fmin(least, log.least[name]), np.fmax(greatest, log.greatest[name])
    discrete = {ops.name_of(variable) for variable, _ in channel} <= set(context.discrete)
    codes = context.labels.get(ops.name_of(channel[0][0]), {"off": 0, "on": 1}) if discrete else {}
    ((_, bounds),) = evaluate([core(why.part.part.body)], [log], context.begin, context.discrete)
    stretches = why.part.violated
    first, last = min(stretches[0][0], why.moment), max(stretches[-1][1], why.moment)
    around = max(MIN_AROUND, 2 * (last - first))
    first, last = max(0, first - around), min(log.points - 1, last + around)
    shown = slice(first, last + 1)
    body = bounds[0, BEST, 0, shown]
    whole, (start, end) = _times(log, [(0, log.points - 1), (first, last)])
    return Figure(
        whole, start, end, channel_text(channel), why.unit,
        None if discrete else float(why.atom.rows()[0][4]),
        {float(code): text for text, code in codes.items()},
        Curve(least[shown], greatest[shown]).coarser(BINS), Curve(body, body).coarser(BINS),
        _times(log, stretches), _times(log, [(why.moment, why.moment)])[0][0], log.dt is not None,
    )  # fmt: skip
