"""Rows of measurements as lines of tables: which row stands in which column, and numbers as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .paper import AGREEMENT, CLAIMS, POINTS, Row, number_of

RUN = ("command", "machine", "date", "model", "recipe", "steps", "points", "seed")  # facts of a run
COLUMNS = {  # where a row is shown
    "recipe": "the paper's recipe here",
    "like": "ours, 1000 points",
    "ours": "ours",
}
POOLINGS = tuple(AGREEMENT)  # the first is the paper's choice, and ours


class Line(NamedTuple):
    """Line of a claim's table: one number, in every column where it was measured."""

    claim: str
    where: str  # the set, with the device or the pooling where it matters
    measure: str
    field: str
    cells: dict[str, Row]  # by column

    @property
    def main(self) -> Row:
        return next(self.cells[name] for name in ("ours", "like", "recipe") if name in self.cells)

    @property
    def n(self) -> int:
        return int(self.main["n_apart" if self.field == "told_apart" else "n"])

    @property
    def name(self) -> str:
        label = CLAIMS[self.claim].fields[self.field] or self.main.get("unit", "")
        return f"{self.measure}: {label}" if label else self.measure


def lines(rows: Iterable[Row]) -> list[Line]:
    """A line for each number, in the order of CLAIMS; if several rows compete for a cell, the latest."""
    found: dict[tuple[str, str, str, str], dict[str, Row]] = {}

    def rank(row: Row) -> tuple[bool, bool, str]:
        """Later rows win: those of full size, of a model trained on such traces, of a later date."""
        fits = row.get("trained_points") == row.get("points")
        return not row.get("quick"), fits, row.get("date", "")

    for row in sorted(rows, key=rank):
        column = "recipe" if row.get("recipe") == "paper" else "ours"
        if column == "ours" and row.get("points") == POINTS and row["claim"] != "efficiency":
            column = "like"
        where = row.get("set", "")
        if row["claim"] == "efficiency":
            where = f"{where}, {row.get('device', 'cpu')}"
        if row.get("pooling", POOLINGS[0]) != POOLINGS[0]:
            where = f"{where}, {row['pooling']} pooling"
            if "ablation" in row:  # such a training may be short
                where = f"{where}, {steps_text(row)}"
        where = where.removeprefix(", ")
        for name in filter(row.__contains__, CLAIMS[row["claim"]].fields):
            known, paired = number_of(row, name), name in CLAIMS[row["claim"]].paired
            if known or "reason" in row or (row[name] is not None and not paired):
                found.setdefault((row["claim"], where, row["measure"], name), {})[column] = row
    ranks = {claim: i for i, claim in enumerate(CLAIMS)}
    sets = {key[1]: i for i, key in reversed(list(enumerate(found)))}
    out = [Line(*key, cells) for key, cells in found.items()]
    return sorted(out, key=lambda line: (ranks[line.claim], sets[line.where]))


# -- numbers as text -------------------------------------------------------------------------------


def plain(value: float | None) -> str:
    """A number as text, with as many digits as are worth reading."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if value and abs(value) < 1e-4:
        return f"{value:.1e}"
    return (
        f"{value:.4f}"
        if abs(value) < 10
        else f"{value:,.1f}"
        if abs(value) < 1000
        else f"{value:,.0f}"
    )


def steps_text(row: Row) -> str:
    """Number of training steps, if known; "further" if the training started from other weights."""
    if not row.get("steps"):
        return ""
    return f"{row['steps']:,} {'further ' * bool(row.get('onward'))}steps"


def interval_text(row: Row, name: str) -> str:
    if name != "value" or row.get("low") is None or row["n"] <= 1:
        return ""
    return f"{plain(row['low'])} to {plain(row['high'])}"


def cell(line: Line, column: str) -> str:
    """Number of a line in a column, with a note if the model was trained for other traces."""
    row = line.cells.get(column)
    if row is None:
        return ""
    if "reason" in row:
        return str(row["reason"])
    if row[line.field] is None:
        return "undefined"
    text = plain(row[line.field]) + (" (projected)" if row.get("projected") else "")
    trained, points = row.get("trained_points"), row.get("points")
    alike = trained == points or line.claim == "efficiency"
    return text if alike else f"{text} (trained at {trained} points)"


def paper_text(line: Line) -> str:
    number = number_of(line.main, line.field)
    if number is None:
        return ""
    return number.about + ("" if number.paper is None else f"{number.paper:,g}")


def runs_of(rows: Iterable[Row]) -> list[Row]:
    """One row for each run: rows of one run agree in all facts of RUN."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        found.setdefault(tuple(str(row.get(name)) for name in RUN), row)
    return list(found.values())


def run_numbers(rows: Sequence[Row]) -> Callable[[Row], int]:
    places = {
        tuple(str(run.get(name)) for name in RUN): i for i, run in enumerate(runs_of(rows), 1)
    }
    return lambda row: places[tuple(str(row.get(name)) for name in RUN)]


def run_facts(run: Row) -> dict[str, str]:
    """Facts of a run as text, by name."""
    recorded = "recorded; the weights are not kept" if run.get("recorded") else ""
    recipe = "the paper's recipe" if run.get("recipe") == "paper" else ""
    notes = "; ".join(filter(None, (recipe, steps_text(run), recorded, run.get("note"))))
    many = run.get("traces") if run.get("claim") != "efficiency" else None  # has its own N
    count = f"{many:,} " if many else ""
    return {
        "command": run.get("command", ""),
        "model": f"{run.get('model', '')}" + (f" ({notes})" if notes else ""),
        "traces": f"{count}of {run.get('points')} points",
        "seed": str(run.get("seed", "")),
        "machine": run.get("machine", ""),
        "date": run.get("date", ""),
    }
