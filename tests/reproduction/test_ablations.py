"""Trainings compared: what a run leaves, that it goes on where it stopped, and where it is shown."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rhovec.cli.evaluate import compared
from rhovec.evaluation import report
from rhovec.evaluation.sets import held_out

pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "comparison.py"
SMALL = {"width": 16, "layers": 1, "heads": 1, "dimension": 8, "signals": 16, "batch": 64}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("comparison", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["comparison"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def chosen(script: ModuleType) -> Any:
    """Two runs: one that is a line of the table alone, one that has a place among the claims."""
    return {
        name: (words, preset, changes | SMALL)
        for name, (words, preset, changes) in script.runs("tiny").items()
        if name in ("focal", "shipped-mean")
    }


def test_records(script: ModuleType, chosen: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "comparison"
    judge = script.Judge([held_out(3, pairs=6)], (), 32, quick=True)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(script, "measured", dies)
        with pytest.raises(KeyboardInterrupt):
            script.compare(folder, chosen, "cpu", judge, 2, 0.0)
    assert (folder / "focal" / "checkpoint.json").exists()
    assert not (folder / "shipped-mean").exists()
    # The steps of a run that has begun stay, whatever is asked for.
    script.compare(folder, chosen, "cpu", judge, 3, 0.0)
    steps = {
        name: json.loads((folder / name / "config.json").read_text())["steps"] for name in chosen
    }
    assert steps == {"focal": 2, "shipped-mean": 3}
    for name in chosen:
        there = {path.name for path in (folder / name).iterdir()}
        assert there == {
            "config.json", "environment.json", "log.jsonl", "curves.png", "evaluation.json"
        }  # fmt: skip
        rows = report.read_rows(folder / name / "evaluation.json")
        whole = {"probing"} if name == "shipped-mean" else set()
        assert {row["claim"] for row in rows} == {"fidelity", "agreement", "comparison"} | whole
        for row in rows:
            assert row["recorded"] and row["seconds"] > 0 and row["n"] >= 0 and row["machine"]
            assert row["steps"] == steps[name] and f"--set steps={steps[name]}" in row["command"]
    text = (folder / "README.md").read_text()
    assert (
        "[mean pooling, from the shipped weights](shipped-mean/)" in text
        and "[the paper's loss](focal/)" in text
    )

    before = (folder / "focal" / "evaluation.json").stat().st_mtime_ns
    script.compare(folder, chosen, "cpu", judge, 3, 0.0)  # nothing is left to do
    assert (folder / "focal" / "evaluation.json").stat().st_mtime_ns == before

    rows = compared(folder)
    shown = {(row["comparison"], row["claim"]) for row in rows}
    assert shown == {
        ("focal", "comparison"),
        *(("shipped-mean", c) for c in ("comparison", "fidelity", "agreement", "probing")),
    }
    tables = {(line.claim, line.where) for line in report.lines(rows)}
    where = judge.sets[0].name
    assert ("comparison", where) in tables and (
        "fidelity",
        f"{where}, mean pooling, 3 steps",
    ) in tables


def test_steps_follow_from_the_pace(script: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    config = script.PRESETS["tiny"]
    monkeypatch.setattr(script, "pace", lambda config: 0.25)
    planned = script.planned(tmp_path, config, None, 20.0)
    assert (planned.steps, planned.warmup, planned.every, planned.validate) == (80, 8, 2, 20)
    assert script.planned(tmp_path, config, 4, 20.0).steps == 4


def test_a_trial_ends_when_the_pace_is_known(script: ModuleType, monkeypatch: Any) -> None:
    """Against a training whose first steps take ten times as long as the others."""
    clock = [0.0]

    def train(config: Any, folder: str, report: Any) -> None:
        for step in range(1, config.steps + 1):
            clock[0] += 10 * pace if step <= 15 else pace
            if step % config.every == 0:
                report({"step": step})

    monkeypatch.setattr(script, "train", train)
    monkeypatch.setattr(script.time, "perf_counter", lambda: clock[0])
    for pace, steps in ((0.001, 100), (0.5, 35)):
        start = clock[0]
        assert script.pace(script.PRESETS["tiny"]) == pytest.approx(pace)
        assert clock[0] - start == pytest.approx((9 * 15 + steps) * pace)


def test_the_papers_steps_are_those_of_its_preset(script: ModuleType) -> None:
    paper = script.PRESETS["paper"]
    assert (paper.steps, paper.points) == (report.PAPER_STEPS, report.PAPER_POINTS)
