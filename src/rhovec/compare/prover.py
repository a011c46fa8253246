"""Proofs that one formula entails another, at every time of every trace.

Formulae are stored as literals, each distinct node once. Steps in time are pushed down to windows and
atoms, so that `next prev p` is p, and past and future windows are spans around t. The question whether
a literal entails another is answered by rules that reduce it to questions about smaller pairs:
thresholds, windows, and/or, until. Where these fail, a few steps of time are unrolled, and all cases
are told apart (tableau.py). All rules are sound, and the set of them is far from complete: "not proved"
says nothing.

Operators that others define (release, weak until, prev) are expanded first; an operator that no rule
speaks of is refused, never taken for another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..errors import FormulaError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.expand import expand
from ..formula.operators import Channel
from ..formula.simplify import simplify
from ..formula.windows import Span, shifted_channel, span_of

NOW = Span(ops.ALWAYS, 0, 0)
# On a trace, both formulae hold, or only a, or only b, or neither.
BOTH, ONLY_A, ONLY_B, NEITHER = range(4)

MAX_LOOKS = 20_000  # at pairs of literals that a proof may take, beside a few for each node
# Nodes are stored as one of these; every other operator is the negation of one of them.
_STORED = (ops.GE, ops.GT, ops.TRUE, ops.AND, ops.ALWAYS, ops.UNTIL, ops.SINCE, ops.IFF)
_NEGATION_OF = {
    ops.LE: ops.GT, ops.LT: ops.GE, ops.FALSE: ops.TRUE, ops.OR: ops.AND, ops.IMPLIES: ops.AND,
}  # fmt: skip
WINDOWS = (ops.ALWAYS, ops.EVENTUALLY)
UNTILS = (ops.UNTIL, ops.SINCE)


def impossible_cases(a: Formula, b: Formula, cases: Iterable[int] = range(4)) -> set[int]:
    """Which of these cases (BOTH, ONLY_A, ONLY_B, NEITHER) are proved to occur on no trace."""
    from .tableau import refuted

    a, b = expand(a), expand(b)
    prover = Prover()
    # As written, formulae that differ in a few places have the same shape; simplified, formulae may
    # have the same shape although they were written differently.
    simple = (prover.add(expand(simplify(a))), prover.add(expand(simplify(b))))
    pairs = {(prover.add(a), prover.add(b)), simple}
    budget = MAX_LOOKS + 2 * (a.size + b.size)
    signs = {BOTH: (0, 0), ONLY_A: (0, 1), ONLY_B: (1, 0), NEITHER: (1, 1)}
    return {
        case
        for case in cases
        if any(prover.entails(p ^ signs[case][0], q ^ signs[case][1] ^ 1, budget) for p, q in pairs)
        or refuted(prover, (simple[0] ^ signs[case][0], simple[1] ^ signs[case][1]))
    }


class Node(NamedTuple):
    """A stored node. `span` is the window of always, relative to t, and that of the right operand of
    until and since, counted away from t."""

    op: int  # one of _STORED; in a view also OR, EVENTUALLY and NOT
    span: Span = NOW
    channel: Channel | None = None
    threshold: float = 0.0
    operands: tuple[int, ...] = ()  # literals


Pair = tuple[int, int]  # literals p and q of the question whether p entails q


class Prover:
    """Literals, and which of them entail which.

    A literal is twice the number of a node, plus one if it is negated, so `^ 1` negates it.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.ids: dict[Node, int] = {}
        self.bases: list[float] = []  # of each node: the first time that it looks at, or inf
        self.views: dict[int, Node] = {}
        self.shifts: dict[tuple[int, int], int] = {}
        self.known: dict[Pair, bool] = {}

    def add(self, phi: Formula) -> int:
        """The literal of a formula."""
        rows, sizes = phi.rows(), phi.shape()[0].tolist()
        spans = [span_of(*row[:3]) for row in rows]
        moves = [0] * len(rows)  # the sum of the steps above a node, up to the next window
        for i in range(len(rows) - 1, -1, -1):
            span, below = spans[i], moves[i]
            if span is not None:
                below = below + int(span.first) if span.is_shift else 0
            if ops.arity(rows[i][0]) >= 1:
                moves[i - 1] = below
            if ops.arity(rows[i][0]) == 2:
                moves[i - 1 - sizes[i - 1]] = below
        stack: list[int] = []
        for (op, lo, hi, channel, threshold), span, move in zip(rows, spans, moves, strict=True):
            first = len(stack) - ops.arity(op)
            operands = tuple(stack[first:])
            del stack[first:]
            if channel is not None:
                stack.append(self.atom(op, shifted_channel(channel, move), threshold))
            elif span is None:
                stack.append(self.literal(op, lo, hi, operands))
            elif span.is_shift:
                stack += operands
            else:
                stack.append(self.window(span.moved(move), operands[0]))
        return stack[0]

    def atom(self, op: int, channel: Channel, threshold: float) -> int:
        negate = op in _NEGATION_OF
        base = min(-ops.lag_of(variable) for variable, _ in channel)
        node = Node(_NEGATION_OF.get(op, op), NOW, channel, threshold)
        return self.store(node, base) + negate

    def window(self, span: Span, operand: int) -> int:
        """The literal of a span over a literal, with an operand whose first time is 0."""
        if span.is_shift:
            return self.shift(operand, int(span.first))
        negate = span.kind == ops.EVENTUALLY
        operand ^= negate
        span = Span(ops.ALWAYS, *span[1:])
        base = self.bases[operand >> 1]
        if math.isfinite(base):
            operand, span = self.shift(operand, -int(base)), span.moved(int(base))
        inner = self.view(operand)
        if inner.op == ops.ALWAYS:
            span = Span(ops.ALWAYS, span.first + inner.span.first, span.last + inner.span.last)
            operand = inner.operands[0]
        ends = [bound for bound in span[1:] if math.isfinite(bound)]
        return (
            self.store(Node(ops.ALWAYS, span, operands=(operand,)), min(ends, default=math.inf))
            + negate
        )

    def literal(self, op: int, lo: int, hi: int, operands: tuple[int, ...]) -> int:
        """The literal of an operator applied to literals."""
        negate = 0
        if op == ops.NOT:
            return operands[0] ^ 1
        if span := span_of(op, lo, hi):
            return self.window(span, operands[0])
        if op in UNTILS:
            span = Span(ops.EVENTUALLY, lo, math.inf if hi == ops.UNBOUNDED else hi)
            return self.until(op, span, operands)
        if op in _NEGATION_OF:
            if op == ops.OR:
                operands = tuple(o ^ 1 for o in operands)
            elif op == ops.IMPLIES:
                operands = (operands[0], operands[1] ^ 1)
            op, negate = _NEGATION_OF[op], 1
        elif op not in _STORED:
            raise _unknown(op)
        if op == ops.IFF:  # negations move out of the operands
            negate ^= sum(operands) & 1
            operands = tuple(sorted(o & ~1 for o in operands))
        base = min((self.bases[o >> 1] for o in operands), default=math.inf)
        return self.store(Node(op, operands=operands), base) ^ negate

    def until(self, op: int, span: Span, operands: tuple[int, ...]) -> int:
        """The literal of until or since."""
        if span.last == 0:
            return self.both(*operands)
        base = min(self.bases[o >> 1] for o in operands)
        return self.store(Node(op, span, operands=operands), base)

    def store(self, node: Node, base: float) -> int:
        number = self.ids.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
            self.bases.append(base)
        return 2 * number

    def shift(self, literal: int, steps: int) -> int:
        """The literal for the same, `steps` later."""
        if steps == 0 or self.bases[literal >> 1] == math.inf:
            return literal
        todo = [literal >> 1]
        while todo:
            number = todo[-1]
            node, key = self.nodes[number], (todo[-1], steps)
            below = () if node.op == ops.ALWAYS else node.operands
            missing = [o >> 1 for o in below if (o >> 1, steps) not in self.shifts]
            if key not in self.shifts and missing:
                todo += missing
                continue
            todo.pop()
            if key in self.shifts:
                continue
            if node.op == ops.ALWAYS:
                node = node._replace(span=node.span.moved(steps))
            elif node.channel is not None:
                node = node._replace(channel=shifted_channel(node.channel, steps))
            else:
                moved = [self.shifts[o >> 1, steps] ^ (o & 1) for o in below]
                if node.op == ops.IFF:
                    moved.sort()
                node = node._replace(operands=tuple(moved))
            self.shifts[key] = self.store(node, self.bases[number] + steps)
        return self.shifts[literal >> 1, steps] ^ (literal & 1)

    def view(self, literal: int) -> Node:
        """The node that a literal stands for: and, or, always, eventually, until, since; NOT is a
        negated until or since. Atoms, true and <-> look the same negated or not, since no rule looks
        inside them."""
        node = self.views.get(literal)
        if node is None:
            node = self.nodes[literal >> 1]
            if literal & 1 and node.op in UNTILS:
                node = node._replace(op=ops.NOT)
            elif literal & 1 and node.op in (ops.AND, ops.ALWAYS):
                op = ops.OR if node.op == ops.AND else ops.EVENTUALLY
                span = Span(ops.EVENTUALLY, *node.span[1:])
                node = node._replace(op=op, span=span, operands=tuple(o ^ 1 for o in node.operands))
            self.views[literal] = node
        return node

    def entails(self, p: int, q: int, budget: int) -> bool:
        """Whether a proof that p entails q was found in up to `budget` looks at a pair."""
        known = self.known
        goal = _canonical(p, q)
        todo = [goal]
        while todo and budget > 0:
            budget -= 1
            pair = todo[-1]
            if pair in known:
                todo.pop()
                continue
            for option in self.options(*pair):
                states = [known.get(_canonical(*needed)) for needed in option]
                if False in states:
                    continue
                if None in states:
                    todo.append(_canonical(*option[states.index(None)]))
                else:
                    known[pair] = True
                break
            else:
                known[pair] = False
        return known.get(goal, False)

    def options(self, p: int, q: int) -> Iterator[tuple[Pair, ...]]:
        """Sets of smaller pairs: if in each pair of one set the first entails the second, then p
        entails q."""
        yield from self.direct(p, q)
        if ops.NOT in (self.view(p).op, self.view(q).op):  # the rules for until, by contraposition
            yield from self.direct(q ^ 1, p ^ 1)

    def direct(self, p: int, q: int) -> Iterator[tuple[Pair, ...]]:
        """The options without contraposition."""
        left, right = self.view(p), self.view(q)
        if p == q or self.is_true(q) or self.is_true(p ^ 1) or self.atom_entails(p, q):
            yield ()

        # Operand by operand; this is all that formulae of the same shape need.
        same = tuple(zip(left.operands, right.operands, strict=False))
        if left.op == right.op and left.op in (ops.AND, ops.OR):
            yield same
        elif left.op == right.op == ops.ALWAYS:
            if span := _common(right.span, left.span):
                yield ((self.window(span, left.operands[0]), right.operands[0]),)
        elif left.op == right.op == ops.EVENTUALLY:
            if span := _common(left.span, right.span):
                yield ((left.operands[0], self.window(span, right.operands[0])),)
        elif (left.op, right.op) == (ops.ALWAYS, ops.EVENTUALLY):
            for steps in _moves(left.span, right.span):
                yield ((left.operands[0], self.shift(right.operands[0], steps)),)
        elif left.op == right.op and left.op in UNTILS and is_within(left.span, right.span):
            yield same

        # (p or p') entails q iff p and p' do, and p entails (q and q') iff it entails both. These
        # are equivalences, so no other option has to be tried.
        if parts := self.conjuncts(q):
            yield tuple((p, part) for part in parts)
            return
        if parts := self.conjuncts(p ^ 1):
            yield tuple((part ^ 1, q) for part in parts)
            return

        # One operand of p that entails q, or one operand of q that p entails.
        if left.op == ops.AND:
            yield from (((operand, q),) for operand in left.operands)
        if right.op == ops.OR:
            yield from (((p, operand),) for operand in right.operands)
        if left.op == ops.ALWAYS:
            for steps in self.instants(left, q):
                yield ((self.shift(left.operands[0], steps), q),)
        if right.op == ops.EVENTUALLY:
            for steps in self.instants(right, p):
                yield ((p, self.shift(right.operands[0], steps)),)
        if right.op == ops.ALWAYS:  # some time of an inner window may be common to all of them
            inner = self.view(right.operands[0])
            if inner.op == ops.EVENTUALLY:
                first, last = right.span.last + inner.span.first, right.span.first + inner.span.last
                common = inner._replace(span=Span(ops.EVENTUALLY, first, last))
                for steps in self.instants(common, p):
                    yield ((p, self.shift(inner.operands[0], steps)),)
        if left.op in UNTILS:
            holds, comes = left.operands
            both = self.both(holds, comes)
            yield ((self.over(left, ops.ALWAYS, 0, left.span.first, holds), q),)
            yield ((self.over(left, ops.EVENTUALLY, *left.span[1:], both), q),)
        if right.op in UNTILS:
            holds, comes = right.operands
            for last in (right.span.last, right.span.first):
                always = self.over(right, ops.ALWAYS, 0, last, holds)
                yield (
                    (p, always),
                    (p, self.over(right, ops.EVENTUALLY, right.span.first, last, comes)),
                )

    def over(self, until: Node, kind: int, first: float, last: float, operand: int) -> int:
        """A window in the direction of an until, or of a since."""
        back = until.op == ops.SINCE
        return self.window(Span(kind, -last, -first) if back else Span(kind, first, last), operand)

    def instants(self, window: Node, other: int) -> list[int]:
        """Times of a window at which its operand may tell something about another literal."""
        _, first, last = window.span
        found = {0.0, first, last, self.bases[other >> 1]}
        return sorted((int(k) for k in found if math.isfinite(k) and first <= k <= last), key=abs)

    def both(self, a: int, b: int) -> int:
        return self.literal(ops.AND, 0, 0, (a, b))

    def is_atom(self, literal: int) -> bool:
        return self.nodes[literal >> 1].channel is not None

    def is_true(self, literal: int) -> bool:
        return literal & 1 == 0 and self.nodes[literal >> 1].op == ops.TRUE

    def atom_entails(self, p: int, q: int) -> bool:
        """x >= c entails x >= d for d <= c, and so on."""
        if p & 1:
            p, q = q ^ 1, p ^ 1
        if (p | q) & 1:
            return False
        left, right = self.nodes[p >> 1], self.nodes[q >> 1]
        return (
            left.channel is not None
            and left.channel == right.channel
            and (left.threshold, left.op == ops.GT) >= (right.threshold, right.op == ops.GT)
        )

    def conjuncts(self, literal: int) -> tuple[int, ...]:
        """Literals whose conjunction is this one, if there are any; windows and until split as well."""
        node = self.view(literal)
        if node.op == ops.AND:
            return node.operands
        if node.op == ops.ALWAYS:
            inner = self.view(node.operands[0])
            if inner.op == ops.AND:
                return tuple(self.window(node.span, o) for o in inner.operands)
        if node.op in (*UNTILS, ops.NOT):  # (p and p') until q; not (p until (q or q'))
            negated = literal & 1
            left, right = node.operands
            inner = self.view(right if negated else left)
            if inner.op == (ops.OR if negated else ops.AND):
                stored = self.nodes[literal >> 1]
                pairs = [(left, o) if negated else (o, right) for o in inner.operands]
                return tuple(self.until(stored.op, node.span, x) ^ negated for x in pairs)
        return ()


def _unknown(op: int) -> FormulaError:
    return FormulaError(f"no rule speaks of {ops.NAMES[op]}; write it out with other operators")


def _canonical(p: int, q: int) -> Pair:
    """A question and its contraposition are the same question."""
    return min((p, q), (q ^ 1, p ^ 1))


def is_within(inner: Span, outer: Span) -> bool:
    return outer.first <= inner.first and inner.last <= outer.last


def _common(inner: Span, outer: Span) -> Span | None:
    """The times of `outer`, seen from each time of `inner`, that all of these share."""
    first = -math.inf if outer.first == -math.inf else outer.first - inner.first
    last = math.inf if outer.last == math.inf else outer.last - inner.last
    shared = first <= last and first < math.inf and last > -math.inf
    return Span(outer.kind, first, last) if shared else None


def _moves(always: Span, eventually: Span) -> list[int]:
    """Steps from some time of one window to some time of the other."""
    least, most = eventually.first - always.last, eventually.last - always.first
    found = {0.0, least, most}
    return sorted((int(k) for k in found if math.isfinite(k) and least <= k <= most), key=abs)
