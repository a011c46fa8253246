"""What the figures of all claims share: how they are drawn, as PNG and as SVG for a page.

A claim's module sketches its own figures, on axes that it is given. Rows have, beside their own numbers,
`paper`, the paper's number that theirs stands beside, or None. matplotlib is needed to draw alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from ..pages import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]  # of a record: a claim, what was measured, on what, and the numbers


class Sketch(NamedTuple):
    """A figure to be drawn under a claim; draw says whether it had any numbers to draw."""

    claim: str
    name: str
    caption: str
    draw: Callable[[Axes], bool]


class Drawn(NamedTuple):
    """A figure under a claim, as a PNG file and as an SVG element."""

    name: str
    claim: str
    caption: str
    png: bytes
    svg: str


def drawn(sketches: Iterable[Sketch]) -> Iterator[Drawn]:
    """Every figure that has numbers; none without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rhovec", "font.size": 9}):
        for claim, name, caption, draw in sketches:
            figure = Figure(figsize=(4.4, 3.3), layout="constrained")
            axes = figure.subplots()
            axes.set_prop_cycle(color=COLOURS)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.3)
            if draw(axes):
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


# -- parts of sketches -----------------------------------------------------------------------------


def legend(axes: Axes) -> None:
    """Above the axes, where no line is."""
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)


def points(axes: Axes, places: Sequence[float], rows: Sequence[Row], **style: Any) -> None:
    """Values with their intervals; a bootstrap interval of a few formulae may leave the value out."""
    values = [row["value"] for row in rows]
    below = [max(0.0, row["value"] - row.get("low", row["value"])) for row in rows]
    above = [max(0.0, row.get("high", row["value"]) - row["value"]) for row in rows]
    axes.errorbar(places, values, (below, above), marker="o", markersize=4, capsize=2, **style)


def points_by_sort(axes: Axes, sorts: Sequence[str], rows: Sequence[Row]) -> None:
    """Points of each set, side by side over the sort that a row measures."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    for i, where in enumerate(sets):
        here = [row for row in rows if row["set"] == where]
        places = [sorts.index(row["measure"]) + (i - len(sets) / 2) * 0.12 for row in here]
        points(axes, places, here, label=short(where), linestyle="")
    axes.set_xlim(-0.5, len(sorts) - 0.5)


def short(where: str, size: int = 40) -> str:
    """A set's name in a legend: without its seed and its size."""
    name = re.sub(r", seed \d+| \(.*?\)", "", where)
    return name if len(name) <= size else f"{name[: size - 1]}…"
