"""The relations of a set of requirements as one HTML file, with a graph of the proved implications.

The graph has one row per requirement, and per group of equivalent ones, so that names and titles stay
readable on a narrow screen. What implies stands above what is implied. Arrows run in lanes on the left:
all that leave one requirement share a lane, and what follows from two arrows is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from ..pages import COLOURS, Cell, document, more, table
from .sets import WORDS, SetComparison, summary, vacuity

WIDE, NARROW = 1118, 356  # px: a desktop's page, and a phone's
ROW, GAP = 44, 14  # px: height of a row, and space between parts that no arrow connects
LETTER = 7.4  # px: width of a usual letter
LANE, LANES = 14, 0.3  # px: distance of lanes; share of the width that they may take
HEAD = "|"  # between the line of an arrow and its head
MAX_ROWS = 500  # of a table; the files of --out hold all

STYLE = """
svg text { font-size: 13px; } svg .title { fill: var(--soft); } svg .name { font-weight: 600; }
svg path { fill: none; stroke: var(--soft); stroke-width: 1.5; }
svg .head { fill: var(--soft); stroke: none; }
svg g:hover path { stroke: var(--accent); } svg g:hover .head { fill: var(--accent); }
figure.full { max-width: none; margin: 1rem 0; } .narrow { display: none; }
.legend span { margin-right: 1.25rem; white-space: nowrap; }
.legend i { display: inline-block; width: 0.7rem; height: 0.7rem; margin-right: 0.4rem;
  border-radius: 50%; }
td code, th code { font-weight: 400; }
@media (max-width: 50rem) { .wide { display: none; } .narrow { display: block; } }
"""


def page(found: SetComparison) -> str:
    """The whole page."""
    body = [
        "<h1>How the requirements are related</h1>",
        f"<p>{escape(summary(found))}. What is proved holds for all traces, at every time.</p>",
        *_implications(found),
        *_equivalent(found),
        *_contradictions(found),
        *_alone(found),
        *_suggested(found),
        *_undecided(found),
        *_requirements(found),
    ]
    return document("Relations of requirements", body, STYLE)


# -- sections --------------------------------------------------------------------------------------


def _implications(found: SetComparison) -> Iterator[str]:
    yield "<h2>Proved implications</h2>"
    if not found.direct:
        yield "<p>None.</p>"
        return
    total = sum(r.relation == "implies" for r in found.proved)
    yield (
        f"<p>{total:,} implications. An arrow leads from a requirement to a weaker one, which holds "
        "whenever the first does. What follows from other arrows is not drawn. Point at a requirement "
        "to see its arrows and its formula.</p>"
    )
    if len(found.names) > 1:
        marks = (
            f'<span><i style="background: {COLOURS[n % len(COLOURS)]}"></i>{escape(name)}</span>'
            for n, name in enumerate(found.names)
        )
        yield f'<p class="legend">{"".join(marks)}</p>'
    drawings = (graph(found, WIDE, "wide"), graph(found, NARROW, "narrow"))
    yield f'<figure class="full">{"".join(drawings)}</figure>'


def _equivalent(found: SetComparison) -> Iterator[str]:
    groups = [group for group in found.groups if len(group) > 1]
    yield "<h2>Proved equivalent</h2>" if groups else ""
    yield from _lines([" = ".join(map(found.label, group)) for group in groups])


def _contradictions(found: SetComparison) -> Iterator[str]:
    lines = [
        f"{found.label(a)} and {found.label(b)}"
        for a, b, relation, *_ in found.proved
        if relation == "contradicts"
    ]
    yield "<h2>Proved contradictions</h2>" if lines else ""
    yield from _lines(lines)


def _alone(found: SetComparison) -> Iterator[str]:
    lines = [f"{found.label(i)} can never hold." for i in found.never]
    lines += [f"{found.label(i)} always holds." for i in found.always]
    if lines:
        yield "<h2>Proved of single requirements</h2>"
        yield from _lines(lines)


def _suggested(found: SetComparison) -> Iterator[str]:
    if not found.n_traces:
        return
    yield f"<h2>Only on these {found.n_traces:,} traces, not proved</h2>"
    if found.suggested:
        yield (
            "<p>No trace contradicts these relations. The last column says how many would if the two "
            "were independent: the fewer, the less the traces say.</p>"
        )
        heads = ("first", "relation", "second", "both", "only first", "only second", "neither",
                 "by chance")  # fmt: skip
        yield table(heads, [
            (
                Cell(_named(found, r.a)), Cell(WORDS[r.relation]), Cell(_named(found, r.b)),
                *(Cell(str(count), "number") for count in r.counts or ()),
                Cell(f"{r.expected:.1f}", "number"),
            )
            for r in found.suggested[:MAX_ROWS]
        ])  # fmt: skip
        yield more(len(found.suggested), MAX_ROWS)
    yield from _lines([line[0].upper() + line[1:] + "." for line in vacuity(found)])


def _undecided(found: SetComparison) -> Iterator[str]:
    if not found.undecided and not found.doubtful:
        return
    yield "<h2>Undecided</h2><p>Neither a proof nor a counterexample was found.</p>"
    lines = [f"Whether {found.label(i)} can hold, and can fail" for i in found.doubtful]
    pairs = [f"{found.label(a)} and {found.label(b)}" for a, b in found.undecided]
    yield "<details><summary>Show</summary>"
    yield from _lines(lines + pairs)
    yield "</details>"


def _requirements(found: SetComparison) -> Iterator[str]:
    yield "<h2>The requirements</h2>"
    yield table(("requirement", "formula", "from"), [
        (Cell(_named(found, i)), Cell(f"<code>{escape(one.text)}</code>"), Cell(escape(one.source)))
        for i, one in enumerate(found.requirements[:MAX_ROWS])
    ])  # fmt: skip
    yield more(len(found.requirements), MAX_ROWS)


def _named(found: SetComparison, i: int) -> str:
    one = found.requirements[i]
    if not one.id:
        return f"<code>{escape(one.label)}</code>"
    title = f' <span class="soft">{escape(one.title)}</span>' if one.title else ""
    return f"<b>{escape(found.label(i, title=False))}</b>{title}"


def _lines(lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines[:MAX_ROWS]) + "</ul>"
    yield more(len(lines), MAX_ROWS)


# -- the graph -------------------------------------------------------------------------------------


class Trunk(NamedTuple):
    """Arrows that leave one row and share a lane."""

    row: int
    targets: tuple[int, ...]  # rows below it, not the next one
    lane: int


def graph(found: SetComparison, width: int, kind: str) -> str:
    """The proved implications between groups of equivalent requirements as an SVG."""
    parts = components(found.direct)
    rows = [node for part in parts for node in part]
    place = {node: row for row, node in enumerate(rows)}
    starts = {part[0] for part in parts[1:]}
    tops, y = [], GAP / 2
    for node in rows:
        y += GAP * (node in starts)
        tops.append(y)
        y += ROW
    trunks, lanes = laid_out([(place[a], place[b]) for a, b in found.direct])
    lane = min(LANE, LANES * width / max(lanes, 1))
    left = 12 + lane * lanes  # of the dots
    out = [
        f'<svg class="{kind}" viewBox="0 0 {width} {y:g}" role="img" '
        'aria-label="Graph of implications">'
    ]
    middle = [top + ROW / 2 - 6 for top in tops]
    arrows: list[list[str]] = [[] for _ in rows]  # that leave each row
    for row, targets, number in trunks:
        x, y0 = left - 8 - lane * (number + 1), middle[row]
        arrows[row].append(f"M{left} {y0:g}H{x + 5:g}q-5 0 -5 5V{middle[targets[-1]] - 5:g}")
        for target in targets:
            y1 = middle[target]
            arrows[row].append(f"M{x:g} {y1 - 5:g}q0 5 5 5H{left - 10}{_head(left - 5, y1, 0)}")
    for a, b in found.direct:
        if place[b] == place[a] + 1:
            y0, y1 = middle[place[a]], middle[place[b]]
            arrows[place[a]].append(f"M{left} {y0:g}V{y1 - 10:g}{_head(left, y1 - 5, 1)}")
    letters = int((width - left - 14) / LETTER)
    for node, y0, lines in zip(rows, middle, arrows, strict=True):
        members = found.groups[node]
        names = " = ".join(found.label(i, title=False) for i in members)
        titles = "; ".join(dict.fromkeys(
            one.title or one.text for one in (found.requirements[i] for i in members)
        ))  # fmt: skip
        colour = COLOURS[found.sets[members[0]] % len(COLOURS)]
        told = "\n".join(f"{found.label(i)}: {found.requirements[i].text}" for i in members)
        out.append(
            f"<g><title>{escape(told)}</title>{_drawn(lines)}"
            f'<circle cx="{left:g}" cy="{y0:g}" r="4.5" '
            f'fill="{colour}"/><text class="name" x="{left + 12:g}" y="{y0 + 4:g}">'
            f'{escape(_cut(names, int(letters * 0.9)))}</text><text class="title" '
            f'x="{left + 12:g}" y="{y0 + 21:g}">{escape(_cut(titles, letters))}</text></g>'
        )
    return "".join([*out, "</svg>"])


def components(edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The nodes of each connected part in an order in which all edges lead onwards.

    After a node come those that it leads to, if nothing else does, so that most arrows are short.
    """
    after: dict[int, list[int]] = {}
    before: dict[int, set[int]] = {}
    for a, b in sorted(edges):
        after.setdefault(a, []).append(b)
        after.setdefault(b, [])
        before.setdefault(b, set()).add(a)
        before.setdefault(a, set())
    parts, left = [], sorted(after)
    while left:
        part, todo = {left[0]}, [left[0]]
        while todo:
            node = todo.pop()
            new = {*after[node], *before[node]} - part
            part |= new
            todo += new
        order: list[int] = []
        waiting = {node: len(before[node]) for node in part}
        stack = sorted((node for node in part if not waiting[node]), reverse=True)
        while stack:
            node = stack.pop()
            order.append(node)
            for other in reversed(after[node]):
                waiting[other] -= 1
                if not waiting[other]:
                    stack.append(other)
        parts.append(order)
        left = [node for node in left if node not in part]
    return parts


def laid_out(edges: Iterable[tuple[int, int]]) -> tuple[list[Trunk], int]:
    """Lanes for arrows between rows, and how many lanes there are; arrows to the next row need none."""
    long: dict[int, list[int]] = {}
    for a, b in edges:
        if b > a + 1:
            long.setdefault(a, []).append(b)
    trunks: list[Trunk] = []
    ends: list[int] = []  # the last row of each lane so far
    for row, targets in sorted(long.items(), key=lambda item: (item[0], max(item[1]))):
        lane = next((n for n, end in enumerate(ends) if end < row), len(ends))
        ends[lane : lane + 1] = [max(targets)]
        trunks.append(Trunk(row, tuple(sorted(targets)), lane))
    return trunks, len(ends)


def _head(x: float, y: float, down: int) -> str:
    """The head of an arrow whose tip is at (x, y), as a path of its own."""
    return HEAD + (f"M{x:g} {y:g}l-4 -7h8z" if down else f"M{x:g} {y:g}l-7 -4v8z")


def _drawn(lines: Iterable[str]) -> str:
    """Arrows as elements: lines, and heads, which are filled."""
    parts = [line.partition(HEAD) for line in lines]
    heads = "".join(head for *_, head in parts)
    lines = "".join(line for line, *_ in parts)
    return f'<path d="{lines}"/>' * bool(lines) + f'<path class="head" d="{heads}"/>' * bool(heads)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
