"""How the formulae of a set are related, or those of one set to those of others.

For each pair there are three questions: can both hold, only the first, only the second? Examples answer
most of them: traces whose samples lie at and between the thresholds of the formulae, judged at every
time. What no example shows goes to the prover, and what is not proved either gets examples made for
the pair alone. So each relation is proved, or refuted by an example, or undecided. What the user's own
traces show beyond that is kept apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import RhovecError
from ..formula import Requirement
from ..formula import operators as ops
from ..formula.core import Formula, natural_key
from ..formula.reader import FormulaLike, as_formulae, is_single
from ..kernel import Progress
from ..robustness import satisfaction
from ..traces import TraceMeasure
from .prover import BOTH, NEITHER, ONLY_A, ONLY_B, Prover

MIN_POINTS, SHORT, LONG = 32, 256, 4096  # of examples: of all formulae, and of a pair
SAMPLES, MORE_SAMPLES = 1 << 16, 1 << 17  # of all examples together
MAX_NUMBERS = 1 << 23  # of examples, and of their verdicts
MAX_REACH = 50_000  # steps that a formula with a past may look at, to get examples
MAX_RETRIED = 1000  # pairs that get examples of their own
CHUNK = 1 << 12  # verdicts compared at once
MAX_LISTED = 20  # relations of a kind in a report

SetRelation = Literal["equivalent", "implies", "contradicts"]
WORDS: dict[SetRelation, str] = {
    "equivalent": "is equivalent to",
    "implies": "implies",
    "contradicts": "contradicts",
}


class Related(NamedTuple):
    """A relation of two formulae, by their places in the list.

    counts: of the traces on which both hold, only a, only b, neither.
    expected: traces that would contradict the relation if a and b were independent.
    """

    a: int
    b: int
    relation: SetRelation
    counts: tuple[int, ...] | None = None
    expected: float = 0.0


@dataclass(frozen=True, eq=False)
class SetComparison:
    """How requirements are related; `print` it for a report.

    requirements, sets: all of them, and the number of the set that each is in. With several sets, only
        pairs from different ones were compared.
    proved: for every trace, at every time. "implies" goes from a to b; of "equivalent" and
        "contradicts", a comes first in the list. Relations that follow from others are among them.
    never, always: formulae that are proved to hold on no trace, or on every one. They are in no pair.
    undecided: pairs of which some relation is neither proved nor refuted by an example.
    doubtful: formulae of which it is not known whether they can hold, or whether they can fail.
    suggested: relations that are not proved, but that none of the user's traces contradicts, the most
        surprising ones first.
    vacuous: number of pairs that only seem related because one of the two holds on all of the user's
        traces, or on none.
    constant: formulae that hold on all of the user's traces, and those that hold on none.
    n_traces: number of the user's traces; untested: formulae with variables that these lack.
    """

    requirements: tuple[Requirement, ...]
    sets: tuple[int, ...]
    names: tuple[str, ...]  # of the sets
    pairs: int
    proved: tuple[Related, ...]
    never: tuple[int, ...]
    always: tuple[int, ...]
    undecided: tuple[tuple[int, int], ...]
    doubtful: tuple[int, ...]
    n_traces: int = 0
    suggested: tuple[Related, ...] = ()
    vacuous: int = 0
    constant: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    untested: tuple[int, ...] = ()

    def label(self, i: int, title: bool = True) -> str:
        """The name of a requirement, with its file if others of that name exist; else its text."""
        one = self.requirements[i]
        if not one.id:
            return one.label if title else one.source or one.label
        twice = sum(other.id == one.id for other in self.requirements) > 1
        name = f"{one.id} ({self.names[self.sets[i]]})" if twice else one.id
        return f'{name} "{one.title}"' if title and one.title else name

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Sets of formulae that are proved equivalent, those of one formula among them."""
        first = list(range(len(self.requirements)))
        for a, b, relation, *_ in self.proved:
            if relation == "equivalent":
                old, new = sorted((first[a], first[b]), reverse=True)
                first = [new if i == old else i for i in first]
        return tuple(
            tuple(i for i, leader in enumerate(first) if leader == group)
            for group in sorted(set(first))
        )

    @cached_property
    def direct(self) -> tuple[tuple[int, int], ...]:
        """Proved implications between `groups`, without those that follow from two others."""
        group = {i: number for number, members in enumerate(self.groups) for i in members}
        edges = {(group[a], group[b]) for a, b, r, *_ in self.proved if r == "implies"}
        after: dict[int, set[int]] = {}
        for a, b in edges:
            after.setdefault(a, set()).add(b)
        return tuple(sorted((a, b) for a, b in edges if not any(
            b in after.get(middle, ()) for middle in after[a]
        )))  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(_report(self))


def compare_sets(
    formulae: Iterable[FormulaLike],
    *others: Iterable[FormulaLike],
    traces: TraceMeasure | None = None,
    names: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> SetComparison:
    """How formulae are related: all pairs of one set, or with others all pairs across the sets.

    traces: the user's own, which suggest relations where nothing is proved.
    names: of the sets, for reports.
    seed: of the examples that refute relations.
    """
    given: list[list[FormulaLike]] = [
        [one] if is_single(one) else list(one)  # type: ignore[list-item]
        for one in (formulae, *others)
    ]
    items = [item for one in given for item in one]
    sets = [number for number, one in enumerate(given) for _ in one]
    found, _ = as_formulae(items)
    if len(found) < 2 or not all(given):
        raise RhovecError("a comparison takes two or more formulae")
    requirements = [
        item if isinstance(item, Requirement) else Requirement(phi, text=str(phi))
        for item, phi in zip(items, found, strict=True)
    ]
    labels = names or [f"set {number + 1}" for number in range(len(given))]
    pairs = [
        (i, j)
        for i, j in combinations(range(len(found)), 2)
        if len(given) == 1 or sets[i] != sets[j]
    ]
    proof = _prove(found, pairs, seed, progress)
    result = SetComparison(tuple(requirements), tuple(sets), tuple(labels), len(pairs), **proof)
    return result if traces is None else _with_traces(result, pairs, traces)


# -- proofs and examples ---------------------------------------------------------------------------


def _prove(
    formulae: Sequence[Formula],
    pairs: Sequence[tuple[int, int]],
    seed: int,
    progress: Progress | None,
) -> dict[str, Any]:
    """The fields of a SetComparison that need no traces."""
    n, prover = len(formulae), Prover(formulae)
    seen = _seen(formulae, seed)
    never = [i for i in range(n) if not seen[BOTH, i, i] and prover.is_impossible(BOTH, i, i)]
    always = [
        i for i in range(n) if not seen[NEITHER, i, i] and prover.is_impossible(NEITHER, i, i)
    ]
    trivial = {*never, *always}
    both_ways = seen[BOTH].diagonal() & seen[NEITHER].diagonal()
    variables = [set(phi.variables) for phi in formulae]
    impossible = np.zeros((3, n, n), bool)  # BOTH, ONLY_A, ONLY_B
    for done, (i, j) in enumerate(pairs):
        if not trivial.isdisjoint((i, j)):
            continue
        if variables[i].isdisjoint(variables[j]):
            continue  # independent
        for case in (BOTH, ONLY_A, ONLY_B):
            if not seen[case, i, j] and prover.is_impossible(case, i, j):
                impossible[case, i, j] = True
        if progress and done % 16 == 0:
            progress(done / len(pairs))
    implies, contradicts = _closed(impossible)
    proved, undecided = [], []
    for i, j in pairs:
        if not trivial.isdisjoint((i, j)):
            continue
        if implies[i, j] and implies[j, i]:
            proved.append(Related(i, j, "equivalent"))
        elif implies[i, j] or implies[j, i]:
            proved.append(Related(*((i, j) if implies[i, j] else (j, i)), "implies"))
        elif contradicts[i, j]:
            proved.append(Related(i, j, "contradicts"))
        elif not seen[:3, i, j].all() and not variables[i].isdisjoint(variables[j]):
            undecided.append((i, j))
    for i, j in undecided[:MAX_RETRIED]:
        own = _seen([formulae[i], formulae[j]], seed, MORE_SAMPLES, LONG)
        seen[:, i, j] |= own[:, 0, 1]
        both_ways[[i, j]] |= own[BOTH].diagonal() & own[NEITHER].diagonal()
    undecided = [(i, j) for i, j in undecided if not seen[:3, i, j].all()]
    doubtful = [i for i in range(n) if not both_ways[i] and i not in trivial]
    return {
        "proved": tuple(proved), "never": tuple(never), "always": tuple(always),
        "undecided": tuple(undecided), "doubtful": tuple(doubtful),
    }  # fmt: skip


def _closed(impossible: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, n): which formula implies which, and which contradicts which, by all that is proved."""
    implies = impossible[ONLY_A] | impossible[ONLY_B].T
    np.fill_diagonal(implies, True)
    for k in range(len(implies)):
        implies |= implies[:, k, None] & implies[k]
    contradicts = impossible[BOTH] | impossible[BOTH].T
    # What implies one of two that exclude each other excludes whatever implies the other one.
    weak = implies.astype(np.float32)
    contradicts = weak @ contradicts.astype(np.float32) @ weak.T > 0
    return implies, contradicts


def _seen(
    formulae: Sequence[Formula], seed: int, samples: int = SAMPLES, longest: int = SHORT
) -> np.ndarray:
    """(4, n, n): whether BOTH, ONLY_A, ... of a pair occur at some time of some example."""
    n = len(formulae)
    holds, known = _verdicts(formulae, seed, samples, longest)
    cases = np.zeros((4, n, n), bool)
    for start in range(0, holds.shape[1], CHUNK):
        yes = holds[:, start : start + CHUNK].astype(np.float32)
        no = (1 - yes) * known[:, None]
        cases[BOTH] |= yes @ yes.T > 0
        cases[ONLY_A] |= yes @ no.T > 0
        cases[NEITHER] |= no @ no.T > 0
    cases[ONLY_B] = cases[ONLY_A].T
    return cases


def _verdicts(
    formulae: Sequence[Formula], seed: int, samples: int, longest: int
) -> tuple[np.ndarray, np.ndarray]:
    """(n, samples): whether formulae hold on examples, and (n,) whether they were evaluated."""
    names = sorted({name for phi in formulae for name in phi.variables}, key=natural_key)
    if not names:
        names = ["x_0"]
    reach = [phi.horizon + phi.history for phi in formulae]
    points = min(max(2 * max(reach), MIN_POINTS), longest)
    most = min(samples, MAX_NUMBERS // len(formulae), MAX_NUMBERS // len(names))
    traces = _examples(formulae, names, max(most // points, 16), points, seed)
    # Past and future nested are evaluated as far beyond the ends as they look, which takes time.
    far = [phi.looks_back and steps > MAX_REACH for phi, steps in zip(formulae, reach, strict=True)]
    near = [i for i, is_far in enumerate(far) if not is_far]
    holds = np.zeros((len(formulae), len(traces) * points), bool)
    if near:
        phis = [formulae[i] for i in near]
        verdicts = satisfaction(phis, traces, variables=names, trace=True)
        holds[near] = verdicts.reshape(len(near), -1)
    return holds, ~np.array(far)


def _examples(
    formulae: Sequence[Formula], names: Sequence[str], count: int, points: int, seed: int
) -> np.ndarray:
    """(count, V, points): steps between values at, between and beyond the variables' thresholds.

    In a trace, a variable takes one to three values in turn, for times of any scale.
    """
    thresholds: dict[str, set[float]] = {name: {0.0} for name in names}
    for phi in formulae:
        for *_, channel, threshold in phi.rows():
            for variable, factor in channel or ():
                thresholds[ops.name_of(variable)].add(threshold / factor)
    rng = np.random.default_rng(seed)
    out = np.empty((count, len(names), points))
    for v, name in enumerate(names):
        exact = np.array(sorted(c for c in thresholds[name] if np.isfinite(c)))
        gap = max(1.0, float(exact[-1] - exact[0])) / 4
        between = (exact[1:] + exact[:-1]) / 2
        values = np.concatenate([exact, between, [exact[0] - gap, exact[-1] + gap]])
        palette = rng.choice(values, (count, 3))
        scale = 2.0 ** rng.integers(0, points.bit_length(), (count, 1))  # mean time between steps
        scale[rng.random(count) < 0.5] = points
        step = rng.random((count, points)) < 1 / scale
        colours = rng.choice([1, 2, 3], (count, 1), p=[0.3, 0.4, 0.3])
        out[:, v] = np.take_along_axis(palette, np.cumsum(step, axis=1) % colours, axis=1)
    return out


# -- the user's traces -----------------------------------------------------------------------------


def _with_traces(
    found: SetComparison, pairs: Sequence[tuple[int, int]], traces: TraceMeasure
) -> SetComparison:
    """The same with what these traces show about the pairs of which nothing is proved."""
    known = set(traces.variables)
    tested = [
        i for i, one in enumerate(found.requirements) if known.issuperset(one.formula.variables)
    ]
    total = len(traces.values)
    holds = np.zeros((len(found.requirements), total))
    if tested:
        phis = [found.requirements[i].formula for i in tested]
        holds[tested] = satisfaction(phis, traces.values, variables=traces.variables)
    times = holds.sum(axis=1)
    together = holds @ holds.T
    settled = {tuple(sorted(r[:2])) for r in found.proved}
    settled |= {(i, i) for i in (*found.never, *found.always)}
    suggested, vacuous = [], 0
    usable = set(tested)
    for i, j in pairs:
        if {i, j} - usable or {(i, j), (i, i), (j, j)} & settled:
            continue
        both = int(together[i, j])
        a, b = int(times[i]), int(times[j])
        relation = _suggestion(i, j, (both, a - both, b - both, total - a - b + both))
        if relation is None:
            continue
        if times[i] in (0, total) or times[j] in (0, total):
            vacuous += 1
        else:
            suggested.append(relation)
    return replace(
        found,
        n_traces=total,
        suggested=tuple(sorted(suggested, key=lambda r: -r.expected)),
        vacuous=vacuous,
        constant=(
            tuple(i for i in tested if times[i] == total),
            tuple(i for i in tested if times[i] == 0),
        ),
        untested=tuple(i for i in range(len(times)) if i not in usable),
    )


def _suggestion(i: int, j: int, counts: tuple[int, ...]) -> Related | None:
    """The relation that no trace contradicts, if there is one."""
    both, only_a, only_b, neither = counts
    total, a, b = sum(counts), both + only_a, both + only_b
    a_without_b, b_without_a = a * (total - b) / total, b * (total - a) / total
    if not only_a and not only_b:
        return Related(i, j, "equivalent", counts, a_without_b + b_without_a)
    if not only_a:
        return Related(i, j, "implies", counts, a_without_b)
    if not only_b:
        return Related(j, i, "implies", (both, only_b, only_a, neither), b_without_a)
    return None if both else Related(i, j, "contradicts", counts, a * b / total)


# -- the report ------------------------------------------------------------------------------------


def _report(found: SetComparison) -> Iterator[str]:
    label = found.label
    yield summary(found)
    yield ""
    yield "Proved, for all traces:"
    lines = [
        *(f"  {label(i)} can never hold" for i in found.never),
        *(f"  {label(i)} always holds" for i in found.always),
        *(
            f"  {' = '.join(label(i) for i in group)}: equivalent"
            for group in found.groups
            if len(group) > 1
        ),
    ]
    implied = [
        f"  {label(found.groups[a][0])} implies {label(found.groups[b][0])}"
        for a, b in found.direct
    ]
    excluded = [
        f"  {label(a)} contradicts {label(b)}"
        for a, b, relation, *_ in found.proved
        if relation == "contradicts"
    ]
    yield from [*lines, *shortened(implied), *shortened(excluded)] or ["  nothing"]
    follow = sum(r.relation == "implies" for r in found.proved) - len(found.direct)
    if follow > 0:
        yield f"  implications that follow from these: {follow:,}"
    if found.n_traces:
        yield ""
        yield f"Only on these {found.n_traces:,} traces, not proved:"
        rows = [
            f"  {label(r.a)} {WORDS[r.relation]} {label(r.b)}: {evidence(r, found.n_traces)}"
            for r in found.suggested
        ]
        yield from shortened(rows) or ["  nothing"]
        yield from (f"  {line}" for line in vacuity(found))
    if found.undecided or found.doubtful:
        yield ""
        yield "Undecided, neither a proof nor a counterexample was found:"
        yield from (f"  whether {label(i)} can hold, and can fail" for i in found.doubtful)
        yield from shortened([f"  {label(a)} and {label(b)}" for a, b in found.undecided])


def summary(found: SetComparison) -> str:
    """What was compared, in a sentence."""
    sizes = [found.sets.count(number) for number in range(len(found.names))]
    if len(sizes) == 1:
        pairs = "The one pair" if found.pairs == 1 else f"All {found.pairs:,} pairs"
        return f"{pairs} of the {sizes[0]} requirements of {found.names[0]}"
    listed = [f"the {size} of {name}" for size, name in zip(sizes, found.names, strict=True)]
    return (
        f"{found.pairs:,} pairs of requirements across {', '.join(listed[:-1])} and {listed[-1]}; "
        "pairs within one of them were not compared"
    )


def evidence(one: Related, total: int) -> str:
    """What the traces say about a relation."""
    assert one.counts is not None
    both, only_a, only_b, neither = one.counts
    parts = {"both": both, "only the first": only_a, "only the second": only_b, "neither": neither}
    held = ", ".join(f"{name} {count}" for name, count in parts.items() if count)
    return f"{held} (by chance, {one.expected:.1f} of {total} would contradict it)"


def vacuity(found: SetComparison) -> Iterator[str]:
    """What the traces cannot say."""
    for which, members in zip(("every trace", "no trace"), found.constant, strict=True):
        if members:
            names = ", ".join(found.label(i, title=False) for i in members)
            yield f"these traces cannot relate what holds on {which}: {names}"
    if found.vacuous:
        yield f"pairs that seem related only for that reason, and are not listed: {found.vacuous:,}"
    if found.untested:
        names = ", ".join(found.label(i, title=False) for i in found.untested)
        yield f"not judged on these traces, which lack their variables: {names}"


def shortened(lines: list[str]) -> list[str]:
    """The first lines, and how many more there are."""
    if len(lines) <= MAX_LISTED + 1:
        return lines
    more = len(lines) - MAX_LISTED
    return [*lines[:MAX_LISTED], f"  ... and {more:,} more (--out FILE lists all)"]
