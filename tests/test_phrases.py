"""The page of phrases is what docs/phrases.py writes, and all requirements of the example are read."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import rhovec as rv
from rhovec.formula.requirements import read_requirements

ROOT = Path(__file__).parents[1]
PHRASES = runpy.run_path(str(ROOT / "docs" / "phrases.py"))
EXAMPLE = ROOT / "examples" / "requirements.stl"


def test_page_and_pictures_are_up_to_date() -> None:
    for path, text in PHRASES["files"]().items():
        assert path.read_text() == text, "run python docs/phrases.py"
        assert len(text) < 3000 or path.suffix == ".md"
    known = {path.name for path in PHRASES["files"]()}
    assert {path.name for path in (ROOT / "docs" / "phrases").iterdir()} <= known


@pytest.mark.parametrize("phrase", PHRASES["PHRASES"], ids=lambda phrase: phrase.name)
def test_a_picture_shows_where_it_holds_and_where_not(phrase) -> None:  # type: ignore[no-untyped-def]
    verdicts = PHRASES["verdicts"](phrase)
    assert verdicts.any() and not verdicts.all()
    assert set(rv.parse(phrase.formula, dt=PHRASES["STEP"]).variables) == set(phrase.signals)


def test_the_fifty_requirements_are_read_and_have_sources() -> None:
    requirements = read_requirements(EXAMPLE, dt=0.01, discrete=PHRASES["DISCRETE"])
    assert len(requirements) == len({r.id for r in requirements}) == 50
    sources = set(re.findall(r"^#   ([\w-]+)  +\S", EXAMPLE.read_text(), re.MULTILINE))
    assert {r.tags[0] for r in requirements} == sources
    assert all(r.title.endswith(".") for r in requirements)
    words = " ".join(r.text for r in requirements)
    for used in ("rise(", "fall(", "rate(", "changed(", "prev ", "once[", "historically[", "since",
                 "weak_until", " ms]", " min]", "`"):  # fmt: skip
        assert used in words
