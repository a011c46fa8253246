"""Speed of the corpus: formulae a second of the stream, and a whole build of the paper's size.

python benchmarks/corpus.py                       3.3 million formulae, on all cores

The stream is timed on one thread in CPU seconds, batch by batch, so that a busy machine disturbs it
less; the build is a process of its own, for its time on the clock and its peak memory. Both start
with compiled code in numba's cache. The finished corpus is then read once, to count formulae that
occur twice and test formulae whose text is also in the training split.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from common import command, head, save
from rhovec import machine
from rhovec.corpus import Recipe, draw_families
from rhovec.corpus.families import find_families

BATCH, BATCHES = 2048, 200


def stream_speed(seed: int) -> dict[str, Any]:
    """Formulae a CPU second: median and quartiles over batches, with the search for the split."""
    recipe = Recipe(seed=seed)
    rates, nodes, start = [], 0, 0
    for _ in range(BATCHES + 1):
        before = time.process_time()
        numbers = find_families(recipe, start, BATCH // recipe.family_size, "train")
        batch = draw_families(recipe, numbers)
        rates.append(BATCH / (time.process_time() - before))
        start = int(numbers[-1]) + 1
        nodes += len(batch.programs.code)
    low, median, high = np.quantile(rates[1:], [0.25, 0.5, 0.75])  # the first one loads the code
    return {
        "batch": BATCH, "batches": BATCHES, "formulae_per_s": median, "low": low, "high": high,
        "nodes_a_formula": nodes / (BATCH * (BATCHES + 1)),
    }  # fmt: skip


def build_cost(folder: Path, families: int, seed: int, workers: int) -> dict[str, Any]:
    command = ["corpus", "build", str(folder), "--families", str(families), "--seed", str(seed),
               "--workers", str(workers)]  # fmt: skip
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "rhovec.cli", *command], check=True)
    seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "families": families, "formulae": families * Recipe().family_size, "workers": workers,
        "seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
        "disk_mb": sum(path.stat().st_size for path in folder.iterdir()) / 2**20,
    }  # fmt: skip


def repetition(folder: Path) -> dict[str, float]:
    """How much of a corpus is the same text again."""
    table = parquet.read_table(folder, columns=["split", "formula"])
    formula, split = table["formula"], table["split"].cast("string")
    train = pc.unique(formula.filter(pc.equal(split, "train")))
    test = formula.filter(pc.equal(split, "test"))
    return {
        "distinct": pc.count_distinct(formula).as_py() / len(formula),
        "test_text_in_train": pc.mean(pc.is_in(test, value_set=train)).as_py(),
    }


def report(facts: dict[str, Any]) -> str:
    stream, build, texts = (facts[k] for k in ("stream", "build", "texts"))
    return f"""# The corpus

{head(facts)}

| what | value | n |
|---|---|---|
| stream, formulae a CPU second (quartiles) | {stream["formulae_per_s"]:,.0f} \
({stream["low"]:,.0f} to {stream["high"]:,.0f}) | {stream["batches"]} batches of {stream["batch"]} |
| nodes a formula | {stream["nodes_a_formula"]:.1f} | |
| build, seconds (CPU seconds) | {build["seconds"]:.0f} ({build["cpu_seconds"]:.0f}) | \
{build["formulae"]:,} formulae, {build["workers"]} workers |
| build, peak memory | {build["peak_mb"]:.0f} MB | |
| build, on disk | {build["disk_mb"]:.0f} MB | |
| distinct texts | {100 * texts["distinct"]:.2f} % | {build["formulae"]:,} |
| test formulae whose text is also in train | {100 * texts["test_text_in_train"]:.2f} % | |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--families", type=int, default=412_500)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    facts: dict[str, Any] = {
        "command": command(), "seed": given.seed,
        "machine": machine.facts(packages=["numpy", "numba", "pyarrow"]),
        "stream": stream_speed(given.seed),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "corpus"
        facts["build"] = build_cost(folder, given.families, given.seed, given.workers)
        facts["texts"] = repetition(folder)
    save("corpus-speed", facts, report(facts))


if __name__ == "__main__":
    main()
