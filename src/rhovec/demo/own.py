"""The facts of the demo of your own space: what its vectors say about your requirements.

Without requirements, formulae are drawn for the channels of the space. All of them are about the same
traces, so any two can be compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from ..errors import RhovecWarning
from ..formula import Formula
from ..formula.requirements import Requirement, heading
from ..kernel import Progress
from ..models.inverse import Checked, check
from ..models.model import Step
from ..robustness import robustness
from ..search import Index
from ..spaces import Space
from ..spaces.decoding import Decoder
from ..spaces.fitting import draw_formulae
from .systems import System
from .tour import HITS, MAX_OTHER, MIN_SAME, Pair, Written

DRAWN, DRAWN_NODES, DRAWN_SEED = 60, 9, 3  # formulae that stand in for requirements
MIN_SPREAD = 0.01  # standard deviation of a drawn formula's robustness, relative to the largest
MIN_SHARE = 0.05  # of the traces on which a drawn formula should hold, and fail
MAX_SHOWN = 200  # requirements on the page
CHOSEN = 4  # requirements that are decoded, and shown on traces
STEPS = 5  # from one requirement to another, with both
HALFWAY, PER_NODE = 0.3, 0.01  # wanted similarity of the two, and what a node of theirs costs
MIN_WAY = 1e-3  # similarity below which two may be opposites, so that no way is the shortest
MIN_MAP = 3  # requirements
MAX_GROUPS = 7  # as many as there are colours
COMPARED = 2000  # pairs of texts


class Front(NamedTuple):
    """A requirement, and formulae for its vector from short to exact."""

    asked: Written
    answers: list[Checked]

    def closest(self, space: Space) -> Pair:
        formula, near, exact, error = self.answers[-1]
        return Pair(self.asked, Written(in_words(space, formula), "decoded"), exact, error, near)


class OwnTour(NamedTuple):
    """Everything that the demo shows of a space."""

    space: Space
    given: int  # requirements that were given; 0 if formulae were drawn
    texts: list[Written]
    vectors: np.ndarray  # (texts, dimension)
    exact: np.ndarray  # (texts, texts), by the kernel on the traces of the space
    near: np.ndarray  # the same by vectors
    same: list[Pair]  # nearly the same meaning, those with the least text in common first
    other: list[Pair]  # the same variables, another meaning, the most similar texts first
    fronts: list[Front]  # none if the space is centred
    way: list[Step]  # from one requirement to another; none if the space is centred
    hits: list[Pair]  # a query, and what the search found for it
    systems: list[
        System
    ]  # a requirement each, on the traces that are worst, middling and best for it


def own_tour(
    space: Space,
    requirements: Sequence[Requirement] = (),
    progress: Progress = lambda share: None,
) -> OwnTour:
    """Compute everything that the demo shows of a space of traces."""
    formulae = [r.formula for r in requirements[:MAX_SHOWN]] or _drawn(space)
    texts = _texts(space, requirements[:MAX_SHOWN], formulae)
    kernel = space.kernel()
    vectors = space.embed(formulae, warn=False)
    exact = kernel.gram(formulae)
    near = space.similarity(formulae, formulae, warn=False)
    progress(0.1)

    def pair(i: int, j: int) -> Pair:
        error = kernel.standard_error(formulae[i], formulae[j])
        return Pair(texts[i], texts[j], exact[i, j], error, float(near[i, j]))

    chosen = np.unique(np.linspace(0, len(formulae) - 1, CHOSEN).round().astype(int)).tolist()
    fronts, way = [], []
    if not space.centred:
        found = space.front(vectors[chosen], progress=lambda share: progress(0.1 + 0.5 * share))
        fronts = [
            Front(texts[i], sorted(check(kernel, formulae[i], group), key=lambda a: a.formula.size))
            for i, group in zip(chosen, found, strict=True)
        ]
        way = _way(space, formulae, exact)
    progress(0.9)
    upper = np.triu_indices(len(formulae), 1)
    pairs = list(zip(*(side.tolist() for side in upper), strict=True))
    alike = ((i, j) for i, j in pairs if exact[i, j] >= MIN_SAME)
    unlike = (
        (i, j)
        for i, j in pairs
        if exact[i, j] <= MAX_OTHER and formulae[i].variables == formulae[j].variables
    )
    return OwnTour(
        space=space,
        given=len(requirements),
        texts=texts,
        vectors=vectors,
        exact=exact,
        near=near,
        same=[pair(i, j) for i, j in _first(alike, texts)],
        other=[pair(i, j) for i, j in _first(unlike, texts, most_alike=True)],
        fronts=fronts,
        way=way,
        hits=_hits(space, formulae, texts, way),
        systems=[_system(space, formulae[i], texts[i]) for i in chosen],
    )


def in_words(space: Space, phi: Formula) -> str:
    """A formula in names, units and seconds."""
    return phi.to_text(dt=space.schema.dt)


def _drawn(space: Space) -> list[Formula]:
    """Short formulae for the channels; first those that hold on some traces and not on others."""
    drawn = draw_formulae(space.scales, 20 * DRAWN, DRAWN_SEED)
    short = drawn.select(np.flatnonzero(np.diff(drawn.offsets) <= DRAWN_NODES)).unpack()
    lift = Decoder(space.scales, np.zeros((0, 4))).lift
    found = list(dict.fromkeys(map(lift, short)))
    values = robustness(found, space.measure.values, variables=space.scales.variables)
    varied = values.std(axis=1) > MIN_SPREAD * np.abs(values).max(axis=1)
    holds = (values > 0).mean(axis=1)
    told = varied & (np.minimum(holds, 1 - holds) > MIN_SHARE)
    order = np.concatenate([np.flatnonzero(told), np.flatnonzero(varied & ~told)])
    return [found[i] for i in order[:DRAWN].tolist()]


def _texts(
    space: Space, requirements: Sequence[Requirement], formulae: Sequence[Formula]
) -> list[Written]:
    """The formulae as they were written, grouped by their variables, or by the first of these."""
    names = [", ".join(phi.variables) for phi in formulae]
    few = len(set(names)) <= MAX_GROUPS
    groups = names if few else [phi.variables[0] for phi in formulae]
    if requirements:
        written = [(r.text, heading(r.id, r.title) or r.source) for r in requirements]
    else:
        written = [(in_words(space, phi), f"formula {i}") for i, phi in enumerate(formulae, 1)]
    return [
        Written(text, title, "", name, group)
        for (text, title), name, group in zip(written, names, groups, strict=True)
    ]


def _first(
    pairs: Iterable[tuple[int, int]], texts: Sequence[Written], most_alike: bool = False
) -> Iterator[tuple[int, int]]:
    """Up to five pairs of texts, the least alike first unless told otherwise; no text is in two."""
    ranked = sorted(
        (
            SequenceMatcher(None, texts[i].text, texts[j].text, autojunk=False).ratio(),
            i,
            j,
        )
        for (i, j), _ in zip(pairs, range(COMPARED), strict=False)
    )
    used: set[int] = set()
    for _, i, j in ranked[::-1] if most_alike else ranked:
        if len(used) < 2 * HITS and not used & {i, j}:
            used |= {i, j}
            yield i, j


def _way(space: Space, formulae: list[Formula], exact: np.ndarray) -> list[Step]:
    upper = np.triu(exact, 1)
    sizes = np.array([phi.size for phi in formulae])
    cost = np.abs(upper - HALFWAY) + PER_NODE * (sizes[:, None] + sizes)
    i, j = np.unravel_index(cost.argmin(), upper.shape)
    if not upper[i, j] > MIN_WAY:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhovecWarning)  # residuals are on the page
        return space.interpolate(formulae[i], formulae[j], STEPS)


def _hits(
    space: Space, formulae: list[Formula], texts: list[Written], way: Sequence[Step]
) -> list[Pair]:
    """The formula halfway, or the first requirement, in all requirements: by vectors, then exactly."""
    if len(formulae) < MIN_MAP:
        return []
    query = way[len(way) // 2].formula if way else formulae[0]
    asked = Written(in_words(space, query), "asked for")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhovecWarning)
        with Index.build(formulae, vectors=space) as index:
            hits = index.search(query, HITS, rerank=True)
    known = dict(zip(reversed(formulae), reversed(texts), strict=True))
    return [Pair(asked, known[h.formula], h.kernel, h.standard_error, h.similarity) for h in hits]


def _system(space: Space, phi: Formula, text: Written) -> System:
    """A requirement on the traces where its robustness is lowest, in the middle, and highest."""
    measure, schema = space.measure, space.schema
    order = robustness(phi, measure.values, variables=measure.variables).argsort(kind="stable")
    picked = {"lowest": order[0], "middle": order[len(order) // 2], "highest": order[-1]}
    variable = phi.variables[0]
    limits = [
        threshold / channel[0][1]
        for _, _, _, channel, threshold in phi.rows()
        if channel is not None and len(channel) == 1 and channel[0][0] == variable
    ]
    seconds = schema.dt * (measure.points - 1)
    clock = next(
        (one for one in (("s", 1.0), ("min", 60.0), ("h", 3600.0)) if seconds < 600 * one[1]),
        ("h", 3600.0),
    )
    units = {c.variables[0]: c.unit for c in schema.channels}
    return System(
        text.title, schema.dt, clock, (), units[variable], {text.title: text.text},
        (text.title, variable, tuple(dict.fromkeys(limits))),
        {
            name: dict(zip(measure.variables, measure.values[i], strict=True))
            for name, i in picked.items()
        },
        (phi,),
    )  # fmt: skip
