"""Tokens of the language: their patterns, the spellings of operators, and what a name may be."""

from __future__ import annotations

import re
from functools import lru_cache

from ..errors import ParseError
from . import operators as ops
from .operators import Channel

# Possessive quantifiers (*+, ++, ?+) and atomic groups (?>...): a token is as long as it can be, and
# nothing is tried twice. Groups are atomic, not possessive: before Python 3.11.5, a possessive group
# that fails half-way keeps what it has consumed.
_NUMBER = r"(?>(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)"
NAME = r"[^\W\d]\w*+(?>(?:\.[^\W\d]\w*+)*)"
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"  # with line breaks, and half characters
TOKEN = re.compile(
    rf"""\s*+(?: (?P<symbol><->|<=>|->|=>|<=|>=|==|!=|&&|\|\||/\\|\\/
                    |[-+*/<>=!~&|()\[\],:¬∧∨→↔≤≥≠□◇⊤⊥])
               | (?P<name>{NAME}) | (?P<number>{_NUMBER})
               | (?P<end>\Z) | (?P<unknown>.) )""",
    re.VERBOSE | re.DOTALL,
)
QUOTED = re.compile(rf"""`(?>(?:[^`{_CONTROL}]|``)+)`|"(?>(?:[^"{_CONTROL}]|"")+)\"""")
DIGITS = re.compile(r"\d+")
DECIMAL = re.compile(_NUMBER)
_WHOLE_NAME = re.compile(NAME)
_QUOTABLE = re.compile(rf"[^{_CONTROL}]+")

# Spelling -> operator. `==`, arithmetic and most functions are expanded, so they are not
# operators of a Formula.
EQ, NE, ADD, SUB, MUL, DIV, NEG, POS, OPEN, ABS, MIN, MAX, RATE, CHANGED = range(100, 114)
_SPELLINGS = {
    spelling: op for op, row in enumerate(ops.TABLE) for spelling in (row.name, *row.spellings)
}
FUNCTIONS = {
    "abs": ABS, "min": MIN, "max": MAX, "rate": RATE, "changed": CHANGED, "rise": ops.RISE,
    "fall": ops.FALL,
}  # fmt: skip
UNARY = {
    s: op for s, op in _SPELLINGS.items() if ops.arity(op) == 1 and op not in FUNCTIONS.values()
} | {"-": NEG, "+": POS}
BINARY = {s: op for s, op in _SPELLINGS.items() if ops.arity(op) == 2 or op in ops.COMPARISONS} | {
    "==": EQ, "=": EQ, "!=": NE, "≠": NE, "+": ADD, "-": SUB, "*": MUL, "/": DIV,
}  # fmt: skip
CONSTANTS = {s: op for s, op in _SPELLINGS.items() if op in (ops.TRUE, ops.FALSE)}
RESERVED = frozenset({*_SPELLINGS, *UNARY, *BINARY, *FUNCTIONS, "inf"})
BINDING = {op: row.binding for op, row in enumerate(ops.TABLE)} | {
    NEG: 10, POS: 10, MUL: 9, DIV: 9, ADD: 8, SUB: 8, EQ: 7, NE: 7,
}  # fmt: skip

# Words that are also read as names: those of functions if no parenthesis follows, those of binary
# operators where an operand is expected, and those of unary ones if no operand can follow (`F >= 0`,
# `x + F > 1`).
FUNCTION_WORDS = {"rate", "changed", "rise", "fall"}
BINARY_WORDS = {"U", "R", "W", "S", "release", "weak_until", "unless", "since", "since_"}
UNARY_WORDS = {"G", "F", "X"} | {
    s for s, op in UNARY.items() if op < len(ops.TABLE) and ops.IS_PAST[op]
}
_OPERATOR_WORDS = sorted(s for s in {*UNARY, *BINARY} if s.isidentifier() and len(s) > 1)
_LAST_NAME = re.compile(rf"{NAME}\s*\Z")
AFTER_NAMES = {*BINARY, ")", ","} - BINARY_WORDS - {"+", "-"}


def _any_of(words: set[str]) -> str:
    return rf"(?:{'|'.join(sorted(words))})(?!\w)"


_REVOLUTIONS = r"U\s*+/\s*+(?:min|s)(?!\w)"  # per time, in German
# A variable against a number, unless arithmetic, another comparison or a unit follows.
PLAIN_ATOM = re.compile(
    rf"""\s*+({NAME}) \s*+(>=|<=|[<>≤≥]) \s*+([-+]?{_NUMBER})
         (?! \s*+{_REVOLUTIONS})
         (?= \s*+(?: [^-+*/<>=!≤≥≠\w°%] | {_any_of({s for s in BINARY if s.isidentifier()})}
                   | <?-> | <?=> | /\\ | \Z ))""",
    re.VERBOSE | re.DOTALL,
)
PLAIN_WINDOW = re.compile(r"\s*+\[\s*+(\d{1,15}+)\s*+[,:]\s*+(\d{1,15}+|inf)\s*+\]")
BRACKET = re.compile(r"\s*+\[")
# A unit: km/h, m/s^2, degC, %, 1/min. After a number, words of operators are none, but for U in U/min.
_UNIT_WORD = r"(?:[^\W\d]\w*+|[°%]\w*+) (?>(?:\s*+(?:\^|\*\*)\s*+-?\d{1,2}+(?!\d))?)"
_OPERATOR = rf"(?!{_REVOLUTIONS}) {_any_of({s for s in RESERVED if s.isidentifier()} - {'min'})}"


def _unit(word: str) -> str:
    return rf"((?>(?:1\s*+/\s*+)?){word}(?>(?:\s*+[*/·]\s*+{word})*))"


UNIT = re.compile(rf"\s*+{_unit(f'(?!{_OPERATOR}) {_UNIT_WORD}')}", re.VERBOSE)
WHOLE_UNIT = re.compile(_unit(_UNIT_WORD), re.VERBOSE)


@lru_cache(maxsize=4096)
def plain_channel(name: str) -> Channel | None:
    """Channel of a single variable, one object for all its uses; None for a reserved word."""
    return None if name in RESERVED else ((name, 1.0),)


def is_name(text: str) -> bool:
    """Whether a variable may be called so: without line breaks and control characters."""
    return _QUOTABLE.fullmatch(text) is not None


def is_bare(name: str) -> bool:
    """Whether a name is read back without quotes, at least where an operator cannot stand."""
    positional = name in UNARY_WORDS or name in BINARY_WORDS or name in FUNCTION_WORDS
    return _WHOLE_NAME.fullmatch(name) is not None and (name not in RESERVED or positional)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def unquoted(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


class Cursor:
    """A text that is read token by token."""

    def __init__(self, text: str):
        self.text = text
        self.kind = ""  # of the current token
        self.token = ""
        self.position = 0  # where it starts
        self.end = 0  # where it ends

    def fail(self, message: str, position: int | None = None) -> ParseError:
        return ParseError(message, self.text, self.position if position is None else position)

    def advance(self) -> str:
        """Read the next token."""
        match = TOKEN.match(self.text, self.end)
        assert match is not None  # always, by the last two groups
        self.kind = kind = match.lastgroup or ""
        self.token = token = match[kind]
        self.end = end = match.end()
        self.position = end - len(token)
        return token if kind != "unknown" else self.read_quoted()

    def read_quoted(self) -> str:
        """Read a name in quotes, which starts at the current token."""
        match = QUOTED.match(self.text, self.position)
        if match is None:
            raise self.fail(
                f"a name that starts with {self.token} ends with another {self.token} on the same "
                "line, and has no control characters"
                if self.token in '`"'
                else f"unexpected character {self.token!r}"
            )
        self.kind, self.token, self.end = "quoted", match[0], match.end()
        return self.token

    def peek(self) -> tuple[str, str]:
        """(kind, token) of the token after the current one."""
        match = TOKEN.match(self.text, self.end)
        assert match is not None
        kind = str(match.lastgroup)
        return kind, match[kind]

    def found(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        return repr(self.token if len(self.token) <= 40 else f"{self.token[:37]}...")

    def misspelt(self) -> str:
        """A hint, if the current token, or the name before it, is nearly the word of an operator."""
        from difflib import get_close_matches  # which most texts do not need

        first = max(0, self.position - 40)
        before = _LAST_NAME.search(self.text, first, self.position)
        is_whole = before and (before.start() > first or first == 0)
        for word in (self.token[:40], before[0].strip() if before and is_whole else ""):
            close = get_close_matches(word.lower(), _OPERATOR_WORDS, 1, 0.8 if len(word) > 3 else 1)
            if close and word not in RESERVED:
                return f"; is {word} meant to be {close[0]!r}?"
        return ""


def spelling(op: int) -> str:
    """The first spelling of an operator, for messages."""
    return next(repr(s) for table in (BINARY, UNARY, FUNCTIONS) for s in table if table[s] == op)


assert all(name in RESERVED for name in ops.NAMES)
