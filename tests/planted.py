"""Logs with planted violations, whose truth is known: which requirement, from when to when, by how much.

Signals are piecewise linear (numbers) or constant (flags, enumerations), and every knot is sampled, so
that what stands between two samples is known, too. Files differ in length, separator, decimal point,
layout, unit of time, start, jitter, rates of channels, missing cells and gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

REQUIREMENTS = """\
SPEED "Speed limit":            always speed <= 120
BRAKE "Pressure after pedal":   always (brake -> eventually[0,2] pressure >= 20)
REVERSE "Slow in reverse":      always (gear == "R" -> speed <= 10)
HEAT "No fast heating":         always rate(temp) <= 2
POWER "Limited power":          always torque * speed <= 20000
"""
DT = 0.1  # of the grid
MAX_GAP = 1.0
NOISE = 6  # columns that no requirement uses
KINDS = ("SPEED", "BRAKE", "REVERSE", "HEAT", "POWER", "spike", "open", "none")
GEARS = ("P", "D", "N")


class Planted(NamedTuple):
    """What a requirement must be found to be, and where."""

    requirement: str
    outcome: str  # "violated", "open", or "spike": violated between two grid points only
    start: float  # seconds
    end: float
    margin: float  # by how much; of an open obligation 0


class Signal(NamedTuple):
    knots: np.ndarray
    values: np.ndarray
    holds: bool = False  # constant between knots, not linear

    def at(self, times: np.ndarray) -> np.ndarray:
        if not self.holds:
            return np.interp(times, self.knots, self.values)
        place = np.searchsorted(self.knots, times + 1e-9, side="right") - 1
        return self.values[np.maximum(place, 0)]


@dataclass
class Truth:
    """A log that was written, and what is true of it."""

    name: str
    path: Path
    times: np.ndarray  # of the rows
    signals: dict[str, Signal]
    sampled: dict[str, np.ndarray]  # which rows have a sample of the channel
    labels: tuple[str, ...]  # of the codes of `gear`
    gap: tuple[float, float] | None  # between two rows
    planted: list[Planted] = field(default_factory=list)


def make_logs(folder: Path, n: int, seed: int = 0, rows: int = 300) -> list[Truth]:
    """Write n logs with about as many rows each."""
    return [make_log(folder, i, np.random.default_rng([seed, i]), rows) for i in range(n)]


def make_log(folder: Path, number: int, rng: np.random.Generator, rows: int) -> Truth:
    """Write a log. What is planted, layout and separator follow from its number."""
    kind = KINDS[number % len(KINDS)]
    start = float(rng.choice([0.0, 12.5, 86_400.0]))
    duration = rows * DT * float(rng.uniform(0.7, 1.3))
    end = start + round(duration, 3)
    a = start + round(float(rng.uniform(0.3, 0.4)) * duration, 3)
    b = a + round(float(rng.uniform(1, 3)), 3)
    margin = round(float(rng.uniform(0.5, 5)), 3)
    planted = []

    def line(low: float, high: float, *middle: tuple[float, float]) -> Signal:
        """Random values, but for those in the middle."""
        calm = [(start, (low + high) / 2), *((t, float(rng.uniform(low, high))) for t in ends)]
        points = sorted([*calm, *middle])
        return Signal(*np.array(points).T)

    ends = [start + 0.1 * duration, start + 0.2 * duration, start + 0.8 * duration, end]
    quiet = [(a - 1, 50.0), (b + 1, 50.0)]
    speed = line(30, 90, *quiet)
    torque = line(20, 100, (a - 1, 50.0), (b + 1, 50.0))
    pressure = line(4, 6)
    temp = Signal(np.array([start, end]), np.array([20.0, 20 + 0.5 * duration]))
    brake = Signal(np.array([start]), np.array([0.0]), holds=True)
    changes = np.array([start, start + 0.15 * duration, start + 0.9 * duration])
    gear = Signal(changes, np.array([0.0, 1.0, 2.0]), holds=True)
    labels: tuple[str, ...] = GEARS
    if kind == "SPEED":
        top = 120 + margin
        speed = line(30, 90, *quiet, (a, 120), (a + 0.3, top), (b - 0.3, top), (b, 120))
        planted = [Planted("SPEED", "violated", a, b, margin)]
        torque = line(20, 90)
    elif kind == "spike":
        grid = start + DT * round((a - start) / DT)
        a, b = grid + 0.2 * DT, grid + 0.4 * DT
        middle = (a + b) / 2
        speed = line(30, 90, (a - 1, 50), (a, 50), (middle, 120 + margin), (b, 50), (b + 1, 50))
        planted = [Planted("SPEED", "spike", middle, middle, margin)]
        torque = line(20, 90)
    elif kind == "BRAKE":
        brake = Signal(np.array([start, a, b]), np.array([0.0, 1, 0]), holds=True)
        pressure = line(4, 6, (a - 1, 5), (b + 3, 5))
        planted = [Planted("BRAKE", "violated", a, b, 15.0)]
    elif kind == "open":
        a = round(end - 1, 3)
        brake = Signal(np.array([start, a]), np.array([0.0, 1]), holds=True)
        planted = [Planted("BRAKE", "open", a, end, 0.0)]
    elif kind == "REVERSE":
        gear = Signal(np.array([start, a, b]), np.array([0.0, 1, 0]), holds=True)
        labels = ("D", "R")
        speed = line(30, 90, (a - 1, 10 + margin), (b + 1, 10 + margin))
        planted = [Planted("REVERSE", "violated", a, b, margin)]
    elif kind == "HEAT":
        rise = np.array([0, 0.5 * (a - start), 0, 0.5 * (end - b)])
        rise[2] = (2 + margin) * (b - a)
        temp = Signal(np.array([start, a, b, end]), 20 + np.cumsum(rise))
        planted = [Planted("HEAT", "violated", a, b, margin)]
    elif kind == "POWER":
        force = round((20_000 + 100 * margin) / 50, 6)
        peak = [(a, 50), (a + 0.1, force), (b, force), (b + 0.1, 50)]
        torque = line(20, 100, (a - 1, 50), *peak, (b + 1, 50))
        rise = 0.1 * (400 - 50) / (force - 50)  # how long it takes to the limit
        planted = [Planted("POWER", "violated", a + rise, b + 0.1 - rise, force * 50 - 20_000)]
    signals = {"speed": speed, "pressure": pressure, "temp": temp, "torque": torque,
               "brake": brake, "gear": gear}  # fmt: skip

    knots = np.unique(np.concatenate([s.knots for s in signals.values()]))
    knots = knots[(knots >= start) & (knots <= end)]
    jitter = float(rng.choice([0, 0.02, 0.3])) * DT
    even = np.arange(start, end, DT)
    even = np.round(even + rng.uniform(-jitter, jitter, len(even)), 6)
    times = np.unique(np.concatenate([even[(even > start) & (even < end)], knots]))
    gap = None
    if number % 3 == 0 and kind != "spike":
        after = start + 0.6 * duration
        inside = (times > after) & (times < after + 0.05 * duration + MAX_GAP)
        inside &= ~np.isin(times, knots)
        times = times[~inside]
        far = np.flatnonzero(np.diff(times) > MAX_GAP)
        gap = (float(times[far[0]]), float(times[far[0] + 1])) if len(far) else None
    sampled = {}
    for name, signal in signals.items():
        every = int(rng.choice([1, 1, 2, 5])) if number % 2 else 1  # the channel's own rate
        row = np.arange(len(times)) % every == 0
        if number % 10 == 0:
            row &= rng.uniform(size=len(times)) > 0.03
        sampled[name] = row | np.isin(times, signal.knots) | np.isin(times, (start, end))
        if gap:
            sampled[name] |= np.isin(times, gap)
    if gap:  # what is not violated elsewhere is unknown there
        decided = {one.requirement for one in planted}
        planted += [Planted(name, "open", *gap, 0.0) for name in KINDS[:5] if name not in decided]
    truth = Truth("", folder, times, signals, sampled, labels, gap, planted)
    _write(truth, folder, number, rng)
    return truth


def _write(truth: Truth, folder: Path, number: int, rng: np.random.Generator) -> None:
    separator, decimal = [(",", "."), (";", ","), ("\t", "."), ("|", "."), (";", ".")][number % 5]
    unit, factor = [("s", 1), ("ms", 1000)][number % 2]
    opened, closed = ["()", "[]"][number % 2]
    words = [("true", "false"), ("on", "off"), ("1", "0"), ("Yes", "No")][number % 4]

    def shown(name: str, value: float) -> str:
        if name == "gear":
            return truth.labels[int(value)]
        if name == "brake":
            return words[int(value == 0)]
        return repr(float(value)).replace(".", decimal)

    moments = [repr(float(t * factor)).replace(".", decimal) for t in truth.times]
    columns = {
        name: [
            shown(name, value) if here else ""
            for value, here in zip(signal.at(truth.times), truth.sampled[name], strict=True)
        ]
        for name, signal in truth.signals.items()
    }
    heads = {"speed": f"speed {opened}km/h{closed}", "torque": f"torque{opened}Nm{closed}"}
    if number % 7 == 6:
        header = [f"Time {opened}{unit}{closed}", "signal", "value"]
        rows = [
            [moment, name, cell]
            for i, moment in enumerate(moments)
            for name, cells in columns.items()
            if (cell := cells[i])
        ]
    else:
        header = [f"Time {opened}{unit}{closed}", *(heads.get(name, name) for name in columns)]
        header += [f"noise {i}" for i in range(NOISE)]
        odd = ["", "?", "9.9.9", "n/a", "x"]
        rows = [
            [moment, *(cells[i] for cells in columns.values()), *rng.choice(odd, NOISE)]
            for i, moment in enumerate(moments)
        ]
    truth.name = f"run{number}"
    truth.path = folder / f"run{number}{'.tsv' if separator == chr(9) else '.csv'}"
    end = "\r\n" if number % 4 == 1 else "\n"
    lines = [separator.join(row) for row in [header, *rows]]
    mark = "\ufeff" if number % 6 == 5 else ""
    truth.path.write_bytes((mark + end.join(lines) + end).encode())
