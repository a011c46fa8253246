"""Certificates against brute force: every formula of the class, evaluated by the engine."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product

import numpy as np
import pytest

import rhovec as rv
from rhovec.formula import operators as ops
from rhovec.mining.cuts import cut_values
from rhovec.mining.data import Data, Node, Scale, atom, candidate_of, dual, has_empty_band, plain
from rhovec.mining.rounding import shortest
from rhovec.mining.scan import Scan, grid, one_operator, two_operators, untils, widths
from rhovec.mining.search import SHIFT, Search, measured, numbers, settled


def random_data(
    seed: int, n: int = 14, channels: int = 2, points: int = 5, costs: tuple[float, float] = (1, 1)
) -> tuple[Data, Scale, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = (
        rng.integers(-4, 5, (n, channels, points)) * np.array([1.0, 10.0, 3.0])[:channels, None]
    )
    scale = Scale.of(values, [f"x_{i}" for i in range(channels)])
    labels = rng.permutation(np.arange(n) < n // 2)
    return Data(scale.standardise(values), labels, costs, scale.flags), scale, values


def losses_of(texts: Iterable[object], data: Data, values: np.ndarray) -> np.ndarray:
    holds = rv.satisfaction([str(text) for text in texts], values)
    miss, alarm = data.costs
    wrong: np.ndarray = miss * (data.positive & ~holds).sum(axis=1)
    return wrong + alarm * (~data.positive & holds).sum(axis=1)


def require_true_losses(scan: Scan, data: Data, scale: Scale, values: np.ndarray) -> None:
    best = scan.best[:40]
    formulae = [scale.formula(candidate) for _, _, candidate in best]
    assert losses_of(formulae, data, values).tolist() == [loss for loss, _, _ in best]
    assert [one.loss for one in measured(data, [c for _, _, c in best])] == [b[0] for b in best]


def middles(values: np.ndarray) -> np.ndarray:
    """A threshold in every gap, so that no two formulae of the class differ between them."""
    levels = np.unique(values)
    return (levels[1:] + levels[:-1]) / 2


def atoms(values: np.ndarray) -> list[str]:
    return [
        f"x_{v} {op} {c}"
        for v in range(values.shape[1])
        for op in (">=", "<=")
        for c in middles(values[:, v])
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("costs", [(1.0, 1.0), (3.0, 1.0)])
def test_one_operator_is_exhaustive(seed: int, costs: tuple[float, float]) -> None:
    data, scale, values = random_data(seed, costs=costs)
    scan = one_operator(data)
    points = values.shape[2]
    everything = [
        f"{op}[{lo},{hi}] {atom}"
        for op in ("always", "eventually")
        for lo in range(points)
        for hi in range(lo, points)
        for atom in atoms(values)
    ]
    assert scan.complete
    assert scan.best[0][0] == losses_of(everything, data, values).min()
    require_true_losses(scan, data, scale, values)
    assert scan.tried == 2 * 2 * points * (points + 1) // 2


@pytest.mark.parametrize("seed", range(3))
def test_two_operators_are_exhaustive_on_their_grid(seed: int) -> None:
    data, scale, values = random_data(seed, channels=1)
    points = values.shape[2]
    scan = two_operators(data, n_times=3, n_widths=2)
    times, inner = grid(points, 3), widths(points, 2)
    everything = [
        f"{a}[{lo},{hi}] {b}[0,{width}] {atom}"
        for a, b in (("always", "eventually"), ("eventually", "always"))
        for lo, hi in product(times, times)
        if lo <= hi
        for width in inner
        for atom in atoms(values)
    ]
    assert scan.best[0][0] == losses_of(everything, data, values).min()
    require_true_losses(scan, data, scale, values)


@pytest.mark.parametrize("seed", range(3))
def test_until_is_exhaustive_on_its_grid(seed: int) -> None:
    data, scale, values = random_data(seed, n=12)
    scan = untils(data, n_times=3, n_levels=50)  # more quantiles than values: all thresholds
    assert scan is not None
    times = grid(values.shape[2], 3)
    everything = [
        text
        for lo, hi in product(times, times)
        if lo <= hi
        for a in atoms(values)
        for b in atoms(values)
        for text in (f"({a}) until[{lo},{hi}] ({b})", f"not (({a}) until[{lo},{hi}] ({b}))")
    ]
    assert scan.best[0][0] == losses_of(everything, data, values).min()
    require_true_losses(scan, data, scale, values)


def test_too_many_windows_are_thinned_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rhovec.mining.scan.MAX_NUMBERS", 2000)
    data, _, _ = random_data(0, points=40)
    scan = one_operator(data)
    assert not scan.complete
    monkeypatch.setattr("rhovec.mining.scan.MAX_UNTILS", 1)
    assert untils(data) is None
    assert "bounds from" in scan.windows and scan.tried * data.n_traces <= 3000


def test_cuts_against_brute_force() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-6, 7, (200, 23)).astype(np.float32) * np.float32(0.37)
    values[:, :3] = np.array([-1e20, 1e20, 1e20], np.float32)
    labels = rng.random(23) < 0.4
    loss, gap, at = cut_values(values, labels, (2.0, 1.0))
    for row, losses, gaps, places in zip(values, loss, gap, at, strict=True):
        levels = np.unique(row[np.abs(row) < 1e6])
        tried = [
            (
                [2 * (labels & ~up).sum() + (~labels & up).sum() for up in (row >= c, row < c)],
                float(high) - float(low),
            )
            for low, high in pairwise(levels)
            for c in [(float(low) + float(high)) / 2]
        ]
        for d in (0, 1):
            best = min(one[0][d] for one in tried)
            assert losses[d] == best
            assert gaps[d] == pytest.approx(max(w for one, w in tried if one[d] == best), rel=1e-5)
            up = row >= places[d] if d == 0 else row < places[d]
            assert 2 * (labels & ~up).sum() + (~labels & up).sum() == best


def formulae() -> list[str]:
    return [
        "always[1,3] ((x_0 >= 0.5 and x_1 <= 4) or eventually[0,2] x_1 >= 11)",
        "(x_0 >= -1.5) until[1,4] (x_1 <= -5)",
        "((x_0 <= 2.5) release[0,3] (x_1 >= -15)) and eventually x_0 >= 2.5",
        "eventually[0,2] ((x_0 >= 0.5) until[0,2] ((x_1 <= 5) release[1,2] (x_0 <= 3.5)))",
        "not (x_0 >= 0.5 -> always[0,1] x_1 < 5)",
    ]


@pytest.mark.parametrize("text", formulae())
def test_critical_values_decide_a_threshold(text: str) -> None:
    """The candidate with one threshold at c holds exactly where its number is at least c."""
    data, scale, values = random_data(3, n=40)
    candidate = candidate_of(rv.parse(text), scale, data.points)
    assert candidate is not None
    robust = rv.robustness(text, values, variables=scale.names)
    shifted = numbers(data, [(candidate, SHIFT)])[0]
    assert ((shifted >= 0) == (robust >= 0)).all()
    for free in [SHIFT, *(i for i, node in enumerate(candidate) if node[3] >= 0)]:
        critical = numbers(data, [(candidate, free)], np.float64)[0]
        finite = np.unique(critical[np.abs(critical) < 1e6])
        for low, high in pairwise(finite):
            if high - low < 1e-9:  # the same number, but for rounding
                continue
            at = (low + high) / 2
            for direction in (0, 1):
                phi = scale.formula(settled((candidate, free), float(at), direction, data.flags))
                holds = rv.robustness(phi, values, variables=scale.names) >= 0
                assert (holds == ((critical < at) if direction else (critical >= at))).all()


def test_a_dual_has_the_other_sign() -> None:
    data, scale, _ = random_data(5)
    for text in formulae():
        candidate = candidate_of(rv.parse(text), scale, data.points)
        assert candidate is not None
        a, b = numbers(data, [(candidate, SHIFT), (dual(candidate), SHIFT)])
        assert np.array_equal(a, -b)


def test_until_at_one_moment_is_and() -> None:
    data, scale, values = random_data(2)
    for text, same in (("until", "and"), ("release", "or")):
        phi = candidate_of(rv.parse(f"(x_0 >= 0.5) {text}[0,0] (x_1 <= 5)"), scale, data.points)
        assert phi is not None
        assert str(scale.formula(plain(phi))) == f"( x_0 >= 0.5 {same} x_1 <= 5 )"
        a, b = rv.robustness([scale.formula(phi), scale.formula(plain(phi))], values)
        assert np.array_equal(a, b)


def test_formulae_that_the_search_does_not_know_are_left_out() -> None:
    _, scale, _ = random_data(0)
    for text in ("once x_0 > 1", "x_0 - x_1 > 2", "x_0 > 1 <-> x_1 > 1", "x_7 > 0"):
        assert candidate_of(rv.parse(text), scale, 5) is None


@pytest.mark.parametrize(
    ("low", "high", "number"),
    [(0.26, 0.34, 0.3), (-1.0, 2.0, 0.0), (1234.4, 1234.6, 1234.5), (95.0, 106.0, 100.0),
     (-0.00123, -0.00121, -0.00122), (0.1234567, 0.1234567, 0.1234567), (6, 9, 8.0)],
)  # fmt: skip
def test_shortest_numbers(low: float, high: float, number: float) -> None:
    assert shortest(low, high) == pytest.approx(number, rel=1e-12, abs=1e-300)


def test_bands_that_a_shift_emptied_are_known() -> None:
    low, high = atom(ops.GE, 0, 1.0), atom(ops.LE, 0, 2.0)
    both: Node = (ops.AND, 0, 0, -1, 0.0)
    either: Node = (ops.OR, 0, 0, -1, 0.0)
    always: Node = (ops.ALWAYS, 0, 5, -1, 0.0)
    assert not has_empty_band((low, high, both, always))
    assert has_empty_band((low, high, either, always))
    shifted = settled(((low, high, both, always), SHIFT), 0.6, 0, np.zeros(1, bool))
    assert has_empty_band(shifted) and not has_empty_band((*shifted[:2], either))
    assert not has_empty_band((atom(ops.GE, 1, 1.6), high, both))
    # In the search such a candidate is not kept.
    values = np.random.default_rng(0).normal(size=(40, 1, 6))
    search = Search(Data(values, values[:, 0, 0] > 0, (1.0, 1.0), np.zeros(1, bool)), 5, 0, 0)
    search.offer([shifted])
    assert not search.archive
