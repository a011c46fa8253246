"""Speed of gradients on the CPU, beside stljax and stlcg++: `python benchmarks/gradients.py`.

One call is forward and backward: the robustness of one formula at time 0 on all traces, summed, and
the gradient of the sum to the traces, with hard or smooth minima; for rhovec also to the
thresholds. Formulae, traces and timing are those of robustness.py, but every library has one core:
beside other work, torch's threads wait for each other far longer than they compute. Gradients are
compared with central differences of the definition in float64: the slow oracle, or `smooth` below.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rhovec as rv
from common import command, save, table
from peers import ask, item, machine, program
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.robustness.reference import robustness_trace
from robustness import FORMULAE, REPEATS, SECONDS, N, figures, number, saved, with_ratios

TEMPERATURE = 0.1
LIBRARIES = ("rhovec", "stljax", "stlcgpp")
# Traces for A, B and C where a thousand would take too long or not fit in memory.
FEWER = {
    ("stljax", 100): (1000, 50, 1000), ("stljax", 1000): (10, 2, 10),
    ("stlcgpp", 100): (200, 20, 200), ("stlcgpp", 1000): (5, 1, 5),
}  # fmt: skip
KINDS: dict[str, float | None] = {"hard": None, "smooth": TEMPERATURE}
CHECKED, STEP, TOLERANCE = 8, 1e-6, 1e-4  # traces whose gradients are checked; the differences

Values = Callable[[Formula, np.ndarray], np.ndarray]  # (phi, (n, V, P) float64) -> (n,) at time 0


# -- the definition --------------------------------------------------------------------------------


def hard(phi: Formula, x: np.ndarray) -> np.ndarray:
    return robustness_trace(phi, {f"x_{i}": x[:, i] for i in range(x.shape[1])})[:, 0]


def high(values: np.ndarray) -> np.ndarray:
    """The smooth maximum over the first axis."""
    total: np.ndarray = np.logaddexp.reduce(values / TEMPERATURE)
    return TEMPERATURE * total


def low(values: np.ndarray) -> np.ndarray:
    return -high(-values)


def until_nested(left: np.ndarray, right: np.ndarray, lo: int, hi: int) -> np.ndarray:
    """rhovec's smooth until at time 0: the recursion u(s) = min(left, max(right, u(s + 1)))."""
    u = low(np.stack([left[hi], right[hi]]))
    for s in reversed(range(lo, hi)):
        u = low(np.stack([left[s], high(np.stack([right[s], u]))]))
    return low(np.stack([*left[:lo], u]))


def until_flat(left: np.ndarray, right: np.ndarray, lo: int, hi: int) -> np.ndarray:
    """The others': the textbook's maximum of minima, each of them smooth."""
    return high(np.stack([low(np.stack([*left[: s + 1], right[s]])) for s in range(lo, hi + 1)]))


def smooth(phi: Formula, x: np.ndarray, until: Callable[..., np.ndarray]) -> np.ndarray:
    """Smooth robustness at time 0, (n,), of a formula whose horizon lies within x (n, V, P)."""
    stack: list[np.ndarray] = []  # traces (times, n), as long as they are defined
    for op, lo, hi, channel, threshold in phi.rows():
        if channel is not None:
            above = x[:, int(channel[0][0].removeprefix("x_"))].T - threshold
            stack.append(above if op == ops.GE else -above)
        elif op in (ops.AND, ops.OR):
            b, a = stack.pop(), stack.pop()
            times = min(len(a), len(b))
            stack.append((low if op == ops.AND else high)(np.stack([a[:times], b[:times]])))
        elif op == ops.UNTIL:
            right, left = stack.pop(), stack.pop()
            times = len(left) - hi
            stack.append(np.stack([until(left[t:], right[t:], lo, hi) for t in range(times)]))
        else:
            join, child = low if op == ops.ALWAYS else high, stack.pop()
            windows = [child[t + lo : t + hi + 1] for t in range(len(child) - hi)]
            stack.append(np.stack([join(window) for window in windows]))
    at_zero: np.ndarray = stack[0][0]
    return at_zero


def definition(peer: str, kind: str) -> Values:
    if kind == "hard":
        return hard
    return partial(smooth, until=until_nested if peer == "rhovec" else until_flat)


def differences(value: Values, moved: Iterator[tuple[Formula, np.ndarray]]) -> np.ndarray:
    """Backward and forward difference quotients, (2, moves, n), where `moved` gives the place itself
    and then, for each move, the place after a step back and after a step ahead."""
    here, *others = (value(phi, x) for phi, x in moved)
    back, ahead = np.array(others[::2]), np.array(others[1::2])
    return np.stack([here - back, ahead - here]) / STEP


def move_traces(phi: Formula, x: np.ndarray) -> Iterator[tuple[Formula, np.ndarray]]:
    yield phi, x
    for place in np.ndindex(x.shape[1:]):
        for step in (-STEP, STEP):
            y = x.copy()
            y[:, *place] += step
            yield phi, y


def move_thresholds(phi: Formula, x: np.ndarray) -> Iterator[tuple[Formula, np.ndarray]]:
    yield phi, x
    rows = list(phi.rows())
    for k, (op, lo, hi, channel, threshold) in enumerate(rows):
        if channel is not None:
            for step in (-STEP, STEP):
                other = (op, lo, hi, channel, threshold + step)
                yield Formula.from_rows([*rows[:k], other, *rows[k + 1 :]]), x


def traces_right(phi: Formula, x: np.ndarray, gradient: np.ndarray, value: Values) -> str:
    """How many of the first traces have the right gradient, among those where it is unique."""
    reach = phi.horizon + 1  # nothing later counts, so there the gradient must be zero
    gradient = gradient[:CHECKED]
    x = x[: len(gradient), :, :reach].astype(np.float64)
    slopes = differences(value, move_traces(phi, x))
    unique = np.ptp(slopes, axis=0).max(axis=0) < 1e-3  # else within a step of a tie
    truth = np.zeros(gradient.shape)
    truth[:, :, :reach] = slopes.mean(axis=0).T.reshape(x.shape)
    right = np.abs(gradient - truth).max(axis=(1, 2)) < TOLERANCE
    return f"{(right & unique).sum()} of {unique.sum()}"


def thresholds_right(phi: Formula, x: np.ndarray, gradient: np.ndarray, value: Values) -> str:
    """How many thresholds have the right gradient; a trace near a tie may move it by one."""
    x = x[:, :, : phi.horizon + 1].astype(np.float64)
    slopes = differences(value, move_thresholds(phi, x))
    tied = (np.ptp(slopes, axis=0) > 1e-3).sum(axis=1)
    right = np.abs(gradient - slopes.mean(axis=0).sum(axis=1)) < TOLERANCE * len(x) + tied
    return f"{right.sum()} of {len(gradient)}"


# -- the measurements ------------------------------------------------------------------------------


def measure(folder: Path, seed: int, peer: str, points: int, to: str) -> list[dict[str, Any]]:
    """A, B and C, hard and smooth, in one process; `to` is "traces" or "thresholds"."""
    x, path = saved(folder, N, points, seed)
    counts = dict(zip(FORMULAE, FEWER.get((peer, points), (N,) * 3), strict=True))
    places = [(kind, name, rv.parse(text)) for kind in KINDS for name, text in FORMULAE.items()]
    items = []
    for kind, name, phi in places:
        levels = [c for *_, channel, c in phi.rows() if channel is not None]
        asked = {"temperature": KINDS[kind], "thresholds": levels if to == "thresholds" else None}
        work = item([program(phi)], path, counts[name], trace=False, repeats=REPEATS,
                    seconds=SECONDS)  # fmt: skip
        items.append({**work, "gradient": asked})
    rows = []
    check = traces_right if to == "traces" else thresholds_right
    for (kind, name, phi), answer in zip(places, ask(peer, items, one_core=True), strict=True):
        n = counts[name]
        row = figures(answer, n)
        rows.append({
            "to": to, "kind": kind, "formula": name, "points": points, "peer": peer, "n": n, **row,
            "right": check(phi, x[:n], answer["values"], definition(peer, kind)),
        })  # fmt: skip
    return rows


# -- the page --------------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]]) -> str:
    """The page in Markdown."""
    host, given, seed = rows[0]["machine"], rows[0]["command"], rows[0]["seed"]
    used = ("numpy", "torch", "stljax", "jax", "stlcgpp")
    versions = ", ".join(f"{name} {host['versions'][name]}" for name in used)
    out = [
        "# Gradients on the CPU", "",
        f"Command: `{given}`; seed {seed}. Machine: {host['cpu']}, {host['cores']} cores, load "
        f"{host['load']:g} at the start, Python {host['python']}; {versions}.", "",
        "One call is forward and backward: robustness of one formula at time 0 on n traces (random "
        "walks of three variables, float32), summed, and the gradient of the sum. Times are medians "
        "of repeated calls with the quartiles, in microseconds a trace; n is smaller where a "
        "library is slow; ratio is to rhovec on the same formula. Every library had one core, the "
        "same. First: what the first call takes more than a usual one (compiling; in "
        f"a library's first row also loading). Smooth: log-sum-exp with T = {TEMPERATURE} "
        f"(`temperature={1 / TEMPERATURE:g}` in stljax and stlcgpp, which hold the last sample: "
        "`padding='last'`); rhovec's smooth until is a recursion, theirs a maximum of minima, so on "
        "B they differ in value.", "",
        f"Right: of the first {CHECKED} traces, how many have the right gradient in every "
        "coordinate, where it is unique: within 1e-4 of central differences of the library's "
        "definition in float64. For thresholds: how many of them, over all n traces.", "",
        *(f"- {name}: `{text}`" for name, text in FORMULAE.items()), "",
    ]  # fmt: skip
    for kind in KINDS:
        for points in (100, 1000):
            out += [f"## To the traces, {kind}, {points} points", ""]
            out += table(
                ["formula", "library", "n", "µs a trace", "quartiles", "ratio", "first ms", "right"],
                [
                    [name, r["peer"], str(r["n"]), *times(r), number(r["ratio"]),
                     number(r["first_ms"]), r["right"]]
                    for name in FORMULAE
                    for r in rows
                    if (r["to"], r["kind"], r["points"], r["formula"])
                    == ("traces", kind, points, name)
                ],
            )  # fmt: skip
            out.append("")
    out += ["## To the thresholds (rhovec)", ""]
    out += table(
        ["minima", "points", "formula", "n", "µs a trace", "quartiles", "right"],
        [
            [r["kind"], str(r["points"]), r["formula"], str(r["n"]), *times(r), r["right"]]
            for r in rows
            if r["to"] == "thresholds"
        ],
    )
    return "\n".join([*out, ""])


def times(row: dict[str, Any]) -> list[str]:
    return [number(row["us"]), f"{number(row['us_low'])} to {number(row['us_high'])}"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of gradients on the CPU.")
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    common = {"command": command(), "seed": seed, "machine": machine()}
    asked = [(peer, "traces") for peer in LIBRARIES] + [("rhovec", "thresholds")]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for points in (100, 1000):
            for peer, to in asked:
                rows += measure(Path(folder), seed, peer, points, to)
    rows = [{**row, **common} for row in with_ratios(rows, ("to", "kind", "formula", "points"))]
    save("gradients-cpu", rows, report(rows))


if __name__ == "__main__":
    main()
