"""Traces by the million, at small sizes: tables, cuts, resuming, an object store, a Dask cluster."""

from __future__ import annotations

import json
import os
import pickle
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec import machine, tasks
from rhovec.cli import app
from rhovec.errors import RhovecError, RhovecWarning, TraceError
from rhovec.fleet import FleetReport, Summary, cuts, evaluate_table
from rhovec.fleet import evaluate_files as evaluate
from rhovec.fleet import table as tables
from rhovec.formula.requirements import Requirement

from .servers import NOBODY, Cluster, bucket, cluster, create, put, store, upload
from .soak import fleets

FORMULAE = [str(phi) for phi in rv.random_formulae(12, 3)]
POINTS = 40


def draw(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3, POINTS)).cumsum(2)


def lists(x: np.ndarray, ids: bool = True) -> pa.Table:
    columns = {f"x_{v}": pa.array(list(x[:, v])) for v in range(3)}
    return pa.table(({"trace": [f"t{i}" for i in range(len(x))]} if ids else {}) | columns)


def wide(x: np.ndarray, first: int = 0) -> pa.Table:
    n = len(x)
    return pa.table({
        "trace": np.repeat(np.arange(n) + first, POINTS), "time": np.tile(np.arange(POINTS) * 0.5, n),
        **{f"x_{v}": x[:, v].reshape(-1) for v in range(3)},
    })  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Files of several kinds, and the robustness (B, N) on all their traces in order."""
    place = tmp_path / "runs"
    (place / "deep").mkdir(parents=True)
    parts = [draw(9, 0), draw(30, 1), draw(25, 2), draw(1, 3), draw(4, 4)]
    pq.write_table(lists(parts[0]), place / "a1.parquet", row_group_size=4)
    pq.write_table(lists(parts[1], ids=False), place / "a2.parquet", row_group_size=7)
    pq.write_table(wide(parts[2]), place / "a10.parquet", row_group_size=3 * POINTS - 7)
    header = "time," + ",".join(f"x_{v}" for v in range(3))
    rows = np.column_stack([np.arange(POINTS) * 0.5, parts[3][0].T])
    np.savetxt(place / "b.csv", rows, delimiter=",", header=header, comments="", fmt="%.17g")
    np.save(place / "deep" / "c.npy", parts[4])
    return place, rv.robustness(FORMULAE, np.concatenate(parts))


def check(report: FleetReport, values: np.ndarray) -> None:
    assert [one.n for one in report.summaries] == [values.shape[1]] * len(FORMULAE)
    assert [one.satisfied for one in report.summaries] == (values > 0).sum(1).tolist()
    assert [one.violated for one in report.summaries] == (values < 0).sum(1).tolist()
    assert [one.minimum for one in report.summaries] == values.min(1).tolist()
    assert np.allclose([one.total for one in report.summaries], values.sum(1))
    for one, row in zip(report.summaries, values, strict=True):
        assert [worst.robustness for worst in one.worst] == np.sort(row)[:10].tolist()


# -- tables ----------------------------------------------------------------------------------------


def test_a_table_in_a_table_out() -> None:
    x = draw(6, 0)
    values = rv.robustness(FORMULAE, x)
    for table in (lists(x), wide(x), pickle.loads(pickle.dumps(lists(x)))):
        rows = evaluate_table(FORMULAE, table)
        assert rows.column_names == ["formula", "trace", "robustness"]
        assert np.array_equal(rows["robustness"].to_numpy().reshape(values.shape), values)
        assert rows["formula"].to_pylist()[:: len(x)] == FORMULAE
    assert pickle.loads(pickle.dumps(evaluate_table)) is evaluate_table
    uneven = pa.table({f"x_{v}": [[1.0, 2.0], [3.0]] for v in range(3)})
    assert evaluate_table("x_0 > 1", uneven)["robustness"].to_pylist() == [0.0, 2.0]
    assert evaluate_table("x > 1", pa.table({"x": [[2.0]]}), variables="x").num_rows == 1
    with pytest.raises(TraceError, match="the lists are empty"):
        evaluate_table("x_0 > 1", pa.table({"x_0": pa.array([[], []], pa.list_(pa.float64()))}))
    single = pa.table({f"x_{v}": pa.array([[1.0, None]]) for v in range(3)})
    with pytest.raises(TraceError, match="missing or not finite"):
        evaluate_table("x_0 > 1", single)
    with pytest.raises(TraceError, match="no readable table"):
        evaluate_table("x_0 > 1", 3)


def test_summaries_are_associative() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, 90).astype(float)  # sums are exact
    names = [f"t{i}" for i in range(90)]
    parts = [Summary.of(values[i : i + 30], names[i : i + 30], "f") for i in (0, 30, 60)]
    whole = Summary.of(values, names, "f")
    one, two, three = parts
    assert one.plus(two).plus(three) == one.plus(two.plus(three)) == whole
    assert Summary().plus(whole) == whole.plus(Summary()) == whole
    assert Summary.of(values[:0], [], "f") == Summary()


def test_the_engine_keeps_to_the_threads_it_is_given() -> None:
    with machine.limited(1):
        assert machine.cores() == 1
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(machine.cores()))
        thread.start()
        thread.join()
        before = threading.active_count()
        rv.robustness(FORMULAE, draw(3000, 0))  # large enough for several threads
        assert threading.active_count() == before
    assert seen == [machine.cores()]  # other threads are not concerned
    with machine.limited(10_000):
        assert machine.cores() == seen[0]


# -- files -----------------------------------------------------------------------------------------


def test_files_of_any_kind(folder: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    place, values = folder
    report = evaluate(FORMULAE, place)
    check(report, values)
    assert (report.files, report.tasks, report.resumed, report.unread) == (5, 1, 0, ())
    lowest = int(values[0].argmin())
    edges = np.cumsum([9, 30, 25, 1, 4])
    names = ["a1.parquet", "a2.parquet", "a10.parquet", "b.csv", "c.npy"]
    assert Path(report.summaries[0].worst[0].file).name == names[int((edges > lowest).argmax())]
    requirements = [Requirement(rv.parse(FORMULAE[0]), id="R-1"), rv.parse(FORMULAE[1])]
    both = evaluate(requirements, [place / "a1.parquet", place / "b.csv"])
    assert both.ids == ("R-1", "") and both.traces == 10
    assert both.table().column_names == list(both.records()[0])


@pytest.mark.parametrize("size", [1, 2000, 9000])
def test_large_files_are_cut_between_traces(
    folder: tuple[Path, np.ndarray], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, values = folder
    monkeypatch.setattr(cuts, "TASK_BYTES", size)
    monkeypatch.setattr(tables, "BLOCK", size)  # traces are converted one by one, or some at a time
    report = evaluate(FORMULAE, place)
    assert report.tasks > 4
    check(report, values)


def test_a_file_is_not_cut_where_traces_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = draw(20, 0)
    table = wide(x)
    shuffled = table.take(np.argsort(np.tile(np.arange(POINTS), 20), kind="stable"))  # interleaved
    pq.write_table(shuffled, tmp_path / "a.parquet", row_group_size=30)
    monkeypatch.setattr(cuts, "TASK_BYTES", 100)
    report = evaluate(FORMULAE, tmp_path / "a.parquet")
    assert report.tasks == 1
    check(report, rv.robustness(FORMULAE, x))
    long = draw(2, 1)  # traces that fill several row groups
    pq.write_table(wide(long), tmp_path / "b.parquet", row_group_size=9)
    report = evaluate(FORMULAE, tmp_path / "b.parquet")
    assert report.tasks > 4
    check(report, rv.robustness(FORMULAE, long))


def test_what_cannot_be_read_is_counted(folder: tuple[Path, np.ndarray]) -> None:
    place, values = folder
    (place / "bad.parquet").write_bytes(b"PAR1 nothing")
    data = (place / "a2.parquet").read_bytes()
    (place / "cut.parquet").write_bytes(data[: len(data) // 2])
    (place / "empty.csv").write_text("")
    (place / "lacks.csv").write_text("time,x_0\n0,1\n1,2\n")
    (place / "nan.csv").write_text("x_0,x_1,x_2\n1,2,\n")
    (place / "notes.md").write_text("not a trace")
    (place / ".hidden.csv").write_text("neither is this")
    with pytest.warns(RhovecWarning, match="runs: not read: notes.md$"):
        report = evaluate(FORMULAE, place)
    check(report, values)
    told = {Path(one.file).name: one.message for one in report.unread}
    assert set(told) == {"bad.parquet", "cut.parquet", "empty.csv", "lacks.csv", "nan.csv"}
    assert all(name in message for name, message in told.items())
    assert "there is no column 'x_1'" in told["lacks.csv"] and "column" in told["nan.csv"]
    assert report.files == 10
    for source, reason in (
        (place / "none", "no such file"), (place / "notes.md", "must end in"), ([], "no file given"),
    ):  # fmt: skip
        with pytest.raises(TraceError, match=reason):
            evaluate(FORMULAE, source)
    with pytest.raises(RhovecError, match="name a folder with out"):
        evaluate(FORMULAE, place, rows=True)
    with pytest.raises(RhovecError, match="end must be"):
        evaluate(FORMULAE, place, end="soon")


def test_a_run_is_resumed(
    folder: tuple[Path, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, values = folder
    monkeypatch.setattr(cuts, "TASK_BYTES", 2000)
    out = tmp_path / "out"
    whole = evaluate(FORMULAE, place, out=out, rows=True)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(before) == whole.tasks
    table = pa.concat_tables([pq.read_table(out / name) for name in sorted(before)])
    by_formula = [
        table.filter(pa.compute.equal(table["formula"].cast("string"), text))[
            "robustness"
        ].to_numpy()
        for text in FORMULAE
    ]
    assert np.array_equal(by_formula, values)
    lost = random.Random(0).sample(sorted(before), 3)
    for name in lost:
        (out / name).unlink()
    (out / ".rhovec-0123456789abcdef.tmp").write_bytes(b"left by a kill")
    again = evaluate(FORMULAE, place, out=out, rows=True)
    assert again.resumed == whole.tasks - 3
    assert again.summaries == whole.summaries
    after = {p.name: p.read_bytes() for p in out.iterdir() if not p.name.startswith(".")}
    assert after == before
    for change in ({"rows": False}, {"end": "strict"}, {"variables": ["x_0", "x_1", "x_2"]}):
        with pytest.raises(RhovecError, match="name another folder"):
            evaluate(FORMULAE, place, out=out, **{"rows": True, **change})  # type: ignore[arg-type]
    (out / lost[0]).write_bytes(b"PAR1")
    with pytest.raises(RhovecError, match=f"{lost[0]}: damaged"):
        evaluate(FORMULAE, place, out=out, rows=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(RhovecError, match="cannot be used for results"):
        evaluate(FORMULAE, place, out=tmp_path / "file")


def test_a_flipped_bit_in_a_result_file_is_noticed(tmp_path: Path) -> None:
    """A resumed run believed whatever counts a damaged file had."""
    pq.write_table(lists(draw(20, 0)), tmp_path / "a.parquet")
    out = tmp_path / "out"
    whole = evaluate(FORMULAE[:2], tmp_path / "a.parquet", out=out)
    (path,) = out.iterdir()
    data, rng, outcomes = path.read_bytes(), random.Random(0), set()
    for _ in range(200):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            again = evaluate(FORMULAE[:2], tmp_path / "a.parquet", out=out)
            outcomes.add(again.summaries == whole.summaries)
        except RhovecError as error:
            outcomes.add(str(error).endswith("remove it and run again"))
    assert outcomes == {True}


def test_results_among_the_traces_are_no_traces(tmp_path: Path) -> None:
    pq.write_table(lists(draw(5, 0)), tmp_path / "a.parquet")
    for out in (tmp_path, tmp_path / "out"):
        first = evaluate("x_0 > 0", tmp_path, out=out)
        again = evaluate("x_0 > 0", tmp_path, out=out)
        assert (again.files, again.resumed) == (1, 1) and again.summaries == first.summaries
        for path in out.glob("part-*"):
            path.unlink()
    evaluate("x_0 > 0", tmp_path / "a.parquet", out=tmp_path / "out")
    with pytest.raises(RhovecError, match="holds only results; name a folder of traces"):
        evaluate("x_0 > 0", tmp_path / "out", out=tmp_path / "out")


def test_a_file_that_is_named_twice_counts_once(folder: tuple[Path, np.ndarray]) -> None:
    place, _ = folder
    once = evaluate(FORMULAE, place)
    assert evaluate(FORMULAE, [place, *place.glob("*.parquet")]).summaries == once.summaries


def test_rows_are_numbered_as_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In errors and names, also where a file is cut."""
    x = draw(9, 0)
    x[7, 1, 3] = np.nan
    for name, table in (("lists", lists(x)), ("wide", wide(x))):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=len(table) // 3 - 1)
        found = []
        for size in (1, 1 << 30):
            monkeypatch.setattr(cuts, "TASK_BYTES", size)
            (bad,) = evaluate("x_1 > 0", tmp_path / f"{name}.parquet").unread
            found.append(bad.message)
        assert found[0] == found[1] and ("row 8," in found[0] or "row 284," in found[0])
    same = lists(draw(8, 0)).set_column(0, "trace", pa.array(["a"] * 8))
    pq.write_table(same, tmp_path / "same.parquet", row_group_size=2)
    monkeypatch.setattr(cuts, "TASK_BYTES", 1)
    worst = evaluate("x_1 > 0", tmp_path / "same.parquet").summaries[0].worst
    assert sorted(one.trace for one in worst) == [f"a/{i}" for i in range(8)]


def test_what_is_wrong_names_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", draw(2, 0))
    (bad,) = evaluate("speed > 0", tmp_path).unread
    assert bad.message.startswith(f"{tmp_path / 'a.npy'}: a formula uses speed")
    with pytest.raises(RhovecError, match=r"client must be a distributed.Client, not 'tcp"):
        evaluate("x_0 > 0", tmp_path, client="tcp://10.0.0.5:8786")


# -- an object store -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dask() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def test_an_object_store(
    folder: tuple[Path, np.ndarray], s3: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, values = folder
    upload(s3, place, "runs")
    monkeypatch.setattr(cuts, "TASK_BYTES", 2000)
    options: dict[str, Any] = {"out": bucket(s3, "out"), "rows": True}
    report = evaluate(FORMULAE, bucket(s3, "runs"), **options)
    check(report, values)
    assert report.summaries[0].worst[0].file.startswith("s3://fleet/runs/")
    again = evaluate(FORMULAE, bucket(s3, "runs"), **options)
    assert again.resumed == report.tasks and again.summaries == report.summaries
    with pytest.raises(TraceError, match="no such file or folder"):
        evaluate(FORMULAE, bucket(s3, "nothing"))
    with pytest.raises(TraceError, match="fleet-x"):
        evaluate(FORMULAE, bucket(s3, "runs").replace("fleet", "fleet-x"))


def test_a_store_that_fails_one_request_in_ten(
    folder: tuple[Path, np.ndarray], s3: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, values = folder
    monkeypatch.setattr(cuts, "TASK_BYTES", 2000)
    with store(failing=True) as port:
        create(port)
        upload(port, place, "runs")
        report = evaluate(FORMULAE, bucket(port, "runs"), out=bucket(port, "out"))
        assert int(urlopen(f"http://127.0.0.1:{port}/failures").read()) > 5
    assert report.unread == ()
    check(report, values)


def test_what_the_store_denies_is_counted(s3: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with store() as port:
        create(port)
        for name in ("good", "denied"):
            put(port, f"fleet/runs/{name}.csv", b"x_0\n1\n2\n")
        access = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}
        iam = boto3.client("iam", **access)
        iam.create_user(UserName="reader")
        denied = "arn:aws:s3:::fleet/runs/denied.csv"
        policy = {"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:GetObject", "Resource": denied},
        ]}  # fmt: skip
        iam.put_user_policy(UserName="reader", PolicyName="p", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        text = {"Content-Type": "text/plain"}
        urlopen(Request(f"{access['endpoint_url']}/moto-api/reset-auth", b"0", text)).read()
        report = evaluate("x_0 > 0", bucket(port, "runs"), out=bucket(port, "out"))
        assert (report.files, report.traces) == (2, 1)
        (lost,) = report.unread
        assert "runs/denied.csv" in lost.file and "ACCESS_DENIED" in lost.message


def test_what_may_not_be_read_is_counted() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for name in ("good", "denied"):
            (Path(folder) / f"{name}.csv").write_text("x_0\n1\n2\n")
        evaluate("x_0 > 0", folder)  # all that is imported when it is used
        (Path(folder) / "denied.csv").chmod(0)
        user = os.geteuid()
        if user == 0:  # root may read everything
            os.seteuid(NOBODY)
        try:
            report = evaluate("x_0 > 0", folder)
        finally:
            os.seteuid(user)
    assert (report.files, report.traces) == (2, 1)
    assert "denied.csv: cannot be read: Permission denied" in report.unread[0].message


def test_logs_in_an_object_store(s3: int, dask: Cluster, tmp_path: Path) -> None:
    logs = {
        "a.csv": "time,speed\n0,1\n1,2\n2,9\n", "b.csv": "time,speed\n0,1\n1,1\n2,1\n",
        "c.csv": "time,speed\n0,1\n1,x\n", "deep/d.csv": "time,rpm\n0,1\n1,2\n",
    }  # fmt: skip
    for name, text in logs.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        put(s3, f"fleet/logs/{name}", text.encode())

    def check(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["check", "always speed < 5", *map(str, arguments)])

    there = bucket(s3, "logs")
    far = check("-t", there, "--json", "--html", tmp_path / "page.html")
    cluster = check("-t", there, "--json", "--scheduler", dask.address)
    with pytest.warns(RhovecWarning, match="not read: deep/, page.html"):
        near = check("-t", tmp_path, "-t", tmp_path / "deep", "--json")
    assert far.exit_code == cluster.exit_code == near.exit_code == 2
    assert far.stdout == cluster.stdout
    rows = [[json.loads(line) for line in said.stdout.splitlines()] for said in (far, near)]
    files = [[row.pop("file") for row in part] for part in rows]
    assert rows[0] == rows[1]
    assert files == [
        [bucket(s3, f"logs/{n}.csv") for n in "ab"],
        [f"{tmp_path}/{n}.csv" for n in "ab"],
    ]
    assert far.stderr == cluster.stderr
    assert "s3://fleet/logs/c.csv" in far.stderr and "s3://fleet/logs/deep/d.csv" in far.stderr
    assert "/tmp" not in far.stderr and str(tmp_path) in near.stderr
    lost = check("-t", bucket(s3, "nowhere"), "-t", f"{tmp_path}/a.csv")
    assert lost.exit_code == 2 and "no such file or folder" in lost.stderr


# -- a cluster -------------------------------------------------------------------------------------


def test_a_cluster(
    folder: tuple[Path, np.ndarray], s3: int, dask: Cluster, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    place, values = folder
    monkeypatch.setattr(cuts, "TASK_BYTES", 2000)
    monkeypatch.chdir(place.parent)  # where the workers are not
    with dask.client() as client:
        here = evaluate(FORMULAE, place, out=tmp_path / "here", rows=True)
        there = evaluate(FORMULAE, place.name, out=tmp_path / "there", rows=True, client=client)
        check(there, values)
        assert there == here
        for path in (tmp_path / "here").iterdir():
            assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes()
    result = CliRunner().invoke(
        app,
        ["robustness", *FORMULAE[:2], "-t", str(place), "--scheduler", dask.address, "--json",
         "--results", str(tmp_path / "cli")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["minimum"] for one in found] == values[:2].min(1).tolist()
    arguments = ["check", *FORMULAE[:3], "-t", str(place), "--json"]
    here_said, there_said = (
        CliRunner().invoke(app, [*arguments, *more]) for more in ([], ["--scheduler", dask.address])
    )
    assert there_said.exit_code == here_said.exit_code == 1, there_said.output
    assert there_said.stdout == here_said.stdout


@pytest.mark.parametrize(
    "attack", [fleets.kill_workers, fleets.kill_schedulers, fleets.kill_clients]
)
def test_kills_change_nothing(
    attack: Callable[[fleets.Runs, int, int], Any], tmp_path: Path
) -> None:
    attack(fleets.Runs(tmp_path, 30), 2, 0)


def test_no_cluster(folder: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TIMEOUT", "1s")
    result = CliRunner().invoke(
        app, ["robustness", "x_0 > 1", "-t", str(folder[0]), "--scheduler", "tcp://127.0.0.1:1"]
    )
    assert result.exit_code == 2
    assert "cannot connect to the scheduler at tcp://127.0.0.1:1" in result.stderr


def test_the_command(folder: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    place, values = folder

    def invoke(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["robustness", *map(str, arguments)])

    (place / "bad.csv").write_text("")
    result = invoke(FORMULAE[0], "-t", place, "--results", tmp_path / "out")
    assert result.exit_code == 2
    assert "1 file of 6 could not be evaluated" in result.stderr and "bad.csv" in result.stderr
    head, row = result.stdout.splitlines()
    assert head.startswith("id,formula,n,satisfied,violated,mean,minimum,worst_trace")
    assert f",{values.shape[1]},{(values[0] > 0).sum()}," in row
    assert "do not go with" in invoke(FORMULAE[0], "-t", place, "--results", "o", "--trace").stderr
    assert "no traces given" in invoke(FORMULAE[0], "--results", tmp_path / "o").stderr


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_of_another_step_are_refused(tmp_path: Path, suffix: str) -> None:
    """always[0,2] (seconds) looked at 2 samples of 0.5 s too few, and the violation was not seen."""
    pytest.importorskip("pyarrow.csv")
    runs = tmp_path / "runs"
    runs.mkdir()
    for name, step in {"a": 1.0, "b": 0.5}.items():
        table = pa.table({"time": np.arange(5) * step, "x": [1.0, 1.0, 1.0, -1.0, -1.0]})
        write = pa.csv.write_csv if suffix == ".csv" else pq.write_table
        write(table, runs / f"{name}{suffix}")
    formula = rv.parse("always[0,2] x > 0", dt=1)
    assert evaluate(formula, runs).summaries[0].satisfied == 2  # of samples
    report = evaluate(formula, runs, dt=1)
    assert report.summaries[0].n == 1
    (unread,) = report.unread
    assert (
        unread.file.endswith(f"b{suffix}")
        and f"b{suffix}: its times are 0.5 s apart" in unread.message
    )
    command = [
        "robustness",
        "always[0,2] x > 0",
        "-t",
        str(runs),
        "--results",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(app, [*command, "--dt", "1"])
    assert result.exit_code == 2 and "count steps of 1 s" in result.stderr
    said = "time bounds counted samples; --dt"
    assert said not in result.stderr
    assert said in CliRunner().invoke(app, [*command[:-1], str(tmp_path / "samples")]).stderr
