"""Atomic writing of files: complete and on disk, or not there at all.

New content goes to a temporary file in the same folder, under a name that nobody can predict and that
is only ever created, never reused. It is flushed to disk and then takes its place in one step. After
an exception the temporary file is removed; after a kill it may be left behind, as `.rhovec-*.tmp`, until
`remove_leftovers(folder)` finds it a day later.

    write_file(path, data)                       bytes
    with writing(path) as stream: ...            a binary stream
    with filling(path) as temporary: ...         the name of an empty file, for code that wants a path
    read_file(path)                              bytes, or a RhovecError that says why not

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

TEMPORARY = ".rhovec-*.tmp"
LEFT_BEHIND = 86_400  # seconds after which nobody is still writing a file


def read_file(path: str | Path) -> bytes:
    """The content of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None


def separator_of(header: str) -> str:
    """What separates the cells of a small table: what its first line has most of , ; and tabs."""
    return max(",;\t", key=header.count)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of programs that were killed while they wrote into a folder."""
    for path in folder.glob(TEMPORARY.replace("*", 16 * "[0-9a-f]")):
        with suppress(OSError):  # somebody else has removed it
            if time.time() - path.lstat().st_mtime > LEFT_BEHIND:
                path.unlink()


def write_file(path: Path, data: bytes) -> None:
    """Write or replace a file."""
    with writing(path) as stream:
        stream.write(data)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary stream whose content becomes the file."""
    with filling(path) as temporary, temporary.open("wb") as stream:
        yield stream


@contextmanager
def filling(
    path: Path, *, new: bool = False, before: Callable[[], object] | None = None
) -> Iterator[Path]:
    """Yield the path of an empty file that becomes `path` when the block ends without an exception.

    new: never replace a file: FileExistsError at the start, or at the end if one has come meanwhile.
    before: called just before the file takes its place; with `new`, when the place is already ours.
    """
    if new and os.path.lexists(path):
        raise FileExistsError(EEXIST, os.strerror(EEXIST), str(path))
    temporary = path.parent / TEMPORARY.replace("*", secrets.token_hex(8))
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
