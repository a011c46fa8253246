"""Names and labels that texts mention, found before they are parsed, and flags.

What to read from a log depends on the formulae, and how to parse formulae depends on the logs: which
columns there are, and which texts are values of an enumeration. Looking at tokens alone breaks this
circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from ..errors import ParseError
from . import lexer
from . import operators as ops
from .core import Formula


def names_in(texts: Iterable[str]) -> set[str]:
    """Every name that may be a variable's; words of the language may be among them."""
    found = set()
    for text in texts:
        before = ""
        for kind, token in _tokens(text):
            if kind == "name":
                found.add(token)
            elif kind == "quoted" and not (token[0] == '"' and _compares(before)):
                found.add(lexer.unquoted(token))
            before = token
    return found


def labels_in(texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Labels that variables are compared with, as in `gear == "D"`, coded in order of appearance."""
    found: dict[str, dict[str, int]] = {}
    for text in texts:
        name = comparison = ""
        for kind, token in _tokens(text):
            if kind == "quoted" and token[0] == '"' and name and comparison:
                codes = found.setdefault(name, {})
                codes.setdefault(lexer.unquoted(token), len(codes))
            if _compares(token) and kind == "symbol":
                comparison = token
                continue
            name = token if kind == "name" else lexer.unquoted(token) if kind == "quoted" else ""
            comparison = ""
    return found


def measured_in(text: str) -> set[str]:
    """Names that are compared with a number, on either side of it."""
    found: set[str] = set()
    tokens = list(_tokens(text))
    for (kind, token), (_, sign), (other, behind) in zip(
        tokens, tokens[1:], tokens[2:], strict=False
    ):
        if _compares(sign) or lexer.BINARY.get(sign) in ops.COMPARISONS:
            if kind == "name" and (other == "number" or behind in "+-"):
                found.add(token)
            elif kind == "number" and other == "name":
                found.add(behind)
            elif kind == "quoted" and (other == "number" or behind in "+-"):
                found.add(lexer.unquoted(token))
    return found


def flags_in(formulae: Iterable[Formula]) -> set[str]:
    """Variables that are only ever compared with one half, as a flag alone is."""
    found: dict[str, bool] = {}
    for phi in formulae:
        for op, _, _, channel, threshold in phi.rows():
            if op in ops.COMPARISONS and channel is not None:
                alone = len(channel) == 1 and channel[0][1] == 1 and threshold == 0.5
                for variable, _ in channel:
                    name = ops.name_of(variable)
                    found[name] = found.get(name, True) and alone
    return {name for name, is_flag in found.items() if is_flag}


def _compares(token: str) -> bool:
    return lexer.BINARY.get(token) in (lexer.EQ, lexer.NE)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, token), up to a mistake, which parsing will name."""
    cursor = lexer.Cursor(text)
    with suppress(ParseError):
        while cursor.advance() or cursor.kind != "end":
            yield cursor.kind, cursor.token
