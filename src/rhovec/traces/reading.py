"""Reading the user's traces from CSV, TSV, .npy and parquet files.

Tables are converted a whole column at a time. Only when that fails is the file read again, cell by
cell, to name the line and the column of the first mistake. Nothing here may take time quadratic in
the number of columns: logs with tens of thousands of them exist.
"""

from __future__ import annotations

import csv
import io
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from ..errors import MissingDependencyError, TraceError
from ..formula.core import natural_key

ID_COLUMNS = ("trace", "id", "trace_id")
TIME_COLUMNS = ("time", "t")
SUFFIXES = (".csv", ".tsv", ".npy", ".parquet")
BLOCK_ROWS = 4096  # rows of text held as Python strings at once
MAX_JITTER = 0.1  # of a step: rounding the times of a file to a few digits may cost that much
MAX_NAMES = 8  # names listed in a message

Layout = Literal["auto", "wide", "long"]
PathLike = str | Path


@dataclass(frozen=True)
class Traces:
    """Traces over the same variables; their lengths may differ.

    `rv.robustness(formulae, traces.values, variables=traces.variables)` evaluates formulae on them.
    """

    variables: tuple[str, ...]
    values: list[np.ndarray]  # one array (V, P_i) float64 per trace
    ids: tuple[str, ...]  # one per trace
    dt: float | None  # sampling step in seconds, from the time columns; None without them


def read_traces(
    paths: PathLike | Sequence[PathLike],
    *,
    layout: Layout = "auto",
    variables: Sequence[str] | None = None,
    id_column: str | None = None,
    time_column: str | None = None,
) -> Traces:
    """Read traces from files, or from all files of a folder.

    layout: "wide" tables have one column per variable and one row per time step; "long" tables have
        the columns `variable` and `value`; "auto" reads a table that has both of these as long.
    variables: the variables to read (default: all). For an .npy file, an array (N, V, P) or (V, P),
        the names of its axis V (default: x_0, x_1, ...).
    id_column: the column that tells the traces of a table apart (default: `trace`, `id` or
        `trace_id`, if the table has one of them).
    time_column: times in seconds, which must increase evenly (default: `time` or `t`, if the table
        has one of them and it is not among the variables).
    """
    if layout not in ("auto", "wide", "long"):
        raise TraceError(f'layout must be "auto", "wide" or "long", not {layout!r}')
    files = _files([paths] if isinstance(paths, str | Path) else paths)
    names = None if variables is None else as_names(variables)
    request = _Request(layout, names, id_column, time_column)
    stems = Counter(file.stem for file in files)
    traces: list[_Trace] = []
    for file in files:
        label = file.stem if stems[file.stem] == 1 else str(file)
        for trace in _read_file(file, request):
            if trace.id == "":
                trace = trace._replace(id=label)
            elif len(files) > 1:
                trace = trace._replace(id=f"{label}/{trace.id}")
            traces.append(trace)
    first = traces[0]
    values = [_in_order(trace, first.variables, first.file) for trace in traces]
    return Traces(
        first.variables, values, tuple(trace.id for trace in traces), _sampling_step(traces)
    )


def as_names(variables: Sequence[str]) -> tuple[str, ...]:
    """Names of variables: texts, none of them empty or given twice. A single text is one name."""
    names = (variables,) if isinstance(variables, str) else tuple(variables)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TraceError(f"variables must be names, not {name!r}")
    if not names or len(set(names)) < len(names):
        raise TraceError(f"variables must be names, each given once, not {listed(names)}")
    return names


def listed(names: Sequence[str]) -> str:
    """The first few names, for a message."""
    return ", ".join([*names[:MAX_NAMES], *(["..."] if len(names) > MAX_NAMES else [])]) or "none"


class _Request(NamedTuple):
    layout: Layout
    variables: tuple[str, ...] | None
    id_column: str | None
    time_column: str | None


class _Trace(NamedTuple):
    """A trace as read: values (V, P), times (P,) or None, and the rows that it came from."""

    id: str  # empty if the file holds one trace and no id column
    variables: tuple[str, ...]
    values: np.ndarray
    times: np.ndarray | None
    rows: np.ndarray  # (P,) rows of the file's table
    file: Path
    where: Callable[[int], str]  # row -> ":7", looked up only for an error


class _Table(NamedTuple):
    """The columns of a file that matter, each (rows,)."""

    numbers: dict[str, np.ndarray]  # float64
    codes: dict[str, np.ndarray]  # int64: index into `labels`
    labels: dict[str, list[str]]  # in order of appearance


class _Roles(NamedTuple):
    """What the columns of a table are."""

    variables: tuple[str, ...]  # of a wide table, or the one column `value`
    id: str | None
    time: str | None
    is_long: bool

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.variables if self.time is None else (*self.variables, self.time)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(name for name in (self.id, "variable" if self.is_long else None) if name)


def _files(paths: Sequence[PathLike]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found = [f for f in path.iterdir() if f.suffix.lower() in SUFFIXES and f.is_file()]
            if not found:
                raise TraceError(f"{path}: this folder has no {', '.join(SUFFIXES)} file")
            files += sorted(found, key=lambda f: natural_key(f.name))
        elif not path.exists():
            raise TraceError(f"{path}: no such file")
        elif path.suffix.lower() not in SUFFIXES:
            raise TraceError(f"{path}: the name must end in {', '.join(SUFFIXES)}")
        else:
            files.append(path)
    if not files:
        raise TraceError("no trace file given")
    return files


def _read_file(file: Path, request: _Request) -> list[_Trace]:
    suffix = file.suffix.lower()
    try:
        if suffix == ".npy":
            return _read_npy(file, request.variables)
        if suffix == ".parquet":
            roles, table = _read_parquet(file, request)
            return _assemble(file, roles, table, request, lambda row: f", row {row + 1}")
        text = _read_text(file)
        header = _read_header(file, text)
        roles = _roles(file, header, request)
        table = _read_csv(file, text, header, roles)
        return _assemble(file, roles, table, request, lambda row: _line(file, row))
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise TraceError(f"{file}: cannot be read: {reason}") from None


# -- tables --------------------------------------------------------------------------------------


def _roles(file: Path, header: list[str], request: _Request) -> _Roles:
    """Which column is what."""
    known = set(header)
    if "" in known:
        raise TraceError(f"{file}: column {header.index('') + 1} has no name")
    if len(known) < len(header):
        name = next(name for name, count in Counter(header).items() if count > 1)
        raise TraceError(f"{file}: column {name!r} appears twice")

    def special(asked: str | None, usual: tuple[str, ...]) -> str | None:
        if asked is not None:
            if asked not in known:
                raise missing(asked)
            return asked
        taken = set(request.variables or ())
        free = {name.lower(): name for name in reversed(header) if name not in taken}
        return next((free[name] for name in usual if name in free), None)

    def missing(name: str) -> TraceError:
        return TraceError(f"{file}: there is no column {name!r}; it has: {listed(header)}")

    is_long = request.layout == "long" or (
        request.layout == "auto" and known.issuperset(("variable", "value"))
    )
    id_column = special(request.id_column, ID_COLUMNS)
    time_column = special(request.time_column, TIME_COLUMNS)
    if is_long:
        wanted: tuple[str, ...] = ("variable", "value")
    else:
        others = [name for name in header if name not in (id_column, time_column)]
        wanted = request.variables or tuple(others)
    for name in wanted:
        if name not in known:
            raise missing(name)
        if name in (id_column, time_column):
            raise TraceError(f"{file}: column {name!r} is the id or the time, not a variable")
    if not wanted:
        raise TraceError(f"{file}: there is no column besides id and time")
    return _Roles(wanted[1:] if is_long else wanted, id_column, time_column, is_long)


def _assemble(
    file: Path,
    roles: _Roles,
    table: _Table,
    request: _Request,
    where: Callable[[int], str],
) -> list[_Trace]:
    """Split a table into traces: by its id column, and a long one by variable as well."""
    rows = np.arange(len(table.numbers[roles.variables[0]]))
    names, n_series = roles.variables, 1  # per trace: one of all columns, or one per variable
    code = table.codes[roles.id] if roles.id else np.zeros(len(rows), np.int64)
    ids = table.labels[roles.id] if roles.id else [""]
    if roles.is_long:
        found = table.labels["variable"]
        names = request.variables or tuple(found)
        for name in sorted(set(names).difference(found), key=names.index):
            raise TraceError(f"{file}: no variable {name!r}; it has: {listed(found)}")
        n_series = len(names)
        places = {name: i for i, name in enumerate(names)}
        place = np.array([places.get(name, -1) for name in found])
        series = place[table.codes["variable"]]
        rows = rows[series >= 0]
        code = code[rows] * n_series + series[rows]
    rows = rows[np.argsort(code, kind="stable")]
    counts = np.bincount(code, minlength=len(ids) * n_series).reshape(len(ids), n_series)
    columns = np.stack([table.numbers[name][rows] for name in roles.variables])
    times = table.numbers[roles.time][rows] if roles.time else None
    traces = []
    stops = np.cumsum(counts.sum(axis=1))
    for i, stop in enumerate(stops):
        start = stop - counts[i].sum()
        if (counts[i] != counts[i, 0]).any():
            other = int((counts[i] != counts[i, 0]).argmax())
            raise TraceError(
                f"{file}: {_named(ids[i])}variable {names[0]!r} has {counts[i, 0]} values, "
                f"but {names[other]!r} has {counts[i, other]}; give each one row per time step"
            )
        if start == stop:
            raise TraceError(f"{file}: {_named(ids[i])}no value of {listed(names)}")
        part = slice(start, stop)
        own_times = None if times is None else times[part].reshape(n_series, -1)
        own_rows = rows[part].reshape(n_series, -1)
        if own_times is not None and (own_times != own_times[0]).any():
            s, p = np.argwhere(own_times != own_times[0])[0].tolist()
            raise TraceError(
                f"{file}{where(int(own_rows[s, p]))}: {names[s]!r} is at time "
                f"{own_times[s, p]:g} where {names[0]!r} is at {own_times[0, p]:g}"
            )
        traces.append(
            _Trace(
                ids[i],
                names,
                columns[:, part].reshape(len(names), -1),
                None if own_times is None else own_times[0],
                own_rows[0],
                file,
                where,
            )
        )
    return traces


def _named(trace_id: str) -> str:
    return f"trace {trace_id!r}: " if trace_id else ""


def _in_order(trace: _Trace, names: tuple[str, ...], first: Path) -> np.ndarray:
    """The trace's values with its variables in the order of `names`, those of the first file."""
    if trace.variables == names:
        return trace.values
    if set(trace.variables) != set(names):
        odd = sorted(set(trace.variables) ^ set(names), key=natural_key)[0]
        has, lacks = (first, trace.file) if odd in names else (trace.file, first)
        raise TraceError(f"{lacks}: there is no variable {odd!r}, which {has} has")
    places = {name: i for i, name in enumerate(trace.variables)}
    return trace.values[[places[name] for name in names]]


def _sampling_step(traces: list[_Trace]) -> float | None:
    """The step that all time columns share, in seconds; times that repeat or jump are an error."""
    timed = [(t, t.times) for t in traces if t.times is not None and len(t.times) > 1]
    if not timed:
        return None
    every_step = np.concatenate([np.diff(times) for _, times in timed])
    usual = float(np.sort(every_step)[(len(every_step) - 1) // 2])  # the lower median

    def refuse(is_wrong: Callable[[np.ndarray], np.ndarray], reason: str) -> None:
        for trace, times in timed:
            wrong = is_wrong(np.diff(times))
            if wrong.any():
                i = int(wrong.argmax())
                where = trace.where(int(trace.rows[i + 1]))
                raise TraceError(
                    f"{trace.file}{where}: the time goes from {times[i]:g} to {times[i + 1]:g}, "
                    f"but {reason}"
                )

    refuse(lambda steps: steps <= 0, "it must increase")
    refuse(
        lambda steps: abs(steps - usual) > MAX_JITTER * usual,
        f"the usual step is {usual:g}; resample the trace evenly",
    )
    mean = round(float(every_step.mean()), 15)  # the decimals that a formula's dt may have
    largest = max(float(abs(times).max()) for _, times in timed)
    noise = 4 * float(np.finfo(np.float64).eps) * largest
    shortest = (float(f"{mean:.{digits}g}") for digits in range(1, 18))
    return next(dt for dt in shortest if abs(dt - mean) <= noise)


# -- CSV and TSV ---------------------------------------------------------------------------------


def _read_text(file: Path) -> str:
    data = file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TraceError(f"{file}:{line}: no UTF-8 text; save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TraceError(f"{file}:{line}: binary data where text was expected")
    text = text.rstrip("\r\n")
    if not text.strip():
        raise TraceError(f"{file}: the file is empty")
    return text


def _rows(file: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row, the header first."""
    reader = _reader(file, text)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise TraceError(f"{file}:{reader.line_num}: {error}") from None


def _reader(file: Path, text: str) -> Any:
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def _read_header(file: Path, text: str) -> list[str]:
    _, row = next(_rows(file, text))
    header = [name.strip() for name in row]
    if all(_is_number(name) for name in header):
        raise TraceError(f"{file}:1: a number, but the first line must name the columns")
    return header


def _line(file: Path, row: int) -> str:
    """Where a row of the table stands in the file, which is read again for it."""
    number, _ = next(islice(_rows(file, _read_text(file)), row + 1, None))
    return f":{number}"


def _read_csv(file: Path, text: str, header: list[str], roles: _Roles) -> _Table:
    reader = _reader(file, text)
    next(reader)
    places = {name: i for i, name in enumerate(header)}
    numbers = {name: (places[name], [np.empty(0)]) for name in roles.numbers}
    codes: dict[str, list[int]] = {name: [] for name in roles.texts}
    labels: dict[str, dict[str, int]] = {name: {} for name in roles.texts}
    try:
        while rows := list(islice(reader, BLOCK_ROWS)):
            columns = list(zip(*rows, strict=True))
            if len(columns) != len(header):
                raise ValueError("ragged")
            for place, blocks in numbers.values():
                blocks.append(_as_numbers(columns[place]))
            for name, known in labels.items():
                cells = columns[places[name]]
                codes[name] += [known.setdefault(c.strip(), len(known)) for c in cells]
        converted = {name: np.concatenate(blocks) for name, (_, blocks) in numbers.items()}
        if any("" in known for known in labels.values()):
            raise ValueError("a label is missing")
        if not all(np.isfinite(column).all() for column in converted.values()):
            raise ValueError("not finite")
    except (ValueError, csv.Error):
        _explain(file, text, header, roles)
    if not len(converted[roles.numbers[0]]):
        raise TraceError(f"{file}: there is a header but no row below it")
    return _Table(
        converted,
        {name: np.array(column, np.int64) for name, column in codes.items()},
        {name: list(known) for name, known in labels.items()},
    )


def _explain(file: Path, text: str, header: list[str], roles: _Roles) -> NoReturn:
    """Raise the error that names the first bad cell."""
    needed, numeric = {*roles.numbers, *roles.texts}, set(roles.numbers)
    for line, row in islice(_rows(file, text), 1, None):
        if len(row) != len(header):
            cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            hint = "; separate cells by commas" if len(header) == 1 and ";" in header[0] else ""
            raise TraceError(f"{file}:{line}: {cells}, but the header has {len(header)}{hint}")
        for name, cell in zip(header, row, strict=True):
            where = f"{file}:{line}, column {name!r}"
            if name in needed and not cell.strip():
                raise TraceError(f"{where}: the cell is empty")
            if name in numeric and not _is_number(cell):
                raise TraceError(f"{where}: {cell[:40]!r} is not a number")
            if name in numeric and not np.isfinite(float(cell)):
                raise TraceError(f"{where}: {cell.strip()} is not finite; give every value")
    raise AssertionError("a table that cannot be converted has a bad cell")


def _as_numbers(cells: Sequence[str]) -> np.ndarray:
    """(rows,) float64; ValueError if a cell is no number."""
    joined = "".join(cells)
    if "_" in joined or not joined.isascii():  # Python reads 1_0 as 10; a log does not mean that
        raise ValueError("no plain decimal number")
    return np.array(cells, np.float64)


def _is_number(cell: str) -> bool:
    try:
        _as_numbers([cell])
    except ValueError:
        return False
    return True


# -- arrays and parquet --------------------------------------------------------------------------


def _read_npy(file: Path, variables: tuple[str, ...] | None) -> list[_Trace]:
    try:
        with file.open("rb") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError):
        raise TraceError(f"{file}: no .npy file of a numeric array") from None
    if array.dtype.kind not in "biuf":
        raise TraceError(f"{file}: holds {array.dtype}, not real numbers")
    shape = array.shape
    if array.ndim not in (2, 3) or 0 in shape:
        raise TraceError(f"{file}: shape {shape} must be (V, P) or (N, V, P), without a 0")
    batch = np.asarray(array[None] if array.ndim == 2 else array, np.float64)
    names = variables or tuple(f"x_{i}" for i in range(batch.shape[1]))
    if len(names) != batch.shape[1]:
        raise TraceError(
            f"{file}: shape {shape} has {batch.shape[1]} variables, but {len(names)} are named"
        )
    finite = np.isfinite(batch)
    if not finite.all():
        n, v, p = np.unravel_index(finite.argmin(), batch.shape)
        raise TraceError(
            f"{file}, trace {n}, variable {names[v]!r}, point {p}: {batch[n, v, p]} is not finite"
        )
    points = np.arange(batch.shape[2])
    return [
        _Trace("" if array.ndim == 2 else str(i), names, x, None, points, file, ", point {}".format)
        for i, x in enumerate(batch)
    ]


def _read_parquet(file: Path, request: _Request) -> tuple[_Roles, _Table]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError(
            'reading .parquet files needs pyarrow: pip install "rhovec[data]"'
        ) from None
    try:
        header = parquet.read_schema(file).names
        roles = _roles(file, header, request)
        arrow = parquet.read_table(file, columns=[*roles.numbers, *roles.texts])
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise TraceError(
            f"{file}: no readable parquet file: {str(error).splitlines()[0]}"
        ) from None
    if not arrow.num_rows:
        raise TraceError(f"{file}: the table has no rows")
    numbers, codes, labels = {}, {}, {}
    for name in roles.numbers:
        column = arrow.column(name).to_numpy()
        if column.dtype.kind not in "biuf":
            kind = arrow.schema.field(name).type
            raise TraceError(f"{file}, column {name!r}: holds {kind}, not real numbers")
        numbers[name] = column.astype(np.float64)
        if not np.isfinite(numbers[name]).all():
            row = int(np.isfinite(numbers[name]).argmin())
            raise TraceError(
                f"{file}, row {row + 1}, column {name!r}: missing or not finite; give every value"
            )
    for name in roles.texts:
        known: dict[str, int] = {}
        cells = arrow.column(name).to_pylist()
        if None in cells:
            raise TraceError(f"{file}, row {cells.index(None) + 1}, column {name!r}: is missing")
        codes[name] = np.array([known.setdefault(str(c), len(known)) for c in cells], np.int64)
        labels[name] = list(known)
    return roles, _Table(numbers, codes, labels)
