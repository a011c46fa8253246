"""`rhovec demo`: the published requirements through the shipped model, on a terminal and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import console, progress_bar, replacing_text, require_output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ..demo.systems import System
    from ..demo.tour import Pair, Tour

WIDTH = 79


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page, an .html file.")
    ] = Path("rhovec-demo.html"),
) -> None:
    """Compare published requirements by meaning, and write a page about it."""
    require_output(out, (".html",))
    from ..demo.page import page
    from ..demo.tour import tour
    from ..models.model import load

    with replacing_text(out) as stream:  # if that cannot be done, better now than after the work
        with progress_bar("reading the library") as progress:
            shown = tour(load(), progress)
        stream.write(page(shown))
    screen = console(markup=False)
    width = min(WIDTH, screen.width)
    for part in summary(shown, width):
        screen.print(part, width=width)
    print(f"Written, with a map of the library, all pairs and more traces: {out}")


def summary(shown: Tour, width: int) -> Iterator[RenderableType]:
    """The tour in a terminal."""
    import numpy as np
    from rich.text import Text

    from ..demo.tour import QUERY, TRACES

    def section(title: str, *paragraphs: str) -> Text:
        return Text("\n").join([Text(title, "bold"), *map(Text, paragraphs)])

    systems = len({r.system.name for r in shown.requirements})
    exact, neural = shown.within
    error = np.abs(exact - neural)
    yield section(
        f"{len(shown.requirements)} published requirements of {systems} systems, by meaning",
        "",
        "How similar are two requirements? 1: they mean the same. 0: unrelated, or opposed.",
        f"exact   by their robustness on {TRACES:,} random traces, ± standard error",
        "neural  by the shipped model, which sees only the formulae",
        "Each is scaled by the normal ranges and the time step of its system, and compared "
        "with others of the same system.",
        "",
    )
    yield section(
        "Written differently, nearly the same meaning",
        "The first two are rewritten by laws of the logic, the others are as published.",
    )
    yield _pairs([*shown.rewritten[:2], *shown.same[:4]], "≈", width)
    yield section("Written almost the same, another meaning", "A few characters differ.")
    yield _pairs(shown.other[:4], "≠", width)
    yield section(
        "Neural against exact",
        f"Over all {len(error):,} pairs within a system the two differ by {error.mean():.3f} on "
        f"average, half of them by less than {np.median(error):.3f}.",
        "",
    )
    if shown.decoded:
        yield section(
            "From the vector back to a formula", "The decoder sees only the vector of the first."
        )
        yield _pairs(shown.decoded, "→", width)
    yield section(
        "Search by meaning",
        "Vectors find candidates, the exact value ranks them. Query, for the transmission:",
        f"  {QUERY}",
    )
    yield _table("found", [([pair.second.text], pair) for pair in shown.hits], width)
    yield section(
        "Requirements on traces",
        "Robustness is the margin by which a trace satisfies a requirement, in its own unit. "
        "✓ satisfied, ✗ violated.",
    )
    yield _checks(shown.systems[0], width)


def _pairs(pairs: Iterable[Pair], sign: str, width: int) -> Table:
    rows = [([pair.first.text, f"{sign} {pair.second.text}"], pair) for pair in pairs]
    return _table("two requirements", rows, width)


def _table(head: str, rows: Sequence[tuple[list[str], Pair]], width: int) -> Table:
    from rich.text import Text

    table = _empty(head, width)
    for name in ("exact", "neural"):
        table.add_column(name, justify="right", no_wrap=True)
    for texts, pair in rows:
        exact = f"{pair.exact:.3f} ± {pair.error:.3f}"
        table.add_row(Text("\n".join(texts)), exact, f"{pair.neural:.3f}")
    return table


def _checks(system: System, width: int) -> Table:
    from rich.text import Text

    table = _empty(system.title, width)
    for name in system.traces:
        table.add_column(name, justify="right", no_wrap=True)
    for text, row, good in zip(system.requirements.values(), *system.check(), strict=True):
        cells = [
            Text(f"{v:+.4g} ✓", "green") if ok else Text(f"{v:+.4g} ✗", "bold red")
            for v, ok in zip(row, good, strict=True)
        ]
        table.add_row(Text(text), *cells)
    return table


def _empty(head: str, width: int) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, width=width, leading=1)
    table.add_column(head, ratio=1)
    return table
