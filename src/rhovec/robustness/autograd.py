"""Robustness in torch, with gradients to the traces and to the atoms' thresholds.

Hard (the default): a robustness is always plus or minus (channel - threshold) of one atom at one
time, its witness. Values and witnesses are computed side by side without a graph, and one gather
at the end reads the value again, with a gradient. So a backward pass costs no more than its result,
whatever the formula; a tie goes to one of its witnesses; a gradient is never NaN.

Smooth: min and max become -T log sum exp(-v/T) and T log sum exp(v/T), differentiated by torch.

Both run the same instructions with the same two algorithms, windows and suffix scans of an
associative operation in which every time counts once, since log-sum-exp is not idempotent.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import FormulaError, RhovecError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.programs import Programs
from . import lowering as ins

BLOCK = 2**24  # numbers in the traces of formulae that run together

# What stands for a formula's values: tensors (times, formulae, traces), one or several.
Trace = tuple[Tensor, ...]
Combine = Callable[[Trace, Trace], Trace]  # associative: an earlier stretch of time, a later one


def robustness(
    programs: Programs,
    traces: Tensor,
    columns: dict[str, int],
    *,
    thresholds: Any = None,
    trace: bool = False,
    strict: bool = False,
    temperature: float | None = None,
) -> Tensor:
    """Differentiable robustness of B formulae on N traces: (B, N), or (B, N, P) with trace.

    traces (N, V, P), float32 or float64, on any device, finite; columns maps a variable's name to its
    index in V. thresholds (A,), a tensor or what makes one, replaces the constants of all A atoms,
    formula by formula in print order. Under strict, a trace is NaN where a formula has no value.

    With temperature T > 0, every and, or, always, eventually is one log-sum-exp over its operands;
    where a window passes the time after which its operand is constant, that constant counts once.
    iff is (-a or b) and (a or -b). Past operators are their mirror images.
    until[a,b] at t is min_T(left(t), ..., left(t + a - 1), u(t + a)), where
    u(s) = min_T(left(s), max_T(right(s), u(s + 1))), and u(t + b) = min_T(left, right) at t + b.
    `smooth_error_bound` says how far this is from the hard value.

    An operator costs O(P log w) for a window of w times, O(P) for an unbounded one. Smooth, torch
    keeps as many numbers for the backward pass; hard, one for each value of the result.
    """
    if temperature is not None and not 0 < temperature < math.inf:
        raise RhovecError(f"temperature must be a positive number, not {temperature!r}")
    is_atom = ops.IS_ATOM[programs.code[:, 0]]
    levels = _levels(programs.thresholds[is_atom], traces, thresholds)
    n_traces, _, points = traces.shape
    # With its number in the place of its threshold, an instruction tells which atom it reads, also
    # where an expansion has written an atom twice.
    numbered = dataclasses.replace(programs, thresholds=np.cumsum(is_atom) - 1.0)
    code = ins.lower(numbered, points, trace=trace, strict=strict)
    channels = _channels(programs, traces, columns, code)
    algebra: _Algebra
    if temperature is None:
        algebra = _Hard(channels, levels, programs.code[is_atom, 3])
    else:
        algebra = _Smooth(channels, levels, temperature)

    pieces: list[Tensor] = []
    order: list[int] = []
    for members in _same_shape(code, max(1, BLOCK // (points * n_traces))):
        result = _run(code, members, algebra)
        root = code.table[code.offsets[members[0] + 1] - 1]
        if isinstance(result, float):
            piece = traces.new_full((int(root[ins.LENGTH]), len(members), n_traces), result)
        else:
            piece = algebra.value(result)
        if trace and len(piece) < points:
            undefined = piece.new_full((points - len(piece), *piece.shape[1:]), math.nan)
            before, after = undefined.tensor_split([int(root[ins.START])])
            piece = torch.cat((before, piece, after))
        pieces.append(piece)
        order += members
    values = torch.cat(pieces, 1)  # (P or 1, B, N)
    if order != sorted(order):
        values = values[:, torch.from_numpy(np.argsort(order)).to(values.device)]
    return values.permute(1, 2, 0).contiguous() if trace else values[0]


def smooth_error_bound(phi: Formula, temperature: float, points: int) -> float:
    """The most by which the smooth robustness of phi can differ from the hard one.

    On n operands, min_T lies in [min - T log n, min] and max_T in [max, max + T log n], and an
    operator moves no further than its operands do; so errors add up along a path to the root, those
    downwards and those upwards apart. An until whose windows hold w times lies between
    -T log(a + w + 1) and T log w. Traces are of `points` points.
    """
    code = ins.lower(Programs.pack([phi]), points, trace=True, strict=False)
    slots: dict[int, tuple[float, float]] = {}  # errors (downwards, upwards) in units of T
    for row in code.table.tolist():
        op, to = row[ins.OP], row[ins.TO]
        if op in (ins.ATOM, ins.CONSTANT):
            slots[to] = 0.0, 0.0
            continue
        if op == ins.REVERSE:
            continue
        window = min(row[ins.WIDTH], row[ins.INPUT])
        if op == ins.UNTIL_SCAN:
            pairs = slots.pop(row[ins.LEFT]), slots.pop(row[ins.FROM])
            low, high = map(max, zip(*pairs, strict=True))
            terms = min(row[ins.DELAY], row[ins.OFFSET] + row[ins.INPUT]) + window + 1
            slots[to] = low + math.log(terms), high + math.log(window)
            continue
        low, high = slots.pop(to)
        if op in (ins.MINIMUM, ins.MAXIMUM, ins.EQUIVALENT):
            other_low, other_high = slots.pop(row[ins.FROM])
            low, high = max(low, other_low), max(high, other_high)
        if op == ins.NEGATE:
            low, high = high, low
        elif op in (ins.MINIMUM, ins.MINIMUM_ATOM):
            low += math.log(2)
        elif op in (ins.MAXIMUM, ins.MAXIMUM_ATOM):
            high += math.log(2)
        elif op == ins.WINDOW_MIN:
            low += math.log(window)
        elif op == ins.WINDOW_MAX:
            high += math.log(window)
        else:
            low = high = max(low, high) + math.log(2)
        slots[to] = low, high
    return temperature * max(slots[0])


def _levels(constants: np.ndarray, traces: Tensor, thresholds: Any) -> Tensor:
    """The thresholds of all atoms, (A,), in the traces' type and place."""
    if thresholds is None:
        thresholds = constants
    levels = torch.as_tensor(thresholds, dtype=traces.dtype, device=traces.device)
    if levels.shape != constants.shape:
        raise FormulaError(
            f"thresholds must have shape ({len(constants)},), one number an atom in print order, "
            f"not {tuple(levels.shape)}"
        )
    if not bool(levels.isfinite().all()):
        raise FormulaError("thresholds must be finite")
    return levels


def _channels(
    programs: Programs, traces: Tensor, columns: dict[str, int], code: ins.Instructions
) -> Tensor:
    """Every channel of the programs, (times, C, N): time comes first, so that a shift is a slice."""
    rows = []
    for channel in programs.channels:
        terms = [
            c * code.read(traces[:, columns[ops.name_of(variable)]], ops.lag_of(variable))
            for variable, c in channel
        ]
        rows.append(sum(terms[1:], start=terms[0]).T)
    return torch.stack(rows, 1) if rows else traces.new_empty((len(code.times), 0, len(traces)))


def _same_shape(code: ins.Instructions, most: int) -> Iterator[list[int]]:
    """Lists of at most `most` formulae whose instructions differ only in channels and thresholds."""
    shape = code.table.copy()
    op = shape[:, ins.OP]
    shape[np.isin(op, (ins.ATOM, ins.MINIMUM_ATOM, ins.MAXIMUM_ATOM)), ins.FROM] = 0
    shape[op == ins.CONSTANT, ins.FROM] = code.values[op == ins.CONSTANT] > 0
    groups: dict[bytes, list[int]] = defaultdict(list)
    for b, (first, last) in enumerate(pairwise(code.offsets)):
        groups[shape[first:last].tobytes()].append(b)
    for members in groups.values():
        yield from (members[i : i + most] for i in range(0, len(members), most))


def _run(code: ins.Instructions, members: list[int], algebra: _Algebra) -> Trace | float:
    """The value of formulae of one shape. Constants are floats that fold away, so that no trace is
    ever infinite, and no gradient inf - inf."""
    starts = code.offsets[members]
    slots: dict[int, Trace | float] = {}

    def atom(k: int, row: list[int]) -> Trace:
        channels, atoms = code.table[starts + k, ins.FROM], code.values[starts + k].astype(np.int64)
        above = row[ins.COMPARISON] in (ops.GE, ops.GT)
        return algebra.atom(channels, atoms, above, row[ins.OFFSET], row[ins.LENGTH])

    for k, row in enumerate(code.table[starts[0] : code.offsets[members[0] + 1]].tolist()):
        op, to, length, width = row[ins.OP], row[ins.TO], row[ins.LENGTH], row[ins.WIDTH]
        if op == ins.ATOM:
            slots[to] = atom(k, row)
        elif op == ins.CONSTANT:
            slots[to] = float(code.values[starts[0] + k])
        elif op in (ins.MINIMUM_ATOM, ins.MAXIMUM_ATOM):
            plain = ins.MINIMUM if op == ins.MINIMUM_ATOM else ins.MAXIMUM
            slots[to] = _join(plain, slots.pop(to), atom(k, row), algebra)
        elif op in (ins.MINIMUM, ins.MAXIMUM, ins.EQUIVALENT):
            slots[to] = _join(op, slots.pop(to), slots.pop(row[ins.FROM]), algebra)
        elif op == ins.UNTIL_SCAN:
            left, right = slots.pop(row[ins.LEFT]), slots.pop(row[ins.FROM])
            slots[to] = _until(left, right, algebra, length, row[ins.OFFSET], width, row[ins.DELAY])
        else:
            x = slots.pop(to)
            if op == ins.NEGATE:
                slots[to] = _negate(x, algebra)
            elif op == ins.REVERSE:
                slots[to] = x if isinstance(x, float) else tuple(u.flip(0) for u in x)
            else:
                combine = algebra.low if op == ins.WINDOW_MIN else algebra.high
                slots[to] = x if isinstance(x, float) else _window(x, combine, length, width)
    return slots[0]


def _negate(x: Trace | float, algebra: _Algebra) -> Trace | float:
    return -x if isinstance(x, float) else algebra.negate(x)


def _join(op: int, a: Trace | float, b: Trace | float, algebra: _Algebra) -> Trace | float:
    if isinstance(a, float):
        a, b = b, a
    if isinstance(b, float):
        if op == ins.EQUIVALENT:
            return a if b > 0 else _negate(a, algebra)
        return a if (b > 0) == (op == ins.MINIMUM) else b
    assert not isinstance(a, float)
    if op == ins.EQUIVALENT:
        a_to_b = algebra.high(algebra.negate(a), b)
        return algebra.low(a_to_b, algebra.high(a, algebra.negate(b)))
    return algebra.low(a, b) if op == ins.MINIMUM else algebra.high(a, b)


def _until(
    left: Trace | float,
    right: Trace | float,
    algebra: _Algebra,
    length: int,
    offset: int,
    width: int,
    delay: int,
) -> Trace | float:
    """left U[delay, delay + width - 1] right; `right` starts `offset` times after `left`."""
    if left == -math.inf or right == -math.inf:
        return -math.inf
    if isinstance(left, float):
        return right if isinstance(right, float) else _window(right, algebra.high, length, width)
    if isinstance(right, float):
        return _window(left, algebra.low, length, delay + 1)
    steps = algebra.steps(_cut(left, slice(offset, None)), right)
    reached = algebra.reached(_window(steps, algebra.compose, length, width))
    if delay == 0:
        return reached
    return algebra.low(_window(left, algebra.low, length, delay), reached)


def _window(x: Trace, combine: Combine, length: int, width: int) -> Trace:
    """x[t] ... x[t + width - 1] combined, clipped at the last x, for t = 0 ... length - 1."""
    x = _cut(x, slice(0, length + width - 1))
    inputs = len(x[0])
    # Whole windows are made of stretches of 1, 2, 4 ... times. Those that pass the end are
    # suffixes, and so is a window that is the only one.
    whole = max(0, min(length, inputs - width + 1)) if length > 1 else 0
    parts: list[Trace] = []
    if whole:
        span, at, doubled, result = 1, 0, x, None
        while True:
            if width & span:
                piece = _cut(doubled, slice(at, at + whole))
                result = piece if result is None else combine(result, piece)
                at += span
            if 2 * span > width:
                break
            doubled = combine(_cut(doubled, slice(0, -span)), _cut(doubled, slice(span, None)))
            span *= 2
        assert result is not None
        parts.append(result)
    if whole < length:
        tail = _cut(x, slice(min(whole, inputs - 1), None))
        suffixes = _suffixes(tail, combine, length - whole)
        parts.append(suffixes)
        held = length - whole - len(suffixes[0])
        parts.append(tuple(u[-1:].expand(held, *u.shape[1:]) for u in suffixes))
    return _concatenate(parts)


def _suffixes(x: Trace, combine: Combine, count: int) -> Trace:
    """x[t] ... x[-1] combined, for the first `count` t (all, if there are fewer).

    Neighbours are combined, the suffixes of the pairs found (half the problem: the recursion is as
    deep as the logarithm of the trace), and those at odd t filled in. So the work is linear.
    """
    inputs = len(x[0])
    count = min(count, inputs)
    if inputs == 1:
        return x
    pairs = combine(_cut(x, slice(0, inputs - 1, 2)), _cut(x, slice(1, inputs, 2)))
    if inputs % 2:
        pairs = _concatenate([pairs, _cut(x, slice(-1, None))])
    n_odd = count // 2
    even = _suffixes(pairs, combine, n_odd + 1)
    if n_odd == 0:
        return even
    later = _cut(even, slice(1, n_odd + 1))
    n_later = len(later[0])
    odd = combine(_cut(x, slice(1, 2 * n_later, 2)), later)
    if n_later < n_odd:
        odd = _concatenate([odd, _cut(x, slice(-1, None))])
    paired = tuple(
        torch.stack((u[:n_odd], v), 1).flatten(0, 1) for u, v in zip(even, odd, strict=True)
    )
    return _concatenate([paired, _cut(even, slice(n_odd, count - n_odd))])


def _cut(x: Trace, times: slice) -> Trace:
    return tuple(u[times] for u in x)


def _concatenate(parts: list[Trace]) -> Trace:
    filled = [p for p in parts if len(p[0])]
    return filled[0] if len(filled) == 1 else tuple(map(torch.cat, zip(*filled, strict=True)))


class _Algebra(ABC):
    """What min, max and until are. An until over a stretch of time is a composition of its steps
    u -> low(left, high(right, u)); `reached` is what the composition makes of -inf."""

    channels: Tensor  # (times, C, N)
    levels: Tensor  # (A,)

    def atom(
        self, channels: np.ndarray, atoms: np.ndarray, positive: bool, start: int, length: int
    ) -> Trace:
        """Channels (G,) against levels of atoms (G,), at `length` times from `start`."""
        x = self.channels[start : start + length]
        if len(atoms) == 1:
            x, level = x.narrow(1, int(channels[0]), 1), self.levels[int(atoms[0])]
        else:
            device = x.device
            x = x[:, torch.from_numpy(channels).to(device)]
            level = self.levels[torch.from_numpy(atoms).to(device), None]
        return self.lift(x - level if positive else level - x, atoms, positive, start)

    def negate(self, x: Trace) -> Trace:
        return tuple(-u for u in x)

    @abstractmethod
    def lift(self, values: Tensor, atoms: np.ndarray, positive: bool, start: int) -> Trace: ...

    @abstractmethod
    def low(self, a: Trace, b: Trace) -> Trace: ...

    @abstractmethod
    def high(self, a: Trace, b: Trace) -> Trace: ...

    @abstractmethod
    def steps(self, left: Trace, right: Trace) -> Trace: ...

    @abstractmethod
    def compose(self, first: Trace, second: Trace) -> Trace: ...

    @abstractmethod
    def reached(self, x: Trace) -> Trace: ...

    @abstractmethod
    def value(self, x: Trace) -> Tensor:
        """The robustness that a trace stands for."""


class _Hard(_Algebra):
    """Exact minima of (value, witness). The witness is 1 + atom * times + time, negated with the value.

    Steps of an until compose to u -> max(A, min(B, u)), kept as (A, B).
    """

    def __init__(self, channels: Tensor, levels: Tensor, channel_of_atom: np.ndarray):
        self.channels, self.levels = channels.detach(), levels.detach()
        self.sources = channels, levels
        self.channel_of_atom = torch.from_numpy(channel_of_atom).to(channels.device)
        self.points = len(channels)
        largest = len(channel_of_atom) * self.points
        self.integer = torch.int32 if largest < 2**30 else torch.int64

    def lift(self, values: Tensor, atoms: np.ndarray, positive: bool, start: int) -> Trace:
        first = torch.from_numpy(1 + atoms * self.points + start).to(values.device, self.integer)
        time = torch.arange(len(values), device=values.device, dtype=self.integer)
        witness = first[:, None] + time[:, None, None]
        return values, (witness if positive else -witness).expand_as(values)

    def low(self, a: Trace, b: Trace) -> Trace:
        return torch.minimum(a[0], b[0]), self.choose(a[0] < b[0], a[1], b[1])

    def high(self, a: Trace, b: Trace) -> Trace:
        return torch.maximum(a[0], b[0]), self.choose(a[0] > b[0], a[1], b[1])

    def choose(self, is_first: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """torch.where on integers, several times faster than it on a CPU."""
        return torch.addcmul(b, a - b, is_first.to(self.integer))

    def steps(self, left: Trace, right: Trace) -> Trace:
        return (*self.low(left, right), *left)

    def compose(self, first: Trace, second: Trace) -> Trace:
        stays = first[2:]
        reached = self.high(first[:2], self.low(stays, second[:2]))
        return (*reached, *self.low(stays, second[2:]))

    def reached(self, x: Trace) -> Trace:
        return x[:2]

    def value(self, x: Trace) -> Tensor:
        channels, levels = self.sources
        place = x[1].abs().long() - 1  # (times, formulae, N)
        atom, time = place // self.points, place % self.points
        row = time * channels.shape[1] + self.channel_of_atom[atom]
        found = channels.flatten(0, 1).gather(0, row.flatten(0, 1)).view_as(row)
        return x[1].sign() * (found - levels[atom])


class _Smooth(_Algebra):
    """Log-sum-exp in units of the temperature.

    With z = exp(u), p = exp(right), q = exp(-left), a step of an until is the Moebius map
    z -> (z + p) / (q z + 1 + p q), and steps compose as matrices [[1, p], [q, 1 + p q]] multiply.
    No entry is negative, so logarithms are stable. Kept are those of three entries, each divided by
    the fourth.
    """

    def __init__(self, channels: Tensor, levels: Tensor, temperature: float):
        self.channels, self.levels, self.temperature = channels, levels, temperature
        self.zero = channels.new_zeros(())

    def lift(self, values: Tensor, atoms: np.ndarray, positive: bool, start: int) -> Trace:
        return (values / self.temperature,)

    def low(self, a: Trace, b: Trace) -> Trace:
        return (-torch.logaddexp(-a[0], -b[0]),)

    def high(self, a: Trace, b: Trace) -> Trace:
        return (torch.logaddexp(a[0], b[0]),)

    def steps(self, left: Trace, right: Trace) -> Trace:
        fourth = torch.logaddexp(self.zero, right[0] - left[0])
        return -fourth, right[0] - fourth, -left[0] - fourth

    def compose(self, first: Trace, second: Trace) -> Trace:
        (a, b, c), (x, y, z) = first, second
        fourth = torch.logaddexp(self.zero, c + y)
        return (
            torch.logaddexp(a + x, b + z) - fourth,
            torch.logaddexp(a + y, b) - fourth,
            torch.logaddexp(c + x, z) - fourth,
        )

    def reached(self, x: Trace) -> Trace:
        return (x[1],)

    def value(self, x: Trace) -> Tensor:
        return x[0] * self.temperature
