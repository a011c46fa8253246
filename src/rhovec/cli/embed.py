"""`rhovec embed` and `rhovec similarity`: a model's vectors, and its values beside the exact kernel."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import RhovecError
from .shared import (
    Formulae,
    FormulaFiles,
    JsonLines,
    Seed,
    parse_formulae,
    progress_bar,
    read_formulae,
    replacing_text,
    require_output,
    save_array,
)

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Formula
    from ..models.model import Model

COLUMNS = ("formula", "other", "model", "kernel", "standard_error", "difference")
MAX_TABLE = 45  # pairs shown as a table on a terminal

ModelPath = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PATH",
        help="A model's folder, or owner/name of the Hugging Face hub (default: the shipped model).",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="cpu or cuda: compute with torch (default: NumPy).", show_default=False),
]


def embed(
    formulae: Formulae = None,
    files: FormulaFiles = None,
    model: ModelPath = None,
    device: Device = None,
    kind: Annotated[
        Literal["kernel", "cosine"],
        typer.Option(
            help="kernel: inner products are the similarity K; cosine: shorter vectors whose inner "
            "products are the cosine k', with K = exp(-(1 - k') / sigma2)."
        ),
    ] = "kernel",
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write to a .jsonl file, or to an .npy file, which is the matrix alone.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Formulae as unit vectors: JSON, an object {formula, vector} a line.

    rhovec embed "always[0,10] x_0 > 1" "eventually x_1 < 0" -o vectors.npy

    rhovec embed -F requirements.stl > vectors.jsonl
    """
    from ..models.model import load

    suffix = require_output(output, (".jsonl", ".npy"))
    lines = read_formulae(formulae, files)
    parsed = parse_formulae(lines)
    loaded = load(model, device)
    with progress_bar("embedding") as progress:
        vectors = loaded.embed(parsed, kind=kind, warn=False, progress=progress)
    _warn(loaded, parsed)
    labels = [line.text.strip() for line in lines]
    if output is None:
        _write_vectors(labels, vectors, sys.stdout)
    elif suffix == ".npy":
        save_array(output, vectors)
    else:
        with replacing_text(output) as text:
            _write_vectors(labels, vectors, text)


def similarity(
    formulae: Formulae = None,
    files: FormulaFiles = None,
    model: ModelPath = None,
    device: Device = None,
    signals: Annotated[int, typer.Option(help="Signals of the exact kernel.")] = 10_000,
    seed: Seed = 0,
    as_json: JsonLines = False,
) -> None:
    """How alike formulae are by a model, beside the exact kernel with its standard error.

    A row for each pair of the formulae; the difference is the model's value less the kernel's.

    rhovec similarity "always[0,20] x_0 >= 0" "not eventually[0,20] x_0 < 0.1"
    """
    from ..models.model import load

    lines = read_formulae(formulae, files)
    if len(lines) < 2:
        raise RhovecError("similarity is between formulae: give two or more")
    parsed = parse_formulae(lines)
    loaded = load(model, device)
    kernel = loaded.kernel(signals, seed)
    with progress_bar("embedding") as progress:
        vectors = loaded.embed(parsed, warn=False, progress=progress)
    _warn(loaded, parsed)
    with progress_bar("kernel") as progress:
        exact = kernel.gram(parsed, progress=progress)
    with progress_bar("standard errors") as progress:
        errors = kernel.gram_errors(parsed, progress=progress)
    labels = [line.text.strip() for line in lines]
    neural = (vectors @ vectors.T).clip(-1, 1).astype(exact.dtype)
    rows = [
        (labels[i], labels[j], *values)
        for i, j in combinations(range(len(labels)), 2)
        for values in [[m[i, j].item() for m in (neural, exact, errors, neural - exact)]]
    ]
    if as_json:
        for row in rows:
            print(json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False))
    elif sys.stdout.isatty() and len(rows) <= MAX_TABLE:
        measure = kernel.measure
        show(
            rows,
            f"model {loaded.fingerprint}; kernel: N = {signals} signals, P = {measure.points} "
            f"points, seed {seed}, sigma2 {kernel.sigma2:g}",
        )
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def show(rows: Sequence[tuple[Any, ...]], caption: str) -> None:
    """The pairs as a table for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("formula", "other", caption=caption)
    for name in ("model", "kernel", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for first, second, neural, exact, error, difference in rows:
        values = (f"{neural:.3f}", f"{exact:.3f} ± {error:.3f}", f"{difference:+.3f}")
        table.add_row(Text(first), Text(second), *values)
    Console().print(table)


def _write_vectors(labels: Sequence[str], vectors: np.ndarray, stream: IO[str]) -> None:
    for label, vector in zip(labels, vectors, strict=True):
        numbers = ", ".join([f"{x:.9g}" for x in vector.tolist()])  # enough for every float32
        text = json.dumps(label, ensure_ascii=False)
        stream.write(f'{{"formula": {text}, "vector": [{numbers}]}}\n')


def _warn(model: Model, formulae: Sequence[Formula]) -> None:
    from ..models.model import describe

    message = describe(model.outside(formulae), len(formulae))
    if message:
        print(f"rhovec: warning: {message}", file=sys.stderr)
