"""How two formulae are related: equivalent, one implies the other, contradictory.

There are two sources, kept apart. A prover over the two formulae answers for every trace there is
(prover.py). Where it is silent, satisfaction on traces of a measure decides (counting.py), and the
probability of a case that was not seen is bounded. report.py holds the result and its wording.
sets.py relates all formulae of a set, page.py shows that as a page with a graph.
"""

from __future__ import annotations

import numpy as np

from ..errors import RhovecError
from ..former import former_arguments
from ..formula.core import Formula
from ..formula.reader import FormulaLike, as_formulae
from ..kernel import Progress, StlKernel
from ..robustness import robustness, satisfaction
from ..traces import BaseMeasure, Measure
from .counting import count, default_measure, interval
from .prover import BOTH, NEITHER, ONLY_A, ONLY_B, impossible_cases
from .report import RULED_OUT, Comparison, Relation, Share, Witness
from .sets import SetComparison, compare_sets

__all__ = [
    "Comparison",
    "Relation",
    "SetComparison",
    "Share",
    "Witness",
    "compare",
    "compare_sets",
    "default_measure",
]

DEFAULT_TRACES = 10_000  # of mu0; what never occurs among them is rarer than 0.0004


@former_arguments(n_signals="n_traces")
def compare(
    a: FormulaLike,
    b: FormulaLike,
    measure: Measure | None = None,
    n_traces: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """How a and b are related: proved where possible, otherwise judged on traces of the measure.

    measure: `TraceMeasure` of the user's own, or by default mu0 with as many variables as the
        formulae need. The intervals are about the population that the traces are drawn from.
    n_traces: number of traces (default: 10,000 of mu0, all of the user's own).
    """
    (phi, psi), _ = as_formulae([a, b])
    if not 0.5 <= confidence < 1:
        raise RhovecError(f"confidence must be at least 0.5 and below 1, not {confidence}")
    if measure is None:
        measure = default_measure([phi, psi])
    if n_traces is None and isinstance(measure, BaseMeasure):
        n_traces = DEFAULT_TRACES
    kernel = StlKernel(measure, n_traces, seed=seed)
    pair = [phi, psi]
    kernel.check(pair)
    n = measure.count(n_traces)
    seen = count(pair, kernel, _third(progress, 0))
    similarity = error = None
    if seen.has_angle:
        similarity = float(kernel.gram(phi, psi, progress=_third(progress, 1))[0, 0])
        error = float(kernel.gram_errors(phi, psi, progress=_third(progress, 2))[0, 0])
    # Only what never occurred can be impossible.
    impossible = impossible_cases(phi, psi, [c for c in range(4) if not seen.cases[c]])

    def share(*cases: int) -> Share:
        if impossible.issuperset(cases):
            return Share(0.0, 0.0, 0.0, impossible=True)
        k = sum(seen.cases[case] for case in cases)
        return Share(k / n, *interval(k, n, confidence))

    relation, proved = _relation(seen.cases, impossible)
    return Comparison(
        phi, psi, relation, proved,
        share(BOTH), share(ONLY_A), share(ONLY_B), share(NEITHER), share(ONLY_A, ONLY_B),
        similarity, error, None if seen.trace is None else _witness(pair, seen.trace, measure),
        n, measure.points, seed, confidence,
    )  # fmt: skip


def _relation(counts: list[int], impossible: set[int]) -> tuple[Relation, bool]:
    """The first relation that is proved, otherwise the first that no trace contradicts."""
    for relation, cases in RULED_OUT.items():
        if cases and impossible.issuperset(cases):
            return relation, True
    relation = next(r for r, cases in RULED_OUT.items() if not any(counts[c] for c in cases))
    return relation, relation == "overlaps"


def _witness(pair: list[Formula], trace: np.ndarray, measure: Measure) -> Witness:
    exact = trace.astype(np.float64)
    names = measure.variables
    values = robustness(pair, exact[None], variables=names, trace=True)[:, 0]
    a, b = satisfaction(pair, exact[None], variables=names)[:, 0].tolist()
    return Witness(exact, names, values, (a, b))


def _third(progress: Progress | None, which: int) -> Progress | None:
    return None if progress is None else lambda share: progress((which + share) / 3)
