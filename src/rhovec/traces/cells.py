"""Columns of text as numbers: plain ones, with a decimal comma, flags, and names of modes.

A column is converted a block of cells at a time, by pyarrow where it is installed, which takes a
seventh of Python's time. Texts that are not numbers are kept as codes, one per different text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

Kind = Literal["number", "flag", "enumeration"]

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null"})
DASHES = frozenset({"-", "--", "?"})  # missing in a column of numbers, otherwise texts
FLAGS = {"true": 1.0, "on": 1.0, "yes": 1.0, "false": 0.0, "off": 0.0, "no": 0.0}
SECONDS = {  # of a unit, and how many of it are in a second
    "ns": (1, 10**9), "us": (1, 10**6), "µs": (1, 10**6), "μs": (1, 10**6), "ms": (1, 1000),
    "s": (1, 1), "sec": (1, 1), "seconds": (1, 1), "min": (60, 1), "h": (3600, 1),
}  # fmt: skip
NOT_FINITE = "the value is not finite; give every value"
ARROW_CELLS = 1000  # from this many cells on, loading pyarrow is worth its time

_UNIT = re.compile(r"(?P<name>.*[^\s_/])[\s_/]*(?:\((?P<round>[^()]*)\)|\[(?P<square>[^][]*)\])")
# Thousands apart, as in 1.234,5 and 1 234, or a decimal comma where that separates columns.
_PUNCTUATED = re.compile(r"[+-]?(?:\d{1,3}(?:([.,'’\s])\d{3}(?:\1\d{3})*)(?:[.,]\d+)?|\d+,\d+)")


def no_number(text: str, otherwise: str = "") -> str:
    """Say that a text is not a number, and why, if it looks like one."""
    hint = "; write numbers as in 1234.5, without separators of thousands"
    return f"{text[:40]!r} is not a number{hint if _PUNCTUATED.fullmatch(text) else otherwise}"


class CellError(ValueError):
    """A cell of a column that is wrong: its row, counted in the column, and why."""

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row = row
        self.reason = reason


@dataclass(frozen=True, eq=False)
class Series:
    """A column, or a variable of a long table."""

    values: np.ndarray  # float64; NaN: missing
    kind: Kind = "number"
    labels: Mapping[str, int] = field(default_factory=dict)  # codes of an enumeration
    unit: str | None = None
    rows: np.ndarray | None = None  # rows of the table that the values stand in; None: all

    def taken(self, rows: np.ndarray) -> Series:
        return replace(self, values=self.values[rows], rows=None)


def split_unit(header: str) -> tuple[str, str | None]:
    """Name and unit of `Engine Speed (rpm)` or `Engine Speed [rpm]`."""
    found = _UNIT.fullmatch(header)
    if not found:
        return header, None
    unit = (found["round"] or found["square"] or "").strip()
    return found["name"], None if unit in ("", "-", "1") else unit


def time_unit_of(header: str) -> str | None:
    """Unit of a time column: that in brackets, or a last word that is one, `time_ms` or `tMs`."""
    word = re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", header)[-1].lower()
    return split_unit(header)[1] or (word if word in SECONDS else None)


def codes_of(cells: Sequence[str], known: dict[str, int]) -> Iterator[int]:
    """The code of each cell; texts that are not yet known get the next ones."""
    own = {cell: known.setdefault(cell.strip(), len(known)) for cell in dict.fromkeys(cells)}
    return map(own.__getitem__, cells)


class Column:
    """The cells of one column, converted as they arrive.

    labels: texts that formulae compare this column with, and their codes: it holds names, even if some
        of them are numbers. With `coded`, it may hold the codes themselves, as numbers.
    comma: whether a comma in a number is its decimal point.
    """

    def __init__(
        self, labels: Mapping[str, float] | None = None, coded: bool = False, comma: bool = False
    ):
        self._labels = labels
        self._coded = coded
        self._comma = comma
        self._points: set[str] = set()  # decimal points seen: , or .
        self._numbers: list[np.ndarray] = []
        self._texts: dict[str, int] | None = {} if labels is not None else None
        self._codes: list[int] = []

    def add(self, cells: Sequence[str]) -> None:
        if self._texts is None:
            try:
                self._numbers.append(self._as_numbers(cells))
                return
            except ValueError:
                before = sum(map(len, self._numbers))
                if any(not np.isnan(block).all() for block in self._numbers):
                    texts = [cell.strip() for cell in cells]
                    row = next((i for i, text in enumerate(texts) if self._number(text) is None), 0)
                    raise CellError(before + row, self._no_number(texts[row])) from None
                self._texts, self._codes = {"": 0}, [0] * before
        self._codes += codes_of(cells, self._texts)

    def series(self, unit: str | None = None, rows: np.ndarray | None = None) -> Series:
        """The whole column; CellError if it is neither numbers nor names."""
        if self._texts is None:
            values = np.concatenate([np.empty(0), *self._numbers])
            return _finite(Series(values, unit=unit, rows=rows))
        texts, codes = list(self._texts), np.array(self._codes, np.int64)
        values, kind, labels = self._meaning(texts, codes)
        return _finite(Series(values[codes], kind, labels, unit, rows))

    def points(self) -> set[str]:
        """Decimal points of its numbers: , or ."""
        if self._texts is None:
            return self._points
        numbers = [text for text in self._texts if self._number(text) is not None]
        return {point for point in ",." if any(point in text for text in numbers)}

    def _meaning(
        self, texts: list[str], codes: np.ndarray
    ) -> tuple[np.ndarray, Kind, dict[str, int]]:
        """The value of each text."""
        lower = [text.lower() for text in texts]
        present = [i for i, text in enumerate(lower) if text not in MISSING]
        numbers = [self._number(text) for text in texts]
        own = self._labels is not None and not (
            self._coded and all(numbers[i] is not None for i in present)
        )
        if not own:
            if all(numbers[i] is not None or texts[i] in DASHES for i in present) and any(
                numbers[i] is not None for i in present
            ):
                return np.array([math.nan if x is None else x for x in numbers]), "number", {}
            if present and all(lower[i] in FLAGS or numbers[i] in (0, 1) for i in present):
                flags = [FLAGS.get(t, x) for t, x in zip(lower, numbers, strict=True)]
                return np.array([math.nan if x is None else x for x in flags]), "flag", {}
            if any(numbers[i] is not None for i in present):
                worst = next(i for i in present if numbers[i] is None)
                raise CellError(int((codes == worst).argmax()), self._no_number(texts[worst]))
        labels = {text: int(code) for text, code in (self._labels or {}).items()}
        free = max([-1, *labels.values()]) + 1
        for i in present:
            if not texts[i].isprintable():
                reason = "the text is not UTF-8; name its encoding, as in --encoding cp1252"
                raise CellError(int((codes == i).argmax()), reason)
            if texts[i] not in labels:
                labels[texts[i]] = free
                free += 1
        values = np.array([labels.get(text, math.nan) for text in texts], np.float64)
        return values, "enumeration" if present else "number", labels if present else {}

    def _as_numbers(self, cells: Sequence[str]) -> np.ndarray:
        """(rows,) float64, NaN where nothing stands; ValueError if a cell is something else."""
        joined = "".join(cells)
        if (
            "_" in joined or not joined.isascii()
        ):  # Python reads 1_0 as 10; a log does not mean that
            raise ValueError("no plain decimal number")
        if self._comma and "," in joined:
            self._points.add(",")
            if "." in joined:
                raise ValueError("both decimal points")
            cells = [cell.replace(",", ".") for cell in cells]
        elif "." in joined:
            self._points.add(".")
        if len(self._points) > 1:
            raise ValueError("both decimal points")
        if len(cells) >= ARROW_CELLS and (converted := _by_arrow(cells)) is not None:
            return converted
        try:
            return np.array(cells, np.float64)
        except ValueError:
            return np.array([cell.strip() or "nan" for cell in cells], np.float64)

    def _number(self, text: str) -> float | None:
        if "," in self._points and "." in text:
            return None
        return number_of(text, self._comma)

    def _no_number(self, text: str) -> str:
        if "," in self._points and is_number(text):
            return f"{text[:40]!r} has a decimal point where other numbers have a comma"
        return no_number(text)


def _finite(series: Series) -> Series:
    infinite = np.isinf(series.values)
    if infinite.any():
        raise CellError(int(infinite.argmax()), NOT_FINITE)
    return series


def _by_arrow(cells: Sequence[str]) -> np.ndarray | None:
    """The numbers; None if pyarrow is not there, or leaves a cell to Python."""
    try:
        import pyarrow
    except ImportError:
        return None
    given = [cell or None for cell in cells] if "" in cells else cells
    try:
        column = pyarrow.array(given, pyarrow.string()).cast(pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return None
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def is_number(text: str, comma: bool = False) -> bool:
    """Whether a cell is a decimal number, as logs write them; `comma`: it may have a decimal comma."""
    return number_of(text, comma) is not None


def number_of(text: str, comma: bool = False) -> float | None:
    """The number in a cell; None if it holds something else."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text.replace(",", ".") if comma else text)
    except ValueError:
        return None
