"""Formulae by the hundred million as vectors: `embed_files`.

    report = rv.embed_files("s3://bucket/formulae/", out="vectors/", client=client)

Files have one formula per line, `x_0 > 1` or `R-7: x_0 > 1`, and are cut between lines. Each task
embeds some lines and writes one result file (fleet/parts.py) with the columns id, formula, vector and
error: a line that is no formula of the space has an error instead of a vector, so that none is left
out. Blank lines and comments are no formulae.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import ParseError, RhovecError
from ..fleet import parts
from ..fleet.cuts import grouped
from ..formula.core import Formula
from ..formula.parser import parse
from ..formula.requirements import Statement, split_header, without_comment
from ..formula.schema import Schema
from ..models.model import Model, Precision, shipped
from ..traces.logs import PathLike
from ..traces.remote import Stored, file_system, find_stored, patient, reason_of
from .space import MISSED, Space
from .vectors import load

TASK_BYTES = 1 << 20  # of text: some ten thousand formulae, a minute's work
MAX_LINE = 1 << 20  # characters
MAX_TOLD = 100  # lines that a report names; result files name all
SUFFIXES = (".stl", ".txt")  # of the files in folders


class Lines(NamedTuple):
    """The lines of a file that begin within these bytes."""

    file: str
    first: int
    last: int


class Refused(NamedTuple):
    """A line without a vector, or with line 0 a file that could not be read, and why."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, {self.message}" if self.line else self.message


@dataclass(frozen=True)
class Part(parts.Part):
    """What one task found. Lines are counted from the task's first one in a file."""

    formulae: int = 0  # with a vector
    outside: int = 0  # of these, outside a model's training, or largely missed by a space
    refused: int = 0  # lines without a vector
    unread: int = 0  # files, or pieces of them
    told: tuple[Refused, ...] = ()  # the first of both
    file: str = ""  # the last one
    lines: int = 0  # of it

    def plus(self, other: Part) -> Part:
        more = (
            one._replace(line=one.line + self.lines) if one.line and one.file == self.file else one
            for one in other.told
        )
        return Part(
            self.formulae + other.formulae, self.outside + other.outside,
            self.refused + other.refused, self.unread + other.unread,
            (*self.told, *more)[:MAX_TOLD], other.file,
            other.lines + (self.lines if other.file == self.file else 0),
        )  # fmt: skip


@dataclass(frozen=True)
class EmbedReport:
    """What `embed_files` did."""

    formulae: int  # with a vector
    outside: int  # of these, outside the range of a model's training, or largely missed by a space
    refused: int  # lines without a vector, whose rows have an error
    unread: int  # files, or pieces of them, that could not be read
    told: tuple[Refused, ...]  # the first of both, with the reasons
    files: int
    tasks: int
    resumed: int  # tasks that an earlier run had done


class Plan(NamedTuple):
    """What all tasks share."""

    space: str | None
    device: str | None
    precision: Precision
    fingerprint: str  # of the space
    kind: Literal["kernel", "cosine"]
    schema: Schema | None  # lowers formulae for a model
    options: dict[str, Any]  # of `parse`; empty: the space reads texts


def embed_files(
    source: PathLike | Sequence[PathLike],
    *,
    out: PathLike,
    space: PathLike | None = None,
    device: str | None = None,
    precision: Precision = "float32",
    kind: Literal["kernel", "cosine"] | None = None,
    schema: Schema | None = None,
    client: Any = None,
    progress: Callable[[float], object] | None = None,
    **options: Any,
) -> EmbedReport:
    """Embed the formulae of text files, one per line: those that are named, and .stl and .txt files in
    and below folders.

    source: paths, or s3://bucket/formulae/.
    out: a folder for one result file per task, here or in object storage. The same call resumes a run
        that was ended.
    space, device, precision: as for `load`. A folder must be there for all workers.
    kind: as for `Model.embed` (default: kernel; for a space of traces, cosine).
    schema: names, units and time step of the formulae, for a model.
    client: a `distributed.Client`, whose workers can read the files; by default this machine's cores.
    progress: called with the share of tasks that is done.
    options: those of `parse`, such as dt.
    """
    loaded = load(space, device, precision)
    chosen, own = kind or ("kernel" if isinstance(loaded, Model) else "cosine"), loaded.schema
    if chosen not in ("kernel", "cosine"):
        raise RhovecError(f'kind must be "kernel" or "cosine", not {kind!r}')
    if not isinstance(loaded, Model) and chosen != "cosine":
        raise RhovecError("a space of traces has cosine vectors; kind kernel is for models")
    if own is not None and schema is not None:
        raise RhovecError("a schema is for models: the space has its own names, units and scales")
    known = own or schema
    given = {name: value for name, value in options.items() if value not in (None, [], {}, ())}
    reading = known.options() if known else {}
    if clash := sorted(given.keys() & reading.keys()):
        raise RhovecError(f"{', '.join(clash)}: the schema says these")
    reading |= given
    parse("true", **reading)  # a wrong option is wrong for all lines
    named = None if space is None else str(space)
    if named is not None and os.path.isdir(named) and named not in shipped():
        named = os.path.abspath(named)
    plan = Plan(named, device, precision, loaded.fingerprint, chosen, schema, reading)
    files = find_stored(source, SUFFIXES, None)
    for file in files:
        if file.suffix in (".csv", ".parquet"):
            raise RhovecError(f"{file.name}: a table; give text with one formula per line")
    shared = (
        plan.fingerprint,
        device,
        precision,
        chosen,
        schema and schema.to_json(),
        repr(reading),
    )
    tasks = list(grouped(_pieces(files), TASK_BYTES))
    folder = parts.folder_of(out)
    total, resumed = parts.run(
        embed_lines, Part, plan, tasks, files, shared, folder, client, progress
    )
    return EmbedReport(
        total.formulae, total.outside, total.refused, total.unread, total.told, len(files),
        len(tasks), resumed,
    )  # fmt: skip


def _pieces(files: Sequence[Stored]) -> Iterator[tuple[Lines, int]]:
    for file in files:
        for first in range(0, max(1, file.size), TASK_BYTES):
            last = min(file.size, first + TASK_BYTES)
            yield Lines(file.name, first, last), last - first


# -- a task ----------------------------------------------------------------------------------------


def embed_lines(plan: Plan, pieces: Sequence[Lines]) -> tuple[Part, Any]:
    """Embed the lines of some pieces: what there was, and a table of vectors."""
    import pyarrow as pa

    total = Part()
    statements: list[Statement] = []
    errors: dict[int, str] = {}  # by statement
    for piece in pieces:
        try:
            lines = patient(piece.file, partial(_read, piece))
        except (RhovecError, OSError) as error:
            unread = (Refused(piece.file, 0, reason_of(error, piece.file)),)
            total = total.plus(Part(unread=1, told=unread, file=piece.file))
            continue
        before = total.lines if total.file == piece.file else 0
        for number, line in enumerate(lines, before + 1):
            if len(line) > MAX_LINE:
                errors[len(statements)] = f"column 1: a line of more than {MAX_LINE:,} characters"
                statements.append(Statement(f"{line[:80]} ...", piece.file, number))
            elif text := without_comment(line).rstrip():
                statements.append(split_header(text, piece.file, number))
        total = total.plus(Part(file=piece.file, lines=len(lines)))
    space = _loaded(plan.space, plan.device, plan.precision, plan.fingerprint)
    vectors, outside = _embedded(space, plan, statements, errors)
    told = (Refused(statements[i].source, statements[i].line, errors[i]) for i in sorted(errors))
    found = [i for i in range(len(statements)) if i not in errors]
    rows = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1])
    places = np.full(len(statements), -1, np.int64)
    places[found] = np.arange(len(found))
    table = pa.table({
        "id": pa.array([one.name for one in statements], pa.string()),
        "formula": pa.array([_text(one.text.strip()) for one in statements], pa.string()),
        "vector": rows.take(pa.array(places, mask=places < 0)),
        "error": pa.array([errors.get(i) for i in range(len(statements))], pa.string()),
    })  # fmt: skip
    counted = replace(
        total, formulae=len(found), outside=outside, refused=len(errors),
        told=(*total.told, *told)[:MAX_TOLD],
    )  # fmt: skip
    return counted, table


def _read(piece: Lines) -> list[str]:
    """The lines of a piece; bytes that are no text as surrogates."""
    system, path = file_system(piece.file)
    begin = max(0, piece.first - 1)  # with the end of the line before
    with system.open_input_file(path) as stream:
        stream.seek(begin)
        data: bytes = stream.read(piece.last - begin)
        if piece.first:
            start = data.find(b"\n")
            data = data[start + 1 :] if start >= 0 else b""
        if data and not data.endswith(b"\n"):  # the last line goes on
            stream.seek(piece.last)
            data += stream.read(4 * MAX_LINE).partition(b"\n")[0]
    text = data.decode("utf-8" if piece.first else "utf-8-sig", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


@lru_cache(2)
def _loaded(
    space: str | None, device: str | None, precision: Precision, fingerprint: str
) -> Model | Space:
    found = load(space, device, precision)
    if found.fingerprint != fingerprint:
        raise RhovecError(
            f"a worker has other weights ({found.fingerprint}) than the caller ({fingerprint}); install "
            "the same version of rhovec everywhere, or name a folder that all of them see"
        )
    return found


def _embedded(
    space: Model | Space, plan: Plan, statements: Sequence[Statement], errors: dict[int, str]
) -> tuple[np.ndarray, int]:
    """Vectors (n, D) of the right statements, and how many are outside; adds what is wrong to errors."""
    formulae: dict[int, Formula | str] = {}
    for i, statement in enumerate(statements):
        if i not in errors:
            try:
                formulae[i] = _formula(plan, statement)
            except RhovecError as error:
                errors[i] = _message(error)
    blocks: list[np.ndarray] = []
    outside = 0

    def embed(chosen: list[int]) -> None:
        """Embed these, or find those that are wrong by halves."""
        nonlocal outside
        given = [formulae[i] for i in chosen]
        try:
            if isinstance(space, Model):
                block = space.embed(given, kind=plan.kind, warn=False)
                outside += len({one.index for one in space.outside(given)})
            else:
                block, missed = space._vectors(space.scales.read(given)[0])
                outside += int((missed > MISSED).sum())
        except RhovecError as error:
            if len(chosen) == 1:
                errors[chosen[0]] = _message(error)
                return
            middle = len(chosen) // 2
            embed(chosen[:middle])
            embed(chosen[middle:])
        else:
            blocks.append(block)

    if formulae:
        embed(list(formulae))
    made = space.directions if isinstance(space, Model) and plan.kind == "cosine" else space
    return np.concatenate(
        [np.empty((0, made.dimension), np.float32), *blocks], dtype=np.float32
    ), outside


def _formula(plan: Plan, statement: Statement) -> Formula | str:
    """What the space is to embed. Definitions are refused: other tasks would not see them."""
    if statement.kind != "requirement":
        raise RhovecError(f"a {statement.kind}: write formulae out, one per line")
    if _text(statement.text) != statement.text:
        raise RhovecError("no UTF-8 text")
    if not plan.options and plan.schema is None:
        return statement.text
    phi = parse(statement.text, **plan.options)
    return phi if plan.schema is None else plan.schema.lower(phi)


def _text(text: str) -> str:
    """A text that can be written: without what was no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _message(error: RhovecError) -> str:
    if isinstance(error, ParseError):
        return f"column {error.column}: {error.message}"
    return "column 1: " + str(error).replace("formula 0", "the formula")
