"""`rhovec train space`, and --space in the commands that take one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app

from .plant import DT, NAMES, drives

runner = CliRunner()
PAIR = ("always[0,5] speed < 90", "always[0,5] speed < 85")
COMMON = ("--discrete", "gear", "--units", "speed=km/h")


def run(*arguments: object) -> str:
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drives in one CSV file with times."""
    path = tmp_path_factory.mktemp("logs") / "drives.csv"
    rows = [",".join(("trace", "time", *NAMES))]
    for i, drive in enumerate(drives(60, 20)):
        rows += [
            ",".join(map(str, (i, DT * t, *values))) for t, values in enumerate(drive.T.tolist())
        ]
    path.write_text("\n".join(rows))
    return path


@pytest.fixture(scope="module")
def folder(logs: Path) -> Path:
    path = logs.parent / "car"
    said = json.loads(run("train", "space", "-t", logs, "-o", path, *COMMON, "--json"))
    assert said["space"] == str(path)
    assert said["traces"] == 60
    assert said["directions"] in (32, 48)
    return path


def test_it_is_the_space_of_the_traces(logs: Path, folder: Path) -> None:
    space = rv.Space.fit(rv.read_traces(logs), discrete=["gear"], units={"speed": "km/h"})
    assert rv.load(folder).fingerprint == space.fingerprint
    assert space.schema.dt == DT


def test_embed(folder: Path, tmp_path: Path) -> None:
    run("embed", *PAIR, "--space", folder, "-o", tmp_path / "x.npy")
    assert np.array_equal(np.load(tmp_path / "x.npy"), rv.load(folder).embed(PAIR))
    line = json.loads(run("embed", "always[0,5] speed < 25 m/s", "--model", folder))
    assert np.allclose(line["vector"], np.load(tmp_path / "x.npy")[0], atol=1e-6)


def test_similarity(folder: Path) -> None:
    row = json.loads(run("similarity", *PAIR, "--space", folder, "--json"))
    space = rv.load(folder)
    assert row["model"] == pytest.approx(space.similarity(*PAIR), abs=1e-6)
    assert row["kernel"] == pytest.approx(space.kernel().similarity(*PAIR), abs=1e-6)


def test_index(folder: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    run("index", "build", library, "A: " + PAIR[0], "B: always rpm < 3000", "--space", folder)
    hit = json.loads(run("index", "search", library, PAIR[1], "-k", 1, "--json"))
    assert hit["requirement"] == "A"
    run("index", "add", library, "C: eventually gear == 3")
    assert len(run("index", "search", library, "gear == 3", "--rerank", "--json").splitlines()) == 3
    other = refused("index", "add", library, "x_0 > 1", "--space", "default")
    assert "holds vectors of the space" in other and "leave out --space" in other


def test_what_a_space_refuses_can_be_left_out(logs: Path, folder: Path, tmp_path: Path) -> None:
    """--skip-invalid left out only what could not be read, not what has no vector."""
    file, centred = tmp_path / "r.stl", tmp_path / "centred"
    file.write_text(f"A: {PAIR[0]}\nB: always nope > 1\nC: speed > -1e12\nD: always rpm < 3000\n")
    run("train", "space", "-t", logs, "-o", centred, *COMMON, "--centred")
    for space, kept in ((folder, "ACD"), (centred, "AD")):
        for command in (
            ("embed", "-F", file, "--space", space, "-o", tmp_path / "x.npy"),
            (
                "index",
                "build",
                tmp_path / f"{space.name}.lib",
                "-F",
                file,
                "--space",
                space,
                "--json",
            ),
            ("index", "add", tmp_path / f"{space.name}.lib", "-F", file, "--json"),
            ("similarity", "-F", file, "--space", space),
        ):
            result = CliRunner().invoke(app, [*map(str, command), "--skip-invalid"])
            assert result.exit_code == 0, result.output
            assert f"left out {4 - len(kept)} requirement" in result.stderr
            assert "B (" in result.stderr and "uses nope, but the space has" in result.stderr
        assert len(np.load(tmp_path / "x.npy")) == len(kept)
        with rv.Index.open(tmp_path / f"{space.name}.lib") as index:
            assert len(index) == 2 * len(kept)
    nothing = CliRunner().invoke(
        app, ["embed", "always nope > 1", "--space", str(folder), "--skip-invalid"]
    )
    assert nothing.exit_code == 2 and "uses nope" in nothing.stderr


def test_columns_of_text_are_left_out_and_named(logs: Path, folder: Path, tmp_path: Path) -> None:
    head, *rows = logs.read_text().splitlines()
    path = tmp_path / "drives.csv"
    path.write_text("\n".join([f"{head},driver,remark", *(f"{row},Ann," for row in rows)]))
    command = ("train", "space", "-t", path, "-o", tmp_path / "car", *COMMON)
    result = runner.invoke(app, [str(one) for one in command])
    assert result.stderr == "rhovec: columns without numbers, left out: driver, remark\n"
    assert rv.load(tmp_path / "car").fingerprint == rv.load(folder).fingerprint


def test_messages_quote_bounds_in_seconds(folder: Path) -> None:
    for command in ("decode", "embed"):
        said = refused(command, "always[0,5] (spd < 90)", "--space", folder)
        assert "formula 1: 'always[0,5] ( spd < 90 )' uses spd, but the space has" in said


def test_vectors_of_another_space_are_refused(folder: Path, tmp_path: Path) -> None:
    """They were decoded if their size was right."""
    file = tmp_path / "x.jsonl"
    asked = (*PAIR, "eventually gear == 3", "belt == 1 until rpm > 3000")
    run("embed", *asked, "--space", folder, "-o", file)
    assert run("decode", file, "--space", folder).count("\n") == 4
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for i in (0, 2):
        turned = [dict(line) for line in lines]
        turned[i]["vector"] = lines[i - 1]["vector"]
        file.write_text("\n".join(map(json.dumps, turned)))
        said = refused("decode", file, "--space", folder)
        assert f"x.jsonl:{i + 1}: this is not the vector of its formula in this space" in said
        for line in turned:  # half precision, and nothing to check
            line["vector"] = [float(np.float16(x)) for x in line["vector"]]
        turned[i].pop("formula")
        file.write_text("\n".join(map(json.dumps, turned)))
        assert run("decode", file, "--space", folder).count("\n") == 4
    lines = [{**line, "formula": "nope > 1"} for line in lines]
    file.write_text("\n".join(map(json.dumps, lines)))
    result = runner.invoke(app, ["decode", str(file), "--space", str(folder)])
    assert result.exit_code == 0 and "no formula in it can be read here" in result.stderr


def test_formulae_are_read_in_seconds(logs: Path, tmp_path: Path) -> None:
    said = run("train", "space", PAIR[0], "-t", logs, "-o", tmp_path / "own", *COMMON)
    assert "numbers per formula, from 60 traces" in said
    assert "whole number of steps" in refused(
        "train", "space", "always[0,0.7] speed < 9", "-t", logs, "-o", tmp_path / "own", *COMMON
    )


def test_flags_need_no_tolerance(logs: Path, tmp_path: Path) -> None:
    """They were refused with -F, and accepted by the space itself."""
    file, out = tmp_path / "r.stl", tmp_path / "own"
    file.write_text("always belt == 1\neventually (gear == 3 and belt != 0)\n")
    run("train", "space", "-t", logs, "-F", file, "-o", out, "--discrete", "gear")
    texts = ["always belt == 1", "eventually (gear == 3 and belt != 0)"]
    space = rv.Space.fit(rv.read_traces(logs), discrete=["gear"], formulae=texts)
    assert rv.load(out).fingerprint == space.fingerprint
    assert "need a tolerance" in refused("train", "space", "speed == 3", "-t", logs, "-o", out)


def test_units_do_not_contradict_headers(logs: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "drives.csv", tmp_path / "car"
    path.write_text(logs.read_text().replace("speed", "speed [m/s]", 1))
    command = ("train", "space", "-t", path, "-o", out, "--discrete", "gear", "--units")
    for more in ((), ("--", "always speed < 90")):
        said = refused(*command, "speed=km/h", *more)
        assert "have 'speed' in m/s, not in km/h; leave out its unit" in said
    with pytest.raises(rv.errors.TraceError, match="in m/s, not in km/h"):
        rv.Space.fit(rv.read_traces(path), units={"speed": "km/h"})
    run(*command, "speed=meter/second")
    assert rv.load(out).schema.options()["units"] == {"speed": "meter/second"}


def test_the_help_of_a_space_does_not_speak_of_stdin() -> None:
    assert "from stdin" not in run("train", "space", "--help")


def test_mistakes_name_options(logs: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "--traces" in refused("train", "space", "-o", out)
    assert "--error" in refused("train", "space", "-t", logs, "-o", out, "--error", 0)
    assert "no variable 'gaer'" in refused(
        "train", "space", "-t", logs, "-o", out, "--discrete", "gaer"
    )
    assert "0.5 s apart, not 1 s; leave out --dt" in refused(
        "train", "space", "-t", logs, "-o", out, "--dt", 1
    )
    assert "cannot be written" in refused("train", "space", "-t", logs, "-o", logs / "x")
    for command in ("embed", "similarity"):
        schema = ("--schema", tmp_path / "s.json")
        assert "--schema" in refused(command, *PAIR, "--space", folder, *schema)
    assert "--kind" in refused("embed", *PAIR, "--space", folder, "--kind", "kernel")
    assert "height" in refused("embed", "always height > 1", "--space", folder)
    assert "device" in refused("embed", *PAIR, "--space", folder, "--device", "cpu")
    assert "is not a folder" in refused("embed", *PAIR, "--space", tmp_path / "none")
    assert not out.exists()


def test_a_similarity_says_which_kernel_it_is_of(logs: Path, folder: Path, tmp_path: Path) -> None:
    run("train", "space", "-t", logs, "-o", tmp_path / "centred", *COMMON, "--centred")
    found = {}
    for place in (folder, tmp_path / "centred"):
        out = tmp_path / f"{place.name}.json"
        run("similarity", *PAIR, "--space", place, "-o", out)
        found[json.loads(out.read_text())["facts"]["kernel"]] = place
    assert found == {"robustness": folder, "centred": tmp_path / "centred"}
    for option in ("--n-traces", "--seed"):
        message = refused("similarity", *PAIR, "--space", folder, option, 7)
        assert "this space has its own" in message


def test_bounds_between_steps_are_rounded_when_asked(folder: Path, tmp_path: Path) -> None:
    text = f"always[0,{2.4 * DT:g}] speed < 90"
    assert "give --rounding nearest, down or up" in refused("decode", text, "--space", folder)
    assert run("decode", text, "--space", folder, "--rounding", "nearest", "-k", 1)
    (tmp_path / "r.stl").write_text(f"R1: {text}\n")
    command = ("demo", "--space", folder, "-F", tmp_path / "r.stl", "-o", tmp_path / "page.html")
    assert "give --rounding" in refused(*command)
    assert "page.html" in run(*command, "--rounding", "down")
