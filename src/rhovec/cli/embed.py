"""`rhovec embed`: formulae as the unit vectors of a space."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

from ..errors import RhovecError
from .output import note, replacing_text, require_output, save_array
from .shared import (
    Device,
    Reading,
    SchemaFile,
    SpacePath,
    formulae_of,
    naming,
    option,
    origins,
    output_file,
    progress_bar,
    read_for,
)

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Requirement
    from ..models.model import Model
    from ..spaces import Space


def embed(
    reading: Reading,
    space: SpacePath = None,
    device: Device = None,
    kind: Annotated[
        Literal["kernel", "cosine"] | None,
        option(
            help="kernel: inner products are the similarity K; cosine: shorter vectors whose inner "
            "products are the cosine k', with K = exp(-(1 - k') / sigma2) (default: kernel; for a space "
            "of traces, which has no others, cosine)."
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "int8"],
        option(
            help="int8: products of small integers, several times as fast on processors with "
            "AVX512-VNNI; vectors move by about 0.005."
        ),
    ] = "float32",
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
    from ..spaces import load

    suffix = require_output(output, (".jsonl", ".npy"))
    loaded = load(space, device, precision)
    requirements = read_for(loaded, reading, schema)
    vectors = embedded(loaded, requirements, kind)
    if output is None:
        _write_vectors(requirements, vectors, sys.stdout)
    elif suffix == ".npy":
        save_array(output, vectors)
    else:
        with replacing_text(output) as text:
            _write_vectors(requirements, vectors, text)


def embedded(
    space: Model | Space,
    requirements: Sequence[Requirement],
    kind: Literal["kernel", "cosine"] | None = None,
) -> np.ndarray:
    """(B, D): the formulae's vectors; a warning on stderr if the space was not made for them."""
    from ..models.model import Model, describe

    formulae = formulae_of(requirements)
    with (
        naming(requirements, partial(space.embed, warn=False)),
        progress_bar("embedding") as progress,
    ):
        if not isinstance(space, Model):
            if kind == "kernel":
                raise RhovecError(
                    "--kind kernel is for models: a space of traces has cosine vectors"
                )
            return space.embed(formulae, progress=progress)
        vectors = space.embed(formulae, kind=kind or "kernel", warn=False, progress=progress)
    message = describe(space.outside(formulae), len(formulae))
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
