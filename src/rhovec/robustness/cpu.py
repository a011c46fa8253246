"""The exact engine on the CPU: instructions interpreted over blocks of signals, on all cores.

Signals are taken LANES at a time and stored (channel, time, lane), so that every step of every
operator is the same operation on LANES neighbouring numbers, which the compiler vectorises. All
operators are linear in the trace whatever the window: windows by chunked running extrema (van Herk,
Gil and Werman), until by one backward scan and the two lemmas in docs/semantics.md. A thread holds
a few slots of one block: memory does not grow with the number of formulae or signals.

Boolean satisfaction is the same machine on atoms that are +1 or -1: then min, max and minus are and,
or and not.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit

from ..formula.core import GE, GT, LE, LT
from ..formula.programs import Programs
from .lowering import (
    CONSTANT,
    DELAY,
    EQUIVALENT,
    FROM,
    INPUT,
    LENGTH,
    MAXIMUM,
    MINIMUM,
    NEGATE,
    OFFSET,
    OP,
    SCRATCH,
    TO,
    WIDTH,
    WINDOW_MAX,
    WINDOW_MIN,
    lower,
)

LANES = 64
_FORMULAE_PER_TASK = 256


def evaluate(
    programs: Programs,
    signals: np.ndarray,
    columns: dict[str, int],
    *,
    trace: bool = False,
    strict: bool = False,
    boolean: bool = False,
) -> np.ndarray:
    """Robustness of B formulae on N signals: (B, N), or (B, N, P) with trace.

    signals (N, V, P) float32 or float64, finite; columns maps a variable's name to its index in V.
    Under strict, a trace is NaN past the horizon. With boolean, the result is +1 or -1.
    """
    n_signals, _, points = signals.shape
    code = lower(programs, points, trace=trace, strict=strict)
    terms, coefficients, starts = _channel_table(programs, columns)
    values = code.values.astype(signals.dtype)
    shape = (len(programs), n_signals, points) if trace else (len(programs), n_signals, 1)
    out = np.empty(shape, signals.dtype)
    if trace and strict:
        out.fill(np.nan)

    blocks = range(0, n_signals, LANES)
    tasks = [
        (lane, first, min(first + _FORMULAE_PER_TASK, len(programs)))
        for lane in blocks
        for first in range(0, len(programs), _FORMULAE_PER_TASK)
    ]
    workers = min(_cores(), len(tasks))

    def work(worker: int) -> None:
        block = np.empty((len(programs.channels), max(1, code.reach) * LANES), signals.dtype)
        slots = np.empty((code.slots, code.length * LANES), signals.dtype)
        spare = np.empty(LANES, signals.dtype)
        loaded = -1
        # Contiguous shares, so that a block of signals is mostly loaded once.
        for lane, first, last in tasks[len(tasks) * worker // workers : len(tasks) * (worker + 1) // workers]:
            if lane != loaded:
                _load(signals, lane, code.reach, terms, coefficients, starts, block)
                loaded = lane
            _run(code.table, values, code.offsets, first, last, block, slots, spare, boolean, lane, out)

    if workers <= 1:
        work(0)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, range(workers)))
    return out if trace else out[:, :, 0]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _channel_table(
    programs: Programs, columns: dict[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Channels as flat arrays: channel c is the sum of coefficients[j] * variable terms[j] over
    starts[c] <= j < starts[c + 1]."""
    terms = [columns[name] for channel in programs.channels for name, _ in channel]
    coefficients = [c for channel in programs.channels for _, c in channel]
    starts = np.zeros(len(programs.channels) + 1, np.int64)
    np.cumsum([len(channel) for channel in programs.channels], out=starts[1:])
    return np.array(terms, np.int64), np.array(coefficients, np.float64), starts


@njit(cache=True, nogil=True)
def _load(signals, lane, reach, terms, coefficients, starts, block):  # type: ignore[no-untyped-def]
    """Channels of signals lane .. lane + LANES into block (channel, time * LANES + lane).

    Lanes past the last signal repeat it.
    """
    n = signals.shape[0]
    for c in range(len(starts) - 1):
        plain = starts[c + 1] - starts[c] == 1 and coefficients[starts[c]] == 1.0
        target = block[c]
        for j in range(LANES):
            s = min(lane + j, n - 1)
            if plain:
                source = signals[s, terms[starts[c]]]
                for t in range(reach):
                    target[t * LANES + j] = source[t]
            else:
                for t in range(reach):
                    total = 0.0
                    for k in range(starts[c], starts[c + 1]):
                        total += coefficients[k] * signals[s, terms[k], t]
                    target[t * LANES + j] = total


@njit(cache=True, nogil=True)
def _run(table, values, offsets, first, last, block, slots, spare, boolean, lane, out):  # type: ignore[no-untyped-def]
    """Run formulae first .. last on one block of signals and write out[b, lane + j, t]."""
    lanes = min(LANES, out.shape[1] - lane)
    for b in range(first, last):
        for k in range(offsets[b], offsets[b + 1]):
            row = table[k]
            op = row[OP]
            length = row[LENGTH]
            size = length * LANES
            a = slots[row[TO]]
            if op <= LT:
                start = row[OFFSET] * LANES
                _atom(op, a[:size], block[row[FROM]][start : start + size], values[k], boolean)
            elif op == MINIMUM:
                _minimum(a[:size], slots[row[FROM]][:size])
            elif op == MAXIMUM:
                _maximum(a[:size], slots[row[FROM]][:size])
            elif op == WINDOW_MIN:
                _window_min(a, length, row[INPUT], row[WIDTH], spare)
            elif op == WINDOW_MAX:
                _window_max(a, length, row[INPUT], row[WIDTH], spare)
            elif op == NEGATE:
                for i in range(size):
                    a[i] = -a[i]
            elif op == EQUIVALENT:
                _equivalent(a[:size], slots[row[TO] + 1][:size])
            elif op == CONSTANT:
                a[:size] = values[k]
            else:
                left = a if row[FROM] != row[TO] else slots[row[TO] + 1]
                _until(
                    a, left, slots[row[FROM]], slots[row[SCRATCH]],
                    length, row[INPUT], row[OFFSET], row[WIDTH], row[DELAY], spare,
                )  # fmt: skip
        result = slots[0]
        for j in range(lanes):
            for t in range(length):
                out[b, lane + j, t] = result[t * LANES + j]


@njit(cache=True, nogil=True)
def _atom(op, out, x, threshold, boolean):  # type: ignore[no-untyped-def]
    if not boolean:
        if op == GE or op == GT:
            for i in range(len(out)):
                out[i] = x[i] - threshold
        else:
            for i in range(len(out)):
                out[i] = threshold - x[i]
        return
    for i in range(len(out)):
        if op == GE:
            holds = x[i] >= threshold
        elif op == GT:
            holds = x[i] > threshold
        elif op == LE:
            holds = x[i] <= threshold
        else:
            holds = x[i] < threshold
        out[i] = 1.0 if holds else -1.0


@njit(cache=True, nogil=True)
def _minimum(a, b):  # type: ignore[no-untyped-def]
    for i in range(len(a)):
        a[i] = b[i] if b[i] < a[i] else a[i]


@njit(cache=True, nogil=True)
def _maximum(a, b):  # type: ignore[no-untyped-def]
    for i in range(len(a)):
        a[i] = b[i] if b[i] > a[i] else a[i]


@njit(cache=True, nogil=True)
def _equivalent(a, b):  # type: ignore[no-untyped-def]
    """min(max(-a, b), max(a, -b)) = sgn(a) sgn(b) min(|a|, |b|)."""
    for i in range(len(a)):
        u, v = a[i], b[i]
        p = v if v > -u else -u
        q = u if u > -v else -v
        a[i] = p if p < q else q


@njit(cache=True, nogil=True)
def _window_min(x, length, inputs, width, spare):  # type: ignore[no-untyped-def]
    """In place: row i of the result is the min over rows i .. i + width - 1, clipped at the input's end.

    In chunks of `width` rows, a window is the end of one chunk (a running min from its right edge)
    and the start of the next (a running min from its left edge).
    """
    whole = max(0, min(length, inputs - width + 1))  # windows that end inside the input
    if width > 1:
        for start in range(0, whole, width):
            for t in range(start + width - 2, start - 1, -1):
                for j in range(LANES):
                    v = x[(t + 1) * LANES + j]
                    w = x[t * LANES + j]
                    x[t * LANES + j] = v if v < w else w
            stop = min(start + width, whole)
            if start + 1 < stop:
                for j in range(LANES):
                    spare[j] = x[(start + width) * LANES + j]
                for t in range(start + 1, stop):
                    for j in range(LANES):
                        v = x[(t + width - 1) * LANES + j]
                        w = spare[j]
                        w = v if v < w else w
                        spare[j] = w
                        v = x[t * LANES + j]
                        x[t * LANES + j] = w if w < v else v
    for t in range(inputs - 2, whole - 1, -1):  # the others run to the end of the input
        for j in range(LANES):
            v = x[(t + 1) * LANES + j]
            w = x[t * LANES + j]
            x[t * LANES + j] = v if v < w else w
    for t in range(inputs, length):
        for j in range(LANES):
            x[t * LANES + j] = x[(inputs - 1) * LANES + j]


@njit(cache=True, nogil=True)
def _window_max(x, length, inputs, width, spare):  # type: ignore[no-untyped-def]
    """The same with max."""
    whole = max(0, min(length, inputs - width + 1))
    if width > 1:
        for start in range(0, whole, width):
            for t in range(start + width - 2, start - 1, -1):
                for j in range(LANES):
                    v = x[(t + 1) * LANES + j]
                    w = x[t * LANES + j]
                    x[t * LANES + j] = v if v > w else w
            stop = min(start + width, whole)
            if start + 1 < stop:
                for j in range(LANES):
                    spare[j] = x[(start + width) * LANES + j]
                for t in range(start + 1, stop):
                    for j in range(LANES):
                        v = x[(t + width - 1) * LANES + j]
                        w = spare[j]
                        w = v if v > w else w
                        spare[j] = w
                        v = x[t * LANES + j]
                        x[t * LANES + j] = w if w > v else v
    for t in range(inputs - 2, whole - 1, -1):
        for j in range(LANES):
            v = x[(t + 1) * LANES + j]
            w = x[t * LANES + j]
            x[t * LANES + j] = v if v > w else w
    for t in range(inputs, length):
        for j in range(LANES):
            x[t * LANES + j] = x[(inputs - 1) * LANES + j]


@njit(cache=True, nogil=True)
def _until(out, left, right, scan, length, inputs, offset, width, delay, spare):  # type: ignore[no-untyped-def]
    """out = left U[delay, delay + width - 1] right.

    scan[t] = min(left[t], max(right[t], scan[t + 1])) is the unbounded until; then
    U[a,b] = G[0,a] left and scan[t + a] and F[a,b] right. `right` and `scan` start `offset` rows
    after `left`, where their first window does.
    """
    for t in range(inputs - 1, -1, -1):
        for j in range(LANES):
            i = t * LANES + j
            v = right[i]
            if t < inputs - 1:
                u = scan[i + LANES]
                v = u if u > v else v
            w = left[i + offset * LANES]
            scan[i] = w if w < v else v
    if width <= inputs:
        _window_max(right, length, inputs, width, spare)
        for t in range(min(length, inputs)):
            for j in range(LANES):
                i = t * LANES + j
                v = right[i]
                scan[i] = v if v < scan[i] else scan[i]
    if delay > 0:
        _window_min(left, length, inputs + offset, delay + 1, spare)
    for t in range(length):
        s = min(t, inputs - 1) * LANES
        for j in range(LANES):
            i = t * LANES + j
            v = scan[s + j]
            w = left[i]
            out[i] = v if v < w else w
