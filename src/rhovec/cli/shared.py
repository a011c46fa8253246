"""What commands share: options that several of them take, and reading formulae, traces and vectors."""

from __future__ import annotations

import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import RhovecError
from ..formula import Formula, Schema
from ..formula.lines import Line as Line
from ..formula.lines import parse_lines, read_data, read_file, split_id

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Schema
    from ..kernel import Progress
    from ..traces import BaseMeasure, TraceMeasure, Traces

# -- options: formulae -----------------------------------------------------------------------------

READING, TRACES = "How formulae are read", "Traces"  # panels of the help

Formulae = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FORMULA",
        help="Formulae; put -- before one that starts with a minus. Without any, and without -F, "
        "they are read from stdin, one per line.",
        show_default=False,
    ),
]
FormulaFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--formulae",
        "-F",
        metavar="FILE",
        help="Read formulae from a file: one per line, `ID: formula` if you like, comments after #; "
        "or the column `formula` of a .csv. - is stdin. May be repeated.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="A schema (JSON) with the names, units and time step of the formulae.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
StepOrAuto = Annotated[
    str | None,
    typer.Option(
        "--dt",
        metavar="SECONDS|auto",
        help="Sampling step: time bounds are then read as seconds, not as steps; "
        "auto takes the step from the traces' time column.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
Step = Annotated[
    float | None,
    typer.Option(
        "--dt",
        help="Sampling step in seconds: time bounds are then read as seconds, not as steps.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
Rounding = Annotated[
    Literal["nearest", "down", "up"] | None,
    typer.Option(
        help="Round time bounds that are not a whole number of steps.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
Discrete = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Variables whose values are modes or gears, separated by commas; "
        "gear == 3 then means within 0.5.",
        show_default=False,
        rich_help_panel=READING,
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        help="Tolerance of == and != on all other variables.",
        show_default=False,
        rich_help_panel=READING,
    ),
]

# -- options: traces -------------------------------------------------------------------------------

TracePaths = Annotated[
    list[Path] | None,
    typer.Option(
        "--traces",
        "-t",
        metavar="PATH",
        help="A .csv, .tsv, .npy or .parquet file of traces, or a folder of them. May be repeated.",
        show_default=False,
        rich_help_panel=TRACES,
    ),
]
Layout = Annotated[
    Literal["auto", "wide", "long"],
    typer.Option(
        help="wide: one column per variable; long: the columns `variable` and `value`.",
        rich_help_panel=TRACES,
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="Column that tells traces apart (default: trace, id or trace_id).",
        show_default=False,
        rich_help_panel=TRACES,
    ),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of times (default: time or t).", show_default=False, rich_help_panel=TRACES
    ),
]
Variables = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Variables to read, separated by commas; for an .npy file, the names of its variables "
        "(default: x_0, x_1, ...).",
        show_default=False,
        rich_help_panel=TRACES,
    ),
]
RandomTraces = Annotated[
    int | None,
    typer.Option(
        "--n-traces",
        help="Number of random traces, or of --traces to take "
        "(default: 10000 random ones, or all of --traces).",
        show_default=False,
        rich_help_panel=TRACES,
    ),
]
Points = Annotated[
    int | None,
    typer.Option(
        help="Points of a random trace (default: 100).", show_default=False, rich_help_panel=TRACES
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the random traces.", rich_help_panel=TRACES)]

# -- options: models and output --------------------------------------------------------------------

ModelPath = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PATH",
        help="A model's folder, or owner/name on the Hugging Face hub (default: the shipped model).",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="cpu or cuda: compute with torch (default: NumPy).", show_default=False),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Write JSON, one object per line.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]

# -- formulae --------------------------------------------------------------------------------------


def read_formulae(arguments: Sequence[str] | None, files: Sequence[str] | None) -> list[Line]:
    """The formulae of a command: its arguments, then those of its -F files, otherwise stdin's."""
    lines = [split_id(text, f"formula {i}") for i, text in enumerate(arguments or (), 1)]
    sources = list(files or ())
    if not lines and not sources:
        if sys.stdin is None or sys.stdin.isatty():
            raise RhovecError(
                "no formula given: write it as an argument, in a file (-F), or pipe it"
            )
        sources = ["-"]
    for source in sources:
        stdin = source == "-"
        lines += read_data(sys.stdin.buffer.read(), "stdin") if stdin else read_file(source)
    return lines


def parse_formulae(
    lines: Iterable[Line],
    discrete: str = "",
    *,
    schema: Schema | None = None,
    dt: float | str | None = None,
    rounding: str | None = None,
    tolerance: float | None = None,
) -> list[Formula]:
    """Parse what `read_formulae` read; a schema says what --dt, --discrete and --tolerance do."""
    names: Iterable[str] = split_names(discrete)
    if schema is not None:
        if dt is not None or names or tolerance is not None:
            raise RhovecError("--dt, --discrete and --tolerance: the schema says these")
        names = {name for c in schema.channels if c.discrete for name in c.variables}
        dt, tolerance = schema.dt, schema.tolerance
    return parse_lines(lines, dt=dt, rounding=rounding, discrete=names, tolerance=tolerance)


def standardised(formulae: list[Formula], schema: Schema | None) -> list[Formula]:
    """The formulae over x_0, x_1, ... that models and random traces are about."""
    return formulae if schema is None else [schema.lower(phi) for phi in formulae]


def require_variables(
    lines: Iterable[Line], formulae: Iterable[Formula], names: Iterable[str]
) -> None:
    """Refuse a formula that uses a variable which the traces do not have, and say where it is."""
    from ..traces.reading import listed

    has = list(names)
    known = set(has)
    for line, phi in zip(lines, formulae, strict=True):
        missing = [name for name in phi.variables if name not in known]
        if missing:
            raise RhovecError(
                f"{line.place}: the formula uses {listed(missing)}, but the traces have "
                f"{listed(has)}; --variables names those of an .npy file"
            )


def read_schema(path: Path | None) -> Schema | None:
    """What --schema names; None without it."""
    if path is None:
        return None
    try:
        return Schema.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RhovecError(f"{path}: no UTF-8 text") from None
    except RhovecError as error:
        raise RhovecError(f"{path}: {error}") from None


def split_names(text: str) -> list[str]:
    """The names in `a, b`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise RhovecError(f"{text!r} holds no name; separate names by commas")
    return names


# -- traces and vectors ----------------------------------------------------------------------------


def read_vectors(path: Path) -> np.ndarray:
    """(n, D): the rows of an .npy file; a single vector may be given as (D,)."""
    import numpy as np

    try:
        with path.open("rb") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
        if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or not array.size:
            raise ValueError
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError):
        raise RhovecError(f"{path}: no .npy file of numbers, one vector per row") from None
    return np.atleast_2d(array)


def read_traces(
    paths: Sequence[Path] | None,
    layout: Literal["auto", "wide", "long"],
    variables: str,
    id_column: str | None,
    time_column: str | None,
) -> Traces | None:
    """What --traces and the options that go with it ask for; None without --traces."""
    from ..traces import read_traces

    if not paths:
        if layout != "auto" or variables or (id_column, time_column) != (None, None):
            raise RhovecError(
                "--layout, --variables, --id-column and --time-column go with --traces"
            )
        return None
    return read_traces(
        paths,
        layout=layout,
        variables=split_names(variables) or None,
        id_column=id_column,
        time_column=time_column,
    )


def sampling_step(dt: str | None, traces: Traces | None) -> float | str | None:
    """The step that --dt asks for."""
    if dt != "auto":
        return dt
    if traces is None or traces.dt is None:
        raise RhovecError("--dt auto needs a time column in the traces; give the step in seconds")
    return traces.dt


def choose_measure(
    formulae: list[Formula], traces: Traces | None, points: int | None
) -> BaseMeasure | TraceMeasure:
    """The traces, or else random ones in the variables that the formulae use."""
    from ..compare import default_measure
    from ..traces import TraceMeasure

    if traces is None:
        return default_measure(formulae, 100 if points is None else points)
    if points is not None:
        raise RhovecError("--points goes with random traces; --traces have points of their own")
    return TraceMeasure(traces.values, traces.variables)


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar on stderr if that is a terminal; yields a function that takes the share done."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bars:
        task = bars.add_task(title, total=1.0)
        yield lambda share: bars.update(task, completed=share)
