"""The facts of the demo: similarities of published requirements, by the model and by the kernel.

Each requirement is lowered by the schema of its system: a channel's normal range becomes -2 to 2, and
time becomes steps. Numbers are comparable only within a system, so both requirements of a pair belong
to the same system. Channels that share a variable would move independently on the kernel's random
traces, so pairs that need both are left out.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from ..errors import RhovecWarning
from ..kernel import Progress, SampledKernel
from ..library import Requirement, requirements
from ..models import store
from ..models.inverse import DECIMALS, check
from ..models.model import Model, describe
from ..search import Index
from .systems import System, systems

TRACES, TRACES_SEED = 10_000, 1  # of the exact kernel
MIN_SAME, MAX_OTHER = 0.95, 0.1  # exact similarity of the same meaning, and of another
MAX_TEXT = 125  # characters of a requirement in a pair
REWRITTEN = (  # requirements, each with another way to write it
    ("at-arch-1", "not eventually[0,8] eventually[0,12] speed >= 120"),
    ("at-arch-6a", "eventually[0,30] rpm >= 3000 or not eventually[0,4] speed >= 35"),
    ("quad-ainncs", "eventually[5,5] abs(height - 1) <= 0.06"),
)
DECODED = ("at-arch-6a", "ap-basal-hypo", "quad-ainncs", "robot-reach-avoid")
SEARCHED, QUERY = "transmission", "always not (rpm > 4500 and speed > 110)"
HITS = 5


class Written(NamedTuple):
    """A requirement: its text in names, units and seconds, its title, and its source.

    Drawings group requirements by `domain`, and within that by `system`.
    """

    text: str
    title: str
    source: str = ""
    system: str = ""
    domain: str = ""


class Pair(NamedTuple):
    """Two requirements of the same system, and the similarity of their meaning."""

    first: Written
    second: Written
    exact: float  # by the kernel
    error: float  # standard error of `exact`
    neural: float  # by the vectors


class Tour(NamedTuple):
    """Everything that the demo shows."""

    requirements: list[Requirement]  # those that the model can read
    vectors: np.ndarray  # (requirements, dimension)
    exact: np.ndarray  # (requirements, requirements), by the kernel
    neural: np.ndarray  # the same by the model
    outside: str  # which requirements exceed what the model was trained on, in one line
    rewritten: list[Pair]  # exactly equivalent
    same: list[Pair]  # written differently, nearly the same meaning
    other: list[Pair]  # written almost the same, another meaning
    wrong: list[Pair]  # where the model errs most
    decoded: list[Pair]  # second: from the vector of the first; none if the model has no decoder
    hits: list[Pair]  # QUERY, and the requirements that the search found for it
    systems: list[System]

    @property
    def within(self) -> tuple[np.ndarray, np.ndarray]:
        """Exact and neural similarity, (pairs,) each, of all pairs within a system."""
        chosen = _within(self.requirements)
        return self.exact[chosen], self.neural[chosen]


def tour(model: Model, progress: Progress = lambda share: None) -> Tour:
    """Compute everything that the demo shows, for a model."""
    known = {f"x_{channel}" for channel in range(model.encoder.channels)}
    read = [r for r in requirements() if known.issuperset(r.lowered.variables)]
    lowered = [r.lowered for r in read]
    vectors = model.embed(lowered, warn=False, progress=lambda share: progress(0.5 * share))
    neural = vectors @ vectors.T
    kernel = model.kernel(TRACES, TRACES_SEED)
    exact = kernel.gram(lowered)
    progress(0.7)

    def pair(i: int, j: int) -> Pair:
        error = kernel.standard_error(lowered[i], lowered[j])
        return Pair(written(read[i]), written(read[j]), exact[i, j], error, float(neural[i, j]))

    pairs = list(_pairs(read))
    same = sorted(
        (p for p in pairs if exact[p[1:]] >= MIN_SAME),
        key=lambda p: (read[p[1]].source == read[p[2]].source, p[0]),
    )
    other = sorted(
        (
            p
            for p in pairs
            if exact[p[1:]] <= MAX_OTHER
            and read[p[1]].formula.variables == read[p[2]].formula.variables
        ),
        reverse=True,
    )
    errors = np.where(_within(read), np.abs(exact - neural), 0)
    by_id = {r.id: r for r in read}
    return Tour(
        requirements=read,
        vectors=vectors,
        exact=exact,
        neural=neural,
        outside=describe(model.outside(lowered), len(lowered)),
        rewritten=[_rewritten(model, kernel, by_id[name], text) for name, text in REWRITTEN],
        same=[pair(i, j) for i, j in _first(same, read, 5)],
        other=[pair(i, j) for i, j in _first(other, read, 5)],
        wrong=[
            pair(*np.unravel_index(i, errors.shape)) for i in np.argsort(-errors, axis=None)[:3]
        ],
        decoded=_decoded(model, kernel, [by_id[name] for name in DECODED]),
        hits=_found(model, [r for r in read if r.system.name == SEARCHED]),
        systems=systems(),
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


def written(requirement: Requirement) -> Written:
    source = requirement.source
    author = source.authors.partition(",")[0].partition(" and ")[0].split()[-1]
    note = f"{author} {source.year}, {requirement.label}"
    system = requirement.system
    return Written(one_line(requirement.text), requirement.title, note, system.title, system.domain)


def _within(read: list[Requirement]) -> np.ndarray:
    """(B, B) bool: pairs of two requirements of the same system, each pair once."""
    names = np.array([r.system.name for r in read])
    return np.triu(names[:, None] == names, 1)


def _pairs(read: list[Requirement]) -> Iterator[tuple[float, int, int]]:
    """(share of text in common, i, j) for pairs of short requirements of the same system."""
    texts = [one_line(r.text) for r in read]
    for j, second in enumerate(read):
        for i, first in enumerate(read[:j]):
            if first.system is second.system and max(len(texts[i]), len(texts[j])) <= MAX_TEXT:
                channels = {*first.formula.channels, *second.formula.channels}
                uses = Counter(name for channel in channels for name, _ in channel)
                if max(uses.values()) == 1:
                    matcher = SequenceMatcher(None, texts[i], texts[j], autojunk=False)
                    yield matcher.ratio(), i, j


def _first(
    pairs: Iterable[tuple[float, int, int]], read: list[Requirement], count: int
) -> list[tuple[int, int]]:
    """The first pairs in which no requirement occurs twice and no system more than twice."""
    chosen: list[tuple[int, int]] = []
    used: Counter[str] = Counter()
    for _, i, j in pairs:
        system, names = read[i].system.name, (read[i].id, read[j].id)
        if used[system] < 2 and not any(used[name] for name in names) and len(chosen) < count:
            chosen.append((i, j))
            used.update((system, *names))
    return chosen


def _rewritten(model: Model, kernel: SampledKernel, requirement: Requirement, text: str) -> Pair:
    schema, phi = requirement.system.schema, requirement.lowered
    psi = schema.lower(text)
    return Pair(
        written(requirement),
        Written(text, "the same, rewritten"),
        kernel.similarity(phi, psi),
        kernel.standard_error(phi, psi),
        model.similarity(phi, psi, warn=False),
    )


def _decoded(model: Model, kernel: SampledKernel, chosen: list[Requirement]) -> list[Pair]:
    if model.folder is None or store.read_decoder(model.folder) is None:
        return []
    out = []
    for requirement in chosen:
        schema, phi = requirement.system.schema, requirement.lowered
        vector = model.embed([phi], warn=False)
        (found,) = model.inverter.decode(vector, channels=len(schema.channels))
        (best,) = check(kernel, phi, found[:1])
        text = schema.to_text(best.formula, decimals=DECIMALS)
        answer = Written(text, "decoded from its vector")
        out.append(
            Pair(written(requirement), answer, best.kernel, best.standard_error, best.similarity)
        )
    return out


def _found(model: Model, library: list[Requirement]) -> list[Pair]:
    """QUERY in a system's requirements: candidates by the vectors, then ranked by the kernel."""
    schema = library[0].system.schema
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhovecWarning)  # Tour.outside says it of all requirements
        with Index.build([r.formula for r in library], vectors=model, schema=schema) as index:
            hits = index.search(QUERY, HITS, rerank=True)
    entries = {r.formula: written(r) for r in library}
    asked = Written(QUERY, "asked for")
    return [Pair(asked, entries[h.formula], h.kernel, h.standard_error, h.similarity) for h in hits]
