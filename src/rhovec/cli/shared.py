"""What commands share: options that several of them take, and reading formulae and traces."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from ..errors import Problem, RequirementError, RhovecError, counted
from ..files import read_file
from ..formula import Formula, Schema
from ..formula.options import exact_step
from ..formula.requirements import (
    Requirement,
    Statement,
    read_data,
    require_some,
    resolve,
    split_header,
)
from .inputs import (
    pair,
    read_schema,
    refused_by,
    schema_for,
    split_names,
    standardised,
    tell_left_out,
    unknown_variables,
)
from .messages import in_options
from .output import arguments, note

if TYPE_CHECKING:
    from ..models.model import Model
    from ..spaces import Space
    from ..traces import Traces

# -- options ---------------------------------------------------------------------------------------

FILES = (".csv", ".tsv", ".parquet", ".mat", ".npy", ".npz", ".stl", ".txt")  # no formula ends so
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
SIGMA2 = 0.2
Sigma2 = Annotated[
    float | None,
    option(help=f"Bandwidth: the smaller, the fewer formulae are similar (default: {SIGMA2})."),
]
TIME_UNIT = "Unit of the times: s, ms, us, ns, min or h (default: that of the header, or s)."
ModelPath = Annotated[
    str | None,
    option(
        "--space",
        "--model",
        metavar="PATH",
        help="A model's folder, `small` for the smaller of the shipped ones, or owner/name on the "
        "Hugging Face hub (default: the shipped model).",
    ),
]
SpacePath = Annotated[
    str | None,
    option(
        "--space",
        "--model",
        metavar="PATH",
        help="Folder of a space: one of your traces (`rhovec train space`), or a model; also "
        "`small` for the smaller of the shipped ones, or owner/name on the Hugging Face hub "
        "(default: the shipped model).",
    ),
]
Rounding = Annotated[
    Literal["nearest", "down", "up"] | None,
    option(help="Round time bounds that are not a whole number of steps.", rich_help_panel=READING),
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
        given = arguments.set(dict(values))
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        try:
            command(**values)
        finally:
            arguments.reset(given)

    spread: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        group = groups.get(name)
        own = [parameter]
        if group:  # each class of it may be of another module
            hints = get_type_hints(group, include_extras=True)
            given = inspect.signature(group).parameters.values()
            own = [p.replace(annotation=hints[p.name]) for p in given]
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
        for file in files:
            if "://" in file:
                raise RhovecError(
                    f"{file}: formulae are read from files of this machine; `rhovec embed` reads them "
                    "from object storage, too: add --results"
                )
        return [
            ("stdin", sys.stdin.buffer.read()) if file == "-" else (file, read_file(file))
            for file in files
        ]

    def parameters(self) -> dict[str, str]:
        """What --set asks for."""
        return dict(pair(text, "--set", "T=3") for text in self.settings or ())

    def left_out(self, problems: Sequence[Problem]) -> None:
        """Raise what is wrong; with --skip-invalid, only tell."""
        if problems and not self.skip_invalid:
            raise RequirementError(problems)
        if problems:
            note(
                f"left out {counted(len(problems), 'requirement')}:",
                *(in_options(str(problem)) for problem in problems),
            )

    def accepted(
        self, found: list[Requirement], probe: Callable[[list[Formula]], object]
    ) -> list[Requirement]:
        """The requirements; with --skip-invalid, without those on which the probe fails."""
        problems = list(refused_by(probe, found)) if self.skip_invalid else []
        if problems and len(problems) == len(found):
            raise RequirementError(problems)
        self.left_out(problems)
        gone = {problem.place for problem in problems}
        return [one for one in found if one.place not in gone]


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
    rounding: Rounding = None
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
        schema: Schema | Mapping[str, Any] | None = None,
        traces: Traces | None = None,
        contents: list[tuple[str, bytes]] | None = None,
        dialect: str | None = None,
    ) -> list[Requirement]:
        """The arguments, then what the -F files hold, otherwise stdin.

        A schema, or options of `parse` that a library was built with, say what --dt, --discrete,
        --tolerance and --units do. Arguments may use what files define.
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
        for text in self.formulae or ():
            if text.endswith(FILES) and (os.path.isfile(text) or not set(text) & set(" <>=")):
                raise RhovecError(
                    f"{text} is a file, not a formula; each file of traces takes a -t, and each file "
                    "of formulae a -F"
                )
        return [split_header(text, f"formula {i}") for i, text in enumerate(self.formulae or (), 1)]

    def step(self, traces: Traces | None) -> float | str | None:
        """The sampling step that --dt asks for."""
        if self.dt != "auto":
            return self.dt
        if traces is None or traces.dt is None:
            raise RhovecError(
                "--dt auto needs a time column in the traces, and at least two samples; give the step "
                "in seconds"
            )
        return traces.dt

    def options(
        self, schema: Schema | Mapping[str, Any] | None, traces: Traces | None
    ) -> dict[str, Any]:
        """The options of `parse`."""
        own: dict[str, Any] = {"dt": self.step(traces), "tolerance": self.tolerance}
        own["discrete"] = split_names(self.discrete)
        own["units"] = dict(pair(text, "--units", "speed=km/h") for text in self.units or ())
        own["labels"] = self.codes()
        if schema is not None:
            known = schema.options() if isinstance(schema, Schema) else schema
            for name, value in known.items():
                asked = own.get(name)
                if not isinstance(schema, Schema) and asked and isinstance(value, dict | list):
                    asked, value = _joined(asked, value)  # it may say nothing about some variables
                if asked not in (None, [], {}) and not _same(name, asked, value):
                    raise RhovecError(
                        f"--{name}: the schema, the space or the library says this; leave it out"
                    )
                own[name] = value
        if traces is not None:
            own["units"] = {**traces.units, **own["units"]}
        rounding = self.rounding or own.get("rounding")
        return {**own, "rounding": rounding}

    def kept(self, traces: Traces | None) -> dict[str, Any]:
        """The options of `parse` that a library keeps for the formulae that come later."""
        found = self.options(None, traces)
        return {name: value for name, value in found.items() if value not in (None, [], {})}

    def codes(self) -> dict[str, dict[str, float]]:
        """What --labels asks for."""
        found = {}
        for text in self.labels or ():
            name, listed = pair(text, "--labels", example := "gear=P:0,D:3")
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
            help="A .csv, .tsv, .txt, .parquet, .mat, .npy or .npz file of traces, or a folder of them. "
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
    time_unit: Annotated[str | None, option(help=TIME_UNIT, rich_help_panel=TRACES)] = None
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
                id_column=self.id_column, time_column=self.time_column, time_unit=self.time_unit,
                mentioned=names_in(mentioned), skip_texts=skip_texts,
            )  # fmt: skip
            tell_left_out(found)
            return found
        given = (self.layout, self.variables, self.id_column, self.time_column, self.time_unit)
        if given != ("auto", "", None, None, None):
            raise RhovecError(
                "--layout, --variables, --id-column, --time-column and --time-unit go with --traces"
            )
        return None


def _joined(asked: Any, known: Any) -> tuple[Any, Any]:
    """Lists or dicts of options by variable: what is asked for in addition, if nothing contradicts."""
    if isinstance(known, list):
        both = sorted({*known, *asked})
        return both, both
    return {**known, **asked}, {**asked, **known}


def _same(name: str, asked: Any, known: Any) -> bool:
    """Whether an option asks for what is known anyway."""
    return exact_step(asked) == exact_step(known) if name == "dt" and known else asked == known


def have_bounds(requirements: Iterable[Requirement]) -> bool:
    """Whether a time bound stands in one of them, other than 0 and inf."""
    return any((one.formula.code[:, 1:3] > 0).any() for one in requirements)


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

    def read_traces(self, mentioned: Iterable[str] = (), skip_texts: bool = False) -> Traces | None:
        found = super().read_traces(mentioned, skip_texts)
        if found and found.dt and self.dt not in (None, "auto") and (
            float(exact_step(self.dt)) != found.dt
        ):  # fmt: skip
            note(
                f"warning: --dt {self.dt}, but the times of the traces are {found.dt:g} s apart; "
                "--dt auto takes these"
            )
        return found

    def read(self, schema: Path | None) -> tuple[list[Requirement], Traces | None]:
        """The requirements and the traces that they are about.

        Without --traces, these are random ones: a schema then standardises the formulae.
        """
        contents = self.contents(bool(self.formulae))
        known, traces = read_schema(schema), self.read_traces(self.texts(contents))
        return self.about(self.requirements(known, traces, contents), traces, known), traces

    def tell_steps(
        self, requirements: Iterable[Requirement], traces: Traces | None, schema: Schema | None
    ) -> None:
        """Say how bounds were read, if the times of the traces make seconds something else."""
        from ..traces.tables import may_be_times

        if traces is None or self.dt is not None or not have_bounds(requirements):
            return
        if schema is not None:
            if traces.dt not in (None, schema.dt):
                note(
                    f"warning: the schema's step is {schema.dt:g} s, but the times of the traces are "
                    f"{traces.dt:g} s apart"
                )
        elif traces.dt is None:
            likely = [name for name in traces.variables if may_be_times(name)]
            if likely:
                note(
                    f"time bounds counted samples; if {likely[0]} are the times, --time-column "
                    f"{likely[0]} --dt auto reads bounds as seconds"
                )
        elif traces.dt != 1:
            note(
                f"time bounds counted samples, of which the traces have one every {traces.dt:g} s; "
                "--dt auto reads bounds as seconds"
            )

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


@dataclass(frozen=True)
class SpaceReading(TraceReading):
    """Traces, and the formulae that a space should be good at."""

    formulae: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FORMULA",
            help="Formulae that the space should be good at; put -- before one that starts with a "
            "minus.",
            show_default=False,
        ),
    ] = None


# -- formulae --------------------------------------------------------------------------------------


def read_for(space: Model | Space, reading: Reading, schema: Path | None) -> list[Requirement]:
    """The requirements as a space embeds them; a schema lowers those for a model."""
    own = schema_for(space, schema)
    found = reading.requirements(own)
    lowering = None if schema is None else own

    def probe(formulae: list[Formula]) -> object:
        lowered = formulae if lowering is None else [lowering.lower(phi) for phi in formulae]
        return space.embed(lowered, warn=False)

    return standardised(reading.accepted(found, probe), lowering)
