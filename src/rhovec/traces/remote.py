"""Files in object storage and on this machine, by one kind of name: a path, or s3://bucket/runs.

Reading and listing go through pyarrow's file systems, which take credentials from the environment. An
endpoint that is not Amazon's is part of the name, s3://bucket/runs?endpoint_override=host:port, or in
AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RhovecError, TraceError, needed
from ..formula.core import natural_key
from .logs import READERS, PathLike, as_paths, chosen

ATTEMPTS, PAUSE = 6, 0.1  # at a store that fails; seconds, which double
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
# A Path turns s3:// into s3:/, and paths on the command line are Paths.
_REMOTE = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}(?=[^/])")


class Stored(NamedTuple):
    """A file somewhere."""

    name: str  # a path, or a name with a scheme
    size: int  # bytes
    changed: int  # nanoseconds

    @property
    def suffix(self) -> str:
        return Path(self.name.partition("?")[0]).suffix.lower()


def remote_name(path: PathLike) -> str | None:
    """The name of a file or folder in object storage; None for a path of this machine."""
    text = str(path)
    found = _REMOTE.match(text)
    return f"{found[1]}://{text[found.end() :]}" if found else None


def file_system(name: str) -> tuple[Any, str]:
    """pyarrow's file system for a name, and the path in it."""
    fs = needed("pyarrow.fs", "reading and writing files in such runs", "data")
    import pyarrow

    if remote_name(name) is None:
        return fs.LocalFileSystem(), str(Path(name).absolute())
    try:
        system, path = fs.FileSystem.from_uri(name)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"{name}: {first_line(error)}") from None
    return system, path


def find_stored(
    given: PathLike | Sequence[PathLike],
    suffixes: Collection[str] = tuple(READERS),
    named: Collection[str] | None = tuple(READERS),
) -> list[Stored]:
    """The files that are named, and those in and below folders that are, in a natural order, once each.

    suffixes: of files in folders; named: of files that are named (None: any).
    """
    files: list[Stored] = []
    for path in as_paths(given):
        name = remote_name(path) or str(Path(path).absolute())  # a worker has a folder of its own
        system, place = file_system(name)
        from pyarrow import fs

        bare, mark, query = name.partition("?")
        try:
            (info,) = patient(name, partial(system.get_file_info, [place.rstrip("/")]))
            if info.type == fs.FileType.Directory:
                below = fs.FileSelector(info.path, recursive=True)
                inside = {
                    one.path[len(info.path) :].lstrip("/"): one
                    for one in patient(name, partial(system.get_file_info, below))
                    if one.type == fs.FileType.File
                }
                found = [inside[own] for own in chosen(name, inside, suffixes)]
                if not found:
                    raise TraceError(f"{name}: there is no {', '.join(suffixes)} file in it")
            elif info.type == fs.FileType.File:
                found = [info]
            else:
                raise TraceError(f"{name}: no such file or folder")
        except OSError as error:
            raise TraceError(f"{name}: cannot be read: {first_line(error)}") from None
        for one in sorted(found, key=lambda one: natural_key(one.path)):
            rest = one.path[len(info.path) :]
            files.append(
                Stored(f"{bare.rstrip('/')}{rest}{mark}{query}", one.size, one.mtime_ns or 0)
            )
            if named is not None and files[-1].suffix not in named:
                raise TraceError(f"{name}: the name must end in {', '.join(named)}")
    if not files:
        raise TraceError("no file given")
    return list(dict.fromkeys(files))


@contextmanager
def local_copy(name: str) -> Iterator[Path]:
    """A path under which a file can be read; one in object storage is copied for that time."""
    if remote_name(name) is None:
        yield Path(name)
        return
    system, place = file_system(name)
    with tempfile.TemporaryDirectory(prefix="rhovec-") as folder:
        path = Path(folder) / Path(place).name

        def fetch() -> None:
            with system.open_input_stream(place) as source, path.open("wb") as copy:
                while data := source.read(1 << 24):
                    copy.write(data)

        try:
            patient(name, fetch)
        except OSError as error:
            raise TraceError(f"{name}: cannot be read: {first_line(error)}") from None
        yield path


def patient(name: str, work: Callable[[], Any]) -> Any:
    """Do work with a file; again if object storage fails, but not if it refuses."""
    for attempt in range(ATTEMPTS):
        try:
            return work()
        except (OSError, TraceError) as error:
            told = str(error)
            final = attempt == ATTEMPTS - 1 or "ACCESS_DENIED" in told or "NOT_FOUND" in told
            if final or remote_name(name) is None or "When " not in told:
                raise
            time.sleep(PAUSE * 2**attempt)
    raise AssertionError


def reason_of(error: BaseException, file: str) -> str:
    """Why a file was not read, with its name."""
    told = str(error) if isinstance(error, RhovecError) else f"cannot be read: {first_line(error)}"
    return told if file in told else f"{file}: {told}"


def first_line(error: BaseException) -> str:
    """What an error says, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
