"""Formulae on the traces of many files: `evaluate_files`.

    report = rv.evaluate_files(formulae, "s3://bucket/runs/", out="results/", client=client)

Each task reads some files and writes one result file (parts.py). A result depends on the formulae, the
options, and the names, sizes and dates of the files. Files that cannot be read are counted and named
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import RhovecError
from ..formula.options import exact_step
from ..formula.programs import Programs
from ..formula.reader import Formulae, as_formulae, as_programs
from ..formula.requirements import Requirement
from ..traces.logs import PathLike, as_names, checked
from ..traces.remote import find_stored, reason_of
from ..traces.tables import Layout, Options
from . import parts
from .cuts import Piece, read_piece, tasks_of
from .table import Summary, as_rows, joined, robustness_of


class Unread(NamedTuple):
    """A file, or a piece of one, that could not be evaluated."""

    file: str
    message: str


@dataclass(frozen=True)
class Part(parts.Part):
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
    end: str
    rows: bool  # whether result files hold a row per formula and trace


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
    time_unit: str | None = None,
    dt: float | None = None,
    end: str = "hold",
    progress: Callable[[float], object] | None = None,
) -> FleetReport:
    """Evaluate formulae on the traces of files: those that are named, and all in and below folders.

    source: paths, or s3://bucket/runs/. Samples must be complete and even, as for `read_traces`, which
        explains layout, variables, id_column, time_column and time_unit.
    out: a folder for one result file per task, here or in object storage. The same call resumes a run
        that was ended.
    client: a `distributed.Client`, whose workers can read the files; by default this machine's cores.
    rows: write a row per formula and trace (formula, trace, robustness); otherwise only summaries.
    dt: seconds per step that the bounds of the formulae were read with: files whose times have another
        step are then refused. By default, bounds count samples, whatever the step of a file.
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
    step = None if dt is None else float(exact_step(dt))
    names = None if variables is None else as_names(variables)
    used = tuple(dict.fromkeys(name for phi in listed for name in phi.variables)) or None
    options = checked(
        Options(
            layout,
            names or used,
            id_column,
            time_column,
            time_unit,
            strict=True,
            arrays=names,
            dt=step,
        )
    )
    place = None if out is None else parts.folder_of(out)
    files = [file for file in find_stored(source) if not parts.is_result(file.name, place)]
    if not files:
        raise RhovecError(f"{place}: it holds only results; name a folder of traces")
    plan = Plan(tuple(map(str, listed)), options, end, rows)
    shared = (plan.formulae, asdict(plan.options), plan.end, plan.rows)
    tasks = list(tasks_of(files, options))
    total, resumed = parts.run(run_task, Part, plan, tasks, files, shared, place, client, progress)
    return FleetReport(
        plan.formulae, ids if len(ids) == len(listed) else ("",) * len(listed), total.summaries,
        len(files), total.unread, len(tasks), resumed,
    )  # fmt: skip


def run_task(plan: Plan, pieces: Sequence[Piece]) -> tuple[Part, Any]:
    """Evaluate some pieces: what they add up to, and a table with their rows."""
    total = Part(tuple(Summary() for _ in plan.formulae), 0, ())
    tables = [as_rows(plan.formulae, [], np.empty((len(plan.formulae), 0)))]
    for piece in pieces:
        try:
            ids, values = _evaluated(plan, piece)
        except (RhovecError, OSError, MemoryError) as error:
            unread = Unread(piece.file, reason_of(error, piece.file))
            total = replace(total, unread=(*total.unread, unread))
            continue
        own = tuple(Summary.of(one, ids, piece.file) for one in values)
        total = total.plus(Part(own, 1, ()))
        if plan.rows:
            tables.append(as_rows(plan.formulae, ids, values))
    return total, joined(tables)


def _evaluated(plan: Plan, piece: Piece) -> tuple[list[str], np.ndarray]:
    """Identifiers (N,) and robustness (B, N) of the traces of a piece."""
    ids, values, names = read_piece(piece, plan.options)
    if not ids:
        return [], np.empty((len(plan.formulae), 0))
    stem = Path(piece.file.partition("?")[0]).stem
    return (
        [one or stem for one in ids],
        robustness_of(_programs(plan.formulae), values, names, plan.end),
    )


@lru_cache(8)
def _programs(texts: tuple[str, ...]) -> Programs:
    """The formulae of a plan, which a process reads once."""
    return as_programs(texts)[0]
