"""Reconstruction: how close in meaning decoded formulae are to those that were encoded.

Both formulae are evaluated on fresh traces. Measures: the cosine of their robustness vectors, as in the
paper; the centred correlation, on which a constant scores 0; and the distance L2 / sqrt(N). Nothing is
left out: if there is no answer, or none that is a formula, cosine and correlation are 0 and the distance
is the one to 0. The baseline that a cosine must beat is the better of two constant answers: one formula
that is true by a wide margin, and one that is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import RhovecError
from ..formula import Formula
from ..robustness import robustness
from ..traces import Measure
from .bootstrap import LEVEL, RESAMPLES

BLOCK = 512  # formulae evaluated at once


def reconstruction(
    formulae: Sequence[Formula],
    answers: Sequence[Formula | None],
    measure: Measure,
    n_traces: int = 2000,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """A row per measure: n formulae, value (their median) with its 95 % interval low to high,
    lower_quartile and upper_quartile; the value of the row "valid" is a share.
    """
    if not formulae or len(formulae) != len(answers):
        raise RhovecError(
            f"give an answer, or None, for each formula, not {len(answers)} for {len(formulae)}"
        )
    if n_traces < 1000:
        raise RhovecError(f"a reconstruction needs 1000 traces or more, not {n_traces}")
    traces = np.concatenate(list(measure.blocks(n_traces, seed)))
    parts = [
        _measures(formulae[i : i + BLOCK], answers[i : i + BLOCK], traces, measure.variables)
        for i in range(0, len(formulae), BLOCK)
    ]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    found["nodes of the formula"] = np.array([phi.size for phi in formulae])
    given = [phi.size for phi in answers if phi is not None]
    if given:
        found["nodes of the answer"] = np.array(given)
    valid = np.array([phi is not None for phi in answers])
    rng = np.random.default_rng(seed)
    common = {"claim": "reconstruction", "n_traces": n_traces, "traces_seed": seed}
    rows = [common | {"measure": k} | _median(v.astype(float), rng) for k, v in found.items()]
    return [*rows, common | {"measure": "valid", "n": len(valid), "value": float(valid.mean())}]


def _measures(
    formulae: Sequence[Formula],
    answers: Sequence[Formula | None],
    traces: np.ndarray,
    variables: Sequence[str],
) -> dict[str, np.ndarray]:
    """Measures of n pairs, (n,) each, on traces (N, V, P)."""
    a = _values(formulae, traces, variables)
    b = np.zeros_like(a)
    places = [i for i, phi in enumerate(answers) if phi is not None]
    if places:
        b[places] = _values([phi for phi in answers if phi is not None], traces, variables)
    sign = np.ones_like(a)
    return {
        "cosine": _cosine(a, b),
        "centred correlation": _cosine(a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)),
        "L2 / sqrt(N)": np.sqrt(((a - b) ** 2).mean(1)),
        "cosine of a constant sign": np.abs(_cosine(a, sign)),
    }


def _values(
    formulae: Sequence[Formula], traces: np.ndarray, variables: Sequence[str]
) -> np.ndarray:
    """Robustness (n, N) float64."""
    values: np.ndarray = robustness(list(formulae), traces, variables=list(variables))
    return values.astype(np.float64)


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each pair of rows, (n,); 0 if one of the two is all zeros."""
    scale = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosine: np.ndarray = np.einsum("bn,bn->b", a, b) / np.where(scale > 0, scale, 1)
    return cosine


def _median(values: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    n = len(values)
    lower, middle, upper = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    drawn = np.median(values[rng.integers(n, size=(RESAMPLES, n))], axis=1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return {
        "n": n, "value": middle, "low": low, "high": high,
        "lower_quartile": lower, "upper_quartile": upper,
    }  # fmt: skip


# -- rows as text -----------------------------------------------------------------------------------


def spread(row: dict[str, Any]) -> str:
    """A row as text: median, its interval and the quartiles."""
    return (
        f"{row['value']:.4f} ({row['low']:.4f} to {row['high']:.4f}) "
        f"[{row['lower_quartile']:.3f}, {row['upper_quartile']:.3f}]"
    )


def constant_sign(rows: dict[str, dict[str, Any]]) -> str:
    """The baseline as a sentence, from rows by measure."""
    row = rows["cosine of a constant sign"]
    return (
        f"A formula of constant sign reaches a median cosine of {row['value']:.4f} "
        f"[{row['lower_quartile']:.3f}, {row['upper_quartile']:.3f}]."
    )
