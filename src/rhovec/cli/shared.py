"""What commands share: options that several of them take, and reading formulae, traces and vectors."""

from __future__ import annotations

import inspect
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import RhovecError
from ..formula import Formula, Schema
from ..formula.lines import Line as Line
from ..formula.lines import parse_lines, read_data, read_file, split_id

if TYPE_CHECKING:
    import numpy as np

    from ..kernel import Progress
    from ..traces import BaseMeasure, TraceMeasure, Traces

# -- options ---------------------------------------------------------------------------------------

READING, TRACES = "How formulae are read", "Traces"  # panels of the help


def option(*names: str, help: str, **more: Any) -> Any:
    """An option whose help does not show the default."""
    return typer.Option(*names, help=help, show_default=False, **more)


def output_file(help: str) -> Any:
    return option("--out", "-o", metavar="FILE", help=help)


def formula_files(help: str, **more: Any) -> Any:
    return option("--formulae", "-F", metavar="FILE", help=help, **more)


def picture(help: str) -> Any:
    return option("--plot", metavar="FILE", help=help)


SchemaFile = Annotated[
    Path | None,
    option(
        "--schema",
        metavar="FILE",
        help="A schema (JSON) with the names, units and time step of the formulae.",
        rich_help_panel=READING,
    ),
]
RandomTraces = Annotated[
    int | None,
    option(
        "--n-traces",
        help="Number of random traces, or of --traces to take "
        "(default: 10000 random ones, or all of --traces).",
        rich_help_panel=TRACES,
    ),
]
Points = Annotated[
    int | None, option(help="Points of a random trace (default: 100).", rich_help_panel=TRACES)
]
Seed = Annotated[int, typer.Option(help="Seed of the random traces.", rich_help_panel=TRACES)]
ModelPath = Annotated[
    str | None,
    option(
        "--model",
        metavar="PATH",
        help="A model's folder, or owner/name on the Hugging Face hub (default: the shipped model).",
    ),
]
Device = Annotated[str | None, option(help="cpu or cuda: compute with torch (default: NumPy).")]
JsonLines = Annotated[bool, typer.Option("--json", help="Write JSON, one object per line.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]
FormulaFiles = Annotated[
    list[str] | None,
    formula_files(
        "Read formulae from a file: one per line, `ID: formula` if you like, comments after #; "
        "or the column `formula` of a .csv. - is stdin. May be repeated.",
        rich_help_panel=READING,
    ),
]

# -- groups of options -----------------------------------------------------------------------------


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its groups of options (dataclasses) spread out, as typer expects them."""
    parameters = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: p.annotation for name, p in parameters.items() if is_dataclass(p.annotation)
    }

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    spread: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        group = groups.get(name)
        own = inspect.signature(group, eval_str=True).parameters.values() if group else [parameter]
        spread += [p.replace(kind=p.KEYWORD_ONLY) for p in own]
    run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    return run


@dataclass(frozen=True)
class Reading:
    """Formulae, and how they are read."""

    formulae: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FORMULA",
            help="Formulae; put -- before one that starts with a minus. Without any, and without "
            "-F, they are read from stdin, one per line.",
            show_default=False,
        ),
    ] = None
    files: FormulaFiles = None
    dt: Annotated[
        str | None,
        option(
            metavar="SECONDS",
            help="Sampling step: time bounds are then read as seconds, not as steps.",
            rich_help_panel=READING,
        ),
    ] = None
    rounding: Annotated[
        Literal["nearest", "down", "up"] | None,
        option(
            help="Round time bounds that are not a whole number of steps.", rich_help_panel=READING
        ),
    ] = None
    discrete: Annotated[
        str,
        option(
            metavar="NAMES",
            help="Variables whose values are modes or gears, separated by commas; "
            "gear == 3 then means within 0.5.",
            rich_help_panel=READING,
        ),
    ] = ""
    tolerance: Annotated[
        float | None,
        option(help="Tolerance of == and != on all other variables.", rich_help_panel=READING),
    ] = None

    def lines(self) -> list[Line]:
        """The formulae given: arguments, then those of the -F files, otherwise stdin's."""
        lines = [split_id(text, f"formula {i}") for i, text in enumerate(self.formulae or (), 1)]
        sources = list(self.files or ())
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

    def step(self, traces: Traces | None) -> float | str | None:
        """The sampling step that --dt asks for."""
        if self.dt != "auto":
            return self.dt
        if traces is None or traces.dt is None:
            raise RhovecError(
                "--dt auto needs a time column in the traces; give the step in seconds"
            )
        return traces.dt

    def parse(
        self, lines: Iterable[Line], schema: Schema | None = None, traces: Traces | None = None
    ) -> list[Formula]:
        """Parse lines; a schema says what --dt, --discrete and --tolerance do."""
        names: Iterable[str] = split_names(self.discrete)
        dt, tolerance = self.step(traces), self.tolerance
        if schema is not None:
            if dt is not None or names or tolerance is not None:
                raise RhovecError("--dt, --discrete and --tolerance: the schema says these")
            names = {name for c in schema.channels if c.discrete for name in c.variables}
            dt, tolerance = schema.dt, schema.tolerance
        return parse_lines(
            lines, dt=dt, rounding=self.rounding, discrete=names, tolerance=tolerance
        )


@dataclass(frozen=True)
class TraceReading(Reading):
    """Formulae and traces, and how they are read."""

    dt: Annotated[
        str | None,
        option(
            metavar="SECONDS|auto",
            help="Sampling step: time bounds are then read as seconds, not as steps; "
            "auto takes the step from the traces' time column.",
            rich_help_panel=READING,
        ),
    ] = None
    traces: Annotated[
        list[Path] | None,
        option(
            "--traces",
            "-t",
            metavar="PATH",
            help="A .csv, .tsv, .npy or .parquet file of traces, or a folder of them. "
            "May be repeated.",
            rich_help_panel=TRACES,
        ),
    ] = None
    layout: Annotated[
        Literal["auto", "wide", "long"],
        typer.Option(
            help="wide: one column per variable; long: the columns `variable` and `value`.",
            rich_help_panel=TRACES,
        ),
    ] = "auto"
    id_column: Annotated[
        str | None,
        option(
            help="Column that tells traces apart (default: trace, id or trace_id).",
            rich_help_panel=TRACES,
        ),
    ] = None
    time_column: Annotated[
        str | None, option(help="Column of times (default: time or t).", rich_help_panel=TRACES)
    ] = None
    variables: Annotated[
        str,
        option(
            metavar="NAMES",
            help="Variables to read, separated by commas; for an .npy file, the names of its "
            "variables (default: x_0, x_1, ...).",
            rich_help_panel=TRACES,
        ),
    ] = ""

    def read_traces(self) -> Traces | None:
        """The traces; None without --traces."""
        from ..traces import read_traces

        if self.traces:
            return read_traces(
                self.traces, layout=self.layout, variables=split_names(self.variables) or None,
                id_column=self.id_column, time_column=self.time_column,
            )  # fmt: skip
        if (
            self.layout != "auto"
            or self.variables
            or (self.id_column, self.time_column) != (None,) * 2
        ):
            raise RhovecError(
                "--layout, --variables, --id-column and --time-column go with --traces"
            )
        return None

    def read(self, lines: list[Line], schema: Path | None) -> tuple[list[Formula], Traces | None]:
        """The formulae and the traces that they are about.

        Without --traces, these are random ones: a schema then standardises the formulae.
        """
        known, traces = read_schema(schema), self.read_traces()
        formulae = self.parse(lines, known, traces)
        if traces is None:
            return standardised(formulae, known), None
        require_variables(lines, formulae, traces.variables)
        return formulae, traces


# -- formulae --------------------------------------------------------------------------------------


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
