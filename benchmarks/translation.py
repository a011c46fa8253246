"""rtamt beside rhovec, through the translation: 10,000 random formulae each way, and speed.

Part of `make agreement`. Out: random formulae of ours are written for rtamt. In: random texts of rtamt,
which lean on its bindings and spellings, are read by rhovec. Both sides evaluate along whole traces, and
are compared at the times where all that is evaluated lies inside of them. Samples and constants are
multiples of 1/64, on which float64 arithmetic is exact, so that values must be equal, not close.
--golden writes tests/data/rtamt.jsonl, by which the tests check the translation without rtamt.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import rhovec as rv
from common import ROOT, command, head, save, table
from peers import ask, item, machine, program, random_walks
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula, canonical_channel, compose
from rhovec.formula.operators import Shifted, Variable
from rhovec.formula.shape import shape_of

TRACES, POINTS, CHUNK = 2, 60, 250
UNARY = (ops.NOT, ops.NEXT, ops.PREV, ops.RISE, ops.FALL)
WINDOWS = (ops.ALWAYS, ops.EVENTUALLY, ops.ONCE, ops.HISTORICALLY)
BINARY = (
    ops.AND, ops.OR, ops.IMPLIES, ops.IFF, ops.UNTIL, ops.RELEASE, ops.WEAK_UNTIL, ops.SINCE,
)  # fmt: skip


def number(rng: np.random.Generator) -> float:
    return int(rng.integers(-96, 97)) / 64


# -- out: formulae of ours -------------------------------------------------------------------------


def formula(rng: np.random.Generator, depth: int) -> Formula:
    if depth == 0 or rng.random() < 0.15:
        return atom(rng)
    op = int(rng.choice((*UNARY, *WINDOWS, *WINDOWS, *BINARY, ops.UNTIL, ops.SINCE, ops.SINCE)))
    lo = int(rng.integers(4)) * int(rng.integers(2))
    hi = ops.UNBOUNDED if rng.random() < 0.15 else lo + int(rng.integers(5))
    return compose(op, *(formula(rng, depth - 1) for _ in range(ops.arity(op))), lo=lo, hi=hi)


def atom(rng: np.random.Generator) -> Formula:
    terms: dict[Variable, float] = {}
    for i in rng.permutation(3)[: int(rng.integers(1, 3))]:
        lag = int(rng.integers(-2, 3)) if rng.random() < 0.2 else 0
        variable = Shifted(f"x_{i}", lag) if lag else f"x_{i}"
        terms[variable] = float(rng.choice((1, 1, -1, 2, -0.5)))
    channel, _ = canonical_channel(terms)
    row = (int(rng.choice(ops.COMPARISONS)), 0, 0, channel, number(rng))
    return Formula.from_rows([row])


# -- in: texts of rtamt ----------------------------------------------------------------------------


def text(rng: np.random.Generator, depth: int) -> str:
    """One to three operands and what joins them, without parentheses: its bindings decide."""
    joins = ("and", "or", "&", "|", "->", "implies", "until", "since", "U", "S", "unless", "W")
    out = operand(rng, depth)
    for _ in range(int(rng.choice((0, 1, 1, 2)))):
        join = str(rng.choice(joins))
        timed = join in ("unless", "W") or (
            join in ("until", "since", "U", "S") and rng.random() < 0.85
        )
        out += f" {join}{window(rng) if timed else ''} {operand(rng, depth)}"
    return out


def operand(rng: np.random.Generator, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return comparison(rng)
    kind = rng.random()
    if kind < 0.35:
        return f"({text(rng, depth - 1)})"
    if kind < 0.75:
        words = ("always", "eventually", "once", "historically", "G", "F", "O", "H")
        timed = window(rng) if rng.random() < 0.85 else ""
        return f"{rng.choice(words)}{timed} {operand(rng, depth - 1)}"
    if kind < 0.85:
        return f"{rng.choice(('rise', 'fall'))}({text(rng, depth - 1)})"
    words = ("not", "!", "prev", "next", "Y", "X", "s_prev", "s_next")
    return f"{rng.choice(words)} {operand(rng, depth - 1)}"


def comparison(rng: np.random.Generator) -> str:
    kind = rng.random()
    if kind < 0.1:
        return f"x_{rng.integers(3)}"  # a signal is its own robustness
    if kind < 0.2:
        left, right = expression(rng, shifts=False), expression(rng, shifts=False)
        return f"({left} {rng.choice(('iff', 'xor', '<->'))} {right})"
    compare = rng.choice((">", ">=", "<", "<=", ">", ">=", "<", "<=", "==", "!=="))
    return f"{expression(rng)} {compare} {number(rng)}"


def expression(rng: np.random.Generator, shifts: bool = True) -> str:
    """A sum of different variables, so that no shifted one cancels, which rtamt would not notice."""
    out = ""
    for i in rng.permutation(3)[: int(rng.choice((1, 1, 2, 3)))].tolist():
        x = f"x_{i}"
        forms = [x, x, x, f"2 * {x}", f"{x} / 4", f"abs({x})", *(["0.25"] if out else [])]
        forms += [f"(prev {x})", f"(next {x})"] * shifts
        term = str(rng.choice(forms))
        out = f"{out} {rng.choice(('+', '-'))} {term}" if out else term
    return out


def window(rng: np.random.Generator) -> str:
    lo = int(rng.integers(4)) * int(rng.integers(2))
    hi = lo + int(rng.integers(5))
    return str(
        rng.choice((f"[{lo}:{hi}]", f"[{lo},{hi}]", f"[{1000 * lo}ms:{hi}s]", f"[{lo}:{hi}s]"))
    )


# -- comparing -------------------------------------------------------------------------------------


def reach(phi: Formula) -> tuple[list[int], list[int]]:
    """(first, last) time at which each node's subtree is evaluated, its own time 0 included.

    rtamt has no values of a sub-formula beyond the ends of a trace, so this is what must lie inside:
    `next prev p` needs the time after t, though it depends on the sample at t only.
    """
    first, last = [0] * phi.size, [0] * phi.size
    sizes = phi.shape()[0].tolist()
    for i, (op, lo, hi, channel, _) in enumerate(phi.rows()):
        needed = [(-ops.lag_of(v), -ops.lag_of(v)) for v, _ in channel or ()]
        if ops.arity(op):
            near = far = int(op in (ops.NEXT, ops.PREV))
            if op in (ops.RISE, ops.FALL):
                far = 1
            elif ops.is_timed(op):
                near, far = lo, lo if hi == ops.UNBOUNDED else hi
            window = (-far, -near) if ops.IS_PAST[op] else (near, far)
            needed.append((first[i - 1] + window[0], last[i - 1] + window[1]))
            if ops.arity(op) == 2:
                left = i - 1 - sizes[i - 1]
                needed.append((first[left] + min(window[0], 0), last[left] + max(window[1], 0)))
        first[i] = min(0, *(a for a, _ in needed), 0)
        last[i] = max(0, *(b for _, b in needed), 0)
    return first, last


def times(phi: Formula, points: int = POINTS) -> np.ndarray:
    """The times at which everything that is evaluated lies inside the trace, (P,) bool.

    An unbounded window may stand only over operands that end exactly where it does; otherwise none.
    """
    first, last = reach(phi)
    sizes, _, samples_last, samples_first = shape_of(phi.code.tolist(), phi.channels)
    for i, (op, _, hi, _) in enumerate(phi.code.tolist()):
        if ops.is_timed(op) and hi == ops.UNBOUNDED:
            ends = (first, samples_first) if ops.IS_PAST[op] else (last, samples_last)
            operands = (i - 1, i - 1 - sizes[i - 1])[: ops.arity(op)]
            if any(end[k] for end in ends for k in operands):
                return np.zeros(points, bool)
    t = np.arange(points)
    return np.asarray((t + first[-1] >= 0) & (t + last[-1] < points))


def drawn(
    way: str, count: int, rng: np.random.Generator
) -> tuple[list[tuple[Formula, str]], Counter[str]]:
    """Pairs of a formula of ours and its text for rtamt, and why others were left out."""
    pairs: list[tuple[Formula, str]] = []
    left_out: Counter[str] = Counter()
    while len(pairs) < count:
        depth = int(rng.integers(1, 5))
        try:
            if way == "out":
                phi = formula(rng, depth)
                written = phi.to_text(dialect="rtamt")
            else:
                # rtamt takes `x - 1` outside of parentheses for two texts, and refuses it.
                written = f"({text(rng, depth)})"
                phi = rv.parse(written, dialect="rtamt")
        except rv.RhovecError as error:
            left_out[getattr(error, "message", str(error))] += 1
            continue
        if not times(phi).any() or len(written) > 4000:
            left_out[
                "windows do not lie inside the trace, or the text is over 4000 characters"
            ] += 1
            continue
        pairs.append((phi, written))
    return pairs, left_out


def agreement(way: str, count: int, seed: int, folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng([seed, way == "in"])
    x = rng.integers(-128, 129, (TRACES, 3, POINTS)) / 64
    path = folder / f"{way}.npy"
    np.save(path, x)
    pairs, left_out = drawn(way, count, rng)
    chunks = [pairs[i : i + CHUNK] for i in range(0, count, CHUNK)]
    answers = ask(
        "rtamt", [item([t for _, t in chunk], path, TRACES, trace=True) for chunk in chunks]
    )
    values = equal = 0
    wrong: list[str] = []
    for chunk, answer in zip(chunks, answers, strict=True):
        if "error" in answer:
            raise RuntimeError(answer["error"])
        ours = rv.robustness([phi for phi, _ in chunk], x, trace=True, end="strict")
        for (phi, written), mine, theirs in zip(chunk, ours, answer["values"], strict=True):
            chosen = times(phi)
            same = mine[:, chosen] == theirs[:, chosen]
            values += same.size
            equal += int(same.sum())
            if not same.all():
                wrong.append(f"{written}   |   {phi}")
    with_past = sum(phi.history > 0 or bool(ops.IS_PAST[phi.code[:, 0]].any()) for phi, _ in pairs)
    return {
        "way": way, "formulae": count, "with_past": with_past, "values": values, "equal": equal,
        "unlike": wrong[:20], "left_out": dict(left_out.most_common()),
    }  # fmt: skip


# -- speed -----------------------------------------------------------------------------------------

PAST = {
    "A": "once[0,20] (historically[5,15] x_0 >= 0.3)",
    "B": "x_0 <= 0.5 since[3,25] x_1 >= 0.1",
    "C": "historically[0,30] (x_0 >= -1 -> once[0,10] x_2 >= 0.7)",
    "D": "historically (x_0 >= -1 since x_1 >= 0)",
    "E": "always[0,10] (rise(x_0 >= 0) -> (once[0,5] x_1 >= 0) or (eventually[0,5] x_2 <= 0))",
}
REPEATS, SECONDS = 200, 1.0
SAME, MANY = {100: 100, 1000: 10}, 1000  # traces of a call: for both libraries; for rhovec alone


def speed(seed: int, folder: Path) -> list[dict[str, Any]]:
    """Whole traces of past formulae; formulae are read and traces converted before the clock starts."""
    rows = []
    for points, same in SAME.items():
        path = folder / f"walks-{points}.npy"
        np.save(path, random_walks(MANY, points, seed))
        formulae = [rv.parse(text) for text in PAST.values()]
        calls = (
            ("rtamt", same, [phi.to_text(dialect="rtamt") for phi in formulae]),
            ("rhovec", same, list(map(program, formulae))),
            ("rhovec", MANY, list(map(program, formulae))),
            ("rhovec", 1, list(map(program, formulae))),
        )
        for peer, n, given in calls:
            work = [
                item([one], path, n, trace=True, repeats=REPEATS, seconds=SECONDS) for one in given
            ]
            for name, answer in zip(PAST, ask(peer, work), strict=True):
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                us = float(np.median(answer["times_s"])) * 1e6 / n
                rows.append({"formula": name, "points": points, "peer": peer, "n": n, "us": us})
    return rows


# -- the page --------------------------------------------------------------------------------------


def report(facts: dict[str, Any]) -> str:
    parts = {row["way"]: row for row in facts["agreement"]}
    names = {"out": "rhovec to rtamt", "in": "rtamt to rhovec"}
    busy = facts["machine"]["load"] > 0.7
    us = {(r["formula"], r["points"], r["peer"], r["n"]): r["us"] for r in facts["speed"]}
    lines = [
        "# rtamt through the translation", "", head(facts), "",
        *["**The machine was busy with other work: times are rough.**", ""] * busy,
        f"Random formulae and texts on {TRACES} traces of {POINTS} points, whole traces in float64, "
        "samples and constants multiples of 1/64. Values are compared, by ==, at the times where all "
        "that is evaluated lies inside the trace.", "",
        *table(
            ("translation", "formulae", "of them with a past", "values", "equal"),
            [
                [names[way], f"{r['formulae']:,}", f"{r['with_past']:,}", f"{r['values']:,}",
                 f"{r['equal']:,}"]
                for way, r in parts.items()
            ],
        ),
        "", "What was drawn and left out:", "",
        *table(
            ("translation", "times", "why"),
            [
                [names[way], f"{n:,}", why]
                for way, r in parts.items()
                for why, n in r["left_out"].items()
            ],
        ),
        "", "## Speed of past formulae", "",
        "Whole traces, microseconds a formula and trace, medians of repeated calls; formulae were read "
        "and traces converted before, on both sides. Both libraries had the same traces (n of them in a "
        f"call; rtamt takes one at a time). The other columns are rhovec on {MANY} traces and on one, "
        "where the call itself takes most of the time.", "",
        *(f"- {name}: `{text}`" for name, text in PAST.items()), "",
        *table(
            ("formula", "points", "n", "rtamt µs", "rhovec µs", "ratio", f"n = {MANY}: µs", "ratio",
             "n = 1: µs", "ratio"),
            [
                [name, str(points), str(n), f"{us[name, points, 'rtamt', n]:,.0f}"]
                + [
                    text
                    for size in (n, MANY, 1)
                    for text in (
                        f"{us[name, points, 'rhovec', size]:.3g}",
                        f"{us[name, points, 'rtamt', n] / us[name, points, 'rhovec', size]:,.0f}",
                    )
                ]
                for points, n in SAME.items()
                for name in PAST
            ],
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def golden(seed: int, folder: Path) -> None:
    """A small sample of what rtamt says, for tests."""
    points, count = 20, 30
    rng = np.random.default_rng([seed, 7])
    x = rng.integers(-128, 129, (1, 3, points)) / 64
    path = folder / "golden.npy"
    np.save(path, x)
    rows = []
    for way in ("out", "in"):
        pairs = [
            pair
            for pair in drawn(way, 4 * count, rng)[0]
            if len(pair[1]) < 200 and times(pair[0], points).any()
        ][:count]
        (answer,) = ask("rtamt", [item([written for _, written in pairs], path, 1, trace=True)])
        for (phi, written), values in zip(pairs, answer["values"], strict=True):
            chosen = np.flatnonzero(times(phi, points))
            rows.append({
                "way": way, "formula": str(phi), "rtamt": written, "from": int(chosen[0]),
                "values": values[0, chosen].tolist(),
            })  # fmt: skip
    lines = [json.dumps({"traces": x[0].tolist()}), *map(json.dumps, rows)]
    (ROOT / "tests" / "data" / "rtamt.jsonl").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="rtamt beside rhovec, through the translation.")
    parser.add_argument("--formulae", type=int, default=10_000, help="random formulae each way")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--golden", action="store_true", help="only write tests/data/rtamt.jsonl")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.golden:
            golden(given.seed, folder)
            return 0
        facts: dict[str, Any] = {"command": command(), "seed": given.seed, "machine": machine()}
        facts["agreement"] = [
            agreement(way, given.formulae, given.seed, folder) for way in ("out", "in")
        ]
        facts["speed"] = speed(given.seed, folder)
    save("translation", facts, report(facts))
    return int(any(row["equal"] < row["values"] for row in facts["agreement"]))


if __name__ == "__main__":
    sys.exit(main())
