"""`rhovec train space`, of one's own traces; `rhovec train encoder` and `rhovec train decoder`, whose
options are fields of a training configuration.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import RhovecError, needed
from ..formula.options import exact_step
from ..formula.requirements import Requirement
from .inputs import read_schema, split_names, tell_left_out
from .output import note
from .shared import TIME_UNIT, JsonObject, SpaceReading, TraceFiles, formula_files, grouped, option

OWN = "Traces of your own"

app = typer.Typer(
    name="train", help="Make a space of your traces, or train models on the exact kernel."
)


@dataclass(frozen=True)
class Run:
    """Options of every training."""

    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder of the run; an unfinished run in it is continued."
        ),
    ]
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Change a field of the preset; --fields lists them. May be repeated.",
        ),
    ] = None
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu"
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate", help="Measure the result and write it as a model, to OUT/model."
        ),
    ] = False
    listed: Annotated[
        bool,
        typer.Option("--fields", help="List the fields with their values, and exit."),
    ] = False

    def configured(self, module: Any, preset: str) -> Any:
        """The configuration that the options describe."""
        from ..models.device import torch_device

        torch_device(self.device)
        changed = parsed(module.Config, self.changes or [])
        return training("loop").preset(module.PRESETS, preset, device=self.device, **changed)


def encoder(
    run: Run,
    preset: Annotated[
        str,
        typer.Option(
            help="default, small, paper, paper-512 or tiny; with --traces: adapt (a minute on a GPU) "
            "or adapt-cpu (some minutes, and coarser), which start from the shipped weights."
        ),
    ] = "default",
    traces: Annotated[
        list[Path] | None,
        option(
            "--traces",
            "-t",
            metavar="PATH",
            help="Distil the kernel on these traces instead of random ones: files as `rhovec "
            "robustness --traces` reads them, or a folder of them. May be repeated.",
            rich_help_panel=OWN,
        ),
    ] = None,
    held_out: Annotated[
        list[Path] | None,
        option(
            metavar="PATH",
            help="Other traces, to evaluate against; by default a fifth of --traces is held out.",
            rich_help_panel=OWN,
        ),
    ] = None,
    variables: Annotated[
        str,
        option(
            metavar="NAMES",
            help="Variables to read, separated by commas (default: all).",
            rich_help_panel=OWN,
        ),
    ] = "",
    discrete: Annotated[
        str,
        option(
            metavar="NAMES",
            help="Variables whose values are modes or gears, separated by commas.",
            rich_help_panel=OWN,
        ),
    ] = "",
    dt: Annotated[
        float | None,
        option(
            metavar="SECONDS",
            help="Sampling step of --traces, if they have no times (default: 1).",
            rich_help_panel=OWN,
        ),
    ] = None,
    time_unit: Annotated[str | None, option(help=TIME_UNIT, rich_help_panel=OWN)] = None,
    schema: Annotated[
        Path | None,
        option(
            "--schema",
            metavar="FILE",
            help="A schema (JSON) with the channels of --traces, their units and scales, and the "
            "step; by default a channel per variable, scaled by the traces.",
            rich_help_panel=OWN,
        ),
    ] = None,
    formulae: Annotated[
        list[Path] | None,
        formula_files("Evaluate also on these formulae: one per line, or a CSV. May be repeated."),
    ] = None,
    n_traces: Annotated[
        int, typer.Option(min=1, help="Traces of the kernel to evaluate against.")
    ] = 16_384,
    families: Annotated[int, typer.Option(min=1, help="Held-out families to evaluate on.")] = 188,
) -> None:
    """Distil the exact kernel into an encoder.

    A run that was stopped continues from its last checkpoint when the same command is given again.

    rhovec train encoder --traces logs/ --preset adapt --out run --device cuda --evaluate

    rhovec train encoder --preset tiny --out run --evaluate --n-traces 512 --families 16

    rhovec train encoder --out run --device cuda --set steps=40000 --set lr=2e-3 --evaluate

    torchrun --nproc-per-node 2 -m rhovec.cli train encoder --out run --device cuda
    """
    from ..evaluation.sets import read_formulae, require_pairs

    distill = training("distill")
    config = run.configured(distill, preset)
    own = None
    if traces:
        own = own_traces(traces, held_out, variables, discrete, dt, time_unit, schema)
        config = fitted(config, own, run.changes or [])
    elif config.corpus == "seeds":
        raise RhovecError(
            "corpus=seeds, as in the presets adapt and adapt-cpu, is for traces of your own; give "
            "--traces"
        )
    elif held_out or variables or discrete or dt is not None or time_unit is not None or schema:
        raise RhovecError(
            "--held-out, --variables, --discrete, --dt, --time-unit and --schema go with --traces"
        )
    if run.listed:
        return list_fields(config)
    if formulae and not run.evaluate:
        raise RhovecError("-F goes with --evaluate, which measures on these formulae, too")
    for path in formulae or ():  # so that a mistake in it is reported now, not after the training
        require_pairs(read_formulae(path, schema=own and own.schema))
    kernel = own and own.kernel(config)
    if own:
        note(
            f"{len(own.values):,} traces to distil, and {len(own.held_out):,} held out; the first line "
            f"comes after {min(config.every, config.validate, config.steps)} steps"
        )
    result = distill.train(config, run.out, report(config.steps), kernel)
    if run.evaluate:
        note(
            f"evaluating on {families} held-out families (--families), which takes minutes on a CPU"
        )
        rows = training("publish").publish_encoder(
            run.out, config, result, formulae or [], n_traces, families, kernel, own
        )
        for row in rows:
            where = f" ({row['set']})" if "set" in row else ""
            value = "none" if row["value"] is None else f"{row['value']:.5f}"
            print(f"{row['measure']}{where}: {value}, n = {row['n']}")


def decoder(
    run: Run,
    preset: Annotated[
        str,
        typer.Option(
            help="default, anchors, text or tiny; for a model of your own traces: adapt (a minute on a "
            "GPU) or adapt-cpu (some minutes), which start from the shipped weights."
        ),
    ] = "default",
) -> None:
    """Train a decoder to write the formulae of an encoder's vectors.

    A run that was stopped continues from its last checkpoint when the same command is given again.

    rhovec train decoder --preset tiny --out run --evaluate

    rhovec train decoder --preset adapt --out run --device cuda --set model=FOLDER --evaluate
    """
    invert = training("invert")
    asked = run.configured(invert, preset)
    config = invert.for_model(asked)
    require_agreement(asked, config, run.changes or [], "the model has")
    if run.listed:
        return list_fields(config)
    if run.evaluate and (config.vectors == "anchors" or config.tokens == "text"):
        raise RhovecError(
            "--evaluate writes a model, which reads an encoder's vectors and writes prefix tokens; "
            "anchors and text are measured by `python -m reproduction decoders`"
        )
    result = invert.train(config, run.out, report(config.steps))
    if run.evaluate:
        note("evaluating on 1,024 formulae, which takes minutes on a CPU")
        for name, value in training("publish").publish_decoder(run.out, config, result).items():
            print(f"{name}: {value:.5f}")


def own_traces(
    paths: list[Path],
    held_out: list[Path] | None,
    variables: str,
    discrete: str,
    dt: float | None,
    time_unit: str | None,
    schema: Path | None,
) -> Any:
    """The `OwnTraces` that the options describe."""
    from ..traces import read_traces

    names = split_names(variables) or None
    found = read_traces(paths, variables=names, time_unit=time_unit, skip_texts=True)
    tell_left_out(found)
    if dt is not None and found.dt is not None and dt != found.dt:
        raise RhovecError(f"--dt {dt:g}: the traces' times have a step of {found.dt:g}")
    judge = (
        read_traces(held_out, variables=found.variables, time_unit=time_unit) if held_out else None
    )
    return training("own").OwnTraces.of(
        found, dt=dt if found.dt is None else found.dt, discrete=split_names(discrete),
        schema=read_schema(schema), held_out=judge,
    )  # fmt: skip


def fitted(config: Any, own: Any, assignments: list[str]) -> Any:
    """The configuration with the traces' channels and points; --set may not contradict them."""
    made = own.configured(config)
    require_agreement(config, made, assignments, "the traces have")
    if config.kernel != "robustness":
        raise RhovecError("--traces goes with the kernel robustness; for another one use Python")
    return made


def require_agreement(config: Any, made: Any, assignments: list[str], who: str) -> None:
    """Refuse what --set asks for if the traces or the model say otherwise."""
    for name in ("channels", "focus", "points", "dimension", "fingerprint"):
        asked = [text for text in assignments if text.partition("=")[0] == name]
        if asked and getattr(config, name) != (there := getattr(made, name)):
            words = {
                "dimension": f"the dimension {there}", "focus": "no channels that come first",
                "fingerprint": f"the fingerprint {there}",
            }.get(name, f"{there} {name}")  # fmt: skip
            raise RhovecError(f"--set {asked[-1]}: {who} {words}; leave it out")


def space(
    reading: SpaceReading,
    out: Annotated[Path, option("--out", "-o", metavar="FOLDER", help="Folder of the space.")],
    error: Annotated[
        float, typer.Option(help="Mean error of the similarity K that the vectors may have.")
    ] = 0.001,
    sigma2: Annotated[
        float, typer.Option(help="Bandwidth: the smaller, the fewer formulae are similar.")
    ] = 0.2,
    centred: Annotated[
        bool,
        typer.Option(
            "--centred",
            help="Compare by correlation over traces, for requirements that hold nearly everywhere; "
            "such a space cannot be decoded.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")] = 0,
    as_json: JsonObject = False,
) -> None:
    """Make the exact space of your own traces, in seconds; --space takes it in other commands.

    Formulae are optional: the space is then made to be good at them, too. Bounds are in seconds if the
    traces have a time column.

    rhovec train space -t drives/ -F requirements.stl -o car;
    rhovec similarity "always[0,20] speed < 120" "always[0,30] speed < 110" --space car
    """
    from ..spaces import Space
    from ..spaces.scales import as_given, schema_of

    traces = TraceFiles.read_traces(reading, skip_texts=True)  # another step is refused below
    if traces is None:
        raise RhovecError("--traces: give the traces of your system")
    if reading.dt is None and traces.dt is not None:
        reading = replace(reading, dt="auto")
    options = reading.options(None, traces)
    given = reading.formulae or reading.files
    if not given and reading.settings:
        raise RhovecError("--set goes with a file of formulae (-F)")
    formulae: list[Requirement] = []
    if given:  # flags need no tolerance, as in the space
        discrete = split_names(reading.discrete)
        known = schema_of(as_given(traces, None), units=options["units"], discrete=discrete)
        formulae = reading.requirements({"discrete": sorted(known.options()["discrete"])}, traces)
    made = Space.fit(
        traces, dt=options["dt"] and float(exact_step(options["dt"])), units=options["units"],
        discrete=split_names(reading.discrete), tolerance=reading.tolerance, formulae=formulae,
        error=error, sigma2=sigma2, centred=centred, seed=seed,
    )  # fmt: skip
    made.save(out)
    facts = {
        "space": str(out), "traces": len(made.scales.values), "directions": made.dimension,
        "error": made.error, "standard_error": made.standard_error, "fingerprint": made.fingerprint,
    }  # fmt: skip
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    print(
        f"{out}: {made.dimension} numbers per formula, from {facts['traces']:,} traces. Mean error of "
        f"K: {made.error:.4f} on these traces, and {made.standard_error:.4f} for want of more traces."
    )


def training(name: str) -> Any:
    """Import a module of the package `training`, or say what to install."""
    needed("torch", "training", "torch")
    return import_module(f"rhovec.training.{name}")


def parsed(config: type, assignments: list[str]) -> dict[str, Any]:
    """Changes such as {"lr": 0.002} from ["lr=2e-3"], by the types of the fields."""
    out: dict[str, Any] = {}
    known: dict[str, Any] = {f.name: type(f.default) for f in fields(config)}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or name not in known or name == "device":
            raise RhovecError(f"--set {text}: give FIELD=VALUE, where FIELD is one of --fields")
        try:
            out[name] = known[name](value)
        except ValueError:
            raise RhovecError(f"--set {text}: {name} is of type {known[name].__name__}") from None
        if known[name] is not str and not 0 <= out[name] < math.inf:
            raise RhovecError(f"--set {text}: {name} must be 0 or more")
    return out


def helps(config: type) -> dict[str, str]:
    """The comment beside each field, in the order of the fields."""
    pattern = re.compile(r"^    (\w+): \w+ = [^#]*(?:# (.*))?$", re.MULTILINE)
    classes = [kind for kind in reversed(config.__mro__) if kind is not object]
    found = dict(pair for kind in classes for pair in pattern.findall(inspect.getsource(kind)))
    return {field.name: found[field.name] for field in fields(config)}


def list_fields(config: Any) -> None:
    for name, text in helps(type(config)).items():
        print(f"{name} = {getattr(config, name)}  # {text}")


def report(steps: int) -> Callable[[dict[str, Any]], None]:
    """A function that prints a line per report; on a terminal it replaces the previous line."""
    terminal = sys.stderr.isatty()

    def show(line: dict[str, Any]) -> None:
        left = round(line["seconds_left"])
        shown = ("loss", "alignment", "accuracy", "valid_alignment", "valid_cosine", "valid_exact")
        values = [f"{name} {line[name]:.5f}" for name in shown if name in line]
        rate = f"{line['formulae_per_second']:,.0f} formulae/s"
        text = "  ".join(
            [f"step {line['step']}/{steps}", *values, rate, f"{left // 60}:{left % 60:02d} left"]
        )
        print(f"\r{text}\033[K" if terminal else text, end="" if terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip
        if terminal and line["step"] == steps:
            print(file=sys.stderr)

    return show


for command in (space, encoder, decoder):
    app.command()(grouped(command))
