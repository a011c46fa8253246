"""Runs over many files under attack; `make soak` does many attacks, the normal suite a few.

Each run is ended by kill -9 of a worker, the scheduler or the client at a random moment, and then
resumed. Its result files must have the bytes of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask import config

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.fleet import FleetReport, cuts
from rhovec.tasks import connected

from ..servers import Cluster, cluster

FORMULAE = [str(phi) for phi in rv.random_formulae(12, 3)]
TASK_BYTES = 40_000  # a file per task
SOURCE = Path(__file__).parents[2] / "src"
CLIENT = """
import json, sys
import rhovec as rv
from rhovec.fleet import cuts
from rhovec.tasks import connected

formulae, source, out, address, cuts.TASK_BYTES = json.loads(sys.argv[1])
with connected(address) as client:
    print("begun", flush=True)
    rv.evaluate_files(formulae, source, out=out, client=client, rows=True)
"""


class Runs:
    """Files of traces, and what an undisturbed run writes for them."""

    def __init__(self, folder: Path, files: int = 60):
        self.folder, self.traces = folder, folder / "traces"
        self.traces.mkdir()
        self.attempts = 0
        for i in range(files):
            x = np.random.default_rng(i).normal(size=(40, 3, 40)).cumsum(2)
            columns = {f"x_{v}": pa.array(list(x[:, v])) for v in range(3)}
            names = [f"t{k}" for k in range(len(x))]
            pq.write_table(pa.table({"trace": names, **columns}), self.traces / f"{i}.parquet")
        (self.traces / "corrupt.parquet").write_bytes(b"PAR1")
        self.report = self.evaluate(out := self.new(), None)
        self.files = contents(out)
        assert self.report.tasks > files // 2 and len(self.report.unread) == 1

    def new(self) -> Path:
        self.attempts += 1
        return self.folder / f"out-{self.attempts}"

    def evaluate(self, out: Path, client: Any, **options: Any) -> FleetReport:
        before, cuts.TASK_BYTES = cuts.TASK_BYTES, TASK_BYTES
        try:
            return rv.evaluate_files(
                FORMULAE, self.traces, out=out, client=client, rows=True, **options
            )
        finally:
            cuts.TASK_BYTES = before

    def check(self, out: Path, report: FleetReport) -> None:
        assert contents(out) == self.files
        assert report.summaries == self.report.summaries
        assert report.unread == self.report.unread


def contents(folder: Path) -> dict[str, bytes]:
    """All result files; what kills left behind has other names."""
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


class Attack:
    """A kill -9 at a random moment while a block runs."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float):
        self.process, self.hit = process, False
        self.timer = threading.Timer(seconds, self._kill)

    def _kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.hit = True

    def __enter__(self) -> Attack:
        self.timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()
        self.timer.join()


def warm(runs: Runs, client: Any) -> float:
    """Seconds of a run whose workers have loaded the compiled code."""
    for _ in range(2):
        start = time.monotonic()
        out = runs.new()
        runs.check(out, runs.evaluate(out, client))
    return time.monotonic() - start


def kill_workers(runs: Runs, n: int, seed: int) -> dict[str, Any]:
    """Kill one of two workers n times: the run goes on."""
    chance, kills = random.Random(seed), 0
    with cluster() as dask, dask.client() as client:
        longest = warm(runs, client)
        while kills < n:
            out, victim = runs.new(), chance.choice(dask.workers)
            with Attack(victim, chance.random() * longest) as attack:
                report = runs.evaluate(out, client)
            runs.check(out, report)
            if attack.hit:
                kills += 1
                dask.workers.remove(victim)
                dask.add_worker()
                client.wait_for_workers(2, timeout=60)
    return {"workers killed": kills, "runs that went on": kills, "result files": len(runs.files)}


def kill_schedulers(runs: Runs, n: int, seed: int) -> dict[str, Any]:
    """Kill the scheduler n times: the run ends with an error, and is resumed on another cluster."""
    chance, counted = random.Random(seed), Counter[str]()
    dask = Cluster()
    try:
        with dask.client() as client:
            longest = warm(runs, client)
        while counted["schedulers killed"] < n:
            out, told = runs.new(), False
            with config.set({"distributed.comm.timeouts.connect": "2s"}):
                client = dask.client()
                with Attack(dask.scheduler, chance.random() * longest) as attack:
                    try:
                        runs.check(out, runs.evaluate(out, client))
                    except RhovecError as error:
                        assert "scheduler was lost; run it again" in str(error)
                        told = True
                client.close(timeout=1)
            assert attack.hit or not told
            if attack.hit:
                dask.stop()
                dask = Cluster()
                counted["schedulers killed"] += 1
            if told:
                done = len(contents(out))
                with dask.client() as client:
                    report = runs.evaluate(out, client)
                assert report.resumed >= done  # workers may have ended their tasks meanwhile
                runs.check(out, report)
                counted["runs resumed"] += 1
                counted["tasks kept"] += report.resumed
    finally:
        dask.stop()
    return dict(counted)


def kill_clients(runs: Runs, n: int, seed: int) -> dict[str, Any]:
    """Kill the client n times, every second one without a cluster: another client resumes."""
    chance, counted = random.Random(seed), Counter[str]()
    with cluster() as dask:
        with dask.client() as client:
            seconds = {dask.address: warm(runs, client), None: warm(runs, None)}
        while counted["clients killed"] < n:
            out, address = runs.new(), (dask.address, None)[counted["clients killed"] % 2]
            given = [FORMULAE, str(runs.traces), str(out), address, TASK_BYTES]
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", CLIENT, json.dumps(given)],
                env=os.environ | {"PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            with Attack(process, chance.random() * 2 * seconds[address]) as attack:
                process.wait()
            process.stdout.close()
            if attack.hit and len(contents(out)) < len(runs.files):
                counted["clients killed"] += 1
                counted["without a cluster"] += address is None
                with connected(address) as client:
                    report = runs.evaluate(out, client)
                counted["tasks kept"] += report.resumed
            else:
                assert process.returncode in (0, -9)
                report = runs.evaluate(out, None)
            runs.check(out, report)
    return dict(counted)
