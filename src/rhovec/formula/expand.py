"""Operators rewritten by their expansions, exactly: robustness stays the same, bit for bit.

The table of operators gives an expansion for each operator that others define (`a -> b` is
`not a or b`). Engines and prover work on KNOWN; the others are written out for them here.
An expansion may use an operand twice (`<->`, weak until, rise), so a formula that would grow
past MAX_NODES is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from ..errors import FormulaError
from . import operators as ops
from .core import Formula
from .operators import Row, Step
from .programs import Programs

MAX_NODES = 100_000

# What engines evaluate as it is: primitive operators, and those that are cheaper so than expanded.
KNOWN = frozenset({
    *(op for op, row in enumerate(ops.TABLE) if row.expansion is None),
    ops.NEXT, ops.IMPLIES, ops.IFF,
})  # fmt: skip


def expand(phi: Formula, keep: frozenset[int] = KNOWN, origins: list[int] | None = None) -> Formula:
    """phi with every operator outside of `keep` replaced by its expansion.

    origins: receives, for each node of the result, the node of phi that it comes from.
    """
    if keep.issuperset(phi.code[:, 0].tolist()):
        if origins is not None:
            origins += range(phi.size)
        return phi

    def expansion(op: int, lo: int, hi: int) -> tuple[Step, ...] | None:
        template = ops.TABLE[op].expansion
        if op not in keep and template is None:
            raise FormulaError(f"{ops.NAMES[op]} cannot be expressed by other operators")
        return None if op in keep else template

    return rewrite(phi, expansion, origins)


def expand_programs(programs: Programs) -> Programs:
    """The batch with every operator that engines do not know replaced by its expansion.

    Channels keep their numbers, and formulae that need no change are not unpacked.
    """
    chosen = formulae_outside(programs, KNOWN)
    if not len(chosen):
        return programs
    expanded = [expand(phi) for phi in programs.select(chosen).unpack()]
    return programs.replace(chosen, Programs.pack(expanded))


@cache
def _outside(keep: frozenset[int]) -> np.ndarray:
    return np.array([op not in keep for op in range(len(ops.TABLE))])


def formulae_outside(programs: Programs, keep: frozenset[int]) -> np.ndarray:
    """Indices of the formulae with an operator outside of `keep`."""
    found = _outside(keep)[programs.code[:, 0]]
    if not found.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(np.logical_or.reduceat(found, programs.offsets[:-1]))


def rewrite(
    phi: Formula,
    template_of: Callable[[int, int, int], tuple[Step, ...] | None],
    origins: list[int] | None = None,
) -> Formula:
    """phi with each node written as the template of its operator and bounds says; None keeps it.

    origins: receives, for each node of the result, the node of phi that it comes from.
    """
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    out: list[Row] = []
    limit = MAX_NODES + 8 * len(rows)  # an expansion that uses each operand once stays below it
    # Subtrees to expand, and rows to write with where they come from.
    todo: list[int | tuple[Row, int]] = [len(rows) - 1]
    while todo:
        item = todo.pop()
        if not isinstance(item, int):
            row, origin = item
            out.append(row)
            if origins is not None:
                origins.append(origin)
            if len(out) > limit:
                raise FormulaError(
                    f"written out, the formula would have over {MAX_NODES:,} nodes: `<->`, "
                    "`weak_until`, `rise` and `fall` use an operand twice, and these are nested too deep"
                )
            continue
        op, lo, hi, _, _ = row = rows[item]
        operands = {"b": item - 1}
        operands["a"] = item - 1 - sizes[item - 1] if ops.arity(op) == 2 else item - 1
        template = template_of(op, lo, hi)
        if template is None:
            todo.append((row, item))
            todo += [operands[name] for name in ("b", "a")[2 - ops.arity(op) :]]
        else:
            bounds: dict[int | str, int] = {"lo": lo, "hi": hi}
            for part in reversed(template):
                if isinstance(part, str):
                    todo.append(operands[part])
                else:
                    inner, left, right = part
                    node = ops.node(inner, bounds.get(left, left), bounds.get(right, right))  # type: ignore[arg-type]
                    todo.append((node, item))
    return Formula.from_rows(out, check=False)
