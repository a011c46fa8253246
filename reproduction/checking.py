"""Learning model checking: is it better to regress probabilities on the kernel, or to simulate?

    python -m reproduction.checking [--quick]

The protocol of the kernel's lineage: the probability that formulae hold on a stochastic process is known
for 1000 of them; kernel ridge regression on the kernel of mu0 predicts it for others. Beside it: direct
simulation with N trajectories of the process for each formula. Its error falls as the root of N, so the
error of the regression says how many trajectories it is worth: its "effective trajectories". A third way
is measured, too: an estimate on 30 trajectories, corrected by regression on the errors of such estimates
for the 1000 known formulae. Formulae are over x_0, x_1, ... in standardised units of the process. Writes
reproduction/results/checking.json and .md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import rhovec as rv
from rhovec import machine

from .systems import SYSTEMS, jump_process

FOLDER = Path(__file__).parent / "results"
POINTS = 100
FEW = 30  # trajectories of the estimate that is corrected
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
FOLDS = 5
SEED = 0

Process = Callable[[int, int], np.ndarray]  # (n, seed) -> (n, V, P)


def immigration_death(n: int, seed: int) -> np.ndarray:
    """A population with immigration at rate 10 and death at rate 1 per head, from 0; 10 time units."""
    return jump_process(
        np.random.default_rng(seed), np.zeros((1, n)), np.array([[1], [-1]]),
        lambda x: np.stack([np.full(n, 10.0), x[0]]), np.linspace(0, 10, POINTS),
    )  # fmt: skip


def isomerization(n: int, seed: int) -> np.ndarray:
    """A turns into B at rate 1 per molecule and B into A at rate 0.5, from 50 of A; 5 time units."""
    start = np.repeat(np.array([[50.0], [0.0]]), n, axis=1)
    return jump_process(
        np.random.default_rng(seed), start, np.array([[-1, 1], [1, -1]]),
        lambda x: np.stack([x[0], 0.5 * x[1]]), np.linspace(0, 5, POINTS),
    )  # fmt: skip


PROCESSES: Mapping[str, Process] = {
    "mu0": lambda n, seed: rv.BaseMeasure(n_variables=3, points=POINTS).sample(n, seed=seed),
    "immigration-death": immigration_death,
    "isomerization": isomerization,
    "sir-like": lambda n, seed: SYSTEMS["sir-like"].traces(n, seed),
    "transmission-like (hybrid)": lambda n, seed: SYSTEMS["transmission-like"].traces(n, seed),
}


def study(process: Process, known: int, asked: int, trajectories: int) -> dict[str, Any]:
    """Errors of regression, of simulation and of the correction, on `asked` formulae."""
    own = process(trajectories, SEED).astype(np.float64)
    mean, std = own.mean(axis=(0, 2), keepdims=True), own.std(axis=(0, 2), keepdims=True)
    own = ((own - mean) / std).astype(np.float32)
    formulae = rv.random_formulae(known + asked, seed=SEED + 1, n_variables=own.shape[1])
    holds = rv.satisfaction(formulae, own)  # (formulae, trajectories)
    truth = holds.mean(axis=1)
    measure = rv.BaseMeasure(n_variables=own.shape[1], points=own.shape[2])
    gram = rv.StlKernel(measure, n_traces=trajectories, seed=SEED).gram(formulae)
    a, b = slice(0, known), slice(known, None)
    found = np.clip(regress(gram[a, a], gram[b, a], truth[a]), 0, 1)
    # Truth is an estimate itself: independent trajectories, many more than are compared.
    rng = np.random.default_rng(SEED)

    def missed(n: int) -> float:
        some = holds[b][:, rng.choice(trajectories, n, replace=False)]
        return float(np.abs(some.mean(axis=1) - truth[b]).mean())

    spread = {n: float(np.mean([missed(n) for _ in range(20)])) for n in (10, FEW, 100)}
    few = holds[:, rng.choice(trajectories, FEW, replace=False)].mean(axis=1)
    residual = regress(gram[a, a], gram[b, a], (truth - few)[a])
    error = float(np.abs(found - truth[b]).mean())
    corrected = float(np.abs(np.clip(few[b] + residual, 0, 1) - truth[b]).mean())
    return {
        "variables": own.shape[1],
        "regression": error,
        "simulation": spread,
        "effective": 10 * (spread[10] / error) ** 2,
        "few": float(np.abs(few[b] - truth[b]).mean()),
        "corrected": corrected,
        "constant": float(np.abs(truth[a].mean() - truth[b]).mean()),
    }


def regress(known: np.ndarray, cross: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Kernel ridge regression; the ridge is chosen by cross-validation on the known formulae."""
    n = len(target)
    fold = np.arange(n) % FOLDS
    middle = target.mean()

    def solve(rows: np.ndarray, ridge: float) -> np.ndarray:
        matrix = known[np.ix_(rows, rows)] + ridge * len(rows) * np.eye(len(rows)) / 10
        out: np.ndarray = np.linalg.solve(matrix, target[rows] - middle)
        return out

    def missed(ridge: float) -> float:
        total = 0.0
        for i in range(FOLDS):
            inside, outside = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
            guess = known[np.ix_(outside, inside)] @ solve(inside, ridge) + middle
            total += float(np.abs(guess - target[outside]).sum())
        return total

    best = min(RIDGES, key=missed)
    out: np.ndarray = cross @ solve(np.arange(n), best) + middle
    return out


def page(facts: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {row['variables']} | {row['regression']:.4f} | {row['effective']:.1f} | "
        f"{row['simulation']['10']:.4f} | {row['simulation']['100']:.4f} | {row['few']:.4f} | "
        f"{row['corrected']:.4f} | {row['constant']:.3f} |"
        for name, row in facts["processes"].items()
    ]
    host = ", ".join(f"{name} {value}" for name, value in facts["machine"].items())
    return "\n".join([
        "# Learning model checking", "",
        f"Command: `{facts['command']}`; seed {facts['seed']}. Machine: {host}.", "",
        "Mean absolute error of the probability that a formula holds. Regression: kernel ridge "
        f"regression on the kernel of mu0, {facts['known']} formulae known, {facts['asked']} asked. "
        "Effective: the number of own trajectories with which direct simulation of each asked formula "
        f"has the same error. Corrected: an estimate on {FEW} trajectories plus a regression on the "
        "errors of such estimates. Constant: the mean of the known probabilities as the answer. Truth "
        f"is an estimate on {facts['trajectories']} trajectories.", "",
        "| process | variables | regression | effective trajectories | simulation, 10 | 100 | "
        f"{FEW} | {FEW}, corrected | constant |",
        "|---|---|---|---|---|---|---|---|---|", *rows, "",
        "Where the process is not mu0, the regression is worth a few trajectories, which cost less than "
        "the verdicts that it learns from. It pays where verdicts are at hand and the process cannot be "
        "simulated.", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    known, asked, trajectories = (100, 40, 400) if options.quick else (1000, 500, 4000)
    found = {name: study(p, known, asked, trajectories) for name, p in PROCESSES.items()}
    facts = {
        "command": "python -m reproduction.checking" + " --quick" * options.quick, "seed": SEED,
        "machine": machine.facts("cpu"), "known": known, "asked": asked,
        "trajectories": trajectories, "processes": found,
    }  # fmt: skip
    facts = json.loads(json.dumps(facts))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "checking.json").write_text(json.dumps(facts, indent=1) + "\n")
    (options.out / "checking.md").write_text(page(facts))
    print(page(facts))


if __name__ == "__main__":
    main()
