"""Benchmarks: all of them load, and what they share does what it says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from rhovec.evaluation import speed
from rhovec.evaluation.sets import mixture

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A benchmark, whose neighbours are found as when it runs as a script."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in ("distill", "gpu", "training"):
        pytest.importorskip("torch")
    if name == "corpus":
        pytest.importorskip("pyarrow")
    assert load(name, monkeypatch).__doc__


def test_a_record_is_numbers_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = load("common", monkeypatch)
    monkeypatch.setattr("sys.argv", ["/some/where/benchmarks/search.py", "--rows", "5"])
    facts = {"command": common.command(), "seed": 3, "machine": {"cpu": "x", "cores": 2}}
    assert common.head(facts) == (
        "Command: `python benchmarks/search.py --rows 5`; seed 3. Machine: cpu x, cores 2."
    )
    text = "\n".join(common.table(("a", "b"), [["1", "2"], ["3", "4"]]))
    assert text == "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"
    common.save("name", facts, text, tmp_path / "new")
    assert json.loads((tmp_path / "new/name.json").read_text()) == facts
    assert (tmp_path / "new/name.md").read_text() == text == capsys.readouterr().out.rstrip()


def test_calls_are_timed_after_a_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lengths = [0.0], [9.0, 3.0, 1.0, 2.0]

    def work() -> None:
        clock[0] += lengths.pop(0)

    monkeypatch.setattr(speed.time, "perf_counter", lambda: clock[0])
    found = speed.timed(work, 3)
    assert (found["s"], found["s_min"], found["s_max"]) == (2.0, 1.0, 3.0) and lengths == []


def test_formulae_of_a_file_or_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = load("common", monkeypatch)
    texts, where = common.formulae(None, 5)
    assert texts == [str(phi) for phi in mixture(5)] and "families" in where
    path = tmp_path / "own.csv"
    path.write_text('formula\n"x_0 > 1"\n"always x_1 < 2"\n')
    texts, where = common.formulae(path, 1)
    assert texts == ["x_0 > 1"] and "The first of own.csv (SHA-256 " in where
    with pytest.raises(SystemExit, match="holds 2 formulae, but 3 are needed"):
        common.formulae(path, 3)


def test_proofs_of_random_pairs_hold_on_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load("proofs", monkeypatch).on_traces(400, seed=7)
    assert found["refuted"] == 0
    assert min(found["a implies b"], found["a contradicts b"]) > 50


def test_a_false_proof_is_refuted_by_the_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = load("proofs", monkeypatch)
    monkeypatch.setattr(proofs, "impossible_cases", lambda a, b, cases: set(cases))
    assert proofs.on_traces(50, seed=7)["refuted"] > 50
