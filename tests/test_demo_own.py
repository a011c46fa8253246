"""`rhovec demo --space`: a space of one's own traces, in Chromium, by its markup, and on a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.demo.own import DRAWN, MAX_SHOWN, OwnTour, own_tour
from rhovec.demo.own_page import own_page
from rhovec.formula.requirements import Requirement

from .browser.check import check
from .spaces.plant import NAMES, OPTIONS, drives
from .test_demo import Balanced

runner = CliRunner()
REQUIREMENTS = """
limit := speed < 33 m/s
SPEED-1 "Never too fast": always[0,12] speed < 119
SPEED-2 "<b>Defined</b>": always limit
SPEED-3: always[0,12] speed < 118
REV "Engine": always rpm < 3500
GEAR: eventually[0,10] always[0,2] gear == 3
BELT "fasten & drive": always (speed > 70 -> belt == 1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "car"
    rv.Space.fit(drives(100), NAMES, **OPTIONS).save(out)
    return out


@pytest.fixture(scope="module")
def ran(folder: Path) -> tuple[str, str]:
    """What the command prints for requirements of a file, and its page."""
    file, out = folder.parent / "r.stl", folder.parent / "own.html"
    file.write_text(REQUIREMENTS)
    result = runner.invoke(
        app, ["demo", "--space", str(folder), "-F", str(file), "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    return result.stdout, out.read_text("utf-8")


@pytest.fixture(scope="module")
def drawn(folder: Path) -> OwnTour:
    return own_tour(rv.Space.load(folder))


def test_the_pages_are_in_order_in_chromium(
    ran: tuple[str, str], drawn: OwnTour, tmp_path: Path
) -> None:
    given, other = tmp_path / "given.html", tmp_path / "drawn.html"
    given.write_text(ran[1], "utf-8")
    other.write_text(own_page(drawn), "utf-8")
    results = check([given, other])
    assert len(results) == 8
    assert {view: found for view, found in results.items() if found} == {}


def test_the_page_shows_the_requirements_in_names_and_units(ran: tuple[str, str]) -> None:
    parser = Balanced()
    parser.feed(ran[1])
    parser.close()
    text = " ".join(parser.shown)
    assert parser.open == []
    for title in (
        "A map of the library", "Written differently, nearly the same meaning", "All pairs",
        "From the vector back to a formula", "From one formula to another", "Search by meaning",
        "On your traces",
    ):  # fmt: skip
        assert title in text
    for line in REQUIREMENTS.strip().splitlines()[1:]:
        assert line.rpartition(": ")[2] in text
    assert 'SPEED-2 "<b>Defined</b>"' in text  # as text, not as markup
    assert "speed, km/h" in text and "time, s" in text
    assert not re.search(r"https?://|@import|<link|\b(src|href)=\"(?!#|data:)|url\(", ran[1])


def test_the_terminal_shows_the_same(ran: tuple[str, str]) -> None:
    assert max(map(len, ran[0].splitlines()[:-1])) <= 79
    for words in (
        "6 requirements on 100 traces",
        "From one formula to another",
        "Search by meaning",
    ):
        assert words in ran[0]
    assert re.search(r"≈ always\[0,12\] speed < 11[89]", ran[0])
    assert ran[0].count("→") == 4


def test_what_is_shown_is_what_the_space_says(folder: Path, drawn: OwnTour) -> None:
    space = rv.Space.load(folder)
    assert len(drawn.texts) == DRAWN and drawn.given == 0
    texts = [text.text for text in drawn.texts]
    assert np.array_equal(drawn.vectors, space.embed(texts, warn=False))
    assert np.allclose(drawn.exact, space.kernel().gram(texts), atol=1e-6)
    assert abs(drawn.exact - drawn.near).mean() < 0.003
    for asked, answers in drawn.fronts:
        assert answers[-1].kernel > 0.8
        assert [one.formula.size for one in answers] == sorted(one.formula.size for one in answers)
        exact = space.kernel().gram([asked.text], [one.formula for one in answers])[0]
        assert np.allclose(exact, [one.kernel for one in answers])
    first, last = drawn.way[0], drawn.way[-1]
    assert (first.share, last.share) == (0, 1)
    halfway = drawn.way[2]
    assert min(halfway.first, halfway.second) > first.second
    kernels = [pair.exact for pair in drawn.hits]
    assert kernels == sorted(kernels, reverse=True)
    for system in drawn.systems:
        ((low, middle, high),), _ = system.check()
        assert low <= middle <= high


def test_the_script_names_the_nearest(ran: tuple[str, str]) -> None:
    library = json.loads(re.search(r"const library = (\[.*\]);\n", ran[1])[1])  # type: ignore[index]
    assert [entry[0] for entry in library][::2] == [
        'SPEED-1 "Never too fast"', "SPEED-3", "GEAR"
    ]  # fmt: skip
    assert library[0][4] == 2 and float(library[0][5]) > 0.99


@pytest.mark.parametrize(
    "texts",
    [
        ["always speed < 100"],
        ["always speed < 100", "not always speed < 100"],
        ["always speed < 100"] * 3,
        [f"always speed < {limit}" for limit in range(60, 70 + MAX_SHOWN)],
    ],
    ids=["one", "opposites", "three times the same", "too many"],
)
def test_few_many_and_equal_requirements(folder: Path, texts: list[str]) -> None:
    space = rv.Space.load(folder)
    given = [Requirement(space.parse(text), text=text, source="here") for text in texts]
    html = own_page(own_tour(space, given))
    assert "NaN" not in html and "nan" not in html
    assert ('id="map"' in html) == (len(texts) > 2)
    assert ("<h1>1 requirement on" in html) == (len(texts) == 1)
    assert f"<h1>{min(len(texts), MAX_SHOWN)} requirement" in html
    assert ("the first of 210" in html) == (len(texts) > MAX_SHOWN)


def test_a_centred_space_is_shown_without_decoding(tmp_path: Path) -> None:
    html = own_page(own_tour(rv.Space.fit(drives(100), NAMES, centred=True, **OPTIONS)))
    assert "back to a formula" not in html and "From one formula" not in html
    assert "Search by meaning" in html and "correlation" in html


def refused(*arguments: object) -> str:
    result = runner.invoke(app, ["demo", *map(str, arguments)])
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_bad_input_gets_one_clear_error(folder: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "no.html")
    (tmp_path / "empty").mkdir()
    (tmp_path / "r.stl").write_text("A: always nothere < 3\n")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "space.json").write_text("{}")
    assert "neither space.json" in refused("--space", tmp_path / "empty", *out)
    assert "is not a folder" in refused("--space", tmp_path / "nowhere", *out)
    assert "does not describe a space" in refused("--space", tmp_path / "bad", *out)
    assert "-F goes with --space" in refused("-F", tmp_path / "r.stl", *out)
    assert "go with -F" in refused("--space", folder, "--set", "T=3", *out)
    message = refused("--space", folder, "-F", tmp_path / "r.stl", *out)
    assert "A (" in message and "uses nothere, but the space has speed, rpm" in message
    assert not list(tmp_path.glob("*.html"))


def test_verdicts_of_channels_far_from_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    north = 5e6 + np.cumsum(rng.normal(0, 0.02, (100, 30)), axis=1)
    text = "always north >= 4999999.9"
    rv.Space.fit({"north": north, "east": rng.normal(size=(100, 30))}).save(tmp_path / "place")
    (tmp_path / "r.stl").write_text(f"{text}\neventually east > 1\n")
    out = tmp_path / "own.html"
    command = ["demo", "--space", str(tmp_path / "place"), "-F", str(tmp_path / "r.stl")]
    result = runner.invoke(app, [*command, "--out", str(out)])
    assert result.exit_code == 0, result.output
    rho = np.sort(rv.robustness(text, {"north": north}))
    lowest, middle, highest = rho[[0, 50, 99]]
    assert lowest < 0 < highest
    for value in (lowest, middle, highest):
        assert f"{value:+.4g}" in out.read_text("utf-8")


@pytest.mark.parametrize("size", [1.0, 1e39])
def test_spaces_of_single_points_and_large_values(size: float, tmp_path: Path) -> None:
    points = 1 if size == 1 else 20
    rv.Space.fit(size * np.random.default_rng(0).normal(size=(60, 2, points))).save(tmp_path)
    out = tmp_path / "own.html"
    result = runner.invoke(app, ["demo", "--space", str(tmp_path), "--out", str(out)])
    assert result.exit_code == 0 and out.exists(), result.output
