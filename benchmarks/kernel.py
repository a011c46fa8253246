"""Are the kernel's standard errors right? Coverage of the 95 % interval on random pairs.

python benchmarks/kernel.py

The kernel's cost, beside the encoder's and the paper's, is `python -m reproduction claims efficiency`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import rhovec as rv
from common import command, head, save, table
from rhovec import machine
from rhovec.kernel import StlKernel
from rhovec.traces import BaseMeasure

PAIRS, PAIR_TRACES, TRUTH_TRACES = 500, 1000, 1_000_000


def coverage(seed: int) -> dict[str, Any]:
    """Random pairs, each with its own traces: how often the 95 % interval holds the true value."""
    formulae = rv.random_formulae(2 * PAIRS, seed)
    first, second = formulae[:PAIRS], formulae[PAIRS:]
    sums = np.zeros((3, PAIRS))
    measure = BaseMeasure()
    for traces in measure.blocks(TRUTH_TRACES, seed=seed):
        rho = rv.robustness(formulae, traces).astype(np.float64)
        a, b = rho[:PAIRS], rho[PAIRS:]
        sums += [(a * b).sum(1), (a * a).sum(1), (b * b).sum(1)]
    truth = np.exp((sums[0] / np.sqrt(sums[1] * sums[2]) - 1) / 0.2)
    estimates, errors = np.empty(PAIRS), np.empty(PAIRS)
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        kernel = StlKernel(measure, n_traces=PAIR_TRACES, seed=seed + 1 + i)
        estimates[i], errors[i] = kernel.similarity(a, b), kernel.standard_error(a, b)
    held = abs(estimates - truth) <= 1.96 * errors
    scores = (estimates - truth)[errors > 0] / errors[errors > 0]
    return {
        "part": "errors", "pairs": PAIRS, "n_traces": PAIR_TRACES, "truth_traces": TRUTH_TRACES,
        "points": measure.points, "coverage": float(held.mean()),
        "mean_error": float(abs(estimates - truth).mean()),
        "mean_standard_error": float(errors.mean()), "z_mean": float(scores.mean()),
        "z_deviation": float(scores.std()),
    }  # fmt: skip


def report(facts: dict[str, Any]) -> str:
    (r,) = facts["rows"]
    heads = ("95 % intervals that hold the value", "mean abs(estimate - value)",
             "mean standard error", "z: mean", "z: deviation")  # fmt: skip
    row = [f"{100 * r['coverage']:.1f} %", f"{r['mean_error']:.4f}", f"{r['mean_standard_error']:.4f}",
           f"{r['z_mean']:.3f}", f"{r['z_deviation']:.3f}"]  # fmt: skip
    return "\n".join([
        "# Are the kernel's standard errors right?", "", head(facts), "",
        f"{r['pairs']} random pairs of formulae, each estimated on {r['n_traces']} traces of its own "
        f"({r['points']} points); the value is that on {r['truth_traces']:,} traces. z is "
        "(estimate - value) / standard error.", "", *table(heads, [row]), "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the kernel's standard errors.")
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    facts = {
        "command": command(),
        "seed": seed,
        "machine": machine.facts(),
        "rows": [coverage(seed)],
    }
    save("kernel-errors", facts, report(facts))


if __name__ == "__main__":
    main()
