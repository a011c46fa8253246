"""Logs as they are: read from files and frames, with irregular times and missing samples.

`read_logs` yields one log after the other, so that no more than one file is in memory.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import exists, isdir, isfile, splitext
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RhovecWarning, TraceError
from ..formula.core import natural_key
from .binary import read_frame, read_mat, read_npy, read_npz, read_parquet
from .cells import SECONDS, Kind, Series
from .delimited import read_delimited
from .tables import REPAIR, Layout, Options, Part, goes_back, listed
from .times import shown

READERS: dict[str, Callable[[Path, Options], list[Part]]] = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".txt": read_delimited,
    ".npy": read_npy,
    ".npz": read_npz,
    ".parquet": read_parquet,
    ".mat": read_mat,
}

NO_FILE = "a pipe or a device"

PathLike = str | Path


@dataclass(frozen=True, eq=False)
class Channel:
    """The samples of one signal, at the times of its log."""

    values: np.ndarray  # (P,) float64; NaN: no sample at that time
    kind: Kind = "number"
    labels: Mapping[str, int] | None = None  # codes of an enumeration, by name
    unit: str | None = None


@dataclass(frozen=True, eq=False)
class Log:
    """A recording: channels over the times of its file."""

    name: str
    source: str  # the file
    times: np.ndarray  # (P,) float64, increasing: seconds, or the numbers of rows without them
    channels: Mapping[str, Channel]
    timed: bool = True  # whether the file has times
    notes: tuple[str, ...] = ()  # what was repaired, and from when the times count
    where: Callable[[int], str] = ", sample {}".format  # point -> ":7", looked up for an error

    @property
    def labels(self) -> dict[str, Mapping[str, int]]:
        """The codes of enumerations by channel, for `parse`."""
        return {
            n: c.labels for n, c in self.channels.items() if c.kind == "enumeration" and c.labels
        }

    @property
    def units(self) -> dict[str, str]:
        """The units that are known, for `parse`."""
        return {name: c.unit for name, c in self.channels.items() if c.unit}


def read_logs(
    data: Any,
    *,
    variables: Sequence[str] | None = None,
    layout: Layout = "auto",
    id_column: str | None = None,
    time_column: str | None = None,
    time_unit: str | None = None,
    labels: Mapping[str, Mapping[str, float]] | None = None,
    coded: Collection[str] = (),
    flags: Collection[str] = (),
    encoding: str | None = None,
    skip_lines: int = 0,
    repair_times: bool = False,
) -> Iterator[Log]:
    """Read logs from files, from all files of a folder, or from a frame with Arrow's interface.

    variables: the channels to read (default: all). What is wrong in other columns does not matter.
    layout: "wide" tables have one column per channel, "long" ones the columns `variable` (or `signal`,
        `channel`, `name`) and `value`, and "rows" one row per log; "auto" tells wide from long.
    id_column: the column that tells the logs of a table apart (default: `trace`, `id` or `trace_id`).
    time_column: the times, as numbers or dates (default: `time`, `t` or `timestamp`, also with its
        unit, `time_ms`). Without variables, a column whose name says nothing but time (`Zeit`, `clock`)
        is an error.
    time_unit: their unit (default: that of the header, as in `Time (ms)` or `time_ms`, or seconds).
    labels: texts that formulae compare channels with, and their codes, {"gear": {"P": 0, "D": 3}}.
    coded: channels of `labels` whose files may hold the codes themselves, as numbers.
    flags: channels that formulae use as flags: where a file has only 0 and 1, these are not numbers.
    encoding: of text files (default: UTF-8, or UTF-16 with its mark).
    skip_lines: lines before the header.
    repair_times: sort rows whose times do not increase, and take the last of several at one time.
    """
    names = None if variables is None else as_names(variables)
    options = checked(
        Options(
            layout, names, id_column, time_column, time_unit, labels or {}, frozenset(coded),
            frozenset(flags), encoding, skip_lines, repair_times, arrays=names,
            untimed="" if names else "list it in variables, if it is one", sure=True,
        )
    )  # fmt: skip
    if hasattr(data, "__arrow_c_stream__"):
        parts = read_frame(data, "frame", options)
        return (as_log(part.id or "frame", part, options) for part in parts)
    files = find_files(data)
    return (as_log(name, part, options) for name, part in read_files(files, options))


def checked(options: Options) -> Options:
    if options.layout not in ("auto", "wide", "long", "rows"):
        raise TraceError(f'layout must be "auto", "wide", "long" or "rows", not {options.layout!r}')
    if options.time_unit is not None and options.time_unit not in SECONDS:
        raise TraceError(
            f"time_unit must be one of {', '.join(SECONDS)}, not {options.time_unit!r}"
        )
    return options


def as_names(variables: Sequence[str]) -> tuple[str, ...]:
    """Names of variables: texts, none of them empty or given twice. A single text is one name."""
    names = (variables,) if isinstance(variables, str) else tuple(variables)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TraceError(f"variables must be names, not {name!r}")
    if not names or len(set(names)) < len(names):
        raise TraceError(f"variables must be names, each given once, not {listed(names)}")
    return names


def as_paths(given: Any) -> list[PathLike]:
    """One path or several; TraceError for anything else."""
    one = isinstance(given, str | Path)
    is_table = isinstance(given, Mapping) or hasattr(given, "columns")
    several = isinstance(given, Iterable) and not is_table
    paths = [given] if one or not several else list(given)
    for path in paths:
        if not isinstance(path, str | Path):
            raise TraceError(
                f"give paths of files or folders, not {type(path).__name__}; save a table as "
                ".csv or .parquet"
            )
    return paths


def find_files(given: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files that are named, and those in folders that are."""
    files: list[Path] = []
    for path in map(Path, as_paths(given)):
        if path.is_dir():
            found = chosen(path, map(_entry, path.iterdir()), READERS)
            if not found:
                raise TraceError(f"{path}: this folder has no {', '.join(READERS)} file")
            files += [path / name for name in sorted(found, key=natural_key)]
        elif not path.exists():
            raise TraceError(f"{path}: no such file")
        elif path.suffix.lower() not in READERS:
            raise TraceError(f"{path}: the name must end in {', '.join(READERS)}")
        elif not path.is_file():
            raise TraceError(
                f"{path}: {NO_FILE}, but logs are read several times; save it as a file"
            )
        else:
            files.append(path)
    if not files:
        raise TraceError("no trace file given")
    return files


def _entry(path: Path) -> str:
    """The name of what is in a folder, with what it is if it is no file. A link to nothing counts as a
    file, which cannot be read."""
    if isdir(path):
        return f"{path.name}/"
    return path.name if isfile(path) or not exists(path) else f"{path.name} ({NO_FILE})"


def chosen(folder: PathLike, names: Iterable[str], suffixes: Collection[str]) -> list[str]:
    """The files to read of those in a folder, where folders end in a slash.

    A warning names the rest, but for hidden files, locks, and requirements beside their logs. Beside
    logs of other kinds, a .txt file may be a note.
    """
    visible = [n for n in names if not any(part.startswith((".", "~")) for part in n.split("/"))]
    found = [name for name in visible if splitext(name)[1].lower() in suffixes]
    if ".csv" in suffixes:
        found = [name for name in found if not name.lower().endswith(".txt")] or found
    rest = sorted(
        (n for n in set(visible) - set(found) if not n.lower().endswith(".stl")), key=natural_key
    )
    if found and rest:
        warnings.warn(f"{folder}: not read: {listed(rest)}", RhovecWarning, stacklevel=2)
    return found


def named_files(files: Sequence[Path]) -> list[tuple[str, Path]]:
    """Files, each with a name that no other has."""
    stems = Counter(file.stem for file in files)
    return [(file.stem if stems[file.stem] == 1 else str(file), file) for file in files]


def read_file(label: str, file: Path, options: Options, alone: bool) -> Iterator[tuple[str, Part]]:
    """The traces of a file with their names: the file's, and the identifiers within it, which are all of
    the name if it is the only file."""
    try:
        parts = READERS[file.suffix.lower()](file, options)
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise TraceError(f"{file}: cannot be read: {reason}") from None
    for part in parts:
        if part.id == "":
            yield label, part
        else:
            yield (part.id if alone else f"{label}/{part.id}"), part


def read_files(files: Sequence[Path], options: Options) -> Iterator[tuple[str, Part]]:
    """The traces of files, each with a name that no other has."""
    for label, file in named_files(files):
        yield from read_file(label, file, options, alone=len(files) == 1)


def as_log(name: str, part: Part, options: Options) -> Log:
    """A trace with its times in order."""
    times = part.times
    notes: tuple[str, ...] = ()
    timed = times is not None
    if times is None:
        times = np.arange(float(len(part.rows)))
    elif (np.diff(times) <= 0).any():
        part, notes = _in_order(part, times, options.repair_times)
        assert part.times is not None
        times = part.times
    channels = {
        name: Channel(one.values, _kind(name, one, options), one.labels or None, one.unit)
        for name, one in part.series.items()
    }
    return Log(
        name, part.source.name, times, channels, timed, (*part.source.notes, *notes),
        lambda point: part.source.where(int(part.rows[point])),
    )  # fmt: skip


def _kind(name: str, series: Series, options: Options) -> Kind:
    values = series.values
    if name in options.flags and (np.isnan(values) | (values == 0) | (values == 1)).all():
        return "flag" if series.kind == "number" else series.kind
    return series.kind


def _in_order(part: Part, times: np.ndarray, repair: bool) -> tuple[Part, tuple[str, ...]]:
    """One sample per time. Rows at one time are merged if no channel has two values there."""
    falls = np.diff(times) < 0
    if falls.any() and not repair:
        i = int(falls.argmax())
        raise part.fail(i + 1, goes_back(times[i], times[i + 1], REPAIR))
    order = np.argsort(times, kind="stable")
    instants, place = np.unique(times[order], return_inverse=True)
    rows = np.zeros(len(instants), np.int64)
    rows[place] = part.rows[order]
    series = {}
    for name, one in part.series.items():
        values = one.values[order]
        given = np.flatnonzero(~np.isnan(values))
        merged = np.full(len(instants), np.nan)
        merged[place[given]] = values[given]
        wrong = merged[place[given]] != values[given]
        if wrong.any() and not repair:
            i = int(order[given[wrong.argmax()]])
            raise part.fail(i, f"{name!r} has several values at time {shown(times[i])}{REPAIR}")
        series[name] = replace(one, values=merged, rows=None)
    n_fallen, n_merged = int(falls.sum()), len(times) - len(instants)
    notes = []
    if n_fallen:
        notes.append(f"the times went back {n_fallen:,} times; the rows were sorted")
    if n_merged:
        notes.append(f"{n_merged:,} rows had the time of another row; they were merged")
    return part._replace(series=series, times=instants, rows=rows), tuple(notes)
