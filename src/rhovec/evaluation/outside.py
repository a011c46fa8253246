"""The error to expect outside the training range of an encoder, measured on held-out formulae.

Each sort changes test families in one respect: thresholds or bounds are multiplied, formulae joined or
nested deeper, or more channels used. Bounds beyond the last point of a trace make no difference to the
teacher, so they cost nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..corpus.families import Recipe, draw_families, find_families
from ..formula import operators as ops
from ..formula.parser import parse
from ..formula.programs import Programs
from ..kernel import Teacher
from .agreement import Embed, matrices
from .metrics import alignment, mean_error

WRAPPED = "always[0,1] eventually[0,1] " * 6


def outside(
    embed: Embed, teacher: Teacher, channels: int = 8, families: int = 512, seed: int = 0
) -> list[dict[str, Any]]:
    """A row per sort: measure, n, value (mean error), alignment, and how far the formulae go."""
    rows = []
    for name, programs in _sorts(channels, families, seed):
        formulae = programs.unpack()
        if len(formulae) < 2:
            continue  # of so few families none is large enough
        kernel, similarity = matrices(teacher, embed, formulae)
        rows.append({
            "claim": "outside", "measure": name, "n": len(formulae),
            "value": mean_error(kernel, similarity), "alignment": alignment(kernel, similarity),
            "largest_threshold": float(np.abs(programs.thresholds).max()),
            "largest_bound": int(programs.code[:, 2].max()),
            "largest_size": int(np.diff(programs.offsets).max()),
            "largest_depth": max(phi.depth for phi in formulae),
        })  # fmt: skip
    return rows


def _sorts(channels: int, families: int, seed: int) -> Iterator[tuple[str, Programs]]:
    def drawn(**changes: Any) -> Programs:
        recipe = Recipe(seed=seed, family_size=1, channels=min(3, channels))
        recipe = replace(recipe, **changes)
        return draw_families(recipe, find_families(recipe, 0, families, "test")).programs

    inside = drawn()
    yield "inside", inside
    yield f"all {channels} channels", drawn(channels=channels)
    for factor in (4, 16, 1000, 1000000):
        yield f"thresholds x {factor}", replace(inside, thresholds=inside.thresholds * factor)
    for factor in (2, 10):
        yield f"bounds x {factor}", _with_bounds(inside, lambda b, f=factor: b * f)  # type: ignore[misc]
    rewritten = drawn(full_depth=True, shares=(0.0, 1.0, 0.0, 0.0))
    large = [phi for phi in rewritten.unpack() if phi.size > 32]
    yield "33 to 64 nodes", Programs.pack(large)
    pairs = zip(large[::2], large[1::2], strict=False)
    yield "65 to 129 nodes", Programs.pack([a & b for a, b in pairs])
    deep = [parse(f"{WRAPPED} ( {phi} )") for phi in inside.unpack()]
    yield "12 deeper", Programs.pack(deep)


def _with_bounds(programs: Programs, change: Callable[[np.ndarray], np.ndarray]) -> Programs:
    code = programs.code.copy()
    timed = np.isin(code[:, 0], (ops.ALWAYS, ops.EVENTUALLY, ops.UNTIL))
    code[timed, 1] = change(code[timed, 1])
    bounded = timed & (code[:, 2] >= 0)
    code[bounded, 2] = change(code[bounded, 2])
    return replace(programs, code=code)
