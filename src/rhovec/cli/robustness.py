"""`rhovec robustness`: formulae evaluated on traces."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import RhovecError
from ..formula.requirements import name_of
from .fleet import Results, Scheduler, is_fleet, summarise
from .output import cell, console, note, replacing_text, require_output, save_array, write_csv
from .shared import (
    JsonLines,
    SchemaFile,
    TraceReading,
    formulae_of,
    naming,
    origins,
    output_file,
)

if TYPE_CHECKING:
    from ..formula import Formula

SUFFIXES = (".csv", ".json", ".jsonl", ".npy")


def robustness(
    reading: TraceReading,
    schema: SchemaFile = None,
    end: Annotated[
        Literal["hold", "strict"],
        typer.Option(
            help="hold: past its end, a trace keeps its last sample; strict: looking there is an "
            "error."
        ),
    ] = "hold",
    satisfied: Annotated[
        bool, typer.Option("--satisfaction", help="Whether the formula holds, not by how much.")
    ] = False,
    every_step: Annotated[
        bool, typer.Option("--trace", help="The value at every step instead of the first.")
    ] = False,
    output: Annotated[
        Path | None,
        output_file(
            "Write to a .csv, .json, .jsonl or .npy file; .npy is the array formulae x traces "
            "(x steps)."
        ),
    ] = None,
    results: Results = None,
    scheduler: Scheduler = None,
    as_json: JsonLines = False,
) -> None:
    """Evaluate formulae on traces: a table on a terminal, CSV in a pipe.

    rhovec robustness "always[0,2.5] speed < 120" -t drives.csv --dt auto

    rhovec robustness -F requirements.stl -t traces/ --satisfaction -o verdicts.csv

    Traces by the million are summarised per formula:

    rhovec robustness -F requirements.stl -t s3://bucket/runs/ --results out/ --scheduler tcp://head:8786
    """
    import numpy as np

    from ..robustness import robustness as robustness_of
    from ..robustness import satisfaction as satisfaction_of
    from ..traces.reading import listed

    suffix = require_output(output, SUFFIXES, as_json)
    if is_fleet(reading.traces, results, scheduler):
        if satisfied or every_step or output is not None or schema is not None:
            raise RhovecError(
                "--results, --scheduler and object storage: --satisfaction, --trace, -o and --schema "
                "do not go with them"
            )
        summarise(reading, end, results, scheduler, as_json)
        return
    requirements, traces = reading.read(schema)
    if traces is None:
        raise RhovecError("no traces given: name a file or a folder with --traces")
    evaluate = satisfaction_of if satisfied else robustness_of
    lengths = {x.shape[1] for x in traces.values}
    arrays = np.stack(traces.values) if len(lengths) == 1 else traces.values

    def work(formulae: list[Formula]) -> Any:
        return evaluate(formulae, arrays, variables=traces.variables, trace=every_step, end=end)

    with naming(requirements, work):
        values = work(formulae_of(requirements))
    back = [r.place for r in requirements if r.formula.only_looks_back]
    if back and not every_step:
        note(
            f"{listed(back)}: without a future, a formula reads only the first sample at time 0; "
            "--trace gives its value at every step"
        )
    if suffix == ".npy":
        if isinstance(values, list):
            raise RhovecError(f"{output}: the traces differ in length; write .csv or .json instead")
        assert output is not None
        save_array(output, values)
        return

    kind = "satisfied" if satisfied else "robustness"
    by_trace = values if isinstance(values, list) else np.moveaxis(values, 1, 0)
    records: Iterable[Record] = (
        {**origin, "formula": one.text, "trace": trace, kind: by_trace[n][b].tolist()}
        for b, (one, origin) in enumerate(zip(requirements, origins(requirements), strict=True))
        for n, trace in enumerate(traces.ids)
    )
    if output is not None:
        with replacing_text(output) as text:
            {".csv": as_csv, ".json": as_json_array, ".jsonl": as_jsonl}[suffix](records, text)
    elif as_json:
        as_jsonl(records, sys.stdout)
    elif sys.stdout.isatty():
        show_table(records)
    else:
        as_csv(records, sys.stdout)


# -- records ---------------------------------------------------------------------------------------

# One per formula and trace: {"formula": ..., "trace": ..., "robustness" or "satisfied": value}; the
# value is a number or a bool, or with --trace a list of them, one per step. Before these stand id, title
# and source if formulae have names.
Record = dict[str, Any]


def as_csv(records: Iterable[Record], stream: IO[str]) -> None:
    """One row per value; a list of values has one row per step."""
    records = iter(records)
    first = next(records)
    steps = isinstance(list(first.values())[-1], list)

    def rows() -> Iterable[tuple[Any, ...]]:
        for *facts, value in (r.values() for r in chain([first], records)):
            if steps:
                yield from ((*facts, t, v) for t, v in enumerate(value))
            else:
                yield *facts, value

    *names, kind = first
    write_csv(stream, [*names, *["step"] * steps, kind], rows())


def as_jsonl(records: Iterable[Record], stream: IO[str]) -> None:
    for record in records:
        stream.write(json_text(record) + "\n")


def as_json_array(records: Iterable[Record], stream: IO[str]) -> None:
    stream.write("[\n" + ",\n".join(map(json_text, records)) + "\n]\n")


def json_text(record: Record) -> str:
    """JSON knows only finite numbers: NaN (past the horizon) is null, an infinity is "inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(v) for v in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value

    return json.dumps({k: plain(v) for k, v in record.items()}, ensure_ascii=False)


def show_table(records: Iterable[Record]) -> None:
    """A table for a terminal with one section per formula; violations are red."""
    from rich.table import Table

    table: Table | None = None
    last = None
    for record in records:
        *origin, formula, trace, value = record.values()
        if origin and (name := name_of(*origin[:2])):
            formula = f"{name}: {formula}"
        if table is None:
            table = Table("formula", "trace")
            if isinstance(value, list):
                table.add_column("step", justify="right")
            table.add_column(list(record)[-1], justify="right")
        if formula != last:
            table.add_section()
        for t, v in enumerate(value) if isinstance(value, list) else [(None, value)]:
            text = str(v).lower() if isinstance(v, bool) else f"{v:.6g}"
            shown = cell(text, "red" if v is False or v < 0 else "green")
            first = cell(formula if formula != last else "")
            table.add_row(first, cell(trace), *([] if t is None else [str(t)]), shown)
            last = formula
    console().print(table)
