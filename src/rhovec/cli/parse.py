"""`rhovec parse`: check formulae, and show what they are read as."""

from __future__ import annotations

import json
from typing import Any

from .shared import JsonLines, Reading, SchemaFile, read_schema, standardised

MAX_TREE_DEPTH = 200  # the drawing of a tree grows with the square of its depth


def parse(
    reading: Reading,
    schema: SchemaFile = None,
    as_json: JsonLines = False,
) -> None:
    """Check formulae, and show their canonical form, size and tree.

    rhovec parse "G[0,2.5] !(speed > 120 & rpm > 4500)" --dt 0.5

    rhovec parse -F requirements.stl --discrete gear,mode --json
    """
    from ..formula.parser import exact_step
    from ..formula.printer import bound_text, to_tree
    from ..formula.simplify import simplify

    known = read_schema(schema)
    step = reading.dt if known is None else known.dt
    for i, requirement in enumerate(reading.requirements(known)):
        phi, named = requirement.formula, bool(requirement.id or requirement.title)
        facts: dict[str, Any] = {"id": requirement.id, "title": requirement.title}
        facts |= {"tags": list(requirement.tags), "source": requirement.source if named else ""}
        facts = {name: fact for name, fact in facts.items() if fact}
        facts["formula"] = str(phi)
        if step is not None:
            facts["in_seconds"] = phi.to_text(dt=step)
        facts["simplified"] = str(simplify(phi))
        if known is not None:
            facts["lowered"] = str(standardised([requirement], known)[0].formula)
        facts |= {"horizon": phi.horizon, "depth": phi.depth, "size": phi.size}
        facts["variables"] = list(phi.variables)
        if as_json:
            print(json.dumps(facts, ensure_ascii=False))
            continue
        if i:
            print()
        steps = f"{phi.horizon} step{'' if phi.horizon == 1 else 's'}"
        seconds = "" if step is None else f" ({bound_text(phi.horizon, exact_step(step))} s)"
        facts["horizon"] = steps + seconds
        facts["variables"] = ", ".join(phi.variables) or "none"
        deep = phi.depth > MAX_TREE_DEPTH
        facts["tree"] = f"deeper than {MAX_TREE_DEPTH}, not drawn" if deep else to_tree(phi)
        if requirement.tags:
            facts["tags"] = ", ".join(requirement.tags)
        for name, fact in facts.items():
            label = name.replace("_", " ")
            print(f"{label:<12}" + str(fact).replace("\n", "\n" + " " * 12))
