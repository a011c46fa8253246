"""SVG drawings: axes, lines and texts, written by hand, since the default installation cannot plot.

Positions are in pixels, (0, 0) at the top left. How classes such as "grid" and "curve" look is up to the
page that a drawing stands on; a drawing that is a file of its own brings STYLE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

BINS = 1000  # of a long curve
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #1b2330; }
.axis { fill: #566172; } .grid { stroke: #dde2e9; } .curve { fill: none; stroke-width: 1; }
</style>"""


def svg(width: float, height: float, parts: Iterable[str], label: str, kind: str = "") -> str:
    inside = "".join(parts)
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(label)}">{inside}</svg>'
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    marks = f' class="{kind}"' * bool(kind) + f' text-anchor="{anchor}"' * (anchor != "start")
    return f'<text x="{x:.1f}" y="{y:.1f}"{marks}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


class Frame:
    """Axes: a box in a drawing, and the ranges `x` and `y` that it shows."""

    def __init__(
        self, box: tuple[float, float, float, float], x: tuple[float, float], y: tuple[float, float]
    ):
        self.left, self.top, self.right, self.bottom = box
        self.x, self.y = x, y

    def across(self, x: np.ndarray | float) -> np.ndarray:
        return self.left + (np.asarray(x) - self.x[0]) * (self.right - self.left) / (
            self.x[1] - self.x[0]
        )

    def down(self, y: np.ndarray | float) -> np.ndarray:
        return self.bottom - (np.asarray(y) - self.y[0]) * (self.bottom - self.top) / (
            self.y[1] - self.y[0]
        )

    def axes(self, what_x: str, what_y: str, most: int = 4) -> list[str]:
        """Grid, numbers and names; the x axis has none if `what_x` is empty."""
        parts = []
        values = ticks(*self.y, most)
        labels = [f"{value:,g}" for value in values]
        if len(set(labels)) < len(labels):  # far from zero, only differences have room
            labels = [f"{value - values[0]:.3g}" for value in values]
            what_y += f" minus {values[0]:,.15g}"
        for value, label in zip(values, labels, strict=True):
            y = float(self.down(value))
            parts.append(line(self.left, y, self.right, y, "grid"))
            parts.append(text(self.left - 6, y + 4, label, "end"))
        if what_x:
            for value in ticks(*self.x, 6):
                parts.append(
                    text(float(self.across(value)), self.bottom + 17, f"{value:,g}", "middle")
                )
            middle = (self.left + self.right) / 2
            parts.append(text(middle, self.bottom + 34, what_x, "middle", "axis"))
        parts.append(text(4, self.top - 10, what_y, "start", "axis"))
        return parts

    def curve(self, x: np.ndarray, y: np.ndarray, colour: str) -> str:
        if len(x) > 2 * BINS:  # the lowest and the highest point of each bin look the same
            bins = np.array_split(np.arange(len(x)), BINS)
            ends = [sorted((b[y[b].argmin()], b[y[b].argmax()])) for b in bins]
            kept = np.unique(ends)
            x, y = x[kept], y[kept]
        points = zip(self.across(x).tolist(), self.down(y).tolist(), strict=True)
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        return f'<path class="curve" stroke="{colour}" d="M{path}"/>'


def ticks(low: float, high: float, count: int) -> list[float]:
    """Up to `count` round numbers, evenly spaced, from low to high."""
    rough = (high - low) / count
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") + 0.0 for i in np.arange(first, last + 1)]


def around(values: Sequence[float]) -> tuple[float, float]:
    low, high = float(min(values)), float(max(values))
    if low == high:
        room = max(1.0, abs(low) / 10)
        low, high = low - room, high + room
    return low - 0.06 * (high - low), high + 0.06 * (high - low)
