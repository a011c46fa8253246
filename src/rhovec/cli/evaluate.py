"""`rhovec evaluate`: how well a model, or vectors of any origin, reproduce the exact kernel.

The claims of the paper, with verdicts and records, are measured by `python -m reproduction` in a
checkout of the sources.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import RhovecError
from .inputs import load_model, read_vectors
from .output import cell, console, progress_bar, write_jsonl
from .shared import Device, JsonLines, ModelPath, formula_files, option

if TYPE_CHECKING:
    from ..evaluation.sets import FormulaSet
    from ..kernel import SampledKernel
    from ..models.model import Model

Files = Annotated[
    list[Path] | None,
    formula_files(
        "Measure on these formulae instead of the built-in sets: one per line, or the column "
        "`formula` of a .csv. May be repeated."
    ),
]
KernelPoints = Annotated[
    int | None,
    option(help="Points of the kernel's traces (default: as the model was trained for)."),
]
DrawSeed = Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")]

MEASURES = ("fidelity", "agreement", "outside", "reconstruction")
QUICK_TRACES = 2048  # traces of the kernel
FAMILIES, QUICK_FAMILIES = 512, 64  # for `outside`
DECODED, QUICK_DECODED = 200, 24  # formulae per set for `reconstruction`


def evaluate(
    measures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MEASURE",
            help="fidelity (all pairs of a set), agreement (pairs of one sort), outside (beyond the "
            "training range), reconstruction (of the decoder); default: fidelity and agreement.",
            show_default=False,
        ),
    ] = None,
    model: ModelPath = None,
    vectors: Annotated[
        Path | None,
        option(
            help="Measure the fidelity of these vectors instead of a model's: an .npy file of unit "
            "rows, one per formula of the -F file."
        ),
    ] = None,
    files: Files = None,
    points: KernelPoints = None,
    kind: Annotated[
        Literal["kernel", "cosine"],
        typer.Option(help="Vectors to measure: inner products are the similarity, or its cosine."),
    ] = "kernel",
    n_traces: Annotated[
        int | None,
        typer.Option(min=1, help="Traces of the kernel (default: 16384).", show_default=False),
    ] = None,
    seed: DrawSeed = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, for a first impression.")
    ] = False,
    device: Device = None,
    as_json: JsonLines = False,
) -> None:
    """Measure how well vectors reproduce the exact kernel, with 95 % intervals.

    The kernel is computed on traces that no training used. Built-in sets: 3000 formulae of depth 1
    to 6, and families of the corpus that are never trained on.

    rhovec evaluate --quick

    rhovec evaluate -F requirements.txt --model my-model

    rhovec evaluate -F formulae.txt --vectors vectors.npy --json
    """
    from ..evaluation.encoder import TRACES, TRACES_SEED
    from ..evaluation.sets import require_pairs
    from ..traces import BaseMeasure

    chosen = list(dict.fromkeys(measures or (["fidelity"] if vectors else MEASURES[:2])))
    for name in chosen:
        if name not in MEASURES:
            raise RhovecError(f"there is no measure {name!r}; measures are {', '.join(MEASURES)}")
    if vectors and (chosen != ["fidelity"] or len(files or ()) != 1):
        raise RhovecError("--vectors goes with one -F file and with fidelity; others need a model")
    given = None if vectors is None else read_vectors(vectors)
    loaded = load_model(model, device)
    lowered = loaded.lowered
    kernel = lowered.kernel(n_traces or (QUICK_TRACES if quick else TRACES), TRACES_SEED)
    if points is not None:
        if loaded.schema is not None:
            raise RhovecError("--points goes with random traces; this model is about its own")
        measure = loaded.config["teacher"]["measure"] | {"points": points}
        kernel = replace(kernel, measure=BaseMeasure(**measure))
    rows: list[dict[str, Any]] = []
    with progress_bar("measuring") as progress:
        sets = sets_of(files or (), loaded, seed, quick and given is None)
        if "fidelity" in chosen:
            sets = [require_pairs(one) for one in sets]
        if given is not None and len(given) != len(sets[0].formulae):
            raise RhovecError(
                f"{vectors}: {len(given)} vectors for {len(sets[0].formulae)} formulae; give a row each"
            )
        for i, formulae in enumerate(sets):
            rows += measured(chosen, formulae, lowered, kernel, seed, quick, given, kind)
            progress((i + 1) / len(sets))
        if "outside" in chosen:
            rows += beyond(lowered, kernel, seed, quick)
    if as_json:
        write_jsonl(sys.stdout, rows)
    else:
        show(rows)


def sets_of(
    files: Sequence[Path], model: Model, seed: int, quick: bool = False
) -> list[FormulaSet]:
    """The files' formulae, or the built-in sets: held-out families, and the headline set of three
    channels for a model on random traces."""
    from ..evaluation.sets import headline, held_out, read_formulae, thin

    channels, points = model.encoder.channels, model.encoder.points
    if files:
        sets = [read_formulae(path, seed, schema=model.schema) for path in files]
    else:
        own = model.schema is not None
        sizes = [channels] if own else sorted({min(3, channels), channels})
        sets = [] if own else [headline()]
        sets += [held_out(channels=size, seed=seed, points=points) for size in sizes]
    return [thin(one) for one in sets] if quick else sets


def measured(
    chosen: Sequence[str],
    formulae: FormulaSet,
    model: Model,
    kernel: SampledKernel,
    seed: int,
    quick: bool,
    vectors: Any = None,
    kind: Literal["kernel", "cosine"] = "kernel",
) -> Iterator[dict[str, Any]]:
    """Rows of the chosen measures on one set. vectors: (B, D), in place of the model's."""
    from ..evaluation.agreement import agreement, cosines_to_kernel, matrices
    from ..evaluation.encoder import as_rows
    from ..evaluation.fidelity import fidelity
    from ..evaluation.reconstruction import reconstruction
    from ..evaluation.sets import thin

    from_products = cosines_to_kernel(kernel) if kind == "cosine" else None

    def embed(wanted: Any) -> Any:
        return model.embed(wanted, kind=kind, warn=False) if vectors is None else vectors

    if {"fidelity", "agreement"} & set(chosen):
        both = matrices(kernel, embed, formulae.formulae, from_products)
    if "fidelity" in chosen:
        yield from as_rows("fidelity", formulae, fidelity(*both, formulae.groups, seed))
    if "agreement" in chosen:
        entries = agreement(kernel, embed, formulae, *both, seed, from_products)
        yield from as_rows("agreement", formulae, entries)
    if "reconstruction" in chosen:
        part = thin(formulae, QUICK_DECODED if quick else DECODED)
        asked = model.embed(part.formulae, warn=False)
        answers = [group[0] for group in model.decode(asked, k=1)]
        for row in reconstruction(part.formulae, answers, kernel.measure, seed=kernel.seed + 1):
            yield row | {"set": part.name, "sha256": part.sha256}


def beyond(model: Model, kernel: SampledKernel, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of `outside`, which draws its own formulae."""
    from ..evaluation.outside import outside

    return outside(
        lambda formulae: model.embed(formulae, warn=False), kernel, model.encoder.channels,
        QUICK_FAMILIES if quick else FAMILIES, seed,
    )  # fmt: skip


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The rows as tables, one per measure and set."""
    from rich.table import Table

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.1e}" if 0 < abs(value) < 1e-4 else f"{value:.4f}"

    screen = console(width=None if sys.stdout.isatty() else 120)
    titles = {
        "agreement": "agreement, mean absolute error",
        "outside": "outside, mean absolute error",
    }
    for claim, where in dict.fromkeys((row["claim"], row.get("set", "")) for row in rows):
        title = titles.get(claim, claim) + (f": {where}" if where else "")
        table = Table("", title=title, title_justify="left", box=None)
        for head in ("value", "95 % interval", "n"):
            table.add_column(head, justify="right")
        for row in rows:
            if (row["claim"], row.get("set", "")) == (claim, where):
                known = row.get("low") is not None
                ends = f"{number(row['low'])} to {number(row['high'])}" if known else ""
                table.add_row(cell(row["measure"]), number(row["value"]), ends, f"{row['n']:,}")
        screen.print(table)
        screen.print()
