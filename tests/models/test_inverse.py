"""Verified decoding: it finds back what it can, never makes worse what it got, and always answers.

Robustness vectors on traces stand in for a trained encoder: they move with a formula's numbers as its
vectors do, and two formulae of one meaning have one vector.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula import Formula
from rhovec.formula import operators as ops
from rhovec.formula.programs import Programs
from rhovec.formula.schema import SchemaChannel
from rhovec.models import inverse
from rhovec.models.generate import Generator
from rhovec.models.inverse import Found, check, choose, plain, simpler
from rhovec.models.inverter import Inverter, as_written, in_steps
from rhovec.models.model import Model, load

from .tiny import save_tiny
from .tiny_decoder import save_tiny_decoder

KERNEL = rv.StlKernel(rv.BaseMeasure(n_variables=3), n_traces=200)
FORMULAE = [plain(phi) for phi in rv.random_formulae(60, seed=3) if phi.size < 12]


class Fixed:
    """A decoder that answers the same whatever is asked."""

    def __init__(self, formulae: Sequence[Formula]):
        self.formulae = list(formulae)

    def greedy(self, vectors: np.ndarray) -> list[Formula]:
        return [self.formulae[0]] * len(vectors)

    def sample(
        self,
        vectors: np.ndarray,
        samples: int,
        *,
        top_p: float = 1,
        numbers: bool = True,
        seed: int = 0,
    ) -> list[list[Formula]]:
        self.asked = len(vectors)
        return [self.formulae[1 : samples + 1]] * len(vectors)


def inverter(*formulae: Formula) -> Inverter:
    return Inverter(KERNEL.signatures, Fixed(formulae))


def moved(phi: Formula, rng: np.random.Generator) -> Formula:
    """The formula with other numbers."""
    numbers = inverse.Numbers(phi, inverse.Limits())
    spread = np.where(numbers.probe == 1, 4.0, 0.4)
    return numbers.put(numbers.values + spread * rng.standard_normal(len(spread)))


def test_nothing_is_drawn_where_the_likeliest_is_near_enough() -> None:
    near, far = rv.parse("always x_0 >= 0.5"), rv.parse("eventually x_1 <= 0")
    vectors = KERNEL.signatures([near, far, near])
    for channels, asked in ((3, 1), (None, 1)):
        decoder = Fixed([near, far])
        found = Inverter(KERNEL.signatures, decoder).decode(vectors, 1, channels=channels)
        assert decoder.asked == asked
        assert [group[0].formula for group in found] == [near, far, near]


# -- tuning ----------------------------------------------------------------------------------------


def test_numbers_are_found_back() -> None:
    rng = np.random.default_rng(0)
    starts = [moved(phi, rng) for phi in FORMULAE]
    targets = KERNEL.signatures(FORMULAE)
    before, after = (
        np.array(
            [
                found[0].similarity
                for found in choose(
                    KERNEL.signatures, targets, groups, inverse.Limits(budget=budget)
                )
            ]
        )
        for groups in [[[phi] for phi in starts]]
        for budget in (0, inverse.BUDGET)
    )
    assert (after >= before - inverse.PARSIMONY * 12).all()
    assert np.median(1 - after) < np.median(1 - before) / 20
    assert np.quantile(after, 0.25) > 0.998


def test_a_wrong_operator_is_found() -> None:
    wanted = rv.parse("always[3,20] (x_0 >= 0.3 or x_1 <= -0.5)")
    start = rv.parse("always[5,15] (x_0 >= 0.1 and x_1 <= -0.2)")
    (found,) = choose(KERNEL.signatures, KERNEL.signatures([wanted]), [[start]])
    assert found[0].similarity > 0.999


def test_an_operand_without_meaning_is_dropped() -> None:
    wanted = rv.parse("eventually[0,10] x_0 >= 0.5")
    start = rv.parse("eventually[0,10] (x_0 >= 0.5 and x_1 >= -90)")
    (found,) = choose(KERNEL.signatures, KERNEL.signatures([wanted]), [[start]])
    assert found[0].formula == wanted


def test_probes_change_one_number_each() -> None:
    for phi in FORMULAE:
        numbers = inverse.Numbers(phi, inverse.Limits())
        assert numbers.put(numbers.values) == phi
        formulae, steps = numbers.probes()
        for i, (probe, step) in enumerate(zip(formulae, steps, strict=True)):
            difference = inverse.Numbers(probe, inverse.Limits()).values - numbers.values
            assert step != 0 and difference[i] == pytest.approx(step, abs=1e-9)
            assert not np.delete(difference, i).any()


def test_numbers_stay_within_their_limits() -> None:
    phi = rv.parse("always[3,20] (x_0 >= 0.3 until[0,4] x_1 <= -0.5)")
    numbers = inverse.Numbers(phi, inverse.Limits())
    rng = np.random.default_rng(1)
    for _ in range(200):
        put = numbers.put(numbers.values + 300 * rng.standard_normal(len(numbers.values)))
        assert rv.parse(str(put)) == put
        assert np.abs(put.thresholds).max() <= inverse.MAX_THRESHOLD
        assert put.code[:, 1:3].max() <= inverse.MAX_BOUND
        assert (put.code[:, 1] <= put.code[:, 2]).all()


# -- changes of structure --------------------------------------------------------------------------


def test_changes_are_formulae_and_differ() -> None:
    for phi in FORMULAE:
        changed = list(inverse._changes(phi, inverse.MAX_BOUND))
        assert phi not in changed
        assert all(rv.parse(str(psi)) == psi for psi in changed)
        unary = np.isin(phi.code[:, 0], (ops.NOT, ops.ALWAYS, ops.EVENTUALLY)).sum()
        binary = (ops.ARITY[phi.code[:, 0]] == 2).sum()
        assert sum(psi.size < phi.size for psi in changed) == unary + 2 * binary


def test_plain_formulae_mean_the_same() -> None:
    traces = rv.BaseMeasure(n_variables=3).sample(50, seed=1)
    texts = [
        "next x_0 > 1", "x_0 < 1 <-> x_1 > 0", "true -> x_0 > 0", "F[3,150] x_0 < 1",
        "G[120,130] x_1 > 0", "x_0 > 0 until[50,99] not (x_1 < 2)", "F[60,inf] G[70,80] x_0 > 0",
    ]  # fmt: skip
    formulae = [*rv.random_formulae(100, seed=7), *map(rv.parse, texts)]
    short = [plain(phi) for phi in formulae]
    assert (rv.robustness(short, traces) == rv.robustness(formulae, traces)).all()
    for phi in short:
        assert {">", "<", "->", "<->", "next"}.isdisjoint(str(phi).split())
        timed = np.array([ops.is_timed(op) for op in phi.code[:, 0]])
        assert phi.code[timed, 1:3].max(initial=0) <= inverse.MAX_BOUND
        assert (
            (phi.code[timed, 2] >= phi.code[timed, 1]) | (phi.code[timed, 2] == ops.UNBOUNDED)
        ).all()


# -- what is answered ------------------------------------------------------------------------------


def value(found: Found) -> float:
    return found.similarity - inverse.PARSIMONY * found.formula.size


@pytest.mark.parametrize("refine", [True, False])
def test_answers_are_different_valid_and_sorted(refine: bool) -> None:
    targets = KERNEL.signatures(FORMULAE[:8])
    candidates = FORMULAE[8:20]
    answers = inverter(*candidates).decode(targets, samples=9, refine=refine)
    assert len(answers) == 8
    for target, found in zip(targets, answers, strict=True):
        formulae = [one.formula for one in found]
        assert 1 <= len(formulae) == len(set(formulae)) <= inverse.ANSWERS
        values = list(map(value, found))
        assert values == sorted(values, reverse=True)
        for phi, similarity in found:
            assert rv.parse(str(phi)) == phi
            assert similarity == pytest.approx(float(KERNEL.signatures(phi) @ target), abs=1e-5)
        first = max(
            float(KERNEL.signatures(phi) @ target) - inverse.PARSIMONY * phi.size
            for phi in candidates[:10]
        )
        assert values[0] > first if refine else values[0] == pytest.approx(first, abs=1e-5)


def test_requests_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = KERNEL.signatures(FORMULAE[:5])
    search = inverter(*FORMULAE[8:20])
    together = search.decode(targets)
    alone = [search.decode(targets[i : i + 1])[0] for i in range(5)]
    assert [[f.formula for f in a] for a in together] == [[f.formula for f in a] for a in alone]
    monkeypatch.setattr("rhovec.models.inverter.REQUESTS", 2)
    shares: list[float] = []
    assert [a[0] for a in search.decode(targets, progress=shares.append)] == [
        a[0] for a in together
    ]
    assert shares == [0.4, 0.8, 1.0]


def test_the_budget_is_kept() -> None:
    counts = []

    def embed(formulae: list[Formula]) -> np.ndarray:
        counts.append(len(formulae))
        return KERNEL.signatures(formulae)

    rng = np.random.default_rng(2)
    noise = rng.standard_normal((3, 200)).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    starts = FORMULAE[:12]
    choose(embed, noise, [starts] * 3, inverse.Limits(budget=0))
    assert counts == [36]
    counts.clear()
    choose(embed, noise, [starts] * 3, inverse.Limits(budget=100))
    # A round that was begun is finished.
    tuned = inverse.TUNED * (3 * inverse.STEPS + 2 * max(phi.size for phi in starts) + 20)
    assert 100 < sum(counts) / 3 < 100 + tuned + inverse.CHANGED + inverse.ANSWERS


def test_answers_in_a_few_channels_alone() -> None:
    inside, out = rv.parse("x_0 >= 1"), rv.parse("always x_2 >= 1")
    target = KERNEL.signatures([out])
    (found,) = inverter(out, inside).decode(target, channels=2)
    assert {name for one in found for name in one.formula.variables} == {"x_0"}
    with pytest.raises(RhovecError, match="a formula in x_2, but answers"):
        inverter(out, out).decode(target, channels=2)


def test_answers_stay_in_the_channels_of_the_model() -> None:
    """A decoder has words for eight channels, whatever its model has."""
    wrong = rv.parse("always (x_7 >= 1 and x_4 <= 0.5)")
    target = KERNEL.signatures([rv.parse("always x_1 >= 1")])
    known = {f"x_{i}" for i in range(2)}

    def embed(formulae: list[Formula]) -> np.ndarray:
        assert all(known.issuperset(phi.variables) for phi in formulae)
        return KERNEL.signatures(formulae)

    (found,) = Inverter(embed, Fixed([wrong, wrong]), channels=2).decode(target)
    assert found and all(known.issuperset(one.formula.variables) for one in found)


def test_thresholds_stay_where_the_model_knows_them() -> None:
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((4, 200)).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    starts = [FORMULAE[0], rv.parse("x_1 >= 50 until x_0 <= -1")]
    for found in Inverter(KERNEL.signatures, Fixed(starts), largest=2.5).decode(noise):
        assert max(np.abs(one.formula.thresholds).max() for one in found) <= 2.5


def test_a_ladder_of_ever_simpler_formulae() -> None:
    found = [Found(phi, s) for phi, s in zip(FORMULAE, np.linspace(0.2, 0.9, 40), strict=False)]
    ladder = simpler(found)
    for one in found:
        better = [o for o in ladder if o.similarity >= one.similarity]
        assert one in ladder or min(o.formula.size for o in better) <= one.formula.size
    sizes = [one.formula.size for one in ladder]
    assert sizes == sorted(set(sizes), reverse=True)


def test_the_exact_check() -> None:
    phi = FORMULAE[0]
    found = [Found(psi, 0.5) for psi in (FORMULAE[1], phi, FORMULAE[2])]
    checked = check(KERNEL, phi, found)
    assert checked[0].formula == phi
    assert checked[0].kernel == pytest.approx(1)
    assert [c.kernel for c in checked] == sorted((c.kernel for c in checked), reverse=True)
    last = checked[-1]
    assert last.kernel == pytest.approx(KERNEL.similarity(phi, last.formula))
    assert last.standard_error == pytest.approx(KERNEL.standard_error(phi, last.formula))


# -- through a model -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = save_tiny(tmp_path_factory.mktemp("model"))
    save_tiny_decoder(folder)
    return load(folder)


def test_the_generator_answers_as_a_decoder_must() -> None:
    for name in ("greedy", "sample"):
        wanted = inspect.signature(getattr(Fixed, name)).parameters
        assert set(wanted) <= set(inspect.signature(getattr(Generator, name)).parameters)


def test_whatever_the_vector_there_are_formulae(model: Model) -> None:
    rng = np.random.default_rng(0)
    a, b = model.embed(FORMULAE[:2])
    wide = a.astype(np.float64)
    vectors = np.stack([a, b, a + b, -a, a + rng.standard_normal(24), 1e300 * wide, 1e-300 * wide])
    vectors = np.concatenate([vectors, rng.standard_normal((3, 24))])
    answers = model.decode(vectors, samples=3, k=4)
    assert len(answers) == 10
    for formulae in answers:
        assert 1 <= len(formulae) <= 4
        assert all(rv.parse(str(phi)) == phi for phi in formulae)
        assert max(np.abs(phi.thresholds).max() for phi in formulae) <= 6.5
    assert model.decode(vectors[5], samples=3, k=4) == model.decode(a, samples=3, k=4)
    assert isinstance(model.decode(a.tolist(), samples=0, refine=False)[0], Formula)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v * 0, "vector 1 is zero"),
        (lambda v: v * np.nan, "vector 1 is not finite"),
        (lambda v: v / np.float32(0), "vector 1 is not finite"),
    ],
)
def test_vectors_without_a_direction(
    model: Model, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    vectors = model.embed(FORMULAE[:2])
    with np.errstate(all="ignore"):
        vectors[1] = change(vectors[1])
    with pytest.raises(RhovecError, match=message):
        model.decode(vectors)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.ones(23), "have 23 numbers each, and this model's have 24"),
        (np.ones((2, 1024)), "have 24 or 96; give vectors of the model that made them"),
        (np.ones((1, 2, 24)), "shape"),
        (np.ones((0, 24)), "shape"),
        (3.0, "shape"),
        ("always x_0 > 1", "array of real numbers"),
        ([[1.0], [2.0, 3.0]], "array of real numbers"),
    ],
)
def test_what_is_no_vector(model: Model, vectors: object, message: str) -> None:
    with pytest.raises(RhovecError, match=message):
        model.decode(vectors)


def test_bad_numbers_of_answers(model: Model) -> None:
    vector = model.embed(FORMULAE[0])
    with pytest.raises(RhovecError, match="k must be 1"):
        model.decode(vector, k=0)
    for wrong in ("a", 1.5, True, None):
        with pytest.raises(RhovecError, match="k must be a whole number, not"):
            model.decode(vector, k=wrong)
    with pytest.raises(RhovecError, match="samples must be 0"):
        model.decode(vector, samples=-1)
    with pytest.raises(RhovecError, match="samples must be a whole number"):
        model.decode(vector, samples="3")  # type: ignore[arg-type]
    with pytest.raises(RhovecError, match="schema must be a Schema"):
        model.decode(vector, schema="x")  # type: ignore[arg-type]


def test_vectors_of_either_kind_are_decoded(model: Model) -> None:
    """Directions go through the head, so that the answers are the same."""
    formulae = rv.random_formulae(4, seed=2)
    kinds = [model.embed(formulae, kind=kind, warn=False) for kind in ("kernel", "cosine")]
    assert kinds[0].shape != kinds[1].shape
    for given in (slice(None), 1):
        first, second = (model.unit_rows(3 * vectors[given]) for vectors in kinds)
        assert first.shape == second.shape and np.allclose(first, second, atol=1e-4)
    assert model.decode(kinds[1][:2], samples=2) == model.decode(kinds[0][:2], samples=2)


def test_a_model_without_a_decoder(tmp_path: Path) -> None:
    bare = load(save_tiny(tmp_path))
    with pytest.raises(RhovecError, match="no decoder"):
        bare.decode(bare.embed(FORMULAE[0]))


def test_answers_in_names_and_units(model: Model) -> None:
    channels = [SchemaChannel(f"c{i}", mean=10.0 * i + 1 / 7, std=20 / 7) for i in range(8)]
    schema = rv.Schema(tuple(channels), dt=0.1)
    vector = model.embed(FORMULAE[0])
    plain_answers = model.decode(vector, samples=4)
    lifted = model.decode(vector, samples=4, schema=schema)
    for answer, phi in zip(lifted, plain_answers, strict=True):
        exact = schema.lift(phi)
        assert answer.thresholds.tolist() == [round(t, 4) for t in exact.thresholds]
        assert (answer.code == exact.code).all() and answer.channels == exact.channels


def test_the_walk_between_two_formulae(model: Model) -> None:
    a, b = FORMULAE[0], str(FORMULAE[1])
    walk = model.interpolate(a, b, steps=4)
    assert [round(step.share, 6) for step in walk] == [0, 0.333333, 0.666667, 1]
    assert walk[0].formula == a
    assert str(walk[-1].formula) == b
    assert walk[0].first == pytest.approx(1, abs=1e-5)
    assert walk[-1].second == pytest.approx(1, abs=1e-5)
    for step in walk:
        assert step.first == pytest.approx(model.similarity(a, step.formula, warn=False), abs=1e-5)
        assert step.second == pytest.approx(model.similarity(b, step.formula, warn=False), abs=1e-5)
    assert [step.formula for step in model.interpolate(a, a, steps=2)] == [a, a]
    assert len(model.interpolate(a, a, steps=3)) == 3
    with pytest.raises(RhovecError, match="steps must be 2 or more"):
        model.interpolate(a, b, steps=1)


def test_requests_lie_on_the_arc(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def decode(vectors: np.ndarray, **_: object) -> list[list[Formula]]:
        asked.append(vectors)
        return [[FORMULAE[0]]] * len(vectors)

    monkeypatch.setattr(model, "decode", decode)
    model.interpolate(*FORMULAE[:2], steps=5)
    a, b = model.embed(FORMULAE[:2]).astype(np.float64)
    way = np.stack([a, *asked[0], b])
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    angles = np.arccos(np.clip((way[1:] * way[:-1]).sum(1), -1, 1))
    assert np.allclose(angles, np.arccos(a @ b) / 4, atol=1e-4)


def test_bounds_of_a_decoder_follow_the_length_of_the_traces() -> None:
    formulae = Programs.pack(
        [rv.parse("always[0,50] x_0 >= 1"), rv.parse("eventually[99,inf] x_0 >= 1")]
    )
    assert in_steps(formulae, 100) is formulae and in_steps(formulae, 30) is formulae
    long = in_steps(formulae, 199)
    assert [phi.code[-1, 1:3].tolist() for phi in long.unpack()] == [[0, 100], [198, ops.UNBOUNDED]]
    assert as_written(long, 199).unpack() == formulae.unpack()

    asked = []

    def embed(some: Sequence[rv.Formula]) -> np.ndarray:
        asked.extend(some)
        return np.ones((len(some), 1))

    writes = Fixed([rv.parse("always[0,50] x_0 >= 1")])
    Inverter(embed, writes, 1, points=199).decode(np.ones((1, 1)), samples=0)
    assert rv.parse("always[0,100] x_0 >= 1") in asked
