"""Explanations: sufficient, with the path that leads to the margin."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rhovec as rv
from rhovec.check import Explanation, Sampled
from rhovec.errors import RhovecError, TraceError
from rhovec.formula.core import Formula
from rhovec.traces import Channel, Log

from ..robustness.test_cpu import Frame
from . import cases, oracle
from .oracle import Case


def explained(phi: Formula, case: Case) -> Explanation:
    return rv.explain(phi, case.samples, begin=case.begin, discrete=())


def mask(explanation: Explanation, points: int) -> dict[str, np.ndarray]:
    keep = {name: np.zeros(points, bool) for name in explanation.cause}
    for name, stretches in explanation.cause.items():
        for first, last in stretches:
            keep[name][first : last + 1] = True
    return keep


@pytest.mark.parametrize("seed", range(4))
def test_explanations_suffice(seed: int) -> None:
    """With every other sample unknown, the verdict is the same, and so is what decides it."""
    rng = np.random.default_rng(seed)
    smaller = 0
    for _ in range(150):
        phi, case = cases.random_formula(rng, int(rng.integers(1, 4))), cases.random_case(rng, 8)
        explanation = explained(phi, case)
        keep = mask(explanation, case.points)
        rest = oracle.known(case, keep)
        assert cases.judge(phi, rest).outcome == explanation.verdict.outcome, (str(phi), case)
        known = sum(not math.isnan(x) for name in phi.variables for x in case.samples[name])
        smaller += sum(each.sum() for each in keep.values()) < known
        assert all(
            not math.isnan(case.samples[n][t]) for n, k in keep.items() for t in k.nonzero()[0]
        )
    assert smaller > 75


@pytest.mark.parametrize("seed", range(4))
def test_the_path_leads_to_the_margin(seed: int) -> None:
    rng = np.random.default_rng(10 + seed)
    for _ in range(40):
        phi, case = cases.random_formula(rng), cases.random_case(rng)
        explanation = explained(phi, case)
        part, path = explanation.part, explanation.path
        assert path[0].formula == part.part.formula
        assert "\n" not in str(explanation)  # no signal of our own
        if part.outcome == "open":
            last = path[-1]
            assert last.value is None and last.holds is None
            if last.time >= 0 and last.formula.size == 1:
                assert oracle.bounds(last.formula, case, boolean=True)[last.time] == (0, 1)
            continue
        for step in path:
            assert step.value in (part.margin, -part.margin), (str(phi), case)
            if step.time < 0:
                continue
            so_far = part.outcome == "holds so far"
            found = [
                oracle.bounds(step.formula, case, boolean=False, so_far=cut)[step.time]
                for cut in ({False, so_far})
            ]
            if step.formula.size == 1:
                assert step.value in found[0]
            elif step is path[0]:
                assert step.value in [end for each in found for end in each], (str(phi), case)


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("always[2,inf] x > 1", [2.0, 2.0]),
        ("always next x > 1", [2.0]),
        ("always (x > 0 release[1,inf] x > 1)", [2.0, 2.0]),
        ("always x > 1 and always[3,inf] x > 1", [2.0, 2.0]),
        ("always[2,inf] (x > 0 -> eventually[0,3] x > 1)", [2.0, 2.0]),
        ("not eventually[2,inf] not x > 1", [2.0]),
    ],
)
def test_what_begins_after_the_log_is_unknown_there(text: str, samples: list[float]) -> None:
    explanation = rv.explain(text, {"x": samples}, dt=1)
    if explanation.verdict.outcome == "open":
        assert f"is unknown at {len(samples)} s, after the log" in str(explanation)
        assert "x > " in explanation.atom_text
    else:
        assert str(explanation) == "holds so far: x > 1 holds by 1 at 0 s"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("always changed(x)", "at sample 0, before the log"),
        ("always (x > 0 -> prev x > 0)", "at sample -1, before the log"),
        ("x - next next x > 0", "at sample 0, after the log"),
        ("always[1,1] x > 0", "at sample 1, in a gap"),
    ],
)
def test_where_the_unknown_sample_lies(text: str, where: str) -> None:
    samples = [1.0, 2.0] if "gap" not in where else [1.0, math.nan]
    assert str(rv.explain(text, {"x": samples})).endswith(where)


def test_a_frame_is_no_trace() -> None:
    with pytest.raises(TraceError, match="a data frame has a row per sample"):
        rv.explain("speed > 0", Frame())
    with pytest.raises(TraceError, match="paths of files or folders, not Frame"):
        rv.read_traces(Frame())  # type: ignore[arg-type]


def test_a_log_of_one_sample_has_the_step_that_is_given() -> None:
    log = Log("a", "a.csv", np.array([0.0]), {"x": Channel(np.array([1.0]))})
    assert str(rv.explain("always[0,1] x > 0", log, dt=0.5)).startswith("open since 0.5 s")


def test_where_and_why() -> None:
    speed = np.array([100.0, 110, 119, 124, 126, 121, 100, 122, 90, 80])
    log = Sampled({"speed": speed, "brake": (speed > 123) * 1.0}, dt=0.5, start=10)
    found = rv.explain("always (speed < 120)", log, units={"speed": "km/h"})
    assert (found.violated, found.open) == ([(11.5, 12.5), (13.5, 13.5)], [])
    assert (str(found.atom), found.moment, found.unit) == ("speed < 120", 4, "km/h")
    assert found.cause == {"speed": ((4, 4),)}
    assert str(found) == (
        "violated from 11.5 s to 12.5 s and 1 more time: speed < 120 fails by 6 km/h at 12 s"
    )
    found = rv.explain("always (brake -> eventually[0,1.5] speed < 70)", log)
    assert str(found) == "violated from 11.5 s to 12 s: speed < 70 fails by 30 at 13 s"
    assert found.cause == {"brake": ((3, 3),), "speed": ((3, 6),)}
    found = rv.explain("always (speed > 121 -> eventually[1.5,3] speed < 85)", log)
    assert str(found) == "open since 13.5 s: speed < 85 is unknown at 15 s, after the log"
    found = rv.explain("always speed < 130", {"speed": speed})
    assert str(found) == "holds so far: speed < 130 holds by 4 at sample 4"
    assert found.cause == {"speed": ((0, 9),)}


def test_what_is_missing() -> None:
    x = [1.0, math.nan, 2.0]
    assert rv.explain("always x < 3", {"x": x}).missing == "in a gap"
    assert rv.explain("historically x < 3", {"x": x}).missing == "before the log"
    assert rv.explain("eventually x > 3", {"x": x[:1]}).missing == "after the log"
    assert rv.explain("always[5,inf] x < 3", {"x": x}).missing == "after the log"
    assert rv.explain("x < 3", {"x": x}).missing == ""


def test_operators_are_shown_as_written() -> None:
    text = "always (rise(p) -> (q weak_until[0,1] p) <-> next q)"
    log = {"p": [0.0, 1, 0, 0, 0, 0], "q": [0.0, 0, 1, 0, 0, 0]}
    found = rv.explain(text, log)
    shown = [str(step.formula) for step in found.path]
    assert shown[0] == str(rv.parse(text))
    assert not any("once" in formula for formula in shown)


def test_one_formula_at_a_time() -> None:
    with pytest.raises(RhovecError, match="one formula"):
        rv.explain(["x > 0", "x > 1"], {"x": [1.0]})
    assert str(rv.explain("x_1 > 0", [[0.0], [2.0]]).atom) == "x_1 > 0"


def test_subformulae() -> None:
    phi = rv.parse("x > 0 until[0,2] not y > 1")
    assert [str(each) for each in phi.subformulae()] == [
        "x > 0", "y > 1", "not ( y > 1 )", "( x > 0 until[0,2] not ( y > 1 ) )",
    ]  # fmt: skip
    assert phi.subformula(1) == rv.parse("y > 1")


def test_with_a_step_the_bounds_of_a_text_are_seconds() -> None:
    trace = {"x": [0.0, 0, 2]}
    assert str(rv.explain("always[0,1] x < 1", trace, dt=0.5)) == (
        "violated at 1 s: x < 1 fails by 1 at 1 s"
    )
    assert str(rv.explain("always[0,500 ms] x < 1", Sampled(trace, dt=0.5))).startswith("holds")
    assert str(rv.explain("always[0,1] x < 1", trace)).startswith("holds")
    grid = rv.resample(Log("a", "a.csv", np.arange(3) / 2, {"x": Channel(np.array([0.0, 0, 2]))}))
    with pytest.raises(RhovecError, match=r"0\.5 s apart, not 1 s; leave out dt"):
        rv.explain("always[0,1] x < 1", grid, dt=1)
    units = {"x": "km/h"}
    assert (
        str(rv.explain("x < 1 m/s", trace, units=units))
        == "holds: x < 3.6 holds by 3.6 km/h at sample 0"
    )
