"""`rhovec embed`: formulae as the unit vectors of a space."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import RhovecError, counted
from .fleet import Scheduler, tell
from .inputs import formulae_of, naming, origins, read_schema
from .output import note, progress_bar, replacing_text, require_output, save_array
from .shared import Device, Reading, SchemaFile, SpacePath, option, output_file, read_for

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
    results: Annotated[
        str | None,
        option(
            metavar="FOLDER",
            help="Embed files of one formula per line, of any size, to a folder of parquet files, here "
            "or in s3://. The same command resumes a run that was ended.",
        ),
    ] = None,
    scheduler: Scheduler = None,
) -> None:
    """Formulae as unit vectors: one JSON object {formula, vector} per line.

    rhovec embed "always[0,10] x_0 > 1" "eventually x_1 < 0" -o vectors.npy

    rhovec embed -F requirements.stl --schema car.json > vectors.jsonl

    Formulae by the million:

    rhovec embed -F formulae.txt --results vectors/ --scheduler tcp://head:8786
    """
    from ..spaces import load

    suffix = require_output(output, (".jsonl", ".npy"))
    if results is not None:
        if output is not None:
            raise RhovecError("-o and --results: give one of the two")
        _embed_files(reading, space, device, kind, precision, schema, results, scheduler)
        return
    if scheduler is not None:
        raise RhovecError("--scheduler goes with --results")
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


def _embed_files(
    reading: Reading, space: str | None, device: str | None,
    kind: Literal["kernel", "cosine"] | None, precision: Literal["float32", "int8"],
    schema: Path | None, results: str, scheduler: str | None,
) -> None:  # fmt: skip
    from ..spaces import embed_files
    from ..tasks import connected

    if not reading.files or "-" in reading.files or reading.formulae:
        raise RhovecError("--results embeds files: name them with --formulae")
    if reading.settings or reading.skip_invalid:
        raise RhovecError(
            "--results reads one formula per line, without parameters, and goes on after wrong lines: "
            "leave out --set and --skip-invalid"
        )
    with connected(scheduler) as client, progress_bar("embedding") as progress:
        report = embed_files(
            reading.files, out=results, space=space, device=device, precision=precision, kind=kind,
            schema=read_schema(schema), client=client, progress=progress,
            **reading.options(None, None),
        )  # fmt: skip
    if not (report.formulae or report.refused or report.unread):
        raise RhovecError(
            f"{', '.join(reading.files)}: there is no formula in it; write one per line"
        )
    earlier = f", {report.resumed:,} of them by an earlier run" if report.resumed else ""
    print(
        f"{counted(report.formulae, 'vector')} of {counted(report.files, 'file')} in {results}, written "
        f"by {counted(report.tasks, 'task')}{earlier}"
    )
    if report.outside:
        note(f"warning: {report.outside:,} formulae outside the range that the space was made for")
    if report.refused or report.unread:
        sys.stdout.flush()
        unread = f" and {counted(report.unread, 'file')}" if report.unread else ""
        tell(
            f"{counted(report.refused, 'line')}{unread} could not be embedded",
            list(map(str, report.told)), report.refused + report.unread,
        )  # fmt: skip
        raise typer.Exit(2)


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
