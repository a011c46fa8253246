"""The demo of your own space as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..pages import Cell, document, table
from .own import MIN_MAP, OwnTour, in_words
from .page import (
    STYLE,
    Both,
    cards,
    map_of,
    matrix_of,
    pair_table,
    said,
    system_card,
    values_of,
)
from .tour import Written

MAP = "Each dot is a formula, and close dots have close vectors. Colours are variables."
MATRIX = (
    "Above the diagonal the exact similarity, below it that of the vectors: the two halves should "
    "mirror each other. Frames hold formulae about the same variables."
)


def own_page(shown: OwnTour) -> str:
    """The whole page."""
    body = [*_head(shown), *_pairs(shown), *_fronts(shown), *_way(shown), *_search(shown)]
    script = ""
    if len(shown.texts) >= MIN_MAP:
        both = Both(shown.texts, shown.exact, shown.near)
        body[1:1] = map_of(shown.texts, shown.vectors, MAP)
        body += matrix_of(both, MATRIX)
        script = both.script("by vectors", "Nearest", within=False)
    body += [*_traces(shown), *_reading(shown)]
    return document("rhovec: your space", body, STYLE, script)


def _head(shown: OwnTour) -> Iterator[str]:
    space, count = shown.space, len(shown.texts)
    what = "formulae, drawn for your channels,"
    if shown.given:
        what = "requirement" if count == 1 else "requirements"
    if shown.given > count:
        what = f"requirements, the first of {shown.given:,},"
    n, _, points = space.scales.values.shape
    channels = ", ".join(
        f"<code>{escape(c.expression)}</code>" + (f" ({escape(c.unit)})" if c.unit else "")
        for c in space.schema.channels
    )
    centred = ", centred" if space.centred else ""
    yield "".join([
        f"<h1>{count} {what} on your traces</h1>",
        f'<p class="lead">The space of {n:,} traces of {points} points, one every '
        f"{space.schema.dt:g} s: {channels}. A formula is a vector of length one, and the inner "
        "product of two vectors says how similar the formulae are on these traces: 1 means the "
        "same, 0 unrelated or opposed.</p>",
        cards((
            (f"{space.dimension}", f"numbers per vector{centred}"),
            (f"{space.error:.4f}", "mean error of a similarity by vectors"),
            (f"{space.standard_error:.4f}", f"mean standard error, from only {n:,} traces"),
            (space.fingerprint, "fingerprint of the space"),
        )),
    ])  # fmt: skip


def _pairs(shown: OwnTour) -> Iterator[str]:
    if shown.same:
        yield "<section><h2>Written differently, nearly the same meaning</h2>"
        yield (
            "<p>On these traces they are hardly told apart: one may be redundant, or the traces lack "
            "the case that tells them apart. The exact similarity has a standard error.</p>"
        )
        yield pair_table("two formulae", shown.same, "by vectors")
        yield "</section>"
    if shown.other:
        yield "<section><h2>Written almost the same, another meaning</h2>"
        yield "<p>Formulae about the same variables with little in common on these traces.</p>"
        yield pair_table("two formulae", shown.other, "by vectors")
        yield "</section>"


def _fronts(shown: OwnTour) -> Iterator[str]:
    if shown.fronts:
        yield "<section><h2>From the vector back to a formula</h2>"
        yield (
            "<p>The search sees only the vector. Answers go from short to exact, in your names and "
            "units, times in seconds.</p>"
        )
        for asked, answers in shown.fronts:
            rows = [
                (
                    said([Written(in_words(shown.space, one.formula), "")]),
                    Cell(f"{one.kernel:.3f} ± {one.standard_error:.3f}", "number"),
                    Cell(f"{one.similarity:.3f}", "number"),
                    Cell(f"{one.formula.size}", "number"),
                )
                for one in answers
            ]
            yield f"<h3>{escape(asked.title)}: <code>{escape(asked.text)}</code></h3>"
            yield table(("decoded", "exact", "by vectors", "nodes"), rows)
        yield "</section>"


def _way(shown: OwnTour) -> Iterator[str]:
    if shown.way:
        yield "<section><h2>From one formula to another</h2>"
        yield (
            "<p>Vectors on the shortest way between two, each decoded, with the similarity to both "
            "ends.</p>"
        )
        rows = [
            (
                said(
                    [Written(in_words(shown.space, step.formula), f"{step.share:.0%} of the way")]
                ),
                Cell(f"{step.first:.3f}", "number"),
                Cell(f"{step.second:.3f}", "number"),
            )
            for step in shown.way
        ]
        yield table(("formula", "to the first", "to the last"), rows)
        yield "</section>"


def _search(shown: OwnTour) -> Iterator[str]:
    if shown.hits:
        query = escape(shown.hits[0].first.text)
        yield "<section><h2>Search by meaning</h2>"
        yield (
            f"<p>Which of all formulae here are nearest to <code>{query}</code>? Vectors find the "
            "candidates, the exact kernel ranks them.</p>"
        )
        rows = [(said([pair.second]), *values_of(pair)) for pair in shown.hits]
        yield table(("found", "exact", "by vectors"), rows)
        yield "</section>"


def _traces(shown: OwnTour) -> Iterator[str]:
    yield "<section><h2>On your traces</h2>"
    yield (
        "<p>The robustness is the margin by which a trace satisfies a formula, in the formula's own "
        "unit; below 0 it is violated. Each formula is shown on the traces of the space where its "
        "margin is lowest, in the middle and highest. The lower half of a drawing is the robustness "
        "from each time on, and the dot at time 0 is the number in the table.</p>"
    )
    yield '<div class="figures">'
    for system in shown.systems:
        yield from system_card(system)
    yield "</div></section>"


def _reading(shown: OwnTour) -> Iterator[str]:
    c = "correlation" if shown.space.centred else "cosine"
    yield "<section><h2>What the numbers mean</h2>"
    yield (
        f"<p>The exact similarity of two formulae is exp(−(1 − c) / {shown.space.sigma2:g}), where c "
        f"is the {c} of their robustness over the traces, each channel in standard deviations. "
        "Whether one formula implies another is answered by <code>rhovec compare</code>.</p>"
    )
    yield "<details><summary>All formulae</summary>"
    rows = [(said([text]), Cell(escape(text.system))) for text in shown.texts]
    yield table(("formula", "variables"), rows)
    yield "</details></section>"
