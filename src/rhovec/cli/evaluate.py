"""`rhovec evaluate`: the paper's claims measured, as a table, as rows, figures and a page."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import RhovecError
from .output import cell, console
from .shared import Device, ModelPath, progress_bar

if TYPE_CHECKING:
    from ..evaluation.claims import Report
    from ..evaluation.sets import FormulaSet

SIGNALS, QUICK_SIGNALS = 16_384, 2048  # of the kernel that vectors are held against
SIGNALS_SEED = 1234  # of those signals, which is no seed of any training
OUT, QUICK_OUT = Path("results"), Path("results/quick")


def evaluate(
    claims: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CLAIM",
            help="fidelity, agreement, efficiency, probing, reconstruction, library or outside "
            "(default: all of them).",
            show_default=False,
        ),
    ] = None,
    model: ModelPath = None,
    points: Annotated[
        int | None,
        typer.Option(
            help="Points of the kernel's signals (default: those that the model was trained for).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--formulae",
            "-F",
            metavar="FILE",
            help="Measure on these formulae instead of the shipped sets: one a line, or the column "
            "`formula` of a .csv. May be repeated.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: two minutes.")] = False,
    device: Device = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Add the rows of an evaluation.json from elsewhere, as recorded; without claims "
            "nothing else is measured. May be repeated.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the record (default: results; with --quick results/quick).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure the paper's claims; print a table, and write rows, figures and a page.

    OUT/evaluation.json keeps what was measured before, unless it is measured again. Trainings that
    benchmarks/comparison.py recorded in OUT/comparison are shown beside it.

    Examples: rhovec evaluate --quick; rhovec evaluate fidelity agreement -F formulae.csv;
    rhovec evaluate --device cuda; rhovec evaluate --add run/evaluation.json.
    """
    from ..evaluation.claims import MEASURED, run
    from ..evaluation.report import ROWS, merge, read_rows, write, write_rows
    from ..models.model import load
    from ..signals import BaseMeasure

    unknown = [claim for claim in claims or () if claim not in MEASURED]
    if unknown:
        raise RhovecError(f"there is no claim {unknown[0]!r}; claims are {', '.join(MEASURED)}")
    folder = out or (QUICK_OUT if quick else OUT)
    rows = merge(
        [row for row in read_rows(folder / ROWS) if "comparison" not in row],
        compared(folder / "comparison"),
    )
    for path in add or ():
        if not path.exists():
            raise RhovecError(f"{path}: there is no such file")
        rows = merge(rows, [row | {"recorded": True} for row in read_rows(path)])
    new: list[dict[str, Any]] = []
    if claims or not add:
        loaded = load(model, device)
        kernel = loaded.kernel(QUICK_SIGNALS if quick else SIGNALS, SIGNALS_SEED)
        if points is not None:
            measure = loaded.config["teacher"]["measure"] | {"points": points}
            kernel = replace(kernel, measure=BaseMeasure(**measure))
        facts = {
            "command": command(claims, model, points, seed, files, quick, device),
            "machine": machine(device),
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        }

        def merged(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return merge(rows, [row | facts for row in found])

        with progress_bar("reading formulae"):
            sets = sets_of(files or (), loaded.encoder.channels, seed)
        write_rows(folder, rows)  # if that cannot be done, better now than after measuring
        with reporting() as progress:
            new = run(
                claims or MEASURED, loaded, sets, kernel, quick, seed, progress,
                lambda found: write_rows(folder, merged(found)),
            )  # fmt: skip
        rows = merged(new)
    log = folder / "encoder" / "log.jsonl"
    curve = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    paths = write(folder, rows, curve)
    show(new)
    print(f"written: {', '.join(map(str, paths))}")
    if not find_spec("matplotlib"):
        print('no figures: they need matplotlib, pip install "rhovec[plots]"', file=sys.stderr)


def compared(folder: Path) -> list[dict[str, Any]]:
    """What benchmarks/comparison.py recorded: the rows of its table, and those of whole runs that
    have a place among the claims (the paper's recipe, other poolings, 1000 points)."""
    from ..evaluation.report import ROWS, read_rows

    rows = [row for path in sorted(folder.glob(f"*/{ROWS}")) for row in read_rows(path)]
    return [row for row in rows if row["claim"] == "comparison" or row.get("shown")]


def sets_of(files: Sequence[Path], channels: int, seed: int) -> list[FormulaSet]:
    """The files' formulae, or the shipped sets: the headline one, and held-out families."""
    from ..evaluation.sets import headline, held_out, read_formulae

    if files:
        return [read_formulae(path, seed) for path in files]
    wide = [held_out(channels=channels, seed=seed)] if channels > 3 else []
    return [headline(), held_out(channels=min(3, channels), seed=seed), *wide]


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The rows as a table, one a claim and set."""
    from rich.table import Table

    from ..evaluation.claims import CLAIMS, judge
    from ..evaluation.report import cell as value_cell
    from ..evaluation.report import interval_text, lines, paper_text, plain

    screen = console(width=None if sys.stdout.isatty() else 120)
    found = lines(rows)
    for claim, where in dict.fromkeys((line.claim, line.where) for line in found):
        title = CLAIMS[claim].title + (f", {where}" if where else "")
        table = Table("measure", title=title, title_justify="left")
        for name in ("paper", "ours", "n", "interval"):
            table.add_column(name, justify="right")
        table.add_column("verdict")
        for line in found:
            if (line.claim, line.where) == (claim, where):
                column = next(iter(line.cells))
                ends = interval_text(line.main, line.field)
                texts = (
                    line.name,
                    paper_text(line),
                    value_cell(line, column),
                    plain(line.n),
                    ends,
                )
                table.add_row(*map(cell, texts), judge(line.main, line.field))
        screen.print(table)


@contextmanager
def reporting() -> Iterator[Report]:
    """On a terminal a bar that says what is being measured, otherwise a line for each part."""
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
    claims: Sequence[str] | None,
    model: str | None,
    points: int | None,
    seed: int,
    files: Sequence[Path] | None,
    quick: bool,
    device: str | None,
) -> str:
    """What was asked for, as one would type it; of files and folders the names alone."""
    words = ["rhovec", "evaluate", *(claims or ())]
    words += ["--quick"] if quick else []
    name = model and Path(model).name
    for option, value in (
        ("--model", name), ("--points", points), ("--device", device), ("--seed", seed)
    ):  # fmt: skip
        words += [option, str(value)] if value else []
    for path in files or ():
        words += ["-F", path.name]
    return shlex.join(words)


def machine(device: str | None) -> str:
    """Where a run takes place, in words."""
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    parts = [f"{next(iter(names), processor)}, {os.cpu_count()} cores"]
    packages = ["numpy"]
    if device is not None:
        import torch

        packages.append("torch")
        if device.startswith("cuda"):
            parts.append(torch.cuda.get_device_name(device))
    parts.append(f"Python {platform.python_version()}")
    return ", ".join(parts + [f"{name} {version(name)}" for name in packages])
