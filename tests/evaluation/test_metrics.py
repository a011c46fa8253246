"""The measures, computed a second time in the plainest way."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.evaluation import metrics
from rhovec.evaluation.bootstrap import mean_interval
from rhovec.evaluation.fidelity import fidelity


@pytest.fixture(scope="module")
def kernel() -> np.ndarray:
    return rv.StlKernel(n_traces=500).gram(rv.random_formulae(40, seed=2))


@pytest.fixture(scope="module")
def vectors(kernel: np.ndarray) -> np.ndarray:
    values, columns = np.linalg.eigh(kernel)
    noise = np.random.default_rng(0).normal(0, 0.03, kernel.shape)
    rows = columns * np.sqrt(np.maximum(values, 0)) + noise
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_alignment_and_uniformity(kernel: np.ndarray, vectors: np.ndarray) -> None:
    b = len(kernel)
    ks = kk = ss = potential = kernel_potential = gap = 0.0
    for i in range(b):
        for j in range(b):
            k, s = kernel[i, j], float(np.dot(vectors[i], vectors[j]))
            ks, kk, ss = ks + k * s, kk + k * k, ss + s * s
            potential += math.exp(-2 * float(((vectors[i] - vectors[j]) ** 2).sum())) / b**2
            kernel_potential += math.exp(-2 * (2 - 2 * k)) / b**2
            gap += abs(k - s) / (b * (b - 1)) if i != j else 0
    found = fidelity(kernel, vectors @ vectors.T)
    assert found["alignment"]["value"] == pytest.approx(ks / math.sqrt(kk * ss), abs=1e-12)
    assert found["uniformity"]["value"] == pytest.approx(math.log(potential), abs=1e-9)
    assert found["uniformity"]["kernel_value"] == pytest.approx(
        math.log(kernel_potential), abs=1e-9
    )
    assert found["mean absolute error"]["value"] == pytest.approx(gap, abs=1e-12)
    for name in ("alignment", "mean absolute error", "uniformity", "overlap of 10 neighbours"):
        assert found[name]["low"] < found[name]["value"] < found[name]["high"]
    assert all(entry["n"] == b for entry in found.values())


def test_centred_alignment_is_that_of_centred_features(kernel: np.ndarray) -> None:
    h = np.eye(len(kernel)) - 1 / len(kernel)
    other = kernel**2
    a, b = h @ kernel @ h, h @ other @ h
    expected = np.trace(a @ b) / math.sqrt(np.trace(a @ a) * np.trace(b @ b))
    assert metrics.centred_alignment(kernel, other) == pytest.approx(expected, abs=1e-12)
    assert metrics.centred_alignment(kernel, 0.5 * kernel + 0.3) == pytest.approx(1, abs=1e-12)
    assert math.isnan(metrics.centred_alignment(kernel, np.ones_like(kernel)))


def test_weighted_loss(kernel: np.ndarray, vectors: np.ndarray) -> None:
    similarity = vectors @ vectors.T
    similarity[3, 5] = similarity[5, 3] = 9.0  # an outlier that meets the cap
    for gamma, cap in ((2.0, 10.0), (1.0, 3.0)):
        gaps = [abs(k - s) for k, s in zip(kernel.flat, similarity.flat, strict=True)]
        mean = sum(g**gamma for g in gaps) / len(gaps)
        loss = sum(min(g**gamma / mean, cap) * g * g for g in gaps) / len(gaps)
        found = metrics.weighted_loss(kernel, similarity, gamma, cap)
        assert found == pytest.approx(loss, rel=1e-12)
    assert metrics.weighted_loss(kernel, kernel) == 0


def test_rank_correlation() -> None:
    rng = np.random.default_rng(1)
    k, s = rng.integers(0, 6, (2, 12, 12)).astype(float)  # with ties
    pairs = [(i, j) for i in range(12) for j in range(i + 1, 12)]

    def ranks(m: np.ndarray) -> list[float]:
        x = [m[p] for p in pairs]
        return [sum(v < u for v in x) + (sum(v == u for v in x) - 1) / 2 for u in x]

    expected = np.corrcoef(ranks(k), ranks(s))[0, 1]
    assert metrics.rank_correlation(k, s) == pytest.approx(expected, abs=1e-12)
    assert metrics.rank_correlation(k, np.exp(k)) == pytest.approx(1)
    assert math.isnan(metrics.rank_correlation(k, np.ones_like(k)))


def test_neighbour_shares(kernel: np.ndarray, vectors: np.ndarray) -> None:
    similarity = vectors @ vectors.T
    for k in (1, 5, 10):
        shares = []
        for i in range(len(kernel)):
            others = [j for j in range(len(kernel)) if j != i]
            near = [set(sorted(others, key=lambda j: -m[i, j])[:k]) for m in (kernel, similarity)]
            shares.append(len(near[0] & near[1]) / k)
        assert metrics.neighbour_shares(kernel, similarity, k) == pytest.approx(shares)
    # Three formulae that mean the same: whichever of them is found is right.
    tied = np.eye(4) * 0.5 + 0.5
    assert (metrics.neighbour_shares(tied, np.random.default_rng(0).random((4, 4)), 1) == 1).all()


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    # Pairs of formulae with effects of their own, in groups that share one: the mean is 1.
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 3)
    i, j = np.triu_indices(60, 1)
    inside = 0
    for seed in range(200):
        effect = np.exp(rng.normal(0, 0.5, 20) - 0.125)[groups]
        values = np.where(groups[i] == groups[j], 1.0, effect[i] * effect[j])
        low, high = mean_interval(values, groups[i], groups[j], seed)
        inside += low <= 1 <= high
    assert 0.84 * 200 <= inside <= 0.99 * 200  # 20 groups are few: such intervals are a bit short


def test_few_formulae_are_refused() -> None:
    with pytest.raises(RhovecError, match="2 formulae or more, not 1"):
        fidelity(np.eye(1), np.eye(1))
