"""A library's file: durable, built by one program only, and damage to it noticed.

The soak suite (tests/soak) does the same with more kills, flipped bits and cuts.
"""

from __future__ import annotations

import gzip
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
from rhovec.search import Hit, Index, entries, rows
from rhovec.search import file as file_module

from .libraries import change
from .soak import harness

KERNEL = rv.StlKernel(n_traces=64)
FORMULAE = rv.random_formulae(400, 0)
DATA = Path(__file__).parent / "data"


def ids(hits: list[Hit]) -> list[int]:
    return [hit.id for hit in hits]


# -- one program, then another ----------------------------------------------------------------------

BUILT = """
import sys, rhovec as rv
from rhovec.search import Index, entries
entries.CHUNK = 1
path, name = sys.argv[1:]
def formulae():
    yield f"x_0 > {name}"
    yield f"x_1 > {name}"
    print("ready", flush=True)  # the file is almost complete
    sys.stdin.readline()
try:
    Index.build(formulae(), path, vectors=rv.StlKernel(n_traces=16)).close()
    print("built", name)
except rv.RhovecError as error:
    print(error)
"""
ADDING = """
import sys, rhovec as rv
from rhovec.search import Index
index = Index.open(sys.argv[1])
index.add(["x_2 > 5", "x_2 > 6"])
print("added", flush=True)
for line in sys.stdin:
    try:
        index.add("x_2 > 7")
        print("added", flush=True)
    except rv.RhovecError as error:
        print(error, flush=True)
index.close()
print("closed", flush=True)
"""


def start(code: str, *arguments: object) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(rv.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def texts(path: Path) -> list[str]:
    """All formulae of a library, which is as it should be."""
    with Index.open(path) as index:
        index.verify()
        hits = index.search("x_0 > 0", 1000)
        assert len(hits) == len(index)
        return sorted(str(hit.formula) for hit in hits)


@pytest.mark.parametrize("killed", [True, False])
def test_a_new_library_does_not_replay_the_log_of_an_old_one(tmp_path: Path, killed: bool) -> None:
    """Its main file was removed; a process that was killed, or still runs, has left its log."""
    path = tmp_path / "library"
    Index.build(FORMULAE[:5], path, vectors=KERNEL).close()
    with start(ADDING, path) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "added\n"
        if killed:
            process.kill()
            process.wait()
        assert Path(f"{path}-wal").stat().st_size
        path.unlink()
        index = Index.build(["x_0 > 1", "x_1 > 1"], path, vectors=KERNEL)
        index.add("x_2 > 1")
        if not killed:  # what it adds would be lost, so it is told
            process.stdin.write("\n")
            process.stdin.flush()
            assert "removed or replaced after it was opened" in process.stdout.readline()
            process.stdin.close()
            assert process.stdout.readline() == "closed\n"
        index.add("x_2 > 2")
        copied = tmp_path / "copy"  # what a kill now would leave
        copied.write_bytes(path.read_bytes())
        Path(f"{copied}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
        index.close()
    assert texts(copied) == texts(path) == ["x_0 > 1", "x_1 > 1", "x_2 > 1", "x_2 > 2"]


def test_of_two_that_build_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "library"
    with start(BUILT, path, 1) as one, start(BUILT, path, 2) as other:
        for process in (one, other):
            assert process.stdin and process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in (one, other):
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate()[0] for process in (one, other)]
    (winner,) = [line for line in said if line.startswith("built")]
    (loser,) = [line for line in said if not line.startswith("built")]
    assert "there is a file of this name already" in loser
    name = winner.split()[1]
    assert texts(path) == [f"x_0 > {name}", f"x_1 > {name}"]


def test_a_file_that_appears_during_a_build_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "CHUNK", 2)
    path = tmp_path / "library"

    def formulae() -> Iterator[Formula]:
        yield from FORMULAE[:5]
        path.write_text("mine")

    with pytest.raises(RhovecError, match="there is a file of this name already"):
        Index.build(formulae(), path, vectors=KERNEL)
    assert [p.name for p in tmp_path.iterdir()] == ["library"]
    assert path.read_text() == "mine"


def test_a_replaced_library_is_not_written_to(tmp_path: Path) -> None:
    path, other = tmp_path / "library", tmp_path / "other"
    Index.build(FORMULAE[:5], other, vectors=KERNEL).close()
    with Index.build(FORMULAE[:5], path, vectors=KERNEL) as index:
        other.replace(path)
        for use in (lambda: index.add("x_0 > 1"), lambda: index.delete(1), lambda: len(index)):
            with pytest.raises(RhovecError, match="removed or replaced after it was opened"):
                use()


# -- damage ----------------------------------------------------------------------------------------


def test_kills(tmp_path: Path) -> None:
    counted = harness.kills(tmp_path, 12, seed=1)
    assert counted["add confirmed"] > 0


def test_flipped_bits(tmp_path: Path) -> None:
    counted = harness.flips(tmp_path, 60)
    assert counted["noticed"] > 20


def test_cuts(tmp_path: Path) -> None:
    assert harness.cuts(tmp_path, limit=20)["noticed"] == 20


@pytest.mark.parametrize("bytes_lost", [1, 4000, 9000, 16_000, 16_384])
def test_a_file_that_lost_its_end_is_not_opened(tmp_path: Path, bytes_lost: int) -> None:
    path = tmp_path / "library"
    Index.build(FORMULAE[:300], path, vectors=KERNEL).close()
    path.write_bytes(path.read_bytes()[:-bytes_lost])
    with pytest.raises(RhovecError, match=r"cut short|damaged"):
        Index.open(path)


def test_a_row_of_another_library_is_noticed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Index.build(FORMULAE[:9], tmp_path / name, vectors=KERNEL).close()
    change(
        tmp_path / "one",
        ("ATTACH ? AS other", (str(tmp_path / "two"),)),
        ("UPDATE rows SET checksum = (SELECT checksum FROM other.rows o WHERE o.id = rows.id)", ()),
    )
    with Index.open(tmp_path / "one") as index, pytest.raises(RhovecError, match="damaged"):
        index.search("x_0 > 0")


def test_a_cache_of_another_moment_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library restored from a copy, while its cache stayed."""
    monkeypatch.setattr(file_module, "MAX_EXACT", 0)
    path = tmp_path / "library"
    with Index.build(FORMULAE[:50], path, vectors=KERNEL) as index:
        index.save(tmp_path / "copy")
        index.delete([1, 2, 3])
        index.add(FORMULAE[60:63])
        index.flush()
    (tmp_path / "copy").replace(path)
    with Index.open(path) as index:
        index.delete([4, 5, 6])
        index.add(FORMULAE[70:73])
        found = index.search(FORMULAE[70], 100)
    assert {hit.id for hit in found} == {*range(1, 54)} - {4, 5, 6}
    assert found[0].id == 51


# -- versions and types ----------------------------------------------------------------------------


def test_a_library_of_version_1_is_upgraded(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(gzip.decompress((DATA / "library-version-1.rhovec.gz").read_bytes()))
    before = old.read_bytes()
    with pytest.raises(RhovecError, match=r"version 1; .* `rhovec index upgrade OLD NEW`"):
        Index.open(old)
    with Index.upgrade(old, new) as index:
        index.verify()
        hits = index.search("x_0 > 0.1", 10)
    assert [(hit.id, hit.tags) for hit in hits] == [
        (1, ("a",)),
        (2, ("a", "b")),
        (3, ("b",)),
        (4, ()),
    ]
    similarities = [
        0.9741140007972717,
        0.9741140007972717,
        0.9677132368087769,
        0.012075145728886127,
    ]
    assert [hit.similarity for hit in hits] == pytest.approx(similarities)  # of version 1
    assert old.read_bytes() == before
    with pytest.raises(RhovecError, match="of this name already"):
        Index.upgrade(old, new)
    with pytest.raises(RhovecError, match="not a rhovec library of version 1"):
        Index.upgrade(new, tmp_path / "newer")
    change(old, ("DELETE FROM vectors WHERE id = 1", ()))
    with pytest.raises(RhovecError, match="entries are missing"):
        Index.upgrade(old, tmp_path / "newer")
    size = "(SELECT seq FROM sqlite_sequence)"
    change(
        old,
        ("DELETE FROM rows", ()),
        (f"UPDATE facts SET value = {size} WHERE name = 'deleted'", ()),
    )
    with Index.upgrade(old, tmp_path / "empty") as index:
        assert len(index) == 0 and index.search("x_0 > 0.1") == []
        assert index.add("x_0 > 1") == 1
    (tmp_path / "empty").unlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]


def test_float16_halves_the_file_and_moves_similarities_little(tmp_path: Path) -> None:
    kernel = rv.StlKernel(n_traces=500, exponentiated=False)  # similarities are inner products
    found = {}
    for stored in ("float32", "float16"):
        path = tmp_path / stored
        with Index.build(FORMULAE, path, vectors=kernel, stored=stored):
            pass
        with Index.open(path) as index:
            hits = index.search(FORMULAE[:9], 400)
            found[stored] = [{hit.id: hit.similarity for hit in each} for each in hits]
            assert [each[0].similarity for each in hits] == pytest.approx([1] * 9, abs=1e-6)
    errors = [
        abs(one[i] - other[i])
        for one, other in zip(found["float32"], found["float16"], strict=True)
        for i in one
    ]
    assert 0 < max(errors) < 1e-3
    sizes = [(tmp_path / name).stat().st_size for name in ("float16", "float32")]
    assert sizes[0] < 0.6 * sizes[1]
    with pytest.raises(
        RhovecError, match='stored must be "float32", "float16" or "int8", not \'int4\''
    ):
        Index.build(FORMULAE[:9], vectors=kernel, stored="int4")  # type: ignore[arg-type]


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
    monkeypatch.setattr(entries, "CHUNK", 2)
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
        with pytest.raises(RhovecError, match=r"not a rhovec library|damaged"):
            Index.open(path)
        assert path.read_bytes() == content
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value)")
    database.close()
    with pytest.raises(RhovecError, match="not a rhovec library of version"):
        Index.open(path)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END", "not a rhovec library"),
        ("CREATE VIEW w AS SELECT load_extension('x')", "not a rhovec library"),
        ("PRAGMA user_version=3", "not a rhovec library of version 2"),
        ("DELETE FROM facts", "description is damaged"),
        ("UPDATE facts SET facts = replace(facts, '64', '65')", "description is damaged"),
        ("UPDATE facts SET identity = 'ff'", "description is damaged"),
        ("UPDATE facts SET traces = x'00'", "description is damaged"),
        ("UPDATE state SET last = 8", "state is damaged"),
        ("UPDATE state SET deletions = 1", "state is damaged"),
        ("UPDATE state SET digest = digest + 1", "state is damaged"),
        ("DELETE FROM state", "state is damaged"),
        ("UPDATE rows SET vector = zeroblob(256) WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET vector = 'text' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET vector = (SELECT vector FROM rows WHERE id = 4) WHERE id = 3", "entry 3"),
        ("UPDATE rows SET formula = 'x_0 >= 0' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET requirement = 'REQ-1' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET title = 'Stop' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET source = 'r.stl:3' WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET depth = depth + 1 WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET label = 99 WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET checksum = checksum + 1 WHERE id = 3", "entry 3 is damaged"),
        ("UPDATE rows SET id = 10 WHERE id = 3", "missing or not its own"),
        ("DELETE FROM rows WHERE id = 9", "missing or not its own"),
        ("INSERT INTO rows SELECT 9, formula, requirement, title, source, depth, label, checksum, "
         "vector FROM rows WHERE true ON CONFLICT DO UPDATE SET formula = 'x_0 > 1'", "damaged"),
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
    kernel = rv.StlKernel(rv.TraceMeasure(np.random.default_rng(0).normal(size=(9, 1, 5))))
    Index.build(["x_0 > 0"], path, vectors=kernel).close()
    stream = io.BytesIO()
    np.save(stream, np.array([Bomb()], object), allow_pickle=True)
    change(path, ("UPDATE facts SET traces = ?", (stream.getvalue(),)), sealed=True)
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
