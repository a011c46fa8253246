"""`rhovec compare`: how two formulae are related, with the trace on which they differ most; or how all
requirements of files are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import RhovecError
from ..formula.requirements import read_data, require_some, resolve_sets
from .inputs import choose_measure, formulae_of, origins, read_schema
from .output import (
    TABLES,
    new_figure,
    note,
    printable,
    progress_bar,
    replacing_text,
    require_output,
    save_figure,
    save_table,
)
from .shared import (
    JsonObject,
    Points,
    RandomTraces,
    SchemaFile,
    Seed,
    TraceReading,
    option,
    output_file,
    picture,
)

if TYPE_CHECKING:
    import numpy as np

    from ..compare import Comparison, SetComparison, Witness
    from ..formula import Requirement, Schema
    from ..traces import Traces

WIDTH, HEIGHT = 60, 3  # characters of a drawing on a terminal
MAX_SHOWN = 6  # variables that are drawn
LABEL = 70  # characters of a formula in a picture
IS_RANDOM = re.compile(r"x_\d+")  # variables of random traces
HEADER = (
    "formula", "other", "relation", "basis", "both", "only_formula", "only_other", "neither"
)  # fmt: skip


def compare(
    reading: TraceReading,
    n_traces: RandomTraces = None,
    points: Points = None,
    seed: Seed = 0,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    schema: SchemaFile = None,
    plot: Annotated[
        Path | None, picture("Draw the trace on which two formulae differ most as a .png file.")
    ] = None,
    html: Annotated[
        Path | None,
        option(
            "--html",
            metavar="FILE",
            help="Write the relations of a set, with a graph of implications, as a page.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_file(
            "Write the relations of a set to a .csv, .jsonl or .parquet file, one row per pair."
        ),
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Whether formulae are equivalent, one implies the other, or they contradict.

    Two formulae: proved where possible, otherwise judged on your traces, or on random ones if the
    variables are x_0, x_1, ...

    More, or a file of requirements: all pairs; with several files, all pairs across them. What is
    proved comes first, then what only --traces suggest.

    rhovec compare "always[0,9] x_0 > 0" "eventually x_0 > 0"

    rhovec compare -F old.stl -F new.stl -t logs/ --dt 0.1 --html relations.html
    """
    require_output(plot, (".png",))
    require_output(html, (".html",))
    require_output(output, TABLES, as_json)
    contents = reading.contents(bool(reading.formulae))
    known, traces = read_schema(schema), reading.read_traces(reading.texts(contents))
    sets = _sets(reading, known, traces, contents)
    requirements = [one for _, members in sets for one in members]
    if len(requirements) < 2:
        raise RhovecError("compare takes two or more formulae, not 1; quote each of them")
    if len(requirements) > 2 or html or output or _beyond_random(requirements, traces, known):
        wrong = {"--plot": plot, "--points": points}
        wrong |= {"--n-traces": n_traces} if traces is None else {}
        for name, value in wrong.items():
            if value is not None:
                raise RhovecError(
                    f"{name} goes with two formulae over x_0, x_1, ..., not with a set"
                )
        _compare_sets(sets, traces, n_traces, seed, html, output, as_json)
    else:
        _compare_two(
            reading.about(requirements, traces, known), traces, n_traces, points, seed, confidence,
            reading.step(traces), plot, as_json,
        )  # fmt: skip
    reading.tell_steps(requirements, traces, known)


def _beyond_random(
    requirements: Sequence[Requirement], traces: Traces | None, schema: Schema | None
) -> bool:
    """Whether there are no traces to judge on: random ones have the variables x_0, x_1, ..."""
    names = {name for one in requirements for name in one.formula.variables}
    return traces is None and schema is None and not all(map(IS_RANDOM.fullmatch, names))


# -- sets ------------------------------------------------------------------------------------------


def _sets(
    reading: TraceReading,
    schema: Schema | None,
    traces: Traces | None,
    contents: list[tuple[str, bytes]],
) -> list[tuple[str, list[Requirement]]]:
    """The requirements of the arguments and of each file, with its name."""
    arguments = reading.arguments()
    sources = [(name, read_data(data, name)) for name, data in contents]
    sources += [("the arguments", arguments)] if arguments else []
    found, problems = resolve_sets(sources, reading.parameters(), **reading.options(schema, traces))
    reading.left_out(problems)
    require_some(found, problems, ", ".join(name for name, _ in sources))
    return sorted(found, key=lambda one: one[0] != "the arguments")


def _compare_sets(
    sets: Sequence[tuple[str, list[Requirement]]],
    traces: Traces | None,
    n_traces: int | None,
    seed: int,
    html: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    from ..compare import compare_sets
    from ..traces import TraceMeasure

    measure = None
    if traces is not None:
        every = TraceMeasure(traces.values, traces.variables)
        chosen = [x for block in every.blocks(n_traces, seed) for x in block]
        measure = TraceMeasure(chosen, traces.variables)
    names = [Path(name).name for name, _ in sets]
    if len(set(names)) < len(names):  # files of the same name in different folders
        names = [name for name, _ in sets]
    with progress_bar("compare") as progress:
        found = compare_sets(
            *(members for _, members in sets), traces=measure, names=names, seed=seed,
            progress=progress,
        )  # fmt: skip
    if html is not None:
        from ..compare.page import page

        with replacing_text(html) as text:
            text.write(page(found))
    rows = list(_rows(found))
    if output is not None:
        save_table(output, rows, HEADER)
    elif as_json:
        print(json.dumps(_facts(found, rows), ensure_ascii=False))
    else:
        print(found)


def _rows(found: SetComparison) -> Iterator[dict[str, Any]]:
    """One record per relation: proved ones, what only traces suggest, and what is undecided."""
    one, other = origins(found.requirements), origins(found.requirements, "other_")
    texts = [requirement.text for requirement in found.requirements]
    counts = ("both", "only_formula", "only_other", "neither")
    suggested = {frozenset(r[:2]) for r in found.suggested}
    listed = [(r, "proved") for r in found.proved] + [(r, "traces") for r in found.suggested]
    for (a, b, relation, held, _), basis in listed:
        yield {
            **one[a], "formula": texts[a], **other[b], "other": texts[b], "relation": relation,
            "basis": basis, **dict(zip(counts, held or (None,) * 4, strict=True)),
        }  # fmt: skip
    for a, b in found.undecided:
        if {a, b} not in suggested:
            yield {
                **one[a], "formula": texts[a], **other[b], "other": texts[b],
                "relation": "undecided", "basis": "", **dict.fromkeys(counts),
            }  # fmt: skip


def _facts(found: SetComparison, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows with what is known about single formulae."""

    def named(members: Iterable[int]) -> list[str]:
        return [found.label(i, title=False) for i in members]

    facts: dict[str, Any] = {
        "sets": dict(zip(found.names, map(found.sets.count, range(len(found.names))), strict=True)),
        "pairs": found.pairs,
        "never": named(found.never),
        "always": named(found.always),
        "doubtful": named(found.doubtful),
    }
    if found.n_traces:
        everywhere, nowhere = map(named, found.constant)
        facts |= {"traces": found.n_traces, "vacuous": found.vacuous}
        facts |= {"hold_on_all": everywhere, "hold_on_none": nowhere}
        facts |= {"untested": named(found.untested)}
    return facts | {"relations": rows}


# -- two formulae ----------------------------------------------------------------------------------


def _compare_two(
    requirements: list[Requirement],
    traces: Traces | None,
    n_traces: int | None,
    points: int | None,
    seed: int,
    confidence: float,
    step: float | str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    from ..compare import compare as compared
    from ..traces import TraceMeasure

    pair = formulae_of(requirements)
    measure = choose_measure(pair, traces, points)
    with progress_bar("compare") as progress:
        result = compared(pair[0], pair[1], measure, n_traces, seed, confidence, progress=progress)

    trace_id = None
    if isinstance(measure, TraceMeasure) and traces is not None and result.witness is not None:
        equal = (measure.values == result.witness.trace).all(axis=(1, 2))
        trace_id = traces.ids[int(equal.argmax())]
    labels = [requirement.label for requirement in requirements]
    if plot is not None and result.witness is not None:
        draw(result.witness, used_variables(result), labels, step, trace_id, plot)
    if as_json:
        print(json.dumps(to_json(result, requirements, trace_id), ensure_ascii=False))
        return
    named = [r for r in requirements if r.id or r.title]
    for name, requirement in zip("ab", requirements, strict=True):
        if requirement in named:
            print(f"{name} is {printable(requirement.label)} of {printable(requirement.source)}")
    print(*[""] * bool(named), result, sep="\n")
    if result.witness is not None:
        name = f" ({printable(trace_id)})" if trace_id else ""
        print(f"\nThat trace{name}, from point 0 on:\n")
        print(sketch(result.witness, used_variables(result)))
    elif plot is not None:
        note(f"{plot}: not drawn, no trace tells the two apart")


def used_variables(result: Comparison) -> list[str]:
    names = {*result.a.variables, *result.b.variables}
    return [name for name in result.witness.variables if name in names] if result.witness else []


def to_json(
    result: Comparison, requirements: Sequence[Requirement], trace_id: str | None
) -> dict[str, Any]:
    """Everything that was found; a share is {value, low, high, impossible}."""
    witness = result.witness
    of_a, of_b = origins(requirements)
    return {
        "a": requirements[0].text,
        "b": requirements[1].text,
        **({"requirements": {"a": of_a, "b": of_b}} if of_a else {}),
        "relation": result.relation,
        "proved": result.proved,
        "statement": result.statement,
        "remarks": list(result.remarks),
        "both": result.both._asdict(),
        "only_a": result.only_a._asdict(),
        "only_b": result.only_b._asdict(),
        "neither": result.neither._asdict(),
        "differ": result.differ._asdict(),
        "similarity": result.similarity,
        "standard_error": result.standard_error,
        "traces": result.n_traces,
        "points": result.points,
        "seed": result.seed,
        "confidence": result.confidence,
        "witness": None
        if witness is None
        else {
            "id": trace_id,
            "trace": dict(zip(witness.variables, witness.trace.tolist(), strict=True)),
            "robustness": dict(zip("ab", witness.robustness.tolist(), strict=True)),
            "satisfied": dict(zip("ab", witness.satisfied, strict=True)),
        },
    }


# -- drawings --------------------------------------------------------------------------------------


def sketch(witness: Witness, used: list[str]) -> str:
    """The trace and the robustness of both formulae for a terminal, one below the other."""
    rows = [(name, witness.trace[witness.variables.index(name)]) for name in used[:MAX_SHOWN]]
    rows += [(f"robustness of {name}", witness.robustness[i]) for i, name in enumerate("ab")]
    blocks = []
    for title, values in rows:
        low, high = float(values.min()), float(values.max())
        marks = [f"{high:.4g}", *[""] * (HEIGHT - 2), f"{low:.4g}"]
        lines = braille(values, low, high)
        body = [f"{mark:>10} {line}" for mark, line in zip(marks, lines, strict=True)]
        blocks.append("\n".join([title, *body]))
    return "\n".join(blocks)


def braille(values: np.ndarray, low: float, high: float) -> list[str]:
    """A line through values (P,) in HEIGHT rows of braille, and dots at 0 if that is in range."""
    import numpy as np

    columns, dots = 2 * WIDTH, 4 * HEIGHT
    points = np.arange(len(values))
    at = np.interp(np.linspace(0, points[-1], columns), points, values - low)
    scale = (dots - 1) / (high - low) if high > low else 0.0
    y = np.rint(at * scale).astype(int)
    canvas = np.zeros((dots, columns), bool)
    for x in range(columns):  # a steep line fills its column from where the one before ended
        before = int(y[max(x - 1, 0)])
        first, last = sorted((int(y[x]), before + int(np.sign(y[x] - before))))
        canvas[first : last + 1, x] = True
    if low < 0 < high:
        canvas[round(-low * scale), ::4] = True
    bits = np.array([[0x40, 0x80], [0x04, 0x20], [0x02, 0x10], [0x01, 0x08]])  # from the bottom
    cells = canvas.reshape(HEIGHT, 4, WIDTH, 2).transpose(0, 2, 1, 3)
    codes = 0x2800 + (cells * bits).sum(axis=(2, 3))
    return ["".join(map(chr, row)) for row in codes[::-1].tolist()]


def draw(
    witness: Witness,
    used: list[str],
    texts: list[str],
    step: float | str | None,
    trace_id: str | None,
    path: Path,
) -> None:
    """The same as a picture: one panel per variable, and one with the robustness of both formulae."""
    shown = used[:MAX_SHOWN]
    unit = "no unit" if trace_id is None else "unit of the trace"
    time = [t * (1.0 if step is None else float(step)) for t in range(witness.trace.shape[1])]
    figure = new_figure(8, 1.5 * len(shown) + 3)
    *panels, last = figure.subplots(len(shown) + 1, sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(shown, panels, strict=True):
        axes.plot(time, witness.trace[witness.variables.index(name)], color="black", linewidth=1)
        axes.set_ylabel(f"{name}\n({unit})", parse_math=False)
    last.axhline(0, color="grey", linewidth=0.8)
    for name, trace, ok, text, style in zip(
        "ab", witness.robustness, witness.satisfied, texts, ("-", "--"), strict=True
    ):
        short = text if len(text) <= LABEL else text[: LABEL - 3] + "..."
        verdict = "holds" if ok else "fails"
        (line,) = last.plot(time, trace, style, label=f"{name} {verdict}:  {short}")
        last.plot(time[:1], trace[:1], "o", color=line.get_color())
    last.set_xlabel("time (steps)" if step is None else "time (s)")
    last.set_ylabel("robustness\n(unit of the atoms)")
    figure.legend(loc="outside lower center", fontsize=8)
    title = "The trace on which a and b differ most"
    title += "" if trace_id is None else f": {trace_id}"
    figure.suptitle(title, fontsize=10, parse_math=False)
    save_figure(figure, path)
