"""`rhovec decode`: formulae from a space's vectors, or simpler ones for a given formula."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..errors import RhovecError
from ..files import read_file
from ..formula import parse
from ..formula.requirements import Requirement, heading
from .embed import embedded
from .inputs import formulae_of, origins, read_vectors, schema_for, standardised
from .output import cell, console, note, printable, progress_bar
from .shared import (
    Device,
    Files,
    JsonLines,
    Reading,
    Rounding,
    SchemaFile,
    SpacePath,
    have_bounds,
    option,
)

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Formula, Schema
    from ..models.inverse import Found
    from ..models.model import Model
    from ..spaces import Space

SUFFIXES = (".npy", ".jsonl")
MAX_TABLE = 50  # answers shown as a table on a terminal
CHECKED = 5  # formulae of a file that must have their vectors
SAME = 0.99  # least cosine of such a vector and the one made here, which may be in other numbers


class Request(NamedTuple):
    """Vectors (B, D) to decode, what is known of each, and the formulae that they are of, if any."""

    facts: list[dict[str, Any]]  # `request`, a text or number, and before it id, title and source
    vectors: np.ndarray
    formulae: list[Formula] | None


def decode(
    files: Files,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VECTORS|FORMULA",
            help="A .npy file of vectors, a .jsonl file as `rhovec embed` writes it, or formulae. "
            "Without any, and without -F, stdin is read: the output of `rhovec embed`, or formulae.",
            show_default=False,
        ),
    ] = None,
    space: SpacePath = None,
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
    rounding: Rounding = None,
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
    from ..spaces import Space, load

    if k is not None and k < 1:
        raise RhovecError(f"-k must be 1 or more, not {k}")
    loaded = load(space, device)
    known = schema_for(loaded, schema)
    if isinstance(loaded, Space) and (samples, refine, seed, check) != (16, True, 0, None):
        raise RhovecError(
            "--samples, --no-refine, --seed and --check are for models: a space of traces searches its "
            "own formulae, and says how similar their vectors are; rhovec similarity --space also gives "
            "the exact kernel"
        )
    request = _read(Reading(**vars(files), formulae=sources, rounding=rounding), loaded, known)
    if check is not None and request.formulae is None:
        raise RhovecError("--check compares with a formula; give formulae instead of vectors")
    most = k or (1 if request.formulae is None else 5)
    if isinstance(loaded, Space):
        target = request.vectors if request.formulae is None else request.formulae
        with progress_bar("decoding") as progress:
            fronts = loaded.front(target, progress=progress)
        _write(
            request.facts, [group[::-1][:most] for group in fronts],
            lambda phi: phi.to_text(dt=loaded.schema.dt), as_json,
        )  # fmt: skip
        return
    with progress_bar("decoding") as progress:
        found: list[Any] = loaded.inverter.decode(
            request.vectors, samples, refine, seed,
            channels=None if known is None else len(known.channels), progress=progress,
        )  # fmt: skip
    if request.formulae is not None:
        found = _ladders(loaded, request.formulae, found)
        if check is not None:
            kernel = loaded.lowered.kernel(check)
            groups = zip(request.formulae, found, strict=True)
            found = [exact_check(kernel, phi, group) for phi, group in groups]
    from ..models.inverse import DECIMALS

    def text_of(phi: Formula) -> str:
        if known is None:
            return str(phi)
        is_answer = (phi.thresholds.round(DECIMALS) == phi.thresholds).all()  # or what was asked
        return known.to_text(phi, decimals=DECIMALS if is_answer else None)

    _write(request.facts, [group[:most] for group in found], text_of, as_json)


def _read(reading: Reading, model: Model | Space, schema: Schema | None) -> Request:
    import numpy as np

    from ..models.model import Model

    sources = reading.formulae or []
    paths = [s for s in sources if s.lower().endswith(SUFFIXES)]
    if paths and (len(paths) < len(sources) or reading.files):
        raise RhovecError("give files of vectors or formulae, not both")
    if paths and (reading.settings or reading.skip_invalid):
        raise RhovecError("--set and --skip-invalid go with formulae, not with vectors")
    if paths:
        parts = [_read_vectors(Path(path), model, schema) for path in paths]
        facts = [own for part, _ in parts for own in part]
        if len(parts) > 1:
            facts = [{"request": i} for i in range(len(facts))]
        return Request(facts, np.concatenate([rows for _, rows in parts]), None)
    contents = reading.contents(bool(sources))
    if contents and contents[0][1].lstrip().startswith(b"{"):
        return Request(*_json_vectors(contents, model, schema), None)
    requirements = given = reading.requirements(schema, contents=contents)
    if isinstance(model, Model):  # answers are sought among lowered formulae
        requirements = standardised(given, schema)
        given = given if model.schema else requirements
    vectors = embedded(model, given)
    facts = [
        {**origin, "request": one.text}
        for one, origin in zip(requirements, origins(requirements), strict=True)
    ]
    return Request(facts, vectors, formulae_of(requirements))


def _read_vectors(
    path: Path, model: Model | Space, schema: Schema | None
) -> tuple[list[dict[str, Any]], np.ndarray]:
    if path.suffix.lower() == ".jsonl":
        return _json_vectors([(str(path), read_file(path))], model, schema)
    rows = _unit_rows(model, read_vectors(path), str(path))
    return [{"request": i} for i in range(len(rows))], rows


def _json_vectors(
    contents: Iterable[tuple[str, bytes]], model: Model | Space, schema: Schema | None
) -> tuple[list[dict[str, Any]], np.ndarray]:
    import numpy as np

    facts: list[dict[str, Any]] = []
    rows = []
    for name, data in contents:
        checked: list[bool] = []
        for number, line in enumerate(data.splitlines(), 1):
            if not line.strip():
                continue
            place = f"{name}:{number}"
            try:
                entry = json.loads(line)
                own = {key: entry[key] for key in ("id", "title", "source") if key in entry}
                own["request"], vector = entry.get("formula", len(facts)), entry["vector"]
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
                raise RhovecError(f"{place}: not a JSON object with a vector") from None
            facts.append(own)
            rows.append(_unit_rows(model, vector, place)[0])
            if isinstance(own["request"], str) and len(checked) < CHECKED:
                checked.append(_is_known(own["request"], rows[-1], model, schema, place))
        if checked and not any(checked):
            note(
                f"warning: {name}: no formula in it can be read here, so other vectors than those of "
                "this space would not be noticed"
            )
    if not rows:
        raise RhovecError(f"{name}: there is no vector in it")
    return facts, np.stack(rows)


def _is_known(
    text: str, vector: np.ndarray, model: Model | Space, schema: Schema | None, place: str
) -> bool:
    """Refuse a vector that is not the one of its formula. False if the formula cannot be read here:
    it may use definitions of its file, or options of `rhovec embed`."""
    try:
        phi = parse(text) if schema is None else schema.parse(text)
        if schema is None and have_bounds([Requirement(phi)]):
            return True  # which may have been in seconds
        if schema is not None and getattr(model, "schema", None) is None:
            phi = schema.lower(phi)
        found = model.embed(phi, warn=False)
    except RhovecError:
        return False
    if float(found @ vector) < SAME:
        raise RhovecError(
            f"{place}: this is not the vector of its formula in this space; name the space that made it "
            "with --space, or leave out the formula"
        )
    return True


def _unit_rows(model: Model | Space, vectors: Any, place: str) -> np.ndarray:
    import numpy as np

    from ..models.model import Model

    try:
        rows = model.unit_rows(vectors) if isinstance(model, Model) else model.project(vectors)
        return np.atleast_2d(rows)
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
        first = Found(itself, model.lowered.similarity(phi, itself, warn=False))
        out.append([first, *simpler([one for one in group if one.formula.size < itself.size])])
    return out


def _write(
    facts: Sequence[dict[str, Any]],
    found: Sequence[Sequence[Any]],
    text_of: Callable[[Formula], str],
    as_json: bool,
) -> None:
    columns = ("formula", "nodes", "similarity", "kernel", "standard_error")
    rows = [
        [(text_of(one.formula), one.formula.size, *one[1:]) for one in group] for group in found
    ]
    names = [heading(own.get("id", ""), own.get("title", "")) for own in facts]
    if as_json:
        for own, group in zip(facts, rows, strict=True):
            for row in group:
                answer = dict(zip(columns, row, strict=False))
                print(json.dumps(own | answer, ensure_ascii=False))
    elif sys.stdout.isatty() and sum(map(len, rows)) <= MAX_TABLE:
        show([
            (name or own["request"], *row)
            for own, name, group in zip(facts, names, rows, strict=True)
            for row in group
        ])  # fmt: skip
    else:
        for own, name, group in zip(facts, names, rows, strict=True):
            if name:
                print(printable(f"# {name}, {own.get('source', '')}"))
            for text, *_ in group:
                print(text)


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
