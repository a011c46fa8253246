"""Logs on a grid of evenly spaced times, on request, with a report of what was made up.

Between samples, numbers are interpolated linearly, and flags, enumerations and channels that are
declared so keep their last value. A grid loses spikes, so each of its points also has the least and
the greatest original sample of its bin, [t - dt/2, t + dt/2). What lies in a gap beyond the limit, or
outside of a channel's samples, is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..errors import TraceError, counted
from .cells import Kind
from .logs import Channel, Log
from .reading import MAX_JITTER, shortest_step
from .times import shown

Missing = Literal["hold", "interpolate", "error"]
Span = tuple[float, float]  # the first and the last time, in seconds

MAX_POINTS = 50_000_000  # of a grid, over all channels
MAX_SPANS = 3  # spans that a line of the report names
PROPOSAL_ERROR = 0.05  # by how much a proposed step may differ from the usual one


class Filled(NamedTuple):
    """What a channel's row of a grid holds that its log does not."""

    channel: str
    made_up: int  # samples with no original one in their bin
    made_up_spans: tuple[Span, ...]
    unknown: int
    unknown_spans: tuple[Span, ...]

    def __str__(self) -> str:
        parts = [
            f"{counted(n, 'sample')} {what} ({_shown(spans)})"
            for n, what, spans in (
                (self.made_up, "made up", self.made_up_spans),
                (self.unknown, "unknown", self.unknown_spans),
            )
            if n
        ]
        return f"{self.channel}: {', '.join(parts) or 'nothing made up'}"


@dataclass(frozen=True, eq=False)
class Grid:
    """A log on a grid. V variables, P points."""

    name: str
    source: str
    dt: float | None  # seconds; None for a log without times, whose rows are steps
    times: np.ndarray  # (P,)
    variables: tuple[str, ...]
    values: np.ndarray  # (V, P); NaN where unknown
    known: np.ndarray  # (V, P) bool
    least: (
        np.ndarray
    )  # (V, P) of the value and the original samples of the bin; NaN if there is none
    greatest: np.ndarray  # (V, P)
    kinds: Mapping[str, Kind]
    labels: Mapping[str, Mapping[str, int]]
    units: Mapping[str, str]
    report: tuple[Filled, ...]  # of channels with samples that are made up or unknown
    notes: tuple[str, ...] = ()  # what was repaired


def resample(
    log: Log,
    dt: float | None = None,
    *,
    missing: Missing | None = None,
    max_gap: float | None = None,
    hold: Collection[str] = (),
) -> Grid:
    """Put a log on a grid that starts at its first time.

    dt: the step in seconds; None takes the log's own, which must be even.
    missing: what to do where a cell is empty: "hold" the channel's last value, "interpolate" (numbers
        only; the rest is held), or raise an "error". By default an error without dt, and otherwise
        interpolate.
    max_gap: seconds between two samples of a channel beyond which it is unknown between them.
    hold: channels of numbers that keep their last value until the next one.
    """
    if not isinstance(log, Log):
        raise TraceError(f"log must be a Log, not {log!r:.80}; read the file first")
    if missing not in (None, "hold", "interpolate", "error"):
        raise TraceError(f'missing must be "hold", "interpolate" or "error", not {missing!r}')
    if max_gap is not None and not max_gap >= 0:
        raise TraceError(f"max_gap must be a number of seconds from 0 on, not {max_gap!r}")
    absent = sorted(set(hold) - set(log.channels))
    if absent:
        raise TraceError(f"{log.source}: there is no channel {absent[0]!r} to hold")
    own = dt is None
    step = even_step(log) if dt is None else _checked_step(log, dt)
    times = log.times if own else _grid(log, step)
    if missing == "error" or (missing is None and own):
        _require_complete(log)
    n, shape = len(times), (len(log.channels), len(times))
    values, least, greatest = (np.full(shape, np.nan) for _ in range(3))
    known = np.zeros(shape, bool)
    report = []
    for v, (name, channel) in enumerate(log.channels.items()):
        at = np.flatnonzero(~np.isnan(channel.values))
        bins = at if own else _bins(log.times[at], log.times[0], step, n)
        holds = missing == "hold", channel.kind != "number" or name in hold
        values[v], known[v] = filled(log, channel, times, holds, max_gap, step)
        least[v], greatest[v] = _extremes(values[v], channel.values[at], bins)
        sampled = np.zeros(n, bool)
        sampled[bins] = True
        made_up = known[v] & ~sampled
        if made_up.any() or not known[v].all():
            report.append(
                Filled(
                    name, int(made_up.sum()), _spans(times, made_up),
                    int((~known[v]).sum()), _spans(times, ~known[v]),
                )
            )  # fmt: skip
    return Grid(
        log.name, log.source, step if log.timed else None, times, tuple(log.channels), values, known,
        least, greatest, {name: c.kind for name, c in log.channels.items()}, log.labels, log.units,
        tuple(report), log.notes,
    )  # fmt: skip


def even_step(log: Log) -> float:
    """The step of a log that needs no resampling, 1 without times; otherwise an error."""
    if not log.timed or len(log.times) < 2:
        return 1.0
    steps = np.diff(log.times)
    usual = _usual(steps)
    wrong = abs(steps - usual) > MAX_JITTER * usual
    if wrong.any():
        i = int(wrong.argmax())
        raise TraceError(
            f"{log.source}{log.where(i + 1)}: the time goes from {shown(log.times[i])} to "
            f"{shown(log.times[i + 1])}, but the usual step is {usual:g}; put the log on a grid, as "
            f"with --resample {proposed_step(log):g}"
        )
    return shortest_step(steps, log.times)


def _usual(steps: np.ndarray) -> float:
    """The lower median: unlike the mean of two, it is a step of the log."""
    return float(np.sort(steps)[(len(steps) - 1) // 2])


def proposed_step(log: Log) -> float:
    """A round number of seconds near the usual step of the channel that is sampled most often."""
    usual = []
    for channel in log.channels.values():
        steps = np.diff(log.times[~np.isnan(channel.values)])
        if len(steps):
            usual.append(_usual(steps))
    step = min(usual, default=1.0)
    rounded = (float(f"{step:.{digits}g}") for digits in range(1, 18))
    return next(r for r in rounded if abs(r - step) <= PROPOSAL_ERROR * step)


def filled(
    log: Log,
    channel: Channel,
    times: np.ndarray,
    holds: tuple[bool, bool],
    max_gap: float | None,
    step: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The channel at other times, and where it is known.

    holds: whether it keeps its last value where cells are empty, and whether it always does.
    """
    at = np.flatnonzero(~np.isnan(channel.values))
    if not len(at):
        return np.full(len(times), np.nan), np.zeros(len(times), bool)
    own, samples = log.times[at], channel.values[at]
    close = _rounding(log, step)
    before = np.searchsorted(own, times + close, side="right") - 1
    first = before < 0
    before = np.maximum(before, 0)
    after = np.minimum(before + 1, len(own) - 1)
    exact = ~first & (times - own[before] <= close)
    last = before == after
    length = np.where(last, log.times[-1], own[after]) - own[before]
    across = np.where(last, True, at[after] - at[before] > 1)  # cells in between are empty
    held = holds[1] | (holds[0] & across)
    values = samples[before]
    between = ~(exact | held | first | last)
    a, b = before[between], after[between]
    part = (times[between] - own[a]) / length[between]
    values[between] += part * (samples[b] - samples[a])
    known = exact | (~first & (held | ~last))
    if max_gap is not None:
        known &= exact | (length <= max_gap + close)
    return np.where(known, values, np.nan), known


def _checked_step(log: Log, dt: float) -> float:
    if not log.timed:
        raise TraceError(
            f"{log.source}: there are no times, without which it cannot be resampled; name their "
            "column with --time-column"
        )
    if not 0 < dt < np.inf:
        raise TraceError(f"the step of a grid must be a positive number of seconds, not {dt!r}")
    return float(dt)


def _grid(log: Log, step: float) -> np.ndarray:
    points = (log.times[-1] - log.times[0]) / step
    if points * len(log.channels) > MAX_POINTS:
        raise TraceError(
            f"{log.source}: a step of {step:g} s makes {points:,.0f} samples per channel; take a "
            "longer one"
        )
    points += _rounding(log, step) / step
    return np.asarray(log.times[0] + step * np.arange(int(points) + 1))


def _rounding(log: Log, step: float) -> float:
    """Times that differ by this or less are the same; seconds since 1970 are rounded more coarsely."""
    return max(1e-9 * step, 4 * float(np.spacing(abs(log.times).max())))


def _bins(times: np.ndarray, start: float, step: float, n: int) -> np.ndarray:
    """The grid point whose bin each time is in; the last bin takes what is left."""
    return np.clip(np.floor((times - start) / step + 0.5).astype(np.int64), 0, n - 1)


def _extremes(
    values: np.ndarray, samples: np.ndarray, bins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    least, greatest = values.copy(), values.copy()
    if len(bins):
        starts = np.flatnonzero(np.diff(bins, prepend=-1))
        filled_bins = bins[starts]
        for total, extreme, ignoring in (
            (least, np.minimum, np.fmin),
            (greatest, np.maximum, np.fmax),
        ):
            total[filled_bins] = ignoring(total[filled_bins], extreme.reduceat(samples, starts))
    return least, greatest


def _require_complete(log: Log) -> None:
    for name, channel in log.channels.items():
        lacking = np.isnan(channel.values)
        if lacking.any():
            where = log.where(int(lacking.argmax()))
            raise TraceError(
                f"{log.source}{where}, channel {name!r}: no value; fill such cells with --missing hold "
                "or --missing interpolate"
            )


def _spans(times: np.ndarray, chosen: np.ndarray) -> tuple[Span, ...]:
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return tuple(
        (float(times[start]), float(times[stop - 1]))
        for start, stop in edges.reshape(-1, 2).tolist()
    )


def _shown(spans: tuple[Span, ...]) -> str:
    texts = [f"{a:g} s" if a == b else f"{a:g} to {b:g} s" for a, b in spans]
    more = len(texts) - MAX_SPANS
    return ", ".join([*texts[:MAX_SPANS], *([f"and {more:,} more"] if more > 0 else [])])
