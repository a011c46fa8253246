"""`rhovec evaluate`: what it writes, what it keeps, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhovec.cli import app
from rhovec.cli.evaluate import command, machine
from rhovec.evaluation import claims
from rhovec.formula.sample import random_formulae
from rhovec.models import model as models

from .models.tiny import save_tiny

runner = CliRunner()


@pytest.fixture
def formulae(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of formulae, beside a small model that is the default, where commands run."""
    monkeypatch.setattr(models, "DEFAULT", save_tiny(tmp_path / "model"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "formulae.txt"
    path.write_text("\n".join(map(str, random_formulae(20, 0))))
    return path


def run(*arguments: object) -> str:
    result = runner.invoke(app, ["evaluate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, ["evaluate", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[-1].removeprefix("rhovec: ")


def read(path: str) -> list[dict]:
    return json.loads(Path(path).read_text())


def test_a_record_grows(formulae: Path) -> None:
    text = run("fidelity", "-F", formulae, "--quick")
    for part in ("Fidelity, formulae.txt", "alignment", "> 0.9", "confirmed", "index.html"):
        assert part in text
    first = read("results/quick/evaluation.json")
    assert {r["command"] for r in first} == {"rhovec evaluate fidelity --quick -F formulae.txt"}
    assert {r["points"] for r in first} == {100}
    assert all(r["machine"] and r["date"] for r in first)

    run("fidelity", "-F", formulae, "--quick", "--seed", 3, "--points", 50)
    both = read("results/quick/evaluation.json")
    assert len(both) == 2 * len(first) and both[: len(first)] == first
    run("fidelity", "-F", formulae, "--quick", "--seed", 3)
    again = read("results/quick/evaluation.json")
    assert len(again) == len(both)
    assert {r["seed"] for r in again if r["points"] == 100} == {3}

    (Path("elsewhere/encoder")).mkdir(parents=True)
    Path("elsewhere/encoder/log.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    assert "written" in run("--add", "results/quick/evaluation.json", "--out", "elsewhere")
    added = read("elsewhere/evaluation.json")
    assert added == [r | {"recorded": True} for r in again]
    assert {"README.md", "index.html", "figures"} <= {p.name for p in Path("elsewhere").iterdir()}
    assert Path("elsewhere/figures/curve-loss.png").exists()


def test_recorded_trainings_are_shown_as_long_as_they_are_there(formulae: Path) -> None:
    place = Path("x/comparison/mean/evaluation.json")
    place.parent.mkdir(parents=True)
    row = {"measure": "alignment", "set": "formulae.txt", "n": 20, "value": 0.8, "recorded": True,
           "low": 0.7, "high": 0.9, "steps": 77, "points": 100, "pooling": "mean", "model": "gone",
           "comparison": "mean"}  # fmt: skip
    rows = [
        row | {"claim": "fidelity", "shown": True},
        row | {"claim": "agreement", "measure": "random", "shown": False},
        row | {"claim": "comparison", "measure": "mean pooling", "equivalent": 0.1, "shown": True},
    ]
    place.write_text(json.dumps(rows))
    run("fidelity", "-F", formulae, "--quick", "--out", "x")
    found = read("x/evaluation.json")
    assert [r["claim"] for r in found if r.get("comparison")] == ["fidelity", "comparison"]
    page = Path("x/README.md").read_text()
    assert "formulae.txt, mean pooling, 77 steps" in page and "Trainings compared" in page
    assert "77 steps; recorded; the weights are not kept" in page
    place.unlink()
    run("fidelity", "-F", formulae, "--quick", "--out", "x")
    assert not any(r.get("comparison") for r in read("x/evaluation.json"))


def test_every_claim_is_asked_for_by_default(
    formulae: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def measured(names, *_):
        asked.extend(names)
        return []

    monkeypatch.setattr(claims, "run", measured)
    run("-F", formulae, "--out", "x")
    assert asked == list(claims.MEASURED)


def test_a_run_that_breaks_off_keeps_what_it_has(
    formulae: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> list[dict]:
        raise KeyboardInterrupt

    monkeypatch.setattr(claims, "_agreement", breaks)
    assert runner.invoke(app, ["evaluate", "fidelity", "agreement", "-F", str(formulae)]).exit_code
    assert {r["claim"] for r in read("results/evaluation.json")} == {"fidelity"}


def test_mistakes(formulae: Path, tmp_path: Path) -> None:
    assert "there is no claim 'speed'; claims are fidelity" in refused("speed")
    assert "cannot be read" in refused("fidelity", "-F", tmp_path / "none.txt")
    assert "no such file" in refused("--add", tmp_path / "none.json")
    assert "is no folder" in refused("fidelity", "--model", tmp_path / "none")
    assert "one point" in refused("fidelity", "-F", formulae, "--points", 0)
    place = tmp_path / "taken"
    place.write_text("")
    assert "taken: cannot be written" in refused("fidelity", "-F", formulae, "--out", place)


def test_commands_name_files_not_places() -> None:
    given = command(["library"], "/a/b/run", 1000, 2, [Path("/c/some file.csv")], True, "cuda")
    assert given == (
        "rhovec evaluate library --quick --model run --points 1000 --device cuda --seed 2 "
        "-F 'some file.csv'"
    )
    assert command(None, None, None, 0, None, False, None) == "rhovec evaluate"
    assert "Python 3" in machine(None) and "torch" in machine("cpu")
