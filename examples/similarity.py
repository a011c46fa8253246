"""Eight formulae compared in three ways: by their letters, by the exact kernel, by the encoder.

    python examples/similarity.py [similarity.svg]

The picture in the README: what is written alike need not mean the same, and conversely.
"""

import sys
from difflib import SequenceMatcher
from html import escape
from pathlib import Path

import rhovec as rv

FORMULAE = [
    "always[0,20] x_0 >= 0",
    "not eventually[0,20] x_0 < 0",
    "always[0,9] x_0 >= 0 and always[9,20] x_0 >= 0",
    "eventually[0,20] x_0 >= 0",
    "not always[0,20] x_0 >= 0",
    "always[0,20] x_1 >= 0",
    "x_0 >= 0 until[0,20] x_1 >= 0",
    "always[0,20] x_0 >= 0 and eventually[0,20] x_1 >= 0",
]
LABELS, WIDTH, HEIGHT, TOP, GAP = 410, 31, 24, 28, 14  # of the labels, a cell, the title, a gap
STYLE = """text { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; fill: #24292f }
.title { font-family: system-ui, sans-serif } .cell { font-size: 10px; text-anchor: middle }
@media (prefers-color-scheme: dark) { .label, .title { fill: #d0d7de } }"""

letters = [[SequenceMatcher(None, a, b).ratio() for b in FORMULAE] for a in FORMULAE]
exact = rv.StlKernel(rv.BaseMeasure(n_variables=2), n_traces=20_000).gram(FORMULAE)
neural = rv.load().similarity(FORMULAE, FORMULAE)
error = abs(neural - exact).max()
panels = {
    "letters (difflib)": letters,
    "meaning: exact kernel": exact,
    f"meaning: encoder, off by ≤ {error:.2f}": neural,
}

parts = [
    f'<text class="label" x="{LABELS - 8}" y="{TOP + HEIGHT * i + 16}" text-anchor="end">'
    f"{escape(text)}</text>"
    for i, text in enumerate(FORMULAE)
]
left = LABELS
for title, values in panels.items():
    parts.append(f'<text class="title" x="{left}" y="16">{title}</text>')
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            x, y, share = left + WIDTH * j, TOP + HEIGHT * i, min(max(value, 0), 1)
            colour = f"hsl(211 75% {97 - 62 * share:.0f}%)"
            ink = "#fff" if share > 0.55 else "#24292f"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="{colour}"/>'
                f'<text class="cell" x="{x + WIDTH / 2}" y="{y + 16}" style="fill:{ink}">'
                f"{share:.2f}</text>"
            )
    left += WIDTH * len(FORMULAE) + GAP
size = f"{left} {TOP + HEIGHT * len(FORMULAE) + 4}"
head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"><style>{STYLE}</style>'
path = Path(sys.argv[1] if len(sys.argv) > 1 else "similarity.svg")
path.write_text("\n".join([head, *parts, "</svg>\n"]), encoding="utf-8")
