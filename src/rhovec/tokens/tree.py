"""Formula -> model input. `tree`: one token a node, in postfix order, several formulae to a row.

A token carries its operator, channel, time bounds and threshold; how two nodes of one formula stand to
each other in its tree (above or below, how far, on which side) is a relation, which attention reads.
Formulae are packed first-fit into rows of a fixed width, each behind a token of its own that collects
the formula (`cls`), so that almost no compute goes to padding and all shapes are fixed.

Bounds are clipped at the length of the teacher's trajectories, beyond which a held trace does not
change, and > is read as >=: both leave the robustness as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numba import njit

from .errors import FormulaError
from .formula.core import ALWAYS, AND, EVENTUALLY, FALSE, GE, GT, LE, LT, UNBOUNDED, UNTIL
from .formula.printer import channel_text
from .formula.programs import Programs

OPERATORS = UNTIL + 3  # the language's, then cls and padding
CLS, PADDING = UNTIL + 1, UNTIL + 2
REACH = 6  # steps up or down the tree that are told apart
# Relations: another formula; the same node; a node elsewhere in the tree; from or to cls; then an
# ancestor of which this node is in the left or right operand, 1 ... REACH up; and the converse.
APART, SELF, ELSEWHERE, TO_CLS, FROM_CLS, ANCESTOR = range(6)
DESCENDANT = ANCESTOR + 2 * REACH
RELATIONS = DESCENDANT + 2 * REACH


@dataclass(frozen=True)
class TreeTokens:
    """Formulae packed into R rows of W tokens."""

    node: np.ndarray  # (R, W, 5) int16: operator, channel + 1, left bound, right bound, place
    threshold: np.ndarray  # (R, W) float32
    relation: np.ndarray  # (R, W, W) uint8: how token j stands to token i
    cls: np.ndarray  # (B,) int32: index of each formula's cls token in the R * W tokens


def tree_tokens(
    programs: Programs, points: int, rows: int | None = None, width: int = 65
) -> TreeTokens:
    """Tokens of a batch of formulae of at most width - 1 nodes; rows fixes R."""
    sizes = np.diff(programs.offsets)
    if int(sizes.max()) + 1 > width:
        raise FormulaError(f"a formula has {int(sizes.max())} nodes; the model reads {width - 1}")
    place, used = _place(sizes + 1, width)
    if rows is None:
        rows = used
    elif used > rows:
        raise FormulaError(f"the batch needs {used} rows of {width} tokens, more than {rows}")
    node, threshold, relation = _fill(
        programs.code, programs.thresholds, programs.offsets, _variables(programs), place,
        rows, width, points,
    )  # fmt: skip
    return TreeTokens(node, threshold, relation, place.astype(np.int32))


def _variables(programs: Programs) -> np.ndarray:
    """(channels,) int64: i for the channel x_i; a model knows no others."""
    numbers = []
    for channel in programs.channels:
        name, coefficient = channel[0]
        if len(channel) > 1 or coefficient != 1 or not re.fullmatch(r"x_(0|[1-9]\d{0,3})", name):
            raise FormulaError(
                f"a model reads variables x_0, x_1, ... alone, not {channel_text(channel)}; "
                "lower the formula with a Schema first"
            )
        numbers.append(int(name[2:]))
    return np.array(numbers, np.int64)


@njit(cache=True, nogil=True)
def _place(lengths, width):  # type: ignore[no-untyped-def]
    """First-fit, the longest first: where each formula starts, and how many rows that takes."""
    order = np.argsort(-lengths, kind="mergesort")
    free = np.empty(len(lengths), np.int64)
    place = np.empty(len(lengths), np.int64)
    first = np.zeros(width + 1, np.int64)  # no row before this one has so much room
    used = 0
    for b in order:
        need = lengths[b]
        r = first[need]
        while r < used and free[r] < need:
            r += 1
        first[need] = r
        if r == used:
            free[r] = width
            used += 1
        place[b] = r * width + width - free[r]
        free[r] -= need
    return place, used


@njit(cache=True, nogil=True)
def _fill(code, thresholds, offsets, variables, place, rows, width, points):  # type: ignore[no-untyped-def]
    node = np.zeros((rows, width, 5), np.int16)
    node[:, :, 0] = PADDING
    threshold = np.zeros((rows, width), np.float32)
    relation = np.zeros((rows, width, width), np.uint8)
    for r in range(rows):
        for i in range(width):
            relation[r, i, i] = SELF
    parent = np.empty(width, np.int64)
    side = np.empty(width, np.int64)
    size = np.empty(width, np.int64)
    for b in range(len(place)):
        r, start = place[b] // width, place[b] % width
        base, n = offsets[b], offsets[b + 1] - offsets[b]
        node[r, start, 0] = CLS
        for i in range(n):
            op, lo, hi = code[base + i, 0], code[base + i, 1], code[base + i, 2]
            size[i] = 1
            if op > FALSE:
                size[i] += size[i - 1]
                parent[i - 1], side[i - 1] = i, 1
                if op >= AND:
                    left = i - 1 - size[i - 1]
                    size[i] += size[left]
                    parent[left], side[left] = i, 0
            token = node[r, start + 1 + i]
            token[0] = GE if op == GT else LE if op == LT else op
            token[4] = i + 1
            if op == ALWAYS or op == EVENTUALLY or op == UNTIL:
                token[2] = 1 + min(lo, points - 1)
                token[3] = 1 + (points - 1 if hi == UNBOUNDED else min(hi, points - 1))
            if op <= LT:
                token[1] = 1 + variables[code[base + i, 3]]
                threshold[r, start + 1 + i] = thresholds[base + i]
        parent[n - 1] = -1
        matrix = relation[r, start : start + n + 1, start : start + n + 1]
        for i in range(n):
            matrix[i + 1, 0], matrix[0, i + 1] = TO_CLS, FROM_CLS
            for j in range(n):
                if i != j:
                    matrix[i + 1, j + 1] = ELSEWHERE
        for i in range(n):
            below, distance = i, 1
            while parent[below] >= 0:
                above = parent[below]
                step = 2 * (min(distance, REACH) - 1) + side[below]
                matrix[i + 1, above + 1] = ANCESTOR + step
                matrix[above + 1, i + 1] = DESCENDANT + step
                below, distance = above, distance + 1
    return node, threshold, relation
