"""Decoders compared: what a run leaves, and that it goes on where it stopped."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rhovec as rv

from ..models.tiny import save_tiny

pytest.importorskip("torch")
SMALL = {
    "batch": 16, "width": 16, "layers": 1, "heads": 1, "length": 160, "workers": 1, "signals": 32,
    "shown": 2,
}  # fmt: skip
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("decoders")


def test_records(script: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    requests = tmp_path / "own.txt"
    requests.write_text("x_0 > 1\nalways[0,5] x_1 < 2\neventually x_2 >= 0\n")
    monkeypatch.setattr(script, "TINY", SMALL)
    folder = tmp_path / "decoders"
    given = {
        "--only": "prefix-neural", "--steps": 2, "--text-steps": 3, "--n": 3, "--signals": 1000,
        "--model": save_tiny(tmp_path / "model"), "--formulae": requests, "--out": folder,
    }  # fmt: skip
    words = ["decoders.py", "--tiny", "--only", "text-anchors"]
    argv = [*words, *(str(word) for option in given.items() for word in option)]
    monkeypatch.setattr("sys.argv", argv)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(script, "answers", dies)
        with pytest.raises(KeyboardInterrupt):
            script.main()
    assert (folder / "text-anchors" / "checkpoint.json").exists()
    script.main()
    for name, steps in (("text-anchors", 3), ("prefix-neural", 2)):
        assert {path.name for path in (folder / name).iterdir()} == {
            "config.json", "environment.json", "log.jsonl", "curves.png", "evaluation.json"
        }  # fmt: skip
        rows = json.loads((folder / name / "evaluation.json").read_text())
        assert {row["set"] for row in rows if len(row["sha256"]) == 64} > {"own.txt"}
        assert all(row["steps"] == steps and f"--only {name} " in row["command"] for row in rows)
        valid = [row["value"] for row in rows if row["measure"] == "valid"]
        assert valid == ([1, 1] if name == "prefix-neural" else [0, 0])
    text = (folder / "README.md").read_text()
    assert text.count("[our decoder, the encoder's vectors](prefix-neural/)") == 2
    assert text.count("0.8688") == text.count("constant sign") == 2

    before = (folder / "text-anchors" / "evaluation.json").stat().st_mtime_ns
    script.main()  # nothing is left to do
    assert (folder / "text-anchors" / "evaluation.json").stat().st_mtime_ns == before


def test_other_requests_are_refused(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("x_0 > 1\nx_3 > 1\n")
    with pytest.raises(SystemExit, match="x_3 > 1"):
        script.requests(path, 2)
    assert script.requests(path, 1).formulae == [rv.parse("x_0 > 1")]
