"""`rhovec corpus build | stats`: formulae by the million, as parquet shards, and their statistics.

An interrupted build continues when the same command is given again, and writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..machine import cores
from .output import progress_bar, replacing, require_output
from .shared import JsonObject, picture

app = typer.Typer(
    name="corpus",
    help="Build a corpus of formulae on disk, and print its statistics.",
)
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder of the corpus.", show_default=False)
]


@app.command()
def build(
    folder: Folder,
    families: Annotated[
        int, typer.Option(help="Number of families; each holds --family-size formulae.")
    ] = 412_500,
    family_size: Annotated[int, typer.Option(help="Formulae per family.")] = 8,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    channels: Annotated[
        int, typer.Option(help="Variables x_0, x_1, ...; a family uses some of them.")
    ] = 3,
    max_nodes: Annotated[int, typer.Option(help="Largest number of nodes of a formula.")] = 64,
    workers: Annotated[
        int, typer.Option(help="Threads; 0 takes all cores. The result does not depend on it.")
    ] = 0,
) -> None:
    """Write a corpus into FOLDER, or complete one that was interrupted.

    The default is 3.3 million formulae, as many as the paper's.

    rhovec corpus build corpus --families 10000 --channels 8
    """
    from ..corpus.build import build as build_corpus
    from ..corpus.families import Recipe

    recipe = Recipe(seed=seed, family_size=family_size, channels=channels, max_nodes=max_nodes)
    workers = workers or cores()
    with _progress() as progress:
        shards = build_corpus(folder, recipe, families=families, workers=workers, progress=progress)
    print(f"{families * family_size:,} formulae in {len(shards)} shards in {folder}")


@app.command()
def stats(
    folder: Folder,
    plot: Annotated[Path | None, picture("Draw the distributions as a .png file.")] = None,
    as_json: JsonObject = False,
) -> None:
    """Print the statistics of a corpus: kinds, sizes, operators, rewrites.

    rhovec corpus stats corpus --plot corpus.png
    """
    from ..corpus.stats import MEASURES, corpus_stats, plot_stats, quantiles

    require_output(plot, (".png",))
    with _progress() as progress:
        found = corpus_stats(folder, progress)
    if plot is not None:
        with replacing(plot) as stream:
            plot_stats(found, stream)
    if as_json:
        print(json.dumps(found, default=lambda counts: counts.tolist()))
        return
    total = found["formulae"]
    planned = found["manifest"]["families"] * found["manifest"]["family_size"]
    print(f"{total:,} of {planned:,} formulae, {found['shards']} shards")
    for name in ("kinds", "splits"):
        _table(name, {k: f"{100 * v / total:.2f} %" for k, v in found[name].items()})
    for name in MEASURES:
        _table(name, quantiles(found[name]))
    for name in ("operators", "changes"):
        _table(f"{name}, per formula", {k: f"{v / total:.4f}" for k, v in found[name].items()})


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar that shows the share of shards done."""
    with progress_bar("corpus") as show:

        def progress(done: int, total: int) -> None:
            show(done / total)

        yield progress


def _table(title: str, values: dict[str, Any]) -> None:
    print(f"\n{title}")
    for name, value in values.items():
        print(f"  {name:<20}{value:>10}")
