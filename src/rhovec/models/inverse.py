"""From a vector back to formulae, verified: what is answered has been embedded and compared.

Candidates come from a decoder, or from anywhere else. Each is embedded, the nearest are tuned, then the
best so far is changed one operator at a time, and what comes out is tuned again. Tuning is Gauss-Newton:
the formula is embedded with each threshold and bound changed a little, which tells the joint change that
brings its vector nearest to the request; one or two such changes do what takes random steps dozens.

The search for a request is a coroutine that yields formulae and is sent their vectors. So the searches
for all requests, and all that one of them tries at once, share batches, and each reads as if alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.fragment import in_fragment
from ..formula.operators import Channel, Row
from ..formula.simplify import simplify
from ..kernel import Progress, StlKernel
from ..tokens.prefix import BOUNDS, CHANNELS, UNIT, WHOLES

BUDGET = 90  # formulae embedded for a request, candidates included
TUNED = 3  # candidates, and then changed formulae, that are tuned in a round
CHANGED = 32  # formulae with a changed operator that are tried in a round
STEPS = 4  # joint changes of one formula's numbers
GAIN = 1e-5  # in similarity, that another joint change is worth
TOP_P = 0.75  # likelier tokens than by default are drawn: their formulae are nearer
ENOUGH = 0.999  # a similarity from which on no other candidate is drawn; the encoder errs by more
NEAR = 1 - 2e-5  # a similarity from which on nothing is left to gain
PARSIMONY = 1e-4  # similarity that a node must bring; the encoder errs by far more
ANSWERS = 16  # at most, for a request
REQUESTS = 128  # worked on at once

PROBE = 0.02  # change of a threshold by which the vector's change is seen; that of a bound is 1
SCALES = 0.3, 4.0  # how far thresholds and bounds are expected to move
DAMPINGS = 1e-3, 3e-2, 0.3  # of a joint change; all three are tried
LARGEST = WHOLES - 1 / UNIT  # threshold that a decoder can say
LAST = BOUNDS - 1  # bound: a held trace no longer changes there
DECIMALS = 4
WINDOW = 10  # steps of a window that was unbounded, or is new; tuning finds better ones


class Found(NamedTuple):
    """A formula, and how near it is to the request: the inner product of the unit vectors."""

    formula: Formula
    similarity: float


class Checked(NamedTuple):
    """A formula, its similarity to another by the model, and by the exact kernel."""

    formula: Formula
    similarity: float
    kernel: float
    standard_error: float


class Decoder(Protocol):
    """`models.generate.Generator`, or what answers as it does."""

    def greedy(self, vectors: np.ndarray, /) -> list[Formula]: ...

    def sample(
        self,
        vectors: np.ndarray,
        samples: int,
        /,
        *,
        top_p: float = ...,
        numbers: bool = ...,
        seed: int = ...,
    ) -> list[list[Formula]]: ...


@dataclass(frozen=True, eq=False)
class Tried:
    formula: Formula
    vector: np.ndarray  # (D,)
    similarity: float

    @property
    def value(self) -> float:
        return self.similarity - PARSIMONY * self.formula.size


Embed = Callable[[list[Formula]], np.ndarray]  # formulae -> their unit rows (B, D)
Search = Generator[list[Formula], np.ndarray, list[Tried]]  # yields B formulae, is sent (B, D)


class Inverter:
    """Unit vectors (B, D) -> formulae.

    channels, largest: how many channels `embed` knows, and the largest threshold. Beyond it vectors
    mean little, and a search that may go there finds some that seem near by accident.
    """

    def __init__(
        self, embed: Embed, decoder: Decoder, channels: int = CHANNELS, largest: float = LARGEST
    ):
        self.embed = embed
        self.decoder = decoder
        self.channels = channels
        self.largest = largest

    def decode(
        self,
        vectors: np.ndarray,
        samples: int = 16,
        refine: bool = True,
        seed: int = 0,
        channels: int | None = None,
        progress: Progress | None = None,
    ) -> list[list[Found]]:
        """For each row at most ANSWERS different formulae, the best first.

        samples: candidates that the decoder draws where its likeliest one is not near already;
        their numbers are the likeliest, as tuning finds better ones. channels: answer in terms of the
        first so many alone.
        """
        if samples < 0:
            raise RhovecError(f"samples must be 0 or more, not {samples}")
        out: list[list[Found]] = []
        for first in range(0, len(vectors), REQUESTS):
            part = vectors[first : first + REQUESTS]
            known = min(self.channels, channels or self.channels)
            candidates = [[phi] for phi in self.decoder.greedy(part)]
            unsure = self._unsure(part, candidates, known)
            if samples and len(unsure):
                drawn = self.decoder.sample(
                    part[unsure], samples, top_p=TOP_P, numbers=False, seed=seed
                )
                for i, more in zip(unsure.tolist(), drawn, strict=True):
                    candidates[i] += more
            candidates = [_within(group, known) for group in candidates]
            budget = BUDGET if refine else 0
            out += choose(self.embed, part, candidates, budget, self.largest)
            if progress:
                progress(len(out) / len(vectors))
        return out

    def _unsure(
        self, vectors: np.ndarray, likeliest: Sequence[Sequence[Formula]], channels: int
    ) -> np.ndarray:
        """The places of those whose only candidate is not near, or needs more channels."""
        known = _names(channels)
        enough = np.array([known.issuperset(phi.variables) for (phi,) in likeliest])
        (places,) = np.nonzero(enough)
        if len(places):
            found = self.embed([likeliest[i][0] for i in places.tolist()])
            enough[places] = np.einsum("bd,bd->b", found, vectors[places]) >= ENOUGH
        return np.flatnonzero(~enough)


def choose(
    embed: Embed,
    vectors: np.ndarray,
    candidates: Sequence[Sequence[Formula]],
    budget: int = BUDGET,
    largest: float = LARGEST,
) -> list[list[Found]]:
    """As `Inverter.decode`, from one candidate or more for each row; without a budget just ranked."""
    searches = [_search(v, c, budget, largest) for v, c in zip(vectors, candidates, strict=True)]
    together = _together(searches)
    try:
        formulae = next(together)
        while True:
            formulae = together.send(embed(formulae))
    except StopIteration as stop:
        return [[Found(one.formula, one.similarity) for one in found] for found in stop.value]


def simpler(found: Sequence[Found]) -> list[Found]:
    """Those than which no other is both nearer and no larger; the nearest first."""
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: (-one.similarity, one.formula.size)):
        if not kept or one.formula.size < kept[-1].formula.size:
            kept.append(one)
    return kept


def check(kernel: StlKernel, phi: Formula, found: Sequence[Found]) -> list[Checked]:
    """Answers to a formula's vector beside the exact kernel, the nearest by it first."""
    formulae = [one.formula for one in found]
    values = kernel.gram([phi], formulae)[0].tolist()
    errors = kernel.gram_errors([phi], formulae)[0].tolist()
    out = [Checked(*one, k, e) for one, k, e in zip(found, values, errors, strict=True)]
    return sorted(out, key=lambda one: -one.kernel)


# -- the search ------------------------------------------------------------------------------------


def _together(
    searches: Sequence[Search],
) -> Generator[list[Formula], np.ndarray, list[list[Tried]]]:
    """Searches side by side: what they ask for at one time is asked for at once."""
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
    target: np.ndarray, candidates: Sequence[Formula], budget: int, largest: float
) -> Search:
    """The best formulae of different structure; target: (D,), of length one."""
    best: dict[object, Tried] = {}  # by structure
    tuned: set[object] = set()
    changed: set[object] = set()
    spent = 0

    def add(tried: Sequence[Tried]) -> None:
        nonlocal spent
        spent += len(tried)
        for one in tried:
            key = _structure(one.formula)
            if key not in best or one.value > best[key].value:
                best[key] = one

    def ranked(without: Collection[object] = ()) -> list[object]:
        return sorted((k for k in best if k not in without), key=lambda k: -best[k].value)

    starts = (_Numbers(plain(phi), largest) for phi in candidates)
    add((yield from _try(target, (start.put(start.values) for start in starts))))
    while spent < budget:
        near = best[ranked()[0]].similarity > NEAR
        if not near:
            todo = ranked(tuned)[:TUNED]
            tuned.update(todo)
            for tried in (
                yield from _together([_tune(target, best[key], largest) for key in todo])
            ):
                add(tried)
        top = next((key for key in ranked()[: 1 if near else 2] if key not in changed), None)
        if top is None or spent >= budget:
            break
        changed.add(top)
        phi = best[top].formula
        # Of what is near enough only something smaller can be better.
        others = (psi for psi in map(plain, _changes(phi)) if psi.size < phi.size or not near)
        add((yield from _try(target, _some(others))))

    # Numbers may have moved so that the simplifier finds more to do.
    answers = {one.formula: one for one in (best[key] for key in ranked()[:ANSWERS])}
    short = {phi: plain(phi) for phi in answers}
    tried = yield from _try(target, (phi for phi in short.values() if phi not in short))
    answers |= {one.formula: one for one in tried}
    kept = [answers[phi] for phi in dict.fromkeys(short.values())]
    return sorted(kept, key=lambda one: -one.value)


def _try(target: np.ndarray, formulae: Iterable[Formula]) -> Search:
    """The formulae, each once, with their vectors."""
    different = list(dict.fromkeys(formulae))
    if not different:
        return []
    vectors = yield different
    return [
        Tried(phi, vector, float(vector @ target))
        for phi, vector in zip(different, vectors, strict=True)
    ]


def _some(formulae: Iterator[Formula]) -> list[Formula]:
    """CHANGED different ones at most, drawn at random, always alike."""
    different = list(dict.fromkeys(formulae))
    order = np.random.default_rng(0).permutation(len(different))[:CHANGED]
    return [different[i] for i in order.tolist()]


def _names(channels: int) -> set[str]:
    return {f"x_{i}" for i in range(channels)}


def _within(formulae: Sequence[Formula], channels: int) -> list[Formula]:
    known = _names(channels)
    kept = [phi for phi in formulae if known.issuperset(phi.variables)]
    if not kept:
        names = sorted({name for phi in formulae for name in phi.variables} - known)
        raise RhovecError(
            f"the vector speaks of {names[0]}, and answers must be in x_0 ... x_{channels - 1}; "
            "draw more samples, or decode without a schema"
        )
    return kept


# -- tuning ----------------------------------------------------------------------------------------


class _Numbers:
    """The thresholds, left bounds and finite right bounds of a formula, one after the other, (P,)."""

    def __init__(self, phi: Formula, largest: float):
        self.formula = phi
        self.largest = largest
        timed = np.array([ops.is_timed(op) for op in phi.code[:, 0].tolist()])
        self.atoms = np.flatnonzero(phi.code[:, 3] >= 0)
        self.left = np.flatnonzero(timed)
        self.right = np.flatnonzero(timed & (phi.code[:, 2] != ops.UNBOUNDED))
        self.values = np.concatenate([
            phi.thresholds[self.atoms], phi.code[self.left, 1], phi.code[self.right, 2]
        ])  # fmt: skip
        bounds = len(self.values) - len(self.atoms)
        self.scale = np.repeat(SCALES, (len(self.atoms), bounds))
        self.probe = np.repeat((PROBE, 1.0), (len(self.atoms), bounds))

    def put(self, values: np.ndarray) -> Formula:
        """The formula with other numbers, rounded and held within their limits."""
        a, b = len(self.atoms), len(self.atoms) + len(self.left)
        code, thresholds = self.formula.code.copy(), self.formula.thresholds.copy()
        thresholds[self.atoms] = values[:a].round(DECIMALS).clip(-self.largest, self.largest) + 0.0
        code[self.left, 1] = values[a:b].round().clip(0, LAST)
        code[self.right, 2] = values[b:].round().clip(code[self.right, 1], LAST)
        return Formula.trusted(code, thresholds, self.formula.channels)

    def probes(self) -> tuple[list[Formula], np.ndarray]:
        """The formula with one number changed each, and the changes (P,)."""
        limits = np.repeat(
            (self.largest, float(LAST)), (len(self.atoms), len(self.left) + len(self.right))
        )
        bounded = np.searchsorted(self.left, self.right) + len(self.atoms)
        limits[bounded] = self.values[len(self.values) - len(self.right) :]
        steps = np.where(self.values + self.probe <= limits, self.probe, -self.probe)
        changes = self.values + np.diag(steps)
        return [self.put(row) for row in changes], steps


def _tune(target: np.ndarray, now: Tried, largest: float) -> Search:
    """Formulae of the same structure, tried on the way to where no joint change helps."""
    numbers = _Numbers(now.formula, largest)
    formulae, steps = numbers.probes()
    vectors = yield formulae
    tried = [
        Tried(phi, vector, float(vector @ target))
        for phi, vector in zip(formulae, vectors, strict=True)
    ]
    # (P, D): how the vector moves with each number, in units of what it is expected to move
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
        # The slopes are not measured again but corrected by what was seen (Broyden's rule).
        before, numbers = numbers, _Numbers(best.formula, largest)
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


def _changes(phi: Formula) -> Iterator[Formula]:
    """Formulae with one operator gone, new, or another one, or with another kind of window."""
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
            end = min(lo + WINDOW, LAST) if hi == ops.UNBOUNDED else ops.UNBOUNDED
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


def plain(phi: Formula) -> Formula:
    """A formula with the same robustness on traces of 100 points, simplified, in a decoder's words."""
    phi = simplify(in_fragment(phi))
    code = phi.code.copy()
    code[code[:, 0] == ops.GT, 0] = ops.GE
    code[code[:, 0] == ops.LT, 0] = ops.LE
    code[:, 1] = code[:, 1].clip(0, LAST)
    code[code[:, 2] >= LAST, 2] = ops.UNBOUNDED
    return Formula.trusted(code, phi.thresholds, phi.channels)


def _structure(phi: Formula) -> tuple[bytes, tuple[Channel, ...]]:
    """What tuning leaves as it is."""
    code = phi.code.copy()
    code[:, 1] = 0
    code[:, 2] = code[:, 2] == ops.UNBOUNDED
    return code.tobytes(), phi.channels
