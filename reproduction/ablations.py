"""Ablations: trainings of the encoder that differ in one respect, measured and recorded.

    python -m reproduction ablations --device cuda --minutes 20 -F FILE.csv    all of them
    python -m reproduction ablations --device cuda --only paper-512 --minutes 24   one, for longer
    python -m reproduction ablations --tiny --steps 20 --out FOLDER            a rehearsal

Each run trains for the same time or for the same number of steps. For a given time, a short trial
measures the pace before the run begins, so that the schedule ends with the run; no run is longer than
its preset. The result is measured like a claim, and recorded as OUT/NAME.json without the weights. Given
the same command again, finished runs are passed over and an interrupted one goes on.
"""

from __future__ import annotations

import datetime
import gc
import json
import math
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rhovec import machine
from rhovec.evaluation.encoder import TRACES, TRACES_SEED
from rhovec.evaluation.sets import FormulaSet
from rhovec.models import store
from rhovec.models.encoder import Encoder
from rhovec.models.model import load
from rhovec.traces import BaseMeasure
from rhovec.training.distill import PRESETS, Config, train
from rhovec.training.records import environment, read_log

from .measure import run
from .paper import Row
from .records import ABLATIONS, Run, write_run

OVERHEAD = 45.0  # seconds of a run besides training: compilation, a trial, measuring
TRIAL, UNCOUNTED = 100, 20  # most steps of a trial, and those that compile and warm up
ENOUGH = 5.0  # seconds of a trial after which the pace is known
# A short run gets further with more steps of fewer formulae, provided that pairs of one family, which
# make up more of a small batch, get less weight.
BATCH, FAMILY_WEIGHT = 512, 8.0
BANK = 100_000  # formulae that Nyström landmarks are fitted on, a quarter of the shipped recipe's
TINY_PAPER = {
    "width": 64, "layers": 2, "heads": 2, "dimension": 128, "traces": 64, "workers": 1,
}  # fmt: skip
SHOWN = ("paper-512", "points-1000", "shipped-bos", "shipped-mean")  # shown among the claims, too
CLAIMS = ("fidelity", "agreement")  # measured for every run; for SHOWN also probing

Runs = dict[str, tuple[str, str, dict[str, Any]]]  # name -> words, preset, changed fields


class Enough(Exception):
    """The trial has run long enough to know the pace."""


def runs(base: str) -> Runs:
    """All runs, as changes of the preset `base`.

    Text of at most 512 tokens cannot spell the stretched thresholds of the default mixture, and text
    has many tokens: so tree and text differ only from each other, trained on families and at half size.
    """
    c = PRESETS[base]
    half = {"width": c.width // 2, "layers": c.layers // 2}
    families = half | {"corpus": "families"}
    onward = {
        "origin": "shipped" if base == "default" else "", "lr": c.lr / 2, "adam_lr": c.adam_lr / 2,
        "batch": c.batch, "family_weight": c.family_weight, "bank": c.bank,
    }  # fmt: skip
    changes: dict[str, tuple[str, dict[str, Any]]] = {
        "base": ("the shipped recipe, cut short", {}),
        "bos": ("bos pooling", {"pooling": "bos"}),
        "mean": ("mean pooling", {"pooling": "mean"}),
        "projector": ("the paper's head", {"head": "projector"}),
        "focal": ("the paper's loss", {"loss": "focal"}),
        "adamw": ("AdamW for the layers, 5e-4", {"optimiser": "adamw", "lr": 5e-4}),
        "adamw-1e-4": ("AdamW for the layers, 1e-4", {"optimiser": "adamw", "lr": 1e-4}),
        f"dimension-{c.dimension // 4}": (
            f"{c.dimension // 4} dimensions", {"dimension": c.dimension // 4}
        ),
        "half": ("half the width and layers", half),
        "points-1000": ("1000 points, from the shipped weights", onward | {"points": 1000}),
        "shipped-cls": ("cls pooling, from the shipped weights", onward),
        "shipped-bos": ("bos pooling, from the shipped weights", onward | {"pooling": "bos"}),
        "shipped-mean": ("mean pooling, from the shipped weights", onward | {"pooling": "mean"}),
        "tree": ("tree tokens, half the size, only families", families),
        "text": ("text tokens, half the size, only families", families | {"tokens": "text"}),
    }  # fmt: skip
    found = {name: (words, base, changed) for name, (words, changed) in changes.items()}
    tiny = {} if base == "default" else TINY_PAPER
    return found | {
        "paper": ("the paper's recipe", "paper", tiny),
        "paper-512": ("the paper's recipe, half its width", "paper-512", tiny),
    }


# -- one run ---------------------------------------------------------------------------------------


def planned(folder: Path, config: Any, steps: int | None, seconds: float = 0.0) -> Any:
    """The configuration with its number of steps: of the run already begun, given, or by the pace."""
    there = folder / "config.json"
    if there.exists():
        return type(config)(**json.loads(there.read_text()) | {"device": config.device})
    steps = steps or min(config.steps, max(1, int(seconds / pace(config))))
    return replace(
        config, steps=steps, warmup=min(config.warmup, max(1, steps // 10)),
        every=max(1, steps // 80), validate=math.ceil(steps / 8),
    )  # fmt: skip


def pace(config: Config) -> float:
    """Seconds per step, by a trial whose result is thrown away."""
    marks: list[tuple[int, float]] = []

    def look(line: dict[str, Any]) -> None:
        if line["step"] >= UNCOUNTED:
            marks.append((line["step"], time.perf_counter()))
        if len(marks) > 1 and (line["step"] >= TRIAL or marks[-1][1] - marks[0][1] > ENOUGH):
            raise Enough

    trial = replace(config, steps=2 * TRIAL, every=5, validate=2 * TRIAL)
    with tempfile.TemporaryDirectory() as folder, suppress(Enough):
        train(trial, folder, look)
    gc.collect()  # frees what the trial held on the device
    (first, start), (last, end) = marks[0], marks[-1]
    return (end - start) / (last - first)


def measured(config: Config, encoder: Encoder, judge: Judge, claims: Sequence[str]) -> list[Row]:
    """Rows of the claims, for the weights as they would be stored."""
    measure = BaseMeasure(n_variables=config.channels, points=config.points)
    facts = {
        "teacher": {"measure": asdict(measure), "sigma2": config.sigma2},
        "training": asdict(config),
    }
    tensors = {name: p.detach().cpu().numpy() for name, p in encoder.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        store.save(folder, encoder.config.to_dict(), tensors, facts)
        model = load(folder, config.device)
    kernel = model.kernel(judge.traces, TRACES_SEED)
    rows = run(claims, model, judge.sets, kernel, judge.quick)
    unused = ("counts", "shown")  # data of figures that show the shipped model
    return [
        {k: v for k, v in row.items() if k not in unused} for row in rows if "counts" not in row
    ]


def summaries(rows: Sequence[Row], words: str) -> list[Row]:
    """A row per set for the table of ablations."""
    found = {(row["set"], row["claim"], row["measure"]): row for row in rows}
    out = []
    for where in dict.fromkeys(row["set"] for row in rows):
        error = found.get((where, "fidelity", "mean absolute error"))
        if error is None:
            continue  # a model of text may not be able to read a set; its rows say so
        kept = {key: found[where, "agreement", sort]["value"] for key, sort in
                (("equivalent", "equivalent"), ("lexical", "lexically similar"))}  # fmt: skip
        aligned = found[where, "fidelity", "alignment"]["value"]
        row = error | {"claim": ABLATIONS, "measure": words, "alignment": aligned, **kept}
        out.append(row)
    return out


def command(preset: str, config: Config, claims: Sequence[str]) -> str:
    """Command that trains and measures one run again."""
    changed = {
        name: value
        for name, value in asdict(config).items()
        if value != getattr(PRESETS[preset], name) and name != "device"
    }
    words = ["rhovec", "train", "encoder", "--preset", preset, "--device", config.device]
    for name, value in changed.items():
        words += ["--set", f"{name}={value}"]
    again = f"python -m reproduction claims {' '.join(claims)} --model RUN/model"
    return f"{shlex.join(words)} --evaluate --out RUN && {again} --device {config.device}"


class Judge(NamedTuple):
    """What runs are measured on. files: names of the sets that are files."""

    sets: Sequence[FormulaSet]
    files: Sequence[str] = ()
    traces: int = TRACES  # traces of the kernel
    quick: bool = False


def record(folder: Path, name: str, words: str, preset: str, config: Config, judge: Judge) -> Run:
    """Train a run, or go on with it, in its folder, and measure it."""
    encoder = train(config, folder)
    claims = CLAIMS + ("probing",) * (name in SHOWN)
    rows = measured(config, encoder, judge, claims)
    if preset.startswith("paper") and config.steps < PRESETS[preset].steps:
        words += ", cut short"
    text = command(preset, config, claims)
    log = read_log(folder)
    facts = {
        "ablation": name, "shown": name in SHOWN, "recorded": True,
        "machine": machine.describe(config.device), "seconds": log[-1]["seconds"],
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
    }  # fmt: skip
    found = [
        row | facts | {"command": text + f" -F {row['set']}" * (row["set"] in judge.files)}
        for row in [*rows, *summaries(rows, words)]
    ]
    return Run(asdict(config), environment(config.device) | {"command": text}, log, found)


def ablate(
    folder: Path,
    runs: Path,
    chosen: Runs,
    device: str,
    judge: Judge,
    steps: int | None,
    seconds: float,
) -> None:
    """Train each run that has no record yet in `folder`; `runs` holds the one that is in progress."""
    for i, (name, (words, preset, changes)) in enumerate(chosen.items(), 1):
        if (folder / f"{name}.json").exists():
            continue
        began = time.perf_counter()
        forget()
        config = replace(PRESETS[preset], device=device)
        if not preset.startswith("paper"):
            limits: dict[str, Any] = {
                "batch": min(config.batch, BATCH),
                "bank": min(config.bank, BANK),
            }
            config = replace(config, **limits, family_weight=FAMILY_WEIGHT)
        config = planned(runs / name, replace(config, **changes), steps, seconds)
        print(f"{i}/{len(chosen)} {name}: {config.steps} steps", flush=True)
        found = record(runs / name, name, words, preset, config, judge)
        write_run(folder / f"{name}.json", found)
        shutil.rmtree(runs / name)
        print(f"  {time.perf_counter() - began:.0f} s in all", flush=True)


def forget() -> None:
    """Free what the run before held on the device, and its compiled code."""
    torch.compiler.reset()  # it compiles for a limited number of shapes and then gives up
    gc.collect()
