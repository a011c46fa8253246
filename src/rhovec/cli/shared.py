"""What commands share: options that several of them take, and reading formulae, traces and vectors."""

from __future__ import annotations

import inspect
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import FormulaError, HorizonError, Problem, RequirementError, RhovecError
from ..formula import Formula, Schema
from ..formula.requirements import (
    Requirement,
    Statement,
    read_bytes,
    read_data,
    require_some,
    resolve,
    split_header,
)
from .messages import in_options
from .output import note

if TYPE_CHECKING:
    import numpy as np

    from ..kernel import Progress
    from ..models.model import Model
    from ..spaces import Space
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
        "--space",
        "--model",
        metavar="PATH",
        help="A model's folder, or owner/name on the Hugging Face hub (default: the shipped model).",
    ),
]
SpacePath = Annotated[
    str | None,
    option(
        "--space",
        "--model",
        metavar="PATH",
        help="Folder of a space: one of your traces (`rhovec train space`), or a model, also as "
        "owner/name on the Hugging Face hub (default: the shipped model).",
    ),
]
Device = Annotated[str | None, option(help="cpu or cuda: compute with torch (default: NumPy).")]
JsonLines = Annotated[bool, typer.Option("--json", help="Write JSON, one object per line.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]
FormulaFiles = Annotated[
    list[str] | None,
    formula_files(
        "Read a requirement file: lines `ID: formula`, definitions, comments after #; or the columns "
        "id, title, tags and formula of a .csv. - is stdin. May be repeated.",
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
class Files:
    """Requirement files."""

    files: FormulaFiles = None
    settings: Annotated[
        list[str] | None,
        option(
            "--set",
            metavar="NAME=VALUE",
            help="Replace the value of a parameter of the files. May be repeated.",
            rich_help_panel=READING,
        ),
    ] = None
    skip_invalid: Annotated[
        bool,
        typer.Option(
            "--skip-invalid",
            help="Go on without requirements that are wrong, and list them on stderr.",
            rich_help_panel=READING,
        ),
    ] = False

    def contents(self, others: bool) -> list[tuple[str, bytes]]:
        """Name and content of the -F files, otherwise of stdin, unless there are others."""
        files = list(self.files or ())
        if not files and not others:
            if sys.stdin is None or sys.stdin.isatty():
                raise RhovecError(
                    "no formula given: write it as an argument, in a file (-F), or pipe it"
                )
            files = ["-"]
        return [
            ("stdin", sys.stdin.buffer.read()) if file == "-" else (file, read_bytes(file))
            for file in files
        ]

    def parameters(self) -> dict[str, str]:
        """What --set asks for."""
        return dict(_pair(text, "--set", "T=3") for text in self.settings or ())

    def left_out(self, problems: Sequence[Problem]) -> None:
        """Raise what is wrong; with --skip-invalid, only tell."""
        if problems and not self.skip_invalid:
            raise RequirementError(problems)
        if problems:
            count = f"{len(problems):,} requirement{'' if len(problems) == 1 else 's'}"
            note(f"left out {count}:", *(in_options(str(problem)) for problem in problems))


@dataclass(frozen=True)
class Reading(Files):
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
    units: Annotated[
        list[str] | None,
        option(
            metavar="NAME=UNIT",
            help="Unit of a variable, for thresholds in other units: with --units speed=m/s, "
            "speed > 120 km/h is converted. May be repeated.",
            rich_help_panel=READING,
        ),
    ] = None
    labels: Annotated[
        list[str] | None,
        option(
            metavar="NAME=LABELS",
            help="Names of a variable's values: with --labels gear=P:0,D:3 you can write "
            'gear == "D". May be repeated.',
            rich_help_panel=READING,
        ),
    ] = None

    def requirements(
        self,
        schema: Schema | None = None,
        traces: Traces | None = None,
        contents: list[tuple[str, bytes]] | None = None,
        dialect: str | None = None,
    ) -> list[Requirement]:
        """The arguments, then what the -F files hold, otherwise stdin.

        A schema says what --dt, --discrete and --tolerance do. Arguments may use what files define.
        contents: of the files or of stdin, if they were read before.
        """
        arguments = self.arguments()
        if contents is None:
            contents = self.contents(bool(arguments))
        statements = [s for name, data in contents for s in read_data(data, name)]
        found, problems = resolve(
            statements + arguments,
            self.parameters(),
            **self.options(schema, traces),
            dialect=dialect,
        )
        self.left_out(problems)
        require_some(found, problems, ", ".join(name for name, _ in contents) or "the arguments")
        own = {argument.source for argument in arguments}
        return sorted(found, key=lambda requirement: requirement.source not in own)

    def texts(self, contents: Iterable[tuple[str, bytes]]) -> list[str]:
        """The texts of all requirements and definitions; contents: of the files or of stdin."""
        found = [statement for name, data in contents for statement in read_data(data, name)]
        return [statement.text for statement in [*found, *self.arguments()]]

    def arguments(self) -> list[Statement]:
        return [split_header(text, f"formula {i}") for i, text in enumerate(self.formulae or (), 1)]

    def step(self, traces: Traces | None) -> float | str | None:
        """The sampling step that --dt asks for."""
        if self.dt != "auto":
            return self.dt
        if traces is None or traces.dt is None:
            raise RhovecError(
                "--dt auto needs a time column in the traces; give the step in seconds"
            )
        return traces.dt

    def options(self, schema: Schema | None, traces: Traces | None) -> dict[str, Any]:
        """The options of `parse`."""
        own: dict[str, Any] = {"dt": self.step(traces), "tolerance": self.tolerance}
        own["discrete"] = split_names(self.discrete)
        own["units"] = dict(_pair(text, "--units", "speed=km/h") for text in self.units or ())
        if schema is not None:
            if any(value not in (None, [], {}) for value in own.values()):
                raise RhovecError(
                    "--dt, --discrete, --tolerance and --units: the schema says these"
                )
            own = schema.options()
        return {**own, "rounding": self.rounding, "labels": self.codes()}

    def codes(self) -> dict[str, dict[str, float]]:
        """What --labels asks for."""
        found = {}
        for text in self.labels or ():
            name, listed = _pair(text, "--labels", example := "gear=P:0,D:3")
            codes: dict[str, float] = {}
            for item in listed.split(","):
                label, _, code = item.rpartition(":")
                try:
                    codes[label.strip()] = int(code)
                except ValueError:
                    raise RhovecError(f"--labels {text}: write it as {example}") from None
            found[name] = codes
        return found


@dataclass(frozen=True)
class TraceFiles:
    """Traces, and how they are read."""

    traces: Annotated[
        list[Path] | None,
        option(
            "--traces",
            "-t",
            metavar="PATH",
            help="A .csv, .tsv, .parquet, .mat, .npy or .npz file of traces, or a folder of them. "
            "May be repeated.",
            rich_help_panel=TRACES,
        ),
    ] = None
    layout: Annotated[
        Literal["auto", "wide", "long", "rows"],
        typer.Option(
            help="wide: one column per variable; long: the columns `variable` and `value`; rows: one "
            "row per trace.",
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
        str | None,
        option(help="Column of times (default: time, t or timestamp).", rich_help_panel=TRACES),
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

    def chosen(self) -> list[str] | None:
        """What --variables names; None for all."""
        return split_names(self.variables) or None

    def read_traces(self, mentioned: Iterable[str] = (), skip_texts: bool = False) -> Traces | None:
        """The traces; None without --traces.

        mentioned: texts. What is wrong in columns that none of them names does not matter.
        skip_texts: leave out columns without a number, and say so.
        """
        from ..formula.vocabulary import names_in
        from ..traces import read_traces

        if self.traces:
            found = read_traces(
                self.traces, layout=self.layout, variables=self.chosen(),
                id_column=self.id_column, time_column=self.time_column,
                mentioned=names_in(mentioned), skip_texts=skip_texts,
            )  # fmt: skip
            tell_left_out(found)
            return found
        given = (self.layout, self.variables, self.id_column, self.time_column)
        if given != ("auto", "", None, None):
            raise RhovecError(
                "--layout, --variables, --id-column and --time-column go with --traces"
            )
        return None


@dataclass(frozen=True)
class TraceReading(TraceFiles, Reading):
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

    def read(self, schema: Path | None) -> tuple[list[Requirement], Traces | None]:
        """The requirements and the traces that they are about.

        Without --traces, these are random ones: a schema then standardises the formulae.
        """
        contents = self.contents(bool(self.formulae))
        known, traces = read_schema(schema), self.read_traces(self.texts(contents))
        return self.about(self.requirements(known, traces, contents), traces, known), traces

    def about(
        self, found: list[Requirement], traces: Traces | None, schema: Schema | None
    ) -> list[Requirement]:
        """The requirements as they are about the traces, or about random ones without any."""
        if traces is None:
            return standardised(found, schema)
        names = dict.fromkeys(traces.variables)
        problems = [unknown_variables(requirement, names) for requirement in found]
        self.left_out([problem for problem in problems if problem])
        left = [r for r, problem in zip(found, problems, strict=True) if not problem]
        if not left:
            raise RhovecError("no formula is left: the traces lack variables of all of them")
        return left


# -- formulae --------------------------------------------------------------------------------------


def standardised(requirements: list[Requirement], schema: Schema | None) -> list[Requirement]:
    """The formulae over x_0, x_1, ... that models and random traces are about."""
    if schema is None:
        return requirements
    with naming(requirements, lambda formulae: [schema.lower(phi) for phi in formulae]):
        return [replace(r, formula=schema.lower(r.formula)) for r in requirements]


def load_model(path: str | None, device: str | None) -> Model:
    """What --model names, for a command that a space of traces does not do."""
    from ..spaces import Space, load

    found = load(path, device)
    if isinstance(found, Space):
        raise RhovecError(f"--space {path}: a space of traces; this command needs a model")
    return found


def read_for(
    space: Model | Space,
    reading: Reading,
    schema: Path | None,
    contents: list[tuple[str, bytes]] | None = None,
) -> list[Requirement]:
    """The requirements as a space embeds them; a schema lowers those for a model."""
    own = schema_for(space, schema)
    found = reading.requirements(own, contents=contents)
    return found if own is None or schema is None else standardised(found, own)


def schema_for(space: object, path: Path | None) -> Schema | None:
    """The schema of a space of traces, or what --schema names."""
    own = getattr(space, "schema", None)
    if own is not None and path is not None:
        raise RhovecError("--schema is for models: the space has its own names, units and scales")
    return own if own is not None else read_schema(path)


def unknown_variables(requirement: Requirement, names: Mapping[str, object]) -> Problem | None:
    """What is wrong with a formula that uses variables which the traces do not have."""
    from ..traces.reading import listed

    missing = [name for name in requirement.formula.variables if name not in names]
    if not missing:
        return None
    return Problem(
        requirement.place,
        f"the formula uses {listed(missing)}, but the traces have {listed(list(names))}; "
        "--variables names those of an .npy file",
    )


@contextmanager
def naming(
    requirements: Sequence[Requirement], probe: Callable[[list[Formula]], object]
) -> Iterator[None]:
    """Work on requirements; an error that is due to one of them names it.

    probe: does the same work, or enough of it to fail in the same way, on some of the formulae.
    """

    def error_of(some: Sequence[Requirement]) -> RhovecError | None:
        try:
            probe([requirement.formula for requirement in some])
        except RhovecError as error:
            return error
        return None

    try:
        yield
    except RhovecError:
        left = list(requirements)
        found = error_of(left) if left else None
        while found and len(left) > 1:
            middle = len(left) // 2
            left = left[:middle] if error_of(left[:middle]) else left[middle:]
            found = error_of(left)
        if found is None:
            raise  # it is not about a formula, or it takes several of them
        about_formula = isinstance(found, FormulaError | HorizonError)
        if about_formula or not all(error_of([other]) for other in requirements[:2]):
            message = str(found).replace("formula 0", "the formula")
            raise RhovecError(f"{left[0].place}: {message}") from None
        raise


def origins(requirements: Sequence[Requirement], before: str = "") -> list[dict[str, str]]:
    """Identifier, title and source for the records of requirements, if some have a name.

    before: put before the names of the fields.
    """
    if not any(r.id or r.title for r in requirements):
        return [{} for _ in requirements]
    return [
        {f"{before}{key}": getattr(r, key) for key in ("id", "title", "source")}
        for r in requirements
    ]


def formulae_of(requirements: Iterable[Requirement]) -> list[Formula]:
    return [requirement.formula for requirement in requirements]


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


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    """Both sides of `speed=km/h`; names may have an equals sign, what follows has none."""
    name, _, value = (part.strip() for part in text.rpartition("="))
    if not name or not value:
        raise RhovecError(f"{option} {text}: write it as {example}")
    return name, value


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


def tell_left_out(traces: Traces) -> None:
    """Say which columns were left out as they hold no numbers."""
    from ..traces.reading import listed

    if traces.left_out:
        note(f"columns without numbers, left out: {listed(traces.left_out)}")


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
