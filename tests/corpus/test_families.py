"""Families: kinds, limits, perturbations, seeds, validation, splits, and the stream of them."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest

import rhovec as rv
from rhovec.corpus import CHANGES, KINDS, SPLITS, Recipe, draw_families, stream
from rhovec.corpus.draw import key
from rhovec.corpus.families import (
    DUALITY,
    EQUIVALENT,
    HYBRID,
    MAX_TOKENS,
    PERTURBED,
    SEED,
    SHARES,
    SPLIT_SHARES,
    find_families,
    varies,
)
from rhovec.corpus.perturb import MAX_BOUND, perturb
from rhovec.corpus.rules import MIN_DEPTH
from rhovec.corpus.text import texts
from rhovec.corpus.trees import COLUMNS, UNIT
from rhovec.errors import RhovecError
from rhovec.formula import operators as ops

from .formulae import ROOM, formula_of, rows_of, same_batch, seed_of

RECIPE = Recipe(seed=3)
FAMILIES = 4000
SYMBOLS = re.compile(
    r"always|eventually|until|and|or|not|inf|>=|<=|x_|/s|s|[()<>=\[\],\-.0-9@]"
)  # the vocabulary without unk and pad; the longest symbols stand first


@pytest.fixture(scope="module")
def batch():
    return draw_families(RECIPE, np.arange(FAMILIES))


def test_kinds_have_the_papers_shares(batch) -> None:
    shares = np.bincount(batch.kind, minlength=len(KINDS)) / len(batch.kind)
    assert shares == pytest.approx(SHARES, abs=0.01)
    assert sum(SHARES) == pytest.approx(1)


def test_limits_hold(batch) -> None:
    nodes = np.diff(batch.programs.offsets)
    rewritten = np.isin(batch.kind, (EQUIVALENT, HYBRID))
    assert batch.tokens.max() <= MAX_TOKENS
    assert nodes.max() <= RECIPE.max_nodes
    assert batch.depth[rewritten].min() >= MIN_DEPTH
    small = draw_families(Recipe(max_nodes=16, family_size=1), np.arange(5000))
    assert np.diff(small.programs.offsets).max() <= 16
    assert small.depth[np.isin(small.kind, (EQUIVALENT, HYBRID))].min() >= MIN_DEPTH


def test_changes_are_counted_where_they_belong(batch) -> None:
    rewrites, dual = batch.changes[:, :-1], batch.changes[:, -1]
    assert batch.changes.shape[1] == len(CHANGES)
    assert (rewrites.sum(0) > 0).all()  # every form occurs
    rewritten = np.isin(batch.kind, (EQUIVALENT, HYBRID))
    assert (rewrites.sum(1) > 0).tolist() == rewritten.tolist()
    assert dual[batch.kind == SEED].sum() == 0
    ends = batch.programs.offsets[1:] - 1
    windows = np.isin(batch.programs.code[:, 0], (ops.ALWAYS, ops.EVENTUALLY))
    has_window = np.diff(np.concatenate([[0], np.cumsum(windows)])[np.r_[0, ends + 1]]) > 0
    roomy = (batch.kind == PERTURBED) & has_window & (batch.tokens < 300)
    assert dual[roomy].mean() == pytest.approx(DUALITY, abs=0.05)


def test_windows_are_valid_and_bounded(batch) -> None:
    code = batch.programs.code
    timed = code[np.isin(code[:, 0], [op for op in range(15) if ops.is_timed(op)])]
    lo, hi = timed[:, 1], timed[:, 2]
    assert lo.min() >= 0
    assert ((hi == ops.UNBOUNDED) | (hi >= lo)).all()
    assert max(lo.max(), hi.max()) <= MAX_BOUND


def test_text_tokens_depth_and_horizon_are_the_formulas() -> None:
    for channels in (1, 12, 150):
        drawn = draw_families(Recipe(seed=channels, channels=channels), np.arange(150))
        data, ends = texts(drawn.programs)
        steps = drawn.programs.horizons()
        for i, phi in enumerate(drawn.programs.unpack()):
            text = data[ends[i] : ends[i + 1]].tobytes().decode()
            assert text == str(phi)
            assert rv.parse(text) == phi
            wrapped = f"/s {text} s".replace(" ", "@")
            symbols = SYMBOLS.findall(wrapped)
            assert "".join(symbols) == wrapped
            assert drawn.tokens[i] == len(symbols)
            assert (drawn.depth[i], steps[i]) == (phi.depth, phi.horizon)


def test_equivalent_members_have_the_robustness_of_their_seed(batch) -> None:
    chosen = np.flatnonzero(np.isin(batch.kind, (SEED, EQUIVALENT)))[:1500]
    formulae = batch.programs.unpack()
    members = [formulae[i] for i in chosen]
    seeds = [seed_of(RECIPE, int(batch.family[i])) for i in chosen]
    for points in (7, 60):
        x = np.random.default_rng(points).normal(size=(8, 3, points)).astype(np.float32)
        assert np.array_equal(rv.robustness(members, x), rv.robustness(seeds, x))
    altered = [formulae[i] for i in np.flatnonzero(batch.kind == HYBRID)[:500]]
    origins = [seed_of(RECIPE, int(i)) for i in batch.family[batch.kind == HYBRID][:500]]
    same = (rv.robustness(altered, x) == rv.robustness(origins, x)).all(1)
    assert same.mean() < 0.02


def test_one_operator_as_its_opposite() -> None:
    recipe = Recipe(family_size=2, shares=(1.0, 0.0, 0.0, 0.0))
    opposed = dataclasses.replace(recipe, shares=(0.0, 0.0, 1.0, 0.0), opposed=1.0)
    numbers = np.arange(300)
    seeds = draw_families(recipe, numbers).programs.unpack()
    changed = draw_families(opposed, numbers).programs.unpack()
    differences, exchanged = set(), 0
    for seed, other in zip(seeds, changed, strict=True):
        if seed.size == other.size:  # not dualised
            place, *below = np.flatnonzero(seed.code[:, 0] != other.code[:, 0])[::-1].tolist()
            assert (seed.thresholds == other.thresholds).all()
            if below:  # always over eventually, or the other way round
                assert below == [place - 1]
                old, new = (phi.code[[place, place - 1], 0].tolist() for phi in (seed, other))
                assert sorted(old) == [ops.ALWAYS, ops.EVENTUALLY]
                assert new == old[::-1]
                exchanged += 1
            else:
                differences.add((int(seed.code[place, 0]), int(other.code[place, 0])))
    assert exchanged > 10
    assert differences == {
        (ops.ALWAYS, ops.EVENTUALLY),
        (ops.EVENTUALLY, ops.ALWAYS),
        (ops.AND, ops.OR),
        (ops.OR, ops.AND),
        (ops.UNTIL, ops.AND),
        (ops.GE, ops.LE),
        (ops.LE, ops.GE),
    }
    assert str(rv.simplify(changed[0])) != str(rv.simplify(seeds[0]))


def test_bands_are_two_thresholds_on_one_channel() -> None:
    recipe = Recipe(family_size=1, shares=(1.0, 0.0, 0.0, 0.0), bands=1.0)
    inside = outside = alone = 0
    for phi in draw_families(recipe, np.arange(300)).programs.unpack():
        assert phi.size <= recipe.max_nodes
        rows = phi.rows()
        for (left, _, _, c, low), (right, _, _, d, high), (op, *_) in zip(
            rows, rows[1:], rows[2:], strict=False
        ):
            if (
                ops.IS_ATOM[left]
                and ops.IS_ATOM[right]
                and op in (ops.AND, ops.OR)
                and c == d
                and low <= high
            ):
                inside += (op, left, right) == (ops.AND, ops.GE, ops.LE)
                outside += (op, left, right) == (ops.OR, ops.LE, ops.GE)
        alone += sum(ops.IS_ATOM[row[0]] for row in rows) % 2
    assert inside > 2 * outside > 100
    assert alone < 30  # where there was no room
    assert (
        find_families(recipe, 0, 5, "test").tolist()
        != find_families(dataclasses.replace(recipe, bands=0.0), 0, 5, "test").tolist()
    )


def test_seeds_built_as_requirements() -> None:
    recipe = Recipe(family_size=1, channels=8, shares=(1.0, 0.0, 0.0, 0.0), requirements=1.0)
    formulae = draw_families(recipe, np.arange(1000)).programs.unpack()
    assert max(phi.size for phi in formulae) <= recipe.max_nodes
    assert {op for phi in formulae for op in phi.code[:, 0].tolist()} == {
        ops.GE, ops.LE, ops.NOT, ops.AND, ops.OR, ops.ALWAYS, ops.EVENTUALLY, ops.UNTIL
    }  # fmt: skip
    texts = [str(phi) for phi in formulae]
    assert all(rv.parse(text) == phi for text, phi in zip(texts, formulae, strict=True))
    shapes = {
        "a response": r"always\S* \( \( not \( .* or eventually\S* ",
        "an edge that is followed": r"not .* and eventually\[1,1\] .* or eventually\[1,1\] \( always",
        "a band": r"(x_\d) >= (\S+) and \1 <= (?!\2)",
        "settling": r"^(eventually\S* \( always|always\S* \( eventually)",
        "one if the other": r"^\( not \( (always|eventually)",
        "a single step": r"\[(\d+),\1\]",
        "the whole trace": r"always \(",
    }
    for name, shape in shapes.items():
        assert sum(re.search(shape, text) is not None for text in texts) > 20, name
    mixed = dataclasses.replace(recipe, requirements=0.5)
    seeds = draw_families(dataclasses.replace(recipe, requirements=0.0), np.arange(1000)).programs
    half = draw_families(mixed, np.arange(1000)).programs.unpack()
    assert 400 < sum(phi not in formulae for phi in half) < 600
    assert not set(half) & set(seeds.unpack())  # the choice itself takes a random number


def test_seeds_of_full_depth() -> None:
    recipe = Recipe(family_size=1, shares=(1.0, 0.0, 0.0, 0.0), full_depth=True)
    batch = draw_families(recipe, np.arange(6000))
    assert np.bincount(batch.depth)[1:] / 6000 == pytest.approx(np.full(6, 1 / 6), abs=0.02)
    complete = 0
    for phi in batch.programs.unpack():
        levels = leaf_levels(phi)
        assert max(levels) == phi.depth
        complete += len(levels) == 1
    assert complete / 6000 > 0.6


def leaf_levels(phi: rv.Formula) -> set[int]:
    """Depths at which atoms stand."""
    todo, levels = [(phi.size - 1, 0)], set()
    sizes = phi.shape()[0]
    while todo:
        node, level = todo.pop()
        n_operands = ops.arity(int(phi.code[node, 0]))
        if n_operands == 0:
            levels.add(level)
        place = node - 1
        for _ in range(n_operands):
            todo.append((place, level + 1))
            place -= int(sizes[place])
    return levels


def test_perturbations_stay_in_their_ranges() -> None:
    state = np.empty(1, np.uint64)
    out = np.zeros((ROOM, COLUMNS), np.int64)
    vibrations = 0
    formulae = rv.random_formulae(2000, seed=8)
    for i, phi in enumerate(formulae):
        key(state, 0, i, 0)
        rows = rows_of(phi)
        assert perturb(state, rows, len(rows), out) == len(rows)
        psi = formula_of(out[: len(rows)])
        assert np.array_equal(phi.code[:, [0, 3]], psi.code[:, [0, 3]])
        atoms = ops.IS_ATOM[phi.code[:, 0]]
        before, after = phi.thresholds[atoms], psi.thresholds[atoms]
        change = np.abs(after - before)
        vibration = bool((change <= 0.1 * np.abs(before) + 0.5 / UNIT + 1e-9).all())
        shift = bool((change <= 6 + 1 / UNIT).all())
        for (op, lo, hi, _), (_, new_lo, new_hi, _) in zip(
            phi.code.tolist(), psi.code.tolist(), strict=True
        ):
            if not ops.is_timed(op):
                continue
            vibration &= 0.85 * lo - 0.5 <= new_lo <= 1.15 * lo + 0.5
            shift &= max(0, lo - 15) <= new_lo <= lo + 40
            assert (hi == ops.UNBOUNDED) == (new_hi == ops.UNBOUNDED)
            if hi != ops.UNBOUNDED:
                width, new = hi - lo, new_hi - new_lo
                assert max(1, 0.6 * width - 0.5) <= new <= max(1, 1.8 * width + 0.5)
        assert vibration or shift
        vibrations += vibration
    assert vibrations / len(formulae) == pytest.approx(0.5, abs=0.05)


def test_seeds_have_the_law_of_random_formulae() -> None:
    """One channel each, so that how many channels a family uses plays no part."""
    recipe = Recipe(seed=2, channels=1, max_nodes=128)
    ours = [seed_of(recipe, i) for i in range(6000)]
    theirs = rv.random_formulae(6000, seed=2, n_variables=1)

    def law(formulae):
        code = np.concatenate([phi.code for phi in formulae])
        thresholds = np.concatenate(
            [phi.thresholds[ops.IS_ATOM[phi.code[:, 0]]] for phi in formulae]
        )
        timed = code[np.isin(code[:, 0], [op for op in range(15) if ops.is_timed(op)])]
        bounded = timed[timed[:, 2] != ops.UNBOUNDED]
        return np.array([
            *np.bincount(code[:, 0], minlength=15) / len(code),
            *np.bincount([phi.depth for phi in formulae], minlength=7) / len(formulae),
            thresholds.mean(), thresholds.std() - 1, (np.abs(thresholds) > 2).mean(),
            (timed[:, 2] == ops.UNBOUNDED).mean(), (timed[:, 1] == 0).mean(),
            bounded[:, 1].mean() / 35, bounded[:, 2].mean() / 35, (bounded[:, 2] == 35).mean(),
        ])  # fmt: skip

    assert law(ours) == pytest.approx(law(theirs), abs=0.025)
    assert np.mean([phi.size for phi in ours]) == pytest.approx(
        np.mean([phi.size for phi in theirs]), rel=0.05
    )


def test_families_use_some_of_the_channels() -> None:
    recipe = Recipe(seed=1, channels=4, family_size=32)
    used = Counter()
    for i in range(200):
        drawn = draw_families(recipe, np.array([i]))
        channels = drawn.programs.code[:, 3]
        found = frozenset(channels[channels >= 0].tolist())
        assert found <= set(range(4))
        used[found] += 1
    assert {len(channels) for channels in used} == {1, 2, 3, 4}
    assert {c for channels in used if len(channels) == 1 for c in channels} == {0, 1, 2, 3}


def test_validation_sees_the_engines_robustness_and_rejects_constants() -> None:
    probes = np.random.default_rng(0).normal(size=(8, 3))
    for phi in rv.random_formulae(300, seed=4):
        rows = rows_of(phi)
        stack = np.empty((ROOM, len(probes)))
        assert varies(rows, len(rows), probes, stack)
        assert np.array_equal(stack[0], rv.robustness(phi, probes[:, :, None]))
        assert not varies(rows, len(rows), probes[:1].repeat(8, 0), stack)
        assert not varies(rows, len(rows), np.full((8, 3), np.inf), stack)


def test_a_family_depends_on_its_number_and_the_recipe_alone(batch) -> None:
    size = RECIPE.family_size
    for number in (0, 17, FAMILIES - 1):
        single = draw_families(RECIPE, np.array([number])).programs.unpack()
        assert single == batch.programs.part(number * size, (number + 1) * size).unpack()
    first = draw_families(RECIPE, np.arange(50))
    assert not same_batch(first, draw_families(Recipe(seed=4), np.arange(50)))


def test_splits_are_by_family(batch) -> None:
    assert (np.ptp(batch.split.reshape(-1, RECIPE.family_size), axis=1) == 0).all()
    shares = np.bincount(batch.split, minlength=len(SPLITS)) / len(batch.split)
    assert shares == pytest.approx(SPLIT_SHARES, abs=0.02)
    found = [find_families(RECIPE, 0, 20, split) for split in SPLITS]
    for place, numbers in enumerate(found):
        drawn = draw_families(RECIPE, numbers)
        assert (drawn.split == place).all()
        expected = np.flatnonzero(batch.split[:: RECIPE.family_size] == place)[:20]
        assert numbers.tolist() == expected.tolist()
    # The split is a property of the seed formula, not of the members around it.
    other = draw_families(Recipe(seed=RECIPE.seed, family_size=1), np.arange(FAMILIES))
    assert np.array_equal(other.split, batch.split[:: RECIPE.family_size])


def test_the_stream_is_deterministic_and_goes_on_anywhere() -> None:
    def take(n, **options):
        return list(islice(stream(RECIPE, batch=64, **options), n))

    batches = take(5)
    for others in (take(5), take(5, workers=3)):
        assert all(same_batch(a, b) for a, b in zip(batches, others, strict=True))
    rest = take(3, start=int(batches[1].family[-1]) + 1)
    assert all(same_batch(a, b) for a, b in zip(batches[2:], rest, strict=True))
    for place, split in enumerate(SPLITS):
        drawn = take(2, split=split)
        assert all((b.split == place).all() and len(b.programs) == 64 for b in drawn)
    x = np.random.default_rng(0).normal(size=(16, 3, 50))
    assert np.isfinite(rv.robustness(batches[0].programs.unpack(), x)).all()


def test_mistakes_are_named() -> None:
    for wrong in (
        {"seed": -1},
        {"family_size": 0},
        {"channels": 0},
        {"max_nodes": 8},
        {"seed": 1.5},
    ):
        with pytest.raises(RhovecError, match=next(iter(wrong))):
            Recipe(**wrong)
    for wrong, message in (
        ({"batch": 10}, "multiple of the family size 8"),
        ({"split": "dev"}, "train, valid, test"),
        ({"workers": 0}, "workers"),
        ({"start": -1}, "start"),
    ):
        with pytest.raises(RhovecError, match=message):
            stream(**wrong)
