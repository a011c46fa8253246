"""Agreement with other libraries on random formulae: `make agreement`.

A situation is a family of random formulae, the times that are looked at, and a claim for each
library: `agrees`, `differs: how`, or `refuses: what`. Claims are tested both ways: the run fails
when a library that should agree does not, and when one that should differ or refuse agrees.
Values are compared at time 0 and, where the library gives it, along the whole trace.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rhovec as rv
from common import command, save, table
from peers import PINS, ask, closed_until, item, machine, program, random_walks
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula, compose

TRACES, POINTS, TOLERANCE = 20, 24, 1e-5
LAST = POINTS - 1
Window = Callable[[np.random.Generator], tuple[int, int]]
Times = Callable[[Formula, np.ndarray], np.ndarray]  # (formula, our trace (N, P)) -> (P,) bool


def tree(rng: np.random.Generator, depth: int, operators: Sequence[int], window: Window) -> Formula:
    """A random formula: an operator at the root, atoms at `depth` at the latest."""
    op = int(rng.choice(operators))
    operands = [
        tree(rng, depth - 1, operators, window) if depth > 1 and rng.random() < 0.7 else atom(rng)
        for _ in range(ops.arity(op))
    ]
    lo, hi = window(rng) if ops.is_timed(op) else (0, 0)
    return compose(op, *operands, lo=lo, hi=hi)


def atom(rng: np.random.Generator) -> Formula:
    channel = ((f"x_{rng.integers(3)}", 1.0),)
    threshold = round(float(rng.normal()), 4)
    return Formula.from_rows([(int(rng.choice([ops.GE, ops.LE])), 0, 0, channel, threshold)])


def short(rng: np.random.Generator) -> tuple[int, int]:
    lo = int(rng.integers(5))
    return lo, lo + int(rng.integers(7))


def long(rng: np.random.Generator) -> tuple[int, int]:
    lo = int(rng.integers(2 * POINTS))
    return lo, lo + int(rng.integers(POINTS))


def unbounded(rng: np.random.Generator) -> tuple[int, int]:
    return 0, ops.UNBOUNDED


def right_unbounded(rng: np.random.Generator) -> tuple[int, int]:
    return int(rng.integers(1, POINTS)), ops.UNBOUNDED


def everywhere(phi: Formula, ours: np.ndarray) -> np.ndarray:
    return np.ones(POINTS, bool)


def inside(phi: Formula, ours: np.ndarray) -> np.ndarray:
    t = np.arange(POINTS)
    return np.asarray((t >= phi.history) & (t + phi.horizon <= LAST))


def past(phi: Formula, ours: np.ndarray) -> np.ndarray:
    return ~inside(phi, ours)


def starts_inside(phi: Formula, ours: np.ndarray) -> np.ndarray:
    """The near end of the root's window lies within the trace (the far end may not)."""
    t, near = np.arange(POINTS), phi.code[-1, 1]
    return np.asarray(t >= near if ops.IS_PAST[phi.code[-1, 0]] else t + near <= LAST)


def straddles(phi: Formula, ours: np.ndarray) -> np.ndarray:
    return np.asarray(starts_inside(phi, ours) & past(phi, ours))


def wholly_past(phi: Formula, ours: np.ndarray) -> np.ndarray:
    return ~starts_inside(phi, ours)


def at_the_start(phi: Formula, ours: np.ndarray) -> np.ndarray:
    return np.asarray(np.arange(POINTS) == 0)


def at_the_end(phi: Formula, ours: np.ndarray) -> np.ndarray:
    return np.asarray(np.arange(POINTS) == LAST)


def undefined(phi: Formula, ours: np.ndarray) -> np.ndarray:
    return np.asarray(np.isnan(ours).all(axis=0))


@dataclass(frozen=True)
class Situation:
    name: str
    operators: tuple[int, ...]
    claims: dict[str, str]
    window: Window = short
    times: Times = everywhere
    depth: int = 2
    roots: tuple[int, ...] = ()  # given: one of these on top of the random formulae
    closed: tuple[str, ...] = ()  # libraries that get `p until (p and q)` for `a until b`
    defaults: bool = False
    end: str = "hold"

    def draw(self, rng: np.random.Generator) -> Formula:
        if not self.roots:
            return tree(rng, self.depth, self.operators, self.window)
        op = int(rng.choice(self.roots))
        operands = [
            tree(rng, self.depth, self.operators, self.window) for _ in range(ops.arity(op))
        ]
        lo, hi = self.window(rng) if ops.is_timed(op) else (0, 0)
        return compose(op, *operands, lo=lo, hi=hi)


BOOLEAN, WINDOWS = (ops.AND, ops.OR, ops.NOT), (ops.ALWAYS, ops.EVENTUALLY)
PAST_WINDOWS, EDGES = (ops.ONCE, ops.HISTORICALLY), (ops.RISE, ops.FALL)
TENSORS = ("stljax", "stlcgpp")
AGREES = "agrees"
NOT_OFFERED = "refuses: not offered"
NO_SAMPLES = "refuses: a time past the end is an error"
LEFT_OPEN = "differs: the left operand need not hold at t'"


def claims(rtamt: str = "", tensors: str = "", pytelo: str = "") -> dict[str, str]:
    """The claims of one situation; stljax and stlcgpp share theirs; empty: not looked at."""
    given = {"rtamt": rtamt, **dict.fromkeys(TENSORS, tensors), "pytelo": pytelo}
    return {peer: claim for peer, claim in given.items() if claim}


SITUATIONS = [
    Situation("and, or, not", BOOLEAN, claims(AGREES, AGREES, AGREES)),
    Situation("implies", (ops.IMPLIES, ops.AND, ops.NOT), claims(AGREES, AGREES, AGREES)),
    Situation(
        "iff", BOOLEAN, claims("differs: -abs(p - q), never positive", NOT_OFFERED, NOT_OFFERED),
        roots=(ops.IFF,),
    ),
    Situation(
        "always, eventually [a,b] nested, windows inside the trace", (*BOOLEAN, *WINDOWS),
        claims(AGREES, AGREES, AGREES), times=inside, roots=WINDOWS,
    ),
    Situation(
        "the same, libraries' defaults", (*BOOLEAN, *WINDOWS),
        claims(AGREES, AGREES, "differs: interpolation 'nearest' reads a neighbour of t"),
        times=inside, roots=WINDOWS, defaults=True,
    ),
    Situation(
        "always, eventually [a,b], window partly past the end", BOOLEAN,
        claims(AGREES, AGREES, NO_SAMPLES), long, straddles, roots=WINDOWS,
    ),
    Situation(
        "always, eventually [a,b], window wholly past the end", BOOLEAN,
        claims("differs: always is +inf, eventually -inf", AGREES, NO_SAMPLES),
        long, wholly_past, roots=WINDOWS,
    ),
    Situation(
        "always [a,b] past the end, libraries' defaults", BOOLEAN,
        claims(tensors="differs: missing samples count as -1e9"),
        long, past, roots=(ops.ALWAYS,), defaults=True,
    ),
    Situation(
        "always, eventually [a,b] nested, windows past the end", (*BOOLEAN, *WINDOWS),
        claims("differs: an inner window past the end leaves inf", AGREES, NO_SAMPLES),
        long, past, roots=WINDOWS,
    ),
    Situation(
        "always, eventually unbounded, nested (defaults)", (*BOOLEAN, *WINDOWS),
        claims(AGREES, AGREES, NOT_OFFERED), unbounded, roots=WINDOWS, defaults=True,
    ),
    Situation(
        "always unbounded, last sample held", BOOLEAN,
        claims(tensors="differs: padding='last' pads with minus the last value"),
        unbounded, roots=(ops.ALWAYS,),
    ),
    Situation(
        "always, eventually [a,inf] (defaults)", BOOLEAN,
        claims(NOT_OFFERED, AGREES, NOT_OFFERED),
        right_unbounded, starts_inside, roots=WINDOWS, defaults=True,
    ),
    Situation(
        "until [a,b], window inside the trace", BOOLEAN,
        claims(LEFT_OPEN, AGREES, AGREES), times=inside, roots=(ops.UNTIL,),
    ),
    Situation(
        "p until [a,b] (p and q), window inside the trace", BOOLEAN,
        claims(AGREES, AGREES, AGREES),
        times=inside, roots=(ops.UNTIL,), closed=(*PINS,),
    ),
    Situation(
        "p until [a,b] (p and q), window partly past the end", BOOLEAN,
        claims(AGREES, AGREES, NO_SAMPLES),
        long, straddles, roots=(ops.UNTIL,), closed=(*PINS,),
    ),
    Situation(
        "until [a,b], window wholly past the end", BOOLEAN,
        claims("differs: -inf", AGREES, NO_SAMPLES), long, wholly_past, roots=(ops.UNTIL,),
    ),
    Situation(
        "until unbounded", BOOLEAN, claims(LEFT_OPEN, AGREES, NOT_OFFERED),
        unbounded, roots=(ops.UNTIL,),
    ),
    Situation(
        "p until (p and q), unbounded", BOOLEAN, claims(AGREES, AGREES, NOT_OFFERED),
        unbounded, roots=(ops.UNTIL,), closed=(*PINS,),
    ),
    Situation(
        "until [a,inf]", BOOLEAN, claims(NOT_OFFERED, AGREES, NOT_OFFERED),
        right_unbounded, roots=(ops.UNTIL,),
    ),
    Situation(
        "nested until [a,b] (rtamt: p until (p and q))", (ops.UNTIL,),
        claims(AGREES, AGREES, AGREES), times=inside, depth=1, roots=(ops.UNTIL,), closed=("rtamt",),
    ),
    Situation(
        "next, before the last sample", (ops.NEXT, ops.AND, ops.NOT),
        claims(AGREES, NOT_OFFERED, NOT_OFFERED), times=inside, roots=(ops.NEXT,),
    ),
    Situation(
        "next, at the last sample", (ops.AND, ops.NOT), claims("differs: +inf"),
        times=at_the_end, roots=(ops.NEXT,),
    ),
    Situation(
        "once, historically [a,b] nested, windows inside the trace", (*BOOLEAN, *PAST_WINDOWS),
        claims(AGREES, NOT_OFFERED), times=inside, roots=PAST_WINDOWS,
    ),
    Situation(
        "once, historically [a,b], window partly before the start", BOOLEAN,
        claims(AGREES), long, straddles, roots=PAST_WINDOWS,
    ),
    Situation(
        "once, historically [a,b], window wholly before the start", BOOLEAN,
        claims("differs: once is -inf, historically +inf"), long, wholly_past, roots=PAST_WINDOWS,
    ),
    Situation(
        "once, historically unbounded, nested", (*BOOLEAN, *PAST_WINDOWS), claims(AGREES),
        unbounded, roots=PAST_WINDOWS,
    ),
    Situation(
        "since [a,b], window inside the trace", BOOLEAN,
        claims(LEFT_OPEN, NOT_OFFERED), times=inside, roots=(ops.SINCE,),
    ),
    Situation(
        "p since [a,b] (p and q), window inside the trace", BOOLEAN,
        claims(AGREES), times=inside, roots=(ops.SINCE,), closed=("rtamt",),
    ),
    Situation(
        "since unbounded", BOOLEAN, claims(LEFT_OPEN), unbounded, roots=(ops.SINCE,),
    ),
    Situation(
        "p since (p and q), unbounded", BOOLEAN, claims(AGREES), unbounded, roots=(ops.SINCE,),
        closed=("rtamt",),
    ),
    Situation(
        "prev, after the first sample", (ops.PREV, ops.AND, ops.NOT),
        claims(AGREES, NOT_OFFERED), times=inside, roots=(ops.PREV,),
    ),
    Situation(
        "prev, at the first sample", (ops.AND, ops.NOT), claims("differs: +inf"),
        times=at_the_start, roots=(ops.PREV,),
    ),
    Situation(
        "rise, fall, after the first sample", BOOLEAN,
        claims(AGREES, NOT_OFFERED), times=inside, roots=EDGES,
    ),
    Situation(
        "rise, fall, at the first sample", BOOLEAN,
        claims("differs: rise is p, fall is not p"), times=at_the_start, roots=EDGES,
    ),
    Situation(
        'end="strict", up to the horizon (rtamt: p until (p and q))', (*BOOLEAN, *WINDOWS, ops.UNTIL),
        claims(AGREES, AGREES, AGREES), times=inside, closed=("rtamt",), end="strict",
    ),
    Situation(
        'end="strict", past the horizon (rhovec: NaN)', (*BOOLEAN, *WINDOWS),
        claims("differs: a number from a cut window", "differs: a number from a padded window"),
        times=undefined, end="strict",
    ),
]  # fmt: skip


def ours(formulae: list[Formula], x: np.ndarray, end: str) -> np.ndarray:
    """(B, N, 1 + P): rhovec at time 0, then along the trace."""
    start = rv.robustness(formulae, x, end=end)[..., None]
    return np.concatenate([start, rv.robustness(formulae, x, trace=True, end=end)], axis=-1)


def judge(claim: str, cases: list[tuple[dict[str, Any], np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Test one claim on (a library's answer, ours (N, 1 + P), the columns looked at (1 + P,))."""
    verdict, _, how = claim.partition(": ")
    errors = sorted({answer["error"] for answer, _, _ in cases if "error" in answer})
    near: list[np.ndarray] = []
    for answer, mine, chosen in cases:
        if "error" not in answer:
            theirs = answer["values"][0]  # (N,) at time 0, or the trace (N, P)
            theirs = np.column_stack([theirs[:, :1], theirs] if theirs.ndim == 2 else [theirs])
            columns = theirs.shape[1]
            close = np.isclose(theirs, mine[:, :columns], rtol=0, atol=TOLERANCE)
            near.append(close[:, chosen[:columns]].ravel())
    values = np.concatenate([[], *near]).astype(bool)
    holds = {
        "agrees": not errors and len(values) > 0 and bool(values.all()),
        "differs": not errors and not values.all(),
        "refuses": len(errors) > 0 and not near,
    }[verdict]
    return {
        "claim": verdict,
        "how": how,
        "holds": holds,
        "formulae": len(cases),
        "values": len(values),
        "agree": float(values.mean()) if len(values) else None,
        "error": errors[0] if errors else None,
    }


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    text = str(row["how"])
    if row["agree"] is not None:
        share = f"{100 * row['agree']:.4g} % of {row['values']:,}"
        text = f"{share}: {text}" if text else share
    return text if row["holds"] else f"**NOT AS CLAIMED ({row['claim']})** {text} {row['error']}"


def report(rows: list[dict[str, Any]], formulae: int) -> str:
    """The table of all situations and libraries in Markdown."""
    by_place = {(row["situation"], row["peer"]): row for row in rows}
    versions = rows[0]["machine"]["versions"]
    lines = [
        "# Agreement with other libraries",
        "",
        f"Robustness of {formulae} random formulae a row on {TRACES} random walks of {POINTS} "
        "points, at time 0 and along the trace (pytelo: at time 0). A cell: the share of values "
        f"within {TOLERANCE:g} of rhovec's, of how many, and the convention where they differ. "
        f"Command: `{rows[0]['command']}`. stljax and stlcgpp hold the last sample "
        "(`padding='last'`) and pytelo reads samples as they are (`kind='linear'`, "
        "`max_robustness=inf`), except where a row says defaults.",
        "",
        *table(
            ["situation", *(f"{peer} {versions[peer]}" for peer in PINS)],
            [
                [one.name, *(cell(by_place.get((one.name, peer))) for peer in PINS)]
                for one in SITUATIONS
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Agreement with other libraries.")
    parser.add_argument("--formulae", type=int, default=20, help="random formulae a situation")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # hundreds of formulae, each compiled once
    x = random_walks(TRACES, POINTS, given.seed)
    drawn: list[list[tuple[Formula, np.ndarray, np.ndarray]]] = []  # formula, ours, columns
    for number, situation in enumerate(SITUATIONS):
        rng = np.random.default_rng([given.seed, number])
        formulae = [situation.draw(rng) for _ in range(given.formulae)]
        values = ours(formulae, x, situation.end)
        masks = [situation.times(f, y[:, 1:]) for f, y in zip(formulae, values, strict=True)]
        columns = [np.concatenate([mask[:1], mask]) for mask in masks]
        drawn.append(list(zip(formulae, values, columns, strict=True)))
    common = {"command": command(), "seed": given.seed, "machine": machine()}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "traces.npy")
        np.save(path, x)
        for peer in PINS:
            items, places = [], []
            for number, situation in enumerate(SITUATIONS):
                for phi, mine, chosen in drawn[number]:
                    trace = peer != "pytelo"
                    if peer in situation.claims and (chosen.any() if trace else chosen[0]):
                        rewrite = closed_until if peer in situation.closed else list
                        given_rows = [rewrite(program(phi))]
                        default = situation.defaults
                        items.append(item(given_rows, path, TRACES, trace=trace, defaults=default))
                        places.append((number, mine, chosen))
            cases: dict[int, list[Any]] = {}
            for (number, mine, chosen), answer in zip(places, ask(peer, items), strict=True):
                cases.setdefault(number, []).append((answer, mine, chosen))
            for number, situation in enumerate(SITUATIONS):
                if peer in situation.claims:
                    verdict = judge(situation.claims[peer], cases.get(number, []))
                    rows.append({"situation": situation.name, "peer": peer, **verdict, **common})
    save("agreement", rows, report(rows, given.formulae))
    wrong = [row for row in rows if not row["holds"]]
    print(f"{len(rows) - len(wrong)} of {len(rows)} claims hold", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
