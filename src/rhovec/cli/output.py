"""What commands write: files that are whole or not there, tables, figures.

Names of traces and formulae come from files that others wrote. On a terminal and in CSV their control
characters are written as escapes, so that they cannot move the cursor or set the title. In CSV a text
that begins with = + - or @ gets an apostrophe in front, as is customary, so that a spreadsheet does
not run it as a formula of its own; what reads our CSV files takes the apostrophe off again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import RhovecError, needed
from ..files import writing

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.text import Text

    from ..kernel import Progress

arguments: ContextVar[Mapping[str, Any]] = ContextVar("arguments")  # of the command
MAX_LINE = 900  # characters of a line on stderr; a name in a file may be of any length
# C0 and C1 controls, line and paragraph separators, and what turns the direction of writing.
_CONTROLS = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


# -- the terminal ----------------------------------------------------------------------------------


def printable(text: str, keep: str = "") -> str:
    """The text with its control characters, but those in `keep`, as escapes such as \\x1b."""
    return _CONTROLS.sub(lambda c: c[0] if c[0] in keep else ascii(c[0])[1:-1], text)


class TerminalStream:
    """A text stream that shows control characters as escapes. `direct` is the stream behind it."""

    def __init__(self, direct: IO[str]):
        self.direct = direct

    def write(self, text: str) -> int:
        return self.direct.write(printable(text, keep="\n\t"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.direct, name)


def console(**options: Any) -> Console:
    """Where rich prints: its colours are control characters, so it writes to the stream itself.

    All that goes into a table must be a `cell`.
    """
    from rich.console import Console

    return Console(file=getattr(sys.stdout, "direct", sys.stdout), highlight=False, **options)


def cell(text: str, style: str = "") -> Text:
    """A text in a table for a terminal."""
    from rich.text import Text

    return Text(printable(text), style)


def cells(parts: Iterable[tuple[str, str]]) -> Text:
    """Texts with a style each, one after the other in a cell."""
    from rich.text import Text

    return Text.assemble(*(cell(text, style) for text, style in parts))


def note(message: str, *more: str) -> None:
    """One line on stderr, and if there is more to say, indented ones below it."""
    for before, text in zip(("rhovec: ", *["  "] * len(more)), (message, *more), strict=True):
        line = before + printable(" ".join(text.split()))
        print(line if len(line) <= MAX_LINE else line[: MAX_LINE - 3] + "...", file=sys.stderr)


# -- tables ----------------------------------------------------------------------------------------

TABLES = (".csv", ".jsonl", ".parquet")  # what `save_table` writes
BATCH = 1 << 16  # rows of a parquet file written at once


def save_table(
    path: Path, records: Iterable[Mapping[str, Any]], header: Sequence[str] = ()
) -> None:
    """Write records to a file, whose name says how; header: the columns if there is no record."""
    if path.suffix.lower() == ".parquet":
        with replacing(path) as stream:
            write_parquet(stream, records, header)
        return
    with replacing_text(path) as text:
        if path.suffix.lower() == ".jsonl":
            write_jsonl(text, records)
        else:
            write_records(text, records, header)


def write_records(
    stream: IO[str], records: Iterable[Mapping[str, Any]], header: Sequence[str] = ()
) -> None:
    """Records with the same fields as CSV."""
    several = iter(records)
    first = next(several, None)
    if first is None:
        write_csv(stream, header, ())
        return
    rows = (map(_joined, record.values()) for record in chain([first], several))
    write_csv(stream, list(first), map(list, rows))


def write_parquet(
    stream: IO[bytes], records: Iterable[Mapping[str, Any]], header: Sequence[str]
) -> None:
    """Records with the same fields as a parquet file; rows wait until every column has a type."""
    parquet = needed("pyarrow.parquet", "writing .parquet files", "data")
    import pyarrow

    def table_of(batch: list[Mapping[str, Any]]) -> Any:
        names = list(batch[0] if batch else header)
        return pyarrow.table({name: [_plain(row[name]) for row in batch] for name in names})

    several = iter(records)
    table = table_of(list(islice(several, BATCH)))
    while pyarrow.null() in table.schema.types and (batch := list(islice(several, BATCH))):
        table = pyarrow.concat_tables([table, table_of(batch)], promote_options="permissive")
    untyped = {pyarrow.null(): pyarrow.string()}
    schema = pyarrow.schema([(f.name, untyped.get(f.type, f.type)) for f in table.schema])
    with parquet.ParquetWriter(stream, schema) as writer:
        writer.write_table(table.cast(schema))
        while batch := list(islice(several, BATCH)):
            writer.write_table(table_of(batch).cast(schema))


def _joined(value: Any) -> Any:
    """A cell of a table: tags are one text."""
    return " ".join(value) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """A cell of a parquet file; a name may hold bytes that are no text."""
    value = _joined(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def write_csv(stream: IO[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table; texts that a spreadsheet would run get an apostrophe in front."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_inert(name) for name in header])
    writer.writerows([_inert(value) for value in row] for row in rows)


def _inert(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    text = printable(value, keep="\n\t")  # csv itself would leave a carriage return unquoted
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text


def write_jsonl(stream: IO[str], records: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object per line."""
    for record in records:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


# -- files -----------------------------------------------------------------------------------------


def require_output(path: Path | None, suffixes: Sequence[str], as_json: bool = False) -> str:
    """The suffix of a file to write, which must be one of these; empty without a path.

    A folder that cannot be written to is reported now, not after the work. as_json: whether --json
    was given.
    """
    if path is None:
        return ""
    if as_json:
        raise RhovecError("--json writes to stdout; with --out the file's name says the format")
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise RhovecError(f"{path}: the name must end in {', '.join(suffixes)}")
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise RhovecError(f"{path}: cannot be written: {why}")
    _refuse_input(path)
    return suffix


def _refuse_input(path: Path) -> None:
    """Refuse to replace a file that the command reads, or to add one to a folder of logs."""
    from ..traces.logs import READERS

    named = 0
    for option, value in arguments.get({}).items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(one, str | Path):
                continue
            named += os.path.abspath(one) == os.path.abspath(path) or _is_same(one, path)
            if option == "traces" and _is_same(one, path.parent) and path.suffix.lower() in READERS:
                raise RhovecError(
                    f"{path}: could be read as one of the logs in {one} the next time; write elsewhere"
                )
    if named > 1:
        raise RhovecError(f"{path}: this command reads it; write to another file")


def _is_same(one: str | Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # most formulae are no names of files
        return False


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file at `path` only once all of it is written."""
    try:
        with writing(path) as stream:
            yield stream
    except OSError as error:
        raise RhovecError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def replacing_text(path: Path) -> Iterator[IO[str]]:
    """`replacing` for text in UTF-8."""
    with replacing(path) as stream:
        # A file name, and so the name of a trace, may hold bytes that are not text.
        text = io.TextIOWrapper(stream, "utf-8", "backslashreplace", newline="", write_through=True)
        yield text
        text.detach()


def save_array(path: Path, array: np.ndarray) -> None:
    import numpy as np

    data = io.BytesIO()  # writing to a file itself, numpy does not notice that the disk is full
    np.save(data, array, allow_pickle=False)
    with replacing(path) as stream:
        stream.write(data.getbuffer())


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; sizes in inches."""
    drawing = needed("matplotlib.figure", "drawing", "plots")
    figure: Figure = drawing.Figure(figsize=(width, height), layout="constrained")
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    with replacing(path) as stream:
        figure.savefig(stream, dpi=130, format="png", bbox_inches="tight")


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar on stderr if that is a terminal; yields a function that takes the share done."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bars:
        task = bars.add_task(title, total=1.0)
        yield lambda share: bars.update(task, completed=share)
