"""Speed of this checkout beside an earlier one, in turns and in the same run.

    python benchmarks/release.py --before REVISION

Both do the same work with the same inputs, each in processes of its own. Only calls that both versions
have are timed. A time is the shortest of five calls, the median over the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPEATS = 5  # calls per turn


def jobs() -> dict[str, Callable[[], Any]]:
    """What is timed, by name; written for the public door of either version."""
    import warnings

    import rhovec as rv

    warnings.simplefilter("ignore")
    formulae = rv.random_formulae(2000, 1)
    texts = [str(phi) for phi in formulae]
    traces = rv.BaseMeasure().sample(1000, 2)
    kernel = rv.StlKernel(rv.BaseMeasure(), 1000)
    model = rv.load()
    index = rv.Index.build(formulae, vectors=kernel)
    queries = formulae[:50]
    return {
        "parse 200 texts, one by one": lambda: [rv.parse(text) for text in texts[:200]],
        "robustness, 1000 formulae": lambda: rv.robustness(formulae[:1000], traces),
        "robustness, 1000 texts": lambda: rv.robustness(texts[:1000], traces),
        "robustness, 100 formulae, all times": lambda: rv.robustness(formulae[:100], traces, trace=True),
        "kernel, 1000 formulae": lambda: kernel.gram(formulae[:1000]),
        "kernel, 1000 texts": lambda: kernel.gram(texts[:1000]),
        "signatures, 2000 formulae": lambda: kernel.signatures(formulae),
        "embed 300 formulae": lambda: model.embed(formulae[:300], warn=False),
        "embed 300 texts": lambda: model.embed(texts[:300], warn=False),
        "build an index of 1000 signatures": lambda: rv.Index.build(formulae[:1000], vectors=kernel),
        "search 2000 signatures, 50 queries": lambda: [index.search(q, k=10) for q in queries],
    }  # fmt: skip


def measure() -> dict[str, float]:
    import time

    out = {}
    for name, job in jobs().items():
        job()
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            job()
            times.append(time.perf_counter() - start)
        out[name] = min(times)
    return out


def turn(source: Path, cache: Path) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    child = [sys.executable, __file__, "--child"]
    found = subprocess.run(child, env=environment, capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", help="revision to compare with")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure()))
        return
    if not given.before:
        parser.error("give --before, the revision to compare with")
    from common import ROOT, command, head, save, table
    from rhovec import machine

    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run(
            ["git", "worktree", "add", "-q", "--detach", old, given.before], cwd=ROOT, check=True
        )
        try:
            sources = {"before": old / "src", "now": ROOT / "src"}
            turns: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
            for _ in range(given.turns):
                for name, source in sources.items():
                    turns[name].append(turn(source, Path(folder) / f"{name}-cache"))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", old], cwd=ROOT, check=True)
    rows = [
        {"job": job, **{name: statistics.median(t[job] for t in turns[name]) for name in turns}}
        for job in turns["now"][0]
    ]
    facts = {"command": command(), "seed": 1, "machine": machine.facts(), "before": given.before,
             "turns": given.turns, "rows": rows}  # fmt: skip
    lines = [
        "# Speed beside an earlier version", "", head(facts), "",
        f"Milliseconds, this checkout and revision {given.before} in {given.turns} turns each; per turn "
        f"the shortest of {REPEATS} calls, here the median.", "",
        *table(
            ["", "before", "now", "now / before"],
            [
                [row["job"], *(f"{1e3 * row[name]:.1f}" for name in ("before", "now")),
                 f"{row['now'] / row['before']:.2f}"]
                for row in rows
            ],
        ),
    ]  # fmt: skip
    save("release-speed", facts, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
