"""`rhovec robustness`: formulae evaluated on traces."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import RhovecError
from .fleet import Results, Scheduler, is_fleet, summarise
from .inputs import formulae_of, naming, origins, read_schema
from .output import (
    cell,
    console,
    note,
    replacing_text,
    require_output,
    save_array,
    save_table,
    write_records,
)
from .shared import JsonLines, SchemaFile, TraceReading, output_file

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Formula, Requirement

SUFFIXES = (".csv", ".json", ".jsonl", ".parquet", ".npy")


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
            "Write all values to a .csv, .json, .jsonl, .parquet or .npy file; .npy is the array "
            "formulae x traces (x steps)."
        ),
    ] = None,
    results: Results = None,
    scheduler: Scheduler = None,
    as_json: JsonLines = False,
) -> None:
    """Evaluate formulae on traces: a summary per formula on a terminal, all values in a pipe.

    rhovec robustness "always[0,2.5] speed < 120" -t drives.csv --dt auto

    rhovec robustness -F requirements.stl -t traces/ --satisfaction -o verdicts.csv

    Traces by the million are summarised per formula:

    rhovec robustness -F requirements.stl -t s3://bucket/runs/ --results out/ --scheduler tcp://head:8786
    """
    import numpy as np

    from ..formula.options import exact_step
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

    def values_of(formulae: list[Formula], evaluate: Any = evaluate) -> Any:
        return evaluate(formulae, arrays, variables=traces.variables, trace=every_step, end=end)

    with naming(requirements, values_of):
        values = values_of(formulae_of(requirements))
    back = [r.place for r in requirements if r.formula.only_looks_back]
    if back and not every_step:
        note(
            f"{listed(back)}: without a future, a formula reads only the first sample at time 0; "
            "--trace gives its value at every step"
        )
    known = read_schema(schema)
    step = reading.step(traces) if known is None else known.dt
    step = traces.dt if step is None else step
    seconds = None if step is None else exact_step(step)
    if suffix == ".npy" and isinstance(values, list):
        raise RhovecError(f"{output}: the traces differ in length; write .csv or .json instead")
    reading.tell_steps(requirements, traces, known)
    if suffix == ".npy":
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
    if suffix in (".json", ".jsonl"):
        assert output is not None
        with replacing_text(output) as text:
            (as_json_array if suffix == ".json" else as_jsonl)(records, text)
    elif output is not None:
        save_table(output, one_per_value(records, seconds))
    elif as_json:
        as_jsonl(records, sys.stdout)
    elif sys.stdout.isatty():
        # Where robustness is 0, only satisfaction can tell; where there is no value, only robustness.
        formulae = formulae_of(requirements)
        both = [values_of(formulae, evaluate) for evaluate in (robustness_of, satisfaction_of)]
        rho, holds = (x if isinstance(x, list) else np.moveaxis(x, 1, 0) for x in both)
        show_summary(requirements, traces.ids, rho, holds, seconds)
    else:
        write_records(sys.stdout, one_per_value(records, seconds))


# -- records ---------------------------------------------------------------------------------------

# One per formula and trace: {"formula": ..., "trace": ..., "robustness" or "satisfied": value}; the
# value is a number or a bool, or with --trace a list of them, one per step. Before these stand id, title
# and source if formulae have names.
Record = dict[str, Any]


def one_per_value(records: Iterable[Record], step: Fraction | None) -> Iterator[Record]:
    """Records in which a list of values has become one record per step, with its time in seconds."""
    for record in records:
        *facts, (kind, value) = record.items()
        if not isinstance(value, list):
            yield record
            continue
        for t, v in enumerate(value):
            seconds = {} if step is None else {"seconds": float(t * step)}
            yield {**dict(facts), "step": t, **seconds, kind: v}


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


def show_summary(
    requirements: Sequence[Requirement],
    ids: Sequence[str],
    values: Sequence[np.ndarray],
    holds: Sequence[np.ndarray],
    step: Fraction | None,
) -> None:
    """A table with one row per formula for a terminal.

    values, holds: of each trace an array (B,) or (B, P). With all steps, a formula is violated on a
    trace if it is at some step; steps without a value (NaN) do not count.
    """
    import numpy as np
    from rich.table import Table

    table = Table("formula", caption="-o FILE writes all values")
    for name in ("traces", "violated", "median", "minimum"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("on")
    for b, one in enumerate(requirements):
        rho = [np.atleast_1d(x[b]) for x in values]
        fails = [~np.atleast_1d(x[b]) & ~np.isnan(r) for x, r in zip(holds, rho, strict=True)]
        violated = sum(bool(x.any()) for x in fails)
        lowest = int(np.argmin([np.nanmin(x) for x in rho]))
        at = int(np.nanargmin(rho[lowest]))
        style = "red" if violated else "green"
        table.add_row(
            cell(one.label), str(len(ids)), cell(str(violated), style),
            f"{np.nanmedian(np.concatenate(rho)):.6g}", cell(f"{rho[lowest][at]:.6g}", style),
            cell(ids[lowest] + (moment(at, step) if len(rho[lowest]) > 1 else "")),
        )  # fmt: skip
    console().print(table)


def moment(t: int, step: Fraction | None) -> str:
    """A step of a trace, and its time if that is known."""
    return f", step {t}" + ("" if step is None else f" ({float(t * step):g} s)")
