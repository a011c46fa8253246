"""`rhovec bench`: how fast this machine does what rhovec is for.

The work is the same everywhere: random formulae, parsed before, and traces of the model's measure, both
drawn from a seed. Each job runs once to warm up, then three times; the median counts. Benchmarks against
other libraries are in benchmarks/, and the paper's own sizes in reproduction/, of a checkout.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer

from ..errors import RhovecError
from .output import console
from .shared import Device, JsonLines, ModelPath, load_model, progress_bar

REPEATS = 3
DECODED = 10  # most vectors that are decoded


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
    """Time parsing, robustness, kernel, signatures, embedding and decoding on this machine.

    rhovec bench

    rhovec bench --count 2000 --device cuda --json
    """
    rows = []
    with progress_bar("measuring") as progress:
        for i, job in enumerate(chosen := list(jobs(count, n_traces, model, device, seed))):
            seconds = measured(job.run)
            rows.append({
                "job": job.name, "formulae": job.formulae, "seconds": statistics.median(seconds),
                "fastest": min(seconds), "slowest": max(seconds),
                "formulae_per_second": job.formulae / statistics.median(seconds),
            })  # fmt: skip
            progress((i + 1) / len(chosen))
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    show(rows)


def jobs(
    count: int, n_traces: int, path: str | None, device: str | None, seed: int
) -> Iterator[Job]:
    import numpy as np

    from ..formula.reader import parse_programs
    from ..formula.sample import random_formulae
    from ..models import store
    from ..models.heads import make_head
    from ..models.model import Directions, load
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
    if device is None and make_head(model.encoder).kind == "cosine":
        yield Job("embed, cosine", count, lambda: model.directions.embed(programs, warn=False))
        fast: Directions | None = None
        with suppress(RhovecError):  # a model of a shape that int8 does not take
            fast = load(path, precision="int8").directions
        if fast is not None:
            yield Job("embed, cosine, int8", count, partial(fast.embed, programs, warn=False))
    if model.folder is not None and store.read_decoder(model.folder):
        few = model.embed(programs.part(0, min(count, DECODED)), warn=False)
        for name, samples, refine in (("greedy", 0, False), ("verified", 16, True)):
            yield Job(
                f"decode, {name}", len(few),
                lambda samples=samples, refine=refine: model.decode(few, samples, refine),  # type: ignore[misc]
            )  # fmt: skip


def measured(run: Callable[[], object]) -> list[float]:
    run()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("job", box=None)
    for name in ("formulae", "seconds", "fastest", "slowest", "formulae/s"):
        table.add_column(name, justify="right")
    for row in rows:
        times = (f"{row[name]:.4f}" for name in ("seconds", "fastest", "slowest"))
        rate = f"{row['formulae_per_second']:,.0f}"
        table.add_row(row["job"], str(row["formulae"]), *times, rate)
    console().print(table)
