"""`rhovec demo`: the requirements of four systems, checked on a few traces of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from .shared import Line, parse_formulae


class System(NamedTuple):
    """A system, its requirements in names, units and seconds, and named traces of it."""

    title: str
    dt: float  # seconds a step
    discrete: str
    requirements: dict[str, str]
    traces: dict[str, dict[str, Any]]  # trace -> variable -> (points,)


def demo_systems() -> list[System]:
    """Four systems with textbook models: enough to see requirements hold and fail."""
    import numpy as np

    def drive(top: float, redline: float, hunts: bool) -> dict[str, Any]:
        t = np.arange(0, 30, 0.1)
        speed = top * (1 - np.exp(-t / 8))
        gear = 1.0 + np.digitize(speed, [25, 50, 75])
        if hunts:
            gear = np.where((gear == 3) & (t % 2 < 1), 2, gear)
        progress = speed / (25 * gear)  # 1 at the speed of the next shift
        return {"speed": speed, "gear": gear, "rpm": 900 + (redline - 900) * progress}

    def glucose(meal: float, insulin: float) -> dict[str, Any]:
        h = np.arange(0, 8, 1 / 12)
        rise = meal * h * np.exp(1 - h)
        return {"glucose": 110 + rise - insulin * h**2 * np.exp(2 * (1 - h / 2.5)) / 2.5**2}

    def step(damping: float) -> dict[str, Any]:
        y, v, out = 0.0, 0.0, []
        for _ in range(500):
            out.append(y)
            v += 0.01 * (16 * (1 - y) - 8 * damping * v)
            y += 0.01 * v
        return {"y": np.array(out)}

    def walk(bend: float, goal: float) -> dict[str, Any]:
        s = np.minimum(np.arange(0, 25, 0.1) / 15, 1)
        px, py = goal * s, 3 * s + bend * np.sin(np.pi * s)
        return {"px": px, "py": py, "clearance": np.hypot(px - 2, py - 1) - 0.4}

    return [
        System(
            "Automatic transmission, every 0.1 s",
            0.1,
            "gear",
            {
                "engine below 4750 rpm for 10 s": "always[0,10] rpm < 4750",
                "third gear is kept for 2.5 s": "always[0,27] (gear != 3 and next gear == 3 -> "
                "next always[0,2.5] gear == 3)",
                "70 km/h within 15 s": "eventually[0,15] speed >= 70",
            },
            {
                "normal": drive(100, 4200, False),
                "sporty": drive(120, 5100, False),
                "hunting": drive(70, 4000, True),
            },
        ),
        System(
            "Blood glucose in mg/dL, every 300 s",
            300,
            "",
            {
                "never below 70": "always glucose >= 70",
                "a high is over within 3 h": "always (glucose > 180 -> "
                "eventually[0,10800] glucose <= 180)",
                "in range from 4 h to 6 h": "always[14400,21600] 70 <= glucose <= 180",
            },
            {"good dose": glucose(90, 20), "no dose": glucose(300, 0), "overdose": glucose(60, 90)},
        ),
        System(
            "Position control, every 0.01 s",
            0.01,
            "",
            {
                "overshoot at most 10 %": "always y <= 1.1",
                "90 % within 1 s": "eventually[0,1] y >= 0.9",
                "settled from 2 s on": "eventually[0,2] always abs(y - 1) <= 0.05",
            },
            {"damped": step(0.7), "ringing": step(0.15), "sluggish": step(2.5)},
        ),
        System(
            "Mobile robot in m, every 0.1 s",
            0.1,
            "",
            {
                "0.5 m clear until the goal": "clearance >= 0.5 until[0,20] "
                "(abs(px - 4) <= 0.2 and abs(py - 3) <= 0.2)",
                "stays in the corridor": "always abs(py - 0.75 * px) <= 1.5",
            },
            {"detour": walk(1.2, 4), "straight": walk(0, 4), "lost": walk(2, 3)},
        ),
    ]


def demo() -> None:
    """Check the requirements of four systems on a few traces of each."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console, Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from ..robustness import robustness as robustness_of
    from ..robustness import satisfaction as satisfaction_of

    console = Console(highlight=False)
    console.print(
        "Requirements in Signal Temporal Logic, checked on traces. A number is the\n"
        "robustness: how far the trace is from breaking (or meeting) the requirement,\n"
        "in the requirement's own unit. \u2713 it holds, \u2717 it is violated.\n"
    )
    for system in demo_systems():
        table = Table(
            title=system.title,
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            width=min(79, console.width),
        )
        table.add_column("requirement", ratio=1)
        for name in system.traces:
            table.add_column(name, justify="right", min_width=9, no_wrap=True)
        lines = [Line(text, title) for title, text in system.requirements.items()]
        formulae = parse_formulae(lines, system.discrete, dt=system.dt)
        signals = {
            variable: [trace[variable] for trace in system.traces.values()]
            for variable in next(iter(system.traces.values()))
        }
        values = robustness_of(formulae, signals)
        holds = satisfaction_of(formulae, signals)
        for line, row, good in zip(lines, values, holds, strict=True):
            cells = [
                Text(f"{v:+.4g} \u2713", "green") if ok else Text(f"{v:+.4g} \u2717", "bold red")
                for v, ok in zip(row, good, strict=True)
            ]
            formula = Padding(Text(line.text, "dim"), (0, 0, 0, 2))
            table.add_row(Group(Text(line.place), formula), *cells)
        console.print(table)
    console.print("On your own: rhovec robustness 'always[0,10] rpm < 4750' --dt auto -t drive.csv",
                  markup=False)  # fmt: skip
