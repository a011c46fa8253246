"""Traces and labels as the miner works on them, and formulae as it changes them.

Channels are standardised by the training traces, because units differ by factors of ten and more: z =
(x - centre) / scale. A candidate is a postfix tuple of rows (operator, lo, hi, channel, threshold) in
negation normal form, with thresholds in z.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..formula import operators as ops
from ..formula.core import Formula

Node = tuple[int, int, int, int, float]  # operator, lo, hi, channel or -1, threshold
Candidate = tuple[Node, ...]

DUAL = {
    ops.GE: ops.LE, ops.LE: ops.GE, ops.ALWAYS: ops.EVENTUALLY, ops.EVENTUALLY: ops.ALWAYS,
    ops.AND: ops.OR, ops.OR: ops.AND, ops.UNTIL: ops.RELEASE, ops.RELEASE: ops.UNTIL,
}  # fmt: skip
DIGITS = 13
ATOMS = (ops.GE, ops.LE)
BINARY = (ops.AND, ops.OR, ops.UNTIL, ops.RELEASE)


def atom(op: int, channel: int, threshold: float) -> Node:
    return (op, 0, 0, channel, threshold)


def dual(candidate: Candidate) -> Candidate:
    """The candidate whose robustness has the opposite sign: the negation, except where that is 0."""
    return tuple((DUAL[op], lo, hi, channel, z) for op, lo, hi, channel, z in candidate)


def plain(candidate: Candidate) -> Candidate:
    """The candidate with `and` and `or` in place of until[0,0] and release[0,0], which mean the same."""
    junctions = {(ops.UNTIL, 0, 0): ops.AND, (ops.RELEASE, 0, 0): ops.OR}
    return tuple((junctions.get(node[:3], node[0]), *node[1:]) for node in candidate)


def has_empty_band(candidate: Candidate) -> bool:
    """Whether two comparisons of one channel, joined, are always false (and) or always true (or)."""
    for one, other, (joint, *_) in zip(candidate, candidate[1:], candidate[2:], strict=False):
        if joint in (ops.AND, ops.OR) and one[3] == other[3] >= 0 and one[0] != other[0]:
            low, high = (one, other) if one[0] == ops.GE else (other, one)
            if (low[4] > high[4]) if joint == ops.AND else (low[4] <= high[4]):
                return True
    return False


def start_of(candidate: Sequence[Node], node: int) -> int:
    """The first row of the sub-formula whose root is row `node`."""
    needed, i = 1, node
    while True:
        op = candidate[i][0]
        needed += (0 if op in ATOMS else 2 if op in BINARY else 1) - 1
        if not needed:
            return i
        i -= 1


@dataclass(frozen=True)
class Scale:
    """How channels are standardised."""

    names: tuple[str, ...]
    centre: np.ndarray  # (V,)
    scale: np.ndarray  # (V,)
    flags: np.ndarray  # (V,) bool: only 0 and 1; such an atom has no margin, and no shift moves it

    @classmethod
    def of(cls, values: np.ndarray, names: Sequence[str]) -> Scale:
        """The scale of training traces (N, V, P), none of whose channels is constant."""
        flags = ((values == 0) | (values == 1)).all(axis=(0, 2))
        centre = np.where(flags, 0.5, np.median(values, axis=(0, 2)))
        scale = np.where(flags, 1.0, values.std(axis=(0, 2)))
        return cls(tuple(names), centre, scale, flags)

    def standardise(self, values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray((values - self.centre[:, None]) / self.scale[:, None])

    def formula(self, candidate: Candidate) -> Formula:
        """The candidate as a formula in the channels' names and units."""
        return Formula.from_rows([
            (op, lo, hi, None, 0.0) if channel < 0 else
            (op, 0, 0, ((self.names[channel], 1.0),), self.raw(channel, threshold))
            for op, lo, hi, channel, threshold in candidate
        ], check=False)  # fmt: skip

    def raw(self, channel: int, threshold: float) -> float:
        """A threshold in the channel's unit, rounded to the digits that standardising preserves."""
        centre, scale = float(self.centre[channel]), float(self.scale[channel])
        shift = threshold * scale
        exponent = math.floor(math.log10(max(abs(shift), abs(centre), scale)))
        return round(shift + centre, DIGITS - exponent)


@dataclass(frozen=True)
class Data:
    """Standardised training traces of two classes."""

    values: np.ndarray  # (N, V, P) float64
    positive: np.ndarray  # (N,) bool
    costs: tuple[float, float]  # of a positive trace that is missed, of a false alarm
    flags: np.ndarray  # (V,) bool

    @property
    def n_traces(self) -> int:
        return len(self.values)

    @property
    def n_channels(self) -> int:
        return int(self.values.shape[1])

    @property
    def points(self) -> int:
        return int(self.values.shape[2])

    @property
    def total(self) -> float:
        """The cost of getting everything wrong."""
        n = int(self.positive.sum())
        return self.costs[0] * n + self.costs[1] * (self.n_traces - n)

    def part(self, chosen: np.ndarray) -> Data:
        """Some of the traces, with the ranks that they have among all."""
        part = Data(self.values[chosen], self.positive[chosen], self.costs, self.flags)
        part.__dict__["_ranked"] = ([ranks[:, chosen] for ranks in self.ranks], self.levels)
        return part

    @cached_property
    def contradictions(self) -> tuple[int, float]:
        """Traces that occur with both labels, and the loss that no formula avoids on them."""
        groups: dict[bytes, list[int]] = {}
        for trace, label in zip(self.values, self.positive.tolist(), strict=True):
            groups.setdefault(trace.tobytes(), [0, 0])[label] += 1
        both = [(n, p) for n, p in groups.values() if n and p]
        loss = sum(min(self.costs[0] * p, self.costs[1] * n) for n, p in both)
        return sum(n + p for n, p in both), float(loss)

    @property
    def floor(self) -> float:
        """A loss that no formula is below."""
        return self.contradictions[1]

    @cached_property
    def lowest(self) -> np.ndarray:
        """(V,), as `highest`: the range in which thresholds make a difference."""
        out: np.ndarray = self.values.min(axis=(0, 2))
        return out

    @cached_property
    def highest(self) -> np.ndarray:
        out: np.ndarray = self.values.max(axis=(0, 2))
        return out

    @cached_property
    def engine(self) -> np.ndarray:
        return np.ascontiguousarray(self.values, np.float32)

    @cached_property
    def _ranked(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        ranks, levels = [], []
        for v in range(self.n_channels):
            found, inverse = np.unique(self.values[:, v].T, return_inverse=True)
            ranks.append((inverse.reshape(self.points, -1) + 1).astype(np.int32))
            levels.append(np.concatenate([[-np.inf], found, [np.inf]]))
        return ranks, levels

    @property
    def ranks(self) -> list[np.ndarray]:
        """Per channel (P, N) int32: the place of each sample among the channel's `levels`."""
        return self._ranked[0]

    @property
    def levels(self) -> list[np.ndarray]:
        """Per channel the distinct values in order, between -inf and inf."""
        return self._ranked[1]


# -- formulae from outside -------------------------------------------------------------------------

_SAME = {ops.GE: ops.GE, ops.GT: ops.GE, ops.LE: ops.LE, ops.LT: ops.LE}


def candidate_of(phi: Formula, scale: Scale, points: int) -> Candidate | None:
    """A formula as a candidate; None if it has channels or operators that the search does not know.

    Windows end with the traces, and strict comparisons become non-strict ones.
    """
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    out: list[Node] = []
    todo = [
        (len(rows) - 1, False)
    ]  # from the root down, the right operand first; then turned round
    while todo:
        i, negated = todo.pop()
        op, lo, hi, channel, threshold = rows[i]
        if channel is not None:
            if len(channel) != 1 or channel[0][1] != 1 or channel[0][0] not in scale.names:
                return None
            op, v = _SAME[op], scale.names.index(str(channel[0][0]))
            z = 0.0 if scale.flags[v] else float((threshold - scale.centre[v]) / scale.scale[v])
            out.append(atom(DUAL[op] if negated else op, v, z))
            continue
        if op == ops.NOT:
            todo.append((i - 1, not negated))
            continue
        left_negated = negated
        if op == ops.IMPLIES:
            op, left_negated = ops.OR, not negated
        if op not in DUAL:
            return None
        hi = points - 1 if hi == ops.UNBOUNDED else min(hi, points - 1)
        timed = ops.is_timed(op)
        bounds = (min(lo, hi), hi) if timed else (0, 0)
        out.append((DUAL[op] if negated else op, *bounds, -1, 0.0))
        if op in BINARY:
            todo.append((i - 1 - sizes[i - 1], left_negated))
        todo.append((i - 1, negated))
    return tuple(reversed(out))
