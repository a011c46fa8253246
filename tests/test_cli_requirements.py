"""Requirement files on the command line: names in every output, wrong lines, parameters."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rhovec.cli import app
from rhovec.cli.similarity import Result, show
from rhovec.formula.requirements import read_data, resolve
from rhovec.formula.schema import Schema, SchemaChannel
from rhovec.models import model as models

from .models.tiny_decoder import save_tiny_decoder
from .test_cli import refused, run

runner = CliRunner()
FILE = """\
param T = 5
high := x_0 > 1
R-1 "First one" [safety]: always[0,T] high   # comment
x_1 < 0
R-2: eventually high
"""
NAMED = {"R-1": ("First one", "{}:3"), "": ("", "{}:4"), "R-2": ("", "{}:5")}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_decoder(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(autouse=True)
def the_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "DEFAULT", model)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.stl"
    path.write_text(FILE)
    return path


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    path = tmp_path / "t.npy"
    np.save(path, np.random.default_rng(0).normal(size=(2, 2, 8)))
    return path


def rows(text: str) -> list[dict[str, Any]]:
    """The records of CSV or of JSON lines."""
    if text.startswith("{"):
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(io.StringIO(text)))


def names(file: Path, found: list[dict[str, Any]], before: str = "") -> list[str]:
    """The identifiers of records, whose titles and sources must fit."""
    for row in found:
        title, source = NAMED[row[f"{before}id"]]
        assert row[f"{before}title"] == title
        assert row[f"{before}source"] == source.format(file)
    return [row[f"{before}id"] for row in found]


# -- names in every output -------------------------------------------------------------------------


def test_parse(file: Path) -> None:
    one, two, three = rows(run("parse", "-F", file, "--json"))
    assert (one["id"], one["title"], one["tags"]) == ("R-1", "First one", ["safety"])
    assert (one["source"], one["formula"]) == (f"{file}:3", "always[0,5] ( x_0 > 1 )")
    assert {"id", "title", "tags", "source"}.isdisjoint(two)
    assert three["id"] == "R-2"
    shown = run("parse", "-F", file).splitlines()
    assert shown[:3] == ["id          R-1", "title       First one", "tags        safety"]
    assert run("parse", "R9: x_0 > 1", "--json").startswith('{"id": "R9", "source": "formula 1"')


@pytest.mark.parametrize("options", [[], ["--json"], ["--trace"]])
def test_robustness(file: Path, traces: Path, options: list[str]) -> None:
    found = rows(run("robustness", "-F", file, "-t", traces, *options))
    steps = 8 if "--trace" in options else 1
    assert names(file, found) == [name for name in NAMED for _ in range(2 * steps)]
    assert found[0]["formula"] == "always[0,T] high"


def test_one_file_serves_every_command(tmp_path: Path) -> None:
    """Variables had the whole headers of columns as names, where `check` and `mine` cut the units."""
    rng = np.random.default_rng(0)
    lines = [
        f"{n},{t},{flow:.3f},{speed:.1f}"
        for n in range(40)
        for t, (flow, speed) in enumerate(
            zip(*rng.uniform(1, 9, (2, 8)).cumsum(axis=1), strict=True)
        )
    ]
    logs, file, space = tmp_path / "a.csv", tmp_path / "r.stl", tmp_path / "space"
    logs.write_text("\n".join(["trace,t,flow [l/s],Engine Speed (rpm)", *lines]) + "\n")
    file.write_text("A: always[0,3] flow > 0.5 l/s\nB: eventually `Engine Speed` > 1\n")
    run("check", "-F", file, "-t", logs)
    found = rows(run("robustness", "-F", file, "-t", logs, "--dt", "auto", "--json"))
    assert {row["id"] for row in found} == {"A", "B"}
    run("train", "space", "-F", file, "-t", logs, "-o", space)
    assert len(rows(run("embed", "-F", file, "--space", space))) == 2
    whole = run("robustness", "`flow [l/s]` > 2", "`Engine Speed` > 2", "-t", logs)
    assert "flow [l/s]" in whole


def test_compare(file: Path, tmp_path: Path) -> None:
    text = run("compare", "R-1: always x_0 > 1", "x_0 > 0", "--n-traces", 20).splitlines()
    assert text[:3] == ["a is R-1 of formula 1", "", "a  always ( x_0 > 1 )"]
    file.write_text('R-1 "First one": x_0 > 1\n\nR-2: x_0 > 0')
    found = json.loads(run("compare", "-F", file, "--n-traces", 20, "--json"))
    assert found["requirements"] == {
        "a": {"id": "R-1", "title": "First one", "source": f"{file}:1"},
        "b": {"id": "R-2", "title": "", "source": f"{file}:3"},
    }
    assert "requirements" not in json.loads(run("compare", "x_0 > 1", "x_0 > 0", "--json"))


def test_similarity(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for options in ([], ["--json"]):
        found = rows(run("similarity", "-F", file, "--n-traces", 20, *options))
        assert names(file, found) == ["R-1", "R-1", ""]
        assert names(file, found, "other_") == ["", "R-2", "R-2"]
    out = tmp_path / "gram.json"
    run("similarity", "-F", file, "--n-traces", 20, "-o", out)
    assert names(file, json.loads(out.read_text())["requirements"]) == list(NAMED)
    gram = np.eye(3)
    show(Result(resolve(read_data(FILE.encode(), "r"))[0], {"model": gram}, {"model": "abc"}))
    assert 'R-1 "First one" ' in capsys.readouterr().out


def test_embed_and_decode(file: Path, tmp_path: Path) -> None:
    vectors = run("embed", "-F", file)
    assert names(file, rows(vectors)) == list(NAMED)
    for given in (["-F", file], []):
        stdin = None if given else vectors
        found = rows(run("decode", *given, "-k", 1, "--samples", 0, "--json", stdin=stdin))
        assert names(file, found) == list(NAMED)
        assert [row["request"] for row in found] == [row["formula"] for row in rows(vectors)]
        text = run("decode", *given, "-k", 1, "--samples", 0, stdin=stdin).splitlines()
        assert text[0] == f'# R-1 "First one", {file}:3'
        assert text[3] == f"# R-2, {file}:5"
        assert len(text) == 5


def test_index(file: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    run("index", "build", library, "-F", file, "--n-traces", 50)
    run("index", "add", library, "X: x_0 > 1", "--tags", "new")
    for options in ([], ["--json"]):
        found = rows(run("index", "search", library, "-F", file, "-k", 1, *options))
        assert names(file, found, "query_") == list(NAMED)
        assert [row["requirement"] or "" for row in found] == list(NAMED)
        assert [row["title"] for row in found] == ["First one", "", ""]
        assert [row["source"] for row in found] == [f"{file}:{i}" for i in (3, 4, 5)]
    assert found[0]["tags"] == ["safety"]
    (added,) = rows(run("index", "search", library, "x_0 > 1", "-k", 1, "--json"))
    assert (added["requirement"], added["tags"], added["source"]) == ("X", ["new"], "")
    run("index", "add", library, 'Y "Twice": x_0 >= 1')
    group = rows(run("index", "duplicates", library, "--json"))
    assert {("X", ""), ("Y", "Twice")} <= {(row["requirement"], row["title"]) for row in group}


def test_what_looks_only_back_is_told(file: Path, traces: Path) -> None:
    file.write_text(
        "R1: once[0,3] x_0 > 1\nR2: always[3,5] once[0,3] x_0 > 1\nR3: x_0 - prev x_0 > 1"
    )
    shown = run("parse", "-F", file)
    assert shown.count("history     3 steps; at time 0 it reads the first sample only") == 1
    assert shown.count("history     1 step; at time 0 it reads the first sample only") == 1
    assert [row["history"] for row in rows(run("parse", "-F", file, "--json"))] == [3, 0, 1]
    assert "first sample" not in run("parse", "always once[0,3] x_0 > 1")
    command = ["robustness", "-F", str(file), "-t", str(traces)]
    told = runner.invoke(app, command).stderr
    assert told == (
        f"rhovec: R1 ({file}:1), R3 ({file}:3): without a future, a formula reads only the first "
        "sample at time 0; --trace gives its value at every step\n"
    )
    assert runner.invoke(app, [*command, "--trace"]).stderr == ""


# -- wrong lines -----------------------------------------------------------------------------------


def test_all_wrong_lines_are_listed(file: Path) -> None:
    file.write_text("R1: x_0 >\nR2: x_0 > 0\nR3: y + 1\nR4: always[0,0.5] x_0 > 0\n")
    result = runner.invoke(app, ["parse", "-F", str(file)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "rhovec: 3 lines are wrong:",
        f"  {file}:1, column 10: expected a formula or an expression, found the end of the text",
        f"  {file}:3, column 5: expected a formula, but this is an expression; compare it with "
        "something (only a variable may stand alone, as a flag)",
        f"  {file}:4, column 14: time bound 0.5 is not a whole number of steps; to give bounds in "
        "seconds, give the sampling step with --dt",
    ]


def test_wrong_lines_can_be_left_out(file: Path, traces: Path) -> None:
    file.write_text("R1: x_0 >\nR2: x_0 > 0\nR3: speed > 0\n")
    command = ["robustness", "-F", str(file), "-t", str(traces)]
    assert refused(*command).startswith(f"{file}:1, column 10: expected")
    result = runner.invoke(app, [*command, "--skip-invalid"])
    assert result.exit_code == 0
    assert {row["id"] for row in rows(result.stdout)} == {"R2"}
    assert result.stderr.splitlines() == [
        "rhovec: left out 1 requirement:",
        f"  {file}:1, column 10: expected a formula or an expression, found the end of the text",
        "rhovec: left out 1 requirement:",
        f"  R3 ({file}:3): the formula uses speed, but the traces have x_0, x_1; --variables names "
        "those of an .npy file",
    ]
    file.write_text("R1: x_0 >\n")
    result = runner.invoke(app, [*command, "--skip-invalid"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"rhovec: {file}: all are wrong"


def test_parameters_are_set(file: Path) -> None:
    one, *_ = rows(run("parse", "-F", file, "--set", "T=7", "--json"))
    assert one["formula"] == "always[0,7] ( x_0 > 1 )"
    assert refused("parse", "-F", file, "--set", "U=7") == (
        "--set: no file has the parameter U: there are T"
    )
    assert refused("parse", "-F", file, "--set", "T=x").startswith("parameter T=x, column 1: ")
    for wrong in ("T", "=3", "T="):
        assert f"--set {wrong}: write it as T=3" in refused("parse", "-F", file, "--set", wrong)


def test_arguments_use_what_files_define(file: Path) -> None:
    found = rows(run("parse", "Q: always[0,T] not high", "-F", file, "--json"))
    assert found[0]["formula"] == "always[0,5] ( not ( x_0 > 1 ) )"
    assert [row.get("id", "") for row in found] == ["Q", *NAMED]
    assert refused("parse", "R-1: x > 0", "-F", file).startswith(
        f"formula 1, column 1: the identifier R-1 is taken by {file}:3"
    )


# -- errors about one formula ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "command", "message"),
    [
        ("R9: speed > 0", ["embed"], "a model reads only the variables x_0, x_1, ..., not speed"),
        ("R9: true", ["embed"], "is constantly true, so it has no direction"),
        ("R9: x_0 > 1e300", ["embed"], "a formula has the threshold 1e+300"),
        ("R9: once x_0 > 0", ["embed"], "use exact signatures: `rhovec index build` without"),
        ("R9: x_0 > 0 since x_1 > 0", ["similarity"], "which models cannot read; use exact signatures"),
        ("R9: x_0 - prev x_0 > 1", ["embed"], "which models cannot read; use exact signatures: `rhovec"),
        ("R9: x_0 - x_1 > 0", ["similarity"], "a model reads only the variables"),
        ("R9: true", ["similarity", "--by", "kernel", "--n-traces", "9"], "is constant, so no kernel"),
        ("R9: true", ["index", "build", "new"], "is constant, so no kernel can compare it"),
        ("R9: speed > 0", ["index", "search", "library"], "uses speed, but the measure has"),
        ("R9: always[0,99] x_0 > 0", ["robustness", "-t", "t.npy", "--end", "strict"],
         "the formula looks 99 steps ahead, but a trace has only 8 points"),
        ("R9: y > 0", ["robustness", "-t", "t.npy"], "the formula uses y, but the traces have x_0"),
    ],
)  # fmt: skip
def test_errors_name_the_requirement(
    line: str, command: list[str], message: str, file: Path, traces: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(file.parent)
    if "library" in command:
        run("index", "build", "library", "-F", file, "--n-traces", 50)
    for text, number in ((f"{FILE}{line}\nx_1 > 0\n", 6), (f"{line}\n{FILE}", 1)):
        file.write_text(text)
        found = refused(*command, "-F", "r.stl")
        assert found.startswith(f"R9 (r.stl:{number}): ")
        assert message in found


def test_a_schema_or_a_column_that_may_be_the_times_is_named(tmp_path: Path) -> None:
    rows = ["time,speed", *(f"{0.5 * i},{i}" for i in range(9))]
    (tmp_path / "drive.csv").write_text("\n".join(rows))
    (tmp_path / "zeit.csv").write_text("\n".join(["Zeit,speed", *rows[1:]]))
    schema = Schema((SchemaChannel("speed"),), dt=0.1)
    (tmp_path / "schema.json").write_text(schema.to_json())
    command = ["robustness", "always[0,0.5] speed < 30", "-t", str(tmp_path / "drive.csv")]
    given = [*command, "--schema", str(tmp_path / "schema.json")]
    said = CliRunner().invoke(app, given).stderr
    assert "the schema's step is 0.1 s, but the times of the traces are 0.5 s apart" in said
    command = ["robustness", "always[0,3] speed < 30", "-t", str(tmp_path / "zeit.csv")]
    assert "if Zeit are the times, --time-column Zeit --dt auto" in (
        CliRunner().invoke(app, command).stderr
    )
    result = CliRunner().invoke(app, [*command, "--time-column", "Zeit", "--dt", "auto"])
    assert result.exit_code == 0 and result.stdout.endswith(",24.0\n") and not result.stderr
    wrong = ["index", "build", str(tmp_path / "library"), *given[1:]]
    assert "--traces go without --schema" in refused(*wrong)


def test_bounds_that_count_samples_are_named_if_the_traces_have_times(tmp_path: Path) -> None:
    rows = ["time,speed", *(f"{0.1 * i:.1f},{i}" for i in range(50))]
    (tmp_path / "drive.csv").write_text("\n".join(rows))
    (tmp_path / "drive2.csv").write_text("\n".join(["speed", *map(str, range(50))]))
    words = "time bounds counted samples, of which the traces have one every 0.1 s; --dt auto"
    bounded, other = "always[0,3] speed < 40", "always speed < 30"
    for command in (
        ["robustness", bounded],
        ["compare", bounded, other],
        ["similarity", bounded, other],
        ["index", "build", str(tmp_path / "library"), bounded, other],
    ):
        given = [*command, "-t", str(tmp_path / "drive.csv")]
        assert words in CliRunner().invoke(app, given).stderr, given
        (tmp_path / "library").unlink(missing_ok=True)
        result = CliRunner().invoke(app, [*given, "--dt", "auto"])
        assert result.exit_code == 0 and words not in result.stderr, result.output
    for formula, name in ((other, "drive.csv"), (bounded, "drive2.csv")):
        given = ["robustness", formula, "-t", str(tmp_path / name)]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 0 and not result.stderr, given


def test_a_file_in_place_of_a_formula(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("Speed\n1\n2\n")
    first, second = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    message = refused("robustness", "always Speed < 3", "-t", first, second)
    assert message.endswith("is a file, not a formula; each file of traces takes a -t, and each file of "
                            "formulae a -F")  # fmt: skip
    assert refused("robustness", "always speed < 3", "-t", first).endswith("is it Speed?")
    assert "y.csv" in refused("robustness", "always y.csv < 3", "-t", first)
    assert refused("parse", "brake.stl").startswith("brake.stl is a file, not a formula")
