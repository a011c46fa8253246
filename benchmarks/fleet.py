"""Formulae on traces by the million: two worker processes of a cluster beside one process.

python benchmarks/fleet.py                     1,000,000 traces of 200 points x 8 channels, 50 formulae
python benchmarks/fleet.py --traces 20000      a small one
python benchmarks/fleet.py --data FOLDER       keep the traces there (6.4 GB), and use them again

Traces are parquet files of 10,000, one row per trace, float32. Three ways in one run: a plain loop over
the first file (read, `rv.robustness`, add up) in one process of two threads, `evaluate_files` on the
cores of this process, and `evaluate_files` on a Dask cluster of two workers with one thread each.
Overhead is what the cluster takes beyond the loop, per trace. Then the time against the number of
traces, of formulae and of points, as slopes of log time over log size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import rhovec as rv
from common import command, head, save, table
from rhovec import machine

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers import cluster

PER_FILE, CHANNELS = 10_000, 8


def make(folder: Path, traces: int, points: int, seed: int) -> list[Path]:
    """The files of traces, made if they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, begin in enumerate(range(0, traces, PER_FILE)):
        path = folder / f"traces-{points}-{seed}-{number:05d}.parquet"
        files.append(path)
        if path.exists():
            continue
        n = min(PER_FILE, traces - begin)
        rng = np.random.default_rng([seed, number])
        values = rng.normal(size=(n, CHANNELS, points)).astype(np.float32).cumsum(axis=2) / 8
        flat = {f"x_{v}": pa.FixedSizeListArray.from_arrays(values[:, v].reshape(-1), points)
                for v in range(CHANNELS)}  # fmt: skip
        ids = [f"drive {begin + i}" for i in range(n)]
        pq.write_table(pa.table({"trace": ids, **flat}), path, compression="none")
    return files


def loop(formulae: list[str], files: list[Path]) -> tuple[float, np.ndarray]:
    """Seconds, and the least robustness of each formula."""
    lowest = np.full(len(formulae), np.inf)
    start = time.perf_counter()
    for path in files:
        found = pq.read_table(path)
        columns = [found.column(f"x_{v}").combine_chunks().flatten().to_numpy()
                   for v in range(CHANNELS)]  # fmt: skip
        values = np.stack([c.reshape(found.num_rows, -1) for c in columns], 1, dtype=np.float64)
        lowest = np.minimum(lowest, rv.robustness(formulae, values).min(1))
    return time.perf_counter() - start, lowest


def evaluated(formulae: list[str], files: list[Path], client: Any) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        report = rv.evaluate_files(formulae, files, out=out, client=client)
    assert not report.unread
    return time.perf_counter() - start, np.array([one.minimum for one in report.summaries])


def slope(sizes: list[float], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--formulae", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3, help="of the loop and the small runs")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="fleet")
    given = parser.parse_args()
    formulae = [str(phi) for phi in rv.random_formulae(given.formulae, given.seed, CHANNELS)]
    with tempfile.TemporaryDirectory() as own, cluster() as dask:
        folder = given.data or Path(own)
        files = make(folder, given.traces, given.points, given.seed)
        few = files[: max(1, min(len(files), 8))]
        with dask.client() as client:
            evaluated(formulae, files[:2], client)  # compiled code is loaded
            loop(formulae, files[:1])
            plain = [loop(formulae, files[:1]) for _ in range(given.repeats)]
            loop_s = min(s for s, _ in plain)
            here_s, here = evaluated(formulae, files, None)
            before = [psutil.Process(w.pid).memory_info().rss for w in dask.workers]
            cluster_s, there = evaluated(formulae, files, client)
            after = [psutil.Process(w.pid).memory_info().rss for w in dask.workers]
            assert np.array_equal(here, there)
            slopes = {}
            cases: dict[str, list[tuple[float, list[str], list[Path]]]] = {
                "traces": [(n, formulae, few[:n]) for n in (1, 2, 4, 8) if n <= len(few)],
                "formulae": [
                    (n, (formulae * 4)[:n], few[:1]) for n in (25, 50, 100, 200)
                ],
                "points": [
                    (p, formulae, make(folder, 2000, p, given.seed + 1)) for p in (100, 200, 400, 800)
                ],
            }  # fmt: skip
            for name, runs in cases.items():
                times = [
                    min(evaluated(own_set, own_files, client)[0] for _ in range(given.repeats))
                    for _, own_set, own_files in runs
                ]
                if len(runs) > 1:
                    slopes[name] = {
                        "sizes": [n for n, *_ in runs], "s": times,
                        "slope": slope([n for n, *_ in runs], times),
                    }  # fmt: skip
    first = min(PER_FILE, given.traces)
    facts = {
        "command": command(), "seed": given.seed, "machine": machine.facts(),
        "traces": given.traces, "points": given.points, "formulae": given.formulae,
        "loop_us": 1e6 * loop_s / first, "here_us": 1e6 * here_s / given.traces,
        "cluster_us": 1e6 * cluster_s / given.traces,
        "overhead": (cluster_s / given.traces) / (loop_s / first) - 1,
        "worker_mb_before": [b >> 20 for b in before], "worker_mb_after": [a >> 20 for a in after],
        "slopes": slopes,
    }  # fmt: skip
    save(given.name, facts, page(facts))


def page(facts: dict[str, Any]) -> str:
    memory = ", ".join(
        f"{b} to {a}"
        for b, a in zip(facts["worker_mb_before"], facts["worker_mb_after"], strict=True)
    )
    lines = [
        f"# {facts['formulae']} formulae on {facts['traces']:,} traces of {facts['points']} points", "",
        head(facts), "",
        *table(["", "µs per trace", "traces/s"], [
            [name, f"{facts[key]:.1f}", f"{1e6 / facts[key]:,.0f}"]
            for name, key in (("plain loop, one process of two threads", "loop_us"),
                              ("evaluate_files, this process", "here_us"),
                              ("evaluate_files, two workers", "cluster_us"))
        ]), "",
        f"Two workers against the loop, per trace: {facts['overhead']:+.1%}. Memory of the workers over "
        f"the run: {memory} MB.", "",
        *table(["against", "sizes", "seconds", "slope"], [
            [name, ", ".join(f"{n:g}" for n in one["sizes"]),
             ", ".join(f"{s:.2f}" for s in one["s"]), f"{one['slope']:.2f}"]
            for name, one in facts["slopes"].items()
        ]), "", "Sizes of the first row are files.", "",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
