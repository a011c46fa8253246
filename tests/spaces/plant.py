"""A small car, for spaces: channels of different units, a gear and a flag; and formulae about it."""

from __future__ import annotations

import numpy as np

NAMES = ("speed", "rpm", "gear", "belt")
DT = 0.5
OPTIONS = {"dt": DT, "discrete": ["gear"], "units": {"speed": "km/h"}}
TEXTS = [
    "always[0,5] speed < 90",
    "eventually (gear == 3 and rpm > 2500)",
    "always (belt >= 1 -> eventually[0,3] rpm < 3000)",
    "speed < 70 until[0,10] gear >= 3",
    "always[0,10] speed - 0.02 * rpm > -20",
]


def drives(n: int = 120, points: int = 30, seed: int = 0) -> np.ndarray:
    """(n, 4, points) float64."""
    rng = np.random.default_rng(seed)
    pedal = rng.uniform(0.2, 1, (n, 1)) + np.cumsum(rng.normal(0, 0.1, (n, points)), axis=1)
    speed = 60 + np.cumsum(4 * pedal, axis=1) - 2 * np.arange(points)
    gear = np.clip(np.floor(speed / 30) + 1, 1, 5)
    rpm = 900 + 80 * speed / gear + 300 * pedal
    belt = (np.arange(points) >= rng.integers(0, points, (n, 1))).astype(float)
    return np.stack([speed, rpm, gear, belt], axis=1)
