"""Models that were distilled from traces: how exact they are, and what their decoders answer.

    python benchmarks/distilled.py models/naval models/unicycle-like --npz naval.npz

Models as `benchmarks/distill.py --keep` leaves them, named after the system of the test bed, or after
the .npz file, that they were distilled from. On any machine: the error of the kernel, as distill.py
measures it, of the stored model; then formulae from vectors, as space.py judges them, by the cosine of
robustness on held-out traces, beside the answers of the exact space of these traces and of the shipped
decoder. Writes results/distilled.json and .md; systems that are there and not given stay.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import rhovec as rv
from common import RESULTS, command, head, save, table
from distill import ERRORS, SEED, SYSTEMS, TRACES, UNSEEN, Judge, own_traces
from rhovec import machine
from rhovec.formula.programs import Programs
from rhovec.training.own import OwnTraces
from space import Case, from_bed, judged, published, published_table, quartiles, shipped_answers
from space import unseen as requested

ANSWERED = 300  # vectors that are decoded


def case_of(system: str, own: OwnTraces) -> Case:
    """The traces that a model was distilled from, and others, in their own units."""
    if system in SYSTEMS:
        return from_bed(system, TRACES, 0)
    mean, std = (np.array([[getattr(c, k)] for c in own.schema.channels]) for k in ("mean", "std"))
    fit, held_out = (each * std + mean for each in (own.values, own.held_out))
    names = tuple(c.variables[0] for c in own.schema.channels)
    return Case(system, names, {"dt": own.schema.dt}, fit, held_out, None, {})


def errors(own: OwnTraces, model: rv.Model, count: int) -> dict[str, float]:
    """Errors of the stored model against the exact kernels."""

    def embed(programs: Programs, kind: Any) -> np.ndarray:
        assert model.schema
        lifted = [model.schema.lift(phi) for phi in programs.unpack()]
        return model.embed(lifted, kind=kind, warn=False)

    return Judge(own, count, "cpu").measure(embed)


def answers(case: Case, model: rv.Model, count: int) -> dict[str, Any]:
    """Formulae that the model's decoder, the exact space and the shipped decoder answer, judged."""
    space = rv.Space.fit(case.fit, case.variables, **case.options)
    requests = requested(space, count, SEED)
    ways: dict[str, Any] = {"distilled decoder": model, "exact space": space}
    rows = []
    for way, decoder in ways.items():
        vectors = decoder.embed(requests, warn=False)
        begun = time.perf_counter()
        found = [group[0] for group in decoder.decode(vectors, k=1)]
        seconds = time.perf_counter() - begun
        rows.append({
            "way": way, "seconds per 100": 100 * seconds / count, **judged(case, space, requests, found),
        })  # fmt: skip
    shipped = shipped_answers(space, requests)
    if shipped:
        rows.append({"way": "shipped decoder", **judged(case, space, requests, shipped)})
    size = float(np.median([phi.size for phi in requests]))
    return {"n": count, "nodes": size, "ways": rows, "published": published(case, space, model)}


def trained(model: rv.Model) -> str:
    """How long, and on what."""
    runs = [model.config["training"], model.config["decoder"]["training"]]
    steps = ", ".join(f"{run['steps']:,}" for run in runs)
    where = runs[0].get("gpu") or f"{runs[0]['cores']} cores"
    return f"{steps} on {where}"


def page(cases: dict[str, dict[str, Any]]) -> str:
    exact = [
        [name, case["trained"], *(f"{case['errors'][figure]:.4f}" for figure in ERRORS.values())]
        for name, case in cases.items()
    ]
    decoded = [
        [
            name, one["way"], str(case["answers"]["n"]),
            *(quartiles(one.get(k)) for k in ("held out", "other inputs", "fit")),
            f"{case['answers']['nodes']:g}, {one['nodes']:g}",
            f"{one['seconds per 100']:.1f}" if "seconds per 100" in one else "",
        ]
        for name, case in cases.items()
        for one in case["answers"]["ways"]
    ]  # fmt: skip
    lines = [
        "# Models distilled from traces", "", *dict.fromkeys(head(case) for case in cases.values()), "",
        "Models that [distill-cuda.md](distill-cuda.md) and [distill-cpu.md](distill-cpu.md) kept, read "
        "from their folders. Steps: of the encoder, of the decoder. Mean absolute error of the kernel "
        f"over all pairs of {UNSEEN} formulae of the test split, as there.", "",
        *table(("system", "steps", *ERRORS), exact),
        "", "## From vectors to formulae", "",
        "Cosine of robustness of formula and answer: median, quartiles in brackets; none left out. "
        "Other inputs: traces of a class of inputs that was not trained on.",
        "", *table(("system", "way", "n", "held out", "other inputs", "same traces", "nodes, in and out",
                    "seconds per 100"), decoded),
    ]  # fmt: skip
    for name, case in cases.items():
        if case["answers"]["published"]:
            lines += ["", f"## Published requirements, {name}, distilled decoder", "",
                      *published_table(case["answers"]["published"])]  # fmt: skip
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="folders of models")
    parser.add_argument("--npz", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    given = command()
    for path in options.npz:
        given = given.replace(str(path), path.name)
    for path in options.models:
        given = given.replace(str(path), f"models/{path.name}")
    before = options.out / "distilled.json"
    cases = json.loads(before.read_text())["cases"] if before.exists() else {}
    files = {path.stem: path for path in options.npz}
    for folder in options.models:
        own, model = own_traces(folder.name, files, options.quick), rv.load(folder)
        cases[folder.name] = {
            "command": given, "seed": SEED, "machine": machine.facts(), "trained": trained(model),
            "errors": errors(own, model, 300 if options.quick else UNSEEN),
            "answers": answers(case_of(folder.name, own), model, 8 if options.quick else ANSWERED),
        }  # fmt: skip
        save("distilled", {"cases": cases}, page(cases), options.out)


if __name__ == "__main__":
    main()
