"""Between formulae and the rows that the corpus' compiled code works on."""

from __future__ import annotations

import numpy as np

from rhovec.corpus.draw import draw_palette, key
from rhovec.corpus.families import Batch, Recipe, _seed
from rhovec.corpus.trees import COLUMNS, OP, THRESHOLD, UNIT, append
from rhovec.formula import Formula
from rhovec.formula import operators as ops

ROOM = 600


def rows_of(phi: Formula) -> np.ndarray:
    """(nodes, COLUMNS); the formula's variables must be x_0, x_1, ..."""
    out = np.zeros((ROOM, COLUMNS), np.int64)
    n = 0
    for op, lo, hi, channel, threshold in phi.rows():
        index = -1 if channel is None else int(channel[0][0].removeprefix("x_"))
        n = append(out, n, op, lo, hi, index, round(threshold * UNIT))
    return out[:n]


def formula_of(rows: np.ndarray) -> Formula:
    return Formula.from_rows([
        (op, lo, hi, ((f"x_{c}", 1.0),) if ops.IS_ATOM[op] else None, t / UNIT)
        for op, lo, hi, c, t in rows[:, OP : THRESHOLD + 1].tolist()
    ])  # fmt: skip


def seed_of(recipe: Recipe, number: int) -> Formula:
    """The formula that a family is made from."""
    state = np.empty(1, np.uint64)
    key(state, recipe.seed, number, -1)
    palette = draw_palette(state, recipe.channels)
    prefix = np.empty((ROOM, COLUMNS), np.int64)
    out = np.empty_like(prefix)
    return formula_of(
        out[
            : _seed(
                state,
                palette,
                recipe.full_depth,
                recipe.bands,
                recipe.requirements,
                recipe.max_nodes,
                prefix,
                out,
            )
        ]
    )


def same_batch(a: Batch, b: Batch) -> bool:
    fields = ("family", "kind", "split", "depth", "tokens", "changes")
    arrays = ("code", "thresholds", "offsets")
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in fields) and all(
        np.array_equal(getattr(a.programs, f), getattr(b.programs, f)) for f in arrays
    )
