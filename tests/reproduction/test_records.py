"""Records: what is written is read again, and what is no record is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reproduction.records import (
    ABLATIONS,
    FOLDER,
    Run,
    ablation_rows,
    read_rows,
    read_run,
    read_runs,
    write_rows,
    write_run,
)
from reproduction.trainings import ablation_table, decoder_table
from rhovec.errors import RhovecError


def row(**values: Any) -> dict[str, Any]:
    return {"claim": "fidelity", "measure": "alignment", "set": "s", "n": 9, "value": 0.95} | values


ROWS = [
    row(command="a", date="1"),
    row(command="a", date="1", measure="uniformity", kernel_value=None, value=None),
    row(command="b", date="1", value=1 / 3),
    row(command="a", date="1", measure="loss", n=True),
]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "some" / "rows.json"
    assert read_rows(path) == []
    write_rows(path, ROWS)
    found = read_rows(path)
    assert [found[i] for i in (0, 1, 3, 2)] == ROWS  # rows of one run stand together
    assert path.read_text().count('"command": "a"') == 1
    write_rows(path, [])
    assert read_rows(path) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"claim": "x"}]', '[{"rows": [{"claim": "speed", "measure": "x"}]}]']
)
def test_a_file_that_holds_no_rows(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RhovecError, match=r"x\.json: holds"):
        read_rows(tmp_path / "x.json")


def test_a_training_comes_back(tmp_path: Path) -> None:
    log = [{"step": 1, "loss": 0.123456789}, {"step": 2, "loss": 0.1, "valid_loss": 2.0}]
    run = Run({"steps": 2}, {"gpu": "x"}, log, ROWS)
    write_run(tmp_path / "one.json", run)
    found = read_runs(tmp_path)["one"]
    assert found == run._replace(
        log=[{"step": 1, "loss": 0.12346}, log[1]], rows=[ROWS[0], ROWS[1], ROWS[3], ROWS[2]]
    )
    for text in ("[]", "{}", '{"config": {}, "environment": {}, "log": 1, "rows": []}'):
        (tmp_path / "one.json").write_text(text)
        with pytest.raises(RhovecError, match="is no record of a training"):
            read_run(tmp_path / "one.json")


def test_the_kept_records_are_readable_and_complete() -> None:
    """Every record has what is needed to run it again, and the tables can be made from them."""
    assert len(read_rows(FOLDER / "claims.json")) > 600
    ablations = read_runs(FOLDER / "ablations")
    decoders = read_runs(FOLDER / "decoders")
    shipped = read_runs(FOLDER / "shipped")
    assert {"base", "paper", "points-1000"} <= set(ablations) and len(decoders) == 4
    assert {"encoder", "decoder"} <= set(shipped)
    for run in [*ablations.values(), *decoders.values(), *shipped.values()]:
        assert run.config["steps"] == run.log[-1]["step"] and run.rows
        assert {"commit", "command", "python", "torch"} <= set(run.environment)
        json.dumps(run, allow_nan=False)
    rows = [row for row in ablation_rows(ablations.values()) if row["claim"] == ABLATIONS]
    _, tables = ablation_table(rows)
    assert [len(table.body) for table in tables] == [len(ablations)] * 3
    _, tables = decoder_table([row for run in decoders.values() for row in run.rows])
    assert [len(table.body) for table in tables] == [5]
