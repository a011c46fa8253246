"""Distilling your own traces: error of the similarities after 40, 100 and 300 s of training, and a
decoder for the model.

    python benchmarks/distill.py --device cuda --npz naval.npz fuel.npz --budget 1500 --keep models
    python benchmarks/distill.py --recipe adapt-cpu --npz naval.npz fuel.npz      # on a CPU

Systems: each .npz file given (arrays `signals` (N, V, P), `variables`, `dt`; a fifth of the traces is
held out), and the eight channels of chasing-cars-8-like of the test bed (held out: other inputs, another
seed). For each: the shipped encoder as it is, the encoder trained on from the shipped weights, and one
from random weights. The figure is the mean absolute error of the kernel over all pairs of formulae of
the test split, none of which, nor any relative, is trained on: random ones, rewritten ones, and
requirements; by directions and by vectors, against the kernel on the training traces and on the held-out
ones. Steps per second are measured first, so that a schedule takes the seconds that were asked for;
compiling and fitting the head come on top and are reported. Rows are written as they are found, and
after --budget seconds nothing new is begun; the same command goes on with the rows that are missing.
--keep is a folder for models: that of the first system's longest run, and, after the middle time, those
of the systems that space.py decodes in. For each a decoder is trained, from the shipped one.
distilled.py measures such models.

--recipe adapt-cpu: that preset as it is, once per system, and for the first one from random weights.
--keep then keeps the models of all systems, with decoders of the preset of the same name.
Writes results/distill-DEVICE.json and .md.
--quick: small sizes, to see it work.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import RESULTS, ROOT, command, head, save, table

sys.path.insert(0, str(ROOT))  # for the test bed

from reproduction.systems import SYSTEMS
from rhovec import machine
from rhovec.corpus.families import Recipe, draw_families, find_families
from rhovec.evaluation.metrics import alignment, mean_error
from rhovec.evaluation.sets import DRAWN
from rhovec.formula.programs import Programs
from rhovec.kernel import kernel_of_cosine
from rhovec.models.model import load
from rhovec.traces import TraceMeasure
from rhovec.training import distill, invert
from rhovec.training.loop import preset
from rhovec.training.own import OwnTraces
from rhovec.training.publish import publish_decoder, publish_encoder, round_weights
from rhovec.training.records import read_log

EIGHT = "chasing-cars-8-like"
DECODED = ("unicycle-like", "transmission-like", "sir-like")  # of the test bed, as in space.py
TRACES = 2000  # of the test bed
UNSEEN = 3000  # formulae
SEED = 991  # of their recipe
DECODER_SECONDS = 40
SETUP = {"encoder": 15, "first": 30, "decoder": 35}  # seconds on top: compiling, head, validation
PROBE = 240  # steps that tell the speed
SHORT, LONG = {"lr": 1e-3, "average": 0.99}, {"lr": 1.5e-3, "average": 0.999}
SMALL = {"width": 32, "layers": 1, "heads": 2, "dimension": 128, "bank": 2048, "batch": 64}


def from_file(path: Path, quick: bool) -> OwnTraces:
    with np.load(path, allow_pickle=False) as data:
        signals, names, dt = data["signals"], data["variables"].tolist(), float(data["dt"])
    return OwnTraces.of(signals[:200] if quick else signals, names, dt=dt)


def from_test_bed(name: str, quick: bool) -> OwnTraces:
    bed, n = SYSTEMS[name], 200 if quick else TRACES
    fit = TraceMeasure(bed.traces(n, seed=0), bed.variables)
    test = TraceMeasure(bed.traces(n, seed=1, part="test"), bed.variables)
    return OwnTraces.of(fit, dt=bed.dt, schema=bed.schema(fit.values), held_out=test)


def own_traces(system: str, files: dict[str, Path], quick: bool) -> OwnTraces:
    """The traces of a system: of the .npz file with its name, or of the test bed."""
    return from_file(files[system], quick) if system in files else from_test_bed(system, quick)


# Kinds of formulae: random ones, as `rv.random_formulae` draws them; rewritten ones, three times as
# large: members of families, of which a quarter began as requirements; and requirements as they are.
ALONE = (1.0, 0.0, 0.0, 0.0)
KINDS: dict[str, dict[str, Any]] = {
    "random": {"shares": ALONE},
    "rewritten": {"requirements": 0.25},
    "requirements": {"shares": ALONE, "requirements": 1.0, "bands": 0.1},
}
TRACE_KINDS = ("training traces", "held-out traces")
ERRORS = {  # heads of columns, and the figures of `Judge.measure` below them
    f"{kind}: {words}": f"{kind}, {figure}"
    for kind in KINDS
    for words, figure in (
        ("directions", "directions, training traces"),
        ("held out", "directions, held-out traces"),
        ("vectors", "vectors, training traces"),
    )
}


def unseen(own: OwnTraces, count: int, **kind: Any) -> Programs:
    """Formulae of the test split over the system's channels; on long traces half of them stretched."""
    recipe = Recipe(seed=SEED, family_size=1, channels=own.values.shape[1], **kind)
    drawn = draw_families(recipe, find_families(recipe, 0, count, "test")).programs
    points = own.values.shape[2]
    if points > DRAWN:
        drawn = drawn.stretched(np.arange(count) % 2 == 1, points / DRAWN)
    return drawn


class Judge:
    """The exact kernels of a system, and what vectors say beside them."""

    def __init__(self, own: OwnTraces, count: int, device: str):
        kernels = own.judges(0.2, device)
        self.programs = {name: unseen(own, count, **kind) for name, kind in KINDS.items()}
        self.grams = {
            (name, traces): kernels[traces].gram(programs.unpack())
            for name, programs in self.programs.items()
            for traces in TRACE_KINDS
        }

    def scale(self) -> dict[str, float]:
        """For each kind: the mean kernel, how far the two exact ones are apart, the mean size."""
        out = {}
        for name, programs in self.programs.items():
            training, held_out = (self.grams[name, traces] for traces in TRACE_KINDS)
            out[f"{name}, apart"] = mean_error(training, held_out)
            out[f"{name}, mean"] = float(training.mean())
            out[f"{name}, nodes"] = float(np.diff(programs.offsets).mean())
        return out

    def measure(self, embed: Callable[[Programs, Any], np.ndarray]) -> dict[str, float]:
        out = {}
        for name, programs in self.programs.items():
            for kind, words in (("cosine", "directions"), ("kernel", "vectors")):
                rows = embed(programs, kind)
                found = rows @ rows.T
                if kind == "cosine":
                    found = kernel_of_cosine(found, 0.2)
                for traces in TRACE_KINDS:
                    out[f"{name}, {words}, {traces}"] = mean_error(self.grams[name, traces], found)
                exact = self.grams[name, "training traces"]
                out[f"{name}, {words}, alignment"] = alignment(exact, found)
        return out


def trained(
    own: OwnTraces, recipe: str, steps: int, device: str, changes: dict[str, Any]
) -> tuple[Any, distill.Config, dict[str, Any]]:
    """The encoder, its configuration, and facts about the run."""
    begun = time.perf_counter()
    config = own.configured(
        preset(distill.PRESETS, recipe, steps=steps, validate=steps, device=device,
               every=max(1, steps // 10), **changes)
    )  # fmt: skip
    folder = Path(tempfile.mkdtemp())
    try:
        encoder = distill.train(config, folder, kernel=own.kernel(config))
        log = read_log(folder)
        first, last = log[0], log[-2]
        pace = (last["seconds"] - first["seconds"]) / max(last["step"] - first["step"], 1)
        facts = {
            "steps": steps, "ms_per_step": 1000 * pace, "training_seconds": pace * steps,
            "wall_seconds": time.perf_counter() - begun, "corpus": config.corpus, **changes,
        }  # fmt: skip
        return encoder, config, facts
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        torch._dynamo.reset()  # a function is compiled only so many times in a process


def with_curve(names: Iterable[str]) -> list[str]:
    """The systems that are trained on for several times."""
    return [name for name in names if name not in DECODED]


def plan(names: list[str], seconds: list[int]) -> Iterator[tuple[str, str, int]]:
    """(system, start, seconds): the shorter times of all curves, then system by system."""
    short, *others, long = sorted(seconds)
    curves = with_curve(names)
    for name in curves:
        yield from ((name, "shipped", s) for s in (short, *others))
    for name in names:
        if name in curves:
            yield name, "shipped", long
        else:
            yield name, "shipped", middle(seconds)
            yield name, "decoder", DECODER_SECONDS
        if name in curves[:1]:
            yield from ((name, "random", s) for s in others)
    yield from ((curve, "decoder", DECODER_SECONDS) for curve in curves[:1])


def middle(seconds: list[int]) -> int:
    """How long the encoders of systems that are decoded in are trained."""
    return sorted(seconds)[len(seconds) // 2]


def decoded(
    model: Path, recipe: str, seconds: float, device: str, known_pace: float | None
) -> dict[str, Any]:
    """Facts about the training of a decoder for a model, whose folder gets the decoder.

    seconds: of adapt; the others take the steps of their preset.
    known_pace: milliseconds per step, if a decoder has been trained before.
    """
    begun = time.perf_counter()
    changes: dict[str, Any] = {
        "device": device, "model": str(model), "dimension": load(model).dimension,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:

        def run(steps: int, part: str) -> tuple[Path, invert.Config, Any, float]:
            often = {"validate": steps, "every": max(1, steps // 10)}
            config = preset(invert.PRESETS, recipe, steps=steps, **often, **changes)
            trained = invert.train(config, Path(folder) / part)
            torch._dynamo.reset()
            log = read_log(Path(folder) / part)
            pace = (log[-2]["seconds"] - log[0]["seconds"]) / max(
                log[-2]["step"] - log[0]["step"], 1
            )
            return Path(folder) / part, config, trained, pace

        steps = 4 if recipe == "tiny" else invert.PRESETS[recipe].steps
        if recipe == "adapt":
            pace = known_pace or 1000 * run(PROBE, "probe")[3]
            steps = int(1000 * seconds / pace)
        place, config, decoder, pace = run(steps, "run")
        figures = publish_decoder(place, config, decoder, shown=16 if recipe == "tiny" else 256)
        shutil.copytree(place / "model", model, dirs_exist_ok=True)
        return {
            "steps": steps, "ms_per_step": 1000 * pace, "training_seconds": pace * steps,
            "wall_seconds": time.perf_counter() - begun, "figures": figures,
        }  # fmt: skip


def page(record: dict[str, Any]) -> str:
    heads = ("system", "start", "training s", "steps", "wall s", *ERRORS)
    body = []
    for row in record["rows"]:
        if row["start"] == "decoder" and "error" not in row:
            continue
        if "error" in row:
            body.append(
                [row["system"], row["start"], "failed: " + row["error"], *[""] * (2 + len(ERRORS))]
            )
            continue
        numbers = [f"{row[c]:.4f}" if c in row else "–" for c in ERRORS.values()]
        shown = ("training_seconds", "steps", "wall_seconds")
        facts = [f"{row[c]:,.0f}" if c in row else "–" for c in shown]
        body.append([row["system"], row["start"], *facts, *numbers])
    scale = [
        [
            name, f"{s['traces']} + {s['held_out']}", f"{s['channels']} x {s['points']}",
            *(f"{s[f'{kind}, nodes']:.1f}, {s[f'{kind}, mean']:.3f}, {s[f'{kind}, apart']:.4f}"
              for kind in KINDS),
        ]
        for name, s in record["systems"].items()
    ]  # fmt: skip
    return "\n".join([
        "# Distilling your own traces", "",
        head(record), "",
        f"Mean absolute error of the kernel over all pairs of {record['formulae']} formulae of the test "
        "split: random ones, as `rv.random_formulae` draws them; rewritten ones, three times as large, "
        "a quarter of which began as requirements; and requirements, drawn as engineers write them. "
        "Directions and vectors are compared with the kernel on the training traces; held out: "
        "directions, with the kernel on other traces. Wall seconds include compiling, the head and the "
        "validation at the end; training seconds are steps times the pace.", "",
        *table(heads, body), "",
        "For scale, for each kind: nodes of a formula, the mean of the kernel, and how far the "
        "exact kernels on training and on held-out traces are apart. For the test bed the held-out "
        "traces have other inputs, so that is no noise.", "",
        *table(("system", "traces + held out", "channels x points", *KINDS), scale),
        "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--npz", type=Path, nargs="*", default=[])
    parser.add_argument("--seconds", type=int, nargs="*", default=[40, 100, 300])
    parser.add_argument("--recipe", choices=("adapt", "adapt-cpu"), default="adapt")
    parser.add_argument("--only", nargs="*", help="systems, in this order; by default all")
    parser.add_argument("--budget", type=float, default=1500.0)
    parser.add_argument("--keep", type=Path, help="folder for the models")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    began = time.perf_counter()
    count = 300 if options.quick else UNSEEN
    given = command()
    for path in (*options.npz, options.out, options.keep):
        given = given.replace(str(path), path.name) if path else given
    name = f"distill-{'quick' if options.quick else options.device.partition(':')[0]}"
    before = options.out / f"{name}.json"
    record: dict[str, Any] = {
        "command": given, "seed": SEED, "machine": machine.facts(options.device),
        "formulae": count, "systems": {}, "rows": [],
    }  # fmt: skip
    if before.exists():
        found = json.loads(before.read_text())
        record["systems"] = found["systems"]
        record["rows"] = [
            r for r in found["rows"]
            if r["start"] == "decoder" or r.keys() >= set(ERRORS.values())
        ]  # fmt: skip
    timed = options.recipe == "adapt"  # else rows are of a number of steps
    asked = "asked_seconds" if timed else "asked_steps"
    done = {(r["system"], r["start"], r.get(asked)) for r in record["rows"]}

    def add(row: dict[str, Any]) -> None:
        record["rows"].append(row)
        save(name, record, page(record), options.out)
        print(json.dumps(row), f"after {time.perf_counter() - began:.0f} s", flush=True)

    files = {path.stem: path for path in options.npz}
    names = [*files, EIGHT, *DECODED]
    if unknown := set(options.only or ()) - set(names):
        parser.error(f"--only: there is no system {min(unknown)!r}; there are {', '.join(names)}")
    chosen = options.only or (names if timed else with_curve(names))
    owns = {name: own_traces(name, files, options.quick) for name in chosen}
    judges: dict[str, Judge] = {}
    shipped = load(device=options.device)
    for system, own in owns.items():
        judges[system] = Judge(own, count, options.device)
        n, channels, points = own.values.shape
        record["systems"][system] = {
            "traces": n, "held_out": len(own.held_out), "channels": channels, "points": points,
            **judges[system].scale(),
        }  # fmt: skip

        def as_is(programs: Programs, kind: Any) -> np.ndarray:
            return shipped.embed(programs, kind=kind, warn=False)

        if (system, "shipped", None) not in done:
            add({"system": system, "start": "shipped", **judges[system].measure(as_is)})
    pace = {
        "decoder" if r["start"] == "decoder" else r["system"]: r["ms_per_step"]
        for r in record["rows"] if "ms_per_step" in r and r["start"] != "random"
    }  # fmt: skip
    wanted = list(plan(list(owns), options.seconds))
    kept = {(name, "shipped", middle(options.seconds)) for name in DECODED}  # which get a decoder
    kept.add((next(iter(owns)), "shipped", max(options.seconds)))
    if not timed:
        steps = distill.PRESETS[options.recipe].steps
        wanted = [(system, "shipped", steps) for system in owns]
        kept = set(wanted)
        wanted.append((next(iter(owns)), "random", steps))
        if options.keep:
            decoder_steps = invert.PRESETS[options.recipe].steps
            wanted += [(system, "decoder", decoder_steps) for system in owns]
    for system, start, amount in wanted:
        if (system, start, amount) in done:
            continue
        model = options.keep and options.keep / system
        if start == "decoder" and not (model and model.exists()):
            print(f"{system}, decoder: left out, as there is no model in --keep", flush=True)
            continue
        changes: dict[str, Any] = {}
        if timed:
            changes |= LONG if amount == max(options.seconds) else SHORT
        if start == "random":
            changes |= {"origin": "", "lr": 2e-3}
        if options.quick:
            changes |= {**SMALL, "origin": "", "workers": 1}
        left = options.budget - (time.perf_counter() - began)
        setup = "decoder" if start == "decoder" else "encoder" if system in pace else "first"
        if not options.quick and left < (amount + SETUP[setup] if timed else 0):
            print(f"{system}, {start}, {amount}: left out, {left:.0f} s are left", flush=True)
            continue
        try:
            own = owns[system]
            if start == "decoder":
                assert model
                kind = "tiny" if options.quick else options.recipe
                facts = decoded(model, kind, amount, options.device, pace.get("decoder"))
                pace["decoder"] = facts["ms_per_step"]
                add({"system": system, "start": start, asked: amount, **facts})
                continue
            if options.quick:
                steps = 4
            elif not timed:
                steps = amount
            else:
                if system not in pace:
                    pace[system] = trained(own, "adapt", PROBE, options.device, changes)[2][
                        "ms_per_step"
                    ]
                steps = int(1000 * amount / pace[system])
            encoder, config, facts = trained(own, options.recipe, steps, options.device, changes)
            whole = {k: p.detach().clone() for k, p in encoder.state_dict().items()}
            round_weights(encoder)  # as they are stored

            def embed(programs: Programs, kind: Any, encoder: Any = encoder) -> np.ndarray:
                return distill.embed(encoder, programs, kind=kind).cpu().numpy()

            found = judges[system].measure(embed)
            add({"system": system, "start": start, asked: amount, **facts, **found})
            if model and (system, start, amount) in kept:
                encoder.load_state_dict(whole)
                with tempfile.TemporaryDirectory() as folder:
                    publish_encoder(Path(folder), config, encoder, families=24, own=own)
                    shutil.copytree(Path(folder) / "model", model, dirs_exist_ok=True)
        except Exception as error:  # the other rows are still worth having
            traceback.print_exc()
            add({"system": system, "start": start, asked: amount, "error": repr(error)})


if __name__ == "__main__":
    main()
