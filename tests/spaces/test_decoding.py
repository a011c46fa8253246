"""From vectors of a space back to formulae: valid, in the user's words, and as close as they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.errors import RhovecError
from rhovec.formula import operators as ops
from rhovec.robustness.reference import robustness_trace
from rhovec.spaces import decoding
from rhovec.spaces.fitting import draw_responses

from .plant import NAMES, OPTIONS, drives

ASKED = [
    "always[0,5] speed < 90",
    "eventually[2,8] (rpm > 2500 and belt >= 1)",
    "always (speed > 80 -> eventually[0,3] rpm < 2800)",
    "speed < 95 until[1,6] gear >= 3",
]


@pytest.fixture(scope="module")
def space() -> rv.Space:
    """A space with a bank of a tenth of the size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BANK", 2000)
        made = rv.Space.fit(drives(), NAMES, **OPTIONS)
        _ = made._decoder._bank
    return made


@pytest.fixture(scope="module")
def fronts(space: rv.Space) -> list[list[decoding.Found]]:
    return space.front(space.embed(ASKED))  # type: ignore[no-any-return]


def cosines(
    space: rv.Space, first: list[rv.Formula], second: list[rv.Formula], seed: int
) -> np.ndarray:
    """Of robustness on other traces of the system, each channel in its standard deviations."""
    scales = decoding.Scales.of(drives(seed=seed), space.schema)
    rows = [
        rv.robustness(scales.lower(decoding.Programs.pack(each)), scales.values, variables=NAMES)
        for each in (first, second)
    ]
    a, b = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in rows)
    return np.asarray((a * b).sum(axis=1))


def test_answers_mean_the_same_on_other_traces(space: rv.Space, fronts: list) -> None:
    formulae = [space.parse(text) for text in ASKED]
    found = cosines(space, formulae, [group[-1].formula for group in fronts], seed=9)
    assert np.median(found) > 0.995
    assert found.min() > 0.9


def test_a_front_goes_from_short_to_exact(space: rv.Space, fronts: list) -> None:
    for text, group in zip(ASKED, fronts, strict=True):
        sizes = [one.formula.size for one in group]
        near = [one.similarity for one in group]
        assert sizes == sorted(set(sizes))
        assert near == sorted(near)
        for one in group:
            assert rv.parse(str(one.formula)) == one.formula
            assert set(one.formula.variables) <= set(NAMES)
            assert one.similarity == pytest.approx(space.similarity(text, one.formula), abs=1e-5)


def test_decode_gives_the_front_backwards(space: rv.Space, fronts: list) -> None:
    answers = space.decode(space.embed(ASKED[:1]), k=2)
    assert answers == [[one.formula for one in fronts[0][::-1][:2]]]
    assert space.decode(space.embed(ASKED[0]), k=1) == answers[0][:1]


def test_a_formula_as_target_ends_the_front(space: rv.Space) -> None:
    group = space.front("always[0,5] (speed < 90 and not not speed < 90)")
    assert group[-1].similarity == pytest.approx(1, abs=1e-5)
    assert group[-1].formula.size <= 2


def test_robustness_that_no_formula_gave(space: rv.Space) -> None:
    """A smooth function of the traces: the largest speed minus the mean one."""
    values = drives()[:, 0]
    wanted = values.max(axis=1) - values.mean(axis=1) - 8
    answers = space.decode(wanted)
    own = space.kernel().signatures(answers[:1])[0]
    assert own @ wanted / np.linalg.norm(wanted) > 0.8
    assert space.decode(np.stack([wanted, -wanted]), k=1)[0] == answers[:1]


def test_thresholds_are_readable(space: rv.Space, fronts: list) -> None:
    for group in fronts:
        for one in group:
            for atom in one.formula.thresholds:
                assert len(f"{atom:.10g}") <= 8


def test_any_vector_has_a_valid_answer(space: rv.Space) -> None:
    group = space.decode(np.random.default_rng(0).normal(size=space.dimension))
    assert all(rv.parse(str(phi)) == phi for phi in group)
    assert 1 <= len(group) <= 5


def test_interpolation_has_the_given_ends(space: rv.Space) -> None:
    steps = space.interpolate(ASKED[0], "always[0,5] rpm < 3000", 4)
    assert [step.share for step in steps] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert steps[0].formula == space.parse(ASKED[0])
    assert steps[0].first == pytest.approx(1, abs=1e-5)
    assert steps[-1].second == pytest.approx(1, abs=1e-5)
    assert steps[1].first > steps[2].first
    assert steps[1].second < steps[2].second


def test_what_is_no_target_is_refused(space: rv.Space) -> None:
    good = space.embed(ASKED[0])
    for target in (
        [1.0, 2.0],
        np.zeros(space.dimension),
        np.full(120, np.nan),
        np.ones(space.dimension) * 1j,
        np.ones((0, space.dimension)),
        [[1.0], [2.0, 3.0]],
        [],
        "speed >",
        "y > 0",
        7,
        None,
    ):
        with pytest.raises(RhovecError):
            space.decode(target)
    for k in (0, -1, 1.5, True, "3"):
        with pytest.raises(RhovecError, match="k must be"):
            space.decode(good, k=k)
    with pytest.raises(RhovecError, match="opposite of the other"):
        space.interpolate(ASKED[0], f"not ({ASKED[0]})", 3)
    for steps in (1, 2.5):
        with pytest.raises(RhovecError, match="steps must be"):
            space.interpolate(ASKED[0], ASKED[1], steps)


def test_a_centred_space_cannot_be_decoded() -> None:
    centred = rv.Space.fit(drives(), NAMES, centred=True)
    for work in (
        lambda: centred.decode(np.ones(centred.dimension)),
        lambda: centred.front("speed > 1"),
        lambda: centred.interpolate("speed > 1", "rpm > 1000"),
    ):
        with pytest.raises(RhovecError, match="centred space cannot be decoded"):
            work()


def test_an_obstacle_is_kept() -> None:
    """Robots that pass an obstacle on their way to a goal: both parts of the requirement stay."""
    rng = np.random.default_rng(0)
    share = np.linspace(0, 1, 40) * rng.uniform(0.6, 1.1, (300, 1))
    bend = rng.normal(0, 1.5, (300, 1)) * np.sin(np.pi * np.clip(share, 0, 1))
    x, y = 6 * share, 6 * share + bend
    robot = rv.Space.fit({"x": x, "y": y})
    text = "eventually (x > 5 and y > 5) and always (x < 2 or x > 4 or y < 2 or y > 4)"
    answer = robot.decode(robot.embed(text), k=1)[0]
    inside = {"x": np.linspace(0, 6, 40)[None], "y": np.linspace(0, 6, 40)[None]}
    around = {"x": inside["x"], "y": np.r_[np.full(20, 0.0), np.linspace(0, 6, 20)][None]}
    assert rv.robustness(answer, inside)[0] < 0 < rv.robustness(answer, around)[0]


def test_the_command(space: rv.Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "BANK", 2000)
    space.save(tmp_path / "car")
    np.save(tmp_path / "vectors.npy", space.embed(ASKED[:2]))
    runner = CliRunner()

    def run(*arguments: object) -> str:
        result = runner.invoke(
            app, ["decode", "--space", str(tmp_path / "car"), *map(str, arguments)]
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    lines = [json.loads(line) for line in run(tmp_path / "vectors.npy", "--json").splitlines()]
    assert len(lines) == 2
    for text, line in zip(ASKED, lines, strict=False):
        similarity = space.similarity(text, line["formula"])  # bounds are in seconds again
        assert line["similarity"] == pytest.approx(similarity, abs=1e-5)
    assert len(run(ASKED[1], "-k", 3).splitlines()) in (1, 2, 3)
    for wrong in (["--samples", "3"], ["--check", "9"], ["--schema", "x.json"], ["-k", "0"]):
        result = runner.invoke(app, ["decode", ASKED[0], "--space", str(tmp_path / "car"), *wrong])
        assert result.exit_code == 2
        assert wrong[0].strip("-") in result.stderr


def test_windows_beyond_a_hundred_steps() -> None:
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.normal(size=(80, 1, 150)), axis=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BANK", 1000)
        walk = rv.Space.fit(walks, ["x"])
        text = "eventually[116,inf] x > 3"
        assert walk.front(walk.embed(text))[-1].similarity > 0.98


def test_a_long_formula_as_target_gets_shorter_ones(space: rv.Space) -> None:
    """The search starts from the formula itself; past operators and expressions start from the bank."""
    text = "always[0,5] (speed < 90 and (rpm < 4000 or gear <= 4) and not (rpm > 9000))"
    group = space.front(text)
    assert group[-1].similarity > 0.999
    assert group[-1].formula.size < space.parse(text).size
    for other in ("once[0,2] speed > 70", "always[0,5] speed - 0.02 * rpm > 1"):
        assert space.front(other)[-1].similarity == pytest.approx(1, abs=1e-5)


def test_drawn_responses_are_about_modes_and_intervals(space: rv.Space) -> None:
    drawn = draw_responses(space.scales, 300, 0).unpack()
    assert len(drawn) == 300
    assert {ops.name_of(v) for phi in drawn for c in phi.channels for v, _ in c} == set(NAMES)
    entering = [phi for phi in drawn if (ops.ALWAYS, 1, 1) in {row[:3] for row in phi.rows()}]
    assert 100 < len(entering) < 200
    for phi in drawn:
        for _, _, _, channel, threshold in phi.rows():
            if channel == (("gear", 1.0),):
                assert threshold % 1 == 0.5  # between two gears


def test_careful_joints_are_closer_than_the_bank_gives(space: rv.Space) -> None:
    wanted = "eventually[0,5] speed > 70 and always (rpm < 2900 or rpm > 3100 or speed < 65)"
    target = space.embed(wanted).astype(np.float64)
    decoder = space._decoder
    (phi,) = decoder.scales.lower(space.scales.read("eventually[0,5] speed > 70")[0]).unpack()
    quick, careful = (
        decoder.embed(decoder._proposals(target, phi, careful)) @ target
        for careful in (False, True)
    )
    assert careful.max() > quick.max()


def test_requirements_about_changes_of_modes_are_found() -> None:
    """They hold on most traces by the same margin, as do many others, so only where they fail tells."""

    def walks(seed: int) -> np.ndarray:
        rng, out = np.random.default_rng(seed), np.empty((300, 2, 40))
        for gear, speed in out:
            gear[:] = np.repeat(rng.integers(1, 5, 40), rng.integers(2, 12, 40))[:40]
            speed[:] = np.cumsum(rng.normal(size=40))
        return out

    names = ("gear", "speed")
    space = rv.Space.fit(walks(0), names, discrete=["gear"])
    kept = "always[0,30] (gear != {0} and next gear == {0} -> next always[0,4] gear == {0})"
    asked = [kept.format(3), " and ".join(f"({kept.format(gear)})" for gear in (2, 3, 4))]
    for text, (answer,) in zip(asked, space.decode(space.embed(asked, warn=False), 1), strict=True):
        a, b = rv.robustness([space.parse(text), answer], walks(1), variables=names)
        assert a @ b > 0.99 * np.linalg.norm(a) * np.linalg.norm(b)


def test_answers_are_the_same_in_every_batch(space: rv.Space) -> None:
    drawn = space._decoder._bank[0].part(2000, 2300).unpack()
    asked = [space._decoder.lift(phi) for phi in drawn if phi.size <= 12][:12]
    vectors = space.embed(asked, warn=False)
    assert space.front(vectors) == [space.front(vector) for vector in vectors]


def test_similarities_are_those_of_the_oracle(space: rv.Space, fronts: list) -> None:
    places = {c.variables[0]: c for c in space.schema.channels}
    traces = {name: space._content.values[:, i] for i, name in enumerate(NAMES)}
    basis, wanted = space._content.basis.astype(float), space.embed(ASKED)
    leading = basis.shape[1] - basis.shape[1] // 4
    for target, group in zip(wanted, fronts, strict=True):
        for phi, similarity in group:
            thresholds = phi.thresholds.copy()
            for i in np.flatnonzero(phi.code[:, 3] >= 0):
                ((variable, weight),) = phi.channels[phi.code[i, 3]]
                assert weight == 1
                channel = places[ops.name_of(variable)]
                thresholds[i] = (thresholds[i] - channel.mean) / channel.std
            scaled = rv.Formula.trusted(phi.code, thresholds, phi.channels)
            values = robustness_trace(scaled, traces)[:, 0]
            vector = values @ basis / np.linalg.norm(values)
            missed = np.sqrt(max(0, 1 - (vector[:leading] ** 2).sum()))
            vector[leading:] *= missed / np.linalg.norm(vector[leading:])
            assert similarity == pytest.approx(
                np.exp(-(1 - vector @ target) / space.sigma2), abs=1e-5
            )


def test_flags_alone_can_be_decoded() -> None:
    """Candidates may be 0 on every trace: `always (f >= 0 and f <= 1)`."""
    flags = (np.random.default_rng(7).random((100, 2, 20)) < 0.3).astype(float)
    space = rv.Space.fit(flags, ["f", "g"])
    group = space.front(space.embed("always[0,5] f >= 0.5"))
    assert group[-1].similarity == pytest.approx(1, abs=1e-3)
