"""Random pairs with past operators: whether proofs hold, and how many of the valid ones are found.

Each pair is asked for two proofs: a implies b, and a contradicts b. Every proof is checked on traces
that hit thresholds exactly, at all times and with one point upwards. With --z3, small pairs are also
decided by z3, on all traces with up to REACH samples on either side of t, held beyond; this needs an
environment of its own:

    python benchmarks/proofs.py --pairs 50000
    python -m venv .peers/z3 && .peers/z3/bin/pip install . z3-solver
    .peers/z3/bin/python benchmarks/proofs.py --z3 --pairs 3000
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

import rhovec as rv
from common import command, head, save, table
from rhovec.compare.prover import BOTH, ONLY_A, impossible_cases
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula, canonical_channel, compose
from rhovec.formula.operators import Shifted
from rhovec.machine import facts

CASES = {ONLY_A: "a implies b", BOTH: "a contradicts b"}
NAMES = ("x_0", "x_1")
OPERATORS = [op for op, row in enumerate(ops.TABLE) if row.arity]
REACH = 9  # samples on either side of t that z3 may choose freely; more than the prover unrolls
BLOCK = 1000  # pairs drawn, proved and checked at once


def pairs(n: int, seed: int, depth: int, wide: float) -> Iterator[tuple[Formula, Formula]]:
    """Pairs of which most are alike, so that a good part of them is related.

    wide: the share of windows that may be longer than what the prover unrolls.
    """
    rng = np.random.default_rng(seed)
    while n > 0:
        a = drawn(rng, int(rng.integers(1, depth + 1)), wide)
        b = drawn(rng, int(rng.integers(1, depth + 1)), wide)
        coin = rng.random()
        if coin < 0.6:
            b = mutated(a if coin < 0.45 else ~a, rng, wide)
        elif coin < 0.8:
            b = compose(int(rng.choice((ops.AND, ops.OR, ops.UNTIL, ops.SINCE))), a, b)
            b = b if coin < 0.75 else ~b
        if {a.code[-1, 0], b.code[-1, 0]} & {ops.TRUE, ops.FALSE}:
            continue
        yield a, b
        n -= 1


def drawn(rng: np.random.Generator, depth: int, wide: float) -> Formula:
    """Any operator, thresholds -1, 0 and 1, short windows and lags."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.03:
            return compose(int(rng.choice((ops.TRUE, ops.FALSE))))
        op, threshold = int(rng.choice(ops.COMPARISONS)), float(rng.integers(-1, 2))
        return Formula.from_rows([(op, 0, 0, _channel(rng), threshold)])
    op = int(rng.choice(OPERATORS))
    lo, hi = _window(rng, wide)
    operands = (drawn(rng, depth - 1, wide) for _ in range(ops.arity(op)))
    return compose(op, *operands, lo=lo, hi=hi)


def _window(rng: np.random.Generator, wide: float) -> tuple[int, int]:
    most = 12 if rng.random() < wide else 3
    lo = int(rng.integers(most))
    return lo, ops.UNBOUNDED if rng.random() < 0.2 else lo + int(rng.integers(most))


def _channel(rng: np.random.Generator) -> ops.Channel:
    steps = int(rng.integers(-2, 3)) if rng.random() < 0.2 else 0
    name = str(rng.choice(NAMES))
    terms: dict[ops.Variable, float] = {Shifted(name, steps) if steps else name: 1.0}
    if rng.random() < 0.1:
        terms[NAMES[1 - NAMES.index(name)]] = -1.0
    return canonical_channel(terms)[0]


def mutated(phi: Formula, rng: np.random.Generator, wide: float) -> Formula:
    """phi with one or two nodes changed: threshold, comparison, operator or window."""
    rows = phi.rows()
    for i in rng.integers(len(rows), size=rng.integers(1, 3)):
        op, lo, hi, channel, threshold = rows[i]
        coin = rng.random() < 0.5
        if channel is not None:
            threshold += 0.0 if coin else float(rng.integers(-1, 2))
            op = int(rng.choice(ops.COMPARISONS)) if coin else op
        elif coin and ops.is_timed(op):
            lo, hi = _window(rng, wide)
        elif ops.arity(op):
            alike = [o for o in OPERATORS if ops.TABLE[o][1::3] == ops.TABLE[op][1::3]]
            op = int(rng.choice(alike))
        rows[i] = (op, lo, hi, channel, threshold)
    return Formula.from_rows(rows)


# -- traces ----------------------------------------------------------------------------------------


def worlds(seed: int) -> list[np.ndarray]:
    """Traces (N, 2, P) of -1, 0, 1: all with one or two points, random ones with more, some of these
    with long constant ends; and some of random numbers."""
    rng = np.random.default_rng(seed)
    small = [
        np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=2 * points))).reshape(
            -1, 2, points
        )
        for points in (1, 2)
    ]
    sizes = ((300, 3), (300, 5), (200, 12), (200, 25))
    many = [rng.integers(-1, 2, (n, 2, points)) for n, points in sizes]
    held = np.repeat(rng.integers(-1, 2, (200, 2, 4)), (8, 1, 1, 8), axis=2)
    return [*small, *(x.astype(float) for x in (*many, held)), rng.normal(size=(100, 2, 9))]


def on_traces(n: int, seed: int, depth: int = 4) -> dict[str, int]:
    """How many proofs there are among n pairs, and how many of them some trace refutes."""
    found = {"pairs": n, **dict.fromkeys(CASES.values(), 0), "refuted": 0}
    traces, source = worlds(seed), pairs(n, seed, depth, wide=0.3)
    while block := list(itertools.islice(source, BLOCK)):
        proofs = [(a, b, case) for a, b in block for case in impossible_cases(a, b, CASES)]
        for x in traces if proofs else []:
            holds = rv.satisfaction([p[0] for p in proofs], x, variables=NAMES, trace=True)
            other = rv.satisfaction([p[1] for p in proofs], x, variables=NAMES, trace=True)
            other ^= np.array([case == ONLY_A for *_, case in proofs])[:, None, None]
            wrong = (holds & other).any(axis=(1, 2))
            found["refuted"] += int(wrong.sum())
            for i in np.flatnonzero(wrong):
                print(f"refuted, {CASES[proofs[i][2]]}: {proofs[i][0]} | {proofs[i][1]}")
        for *_, case in proofs:
            found[CASES[case]] += 1
    return found


# -- z3 --------------------------------------------------------------------------------------------


def decided(n: int, seed: int, depth: int = 2) -> dict[str, int]:
    """Proofs among n small pairs against what z3 says of each."""
    import z3

    found = {"pairs": n, "questions": 0, "valid": 0, "proved": 0, "refuted": 0, "undecided": 0}
    for a, b in pairs(n, seed, depth, wide=0.0):
        proved = impossible_cases(a, b, CASES)
        for case in CASES:
            solver = z3.SolverFor("QF_LRA")
            solver.set("timeout", 20_000)
            solver.add(encoded(a), z3.Not(encoded(b)) if case == ONLY_A else encoded(b))
            answer = solver.check()
            found["questions"] += 1
            found["undecided"] += answer == z3.unknown
            found["valid"] += answer == z3.unsat
            found["proved"] += case in proved
            if case in proved and answer == z3.sat:
                found["refuted"] += 1
                print(f"refuted, {CASES[case]}: {a} | {b}")
            elif answer == z3.unsat and case not in proved:
                print(f"valid, not proved, {CASES[case]}: {a} | {b}", flush=True)
    return found


def encoded(phi: Formula) -> Any:
    """phi at time 0 as a formula of z3, over the samples -REACH ... REACH of each variable.

    Straight from the definition: every sub-formula at every time of a range beyond which nothing
    changes, since the samples are held there.
    """
    import z3

    rows = phi.rows()
    lags = [abs(ops.lag_of(v)) for *_, channel, _ in rows for v, _ in channel or ()]
    last = REACH + 1 + sum(max(lo, hi, 1) for _, lo, hi, _, _ in rows) + sum(lags)
    times = range(-last, last + 1)

    def sample(variable: ops.Variable, t: int) -> Any:
        place = max(-REACH, min(REACH, t - ops.lag_of(variable)))
        return z3.Real(f"{ops.name_of(variable)}@{place}")

    def window(t: int, lo: int, hi: int, past: bool) -> list[int]:
        """Its times in the range, the nearest to t first."""
        end = 2 * last if hi == ops.UNBOUNDED else hi
        steps = [-d if past else d for d in range(lo, max(lo, min(end, 2 * last)) + 1)]
        return list(dict.fromkeys(max(-last, min(last, t + d)) for d in steps))

    def until(a: dict[int, Any], b: dict[int, Any], t: int, lo: int, hi: int, past: bool) -> Any:
        # From the far end of the window back to t.
        inside, value = set(window(t, lo, hi, past)), z3.BoolVal(False)
        for s in reversed(window(t, 0, hi, past)):
            value = z3.And(a[s], z3.Or(b[s], value) if s in inside else value)
        return value

    stack: list[dict[int, Any]] = []
    for op, lo, hi, channel, threshold in rows:
        operands = [stack.pop() for _ in range(ops.arity(op))][::-1]
        past = ops.TABLE[op].past
        out: dict[int, Any] = {}
        for t in times:
            here = [operand[t] for operand in operands]
            near = [operands[-1][s] for s in window(t, 1, 1, past)] if operands else []
            far = [operands[-1][s] for s in window(t, lo, hi, past)] if ops.is_timed(op) else []
            if channel is not None:
                value = z3.Sum([c * sample(v, t) for v, c in channel])
                out[t] = {
                    ops.GE: value >= threshold, ops.GT: value > threshold,
                    ops.LE: value <= threshold, ops.LT: value < threshold,
                }[op]  # fmt: skip
            elif op in (ops.TRUE, ops.FALSE):
                out[t] = z3.BoolVal(op == ops.TRUE)
            elif op == ops.NOT:
                out[t] = z3.Not(*here)
            elif op == ops.AND:
                out[t] = z3.And(here)
            elif op == ops.OR:
                out[t] = z3.Or(here)
            elif op == ops.IMPLIES:
                out[t] = z3.Implies(*here)
            elif op == ops.IFF:
                out[t] = here[0] == here[1]
            elif op in (ops.NEXT, ops.PREV):
                out[t] = near[0]
            elif op == ops.RISE:
                out[t] = z3.And(here[0], z3.Not(near[0]))
            elif op == ops.FALL:
                out[t] = z3.And(z3.Not(here[0]), near[0])
            elif op in (ops.ALWAYS, ops.HISTORICALLY):
                out[t] = z3.And(far)
            elif op in (ops.EVENTUALLY, ops.ONCE):
                out[t] = z3.Or(far)
            elif op in (ops.UNTIL, ops.SINCE):
                out[t] = until(*operands, t, lo, hi, past)
            elif op == ops.WEAK_UNTIL:
                throughout = [operands[0][s] for s in window(t, 0, hi, past)]
                out[t] = z3.Or(until(*operands, t, lo, hi, past), z3.And(throughout))
            elif op == ops.RELEASE:
                a, b = ({s: z3.Not(v) for s, v in operand.items()} for operand in operands)
                out[t] = z3.Not(until(a, b, t, lo, hi, past))
            else:
                ops.refuse(op, "the encoding for z3")
        stack.append(out)
    return stack[0][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--z3", action="store_true", help="decide small pairs with z3")
    given = parser.parse_args()
    start = time.perf_counter()
    found = (decided if given.z3 else on_traces)(given.pairs, given.seed)
    record: dict[str, Any] = {
        "command": command(), "seed": given.seed, "machine": facts(), **found,
        "seconds": round(time.perf_counter() - start),
    }  # fmt: skip
    if given.z3:
        record["machine"]["z3"] = version("z3-solver")
        record["share of valid proved"] = round(found["proved"] / found["valid"], 4)
        points = 2 * REACH + 1
        title = f"Proofs on small pairs decided by z3, on traces of {points} points with held ends"
    else:
        title = "Proofs on random pairs, checked on traces"
    shown = [
        (name, f"{value:,}") for name, value in record.items() if not isinstance(value, str | dict)
    ]
    lines = [f"# {title}\n", head(record), "", *table(("", ""), shown[1:]), ""]
    save("proofs-z3" if given.z3 else "proofs-traces", record, "\n".join(lines))


if __name__ == "__main__":
    main()
