"""The exact engine on a GPU: speed, memory, growth, and the largest job of the paper.

    python benchmarks/gpu.py [--formulae FILE] [--quick]

Rates count nodes x points x traces over the whole call (lowering, upload and the ordering of traces
included) on traces that are on the device. "asked" counts every node at every point, which is what an
evaluation of the whole trace would touch; "done" counts the rows that time 0 really needs.
Writes results/robustness-gpu.json and .md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rhovec as rv
from common import command, save, table
from rhovec import machine
from rhovec.formula.programs import Programs
from rhovec.robustness import cpu, gpu, lowering

COLUMNS = {f"x_{i}": i for i in range(3)}


def measure(run: Any, repeats: int = 7) -> tuple[float, float]:
    """(median seconds, spread) of synchronised calls after two warm-ups."""
    times = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    kept = sorted(times[2:])
    return kept[len(kept) // 2], kept[-1] - kept[0]


def traces(n: int, points: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(n, 3, points, generator=generator, device="cuda").cumsum(-1) * 0.1


def work(programs: Programs, points: int) -> tuple[int, int]:
    """(node-points asked, rows done) for one trace at time 0."""
    code = lowering.lower(programs, points, trace=False, strict=False)
    return len(programs.code) * points, int(code.table[:, lowering.LENGTH].sum())


def row(name: str, programs: Programs, n: int, points: int, trace: bool = False) -> dict[str, Any]:
    x = traces(n, points)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    out = gpu.evaluate(programs, x, COLUMNS, trace=trace)
    beyond = torch.cuda.max_memory_allocated() - held - out.numel() * out.element_size()
    del out
    seconds, spread = measure(lambda: gpu.evaluate(programs, x, COLUMNS, trace=trace))
    asked, done = work(programs, points)
    return {
        "case": name, "B": len(programs), "N": n, "P": points, "trace": trace,
        "nodes": len(programs.code), "seconds": seconds, "spread": spread,
        "asked_tera_node_points_per_s": asked * n / seconds / 1e12,
        "done_tera_rows_per_s": None if trace else done * n / seconds / 1e12,
        "formulae_per_s": len(programs) / seconds,
        "memory_beyond_output_and_traces_GiB": beyond / 2**30,
    }  # fmt: skip


def kernels_alone(programs: Programs, n: int, points: int) -> list[dict[str, Any]]:
    """Device time of each memory class, by CUDA events."""
    x = traces(n, points)
    times: list[dict[str, Any]] = []
    launch = gpu._launch

    def timed(kernel: Any, group: gpu.MemoryClass, *rest: Any) -> None:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch(kernel, group, *rest)
        end.record()
        times.append({"group": group, "events": (start, end)})

    gpu.evaluate(programs, x, COLUMNS)
    gpu._launch = timed
    try:
        gpu.evaluate(programs, x, COLUMNS)
        torch.cuda.synchronize()
    finally:
        gpu._launch = launch
    return [
        {
            "traces": t["group"].traces,
            "rows": t["group"].rows,
            "in_shared": t["group"].in_shared,
            "formulae": len(t["group"].members),
            "ms": t["events"][0].elapsed_time(t["events"][1]),
        }
        for t in times
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--formulae", type=Path, help="a file of formulae, one a line")
    options.add_argument("--quick", action="store_true")
    given = options.parse_args()
    sets = {"random": Programs.pack(rv.random_formulae(2000, seed=0))}
    file_hash = None
    if given.formulae:
        text = given.formulae.read_bytes()
        file_hash = hashlib.sha256(text).hexdigest()
        lines = [line for line in text.decode().splitlines() if line.strip()]
        sets["file"] = Programs.pack([rv.parse(line) for line in lines])

    rows = []
    for name, programs in sets.items():
        for n, points in ((1024, 100), (1024, 128), (4096, 128), (1024, 1000), (4096, 1000)):
            rows.append(row(name, programs, n, points))
            print(json.dumps(rows[-1]), flush=True)
    for points in (100, 128, 1000):
        detail = kernels_alone(sets["random"], 1024, points)
        print(points, json.dumps(detail), flush=True)
    cpu_check = rv.random_formulae(200, seed=1)
    x = traces(300, 128)
    got = rv.robustness(cpu_check, x).cpu().numpy()
    assert np.array_equal(got, rv.robustness(cpu_check, x.cpu().numpy()))
    if not given.quick:
        programs = sets["random"]
        rows.append(row("trace", Programs.pack(rv.random_formulae(200, seed=0)), 1024, 1000, True))
        for n in (2048, 8192, 32768):
            rows.append(row("growth in N", programs, n, 128))
        for b in (500, 1000, 4000, 8000):
            rows.append(row("growth in B", Programs.pack(rv.random_formulae(b, seed=0)), 4096, 128))
        for points in (256, 512, 2048, 4096):
            rows.append(row("growth in P", programs, 1024, points))
        rows.append(
            row("largest job", Programs.pack(rv.random_formulae(4000, seed=0)), 16000, 1000)
        )
        for r in rows[len(sets) * 5 :]:
            print(json.dumps(r), flush=True)
        small = Programs.pack(rv.random_formulae(200, seed=0))
        y = traces(1024, 128)
        host = y.cpu().numpy()
        start = time.perf_counter()
        cpu.evaluate(small, host, COLUMNS)
        start = time.perf_counter()
        cpu.evaluate(small, host, COLUMNS)
        on_cpu = time.perf_counter() - start
        on_gpu, _ = measure(lambda: gpu.evaluate(small, y, COLUMNS))
        rows.append({"case": "same work, CPU engine", "B": 200, "N": 1024, "P": 128,
                     "seconds": on_cpu, "gpu_seconds": on_gpu, "cores": cpu._cores()})  # fmt: skip
    record = {
        "command": command(), "machine": machine.facts("cuda"),
        "seed": 0, "formulae_sha256": file_hash, "rows": rows,
    }  # fmt: skip
    heads = (
        "case",
        "B",
        "N",
        "P",
        "seconds",
        "T node·points/s asked",
        "T rows/s done",
        "GiB beyond",
    )
    body = [
        [
            r["case"] + " (trace)" * r["trace"], str(r["B"]), str(r["N"]), str(r["P"]),
            f"{r['seconds']:.4g}", f"{r['asked_tera_node_points_per_s']:.2f}",
            "" if r["done_tera_rows_per_s"] is None else f"{r['done_tera_rows_per_s']:.2f}",
            f"{r['memory_beyond_output_and_traces_GiB']:.2f}",
        ]
        for r in rows if "nodes" in r
    ]  # fmt: skip
    about = f"`{record['command']}` on {machine.describe('cuda')}"
    save("robustness-gpu", record, "\n".join([about, "", *table(heads, body), ""]))


if __name__ == "__main__":
    main()
