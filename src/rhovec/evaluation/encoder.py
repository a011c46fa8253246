"""All that is measured of an encoder against its teacher, as rows that are ready for JSON.

kernel = StlKernel(BaseMeasure(points=100), n_signals=16_384, seed=1)     # signals not trained on
rows = evaluate_encoder(model.embed, kernel, [held_out(), read_formulae("formulae.csv")])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kernel import Teacher
from .agreement import Embed, agreement, matrices
from .fidelity import fidelity
from .sets import FormulaSet


def evaluate_encoder(
    embed: Embed, teacher: Teacher, sets: Iterable[FormulaSet], seed: int = 0
) -> list[dict[str, Any]]:
    """The rows of fidelity and of agreement on each set. embed: B formulae -> unit rows (B, D)."""
    rows = []
    for formulae in sets:
        both = matrices(teacher, embed, formulae.formulae)
        rows += as_rows("fidelity", formulae, fidelity(*both, formulae.groups, seed))
        rows += as_rows("agreement", formulae, agreement(teacher, embed, formulae, *both, seed))
    return rows


def as_rows(
    claim: str, formulae: FormulaSet, entries: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """A row an entry: claim, measure, set, sha256, n, value, and low, high where they are known.

    In rows of fidelity n counts formulae, in those of agreement pairs; what else these have is said
    at `fidelity` and `compare`.
    """
    about = {"set": formulae.name, "sha256": formulae.sha256}
    return [{"claim": claim, "measure": name, **about, **entry} for name, entry in entries.items()]
