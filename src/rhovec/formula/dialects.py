"""The languages of rtamt and Breach, in and out: meaning is translated, not spelling, or refused.

    rv.parse("req >= 1 until[0:5] ack >= 1", dialect="rtamt")    phi.to_text(dt=0.1, dialect="breach")

A text is read with the tool's own bindings into rows that still mean what they mean there, and these
are rewritten into rows that mean the same here; writing goes the other way. Both hold wherever the
windows lie inside the trace: beyond its ends every tool has values of its own (docs/dialects.md).

rtamt 0.4.10, discrete time: its until asks for the left operand on [t, t'), its since on (t', t]; ours
ask for it at t' as well.

- In, a > 0: its `p until[a,b] q` is our `p until[a-1,b-1] next q`. With t' = s + 1, the times [t, t')
  are the times [t, s], and t + a <= t' <= t + b says t + a - 1 <= s <= t + b - 1.
- In, a = 0: its `p until[0,b] q` is our `(p or q) until[0,b] q`. A witness t' of its until is one of
  ours: `p or q` is at least p before t', and at least q at t'. Conversely, let ours be r at t', and let
  t* be the first time from t on where q is at least r; it lies in the window, which starts at t and
  holds t'. Before t*, q is less than r, so p is at least r: t* is a witness of its until for r.
- Out: our `p until[a,b] q` is its `p until[a:b] (p and q)`, which asks for p at t' beside q.
- Out, without a right bound, which rtamt has only from 0 on: `always[a,inf] p` is its
  `always[a:a] always p`, and `p until[a,inf] q` is `always[0,a] (p until q)` by lemma 1 of
  docs/semantics.md.

The same holds backwards in time for since, once and historically.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import ClassVar

from ..errors import FormulaError, RhovecError
from . import operators as ops
from .core import Formula
from .dialect_reader import COMPARED, COMPARISONS, NEGATIVE, NUMBER, OPEN, Operand, Parts, Reader
from .expand import expand, rewrite
from .operators import Channel, Row, Step
from .options import exact_step
from .printer import bound_text, layout, number_text

_AND, _OR = (ops.AND, 0, 0), (ops.OR, 0, 0)


# -- rtamt -----------------------------------------------------------------------------------------

_RTAMT_UNITS = {"s": 0, "ms": -3, "us": -6, "ns": -9}
_RTAMT_WORDS = {
    "abs", "sqrt", "exp", "pow", "s", "ms", "us", "ns", "ps", "topic", "import", "input", "output",
    "internal", "const", "real", "float", "long", "complex", "int", "bool", "assertion",
    "specification", "from", "true", "TRUE", "false", "FALSE", "time",
}  # fmt: skip


class _Rtamt(Reader):
    """In rtamt a formula is its robustness: `x`, `x - 1`, `prev x` and `x > 1` are all numbers.

    Its bindings: * before /, + before -, comparisons, prefix operators, until, unless, since, and, or,
    ->, <->, xor; all associate to the left, so that a - b + c is a - (b + c).
    """

    tool = "rtamt"
    token_pattern = re.compile(
        rf"""(?>(?: \s | //[^\n]* | /\*.*?\*/ )*)
             (?: (?P<symbol><->|->|!==|==|>=|<=|[-+*/<>=!&|()\[\]:,;])
               | (?P<name>[A-Za-z_$][\w$./]*) | (?P<number>{NUMBER})
               | (?P<end>\Z) | (?P<unknown>.) )""",
        re.VERBOSE | re.DOTALL | re.ASCII,
    )
    window_pattern = re.compile(
        rf"\s*\[\s*(?P<lo>{NUMBER})\s*(?P<from>[mun]?s)?\s*[:,]"
        rf"\s*(?P<hi>{NUMBER})\s*(?P<to>[mun]?s)?\s*\]"
    )
    window_form = "like [0:5] or [0:500ms], in s, ms, us or ns"
    prefix: ClassVar[dict[str, int | str]] = {
        spelling: op
        for op, spellings in {
            ops.NOT: "not !", ops.ALWAYS: "always G", ops.EVENTUALLY: "eventually F",
            ops.ONCE: "once O", ops.HISTORICALLY: "historically H", ops.RISE: "rise",
            ops.FALL: "fall", ops.NEXT: "next X s_next sX", ops.PREV: "prev Y s_prev sY",
        }.items()
        for spelling in spellings.split()
    }  # fmt: skip
    infix: ClassVar[dict[str, tuple[int, int | str]]] = {
        "*": (26, "*"), "/": (25, "/"), "+": (24, "+"), "-": (23, "-"),
        **COMPARISONS, "!==": (COMPARED, "!="),
        "until": (12, ops.UNTIL), "U": (12, ops.UNTIL),
        "unless": (11, ops.WEAK_UNTIL), "W": (11, ops.WEAK_UNTIL),
        "since": (10, ops.SINCE), "S": (10, ops.SINCE),
        "and": (9, ops.AND), "&": (9, ops.AND), "or": (8, ops.OR), "|": (8, ops.OR),
        "implies": (7, ops.IMPLIES), "->": (7, ops.IMPLIES),
        "iff": (6, "=="), "<->": (6, "=="), "xor": (5, "!="),
    }  # fmt: skip
    functions = ("abs", "sqrt", "exp", "pow")
    right_associative = False

    def __init__(self, text: str, dt: float | str | None, rounding: str | None):
        super().__init__(text, dt, rounding)
        named = re.match(r"\s*[A-Za-z_]\w*\s*=(?!=)", text)
        self.end = named.end() if named else 0  # `out = formula` names the result

    def read_operand(self) -> bool:
        negative = re.compile(rf"\s*-\s*({NUMBER})").match(self.text, self.end)
        if negative is None:  # a minus sign belongs to a number; there is no other unary minus
            return super().read_operand()
        self.operands.append(Operand(negative.start(1), [f"-{negative[1]}"]))
        self.end = negative.end()
        return False

    def read_name(self) -> None:
        name = self.token
        if "/" in name:
            self.fail(f"rtamt reads {name} as one name; put spaces around / to divide")
        if name in _RTAMT_WORDS:
            self.fail(f"{name} is a word of rtamt that cannot stand here; rename the variable")
        self.variable(name)

    def has_window(self) -> bool:
        return re.compile(r"\s*\[").match(self.text, self.end) is not None

    def seconds(self, match: re.Match[str]) -> tuple[str, str]:
        unit, last = match["from"], match["to"]
        if unit and not last:
            self.fail("rtamt needs a unit at the right bound if the left one has one")
        unit, last = unit or last or "s", last or "s"
        lo, hi = Decimal(match["lo"]), Decimal(match["hi"])
        return str(lo.scaleb(_RTAMT_UNITS[unit])), str(hi.scaleb(_RTAMT_UNITS[last]))

    def moved(self, op: int, operand: Operand) -> Parts | None:
        if op not in (ops.NEXT, ops.PREV) or operand.parts is None:
            return None
        by = 1 if op == ops.PREV else -1
        return [p if isinstance(p, str) else (p[0], p[1] + by) for p in operand.parts]

    def calculate(self, op: str, position: int, left: Operand, right: Operand) -> None:
        if op not in ("==", "!="):
            super().calculate(op, position, left, right)
            return
        # == and <-> are -|a - b|, !== and xor are |a - b|.
        if left.parts is None or right.parts is None:
            self.fail(
                "rtamt's <-> and == have the value -|p - q|, xor and !== have |p - q|, which no formula "
                "of rhovec has; write (p -> q) and (q -> p), or its negation",
                position,
            )
        a, b = left.parts, right.parts
        joined, at_most = ("and", "<=") if op == "==" else ("or", "<")
        at_least = at_most.replace("<", ">")
        sides: Parts = [
            "(",
            *a,
            f") {at_most} (",
            *b,
            f") {joined} (",
            *a,
            f") {at_least} (",
            *b,
            ")",
        ]
        left.rows = self.atom(sides, left.position)
        left.parts = ["-" * (op == "=="), "abs((", *a, ") - (", *b, "))"]

    def close(self, op: int | str, opened: int, before: int) -> None:
        if op not in (OPEN, "abs"):
            self.fail(f"{op} is not linear; make it a channel of the traces", opened)
        super().close(op, opened, before)

    def formula(self, operand: Operand) -> list[Row]:
        if operand.rows is None:
            return self.atom(["(", *self.expression(operand), ") > 0"], operand.position)
        return operand.rows


def _rtamt_reading(op: int, lo: int, hi: int) -> tuple[Step, ...] | None:
    """Until, since and unless of rtamt as ours (proofs above)."""
    if op not in (ops.UNTIL, ops.SINCE, ops.WEAK_UNTIL):
        return None
    kind, shift = (ops.SINCE, ops.PREV) if op == ops.SINCE else (ops.UNTIL, ops.NEXT)
    steps: tuple[Step, ...]
    if lo == 0:
        steps = ("a", "b", _OR, "b", (kind, 0, hi))
    else:
        steps = ("a", "b", (shift, 0, 0), (kind, lo - 1, hi - 1))
    return (*steps, "a", (ops.ALWAYS, 0, hi), _OR) if op == ops.WEAK_UNTIL else steps


def _rtamt_writing(op: int, lo: int, hi: int) -> tuple[Step, ...] | None:
    """Our until and since as rtamt's, and windows without a right bound (proofs above)."""
    late = lo > 0 and hi == ops.UNBOUNDED
    if op in (ops.UNTIL, ops.SINCE):
        closed: tuple[Step, ...] = ("a", "a", "b", _AND, (op, 0 if late else lo, hi))
        throughout = ops.HISTORICALLY if op == ops.SINCE else ops.ALWAYS
        return (*closed, (throughout, 0, lo)) if late else closed
    return ("a", (op, 0, hi), (op, lo, lo)) if late else None


_RTAMT_KNOWN = frozenset({
    *ops.COMPARISONS, ops.TRUE, ops.FALSE, ops.NOT, ops.AND, ops.OR, ops.IMPLIES, ops.NEXT, ops.PREV,
    ops.RISE, ops.FALL, ops.ALWAYS, ops.EVENTUALLY, ops.ONCE, ops.HISTORICALLY, ops.UNTIL, ops.SINCE,
})  # fmt: skip


def _rtamt_variable(name: str, steps: int) -> str:
    words = {*_RTAMT_WORDS, *_Rtamt.prefix, *_Rtamt.infix}
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in words:
        raise FormulaError(f"rtamt cannot read a variable with the name {name}; rename it")
    return f"({('prev ' if steps > 0 else 'next ') * abs(steps)}{name})" if steps else name


def _to_rtamt(phi: Formula, dt: float | str | None) -> str:
    step = None if dt is None else exact_step(dt)
    unit = "" if dt is None else "s"

    def label(row: Row) -> str:
        op, lo, hi, channel, threshold = row
        if op in (ops.TRUE, ops.FALSE):
            raise FormulaError("rtamt has no true and false; simplify the formula first")
        if channel is not None:
            return f"{_sum(channel, _rtamt_variable)} {ops.NAMES[op]} {number_text(threshold)}"
        if not ops.is_timed(op) or hi == ops.UNBOUNDED:
            return ops.NAMES[op]
        return f"{ops.NAMES[op]}[{bound_text(lo, step)}{unit}:{bound_text(hi, step)}{unit}]"

    return layout(rewrite(expand(phi, _RTAMT_KNOWN), _rtamt_writing), label)


# -- Breach ----------------------------------------------------------------------------------------


class _Breach(Reader):
    """Breach: `alw_[0, 5] (x[t] > 0)`. Its until is ours.

    Bindings: arithmetic as usual, comparisons, prefix operators, until_[a, b], until, and, =>, or; all
    but arithmetic associate to the right. `or` is the loosest: a or b => c is a or (b => c).
    """

    tool = "Breach"
    token_pattern = re.compile(
        rf"""\s*+(?: (?P<symbol>=>|==|>=|<=|[-+*/<>(),]) | (?P<name>[A-Za-z]\w*)
                   | (?P<number>{NUMBER}) | (?P<end>\Z) | (?P<unknown>.) )""",
        re.VERBOSE | re.DOTALL | re.ASCII,
    )
    window_pattern = re.compile(rf"\[\s*(?P<lo>{NUMBER})\s*[,\s]\s*(?P<hi>{NUMBER}|[iI]nf)\s*\]")
    window_form = "like alw_[0, 5]"
    prefix: ClassVar[dict[str, int | str]] = {
        "-": NEGATIVE, "not": ops.NOT, **{
            spelling + window: op
            for op, spellings in {
                ops.ALWAYS: "alw always", ops.EVENTUALLY: "ev eventually",
                ops.ONCE: "once", ops.HISTORICALLY: "hist",
            }.items()
            for spelling in spellings.split()
            for window in ("", "_")
        },
    }  # fmt: skip
    infix: ClassVar[dict[str, tuple[int, int | str]]] = {
        "*": (25, "*"), "/": (25, "/"), "+": (24, "+"), "-": (24, "-"), **COMPARISONS,
        "until_": (13, ops.UNTIL), "until": (12, ops.UNTIL),
        "and": (9, ops.AND), "=>": (8, ops.IMPLIES), "or": (7, ops.OR),
    }  # fmt: skip
    functions = ("abs", "min", "max")
    right_associative = True
    signal_pattern = re.compile(rf"\[\s*t\s*(?:(?P<sign>[-+])\s*(?P<by>{NUMBER})\s*)?\]")

    def read_name(self) -> None:
        name = self.token
        if name in ("true", "false"):
            rows = [ops.node(ops.TRUE if name == "true" else ops.FALSE)]
            self.operands.append(Operand(self.position, None, rows))
            return
        signal = self.signal_pattern.match(self.text, self.end)
        if signal is None:
            self.fail(f"{name} without [t] is a parameter or a formula of Breach; write it out")
        if _breaks_breach(name):
            self.fail(_BREACH_NAME.format(name))
        steps = self.steps(signal["by"], signal["by"], past=False)[0] if signal["by"] else 0
        self.end = signal.end()
        self.variable(name, steps if signal["sign"] == "-" else -steps)

    def has_window(self) -> bool:
        return self.token.endswith("_")

    def seconds(self, match: re.Match[str]) -> tuple[str, str]:
        return match["lo"], match["hi"].lower()

    def calculate(self, op: str, position: int, left: Operand, right: Operand) -> None:
        if op == "==":
            self.fail(
                "Breach's == has the value 1 where both sides agree to 1e-13; "
                "write abs(a - b) <= tolerance",
                position,
            )
        super().calculate(op, position, left, right)
        if op in COMPARISONS:
            left.parts = None  # the value of a comparison is not a number there


_BREACH_NAME = "Breach cannot read a signal with the name {}; rename it"
_BREACH_KNOWN = frozenset({
    *ops.COMPARISONS, ops.TRUE, ops.FALSE, ops.NOT, ops.AND, ops.OR, ops.IMPLIES,
    ops.ALWAYS, ops.EVENTUALLY, ops.ONCE, ops.HISTORICALLY, ops.UNTIL, ops.SINCE,
})  # fmt: skip
_BREACH_SPELLINGS = {
    ops.ALWAYS: "alw", ops.EVENTUALLY: "ev", ops.HISTORICALLY: "hist", ops.IMPLIES: "=>",
}  # fmt: skip


def _breaks_breach(name: str) -> bool:
    """Breach replaces some words wherever they stand, also inside a name."""
    words = {*_Breach.prefix, *_Breach.infix, *_Breach.functions, "inf", "t"}
    plain = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII)
    return not plain or name in words or re.search("true|false|always|eventually", name) is not None


def _breach_variable(name: str, steps: int) -> str:
    if _breaks_breach(name):
        raise FormulaError(_BREACH_NAME.format(name))
    if steps:
        raise FormulaError(
            f"Breach interpolates {name} at other times than t; record a delayed channel instead"
        )
    return f"{name}[t]"


def _to_breach(phi: Formula, dt: float | str | None) -> str:
    step = None if dt is None else exact_step(dt)

    def label(row: Row) -> str:
        op, lo, hi, channel, threshold = row
        name = _BREACH_SPELLINGS.get(op, ops.NAMES[op])
        if channel is not None:
            return f"{_sum(channel, _breach_variable)} {name} {number_text(threshold)}"
        if op == ops.SINCE:
            raise FormulaError("Breach has no since; only its past operators once and hist")
        # Breach 1.x misreads `hist` without a window.
        if not ops.is_timed(op) or ((lo, hi) == (0, ops.UNBOUNDED) and op != ops.HISTORICALLY):
            return name
        right = "inf" if hi == ops.UNBOUNDED else bound_text(hi, step)
        return f"{name}_[{bound_text(lo, step)}, {right}]"

    return layout(expand(phi, _BREACH_KNOWN), label)


# -- both ------------------------------------------------------------------------------------------


def _sum(channel: Channel, variable: Callable[[str, int], str]) -> str:
    """A channel as a sum, its positive terms first, as it stands in canonical order."""
    text = ""
    for name, c in channel:
        term = variable(ops.name_of(name), ops.lag_of(name))
        if abs(c) != 1:
            term = f"{number_text(abs(c))} * {term}"
        if not text:
            text = term
        elif c > 0:
            text += f" + {term}"
        else:  # rtamt refuses a minus sign before a number as ambiguous
            text += f" - ({term})" if abs(c) != 1 else f" - {term}"
    return text


_READERS = {"rtamt": _Rtamt, "breach": _Breach}
_WRITERS = {"rtamt": _to_rtamt, "breach": _to_breach}
DIALECTS = tuple(_READERS)


def read(
    text: str, dialect: str, dt: float | str | None = None, rounding: str | None = None
) -> Formula:
    """The formula that a text of a dialect means.

    dt: the sampling step in seconds. Time bounds are seconds in both languages; without dt, samples
    are 1 s apart, as rtamt assumes by default.
    """
    phi = _READERS[check(dialect)](text, dt, rounding).run()
    return rewrite(phi, _rtamt_reading) if dialect == "rtamt" else phi


def write(phi: Formula, dialect: str, dt: float | str | None = None) -> str:
    """The formula in a dialect; time bounds in seconds with `dt`, otherwise samples are 1 s apart."""
    return _WRITERS[check(dialect)](phi, dt)


def check(dialect: str) -> str:
    if dialect not in _READERS:
        raise RhovecError(f"there is no dialect {dialect!r}; give one of {', '.join(DIALECTS)}")
    return dialect
