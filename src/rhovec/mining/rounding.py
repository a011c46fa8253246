"""Thresholds with few digits that change no prediction on the training traces."""

from __future__ import annotations

import math

import numpy as np

from ..formula import operators as ops
from .cuts import MAX_NUMBER
from .data import Candidate, Data, Scale
from .search import numbers

MIDDLE = 0.1  # share of the gap around a threshold, in its middle, that rounding may use
BEYOND = 0.2  # where nothing is on one side: this many standard deviations of the channel


def rounded(candidate: Candidate, data: Data, scale: Scale) -> Candidate:
    """Each threshold in turn becomes the shortest decimal near the middle of its gap."""
    rows = list(candidate)
    for i, (op, _, _, channel, threshold) in enumerate(rows):
        if channel < 0 or data.flags[channel]:
            continue
        critical = numbers(data, [(tuple(rows), i)], np.float64)[0]
        if op == ops.LE:
            critical = -critical
        critical = critical[np.abs(critical) < MAX_NUMBER]
        below, above = critical[critical < threshold], critical[critical > threshold]
        low = float(below.max()) if len(below) else threshold - BEYOND
        high = float(above.min()) if len(above) else threshold + BEYOND
        middle, half = (low + high) / 2, MIDDLE * (high - low) / 2
        short = shortest(scale.raw(channel, middle - half), scale.raw(channel, middle + half))
        z = (short - float(scale.centre[channel])) / float(scale.scale[channel])
        if low < z < high:
            rows[i] = (op, 0, 0, channel, z)
    return tuple(rows)


def shortest(low: float, high: float) -> float:
    """The number from low to high with the fewest digits; of several the nearest to the middle."""
    middle = (low + high) / 2
    if low <= 0 <= high:
        return 0.0
    top = math.floor(math.log10(max(abs(low), abs(high))))
    for digits in range(17):
        number = (
            float(f"{middle:.{max(0, digits - top)}f}")
            if digits >= top
            else (round(middle / 10 ** (top - digits)) * 10.0 ** (top - digits))
        )
        if low <= number <= high:
            return number
    return middle
