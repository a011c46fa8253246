"""A report as JUnit XML, as GitLab, Jenkins and GitHub's actions read it.

One suite per requirement, one case per log: violated is a failure, open is skipped. What could not be
read stands in a suite of its own, as errors.
"""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree as xml

from ..formula.requirements import Requirement
from . import words
from .report import Report
from .rows import Row
from .verdict import Outcome

# What XML 1.0 cannot hold, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(report: Report) -> bytes:
    """The XML of a report, in UTF-8."""
    root = xml.Element("testsuites", name="rhovec check")
    for requirement in report.requirements:
        rows = report.by_requirement[requirement.key]
        if rows:
            _suite(root, requirement.label, [_case(row, requirement) for row in rows])
    if report.unread:
        cases = []
        for unread in report.unread:
            case = _element("testcase", classname="unreadable", name=unread.file, time="0")
            case.append(_element("error", message=unread.message, type="unreadable"))
            cases.append(case)
        _suite(root, "unreadable files", cases)
    for kind in ("tests", "failures", "errors"):
        root.set(kind, str(sum(int(suite.get(kind, "0")) for suite in root)))
    xml.indent(root)
    out = io.BytesIO()
    xml.ElementTree(root).write(out, "utf-8", xml_declaration=True)
    return out.getvalue() + b"\n"


def _element(tag: str, **attributes: str) -> xml.Element:
    return xml.Element(tag, {key: _clean(value) for key, value in attributes.items()})


def _clean(text: str) -> str:
    return _FORBIDDEN.sub(lambda c: ascii(c[0])[1:-1], text)


def _suite(root: xml.Element, name: str, cases: list[xml.Element]) -> None:
    def containing(tag: str) -> str:
        return str(sum(case.find(tag) is not None for case in cases))

    suite = _element(
        "testsuite", name=name, tests=str(len(cases)), failures=containing("failure"),
        errors=containing("error"), skipped=containing("skipped"), time="0",
    )  # fmt: skip
    suite.extend(cases)
    root.append(suite)


def _case(row: Row, requirement: Requirement) -> xml.Element:
    case = _element("testcase", classname=row.requirement, name=row.trace, time="0")
    if row.verdict == Outcome.VIOLATED:
        failure = _element("failure", message=row.explanation, type="violated")
        failure.text = _clean(
            f"{requirement.label}\n{requirement.text}\n{requirement.source}\n{row.file}: "
            f"{words.when(row.intervals, row.timed)}\n{row.explanation}\n"
        )
        case.append(failure)
    elif row.verdict == Outcome.OPEN:
        case.append(_element("skipped", message=words.waiting(row)))
    if row.depends_on_resampling:
        note = _element("system-out")
        note.text = _clean(words.doubt(row))
        case.append(note)
    return case
