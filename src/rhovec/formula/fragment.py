"""The fragment that corpus and models know: six operators, no constants; exactly the same robustness.

It has no past. A past operator is written as a future one where that is exact: traces are held at both
ends, so a step in time passes through every operator, and `always[4,9] (p -> once[0,3] q)` looks at the
same samples as `always[1,6] (eventually[3,3] p -> eventually[0,3] q)`.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import FormulaError
from . import operators as ops
from .core import Formula
from .expand import expand, formulae_outside
from .operators import Row
from .printer import excerpt
from .programs import Programs
from .simplify import simplify
from .windows import Span, shifted_channel, span_of

FRAGMENT = frozenset({
    *ops.COMPARISONS, ops.NOT, ops.ALWAYS, ops.EVENTUALLY, ops.AND, ops.OR, ops.UNTIL
})  # fmt: skip
_WITH_PAST = FRAGMENT | {ops.ONCE, ops.HISTORICALLY, ops.SINCE}


def in_fragment(phi: Formula) -> Formula:
    """phi with no operator but always, eventually, until, and, or, not."""
    given = phi
    has_past = bool(ops.IS_PAST[phi.code[:, 0]].any())
    if has_past or not {ops.TRUE, ops.FALSE}.isdisjoint(phi.code[:, 0].tolist()):
        phi = simplify(phi)
        if phi.code[-1, 0] in (ops.TRUE, ops.FALSE):
            raise FormulaError(
                f"{excerpt(given)} is constantly {phi}, so it has no direction and no vector"
            )
    if has_past or any(map(_is_shifted, phi.channels)):
        rewritten = _without_past(expand(phi, _WITH_PAST))
        if rewritten is None:
            raise FormulaError(
                f"{excerpt(given)} depends on earlier samples, which models cannot read; use "
                "exact signatures: rv.StlKernel(...).signatures(formula)"
            )
        phi = rewritten
    return expand(phi, FRAGMENT)


def programs_in_fragment(programs: Programs) -> Programs:
    """`in_fragment` of each formula of a batch; formulae that are in it already are not unpacked."""
    chosen = formulae_outside(programs, FRAGMENT)
    shifted = [c for c, channel in enumerate(programs.channels) if _is_shifted(channel)]
    if shifted:
        rows = np.isin(programs.code[:, 3], shifted)
        chosen = np.union1d(
            chosen, np.flatnonzero(np.logical_or.reduceat(rows, programs.offsets[:-1]))
        )
    if not len(chosen):
        return programs
    rewritten = [in_fragment(phi) for phi in programs.select(chosen).unpack()]
    return programs.replace(chosen, Programs.pack(rewritten))


def _is_shifted(channel: ops.Channel) -> bool:
    return any(ops.lag_of(variable) for variable, _ in channel)


def _lag(row: Row) -> int:
    """Steps back to the time that an atom is about, if all its terms are about the same one."""
    lags = {ops.lag_of(variable) for variable, _ in row[3] or ()}
    return lags.pop() if len(lags) == 1 else 0


def _without_past(phi: Formula) -> Formula | None:
    """The formula in future operators; None where that is not exact.

    Each subtree is written for some steps ahead of the time that it is about, which the window above
    it makes up for. `ahead` is the least number of steps for which the subtree needs no past.
    """
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    ahead: list[float] = []
    for i, row in enumerate(rows):
        span = span_of(*row[:3])
        if ops.arity(row[0]) == 0:
            ahead.append(_lag(row))
        elif span is not None:
            ahead.append(ahead[i - 1] - span.first)
        elif ops.arity(row[0]) == 1:
            ahead.append(ahead[i - 1])
        else:
            both = max(ahead[i - 1], ahead[i - 1 - sizes[i - 1]])
            ahead.append(math.inf if row[0] == ops.SINCE else both)
    if ahead[-1] > 0:
        return None
    out: list[Row] = []  # from the root on
    todo: list[tuple[int, int]] = [(len(rows) - 1, 0)]  # subtrees, and steps to look ahead
    while todo:
        i, steps = todo.pop()
        op, lo, hi, channel, threshold = rows[i]
        span = span_of(op, lo, hi)
        if channel is not None:
            lag = _lag(rows[i])
            out += _windows(Span(ops.EVENTUALLY, steps - lag, steps - lag))
            out.append((op, lo, hi, shifted_channel(channel, lag), threshold))
        elif span is not None:
            least = int(ahead[i - 1])
            below = 0 if least <= 0 <= span.first + steps else least
            out += _windows(span.moved(steps - below))
            todo.append((i - 1, below))
        else:
            out.append(rows[i])
            todo += [(i - 1 - sizes[i - 1], steps)] * (ops.arity(op) == 2) + [(i - 1, steps)]
    return Formula.from_rows(out[::-1], check=False)


def _windows(span: Span) -> list[Row]:
    return [ops.node(*operator) for operator in reversed(span.operators())]
