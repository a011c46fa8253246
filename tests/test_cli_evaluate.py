"""`rhovec evaluate`: what it measures of a model and of vectors, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.evaluation.encoder import TRACES, TRACES_SEED, evaluate_encoder
from rhovec.evaluation.sets import read_formulae
from rhovec.formula.sample import random_formulae

from .models.tiny import save_tiny
from .models.tiny_decoder import save_tiny_decoder


@pytest.fixture(scope="module")
def formulae(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("formulae") / "formulae.txt"
    path.write_text("\n".join(map(str, random_formulae(20, 0))))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(*arguments: object) -> list[dict]:
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[-1].removeprefix("rhovec: ")


def test_rows_are_those_of_the_library(formulae: Path, model: Path) -> None:
    """Full size, the default measures: as from Python, and on traces that no training uses."""
    loaded = rv.load(model)
    wanted = evaluate_encoder(
        lambda found: loaded.embed(found, warn=False),
        loaded.kernel(TRACES, TRACES_SEED),
        [read_formulae(formulae)],
    )
    assert rows("-F", formulae, "--model", model) == json.loads(json.dumps(wanted))
    (alignment,) = [row for row in wanted if row["measure"] == "alignment"]
    text = run("-F", formulae, "--model", model)
    assert "fidelity: formulae.txt" in text and "agreement, mean absolute error: form" in text
    assert f"{alignment['value']:.4f}" in text and f"{alignment['low']:.4f} to" in text


def test_other_points_and_sets(formulae: Path, model: Path) -> None:
    usual, other = (
        rows("fidelity", "-F", formulae, "--model", model, "--quick", *given)
        for given in ((), ("--points", 30))
    )
    assert [row["measure"] for row in usual] == [row["measure"] for row in other]
    assert usual[0]["value"] != other[0]["value"]
    sets = {row["set"] for row in rows("fidelity", "--model", model, "--quick")}
    assert {name.split(" (")[0].split(",")[0] for name in sets} == {"headline", "held-out families"}


def test_outside_and_reconstruction(formulae: Path, model: Path, tmp_path: Path) -> None:
    found = rows("outside", "--model", model, "-F", formulae, "--quick")
    assert {"inside", "12 deeper"} <= {row["measure"] for row in found}
    decoding = save_tiny_decoder(tmp_path / "model")
    found = rows("reconstruction", "--model", decoding, "-F", formulae, "--quick")
    cosine = next(row for row in found if row["measure"] == "cosine")
    assert cosine["n"] == 20 and cosine["set"] == "formulae.txt"
    assert "no decoder" in refused("reconstruction", "--model", model, "-F", formulae)


def test_vectors_of_any_origin(formulae: Path, model: Path, tmp_path: Path) -> None:
    loaded, given = rv.load(model), tmp_path / "vectors.npy"
    texts = formulae.read_text().splitlines()
    np.save(given, loaded.embed(texts, warn=False))
    wanted = rows("fidelity", "-F", formulae, "--model", model, "--quick")
    assert rows("-F", formulae, "--vectors", given, "--model", model, "--quick") == wanted
    gram = loaded.kernel(2048, TRACES_SEED).gram(texts)
    values, axes = np.linalg.eigh(gram)
    np.save(given, axes * np.sqrt(np.maximum(values, 0)))
    exact = rows("-F", formulae, "--vectors", given, "--model", model, "--quick")
    assert exact[0]["measure"] == "mean absolute error" and exact[0]["value"] < 1e-6

    np.save(given, np.eye(3))
    assert "3 vectors for 20 formulae" in refused("-F", formulae, "--vectors", given)
    np.save(given, 2 * np.eye(20))
    assert "length 1" in refused("-F", formulae, "--vectors", given)
    for wrong in (["--vectors", given], ["agreement", "-F", formulae, "--vectors", given]):
        assert "--vectors goes with one -F file and with fidelity" in refused(*wrong)


def test_mistakes(formulae: Path, tmp_path: Path) -> None:
    assert "there is no measure 'speed'; measures are fidelity" in refused("speed")
    assert "cannot be read" in refused("-F", tmp_path / "none.txt")
    assert "there is no model" in refused("--model", tmp_path / "none")
    assert "one point" in refused("-F", formulae, "--points", 0)
    few = tmp_path / "few.txt"
    few.write_text("x_0 > 1\n")
    assert "few.txt: one formula; an evaluation compares pairs" in refused("fidelity", "-F", few)


@pytest.mark.parametrize("count", [2, 5, 10])
def test_a_file_of_few_requirements(count: int, model: Path, tmp_path: Path) -> None:
    """It was refused for the overlap of ten neighbours, which alone needs more."""
    few = tmp_path / "few.txt"
    few.write_text("".join(f"always[0,{i + 1}] x_0 > {i}\n" for i in range(count)))
    found = [row for row in rows("-F", few, "--model", model, "--quick")]
    names = {row["measure"] for row in found if row["claim"] == "fidelity"}
    assert {"mean absolute error", "alignment", "rank correlation"} <= names
    assert not any("overlap" in name for name in names)
    assert all(row["low"] <= row["high"] for row in found if row.get("low") is not None)
