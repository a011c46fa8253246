"""Proofs that one formula entails another, at every time of every trace.

Formulae are stored as literals, each distinct node once. The question whether a literal entails
another is answered by rules that reduce it to questions about smaller pairs: thresholds, windows,
and/or, until. All rules are sound, and the set of them is far from complete: "not proved" says
nothing.

Operators that others define (release, weak until) are expanded first; an operator that no rule speaks
of is refused, never taken for another.
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

# On a trace, both formulae hold, or only a, or only b, or neither.
BOTH, ONLY_A, ONLY_B, NEITHER = range(4)

MAX_PAIRS = 10_000  # pairs of literals that a proof may look at, beside a few for each node
# Nodes are stored as one of these; every other operator is the negation of one of them.
_STORED = (ops.GE, ops.GT, ops.TRUE, ops.AND, ops.ALWAYS, ops.UNTIL, ops.IFF)
_NEGATION_OF = {
    ops.LE: ops.GT, ops.LT: ops.GE, ops.FALSE: ops.TRUE,
    ops.OR: ops.AND, ops.IMPLIES: ops.AND, ops.EVENTUALLY: ops.ALWAYS,
}  # fmt: skip
_WINDOWS = (ops.ALWAYS, ops.EVENTUALLY)


def impossible_cases(a: Formula, b: Formula, cases: Iterable[int] = range(4)) -> set[int]:
    """Which of these cases (BOTH, ONLY_A, ONLY_B, NEITHER) are proved to occur on no trace."""
    a, b = expand(a), expand(b)
    prover = _Prover()
    # As written, formulae that differ in a few places have the same shape; simplified, formulae may
    # have the same shape although they were written differently.
    pairs = {
        (prover.add(a), prover.add(b)),
        (prover.add(simplify(a)), prover.add(simplify(b))),
    }
    budget = MAX_PAIRS + a.size + b.size
    signs = {BOTH: (0, 1), ONLY_A: (0, 0), ONLY_B: (1, 1), NEITHER: (1, 0)}
    return {
        case
        for case in cases
        if any(prover.entails(p ^ signs[case][0], q ^ signs[case][1], budget) for p, q in pairs)
    }


class _Node(NamedTuple):
    op: int  # one of _STORED; in a view also OR, EVENTUALLY and NOT
    lo: int = 0
    hi: int = 0
    channel: Channel | None = None
    threshold: float = 0.0
    operands: tuple[int, ...] = ()  # literals


Pair = tuple[int, int]  # literals p and q of the question whether p entails q


class _Prover:
    """Literals, and which of them entail which.

    A literal is twice the number of a node, plus one if it is negated, so `^ 1` negates it.
    """

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.ids: dict[_Node, int] = {}
        self.views: dict[int, _Node] = {}
        self.known: dict[Pair, bool] = {}

    def add(self, phi: Formula) -> int:
        """The literal of a formula."""
        stack: list[int] = []
        for op, lo, hi, channel, threshold in phi.rows():
            first = len(stack) - ops.arity(op)
            operands = tuple(stack[first:])
            del stack[first:]
            stack.append(self.literal(op, lo, hi, operands, channel, threshold))
        return stack[0]

    def literal(
        self,
        op: int,
        lo: int,
        hi: int,
        operands: tuple[int, ...],
        channel: Channel | None = None,
        threshold: float = 0.0,
    ) -> int:
        """The literal of an operator applied to literals, or of an atom."""
        negate = 0
        if op == ops.NOT:
            return operands[0] ^ 1
        if op in _WINDOWS and lo == hi == 0:
            return operands[0]
        if op == ops.NEXT:
            op, lo, hi = ops.ALWAYS, 1, 1
        elif op == ops.UNTIL and lo == hi == 0:
            op = ops.AND
        elif op in _NEGATION_OF:
            if op in (ops.OR, ops.EVENTUALLY):
                operands = tuple(o ^ 1 for o in operands)
            elif op == ops.IMPLIES:
                operands = (operands[0], operands[1] ^ 1)
            op, negate = _NEGATION_OF[op], 1
        elif op not in _STORED:
            raise _unknown(op)
        if op == ops.IFF or (op == ops.ALWAYS and lo == hi):  # negations move out of the operands
            negate ^= sum(operands) & 1
            operands = tuple(sorted(o & ~1 for o in operands))
        node = _Node(op, lo, hi, channel, threshold, operands)
        number = self.ids.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return 2 * number + negate

    def view(self, literal: int) -> _Node:
        """The node that a literal stands for: and, or, always, eventually, until; NOT is a negated
        until. Atoms, true and <-> look the same negated or not, since no rule looks inside them."""
        node = self.views.get(literal)
        if node is None:
            node = self.nodes[literal >> 1]
            if literal & 1 and node.op == ops.UNTIL:
                node = node._replace(op=ops.NOT)
            elif literal & 1 and node.op in (ops.AND, ops.ALWAYS):
                op = ops.OR if node.op == ops.AND else ops.EVENTUALLY
                node = node._replace(op=op, operands=tuple(o ^ 1 for o in node.operands))
            self.views[literal] = node
        return node

    def entails(self, p: int, q: int, budget: int) -> bool:
        """Whether a proof that p entails q was found by looking at up to `budget` pairs."""
        known = self.known
        limit = len(known) + budget
        goal = _canonical(p, q)
        todo = [goal]
        while todo and len(known) < limit:
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
        elif left.op in _WINDOWS and right.op in _WINDOWS:
            if _window_entails(left, right):
                yield same
        elif left.op == right.op == ops.UNTIL and _within(left, right):
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
        if left.op == ops.AND or (left.op == ops.ALWAYS and left.lo == 0):
            yield from (((operand, q),) for operand in left.operands)
        if right.op == ops.OR or (right.op == ops.EVENTUALLY and right.lo == 0):
            yield from (((p, operand),) for operand in right.operands)
        if left.op == ops.UNTIL:
            holds, comes = left.operands
            yield ((self.literal(ops.ALWAYS, 0, left.lo, (holds,)), q),)
            yield ((self.literal(ops.EVENTUALLY, left.lo, left.hi, (comes,)), q),)
        if right.op == ops.UNTIL:
            holds, comes = right.operands
            for last in (right.hi, right.lo):
                always = self.literal(ops.ALWAYS, 0, last, (holds,))
                yield (p, always), (p, self.literal(ops.EVENTUALLY, right.lo, last, (comes,)))

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
        if node.op == ops.ALWAYS or (node.op == ops.EVENTUALLY and node.lo == node.hi):
            inner = self.view(node.operands[0])
            if inner.op == ops.AND:
                return tuple(self.literal(node.op, node.lo, node.hi, (o,)) for o in inner.operands)
        if node.op in (ops.UNTIL, ops.NOT):  # (p and p') until q; not (p until (q or q'))
            negated = literal & 1
            left, right = node.operands
            inner = self.view(right if negated else left)
            if inner.op == (ops.OR if negated else ops.AND):
                pairs = [(left, o) if negated else (o, right) for o in inner.operands]
                return tuple(self.literal(ops.UNTIL, node.lo, node.hi, x) ^ negated for x in pairs)
        return ()


def _unknown(op: int) -> FormulaError:
    return FormulaError(f"no rule speaks of {ops.NAMES[op]}; write it out with other operators")


def _canonical(p: int, q: int) -> Pair:
    """A question and its contraposition are the same question."""
    return min((p, q), (q ^ 1, p ^ 1))


def _end(node: _Node) -> float:
    return math.inf if node.hi == ops.UNBOUNDED else node.hi


def _within(left: _Node, right: _Node) -> bool:
    return right.lo <= left.lo and _end(left) <= _end(right)


def _window_entails(left: _Node, right: _Node) -> bool:
    """Whether always/eventually on the left entails that on the right if its operand does."""
    if left.op == right.op:
        return _within(right, left) if left.op == ops.ALWAYS else _within(left, right)
    if left.op == ops.ALWAYS:
        return max(left.lo, right.lo) <= min(_end(left), _end(right))
    return left.lo == left.hi == right.lo == right.hi
