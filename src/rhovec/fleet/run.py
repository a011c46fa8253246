"""Formulae on the traces of many files: `evaluate_files`.

    report = rv.evaluate_files(formulae, "s3://bucket/runs/", out="results/", client=client)

Each task reads some files and writes one result file, whole or not at all. Its name holds a digest of
the formulae, the options, and the names, sizes and dates of its files, so that a run that was ended is
resumed by the same call: what is there is not done again. Files that cannot be read are counted and
named with the reason. The report adds up the tasks in their order; it does not depend on which machine
did what, or when.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import RhovecError, TraceError
from ..files import write_file
from ..formula.reader import Formulae, as_formulae
from ..formula.requirements import Requirement
from ..robustness import robustness
from ..tasks import completed
from ..traces.logs import PathLike, as_names, checked
from ..traces.remote import file_system, find_stored, first_line, remote_name
from ..traces.tables import Layout, Options
from .cuts import Piece, read_piece, tasks_of
from .table import ROWS, Summary, Worst, as_rows

FORMAT = 1  # of result files
KEY = b"rhovec"  # of their metadata
ATTEMPTS, PAUSE = 6, 0.1  # at a store that fails; seconds, which double


class Unread(NamedTuple):
    """A file, or a piece of one, that could not be evaluated."""

    file: str
    message: str


@dataclass(frozen=True)
class Part:
    """What one task found."""

    summaries: tuple[Summary, ...]  # one per formula
    files: int
    unread: tuple[Unread, ...]

    def plus(self, other: Part) -> Part:
        pairs = zip(self.summaries, other.summaries, strict=True)
        return Part(
            tuple(one.plus(two) for one, two in pairs), self.files + other.files,
            self.unread + other.unread,
        )  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Part:
        found = json.loads(text)
        return cls(
            tuple(
                Summary(**(one | {"worst": tuple(Worst(*w) for w in one["worst"])}))
                for one in found["summaries"]
            ),
            found["files"],
            tuple(Unread(*one) for one in found["unread"]),
        )


@dataclass(frozen=True)
class FleetReport:
    """What `evaluate_files` found."""

    formulae: tuple[str, ...]
    ids: tuple[str, ...]  # identifiers of requirements; empty for formulae without
    summaries: tuple[Summary, ...]  # one per formula
    files: int
    unread: tuple[Unread, ...]
    tasks: int
    resumed: int  # tasks that an earlier run had done

    @property
    def traces(self) -> int:
        return self.summaries[0].n

    def records(self) -> list[dict[str, Any]]:
        """One per formula, for JSON and tables."""
        return [
            {
                "id": name, "formula": text, "n": one.n, "satisfied": one.satisfied,
                "violated": one.violated, "mean": one.mean, "minimum": one.minimum,
                "worst_trace": one.worst[0].trace if one.worst else None,
                "worst_file": one.worst[0].file if one.worst else None,
            }
            for name, text, one in zip(self.ids, self.formulae, self.summaries, strict=True)
        ]  # fmt: skip

    def table(self) -> Any:
        """The records as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.records())


class Plan(NamedTuple):
    """What all tasks share."""

    formulae: tuple[str, ...]
    options: Options  # its variables are those of the formulae, if no others are asked for
    arrays: tuple[str, ...] | None  # names of the variables of .npy files
    end: str
    out: str | None  # folder of the result files
    rows: bool  # whether these hold a row per formula and trace


def evaluate_files(
    formulae: Formulae,
    source: PathLike | Sequence[PathLike],
    *,
    out: PathLike | None = None,
    client: Any = None,
    rows: bool = False,
    layout: Layout = "auto",
    variables: Sequence[str] | None = None,
    id_column: str | None = None,
    time_column: str | None = None,
    end: str = "hold",
    progress: Callable[[float], object] | None = None,
) -> FleetReport:
    """Evaluate formulae on the traces of files: those that are named, and all in and below folders.

    source: paths, or s3://bucket/runs/. Samples must be complete and even, as for `read_traces`, which
        explains layout, variables, id_column and time_column.
    out: a folder for one result file per task, here or in object storage. The same call resumes a run
        that was ended.
    client: a `distributed.Client`, whose workers can read the files; by default this machine's cores.
    rows: write a row per formula and trace (formula, trace, robustness); otherwise only summaries.
    end: as for `robustness`.
    progress: called with the share of tasks that is done.
    """
    if rows and out is None:
        raise RhovecError("rows are written to files: name a folder with out")
    listed, _ = as_formulae(formulae)
    if end not in ("hold", "strict"):
        raise RhovecError(f'end must be "hold" or "strict", not {end!r}')
    given: Sequence[Any] = formulae if isinstance(formulae, list | tuple) else [formulae]
    ids = tuple(one.id if isinstance(one, Requirement) else "" for one in given)
    names = None if variables is None else as_names(variables)
    used = tuple(dict.fromkeys(name for phi in listed for name in phi.variables)) or None
    options = checked(Options(layout, names or used, id_column, time_column, strict=True))
    files = find_stored([source] if isinstance(source, str | Path) else source)
    place = None if out is None else (remote_name(out) or str(Path(out).absolute()))
    plan = Plan(tuple(map(str, listed)), options, names, end, place, rows)
    facts = {file.name: (file.size, file.changed) for file in files}
    tasks = list(tasks_of(files, options))
    outputs = [_output(plan, i, task, facts) for i, task in enumerate(tasks)]
    known = _known(plan, outputs)
    todo = [i for i, name in enumerate(outputs) if name not in known]
    found: dict[int, Part] = {
        i: _read_part(plan, name) for i, name in enumerate(outputs) if name in known
    }
    if progress:
        progress(len(found) / len(tasks))
    for number, part in completed(run_task, ((plan, tasks[i], outputs[i]) for i in todo), client):
        found[todo[number]] = part
        if progress:
            progress(len(found) / len(tasks))
    total = reduce(Part.plus, (found[i] for i in range(len(tasks))))
    return FleetReport(
        plan.formulae, ids if len(ids) == len(listed) else ("",) * len(listed), total.summaries,
        len(files), total.unread, len(tasks), len(tasks) - len(todo),
    )  # fmt: skip


def run_task(plan: Plan, pieces: Sequence[Piece], output: str) -> Part:
    """Evaluate some pieces and write the result file: what they add up to."""
    total = Part(tuple(Summary() for _ in plan.formulae), 0, ())
    tables = []
    for piece in pieces:
        try:
            ids, values = _evaluated(plan, piece)
        except (RhovecError, OSError, MemoryError) as error:
            reason = str(error) if isinstance(error, RhovecError) else (
                f"{piece.file}: cannot be read: {first_line(error)}"
            )  # fmt: skip
            total = replace(total, unread=(*total.unread, Unread(piece.file, reason)))
            continue
        own = tuple(Summary.of(one, ids, piece.file) for one in values)
        total = total.plus(Part(own, 1, ()))
        if plan.rows:
            tables.append(as_rows(plan.formulae, ids, values))
    if plan.out is not None:
        _write(plan, output, total, tables)
    return total


def _evaluated(plan: Plan, piece: Piece) -> tuple[list[str], np.ndarray]:
    """Identifiers (N,) and robustness (B, N) of the traces of a piece."""
    options = plan.options
    if piece.file.partition("?")[0].lower().endswith(".npy"):
        options = replace(options, variables=plan.arrays)
    ids, values, names = _patient(piece.file, partial(read_piece, piece, options))
    if not ids:
        return [], np.empty((len(plan.formulae), 0))
    stem = Path(piece.file.partition("?")[0]).stem
    return (
        [one or stem for one in ids],
        robustness(list(plan.formulae), values, variables=names, end=plan.end),
    )


def _patient(name: str, work: Callable[[], Any]) -> Any:
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


# -- result files ----------------------------------------------------------------------------------


def _output(
    plan: Plan, number: int, task: Sequence[Piece], facts: dict[str, tuple[int, int]]
) -> str:
    """Name of a task's result file."""
    content = (
        FORMAT, plan.formulae, asdict(plan.options), plan.arrays, plan.end, plan.rows,
        [(*piece, *facts[piece.file]) for piece in task],
    )  # fmt: skip
    digest = hashlib.sha256(json.dumps(content, default=sorted).encode()).hexdigest()
    return f"part-{number:06d}-{digest[:16]}.parquet"


def _known(plan: Plan, outputs: Sequence[str]) -> set[str]:
    """The result files that are there. RhovecError if there are others, too."""
    if plan.out is None:
        return set()
    from pyarrow import fs

    system, path = file_system(plan.out)
    try:
        system.create_dir(path, recursive=True)
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    except OSError as error:
        raise RhovecError(f"{plan.out}: cannot be used for results: {first_line(error)}") from None
    there = {one.base_name for one in found if one.base_name.startswith("part-")}
    if there - set(outputs):
        raise RhovecError(
            f"{plan.out}: holds results of other formulae, files or options; name another folder"
        )
    return there


def _write(plan: Plan, output: str, part: Part, tables: Sequence[Any]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    assert plan.out is not None
    text, index = pa.dictionary(pa.int32(), pa.string()), pa.float64()
    empty = pa.schema(list(zip(ROWS, (text, text, index), strict=True))).empty_table()
    table = pa.concat_tables([empty, *tables]).unify_dictionaries()
    table = table.replace_schema_metadata({KEY: part.to_json()})
    stream = io.BytesIO()
    parquet.write_table(table, stream, compression="zstd")
    if remote_name(plan.out) is None:
        write_file(Path(plan.out) / output, stream.getvalue())
        return
    system, path = file_system(plan.out)

    def send() -> None:
        with system.open_output_stream(f"{path}/{output}") as sink:  # there when it is closed
            sink.write(stream.getvalue())

    _patient(plan.out, send)


def _read_part(plan: Plan, output: str) -> Part:
    from pyarrow import parquet

    assert plan.out is not None
    system, path = file_system(plan.out)

    def read() -> Part:
        with system.open_input_file(f"{path}/{output}") as stream:
            return Part.from_json(parquet.read_schema(stream).metadata[KEY].decode())

    try:
        part: Part = _patient(plan.out, read)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RhovecError(
            f"{plan.out}/{output}: is no result file ({first_line(error)}); remove it and run again"
        ) from None
    return part
