"""Writes docs/phrases.md and its pictures: English sentences, their formulae, and where they hold.

python docs/phrases.py

A picture shows traces of six seconds, sampled ten times a second, and in the background at which times
the requirement holds (blue) or is violated (orange), as `rv.satisfaction` says; a leading `always` is
left out for that. A test compares the files with what this writes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

import rhovec as rv
from rhovec.formula.requirements import read_requirements

FOLDER = Path(__file__).parent
EXAMPLE = FOLDER.parent / "examples" / "requirements.stl"
DISCRETE = ("gear", "mode", "cruise_state")
STEP, POINTS = 0.1, 61
TIME = np.arange(POINTS) * STEP


def on(*stretches: tuple[float, float]) -> np.ndarray:
    """A flag that is 1 in stretches of time, [start, end)."""
    near = TIME + STEP / 10
    return np.array([float(any(a <= t < b for a, b in stretches)) for t in near])


def pulses(*times: float) -> np.ndarray:
    return on(*((t, t + 2 * STEP) for t in times))


def ramp(*corners: tuple[float, float]) -> np.ndarray:
    """A curve of straight lines through (time, value)."""
    return np.interp(TIME, *zip(*corners, strict=True))


class Phrase(NamedTuple):
    name: str  # of the picture
    sentence: str
    formula: str
    signals: dict[str, np.ndarray]  # flags, and curves
    level: float | None = None  # a limit drawn into the curves


SPEED = ramp((0, 20), (2, 95), (3, 60), (4.2, 70), (6, 40))
STEPPED = on((0, 1)) * 20 + on((1, 4)) * 60 + on((4, 7)) * 30
LAGGED = ramp((0, 20), (1, 20), (1.6, 66), (2.2, 58), (2.6, 60), (4, 60), (5.8, 45), (6, 44))

PHRASES = [
    Phrase("stays", "The speed stays below 80.", "always speed < 80", {"speed": SPEED}, 80),
    Phrase(
        "answered", "A request is answered within 1 s.", "always (req -> eventually[0, 1 s] ack)",
        {"req": pulses(0.5, 3, 4.6), "ack": pulses(1.1, 5)},
    ),
    Phrase(
        "after-request", "No answer comes without a request in the last 1.5 s.",
        "always (rise(ack) -> once[0, 1.5 s] req)",
        {"req": pulses(0.5, 4), "ack": pulses(1.2, 3, 4.8)},
    ),
    Phrase(
        "kept", "Once open, the valve stays open for at least 1 s.",
        "always (rise(open) -> always[0, 1 s] open)", {"open": on((0.5, 2.2), (3.2, 3.7), (4.5, 6))},
    ),
    Phrase(
        "recurs", "There is a heartbeat at least every 1.5 s.", "always eventually[0, 1.5 s] beat",
        {"beat": pulses(0.3, 1.2, 2.4, 5, 5.9)},
    ),
    Phrase(
        "until", "An alarm sounds until it is acknowledged.", "always (alarm -> alarm until ack)",
        {"alarm": on((0.5, 2.1), (3, 4.2)), "ack": pulses(2, 5)},
    ),
    Phrase(
        "unless", "The pump runs on unless it is stopped.",
        "always (rise(pump) -> pump weak_until[0, 2 s] stop)",
        {"pump": on((0.4, 1.6), (2.5, 3.3), (4, 6.1)), "stop": pulses(1.5)},
    ),
    Phrase(
        "held-before", "The motor starts only if the door has been closed for 1 s.",
        "always (rise(motor) -> historically[0, 1 s] door)",
        {"door": on((0, 2), (2.6, 6.1)), "motor": on((1.2, 1.9), (3, 3.8), (4.4, 5.5))},
    ),
    Phrase(
        "since", "Cruise control is on only if it has been set and not cancelled since.",
        "always (cruise -> not cancel since set)",
        {"set": pulses(0.6, 4), "cancel": pulses(2), "cruise": on((0.7, 3), (4.1, 6.1))},
    ),
    Phrase(
        "apart", "Two pulses are at least 1 s apart.",
        "always (rise(pulse) -> historically[0.1 s, 1 s] not rise(pulse))",
        {"pulse": pulses(0.5, 1.8, 2.4, 4.5)},
    ),
    Phrase(
        "debounced", "A fault is reported only after 0.5 s of too much pressure.",
        "always (rise(fault) -> historically[0, 0.5 s] pressure > 50)",
        {
            "pressure": ramp((0, 30), (1, 60), (2, 62), (2.6, 30), (4, 45), (4.4, 58), (6, 57)),
            "fault": on((1.6, 2.5), (4.5, 6.1)),
        },
        50,
    ),
    Phrase(
        "rate", "The throttle opens no faster than 60 % a second.", "always rate(throttle) <= 60",
        {"throttle": ramp((0, 10), (1, 10), (2, 60), (3, 20), (3.5, 70), (6, 75))},
    ),
    Phrase(
        "jump", "A reading changes by at most 15 from one sample to the next.",
        "always abs(level - prev level) <= 15",
        {"level": ramp((0, 20), (2, 40)) + on((2.5, 4)) * 25 + on((5, 5.1)) * 10},
    ),
    Phrase(
        "spike", "There is no spike: no rise to 60 that is over within 0.5 s.",
        "always not (rise(x >= 60) and eventually[0, 0.5 s] fall(x >= 60))",
        {"x": ramp((0, 30), (1, 35), (1.3, 80), (1.6, 36), (3, 30), (3.5, 70), (5, 72), (5.5, 30))},
        60,
    ),
    Phrase(
        "settles", "Within 1.5 s of a change of its set point, the value is within 5 of it for 0.5 s.",
        "always (changed(set_point) -> eventually[0, 1.5 s] always[0, 0.5 s] abs(y - set_point) <= 5)",
        {"set_point": STEPPED, "y": LAGGED},
    ),
    Phrase(
        "either", "Pressure passes 50 only from below 30 within 1 s, or while the valve is open.",
        "always (rise(pressure > 50) -> (once[0, 1 s] pressure < 30) or valve)",
        {
            "pressure": ramp((0, 20), (0.8, 70), (2, 40), (3, 42), (3.4, 60), (4.4, 35), (5, 58)),
            "valve": on((4.6, 6.1)),
        },
        50,
    ),
]  # fmt: skip

WIDTH, LEFT, CURVE, FLAG, GAP = 330, 62, 44, 14, 6
HOLDS, VIOLATED, INK = "#d6e6f4", "#f8d3b0", "#333"


def body(formula: str) -> str:
    """The requirement at one time: without a leading always."""
    return re.sub(r"^always\s+(?=\(.*\)$|[^(])", "", formula)


def verdicts(phrase: Phrase) -> np.ndarray:
    """Whether the requirement holds at each time, (P,) bool."""
    traces = {name: values[None] for name, values in phrase.signals.items()}
    phi = rv.parse(body(phrase.formula), dt=STEP)
    return np.asarray(rv.satisfaction(phi, traces, trace=True)[0])


def stretches(flags: np.ndarray) -> list[tuple[int, int, bool]]:
    """Runs of equal values as (first, end, value)."""
    edges = [0, *(np.flatnonzero(np.diff(flags)) + 1).tolist(), len(flags)]
    return [(a, b, bool(flags[a])) for a, b in pairwise(edges)]


def x_of(index: float) -> str:
    return f"{LEFT + index * (WIDTH - LEFT) / POINTS:.1f}"


def picture(phrase: Phrase) -> str:
    """An SVG: stretches in the background, a lane for each signal, time below."""
    lanes, y = [], GAP
    for name, values in phrase.signals.items():
        flag = set(values.tolist()) <= {0.0, 1.0}
        height = FLAG if flag else CURVE
        low, high = (0.0, 1.0) if flag else (0.0, 100.0)

        def level(
            value: float, top: float = y, size: float = height, span: float = high - low
        ) -> str:
            return f"{top + size * (1 - value / span):.1f}"

        lanes.append(
            f'<text x="{LEFT - 6}" y="{y + height / 2 + 4:g}" text-anchor="end">{name}</text>'
        )
        if phrase.level is not None and not flag:
            at = level(phrase.level)
            lanes.append(
                f'<path d="M{LEFT} {at}H{WIDTH}" stroke="#888" stroke-dasharray="3 3" fill="none"/>'
            )
        if flag:
            parts = [
                f"M{x_of(a)} {y + height}V{y}H{x_of(b)}V{y + height}"
                for a, b, up in stretches(values)
                if up
            ]
            lanes.append(f'<path d="{"".join(parts)}" fill="#777"/>')
            lanes.append(f'<path d="M{LEFT} {y + height}H{WIDTH}" stroke="#777" fill="none"/>')
        else:
            points = " ".join(f"{x_of(i + 0.5)},{level(v)}" for i, v in enumerate(values.tolist()))
            lanes.append(
                f'<polyline points="{points}" fill="none" stroke="{INK}" stroke-width="1.5"/>'
            )
        y += height + GAP
    back = [
        f'<rect x="{x_of(a)}" y="0" width="{float(x_of(b)) - float(x_of(a)):.1f}" height="{y}" '
        f'fill="{HOLDS if good else VIOLATED}"/>'
        for a, b, good in stretches(verdicts(phrase))
    ]
    ticks = [
        f'<text x="{x_of(second / STEP)}" y="{y + 12}" text-anchor="middle">{second} s</text>'
        for second in range(6)
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 16}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}">',
        f"<title>{phrase.sentence}</title>", *back, *lanes, *ticks, "</svg>", "",
    ])  # fmt: skip


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    requirements = read_requirements(EXAMPLE, dt=0.01, discrete=DISCRETE)
    rows = [
        f"| {p.sentence} | `{cell(p.formula)}` | ![{p.sentence}](phrases/{p.name}.svg) |"
        for p in PHRASES
    ]
    fifty = [f"| {r.id} | {r.title} | `{cell(r.text)}` | {r.tags[0]} |" for r in requirements]
    return "\n".join([
        "# Phrases",
        "",
        "English sentences and their formulae. The pictures show traces of six seconds, sampled every "
        "0.1 s; the background is blue at the times at which the requirement, without its leading "
        "`always`, holds, and orange where it is violated. The first and the last sample are held. "
        "Written by `python docs/phrases.py`.",
        "",
        "| sentence | formula | where it holds |",
        "|---|---|---|",
        *rows,
        "",
        "## Fifty requirements",
        "",
        "[examples/requirements.stl](../examples/requirements.stl) holds these requirements, with the "
        "definitions and parameters that they use, and says what their sources are.",
        "",
        "| | sentence | formula | source |",
        "|---|---|---|---|",
        *fifty,
        "",
    ])  # fmt: skip


def files() -> dict[Path, str]:
    """The page and the pictures."""
    pictures = {FOLDER / "phrases" / f"{phrase.name}.svg": picture(phrase) for phrase in PHRASES}
    return {FOLDER / "phrases.md": page(), **pictures}


if __name__ == "__main__":
    (FOLDER / "phrases").mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
