"""The six operators that corpus and models know, and how the others are said by them, exactly.

a -> b is not a or b; a <-> b is (a and b) or (not a and not b); next is eventually[1,1]; true and
false are folded away. Robustness stays as it is, bit for bit. An `<->` doubles its operands, so a
formula that would pass `LARGEST` nodes is refused.
"""

from __future__ import annotations

import numpy as np

from ..errors import FormulaError
from . import operators as ops
from .core import Formula
from .operators import Row
from .programs import Programs
from .simplify import simplify

LARGEST = 100_000  # nodes
REWRITTEN = {ops.TRUE, ops.FALSE, ops.NEXT, ops.IMPLIES, ops.IFF}


def in_fragment(phi: Formula) -> Formula:
    """phi with no operator but always, eventually, until, and, or, not."""
    operators = set(phi.code[:, 0].tolist())
    if operators.isdisjoint(REWRITTEN):
        return phi
    if not operators.isdisjoint((ops.TRUE, ops.FALSE)):
        phi = simplify(phi)
        if phi.code[-1, 0] in (ops.TRUE, ops.FALSE):
            raise FormulaError(
                f"the formula is constantly {phi}: it has no direction, so no vector"
            )
    out: list[Row] = []
    starts: list[int] = []  # where the operands on the stack begin in out
    negation, conjunction, disjunction = (
        (op, 0, 0, None, 0.0) for op in (ops.NOT, ops.AND, ops.OR)
    )
    for row in phi.rows():
        op = row[0]
        if op == ops.NEXT:
            out.append((ops.EVENTUALLY, 1, 1, None, 0.0))
        elif op in (ops.IMPLIES, ops.IFF):
            right = starts.pop()
            a, b = out[starts[-1] : right], out[right:]
            del out[starts[-1] :]
            if op == ops.IFF:
                out += [*a, *b, conjunction]
                a, b = [*a, negation], [*b, negation, conjunction]
                out += [*a, *b, disjunction]
            else:
                out += [*a, negation, *b, disjunction]
            if len(out) > LARGEST:
                raise FormulaError(f"without <-> the formula would have over {LARGEST} nodes")
        else:
            if ops.ARITY[op] == 0:
                starts.append(len(out))
            elif ops.ARITY[op] == 2:
                starts.pop()
            out.append(row)
    return Formula.from_rows(out)


def programs_in_fragment(programs: Programs) -> Programs:
    """Likewise of a batch; formulae that need no rewriting are not looked at one by one."""
    found = np.isin(programs.code[:, 0], list(REWRITTEN))
    if not found.any():
        return programs
    chosen = np.flatnonzero(np.logical_or.reduceat(found, programs.offsets[:-1]))
    rewritten = [in_fragment(phi) for phi in programs.select(chosen).unpack()]
    return programs.replace(chosen, Programs.pack(rewritten))
