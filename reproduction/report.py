"""Rows of `claims.run` as a record: evaluation.json, figures, README.md, and index.html.

A row is known by what was measured, on what, of which model: measured again, it replaces the old one,
and everything else stays. Everything that is shown, figures included, is made from the rows (and, for
the curves, from a training log), so that a page can be drawn again without measuring. index.html is one
file: figures are inline SVG whose ink is the page's text colour, which is how they suit light and dark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RhovecError
from ..files import write_file
from ..pages import Cell, captioned, document, table
from . import agreement, comparison, efficiency, fidelity, probing, reconstruction
from .claims import AGREEMENT, CLAIMS, judge, number_of, overall, paper_costs, paper_errors
from .figures import Drawn, Row, drawn

ROWS = "evaluation.json"
KEY = ("claim", "measure", "set", "points", "model", "device", "quick")
RUN = ("command", "machine", "date", "model", "recipe", "steps", "points", "seed")
COLUMNS = {  # where a row is shown
    "recipe": "the paper's recipe here",
    "like": "ours, 1000 points",
    "ours": "ours",
}
PAPER_POINTS, PAPER_STEPS = 1000, 32_000
POOLINGS = tuple(AGREEMENT)  # of the paper; the first is its choice, and ours
LONG = 60  # lines of a table that is folded


# -- rows ------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that `write` or `claims.run` gave; none if there is no such file."""
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text("utf-8"))
        known = all(row["claim"] in CLAIMS and isinstance(row["measure"], str) for row in rows)
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise RhovecError(f"{path}: holds no rows of an evaluation ({error})") from None
    if not known:
        raise RhovecError(f"{path}: has a claim that is not one of {', '.join(CLAIMS)}")
    return list(rows)


def merge(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Both, a new row in place of the old one with the same KEY.

    A claim that could be measured at last leaves no row behind that says that it could not.
    """
    found = {_key(row): row for row in old}
    for row in new:
        if "reason" not in row:
            found.pop(_key({**row, "measure": "all"}), None)
            found.pop(_key({**row, "measure": "all", "set": None}), None)
        found[_key(row)] = row
    return list(found.values())


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)


class Line(NamedTuple):
    """A line of a claim's table: one number, wherever it was measured."""

    claim: str
    where: str  # the set, and the device or the pooling where it matters
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
    """One for each number of the rows, in the order of CLAIMS; of rows for one cell the latest."""
    found: dict[tuple[str, str, str, str], dict[str, Row]] = {}

    def rank(row: Row) -> tuple[bool, bool, str]:
        """What comes last is shown: full sizes, a model trained on such traces, the latest."""
        fits = row.get("trained_points") == row.get("points")
        return not row.get("quick"), fits, row.get("date", "")

    for row in sorted(rows, key=rank):
        column = "recipe" if row.get("recipe") == "paper" else "ours"
        if column == "ours" and row.get("points") == PAPER_POINTS and row["claim"] != "efficiency":
            column = "like"
        where = row.get("set", "")
        if row["claim"] == "efficiency":
            where = f"{where}, {row.get('device', 'cpu')}"
        if row.get("pooling", POOLINGS[0]) != POOLINGS[0]:
            where = f"{where}, {row['pooling']} pooling"
            if "comparison" in row:  # a run that was made to be compared, short as it may be
                where = f"{where}, {steps_text(row)}"
        where = where.removeprefix(", ")
        for name in filter(row.__contains__, CLAIMS[row["claim"]].fields):
            known, paired = number_of(row, name), name in CLAIMS[row["claim"]].paired
            if known or "reason" in row or (row[name] is not None and not paired):
                found.setdefault((row["claim"], where, row["measure"], name), {})[column] = row
    ranks = {claim: i for i, claim in enumerate(CLAIMS)}
    sets = {key[1]: i for i, key in reversed(list(enumerate(found)))}

    def order(line: Line) -> tuple[int, int, float]:
        """Trainings compared stand with the smallest error first, all else as it came."""
        error = line.main["value"] if line.claim == "comparison" else 0.0
        return ranks[line.claim], sets[line.where], error

    return sorted((Line(*key, cells) for key, cells in found.items()), key=order)


# -- numbers as text -------------------------------------------------------------------------------


def plain(value: float | None) -> str:
    """A number with as many digits as say something."""
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
    """How long the model was trained, if known; a training may go on with weights that there were."""
    if not row.get("steps"):
        return ""
    return f"{row['steps']:,} {'further ' * bool(row.get('onward'))}steps"


def interval_text(row: Row, name: str) -> str:
    if name != "value" or row.get("low") is None or row["n"] <= 1:
        return ""
    return f"{plain(row['low'])} to {plain(row['high'])}"


def cell(line: Line, column: str) -> str:
    """A line's number in a column; a model that was trained for other signals is said to be one."""
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


def runs(rows: Iterable[Row]) -> list[Row]:
    """What was run, each once: the facts of RUN that rows share."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        found.setdefault(tuple(str(row.get(name)) for name in RUN), row)
    return list(found.values())


def run_numbers(rows: Sequence[Row]) -> Callable[[Row], int]:
    places = {tuple(str(run.get(name)) for name in RUN): i for i, run in enumerate(runs(rows), 1)}
    return lambda row: places[tuple(str(row.get(name)) for name in RUN)]


def run_facts(run: Row) -> dict[str, str]:
    """A run in words."""
    recorded = "recorded; the weights are not kept" if run.get("recorded") else ""
    recipe = "the paper's recipe" if run.get("recipe") == "paper" else ""
    notes = "; ".join(filter(None, (recipe, steps_text(run), recorded)))
    many = run.get("signals") if run.get("claim") != "efficiency" else None  # which has its own N
    count = f"{many:,} " if many else ""
    return {
        "command": run.get("command", ""),
        "model": f"{run.get('model', '')}" + (f" ({notes})" if notes else ""),
        "signals": f"{count}of {run.get('points')} points",
        "seed": str(run.get("seed", "")),
        "machine": run.get("machine", ""),
        "date": run.get("date", ""),
    }


# -- the whole record ------------------------------------------------------------------------------


def write(folder: Path, rows: Sequence[Row], log: Sequence[Row] = ()) -> list[Path]:
    """Write the rows, their figures and both pages; the paths.

    log: lines of a training log, for the curves. Without matplotlib there are no figures, and the
    pages say so.
    """
    write_rows(folder, rows)
    figures = [*draw(rows, log)]
    pages = {"README.md": markdown(rows, figures), "index.html": page(rows, figures)}
    files = {folder / name: text.encode() for name, text in pages.items()}
    pictures = {folder / "figures" / f"{figure.name}.png": figure.png for figure in figures}
    _write(folder, pictures | files)
    return [folder / ROWS, *files]


def write_rows(folder: Path, rows: Iterable[Row]) -> None:
    """evaluation.json alone, a row a line."""
    text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    _write(folder, {folder / ROWS: f"[\n{text}\n]\n".encode()})


def _write(folder: Path, files: dict[Path, bytes]) -> None:
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            write_file(path, data)
    except OSError as error:
        raise RhovecError(f"{folder}: cannot be written: {error.strerror}") from None


INTRODUCTION = (
    "The paper is Candussio, Sarti, Saveri and Bortolussi, Distilling Formal Logic into Neural "
    "Spaces: A Kernel Alignment Approach for Signal Temporal Logic. A number is confirmed if all of "
    "our 95 % interval reaches what the paper states, and reversed if all of it shows the opposite "
    "of a comparison. Numbers without a verdict depend on the set of formulae or on the machine, or "
    "are not in the paper. Of times, the interval is from the least to the most of n calls."
)


def markdown(rows: Sequence[Row], figures: Sequence[Drawn]) -> str:
    """README.md: the tables, with links to the figures."""
    found, number = lines(rows), run_numbers(rows)
    out = [
        "# The paper's claims, measured",
        "",
        INTRODUCTION,
        "",
        "| claim | verdict |",
        "|---|---|",
    ]
    for claim, part in _by_claim(found):
        out.append(f"| [{CLAIMS[claim].title}](#{_anchor(claim)}) | {overall(_verdicts(part))} |")
    for claim, part in _by_claim(found):
        out += ["", f"## {CLAIMS[claim].title}", "", _says(claim, part)]
        for where in dict.fromkeys(line.where for line in part):
            here = [line for line in part if line.where == where]
            texts = _texts(here)
            heads = ["", *texts, "run"]
            out += ["", f"**{_set_text(here)}**", ""] if where else [""]
            out += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
            for line, *cells in zip(here, *texts.values(), strict=True):
                cells = [line.name, *cells, str(number(line.main))]
                out.append("| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |")
        for figure in figures:
            if figure.claim == claim:
                out += ["", f"![{figure.caption}](figures/{figure.name}.png)"]
    out += ["", "## Runs", ""]
    for i, run in enumerate(runs(rows), 1):
        facts = run_facts(run)
        rest = "; ".join(f"{k} {v}" for k, v in facts.items() if v and k != "command")
        out.append(f"{i}. `{facts['command']}`: {rest}.")
    return "\n".join(out) + "\n"


def _by_claim(found: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    for claim in dict.fromkeys(line.claim for line in found):
        yield claim, [line for line in found if line.claim == claim]


def _verdicts(part: Iterable[Line]) -> list[Any]:
    return [judge(line.main, line.field) for line in part]


def _texts(part: Sequence[Line]) -> dict[str, list[str]]:
    """A table by columns: head to texts, a line each; without columns that are empty."""
    reached = {line.cells["recipe"]["steps"] for line in part if "recipe" in line.cells}
    steps = " and ".join(f"{steps:,}" for steps in sorted(reached))
    heads = COLUMNS | {"recipe": f"{COLUMNS['recipe']}, {steps} of {PAPER_STEPS:,} steps"}
    columns: dict[str, list[str]] = {
        "paper": [paper_text(line) for line in part],
        **{head: [cell(line, name) for line in part] for name, head in heads.items()},
        "n": [plain(line.n) for line in part],
        "interval": [interval_text(line.main, line.field) for line in part],
        "verdict": [judge(line.main, line.field) for line in part],
    }
    return {head: texts for head, texts in columns.items() if any(texts)}


def _says(claim: str, part: Sequence[Line]) -> str:
    """What the paper claims, and for which poolings that has not been measured."""
    measured = {row.get("pooling") for line in part for row in line.cells.values()}
    missing = [pooling for pooling in POOLINGS if pooling not in measured]
    if claim not in ("fidelity", "agreement") or not missing:
        return CLAIMS[claim].says
    return f"{CLAIMS[claim].says} Not measured: {' and '.join(missing)} pooling."


def _set_text(part: Sequence[Line]) -> str:
    digest = next((line.main["sha256"] for line in part if line.main.get("sha256")), "")
    return part[0].where + (f" (SHA-256 {digest[:12]}…)" if digest else "")


def _anchor(claim: str) -> str:
    return CLAIMS[claim].title.lower().replace(" ", "-")


def page(rows: Sequence[Row], figures: Sequence[Drawn]) -> str:
    """index.html: one file that needs nothing else. Of a claim's sets all but the first are folded."""
    found, number = lines(rows), run_numbers(rows)
    title = "The paper's claims, measured"
    out = [f"<h1>{escape(title)}</h1><p>{escape(INTRODUCTION)}</p>"]
    verdicts = [
        (
            Cell(f'<a href="#{claim}">{escape(CLAIMS[claim].title)}</a>'),
            _verdict_cell(overall(_verdicts(part))),
        )
        for claim, part in _by_claim(found)
    ]
    out.append(table(("claim", "verdict"), verdicts))
    for claim, part in _by_claim(found):
        out.append(f'<section id="{claim}"><h2>{escape(CLAIMS[claim].title)}</h2>')
        out.append(f"<p>{escape(_says(claim, part))}</p>")
        drawn = [captioned(f.svg, f.caption) for f in figures if f.claim == claim]
        out += ['<div class="figures">', *drawn, "</div>"] if drawn else []
        for i, where in enumerate(dict.fromkeys(line.where for line in part)):
            here = [line for line in part if line.where == where]
            shown, head = _table(here, number), escape(_set_text(here))
            if i or len(here) > LONG:
                summary = f"{head}: " * bool(head) + f"{len(here)} numbers"
                out.append(f"<details><summary>{summary}</summary>{shown}</details>")
            else:
                out += [f"<h3>{head}</h3>"] * bool(head) + [shown]
        out.append("</section>")
    if not figures:
        out.append('<p class="soft">No figures: matplotlib was not installed.</p>')
    out.append('<section id="runs"><h2>Runs</h2>')
    done = [run_facts(run) for run in runs(rows)]
    cells = [
        (
            Cell(f'<span id="run-{i}">{i}</span>'),
            Cell(f"<code>{escape(facts.pop('command'))}</code>"),
            *(Cell(escape(fact)) for fact in facts.values()),
        )
        for i, facts in enumerate(done, 1)
    ]
    out += [table(("run", *run_facts({})), cells), "</section>"]
    return document(title, out)


def _table(part: Sequence[Line], number: Callable[[Row], int]) -> str:
    texts = _texts(part)
    rows = []
    for line, *found in zip(part, *texts.values(), strict=True):
        run = number(line.main)
        cells = [_cell(line, head, text) for head, text in zip(texts, found, strict=True)]
        rows.append([Cell(escape(line.name)), *cells, Cell(f'<a href="#run-{run}">{run}</a>')])
    return table(["measure", *texts, "run"], rows)


def _cell(line: Line, head: str, text: str) -> Cell:
    if head == "verdict":
        return _verdict_cell(text)
    if head == "interval":
        text = text.replace(" ", "\u00a0")  # stays on one line
    noted = number_of(line.main, line.field) if head == "paper" else None
    return Cell(escape(text), "number", noted.where if noted else "")


def _verdict_cell(verdict: str) -> Cell:
    kind = verdict.replace(" ", "-") if not verdict.startswith("in part") else "not-confirmed"
    return Cell(escape(verdict), kind)


# -- figures ---------------------------------------------------------------------------------------


def draw(rows: Sequence[Row], log: Sequence[Row] = ()) -> Iterator[Drawn]:
    """Every figure that the rows and the log have numbers for; none without matplotlib."""
    made = lines(row for row in rows if row["claim"] == "comparison")
    trainings = [line.main for line in made if line.field == "value"]
    own = lines(row for row in rows if "comparison" not in row)
    shown = [
        line.main | {"paper": _paper(line)}
        for line in own
        if line.field == "value" and line.main["value"] is not None
    ]
    shown += [row for row in rows if "counts" in row]
    yield from drawn([
        *fidelity.sketches(shown, log), *agreement.sketches(shown),
        *efficiency.sketches(shown, paper_costs()), *probing.sketches(shown),
        *reconstruction.sketches(shown), *comparison.sketches(trainings, paper_errors()),
    ])  # fmt: skip


def _paper(line: Line) -> float | None:
    number = number_of(line.main, line.field)
    return None if number is None else number.paper
