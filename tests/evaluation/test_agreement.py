"""The table of semantic agreement, by a second implementation, and with students of known quality."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.evaluation import agreement
from rhovec.evaluation.edits import edit_distances
from rhovec.evaluation.encoder import evaluate_encoder
from rhovec.evaluation.sets import FormulaSet, held_out
from rhovec.formula import Formula
from rhovec.tokens.text import encode

from .students import constant, perfect

KERNEL = rv.StlKernel(n_traces=400, seed=4)


@pytest.fixture(scope="module")
def families() -> FormulaSet:
    return held_out(12, seed=1, size=6, pairs=30)


def rows_of(embed: Any, formulae: FormulaSet, claim: str) -> dict[str, dict[str, Any]]:
    rows = evaluate_encoder(embed, KERNEL, [formulae], seed=2)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert all(row["set"] == formulae.name and row["sha256"] == formulae.sha256 for row in rows)
    return {row["measure"]: row for row in rows if row["claim"] == claim}


def test_a_perfect_student(families: FormulaSet) -> None:
    fidelity = rows_of(perfect(KERNEL), families, "fidelity")
    assert fidelity["alignment"]["value"] == pytest.approx(1, abs=1e-6)
    assert fidelity["centred alignment"]["value"] == pytest.approx(1, abs=1e-6)
    assert fidelity["mean absolute error"]["value"] < 1e-5
    assert fidelity["weighted loss"]["value"] < 1e-9
    uniformity = fidelity["uniformity"]
    assert uniformity["value"] == pytest.approx(uniformity["kernel_value"], abs=1e-5)
    assert fidelity["rank correlation"]["value"] > 0.999
    assert fidelity["overlap of 10 neighbours"]["value"] > 0.99
    agreed = rows_of(perfect(KERNEL), families, "agreement")
    assert set(agreed) == {
        "equivalent", "equivalent, simplifier leaves different", "random", "lexically similar",
        "same family", "operands swapped", "always-eventually",
    }  # fmt: skip
    for row in agreed.values():
        assert row["n"] > 0
        assert row["value"] < 1e-5
    for name in ("equivalent", "operands swapped"):
        assert agreed[name]["kernel"] == pytest.approx(1, abs=1e-9)
        assert agreed[name]["relative_kernel"] is None


def test_a_constant_student(families: FormulaSet) -> None:
    kernel = KERNEL.gram(families.formulae)
    b = len(kernel)
    fidelity = rows_of(constant, families, "fidelity")
    expected = (b * b - kernel.sum()) / (b * (b - 1))
    assert fidelity["mean absolute error"]["value"] == pytest.approx(expected, abs=1e-6)
    plain = kernel.sum() / np.linalg.norm(kernel) / b
    assert fidelity["alignment"]["value"] == pytest.approx(plain, abs=1e-6)
    assert fidelity["uniformity"]["value"] == pytest.approx(0, abs=1e-6)
    assert fidelity["centred alignment"]["value"] is None
    agreed = rows_of(constant, families, "agreement")
    for row in agreed.values():
        assert row["value"] == pytest.approx(1 - row["kernel"], abs=1e-6)
        assert row["relative"] is None
    assert agreed["same family"]["value"] > 0.3


def test_rows_against_a_second_implementation(families: FormulaSet) -> None:
    rng = np.random.default_rng(0)
    known: dict[Formula, np.ndarray] = {}

    def embed(formulae: list[Formula]) -> np.ndarray:
        for phi in formulae:
            z = known.setdefault(phi, np.abs(rng.normal(size=5)))
            z /= np.linalg.norm(z)
        return np.array([known[phi] for phi in formulae])

    found = rows_of(embed, families, "agreement")
    formulae, groups = families.formulae, families.groups
    edits = edit_distances([encode(phi) for phi in formulae])
    k = KERNEL.gram(formulae)
    lexical, related = [], []
    for i in range(len(formulae)):
        others = [j for j in range(len(formulae)) if k[i, j] < 0.7]
        j = min(others, key=lambda j: edits[i, j])
        lexical.append((formulae[i], formulae[j]))
        related += [(formulae[i], formulae[j]) for j in others if j > i and groups[i] == groups[j]]
    left = [pair for pair, x in zip(families.equivalent, families.unsimplified, strict=True) if x]
    columns = {
        "equivalent": families.equivalent,
        "equivalent, simplifier leaves different": left,
        "lexically similar": lexical,
        "same family": related,
    }
    for name, pairs in columns.items():
        truth = np.array([KERNEL.similarity(a, b) for a, b in pairs])
        answer = np.array([known[a] @ known[b] for a, b in pairs])
        row = found[name]
        assert row["n"] == len(pairs)
        assert row["value"] == pytest.approx(np.abs(truth - answer).mean(), abs=1e-6)
        assert row["low"] <= row["value"] <= row["high"]
        assert row["kernel"] == pytest.approx(truth.mean(), abs=1e-6)
        assert row["similarity"] == pytest.approx(answer.mean(), abs=1e-6)
        distance = 1 - answer
        assert row["relative"] == pytest.approx(distance.mean() / distance.max(), abs=1e-6)
        if row["relative_kernel"] is not None:
            distance = 1 - truth
            expected = distance.mean() / distance.max()
            assert row["relative_kernel"] == pytest.approx(expected, abs=1e-6)


def test_random_pairs_are_of_different_families(families: FormulaSet) -> None:
    i, j = agreement.random_pairs(families.groups, seed=0)
    assert (families.groups[i] != families.groups[j]).all()
    expected = len(families.groups) * agreement.PARTNERS * 11 / 12
    assert len(i) == pytest.approx(expected, rel=0.1)


def test_swapped_operands() -> None:
    texts = ["not ( ( x_0 >= 1 and always[0,3] ( x_1 <= 2 ) ) )", "always ( x_0 >= 1 )",
             "( x_0 >= 1 or x_0 >= 1 )", "( x_0 >= 1 until x_1 >= 1 )"]  # fmt: skip
    pairs, places = agreement.swapped_operands([rv.parse(text) for text in texts], seed=0)
    assert places.tolist() == [0]
    assert str(pairs[0][1]) == "not ( ( always[0,3] ( x_1 <= 2 ) and x_0 >= 1 ) )"
    formulae = rv.random_formulae(300, seed=0)
    pairs, places = agreement.swapped_operands(formulae, seed=0)
    first, second = (list(side) for side in zip(*pairs, strict=True))
    traces = rv.BaseMeasure().sample(20, seed=0)
    assert [formulae[i] for i in places] == first
    assert all(a != b for a, b in pairs)
    assert np.array_equal(rv.robustness(first, traces), rv.robustness(second, traces))


def test_exchanged_operators() -> None:
    texts = ["x_0 >= 1", "not ( always[0,9] ( eventually[2,3] ( x_0 >= 1 ) ) )",
             "always ( always ( x_0 >= 1 ) )", "eventually ( always[1,2] ( x_1 > 0 ) )"]  # fmt: skip
    pairs, places = agreement.exchanged_operators([rv.parse(text) for text in texts])
    assert places.tolist() == [1, 3]
    assert [str(psi) for _, psi in pairs] == [
        "not ( eventually[0,9] ( always[2,3] ( x_0 >= 1 ) ) )",
        "always ( eventually[1,2] ( x_1 > 0 ) )",
    ]


def test_always_eventually_is_told_apart_or_not() -> None:
    texts = [f"always[0,{n}] ( eventually[0,5] ( x_0 >= 0 ) )" for n in range(20, 60)]
    formulae = [rv.parse(text) for text in texts]
    pairs = FormulaSet("texts", "", formulae, np.arange(40), [], np.zeros(0, bool))
    good = rows_of(perfect(KERNEL), pairs, "agreement")
    row = good["always-eventually"]
    assert row["n"] == 40 and row["n_apart"] > 20 and row["told_apart"] == 1
    assert rows_of(constant, pairs, "agreement")["always-eventually"]["told_apart"] == 0
    assert good["equivalent"] == good["equivalent"] | {"n": 0, "value": None, "low": None}
    assert "same family" not in good


def test_what_text_tokens_cannot_spell_is_left_out() -> None:
    texts = ["x_0 >= 1", "x_1 >= 1 -> x_2 >= 1", "x_0 <= 1", "x_1 <= 2"]
    i, j = agreement.lexical_pairs([rv.parse(text) for text in texts], np.eye(4))
    assert i.tolist() == [0, 2, 3]
    assert j.tolist() == [2, 0, 2]
    for unspelled in (texts[1:2], texts[:2]):  # none at all, and none with a partner
        formulae = [rv.parse(text) for text in unspelled]
        i, j = agreement.lexical_pairs(formulae, np.eye(len(formulae)))
        assert len(i) == len(j) == 0


def test_a_student_without_unit_vectors_is_refused(families: FormulaSet) -> None:
    with pytest.raises(RhovecError, match="length 1"):
        evaluate_encoder(lambda formulae: 2 * constant(formulae), KERNEL, [families])
    with pytest.raises(RhovecError, match=r"\(72, D\)"):
        evaluate_encoder(lambda formulae: constant(formulae)[1:], KERNEL, [families])
