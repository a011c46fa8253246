"""Differentiable robustness: values against the oracle, gradients against finite differences, the
smooth version against its definition and its error bound. Random formulae with every operator."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import FormulaError, RhovecError
from rhovec.robustness import reference

pytest.importorskip("torch")
import torch

from rhovec.robustness import autograd

from .contract import EngineContract, lagged, mirrored


class TestContract(EngineContract):
    """The hard values, as every engine's."""

    formulae = 240

    def evaluate(
        self,
        formulae: list[rv.Formula],
        traces: np.ndarray,
        trace: bool,
        end: str,
        boolean: bool = False,
    ) -> np.ndarray:
        x = torch.from_numpy(traces).requires_grad_()
        value = rv.satisfaction if boolean else rv.robustness
        return value(formulae, x, trace=trace, end=end).detach().numpy()


class TestContractFloat64(TestContract):
    dtype = np.float64


ATOMS = ("x_0 >= {}", "x_1 <= {}", "x_0 < {}", "x_1 > {}")
LINEAR = ("x_1 - 0.5 * x_0 >= {}", "x_0 + x_1 + x_2 < {}")
CONSTANTS = ("true", "false")
BOUNDS = ("", "[0,0]", "[0,1]", "[0,5]", "[1,4]", "[2,2]", "[3,9]", "[0,31]", "[20,500]", "[1,inf]",
          "[4,inf]", "[30,inf]")  # fmt: skip


AHEAD = ["not", "X", "G", "F", "and", "or", "->", "<->", "U", "U"]
BACK = ["rise", "Y", "H", "O", "S", "S"]


def random_text(
    rng: np.random.Generator, depth: int, leaves: tuple[str, ...], past: bool = False
) -> str:
    if depth == 0 or rng.random() < 0.15:
        return str(rng.choice(leaves)).format(round(float(rng.normal()), 3))
    operator = str(rng.choice(AHEAD + BACK if past else AHEAD))
    left = random_text(rng, depth - 1, leaves, past)
    bounds = rng.choice(BOUNDS) if operator in "GFUHOS" else ""
    if operator in ("not", "rise", *"XGFYHO"):
        return f"{operator}{bounds} ({left})"
    return f"({left}) {operator}{bounds} ({random_text(rng, depth - 1, leaves, past)})"


def random_formulae(
    n: int,
    seed: int,
    leaves: tuple[str, ...] = (*ATOMS, *LINEAR, *CONSTANTS),
    past: bool = False,
) -> list[rv.Formula]:
    rng = np.random.default_rng(seed)
    return [rv.parse(random_text(rng, int(rng.integers(1, 5)), leaves, past)) for _ in range(n)]


def with_lags(formulae: list[rv.Formula]) -> list[rv.Formula]:
    rng = np.random.default_rng(0)
    return [lagged(phi, rng, 2) for phi in formulae]


def random_traces(n: int, points: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3, points))


def leaf(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, requires_grad=True)


def thresholds_of(formulae: list[rv.Formula]) -> np.ndarray:
    return np.array([t for phi in formulae for _, _, _, c, t in phi.rows() if c is not None])


def oracle(formulae: list[rv.Formula], traces: np.ndarray, end: str = "hold") -> np.ndarray:
    named = {f"x_{i}": traces[:, i] for i in range(traces.shape[1])}
    return np.stack([reference.robustness_trace(phi, named, end) for phi in formulae])


# -- hard ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [1, 2, 7, 33])
def test_values_are_the_oracles(points: int) -> None:
    formulae, traces = random_formulae(150, seed=points), random_traces(3, points)
    expected = oracle(formulae, traces)
    trace = rv.robustness(formulae, leaf(traces), trace=True)
    np.testing.assert_array_equal(trace.detach(), expected)
    start = rv.robustness(formulae, leaf(traces))
    np.testing.assert_array_equal(start.detach(), expected[:, :, 0])
    single = rv.robustness(formulae, leaf(traces.astype(np.float32)), trace=True).detach()
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, rtol=1e-6, atol=1e-6)


def test_strict_values_are_the_oracles() -> None:
    traces = random_traces(3, 35)
    formulae = [phi for phi in random_formulae(300, seed=5) if phi.horizon < 35]
    assert len(formulae) > 150
    expected = oracle(formulae, traces, "strict")
    assert np.isnan(expected).any()
    trace = rv.robustness(formulae, leaf(traces), trace=True, end="strict").detach()
    np.testing.assert_array_equal(trace, expected)
    start = rv.robustness(formulae, leaf(traces), end="strict").detach()
    np.testing.assert_array_equal(start, expected[:, :, 0])


def test_formulae_of_one_shape_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    shapes = ("G[0,3] (({}) U[1,4] ({}))", "F (({}) and not (({}) or true))", "G true", "G false")
    formulae = [
        rv.parse(
            str(rng.choice(shapes)).format(*(random_text(rng, 0, ATOMS + LINEAR) for _ in "ab"))
        )
        for _ in range(60)
    ]
    traces = leaf(random_traces(4, 9))
    together = rv.robustness(formulae, traces, trace=True)
    alone = torch.stack([rv.robustness(phi, traces, trace=True) for phi in formulae])
    assert torch.equal(together, alone)
    monkeypatch.setattr(autograd, "BLOCK", 3 * 4 * 9)
    assert torch.equal(together, rv.robustness(formulae, traces, trace=True))


def differences(values: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """(forward, backward) differences from values at moves(k, step), (2 k + 1,)."""
    up, down = np.split(values[1:], 2)
    return (up - values[0]) / step, (values[0] - down) / step


def moves(size: int, step: float) -> np.ndarray:
    """No move, then each coordinate up, then each down: (2 size + 1, size)."""
    return step * np.concatenate([np.zeros((1, size)), np.eye(size), -np.eye(size)])


def gradients_and_differences(
    phi: rv.Formula, x: np.ndarray, step: float, temperature: float | None = None
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(gradient, forward, backward differences) with respect to one trace (V, P), and to the
    thresholds. A moved trace is another trace, moved thresholds are another formula."""
    c = thresholds_of([phi])
    trace, constants = leaf(x[None]), leaf(c)
    value = rv.robustness(phi, trace, thresholds=constants, temperature=temperature)
    by_trace, by_constants = torch.autograd.grad(value.sum(), (trace, constants))

    moved = leaf(x + moves(x.size, step).reshape(-1, *x.shape))
    on_traces = rv.robustness(phi, moved, temperature=temperature)
    copies = c + moves(len(c), step)
    on_constants = rv.robustness(
        [phi] * len(copies), trace, thresholds=copies.ravel(), temperature=temperature
    )[:, 0]
    return [
        (by_trace.numpy().ravel(), *differences(on_traces.detach().numpy(), step)),
        (by_constants.numpy(), *differences(on_constants.detach().numpy(), step)),
    ]


@pytest.mark.parametrize("past", [False, True])
def test_gradients_are_finite_differences_away_from_ties(past: bool) -> None:
    compared = []
    formulae = random_formulae(80, seed=2, leaves=ATOMS + LINEAR, past=past)
    for seed, phi in enumerate(with_lags(formulae) if past else formulae):
        x = random_traces(1, 8, seed)[0]
        for gradient, forward, backward in gradients_and_differences(phi, x, step=1e-6):
            smooth = np.abs(forward - backward) < 1e-6
            np.testing.assert_allclose(gradient[smooth], forward[smooth], atol=1e-6)
            compared.append(smooth)
    assert np.concatenate(compared).mean() > 0.99


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("values", [(0.0,), (0.0, 1.0), (-1.0, 0.0, 2.0)])
def test_ties_and_constants_go_to_one_witness(values: tuple[float, ...], past: bool) -> None:
    rng = np.random.default_rng(3)
    leaves = tuple(atom.format(v) for atom in ATOMS for v in values) + CONSTANTS
    for phi in random_formulae(120, seed=4, leaves=leaves, past=past):
        trace = leaf(rng.choice(values, size=(1, 3, 9)))
        constants = leaf(thresholds_of([phi]))
        value = rv.robustness(phi, trace, thresholds=constants)
        if math.isinf(value.item()):
            assert not value.requires_grad
            continue
        by_trace, by_constant = torch.autograd.grad(value.sum(), (trace, constants))
        assert by_trace.count_nonzero() == by_constant.count_nonzero() == 1
        assert by_trace.sum() == -by_constant.sum()
        assert by_trace.abs().sum() == 1


def test_trace_gradients_of_strict_are_finite() -> None:
    formulae, traces = random_formulae(90, seed=6, past=True), leaf(random_traces(2, 35))
    formulae = [phi for phi in formulae if phi.horizon + phi.history < 35]
    assert any(phi.history for phi in formulae)
    for temperature in (None, 0.1):
        value = rv.robustness(formulae, traces, trace=True, end="strict", temperature=temperature)
        (gradient,) = torch.autograd.grad(value[value.isfinite()].sum(), traces)
        assert gradient.isfinite().all() and gradient.abs().sum() > 0


@pytest.mark.gpu
@pytest.mark.parametrize("temperature", [None, 0.1])
def test_cuda_equals_cpu(temperature: float | None) -> None:
    formulae, traces = random_formulae(60, seed=10), random_traces(3, 33)
    formulae += with_lags(random_formulae(60, seed=11, past=True))
    constants = thresholds_of(formulae)
    found = []
    for device in ("cpu", "cuda"):
        x = torch.tensor(traces, device=device, requires_grad=True)
        c = torch.tensor(constants, device=device, requires_grad=True)
        value = rv.robustness(formulae, x, thresholds=c, trace=True, temperature=temperature)
        assert value.device.type == device
        gradients = torch.autograd.grad(value[value.isfinite()].sum(), (x, c))
        found.append([t.detach().cpu() for t in (value, *gradients)])
    for cpu, cuda in zip(*found, strict=True):
        np.testing.assert_allclose(cuda, cpu, atol=1e-9)


def test_deep_formulae() -> None:
    atom, depth = "x_0 >= 0.5", 10_000
    phi = rv.parse(f"({atom} and not (" * depth + atom + "))" * depth)
    trace = leaf(np.full((1, 1, 1), 2.0))
    (gradient,) = torch.autograd.grad(rv.robustness(phi, trace), trace)
    assert gradient.abs().item() == 1


# -- smooth --------------------------------------------------------------------------------------


def soft_max(values: list[np.ndarray], temperature: float) -> np.ndarray:
    total: np.ndarray = np.logaddexp.reduce(np.stack(values) / temperature)
    return temperature * total


def soft_min(values: list[np.ndarray], temperature: float) -> np.ndarray:
    return -soft_max([-v for v in values], temperature)


@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("bounds", [(0, 0), (0, 6), (1, 1), (2, 8), (5, 9), (3, None), (0, None)])
def test_smooth_operators_are_their_definition(
    bounds: tuple[int, int | None], temperature: float
) -> None:
    points = 13
    traces = random_traces(2, points)
    a, b = traces[:, 0], traces[:, 1]
    lo, hi = bounds[0], points if bounds[1] is None else bounds[1]
    text = f"[{lo},{'inf' if bounds[1] is None else hi}]"
    always, eventually, until = rv.robustness(
        [f"G{text} x_0 >= 0", f"F{text} x_0 >= 0", f"(x_0 >= 0) U{text} (x_1 >= 0)"],
        torch.tensor(traces), trace=True, temperature=temperature,
    ).numpy()  # fmt: skip
    for t in range(points):
        first, last = min(t + lo, points - 1), min(t + hi, points - 1)
        window = [a[:, s] for s in range(first, last + 1)]
        np.testing.assert_allclose(always[:, t], soft_min(window, temperature), atol=1e-12)
        np.testing.assert_allclose(eventually[:, t], soft_max(window, temperature), atol=1e-12)
        u = soft_min([a[:, last], b[:, last]], temperature)
        for s in range(last - 1, first - 1, -1):
            u = soft_min([a[:, s], soft_max([b[:, s], u], temperature)], temperature)
        before = [a[:, s] for s in range(t, min(t + lo, points))]
        np.testing.assert_allclose(until[:, t], soft_min([*before, u], temperature), atol=1e-12)


@pytest.mark.parametrize("tied", [False, True])  # the error is largest where all operands tie
@pytest.mark.parametrize("points", [1, 6, 33])
def test_smooth_error_bound_holds_and_vanishes(points: int, tied: bool) -> None:
    leaves = ("x_0 >= 0", "x_1 <= 0") if tied else (*ATOMS, *LINEAR, *CONSTANTS)
    formulae = random_formulae(120, seed=7, leaves=leaves)
    formulae += random_formulae(50, seed=8, leaves=leaves, past=True)
    formulae.append(rv.parse("F[0,5] not ((x_0 >= 0) U[2,4] (x_1 <= 0))"))
    traces = random_traces(3, points) * (0 if tied else 1)
    hard = oracle(formulae, traces)
    finite = np.isfinite(hard).all((1, 2))
    used = 0.0
    for temperature in (2.0, 0.1, 1e-5):
        smooth = rv.robustness(formulae, leaf(traces), trace=True, temperature=temperature)
        smooth = smooth.detach().numpy()
        np.testing.assert_array_equal(smooth[~finite], hard[~finite])
        error = np.abs(smooth[finite] - hard[finite]).max((1, 2))
        bound = np.array([
            autograd.smooth_error_bound(phi, temperature, points)
            for phi, kept in zip(formulae, finite, strict=True) if kept
        ])  # fmt: skip
        assert (error <= bound + 1e-12).all()
        assert error.max() < 100 * temperature
        used = max(used, (error[bound > 0] / bound[bound > 0]).max())
    assert used > 0.5  # the bound is no idle one


@pytest.mark.parametrize("points", [1, 6, 33])
def test_smooth_past_operators_mirror_the_future_ones(points: int) -> None:
    formulae = with_lags(random_formulae(120, seed=12))
    traces = random_traces(3, points)
    ahead = rv.robustness(formulae, leaf(traces), trace=True, temperature=0.3)
    reversed_traces = leaf(traces[:, :, ::-1].copy())
    back = rv.robustness(
        [mirrored(phi) for phi in formulae], reversed_traces, trace=True, temperature=0.3
    )
    np.testing.assert_allclose(back.detach().flip(-1), ahead.detach(), atol=1e-12)


@pytest.mark.parametrize("past", [False, True])
def test_smooth_gradients_are_finite_differences_everywhere(past: bool) -> None:
    formulae = random_formulae(60, seed=8, leaves=ATOMS + LINEAR, past=past)
    for seed, phi in enumerate(with_lags(formulae) if past else formulae):
        x = random_traces(1, 8, seed)[0]
        for gradient, forward, backward in gradients_and_differences(phi, x, 1e-5, 0.3):
            np.testing.assert_allclose(gradient, (forward + backward) / 2, atol=1e-7)


def test_smooth_stays_finite_in_single_precision() -> None:
    traces = leaf(100 * random_traces(2, 33).astype(np.float32))
    formulae = random_formulae(60, seed=9, leaves=ATOMS + LINEAR)
    value = rv.robustness(formulae, traces, temperature=1e-4)
    (gradient,) = torch.autograd.grad(value.sum(), traces)
    assert value.isfinite().all() and gradient.isfinite().all()
    np.testing.assert_allclose(
        value.detach(), rv.robustness(formulae, traces).detach(), rtol=1e-4, atol=1e-2
    )


# -- mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_named() -> None:
    traces = torch.zeros(1, 2, 5)
    phi = "G (x_0 >= 1 and x_1 <= 2)"
    with pytest.raises(FormulaError, match=r"shape \(2,\), one number an atom .* not \(3,\)"):
        rv.robustness(phi, traces, thresholds=torch.zeros(3))
    with pytest.raises(FormulaError, match="finite"):
        rv.robustness(phi, traces, thresholds=torch.tensor([0.0, math.nan]))
    for temperature in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(RhovecError, match="temperature must be a positive number"):
            rv.robustness(phi, traces, temperature=temperature)
