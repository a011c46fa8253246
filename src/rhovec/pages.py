"""Pages that are a single HTML file: frame, style and tables.

A page loads nothing from elsewhere, and suits light and dark, wide and narrow screens: on a narrow one a
row of a table becomes a block in which each number carries the name of its column. COLOURS mark data;
each has a contrast of at least 3 on the light and on the dark page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

BLUE, ORANGE, GREEN, PURPLE, RED, TEAL, OLIVE = COLOURS = (
    "#2f80d0", "#cf6d17", "#2f9150", "#9b62cf", "#d64a5b", "#16909e", "#87823a",
)  # fmt: skip
GREY = "#808790"

STYLE = """
:root { color-scheme: light dark; --ink: #1b2330; --soft: #566172; --line: #dde2e9; --page: #ffffff;
  --raised: #f5f7fa; --accent: #1f63ad; --good: #17713a; --bad: #a3450c; --worse: #b3202c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9fabba; --line: #323b47; --page: #14181e;
    --raised: #1b2129; --accent: #7db7f2; --good: #63c588; --bad: #e8a25f; --worse: #f0808a; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { margin: 0 0 0.75rem; font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.01em; }
h2 { margin: 3.5rem 0 0.5rem; font-size: 1.35rem; line-height: 1.3; letter-spacing: -0.01em; }
h3 { margin: 1.75rem 0 0.5rem; font-size: 1rem; }
p { max-width: 46rem; margin: 0.5rem 0 1rem; }
a { color: var(--accent); }
table { width: 100%; border-collapse: collapse; margin: 0.75rem 0 1rem; font-size: 0.875rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 1.25rem 0.4rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
thead .number { width: 7rem; }
tbody th { font-weight: 400; }
.number { text-align: right; }
code { font: 0.8125rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: 0.35rem 0; }
.soft { color: var(--soft); }
.good { color: var(--good); } .worse { color: var(--worse); }
.figures { display: flex; flex-wrap: wrap; gap: 1.5rem 2rem; margin: 1rem 0; }
figure { margin: 0; flex: 1 1 20rem; max-width: 28rem; }
figcaption { color: var(--soft); font-size: 0.8125rem; line-height: 1.45; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: currentColor; font-family: system-ui, sans-serif !important; }
@media (max-width: 50rem) {
  main { padding-top: 1rem; }
  h1 { font-size: 1.6rem; }
  thead { display: none; }
  table, tbody { display: block; }
  tr { display: block; padding: 0.6rem 0; border-bottom: 1px solid var(--line); }
  th, td { border: 0; padding: 0; }
  tbody th { display: block; font-weight: 600; }
  td { display: inline-block; margin-right: 1rem; }
  td:empty { display: none; }
  td::before { content: attr(data-name) " "; color: var(--soft); }
}
"""


class Cell(NamedTuple):
    """Cell of a table: markup, its class, and its tooltip."""

    markup: str
    kind: str = ""
    title: str = ""


def document(title: str, body: Iterable[str], style: str = "", script: str = "") -> str:
    """A whole page."""
    code = f"<script>{script}</script>" if script else ""
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>",
        *body,
        f"</main>{code}</body></html>\n",
    ])  # fmt: skip


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table; the first cell of a row names the row, and heads are aligned like their columns."""
    rows = list(rows)
    kinds = [cell.kind for cell in rows[0]] if rows else [""] * len(heads)
    out = ["<table><thead><tr>"]
    for head, kind in zip(heads, kinds, strict=True):
        out.append(f'<th class="number">{escape(head)}</th>' if kind == "number" else
                   f"<th>{escape(head)}</th>")  # fmt: skip
    out.append("</tr></thead><tbody>")
    for name, *cells in rows:
        parts = [f"<tr><th>{name.markup}</th>"]
        for head, (markup, kind, title) in zip(heads[1:], cells, strict=True):
            marks = f' class="{kind}"' * bool(kind) + f' title="{escape(title)}"' * bool(title)
            parts.append(f'<td data-name="{escape(head)}"{marks}>{markup}</td>')
        out.append("".join(parts) + "</tr>")
    out.append("</tbody></table>")
    return "\n".join(out)


def more(count: int, most: int) -> str:
    """The line under a list or table of `count` rows that shows the first `most`."""
    return f"<p>And {count - most:,} more.</p>" if count > most else ""


def captioned(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
