"""`rhovec parse`: check formulae, and show what they are read as."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import RhovecError, counted
from .inputs import read_schema, standardised
from .shared import READING, JsonLines, Reading, SchemaFile, option

if TYPE_CHECKING:
    from ..formula import Requirement

Tool = Literal["rtamt", "breach"]
MAX_TREE_DEPTH = 200  # the drawing of a tree grows with the square of its depth


def parse(
    reading: Reading,
    schema: SchemaFile = None,
    source: Annotated[
        Tool | None,
        option(
            "--from",
            help="Read the language of this tool, by its meaning; time bounds are in seconds.",
            rich_help_panel=READING,
        ),
    ] = None,
    to: Annotated[
        Tool | None, option("--to", help="Only write what means the same to this tool.")
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Check formulae, and show their canonical form, size and tree; or translate them.

    rhovec parse "G[0,2.5] !(speed > 120 & rpm > 4500)" --dt 0.5

    rhovec parse -F requirements.stl --discrete gear,mode --json

    rhovec parse "req >= 1 until[0:5] ack >= 1" --from rtamt --to breach
    """
    from ..formula.options import exact_step
    from ..formula.printer import bound_text, to_tree
    from ..formula.simplify import simplify

    known = read_schema(schema)
    step = reading.dt if known is None else known.dt
    for i, requirement in enumerate(reading.requirements(known, dialect=source)):
        phi, named = requirement.formula, bool(requirement.id or requirement.title)
        if to is not None and not as_json:
            print(_translated(requirement, to, step))
            continue
        facts: dict[str, Any] = {"id": requirement.id, "title": requirement.title}
        facts |= {"tags": list(requirement.tags), "source": requirement.source if named else ""}
        facts = {name: fact for name, fact in facts.items() if fact}
        facts["formula"] = str(phi)
        if step is not None:
            facts["in_seconds"] = phi.to_text(dt=step)
        if to is not None:
            facts[to] = _translated(requirement, to, step)
        facts["simplified"] = str(simplify(phi))
        if known is not None:
            facts["lowered"] = str(standardised([requirement], known)[0].formula)
        facts["horizon"] = phi.horizon
        if phi.looks_back:
            facts["history"] = phi.history
        facts |= {"depth": phi.depth, "size": phi.size, "variables": list(phi.variables)}
        if as_json:
            print(json.dumps(facts, ensure_ascii=False))
            continue
        if i:
            print()
        for name in ("horizon", "history"):
            if name in facts:
                steps = counted(facts[name], "step")
                seconds = (
                    "" if step is None else f" ({bound_text(facts[name], exact_step(step))} s)"
                )
                facts[name] = steps + seconds
        if phi.only_looks_back:
            facts["history"] += "; at time 0 it reads the first sample only"
        facts["variables"] = ", ".join(phi.variables) or "none"
        deep = phi.depth > MAX_TREE_DEPTH
        facts["tree"] = f"deeper than {MAX_TREE_DEPTH}, not drawn" if deep else to_tree(phi)
        if requirement.tags:
            facts["tags"] = ", ".join(requirement.tags)
        for name, fact in facts.items():
            label = name.replace("_", " ")
            print(f"{label:<12}" + str(fact).replace("\n", "\n" + " " * 12))


def _translated(requirement: Requirement, to: str, step: float | str | None) -> str:
    """The formula for another tool; a refusal names the requirement."""
    try:
        return requirement.formula.to_text(dt=step, dialect=to)
    except RhovecError as error:
        raise RhovecError(f"{requirement.place}: {error}") from None
