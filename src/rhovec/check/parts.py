"""What a requirement consists of: the formulae that are judged one by one, and how they are judged.

`p and always (q and always[0,5] r)` has the parts p now, q always, and r always: windows of always
are merged and distributed over `and`, which changes no value. A part's body is judged at every time
of its window, so that a log violates a requirement somewhere, not only as a whole.

Bounds on robustness need formulae in which every atom pulls in one direction only. `CORE` has the
operators of such formulae, and `negative` tells in which direction each node pulls.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..formula import operators as ops
from ..formula.core import Formula, compose
from ..formula.expand import expand
from ..formula.operators import Channel, Row
from ..formula.windows import Span, span_of

CORE = frozenset({
    *ops.COMPARISONS, ops.TRUE, ops.FALSE, ops.NOT, ops.AND, ops.OR, ops.IMPLIES, ops.ALWAYS,
    ops.EVENTUALLY, ops.ONCE, ops.HISTORICALLY, ops.UNTIL, ops.RELEASE, ops.SINCE,
})  # fmt: skip

# Signals that `so_far` adds; no variable can have such a name. AFTER is positive from the end of the log
# on. INSIDE is positive before it, and unknown from then on.
AFTER: Channel = (("\nafter", 1.0),)
INSIDE: Channel = (("\ninside", 1.0),)
_AFTER, _INSIDE = ((ops.GE, 0, 0, channel, 0.0) for channel in (AFTER, INSIDE))


class Part(NamedTuple):
    """`always[lo,hi] body`; a body that is judged only now has the window [0,0]."""

    body: Formula
    lo: int
    hi: int  # or UNBOUNDED

    @property
    def formula(self) -> Formula:
        if self.lo == self.hi == 0:
            return self.body
        return compose(ops.ALWAYS, self.body, lo=self.lo, hi=self.hi)


class Response(NamedTuple):
    """`trigger -> eventually[near,...] answer`; without eventually or until there is no answer."""

    trigger: Formula
    answer: Formula | None
    near: int


def parts(phi: Formula) -> list[Part]:
    """The parts whose conjunction is phi, in the order of the text."""
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    found = []
    todo = [(len(rows) - 1, False, Span(ops.ALWAYS, 0, 0))]  # node, whether negated, window
    while todo:
        node, negated, span = todo.pop()
        op, lo, hi, channel, threshold = rows[node]
        if op == ops.NOT:
            todo.append((node - 1, not negated, span))
        elif op == ops.AND if not negated else op in (ops.OR, ops.IMPLIES):
            left = node - 1 - sizes[node - 1]
            todo.append((node - 1, negated, span))
            todo.append((left, negated and op != ops.IMPLIES, span))
        elif window := _longer(span, ops.NEGATED.get(op, op) if negated else op, lo, hi):
            todo.append((node - 1, negated, window))
        else:
            body = phi.subformula(node)
            if negated and channel is not None:
                body = Formula.from_rows([(ops.NEGATED[op], 0, 0, channel, threshold)])
            elif negated:
                body = ~body
            last = ops.UNBOUNDED if math.isinf(span.last) else int(span.last)
            found.append(Part(body, int(span.first), last))
    return found


def _longer(span: Span, op: int, lo: int, hi: int) -> Span | None:
    """The window of `span` over an always or a shift; None over all others."""
    inner = span_of(op, lo, hi)
    if inner is None or (inner.kind != ops.ALWAYS and not inner.is_shift):
        return None
    both = span._replace(kind=ops.ALWAYS).then(inner._replace(kind=ops.ALWAYS))
    return both if both is not None and both.first >= 0 else None


def response(body: Formula) -> Response | None:
    """The body as a response, written as `p -> q`, `not p or q` or `q or not p`; otherwise None."""
    op, _, _, _ = body.code[-1].tolist()
    if op not in (ops.IMPLIES, ops.OR):
        return None
    right = body.size - 2
    left = right - int(body.shape()[0][right])
    if op == ops.OR and body.code[left, 0] != ops.NOT:
        left, right = right, left
    if op == ops.OR and body.code[left, 0] != ops.NOT:
        return None
    trigger = body.subformula(left - 1 if op == ops.OR else left)
    found, lo, _, _ = body.code[right].tolist()
    if found not in (ops.EVENTUALLY, ops.UNTIL, ops.NEXT):
        return Response(trigger, None, 0)
    return Response(trigger, body.subformula(right - 1), 1 if found == ops.NEXT else lo)


def core(phi: Formula, origins: list[int] | None = None) -> Formula:
    """phi in the operators of CORE, with the same robustness; `origins` as in `expand`."""
    return expand(phi, CORE, origins)


def negative(phi: Formula) -> list[bool]:
    """Whether each node of a formula in CORE stands under an odd number of negations."""
    sizes, found = phi.shape()[0].tolist(), [False] * phi.size
    for node in range(phi.size - 1, -1, -1):
        op = int(phi.code[node, 0])
        if op not in CORE:
            ops.refuse(op, "a verdict")
        for side, operand in enumerate(operands(phi, node, sizes)):
            flips = op == ops.NOT or (op == ops.IMPLIES and side == 0)
            found[operand] = found[node] != flips
    return found


def operands(phi: Formula, node: int, sizes: list[int]) -> list[int]:
    """The nodes of the operands, left to right."""
    return [node - 1 - sizes[node - 1], node - 1][2 - ops.arity(int(phi.code[node, 0])) :]


def so_far(phi: Formula) -> tuple[Formula, list[int]]:
    """phi with windows that end with the log, and for each of its nodes the one of phi it is made of.

    phi is in CORE. `always[a,inf] p` becomes: the window begins within the log, and p holds from there
    to the end of the log; and the same for what it stands for, release and negated eventually and until.
    """
    rows: list[Row] = []
    origin: list[int] = []
    for node, (row, negated) in enumerate(zip(phi.rows(), negative(phi), strict=True)):
        op, lo, hi, _, _ = row
        endless = (ops.EVENTUALLY, ops.UNTIL) if negated else (ops.ALWAYS, ops.RELEASE)
        if op not in endless or hi != ops.UNBOUNDED:
            rows.append(row)
            origin.append(node)
            continue
        flip = [ops.node(ops.NOT)] * negated
        both, either = (ops.OR, ops.AND) if negated else (ops.AND, ops.OR)
        inner = [_AFTER, *flip, ops.node(either)]
        ends = [_INSIDE, *flip]
        outer = [ops.node(ops.EVENTUALLY, lo, lo), ops.node(both)]
        rows += [*inner, row, *ends, *outer]
        origin += [node - 1] * len(inner) + [node] + [node - 1] * len(ends) + [node] * len(outer)
    return Formula.from_rows(rows, check=False), origin


def reach(phi: Formula) -> tuple[int, int]:
    """How long before the first and after the last sample the nodes of phi may still change."""
    sizes = phi.shape()[0].tolist()
    early, late = [0] * phi.size, [0] * phi.size
    for node, (op, lo, hi, channel, _) in enumerate(phi.rows()):
        below = operands(phi, node, sizes)
        early[node] = max((early[i] for i in below), default=0)
        late[node] = max((late[i] for i in below), default=0)
        if channel is not None:
            lags = [ops.lag_of(variable) for variable, _ in channel]
            early[node], late[node] = max(0, -min(lags)), max(0, *lags)
        elif ops.is_timed(op):
            far = lo if hi == ops.UNBOUNDED else hi
            (late if ops.IS_PAST[op] else early)[node] += far
    return early[-1], late[-1]
