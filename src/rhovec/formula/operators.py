"""The operators of the language: one table, read by parser, printer, engines, prover and models.

    from ..formula import operators as ops        # ops.ALWAYS, ops.arity(op), ops.TABLE[op].dual

A program stores an operator as its row number in TABLE. The numbers are part of cached corpora and
compiled code, so a new operator goes to the end; nothing may depend on their order. An operator with
an `expansion` is fully defined by it: engines and models never see it (expand.py rewrites it first).
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import numpy as np

from ..errors import FormulaError

UNBOUNDED = -1  # the right bound of [a,inf]
MAX_BOUND = 10**15
MAX_PAST = 1_000_000  # steps: bounds of past operators, lags, and what lies beyond a trace's ends

(GE, GT, LE, LT, TRUE, FALSE, NOT, NEXT, ALWAYS, EVENTUALLY, AND, OR, IMPLIES, IFF, UNTIL,
 RELEASE, WEAK_UNTIL, ONCE, HISTORICALLY, SINCE, PREV, RISE, FALL) = range(23)  # fmt: skip


class Shifted(NamedTuple):
    """A variable as it was `steps` ago in an expression: 1 is `prev x`, -1 is `next x`, never 0."""

    name: str
    steps: int


Variable = str | Shifted


def name_of(variable: Variable) -> str:
    return variable.name if isinstance(variable, Shifted) else variable


def lag_of(variable: Variable) -> int:
    return variable.steps if isinstance(variable, Shifted) else 0


# A channel is a linear expression: ((variable, coefficient), ...), canonical in order and sign.
Channel = tuple[tuple[Variable, float], ...]
Row = tuple[int, int, int, Channel | None, float]  # operator, lo, hi, channel, threshold

# One step of an expansion, in postfix order: an operand, "a" or "b" (a unary operator's is "a"), or an
# operator with its bounds, where "lo" and "hi" stand for the bounds of the expanded operator.
Step = str | tuple[int, int | str, int | str]


class Operator(NamedTuple):
    """What an operator is, apart from its robustness, which the oracle and the engines define."""

    name: str  # canonical spelling
    arity: int
    binding: int = 0  # a higher number binds tighter; constants need none
    spellings: tuple[str, ...] = ()  # the others that are accepted
    timed: bool = False  # has a window [lo,hi]
    past: bool = False  # looks back in time
    dual: int | None = None  # not op(a, b) = dual(not a, not b); for a comparison, its negation
    right_associative: bool = False
    expansion: tuple[Step, ...] | None = None


_NOT, _AND, _OR = ((op, 0, 0) for op in (NOT, AND, OR))

TABLE: tuple[Operator, ...] = (
    Operator(">=", 0, 7, ("≥",), dual=LT),
    Operator(">", 0, 7, dual=LE),
    Operator("<=", 0, 7, ("≤",), dual=GT),
    Operator("<", 0, 7, dual=GE),
    Operator("true", 0, spellings=("⊤",), dual=FALSE),
    Operator("false", 0, spellings=("⊥",), dual=TRUE),
    Operator("not", 1, 6, ("!", "~", "¬")),
    Operator("next", 1, 6, ("X",), dual=NEXT, expansion=("a", (EVENTUALLY, 1, 1))),
    Operator("always", 1, 6, ("globally", "alw", "alw_", "G", "□"), timed=True, dual=EVENTUALLY),
    Operator("eventually", 1, 6, ("finally", "ev", "ev_", "F", "◇"), timed=True, dual=ALWAYS),
    Operator("and", 2, 4, ("&", "&&", "/\\", "∧"), dual=OR),
    Operator("or", 2, 3, ("|", "||", "\\/", "∨"), dual=AND),
    Operator("->", 2, 2, ("implies", "=>", "→"), right_associative=True,
             expansion=("a", _NOT, "b", _OR)),
    Operator("<->", 2, 1, ("iff", "<=>", "↔"),
             expansion=("a", "b", _AND, "a", _NOT, "b", _NOT, _AND, _OR)),
    Operator("until", 2, 5, ("until_", "U"), timed=True, dual=RELEASE, right_associative=True),
    Operator("release", 2, 5, ("R",), timed=True, dual=UNTIL, right_associative=True,
             expansion=("a", _NOT, "b", _NOT, (UNTIL, "lo", "hi"), _NOT)),
    Operator("weak_until", 2, 5, ("W", "unless"), timed=True, right_associative=True,
             expansion=("a", "b", (UNTIL, "lo", "hi"), "a", (ALWAYS, 0, "hi"), _OR)),
    Operator("once", 1, 6, ("once_", "O"), timed=True, past=True, dual=HISTORICALLY),
    Operator("historically", 1, 6, ("hist", "hist_", "H"), timed=True, past=True, dual=ONCE),
    Operator("since", 2, 5, ("since_", "S"), timed=True, past=True, right_associative=True),
    Operator("prev", 1, 6, ("Y",), past=True, dual=PREV, expansion=("a", (ONCE, 1, 1))),
    Operator("rise", 1, 6, past=True, expansion=("a", "a", (ONCE, 1, 1), _NOT, _AND)),
    Operator("fall", 1, 6, past=True, expansion=("a", _NOT, "a", (ONCE, 1, 1), _AND)),
)  # fmt: skip


def node(op: int, lo: int = 0, hi: int = 0) -> Row:
    """The row of an operator or a constant."""
    return op, lo, hi, None, 0.0


NAMES = tuple(operator.name for operator in TABLE)
COMPARISONS = (GE, GT, LE, LT)
NEGATED = {op: row.dual for op, row in enumerate(TABLE) if row.dual is not None}

# The same facts as arrays, for compiled code and for whole columns of programs.
ARITY = np.array([row.arity for row in TABLE], np.int64)
IS_ATOM = np.isin(np.arange(len(TABLE)), COMPARISONS)
IS_ABOVE = np.isin(np.arange(len(TABLE)), (GE, GT))
IS_JUNCTION = np.isin(np.arange(len(TABLE)), (AND, OR, IMPLIES))  # a min or a max of two
IS_CONSTANT = np.isin(np.arange(len(TABLE)), (TRUE, FALSE))
IS_TIMED = np.array([row.timed for row in TABLE])
IS_PAST = np.array([row.past for row in TABLE])


def arity(op: int) -> int:
    return TABLE[op].arity


def is_timed(op: int) -> bool:
    return TABLE[op].timed


def refuse(op: int, what: str) -> NoReturn:
    """End a dispatch over operators: `what` has no rule for this one."""
    name = NAMES[op] if 0 <= op < len(TABLE) else f"with number {op}"
    raise FormulaError(f"{what} knows no operator {name}")
