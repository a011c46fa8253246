"""The report of `rhovec check` as a page: a matrix, and a picture of each violation.

The page is one file without a script. Pictures are SVG whose curves keep the extremes of the signal;
with many violations they get coarser, and beyond MAX_FIGURES the least ones are only listed, so that
the page stays below 5 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

import numpy as np

from .. import pages
from ..errors import counted
from ..pages import Cell
from . import words
from .report import Report
from .rows import Curve, Figure, Row
from .sampled import clock
from .verdict import Outcome, runs

FIGURE_BYTES = 3_000_000  # of all pictures together
MAX_FIGURES = 1_200
MIN_BINS = 30
MAX_ROWS = 500  # of a table
FIRST = 6  # pictures of a requirement that are open at once

MAX_STRETCHES = 50  # that the bar of a log shows
MAX_NAME = 40  # characters of an expression in a picture
MAX_LABEL = 8  # characters of a mode beside it

WIDTH, GUTTER, TOP, SIGNAL, BETWEEN, ROBUSTNESS, BOTTOM = 480, 58, 20, 110, 22, 56, 38
MARGIN, LINE = 6, 15  # within a frame, and between labels
HEIGHT = TOP + SIGNAL + BETWEEN + ROBUSTNESS + BOTTOM
FINE = 10  # units of a curve in one of the picture

STYLE = """
nav a { margin-right: 1.25rem; white-space: nowrap; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.matrix { display: grid; grid-template-columns: minmax(10rem, 19rem) 1fr; gap: 0.6rem 1.25rem;
  margin: 1rem 0; }
.matrix p { margin: 0; line-height: 1.35; }
.cells { display: flex; flex-wrap: wrap; gap: 2px; align-content: start; padding-top: 0.25rem; }
.cells a, .cells i, .key i { width: var(--cell); height: var(--cell); display: block;
  border-radius: 2px; flex: none; }
.key { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; --cell: 12px; font-size: 0.875rem; }
.key span { display: flex; align-items: center; gap: 0.4rem; }
.x { background: var(--worse); }
.o { border: 3px solid var(--bad); }
.s { border: calc(var(--cell) * 0.3) solid transparent; background: var(--good) padding-box; }
.h { background: var(--good); opacity: 0.55; }
.d { border: 2px dotted var(--accent); }
.n { border-bottom: 2px solid var(--line); border-radius: 0; }
.cells a:hover { outline: 2px solid var(--accent); outline-offset: 1px; }
.shots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr));
  gap: 1.5rem 2rem; margin: 1rem 0; }
.shots figure { max-width: none; }
.shots figure:target { outline: 2px solid var(--accent); outline-offset: 6px; }
figcaption b { color: var(--ink); }
svg { font-size: 13px; }
svg text.axis { fill: var(--soft); }
svg text.limit { fill: var(--bad); }
.curve { fill: #2f80d0; stroke: #2f80d0; stroke-width: 1.4; stroke-linejoin: round;
  vector-effect: non-scaling-stroke; }
.rho { fill: #808790; stroke: #808790; }
.limit-line { stroke: var(--bad); stroke-width: 1.4; stroke-dasharray: 5 3; }
.zero { stroke: var(--soft); stroke-width: 1; }
.frame { fill: none; stroke: var(--line); }
.shade { fill: var(--worse); opacity: 0.2; }
.now { stroke: var(--worse); stroke-width: 1; }
.log { fill: var(--line); } .part { fill: var(--soft); } .bad { fill: var(--worse); }
@media (max-width: 50rem) { .matrix { grid-template-columns: 1fr; gap: 0.2rem 0; }
  .matrix .cells { margin-bottom: 0.8rem; } }
"""
KINDS = {Outcome.VIOLATED: "x", Outcome.OPEN: "o", Outcome.SO_FAR: "s", Outcome.HOLDS: "h"}


def page(report: Report) -> str:
    """The whole page."""
    violated = _ranked(report)
    places = {id(row): f"v{i}" for i, row in enumerate(violated)}
    drawn = {id(row) for row in [row for row in violated if row.figure][:MAX_FIGURES]}
    waiting = [row for row in report.rows if row.verdict == Outcome.OPEN]
    places |= {id(row): f"o{i}" for i, row in enumerate(waiting[:MAX_ROWS])}
    sections = {
        "Not read": _unread(report),
        "Requirements by logs": _matrix(report, places),
        "Worst violations": _worst(report, places),
        "Violations": _violations(report, places, drawn),
        "Open": _open(waiting, places),
        "Depends on resampling": _doubtful(report),
        "Responses": _responses(report),
        "Labels": [f"<p>{escape(line)}</p>" for line in report.unseen],
        "Resampling": _resampling(report),
    }
    shown = {title: body for title, body in sections.items() if body}
    links = "".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in shown)
    body = [
        f"<h1>{escape(_title(report))}</h1>",
        f"<p>{escape(words.headline(report).partition(': ')[2].capitalize())}. "
        "A verdict says what a log shows: <em>holds so far</em> if nothing is owed at its end, and "
        "<em>open</em> if it ends before a requirement is decided, or a sample that decides is "
        f"missing.</p><nav>{links}</nav>",
    ]
    for title, content in shown.items():
        body += [f'<section><h2 id="{_anchor(title)}">{title}</h2>', *content, "</section>"]
    return pages.document(_title(report), body, STYLE)


def _text(sentence: str) -> str:
    """A sentence whose numbers are not parted from their unit."""
    return escape(re.sub(r"(?<=\d) (?=s\b)", "\N{NO-BREAK SPACE}", sentence))


def _title(report: Report) -> str:
    return words.headline(report).partition(":")[0]


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _ranked(report: Report) -> list[Row]:
    """The violations, by requirement the worst first."""
    severity = report.severity
    return [
        row
        for rows in report.by_requirement.values()
        for row in sorted(
            (row for row in rows if row.verdict == Outcome.VIOLATED), key=severity, reverse=True
        )
    ]


# -- sections --------------------------------------------------------------------------------------


def _unread(report: Report) -> list[str]:
    if not report.unread:
        return []
    listed = [f"<li>{escape(unread.message)}</li>" for unread in report.unread[:MAX_ROWS]]
    intro = "What follows is about the other files and requirements."
    return [f"<p>{intro}</p><ul>", *listed, f"</ul>{pages.more(len(report.unread), MAX_ROWS)}"]


def _matrix(report: Report, places: dict[int, str]) -> list[str]:
    size = 14 if len(report.traces) <= 60 else 10 if len(report.traces) <= 150 else 8
    key = [(KINDS[outcome], str(outcome)) for outcome in Outcome]
    key += [("d", "depends on resampling")] * bool(report.doubtful)
    out = [
        "<p>One square per log, in the same order for all requirements.</p>",
        '<div class="key">',
        *(f'<span><i class="{kind}"></i>{name}</span>' for kind, name in key),
        f'</div><div class="matrix" style="--cell: {size}px">',
    ]
    for requirement in report.requirements:
        rows = {row.trace: row for row in report.by_requirement[requirement.key]}
        counts = report.counts(requirement.key)
        told = ", ".join(f"{counts[o]:,} {o}" for o in Outcome if counts[o]) or "not checked"
        title = f" {escape(requirement.title)}" if requirement.title else ""
        out.append(
            f"<p><b>{escape(requirement.key)}</b>{title}<br>"
            f'<span class="soft">{told}</span></p><div class="cells">'
        )
        out += [_square(trace, rows.get(trace), places) for trace in report.traces]
        out.append("</div>")
    return [*out, "</div>"]


def _square(trace: str, row: Row | None, places: dict[int, str]) -> str:
    if row is None:
        return f'<i class="n" title="{escape(trace)}: not checked"></i>'
    told = f"{escape(trace)}: {row.verdict}"
    kind = KINDS[row.verdict]
    if row.depends_on_resampling and kind in "sh":
        kind, told = "d", f"{told}, depends on resampling"
    if id(row) in places:
        target = places[id(row)]
        return f'<a class="{kind}" href="#{target}" title="{told}" aria-label="{told}"></a>'
    return f'<i class="{kind}" title="{told}"></i>'


def _worst(report: Report, places: dict[int, str]) -> list[str]:
    rows = report.worst()
    if not rows:
        return []
    heads = ["requirement", "log", "margin", "σ", "why"]
    cells = [
        [
            Cell(escape(row.requirement)), Cell(_link(row, places)),
            Cell(words.number(row.robustness, row.unit), "number"),
            Cell(words.ratio(report.severity(row)), "number"), Cell(_text(row.explanation)),
        ]
        for row in rows
    ]  # fmt: skip
    intro = (
        "Ranked by margin over σ, the standard deviation of what is compared, in all logs. "
        "Violations by flags and modes alone have no margin, and come last."
    )
    return [f"<p>{intro}</p>", pages.table(heads, cells)]


def _link(row: Row, places: dict[int, str]) -> str:
    return f'<a href="#{places[id(row)]}">{escape(row.trace)}</a>'


def _violations(report: Report, places: dict[int, str], drawn: set[int]) -> list[str]:
    bins = MIN_BINS
    if drawn:
        bins = int(np.clip((FIGURE_BYTES / len(drawn) - 1000) / 24, MIN_BINS, 240))
    out: list[str] = []
    rows_of: dict[str, list[Row]] = {}
    for row in _ranked(report):
        rows_of.setdefault(row.requirement, []).append(row)
    for requirement in report.requirements:
        rows = rows_of.get(requirement.key, [])
        if not rows:
            continue
        heading = f"{escape(requirement.id or 'Requirement')} {escape(requirement.title)}".strip()
        out.append(
            f"<h3>{heading}, violated by {counted(len(rows), 'log')}</h3>"
            f"<p><code>{escape(requirement.text)}</code></p>"
        )
        shots = [_shot(row, places[id(row)], bins, id(row) in drawn) for row in rows]
        out += ['<div class="shots">', *shots[:FIRST], "</div>"]
        if len(shots) > FIRST:
            more = counted(len(shots) - FIRST, "more log")
            out.append(f"<details><summary>{more}</summary>")
            out += ['<div class="shots">', *shots[FIRST:], "</div></details>"]
    return out


def _shot(row: Row, place: str, bins: int, drawn: bool) -> str:
    picture = draw(row.figure, bins) if row.figure and drawn else ""
    return (
        f'<figure id="{place}">{picture}<figcaption><b>{escape(row.trace)}</b>: '
        f"{_text(row.explanation)}</figcaption></figure>"
    )


def _open(rows: Sequence[Row], places: dict[int, str]) -> list[str]:
    return _list(rows, [words.waiting(row) for row in rows[:MAX_ROWS]], places)


def _doubtful(report: Report) -> list[str]:
    rows = report.doubtful
    return _list(rows, [words.doubt(row) for row in rows[:MAX_ROWS]], {})


def _list(rows: Sequence[Row], texts: Sequence[str], places: dict[int, str]) -> list[str]:
    if not rows:
        return []
    cells = [
        [
            Cell(f'<span id="{places[id(row)]}">{escape(row.trace)}</span>' if places else
                 escape(row.trace)),
            Cell(escape(row.requirement)), Cell(_text(text)),
        ]
        for row, text in zip(rows, texts, strict=False)
    ]  # fmt: skip
    return [pages.table(["log", "requirement", "why"], cells), pages.more(len(rows), MAX_ROWS)]


def _responses(report: Report) -> list[str]:
    cells = []
    for requirement in report.requirements:
        answers = report.answers(requirement.key)
        if answers is not None:
            vacuous = report.vacuous(requirement.key)
            slowest = words.slowest(report, answers)
            cells.append([
                Cell(escape(requirement.label)), Cell(f"{answers.triggered:,}", "number"),
                Cell(f"{answers.answered:,}", "number"), Cell(f"{answers.violated:,}", "number"),
                Cell(slowest, "number"),
                Cell("never triggered: it holds vacuously" if vacuous else ""),
            ])  # fmt: skip
    if not cells:
        return []
    heads = ["requirement", "triggered", "answered", "violated", "slowest answer", ""]
    return [
        "<p>How often the condition of a requirement came true, in all logs, and what followed.</p>",
        pages.table(heads, cells),
    ]


def _resampling(report: Report) -> list[str]:
    lines = [f"<p>{escape(line)}</p>" for line in words.resampling(report)]
    most = sorted(report.made, key=lambda made: -(made.made_up + made.unknown))[:MAX_ROWS]
    if most:
        heads = ["log", "channel", "made up", "unknown", "where"]
        cells = [
            [
                Cell(escape(made.trace)), Cell(escape(made.channel)),
                Cell(f"{made.made_up:,}", "number"), Cell(f"{made.unknown:,}", "number"),
                Cell(escape(made.text.removeprefix(f"{made.channel}: "))),
            ]
            for made in most
        ]  # fmt: skip
        table = [pages.table(heads, cells), pages.more(len(report.made), MAX_ROWS)]
        lines += ["<details><summary>Log by log</summary>", *table, "</details>"]
    return lines


# -- pictures --------------------------------------------------------------------------------------


def draw(figure: Figure, bins: int) -> str:
    """A violation: the signal with its limit, the robustness, and where in the log this is."""
    signal, rho = figure.signal.coarser(bins), figure.robustness.coarser(bins)
    limit, right, second = figure.limit, WIDTH - 4, TOP + SIGNAL + BETWEEN
    end, width = second + ROBUSTNESS, WIDTH - 4 - GUTTER
    upper = _Scale([signal.least, signal.greatest], limit, TOP, SIGNAL)
    lower = _Scale([rho.least, rho.greatest], 0.0, second, ROBUSTNESS, clipped=True)
    span = (figure.end - figure.start) or 1.0

    def x(time: float) -> float:
        return round(GUTTER + width * min(max((time - figure.start) / span, 0.0), 1.0), 1)

    def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
        return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'

    def text(x: float, y: float, shown: str, kind: str = "axis", anchor: str = "") -> str:
        anchored = f' text-anchor="{anchor}"' * bool(anchor)
        return f'<text class="{kind}" x="{x:g}" y="{y:g}"{anchored}>{escape(shown)}</text>'

    seconds = " s" if figure.timed else ""
    unit = f" ({figure.unit})" if figure.unit else ""
    about = f"{figure.channel}{unit} from {clock(figure.start)} to {clock(figure.end)}{seconds}"
    about += "" if limit is None else f", with the limit {limit:.9g}"
    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(about)}">']
    for a, b in figure.violated:
        if b >= figure.start and a <= figure.end:
            out.append(_rect("shade", x(a) - 1, TOP, max(3.0, x(b) - x(a) + 2), end - TOP))
    out.append(_rect("frame", GUTTER, TOP, width, SIGNAL))
    out.append(_rect("frame", GUTTER, second, width, ROBUSTNESS))
    out.append(_path(signal, upper, "curve"))
    out.append(_path(rho, lower, "curve rho"))
    zero = lower.y(0.0)
    ends = [upper.high, upper.low, *([] if limit is None else [limit])]
    base, minus = 0.0, ""
    if len(set(map(_short, ends))) < len(set(ends)):  # far from zero, only differences have room
        base = ends[-1]
        minus = f" minus {base:.15g}"
    labels = [(y, figure.names.get(value, _short(value - base))) for y, value in upper.labels()]
    out.append(line("zero", GUTTER, zero, right, zero))
    if limit is not None:
        y = upper.y(limit)
        out.append(line("limit-line", GUTTER, y, right, y))
        labels = [(at, shown) for at, shown in labels if abs(at - y) > LINE]
        out.append(text(GUTTER - 5, upper.within(y), _short(limit - base), "limit", "end"))
    if np.isfinite(rho.least).any():
        labels += [(zero, "0")]
        labels += [(at, _short(v)) for at, v in lower.labels() if abs(at - zero) > LINE]
    else:
        labels += [(lower.y(1.0), "holds"), (lower.y(-1.0), "violated")]
    out += [text(GUTTER - 5, y + 4, shown[:MAX_LABEL], anchor="end") for y, shown in labels]
    out.append(line("now", x(figure.moment), TOP, x(figure.moment), end))
    out.append(text(GUTTER, TOP - 5, f"{figure.channel[:MAX_NAME]}{minus}{unit}"))
    out.append(text(GUTTER, second - 5, "robustness"))
    out.append(text(GUTTER, end + 15, clock(figure.start) + seconds))
    out.append(text(right, end + 15, clock(figure.end) + seconds, anchor="end"))
    return "".join([*out, *_overview(figure, width, end + 24), "</svg>"])


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.4g}" y="{y:g}" width="{width:.4g}" height="{height:g}"/>'


def _overview(figure: Figure, width: float, y: float) -> Iterator[str]:
    """The whole log as a bar, with the part that is shown and the violated stretches."""
    first, last = figure.log
    scale = width / ((last - first) or 1.0)

    def bar(kind: str, a: float, b: float, top: float, height: float) -> str:
        long = max(2.0, (b - a) * scale)
        return _rect(kind, GUTTER + min((a - first) * scale, width - long), top, long, height)

    yield bar("log", first, last, y + 3, 3)
    yield bar("part", figure.start, figure.end, y + 2, 5)
    for a, b in figure.violated[:MAX_STRETCHES]:
        yield bar("bad", a, b, y, 9)


class _Scale:
    """From values to heights in a picture.

    clipped: high values are cut off, so that one sees how far others are below the reference.
    """

    def __init__(
        self,
        curves: Sequence[np.ndarray],
        reference: float | None,
        top: float,
        height: float,
        clipped: bool = False,
    ):
        found = np.concatenate([*curves, [] if reference is None else [reference]])
        found = found[np.isfinite(found)]
        self.low, self.high = (float(found.min()), float(found.max())) if len(found) else (0.0, 1.0)
        if clipped:
            least = min(self.low, 0.0)
            self.high = min(self.high, -2 * least) if least else self.high
        if self.low == self.high:
            self.low, self.high = self.low - 1.0, self.high + 1.0
        self.top, self.height = top + MARGIN, height - 2 * MARGIN

    def share(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(
            (self.high - np.clip(values, self.low, self.high)) / (self.high - self.low)
        )

    def y(self, value: float) -> float:
        return round(self.top + self.height * float(self.share(np.array(value))), 1)

    def within(self, y: float) -> float:
        """The base line of a label beside y."""
        return min(max(y + 4, self.top + 4), self.top + self.height + 4)

    def labels(self) -> list[tuple[float, float]]:
        return [(self.y(value), value) for value in (self.high, self.low)]


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 or abs(value) >= 1e5 else f"{value:.0f}"


def _path(curve: Curve, scale: _Scale, kind: str) -> str:
    """The area between the least and the greatest values, in pieces where these are known.

    An infinite robustness, where nothing is asked for, is left out unless there is no other.
    """
    n, width = len(curve.least), WIDTH - 4 - GUTTER
    x = np.rint(np.arange(n) / max(1, n - 1) * width * FINE).astype(np.int64).tolist()
    finite = bool(np.isfinite(curve.least).any())
    known = ~np.isnan(curve.least) & (curve.least < np.inf if finite else True)
    high = np.where(np.isinf(curve.greatest) & finite, curve.least, curve.greatest)
    upper, lower = (
        np.rint(np.nan_to_num(scale.share(values)) * scale.height * FINE).astype(np.int64).tolist()
        for values in (high, curve.least)
    )
    pieces = []
    for first, last in runs(known):
        there = range(first, last + 1)
        points = [(x[i], upper[i]) for i in there] + [(x[i], lower[i]) for i in reversed(there)]
        steps = [f"{c - a} {d - b}" for (a, b), (c, d) in pairwise(points)]
        pieces.append(f"M{points[0][0]} {points[0][1]}l{' '.join(steps)}z".replace(" -", "-"))
    return (
        f'<path class="{kind}" transform="translate({GUTTER} {scale.top:g}) scale({1 / FINE:g})" '
        f'd="{"".join(pieces)}"/>'
    )
