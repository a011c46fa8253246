"""Reading formulae from files: one per line, or the column `formula` of a CSV file.

    # comments, also at the end of a line
    R1: always[0,10] speed < 120       an identifier may precede a formula
    eventually gear == 3

Everything that reads such files does it here, so that they mean the same everywhere and a mistake is
reported with the file and its own line and column: `requirements.stl:3, column 12: expected ...`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ParseError, RhovecError
from .core import Formula
from .parser import parse

_COMMENT = re.compile(r"(?:^|\s)#.*")
_ID = re.compile(r"\s*([\w./-]+)\s*:(?!:)")
_SPREADSHEET = re.compile(r"'(?=[=+\-@])")  # put before such a cell by what writes our CSV files


class Line(NamedTuple):
    """One formula of a file, or of the command line, before it is parsed."""

    text: str  # characters before the formula are blanks, so that columns are those of the file
    place: str  # "requirements.stl:3", or "formula 2"
    id: str = ""  # what precedes a colon, if anything does

    @property
    def label(self) -> str:
        """The formula as it was written."""
        return self.text.strip()


def read_file(path: str | Path) -> list[Line]:
    """The formulae of a file."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    return read_data(data, str(path))


def read_data(data: bytes, name: str) -> list[Line]:
    """The formulae in the content of a file called `name`; a name that ends in .csv means a table."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RhovecError(f"{name}:{line}: no UTF-8 text") from None
    found = list(_cells(text, name) if name.lower().endswith(".csv") else _lines(text, name))
    if not found:
        raise RhovecError(f"{name}: there is no formula in it")
    return found


def split_id(text: str, place: str) -> Line:
    """Split `R1: always x > 0` into identifier and formula."""
    found = _ID.match(text)
    if found is None:
        return Line(text, place)
    return Line(" " * found.end() + text[found.end() :], place, found[1])


def parse_lines(lines: Iterable[Line], **options: Any) -> list[Formula]:
    """Parse formulae; the options are those of `rv.parse`."""
    formulae = []
    for line in lines:
        try:
            formulae.append(parse(line.text, **options))
        except ParseError as error:
            row = f", line {error.line}" if "\n" in line.text else ""
            place = f"{line.place}{row}, column {error.column}"
            raise RhovecError(f"{place}: {error.message}") from None
    return formulae


def _lines(text: str, name: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), 1):
        found = split_id(_COMMENT.sub("", line).rstrip(), f"{name}:{number}")
        if found.label or found.id:
            yield found


def _cells(text: str, name: str) -> Iterator[Line]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if "formula" not in (reader.fieldnames or ()):
            raise RhovecError(f"{name}: there is no column `formula`; name it in the first line")
        for row in reader:
            if row["formula"]:
                yield Line(_SPREADSHEET.sub("", row["formula"], 1), f"{name}:{reader.line_num}")
    except csv.Error as error:
        raise RhovecError(f"{name}:{reader.line_num}: {error}") from None
