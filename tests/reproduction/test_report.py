"""Claims: what a verdict says, what a run returns, and that tables and page show all of it."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduction import measure, paper, records, report
from reproduction.lines import cell, lines, paper_text, plain
from reproduction.measure import run
from reproduction.paper import CLAIMS, Number, judge, overall
from rhovec.errors import RhovecError
from rhovec.evaluation.sets import held_out, read_formulae
from rhovec.formula import Formula
from rhovec.formula.sample import random_formulae
from rhovec.library import requirements
from rhovec.models.model import Model, load

from ..models.tiny import save_tiny
from ..models.tiny_decoder import save_tiny_decoder

FACTS = {"command": "python -m reproduction", "machine": "a < b & c", "date": "2026-01-01 00:00"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(save_tiny(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture(scope="module")
def formulae(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("formulae") / "some & other.txt"
    path.write_text("\n".join(map(str, random_formulae(40, 0))))
    return path


@pytest.fixture(scope="module")
def rows(model: Model, formulae: Path) -> list[dict[str, Any]]:
    sets = [read_formulae(formulae)]
    found = run(["fidelity", "agreement", "library"], model, sets, model.kernel(256, 7))
    return [row | FACTS for row in found]


def markdown(rows: list[dict[str, Any]]) -> str:
    return report.markdown(report.sections(rows))


def row(**values: Any) -> dict[str, Any]:
    return {"claim": "fidelity", "measure": "alignment", "set": "s", "n": 9, "value": 0.95} | values


# -- verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "value", "low", "high", "plain", "compared"),
    [
        ("larger", 3.0, 2.5, 3.5, "confirmed", "confirmed"),
        ("larger", 3.0, 1.5, 3.5, "not confirmed", "not confirmed"),
        ("larger", 1.0, 0.5, 1.5, "not confirmed", "reversed"),
        ("larger", 2.0, None, None, "confirmed", "confirmed"),
        ("larger", 1.9, None, None, "not confirmed", "reversed"),
        ("smaller", 1.0, 0.5, 1.5, "confirmed", "confirmed"),
        ("smaller", 1.0, 0.5, 2.5, "not confirmed", "not confirmed"),
        ("smaller", 3.0, 2.5, 3.5, "not confirmed", "reversed"),
        (None, 3.0, 2.5, 3.5, "", ""),
    ],
)
def test_a_verdict_needs_the_whole_interval(
    monkeypatch, better, value, low, high, plain, compared
) -> None:
    measured = row(value=value, low=low, high=high)
    for opposite, want in ((False, plain), (True, compared)):
        number = Number(5.0, "somewhere", better, limit=2.0, opposite=opposite)
        monkeypatch.setitem(CLAIMS["fidelity"].numbers, ("alignment", "value"), number)
        assert judge(measured) == want


def test_what_the_paper_does_not_say_has_no_verdict() -> None:
    assert judge(row(measure="rank correlation")) == ""
    assert judge(row(value=None)) == ""
    assert judge(row(reason="not measured: no decoder")) == "not measured"
    assert overall(["", ""]) == "nothing to judge"
    assert overall(["confirmed", "", "confirmed"]) == "confirmed"
    assert overall(["reversed", "confirmed", "confirmed"]) == "in part: 2 confirmed, 1 reversed"


def test_the_table_of_a_pooling_is_its_own() -> None:
    mae = {
        pooling: paper.number_of({"claim": "agreement", "measure": "random", "pooling": pooling})
        for pooling in ("cls", "mean", "bos")
    }
    assert [number.paper for number in mae.values() if number] == [0.072, 0.066, 0.070]


def test_the_papers_costs() -> None:
    costs = paper.paper_costs()
    assert len(costs) == 24
    assert costs[2000, 16000]["embed kernel"] == 48.86
    assert costs[2000, 16000]["embed loaded"] == 2.17
    assert costs[4000, 8000]["pairs kernel"] == 552.04
    assert costs[4000, 16000]["pairs kernel MB"] == 489898


def costs_of(monkeypatch: pytest.MonkeyPatch, model: Model, kernel: float) -> list[dict[str, Any]]:
    """Rows of a run in which the kernel needs so many times the encoder's seconds."""

    def efficiency(**_: object) -> list[dict[str, Any]]:
        common = {"set": "s", "sha256": "0", "points": 1000, "device": "cpu", "unit": "s"}
        sides = [("encoder", None, 1.0), ("kernel", 8000, kernel)]
        return [
            {"measure": f"{what}, {side}, loaded, B = 2000" + (f", N = {n}" if n else ""),
             "what": what, "side": side, "state": "loaded", "B": 2000, "N": n, "n": 3,
             "value": value, "low": value * 0.9, "high": value * 1.1, "memory_mb": 100 * value,
             "projected": False, **common}
            for what in ("embed", "pairs") for side, n, value in sides
        ]  # fmt: skip

    monkeypatch.setattr(measure.efficiency, "efficiency", efficiency)
    return [row | FACTS for row in run(["efficiency"], model, [], model.kernel(8))]


@pytest.mark.parametrize(
    ("kernel", "want"), [(2.0, "confirmed"), (1.1, "not confirmed"), (0.5, "reversed")]
)
def test_which_side_costs_less(monkeypatch, model: Model, kernel: float, want: str) -> None:
    found = {row["measure"]: row for row in costs_of(monkeypatch, model, kernel)}
    ratio = found["embed, kernel / encoder, B = 2000, N = 8000"]
    assert judge(ratio) == want and ratio["value"] == kernel
    assert paper.number_of(ratio).paper == pytest.approx(17.08 / 2.16, rel=0.05)
    seconds = found["embed, kernel, loaded, B = 2000, N = 8000"]
    assert judge(seconds) == "" and paper.number_of(seconds).paper == 17.08
    assert paper.number_of(seconds, "memory_mb").paper == 62384
    small = ratio | {"measure": "embed, kernel / encoder, B = 7, N = 9"}
    (line,) = lines([small])
    assert judge(small) == want and paper_text(line) == "> 1"


# -- runs ------------------------------------------------------------------------------------------


def test_rows_say_what_they_are_of(rows: list[dict[str, Any]], model: Model) -> None:
    assert {r["claim"] for r in rows} == {"fidelity", "agreement", "library"}
    for r in rows:
        assert r["model"] == model.fingerprint and r["points"] == 100 and r["traces"] == 256
        assert r["recipe"] == "ours" and not r["quick"]
    assert len({records.key(r) for r in rows}) == len(rows)
    json.dumps(rows, allow_nan=False)


def test_numbers_again_from_scratch(
    rows: list[dict[str, Any]], model: Model, formulae: Path
) -> None:
    """Alignment, uniformity and the five rows of the table, by loops over the definitions."""
    given = read_formulae(formulae)
    kernel = model.kernel(256, 7)
    texts = [str(phi) for phi in given.formulae]
    vectors = [model.embed(text, warn=False).astype(float) for text in texts]
    pairs = [(i, j) for i in range(len(texts)) for j in range(len(texts))]
    k = [kernel.similarity(texts[i], texts[j]) for i, j in pairs]
    s = [float(vectors[i] @ vectors[j]) for i, j in pairs]
    found = {(r["claim"], r["measure"]): r for r in rows}

    dot = sum(a * b for a, b in zip(k, s, strict=True))
    norms = math.sqrt(sum(a * a for a in k)) * math.sqrt(sum(b * b for b in s))
    assert found["fidelity", "alignment"]["value"] == pytest.approx(dot / norms, abs=1e-5)
    distances = [float(((vectors[i] - vectors[j]) ** 2).sum()) for i, j in pairs]
    spread = math.log(sum(math.exp(-2 * d) for d in distances) / len(distances))
    assert found["fidelity", "uniformity"]["value"] == pytest.approx(spread, abs=1e-5)

    column = found["agreement", "equivalent"]
    k = [kernel.similarity(a, b) for a, b in given.equivalent]
    s = [
        float(model.embed(a, warn=False) @ model.embed(b, warn=False)) for a, b in given.equivalent
    ]
    far = [1 - x for x in s]
    want = {
        "n": len(k), "kernel": np.mean(k), "similarity": np.mean(s), "relative": np.mean(far) / max(far),
        "value": np.mean([abs(a - b) for a, b in zip(k, s, strict=True)]),
    }  # fmt: skip
    assert {name: column[name] for name in want} == pytest.approx(want, abs=1e-5)
    assert column["relative_kernel"] is None  # all distances are 0


def test_the_library_compares_within_systems(rows: list[dict[str, Any]], model: Model) -> None:
    kernel = model.kernel(256, 7)
    systems: dict[str, list[Formula]] = {}
    for requirement in requirements():
        systems.setdefault(requirement.system.name, []).append(requirement.lowered)
    errors = []
    for formulae in systems.values():
        vectors = model.embed(formulae, warn=False)
        gap = np.abs(kernel.gram(formulae) - vectors @ vectors.T)
        errors.append(gap[np.triu_indices(len(formulae), 1)])
    found = {r["measure"]: r for r in rows if r["claim"] == "library"}
    pairs = found["mean absolute error, pairs within a system"]
    assert pairs["n"] == 1623 and pairs["left_out"] == 0
    assert pairs["value"] == pytest.approx(np.concatenate(errors).mean(), abs=1e-5)
    means = [values.mean() for values in errors if len(values)]
    alike = found["mean absolute error, mean over systems"]
    assert alike["n"] == len(means) and alike["value"] == pytest.approx(np.mean(means), abs=1e-5)


def test_what_cannot_be_measured_is_a_row(monkeypatch, model: Model) -> None:
    def fails(*_: object) -> list[dict[str, Any]]:
        raise RhovecError("this model has no decoder")

    monkeypatch.setattr(
        measure, "_library", lambda _: [row(value=float("nan"), low=float("inf"), high=2.0)]
    )
    (odd,) = run(["library"], model, [], model.kernel(8))
    assert (odd["value"], odd["low"], odd["high"]) == (None, None, 2.0)
    monkeypatch.setattr(measure, "_probing", fails)
    seen: list[tuple[str, float]] = []
    (found,) = run(
        ["probing", "probing"],
        model,
        [held_out(2, pairs=1)],
        model.kernel(8),
        progress=lambda *x: seen.append(x),
    )
    assert found["reason"] == "not measured: this model has no decoder"
    assert (found["n"], found["value"], judge(found)) == (0, None, "not measured")
    assert seen == [("probing: held-out families, 3 channels, seed 0", 0.0), ("done", 1.0)]
    with pytest.raises(RhovecError, match="there is no claim 'speed'; claims are fidelity,"):
        run(["speed"], model, [], model.kernel(8))


def test_reconstruction_with_a_decoder(monkeypatch, model: Model, tmp_path: Path) -> None:
    given = [held_out(2, size=4, pairs=1)]
    (missing,) = run(["reconstruction"], model, given, model.kernel(8))
    assert "no decoder" in missing["reason"]
    monkeypatch.setattr(measure, "DECODED", 4)
    decoding = load(save_tiny_decoder(tmp_path / "model"))
    found = run(["reconstruction"], decoding, given, decoding.kernel(8))
    cosines = {row["measure"]: row for row in found if row["measure"].startswith("cosine")}
    assert {"cosine", "cosine, decoder alone", "cosine of a constant sign"} <= set(cosines)
    assert {row["n"] for row in cosines.values()} == {4}
    assert judge(cosines["cosine"]) in ("confirmed", "not confirmed")
    merged = records.merge([missing], [row | {"model": missing["model"]} for row in found])
    assert not any("reason" in row for row in merged)


# -- the record ------------------------------------------------------------------------------------


def test_a_row_measured_again_replaces_the_old_one() -> None:
    old = [row(), row(set="t"), row(points=1000), row(claim="probing", measure="all", reason="…")]
    new = [row(value=0.97), row(claim="probing", measure="r")]
    merged = records.merge(old, new)
    assert [r["value"] for r in merged if r["measure"] == "alignment"] == [0.97, 0.95, 0.95]
    assert [r["measure"] for r in merged if r["claim"] == "probing"] == ["r"]


def test_columns_are_chosen_by_recipe_and_points() -> None:
    (line,) = lines([
        row(date="2", value=0.92, trained_points=100, points=100),
        row(date="1", value=0.91, trained_points=100, points=100, model="older"),
        row(value=0.93, recipe="paper", points=1000, trained_points=1000),
        row(value=0.94, points=1000, trained_points=100),
    ])  # fmt: skip
    assert cell(line, "ours") == "0.9200"
    assert cell(line, "recipe") == "0.9300"
    assert cell(line, "like") == "0.9400 (trained at 100 points)"
    assert paper_text(line) == "> 0.9"
    first, second = lines([row(pooling="cls"), row(pooling="mean", value=0.8)])
    assert (first.where, second.where) == ("s", "s, mean pooling")
    assert "Not measured: bos pooling." in markdown([row(pooling="cls"), row(pooling="mean")])


def test_a_short_training_is_said_to_be_short() -> None:
    recipe = {"recipe": "paper", "points": 1000, "trained_points": 1000, "ablation": "paper"}
    onward = {"pooling": "bos", "ablation": "shipped-bos", "onward": True}
    text = markdown([row(), row(steps=2400, **recipe), row(steps=2000, **onward)])
    heads = [line for line in text.splitlines() if line.startswith("| measure | paper |")]
    assert [head.count("the paper's recipe here") for head in heads] == [1, 0]
    assert "the paper's recipe here, 2,400 of 32,000 steps" in heads[0]
    assert "**s, bos pooling, 2,000 further steps**" in text
    assert "the paper's recipe; 2,400 steps" in text


def trainings() -> list[dict[str, Any]]:
    return [
        row(
            claim="ablations", ablation=name, measure=name, value=value, low=value / 2,
            high=2 * value, equivalent=value, lexical=value, alignment=0.9, points=points,
            steps=5, seconds=1.0, parameters=10, date=str(i),
        )
        for i, (name, value, points) in enumerate(
            [("fair", 0.02, 100), ("poor", 0.3, 100), ("good", 0.01, 1000)]
        )
    ]  # fmt: skip


def test_trainings_stand_with_the_smallest_error_first() -> None:
    text = markdown([*trainings(), row()])
    part = text[text.index("## Ablations of the training") : text.index("## Runs")]
    names = re.findall(r"^\| (good|fair|poor) \|", part, re.MULTILINE)
    assert names == ["good", "fair", "poor"]
    assert "0.0050 to 0.0200" in part  # the interval of the best


def test_the_pages_are_whole(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    missing = (
        row(claim="probing", measure="all", set="", value=None, reason="not measured: why") | FACTS
    )
    log = [
        {"step": s, "loss": 1 / s, "alignment": 1 - 0.1 / s, "uniformity": -3.0} for s in (1, 2, 3)
    ]
    records.write_run(tmp_path / "shipped/encoder.json", records.Run({}, {}, log, []))
    report.write(tmp_path, [*rows, missing])
    found = {records.key(row): row for row in records.read_rows(tmp_path / records.ROWS)}
    assert found == {records.key(row): row for row in [*rows, missing]}

    text = (tmp_path / "index.html").read_text()
    root = ET.fromstring(text)
    assert not re.search(
        r"""(src|href)=["'](?!#|data:)|url\((?!#|data:)|@import|<script|<link""", text
    )
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    linked = {e.get("href", "")[1:] for e in root.iter("a")}
    assert linked and linked <= set(ids)
    assert "#000000" not in text and "prefers-color-scheme: dark" in text
    assert "width=device-width" in text
    figures = {figure.name for figure in report.draw(rows, log)}
    assert {"map", "depth", "agreement", "curve-loss", "curve-uniformity"} <= figures
    assert text.count("<figure>") == len(figures)

    shown = " ".join(root.itertext())
    markdown = (tmp_path / "README.md").read_text()
    for page in (shown, markdown):
        assert "some & other.txt" in page and "a < b & c" in page and "not measured: why" in page
        assert page.count("python -m reproduction") >= 1
        for line in lines(rows):
            assert line.name in page and cell(line, "ours") in page


def test_costs_stand_in_one_row_per_size(monkeypatch, model: Model) -> None:
    text = markdown(costs_of(monkeypatch, model, 2.0))
    (seconds,) = re.findall(r"\| 2,000 \| 8,000 \| 2\.0000 \| 17\.08 .*", text)
    cells = [part.strip() for part in seconds.split("|")][1:-1]
    assert cells[4:6] == ["1.0000", "2.17"]  # the encoder's seconds, and the paper's
    assert cells[6:8] == ["2.0000", "1.6364 to 2.4444"]  # the ratio
    assert cells[-2:] == ["confirmed", "1"]
    assert "| 2,000 | 8,000 | 200.0 | 62,384 | 100.0 |" in text  # memory


def test_every_figure(monkeypatch, model: Model, rows: list[dict[str, Any]]) -> None:
    quartiles = {"lower_quartile": 0.5, "upper_quartile": 0.9}
    made = [
        *rows,
        row(claim="agreement", measure="random", set="none", n=0, value=None, low=None, high=None),
        *costs_of(monkeypatch, model, 2.0),
        *(row(claim="reconstruction", measure=name, **quartiles)
          for name in ("cosine", "cosine, decoder alone", "cosine of a constant sign")),
        *(row(claim="probing", measure=f"{target}: r, vectors, two layers", shown=[[0, 1], [1, 2]])
          for target in ("average robustness", "satisfaction probability")),
        *trainings(),
    ]  # fmt: skip
    drawn = {figure.name: figure for figure in report.draw(made, [{"step": 1, "loss": 1.0}])}
    assert set(drawn) == {
        "curve-loss", "curve-alignment", "curve-uniformity", "map", "depth", "agreement",
        "embed-seconds", "pairs-seconds", "embed-MB", "probe-average", "probe-satisfaction",
        "reconstruction", "ablations",
    }  # fmt: skip
    for figure in drawn.values():
        assert figure.claim in {*CLAIMS, "ablations"}
        words = " ".join(ET.fromstring(figure.svg).itertext())
        assert len(words.split()) > 5 and "currentColor" in figure.svg
    assert "paper" in " ".join(ET.fromstring(drawn["embed-seconds"].svg).itertext())
    words = " ".join(ET.fromstring(drawn["ablations"].svg).itertext())
    assert "traces of 1000 points" in words
    assert words.index("poor") < words.index("fair") < words.index("good")  # from below
    assert [*report.draw([])] == []


def test_a_page_without_figures_says_so(rows: list[dict[str, Any]]) -> None:
    assert "matplotlib was not installed" in report.page(report.sections(rows), [])


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (1504, "1,504"), (0.0, "0.0000"), (3e-8, "3.0e-08"), (-2.79156, "-2.7916"),
     (12.345, "12.3"), (123456.7, "123,457")],
)  # fmt: skip
def test_numbers_as_text(value: float | None, text: str) -> None:
    assert plain(value) == text
