"""`rhovec kernel`: the Gram matrix of formulae, as an array, a table or a picture."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from .shared import (
    Discrete,
    Formulae,
    FormulaFiles,
    IdColumn,
    JsonObject,
    Layout,
    Points,
    Rounding,
    Seed,
    StepOrAuto,
    TimeColumn,
    Tolerance,
    TracePaths,
    Variables,
    choose_measure,
    new_figure,
    parse_formulae,
    progress_bar,
    read_formulae,
    read_traces,
    replacing_text,
    require_output,
    sampling_step,
    save_array,
    save_figure,
)

if TYPE_CHECKING:
    import numpy as np


MAX_TABLE = 10  # formulae shown as a table on a terminal
MAX_LABELS = 40  # formulae named in a picture
LABEL = 48  # characters of a formula in a picture


def kernel(
    formulae: Formulae = None,
    files: FormulaFiles = None,
    signals: Annotated[
        int | None,
        typer.Option(
            help="Number of signals (default: 1000; of --traces all).", show_default=False
        ),
    ] = None,
    points: Points = None,
    seed: Seed = 0,
    sigma2: Annotated[
        float, typer.Option(help="Bandwidth: the smaller, the fewer formulae are alike.")
    ] = 0.2,
    boolean: Annotated[
        bool, typer.Option("--boolean", help="Compare satisfaction instead of robustness.")
    ] = False,
    errors: Annotated[
        bool, typer.Option("--errors", help="Add the Monte Carlo standard error of each value.")
    ] = False,
    traces: TracePaths = None,
    layout: Layout = "auto",
    id_column: IdColumn = None,
    time_column: TimeColumn = None,
    variables: Variables = "",
    dt: StepOrAuto = None,
    rounding: Rounding = None,
    discrete: Discrete = "",
    tolerance: Tolerance = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the matrix as a .png file.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write to a .csv, .json or .npy file; .npy is the matrix, with --errors two.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """How alike formulae are: their kernel on random signals, or on traces of your own.

    rhovec kernel "always x_0 > 0" "eventually x_0 > 1" --errors

    rhovec kernel -F requirements.stl -t drives.csv --dt auto -o gram.npy --plot gram.png
    """
    from ..kernel import BooleanKernel, StlKernel

    suffix = require_output(output, (".csv", ".json", ".npy"), as_json)
    require_output(plot, (".png",))
    lines = read_formulae(formulae, files)
    read = read_traces(traces, layout, variables, id_column, time_column)
    step = sampling_step(dt, read)
    parsed = parse_formulae(lines, discrete, dt=step, rounding=rounding, tolerance=tolerance)
    measure = choose_measure(parsed, read, points)
    chosen = (BooleanKernel if boolean else StlKernel)(measure, signals, sigma2, seed)
    with progress_bar("kernel") as progress:
        gram = chosen.gram(parsed, progress=progress)
    standard_errors = None
    if errors:
        with progress_bar("standard errors") as progress:
            standard_errors = chosen.gram_errors(parsed, progress=progress)

    facts: dict[str, Any] = {
        "kernel": "boolean" if boolean else "robustness",
        "signals": measure.count(signals),
        "points": measure.points,
        "seed": seed,
        "sigma2": sigma2,
    }
    labels = [line.text.strip() for line in lines]
    if plot is not None:
        draw(gram, labels, facts, plot)
    if suffix == ".npy":
        import numpy as np

        assert output is not None
        save_array(output, gram if standard_errors is None else np.stack([gram, standard_errors]))
        return
    if output is not None:
        with replacing_text(output) as text:
            (write_csv if suffix == ".csv" else write_json)(
                gram, standard_errors, labels, facts, text
            )
    elif as_json:
        write_json(gram, standard_errors, labels, facts, sys.stdout)
    elif sys.stdout.isatty() and len(labels) <= MAX_TABLE:
        show(gram, standard_errors, labels, facts)
    else:
        write_csv(gram, standard_errors, labels, facts, sys.stdout)


def write_csv(
    gram: np.ndarray,
    errors: np.ndarray | None,
    labels: list[str],
    facts: dict[str, Any],
    stream: IO[str],
) -> None:
    """The matrix with formulae above and at the left; with errors, a row a pair."""
    writer = csv.writer(stream, lineterminator="\n")
    if errors is None:
        writer.writerow(["formula", *labels])
        writer.writerows([label, *row] for label, row in zip(labels, gram.tolist(), strict=True))
        return
    writer.writerow(["formula", "other", "kernel", "standard_error"])
    for label, row, spread in zip(labels, gram.tolist(), errors.tolist(), strict=True):
        writer.writerows(
            (label, other, k, e) for other, k, e in zip(labels, row, spread, strict=True)
        )


def write_json(
    gram: np.ndarray,
    errors: np.ndarray | None,
    labels: list[str],
    facts: dict[str, Any],
    stream: IO[str],
) -> None:
    found = {**facts, "formulae": labels, "gram": gram.tolist()}
    if errors is not None:
        found["standard_errors"] = errors.tolist()
    stream.write(json.dumps(found, ensure_ascii=False) + "\n")


def show(
    gram: np.ndarray, errors: np.ndarray | None, labels: list[str], facts: dict[str, Any]
) -> None:
    """The matrix as a table for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "formula", caption=title(facts))
    for i in range(len(labels)):
        table.add_column(str(i + 1), justify="right", no_wrap=True)
    for i, label in enumerate(labels):
        cells = [f"{k:.3f}" for k in gram[i]]
        if errors is not None:
            cells = [f"{cell} ± {e:.3f}" for cell, e in zip(cells, errors[i], strict=True)]
        table.add_row(str(i + 1), Text(label), *cells)
    Console().print(table)


def draw(gram: np.ndarray, labels: list[str], facts: dict[str, Any], path: Path) -> None:
    """A picture of the matrix, formulae named where there is room for their names."""
    n = len(labels)
    named = n <= MAX_LABELS
    side = 2.5 + (0.3 * n if named else 8)
    figure = new_figure(side + (4 if named else 1), side)
    axes = figure.add_subplot()
    image = axes.imshow(gram, vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    if named:
        short = [t if len(t) <= LABEL else t[: LABEL - 3] + "..." for t in labels]
        axes.set_yticks(range(n), [f"{i + 1}  {t}" for i, t in enumerate(short)], fontsize=8)
        axes.set_xticks(range(n), [str(i + 1) for i in range(n)], fontsize=8)
    axes.set(xlabel="formula", ylabel="" if named else "formula")
    axes.set_title(title(facts), fontsize=9)
    figure.colorbar(image, label="kernel", shrink=0.8)
    save_figure(figure, path)


def title(facts: dict[str, Any]) -> str:
    return (
        f"{facts['kernel']} kernel: N = {facts['signals']} signals, P = {facts['points']} points, "
        f"seed {facts['seed']}, sigma2 {facts['sigma2']:g}"
    )
