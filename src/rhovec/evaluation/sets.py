"""Sets of formulae to evaluate on, each with pairs that are equivalent by construction.

A set is the headline set, held-out families of the corpus, or any file of formulae. An equivalent pair
of a family is two of its members that are the seed or an exact rewrite of it; a formula of a file is
paired with a rewrite of itself by the same rules. A set has a SHA-256: of the file, or of the canonical
texts, one per line.

The headline set is shipped, so that it stays the same when the corpus changes. Like the paper's, it has
500 formulae of each depth 1 ... 6 whose branches all end at that depth. It was made by

    python -c "from rhovec.evaluation.sets import write_headline; write_headline()"
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..corpus.draw import key, uniform
from ..corpus.families import (
    CHANGES,
    EQUIVALENT,
    MAX_TOKENS,
    SEED,
    SHARES,
    Recipe,
    draw_families,
    find_families,
)
from ..corpus.perturb import DUALITY, dualise
from ..corpus.rules import rewrite
from ..corpus.trees import COLUMNS, HI, LO, OP, THRESHOLD, TOKENS, UNIT, WRAPPING, append
from ..errors import Problem, RhovecError
from ..formula import Formula, parse, simplify
from ..formula import operators as ops
from ..formula.requirements import read_requirements
from ..formula.sample import MAX_DEPTH
from ..formula.schema import Schema

Pair = tuple[Formula, Formula]

HEADLINE = Path(__file__).parent / "data" / "formulae.txt.gz"
HEADLINE_SHA256 = (
    "7c25b1f4ae6789f00a858e89d00b85dc5b7a32cbc30f6765ae3eaedd74f56973"  # of the text in it
)
HEADLINE_FORMULAE = 3000
SEEDS = Recipe(family_size=1, full_depth=True, shares=(1.0, 0.0, 0.0, 0.0))
DRAWN = 100  # points of the traces that drawn windows are meant for
FAMILIES = 2000  # searched for complete trees at a time
PAIR_MEMBERS = 4  # of a family; two of them almost certainly have different texts
MAX_NODES = Recipe().max_nodes  # of a rewritten formula
MAX_BOUND = 40_000  # of a formula to rewrite: rules draw from pairs of bounds, in 31 bits
ATTEMPTS = 8  # to rewrite a formula within the limits
QUICK = 240  # formulae of a set that was made small
IN_FAMILIES = 0.44  # of a mixture
# Rewrites copy thresholds and never compute with them. A threshold with more than four decimals, or a
# huge one, is replaced by a unique number from here on, and put back afterwards.
_STAND_IN = 10**15


@dataclass(frozen=True)
class FormulaSet:
    name: str
    sha256: str
    formulae: list[Formula]
    groups: np.ndarray  # (B,) int64: family of each formula; in a file each has its own
    equivalent: list[Pair]  # equal robustness on every trace, different texts
    unsimplified: np.ndarray  # (pairs,) bool: the simplifier leaves the two different

    @property
    def has_families(self) -> bool:
        return len(np.unique(self.groups)) < len(self.groups)


def headline(seed: int = 0) -> FormulaSet:
    """The shipped set, each formula paired with a rewrite. seed: of the rewrites."""
    data = gzip.decompress(HEADLINE.read_bytes())
    found = hashlib.sha256(data).hexdigest()
    if found != HEADLINE_SHA256:
        raise RhovecError(f"{HEADLINE.name} is not the set that was shipped; install rhovec again")
    formulae = [parse(line) for line in data.decode().splitlines()]
    return _singles("headline", found, formulae, seed)


def write_headline(path: str | Path = HEADLINE) -> None:
    text = "".join(f"{phi}\n" for phi in complete_seeds(HEADLINE_FORMULAE))
    Path(path).write_bytes(gzip.compress(text.encode(), mtime=0))


def complete_seeds(count: int, split: str = "test") -> list[Formula]:
    """The first `count` of a fixed sequence of distinct seeds whose branches all end at one depth.

    Depths 1 ... 6 take turns, so that every prefix has equally many of each.
    """
    waiting: list[list[Formula]] = [[] for _ in range(MAX_DEPTH)]
    seen: set[str] = set()
    each = -(-count // MAX_DEPTH)
    start = 0
    while min(map(len, waiting)) < each:
        numbers = find_families(SEEDS, start, FAMILIES, split)
        for phi in draw_families(SEEDS, numbers).programs.unpack():
            if is_complete(phi) and str(phi) not in seen:
                seen.add(str(phi))
                waiting[phi.depth - 1].append(phi)
        start = int(numbers[-1]) + 1
    turns = zip(*(found[:each] for found in waiting), strict=True)
    return [phi for turn in turns for phi in turn][:count]


def is_complete(phi: Formula) -> bool:
    """Whether all branches of the formula end at the same depth."""
    below: list[int] = []  # depths of complete subtrees
    for op in phi.code[:, OP].tolist():
        if ops.ARITY[op] == 0:
            below.append(0)
            continue
        right = below.pop()
        if ops.ARITY[op] == 2 and below.pop() != right:
            return False
        below.append(right + 1)
    return True


def held_out(
    families: int = 188,
    channels: int = 3,
    seed: int = 0,
    *,
    size: int = 8,
    pairs: int = 1500,
    points: int = DRAWN,
) -> FormulaSet:
    """The first families of the test split, `size` members of each, which are never trained on.

    pairs: number of families that give one equivalent pair each. points: on traces of more than DRAWN
    points, the windows of every second family are stretched to their length.
    """
    if families < 1 or pairs < 1:
        raise RhovecError("families and pairs must be 1 or more")
    recipe = Recipe(seed=seed, family_size=size, channels=channels)
    numbers = find_families(recipe, 0, max(families, pairs), "test")
    batch = draw_families(recipe, numbers[:families])
    programs = batch.programs
    if points > DRAWN:
        programs = programs.stretched(batch.family % 2 == 1, points / DRAWN)
    formulae = programs.unpack()
    name = f"held-out families, {channels} channels, seed {seed}"
    equivalent = list(_family_pairs(numbers[:pairs], channels, seed))
    pairs_left = _unsimplified(equivalent)
    return FormulaSet(name, digest(formulae), formulae, batch.family, equivalent, pairs_left)


def mixture(count: int, seed: int = 0) -> list[Formula]:
    """Formulae of the test split over three channels: members of families, then single seeds.

    The shares give 12.3 nodes on average, as the paper's test formulae have.
    """
    single = Recipe(seed=seed, family_size=1, shares=(1.0, 0.0, 0.0, 0.0))
    families = Recipe(seed=seed)
    found: list[Formula] = []
    for recipe, wanted in ((families, int(IN_FAMILIES * count)), (single, count)):
        numbers = find_families(recipe, 0, -(-wanted // recipe.family_size), "test")
        drawn = draw_families(recipe, numbers).programs.unpack()
        found += drawn[: min(wanted, count - len(found))]
    return found


def read_formulae(path: str | Path, seed: int = 0, schema: Schema | None = None) -> FormulaSet:
    """Formulae of a file, as `formulae_of` reads them, each paired with a rewrite of itself.

    seed: of the rewrites. A formula has no pair if no rewrite within the limits was found.
    """
    formulae, sha256 = formulae_of(path, schema)
    return _singles(Path(path).name, sha256, formulae, seed)


def require_pairs(formulae: FormulaSet) -> FormulaSet:
    """The set, if there are formulae in it to compare with each other."""
    if len(formulae.formulae) < 2:
        raise RhovecError(
            f"{formulae.name}: one formula; an evaluation compares pairs, so give 2 or more"
        )
    return formulae


def formulae_of(path: str | Path, schema: Schema | None = None) -> tuple[list[Formula], str]:
    """Formulae and SHA-256 of a requirement file; a schema lowers formulae in its names and units."""
    options = {} if schema is None else schema.options()
    formulae = []
    for requirement in read_requirements(path, **options):
        try:
            phi = requirement.formula
            formulae.append(phi if schema is None else schema.lower(phi))
        except RhovecError as error:
            raise RhovecError(str(Problem(requirement.place, str(error)))) from None
    return formulae, hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _singles(name: str, sha256: str, formulae: list[Formula], seed: int) -> FormulaSet:
    """A set without families, each formula paired with a rewrite of itself."""
    rewritten = [(phi, equivalent_of(phi, seed, i)) for i, phi in enumerate(formulae)]
    pairs = [(phi, psi) for phi, psi in rewritten if psi is not None]
    groups = np.arange(len(formulae))
    return FormulaSet(name, sha256, formulae, groups, pairs, _unsimplified(pairs))


def thin(formulae: FormulaSet, size: int = QUICK) -> FormulaSet:
    """A small part of a set: some formulae and pairs; whole families where there are families."""
    total = len(formulae.formulae)
    if total <= size:
        return formulae
    groups = np.unique(formulae.groups)
    chosen = groups[_some(len(groups), max(1, round(size * len(groups) / total)))]
    kept = np.flatnonzero(np.isin(formulae.groups, chosen))
    part = [formulae.formulae[i] for i in kept.tolist()]
    pairs = _some(len(formulae.equivalent), min(size, len(formulae.equivalent)))
    return replace(
        formulae,
        name=f"{formulae.name} ({len(part)} of {total})",
        sha256=digest(part),
        formulae=part,
        groups=formulae.groups[kept],
        equivalent=[formulae.equivalent[i] for i in pairs.tolist()],
        unsimplified=formulae.unsimplified[pairs],
    )


def _some(total: int, count: int) -> np.ndarray:
    """`count` of the numbers below `total`, drawn from a fixed seed, because sets may be ordered."""
    return np.sort(np.random.default_rng(0).permutation(total)[:count])


def digest(formulae: Iterable[Formula]) -> str:
    """SHA-256 of the canonical texts, one per line."""
    return hashlib.sha256("".join(f"{phi}\n" for phi in formulae).encode()).hexdigest()


def equivalent_of(phi: Formula, seed: int, number: int = 0) -> Formula | None:
    """A rewrite of a formula with exactly the same robustness, as in families of the corpus.

    It depends only on the formula, the seed and the number. None if the limits of the corpus leave no
    room for a rewrite, or if the formula has `true` or `false`, for which there is no rule.
    """
    operators, bounds = phi.code[:, OP], phi.code[:, LO : HI + 1]
    constants = ((operators == ops.TRUE) | (operators == ops.FALSE)).any()
    if phi.size > MAX_NODES or bounds.max() > MAX_BOUND or constants:
        return None
    room = 4 * MAX_NODES + 16  # a rewrite may triple a formula before it is rejected
    a, b, old = (np.empty((room, COLUMNS), np.int64) for _ in range(3))
    odd: list[float] = []  # thresholds that have a stand-in
    n = 0
    for (op, lo, hi, channel), threshold in zip(
        phi.code.tolist(), phi.thresholds.tolist(), strict=True
    ):
        units = round(threshold * UNIT) if abs(threshold) < _STAND_IN / UNIT else _STAND_IN
        if units / UNIT != threshold or abs(units) >= _STAND_IN:
            units = _STAND_IN + len(odd)
            odd.append(threshold)
        n = append(a, n, op, lo, hi, channel, units)
    source = a[:n].copy()
    state = np.empty(1, np.uint64)
    counts = np.zeros(len(CHANGES), np.int16)
    palette = np.arange(len(phi.channels))
    for attempt in range(ATTEMPTS):
        key(state, seed, number, attempt)
        a[:n] = source
        rows, other, length = rewrite(state, a, n, b, old, palette, MAX_NODES, MAX_TOKENS, counts)
        if length and uniform(state) < DUALITY:
            dual = dualise(rows, length, other)
            if dual <= MAX_NODES and other[dual - 1, TOKENS] + WRAPPING <= MAX_TOKENS:
                rows, length = other, dual
        if length:
            found = Formula.from_rows([
                (op, lo, hi, phi.channels[channel] if ops.IS_ATOM[op] else None,
                 odd[units - _STAND_IN] if units >= _STAND_IN else units / UNIT)
                for op, lo, hi, channel, units in rows[:length, OP : THRESHOLD + 1].tolist()
            ])  # fmt: skip
            if found != phi:
                return found
    return None


def _family_pairs(numbers: np.ndarray, channels: int, seed: int) -> Iterator[Pair]:
    """Two different members of each family that are the seed or equivalent to it."""
    shares = (SHARES[SEED], SHARES[EQUIVALENT], 0.0, 0.0)
    recipe = Recipe(seed=seed, family_size=PAIR_MEMBERS, channels=channels, shares=shares)
    members = draw_families(recipe, numbers).programs.unpack()
    for start in range(0, len(members), PAIR_MEMBERS):
        first, *others = members[start : start + PAIR_MEMBERS]
        second = next((phi for phi in others if phi != first), None)
        if second is not None:
            yield first, second


def _unsimplified(pairs: Sequence[Pair]) -> np.ndarray:
    return np.array([simplify(a) != simplify(b) for a, b in pairs], bool)
