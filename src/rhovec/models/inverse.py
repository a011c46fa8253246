"""From a vector back to formulae, verified: every answer has been embedded and compared.

Candidates come from a model's decoder (inverter.py), or from anywhere else. Each is embedded, the
closest are tuned, then the best so far is changed one operator at a time, and the results are tuned
again. Tuning is Gauss-Newton: the formula is embedded with each threshold and bound changed a little,
which gives the joint change that brings its vector closest to the request. One or two such changes
replace dozens of random steps.

The search for one request is a coroutine that yields formulae and is sent their vectors. So the searches
for all requests share batches, and each is written as if it were the only one.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.fragment import in_fragment
from ..formula.operators import Channel, Row
from ..formula.simplify import simplify
from ..kernel import SampledKernel
from ..tokens.prefix import BOUNDS, UNIT, WHOLES

BUDGET = 90  # formulae embedded per request, including candidates
TUNED = 3  # candidates, and later changed formulae, that are tuned per round
CHANGED = 32  # formulae with a changed operator that are tried per round
STEPS = 4  # joint changes of one formula's numbers
GAIN = 1e-5  # in similarity, that makes another joint change worthwhile
NEAR = 1 - 2e-5  # similarity at which there is nothing left to gain
FAR = 0.995  # similarity below which a search may go on, and propose more carefully
PARSIMONY = 1e-4  # similarity that another node must gain; the encoder's error is much larger
ANSWERS = 16  # per request, at most
REQUESTS = 128  # worked on at once
STARTS = 2  # formulae per round that careful proposals are asked for

PROBE = 0.02  # change of a threshold that measures a slope; for a bound it is 1
SCALES = 0.3, 4.0  # expected changes of thresholds and of bounds
DAMPINGS = 1e-3, 3e-2, 0.3  # of a joint change; all three are tried
MAX_THRESHOLD = WHOLES - 1 / UNIT  # that a decoder can write
MAX_BOUND = BOUNDS - 1  # in steps: beyond it a held trace no longer changes
DECIMALS = 4  # of a threshold
WINDOW = 10  # steps of a new window, or of one that was unbounded; tuning finds better ones


@dataclass(frozen=True)
class Limits:
    """What the numbers and the structure of an answer may be, and how a search changes them."""

    threshold: float = MAX_THRESHOLD  # vectors of formulae beyond it mean little
    bound: int = MAX_BOUND
    scales: tuple[float, float] = SCALES
    budget: int = BUDGET
    tuned: int = TUNED
    changed: int = CHANGED
    front: bool = False  # tune and answer also short formulae, if no shorter one is as close
    further: int = 0  # budget on top, for requests whose best answer is still below `FAR`


class Found(NamedTuple):
    """A formula, and the inner product of its unit vector and the request."""

    formula: Formula
    similarity: float


class Checked(NamedTuple):
    """A formula, and its similarity to another according to the model and to the exact kernel."""

    formula: Formula
    similarity: float
    kernel: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class Tried:
    formula: Formula
    vector: np.ndarray  # (D,)
    similarity: float

    @property
    def value(self) -> float:
        return self.similarity - PARSIMONY * self.formula.size


STANDARD = Limits()
Embed = Callable[[list[Formula]], np.ndarray]  # formulae -> their unit rows (B, D)
# (target (D,), formula, whether to take care) -> changed formulae
Propose = Callable[[np.ndarray, Formula, bool], Sequence[Formula]]
Search = Generator[list[Formula], np.ndarray, list[Tried]]  # yields B formulae, is sent (B, D)


def choose(
    embed: Embed,
    vectors: np.ndarray,
    candidates: Sequence[Sequence[Formula]],
    limits: Limits = STANDARD,
    propose: Propose = lambda target, phi, careful: [],
) -> list[list[Found]]:
    """Up to ANSWERS different formulae per row, the best first, from one candidate or more.

    limits: with a budget of 0 the candidates are only ranked.
    propose: further changes of the best formula so far, all of which are tried; the flag asks for a few
        careful ones, which are tuned, too.
    """
    searches = [_search(v, c, limits, propose) for v, c in zip(vectors, candidates, strict=True)]
    together = _together(searches)
    try:
        formulae = next(together)
        while True:
            formulae = together.send(embed(formulae))
    except StopIteration as stop:
        return [[Found(one.formula, one.similarity) for one in found] for found in stop.value]


def unit_rows(vectors: Any, sizes: Collection[int], wanted: str) -> np.ndarray:
    """Vectors (D,) or (B, D) with D one of `sizes`, as float64 of length one.

    wanted: what to say of others, after "the vectors have 3 numbers each, and".
    """
    try:
        rows = np.asarray(vectors)
        if rows.dtype.kind == "c":
            raise TypeError
        rows = rows.astype(np.float64)
    except (TypeError, ValueError):
        raise RhovecError("vectors must be an array of real numbers, (D,) or (B, D)") from None
    if rows.ndim not in (1, 2) or not len(rows):
        raise RhovecError(f"vectors must have shape (D,) or (B, D), not {rows.shape}")
    if rows.shape[-1] not in sizes:
        raise RhovecError(f"the vectors have {rows.shape[-1]} numbers each, and {wanted}")
    largest = np.abs(rows).max(axis=-1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(largest) & (largest > 0)))
    if len(bad):
        value = np.atleast_2d(rows)[bad[0]]
        what = "is zero, so it has no direction" if not value.any() else "is not finite"
        raise RhovecError(f"vector {bad[0]} {what}; leave it out")
    rows = rows / largest  # so that squares neither overflow nor vanish
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def simpler(found: Sequence[Found]) -> list[Found]:
    """Pareto front, the closest first: no other answer is both closer and at most as large."""
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: (-one.similarity, one.formula.size)):
        if not kept or one.formula.size < kept[-1].formula.size:
            kept.append(one)
    return kept


def check(kernel: SampledKernel, phi: Formula, found: Sequence[Found]) -> list[Checked]:
    """Answers to a formula's vector with their exact kernel, the largest first."""
    formulae = [one.formula for one in found]
    values = kernel.gram([phi], formulae)[0].tolist()
    errors = kernel.gram_errors([phi], formulae)[0].tolist()
    out = [Checked(*one, k, e) for one, k, e in zip(found, values, errors, strict=True)]
    return sorted(out, key=lambda one: -one.kernel)


# -- the search ------------------------------------------------------------------------------------


def _together(
    searches: Sequence[Search],
) -> Generator[list[Formula], np.ndarray, list[list[Tried]]]:
    """Run searches side by side, with the formulae that they yield at a time in one batch."""
    results: list[list[Tried]] = [[] for _ in searches]
    asked: dict[int, list[Formula]] = {}

    def advance(i: int, vectors: np.ndarray | None) -> None:
        try:
            asked[i] = next(searches[i]) if vectors is None else searches[i].send(vectors)
        except StopIteration as stop:
            results[i] = stop.value

    for i in range(len(searches)):
        advance(i, None)
    while asked:
        sizes = {i: len(formulae) for i, formulae in asked.items()}
        formulae = [phi for group in asked.values() for phi in group]
        asked.clear()
        vectors = yield formulae
        first = 0
        for i, size in sizes.items():
            advance(i, vectors[first : first + size])
            first += size
    return results


def _search(
    target: np.ndarray, candidates: Sequence[Formula], limits: Limits, propose: Propose
) -> Search:
    """The best formulae of different structure for target (D,), of length one."""
    best: dict[object, Tried] = {}  # by structure
    tuned: set[object] = set()
    changed: set[object] = set()
    spent = 0

    def add(tried: Sequence[Tried]) -> None:
        nonlocal spent
        spent += len(tried)
        for one in tried:
            key = structure(one.formula)
            if key not in best or one.value > best[key].value:
                best[key] = one

    def ranked(without: Collection[object] = ()) -> list[object]:
        return sorted((k for k in best if k not in without), key=lambda k: -best[k].value)

    starts = (Numbers(plain(phi, limits.bound), limits) for phi in candidates)
    add((yield from _try(target, (start.put(start.values) for start in starts))))
    while spent < limits.budget:
        near = best[ranked()[0]].similarity > NEAR
        if not near:
            todo = ranked(tuned)[: limits.tuned]
            tuned.update(todo)
            for tried in (yield from _together([_tune(target, best[key], limits) for key in todo])):
                add(tried)
        top = next((key for key in ranked()[: 1 if near else 2] if key not in changed), None)
        if top is None or spent >= limits.budget:
            break
        changed.add(top)
        phi = best[top].formula
        changes = _changed(phi, limits.bound)
        if near:  # only a smaller formula can be better
            changes = (psi for psi in changes if psi.size < phi.size)
        proposed = [] if near else [plain(psi, limits.bound) for psi in propose(target, phi, False)]
        add((yield from _try(target, [*_some(changes, limits.changed), *proposed])))

    # A joint gains little before its numbers are tuned, so careful proposals are all tuned.
    end, extended = spent + limits.further, set[object]()
    while spent < end and best[ranked()[0]].similarity < FAR:
        order = dict.fromkeys([ranked()[0], *_front(best)[::-1]])
        chosen = [key for key in order if key not in extended][:STARTS]
        if not chosen:
            break
        extended.update(chosen)
        proposed = [
            plain(psi, limits.bound)
            for key in chosen
            for psi in propose(target, best[key].formula, True)
        ]
        added = yield from _try(target, proposed)
        add(added)
        todo = [
            key
            for key in dict.fromkeys(structure(one.formula) for one in added)
            if key not in tuned
        ]
        tuned.update(todo)
        for tried in (yield from _together([_tune(target, best[key], limits) for key in todo])):
            add(tried)
        top = ranked()[0]
        if top not in changed:
            changed.add(top)
            changes = _changed(best[top].formula, limits.bound)
            add((yield from _try(target, _some(changes, limits.changed))))

    shown = ranked()
    if limits.front:
        todo = [key for key in _front(best) if key not in tuned][: limits.tuned]
        for tried in (yield from _together([_tune(target, best[key], limits) for key in todo])):
            add(tried)
        shown = [*dict.fromkeys([*_front(best), *ranked()])]
    # Numbers may have changed so that the formulae can be simplified further.
    answers = {one.formula: one for one in (best[key] for key in shown[:ANSWERS])}
    short = {phi: plain(phi, limits.bound) for phi in answers}
    tried = yield from _try(target, (phi for phi in short.values() if phi not in short))
    answers |= {one.formula: one for one in tried}
    kept = [answers[phi] for phi in dict.fromkeys(short.values())]
    return sorted(kept, key=lambda one: -one.value)


def _front(best: Mapping[object, Tried]) -> list[object]:
    """Keys of the Pareto front by size and value, the shortest first."""
    kept: list[object] = []
    for key in sorted(best, key=lambda key: (best[key].formula.size, -best[key].value)):
        if not kept or best[key].value > best[kept[-1]].value:
            kept.append(key)
    return kept


def _try(target: np.ndarray, formulae: Iterable[Formula]) -> Search:
    """The distinct formulae, with their vectors."""
    different = list(dict.fromkeys(formulae))
    if not different:
        return []
    vectors = yield different
    return [
        Tried(phi, vector, float(vector @ target))
        for phi, vector in zip(different, vectors, strict=True)
    ]


def _changed(phi: Formula, last: int) -> Iterator[Formula]:
    """The formula with one change, simplified, in an order that is random with a fixed seed."""
    changes = list(dict.fromkeys(_changes(phi, last)))
    for i in np.random.default_rng(0).permutation(len(changes)).tolist():
        yield plain(changes[i], last)


def _some(formulae: Iterable[Formula], most: int) -> list[Formula]:
    """The first different ones, up to `most`."""
    different: dict[Formula, None] = {}
    for phi in formulae:
        different[phi] = None
        if len(different) == most:
            break
    return list(different)


# -- tuning ----------------------------------------------------------------------------------------


class Numbers:
    """Thresholds, left bounds and finite right bounds of a formula, concatenated, (P,)."""

    def __init__(self, phi: Formula, limits: Limits):
        self.formula = phi
        self.largest, self.last = limits.threshold, limits.bound
        timed = np.array([ops.is_timed(op) for op in phi.code[:, 0].tolist()])
        self.atoms = np.flatnonzero(phi.code[:, 3] >= 0)
        self.left = np.flatnonzero(timed)
        self.right = np.flatnonzero(timed & (phi.code[:, 2] != ops.UNBOUNDED))
        self.values = np.concatenate([
            phi.thresholds[self.atoms], phi.code[self.left, 1], phi.code[self.right, 2]
        ])  # fmt: skip
        bounds = len(self.values) - len(self.atoms)
        self.scale = np.repeat(limits.scales, (len(self.atoms), bounds))
        self.probe = np.repeat((PROBE, 1.0), (len(self.atoms), bounds))

    def put(self, values: np.ndarray) -> Formula:
        """The formula with other numbers, rounded and clipped to their limits."""
        a, b = len(self.atoms), len(self.atoms) + len(self.left)
        code, thresholds = self.formula.code.copy(), self.formula.thresholds.copy()
        thresholds[self.atoms] = values[:a].round(DECIMALS).clip(-self.largest, self.largest) + 0.0
        code[self.left, 1] = values[a:b].round().clip(0, self.last)
        code[self.right, 2] = values[b:].round().clip(code[self.right, 1], self.last)
        return Formula.trusted(code, thresholds, self.formula.channels)

    def probes(self) -> tuple[list[Formula], np.ndarray]:
        """P formulae with one changed number each, and the changes (P,)."""
        limits = np.repeat(
            (self.largest, float(self.last)), (len(self.atoms), len(self.left) + len(self.right))
        )
        bounded = np.searchsorted(self.left, self.right) + len(self.atoms)
        limits[bounded] = self.values[len(self.values) - len(self.right) :]
        steps = np.where(self.values + self.probe <= limits, self.probe, -self.probe)
        changes = self.values + np.diag(steps)
        return [self.put(row) for row in changes], steps


def _tune(target: np.ndarray, now: Tried, limits: Limits) -> Search:
    """Formulae of the same structure, tried until no joint change helps."""
    numbers = Numbers(now.formula, limits)
    formulae, steps = numbers.probes()
    vectors = yield formulae
    tried = [
        Tried(phi, vector, float(vector @ target))
        for phi, vector in zip(formulae, vectors, strict=True)
    ]
    # (P, D): change of the vector per number, in units of the number's expected change
    slopes = (vectors - now.vector).astype(np.float64) * (numbers.scale / steps)[:, None]
    unit = np.eye(len(slopes))
    for _ in range(STEPS):
        products = slopes @ slopes.T
        wanted = slopes @ (target - now.vector)
        damping = max(np.trace(products) / len(slopes), 1e-9) * unit
        changes = (np.linalg.solve(products + d * damping, wanted) for d in DAMPINGS)
        moved = dict.fromkeys(numbers.put(numbers.values + numbers.scale * c) for c in changes)
        moved.pop(now.formula, None)
        if not moved:
            break
        after = yield from _try(target, list(moved))
        tried += after
        best = max(after, key=lambda one: one.similarity)
        if best.similarity < now.similarity + GAIN or best.similarity > NEAR:
            break
        # The slopes are not measured again but corrected by what was observed (Broyden's rule).
        before, numbers = numbers, Numbers(best.formula, limits)
        change = (numbers.values - before.values) / numbers.scale
        surprise = best.vector - now.vector - change @ slopes
        slopes += np.outer(change, surprise) / (change @ change)
        now = best
    return tried


# -- changes of structure --------------------------------------------------------------------------

OPPOSITES = {
    ops.GE: ops.LE,
    ops.LE: ops.GE,
    ops.AND: ops.OR,
    ops.OR: ops.AND,
    ops.ALWAYS: ops.EVENTUALLY,
    ops.EVENTUALLY: ops.ALWAYS,
}


def _changes(phi: Formula, last: int) -> Iterator[Formula]:
    """Formulae with one operator removed, added or exchanged, or with another kind of window."""
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    for i, (op, lo, hi, channel, threshold) in enumerate(rows):
        before, here, behind = rows[: i - sizes[i] + 1], rows[i - sizes[i] + 1 : i], rows[i + 1 :]
        if ops.arity(op) == 1:
            yield Formula.from_rows([*before, *here, *behind])
        elif ops.arity(op) == 2:
            right = here[-sizes[i - 1] :]
            for operand in (here[: len(here) - len(right)], right):
                yield Formula.from_rows([*before, *operand, *behind])
        others: list[Row] = []
        if op in OPPOSITES:
            others.append((OPPOSITES[op], lo, hi, channel, threshold))
        if ops.is_timed(op):
            end = min(lo + WINDOW, last) if hi == ops.UNBOUNDED else ops.UNBOUNDED
            others.append((op, lo, end, None, 0.0))
            if lo:
                others.append((op, 0, hi, None, 0.0))
        if op == ops.UNTIL:
            others.append((ops.AND, 0, 0, None, 0.0))
        elif op in (ops.AND, ops.OR):
            others.append((ops.UNTIL, 0, ops.UNBOUNDED, None, 0.0))
        for row in others:
            yield Formula.from_rows([*before, *here, row, *behind])
        if op not in (ops.ALWAYS, ops.EVENTUALLY):
            for added in (ops.ALWAYS, ops.EVENTUALLY):
                window = (added, 0, WINDOW, None, 0.0)
                yield Formula.from_rows([*before, *here, rows[i], window, *behind])


def plain(phi: Formula, last: int = MAX_BOUND) -> Formula:
    """A formula of equal robustness on traces of last + 1 points, simplified, as a decoder writes it."""
    phi = simplify(in_fragment(phi))
    code = phi.code.copy()
    code[code[:, 0] == ops.GT, 0] = ops.GE
    code[code[:, 0] == ops.LT, 0] = ops.LE
    code[:, 1] = code[:, 1].clip(0, last)
    code[code[:, 2] >= last, 2] = ops.UNBOUNDED
    return Formula.trusted(code, phi.thresholds, phi.channels)


def structure(phi: Formula) -> tuple[bytes, tuple[Channel, ...]]:
    """The part of a formula that tuning does not change."""
    code = phi.code.copy()
    code[:, 1] = 0
    code[:, 2] = code[:, 2] == ops.UNBOUNDED
    return code.tobytes(), phi.channels
