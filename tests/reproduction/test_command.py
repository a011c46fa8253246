"""`python -m reproduction`: what it writes, what it keeps, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reproduction import __main__ as program
from reproduction import measure, records
from reproduction.__main__ import app, command
from reproduction.paper import CLAIMS
from rhovec.errors import RhovecError
from rhovec.formula.sample import random_formulae
from rhovec.models import model as models

from ..models.tiny import save_tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture
def formulae(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of formulae; a small model is the default, and records go to the current folder."""
    monkeypatch.setattr(models, "DEFAULT", save_tiny(tmp_path / "model"))
    monkeypatch.setattr(program, "QUICK", tmp_path / "quick")
    monkeypatch.setattr(records, "FOLDER", tmp_path / "full")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "formulae.txt"
    path.write_text("\n".join(map(str, random_formulae(20, 0))))
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["claims", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert isinstance(result.exception, RhovecError)
    return str(result.exception)


def read(folder: str) -> list[dict]:
    return records.read_rows(Path(folder) / records.ROWS)


def test_a_record_grows(formulae: Path) -> None:
    text = run("fidelity", "-F", formulae, "--quick")
    for part in ("Fidelity, formulae.txt", "alignment", "> 0.9", "confirmed", "index.html"):
        assert part in text
    first = read("quick")
    given = "python -m reproduction claims fidelity --quick -F formulae.txt"
    assert {r["command"] for r in first} == {given}
    assert {r["points"] for r in first} == {100}
    assert all(r["machine"] and r["date"] for r in first)

    run("fidelity", "-F", formulae, "--quick", "--seed", 3, "--points", 50)
    both = read("quick")
    assert len(both) == 2 * len(first) and both[: len(first)] == first
    run("fidelity", "-F", formulae, "--quick", "--seed", 3)
    again = read("quick")
    assert len(again) == len(both)
    assert {r["seed"] for r in again if r["points"] == 100} == {3}

    log = [{"step": 1, "loss": 0.5}]
    records.write_run(Path("elsewhere/shipped/encoder.json"), records.Run({}, {}, log, []))
    assert "written" in run("--add", "quick/claims.json", "--out", "elsewhere")
    assert read("elsewhere") == again
    page = Path("elsewhere/index.html")
    assert "Training of the encoder: loss" in page.read_text()
    tables = Path("elsewhere/README.md").read_bytes()
    page.unlink()
    Path("elsewhere/README.md").unlink()
    assert CliRunner().invoke(app, ["page", "--out", "elsewhere"]).exit_code == 0
    assert page.exists() and Path("elsewhere/README.md").read_bytes() == tables


def test_recorded_trainings_are_shown_as_long_as_they_are_there(formulae: Path) -> None:
    row = {"measure": "alignment", "set": "formulae.txt", "n": 20, "value": 0.8, "recorded": True,
           "low": 0.7, "high": 0.9, "steps": 77, "points": 100, "pooling": "mean", "model": "gone",
           "seconds": 3.0, "parameters": 5, "ablation": "mean"}  # fmt: skip
    summary = {"equivalent": 0.1, "lexical": 0.2, "alignment": 0.3}
    rows = [
        row | {"claim": "fidelity", "shown": True},
        row | {"claim": "agreement", "measure": "random", "shown": False},
        row | {"claim": "ablations", "measure": "mean pooling", "shown": True, **summary},
    ]
    place = Path("x/ablations/mean.json")
    records.write_run(place, records.Run({}, {}, [], rows))
    run("fidelity", "-F", formulae, "--quick", "--out", "x")
    assert not any("ablation" in r for r in read("x"))
    page = Path("x/README.md").read_text()
    assert "formulae.txt, mean pooling, 77 steps" in page and "## Ablations of the training" in page
    assert "77 steps; recorded; the weights are not kept" in page
    assert "| random" not in page
    place.unlink()
    run("fidelity", "-F", formulae, "--quick", "--out", "x")
    assert "mean pooling, 77 steps" not in Path("x/README.md").read_text()


def test_every_claim_is_measured_by_default(
    formulae: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def measured(names, *_):
        asked.extend(names)
        return []

    monkeypatch.setattr(measure, "run", measured)
    run("-F", formulae, "--out", "x")
    assert asked == list(CLAIMS)


def test_a_run_that_breaks_off_keeps_what_it_has(
    formulae: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> list[dict]:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "_agreement", breaks)
    given = ["claims", "fidelity", "agreement", "-F", str(formulae)]
    assert CliRunner().invoke(app, given).exit_code
    assert {r["claim"] for r in read("full")} == {"fidelity"}


def test_mistakes(formulae: Path, tmp_path: Path) -> None:
    assert "there is no claim 'speed'; claims are fidelity" in refused("claims", "speed")
    assert "cannot be read" in refused("claims", "fidelity", "-F", tmp_path / "none.txt")
    assert "no such file" in refused("claims", "--add", tmp_path / "none.json")
    assert "one point" in refused("claims", "fidelity", "-F", formulae, "--points", 0)
    place = tmp_path / "taken"
    place.write_text("")
    wrong = refused("claims", "fidelity", "-F", formulae, "--out", place)
    assert "taken: cannot be written" in wrong
    pytest.importorskip("torch")
    assert "there is no run 'fast'; runs are base" in refused("ablations", "--only", "fast")
    assert "17 runs need more than 13 minutes" in refused("ablations", "--minutes", "1")
    assert "there is no run 'fast'; runs are prefix" in refused("decoders", "--only", "fast")


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reproduction", "claims", "speed"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("reproduction: there is no claim 'speed'")
    assert done.stderr.count("\n") == 1


def test_commands_name_files_not_places() -> None:
    given = command(["library"], "/a/b/run", 1000, 2, [Path("/c/some file.csv")], True, "cuda")
    assert given == (
        "python -m reproduction claims library --quick --model run --points 1000 --device cuda "
        "--seed 2 -F 'some file.csv'"
    )
    assert command(None, None, None, 0, None, False, None) == "python -m reproduction claims"
