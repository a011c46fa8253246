"""The simplest equivalent of each of many formulae: what a decoder learns to write.

Robustness stays the same, bit for bit, at time 0 of every trace of at most `points` points; formula/
simplify.py keeps it on every trace, which allows less. Negations move down to the atoms and stop at
until. Windows that nest or touch are merged, and what lies beyond the trace is dropped. Operands of
and/or are flattened, sorted and unique, without those that another one implies. The corpus' rewrites
of until are undone, and common windows are factored out. and/or of many operands lean to the right,
so that in prefix order each operand is written before the next.

A pass goes down the program (negations, times) and up again. It stores each distinct node once, with
its relation to all earlier nodes: whether one bounds the other from below, and which comes first. So
nothing is recursive. A formula in which operands were merged is passed over again, until nothing
changes. The order is by structure first and numbers last, since vectors encode numbers least exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..errors import FormulaError
from ..formula import operators as ops
from ..formula.core import natural_key
from ..formula.printer import channel_text
from ..formula.programs import Programs

MAX_NODES = 256
# The operators that a canonical form may have, in the order in which operands are sorted.
_KNOWN = (
    ops.GE,
    ops.GT,
    ops.LE,
    ops.LT,
    ops.NOT,
    ops.ALWAYS,
    ops.EVENTUALLY,
    ops.AND,
    ops.OR,
    ops.UNTIL,
)
_RANK = np.full(len(ops.TABLE), -1)
_RANK[list(_KNOWN)] = np.arange(len(_KNOWN))
_MAX_PASSES = 16
_SKIP = -1  # instead of an operator: pass the operand on

# The distinct nodes of a formula are a table `t` (room, 8) int64, one cache line per node; operands are
# earlier nodes, and and/or of many operands are chains through _RIGHT. _VALUE is the threshold as a
# whole number in the same order. The last row counts the nodes, and says whether another pass is
# needed. `r` (room, room) uint8 holds the relation of node i to node j.
_OP, _LO, _HI, _CHANNEL, _VALUE, _LEFT, _RIGHT, _SIZE = range(8)
_COUNT, _AGAIN = range(2)  # of the last row
_BELOW = 1  # the robustness of i is never above that of j
_BEFORE = 2  # i comes first
_FAR = 1 << 62  # an unbounded window ends there
_ROOM = 8  # nodes stored per node of a formula: merging makes some that are not used


def canonical(programs: Programs, points: int = 100) -> Programs:
    """The simplest forms of formulae with up to MAX_NODES nodes, without ->, <->, next, true, false."""
    unknown = ~np.isin(programs.code[:, 0], _KNOWN)
    if unknown.any():
        name = ops.NAMES[programs.code[int(unknown.argmax()), 0]]
        raise FormulaError(
            f"a canonical form has no {name}; write it out with other operators first"
        )
    lagged = [c for c in programs.channels if any(ops.lag_of(variable) for variable, _ in c)]
    if lagged:
        raise FormulaError(f"a canonical form has no lags, as in {channel_text(lagged[0])}")
    largest = int(np.diff(programs.offsets).max(initial=0))
    if largest > MAX_NODES:
        raise FormulaError(f"a formula has {largest} nodes, more than {MAX_NODES}")
    # Operands are sorted by channel, whose numbers must then be in the order of names.
    names = [tuple((natural_key(n), c) for n, c in channel) for channel in programs.channels]
    order = sorted(range(len(names)), key=names.__getitem__)
    code = programs.code.copy()
    code[:, 3] = np.append(np.argsort(order), -1)[code[:, 3]]
    code, values, offsets = _canonical(
        code, _ordered((programs.thresholds + 0.0).view(np.int64)), programs.offsets, largest,
        points - 1,
    )  # fmt: skip
    channels = tuple(programs.channels[i] for i in order)
    return Programs(code, _ordered(values).view(np.float64), offsets, channels)


def _ordered(bits: np.ndarray) -> np.ndarray:
    """The bits of floats as whole numbers in the same order, and back."""
    out: np.ndarray = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    return out


@njit(cache=True, nogil=True)
def _canonical(code, values, offsets, largest, last):  # type: ignore[no-untyped-def]
    room = _ROOM * largest + 16
    t, r = np.empty((room, 8), np.int64), np.empty((room, room), np.uint8)
    # An until may get a negation in front, so a formula may grow: by less than half.
    scratch = np.empty((8, 2 * largest), np.int64)
    new_code, new_values = np.empty((2 * len(code), 4), np.int64), np.empty(2 * len(code), np.int64)
    new_offsets = np.zeros_like(offsets)
    for b in range(len(offsets) - 1):
        rows, numbers = code[offsets[b] : offsets[b + 1]], values[offsets[b] : offsets[b + 1]]
        first, n = new_offsets[b], 0
        for _ in range(_MAX_PASSES):
            root = _pass(t, r, rows, numbers, last, scratch)
            n = _write(t, root, new_code[first:], new_values[first:], scratch[0])
            rows, numbers = new_code[first : first + n], new_values[first : first + n]
            if t[-1, _AGAIN] == 0:
                break
        new_offsets[b + 1] = first + n
    end = new_offsets[-1]
    return new_code[:end].copy(), new_values[:end].copy(), new_offsets


@njit(cache=True, nogil=True)
def _pass(t, r, rows, values, last, scratch):  # type: ignore[no-untyped-def]
    """Store the simplified nodes of one formula; the root's number."""
    n = len(rows)
    size, kind, los, his, flip, time, done, members = scratch
    for i in range(n):
        size[i] = 1
        if ops.ARITY[rows[i, 0]] > 0:
            size[i] += size[i - 1]
        if ops.ARITY[rows[i, 0]] == 2:
            size[i] += size[i - 1 - size[i - 1]]
    # Downwards: what each node is under the negations above it, and from its earliest time on. From
    # the last point on nothing changes: there windows do nothing, and until is and.
    flip[n - 1], time[n - 1] = 0, 0
    for i in range(n - 1, -1, -1):
        op, lo, hi, now = rows[i, 0], rows[i, 1], rows[i, 2], time[i]
        flips, later = flip[i], now
        if ops.IS_ATOM[op]:
            op = ops.GE if ops.IS_ABOVE[op] != (flip[i] == 1) else ops.LE
        elif op == ops.NOT:
            op, flips = _SKIP, 1 - flip[i]
        elif ops.IS_TIMED[op]:
            if hi != ops.UNBOUNDED and now + hi >= last:
                hi = ops.UNBOUNDED
            if now + lo >= last:
                lo = last
            later = min(last, now + lo)
            if now >= last or (lo == 0 and hi == 0):
                op = ops.AND if op == ops.UNTIL else _SKIP
            elif op == ops.UNTIL:
                flips = 0
        if flip[i] == 1:
            if op == ops.ALWAYS or op == ops.EVENTUALLY:
                op = ops.EVENTUALLY if op == ops.ALWAYS else ops.ALWAYS
            elif op == ops.AND or op == ops.OR:
                op = ops.OR if op == ops.AND else ops.AND
        kind[i], los[i], his[i] = op, lo, hi
        if ops.ARITY[rows[i, 0]] > 0:
            flip[i - 1], time[i - 1] = flips, later
        if ops.ARITY[rows[i, 0]] == 2:
            left = i - 1 - size[i - 1]
            flip[left], time[left] = flips, now
    # Upwards: store.
    t[-1, _COUNT], t[-1, _AGAIN] = 0, 0
    for i in range(n):
        op, lo, hi = kind[i], los[i], his[i]
        if op == _SKIP:
            done[i] = done[i - 1]
        elif ops.IS_ATOM[op]:
            done[i] = _store(t, r, op, 0, 0, rows[i, 3], values[i], -1, -1)
        elif op == ops.ALWAYS or op == ops.EVENTUALLY:
            done[i] = _window(t, r, op, lo, hi, done[i - 1], last)
        elif op == ops.UNTIL:
            done[i] = _until(t, r, lo, hi, done[i - 1 - size[i - 1]], done[i - 1], members, last)
            if flip[i] == 1:
                if t[done[i], _OP] != ops.UNTIL:
                    t[-1, _AGAIN] = 1  # the next pass brings the negation down
                done[i] = _node(t, r, ops.NOT, 0, 0, done[i], -1)
        else:
            count = _flatten(t, op, done[i - 1 - size[i - 1]], members, 0)
            count = _flatten(t, op, done[i - 1], members, count)
            done[i] = _group(t, r, op, members, count, last)
    return done[n - 1]


# -- operators of stored operands ------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _window(t, r, op, lo, hi, x, last):  # type: ignore[no-untyped-def]
    """always or eventually of x, merged with the windows that x begins with."""
    while True:
        if hi != ops.UNBOUNDED and hi >= last:
            hi = ops.UNBOUNDED
        lo = min(lo, last)
        if lo == 0 and hi == 0:
            return x
        step = lo == hi or lo == last
        if step:  # a window of one point is both
            op = ops.ALWAYS
        inner, lo_x, hi_x = t[x, _OP], t[x, _LO], t[x, _HI]
        if inner == ops.ALWAYS or inner == ops.EVENTUALLY:
            step_x = _is_step(t, x, last)
            if not (op == inner or step or step_x):
                break
            if lo_x == last:
                return x
            op = op if step_x else inner
            lo, hi = (
                lo + lo_x,
                ops.UNBOUNDED if hi == ops.UNBOUNDED or hi_x == ops.UNBOUNDED else hi + hi_x,
            )
            x = t[x, _LEFT]
            t[-1, _AGAIN] = 1  # the next pass sees what of the longer window lies beyond the trace
            continue
        # G[a,b] (A U[c,inf] B) = G[a,a] (A U[c+b-a,inf] B), and the same for F of its negation.
        negated = inner == ops.NOT and op == ops.EVENTUALLY
        if (
            step
            or hi == ops.UNBOUNDED
            or not (negated or (inner == ops.UNTIL and op == ops.ALWAYS))
        ):
            break
        u = t[x, _LEFT] if negated else x
        if t[u, _OP] != ops.UNTIL or t[u, _HI] != ops.UNBOUNDED:
            break
        start = min(last, t[u, _LO] + hi - lo)
        x = _node(t, r, ops.UNTIL, start, ops.UNBOUNDED, t[u, _LEFT], t[u, _RIGHT])
        if negated:
            x = _node(t, r, ops.NOT, 0, 0, x, -1)
        hi = lo
        t[-1, _AGAIN] = 1
    return _node(t, r, op, lo, hi, x, -1)


@njit(cache=True, nogil=True)
def _until(t, r, lo, hi, left, right, members, last):  # type: ignore[no-untyped-def]
    if r[left, right] & _BELOW:  # then A U[a,b] B = G[0,a] A
        return _window(t, r, ops.ALWAYS, 0, lo, left, last)
    if t[right, _OP] == ops.AND:  # A U (A and B) = A U B
        count, kept = _flatten(t, ops.AND, right, members, 0), 0
        for k in range(count):
            if not r[left, members[k]] & _BELOW:
                members[kept] = members[k]
                kept += 1
        if kept < count:
            right = _joined(t, r, ops.AND, members, kept)
    return _node(t, r, ops.UNTIL, lo, hi, left, right)


@njit(cache=True, nogil=True)
def _group(t, r, op, members, count, last):  # type: ignore[no-untyped-def]
    """and/or of members[:count], simplified; members is overwritten."""
    i, j = 0, 1
    while j < count:
        a, b = members[i], members[j]
        above, below = r[b, a] & _BELOW, r[a, b] & _BELOW
        if above and below:  # one meaning: the smaller stays
            smaller = t[b, _SIZE] < t[a, _SIZE]
            if t[b, _SIZE] == t[a, _SIZE]:
                smaller = r[b, a] & _BEFORE > 0
            one = b if smaller else a
        elif above or below:
            one = a if (below > 0) == (op == ops.AND) else b
        else:
            one = -1
            if not ops.IS_ATOM[t[a, _OP]] and not ops.IS_ATOM[t[b, _OP]]:
                one = _merged(t, r, op, a, b, last)
                if one < 0:
                    one = _merged(t, r, op, b, a, last)
            if one >= 0:
                t[-1, _AGAIN] = 1
        if one >= 0:  # in the place of two, and meets all others anew
            members[j] = members[count - 1]
            members[i] = members[count - 2]
            count = _flatten(t, op, one, members, count - 2)
            i, j = 0, 1
            continue
        j += 1
        if j == count:
            i += 1
            j = i + 1
    return _joined(t, r, op, members, count)


@njit(cache=True, nogil=True)
def _merged(t, r, op, a, b, last):  # type: ignore[no-untyped-def]
    """One node for the and/or of two nodes, or -1. Some laws are tried only in this order."""
    kind, lo, hi, x = t[a, _OP], t[a, _LO], t[a, _HI], t[a, _LEFT]
    kind_b, lo_b, hi_b, y = t[b, _OP], t[b, _LO], t[b, _HI], t[b, _LEFT]
    window = ops.ALWAYS if op == ops.AND else ops.EVENTUALLY
    if (kind == window or _is_step(t, a, last)) and (kind_b == window or _is_step(t, b, last)):
        if lo == lo_b and hi == hi_b:  # G A and G B = G (A and B)
            return _node(t, r, kind, lo, hi, _pair(t, r, op, x, y), -1)
        if x == y and _touch(lo, hi, lo_b, hi_b):  # G[a,b] A and G[b,c] A = G[a,c] A
            return _window(t, r, window, min(lo, lo_b), _later(hi, hi_b), x, last)
    if kind == ops.UNTIL and kind_b == ops.UNTIL:
        return _merged_untils(t, r, op, a, b)
    if kind == ops.NOT and kind_b == ops.NOT:
        opposite = _merged_untils(t, r, ops.OR if op == ops.AND else ops.AND, x, y)
        return _node(t, r, ops.NOT, 0, 0, opposite, -1) if opposite >= 0 else -1
    if op == ops.OR:
        return -1
    if (
        kind == ops.UNTIL
        and hi == ops.UNBOUNDED
        and (kind_b == ops.EVENTUALLY or _is_step(t, b, last))
    ):
        if lo == lo_b and y == t[a, _RIGHT]:  # (A U[a,inf] B) and F[a,b] B = A U[a,b] B
            return _node(t, r, ops.UNTIL, lo, hi_b, x, y)
    elif (
        kind == ops.ALWAYS
        and lo == 0
        and kind_b == ops.ALWAYS
        and lo_b == hi_b
        and t[y, _OP] == ops.UNTIL
    ):
        start, stop = lo_b + t[y, _LO], t[y, _HI]
        if stop != ops.UNBOUNDED:
            stop += lo_b
        # G[0,a] A and G[a,a] (A U[0,b] B) = A U[a,a+b] B
        if x == t[y, _LEFT] and lo_b - 1 <= hi <= start:
            return _node(t, r, ops.UNTIL, start, stop, x, t[y, _RIGHT])
    return -1


@njit(cache=True, nogil=True)
def _merged_untils(t, r, op, a, b):  # type: ignore[no-untyped-def]
    if t[a, _OP] != ops.UNTIL or t[b, _OP] != ops.UNTIL:
        return -1
    lo, hi, left, right = t[a, _LO], t[a, _HI], t[a, _LEFT], t[a, _RIGHT]
    lo_b, hi_b, left_b, right_b = t[b, _LO], t[b, _HI], t[b, _LEFT], t[b, _RIGHT]
    if lo == lo_b and hi == hi_b:
        if op == ops.AND and right == right_b:  # (A U C) and (B U C) = (A and B) U C
            return _node(t, r, ops.UNTIL, lo, hi, _pair(t, r, ops.AND, left, left_b), right)
        if op == ops.OR and left == left_b:  # (A U B) or (A U C) = A U (B or C)
            return _node(t, r, ops.UNTIL, lo, hi, left, _pair(t, r, ops.OR, right, right_b))
    elif op == ops.OR and left == left_b and right == right_b and _touch(lo, hi, lo_b, hi_b):
        return _node(t, r, ops.UNTIL, min(lo, lo_b), _later(hi, hi_b), left, right)
    return -1


@njit(cache=True, nogil=True)
def _pair(t, r, op, a, b):  # type: ignore[no-untyped-def]
    """and/or of two, flattened and sorted; the next pass simplifies it."""
    members = np.empty(t[a, _SIZE] + t[b, _SIZE], np.int64)
    count = _flatten(t, op, a, members, 0)
    return _joined(t, r, op, members, _flatten(t, op, b, members, count))


@njit(cache=True, nogil=True)
def _flatten(t, op, x, members, count):  # type: ignore[no-untyped-def]
    """Append x, or its operands if it is the same kind of and/or; the new count."""
    while t[x, _OP] == op:
        members[count] = t[x, _LEFT]
        count += 1
        x = t[x, _RIGHT]
    members[count] = x
    return count + 1


@njit(cache=True, nogil=True)
def _joined(t, r, op, members, count):  # type: ignore[no-untyped-def]
    """and/or of members[:count] in their order, without repeats."""
    kept = 0
    for i in range(count):
        x, k = members[i], kept
        while k > 0 and r[x, members[k - 1]] & _BEFORE:
            k -= 1
        if k > 0 and members[k - 1] == x:
            continue
        for j in range(kept, k, -1):
            members[j] = members[j - 1]
        members[k] = x
        kept += 1
    out = members[kept - 1]
    for k in range(kept - 2, -1, -1):
        out = _node(t, r, op, 0, 0, members[k], out)
    return out


@njit(cache=True, nogil=True)
def _is_step(t, x, last):  # type: ignore[no-untyped-def]
    """Whether x is a window of one point."""
    return t[x, _OP] == ops.ALWAYS and (t[x, _LO] == t[x, _HI] or t[x, _LO] == last)


@njit(cache=True, nogil=True)
def _touch(lo, hi, lo_b, hi_b):  # type: ignore[no-untyped-def]
    """Whether the union of two windows is a window."""
    return (hi == ops.UNBOUNDED or lo_b <= hi + 1) and (hi_b == ops.UNBOUNDED or lo <= hi_b + 1)


@njit(cache=True, nogil=True)
def _later(hi, hi_b):  # type: ignore[no-untyped-def]
    return ops.UNBOUNDED if hi == ops.UNBOUNDED or hi_b == ops.UNBOUNDED else max(hi, hi_b)


# -- the table -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _node(t, r, op, lo, hi, left, right):  # type: ignore[no-untyped-def]
    return _store(t, r, op, lo, hi, -1, 0, left, right)


@njit(cache=True, nogil=True)
def _store(t, r, op, lo, hi, channel, value, left, right):  # type: ignore[no-untyped-def]
    """The number of this node, which is stored if it is new."""
    new = t[-1, _COUNT]
    for k in range(new):
        row = t[k]
        if (
            row[_OP] == op and row[_LEFT] == left and row[_RIGHT] == right and row[_LO] == lo
            and row[_HI] == hi and row[_CHANNEL] == channel and row[_VALUE] == value
        ):  # fmt: skip
            return k
    if new == len(t) - 1:
        raise IndexError("the table of nodes is full")
    row = t[new]
    row[_OP], row[_LO], row[_HI], row[_CHANNEL], row[_VALUE] = op, lo, hi, channel, value
    row[_LEFT], row[_RIGHT], row[_SIZE] = left, right, 1
    if left >= 0:
        row[_SIZE] += t[left, _SIZE]
    if right >= 0:
        row[_SIZE] += t[right, _SIZE]
    t[-1, _COUNT] = new + 1
    r[new, new] = _BELOW
    for k in range(new):  # in this order, since a pair builds on those of its operands
        before = _is_before(t, r, new, k)
        r[new, k] = _BELOW * _is_below(t, r, new, k) + _BEFORE * before
        r[k, new] = _BELOW * _is_below(t, r, k, new) + _BEFORE * (not before)
    return new


@njit(cache=True, nogil=True, forceinline=True)
def _is_below(t, r, a, b):  # type: ignore[no-untyped-def]
    """1 if a rule for one operator says that a is never above b, otherwise 0."""
    op, x, right = t[a, _OP], t[a, _LEFT], t[a, _RIGHT]
    op_b, y, right_b = t[b, _OP], t[b, _LEFT], t[b, _RIGHT]
    if ops.IS_ATOM[op] and ops.IS_ATOM[op_b]:
        if op != op_b or t[a, _CHANNEL] != t[b, _CHANNEL]:
            return 0
        value, value_b = t[a, _VALUE], t[b, _VALUE]
        return 1 if (value >= value_b if op == ops.GE else value <= value_b) else 0
    if op == ops.OR:
        return r[x, b] & r[right, b] & _BELOW
    if op_b == ops.AND:
        return r[a, y] & r[a, right_b] & _BELOW
    known = 0
    if op == ops.AND:
        known |= r[x, b] | r[right, b]
    if op_b == ops.OR:
        known |= r[a, y] | r[a, right_b]
    # always from now on, and until, hold now; what holds now is eventual from now on
    if op == ops.UNTIL or (op == ops.ALWAYS and t[a, _LO] == 0):
        known |= r[x, b]
    if op_b == ops.EVENTUALLY and t[b, _LO] == 0:
        known |= r[a, y]
    if known & _BELOW:
        return 1
    if op == ops.NOT and op_b == ops.NOT:
        return r[y, x] & _BELOW
    if not (ops.IS_TIMED[op] and ops.IS_TIMED[op_b]):
        return 0
    lo, hi, lo_b, hi_b = t[a, _LO], t[a, _HI], t[b, _LO], t[b, _HI]
    if hi == ops.UNBOUNDED:
        hi = _FAR
    if hi_b == ops.UNBOUNDED:
        hi_b = _FAR
    if op == ops.ALWAYS and op_b == ops.ALWAYS:
        return r[x, y] & _BELOW if lo <= lo_b and hi_b <= hi else 0
    if op == ops.ALWAYS and op_b == ops.EVENTUALLY:
        return r[x, y] & _BELOW if lo <= hi_b and lo_b <= hi else 0
    if op == ops.UNTIL and op_b == ops.ALWAYS:
        return r[x, y] & _BELOW if hi_b <= lo else 0
    if op != ops.UNTIL and op_b != ops.EVENTUALLY:
        return 0
    if lo < lo_b or hi > hi_b:
        return 0
    if op == ops.EVENTUALLY:
        return r[x, y] & _BELOW
    if op_b == ops.EVENTUALLY:
        return r[right, y] & _BELOW
    return r[x, y] & r[right, right_b] & _BELOW


@njit(cache=True, nogil=True, forceinline=True)
def _is_before(t, r, a, b):  # type: ignore[no-untyped-def]
    """Atoms first, by variable, comparison, number; others by operator, operands, window."""
    op, op_b = t[a, _OP], t[b, _OP]
    if ops.IS_ATOM[op] and ops.IS_ATOM[op_b] and t[a, _CHANNEL] != t[b, _CHANNEL]:
        return t[a, _CHANNEL] < t[b, _CHANNEL]
    if op != op_b:
        return _RANK[op] < _RANK[op_b]
    if ops.IS_ATOM[op]:
        return t[a, _VALUE] < t[b, _VALUE]
    x, y = t[a, _LEFT], t[b, _LEFT]
    if x == y:
        x, y = t[a, _RIGHT], t[b, _RIGHT]
    if x != y:
        return r[x, y] & _BEFORE > 0
    if t[a, _LO] != t[b, _LO]:
        return t[a, _LO] < t[b, _LO]
    return t[b, _HI] == ops.UNBOUNDED or (t[a, _HI] != ops.UNBOUNDED and t[a, _HI] < t[b, _HI])


@njit(cache=True, nogil=True)
def _write(t, root, code, values, todo):  # type: ignore[no-untyped-def]
    """Write the postfix rows of a node, from the last to the first; returns their number."""
    at, pending = t[root, _SIZE], 1
    todo[0] = root
    while pending > 0:
        pending -= 1
        row = t[todo[pending]]
        at -= 1
        code[at, 0], code[at, 1], code[at, 2], code[at, 3] = (
            row[_OP],
            row[_LO],
            row[_HI],
            row[_CHANNEL],
        )
        values[at] = row[_VALUE]
        for k in range(_LEFT, _RIGHT + 1):
            if row[k] >= 0:
                todo[pending] = row[k]
                pending += 1
    return t[root, _SIZE]
