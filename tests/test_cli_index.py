"""`rhovec index`: a library from the command line, its answers in every format, mistakes named."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.cli.index import show
from rhovec.formula.schema import SchemaChannel
from rhovec.search import Index

from .models.tiny import save_tiny

runner = CliRunner()
TEXTS = [
    "always[0,5] x_0 > 0",
    "not eventually[0,5] x_0 <= 0",
    "x_1 > 1",
    "always x_1 < 2 and x_0 > 0",
]


def run(*arguments: object, stdin: str | None = None) -> str:
    result = runner.invoke(app, ["index", *map(str, arguments)], input=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def lines(*arguments: object, stdin: str | None = None) -> list[dict]:
    return [json.loads(line) for line in run(*arguments, "--json", stdin=stdin).splitlines()]


def refused(*arguments: object, stdin: str | None = None) -> str:
    result = runner.invoke(app, ["index", *map(str, arguments)], input=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "library"
    said = run("build", path, *TEXTS, "--n-traces", 50, "--tags", "first,common")
    assert said == f"4 formulae in {path}\n"
    return path


def test_ask(library: Path) -> None:
    queries = ["always[0,5] x_0 > 0.1", "x_1 > 0.9"]
    with Index.open(library) as index:
        expected = index.search(queries, 3)
    found = lines("search", library, *queries, "-k", 3)
    assert found == [
        {
            "query": query, "rank": rank, "id": hit.id, "formula": str(hit.formula),
            "similarity": hit.similarity, "kernel": None, "standard_error": None,
            "tags": ["common", "first"], "requirement": None, "title": "", "source": "",
        }
        for query, hits in zip(queries, expected, strict=True)
        for rank, hit in enumerate(hits, 1)
    ]  # fmt: skip
    assert lines("search", library, "-k", 3, stdin="\n".join(queries)) == found
    rows = list(csv.DictReader(run("search", library, *queries, "-k", 3).splitlines()))
    assert [row["id"] for row in rows] == [str(row["id"]) for row in found]
    assert [float(row["similarity"]) for row in rows] == [row["similarity"] for row in found]
    assert rows[0]["tags"] == "common first"
    (best, *_) = lines("search", library, queries[0], "--rerank")
    assert best["kernel"] == pytest.approx(
        rv.StlKernel(n_traces=10_000, seed=1).similarity(queries[0], TEXTS[0])
    )
    assert best["standard_error"] > 0


def test_change_and_filter(library: Path) -> None:
    assert lines("add", library, "x_2 > 0", "x_2 > 1", "--tags", "new") == [
        {"added": [5, 6], "formulae": 6}
    ]
    assert {row["id"] for row in lines("search", library, "x_2 > 0", "--tags", "new")} == {5, 6}
    assert {row["id"] for row in lines("search", library, "x_2 > 0", "--uses", "x_0,x_1")} == {4}
    assert {row["id"] for row in lines("search", library, "x_2 > 0", "--max-depth", 0)} == {3, 5, 6}
    assert run("delete", library, 3, 5) == "deleted 3, 5; 4 formulae in the library\n"
    assert {row["id"] for row in lines("search", library, "x_2 > 0")} == {1, 2, 4, 6}
    groups = lines("duplicates", library, "--threshold", 0.999)
    assert [(row["group"], row["id"], row["kernel"]) for row in groups] == [
        ("1", 1, 1.0), ("1", 2, pytest.approx(1)),
    ]  # fmt: skip


def test_ask_with_vectors(library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", rv.StlKernel(n_traces=50).signatures(TEXTS[2:]))
    found = lines("search", library, "--vectors", tmp_path / "v.npy", "-k", 1)
    assert [(row["query"], row["id"]) for row in found] == [("row 0", 3), ("row 1", 4)]


def test_traces_and_schema_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    traces = ["trace,time,speed"]
    traces += [f"{i},{t / 2},{rng.normal(30, 20)}" for i in range(20) for t in range(6)]
    (tmp_path / "drive.csv").write_text("\n".join(traces))
    texts = ["always[0,2] speed < 50", "speed > 30"]
    run("build", tmp_path / "a", *texts, "-t", tmp_path / "drive.csv", "--dt", "auto")
    for options in ((), ("--dt", 0.5)):
        assert lines("search", tmp_path / "a", texts[0], *options)[0]["id"] == 1
    assert "--dt: " in refused("search", tmp_path / "a", texts[0], "--dt", 1)
    assert "not a whole number of steps" in refused(
        "add", tmp_path / "a", "always[0,0.7] speed < 50"
    )
    run("add", tmp_path / "a", "always[0,2] speed < 50")
    assert [row["id"] for row in lines("duplicates", tmp_path / "a")] == [1, 3]
    schema = rv.Schema((SchemaChannel("speed", 30, 20),), dt=0.5)
    (tmp_path / "schema.json").write_text(schema.to_json())
    run("build", tmp_path / "b", *texts, "--schema", tmp_path / "schema.json")
    (best, *_) = lines("search", tmp_path / "b", "always[0,2] speed < 51", "--rerank")
    assert best["formula"] == "always[0,2] ( speed < 50 )"
    assert "--dt: the schema" in refused("search", tmp_path / "b", "speed > 1", "--dt", 1)


def test_formulae_are_printed_as_they_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """They were printed in steps, and read in seconds: what was printed found something else."""
    schema = rv.Schema((SchemaChannel("speed", 30, 20),), dt=0.5)
    (tmp_path / "schema.json").write_text(schema.to_json())
    texts = ["always[0,10] ( speed < 50 )", "not eventually[0,10] (speed >= 50)"]
    for name, options in (("a", ("--dt", 0.5)), ("b", ("--schema", tmp_path / "schema.json"))):
        names = texts if name == "b" else [text.replace("speed", "x_0") for text in texts]
        library = tmp_path / name
        run("build", library, *names, *options)
        (best, *_) = lines("search", library, names[0], "-k", 1)
        assert best["formula"] == names[0]
        (again,) = csv.DictReader(run("search", library, best["formula"], "-k", 1).splitlines())
        assert again["formula"] == names[0] and float(again["similarity"]) == pytest.approx(1)
        assert lines("duplicates", library)[0]["formula"] == names[0]
        with Index.open(library) as index:
            hits = index.search(names[0], 1)
            assert str(hits[0].formula) == names[0].replace("10", "20")
            show([{"query": names[0]}], [hits], 0.5)
        assert "always[0,10]" in capsys.readouterr().out
    said = refused("add", tmp_path / "a", "x_0 > 1", "always[0,10] x_7 > 2")
    assert "formula 2: 'always[0,10] x_7 > 2' uses x_7" in said


def test_units_labels_and_modes_are_kept(tmp_path: Path) -> None:
    rows = ["time,speed [km/h],gear"] + [f"{t / 2},{10 * t},{t % 4}" for t in range(9)]
    (tmp_path / "drive.csv").write_text("\n".join(rows))
    reading = ("--dt", "auto", "--labels", "gear=P:0,D:3", "--discrete", "gear")
    text = 'speed < 25 m/s and eventually gear == "D"'
    run("build", tmp_path / "a", text, "speed < 40 km/h", "-t", tmp_path / "drive.csv", *reading)
    (best, *_) = lines("search", tmp_path / "a", text)
    assert best["id"] == 1 and best["similarity"] == pytest.approx(1)
    assert "gear >= 2.5" in best["formula"]
    run("add", tmp_path / "a", "eventually speed == 5", "--discrete", "speed,gear")
    assert "--units: " in refused("search", tmp_path / "a", text, "--units", "speed=m/s")
    run("search", tmp_path / "a", text, "--units", "gear=m")
    with Index.open(tmp_path / "a") as index:
        assert index.search(text, 1)[0].id == 1
        assert index.reading == {
            "dt": 0.5, "units": {"speed": "km/h"}, "labels": {"gear": {"P": 0.0, "D": 3.0}},
            "discrete": ["gear"],
        }  # fmt: skip


def test_the_table_of_a_terminal(library: Path, capsys: pytest.CaptureFixture) -> None:
    with Index.open(library) as index:
        show([{"query": "x_1 > 1"}], [index.search("x_1 > 1", 2, rerank=True)], None)
    text = capsys.readouterr().out
    assert "query: x_1 > 1" in text
    assert "1.0000" in text
    assert "common" in text


def test_requirements_have_identifiers(library: Path, tmp_path: Path) -> None:
    file = tmp_path / "requirements.stl"
    file.write_text("REQ-12: x_2 > 0\nSYS/4.1: always x_2 < 1\nx_2 > 1\n")
    run("add", library, "-F", file)
    found = lines("search", library, "-F", file, "-k", 1)
    assert [(row["query"], row["id"], row["requirement"]) for row in found] == [
        ("x_2 > 0", 5, "REQ-12"),
        ("always x_2 < 1", 6, "SYS/4.1"),
        ("x_2 > 1", 7, None),
    ]
    run("build", tmp_path / "other", "-F", file, "--n-traces", 20, "--stored", "float16")
    with Index.open(tmp_path / "other") as index:
        assert index.search("x_2 > 0", 2)[0].requirement == "REQ-12"
    (row, *_) = csv.DictReader(run("search", library, "x_2 > 0").splitlines())
    assert row["requirement"] == "REQ-12"


def test_verify(library: Path) -> None:
    assert run("verify", library) == f"4 formulae in {library}; all as they were written\n"
    assert lines("verify", library) == [{"library": str(library), "formulae": 4, "verified": True}]
    content = bytearray(library.read_bytes())
    content[content.index(b"x_1 > 1")] ^= 1
    library.write_bytes(content)
    assert f"{library}: entry 3 is damaged; restore it from a copy" in refused("verify", library)


def test_upgrade(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    data = Path(__file__).parent / "data" / "library-version-1.rhovec.gz"
    old.write_bytes(gzip.decompress(data.read_bytes()))
    assert "rhovec index upgrade OLD NEW" in refused("search", old, "x_0 > 1")
    assert run("upgrade", old, new) == f"4 formulae in {new}\n"
    assert [row["id"] for row in lines("search", new, "x_0 > 0.1", "--tags", "b")] == [2, 3]


def test_a_model_of_ones_own_is_asked_for(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "model")
    library = tmp_path / "library"
    run("build", library, *TEXTS, "--model", model)
    for command in ("search", "add"):
        assert "give it with --space" in refused(command, library, "x_0 > 1")
        run(command, library, "x_0 > 1", "--model", model)
    assert "holds vectors of the model" in refused("add", library, "x_0 > 1", "--model", "default")


def test_mistakes_are_named(library: Path, tmp_path: Path) -> None:
    before = library.read_bytes()
    other = tmp_path / "other"
    assert "there is no library" in refused("search", other, "x_0 > 1")
    assert "Is a directory" in refused("search", tmp_path, "x_0 > 1")
    for content in (b"", b"x_0 > 1\n", bytes(range(256))):
        other.write_bytes(content)
        assert "not a rhovec library" in refused("search", other, "x_0 > 1")
        assert "of this name already" in refused("build", other, "x_0 > 1")
        assert other.read_bytes() == content
    other.unlink()
    assert "of this name already" in refused("build", library, "x_0 > 1")
    assert "cannot be written" in refused("build", tmp_path / "no" / "where", "x_0 > 1")
    assert "cannot be written" in refused("build", "/proc/library", "x_0 > 1")
    assert "formula 2, column 6" in refused("build", other, "x_0 > 1", "x_0 >")
    assert "is constant" in refused("build", other, "x_0 > 1", "true")
    assert "uses x_7, but the measure" in refused("search", library, "x_7 > 0")
    assert "no formula in it" in refused("search", library, "-F", os.devnull)
    assert "unexpected extra argument" in refused("duplicates", library, "x_0 > 1")
    assert "-t" in refused("search", library, "x_0 > 1", "-t", "a.csv")
    assert "'ID': Input should be a valid integer" in refused("delete", library, "one")
    assert "no entry 99" in refused("delete", library, 1, 99)
    assert "'-k': Input should be greater" in refused("search", library, "x_0 > 1", "-k", 0)
    assert "threshold must be" in refused("duplicates", library, "--threshold", 2)
    assert "--dt auto needs" in refused("search", library, "x_0 > 1", "--dt", "auto")
    assert "--traces go with" in refused("build", other, *TEXTS, "-t", "a", "--model", "default")
    for option in (("--sigma2", 0.2), ("--n-traces", 9), ("--seed", 0)):
        said = refused("build", other, *TEXTS, "--space", "default", *option)
        assert said == "--n-traces, --seed and --sigma2 go with signatures, not with --space"
    vectors = ("--vectors", tmp_path / "v.npy")
    assert "leave one of them out" in refused("search", library, "x_0 > 1", *vectors)
    assert "--rerank compares" in refused("search", library, *vectors, "--rerank")
    assert "formula 1, column 13" in refused("add", library, "REQ-1: x_0 >")
    assert "at least one trace" in refused("build", other, "x_0 > 1", "--n-traces", 0)
    file = tmp_path / "v.npy"
    assert "cannot be read" in refused("search", library, "--vectors", file)
    for content in (b"", b"text", b"PK\x03\x04 no zip", b"\x93NUMPY\x01\x00"):
        file.write_bytes(content)
        assert "v.npy: " in refused("search", library, "--vectors", file)
    np.save(file, np.array([{}], object), allow_pickle=True)
    assert "no .npy file of numbers" in refused("search", library, "--vectors", file)
    np.save(file, np.ones((2, 7)))
    assert "50 numbers; the query has shape (2, 7)" in refused("search", library, "--vectors", file)
    schema = tmp_path / "schema.json"
    assert "cannot be read" in refused("build", other, "x_0 > 1", "--schema", schema)
    for content in (b"", b"{}", b"\xff\xfe"):
        schema.write_bytes(content)
        assert "schema.json: " in refused("build", other, "x_0 > 1", "--schema", schema)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["library", "schema.json", "v.npy"]
    assert library.read_bytes() == before


def test_a_file_is_no_database(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    for command in (["list"], ["remove", "--library", "a"]):
        message = refused(*command, tmp_path / "lib.rhovec")
        assert "lib.rhovec: no database; give its URL, such as postgresql://" in message
