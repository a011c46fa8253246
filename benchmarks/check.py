"""`rhovec check` on a folder of logs: seconds, CPU seconds and memory of the whole command.

    python benchmarks/check.py                         # 300 logs x 3,000 rows x 12 columns, about 2 min
    python benchmarks/check.py --logs 30 --rows 1000   # a trial

The logs are drives with jittered times, flags and gears, some of them with planted violations; fifteen
requirements use all columns. The command is run as a user does, start-up included, with a warm cache of
compiled code.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import command, head, save, table
from rhovec import machine

HEADER = "time,speed [km/h],rpm,torque,temp,pressure,brake,throttle,steer,lat,volt,gear\n"
REQUIREMENTS = """\
fast := speed > 80
LIMIT "Speed limit": always speed <= 120
BRAKE "Pressure follows the brake": always (brake -> eventually[0,2] pressure >= 20)
RELEASE "No pressure without the brake": always (pressure > 20 -> once[0,3] brake)
REVS "Engine speed": always rpm <= 6500
HEAT "No fast heating": always rate(temp) <= 2
POWER "Limited power": always torque * speed <= 30000
BATTERY "Battery": always volt >= 10
PARK "Standing when parked": always (gear == "P" -> speed <= 150)
LATERAL "Lateral acceleration": always (fast -> abs(lat) <= 8)
STEER "Steering": always abs(steer) <= 25
SETTLE "Slows down again": always (rise(fast) -> eventually[0,60] speed <= 80)
THROTTLE "Throttle comes back": always (throttle >= 99.9 -> eventually[0,5] throttle < 90)
RATIO "Ratio of speeds": always abs(rpm - 40 * speed) <= 3000
REACH "Gets going": eventually[0,100] speed >= 60
DRIVE "In gear": (speed < 200) until[0,200] (gear == "D")
"""
SUBREAPER = 36  # of prctl: worker processes become our children when the command ends


def write_log(path: Path, number: int, rows: int, rng: np.random.Generator) -> None:
    """One drive, sampled about every 0.1 s."""
    t = 0.1 * np.arange(rows)
    t[1:] += rng.uniform(-0.004, 0.004, rows - 1)
    throttle = np.clip(np.cumsum(rng.normal(0, 3, rows)) % 100, 0, 100)
    speed = 60 + 30 * np.sin(t / 20 + rng.uniform(0, 6)) + rng.normal(0, 1, rows)
    rpm = speed * 40 + rng.normal(0, 20, rows)
    torque = 100 + 50 * np.sin(t / 7) + rng.normal(0, 5, rows)
    temp = 20 + 0.05 * t
    pressure, brake = np.zeros(rows), np.zeros(rows, int)
    for start in rng.integers(rows // 30, rows - rows // 30, 5):
        brake[start : start + 20] = 1
        pressure[start + int(rng.integers(3, 15)) : start + 25] = 40
    steer = 20 * np.sin(t / 3)
    volt = 12 + rng.normal(0, 0.1, rows)
    gear = np.where(speed < 40, "N", "D")
    gear[:20] = "P"
    middle = rows // 2
    if number % 7 == 3:
        speed[middle : middle + 30] += 60
    if number % 11 == 5:
        temp[middle : middle + 10] += 3 * np.arange(10)
    if number % 13 == 2:
        volt[middle : middle + 20] = 9
    if number % 17 == 1:
        brake[-5:] = 1
    numbers = [speed, rpm, torque, temp, pressure]
    columns = [[f"{x:.4f}" for x in c] for c in [t, *numbers]]
    columns += [[str(x) for x in brake]]
    columns += [[f"{x:.4f}" for x in c] for c in (throttle, steer, steer * speed / 400, volt)]
    lines = [",".join(cells) for cells in zip(*columns, gear, strict=True)]
    path.write_text(HEADER + "\n".join(lines) + "\n")


def run(folder: Path, options: list[str]) -> dict[str, float]:
    """Seconds, CPU seconds of all processes, and the memory of the largest one."""
    arguments = ["-F", "requirements.stl", "-t", "logs", "--resample", "0.1", "--max-gap", "1"]
    program = [sys.executable, "-c", "from rhovec.cli import main; main()", "check", *arguments]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([*program, *options], cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != 1:  # violations are planted
        sys.exit(f"the command ended with {done.returncode}: {done.stderr}")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"s": seconds, "cpu_s": cpu, "mb": after.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    reports = ["--html", "report.html", "--junit", "report.xml", "--csv", "report.csv"]
    variants = {
        "summary": [], "summary, one process": ["--workers", "1"],
        "summary, page, JUnit and CSV": reports,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "requirements.stl").write_text(REQUIREMENTS)
        (folder / "logs").mkdir()
        for i in range(options.logs):
            rng = np.random.default_rng([options.seed, i])
            write_log(folder / "logs" / f"run{i:03d}.csv", i, options.rows, rng)
        size = sum(path.stat().st_size for path in (folder / "logs").iterdir())
        run(folder, [])  # compiles, if the cache is cold, and warms the files
        rows: list[dict[str, Any]] = []
        for name, extra in variants.items():
            found = [run(folder, extra) for _ in range(options.repeats)]
            rows.append({
                "variant": name, "s": statistics.median(one["s"] for one in found),
                "s_min": min(one["s"] for one in found), "s_max": max(one["s"] for one in found),
                "cpu_s": statistics.median(one["cpu_s"] for one in found),
                "mb": max(one["mb"] for one in found),
            })  # fmt: skip
        page = (folder / "report.html").stat().st_size
    facts = {
        "command": command(), "seed": options.seed, "machine": machine.facts(),
        "logs": options.logs, "rows": options.rows, "columns": 12, "requirements": 15,
        "bytes": size, "page_bytes": page, "repeats": options.repeats, "results": rows,
    }  # fmt: skip
    lines = [
        "# rhovec check on a folder of logs", "", head(facts), "",
        f"{options.logs:,} logs of {options.rows:,} rows and 12 columns ({size / 1e6:.0f} MB of CSV), "
        "15 requirements, put on a grid of 0.1 s. The whole command with start-up, its compiled code "
        f"cached; median of {options.repeats} runs, the shortest and the longest. CPU seconds are those "
        "of all processes, memory is that of the largest one.", "",
        *table(
            ("output", "seconds", "CPU seconds", "MB"),
            [
                [
                    row["variant"], f"{row['s']:.1f} ({row['s_min']:.1f} to {row['s_max']:.1f})",
                    f"{row['cpu_s']:.1f}", f"{row['mb']:.0f}",
                ]
                for row in rows
            ],
        ), "",
        f"The page has {page / 1e6:.2f} MB.", "",
    ]  # fmt: skip
    save("check", facts, "\n".join(lines))


if __name__ == "__main__":
    main()
