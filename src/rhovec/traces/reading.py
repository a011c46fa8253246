"""Traces for the engines: logs whose samples are complete and evenly spaced.

Nothing is made up here: a missing sample, a text or a jump in time is an error that says where it
is. `logs.py` reads files as they are, and `resampling.py` puts them on a grid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import TraceError
from ..formula.core import natural_key
from .logs import PathLike, as_names, checked, find_files, read_files
from .tables import Layout, Options, Part, goes_back, listed
from .times import shown

__all__ = ["PathLike", "Traces", "as_names", "listed", "read_traces"]

MAX_JITTER = 0.1  # of a step: rounding the times of a file to a few digits may cost that much


@dataclass(frozen=True)
class Traces:
    """Traces over the same variables; their lengths may differ.

    `rv.robustness(formulae, traces)` evaluates formulae on them; the time bounds of texts count samples.
    """

    variables: tuple[str, ...]
    values: list[np.ndarray]  # one array (V, P_i) float64 per trace
    ids: tuple[str, ...]  # one per trace
    dt: float | None  # sampling step in seconds, from the time columns; None without them
    left_out: tuple[str, ...] = ()  # columns without a number that were asked to be skipped
    units: Mapping[str, str] = field(default_factory=dict)  # those that headers name, for `parse`


def read_traces(
    paths: PathLike | Sequence[PathLike],
    *,
    layout: Layout = "auto",
    variables: Sequence[str] | None = None,
    id_column: str | None = None,
    time_column: str | None = None,
    time_unit: str | None = None,
    mentioned: Collection[str] = (),
    skip_texts: bool = False,
) -> Traces:
    """Read traces from files, or from all files of a folder.

    layout: "wide" tables have one column per variable and one row per time step; "long" tables have
        the columns `variable` (or `signal`, `channel`, `name`) and `value`; "rows" have one row per
        trace; "auto" reads a table that has the columns of a long one as long, and any other as wide.
    variables: the variables to read (default: all), with or without the unit of their header: by
        default, `flow [l/s]` is the variable `flow`, as for `read_logs`. For an .npy file, an array
        (N, V, P) or (V, P), the names of its axis V (default: x_0, x_1, ...).
    id_column: the column that tells the traces of a table apart (default: `trace`, `id` or
        `trace_id`, if the table has one of them).
    time_column: times, which must increase evenly (default: `time`, `t` or `timestamp`, also
        with its unit, `time_ms`, if the table has one of them and it is not among the variables).
    time_unit: their unit (default: that of the header, as in `Time (ms)` or `time_ms`, or seconds).
    mentioned: names that matter, which may be whole headers. If a column cannot be read, only columns of
        these names are.
    skip_texts: leave out columns in which no trace has a number, unless `variables` names them.
    """
    names = None if variables is None else as_names(variables)
    skip_texts = skip_texts and names is None
    options = checked(
        Options(
            layout, names, id_column, time_column, time_unit, strict=True, skip_texts=skip_texts,
            mentioned=frozenset(mentioned), arrays=names,
        )
    )  # fmt: skip
    files = find_files(paths)
    try:
        found = list(read_files(files, options))
        texts = _without_numbers(found) if skip_texts else ()
        found = [(name, _without(part, texts)) for name, part in found]
        for _, part in found:
            in_order(part, found[0][1])
    except TraceError:
        if not mentioned:
            raise
        wanted = replace(options, only_mentioned=True, skip_texts=True)
        found = list(read_files(files, wanted))
        unread = [name for name in _without_numbers(found) if name not in wanted.mentioned]
        found = [(name, _without(part, unread)) for name, part in found]
        texts = ()
    first = found[0][1]
    values = [in_order(part, first) for _, part in found]
    return Traces(
        tuple(first.series),
        values,
        tuple(name for name, _ in found),
        sampling_step([part for _, part in found]),
        texts,
        common_units((part.source.name, part.units) for _, part in found),
    )


def common_units(found: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """The units by variable; TraceError if two files differ. found: files, and the units of each."""
    known: dict[str, tuple[str, str]] = {}
    for file, units in found:
        for name, unit in units.items():
            other, before = known.setdefault(name, (file, unit))
            if unit != before:
                raise TraceError(
                    f"{file}: {name!r} is in {unit}, but in {before} in {other}; convert one of them"
                )
    return {name: unit for name, (_, unit) in known.items() if unit.isprintable()}


def _without_numbers(found: Sequence[tuple[str, Part]]) -> tuple[str, ...]:
    """Columns in which no trace has a number."""
    named = dict.fromkeys(name for _, part in found for name in part.series)
    numbers = {
        name
        for _, part in found
        for name, series in part.series.items()
        if series.kind != "enumeration" and not np.isnan(series.values).all()
    }
    if not numbers:  # an error names the first
        return ()
    return tuple(name for name in named if name not in numbers)


def _without(part: Part, names: Collection[str]) -> Part:
    series = {name: one for name, one in part.series.items() if name not in names}
    return part._replace(series=series)


def in_order(part: Part, first: Part) -> np.ndarray:
    """The values (V, P) of a trace, its variables in the order of the first one."""
    names = tuple(first.series)
    if set(part.series) != set(names):
        odd = sorted(set(part.series) ^ set(names), key=natural_key)[0]
        has, lacks = (first, part) if odd in first.series else (part, first)
        raise TraceError(
            f"{lacks.source.name}: there is no variable {odd!r}, which {has.source.name} has"
        )
    for name, series in part.series.items():
        wrong = np.isnan(series.values)
        if series.kind == "enumeration":
            wrong = ~wrong
        if wrong.any():
            raise part.source.incomplete(part.row(name, int(wrong.argmax())), name)
    return np.stack([part.series[name].values for name in names])


def sampling_step(parts: Sequence[Part]) -> float | None:
    """The step that all time columns share, in seconds; times that repeat or jump are an error."""
    timed = [(part, part.times) for part in parts if part.times is not None and len(part.times) > 1]
    if not timed:
        return None
    every_step = np.concatenate([np.diff(times) for _, times in timed])
    usual = float(np.sort(every_step)[(len(every_step) - 1) // 2])  # the lower median

    for part, times in timed:
        wrong = np.diff(times) <= 0
        if wrong.any():
            i = int(wrong.argmax())
            raise part.fail(i + 1, goes_back(times[i], times[i + 1]))
    for part, times in timed:
        wrong = abs(np.diff(times) - usual) > MAX_JITTER * usual
        if wrong.any():
            i = int(wrong.argmax())
            raise part.fail(
                i + 1,
                f"the time goes from {shown(times[i])} to {shown(times[i + 1])}, but the usual step is "
                f"{usual:g}; resample the trace (rv.resample)",
            )
    return shortest_step(every_step, np.concatenate([times for _, times in timed]))


def shortest_step(steps: np.ndarray, times: np.ndarray) -> float:
    """The mean of even steps, with no more digits than it takes."""
    mean = round(float(steps.mean()), 15)  # the decimals that a formula's dt may have
    noise = 4 * float(np.finfo(np.float64).eps) * float(abs(times).max())
    shortest = (float(f"{mean:.{digits}g}") for digits in range(1, 18))
    return next(dt for dt in shortest if abs(dt - mean) <= noise)
