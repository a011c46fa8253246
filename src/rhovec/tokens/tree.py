"""`tree`: one token a node, in postfix order, several formulae to a row.

A token is the node itself: operator, channel, time bounds and threshold, nothing lost. How two nodes
of one formula stand to each other in its tree (above or below, how far, on which side of an operator
whose sides differ) is a relation, which attention reads; there are no positions. So operands of `and`
and `or` may change places without a trace, and formulae of any size can be read. A token of its own
(`cls`), in the place of an operator above the root, collects the formula.

Formulae are packed first-fit into rows of a fixed width, so that almost no compute goes to padding and
shapes stay the same. Small batches are packed by plain Python, others by the same code compiled, so
that a single formula need not wait for the compiler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ..errors import FormulaError
from ..formula import operators as ops
from ..formula.printer import channel_text
from ..formula.programs import Programs
from ..formula.shape import COMPILED_FROM, plain_or_compiled

CLS, PADDING = 15, 16  # beside the numbers of the operators that models know
OPERATORS = 17  # part of every model's shapes
REACH = 6  # steps up or down the tree that are told apart
# Relations of another token to this one: in another formula; the same; elsewhere in the tree, the
# common ancestor being 1 ... REACH up; an ancestor, 1 ... REACH up, by the side on which this one lies;
# a descendant, in the same way. The side is 1 for what is right of an operator whose operands differ.
APART, SELF, ELSEWHERE = range(3)
ANCESTOR = ELSEWHERE + REACH
DESCENDANT = ANCESTOR + 2 * REACH
RELATIONS = DESCENDANT + 2 * REACH

WIDTH = 64  # of a row, unless a formula needs more


@dataclass(frozen=True)
class TreeTokens:
    """B formulae packed into R rows of W tokens."""

    node: np.ndarray  # (R, W, 4) int64: operator, left and right bound, channel or -1
    threshold: np.ndarray  # (R, W) float64
    relation: np.ndarray  # (R, W, W) uint8: how token j stands to token i
    owner: np.ndarray  # (R, W) int32: the token's formula, -1 for padding
    cls: np.ndarray  # (B,) int32: index of each formula's cls token in the R * W tokens
    root: np.ndarray  # (B,) int32: index of its last node

    def ids(self, points: int) -> np.ndarray:
        """(R, W, 4) int16: operator, channel + 1, left bound + 1, right bound + 1; 0 is "none".

        What the robustness on traces of that many points cannot tell apart is one: > and >=, and
        bounds from the last point on, where a held trace no longer changes.
        """
        operator, left, right, channel = np.moveaxis(self.node, -1, 0)
        timed = (operator == ops.ALWAYS) | (operator == ops.EVENTUALLY) | (operator == ops.UNTIL)
        out = np.empty(self.node.shape, np.int16)
        out[..., 0] = operator
        out[..., 0][operator == ops.GT] = ops.GE
        out[..., 0][operator == ops.LT] = ops.LE
        out[..., 1] = channel + 1
        out[..., 2] = np.where(timed, 1 + np.minimum(left, points - 1), 0)
        last = np.where(right == ops.UNBOUNDED, points - 1, np.minimum(right, points - 1))
        out[..., 3] = np.where(timed, 1 + last, 0)
        return out


def tree_tokens(
    programs: Programs, rows: int | None = None, width: int | None = None
) -> TreeTokens:
    """Tokens of a batch of formulae over x_0, x_1, ...; rows and width fix R and W."""
    largest = int(programs.code[:, 0].max())
    if largest >= CLS:
        ops.refuse(largest, "a model")
    sizes = np.diff(programs.offsets) + 1
    if width is None:
        width = max(WIDTH, -(-int(sizes.max()) // 8) * 8)
    elif int(sizes.max()) > width:
        raise FormulaError(
            f"a formula has {int(sizes.max()) - 1} nodes, and a row holds {width - 1}"
        )
    large = len(programs.code) >= COMPILED_FROM
    place, used = plain_or_compiled(first_fit, large)(sizes, width)
    if rows is None:
        rows = used
    elif used > rows:
        raise FormulaError(f"the batch needs {used} rows of {width} tokens, more than {rows}")
    node, threshold, relation, owner = plain_or_compiled(_fill, large)(
        programs.code, programs.thresholds, programs.offsets, variable_numbers(programs), place, rows,
        width,
    )  # fmt: skip
    cls = place.astype(np.int32)
    return TreeTokens(node, threshold, relation, owner, cls, cls + (sizes - 1).astype(np.int32))


def variable_numbers(programs: Programs) -> np.ndarray:
    """(channels,) int64: i for the channel x_i; a model knows no others."""
    numbers = []
    for channel in programs.channels:
        variable, coefficient = channel[0]
        name = "" if isinstance(variable, ops.Shifted) else variable
        if len({ops.lag_of(term) for term, _ in channel}) > 1:
            raise FormulaError(
                f"{channel_text(channel)} depends on two times, which models cannot read; use exact "
                "signatures: rv.StlKernel(...).signatures(formula)"
            )
        if len(channel) > 1 or coefficient != 1 or not re.fullmatch(r"x_(0|[1-9]\d{0,3})", name):
            raise FormulaError(
                f"a model reads only the variables x_0, x_1, ..., not {channel_text(channel)}; "
                "lower the formula with a Schema first"
            )
        numbers.append(int(name[2:]))
    return np.array(numbers, np.int64)


def first_fit(lengths, width):  # type: ignore[no-untyped-def]
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


def _fill(code, thresholds, offsets, variables, place, rows, width):  # type: ignore[no-untyped-def]
    node = np.zeros((rows, width, 4), np.int64)
    node[:, :, 0] = PADDING
    node[:, :, 3] = -1
    threshold = np.zeros((rows, width))
    relation = np.zeros((rows, width, width), np.uint8)
    owner = np.full((rows, width), -1, np.int32)
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
        owner[r, start : start + n + 1] = b
        for i in range(n):
            op = code[base + i, 0]
            size[i] = 1
            if ops.ARITY[op] > 0:
                size[i] += size[i - 1]
                parent[i - 1] = i
                side[i - 1] = 1 if op == ops.UNTIL or op == ops.IMPLIES else 0
                if ops.ARITY[op] == 2:
                    left = i - 1 - size[i - 1]
                    size[i] += size[left]
                    parent[left], side[left] = i, 0
            row = node[r, start + 1 + i]
            row[0], row[1], row[2] = op, code[base + i, 1], code[base + i, 2]
            if ops.IS_ATOM[op]:
                row[3] = variables[code[base + i, 3]]
                threshold[r, start + 1 + i] = thresholds[base + i]
        parent[n - 1], side[n - 1] = -1, 0
        # Node i is at i + 1, and cls, the parent of the root, at 0.
        matrix = relation[r, start : start + n + 1, start : start + n + 1]
        for i in range(n):
            below, up = i, 0
            while below >= 0:
                above = parent[below]
                step = 2 * up + side[below]
                matrix[i + 1, above + 1] = ANCESTOR + step
                matrix[above + 1, i + 1] = DESCENDANT + step
                if above >= 0:  # what hangs from it elsewhere
                    for j in range(above - size[above] + 1, above):
                        if j <= below - size[below] or j > below:
                            matrix[i + 1, j + 1] = ELSEWHERE + up
                below, up = above, min(up + 1, REACH - 1)
    return node, threshold, relation, owner
