"""`rhovec parse --from` and `--to`: formulae of other tools, in and out."""

from __future__ import annotations

import json
from pathlib import Path

from tests.test_cli import refused, run


def test_from_and_to() -> None:
    out = run("parse", "req >= 1 until[0:5] ack >= 1", "--from", "rtamt", "--to", "breach")
    assert out == "( ( req[t] >= 1 or ack[t] >= 1 ) until_[0, 5] ack[t] >= 1 )\n"
    assert run("parse", "once[0:2] x", "--from", "rtamt").startswith(
        "formula     once[0,2] ( x > 0 )\n"
    )
    assert (
        run("parse", "once[0,2] x > 0", "--dt", "0.5", "--to", "rtamt") == "once[0s:2s] ( x > 0 )\n"
    )


def test_translations_in_json() -> None:
    facts = json.loads(run("parse", "R1: x > 0 until y > 0", "--to", "rtamt", "--json"))
    assert facts["id"] == "R1" and facts["rtamt"] == "( x > 0 until ( x > 0 and y > 0 ) )"


def test_files_of_other_tools(tmp_path: Path) -> None:
    path = tmp_path / "rtamt.stl"
    path.write_text("R1: always[0:5] (a -> b)  # a comment\n\nR2: a since[1:2] b\n")
    lines = run("parse", "-F", path, "--from", "rtamt", "--to", "rtamt").splitlines()
    assert lines[0] == "always[0:5] ( ( a > 0 -> b > 0 ) )" and len(lines) == 2


def test_refusals_name_the_place(tmp_path: Path) -> None:
    path = tmp_path / "rtamt.stl"
    path.write_text("R1: x > 0\nR2: x/y > 0\n")
    message = refused("parse", "-F", path, "--from", "rtamt")
    assert f"{path}:2, column 5: rtamt reads x/y as one name" in message
    path.write_text("R1: x > 0 since y > 0\n")
    assert f"R1 ({path}:1): Breach has no since" in refused("parse", "-F", path, "--to", "breach")
    path.write_text("high := x > 0\nR1: high\n")
    assert "leave them out" in refused("parse", "-F", path, "--from", "rtamt")


def test_the_history_is_shown() -> None:
    shown = "history     4 steps (2 s); at time 0 it reads the first sample only"
    assert shown in run("parse", "once[0,2] x > 0", "--dt", "0.5")
    assert "history     3 steps\n" in run("parse", "always[0,5] once[0,3] x > 0")
    assert "history" not in run("parse", "always[0,5] x > 0")
    assert json.loads(run("parse", "prev x > 0", "--json"))["history"] == 1
