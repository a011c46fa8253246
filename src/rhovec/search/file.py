"""A library in a file, or in memory: durable rows, and an approximate index once it is large.

The rows (rows.py) are the source of truth. Up to 25 million numbers (25,000 vectors of 1000) all
vectors are held in memory and every one is compared. A larger library first finds candidates with an
approximate index (coarse.py). Its file beside the library is a cache: made when it is missing, damaged
or too old, and completed by an exact scan of the rows that came after it. In either case inner products
are those of the stored vectors.

What is held always equals what is stored: before it answers, a search takes in the rows that were added
and deleted since, by whichever program, and compares the sum of the checksums with the library's digest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import RhovecError
from .backend import Backend, Batch, Entry, Facts, Filter, Found, Progress
from .numbers import Numbers
from .rows import REPAIR, Part, Rows, State, new_library, signed

if TYPE_CHECKING:
    from .coarse import Coarse

MAX_EXACT = 25_000_000  # numbers that are scanned exactly
MAX_ENTRIES = 10_000  # entries that are held after they were found, about 20 MB

_Chosen = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of depths and labels (n,): which rows


class FileBackend(Backend):
    """A library in one SQLite file with a cache beside it, or in memory."""

    _tail: _Tail

    def __init__(self, rows: Rows):
        self._rows = rows
        self.name, self.facts = rows.name, rows.facts
        self._numbers = self.facts.numbers
        self._entries: dict[int, Entry] = {}  # by id; an entry never changes, and no id comes again
        self._forget()

    @classmethod
    def create(cls, path: Path | None, facts: Facts, batches: Iterator[Batch]) -> FileBackend:
        """A new library; its file appears once it is complete."""
        if path is None:
            return cls._filled(":memory:", facts, batches, "the library")
        with new_library(path) as temporary:
            cls._filled(temporary, facts, batches, str(path)).close()
        backend = cls.open(path)
        backend.flush()
        return backend

    @classmethod
    def _filled(
        cls, file: Path | str, facts: Facts, batches: Iterator[Batch], name: str
    ) -> FileBackend:
        rows = Rows.create(file, facts, name)
        try:
            rows.insert(batches)
        except BaseException:
            rows.database.close()
            raise
        return cls(rows)

    @classmethod
    def open(cls, path: Path) -> FileBackend:
        try:
            return cls(Rows.open(path))
        except RhovecError:
            raise
        except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
                ValueError):  # fmt: skip
            raise RhovecError(f"{path}: its description is damaged; {REPAIR}") from None

    def copy(self, path: Path) -> None:
        self._rows.copy(path)

    def batches(self) -> Iterator[Batch]:
        with self._rows.reading():
            for part in self._rows.parts(0, self._rows.state().last):
                entries = [entry.requirement for entry in self._rows.entries(part.ids)]
                yield Batch(entries, part.vectors)

    def close(self) -> None:
        self._rows.database.close()

    def add(self, batches: Iterator[Batch]) -> Sequence[int]:
        return self._rows.insert(batches)

    def delete(self, ids: Collection[int]) -> None:
        self._rows.delete(ids)

    def count(self) -> int:
        with self._rows.reading():
            return self._rows.state().size

    def verify(self, progress: Progress | None = None) -> None:
        self._rows.verify(progress)

    def flush(self) -> None:
        """Complete the approximate index and write it."""
        with self._rows.reading():
            state = self._refresh()
            if self._coarse is not None and len(self._tail):
                self._merge(state)
                if not self._is_complete(state):
                    raise self._rows.incomplete()
                self._seen = state

    # -- searching -------------------------------------------------------------------------

    def search(self, points: np.ndarray, k: int, chosen: Filter) -> list[list[Found]]:
        with self._rows.reading():
            self._refresh()
            fitting = self._fitting(chosen)
            return [self._nearest(point, k, fitting) for point in points]

    def _fitting(self, chosen: Filter) -> _Chosen | None:
        if chosen == Filter():
            return None
        labels = [
            number
            for number, label in enumerate(self._rows.labels(), 1)
            if chosen.variables <= label.variables and chosen.tags.issubset(label.tags)
        ]
        deepest = np.iinfo(np.int32).max if chosen.max_depth is None else chosen.max_depth
        return lambda depths, numbers: np.isin(numbers, labels) & (depths <= deepest)

    def _nearest(self, point: np.ndarray, k: int, fitting: _Chosen | None) -> list[Found]:
        """The k nearest rows, or all if there are fewer."""
        tail, coarse = self._tail, self._coarse
        allowed = _allowed(tail.alive, fitting, tail.depths, tail.labels)
        ids, scores = tail.nearest(point, k, allowed)
        if coarse is not None:
            allowed = _allowed(self._alive, fitting, coarse.depths, coarse.labels)
            found, products = coarse.candidates(point, k, allowed)
            if not coarse.is_whole:
                products = self._rows.vectors(found) @ point
            ids, scores = np.concatenate([ids, found]), np.concatenate([scores, products])
        order = np.lexsort((ids, -scores))[:k]
        return list(zip(self._read(ids[order]), scores[order].tolist(), strict=True))

    def _read(self, ids: np.ndarray) -> list[Entry]:
        """The entries with these ids; the popular ones are read, checked and parsed once."""
        numbers = ids.tolist()
        missing = [i for i in numbers if i not in self._entries]
        if missing:
            if len(self._entries) + len(missing) > MAX_ENTRIES:
                self._entries, missing = {}, numbers
            found = self._rows.entries(np.array(missing))
            self._entries.update(zip(missing, found, strict=True))
        return [self._entries[i] for i in numbers]

    def neighbours(
        self, lowest: float, done: Collection[int], progress: Progress | None = None
    ) -> Iterator[list[Found]]:
        with self._rows.reading():
            self.flush()
            from .coarse import Coarse, near_groups

            coarse, alive = self._coarse, self._alive
            if coarse is None:
                held = self._tail.part()
                if not len(held.ids):
                    return
                coarse = Coarse.learn(held.vectors, len(held.ids), self._numbers).extended([held])
                alive = np.ones(len(coarse), bool)
            yield from near_groups(coarse, alive, self._rows, lowest, done, progress)

    # -- what is held of the rows ----------------------------------------------------------

    def _forget(self) -> None:
        self._seen = State(0, 0, 0, 0)  # the library's state that was taken in
        self._coarse: Coarse | None = None
        self._coarse_last = 0  # it holds rows up to this id
        self._coarse_digest = 0  # sum of the checksums of those rows that were not deleted
        self._alive = np.empty(0, bool)  # which of its rows were not deleted
        self._tail = _Tail(self._numbers)  # all later rows

    def _refresh(self) -> State:
        """Take in what was added and deleted since; RhovecError if rows are missing or extra."""
        state = self._rows.state()
        if state == self._seen:
            return state
        for cached in (True, False):  # a cache may belong to another state of the library
            self._follow(state, cached)
            if self._is_complete(state):
                self._seen = state
                return state
            self._forget()
        raise self._rows.incomplete()

    def _follow(self, state: State, cached: bool) -> None:
        if len(self._tail) + len(self._alive) > 2 * state.size:
            self._forget()  # most were deleted
        if cached and self._coarse is None and self._is_large(state.size):
            self._load(state)
        if self._seen.last:
            self._drop(*self._rows.deleted(self._seen.deletions))
        if self._is_large(min(state.last - self._coarse_last, state.size)):
            self._merge(state)
        else:
            for part in self._rows.parts(self._seen.last, state.last):
                self._tail.append(part)

    def _is_large(self, rows: int) -> bool:
        return rows * self.facts.dimension > MAX_EXACT

    def _is_complete(self, state: State) -> bool:
        return signed(self._coarse_digest + self._tail.digest) == state.digest

    def _drop(self, ids: np.ndarray, checksums: list[int]) -> None:
        """Mark rows that were deleted. Those that came and went since were never held."""
        for i, checksum in zip(ids.tolist(), checksums, strict=True):
            if i <= self._coarse_last:
                self._coarse_digest -= checksum
            elif i <= self._seen.last:
                self._tail.digest -= checksum
        self._tail.alive[np.isin(self._tail.ids, ids)] = False
        if self._coarse is not None and len(ids):
            self._alive &= ~np.isin(self._coarse.ids, ids)

    def _load(self, state: State) -> None:
        """Take the approximate index from the cache, if that is of this library."""
        from .coarse import Coarse

        path = self._rows.path
        loaded = path and Coarse.load(_cache(path), self._rows.identity, self.facts.dimension)
        if not loaded:
            return
        coarse, extent = loaded
        if (
            extent.last <= state.last
            and extent.deletions <= state.deletions
            and len(coarse) <= 2 * state.size
        ):
            self._forget()
            self._coarse, self._alive = coarse, np.ones(len(coarse), bool)
            self._coarse_last, self._coarse_digest = extent.last, extent.digest
            self._seen = State(extent.last, extent.deletions, 0, extent.digest)

    def _merge(self, state: State) -> None:
        """Move all rows into the approximate index, and write that to its file."""
        from .coarse import Coarse, Extent, n_sampled

        coarse, alive = self._coarse, self._alive
        begin, digest = self._coarse_last, self._coarse_digest
        if coarse is None or state.size > 2 * coarse.learned:
            ids = np.setdiff1d(np.arange(1, state.last + 1), self._rows.deleted(0)[0])
            sampled = np.random.default_rng(0).permutation(ids)[: n_sampled(state.size)]
            coarse = Coarse.learn(self._rows.vectors(sampled), state.size, self._numbers)
            alive, begin, digest = np.empty(0, bool), 0, 0

        def counted() -> Iterator[Part]:
            nonlocal digest
            for part in self._rows.parts(begin, state.last):
                digest += part.digest
                yield part

        coarse = coarse.extended(counted(), alive)
        self._forget()
        self._coarse, self._alive = coarse, np.ones(len(coarse), bool)
        self._coarse_last, self._coarse_digest = state.last, digest
        if self._rows.path and self._is_complete(state):
            with suppress(OSError):  # a cache: where it cannot be written, it is held in memory
                extent = Extent(state.last, state.deletions, signed(digest))
                coarse.save(_cache(self._rows.path), self._rows.identity, extent)


class _Tail:
    """Rows that are held, in arrays that grow: unit vectors, or what is stored if that is int8."""

    def __init__(self, numbers: Numbers):
        self.digest = 0  # sum of the checksums of the rows that are alive
        self._numbers = numbers
        self._size = 0
        self._is_int8 = numbers.stored == "int8"
        rows = np.empty((0, numbers.width), np.int8 if self._is_int8 else np.float32)
        self._columns: list[np.ndarray] = [
            np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, bool),
            rows, np.empty(0, np.float32),
        ]  # fmt: skip
        self._show()

    def __len__(self) -> int:
        return self._size

    def append(self, part: Part) -> None:
        size = self._size + len(part.ids)
        if size > len(self._columns[0]):
            room = max(size, 2 * self._size)
            self._columns = [
                np.resize(column[: self._size], (room, *column.shape[1:]))
                for column in self._columns
            ]
        rows: np.ndarray = part.vectors
        scales: np.ndarray | float = 1.0
        if self._is_int8:
            rows = self._numbers.encode(part.vectors)
            scales = self._numbers.scales(rows)
        new = (part.ids, part.depths, part.labels, True, rows, scales)
        for column, values in zip(self._columns, new, strict=True):
            column[self._size : size] = values
        self._size = size
        self.digest += part.digest
        self._show()

    def _show(self) -> None:
        self.ids, self.depths, self.labels, self.alive, self._held, self._scales = (
            column[: self._size] for column in self._columns
        )

    def nearest(
        self, point: np.ndarray, k: int, allowed: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of all rows, or of those allowed: ids and inner products, in no order."""
        if self._is_int8:
            from .scan import nearest

            rows, scores = nearest(
                self._numbers, self._held, self._scales, point, k, allowed=allowed
            )
            return self.ids[rows], scores
        ids, scores = self.ids, self._held @ point
        if allowed is not None:
            ids, scores = ids[allowed], scores[allowed]
        if k < len(scores):
            best = np.argpartition(-scores, k)[:k]
            ids, scores = ids[best], scores[best]
        return ids, scores

    def part(self) -> Part:
        """The rows that were not deleted."""
        columns = (self.ids, self.depths, self.labels, self._held)
        ids, depths, labels, rows = (column[self.alive] for column in columns)
        vectors = self._numbers.decode(rows) if self._is_int8 else rows
        return Part(ids, depths, labels, vectors, self.digest)


def _allowed(
    alive: np.ndarray, fitting: _Chosen | None, depths: np.ndarray, labels: np.ndarray
) -> np.ndarray | None:
    """Which rows (n,) bool a search may return; None: all."""
    if fitting is not None:
        return alive & fitting(depths, labels)
    return None if alive.all() else alive


def _cache(path: Path) -> Path:
    return path.with_name(f"{path.name}.coarse")
