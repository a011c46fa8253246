"""`rhovec embed`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.formula.schema import SchemaChannel
from rhovec.models import model as models
from rhovec.models.model import Model, load

from .models.tiny import save_tiny

runner = CliRunner()
FORMULAE = ["always[0,10] x_0 > 0.5", "F x_4 <= 1", "x_1 > 0 until[2,5] x_2 < 1"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The default model."""
    monkeypatch.setattr(models, "DEFAULT", save_tiny(tmp_path / "model"))
    return load()


def run(*arguments: object, warning: str = "") -> str:
    result = runner.invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert warning in result.stderr
    assert result.stderr.count("\n") == (1 if warning else 0)
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, list(map(str, arguments)))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


def test_vectors_in_every_format(model: Model, tmp_path: Path) -> None:
    vectors = model.embed(FORMULAE)
    text = run("embed", *FORMULAE)
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["formula"] for line in lines] == FORMULAE
    assert (np.array([line["vector"] for line in lines], np.float32) == vectors).all()

    file = tmp_path / "formulae.stl"
    file.write_text("# three\n" + "\n".join(FORMULAE))
    assert run("embed", "-F", file, "-o", tmp_path / "x.jsonl") == ""
    assert (tmp_path / "x.jsonl").read_text() == text
    assert run("embed", "-F", file, "-o", tmp_path / "x.npy", "--model", tmp_path / "model") == ""
    assert (np.load(tmp_path / "x.npy") == vectors).all()
    run("embed", "-F", file, "-o", tmp_path / "x.npy", "--kind", "cosine")
    cosines = model.embed(FORMULAE, kind="cosine")
    assert cosines.shape != vectors.shape
    assert (np.load(tmp_path / "x.npy") == cosines).all()


def test_a_schema_gives_names_and_steps(model: Model, tmp_path: Path) -> None:
    schema = rv.Schema((SchemaChannel("speed", 30, 20),), dt=0.5)
    (tmp_path / "car.json").write_text(schema.to_json())
    text = run("embed", "always[0,2 s] speed < 50", "--schema", tmp_path / "car.json")
    assert text == run("embed", "always[0,4] x_0 < 1").replace(
        "always[0,4] x_0 < 1", "always[0,2 s] speed < 50"
    )


def test_warnings_and_mistakes(model: Model, tmp_path: Path) -> None:
    warning = "rhovec: warning: 1 of 1 formulae outside the range of the model's training"
    run("embed", "x_0 > 99", warning=warning)
    assert "must end in .jsonl, .npy" in refused("embed", "x_0 > 1", "-o", tmp_path / "x.csv")
    assert "uses x_8" in refused("embed", "x_8 > 1")
    assert "threshold 1e+39" in refused("embed", "x_0 > 1e39")
    assert "kind" in refused("embed", "x_0 > 1", "--kind", "angle")
    assert "without a device" in refused(
        "embed", "x_0 > 1", "--precision", "int8", "--device", "cpu"
    )
    assert "int8" in refused("embed", "x_0 > 1", "--precision", "int4")
    assert "give a --schema" in refused("embed", "speed > 1", "x_0 > 1")
    assert "is not a folder" in refused("embed", "x_0 > 1", "--model", tmp_path / "none")
    (tmp_path / "model" / "encoder.safetensors").write_bytes(b"")
    assert "SHA-256 differs" in refused("embed", "x_0 > 1")
