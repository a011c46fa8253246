"""`text`: the paper's 35 symbols over the canonical text, several formulae to a row.

The text is wrapped as `/s formula s`, a space is written @, and the longest symbol wins from left to
right. The symbols are written straight from the postfix programs, last one first: in that order every
piece is known when its turn comes, down to the last digit of a number. Numbers have no exponent, so
that 1e-05 is 0.00001; all else is `str(phi)`, and the tokens read back as the same formula.

A formula may have 512 tokens with its wrapping, as in the paper. The token in front that collects it
(`cls`, a 36th symbol of our own) does not count to them. Rows are packed as in `tree`, and large
batches are written by compiled code as there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from operator import index

import numpy as np

from ..errors import FormulaError
from ..formula import Formula, parse
from ..formula import operators as ops
from ..formula.printer import number_text
from ..formula.programs import Programs
from ..formula.reader import FormulaLike, as_formulae
from ..formula.shape import COMPILED_FROM, plain_or_compiled
from .tree import first_fit, variable_numbers

SYMBOLS = (
    "unk", "pad", "/s", "s", "(", ")", "always", "eventually", "until", "and", "or", "not",
    ">=", "<=", ">", "<", "=", "x_", "[", "]", ",", "inf", "-", ".",
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "@",
)  # fmt: skip
CLS = len(SYMBOLS)
MAX_TOKENS = 512  # of a formula, wrapped, without cls
PADDING, BEGIN, END = 1, 2, 3
_OPEN, _CLOSE, _X, _LEFT, _RIGHT, _COMMA, _INF, _MINUS, _POINT, _ZERO, _SPACE = (
    SYMBOLS.index(symbol) for symbol in ("(", ")", "x_", "[", "]", ",", "inf", "-", ".", "0", "@")
)
_OPERATORS = np.array([SYMBOLS.index(name) if name in SYMBOLS else -1 for name in ops.NAMES])
_UNIT = 10_000  # numbers of at most four decimals, all that a corpus has, need no Python
_NODE = 48  # no node has more symbols: two bounds of 16 digits each, and 10 others


@dataclass(frozen=True)
class TextTokens:
    """B formulae packed into R rows of W tokens, each `cls /s ... s`."""

    symbol: np.ndarray  # (R, W) int16: index of SYMBOLS, or CLS
    place: np.ndarray  # (R, W) int16: position in the token's own formula; cls stands at 0
    segment: np.ndarray  # (R, W) int16: which formula of its row, from the left; -1 for padding
    cls: np.ndarray  # (B,) int32: index of each formula's cls token in the R * W tokens
    length: np.ndarray  # (B,) int32: tokens of each formula, wrapped, without cls

    @property
    def bos(self) -> np.ndarray:
        """(B,) int32: index of each formula's first token, `/s`, in the R * W tokens."""
        return self.cls + np.int32(1)


def text_tokens(
    formulae: Programs | FormulaLike | Iterable[FormulaLike],
    rows: int | None = None,
    width: int = 520,
) -> TextTokens:
    """Tokens of a batch of formulae of at most MAX_TOKENS tokens; rows and width fix R and W."""
    if not isinstance(formulae, Programs):
        formulae = Programs.pack(as_formulae(formulae)[0])
    symbols, length = _symbols(formulae)
    b = int(length.argmax())
    if length[b] > MAX_TOKENS:
        raise FormulaError(
            f"formula {b} has {length[b]} tokens as text, more than {MAX_TOKENS}; shorten it "
            "(rv.simplify may do), or use the tree tokens, which count nodes"
        )
    if length[b] + 1 > width:
        raise FormulaError(
            f"formula {b} has {length[b]} tokens as text and one for cls, more than a row of "
            f"{width}; use wider rows"
        )
    compiled = len(formulae.code) >= COMPILED_FROM
    cls, used = plain_or_compiled(first_fit, compiled)(length + 1, width)
    if rows is None:
        rows = used
    elif used > rows:
        raise FormulaError(f"the batch needs {used} rows of {width} tokens, more than {rows}")
    symbol, place, segment = plain_or_compiled(_fill, compiled)(
        symbols, length, cls, np.argsort(cls), rows, width
    )
    return TextTokens(symbol, place, segment, cls.astype(np.int32), length.astype(np.int32))


def encode(formula: FormulaLike) -> list[int]:
    """The wrapped tokens of one formula, without cls; text is parsed, so any spelling will do.

    >>> [SYMBOLS[i] for i in encode("x_0 > -2")]
    ['/s', '@', 'x_', '0', '@', '>', '@', '-', '2', '@', 's']
    """
    tokens = text_tokens([formula])
    ids: list[int] = tokens.symbol[0, 1 : 1 + tokens.length[0]].tolist()
    return ids


def decode(ids: Iterable[int]) -> str:
    """The text of one formula's wrapped tokens, with or without cls in front."""
    items = [index(i) for i in ids]
    if items[:1] == [CLS]:
        del items[0]
    body = items[2:-2]
    if items != [BEGIN, _SPACE, *body, _SPACE, END]:
        raise FormulaError("the tokens of a formula must be wrapped: `/s`, `@`, ..., `@`, `s`")
    for at, i in enumerate(body, start=2):
        if not END < i < CLS:
            name = SYMBOLS[i] if 0 <= i < CLS else f"number {i}"
            raise FormulaError(f"token {at} is not a symbol of a formula but {name}")
    return "".join(SYMBOLS[i] for i in body).replace("@", " ")


def from_tokens(ids: Iterable[int]) -> Formula:
    """The formula of its wrapped tokens; a ParseError where they spell none."""
    return parse(decode(ids))


def _symbols(programs: Programs) -> tuple[np.ndarray, np.ndarray]:
    """(the wrapped symbols of all formulae, one after the other, int16; (B,) int64: how many)."""
    _check_operators(programs)
    # A single formula's code is frozen, which compiled code would take for another type.
    code = np.require(programs.code, requirements="W")
    write = plain_or_compiled(_write, len(code) >= COMPILED_FROM)
    symbols, starts = write(
        code, programs.offsets, variable_numbers(programs), *_numbers(programs.thresholds)
    )
    return symbols, np.diff(starts)


def _check_operators(programs: Programs) -> None:
    """The vocabulary lacks some operators of the language."""
    outside = _OPERATORS[programs.code[:, 0]] < 0
    if not outside.any():
        return
    row = int(outside.argmax())
    op = int(programs.code[row, 0])
    b = int(np.searchsorted(programs.offsets, row, side="right")) - 1
    raise FormulaError(
        f"formula {b} contains {ops.NAMES[op]}, which the text tokens have no symbol for; rewrite it "
        "by rhovec.formula.fragment.in_fragment, which keeps the robustness"
    )


def _numbers(thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds (rows,) in units, (rows,) int64, and the symbols of those that are not.

    The second array holds these symbols one after the other, int16; row i has those from ends[i] to
    ends[i + 1], and none where its units tell all. Below 16 digits, two decimals are never the same
    float64, so the decimal that units give is the shortest one, which is what a formula prints.
    """
    with np.errstate(over="ignore"):
        units = np.rint(thresholds * _UNIT)
    short = (np.abs(units) < 1e15) & (units / _UNIT == thresholds)
    ends = np.zeros(len(thresholds) + 1, np.int64)
    spelled: list[int] = []
    for row in np.flatnonzero(~short).tolist():
        text = f"{Decimal(number_text(thresholds[row])):f}"
        spelled += map(SYMBOLS.index, text)
        ends[row + 1] = len(text)
    return np.where(short, units, 0).astype(np.int64), np.array(spelled, np.int16), ends.cumsum()


def _write(code, offsets, variables, units, spelled, ends):  # type: ignore[no-untyped-def]
    """(symbols, where each formula starts among them, (B + 1,)), written from the end."""
    count = len(offsets) - 1
    room = _NODE * len(code) + 4 * count + len(spelled)  # pages that stay unused cost nothing
    out = np.empty(room, np.int16)
    starts = np.empty(count + 1, np.int64)
    pending = np.empty(len(code), np.int64)  # operators whose operands are not all written
    at = room  # what is written starts here
    for b in range(count - 1, -1, -1):
        starts[b + 1] = at
        at -= 2
        out[at], out[at + 1] = _SPACE, END
        depth = 0
        for i in range(offsets[b + 1] - 1, offsets[b] - 1, -1):
            if not ops.IS_ATOM[code[i, 0]]:
                at -= 2
                out[at], out[at + 1] = _SPACE, _CLOSE
                pending[depth] = i
                depth += 1
                continue
            # An atom: its number, comparison and variable.
            if ends[i + 1] > ends[i]:
                at -= ends[i + 1] - ends[i]
                for k in range(ends[i], ends[i + 1]):
                    out[at + k - ends[i]] = spelled[k]
            else:
                rest, power, decimals = abs(units[i]), 1, False
                while rest > 0 or power <= _UNIT:
                    if power == _UNIT and decimals:
                        at -= 1
                        out[at] = _POINT
                    decimals = decimals or rest % 10 != 0
                    if decimals or power >= _UNIT:
                        at -= 1
                        out[at] = _ZERO + rest % 10
                    rest, power = rest // 10, power * 10
                if units[i] < 0:
                    at -= 1
                    out[at] = _MINUS
            at -= 3
            out[at], out[at + 1], out[at + 2] = _SPACE, _OPERATORS[code[i, 0]], _SPACE
            variable = variables[code[i, 3]]
            while variable >= 0:
                at -= 1
                out[at] = _ZERO + variable % 10
                variable = variable // 10 if variable >= 10 else -1
            at -= 1
            out[at] = _X
            # An operand is complete: what stands before it, up to an operator that lacks its left one.
            while depth > 0:
                j = pending[depth - 1]
                if j < 0:
                    at -= 2
                    out[at], out[at + 1] = _OPEN, _SPACE
                    depth -= 1
                    continue
                op, lo, hi = code[j, 0], code[j, 1], code[j, 2]
                at -= 1
                out[at] = _SPACE
                if ops.ARITY[op] < 2:
                    at -= 2
                    out[at], out[at + 1] = _SPACE, _OPEN
                timed = op == ops.ALWAYS or op == ops.EVENTUALLY or op == ops.UNTIL
                if timed and (lo != 0 or hi != ops.UNBOUNDED):
                    at -= 1
                    out[at] = _RIGHT
                    for bound, before in ((hi, _COMMA), (lo, _LEFT)):
                        if bound == ops.UNBOUNDED:
                            at -= 1
                            out[at] = _INF
                        while bound >= 0:
                            at -= 1
                            out[at] = _ZERO + bound % 10
                            bound = bound // 10 if bound >= 10 else -1
                        at -= 1
                        out[at] = before
                at -= 1
                out[at] = _OPERATORS[op]
                if ops.ARITY[op] < 2:
                    depth -= 1
                else:
                    at -= 1
                    out[at] = _SPACE
                    pending[depth - 1] = -1
                    break
        at -= 2
        out[at], out[at + 1] = BEGIN, _SPACE
    starts[0] = at
    return out[at:], starts - at


def _fill(symbols, length, cls, order, rows, width):  # type: ignore[no-untyped-def]
    """(symbol, place, segment), each (rows, width); order: the formulae from the first row on."""
    symbol = np.full((rows, width), PADDING, np.int16)
    place = np.zeros((rows, width), np.int16)
    segment = np.full((rows, width), -1, np.int16)
    starts = np.cumsum(length) - length
    row, number = -1, 0
    for b in order:
        number = number + 1 if cls[b] // width == row else 0
        row, first, n = cls[b] // width, cls[b] % width, length[b]
        symbol[row, first] = CLS
        symbol[row, first + 1 : first + 1 + n] = symbols[starts[b] : starts[b] + n]
        place[row, first : first + 1 + n] = np.arange(n + 1)
        segment[row, first : first + 1 + n] = number
    return symbol, place, segment
