"""The slow oracle of verdicts: bounds on robustness and satisfaction, straight from the definition.

Every node has an interval of values at every time; an unknown sample lies anywhere. Nothing here is
shared with the package but the rows of a formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from rhovec.formula import operators as ops
from rhovec.formula.core import Formula

Interval = tuple[float, float]  # for satisfaction 0.0 or 1.0
_HOLDS: dict[int, Callable[[float, float], bool]] = {
    ops.GE: lambda x, c: x >= c, ops.GT: lambda x, c: x > c,
    ops.LE: lambda x, c: x <= c, ops.LT: lambda x, c: x < c,
}  # fmt: skip


class Case(NamedTuple):
    """A short log: variable -> samples, NaN where one is unknown."""

    samples: dict[str, list[float]]
    begin: str = "unknown"

    @property
    def points(self) -> int:
        return len(next(iter(self.samples.values())))

    def sample(self, name: str, time: int) -> Interval:
        values = self.samples[name]
        if time < 0 and self.begin == "held":
            time = 0
        if not 0 <= time < len(values) or math.isnan(values[time]):
            return -math.inf, math.inf
        return values[time], values[time]


def bounds(phi: Formula, case: Case, *, boolean: bool, so_far: bool = False) -> dict[int, Interval]:
    """The interval of phi at every time from the first sample on, past the end of the log."""
    rows = phi.rows()
    sizes = phi.shape()[0].tolist()
    reach = 2 + sum(
        max(lo, hi) + sum(abs(ops.lag_of(v)) for v, _ in channel or ()) + 1
        for _, lo, hi, channel, _ in rows
    )
    first, last = -reach, case.points + reach

    def opposite(value: Interval) -> Interval:
        low, high = value
        return (1 - high, 1 - low) if boolean else (-high, -low)

    def least(values: list[Interval]) -> Interval:
        lows, highs = zip(*values, strict=True)
        return min(lows), min(highs)

    def greatest(values: list[Interval]) -> Interval:
        lows, highs = zip(*values, strict=True)
        return max(lows), max(highs)

    def atom(row: ops.Row, time: int) -> Interval:
        op, _, _, channel, c = row
        low = high = 0.0
        for variable, k in channel or ():
            x, y = case.sample(ops.name_of(variable), time - ops.lag_of(variable))
            low += k * (x if k > 0 else y)
            high += k * (y if k > 0 else x)
        rising = op in (ops.GE, ops.GT)
        if boolean:
            ends = [float(_HOLDS[op](x, c)) for x in (low, high)]
            return min(ends), max(ends)
        return (low - c, high - c) if rising else (c - high, c - low)

    def clip(time: int) -> int:
        return min(max(time, first), last)

    @cache
    def values(node: int, positive: bool) -> dict[int, Interval]:
        op, lo, hi, channel, _ = rows[node]
        times = range(first, last + 1)
        if channel is not None:
            return {t: atom(rows[node], t) for t in times}
        if op in (ops.TRUE, ops.FALSE):
            top, bottom = (1.0, 0.0) if boolean else (math.inf, -math.inf)
            value = top if op == ops.TRUE else bottom
            return dict.fromkeys(times, (value, value))
        right = node - 1
        left = right - sizes[right] if ops.arity(op) == 2 else right
        if op in (ops.NOT, ops.RISE, ops.FALL, ops.IFF, ops.IMPLIES):
            p, q = values(left, positive), values(right, positive)
            not_p, not_q = (
                {t: opposite(v) for t, v in values(i, not positive).items()} for i in (left, right)
            )
            if op == ops.NOT:
                return not_p
            if op == ops.IMPLIES:
                return {t: greatest([not_p[t], q[t]]) for t in times}
            if op == ops.IFF:
                return {
                    t: greatest([least([p[t], q[t]]), least([not_p[t], not_q[t]])]) for t in times
                }
            now, then = (p, not_p) if op == ops.RISE else (not_p, p)
            return {t: least([now[t], then[clip(t - 1)]]) for t in times}
        p, q = values(left, positive), values(right, positive)
        if op in (ops.AND, ops.OR):
            return {t: (least if op == ops.AND else greatest)([p[t], q[t]]) for t in times}
        if op in (ops.NEXT, ops.PREV):
            step = 1 if op == ops.NEXT else -1
            return {t: p[clip(t + step)] for t in times}
        if op == ops.WEAK_UNTIL:  # (p until q) or always[0,hi] p
            until = window(ops.UNTIL, lo, hi, p, q, positive)
            always = window(ops.ALWAYS, 0, hi, p, p, positive)
            return {t: greatest([until[t], always[t]]) for t in times}
        return window(op, lo, hi, p, q, positive)

    def window(
        op: int, lo: int, hi: int, p: dict[int, Interval], q: dict[int, Interval], positive: bool
    ) -> dict[int, Interval]:
        past = op in (ops.ONCE, ops.HISTORICALLY, ops.SINCE)
        every = op in (ops.ALWAYS, ops.HISTORICALLY, ops.RELEASE)
        sign = -1 if past else 1
        endless = hi == ops.UNBOUNDED
        cut = so_far and endless and not past and every == positive
        out = {}
        for t in range(first, last + 1):
            far = last - first if endless else hi
            found = []
            for d in range(lo, far + 1):
                s = clip(t + sign * d)
                if cut and s >= case.points:
                    break
                parts = [q[s]]
                if op in (ops.UNTIL, ops.SINCE, ops.RELEASE):
                    between = [p[clip(t + sign * e)] for e in range(d + 1)]
                    parts += between
                found.append((greatest if every else least)(parts))
            if not found:  # the window begins after the log
                bottom, top = (0.0, 1.0) if boolean else (-math.inf, math.inf)
                out[t] = (bottom, bottom) if every else (top, top)
            else:
                out[t] = (least if every else greatest)(found)
        return out

    found = values(len(rows) - 1, True)
    return {t: found[t] for t in range(last + 1)}


def outcome(phi: Formula, case: Case) -> str:
    """The verdict by the definition."""
    low, high = bounds(phi, case, boolean=True)[0]
    if not high:
        return "violated"
    if low:
        return "holds"
    return "holds so far" if bounds(phi, case, boolean=True, so_far=True)[0][0] else "open"


def known(case: Case, keep: dict[str, np.ndarray]) -> Case:
    """The log with all other samples unknown."""
    none = np.zeros(case.points, bool)
    return case._replace(
        samples={
            name: [v if k else math.nan for v, k in zip(x, keep.get(name, none), strict=True)]
            for name, x in case.samples.items()
        }
    )
