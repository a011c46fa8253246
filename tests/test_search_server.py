"""Libraries in a real PostgreSQL with pgvector: answers, names, roles, lost connections."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.errors import RhovecError
from rhovec.search import Index, database, server
from rhovec.search import index as index_module
from rhovec.search.database import READER, WRITER

from .servers import Postgres, postgres
from .soak.harness import Hashed, formula
from .soak.servers import kill_server

FORMULAE = rv.random_formulae(400, 0)
QUERIES = rv.random_formulae(10, 1)
TAGS = [["even"] if i % 2 == 0 else ["rare"] if i == 77 else [] for i in range(len(FORMULAE))]
HOSTILE = [
    "'; DROP SCHEMA rhovec CASCADE; --", '"; DROP TABLE rhovec.libraries; --', "%s %(name)s {} {0}",
    "$1 :name \\", "a'b\"c`d", "{a,b}", "NULL", "x" * 3000, "Bremse 🚗 ß", "../../etc", "' OR 1=1 --",
]  # fmt: skip


@pytest.fixture(scope="module")
def pg() -> Iterator[Postgres]:
    with postgres() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", running.password)
        yield running


@pytest.fixture
def url(pg: Postgres) -> Iterator[str]:
    """A database of its own for each test."""
    name = f"test_{random.getrandbits(48):x}"
    execute(pg.url(), f"CREATE DATABASE {name}")
    yield pg.url(database=name)
    execute(pg.url(), f"DROP DATABASE {name} WITH (FORCE)")


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]


def value(url: str, query: str) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()  # type: ignore[call-overload]
        return row and row[0]


def ids(found: list[list[rv.Hit]]) -> list[list[int]]:
    return [[hit.id for hit in hits] for hits in found]


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "stored"), [(64, "float32"), (300, "float32"), (300, "float16")])
def test_a_server_answers_as_a_file_does(url: str, width: int, stored: Any) -> None:
    kernel = rv.StlKernel(n_traces=width)
    options: dict[str, Any] = {"vectors": kernel, "tags": TAGS, "stored": stored}
    ours = Index.build(FORMULAE, url, library="one", **options)
    other = Index.build(FORMULAE, **options)
    more = ["always[0,5] x_0 > 0", "not eventually[0,5] x_0 <= 0", "x_1 > 1"]
    for index in (ours, other):
        assert index.add(more, requirements=["A", "B", None]) == [401, 402, 403]
        index.delete([3, 403])
        with pytest.raises(RhovecError, match="no entry 3"):
            index.delete([4, 3])
        assert index.add("x_1 > 2") == 404
        assert len(index) == 402
    ours.close()
    ours = Index.open(url, library="one")
    asked: tuple[dict[str, Any], ...] = (
        {}, {"tags": "even"}, {"tags": "rare"}, {"tags": ["rare", "even"]}, {"k": 1000},
        {"variables": ["x_0", "x_1"], "max_depth": 3}, {"max_depth": -1}, {"max_depth": 10**30},
        {"rerank": kernel, "k": 3},
    )  # fmt: skip
    for options in asked:
        found, expected = (index.search(QUERIES, **options) for index in (ours, other))
        for one, two in zip(found, expected, strict=True):
            assert len(one) == len(two)
            similarities = [[hit.similarity for hit in hits] for hits in (one, two)]
            assert np.allclose(*similarities, atol=2e-5)
            by_id = {hit.id: hit for hit in two}
            for hit in one:  # of equal ones, either may be the last
                same = by_id.get(hit.id)
                assert same is None or replace(hit, similarity=0) == replace(same, similarity=0)
            assert len({hit.id for hit in one} ^ set(by_id)) <= 2
    assert ours.search(more[0], 1)[0].requirement in ("A", "B")
    groups, expected = (
        [sorted(hit.id for hit in group) for group in index.duplicates(0.95, kernel=kernel)]
        for index in (ours, other)
    )
    assert [401, 402] in groups and groups == expected
    ours.verify()
    ours.close()


def test_the_graph_and_the_full_scan_find_the_nearest(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of entries, so that the planner takes the graph; a rare tag, which it hardly meets."""
    n, maker = 3000, Hashed(256)
    texts = [formula(i) for i in range(n)]
    tags = [["rare"] if i % 500 == 0 else ["common"] for i in range(n)]
    with Index.build(texts, url, library="large", vectors=maker, tags=tags) as index:
        vectors = maker.embed([rv.parse(text) for text in texts])
        points = np.random.default_rng(0).normal(size=(20, 256)).astype(np.float32)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        plan = str(_plan(index, points[0]))
        assert "entries_1_graph" in plan, plan
        for chosen, options in (
            (np.arange(n), {}), (np.arange(0, n, 500), {"tags": "rare"}),
        ):  # fmt: skip
            exact = np.sort(points @ vectors[chosen].T, axis=1)[:, ::-1][:, :6]
            found = index.search(points, 6, **options)
            got = np.array([[hit.similarity for hit in hits] for hits in found])
            # Random directions have no principal ones: the worst case for compact vectors.
            assert np.mean(got >= exact[:, 5:6] - 1e-5) > (0.5 if len(chosen) == n else 0.999)
        monkeypatch.setattr(server, "CANDIDATES", n)  # then compact vectors decide nothing
        found = index.search(points, 6)
        exact = np.sort(points @ vectors.T, axis=1)[:, ::-1][:, :6]
        assert np.allclose([[hit.similarity for hit in hits] for hits in found], exact, atol=1e-5)


def _plan(index: Index, point: np.ndarray) -> list[Any]:
    backend: Any = index._backend
    with backend._database.reading():
        backend._begin()
        compact = server._packed(backend._compact(point[None]), ">f2")[0]
        query = "EXPLAIN SELECT id FROM {} ORDER BY compact <#> %s LIMIT 200"
        found: list[Any] = backend._database.rows(
            backend._sql(query), (database.HalfVector(compact),)
        )
        return found


def test_a_library_that_grows_learns_new_directions(url: str) -> None:
    kernel = rv.StlKernel(n_traces=300)
    formulae, queries = rv.random_formulae(700, 5), rv.random_formulae(20, 6)
    with Index.build(["x_0 > 0"], url, library="l", vectors=kernel) as index:
        backend: Any = index._backend
        with Index.open(url, library="l") as reader:  # holds the old directions
            reader.search("x_0 > 0")
            index.add(formulae[:3])
            assert backend._learned == 4
            index.add(formulae[3:])
            assert backend._learned == 701
            index.verify()
            exact = Index.build(["x_0 > 0", *formulae], vectors=kernel).search(queries, 10)
            for found in (index.search(queries, 10), reader.search(queries, 10)):
                for hits, best in zip(found, exact, strict=True):
                    assert np.allclose(
                        [h.similarity for h in hits], [h.similarity for h in best], atol=1e-5
                    )


def test_copies(url: str, tmp_path: Path) -> None:
    with Index.build(FORMULAE, tmp_path / "a", vectors=Hashed(), tags=TAGS) as index:
        index.delete(5)
        index.save(url, library="copy")
        expected = index.search(np.eye(32), 20)
    with Index.open(url, library="copy", vectors=Hashed()) as index:
        index.verify()
        assert len(index) == len(FORMULAE) - 1
        index.save(tmp_path / "b")
    with Index.open(tmp_path / "b", vectors=Hashed()) as index:
        found = index.search(np.eye(32), 20)
        for one, two in zip(found, expected, strict=True):
            assert [(hit.formula, hit.tags) for hit in one] == [(h.formula, h.tags) for h in two]


# -- names -----------------------------------------------------------------------------------------


def test_hostile_names_tags_and_formulae_are_only_text(url: str, tmp_path: Path) -> None:
    entries = [
        rv.Requirement(rv.parse(f"`{name}` > {i}" if "`" not in name else "x > 1"), id=name[:80],
                       title=name, tags=(name,), source=name)
        for i, name in enumerate(HOSTILE)
    ]  # fmt: skip
    for name in HOSTILE:
        with Index.build(entries, url, library=name, vectors=Hashed()) as index:
            assert name in repr(index) or repr(name) in repr(index)
    assert database.libraries(url) == dict.fromkeys(HOSTILE, len(HOSTILE))
    with Index.open(url, library=HOSTILE[0], vectors=Hashed()) as index:
        for i, name in enumerate(HOSTILE):
            (hit,) = index.search("x > 0", tags=name)
            assert (hit.title, hit.tags, hit.source) == (name, (name,), name)
            assert hit.formula == entries[i].formula and hit.requirement == name[:80]
            uses = entries[i].formula.variables
            assert hit.id in [h.id for h in index.search("x > 0", variables=uses)]
        index.verify()
        for bad in ("a\0b", "\ud800"):
            with pytest.raises(RhovecError, match=r"cannot be stored|no valid Unicode"):
                index.add(replace(entries[0], title=bad))
        assert len(index) == len(HOSTILE) and index.add("x > 7") == len(HOSTILE) + 3
    for name in HOSTILE[1:]:
        database.remove(url, name)
    assert database.libraries(url) == {HOSTILE[0]: len(HOSTILE) + 1}
    with pytest.raises(RhovecError, match="has no library 'x'"):
        database.remove(url, "x")


def test_wrong_places_and_names(url: str, pg: Postgres, tmp_path: Path) -> None:
    with pytest.raises(RhovecError, match="has no rhovec library; build one first"):
        Index.open(url, library="a")
    Index.build(["x > 1"], url, library="a", vectors=Hashed()).close()
    with pytest.raises(RhovecError, match="has no library 'b'; `rhovec index list URL`"):
        Index.open(url, library="b")
    with pytest.raises(RhovecError, match="has a library 'a' already"):
        Index.build(["x > 1"], url, library="a", vectors=Hashed())
    for bad in (None, "", " ", "a\nb", 3):
        with pytest.raises(RhovecError, match="library must be the name"):
            Index.open(url, library=bad)  # type: ignore[arg-type]
    with pytest.raises(RhovecError, match="give its path alone"):
        Index.open(tmp_path / "file", library="a")
    with pytest.raises(RhovecError, match=r"cannot connect to the server: .*does not exist"):
        Index.open(pg.url(database="nothing"), library="a")
    with pytest.raises(RhovecError, match="at most 16,000 numbers"):
        Index.build(["x > 1"], url, library="w", vectors=Hashed(16_001))
    index, other = (Index.open(url, library="a", vectors=Hashed()) for _ in range(2))
    database.remove(url, "a")
    for use in (
        lambda: index.search("x > 1"), lambda: len(index), lambda: index.add("x > 2"),
        lambda: index.delete(1), index.verify,
    ):  # fmt: skip
        with pytest.raises(RhovecError, match=r"'a' in .* was removed"):
            use()
    Index.build(["x > 1"], url, library="a", vectors=Hashed()).close()
    with pytest.raises(RhovecError, match="was removed"):  # another one has its name
        other.add("x > 2")
    index.close()
    other.close()
    with pytest.raises(RhovecError, match="was closed; open it again"):
        index.search("x > 1")


def test_an_error_among_the_formulae_leaves_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "CHUNK", 20)

    def texts() -> Iterator[str]:
        yield from (formula(i) for i in range(60))
        yield "always ("

    with pytest.raises(rv.ParseError):
        Index.build(texts(), url, library="a", vectors=Hashed())
    assert database.libraries(url) == {}
    with Index.build(["x > 1"], url, library="a", vectors=Hashed()) as index:
        with pytest.raises(rv.ParseError):
            index.add(texts())
        assert len(index) == 1 and len(index.search("x > 1", 100)) == 1
        index.verify()


def test_damage_is_noticed(url: str) -> None:
    for number, (statement, told) in enumerate((
        ("UPDATE {} SET formula = 'x > 2' WHERE id = 2", "entry 2 is damaged"),
        ("DELETE FROM {} WHERE id = 2", "entries are missing"),
        ("UPDATE {} SET vector = (SELECT vector FROM {} WHERE id = 1) WHERE id = 3", "entry 3"),
        ("UPDATE {} SET compact = (SELECT compact FROM {} WHERE id = 1) WHERE id = 4", "entry 4"),
    ), 1):  # fmt: skip
        texts = [formula(i) for i in range(10)]
        with Index.build(texts, url, library=str(number), vectors=Hashed(200)) as index:
            index.verify()
            execute(url, statement.replace("{}", f"rhovec.entries_{number}"))
            with pytest.raises(RhovecError, match=told):
                index.verify()


# -- roles and passwords ---------------------------------------------------------------------------


def test_roles(url: str, pg: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    Index.build(["x > 1"], url, library="a", vectors=Hashed()).close()
    for person, role in (("ann", READER), ("bob", WRITER), ("eve", "")):
        execute(
            url,
            f"DROP ROLE IF EXISTS {person}", f"CREATE ROLE {person} LOGIN PASSWORD '{person}-secret'",
            *([f"GRANT {role} TO {person}"] if role else []),
        )  # fmt: skip

    def places(person: str) -> str:
        monkeypatch.setenv("PGPASSWORD", f"{person}-secret")
        return url.replace("postgres@", f"{person}@")

    with Index.open(places("ann"), library="a", vectors=Hashed()) as index:
        assert len(index.search("x > 1")) == 1 == len(index)
        index.verify()
        assert index.duplicates() == []
        for attempt in (
            lambda: index.add("x > 2"), lambda: index.delete(1),
            lambda: Index.build(["x > 1"], places("ann"), library="b", vectors=Hashed()),
            lambda: database.remove(places("ann"), "a"), lambda: database.upgrade(places("ann")),
        ):  # fmt: skip
            with pytest.raises(RhovecError, match=r"permission denied.*ask .*rhovec_writer"):
                attempt()
        assert len(index) == 1
    with Index.open(places("bob"), library="a", vectors=Hashed()) as index:
        assert index.add(["x > 2", "x > 3"]) == [2, 3]
        index.delete(2)
        assert len(index) == 2
        with pytest.raises(RhovecError, match="must be owner"):
            database.remove(places("bob"), "a")
        with Index.build(["x > 1"], places("bob"), library="b", vectors=Hashed(200)) as own:
            own.add([formula(i) for i in range(50)])
        database.remove(places("bob"), "b")
    with pytest.raises(RhovecError, match="permission denied for schema rhovec"):
        Index.open(places("eve"), library="a")
    monkeypatch.setenv("PGPASSWORD", pg.password)
    for person in ("ann", "bob", "eve"):
        execute(url, f"DROP OWNED BY {person}", f"DROP ROLE {person}")


def test_passwords_are_never_shown(
    url: str, pg: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = url.removeprefix("postgresql://postgres@")
    for secret in ("hunter2", "hun@ter2", "hun:ter/2", "hun#ter2", "hunter2%zz"):
        for place in (
            f"postgresql://postgres:{secret}@{rest}", f"postgresql://postgres@{rest}?password={secret}",
            f"postgres://:{secret}@{rest}",
        ):  # fmt: skip
            with pytest.raises(RhovecError) as caught:
                Index.open(place, library="a")
            assert "hun" not in str(caught.value) and "ter2" not in str(caught.value)
            result = CliRunner().invoke(app, ["index", "list", place])
            assert result.exit_code == 2 and "ter2" not in result.output
            assert "hun" not in result.output
    monkeypatch.setenv("PGPASSWORD", "not-the-one")
    with pytest.raises(RhovecError, match="password authentication failed") as caught:
        Index.open(url, library="a")
    assert "not-the-one" not in str(caught.value)
    monkeypatch.delenv("PGPASSWORD")
    service = tmp_path / "services"
    service.write_text(
        f"[team]\nhost=127.0.0.1\nport={pg.port}\nuser=postgres\npassword={pg.password}\n"
        f"dbname={rest.rpartition('/')[2]}\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    place = "postgresql://?service=team"
    with Index.build(["x > 1"], place, library="a", vectors=Hashed()) as index:
        assert len(index) == 1 and pg.password not in repr(index)
        assert pg.password not in repr(vars(index._backend)) + repr(vars(index._backend._database))  # type: ignore[attr-defined]


def test_migrations(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Index.build(["x > 1"], url, library="a", vectors=Hashed()).close()
    later = (*database.MIGRATIONS, "ALTER TABLE rhovec.libraries ADD note text; SELECT 1")
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", later)
        for attempt in (
            lambda: Index.open(url, library="a"),
            lambda: Index.build(["x > 1"], url, library="b", vectors=Hashed()),
        ):
            with pytest.raises(
                RhovecError, match=r"of version 1; .* version 2 with `rhovec index up"
            ):
                attempt()
        assert database.upgrade(url) == database.upgrade(url) == 2
        with Index.open(url, library="a", vectors=Hashed()) as index:
            assert index.add("x > 2") == 2
        assert value(url, "SELECT note FROM rhovec.libraries") is None
        broken = (*later, "ALTER TABLE rhovec.libraries ADD other text; SELECT 1 / 0")
        patch.setattr(database, "MIGRATIONS", broken)
        with pytest.raises(RhovecError, match="division by zero"):
            database.upgrade(url)
        assert value(url, "SELECT number FROM rhovec.version") == 2  # all of it or nothing
    with pytest.raises(RhovecError, match="version 2, made by a newer rhovec"):
        Index.open(url, library="a")
    with pytest.raises(RhovecError, match="newer rhovec"):
        database.upgrade(url)


def test_two_programs_prepare_a_database_at_once(url: str) -> None:
    def build(i: int) -> int:
        with Index.build(["x > 1"], url, library=f"l{i % 3}", vectors=Hashed()) as index:
            return len(index)

    with ThreadPoolExecutor(6) as pool:
        results = [pool.submit(build, i) for i in range(6)]
        errors = [r.exception() for r in results]
    assert sum(error is None for error in errors) == 3, errors
    assert all("already" in str(error) for error in errors if error), errors
    assert database.libraries(url) == {"l0": 1, "l1": 1, "l2": 1}


# -- lost connections ------------------------------------------------------------------------------


class Proxy:
    """A way to the server that can break: it looks at what is sent, and drops the connection."""

    def __init__(self, port: int):
        self.target = port
        self.cut: Callable[[bytes], str] = lambda _: ""  # "before" or "after" sending it on
        self.refusing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            upstream = socket.create_connection(("127.0.0.1", self.target))
            lost = threading.Event()
            for one, two, watched in ((client, upstream, True), (upstream, client, False)):
                args = (one, two, watched, lost)
                threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(self, one: socket.socket, two: socket.socket, watched: bool, lost: Any) -> None:
        try:
            while data := one.recv(1 << 16):
                when = self.cut(data) if watched else ""
                if when:
                    lost.set()
                if when == "before":
                    break
                if lost.is_set() and not watched:
                    break
                two.sendall(data)
                if when == "after":
                    break
        except OSError:
            pass
        for each in (one, two):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        one.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def proxy(pg: Postgres) -> Iterator[Proxy]:
    made = Proxy(pg.port)
    yield made
    made.close()


def once(words: list[bytes], when: str) -> Callable[[bytes], str]:
    """Cut when the last of these words passes, in their order."""
    left = list(words)

    def cut(data: bytes) -> str:
        if left and left[0] in data:
            left.pop(0)
            return "" if left else when
        return ""

    return cut


CONFIRMED = [b"INSERT INTO rhovec.changes", b"COMMIT"]


def test_a_lost_confirmation_is_looked_up(
    url: str, pg: Postgres, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url.replace(str(pg.port), str(proxy.port))
    with Index.build(["x > 1"], place, library="a", vectors=Hashed()) as index:
        proxy.cut = once(CONFIRMED, "after")
        assert index.add(["x > 2", "x > 3"]) == [2, 3]
        proxy.cut = once(CONFIRMED, "after")
        index.delete(2)
        assert len(index) == 2
        proxy.cut = once(CONFIRMED, "before")
        with pytest.raises(RhovecError, match="was lost; nothing was changed; try again"):
            index.add("x > 4")
        assert len(index) == 2
        proxy.cut = once([b"nextval"], "before")
        with pytest.raises(RhovecError, match="nothing was changed"):
            index.add("x > 4")
        assert len(index) == 2
        proxy.cut = once([b"SELECT count"], "before")
        assert len(index.search("x > 1")) == 2  # reading is repeated
        # The server stays away: nobody knows. A repeated call finds out, and does nothing twice.
        monkeypatch.setattr(database, "WAIT", 0.3)

        def cut() -> Callable[[bytes], str]:
            inner = once(CONFIRMED, "after")

            def outer(data: bytes) -> str:
                proxy.refusing = proxy.refusing or bool(when := inner(data))
                return when

            return outer

        for change, expected in (
            (lambda: index.add(["x > 5", "x > 6"]), 4), (lambda: index.delete(1), 3)
        ):  # fmt: skip
            proxy.cut = cut()
            with pytest.raises(RhovecError, match="repeat the call on this index"):
                change()
            proxy.cut, proxy.refusing = (lambda _: ""), False
            done = change()
            assert len(index) == expected
            assert done is None or len(done) == 2
        assert index.add(["x > 5", "x > 6"])[0] > 6  # but a new call adds anew
        assert len(index) == 5
        index.verify()
    proxy.cut = once(CONFIRMED, "after")
    with Index.build(["x > 1"], place, library="b", vectors=Hashed()) as index:
        assert len(index) == 1
    proxy.cut = once(CONFIRMED, "before")
    with pytest.raises(RhovecError, match="nothing was changed"):
        Index.build(["x > 1"], place, library="c", vectors=Hashed())
    assert database.libraries(url) == {"a": 5, "b": 1}


@pytest.mark.parametrize("seed", range(2))
def test_kill_the_server(url: str, pg: Postgres, seed: int) -> None:
    assert kill_server(pg, url, 1, seed)["kills"] == 1


def test_two_writers_and_readers(url: str) -> None:
    Index.build(["x > -1"], url, library="a", vectors=Hashed(200)).close()
    stop = threading.Event()

    def write(writer: int) -> list[int]:
        with Index.open(url, library="a", vectors=Hashed(200)) as index:
            added = []
            for i in range(12):
                added += index.add([formula(1000 * writer + 5 * i + j) for j in range(5)])
                if i % 3 == 0:
                    index.delete(added.pop())
            return added

    def read() -> int:
        asked = 0
        with Index.open(url, library="a", vectors=Hashed(200)) as index:
            while not stop.is_set():
                found = index.search(["x > 0", "x > 7"], 5)
                assert all(hits and hits == sorted(hits, key=lambda h: -h.similarity)
                           for hits in found)  # fmt: skip
                asked += 1
        return asked

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        added = [pool.submit(write, i) for i in (1, 2)]
        try:
            numbers = [i for one in added for i in one.result()]
        finally:
            stop.set()
        assert all(reader.result() > 0 for reader in readers)
    assert len(set(numbers)) == len(numbers) == 2 * (60 - 4)
    with Index.open(url, library="a", vectors=Hashed(200)) as index:
        assert len(index) == len(numbers) + 1
        index.verify()
        assert {h.id for h in index.search("x > 0", 1000)} == {1, *numbers}


# -- the command line ------------------------------------------------------------------------------


def test_the_command(url: str, tmp_path: Path) -> None:
    def run(*arguments: object, status: int = 0) -> str:
        result = CliRunner().invoke(app, ["index", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result.stdout or result.stderr

    texts = ["REQ-1: always[0,5] x_0 > 0", "not eventually[0,5] x_0 <= 0", "x_1 > 1"]
    build = ["build", url, "--library", "a b", *texts, "--n-traces", 50]
    assert run(*build) == "3 formulae in a b\n"
    assert "already" in run(*build, status=2)
    assert run("add", url, "--library", "a b", "x_2 > 1", "--tags", "new") == (
        "added 4; 4 formulae in the library\n"
    )
    rows = run("search", url, "--library", "a b", "x_2 > 1", "-k", 2, "--json").splitlines()
    assert json.loads(rows[0])["id"] == 4
    assert "REQ-1" in run("duplicates", url, "--library", "a b")
    assert run("delete", url, 4, "--library", "a b") == "deleted 4; 3 formulae in the library\n"
    assert "all as they were written" in run("verify", url, "--library", "a b")
    assert run("list", url) == "library,formulae\na b,3\n"
    assert run("upgrade", url) == "libraries of version 1\n"
    assert "in place" in run("upgrade", url, tmp_path / "new", status=2)
    for verb in ("build", "add", "search"):
        assert "--library NAME goes with" in run(verb, url, "x_0 > 1", status=2)
        assert "--library NAME goes with" in run(
            verb, tmp_path / "f", "x_0 > 1", "--library", "a", status=2
        )
    assert run("remove", url, "--library", "a b") == "removed a b\n"
    assert "has no library 'a b'" in run("search", url, "--library", "a b", "x > 1", status=2)
    assert "cannot be read; write" in run("list", url.replace("127.0.0.1", "h:1/x?"), status=2)
    assert "cannot connect" in run("list", "postgresql://postgres@127.0.0.1:1/x", status=2)


def test_without_psycopg() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\nimport rhovec as rv\n"
        "try: rv.Index.open('postgresql://h/d', library='a')\n"
        "except rv.errors.MissingDependencyError as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert 'pip install "rhovec[server]"' in run.stdout
