"""The entries of a library in one SQLite file, each with a checksum.

A row's checksum covers everything in the row, its id included, and is salted with the library's
identity. The sum of the checksums of all rows modulo 2^64, the digest, is updated in the transaction
that adds or deletes rows: whoever holds all rows can tell whether one is missing, extra or old. The
facts of the library, its state (last id, number of deletions, digests) and the labels have checksums
of their own. Every row that is read is checked, so damage ends in an error, never in an answer.

Ids begin at 1, leave no gap and are never used again; deleted ones are listed, so that whoever holds
rows can follow. An insert that has returned is on disk (write-ahead log, synced at every commit): it
survives the process, and readers never wait for a writer. A file may come from a stranger: it is
refused unless its tables are exactly these. Vectors come back as unit rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..errors import RhovecError
from ..files import filling
from ..formula import parse
from ..formula.requirements import Requirement
from .backend import Batch, Entry, Facts, Progress, require_dimension

APPLICATION, VERSION = 0x72686F76, 2  # in the file's header
SCHEMA = (
    "CREATE TABLE facts (id INTEGER PRIMARY KEY, identity TEXT, facts TEXT, traces BLOB, "
    "checksum INTEGER)",
    "CREATE TABLE state (id INTEGER PRIMARY KEY, last INTEGER, deletions INTEGER, labels INTEGER, "
    "digest INTEGER, checksum INTEGER)",
    "CREATE TABLE labels (id INTEGER PRIMARY KEY, variables TEXT, tags TEXT, checksum INTEGER)",
    "CREATE TABLE rows (id INTEGER PRIMARY KEY, formula TEXT, requirement TEXT, title TEXT, "
    "source TEXT, depth INTEGER, label INTEGER, checksum INTEGER, vector BLOB)",
    "CREATE TABLE deletions (id INTEGER PRIMARY KEY, entry INTEGER, checksum INTEGER)",
)
COLUMNS = "id, formula, requirement, title, source, depth, label, checksum, vector"
INSERT = f"INSERT INTO rows VALUES ({', '.join('?' * 9)})"
SIDE_FILES = ("-wal", "-shm", "-journal")  # SQLite's, beside the library
PAGE = 16_384  # bytes; several vectors fit
WAIT = 30.0  # seconds for another writer to finish
CHUNK = 4096  # rows read at once
REASONS = {  # words in SQLite's messages, and what to say
    "locked": "another program is writing to it; try again when it has finished",
    "readonly": "cannot be written: it, or its folder, is read-only",
    "full": "cannot be written: the disk is full",
    "disk I/O": "cannot be read or written: the disk reports an error",
    "unable to open": "cannot be opened; are it and its folder yours to read and write?",
    "not a database": "not a rhovec library",
    "closed": "the index was closed; open it again",
}
REPAIR = "restore it from a copy, or build it again"


class State(NamedTuple):
    last: int  # the last id that was given
    deletions: int  # rows deleted so far
    labels: int  # sum of the labels' checksums
    digest: int  # sum of the rows' checksums

    @property
    def size(self) -> int:
        return self.last - self.deletions


class Part(NamedTuple):
    """Some rows: ids, depths and labels (n,), unit vectors (n, D), and the sum of checksums."""

    ids: np.ndarray
    depths: np.ndarray
    labels: np.ndarray
    vectors: np.ndarray
    digest: int


class Label(NamedTuple):
    """A combination of variables and tags that occurs."""

    variables: frozenset[str]
    tags: tuple[str, ...]


class Rows:
    """Rows of a library. path: where others find the file; None while nobody else can."""

    def __init__(self, database: sqlite3.Connection, path: Path | None, name: str):
        self.database = database
        self.path = path
        self.name = name  # in messages
        self.identity, self.facts = self._read_facts()  # identity: of this library among all
        self._numbers = self.facts.numbers
        self._salt = bytes.fromhex(self.identity)
        self._labels: list[Label] = []  # number i + 1 is at i
        self._label_numbers: dict[tuple[str, str], int] = {}  # by their JSON
        self._labels_digest = 0
        self._file = _file_number(path) if path else None
        with self.reading():
            state = self.state()
            if path:
                self._require_whole(path, state)

    @classmethod
    def create(cls, file: Path | str, facts: Facts, name: str) -> Rows:
        """An empty library, in memory or in a file that nobody else knows."""
        with clear_errors(name):
            database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            for pragma in (
                f"page_size={PAGE}", "journal_mode=MEMORY", "synchronous=OFF",
                f"application_id={APPLICATION}", f"user_version={VERSION}",
            ):  # fmt: skip
                database.execute(f"PRAGMA {pragma}")
            for statement in SCHEMA:
                database.execute(statement)
            identity, text = uuid4().hex, facts.to_json()
            values = (identity, text, facts.traces, _facts_checksum(identity, text, facts.traces))
            database.execute("INSERT INTO facts VALUES (1, ?, ?, ?, ?)", values)
            empty = State(0, 0, 0, 0)
            checksum = checksum_of(bytes.fromhex(identity), b"state", empty)
            database.execute("INSERT INTO state VALUES (1, ?, ?, ?, ?, ?)", (*empty, checksum))
            return cls(database, None, name)

    @classmethod
    def open(cls, path: Path) -> Rows:
        require_sqlite(path)
        mode = "mode=rw"
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            # SQLite notes readers and writers in files beside this one. Where it cannot make them,
            # and nobody else has, there is no writer.
            mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
        with clear_errors(str(path)):
            database = sqlite3.connect(
                f"{path.absolute().as_uri()}?{mode}", timeout=WAIT, isolation_level=None,
                uri=True, check_same_thread=False,
            )  # fmt: skip
            try:
                database.execute("PRAGMA trusted_schema=OFF")
                database.execute("PRAGMA cell_size_check=ON")
                application, version = (
                    database.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("application_id", "user_version")
                )
                if (application, version) == (APPLICATION, 1):
                    raise RhovecError(
                        f"{path}: a library of version 1; copy it to a new file of version "
                        f"{VERSION} with `rhovec index upgrade OLD NEW`, or in Python with "
                        "rv.Index.upgrade(old, new)"
                    )
                tables = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master")}
                if (application, version, tables) != (APPLICATION, VERSION, set(SCHEMA)):
                    raise RhovecError(f"{path}: not a rhovec library of version {VERSION}")
                if mode == "mode=rw":
                    database.execute("PRAGMA journal_mode=WAL")
                    database.execute("PRAGMA synchronous=FULL")
                return cls(database, path, str(path))
            except BaseException:
                database.close()
                raise

    def copy(self, path: Path) -> None:
        """Write the rows as they are now to a new file."""
        with new_library(path) as temporary, clear_errors(str(path)):
            other = sqlite3.connect(temporary, isolation_level=None)
            try:
                self.database.backup(other)
                other.execute("PRAGMA journal_mode=DELETE")  # one file, whole
            finally:
                other.close()

    # -- facts and state -------------------------------------------------------------------

    def _read_facts(self) -> tuple[str, Facts]:
        found = self.database.execute("SELECT identity, facts, traces, checksum FROM facts")
        try:
            ((identity, text, traces, checksum),) = found.fetchall()
            if checksum != _facts_checksum(identity, text, traces):
                raise ValueError("checksum")
            return identity, Facts.from_json(text, traces)
        except (ValueError, TypeError, RecursionError):
            raise RhovecError(f"{self.name}: its description is damaged; {REPAIR}") from None

    def state(self) -> State:
        found = self.database.execute("SELECT last, deletions, labels, digest, checksum FROM state")
        try:
            ((*values, checksum),) = found.fetchall()
            if checksum != checksum_of(self._salt, b"state", values):
                raise ValueError("checksum")
        except (ValueError, TypeError):
            raise RhovecError(f"{self.name}: its state is damaged; {REPAIR}") from None
        return State(*values)

    def _set_state(self, state: State) -> None:
        checksum = checksum_of(self._salt, b"state", state)
        query = "UPDATE state SET last = ?, deletions = ?, labels = ?, digest = ?, checksum = ?"
        self.database.execute(query, (*state, checksum))

    def _require_whole(self, path: Path, state: State) -> None:
        """Compare the file's size with what SQLite expects and with what the rows need.

        Pages may also be in the write-ahead log; then reading the rows tells.
        """
        query = "SELECT page_count, page_size FROM pragma_page_count, pragma_page_size"
        pages, page = self.database.execute(query).fetchone()
        log = Path(f"{path}-wal")
        if path.stat().st_size < pages * page and not (log.exists() and log.stat().st_size):
            raise RhovecError(f"{self.name}: the file was cut short; {REPAIR}")
        vector = self._numbers.dtype.itemsize * self._numbers.width
        if not 0 <= vector * state.size + state.deletions <= pages * page:
            raise RhovecError(f"{self.name}: damaged: it has no room for its entries; {REPAIR}")

    # -- writing ---------------------------------------------------------------------------

    def insert(self, batches: Iterator[Batch]) -> range:
        """Add all rows, or none: their ids."""
        first = list(islice(batches, 1))  # made before any other writer has to wait
        with self._writing():
            state = self.state()
            self._read_labels(state)
            begin, digest = state.last + 1, state.digest
            labels, labels_digest = _NewLabels(self._label_numbers), state.labels
            end = begin
            for batch in chain(first, batches):
                require_dimension(batch, self.facts, self.name)
                encoded = self._numbers.encode(batch.vectors)
                rows = []
                for one, vector in zip(batch.requirements, encoded, strict=True):
                    phi, tags = one.formula, _json_of(tuple(sorted(set(one.tags))))
                    label = labels.number(_json_of(phi.variables), tags)
                    row = (end, str(phi), one.id, one.title, one.source, phi.depth, label)
                    data = vector.tobytes()
                    checksum = checksum_of(self._salt, b"row", row, data)
                    rows.append((*row, checksum, data))
                    digest += checksum
                    end += 1
                self.database.executemany(INSERT, rows)
            for (variables, tags_text), number in labels.new.items():
                label_row = (number, variables, tags_text)
                checksum = checksum_of(self._salt, b"label", label_row)
                values = (*label_row, checksum)
                self.database.execute("INSERT INTO labels VALUES (?, ?, ?, ?)", values)
                labels_digest += checksum
            self._set_state(State(end - 1, state.deletions, signed(labels_digest), signed(digest)))
        return range(begin, end)

    def delete(self, ids: Collection[int]) -> None:
        """Remove all of these rows, or none if one does not exist."""
        with self._writing():
            state = self.state()
            deletions, digest = state.deletions, state.digest
            for i in sorted(set(ids)):
                row = None
                if 0 < i <= state.last:
                    query = "SELECT checksum FROM rows WHERE id = ?"
                    row = self.database.execute(query, (i,)).fetchone()
                if row is None:
                    raise RhovecError(f"{self.name} has no entry {i}")
                self.database.execute("DELETE FROM rows WHERE id = ?", (i,))
                deletions += 1
                values = (deletions, i, *row)
                self.database.execute("INSERT INTO deletions VALUES (?, ?, ?)", values)
                digest -= row[0]
            self._set_state(State(state.last, deletions, state.labels, signed(digest)))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: on disk when it ends, or undone."""
        with clear_errors(self.name):
            self.database.execute("BEGIN IMMEDIATE")
            try:
                self._require_same_file()
                yield
                self.database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has undone it already
                    self.database.execute("ROLLBACK")
                raise

    def _require_same_file(self) -> None:
        """Refuse to write to a file that was removed or replaced: the rows would be lost."""
        if self.path and _file_number(self.path) != self._file:
            raise RhovecError(
                f"{self.name}: the file was removed or replaced after it was opened; open it again"
            )

    # -- reading ---------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A read transaction: all that is read inside is of one moment."""
        with clear_errors(self.name):
            if self.database.in_transaction:
                yield
                return
            self.database.execute("BEGIN")
            try:
                self._require_same_file()
                yield
            finally:
                self.database.execute("COMMIT")

    def labels(self) -> list[Label]:
        """All labels; rows refer to number i + 1 at i."""
        self._read_labels(self.state())
        return self._labels

    def _read_labels(self, state: State) -> None:
        """Take in the labels that were added since."""
        if self._labels_digest == state.labels:
            return
        query = "SELECT id, variables, tags, checksum FROM labels WHERE id > ? ORDER BY id"
        for *row, checksum in self.database.execute(query, (len(self._labels),)):
            try:
                if checksum != checksum_of(self._salt, b"label", row):
                    raise ValueError("checksum")
                number, variables, tags = row
                label = Label(frozenset(texts_of(variables)), tuple(texts_of(tags)))
            except (ValueError, TypeError, RecursionError):
                raise RhovecError(f"{self.name}: its tags are damaged; {REPAIR}") from None
            self._labels.append(label)
            self._label_numbers[variables, tags] = number
            self._labels_digest = signed(self._labels_digest + checksum)
        if self._labels_digest != state.labels:
            raise RhovecError(f"{self.name}: its tags are damaged; {REPAIR}")

    def parts(self, begin: int, last: int) -> Iterator[Part]:
        """The rows with begin < id <= last, some at a time, checked."""
        query = f"SELECT {COLUMNS} FROM rows WHERE id > ? AND id <= ? ORDER BY id"
        cursor = self.database.execute(query, (begin, last))
        while found := cursor.fetchmany(CHUNK):
            digest = sum(map(self._checked, found))
            ids, *_, depths, labels, _, blobs = zip(*found, strict=True)
            try:
                numbers = np.array([depths, labels], np.int32)
            except (OverflowError, TypeError, ValueError):
                raise self._damaged(ids) from None
            yield Part(
                np.array(ids, np.int64), numbers[0], numbers[1], self._decoded(ids, blobs), digest
            )

    def vectors(self, ids: np.ndarray) -> np.ndarray:
        """Unit vectors (m, D) of the ids (m,), all of which must be there."""
        vectors = np.empty((len(ids), self.facts.dimension), np.float32)
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK].tolist()
            found = self._select(np.array(some))
            vectors[start : start + CHUNK] = self._decoded(some, [found[i][-1] for i in some])
        return vectors

    def entries(self, ids: np.ndarray) -> list[Entry]:
        """The entries with these ids (m,), all of which must be there."""
        found, labels, entries = self._select(ids), self._labels, []
        if any(isinstance(row[6], int) and row[6] > len(labels) for row in found.values()):
            self.labels()  # takes in those that were added since
        for i in ids.tolist():
            _, text, name, title, source, _, label, *_ = found[i]
            try:
                if not 0 < label <= len(labels):
                    raise ValueError("label")
                tags = labels[label - 1].tags
                entries.append(Entry(i, Requirement(parse(text), name, title, tags, "", source)))
            except (ValueError, TypeError, RecursionError):
                raise self._damaged([i]) from None
        return entries

    def deleted(self, begin: int) -> tuple[np.ndarray, list[int]]:
        """Ids (m,) and checksums of the rows that were deleted after the first `begin`."""
        query = "SELECT entry, checksum FROM deletions WHERE id > ?"
        found = self.database.execute(query, (begin,)).fetchall()
        if not all(type(number) is int for row in found for number in row):
            raise RhovecError(f"{self.name}: its list of deletions is damaged; {REPAIR}")
        return np.array([i for i, _ in found], np.int64), [checksum for _, checksum in found]

    def verify(self, progress: Progress | None = None) -> None:
        """Read everything and compare it with its checksums."""
        with self.reading():
            self._read_facts()
            state = self.state()
            self._read_labels(state)
            for (message,) in self.database.execute("PRAGMA integrity_check"):
                if message != "ok":
                    raise RhovecError(f"{self.name}: damaged: {message}; {REPAIR}")
            digest = done = 0
            for part in self.parts(0, state.last):
                digest += part.digest
                done += len(part.ids)
                if progress:
                    progress(done / state.size)
            gone, _ = self.deleted(0)
            if (done, len(gone), signed(digest)) != (state.size, state.deletions, state.digest):
                raise self.incomplete()

    def _select(self, ids: np.ndarray) -> dict[int, tuple[Any, ...]]:
        """Rows by id, checked."""
        found = {}
        for start in range(0, len(ids), CHUNK):
            numbers = ",".join(map(str, np.sort(ids[start : start + CHUNK]).tolist()))
            for row in self.database.execute(f"SELECT {COLUMNS} FROM rows WHERE id IN ({numbers})"):
                self._checked(row)
                found[row[0]] = row
        if len(found) < len(ids):
            raise self.incomplete()
        return found

    def _checked(self, row: tuple[Any, ...]) -> int:
        """The checksum of a row, if it is right."""
        *fields, checksum, vector = row
        try:
            if checksum == checksum_of(self._salt, b"row", fields, vector):
                return int(checksum)
        except (TypeError, ValueError):
            pass  # a value of a type that was never written
        raise self._damaged(fields[:1])

    def _decoded(self, ids: Sequence[int], blobs: Sequence[bytes]) -> np.ndarray:
        kind, width = self._numbers.dtype, self._numbers.width
        if not all(len(blob) == kind.itemsize * width for blob in blobs):
            raise self._damaged(ids)
        rows = np.frombuffer(b"".join(blobs), kind).reshape(len(blobs), width)
        vectors = self._numbers.decode(rows)
        if not np.isfinite(vectors).all():
            raise self._damaged(ids)
        return vectors

    def _damaged(self, ids: Sequence[int]) -> RhovecError:
        """The error that one of these rows is not as it was written."""
        span = f"entry {ids[0]}" if len(ids) == 1 else f"an entry from {ids[0]} to {ids[-1]}"
        return RhovecError(f"{self.name}: {span} is damaged; {REPAIR}")

    def incomplete(self) -> RhovecError:
        return RhovecError(f"{self.name}: damaged: entries are missing or not its own; {REPAIR}")


class _NewLabels:
    """Numbers of labels, the known ones' and new ones that follow."""

    def __init__(self, known: dict[tuple[str, str], int]):
        self.known = known
        self.new: dict[tuple[str, str], int] = {}

    def number(self, variables: str, tags: str) -> int:
        pair = (variables, tags)
        if (number := self.known.get(pair)) is not None:
            return number
        return self.new.setdefault(pair, len(self.known) + len(self.new) + 1)


def checksum_of(salt: bytes, kind: bytes, fields: Sequence[Any], data: bytes = b"") -> int:
    """64 bits of SHA-256, as SQLite's signed integers. JSON tells types and ends of fields apart."""
    digest = hashlib.sha256(salt + kind + json.dumps(fields).encode() + data).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


@lru_cache(maxsize=4096)  # a library has few combinations of names
def _json_of(names: tuple[str, ...]) -> str:
    return json.dumps(names)


def texts_of(text: str) -> list[str]:
    """A list of texts, from JSON."""
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("no list of texts")
    return names


def _facts_checksum(identity: str, text: str, traces: bytes | None) -> int:
    return checksum_of(b"", b"facts", (identity, text, traces is None), traces or b"")


def signed(number: int) -> int:
    """Modulo 2^64, from -2^63 on."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _file_number(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def require_sqlite(path: Path) -> None:
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
    except FileNotFoundError:
        raise RhovecError(f"{path}: there is no library; build one first") from None
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    if head != b"SQLite format 3\0":
        raise RhovecError(f"{path}: not a rhovec library")


@contextmanager
def new_library(path: Path) -> Iterator[Path]:
    """Yield a temporary path; its file becomes a library when it is complete, if the name is free.

    A log of an earlier library of this name would be replayed into the new one. It is removed once
    the name is ours, and no program can open a library there. One that still has the earlier file
    open keeps what it has, and is told so when it uses it next.
    """

    def remove_side_files() -> None:
        for suffix in SIDE_FILES:
            Path(f"{path}{suffix}").unlink(missing_ok=True)

    try:
        with filling(path, new=True, before=remove_side_files) as temporary:
            yield temporary
    except FileExistsError:
        raise RhovecError(
            f"{path}: there is a file of this name already; add to it, or remove it first"
        ) from None
    except OSError as error:
        raise RhovecError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def clear_errors(name: str) -> Iterator[None]:
    """Turn errors of SQLite into ours, in words that help."""
    try:
        yield
    except sqlite3.Error as error:
        reasons = (reason for word, reason in REASONS.items() if word in str(error))
        told = next(reasons, f"damaged: {error}; {REPAIR}")
        raise RhovecError(f"{name}: {told}") from error
