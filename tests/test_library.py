"""The library of requirements is complete, readable, and fit for models and kernels."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

import rhovec as rv
from rhovec.library import POINTS, Requirement, requirements, schemas

LIBRARY = requirements()
MEASURE = rv.BaseMeasure(n_variables=8, points=POINTS)
each = pytest.mark.parametrize("requirement", LIBRARY, ids=lambda r: r.id)
by_id = {r.id: r for r in LIBRARY}

# The least number of requirements of each kind; every kind was met in published libraries.
KINDS = {
    "abs": 15,
    "equality": 15,
    "arithmetic": 15,
    "implication": 25,
    "unbounded": 15,
    "fractional time": 10,
    "next": 3,
    "until": 1,
}


@cache
def robustness() -> np.ndarray:
    """Of every lowered requirement on traces of mu0, (requirements, 500)."""
    return rv.robustness([r.lowered for r in LIBRARY], MEASURE.sample(500, seed=0))


def test_there_are_many_from_many_domains() -> None:
    assert len(LIBRARY) >= 110
    domains = Counter(r.domain for r in LIBRARY)
    assert len(domains) >= 5 and min(domains.values()) >= 5
    assert max(domains.values()) < len(LIBRARY) / 2


def test_nothing_is_there_twice() -> None:
    for values in ([r.id for r in LIBRARY], [r.title for r in LIBRARY]):
        assert [v for v, count in Counter(values).items() if count > 1] == []
    assert max(Counter((r.system.name, r.lowered) for r in LIBRARY).values()) == 1


def test_every_system_and_channel_is_spoken_of() -> None:
    for name, schema in schemas().items():
        used = {v for r in LIBRARY if r.system.name == name for v in r.lowered.variables}
        assert used == {f"x_{i}" for i in range(len(schema.channels))}, name
        assert len(schema.channels) <= MEASURE.n_variables


def test_all_kinds_of_formula_are_there() -> None:
    found = Counter(tag for r in LIBRARY for tag in r.tags)
    assert {kind: found[kind] for kind in KINDS if found[kind] < KINDS[kind]} == {}


@each
def test_says_what_it_is_and_where_it_is_from(requirement: Requirement) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", requirement.id)
    source = requirement.source
    assert all(
        text and text == text.strip()
        for text in (requirement.title, requirement.label, requirement.system.title, source.work,
                     source.authors, source.where)
    )  # fmt: skip
    assert 1990 <= source.year <= 2025


@each
def test_reads_lowers_and_lifts_back(requirement: Requirement) -> None:
    schema, formula = requirement.system.schema, requirement.formula
    assert schema.lift(requirement.lowered) == formula
    assert schema.parse(formula.to_text(dt=schema.dt)) == formula


@each
def test_thresholds_are_within_reach_of_the_normal_range(requirement: Requirement) -> None:
    assert abs(requirement.lowered.thresholds).max() <= 5


@pytest.mark.parametrize("name", schemas())
def test_lowering_keeps_the_meaning(name: str) -> None:
    """Traces in units satisfy a formula where their standardised channels satisfy the lowered one."""
    channels = schemas()[name].channels
    scale = {v: (c.mean, c.std) for c in reversed(channels) for v in c.variables}
    paths = rv.BaseMeasure(n_variables=len(scale), points=POINTS).sample(50, seed=1)
    traces = {
        variable: mean + std * paths[:, i].astype(np.float64)
        for i, (variable, (mean, std)) in enumerate(scale.items())
    }
    standardised = [
        (sum(weight * traces[v] for v, weight in c.terms) - c.mean) / c.std for c in channels
    ]
    library = [r for r in LIBRARY if r.system.name == name]
    expected = rv.satisfaction([r.formula for r in library], traces)
    found = rv.satisfaction([r.lowered for r in library], np.stack(standardised, axis=1))
    assert (found == expected).all()


def test_robustness_varies_so_that_a_kernel_is_defined() -> None:
    assert np.isfinite(robustness()).all()
    flat = robustness().std(axis=1) < 0.1
    assert [r.id for r, is_flat in zip(LIBRARY, flat, strict=True) if is_flat] == []


def test_the_kernel_tells_meaning_from_form() -> None:
    kernel = rv.StlKernel(MEASURE, n_traces=500)

    def k(first: str, second: str) -> float:
        return float(kernel.similarity(by_id[first].lowered, by_id[second].lowered))

    # "never in third gear below 30" and "third gear implies more than 30"
    assert k("at-breach-gear3", "at-falcaun-s2-30") == pytest.approx(1)
    # of three limits in turn, the first one nearly implies the others
    assert 0.99 < k("at-arch-6a", "at-arch-6abc") < 1
    # two bounds that look alike, of different traces
    assert k("at-arch-1", "at-arch-2") < 0.8
