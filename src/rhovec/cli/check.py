"""`rhovec check`: which log violates which requirement, where, and by how much."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import RhovecError, counted
from ..formula.requirements import Statement, read_data
from ..machine import cores
from .fleet import Scheduler
from .inputs import split_names
from .messages import in_options
from .output import (
    cell,
    cells,
    console,
    note,
    progress_bar,
    replacing,
    replacing_text,
    require_output,
    save_table,
)
from .robustness import json_text
from .shared import (  # READING, TIME_UNIT and FormulaFiles: in annotations of inherited fields
    READING,  # noqa: F401
    TIME_UNIT,  # noqa: F401
    TRACES,
    FormulaFiles,  # noqa: F401
    JsonLines,
    Reading,
    TraceFiles,
    option,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..check import Report, Row

REPORTS = "Reports"  # a panel of the help
MAX_STRIP = 40  # logs that the matrix shows one by one
MAX_LISTED = 10  # rows of a list in the summary
MAX_MESSAGES = 30  # about files, on stderr
PLAIN_WIDTH = 110  # of a summary that goes to a file or a pipe
MAX_NAMES = 4  # logs that the matrix names
MARKS = {"violated": "x", "open": "?", "holds so far": ".", "holds": "="}
URGENT = ("violated", "open")
STYLES = {"violated": "red", "open": "yellow", "holds so far": "green", "holds": "green"}


@dataclass(frozen=True)
class LogReading(TraceFiles, Reading):
    """Requirements and logs, and how they are read."""

    dt: Annotated[
        str | None,
        option(
            metavar="SECONDS",
            help="Sampling step of logs without times; without it, their time bounds are numbers of "
            "samples.",
            rich_help_panel=TRACES,
        ),
    ] = None
    resample: Annotated[
        float | None,
        option(
            metavar="SECONDS",
            help="Put logs on a grid with this step (default: logs must be evenly sampled).",
            rich_help_panel=TRACES,
        ),
    ] = None
    missing: Annotated[
        Literal["hold", "interpolate", "error"] | None,
        option(
            help="What to do with empty cells (default: interpolate with --resample, otherwise error).",
            rich_help_panel=TRACES,
        ),
    ] = None
    max_gap: Annotated[
        float | None,
        option(
            metavar="SECONDS",
            help="Samples further apart than this leave a gap in which nothing is known.",
            rich_help_panel=TRACES,
        ),
    ] = None
    hold: Annotated[
        str,
        option(
            metavar="NAMES",
            help="Variables that keep their last value between samples, separated by commas.",
            rich_help_panel=TRACES,
        ),
    ] = ""
    begin: Annotated[
        Literal["unknown", "held"],
        typer.Option(
            help="What was before a log: held takes its first sample for it.",
            rich_help_panel=TRACES,
        ),
    ] = "unknown"
    variables: Annotated[
        str,
        option(
            metavar="NAMES",
            help="Names of the variables of .npy files, or of rows without a header, separated by "
            "commas (default: x_0, x_1, ...).",
            rich_help_panel=TRACES,
        ),
    ] = ""
    encoding: Annotated[
        str | None,
        option(help="Encoding of text files (default: utf-8).", rich_help_panel=TRACES),
    ] = None
    skip_lines: Annotated[
        int, option(help="Lines above the header of text files.", min=0, rich_help_panel=TRACES)
    ] = 0
    repair_times: Annotated[
        bool,
        typer.Option(
            "--repair-times",
            help="Sort rows by time, and take the last of several at one time.",
            rich_help_panel=TRACES,
        ),
    ] = False

    def statements(self) -> list[Statement]:
        """The files, then the arguments, which may use what files define."""
        arguments = self.arguments()
        contents = self.contents(bool(arguments))
        return [*(s for name, data in contents for s in read_data(data, name)), *arguments]

    def plan_options(self) -> dict[str, Any]:
        """The options of `check.plan_of`."""
        parsing = self.options(None, None)
        return {
            **parsing, "parameters": self.parameters(), "resample": self.resample,
            "missing": self.missing, "max_gap": self.max_gap, "hold": split_names(self.hold),
            "begin": self.begin, "layout": self.layout, "id_column": self.id_column,
            "time_column": self.time_column, "time_unit": self.time_unit,
            "variables": self.chosen(), "encoding": self.encoding,
            "skip_lines": self.skip_lines, "repair_times": self.repair_times,
            "invalid": self.left_out,
        }  # fmt: skip


def check(
    reading: LogReading,
    html: Annotated[
        Path | None,
        option(metavar="FILE", help="Write a page with pictures (.html).", rich_help_panel=REPORTS),
    ] = None,
    junit: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="Write a JUnit report (.xml): open is skipped, unreadable is an error.",
            rich_help_panel=REPORTS,
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="Write a table, one row per requirement and log (.csv or .parquet).",
            rich_help_panel=REPORTS,
        ),
    ] = None,
    as_json: JsonLines = False,
    fail_open: Annotated[
        bool,
        typer.Option(
            "--fail-open",
            help="Exit with 1 also if a verdict is open or depends on resampling.",
            rich_help_panel=REPORTS,
        ),
    ] = False,
    workers: Annotated[
        int | None, option(help="Number of processes (default: one per core).", min=1)
    ] = None,
    scheduler: Scheduler = None,
) -> None:
    """Say which log violates which requirement, where, and by how much.

    Exit status: 0 without a violation, 1 with one, 2 if something is wrong or cannot be read.

    rhovec check -F requirements.stl -t logs/ --resample 0.1 --html report.html
    """
    from ..check import check_logs
    from ..tasks import connected

    require_output(html, (".html",))
    require_output(junit, (".xml",))
    require_output(csv, (".csv", ".parquet"))
    if not reading.traces:
        raise RhovecError("no log given: name files or folders with --traces")
    with connected(scheduler) as client, progress_bar("checking logs") as progress:
        report = check_logs(
            reading.statements(), reading.traces, figures=html is not None,
            workers=workers or cores(), client=client, progress=progress, **reading.plan_options(),
        )  # fmt: skip
    messages = [in_options(unread.message) for unread in report.unread]
    # Before anything is printed, which may fail: nobody is to read the reports of an earlier run.
    written = write_reports(report, html, junit, csv)
    if not report.rows:
        if len(messages) == 1:
            raise RhovecError(messages[0])
        note("none of the logs could be read:", *_first(messages))
        raise typer.Exit(2)
    if as_json:
        for row in report.rows:
            print(json_text(row.record()))
    else:
        show_summary(report)
    if written and not as_json:
        print(f"\nwritten: {', '.join(map(str, written))}")
    if messages:
        sys.stdout.flush()
        note(f"{counted(len(messages), 'problem')} while reading or checking:", *_first(messages))
    if status := report.status(fail_open):
        raise typer.Exit(status)


def _first(messages: list[str]) -> list[str]:
    """The messages that a terminal shows."""
    more = len(messages) - MAX_MESSAGES
    last = [f"and {more:,} more, which --html and --junit list"] if more > 0 else []
    return messages[:MAX_MESSAGES] + last


def write_reports(
    report: Report, html: Path | None, junit: Path | None, csv: Path | None
) -> list[Path]:
    if html is not None:
        from ..check.page import page

        with replacing_text(html) as stream:
            stream.write(page(report))
    if junit is not None:
        from ..check.junit import junit_report

        with replacing(junit) as binary:
            binary.write(junit_report(report))
    if csv is not None:
        from ..check.rows import COLUMNS

        save_table(csv, map(_flat, report.rows), COLUMNS)
    return [path for path in (html, junit, csv) if path is not None]


def _flat(row: Row) -> dict[str, Any]:
    """A row for a table, whose cells hold lists as JSON."""
    return {
        key: json.dumps(value) if isinstance(value, list) else value
        for key, value in row.record().items()
    }


# -- the summary -----------------------------------------------------------------------------------


def show_summary(report: Report) -> None:
    """Print the matrix, the worst violations, and what else one must know."""
    if sys.stdout.isatty():
        out = console()
        _summarise(report, out)
        return
    out = console(width=PLAIN_WIDTH)
    with out.capture() as captured:
        _summarise(report, out)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _summarise(report: Report, out: Console) -> None:
    from ..check import words

    def section(title: str, table: Table | None) -> None:
        if table is not None:
            out.print()
            out.print(cell(title, "bold"))
            out.print(table)

    out.print(cell(words.headline(report), "bold"))
    out.print()
    out.print(_matrix(report))
    if len(report.traces) <= MAX_STRIP:
        legend = [f"{mark} {outcome}" for outcome, mark in MARKS.items()]
        out.print(cell(f"one mark per log: {', '.join(legend)}, ! depends on resampling", "dim"))
    worst = report.worst(MAX_LISTED)
    section(
        "Worst violations, by margin over the standard deviation of what is compared",
        _list([(words.ratio(report.severity(row)), row, row.explanation) for row in worst]),
    )
    waiting = [("", row, words.waiting(row)) for row in report.rows if row.verdict == "open"]
    section("Open", _list(waiting))
    section(
        "Depends on resampling", _list([("", row, words.doubt(row)) for row in report.doubtful])
    )
    section("Responses", _responses(report))
    for line in [*report.unseen, *words.resampling(report)]:
        out.print()
        out.print(cell(line))


def _table(*columns: tuple[str, str]) -> Table:
    """An empty table; columns: name, and `r` for numbers, `n` for what is not to be broken."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, kind in columns:
        right: Literal["right", "left"] = "right" if kind == "r" else "left"
        table.add_column(name, justify=right, no_wrap=bool(kind), overflow="fold")
    return table


def _matrix(report: Report) -> Table:
    """Requirements by logs; with many logs, counts and the logs that violate."""
    from ..check import Outcome

    small = len(report.traces) <= MAX_STRIP
    table = _table(
        ("requirement", ""), *((str(outcome), "r") for outcome in Outcome),
        ("logs" if small else "violated by", "n" if small else ""),
    )  # fmt: skip
    for requirement in report.requirements:
        rows, counts = report.by_requirement[requirement.key], report.counts(requirement.key)
        if small:
            marks = {row.trace: _mark(row) for row in rows}
            last = cells(marks.get(trace, ("-", "")) for trace in report.traces)
        else:
            last = cell(_names([row.trace for row in rows if row.verdict == Outcome.VIOLATED]))
        numbers = (
            cell(f"{counts[o]:,}", STYLES[o] if counts[o] and o in URGENT else "dim")
            for o in Outcome
        )
        table.add_row(cell(requirement.label), *numbers, last)
    return table


def _mark(row: Row) -> tuple[str, str]:
    unsure = row.depends_on_resampling and row.verdict not in URGENT
    return "!" if unsure else MARKS[row.verdict], STYLES[row.verdict]


def _names(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _list(rows: list[tuple[str, Row, str]]) -> Table | None:
    """Rows with a text each, the first ones."""
    if not rows:
        return None
    table = _table(("", "r"), ("", "n"), ("", ""), ("", ""))
    table.show_header = False
    for number, row, text in rows[:MAX_LISTED]:
        table.add_row(number, cell(row.requirement), cell(row.trace), cell(text))
    if len(rows) > MAX_LISTED:
        table.add_row("", cell(f"and {len(rows) - MAX_LISTED:,} more", "dim"), "", "")
    return table


def _responses(report: Report) -> Table | None:
    """How often responses were asked for; those that never were come first."""
    from ..check import words

    found = [(r, report.answers(r.key)) for r in report.requirements]
    some = [(r, answers) for r, answers in found if answers is not None]
    if not some:
        return None
    table = _table(
        ("requirement", ""), ("triggered", "r"), ("answered", "r"), ("slowest", "r"), ("", "")
    )
    for requirement, answers in sorted(some, key=lambda pair: pair[1].triggered > 0):
        vacuous = report.vacuous(requirement.key)
        table.add_row(
            cell(requirement.label), f"{answers.triggered:,}", f"{answers.answered:,}",
            words.slowest(report, answers),
            cell("never triggered: it holds vacuously" if vacuous else "", "yellow"),
        )  # fmt: skip
    return table
