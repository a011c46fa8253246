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


class Prover:
    """Questions about pairs of some formulae; what is found out about their parts is kept."""

    def __init__(self, formulae: Iterable[Formula]):
        self.rules = Rules()
        expanded = [expand(phi) for phi in formulae]
        self.sizes = [phi.size for phi in expanded]
        # As written, formulae that differ in a few places have the same shape; simplified, formulae
        # may have the same shape although they were written differently.
        self.simple = [self.rules.add(expand(simplify(phi))) for phi in expanded]
        self.written = [self.rules.add(phi) for phi in expanded]

    def is_impossible(self, case: int, a: int, b: int) -> bool:
        """Whether it is proved that BOTH, ONLY_A, ... occurs on no trace. a, b: places in the list."""
        no_a, no_b = _NEGATED[case]
        budget = MAX_LOOKS + 2 * (self.sizes[a] + self.sizes[b])
        return any(
            self.rules.entails(p ^ no_a, q ^ no_b ^ 1, budget)
            for p, q in {(self.written[a], self.written[b]), (self.simple[a], self.simple[b])}
        ) or refuted(self.rules, (self.simple[a] ^ no_a, self.simple[b] ^ no_b))


def impossible_cases(a: Formula, b: Formula, cases: Iterable[int] = range(4)) -> set[int]:
    """Which of these cases (BOTH, ONLY_A, ONLY_B, NEITHER) are proved to occur on no trace."""
    prover = Prover([a, b])
    return {case for case in cases if prover.is_impossible(case, 0, 1)}
