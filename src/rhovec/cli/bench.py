"""`rhovec bench`: how fast this machine does what rhovec is for, and what the speed of vectors costs.

The work is the same everywhere: random formulae, parsed before, and traces of the model's measure, both
drawn from a seed. Each job runs once to warm up, then three times; the median counts. A second table has
the errors of vectors beside their speed, from texts of held-out formulae: encoders against exact
signatures, as benchmarks/embedding.py --curve in a checkout does it for the documentation. Benchmarks
against other libraries are in benchmarks/, and the paper's own sizes in reproduction/.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import typer

from .inputs import load_model
from .output import console, progress_bar, write_jsonl
from .shared import Device, JsonLines, ModelPath

REPEATS = 3
DECODED = 10  # most vectors that are decoded
CURVE_TRACES = (512, 1024, 2048, 4096, 8192, 16_384)  # per signature


class Job(NamedTuple):
    name: str
    formulae: int
    run: Callable[[], object]


def bench(
    count: Annotated[int, typer.Option(min=2, help="Number of formulae.")] = 500,
    n_traces: Annotated[int, typer.Option(min=2, help="Number of traces.")] = 1000,
    model: ModelPath = None,
    device: Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of formulae and traces.")] = 0,
    as_json: JsonLines = False,
) -> None:
    """Time parsing, robustness, kernel, signatures, embedding and decoding on this machine, and show the
    errors of encoders and signatures beside their speed.

    rhovec bench

    rhovec bench --count 2000 --device cuda --json
    """
    from ..evaluation.speed import timed

    rows = []
    with progress_bar("measuring") as progress:
        for i, job in enumerate(chosen := list(jobs(count, n_traces, model, device, seed))):
            rows.append(row(job.name, job.formulae, timed(job.run, REPEATS)))
            progress((i + 1) / (2 * len(chosen)))
        noise, curved = curve(count, model, device, seed, lambda share: progress(0.5 + share / 2))
    if as_json:
        write_jsonl(sys.stdout, [*rows, *curved])
        return
    show(rows, curved, noise)


def row(name: str, count: int, found: dict[str, float]) -> dict[str, Any]:
    return {
        "job": name, "formulae": count, "seconds": found["s"], "fastest": found["s_min"],
        "slowest": found["s_max"], "formulae_per_second": count / found["s"],
    }  # fmt: skip


def curve(
    count: int,
    model: str | None,
    device: str | None,
    seed: int,
    progress: Callable[[float], object],
) -> tuple[float, list[dict[str, Any]]]:
    """Noise of the kernels that judge, and rows with errors."""
    from ..evaluation.sets import mixture
    from ..evaluation.speed import Curve
    from ..models.model import shipped

    texts = [str(phi) for phi in mixture(count, seed)]
    names = shipped() if model is None else [model]
    measured = Curve(names, texts, device, repeats=REPEATS, seed=seed)
    expected = 4 * len(names) + len(CURVE_TRACES)  # rows, if every model has both kinds
    rows = []
    for found in measured.rows(CURVE_TRACES):
        told = {"error": found["error"], "numbers": found["numbers"]}
        rows.append(row(f"vectors: {found['name']}", count, found) | told)
        progress(min(1.0, len(rows) / expected))
    progress(1.0)
    return measured.noise, rows


def jobs(
    count: int, n_traces: int, path: str | None, device: str | None, seed: int
) -> Iterator[Job]:
    import numpy as np

    from ..formula.reader import parse_programs
    from ..formula.sample import random_formulae
    from ..models import store
    from ..robustness import robustness

    model = load_model(path, device)
    kernel = model.kernel(n_traces, seed)
    texts = [str(phi) for phi in random_formulae(count, seed)]
    programs = parse_programs(texts)
    drawn = np.concatenate(list(kernel.measure.blocks(n_traces, seed)))
    on = f"{n_traces} traces"

    def value(trace: bool) -> object:
        return robustness(programs, drawn, variables=kernel.measure.variables, trace=trace)

    yield Job("parse", count, lambda: parse_programs(texts))
    yield Job(f"robustness at time 0, {on}", count, lambda: value(False))
    yield Job(f"robustness along the trace, {on}", count, lambda: value(True))
    yield Job(f"exact kernel of all pairs, {on}", count, lambda: kernel.gram(programs))
    yield Job(f"exact signatures, {on}", count, lambda: kernel.signatures(programs))
    yield Job("embed", count, lambda: model.embed(programs, warn=False))
    if model.folder is not None and store.read_decoder(model.folder):
        few = model.embed(programs.part(0, min(count, DECODED)), warn=False)
        for name, samples, refine in (("greedy", 0, False), ("verified", 16, True)):
            yield Job(
                f"decode, {name}", len(few),
                lambda samples=samples, refine=refine: model.decode(few, samples, refine),  # type: ignore[misc]
            )  # fmt: skip


def show(rows: list[dict[str, Any]], curved: list[dict[str, Any]], noise: float) -> None:
    from rich.table import Table

    from ..evaluation.speed import JUDGES

    table = Table("job", box=None)
    for name in ("formulae", "seconds", "fastest", "slowest", "formulae/s"):
        table.add_column(name, justify="right")
    for one in rows:
        times = (f"{one[name]:.4f}" for name in ("seconds", "fastest", "slowest"))
        rate = f"{one['formulae_per_second']:,.0f}"
        table.add_row(one["job"], str(one["formulae"]), *times, rate)
    vectors = Table("vectors, from texts", box=None)
    for name in ("error", "formulae/s", "numbers"):
        vectors.add_column(name, justify="right")
    for one in sorted(curved, key=lambda one: one["error"]):
        rate = f"{one['formulae_per_second']:,.0f}"
        name = one["job"].removeprefix("vectors: ")
        vectors.add_row(name, f"{one['error']:.4f}", rate, f"{one['numbers']:,}")
    out = console()
    for part in (table, "", vectors):
        out.print(part)
    out.print(
        f"error: mean absolute difference from the kernel on {2 * JUDGES:,} traces, whose own noise is "
        f"{noise:.4f}"
    )
