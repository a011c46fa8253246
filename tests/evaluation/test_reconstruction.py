"""What is said of reconstructions: nothing left out, and a perfect answer is perfect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.evaluation import reconstruction as module
from rhovec.evaluation.reconstruction import reconstruction
from rhovec.formula import Formula

MEASURE = rv.BaseMeasure(n_variables=3)
FORMULAE = rv.random_formulae(40, seed=2)


def rows_of(
    answers: list[Formula | None], formulae: list[Formula] = FORMULAE
) -> dict[str, dict[str, Any]]:
    rows = reconstruction(formulae, answers, MEASURE, n_traces=1000, seed=5)
    assert all(row["claim"] == "reconstruction" and row["n_traces"] == 1000 for row in rows)
    return {row["measure"]: row for row in rows}


def test_the_formulae_themselves() -> None:
    rows = rows_of([rv.simplify(phi) for phi in FORMULAE])
    for name in ("cosine", "centred correlation"):
        for key in ("value", "low", "high", "lower_quartile"):
            assert rows[name][key] == pytest.approx(1)
    assert rows["L2 / sqrt(N)"]["upper_quartile"] == 0
    assert rows["valid"] == {"value": 1, "n": 40} | {
        key: rows["cosine"][key] for key in ("claim", "n_traces", "traces_seed")
    } | {"measure": "valid"}
    assert rows["nodes of the formula"]["value"] == np.median([phi.size for phi in FORMULAE])
    assert rows["nodes of the answer"]["value"] <= rows["nodes of the formula"]["value"]


def test_values_are_those_of_the_definitions() -> None:
    phi, psi = rv.parse("always[0,9] x_0 >= 0.2"), rv.parse("eventually x_1 <= 0.5")
    rows = rows_of([psi], [phi])
    traces = np.concatenate(list(MEASURE.blocks(1000, 5)))
    a, b = rv.robustness([phi, psi], traces).astype(np.float64)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert rows["cosine"]["value"] == pytest.approx(cosine)
    assert rows["centred correlation"]["value"] == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert rows["L2 / sqrt(N)"]["value"] == pytest.approx(np.linalg.norm(a - b) / 1000**0.5)


def test_the_baseline_is_what_a_constant_sign_reaches() -> None:
    traces = np.concatenate(list(MEASURE.blocks(1000, 5)))
    both = [
        module._measures(FORMULAE, [rv.parse(text)] * 40, traces, MEASURE.variables)["cosine"]
        for text in ("x_0 >= -100000", "x_0 <= -100000")
    ]
    found = rows_of(list(FORMULAE))["cosine of a constant sign"]
    assert found["value"] == pytest.approx(np.median(np.maximum(*both)), abs=1e-3)


def test_failures_count() -> None:
    answers = [phi if i % 4 else None for i, phi in enumerate(FORMULAE)]
    rows = rows_of(answers)
    assert rows["valid"]["value"] == 0.75
    assert rows["cosine"]["n"] == 40
    assert rows["nodes of the answer"]["n"] == 30
    assert rows["cosine"]["value"] == pytest.approx(1)
    nothing = rows_of([None] * 40)
    for name in ("cosine", "centred correlation", "valid"):
        assert nothing[name]["value"] == 0
    assert nothing["L2 / sqrt(N)"]["value"] > 0
    assert "nodes of the answer" not in nothing


def test_blocks_do_not_matter_and_intervals_hold_the_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Formula | None] = [*FORMULAE[1:], None]
    whole = rows_of(answers)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert rows_of(answers) == whole
    row = whole["cosine"]
    assert row["lower_quartile"] < row["low"] < row["value"] < row["high"] < row["upper_quartile"]


def test_what_cannot_be_judged() -> None:
    with pytest.raises(RhovecError, match="2 for 1"):
        reconstruction(FORMULAE[:1], FORMULAE[:2], MEASURE)
    with pytest.raises(RhovecError, match="0 for 0"):
        reconstruction([], [], MEASURE)
    with pytest.raises(RhovecError, match="1000 traces"):
        reconstruction(FORMULAE, FORMULAE, MEASURE, n_traces=100)
