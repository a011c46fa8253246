"""Tables as traces: which column is what, and the split by identifier and by variable.

Nothing here may take time quadratic in the number of columns: logs with tens of thousands of them
exist.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from ..errors import TraceError
from .cells import SECONDS, Series, split_unit, time_unit_of
from .times import shown

ID_COLUMNS = ("trace", "id", "trace_id")
NAMED_ROWS = (*ID_COLUMNS, "file", "name")  # of a table with one row per trace
TIME_COLUMNS = ("time", "t", "timestamp")
TIME_WORDS = {  # in headers of columns that may be the times
    "time", "times", "timestamp", "timestamps", "datetime", "date", "elapsed", "epoch", "seconds",
    "utc", "zeit", "uhrzeit", "datum", "zeitstempel", "temps", "tiempo", "tempo", "tijd",
}  # fmt: skip
SHORT_TIMES = {  # such headers as a whole, before a unit if any
    "ts", "stamp", "tstamp", "clock", "gmt", "unix", "sec", "secs", "second",
    "milliseconds", "millis", "ms", "microseconds", "micros", "us", "nanoseconds", "nanos", "ns",
}  # fmt: skip
NAME_COLUMNS = ("variable", "signal", "channel", "name")  # of a long table
NO_VARIABLE = "there is no column besides id and time"
MAX_NAMES = 8  # names listed in a message
DAY = 86400  # seconds

_TIME_IN = re.compile("(time|timestamp)_(s|sec|seconds|ms|us|µs|μs|ns)", re.IGNORECASE)

Layout = Literal["auto", "wide", "long", "rows"]
REPAIR = "; --repair-times sorts the rows, and takes the last one of several at a time"


class Source(Protocol):
    """Where a table comes from, for messages."""

    name: str  # the file
    notes: tuple[str, ...]  # what to say about its times

    def where(self, row: int) -> str:
        """The place of a row in the file: ":7"."""

    def incomplete(self, row: int, column: str) -> TraceError:
        """The error about a cell that is not a number, where every cell must be one."""


@dataclass(frozen=True)
class Options:
    """How files are read; see `read_logs`."""

    layout: Layout = "auto"
    variables: tuple[str, ...] | None = None
    id_column: str | None = None
    time_column: str | None = None
    time_unit: str | None = None
    labels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    coded: Collection[str] = ()
    flags: Collection[str] = ()
    encoding: str | None = None
    skip_lines: int = 0
    repair_times: bool = False
    strict: bool = False  # every cell of every column counts
    skip_texts: bool = False  # although strict, columns of text may be there, to be left out
    partial: bool = False  # variables that a file lacks are left out, unless it lacks all
    mentioned: Collection[str] = ()  # names in formulae, which may be whole headers
    dt: float | None = None  # seconds per sample, if all times must have this step
    only_mentioned: bool = False  # without variables: only columns among these, if there is one
    arrays: tuple[str, ...] | None = None  # names of variables that a file does not name
    untimed: str = ""  # what else to do if a column may be the times by its name; empty: no error
    sure: bool = False  # only if every word of the name says so: not lap_time


class Part(NamedTuple):
    """A trace as its file has it."""

    id: str  # empty if the file holds one trace and no id column
    series: dict[str, Series]  # all of one length
    times: np.ndarray | None  # (P,) seconds, in the order of the file
    rows: np.ndarray  # (P,) rows of the file's table
    source: Source

    @property
    def units(self) -> dict[str, str]:
        """The units that are known."""
        return {name: one.unit for name, one in self.series.items() if one.unit}

    def row(self, name: str, point: int) -> int:
        """The row of the table that a variable's sample stands in."""
        own = self.series[name].rows
        return int((self.rows if own is None else own)[point])

    def fail(self, point: int, message: str) -> TraceError:
        """The error about a sample."""
        where = self.source.where(int(self.rows[point]))
        return TraceError(f"{self.source.name}{where}: {message}")


class Roles(NamedTuple):
    """What the columns of a table are: places, counted from 0."""

    variables: dict[str, int]  # of a wide table, or only "value"
    units: dict[str, str | None]
    id: int | None
    time: int | None
    time_unit: str | None
    name: int | None  # the column of names, in a long table

    @property
    def used(self) -> list[int]:
        others = (self.id, self.time, self.name)
        return [*self.variables.values(), *(place for place in others if place is not None)]


class Table(NamedTuple):
    """The columns of a file that matter. A long table has a series per variable."""

    source: Source
    series: dict[str, Series]
    ids: tuple[np.ndarray, list[str]] | None  # (rows,) codes, and the identifier of each
    times: np.ndarray | None  # (rows,) seconds
    n_rows: int


def present(options: Options, there: Collection[str]) -> tuple[str, ...]:
    """The variables to look for: those that are asked for; with `partial`, only those that are there,
    or, so that an error names it, the first."""
    wanted = options.variables or ()
    if not options.partial:
        return wanted
    return tuple(name for name in wanted if name in there) or wanted[:1]


def listed(names: Sequence[str]) -> str:
    """The first few names, for a message."""
    return ", ".join([*names[:MAX_NAMES], *(["..."] if len(names) > MAX_NAMES else [])]) or "none"


def no_variable(source: str, name: str, there: Sequence[str], options: Options) -> TraceError:
    """The error about a variable that a long table lacks."""
    hint = "; the table was read as long; if its columns are the variables, give --layout wide"
    return TraceError(
        f"{source}: no variable {name!r}; it has: {listed(there)}{hint * (options.layout == 'auto')}"
    )


def goes_back(before: float, after: float, advice: str = "") -> str:
    """What is wrong with times that do not increase, and what helps."""
    if after >= 0 and before < DAY and before - after > DAY / 2:
        advice = "; if midnight lies between them, write the times with their dates"
    return f"the time goes from {shown(before)} to {shown(after)}, but it must increase{advice}"


def find_roles(source: str, header: Sequence[str], options: Options) -> Roles:
    """Which column is what. A column may be named with or without its unit."""
    if options.strict and options.variables is None and "" in header and not options.only_mentioned:
        raise TraceError(f"{source}: column {list(header).index('') + 1} has no name")
    split = [split_unit(name) for name in header]
    counts, short = Counter(header), Counter(name for name, _ in split)
    places = {name: i for i, (name, _) in enumerate(split) if short[name] == 1}
    places |= {name: i for i, name in enumerate(header)}

    def place(name: str) -> int:
        if name not in places:
            close = difflib.get_close_matches(name, header[:1000], 1)
            hint = f"; is it {close[0]!r}?" if close else ""
            if len(header) == 1 and source.lower().endswith((".csv", ".tsv", ".txt")):
                hint = "; if the header stands further down, skip what is above by --skip-lines"
            raise TraceError(
                f"{source}: there is no column {name!r}; it has: {listed(header)}{hint}"
            )
        if counts[name] > 1:
            raise TraceError(f"{source}: column {name!r} appears twice")
        return places[name]

    def special(
        asked: str | None, usual: tuple[str, ...], shared: tuple[str, ...] = ()
    ) -> int | None:
        if asked is not None:
            return place(asked)
        free = {
            short_name.lower(): name
            for name, (short_name, _) in reversed(list(zip(header, split, strict=True)))
            if short_name.lower() in shared or not taken & {name, short_name}
        }
        return next((place(free[name]) for name in usual if name in free), None)

    taken = set(options.variables or ())
    lower = {name.lower(): name for name, _ in reversed(split)}
    named = next((lower[name] for name in NAME_COLUMNS if name in lower), None)
    is_long = options.layout == "long" or (
        options.layout == "auto" and named is not None and "value" in lower
    )
    id_place = special(options.id_column, ID_COLUMNS)
    # A requirement may be about the time, and bounds must not become numbers of samples for that.
    shared = () if options.strict else ("time", "timestamp")
    time_place = special(options.time_column, TIME_COLUMNS, shared)
    if options.time_column is None and time_place is None:
        # Their unit in their name makes such columns the times, unless there are several.
        also = [name for name in header if _TIME_IN.fullmatch(name)]
        if len(also) == 1 and also[0] not in taken.union(options.mentioned):
            time_place = place(also[0])
    if options.untimed and time_place is None:
        _refuse_likely_times(source, header, taken, id_place, options)
    if is_long:
        name_place = place(named or "variable")
        wanted = {"value": place(lower.get("value", "value"))}
    else:
        name_place = None
        if options.variables is not None:
            wanted = {name: place(name) for name in present(options, places)}
        else:
            columns = [
                (name, whole)
                for i, (whole, (cut, _)) in enumerate(zip(header, split, strict=True))
                if whole and i not in (id_place, time_place)
                for name in _names(whole, cut if short[cut] == 1 else whole, options)
            ]
            mentioned = [one for one in columns if one[0] in options.mentioned]
            chosen = mentioned if options.only_mentioned and mentioned else columns
            wanted = {name: place(whole) for name, whole in chosen}
    for name, i in wanted.items():
        if i == id_place or (i == time_place and options.strict):
            raise TraceError(f"{source}: column {name!r} is the id or the time, not a variable")
    if not wanted:
        raise TraceError(f"{source}: {NO_VARIABLE}")
    units = {name: split[i][1] for name, i in wanted.items()}
    return Roles(
        wanted, units, id_place, time_place, _time_unit(source, header, time_place, options), name_place
    )  # fmt: skip


def _refuse_likely_times(
    source: str, header: Sequence[str], taken: set[str], id_place: int | None, options: Options
) -> None:
    """An error if a column that is no variable may be the times: bounds would count samples instead."""
    first = 1 if id_place == 0 else 0
    for i, whole in enumerate(header):
        cut, unit = split_unit(whole)
        likely = may_be_times(cut, options.sure) or (i == first and unit in SECONDS)
        if likely and not {whole, cut} & taken:
            raise TraceError(
                f"{source}: no column is called time, t or timestamp, but {whole!r} may be the times; "
                "name them with time_column=..., and their unit, if it is not s, with time_unit=...; or "
                f"{options.untimed}"
            )


def may_be_times(name: str, sure: bool = False) -> bool:
    """Whether a column of this name, without its unit, may be the times: `Zeit`, `ts`, `t_ms`.

    sure: only if it has no word that says something else, as `lap_time` has.
    """
    first, *more = words = re.split(r"[\W_]+", name.lower())
    has_unit = len(more) == 1 and more[0] in SECONDS
    is_short = (first in SHORT_TIMES and not more) or (first in (*SHORT_TIMES, "t") and has_unit)
    others = set(words) - TIME_WORDS
    says_time = len(others) < len(set(words))
    return is_short or (says_time and (not sure or others <= SECONDS.keys()))


def _names(whole: str, usual: str, options: Options) -> list[str]:
    """What a column goes by: of its usual name and its whole header those that formulae use."""
    return [name for name in dict.fromkeys((usual, whole)) if name in options.mentioned] or [usual]


def _time_unit(
    source: str, header: Sequence[str], place: int | None, options: Options
) -> str | None:
    """The unit of the time column that its header or the options name."""
    unit = options.time_unit
    if unit is None and place is not None:
        unit = time_unit_of(header[place])
    if unit is not None and unit not in SECONDS:
        raise TraceError(
            f"{source}: the times are in {unit!r}, which is not a unit of time; name one of "
            f"{', '.join(SECONDS)} with --time-unit"
        )
    return unit


def split_table(table: Table, options: Options) -> list[Part]:
    """The traces of a table: one per identifier."""
    times = _complete_times(table, options.strict)
    is_long = any(series.rows is not None for series in table.series.values())
    lacking = None if times is None or is_long else np.isnan(times)
    if lacking is not None and lacking.all():
        raise TraceError(f"{table.source.name}: no row has a time")
    if table.ids is None and not is_long and (lacking is None or not lacking.any()):
        return [Part("", table.series, times, np.arange(table.n_rows), table.source)]
    codes, ids = table.ids or (np.zeros(table.n_rows, np.int64), [""])
    if is_long:
        return _split_long(table, codes, ids, times, options)
    if options.id_column is None and _counts_rows(ids, table.n_rows, times):
        raise TraceError(
            f"{table.source.name}: every row has an identifier of its own, so each trace would have one "
            "sample; if the rows are one trace, give that column another name than id, trace or "
            "trace_id; if not, name it with --id-column"
        )
    groups = _groups(codes, len(ids))
    if lacking is not None:
        groups = [rows[~lacking[rows]] for rows in groups]
    return [
        Part(
            one,
            {name: series.taken(rows) for name, series in table.series.items()},
            None if times is None else times[rows],
            rows,
            table.source,
        )
        for one, rows in zip(ids, groups, strict=True)
        if len(rows)
    ]


def _counts_rows(ids: Sequence[str], n_rows: int, times: np.ndarray | None) -> bool:
    """Whether identifiers number the rows of one trace: all differ, while the times go on."""
    return times is not None and 2 < n_rows == len(ids) and bool((np.diff(times) > 0).all())


def _complete_times(table: Table, strict: bool) -> np.ndarray | None:
    """The times. Only rows without any value may have none."""
    if table.times is None or not np.isnan(table.times).any():
        return table.times
    lacking = np.isnan(table.times)
    if not strict:
        filled = np.zeros(table.n_rows, bool)
        for series in table.series.values():
            rows = slice(None) if series.rows is None else series.rows
            filled[rows] |= ~np.isnan(series.values)
        lacking &= filled
    if lacking.any():
        row = int(lacking.argmax())
        raise TraceError(f"{table.source.name}{table.source.where(row)}: the row has no time")
    return table.times


def _split_long(
    table: Table,
    codes: np.ndarray,
    ids: list[str],
    times: np.ndarray | None,
    options: Options,
) -> list[Part]:
    """Series of one trace need not have samples at the same times, unless reading is strict."""
    source, names = table.source, list(table.series)
    own_rows = {name: _rows_of(series) for name, series in table.series.items()}
    groups = {name: _groups(codes[rows], len(ids)) for name, rows in own_rows.items()}
    parts = []
    for i, one in enumerate(ids):
        picked = {name: groups[name][i] for name in names}
        rows = {name: own_rows[name][picked[name]] for name in names}
        counts = [len(r) for r in rows.values()]
        if not any(counts):
            raise TraceError(f"{source.name}: {named(one)}no value of {listed(names)}")
        series = {
            name: replace(table.series[name].taken(picked[name]), rows=rows[name]) for name in names
        }
        first = rows[names[0]]
        if times is None or options.strict:
            other = next((v for v, n in enumerate(counts) if n != counts[0]), None)
            if other is not None:
                raise TraceError(
                    f"{source.name}: {named(one)}variable {names[0]!r} has {counts[0]} values, "
                    f"but {names[other]!r} has {counts[other]}; give each one row per time step"
                )
            if times is not None:
                _require_same_times(source, times, rows)
            parts.append(Part(one, series, None if times is None else times[first], first, source))
        else:
            parts.append(_merged(one, series, rows, times, source, options.repair_times))
    return parts


def _rows_of(series: Series) -> np.ndarray:
    assert series.rows is not None
    return series.rows


def _require_same_times(source: Source, times: np.ndarray, rows: dict[str, np.ndarray]) -> None:
    (name, first), *others = rows.items()
    for other, own in others:
        wrong = times[own] != times[first]
        if wrong.any():
            p = int(wrong.argmax())
            raise TraceError(
                f"{source.name}{source.where(int(own[p]))}: {other!r} is at time "
                f"{shown(times[own[p]])} where {name!r} is at {shown(times[first[p]])}"
            )


def _merged(
    one: str,
    series: dict[str, Series],
    rows: dict[str, np.ndarray],
    times: np.ndarray,
    source: Source,
    repair: bool,
) -> Part:
    """The series at all times at which one of them has a sample."""
    instants, index = np.unique(times[np.concatenate(list(rows.values()))], return_inverse=True)
    places = np.split(index, np.cumsum([len(r) for r in rows.values()])[:-1])
    shown = np.zeros(len(instants), np.int64)
    merged = {}
    for (name, values), own, place in zip(series.items(), rows.values(), places, strict=True):
        falls = np.diff(place) <= 0
        if falls.any() and not repair:
            p = int(falls.argmax())
            wrong = goes_back(times[own[p]], times[own[p + 1]], REPAIR)
            raise TraceError(f"{source.name}{source.where(int(own[p + 1]))}, {name!r}: {wrong}")
        spread = np.full(len(instants), np.nan)
        spread[place] = values.values  # of samples at one time the last one counts
        shown[place] = own
        merged[name] = replace(values, values=spread, rows=None)
    return Part(one, merged, instants, shown, source)


def _groups(codes: np.ndarray, n: int) -> list[np.ndarray]:
    """The rows of each code, in order."""
    stops = np.cumsum(np.bincount(codes, minlength=n))
    return np.split(np.argsort(codes, kind="stable"), stops[:-1])


def named(trace_id: str) -> str:
    """How messages name a trace of a file."""
    return f"trace {trace_id!r}: " if trace_id else ""
