"""`rhovec demo`: published requirements through a model, or yours through a space of your traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import RhovecError
from .inputs import naming
from .output import console, progress_bar, replacing_text, require_output
from .shared import Files, Reading, Rounding, SpacePath, read_for

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from ..demo.own import OwnTour
    from ..demo.systems import System
    from ..demo.tour import Pair, Tour

WIDTH = 79


def demo(
    files: Files,
    space: SpacePath = None,
    rounding: Rounding = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page, an .html file.")
    ] = Path("rhovec-demo.html"),
) -> None:
    """Compare published requirements by meaning, and write a page about it.

    With --space, the folder of a space of your traces, it is about your system instead: your
    requirements (-F), or, without any, formulae drawn for its channels.

    rhovec demo --space car -F requirements.stl
    """
    require_output(out, (".html",))
    from ..demo.own import own_tour
    from ..demo.own_page import own_page
    from ..demo.page import page
    from ..demo.tour import tour
    from ..spaces import Space, load

    if files != Files() and not files.files:
        raise RhovecError("--set and --skip-invalid go with -F")
    loaded = load(space)
    if not isinstance(loaded, Space):
        if loaded.schema is not None:
            raise RhovecError(
                f"--space {space}: the demo of a model shows published requirements, and this model "
                "is about other traces; give a space of those (`rhovec train space`)"
            )
        if files.files:
            raise RhovecError("-F goes with --space, the folder of a space of your traces")
    reading = Reading(**vars(files), rounding=rounding)
    requirements = read_for(loaded, reading, None) if files.files else []
    with replacing_text(out) as stream:  # if that cannot be done, better now than after the work
        with progress_bar("reading the library") as progress:
            if isinstance(loaded, Space):
                with naming(requirements, partial(loaded.embed, warn=False)):
                    own = own_tour(loaded, requirements, progress)
                html, parts = own_page(own), partial(own_summary, own)
            else:
                shown = tour(loaded, progress)
                html, parts = page(shown), partial(summary, shown)
        stream.write(html)
    screen = console(markup=False)
    width = min(WIDTH, screen.width)
    for part in parts(width):
        screen.print(part, width=width)
    print(f"Written, with a map, all pairs and more traces: {out}")


def summary(shown: Tour, width: int) -> Iterator[RenderableType]:
    """The tour in a terminal."""
    import numpy as np

    from ..demo.tour import QUERY, TRACES

    systems = len({r.system.name for r in shown.requirements})
    exact, neural = shown.within
    error = np.abs(exact - neural)
    yield _section(
        f"{len(shown.requirements)} published requirements of {systems} systems, by meaning",
        "",
        "How similar are two requirements? 1: they mean the same. 0: unrelated, or opposed.",
        f"exact   by their robustness on {TRACES:,} random traces, ± standard error",
        "neural  by the shipped model, which sees only the formulae",
        "Each is scaled by the normal ranges and the time step of its system, and compared "
        "with others of the same system.",
        "",
    )
    yield _section(
        "Written differently, nearly the same meaning",
        "The first two are rewritten by laws of the logic, the others are as published.",
    )
    yield _pairs([*shown.rewritten[:2], *shown.same[:4]], "≈", width)
    yield _section("Written almost the same, another meaning", "A few characters differ.")
    yield _pairs(shown.other[:4], "≠", width)
    yield _section(
        "Neural against exact",
        f"Over all {len(error):,} pairs within a system the two differ by {error.mean():.3f} on "
        f"average, half of them by less than {np.median(error):.3f}.",
        "",
    )
    if shown.decoded:
        yield _section(
            "From the vector back to a formula", "The decoder sees only the vector of the first."
        )
        yield _pairs(shown.decoded, "→", width)
    yield _section(
        "Search by meaning",
        "Vectors find candidates, the exact value ranks them. Query, for the transmission:",
        f"  {QUERY}",
    )
    found = [([pair.second.text], *_values(pair)) for pair in shown.hits]
    yield _table("found", found, width, ("exact", "neural"))
    yield _section(
        "Requirements on traces",
        "Robustness is the margin by which a trace satisfies a requirement, in its own unit. "
        "✓ satisfied, ✗ violated.",
    )
    yield _checks(shown.systems[0], width)


def own_summary(shown: OwnTour, width: int) -> Iterator[RenderableType]:
    """The tour of your own space in a terminal."""
    from ..demo.own import in_words

    space, by = shown.space, "vectors"
    n, _, points = space.scales.values.shape
    requirements = "requirement" if shown.given == 1 else "requirements"
    yield _section(
        f"{len(shown.texts)} {requirements if shown.given else 'drawn formulae'} on {n:,} traces of "
        f"{points} points",
        "",
        "How similar are two formulae? 1: they mean the same. 0: unrelated, or opposed.",
        "exact    by their robustness on these traces, ± standard error",
        f"vectors  by {space.dimension} numbers each, {space.error:.4f} off on average",
        "",
    )
    if shown.same:
        yield _section("Written differently, nearly the same meaning")
        yield _pairs(shown.same[:4], "≈", width, by)
    if shown.other:
        yield _section("Written almost the same, another meaning")
        yield _pairs(shown.other[:4], "≠", width, by)
    if shown.fronts:
        yield _section(
            "From the vector back to a formula", "The search sees only the vector of the first."
        )
        yield _pairs((front.closest(space) for front in shown.fronts), "→", width, by)
    if shown.way:
        yield _section("From one formula to another", "Similarity to the first and to the last.")
        steps = [
            ([in_words(space, step.formula)], f"{step.first:.3f}", f"{step.second:.3f}")
            for step in shown.way
        ]
        yield _table("formula", steps, width, ("first", "last"))
    if shown.hits:
        yield _section(
            "Search by meaning",
            "Vectors find candidates, the exact value ranks them. Query:",
            f"  {shown.hits[0].first.text}",
        )
        found = [([pair.second.text], *_values(pair)) for pair in shown.hits]
        yield _table("found", found, width, ("exact", by))


def _section(title: str, *paragraphs: str) -> Text:
    from rich.text import Text

    return Text("\n").join([Text(title, "bold"), *map(Text, paragraphs)])


def _pairs(pairs: Iterable[Pair], sign: str, width: int, by: str = "neural") -> Table:
    rows = [([pair.first.text, f"{sign} {pair.second.text}"], *_values(pair)) for pair in pairs]
    return _table("two requirements", rows, width, ("exact", by))


def _values(pair: Pair) -> tuple[str, str]:
    return f"{pair.exact:.3f} ± {pair.error:.3f}", f"{pair.neural:.3f}"


def _table(
    head: str, rows: Sequence[tuple[list[str], str, str]], width: int, names: tuple[str, str]
) -> Table:
    from rich.text import Text

    table = _empty(head, width)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for texts, *values in rows:
        table.add_row(Text("\n".join(texts)), *values)
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
