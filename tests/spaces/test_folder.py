"""The folder of a space: what is saved comes back or is refused, also after kills and beside others."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.files import read_file, write_file
from rhovec.spaces import store

from ..models.tiny import save_tiny
from .plant import NAMES, TEXTS, drives


def test_a_space_comes_back_as_it_was(space: rv.Space, folder: Path) -> None:
    again = rv.load(folder)
    assert isinstance(again, rv.Space)
    assert again.fingerprint == space.fingerprint
    assert again.embed(TEXTS).tobytes() == space.embed(TEXTS).tobytes()
    assert repr(again) == repr(space)
    assert again.schema == space.schema


def test_saving_replaces_a_space_and_nothing_else(space: rv.Space, folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    other = rv.Space.fit(drives(seed=5), NAMES)
    other.save(folder)
    assert rv.load(folder).fingerprint == other.fingerprint
    assert len(list(folder.iterdir())) == 3
    (folder / "config.json").write_text("{}")
    with pytest.raises(RhovecError, match="there is a model in this folder"):
        space.save(folder)


def rewritten(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """A folder with another description, and a digest that fits it."""

    def apply(folder: Path) -> None:
        path = folder / store.DESCRIPTION
        content = json.loads(path.read_text())
        change(content)
        content[store.DIGEST] = store.digest_of(content)
        path.write_text(json.dumps(content))

    return apply


def rearranged(change: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    """A folder with other arrays, and a hash that fits them."""

    def apply(folder: Path) -> None:
        import hashlib

        path = folder / store.DESCRIPTION
        content = json.loads(path.read_text())
        arrays = from_bytes((folder / content["data"]).read_bytes())
        change(arrays)
        data = to_bytes(arrays)
        (folder / content["data"]).write_bytes(data)
        content["sha256"] = hashlib.sha256(data).hexdigest()
        content[store.DIGEST] = store.digest_of(content)
        path.write_text(json.dumps(content))

    return apply


def no_data(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()


def garbage(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.write_bytes(b"\x80\x04" + path.read_bytes()[2:])


STRANGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no JSON": (lambda f: (f / store.DESCRIPTION).write_text("{"), "is not JSON"),
    "deep JSON": (lambda f: (f / store.DESCRIPTION).write_text("[" * 10**5), "is not JSON"),
    "a list": (lambda f: (f / store.DESCRIPTION).write_text("[]"), "does not describe a space"),
    "another format": (rewritten(lambda c: c.update(format=9)), "reads 1"),
    "another kernel": (rewritten(lambda c: c.update(kernel="x")), "kernel must be"),
    "sigma2": (rewritten(lambda c: c.update(sigma2=-1)), "sigma2 must be"),
    "facts": (rewritten(lambda c: c["facts"].update(error="small")), "facts must be"),
    "a path": (rewritten(lambda c: c.update(data="../../etc/passwd")), "must name a file"),
    "schema": (rewritten(lambda c: c["schema"]["channels"][0].update(std=0)), "std of channel"),
    "fewer channels": (rewritten(lambda c: c["schema"]["channels"].pop()), "do not fit"),
    "an expression": (
        rewritten(lambda c: c["schema"]["channels"][0].update(expression="2 * speed")),
        "a channel per variable",
    ),
    "no data": (no_data, "cannot be read"),
    "other data": (garbage, "not those that were saved"),
    "NaN": (rearranged(lambda a: a["traces"].fill(np.nan)), "finite numbers"),
    "doubles": (rearranged(lambda a: a.update(traces=a["traces"].astype(float))), "float32"),
    "other directions": (rearranged(lambda a: a["directions"].fill(0.1)), "not orthonormal"),
    "no directions": (rearranged(lambda a: a.pop("directions")), "traces and directions"),
    "few traces": (
        rearranged(lambda a: a.update(traces=a["traces"][:9], directions=a["directions"][:9])),
        "33 to 4096 traces",
    ),
    "other shapes": (rearranged(lambda a: a.update(traces=a["traces"][0])), "three axes"),
    "a number": (rearranged(lambda a: a.update(traces=np.array(3, np.float32))), "three axes"),
    "no schema": (rewritten(lambda c: c.pop("schema")), "no schema in it"),
    "a huge number": (rewritten(lambda c: c.update(sigma2=10**400)), "sigma2 must be"),
    "a huge fact": (rewritten(lambda c: c["facts"].update(seed=10**400)), "facts must be"),
    "no sense": (rewritten(lambda c: c["facts"].update(error=-5)), "facts must be"),
    "no description": (lambda f: (f / store.DESCRIPTION).unlink(), "neither space.json"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_folder_from_a_stranger_is_refused(folder: Path, name: str) -> None:
    damage, message = STRANGE[name]
    damage(folder)
    with pytest.raises(RhovecError, match=message):
        rv.load(folder)
    with pytest.raises(RhovecError):
        rv.Space.load(folder)


@pytest.mark.parametrize("path", ["nowhere", "", "x" * 5000, "/dev/null", "a\0b"])
def test_what_is_no_folder_is_refused(path: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for load in (rv.load, rv.Space.load):
        with pytest.raises(RhovecError, match=r"is not a folder|in this folder|name of a space"):
            load(path)


@pytest.mark.parametrize("path", [3, True, b"a", ["a"], "a\0b"])
def test_what_is_no_path_is_refused(path: Any, space: rv.Space) -> None:
    for save in (rv.load().save, space.save):
        with pytest.raises(RhovecError, match=r"path must be the name of a (space|model).*, not "):
            save(path)
    for load in (rv.load, rv.Space.load):
        with pytest.raises(RhovecError, match=r"path must be the name of a space.*, not "):
            load(path)


def test_a_flipped_bit_is_noticed(folder: Path, space: rv.Space) -> None:
    path = folder / store.DESCRIPTION
    saved = path.read_bytes()
    for place in range(0, len(saved), 3):
        damaged = bytearray(saved)
        damaged[place] ^= 1 << (place % 7)
        path.write_bytes(damaged)
        try:
            loaded = rv.load(folder)
        except RhovecError:
            continue
        assert loaded._content.facts == space._content.facts  # it was white space
        assert loaded.fingerprint == space.fingerprint


SAVING = """
import sys, rhovec as rv
one, two = rv.load(sys.argv[1]), rv.load(sys.argv[2])
print("begun", flush=True)
while True:
    one.save(sys.argv[3])
    two.save(sys.argv[3])
"""


@pytest.mark.parametrize("savers", [1, 2])
def test_a_kill_leaves_the_old_space_or_the_new_one(
    space: rv.Space, folder: Path, savers: int
) -> None:
    other, target = folder.parent / "other", folder.parent / "target"
    rv.Space.fit(drives(seed=5), NAMES).save(other)
    assert kill_while_saving(folder, other, target, 4, savers=savers)["kills"] == 4
    space.save(target)
    assert len(list(target.iterdir())) == 2


def kill_while_saving(
    one: Path, two: Path, target: Path, n: int, seed: int = 0, savers: int = 1
) -> dict[str, int]:
    """Kill n processes, or groups of them, that save two spaces in turn; after each there must be one
    of the two.
    """
    shutil.copytree(one, target)
    names = {rv.load(path).fingerprint: path.name for path in (one, two)}
    found: Counter[str] = Counter(kills=n)
    chance = random.Random(seed)
    for _ in range(n):
        with ExitStack() as stack:
            processes = [
                stack.enter_context(subprocess.Popen(
                    [sys.executable, "-c", SAVING, str(one), str(two), str(target)],
                    stdout=subprocess.PIPE,
                ))
                for _ in range(savers)
            ]  # fmt: skip
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == b"begun\n"
            time.sleep(chance.uniform(0, 0.05))
            for process in processes:
                process.send_signal(signal.SIGKILL)
        found[names[rv.load(target).fingerprint]] += 1  # KeyError: it is neither
        found["two data files"] += len(list(target.glob("*.safetensors"))) > 1
    found["temporary files left"] = len(list(target.glob(".rhovec-*.tmp")))
    return dict(found)


KILLED = """
import os, signal, sys, rhovec as rv
from rhovec.files import filling
from rhovec.spaces import store
write = store.write_file
def killed(path, data, **options):
    if path.name == store.DESCRIPTION:
        print("begun", flush=True)
        sys.stdin.readline()
    write(path, data, **options)
    if path.name == store.DESCRIPTION:
        with filling(path, **options) as temporary:
            temporary.write_bytes(b"traces")
            os.kill(os.getpid(), signal.SIGKILL)
store.write_file = killed
rv.load(sys.argv[1]).save(sys.argv[2])
"""


def test_a_saver_waits_for_another_and_removes_what_it_leaves_if_it_is_killed(
    space: rv.Space, folder: Path
) -> None:
    target = folder.parent / "target"
    other = rv.Space.fit(drives(seed=5), NAMES)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(target)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"begun\n"
        saving = threading.Thread(target=other.save, args=(target,))
        saving.start()
        saving.join(0.3)  # it would be done, and have removed the data of the one that is killed
        assert saving.is_alive()
        process.stdin.close()
    assert process.returncode == -signal.SIGKILL
    saving.join()
    assert rv.load(target).fingerprint == other.fingerprint
    assert len(list(target.iterdir())) == 2


def test_without_locks_two_programs_that_save_at_once_leave_a_whole_space(
    space: rv.Space, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = rv.Space.fit(drives(seed=5), NAMES)
    monkeypatch.setattr("fcntl.flock", no_locks)

    def write(path: Path, data: bytes, locked: bool) -> None:
        assert not locked
        if path.name == store.DESCRIPTION:  # the other program gets there first
            monkeypatch.setattr(store, "write_file", write_file)
            other.save(folder)
        write_file(path, data)

    monkeypatch.setattr(store, "write_file", write)
    space.save(folder)
    assert rv.load(folder).fingerprint == space.fingerprint


def test_a_space_that_others_save_meanwhile_is_read(
    space: rv.Space, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs may replace the space several times between description and data."""
    spaces = [rv.Space.fit(drives(seed=5), NAMES), space]
    saved = 0

    def read(path: Path | str) -> bytes:
        nonlocal saved
        content = read_file(path)
        if str(path).endswith(store.DESCRIPTION) and saved < 5:
            spaces[saved % 2].save(folder)
            saved += 1
        return content

    monkeypatch.setattr(store, "read_file", read)
    assert rv.load(folder).fingerprint == spaces[0].fingerprint
    assert saved == 5


@pytest.mark.parametrize("locks", [True, False])
def test_saving_removes_what_a_kill_left_behind(
    space: rv.Space, folder: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    if not locks:
        monkeypatch.setattr("fcntl.flock", no_locks)
    names = (f".rhovec-{'0' * 16}.tmp", f".rhovec-{'1' * 16}.tmp",
             f".rhovec-locked-{'2' * 16}.tmp", ".rhovec-notes.tmp")  # fmt: skip
    old, new, saver, other = (folder / name for name in names)
    for path in (old, new, saver, other):
        path.write_bytes(b"traces")
    for path in (old, other):
        os.utime(path, (time.time() - 100_000,) * 2)
    space.save(folder)
    assert not old.exists() and other.exists()
    assert new.exists()  # which somebody may be writing
    assert saver.exists() != locks


def no_locks(*_: Any) -> None:
    raise OSError(errno.ENOLCK, "no locks")


def test_a_folder_holds_a_space_or_a_model(space: rv.Space, folder: Path) -> None:
    model = rv.load(save_tiny(folder.parent / "model"))
    before = sorted(folder.iterdir())
    with pytest.raises(RhovecError, match="there is a space in this folder; save the model in ano"):
        model.save(folder)
    assert sorted(folder.iterdir()) == before
