"""`python -m reproduction`: measure the paper's claims, train the ablations, write the tables.

Run it in a checkout in which rhovec is installed, or with PYTHONPATH=src.
"""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhovec import machine
from rhovec.cli.evaluate import QUICK_TRACES, DrawSeed, Files, KernelPoints, sets_of
from rhovec.cli.shared import Device, ModelPath
from rhovec.errors import RhovecError

from . import records

if TYPE_CHECKING:
    from .measure import Report

QUICK = records.FOLDER.with_name("quick")  # records of --quick
IN_PROGRESS = records.FOLDER.with_name("runs")  # trainings

MoreFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--formulae",
        "-F",
        metavar="FILE",
        help="Measure on these formulae, too: one per line, or the column `formula` of a .csv. May be "
        "repeated.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder of the records.", show_default=False),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this run. May be repeated.", show_default=False),
]
TrainingDevice = Annotated[str, typer.Option(help="cpu or cuda.")]
Tiny = Annotated[bool, typer.Option("--tiny", help="Small models and sets, for a rehearsal.")]

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="The paper's claims: measure them, train the ablations, write the tables.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    try:
        app(prog_name="python -m reproduction")
    except RhovecError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CLAIM",
            help="fidelity, agreement, efficiency, probing, reconstruction, library or outside "
            "(default: all of them).",
            show_default=False,
        ),
    ] = None,
    model: ModelPath = None,
    points: KernelPoints = None,
    seed: DrawSeed = 0,
    files: Files = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: two minutes.")] = False,
    device: Device = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Add the rows of a claims.json from another machine; without claims nothing is "
            "measured. May be repeated.",
            show_default=False,
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Measure claims of the paper, and write rows, tables and a page.

    Rows that were measured before stay, unless they are measured again. With --quick the records go
    to reproduction/quick.
    """
    from rhovec.evaluation.encoder import TRACES, TRACES_SEED
    from rhovec.models.model import load
    from rhovec.traces import BaseMeasure

    from .measure import run
    from .paper import CLAIMS

    unknown = [claim for claim in names or () if claim not in CLAIMS]
    if unknown:
        raise RhovecError(f"there is no claim {unknown[0]!r}; claims are {', '.join(CLAIMS)}")
    folder = out or (QUICK if quick else records.FOLDER)
    rows = records.read_rows(folder / records.ROWS)
    for path in add or ():
        if not path.exists():
            raise RhovecError(f"{path}: there is no such file")
        rows = records.merge(rows, records.read_rows(path))
    new: list[dict[str, Any]] = []
    if names or not add:
        loaded = load(model, device)
        kernel = loaded.kernel(QUICK_TRACES if quick else TRACES, TRACES_SEED)
        if points is not None:
            measure = loaded.config["teacher"]["measure"] | {"points": points}
            kernel = replace(kernel, measure=BaseMeasure(**measure))
        facts = {
            "command": command(names, model, points, seed, files, quick, device),
            "machine": machine.describe(device),
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        }

        def merged(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return records.merge(rows, [row | facts for row in found])

        sets = sets_of(files or (), loaded, seed)
        # If the folder cannot be written, better to fail now than after measuring.
        records.write_rows(folder / records.ROWS, rows)
        with reporting() as progress:
            new = run(
                names or CLAIMS, loaded, sets, kernel, quick, seed, progress,
                lambda found: records.write_rows(folder / records.ROWS, merged(found)),
            )  # fmt: skip
        rows = merged(new)
    write(folder, rows)
    show(new)


@app.command()
def page(out: Out = None) -> None:
    """Write the tables and the page anew from the records, without measuring."""
    folder = out or records.FOLDER
    write(folder, records.read_rows(folder / records.ROWS))


@app.command()
def ablations(
    device: TrainingDevice = "cpu",
    minutes: Annotated[float, typer.Option(help="For all chosen runs together.")] = 20.0,
    steps: Annotated[
        int | None, typer.Option(help="Of each run, instead of minutes.", show_default=False)
    ] = None,
    only: Only = None,
    files: MoreFiles = None,
    tiny: Tiny = False,
    out: Out = None,
) -> None:
    """Train encoders that differ in one respect, and record them."""
    from rhovec.evaluation.encoder import TRACES
    from rhovec.evaluation.sets import headline, held_out, read_formulae

    from .ablations import OVERHEAD, Judge, ablate, runs

    known = runs("tiny" if tiny else "default")
    chosen = {name: known[name] for name in picked(only, known)}
    seconds = 60 * minutes / len(chosen) - OVERHEAD
    if steps is None and seconds <= 0:
        least = len(chosen) * OVERHEAD / 60
        raise RhovecError(f"{len(chosen)} runs need more than {least:.0f} minutes")
    sets = [held_out(8, pairs=60)] if tiny else [headline(), held_out()]
    sets += map(read_formulae, files or ())
    judge = Judge(sets, [path.name for path in files or ()], 512 if tiny else TRACES, tiny)
    folder = out or records.FOLDER
    ablate(
        folder / "ablations", IN_PROGRESS / "ablations" if out is None else out / "runs", chosen, device,
        judge, steps, seconds,
    )  # fmt: skip
    write(folder, records.read_rows(folder / records.ROWS))


@app.command()
def decoders(
    device: TrainingDevice = "cpu",
    steps: Annotated[int, typer.Option(help="Of runs with prefix tokens.")] = 4000,
    text_steps: Annotated[int, typer.Option(help="Of runs with text.")] = 2500,
    only: Only = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Folder of the encoder (default: the shipped one).", show_default=False),
    ] = None,
    files: MoreFiles = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Requests per set.")] = 500,
    traces: Annotated[int, typer.Option(min=1000, help="Traces to judge answers on.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the traces.")] = 1,
    tiny: Tiny = False,
    out: Out = None,
) -> None:
    """Train decoders on several vectors and tokens, and record them."""
    from .decoders import RUNS, Options, train_decoders

    given = Options(device, steps, text_steps, model, tuple(files or ()), n, traces, seed, tiny)
    folder = out or records.FOLDER
    runs = IN_PROGRESS / "decoders" if out is None else out / "runs"
    train_decoders(folder / "decoders", runs, picked(only, RUNS), given)
    write(folder, records.read_rows(folder / records.ROWS))


def picked(only: Sequence[str] | None, known: dict[str, Any]) -> list[str]:
    """The runs that were asked for, or all of them."""
    for name in only or ():
        if name not in known:
            raise RhovecError(f"there is no run {name!r}; runs are {', '.join(known)}")
    return list(dict.fromkeys(only or known))


def write(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    from . import report

    paths = report.write(folder, rows)
    print(f"written: {', '.join(map(str, paths))}")
    if not find_spec("matplotlib"):
        print('no figures: they need matplotlib, pip install "rhovec[plots]"', file=sys.stderr)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The rows as tables, one per claim and set."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .lines import cell, interval_text, lines, paper_text, plain
    from .paper import CLAIMS, judge

    console = Console(width=None if sys.stdout.isatty() else 120)
    found = lines(rows)
    for claim, where in dict.fromkeys((line.claim, line.where) for line in found):
        title = CLAIMS[claim].title + (f", {where}" if where else "")
        table = Table("measure", title=title, title_justify="left")
        for name in ("paper", "ours", "n", "interval"):
            table.add_column(name, justify="right")
        table.add_column("verdict")
        for line in found:
            if (line.claim, line.where) == (claim, where):
                ours, ends = (
                    cell(line, next(iter(line.cells))),
                    interval_text(line.main, line.field),
                )
                texts = (line.name, paper_text(line), ours, plain(line.n), ends)
                table.add_row(*map(Text, texts), judge(line.main, line.field))
        console.print(table)


@contextmanager
def reporting() -> Iterator[Report]:
    """On a terminal a bar that names what is being measured, otherwise a line for each part."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    terminal = sys.stderr.isatty()
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not terminal
    ) as bars:
        task = bars.add_task("", total=1.0)

        def report(text: str, share: float) -> None:
            bars.update(task, completed=share, description=text)
            if not terminal:
                print(f"{share:4.0%} {text}", file=sys.stderr, flush=True)

        yield report


def command(
    names: Sequence[str] | None,
    model: str | None,
    points: int | None,
    seed: int,
    files: Sequence[Path] | None,
    quick: bool,
    device: str | None,
) -> str:
    """The command as one would type it, with files and folders by name only."""
    words = ["python", "-m", "reproduction", "claims", *(names or ())]
    words += ["--quick"] if quick else []
    name = model and Path(model).name
    for option, value in (
        ("--model", name), ("--points", points), ("--device", device), ("--seed", seed)
    ):  # fmt: skip
        words += [option, str(value)] if value else []
    for path in files or ():
        words += ["-F", path.name]
    return shlex.join(words)


if __name__ == "__main__":
    main()
