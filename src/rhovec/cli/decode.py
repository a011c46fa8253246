"""`rhovec decode`: formulae from a model's vectors, or simpler ones for a given formula."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..errors import RhovecError
from .embed import _warn
from .output import cell, console
from .shared import (
    Device,
    FormulaFiles,
    JsonLines,
    Line,
    ModelPath,
    Reading,
    SchemaFile,
    option,
    progress_bar,
    read_schema,
    read_vectors,
    standardised,
)

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Formula, Schema
    from ..models.inverse import Found
    from ..models.model import Model

SUFFIXES = (".npy", ".jsonl")
MAX_TABLE = 50  # answers shown as a table on a terminal


class Request(NamedTuple):
    """Vectors (B, D) to decode, with a name each, and the formulae that they are of, if known."""

    names: list[str | int]
    vectors: np.ndarray
    formulae: list[Formula] | None


def decode(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VECTORS|FORMULA",
            help="A .npy file of vectors, a .jsonl file as `rhovec embed` writes it, or formulae. "
            "Without any, and without -F, stdin is read: the output of `rhovec embed`, or formulae.",
            show_default=False,
        ),
    ] = None,
    files: FormulaFiles = None,
    model: ModelPath = None,
    device: Device = None,
    k: Annotated[
        int | None,
        option("-k", help="Largest number of answers per request (default: 1; for a formula, 5)."),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Candidates to draw per vector, in addition to the likeliest.")
    ] = 16,
    refine: Annotated[
        bool, typer.Option(help="Tune numbers and try other operators, to get closer.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the candidates.")] = 0,
    schema: SchemaFile = None,
    check: Annotated[
        int | None,
        option(
            metavar="TRACES",
            help="For formulae: rank answers by the exact kernel on this number of traces.",
        ),
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Formulae whose vectors are closest to the given ones, the best first.

    Given a formula, the answers are its simplified form, then smaller and smaller ones, each the
    closest of its size. The output has one formula per line; --json adds similarities.

    rhovec decode vectors.npy -k 3 --json

    rhovec decode "not eventually[0,9] (x_0 <= 1 and not x_1 > 2)" --check 10000
    """
    from ..models.inverse import check as exact_check
    from ..models.model import load

    if k is not None and k < 1:
        raise RhovecError(f"-k must be 1 or more, not {k}")
    known = read_schema(schema)
    loaded = load(model, device)
    request = _read(sources or [], files, loaded, known)
    if check is not None and request.formulae is None:
        raise RhovecError("--check compares with a formula; give formulae instead of vectors")
    with progress_bar("decoding") as progress:
        found: list[Any] = loaded.inverter.decode(
            request.vectors, samples, refine, seed,
            channels=None if known is None else len(known.channels), progress=progress,
        )  # fmt: skip
    if request.formulae is not None:
        found = _ladders(loaded, request.formulae, found)
        if check is not None:
            kernel = loaded.kernel(check)
            groups = zip(request.formulae, found, strict=True)
            found = [exact_check(kernel, phi, group) for phi, group in groups]
    most = k or (1 if request.formulae is None else 5)
    _write(request.names, [group[:most] for group in found], known, as_json)


def _read(
    sources: Sequence[str], files: list[str] | None, model: Model, schema: Schema | None
) -> Request:
    import numpy as np

    paths = [s for s in sources if s.lower().endswith(SUFFIXES)]
    texts = [s for s in sources if s not in paths]
    if paths and (texts or files):
        raise RhovecError("give files of vectors or formulae, not both")
    if paths:
        parts = [_read_vectors(Path(path), model) for path in paths]
        names = [name for part, _ in parts for name in part]
        if len(parts) > 1:
            names = list(range(len(names)))
        return Request(names, np.concatenate([rows for _, rows in parts]), None)
    reading = Reading(texts, files)
    lines = reading.lines()
    if lines[0].text.lstrip().startswith("{"):
        return Request(*_json_vectors(lines, model), None)
    parsed = standardised(reading.parse(lines, schema), schema)
    _warn(model, parsed)
    vectors = model.embed(parsed, warn=False)
    return Request([line.label for line in lines], vectors, parsed)


def _read_vectors(path: Path, model: Model) -> tuple[list[str | int], np.ndarray]:
    if path.suffix.lower() == ".jsonl":
        return _json_vectors(Reading(files=[str(path)]).lines(), model)
    rows = _unit_rows(model, read_vectors(path), str(path))
    return list(range(len(rows))), rows


def _json_vectors(lines: Iterable[Line], model: Model) -> tuple[list[str | int], np.ndarray]:
    import numpy as np

    names: list[str | int] = []
    rows = []
    for text, place, _ in lines:
        try:
            entry = json.loads(text)
            name, vector = entry.get("formula", len(names)), entry["vector"]
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            raise RhovecError(f"{place}: not a JSON object with a vector") from None
        names.append(name)
        rows.append(_unit_rows(model, vector, place)[0])
    return names, np.stack(rows)


def _unit_rows(model: Model, vectors: Any, place: str) -> np.ndarray:
    import numpy as np

    try:
        return np.atleast_2d(model.unit_rows(vectors))
    except RhovecError as error:
        raise RhovecError(f"{place}: {error}") from None


def _ladders(
    model: Model, formulae: Sequence[Formula], found: Sequence[Sequence[Found]]
) -> list[list[Found]]:
    """For each formula its simplified form, then smaller ones."""
    from ..models.inverse import Found, plain, simpler

    out = []
    for phi, group in zip(formulae, found, strict=True):
        itself = plain(phi)
        first = Found(itself, model.similarity(phi, itself, warn=False))
        out.append([first, *simpler([one for one in group if one.formula.size < itself.size])])
    return out


def _write(
    names: Sequence[str | int], found: Sequence[Sequence[Any]], schema: Schema | None, as_json: bool
) -> None:
    def text_of(phi: Formula) -> str:
        return str(phi) if schema is None else schema.to_text(phi)

    rows = [
        (name, text_of(one.formula), one.formula.size, *one[1:])
        for name, group in zip(names, found, strict=True)
        for one in group
    ]
    columns = ("request", "formula", "nodes", "similarity", "kernel", "standard_error")
    if as_json:
        for row in rows:
            print(json.dumps(dict(zip(columns, row, strict=False)), ensure_ascii=False))
    elif sys.stdout.isatty() and len(rows) <= MAX_TABLE:
        show(rows)
    else:
        for row in rows:
            print(row[1])


def show(rows: Sequence[tuple[Any, ...]]) -> None:
    """Print the answers as a table."""
    from rich.table import Table

    exact = any(len(row) > 4 for row in rows)
    table = Table("request", "formula")
    for name in ("nodes", "similarity", *(["kernel"] if exact else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for request, formula, nodes, similarity, *kernel in rows:
        values = [str(nodes), f"{similarity:.4f}"]
        if kernel:
            values.append(f"{kernel[0]:.4f} ± {kernel[1]:.4f}")
        table.add_row(cell(str(request)), cell(formula), *values)
    console().print(table)
