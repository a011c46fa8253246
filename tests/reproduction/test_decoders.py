"""Decoders: what a run leaves, and that it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

import rhovec as rv
from reproduction import decoders
from reproduction.__main__ import app
from reproduction.records import read_runs
from rhovec.errors import RhovecError

from ..models.tiny import save_tiny

SMALL = {
    "batch": 16, "width": 16, "layers": 1, "heads": 1, "length": 160, "workers": 1, "traces": 32,
    "shown": 2,
}  # fmt: skip


def test_records(tmp_path: Path, monkeypatch: Any) -> None:
    requests = tmp_path / "own.txt"
    requests.write_text("x_0 > 1\nalways[0,5] x_1 < 2\neventually x_2 >= 0\n")
    monkeypatch.setattr(decoders, "TINY", SMALL)
    folder = tmp_path / "out" / "decoders"
    given = {
        "--only": "prefix-neural", "--steps": 2, "--text-steps": 3, "--n": 3, "--traces": 1000,
        "--model": save_tiny(tmp_path / "model"), "--formulae": requests, "--out": tmp_path / "out",
    }  # fmt: skip
    words = ["decoders", "--tiny", "--only", "text-anchors"]
    command = [*words, *(str(word) for option in given.items() for word in option)]

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(decoders, "answers", dies)
        assert CliRunner().invoke(app, command).exit_code
    assert (tmp_path / "out/runs/text-anchors/checkpoint.json").exists()
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = read_runs(folder)
    for name, steps in (("text-anchors", 3), ("prefix-neural", 2)):
        rows = found[name].rows
        assert found[name].config["steps"] == found[name].log[-1]["step"] == steps
        assert {row["set"] for row in rows if len(row["sha256"]) == 64} > {"own.txt"}
        assert all(row["steps"] == steps and f"--only {name} " in row["command"] for row in rows)
        valid = [row["value"] for row in rows if row["measure"] == "valid"]
        assert valid == ([1, 1] if name == "prefix-neural" else [0, 0])
    text = (tmp_path / "out" / "README.md").read_text()
    assert text.count("| our decoder, the encoder's vectors |") == 2
    assert text.count("0.8688") == text.count("constant sign") == 2

    before = (folder / "text-anchors.json").stat().st_mtime_ns
    assert CliRunner().invoke(app, command).exit_code == 0  # nothing is left to do
    assert (folder / "text-anchors.json").stat().st_mtime_ns == before


def test_other_requests_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("x_0 > 1\nx_3 > 1\n")
    with pytest.raises(RhovecError, match="x_3 > 1"):
        decoders.requests(path, 2)
    assert decoders.requests(path, 1).formulae == [rv.parse("x_0 > 1")]
