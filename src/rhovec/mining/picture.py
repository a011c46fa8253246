"""Traces of two classes with a formula drawn into them, as an SVG file.

One panel per channel of the formula. An atom is a line at its threshold over the times that the
operators around it span, shaded on the side on which it fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..drawing import STYLE, Frame, around, line, svg, text
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.printer import node_text
from ..pages import BLUE, ORANGE

SHOWN = 60  # traces per class
WIDTH, HEIGHT, LEFT, TOP = 720.0, 190.0, 62.0, 76.0
_STYLE = STYLE.replace(
    "</style>",
    ".limit { stroke: #1b2330; stroke-width: 2; } .fails { fill: #1b2330; fill-opacity: 0.08; }"
    " .head { font-weight: 600; } .curve { stroke-opacity: 0.45; }</style>",
)


def spans(phi: Formula, last: int) -> dict[int, tuple[int, int]]:
    """For each row that is an atom, the first and last time at which a value at time 0 may read it."""
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    found: dict[int, tuple[int, int]] = {}
    todo = [(len(rows) - 1, 0, 0)]
    while todo:
        node, first, end = todo.pop()
        op, lo, hi, channel, _ = rows[node]
        if channel is not None:
            found[node] = min(first, last), min(end, last)
            continue
        hi = last if hi == ops.UNBOUNDED else hi
        later = (first + lo, end + hi) if ops.is_timed(op) else (first, end)
        if ops.arity(op) >= 1:
            todo.append((node - 1, *later))
        if ops.arity(op) == 2:  # the left side of until and release is read from the start on
            start = first if ops.is_timed(op) else later[0]
            todo.append((node - 1 - sizes[node - 1], start, later[1]))
    return found


def picture(
    phi: Formula, values: np.ndarray, positive: np.ndarray, classes: tuple[Any, Any], variables: Any,
    units: Any, dt: float | None,
) -> str:  # fmt: skip
    """values (N, V, P); classes: the names of the others and of the positive ones."""
    points = values.shape[2]
    step = 1.0 if dt is None else dt
    times = np.arange(points) * step
    where = spans(phi, points - 1)
    rows = phi.rows()
    names = list(dict.fromkeys(str(rows[i][3][0][0]) for i in sorted(where)))  # type: ignore[index]
    parts = [_STYLE, text(8, 22, phi.to_text(dt), kind="head")]
    for i, (name, colour) in enumerate(zip(classes, (ORANGE, BLUE), strict=True)):
        parts.append(f'<rect x="{8 + 180 * i}" y="34" width="14" height="4" fill="{colour}"/>')
        parts.append(text(28 + 180 * i, 40, str(name)))
    for k, name in enumerate(names):
        channel = values[:, list(variables).index(name)]
        limits = [rows[i][4] for i in where if rows[i][3][0][0] == name]  # type: ignore[index]
        top = TOP + k * (HEIGHT + 30)
        ends = (0.0, max(float(times[-1]), step))
        low, high = around([channel.min(), channel.max(), *limits])
        frame = Frame((LEFT, top, WIDTH - 12, top + HEIGHT), ends, (low, high))
        bottom = ("time, s" if dt is not None else "step") if k == len(names) - 1 else ""
        unit = units.get(name, "")
        parts += frame.axes(bottom, f"{name}, {unit}" if unit else name)
        for label, colour in ((False, ORANGE), (True, BLUE)):
            for n in np.flatnonzero(positive == label)[:SHOWN]:
                parts.append(frame.curve(times, channel[n], colour))
        for i, (first, end) in where.items():
            if rows[i][3][0][0] == name:  # type: ignore[index]
                parts += _atom(frame, rows[i], first * step, end * step, step)
    height = TOP + len(names) * (HEIGHT + 30) + 20
    drawing = svg(WIDTH, height, parts, f"traces and {phi.to_text(dt)}")
    return drawing.replace(
        "<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" ', 1
    )


def _atom(frame: Frame, row: Any, first: float, end: float, step: float) -> list[str]:
    threshold = row[4]
    a, b = float(frame.across(first)), float(frame.across(end))
    if b - a < 8:  # a window of one point, or nearly
        a, b = a - 4, b + 4
    y = float(frame.down(threshold))
    above = ops.IS_ABOVE[row[0]]
    top, bottom = (y, frame.bottom) if above else (frame.top, y)
    return [
        f'<rect class="fails" x="{a:.1f}" y="{top:.1f}" width="{b - a:.1f}" '
        f'height="{max(0.0, bottom - top):.1f}"/>',
        line(a, y, b, y, "limit"),
        text(min(b + 4, frame.right - 90), y - 4, node_text(row)),
    ]
