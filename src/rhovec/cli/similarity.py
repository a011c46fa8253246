"""`rhovec similarity`: how similar formulae are, by the exact kernel, by a model, or by both."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from ..errors import RhovecError
from .embed import embedded
from .inputs import choose_measure, formulae_of, naming, origins, read_schema
from .output import (
    TABLES,
    cell,
    console,
    new_figure,
    progress_bar,
    replacing_text,
    require_output,
    save_array,
    save_figure,
    save_table,
    write_jsonl,
    write_records,
)
from .shared import (
    SIGMA2,
    Device,
    JsonLines,
    Points,
    RandomTraces,
    SchemaFile,
    Seed,
    Sigma2,
    SpacePath,
    TraceReading,
    option,
    output_file,
    picture,
    read_for,
)

if TYPE_CHECKING:
    import numpy as np

    from ..formula import Requirement
    from ..kernel import SampledKernel
    from ..models.heads import Kind
    from ..traces import Traces

DEFAULT_TRACES = 10_000  # random traces
MAX_TABLE = 45  # pairs shown as a table on a terminal
MAX_LABELS = 40  # formulae named in a picture
LABEL = 48  # characters of a formula in a picture


class Result(NamedTuple):
    """What was computed about formulae: one or more matrices (n, n), and how."""

    requirements: list[Requirement]
    values: dict[str, np.ndarray]  # some of model, kernel, standard_error, in this order
    facts: dict[str, Any]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record per pair of different formulae."""
        values = dict(self.values)
        if {"model", "kernel"} <= set(values):
            values["difference"] = values["model"] - values["kernel"]
        formulae, others = origins(self.requirements), origins(self.requirements, "other_")
        for (i, one), (j, other) in combinations(enumerate(self.requirements), 2):
            numbers = {name: matrix[i, j].item() for name, matrix in values.items()}
            yield {
                **formulae[i], "formula": one.text, **others[j], "other": other.text, **numbers
            }  # fmt: skip

    @property
    def title(self) -> str:
        facts, parts = self.facts, []
        if "model" in facts:
            parts.append(f"model {facts['model']}")
        if "kernel" in facts:
            parts.append(
                f"{facts['kernel']} kernel: N = {facts['traces']} traces, P = {facts['points']} "
                f"points, seed {facts['seed']}, sigma2 {facts['sigma2']:g}"
            )
        return "; ".join(parts)


def similarity(
    reading: TraceReading,
    by: Annotated[
        Literal["kernel", "model", "both"] | None,
        option(
            help="kernel: the exact kernel; model: vectors of a model or another --space; both of them "
            "(default: both; with --traces or --boolean the kernel)."
        ),
    ] = None,
    space: SpacePath = None,
    device: Device = None,
    n_traces: RandomTraces = None,
    points: Points = None,
    seed: Seed = 0,
    sigma2: Sigma2 = None,
    boolean: Annotated[
        bool, typer.Option("--boolean", help="Compare satisfaction instead of robustness.")
    ] = False,
    errors: Annotated[
        bool, typer.Option(help="Add the Monte Carlo standard error of each kernel value.")
    ] = True,
    schema: SchemaFile = None,
    plot: Annotated[
        Path | None,
        picture("Draw the matrix as a .png file."),
    ] = None,
    output: Annotated[
        Path | None,
        output_file(
            "Write to a .csv, .jsonl or .parquet file, one row per pair; to a .json file, with the "
            "matrices; or to an .npy file: the matrix, with --by both the model's and the kernel's."
        ),
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """How similar formulae are: by the exact kernel, by a model's vectors, or both side by side.

    One row per pair; the kernel is computed on random traces or on your own.

    rhovec similarity "always[0,20] x_0 >= 0" "not eventually[0,20] x_0 < 0.1"

    rhovec similarity -F requirements.stl -t drives.csv --dt auto -o gram.npy --plot gram.png
    """
    suffix = require_output(output, (*TABLES, ".json", ".npy"), as_json)
    require_output(plot, (".png",))
    by = by or ("kernel" if reading.traces or boolean else "both")
    if by != "kernel":
        given = {"--traces": reading.traces, "--boolean": boolean, "--points": points,
                 "--sigma2": sigma2}  # fmt: skip
        wrong = [option for option, value in given.items() if value not in (None, False)]
        if wrong:
            raise RhovecError(f"{wrong[0]} goes with --by kernel; a model has its own kernel")
    elif space is not None:
        raise RhovecError("--space goes with --by model or both, without --traces and --boolean")
    from ..kernel import BooleanKernel, StlKernel
    from ..spaces import Space, load

    loaded = None if by == "kernel" else load(space, device)
    if isinstance(loaded, Space) and (n_traces is not None or seed != 0):
        raise RhovecError("--n-traces and --seed go with random traces; this space has its own")
    requirements, traces = _read(reading, loaded, schema)
    values: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {}
    if loaded is not None:
        values["model"] = _by_model(loaded, requirements)
        facts["model"] = loaded.fingerprint
    if by != "model":
        count = DEFAULT_TRACES if n_traces is None and traces is None else n_traces
        if loaded is not None:
            kernel = loaded.kernel(count, seed)
        else:
            kernel = (BooleanKernel if boolean else StlKernel)(
                choose_measure(formulae_of(requirements), traces, points), count,
                SIGMA2 if sigma2 is None else sigma2, seed, device="cpu" if device is None else device,
            )  # fmt: skip
        values |= _by_kernel(kernel, requirements, errors and suffix != ".npy")
        facts |= {
            "kernel": _name_of(kernel),
            "traces": kernel.measure.count(kernel.n_traces),
            "points": kernel.measure.points,
            "seed": seed,
            "sigma2": kernel.sigma2,
        }
    write(Result(requirements, values, facts), output, plot, as_json)
    reading.tell_steps(requirements, traces, read_schema(schema))


def _name_of(kernel: SampledKernel) -> str:
    from ..kernel import CentredKernel
    from ..models.model import KERNELS

    kinds = {"centred": CentredKernel, **KERNELS}  # a centred one is of robustness, too
    return next(name for name, kind in kinds.items() if isinstance(kernel, kind))


def _read(
    reading: TraceReading, loaded: Any, schema: Path | None
) -> tuple[list[Requirement], Traces | None]:
    """The formulae that a model accepts, if there is one, and the traces that were given."""
    if getattr(loaded, "schema", None) is not None:
        requirements, traces = read_for(loaded, reading, schema), None
    else:
        requirements, traces = reading.read(schema)
        if loaded is not None:
            requirements = reading.accepted(requirements, partial(loaded.embed, warn=False))
    if len(requirements) < 2:
        raise RhovecError("similarity is between formulae: give two or more")
    return requirements, traces


def _by_model(loaded: Any, requirements: list[Requirement]) -> np.ndarray:
    """The kernel's matrix (n, n) as the vectors of a model or a space give it."""
    from ..kernel import kernel_of_cosine
    from ..models.heads import make_head
    from ..spaces import Space

    kind: Kind = "cosine" if isinstance(loaded, Space) else make_head(loaded.encoder).kind
    vectors = embedded(loaded, requirements, kind)
    found: np.ndarray = (vectors @ vectors.T).clip(-1, 1)
    return kernel_of_cosine(found, loaded.sigma2) if kind == "cosine" else found


def _by_kernel(
    kernel: SampledKernel, requirements: list[Requirement], errors: bool
) -> dict[str, np.ndarray]:
    """The exact matrix (n, n), and if asked for its standard errors."""
    formulae = formulae_of(requirements)
    with naming(requirements, kernel.gram), progress_bar("kernel") as progress:
        values = {"kernel": kernel.gram(formulae, progress=progress)}
    if errors:
        with progress_bar("standard errors") as progress:
            values["standard_error"] = kernel.gram_errors(formulae, progress=progress)
    return values


def write(found: Result, output: Path | None, plot: Path | None, as_json: bool) -> None:
    import numpy as np

    if plot is not None:
        draw(found, plot)
    if output is not None and output.suffix.lower() == ".npy":
        matrices = list(found.values.values())
        save_array(output, matrices[0] if len(matrices) == 1 else np.stack(matrices))
    elif output is not None and output.suffix.lower() == ".json":
        with replacing_text(output) as text:
            as_object(found, text)
    elif output is not None:
        save_table(output, found.rows())
    elif as_json:
        write_jsonl(sys.stdout, found.rows())
    elif sys.stdout.isatty() and math.comb(len(found.requirements), 2) <= MAX_TABLE:
        show(found)
    else:
        write_records(sys.stdout, found.rows())


def as_object(found: Result, stream: IO[str]) -> None:
    """One JSON object with the whole matrices."""
    matrices = {name: matrix.tolist() for name, matrix in found.values.items()}
    content: dict[str, Any] = {
        "facts": found.facts,
        "formulae": [one.text for one in found.requirements],
    }
    named = origins(found.requirements)
    content |= {"requirements": named} if named[0] else {}
    content |= matrices
    stream.write(json.dumps(content, ensure_ascii=False) + "\n")


def show(found: Result) -> None:
    """The pairs as a table for a terminal."""
    from rich.table import Table

    table = Table("formula", "other", caption=found.title)
    for name in ("model", "kernel"):
        if name in found.values:
            table.add_column(name, justify="right", no_wrap=True)
    if {"model", "kernel"} <= set(found.values):
        table.add_column("difference", justify="right", no_wrap=True)
    pairs = combinations(found.requirements, 2)
    for (one, other), row in zip(pairs, found.rows(), strict=True):
        cells = [f"{row['model']:.3f}"] if "model" in row else []
        if "kernel" in row:
            error = f" ± {row['standard_error']:.3f}" if "standard_error" in row else ""
            cells.append(f"{row['kernel']:.3f}{error}")
        if "difference" in row:
            cells.append(f"{row['difference']:+.3f}")
        table.add_row(cell(one.label), cell(other.label), *cells)
    console().print(table)


def draw(found: Result, path: Path) -> None:
    """A picture of the kernel's matrix, or else the model's; formulae are named if there is room."""
    name = "kernel" if "kernel" in found.values else "model"
    n = len(found.requirements)
    named = n <= MAX_LABELS
    side = 2.5 + (0.3 * n if named else 8)
    figure = new_figure(side + (4 if named else 1), side)
    axes = figure.add_subplot()
    matrix = found.values[name]
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    if named:
        labels = [one.label for one in found.requirements]
        short = [t if len(t) <= LABEL else t[: LABEL - 3] + "..." for t in labels]
        axes.set_yticks(range(n), [f"{i + 1}  {t}" for i, t in enumerate(short)], fontsize=8)
        axes.set_xticks(range(n), [str(i + 1) for i in range(n)], fontsize=8)
    axes.set(xlabel="formula", ylabel="" if named else "formula")
    axes.set_title(found.title, fontsize=9)
    figure.colorbar(image, label=name, shrink=0.8)
    save_figure(figure, path)
