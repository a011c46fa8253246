"""A library in PostgreSQL with pgvector, which a team shares: `ServerBackend`.

    index = rv.Index.open("postgresql://db.example.org/team", library="brakes")

A library has a table of entries with full and compact vectors (compact.py). A search takes candidates
from a graph over the compact vectors (HNSW, 16-bit floats) and orders them by the full ones, in one
statement. If few entries fit a filter, all of those are compared; if many fit, the graph is followed
until there are enough. Names, tags and formulae are only ever parameters of statements.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, LiteralString, NamedTuple
from uuid import uuid4

import numpy as np

from ..errors import RhovecError
from ..formula import parse
from ..formula.requirements import Requirement
from .backend import Backend, Batch, Entry, Facts, Filter, Found, Progress, require_dimension
from .compact import compacted, principal_directions
from .database import (
    LOCK,
    Database,
    HalfVector,
    Row,
    Vector,
    entries_table,
    grant,
    prepare,
    require_current,
    sql,
)
from .file import FileBackend
from .numbers import unit_rows
from .rows import REPAIR, Part, checksum_of, signed

MAX_DIMENSION = 16_000  # numbers per vector, pgvector's limit
COMPACT, MAX_WHOLE = 96, 128  # numbers per compact vector; vectors up to this length are their own
CANDIDATES, PER_HIT = 200, 4  # entries taken from the graph: at least, and per hit asked for
MAX_HITS = 1 << 60  # more than a library has, and a number that PostgreSQL reads
LINKS, BUILD_LIST = 24, 128  # of the graph: pgvector's m and ef_construction
SEARCH_LIST, MAX_LIST = 500, 1000  # entries that a search in the graph keeps; pgvector's limit
SCANNED, SCAN_MEMORY = 200_000, 16  # entries followed until enough fit, in this many work_mem
LEARNED = 20_000  # vectors from which directions are learned
GROWN = 4  # a library that has grown by this factor learns new ones
GRAPH_BYTES, MIN_MEMORY, MAX_MEMORY = 1600, 64 << 20, 4 << 30  # to build a graph: per entry, in all
CHUNK = 4096  # entries read at once
MAX_ENTRIES = 10_000  # entries that are held after they were found, about 20 MB
ROUNDING = 2e-3  # error of a compact vector's 16-bit floats
TYPES: dict[str, tuple[type[Vector | HalfVector], LiteralString, str]] = {
    "float32": (Vector, "vector", ">f4"), "float16": (HalfVector, "halfvec", ">f2"),
}  # fmt: skip
MAX_COMPARED = 50_000  # if no more entries fit a filter, all of them are compared
GRAPH: LiteralString = "compact <#> %(compact)s"
SCAN: LiteralString = "(compact <#> %(compact)s) + 0"  # which the graph does not answer
COLUMNS: LiteralString = "id, formula, requirement, title, source, depth, variables, tags"


class _Library(NamedTuple):
    """What never changes about a library."""

    id: int
    name: str
    identity: str
    facts: Facts


class ServerBackend(Backend):
    """A library in PostgreSQL. After a lost connection it connects again."""

    def __init__(self, database: Database, library: _Library):
        self._database, self._library = database, library
        self.facts = library.facts
        self.name = f"library {library.name!r} in {database.name}"
        self._table = entries_table(library.id)
        self._salt = bytes.fromhex(library.identity)
        self._kind, self._type, self._floats = TYPES[self.facts.stored]
        self._directions = np.empty((0, 0), np.float32)
        self._learned = -1  # entries that the library had when it learned its directions
        self._client, self._changes = uuid4().hex, 0  # changes that were confirmed
        self._entries: dict[int, Entry] = {}  # by id; an entry never changes, and no id comes again

    @classmethod
    def open(cls, url: str, library: str) -> ServerBackend:
        database = Database(url)
        try:
            require_current(database)
            return cls(database, _find(database, library))
        except BaseException:
            database.close()
            raise

    @classmethod
    def create(
        cls, url: str, library: str, facts: Facts, batches: Iterator[Batch]
    ) -> ServerBackend:
        """A new library, which appears with all its entries."""
        if facts.dimension > MAX_DIMENSION:
            raise RhovecError(
                f"pgvector holds vectors of at most {MAX_DIMENSION:,} numbers, not "
                f"{facts.dimension:,}; take fewer traces, or a file"
            )
        if facts.stored not in TYPES:
            raise RhovecError(
                f'on a server, stored must be "float32" or "float16", not {facts.stored!r}'
            )
        database = Database(url)
        try:
            prepare(database)
            first = list(islice(batches, -(-LEARNED // CHUNK)))
            sample = np.concatenate([batch.vectors for batch in first])[:LEARNED]
            directions, identity = _learned_from(sample.astype(np.float32)), uuid4().hex

            def work() -> ServerBackend:
                backend = cls(database, _insert(database, library, identity, facts, directions))
                backend._set_directions(directions, 0)
                backend._create_table()
                ids, _ = backend._insert(chain(first, batches))
                backend._create_graph(len(ids))
                database.rows(backend._sql("CREATE INDEX ON {} USING gin (variables, tags)"))
                backend._set_learned(directions, len(ids))
                grant(database, backend._library.id)
                database.mark(f"build {identity}", backend._library.id, ids[0])
                return backend

            return database.write(work, lambda _: cls(database, _find(database, library)))
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        self._database.close()

    # -- changing --------------------------------------------------------------------------

    def add(self, batches: Iterator[Batch]) -> Sequence[int]:
        first = list(islice(batches, 1))  # made before the transaction begins
        grown = False

        def work() -> list[int]:
            nonlocal grown
            self._lock("SELECT pg_advisory_xact_lock_shared(%s, %s)")
            self._begin()
            ids, content = self._insert(chain(first, batches))
            token = f"add {self._client} {self._changes} {content}"
            self._database.mark(token, self._library.id, ids[0])
            grown = self._has_grown(GROWN) and self._is_owner()
            return ids

        ids = self._database.write(work, self._ids_of)
        self._changes += 1
        if grown:
            self.flush()
        return ids

    def _ids_of(self, token: str) -> list[int]:
        """What an add returned that was made before."""
        query = (
            "SELECT id FROM {} WHERE added = (SELECT first FROM rhovec.changes WHERE token = %s) "
            "ORDER BY id"
        )
        return [i for (i,) in self._database.rows(self._sql(query), (token,))]

    def _insert(self, batches: Iterator[Batch]) -> tuple[list[int], str]:
        """Add entries: their ids, and a digest of what they hold."""
        database, digest = self._database, 0
        ids: list[int] = []
        content = hashlib.sha256()
        copy = self._sql(
            f"COPY {{}} ({COLUMNS}, added, checksum, compact, vector) FROM STDIN (FORMAT BINARY)"
        )
        types: list[str | int] = [
            "int8", *["text"] * 4, "int4", "text[]", "text[]", "int8", "int8",
            database.types["halfvec"], database.types[self._type],
        ]  # fmt: skip
        for batch in batches:
            count = len(batch.requirements)
            require_dimension(batch, self.facts, self.name)
            query = "SELECT nextval(%s::regclass) FROM generate_series(1, %s)"
            sequence = f"rhovec.entries_{self._library.id}_ids"
            new = [i for (i,) in database.rows(query, (sequence, count))]
            ids += new
            vectors = batch.vectors.astype(np.float32)
            rows = []
            for i, one, compact, vector in zip(
                new, batch.requirements, _packed(self._compact(vectors), ">f2"),
                _packed(vectors, self._floats), strict=True,
            ):  # fmt: skip
                phi = one.formula
                fields = (i, str(phi), one.id, one.title, one.source, phi.depth,
                          list(phi.variables), sorted(set(one.tags)))  # fmt: skip
                checksum = checksum_of(self._salt, b"entry", fields, vector)
                content.update(repr(fields[1:]).encode() + vector)
                digest += checksum
                rows.append((*fields, ids[0], checksum, HalfVector(compact), self._kind(vector)))
            database.copy(copy, types, rows)
        self._change_size(len(ids), digest)
        return ids, content.hexdigest()

    def delete(self, ids: Collection[int]) -> None:
        numbers = sorted(set(ids))
        content = hashlib.sha256(repr(numbers).encode()).hexdigest()

        def work() -> None:
            self._lock("SELECT pg_advisory_xact_lock_shared(%s, %s)")
            self._begin()
            token = f"delete {self._client} {self._changes} {content}"
            self._database.mark(token, self._library.id)
            query = "DELETE FROM {} WHERE id = ANY(%s::numeric[]) RETURNING id, checksum"
            found: dict[int, int] = dict(self._database.rows(self._sql(query), (numbers,)))
            if missing := set(numbers) - set(found):
                raise RhovecError(f"{self.name} has no entry {min(missing)}")
            self._change_size(-len(found), -sum(found.values()))

        self._database.write(work, lambda _: None)
        self._changes += 1

    def _change_size(self, entries: int, digest: int) -> None:
        """At the end of a transaction: from here on other writers wait.

        The lock is the weakest that keeps them out: tokens refer to this row and share its key.
        """
        query = "SELECT size, digest FROM rhovec.libraries WHERE id = %s FOR NO KEY UPDATE"
        ((size, old),) = self._database.rows(query, (self._library.id,))
        query = "UPDATE rhovec.libraries SET size = %s, digest = %s WHERE id = %s"
        self._database.rows(query, (size + entries, signed(old + digest), self._library.id))

    # -- searching -------------------------------------------------------------------------

    def count(self) -> int:
        query = "SELECT size FROM rhovec.libraries WHERE id = %s AND identity = %s"
        values = (self._library.id, self._library.identity)
        found = self._database.read(lambda: self._database.rows(query, values))
        if not found:
            raise self._removed()
        return int(found[0][0])

    def search(self, points: np.ndarray, k: int, chosen: Filter) -> list[list[Found]]:
        k = min(k, MAX_HITS)
        many = max(CANDIDATES, PER_HIT * k)

        def work() -> list[list[Found]]:
            self._begin(many)
            fitting, values = _condition(chosen)
            orders = [GRAPH, SCAN]
            if fitting != "true" and self._estimate(fitting, values) <= MAX_COMPARED:
                orders = [SCAN]
            values |= {"many": many, "k": k}
            return [
                self._nearest(
                    fitting, orders, values | {"point": self._kind(point), "compact": near}
                )
                for point, near in self._encoded(points)
            ]

        return self._database.read(work)

    def _encoded(self, points: np.ndarray) -> Iterator[tuple[bytes, HalfVector]]:
        """Points as the table has them, full and compact."""
        compact = map(HalfVector, _packed(self._compact(points), ">f2"))
        return zip(_packed(points, self._floats), compact, strict=True)

    def _estimate(self, fitting: LiteralString, values: dict[str, Any]) -> int:
        """How many entries fit, by the planner's statistics."""
        query = self._sql(f"EXPLAIN (FORMAT JSON) SELECT FROM {{}} WHERE {fitting}")
        ((plans,),) = self._database.rows(query, values)
        return int(plans[0]["Plan"]["Plan Rows"])

    def _nearest(
        self, fitting: LiteralString, orders: list[LiteralString], values: dict[str, Any]
    ) -> list[Found]:
        found: list[Row] = []
        for order in orders:
            query = (  # candidates by their places: sorting whole rows would take a third of the time
                f"SELECT count(*) OVER (), 1 - (vector <=> %(point)s) AS product, {COLUMNS} FROM {{0}} "
                f"WHERE ctid = ANY(ARRAY(SELECT ctid FROM {{0}} WHERE {fitting} ORDER BY {order} "
                "LIMIT %(many)s)) ORDER BY product DESC, id LIMIT %(k)s"
            )
            found = self._database.rows(self._sql(query), values)
            if found and found[0][0] >= values["many"]:
                break
        return [(self._entry(row), float(product)) for _, product, *row in found]

    def _entry(self, row: Sequence[Any]) -> Entry:
        i, text, name, title, source, _, _, tags = row
        if i not in self._entries:
            if len(self._entries) >= MAX_ENTRIES:
                self._entries = {}
            try:
                one = Requirement(parse(text), name, title, tuple(tags), "", source)
            except (ValueError, TypeError, RecursionError):
                raise self._damaged(i) from None
            self._entries[i] = Entry(i, one)
        return self._entries[i]

    def neighbours(
        self, lowest: float, done: Collection[int], progress: Progress | None = None
    ) -> Iterator[list[Found]]:
        """As a file does it: compact vectors of all entries come here, and are compared in blocks."""
        from .coarse import Coarse, n_sampled, near_groups

        with self._database.reading_long():
            self._begin()
            size = self._size()
            if not size:
                return
            coarse = Coarse.learn(self._sample(n_sampled(size)), size).extended(self._parts())
            alive = np.ones(len(coarse), bool)
            yield from near_groups(coarse, alive, self, lowest, done, progress)

    def vectors(self, ids: np.ndarray) -> np.ndarray:
        """Unit vectors (m, D) of the ids (m,), in the current transaction."""
        query = "SELECT id, vector FROM {} WHERE id = ANY(%s)"
        found: dict[int, bytes] = dict(self._database.rows(self._sql(query), (ids.tolist(),)))
        return self._unit([found[i] for i in ids.tolist()])

    def entries(self, ids: np.ndarray) -> list[Entry]:
        """The entries with these ids (m,), in the current transaction."""
        query = f"SELECT {COLUMNS} FROM {{}} WHERE id = ANY(%s)"
        found = {row[0]: row for row in self._database.rows(self._sql(query), (ids.tolist(),))}
        return [self._entry(found[i]) for i in ids.tolist()]

    # -- reading everything ----------------------------------------------------------------

    def batches(self) -> Iterator[Batch]:
        with self._database.reading_long():
            self._begin()
            for rows in self._stream(f"{COLUMNS}, vector"):
                entries = [self._entry(row[:-1]).requirement for row in rows]
                yield Batch(entries, self._unit([row[-1] for row in rows]))

    def copy(self, path: Path) -> None:
        """Write the library to a new file. Entries are numbered anew, without gaps."""
        FileBackend.create(path, self.facts, self.batches()).close()

    def verify(self, progress: Progress | None = None) -> None:
        """Read everything and compare it with its checksums."""
        with self._database.reading_long():
            self._begin()
            query = "SELECT size, digest FROM rhovec.libraries WHERE id = %s"
            ((size, expected),) = self._database.rows(query, (self._library.id,))
            digest = done = 0
            for rows in self._stream(f"{COLUMNS}, checksum, compact, vector"):
                for *fields, checksum, _, vector in rows:
                    if checksum != checksum_of(self._salt, b"entry", fields, vector):
                        raise self._damaged(fields[0])
                    digest += checksum
                held = _unpacked([row[-2] for row in rows], ">f2")
                expected_ones = self._compact(self._unit([row[-1] for row in rows]))
                wrong = abs(held - expected_ones).max(1) > ROUNDING
                if wrong.any():
                    raise self._damaged(rows[int(wrong.argmax())][0])
                done += len(rows)
                if progress:
                    progress(done / size)
            if (done, signed(digest)) != (size, expected):
                raise RhovecError(f"{self.name}: entries are missing or not its own; {REPAIR}")

    def _stream(self, columns: LiteralString) -> Iterator[list[Row]]:
        query = self._sql(f"SELECT {columns} FROM {{}} ORDER BY id")
        return self._database.stream(query, CHUNK)

    def _parts(self, percent: float = 100) -> Iterator[Part]:
        """Entries for an approximate index: all, or a random share that is always the same."""
        some = f" TABLESAMPLE BERNOULLI ({float(percent)}) REPEATABLE (0)" if percent < 100 else ""
        query = sql.SQL("SELECT id, depth, vector FROM {}{}").format(self._table, sql.SQL(some))
        for rows in self._database.stream(query, CHUNK):
            ids, depths, blobs = zip(*rows, strict=True)
            labels = np.zeros(len(ids), np.int32)
            yield Part(np.array(ids), np.array(depths, np.int32), labels, self._unit(blobs), 0)

    def _sample(self, count: int) -> np.ndarray:
        """About `count` of the vectors, or all if there are fewer."""
        percent = 100 * count / max(1, self._size())
        return np.concatenate([part.vectors for part in self._parts(percent)])

    # -- compact vectors and the graph -----------------------------------------------------

    def flush(self) -> None:
        """Learn new directions if the library has grown, and build the graph over them.

        Searches wait meanwhile. Only the library's owner may do this.
        """
        self._database.ping()
        try:
            with self._database.writing():
                self._lock("SELECT pg_advisory_xact_lock(%s, %s)")
                self._begin()
                if self._has_grown(2):
                    self._renew()
        except BaseException:
            self._learned = -1  # to be read again
            raise

    def _renew(self) -> None:
        database, size = self._database, self._size()
        directions = _learned_from(self._sample(LEARNED))
        self._set_directions(directions, size)
        database.rows("CREATE TEMPORARY TABLE renewed (id bigint, compact halfvec) ON COMMIT DROP")
        copy = sql.SQL("COPY pg_temp.renewed FROM STDIN (FORMAT BINARY)").format()
        for part in self._parts():
            packed = _packed(self._compact(part.vectors), ">f2")
            rows = list(zip(part.ids.tolist(), map(HalfVector, packed), strict=True))
            database.copy(copy, ["int8", database.types["halfvec"]], rows)
        graph = sql.Identifier("rhovec", f"entries_{self._library.id}_graph")
        database.rows(sql.SQL("DROP INDEX {}").format(graph))
        database.rows(
            self._sql(
                "UPDATE {} AS old SET compact = new.compact FROM pg_temp.renewed AS new "
                "WHERE new.id = old.id"
            )
        )
        self._create_graph(size)
        self._set_learned(directions, size)

    def _begin(self, many: int = CANDIDATES) -> None:
        """At the start of a transaction: settings, and directions if they are new."""
        settings = {
            "search_path": self._database.path, "hnsw.iterative_scan": "strict_order",
            "hnsw.ef_search": min(max(many, SEARCH_LIST), MAX_LIST), "hnsw.max_scan_tuples": SCANNED,
            "hnsw.scan_mem_multiplier": SCAN_MEMORY, "jit": "off",  # longer than a search
        }  # fmt: skip
        calls: LiteralString = ", ".join(["set_config(%s, %s, true)"] * len(settings))
        values = [str(text) for pair in settings.items() for text in pair]
        ((*_, learned),) = self._database.rows(
            sql.SQL(f"SELECT {calls}, (SELECT learned FROM rhovec.libraries WHERE id = %s "
                    "AND identity = %s)").format(),
            [*values, self._library.id, self._library.identity],
        )  # fmt: skip
        if learned is None:
            raise self._removed()
        if learned != self._learned:
            query = "SELECT directions FROM rhovec.libraries WHERE id = %s"
            ((data,),) = self._database.rows(query, (self._library.id,))
            directions = np.frombuffer(data, "<f4").reshape(self.facts.dimension, -1)
            self._set_directions(directions, learned)

    def _set_directions(self, directions: np.ndarray, learned: int) -> None:
        self._directions, self._learned = directions, learned

    def _compact(self, vectors: np.ndarray) -> np.ndarray:
        """Compact vectors (n, d) of unit vectors (n, D)."""
        return compacted(vectors, self._directions) if self._directions.size else vectors

    def _has_grown(self, factor: int) -> bool:
        """Whether compact vectors were learned when the library was smaller by this factor."""
        return bool(self._directions.size) and self._size() >= factor * max(1, self._learned)

    def _set_learned(self, directions: np.ndarray, size: int) -> None:
        query = "UPDATE rhovec.libraries SET directions = %s, learned = %s WHERE id = %s"
        self._database.rows(query, (directions.astype("<f4").tobytes(), size, self._library.id))
        self._learned = size

    def _size(self) -> int:
        query = "SELECT size FROM rhovec.libraries WHERE id = %s"
        return int(self._database.rows(query, (self._library.id,))[0][0])

    def _is_owner(self) -> bool:
        query = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = %s::regclass"
        table = self._table.as_string(None)
        return bool(self._database.rows(query, (table,))[0][0])

    def _lock(self, query: LiteralString) -> None:
        """Adding is shared; learning new directions is exclusive."""
        self._database.rows(query, (LOCK, self._library.id))

    def _create_table(self) -> None:
        number, width = self._library.id, self.facts.dimension
        compact = self._compact(np.zeros((1, width), np.float32)).shape[1]
        database, sequence = self._database, sql.Identifier("rhovec", f"entries_{number}_ids")
        database.rows("SELECT set_config('search_path', %s, true)", (database.path,))
        database.rows(self._sql(
            "CREATE TABLE {} (id bigint PRIMARY KEY, added bigint NOT NULL, checksum bigint NOT NULL, "
            f"depth int NOT NULL, compact halfvec({compact}) NOT NULL, "  # found without reading texts
            f"vector {self._type}({width}) NOT NULL, tags text[] NOT NULL, variables text[] NOT NULL, "
            "formula text NOT NULL, requirement text NOT NULL, title text NOT NULL, "
            "source text NOT NULL)"
        ))  # fmt: skip
        owned = sql.SQL("CREATE SEQUENCE {} OWNED BY {}.id").format(sequence, self._table)
        database.rows(owned)

    def _create_graph(self, size: int) -> None:
        """A graph that does not fit into this memory is built several times slower.

        The server's own setting holds if it is larger.
        """
        memory = min(MAX_MEMORY, max(MIN_MEMORY, GRAPH_BYTES * size)) >> 10
        database = self._database
        database.rows(
            "SELECT set_config(name, GREATEST(setting::bigint, %s) || 'kB', true) FROM pg_settings "
            "WHERE name = 'maintenance_work_mem'", (memory,)
        )  # fmt: skip
        name = sql.Identifier(f"entries_{self._library.id}_graph")
        database.rows(
            sql.SQL(
                "CREATE INDEX {} ON {} USING hnsw (compact halfvec_ip_ops) "
                f"WITH (m = {LINKS}, ef_construction = {BUILD_LIST})"
            ).format(name, self._table)
        )
        database.rows(self._sql("ANALYZE {}"))

    def _sql(self, query: str) -> sql.Composed:
        """A statement about the table of entries."""
        return sql.SQL(query).format(self._table)

    def _unit(self, blobs: Sequence[bytes]) -> np.ndarray:
        return unit_rows(_unpacked(blobs, self._floats))

    def _removed(self) -> RhovecError:
        return RhovecError(f"{self.name} was removed; open or build another one")

    def _damaged(self, entry: int) -> RhovecError:
        return RhovecError(f"{self.name}: entry {entry} is damaged; {REPAIR}")


def _condition(chosen: Filter) -> tuple[LiteralString, dict[str, Any]]:
    """What entries must meet, and the values in it."""
    conditions: list[LiteralString] = []
    if chosen.variables:
        conditions.append("variables @> %(variables)s::text[]")
    if chosen.tags:
        conditions.append("tags @> %(tags)s::text[]")
    if chosen.max_depth is not None:
        conditions.append("depth <= %(depth)s::numeric")
    values = {
        "variables": list(chosen.variables), "tags": list(chosen.tags), "depth": chosen.max_depth
    }  # fmt: skip
    return " AND ".join(conditions) or "true", values


def _find(database: Database, library: str) -> _Library:
    query = "SELECT id, identity, facts, traces FROM rhovec.libraries WHERE name = %s"
    found = database.read(lambda: database.rows(query, (library,)))
    if not found:
        raise RhovecError(
            f"{database.name} has no library {library!r}; `rhovec index list URL` names those it has"
        )
    number, identity, facts, traces = found[0]
    return _Library(number, library, identity, Facts.from_json(facts, traces))


def _insert(
    database: Database, library: str, identity: str, facts: Facts, directions: np.ndarray
) -> _Library:
    """The row of a new library. If another program is building one of this name, wait for it."""
    ((number,),) = database.rows(
        "INSERT INTO rhovec.libraries (name, identity, facts, traces, size, digest, directions, "
        "learned) VALUES (%s, %s, %s, %s, 0, 0, %s, 0) ON CONFLICT (name) DO NOTHING RETURNING id",
        (library, identity, facts.to_json(), facts.traces, directions.astype("<f4").tobytes()),
    ) or [(None,)]  # fmt: skip
    if number is None:
        raise RhovecError(
            f"{database.name} has a library {library!r} already; add to it, or remove it first"
        )
    return _Library(number, library, identity, facts)


def _learned_from(sample: np.ndarray) -> np.ndarray:
    """Directions (D, COMPACT - 1) for compact vectors; none if vectors are short anyway."""
    if sample.shape[1] <= MAX_WHOLE:
        return np.empty((sample.shape[1], 0), np.float32)
    return principal_directions(sample, COMPACT)


def _packed(vectors: np.ndarray, floats: str) -> list[bytes]:
    """Vectors (n, d) as pgvector sends and takes them."""
    header = struct.pack(">hh", vectors.shape[1], 0)
    return [header + row.tobytes() for row in vectors.astype(floats)]


def _unpacked(blobs: Sequence[bytes], floats: str) -> np.ndarray:
    """Inverse of `_packed`, float32."""
    rows = np.frombuffer(b"".join(blobs), np.uint8).reshape(len(blobs), -1)
    return np.ascontiguousarray(rows[:, 4:]).view(floats).astype(np.float32)
