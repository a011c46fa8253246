"""Everything that is measured of an encoder against a kernel, as rows that are ready for JSON.

kernel = StlKernel(BaseMeasure(points=100), TRACES, seed=TRACES_SEED)   # traces not trained on
rows = evaluate_encoder(model.embed, kernel, [held_out(), read_formulae("formulae.csv")])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kernel import Teacher
from .agreement import Embed, FromProducts, agreement, matrices
from .fidelity import fidelity
from .sets import FormulaSet, require_pairs

TRACES = 16_384  # traces of the kernel that vectors are compared with
TRACES_SEED = 1234  # of those traces, which no training uses


def evaluate_encoder(
    embed: Embed,
    teacher: Teacher,
    sets: Iterable[FormulaSet],
    seed: int = 0,
    from_products: FromProducts | None = None,
) -> list[dict[str, Any]]:
    """Rows of fidelity and agreement on each set. embed: B formulae -> unit rows (B, D).

    from_products: similarities from the rows' inner products, if they are not these themselves.
    """
    rows = []
    for formulae in [require_pairs(one) for one in sets]:
        both = matrices(teacher, embed, formulae.formulae, from_products)
        rows += as_rows("fidelity", formulae, fidelity(*both, formulae.groups, seed))
        entries = agreement(teacher, embed, formulae, *both, seed, from_products)
        rows += as_rows("agreement", formulae, entries)
    return rows


def as_rows(
    claim: str, formulae: FormulaSet, entries: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """A row per entry: claim, measure, set, sha256, n, value, and low and high if they are known.

    n counts formulae in rows of fidelity, and pairs in rows of agreement; `fidelity` and `pair_column`
    describe the other fields.
    """
    about = {"set": formulae.name, "sha256": formulae.sha256}
    return [{"claim": claim, "measure": name, **about, **entry} for name, entry in entries.items()]
