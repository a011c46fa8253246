"""A library's file: durable, built by one program only, and damage to it noticed.

The soak suite (tests/soak) does the same with more kills, flipped bits and cuts.
"""

from __future__ import annotations

import io
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula import Formula
from rhovec.search import Hit, Index, rows
from rhovec.search import file as file_module
from rhovec.search import index as index_module

from .libraries import change

KERNEL = rv.StlKernel(n_signals=64)
FORMULAE = rv.random_formulae(400, 0)


def ids(hits: list[Hit]) -> list[int]:
    return [hit.id for hit in hits]


KILLED = """
import sys, rhovec as rv
from rhovec.search import Index
with Index.open(sys.argv[1]) as index:
    for i in range(10_000):
        ids = index.add([f"x_0 > {i}", f"x_1 > {i}", f"x_2 > {i}"], tags=str(i))
        print(*ids, flush=True)
"""


@pytest.mark.parametrize("confirmed", [1, 4, 9])
def test_killed_during_add_it_keeps_what_was_confirmed(tmp_path: Path, confirmed: int) -> None:
    path = tmp_path / "library"
    Index.build(FORMULAE[:5], path, vectors=KERNEL).close()
    environment = {**os.environ, "PYTHONPATH": str(Path(rv.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, path], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(confirmed)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
    assert process.returncode == -signal.SIGKILL
    told = [int(i) for line in lines if line.endswith("\n") for i in line.split()]
    assert len(told) >= 3 * confirmed
    with Index.open(path) as index:
        assert len(index) % 3 == 5 % 3  # no add is there in part
        held = {hit.id: hit for hit in index.search("x_0 > 0", 100_000)}
        assert set(told) <= set(held)
        assert len(held) == len(index)
        assert all(held[i].tags == (str((i - 6) // 3),) for i in told)
        assert str(held[told[-1]].formula) == f"x_2 > {(told[-1] - 6) // 3}"
        assert index.add("x_0 > 1") == max(held) + 1


def test_readers_do_not_wait_and_writers_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "WAIT", 0.05)
    monkeypatch.setattr(index_module, "CHUNK", 2)
    path = tmp_path / "library"
    seen = []
    with Index.build(FORMULAE[:10], path, vectors=KERNEL) as index, Index.open(path) as other:

        def formulae() -> Iterator[Formula]:
            for i, phi in enumerate(FORMULAE[10:20]):
                if i >= 4:  # the first two chunks are written, but not confirmed
                    seen.append((len(other), len(other.search(phi, 100))))
                    with pytest.raises(RhovecError, match="another program is writing"):
                        other.add(phi)
                yield phi

        index.add(formulae())
        assert seen == [(10, 10)] * 6
        assert len(other) == len(other.search(FORMULAE[0], 100)) == 20
        assert other.add(FORMULAE[0]) == 21


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(RhovecError, match="there is no library"):
        Index.open(path)
    with pytest.raises(RhovecError, match="cannot be read: Is a directory"):
        Index.open(tmp_path)
    for content in (b"", b"x_0 > 0\n", bytes(range(256)) * 20, b"SQLite format 3\0" + bytes(5000)):
        path.write_bytes(content)
        with pytest.raises(RhovecError, match=r"no rhovec library|damaged"):
            Index.open(path)
        assert path.read_bytes() == content
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value)")
    database.close()
    with pytest.raises(RhovecError, match="no rhovec library of version"):
        Index.open(path)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END", "no rhovec library"),
        ("CREATE VIEW w AS SELECT load_extension('x')", "no rhovec library"),
        ("PRAGMA user_version=3", "no rhovec library of version 2"),
        ("DELETE FROM facts", "description is damaged"),
        ("UPDATE facts SET facts = replace(facts, '64', '65')", "description is damaged"),
        ("UPDATE facts SET identity = 'ff'", "description is damaged"),
        ("UPDATE facts SET signals = x'00'", "description is damaged"),
        ("UPDATE state SET last = 8", "state is damaged"),
        ("UPDATE state SET deletions = 1", "state is damaged"),
        ("UPDATE state SET digest = digest + 1", "state is damaged"),
        ("DELETE FROM state", "state is damaged"),
        ("UPDATE rows SET vector = zeroblob(256) WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET vector = 'text' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET vector = (SELECT vector FROM rows WHERE id = 4) WHERE id = 3", "entry 3"),
        ("UPDATE rows SET formula = 'x_0 >= 0' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET requirement = 'REQ-1' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET depth = depth + 1 WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET label = 99 WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET checksum = checksum + 1 WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET id = 10 WHERE id = 3", "missing or not its own"),
        ("DELETE FROM rows WHERE id = 9", "missing or not its own"),
        ("INSERT INTO rows SELECT 9, formula, requirement, depth, label, checksum, vector FROM rows "
         "WHERE true ON CONFLICT DO UPDATE SET formula = 'x_0 > 1'", "damaged"),
        ("UPDATE labels SET tags = '[\"a\"]'", "tags are damaged"),
        ("DELETE FROM labels", "tags are damaged"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("large", [False, True])
def test_a_tampered_library_is_refused(
    tmp_path: Path, statement: str, words: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(file_module, "MAX_EXACT", 0)
    path = tmp_path / "library"
    Index.build(FORMULAE[:9], path, vectors=KERNEL).close()
    change(path, (statement, ()))
    with pytest.raises(RhovecError, match=words), Index.open(path) as index:
        index.search("x_0 > 0", 9)
    with pytest.raises(RhovecError, match=words), Index.open(path) as index:
        index.verify()


class Bomb:
    def __reduce__(self) -> tuple:
        return (print, ("executed",))


def test_a_strangers_library_executes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "library"
    kernel = rv.StlKernel(rv.Trajectories(np.random.default_rng(0).normal(size=(9, 1, 5))))
    Index.build(["x_0 > 0"], path, vectors=kernel).close()
    stream = io.BytesIO()
    np.save(stream, np.array([Bomb()], object), allow_pickle=True)
    change(path, ("UPDATE facts SET signals = ?", (stream.getvalue(),)), sealed=True)
    with pytest.raises(RhovecError, match="description is damaged"):
        Index.open(path)
    assert capsys.readouterr().out == ""


def test_a_read_only_library_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "library"
    Index.build(FORMULAE[:9], path, vectors=KERNEL).close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # what a file of someone else's says
    with Index.open(path) as index:
        assert ids(index.search(FORMULAE[3], 1)) == [4]
        with pytest.raises(RhovecError, match="read-only"):
            index.add("x_0 > 0")
    assert [p.name for p in tmp_path.iterdir()] == ["library"]
