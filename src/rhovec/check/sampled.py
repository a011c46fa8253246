"""A log as it is judged: evenly spaced samples, some of them unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..errors import TraceError
from ..traces.logs import Log
from ..traces.measure import refuse_table
from ..traces.resampling import even_step


@dataclass(frozen=True)
class Sampled:
    """The samples of one trace, `dt` seconds apart.

    samples: variable -> (P,), NaN where a sample is unknown.
    least, greatest: variable -> (P,), what the variable took around each sample before resampling;
        a variable without them is taken to be known as it is.
    """

    samples: Mapping[str, np.ndarray]
    least: Mapping[str, np.ndarray] = field(default_factory=dict)
    greatest: Mapping[str, np.ndarray] = field(default_factory=dict)
    dt: float | None = None
    start: float = 0.0  # the time of the first sample, in seconds
    name: str = ""

    @property
    def points(self) -> int:
        return len(next(iter(self.samples.values())))

    def time(self, sample: int) -> float:
        """The time of a sample in seconds; without `dt`, its number."""
        return sample if self.dt is None else self.start + sample * self.dt


@runtime_checkable
class OnGrid(Protocol):
    """A log that was put on a grid: V variables, P points, NaN where a sample is unknown."""

    name: str
    dt: float | None
    times: np.ndarray  # (P,)
    variables: tuple[str, ...]
    values: np.ndarray  # (V, P)
    least: np.ndarray  # (V, P)
    greatest: np.ndarray  # (V, P)


def clock(time: float) -> str:
    """Seconds as a number for people: twelve digits, or all that a date in seconds needs."""
    return f"{time:.12g}" if abs(time) < 1e6 else f"{time:.15g}"


def moment(time: float, timed: bool = True) -> str:
    return f"{clock(time)} s" if timed else f"sample {time:.15g}"


def as_sampled(
    trace: Any, variables: Sequence[str] | None = None, dt: float | str | None = None
) -> Sampled:
    """What may be given as one trace: a Sampled, a Log with even times, one on a grid, a dict
    name -> (P,), or an array (V, P)."""
    step = None if dt is None else float(dt)
    if isinstance(trace, Sampled):
        return trace if step is None else replace(trace, dt=step)
    if isinstance(trace, Log):
        if trace.timed and (step is None or len(trace.times) > 1):
            step = even_step(trace)
        samples = {name: channel.values for name, channel in trace.channels.items()}
        return Sampled(samples, dt=step, start=float(trace.times[0]), name=trace.name)
    if isinstance(trace, OnGrid):
        return _from_grid(trace)
    if isinstance(trace, Mapping):
        return Sampled({name: _column(name, values) for name, values in trace.items()}, dt=step)
    refuse_table(trace, "the trace")
    array = _numbers("the trace", trace)
    if array.ndim != 2:
        raise TraceError(f"one trace has the shape (variables, points), not {array.shape}")
    names = [f"x_{i}" for i in range(len(array))] if variables is None else list(variables)
    if len(names) != len(array):
        raise TraceError(f"variables names {len(names)}, but the trace has {len(array)} variables")
    return Sampled(dict(zip(names, array, strict=True)), dt=step)


def require(log: Sampled, used: Sequence[str]) -> None:
    """Refuse a log that has not all variables, or whose columns do not fit together."""
    where = f"log {log.name}: " if log.name else ""
    missing = [name for name in used if name not in log.samples]
    if missing or not log.samples:
        there = ", ".join(list(log.samples)[:8]) or "no variable"
        raise TraceError(f"{where}a formula uses {', '.join(missing[:8])}, but the log has {there}")
    for name in used:
        for columns in (log.samples, log.least, log.greatest):
            if name in columns and (shape := np.shape(columns[name])) != (log.points,):
                raise TraceError(
                    f"{where}{name} has the shape {shape}, but another variable has "
                    f"{log.points} samples"
                )
        if np.isinf(log.samples[name]).any():
            raise TraceError(f"{where}{name} is infinite somewhere; NaN marks an unknown sample")
        if (name in log.least) != (name in log.greatest):
            raise TraceError(f"{where}{name} has a least or a greatest value, but not both")
    if not log.points:
        raise TraceError(f"{where}there is no sample in it")


def _from_grid(grid: OnGrid) -> Sampled:
    def columns(rows: np.ndarray, chosen: np.ndarray | None = None) -> dict[str, np.ndarray]:
        some = range(len(rows)) if chosen is None else np.flatnonzero(chosen).tolist()
        return {grid.variables[i]: rows[i] for i in some}

    same = (grid.least == grid.values) & (grid.greatest == grid.values) | np.isnan(grid.values)
    ranged = ~same.all(axis=1)
    return Sampled(
        columns(grid.values), columns(grid.least, ranged), columns(grid.greatest, ranged),
        grid.dt, float(grid.times[0]), grid.name,
    )  # fmt: skip


def _column(name: str, values: Any) -> np.ndarray:
    array = _numbers(repr(name), values)
    if array.ndim != 1:
        raise TraceError(f"{name!r} must have the shape (points,), not {array.shape}")
    return array


def _numbers(what: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TraceError(
            f"{what} must be real numbers; {type(values).__name__} holds others"
        ) from None
