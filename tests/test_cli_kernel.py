"""`rhovec kernel`: the same numbers in every format, the picture, and mistakes named."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.cli.kernel import show
from rhovec.kernel import BooleanKernel, StlKernel
from rhovec.signals import BaseMeasure, Trajectories

runner = CliRunner()
FORMULAE = ["always[0,5] x_0 > 0", "eventually x_0 > 0.5 and x_1 < 1", "x_0 > 0 or x_4 > 0"]


def run(*arguments: object) -> str:
    result = runner.invoke(app, ["kernel", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no progress bar outside a terminal
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, ["kernel", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


def test_every_format_holds_the_matrix(tmp_path: Path) -> None:
    options = [*FORMULAE, "--signals", 200, "--points", 30, "--seed", 7, "--sigma2", 0.5]
    kernel = StlKernel(BaseMeasure(5, 30), 200, 0.5, 7)
    gram, errors = kernel.gram(FORMULAE), kernel.gram_errors(FORMULAE)
    text = run(*options)
    rows = list(csv.reader(text.splitlines()))
    assert rows[0] == ["formula", *FORMULAE]
    assert [row[0] for row in rows[1:]] == FORMULAE
    assert np.array_equal(np.array([row[1:] for row in rows[1:]], float), gram)

    found = json.loads(run(*options, "--json", "--errors"))
    assert found["formulae"] == FORMULAE
    assert [found[k] for k in ("signals", "points", "seed", "sigma2")] == [200, 30, 7, 0.5]
    assert np.array_equal(found["gram"], gram)
    assert np.array_equal(found["standard_errors"], errors)

    pairs = list(csv.DictReader(run(*options, "--errors").splitlines()))
    assert [(p["formula"], p["other"]) for p in pairs] == [
        (a, b) for a in FORMULAE for b in FORMULAE
    ]
    assert [float(p["kernel"]) for p in pairs] == gram.ravel().tolist()
    assert [float(p["standard_error"]) for p in pairs] == errors.ravel().tolist()

    for name in ("k.csv", "k.json", "k.npy"):
        assert run(*options, "-o", tmp_path / name) == ""
    assert run(*options, "--errors", "-o", tmp_path / "both.npy") == ""
    assert (tmp_path / "k.csv").read_text() == text
    assert np.array_equal(json.loads((tmp_path / "k.json").read_text())["gram"], gram)
    assert np.array_equal(np.load(tmp_path / "k.npy"), gram)
    assert np.array_equal(np.load(tmp_path / "both.npy"), [gram, errors])
    assert len(list(tmp_path.iterdir())) == 4


def test_traces_and_satisfaction(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["trace,time,speed,gear"]
    lines += [
        f"{i},{t / 2},{rng.normal(30, 20)},{rng.integers(1, 4)}"
        for i in range(20)
        for t in range(6)
    ]
    file = tmp_path / "drive.csv"
    file.write_text("\n".join(lines))
    texts = ["always[0,1.5] speed < 50", "gear == 2 -> eventually[0,1] speed > 30"]
    options = ["-t", file, "--dt", "auto", "--discrete", "gear", "--json", "--boolean"]
    found = json.loads(run(*texts, *options))
    parsed = [rv.parse(text, dt=0.5, discrete=["gear"]) for text in texts]
    kernel = BooleanKernel(Trajectories.read(file))
    assert np.array_equal(found["gram"], kernel.gram(parsed))
    assert (found["kernel"], found["signals"], found["points"]) == ("boolean", 20, 6)
    assert json.loads(run(*texts, *options, "--signals", 9))["signals"] == 9


@pytest.mark.parametrize("n", [3, 60])
def test_heatmap(tmp_path: Path, n: int) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "k.png"
    texts = [f"eventually[0,{i % 7}] x_{i % 3} > {i / n}" for i in range(n)]
    run(*texts, "--signals", 50, "--plot", picture)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [f.name for f in tmp_path.iterdir()] == ["k.png"]


def test_the_table_of_a_terminal(capsys: pytest.CaptureFixture) -> None:
    facts = {"kernel": "robustness", "signals": 10, "points": 5, "seed": 0, "sigma2": 0.2}
    gram = np.array([[1, 0.25], [0.25, 1]])
    show(gram, gram / 100, ["x > 1", "y > 2"], facts)
    text = capsys.readouterr().out
    assert "x > 1" in text
    assert "0.250" in text
    assert "N = 10" in " ".join(text.split())


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'speed > 1' uses speed, but the measure has x_0" in refused("speed > 1")
    assert "is constant" in refused("x_0 > 1", "true")
    assert "sigma2 must be positive" in refused("x_0 > 1", "--sigma2", 0)
    assert "at least one signal" in refused("x_0 > 1", "--signals", 0)
    assert "one point" in refused("x_0 > 1", "--points", 0)
    assert "seed must not be negative" in refused("x_0 > 1", "--seed", -1)
    assert "must end in .csv, .json, .npy" in refused("x_0 > 1", "-o", tmp_path / "k.txt")
    assert "must end in .png" in refused("x_0 > 1", "--plot", tmp_path / "k.pdf")
    assert "--dt auto needs a time column" in refused("x_0 > 1", "--dt", "auto")
    file = tmp_path / "a.csv"
    file.write_text("x_0\n1\n2\n")
    assert "--points goes with random" in refused("x_0 > 0", "-t", file, "--points", 5)
    assert "2 trajectories were asked for" in refused("x_0 > 0", "-t", file, "--signals", 2)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "rhovec[plots]"' in refused(
        "x_0 > 0", "--signals", 5, "--plot", tmp_path / "k.png"
    )
