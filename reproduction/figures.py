"""Figures of all claims, as SVG for a page; matplotlib is needed only to draw.

`sketches` lists the figures that rows and a training log can fill. Rows have, beside their own numbers,
`paper`: the paper's value for the same number, or None.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rhovec.pages import BLUE, COLOURS, GREY, ORANGE

from .measure import MAX_DEPTH
from .paper import SORTS, Row, paper_costs, paper_errors
from .probing import TARGETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Sketch(NamedTuple):
    """A figure of a claim; `draw` returns whether it had any numbers to draw."""

    claim: str
    name: str
    caption: str
    draw: Callable[[Axes], bool]


class Drawn(NamedTuple):
    """A figure of a claim as an SVG element."""

    name: str
    claim: str
    caption: str
    svg: str


def drawn(sketches: Iterable[Sketch]) -> Iterator[Drawn]:
    """Draw every figure that has numbers; none without matplotlib."""
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
                yield Drawn(name, claim, caption, _svg(figure, name, caption))


def _svg(figure: Figure, name: str, caption: str) -> str:
    """The figure as an element that takes its black from the text colour and has unique ids."""
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


# -- parts of figures ------------------------------------------------------------------------------


def legend(axes: Axes) -> None:
    """Put the legend above the axes, where no line is."""
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)


def points(axes: Axes, places: Sequence[float], rows: Sequence[Row], **style: Any) -> None:
    """Plot values with their intervals; with few formulae an interval may leave its value out."""
    values = [row["value"] for row in rows]
    below = [max(0.0, row["value"] - row.get("low", row["value"])) for row in rows]
    above = [max(0.0, row.get("high", row["value"]) - row["value"]) for row in rows]
    axes.errorbar(places, values, (below, above), marker="o", markersize=4, capsize=2, **style)


def points_by_sort(axes: Axes, sorts: Sequence[str], rows: Sequence[Row]) -> None:
    """Plot the points of each set side by side above the sort that a row measures."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    for i, where in enumerate(sets):
        here = [row for row in rows if row["set"] == where]
        places = [sorts.index(row["measure"]) + (i - len(sets) / 2) * 0.12 for row in here]
        points(axes, places, here, label=short(where), linestyle="")
    axes.set_xlim(-0.5, len(sorts) - 0.5)


def short(where: str, size: int = 40) -> str:
    """Name of a set for a legend: without its seed and its size."""
    name = re.sub(r", seed \d+| \(.*?\)", "", where)
    return name if len(name) <= size else f"{name[: size - 1]}…"


# -- the figures -----------------------------------------------------------------------------------


def sketches(rows: Sequence[Row], log: Sequence[Row], trainings: Sequence[Row]) -> list[Sketch]:
    """Every figure. log: lines of the encoder's training; trainings: rows of the ablations, one per
    training and set, the smallest error first.
    """
    curves = {
        "loss": "The paper gives no figure.",
        "alignment": "Dashed: the paper's 0.9.",
        "uniformity": "Dashed: the paper's −3.0 (training) and −2.4 (validation).",
    }
    costs = {
        ("embed", "seconds"): "Time to embed B formulae",
        (
            "pairs",
            "seconds",
        ): "Time for all pairwise similarities of B formulae, embedding included",
        ("embed", "MB"): "Peak memory to embed B formulae",
    }
    out = [
        Sketch("fidelity", f"curve-{name}", f"Training of the encoder: {name}. {note}",
               partial(_curve, log=log, name=name))
        for name, note in curves.items()
    ]  # fmt: skip
    out += [
        Sketch("fidelity", "map", "Pairs of formulae by exact kernel and by inner product.",
               partial(_map, rows=rows)),
        Sketch("fidelity", "depth", "Mean absolute error by depth of the formula, 95 % intervals.",
               partial(_depth, rows=rows)),
        Sketch("agreement", "agreement", "Mean absolute error by sort of pair, 95 % intervals.",
               partial(_agreement, rows=rows)),
    ]  # fmt: skip
    out += [
        Sketch("efficiency", f"{what}-{quantity}",
               f"{title}: from texts, traces and model loaded. Hollow: projected.",
               partial(_costs, rows=rows, what=what, quantity=quantity))
        for (what, quantity), title in costs.items()
    ]  # fmt: skip
    out += [
        Sketch("probing", f"probe-{target.split()[0]}",
               f"A probe of two layers on vectors: {target} of test formulae.",
               partial(_predictions, rows=rows, target=target))
        for target in TARGETS
    ]  # fmt: skip
    out += [
        Sketch("reconstruction", "reconstruction", "Cosine of robustness: medians and quartiles over "
               "formulae. Dashed: the paper's median.", partial(_cosines, rows=rows)),
        Sketch("ablations", "ablations", "Mean absolute error of each training, 95 % intervals. "
               "Hollow: on equivalent pairs.", partial(_ablations, rows=trainings)),
    ]  # fmt: skip
    return out


def _curve(axes: Axes, log: Sequence[Row], name: str) -> bool:
    for part, label, colour in (("", "training", BLUE), ("valid_", "validation", ORANGE)):
        chosen = [line for line in log if line.get(part + name) is not None]
        steps, values = [line["step"] for line in chosen], [line[part + name] for line in chosen]
        axes.plot(steps, values, color=colour, label=label)
    levels = {"alignment": ((0.9, GREY),), "uniformity": ((-3.0, BLUE), (-2.4, ORANGE))}
    for level, colour in levels.get(name, ()):
        axes.axhline(level, color=colour, linestyle="--", linewidth=1)
    if name == "loss":
        axes.set_yscale("log")
    axes.set(xlabel="step", ylabel=name)
    legend(axes)
    return bool(log)


def _map(axes: Axes, rows: Sequence[Row]) -> bool:
    row = next((row for row in rows if "counts" in row), None)
    if row is None:
        return False
    counts = np.array(row["counts"], float)
    counts[counts == 0] = np.nan
    picture = axes.imshow(
        np.log10(counts).T, origin="lower", extent=(-0.1, 1, -0.1, 1), cmap="viridis"
    )
    axes.plot([-0.1, 1], [-0.1, 1], color=GREY, linewidth=0.8)
    axes.set(xlabel="kernel", ylabel="inner product")
    axes.set_title(short(row["set"]), fontsize=9)
    colours = axes.figure.colorbar(picture, ax=axes, shrink=0.8)
    colours.set_label("log10 of pairs")
    return True


def _depth(axes: Axes, rows: Sequence[Row]) -> bool:
    prefix = "mean absolute error, depth "
    chosen = [row for row in rows if row["measure"].startswith(prefix)]
    for where in dict.fromkeys(row["set"] for row in chosen):
        here = [row for row in chosen if row["set"] == where]
        depths = [row["measure"].removeprefix(prefix) for row in here]
        places = [MAX_DEPTH + 1 if depth.startswith(">") else int(depth) for depth in depths]
        points(axes, places, here, label=short(where))
    axes.set(xlabel=f"depth ({MAX_DEPTH + 1}: more than {MAX_DEPTH})", ylabel="mean absolute error")
    axes.set_ylim(bottom=0)
    legend(axes)
    return bool(chosen)


def _agreement(axes: Axes, rows: Sequence[Row]) -> bool:
    chosen = [row for row in rows if row["claim"] == "agreement" and row["measure"] in SORTS]
    points_by_sort(axes, SORTS, chosen)
    paper = {SORTS.index(row["measure"]) + 0.25: row["paper"] for row in chosen if row["paper"]}
    axes.plot(list(paper), list(paper.values()), "D", color=GREY, label="paper")
    axes.set_xticks(range(len(SORTS)), SORTS)
    axes.set(yscale="log", ylabel="mean absolute error")
    legend(axes)
    return bool(chosen)


def _costs(axes: Axes, rows: Sequence[Row], what: str, quantity: str) -> bool:
    """Costs over N, for the paper's choice of B = 2000 if it was measured."""
    name = "value" if quantity == "seconds" else "memory_mb"
    rows = [r for r in rows if r.get("what") == what and r.get("state") == "loaded"]
    sizes = {row["B"] for row in rows}
    if not sizes:
        return False
    b = 2000 if 2000 in sizes else max(sizes)
    rows = [row for row in rows if row["B"] == b]
    for device in dict.fromkeys(row["device"] for row in rows):
        here = [row for row in rows if row["device"] == device]
        kernel = sorted((r["N"], r[name], r["projected"]) for r in here if r["side"] == "kernel")
        counts, values, projected = zip(*kernel, strict=True)
        level = next(row[name] for row in here if row["side"] == "encoder")
        (line,) = axes.plot(counts, values, label=f"kernel, {device}")
        axes.scatter(
            counts, values, 16, ["none" if p else line.get_color() for p in projected],
            edgecolors=line.get_color(),
        )  # fmt: skip
        axes.plot(counts, [level] * len(counts), "-s", markersize=3, label=f"encoder, {device}")
    costs = {n: cost for (size, n), cost in paper_costs().items() if size == b}
    for side, style in (("kernel", "--"), ("loaded", ":")):
        key = f"{what} {side}" + (" MB" if quantity == "MB" else "")
        level_of = [cost[key] for cost in costs.values()]
        label = f"paper's {'kernel' if side == 'kernel' else 'Transformer'}"
        if costs:
            axes.plot(list(costs), level_of, style, color=GREY, label=label)
    axes.set(xscale="log", yscale="log", xlabel="N, traces", ylabel=quantity)
    low, high = (math.log10(end) for end in axes.get_ylim())
    axes.set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
    axes.set_xticks(sorted({row["N"] for row in rows if row["side"] == "kernel"}))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.7g}")
        axis.set_minor_formatter(lambda value, _: "")
    axes.set_title(f"B = {b} formulae", fontsize=9)
    legend(axes)
    return True


def _predictions(axes: Axes, rows: Sequence[Row], target: str) -> bool:
    measure = f"{target}: r, vectors, two layers"
    row = next((row for row in rows if row["measure"] == measure), None)
    if row is None:
        return False
    truth, predicted = zip(*row["shown"], strict=True)
    ends = min(truth), max(truth)
    axes.plot(truth, predicted, ".", markersize=3, alpha=0.6)
    axes.plot(ends, ends, color=GREY, linewidth=0.8)
    axes.set_title(f"r = {row['value']:.4f} (paper {row['paper']})", fontsize=9)
    axes.set(xlabel=f"{target}, exact", ylabel="predicted")
    return True


def _cosines(axes: Axes, rows: Sequence[Row]) -> bool:
    names = {
        "cosine": "verified",
        "cosine, decoder alone": "decoder alone",
        "cosine of a constant sign": "constant sign",
    }
    chosen = [
        row | {"low": row["lower_quartile"], "high": row["upper_quartile"]}
        for row in rows
        if row["claim"] == "reconstruction" and row["measure"] in names
    ]
    points_by_sort(axes, list(names), chosen)
    for level in {row["paper"] for row in chosen if row["paper"]}:
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1)
    axes.set_xticks(range(len(names)), list(names.values()))
    axes.set_ylabel("cosine")
    legend(axes)
    return bool(chosen)


def _ablations(axes: Axes, rows: Sequence[Row]) -> bool:
    """Errors on the first set, the smallest on top; a colour per number of points, as per kernel."""
    chosen = [row for row in rows if row["set"] == rows[0]["set"]][::-1]
    for points in sorted({row["points"] for row in chosen}):
        here = {i: row for i, row in enumerate(chosen) if row["points"] == points}
        value, low, high, equivalent = (
            [row[name] for row in here.values()] for name in ("value", "low", "high", "equivalent")
        )
        (dots,) = axes.plot(
            value, list(here), "o", markersize=4, label=f"traces of {points} points"
        )
        axes.hlines(list(here), low, high, color=dots.get_color())
        axes.plot(equivalent, list(here), "o", markersize=4, mfc="none", color=dots.get_color())
    for sort, dash in (("random", "--"), ("equivalent", ":")):
        axes.axvline(paper_errors()[sort], color=GREY, linestyle=dash, label=f"paper, {sort} pairs")
    axes.set_yticks(range(len(chosen)), [row["measure"] for row in chosen], fontsize=7)
    axes.set(xscale="log", xlabel="mean absolute error")
    if chosen:
        axes.set_title(short(chosen[0]["set"]), fontsize=9)
    legend(axes)
    return bool(chosen)
