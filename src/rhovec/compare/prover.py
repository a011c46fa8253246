"""Proofs that one formula entails another, or contradicts it, at every time of every trace.

First by rules about pairs of sub-formulae (rules.py), which large formulae of the same shape need; then
by telling all cases apart around t (tableau.py). Both are sound and incomplete: "not proved" says
nothing. benchmarks/proofs.py checks proofs against traces and z3.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..formula.core import Formula
from ..formula.expand import expand
from ..formula.simplify import simplify
from .rules import Rules
from .tableau import refuted

# On a trace, both formulae hold, or only a, or only b, or neither.
BOTH, ONLY_A, ONLY_B, NEITHER = range(4)
_NEGATED = {BOTH: (0, 0), ONLY_A: (0, 1), ONLY_B: (1, 0), NEITHER: (1, 1)}

MAX_LOOKS = 20_000  # at pairs of literals that a proof may take, beside a few for each node


def impossible_cases(a: Formula, b: Formula, cases: Iterable[int] = range(4)) -> set[int]:
    """Which of these cases (BOTH, ONLY_A, ONLY_B, NEITHER) are proved to occur on no trace."""
    a, b = expand(a), expand(b)
    rules = Rules()
    # As written, formulae that differ in a few places have the same shape; simplified, formulae may
    # have the same shape although they were written differently.
    simple = rules.add(expand(simplify(a))), rules.add(expand(simplify(b)))
    pairs = {(rules.add(a), rules.add(b)), simple}
    budget = MAX_LOOKS + 2 * (a.size + b.size)

    def is_impossible(case: int) -> bool:
        no_a, no_b = _NEGATED[case]
        by_rules = any(rules.entails(p ^ no_a, q ^ no_b ^ 1, budget) for p, q in pairs)
        return by_rules or refuted(rules, (simple[0] ^ no_a, simple[1] ^ no_b))

    return {case for case in cases if is_impossible(case)}
