"""Libraries in a real PostgreSQL with pgvector: answers, names, damage, the command line."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.errors import RhovecError
from rhovec.search import Index, database, entries, server

from .servers import execute
from .soak.harness import Hashed, formula

FORMULAE = rv.random_formulae(400, 0)
QUERIES = rv.random_formulae(10, 1)
TAGS = [["even"] if i % 2 == 0 else ["rare"] if i == 77 else [] for i in range(len(FORMULAE))]
HOSTILE = [
    "'; DROP SCHEMA rhovec CASCADE; --", '"; DROP TABLE rhovec.libraries; --', "%s %(name)s {} {0}",
    "$1 :name \\", "a'b\"c`d", "{a,b}", "NULL", "x" * 3000, "Bremse 🚗 ß", "../../etc", "' OR 1=1 --",
]  # fmt: skip


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


def test_directions_of_the_shipped_model(url: str, tmp_path: Path) -> None:
    model = rv.load()
    with Index.build(FORMULAE[:20], url, library="a", vectors=model.directions) as index:
        index.save(tmp_path / "file")
    with Index.open(url, library="a") as ours, Index.open(tmp_path / "file") as other:
        assert ours._backend.facts.dimension == 96  # short enough to be their own compact vectors
        for index in (ours, other):
            assert index.add(FORMULAE[20:25]) == [21, 22, 23, 24, 25]
        found, expected = (index.search(FORMULAE[:25], 3) for index in (ours, other))
        for i, (one, two) in enumerate(zip(found, expected, strict=True), 1):
            assert np.allclose([h.similarity for h in one], [h.similarity for h in two], atol=1e-5)
            assert one[0].similarity > 0.9999 and i in [hit.id for hit in one]
        ours.verify()
    with pytest.raises(
        RhovecError, match=r"holds vectors of the model .*, not of .*; open it with vectors="
    ):
        Index.open(url, library="a", vectors=rv.StlKernel(n_traces=96))


def test_the_graph_and_the_full_scan_find_the_nearest(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare tag, which a search in the graph hardly meets."""
    n, maker = 3000, Hashed(256)
    name = url.rpartition("/")[2]
    execute(url, f"ALTER DATABASE {name} SET enable_seqscan = off")  # else it scans so few
    texts = [formula(i) for i in range(n)]
    tags = [["rare"] if i % 500 == 0 else ["common"] for i in range(n)]
    with Index.build(texts, url, library="large", vectors=maker, tags=tags) as index:
        vectors = maker.embed([rv.parse(text) for text in texts])
        points = np.random.default_rng(0).normal(size=(20, 256)).astype(np.float32)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        plan = str(_plan(index, points[0]))
        assert "entries_1_graph" in plan, plan
        for chosen, options, compared in (
            (np.arange(n), {}, 0), (np.arange(0, n, 500), {"tags": "rare"}, 0),
            (np.arange(0, n, 500), {"tags": "rare"}, 50_000),
        ):  # fmt: skip
            monkeypatch.setattr(server, "MAX_COMPARED", compared)  # 0: the graph, then a scan
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


def test_memory_to_build_a_graph(url: str) -> None:
    """Enough for the library, or what the server allows if that is more."""
    with Index.build(["x_0 > 0"], url, library="l", vectors=Hashed(200)) as index:
        backend: Any = index._backend
        for own, entries, expected in (("1MB", 10, "64MB"), ("1MB", 10**6, "1562500kB"),
                                       ("5GB", 10**6, "5GB")):  # fmt: skip
            with backend._database.writing():
                backend._begin()
                backend._database.rows(f"SET LOCAL maintenance_work_mem = '{own}'")
                backend._database.rows("DROP INDEX rhovec.entries_1_graph")
                backend._create_graph(entries)
                found = backend._database.rows("SELECT current_setting('maintenance_work_mem')")
                assert found == [(expected,)]


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
            assert repr(index).startswith(f"Index(library {name!r} in ")
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
            for use in (
                lambda: index.add(replace(entries[0], title=bad)),  # noqa: B023
                lambda: index.search("x > 0", tags=bad),  # noqa: B023
            ):
                with pytest.raises(RhovecError, match=r"cannot take a text|no valid Unicode"):
                    use()
        with pytest.raises(RhovecError, match=r"a tag .* is too long for the server"):
            index.add("x > 1", tags=secrets.token_hex(5000))
        assert len(index.search("x > 0", 10**30)) == len(HOSTILE)
        assert len(index) == len(HOSTILE) and index.add("x > 7") == len(HOSTILE) + 4
    with pytest.raises(RhovecError, match=r"a name.* is too long for the server"):
        Index.build(entries, url, library=secrets.token_hex(5000), vectors=Hashed())
    for name in HOSTILE[1:]:
        database.remove(url, name)
    assert database.libraries(url) == {HOSTILE[0]: len(HOSTILE) + 1}
    with pytest.raises(RhovecError, match="has no library 'x'"):
        database.remove(url, "x")


def test_an_error_among_the_formulae_leaves_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "CHUNK", 20)

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
