"""Four systems with textbook models: enough to see requirements hold and fail on traces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..formula import Formula, parse
from ..robustness import robustness, satisfaction


class System(NamedTuple):
    """A system, its requirements in names, units and seconds, and named traces of it."""

    title: str
    dt: float  # seconds per step
    clock: tuple[str, float]  # the unit of time in drawings, and its seconds
    discrete: tuple[str, ...]
    unit: str  # of the variable in the drawing; empty if it has none
    requirements: dict[str, str]
    shown: tuple[str, str, tuple[float, ...]]  # the requirement to draw, its variable, its limits
    traces: dict[str, dict[str, np.ndarray]]  # trace -> variable -> (points,)
    parsed: tuple[Formula, ...] = ()  # the requirements, if they were read elsewhere

    @property
    def formulae(self) -> list[Formula]:
        return list(self.parsed) or [
            parse(t, discrete=self.discrete, dt=self.dt) for t in self.requirements.values()
        ]

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Variable -> (traces, points). Ours are float32, for which the engine is compiled already."""
        names, traces = next(iter(self.traces.values())), self.traces.values()
        kind = np.float64 if self.parsed else np.float32
        return {name: np.array([trace[name] for trace in traces], kind) for name in names}

    def check(self) -> tuple[np.ndarray, np.ndarray]:
        """Robustness and satisfaction, each (requirements, traces)."""
        return robustness(self.formulae, self.columns), satisfaction(self.formulae, self.columns)


def systems() -> list[System]:
    """Four systems; the first trace of each satisfies all requirements, the others violate some."""
    return [
        System(
            "Automatic transmission, every 0.1 s", 0.1, ("s", 1), ("gear",), "rpm",
            {
                "engine below 4750 rpm for 10 s": "always[0,10] rpm < 4750",
                "third gear is kept for 2.5 s": "always[0,27] (gear != 3 and next gear == 3 -> "
                "next always[0,2.5] gear == 3)",
                "70 km/h within 15 s": "eventually[0,15] speed >= 70",
            },
            ("engine below 4750 rpm for 10 s", "rpm", (4750,)),
            {
                "normal": _drive(100, 4200, False),
                "sporty": _drive(120, 5100, False),
                "hunting": _drive(70, 4000, True),
            },
        ),
        System(
            "Blood glucose, every 5 min", 300, ("h", 3600), (), "mg/dL",
            {
                "never below 70": "always glucose >= 70",
                "a high is over within 3 h": "always (glucose > 180 -> "
                "eventually[0,10800] glucose <= 180)",
                "in range from 4 h to 6 h": "always[14400,21600] 70 <= glucose <= 180",
            },
            ("in range from 4 h to 6 h", "glucose", (70, 180)),
            {
                "good dose": _glucose(90, 20),
                "no dose": _glucose(300, 0),
                "overdose": _glucose(60, 90),
            },
        ),
        System(
            "Position control to 1, every 0.01 s", 0.01, ("s", 1), (), "",
            {
                "overshoot at most 10 %": "always y <= 1.1",
                "90 % within 1 s": "eventually[0,1] y >= 0.9",
                "settled from 2 s on": "eventually[0,2] always abs(y - 1) <= 0.05",
            },
            ("settled from 2 s on", "y", (0.95, 1.05)),
            {"damped": _step(0.7), "ringing": _step(0.15), "sluggish": _step(2.5)},
        ),
        System(
            "Mobile robot, every 0.1 s", 0.1, ("s", 1), (), "m",
            {
                "0.5 m clear until the goal": "clearance >= 0.5 until[0,20] "
                "(abs(px - 4) <= 0.2 and abs(py - 3) <= 0.2)",
                "stays in the corridor": "always abs(py - 0.75 * px) <= 1.5",
            },
            ("0.5 m clear until the goal", "clearance", (0.5,)),
            {"detour": _walk(1.2, 4), "straight": _walk(0, 4), "lost": _walk(2, 3)},
        ),
    ]  # fmt: skip


def _drive(top: float, redline: float, hunts: bool) -> dict[str, np.ndarray]:
    t = np.arange(0, 30, 0.1)
    speed = top * (1 - np.exp(-t / 8))
    gear = 1.0 + np.digitize(speed, [25, 50, 75])
    if hunts:
        gear = np.where((gear == 3) & (t % 2 < 1), 2, gear)
    progress = speed / (25 * gear)  # 1 at the speed of the next shift
    return {"speed": speed, "gear": gear, "rpm": 900 + (redline - 900) * progress}


def _glucose(meal: float, insulin: float) -> dict[str, np.ndarray]:
    h = np.arange(0, 8, 1 / 12)
    rise = meal * h * np.exp(1 - h)
    return {"glucose": 110 + rise - insulin * h**2 * np.exp(2 * (1 - h / 2.5)) / 2.5**2}


def _step(damping: float) -> dict[str, np.ndarray]:
    y, v, out = 0.0, 0.0, []
    for _ in range(500):
        out.append(y)
        v += 0.01 * (16 * (1 - y) - 8 * damping * v)
        y += 0.01 * v
    return {"y": np.array(out)}


def _walk(bend: float, goal: float) -> dict[str, np.ndarray]:
    s = np.minimum(np.arange(0, 25, 0.1) / 15, 1)
    px, py = goal * s, 3 * s + bend * np.sin(np.pi * s)
    return {"px": px, "py": py, "clearance": np.hypot(px - 2, py - 1) - 0.4}
