"""The approximate index of a large library: which few of its rows may be nearest to a vector.

It holds compact vectors (compact.py) of 128 numbers in 16 bits. Rows are grouped into lists around
centroids, and a query reads the nearest lists until they hold enough rows. The result is a set of
candidates; the library scores them with the stored vectors.

The file is a cache: a header and plain arrays with a checksum over both. If anything is wrong with
it, it is made again from the library; nothing in it is used before it is checked.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Protocol, Self

import numpy as np
from numba import njit

from ..files import writing
from .backend import Entry, Found, Progress
from .compact import compacted, principal_directions
from .rows import Part

WIDTH = 128  # numbers per coarse vector
ROUNDING = 3e-4  # error of inner products of coarse vectors
ONE = 32767  # 1.0 in 16 bits; inner products of unit vectors then fit 31 bits
SCANNED = 32_768  # rows that a query reads
CANDIDATES = 200  # rows that it returns at least
SINGLE_LIST = 20_000  # rows up to which lists do not pay off
SAMPLED, SAMPLED_PER_LIST = 20_000, 64  # rows from which directions and centroids are learned
ROUNDS = 10  # of k-means
BLOCK = 16_384  # rows multiplied with all centroids at once
FORMAT = 2


@dataclass(frozen=True)
class Extent:
    """Which rows of a library an index holds."""

    last: int  # rows up to this id, ...
    deletions: int  # ... except the first this many that were deleted
    digest: int  # sum of their checksums


@dataclass(frozen=True)
class Coarse:
    """The rows of a library as coarse vectors, in lists."""

    directions: np.ndarray  # (D, WIDTH - 1) float32, orthonormal columns; fewer if D is small
    centroids: np.ndarray  # (L, d) float32
    offsets: np.ndarray  # (L + 1,) int64: list l is rows offsets[l] to offsets[l + 1]
    ids: np.ndarray  # (n,) int64
    depths: np.ndarray  # (n,) int32
    labels: np.ndarray  # (n,) int32
    codes: np.ndarray  # (n, d) int16
    learned: int  # rows that the library had when directions and centroids were chosen

    def __len__(self) -> int:
        return len(self.ids)

    # -- making -------------------------------------------------------------------------

    @classmethod
    def learn(cls, sample: np.ndarray, rows: int) -> Self:
        """Directions and centroids for a library of `rows` rows, from a sample (m, D). Holds no row."""
        directions = principal_directions(sample, WIDTH)
        points = compacted(sample, directions)
        lists = min(n_lists(rows), len(points))
        empty = np.empty(0, np.int32)
        return cls(
            directions, _centroids(points, lists),
            np.zeros(lists + 1, np.int64), np.empty(0, np.int64), empty, empty,
            np.empty((0, points.shape[1]), np.int16), rows,
        )  # fmt: skip

    def extended(self, parts: Iterable[Part], alive: np.ndarray | None = None) -> Coarse:
        """A copy with more rows, sorted into the same lists.

        alive: (n,) bool, the rows to keep; all of them by default.
        """
        sizes = np.diff(self.offsets)
        lists = [np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)]
        columns = [[self.ids], [self.depths], [self.labels], [self.codes]]
        if alive is not None and not alive.all():
            lists = [lists[0][alive]]
            columns = [[column[alive]] for (column,) in columns]
        for ids, depths, labels, vectors, _ in parts:
            points = compacted(vectors, self.directions)
            lists.append(_nearest(points, self.centroids))
            for column, new in zip(columns, (ids, depths, labels, _codes(points)), strict=True):
                column.append(new)
        chosen = np.concatenate(lists)
        order = np.argsort(chosen, kind="stable")
        offsets = np.zeros_like(self.offsets)
        np.cumsum(np.bincount(chosen, minlength=len(sizes)), out=offsets[1:])
        ids, depths, labels, codes = (np.concatenate(column)[order] for column in columns)
        return Coarse(
            self.directions, self.centroids, offsets, ids, depths, labels, codes, self.learned
        )

    # -- searching -------------------------------------------------------------------------

    def candidates(
        self, query: np.ndarray, count: int, allowed: np.ndarray | None = None
    ) -> np.ndarray:
        """Ids (m,) of rows that may be nearest to a unit vector (D,), in no order.

        allowed: (n,) bool, rows to choose from. m is at least `count` if that many rows are allowed.
        """
        count = max(count, CANDIDATES)
        point = compacted(query[None], self.directions)[0]
        sizes = np.diff(self.offsets)
        if allowed is not None:
            before = np.zeros(len(self) + 1, np.int64)
            np.cumsum(allowed, out=before[1:])
            sizes = before[self.offsets[1:]] - before[self.offsets[:-1]]
        order = np.argsort(-(self.centroids @ point))
        enough = np.searchsorted(np.cumsum(sizes[order]), max(SCANNED, 16 * count)) + 1
        rows = self._rows(order[:enough])
        if allowed is not None:
            rows = rows[allowed[rows]]
        if len(rows) > count:
            scores = np.empty(len(rows), np.int32)
            _scores(self.codes, _codes(point), rows, scores)
            rows = rows[np.argpartition(-scores, count)[:count]]
        found: np.ndarray = self.ids[rows]
        return found

    def neighbourhoods(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """List by list: rows (A,), the rows (B,) in and around it, and their products (A, B)."""
        for centroid, begin, end in zip(
            self.centroids, self.offsets[:-1], self.offsets[1:], strict=True
        ):
            order = np.argsort(-(self.centroids @ centroid))
            enough = np.searchsorted(np.cumsum(np.diff(self.offsets)[order]), SCANNED // 2) + 1
            around = np.sort(self._rows(order[:enough]))
            points = self.codes[around].astype(np.float32) / ONE
            for start in range(begin, end, 1024):
                rows = np.arange(start, min(start + 1024, end))
                yield rows, around, (self.codes[rows].astype(np.float32) / ONE) @ points.T

    def _rows(self, lists: np.ndarray) -> np.ndarray:
        spans = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in lists]
        return np.concatenate(spans)

    # -- the cache -------------------------------------------------------------------------

    def save(self, path: Path, library: str, extent: Extent) -> None:
        """Write the cache of a library. OSError if that fails; the old file is then left."""
        arrays = (
            self.directions, self.centroids, self.offsets, self.ids, self.depths, self.labels,
        )  # fmt: skip
        head = json.dumps(
            {"format": FORMAT, "library": library, "learned": self.learned, **asdict(extent)}
        )
        checksum = _checksum(_bytes(head), *arrays, self.codes)
        with writing(path) as stream:
            for array in (np.array([checksum]), _bytes(head), *arrays):
                _write(stream, array)
            stream.write(bytes(-stream.tell() % 64))
            stream.write(np.ascontiguousarray(self.codes).data)

    @classmethod
    def load(cls, path: Path, library: str, dimension: int) -> tuple[Self, Extent] | None:
        """The index and which rows it holds, its codes mapped; None if it is not this library's.

        None, too, for anything but a whole, consistent file: it is then made again.
        """
        try:
            with path.open("rb") as stream:
                (checksum,), text = _read(stream), _read(stream)
                head = json.loads(text.tobytes())
                if (head.pop("format"), head.pop("library")) != (FORMAT, library):
                    return None
                arrays = [_read(stream) for _ in range(6)]
                directions, centroids, offsets, ids, depths, labels = arrays
                start = stream.tell() + -stream.tell() % 64
                shape = (len(ids), centroids.shape[1])
                codes = np.memmap(stream, np.int16, "r", start, shape)
            if checksum != _checksum(text, *arrays, codes):
                return None
            learned = int(head.pop("learned"))
            index = cls(directions, centroids, offsets, ids, depths, labels, codes, learned)
            return (index, Extent(**head)) if index._consistent(dimension) else None
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, MemoryError,
                RecursionError, EOFError):  # fmt: skip
            return None

    def _consistent(self, dimension: int) -> bool:
        """Whether shapes and types fit and every list lies within the rows."""
        n, width = len(self.ids), self.centroids.shape[1]
        shapes = (
            (self.directions, (dimension, width - 1), np.float32),
            (self.centroids, (len(self.offsets) - 1, width), np.float32),
            (self.offsets, (len(self.offsets),), np.int64),
            (self.ids, (n,), np.int64),
            (self.depths, (n,), np.int32),
            (self.labels, (n,), np.int32),
        )
        return (
            all(array.shape == shape and array.dtype == kind for array, shape, kind in shapes)
            and len(self.offsets) > 1
            and self.offsets[0] == 0
            and self.offsets[-1] == n
            and bool((np.diff(self.offsets) >= 0).all())
        )


class Store(Protocol):
    """Where the rows of an index are kept whole."""

    def vectors(self, ids: np.ndarray, /) -> np.ndarray:
        """Unit vectors (m, D) of the ids (m,)."""

    def entries(self, ids: np.ndarray, /) -> list[Entry]: ...


def near_groups(
    coarse: Coarse,
    alive: np.ndarray,
    store: Store,
    lowest: float,
    done: Collection[int],
    progress: Progress | None,
) -> Iterator[list[Found]]:
    """What `Backend.neighbours` yields, from an index that holds all rows.

    alive: (n,) bool, the rows of the index that were not deleted.
    """
    for rows, around, products in coarse.neighbourhoods():
        near = (products >= lowest - ROUNDING) & alive[around]
        several = alive[rows] & (near.sum(1) > 1)
        for row, close in zip(rows[several], near[several], strict=True):
            first = int(coarse.ids[row])
            others = [i for i in coarse.ids[around[close]].tolist() if i not in done]
            if first in done or len(others) < 2:
                continue
            ids = np.array([first, *(i for i in others if i != first)])
            vectors = store.vectors(ids)
            scores = vectors.astype(np.float64) @ vectors[0]
            scores[0] = 1
            ids, scores = ids[scores >= lowest], scores[scores >= lowest]
            if len(ids) > 1:
                yield list(zip(store.entries(ids), scores.tolist(), strict=True))
        if progress:
            progress((rows[-1] + 1) / len(coarse))


def n_lists(rows: int) -> int:
    """Number of lists for a library of `rows` rows."""
    return 1 if rows <= SINGLE_LIST else int(rows**0.5)


def n_sampled(rows: int) -> int:
    """Number of rows from which a library of `rows` rows learns its lists."""
    return max(SAMPLED, SAMPLED_PER_LIST * n_lists(rows))


def _codes(points: np.ndarray) -> np.ndarray:
    codes: np.ndarray = np.rint(points * ONE).clip(-ONE, ONE).astype(np.int16)
    return codes


def _nearest(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Number of the nearest centroid of each point, (n,) int32."""
    blocks = [
        (points[start : start + BLOCK] @ centroids.T).argmax(1)
        for start in range(0, len(points), BLOCK)
    ]
    return np.concatenate(blocks).astype(np.int32)


def _centroids(points: np.ndarray, count: int) -> np.ndarray:
    """Spherical k-means: unit vectors (count, d) float32. A centroid without points moves to one."""
    rng = np.random.default_rng(0)
    centroids: np.ndarray = points[rng.choice(len(points), count, replace=False)]
    for _ in range(ROUNDS if count > 1 else 1):
        nearest = _nearest(points, centroids)
        order = np.argsort(nearest, kind="stable")
        sizes = np.bincount(nearest, minlength=count)
        filled = sizes > 0
        starts = (np.cumsum(sizes) - sizes)[filled]
        centroids = points[rng.choice(len(points), count, replace=False)]
        centroids[filled] = np.add.reduceat(points[order], starts)
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    return centroids


@njit(cache=True, nogil=True)
def _scores(codes, query, rows, out):  # type: ignore[no-untyped-def]
    """out[m] = <codes[rows[m]], query>, in 32 bits throughout so that it runs 32 at a time."""
    for m in range(len(rows)):
        row = codes[rows[m]]
        total = np.int32(0)
        for j in range(len(query)):
            total = np.int32(total + np.int32(np.int32(row[j]) * np.int32(query[j])))
        out[m] = total


def _checksum(*arrays: np.ndarray) -> int:
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, total)
    return total


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def _write(stream: IO[bytes], array: np.ndarray) -> None:
    np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)


def _read(stream: IO[bytes]) -> np.ndarray:
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
