"""The page of `rhovec check`, in Chromium and by its markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rhovec.check import Report, check_logs
from rhovec.check.page import MAX_FIGURES, page
from rhovec.check.rows import BINS, Curve
from rhovec.formula.requirements import read_data

from .browser.check import check
from .planted import DT, MAX_GAP, REQUIREMENTS, make_logs

MAX_BYTES = 5_000_000


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Violations, open verdicts, spikes, gaps, a requirement that is never triggered, a bad file."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "r.stl").write_text(
        REQUIREMENTS
        + 'IDLE "Never asked": always (torque > 1000 -> eventually[0,1] speed < 5)\n'
        + "PARKED: always (brake -> not brake)\n"
    )
    (folder / "logs").mkdir()
    make_logs(folder / "logs", 16, rows=100)
    (folder / "logs" / "zz.csv").write_text("time,speed\n0,fast\n")
    return check_logs(folder / "r.stl", folder / "logs", resample=DT, max_gap=MAX_GAP, figures=True)


def test_the_page_is_in_order_in_chromium(report: Report, tmp_path: Path) -> None:
    """390 and 1280 px wide, light and dark: no error, no request, no overflow, readable."""
    path = tmp_path / "report.html"
    path.write_text(page(report))
    results = check([path])
    assert len(results) == 4
    assert {view: found for view, found in results.items() if found} == {}


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Elements()
    parser.feed(text)
    return parser.found


def test_links_lead_somewhere_and_pictures_have_a_text(report: Report) -> None:
    text = page(report)
    found = elements(text)
    identifiers = [a["id"] for _, a in found if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    targets = {(a["href"] or "")[1:] for tag, a in found if tag == "a"}
    assert targets <= set(identifiers)
    svgs = [a for tag, a in found if tag == "svg"]
    assert len(svgs) == len(report.of("violated")) > 8
    assert all(a["role"] == "img" and a["aria-label"] for a in svgs)
    assert all(a.get("aria-label") or a.get("href", "")[:2] != "#v" or "class" not in a
               for tag, a in found if tag == "a")  # fmt: skip
    assert not any(tag in ("script", "link", "img", "iframe") for tag, _ in found)
    assert "http" not in re.sub(r"<svg[^>]*>", "", text)


def test_every_violation_and_open_verdict_is_on_the_page(report: Report) -> None:
    text = page(report)
    squares = [a for tag, a in elements(text) if tag in ("a", "i") and "title" in a]
    assert len(squares) == len(report.rows)
    for row in report.rows:
        if row.verdict in ("violated", "open"):
            assert escape(row.explanation) in text.replace("\xa0", " ")
    assert "never triggered" in text and "zz.csv:2" in text and "could violate it" in text


def test_curves_keep_extremes(report: Report) -> None:
    """The least robustness of a picture is the margin, however coarse it is."""
    for row in report.of("violated"):
        if row.figure and abs(row.robustness or 0) < np.inf:
            coarse = row.figure.robustness.coarser(5)
            assert np.nanmin(coarse.least) == pytest.approx(row.robustness, rel=1e-5)


def test_a_signal_far_from_zero_is_drawn_and_labelled(tmp_path: Path) -> None:
    north = 5e6 + np.cumsum(np.random.default_rng(0).normal(0, 0.02, 300))
    rows = [f"{0.1 * t:.1f},{value!r}" for t, value in enumerate(north.tolist())]
    (tmp_path / "log.csv").write_text("\n".join(["time,north", *rows]))
    limit = float(np.round(np.quantile(north, 0.2), 3))
    statements = read_data(f"always north >= {limit!r}".encode(), "a.stl")
    report = check_logs(statements, tmp_path / "log.csv", figures=True)
    figure = report.rows[0].figure
    assert figure is not None and figure.signal.least.min() == north.min()
    assert figure.signal.greatest.max() == north.max()
    text = page(report)
    assert f"north minus {limit:.15g}<" in text
    labels = re.findall(r'text-anchor="end">([^<]*)<', text)
    assert {f"{north.max() - limit:.3g}", f"{north.min() - limit:.3g}", "0"} <= set(labels)


def test_the_largest_page_stays_below_five_megabytes(report: Report) -> None:
    """300 logs x 15 requirements, all of them violated, with noise for curves."""
    rng = np.random.default_rng(0)
    (row, *_) = [row for row in report.of("violated") if row.requirement == "SPEED"]
    assert row.figure is not None

    def noise() -> Curve:
        values = rng.normal(size=(2, BINS)).astype(np.float32)
        return Curve(values.min(axis=0), values.max(axis=0))

    curves = [noise() for _ in range(20)]
    (first, *_) = report.requirements
    requirements = [
        replace(first, id=f"REQ-{i}", title="A title of usual length") for i in range(15)
    ]
    traces = [f"vehicle-7-run-{i:03d}" for i in range(300)]
    rows = []
    for i, trace in enumerate(traces):
        for k, requirement in enumerate(requirements):
            figure = row.figure._replace(
                signal=curves[(i + k) % 20], robustness=curves[(i * k) % 20]
            )
            rows.append(replace(row, requirement=requirement.id, trace=trace, figure=figure))
    large = replace(
        report, requirements=tuple(requirements), traces=tuple(traces), rows=tuple(rows)
    )
    text = page(large)
    assert len(text.encode()) <= MAX_BYTES
    assert text.count("<svg") == MAX_FIGURES and text.count("<figure") == 4500
