"""Ablations: what a run leaves, that it goes on where it stopped, and where it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from reproduction import ablations, paper
from reproduction.lines import lines
from reproduction.records import ABLATIONS, ablation_rows, read_run, read_runs
from rhovec.evaluation.sets import held_out

SMALL = {"width": 16, "layers": 1, "heads": 1, "dimension": 8, "traces": 16, "batch": 64}


@pytest.fixture
def chosen() -> Any:
    """Two runs: one that is only a line of the table, one that is shown among the claims, too."""
    return {
        name: (words, preset, changes | SMALL)
        for name, (words, preset, changes) in ablations.runs("tiny").items()
        if name in ("focal", "shipped-mean")
    }


def test_records(chosen: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder, runs = tmp_path / "ablations", tmp_path / "runs"
    judge = ablations.Judge([held_out(3, pairs=6)], (), 32, quick=True)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ablations, "measured", dies)
        with pytest.raises(KeyboardInterrupt):
            ablations.ablate(folder, runs, chosen, "cpu", judge, 2, 0.0)
    assert (runs / "focal" / "checkpoint.json").exists()
    assert not folder.exists()
    # A run that has begun keeps its steps, whatever is asked for.
    ablations.ablate(folder, runs, chosen, "cpu", judge, 3, 0.0)
    assert [*runs.iterdir()] == []
    found = read_runs(folder)
    steps = {name: run.config["steps"] for name, run in found.items()}
    assert steps == {"focal": 2, "shipped-mean": 3}
    for name, run in found.items():
        assert run.log[-1]["step"] == steps[name] and run.environment["torch"]
        whole = {"probing"} if name == "shipped-mean" else set()
        assert {row["claim"] for row in run.rows} == {"fidelity", "agreement", ABLATIONS} | whole
        for row in run.rows:
            assert row["recorded"] and row["seconds"] > 0 and row["n"] >= 0 and row["machine"]
            assert row["steps"] == steps[name] and f"--set steps={steps[name]}" in row["command"]

    before = (folder / "focal.json").stat().st_mtime_ns
    ablations.ablate(folder, runs, chosen, "cpu", judge, 3, 0.0)  # nothing is left to do
    assert (folder / "focal.json").stat().st_mtime_ns == before

    rows = ablation_rows(found.values())
    assert {(row["ablation"], row["claim"]) for row in rows} == {
        ("focal", ABLATIONS),
        *(("shipped-mean", c) for c in (ABLATIONS, "fidelity", "agreement", "probing")),
    }
    tables = {
        (line.claim, line.where) for line in lines(r for r in rows if r["claim"] != ABLATIONS)
    }
    assert ("fidelity", f"{judge.sets[0].name}, mean pooling, 3 steps") in tables
    assert read_run(folder / "focal.json").config["loss"] == "focal"


def test_steps_follow_from_the_pace(tmp_path: Path, monkeypatch: Any) -> None:
    config = ablations.PRESETS["tiny"]
    monkeypatch.setattr(ablations, "pace", lambda config: 0.25)
    planned = ablations.planned(tmp_path, config, None, 20.0)
    assert (planned.steps, planned.warmup, planned.every, planned.validate) == (80, 8, 1, 10)
    assert ablations.planned(tmp_path, config, None, 1e6).steps == config.steps
    assert ablations.planned(tmp_path, config, 4, 20.0).steps == 4


def test_a_trial_ends_when_the_pace_is_known(monkeypatch: Any) -> None:
    """Against a training whose first steps take ten times as long as the others."""
    clock = [0.0]

    def train(config: Any, folder: str, report: Any) -> None:
        for step in range(1, config.steps + 1):
            clock[0] += 10 * pace if step <= 15 else pace
            if step % config.every == 0:
                report({"step": step})

    monkeypatch.setattr(ablations, "train", train)
    monkeypatch.setattr(ablations.time, "perf_counter", lambda: clock[0])
    for pace, steps in ((0.001, 100), (0.5, 35)):
        start = clock[0]
        assert ablations.pace(ablations.PRESETS["tiny"]) == pytest.approx(pace)
        assert clock[0] - start == pytest.approx((9 * 15 + steps) * pace)


def test_the_papers_steps_are_those_of_its_preset() -> None:
    preset = ablations.PRESETS["paper"]
    assert (preset.steps, preset.points) == (paper.STEPS, paper.POINTS)
