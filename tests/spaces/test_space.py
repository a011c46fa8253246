"""The space of one's own traces: its vectors, and what it refuses. Its folder: test_folder.py."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as from_bytes

import rhovec as rv
from rhovec.errors import RhovecError, RhovecWarning, TraceError
from rhovec.formula.schema import SchemaChannel
from rhovec.sklearn import StlVectorizer
from rhovec.spaces import space as module
from rhovec.spaces.fitting import principal

from .plant import DT, NAMES, OPTIONS, TEXTS, drives


def lifted(space: rv.Space, n: int, seed: int) -> list[rv.Formula]:
    """Random formulae over the channels that are no modes, in their units."""
    schema = rv.Schema(space.schema.channels)
    return [schema.lift(phi) for phi in rv.random_formulae(n, seed, 2)]


# -- vectors ---------------------------------------------------------------------------------------


def test_similarities_are_those_of_scaled_traces(space: rv.Space) -> None:
    """By the definition: divide each channel by its standard deviation, take cosines."""
    formulae = rv.random_formulae(200, 3, 2)
    values = drives()[:, :2]
    mean, std = values.mean(axis=(0, 2)), values.std(axis=(0, 2))
    scaled = (values - mean[:, None]) / std[:, None]
    kernel = rv.StlKernel(rv.TraceMeasure(scaled))
    schema = rv.Schema(
        tuple(SchemaChannel(name, m, s) for name, m, s in zip(NAMES, mean, std, strict=False))
    )
    own = [schema.lift(phi) for phi in formulae]
    exact = kernel.gram(formulae)
    assert np.abs(space.kernel().gram(own) - exact).max() < 1e-4
    assert np.abs(space.similarity(own, own) - exact).mean() < 1.5 * space.error
    assert 0 < space.error <= 0.001 < space.standard_error < 0.1


def test_vectors_have_length_one_and_the_residual_says_what_they_miss(space: rv.Space) -> None:
    formulae = lifted(space, 50, 1)
    vectors = space.embed(formulae)
    assert vectors.dtype == np.float32
    assert vectors.shape == (50, space.dimension)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6
    signatures = space.kernel().signatures(formulae).astype(float)
    missed = np.linalg.norm(_outside(space, signatures), axis=1)
    assert space.residual(formulae) == pytest.approx(missed, abs=3e-4)
    assert isinstance(space.residual(formulae[0]), float)
    assert space.embed(formulae[7]) == pytest.approx(vectors[7], abs=1e-6)
    assert np.array_equal(space.project(signatures), space.project(10 * signatures))
    assert space.project(signatures) == pytest.approx(vectors, abs=1e-5)
    assert space.project(3 * vectors[0]) == pytest.approx(vectors[0])


def _outside(space: rv.Space, signatures: np.ndarray) -> np.ndarray:
    """What no combination of the principal directions gives, by least squares."""
    directions = from_bytes(space.recipe()[1])["directions"].astype(float)
    directions = directions[:, : principal(space.dimension)]
    return signatures - (directions @ np.linalg.lstsq(directions, signatures.T, rcond=None)[0]).T


def test_units_do_not_matter() -> None:
    values = drives()
    metres = values.copy()
    metres[:, 0] /= 3.6
    one = rv.Space.fit(values[:, :2], NAMES[:2])
    two = rv.Space.fit(metres[:, :2], NAMES[:2])
    a, b = "always[0,5] (speed < 90 and rpm < 3000)", "eventually[2,9] (speed > 72 or rpm > 2800)"
    c, d = (text.replace("90", "25").replace("72", "20") for text in (a, b))
    assert one.kernel().similarity(a, b) == pytest.approx(two.kernel().similarity(c, d), abs=1e-5)


def test_an_expression_has_its_own_scale(space: rv.Space) -> None:
    values = drives()
    difference = values[:, 0] - 0.02 * values[:, 1]
    a, b = "always speed - 0.02 * rpm > 5", "always speed > 70"
    rho = [difference.min(axis=1) - 5, values[:, 0].min(axis=1) - 70]
    cosine = rho[0] @ rho[1] / np.linalg.norm(rho[0]) / np.linalg.norm(rho[1])
    assert space.kernel().similarity(a, b) == pytest.approx(np.exp((cosine - 1) / 0.2), abs=1e-4)
    both = space.kernel().signatures("always (speed - 0.02 * rpm > 5 and speed > 70)")
    mixed = np.minimum(rho[0] / difference.std(), rho[1] / values[:, 0].std())
    assert both == pytest.approx(mixed / np.linalg.norm(mixed), abs=1e-5)


def test_texts_are_in_names_units_and_seconds(space: rv.Space) -> None:
    steps = rv.parse("always[0,10] (speed < 90 and gear == 3)", discrete=["gear"])
    assert np.array_equal(
        space.embed(f"always[0,{10 * DT}] (speed < 25 m/s and gear == 3)"), space.embed(steps)
    )
    assert space.parse("always[0,5] speed < 90") == rv.parse("always[0,10] speed < 90")


def test_flags_and_modes_keep_their_values(space: rv.Space) -> None:
    scales = {c.expression: (c.mean, c.std, c.discrete) for c in space.schema.channels}
    assert scales["gear"] == scales["belt"] == (0, 1, True)
    assert scales["speed"][1] == pytest.approx(drives()[:, 0].std(), rel=1e-6)
    rounding = 5e-6 * drives().std(axis=(0, 2))[:, None]
    assert (np.abs(space.measure.values - drives()) <= rounding).all()


def test_traces_come_back_in_their_own_units_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    tenths = np.round(60 + rng.normal(0, 12, (50, 40)), 1)
    north = 5e6 + np.cumsum(rng.normal(0, 0.02, (50, 40)), axis=1)
    place = rv.Space.fit({"tenths": tenths, "north": north})
    found = place.measure.values
    assert np.array_equal(found[:, 0], tenths)
    assert np.abs(found[:, 1] - north).max() < 1e-6 * north.std()
    glitch = rng.random((200, 100))
    glitch[0, 0] = 1e6
    with_glitch = rv.Space.fit({"x": glitch, "y": rng.normal(size=(200, 100))})
    assert np.quantile(np.abs(with_glitch.measure.values[:, 0] - glitch), 0.99) < 1e-5
    rho = rv.robustness("always north >= 4999999.9", {"north": north})
    kernel = rv.StlKernel(place.measure)
    assert kernel.signatures("always north >= 4999999.9") == pytest.approx(
        rho / np.linalg.norm(rho), abs=1e-5
    )


def test_channels_that_float32_cannot_hold_are_refused() -> None:
    rng = np.random.default_rng(0)
    other = rng.normal(size=(80, 40))
    for large, refused in ((65535.0, False), (1e8, False), (1e11, True), (3.4e38, True)):
        values = other.cumsum(axis=1)
        values[3, 7] = large
        if refused:
            with pytest.raises(
                TraceError, match=r"'x' as large as .* leave no digits for the others"
            ):
                rv.Space.fit({"x": values, "y": other})
        else:
            rv.Space.fit({"x": values, "y": other})
    days = 20240101.0 + rng.integers(0, 9, (80, 1)) + np.zeros((80, 40))
    with pytest.raises(
        TraceError, match=r"'day' is discrete with values as large as 2024.*no digits after"
    ):
        rv.Space.fit({"day": days, "y": other}, discrete=["day"])
    near = np.where(days > 20240104, 1000.00001, 1000)
    with pytest.raises(
        TraceError, match=r"1000 and 1000\.00001, which are values of 'near', are the"
    ):
        rv.Space.fit({"near": near, "y": other}, discrete=["near"])
    rv.Space.fit({"day": days - 20240101, "y": other}, discrete=["day"])
    tenths = np.where(days > 20240104, 0.1 * 3, 0.3)
    tenths[0] = 0.7
    rv.Space.fit({"step": tenths, "y": other}, discrete=["step"])
    parked = np.where(days > 20240107, 3000 * rng.random((80, 40)), 0.05 * other)
    rv.Space.fit({"rpm": parked, "y": other})
    still = np.full((80, 40), 0.3)
    still[0, 0] = np.nextafter(0.3, 1)
    with pytest.raises(TraceError, match="constant in the traces, so without a scale: still"):
        rv.Space.fit({"still": still, "y": other})


def test_similarities_to_a_score_are_exact(space: rv.Space) -> None:
    scores = np.random.default_rng(9).normal(size=(2, len(space.measure.values)))
    assert space.residual(scores[0]) == space.residual(scores)[0] > 0.5
    for score, front in zip(scores, space.front(scores), strict=True):
        for formula, similarity in front:
            cosine = space.kernel().signatures(formula) @ score / np.linalg.norm(score)
            assert similarity == pytest.approx(np.exp((cosine - 1) / 0.2), abs=1e-6)
    with pytest.raises(RhovecError, match="what the directions miss is not in a vector"):
        space.residual(space.embed("speed > 90"))


def test_a_constant_score_has_no_direction_in_a_centred_space() -> None:
    values = np.random.default_rng(0).normal(size=(80, 1, 20)).cumsum(axis=2)
    centred = rv.Space.fit(values, centred=True)
    for constant in (0.3, 7e5, -2.5):
        with pytest.raises(RhovecError, match="vector 0 is nearly the same on every trace"):
            centred.project(np.full(80, constant))


def test_it_is_determined_by_traces_and_seed(space: rv.Space) -> None:
    again = rv.Space.fit(drives(), NAMES, **OPTIONS)
    other = rv.Space.fit(drives(), NAMES, **OPTIONS, seed=1)
    assert again.fingerprint == space.fingerprint != other.fingerprint
    assert np.array_equal(again.embed(TEXTS), space.embed(TEXTS))
    assert copy.deepcopy(space) is space


def test_traces_in_other_forms(space: rv.Space) -> None:
    values = drives()
    columns = {name: values[:, i] for i, name in enumerate(NAMES)}
    for given in (columns, list(values), rv.TraceMeasure(values, NAMES)):
        names = NAMES if isinstance(given, list) else None
        assert rv.Space.fit(given, names, **OPTIONS).fingerprint == space.fingerprint


def test_of_many_traces_a_seeded_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRACES", 50)
    values = drives()[:, :2]
    one, two = rv.Space.fit(values), rv.Space.fit(values, seed=1)
    assert len(one.scales.values) == 50
    assert one.fingerprint != two.fingerprint
    assert one.scales.values.dtype == np.float32


def test_formulae_of_the_user_are_met_more_closely() -> None:
    odd = [
        "eventually[7,7] (speed > 84.5 and eventually[3,3] rpm < 2222)",
        "always[29,29] speed < 80",
    ]
    plain = rv.Space.fit(drives(), NAMES, error=0.02)
    own = rv.Space.fit(drives(), NAMES, error=0.02, formulae=odd)
    assert (own.residual(odd) < plain.residual(odd)).all()


def test_an_error_out_of_reach_is_said() -> None:
    with pytest.warns(rv.RhovecWarning, match="directions, the most, reach an error of"):
        rv.Space.fit(drives(34), NAMES, error=1e-9)


# -- centred ---------------------------------------------------------------------------------------


def test_a_centred_space_compares_by_correlation() -> None:
    centred = rv.Space.fit(drives(), NAMES, **OPTIONS, centred=True)
    a, b = "always speed < 500", "always rpm < 9000"
    rho = [500 - drives()[:, 0].max(axis=1), 9000 - drives()[:, 1].max(axis=1)]
    wanted = np.exp((np.corrcoef(*rho)[0, 1] - 1) / 0.2)
    assert centred.kernel().similarity(a, b) == pytest.approx(wanted, abs=1e-3)
    assert centred.similarity(a, b) == pytest.approx(wanted, abs=0.03)
    with pytest.raises(RhovecError, match="nearly the same on every trace"):
        centred.embed("always speed < 1e8")


# -- what is refused -------------------------------------------------------------------------------


def flat(value: float) -> np.ndarray:
    values = drives()
    values[:, 1] = value
    return values


def spoilt() -> np.ndarray:
    values = drives()
    values[3, 1, 4] = np.nan
    return values


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "too few": (lambda: rv.Space.fit(drives(32), NAMES), "33 different traces or more.*32"),
    "constant": (lambda: rv.Space.fit(flat(7), NAMES), "constant in the traces.*rpm"),
    "NaN": (lambda: rv.Space.fit(spoilt(), NAMES), "must be finite: rpm of trace 3"),
    "names": (lambda: rv.Space.fit(drives(), NAMES[:3]), "variables"),
    "twice": (lambda: rv.Space.fit(drives(), ("a", "a", "b", "c")), "twice"),
    "two axes": (lambda: rv.Space.fit(drives()[0]), "shape"),
    "text": (lambda: rv.Space.fit("drives.csv"), "rv.read_traces"),
    "too large": (lambda: rv.Space.fit(drives() * 1e300, NAMES), "too large"),
    "other widths": (lambda: rv.Space.fit([np.ones((2, 5)), np.ones((3, 5))] * 40), "variables|shape"),
    "unknown unit": (lambda: rv.Space.fit(drives(), NAMES, units={"spede": "m"}), "no variable .spede"),
    "unknown mode": (lambda: rv.Space.fit(drives(), NAMES, discrete="gaer"), "no variable 'gaer'"),
    "units": (lambda: rv.Space.fit(drives(), NAMES, units=["km/h"]), "units must be a dict"),
    "modes": (lambda: rv.Space.fit(drives(), NAMES, discrete=3), "discrete must be a list"),
    "centred": (lambda: rv.Space.fit(drives(), NAMES, centred="no"), "centred must be"),
    "none": (lambda: rv.Space.fit([]), "the list is empty"),
    "no points": (lambda: rv.Space.fit(np.zeros((50, 2, 0))), "are empty"),
    "infinite": (lambda: rv.Space.fit(np.where(drives() > 99, np.inf, drives()), NAMES), "finite"),
    "no numbers": (lambda: rv.Space.fit(drives().astype(str)), "real numbers"),
    "a dict": (lambda: rv.Space.fit({"a": drives()[:, 0], "b": drives(99)[:, 0]}), "'b' has"),
    "only flags": (lambda: rv.Space.fit(drives()[:, 3:] * 0 + 1, ["on"]), "different traces.*are 1;"),
    "dt": (lambda: rv.Space.fit(drives(), NAMES, dt=0), "dt must be"),
    "error": (lambda: rv.Space.fit(drives(), error=0), "error must be"),
    "seed": (lambda: rv.Space.fit(drives(), seed=-1), "seed must be"),
    "sigma2": (lambda: rv.Space.fit(drives(), sigma2=0), "sigma2 must be"),
    "copies": (lambda: rv.Space.fit(np.repeat(drives(30), 2, axis=0), NAMES), "33 different traces.*30"),
    "a formula": (lambda: rv.Space.fit(drives(), NAMES, formulae=["height > 1"]), "uses height"),
    "a text": (lambda: rv.Space.fit(drives(), NAMES, formulae=["speed >"]), "expected"),
}  # fmt: skip


def test_copies_of_traces_are_told() -> None:
    """The standard errors are those of independent traces."""
    traces = drives(40)
    with pytest.warns(
        RhovecWarning, match=r"^5 of 45 traces are copies of others.*standard errors"
    ):
        rv.Space.fit(np.concatenate([traces, traces[:5]]), NAMES)
    rv.Space.fit(np.concatenate([traces, traces[:4]]), NAMES)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_traces_get_one_clear_error(name: str) -> None:
    work, message = REFUSED[name]
    with pytest.raises(RhovecError, match=message):
        work()


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("always height > 1", "uses height, but the space has speed"),
        ("speed >= ", "expected"),
        ("true", "constant"),
        ("always[0,0.7] speed > 1", "whole number of steps"),
        ("belt - belt >= 0", "."),
        ([], "empty"),
        (7, "."),
    ],
)
def test_bad_formulae_get_one_clear_error(space: rv.Space, formula: Any, message: str) -> None:
    with pytest.raises(RhovecError, match=message):
        space.embed(formula)


def test_messages_are_in_the_units_of_the_user() -> None:
    values = drives()
    values[:, 0, 0] = 60.5  # all start alike
    start = rv.Space.fit(values, NAMES)
    for work in (start.embed, start.residual, start.kernel().gram):
        with pytest.raises(RhovecError, match=r"'speed >= 60.5' is 0 on every trace"):
            work(["speed >= 60.5", "rpm > 1000"])


def test_robustness_of_other_lengths_is_refused(space: rv.Space) -> None:
    for shape in ((7,), (2, 7), (0, 7), (2, 2, 2)):
        with pytest.raises(RhovecError, match=r"numbers each|shape"):
            space.project(np.ones(shape))
    for wrong in (np.full(120, np.nan), np.zeros(120), "x"):
        with pytest.raises(RhovecError):
            space.project(wrong)


def test_a_formula_that_the_space_misses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MISSED", 0.3)
    small = rv.Space.fit(drives(), NAMES, error=0.05)
    formulae = lifted(small, 300, 9)
    assert small.residual(formulae).max() > 0.3
    with pytest.warns(rv.RhovecWarning, match="misses much of"):
        small.embed(formulae)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small.embed(formulae, warn=False)


# -- what takes a space ----------------------------------------------------------------------------


def test_an_index_holds_its_space(space: rv.Space, tmp_path: Path) -> None:
    path = tmp_path / "library"
    rv.Index.build(TEXTS, path, vectors=space, requirements=list("ABCDE")).close()
    with rv.Index.open(path) as index:
        assert isinstance(index.vectors, rv.Space)
        assert index.vectors.fingerprint == space.fingerprint
        hits = index.search("always[0,5] speed < 25 m/s", 5, rerank=True)
        assert hits[0].requirement == "A"
        assert hits[0].kernel == pytest.approx(1)
        wanted = space.similarity(TEXTS[0], TEXTS)
        assert [h.similarity for h in sorted(hits, key=lambda h: h.id)] == pytest.approx(
            wanted, abs=1e-4
        )
        assert index.add("always[0,5] speed <= 90.001") == 6
        assert [[hit.id for hit in group] for group in index.duplicates()] == [[1, 6]]
    with pytest.raises(RhovecError, match="leave out schema"):
        rv.Index.build(TEXTS, vectors=space, schema=space.schema)


def test_a_vectorizer_takes_a_space(space: rv.Space, folder: Path) -> None:
    from sklearn.base import clone

    for given in (space, folder):
        vectorizer = clone(StlVectorizer(given))
        assert np.array_equal(vectorizer.transform(TEXTS), space.embed(TEXTS))
        assert len(vectorizer.get_feature_names_out()) == space.dimension
    with pytest.raises(RhovecError, match="leave out schema"):
        StlVectorizer(space, schema=space.schema).transform(TEXTS)


def test_a_step_of_one_second_is_a_step_in_seconds() -> None:
    space = rv.Space.fit(np.cumsum(np.random.default_rng(0).normal(size=(60, 2, 30)), 2), dt=1)
    texts = ["always[0,2 s] x_0 < 1", "always[0,2] x_0 < 1", "rate(x_0) < 1"]
    vectors = space.embed(texts)
    assert (vectors[0] == vectors[1]).all()
    assert space.kernel().similarity(texts[0], texts[1]) == pytest.approx(1)
    assert str(space.parse("always[0,2.4 s] x_0 < 1", rounding="nearest")) == str(
        rv.parse(texts[1])
    )
    for text, words in (("always[0,2 s] x_0 <", "end of the text"), ("x_2 < 1 s", "x_2")):
        with pytest.raises(RhovecError, match=words):
            space.embed(text)


def test_codes_that_float32_holds_without_their_tolerance_are_refused() -> None:
    codes = np.random.default_rng(0).integers(0, 6, (60, 1, 30)).astype(float)
    with pytest.raises(RhovecError, match="float32 has no digits after the point"):
        rv.Space.fit(codes + 9_000_000, ["id"], discrete=["id"])
    space = rv.Space.fit(codes + 4_000_000, ["id"], discrete=["id"])
    plain = rv.Space.fit(codes, ["id"], discrete=["id"])
    pairs = [(f"id == {a + 1}", f"id == {a + 2}") for a in (4_000_000, 0)]
    found = [s.kernel().similarity(*pair) for s, pair in zip((space, plain), pairs, strict=True)]
    assert found[0] == pytest.approx(found[1])
