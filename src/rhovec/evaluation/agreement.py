"""Semantic agreement: the error on pairs of one sort, for the sorts of the paper's table and a few more.

Each sort gives one column of that table: mean kernel value, mean inner product, mean absolute error
(MAE), and the two relative distances, mean(1 - s) / max(1 - s) within the column.

    equivalent           by construction; a second row has only those that the simplifier leaves
                         different
    random               two formulae of different families
    lexically similar    each formula and the one at the smallest edit distance on the paper's tokens
                         among those that mean something else (K < 0.7)
    same family          two variants of one seed that mean something else (K < 0.7)
    operands swapped     a formula and itself with the operands of one commutative operator swapped
    always-eventually    a formula with `always` directly over `eventually`, or the other way round,
                         and itself with the two words exchanged; windows stay in place, because
                         G[a,b] F[c,d] and F[c,d] G[a,b] hardly differ to the kernel
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import FormulaError, RhovecError
from ..formula import Formula
from ..formula import operators as ops
from ..kernel import Teacher, kernel_of_cosine
from ..tokens.text import encode
from .bootstrap import mean_interval
from .edits import edit_distances
from .sets import FormulaSet, Pair

Embed = Callable[[list[Formula]], np.ndarray]  # B formulae -> unit rows (B, D)
# Products of two rows -> similarities, in place of the products themselves.
FromProducts = Callable[[np.ndarray], np.ndarray]

DISTINCT = 0.7  # formulae with a smaller K mean something else
PARTNERS = 10  # random partners of each formula
TOLD_APART = 0.95  # the kernel tells formulae with a smaller K apart
ROUNDING = 1e-5  # more than 1 - s of equal float32 vectors
CHUNK = 128  # pairs whose kernel is computed at a time, as the diagonal of a block


def agreement(
    teacher: Teacher,
    embed: Embed,
    formulae: FormulaSet,
    kernel: np.ndarray,
    similarity: np.ndarray,
    seed: int = 0,
    from_products: FromProducts | None = None,
) -> dict[str, dict[str, Any]]:
    """Columns by sort, each as `pair_column` returns it.

    kernel, similarity: (B, B) of the set's formulae. Sorts that do not apply to the set are left out;
    a sort without any pair has n = 0.
    """
    groups = formulae.groups

    def within(pairs: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
        i, j = pairs
        return pair_column(kernel[i, j], similarity[i, j], groups[i], groups[j], seed)

    def among(pairs: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray]:
        return pair_kernel(teacher, pairs), pair_similarity(embed, pairs, from_products)

    k, s = among(formulae.equivalent)
    numbers, left = np.arange(len(k)), formulae.unsimplified
    out = {
        "equivalent": pair_column(k, s, numbers, numbers, seed),
        "equivalent, simplifier leaves different": pair_column(
            k[left], s[left], numbers[left], numbers[left], seed
        ),
        "random": within(random_pairs(groups, seed)),
        "lexically similar": within(lexical_pairs(formulae.formulae, kernel)),
    }
    if formulae.has_families:
        out["same family"] = within(family_pairs(groups, kernel))
    swapped, where = swapped_operands(formulae.formulae, seed)
    out["operands swapped"] = pair_column(*among(swapped), groups[where], groups[where], seed)
    exchanged, where = exchanged_operators(formulae.formulae)
    k, s = among(exchanged)
    out["always-eventually"] = pair_column(k, s, groups[where], groups[where], seed)
    apart = k < TOLD_APART
    told = np.abs(s - k)[apart] < np.abs(1 - s)[apart]  # closer to the truth than to "the same"
    out["always-eventually"] |= {
        "n_apart": int(apart.sum()), "told_apart": float(told.mean()) if apart.any() else None
    }  # fmt: skip
    return out


def pair_column(
    kernel: np.ndarray, similarity: np.ndarray, first: np.ndarray, second: np.ndarray, seed: int
) -> dict[str, Any]:
    """Column of the table for n pairs, from K, S and the groups of the two formulae, (n,) each.

    `value` is the MAE, `low` to `high` its 95 % interval. A relative distance is None if all
    distances are 0.
    """
    n = len(kernel)
    names = ("value", "low", "high", "kernel", "similarity", "relative_kernel", "relative")
    if n == 0:
        return {"n": 0} | dict.fromkeys(names)
    error = np.abs(kernel - similarity)
    low, high = mean_interval(error, first, second, seed)
    numbers = (
        float(error.mean()), low, high, float(kernel.mean()), float(similarity.mean()),
        _relative(1 - kernel), _relative(1 - similarity),
    )  # fmt: skip
    return {"n": n} | dict(zip(names, numbers, strict=True))


def _relative(distances: np.ndarray) -> float | None:
    largest = distances.max()
    return float(distances.mean() / largest) if largest > ROUNDING else None


# -- K and S ---------------------------------------------------------------------------------------


def cosines_to_kernel(teacher: Any) -> FromProducts:
    """K from inner products that are the cosines of a teacher's robustness vectors."""
    return lambda products: kernel_of_cosine(products, teacher.sigma2)


def matrices(
    teacher: Teacher,
    embed: Embed,
    formulae: list[Formula],
    from_products: FromProducts | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """K and S of all pairs, (B, B) each."""
    vectors = unit_rows(embed, formulae)
    products = vectors @ vectors.T
    return teacher.gram(formulae), from_products(products) if from_products else products


def pair_kernel(teacher: Teacher, pairs: Sequence[Pair]) -> np.ndarray:
    """K of each pair, (n,)."""
    values = [np.empty(0)]
    for start in range(0, len(pairs), CHUNK):
        first, second = zip(*pairs[start : start + CHUNK], strict=True)
        values.append(np.diagonal(teacher.gram(first, second)))
    return np.concatenate(values)


def pair_similarity(
    embed: Embed, pairs: Sequence[Pair], from_products: FromProducts | None = None
) -> np.ndarray:
    """S of each pair, (n,)."""
    if not pairs:
        return np.empty(0)
    vectors = unit_rows(embed, [phi for side in zip(*pairs, strict=True) for phi in side])
    products: np.ndarray = (vectors[: len(pairs)] * vectors[len(pairs) :]).sum(1)
    return from_products(products) if from_products else products


def unit_rows(embed: Embed, formulae: list[Formula]) -> np.ndarray:
    """Vectors of the formulae, (B, D) float64; they must have length 1."""
    vectors = np.asarray(embed(formulae), np.float64)
    if vectors.ndim != 2 or len(vectors) != len(formulae):
        raise RhovecError(
            f"embed must give ({len(formulae)}, D) for {len(formulae)} formulae, not {vectors.shape}"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    if not (np.abs(lengths - 1) < 1e-3).all():
        raise RhovecError("embed must give vectors of length 1; divide each by its norm")
    return vectors


# -- sorts of pairs --------------------------------------------------------------------------------


def random_pairs(groups: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """PARTNERS random partners for each formula, as (i, j), without those of its own group."""
    rng = np.random.default_rng(seed)
    i = np.repeat(np.arange(len(groups)), PARTNERS)
    j = rng.integers(len(groups), size=len(i))
    apart = groups[i] != groups[j]
    return i[apart], j[apart]


def family_pairs(groups: np.ndarray, kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs i < j of one group with K < DISTINCT."""
    same = np.triu(groups[:, None] == groups, 1) & (kernel < DISTINCT)
    i, j = np.nonzero(same)
    return i, j


def lexical_pairs(formulae: Sequence[Formula], kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each formula and its lexically nearest partner among those with K < DISTINCT.

    Formulae that the paper's tokens cannot spell are left out.
    """
    spelled, places = [], []
    for i, phi in enumerate(formulae):
        try:
            spelled.append(encode(phi))
        except FormulaError:
            continue
        places.append(i)
    where = np.array(places, np.int64)
    if not places:
        return where, where
    distinct = kernel[np.ix_(where, where)] < DISTINCT
    distances = np.where(distinct, edit_distances(spelled), np.iinfo(np.int32).max)
    some = distinct.any(axis=1)
    return where[some], where[distances[some].argmin(axis=1)]


def swapped_operands(formulae: Sequence[Formula], seed: int) -> tuple[list[Pair], np.ndarray]:
    """Each formula and itself with the operands of one random commutative operator swapped.

    Returns pairs and the index of each one's formula; a formula without two different operands has
    no pair.
    """
    rng = np.random.default_rng(seed)
    pairs, places = [], []
    for place, phi in enumerate(formulae):
        rows, sizes = phi.rows(), phi.shape()[0]
        nodes = np.flatnonzero(np.isin(phi.code[:, 0], (ops.AND, ops.OR, ops.IFF)))
        for node in rng.permutation(nodes).tolist():
            middle = node - int(sizes[node - 1])
            start = middle - int(sizes[middle - 1])
            left, right = rows[start:middle], rows[middle:node]
            if left != right:
                psi = Formula.from_rows([*rows[:start], *right, *left, *rows[node:]])
                pairs.append((phi, psi))
                places.append(place)
                break
    return pairs, np.array(places, np.int64)


def exchanged_operators(formulae: Sequence[Formula]) -> tuple[list[Pair], np.ndarray]:
    """Each formula and itself with an adjacent pair of `always` and `eventually` exchanged.

    Returns pairs and the index of each one's formula; among several such places the last in postfix
    order is taken.
    """
    pairs, places = [], []
    for place, phi in enumerate(formulae):
        upper, lower = phi.code[1:, 0], phi.code[:-1, 0]
        found = np.flatnonzero(
            ((upper == ops.ALWAYS) & (lower == ops.EVENTUALLY))
            | ((upper == ops.EVENTUALLY) & (lower == ops.ALWAYS))
        )
        if len(found):
            node = int(found[-1])
            code = phi.code.copy()
            code[node : node + 2, 0] = upper[node], lower[node]
            pairs.append((phi, Formula.trusted(code, phi.thresholds, phi.channels)))
            places.append(place)
    return pairs, np.array(places, np.int64)
