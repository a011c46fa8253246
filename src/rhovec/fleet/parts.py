"""Tasks with one result file each, which is written whole or not at all.

A result file is a parquet table whose metadata holds the task's part of the report. Its name holds a
digest of all that the result depends on, so that a run that was ended is resumed by the same call: a
task whose file is there reads its part from it. Parts are added up in the order of tasks: the total does
not depend on which machine did what, or when.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

from ..errors import RhovecError
from ..files import write_file
from ..tasks import completed
from ..traces.logs import PathLike
from ..traces.remote import Stored, file_system, first_line, patient, remote_name

FORMAT = 3  # of result files
KEY, SUM = b"rhovec", b"sha256"  # of their metadata: what the task found, and the digest of that
_NAME = re.compile(r"part-\d{6,}-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class Part(ABC):
    """What one task found. Fields are numbers, texts, and tuples of dataclasses and named tuples."""

    @abstractmethod
    def plus(self, other: Self) -> Self:
        """The part of both tasks, the other one being the later."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        part: Self = _restored(cls, json.loads(text))
        return part


def _restored(kind: Any, value: Any) -> Any:
    """What JSON made of a value of this type, as it was."""
    if get_origin(kind) is tuple:
        return tuple(_restored(get_args(kind)[0], one) for one in value)
    if isinstance(kind, type) and is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{name: _restored(kinds[name], one) for name, one in value.items()})
    return kind(*value) if issubclass(kind, tuple) else value


P = TypeVar("P", bound=Part)
Work = Callable[[Any, Any], tuple[P, Any]]  # plan, task -> part, Arrow table


def folder_of(out: PathLike) -> str:
    """The name of a folder for results, for all machines."""
    return remote_name(out) or str(Path(out).absolute())


def _output_name(number: int, content: Any) -> str:
    """Name of a task's result file; content: all that the result depends on."""
    text = json.dumps((FORMAT, content), default=sorted)
    return f"part-{number:06d}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.parquet"


def is_result(file: str, folder: str | None) -> bool:
    """Whether this is a result file in the folder, which may hold the files to be read, too."""
    above, _, name = file.partition("?")[0].rpartition("/")
    return folder is not None and above == folder.partition("?")[0].rstrip("/") and bool(
        _NAME.fullmatch(name)
    )  # fmt: skip


def run(
    work: Work[P],
    kind: type[P],
    plan: Any,
    tasks: Sequence[Sequence[Any]],
    files: Sequence[Stored],
    shared: Any,
    out: str | None,
    client: Any,
    progress: Callable[[float], object] | None,
) -> tuple[P, int]:
    """Do all tasks: what they add up to, and how many of them an earlier run had done.

    work: a function of a module, which is called as work(plan, task).
    tasks: lists of pieces, named tuples with the name of a `file`, which is one of `files`.
    shared: what all results depend on, besides the files.
    """
    facts = {file.name: (file.size, file.changed) for file in files}
    names = [
        _output_name(i, (shared, [(*piece, *facts[piece.file]) for piece in task]))
        for i, task in enumerate(tasks)
    ]
    known = _known(out, names)
    calls = (
        (work, kind, plan, task, out, name, name in known)
        for task, name in zip(tasks, names, strict=True)
    )
    total: P | None = None
    early: dict[int, P] = {}  # parts that wait for one before them
    added = 0
    for done, (number, found) in enumerate(completed(do_task, calls, client), 1):
        early[number] = found
        while added in early:
            part = early.pop(added)
            total = part if total is None else total.plus(part)
            added += 1
        if progress:
            progress(done / len(tasks))
    assert total is not None
    return total, len(known)


def do_task(
    work: Work[P], kind: type[P], plan: Any, task: Any, out: str | None, name: str, known: bool
) -> P:
    """Do a task and write its result file, or read what that says."""
    if known:
        assert out is not None
        return _read(kind, out, name)
    part, table = work(plan, task)
    if out is not None:
        text = part.to_json()
        facts = {KEY: text, SUM: hashlib.sha256(text.encode()).hexdigest()}
        _write(out, name, table.replace_schema_metadata(facts))
    return part


def _known(out: str | None, names: Sequence[str]) -> set[str]:
    """The result files that are there. RhovecError if there are others, too."""
    if out is None:
        return set()
    from pyarrow import fs

    system, path = file_system(out)

    def listed() -> Any:
        system.create_dir(path, recursive=True)
        return system.get_file_info(fs.FileSelector(path, allow_not_found=True))

    try:
        found = patient(out, listed)
    except OSError as error:
        raise RhovecError(f"{out}: cannot be used for results: {first_line(error)}") from None
    there = {one.base_name for one in found if one.base_name.startswith("part-")}
    if there - set(names):
        raise RhovecError(
            f"{out}: holds results of other formulae, files or options, or of another rhovec; name "
            "another folder"
        )
    return there


def _write(out: str, name: str, table: Any) -> None:
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(table, stream, compression="zstd")

    def send() -> None:
        if remote_name(out) is None:
            write_file(Path(out) / name, stream.getvalue())
            return
        system, path = file_system(out)
        with system.open_output_stream(f"{path}/{name}") as sink:  # there when it is closed
            sink.write(stream.getvalue())

    try:
        patient(out, send)
    except OSError as error:
        raise RhovecError(f"{out}: cannot be written: {first_line(error)}") from None


def _read(kind: type[P], out: str, name: str) -> P:
    import pyarrow
    from pyarrow import parquet

    system, path = file_system(out)

    def read() -> P:
        with system.open_input_file(f"{path}/{name}") as stream:
            facts = parquet.read_schema(stream).metadata
            if hashlib.sha256(facts[KEY]).hexdigest() != facts[SUM].decode():
                raise ValueError("what it says was changed")
            return kind.from_json(facts[KEY].decode())

    try:
        part: P = patient(out, read)
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise RhovecError(
            f"{out}/{name}: damaged ({first_line(error)}); remove it and run again"
        ) from None
    return part
