"""Large logs: a file of 1 GB in memory that its columns take, and 300 files, one at a time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rhovec.traces import read_logs, resample

from ..planted import DT, MAX_GAP, make_logs

pytestmark = pytest.mark.soak

SIZE = 10**9
COLUMNS = 12


def test_a_gigabyte(tmp_path: Path) -> None:
    """Two of twelve columns of a file of 1 GB: right to the last row, in memory of its size."""
    rng = np.random.default_rng(0)
    block = "".join(
        ",".join(f"{v:.3f}" for v in row) + "\n" for row in rng.normal(size=(10_000, COLUMNS - 1))
    )
    lines = block.splitlines(keepends=True)
    file = tmp_path / "large.csv"
    rows = 0
    with file.open("w") as stream:
        stream.write("time," + ",".join(f"c{i}" for i in range(COLUMNS - 1)) + "\n")
        while stream.tell() < SIZE:
            stream.writelines(f"{rows + i},{line}" for i, line in enumerate(lines))
            rows += len(lines)
    script = (
        "import resource, sys, rhovec.traces as tr\n"
        "log, = tr.read_logs(sys.argv[1], variables=['c1', 'c7'])\n"
        "print(len(log.times), log.times[-1], log.channels['c7'].values.sum(), "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True
    )
    n, last, total, megabytes = map(float, run.stdout.split())
    once = sum(float(line.split(",")[7]) for line in lines)
    assert (n, last) == (rows, rows - 1)
    assert total == pytest.approx(once * rows / len(lines), rel=1e-6)
    assert megabytes < 1.2 * SIZE / 1e6
    print(f"\n{rows:,} rows in {time.perf_counter() - start:.0f} s, {megabytes:.0f} MB at most")


def test_three_hundred_logs(tmp_path: Path) -> None:
    truths = make_logs(tmp_path, 300, rows=3000)
    names = list(truths[0].signals)
    start = time.perf_counter()
    for truth, log in zip(
        truths, read_logs([t.path for t in truths], variables=names), strict=True
    ):
        assert log.name == truth.name
        assert len(resample(log, DT, max_gap=MAX_GAP).times) > 1500
    seconds = time.perf_counter() - start
    print(f"\n300 logs of 3,000 rows read and resampled in {seconds:.1f} s, one after the other")
