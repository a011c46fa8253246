"""What logs show about requirements: violated, holds, holds so far, or open.

    verdicts(formulae, logs)[requirement][log].outcome

Samples before the start, after the end and inside gaps of a log are unknown. A verdict is sound: no
values of the unknown samples contradict it. It is not complete: a requirement such as `p or not p` may
be called open. It is exact where the formula uses every variable in one direction only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.reader import Formulae, as_formulae
from ..formula.vocabulary import flags_in
from .bounds import BEST, GREATEST, HELD, LEAST, TINY, WORST, evaluate, names_of
from .parts import Part, Response, core, parts, response, so_far
from .sampled import Sampled, as_sampled, require

Runs = tuple[tuple[int, int], ...]  # first and last sample of each stretch


class Outcome(StrEnum):
    """From the one that decides a conjunction to the one that decides nothing."""

    VIOLATED = "violated"
    OPEN = "open"
    SO_FAR = "holds so far"
    HOLDS = "holds"


_ORDER = list(Outcome)


class Answers(NamedTuple):
    """How often a response was asked for, in stretches in which its trigger holds."""

    triggered: int
    answered: int  # the response holds throughout the stretch
    violated: int  # it is violated somewhere in the stretch
    slowest: int | None  # steps from a trigger to its answer; None without any

    @property
    def open(self) -> int:
        return self.triggered - self.answered - self.violated


@dataclass(frozen=True)
class PartVerdict:
    """What a log shows about one part, `always[lo,hi] body`; times are numbers of samples."""

    part: Part
    outcome: Outcome
    robustness: tuple[float, float]  # bounds
    margin: float | None  # by which it is violated (< 0) or holds; None while it is open
    worst: int | None  # the time at which the margin is that
    violated: Runs  # where the body is violated
    open: Runs  # where the body is neither violated nor met; the end of the log is one of its times
    held: float  # the robustness if unknown samples are held
    satisfied_held: bool  # whether it is satisfied then
    resampled: Outcome  # by the ranges that the samples had before resampling
    doubtful: Runs  # where these ranges could turn the body
    doubt: float | None  # the margin if all samples are at their worst in these ranges
    answers: Answers | None  # of a response


@dataclass(frozen=True)
class Verdict:
    """What a log shows about a requirement, part by part."""

    parts: tuple[PartVerdict, ...]

    @property
    def outcome(self) -> Outcome:
        return min((part.outcome for part in self.parts), key=_ORDER.index)

    @property
    def deciding(self) -> PartVerdict:
        """The part that is violated most, or open first; if all hold, the one with the least margin."""
        outcome = self.outcome
        found = [part for part in self.parts if part.outcome == outcome]
        if outcome == Outcome.OPEN:
            return min(found, key=lambda part: part.open)
        return min(
            found if outcome == Outcome.VIOLATED else self.parts,
            key=lambda part: part.margin or 0.0,
        )

    @property
    def robustness(self) -> tuple[float, float]:
        """Bounds on the robustness for all values of the unknown samples."""
        lower, upper = zip(*(part.robustness for part in self.parts), strict=True)
        return min(lower), min(upper)

    @property
    def margin(self) -> float | None:
        """At least how strongly it is violated (<= 0) or holds, by the log; None if it is open."""
        return self.deciding.margin

    @property
    def since(self) -> int | None:
        """The sample from which on it is violated, or an obligation is open; otherwise None."""
        stretches = self.deciding.violated or self.deciding.open
        return stretches[0][0] if stretches else None

    @property
    def held(self) -> float:
        """The robustness if unknown samples are held: as the last known one, or the first."""
        return min(part.held for part in self.parts)

    @property
    def satisfied_held(self) -> bool:
        return all(part.satisfied_held for part in self.parts)

    @property
    def depends_on_resampling(self) -> bool:
        """Whether samples that resampling has left out could change the outcome."""
        return self.outcome != min((part.resampled for part in self.parts), key=_ORDER.index)

    @property
    def vacuous(self) -> bool:
        """Whether it consists of responses that were never triggered."""
        return all(part.answers and not part.answers.triggered for part in self.parts)


class _Plan(NamedTuple):
    """Which formulae to evaluate for a part."""

    part: Part
    body: int
    so_far: int
    response: Response | None
    trigger: int
    answer: int


def verdicts(
    formulae: Formulae,
    logs: Sequence[Any],
    *,
    begin: str = "unknown",
    discrete: Collection[str] | None = None,
) -> list[list[Verdict]]:
    """What each log shows about each formula: one list of verdicts per formula.

    logs: Logs, or whatever `as_sampled` takes; NaN is an unknown sample.
    begin: "unknown", or "held", which takes the first sample for the past before the log.
    discrete: variables whose atoms have no margin, but are true or false (inf, -inf); by default those
        that are only compared with 0.5 and are 0 or 1 in all logs.
    """
    if begin not in ("unknown", "held"):
        raise RhovecError(f'begin must be "unknown" or "held", not {begin!r}')
    if isinstance(logs, Mapping | str | Sampled) or not isinstance(logs, Iterable):
        raise RhovecError(f"logs must be a list of them, not {type(logs).__name__}; write [log]")
    if not len(logs):
        raise RhovecError("no logs given")
    given, _ = as_formulae(formulae)
    read = [as_sampled(log) for log in logs]
    for log in read:
        require(log, names_of(given))
    if discrete is None:
        discrete = flags(given, read)
    needed: dict[Formula, int] = {}

    def number(phi: Formula) -> int:
        return needed.setdefault(phi, len(needed))

    def plan(part: Part) -> _Plan:
        body = core(part.body)
        asked = response(part.body)
        extra = [None, None] if asked is None else [asked.trigger, asked.answer]
        trigger, answer = (-1 if phi is None else number(core(phi)) for phi in extra)
        return _Plan(part, number(body), number(so_far(body)[0]), asked, trigger, answer)

    plans = [[plan(part) for part in parts(phi)] for phi in given]
    out: list[list[Verdict]] = [[] for _ in given]
    for first, values in evaluate(list(needed), read, begin, discrete):
        for i in range(values.shape[2]):
            points = read[first + i].points
            for found, each in zip(out, plans, strict=True):
                found.append(Verdict(tuple(_judge(p, values[:, :, i], points) for p in each)))
    return out


def flags(formulae: Sequence[Formula], logs: Sequence[Sampled]) -> frozenset[str]:
    """Variables that are only compared with 0.5, alone, and whose known samples are all 0 or 1."""

    def binary(name: str) -> bool:
        samples = (log.samples[name] for log in logs)
        return all(((x == 0) | (x == 1) | np.isnan(x)).all() for x in samples)

    return frozenset(filter(binary, flags_in(formulae)))


def _judge(plan: _Plan, values: np.ndarray, points: int) -> PartVerdict:
    """values (formulae, assumptions, times): of `bounds.evaluate` on a log with `points` samples."""
    part = plan.part
    body, met = values[plan.body], values[plan.so_far]
    end = body.shape[1] - 1  # all later times are like this one
    first = min(part.lo, end)
    stop = 1 + (end if part.hi == ops.UNBOUNDED else min(part.hi, end))
    least = body[:, first:stop].min(axis=1)
    # An unbounded window is met so far if it begins within the log and its body holds to the end.
    reached = points if part.hi == ops.UNBOUNDED else stop
    so_far = met[:, first:reached].min(axis=1, initial=np.inf)
    if part.hi == ops.UNBOUNDED and part.lo >= points:
        so_far = np.full(len(met), -np.inf)

    def outcome(worst: int, best: int) -> Outcome:
        if least[best] < 0:
            return Outcome.VIOLATED
        if least[worst] > 0:
            return Outcome.HOLDS
        return Outcome.SO_FAR if so_far[worst] > 0 else Outcome.OPEN

    def stretches(mask: np.ndarray) -> Runs:
        """Of a mask over times from `first` on; those that begin within the log end with it."""
        found = ((max(part.lo, a + first), max(part.lo, b + first)) for a, b in runs(mask))
        return tuple((a, b if b < points else max(a, points - 1)) for a, b in found)

    decided = outcome(WORST, BEST)
    violated: Runs = ()
    waiting: Runs = ()
    margin = worst = None
    if decided == Outcome.VIOLATED:
        violated = stretches(body[BEST, first:stop] < 0)
    if decided in (Outcome.VIOLATED, Outcome.OPEN):
        seen = slice(first, min(reached, points + 1))
        waiting = stretches((met[WORST, seen] < 0) & (body[BEST, seen] > 0))
    if decided == Outcome.OPEN:
        waiting = waiting or ((part.lo, part.lo),)
    else:
        by = {
            Outcome.VIOLATED: body[BEST, first:stop], Outcome.HOLDS: body[WORST, first:stop],
            Outcome.SO_FAR: met[WORST, first:reached],
        }[decided]  # fmt: skip
        margin, worst = rounded(by.min()), max(part.lo, first + int(by.argmin()))
    resampled, doubt = decided, None
    doubtful: Runs = ()
    if len(body) > LEAST:
        seen = slice(first, min(reached, points))
        turned = (met[WORST, seen] > 0) & (met[LEAST, seen] < 0)
        turned |= (body[BEST, seen] < 0) & (body[GREATEST, seen] > 0)
        resampled, doubtful = outcome(LEAST, GREATEST), stretches(turned)
        doubt = rounded(so_far[LEAST])
    return PartVerdict(
        part, decided, (rounded(least[WORST]), rounded(least[BEST])), margin, worst, violated,
        waiting, rounded(least[HELD]), bool(least[HELD] > 0), resampled, doubtful, doubt,
        _answers(plan, values, slice(first, min(stop, points))),
    )  # fmt: skip


def _answers(plan: _Plan, values: np.ndarray, window: slice) -> Answers | None:
    if plan.response is None:
        return None
    trigger = values[plan.trigger, WORST, window] > 0
    starts = np.flatnonzero(trigger & ~np.concatenate([[False], trigger[:-1]]))
    if not len(starts):
        return Answers(0, 0, 0, None)
    met = values[plan.so_far, WORST, window] > 0
    violated = trigger & (values[plan.body, BEST, window] < 0)
    slowest = None
    if plan.response.answer is not None:
        answered = values[plan.answer, WORST] > 0
        end = len(answered) - 1
        following = np.where(answered, np.arange(end + 1), 2 * end + 2)
        following = np.minimum.accumulate(following[::-1])[::-1]
        asked = window.start + np.flatnonzero(trigger & met)
        earliest = asked + plan.response.near  # after the end, the last sample is held
        reply = following[np.minimum(earliest, end)]
        delays = (np.maximum(reply, earliest) - asked)[reply <= end]
        slowest = int(delays.max()) if len(delays) else None
    return Answers(
        len(starts),
        int(np.logical_and.reduceat(met | ~trigger, starts).sum()),
        int(np.logical_or.reduceat(violated, starts).sum()),
        slowest,
    )


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of each stretch of a mask that is true."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True))


def rounded(value: float) -> float:
    """A value without what stands for the truth value at zero."""
    return 0.0 if abs(value) <= TINY else float(value)
