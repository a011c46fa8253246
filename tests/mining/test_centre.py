"""The middle of what fits: exact integrals, and better formulae than the edge of the region."""

from __future__ import annotations

import numpy as np

import rhovec as rv
from rhovec.formula import operators as ops
from rhovec.mining.centre import _conditional, centred
from rhovec.mining.data import Candidate, Data, atom
from rhovec.mining.moves import SHIFT
from rhovec.mining.search import measured, numbers


def walks(n: int, seed: int, costs: tuple[float, float] = (1.0, 1.0)) -> tuple[Data, np.ndarray]:
    """Traces labelled by always[4,12] x_0 >= -0.3, and the labels."""
    values = np.asarray(rv.BaseMeasure(n_variables=2, points=20).sample(n, seed=seed), np.float64)
    labels = (values[:, 0, 4:13] >= -0.3).all(axis=1)
    return Data(values, labels, costs, np.zeros(2, bool)), labels


def always(lo: int, hi: int, threshold: float, op: int = ops.GE) -> Candidate:
    return (atom(op, 0, threshold), (ops.ALWAYS, lo, hi, -1, 0.0))


def test_the_integral_over_a_threshold_is_exact() -> None:
    data, _ = walks(40, 0, costs=(1.5, 0.7))
    rows = [
        always(3, 12, 0.0),
        (*always(2, 9, 0.0, ops.LE), atom(ops.GE, 1, 0.2), (ops.OR, 0, 0, -1, 0.0)),
    ]
    beta, margin = 0.8, 0.05
    logs, draws = _conditional(rows * 500, [0] * 1000, data, beta, margin, np.random.default_rng(0))
    for k, row in enumerate(rows):
        grid = np.linspace(data.lowest[0], data.highest[0], 4001)
        op = row[0][0]
        shifted = [((atom(op, 0, float(c)), *row[1:]), 0) for c in grid]
        critical = numbers(data, shifted[:1], np.float64)[0]
        sign = 1 if op == ops.GE else -1
        gaps = critical[None] - sign * grid[:, None]  # distance to the threshold, > 0 where true
        bad = np.where(data.positive, gaps < margin, gaps > -margin)
        density = np.exp(-beta * (bad * np.where(data.positive, 1.5, 0.7)).sum(axis=1))
        step = grid[1] - grid[0]
        assert np.isclose(logs[k], np.log(density.sum() * step), atol=0.02)
        mean = (grid * density).sum() / density.sum()
        assert abs(draws[k::2].mean() - mean) < 4 * draws[k::2].std() / np.sqrt(500)


def test_the_middle_labels_new_traces_better_than_the_edge() -> None:
    data, _ = walks(300, 1)
    fresh, truth = walks(4000, 2)
    edge = always(6, 12, -0.28)
    start, middle = (
        ((numbers(fresh, [(one, SHIFT)])[0] >= 0) != truth).mean()
        for one in (edge, centred(edge, data, 0))
    )
    assert middle < 0.01 < start
    assert measured(data, [centred(edge, data, 0)])[0].loss <= measured(data, [edge])[0].loss


def test_equal_samples_leave_no_room_for_a_threshold() -> None:
    """Between equal critical values the loss may be lower, but nothing lies there."""
    data, labels = walks(200, 4)
    with np.errstate(over="raise", invalid="raise"):
        logs, draws = _conditional(
            [always(4, 12, -0.3)] * 4, [0] * 4,
            Data(np.round(data.values, 1), labels, (1.0, 1.0), data.flags),
            50.0, 0.01, np.random.default_rng(0),
        )  # fmt: skip
    assert np.isfinite(logs).all() and np.isfinite(draws).all()


def test_a_wide_gap_stays_where_it_is() -> None:
    data, labels = walks(100, 3)
    values = data.values + np.where(labels, 1.0, -1.0)[:, None, None]
    apart = Data(values, labels, (1.0, 1.0), np.zeros(2, bool))
    phi = always(4, 12, -0.3)
    assert centred(phi, apart, 0) == phi


def test_flags_have_no_middle() -> None:
    values = np.random.default_rng(0).integers(0, 2, (50, 1, 10)).astype(float) - 0.5
    data = Data(values, values[:, 0, 2] > 0, (1.0, 1.0), np.ones(1, bool))
    phi = always(2, 2, 0.0)
    assert centred(phi, data, 0) == phi
