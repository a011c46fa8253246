"""`rhovec index build | add | delete | search | duplicates | verify | upgrade | list | remove`.

A library of formulae, in a file or on a server.

A line `REQ-12: always x_0 > 1` gives a formula the identifier of its requirement.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import RhovecError
from ..formula.requirements import heading
from .inputs import (
    formulae_of,
    naming,
    origins,
    read_vectors,
    schema_for,
    split_names,
    standardised,
)
from .output import (
    TABLES,
    cell,
    console,
    progress_bar,
    require_output,
    save_table,
    write_jsonl,
    write_records,
)
from .shared import (
    SIGMA2,
    TRACES,
    JsonLines,
    JsonObject,
    Reading,
    SchemaFile,
    Sigma2,
    TraceReading,
    grouped,
    option,
    output_file,
)

if TYPE_CHECKING:
    from ..formula import Formula, Requirement, Schema
    from ..kernel import Progress, StlKernel
    from ..search import Hit, Index, Vectors
    from ..traces import Traces

app = typer.Typer(
    name="index", help="Build a library of formulae, change it, and search it by meaning."
)
Library = Annotated[
    str,
    typer.Argument(
        metavar="LIBRARY",
        help="The library's file, or the URL of a PostgreSQL database.",
        show_default=False,
    ),
]
Named = Annotated[
    str | None,
    option("--library", metavar="NAME", help="Name of the library, on a server."),
]
Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="The URL of a PostgreSQL database.", show_default=False),
]
LibraryModel = Annotated[
    str | None,
    option(
        "--space",
        "--model",
        metavar="PATH",
        help="What made the library's vectors: a model's folder. The shipped model (default), spaces of "
        "traces and signatures need not be given.",
    ),
]
NewTags = Annotated[
    str,
    option("--tags", metavar="TAGS", help="Tags for the formulae, separated by commas."),
]
HitFile = Annotated[
    Path | None, output_file("Write to a .csv, .jsonl or .parquet file, one row per hit.")
]
NAME_NEEDED = "--library NAME goes with the URL of a server, and only with that"
COLUMNS = (
    "rank", "id", "formula", "similarity", "kernel", "standard_error", "tags", "requirement", "title",
    "source",
)  # fmt: skip


@app.command()
@grouped
def build(
    library: Library,
    reading: TraceReading,
    name: Named = None,
    tags: NewTags = "",
    space: Annotated[
        str | None,
        option(
            "--space",
            "--model",
            metavar="PATH",
            help="Take the vectors of a space instead of signatures: the folder of a space of traces or "
            "of a model, or default for the shipped one.",
        ),
    ] = None,
    stored: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="Type of the stored numbers; float16 halves the file, int8 quarters it."),
    ] = "float32",
    schema: SchemaFile = None,
    n_traces: Annotated[
        int | None,
        option(help="Traces per signature (default: 1000, or all of --traces)."),
    ] = None,
    seed: Annotated[
        int | None, option(help="Seed of the random traces (default: 0).", rich_help_panel=TRACES)
    ] = None,
    sigma2: Sigma2 = None,
    as_json: JsonObject = False,
) -> None:
    """Make a new library.

    rhovec index build lib.rhovec -F requirements.stl
    """
    from ..search import Index
    from ..search.backend import is_url

    if is_url(library) != (name is not None):
        raise RhovecError(NAME_NEEDED)
    if reading.traces and space:
        raise RhovecError("--traces go with signatures, not with --space")
    if space and (n_traces, seed, sigma2) != (None, None, None):
        raise RhovecError("--n-traces, --seed and --sigma2 go with signatures, not with --space")
    if reading.traces and schema:
        raise RhovecError(
            "--traces go without --schema, which is for random ones; give --dt, --units and --discrete"
        )
    made = _load(space)
    contents = reading.contents(bool(reading.formulae))
    traces, known = reading.read_traces(reading.texts(contents)), schema_for(made, schema)
    requirements = reading.requirements(known, traces, contents)
    known = None if schema is None else known
    if made is not None:
        requirements = reading.accepted(requirements, _probe(made, known))
    vectors = made or _kernel_for(
        standardised(requirements, known),
        traces,
        n_traces,
        SIGMA2 if sigma2 is None else sigma2,
        seed or 0,
    )
    kept = None if known or schema_for(made, None) else reading.kept(traces)
    with _vectors(requirements, vectors, known) as progress, Index.build(
        _with_places(requirements), library, library=name, vectors=vectors, schema=known, reading=kept,
        tags=split_names(tags), stored=stored, progress=progress,
    ) as index:  # fmt: skip
        _tell({"library": name or library, "formulae": len(index)}, as_json)
    reading.tell_steps(requirements, traces, known)


@app.command()
@grouped
def add(
    library: Library,
    reading: Reading,
    name: Named = None,
    tags: NewTags = "",
    space: LibraryModel = None,
    as_json: JsonObject = False,
) -> None:
    """Add formulae to a library.

    rhovec index add lib.rhovec "REQ-7: always x_0 > 1" --tags draft
    """
    with _opened(library, name, space, formulae=True) as index:
        requirements = reading.accepted(
            reading.requirements(_known(index)), _probe(index.vectors, index.lowering)
        )
        with _vectors(requirements, index.vectors, index.lowering) as progress:
            ids = index.add(_with_places(requirements), tags=split_names(tags), progress=progress)
        _tell({"added": ids, "formulae": len(index)}, as_json)


@app.command()
@grouped
def delete(
    library: Library,
    ids: Annotated[
        list[int],
        typer.Argument(metavar="ID", help="Numbers of the entries.", show_default=False),
    ],
    name: Named = None,
    as_json: JsonObject = False,
) -> None:
    """Delete entries: all of these, or none if one does not exist.

    rhovec index delete lib.rhovec 3 5
    """
    with _opened(library, name) as index:
        index.delete(ids)
        _tell({"deleted": ids, "formulae": len(index)}, as_json)


@app.command()
@grouped
def search(
    library: Library,
    reading: Reading,
    name: Named = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Hits per formula.")] = 10,
    vectors: Annotated[
        Path | None,
        option(metavar="FILE", help="Search for the rows of an .npy file instead of formulae."),
    ] = None,
    uses: Annotated[
        str,
        option(
            metavar="NAMES",
            help="Only formulae that use all of these variables, separated by commas.",
        ),
    ] = "",
    max_depth: Annotated[
        int | None,
        option(min=0, help="Only formulae nested no deeper."),
    ] = None,
    tags: Annotated[
        str,
        option(
            metavar="TAGS", help="Only formulae that have all of these tags, separated by commas."
        ),
    ] = "",
    rerank: Annotated[
        bool,
        typer.Option("--rerank", help="Order hits by the exact kernel, with its standard error."),
    ] = False,
    space: LibraryModel = None,
    output: HitFile = None,
    as_json: JsonLines = False,
) -> None:
    """Find the formulae of a library that are most similar in meaning.

    rhovec index search lib.rhovec "always (x_0 > 1)" -k 5
    """
    require_output(output, TABLES, as_json)
    if vectors and (reading.formulae or reading.files):
        raise RhovecError("--vectors takes the place of formulae; leave one of them out")
    if vectors and rerank:
        raise RhovecError("--rerank compares with a formula; --vectors have none")
    with _opened(library, name, space, formulae=not vectors) as index:
        choice = partial(
            index.search, k=k, variables=split_names(uses), max_depth=max_depth,
            tags=split_names(tags), rerank=rerank,
        )  # fmt: skip
        if vectors:
            rows = read_vectors(vectors)
            found, facts = choice(rows), [{"query": f"row {i}"} for i in range(len(rows))]
        else:
            requirements = reading.requirements(_known(index))
            with _vectors(requirements, index.vectors, index.lowering):
                found = choice(requirements)
            named = origins(requirements, "query_")
            facts = [
                {**origin, "query": one.text}
                for one, origin in zip(requirements, named, strict=True)
            ]
        _write(facts, found, _step(index), output, as_json)


@app.command()
@grouped
def duplicates(
    library: Library,
    name: Named = None,
    threshold: Annotated[
        float, typer.Option(help="Lowest exact similarity of duplicates, above 0 and up to 1.")
    ] = 0.99,
    space: LibraryModel = None,
    output: HitFile = None,
    as_json: JsonLines = False,
) -> None:
    """List groups of formulae that mean nearly the same.

    rhovec index duplicates lib.rhovec --threshold 0.999
    """
    require_output(output, TABLES, as_json)
    with _opened(library, name, space) as index:
        with progress_bar("duplicates") as progress:
            groups = index.duplicates(threshold, progress=progress)
        facts = [{"group": str(i + 1)} for i in range(len(groups))]
        _write(facts, groups, _step(index), output, as_json)


@app.command()
@grouped
def verify(library: Library, name: Named = None, as_json: JsonObject = False) -> None:
    """Read a whole library and compare everything with its checksums.

    rhovec index verify lib.rhovec
    """
    with _opened(library, name) as index:
        with progress_bar("verifying") as progress:
            index.verify(progress)
        count = len(index)
        _tell({"library": name or library, "formulae": count, "verified": True}, as_json)


@app.command()
@grouped
def upgrade(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="A library of an earlier version, or the URL of a database.",
            show_default=False,
        ),
    ],
    new: Annotated[
        Path | None, typer.Argument(metavar="NEW", help="The file to write.", show_default=False)
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Copy a library of an earlier version to a new file. Entries are numbered anew, without gaps.

    rhovec index upgrade old.rhovec new.rhovec

    A database is brought up to date in place, or made ready for libraries:

    rhovec index upgrade postgresql://db.example.org/team
    """
    from ..search import Index
    from ..search.backend import is_url

    if is_url(old):
        from ..search.database import upgrade as upgrade_database

        if new is not None:
            raise RhovecError(f"a database is brought up to date in place; leave out {new}")
        version = upgrade_database(old)
        print(json.dumps({"version": version}) if as_json else f"libraries of version {version}")
        return
    if new is None:
        raise RhovecError("name the new file after the old one")
    with Index.upgrade(old, new) as index:
        _tell({"library": str(new), "formulae": len(index)}, as_json)


@app.command("list")
@grouped
def list_libraries(url: Url, as_json: JsonLines = False) -> None:
    """List the libraries of a database, and how many formulae each holds.

    rhovec index list postgresql://db.example.org/team
    """
    from ..search.database import libraries

    rows = [{"library": name, "formulae": size} for name, size in libraries(url).items()]
    if as_json:
        write_jsonl(sys.stdout, rows)
    else:
        write_records(sys.stdout, rows, ["library", "formulae"])


@app.command()
@grouped
def remove(
    url: Url,
    name: Annotated[str, option("--library", metavar="NAME", help="Name of the library.")],
    as_json: JsonObject = False,
) -> None:
    """Remove a library from a database, with all its formulae.

    rhovec index remove postgresql://db.example.org/team --library drafts
    """
    from ..search import database

    database.remove(url, name)
    print(json.dumps({"removed": name}) if as_json else f"removed {name}")


# -- reading ---------------------------------------------------------------------------------------


@contextmanager
def _vectors(
    requirements: Sequence[Requirement], vectors: Any, schema: Schema | None
) -> Iterator[Progress]:
    """A progress bar while vectors are made; an error that is due to a requirement names it."""
    with naming(requirements, _probe(vectors, schema)), progress_bar("vectors") as progress:
        yield progress


def _probe(vectors: Any, schema: Schema | None) -> Callable[[list[Formula]], object]:
    """A function that fails on formulae of which no vectors can be made."""
    from ..spaces import as_vectors

    def probe(formulae: list[Formula]) -> object:
        lowered = formulae if schema is None else [schema.lower(phi) for phi in formulae]
        return as_vectors(vectors).embed(lowered)

    return probe


def _with_places(requirements: Sequence[Requirement]) -> list[Requirement]:
    """What is stored: "formula 1", as messages call an argument, is no place to look it up."""
    return [r if ":" in r.source else replace(r, source="") for r in requirements]


def _opened(
    library: str, name: str | None, space: str | None = None, formulae: bool = False
) -> Index:
    """The library. formulae: whether it must be able to make vectors of some."""
    from ..search import Index
    from ..search.backend import is_url

    if is_url(library) != (name is not None):
        raise RhovecError(NAME_NEEDED)
    index = Index.open(library, library=name, vectors=_load(space))
    if formulae and index.vectors is None:
        index.close()
        raise RhovecError(
            f"{name or library}: it was built with a model of yours; give it with --space"
        )
    return index


def _known(index: Index) -> Schema | dict[str, Any] | None:
    """How the library reads formulae."""
    return index.schema or index.reading or None


def _step(index: Index) -> float | str | None:
    """Seconds a step, if the library reads bounds in seconds: its formulae are then printed so."""
    return index.schema.dt if index.schema else index.reading.get("dt")


def _load(name: str | None) -> Vectors | None:
    if name is None:
        return None
    from ..spaces import load

    return load(None if name == "default" else name)


def _kernel_for(
    requirements: list[Requirement],
    traces: Traces | None,
    n_traces: int | None,
    sigma2: float,
    seed: int,
) -> StlKernel:
    """The kernel whose signatures a new library holds."""
    from ..kernel import StlKernel
    from ..search.vectors import usual_kernel
    from ..traces import TraceMeasure

    if traces is not None:
        return StlKernel(TraceMeasure(traces.values, traces.variables), n_traces, sigma2, seed)
    kernel = usual_kernel(formulae_of(requirements), n_traces)
    return replace(kernel, sigma2=sigma2, seed=seed)


# -- writing ---------------------------------------------------------------------------------------


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    """Print what was done: one JSON object, or a line."""
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    words = [
        f"{word} {', '.join(map(str, facts[word][:8]))}{', ...' if len(facts[word]) > 8 else ''}"
        for word in ("added", "deleted")
        if word in facts
    ]
    count = facts["formulae"]
    words.append(f"{count:,} formula{'e' * (count != 1)} in {facts.get('library', 'the library')}")
    words += ["all as they were written"] if facts.get("verified") else []
    print("; ".join(words))


def _write(
    facts: Sequence[dict[str, str]],
    found: Sequence[list[Hit]],
    dt: float | str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Hits per query, or entries per group: a file, JSON lines, a table on a terminal, or CSV.

    facts: of each query or group; the last is what it is called if it has no name. dt: as `_step`.
    """
    if output is None and not as_json and sys.stdout.isatty():
        show(facts, found, dt)
        return
    rows: list[dict[str, Any]] = [
        {**own, "rank": rank}
        | {name: getattr(hit, name) for name in COLUMNS[1:]}
        | {"formula": hit.formula.to_text(dt=dt)}
        for own, hits in zip(facts, found, strict=True)
        for rank, hit in enumerate(hits, 1)
    ]
    header = [*(facts[0] if facts else ["group"]), *COLUMNS]
    if output is not None:
        save_table(output, rows, header)
    elif as_json:
        write_jsonl(sys.stdout, rows)
    else:
        write_records(sys.stdout, rows, header)


def show(
    facts: Sequence[dict[str, str]], found: Sequence[list[Hit]], dt: float | str | None
) -> None:
    """Print a table per query or group."""
    from rich.table import Table

    for own, hits in zip(facts, found, strict=True):
        names = ("id", "requirement", "similarity", "kernel", "formula", "tags")
        *_, (kind, text) = own.items()
        label = heading(own.get("query_id", ""), own.get("query_title", "")) or text
        table = Table(*names, title_justify="left", title=cell(f"{kind}: {label}"))
        for hit in hits:
            exact = "" if hit.kernel is None else f"{hit.kernel:.4f}"
            if hit.standard_error is not None:
                exact += f" ± {hit.standard_error:.4f}"
            table.add_row(
                str(hit.id), cell(heading(hit.requirement or "", hit.title)),
                f"{hit.similarity:.4f}", exact, cell(hit.formula.to_text(dt=dt)),
                cell(", ".join(hit.tags)),
            )  # fmt: skip
        console().print(table)
