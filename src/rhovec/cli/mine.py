"""`rhovec mine`: labelled traces -> a requirement that tells the classes apart."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import RhovecError
from .inputs import tell_left_out
from .output import replacing_text, require_output, write_jsonl
from .shared import JsonLines, TraceFiles, option, output_file, picture

if TYPE_CHECKING:
    from ..traces import Traces

SEARCH = "Search"
MAX_WRONG = 10  # misclassified traces that are explained


def mine(
    files: TraceFiles,
    labels: Annotated[
        str | None,
        option(
            "--labels",
            metavar="FILE|COLUMN",
            help="A CSV file with the columns trace and label, or a column of the traces that is the "
            "same throughout each trace. Without it, all traces are examples of one system.",
        ),
    ] = None,
    positive: Annotated[
        str | None,
        option(
            metavar="LABEL", help="The class that the formula describes (default: the last one)."
        ),
    ] = None,
    dt: Annotated[
        float | None,
        option(
            metavar="SECONDS",
            help="Sampling step, for time bounds in seconds (default: that of the time column).",
        ),
    ] = None,
    resample: Annotated[
        float | None,
        option(
            metavar="SECONDS",
            help="Put traces on a grid with this step (default: they must be evenly sampled).",
        ),
    ] = None,
    costs: Annotated[
        list[str] | None,
        option(
            "--cost",
            metavar="LABEL=NUMBER",
            help="Cost of a wrong trace with this label (default: 1). May be repeated.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    balanced: Annotated[
        bool,
        typer.Option("--balanced", help="Let all classes weigh the same.", rich_help_panel=SEARCH),
    ] = False,
    max_size: Annotated[
        int, typer.Option(help="Nodes of the largest formula.", rich_help_panel=SEARCH)
    ] = 9,
    budget: Annotated[
        int, typer.Option(help="Candidates to evaluate.", rich_help_panel=SEARCH)
    ] = 20_000,
    seconds: Annotated[
        float | None,
        option(
            help="Stop earlier, after this time; the answer then depends on the machine.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(help="Parts that are left out in turn.", rich_help_panel=SEARCH)
    ] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the search.", rich_help_panel=SEARCH)] = 0,
    start: Annotated[
        Path | None,
        option(
            "--start",
            metavar="FILE",
            help="A requirement file with formulae to start from, in the unit of time of --dt.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    output: Annotated[
        Path | None, output_file("Write the chosen formula to a requirement file (.stl or .txt).")
    ] = None,
    plot: Annotated[Path | None, picture("Draw traces and formula into an .svg file.")] = None,
    as_json: JsonLines = False,
) -> None:
    """Find a formula that holds on the traces of one class and not on those of the other.

    rhovec mine -t runs.csv --labels verdict -o mined.stl

    rhovec mine -t runs/ --labels labels.csv --positive ok --plot mined.svg
    """
    from ..mining import Bounded, Mined, read_labelled
    from ..mining import mine as mine_formulae
    from ..mining.labels import read_evenly

    require_output(output, (".stl", ".txt"))
    require_output(plot, (".svg",))
    if not files.traces:
        raise RhovecError("no traces given: name a file or a folder with --traces")
    reading: dict[str, Any] = {
        "layout": files.layout, "variables": files.chosen(), "id_column": files.id_column,
        "time_column": files.time_column, "time_unit": files.time_unit,
    }  # fmt: skip
    given: list[Any] | None = None
    if labels is None:
        traces = read_evenly(files.traces, resample, **reading)
    else:
        traces, given = read_labelled(files.traces, labels, dt=resample, **reading)
    tell_left_out(traces)
    if plot is not None and len(set(given or ())) != 2:
        raise RhovecError("--plot goes with traces of two classes")
    if dt is not None and traces.dt is not None and dt != traces.dt:
        raise RhovecError(f"--dt {dt:g}: the traces have steps of {traces.dt:g} s; leave it out")
    step = traces.dt if dt is None else dt
    mined = mine_formulae(
        traces, given, dt=step, units=traces.units, positive=_label(positive, given, "--positive"),
        costs=_costs(costs, balanced, given), max_size=max_size, budget=budget, seconds=seconds,
        folds=folds, seed=seed, start=_formulae(start, step),
    )  # fmt: skip
    if output is not None:
        with replacing_text(output) as stream:
            stream.write(mined.requirements())
    if plot is not None:
        assert isinstance(mined, Mined) and given is not None
        with replacing_text(plot) as stream:
            stream.write(mined.svg(traces, given))
    if as_json:
        write_jsonl(sys.stdout, mined.rows())
        return
    print(mined)
    if positive is None and isinstance(mined, Mined):
        print(f"these hold for {mined.positive}; --positive {mined.negative} describes the others")
    if given is not None and not isinstance(mined, Bounded):
        _explain(mined, traces, given)


def _explain(mined: Any, traces: Traces, given: list[Any]) -> None:
    wrong = mined.wrong(traces, given)
    if not wrong:
        return
    print(f"\n{len(wrong)} of {len(given)} traces get another label:")
    for one in wrong[:MAX_WRONG]:
        print(f"  {traces.ids[one.trace]} ({one.label}, predicted {one.predicted}): {one.why}")
    if len(wrong) > MAX_WRONG:
        print(f"  and {len(wrong) - MAX_WRONG} more")


def _label(text: str | None, given: list[Any] | None, option: str) -> Any:
    """A label as the traces have it, from its text."""
    if text is None:
        return None
    known = {str(label): label for label in given or ()}
    by_case = {name.lower(): label for name, label in known.items()}
    if text not in known and text.lower() not in by_case:
        listed = ", ".join(sorted(known)) or "none, without --labels"
        raise RhovecError(f"{option} {text}: no trace has this label; there are {listed}")
    return known.get(text, by_case.get(text.lower()))


def _costs(texts: list[str] | None, balanced: bool, given: list[Any] | None) -> Any:
    if not texts:
        return "balanced" if balanced else None
    if balanced:
        raise RhovecError("--cost and --balanced: give one of them")
    found = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            cost = float(number)
        except ValueError:
            cost = 0.0
        if not (name and 0 < cost < math.inf):
            raise RhovecError(f"--cost {text}: write a label and a positive number, as in fail=5")
        found[_label(name.strip(), given, "--cost")] = cost
    return found


def _formulae(path: Path | None, dt: float | None) -> Any:
    if path is None:
        return None
    from ..formula import read_requirements

    return [one.formula for one in read_requirements(path, dt=dt)]
