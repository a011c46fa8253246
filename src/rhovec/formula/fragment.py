"""The fragment that corpus and models know: six operators, no constants; exactly the same robustness."""

from __future__ import annotations

from ..errors import FormulaError
from . import operators as ops
from .core import Formula
from .expand import expand, formulae_outside
from .programs import Programs
from .simplify import simplify

FRAGMENT = frozenset({
    *ops.COMPARISONS, ops.NOT, ops.ALWAYS, ops.EVENTUALLY, ops.AND, ops.OR, ops.UNTIL
})  # fmt: skip


def in_fragment(phi: Formula) -> Formula:
    """phi with no operator but always, eventually, until, and, or, not."""
    if not {ops.TRUE, ops.FALSE}.isdisjoint(phi.code[:, 0].tolist()):
        phi = simplify(phi)
        if phi.code[-1, 0] in (ops.TRUE, ops.FALSE):
            raise FormulaError(
                f"the formula is constantly {phi}, so it has no direction and no vector"
            )
    return expand(phi, FRAGMENT)


def programs_in_fragment(programs: Programs) -> Programs:
    """`in_fragment` of each formula of a batch; formulae that are in it already are not unpacked."""
    chosen = formulae_outside(programs, FRAGMENT)
    if not len(chosen):
        return programs
    rewritten = [in_fragment(phi) for phi in programs.select(chosen).unpack()]
    return programs.replace(chosen, Programs.pack(rewritten))
