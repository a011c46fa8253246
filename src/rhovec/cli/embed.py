"""`rhovec embed`: formulae as the unit vectors of a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from ..formula.programs import Programs
from .output import note, replacing_text, require_output, save_array
from .shared import (
    Device,
    ModelPath,
    Reading,
    SchemaFile,
    formulae_of,
    naming,
    origins,
    output_file,
    progress_bar,
    read_schema,
    standardised,
)

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Requirement
    from ..models.model import Model


def embed(
    reading: Reading,
    model: ModelPath = None,
    device: Device = None,
    kind: Annotated[
        Literal["kernel", "cosine"],
        typer.Option(
            help="kernel: inner products are the similarity K; cosine: shorter vectors whose inner "
            "products are the cosine k', with K = exp(-(1 - k') / sigma2)."
        ),
    ] = "kernel",
    schema: SchemaFile = None,
    output: Annotated[
        Path | None,
        output_file("Write to a .jsonl file, or to an .npy file, which holds only the matrix."),
    ] = None,
) -> None:
    """Formulae as unit vectors: one JSON object {formula, vector} per line.

    rhovec embed "always[0,10] x_0 > 1" "eventually x_1 < 0" -o vectors.npy

    rhovec embed -F requirements.stl --schema car.json > vectors.jsonl
    """
    from ..models.model import load

    suffix = require_output(output, (".jsonl", ".npy"))
    loaded = load(model, device)
    known = read_schema(schema) or loaded.schema
    requirements = standardised(reading.requirements(known), known)
    vectors = embedded(loaded, requirements, kind)
    if output is None:
        _write_vectors(requirements, vectors, sys.stdout)
    elif suffix == ".npy":
        save_array(output, vectors)
    else:
        with replacing_text(output) as text:
            _write_vectors(requirements, vectors, text)


def embedded(
    model: Model,
    requirements: Sequence[Requirement],
    kind: Literal["kernel", "cosine"] = "kernel",
) -> np.ndarray:
    """(B, D): the formulae's vectors; a warning on stderr if the model was not trained for them."""
    from ..models.model import describe

    formulae = Programs.pack(formulae_of(requirements))  # standardised: no schema lowers them again
    with (
        naming(requirements, lambda some: model.embed(Programs.pack(some), warn=False)),
        progress_bar("embedding") as progress,
    ):
        vectors = model.embed(formulae, kind=kind, warn=False, progress=progress)
    message = describe(model.outside(formulae), len(formulae))
    if message:
        note(f"warning: {message}")
    return vectors


def _write_vectors(
    requirements: Sequence[Requirement], vectors: np.ndarray, stream: IO[str]
) -> None:
    for one, origin, vector in zip(requirements, origins(requirements), vectors, strict=True):
        numbers = ", ".join([f"{x:.9g}" for x in vector.tolist()])  # enough for every float32
        facts = json.dumps({**origin, "formula": one.text}, ensure_ascii=False)
        stream.write(f'{facts[:-1]}, "vector": [{numbers}]}}\n')
