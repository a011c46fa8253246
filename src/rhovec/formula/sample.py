"""Random formulae with the distribution of the training corpus' seeds.

The root is an operator; below it a node is an atom with probability 0.3 and always at the depth
limit, which is uniform in 1 ... 6; the six operators are alike; thresholds are N(0, 1) to four
decimals. Time bounds: 10 % unbounded; of the rest 20 % right-unbounded with a left bound below 35;
otherwise left < 35 and right in (left, 35].
"""

from __future__ import annotations

import numpy as np

from . import operators as ops
from .core import Formula
from .operators import Row

LEAF_PROBABILITY = 0.3
MAX_DEPTH = 6
LAST_BOUND = 35
OPERATORS = (ops.AND, ops.OR, ops.NOT, ops.ALWAYS, ops.EVENTUALLY, ops.UNTIL)
PAST_OPERATORS = (ops.HISTORICALLY, ops.ONCE, ops.SINCE)


def random_formulae(
    n: int, seed: int, n_variables: int = 3, *, past: bool = False
) -> list[Formula]:
    """n independent formulae over x_0 ... x_{n_variables - 1}; the same ones for the same seed.

    past: with the three operators that look back as well, drawn like the others.
    """
    rng = np.random.default_rng(seed)
    operators = OPERATORS + PAST_OPERATORS if past else OPERATORS
    return [_draw(rng, n_variables, operators) for _ in range(n)]


def _draw(rng: np.random.Generator, n_variables: int, operators: tuple[int, ...]) -> Formula:
    limit = int(rng.integers(1, MAX_DEPTH + 1))
    prefix: list[Row] = []  # root first, right operands before left ones: postfix reversed
    todo = [0]  # depths of the nodes still to draw
    while todo:
        depth = todo.pop()
        if depth > 0 and (depth == limit or rng.random() < LEAF_PROBABILITY):
            variable = f"x_{rng.integers(n_variables)}"
            comparison = ops.GE if rng.random() < 0.5 else ops.LE
            threshold = round(float(rng.standard_normal()), 4)
            prefix.append((comparison, 0, 0, ((variable, 1.0),), threshold))
            continue
        op = operators[rng.integers(len(operators))]
        lo, hi = _interval(rng) if ops.is_timed(op) else (0, 0)
        prefix.append((op, lo, hi, None, 0.0))
        todo += [depth + 1] * ops.arity(op)
    return Formula.from_rows(prefix[::-1])


def _interval(rng: np.random.Generator) -> tuple[int, int]:
    if rng.random() < 0.1:
        return 0, ops.UNBOUNDED
    lo = int(rng.integers(LAST_BOUND))
    if rng.random() < 0.2:
        return lo, ops.UNBOUNDED
    return lo, int(rng.integers(lo + 1, LAST_BOUND + 1))
