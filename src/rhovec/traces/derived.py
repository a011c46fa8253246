"""Derived channels of a log: rates, products and quotients, at its original times."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from ..errors import TraceError, counted
from ..formula.derived import Derived, Node
from ..formula.expressions import Expression, Extremum
from .logs import Channel, Log
from .resampling import filled


def derive(
    log: Log,
    derived: Derived,
    names: Collection[str] | None = None,
    *,
    max_gap: float | None = None,
    hold: Collection[str] = (),
) -> Log:
    """The log with derived channels, those of these names or all.

    A rate is the change since the channel's last sample per second; its first sample takes the rate
    of the first change. A product or quotient has a sample wherever one of its channels does; the
    others are interpolated or held there as `resample` does, and `max_gap` and `hold` are its.
    """
    wanted = _needed(derived, derived.channels if names is None else names)
    if not log.timed and any(derived.channels[name].operation == "rate" for name in wanted):
        raise TraceError(
            f"{log.source}: there are no times, without which there is no rate; name their column "
            "with --time-column"
        )
    channels, notes = dict(log.channels), list(log.notes)
    for name, node in derived.channels.items():
        if name not in wanted:
            continue
        current = replace(log, channels=channels)
        values = _computed(current, node, max_gap, hold)
        infinite = np.isinf(values)
        if infinite.any():
            why = "with a divisor of 0" if node.operation == "/" else "too large for a number"
            notes.append(f"{name}: {counted(int(infinite.sum()), 'sample')} {why} left out")
            values[infinite] = np.nan
        channels[name] = Channel(values, unit=derived.units.get(name))
    return replace(log, channels=channels, notes=tuple(notes))


def _needed(derived: Derived, names: Collection[str]) -> set[str]:
    todo, found = list(names), set()
    while todo:
        name = todo.pop()
        if name in derived.channels and name not in found:
            found.add(name)
            todo += derived.channels[name].names
    return found


def _computed(log: Log, node: Node, max_gap: float | None, hold: Collection[str]) -> np.ndarray:
    names = sorted(node.names)
    for name in names:
        if name not in log.channels:
            raise TraceError(f"{log.source}: there is no channel {name!r} for {node}")
        if log.channels[name].kind == "enumeration":
            raise TraceError(
                f"{log.source}: {name!r} holds names, which {node} cannot calculate with"
            )
    sampled = np.zeros(len(log.times), bool)
    inputs = {}
    for name in names:
        channel = log.channels[name]
        sampled |= ~np.isnan(channel.values)
        holds = channel.kind != "number" or name in hold
        inputs[name], _ = filled(log, channel, log.times, (False, holds), max_gap, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first, *others = (_value(part, inputs, len(log.times)) for part in node.operands)
        if node.operation == "rate":
            values = _rate(log.times, np.where(sampled, first, np.nan))
        elif node.operation == "*":
            values = first * others[0]
        else:
            values = first / others[0]
            values[others[0] == 0] = np.inf  # 0 / 0, too
    return np.where(sampled, values, np.nan)


def _value(value: Expression, inputs: dict[str, np.ndarray], n: int) -> np.ndarray:
    if isinstance(value, Extremum):
        parts = [_value(part, inputs, n) for part in value.parts]
        return np.asarray((np.maximum if value.is_max else np.minimum).reduce(parts))
    total = np.full(n, float(value.constant))
    for term, coefficient in value.terms.items():
        total += float(coefficient) * inputs[str(term)]
    return total


def _rate(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    at = np.flatnonzero(~np.isnan(values))
    rates = np.full(len(values), np.nan)
    if len(at) > 1:
        rates[at[1:]] = np.diff(values[at]) / np.diff(times[at])
        rates[at[0]] = rates[at[1]]
    return rates
