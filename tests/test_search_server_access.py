"""Who reaches a library in PostgreSQL, and how: URLs, passwords, roles, versions."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhovec.cli import app
from rhovec.errors import RhovecError
from rhovec.search import Index, database
from rhovec.search.database import READER, WRITER

from .servers import Postgres, execute, value
from .soak.harness import Hashed, formula


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
    for odd in (
        "mysql://postgres:hunter2@h/d", " postgresql://postgres:hunter2@h/d",
        "POSTGRESQL://postgres:hunter2@h/d", "host=h user=postgres password=hunter2",
        f"{url}?sslpassword=hunter2", Path("postgresql://postgres:hunter2@h/d"),
    ):  # fmt: skip
        for use in (
            lambda: Index.open(odd, library="a"),  # noqa: B023
            lambda: Index.build(["x > 1"], odd, library="a", vectors=Hashed()),  # noqa: B023
            lambda: Index.open(odd),  # noqa: B023
        ):
            with pytest.raises(
                RhovecError, match=r"cannot be read|leave the pass|library must"
            ) as caught:
                use()
            assert "hunter2" not in str(caught.value)
        for arguments in (["search", "x > 1"], ["search", "x > 1", "--library", "a"], ["list"]):
            verb, *rest_of = arguments
            result = CliRunner().invoke(app, ["index", verb, str(odd), *rest_of])
            assert result.exit_code == 2 and "hunter2" not in result.output, result.output
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
