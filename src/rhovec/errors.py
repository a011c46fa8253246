"""Every error a user can see. All are ValueErrors, and each message says what to change."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

MAX_LISTED = 20  # problems that a message names


class RhovecWarning(UserWarning):
    """Something works, but less well than one may expect."""


class RhovecError(ValueError):
    """Base of all errors that rhovec raises on purpose."""


class ParseError(RhovecError):
    """Text that is not a formula: where it stops making sense, and what was expected there."""

    def __init__(self, message: str, text: str = "", position: int = 0):
        start = text.rfind("\n", 0, position) + 1
        self.message = message
        self.position = position
        self.line = text.count("\n", 0, position) + 1
        self.column = position - start + 1
        end = text.find("\n", position)
        line = text[start : end if end >= 0 else len(text)]
        left = max(0, position - start - 40)
        excerpt = line[left : left + 80]
        pointer = " " * (position - start - left) + "^"
        super().__init__(
            f"line {self.line}, column {self.column}: {message}\n  {excerpt}\n  {pointer}"
        )
        self._arguments = (message, text, position)

    def __reduce__(self) -> tuple[type[ParseError], tuple[str, str, int]]:
        return (ParseError, self._arguments)


class Problem(NamedTuple):
    """What is wrong with one requirement of a file, and where."""

    place: str  # "requirements.stl:3, column 12"
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class RequirementError(RhovecError):
    """Requirements that cannot be read: all of them, each with its place and what to change."""

    def __init__(self, problems: Sequence[Problem]):
        self.problems = tuple(problems)
        super().__init__("\n  ".join(self.lines()))

    def lines(self) -> list[str]:
        """The message: of one problem, or of several with a line before them."""
        shown = [str(problem) for problem in self.problems[:MAX_LISTED]]
        if len(self.problems) == 1:
            return shown
        more = len(self.problems) - len(shown)
        return [
            f"{len(self.problems):,} lines are wrong:",
            *shown,
            *([f"and {more:,} more"] if more else []),
        ]

    def __reduce__(self) -> tuple[type[RequirementError], tuple[tuple[Problem, ...]]]:
        return (RequirementError, (self.problems,))


class FormulaError(RhovecError):
    """A formula that cannot be used as asked (bounds, constants, limits)."""


class SchemaError(RhovecError):
    """A schema that is inconsistent, or that does not cover a formula."""


class TraceError(RhovecError):
    """Traces of the wrong shape or type, not finite, or without a variable that is needed."""


class HorizonError(RhovecError):
    """Under end="strict": the formula looks further than the trace reaches."""


class MissingDependencyError(RhovecError):
    """An optional library is needed; the message holds the install command."""


def counted(number: int, thing: str) -> str:
    """`1 log`, `2 logs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def needed(module: str, what: str, extra: str, instead: str = "") -> Any:
    """Import a module of an optional library that `what` needs, or say which extra installs it.

    instead: what else to do, if it does not take the library at all.
    """
    try:
        return import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise MissingDependencyError(
            f'{what} needs {library}: pip install "rhovec[{extra}]"'
            + (instead and f", or {instead}")
        ) from None


def whole(
    value: Any,
    name: str,
    least: int | None = None,
    what: str = "a whole number",
    error: type[RhovecError] = RhovecError,
) -> int:
    """An int or a NumPy integer as an int, if it is `least` or more; else an error with its name."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise error(f"{name} must be {what}, not {value!r}") from None
    if least is not None and number < least:
        raise error(f"{name} must be {least} or more, not {number}")
    return number


SignalError = TraceError  # its name in the first release
