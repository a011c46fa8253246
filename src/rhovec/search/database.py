"""A PostgreSQL database with libraries: connections, transactions, roles, and its version.

    Database(url)      connects, and again if the connection was lost
    upgrade(url)       make or bring up to date what rhovec keeps in a database; its version
    libraries(url)     names of the libraries, and how many entries each has
    remove(url, name)  delete a library with all its entries

Passwords come from the environment (PGPASSWORD), a password file or a service file. In a URL they are
refused, since URLs end up in histories, process lists and messages.

A change is confirmed when its transaction is committed. Each one leaves a token, so that a client
whose connection broke while it waited for the confirmation finds out what became of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, LiteralString, TypeVar
from urllib.parse import parse_qs, urlsplit

from ..errors import MissingDependencyError, RhovecError
from .backend import is_url

try:
    import psycopg
    from psycopg import Connection, IsolationLevel, errors
    from psycopg import sql as sql
    from psycopg.adapt import Buffer, Dumper, Loader
    from psycopg.pq import Format
except ImportError:
    raise MissingDependencyError(
        'a library on a server needs psycopg: pip install "rhovec[server]"'
    ) from None

MIGRATIONS: tuple[LiteralString, ...] = (  # each makes one version of the one before
    """
    CREATE TABLE rhovec.libraries (
        id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
        identity text NOT NULL, facts text NOT NULL, traces bytea, size bigint NOT NULL,
        digest bigint NOT NULL, directions bytea NOT NULL, learned bigint NOT NULL);
    CREATE TABLE rhovec.changes (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, token text NOT NULL UNIQUE,
        library int NOT NULL REFERENCES rhovec.libraries ON DELETE CASCADE, first bigint,
        by_role text NOT NULL DEFAULT session_user, at timestamptz NOT NULL DEFAULT now());
    CREATE INDEX ON rhovec.changes (library);
    """,
)
READER, WRITER = "rhovec_reader", "rhovec_writer"  # roles that an administrator grants to people
PGVECTOR = (0, 8)  # the oldest version: filters need its iterative scans
WAIT = 30.0  # seconds for a lost server to come back
PAUSE = 0.1  # seconds between attempts to reach it
TIMEOUT = 10  # seconds for a first connection
LOCK = 0x72686F76  # first number of our advisory locks
EXAMPLE = "postgresql://user@host:5432/database"

T = TypeVar("T")
Row = tuple[Any, ...]


class Vector(bytes):
    """A vector as pgvector sends it: its length and a zero, both 16 bits, then its floats."""


class HalfVector(bytes):
    """Such a vector of 16-bit floats."""


class Done(Exception):
    """This change was made before; the transaction is to be undone."""

    def __init__(self, token: str):
        self.token = token


class Database:
    """A connection, which is made again if it was lost. name: what messages call the database."""

    def __init__(self, url: str):
        self._settings = _settings(url)
        self.name = "the server"
        self._closed = False
        self._in_use = threading.Lock()
        self._marks: list[tuple[str, int]] = []  # token and library of the current transaction
        self._connection: Connection[Row] | None = self._connect()
        info = self._connection.info
        self.name = f"{info.dbname} on {info.host or 'this machine'}"

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    # -- transactions ----------------------------------------------------------------------

    def read(self, work: Callable[[], T]) -> T:
        """Do work that sees one moment and changes nothing; once more if the connection was lost."""
        try:
            with self.reading():
                return work()
        except _Lost:
            with self.reading():
                return work()

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._transaction(IsolationLevel.REPEATABLE_READ, read_only=True):
            yield

    @contextmanager
    def reading_long(self) -> Iterator[None]:
        """A read that is not repeated: a connection that was lost before it is noticed first."""
        self.ping()
        with self.reading():
            yield

    def write(self, work: Callable[[], T], again: Callable[[str], T]) -> T:
        """Do work that calls `mark` in one transaction: all of it, or nothing.

        again: what to return for a token whose change was made before.
        """
        self.ping()
        self._marks.clear()
        results: list[T] = []
        try:
            with self.writing():
                results.append(work())
        except Done as done:
            token = done.token
            return self.read(lambda: again(token))
        except _Lost:
            if not (results and self._marks and self._was_made(*self._marks[-1])):
                raise RhovecError(
                    f"the connection to {self.name} was lost; nothing was changed; try again"
                ) from None
        return results[0]

    def mark(self, token: str, library: int, first: int | None = None) -> None:
        """Leave the token of this transaction's change; Done if the change was made before.

        first: the first id that was added.
        """
        query = "INSERT INTO rhovec.changes (token, library, first) VALUES (%s, %s, %s)"
        try:
            self.rows(query, (token, library, first))
        except errors.UniqueViolation:
            raise Done(token) from None
        self._marks.append((token, library))

    def _was_made(self, token: str, library: int) -> bool:
        """Whether a change whose confirmation did not arrive was made.

        The server may still be busy with it: leaving the same token again waits for its end.
        """
        try:
            self._reconnect()
        except _Away:
            raise RhovecError(
                f"the connection to {self.name} was lost while a change was being confirmed, and the "
                f"server has not come back in {WAIT:g} s; repeat the call on this index when it has: "
                "the change is not made twice"
            ) from None
        try:
            with self.writing():
                self.mark(token, library)
                raise _Undone
        except Done:
            return True
        except (_Undone, errors.ForeignKeyViolation):  # the latter: of a library that never was
            return False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction without a token, for what may be repeated."""
        with self._transaction(IsolationLevel.READ_COMMITTED, read_only=False):
            yield

    @contextmanager
    def _transaction(self, isolation: IsolationLevel, read_only: bool) -> Iterator[None]:
        if self._closed:
            raise RhovecError(f"{self.name}: the index was closed; open it again")
        if not self._in_use.acquire(blocking=False):
            raise RhovecError(
                f"{self.name}: another thread is using this index; open one for each thread"
            )
        try:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._reconnect()
            with self._clear_errors(connection):
                connection.isolation_level, connection.read_only = isolation, read_only
                with connection.transaction():
                    yield
        finally:
            self._in_use.release()

    @contextmanager
    def _clear_errors(self, connection: Connection[Row]) -> Iterator[None]:
        try:
            yield
        except (errors.UniqueViolation, errors.ForeignKeyViolation):
            raise
        except psycopg.Error as error:
            if connection.closed:
                raise _Lost(f"the connection to {self.name} was lost; try again") from None
            raise RhovecError(f"{self.name}: {_reason(error)}") from None
        except UnicodeEncodeError:
            raise RhovecError(f"{self.name}: a text is no valid Unicode; change it") from None

    def rows(
        self, query: LiteralString | sql.Composed, values: Sequence[Any] | dict[str, Any] = ()
    ) -> list[Row]:
        """Run a statement in the current transaction: its rows, if it has any."""
        assert self._connection is not None
        cursor = self._connection.execute(query, values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def stream(self, query: sql.Composed, size: int) -> Iterator[list[Row]]:
        """The rows of a query, `size` at a time, while the current transaction lasts."""
        assert self._connection is not None
        with self._connection.cursor("rhovec", binary=True) as cursor:
            cursor.execute(query)
            while found := cursor.fetchmany(size):
                yield found

    def copy(self, query: sql.Composed, types: Sequence[str | int], rows: Sequence[Row]) -> None:
        """Send rows, in the binary form of COPY."""
        assert self._connection is not None
        with self._connection.cursor() as cursor, cursor.copy(query) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    # -- connections -----------------------------------------------------------------------

    def _connect(self) -> Connection[Row]:
        with ExitStack() as undo:
            try:
                connection = psycopg.connect(
                    **self._settings, autocommit=True, prepare_threshold=None
                )
                undo.callback(connection.close)
                self.learn_types(connection)
            except psycopg.Error as error:
                reason = str(error).strip().partition("\n")[0]
                raise _Away(f"cannot connect to {self.name}: {reason}") from None
            undo.pop_all()
        return connection

    def _reconnect(self) -> Connection[Row]:
        """Connect again, once the server is back."""
        end = time.monotonic() + WAIT
        while True:
            try:
                self._connection = self._connect()
                return self._connection
            except _Away:
                if time.monotonic() > end:
                    raise
                time.sleep(PAUSE)

    def ping(self) -> None:
        """Notice a connection that was lost since it was last used."""
        with suppress(_Lost), self.reading():
            self.rows("SELECT 1")

    def learn_types(self, connection: Connection[Row] | None = None) -> None:
        """Teach the connection pgvector's types, if the database has them."""
        connection = connection or self._connection
        assert connection is not None
        found = connection.execute(
            "SELECT extversion, nspname, typname, pg_type.oid FROM pg_extension "
            "JOIN pg_namespace ON pg_namespace.oid = extnamespace "
            "JOIN pg_type ON typnamespace = extnamespace "
            "WHERE extname = 'vector' AND typname IN ('vector', 'halfvec')"
        ).fetchall()
        self.types = {name: int(oid) for _, _, name, oid in found}
        if not found:
            return
        version, schema = found[0][:2]
        if tuple(map(int, version.split(".")[:2])) < PGVECTOR:
            raise RhovecError(
                f"{self.name} has pgvector {version}, but {'.'.join(map(str, PGVECTOR))} is needed; "
                "update the extension"
            )
        self.path = f"pg_catalog, {sql.Identifier(schema).as_string(connection)}"
        for kind, name in ((Vector, "vector"), (HalfVector, "halfvec")):
            dumper = type(f"{kind.__name__}Dumper", (_Bytes,), {"oid": self.types[name]})
            connection.adapters.register_dumper(kind, dumper)
            connection.adapters.register_loader(self.types[name], _Raw)


class _Undone(Exception):
    """Undoes a transaction."""


class _Lost(RhovecError):
    """The connection broke."""


class _Away(RhovecError):
    """The server cannot be reached."""


class _Bytes(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        return bytes(obj)


class _Raw(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


def _settings(url: str) -> dict[str, Any]:
    """libpq's settings, without a password. No message repeats the URL, which may hold one."""
    if not is_url(url) and "@" not in url:
        raise RhovecError(f"{url}: no database; give its URL, such as {EXAMPLE}")
    try:
        parts = urlsplit(url)
        if not url.startswith(("postgresql://", "postgres://")):
            raise ValueError
        secret = parts.password is not None or any(
            "password" in key for key in parse_qs(parts.query)
        )
        secret = secret or "@" in parts.path or parts.netloc.count("@") > 1
        found = {} if secret else psycopg.conninfo.conninfo_to_dict(url)
    except (ValueError, psycopg.Error):
        raise RhovecError(f"the URL of the server cannot be read; write {EXAMPLE}") from None
    if secret:
        raise RhovecError(
            "leave the password out of the URL: PGPASSWORD, ~/.pgpass or a service file "
            f"(postgresql://?service=team) hold it, and the URL is {EXAMPLE}"
        )
    return {"connect_timeout": TIMEOUT, "application_name": "rhovec"} | found


def _reason(error: psycopg.Error) -> str:
    """What to say about an error of the server's."""
    told = (error.diag.message_primary or str(error)).partition("\n")[0]
    if isinstance(error, errors.InsufficientPrivilege):
        return (
            f"{told}; ask an administrator for the role {READER} to read, or {WRITER} to build, "
            "add and delete"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "it is a read-only copy; write to the primary server"
    if isinstance(error, errors.UndefinedTable):
        return "the library was removed"
    if isinstance(error, errors.DiskFull):
        return "cannot be written: the server's disk is full"
    if isinstance(error, errors.ProgramLimitExceeded):
        return f"a name, a tag or a variable is too long for the server ({told}); shorten it"
    if isinstance(error, psycopg.DataError):
        return f"the server cannot take a text or a number: {told}"
    return told


# -- what rhovec keeps in a database -----------------------------------------------------------------


def require_current(database: Database) -> None:
    """RhovecError unless the database has libraries of this version."""
    version = database.read(lambda: _version(database))
    if not version:
        raise RhovecError(f"{database.name} has no rhovec library; build one first")
    if version < len(MIGRATIONS):
        raise RhovecError(
            f"{database.name} has libraries of version {version}; its owner brings them to version "
            f"{len(MIGRATIONS)} with `rhovec index upgrade URL`"
        )
    _refuse_newer(database, version)


def prepare(database: Database) -> None:
    """Make what rhovec needs in a new database; one that has libraries must be current."""
    if database.read(lambda: _version(database)):
        require_current(database)
    else:
        bring_up_to_date(database)


def bring_up_to_date(database: Database) -> None:
    """Apply the migrations that are missing, in one transaction, and grant what roles may do."""
    with database.writing():
        database.rows("SELECT pg_advisory_xact_lock(%s, 0)", (LOCK,))
        version = _version(database)
        _refuse_newer(database, version)
        if not version:
            _create(database)
        for statements in MIGRATIONS[version:]:
            for statement in statements.split(";"):
                if statement.strip():
                    database.rows(sql.Composed([sql.SQL(statement)]))
        database.rows("UPDATE rhovec.version SET number = %s", (len(MIGRATIONS),))
        for (library,) in database.rows("SELECT id FROM rhovec.libraries"):
            grant(database, library)
        _grant_common(database)
    database.learn_types()


def _create(database: Database) -> None:
    if not database.rows("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        if not database.rows("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
            raise RhovecError(f"{database.name}: pgvector is not installed on the server")
        database.rows("CREATE EXTENSION vector")
    database.rows("CREATE SCHEMA rhovec")
    database.rows("CREATE TABLE rhovec.version (number int NOT NULL)")
    database.rows("INSERT INTO rhovec.version VALUES (0)")
    may = "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
    if database.rows(may) == [(True,)]:
        for role in {READER, WRITER} - set(_roles(database)):
            database.rows(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(role)))


def _version(database: Database) -> int:
    """The version of the database; 0: it holds nothing of rhovec's."""
    query: LiteralString = (  # to_regclass answers from a cache that another program's change outdates
        "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = 'rhovec' AND relname = 'version'"
    )
    if not database.rows(query):
        return 0
    return int(database.rows("SELECT number FROM rhovec.version")[0][0])


def _refuse_newer(database: Database, version: int) -> None:
    if version > len(MIGRATIONS):
        raise RhovecError(
            f"{database.name} has libraries of version {version}, made by a newer rhovec than this, "
            f"which knows version {len(MIGRATIONS)}; update rhovec"
        )


def _roles(database: Database) -> list[str]:
    query = "SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s)"
    return [role for (role,) in database.rows(query, ([READER, WRITER],))]


def _grant_common(database: Database) -> None:
    """Grant what concerns all libraries, to those of the two roles that exist."""
    known = _roles(database)
    statements: list[tuple[str, LiteralString]] = [
        *((role, "GRANT USAGE ON SCHEMA rhovec TO {}") for role in (READER, WRITER)),
        *((role, "GRANT SELECT ON rhovec.version, rhovec.libraries, rhovec.changes TO {}")
          for role in (READER, WRITER)),
        (WRITER, "GRANT CREATE ON SCHEMA rhovec TO {}"),
        (WRITER, "GRANT INSERT, DELETE ON rhovec.libraries TO {}"),
        (WRITER, "GRANT UPDATE (size, digest, directions, learned) ON rhovec.libraries TO {}"),
        (WRITER, "GRANT INSERT ON rhovec.changes TO {}"),
    ]  # fmt: skip
    for role, statement in statements:
        if role in known:
            database.rows(sql.SQL(statement).format(sql.Identifier(role)))


def grant(database: Database, library: int) -> None:
    """Let readers read the entries of a library, and writers change them."""
    known = _roles(database)
    table, sequence = entries_table(library), sql.Identifier("rhovec", f"entries_{library}_ids")
    statements: list[tuple[str, LiteralString]] = [
        (READER, "GRANT SELECT ON {table} TO {role}"),
        (WRITER, "GRANT SELECT, INSERT, DELETE ON {table} TO {role}"),
        (WRITER, "GRANT USAGE ON {sequence} TO {role}"),
    ]
    for role, statement in statements:
        if role in known:
            names = {"table": table, "sequence": sequence, "role": sql.Identifier(role)}
            used = {name: value for name, value in names.items() if f"{{{name}}}" in statement}
            database.rows(sql.SQL(statement).format(**used))


def entries_table(library: int) -> sql.Identifier:
    """The table that holds the entries of a library."""
    return sql.Identifier("rhovec", f"entries_{library}")


@contextmanager
def connected(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def upgrade(url: str) -> int:
    """Make or bring up to date what rhovec keeps in a database, and its roles: the version."""
    with connected(url) as database:
        bring_up_to_date(database)
    return len(MIGRATIONS)


def libraries(url: str) -> dict[str, int]:
    """Names of the libraries in a database, and how many entries each has."""
    with connected(url) as database:
        require_current(database)
        query: LiteralString = "SELECT name, size FROM rhovec.libraries ORDER BY name"
        return dict(database.read(lambda: database.rows(query)))


def remove(url: str, library: str) -> None:
    """Delete a library with all its entries."""
    with connected(url) as database:
        require_current(database)
        with database.writing():
            query = "DELETE FROM rhovec.libraries WHERE name = %s RETURNING id"
            found = database.rows(query, (library,))
            if not found:
                raise RhovecError(f"{database.name} has no library {library!r}")
            database.rows(sql.SQL("DROP TABLE {}").format(entries_table(found[0][0])))
