"""Formulae by the hundred million, at small sizes: cuts between lines, wrong lines, resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.errors import RhovecError, TraceError
from rhovec.formula.schema import SchemaChannel
from rhovec.models import model as models
from rhovec.models.model import Model, load
from rhovec.spaces import shards
from rhovec.traces.remote import file_system

from .models.tiny import save_tiny
from .servers import bucket, cluster, create, store, upload
from .spaces.plant import NAMES, drives

TEXTS = [str(phi) for phi in rv.random_formulae(40, 5)]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(models, "DEFAULT", save_tiny(tmp_path / "model"))
    return load()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.iterdir()) for row in pq.read_table(path).to_pylist()]


def vectors_of(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array([row["vector"] for row in rows if row["vector"] is not None], np.float32)


@pytest.mark.parametrize("size", [40, 700, 10**6])
def test_every_line_is_embedded_once(
    model: Model, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "TASK_BYTES", size)
    folder = tmp_path / "formulae"
    (folder / "deep").mkdir(parents=True)
    one, two, three = TEXTS[:17], TEXTS[17:30], TEXTS[30:]
    (folder / "a.txt").write_text("\ufeff" + "\n".join(one))  # without a last line end
    (folder / "b.stl").write_text("# three\r\n\r\n" + "".join(f"{text}\r\n" for text in two))
    named = (f'R-{i} "é" [a]: {text} # why\n' for i, text in enumerate(three))
    (folder / "deep" / "c.txt").write_text("".join(named))
    (folder / "notes.md").write_text("nothing")
    with pytest.warns(rv.RhovecWarning, match="not read: notes.md"):
        report = rv.embed_files(folder, out=tmp_path / "out")
    assert (report.formulae, report.files, report.refused, report.unread) == (40, 3, 0, 0)
    rows = rows_of(tmp_path / "out")
    assert [row["formula"] for row in rows] == TEXTS
    assert [row["id"] for row in rows] == [""] * 30 + [f"R-{i}" for i in range(10)]
    assert np.allclose(vectors_of(rows), model.embed(TEXTS), atol=1e-6)
    assert report.outside == len({one.index for one in model.outside(TEXTS)})


@pytest.mark.parametrize("size", [30, 10**6])
def test_wrong_lines_are_counted_and_named(
    model: Model, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "TASK_BYTES", size)
    monkeypatch.setattr(shards, "MAX_LINE", 900)
    wrong = {
        "x_0 >": "column 6: expected", "x_0 > 1 1": "column 9", "x_8 > 1": "x_8",
        "true": "constantly true", "x_0 > 1e300": "threshold", "a := x_0 > 1": "a definition",
        "param T = 3": "a parameter", "R-1:": "column 5", "speed > 3": "speed",
        "x_0 > 1 and " * 90 + "x_0 > 1": "more than 900", "x_0 > 1" + " " * 2000 + "and": "more than",
        "once x_0 > 1 \udcff": "UTF-8",
    }  # fmt: skip
    lines: list[str] = []
    for i, text in enumerate(wrong):
        lines += [TEXTS[i], "", text]
    (tmp_path / "f.stl").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    report = rv.embed_files(tmp_path / "f.stl", out=tmp_path / "out")
    assert (report.formulae, report.refused) == (len(wrong), len(wrong))
    assert [one.line for one in report.told] == list(range(3, len(lines) + 1, 3))
    for one, reason in zip(report.told, wrong.values(), strict=True):
        assert reason in one.message and str(one).startswith(
            f"{tmp_path}/f.stl:{one.line}, column "
        )
    rows = rows_of(tmp_path / "out")
    assert [row["error"] for row in rows if row["error"]] == [one.message for one in report.told]
    assert all((row["vector"] is None) == (row["error"] is not None) for row in rows)
    good = TEXTS[: len(wrong)]
    assert np.allclose(vectors_of(rows), model.embed(good), atol=1e-6)
    monkeypatch.setattr(shards, "MAX_TOLD", 3)
    few = rv.embed_files(tmp_path / "f.stl", out=tmp_path / "few")
    assert (few.refused, few.told) == (len(wrong), report.told[:3])


def test_a_run_is_resumed(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "TASK_BYTES", 300)
    source = tmp_path / "f.txt"
    source.write_text("\n".join([*TEXTS[:20], "wrong", *TEXTS[20:]]))
    whole = rv.embed_files(source, out=tmp_path / "out", kind="cosine")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert len(before) == whole.tasks > 5
    for name in sorted(before)[1:4]:
        (tmp_path / "out" / name).unlink()
    with cluster() as dask, dask.client() as client:  # which has to read the same weights
        again = rv.embed_files(
            source, out=tmp_path / "out", kind="cosine", client=client, space=tmp_path / "model"
        )
    assert again.resumed == whole.tasks - 3
    assert (again.formulae, again.refused, again.told) == (40, 1, whole.told)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert vectors_of(rows_of(tmp_path / "out")).shape == (40, model.directions.dimension)
    for change in ({"kind": "kernel"}, {"tolerance": 1.0}):
        with pytest.raises(RhovecError, match="name another folder"):
            rv.embed_files(source, out=tmp_path / "out", **{"kind": "cosine", **change})


def test_names_units_and_spaces(model: Model, tmp_path: Path) -> None:
    schema = rv.Schema((SchemaChannel("speed", 30, 20),), dt=0.5)
    (tmp_path / "f.txt").write_text("always[0,2 s] speed < 50\nalways[0,0.7 s] speed < 50\n")
    report = rv.embed_files(tmp_path / "f.txt", out=tmp_path / "out", schema=schema)
    assert (report.formulae, report.refused) == (1, 1)
    assert np.allclose(vectors_of(rows_of(tmp_path / "out")), model.embed(["always[0,4] x_0 < 1"]))
    for wrong in ({"kind": "cosin"}, {"dt": "x"}):  # not an error of each line
        with pytest.raises(RhovecError, match=r"(kind|dt) must be"):
            rv.embed_files(tmp_path / "f.txt", out=tmp_path / "o", **wrong)
    with pytest.raises(RhovecError, match="dt: the schema says"):
        rv.embed_files(tmp_path / "f.txt", out=tmp_path / "o", schema=schema, dt=1)
    space = rv.Space.fit(drives(), NAMES)
    space.save(tmp_path / "space")
    text = f"always {NAMES[0]} > 0"
    (tmp_path / "g.txt").write_text(f"{text}\nnowhere > 1\n")
    report = rv.embed_files(tmp_path / "g.txt", out=tmp_path / "o2", space=tmp_path / "space")
    assert (report.formulae, report.refused) == (1, 1) and "nowhere" in report.told[0].message
    assert np.allclose(
        vectors_of(rows_of(tmp_path / "o2")), space.embed([text], warn=False), atol=1e-6
    )
    for options, reason in (({"kind": "kernel"}, "for models"), ({"schema": schema}, "for models")):
        with pytest.raises(RhovecError, match=reason):
            rv.embed_files(
                tmp_path / "g.txt", out=tmp_path / "o3", space=tmp_path / "space", **options
            )


def test_a_worker_with_other_weights_is_refused(model: Model, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x_0 > 1\n")
    other = pytest.raises(RhovecError, match="other weights")
    with cluster() as dask, dask.client() as client, other:  # workers have the shipped model
        rv.embed_files(tmp_path / "f.txt", out=tmp_path / "out", client=client)


def test_an_object_store_that_fails(
    model: Model, s3: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request in ten: the same vectors as in a folder, and the same call resumes."""
    monkeypatch.setattr(shards, "TASK_BYTES", 300)
    (tmp_path / "formulae").mkdir()
    (tmp_path / "formulae" / "f.txt").write_text("\n".join([*TEXTS, "x_0 >"]))
    rv.embed_files(tmp_path / "formulae", out=tmp_path / "out")
    with store(failing=True) as port:
        create(port)
        upload(port, tmp_path / "formulae", "formulae")
        source, out = bucket(port, "formulae/"), bucket(port, "out")
        for earlier in (False, True):
            result = CliRunner().invoke(app, ["embed", "-F", source, "--results", out])
            assert result.exit_code == 2 and "f.txt" in result.stderr, result.output
            assert result.stdout.startswith("40 vectors of 1 file in s3://fleet/out")
            assert ("by an earlier run" in result.stdout) is earlier
        system, path = file_system(out)
        files = sorted(one.path for one in system.get_file_info(fs.FileSelector(path)))
        found = [row for one in files for row in pq.read_table(one, filesystem=system).to_pylist()]
        assert int(urlopen(f"http://127.0.0.1:{port}/failures").read()) > 3
    assert len(files) > 5 and found == rows_of(tmp_path / "out")
    refused = CliRunner().invoke(app, ["embed", "-F", bucket(s3, "formulae")])
    assert refused.exit_code == 2 and "add --results" in refused.stderr


def test_the_command(model: Model, tmp_path: Path) -> None:
    def invoke(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["embed", *map(str, arguments)])

    (tmp_path / "f.txt").write_text("\n".join([*TEXTS, "x_0 >"]))
    result = invoke("-F", tmp_path / "f.txt", "--results", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stdout == f"40 vectors of 1 file in {tmp_path}/out, written by 1 task\n"
    assert "1 line could not be embedded" in result.stderr and "f.txt:41, column 6" in result.stderr
    again = invoke("-F", tmp_path / "f.txt", "--results", tmp_path / "out")
    assert "1 of them by an earlier run" in again.stdout
    (tmp_path / "empty").write_text("# nothing\n")
    for arguments, reason in (
        (["x_0 > 1", "--results", "o"], "name them with --formulae"),
        (["-F", "-", "--results", "o"], "name them with --formulae"),
        (["-F", "f", "--results", "o", "--set", "a=1"], "leave out --set"),
        (["x_0 > 1", "--scheduler", "tcp://127.0.0.1:1"], "goes with --results"),
        (["-F", "f", "--results", "o", "-o", "x.npy"], "give one of the two"),
        (["-F", tmp_path / "none", "--results", "o"], "no such file"),
        (["-F", tmp_path / "empty", "--results", tmp_path / "e"], "there is no formula in it"),
    ):  # fmt: skip
        refused = invoke(*arguments)
        assert refused.exit_code == 2 and reason in refused.stderr, refused.stderr
    (nothing,), (full,) = (list((tmp_path / name).iterdir()) for name in ("e", "out"))
    assert pq.read_schema(nothing).equals(pq.read_schema(full))  # files of one dataset
    (tmp_path / "t.csv").write_text("formula\nx_0 > 1\n")
    with pytest.raises(RhovecError, match="one formula per line"):
        rv.embed_files(tmp_path / "t.csv", out=tmp_path / "o")
    with pytest.raises(TraceError, match=r"no \.stl, \.txt file"):
        rv.embed_files(tmp_path / "model", out=tmp_path / "o")
