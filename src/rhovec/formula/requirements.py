"""Requirement files: text in which people write formulae with identifiers, titles and definitions.

    # comments, also at the end of a line
    param limit = 120                                   a number, which --set and parameters= override
    fast := speed > limit                               a definition for the lines below
    BRAKE-7 "Pressure after pedal" [safety, brake]:     identifier, title and tags, all optional
        always (pedal > 0.5 -> eventually[0,3] pressure > 20)
    eventually (fast and gear == 3)

A line without a header continues the one above if it is indented further than that statement, or
inside open parentheses. A blank line ends a statement. A CSV file has the columns id, title, tags and
formula, of which only the last must be there; semicolons and tabs may separate them, too.

Reading has two steps: `read_data` splits a file into statements, and `resolve` parses those, because
how to parse (the sampling step, say) may only be known later. Definitions and parameters are bound as
syntax trees, as if in parentheses. All mistakes of all files are found, and raised as one
`RequirementError`.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import ParseError, Problem, RequirementError, RhovecError, RhovecWarning
from ..files import read_file, separator_of
from .core import Formula
from .derived import Derived
from .expressions import Linear, names_of
from .lexer import NAME, RESERVED
from .options import Definition
from .parser import parse, parse_definition

Kind = Literal["requirement", "definition", "parameter"]
Number = int | float | str | Decimal

MAX_WRITTEN_OUT = 5_000_000  # nodes that the definitions of all formulae together may bring in

_COMMENT = re.compile(r"""((?>(?:[^"`#]++|"[^"]*+"|`[^`]*+`|["`])*))#.*""")
_QUOTED = re.compile(r""""[^"]*+"|`[^`]*+`""")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NOT_UTF8 = re.compile(
    "[\udc80-\udcff]"
)  # bytes that are not text, as `surrogateescape` reads them
_HEADER = re.compile(
    r"""\s*+ (?P<name>[\w./-]++) \s*+ (?>(?:"(?P<title>[^"\n]*+)"\s*+)?)
        (?>(?:\[(?P<tags>[^][\n]*+)\]\s*+)?)
        :(?![:=])""",
    re.VERBOSE,
)
_DEFINITION = re.compile(rf"\s*+(?P<name>{NAME})\s*+:=")
_PARAMETER = re.compile(rf"\s*+param\s++(?P<name>{NAME})\s*+=(?!=)")
_STARTS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("parameter", _PARAMETER), ("definition", _DEFINITION), ("requirement", _HEADER)
)  # fmt: skip
_COLON = re.compile(r"[^\[\n]*?:")
_ASSIGNED = re.compile(  # `limit = 130 km/h`
    r"\s*+(?!param\b)[^\W\d]\w*+\s*+=\s*+[-+]?+[\d.]++(?>(?:[eE][-+]?\d++)?)\s*+[\w/]*+\s*+\Z"
)
_SPREADSHEET = re.compile(r"'(?=[=+\-@])")  # put before such a cell by what writes our CSV files


@dataclass(frozen=True)
class Requirement:
    """A formula with what its file says about it."""

    formula: Formula
    id: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    text: str = ""  # the formula as it was written, on one line
    source: str = ""  # "requirements.stl:3", or "formula 2"

    @property
    def key(self) -> str:
        """What reports know it by: its identifier, otherwise the formula as it was written."""
        return self.id or self.text

    @property
    def label(self) -> str:
        """Identifier and title, otherwise the formula as it was written."""
        return heading(self.id, self.title) or self.text or str(self.formula)

    @property
    def place(self) -> str:
        """What messages call it: `BRAKE-7 (requirements.stl:3)`."""
        return f"{self.id} ({self.source})" if self.id else self.source


def heading(identifier: str, title: str) -> str:
    """Identifier and title, as in a file: `BRAKE-7 "Pressure after pedal"`."""
    return " ".join(filter(None, (identifier, title and f'"{title}"')))


class Statement(NamedTuple):
    """A requirement, a definition or a parameter before it is parsed."""

    text: (
        str  # of the formula or number; what stands before it is blanks, so that columns are right
    )
    source: str  # the file, or "formula 2"
    line: int = 0  # where it starts in the file, from 1; 0 without a file
    kind: Kind = "requirement"
    name: str = ""  # the identifier, or the name that is defined
    title: str = ""
    tags: tuple[str, ...] = ()
    cell: bool = False  # of a CSV file, where a position is one in the cell

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source

    @property
    def one_line(self) -> str:
        return " ".join(line.strip() for line in self.text.split("\n")).strip()

    def requirement(self, phi: Formula) -> Requirement:
        return Requirement(phi, self.name, self.title, self.tags, self.one_line, self.place)

    def problem(self, message: str, position: int | None = None) -> Problem:
        """position: in `text`; by default that of its first character that is not blank."""
        text = self.text
        if position is None:
            position = len(text) - len(text.lstrip())
        row = text.count("\n", 0, position)
        column = position - text.rfind("\n", 0, position)
        in_file = bool(self.line) and not self.cell
        place = f"{self.source}:{self.line + row}" if in_file else self.place
        within = f", line {row + 1}" if "\n" in text and not in_file else ""
        return Problem(f"{place}{within}, column {column}", message)


# -- files to statements ---------------------------------------------------------------------------


def read_requirements(
    paths: str | Path | Iterable[str | Path],
    *,
    parameters: Mapping[str, Number] | None = None,
    skip_invalid: bool = False,
    **options: Any,
) -> list[Requirement]:
    """The requirements of a file, or of several; earlier files may define what later ones use.

    parameters: values that replace those of the files, such as {"T": 3} or {"T": "3 s"}.
    skip_invalid: leave out what is wrong, with a RhovecWarning, instead of raising an error.
    options: those of `parse`, such as dt.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    statements = [s for path in several for s in read_data(read_file(path), str(path))]
    found, problems = resolve(statements, parameters, **options)
    if problems:
        error = RequirementError(problems)
        if not skip_invalid:
            raise error
        warnings.warn(f"left out: {error}", RhovecWarning, stacklevel=2)
    require_some(found, problems, ", ".join(map(str, several)))
    return found


def read_data(data: bytes, name: str) -> list[Statement]:
    """The statements in the content of a file called `name`, which if it ends in .csv is a table."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RhovecError(f"{name}:1, column 1: this is UTF-16; save the file as UTF-8")
    text = data.decode("utf-8-sig", "surrogateescape")
    table = name.lower().endswith(".csv")
    found = list(_cells(text, name) if table else _statements(text, name))
    if not found:
        raise RhovecError(f"{name}: there is no formula in it; write one per line")
    return found


def split_header(text: str, source: str, line: int = 0) -> Statement:
    """Split a statement into its header and its formula."""
    for kind, pattern in _STARTS:
        found = pattern.match(text)
        if found:
            parts = found.groupdict()
            blanks = re.sub(r"[^\n]", " ", found[0])
            return Statement(
                blanks + text[found.end() :], source, line, kind, parts["name"],
                _one_line(parts.get("title")), _tags(parts.get("tags")),
            )  # fmt: skip
    return Statement(text, source, line)


def _statements(text: str, name: str) -> Iterator[Statement]:
    """Join continuation lines."""
    lines: list[str] = []  # of the statement that is being read
    start = indent = depth = 0  # its first line, how far that is indented, open parentheses

    for number, whole in enumerate(_LINE_END.split(text), 1):
        line = without_comment(whole).rstrip()
        if not line:
            if lines and not whole.strip():
                yield split_header("\n".join(lines), name, start)
                lines = []
            elif lines:
                lines.append("")
            continue
        padded = line.expandtabs()
        blanks = len(padded) - len(padded.lstrip())
        if lines and ((blanks <= indent and depth <= 0) or _starts_statement(line)):
            yield split_header("\n".join(lines), name, start)
            lines = []
        if not lines:
            start, indent, depth = number, blanks, 0
        lines.append(line)
        bare = _QUOTED.sub("", line) if '"' in line or "`" in line else line
        depth += bare.count("(") - bare.count(")")
    if lines:
        yield split_header("\n".join(lines), name, start)


def without_comment(line: str) -> str:
    comment = _COMMENT.match(line) if "#" in line else None
    return comment[1] if comment else line


def _starts_statement(line: str) -> bool:
    return any(pattern.match(line) for _, pattern in _STARTS)


def _cells(text: str, name: str) -> Iterator[Statement]:
    first_line = _LINE_END.split(text, 1)[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator_of(first_line))
    line = 1
    try:
        columns = [cell.strip().lower() for cell in next(reader, [])]
        if "formula" not in columns:
            raise RhovecError(
                f"{name}:1, column 1: there is no column `formula`; name it in the first line"
            )
        for row in reader:
            first, line = line, reader.line_num
            cells = dict(zip(columns, row, strict=False))
            formula = _SPREADSHEET.sub("", cells.get("formula", ""), 1)
            named = cells.get("id", "").strip()
            if formula.strip() or (named and not named.startswith("#")):
                identifier, title = (
                    _SPREADSHEET.sub("", _one_line(cells.get(key)), 1) for key in ("id", "title")
                )
                yield Statement(
                    formula, name, first + 1, "requirement", identifier, title,
                    _tags(cells.get("tags")), cell=True,
                )  # fmt: skip
    except csv.Error as error:
        raise RhovecError(f"{name}:{reader.line_num}, column 1: {error}; correct the CSV") from None


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _tags(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(_one_line, re.split("[,;]", text or "")))))


# -- statements to requirements --------------------------------------------------------------------


def resolve(
    statements: Sequence[Statement], parameters: Mapping[str, Number] | None = None, **options: Any
) -> tuple[list[Requirement], list[Problem]]:
    """Parse requirements, with the definitions and parameters before them: those, and what is wrong.

    options: those of `parse`.
    """
    given = dict(parameters or {})
    require_parameters(given, statements)
    values: dict[str, Definition] = {
        s.name: f"{s.name} is defined in a later line, {s.place}; move its definition up"
        for s in reversed(statements)
        if s.kind != "requirement"
    }
    seen: dict[tuple[bool, str], Statement] = {}  # (is a requirement, name)
    found: list[Requirement] = []
    problems: list[Problem] = []
    follow: list[Problem] = []  # of statements that use a wrong definition
    broken: set[str] = set()  # what those are told
    written_out = 0
    for statement in statements:
        key = (statement.kind == "requirement", statement.name)
        before = seen.setdefault(key, statement)
        try:
            if statement.name and before is not statement:
                what = "identifier" if statement.kind == "requirement" else "name"
                raise _Wrong(f"the {what} {statement.name} is taken by {before.place}; change one")
            _require_text(statement)
            if statement.kind == "requirement":
                phi = parse(statement.text, definitions=values, **options)
                if values:
                    written_out += max(0, phi.size - len(statement.text))
                    if written_out > MAX_WRITTEN_OUT:
                        raise _Wrong(
                            "with their definitions written out, the formulae have over "
                            f"{MAX_WRITTEN_OUT:,} nodes; use fewer or smaller definitions"
                        )
                found.append(statement.requirement(phi))
            else:
                values[statement.name] = (
                    f"{statement.name} is defined by itself; give the definition another name"
                )
                values[statement.name] = _value(statement, given, values, options)
        except _Wrong as error:
            problems.append(statement.problem(str(error), 0))
        except ParseError as error:
            message = error.message + _hint(statement)
            listed = follow if error.message in broken else problems
            listed.append(statement.problem(message, error.position))
        else:
            continue
        if statement.kind != "requirement" and before is statement:
            message = f"{statement.name} is wrong where it is defined, {statement.place}"
            values[statement.name] = message
            broken.add(message)
    return found, problems + follow


def resolve_sets(
    sources: Sequence[tuple[str, Sequence[Statement]]],
    parameters: Mapping[str, Number],
    **options: Any,
) -> tuple[list[tuple[str, list[Requirement]]], list[Problem]]:
    """`resolve` for files that are compared: (their requirements by file, what is wrong).

    Files may give the same names to different things. What a file does not define itself may be
    defined by one before it.
    """
    require_parameters(parameters, (s for _, statements in sources for s in statements))
    before: dict[str, Statement] = {}
    problems: dict[Problem, None] = {}
    found = []
    for name, own in sources:
        defined = {s.name: s for s in own if s.kind != "requirement"}
        before = {other: s for other, s in before.items() if other not in defined}
        known = [*before.values(), *own]
        declared = {s.name for s in known if s.kind == "parameter"}
        used = {n: value for n, value in parameters.items() if n in declared}
        right, wrong = resolve(known, used, **options)
        problems |= dict.fromkeys(wrong)
        before |= defined
        if right:
            found.append((name, right))
    return found, list(problems)


def require_parameters(given: Iterable[str], statements: Iterable[Statement]) -> None:
    """Refuse names of parameters that no statement declares."""
    declared = {s.name for s in statements if s.kind == "parameter"}
    for name in given:
        if name not in declared:
            known = f"there are {', '.join(sorted(declared))}" if declared else "there is none"
            raise RhovecError(f"no file has the parameter {name}: {known}")


class _Wrong(Exception):
    """A mistake in a statement as a whole."""


def _require_text(statement: Statement) -> None:
    header = (statement.name, statement.title, *statement.tags)
    if any(map(_NOT_UTF8.search, header)):
        raise _Wrong("the header is not UTF-8 text; save the file as UTF-8")
    for word in (statement.name, *statement.tags):
        if not word.isprintable():
            raise _Wrong(f"{word!r} has characters that cannot be printed; leave them out")
    bad = _NOT_UTF8.search(statement.text)
    if bad:
        byte = ord(bad[0]) - 0xDC00
        message = f"byte 0x{byte:02x} is not UTF-8 text; save the file as UTF-8"
        raise ParseError(message, statement.text, bad.start())


def _value(
    statement: Statement,
    given: Mapping[str, Number],
    values: Mapping[str, Definition],
    options: Mapping[str, Any],
) -> Definition:
    """What a definition or a parameter stands for."""
    name = statement.name
    if name in RESERVED:
        raise _Wrong(f"{name} is a word of the language; choose another name")
    if statement.kind == "definition":
        meant = parse_definition(statement.text, definitions=values, **options)
        derived: Derived | None = options.get("derived")
        return (
            meant if derived is None or isinstance(meant, Formula) else derived.rename(meant, name)
        )
    value = _number(statement.text, definitions=values, **options)
    if name not in given:
        return value
    text = str(given[name])
    try:
        return _number(text, **options)
    except ParseError as error:
        raise RhovecError(
            f"parameter {name}={text}, column {error.column}: {error.message}"
        ) from None


def _number(text: str, **options: Any) -> Definition:
    value = parse_definition(text, **options)
    if not isinstance(value, Linear) or names_of(value):
        start = len(text) - len(text.lstrip())
        raise ParseError("a parameter is a number, with or without a unit", text, start)
    return value


def _hint(statement: Statement) -> str:
    """What may have been meant by a colon or an equals sign in a statement that has no header."""
    if statement.name or statement.cell:
        return ""
    if statement.line and _ASSIGNED.match(statement.text):
        return f" (a parameter is `param {statement.text.strip()}`, a definition `name := formula`)"
    if not _COLON.match(statement.text):
        return ""
    if ":=" in statement.text:
        return " (a definition is `name := formula`, with one name)"
    return (
        " (before a colon stands an identifier of letters, digits and . / _ -, then, if you like, "
        'a "title" and [tags])'
    )


def require_some(found: Sequence[object], problems: Sequence[Problem], where: str) -> None:
    """Refuse sources in which there is no requirement, or none is left."""
    if not found:
        left = "all are wrong" if problems else "there is no formula in it, only definitions"
        raise RhovecError(f"{where}: {left}")
