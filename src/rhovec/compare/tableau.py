"""Refutation by cases: conjunctions are taken apart, disjunctions branch, time is unrolled step by step.

A branch is closed once two of its facts contradict each other. If all branches close, the literals
hold together at no time of any trace. Windows and untils are unrolled from t - REACH to t + REACH;
what lies beyond is compared as a whole, by the rules about pairs, and what must hold at some time
of a window is refuted together with all that holds throughout it. Every step keeps the meaning, so
the answer is sound; and it is complete for formulae about independent channels that look only at
those few steps, if the budget suffices.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..formula import operators as ops
from ..formula.windows import Span
from .rules import UNTILS, WINDOWS, Rules, is_within

MAX_STEPS = 1_000  # literals that a refutation may look at
MAX_DEPTH = 8  # of refutations within refutations
REACH = 6
_LOOKS = 60  # at pairs, for one question to the rules about pairs

Literals = tuple[int, ...]


def refuted(rules: Rules, literals: Literals) -> bool:
    """Whether it is proved that these literals never hold together."""
    return _refuted(rules, literals, iter(range(MAX_STEPS)), MAX_DEPTH)


def _refuted(rules: Rules, literals: Literals, steps: Iterator[int], depth: int) -> bool:
    branches: list[tuple[Literals, frozenset[int], list[Literals]]] = [(literals, frozenset(), [])]
    while branches:
        new, facts, choices = branches.pop()
        todo, closed = list(new), False
        while todo and not closed:
            literal = todo.pop()
            if literal in facts or rules.is_true(literal):
                continue
            if next(steps, None) is None:
                return False
            parts, is_choice = _parts(rules, literal)
            closed = literal ^ 1 in facts or rules.is_true(literal ^ 1)
            if is_choice:
                choices = [*choices, parts]
            elif parts:
                todo += parts
            else:
                closed = closed or any(_contradict(rules, literal, fact) for fact in facts)
            facts |= {literal}
            if not todo and not closed:  # choices with one possibility left are none
                choices, forced = _narrowed(rules, facts, choices)
                closed, todo = forced is None, list(forced or ())
        if closed:
            continue
        if not choices:
            worlds = _worlds(rules, facts) if depth else ()
            if any(_refuted(rules, world, steps, depth - 1) for world in worlds):
                continue
            return False
        choice = min(choices, key=len)
        rest = [other for other in choices if other is not choice]
        branches += (((literal,), facts, rest) for literal in choice)
    return True


def _worlds(rules: Rules, facts: frozenset[int]) -> Iterator[Literals]:
    """Sets of literals that hold together at some time: for each window with something that must come
    the operands of all windows that hold throughout it."""
    throughout = [node for fact in facts if (node := rules.view(fact)).op == ops.ALWAYS]
    for fact in facts:
        node = rules.view(fact)
        if node.op in UNTILS:  # both operands hold at the time that is looked for
            comes = rules.over(node, ops.EVENTUALLY, *node.span[1:], rules.both(*node.operands))
            node = rules.view(comes)
        if node.op == ops.EVENTUALLY:
            always = (n.operands[0] for n in throughout if is_within(node.span, n.span))
            yield (*node.operands, *always)


def _contradict(rules: Rules, p: int, q: int) -> bool:
    """Whether two facts contradict each other; what has parts is judged by these."""
    if rules.is_atom(p) or rules.is_atom(q):
        return rules.atom_entails(p, q ^ 1)
    return not _parts(rules, q)[0] and rules.entails(p, q ^ 1, _LOOKS)


def _narrowed(
    rules: Rules, facts: frozenset[int], choices: list[Literals]
) -> tuple[list[Literals], Literals | None]:
    """Choices that are still open, and literals that are no choice any more; None: one has none left."""
    still: list[Literals] = []
    forced: list[int] = []
    for choice in choices:
        if not facts.isdisjoint(choice):
            continue
        possible = tuple(
            literal for literal in choice
            if literal ^ 1 not in facts and not rules.is_true(literal ^ 1)
            and not (rules.is_atom(literal)
                     and any(rules.atom_entails(fact, literal ^ 1) for fact in facts))
        )  # fmt: skip
        if not possible:
            return [], None
        if len(possible) == 1:
            forced += possible
        else:
            still.append(possible)
    return still, tuple(forced)


def _parts(rules: Rules, literal: int) -> tuple[Literals, bool]:
    """Literals that follow from this one: all of them, or, with True, at least one; none for a fact."""
    node, stored, negated = rules.view(literal), rules.nodes[literal >> 1], literal & 1
    if node.op in (ops.AND, ops.OR):
        return node.operands, node.op == ops.OR
    if node.op == ops.IFF:
        a, b = node.operands
        return (rules.both(a, b ^ negated), rules.both(a ^ 1, b ^ 1 ^ negated)), True
    if node.op in WINDOWS:
        parts = _unrolled_window(rules, node.span, node.operands[0])
        return parts, bool(parts) and node.op == ops.EVENTUALLY
    if stored.op not in UNTILS or abs(rules.bases[literal >> 1]) > REACH:
        return (), False
    # p until q is p and (q or next (p until q)), each later step with a shorter window.
    _, first, last = stored.span
    p, q = stored.operands
    shorter = Span(stored.span.kind, max(first - 1, 0), last - 1)
    step = 1 if stored.op == ops.UNTIL else -1
    later = rules.shift(rules.until(stored.op, shorter, (p, q)), step)
    rest = later if first else rules.both(q ^ 1, later ^ 1) ^ 1
    return (p ^ negated, rest ^ negated), bool(negated)


def _unrolled_window(rules: Rules, span: Span, operand: int) -> Literals:
    """The operand at each time of a window within REACH, and windows for the times beyond."""
    kind, first, last = span
    near = range(int(max(first, -REACH)), int(min(last, REACH)) + 1)
    if not near:
        return ()
    parts = [rules.shift(operand, k) for k in near]
    if first < -REACH:
        parts.append(rules.window(Span(kind, first, -REACH - 1), operand))
    if last > REACH:
        parts.append(rules.window(Span(kind, REACH + 1, last), operand))
    return tuple(parts)
