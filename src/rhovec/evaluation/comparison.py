"""Trainings compared: the figure of what benchmarks/comparison.py recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..pages import GREY
from .figures import Row, Sketch, legend, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sketches(rows: Sequence[Row], paper: dict[str, float]) -> list[Sketch]:
    """rows: one a training and set, the smallest error first; paper: its errors by sort of pairs."""
    caption = "Mean absolute error of each training, 95 % intervals. Hollow: on equivalent pairs."
    return [Sketch("comparison", "comparison", caption, lambda axes: _errors(axes, rows, paper))]


def _errors(axes: Axes, rows: Sequence[Row], paper: dict[str, float]) -> bool:
    """On the first set, the smallest error on top; another number of points is another kernel."""
    chosen = [row for row in rows if row["set"] == rows[0]["set"]][::-1]
    for points in sorted({row["points"] for row in chosen}):
        here = {i: row for i, row in enumerate(chosen) if row["points"] == points}
        value, low, high, equivalent = (
            [row[name] for row in here.values()] for name in ("value", "low", "high", "equivalent")
        )
        (dots,) = axes.plot(
            value, list(here), "o", markersize=4, label=f"signals of {points} points"
        )
        axes.hlines(list(here), low, high, color=dots.get_color())
        axes.plot(equivalent, list(here), "o", markersize=4, mfc="none", color=dots.get_color())
    for sort, dash in (("random", "--"), ("equivalent", ":")):
        axes.axvline(paper[sort], color=GREY, linestyle=dash, label=f"paper, {sort} pairs")
    axes.set_yticks(range(len(chosen)), [row["measure"] for row in chosen], fontsize=7)
    axes.set(xscale="log", xlabel="mean absolute error")
    if chosen:
        axes.set_title(short(chosen[0]["set"]), fontsize=9)
    legend(axes)
    return bool(chosen)
