"""`rhovec demo`: its facts, its drawings, its page, and what the terminal shows."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.cli.demo import WIDTH, summary
from rhovec.demo import drawings
from rhovec.demo.page import page
from rhovec.demo.systems import systems
from rhovec.demo.tour import DECODED, MAX_OTHER, MIN_SAME, REWRITTEN, Tour, tour, written
from rhovec.drawing import ticks
from rhovec.library import requirements
from rhovec.models.model import load

from .models.tiny import save_tiny

runner = CliRunner()
BACK = "From the vector back to a formula"
TITLES = (
    "Written differently, nearly the same meaning",
    "Written almost the same, another meaning",
    "Neural against exact",
    BACK,
    "Search by meaning",
    "Requirements on traces",
)


@pytest.fixture(scope="module")
def shown() -> Tour:
    return tour(load())


@pytest.fixture(scope="module")
def html(shown: Tour) -> str:
    return page(shown)


def words(shown: Tour) -> str:
    console = Console(width=WIDTH, highlight=False, markup=False)
    with console.capture() as capture:
        for part in summary(shown, WIDTH):
            console.print(part, width=WIDTH)
    return capture.get()


# -- facts -----------------------------------------------------------------------------------------


def test_pairs_are_what_they_are_said_to_be(shown: Tour) -> None:
    assert len(shown.requirements) == len(requirements())
    assert len(shown.rewritten) == len(REWRITTEN)
    assert all(abs(1 - pair.exact) < 1e-6 < 0.02 > 1 - pair.neural for pair in shown.rewritten)
    assert len(shown.same) == len(shown.other) == len(shown.hits) == 5
    assert all(pair.exact >= MIN_SAME for pair in shown.same)
    assert all(pair.exact <= MAX_OTHER for pair in shown.other)
    assert [pair.exact for pair in shown.hits] == sorted(
        (p.exact for p in shown.hits), reverse=True
    )
    pairs = [*shown.same, *shown.other, *shown.hits]
    assert np.mean([abs(pair.exact - pair.neural) for pair in pairs]) < 0.03
    texts = [pair.first.text for pair in shown.same] + [pair.second.text for pair in shown.same]
    assert len(set(texts)) == len(texts)


def test_pairs_are_of_one_system_whose_channels_are_independent(shown: Tour) -> None:
    known = {" ".join(r.text.split()): r for r in requirements()}
    for pair in (*shown.same, *shown.other):
        a, b = known[pair.first.text], known[pair.second.text]
        assert a.system is b.system
        names = [
            name for channel in {*a.formula.channels, *b.formula.channels} for name, _ in channel
        ]
        assert len(names) == len(set(names))


def test_exact_values_are_those_of_other_traces_within_their_errors(shown: Tour) -> None:
    by_text = {" ".join(r.text.split()): r.lowered for r in requirements()}
    kernel = load().kernel(10_000, 2)
    for pair in (*shown.same, *shown.other):
        again = kernel.similarity(by_text[pair.first.text], by_text[pair.second.text])
        assert abs(again - pair.exact) <= 6 * pair.error + 1e-4


def test_every_system_has_a_good_trace_and_violations() -> None:
    for system in systems():
        values, holds = system.check()
        assert values.shape == (len(system.requirements), len(system.traces))
        assert holds[:, 0].all(), system.title
        assert not holds[:, 1:].all(axis=0).any(), system.title
        assert np.array_equal(holds, values > 0)
        requirement, variable, _ = system.shown
        assert variable in rv.parse(system.requirements[requirement], dt=system.dt).variables


# -- drawings --------------------------------------------------------------------------------------


def test_the_map_keeps_neighbours_together() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 30))
    groups = np.repeat(np.arange(4), 15)
    vectors = centres[groups] + 0.3 * rng.normal(size=(60, 30))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    places = drawings.neighbour_map(vectors.astype(np.float32))
    assert places.min() == 0 and places.max() == 1
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(60)
    assert (groups[apart.argmin(axis=1)] == groups).all()
    assert np.array_equal(places, drawings.neighbour_map(vectors.astype(np.float32)))


@pytest.mark.parametrize("seed", range(5))
def test_texts_of_the_map_touch_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = rng.uniform(20, [580, 380], size=(60, 2))
    texts = ["x" * rng.integers(3, 30) for _ in places]
    drawn = drawings._labels(places, texts, 600, 400, 12, longest=20)
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="name"(.*?)>(x+)<', "".join(drawn))
    assert len(found) > 10 and max(len(text) for *_, text in found) <= 20
    boxes = []
    for x, y, anchor, text in found:
        long = len(text) * 12 * drawings.LETTER
        left = float(x) - (long if "end" in anchor else 0)
        boxes.append((left, float(y) - 10, left + long, float(y) + 2))
        assert left >= 0 and left + long <= 600 and 0 <= float(y) <= 400
    for i, a in enumerate(boxes):
        for x, y in places:
            assert not (a[0] < x < a[2] and a[1] < y < a[3])
        for b in boxes[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_the_matrix_has_systems_together_and_holds_its_numbers(shown: Tour) -> None:
    order = drawings.in_groups([written(r) for r in shown.requirements], shown.neural)
    assert sorted(order) == list(range(len(order)))
    for names in (
        [r.system.name for r in shown.requirements],
        [r.domain for r in shown.requirements],
    ):
        ordered = [names[i] for i in order]
        runs = [a for a, b in zip(ordered, ["", *ordered], strict=False) if a != b]
        assert len(runs) == len(set(runs))
    values = np.random.default_rng(0).uniform(-0.2, 1.2, (3, 5))
    data = base64.b64decode(drawings._picture(values).partition(",")[2])
    at, chunks = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            name + body
        )
        chunks[name], at = body, at + 12 + size
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(3, 6)
    assert not rows[:, 0].any()
    assert np.abs(rows[:, 1:] / 255 - values.clip(0, 1)).max() <= 0.5 / 255 + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_ticks_are_few_round_and_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.normal() * 10.0 ** rng.integers(-4, 5)
    high = low + 10.0 ** rng.uniform(-2, 4)
    found = ticks(low, high, 5)
    assert 1 <= len(found) <= 6
    assert all(low - 1e-6 <= value <= high + 1e-6 for value in found)
    steps = np.diff(found)
    assert np.allclose(steps, steps[:1])


# -- the page --------------------------------------------------------------------------------------


class Balanced(HTMLParser):
    """Fails on tags that do not match; collects what is shown, and ids."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.shown: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.shown.append(data)


def test_the_page_is_whole_and_needs_nothing_else(shown: Tour, html: str) -> None:
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    assert not re.search(r"https?://|@import|<link|\b(src|href)=\"(?!#|data:)|url\(", html)
    assert "prefers-color-scheme: dark" in html and "width=device-width" in html
    assert 'class="map wide"' in html and 'class="matrix narrow"' in html
    assert parser.count["circle"] >= 2 * len(shown.requirements)
    assert parser.count["image"] == 2 and parser.count["svg"] == 9
    text = " ".join(parser.shown)
    for title in (*TITLES, "A map of the library", "All pairs"):
        assert title in text
    for pair in (*shown.same, *shown.other, *shown.rewritten, *shown.hits, *shown.wrong):
        assert pair.second.text in text and f"{pair.exact:.3f} ± {pair.error:.3f}" in text
    assert all(r.title in text for r in shown.requirements)


def test_the_script_has_every_requirement(shown: Tour, html: str) -> None:
    library = json.loads(re.search(r"const library = (\[.*\]);\n", html)[1])  # type: ignore[index]
    assert [entry[0] for entry in library] == [r.title for r in shown.requirements]
    for r, (*_, nearest, exact, _neural) in zip(shown.requirements, library, strict=True):
        alone = sum(other.system is r.system for other in shown.requirements) == 1
        assert (nearest is None) == alone
        assert alone or shown.requirements[nearest].system is r.system
        assert alone or 0 <= float(exact) <= 1


def test_the_same_model_gives_the_same_page(shown: Tour, html: str, tmp_path: Path) -> None:
    assert page(shown) == html
    folder = save_tiny(tmp_path / "tiny")
    assert page(tour(load(folder))) == page(tour(load(folder)))


# -- decoding --------------------------------------------------------------------------------------


def test_what_is_decoded_is_near(shown: Tour) -> None:
    by_id = {r.id: r for r in shown.requirements}
    assert len(shown.decoded) == len(DECODED)
    for name, pair in zip(DECODED, shown.decoded, strict=True):
        schema = by_id[name].system.schema
        assert set(schema.lower(pair.second.text).variables) <= set(by_id[name].lowered.variables)
        assert pair.exact > 0.95


def test_without_a_decoder_nothing_is_said_of_it(tmp_path: Path) -> None:
    lacking = tour(load(save_tiny(tmp_path)))
    assert lacking.decoded == []
    for text in (words(lacking), page(lacking)):
        assert BACK not in text and "decod" not in text


# -- the command -----------------------------------------------------------------------------------


def test_the_terminal_shows_every_section_in_eighty_columns(shown: Tour) -> None:
    text = words(shown)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert all(title in text for title in TITLES)
    assert text.count("≈") == 6 and text.count("≠") == 4
    assert text.count("✗") >= 3 and text.count("✓") >= 5


def test_the_command_writes_the_page(tmp_path: Path, html: str) -> None:
    out = tmp_path / "here.html"
    result = runner.invoke(app, ["demo", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert all(title in result.stdout for title in TITLES) and "here.html" in result.stdout
    assert out.read_text("utf-8") == html
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", ["page.txt", "missing/page.html"])
def test_a_page_that_cannot_be_written_is_refused_at_once(tmp_path: Path, name: str) -> None:
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / name)])
    assert result.exit_code == 2 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
