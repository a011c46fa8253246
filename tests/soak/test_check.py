"""`rhovec check` at full size: 300 planted logs, a file of 1 GB, and tens of thousands of columns."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rhovec
from rhovec.check import check_logs

from ..check.test_logs import check_planted
from ..planted import DT, MAX_GAP, REQUIREMENTS, make_logs

pytestmark = pytest.mark.soak

SIZE = 10**9
COLUMNS = 12
SOURCE = str(Path(rhovec.__file__).parents[1])


def test_three_hundred_planted_logs(tmp_path: Path) -> None:
    (tmp_path / "requirements.stl").write_text(REQUIREMENTS)
    (tmp_path / "logs").mkdir()
    truths = make_logs(tmp_path / "logs", 300, rows=3000)
    start = time.perf_counter()
    report = check_logs(
        tmp_path / "requirements.stl", tmp_path / "logs", resample=DT, max_gap=MAX_GAP, workers=2
    )
    seconds = time.perf_counter() - start
    check_planted(report, truths)
    planted = sum(len(truth.planted) for truth in truths)
    print(f"\n{planted} planted verdicts in 300 logs of 3,000 rows found in {seconds:.0f} s")


def run(tmp_path: Path, *arguments: str) -> tuple[list[dict[str, object]], float, float]:
    """Rows, seconds, and the memory in MB of the largest process so far."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "rhovec.cli", "check", *arguments, "--json"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return rows, time.perf_counter() - start, peak


def test_thousands_of_columns(tmp_path: Path) -> None:
    names = [f"channel_{i}" for i in range(30_000)]
    rng = np.random.default_rng(0)
    lines = [",".join(["time", *names])]
    for i in range(300):
        cells = rng.integers(0, 100, len(names)).astype(str).tolist()
        lines.append(",".join([str(i / 10), *cells]))
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    rows, seconds, peak = run(
        tmp_path, "always channel_29999 <= 99", "always channel_7 <= 50", "-t", "wide.csv"
    )
    assert [row["verdict"] for row in rows] == ["holds so far", "violated"]
    print(f"\n30,000 columns x 300 rows in {seconds:.0f} s, {peak:.0f} MB at most")


def test_a_gigabyte(tmp_path: Path) -> None:
    """Three requirements on three of twelve columns; a violation is planted in the last row but ten."""
    rng = np.random.default_rng(0)
    block = [
        ",".join(f"{v:.3f}" for v in row) + "\n" for row in rng.normal(size=(10_000, COLUMNS - 1))
    ]
    rows = 0
    with (tmp_path / "large.csv").open("w") as stream:
        stream.write("time," + ",".join(f"c{i}" for i in range(COLUMNS - 1)) + "\n")
        while stream.tell() < SIZE:
            stream.writelines(f"{(rows + i) / 10},{line}" for i, line in enumerate(block))
            rows += len(block)
        for i in range(10):
            stream.write(f"{(rows + i) / 10}," + ",".join(["9.5", *["0"] * (COLUMNS - 2)]) + "\n")
    found, seconds, peak = run(
        tmp_path, "A: always c0 <= 9", "B: always (c1 > 3 -> eventually[0,30] c7 < 0)",
        "C: always abs(c1 - c7) <= 12", "-t", "large.csv", "--resample", "0.1",
    )  # fmt: skip
    a, b, c = found
    assert a["verdict"] == "violated" and a["robustness"] == pytest.approx(-0.5)
    assert a["intervals"] == [[pytest.approx(rows / 10), pytest.approx((rows + 9) / 10)]]
    assert b["triggered"] == rows // 10_000 * sum(float(line.split(",")[1]) > 3 for line in block)
    assert {b["verdict"], c["verdict"]} == {"holds so far"}
    print(f"\n{rows:,} rows ({SIZE / 1e9:g} GB) in {seconds:.0f} s, {peak:.0f} MB at most")
    assert peak < 8 * SIZE / 1e6
