"""Arrays (.npy, .npz, .mat) and Arrow tables (.parquet, frames) as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import TraceError, needed
from .cells import CellError, Series
from .delimited import column
from .matlab import DamagedError, read_matlab
from .tables import (
    NO_VARIABLE,
    Options,
    Part,
    Roles,
    Table,
    find_roles,
    no_variable,
    present,
    split_table,
)
from .times import Times, of_numbers

MAX_INTEGER = 1 << 53  # beyond it, float64 rounds integers


class Rows:
    """A table whose rows are counted from 1, after those `before` that stand above it in its file."""

    def __init__(self, name: str, before: int = 0):
        self.name = name
        self.before = before
        self.notes: tuple[str, ...] = ()

    def where(self, row: int) -> str:
        return f", row {self.before + row + 1}"

    def incomplete(self, row: int, column: str) -> TraceError:
        return TraceError(
            f"{self.name}{self.where(row)}, column {column!r}: missing or not finite; give every value"
        )


class Points(Rows):
    """An array, whose samples are counted from 0."""

    def __init__(self, name: str, trace: int):
        super().__init__(name)
        self._trace = trace

    def where(self, row: int) -> str:
        return f", point {row}"

    def incomplete(self, row: int, column: str) -> TraceError:
        return TraceError(
            f"{self.name}, trace {self._trace}, variable {column!r}, point {row}: not finite"
        )


# -- NumPy and MATLAB ------------------------------------------------------------------------------


def read_npy(file: Path, options: Options) -> list[Part]:
    """The traces of an array (N, V, P) or (V, P)."""
    with _opened(file, "an .npy file of a numeric array") as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.kind not in "biuf":
        raise TraceError(f"{file}: holds {array.dtype}, not real numbers")
    shape = array.shape
    if array.ndim not in (2, 3) or 0 in shape:
        raise TraceError(f"{file}: shape {shape} must be (V, P) or (N, V, P), without a 0")
    batch = array[None] if array.ndim == 2 else array
    names = options.arrays or tuple(f"x_{i}" for i in range(batch.shape[1]))
    if len(names) != batch.shape[1]:
        raise TraceError(
            f"{file}: shape {shape} has {batch.shape[1]} variables, but {len(names)} are named"
        )
    infinite = np.isinf(batch) | (np.isnan(batch) & options.strict)
    if infinite.any():
        n, v, p = np.unravel_index(infinite.argmax(), batch.shape)
        raise TraceError(
            f"{file}, trace {n}, variable {names[v]!r}, point {p}: {batch[n, v, p]} is not finite"
        )
    points = np.arange(batch.shape[2])
    parts = []
    for i, trace in enumerate(batch):
        source = Points(str(file), i)
        series = {
            name: Series(_floats(source, name, values))
            for name, values in zip(names, trace, strict=True)
        }
        parts.append(Part("" if array.ndim == 2 else str(i), series, None, points, source))
    return parts


def read_npz(file: Path, options: Options) -> list[Part]:
    """The trace whose variables are the vectors of an archive."""
    with (
        _opened(file, "an .npz file of numeric arrays") as stream,
        np.load(stream, allow_pickle=False) as archive,
    ):
        arrays = {name: archive[name] for name in archive.files}
    return _from_vectors(file, arrays, options)


@contextmanager
def _opened(file: Path, what: str) -> Iterator[BinaryIO]:
    """A file to read. Whatever NumPy, zipfile and zlib raise on damaged data becomes one error."""
    try:
        with file.open("rb") as stream:
            yield stream
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise TraceError(f"{file}: not {what}, or a damaged one; save it again") from None


def read_mat(file: Path, options: Options) -> list[Part]:
    """The trace whose variables are the vectors of a MATLAB file, or of the one struct in it."""
    try:
        arrays = read_matlab(file.read_bytes())
    except NotImplementedError:
        raise TraceError(
            f"{file}: this is MATLAB's format 7.3; save it by save(..., '-v7')"
        ) from None
    except DamagedError:
        raise TraceError(f"{file}: not a .mat file, or a damaged one; save it again") from None
    while len(arrays) == 1 and isinstance(only := next(iter(arrays.values())), dict):
        arrays = only
    return _from_vectors(file, arrays, options)


def _from_vectors(file: Path, arrays: Mapping[str, Any], options: Options) -> list[Part]:
    vectors = {name: np.squeeze(np.asarray(value)) for name, value in arrays.items()}
    vectors = {name: value for name, value in vectors.items() if value.ndim == 1 and len(value)}
    if not vectors:
        raise TraceError(f"{file}: there is no vector in it; give one per variable, and the times")
    for name in present(options, vectors) or ():
        if name in arrays and name not in vectors:
            if arrays[name] is None:
                raise TraceError(
                    f"{file}: {name!r} is a sparse array or an object, such as a timeseries; save its "
                    "numbers as a vector"
                )
            shape = np.shape(arrays[name])
            raise TraceError(f"{file}: {name!r} has the shape {shape}; give a vector per variable")
    try:
        roles = find_roles(str(file), list(vectors), options)
    except TraceError as error:
        matrix = next((name for name, value in arrays.items() if np.ndim(value) > 1), None)
        if (
            options.variables
            or matrix is None
            or matrix in vectors
            or NO_VARIABLE not in str(error)
        ):
            raise
        raise TraceError(
            f"{file}: {matrix!r} has the shape {np.shape(arrays[matrix])}, and no other column besides "
            "id and time is there; give a vector per variable"
        ) from None
    values = list(vectors.values())
    source = Rows(str(file))
    table = {
        name: _from_array(source, name, values[place], roles.units[name], options)
        for name, place in roles.variables.items()
    }
    times = None
    if roles.time is not None:
        name, own = list(vectors)[roles.time], values[roles.time]
        if own.dtype.kind in "UO":
            times = _text_times(source, name, [str(cell) for cell in own], roles.time_unit)
        else:
            if own.dtype.kind not in "iu":  # as float64, integers would be rounded
                own = _from_array(source, name, own, None, Options()).values
            times = _times(source, name, own, np.isfinite(own), roles.time_unit)
    length = len(values[roles.used[0]])
    for place in roles.used:
        if len(values[place]) != length:
            a, b = (list(vectors)[i] for i in (roles.used[0], place))
            raise TraceError(
                f"{file}: {a!r} has {length} values, but {b!r} has {len(values[place])}; "
                "give vectors of one length"
            )
    return split_table(Table(source, table, None, times, length), options)


def _from_array(
    source: Rows, name: str, values: np.ndarray, unit: str | None, options: Options
) -> Series:
    if values.dtype.kind == "b":
        return Series(values.astype(np.float64), "flag", unit=unit)
    if values.dtype.kind in "iuf" and (name not in options.labels or name in options.coded):
        numbers = _floats(source, name, values)
        if np.isinf(numbers).any():
            row = int(np.isinf(numbers).argmax())
            raise source.incomplete(row, name)
        return Series(numbers, unit=unit)
    if values.dtype.kind in "iufUO":
        return _from_texts(source, name, [str(value) for value in values], unit, options)
    raise TraceError(f"{source.name}: {name!r} holds {values.dtype}, not real numbers")


def _floats(source: Rows, name: str, values: np.ndarray) -> np.ndarray:
    _require_exact(source, name, values)
    with np.errstate(all="ignore"):  # a NaN of float32 may be a signalling one
        return values.astype(np.float64)


def _require_exact(source: Rows, name: str, values: np.ndarray) -> None:
    """Refuse integers that float64 rounds: a counter would seem to stand still."""
    if values.dtype.kind in "iu" and values.itemsize == 8:
        wrong = (values > MAX_INTEGER) | (values < -MAX_INTEGER)
        if wrong.any():
            row = int(wrong.argmax())
            raise TraceError(
                f"{source.name}{source.where(row)}, column {name!r}: {values[row]} is beyond 2^53, "
                "where integers become inexact; save the column as floating-point numbers if that does "
                "not matter, or its distance from the first value, or leave the column out with "
                "variables=[...]"
            )


def _from_texts(
    source: Rows, name: str, cells: list[str], unit: str | None, options: Options
) -> Series:
    made = column(name, options)
    try:
        made.add(cells)
        return made.series(unit)
    except CellError as error:
        raise _located(source, name, error) from None


# -- Arrow -----------------------------------------------------------------------------------------


def read_parquet(file: Path, options: Options) -> list[Part]:
    """The traces of a parquet file; of its columns only those that are needed are read."""
    pyarrow = needed("pyarrow", "reading .parquet files", "data")
    from pyarrow import parquet

    try:
        header = parquet.read_schema(file).names
        roles = find_roles(str(file), header, options)
        used = list(dict.fromkeys(header[place] for place in roles.used))
        found = parquet.read_table(file, columns=used)
        return _from_arrow(str(file), found, options)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise TraceError(
            f"{file}: not a readable parquet file: {str(error).splitlines()[0]}"
        ) from None


def read_frame(frame: Any, name: str, options: Options, before: int = 0) -> list[Part]:
    """The traces of anything with Arrow's interface: a frame of pandas or polars, an Arrow table.

    before: rows of the file above the frame, if that is a part of one.
    """
    pyarrow = needed("pyarrow", "reading frames", "data")
    try:
        return _from_arrow(name, pyarrow.table(frame), options, before)
    except (pyarrow.ArrowException, TypeError) as error:
        raise TraceError(f"{name}: not a readable table: {str(error).splitlines()[0]}") from None


def _from_arrow(name: str, found: Any, options: Options, before: int = 0) -> list[Part]:
    header = list(found.column_names)
    roles = find_roles(name, header, options)
    if not found.num_rows:
        raise TraceError(f"{name}: the table has no rows")
    source = Rows(name, before)
    ids = None
    if roles.id is not None:
        ids = _arrow_codes(source, header[roles.id], found.column(roles.id))
    if any(_is_list(found.schema.types[place]) for place in roles.variables.values()):
        return _from_lists(source, found, roles, ids, options)
    times = None
    if roles.time is not None:
        times = _arrow_times(source, header[roles.time], found.column(roles.time), roles.time_unit)
    series: dict[str, Series] = {}
    if roles.name is None:
        for variable, place in roles.variables.items():
            series[variable] = _arrow_series(
                source, header[place], variable, found.column(place), roles.units[variable], options
            )
    else:
        codes, names = _arrow_codes(source, header[roles.name], found.column(roles.name))
        (place,) = roles.variables.values()
        for variable in present(options, names) or names:
            if variable not in names:
                raise no_variable(name, variable, names, options)
            rows = np.flatnonzero(codes == names.index(variable))
            values = found.column(place).take(rows)
            if _is_text(values.type):
                text = _ChosenRows(name, rows + before)
                one = _from_texts(text, variable, _texts(values), None, options)
            else:
                one = _arrow_series(source, header[place], variable, values, None, options)
            series[variable] = replace(one, rows=rows)
    return split_table(Table(source, series, ids, times, found.num_rows), options)


class _ChosenRows(Rows):
    """Some rows of a table."""

    def __init__(self, name: str, rows: np.ndarray):
        super().__init__(name)
        self._rows = rows

    def where(self, row: int) -> str:
        return super().where(int(self._rows[row]))


def _is_list(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _texts(values: Any) -> list[str]:
    return ["" if value is None else str(value) for value in values.to_pylist()]


def _arrow_codes(source: Rows, name: str, values: Any) -> tuple[np.ndarray, list[str]]:
    cells = values.to_pylist()
    if None in cells:
        where = source.where(cells.index(None))
        raise TraceError(f"{source.name}{where}, column {name!r}: is missing")
    known: dict[str, int] = {}
    return np.array([known.setdefault(str(c), len(known)) for c in cells], np.int64), list(known)


def _arrow_times(source: Rows, name: str, values: Any, unit: str | None) -> np.ndarray:
    import pyarrow
    import pyarrow.types as kinds

    kind = values.type
    if _is_text(kind):
        return _text_times(source, name, _texts(values), unit)
    if kinds.is_timestamp(kind) or kinds.is_duration(kind) or kinds.is_time(kind):
        values = values.cast(pyarrow.int64() if kind.bit_width == 64 else pyarrow.int32())
        unit = kind.unit
    if kinds.is_integer(values.type):  # not as float64, which would round them
        whole = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False))
        known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
        return _times(source, name, whole, known, unit)
    numbers = _arrow_series(source, name, name, values, None, Options()).values
    return _times(source, name, numbers, np.isfinite(numbers), unit)


def _times(
    source: Rows, name: str, numbers: np.ndarray, known: np.ndarray, unit: str | None
) -> np.ndarray:
    try:
        times, source.notes = of_numbers(numbers, known, unit)
    except CellError as error:
        raise _located(source, name, error) from None
    return times


def _text_times(source: Rows, name: str, cells: list[str], unit: str | None) -> np.ndarray:
    made = Times()
    try:
        made.add(cells)
        times, source.notes = made.seconds(unit)
    except CellError as error:
        raise _located(source, name, error) from None
    return times


def _located(source: Rows, name: str, error: CellError) -> TraceError:
    return TraceError(f"{source.name}{source.where(error.row)}, column {name!r}: {error.reason}")


def _arrow_series(
    source: Rows, header: str, name: str, values: Any, unit: str | None, options: Options
) -> Series:
    import pyarrow
    import pyarrow.types as kinds

    kind = values.type
    is_text = _is_text(kind.value_type if kinds.is_dictionary(kind) else kind)
    if kinds.is_dictionary(kind) and not is_text:
        values = values.cast(kind.value_type)
        kind = values.type
    by_text = name in options.labels and name not in options.coded
    numeric = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
    if (not options.strict or options.skip_texts) and (
        is_text or (by_text and (numeric or kinds.is_boolean(kind)))
    ):
        return _from_texts(source, name, _texts(values), unit, options)
    if not (numeric or kinds.is_boolean(kind) or kinds.is_null(kind)):
        raise TraceError(f"{source.name}, column {header!r}: holds {kind}, not real numbers")
    if kinds.is_integer(kind):
        whole = values.fill_null(0).to_numpy(zero_copy_only=False)
        _require_exact(source, header, np.asarray(whole))
    numbers = values.cast(pyarrow.float64()) if not kinds.is_boolean(kind) else values.cast("int8")
    column = np.array(numbers.to_numpy(zero_copy_only=False), np.float64)
    wrong = np.isinf(column)
    if wrong.any():
        raise source.incomplete(int(wrong.argmax()), header)
    return Series(column, "flag" if kinds.is_boolean(kind) else "number", unit=unit)


def _from_lists(
    source: Rows,
    found: Any,
    roles: Roles,
    ids: tuple[np.ndarray, list[str]] | None,
    options: Options,
) -> list[Part]:
    """Each row is a trace, whose variables are lists."""
    parts = []
    for row in range(found.num_rows):
        number = source.before + row
        place_of = f"{source.name}, row {number + 1}"

        def cell(place: int, row: int = row, place_of: str = place_of) -> Any:
            name, scalar = found.column_names[place], found.column(place)[row]
            if not _is_list(scalar.type) or not scalar.is_valid:
                held = str(scalar.type) if scalar.is_valid else "nothing"
                raise TraceError(f"{place_of}, column {name!r}: {held} instead of a list")
            return scalar.values

        here = _ListRow(place_of)
        series = {
            name: _arrow_series(here, name, name, cell(place), roles.units[name], options)
            for name, place in roles.variables.items()
        }
        times = None
        if roles.time is not None:
            times = _arrow_times(
                here, found.column_names[roles.time], cell(roles.time), roles.time_unit
            )
        lengths = {name: len(one.values) for name, one in series.items()}
        lengths |= {} if times is None else {"time": len(times)}
        (first, length), *others = lengths.items()
        for other, n in others:
            if n != length:
                raise TraceError(
                    f"{place_of}: {first!r} has {length} values, but {other!r} has {n}"
                )
        if not length:
            raise TraceError(f"{place_of}: the lists are empty")
        one = str(number) if ids is None else ids[1][ids[0][row]]
        if ids is not None and len(ids[1]) < found.num_rows:
            one = f"{one}/{number}"
        parts += [
            part._replace(id=one)
            for part in split_table(Table(here, series, None, times, length), options)
        ]
    return parts


class _ListRow(Rows):
    """The lists of one row of a table; samples are counted from 1."""

    def where(self, row: int) -> str:
        return f", value {row + 1}"

    def incomplete(self, row: int, column: str) -> TraceError:
        return TraceError(
            f"{self.name}, column {column!r}, value {row + 1}: missing or not finite; give every value"
        )
