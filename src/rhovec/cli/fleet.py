"""Traces by the million, from the command line: options that several commands share, and a summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import RhovecError, counted
from ..formula.options import exact_step
from .messages import in_options
from .output import cell, console, note, progress_bar, write_csv, write_jsonl
from .shared import TRACES, TraceReading, have_bounds, option

if TYPE_CHECKING:
    from ..fleet import FleetReport

MAX_MESSAGES = 20  # about files that could not be read

Scheduler = Annotated[
    str | None,
    option(
        metavar="ADDRESS",
        help="Work on a Dask cluster, e.g. tcp://10.0.0.5:8786 (default: the cores of this machine).",
    ),
]
Results = Annotated[
    str | None,
    option(
        metavar="FOLDER",
        help="Write one file of results per group of trace files, here or to s3://. The same command "
        "resumes a run that was ended.",
        rich_help_panel=TRACES,
    ),
]


def is_fleet(traces: Sequence[Path] | None, results: str | None, scheduler: str | None) -> bool:
    """Whether traces are evaluated file by file, and summarised."""
    from ..traces.remote import remote_name

    return bool(results or scheduler or any(remote_name(path) for path in traces or ()))


def summarise(
    reading: TraceReading, end: str, results: str | None, scheduler: str | None, as_json: bool
) -> None:
    """Evaluate formulae on all files, and print what they add up to."""
    from ..fleet import evaluate_files
    from ..tasks import connected

    if not reading.traces:
        raise RhovecError("no traces given: name a file or a folder with --traces")
    if reading.dt == "auto":
        raise RhovecError("--dt auto: files may have different steps; give the step in seconds")
    requirements = reading.requirements()
    with connected(scheduler) as client, progress_bar("traces") as progress:
        report = evaluate_files(
            requirements, reading.traces, out=results, client=client, rows=results is not None,
            layout=reading.layout, variables=reading.chosen(),
            id_column=reading.id_column, time_column=reading.time_column,
            time_unit=reading.time_unit, end=end,
            dt=None if reading.dt is None else float(exact_step(reading.dt)), progress=progress,
        )  # fmt: skip
    _show(report, as_json)
    if reading.dt is None and have_bounds(requirements):
        note(
            "time bounds counted samples; --dt, with the step of the traces, reads them as seconds"
        )
    if report.unread:
        sys.stdout.flush()
        messages = [one.message for one in report.unread]
        count = len({one.file for one in report.unread})
        tell(f"{counted(count, 'file')} of {report.files:,} could not be evaluated", messages)
        raise typer.Exit(2)


def tell(what: str, messages: Sequence[str], count: int | None = None) -> None:
    """Say on stderr what went wrong, with the first messages; count: of all of them."""
    shown = [in_options(message) for message in messages[:MAX_MESSAGES]]
    more = (len(messages) if count is None else count) - len(shown)
    note(f"{what}:", *shown, *([f"and {more:,} more"] if more else []))


def _show(report: FleetReport, as_json: bool) -> None:
    records = report.records()
    if as_json:
        write_jsonl(sys.stdout, records)
    elif not sys.stdout.isatty():
        write_csv(sys.stdout, list(records[0]), [list(record.values()) for record in records])
    else:
        from rich.table import Table

        table = Table("formula", title=f"{report.traces:,} traces of {report.files:,} files")
        for name in ("satisfied", "violated", "mean", "minimum", "worst trace"):
            table.add_column(name, justify="left" if name == "worst trace" else "right")
        for record in records:
            numbers = [f"{record['satisfied']:,}", f"{record['violated']:,}"]
            numbers += [
                "" if record[name] is None else f"{record[name]:.6g}"
                for name in ("mean", "minimum")
            ]
            worst = f"{record['worst_trace']} in {record['worst_file']}" if record["n"] else ""
            table.add_row(cell(record["id"] or record["formula"]), *numbers, cell(worst))
        console().print(table)
