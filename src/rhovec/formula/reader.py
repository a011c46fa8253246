"""The one door for formulae: `as_programs` takes formulae and texts, one or many, packed or not.

A long list of texts is read by compiled code straight into Programs. That code knows a regular core of
the language: x_i against a decimal number, the six operators of the fragment with their common
spellings, windows of whole steps, parentheses. It never refuses a text: whatever else it meets,
mistakes included, it leaves to the parser, so that formulae and errors are the parser's. On the core it
is ten to fifty times as fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from ..errors import FormulaError
from . import operators as ops
from .core import Formula
from .parser import parse
from .programs import Programs
from .shape import compiled


@runtime_checkable
class HasFormula(Protocol):
    """A requirement, of a file or of the library."""

    @property
    def formula(self) -> Formula: ...


FormulaLike = Formula | str | HasFormula
Formulae = FormulaLike | Iterable[FormulaLike] | Programs

COMPILED_FROM = 64  # texts: fewer are not worth loading a compiler for
_CORE = (ops.NOT, ops.ALWAYS, ops.EVENTUALLY, ops.AND, ops.OR, ops.UNTIL)
_BINDING = np.array([row.binding if op in _CORE else 0 for op, row in enumerate(ops.TABLE)])
_OPEN = -1  # on the operator stack
MAX_CHANNELS = 10_000  # the compiled reader takes x_0 ... x_9999


def as_programs(formulae: Formulae) -> tuple[Programs, bool]:
    """(the formulae packed, whether a single one was given). Text is parsed."""
    if isinstance(formulae, Programs):
        if not len(formulae):
            raise FormulaError("no formula given: the list is empty")
        return formulae, False
    items, single = _items(formulae)
    texts = [i for i, item in enumerate(items) if isinstance(item, str)]
    if len(texts) < COMPILED_FROM:
        return Programs.pack([parse(i) if isinstance(i, str) else i for i in items]), single
    read = parse_programs([items[i] for i in texts])  # type: ignore[misc]
    if len(texts) == len(items):
        return read, False
    others = [i for i, item in enumerate(items) if not isinstance(item, str)]
    both = Programs.join([read, Programs.pack([items[i] for i in others])])  # type: ignore[misc]
    return both.select(np.argsort([*texts, *others])), False


def as_formulae(formulae: Formulae) -> tuple[list[Formula], bool]:
    """(a list of formulae, whether a single one was given). Text is parsed."""
    if isinstance(formulae, Programs):
        return formulae.unpack(), False
    items, single = _items(formulae)
    if sum(isinstance(item, str) for item in items) >= COMPILED_FROM:
        return as_programs(items)[0].unpack(), single
    return [parse(item) if isinstance(item, str) else item for item in items], single


def is_single(formulae: object) -> bool:
    """Whether this is one formula, not a list of them."""
    return isinstance(formulae, Formula | str | HasFormula)


def without_details(item: FormulaLike) -> Formula | str:
    """The formula of a requirement; others as they are."""
    if isinstance(item, Formula | str):  # first, because the test of a protocol is slow
        return item
    return item.formula if isinstance(item, HasFormula) else item


def _items(formulae: FormulaLike | Iterable[FormulaLike]) -> tuple[list[Formula | str], bool]:
    single = is_single(formulae)
    try:
        items: list[FormulaLike] = [formulae] if single else list(formulae)  # type: ignore[list-item, arg-type]
    except TypeError:
        raise FormulaError(
            f"expected a formula, its text or a list of them, not {type(formulae).__name__}"
        ) from None
    if not items:
        raise FormulaError("no formula given: the list is empty")
    read: list[Formula | str] = []
    for i, item in enumerate(items):
        found = without_details(item)
        if not isinstance(found, Formula | str):
            raise FormulaError(f"item {i} is a {type(item).__name__}, not a formula or its text")
        read.append(found)
    return read, single


def parse_programs(texts: Sequence[str]) -> Programs:
    """The formulae of texts, packed."""
    core = read_core(texts)
    left = np.flatnonzero(np.diff(core.offsets) == 0)
    if not len(left):
        return core
    return core.replace(left, Programs.pack([parse(texts[i]) for i in left.tolist()]))


def read_core(texts: Sequence[str]) -> Programs:
    """The texts that the compiled code reads; a formula without rows stands for each other text."""
    plain = [text if text.isascii() else "" for text in texts]
    data = np.frombuffer("".join(plain).encode(), np.uint8)
    ends = np.cumsum([len(text) for text in plain])
    code, thresholds, sizes, numbers = compiled(_read)(data, ends, _BINDING)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Programs(code, thresholds, offsets, tuple(((f"x_{i}", 1.0),) for i in numbers.tolist()))


def _word(text: str) -> int:
    """Up to ten letters as one number."""
    out = 0
    for letter in text:
        out = 59 * out + ord(letter) - 64
    return out


_ALWAYS, _G, _EVENTUALLY, _F = (_word(w) for w in ("always", "G", "eventually", "F"))
_NOT, _AND, _OR, _UNTIL, _U, _X = (_word(w) for w in ("not", "and", "or", "until", "U", "x"))
_I, _N, _F_ = map(ord, "inf")
_TAB, _LINE, _RETURN, _SPACE, _BANG, _AMPERSAND, _CLOSED, _COMMA, _MINUS, _POINT, _LESS, _EQUAL = (
    map(ord, "\t\n\r !&),-.<=")
)
_GREATER, _LEFT, _RIGHT, _UNDERSCORE, _BAR, _OPENED = map(ord, ">[]_|(")


def _read(data, ends, binding):  # type: ignore[no-untyped-def]
    """(code, thresholds, sizes, channels); size 0 for a text that the parser must read.

    channels: the i of each x_i, in order of first use.
    """
    room = len(data) + 1  # a node takes a character or more (`!`, `G`)
    code = np.zeros((room, 4), np.int64)
    thresholds = np.zeros(room)
    sizes = np.zeros(len(ends), np.int64)
    stack = np.empty((len(data) + 1, 3), np.int64)  # operator, lo, hi
    place = np.full(MAX_CHANNELS, -1, np.int64)  # of x_i among the channels
    channels = np.empty(MAX_CHANNELS, np.int64)
    n, at, used = 0, 0, 0
    for b in range(len(ends)):
        first, end, top, used_before = n, ends[b], 0, used
        operand = True  # what comes next
        good = False
        while True:
            while at < end and (
                data[at] == _SPACE or data[at] == _LINE or data[at] == _TAB or data[at] == _RETURN
            ):
                at += 1
            sign = data[at] if at < end else 0
            word, letters = 0, 0
            while at < end and letters <= 10 and (65 <= data[at] <= 90 or 97 <= data[at] <= 122):
                word = 59 * word + data[at] - 64 if letters < 10 else 0
                letters += 1
                at += 1
            if letters > 0:  # a name goes on: only x_ may
                goes_on = at < end and (
                    data[at] == _UNDERSCORE or data[at] == _POINT or 48 <= data[at] <= 57
                )
                if goes_on and not (word == _X and data[at] == _UNDERSCORE):
                    break

            if operand and word == _X:  # an atom
                if at == end or data[at] != _UNDERSCORE:
                    break
                at += 1
                channel, digits = 0, 0
                while at < end and digits < 5 and 48 <= data[at] <= 57:
                    channel = 10 * channel + data[at] - 48
                    digits += 1
                    at += 1
                if digits == 0 or digits > 4 or (digits > 1 and data[at - digits] == 48):
                    break
                while at < end and data[at] == _SPACE:
                    at += 1
                greater = at < end and data[at] == _GREATER
                if not greater and not (at < end and data[at] == _LESS):
                    break
                at += 1
                equal = at < end and data[at] == _EQUAL
                at += equal
                while at < end and data[at] == _SPACE:
                    at += 1
                negative = at < end and data[at] == _MINUS
                at += negative
                mantissa, digits, decimals, point = 0, 0, 0, False
                while at < end and digits < 16:
                    if 48 <= data[at] <= 57:
                        mantissa = 10 * mantissa + data[at] - 48
                        digits += 1
                        decimals += point
                    elif data[at] == _POINT and not point:
                        point = True
                    else:
                        break
                    at += 1
                after = at
                while after < end and data[after] == _SPACE:
                    after += 1
                # Arithmetic, another comparison, an exponent or a unit is the parser's.
                follows = data[after] if after < end else _CLOSED
                closes = follows == _CLOSED or follows == _AMPERSAND or follows == _BAR
                word_follows = after > at and (65 <= follows <= 90 or 97 <= follows <= 122)
                if digits == 0 or digits > 15 or not (closes or word_follows):
                    break
                # Both are exact in float64, so the quotient is the nearest float64.
                value = mantissa / 10.0**decimals
                thresholds[n] = -value if negative and mantissa > 0 else value
                if greater:
                    code[n, 0] = ops.GE if equal else ops.GT
                else:
                    code[n, 0] = ops.LE if equal else ops.LT
                if place[channel] < 0:
                    place[channel], channels[used] = used, channel
                    used += 1
                code[n, 3] = place[channel]
                n += 1
                operand = False
                continue

            op = -1
            if operand:
                if letters == 0 and sign == _OPENED:
                    stack[top, 0] = _OPEN
                    top += 1
                    at += 1
                    continue
                if word == _ALWAYS or word == _G:
                    op = ops.ALWAYS
                elif word == _EVENTUALLY or word == _F:
                    op = ops.EVENTUALLY
                elif word == _NOT:
                    op = ops.NOT
                elif letters == 0 and sign == _BANG and at + 1 < end and data[at + 1] != _EQUAL:
                    op = ops.NOT
                    at += 1
                if op < 0:
                    break
            else:
                closing = letters == 0 and (at == end or sign == _CLOSED)
                if word == _AND:
                    op = ops.AND
                elif word == _OR:
                    op = ops.OR
                elif word == _UNTIL or word == _U:
                    op = ops.UNTIL
                elif letters == 0 and (sign == _AMPERSAND or sign == _BAR):
                    op = ops.AND if sign == _AMPERSAND else ops.OR
                    at += 1
                    if at < end and data[at] == sign:
                        at += 1
                if op < 0 and not closing:
                    break
                tightest = 0 if closing else binding[op]
                while top > 0 and stack[top - 1, 0] != _OPEN:
                    other = binding[stack[top - 1, 0]]
                    if other < tightest or (other == tightest and op == ops.UNTIL):
                        break
                    top -= 1
                    code[n, 0], code[n, 1], code[n, 2] = stack[top, 0], stack[top, 1], stack[top, 2]
                    code[n, 3] = -1
                    n += 1
                if closing:
                    if at == end:
                        good = top == 0
                        break
                    if top == 0:
                        break
                    top -= 1
                    at += 1
                    continue

            lo, hi = 0, 0
            if op == ops.ALWAYS or op == ops.EVENTUALLY or op == ops.UNTIL:
                hi = ops.UNBOUNDED
                look = at
                while look < end and data[look] == _SPACE:
                    look += 1
                if look < end and data[look] == _LEFT:
                    at = look + 1
                    digits = 0
                    while at < end and digits < 10 and 48 <= data[at] <= 57:
                        lo = 10 * lo + data[at] - 48
                        digits += 1
                        at += 1
                    if digits == 0 or digits > 9 or at == end or data[at] != _COMMA:
                        break
                    at += 1
                    if at < end and data[at] == _SPACE:
                        at += 1
                    if (
                        at + 3 < end
                        and data[at] == _I
                        and data[at + 1] == _N
                        and data[at + 2] == _F_
                    ):
                        at += 3
                    else:
                        hi, digits = 0, 0
                        while at < end and digits < 10 and 48 <= data[at] <= 57:
                            hi = 10 * hi + data[at] - 48
                            digits += 1
                            at += 1
                        if digits == 0 or digits > 9 or hi < lo:
                            break
                    if at == end or data[at] != _RIGHT:
                        break
                    at += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = op, lo, hi
            top += 1
            operand = True
        if not good:
            thresholds[first:n] = 0
            code[first:n] = 0
            n = first
            while used > used_before:
                used -= 1
                place[channels[used]] = -1
        at = end
        sizes[b] = n - first
    return code[:n].copy(), thresholds[:n].copy(), sizes, channels[:used].copy()
