"""Rewrites that leave the robustness of a formula unchanged, bit for bit, on every held trace.

`RULES` is the table of all of them: the paper's rule and probability, and the exact forms that it
stands for, each as a postfix template for compiled code. The paper's `until` nesting with an
arbitrary operand changes the meaning; the forms here do not.

A pass visits the nodes, operands first. At each node a rule is drawn with the table's probabilities,
then one of its forms that apply there, uniformly. If none applies, or the result would exceed a limit,
the node stays as it is (the last row of the table). So the probabilities are the rates at which rules
are tried, and formulae keep the paper's sizes. Passes are repeated, each on the result of the one
before, until the minimum depth is reached.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numba import njit

from ..formula import operators as ops
from ..formula.sample import LAST_BOUND
from .draw import below, draw_atom, draw_interval, uniform
from .trees import (
    CHANNEL,
    DEPTH,
    HI,
    LO,
    OP,
    SIZE,
    THRESHOLD,
    TOKENS,
    WRAPPING,
    append,
    copy,
)


class Form(NamedTuple):
    name: str
    law: str
    template: str


class Rule(NamedTuple):
    name: str
    probability: float
    paper: str  # what the paper's table says
    forms: tuple[Form, ...]


# A template is the new subtree in postfix. Its parts are copied: N the node itself, L and R its
# left and right operand (R the only one), L1, L2, R1, R2 their operands (2 the only one), ? an
# arbitrary formula. `op` is the node's operator, `dual` and/or swapped, `partner` the window that
# goes with and/or (G with and, F with or) and the other way round, `inverse` the atom with the
# complementary comparison. Windows are made of the numbers in _NUMBERS.
RULES = (
    Rule("not-injection", 0.001, "φ → ¬¬φ, if the parent is no ¬", (
        Form("double_negation", "φ → ¬¬φ, if neither φ nor its parent is ¬", "N not not"),
    )),
    Rule("De Morgan", 0.099, "A ∧ B → ¬(¬A ∨ ¬B), and dual", (
        Form("de_morgan", "A ∧ B → ¬(¬A ∨ ¬B), and dual", "L not R not dual not"),
    )),
    Rule("time partitioning", 0.35, "op_I φ → op_I1 op_I2 φ", (
        Form("nested_windows", "op_I φ → op_I1 op_I2 φ, I1 + I2 = I, neither [0,0]",
             "R op[r,s] op[p,q]"),
        Form("split_window", "F[a,b] φ → F[a,m] φ ∨ F[m,b] φ, and dual",
             "R op[a,m] R op[m,b] partner"),
    )),
    Rule("until nesting", 0.25, "φ → φ U ψ, or ψ U φ", (
        Form("until_now", "φ → φ U[0,0] φ", "N N U[0,0]"),
        Form("until_self", "φ → φ U[0,d] φ", "N N U[0,d]"),
        Form("until_stronger", "φ → φ ∨ (φ U[c,d] ψ)", "N N ? U[c,d] or"),
        Form("absorption_and", "φ → φ ∧ (φ ∨ ψ)", "N N ? or and"),
        Form("absorption_or", "φ → φ ∨ (φ ∧ ψ)", "N N ? and or"),
        Form("until_both", "φ U_I ψ → φ U_I (φ ∧ ψ)", "L L R and U[a,b]"),
        Form("until_or", "φ U_I (A ∨ B) → (φ U_I A) ∨ (φ U_I B)", "L R1 U[a,b] L R2 U[a,b] or"),
        Form("until_and", "(A ∧ B) U_I ψ → (A U_I ψ) ∧ (B U_I ψ)", "L1 R U[a,b] L2 R U[a,b] and"),
        Form("until_delayed", "φ U[a,inf] ψ → G[0,a] (φ U ψ)", "L R U[0,inf] G[0,a]"),
        Form("until_bounded", "φ U[a,b] ψ → F[a,b] ψ ∧ (φ U[a,inf] ψ)",
             "R F[a,b] L R U[a,inf] and"),
        Form("until_split", "φ U[a,b] ψ → (φ U[a,m] ψ) ∨ (φ U[m,b] ψ)",
             "L R U[a,m] L R U[m,b] or"),
        Form("until_shifted", "φ U[a,b] ψ → G[0,a] φ ∧ F[a,a] (φ U[0,b-a] ψ)",
             "L G[0,a] L R U[0,b-a] F[a,a] and"),
    )),
    Rule("temporal identity", 0.05, "φ → op[0,0] φ", (
        Form("identity_always", "φ → G[0,0] φ", "N G[0,0]"),
        Form("identity_eventually", "φ → F[0,0] φ", "N F[0,0]"),
    )),
    Rule("distributivity", 0.15, "G_I (A ∧ B) → G_I A ∧ G_I B, or dual", (
        Form("distribute", "G_I (A ∧ B) → G_I A ∧ G_I B, and dual",
             "R1 op[a,b] R2 op[a,b] partner"),
        Form("merge", "G_I A ∧ G_I B → G_I (A ∧ B), and dual", "L2 R2 op partner[A,B]"),
    )),
    Rule("predicate inversion", 0.08, "x ≤ c → ¬(x > c)", (
        Form("inversion", "x ≤ c → ¬(x > c), and the other comparisons", "inverse not"),
    )),
    Rule("no change", 0.02, "φ → φ", ()),
)  # fmt: skip
FORMS = tuple(form for rule in RULES for form in rule.forms)
(
    DOUBLE_NEGATION, DE_MORGAN, NESTED_WINDOWS, SPLIT_WINDOW, UNTIL_NOW, UNTIL_SELF, UNTIL_STRONGER,
    ABSORPTION_AND, ABSORPTION_OR, UNTIL_BOTH, UNTIL_OR, UNTIL_AND, UNTIL_DELAYED, UNTIL_BOUNDED,
    UNTIL_SPLIT, UNTIL_SHIFTED, IDENTITY_ALWAYS, IDENTITY_EVENTUALLY, DISTRIBUTE, MERGE, INVERSION,
) = range(len(FORMS))  # fmt: skip

MIN_DEPTH = 5  # of a rewritten formula
_MAX_PASSES = 32  # a rewrite that is not deep enough by then is given up

# The numbers of windows: a, b the node's window and A, B its right operand's, m between a and b,
# [p,q] and [r,s] a partition of [a,b], [c,d] a fresh window.
_NUMBERS = ("0", "inf", "a", "b", "A", "B", "m", "b-a", "p", "q", "r", "s", "c", "d")
_ZERO, _INF, _A, _B, _RIGHT_A, _RIGHT_B, _M, _WIDTH, _P, _Q, _R, _S, _C, _D = range(len(_NUMBERS))
_OPERATORS = {
    "not": ops.NOT,
    "and": ops.AND,
    "or": ops.OR,
    "U": ops.UNTIL,
    "G": ops.ALWAYS,
    "F": ops.EVENTUALLY,
}
_SYMBOLS = ("op", "dual", "partner", "inverse", "?", "N", "L", "R", "L1", "L2", "R1", "R2")
_FIRST_SYMBOL = 100  # above all operators
_SAME, _DUAL, _PARTNER, _INVERSE, _ANY, _NODE = range(_FIRST_SYMBOL, _FIRST_SYMBOL + 6)
_PARTS = len(_SYMBOLS) - _SYMBOLS.index("N")


def _compile(template: str) -> list[tuple[int, int, int]]:
    steps = []
    for word in template.split():
        name, lo, hi = re.fullmatch(r"([^\[]+)(?:\[(.+),(.+)\])?", word).groups("0")  # type: ignore[union-attr]
        code = _OPERATORS.get(name)
        steps.append((
            _FIRST_SYMBOL + _SYMBOLS.index(name) if code is None else code,
            _NUMBERS.index(lo), _NUMBERS.index(hi),
        ))  # fmt: skip
    return steps


_LENGTHS = np.array([len(form.template.split()) for form in FORMS])
_STEPS = np.zeros((len(FORMS), _LENGTHS.max(), 3), np.int64)  # symbol, left and right number
for _i, _form in enumerate(FORMS):
    _STEPS[_i, : _LENGTHS[_i]] = _compile(_form.template)
_CUMULATIVE = np.cumsum([rule.probability for rule in RULES])
_ENDS = np.cumsum([len(rule.forms) for rule in RULES])  # of each rule's forms


@njit(cache=True, nogil=True)
def rewrite(state, a, n, b, old, palette, max_nodes, max_tokens, counts):  # type: ignore[no-untyped-def]
    """Pass over the formula a[:n] until something changed and the depth is MIN_DEPTH or more.

    Returns the buffer with the result, the other buffer, and the length of the result, which is 0 if
    there is none. counts (forms,) is increased by what was applied; b and old are scratch of a's
    shape.
    """
    applied = 0
    for _ in range(_MAX_PASSES):
        n, changes = _pass(state, a, n, b, old, palette, max_nodes, max_tokens, counts)
        a, b = b, a
        applied += changes
        if applied > 0 and a[n - 1, DEPTH] >= MIN_DEPTH:
            return a, b, n
    return a, b, 0


@njit(cache=True, nogil=True)
def _pass(state, source, n, out, old, palette, max_nodes, max_tokens, counts):  # type: ignore[no-untyped-def]
    nodes, tokens = n, source[n - 1, TOKENS] + WRAPPING
    length, changes = 0, 0
    for i in range(n):
        row = source[i]
        length = append(out, length, row[OP], row[LO], row[HI], row[CHANNEL], row[THRESHOLD])
        form = _choose(state, out, length - 1)
        if form < 0 or (form == DOUBLE_NEGATION and _parent(source, n, i) == ops.NOT):
            continue
        size = out[length - 1, SIZE]
        copy(old, 0, out, length - 1)
        new = apply(form, state, old, size - 1, out, length - size, palette)
        more_nodes = out[new - 1, SIZE] - size
        more_tokens = out[new - 1, TOKENS] - old[size - 1, TOKENS]
        if nodes + more_nodes > max_nodes or tokens + more_tokens > max_tokens:
            copy(out, length - size, old, size - 1)
            continue
        length = new
        nodes += more_nodes
        tokens += more_tokens
        counts[form] += 1
        changes += 1
    return length, changes


@njit(cache=True, nogil=True)
def _parent(rows, n, node):  # type: ignore[no-untyped-def]
    """The operator above a node, -1 at the root."""
    for i in range(node + 1, n):
        if i - rows[i, SIZE] < node:
            return rows[i, OP]
    return -1


@njit(cache=True, nogil=True)
def _choose(state, rows, root):  # type: ignore[no-untyped-def]
    """A form for the node, or -1."""
    u = uniform(state)
    rule = 0
    while rule < len(_CUMULATIVE) - 1 and u >= _CUMULATIVE[rule]:
        rule += 1
    chosen, fitting = -1, 0
    for form in range(0 if rule == 0 else _ENDS[rule - 1], _ENDS[rule]):
        if applies(form, rows, root):
            fitting += 1
            if fitting == 1 or below(state, fitting) == 0:
                chosen = form
    return chosen


@njit(cache=True, nogil=True)
def applies(form, rows, root):  # type: ignore[no-untyped-def]
    """Whether a form applies to the subtree rows[root]."""
    op, lo, hi = rows[root, OP], rows[root, LO], rows[root, HI]
    if form == INVERSION:
        return ops.IS_ATOM[op]
    if form in (IDENTITY_ALWAYS, IDENTITY_EVENTUALLY):
        return True
    if UNTIL_NOW <= form <= ABSORPTION_OR:
        return op != ops.UNTIL  # which has laws of its own
    if ops.IS_ATOM[op]:
        return form == DOUBLE_NEGATION
    right = root - 1
    left = right - rows[right, SIZE] if ops.ARITY[op] == 2 else right
    if form == DOUBLE_NEGATION:
        return op != ops.NOT
    if form == DE_MORGAN:
        return op in (ops.AND, ops.OR)
    if form in (NESTED_WINDOWS, SPLIT_WINDOW):
        if op != ops.ALWAYS and op != ops.EVENTUALLY:
            return False
        return _can_split(lo, hi) or (
            form == NESTED_WINDOWS and hi != ops.UNBOUNDED and (lo + 1) * (hi - lo + 1) > 2
        )
    if form == DISTRIBUTE:
        return (op == ops.ALWAYS and rows[right, OP] == ops.AND) or (
            op == ops.EVENTUALLY and rows[right, OP] == ops.OR
        )
    if form == MERGE:
        return (
            op in (ops.AND, ops.OR)
            and rows[left, OP] == rows[right, OP] == _partner(op)
            and rows[left, LO] == rows[right, LO]
            and rows[left, HI] == rows[right, HI]
        )
    if op != ops.UNTIL:  # all that are left rewrite an until
        return False
    if form == UNTIL_OR:
        return rows[right, OP] == ops.OR
    if form == UNTIL_AND:
        return rows[left, OP] == ops.AND
    if form == UNTIL_DELAYED:
        return hi == ops.UNBOUNDED and lo > 0
    if form == UNTIL_BOUNDED:
        return hi != ops.UNBOUNDED
    if form == UNTIL_SPLIT:
        return _can_split(lo, hi)
    if form == UNTIL_SHIFTED:
        return lo > 0
    return form == UNTIL_BOTH


@njit(cache=True, nogil=True)
def apply(form, state, old, root, out, n, palette):  # type: ignore[no-untyped-def]
    """Write the rewritten old[root] to out[n:], given that the form applies; returns the length."""
    op, lo, hi = old[root, OP], old[root, LO], old[root, HI]
    parts = np.full(_PARTS, root)  # N, L, R, L1, L2, R1, R2
    if ops.ARITY[op] > 0:
        right = root - 1
        left = right - old[right, SIZE] if ops.ARITY[op] == 2 else right
        parts[1], parts[2] = left, right
        parts[3], parts[4] = _operands(old, left)
        parts[5], parts[6] = _operands(old, right)
    numbers = np.zeros(len(_NUMBERS), np.int64)
    numbers[_INF], numbers[_A], numbers[_B] = ops.UNBOUNDED, lo, hi
    numbers[_WIDTH] = ops.UNBOUNDED if hi == ops.UNBOUNDED else hi - lo
    numbers[_RIGHT_A], numbers[_RIGHT_B] = old[parts[2], LO], old[parts[2], HI]
    if form in (SPLIT_WINDOW, UNTIL_SPLIT):
        stop = LAST_BOUND + 1 if hi == ops.UNBOUNDED else hi
        numbers[_M] = lo + 1 + below(state, stop - lo - 1)
    elif form == NESTED_WINDOWS:
        numbers[_P], numbers[_Q], numbers[_R], numbers[_S] = _partition(state, lo, hi)
    elif form in (UNTIL_SELF, UNTIL_STRONGER):
        numbers[_C], numbers[_D] = draw_interval(state)
    for i in range(_LENGTHS[form]):
        symbol, first, last = _STEPS[form, i, 0], _STEPS[form, i, 1], _STEPS[form, i, 2]
        if symbol >= _NODE:
            n = copy(out, n, old, parts[symbol - _NODE])
            continue
        if symbol == _ANY and uniform(state) < 0.5:  # a subformula of the node, or a fresh atom
            n = copy(out, n, old, root - below(state, old[root, SIZE]))
            continue
        channel, threshold = -1, 0
        if symbol == _ANY:
            symbol, channel, threshold = draw_atom(state, palette)
        elif symbol == _INVERSE:
            symbol = (
                ops.LT
                if op == ops.GE
                else ops.LE
                if op == ops.GT
                else ops.GT
                if op == ops.LE
                else ops.GE
            )
            channel, threshold = old[root, CHANNEL], old[root, THRESHOLD]
        elif symbol == _SAME:
            symbol = op
        elif symbol == _DUAL:
            symbol = ops.OR if op == ops.AND else ops.AND
        elif symbol == _PARTNER:
            symbol = _partner(op)
        n = append(out, n, symbol, numbers[first], numbers[last], channel, threshold)
    return n


@njit(cache=True, nogil=True)
def _operands(rows, node):  # type: ignore[no-untyped-def]
    """Places of the first and the last operand; the node itself where it has none."""
    if ops.ARITY[rows[node, OP]] == 0:
        return node, node
    last = node - 1
    return (last - rows[last, SIZE] if ops.ARITY[rows[node, OP]] == 2 else last), last


@njit(cache=True, nogil=True)
def _partner(op):  # type: ignore[no-untyped-def]
    return (
        ops.ALWAYS
        if op == ops.AND
        else ops.EVENTUALLY
        if op == ops.OR
        else ops.AND
        if op == ops.ALWAYS
        else ops.OR
    )


@njit(cache=True, nogil=True)
def _can_split(lo, hi):  # type: ignore[no-untyped-def]
    # Unbounded windows are split at or before LAST_BOUND, so that bounds do not grow.
    return lo < LAST_BOUND if hi == ops.UNBOUNDED else hi - lo >= 2


@njit(cache=True, nogil=True)
def _partition(state, lo, hi):  # type: ignore[no-untyped-def]
    """Two windows, neither [0,0], whose sums are exactly the window [lo,hi]."""
    if hi == ops.UNBOUNDED:
        start = below(state, lo + 1)
        stop = start + 1 + below(state, LAST_BOUND - start)
        if uniform(state) < 0.5:
            return start, stop, lo - start, ops.UNBOUNDED
        return lo - start, ops.UNBOUNDED, start, stop
    width = hi - lo
    # All pairs (start, width) of the first window but (0, 0) and (lo, width), equally likely.
    pair = 1 + below(state, (lo + 1) * (width + 1) - 2)
    start, part = pair // (width + 1), pair % (width + 1)
    return start, start + part, lo - start, hi - start - part
