"""The slow oracle: robustness and satisfaction in float64, straight from the definition.

Every window is a loop over its times and every until a double loop, vectorised over traces only.
Nothing here is shared with the engines, which are tested against it.
"""

from __future__ import annotations

import numpy as np

from ..errors import HorizonError
from ..formula import operators as ops
from ..formula.core import Formula


def robustness_trace(phi: Formula, traces: dict[str, np.ndarray], end: str = "hold") -> np.ndarray:
    """rho(phi, x, t) for every t: traces name -> (N, P), result (N, P) float64.

    end="hold": the last sample is held for ever. end="strict": unbounded windows end with the trace,
    and times whose horizon passes the end are NaN.
    """
    return _evaluate(phi, traces, end, boolean=False)


def satisfaction_trace(
    phi: Formula, traces: dict[str, np.ndarray], end: str = "hold"
) -> np.ndarray:
    """Boolean semantics for every t, (N, P) bool; False past the horizon under end="strict"."""
    return _evaluate(phi, traces, end, boolean=True)


def _evaluate(phi: Formula, traces: dict[str, np.ndarray], end: str, boolean: bool) -> np.ndarray:
    first = next(iter(traces.values()))
    n, points = first.shape
    if end == "strict" and phi.horizon >= points:
        raise HorizonError(f"horizon {phi.horizon} exceeds a trace of {points} points")
    top, bottom = (True, False) if boolean else (np.inf, -np.inf)
    dtype = bool if boolean else np.float64

    def conjunction(values: list[np.ndarray]) -> np.ndarray:
        joined: np.ndarray = (np.logical_and if boolean else np.minimum).reduce(values)
        return joined

    def disjunction(values: list[np.ndarray]) -> np.ndarray:
        joined: np.ndarray = (np.logical_or if boolean else np.maximum).reduce(values)
        return joined

    def negation(value: np.ndarray) -> np.ndarray:
        return ~value if boolean else -value

    # A trace is a list over time of (N,) vectors. Held: P entries, the last one repeats for ever.
    # Strict: as many entries as are defined.
    stack: list[list[np.ndarray]] = []
    for op, lo, hi, channel, threshold in phi.rows():
        if channel is not None:
            x = sum(c * traces[name].astype(np.float64) for name, c in channel)
            assert isinstance(x, np.ndarray)
            values: np.ndarray
            if boolean:
                values = {
                    ops.GE: x >= threshold,
                    ops.GT: x > threshold,
                    ops.LE: x <= threshold,
                    ops.LT: x < threshold,
                }[op]
            else:
                values = x - threshold if op in (ops.GE, ops.GT) else threshold - x
            stack.append(list(values.T))
        elif op in (ops.TRUE, ops.FALSE):
            stack.append([np.full(n, top if op == ops.TRUE else bottom, dtype)] * points)
        elif op == ops.NOT:
            stack.append([negation(v) for v in stack.pop()])
        elif op in (ops.NEXT, ops.ALWAYS, ops.EVENTUALLY):
            child = stack.pop()
            if op == ops.NEXT:
                lo = hi = 1
            join = conjunction if op == ops.ALWAYS else disjunction
            stack.append(
                [join([child[s] for s in times]) for times in _windows(len(child), lo, hi, end)]
            )
        elif op in (ops.UNTIL, ops.RELEASE, ops.WEAK_UNTIL):
            right, left = stack.pop(), stack.pop()
            length = min(len(left), len(right))
            # until: at some time s of the window right holds, and left at all times from t to s.
            # release: at every time s of the window right holds, or left at some time from t to s.
            within, over, start = conjunction, disjunction, bottom
            if op == ops.RELEASE:
                within, over, start = disjunction, conjunction, top
            out = []
            for t, times in enumerate(_windows(length, lo, hi, end)):
                so_far = left[t]  # of the left operand over [t, s]
                reached = t
                value = np.full(n, start, dtype)
                for s in times:
                    while reached < s:
                        reached += 1
                        so_far = within([so_far, left[reached]])
                    value = over([value, within([right[s], so_far])])
                out.append(value)
            if op == ops.WEAK_UNTIL:  # or left holds throughout, to the end of the window
                throughout = _windows(len(left), 0, hi, end)
                out = [
                    disjunction([value, conjunction([left[s] for s in times])])
                    for value, times in zip(out, throughout, strict=False)
                ]
            stack.append(out)
        else:
            b, a = stack.pop(), stack.pop()
            if op == ops.AND:
                both = [conjunction([u, v]) for u, v in zip(a, b, strict=False)]
            elif op == ops.OR:
                both = [disjunction([u, v]) for u, v in zip(a, b, strict=False)]
            elif op == ops.IMPLIES:
                both = [disjunction([negation(u), v]) for u, v in zip(a, b, strict=False)]
            elif op == ops.IFF:
                both = [
                    u == v if boolean else np.sign(u) * np.sign(v) * np.minimum(abs(u), abs(v))
                    for u, v in zip(a, b, strict=False)
                ]
            else:
                ops.refuse(op, "the oracle")
            stack.append(both)
    (trace,) = stack
    out_array = np.full((n, points), False if boolean else np.nan, dtype)
    out_array[:, : len(trace)] = np.array(trace).T
    return out_array


def _windows(length: int, lo: int, hi: int, end: str) -> list[range]:
    """The times each window covers, as indices below `length`; held samples repeat the last index."""
    last = length - 1
    if end == "strict":
        defined = length - (lo if hi == ops.UNBOUNDED else hi)
        return [
            range(t + lo, length if hi == ops.UNBOUNDED else t + hi + 1)
            for t in range(max(0, defined))
        ]
    return [
        range(min(t + lo, last), (last if hi == ops.UNBOUNDED else min(t + hi, last)) + 1)
        for t in range(length)
    ]
