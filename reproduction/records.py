"""What is kept of measurements and trainings, as JSON that can be read and compared line by line.

    results/claims.json        rows of `python -m reproduction claims`
    results/ablations/*.json   one file per training: configuration, environment, log and rows
    results/decoders/*.json    the same for decoders
    results/shipped/*.json     the same for the shipped weights and for the runs that led to them

Rows of one measurement share most of their fields, so a file holds groups: the shared fields, and under
`rows` what differs. `read_rows` puts them together again. A log is kept by columns, to five digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rhovec.errors import RhovecError
from rhovec.files import write_file

from .paper import CLAIMS, Row

FOLDER = Path(__file__).parent / "results"
ROWS = "claims.json"
GROUP = ("claim", "set", "model", "device", "command", "date", "ablation")  # fields of a group
KEY = ("claim", "measure", "set", "points", "model", "device", "quick")  # identifies a row
ABLATIONS = "ablations"  # claim of the rows that summarise a training
DIGITS = 5  # of a log


class Run(NamedTuple):
    """Record of one training. log: its lines, one dictionary each."""

    config: dict[str, Any]
    environment: dict[str, Any]
    log: list[dict[str, Any]]
    rows: list[Row]


# -- rows ------------------------------------------------------------------------------------------


def merge(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """All rows, new ones in place of old ones with the same KEY.

    A row that says that a claim could not be measured goes once the claim has been measured.
    """
    found = {key(row): row for row in old}
    for row in new:
        if "reason" not in row:
            found.pop(key({**row, "measure": "all"}), None)
            found.pop(key({**row, "measure": "all", "set": None}), None)
        found[key(row)] = row
    return list(found.values())


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)


def read_rows(path: Path) -> list[Row]:
    """Rows of a file that `write_rows` wrote; none if there is no such file."""
    if not path.exists():
        return []
    try:
        rows = _ungrouped(json.loads(path.read_text("utf-8")))
        known = all(row["claim"] in CLAIMS and isinstance(row["measure"], str) for row in rows)
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise RhovecError(f"{path}: holds no rows of a measurement ({error!r})") from None
    if not known:
        raise RhovecError(f"{path}: holds a claim that is not one of {', '.join(CLAIMS)}")
    return rows


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    write_text(path, _lines(_grouped(rows)) + "\n")


def _grouped(rows: Iterable[Row]) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in GROUP), []).append(row)
    out = []
    for group in groups.values():
        first, *others = group
        shared = {
            name: value
            for name, value in first.items()
            if name != "measure" and all(name in row and row[name] == value for row in others)
        }
        own = [{k: v for k, v in row.items() if k not in shared} for row in group]
        out.append(shared | {"rows": own})
    return out


def _ungrouped(groups: list[Row]) -> list[Row]:
    return [
        {name: value for name, value in group.items() if name != "rows"} | row
        for group in groups
        for row in group["rows"]
    ]


def _lines(groups: list[Row]) -> str:
    """JSON with a line per row."""
    parts = []
    for group in groups:
        shared = _json({k: v for k, v in group.items() if k != "rows"})[:-1]
        rows = ",\n  ".join(map(_json, group["rows"]))
        parts.append(f' {shared}{", " * (len(shared) > 1)}"rows": [\n  {rows}\n ]}}')
    return "[\n" + ",\n".join(parts) + "\n]"


# -- trainings -------------------------------------------------------------------------------------


def read_run(path: Path) -> Run:
    try:
        found = json.loads(path.read_text("utf-8"))
        names, columns = found["log"].keys(), zip(*found["log"].values(), strict=True)
        log = [
            {k: v for k, v in zip(names, line, strict=True) if v is not None} for line in columns
        ]
        return Run(found["config"], found["environment"], log, _ungrouped(found["rows"]))
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise RhovecError(f"{path}: is no record of a training ({error!r})") from None


def write_run(path: Path, run: Run) -> None:
    names = dict.fromkeys(name for line in run.log for name in line)
    log = {name: [_short(line.get(name)) for line in run.log] for name in names}
    columns = ",\n".join(f"  {_json(name)}: {_json(values)}" for name, values in log.items())
    write_text(
        path,
        f'{{"config": {_json(run.config)},\n"environment": {_json(run.environment)},\n'
        f'"log": {{\n{columns}\n }},\n"rows": {_lines(_grouped(run.rows))}}}\n',
    )


def read_runs(folder: Path) -> dict[str, Run]:
    """Every training recorded in a folder, by name."""
    return {path.stem: read_run(path) for path in sorted(folder.glob("*.json"))}


def ablation_rows(runs: Iterable[Run]) -> list[Row]:
    """Rows of ablations for the report: the summary of each, and everything of those that have a
    place among the claims (the paper's recipe, other poolings, 1000 points).
    """
    rows = [row for run in runs for row in run.rows]
    return [row for row in rows if row["claim"] == ABLATIONS or row.get("shown")]


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_text(path: Path, text: str) -> None:
    """Write a file and, if need be, its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode())
    except OSError as error:
        raise RhovecError(f"{path.parent}: cannot be written: {error.strerror}") from None
