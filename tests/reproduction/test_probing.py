"""The probes find what is in features and no more; their statistics are the textbook's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rhovec as rv
from reproduction import probing as module
from reproduction.probing import Probe, probing
from rhovec.errors import RhovecError
from rhovec.evaluation.sets import FormulaSet, complete_seeds

from ..evaluation.students import constant

SMALL = Probe(n_fit=300, n_validation=60, width=32, epochs=30, batch=64, decays=(0.1, 1.0))


@pytest.fixture(scope="module")
def tested() -> FormulaSet:
    formulae = complete_seeds(120)
    return FormulaSet("set", "0" * 64, formulae, np.arange(120), [], np.zeros(0, bool))


def synthetic(n: int = 2400) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, 6), and targets that are a linear and an even function of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 6)).astype(np.float32)
    return x, np.stack([x @ np.arange(6) + 3, np.abs(x[:, 0]) - 7], 1).astype(np.float64)


def test_two_layers_learn_what_a_linear_probe_cannot() -> None:
    x, y = synthetic()
    probe = Probe(n_fit=1500, n_validation=300, width=32, epochs=40, rate=0.01, decays=(0.0, 0.1))
    for fit, least, most in ((module._two_layers, 0.97, 1.0), (module._linear, -0.2, 0.2)):
        predicted, _ = module._choose(fit(x, y, probe, 0), y, probe)
        r = [np.corrcoef(predicted[1800:, j], y[1800:, j])[0, 1] for j in (0, 1)]
        assert r[0] > 0.99
        assert least < r[1] < most


def test_the_network_goes_by_its_seed() -> None:
    x, y = synthetic(400)
    probe = replace(SMALL, decays=(0.1,))
    (_, first), (_, again), (_, other) = (
        next(module._two_layers(x, y, probe, seed)) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_linear_probe_is_ridge_regression() -> None:
    """On features that share one deviation: one that varies ten times as much still does."""
    x, y = synthetic(400)
    x[:, 0] *= 10
    fitted = x[:300].astype(np.float64) - x[:300].mean(0, dtype=np.float64)
    z = fitted / fitted.std()
    for penalty, predicted in module._linear(x, y, SMALL, 0):
        weights = np.linalg.solve(z.T @ z + penalty * np.eye(6), z.T @ (y[:300] - y[:300].mean(0)))
        np.testing.assert_allclose(predicted[:300], z @ weights + y[:300].mean(0), atol=1e-6)


def test_validation_chooses_for_each_target() -> None:
    y = np.zeros((SMALL.n_fit + SMALL.n_validation + 5, 2))
    candidates = [(0.1, y + np.array([2, 1])), (0.2, y + np.array([1, 3]))]
    predicted, strengths = module._choose(iter(candidates), y, SMALL)
    assert strengths == [0.2, 0.1]
    assert np.array_equal(predicted, y + 1)


def test_statistics() -> None:
    rng = np.random.default_rng(1)
    truth = rng.standard_normal(200)
    guess = truth + 0.3 * rng.standard_normal(200)
    groups = np.repeat(np.arange(50), 4)
    draws = module._draws(groups, seed=0)
    assert (draws.reshape(-1, 50, 4) == draws[:, ::4, None]).all()  # families as a whole
    assert (draws.sum(1) == 200).all()
    found = module._statistics(truth, guess, draws)
    assert found["r"]["value"] == pytest.approx(np.corrcoef(truth, guess)[0, 1])
    assert found["MAE"]["value"] == pytest.approx(np.abs(truth - guess).mean())
    rows = np.repeat(np.arange(200), draws[7].astype(int))  # one resample, spelled out
    one = module._statistics(truth, guess, draws[7:8])
    assert one["r"]["low"] == pytest.approx(np.corrcoef(truth[rows], guess[rows])[0, 1])
    assert one["MAE"]["high"] == pytest.approx(np.abs(truth - guess)[rows].mean())
    for entry in found.values():
        assert entry["low"] < entry["value"] < entry["high"]
    assert module._statistics(truth, np.full(200, 0.1), draws)["r"]["value"] is None
    ratio = module._ratio([2 * np.abs(truth), np.abs(truth)], draws)
    assert ratio == pytest.approx({"value": 2, "low": 2, "high": 2})


def test_targets_are_means_over_traces_that_are_not_the_kernels(tested: FormulaSet) -> None:
    kernel = rv.StlKernel(rv.BaseMeasure(), 100, seed=4)
    found = module._targets(tested.formulae, kernel, seed=5)
    traces = rv.BaseMeasure().sample(1000, seed=5)
    assert found[:, 0] == pytest.approx(rv.robustness(tested.formulae, traces).mean(1), abs=1e-5)
    assert np.array_equal(found[:, 1], (rv.robustness(tested.formulae, traces) > 0).mean(1))


def test_rows(tested: FormulaSet) -> None:
    kernel = rv.StlKernel(rv.BaseMeasure(), 200, seed=4)
    student = rv.StlKernel(
        rv.BaseMeasure(), 64, seed=9
    ).signatures  # knows robustness up to a scale
    rows = probing(student, kernel, tested, SMALL)
    by_name = {row["measure"]: row for row in rows}
    assert len(by_name) == len(rows) == 2 * (2 + 2 * (2 * 2 + 1))
    assert {row["n"] for row in rows} == {120}
    for row in rows:
        assert row["low"] <= row["value"] <= row["high"]
        assert row["target_seeds"] == [5, 6] and row["kernel_seed"] == 4
    for kind in ("vectors", "kernel rows"):
        assert by_name[f"satisfaction probability: r, {kind}, two layers"]["value"] > 0.9
    assert by_name["average robustness: r, noise floor"]["value"] > 0.999
    assert by_name["average robustness: r, vectors, two layers"]["dimension"] == 64
    shown = {name: len(row["shown"]) for name, row in by_name.items() if "shown" in row}
    assert shown == {f"{target}: r, vectors, two layers": 120 for target in module.TARGETS}
    assert probing(student, kernel, tested, SMALL) == rows


def test_vectors_that_say_nothing(tested: FormulaSet) -> None:
    rows = probing(constant, rv.StlKernel(n_traces=100), tested, replace(SMALL, epochs=1))
    by_name = {row["measure"]: row for row in rows}
    assert by_name["average robustness: r, vectors, linear"]["value"] is None
    assert by_name["average robustness: MAE, vectors / kernel rows, linear"]["low"] > 1


def test_too_few_formulae(tested: FormulaSet) -> None:
    few = replace(tested, formulae=tested.formulae[:2], groups=np.arange(2))
    with pytest.raises(RhovecError, match="3 or more"):
        probing(constant, rv.StlKernel(n_traces=10), few, SMALL)
