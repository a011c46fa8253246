"""Decoders that differ in their vectors and tokens, trained for so many steps each, and measured.

    python benchmarks/decoders.py --device cuda -F FILE.csv              all four
    python benchmarks/decoders.py --device cuda --only text-neural --text-steps 32000
    python benchmarks/decoders.py --tiny --steps 20 --text-steps 20 --n 40 --signals 1000 --out FOLDER

Requests are vectors of formulae by the run's own source, answers are greedy and judged by robustness as
in benchmarks/decoding.py. Each run leaves a record in OUT/NAME: configuration, environment, log, curves
and rows, but no weights. What is finished is passed over and what was cut short goes on if the same
command is given again. OUT/README.md has the tables.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import hashlib
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

import rhovec as rv
from comparison import planned, remove_weights
from decoding import PAPER, constant_sign, spread
from embedding import test_formulae
from kernel import read_formulae
from rhovec.cli.evaluate import machine
from rhovec.evaluation.reconstruction import reconstruction
from rhovec.evaluation.report import plain
from rhovec.files import write_file
from rhovec.formula import Formula
from rhovec.formula.programs import Programs
from rhovec.models import store
from rhovec.models.decoder import Decoder
from rhovec.models.model import DEFAULT
from rhovec.training.invert import PRESETS, Config, greedy, readable, train, vector_source
from rhovec.training.records import environment, read_log, write_json

RESULTS = Path(__file__).parents[1] / "results" / "decoders"
BLOCK = 128  # requests answered at once
FEW = {"shown": 16}  # the paper's decoder is slow, and slowest while it does not know how to end
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {  # in words, its preset, what it changes
    "prefix-neural": ("our decoder, the encoder's vectors", "default", {}),
    "prefix-anchors": ("our decoder, kernel values to anchors", "anchors", {}),
    "text-neural": ("the paper's text decoder, the encoder's vectors", "text", FEW),
    "text-anchors": (
        "the paper's text decoder, kernel values to anchors", "text", FEW | {"vectors": "anchors"}
    ),
}  # fmt: skip
TINY = {
    name: getattr(PRESETS["tiny"], name) for name in ("batch", "width", "layers", "heads", "workers")
} | {"shown": 4}  # fmt: skip
MEASURE = rv.BaseMeasure(n_variables=PRESETS["default"].channels, points=PRESETS["default"].points)


class Requests(NamedTuple):
    name: str
    sha256: str  # of the file, or of the texts, one a line
    formulae: list[Formula]


def requests(path: Path | None, n: int) -> Requests:
    """n formulae of the corpus' test split, or of a file, from all over it."""
    texts = read_formulae(path) if path else test_formulae(n, seed=0)
    texts = texts[:: max(1, len(texts) // n)][:n]
    data = path.read_bytes() if path else "".join(f"{text}\n" for text in texts).encode()
    name = path.name if path else "held-out families and seeds of the corpus, over x_0 ... x_2"
    formulae = [rv.parse(text) for text in texts]
    for phi in formulae:
        if readable(phi, PRESETS["text"].channels) is None:
            sys.exit(f"{name}: requests are over x_0 ... x_2, which all runs know, not {phi}")
    return Requests(name, hashlib.sha256(data).hexdigest(), formulae)


# -- one run ---------------------------------------------------------------------------------------


def answers(decoder: Decoder, vectors: torch.Tensor) -> list[Formula | None]:
    """Written greedily; on a GPU with products in TF32, which has more digits than training had."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        parts = [vectors[i : i + BLOCK] for i in range(0, len(vectors), BLOCK)]
        found = [phi for part in parts for phi in greedy(decoder, part)]
    finally:
        torch.set_float32_matmul_precision(precision)
    return [readable(phi, MEASURE.n_variables) for phi in found]


def command(name: str, config: Config, given: argparse.Namespace) -> str:
    """What trains and measures one run again."""
    steps = "--text-steps" if config.tokens == "text" else "--steps"
    options = {
        "--only": name, "--device": config.device, steps: config.steps, "--n": given.n,
        "--signals": given.signals, "--seed": given.seed,
    }  # fmt: skip
    words = ["python", "benchmarks/decoders.py", *(str(w) for o in options.items() for w in o)]
    words += ["--model", given.model.name] if given.model else []
    words += [word for path in given.formulae for word in ("-F", path.name)]
    return shlex.join([*words, *["--tiny"] * given.tiny])


def record(
    place: Path, name: str, config: Config, sets: Sequence[Requests], given: argparse.Namespace
) -> None:
    """Train, or go on with, a run, and leave its record."""
    source = vector_source(config)
    # Before the training, so that a request that has no vector is told now.
    vectors = [source.embed(Programs.pack(one.formulae)) for one in sets]
    del source
    decoder = train(config, place)
    text = command(name, config, given)
    facts = {
        "run": name, "vectors": config.vectors, "tokens": config.tokens, "steps": config.steps,
        "batch": config.batch, "parameters": sum(p.numel() for p in decoder.parameters()),
        "seconds": read_log(place)[-1]["seconds"], "machine": machine(config.device),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"), "command": text,
    }  # fmt: skip
    if config.vectors == "neural":
        about, _ = store.read(config.model or DEFAULT)
        facts["model"] = about["sha256"][store.WEIGHTS][:12]
    rows = []
    for asked, those in zip(sets, vectors, strict=True):
        found = reconstruction(
            asked.formulae, answers(decoder, those), MEASURE, given.signals, given.seed
        )
        where = {"set": asked.name, "sha256": asked.sha256, "requests": len(asked.formulae)}
        rows += [row | where | facts for row in found]
        print(f"  {asked.name}: cosine {spread(found[0])}", flush=True)
    write_json(place / "environment.json", environment(config.device) | {"command": text})
    write_json(place / "evaluation.json", rows)


def compare(chosen: Sequence[str], given: argparse.Namespace) -> None:
    """Make each run that is not finished, and write the tables anew after each."""
    sets = [requests(path, given.n) for path in (None, *given.formulae)]
    encoder = store.read(given.model or DEFAULT)[0]["encoder"]
    common = {"device": given.device, "dimension": encoder["dimension"]}
    common |= {"model": str(given.model or "")} | (TINY if given.tiny else {})
    for i, name in enumerate(chosen, 1):
        place = given.out / name
        if not (place / "evaluation.json").exists():
            began = time.perf_counter()
            torch.compiler.reset()  # it compiles for so many shapes, then gives up
            gc.collect()  # what the run before held on the device
            _, preset, changes = RUNS[name]
            config = replace(PRESETS[preset], **changes | common)
            steps = given.text_steps if config.tokens == "text" else given.steps
            config = planned(place, config, steps)
            print(f"{i}/{len(chosen)} {name}: {config.steps} steps", flush=True)
            record(place, name, config, sets, given)
            write_file(given.out / "README.md", tables(given.out).encode())
            print(f"  {time.perf_counter() - began:.0f} s in all", flush=True)
        remove_weights(place)


# -- the tables ------------------------------------------------------------------------------------


def tables(folder: Path) -> str:
    """README.md: a table a set, and the command of each run, of all that are finished."""
    found = {
        name: json.loads(path.read_text())
        for name in RUNS
        if (path := folder / name / "evaluation.json").exists()
    }
    rows = [row for part in found.values() for row in part]
    sets = dict.fromkeys((row["set"], row["requests"], row["sha256"]) for row in rows)
    models = sorted({row["model"] for row in rows if "model" in row})
    out = [
        "# Decoders compared", "",
        "Decoders from random weights, each trained once, on the vectors of a frozen encoder"
        + f" ({', '.join(models)})" * bool(models) + " or on exact kernel values to fixed anchors. "
        "Ours writes prefix tokens held to the grammar, and learns simplest forms; the paper's writes "
        "text, and learns the corpus as it is. The paper trains its decoder for five epochs, about "
        "32,000 steps of 512 formulae; here each run has the steps that the table says, with a schedule "
        "that ends with them. Answers are greedy, without verification; none is left out, and what is "
        f"no formula has cosine 0. Cosine and correlation of robustness vectors on "
        f"{rows[0]['n_signals']} fresh signals (seed {rows[0]['signals_seed']}): medians with 95 % "
        "intervals over the requests, quartiles in brackets. Seconds are those of training, compiling "
        "included. The weights were not kept.",
    ]  # fmt: skip
    heads = ("run", "parameters", "steps", "batch", "seconds", "cosine", "centred correlation", "valid",
             "nodes, in and out")  # fmt: skip
    for where, n, digest in sets:
        out += ["", f"**{where}**: {n} requests, SHA-256 {digest}", ""]
        out += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        out.append(f"| the paper's, 453 of 3000 left out | | | | | {PAPER} | | 84.9 % | |")
        for name, part in found.items():
            chosen = [row for row in part if (row["requests"], row["sha256"]) == (n, digest)]
            here = {row["measure"]: row for row in chosen}
            if not here:
                continue
            r = here["cosine"]
            nodes = [here[m] for m in ("nodes of the formula", "nodes of the answer") if m in here]
            cells = [
                f"[{RUNS[name][0]}]({name}/)", f"{r['parameters'] / 1e6:.1f} M", plain(r["steps"]),
                plain(r["batch"]), f"{r['seconds']:.0f}", spread(r), spread(here["centred correlation"]),
                f"{here['valid']['value']:.1%}", ", ".join(f"{row['value']:g}" for row in nodes),
            ]  # fmt: skip
            out.append(f"| {' | '.join(cells)} |")
            baseline = constant_sign(here)
        out += ["", baseline]
    out += ["", "## Commands", ""]
    for name, (row, *_) in found.items():
        out.append(f"- {name}, {row['date']}, {row['machine']}: `{row['command']}`")
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Decoders compared.")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--steps", type=int, default=4000, help="of the runs with prefix tokens")
    parser.add_argument("--text-steps", type=int, default=2500, help="of the runs with text")
    parser.add_argument("--only", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument(
        "--model", type=Path, help="the encoder's folder (default: the shipped one)"
    )
    parser.add_argument("-F", "--formulae", action="append", type=Path, default=[],
                        help="requests of one's own, too; may be repeated")  # fmt: skip
    parser.add_argument("--n", type=int, default=500, help="requests a set")
    parser.add_argument("--signals", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1, help="of the signals")
    parser.add_argument("--tiny", action="store_true", help="small decoders")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder")
    given = parser.parse_args()
    for name in given.only or ():
        if name not in RUNS:
            parser.error(f"there is no run {name}; runs are {', '.join(RUNS)}")
    if given.signals < 1000:
        parser.error("answers are judged on 1000 signals or more")
    compare(list(dict.fromkeys(given.only or RUNS)), given)


if __name__ == "__main__":
    main()
