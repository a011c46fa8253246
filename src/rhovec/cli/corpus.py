"""`rhovec corpus build | stats`: formulae by the million, as parquet shards, and what is in them.

A build that was interrupted goes on when the same command is given again, and gives the same bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="corpus",
    help="Build a corpus of formulae on disk, and see what it holds.",
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False)]


@app.command()
def build(
    folder: Folder,
    families: Annotated[
        int, typer.Option(help="Families; times the family size, that many formulae.")
    ] = 412_500,
    family_size: Annotated[int, typer.Option(help="Formulae a family.")] = 8,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    channels: Annotated[
        int, typer.Option(help="Variables x_0, x_1, ...; a family uses some of them.")
    ] = 3,
    max_nodes: Annotated[int, typer.Option(help="Nodes of the largest formula.")] = 64,
    workers: Annotated[
        int, typer.Option(help="Threads; 0 takes all cores. The result is the same.")
    ] = 0,
) -> None:
    """Write a corpus into FOLDER, or complete one that was interrupted.

    The default is 3.3 million formulae, as many as the paper's.
    """
    from ..corpus.build import build as build_corpus
    from ..corpus.families import Recipe

    recipe = Recipe(seed=seed, family_size=family_size, channels=channels, max_nodes=max_nodes)
    workers = workers or os.cpu_count() or 1
    with _progress() as progress:
        shards = build_corpus(folder, recipe, families=families, workers=workers, progress=progress)
    print(f"{families * family_size:,} formulae in {len(shards)} shards in {folder}")


@app.command()
def stats(
    folder: Folder,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="PNG", help="Draw the distributions, too.", show_default=False),
    ] = None,
) -> None:
    """Print what a corpus holds: kinds, sizes, operators, rewrites."""
    from ..corpus.stats import MEASURES, corpus_stats, plot_stats, quantiles
    from ..errors import RhovecError

    if plot is not None and plot.suffix != ".png":
        raise RhovecError(f"--plot {plot}: the name of the figure must end in .png")
    with _progress() as progress:
        found = corpus_stats(folder, progress)
    total = found["formulae"]
    planned = found["manifest"]["families"] * found["manifest"]["family_size"]
    print(f"{total:,} of {planned:,} formulae, {found['shards']} shards")
    for name in ("kinds", "splits"):
        _table(name, {k: f"{100 * v / total:.2f} %" for k, v in found[name].items()})
    for name in MEASURES:
        _table(name, quantiles(found[name]))
    for name in ("operators", "changes"):
        _table(f"{name}, a formula", {k: f"{v / total:.4f}" for k, v in found[name].items()})
    if plot is not None:
        plot_stats(found, plot)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """What shows shards done of all as a bar, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(
        MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), disable=not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _table(title: str, values: dict[str, Any]) -> None:
    print(f"\n{title}")
    for name, value in values.items():
        print(f"  {name:<20}{value:>10}")
