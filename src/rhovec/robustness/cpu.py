"""The exact engine on the CPU: instructions interpreted over blocks of traces, on all cores.

Traces are taken LANES at a time and stored (channel, time, lane), so that every step of every
operator is the same operation on LANES neighbouring numbers, which the compiler vectorises. All
operators are linear in the trace whatever the window: windows by chunked running extrema (van Herk,
Gil and Werman), until by one backward scan and the two lemmas in docs/semantics.md. A thread holds
a few slots of one block: memory does not grow with the number of formulae or traces.

Boolean satisfaction is the same machine on atoms that are +1 or -1: then min, max and minus are and,
or and not.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from ..formula import operators as ops
from ..formula.programs import Programs
from ..machine import cores
from . import lowering as ins

LANES = 64
_ELEMENTS_PER_THREAD = 3_000_000  # about a millisecond; less is not worth a thread
_TILE = 128  # times transposed together, so that what is read stays in the nearest cache


def evaluate(
    programs: Programs,
    traces: np.ndarray,
    columns: dict[str, int],
    *,
    trace: bool = False,
    strict: bool = False,
    boolean: bool = False,
    workers: int | None = None,
) -> np.ndarray:
    """Robustness of B formulae on N traces: (B, N), or (B, N, P) with trace.

    traces (N, V, P) float32 or float64, finite; columns maps a variable's name to its index in V.
    Under strict, a trace is NaN where a formula has no value. With boolean, the result is +1 or -1.
    workers: threads (default: by the size of the work). With several, each piece of the work loads its
    traces anew, which one thread does once.
    """
    n_traces, _, points = traces.shape
    code = ins.lower(programs, points, trace=trace, strict=strict)
    terms, lags, coefficients, starts = _channel_table(programs, columns)
    values = code.values.astype(traces.dtype)
    shape = (len(programs), n_traces, points) if trace else (len(programs), n_traces, 1)
    out = np.empty(shape, traces.dtype)
    if trace and strict:
        out.fill(np.nan)

    cost = int(code.table[:, ins.LENGTH].sum()) * n_traces
    workers = workers or min(cores(), 1 + cost // _ELEMENTS_PER_THREAD)
    tasks = iter(_shares(n_traces, len(programs), workers))

    def work(_: int) -> None:
        block = np.empty((len(programs.channels), len(code.times) * LANES), traces.dtype)
        arena = np.empty(int(code.arena.max()) * LANES, traces.dtype)
        for lanes, formulae in tasks:
            _work(
                code.table, values, code.offsets, formulae[0], formulae[1], traces,
                lanes[0], lanes[1], code.times, terms, lags, coefficients, starts, block, arena,
                boolean, out,
            )  # fmt: skip

    if workers == 1:
        work(0)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, range(workers)))
    return out if trace else out[:, :, 0]


def _shares(
    n_traces: int, n_formulae: int, workers: int
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The work cut into some pieces a worker, so that all end together: ranges of traces, in whole
    blocks, and of formulae only where there are few blocks."""
    pieces = 1 if workers == 1 else 8 * workers
    blocks = -(-n_traces // LANES)
    step = LANES * -(-blocks // pieces)
    cuts = min(n_formulae, -(-pieces // blocks))
    return [
        (
            (lane, min(lane + step, n_traces)),
            (n_formulae * c // cuts, n_formulae * (c + 1) // cuts),
        )
        for lane in range(0, n_traces, step)
        for c in range(cuts)
    ]


def _channel_table(
    programs: Programs, columns: dict[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Channels as flat arrays: channel c is the sum of coefficients[j] * variable terms[j], lags[j]
    steps ago, over starts[c] <= j < starts[c + 1]."""
    variables = [variable for channel in programs.channels for variable, _ in channel]
    terms = [columns[ops.name_of(variable)] for variable in variables]
    lags = [ops.lag_of(variable) for variable in variables]
    coefficients = [c for channel in programs.channels for _, c in channel]
    starts = np.zeros(len(programs.channels) + 1, np.int64)
    np.cumsum([len(channel) for channel in programs.channels], out=starts[1:])
    return np.array(terms, np.int64), np.array(lags, np.int64), np.array(coefficients), starts


@njit(cache=True, nogil=True)
def _work(  # type: ignore[no-untyped-def]
    table, values, offsets, first, last, traces, lane, end, times, terms, lags, coefficients, starts,
    block, arena, boolean, out,
):  # fmt: skip
    """Formulae first ... last - 1 on traces lane ... end - 1, a block of traces after the other."""
    spare = np.empty(LANES, traces.dtype)
    for start in range(lane, end, LANES):
        _load(traces, start, times, terms, lags, coefficients, starts, block)
        _run(table, values, offsets, first, last, block, arena, spare, boolean, start, out)


@njit(cache=True, nogil=True, inline="always")
def _row(x, t):  # type: ignore[no-untyped-def]
    return x[t * LANES : (t + 1) * LANES]


@njit(cache=True, nogil=True, inline="always")
def _held(t, points):  # type: ignore[no-untyped-def]
    return min(max(t, 0), points - 1)


@njit(cache=True, nogil=True)
def _load(traces, lane, times, terms, lags, coefficients, starts, block):  # type: ignore[no-untyped-def]
    """Channels of traces lane ... lane + LANES - 1 into block (channel, row * LANES + lane).

    Row t is at times[t]; beyond the ends of a trace, its first and its last sample are held. Lanes
    past the last trace repeat it. Unsigned indices spare the compiler the test for negative
    ones, without which it can gather a row at a time.
    """
    n, variables, points = traces.shape
    flat = traces.reshape(-1)
    place = np.empty(LANES, np.uint64)
    for j in range(LANES):
        place[j] = np.uint64(min(lane + j, n - 1) * variables * points)
    for c in range(len(starts) - 1):
        plain = starts[c + 1] - starts[c] == 1 and coefficients[starts[c]] == 1.0
        for t in range(len(times)):
            row = _row(block[c], t)
            if plain:
                k = starts[c]
                start = np.uint64(terms[k] * points + _held(times[t] - lags[k], points))
                for j in range(LANES):
                    row[j] = flat[place[j] + start]
                continue
            for j in range(LANES):
                total = 0.0
                for k in range(starts[c], starts[c + 1]):
                    start = np.uint64(terms[k] * points + _held(times[t] - lags[k], points))
                    total += coefficients[k] * flat[place[j] + start]
                row[j] = total


@njit(cache=True, nogil=True)
def _run(table, values, offsets, first, last, block, arena, spare, boolean, lane, out):  # type: ignore[no-untyped-def]
    """Run formulae first .. last on one block of traces and write out[b, lane + j, t]."""
    lanes = min(LANES, out.shape[1] - lane)
    for b in range(first, last):
        for k in range(offsets[b], offsets[b + 1]):
            row = table[k]
            op = row[ins.OP]
            length = row[ins.LENGTH]
            size = length * LANES
            a = arena[row[ins.TO] * LANES :]
            if op == ins.ATOM:
                x = block[row[ins.FROM]][row[ins.OFFSET] * LANES :]
                _atom(row[ins.COMPARISON], a[:size], x[:size], values[k], boolean)
            elif op == ins.MINIMUM_ATOM or op == ins.MAXIMUM_ATOM:
                x = block[row[ins.FROM]][row[ins.OFFSET] * LANES :]
                _join_atom(row[ins.COMPARISON], op, a[:size], x[:size], values[k], boolean)
            elif op == ins.MINIMUM:
                _minimum(a[:size], arena[row[ins.FROM] * LANES :][:size])
            elif op == ins.MAXIMUM:
                _maximum(a[:size], arena[row[ins.FROM] * LANES :][:size])
            elif op == ins.WINDOW_MIN:
                _window_min(a, length, row[ins.INPUT], row[ins.WIDTH], spare)
            elif op == ins.WINDOW_MAX:
                _window_max(a, length, row[ins.INPUT], row[ins.WIDTH], spare)
            elif op == ins.NEGATE:
                for i in range(size):
                    a[i] = -a[i]
            elif op == ins.EQUIVALENT:
                _equivalent(a[:size], arena[row[ins.FROM] * LANES :][:size])
            elif op == ins.CONSTANT:
                a[:size] = values[k]
            elif op == ins.UNTIL_SCAN:
                _until(
                    a, arena[row[ins.LEFT] * LANES :], arena[row[ins.FROM] * LANES :],
                    arena[row[ins.SCRATCH] * LANES :],
                    length, row[ins.INPUT], row[ins.OFFSET], row[ins.WIDTH], row[ins.DELAY], spare,
                )  # fmt: skip
            elif op == ins.REVERSE:
                _reverse(a, length)
            else:
                raise ValueError("no such instruction")
        begin = table[offsets[b + 1] - 1, ins.START]
        for start in range(0, length, _TILE):
            stop = min(start + _TILE, length)
            tile = arena[start * LANES : stop * LANES]
            for j in range(lanes):
                target = out[b, lane + j, begin + start : begin + stop]
                column = tile[j:]
                for t in range(np.uint64(stop - start)):
                    target[t] = column[t * np.uint64(LANES)]


@njit(cache=True, nogil=True, inline="always")
def _smaller(a, b):  # type: ignore[no-untyped-def]
    return b if b < a else a


@njit(cache=True, nogil=True, inline="always")
def _larger(a, b):  # type: ignore[no-untyped-def]
    return b if b > a else a


@njit(cache=True, nogil=True, inline="always")
def _truth(op, x, threshold):  # type: ignore[no-untyped-def]
    if op == ops.GE:
        holds = x >= threshold
    elif op == ops.GT:
        holds = x > threshold
    elif op == ops.LE:
        holds = x <= threshold
    else:
        holds = x < threshold
    return 1.0 if holds else -1.0


@njit(cache=True, nogil=True)
def _atom(op, out, x, threshold, boolean):  # type: ignore[no-untyped-def]
    if boolean:
        for i in range(len(out)):
            out[i] = _truth(op, x[i], threshold)
    elif op == ops.GE or op == ops.GT:
        for i in range(len(out)):
            out[i] = x[i] - threshold
    else:
        for i in range(len(out)):
            out[i] = threshold - x[i]


@njit(cache=True, nogil=True)
def _join_atom(op, joint, out, x, threshold, boolean):  # type: ignore[no-untyped-def]
    """out = min or max of out and the atom, as one pass."""
    above = op == ops.GE or op == ops.GT
    if boolean:
        for i in range(len(out)):
            v = _truth(op, x[i], threshold)
            out[i] = _smaller(out[i], v) if joint == ins.MINIMUM_ATOM else _larger(out[i], v)
    elif joint == ins.MINIMUM_ATOM and above:
        for i in range(len(out)):
            out[i] = _smaller(out[i], x[i] - threshold)
    elif joint == ins.MINIMUM_ATOM:
        for i in range(len(out)):
            out[i] = _smaller(out[i], threshold - x[i])
    elif above:
        for i in range(len(out)):
            out[i] = _larger(out[i], x[i] - threshold)
    else:
        for i in range(len(out)):
            out[i] = _larger(out[i], threshold - x[i])


@njit(cache=True, nogil=True)
def _minimum(a, b):  # type: ignore[no-untyped-def]
    for i in range(len(a)):
        a[i] = _smaller(a[i], b[i])


@njit(cache=True, nogil=True)
def _maximum(a, b):  # type: ignore[no-untyped-def]
    for i in range(len(a)):
        a[i] = _larger(a[i], b[i])


@njit(cache=True, nogil=True)
def _reverse(x, length):  # type: ignore[no-untyped-def]
    """In place: the first row becomes the last one."""
    for t in range(length // 2):
        a, b = _row(x, t), _row(x, length - 1 - t)
        for j in range(LANES):
            a[j], b[j] = b[j], a[j]


@njit(cache=True, nogil=True)
def _equivalent(a, b):  # type: ignore[no-untyped-def]
    """min(max(-a, b), max(a, -b)) = sgn(a) sgn(b) min(|a|, |b|)."""
    for i in range(len(a)):
        u, v = a[i], b[i]
        a[i] = _smaller(_larger(-u, v), _larger(u, -v))


def _window(extreme: Callable[..., Any]) -> Callable[..., Any]:
    @njit(cache=True, nogil=True)
    def scan(x, first, last):  # type: ignore[no-untyped-def]
        """Rows last - 1 down to first become the extreme of themselves and all rows to `last`."""
        for t in range(last - 1, first - 1, -1):
            a, b = _row(x, t), _row(x, t + 1)
            for j in range(LANES):
                a[j] = extreme(a[j], b[j])

    @njit(cache=True, nogil=True)
    def window(x, length, inputs, width, spare):  # type: ignore[no-untyped-def]
        """In place: row t becomes the extreme of rows t ... t + width - 1, clipped at the last input.

        In chunks of `width` rows, a window is the end of one chunk (a running extreme from its right
        edge) and the start of the next (a running extreme from its left edge).
        """
        whole = max(0, min(length, inputs - width + 1))  # windows that end inside the input
        for start in range(0, whole if width > 1 else 0, width):
            scan(x, start, start + width - 1)
            stop = min(start + width, whole)
            if start + 1 < stop:
                spare[:] = _row(x, start + width)
            for t in range(start + 1, stop):
                a, b = _row(x, t), _row(x, t + width - 1)
                for j in range(LANES):
                    running = extreme(spare[j], b[j])
                    spare[j] = running
                    a[j] = extreme(a[j], running)
        scan(x, whole, inputs - 1)  # the other windows run to the last input
        for t in range(inputs, length):
            _row(x, t)[:] = _row(x, inputs - 1)

    return window


_window_min = _window(_smaller)
_window_max = _window(_larger)


@njit(cache=True, nogil=True)
def _until(out, left, right, scan, length, inputs, offset, width, delay, spare):  # type: ignore[no-untyped-def]
    """out = left U[delay, delay + width - 1] right.

    scan[t] = min(left[t], max(right[t], scan[t + 1])) is the unbounded until; then
    U[a,b] = G[0,a] left and scan[t + a] and F[a,b] right. `right` and `scan` start `offset` rows
    after `left`, where their first window does.
    """
    u, p, q = _row(scan, inputs - 1), _row(left, inputs - 1 + offset), _row(right, inputs - 1)
    for j in range(LANES):
        u[j] = _smaller(p[j], q[j])
    for t in range(inputs - 2, -1, -1):
        u, later = _row(scan, t), _row(scan, t + 1)
        p, q = _row(left, t + offset), _row(right, t)
        for j in range(LANES):
            u[j] = _smaller(p[j], _larger(q[j], later[j]))
    if width <= inputs:
        shared = min(length, inputs)
        _window_max(right, shared, inputs, width, spare)
        _minimum(scan[: shared * LANES], right[: shared * LANES])
    if delay > 0:
        _window_min(left, length, inputs + offset, delay + 1, spare)
    for t in range(length):
        a, p, u = _row(out, t), _row(left, t), _row(scan, min(t, inputs - 1))
        for j in range(LANES):
            a[j] = _smaller(p[j], u[j])
