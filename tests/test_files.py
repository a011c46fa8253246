"""Atomic writing: whole or not at all, and no file of anybody else's touched."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rhovec import files
from rhovec.files import filling, locked, write_file, writing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"one")
    assert path.read_bytes() == b"one"
    with writing(path) as stream:
        stream.write(b"two")
        assert path.read_bytes() == b"one"
    assert path.read_bytes() == b"two"
    with filling(path) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_bytes(b"three")
    assert path.read_bytes() == b"three"
    assert names(tmp_path) == ["file"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("old", [b"old", None])
def test_a_failure_leaves_what_was_there(tmp_path: Path, old: bytes | None) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)

    def interrupted() -> None:
        with writing(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == ([] if old is None else ["file"])
    assert old is None or path.read_bytes() == old
    with pytest.raises(OSError, match="No such file"):
        write_file(tmp_path / "no" / "file", b"")


def test_temporary_names_are_never_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    old_names = (f".file.{os.getpid()}.tmp", "_file.tmp")  # could be predicted, and were reused
    for name in old_names:
        (tmp_path / name).write_text("mine")
    write_file(path, b"data")
    assert [(tmp_path / name).read_text() for name in old_names] == ["mine", "mine"]
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".rhovec-guessed.tmp").write_text("mine")
    with pytest.raises(FileExistsError):
        write_file(path, b"other")
    assert (tmp_path / ".rhovec-guessed.tmp").read_text() == "mine"
    assert path.read_bytes() == b"data"


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = []
    with filling(path, new=True, before=lambda: before.append(path.stat().st_size)) as temporary:
        temporary.write_bytes(b"data")
        assert not path.exists()
    assert before == [0]  # the name was claimed
    assert path.read_bytes() == b"data"

    def fill() -> None:
        with filling(path, new=True) as temporary:
            temporary.write_bytes(b"other")
            path.write_text("mine")  # somebody is quicker

    with pytest.raises(FileExistsError):
        fill()
    path.unlink()
    with pytest.raises(FileExistsError):
        fill()
    assert path.read_text() == "mine"
    path.unlink()

    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"), filling(path, new=True, before=fail):
        pass
    assert names(tmp_path) == []


HOLDING = """
import sys
from pathlib import Path
from rhovec.files import locked
with locked(Path(sys.argv[1])) as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        with pytest.raises(BlockingIOError), locked(tmp_path, wait=False):
            pass
        process.kill()
        with locked(tmp_path) as held:
            assert held


def test_data_are_on_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "file", []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append((os.fstat(handle).st_mode, path.exists()))
    )
    write_file(path, b"data")
    (file, there), (folder, named) = synced
    assert (stat.S_ISREG(file), there) == (True, False)
    assert (stat.S_ISDIR(folder), named) == (True, True)
