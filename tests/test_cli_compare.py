"""`rhovec compare`: the report, JSON and drawings of a comparison, and mistakes named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.cli.compare import HEIGHT, WIDTH, braille
from rhovec.compare import compare
from rhovec.traces import BaseMeasure, TraceMeasure

runner = CliRunner()
A, B = "always[0,5] x_0 > 0", "eventually (x_0 > 0.5 or x_1 > 1)"


def run(*arguments: object) -> str:
    result = runner.invoke(app, ["compare", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no progress bar outside a terminal
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, ["compare", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


def test_the_report_is_that_of_the_library() -> None:
    text = run(A, B, "--n-traces", 300, "--points", 30, "--seed", 7, "--confidence", 0.9)
    expected = compare(A, B, BaseMeasure(2, 30), 300, seed=7, confidence=0.9)
    assert text.startswith(f"{expected}\n\nThat trace, from point 0 on:\n\nx_0\n")
    for title in ("x_1", "robustness of a", "robustness of b"):
        assert f"\n{title}\n" in text
    assert max(map(len, text.splitlines()[-12:])) == 11 + WIDTH


def test_json_holds_everything() -> None:
    found = json.loads(run(A, B, "--n-traces", 200, "--json"))
    expected = compare(A, B, n_traces=200)
    assert (found["a"], found["b"]) == (A, B)
    for name in ("relation", "proved", "statement", "similarity", "standard_error", "seed"):
        assert found[name] == getattr(expected, name)
    for name in ("both", "only_a", "only_b", "neither", "differ"):
        assert found[name] == getattr(expected, name)._asdict()
    assert found["remarks"] == list(expected.remarks)
    assert (found["traces"], found["points"], found["confidence"]) == (200, 100, 0.95)
    witness = expected.witness
    assert witness is not None
    assert found["witness"]["id"] is None
    assert found["witness"]["trace"]["x_1"] == witness.trace[1].tolist()
    assert found["witness"]["robustness"]["b"] == witness.robustness[1].tolist()
    assert found["witness"]["satisfied"] == dict(zip("ab", witness.satisfied, strict=True))
    assert json.loads(run(A, A, "--n-traces", 50, "--json"))["witness"] is None


def test_formulae_from_a_file_and_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "two.stl"
    file.write_text(f"# two\n{A}\n{B}\n")
    expected = run(A, B, "--n-traces", 50)
    assert run("-F", file, "--n-traces", 50) == expected
    piped = runner.invoke(app, ["compare", "--n-traces", "50"], input=f"{A}\n{B}\n")
    assert piped.stdout == expected


@pytest.fixture
def drives(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    file = tmp_path / "drives.csv"
    lines = ["trace,time,speed,rpm"]
    for i in range(20):
        speed = rng.uniform(20, 150) * np.minimum(np.arange(12) / 6, 1)
        lines += [f"drive {i},{t / 2},{v},{900 + 30 * v}" for t, v in enumerate(speed)]
    file.write_text("\n".join(lines))
    return file


def test_traces_name_their_witness(drives: Path) -> None:
    texts = ["always[0,2.5] speed < 100", "always rpm < 4500"]
    found = json.loads(run(*texts, "-t", drives, "--dt", "auto", "--json"))
    parsed = [rv.parse(text, dt=0.5) for text in texts]
    own = TraceMeasure.read(drives)
    expected = compare(*parsed, own)
    assert (found["relation"], found["proved"]) == (expected.relation, expected.proved)
    assert found["traces"] == 20
    number = int(found["witness"]["id"].removeprefix("drive "))
    assert np.array_equal(found["witness"]["trace"]["speed"], own.values[number, 0])
    text = run(*texts, "-t", drives, "--dt", "auto", "--n-traces", 10)
    assert "Shares of 10 traces of 12 points" in text
    assert "That trace (drive " in text


def test_the_picture(tmp_path: Path, drives: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = tmp_path / "a.png", tmp_path / "b.png"
    run(A, B, "--n-traces", 50, "--plot", pictures[0])
    long = "always speed < 100" + " and always speed < 200" * 20
    run(long, "always rpm < 4500", "-t", drives, "--dt", 0.5, "--plot", pictures[1], "--json")
    for picture in pictures:
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    same = tmp_path / "same.png"
    result = runner.invoke(app, ["compare", A, A, "--n-traces", "50", "--plot", str(same)])
    assert result.exit_code == 0
    assert "not drawn, no trace tells the two apart" in result.stderr
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.png", "b.png", "drives.csv"]


def test_a_line_of_braille() -> None:
    ramp = braille(np.linspace(-1, 1, 50), -1, 1)
    assert [len(line) for line in ramp] == [WIDTH] * HEIGHT
    assert ramp[-1][0] == "⣀"  # lowest dots at the left, highest at the right
    assert ramp[0][-1] == "⠉"
    blank = "\u2800"
    assert ramp[0][0] == blank
    assert ramp[HEIGHT // 2].strip(blank)[0] != blank
    flat = braille(np.array([3.0]), 3, 3)
    assert flat == [blank * WIDTH] * (HEIGHT - 1) + ["⣀" * WIDTH]
    steep = braille(np.array([0.0, 0, 1, 1]), 0, 1)
    middle = steep[1].strip(blank)
    assert middle  # a jump is joined


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "compare takes two or more formulae, not 1" in refused("x_0 > 1")
    assert "formula 2, column 5" in refused("x_0 > 1", "x_0 ?")
    assert "is constant" in refused("x_0 > 1", "true")
    assert "confidence must be at least 0.5" in refused(A, B, "--confidence", 2)
    assert "at least one trace" in refused(A, B, "--n-traces", 0)
    assert "one point" in refused(A, B, "--points", 0)
    assert "seed must not be negative" in refused(A, B, "--seed", -1)
    assert "must end in .png" in refused(A, B, "--plot", tmp_path / "k.pdf")
    assert "--dt auto needs a time column" in refused(A, B, "--dt", "auto")
    assert "x_5000 would need 5001" in refused(A, "x_5000 > 0")
    file = tmp_path / "a.csv"
    file.write_text("x_0\n1\n2\n")
    assert "--points goes with random" in refused(A, A, "-t", file, "--points", 5)
    assert "2 traces were asked for" in refused(A, A, "-t", file, "--n-traces", 2)
    assert "cannot be written" in refused(
        A, B, "--n-traces", 5, "--plot", tmp_path / "missing" / "k.png"
    )
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "rhovec[plots]"' in refused(
        A, B, "--n-traces", 5, "--plot", tmp_path / "k.png"
    )
