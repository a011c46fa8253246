"""`rhovec search`: build a library of formulae, change it, ask it, find duplicates in it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..errors import RhovecError
from .shared import (
    Discrete,
    Formulae,
    FormulaFiles,
    IdColumn,
    JsonLines,
    Layout,
    Line,
    Rounding,
    StepOrAuto,
    TimeColumn,
    Tolerance,
    TracePaths,
    Variables,
    parse_formulae,
    progress_bar,
    read_formulae,
    read_traces,
    read_vectors,
    sampling_step,
    split_names,
)

if TYPE_CHECKING:
    from ..formula import Formula, Schema
    from ..kernel import StlKernel
    from ..search import Hit, Vectors
    from ..signals import Traces

ASK, CHANGE, BUILD = "Ask", "Change", "Build"  # panels of the help
ONLY = {  # options of one use
    **dict.fromkeys(("k", "uses", "max_depth", "rerank"), "a question"),
    **dict.fromkeys(("schema", "signals", "seed", "sigma2", "traces", "layout", "id_column",
                     "time_column", "variables"), "--build"),
    "threshold": "--duplicates",
}  # fmt: skip
COLUMNS = ("rank", "id", "formula", "similarity", "kernel", "standard_error", "tags")


def search(
    context: typer.Context,
    library: Annotated[
        Path, typer.Argument(metavar="LIBRARY", help="The library's file.", show_default=False)
    ],
    formulae: Formulae = None,
    files: FormulaFiles = None,
    k: Annotated[int, typer.Option("-k", help="Hits for each formula.", rich_help_panel=ASK)] = 10,
    vectors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ask with the rows of an .npy file instead of formulae.",
            show_default=False,
            rich_help_panel=ASK,
        ),
    ] = None,
    uses: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Only formulae that use all of these variables, with commas between.",
            show_default=False,
            rich_help_panel=ASK,
        ),
    ] = "",
    max_depth: Annotated[
        int | None,
        typer.Option(
            min=0, help="Only formulae nested no deeper.", show_default=False, rich_help_panel=ASK
        ),
    ] = None,
    tags: Annotated[
        str,
        typer.Option(
            metavar="TAGS",
            help="Only formulae that have all of these tags, with commas between; with --build and "
            "--add, tags to give them.",
            show_default=False,
            rich_help_panel=ASK,
        ),
    ] = "",
    rerank: Annotated[
        bool,
        typer.Option(
            "--rerank",
            help="Order hits by the exact kernel, with its standard error.",
            rich_help_panel=ASK,
        ),
    ] = False,
    duplicates: Annotated[
        bool,
        typer.Option(
            "--duplicates",
            help="Instead of asking: groups of formulae that mean nearly the same.",
            rich_help_panel=ASK,
        ),
    ] = False,
    threshold: Annotated[
        float,
        typer.Option(help="Exact similarity of duplicates, at least.", rich_help_panel=ASK),
    ] = 0.99,
    add: Annotated[
        bool, typer.Option("--add", help="Add the formulae.", rich_help_panel=CHANGE)
    ] = False,
    delete: Annotated[
        str,
        typer.Option(
            metavar="IDS",
            help="Delete the entries with these numbers, with commas between.",
            show_default=False,
            rich_help_panel=CHANGE,
        ),
    ] = "",
    build: Annotated[
        bool,
        typer.Option("--build", help="Make a new library of the formulae.", rich_help_panel=BUILD),
    ] = False,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A schema (JSON) of the names, units and time step; the library keeps it.",
            show_default=False,
            rich_help_panel=BUILD,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Vectors of a model instead of signatures: its folder, or default for the shipped "
            "one. To ask, a library needs it again, unless it is the shipped one.",
            show_default=False,
            rich_help_panel=BUILD,
        ),
    ] = None,
    signals: Annotated[
        int | None,
        typer.Option(
            help="Signals of a signature (default: 1000; of --traces all).",
            show_default=False,
            rich_help_panel=BUILD,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the signals.", rich_help_panel=BUILD)] = 0,
    sigma2: Annotated[
        float,
        typer.Option(
            help="Bandwidth: the smaller, the fewer formulae are alike.", rich_help_panel=BUILD
        ),
    ] = 0.2,
    traces: TracePaths = None,
    layout: Layout = "auto",
    id_column: IdColumn = None,
    time_column: TimeColumn = None,
    variables: Variables = "",
    dt: StepOrAuto = None,
    rounding: Rounding = None,
    discrete: Discrete = "",
    tolerance: Tolerance = None,
    as_json: JsonLines = False,
) -> None:
    """Find the formulae of a library that mean the most alike.

    rhovec search lib.rhovec --build -F requirements.stl      make a library

    rhovec search lib.rhovec "always (x_0 > 1)" -k 5          ask it

    rhovec search lib.rhovec --add "x_0 > 1" --tags draft     change it

    rhovec search lib.rhovec --duplicates --json              look for double entries
    """
    from ..search import Index

    commands = {
        "--build": build, "--add": add, "--delete": delete, "--duplicates": duplicates,
        "--vectors": vectors,
    }  # fmt: skip
    chosen = [name for name, given in commands.items() if given]
    if len(chosen) > 1:
        raise RhovecError(f"{chosen[0]} and {chosen[1]} do not go together")
    if (delete or duplicates or vectors) and (formulae or files):
        raise RhovecError(f"{chosen[0]} takes no formulae")
    if traces and model:
        raise RhovecError("--traces go with signatures, not with --model")
    use = (chosen or ["a question"])[0].replace("--vectors", "a question")
    for name, fitting in ONLY.items():
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE" and fitting != use:
            option = "-k" if name == "k" else f"--{name.replace('_', '-')}"
            raise RhovecError(f"options such as {option} go with {fitting}, not with {use}")
    reading = Reading(discrete, rounding, tolerance)
    if build:
        read = read_traces(traces, layout, variables, id_column, time_column)
        known = None if schema is None else read_schema(schema)
        parsed = reading.parse(read_formulae(formulae, files), known, sampling_step(dt, read))
        vectors_of = load_model(model) or kernel_for(parsed, read, known, signals, sigma2, seed)
        with progress_bar("signatures") as progress, Index.build(
            parsed, library, vectors=vectors_of, schema=known, tags=split_names(tags),
            progress=progress,
        ) as index:  # fmt: skip
            tell({"library": str(library), "formulae": len(index)}, as_json)
        return

    with Index.open(library, vectors=load_model(model)) as index:
        if delete:
            ids = numbers(delete)
            index.delete(ids)
            tell({"deleted": ids, "formulae": len(index)}, as_json)
            return
        if duplicates:
            with progress_bar("duplicates") as progress:
                groups = index.duplicates(threshold, progress=progress)
            write("group", [str(i + 1) for i in range(len(groups))], groups, as_json)
            return
        queries: Any
        if vectors:
            queries = read_vectors(vectors)
            labels = [f"row {i}" for i in range(len(queries))]
        else:
            lines = read_formulae(formulae, files)
            queries = reading.parse(lines, index.schema, sampling_step(dt, None))
            labels = [line.text.strip() for line in lines]
        if add:
            with progress_bar("signatures") as progress:
                ids = index.add(queries, tags=split_names(tags), progress=progress)
            tell({"added": ids, "formulae": len(index)}, as_json)
            return
        found = index.search(
            queries, k, variables=split_names(uses), max_depth=max_depth, tags=split_names(tags),
            rerank=rerank,
        )  # fmt: skip
        write("query", labels, found, as_json)


class Reading(NamedTuple):
    """How formulae are read, where no schema says it."""

    discrete: str
    rounding: str | None
    tolerance: float | None

    def parse(self, lines: list[Line], schema: Schema | None, dt: Any) -> list[Formula]:
        if schema is None:
            return parse_formulae(
                lines, self.discrete, dt=dt, rounding=self.rounding, tolerance=self.tolerance
            )
        if dt is not None or self.discrete or self.tolerance is not None:
            raise RhovecError("--dt, --discrete and --tolerance: the library's schema says these")
        names = {name for c in schema.channels if c.discrete for name in c.variables}
        return parse_formulae(
            lines, ",".join(names), dt=schema.dt, rounding=self.rounding, tolerance=schema.tolerance
        )


def read_schema(path: Path) -> Schema:
    from ..formula import Schema

    try:
        return Schema.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    except RhovecError as error:
        raise RhovecError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise RhovecError(f"{path}: no UTF-8 text") from None


def load_model(name: str | None) -> Vectors | None:
    if name is None:
        return None
    from ..models.model import load

    return load(None if name == "default" else name)


def kernel_for(
    formulae: list[Formula],
    traces: Traces | None,
    schema: Schema | None,
    signals: int | None,
    sigma2: float,
    seed: int,
) -> StlKernel:
    """The kernel whose signatures a new library holds."""
    from ..kernel import StlKernel
    from ..search.vectors import usual_kernel
    from ..signals import Trajectories

    if traces is not None:
        return StlKernel(Trajectories(traces.values, traces.variables), signals, sigma2, seed)
    lowered = formulae if schema is None else [schema.lower(phi) for phi in formulae]
    return replace(usual_kernel(lowered, signals), sigma2=sigma2, seed=seed)


def numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in split_names(text)]
    except ValueError:
        raise RhovecError(f"--delete takes numbers with commas between, not {text!r}") from None


def tell(facts: dict[str, Any], as_json: bool) -> None:
    """What was done: one JSON object, or a line."""
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    words = [f"{facts['formulae']:,} formulae"]
    words += [f"in {facts['library']}"] if "library" in facts else ["in the library"]
    changed = [
        f"{word} {', '.join(map(str, facts[word][:8]))}{', ...' if len(facts[word]) > 8 else ''}"
        for word in ("added", "deleted")
        if word in facts
    ]
    print("; ".join([*changed, " ".join(words)]))


def write(kind: str, labels: Sequence[str], found: Sequence[list[Hit]], as_json: bool) -> None:
    """Hits of each query, or entries of each group: JSON lines, a table on a terminal, or CSV."""
    rows = [
        (label, rank, hit.id, str(hit.formula), hit.similarity, hit.kernel, hit.standard_error,
         hit.tags)
        for label, hits in zip(labels, found, strict=True)
        for rank, hit in enumerate(hits, 1)
    ]  # fmt: skip
    if as_json:
        for row in rows:
            print(json.dumps(dict(zip((kind, *COLUMNS), row, strict=True)), ensure_ascii=False))
    elif sys.stdout.isatty():
        show(kind, labels, found)
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([kind, *COLUMNS])
        writer.writerows([*row[:-1], " ".join(row[-1])] for row in rows)


def show(kind: str, labels: Sequence[str], found: Sequence[list[Hit]]) -> None:
    """A table for each query or group."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for label, hits in zip(labels, found, strict=True):
        table = Table("id", "similarity", "kernel", "formula", "tags", title_justify="left")
        table.title = Text(f"{kind}: {label}")
        for hit in hits:
            exact = "" if hit.kernel is None else f"{hit.kernel:.4f}"
            if hit.standard_error is not None:
                exact += f" ± {hit.standard_error:.4f}"
            cells = [str(hit.id), f"{hit.similarity:.4f}", exact]
            table.add_row(*cells, Text(str(hit.formula)), Text(", ".join(hit.tags)))
        Console().print(table)
