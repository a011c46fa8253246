"""The approximate index of a large library: which few of its rows may be nearest to a vector.

It holds vectors in eight bits (numbers.py): the stored ones themselves, if the library is in eight bits
and they are short, and otherwise compact vectors (compact.py) of 128 numbers. Rows are grouped into
lists around centroids, and a query reads the nearest lists until they hold enough rows. The result is a
set of candidates with their inner products; where these are of compact vectors, the library computes
them anew with the stored vectors.

It is made in bounded memory: rows go to temporary files, one for some lists each, which are then sorted
one after the other. The file is a cache: arrays, a header, and a checksum over both. If anything is
wrong with it, it is made again from the library; nothing in it is used before it is checked.
"""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO, Protocol, Self

import numpy as np

from ..files import writing
from .backend import Entry, Found, Progress
from .compact import compacted, principal_directions
from .numbers import Numbers
from .rows import Part
from .scan import nearest

WIDTH = 128  # numbers per compact vector
ROUNDING = 2e-3  # error of inner products of coarse vectors
SCANNED, SCANNED_SHARE = 32_768, 100  # rows that a query reads, at least, and one of this many
CANDIDATES = 200  # rows that it returns at least, of compact vectors
SINGLE_LIST = 20_000  # rows up to which lists do not pay off
SAMPLED, SAMPLED_PER_LIST = 20_000, 64  # rows from which directions and centroids are learned
ROUNDS = 10  # of k-means
BLOCK = 4096  # rows multiplied with all centroids at once
SORTED = 1 << 19  # rows sorted at once
HELD = 1 << 20  # bytes of a temporary file that are kept in memory
PIECE = 1 << 24  # bytes read and written at once
FORMAT = 3


@dataclass(frozen=True)
class Extent:
    """Which rows of a library an index holds."""

    last: int  # rows up to this id, ...
    deletions: int  # ... except the first this many that were deleted
    digest: int  # sum of their checksums


@dataclass(frozen=True)
class Coarse:
    """The rows of a library as coarse vectors, in lists."""

    directions: np.ndarray  # (D, WIDTH - 1) float32, orthonormal columns; none: not compact vectors
    numbers: Numbers  # how coarse vectors are stored
    centroids: np.ndarray  # (L, d) float32
    offsets: np.ndarray  # (L + 1,) int64: list l is rows offsets[l] to offsets[l + 1]
    ids: np.ndarray  # (n,) int64
    depths: np.ndarray  # (n,) int32
    labels: np.ndarray  # (n,) int32
    scales: np.ndarray  # (n,) float32, see numbers.py
    codes: np.ndarray  # (n, width) int8, mapped from a file
    learned: int  # rows that the library had when directions and centroids were chosen

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_whole(self) -> bool:
        """Whether the inner products of candidates are those of the stored vectors."""
        return not self.directions.size

    # -- making -------------------------------------------------------------------------

    @classmethod
    def learn(cls, sample: np.ndarray, rows: int, numbers: Numbers | None = None) -> Self:
        """Lists for a library of `rows` rows, from a sample (m, D). Holds no row.

        numbers: how the library stores its vectors.
        """
        if numbers is not None and numbers.stored == "int8" and numbers.dimension < WIDTH:
            directions, points = np.empty((sample.shape[1], 0), np.float32), sample
        else:
            directions = principal_directions(sample, WIDTH)
            points = compacted(sample, directions)
            numbers = Numbers.learn(points)
        lists = min(n_lists(rows), len(points))
        empty = np.empty(0, np.int32)
        return cls(
            directions, numbers, _centroids(points, lists), np.zeros(lists + 1, np.int64),
            np.empty(0, np.int64), empty, empty, np.empty(0, np.float32),
            np.empty((0, numbers.width), np.int8), rows,
        )  # fmt: skip

    def _points(self, vectors: np.ndarray) -> np.ndarray:
        """Coarse vectors (n, d) of unit vectors (n, D)."""
        return vectors if self.is_whole else compacted(vectors, self.directions)

    def extended(self, parts: Iterable[Part], alive: np.ndarray | None = None) -> Coarse:
        """A copy with more rows, sorted into the same lists.

        alive: (n,) bool, the rows to keep; all of them by default.
        """
        lists = len(self.centroids)
        # Rows are hardly ever spread evenly over the lists: four files where two might do.
        files = min(lists, 1 + 4 * max(len(self), self.learned) // SORTED)
        columns: list[list[np.ndarray]] = [[] for _ in range(5)]
        with ExitStack() as stack:
            spools = [stack.enter_context(SpooledTemporaryFile(HELD)) for _ in range(files)]
            for rows in chain(self._own(alive), map(self._sorted_in, parts)):
                places = rows["list"].astype(np.int64) * files // lists
                for place in np.unique(places).tolist():
                    spools[place].write(rows[places == place].tobytes())
            codes = stack.enter_context(TemporaryFile())
            for spool in spools:
                spool.seek(0)
                rows = np.frombuffer(spool.read(), self._row)
                spool.close()
                rows = rows[np.argsort(rows["list"], kind="stable")]
                for column, name in zip(
                    columns, ("list", "id", "depth", "label", "scale"), strict=True
                ):
                    column.append(rows[name].copy())
                codes.write(rows["codes"].tobytes())
            codes.flush()
            chosen, ids, depths, labels, scales = map(np.concatenate, columns)
            held = _mapped(codes, 0, (len(chosen), self.numbers.width))
        offsets = np.zeros_like(self.offsets)
        np.cumsum(np.bincount(chosen, minlength=lists), out=offsets[1:])
        return replace(
            self, offsets=offsets, ids=ids, depths=depths, labels=labels, scales=scales, codes=held
        )

    @property
    def _row(self) -> np.dtype:
        """A row on its way to its place."""
        return np.dtype([
            ("list", np.int32), ("id", np.int64), ("depth", np.int32), ("label", np.int32),
            ("scale", np.float32), ("codes", np.int8, self.numbers.width),
        ])  # fmt: skip

    def _own(self, alive: np.ndarray | None) -> Iterator[np.ndarray]:
        """The rows that it holds."""
        lists = np.repeat(np.arange(len(self.centroids), dtype=np.int32), np.diff(self.offsets))
        columns = (lists, self.ids, self.depths, self.labels, self.scales, self.codes)
        for start in range(0, len(self), BLOCK):
            some = slice(start, start + BLOCK)
            rows = self._filled(*(column[some] for column in columns))
            yield rows if alive is None else rows[alive[some]]

    def _sorted_in(self, part: Part) -> np.ndarray:
        points = self._points(part.vectors)
        codes = self.numbers.encode(points)
        scales = self.numbers.scales(codes)
        lists = _nearest(points, self.centroids)
        return self._filled(lists, part.ids, part.depths, part.labels, scales, codes)

    def _filled(self, *columns: np.ndarray) -> np.ndarray:
        rows = np.empty(len(columns[0]), self._row)
        for name, column in zip(self._row.names or (), columns, strict=True):
            rows[name] = column
        return rows

    # -- searching -------------------------------------------------------------------------

    def candidates(
        self, query: np.ndarray, count: int, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows that may be nearest to a unit vector (D,): ids (m,) and inner products (m,), in no order.

        allowed: (n,) bool, rows to choose from. m is at least `count` if that many rows are allowed.
        """
        count = count if self.is_whole else max(4 * count, CANDIDATES)
        point = self._points(query[None])[0]
        sizes = np.diff(self.offsets)
        if allowed is not None:
            before = np.zeros(len(self) + 1, np.int64)
            np.cumsum(allowed, out=before[1:])
            sizes = before[self.offsets[1:]] - before[self.offsets[:-1]]
        order = np.argsort(-(self.centroids @ point))
        scanned = max(SCANNED, 16 * count, len(self) // SCANNED_SHARE)
        lists = order[: np.searchsorted(np.cumsum(sizes[order]), scanned) + 1]
        spans = np.stack([self.offsets[lists], self.offsets[lists + 1]], axis=1)
        rows, scores = nearest(self.numbers, self.codes, self.scales, point, count, spans, allowed)
        return self.ids[rows], scores

    def neighbourhoods(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """List by list: rows (A,), the rows (B,) in and around it, and their products (A, B)."""
        for centroid, begin, end in zip(
            self.centroids, self.offsets[:-1], self.offsets[1:], strict=True
        ):
            order = np.argsort(-(self.centroids @ centroid))
            enough = np.searchsorted(np.cumsum(np.diff(self.offsets)[order]), SCANNED // 2) + 1
            spans = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in order[:enough]]
            around = np.sort(np.concatenate(spans))
            points = self.numbers.decode(self.codes[around])
            for start in range(begin, end, 1024):
                rows = np.arange(start, min(start + 1024, end))
                yield rows, around, self.numbers.decode(self.codes[rows]) @ points.T

    # -- the cache -------------------------------------------------------------------------

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        sizes = np.array(self.numbers.sizes, np.float32)
        return (self.directions, sizes, self.centroids, self.offsets, self.ids, self.depths,
                self.labels, self.scales)  # fmt: skip

    def save(self, path: Path, library: str, extent: Extent) -> None:
        """Write the cache of a library. OSError if that fails; the old file is then left."""
        facts = {"format": FORMAT, "library": library, "learned": self.learned, **asdict(extent)}
        head = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        with writing(path) as stream:
            total = _Checked(stream)
            for array in (head, *self._arrays):
                np.lib.format.write_array(total, np.ascontiguousarray(array), allow_pickle=False)
            total.write(bytes(-total.size % mmap.ALLOCATIONGRANULARITY))
            step = PIECE // self.numbers.width
            for start in range(0, len(self), step):
                total.write(self.codes[start : start + step].tobytes())
            stream.write(total.checksum.to_bytes(4, "little"))

    @classmethod
    def load(cls, path: Path, library: str, dimension: int) -> tuple[Self, Extent] | None:
        """The index and which rows it holds, its codes mapped; None if it is not this library's.

        None, too, for anything but a whole, consistent file: it is then made again.
        """
        try:
            with path.open("rb") as stream:
                if not _is_whole_file(stream):
                    return None
                head = json.loads(_read(stream).tobytes())
                if (head.pop("format"), head.pop("library")) != (FORMAT, library):
                    return None
                arrays = [_read(stream) for _ in range(8)]
                directions, sizes, centroids, offsets, ids, depths, labels, scales = arrays
                numbers = Numbers("int8", len(sizes), tuple(sizes.tolist()))
                start = stream.tell() + -stream.tell() % mmap.ALLOCATIONGRANULARITY
                codes = _mapped(stream, start, (len(ids), numbers.width))
            learned = int(head.pop("learned"))
            index = cls(
                directions, numbers, centroids, offsets, ids, depths, labels, scales, codes, learned
            )
            return (index, Extent(**head)) if index._consistent(dimension) else None
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, MemoryError,
                RecursionError, EOFError):  # fmt: skip
            return None

    def _consistent(self, dimension: int) -> bool:
        """Whether shapes and types fit and every list lies within the rows."""
        n, width = len(self.ids), self.numbers.dimension
        shapes = (
            (
                self.directions,
                (dimension, 0 if width == dimension < WIDTH else width - 1),
                np.float32,
            ),
            (self.centroids, (len(self.offsets) - 1, width), np.float32),
            (self.offsets, (len(self.offsets),), np.int64),
            (self.ids, (n,), np.int64),
            (self.depths, (n,), np.int32),
            (self.labels, (n,), np.int32),
            (self.scales, (n,), np.float32),
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


class _Checked:
    """A stream that is written, with the checksum of what was written."""

    def __init__(self, stream: IO[bytes]):
        self.stream, self.checksum, self.size = stream, 0, 0

    def write(self, data: bytes) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        self.size += len(data)
        return self.stream.write(data)


def _is_whole_file(stream: IO[bytes]) -> bool:
    """Whether the last bytes are the checksum of the others. The stream is then at its beginning."""
    size = stream.seek(0, 2) - 4
    stream.seek(0)
    checksum = 0
    for start in range(0, size, PIECE):
        checksum = zlib.crc32(stream.read(min(PIECE, size - start)), checksum)
    whole = stream.read() == checksum.to_bytes(4, "little")
    stream.seek(0)
    return whole


def _mapped(stream: IO[bytes], start: int, shape: tuple[int, int]) -> np.ndarray:
    """An int8 array in a file. Its memory is the system's, which may take it back."""
    size = shape[0] * shape[1]
    if not size:
        return np.empty(shape, np.int8)
    mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ, offset=start)
    return np.frombuffer(mapped, np.int8).reshape(shape)


def _read(stream: IO[bytes]) -> np.ndarray:
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
