"""Sentences about a report, the same on a terminal, on a page and in JUnit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..errors import counted
from .report import Report
from .rows import Answered, Row, Spans
from .sampled import clock, moment
from .verdict import Outcome

MAX_SPANS = 3  # that a sentence names


def headline(report: Report) -> str:
    """How many requirements and logs there are, and how many pairs of them have each verdict."""
    counts = (f"{len(report.of(outcome)):,} {outcome}" for outcome in Outcome)
    pairs = f"{counted(len(report.requirements), 'requirement')} on {counted(len(report.traces), 'log')}"
    return f"{pairs}: {', '.join(counts)}"


def number(value: float | None, unit: str = "") -> str:
    """A robustness for people; flags and modes have none."""
    if value is None or abs(value) == float("inf"):
        return ""
    return f"{value:.6g} {unit}".rstrip()


def ratio(value: float) -> str:
    """A margin in standard deviations."""
    return "" if abs(value) == float("inf") else f"{value:.2g}"


def when(spans: Spans, timed: bool = True) -> str:
    """`12 s to 14.5 s and 2 more times`."""
    texts = [moment(a, timed) if a == b else f"{clock(a)} to {moment(b, timed)}" for a, b in spans]
    more = len(texts) - MAX_SPANS
    return ", ".join(texts[:MAX_SPANS]) + (f" and {counted(more, 'more time')}" if more > 0 else "")


def slowest(report: Report, answers: Answered) -> str:
    """The time that the slowest answer took."""
    if answers.slowest is None:
        return ""
    if all(row.timed for row in report.rows):
        return f"{answers.slowest:.6g} s"
    return counted(round(answers.slowest), "sample")


def waiting(row: Row) -> str:
    """Why a verdict is open, and what holding the last sample would say."""
    held = "holds" if row.satisfied_held else "is violated"
    return f"{row.explanation}; with unknown samples held it {held}"


def doubt(row: Row) -> str:
    """Why a verdict depends on resampling."""
    where = f" at {when(row.doubtful, row.timed)}" if row.doubtful else ""
    if row.verdict == Outcome.VIOLATED:
        return f"violated on the grid; with all recorded samples it could hold{where}"
    by = number(None if row.doubt is None else -row.doubt, row.unit)
    return (
        f"{row.verdict} on the grid; samples recorded between its points could violate it"
        f"{f' by up to {by}' if by and row.doubt is not None and row.doubt < 0 else ''}{where}"
    )


def resampling(report: Report) -> list[str]:
    """What was made up, left unknown or repaired."""
    lines = []
    step = "" if report.resample is None else f" to {report.resample:g} s"
    for what, total, some in (
        ("made up", "Resampling{step} made up {n} of {all}", [m for m in report.made if m.made_up]),
        ("unknown", "{n} of {all} on the grid are unknown", [m for m in report.made if m.unknown]),
    ):
        if not some:
            continue
        each = Counter[str]()
        for made in some:
            each[made.channel] += made.made_up if what == "made up" else made.unknown
        logs = counted(len({made.trace for made in some}), "log")
        n, of = counted(sum(each.values()), "sample"), f"{report.samples:,}"
        channels = ", ".join(f"{name} {k:,}" for name, k in each.most_common(4))
        rest = f" and {counted(len(each) - 4, 'other channel')}" if len(each) > 4 else ""
        lines.append(f"{total.format(step=step, n=n, all=of)}, in {logs}: {channels}{rest}.")
    if not lines and report.resample is not None:
        lines.append(f"Resampling{step} made up nothing: every bin has a recorded sample.")
    if report.notes:
        lines.append(_several("Times", report.notes))
    return lines


def _several(title: str, texts: Iterable[str]) -> str:
    listed = list(texts)
    more = f"; and {len(listed) - 3:,} more" if len(listed) > 3 else ""
    return f"{title}: {'; '.join(listed[:3])}{more}."
