"""Labels of traces: a column of the trace files that is the same throughout each trace, or a file."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RhovecError, RhovecWarning, TraceError
from ..files import read_file, separator_of
from ..traces import Traces, read_logs, read_traces, resample
from ..traces.cells import is_number
from ..traces.logs import Log
from ..traces.reading import PathLike, as_names, common_units, listed
from ..traces.tables import NAMED_ROWS

LABEL_COLUMNS = ("label", "class", "verdict")


def read_labelled(
    paths: PathLike | Sequence[PathLike],
    labels: PathLike,
    *,
    variables: Sequence[str] | None = None,
    dt: float | None = None,
    **reading: Any,
) -> tuple[Traces, list[Any]]:
    """Traces of files, and one label per trace.

    labels: a column of these files, or a CSV file with one row per trace: its name and its label.
    dt: put the traces on a grid with this step in seconds; empty cells are interpolated (default: they
        must be complete and evenly sampled).
    reading: layout, id_column, time_column and time_unit of `rv.read_traces`.
    """
    if Path(labels).is_file():
        traces = read_evenly(paths, dt, variables=variables, **reading)
        known = _read_file(Path(labels))
        missing = [name for name in traces.ids if name not in known]
        if missing:
            raise RhovecError(
                f"{labels}: no label for {listed(missing)}; below its first line, which names the "
                f"columns, it has labels for {listed(list(known))}"
            )
        if others := sorted(known.keys() - set(traces.ids)):
            warnings.warn(
                f"{labels} has labels for traces that were not given: {listed(others)}",
                RhovecWarning, stacklevel=2,
            )  # fmt: skip
        return traces, [known[name] for name in traces.ids]
    column = str(labels)
    found: dict[str, Any] = {}
    asked = None if variables is None else [column, *(name for name in variables if name != column)]

    def label(log: Log) -> Log:
        if column not in log.channels:
            raise TraceError(
                f"{log.source}: there is no column {column!r}; it has: {listed(list(log.channels))}"
            )
        found[log.name] = _constant(log, column)
        return log

    # As texts: 1, 2 and other are three labels, and so are on, off and broken.
    logs = read_logs(paths, variables=asked, labels={column: {}}, **reading)
    try:
        chosen, texts = _numeric(map(label, logs), column)
    except TraceError as error:
        if f"there is no column {column!r}" not in str(error):
            raise
        raise TraceError(f"{column!r} is neither a file nor a column: {error}") from None
    if not chosen:
        raise TraceError(f"besides {column!r}, the traces have no column of numbers")
    traces = read_evenly(paths, dt, variables=chosen, **reading)
    given = [found[name] for name in traces.ids]
    if all(isinstance(one, str) and is_number(one) for one in given):
        given = [int(value) if (value := float(one)).is_integer() else value for one in given]
    return replace(traces, left_out=texts), given


def read_evenly(
    paths: PathLike | Sequence[PathLike],
    dt: float | None,
    *,
    variables: Sequence[str] | None = None,
    **reading: Any,
) -> Traces:
    """Traces of files, on a grid with a step of dt seconds if that is given.

    variables: by default all in which some trace has a number. Before its first sample and after its
        last a channel is held.
    """
    names, texts = (
        _numeric(read_logs(paths, **reading)) if variables is None else (as_names(variables), ())
    )
    if not names:
        raise TraceError(f"the traces have no column of numbers; they have {listed(texts)}")
    if dt is None:
        return replace(read_traces(paths, variables=names, **reading), left_out=texts)
    values, ids, units = [], [], []
    for log in read_logs(paths, variables=names, **reading):
        grid = resample(log, dt)
        rows = {
            name: np.interp(grid.times, grid.times[known], row[known])
            for name, row, known in zip(grid.variables, grid.values, grid.known, strict=True)
            if grid.kinds[name] != "enumeration" and known.any()
        }
        lacking = [name for name in names if name not in rows]
        if lacking:
            raise TraceError(f"{log.source}: {log.name} has no numbers in {listed(lacking)}")
        values.append(np.stack([rows[name] for name in names]))
        ids.append(log.name)
        units.append((log.source, log.units))
    return Traces(names, values, tuple(ids), dt, texts, common_units(units))


def _numeric(logs: Iterable[Log], besides: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The channels in which some log has a number, and the others."""
    seen: dict[str, bool] = {}
    for log in logs:
        for name, one in log.channels.items():
            has = one.kind != "enumeration" and not np.isnan(one.values).all()
            seen[name] = seen.get(name, False) or has
    seen.pop(besides, None)
    return (
        tuple(name for name, has in seen.items() if has),
        tuple(name for name, has in seen.items() if not has),
    )


def _constant(log: Log, column: str) -> Any:
    """The label that a trace has in all of its rows."""
    channel = log.channels[column]
    values = np.unique(channel.values)
    if len(values) != 1 or np.isnan(values[0]):
        raise RhovecError(
            f"{log.source}: trace {log.name} has several values, or none, in {column!r}; a label must "
            "be the same in every row of a trace"
        )
    if channel.labels:
        return next(name for name, code in channel.labels.items() if code == values[0])
    return bool(values[0])  # a column of true and false, in a file that has a type for them


def _read_file(path: Path) -> dict[str, str]:
    """Name -> label, of a CSV file with a header."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RhovecError(f"{path}: no UTF-8 text; save it as UTF-8") from None
    lines = text.splitlines()
    cells = csv.reader(lines, delimiter=separator_of(lines[0] if lines else ""))
    rows = [[cell.strip() for cell in row] for row in cells if row]
    heads = [cell.lower() for cell in rows[0]] if rows else []
    columns = [
        next((heads.index(name) for name in known if name in heads), place)
        for place, known in enumerate((NAMED_ROWS, LABEL_COLUMNS))
    ]
    if len(heads) < 2 or columns[0] == columns[1]:
        raise RhovecError(f"{path}: the first line must name two columns, such as trace,label")
    found: dict[str, str] = {}
    for number, row in enumerate(rows[1:], 2):
        if len(row) <= max(columns) or not row[columns[0]] or not row[columns[1]]:
            raise RhovecError(f"{path}:{number}: a name and a label are needed in every line")
        name, label = (row[c] for c in columns)
        if found.setdefault(name, label) != label:
            raise RhovecError(f"{path}:{number}: {name} has the labels {found[name]} and {label}")
    return found
