"""The simulated systems: the same seed gives the same traces, and traces obey the physics."""

from __future__ import annotations

import numpy as np
import pytest

import rhovec as rv
from reproduction.systems import SYSTEMS, System, jump_process, pieces, transmission, waves

N = 60


@pytest.fixture(params=SYSTEMS.values(), ids=SYSTEMS.keys())
def system(request: pytest.FixtureRequest) -> System:
    found: System = request.param
    return found


def test_traces_are_fixed_by_the_seed_and_differ_between_parts(system: System) -> None:
    fit = system.traces(N, seed=3)
    assert fit.shape == (N, len(system.variables), system.points)
    assert fit.dtype == np.float32 and np.isfinite(fit).all()
    assert (fit == system.traces(N, seed=3)).all()
    for other in (system.traces(N, seed=4), system.traces(N, seed=3, part="test")):
        assert (fit != other).any(axis=(1, 2)).all()  # no trace is in two parts
    with pytest.raises(ValueError, match="part must be fit or test"):
        system.traces(N, part="train")


def test_requirements_can_be_evaluated(system: System) -> None:
    traces = system.traces(N)
    schema = system.schema(traces)
    assert len(schema.channels) == len(system.channels or system.variables)
    assert system.requirements
    for requirement in system.requirements:
        assert requirement.source
        phi = schema.parse(requirement.text)
        rho = rv.robustness(phi, traces, variables=system.variables)
        assert np.isfinite(rho).all(), requirement.id


def test_some_requirement_of_each_system_tells_traces_apart(system: System) -> None:
    traces = system.traces(400)
    schema = system.schema(traces)
    formulae = [schema.parse(r.text) for r in system.requirements]
    share = rv.satisfaction(formulae, traces, variables=system.variables).mean(axis=1)
    assert ((share > 0.02) & (share < 0.98)).any()


@pytest.mark.parametrize("draw", [pieces, waves])
def test_inputs_stay_within_their_range_and_use_it(draw: object) -> None:
    assert callable(draw)
    inputs = draw(np.random.default_rng(0), 500, 50, -2.0, 3.0)
    assert inputs.shape == (500, 50) and inputs.min() >= -2 and inputs.max() <= 3
    assert inputs.min() < -1.9 and inputs.max() > 2.9
    jumps = (np.diff(inputs, axis=1) != 0).sum(axis=1)
    assert jumps.max() <= 7 if draw is pieces else np.median(jumps) > 20


def test_cars_stay_in_order_and_never_reverse() -> None:
    y = SYSTEMS["chasing-cars-like"].traces(300)
    assert (np.diff(y, axis=1) > 0).all()
    assert (np.diff(y, axis=2) >= -1e-3).all()
    assert np.diff(y, axis=2).max() <= 50.01  # the top speed, m in a second
    gaps = SYSTEMS["chasing-cars-8-like"].traces(300)
    np.testing.assert_allclose(gaps[:, :4], np.diff(y, axis=1), atol=2e-3)


def test_a_car_shifts_up_one_gear_at_a_time_and_stops_when_braked() -> None:
    speed, rpm, gear, throttle, brake = SYSTEMS["transmission-like"].traces(300).transpose(1, 0, 2)
    assert set(np.unique(gear)) == {1, 2, 3, 4}
    assert (speed >= 0).all() and (rpm >= 600).all() and (rpm <= 6000).all()
    assert (brake[throttle >= 40] == 0).all()
    braked = (brake[:, :-1] > 200) & (throttle[:, :-1] < 5) & (speed[:, :-1] > 10)
    slowed = np.diff(speed, axis=1)[braked]  # a slower car may creep at idle
    assert (slowed < 0).mean() > 0.95 and len(slowed) > 20
    faster = np.diff(speed, axis=1)[(throttle[:, :-1] > 90) & (speed[:, :-1] < 60)]
    assert (faster > 0).all() and len(faster) > 20


def test_full_throttle_reaches_120_mph_in_fourth_gear(monkeypatch: pytest.MonkeyPatch) -> None:
    import reproduction.systems as bed

    def full(rng: object, n: int, points: int, low: float, high: float) -> np.ndarray:
        return np.full((n, points), high)

    monkeypatch.setitem(bed.DRAWS, "fit", full)  # type: ignore[arg-type]
    speed, rpm, gear = transmission(np.random.default_rng(0), 1, "fit")[0, :3]
    assert (np.diff(speed) > -1e-6).all() and speed[-1] > 120
    assert gear[0] == 1 and gear[-1] == 4 and (np.diff(gear) >= 0).all()
    assert rpm.max() < 5500


def test_the_air_fuel_ratio_settles_at_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    import reproduction.systems as bed

    levels = np.linspace(9, 60, 12)[:, None]

    def steady(rng: object, n: int, points: int, low: float, high: float) -> np.ndarray:
        return np.repeat(levels, points, axis=1)

    monkeypatch.setitem(bed.DRAWS, "fit", steady)  # type: ignore[arg-type]
    traces = bed.fuel_control(np.random.default_rng(0), len(levels), "fit")
    np.testing.assert_allclose(traces[:, 2, -1], 14.7, rtol=2e-3)
    assert (traces[:, 5] == 0).all()  # never in power mode


def test_a_robot_moves_as_fast_as_it_says() -> None:
    px, py, _, speed = SYSTEMS["unicycle-like"].traces(300).transpose(1, 0, 2)
    moved = np.hypot(np.diff(px), np.diff(py))
    fastest = np.maximum(speed[:, :-1], speed[:, 1:])
    assert (moved <= 0.5 * fastest + 0.12).all()
    assert np.hypot(px[:, -1] - 7.5, py[:, -1] - 8.5).min() < 0.3  # some reach the goal


def test_an_epidemic_neither_creates_nor_loses_people() -> None:
    s, i, r = SYSTEMS["sir-like"].traces(300).transpose(1, 0, 2)
    assert (s + i + r == 100).all() and (i >= 0).all()
    assert (np.diff(s) <= 0).all() and (np.diff(r) >= 0).all()
    over = i == 0
    assert (over[:, 1:] >= over[:, :-1]).all()  # an epidemic that is over stays so


def test_jump_process_has_the_moments_of_immigration_and_death() -> None:
    times, rate, death = np.array([0.0, 1.0, 3.0, 50.0]), 10.0, 1.0
    traces = jump_process(
        np.random.default_rng(0),
        np.zeros((1, 4000)),
        np.array([[1], [-1]]),
        lambda x: np.stack([np.full(x.shape[1], rate), death * x[0]]),
        times,
    )
    mean = rate / death * (1 - np.exp(-death * times))  # a Poisson distribution at any time
    np.testing.assert_allclose(traces[:, 0].mean(axis=0), mean, atol=0.25)
    np.testing.assert_allclose(traces[:, 0].var(axis=0), mean, atol=0.8)
