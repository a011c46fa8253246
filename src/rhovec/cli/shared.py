"""What the commands share: common options, formulae in, and files written whole or not at all."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from ..errors import MissingDependencyError, ParseError, RhovecError
from ..files import writing
from ..formula import Formula, parse

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from ..formula import Schema
    from ..kernel import Progress
    from ..signals import BaseMeasure, Traces, Trajectories

Formulae = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FORMULA",
        help="Formulae; put -- before one that starts with a minus. Without any, and without -F, "
        "they are read from stdin, one a line.",
        show_default=False,
    ),
]
FormulaFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--formulae",
        "-F",
        metavar="FILE",
        help="Read formulae from a file, one a line; lines that start with # are skipped; "
        "- is stdin. May be repeated.",
        show_default=False,
    ),
]
Rounding = Annotated[
    Literal["nearest", "down", "up"] | None,
    typer.Option(help="Round time bounds that are no whole number of steps.", show_default=False),
]
Discrete = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Variables whose values are modes or gears, with commas between; "
        "gear == 3 then means within 0.5.",
        show_default=False,
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(help="Tolerance of == and != on all other variables.", show_default=False),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]
Seed = Annotated[int, typer.Option(help="Seed of the signals.")]
Points = Annotated[
    int | None,
    typer.Option(help="Points of a random signal (default: 100).", show_default=False),
]

TracePaths = Annotated[
    list[Path] | None,
    typer.Option(
        "--traces",
        "-t",
        metavar="PATH",
        help="A .csv, .tsv, .npy or .parquet file of traces, or a folder of them. May be repeated.",
        show_default=False,
    ),
]
Layout = Annotated[
    Literal["auto", "wide", "long"],
    typer.Option(help="wide: a column a variable; long: columns variable and value."),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="Column that tells traces apart (default: trace, id or trace_id).",
        show_default=False,
    ),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(help="Column of times (default: time or t).", show_default=False),
]
Variables = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Variables to read, with commas between; they name those of an .npy file "
        "(default there: x_0, x_1, ...).",
        show_default=False,
    ),
]
StepOrAuto = Annotated[
    str | None,
    typer.Option(
        "--dt",
        metavar="SECONDS|auto",
        help="Sampling step: time bounds are then read as seconds, not as steps; "
        "auto takes the step of the traces' time column.",
        show_default=False,
    ),
]


_IDENTIFIER = re.compile(r"[\w.\-/]+")  # of a requirement; a formula has no colon


class Line(NamedTuple):
    """A formula's text and where it stands: `requirements.stl, line 3`, or `formula 2`."""

    text: str
    place: str


def read_formulae(arguments: Sequence[str] | None, files: Sequence[str] | None) -> list[Line]:
    """The formulae of a command: its arguments, then those of its -F files, otherwise stdin's."""
    lines = [Line(text, f"formula {i}") for i, text in enumerate(arguments or (), 1)]
    sources = list(files or ())
    if not lines and not sources:
        if sys.stdin is None or sys.stdin.isatty():
            raise RhovecError(
                "no formula given: write it as an argument, in a file (-F), or pipe it"
            )
        sources = ["-"]
    for source in sources:
        name = "stdin" if source == "-" else source
        try:
            data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
            text = data.decode("utf-8-sig")
        except OSError as error:
            raise RhovecError(f"{name}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            number = data.count(b"\n", 0, error.start) + 1
            raise RhovecError(f"{name}, line {number}: no UTF-8 text") from None
        found = [
            Line(line.rstrip(), f"{name}, line {number}")
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not found:
            raise RhovecError(f"{name}: there is no formula in it")
        lines += found
    return lines


def parse_formulae(lines: Iterable[Line], discrete: str = "", **options: Any) -> list[Formula]:
    """Parse what `read_formulae` read; options are those of `rv.parse`."""
    formulae = []
    for text, place in lines:
        try:
            formulae.append(parse(text, discrete=split_names(discrete), **options))
        except ParseError as error:
            line = f"line {error.line}, " if "\n" in text else ""
            raise RhovecError(f"{place}, {line}column {error.column}: {error.message}") from None
    return formulae


def split_requirements(lines: Iterable[Line]) -> tuple[list[str | None], list[Line]]:
    """Split `REQ-12: always x_0 > 1` into identifier and formula; None for a line without one."""
    identifiers: list[str | None] = []
    formulae = []
    for text, place in lines:
        head, colon, formula = text.partition(":")
        named = bool(colon) and _IDENTIFIER.fullmatch(head.strip()) is not None
        identifiers.append(head.strip() if named else None)
        # Blanks in place of the identifier: columns in error messages stay those of the line.
        formulae.append(Line(" " * (len(head) + 1) + formula if named else text, place))
    return identifiers, formulae


def split_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise RhovecError(f"{text!r} holds no name; put commas between names")
    return names


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file at `path` only once all of it is written."""
    try:
        with writing(path) as stream:
            yield stream
    except OSError as error:
        raise RhovecError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def replacing_text(path: Path) -> Iterator[IO[str]]:
    """`replacing` for text in UTF-8."""
    with replacing(path) as stream:
        # A file name, and so the name of a trace, may hold bytes that are no text.
        text = io.TextIOWrapper(stream, "utf-8", "backslashreplace", newline="", write_through=True)
        yield text
        text.detach()


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


def read_vectors(path: Path) -> np.ndarray:
    """(n, D) of an .npy file: a row a vector; a single one may be given as (D,)."""
    import numpy as np

    try:
        with path.open("rb") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
        if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or not array.size:
            raise ValueError
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError):
        raise RhovecError(f"{path}: no .npy file of numbers, a row a vector") from None
    return np.atleast_2d(array)


def save_array(path: Path, array: np.ndarray) -> None:
    import numpy as np

    data = io.BytesIO()  # writing to a file itself, numpy does not notice that the disk is full
    np.save(data, array, allow_pickle=False)
    with replacing(path) as stream:
        stream.write(data.getbuffer())


def require_output(path: Path | None, suffixes: Sequence[str], as_json: bool = False) -> str:
    """The suffix of a file to write, which must be one of these; empty if there is no path.

    What is wrong with its folder is said now, not after the work. as_json: whether --json was given.
    """
    if path is None:
        return ""
    if as_json:
        raise RhovecError("--json writes to stdout; with --out the file's name says the format")
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise RhovecError(f"{path}: the name must end in {', '.join(suffixes)}")
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise RhovecError(f"{path}: cannot be written: {why}")
    return suffix


def read_traces(
    paths: Sequence[Path] | None,
    layout: Literal["auto", "wide", "long"],
    variables: str,
    id_column: str | None,
    time_column: str | None,
) -> Traces | None:
    """What --traces and the options that go with it name; None without --traces."""
    from ..signals import read_traces

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
) -> BaseMeasure | Trajectories:
    """The traces, or else random signals in the variables that the formulae use."""
    from ..compare import default_measure
    from ..signals import Trajectories

    if traces is None:
        return default_measure(formulae, 100 if points is None else points)
    if points is not None:
        raise RhovecError("--points goes with random signals; --traces have points of their own")
    return Trajectories(traces.values, traces.variables)


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            'drawing needs matplotlib: pip install "rhovec[plots]"'
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    with replacing(path) as stream:
        figure.savefig(stream, dpi=130, format="png", bbox_inches="tight")


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar on stderr if that is a terminal; yields what takes the share that is done."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bars:
        task = bars.add_task(title, total=1.0)
        yield lambda share: bars.update(task, completed=share)
