"""Formula -> text: the canonical long form, and an indented tree. Iterative, so any depth prints.

Canonical form: `always[12,18] ( eventually ( ( x_0 <= 0.5 and x_1 >= -0.2 ) ) )`. A binary formula
brings its own parentheses inside an operator's; an interval [0,inf] is left out; numbers are the
shortest text that reads back as the same float64.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from . import operators as ops
from .core import Formula
from .lexer import RESERVED, UNARY_WORDS, is_bare, quoted
from .operators import Channel, Row, Shifted, Variable
from .options import exact_step


def excerpt(phi: Formula | str, dt: float | None = None) -> str:
    """The formula in quotes for a message, shortened."""
    text = phi if isinstance(phi, str) else to_text(phi, dt)
    return repr(text if len(text) <= 80 else text[:77] + "...")


def to_text(phi: Formula, dt: float | str | None = None) -> str:
    """Canonical text of a formula; bounds in steps, or in seconds with `dt`."""
    step = None if dt is None else exact_step(dt)
    return layout(phi, lambda row: node_text(row, step))


def layout(phi: Formula, label_of: Callable[[Row], str]) -> str:
    """The text of a formula with all parentheses, given the text of each node without its operands."""
    rows = phi.rows()
    sizes = phi.shape()[0].tolist()
    parts: list[str] = []
    todo: list[int | str] = [len(rows) - 1]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        label = label_of(rows[item])
        operands = ops.arity(rows[item][0])
        if operands == 0:
            parts.append(label)
        elif operands == 1:
            parts.append(f"{label} ( ")
            todo += [" )", item - 1]
        else:
            parts.append("( ")
            todo += [" )", item - 1, f" {label} ", item - 1 - sizes[item - 1]]
    return "".join(parts)


def to_tree(phi: Formula) -> str:
    """One node a line, operands indented under their operator."""
    rows = phi.rows()
    sizes = phi.shape()[0].tolist()
    lines: list[str] = []
    todo = [(len(rows) - 1, "", "")]  # node, indentation of its own line, of its children
    while todo:
        node, own, below = todo.pop()
        lines.append(own + node_text(rows[node]))
        operands = ops.arity(rows[node][0])
        if operands >= 1:
            todo.append((node - 1, below + "└─ ", below + "   "))
        if operands == 2:
            todo.append((node - 1 - sizes[node - 1], below + "├─ ", below + "│  "))
    return "\n".join(lines)


def node_text(row: Row, step: Fraction | None = None) -> str:
    """The text of one node without its operands."""
    op, lo, hi, channel, threshold = row
    if channel is not None:
        return f"{channel_text(channel)} {ops.NAMES[op]} {number_text(threshold)}"
    if not ops.is_timed(op) or (lo == 0 and hi == ops.UNBOUNDED):
        return ops.NAMES[op]
    right = "inf" if hi == ops.UNBOUNDED else bound_text(hi, step)
    return f"{ops.NAMES[op]}[{bound_text(lo, step)},{right}]"


def bound_text(steps: int, step: Fraction | None) -> str:
    if step is None:
        return str(steps)
    seconds = steps * step
    # Exact decimals end when the denominator has no prime factor but 2 and 5, as any dt here has.
    digits = 0
    while (seconds * 10**digits).denominator != 1:
        digits += 1
    scaled = (seconds * 10**digits).numerator
    whole, rest = divmod(scaled, 10**digits)
    return f"{whole}.{rest:0{digits}d}" if digits else str(whole)


def number_text(value: float) -> str:
    """Shortest text that reads back as the same number; whole numbers without a point."""
    text = repr(float(value))
    return text.removesuffix(".0")


@lru_cache(maxsize=4096)
def channel_text(channel: Channel) -> str:
    """`y5 - y4`, `2 * x + y`, `x - prev x`."""
    parts: list[str] = []
    for variable, coefficient in channel:
        size = abs(coefficient)
        # At the start, `F + x` would be read as the operator F, and `prev x > 1` as prev (x > 1).
        leads = not parts and coefficient == 1
        name = variable_text(variable, leads and len(channel) > 1)
        if leads and isinstance(variable, Shifted):
            name = f"({name})"
        term = name if size == 1 else f"{number_text(size)} * {name}"
        if not parts:
            parts.append(term if coefficient > 0 else f"-{term}")
        else:
            parts.append(f"{'+' if coefficient > 0 else '-'} {term}")
    return " ".join(parts)


def variable_text(variable: Variable, leads: bool) -> str:
    """A variable in an expression; `leads`: at its start, with arithmetic after it."""
    if isinstance(variable, Shifted):
        name, steps = variable
        shifts = ("prev " if steps > 0 else "next ") * abs(steps)
        return shifts + (quoted(name) if name in RESERVED or not is_bare(name) else name)
    operator = leads and variable in UNARY_WORDS
    return quoted(variable) if operator or not is_bare(variable) else variable
