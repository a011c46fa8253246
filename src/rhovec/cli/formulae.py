"""`rhovec parse` and `rhovec robustness`: formulae checked, and evaluated on traces."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer

from ..errors import RhovecError
from .shared import (
    Discrete,
    Formulae,
    FormulaFiles,
    IdColumn,
    JsonLines,
    Layout,
    Rounding,
    StepOrAuto,
    TimeColumn,
    Tolerance,
    TracePaths,
    Variables,
    parse_formulae,
    read_formulae,
    read_traces,
    replacing_text,
    require_output,
    sampling_step,
    save_array,
)

MAX_TREE_DEPTH = 200  # the drawing of a tree grows with the square of its depth
RESULT_SUFFIXES = (".csv", ".json", ".jsonl", ".npy")


def parse_command(
    formulae: Formulae = None,
    files: FormulaFiles = None,
    dt: Annotated[
        float | None,
        typer.Option(
            help="Sampling step in seconds: time bounds are then read as seconds, not as steps.",
            show_default=False,
        ),
    ] = None,
    rounding: Rounding = None,
    discrete: Discrete = "",
    tolerance: Tolerance = None,
    as_json: JsonLines = False,
) -> None:
    """Check formulae, and show their canonical form, size and tree.

    rhovec parse "G[0,2.5] !(speed > 120 & rpm > 4500)" --dt 0.5

    rhovec parse -F requirements.stl --discrete gear,mode --json
    """
    from ..formula.parser import exact_step
    from ..formula.printer import bound_text, to_tree
    from ..formula.simplify import simplify

    lines = read_formulae(formulae, files)
    parsed = parse_formulae(lines, discrete, dt=dt, rounding=rounding, tolerance=tolerance)
    for i, phi in enumerate(parsed):
        facts: dict[str, Any] = {"formula": str(phi)}
        if dt is not None:
            facts["in_seconds"] = phi.to_text(dt=dt)
        facts["simplified"] = str(simplify(phi))
        facts |= {"horizon": phi.horizon, "depth": phi.depth, "size": phi.size}
        facts["variables"] = list(phi.variables)
        if as_json:
            print(json.dumps(facts, ensure_ascii=False))
            continue
        if i:
            print()
        steps = f"{phi.horizon} step{'' if phi.horizon == 1 else 's'}"
        seconds = "" if dt is None else f" ({bound_text(phi.horizon, exact_step(dt))} s)"
        facts["horizon"] = steps + seconds
        facts["variables"] = ", ".join(phi.variables) or "none"
        deep = phi.depth > MAX_TREE_DEPTH
        facts["tree"] = f"deeper than {MAX_TREE_DEPTH}, not drawn" if deep else to_tree(phi)
        for name, fact in facts.items():
            label = name.replace("_", " ")
            print(f"{label:<12}" + str(fact).replace("\n", "\n" + " " * 12))


def robustness(
    formulae: Formulae = None,
    files: FormulaFiles = None,
    traces: TracePaths = None,
    layout: Layout = "auto",
    id_column: IdColumn = None,
    time_column: TimeColumn = None,
    variables: Variables = "",
    dt: StepOrAuto = None,
    rounding: Rounding = None,
    discrete: Discrete = "",
    tolerance: Tolerance = None,
    end: Annotated[
        Literal["hold", "strict"],
        typer.Option(
            help="Past its end a trace holds its last sample, or looking there is an error."
        ),
    ] = "hold",
    satisfied: Annotated[
        bool, typer.Option("--satisfaction", help="Whether the formula holds, not by how much.")
    ] = False,
    every_step: Annotated[
        bool, typer.Option("--trace", help="A value for every step instead of the first.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write to a .csv, .json, .jsonl or .npy file; .npy is the array formulae x "
            "traces (x steps).",
            show_default=False,
        ),
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Evaluate formulae on traces: a table on a terminal, CSV in a pipe.

    rhovec robustness "always[0,2.5] speed < 120" -t drives.csv --dt auto

    rhovec robustness -F requirements.stl -t traces/ --satisfaction -o verdicts.csv
    """
    import numpy as np

    from ..robustness import robustness as robustness_of
    from ..robustness import satisfaction as satisfaction_of

    if not traces:
        raise RhovecError("no traces given: name a file or a folder with --traces")
    suffix = require_output(output, RESULT_SUFFIXES, as_json)
    lines = read_formulae(formulae, files)
    read = read_traces(traces, layout, variables, id_column, time_column)
    assert read is not None
    step = sampling_step(dt, read)
    parsed = parse_formulae(lines, discrete, dt=step, rounding=rounding, tolerance=tolerance)
    evaluate = satisfaction_of if satisfied else robustness_of
    lengths = {x.shape[1] for x in read.values}
    signals = np.stack(read.values) if len(lengths) == 1 else read.values
    values = evaluate(parsed, signals, variables=read.variables, trace=every_step, end=end)
    if suffix == ".npy":
        if isinstance(values, list):
            raise RhovecError(f"{output}: the traces differ in length; write .csv or .json instead")
        assert output is not None
        save_array(output, values)
        return

    # One record a formula and trace; its value is a number, or a list of one a step.
    kind = "satisfied" if satisfied else "robustness"
    of_trace = values if isinstance(values, list) else np.moveaxis(values, 1, 0)
    records = (
        {"formula": line.text.strip(), "trace": trace, kind: of_trace[n][b].tolist()}
        for b, line in enumerate(lines)
        for n, trace in enumerate(read.ids)
    )
    if output is not None:
        with replacing_text(output) as text:
            {".csv": write_csv, ".json": write_json, ".jsonl": write_jsonl}[suffix](records, text)
    elif as_json:
        write_jsonl(records, sys.stdout)
    elif sys.stdout.isatty():
        show_table(records)
    else:
        write_csv(records, sys.stdout)


# -- records: {"formula": ..., "trace": ..., "robustness" or "satisfied": value or values} --------

Record = dict[str, Any]


def write_csv(records: Iterable[Record], stream: IO[str]) -> None:
    """A row a value; a list of values has a row a step."""
    writer = csv.writer(stream, lineterminator="\n")
    for i, record in enumerate(records):
        formula, trace, value = record.values()
        if i == 0:
            step = ["step"] if isinstance(value, list) else []
            writer.writerow(["formula", "trace", *step, list(record)[-1]])
        if isinstance(value, list):
            writer.writerows((formula, trace, t, csv_cell(v)) for t, v in enumerate(value))
        else:
            writer.writerow((formula, trace, csv_cell(value)))


def csv_cell(value: float | bool) -> str:
    return str(value).lower()


def write_jsonl(records: Iterable[Record], stream: IO[str]) -> None:
    for record in records:
        stream.write(json_text(record) + "\n")


def write_json(records: Iterable[Record], stream: IO[str]) -> None:
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
    """The same as a table for a terminal, a section a formula; what is violated is red."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table: Table | None = None
    last = None
    for record in records:
        formula, trace, value = record.values()
        if table is None:
            table = Table("formula", "trace")
            if isinstance(value, list):
                table.add_column("step", justify="right")
            table.add_column(list(record)[-1], justify="right")
        if formula != last:
            table.add_section()
        for t, v in enumerate(value) if isinstance(value, list) else [(None, value)]:
            shown = Text(csv_cell(v) if isinstance(v, bool) else f"{v:.6g}")
            shown.stylize("red" if v is False or v < 0 else "green")
            first = Text(formula if formula != last else "")
            table.add_row(first, Text(trace), *([] if t is None else [str(t)]), shown)
            last = formula
    Console().print(table)
