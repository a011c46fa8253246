"""Every rewrite is exact at all times of held traces: equal robustness, bit for bit, and truth."""

from __future__ import annotations

import numpy as np
import pytest

import rhovec as rv
from rhovec.corpus.draw import key
from rhovec.corpus.perturb import dualise
from rhovec.corpus.rules import FORMS, MIN_DEPTH, RULES, applies, apply, rewrite
from rhovec.corpus.trees import CHANNEL, COLUMNS, HI, LO, OP, SIZE, THRESHOLD, append
from rhovec.formula import Formula
from rhovec.formula import operators as ops
from rhovec.robustness.reference import robustness_trace

from .formulae import ROOM, formula_of, rows_of

PALETTE = np.arange(3)
APPLICATIONS = 3000  # per rule of the table, shared by its forms; `make soak` does 30,000


def wide_formulae(n: int, seed: int) -> list[Formula]:
    """Random formulae with bounds to 80; every other one has the same window everywhere.

    Thresholds have one decimal, so that traces meet them and > differs from >=.
    """
    rng = np.random.default_rng(seed)
    out = []
    for i, phi in enumerate(rv.random_formulae(n, seed)):
        window = np.sort(rng.integers(0, 81, 2)).tolist()
        rows = []
        for op, lo, hi, channel, threshold in phi.rows():
            if ops.is_timed(op):
                if i % 2:
                    lo, hi = window
                elif hi != ops.UNBOUNDED:
                    lo, hi = np.sort(rng.integers(0, 81, 2)).tolist()
            rows.append((op, lo, hi, channel, round(threshold, 1)))
        out.append(Formula.from_rows(rows))
    return out


SOURCES = [rows_of(phi) for phi in wide_formulae(4000, seed=5)]


def rewrite_at(form: int, rows: np.ndarray, node: int, state: np.ndarray) -> np.ndarray:
    out = np.zeros((ROOM, COLUMNS), np.int64)
    first = node - rows[node, SIZE] + 1
    out[:first] = rows[:first]
    n = apply(form, state, rows[first : node + 1], node - first, out, first, PALETTE)
    for row in rows[node + 1 :]:
        n = append(out, n, row[OP], row[LO], row[HI], row[CHANNEL], row[THRESHOLD])
    return out[:n]


def assert_same_meaning(before: list[Formula], after: list[Formula], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for points in (1, 5, 13, 20, 100):  # windows reach far beyond the end of most
        x = rng.normal(size=(3, 3, points))
        a, b = rv.robustness(before, x, trace=True), rv.robustness(after, x, trace=True)
        assert np.array_equal(a, b)
        x = x.round(1)
        a, b = rv.satisfaction(before, x, trace=True), rv.satisfaction(after, x, trace=True)
        assert np.array_equal(a, b)


@pytest.mark.parametrize("form", range(len(FORMS)), ids=[form.name for form in FORMS])
def test_a_form_leaves_the_meaning_unchanged(form: int) -> None:
    check_form(form, APPLICATIONS)


def check_form(form: int, applications: int, seed: int = 0) -> None:
    rng = np.random.default_rng((form, seed))
    state = np.empty(1, np.uint64)
    key(state, seed, form, 0)
    before, after = [], []
    (rule,) = (rule for rule in RULES if FORMS[form] in rule.forms)
    while len(before) < applications / len(rule.forms):
        rows = SOURCES[rng.integers(len(SOURCES))]
        nodes = [i for i in range(len(rows)) if applies(form, rows, i)]
        if nodes and len(rows) < 40:
            new = rewrite_at(form, rows, int(rng.choice(nodes)), state)
            before.append(formula_of(rows))
            after.append(formula_of(new))
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert_same_meaning(before, after, seed=form)
    # The engine could be wrong twice alike: the slow oracle sees some of them, too.
    traces = {f"x_{i}": rng.normal(size=(2, 9)) for i in range(3)}
    for a, b in zip(before[:5], after[:5], strict=True):
        assert np.array_equal(robustness_trace(a, traces), robustness_trace(b, traces))


def test_passes_leave_the_meaning_unchanged_and_reach_the_minimum_depth() -> None:
    state = np.empty(1, np.uint64)
    before, after = [], []
    for i, rows in enumerate(SOURCES[:1000]):
        key(state, 1, i, 0)
        a, b, old = (np.zeros((ROOM, COLUMNS), np.int64) for _ in range(3))
        a[: len(rows)] = rows
        counts = np.zeros(len(FORMS), np.int16)
        result, _, n = rewrite(state, a, len(rows), b, old, PALETTE, 100, 2000, counts)
        if n:
            before.append(formula_of(rows))
            after.append(formula_of(result[:n]))
            assert counts.sum() > 0
    assert len(after) > 990
    assert min(phi.depth for phi in after) == MIN_DEPTH
    assert max(phi.size for phi in after) <= 100
    assert_same_meaning(before, after, seed=0)


def test_duality_leaves_the_meaning_unchanged() -> None:
    before, after = [], []
    for rows in SOURCES[:1000]:
        out = np.zeros((ROOM, COLUMNS), np.int64)
        n = dualise(rows, len(rows), out)
        before.append(formula_of(rows))
        after.append(formula_of(out[:n]))
        for op, dual in ((ops.ALWAYS, ops.EVENTUALLY), (ops.EVENTUALLY, ops.ALWAYS)):
            assert (rows[:, OP] == op).sum() == (out[:n, OP] == dual).sum()
    assert_same_meaning(before, after, seed=1)


def test_the_table_is_the_papers() -> None:
    probabilities = [rule.probability for rule in RULES]
    assert probabilities == [0.001, 0.099, 0.35, 0.25, 0.05, 0.15, 0.08, 0.02]
    assert sum(probabilities) == pytest.approx(1)
    assert len({form.name for form in FORMS}) == len(FORMS)


def test_the_papers_until_nesting_is_not_exact() -> None:
    """φ → φ U ψ with an arbitrary ψ, which the table must not hold, is caught by these tests."""
    phi, nested = rv.parse("x_0 >= 0"), rv.parse("x_0 >= 0 until x_1 >= 0")
    with pytest.raises(AssertionError):
        assert_same_meaning([phi], [nested], seed=0)
