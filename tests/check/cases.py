"""Random short logs and small formulae, and what may follow a log."""

from __future__ import annotations

import math
from functools import reduce
from itertools import product

import numpy as np

import rhovec as rv
from rhovec.check import Verdict, verdicts
from rhovec.check.parts import parts
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula, compose

from ..robustness.contract import NAMES, random_mixture
from .oracle import Case

LEVELS = (-1.0, -0.5, 0.0, 0.5, 1.0)
MAX_COMPLETIONS = 20_000

Levels = dict[str, list[float]]


def random_formula(rng: np.random.Generator, depth: int = 2, bound: int = 3) -> Formula:
    """Any operators, ahead and back; thresholds are halves, so that samples often meet them."""
    rows = random_mixture(rng, depth, bound).rows()
    phi = Formula.from_rows([(*row[:4], round(2 * row[4]) / 2) for row in rows])
    if rng.random() < 0.5:
        lo = int(rng.integers(0, 3))
        phi = compose(ops.ALWAYS, phi, lo=lo, hi=ops.UNBOUNDED)
    return phi


def random_case(rng: np.random.Generator, longest: int = 6, unknown: float = 0.15) -> Case:
    points = int(rng.integers(1, longest + 1))
    samples = rng.choice(LEVELS, (len(NAMES), points))
    samples[rng.random(samples.shape) < unknown] = math.nan
    begin = "held" if rng.random() < 0.3 else "unknown"
    return Case(dict(zip(NAMES, samples.tolist(), strict=True)), begin)


def judge(phi: Formula, case: Case) -> Verdict:
    return verdicts(phi, [case.samples], begin=case.begin, discrete=())[0][0]


def merged(phi: Formula) -> Formula:
    """phi with its windows of always merged, as it is judged."""
    return reduce(Formula.__and__, (part.formula for part in parts(phi)))


def continuations(
    rng: np.random.Generator, phi: Formula, case: Case, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Robustness and satisfaction of phi on n traces that agree with the log, (n,) each.

    Each has random samples in gaps, before the log and after it; then they are held.
    """
    before, after = (int(rng.integers(1, 10)) for _ in range(2))
    traces = rng.choice((*LEVELS, -8.0, 8.0), (n, len(NAMES), before + case.points + after))
    spread = rng.random((n, 1, 1)) < 0.3  # some continuations are constant
    traces[..., before + case.points :] = np.where(
        spread, traces[..., -1:], traces[..., before + case.points :]
    )
    for v, name in enumerate(NAMES):
        for t, value in enumerate(case.samples[name]):
            if not math.isnan(value):
                traces[:, v, before + t] = value
        if case.begin == "held":
            traces[:, v, :before] = traces[:, v, before, None]
    shifted = compose(ops.EVENTUALLY, phi, lo=before, hi=before)
    return rv.robustness(shifted, traces), rv.satisfaction(shifted, traces)


def contradicted(rng: np.random.Generator, phi: Formula, case: Case, n: int) -> bool:
    """Whether one of n random continuations contradicts the verdict or leaves its bounds."""
    verdict = judge(phi, case)
    value, holds = continuations(rng, phi, case, n)
    low, high = verdict.robustness
    wrong = (value < low) | (value > high)
    if verdict.outcome in ("violated", "holds"):
        wrong |= holds != (verdict.outcome == "holds")
    return bool(wrong.any())


def completions(case: Case, names: list[str], levels: Levels, around: int) -> np.ndarray | None:
    """Every trace that agrees with a log, over some levels of each variable: (n, variables, points).

    Unknown samples are those in gaps and `around` ones on either side of the log; None if there are
    more than MAX_COMPLETIONS.
    """
    choices = []
    for name in names:
        before = [levels[name]] * around
        if case.begin == "held":
            before = []
        inside = [levels[name] if math.isnan(x) else [x] for x in case.samples[name]]
        choices += [*before, *inside, *[levels[name]] * around]
    if math.prod(map(len, choices)) > MAX_COMPLETIONS:
        return None
    traces = np.array(list(product(*choices))).reshape(-1, len(names), len(choices) // len(names))
    return traces if case.begin != "held" else np.pad(traces, ((0, 0), (0, 0), (around, 0)), "edge")


def enumerated(phi: Formula, case: Case, around: int) -> set[bool] | None:
    """The truth values of phi on all traces that agree with a log; None if there are too many.

    Each variable takes the thresholds that it is compared with, and a value on either side of each.
    """
    levels: Levels = {}
    for _, _, _, channel, threshold in phi.rows():
        for variable, _ in channel or ():
            near = [threshold - 0.25, threshold, threshold + 0.25]
            levels.setdefault(ops.name_of(variable), []).extend(near)
    levels = {name: sorted(set(found)) for name, found in levels.items()}
    if not levels:
        return None
    traces = completions(case, list(levels), levels, around)
    if traces is None:
        return None
    shifted = compose(ops.EVENTUALLY, phi, lo=around, hi=around)
    return set(rv.satisfaction(shifted, traces, variables=list(levels)).tolist())


def small_formula(rng: np.random.Generator, names: list[str], once: bool) -> Formula:
    """A formula with one atom per name, or, without `once`, two; operators with bounds to 2."""
    atoms = [
        Formula.from_rows([(int(rng.choice(ops.COMPARISONS)), 0, 0, ((name, 1.0),), 0.0)])
        for name in names
        for _ in range(1 if once else 2)
    ]
    windows = (ops.ALWAYS, ops.EVENTUALLY, ops.ONCE, ops.HISTORICALLY)
    junctions = [ops.AND, ops.OR, ops.IMPLIES, ops.UNTIL, ops.RELEASE, ops.WEAK_UNTIL, ops.SINCE]
    if not once:
        junctions += [ops.IFF]

    def bounds() -> dict[str, int]:
        lo = int(rng.integers(0, 2))
        return {"lo": lo, "hi": lo + int(rng.integers(0, 2))}

    def wrapped(phi: Formula) -> Formula:
        if rng.random() < 0.2:
            phi = ~phi
        return compose(int(rng.choice(windows)), phi, **bounds()) if rng.random() < 0.5 else phi

    rng.shuffle(atoms)  # type: ignore[arg-type]
    phi = wrapped(atoms[0])
    for atom in atoms[1:]:
        phi = wrapped(compose(int(rng.choice(junctions)), phi, wrapped(atom), **bounds()))
    return phi
