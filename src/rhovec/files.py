"""Atomic writing of files: complete and on disk, or not there at all.

New content goes to a temporary file in the same folder, under a name that nobody can predict and that
is only ever created, never reused. It is flushed to disk and then takes its place in one step. After
an exception the temporary file is removed; after a kill it may be left behind, as `.rhovec-*.tmp`, until
`remove_leftovers(folder)` finds it a day later. Code that holds the folder's lock uses other names,
`.rhovec-locked-*.tmp`. Whoever takes the lock next removes these at once: nobody else can be writing
them, and they may hold confidential traces.

    write_file(path, data)                       bytes
    with writing(path) as stream: ...            a binary stream
    with filling(path) as temporary: ...         the name of an empty file, for code that wants a path
    read_file(path)                              bytes, or a RhovecError that says why not
    with locked(folder) as held: ...             one at a time; write_file(path, data, locked=held)

Each replaces an existing file, keeping the old one until the new one is complete. `filling` with
`new=True` raises FileExistsError instead, even if two programs get there at the same time.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST
from pathlib import Path
from typing import IO

from .errors import RhovecError

TEMPORARY, LOCKED = ".rhovec-*.tmp", ".rhovec-locked-*.tmp"
LEFT_BEHIND = 86_400  # seconds after which nobody is still writing a file


def as_folder(path: object, what: str) -> Path:
    """The path of a folder that was given. what: it holds."""
    if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
        raise RhovecError(f"path must be the name of {what} or of its folder, not {path!r:.80}")
    return Path(path)


def read_file(path: str | Path) -> bytes:
    """The content of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None


def separator_of(header: str) -> str:
    """What separates the cells of a small table: what its first line has most of , ; and tabs."""
    return max(",;\t", key=header.count)


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a folder against others who lock it; the system ends the lock with the process.

    wait: for those who have locked it; otherwise BlockingIOError. Yields whether the lock is held: on
    file systems without locks it is not, and nobody is kept out.
    """
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            raise
        except OSError:
            held = False
        try:
            yield held
        finally:
            if held:  # a process that was forked meanwhile has the handle, too
                fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path, locked: bool = False) -> None:
    """Remove the temporary files of programs that were killed while they wrote into a folder.

    locked: the caller holds the lock of the folder.
    """
    for name in (TEMPORARY, LOCKED):
        for path in folder.glob(name.replace("*", 16 * "[0-9a-f]")):
            with suppress(OSError):  # somebody else has removed it
                age = time.time() - path.lstat().st_mtime
                if age > LEFT_BEHIND or (locked and name == LOCKED):
                    path.unlink()


def write_file(path: Path, data: bytes, *, locked: bool = False) -> None:
    """Write or replace a file. locked: the caller holds the lock of its folder."""
    with filling(path, locked=locked) as temporary, temporary.open("wb") as stream:
        stream.write(data)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary stream whose content becomes the file."""
    with filling(path) as temporary, temporary.open("wb") as stream:
        yield stream


@contextmanager
def filling(
    path: Path,
    *,
    new: bool = False,
    before: Callable[[], object] | None = None,
    locked: bool = False,
) -> Iterator[Path]:
    """Yield the path of an empty file that becomes `path` when the block ends without an exception.

    new: never replace a file: FileExistsError at the start, or at the end if one has come meanwhile.
    before: called just before the file takes its place; with `new`, when the place is already ours.
    locked: the caller holds the lock of the folder.
    """
    if new and os.path.lexists(path):
        raise FileExistsError(EEXIST, os.strerror(EEXIST), str(path))
    temporary = path.parent / (LOCKED if locked else TEMPORARY).replace("*", secrets.token_hex(8))
    temporary.open("xb").close()
    claimed = False
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        if new:  # an exclusive empty file; hard links and locks do not exist on every file system
            path.open("xb").close()
            claimed = True
        if before:
            before()
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()  # still there: something went wrong
            if claimed:
                path.unlink()


def _sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
