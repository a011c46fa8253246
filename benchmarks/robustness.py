"""Speed and memory of robustness on the CPU, beside other libraries: `make bench`.

Every library gets the same traces and formulae and is timed by the same code (adapters.py): the
median of repeated calls; converting traces, building formulae and compiling are apart. Every
answer is compared with the slow oracle (rhovec.robustness.reference). Slow libraries get fewer
traces; the count stands in each row. With --full also 4000 formulae on 16,000 traces of 1000
points.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import rhovec as rv
from common import RESULTS, command, save, table
from peers import PINS, Program, ask, closed_until, item, machine, program, random_walks
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.formula.sample import random_formulae
from rhovec.robustness.reference import robustness_trace

FORMULAE = {
    "A": "always[0,20](eventually[5,15](x_0 >= 0.3))",
    "B": "x_0 <= 0.5 until[3,25] x_1 >= 0.1",
    "C": "always[0,30]((x_0 >= -1 and x_1 <= 1) or eventually[0,10](x_2 >= 0.7))",
}
N = 1000
LIBRARIES = ("rhovec", *PINS)
# Traces for A, B and C where a thousand would take too long or not fit in memory.
FEWER = {
    ("rtamt", 100): (100, 20, 100), ("rtamt", 1000): (20, 4, 20),
    ("stljax", 100): (1000, 200, 1000), ("stljax", 1000): (40, 4, 40),
    ("stlcgpp", 100): (1000, 200, 1000), ("stlcgpp", 1000): (20, 2, 20),
}  # fmt: skip
BAG, BAG_SHARE, BAG_TRACES = 1000, 20, 50  # formulae; of them and traces for the other libraries
REPEATS, SECONDS, TOLERANCE = 2000, 1.0, 1e-5


def answers_right(formulae: list[Formula], x: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Shares of values, (B, n) or (B, n, P), that the oracle confirms: all; up to the horizon."""
    traces = {f"x_{i}": x[: values.shape[1], i] for i in range(x.shape[1])}
    all_times, inside = [], []
    for phi, theirs in zip(formulae, values, strict=True):
        truth = robustness_trace(phi, traces)[:, : theirs.shape[1] if theirs.ndim == 2 else 1]
        near = np.isclose(theirs.reshape(truth.shape), truth, rtol=0, atol=TOLERANCE)
        all_times.append(near.ravel())
        inside.append(near[:, : max(0, x.shape[2] - phi.horizon)].ravel())
    within = np.concatenate(inside)
    return {
        "right": float(np.concatenate(all_times).mean()),
        "right_inside": float(within.mean()) if len(within) else float("nan"),
    }


def figures(answer: dict[str, Any], n: int) -> dict[str, Any]:
    """Microseconds a trace: median and quartiles of the timed calls, and the work around them."""
    if "error" in answer:
        raise RuntimeError(answer["error"])
    low, median, high = np.quantile(np.array(answer["times_s"]) * 1e6 / n, [0.25, 0.5, 0.75])
    return {
        "us": float(median), "us_low": float(low), "us_high": float(high),
        "repeats": len(answer["times_s"]), "convert_us": answer["convert_s"] * 1e6 / n,
        "build_ms": answer["build_s"] * 1e3, "first_ms": answer["first_s"] * 1e3,
    }  # fmt: skip


def rewritten(peer: str, phi: Formula) -> Program:
    """rtamt's until leaves t' out of the left operand, so it gets the form on which both agree."""
    return closed_until(program(phi)) if peer == "rtamt" else program(phi)


def compare_libraries(folder: Path, seed: int) -> list[dict[str, Any]]:
    """A, B and C on all libraries, at time 0 and along the trace."""
    rows = []
    parsed = {name: rv.parse(text) for name, text in FORMULAE.items()}
    for points in (100, 1000):
        x, path = saved(folder, N, points, seed)
        for peer in LIBRARIES:
            counts = dict(zip(FORMULAE, FEWER.get((peer, points), (N,) * 3), strict=True))
            places = [
                (name, trace)
                for name in FORMULAE
                for trace in ((False,) if peer == "pytelo" else (False, True))
            ]
            items = [
                item([rewritten(peer, parsed[name])], path, counts[name], trace=trace,
                     repeats=REPEATS, seconds=SECONDS)
                for name, trace in places
            ]  # fmt: skip
            for (name, trace), answer in zip(places, ask(peer, items), strict=True):
                row = figures(answer, counts[name])
                right = answers_right([parsed[name]], x, answer["values"])
                rows.append({
                    "part": "libraries", "formula": name, "points": points, "peer": peer,
                    "what": "trace" if trace else "time 0", "n": counts[name], **row, **right,
                })  # fmt: skip
    return with_ratios(rows, ("formula", "points", "what"))


def compare_bags(folder: Path, seed: int) -> list[dict[str, Any]]:
    """A thousand random formulae: rhovec in one call, others on a few, microseconds a trace and
    formula. pytelo is left out: it has no unbounded windows, and nested ones multiply its work."""
    bag = random_formulae(BAG, seed)
    x, path = saved(folder, N, 100, seed)
    rows = []
    for peer in LIBRARIES:
        if peer == "pytelo":
            continue
        chosen, n = bag, N
        if peer != "rhovec":
            chosen, n = [f for f in bag if peer != "rtamt" or offered(f)][:BAG_SHARE], BAG_TRACES
        programs = [rewritten(peer, phi) for phi in chosen]
        items = [
            item(programs, path, n, trace=trace, repeats=REPEATS, seconds=SECONDS)
            for trace in (False, True)
        ]
        for trace, answer in zip((False, True), ask(peer, items), strict=True):
            row = figures(answer, n * len(chosen))
            checked = answer["values"][:100, :16]
            right = answers_right(chosen[:100], x, checked)
            rows.append({
                "part": "bag", "formula": f"bag of {BAG}", "points": 100, "peer": peer,
                "what": "trace" if trace else "time 0", "n": n, "formulae": len(chosen), **row,
                "seconds_for_all": row["us"] * BAG * N / 1e6, "extrapolated": peer != "rhovec",
                **right,
            })  # fmt: skip
    return with_ratios(rows, ("formula", "points", "what"))


def offered(phi: Formula) -> bool:
    """rtamt has no [a,inf]."""
    return not any(lo > 0 and hi == ops.UNBOUNDED for _, lo, hi, _, _ in phi.rows())


def with_ratios(rows: list[dict[str, Any]], key: tuple[str, ...]) -> list[dict[str, Any]]:
    ours = {tuple(r[k] for k in key): r["us"] for r in rows if r["peer"] == "rhovec"}
    return [{**row, "ratio": row["us"] / ours[tuple(row[k] for k in key)]} for row in rows]


SHAPES: dict[str, Callable[[int], str]] = {
    "always": lambda width: f"always[0,{width}] (x_0 >= 0)",
    "eventually": lambda width: f"eventually[0,{width}] (x_0 >= 0)",
    "until": lambda width: f"x_0 >= -1 until[0,{width}] x_1 >= 0.5",
}


def scale(folder: Path, seed: int) -> list[dict[str, Any]]:
    """rhovec's time for a whole trace against its length, and against the window; on one core, as
    the engine takes more cores only for more work."""
    n = 256
    lengths = [(p, 20) for p in (100, 200, 500, 1000, 2000, 5000, 10000)]
    windows = [(2000, w) for w in (1, 3, 10, 30, 100, 300, 1000)]
    rows = []
    for part, cases in (("length", lengths), ("window", windows)):
        places = [(shape, points, width) for shape in SHAPES for points, width in cases]
        items = [
            item([program(rv.parse(SHAPES[shape](width)))], saved(folder, n, points, seed)[1], n,
                 trace=True, repeats=REPEATS, seconds=SECONDS / 2)
            for shape, points, width in places
        ]  # fmt: skip
        for (shape, points, width), answer in zip(places, ask("rhovec", items, True), strict=True):
            rows.append({
                "part": part, "formula": shape, "points": points, "width": width,
                "peer": "rhovec", "what": "trace", "n": n, **figures(answer, n),
            })  # fmt: skip
    return rows


def measure_memory(folder: Path, seed: int) -> list[dict[str, Any]]:
    """How much memory a call of rhovec adds to the process, and the size of what it returns."""
    points, rows = 100, []
    path = saved(folder, 16000, points, seed)[1]
    bag = [program(phi) for phi in random_formulae(4000, seed)]
    warm_up = item(bag[:10], path, 10, trace=False)
    for b, n in ((250, 4000), (1000, 4000), (4000, 4000), (1000, 1000), (1000, 16000)):
        # A new process for each: reuse of memory that an earlier call had freed would not be seen.
        answer = ask("rhovec", [warm_up, item(bag[:b], path, n, trace=False, memory=True)])[1]
        rows.append({
            "part": "memory", "formulae": b, "n": n, "points": points, "peer": "rhovec",
            "what": "time 0", "growth_mb": answer["peak_bytes"] / 1e6, "output_mb": 4 * b * n / 1e6,
        })  # fmt: skip
    return rows


def big_job(folder: Path, seed: int) -> list[dict[str, Any]]:
    """The training-sized job, checked on the first formulae and traces."""
    b, n, points = 4000, 16000, 1000
    x, path = saved(folder, n, points, seed)
    bag = random_formulae(b, seed)
    programs = [program(phi) for phi in bag]
    work = item(programs, path, n, trace=False, repeats=3, memory=True)
    warm_up = item(programs[:10], path, 100, trace=False)
    answer = ask("rhovec", [warm_up, work])[1]
    row = figures(answer, n * b)
    return [{
        "part": "big", "formula": f"bag of {b}", "points": points, "peer": "rhovec",
        "what": "time 0", "n": n, "formulae": b, **row, "seconds_for_all": row["us"] * b * n / 1e6,
        "growth_mb": answer["peak_bytes"] / 1e6, "output_mb": 4 * b * n / 1e6,
        **answers_right(bag[:20], x, answer["values"][:20, :4]),
    }]  # fmt: skip


def saved(folder: Path, n: int, points: int, seed: int) -> tuple[np.ndarray, Path]:
    """Random walks (n, 3, points) and the npy file that holds them."""
    path = folder / f"traces-{n}-{points}.npy"
    if not path.exists():
        np.save(path, random_walks(n, points, seed))
    return np.load(path, mmap_mode="r"), path


# -- the page --------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def right_text(row: dict[str, Any]) -> str:
    if row["right"] == 1:
        return "yes"
    return "up to the horizon" if row["right_inside"] == 1 else f"{100 * row['right']:.3g} %"


def report(rows: list[dict[str, Any]]) -> str:
    """The page in Markdown."""
    host, given, seed = rows[0]["machine"], rows[0]["command"], rows[0]["seed"]
    parts = {part: [r for r in rows if r["part"] == part] for part in dict.fromkeys(
        r["part"] for r in rows)}  # fmt: skip
    versions = ", ".join(f"{name} {v}" for name, v in host["versions"].items())
    busy = "**The machine was busy with other work: times and ratios are rough.** "
    out = [
        "# Robustness on the CPU", "",
        f"Command: `{given}`; seed {seed}. Machine: {host['cpu']}, {host['cores']} cores, load "
        f"{host['load']} at the start, Python {host['python']}; {versions}.", "",
        busy * (host["load"] > 0.7)
        + "Traces are random walks of three variables, float32. Times are medians of repeated calls "
        "with the quartiles, in microseconds a trace; n is the number of traces in a call (fewer "
        "where a library is slow); ratio is to rhovec on the same formula. Every library used as "
        "many threads as it takes by itself. Apart: converting traces, building the formula, and "
        "what the first call takes more than a usual one (compiling; in a library's first row also "
        "loading). Right: agrees with the slow oracle within 1e-5; \"up to the horizon\": except "
        "where windows reach past the end of the trace. rtamt got `p until (p and q)` for "
        "`p until q`, on which its convention and rhovec's agree; stljax and stlcgpp hold the last "
        "sample (`padding='last'`).", "",
        *(f"- {name}: `{text}`" for name, text in FORMULAE.items()), "",
    ]  # fmt: skip
    for what in ("time 0", "trace"):
        for points in (100, 1000):
            out += [f"## {'At time 0' if what == 'time 0' else 'Whole trace'}, {points} points", ""]
            out += table(
                ["formula", "library", "n", "µs a trace", "quartiles", "ratio",
                 "convert µs a trace", "build ms", "first ms", "right"],
                [
                    [r["formula"], r["peer"], str(r["n"]), number(r["us"]),
                     f"{number(r['us_low'])} to {number(r['us_high'])}", number(r["ratio"]),
                     number(r["convert_us"]), number(r["build_ms"]), number(r["first_ms"]),
                     right_text(r)]
                    for name in FORMULAE
                    for r in parts["libraries"]
                    if (r["formula"], r["what"], r["points"]) == (name, what, points)
                ],
            )  # fmt: skip
            out.append("")
    out += [
        f"## {BAG} random formulae on {N} traces of 100 points", "",
        "rhovec did all of it in one call. The others, which take one formula at a time, did the "
        "stated part, and their total is **extrapolated** from it. Right was tested on the first "
        "100 formulae and 16 traces. rtamt has no [a,inf] and got formulae without it; stljax and "
        "stlcgpp were told to hold the last sample, with which their unbounded always is wrong; "
        "pytelo has no unbounded operators.", "",
        *table(
            ["what", "library", "formulae x traces done", "µs a formula and trace", "s for all",
             "ratio", "build ms", "first ms", "right"],
            [
                [r["what"], r["peer"], f"{r['formulae']} x {r['n']}", number(r["us"]),
                 number(r["seconds_for_all"]) + (" (extrapolated)" if r["extrapolated"] else ""),
                 number(r["ratio"]), number(r["build_ms"]), number(r["first_ms"]), right_text(r)]
                for r in parts["bag"]
            ],
        ), "",
    ]  # fmt: skip
    for part, text, axis in (
        ("length", "## Time against the length of the trace (window 20, one core)", "points"),
        ("window", "## Time against the window (2000 points, one core)", "width"),
    ):
        values = list(dict.fromkeys(r[axis] for r in parts[part]))
        out += [text, "", "Whole traces, microseconds a trace; growth is the slope of log time "
                "against log size: 1 is linear, 0 is flat.", ""]  # fmt: skip
        out += table(
            [axis, *map(str, values), "growth"],
            [
                [shape, *(number(r["us"]) for r in series(parts[part], shape)),
                 f"{growth(series(parts[part], shape), axis):.2f}"]
                for shape in SHAPES
            ],
        )  # fmt: skip
        out.append("")
    out += [
        "## Memory", "",
        "Growth of the process during one call at time 0, 100 points, beside the array it returns.",
        "",
        *table(
            ["formulae", "traces", "growth MB", "returned MB"],
            [[str(r["formulae"]), str(r["n"]), number(r["growth_mb"]), number(r["output_mb"])]
             for r in parts["memory"]],
        ), "",
    ]  # fmt: skip
    for r in parts.get("big", []):
        out += [
            f"## {r['formulae']} formulae on {r['n']} traces of {r['points']} points, time 0", "",
            f"{number(r['seconds_for_all'])} s, {number(r['us'] * 1e3)} ns a formula and trace; "
            f"the process grew by {number(r['growth_mb'])} MB, of which "
            f"{number(r['output_mb'])} MB are the answer. Right (20 formulae, 4 traces): "
            f"{right_text(r)}.", "",
        ]  # fmt: skip
    return "\n".join([*out, "![figure](robustness-cpu.png)", ""])


def series(rows: list[dict[str, Any]], shape: str) -> list[dict[str, Any]]:
    return [r for r in rows if r["formula"] == shape]


def growth(rows: list[dict[str, Any]], axis: str) -> float:
    slope, _ = np.polyfit(np.log([r[axis] for r in rows]), np.log([r["us"] for r in rows]), 1)
    return float(slope)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Libraries at time 0 and along the trace above, rhovec's scaling below."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    groups = [(points, name) for points in (100, 1000) for name in FORMULAE]
    for axis, what in zip(axes[0], ("time 0", "trace"), strict=True):
        for k, peer in enumerate(LIBRARIES):
            if peer == "pytelo" and what == "trace":
                continue
            us = {
                (r["points"], r["formula"]): r["us"]
                for r in rows
                if r["part"] == "libraries" and r["peer"] == peer and r["what"] == what
            }
            places = [i + 0.16 * (k - 2) for i, group in enumerate(groups) if group in us]
            axis.bar(places, [us[g] for g in groups if g in us], 0.16, label=peer)
        axis.set_xticks(range(len(groups)), [f"{name}, {points}" for points, name in groups])
        axis.set(yscale="log", xlabel="formula, points", ylabel="time (µs a trace)", title=what)
        axis.legend(fontsize=8)
    for axis, part, size, label in (
        (axes[1, 0], "length", "points", "length of the trace (points); window 20"),
        (axes[1, 1], "window", "width", "window (steps); 2000 points"),
    ):
        for shape in SHAPES:
            chosen = series([r for r in rows if r["part"] == part], shape)
            axis.plot([r[size] for r in chosen], [r["us"] for r in chosen], "o-", label=shape)
        axis.set(xscale="log", yscale="log", xlabel=label, ylabel="time (µs a trace, one core)")
        axis.set_title(f"rhovec, whole trace, against the {part}")
        axis.legend(fontsize=8)
    low, high = axes[1, 1].get_ylim()
    axes[1, 1].set_ylim(min(low, high / 30), high * 3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of robustness on the CPU.")
    parser.add_argument("--full", action="store_true", help="also 4000 x 16,000 x 1000 points")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    parts = [compare_libraries, compare_bags, scale, measure_memory, *[big_job] * given.full]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            common = {"command": command(), "seed": given.seed, "machine": machine()}
            rows += [{**row, **common} for row in part(Path(folder), given.seed)]
    draw(rows, RESULTS / "robustness-cpu.png")
    save("robustness-cpu", rows, report(rows))


if __name__ == "__main__":
    main()
