"""Speed of the encoder's training: formulae per second, and how busy the GPU is.

    python benchmarks/training.py --device cuda [--steps 600]

Runs the real training loop on the corpus as it is (`families`, three channels) and on the default
mixture (eight channels), with 1024 fresh traces per batch of 2048. The first third of the steps is not
counted, because of compilation. A profiler watches the last third: idle is the share of its wall time in
which no kernel and no copy ran on the GPU. Writes results/training-speed.json and .md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from common import command, save, table
from rhovec import machine
from rhovec.models.config import EncoderConfig
from rhovec.models.encoder import Encoder
from rhovec.training.distill import PRESETS, rows_needed, train
from rhovec.training.loop import part_of, preset


def busy(events: Any) -> float:
    """Seconds in which at least one of the device's events ran."""
    spans = sorted(
        (e.time_range.start, e.time_range.end)
        for e in events
        if e.device_type == torch.autograd.DeviceType.CUDA
    )
    total, reached = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total / 1e6


def run(
    name: str, device: str, steps: int, profiled: Path | None, **overrides: Any
) -> dict[str, Any]:
    third = steps // 3
    config = preset(
        PRESETS, "default", steps=3 * third, every=third, validate=10**9, device=device,
        **overrides,
    )  # fmt: skip
    on_gpu = device.startswith("cuda")
    activities = [ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]
    watch = profile(activities=activities)
    marks: list[tuple[float, float]] = []

    def report(line: dict[str, Any]) -> None:
        if len(marks) == 2:
            if on_gpu:
                torch.cuda.synchronize()
            marks.append((time.perf_counter(), line["seconds"]))
            watch.stop()
            return
        marks.append((time.perf_counter(), line["seconds"]))
        if len(marks) == 2:
            watch.start()
            marks[1] = (time.perf_counter(), line["seconds"])

    with tempfile.TemporaryDirectory() as folder:
        train(config, folder, report)
    watched = marks[2][0] - marks[1][0]
    if profiled is not None:
        key = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        profiled.write_text(
            watch.key_averages().table(sort_by=key, row_limit=40, max_name_column_width=90)
        )
    plain = (marks[1][1] - marks[0][1]) / third
    parameters = sum(p.numel() for p in Encoder(part_of(config, EncoderConfig)).parameters())
    return {
        "name": name, "parameters": parameters, "batch": config.batch, "traces": config.traces,
        "rows": rows_needed(config, 1), "steps_timed": third, "ms_per_step": 1e3 * plain,
        "formulae_per_second": config.batch / plain,
        "idle_share": 1 - busy(watch.events()) / watched if on_gpu else None,
        "compile_seconds": marks[0][1] - third * plain,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--tables", type=Path, help="folder for the profiler's tables")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--only", choices=("families", "mixture"))
    options = parser.parse_args()
    rows = []
    for corpus, channels in (("families", 3), ("mixture", 8)):
        if options.only in (None, corpus):
            profiled = options.tables / f"profile-{corpus}.txt" if options.tables else None
            found = run(
                f"{corpus}, {channels} channels", options.device, options.steps, profiled,
                corpus=corpus, channels=channels, batch=options.batch,
            )  # fmt: skip
            rows.append(found)
            print(json.dumps(found), flush=True)
    record = {"command": command(), "machine": machine.facts(options.device), "rows": rows}
    heads = ("corpus", "parameters", "ms per step", "formulae per second", "GPU idle")
    body = [
        [
            r["name"], f"{r['parameters'] / 1e6:.1f} M", f"{r['ms_per_step']:.1f}",
            f"{r['formulae_per_second']:,.0f}",
            "" if r["idle_share"] is None else f"{100 * r['idle_share']:.1f} %",
        ]
        for r in rows
    ]  # fmt: skip
    about = f"`{record['command']}`, {machine.describe(options.device)}."
    text = "\n".join(["# Training speed", "", about, "", *table(heads, body), ""])
    save("training-speed", record, text)


if __name__ == "__main__":
    main()
