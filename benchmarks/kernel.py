"""The kernel's cost beside the paper's table, and whether its standard errors are honest.

python benchmarks/kernel.py --device cuda            B x N of the paper, 1000 points
python benchmarks/kernel.py --small                  a corner of it, for a CPU
python benchmarks/kernel.py --part errors            coverage of the 95 % interval on 500 pairs

Times are medians of repeated calls: formulae that are already parsed to robustness vectors (unit
rows, NumPy), and the same formulae to their Gram matrix (robustness included). Drawing the signals
and parsing are apart; `rhovec evaluate efficiency` times from texts, in fresh processes.
Needs numpy and numba; torch for CUDA.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import rhovec as rv
from rhovec.evaluation.claims import paper_costs
from rhovec.evaluation.efficiency import POINTS, SIGNALS, SIZES, Watch
from rhovec.formula.core import Formula
from rhovec.formula.lines import read_file
from rhovec.kernel import StlKernel
from rhovec.signals import BaseMeasure

RESULTS = Path(__file__).parents[1] / "results"
PAIRS, PAIR_SIGNALS, TRUTH_SIGNALS = 500, 1000, 1_000_000


def machine(device: str) -> dict[str, Any]:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    packages = ["numpy", "numba"]
    facts: dict[str, Any] = {
        "cpu": next(iter(names), platform.processor()), "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1), "python": platform.python_version(),
    }  # fmt: skip
    if device != "cpu":
        import torch

        facts["gpu"] = torch.cuda.get_device_name()
        packages.append("torch")
    return facts | {name: version(name) for name in packages}


def read_formulae(path: Path, n: int | None = None) -> list[str]:
    """The texts of the first n formulae of a file, or of all (see formula/lines.py)."""
    texts = [line.label for line in read_file(path)]
    if n is not None and len(texts) < n:
        sys.exit(f"{path}: holds {len(texts)} formulae, but {n} are needed")
    return texts[:n]


def cost(watch: Watch, work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Seconds and peak memory of calls."""
    watch.reset()
    times = []
    for _ in range(repeats):
        start = watch.now()
        work()
        times.append(watch.now() - start)
    return {
        "s": statistics.median(times), "s_min": min(times), "s_max": max(times), **watch.peaks()
    }  # fmt: skip


def efficiency(
    formulae: list[Formula], counts: list[int], device: str, seed: int, repeats: int
) -> list[dict[str, Any]]:
    watch, rows, paper = Watch(device), [], paper_costs()
    measure = BaseMeasure(points=POINTS)
    StlKernel(measure, n_signals=64, device=device).gram(formulae[:64])  # compiles
    for n in counts:
        kernel = StlKernel(measure, n_signals=n, seed=seed, device=device)
        start = watch.now()
        for _ in kernel.signals():
            pass
        drawing = watch.now() - start
        for b in [b for b in SIZES if b <= len(formulae)]:
            row = {"part": "efficiency", "B": b, "N": n, "points": POINTS, "repeats": repeats,
                   "draw_s": drawing}  # fmt: skip
            for what, work in (("embed", kernel.signatures), ("pairs", kernel.gram)):
                found = cost(watch, partial(work, formulae[:b]), repeats)
                row |= {f"{what}_{key}": value for key, value in found.items()}
                row |= {f"{what}_paper_s": paper[b, n][f"{what} kernel"],
                        f"{what}_paper_mb": paper[b, n][f"{what} kernel MB"]}  # fmt: skip
            rows.append(row)
            print(
                f"B {b:5d}  N {n:6d}  embed {row['embed_s']:8.3f} s  pairs {row['pairs_s']:8.3f} s  "
                f"memory {row['pairs_memory_mb']:7.0f} MB",
                flush=True,
            )
    return rows


def honesty(seed: int) -> list[dict[str, Any]]:
    """Random pairs, each with signals of its own: how often the 95 % interval holds the truth."""
    formulae = rv.random_formulae(2 * PAIRS, seed)
    first, second = formulae[:PAIRS], formulae[PAIRS:]
    sums = np.zeros((3, PAIRS))
    measure = BaseMeasure()
    for signals in measure.blocks(TRUTH_SIGNALS, seed=seed):
        rho = rv.robustness(formulae, signals).astype(np.float64)
        a, b = rho[:PAIRS], rho[PAIRS:]
        sums += [(a * b).sum(1), (a * a).sum(1), (b * b).sum(1)]
    truth = np.exp((sums[0] / np.sqrt(sums[1] * sums[2]) - 1) / 0.2)
    estimates, errors = np.empty(PAIRS), np.empty(PAIRS)
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        kernel = StlKernel(measure, n_signals=PAIR_SIGNALS, seed=seed + 1 + i)
        estimates[i], errors[i] = kernel.similarity(a, b), kernel.standard_error(a, b)
    held = abs(estimates - truth) <= 1.96 * errors
    scores = (estimates - truth)[errors > 0] / errors[errors > 0]
    row = {
        "part": "errors", "pairs": PAIRS, "n_signals": PAIR_SIGNALS, "truth_signals": TRUTH_SIGNALS,
        "points": measure.points, "coverage": float(held.mean()),
        "mean_error": float(abs(estimates - truth).mean()),
        "mean_standard_error": float(errors.mean()), "z_mean": float(scores.mean()),
        "z_deviation": float(scores.std()),
    }  # fmt: skip
    print(f"{100 * row['coverage']:.1f} % of {PAIRS} intervals hold the value; z has mean "
          f"{row['z_mean']:.3f} and deviation {row['z_deviation']:.3f}")  # fmt: skip
    return [row]


def report(rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    host = ", ".join(f"{k} {v}" for k, v in facts["machine"].items())
    head = f"Command: `{facts['command']}`; seed {facts['seed']}. Machine: {host}."
    if rows[0]["part"] == "errors":
        r = rows[0]
        return "\n".join([
            "# Are the kernel's standard errors honest?", "", head, "",
            f"{r['pairs']} random pairs of formulae, each estimated with {r['n_signals']} signals "
            f"of its own ({r['points']} points); the value is that of {r['truth_signals']:,} "
            "signals. z is (estimate - value) / standard error.", "",
            "| 95 % intervals that hold the value | mean abs(estimate - value) | "
            "mean standard error | z: mean | z: deviation |", "|---|---|---|---|---|",
            f"| {100 * r['coverage']:.1f} % | {r['mean_error']:.4f} | "
            f"{r['mean_standard_error']:.4f} | {r['z_mean']:.3f} | {r['z_deviation']:.3f} |", "",
        ])  # fmt: skip
    lines = [
        "# Cost of the kernel", "", head, "",
        f"{facts['formulae']}. {POINTS} points, three variables. Medians of {rows[0]['repeats']} "
        "calls. Embed: parsed formulae to robustness vectors (B, N); pairs: parsed formulae to the "
        "matrix (B, B), robustness included. Memory is the peak of the whole process (RAM) plus "
        "the peak of what it allocated on the GPU (VRAM). Parsing took "
        f"{facts['parse_s']:.3f} s for all formulae. The paper's columns are its kernel on an A100 "
        "80GB; it projected its last row.", "",
        "| B | N | draw s | embed s | paper | ratio | memory MB | paper | pairs s | paper | ratio | "
        "memory MB | paper |", "|---" * 13 + "|",
    ]  # fmt: skip
    for r in sorted(rows, key=lambda r: (r["B"], r["N"])):
        cells = [str(r["B"]), str(r["N"]), f"{r['draw_s']:.3f}"]
        for what in ("embed", "pairs"):
            ratio = r[f"{what}_paper_s"] / r[f"{what}_s"]
            cells += [f"{r[f'{what}_s']:.3f}", f"{r[f'{what}_paper_s']:.2f}", f"{ratio:.0f}",
                      f"{r[f'{what}_memory_mb']:.0f}", f"{r[f'{what}_paper_mb']:.0f}"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost and honesty of the kernel.")
    parser.add_argument("--part", choices=("efficiency", "errors"), default="efficiency")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--small", action="store_true", help="B = 500 and N up to 1000 only")
    parser.add_argument("--formulae", type=Path, help="a file of formulae (default: random ones)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder")
    given = parser.parse_args()
    facts: dict[str, Any] = {
        "command": " ".join(["python benchmarks/kernel.py", *sys.argv[1:]]), "seed": given.seed,
        "machine": machine(given.device),
    }  # fmt: skip
    if given.part == "errors":
        rows, name = honesty(given.seed), "kernel-errors"
    else:
        sizes = [b for b in SIZES if b <= 500 or not given.small]
        counts = [n for n in SIGNALS if n <= 1000 or not given.small]
        if given.formulae:
            texts = read_formulae(given.formulae, sizes[-1])
            digest = hashlib.sha256(given.formulae.read_bytes()).hexdigest()
            facts["formulae"] = f"The first B of {given.formulae.name} (SHA-256 {digest})"
        else:
            texts = [str(phi) for phi in rv.random_formulae(sizes[-1], given.seed)]
            facts["formulae"] = f"The first B of random_formulae({sizes[-1]}, seed={given.seed})"
        start = time.perf_counter()
        formulae = [rv.parse(text) for text in texts]
        facts["parse_s"] = time.perf_counter() - start
        rows = efficiency(formulae, counts, given.device, given.seed, given.repeats)
        name = f"kernel-efficiency-{given.device.partition(':')[0]}"
    given.output.mkdir(parents=True, exist_ok=True)
    text = report(rows, facts)
    (given.output / f"{name}.json").write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    (given.output / f"{name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
