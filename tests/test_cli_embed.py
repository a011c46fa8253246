"""`rhovec embed` and `rhovec similarity`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rhovec.cli import app
from rhovec.cli.embed import COLUMNS, show
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


def test_values_side_by_side(model: Model, tmp_path: Path) -> None:
    kernel = model.kernel(n_signals=200, seed=4)
    pairs = [(0, 1), (0, 2), (1, 2)]
    want = [
        (k(FORMULAE[i], FORMULAE[j]))
        for i, j in pairs
        for k in (model.similarity, kernel.similarity, kernel.standard_error)
    ]
    options = ["--signals", 200, "--seed", 4]
    rows = list(csv.DictReader(run("similarity", *FORMULAE, *options).splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert [(r["formula"], r["other"]) for r in rows] == [
        (FORMULAE[i], FORMULAE[j]) for i, j in pairs
    ]
    got = [float(r[name]) for r in rows for name in ("model", "kernel", "standard_error")]
    assert np.allclose(got, want, atol=1e-6)
    for r in rows:
        assert float(r["difference"]) == pytest.approx(float(r["model"]) - float(r["kernel"]))

    file = tmp_path / "two.stl"
    file.write_text("\n".join(FORMULAE[:2]))
    (line,) = run("similarity", "-F", file, *options, "--json").splitlines()
    assert json.loads(line)["kernel"] == float(rows[0]["kernel"])


def test_the_table_of_a_terminal(capsys: pytest.CaptureFixture) -> None:
    show([("x > 1", "y > 2", 0.25, 0.24, 0.003, 0.01)], "N = 10")
    text = capsys.readouterr().out
    for part in ("x > 1", "0.250", "0.240 ± 0.003", "+0.010", "N = 10"):
        assert part in text


def test_warnings_and_mistakes(model: Model, tmp_path: Path) -> None:
    warning = "rhovec: warning: 1 of 1 formulae outside the range of the model's training"
    run("embed", "x_0 > 99", warning=warning)
    assert "similarity is between formulae" in refused("similarity", "x_0 > 1")
    assert "must end in .jsonl, .npy" in refused("embed", "x_0 > 1", "-o", tmp_path / "x.csv")
    assert "uses x_8" in refused("embed", "x_8 > 1")
    assert "threshold 1e+39" in refused("embed", "x_0 > 1e39")
    assert "kind" in refused("embed", "x_0 > 1", "--kind", "angle")
    assert "Schema" in refused("similarity", "speed > 1", "x_0 > 1")
    assert "is no folder" in refused("embed", "x_0 > 1", "--model", tmp_path / "none")
    assert "at least one signal" in refused("similarity", *FORMULAE, "--signals", 0)
    (tmp_path / "model" / "encoder.safetensors").write_bytes(b"")
    assert "SHA-256 differs" in refused("embed", "x_0 > 1")
