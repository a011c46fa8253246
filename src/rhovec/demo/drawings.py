"""The drawings of the demo as SVG elements: map, matrix, neural against exact, traces.

They are written by hand, since the default installation has no plotting library. Texts take the page's
colour and keep their size, so a drawing is made for the width at which it is shown: the map and the
matrix twice, wide and narrow. Positions are in pixels, (0, 0) at the top left.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..drawing import Frame, around, line, svg, text
from ..pages import BLUE, COLOURS, ORANGE, PURPLE
from ..robustness import robustness
from .systems import System
from .tour import Written

LINES = (BLUE, ORANGE, PURPLE)  # of traces
OFFSETS = tuple(  # of a text from its point: beside it, or off it
    (side * across, down)
    for across, down in ((8, 0), (14, -14), (14, 14), (22, -24), (22, 24))
    for side in (1, -1)
)
NEIGHBOURS, STEPS = 15, 600  # of the map: near each point, and of its descent
GROUP = 11  # letters of a group's name beside the matrix
LETTER = 0.58  # width of a letter, in sizes of the font, at most on average


# -- the map ---------------------------------------------------------------------------------------


def neighbour_map(vectors: np.ndarray) -> np.ndarray:
    """t-SNE: positions (B, 2) in the unit square that keep neighbours of vectors (B, D) together.

    It starts from the two principal components of the vectors, so nothing is random.
    """
    count = len(vectors)
    apart = (2 - 2 * vectors @ vectors.T).astype(np.float64)
    np.fill_diagonal(apart, np.inf)
    apart -= apart.min(axis=1, keepdims=True)
    low, high = np.zeros((count, 1)), np.full((count, 1), 1e4)
    for _ in range(50):  # bisection for the bandwidth at which a point has NEIGHBOURS
        sharpness = (low + high) / 2
        near = np.exp(-apart * sharpness) + 1e-12
        near /= near.sum(axis=1, keepdims=True)
        many = np.exp(-(near * np.log(near)).sum(axis=1, keepdims=True)) > NEIGHBOURS
        low, high = np.where(many, sharpness, low), np.where(many, high, sharpness)
    near = (near + near.T) / (2 * count)
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    directions, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(len(sizes))])
    places = (directions * sizes * signs)[:, :2]
    places *= 1e-2 / max(places[:, 0].std(), 1e-12)
    speed = np.zeros_like(places)
    for step in range(STEPS):
        between = places[:, None] - places
        pull = 1 / (1 + (between**2).sum(axis=2))
        np.fill_diagonal(pull, 0)
        force = (4 if step < 100 else 1) * near - pull / pull.sum()
        slope = 4 * ((force * pull)[:, :, None] * between).sum(axis=1)
        speed = (0.5 if step < 100 else 0.8) * speed - 20 * slope
        places += speed
    ends = places.min(axis=0), places.max(axis=0)
    shares: np.ndarray = (places - ends[0]) / np.maximum(ends[1] - ends[0], 1e-12)
    return shares


def library_map(
    requirements: Sequence[Written], shares: np.ndarray, colours: dict[str, str],
    width: float, height: float, kind: str,
) -> str:  # fmt: skip
    """One dot per requirement, at `shares` (B, 2) of the drawing; short ones are labelled."""
    margin, size = 14.0, 12.0
    places = margin + shares * (np.array([width, height]) - 2 * margin)
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colours[r.domain]}"/>'
        for r, (x, y) in zip(requirements, places.tolist(), strict=True)
    ]
    texts = [r.text for r in requirements]
    names = _labels(places, texts, width, height, size, longest=36 if width > 600 else 24)
    return svg(width, height, [*names, *dots], "map of the library", f"map {kind}")


def _labels(
    places: np.ndarray, texts: Sequence[str], width: float, height: float, size: float, longest: int
) -> list[str]:
    """Texts beside their points, as many as fit without touching a point or each other.

    The next one is always for the point that is farthest from those that have a text. A text that
    finds no room right beside its point stands a little off, at the end of a line.
    """
    boxes = np.concatenate([places - 6, places + 6], axis=1)  # left, top, right, bottom
    left = np.array([len(text) <= longest for text in texts])
    distance = np.full(len(places), np.inf)
    out = []
    while left.any():
        i = int(np.where(left, distance, -1).argmax())
        left[i] = False
        x, y = places[i].tolist()
        long = len(texts[i]) * size * LETTER
        for across, down in OFFSETS:
            edge, middle = x + across, y + down
            start = edge if across > 0 else edge - long
            box = np.array([start - 6, middle - 8, start + long + 6, middle + 8])
            inside = box.min() >= 0 and box[2] <= width and box[3] <= height
            apart = np.concatenate([boxes[:, :2] - box[2:], box[:2] - boxes[:, 2:]], axis=1)
            touched = np.flatnonzero(apart.max(axis=1) < 0)
            if inside and set(touched.tolist()) <= {i}:
                boxes = np.concatenate([boxes, box[None]])
                if down:
                    out.append(line(x, y, edge - np.sign(across) * 3, middle, "leader"))
                anchor = "start" if across > 0 else "end"
                out.append(text(edge, middle + 0.35 * size, texts[i], anchor, "name"))
                distance = np.minimum(distance, np.hypot(*(places - places[i]).T))
                break
    return out


# -- the matrix ------------------------------------------------------------------------------------


def in_groups(requirements: Sequence[Written], similarity: np.ndarray) -> np.ndarray:
    """The order (B,) of the matrix: by domain and system, largest first, similar ones adjacent."""
    domains = Counter(r.domain for r in requirements)
    names = Counter(r.system for r in requirements)
    place = np.empty(len(requirements))
    for name in names:
        rows = np.array([i for i, r in enumerate(requirements) if r.system == name])
        weights = np.maximum(similarity[np.ix_(rows, rows)], 0).astype(np.float64)
        # The Fiedler vector: similar requirements have similar entries.
        _, ways = np.linalg.eigh(np.diag(weights.sum(axis=1)) - weights)
        way = ways[:, min(1, len(rows) - 1)]
        place[rows] = way * np.sign(way[np.abs(way).argmax()])
    keys = [
        (-domains[r.domain], r.domain, -names[r.system], r.system, place[i])
        for i, r in enumerate(requirements)
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__))


def matrix(requirements: Sequence[Written], values: np.ndarray, width: float, kind: str) -> str:
    """Similarities (B, B) of requirements in the order of `in_groups`; systems are outlined."""
    count, gutter = len(requirements), 84.0
    side = width - gutter - 1
    step = side / count
    parts = [
        f'<image class="cells" x="{gutter}" y="1" width="{side}" height="{side}" '
        f'preserveAspectRatio="none" href="{_picture(values)}"/>'
    ]
    domains, middles = [r.domain for r in requirements], {}
    for names, mark in (([r.system for r in requirements], ""), (domains, " strong")):
        for name in dict.fromkeys(names):
            first, many = names.index(name) * step, names.count(name) * step
            middles[name] = 1 + first + many / 2 + 4
            parts.append(
                f'<rect class="outline{mark}" x="{gutter + first:.1f}" y="{1 + first:.1f}" '
                f'width="{many:.1f}" height="{many:.1f}"/>'
            )
    lowest = side - 3
    for name in reversed(dict.fromkeys(domains)):  # from below, none nearer than a line to the next
        y = min(middles[name], lowest)
        short = name if len(name) <= GROUP else f"{name[: GROUP - 1]}…"
        parts.append(text(gutter - 8, y, short, "end"))
        lowest = y - 15
    return svg(width, side + 2, parts, "similarity of all pairs of requirements", f"matrix {kind}")


def _picture(values: np.ndarray) -> str:
    """Numbers (H, W) from 0 to 1 as a PNG in one colour; larger is more opaque."""
    levels = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    red, green, blue = (int(BLUE[i : i + 2], 16) for i in (1, 3, 5))
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    size = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", size), (b"PLTE", bytes([red, green, blue]) * 256), (b"tRNS", bytes(range(256))),
        (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""),
    )  # fmt: skip
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def domain_colours(requirements: Sequence[Written]) -> dict[str, str]:
    """One colour per domain, the largest domain first."""
    sizes = Counter(r.domain for r in requirements)
    order = sorted(sizes, key=lambda name: (-sizes[name], name))
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(order)}


# -- lines and points ------------------------------------------------------------------------------


def agreement(exact: np.ndarray, neural: np.ndarray) -> str:
    """Neural against exact similarity, one dot per pair."""
    width, height = 400.0, 380.0
    ends = min(-0.05, float(neural.min())), max(1.02, float(neural.max()))
    frame = Frame((44, 30, width - 12, height - 42), ends, ends)
    where = zip(frame.across(exact).tolist(), frame.down(neural).tolist(), strict=True)
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in where)
    diagonal = line(frame.left, frame.bottom, frame.right, frame.top, "zero")
    parts = [*frame.axes("exact similarity", "neural similarity", 6), diagonal]
    parts.append(f'<path class="dots" stroke="{BLUE}" d="{dots}"/>')
    return svg(width, height, parts, "neural against exact similarity")


def traces(system: System) -> str:
    """A system's traces with the limits of a requirement, and below them its robustness."""
    title, variable, limits = system.shown
    formula = system.formulae[list(system.requirements).index(title)]
    values = system.columns[variable]  # (traces, points)
    rho = robustness(formula, system.columns, trace=True)
    unit, seconds = system.clock
    t = np.arange(values.shape[1]) * system.dt / seconds
    width, left = 400.0, 52.0
    ends = float(t[0]), max(1.0, float(np.ceil(t[-1])))
    above = Frame((left, 28, width - 10, 168), ends, around([values.min(), values.max(), *limits]))
    below = Frame((left, 214, width - 10, 324), ends, around([rho.min(), rho.max(), 0.0]))
    name, margin_name = (
        ", ".join(dict.fromkeys(filter(None, (what, system.unit))))
        for what in (variable, "robustness")
    )
    parts = [*above.axes("", name), *below.axes(f"time, {unit}", margin_name)]
    for limit in limits:
        y = float(above.down(limit))
        parts.append(line(left, y, above.right, y, "limit"))
    zero = float(below.down(0.0))
    parts.append(line(left, zero, below.right, zero, "zero"))
    for trace, margin, colour in zip(values, rho, LINES, strict=True):
        parts.append(above.curve(t, trace, colour))
        parts.append(below.curve(t, margin, colour))
        start = float(below.down(margin[0]))
        parts.append(f'<circle cx="{left}" cy="{start:.1f}" r="4" fill="{colour}"/>')
    return svg(width, 366, parts, f"{system.title}: traces and robustness of: {title}")
