"""`rhovec decode`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.cli.decode import show
from rhovec.formula.schema import SchemaChannel
from rhovec.models import model as models
from rhovec.models.inverse import plain
from rhovec.models.model import Model, load

from .models.tiny import save_tiny
from .models.tiny_decoder import save_tiny_decoder

runner = CliRunner()
FORMULAE = ["always[0,10] x_0 > 0.5", "F x_4 <= 1", "x_1 > 0 until[2,5] (x_2 < 1 and x_3 > 2)"]
QUICK = ("--samples", 2, "--no-refine")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The default model."""
    monkeypatch.setattr(models, "DEFAULT", save_tiny_decoder(tmp_path / "model"))
    return load()


def run(*arguments: object, stdin: str | None = None) -> str:
    result = runner.invoke(app, ["decode", *map(str, arguments)], input=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def refused(*arguments: object, stdin: str | None = None) -> str:
    result = runner.invoke(app, ["decode", *map(str, arguments)], input=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


def test_vectors_from_everywhere(model: Model, tmp_path: Path) -> None:
    vectors = model.embed(FORMULAE)
    np.save(tmp_path / "x.npy", vectors)
    np.save(tmp_path / "one.npy", vectors[0])
    lines = runner.invoke(app, ["embed", *FORMULAE]).stdout
    (tmp_path / "x.jsonl").write_text(lines)
    want = "".join(f"{phi}\n" for (phi, *_) in model.decode(vectors, 2, False))
    assert run(tmp_path / "x.npy", *QUICK) == want
    assert run(tmp_path / "x.jsonl", *QUICK) == want
    assert run(*QUICK, stdin=lines) == want
    assert run(tmp_path / "one.npy", *QUICK) == want.splitlines(keepends=True)[0]
    assert run(tmp_path / "x.npy", tmp_path / "one.npy", *QUICK).count("\n") == 4
    for line in want.splitlines():
        assert str(rv.parse(line)) == line


def test_vectors_of_another_model_are_refused(model: Model, tmp_path: Path) -> None:
    lines = [
        json.loads(line) for line in runner.invoke(app, ["embed", *FORMULAE]).stdout.split("\n")[:3]
    ]
    for line in lines:
        line["vector"] = (-np.array(line["vector"])).tolist()
    file = tmp_path / "x.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert "x.jsonl:2: this is not the vector of its formula" in refused(file, *QUICK)
    in_seconds = runner.invoke(app, ["embed", FORMULAE[0], "--dt", "0.5"]).stdout
    assert run(*QUICK, stdin=in_seconds)  # which decode cannot know
    for kind in ("kernel", "cosine"):
        given = runner.invoke(app, ["embed", *FORMULAE, "--kind", kind]).stdout
        assert run(*QUICK, stdin=given).count("\n") == 3


def test_several_answers_as_json(model: Model, tmp_path: Path) -> None:
    vectors = model.embed(FORMULAE)
    np.save(tmp_path / "x.npy", vectors)
    rows = [
        json.loads(line) for line in run(tmp_path / "x.npy", "-k", 3, "--json", *QUICK).splitlines()
    ]
    assert [row["request"] for row in rows] == sorted(row["request"] for row in rows)
    found = model.inverter.decode(vectors, 2, False)
    assert [row["formula"] for row in rows] == [str(f.formula) for g in found for f in g[:3]]
    for row in rows:
        phi = rv.parse(row["formula"])
        assert row["nodes"] == phi.size
        similarity = float(model.embed(phi, warn=False) @ vectors[row["request"]])
        assert row["similarity"] == pytest.approx(similarity, abs=1e-5)


def test_a_formula_said_more_simply(model: Model) -> None:
    phi = rv.parse(FORMULAE[2])
    lines = run(FORMULAE[2], "--json", "--check", 500, "-k", 9, "--samples", 8).splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[0]["formula"] == str(plain(phi))
    assert rows[0]["kernel"] == pytest.approx(1)
    assert {row["request"] for row in rows} == {FORMULAE[2]}
    kernel = model.kernel(500)
    assert [r["kernel"] for r in rows] == sorted((r["kernel"] for r in rows), reverse=True)
    for row in rows[1:]:
        assert row["nodes"] < phi.size
        assert row["kernel"] == pytest.approx(kernel.similarity(phi, row["formula"]))
        error = kernel.standard_error(phi, row["formula"])
        assert row["standard_error"] == pytest.approx(error)
    assert run(FORMULAE[2], "-k", 1, *QUICK) == f"{plain(phi)}\n"


def test_names_units_and_seconds(model: Model, tmp_path: Path) -> None:
    channels = tuple(SchemaChannel(f"c{i}", mean=float(i), std=2.0) for i in range(8))
    schema = rv.Schema(channels, dt=0.1)
    file = tmp_path / "schema.json"
    file.write_text(schema.to_json())
    text = "always[0,2.5] c3 >= 7"
    (first, *_) = run(text, "--schema", file, *QUICK).splitlines()
    assert first == schema.to_text(schema.lower(schema.parse(text)))
    np.save(tmp_path / "x.npy", model.embed(FORMULAE[0]))
    answer = model.decode(model.embed(FORMULAE[0]), 2, False)[0]
    got = run(tmp_path / "x.npy", "--schema", file, *QUICK)
    assert got == schema.to_text(answer) + "\n"


def test_the_table_of_a_terminal(capsys: pytest.CaptureFixture) -> None:
    show([("x > 1", "y > 2", 1, 0.98765, 0.24, 0.003), ("x > 1", "z > 2", 1, 0.5, 0.2, 0.001)])
    text = capsys.readouterr().out
    for part in ("x > 1", "y > 2", "0.9877", "0.2400 ± 0.0030"):
        assert part in text
    show([(0, "y > 2", 1, 0.98765)])
    assert "kernel" not in capsys.readouterr().out


def test_mistakes(model: Model, tmp_path: Path) -> None:
    good, bad = tmp_path / "x.npy", tmp_path / "bad.npy"
    np.save(good, model.embed(FORMULAE))
    assert "not both" in refused(good, "x_0 > 1")
    assert "give formulae instead of vectors" in refused(good, "--check", 100)
    assert "-k must be 1" in refused(good, "-k", 0)
    assert "samples must be 0" in refused(good, "--samples", -1)
    assert "cannot be read" in refused(tmp_path / "none.npy")
    assert "cannot be read" in refused(tmp_path / "none.jsonl")
    assert "formula 1, column 6" in refused("x_ > ")
    assert "is not a folder" in refused(good, "--model", tmp_path / "none")
    for content in (b"", b"no numbers", good.read_bytes()[:200]):
        bad.write_bytes(content)
        assert "no .npy file of numbers" in refused(bad)
    np.save(bad, np.array(["x"]))
    assert "no .npy file of numbers" in refused(bad)
    np.save(bad, np.array([None, {}]))
    assert "no .npy file of numbers" in refused(bad)
    np.save(bad, np.ones((2, 1024)))
    assert "bad.npy: the vectors have 1024 numbers each" in refused(bad)
    np.save(bad, np.zeros((2, 24)))
    assert "vector 0 is zero" in refused(bad)
    for line in ('{"formula": "x"}', "{", '{"vector": "x"}', '{"vector": [1, 2]}', '{"vector": 3}'):
        assert "stdin:1" in refused(stdin=line)
    bare = save_tiny(tmp_path / "bare")
    assert "no decoder" in refused(good, "--model", bare)
