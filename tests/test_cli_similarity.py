"""`rhovec similarity`: the exact kernel, a model, or both; the same numbers in every format."""

from __future__ import annotations

import csv
import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.cli.similarity import Result, show
from rhovec.kernel import BooleanKernel, StlKernel
from rhovec.models import model as models
from rhovec.models.model import Model, load
from rhovec.traces import BaseMeasure, TraceMeasure

from .models.tiny import save_tiny

runner = CliRunner()
FORMULAE = ["always[0,5] x_0 > 0", "eventually x_0 > 0.5 and x_1 < 1", "x_0 > 0 or x_4 > 0"]
PAIRS = list(combinations(range(3), 2))
BY_KERNEL = ["--by", "kernel"]


def run(*arguments: object) -> str:
    result = runner.invoke(app, ["similarity", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no progress bar outside a terminal
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, ["similarity", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A tiny model in the place of the shipped one."""
    monkeypatch.setattr(models, "DEFAULT", save_tiny(tmp_path / "model"))
    return load()


def test_every_format_holds_the_kernel(tmp_path: Path) -> None:
    options = [
        *FORMULAE,
        *BY_KERNEL,
        "--n-traces",
        200,
        "--points",
        30,
        "--seed",
        7,
        "--sigma2",
        0.5,
    ]
    kernel = StlKernel(BaseMeasure(5, 30), 200, 0.5, 7)
    gram, errors = kernel.gram(FORMULAE), kernel.gram_errors(FORMULAE)
    text = run(*options)
    rows = list(csv.DictReader(text.splitlines()))
    assert list(rows[0]) == ["formula", "other", "kernel", "standard_error"]
    assert [(r["formula"], r["other"]) for r in rows] == [
        (FORMULAE[i], FORMULAE[j]) for i, j in PAIRS
    ]
    assert [float(r["kernel"]) for r in rows] == [gram[p] for p in PAIRS]
    assert [float(r["standard_error"]) for r in rows] == [errors[p] for p in PAIRS]
    lines = [json.loads(line) for line in run(*options, "--json", "--no-errors").splitlines()]
    assert [tuple(line) for line in lines] == [("formula", "other", "kernel")] * 3
    assert [line["kernel"] for line in lines] == [gram[p] for p in PAIRS]

    for name in ("k.csv", "k.json", "k.jsonl", "k.npy"):
        assert run(*options, "-o", tmp_path / name) == ""
    assert (tmp_path / "k.csv").read_text() == text
    assert (tmp_path / "k.jsonl").read_text() == run(*options, "--json")
    assert np.array_equal(np.load(tmp_path / "k.npy"), gram)
    found = json.loads((tmp_path / "k.json").read_text())
    assert found["formulae"] == FORMULAE
    assert [found["facts"][k] for k in ("traces", "points", "seed", "sigma2")] == [200, 30, 7, 0.5]
    assert np.array_equal(found["kernel"], gram)
    assert np.array_equal(found["standard_error"], errors)
    assert len(list(tmp_path.iterdir())) == 4


def test_the_model_beside_the_kernel(model: Model, tmp_path: Path) -> None:
    kernel = model.kernel(n_traces=200, seed=4)
    want = [
        (k(FORMULAE[i], FORMULAE[j]))
        for i, j in PAIRS
        for k in (model.similarity, kernel.similarity, kernel.standard_error)
    ]
    options = ["--n-traces", 200, "--seed", 4]
    rows = list(csv.DictReader(run(*FORMULAE, *options).splitlines()))
    columns = ["formula", "other", "model", "kernel", "standard_error", "difference"]
    assert list(rows[0]) == columns
    got = [float(r[name]) for r in rows for name in columns[2:5]]
    assert np.allclose(got, want, atol=1e-6)
    for r in rows:
        assert float(r["difference"]) == pytest.approx(float(r["model"]) - float(r["kernel"]))

    file = tmp_path / "two.stl"
    file.write_text("\n".join(FORMULAE[:2]))
    (line,) = run("-F", file, *options, "--json").splitlines()
    assert json.loads(line)["kernel"] == float(rows[0]["kernel"])
    alone = list(csv.DictReader(run(*FORMULAE, "--by", "model").splitlines()))
    assert [list(row) for row in alone] == [["formula", "other", "model"]] * 3
    assert [row["model"] for row in alone] == [row["model"] for row in rows]
    run(*FORMULAE, *options, "-o", tmp_path / "both.npy")
    similarity = model.similarity(FORMULAE, FORMULAE)
    both = np.load(tmp_path / "both.npy")
    assert np.allclose(both, [similarity, kernel.gram(FORMULAE)], atol=1e-6)
    run(*FORMULAE, "--by", "model", "-o", tmp_path / "one.npy")
    assert np.array_equal(np.load(tmp_path / "one.npy"), both[0].astype(np.float32))


def test_a_schema_gives_names_to_both(model: Model, tmp_path: Path) -> None:
    channel = {"expression": "speed", "mean": 50, "std": 25, "unit": "km/h"}
    schema = rv.Schema.from_json({"channels": [channel], "dt": 0.5})
    (tmp_path / "car.json").write_text(schema.to_json())
    named = run("G[0,1] speed < 100", "F speed > 75", "--schema", tmp_path / "car.json")
    plain = run("G[0,2] x_0 < 2", "F x_0 > 1")
    assert named.splitlines()[1].split(",")[-4:] == plain.splitlines()[1].split(",")[-4:]


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
    options = ["-t", file, "--dt", "auto", "--discrete", "gear", "--boolean"]
    run(*texts, *options, "-o", tmp_path / "k.json")
    found = json.loads((tmp_path / "k.json").read_text())
    parsed = [rv.parse(text, dt=0.5, discrete=["gear"]) for text in texts]
    kernel = BooleanKernel(TraceMeasure.read(file))
    assert np.array_equal(found["kernel"], kernel.gram(parsed))
    facts = found["facts"]
    assert (facts["kernel"], facts["traces"], facts["points"]) == ("boolean", 20, 6)
    run(*texts, *options, "--n-traces", 9, "-o", tmp_path / "k.json")
    assert json.loads((tmp_path / "k.json").read_text())["facts"]["traces"] == 9


@pytest.mark.parametrize("n", [3, 60])
def test_heatmap(tmp_path: Path, n: int) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "k.png"
    texts = [f"eventually[0,{i % 7}] x_{i % 3} > {i / n}" for i in range(n)]
    run(*texts, *BY_KERNEL, "--n-traces", 50, "--plot", picture)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [f.name for f in tmp_path.iterdir()] == ["k.png"]


def test_the_table_of_a_terminal(capsys: pytest.CaptureFixture) -> None:
    facts = {"kernel": "robustness", "traces": 10, "points": 5, "seed": 0, "sigma2": 0.2}
    facts["model"] = "abc"
    model, gram = np.array([[1, 0.26], [0.26, 1]]), np.array([[1, 0.25], [0.25, 1]])
    values = {"model": model, "kernel": gram, "standard_error": gram / 100}
    both = [rv.Requirement(rv.parse(text), text=text) for text in ("x > 1", "y > 2")]
    show(Result(both, values, facts))
    text = " ".join(capsys.readouterr().out.split())
    for part in ("x > 1", "0.260", "0.250 ± 0.003", "+0.010", "N = 10", "model abc"):
        assert part in text
    show(Result(both, {"kernel": gram}, facts))
    text = capsys.readouterr().out
    assert "0.250" in text
    assert "±" not in text


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(*arguments: object) -> str:
        return refused(*arguments, "x_0 > 7", *BY_KERNEL)

    assert "similarity is between formulae" in refused("x_0 > 1")
    assert "'speed > 1' uses speed, but the measure has x_0" in kernel("speed > 1")
    assert "give --traces that have it, or a --schema" in kernel("speed > 1")
    assert "is constant" in kernel("true")
    assert kernel("x_0 > 1", "--sigma2", 0).startswith("--sigma2 must be positive")
    assert "at least one trace" in kernel("x_0 > 1", "--n-traces", 0)
    assert "one point" in kernel("x_0 > 1", "--points", 0)
    assert kernel("x_0 > 1", "--seed", -1).startswith("--seed must not be negative")
    assert "must end in .csv, .jsonl, .parquet, .json, .npy" in kernel(
        "x_0 > 1", "-o", tmp_path / "k.txt"
    )
    assert "must end in .png" in kernel("x_0 > 1", "--plot", tmp_path / "k.pdf")
    assert "--dt auto needs a time column" in kernel("x_0 > 1", "--dt", "auto")
    assert "--points goes with --by kernel" in refused("x_0 > 1", "x_0 > 2", "--points", 5)
    assert "--boolean goes with --by kernel" in refused(*FORMULAE, "--by", "both", "--boolean")
    assert "--space goes with --by model" in kernel("x_0 > 1", "--model", "folder")
    file = tmp_path / "a.csv"
    file.write_text("x_0\n1\n2\n")
    assert "--points goes with random" in kernel("x_0 > 0", "-t", file, "--points", 5)
    assert "2 traces were asked for" in kernel("x_0 > 0", "-t", file, "--n-traces", 2)
    assert "--traces goes with --by kernel" in refused(*FORMULAE, "-t", file, "--by", "model")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "rhovec[plots]"' in kernel(
        "x_0 > 0", "--n-traces", 5, "--plot", tmp_path / "k.png"
    )


def test_a_model_that_lacks_what_is_asked(model: Model) -> None:
    assert refused("speed > 1", "x_0 > 1").endswith("give a --schema")
    assert "at least one trace" in refused(*FORMULAE, "--n-traces", 0)
