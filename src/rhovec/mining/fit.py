"""Mining: labelled traces -> formulae that tell the classes apart.

    mined = mine(traces, labels); print(mined)

The search runs on all traces, and again on each of `folds` parts left out in turn, with a share of the
budget, which gives held-out accuracies per size. These decide which size is chosen; nothing that is
reported as held out was seen by the search that it is about.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import RhovecError, TraceError
from ..formula.core import Formula
from ..formula.options import exact_step
from ..robustness import robustness
from ..traces.measure import varying
from .bounded import Bounded, bound
from .centre import centred
from .data import Candidate, Data, Scale, candidate_of
from .result import About, Certified, Entry, Mined, arranged, wilson
from .rounding import rounded
from .search import NoDifferenceError, Search, measured
from .several import DecisionList, decide

MAX_SIZE, BUDGET, FOLDS = 9, 20_000, 5
TOO_FEW = "at least two traces of each class are needed; {!r} has {}"
Costs = Mapping[Any, float] | str | None


def mine(
    traces: Any,
    labels: Sequence[Any] | None = None,
    *,
    variables: Sequence[str] | None = None,
    dt: float | None = None,
    units: Mapping[str, str] | None = None,
    positive: Any = None,
    costs: Costs = None,
    max_size: int = MAX_SIZE,
    budget: int = BUDGET,
    seconds: float | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    start: Any = None,
) -> Mined | DecisionList | Bounded:
    """Find formulae that hold on the traces of one class and not on those of the other.

    traces: (N, V, P), a dict name -> (N, P), a list of (V, P_i), or what `rv.read_traces` gives. Shorter
        traces are held at their last sample.
    labels: one per trace. Two classes give a `Mined`, more a `DecisionList`. Without labels, or with
        one class, all traces are examples of one system, and the answer is a `Bounded`.
    positive: the class that the formula describes (default: the last one in order).
    costs: of a wrong trace by its label; "balanced" makes both classes weigh the same (default: 1).
    budget: candidates evaluated, after the exhaustive scans. seconds: a time limit as well; with it the
        answer depends on the machine.
    start: what `mine` gave before, or formulae, to start from.
    """
    found = arranged(traces, variables)
    names = tuple(found.columns)
    if dt is None:
        dt = getattr(traces, "dt", None)
    if dt is not None:
        exact_step(dt)
    about = About(names, dict(units or {}), dt)
    values = np.asarray(found.values, np.float64)
    _check(max_size, budget, folds, seconds, seed)
    given = _labels(labels, len(values))
    classes = sorted(set(given), key=lambda c: (str(type(c)), c))
    notes = []
    if found.lengths and len(set(found.lengths)) > 1:
        notes.append(
            f"traces have {min(found.lengths)} to {max(found.lengths)} points; shorter ones are held at "
            "their last sample"
        )
    moving, still = _moving(values, about)
    if still:
        notes.append(f"left out, because constant: {', '.join(still)}")
    if positive is not None and positive not in classes:
        known = ", ".join(map(repr, classes))
        raise RhovecError(f"no trace has the label {positive!r}; there are {known}")
    if len(classes) == 1:
        if labels is not None:
            notes.append(f"all traces have the label {classes[0]!r}: examples of one system")
        if costs is not None or start is not None:
            raise RhovecError("costs and start go with traces of two classes or more")
        return bound(
            values[:, moving], [names[v] for v in moving], about, notes,
            max_size=max_size, budget=budget, seed=seed, seconds=seconds,
        )  # fmt: skip
    if len(classes) > 2 and positive is not None:
        raise RhovecError(
            "positive goes with two classes; there are " + ", ".join(map(repr, classes))
        )
    options = {"max_size": max_size, "folds": folds, "seed": seed}
    parts = 1 if len(classes) == 2 else 2 * (len(classes) - 1)  # half of the time is for validation

    def two(
        values: np.ndarray, is_yes: np.ndarray, pair: tuple[Any, Any], share: int = 1
    ) -> Mined:  # fmt: skip
        first = start.rule_of(pair[1]) if isinstance(start, DecisionList) else start
        return _binary(
            values, is_yes, pair, about, _costs(costs, classes, *pair, is_yes), [],
            budget=budget // max(1, len(classes) - 1) // share, start=None if share > 1 else first,
            seconds=None if seconds is None else seconds / parts / share, **options,
        )  # fmt: skip

    if len(classes) > 2:
        few = min(classes, key=given.count)
        if given.count(few) < 2:
            raise RhovecError(TOO_FEW.format(few, given.count(few)))
        found_list = decide(values, given, classes, about, notes, two)
        if not found_list.rules:
            raise NoDifferenceError
        return _validated(found_list, values, given, classes, folds, seed, two)
    yes = classes[-1] if positive is None else positive
    (no,) = (c for c in classes if c != yes)
    mined = two(values, np.array([label == yes for label in given]), (no, yes))
    return replace(mined, notes=(*notes, *mined.notes))


def _binary(
    values: np.ndarray, positive: np.ndarray, classes: tuple[Any, Any], about: About,
    costs: tuple[float, float], notes: list[str], *, max_size: int, budget: int,
    folds: int, seed: int, start: Any, seconds: float | None,
) -> Mined:  # fmt: skip
    began = time.monotonic()
    smallest = int(min(positive.sum(), (~positive).sum()))
    if smallest < 2:
        few = classes[int(positive.sum() < 2)]
        raise RhovecError(TOO_FEW.format(few, smallest))
    if len(values) < 10:
        notes.append(f"{len(values)} traces are few: intervals are wide, and many formulae fit")
    data, scale = _prepared(values, positive, costs, about.variables)
    contradictory, floor = data.contradictions
    if contradictory:
        notes.append(
            f"{contradictory} traces occur with both labels, so no formula has more than accuracy "
            f"{1 - floor / data.total:.4g}" + ("" if costs[0] == costs[1] else " by cost")
        )
    search_by, deadline = (None if seconds is None else began + seconds * s for s in (0.4, 0.5))
    first, unknown = start_candidates(start, scale, data.points)
    if unknown:
        notes.append(
            f"{unknown} of {unknown + len(first)} formulae to start from were left out: they have other "
            "channels, windows or operators than the search"
        )
    search = Search(data, max_size, budget, seed, search_by, first)
    search.run()
    front, in_time = _settled(search, data, scale, seed, deadline)
    losses, hits, left_in_time = _held_out(
        values, positive, costs, about.variables, [len(c) for c in front],
        budget, min(folds, smallest), seed, None if seconds is None else began + seconds,
    )  # fmt: skip
    if search.stopped == "time limit":
        notes.append(
            f"the time limit ended the search after {search.spent:,} of {budget:,} candidates"
        )
    if not in_time or not left_in_time:
        where = "" if in_time == left_in_time else (
            " of searches for held-out accuracies" if in_time else " of this front"
        )  # fmt: skip
        notes.append(
            f"the time limit left windows and thresholds{where} where the search found them, not in the "
            "middle of those that fit"
        )
    entries = [
        _entry(candidate, scale, data, about.robustness(scale.formula(candidate), values), right)
        for candidate, right in zip(front, hits, strict=True)
    ]
    certificates = [
        Certified(
            c.formulae, c.windows, c.thresholds, c.complete, c.loss,
            scale.formula(rounded(c.best, data, scale)),
        )
        for c in search.certificates
    ]  # fmt: skip
    return Mined(
        tuple(entries), _one_standard_error(losses), classes[1], classes[0],
        int(positive.sum()), int((~positive).sum()), tuple(certificates),
        about, tuple(notes), search.spent, time.monotonic() - began, search.stopped,
    )  # fmt: skip


def _settled(
    search: Search, data: Data, scale: Scale, seed: int, deadline: float | None
) -> tuple[list[Candidate], bool]:
    """The front of a search, centred and rounded, and whether there was time to centre all of it."""
    candidates = [one.candidate for one in search.front()]
    middles = [centred(one, data, seed, deadline) for one in candidates]
    pairs = zip(middles, candidates, strict=True)
    return [rounded(one or other, data, scale) for one, other in pairs], None not in middles


def _validated(
    found: DecisionList, values: np.ndarray, given: list[Any], classes: list[Any], folds: int,
    seed: int, two: Any,
) -> DecisionList:  # fmt: skip
    """The list with the accuracy of lists that were mined without the traces they are asked about."""
    number = np.array([classes.index(label) for label in given])
    folds = min(folds, int(np.bincount(number).min()))
    fold, right = stratified(number, folds, seed), 0
    for k in range(folds):
        seen = np.flatnonzero(fold != k)
        part = decide(
            values[seen], [given[i] for i in seen], classes, found.about, [],
            lambda *rule: two(*rule, share=folds),
        )  # fmt: skip
        right += int((number[fold == k] == part.places(values[fold == k], classes)).sum())
    n = len(values)
    return replace(found, held_out=right / n, interval=wilson(right, n))


def _held_out(
    values: np.ndarray, positive: np.ndarray, costs: tuple[float, float], names: Sequence[str],
    sizes: Sequence[int], budget: int, folds: int, seed: int, deadline: float | None,
) -> tuple[np.ndarray, np.ndarray, bool]:  # fmt: skip
    """Loss and rightness (sizes, N) of traces under formulae that were mined without them, and whether
    there was time to centre these.

    Row i is about the best formula of at most sizes[i] nodes.
    """
    all_in_time = True
    fold = stratified(positive, folds, seed)
    truth = np.zeros((len(sizes), len(values)), bool)
    for k in range(folds):
        seen = fold != k
        limit = None if deadline is None else _share(deadline, folds - k)
        try:
            data, scale = _prepared(values[seen], positive[seen], costs, names)
            search = Search(data, max(sizes), budget // folds, seed, limit)
            search.run()
        except NoDifferenceError:  # without the others, these traces are all the same
            truth[:, ~seen] = positive[seen].mean() > 0.5
            continue
        front = search.front()
        settled, in_time = _settled(search, data, scale, seed, limit)
        all_in_time &= in_time
        formulae = [scale.formula(one) for one in settled]
        holds = robustness(formulae, values[~seen], variables=names) >= 0
        for i, size in enumerate(sizes):
            fitting = [j for j, one in enumerate(front) if one.level <= max(2, size)]
            truth[i, ~seen] = holds[fitting[-1] if fitting else 0]
    right = truth == positive
    return np.where(right, 0.0, np.where(positive, *costs)), right, all_in_time


def _share(deadline: float, parts: int) -> float:
    now = time.monotonic()
    return now + max(0.0, deadline - now) / parts


def stratified(classes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """(N,) numbers of folds, each with its share of every class; classes are numbers or bool."""
    rng = np.random.default_rng(seed)
    out = np.empty(len(classes), np.int64)
    for label in np.unique(classes):
        members = rng.permutation(np.flatnonzero(classes == label))
        out[members] = (np.arange(len(members)) + (len(members) * label)) % folds
    return out


def _one_standard_error(losses: np.ndarray) -> int:
    """The first row whose mean is within one standard error of the smallest mean."""
    means = losses.mean(axis=1)
    best = int(means.argmin())
    error = losses[best].std() / math.sqrt(losses.shape[1])
    return int(np.flatnonzero(means <= means[best] + error)[0])


def _prepared(
    values: np.ndarray, positive: np.ndarray, costs: tuple[float, float], names: Sequence[str]
) -> tuple[Data, Scale]:
    """Traces as the search takes them, without channels that are constant in them."""
    moves = np.flatnonzero(varying(values))
    if not len(moves):
        raise NoDifferenceError
    scale = Scale.of(values[:, moves], [names[v] for v in moves.tolist()])
    return Data(scale.standardise(values[:, moves]), positive, costs, scale.flags), scale


def _entry(
    candidate: Candidate, scale: Scale, data: Data, rho: np.ndarray, right: np.ndarray
) -> Entry:
    """right: whether traces are predicted right when they are left out."""
    missed, alarms = (data.positive & (rho < 0)).sum(), (~data.positive & (rho >= 0)).sum()
    n, hits = len(rho), int(right.sum())
    return Entry(
        scale.formula(candidate), int(missed), int(alarms), float(1 - (missed + alarms) / n), hits / n,
        wilson(hits, n), measured(data, [candidate])[0].margin,
    )  # fmt: skip


def start_candidates(start: Any, scale: Scale, points: int) -> tuple[list[Candidate], int]:
    """Formulae to start from, and the number of those whose operators or channels the search lacks."""
    if start is None:
        return [], 0
    formulae = [one.formula for one in start.front] if isinstance(start, Mined) else list(start)
    for phi in formulae:
        if not isinstance(phi, Formula):
            raise RhovecError("start must be what mine gave, or a list of Formula")
    found = [candidate_of(phi, scale, points) for phi in formulae]
    return [one for one in found if one is not None], found.count(None)


def _moving(values: np.ndarray, about: About) -> tuple[list[int], list[str]]:
    """Channels that are not constant, and the names of those that are."""
    moves = varying(values)
    if not moves.any():
        raise TraceError("every channel is constant in all traces: there is nothing to mine")
    still = [name for name, one in zip(about.variables, moves, strict=True) if not one]
    return np.flatnonzero(moves).tolist(), still


def _labels(labels: Any, n: int) -> list[Any]:
    if labels is None:
        return [True] * n
    listed = np.asarray(labels).tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(listed) != n:
        raise RhovecError(f"there are {n} traces, but {len(listed)} labels; give one per trace")
    for i, label in enumerate(listed):
        if label is None or not isinstance(label, Hashable) or label != label:
            raise RhovecError(f"label {i} is {label!r}; give a text, a number or True or False")
    return listed


def _costs(
    costs: Costs, classes: Sequence[Any], no: Any, yes: Any, positive: np.ndarray
) -> tuple[float, float]:
    """Costs of a missed positive and of a false alarm."""
    if costs is None:
        return 1.0, 1.0
    n, n_yes = len(positive), int(positive.sum())
    if costs == "balanced":
        return n / (2 * n_yes), n / (2 * (n - n_yes))
    if not isinstance(costs, Mapping) or not set(costs) <= set(classes):
        known = ", ".join(f"{c!r}: 1" for c in classes)
        raise RhovecError(f'costs must be "balanced", or numbers by label, {{{known}}}')
    pair: tuple[Any, Any] = costs.get(yes, 1.0), costs.get(no, 1.0)
    if not all(isinstance(c, Real) and 0 < float(c) < math.inf for c in pair):
        raise RhovecError(f"costs must be positive numbers, not {costs!r}")
    return float(pair[0]), float(pair[1])


def _check(max_size: Any, budget: Any, folds: Any, seconds: Any, seed: Any) -> None:
    named = {"max_size": max_size, "budget": budget, "folds": folds, "seed": seed}
    for name, number in named.items():
        if not isinstance(number, Integral):
            raise RhovecError(f"{name} must be a whole number, not {number!r}")
    if seed < 0:
        raise RhovecError(f"seed must be a whole number >= 0, not {seed}")
    if not 1 <= max_size <= 31:
        raise RhovecError(f"max_size must be from 1 to 31 nodes, not {max_size}")
    if budget < 0:
        raise RhovecError(f"budget must be a number of evaluations, not {budget}")
    if folds < 2:
        raise RhovecError(f"folds must be at least 2, not {folds}")
    if seconds is not None and not (isinstance(seconds, Real) and float(seconds) > 0):
        raise RhovecError(f"seconds must be positive, not {seconds!r}")
