"""Records as tables: README.md beside them, and index.html with figures, which is not kept in git.

Both pages are made from the same sections. index.html is one file: its figures are inline SVG that take
their black from the text colour, so that they suit light and dark screens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from rhovec import pages
from rhovec.pages import captioned, document

from . import records
from .figures import Drawn, drawn, sketches
from .lines import (
    COLUMNS,
    POOLINGS,
    Line,
    cell,
    interval_text,
    lines,
    paper_text,
    plain,
    run_facts,
    run_numbers,
    runs_of,
)
from .paper import CLAIMS, STEPS, Row, judge, number_of, overall
from .trainings import ablation_table, decoder_table

TITLE = "The paper's claims, measured"
INTRODUCTION = (
    "The paper is Candussio, Sarti, Saveri and Bortolussi, Distilling Formal Logic into Neural "
    "Spaces: A Kernel Alignment Approach for Signal Temporal Logic. A number is confirmed if our whole "
    "95 % interval reaches what the paper states, and reversed if the whole interval shows the "
    "opposite of a comparison. Numbers without a verdict depend on the set of formulae or on the "
    "machine, or are not in the paper. Intervals of times run from the shortest to the longest of n "
    "calls. A run's command is the one that was given at its time."
)
FOLDED = 60  # lines from which on a table is folded
STYLE = """
.confirmed { color: var(--good); } .reversed { color: var(--worse); }
.not-confirmed, .not-measured { color: var(--bad); }
"""


class Text(NamedTuple):
    """Cell of a table: text, class, note for the pointer, the id that it links to, its own id."""

    text: str
    kind: str = ""
    note: str = ""
    link: str = ""
    name: str = ""


class Table(NamedTuple):
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Text]]
    about: str = ""  # what the title does not say, in a sentence


class Section(NamedTuple):
    name: str
    title: str
    says: str
    tables: list[Table]


def write(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Write claims.json with these rows, README.md and index.html into a folder; their paths.

    Trainings that are recorded in the folder are shown, too. Without matplotlib index.html has no
    figures, and says so.
    """
    records.write_rows(folder / records.ROWS, rows)
    ablations = records.ablation_rows(records.read_runs(folder / "ablations").values())
    decoders = [r for run in records.read_runs(folder / "decoders").values() for r in run.rows]
    encoder = folder / "shipped" / "encoder.json"
    log = records.read_run(encoder).log if encoder.exists() else []
    shown = [*rows, *ablations]
    texts = {
        "README.md": markdown(sections(shown, decoders)),
        "index.html": page(sections(shown, decoders), draw(shown, log)),
    }
    for name, text in texts.items():
        records.write_text(folder / name, text)
    return [folder / name for name in (records.ROWS, *texts)]


# -- sections --------------------------------------------------------------------------------------


def sections(rows: Sequence[Row], decoders: Sequence[Row] = ()) -> list[Section]:
    """Verdicts, one section per claim, the ablations, the decoders, and the runs."""
    measured = [row for row in rows if row["claim"] != records.ABLATIONS]
    trainings = [row for row in rows if row["claim"] == records.ABLATIONS]
    number, found = run_numbers(measured), lines(measured)
    parts = {
        name: [line for line in found if line.claim == name]
        for name in CLAIMS
        if any(line.claim == name for line in found)
    }
    verdicts = [
        [Text(CLAIMS[name].title, link=name), verdict(overall(_verdicts(part)))]
        for name, part in parts.items()
    ]
    out = [Section("verdicts", "", "", [Table("", ("claim", "verdict"), verdicts)])]
    for name, part in parts.items():
        tables = efficiency_tables(part, number) if name == "efficiency" else []
        out.append(Section(name, CLAIMS[name].title, _says(name, part), tables or [
            line_table([line for line in part if line.where == where], number)
            for where in dict.fromkeys(line.where for line in part)
        ]))  # fmt: skip
    for name, title, (says, found_tables) in (
        ("ablations", "Ablations of the training", ablation_table(trainings)),
        ("decoders", "Decoders", decoder_table(decoders)),
    ):
        tables = [
            Table(where, heads, [[Text(cells[0]), *(Text(c, "number") for c in cells[1:])]
                                 for cells in body], about)
            for where, heads, body, about in found_tables
        ]  # fmt: skip
        out += [Section(name, title, says, tables)] if tables else []
    facts = [run_facts(run) for run in runs_of(measured)]
    heads = ("run", *(facts[0] if facts else ()))
    body = [
        [Text(f"{i}", name=f"run-{i}"), *map(Text, fact.values())]
        for i, fact in enumerate(facts, 1)
    ]
    return [*out, Section("runs", "Runs", "", [Table("", heads, body)])]


def line_table(part: Sequence[Line], number: Any) -> Table:
    """Lines of one claim and set, without columns that are empty."""
    reached = {line.cells["recipe"]["steps"] for line in part if "recipe" in line.cells}
    steps = " and ".join(f"{steps:,}" for steps in sorted(reached))
    heads = COLUMNS | {"recipe": f"{COLUMNS['recipe']}, {steps} of {STEPS:,} steps"}
    columns: dict[str, list[Text]] = {
        "paper": [Text(paper_text(line), "number", _source(line)) for line in part],
        **{
            head: [Text(cell(line, name), "number") for line in part]
            for name, head in heads.items()
        },
        "n": [Text(plain(line.n), "number") for line in part],
        "interval": [Text(interval_text(line.main, line.field), "number") for line in part],
        "verdict": [verdict(judge(line.main, line.field)) for line in part],
    }
    kept = {head: cells for head, cells in columns.items() if any(cell.text for cell in cells)}
    rows = [
        [Text(line.name), *cells, Text(str(number(line.main)), link=f"run-{number(line.main)}")]
        for line, *cells in zip(part, *kept.values(), strict=True)
    ]
    digest = next((line.main["sha256"] for line in part if line.main.get("sha256")), "")
    title = part[0].where + (f" (SHA-256 {digest[:12]}…)" if digest else "")
    return Table(title, ("measure", *kept, "run"), rows)


def efficiency_tables(part: Sequence[Line], number: Any) -> list[Table]:
    """Costs with B and N as rows: seconds of both sides and their ratio, memory, and loading."""
    out = []
    for where in dict.fromkeys(line.where for line in part):
        here = {(line.measure, line.field): line for line in part if line.where == where}
        rows = {line.measure: line.main for line in here.values()}
        kernels = [r for r in rows.values() if r.get("side") == "kernel" and r["state"] == "loaded"]
        kernels.sort(key=lambda row: (row["B"], row["N"]))
        for what in dict.fromkeys(row["what"] for row in kernels):
            for kind, field, unit in (("", "value", "seconds"), ("memory, ", "memory_mb", "MB")):
                body = []
                for row in (row for row in kernels if row["what"] == what):
                    size = f"B = {row['B']}, N = {row['N']}"
                    ratio = here.get((f"{what}, {kind}kernel / encoder, {size}", "value"))
                    encoder = rows[f"{what}, encoder, loaded, B = {row['B']}"]
                    if ratio is None:
                        continue
                    cells = [f"{row['B']:,}", f"{row['N']:,}"]
                    for side in (row, encoder):
                        paper = number_of(side, field)
                        mark = " (projected)" if side.get("projected") else ""
                        cells += [plain(side[field]) + mark, f"{paper.paper:,g}" if paper else ""]
                    cells += [plain(ratio.main["value"]), interval_text(ratio.main, "value")]
                    body.append([
                        *(Text(text, "number") for text in [*cells, paper_text(ratio)]),
                        verdict(judge(ratio.main)), Text(str(number(row)), link=f"run-{number(row)}"),
                    ])  # fmt: skip
                heads = ("B", "N", "kernel", "paper's kernel", "encoder", "paper's encoder",
                         "kernel / encoder", "interval", "paper's ratio", "verdict", "run")  # fmt: skip
                out += [Table(f"{where}: {what}, {unit}", heads, body)] if body else []
        rest = [
            line for line in here.values()
            if line.field == "value"
            and (line.main.get("state") == "full" or line.main.get("what") == "parse")
        ]  # fmt: skip
        if rest:
            table = line_table(rest, number)
            out.append(table._replace(title=f"{where}: parsing, and calls that include loading"))
    return out


def verdict(text: str) -> Text:
    return Text(text, "not-confirmed" if text.startswith("in part") else text.replace(" ", "-"))


def _verdicts(part: Iterable[Line]) -> list[Any]:
    return [judge(line.main, line.field) for line in part]


def _source(line: Line) -> str:
    """Where the paper states its number."""
    number = number_of(line.main, line.field)
    return number.where if number else ""


def _says(claim: str, part: Sequence[Line]) -> str:
    """What the paper claims, and for which poolings that has not been measured."""
    measured = {row.get("pooling") for line in part for row in line.cells.values()}
    missing = [pooling for pooling in POOLINGS if pooling not in measured]
    if claim not in ("fidelity", "agreement") or not missing:
        return CLAIMS[claim].says
    return f"{CLAIMS[claim].says} Not measured: {' and '.join(missing)} pooling."


# -- pages -----------------------------------------------------------------------------------------


def markdown(found: Sequence[Section]) -> str:
    """README.md, without figures."""
    titles = {section.name: section.title for section in found}

    def text(item: Text) -> str:
        out = item.text.replace("|", "\\|")
        anchor = titles.get(item.link, "").lower().replace(" ", "-")
        return f"[{out}](#{anchor})" if anchor else out

    out = [f"# {TITLE}", "", INTRODUCTION, "", "Written by `python -m reproduction page`, which also "
           "writes index.html, the same with figures."]  # fmt: skip
    for section in found:
        out += ["", f"## {section.title}"] * bool(section.title)
        out += ["", section.says] * bool(section.says)
        for table in section.tables:
            out += ["", f"**{table.title}**"] * bool(table.title)
            out += ["", f"| {' | '.join(table.heads)} |", "|" + "---|" * len(table.heads)]
            out += [f"| {' | '.join(map(text, row))} |" for row in table.rows]
            out += ["", table.about] * bool(table.about)
    return "\n".join(out) + "\n"


def page(found: Sequence[Section], figures: Iterable[Drawn]) -> str:
    """index.html. All tables of a section but the first, and long ones, are folded."""
    drawings = list(figures)
    out = [f"<h1>{escape(TITLE)}</h1><p>{escape(INTRODUCTION)}</p>"]
    for section in found:
        out.append(f'<section id="{section.name}">')
        out += [f"<h2>{escape(section.title)}</h2>"] * bool(section.title)
        out += [f"<p>{escape(section.says)}</p>"] * bool(section.says)
        here = [captioned(f.svg, f.caption) for f in drawings if f.claim == section.name]
        out += ['<div class="figures">', *here, "</div>"] if here else []
        for i, table in enumerate(section.tables):
            shown = pages.table(table.heads, [[_cell(*item) for item in row] for row in table.rows])
            shown += f"<p>{escape(table.about)}</p>" * bool(table.about)
            head = escape(table.title)
            if i or len(table.rows) > FOLDED:
                summary = f"{head}: " * bool(head) + f"{len(table.rows)} rows"
                out.append(f"<details><summary>{summary}</summary>{shown}</details>")
            else:
                out += [f"<h3>{head}</h3>"] * bool(head) + [shown]
        out.append("</section>")
    if not drawings:
        out.append('<p class="soft">No figures: matplotlib was not installed.</p>')
    return document(TITLE, out, STYLE)


def _cell(text: str, kind: str, note: str, link: str, name: str) -> pages.Cell:
    markup = escape(text)
    if kind == "number" and " to " in text:
        markup = markup.replace(" ", "\u00a0")  # an interval stays on one line
    if link:
        markup = f'<a href="#{link}">{markup}</a>'
    if name:
        markup = f'<span id="{name}">{markup}</span>'
    return pages.Cell(markup, kind, note)


def draw(rows: Sequence[Row], log: Sequence[Row] = ()) -> Iterator[Drawn]:
    """Every figure that the rows and the log have numbers for; none without matplotlib."""
    trainings = [row for row in rows if row["claim"] == records.ABLATIONS]
    own = lines(row for row in rows if "ablation" not in row)
    shown = [
        line.main | {"paper": _paper(line)}
        for line in own
        if line.field == "value" and line.main["value"] is not None
    ]
    shown += [row for row in rows if "counts" in row]
    first = [row for row in trainings if row["set"] == trainings[0]["set"]]
    yield from drawn(sketches(shown, log, sorted(first, key=lambda row: row["value"])))


def _paper(line: Line) -> float | None:
    number = number_of(line.main, line.field)
    return None if number is None else number.paper
