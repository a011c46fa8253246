"""The tour as one HTML file: drawings, tables, and a short script that names what is pointed at."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from html import escape

import numpy as np

from ..pages import BLUE, Cell, captioned, document, table
from . import drawings
from .systems import System
from .tour import QUERY, SEARCHED, TRACES, Pair, Tour, Written, written

MAP = (
    "Each dot is a requirement, and close dots have close vectors. Within a system this is about "
    "meaning. Between systems it is only about form: the channels of a system are scaled by their "
    "normal ranges, so “stays a little below the top of its range” is one place on the map, whether "
    "of a speed or of a temperature."
)
MATRIX = (
    "Above the diagonal the exact similarity, below it the model's: the two halves should mirror each "
    "other. Thick frames are domains, thin ones systems. Within a system the numbers are about "
    "meaning, between systems only about form."
)

STYLE = """
.lead { font-size: 1.125rem; }
.facts { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin-top: 1.5rem; }
.facts div { line-height: 1.3; }
.facts b { display: block; font-size: 1.6rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: 0.875rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0.4rem 0.5rem; margin: 0.75rem 0; max-width: none;
  font-size: 0.875rem; }
.legend span, .legend button { display: inline-flex; align-items: center; gap: 0.45rem;
  padding: 0.15rem 0.6rem; border: 1px solid var(--line); border-radius: 1rem; background: none;
  color: inherit; font: inherit; }
.legend button { cursor: pointer; }
.legend button[aria-pressed="true"] { border-color: var(--accent); background: var(--raised); }
.legend i { width: 0.7rem; height: 0.7rem; border-radius: 50%; }
figure.full { max-width: none; }
.card { border: 1px solid var(--line); border-radius: 0.6rem; overflow: hidden; }
.readout { margin: 0.6rem 0; padding: 0.7rem 0.9rem; min-height: 6.4rem; border-radius: 0.6rem;
  background: var(--raised); font-size: 0.875rem; }
.readout p { margin: 0 0 0.25rem; max-width: none; }
svg text { font-size: 12px; }
svg .axis { fill: var(--soft); }
svg .name { fill: var(--soft); }
.leader { stroke: var(--soft); stroke-width: 0.8; opacity: 0.7; }
.map circle { stroke: var(--page); stroke-width: 1; transition: opacity 0.15s; }
.map circle.off { opacity: 0.12; }
.map circle.on { stroke: var(--ink); stroke-width: 2.5; }
.map circle.near { stroke: var(--soft); stroke-width: 2; }
.cells { image-rendering: pixelated; }
.outline { fill: none; stroke: var(--soft); stroke-width: 0.6; }
.outline.strong { stroke: var(--ink); stroke-width: 1.2; }
.matrix, .map { cursor: crosshair; touch-action: pan-y; }
.grid { stroke: var(--line); } .zero { stroke: var(--soft); }
.limit { stroke: var(--soft); stroke-dasharray: 5 4; }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.dots { fill: none; stroke-width: 3; stroke-linecap: round; opacity: 0.6; }
.square { flex: 1 1 47rem; max-width: 47rem; }
.narrow { display: none; }
.two code, .two .soft { display: block; font-weight: 400; }
.two .soft { margin-bottom: 0.3rem; font-size: 0.8125rem; }
.scale { display: inline-block; width: 6rem; height: 0.7rem; vertical-align: middle;
  border: 1px solid var(--line); }
.number { white-space: nowrap; }
.beside { display: flex; flex-wrap: wrap; gap: 1rem 3rem; align-items: flex-start; }
.beside > div { flex: 1 1 16rem; }
.beside > .readout { position: sticky; top: 1rem; }
.system { flex: 1 1 22rem; max-width: 34rem; }
@media (max-width: 50rem) { .wide { display: none; } .narrow { display: block; } }
"""

SCRIPT = """
"use strict";
const values = Uint8Array.from(atob(cells), (c) => c.charCodeAt(0));
const said = (...parts) => parts.filter(Boolean).join("; ");
const tell = (readout, lines) => readout.replaceChildren(...lines.map(([tag, words]) => {
  const line = document.createElement("p"), part = document.createElement(tag);
  part.textContent = words;
  if (tag === "span") part.className = "soft";
  line.append(part);
  return line;
}));
const place = (svg, event) => {
  const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
};
const listen = (svg, act) => ["pointermove", "pointerdown"].forEach((name) =>
  svg.addEventListener(name, (event) => act(...place(svg, event))));

for (const svg of document.querySelectorAll(".map")) {
  const dots = [...svg.querySelectorAll("circle")];
  listen(svg, (x, y) => {
    const far = dots.map((dot) => Math.hypot(dot.cx.baseVal.value - x, dot.cy.baseVal.value - y));
    const at = far.indexOf(Math.min(...far));
    if (far[at] > 40) return;
    const [title, formula, system, source, nearest, exact, neural] = library[at];
    dots.forEach((dot, i) => {
      dot.classList.toggle("on", i === at);
      dot.classList.toggle("near", i === nearest);
    });
    const lines = [["b", title], ["code", formula], ["span", said(system, source)]];
    if (nearest !== null) lines.push(["span",
      `${words.nearest}: ${library[nearest][1]} (exact ${exact}, ${words.by} ${neural})`]);
    tell(document.querySelector("#map .readout"), lines);
  });
}
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    document.querySelectorAll(".legend button").forEach((other) =>
      other.setAttribute("aria-pressed", on && other === button));
    document.querySelectorAll(".map circle").forEach((dot) =>
      dot.classList.toggle("off", on && dot.getAttribute("fill") !== button.dataset.colour));
  });
}
for (const svg of document.querySelectorAll(".matrix")) {
  const cells = svg.querySelector("image"), left = cells.x.baseVal.value;
  const side = cells.width.baseVal.value, count = order.length;
  listen(svg, (x, y) => {
    const column = Math.floor((x - left) / side * count), row = Math.floor((y - 1) / side * count);
    if (Math.min(row, column) < 0 || Math.max(row, column) >= count) return;
    const value = (i, j) => (values[i * count + j] / 255).toFixed(2);
    const [low, high] = [Math.min(row, column), Math.max(row, column)];
    tell(document.querySelector("#matrix .readout"), [
      ["b", row === column ? "The same requirement"
        : `Exact ${value(low, high)}, ${words.by} ${value(high, low)}`],
      ...[row, column].flatMap((i) => [["code", library[order[i]][1]],
        ["span", said(library[order[i]][0], library[order[i]][2])]]),
    ]);
  });
}
"""


def page(shown: Tour) -> str:
    """The whole page."""
    texts = [written(r) for r in shown.requirements]
    both = Both(texts, shown.exact, shown.neural)
    body = [
        *_head(shown),
        *map_of(texts, shown.vectors, MAP),
        *_pairs(shown),
        *_neural(shown),
        *_decoded(shown),
        *_search(shown),
        *matrix_of(both, MATRIX),
        *_traces(shown),
        *_reading(shown),
    ]
    script = both.script("neural", "Nearest of this system", within=True)
    return document("rhovec: requirements by meaning", body, STYLE, script)


class Both:
    """Exact similarities of requirements, (B, B) above the diagonal, and below it those by vectors."""

    def __init__(self, texts: list[Written], exact: np.ndarray, neural: np.ndarray):
        self.texts, self.exact, self.neural = texts, exact, neural
        self.order = drawings.in_groups(texts, neural)
        pick = np.ix_(self.order, self.order)
        self.values = np.triu(exact[pick]) + np.tril(neural[pick], -1)

    def script(self, by: str, nearest: str, within: bool) -> str:
        """The page's script with its data. within: the nearest requirement is one of the same system."""
        levels = np.rint(np.clip(self.values, 0, 1) * 255).astype(np.uint8)
        return (
            f"const library = {_json(list(self._entries(within)))};\n"
            f"const order = {_json(self.order.tolist())};\n"
            f"const words = {_json({'by': by, 'nearest': nearest})};\n"
            f'const cells = "{base64.b64encode(levels.tobytes()).decode()}";{SCRIPT}'
        )

    def _entries(self, within: bool) -> Iterator[tuple[object, ...]]:
        names = np.array([one.system for one in self.texts])
        for i, (text, title, source, system, _) in enumerate(self.texts):
            other = np.arange(len(names)) != i
            near = np.where(other & ((names == system) | (not within)), self.exact[i], -1.0)
            j = int(near.argmax())
            found = (j, f"{self.exact[i, j]:.3f}", f"{self.neural[i, j]:.3f}")
            yield title, text, system, source, *((None, "", "") if near[j] < 0 else found)


def _json(data: object) -> str:
    """For a script: no text in it can end the script."""
    return json.dumps(data, ensure_ascii=False).replace("</", "<\\/")


# -- sections --------------------------------------------------------------------------------------


def _head(shown: Tour) -> Iterator[str]:
    count, dimension = shown.vectors.shape
    systems = len({r.system.name for r in shown.requirements})
    exact, neural = shown.within
    yield f"<h1>{count} requirements, compared by what they mean</h1>"
    yield (
        '<p class="lead">Each is a formula of Signal Temporal Logic that was published for a real '
        "system: a car, an aircraft, an insulin pump, a robot. The shipped model reads only the "
        f"formula and gives {dimension} numbers, a vector of length one. The inner product of two "
        "vectors says how similar two requirements are: 1 means the same, 0 unrelated or opposed."
        "</p>"
    )
    facts = (
        (f"{count}", f"requirements of {systems} systems"),
        (f"{len(exact):,}", "pairs within a system"),
        (f"{np.abs(exact - neural).mean():.3f}", "mean error of the model on these pairs"),
        (f"{TRACES:,}", "random traces behind every exact value"),
    )
    yield cards(facts)


def cards(facts: Iterable[tuple[str, str]]) -> str:
    """Numbers, each with what it is."""
    parts = (f"<div><b>{escape(number)}</b><span>{what}</span></div>" for number, what in facts)
    return f'<div class="facts">{"".join(parts)}</div>'


def map_of(texts: list[Written], vectors: np.ndarray, words: str) -> Iterator[str]:
    colours = drawings.domain_colours(texts)
    shares = drawings.neighbour_map(vectors)
    yield f'<section id="map"><h2>A map of the library</h2><p>{words}</p>'
    yield '<p class="legend">'
    for name, colour in colours.items():
        yield (
            f'<button type="button" aria-pressed="false" data-colour="{colour}">'
            f'<i style="background: {colour}"></i>{escape(name)}</button>'
        )
    yield "</p>"
    yield '<figure class="full"><div class="card">'
    yield drawings.library_map(texts, shares, colours, 1118, 660, "wide")
    yield drawings.library_map(texts, shares, colours, 356, 560, "narrow")
    yield "</div>"
    yield _readout("Point at a dot, or tap it, to see the requirement and the nearest one to it.")
    yield "</figure></section>"


def _pairs(shown: Tour) -> Iterator[str]:
    yield "<section><h2>Written differently, nearly the same meaning</h2>"
    yield (
        "<p>Requirements of the same system that share little text, from different publications "
        "where possible. The exact similarity has a standard error.</p>"
    )
    yield pair_table("two requirements", shown.same)
    yield (
        "<p>And rewritten by the laws of the logic: the exact similarity is 1, and the model, which "
        "was told no law, should find the same.</p>"
    )
    yield pair_table("a requirement and its rewriting", shown.rewritten)
    yield "</section><section><h2>Written almost the same, another meaning</h2>"
    yield (
        "<p>Requirements about the same variables that differ in a few characters, and hold on "
        "different traces.</p>"
    )
    yield pair_table("two requirements", shown.other)
    yield "</section>"


def _neural(shown: Tour) -> Iterator[str]:
    exact, neural = shown.within
    error = np.abs(exact - neural)
    yield '<section><h2>Neural against exact</h2><div class="beside">'
    drawn = drawings.agreement(exact, neural)
    yield captioned(drawn, "All pairs of requirements within a system. On the line the two agree.")
    yield (
        f"<div><p>Over all {len(error):,} pairs within a system the model is "
        f"{error.mean():.3f} away from the exact similarity on average, half of them less than "
        f"{np.median(error):.3f}, and 95 of 100 less than {np.quantile(error, 0.95):.3f}. The model "
        "was trained only on random formulae.</p>"
    )
    if shown.outside:
        yield f"<p>{escape(shown.outside[0].upper() + shown.outside[1:])}.</p>"
    yield "<h3>Where it is most wrong</h3>"
    yield pair_table("two requirements", shown.wrong)
    yield "</div></div></section>"


def _decoded(shown: Tour) -> Iterator[str]:
    if shown.decoded:
        yield "<section><h2>From the vector back to a formula</h2>"
        yield (
            "<p>The decoder sees only the vector, proposes formulae, and keeps the one whose own "
            "vector is closest. It answers in the system's names and units, times in seconds.</p>"
        )
        yield pair_table("a requirement and its decoding", shown.decoded)
        yield "</section>"


def _search(shown: Tour) -> Iterator[str]:
    searched = next(r.system for r in shown.requirements if r.system.name == SEARCHED)
    yield "<section><h2>Search by meaning</h2>"
    yield (
        f"<p>{escape(searched.title)}: which of its requirements are nearest to "
        f"<code>{escape(QUERY)}</code>? Vectors find the candidates, the exact kernel ranks them."
        "</p>"
    )
    rows = [(said([pair.second]), *values_of(pair)) for pair in shown.hits]
    yield table(("found", "exact", "neural"), rows)
    yield "</section>"


def matrix_of(both: Both, words: str) -> Iterator[str]:
    ordered = [both.texts[i] for i in both.order]
    yield f'<section id="matrix"><h2>All pairs</h2><p>{words}</p>'
    yield (
        '<p class="soft">0 <i class="scale" style="background: '
        f'linear-gradient(90deg, transparent, {BLUE})"></i> 1</p>'
    )
    yield '<div class="beside"><figure class="square">'
    yield drawings.matrix(ordered, both.values, 760, "wide")
    yield drawings.matrix(ordered, both.values, 356, "narrow")
    yield "</figure>"
    yield _readout("Point at a cell, or tap it, to see both requirements.")
    yield "</div></section>"


def _traces(shown: Tour) -> Iterator[str]:
    yield "<section><h2>Requirements on traces</h2>"
    yield (
        "<p>What a requirement means is decided on traces. The robustness is the margin by which a "
        "trace satisfies it, in the requirement's own unit; below 0 it is violated. Four small "
        "systems with textbook models; the lower half of each drawing is the robustness from each "
        "time on, and the dot at time 0 is the number in the table.</p>"
    )
    yield '<div class="figures">'
    for system in shown.systems:
        yield from system_card(system)
    yield "</div></section>"


def system_card(system: System) -> Iterator[str]:
    yield f'<div class="system"><h3>{escape(system.title)}</h3><p class="legend">'
    for name, colour in zip(system.traces, drawings.LINES, strict=True):
        yield f'<span><i style="background: {colour}"></i>{escape(name)}</span>'
    yield "</p>"
    title, variable, _ = system.shown
    caption = f"{variable} with limits (dashed), and the robustness of: {title}."
    yield captioned(drawings.traces(system), caption)
    rows = []
    for (name, text), row, good in zip(system.requirements.items(), *system.check(), strict=True):
        cells = [
            Cell(f"{value:+.4g} {'✓' if holds else '✗'}", f"number {'good' if holds else 'worse'}")
            for value, holds in zip(row, good, strict=True)
        ]
        rows.append((said([Written(text, name)]), *cells))
    yield table(("requirement", *system.traces), rows)
    yield "</div>"


def _reading(shown: Tour) -> Iterator[str]:
    yield "<section><h2>What the numbers mean</h2>"
    yield (
        "<p>The exact similarity of two formulae is exp(−(1 − c) / 0.2), where c is the cosine of "
        f"their robustness over {TRACES:,} random traces. A similarity near 1 also arises where "
        "both hold, or fail, by a wide margin on almost all traces; one near 0 does not tell "
        "opposed from unrelated. Whether one requirement implies another is answered by "
        "<code>rhovec compare</code>.</p>"
        "<p>Requirements use their own names and units. The schema of a system gives the normal "
        "range of each channel, which becomes −2 to 2, and the sampling step, which becomes the "
        "unit of time. Channels are independent on the random traces; pairs of requirements whose "
        "channels share a variable are therefore not shown above.</p>"
    )
    yield f"<details><summary>All {len(shown.requirements)} requirements</summary>"
    rows = [
        (said([written(r)]), Cell(escape(f"{r.system.title} ({r.domain})")))
        for r in shown.requirements
    ]
    yield table(("requirement", "system"), rows)
    yield "</details></section>"


# -- parts -----------------------------------------------------------------------------------------


def pair_table(head: str, pairs: Iterable[Pair], by: str = "neural") -> str:
    rows = [(said([pair.first, pair.second]), *values_of(pair)) for pair in pairs]
    return table((head, "exact", by), rows)


def said(texts: Iterable[Written]) -> Cell:
    parts = [
        f"<code>{escape(one.text)}</code>"
        f'<span class="soft">{escape("; ".join(filter(None, (one.title, one.source))))}</span>'
        for one in texts
    ]
    return Cell(f'<div class="two">{"".join(parts)}</div>')


def values_of(pair: Pair) -> tuple[Cell, Cell]:
    exact = f"{pair.exact:.3f} ± {pair.error:.3f}"
    return Cell(exact, "number"), Cell(f"{pair.neural:.3f}", "number")


def _readout(words: str) -> str:
    return f'<div class="readout" aria-live="polite"><p class="soft">{escape(words)}</p></div>'
