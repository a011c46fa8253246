"""Published requirements of real systems, each with its source, and one schema per system.

The data is in requirements.toml. The normal range of a channel there is read as its mean plus or minus
two standard deviations. `lowered` is a requirement over x_0, x_1, ... in standardised units, for
models and for kernels on the base measure. Channels are independent there, even if they share a
variable as `y2 - y1` and `y3 - y2` do, and x_0 of one system is not x_0 of another: between systems,
only the form of lowered formulae is compared.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from ..formula import Formula, Schema
from ..formula import operators as ops
from ..formula.schema import SchemaChannel, SharedVariableWarning

__all__ = ["Requirement", "Source", "System", "requirements", "schemas"]

DEVIATIONS = 2  # standard deviations from the middle of a channel's range to its ends
POINTS = 100  # of the traces that models are trained on
_FRACTION = re.compile(r"\[[^\]]*\d\.\d")  # a time bound that is not a whole number of seconds


@dataclass(frozen=True)
class Source:
    """Where requirements were published, and the public text that their numbers were checked against."""

    work: str
    authors: str
    year: int
    where: str


@dataclass(frozen=True)
class System:
    """What requirements are about. Vectors are comparable only within a system: it has one schema."""

    name: str
    title: str
    domain: str
    schema: Schema


@dataclass(frozen=True)
class Requirement:
    """One requirement: `text` is in names, units and seconds, `formula` counts sampling steps."""

    id: str
    title: str
    system: System
    text: str
    source: Source
    label: str  # what the source calls it

    @property
    def domain(self) -> str:
        return self.system.domain

    @cached_property
    def formula(self) -> Formula:
        return self.system.schema.parse(self.text)

    @cached_property
    def lowered(self) -> Formula:
        """The formula over x_0, x_1, ...; without the warning of shared variables (see the module)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SharedVariableWarning)
            return self.system.schema.lower(self.formula)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Domain, system, and features of the formula."""
        operators = set(self.formula.code[:, 0].tolist())
        made_of = {
            "abs": "abs(" in self.text,
            "equality": "==" in self.text or "!=" in self.text,
            "arithmetic": any(len(channel) > 1 for channel in self.formula.channels),
            "implication": ops.IMPLIES in operators,
            "next": ops.NEXT in operators,
            "until": ops.UNTIL in operators,
            "unbounded": bool((self.formula.code[:, 2] == ops.UNBOUNDED).any()),
            "fractional time": _FRACTION.search(self.text) is not None,
            "long horizon": self.formula.horizon >= POINTS,
        }
        return (self.domain, self.system.name, *(tag for tag, holds in made_of.items() if holds))


@cache
def requirements() -> tuple[Requirement, ...]:
    """All requirements, system by system."""
    data, systems = _data(), _systems()
    sources = {key: Source(**fields) for key, fields in data["source"].items()}
    return tuple(
        Requirement(
            id=entry["id"],
            title=entry["title"],
            system=systems[entry["system"]],
            text=entry["formula"].strip(),
            source=sources[entry["source"]],
            label=entry["label"],
        )
        for entry in data["requirement"]
    )


def schemas() -> dict[str, Schema]:
    """The schemas of all systems, by name."""
    return {name: system.schema for name, system in _systems().items()}


@cache
def _systems() -> dict[str, System]:
    systems = {}
    for name, entry in _data()["system"].items():
        channels = tuple(_channel(expression, **c) for expression, c in entry["channels"].items())
        schema = Schema(channels, dt=entry["dt"], tolerance=entry.get("tolerance"))
        systems[name] = System(name, entry["title"], entry["domain"], schema)
    return systems


def _channel(
    expression: str, *, range: tuple[float, float], unit: str = "", discrete: bool = False
) -> SchemaChannel:
    low, high = range
    std = (high - low) / (2 * DEVIATIONS)
    return SchemaChannel(expression, (low + high) / 2, std, unit, discrete)


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(files(__name__).joinpath("requirements.toml").read_text("utf-8"))
