"""From a run to a model folder, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.evaluation.outside import outside
from rhovec.formula.core import Formula

pytest.importorskip("torch")
RUN = [
    "train", "encoder", "--preset", "tiny",
    *(f"--set={field}" for field in ("steps=2", "batch=64", "every=1", "validate=2")),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    formulae = folder / "formulae.txt"
    formulae.write_text("\n".join(map(str, rv.random_formulae(12, seed=1))))
    command = [*RUN, "--out", str(folder / "out"), "--evaluate", "--n-traces", "64"]
    result = CliRunner().invoke(app, [*command, "--families", "3", "-F", str(formulae)])
    assert result.exit_code == 0, result.output
    assert "evaluating on 3 held-out families" in result.stderr
    return folder / "out"


def test_a_run_becomes_a_model(run: Path) -> None:
    model = rv.load(run / "model")
    assert model.dimension == 128
    assert model.kernel().measure == rv.BaseMeasure(n_variables=8, points=100)
    vectors = model.embed(["x_0 > 1", "always x_7 <= 2"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert set(model.config["range"]) == {
        "threshold", "left bound", "right bound", "nodes", "depth"
    }  # fmt: skip
    with pytest.warns(rv.RhovecWarning, match="mean error"):
        model.embed("x_0 > 1e9")
    card = (run / "model" / "README.md").read_text()
    assert "formulae.txt" in card and "thresholds x 16" in card


def test_rows_say_what_was_measured(run: Path) -> None:
    rows = json.loads((run / "evaluation.json").read_text())
    sets = {row["set"] for row in rows if "set" in row}
    assert sets == {
        "held-out families, 3 channels, seed 0", "held-out families, 8 channels, seed 0",
        "formulae.txt",
    }  # fmt: skip
    assert all(row["n"] > 0 and len(row["measure"]) > 3 for row in rows)


def test_an_exact_student_has_no_error_outside() -> None:
    kernel = rv.StlKernel(rv.BaseMeasure(3, 30), n_traces=50)

    def exact(formulae: list[Formula]) -> np.ndarray:
        values, vectors = np.linalg.eigh(kernel.gram(formulae))
        root: np.ndarray = vectors * np.sqrt(np.maximum(values, 0))
        return root

    rows = outside(exact, kernel, channels=3, families=6)
    names = [row["measure"] for row in rows]
    assert names[0] == "inside" and "bounds x 10" in names and "12 deeper" in names
    assert all(row["value"] < 1e-6 for row in rows)
    by_name = {row["measure"]: row for row in rows}
    largest = by_name["inside"]["largest_threshold"]
    assert by_name["thresholds x 16"]["largest_threshold"] == pytest.approx(16 * largest)
    assert by_name["12 deeper"]["largest_depth"] == by_name["inside"]["largest_depth"] + 12
    assert by_name["65 to 129 nodes"]["largest_size"] > 64


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--set", "lr"], "give FIELD=VALUE"),
        (["--set", "speed=3"], "give FIELD=VALUE"),
        (["--set", "steps=many"], "steps is of type int"),
        (["--preset", "huge"], "preset must be one of"),
    ],
)
def test_wrong_options(extra: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "encoder", "--out", str(tmp_path / "x"), *extra])
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "extra", [["--preset", "anchors"], ["--preset", "text"], ["--set", "vectors=anchors"]], ids=str
)
def test_decoders_that_no_model_can_hold(extra: list[str], tmp_path: Path) -> None:
    command = ["train", "decoder", "--out", str(tmp_path / "x"), "--evaluate", *extra]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "measured by `python -m reproduction decoders`" in result.output
    assert not (tmp_path / "x").exists()


def test_the_fields_are_listed(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*RUN, "--out", str(tmp_path / "x"), "--fields"])
    assert result.exit_code == 0
    assert "steps = 2  # optimiser steps" in result.output
    assert "pooling = cls  # cls, bos or mean" in result.output
    assert not (tmp_path / "x").exists()
