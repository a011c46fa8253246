"""Rows of `claims.run` as a record: evaluation.json, figures, README.md, and index.html.

A row is known by what was measured, on what, of which model: measured again, it replaces the old one,
and everything else stays. Everything that is shown, figures included, is made from the rows (and, for
the curves, from a training log), so that a page can be drawn again without measuring. index.html is one
file: figures are inline SVG whose ink is the page's text colour, which is how they suit light and dark.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import RhovecError
from ..files import write_file
from ..pages import BLUE, COLOURS, GREY, ORANGE, Cell, captioned, document, table
from .claims import AGREEMENT, CLAIMS, DEEP, SORTS, Row, judge, number_of, overall, paper_costs
from .probing import TARGETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = "evaluation.json"
KEY = ("claim", "measure", "set", "points", "model", "device", "quick")
RUN = ("command", "machine", "date", "model", "recipe", "steps", "points", "seed")
COLUMNS = {  # where a row is shown
    "recipe": "the paper's recipe here",
    "like": "ours, 1000 points",
    "ours": "ours",
}
PAPER_POINTS = 1000
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
                where = f"{where}, {row['steps']:,} steps"
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
    steps = f"{run['steps']:,} steps" if run.get("steps") else ""
    recipe = "the paper's recipe" if run.get("recipe") == "paper" else ""
    notes = "; ".join(filter(None, (recipe, steps, recorded)))
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
            columns = _columns(here)
            heads = ["", "paper", *columns.values(), "n", "interval", "verdict", "run"]
            out += ["", f"**{_set_text(here)}**", ""] if where else [""]
            out += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
            for line in here:
                cells = [line.name, paper_text(line), *(cell(line, name) for name in columns)]
                cells += [plain(line.n), interval_text(line.main, line.field)]
                cells += [judge(line.main, line.field), str(number(line.main))]
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


def _columns(part: Sequence[Line]) -> dict[str, str]:
    """The columns of a table: the paper's recipe and ours always, ours at 1000 points if there."""
    some = {name for line in part for name in line.cells}
    return {name: title for name, title in COLUMNS.items() if name != "like" or name in some}


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
    columns = _columns(part)
    heads = ["measure", "paper", *columns.values(), "n", "interval", "verdict", "run"]
    rows = []
    for line in part:
        run, noted = number(line.main), number_of(line.main, line.field)
        rows.append([
            Cell(escape(line.name)),
            Cell(escape(paper_text(line)), "number", noted.where if noted else ""),
            *(Cell(escape(cell(line, name)), "number") for name in columns),
            Cell(plain(line.n), "number"),
            Cell(escape(interval_text(line.main, line.field)), "number"),
            _verdict_cell(judge(line.main, line.field)),
            Cell(f'<a href="#run-{run}">{run}</a>'),
        ])  # fmt: skip
    return table(heads, rows)


def _verdict_cell(verdict: str) -> Cell:
    kind = verdict.replace(" ", "-") if not verdict.startswith("in part") else "not-confirmed"
    return Cell(escape(verdict), kind)


# -- figures ---------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A figure under a claim, as a PNG file and as an SVG element."""

    name: str
    claim: str
    caption: str
    png: bytes
    svg: str


def draw(rows: Sequence[Row], log: Sequence[Row] = ()) -> Iterator[Drawn]:
    """Every figure that the rows and the log have numbers for; none without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return
    own = [row for row in rows if "comparison" not in row]
    measured = (line.main for line in lines(own) if line.field == "value")
    shown = [row for row in measured if row["value"] is not None]
    shown += [row for row in rows if "counts" in row]
    sketches: list[tuple[str, str, str, Callable[[Axes], bool]]] = [
        (
            f"curve-{name}", "fidelity", f"Training of the encoder: {name}. {note}",
            lambda axes, name=name: _curve(axes, log, name),  # type: ignore[misc]
        )
        for name, note in (
            ("loss", "The paper gives no figure."),
            ("alignment", "Dashed: the paper's 0.9."),
            ("uniformity", "Dashed: the paper's −3.0 (training) and −2.4 (validation)."),
        )
    ]  # fmt: skip
    sketches += [
        ("map", "fidelity", "Pairs of formulae by exact kernel and by inner product.",
         lambda axes: _map(axes, shown)),
        ("depth", "fidelity", "Mean absolute error by depth of the formula, 95 % intervals.",
         lambda axes: _depth(axes, shown)),
        ("agreement", "agreement", "Mean absolute error by sort of pair, 95 % intervals.",
         lambda axes: _agreement(axes, shown)),
        *(
            (f"{what}-{quantity}", "efficiency",
             f"{title}: kernel and encoder, signals and model loaded. Hollow: projected.",
             lambda axes, what=what, quantity=quantity: _costs(axes, shown, what, quantity))
            for what, quantity, title in (
                ("embed", "seconds", "Time to embed B formulae"),
                ("pairs", "seconds", "Time to compare B formulae pairwise, embedding included"),
                ("embed", "MB", "Peak memory to embed B formulae"),
            )
        ),
        *(
            (f"probe-{target.split()[0]}", "probing",
             f"A probe of two layers on vectors: {target} of test formulae.",
             lambda axes, target=target: _probe(axes, shown, target))
            for target in TARGETS
        ),
        ("reconstruction", "reconstruction",
         "Cosine of robustness: medians and quartiles over formulae. Dashed: the paper's median.",
         lambda axes: _reconstruction(axes, shown)),
        ("comparison", "comparison",
         "Mean absolute error of each training, 95 % intervals. Hollow: on equivalent pairs.",
         lambda axes: _comparison(axes, rows)),
    ]  # fmt: skip
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rhovec", "font.size": 9}):
        for name, claim, caption, sketch in sketches:
            figure = Figure(figsize=(4.4, 3.3), layout="constrained")
            axes = figure.subplots()
            axes.set_prop_cycle(color=COLOURS)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.3)
            if sketch(axes):
                yield Drawn(name, claim, caption, _png(figure), _svg(figure, name, caption))


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    return stream.getvalue()


def _svg(figure: Figure, name: str, caption: str) -> str:
    """The figure as an element whose black is the text's colour, and whose ids are its own."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue().decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"#000000|(?<=fill: )black|(?<=stroke: )black", "currentColor", text)
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1).strip()


def _curve(axes: Axes, log: Sequence[Row], name: str) -> bool:
    for part, label, colour in (("", "training", BLUE), ("valid_", "validation", ORANGE)):
        chosen = [line for line in log if line.get(part + name) is not None]
        steps, values = [line["step"] for line in chosen], [line[part + name] for line in chosen]
        axes.plot(steps, values, color=colour, label=label)
    levels = {"alignment": ((0.9, GREY),), "uniformity": ((-3.0, BLUE), (-2.4, ORANGE))}
    for level, colour in levels.get(name, ()):
        axes.axhline(level, color=colour, linestyle="--", linewidth=1)
    if name == "loss":
        axes.set_yscale("log")
    axes.set(xlabel="step", ylabel=name)
    _legend(axes)
    return bool(log)


def _map(axes: Axes, shown: Sequence[Row]) -> bool:
    import numpy as np

    row = next((row for row in shown if "counts" in row), None)
    if row is None:
        return False
    counts = np.array(row["counts"], float)
    counts[counts == 0] = np.nan
    picture = axes.imshow(
        np.log10(counts).T, origin="lower", extent=(-0.1, 1, -0.1, 1), cmap="viridis"
    )
    axes.plot([-0.1, 1], [-0.1, 1], color=GREY, linewidth=0.8)
    axes.set(xlabel="kernel", ylabel="inner product")
    axes.set_title(_short(row["set"]), fontsize=9)
    colours = axes.figure.colorbar(picture, ax=axes, shrink=0.8)
    colours.set_label("log10 of pairs")
    return True


def _depth(axes: Axes, shown: Sequence[Row]) -> bool:
    prefix = "mean absolute error, depth "
    chosen = [row for row in shown if row["measure"].startswith(prefix)]
    for where in dict.fromkeys(row["set"] for row in chosen):
        here = [row for row in chosen if row["set"] == where]
        depths = [row["measure"].removeprefix(prefix) for row in here]
        places = [DEEP + 1 if depth.startswith(">") else int(depth) for depth in depths]
        _points(axes, places, here, label=_short(where))
    axes.set(xlabel=f"depth ({DEEP + 1}: more than {DEEP})", ylabel="mean absolute error")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return bool(chosen)


def _agreement(axes: Axes, shown: Sequence[Row]) -> bool:
    chosen = [row for row in shown if row["claim"] == "agreement" and row["measure"] in SORTS]
    sets = list(dict.fromkeys(row["set"] for row in chosen))
    for i, where in enumerate(sets):
        here = [row for row in chosen if row["set"] == where]
        places = [SORTS.index(row["measure"]) + (i - len(sets) / 2) * 0.12 for row in here]
        _points(axes, places, here, label=_short(where), linestyle="")
    numbers = [number_of(row) for row in chosen[: len(SORTS)]]
    values = [number.paper for number in numbers if number and number.paper]
    places = [SORTS.index(row["measure"]) + 0.25 for row in chosen[: len(values)]]
    axes.plot(places, values, "D", color=GREY, label="paper")
    axes.set_yscale("log")
    axes.set_xticks(range(len(SORTS)), ["equivalent", "random", "lexically similar"])
    axes.set(ylabel="mean absolute error", xlim=(-0.5, len(SORTS) - 0.5))
    _legend(axes)
    return bool(chosen)


def _costs(axes: Axes, shown: Sequence[Row], what: str, quantity: str) -> bool:
    """Over N, for B = 2000 if there, which is the paper's own choice."""
    name = "value" if quantity == "seconds" else "memory_mb"
    rows = [r for r in shown if r.get("what") == what and r.get("state") == "loaded"]
    sizes = {row["B"] for row in rows}
    if not sizes:
        return False
    b = 2000 if 2000 in sizes else max(sizes)
    rows = [row for row in rows if row["B"] == b]
    for device in dict.fromkeys(row["device"] for row in rows):
        here = [row for row in rows if row["device"] == device]
        kernel = sorted((r["N"], r[name], r["projected"]) for r in here if r["side"] == "kernel")
        counts, values, projected = zip(*kernel, strict=True)
        level = next(row[name] for row in here if row["side"] == "encoder")
        (line,) = axes.plot(counts, values, label=f"kernel, {device}")
        axes.scatter(
            counts, values, 16, ["none" if p else line.get_color() for p in projected],
            edgecolors=line.get_color(),
        )  # fmt: skip
        axes.plot(counts, [level] * len(counts), "-s", markersize=3, label=f"encoder, {device}")
    costs = {n: cost for (size, n), cost in paper_costs().items() if size == b}
    for side, style in (("kernel", "--"), ("loaded", ":")):
        key = f"{what} {side}" + (" MB" if quantity == "MB" else "")
        level_of = [cost[key] for cost in costs.values()]
        label = f"paper's {'kernel' if side == 'kernel' else 'Transformer'}"
        if costs:
            axes.plot(list(costs), level_of, style, color=GREY, label=label)
    axes.set(xscale="log", yscale="log", xlabel="N, signals", ylabel=quantity)
    low, high = (math.log10(end) for end in axes.get_ylim())
    axes.set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
    axes.set_xticks(sorted({row["N"] for row in rows if row["side"] == "kernel"}))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.7g}")
        axis.set_minor_formatter(lambda value, _: "")
    axes.set_title(f"B = {b} formulae", fontsize=9)
    _legend(axes)
    return True


def _probe(axes: Axes, shown: Sequence[Row], target: str) -> bool:
    measure = f"{target}: r, vectors, two layers"
    row = next((row for row in shown if row["measure"] == measure), None)
    if row is None:
        return False
    truth, predicted = zip(*row["shown"], strict=True)
    ends = min(truth), max(truth)
    axes.plot(truth, predicted, ".", markersize=3, alpha=0.6)
    axes.plot(ends, ends, color=GREY, linewidth=0.8)
    number = number_of(row)
    paper = f" (paper {number.paper})" if number else ""
    axes.set_title(f"r = {row['value']:.4f}{paper}", fontsize=9)
    axes.set(xlabel=f"{target}, exact", ylabel="predicted")
    return True


def _reconstruction(axes: Axes, shown: Sequence[Row]) -> bool:
    names = ("cosine", "cosine, decoder alone", "cosine of a constant sign")
    chosen = [row for row in shown if row["claim"] == "reconstruction" and row["measure"] in names]
    sets = list(dict.fromkeys(row["set"] for row in chosen))
    for i, where in enumerate(sets):
        here = [row for row in chosen if row["set"] == where]
        places = [names.index(row["measure"]) + (i - len(sets) / 2) * 0.12 for row in here]
        spans = [
            row | {"low": row["lower_quartile"], "high": row["upper_quartile"]} for row in here
        ]
        _points(axes, places, spans, label=_short(where), linestyle="")
    axes.axhline(0.8688, color=GREY, linestyle="--", linewidth=1)
    axes.set_xticks(range(len(names)), ["verified", "decoder alone", "constant sign"])
    axes.set(ylabel="cosine", xlim=(-0.5, len(names) - 0.5))
    _legend(axes)
    return bool(chosen)


def _comparison(axes: Axes, rows: Sequence[Row]) -> bool:
    """On the first set, the smallest error on top; another number of points is another kernel."""
    made = [line.main for line in lines(row for row in rows if row["claim"] == "comparison")]
    best_last = [row for row in made[::-1] if row["set"] == made[0]["set"]]
    chosen = list({row["measure"]: row for row in best_last}.values())
    for points in sorted({row["points"] for row in chosen}):
        here = [(i, row) for i, row in enumerate(chosen) if row["points"] == points]
        places, runs_here = zip(*here, strict=True)
        values = [row["value"] for row in runs_here]
        low, high = ([row[end] for row in runs_here] for end in ("low", "high"))
        (dots,) = axes.plot(values, places, "o", markersize=4, label=f"signals of {points} points")
        axes.hlines(places, low, high, color=dots.get_color())
        equivalent = [row["equivalent"] for row in runs_here]
        axes.plot(equivalent, places, "o", markersize=4, mfc="none", color=dots.get_color())
    axes.set_yticks(range(len(chosen)), [row["measure"] for row in chosen], fontsize=7)
    axes.set(xscale="log", xlabel="mean absolute error")
    if chosen:
        axes.set_title(_short(chosen[0]["set"]), fontsize=9)
    _legend(axes)
    return bool(chosen)


def _legend(axes: Axes) -> None:
    """Above the axes, where no line is."""
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)


def _points(axes: Axes, places: Sequence[float], rows: Sequence[Row], **style: Any) -> None:
    """Values with their intervals; a bootstrap interval of a few formulae may leave the value out."""
    values = [row["value"] for row in rows]
    below = [max(0.0, row["value"] - row.get("low", row["value"])) for row in rows]
    above = [max(0.0, row.get("high", row["value"]) - row["value"]) for row in rows]
    axes.errorbar(places, values, (below, above), marker="o", markersize=4, capsize=2, **style)


def _short(where: str, size: int = 40) -> str:
    """A set's name in a legend: without its seed and its size."""
    name = re.sub(r", seed \d+| \(.*?\)", "", where)
    return name if len(name) <= size else f"{name[: size - 1]}…"
