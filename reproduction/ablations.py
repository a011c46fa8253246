"""Trainings that differ in one thing each, of one length, measured and recorded.

    python benchmarks/comparison.py --device cuda --minutes 20 -F FILE.csv    all of them
    python benchmarks/comparison.py --device cuda --only paper --minutes 10   one, for longer
    python benchmarks/comparison.py --tiny --steps 20 --out FOLDER            a rehearsal

Each run trains for the same time (its steps follow from the pace of a trial, before it begins, so that
the schedule ends with the run) or for the same --steps, is measured as `rhovec evaluate` does, and
leaves a record in OUT/NAME: configuration, environment, log, curves and rows, but no weights. What is
finished is passed over and what was cut short goes on if the same command is given again. OUT/README.md
has the tables; `rhovec evaluate` shows results/comparison beside its own numbers.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import math
import shlex
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rhovec.cli.evaluate import SIGNALS, SIGNALS_SEED, machine
from rhovec.evaluation.claims import run
from rhovec.evaluation.figures import Row
from rhovec.evaluation.report import interval_text, plain
from rhovec.evaluation.sets import FormulaSet, headline, held_out, read_formulae
from rhovec.files import write_file
from rhovec.models import store
from rhovec.models.encoder import Encoder
from rhovec.models.model import load
from rhovec.signals import BaseMeasure
from rhovec.training.distill import PRESETS, Config, train
from rhovec.training.records import environment, read_log, write_json

RESULTS = Path(__file__).parents[1] / "results" / "comparison"
OVERHEAD = 45.0  # seconds of a run that are not training: compiling, a trial, measuring
TRIAL, UNCOUNTED = 100, 20  # steps of a trial at most, and those that compile and warm up
ENOUGH = 5.0  # seconds of a trial that tell the pace
# A short run gets further with more steps of fewer formulae, if pairs of one family, which are a larger
# part of a small batch, weigh less.
BATCH, FAMILY_WEIGHT = 512, 8.0
BANK = 100_000  # formulae by which landmarks are put in place; four times as many take longer
TINY_PAPER = {
    "width": 64, "layers": 2, "heads": 2, "dimension": 128, "signals": 64, "workers": 1,
}  # fmt: skip
SHOWN = ("paper", "points-1000", "shipped-bos", "shipped-mean")  # have a place among the claims
CLAIMS = ("fidelity", "agreement")  # measured of every run; of those shown probing, too


Runs = dict[str, tuple[str, str, dict[str, Any]]]  # name -> in words, its preset, what it changes


class Enough(Exception):
    """A trial has told the pace."""


def runs(base: str) -> Runs:
    """All of them, as changes of the preset `base`.

    Text tokens cannot spell the stretched thresholds of the default mixture within 512 tokens, and
    are many: tree and text are compared on families alone, with the smaller of the two sizes.
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
        "adamw": ("AdamW for the layers, too, 5e-4", {"optimiser": "adamw", "lr": 5e-4}),
        "adamw-1e-4": ("AdamW for the layers, too, 1e-4", {"optimiser": "adamw", "lr": 1e-4}),
        f"dimension-{c.dimension // 4}": (
            f"{c.dimension // 4} dimensions", {"dimension": c.dimension // 4}
        ),
        "half": ("half the width and layers", half),
        "points-1000": ("1000 points, from the shipped weights", onward | {"points": 1000}),
        "shipped-cls": ("cls pooling, from the shipped weights", onward),
        "shipped-bos": ("bos pooling, from the shipped weights", onward | {"pooling": "bos"}),
        "shipped-mean": ("mean pooling, from the shipped weights", onward | {"pooling": "mean"}),
        "tree": ("tree tokens, half the size, families alone", families),
        "text": ("text tokens, half the size, families alone", families | {"tokens": "text"}),
    }  # fmt: skip
    found = {name: (words, base, changed) for name, (words, changed) in changes.items()}
    tiny = {} if base == "default" else TINY_PAPER
    return found | {"paper": ("the paper's recipe", "paper", tiny)}


# -- one run ---------------------------------------------------------------------------------------


def planned(folder: Path, config: Any, steps: int | None, seconds: float = 0.0) -> Any:
    """The configuration with its steps set: those of the run that is there, given, or of the pace."""
    there = folder / "config.json"
    if there.exists():
        return type(config)(**json.loads(there.read_text()) | {"device": config.device})
    steps = steps or max(1, int(seconds / pace(config)))
    return replace(
        config, steps=steps, warmup=min(config.warmup, max(1, steps // 10)),
        every=max(1, steps // 40), validate=math.ceil(steps / 4),
    )  # fmt: skip


def pace(config: Config) -> float:
    """Seconds a step, by a trial that is thrown away."""
    marks: list[tuple[int, float]] = []

    def look(line: dict[str, Any]) -> None:
        if line["step"] >= UNCOUNTED:
            marks.append((line["step"], time.perf_counter()))
        if len(marks) > 1 and (line["step"] >= TRIAL or marks[-1][1] - marks[0][1] > ENOUGH):
            raise Enough

    trial = replace(config, steps=2 * TRIAL, every=5, validate=2 * TRIAL)
    with tempfile.TemporaryDirectory() as folder, suppress(Enough):
        train(trial, folder, look)
    gc.collect()  # what the trial held on the device
    (first, start), (last, end) = marks[0], marks[-1]
    return (end - start) / (last - first)


def measured(config: Config, encoder: Encoder, judge: Judge, claims: Sequence[str]) -> list[Row]:
    """The claims' rows, of the weights as they would be stored."""
    measure = BaseMeasure(n_variables=config.channels, points=config.points)
    facts = {
        "teacher": {"measure": asdict(measure), "sigma2": config.sigma2},
        "training": asdict(config),
    }
    tensors = {name: p.detach().cpu().numpy() for name, p in encoder.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        store.save(folder, encoder.config.to_dict(), tensors, facts)
        model = load(folder, config.device)
    kernel = model.kernel(judge.signals, SIGNALS_SEED)
    rows = run(claims, model, judge.sets, kernel, judge.quick)
    return [row for row in rows if "counts" not in row]


def summaries(rows: Sequence[Row], words: str) -> list[Row]:
    """A row a set for the table of runs."""
    found = {(row["set"], row["claim"], row["measure"]): row for row in rows}
    out = []
    for where in dict.fromkeys(row["set"] for row in rows):
        error = found.get((where, "fidelity", "mean absolute error"))
        if error is None:
            continue  # text may be too long for a model of text; the rows say so
        kept = {key: found[where, "agreement", sort]["value"] for key, sort in
                (("equivalent", "equivalent"), ("lexical", "lexically similar"))}  # fmt: skip
        aligned = found[where, "fidelity", "alignment"]["value"]
        row = error | {"claim": "comparison", "measure": words, "alignment": aligned, **kept}
        row.pop("pooling")  # else it would be in a table of its own
        out.append(row)
    return out


def command(preset: str, config: Config, claims: Sequence[str]) -> str:
    """What trains and measures one run again."""
    changed = {
        name: value
        for name, value in asdict(config).items()
        if value != getattr(PRESETS[preset], name) and name != "device"
    }
    words = ["rhovec", "train", "encoder", "--preset", preset, "--device", config.device]
    for name, value in changed.items():
        words += ["--set", f"{name}={value}"]
    again = f"rhovec evaluate {' '.join(claims)} --model RUN/model"
    return f"{shlex.join(words)} --evaluate --out RUN && {again} --device {config.device}"


class Judge(NamedTuple):
    """What runs are measured on."""

    sets: Sequence[FormulaSet]
    files: Sequence[str] = ()  # names of the sets that are files
    signals: int = SIGNALS  # of the kernel
    quick: bool = False


def record(place: Path, name: str, words: str, preset: str, config: Config, judge: Judge) -> None:
    """Train, or go on with, a run, and leave its record."""
    encoder = train(config, place)
    claims = CLAIMS + ("probing",) * (name in SHOWN)
    rows = measured(config, encoder, judge, claims)
    if preset == "paper" and config.steps < PRESETS[preset].steps:
        words += ", cut short"
    text = command(preset, config, claims)
    facts = {
        "comparison": name, "shown": name in SHOWN, "recorded": True,
        "machine": machine(config.device), "seconds": read_log(place)[-1]["seconds"],
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
    }  # fmt: skip
    write_json(place / "environment.json", environment(config.device) | {"command": text})
    found = [
        row | facts | {"command": text + f" -F {row['set']}" * (row["set"] in judge.files)}
        for row in [*rows, *summaries(rows, words)]
    ]
    write_json(place / "evaluation.json", found)


def compare(
    folder: Path, chosen: Runs, device: str, judge: Judge, steps: int | None, seconds: float
) -> None:
    """Make each run that is not finished, and write the tables anew after each."""
    for i, (name, (words, preset, changes)) in enumerate(chosen.items(), 1):
        place = folder / name
        if not (place / "evaluation.json").exists():
            began = time.perf_counter()
            torch.compiler.reset()  # it compiles for so many shapes, then gives up
            gc.collect()  # what the run before held on the device
            config = replace(PRESETS[preset], device=device)
            if preset != "paper":
                limits = {"batch": min(config.batch, BATCH), "bank": min(config.bank, BANK)}
                config = replace(config, **limits, family_weight=FAMILY_WEIGHT)
            config = replace(config, **changes)
            config = planned(place, config, steps, seconds)
            print(f"{i}/{len(chosen)} {name}: {config.steps} steps", flush=True)
            record(place, name, words, preset, config, judge)
            write_file(folder / "README.md", tables(folder).encode())
            print(f"  {time.perf_counter() - began:.0f} s in all", flush=True)
        remove_weights(place)


def remove_weights(place: Path) -> None:
    """Of a run that is finished."""
    for path in [*place.glob("step-*.safetensors"), place / "checkpoint.json"]:
        path.unlink(missing_ok=True)


# -- the tables ------------------------------------------------------------------------------------


def tables(folder: Path) -> str:
    """README.md: a table a set, and the command of each run, of all that are finished."""
    known = [name for base in ("default", "tiny") for name in runs(base)]
    names = [n for n in dict.fromkeys(known) if (folder / n / "evaluation.json").exists()]
    rows = [
        r for name in names for r in json.loads((folder / name / "evaluation.json").read_text())
    ]
    summary = [row for row in rows if row["claim"] == "comparison"]
    first, long = summary[0], PRESETS["default"]
    out = [
        "# Trainings compared", "",
        f"The first run is the shipped recipe from random weights, with batches of {BATCH} and a weight "
        f"of {FAMILY_WEIGHT:g} for pairs of one family ({long.batch} and {long.family_weight:g} there), "
        f"and landmarks from {BANK:,} formulae instead of {long.bank:,}; "
        "the others differ from it in one thing each, save these: tree and text tokens are to be "
        "compared with each other, runs \"from the shipped weights\" go on with those, the shipped "
        "recipe's batches and half its rates, AdamW has a rate of its own, and the paper's recipe "
        "differs in all. Steps are stated; several runs were "
        f"trained at once, on {first['machine']}. Errors are mean absolute ones against a kernel of "
        f"{first['signals']:,} fresh signals, of as many points as in training: those of 1000 points "
        "are another, easier kernel, to be compared with each other alone. Intervals are 95 % "
        "bootstrap intervals over formulae or families; each run was made once, so that differences "
        "of a few per cent may be chance. Seconds are those of training, compiling included. The "
        "weights were not kept.",
    ]  # fmt: skip
    heads = ("run", "parameters", "steps", "seconds", "points", "n", "mean absolute error",
             "alignment", "equivalent", "lexically similar")  # fmt: skip
    for where in dict.fromkeys(row["set"] for row in summary):
        out += ["", f"**{where}**", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for r in (row for row in summary if row["set"] == where):
            cells = [
                f"[{r['measure']}]({r['comparison']}/)", f"{r['parameters'] / 1e6:.1f} M",
                plain(r["steps"]), f"{r['seconds']:.0f}", str(r["points"]), plain(r["n"]),
                f"{plain(r['value'])} ({interval_text(r, 'value')})", plain(r["alignment"]),
                plain(r["equivalent"]), plain(r["lexical"]),
            ]  # fmt: skip
            out.append(f"| {' | '.join(cells)} |")
    commands = {r["comparison"]: f"{r['date']}: `{r['command']}`" for r in reversed(rows)}
    out += [
        "",
        "## Commands",
        "",
        "With `-F FILE` at the end they measure on formulae of a file; without, where a model has more "
        "than three channels, also on held-out families over all of them, which was left out here.",
        "",
        *(f"- {name}, {commands[name]}" for name in names),
    ]
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Trainings compared.")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--minutes", type=float, default=20.0, help="for all chosen runs")
    parser.add_argument("--steps", type=int, help="of each run, instead of minutes")
    parser.add_argument("--only", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("-F", "--file", action="append", type=Path, default=[],
                        help="measure on these formulae, too; may be repeated")  # fmt: skip
    parser.add_argument("--tiny", action="store_true", help="small models and sets")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder")
    given = parser.parse_args()
    known = runs("tiny" if given.tiny else "default")
    for name in given.only or ():
        if name not in known:
            parser.error(f"there is no run {name}; runs are {', '.join(known)}")
    chosen = {name: known[name] for name in given.only or known}
    seconds = 60 * given.minutes / len(chosen) - OVERHEAD
    if given.steps is None and seconds <= 0:
        parser.error(f"{len(chosen)} runs need more than {len(chosen) * OVERHEAD / 60:.0f} minutes")
    sets = [held_out(8, pairs=60)] if given.tiny else [headline(), held_out()]
    sets += map(read_formulae, given.file)
    names = [path.name for path in given.file]
    judge = Judge(sets, names, 512 if given.tiny else SIGNALS, given.tiny)
    compare(given.out, chosen, given.device, judge, given.steps, seconds)


if __name__ == "__main__":
    main()
