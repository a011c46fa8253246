"""Learning model checking: the regression, and what its errors are compared with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from reproduction import checking


def test_regression_finds_a_smooth_function_and_leaves_noise() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 300)
    gram = np.exp(-((x[:, None] - x) ** 2))
    for target, worst in ((np.sin(2 * x), 0.02), (rng.normal(size=300), 0.9)):
        found = checking.regress(gram[:200, :200], gram[200:, :200], target[:200])
        error = np.abs(found - target[200:]).mean()
        assert error < worst if worst < 0.5 else error > 0.5


def test_a_record_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["checking", "--quick", "--out", str(tmp_path)])
    checking.main()
    facts = json.loads((tmp_path / "checking.json").read_text())
    assert len(facts["processes"]) == 5
    for row in facts["processes"].values():
        assert row["simulation"]["100"] < row["simulation"]["30"] < row["simulation"]["10"]
        assert 0 < row["regression"] < row["constant"] * 1.2
        assert row["effective"] == pytest.approx(
            10 * (row["simulation"]["10"] / row["regression"]) ** 2
        )
    own, foreign = facts["processes"]["mu0"], facts["processes"]["isomerization"]
    assert own["effective"] > foreign["effective"]
    assert "effective trajectories" in (tmp_path / "checking.md").read_text()
