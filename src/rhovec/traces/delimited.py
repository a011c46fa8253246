"""CSV files as tables: any usual separator, encoding and decimal point.

The csv module splits the lines, a block of rows at a time, and only the columns that are needed are
converted. A line number is found by reading the file again, when an error needs it.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..errors import TraceError
from .cells import (
    DASHES,
    MISSING,
    NOT_FINITE,
    SECONDS,
    CellError,
    Column,
    codes_of,
    is_number,
    number_of,
)
from .tables import (
    NAMED_ROWS,
    Options,
    Part,
    Roles,
    Table,
    find_roles,
    listed,
    no_variable,
    present,
    split_table,
)
from .times import Times

SEPARATORS = (";", "\t", "|", ",")  # a comma may also be a decimal point, so that it comes last
BLOCK_ROWS = 4096  # rows of text held as Python strings at once
SAMPLE_BYTES = 1 << 16  # in which encoding and separator are looked for
SAMPLE_ROWS = 20

_EXCEL = re.compile(r"""["']?sep=(.)["']?\s*""", re.IGNORECASE)
_NUMBERED = re.compile(r"(?P<name>.*?)[\s_.-]*[\[(]?(?P<number>\d+)[\])]?")

Row = list[str]


class Text:
    """A CSV file: its rows, and where they stand."""

    def __init__(self, file: Path, options: Options):
        self.name = str(file)
        self.first_row = 1  # rows before the table: the header, and one of units
        self.notes: tuple[str, ...] = ()
        self.last_used = 0  # the last column that is needed
        self.places: dict[str, tuple[str, int]] = {}  # header and place of variables; "": of others
        self._points: dict[str, str] = {}  # decimal points, and the first column that has each
        self._file = file
        self._strict = options.strict
        self._reads_all = options.variables is None and not options.only_mentioned
        with file.open("rb") as stream:
            sample = stream.read(SAMPLE_BYTES)
        self._encoding = options.encoding or _encoding(sample)
        try:
            text = codecs.getincrementaldecoder(self._encoding)("replace").decode(sample)
        except LookupError:
            raise TraceError(
                f"there is no encoding {self._encoding!r}; use one such as utf-8, utf-16 or cp1252"
            ) from None
        self._require_text()
        lines = text.splitlines()[options.skip_lines : options.skip_lines + SAMPLE_ROWS]
        excel = _EXCEL.fullmatch(lines[0]) if lines else None
        self._skipped = options.skip_lines + bool(excel)
        self.separator = excel[1] if excel else _separator(lines, file.suffix.lower() == ".tsv")
        self.comma = self.separator != ","  # whether numbers may have a decimal comma

    def _open(self) -> TextIO:
        return self._file.open(encoding=self._encoding, errors="surrogateescape", newline="")

    def _reader(self, file: TextIO) -> Any:
        lines = islice(file, self._skipped, None)
        return csv.reader(lines, delimiter=self.separator, strict=True)

    def blocks(self) -> Iterator[list[Row]]:
        """The rows of the table, in blocks.

        As long as rows have the length of the header, no Python code sees each of them.
        """
        done = self.first_row
        with self._open() as file, suppress(csv.Error, UnicodeError):
            reader = self._reader(file)
            above = list(islice(reader, done))
            while block := list(islice(reader, BLOCK_ROWS)):
                while len(block) < BLOCK_ROWS and block and not block[-1]:
                    block.pop()  # blank lines at the end
                if not block:
                    return
                if {len(row) for row in above + block} != {len(above[0])}:
                    break
                yield block
                done += len(block)
            else:
                return
        with closing(self.rows()) as rows:
            others = (row for _, row in islice(rows, done, None))
            while block := list(islice(others, BLOCK_ROWS)):
                yield block

    def rows(self) -> Generator[tuple[int, Row]]:
        """(line, cells) of each row that is not blank, the header first, all of one length."""
        with self._open() as file:
            reader = self._reader(file)
            width = blank = 0  # how long a row is; the first blank line
            try:
                for row in reader:
                    line = reader.line_num + self._skipped
                    if not row:
                        blank = blank or line
                        continue
                    if blank and width and self._strict:
                        raise self._ragged(blank, 0, width)
                    if len(row) != width and width:
                        row = self._fitted(line, row, width)
                        if not row:
                            continue
                    width = width or len(row)
                    yield line, row
            except csv.Error as error:
                line = reader.line_num + self._skipped
                raise TraceError(f"{self.name}:{line}: {error}; correct the quotes") from None
            except UnicodeError:
                raise TraceError(
                    f"{self.name}: this is not {self._encoding} text; name its encoding, as in "
                    "--encoding cp1252"
                ) from None

    def _require_text(self) -> None:
        if "16" in self._encoding or "32" in self._encoding:
            return
        line = 1
        with self._file.open("rb") as file:
            while chunk := file.read(1 << 20):
                place = chunk.find(0)
                line += chunk.count(b"\n", 0, len(chunk) if place < 0 else place)
                if place >= 0:
                    raise TraceError(
                        f"{self.name}:{line}: binary data where text was expected; cut the file off "
                        "before this line, or name its encoding, as in --encoding utf-16"
                    )

    def _fitted(self, line: int, row: Row, width: int) -> Row:
        """A row of another length than the header, if that does not matter; empty if it is blank."""
        if not self._strict:
            if not any(map(str.strip, row)):
                return []
            if width > len(row) > self.last_used:
                return row + [""] * (width - len(row))
            if len(row) > width and not any(map(str.strip, row[width:])):
                return row[:width]
        raise self._ragged(line, len(row), width)

    def _ragged(self, line: int, found: int, width: int) -> TraceError:
        if not found:
            return TraceError(f"{self.name}:{line}: a blank line in the table; remove it")
        cells = "1 cell" if found == 1 else f"{found} cells"
        advice = "quote a cell that holds the separator" if found > width else "complete the line"
        return TraceError(f"{self.name}:{line}: {cells}, but the header has {width}; {advice}")

    def row(self, row: int) -> tuple[int, Row]:
        """(line, cells) of a row of the table."""
        with closing(self.rows()) as rows:
            return next(islice(rows, self.first_row + row, None))

    def where(self, row: int) -> str:
        return f":{self.row(row)[0]}"

    def incomplete(self, row: int, column: str) -> TraceError:
        name, place = self.places.get(column) or self.places[""]
        line, cells = self.row(row)
        cell = cells[place].strip()
        if not cell:
            reason = "the cell is empty"
        elif is_number(cell, self.comma):
            reason = f"{cell} is not finite"
        else:
            advice = self._advice(column) or "; requirements on names are for `rhovec check`"
            reason = f"{cell[:40]!r} is not a number{advice}"
        if cell.lower() in MISSING:
            reason += "; fill it in, or resample the trace (rv.resample)"
        elif is_number(cell, self.comma):
            reason += "; give every value"
        return TraceError(f"{self.name}:{line}, column {name!r}: {reason}")

    @contextmanager
    def locating(self, column: str, rows: Sequence[int] | None = None) -> Iterator[None]:
        """Turn a CellError into one that says where; rows: those of the table that it counts."""
        try:
            yield
        except CellError as error:
            row = error.row if rows is None else rows[error.row]
            if error.reason == NOT_FINITE:
                raise self.incomplete(row, column) from None
            line, _ = self.row(row)
            advice = self._advice(column) if " is not a number" in error.reason else ""
            raise TraceError(
                f"{self.name}:{line}, column {column!r}: {error.reason}{advice}"
            ) from None

    def require_one_point(self, name: str, column: Column) -> None:
        """Refuse a column of numbers whose decimal point is not that of other columns."""
        for point in column.points() if self.comma else ():
            self._points.setdefault(point, name)
        if len(self._points) > 1:
            raise TraceError(
                f"{self.name}: column {self._points[',']!r} has decimal commas, but "
                f"{self._points['.']!r} has decimal points; write all numbers alike"
            )

    def _advice(self, column: str) -> str:
        """What else can be done about a text in a column that nobody asked for by name."""
        return "; correct it, or leave the column out with variables=[...]" * self._reads_all


def _encoding(sample: bytes) -> str:
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig" if sample.startswith(codecs.BOM_UTF8) else "utf-8"


def _separator(lines: list[str], has_tabs: bool) -> str:
    """The separator that most rows have as often as the header; of two such, the earlier one."""
    best, chosen = 0, "\t" if has_tabs else ","
    for separator in sorted(SEPARATORS, key=lambda s: s != chosen) if has_tabs else SEPARATORS:
        widths = _widths(lines, separator)
        alike = widths.count(widths[0]) if widths and widths[0] > 1 else 0
        if alike > best:
            best, chosen = alike, separator
    return chosen


def _widths(lines: list[str], separator: str) -> list[int]:
    try:
        return [len(row) for row in csv.reader(lines, delimiter=separator)]
    except csv.Error:  # a cell beyond the module's limit
        return [line.count(separator) + 1 for line in lines]


def read_delimited(file: Path, options: Options) -> list[Part]:
    """The traces of a CSV file."""
    text = Text(file, options)
    with closing(text.rows()) as rows:
        line, first = next(rows, (0, []))
        if not any(map(str.strip, first)):
            raise TraceError(f"{file}: the file is empty")
        header = [name.strip() for name in first]
        if options.layout == "rows":
            return _read_rows(text, (line, header), rows, options)
        if all(is_number(name, text.comma) for name in header):
            raise TraceError(
                f"{file}:{line}: a number, but the first line must name the columns; if each row "
                "is a trace, say so with --layout rows"
            )
        roles = find_roles(text.name, header, options)
        text.last_used = max(roles.used)
        text.places = {header[i]: (header[i], i) for i in roles.used}
        text.places |= {name: (header[i], i) for name, i in roles.variables.items()}
        text.places[""] = text.places[next(iter(roles.variables))]
        top = next(rows, None)
    if top is None:
        raise TraceError(f"{file}: there is a header but no row below it")
    if roles.time is not None and top[1][roles.time].strip("[]() ") in SECONDS:
        roles = _with_units(roles, roles.time, top[1])
        text.first_row += 1
    return split_table(_read_table(text, header, roles, options), options)


def _with_units(roles: Roles, time: int, row: Row) -> Roles:
    """The roles with the units that stand in a row of their own below the names."""
    units = {
        name: row[place].strip("[]() ") or roles.units[name]
        for name, place in roles.variables.items()
    }
    return roles._replace(units=units, time_unit=roles.time_unit or row[time].strip("[]() "))


def _read_table(text: Text, header: list[str], roles: Roles, options: Options) -> Table:
    time = Times(text.comma)
    ids: dict[str, int] = {}
    id_codes: list[int] = []
    columns: dict[str, Column] = {}
    own_rows: dict[str, list[int]] = {}  # of the variables of a long table
    wanted = options.variables and frozenset(options.variables)
    places = list(dict.fromkeys(roles.used))
    pick: Any = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
    n_rows = 0

    def add(name: str, place: int, cells: Sequence[str]) -> None:
        if name not in columns:
            columns[name] = column(name, options, text.comma)
        with text.locating(header[place], own_rows.get(name)):
            columns[name].add(cells)

    for block in text.blocks():
        cells = dict(zip(places, zip(*map(pick, block), strict=True), strict=True))
        if roles.id is not None:
            with text.locating(header[roles.id]):
                id_codes += _codes(cells[roles.id], ids, n_rows)
        if roles.time is not None:
            with text.locating(header[roles.time]):
                time.add(cells[roles.time])
        if roles.name is None:
            for name, place in roles.variables.items():
                add(name, place, cells[place])
        else:
            with text.locating(header[roles.name]):
                grouped = _grouped(cells[roles.name], n_rows)
            (place,) = roles.variables.values()
            for name, found in grouped.items():
                own_rows.setdefault(name, []).extend(n_rows + i for i in found)
                if wanted is None or name in wanted:
                    add(name, place, [cells[place][i] for i in found])
        n_rows += len(block)
    series = {}
    for name in present(options, columns) or tuple(columns):
        if name not in columns:
            raise no_variable(text.name, name, list(own_rows), options)
        place = roles.variables["value" if roles.name is not None else name]
        with text.locating(header[place], own_rows.get(name)):
            rows = np.array(own_rows[name]) if name in own_rows else None
            series[name] = columns[name].series(roles.units.get(name), rows)
        if series[name].kind == "number":
            text.require_one_point(header[place] if roles.name is None else name, columns[name])
        del columns[name]
    times = None
    if roles.time is not None:
        with text.locating(header[roles.time]):
            times, text.notes = time.seconds(roles.time_unit)
        text.require_one_point(header[roles.time], time)
    named = (np.array(id_codes, np.int64), list(ids)) if roles.id is not None else None
    return Table(text, series, named, times, n_rows)


def column(name: str, options: Options, comma: bool = False) -> Column:
    return Column(options.labels.get(name), name in options.coded, comma)


def _codes(cells: Sequence[str], known: dict[str, int], before: int) -> list[int]:
    codes = list(codes_of(cells, known))
    if "" in known:
        raise CellError(before + codes.index(known[""]), "the cell is empty")
    return codes


def _grouped(names: Sequence[str], before: int) -> dict[str, list[int]]:
    """The places of each name."""
    known: dict[str, int] = {}
    codes = _codes(names, known, before)
    groups: list[list[int]] = [[] for _ in known]
    for i, code in enumerate(codes):
        groups[code].append(i)
    return dict(zip(known, groups, strict=True))


# -- one row per trace -----------------------------------------------------------------------------


def _read_rows(
    text: Text, first: tuple[int, Row], rows: Iterator[tuple[int, Row]], options: Options
) -> list[Part]:
    """Each row is a trace: `x_0, x_1, ...` (or times in the header) after an identifier, if any.

    first: the line and the cells of the first row.
    """
    line, header = first
    numbers = [is_number(cell, text.comma) for cell in header]
    empty = MISSING | DASHES
    if any(numbers) and all(n or c.lower() in empty for n, c in zip(numbers, header, strict=True)):
        rows = chain([first], rows)  # no header: these are samples
        header = [str(i + 1) for i in range(len(header))]
        text.first_row = 0
        id_place = None if options.id_column is None else _place(text, header, options.id_column)
        samples = {"": [i for i in range(len(header)) if i != id_place]}
        times = None
    else:
        usual = next((n for n in header if n.lower() in NAMED_ROWS), None)
        asked = options.id_column or usual
        id_place = None if asked is None else _place(text, header, asked)
        if any(numbers) and (id_place is None or numbers[id_place]):
            raise TraceError(
                f"{text.name}:{line}: are the numbers in this line times or samples? If times, call "
                f"the column of names id, or name it with --id-column; if samples, put the line "
                f"id,x_0,x_1,... above"
            )
        headed = [i for i, is_one in enumerate(numbers) if is_one]
        samples = {"": headed} if headed else _sample_columns(text, header, id_place)
        times = None
        if headed:
            times = _times_above(text, line, header, headed, id_place, options.time_unit)
    lengths = {len(places) for places in samples.values()}
    if len(lengths) != 1:
        why = "differ in number" if lengths else "are missing"
        raise TraceError(
            f"{text.name}: the columns of samples, x_0, x_1, ..., {why}; give each variable the same"
        )
    only = (options.arrays or ("x_0",))[0]  # of samples without a name
    named = {name or only: places for name, places in samples.items()}
    wanted = present(options, named) or tuple(named)
    for name in wanted:
        if name not in named and "" in samples:
            known = f"it has {only}, unless named with --variables"
            raise TraceError(f"{text.name}: there is no variable {name!r}; {known}")
        if name not in named:
            raise TraceError(
                f"{text.name}: no columns {name}_0, {name}_1, ...; it has those of "
                f"{listed(list(named))}"
            )
    text.places = {name: (header[named[name][0]], named[name][0]) for name in wanted}
    found = [cells for _, cells in rows]
    is_said = options.arrays is not None or options.id_column is not None
    if not text.first_row and len(found) > 1 and not is_said and _count_evenly(text, found[0]):
        raise TraceError(
            f"{text.name}:{line}: are these times or samples? Before times, add a column of names, as "
            "in id,0,0.1; for samples, name their variable with --variables"
        )
    if not found:
        raise TraceError(f"{text.name}: there is a header but no row below it")
    ids = [
        cells[id_place].strip() if id_place is not None else str(i) for i, cells in enumerate(found)
    ]
    repeated = {one for one, count in Counter(ids).items() if count > 1}
    parts = []
    for i, cells in enumerate(found):
        series = {}
        for name in wanted:
            with text.locating(name, [i] * len(cells)):
                made = column(name, options, text.comma)
                made.add([cells[place] for place in named[name]])
                series[name] = made.series()
            if series[name].kind == "number":
                text.require_one_point(name, made)
        filled = np.any([~np.isnan(one.values) for one in series.values()], axis=0)
        length = len(filled) - int(filled[::-1].argmax()) if filled.any() else 0
        if not length:
            raise TraceError(f"{text.name}{text.where(i)}: the row has no value")
        given = np.arange(length)
        one = f"{ids[i]}/{i}" if ids[i] in repeated else ids[i]
        parts.append(
            Part(
                one,
                {name: values.taken(given) for name, values in series.items()},
                None if times is None else times[:length],
                np.full(length, i),
                text,
            )
        )
    return parts


def _count_evenly(text: Text, cells: Row) -> bool:
    """Whether these are the numbers from 0 on in equal steps, as times of samples are. The first cell
    may be empty, above names."""
    numbers = [number_of(cell, text.comma) for cell in cells[not cells[0] :]]
    values = np.array([number for number in numbers if number is not None])
    return (
        2 < len(values) == len(numbers)
        and np.allclose(values, values[1] * np.arange(len(values)))
        and bool(values[1] > 0)
    )


def _place(text: Text, header: list[str], name: str) -> int:
    if name not in header:
        raise TraceError(f"{text.name}: there is no column {name!r}; it has: {listed(header)}")
    return header.index(name)


def _times_above(
    text: Text,
    line: int,
    header: list[str],
    headed: list[int],
    id_place: int | None,
    unit: str | None,
) -> np.ndarray | None:
    """The times that head the columns of samples; None if they only count the samples."""
    cells = [header[i] for i in headed]
    made, plain = Times(comma=text.comma), Column(comma=text.comma)
    try:
        for one in (made, plain):
            one.add(cells)
        plain.series()  # which names a decimal point unlike the others
        times, text.notes = made.seconds(unit)
    except CellError as error:
        raise TraceError(
            f"{text.name}:{line}, column {cells[error.row]!r}: {error.reason}"
        ) from None
    text.require_one_point(next((cell for cell in cells if set(",.") & set(cell)), cells[0]), made)
    others = (header[i] for i in sorted({*range(len(header))} - {*headed, id_place}))
    numbered = next((name for name in others if _NUMBERED.fullmatch(name)), None)
    if numbered:
        raise TraceError(
            f"{text.name}:{line}: {numbered!r} numbers a sample, but {cells[0]!r} is a time; head all "
            "columns of samples alike"
        )
    falls = ~(np.diff(times) > 0)
    if falls.any():
        a, b = cells[i := int(falls.argmax())], cells[i + 1]
        raise TraceError(
            f"{text.name}:{line}: the times above the samples must increase, but {b} comes after {a}; "
            "if these are samples, put the line id,x_0,x_1,... above"
        )
    counted = unit is None and np.array_equal(times, np.arange(len(times)) + times[0])
    return None if counted else times


def _sample_columns(text: Text, header: list[str], id_place: int | None) -> dict[str, list[int]]:
    """The columns of each variable's samples, `x_0, x_1, ...`, in order."""
    columns: dict[str, dict[int, int]] = {}  # places by number
    for i, name in enumerate(header):
        match = _NUMBERED.fullmatch(name)
        if match and i != id_place:
            own = columns.setdefault(match["name"], {})
            number = int(match["number"])
            if number in own:
                raise TraceError(
                    f"{text.name}: {header[own[number]]!r} and {name!r} are the same sample; rename one"
                )
            own[number] = i
    for own in columns.values():
        numbers = sorted(own)
        for before, after in pairwise(numbers):
            if after != before + 1:
                last = header[own[before]]
                lacking = f"{before + 1}".join(last.rsplit(re.findall(r"\d+", last)[-1], 1))
                raise TraceError(
                    f"{text.name}: there is no column {lacking!r} between {last!r} and "
                    f"{header[own[after]]!r}; number the samples without a gap, or head them with their "
                    "times"
                )
    return {name: [own[number] for number in sorted(own)] for name, own in columns.items()}
