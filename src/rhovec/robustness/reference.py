"""The slow oracle: robustness and satisfaction in float64, straight from the definition.

Every window is a loop over its times and every until and since a double loop, vectorised over traces
only. Nothing here is shared with the engines, which are tested against it.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from ..errors import HorizonError
from ..formula import operators as ops
from ..formula.core import Formula

Values = dict[int, np.ndarray]  # time -> (N,), for the times of an interval in order

_HOLDS = {ops.GE: np.greater_equal, ops.GT: np.greater, ops.LE: np.less_equal, ops.LT: np.less}


def robustness_trace(phi: Formula, traces: dict[str, np.ndarray], end: str = "hold") -> np.ndarray:
    """rho(phi, x, t) for every t: traces name -> (N, P), result (N, P) float64.

    end="hold": the first and the last sample are held for ever. end="strict": unbounded windows end
    with the trace, and times that depend on samples beyond its ends are NaN.
    """
    return _evaluate(phi, traces, end, boolean=False)


def satisfaction_trace(
    phi: Formula, traces: dict[str, np.ndarray], end: str = "hold"
) -> np.ndarray:
    """Boolean semantics for every t, (N, P) bool; False where end="strict" defines no value."""
    return _evaluate(phi, traces, end, boolean=True)


def _evaluate(phi: Formula, traces: dict[str, np.ndarray], end: str, boolean: bool) -> np.ndarray:
    n, points = next(iter(traces.values())).shape
    top, bottom = (True, False) if boolean else (np.inf, -np.inf)
    dtype = bool if boolean else np.float64
    held = end == "hold"
    before, after = _extension(phi) if held else (0, 0)

    def conjunction(values: list[np.ndarray]) -> np.ndarray:
        return reduce(np.logical_and if boolean else np.minimum, values)

    def disjunction(values: list[np.ndarray]) -> np.ndarray:
        return reduce(np.logical_or if boolean else np.maximum, values)

    def negation(value: np.ndarray) -> np.ndarray:
        return ~value if boolean else -value

    def window(op: int, lo: int, hi: int, child: Values) -> Values:
        join = conjunction if op in (ops.ALWAYS, ops.HISTORICALLY) else disjunction
        times = _windows(child, lo, hi, bool(ops.IS_PAST[op]), held)
        return {t: join([child[s] for s in seen]) for t, seen in times.items()}

    stack: list[Values] = []
    for op, lo, hi, channel, threshold in phi.rows():
        if channel is not None:
            lags = [ops.lag_of(variable) for variable, _ in channel]
            first, last = (0, points - 1) if held else (max(lags), points - 1 + min(lags))
            atom: Values = {}
            for t in range(first - before, last + after + 1):
                x = np.zeros(n)
                for (variable, c), lag in zip(channel, lags, strict=True):
                    sample = min(max(t - lag, 0), points - 1)
                    x += c * traces[ops.name_of(variable)][:, sample].astype(np.float64)
                if boolean:
                    atom[t] = _HOLDS[op](x, threshold)
                else:
                    atom[t] = x - threshold if op in (ops.GE, ops.GT) else threshold - x
            stack.append(atom)
        elif op in (ops.TRUE, ops.FALSE):
            constant = np.full(n, top if op == ops.TRUE else bottom, dtype)
            stack.append(dict.fromkeys(range(-before, points + after), constant))
        elif op == ops.NOT:
            stack.append({t: negation(v) for t, v in stack.pop().items()})
        elif op in (ops.NEXT, ops.PREV):
            stack.append(window(op, 1, 1, stack.pop()))
        elif op in (ops.RISE, ops.FALL):
            now = stack.pop()
            then = window(ops.PREV, 1, 1, now)
            false, true = (then, now) if op == ops.RISE else (now, then)
            stack.append({
                t: conjunction([true[t], negation(false[t])]) for t in now if t in then
            })  # fmt: skip
        elif op in (ops.ALWAYS, ops.EVENTUALLY, ops.HISTORICALLY, ops.ONCE):
            stack.append(window(op, lo, hi, stack.pop()))
        elif op in (ops.UNTIL, ops.RELEASE, ops.WEAK_UNTIL, ops.SINCE):
            right, left = stack.pop(), stack.pop()
            # until: at some time s of the window right holds, and left at all times from t to s; since
            # is the same backwards in time.
            # release: at every time s of the window right holds, or left at some time from t to s.
            within, over, start = conjunction, disjunction, bottom
            if op == ops.RELEASE:
                within, over, start = disjunction, conjunction, top
            shared = {s: value for s, value in right.items() if s in left}
            out: Values = {}
            for t, times in _windows(shared, lo, hi, op == ops.SINCE, held).items():
                if t not in left:
                    continue
                so_far = left[t]  # of the left operand from t to s
                reached = t
                value = np.full(n, start, dtype)
                for s in reversed(times) if op == ops.SINCE else times:
                    while reached != s:
                        reached += 1 if reached < s else -1
                        so_far = within([so_far, left[reached]])
                    value = over([value, within([right[s], so_far])])
                out[t] = value
            if op == ops.WEAK_UNTIL:  # or left holds throughout, to the end of the window
                throughout = window(ops.ALWAYS, 0, hi, left)
                out = {t: disjunction([v, throughout[t]]) for t, v in out.items()}
            stack.append(out)
        else:
            b, a = stack.pop(), stack.pop()
            both: Values = {}
            for t in a:
                if t not in b:
                    continue
                u, v = a[t], b[t]
                if op == ops.AND:
                    both[t] = conjunction([u, v])
                elif op == ops.OR:
                    both[t] = disjunction([u, v])
                elif op == ops.IMPLIES:
                    both[t] = disjunction([negation(u), v])
                elif op == ops.IFF:
                    both[t] = (
                        u == v if boolean else np.sign(u) * np.sign(v) * np.minimum(abs(u), abs(v))
                    )
                else:
                    ops.refuse(op, "the oracle")
            stack.append(both)
    (trace,) = stack
    known = [t for t in range(points) if t in trace]
    if not known:
        raise HorizonError(f"no time of a trace of {points} points has a value")
    out_array = np.full((n, points), False if boolean else np.nan, dtype)
    out_array[:, known] = np.array([trace[t] for t in known]).T
    return out_array


def _extension(phi: Formula) -> tuple[int, int]:
    """How many times before the first and after the last sample to evaluate on held traces.

    An operator that looks ahead makes a value change earlier than the trace does, by its bound at
    most, and one that looks back makes it change later. So no sub-formula changes before minus the sum
    of all bounds ahead, nor after the last sample plus the sum of all bounds back: there, windows may
    be clipped. Times before the first sample matter only if something looks back, those after the last
    only if something looks ahead.
    """
    ahead: list[int] = []
    back: list[int] = []
    for op, lo, hi, channel, _ in phi.rows():
        if channel is not None:
            lags = [ops.lag_of(variable) for variable, _ in channel]
            ahead += [-lag for lag in lags if lag < 0]
            back += [lag for lag in lags if lag > 0]
        elif op == ops.NEXT:
            ahead.append(1)
        elif op in (ops.PREV, ops.RISE, ops.FALL):
            back.append(1)
        elif ops.is_timed(op):
            (back if ops.IS_PAST[op] else ahead).append(lo if hi == ops.UNBOUNDED else hi)
    return sum(ahead) if back else 0, sum(back) if ahead else 0


def _windows(child: Values, lo: int, hi: int, past: bool, held: bool) -> dict[int, range]:
    """The times that the window at each time covers, clipped to the times of the operand.

    Under strict, only times whose window lies inside the operand's count; an unbounded window ends
    where the operand does.
    """
    if not child:
        return {}
    first, last = min(child), max(child)
    far = lo if hi == ops.UNBOUNDED else hi
    a, b = (-far, -lo) if past else (lo, far)
    out = {}
    for t in child if held else range(first - a, last - b + 1):
        start, stop = (min(max(s, first), last) for s in (t + a, t + b))
        if hi == ops.UNBOUNDED:
            start, stop = (first, stop) if past else (start, last)
        out[t] = range(start, stop + 1)
    return out
