"""Derived channels: products and quotients of signals, and rates, which no formula has as such.

A formula's atoms are linear. Where logs are read, `parse(..., derived=Derived())` puts a variable in
the place of anything else, and notes here how its channel is computed from others, once per log and at
the original times (`traces/derived.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from .expressions import (
    Expression,
    ExpressionError,
    Extremum,
    Linear,
    Quantity,
    lone_variable,
    names_of,
    variable,
)
from .lexer import is_bare, quoted
from .operators import Shifted
from .units import require_one_unit

Operation = Literal["rate", "*", "/"]
_NEWTON_METRE = re.compile(r"\b([kM]?N)[*·]m\b")  # of a channel, a torque rather than an energy


class Node(NamedTuple):
    """How a channel is computed."""

    operation: Operation
    operands: tuple[Expression, ...]

    @property
    def names(self) -> set[str]:
        return set().union(*map(names_of, self.operands))

    def __str__(self) -> str:
        if self.operation == "rate":
            return f"rate({_text(self.operands[0])})"
        return f" {self.operation} ".join(_text(part, inner=True) for part in self.operands)


@dataclass
class Derived:
    """The derived channels of formulae that are being parsed, by name, in order of computation."""

    channels: dict[str, Node] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    def add(
        self, operation: Operation, operands: tuple[Expression, ...], units: Mapping[str, str]
    ) -> Expression:
        """A variable in the place of a product, quotient or rate."""
        for part in operands:
            _require_plain(part)
            require_one_unit(part, units)
        node = Node(operation, operands)
        name = str(node)
        self.channels[name] = node
        unit = _unit(operation, [_unit_of(part, units) for part in operands])
        if unit:
            self.units[name] = unit
        return variable(name)

    def rename(self, value: Expression, name: str) -> Expression:
        """What a definition stands for; a derived channel takes its name."""
        old = lone_variable(value)
        if not isinstance(old, str) or old not in self.channels or name in self.channels[old].names:
            return value
        self.channels[name] = self.channels[old]
        if old in self.units:
            self.units[name] = self.units[old]
        return variable(name)

    def inputs(self, names: Collection[str]) -> set[str]:
        """The channels that a log must have so that it has those of these names."""
        todo, found = list(names), set()
        while todo:
            name = todo.pop()
            if name in self.channels and name not in found:
                todo += self.channels[name].names
            found.add(name)
        return found - self.channels.keys()


def _require_plain(value: Expression) -> None:
    for part in value.parts if isinstance(value, Extremum) else ():
        _require_plain(part)
    for term in value.terms if isinstance(value, Linear) else ():
        if isinstance(term, Shifted):
            raise ExpressionError(
                "prev and next cannot stand inside a product, a quotient or a rate"
            )
        if isinstance(term, Quantity):
            raise ExpressionError("inside a product, a quotient or a rate, numbers have no unit")


def _text(value: Expression, inner: bool = False) -> str:
    """The expression as one writes it; inner: in parentheses if it takes them."""
    if isinstance(value, Extremum):
        return f"{'max' if value.is_max else 'min'}({', '.join(map(_text, value.parts))})"
    parts = []
    for name, c in value.terms.items():
        shown = str(name) if is_bare(str(name)) else quoted(str(name))
        parts.append(shown if c == 1 else f"{c} * {shown}")
    if value.constant or not parts:
        parts.append(str(value.constant))
    text = " + ".join(parts)
    return f"({text})" if inner and (len(parts) > 1 or "*" in text) else text


def _unit_of(value: Expression, units: Mapping[str, str]) -> str | None:
    """The unit that all variables share; empty for a number."""
    found = {units.get(name) for name in names_of(value)}
    if not found:
        return ""
    return found.pop() if len(found) == 1 else None


def _unit(operation: Operation, units: list[str | None]) -> str | None:
    if None in units:
        return None
    if operation == "rate":
        return f"{units[0]}/s"
    first, second = (_NEWTON_METRE.sub(r"\1m", unit or "") for unit in units)
    if operation == "*":
        return "*".join(filter(None, (first, second))).replace("*1/", "/") or None
    if not second:
        return first or None
    return f"{first}/{second}" if first and second.isalpha() else None
