"""Decoders that differ in the vectors they read and the tokens they write, trained and measured.

    python -m reproduction decoders --device cuda -F FILE.csv              all four
    python -m reproduction decoders --device cuda --only text-neural --text-steps 32000
    python -m reproduction decoders --tiny --steps 20 --text-steps 20 --n 40 --traces 1000 --out FOLDER

Requests are vectors of formulae, made by the run's own source of vectors. Answers are greedy, and judged
by their robustness. Each run is recorded as OUT/NAME.json without the weights. Given the same command
again, finished runs are passed over and an interrupted one goes on.
"""

from __future__ import annotations

import datetime
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

import rhovec as rv
from rhovec import machine
from rhovec.errors import RhovecError
from rhovec.evaluation.reconstruction import reconstruction, spread
from rhovec.evaluation.sets import digest, formulae_of, mixture
from rhovec.formula import Formula
from rhovec.formula.programs import Programs
from rhovec.models import store
from rhovec.models.decoder import Decoder
from rhovec.models.model import DEFAULT
from rhovec.training.invert import PRESETS, Config, greedy, readable, train
from rhovec.training.records import environment, read_log
from rhovec.training.vectors import vector_source

from .ablations import forget, planned
from .records import Run, write_run

BLOCK = 128  # requests answered at once
FEW = {"shown": 16}  # the paper's decoder is slow, the more so before it learns to stop
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {  # words, preset, changed fields
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


@dataclass(frozen=True)
class Options:
    """What is asked for. n: requests per set; traces and seed: those that answers are judged on."""

    device: str = "cpu"
    steps: int = 4000  # of decoders that write prefix tokens
    text_steps: int = 2500  # of decoders that write text
    model: Path | None = None  # folder of the encoder (default: the shipped one)
    files: tuple[Path, ...] = ()  # further requests
    n: int = 500
    traces: int = 4000
    seed: int = 1
    tiny: bool = False


class Requests(NamedTuple):
    name: str
    sha256: str  # of the file, or of the texts, one per line
    formulae: list[Formula]


def requests(path: Path | None, n: int) -> Requests:
    """n formulae of the test split, or of a file, spread over all of it."""
    formulae, sha256 = formulae_of(path) if path else (mixture(n), "")
    formulae = formulae[:: max(1, len(formulae) // n)][:n]
    name = path.name if path else "held-out families and seeds of the corpus, over x_0 ... x_2"
    for phi in formulae:
        if readable(phi, PRESETS["text"].channels) is None:
            raise RhovecError(f"{name}: requests must be over x_0 ... x_2, unlike {phi}")
    return Requests(name, sha256 or digest(formulae), formulae)


# -- one run ---------------------------------------------------------------------------------------


def answers(decoder: Decoder, vectors: torch.Tensor) -> list[Formula | None]:
    """Greedy answers; on a GPU with products in TF32, which is more precise than training was."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        parts = [vectors[i : i + BLOCK] for i in range(0, len(vectors), BLOCK)]
        found = [phi for part in parts for phi in greedy(decoder, part)]
    finally:
        torch.set_float32_matmul_precision(precision)
    return [readable(phi, MEASURE.n_variables) for phi in found]


def command(name: str, config: Config, given: Options) -> str:
    """Command that trains and measures one run again."""
    steps = "--text-steps" if config.tokens == "text" else "--steps"
    options = {
        "--only": name, "--device": config.device, steps: config.steps, "--n": given.n,
        "--traces": given.traces, "--seed": given.seed,
    }  # fmt: skip
    words = ["python", "-m", "reproduction", "decoders"]
    words += [str(word) for option in options.items() for word in option]
    words += ["--model", given.model.name] if given.model else []
    words += [word for path in given.files for word in ("-F", path.name)]
    return shlex.join([*words, *["--tiny"] * given.tiny])


def record(
    folder: Path, name: str, config: Config, sets: Sequence[Requests], given: Options
) -> Run:
    """Train a run, or go on with it, in its folder, and measure it."""
    source = vector_source(config)
    # Before the training, so that a request without a vector is reported now.
    vectors = [source.embed(Programs.pack(one.formulae)) for one in sets]
    del source
    decoder = train(config, folder)
    text, log = command(name, config, given), read_log(folder)
    facts = {
        "run": name, "words": RUNS[name][0], "vectors": config.vectors, "tokens": config.tokens,
        "steps": config.steps, "batch": config.batch, "seconds": log[-1]["seconds"],
        "parameters": sum(p.numel() for p in decoder.parameters()),
        "machine": machine.describe(config.device), "command": text,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
    }  # fmt: skip
    if config.vectors == "neural":
        about, _ = store.read(config.model or DEFAULT)
        facts["model"] = about["sha256"][store.WEIGHTS][:12]
    rows = []
    for asked, those in zip(sets, vectors, strict=True):
        found = reconstruction(
            asked.formulae, answers(decoder, those), MEASURE, given.traces, given.seed
        )
        where = {"set": asked.name, "sha256": asked.sha256, "requests": len(asked.formulae)}
        rows += [row | where | facts for row in found]
        print(f"  {asked.name}: cosine {spread(found[0])}", flush=True)
    return Run(asdict(config), environment(config.device) | {"command": text}, log, rows)


def train_decoders(folder: Path, runs: Path, chosen: Sequence[str], given: Options) -> None:
    """Train each run that has no record yet in `folder`; `runs` holds the one that is in progress."""
    sets = [requests(path, given.n) for path in (None, *given.files)]
    encoder = store.read(given.model or DEFAULT)[0]["encoder"]
    common = {"device": given.device, "dimension": encoder["dimension"]}
    common |= {"model": str(given.model or "")} | (TINY if given.tiny else {})
    for i, name in enumerate(chosen, 1):
        if (folder / f"{name}.json").exists():
            continue
        began = time.perf_counter()
        forget()
        _, preset, changes = RUNS[name]
        config = replace(PRESETS[preset], **changes | common)
        steps = given.text_steps if config.tokens == "text" else given.steps
        config = planned(runs / name, config, steps)
        print(f"{i}/{len(chosen)} {name}: {config.steps} steps", flush=True)
        write_run(folder / f"{name}.json", record(runs / name, name, config, sets, given))
        shutil.rmtree(runs / name)
        print(f"  {time.perf_counter() - began:.0f} s in all", flush=True)
