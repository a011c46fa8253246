"""Where and why a log violates or meets a requirement.

An explanation goes down the formula twice. Once for every sample that the verdict needs: where an
operator needs all of its operands or times, all of them, otherwise one that decides. With every other
sample unknown, the verdict is the same. And once for the path from the requirement to the atom, and the
moment, whose distance is the margin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.parser import parse
from ..formula.programs import Programs
from ..formula.reader import FormulaLike, as_formulae
from ..traces.logs import Log
from .bounds import BEST, WORST, Lanes, names_of, run
from .parts import AFTER, INSIDE, core, negative, operands, reach, so_far
from .sampled import Sampled, as_sampled, moment, require
from .verdict import Outcome, PartVerdict, Runs, Verdict, flags, rounded, runs, verdicts


class Step(NamedTuple):
    """A sub-formula on the way to the atom that decides, and the time at which it does."""

    formula: Formula
    time: int
    value: float | None = None  # its robustness; None where it is unknown
    holds: bool | None = None


@dataclass(frozen=True)
class Explanation:
    """Why a log gives a verdict. Times are numbers of samples; `log.time` gives seconds.

    path: from the part of the requirement that decides down to an atom. If the verdict is open, every
        step is unknown, and the last one says which atom is missing and when.
    cause: variable -> stretches of samples that suffice for the verdict.
    """

    verdict: Verdict
    log: Sampled
    path: tuple[Step, ...]
    cause: Mapping[str, Runs]
    unit: str  # of the margin, if it is known
    labels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # codes of enumerations
    discrete: Collection[str] = ()

    @property
    def part(self) -> PartVerdict:
        return self.verdict.deciding

    @property
    def atom(self) -> Formula:
        return self.path[-1].formula

    @property
    def moment(self) -> int:
        return self.path[-1].time

    @property
    def violated(self) -> list[tuple[float, float]]:
        """Where the body of the deciding part is violated, in seconds if the log has them."""
        return [(self.log.time(a), self.log.time(b)) for a, b in self.part.violated]

    @property
    def open(self) -> list[tuple[float, float]]:
        """Where an obligation of the deciding part is open."""
        return [(self.log.time(a), self.log.time(b)) for a, b in self.part.open]

    @property
    def missing(self) -> str:
        """Where the samples lie that an open verdict lacks; empty for the others."""
        if self.verdict.outcome != Outcome.OPEN:
            return ""
        lags = [ops.lag_of(v) for channel in self.atom.channels for v, _ in channel] or [0]
        if self.moment - min(lags) >= self.log.points:
            return "after the log"
        return "before the log" if self.moment < max(lags) else "in a gap"

    def __str__(self) -> str:
        outcome = self.verdict.outcome
        if outcome == Outcome.OPEN:
            return (
                f"open since {self._when(self.open[0][0])}: {self.atom_text} is unknown at "
                f"{self._when(self.log.time(self.moment))}, {self.missing}"
            )
        where = ""
        if outcome == Outcome.VIOLATED:
            (first, last), *more = self.violated
            where = f" at {self._when(first)}"
            if last > first:
                where = f" from {self._when(first)} to {self._when(last)}"
            if more:
                where += f" and {len(more)} more time{'s' if more[1:] else ''}"
        step = self.path[-1]
        verb = "holds" if step.holds else "fails"
        value = step.value or 0.0
        by = "" if np.isinf(value) else f" by {abs(value):.6g} {self.unit}".rstrip()
        when = self._when(self.log.time(self.moment))
        return f"{outcome}{where}: {self.atom_text} {verb}{by} at {when}"

    @property
    def atom_text(self) -> str:
        """The atom as one writes it: `brake` for a flag, `gear == "D"` for a mode."""
        if self.atom.size > 1:  # what begins after the log is unknown as a whole
            return self.atom.to_text(dt=self.log.dt)
        ((op, _, _, channel, threshold),) = self.atom.rows()
        name = ops.name_of(channel[0][0]) if channel and len(channel) == 1 else ""
        if name in self.labels:  # == is within one half of the code, from either side
            code = threshold - 0.5 if op in (ops.LE, ops.GT) else threshold + 0.5
            label = next((text for text, one in self.labels[name].items() if one == code), None)
            if label is not None:
                return f'{name} {"==" if op in (ops.LE, ops.GE) else "!="} "{label}"'
        if name in self.discrete and name not in self.labels and threshold == 0.5:
            return name if op in (ops.GE, ops.GT) else f"not {name}"
        return str(self.atom)

    def _when(self, time: float) -> str:
        return moment(time, self.log.dt is not None)


def explain(
    phi: FormulaLike,
    trace: Any,
    *,
    variables: Sequence[str] | None = None,
    dt: float | str | None = None,
    begin: str = "unknown",
    discrete: Collection[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> Explanation:
    """What a trace shows about a formula, where, and why.

    trace: variable -> (P,), an array (V, P) with `variables`, a log of `read_logs` whose times are even,
        or a `check.Sampled`; NaN is an unknown sample, and so are all before the first and after the
        last one.
    dt: sampling step in seconds; times, and the time bounds of a text, are then in seconds.
    begin: "unknown", or "held", which takes the first sample for the past before the trace.
    discrete: variables whose atoms have no margin, but are true or false (inf, -inf); by default those
        that are only compared with 0.5 and are always 0 or 1.
    units: of the variables, for the margin and for thresholds in other units.
    """
    log = as_sampled(trace, variables, dt)
    if dt is not None and log.dt != float(dt):
        raise RhovecError(
            f"the log's samples are {log.dt:g} s apart, not {float(dt):g} s; leave out dt"
        )
    labels = trace.labels if isinstance(trace, Log) else {}
    if isinstance(trace, Log):
        units = {**trace.units, **(units or {})}
    if isinstance(phi, str):
        phi = parse(phi, dt=log.dt if dt is None else dt, units=units, labels=labels)
    formulae, single = as_formulae(phi)
    if not single:
        raise RhovecError("explain takes one formula; call it once for each")
    require(log, names_of(formulae))
    if discrete is None:
        discrete = {*flags(formulae, [log]), *labels}
    verdict = verdicts(formulae, [log], begin=begin, discrete=discrete)[0][0]
    return explained(verdict, log, begin, discrete, units or {}, labels)


def explained(
    verdict: Verdict,
    log: Sampled,
    begin: str,
    discrete: Collection[str],
    units: Mapping[str, str],
    labels: Mapping[str, Mapping[str, int]] | None = None,
) -> Explanation:
    """Why a log gives a verdict, which `verdicts` has found with the same options."""
    outcome, deciding = verdict.outcome, verdict.deciding
    if outcome == Outcome.OPEN:
        path = _Nodes(deciding, log, begin, discrete).path()
        return Explanation(verdict, log, path, {}, "", labels or {}, discrete)
    used = names_of([part.part.body for part in verdict.parts])
    needed = {name: np.zeros(log.points, bool) for name in used}
    path = ()
    for part in [deciding] if outcome == Outcome.VIOLATED else verdict.parts:
        nodes = _Nodes(part, log, begin, discrete)
        nodes.mark(needed)
        if part is deciding:
            path = nodes.path()
    cause = {name: tuple(runs(mask)) for name, mask in needed.items() if mask.any()}
    unit = _unit(path[-1].formula, units)
    return Explanation(verdict, log, path, cause, unit, labels or {}, discrete)


def _unit(atom: Formula, units: Mapping[str, str]) -> str:
    """The unit of an atom's robustness, if it compares a single variable."""
    terms = [term for channel in atom.channels for term in channel]
    if len(terms) != 1 or abs(terms[0][1]) != 1:
        return ""
    return units.get(ops.name_of(terms[0][0]), "")


class _Nodes:
    """Every node of a part at every time, at its worst and at its best."""

    def __init__(self, verdict: PartVerdict, log: Sampled, begin: str, discrete: Collection[str]):
        self.log, self.held = log, begin == "held"
        self.original = verdict.part.formula
        self.origin: list[int] = []  # for each node of phi the one of the original
        self.phi = core(self.original, self.origin)
        if verdict.outcome in (Outcome.SO_FAR, Outcome.OPEN):
            self.phi, nodes = so_far(self.phi)
            self.origin = [self.origin[node] for node in nodes]
        violated = verdict.outcome == Outcome.VIOLATED
        self.assumption = BEST if violated else WORST
        self.rows, self.sizes = self.phi.rows(), self.phi.shape()[0].tolist()
        self.negated = negative(self.phi)
        self.wanted = [violated == negated for negated in self.negated]
        early, late = reach(self.phi)
        lanes = Lanes([log], names_of([self.phi]), 1 + self._before(early), 1 + late, begin)
        self.zero, self.end = lanes.before, lanes.points - 1
        self.values: list[np.ndarray] = []  # (2, times) of each node
        for node, row in enumerate(self.rows):
            op, lo, hi, channel, _ = row
            if channel is not None:
                value = lanes.column(row, self.negated[node], discrete)[: BEST + 1]
            elif ops.arity(op) == 0:
                value = np.full((2, lanes.points), np.inf if op == ops.TRUE else -np.inf)
            else:
                below = [self.values[i] for i in self._operands(node)]
                value = _apply(op, lo, hi, below)
            self.values.append(value)

    def _before(self, early: int) -> int:
        """How many times before the log a node may be asked for."""
        looks_back = any(
            ops.IS_PAST[op] or (channel and any(ops.lag_of(v) > 0 for v, _ in channel))
            for op, _, _, channel, _ in self.rows
        )
        return early if looks_back else 0

    def _operands(self, node: int) -> list[int]:
        return operands(self.phi, node, self.sizes)

    def _window(self, node: int, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last time of the window of an operator at some times, within those evaluated."""
        op, lo, hi, _, _ = self.rows[node]
        far = self.end + 1 if hi == ops.UNBOUNDED else min(hi, self.end + 1)
        a, b = (-far, -lo) if ops.IS_PAST[op] else (min(lo, far), far)
        return np.clip(times + a, 0, self.end), np.clip(times + b, 0, self.end)

    # -- the samples that suffice ----------------------------------------------------------------

    def mark(self, needed: Mapping[str, np.ndarray]) -> None:
        """Add the samples that suffice for the value of the root at time 0."""
        wanted_at = [np.zeros(self.end + 1, bool) for _ in self.rows]
        wanted_at[-1][self.zero] = True
        for node in range(len(self.rows) - 1, -1, -1):
            times = np.flatnonzero(wanted_at[node])
            if not len(times):
                continue
            op, channel = self.rows[node][0], self.rows[node][3]
            below = self._operands(node)
            if channel is not None:
                self._mark_atom(node, times, needed)
            elif op == ops.NOT:
                wanted_at[below[0]][times] = True
            elif op in (ops.AND, ops.OR, ops.IMPLIES):
                if self.wanted[node] == (op == ops.AND):
                    chosen = [times, times]
                else:
                    left = self._stronger(*below)[times]
                    chosen = [times[left], times[~left]]
                for operand, some in zip(below, chosen, strict=True):
                    wanted_at[operand][some] = True
            elif op in (ops.ALWAYS, ops.EVENTUALLY, ops.ONCE, ops.HISTORICALLY):
                first, last = self._window(node, times)
                if self.wanted[node] != (op in (ops.ALWAYS, ops.HISTORICALLY)):
                    first = last = self._chosen(below[0], first, last)
                wanted_at[below[0]] |= _covered(first, last, self.end + 1)
            elif op in (ops.UNTIL, ops.RELEASE, ops.SINCE):
                for operand, mask in zip(below, self._until(node, times), strict=True):
                    wanted_at[operand] |= mask
            elif ops.arity(op):
                ops.refuse(op, "an explanation")

    def _strength(self, node: int) -> np.ndarray:
        """How far a node is on the side that is wanted of it, (times,); negative on the other one."""
        value = self.values[node][self.assumption]
        strength: np.ndarray = value if self.wanted[node] else -value
        return strength

    def _stronger(self, left: int, right: int) -> np.ndarray:
        return self._strength(left) >= self._strength(right)

    def _chosen(self, operand: int, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """A time of each window at which the operand is as wanted: the clearest one of a single
        window; of several the last one, which neighbouring windows share."""
        strength = self._strength(operand)
        if len(first) == 1:
            return np.array([first[0] + strength[first[0] : last[0] + 1].argmax()])
        found: np.ndarray = _last_before(strength > 0)[last]
        return found

    def _exists(self, node: int) -> bool:
        """Whether until, release or since is explained by one time of its window, not by all."""
        return self.wanted[node] != (self.rows[node][0] == ops.RELEASE)

    def _until(self, node: int, times: np.ndarray) -> list[np.ndarray]:
        """Where the operands of until, release or since are needed."""
        op = self.rows[node][0]
        left, right = self._operands(node)
        first, last = self._window(node, times)
        ready = self._strength(left) > 0
        size = self.end + 1
        done = self._strength(right) > 0
        if op == ops.SINCE:  # the same with time reversed
            ready, done = ready[::-1], done[::-1]
            times, first, last = self.end - times, self.end - last, self.end - first
        if self._exists(node):  # the right one at some time, and the left one up to it
            found = _first_after(done)[first]
            masks = [_covered(times, found, size), _covered(found, found, size)]
        else:  # the right one never, or the left one earlier
            found = _first_after(ready)[times]
            stops = found <= last
            masks = [
                _covered(found[stops], found[stops], size),
                _covered(first, np.where(stops, found - 1, last), size),
            ]
        return [mask[::-1] for mask in masks] if op == ops.SINCE else masks

    def _mark_atom(self, node: int, times: np.ndarray, needed: Mapping[str, np.ndarray]) -> None:
        channel = self.rows[node][3]
        if channel in (AFTER, INSIDE):
            return
        for variable, _ in channel or ():
            samples = times - self.zero - ops.lag_of(variable)
            if self.held:
                samples = np.maximum(samples, 0)
            needed[ops.name_of(variable)][samples] = True

    # -- the path to the atom that decides -------------------------------------------------------

    def path(self) -> tuple[Step, ...]:
        """From the root at time 0 down to an atom: the one whose value is the margin, or, if the root
        is unknown, the nearest one that is unknown."""
        node, time = len(self.rows) - 1, self.zero
        worst, best = self.values[node][:, time] > 0
        follow = self._unknown if worst != best else self._deciding
        steps: dict[int, Step] = {}  # of each node of the original that is passed
        while True:
            origin, ends = self.origin[node], not self._operands(node)
            if origin not in steps or ends:
                value = self.values[node][self.assumption, time]
                known = () if worst != best else (rounded(value), bool(value > 0))
                formula = self.original.subformula(origin)
                steps[origin] = Step(formula, time - self.zero, *known)
            if ends:
                return tuple(steps.values())
            node, time = follow(node, time)

    def _reads(self, node: int, time: int) -> list[tuple[int, int, int]]:
        """What a node depends on at a time: its operands, each with a first and a last time."""
        op = self.rows[node][0]
        below = self._operands(node)
        if not ops.is_timed(op):
            return [(operand, time, time) for operand in below]
        first, last = (int(bound) for bound in self._window(node, np.array(time)))
        reads = [(operand, first, last) for operand in below]
        if len(below) == 2:
            reads[0] = below[0], min(first, time), max(last, time)
        return reads

    def _unknown(self, node: int, time: int) -> tuple[int, int]:
        """The operand that is unknown, and the nearest time at which it is."""
        found = []
        for operand, first, last in self._reads(node, time):
            worst, best = self.values[operand][:, first : last + 1] > 0
            times = first + np.flatnonzero(worst != best)
            found += [(operand, int(t)) for t in times[np.abs(times - time).argsort()[:1]]]
        return min(found, key=lambda place: abs(place[1] - time))

    def _deciding(self, node: int, time: int) -> tuple[int, int]:
        """The operand, and its time, that give a node its value."""
        op = self.rows[node][0]
        reads = self._reads(node, time)
        if op in (ops.UNTIL, ops.RELEASE, ops.SINCE):
            return self._deciding_until(node, time, reads)
        value = self._strength(node)[time]
        for operand, first, last in reversed(reads):  # the response rather than its trigger
            times = np.flatnonzero(self._strength(operand)[first : last + 1] == value)
            if len(times):
                return operand, first + int(times[0])
        raise AssertionError("no operand has the value of its operator")

    def _deciding_until(
        self, node: int, time: int, reads: Sequence[tuple[int, int, int]]
    ) -> tuple[int, int]:
        """The best time s of the right operand, and there the weaker of it and of the left operand up
        to s; where the formula is to be refuted, all with the opposite sign."""
        (left, begin, end), (right, first, last) = reads
        step = -1 if self.rows[node][0] == ops.SINCE else 1
        sign = 1 if self._exists(node) else -1
        p = sign * self._strength(left)[begin : end + 1][::step]
        q = sign * self._strength(right)[first : last + 1][::step]
        weakest = np.minimum.accumulate(p)
        s = int(np.minimum(q, weakest[len(p) - len(q) :]).argmax())
        if q[s] <= weakest[len(p) - len(q) + s]:
            return right, (first + s if step > 0 else last - s)
        s = int(p[: len(p) - len(q) + s + 1].argmin())
        return left, (begin + s if step > 0 else end - s)


def _apply(op: int, lo: int, hi: int, below: Sequence[np.ndarray]) -> np.ndarray:
    """An operator on the values of its operands, each (assumptions, times)."""
    if hi == ops.UNBOUNDED and op in (
        ops.ALWAYS,
        ops.EVENTUALLY,
    ):  # the same without the engine's memory
        least = np.minimum if op == ops.ALWAYS else np.maximum
        rest = least.accumulate(below[0][:, ::-1], axis=1)[:, ::-1]
        return rest[:, np.minimum(np.arange(rest.shape[1]) + lo, rest.shape[1] - 1)]
    code = [(ops.GE, 0, 0, k) for k in range(len(below))]
    channels = tuple(((str(k), 1.0),) for k in range(len(below)))
    rows = np.array([*code, (op, lo, hi, -1)], np.int64)
    programs = Programs(rows, np.zeros(len(rows)), np.array([0, len(rows)]), channels)
    window = None if hi == ops.UNBOUNDED else (hi, 0) if ops.IS_PAST[op] else (0, hi)
    out: np.ndarray = run(programs, np.stack(below, axis=1), window)[0]
    return out


def _covered(first: np.ndarray, last: np.ndarray, size: int) -> np.ndarray:
    """The union of intervals as a mask; those that end before they begin are empty."""
    some = first <= last
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, first[some], 1)
    np.add.at(change, last[some] + 1, -1)
    return np.cumsum(change[:-1]) > 0


def _first_after(mask: np.ndarray) -> np.ndarray:
    """For each index the first one from there on at which the mask is true; its length if there is
    none."""
    found = np.where(mask, np.arange(len(mask)), len(mask))
    return np.minimum.accumulate(found[::-1])[::-1]


def _last_before(mask: np.ndarray) -> np.ndarray:
    """For each index the last one up to there at which the mask is true; -1 if there is none."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))
