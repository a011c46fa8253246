"""The entries of a library in one SQLite file: formula, depth, variables, tags and vector.

Ids begin at 1, leave no gap and are never used again, so whatever was made from the rows up to an id
stays right. An insert that has returned is on disk (write-ahead log, synced at every commit): it
outlives the process, and readers never wait for a writer. A file may come from a stranger: it is
refused unless its tables are exactly these, and what is read from it is checked. Vectors are stored
as 16-bit floats and come back as unit rows.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from ..errors import RhovecError
from ..formula import Formula, parse

APPLICATION, VERSION = 0x72686F76, 1  # in the file's header
SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value)",
    "CREATE TABLE labels (id INTEGER PRIMARY KEY, variables TEXT, tags TEXT, "
    "UNIQUE (variables, tags))",
    "CREATE TABLE rows (id INTEGER PRIMARY KEY AUTOINCREMENT, formula TEXT, depth INTEGER, "
    "label INTEGER)",
    "CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB)",
)
SEQUENCE = "CREATE TABLE sqlite_sequence(name,seq)"  # SQLite's own, for AUTOINCREMENT
PAGE = 16_384  # bytes; several vectors fit
WAIT = 30.0  # seconds for another writer to finish
CHUNK = 4096  # rows read at once
REASONS = {  # words in SQLite's messages, and what to say
    "locked": "another program is writing to it; try again when it has finished",
    "readonly": "cannot be written: it, or its folder, is read-only",
    "full": "cannot be written: the disk is full",
    "disk I/O": "cannot be read or written: the disk reports an error",
    "unable to open": "cannot be opened; are it and its folder yours to read and write?",
    "not a database": "no rhovec library",
    "closed": "the index was closed; open it again",
}

Chunk = tuple[list[Formula], list[list[str]], np.ndarray]  # formulae, tags of each, vectors (n, D)
Part = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # ids, depths, labels, vectors (n, D)


class Rows:
    def __init__(self, database: sqlite3.Connection, path: Path | None):
        self.database = database
        self.path = path
        self.name = "the library" if path is None else str(path)
        self.facts: dict[str, Any] = dict(database.execute("SELECT name, value FROM facts"))
        self.identity = str(self.facts["identity"])  # of this library among all
        self.dimension = int(self.facts["dimension"])
        room = database.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        )
        if not 0 <= 2 * self.dimension * len(self) <= int(room.fetchone()[0]):
            raise ValueError("more vectors than the file has room for")

    @classmethod
    def create(cls, file: Path | str, path: Path | None, facts: dict[str, Any]) -> Rows:
        """No rows yet, in a file that nobody else knows; `path` is what it will be called."""
        facts = facts | {"identity": uuid4().hex, "deleted": 0}
        with clear_errors(path):
            database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            for pragma in (
                f"page_size={PAGE}", "journal_mode=MEMORY", "synchronous=OFF",
                f"application_id={APPLICATION}", f"user_version={VERSION}",
            ):  # fmt: skip
                database.execute(f"PRAGMA {pragma}")
            for statement in SCHEMA:
                database.execute(statement)
            database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            return cls(database, path)

    @classmethod
    def open(cls, path: Path) -> Rows:
        _require_sqlite(path)
        mode = "mode=rw"
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            # SQLite notes readers and writers in files beside this one. Where it cannot make them,
            # and nobody else has, there is no writer.
            mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
        with clear_errors(path):
            database = sqlite3.connect(
                f"{path.absolute().as_uri()}?{mode}", timeout=WAIT, isolation_level=None,
                uri=True, check_same_thread=False,
            )  # fmt: skip
            try:
                database.execute("PRAGMA trusted_schema=OFF")
                head = [
                    database.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("application_id", "user_version")
                ]
                tables = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master")}
                if head != [APPLICATION, VERSION] or tables != {*SCHEMA, SEQUENCE, None}:
                    raise RhovecError(f"{path}: no rhovec library of version {VERSION}")
                if mode == "mode=rw":
                    database.execute("PRAGMA journal_mode=WAL")
                    database.execute("PRAGMA synchronous=FULL")
                return cls(database, path)
            except BaseException:
                database.close()
                raise

    def copy(self, path: Path) -> None:
        """The rows as they are now, in a new file."""
        with appearing(path) as temporary, clear_errors(path):
            other = sqlite3.connect(temporary, isolation_level=None)
            try:
                self.database.backup(other)
                other.execute("PRAGMA journal_mode=DELETE")  # one file, whole
            finally:
                other.close()

    # -- writing ---------------------------------------------------------------------------

    def insert(self, chunks: Iterator[Chunk]) -> range:
        """Add all rows, or none: their ids."""
        first = next(chunks)  # it was made before any other writer has to wait
        with self._writing():
            begin = end = self.last() + 1
            labels: dict[tuple[str, str], int] = {}
            for formulae, tags, vectors in chain([first], chunks):
                if vectors.shape[1] != self.dimension:
                    raise RhovecError(
                        f"{self.name} has vectors of {self.dimension} numbers, not of "
                        f"{vectors.shape[1]}"
                    )
                ids = range(end, end + len(formulae))
                end = ids.stop
                pairs = [
                    (json.dumps(phi.variables), json.dumps(sorted(set(each))))
                    for phi, each in zip(formulae, tags, strict=True)
                ]
                labels |= {pair: self._label(pair) for pair in set(pairs) - set(labels)}
                self.database.executemany(
                    "INSERT INTO rows VALUES (?, ?, ?, ?)",
                    (
                        (i, str(phi), phi.depth, labels[pair])
                        for i, phi, pair in zip(ids, formulae, pairs, strict=True)
                    ),
                )
                self.database.executemany(
                    "INSERT INTO vectors VALUES (?, ?)",
                    ((i, v.tobytes()) for i, v in zip(ids, vectors.astype("<f2"), strict=True)),
                )
        return range(begin, end)

    def _label(self, pair: tuple[str, str]) -> int:
        self.database.execute("INSERT OR IGNORE INTO labels (variables, tags) VALUES (?, ?)", pair)
        query = "SELECT id FROM labels WHERE variables = ? AND tags = ?"
        return int(self.database.execute(query, pair).fetchone()[0])

    def delete(self, ids: Iterable[int]) -> None:
        """Remove all of these rows, or none if one is not there."""
        wanted = sorted(set(ids))
        with self._writing():
            for i in wanted:
                known = 0 < i <= self.last()
                if not (
                    known and self.database.execute("DELETE FROM rows WHERE id = ?", (i,)).rowcount
                ):
                    raise RhovecError(f"{self.name} has no entry {i}")
                self.database.execute("DELETE FROM vectors WHERE id = ?", (i,))
            query = "UPDATE facts SET value = value + ? WHERE name = 'deleted'"
            self.database.execute(query, (len(wanted),))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: on disk when it ends, or undone."""
        with clear_errors(self.path):
            self.database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has undone it already
                    self.database.execute("ROLLBACK")
                raise

    # -- reading ---------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read inside is of one moment, whatever others write meanwhile."""
        with clear_errors(self.path):
            if self.database.in_transaction:
                yield
                return
            self.database.execute("BEGIN")
            try:
                yield
            finally:
                self.database.execute("COMMIT")

    def __len__(self) -> int:
        query = "SELECT value FROM facts WHERE name = 'deleted'"
        return self.last() - int(self.database.execute(query).fetchone()[0])

    def last(self) -> int:
        """The last id that was given."""
        row = self.database.execute("SELECT seq FROM sqlite_sequence").fetchone()
        return int(row[0]) if row else 0

    def ids(self) -> np.ndarray:
        """(n,) int64: the ids of all rows."""
        found = self.database.execute("SELECT id FROM rows")
        return np.fromiter((i for (i,) in found), np.int64)

    def labels(self) -> Iterator[tuple[int, set[str], set[str]]]:
        """(label, variables, tags): each combination that occurs has one label."""
        for i, variables, tags in self.database.execute("SELECT * FROM labels"):
            try:
                yield i, set(json.loads(variables)), set(json.loads(tags))
            except (ValueError, TypeError, RecursionError):
                raise RhovecError(f"{self.name}: its tags are damaged; build it again") from None

    def parts(self, begin: int, last: int) -> Iterator[Part]:
        """The rows with begin < id <= last, some at a time."""
        cursor = self.database.execute(
            "SELECT rows.id, depth, label, vector FROM rows JOIN vectors USING (id) "
            "WHERE rows.id > ? AND rows.id <= ? ORDER BY rows.id",
            (begin, last),
        )
        while found := cursor.fetchmany(CHUNK):
            ids, depths, labels, blobs = zip(*found, strict=True)
            try:
                numbers = np.array([depths, labels], np.int32)
            except (ValueError, TypeError, OverflowError):
                raise self.damaged(ids) from None
            yield np.array(ids, np.int64), numbers[0], numbers[1], self._decoded(ids, blobs)

    def vectors(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the ids (m,) that are still there, in their order, and their vectors."""
        found = dict(self._select("SELECT id, vector FROM vectors", "id", ids))
        kept = [i for i in ids.tolist() if i in found]
        return np.array(kept, np.int64), self._decoded(kept, [found[i] for i in kept])

    def entries(self, ids: np.ndarray) -> dict[int, tuple[Formula, tuple[str, ...]]]:
        """Formula and tags of those that are still there."""
        query = "SELECT rows.id, formula, tags FROM rows JOIN labels ON labels.id = label"
        found = {}
        for i, text, tags in self._select(query, "rows.id", ids):
            try:
                found[i] = parse(text), tuple(json.loads(tags))
            except (ValueError, TypeError, RecursionError):
                raise self.damaged([i]) from None
        return found

    def _select(self, query: str, column: str, ids: np.ndarray) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(ids), CHUNK):
            numbers = ",".join(map(str, np.sort(ids[start : start + CHUNK]).tolist()))
            yield from self.database.execute(f"{query} WHERE {column} IN ({numbers})")

    def _decoded(self, ids: Sequence[int], blobs: Sequence[bytes]) -> np.ndarray:
        size = 2 * self.dimension
        if not all(isinstance(blob, bytes) and len(blob) == size for blob in blobs):
            raise self.damaged(ids)
        halves = np.frombuffer(b"".join(blobs), "<f2").reshape(len(blobs), self.dimension)
        vectors = unit_rows(halves.astype(np.float32))
        if not np.isfinite(vectors).all():
            raise self.damaged(ids)
        return vectors

    def damaged(self, ids: Sequence[int]) -> RhovecError:
        """The error that one of these rows is not as it was written."""
        span = f"entry {ids[0]}" if len(ids) == 1 else f"an entry from {ids[0]} to {ids[-1]}"
        return RhovecError(f"{self.name}: {span} is damaged; build the library again")


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Divide the rows (n, D) by their norms, in place; a zero row becomes NaN."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    with np.errstate(invalid="ignore"):
        vectors /= norms[:, None]
    return vectors


def _require_sqlite(path: Path) -> None:
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
    except FileNotFoundError:
        raise RhovecError(f"{path}: there is no library; build one first") from None
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    if head != b"SQLite format 3\0":
        raise RhovecError(f"{path}: no rhovec library")


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A temporary name for a new file, which gets its own once it is complete and on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists():
            raise RhovecError(f"{path}: is there already; add to it, or remove it first")
        try:
            temporary.open("xb").close()
            yield temporary
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            temporary.rename(path)
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        finally:
            with suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise RhovecError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def clear_errors(path: Path | None) -> Iterator[None]:
    """Errors of SQLite as ours, in words that help."""
    try:
        yield
    except sqlite3.Error as error:
        reasons = (reason for word, reason in REASONS.items() if word in str(error))
        told = next(reasons, f"damaged: {error}")
        raise RhovecError(f"{path or 'the library'}: {told}") from error
