"""`rhovec mine`: from a file with labels to a requirement file, and mistakes named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app

from .mining.test_mine import drives


def write(path: Path, n: int = 40, flipped: int = 0, labels: bool = True) -> Path:
    values, good = drives(n=n, flipped=flipped)
    with path.open("w") as file:
        print("trace,time,speed,pressure" + ",verdict" * labels, file=file)
        for i, (trace, one) in enumerate(zip(values, good, strict=True)):
            for step in range(trace.shape[1]):
                cells = [f"run{i}", f"{step / 10:g}", *(f"{x:.4f}" for x in trace[:, step])]
                print(",".join([*cells, *["pass" if one else "fail"] * labels]), file=file)
    return path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["mine", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_from_a_csv_to_a_requirement_file(tmp_path: Path) -> None:
    path, out, svg = write(tmp_path / "runs.csv"), tmp_path / "m.stl", tmp_path / "m.svg"
    shown = run("-t", path, "--labels", "verdict", "-o", out, "--plot", svg)
    assert "( pressure >= " in shown and "certificate: no formula" in shown
    (requirement,) = rv.read_requirements(out, dt=0.1)
    traces = rv.read_traces(path, variables=["speed", "pressure"])
    rho = rv.robustness(requirement.formula, traces.values, variables=traces.variables)
    assert ((rho >= 0) == (np.arange(40) % 2 == 0)).all()
    assert svg.read_text().startswith("<svg")


def test_labels_in_a_file_of_their_own(tmp_path: Path) -> None:
    path, labels = write(tmp_path / "runs.csv", labels=False), tmp_path / "labels.csv"
    rows = [f"run{i};{'ok' if i % 2 == 0 else 'bad'}" for i in range(40)]
    labels.write_text("trace;label\n" + "\n".join(rows) + "\n")
    shown = run("-t", path, "--labels", labels, "--positive", "OK", "--json")
    records = [json.loads(line) for line in shown.splitlines()]
    assert records[-1]["accuracy"] == 1 and records[-1]["chosen"]
    with labels.open("a") as file:
        file.write("run99;bad\n")
    with pytest.warns(rv.RhovecWarning, match="labels for traces that were not given: run99"):
        run("-t", path, "--labels", labels, "--budget", 0)
    labels.write_text("trace,label\nrun0,ok\n")
    assert "no label for run1, run2" in run("-t", path, "--labels", labels, code=2)


def test_wrong_traces_are_explained(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.csv", flipped=3)
    shown = run("-t", path, "--labels", "verdict", "--max-size", 2)
    assert "3 of 40 traces get another label:" in shown
    assert "predicted" in shown and "pressure >= " in shown and " s" in shown


def test_one_system_and_a_start(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.csv", labels=False)
    assert "on average" in run("-t", path, "--budget", 50)
    path, out = write(tmp_path / "more.csv", flipped=3), tmp_path / "m.stl"
    run("-t", path, "--labels", "verdict", "-o", out, "--budget", 200, "--balanced")
    again = run("-t", path, "--labels", "verdict", "--start", out, "--budget", 0)
    assert "pressure" in again


def test_columns_of_text_are_left_out_and_named(tmp_path: Path) -> None:
    """A label may be any text, a number in some traces included; no other column of text is read."""
    path = write(tmp_path / "runs.csv")
    head, *rows = path.read_text().replace(",pass", ",1").replace("verdict", "ok").splitlines()
    path.write_text("\n".join([f"{head},driver,empty", *(f"{row},Ann," for row in rows)]))
    shown = run("-t", path, "--labels", "ok", "--positive", "1", "--budget", 50)
    assert "columns without numbers, left out: driver, empty" in shown and "pressure >= " in shown
    notes = ["7"] * len(rows)
    notes[3] = "seen"
    lines = [f"{row},Ann,{note}" for row, note in zip(rows, notes, strict=True)]
    path.write_text("\n".join([f"{head},driver,note", *lines]))
    shown = " ".join(run("-t", path, "--labels", "ok", code=2).split())
    assert "'seen' is not a number; correct it, or leave the column out with --variables" in shown
    run("-t", path, "--labels", "ok", "--variables", "speed,pressure", "--budget", 50)


def test_a_gap_names_the_way_to_fill_it(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.csv")
    lines = path.read_text().splitlines()
    cells = lines[5].split(",")
    cells[2] = ""
    lines[5] = ",".join(cells)
    path.write_text("\n".join(lines))
    shown = " ".join(run("-t", path, "--labels", "verdict", code=2).split())
    assert "the cell is empty; fill it in, or resample the trace" in shown and "--resample" in shown
    run("-t", path, "--labels", "verdict", "--resample", 0.1, "--budget", 50)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "verdict"], "no traces given"),
        (
            ["-t", "runs.csv", "--labels", "vredict"],
            "'vredict' is neither a file nor a column: runs.csv: there is no column 'vredict'",
        ),
        (
            ["-t", "runs.csv", "--labels", "vredict", "--variables", "speed"],
            "'vredict' is neither a file nor a column: runs.csv: there is no column 'vredict'",
        ),
        (["-t", "runs.csv", "--labels", "speed"], "has several values, or none, in 'speed'"),
        (["-t", "runs.csv", "--labels", "verdict", "--positive", "x"], "there are fail, pass"),
        (["-t", "runs.csv", "--labels", "verdict", "--cost", "fail"], "as in fail=5"),
        (["-t", "runs.csv", "--labels", "verdict", "--cost", "fail=inf"], "a positive number"),
        (
            ["-t", "runs.csv", "--labels", "verdict", "--cost", "good=2"],
            "--cost good: no trace has this label; there are fail, pass",
        ),
        (["-t", "runs.csv", "--plot", "m.svg"], "--plot goes with traces of two classes"),
        (["-t", "runs.csv", "--labels", "verdict", "--folds", "1"], "--folds must be at least 2"),
        (["-t", "runs.csv", "--labels", "verdict", "-o", "m.csv"], "must end in .stl, .txt"),
        (
            ["-t", "runs.csv", "--labels", "verdict", "--variables", "verdict"],
            "no column of numbers",
        ),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("runs.csv"))
    assert message in " ".join(run(*arguments, code=2).split())
