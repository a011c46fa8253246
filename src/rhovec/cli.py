"""The command line: `rhovec parse | robustness | demo`.

Every command takes formulae as arguments, from files (-F), or from stdin, one a line, so that
commands pipe. A mistake of the user's is one line on stderr and exit code 2. Heavy libraries are
imported by the commands that need them, so that `rhovec --help` is quick.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from .errors import ParseError, RhovecError
from .formula import Formula, parse

MAX_TREE_DEPTH = 200  # the drawing of a tree grows with the square of its depth
RESULT_SUFFIXES = (".csv", ".json", ".jsonl", ".npy")


class _Commands(TyperGroup):
    """Runs a command and turns what goes wrong into one line and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
            print(end="", flush=True)
        except RhovecError as error:
            fail(str(error))
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context else ""
            fail(error.format_message() + hint)
        except OSError as error:
            # Nobody reads stdout, or it is full: what is left must not be written again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if isinstance(error, BrokenPipeError):
                sys.exit(1)
            fail(f"cannot write: {error.strerror}")
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="rhovec",
    cls=_Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Signal Temporal Logic formulae as values, as numbers on signals, and as vectors.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The `rhovec` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal or pipe that lacks a character gets its escape instead of a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="rhovec")


def fail(message: str) -> NoReturn:
    print(f"rhovec: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


# -- what the commands share ---------------------------------------------------------------------

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


def split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file at `path` only once all of it is written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
        temporary.replace(path)
    except OSError as error:
        raise RhovecError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


# -- commands ------------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from . import __version__

        print(f"rhovec {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


@app.command("parse")
def parse_command(
    formulae: Formulae = None,
    files: FormulaFiles = None,
    dt: Annotated[
        float | None,
        typer.Option(
            help="Sampling step in seconds: time bounds are then read as seconds, not as steps.",
            show_default=False,
        ),
    ] = None,
    rounding: Rounding = None,
    discrete: Discrete = "",
    tolerance: Tolerance = None,
    as_json: JsonLines = False,
) -> None:
    """Check formulae, and show their canonical form, size and tree."""
    from .formula.parser import exact_step
    from .formula.printer import bound_text, to_tree
    from .formula.simplify import simplify

    lines = read_formulae(formulae, files)
    parsed = parse_formulae(lines, discrete, dt=dt, rounding=rounding, tolerance=tolerance)
    for i, phi in enumerate(parsed):
        facts: dict[str, Any] = {"formula": str(phi)}
        if dt is not None:
            facts["in_seconds"] = phi.to_text(dt=dt)
        facts["simplified"] = str(simplify(phi))
        facts |= {"horizon": phi.horizon, "depth": phi.depth, "size": phi.size}
        facts["variables"] = list(phi.variables)
        if as_json:
            print(json.dumps(facts, ensure_ascii=False))
            continue
        if i:
            print()
        steps = f"{phi.horizon} step{'' if phi.horizon == 1 else 's'}"
        seconds = "" if dt is None else f" ({bound_text(phi.horizon, exact_step(dt))} s)"
        facts["horizon"] = steps + seconds
        facts["variables"] = ", ".join(phi.variables) or "none"
        deep = phi.depth > MAX_TREE_DEPTH
        facts["tree"] = f"deeper than {MAX_TREE_DEPTH}, not drawn" if deep else to_tree(phi)
        for name, fact in facts.items():
            label = name.replace("_", " ")
            print(f"{label:<12}" + str(fact).replace("\n", "\n" + " " * 12))


@app.command()
def robustness(
    formulae: Formulae = None,
    files: FormulaFiles = None,
    traces: Annotated[
        list[Path] | None,
        typer.Option(
            "--traces",
            "-t",
            metavar="PATH",
            help="A .csv, .tsv, .npy or .parquet file of traces, or a folder of them. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    layout: Annotated[
        Literal["auto", "wide", "long"],
        typer.Option(help="wide: a column a variable; long: columns variable and value."),
    ] = "auto",
    id_column: Annotated[
        str | None,
        typer.Option(
            help="Column that tells traces apart (default: trace, id or trace_id).",
            show_default=False,
        ),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(help="Column of times (default: time or t).", show_default=False),
    ] = None,
    variables: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Variables to read, with commas between; they name those of an .npy file "
            "(default there: x_0, x_1, ...).",
            show_default=False,
        ),
    ] = "",
    dt: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS|auto",
            help="Sampling step: time bounds are then read as seconds, not as steps; "
            "auto takes the step of the traces' time column.",
            show_default=False,
        ),
    ] = None,
    rounding: Rounding = None,
    discrete: Discrete = "",
    tolerance: Tolerance = None,
    end: Annotated[
        Literal["hold", "strict"],
        typer.Option(
            help="Past its end a trace holds its last sample, or looking there is an error."
        ),
    ] = "hold",
    satisfied: Annotated[
        bool, typer.Option("--satisfaction", help="Whether the formula holds, not by how much.")
    ] = False,
    every_step: Annotated[
        bool, typer.Option("--trace", help="A value for every step instead of the first.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to a .csv, .json, .jsonl or .npy file; .npy is the array formulae x "
            "traces (x steps).",
            show_default=False,
        ),
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Evaluate formulae on traces: a table on a terminal, CSV in a pipe."""
    import numpy as np

    from .robustness import robustness as robustness_of
    from .robustness import satisfaction as satisfaction_of
    from .signals import read_traces

    if not traces:
        raise RhovecError("no traces given: name a file or a folder with --traces")
    suffix = "" if output is None else output.suffix.lower()
    if output is not None and suffix not in RESULT_SUFFIXES:
        raise RhovecError(f"{output}: the name must end in {', '.join(RESULT_SUFFIXES)}")
    lines = read_formulae(formulae, files)
    read = read_traces(
        traces,
        layout=layout,
        variables=split_names(variables) or None,
        id_column=id_column,
        time_column=time_column,
    )
    if dt == "auto" and read.dt is None:
        raise RhovecError("--dt auto needs a time column in the traces; give the step in seconds")
    parsed = parse_formulae(
        lines, discrete, dt=read.dt if dt == "auto" else dt, rounding=rounding, tolerance=tolerance
    )
    evaluate = satisfaction_of if satisfied else robustness_of
    lengths = {x.shape[1] for x in read.values}
    signals = np.stack(read.values) if len(lengths) == 1 else read.values
    values = evaluate(parsed, signals, variables=read.variables, trace=every_step, end=end)
    if suffix == ".npy":
        if isinstance(values, list):
            raise RhovecError(f"{output}: the traces differ in length; write .csv or .json instead")
        assert output is not None
        with replacing(output) as stream:
            np.save(stream, values)
        return

    # One record a formula and trace; its value is a number, or a list of one a step.
    kind = "satisfied" if satisfied else "robustness"
    of_trace = values if isinstance(values, list) else np.moveaxis(values, 1, 0)
    records = (
        {"formula": line.text.strip(), "trace": trace, kind: of_trace[n][b].tolist()}
        for b, line in enumerate(lines)
        for n, trace in enumerate(read.ids)
    )
    if output is not None:
        with replacing(output) as stream:
            text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
            {".csv": write_csv, ".json": write_json, ".jsonl": write_jsonl}[suffix](records, text)
            text.detach()
    elif as_json:
        write_jsonl(records, sys.stdout)
    elif sys.stdout.isatty():
        show_table(records)
    else:
        write_csv(records, sys.stdout)


# -- records: {"formula": ..., "trace": ..., "robustness" or "satisfied": value or values} --------

Record = dict[str, Any]


def write_csv(records: Iterable[Record], stream: IO[str]) -> None:
    """A row a value; a list of values has a row a step."""
    writer = csv.writer(stream, lineterminator="\n")
    for i, record in enumerate(records):
        formula, trace, value = record.values()
        if i == 0:
            step = ["step"] if isinstance(value, list) else []
            writer.writerow(["formula", "trace", *step, list(record)[-1]])
        if isinstance(value, list):
            writer.writerows((formula, trace, t, csv_cell(v)) for t, v in enumerate(value))
        else:
            writer.writerow((formula, trace, csv_cell(value)))


def csv_cell(value: float | bool) -> str:
    return str(value).lower()


def write_jsonl(records: Iterable[Record], stream: IO[str]) -> None:
    for record in records:
        stream.write(json_text(record) + "\n")


def write_json(records: Iterable[Record], stream: IO[str]) -> None:
    stream.write("[\n" + ",\n".join(map(json_text, records)) + "\n]\n")


def json_text(record: Record) -> str:
    """JSON knows only finite numbers: NaN (past the horizon) is null, an infinity is "inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(v) for v in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value

    return json.dumps({k: plain(v) for k, v in record.items()}, ensure_ascii=False)


def show_table(records: Iterable[Record]) -> None:
    """The same as a table for a terminal, a section a formula; what is violated is red."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table: Table | None = None
    last = None
    for record in records:
        formula, trace, value = record.values()
        if table is None:
            table = Table("formula", "trace")
            if isinstance(value, list):
                table.add_column("step", justify="right")
            table.add_column(list(record)[-1], justify="right")
        if formula != last:
            table.add_section()
        for t, v in enumerate(value) if isinstance(value, list) else [(None, value)]:
            shown = Text(csv_cell(v) if isinstance(v, bool) else f"{v:.6g}")
            shown.stylize("red" if v is False or v < 0 else "green")
            first = Text(formula if formula != last else "")
            table.add_row(first, Text(trace), *([] if t is None else [str(t)]), shown)
            last = formula
    Console().print(table)


# -- the demonstration ---------------------------------------------------------------------------


class System(NamedTuple):
    """A system, its requirements in names, units and seconds, and named traces of it."""

    title: str
    dt: float  # seconds a step
    discrete: str
    requirements: dict[str, str]
    traces: dict[str, dict[str, Any]]  # trace -> variable -> (points,)


def demo_systems() -> list[System]:
    """Four systems with textbook models: enough to see requirements hold and fail."""
    import numpy as np

    def drive(top: float, redline: float, hunts: bool) -> dict[str, Any]:
        t = np.arange(0, 30, 0.1)
        speed = top * (1 - np.exp(-t / 8))
        gear = 1.0 + np.digitize(speed, [25, 50, 75])
        if hunts:
            gear = np.where((gear == 3) & (t % 2 < 1), 2, gear)
        progress = speed / (25 * gear)  # 1 at the speed of the next shift
        return {"speed": speed, "gear": gear, "rpm": 900 + (redline - 900) * progress}

    def glucose(meal: float, insulin: float) -> dict[str, Any]:
        h = np.arange(0, 8, 1 / 12)
        rise = meal * h * np.exp(1 - h)
        return {"glucose": 110 + rise - insulin * h**2 * np.exp(2 * (1 - h / 2.5)) / 2.5**2}

    def step(damping: float) -> dict[str, Any]:
        y, v, out = 0.0, 0.0, []
        for _ in range(500):
            out.append(y)
            v += 0.01 * (16 * (1 - y) - 8 * damping * v)
            y += 0.01 * v
        return {"y": np.array(out)}

    def walk(bend: float, goal: float) -> dict[str, Any]:
        s = np.minimum(np.arange(0, 25, 0.1) / 15, 1)
        px, py = goal * s, 3 * s + bend * np.sin(np.pi * s)
        return {"px": px, "py": py, "clearance": np.hypot(px - 2, py - 1) - 0.4}

    return [
        System(
            "Automatic transmission, every 0.1 s",
            0.1,
            "gear",
            {
                "engine below 4750 rpm for 10 s": "always[0,10] rpm < 4750",
                "third gear is kept for 2.5 s": "always[0,27] (gear != 3 and next gear == 3 -> "
                "next always[0,2.5] gear == 3)",
                "70 km/h within 15 s": "eventually[0,15] speed >= 70",
            },
            {
                "normal": drive(100, 4200, False),
                "sporty": drive(120, 5100, False),
                "hunting": drive(70, 4000, True),
            },
        ),
        System(
            "Blood glucose in mg/dL, every 300 s",
            300,
            "",
            {
                "never below 70": "always glucose >= 70",
                "a high is over within 3 h": "always (glucose > 180 -> "
                "eventually[0,10800] glucose <= 180)",
                "in range from 4 h to 6 h": "always[14400,21600] 70 <= glucose <= 180",
            },
            {"good dose": glucose(90, 20), "no dose": glucose(300, 0), "overdose": glucose(60, 90)},
        ),
        System(
            "Position control, every 0.01 s",
            0.01,
            "",
            {
                "overshoot at most 10 %": "always y <= 1.1",
                "90 % within 1 s": "eventually[0,1] y >= 0.9",
                "settled from 2 s on": "eventually[0,2] always abs(y - 1) <= 0.05",
            },
            {"damped": step(0.7), "ringing": step(0.15), "sluggish": step(2.5)},
        ),
        System(
            "Mobile robot in m, every 0.1 s",
            0.1,
            "",
            {
                "0.5 m clear until the goal": "clearance >= 0.5 until[0,20] "
                "(abs(px - 4) <= 0.2 and abs(py - 3) <= 0.2)",
                "stays in the corridor": "always abs(py - 0.75 * px) <= 1.5",
            },
            {"detour": walk(1.2, 4), "straight": walk(0, 4), "lost": walk(2, 3)},
        ),
    ]


@app.command()
def demo() -> None:
    """Check the requirements of four systems on a few traces of each."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console, Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from .robustness import robustness as robustness_of
    from .robustness import satisfaction as satisfaction_of

    console = Console(highlight=False)
    console.print(
        "Requirements in Signal Temporal Logic, checked on traces. A number is the\n"
        "robustness: how far the trace is from breaking (or meeting) the requirement,\n"
        "in the requirement's own unit. \u2713 it holds, \u2717 it is violated.\n"
    )
    for system in demo_systems():
        table = Table(
            title=system.title,
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            width=min(79, console.width),
        )
        table.add_column("requirement", ratio=1)
        for name in system.traces:
            table.add_column(name, justify="right", min_width=9, no_wrap=True)
        lines = [Line(text, title) for title, text in system.requirements.items()]
        formulae = parse_formulae(lines, system.discrete, dt=system.dt)
        signals = {
            variable: [trace[variable] for trace in system.traces.values()]
            for variable in next(iter(system.traces.values()))
        }
        values = robustness_of(formulae, signals)
        holds = satisfaction_of(formulae, signals)
        for line, row, good in zip(lines, values, holds, strict=True):
            cells = [
                Text(f"{v:+.4g} \u2713", "green") if ok else Text(f"{v:+.4g} \u2717", "bold red")
                for v, ok in zip(row, good, strict=True)
            ]
            formula = Padding(Text(line.text, "dim"), (0, 0, 0, 2))
            table.add_row(Group(Text(line.place), formula), *cells)
        console.print(table)
    console.print("On your own: rhovec robustness 'always[0,10] rpm < 4750' --dt auto -t drive.csv",
                  markup=False)  # fmt: skip


if __name__ == "__main__":
    main()
