"""The measures: mu0's law against closed forms and its definition, seeds, streams, traces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from rhovec.errors import TraceError
from rhovec.traces import BaseMeasure, TraceMeasure
from rhovec.traces.measure import BLOCK

ODD = BaseMeasure(2, 12, mu0=0.5, sigma0=2.0, mu1=1.0, sigma1=0.5, q=0.3, q0=0.8)
N = 40_000


def with_numpy(measure: BaseMeasure, n: int) -> np.ndarray:
    return measure.sample(n, seed=1)


def with_torch(measure: BaseMeasure, n: int, device: str = "cpu") -> np.ndarray:
    torch = pytest.importorskip("torch")
    generator = torch.Generator(device).manual_seed(1)
    x = measure.sample_torch(n, generator, device)
    assert x.dtype == torch.float32
    assert x.device.type == device
    return x.cpu().numpy()


def with_cuda(measure: BaseMeasure, n: int) -> np.ndarray:
    return with_torch(measure, n, "cuda")


sources = pytest.mark.parametrize(
    "draw",
    [with_numpy, with_torch, pytest.param(with_cuda, marks=pytest.mark.gpu)],
    ids=["numpy", "torch", "cuda"],
)
Draw = Callable[[BaseMeasure, int], np.ndarray]


def assert_mean(values: np.ndarray, expected: float) -> None:
    """The mean of independent values is within 4.5 of its standard errors."""
    error = values.std() / np.sqrt(values.size)
    assert abs(values.mean() - expected) <= 4.5 * error, (values.mean(), expected, error)


def assert_moments(values: np.ndarray, mean: float, variance: float) -> None:
    assert_mean(values, mean)
    assert_mean((values - mean) ** 2, variance)


# -- the law of mu0 --------------------------------------------------------------------------------


@sources
@pytest.mark.parametrize("measure", [BaseMeasure(2, 12), ODD], ids=["default", "odd"])
def test_law(draw: Draw, measure: BaseMeasure) -> None:
    x = draw(measure, N).astype(np.float64)
    assert x.shape == (N, 2, 12)
    assert np.isfinite(x).all()
    m, s = measure.mu1, measure.sigma1
    for v in range(2):
        steps = np.diff(x[:, v])
        variation = abs(steps).sum(axis=1)
        assert_moments(x[:, v, 0], measure.mu0, measure.sigma0**2)
        assert_moments(variation, m**2 + s**2, 2 * s**4 + 4 * m**2 * s**2)

        # Spacings are Dirichlet(1, ..., 1): their moments, and their independence of the rest.
        # Those of a tiny total variation are lost in the rounding of x.
        large = variation > 1e-3
        spacings = abs(steps[large]) / variation[large, None]
        k = spacings.shape[1]
        for i in (0, 5, k - 1):
            assert_moments(spacings[:, i], 1 / k, (k - 1) / (k**2 * (k + 1)))
            assert_mean(spacings[:, i] ** 3, 6 / (k * (k + 1) * (k + 2)))
        product = (spacings[:, 2] - 1 / k) * (spacings[:, 7] - 1 / k)
        assert_mean(product, -1 / (k**2 * (k + 1)))
        assert_mean((spacings[:, 3] - 1 / k) * (variation[large] - variation[large].mean()), 0)

        signs = np.sign(steps[large])
        assert_mean((signs[:, 0] > 0).astype(float), measure.q0)
        turns = (signs[:, 1:] != signs[:, :-1]).astype(float)
        for i in (0, 4, k - 2):
            assert_mean(turns[:, i], measure.q)
        assert_mean((turns[:, 1] - measure.q) * (turns[:, 2] - measure.q), 0)
        start = x[large, v, 0] - measure.mu0
        assert_mean(start * (variation[large] - variation[large].mean()), 0)
        assert_mean(start * (signs[:, 0] - signs[:, 0].mean()), 0)


@sources
def test_variables_are_independent(draw: Draw) -> None:
    x = draw(ODD, N).astype(np.float64)
    for feature in (x[:, :, 0], np.diff(x).__abs__().sum(axis=2), x[:, :, -1] - x[:, :, 0]):
        a, b = (feature - feature.mean(axis=0)).T
        assert_mean(a * b, 0)


@sources
def test_law_is_that_of_the_definition(draw: Draw) -> None:
    """Sorted uniforms, as the definition says, against our way: Kolmogorov and Smirnov's test."""
    rng = np.random.default_rng(0)
    points = ODD.points
    uniforms = rng.random((N, points))
    uniforms[:, 0], uniforms[:, -1] = 0, 1
    spacings = np.diff(np.sort(uniforms, axis=1))
    signs = np.where(rng.random((N, points - 1)) < ODD.q, -1, 1)
    signs[:, 0] = np.where(rng.random(N) < ODD.q0, 1, -1)
    variation = (ODD.mu1 + ODD.sigma1 * rng.standard_normal(N)) ** 2
    start = ODD.mu0 + ODD.sigma0 * rng.standard_normal(N)
    steps = spacings * np.cumprod(signs, axis=1) * variation[:, None]
    path = np.cumsum(np.column_stack([start, steps]), axis=1)
    ours = draw(ODD, N)[:, 1]
    for feature in (
        lambda x: x[:, 6], lambda x: x[:, -1] - x[:, 0], lambda x: x.max(axis=1) - x.min(axis=1),
        lambda x: np.diff(x)[:, 8], lambda x: x[:, 9] - x[:, 4],
    ):  # fmt: skip
        a, b = np.sort(feature(path)), np.sort(feature(ours).astype(np.float64))
        both = np.concatenate([a, b])
        gap = np.searchsorted(a, both, "right") - np.searchsorted(b, both, "right")
        assert abs(gap).max() / N <= 1.95 * np.sqrt(2 / N)  # one in a thousand


@sources
@pytest.mark.parametrize("points", [1, 2, 3])
def test_few_points(draw: Draw, points: int) -> None:
    x = draw(BaseMeasure(2, points), 3000)
    assert x.shape == (3000, 2, points)
    assert np.isfinite(x).all()
    assert_moments(x[:, 0, 0].astype(np.float64), 0, 1)
    if points > 1:
        assert_moments(abs(np.diff(x[:, 0])).sum(axis=1).astype(np.float64), 1, 2)


# -- seeds and streams -----------------------------------------------------------------------------


def test_a_sample_is_a_prefix_of_a_larger_one() -> None:
    measure = BaseMeasure(points=7)
    whole = measure.sample(2 * BLOCK + 5, seed=3)
    for n in (1, 10, BLOCK, BLOCK + 1, 2 * BLOCK):
        assert np.array_equal(measure.sample(n, seed=3), whole[:n])
    assert measure.sample(seed=3).shape == (1000, 3, 7)


def test_blocks_are_the_sample() -> None:
    measure = BaseMeasure(2, 5)
    n = 12 * BLOCK + 1
    blocks = list(measure.blocks(n, seed=2))
    assert [len(b) for b in blocks] == [BLOCK] * 12 + [1]
    assert np.array_equal(np.concatenate(blocks), measure.sample(n, seed=2))
    assert len({b[0].tobytes() for b in blocks}) == 13


def test_a_stream_is_lazy() -> None:
    first, second = islice(BaseMeasure(1, 2).blocks(10**15), 2)
    assert len(first) == BLOCK
    assert not np.array_equal(first, second)


def test_a_variable_does_not_depend_on_the_others() -> None:
    few, many = BaseMeasure(1, 9).sample(50), BaseMeasure(4, 9).sample(50)
    assert np.array_equal(few[:, 0], many[:, 0])
    assert len({many[:, v].tobytes() for v in range(4)}) == 4


def test_seeds_differ_and_repeat() -> None:
    measure = BaseMeasure(points=4)
    assert np.array_equal(measure.sample(9, seed=1), measure.sample(9, seed=1))
    assert not np.array_equal(measure.sample(9, seed=1), measure.sample(9, seed=2))
    torch = pytest.importorskip("torch")
    a, b = (measure.sample_torch(9, torch.Generator().manual_seed(s)) for s in (1, 1))
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_variables": 0}, "at least one variable"),
        ({"points": 0}, "one point"),
        ({"q": 1.5}, "probabilities"),
        ({"q0": -0.1}, "probabilities"),
        ({"sigma0": -1}, "standard deviations"),
        ({"mu1": float("nan")}, "finite"),
    ],
)
def test_bad_parameters(options: dict, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        BaseMeasure(**options)


def test_bad_requests() -> None:
    with pytest.raises(TraceError, match="at least one trace"):
        BaseMeasure().sample(0)
    with pytest.raises(TraceError, match="seed must not be negative"):
        BaseMeasure().sample(1, seed=-1)


# -- traces ----------------------------------------------------------------------------------


def test_traces_are_given_as_they_are() -> None:
    x = np.random.default_rng(0).normal(size=(BLOCK + 3, 2, 4))
    measure = TraceMeasure(x, ["speed", "gear"])
    assert measure.variables == ("speed", "gear")
    assert measure.points == 4
    assert measure.count() == len(x)
    assert measure.count(7) == 7
    assert np.array_equal(np.concatenate(list(measure.blocks())), x)
    some = np.concatenate(list(measure.blocks(100, seed=5)))
    more = np.concatenate(list(measure.blocks(len(x), seed=5)))
    assert np.array_equal(some, more[:100])
    rows = {row.tobytes() for row in x}
    assert len({row.tobytes() for row in some} & rows) == 100
    assert not np.array_equal(some, np.concatenate(list(measure.blocks(100, seed=6))))


def test_traces_of_different_lengths_are_held() -> None:
    measure = TraceMeasure([np.array([[1.0, 2.0]]), np.array([[3.0, 4.0, 5.0]])])
    assert measure.variables == ("x_0",)
    assert np.concatenate(list(measure.blocks())).tolist() == [[[1, 2, 2]], [[3, 4, 5]]]


def test_traces_from_files(tmp_path: Path) -> None:
    file = tmp_path / "drive.csv"
    file.write_text("trace,time,speed,gear\na,0,1,1\na,1,2,1\nb,0,3,2\nb,1,4,2\n")
    measure = TraceMeasure.read(file, variables=["gear", "speed"])
    assert measure.variables == ("gear", "speed")
    assert measure.values.tolist() == [[[1, 1], [1, 2]], [[2, 2], [3, 4]]]
    assert repr(measure) == "TraceMeasure(2 of 2 points; gear, speed)"


def test_bad_traces() -> None:
    x = np.zeros((3, 2, 4))
    with pytest.raises(TraceError, match=r"array \(traces, variables, points\)"):
        TraceMeasure(x[0])
    with pytest.raises(TraceError, match="without a 0"):
        TraceMeasure(x[:0])
    with pytest.raises(TraceError, match="the list is empty"):
        TraceMeasure([])
    with pytest.raises(TraceError, match="each given once, not a, a"):
        TraceMeasure(x, ["a", "a"])
    with pytest.raises(TraceError, match="2 different names"):
        TraceMeasure(x, ["a"])
    with pytest.raises(TraceError, match="trace 1 has shape"):
        TraceMeasure([x[0], x[0, :1]])
    with pytest.raises(TraceError, match="4 traces were asked for, but there are 3"):
        TraceMeasure(x).count(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BaseMeasure(n_variables=1.5), "n_variables must be a whole number, not 1.5"),
        (lambda: BaseMeasure(points="9"), "points must be a whole number, not '9'"),
        (lambda: BaseMeasure(sigma0="1"), "sigma0 must be a number, not '1'"),
        (lambda: BaseMeasure().sample(1.5), "n_traces must be a whole number, not 1.5"),
        (lambda: BaseMeasure().sample(True), "n_traces must be a whole number, not True"),
        (lambda: BaseMeasure().sample(2, seed=0.5), "seed must be a whole number, not 0.5"),
        (lambda: TraceMeasure(np.zeros((3, 1, 2))).count("2"), "n_traces must be a whole number"),
        (lambda: TraceMeasure(np.zeros((1, 2, 3)), [0, 1]), "variables must be names, not 0"),
        (lambda: TraceMeasure(np.zeros((1, 2, 3)), ["a", ""]), "variables must be names, not ''"),
        (lambda: TraceMeasure(np.array([["a"]])), "array of real numbers"),
        (lambda: TraceMeasure([np.array([[1j]])]), "trace 0 must be .* real numbers"),
    ],
)
def test_arguments_of_the_wrong_type_are_named(call, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    measure = BaseMeasure(np.int64(2), np.int32(5), sigma0=np.float32(1))
    assert measure.sample(np.int64(3), seed=np.int64(1)).shape == (3, 2, 5)


def test_masked_values_are_refused() -> None:
    x = np.ma.masked_equal(np.arange(12.0).reshape(2, 2, 3), 7.0)
    with pytest.raises(TraceError, match="traces: 1 values are masked"):
        TraceMeasure(x)
    with pytest.raises(TraceError, match="trace 1: 1 values are masked"):
        TraceMeasure([x[0], x[1]])
    assert TraceMeasure(x[:1]).values.tolist() == [[[0, 1, 2], [3, 4, 5]]]
