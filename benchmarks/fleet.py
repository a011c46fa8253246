"""Formulae on traces by the million: two worker processes of a cluster beside one process.

python benchmarks/fleet.py                     1,000,000 traces of 200 points x 8 channels, 50 formulae;
                                               7 GB of disk, about ten minutes on two cores
python benchmarks/fleet.py --traces 20000      a small one
python benchmarks/fleet.py --data FOLDER       keep the traces there, and use them again

Traces are parquet files of 10,000, one row per trace, float32. Three ways in one run: a plain loop over
one file (read, `rv.robustness`, least robustness; the median of several files) in one process with two
threads, `evaluate_files` on the cores of this process, and `evaluate_files` on a Dask cluster of two
workers with one thread each. Overhead is what the cluster takes beyond the loop, per trace, in seconds
and in CPU seconds of workers, scheduler and client. The memory of the workers is looked at twice a
second. Then the time against the number of traces, of formulae and of points, as slopes of log time over
log size, and what these say about 10^9 traces.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import rhovec as rv
from common import command, head, save, table
from rhovec import machine

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers import Cluster, cluster

PER_FILE, CHANNELS = 10_000, 8
POINTS_FILE = 5000  # traces per file where the number of points grows
LOOK = 0.5  # seconds
MANY = 10**9  # traces, of the projection


def make(folder: Path, traces: int, points: int, seed: int, per_file: int = PER_FILE) -> list[Path]:
    """The files of traces, made if they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, begin in enumerate(range(0, traces, per_file)):
        n = min(per_file, traces - begin)
        path = folder / f"traces-{points}-{seed}-{n}-{number:05d}.parquet"
        files.append(path)
        if path.exists():
            continue
        rng = np.random.default_rng([seed, number])
        values = rng.standard_normal((n, CHANNELS, points), np.float32).cumsum(axis=2) / 8
        flat = {f"x_{v}": pa.FixedSizeListArray.from_arrays(values[:, v].reshape(-1), points)
                for v in range(CHANNELS)}  # fmt: skip
        ids = [f"drive {begin + i}" for i in range(n)]
        pq.write_table(pa.table({"trace": ids, **flat}), path, compression="none")
    return files


class Cost(NamedTuple):
    seconds: float
    cpu: float  # seconds of all processes


def cost(work: Callable[[], Any], dask: Cluster | None) -> tuple[Cost, Any]:
    """What work takes, here and in the processes of a cluster."""
    others = [] if dask is None else [dask.scheduler, *dask.workers]
    processes = [psutil.Process(), *(psutil.Process(other.pid) for other in others)]

    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    start, before = time.perf_counter(), used()
    result = work()
    return Cost(time.perf_counter() - start, used() - before), result


def loop(formulae: list[str], files: list[Path]) -> np.ndarray:
    """The least robustness of each formula."""
    lowest = np.full(len(formulae), np.inf)
    for path in files:
        found = pq.read_table(path)
        columns = [found.column(f"x_{v}").combine_chunks().flatten().to_numpy()
                   for v in range(CHANNELS)]  # fmt: skip
        values = np.stack([c.reshape(found.num_rows, -1) for c in columns], 1, dtype=np.float64)
        lowest = np.minimum(lowest, rv.robustness(formulae, values).min(1))
    return lowest


def evaluated(formulae: list[str], files: list[Path], client: Any) -> np.ndarray:
    with tempfile.TemporaryDirectory() as out:
        report = rv.evaluate_files(formulae, files, out=out, client=client)
    assert not report.unread
    return np.array([one.minimum for one in report.summaries])


class Memory:
    """Resident bytes of the workers while a block runs."""

    def __init__(self, dask: Cluster):
        self.workers = [psutil.Process(worker.pid) for worker in dask.workers]
        self.seen: list[list[int]] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self.ended.wait(LOOK):
            self.seen.append([worker.memory_info().rss >> 20 for worker in self.workers])

    def __enter__(self) -> Memory:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def peaks(self, parts: int = 10) -> list[list[int]]:
        """MB of each worker in each part of the time, the most that was seen."""
        seen = self.seen or [[worker.memory_info().rss >> 20 for worker in self.workers]]
        cuts = np.array_split(np.array(seen), min(parts, len(seen)))
        return [cut.max(0).tolist() for cut in cuts]


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
    formulae = [str(phi) for phi in rv.random_formulae(8 * given.formulae, given.seed, CHANNELS)]
    asked = formulae[: given.formulae]
    temporary = tempfile.TemporaryDirectory() if given.data is None else nullcontext(given.data)
    with temporary as name, cluster() as dask, dask.client() as client:
        folder = Path(name)
        files = make(folder, given.traces, given.points, given.seed)
        free = shutil.disk_usage(folder).free >> 30
        print(f"{len(files)} files made, {free} GB of disk left", flush=True)

        def there(own_set: list[str], own_files: list[Path]) -> Cost:
            return cost(lambda: evaluated(own_set, own_files, client), dask)[0]

        def plainly() -> list[Cost]:
            """The loop on several files, one at a time."""
            chosen = (files * given.repeats)[: given.repeats]
            return [cost(lambda own=own: loop(asked, [own]), None)[0] for own in chosen]

        there(asked, (files * 2)[:4])  # compiled code is loaded
        loop(asked, files[:1])
        plain = plainly()
        with Memory(dask) as memory:
            ran, lowest = cost(lambda: evaluated(asked, files, client), dask)
        plain += plainly()
        here, same = cost(lambda: evaluated(asked, files, None), None)
        assert np.array_equal(lowest, same)
        few = min(len(files), 64)
        counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if few // 16 <= n <= few]
        base = max(1, min(4, len(files)))
        per_file = min(POINTS_FILE, given.traces)
        cases: dict[str, list[tuple[float, list[str], list[Path]]]] = {
            "traces": [(n * min(PER_FILE, given.traces), asked, files[:n]) for n in counts],
            "formulae": [
                (n, formulae[:n], files[:base])
                for n in (given.formulae // 2 * 2**k for k in range(5))
            ],
            "points": [
                (p, asked, make(folder, 2 * per_file, p, given.seed + 1, per_file))
                for p in (given.points // 2 * 2**k for k in range(4))
            ],
        }  # fmt: skip
        slopes = {}
        for name, runs in cases.items():
            costs = [
                [there(own_set, own_files) for _ in range(given.repeats)]
                for _, own_set, own_files in runs
            ]
            sizes = [float(n) for n, *_ in runs]
            seconds = [min(one.seconds for one in several) for several in costs]
            cpu = [min(one.cpu for one in several) for several in costs]
            if len(runs) > 1:
                slopes[name] = {
                    "sizes": sizes, "s": seconds, "cpu_s": cpu, "slope": slope(sizes, seconds),
                    "cpu_slope": slope(sizes, cpu),
                }  # fmt: skip
    first = min(PER_FILE, given.traces)
    usual = Cost(*(float(np.median(each)) / first for each in zip(*plain, strict=True)))
    each = Cost(ran.seconds / given.traces, ran.cpu / given.traces)
    facts = {
        "command": command(), "seed": given.seed, "machine": machine.facts(),
        "traces": given.traces, "points": given.points, "formulae": given.formulae,
        "tasks": len(files),
        "us": {"loop": 1e6 * usual.seconds, "here": 1e6 * here.seconds / given.traces,
               "cluster": 1e6 * each.seconds},
        "cpu_us": {"loop": 1e6 * usual.cpu, "here": 1e6 * here.cpu / given.traces,
                   "cluster": 1e6 * each.cpu},
        "overhead": each.seconds / usual.seconds - 1, "cpu_overhead": each.cpu / usual.cpu - 1,
        "worker_mb": memory.peaks(), "slopes": slopes,
        "projection": {"traces": MANY, "core_hours": MANY * each.cpu / 3600,
                       "tasks": MANY // PER_FILE,
                       "terabytes": 4e-12 * MANY * CHANNELS * given.points},
    }  # fmt: skip
    save(given.name, facts, page(facts))


def page(facts: dict[str, Any]) -> str:
    names = {"loop": "plain loop, one process of two threads", "here": "evaluate_files, this process",
             "cluster": "evaluate_files, two workers"}  # fmt: skip
    far = facts["projection"]
    return "\n".join([
        f"# {facts['formulae']} formulae on {facts['traces']:,} traces of {facts['points']} points", "",
        head(facts), "",
        *table(["", "µs per trace", "CPU µs per trace", "traces/s"], [
            [names[key], f"{facts['us'][key]:.1f}", f"{facts['cpu_us'][key]:.1f}",
             f"{1e6 / facts['us'][key]:,.0f}"] for key in names
        ]), "",
        f"Two workers against the loop, per trace: {facts['overhead']:+.1%} of time, "
        f"{facts['cpu_overhead']:+.1%} of CPU time (workers, scheduler and client together).", "",
        "Memory of the two workers, the most in each tenth of the run, MB: "
        + ", ".join(" and ".join(map(str, pair)) for pair in facts["worker_mb"]) + ".", "",
        *table(["against", "sizes", "seconds", "slope", "CPU seconds", "slope"], [
            [name, ", ".join(f"{n:,.0f}" for n in one["sizes"]),
             ", ".join(f"{s:.2f}" for s in one["s"]), f"{one['slope']:.2f}",
             ", ".join(f"{s:.2f}" for s in one["cpu_s"]), f"{one['cpu_slope']:.2f}"]
            for name, one in facts["slopes"].items()
        ]), "",
        f"Projection: {far['traces']:,} such traces are {far['terabytes']:.1f} TB in {far['tasks']:,} "
        f"tasks, and take {far['core_hours']:.1f} core hours, if the time per trace stays what it is "
        "here and the storage delivers what the workers ask for.", "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
