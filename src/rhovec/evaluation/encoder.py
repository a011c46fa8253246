"""All that is measured of an encoder against its teacher, as rows that are ready for JSON.

kernel = StlKernel(BaseMeasure(points=100), n_signals=16_384, seed=1)     # signals not trained on
rows = evaluate_encoder(model.embed, kernel, [held_out(), read_formulae("formulae.csv")])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kernel import Teacher
from .agreement import Embed, agreement, unit_rows
from .fidelity import fidelity
from .sets import FormulaSet


def evaluate_encoder(
    embed: Embed, teacher: Teacher, sets: Iterable[FormulaSet], seed: int = 0
) -> list[dict[str, Any]]:
    """A row a set and claim: claim, measure, set, sha256, n, value, and low, high where they are known.

    embed: B formulae -> unit rows (B, D). In rows of fidelity n counts formulae, in those of
    agreement pairs; what else these have is said at `fidelity` and `compare`.
    """
    rows = []
    for formulae in sets:
        kernel = teacher.gram(formulae.formulae)
        vectors = unit_rows(embed, formulae.formulae)
        similarity = vectors @ vectors.T
        found = {
            "fidelity": fidelity(kernel, similarity, formulae.groups, seed),
            "agreement": agreement(teacher, embed, formulae, kernel, similarity, seed),
        }
        rows += [
            {"claim": claim, "measure": name, "set": formulae.name, "sha256": formulae.sha256}
            | entry
            for claim, entries in found.items()
            for name, entry in entries.items()
        ]
    return rows
