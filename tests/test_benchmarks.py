"""Benchmarks: all of them load, and what they share does what it says."""

from __future__ import annotations

import importlib
import json
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import numpy as np
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


def test_the_benchmark_of_search_goes_on_where_it_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = load("search", monkeypatch)
    monkeypatch.setattr(search, "SHARD", 50)
    given = Namespace(
        rows=120, seed=0, model="", traces=20, folder=tmp_path, stored="int8", queries=9, judged=3
    )
    search.embed(given)
    shards = sorted(tmp_path.glob("vectors-*.npy"))
    before = [np.load(file) for file in shards]
    assert [len(vectors) for vectors in before] == [50, 50, 20]
    shards[1].unlink()
    changed = [file.stat().st_mtime_ns for file in shards[::2]]
    assert search.embed(given)["embed_s"] > 0
    assert [file.stat().st_mtime_ns for file in shards[::2]] == changed
    assert all(np.array_equal(np.load(file), old) for file, old in zip(shards, before, strict=True))

    built = search.build(given)
    assert 0 < built["texts_mb"] < built["disk_mb"]
    found = search.query(given)
    search.truth(given)
    places, scores = (np.load(tmp_path / f"truth-{name}.npy") for name in ("ids", "scores"))
    exact = np.load(tmp_path / "queries.npy") @ np.concatenate(before).T
    assert np.allclose(scores, -np.sort(-exact, axis=1)) and places.min() == 1
    assert search.recall(found["vectors"]["ids"], places, scores, 1e-2) > 0.9
    assert len(search.judge(given)["ranks"]) == 3

    np.save(shards[0], before[1])  # vectors of other formulae
    with pytest.raises(AssertionError, match="other formulae"):
        search.build(given)
