"""Verdicts against what may follow a log, far more often than `make test` does.

The record goes to results/verdicts.json and results/verdicts.md.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rhovec.machine import facts

from ..check import cases

pytestmark = pytest.mark.soak

RESULTS = Path(__file__).parents[2] / "results"
COMMAND = "python -m pytest -m soak tests/soak/test_verdicts.py"
N, CONTINUATIONS, SMALL, SEED = 10_000, 100, 1000, 0


def test_no_continuation_contradicts_and_how_often_a_verdict_is_needlessly_open() -> None:
    rng = np.random.default_rng(SEED)
    outcomes: Counter[str] = Counter()
    for _ in range(N):
        phi, case = cases.random_formula(rng, int(rng.integers(1, 4))), cases.random_case(rng)
        assert not cases.contradicted(rng, phi, case, CONTINUATIONS), (str(phi), case)
        outcomes[cases.judge(phi, case).outcome] += 1
    small: Counter[str] = Counter()
    while small["formulae"] < SMALL:
        phi = cases.small_formula(rng, ["x_0"], once=False)
        if rng.random() < 0.5:
            phi = cases.small_formula(rng, ["x_0", "x_1"], once=False)
        case = cases.random_case(rng, longest=3, unknown=0.1)
        around = max(phi.horizon, phi.history)  # all that the formula depends on
        possible = cases.enumerated(phi, case, around)
        if possible is None:
            continue
        outcome = cases.judge(phi, case).outcome
        small["formulae"] += 1
        if outcome in ("holds", "violated"):
            small["decided"] += 1
            assert possible == {outcome == "holds"}, (str(phi), case)
        else:
            small["needlessly open" if len(possible) == 1 else "open"] += 1
    record = {
        "command": COMMAND, "seed": SEED, "date": time.strftime("%Y-%m-%d"), "machine": facts(),
        "cases": N, "continuations": CONTINUATIONS, "outcomes": outcomes, "small": small,
    }  # fmt: skip
    (RESULTS / "verdicts.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "verdicts.md").write_text(page(record))


def page(record: dict) -> str:
    host = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
    counts = ", ".join(f"{n:,} {outcome}" for outcome, n in record["outcomes"].most_common())
    small = record["small"]
    needless = small["needlessly open"]
    return f"""# Verdicts about logs

Command: `{record["command"]}`; seed {record["seed"]}; {record["date"]}. {host}.

- {record["cases"]:,} random formulae (all operators, ahead and back, sums with lags) on random logs \
of one to six samples with gaps, each with {record["continuations"]} random continuations on both \
sides: none contradicts a verdict or leaves its bounds. Verdicts: {counts}.
- {small["formulae"]:,} random formulae with bounded windows in which one or two variables occur twice \
each, on logs of one to three samples, against all continuations: none contradicts a verdict. \
{small["decided"]:,} are decided, {small["open"]:,} are rightly open, and {needless:,} are open \
although all continuations agree: {needless / small["formulae"]:.1%} of all, and \
{needless / (needless + small["open"]):.1%} of those called open.
"""
