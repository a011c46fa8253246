"""Planted signals come back from logs as they are: read, derived and resampled."""

from __future__ import annotations

import numpy as np
import pytest

from rhovec.check import Outcome, verdicts
from rhovec.formula.derived import Derived
from rhovec.formula.requirements import Requirement, read_data, resolve
from rhovec.formula.vocabulary import flags_in, labels_in
from rhovec.traces import Grid, derive, read_logs, resample

from .planted import DT, MAX_GAP, REQUIREMENTS, Truth, make_logs


@pytest.fixture(scope="module")
def requirements() -> tuple[list[Requirement], Derived, dict[str, dict[str, int]]]:
    statements = read_data(REQUIREMENTS.encode(), "requirements.stl")
    labels = labels_in(s.text for s in statements)
    derived = Derived()
    found, problems = resolve(statements, dt=DT, labels=labels, derived=derived)
    assert not problems
    return found, derived, labels


@pytest.fixture(scope="module")
def truths(tmp_path_factory: pytest.TempPathFactory) -> list[Truth]:
    return make_logs(tmp_path_factory.mktemp("logs"), 70)


def on_grid(truth: Truth, requirements: tuple) -> Grid:
    found, derived, labels = requirements
    names = {name for r in found for name in r.formula.variables}
    flags = flags_in(r.formula for r in found)
    (log,) = read_logs(
        truth.path, variables=sorted(derived.inputs(names)), labels=labels, flags=flags
    )
    assert {n: c.kind for n, c in log.channels.items() if c.kind != "number"} == {
        "brake": "flag", "gear": "enumeration",
    }  # fmt: skip
    return resample(derive(log, derived, max_gap=MAX_GAP), DT, max_gap=MAX_GAP)


def test_planted_signals_come_back(truths: list[Truth], requirements: tuple) -> None:
    for truth in truths:
        grid = on_grid(truth, requirements)
        assert grid.name == truth.name
        assert grid.times[0] == pytest.approx(truth.times[0], abs=1e-9)
        assert grid.times[-1] == pytest.approx(truth.times[-1], abs=DT)
        codes = np.array([grid.labels["gear"][label] for label in truth.labels])
        for name, signal in truth.signals.items():
            v = grid.variables.index(name)
            expected = signal.at(grid.times)
            if name == "gear":
                expected = codes[expected.astype(int)]
            known = grid.known[v]
            close = abs(grid.values[v][known] - expected[known])
            assert close.max() < 1e-6, (truth.path, name)
            in_gap = np.zeros(len(grid.times), bool)
            if truth.gap:
                in_gap = (grid.times > truth.gap[0] + 1e-6) & (grid.times < truth.gap[1] - 1e-6)
            assert np.array_equal(~known, in_gap), (truth.path, name)


def test_bins_keep_the_extremes(truths: list[Truth], requirements: tuple) -> None:
    for truth in truths:
        grid = on_grid(truth, requirements)
        for name in ("speed", "temp", "brake"):
            v = grid.variables.index(name)
            at = truth.sampled[name]
            samples = truth.signals[name].at(truth.times)[at]
            point = np.floor((truth.times[at] - grid.times[0]) / DT + 0.5 + 1e-9).astype(int)
            for p, x in zip(np.minimum(point, len(grid.times) - 1), samples, strict=True):
                near = slice(max(p - 1, 0), p + 1)  # on the edge of two bins, rounding decides
                assert np.nanmin(grid.least[v, near]) <= x + 1e-9
                assert np.nanmax(grid.greatest[v, near]) >= x - 1e-9
            known = grid.known[v]
            assert (grid.least[v, known] <= grid.values[v, known]).all()
            assert (grid.values[v, known] <= grid.greatest[v, known]).all()
        for one in truth.planted:
            if one.outcome == "spike":
                v = grid.variables.index("speed")
                assert np.nanmax(grid.values[v]) < 120
                p = int(np.nanargmax(grid.greatest[v]))
                assert grid.greatest[v, p] == pytest.approx(120 + one.margin)
                assert abs(grid.times[p] - one.start) <= DT / 2


def test_planted_violations_show_on_the_grid(truths: list[Truth], requirements: tuple) -> None:
    """The channels of violated requirements exceed their limits then and there, by the margin."""
    shown = {
        "SPEED": ("speed", 120),
        "HEAT": ("rate(temp)", 2),
        "POWER": ("torque * speed", 20_000),
    }
    seen = set()
    for truth in truths:
        grid = on_grid(truth, requirements)
        violated = {one.requirement: one for one in truth.planted if one.outcome != "open"}
        for requirement, (channel, limit) in shown.items():
            v = grid.variables.index(channel)
            over = grid.greatest[v] - limit > 1e-6
            if requirement not in violated:
                assert not over.any(), (truth.path, channel)
                continue
            one = violated[requirement]
            seen.add((requirement, one.outcome))
            assert np.nanmax(grid.greatest[v]) - limit == pytest.approx(one.margin, rel=1e-6)
            assert grid.times[over][0] == pytest.approx(one.start, abs=2 * DT)
            assert grid.times[over][-1] == pytest.approx(one.end, abs=2 * DT)
    assert len(seen) == 4


def test_what_is_made_up_is_reported(truths: list[Truth], requirements: tuple) -> None:
    for truth in truths:
        grid = on_grid(truth, requirements)
        reported = {one.channel: one for one in grid.report}
        for name in truth.signals:
            v = grid.variables.index(name)
            one = reported.get(name)
            assert (one.unknown if one else 0) == (~grid.known[v]).sum()
            rows = np.minimum(truth.times[truth.sampled[name]], grid.times[-1])
            distance = abs(rows[:, None] - grid.times).min(axis=0)
            sure = grid.known[v] & (distance > DT / 2 + 1e-6)
            edge = grid.known[v] & (abs(distance - DT / 2) <= 1e-6)
            assert sure.sum() <= (one.made_up if one else 0) <= (sure | edge).sum()


def test_verdicts_are_as_planted(truths: list[Truth], requirements: tuple) -> None:
    found, _, _ = requirements
    grids = [on_grid(truth, requirements) for truth in truths]
    rows = verdicts([r.formula for r in found], grids, discrete={"brake", "gear"})
    for requirement, row in zip(found, rows, strict=True):
        for truth, grid, verdict in zip(truths, grids, row, strict=True):
            planted = {one.requirement: one for one in truth.planted}.get(requirement.id)
            outcome = planted.outcome if planted else ""
            where = (truth.path, requirement.id, planted)
            assert (verdict.outcome == Outcome.VIOLATED) == (outcome == "violated"), where
            assert (verdict.outcome == Outcome.OPEN) == (outcome == "open"), where
            assert verdict.depends_on_resampling == (outcome == "spike"), where
            if planted and outcome == "violated":
                own_rate = 5 * DT  # of the slowest channel
                assert verdict.margin == pytest.approx(-planted.margin, rel=1e-6), where
                ((first, last),) = verdict.deciding.violated
                assert -DT <= grid.times[first] - planted.start <= own_rate, where
                assert -own_rate <= grid.times[last - 1] - planted.end <= DT, where
