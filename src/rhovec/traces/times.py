"""Columns of times: numbers in a unit, dates with times, or times of day, as seconds.

Seconds since 1970 leave float64 only steps of 0.2 microseconds. Where cells tell times apart that such
seconds cannot, the times count from the first one instead, which is subtracted exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

import numpy as np

from .cells import MISSING, SECONDS, CellError, Column, is_number

FIRST_DATE, LAST_DATE = 1e8, 1e11  # seconds since 1970 that messages show as dates
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACT_DIGITS = 15  # decimal numbers of up to this many digits also differ as float64
DATES = 19000101, 21001231  # whole numbers between which all may be dates
FINE = 64  # spacings of float64: closer numbers may be rounded
COARSE = 32  # spacings of float64 that a step needs, as seconds

_CLOCK = re.compile(r"(\d{1,4}):([0-5]\d):([0-5]\d(?:[.,]\d+)?)")  # also more hours, since a start
_NANOSECONDS = re.compile(r"[.,]\d{6}(\d+)")  # what datetime does not keep

Instants = tuple[np.ndarray, tuple[str, ...]]  # times in seconds, and what to say about them


def shown(time: float) -> str:
    """A time in seconds for a message; as a date if it counts from 1970."""
    if not FIRST_DATE < time < LAST_DATE:
        return f"{time:.15g}"
    return datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat(" ")


class Times(Column):
    """The cells of a column of times, converted as they arrive."""

    def __init__(self, comma: bool = False):
        super().__init__(comma=comma)
        self._first: Decimal | None = None
        self._since: list[np.ndarray] = []  # the numbers less the first one

    def add(self, cells: Sequence[str]) -> None:
        super().add(cells)
        if self._texts is not None:
            return
        numbers = self._numbers[-1]
        known = np.isfinite(numbers)
        if self._first is None and known.any():
            self._first = self._exact(cells[int(known.argmax())])
        if self._first is None:
            self._since.append(numbers)
        elif max(map(len, cells)) > EXACT_DIGITS and _are_close(numbers[known]):
            rows = np.flatnonzero(known)
            exact = [self._exact(cells[row]) for row in rows.tolist()]
            since = np.full(len(cells), np.nan)
            since[rows] = [float(one - self._first) for one in exact]
            moved = np.array([a != b for a, b in pairwise(exact)], bool)
            _require_apart(since[rows], moved, rows + sum(map(len, self._since)))
            self._since.append(since)
        else:
            with np.errstate(over="ignore"):
                self._since.append(numbers - float(self._first))

    def seconds(self, unit: str | None) -> Instants:
        """Numbers in the unit, dates with times, or times of day, in seconds; NaN where nothing stands.

        CellError for any other text.
        """
        if self._texts is None:
            values = self.series().values
            return as_seconds(values, np.concatenate([np.empty(0), *self._since]), unit)
        texts, codes = list(self._texts), np.array(self._codes, np.int64)
        pairs = [(text, text.lower()) for text in texts]
        are_numbers = all(low in MISSING or self._number(text) is not None for text, low in pairs)
        if are_numbers:
            values = self.series().values
            known = np.isfinite(values).tolist()
            there = dict(zip(codes.tolist(), known, strict=True))
            exact = [self._exact(text) if there.get(i) else None for i, text in enumerate(texts)]
        else:
            exact = [None if low in MISSING else _moment(text) for text, low in pairs]
            wrong = [
                text
                for (text, low), moment in zip(pairs, exact, strict=True)
                if moment is None and low not in MISSING
            ]
            if wrong:
                text = min(wrong, key=is_number)  # the first that is not even a number
                raise CellError(
                    int((codes == self._texts[text]).argmax()),
                    f"{text[:40]!r} is not a time; write a number, 2024-05-31 14:30:00.5 or 14:30:00.5",
                )
            clocks = {_is_clock(t): t for t, low in reversed(pairs) if low not in MISSING}
            if len(clocks) == 2:
                text = max(clocks.values(), key=texts.index)
                raise CellError(
                    int((codes == self._texts[text]).argmax()),
                    f"{text[:40]!r} has {'no' if _is_clock(text) else 'a'} date, unlike the times above "
                    "it; write all times with their dates",
                )
            values = np.array([math.nan if m is None else float(m) for m in exact])[codes]
            unit = "s"
        first = next((exact[i] for i in codes.tolist() if exact[i] is not None), None) or Decimal(0)
        since = np.array([math.nan if one is None else float(one - first) for one in exact])[codes]
        different = {one: i for i, one in enumerate(dict.fromkeys(exact))}
        places = np.array([different[one] for one in exact])[codes]
        rows = np.flatnonzero(np.isfinite(values))
        _require_apart(since[rows], np.diff(places[rows]) != 0, rows)
        return as_seconds(values, since, unit)

    def _exact(self, cell: str) -> Decimal:
        return Decimal(cell.replace(",", ".") if self._comma else cell)


def of_numbers(numbers: np.ndarray, known: np.ndarray, unit: str | None) -> Instants:
    """Numbers as times in seconds, NaN where they are not known. Integers are taken exactly."""
    values = np.where(known, numbers.astype(np.float64), np.nan)
    if not known.any():
        return values, ()
    whole = numbers.astype(np.int64) if numbers.dtype.kind in "iu" else values
    since = np.where(known, (whole - whole[known.argmax()]).astype(np.float64), np.nan)
    rows = np.flatnonzero(known)
    _require_apart(since[rows], np.diff(whole[rows]) != 0, rows)
    return as_seconds(values, since, unit)


def as_seconds(values: np.ndarray, since: np.ndarray, unit: str | None) -> Instants:
    """Numbers in a unit as seconds; since: the same less the first one, exactly.

    CellError if the unit is not known, and they cannot be seconds or all look like dates.
    """
    if unit is None and _are_dates(values):
        row = int(np.isfinite(values).argmax())
        digits = f"{values[row]:.0f}"
        raise CellError(
            row,
            f"{digits} looks like a date; write {digits[:4]}-{digits[4:6]}-{digits[6:]}, or, if it "
            'counts seconds, pass time_unit="s"',
        )
    factor, divisor = SECONDS[unit or "s"]
    times = values if factor == divisor else values * factor / divisor
    largest = float(np.nanmax(abs(times), initial=0))
    units = [u for u in ("ms", "us", "ns") if largest / SECONDS[u][1] < LAST_DATE]
    if unit is None and largest > LAST_DATE and units:
        row = int((abs(times) > LAST_DATE).argmax())
        raise CellError(
            row,
            f"{values[row]:.0f} is too large for a time in seconds; if the times are {units[0]} since "
            f'1970, pass time_unit="{units[0]}"',
        )
    known = np.isfinite(times)
    steps = abs(np.diff(since[known] * factor / divisor))
    moved = steps > 0
    is_lost = bool((moved & (np.diff(times[known]) == 0)).any())
    if FIRST_DATE < largest < LAST_DATE and moved.any():
        is_lost |= bool(np.median(steps[moved]) < COARSE * np.spacing(largest))
    if is_lost:
        start = shown(times[int(known.argmax())])
        note = f"the times count from {start}, to keep digits that float64 would lose"
        return since * factor / divisor, (note,)
    return times, ()


def _are_dates(values: np.ndarray) -> bool:
    """Whether all numbers are dates such as 20240531."""
    known = values[np.isfinite(values)]
    if not len(known) or known.min() < DATES[0] or known.max() > DATES[1] or (known % 1).any():
        return False
    months, days = known // 100 % 100, known % 100
    return bool(((months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)).all())


def _require_apart(since: np.ndarray, moved: np.ndarray, rows: np.ndarray) -> None:
    """Refuse times that differ from the one before, but not as float64 since the first one."""
    lost = moved & (np.diff(since) == 0)
    if lost.any():
        raise CellError(
            int(rows[int(lost.argmax()) + 1]),
            "the step from the time before is too small for a time so far from the first one; correct "
            "the first time, or write times since the start",
        )


def _are_close(numbers: np.ndarray) -> bool:
    """Whether neighbours are so close that they may be rounded."""
    spacing = np.spacing(abs(numbers).max(initial=0))
    with np.errstate(over="ignore"):
        return bool((abs(np.diff(numbers)) < FINE * spacing).any())


def _is_clock(text: str) -> bool:
    return _CLOCK.fullmatch(text) is not None


def _moment(text: str) -> Decimal | None:
    """Seconds since 1970 of a date with a time, or since midnight of a time of day; None for neither."""
    clock = _CLOCK.fullmatch(text)
    if clock:
        hours, minutes, rest = clock.groups()
        return int(hours) * 3600 + int(minutes) * 60 + Decimal(rest.replace(",", "."))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    exact = Decimal((since.days * 86400 + since.seconds) * 10**6 + since.microseconds).scaleb(-6)
    cut_off = _NANOSECONDS.search(text)
    return exact if cut_off is None else exact + Decimal(f"0.000000{cut_off[1]}")
