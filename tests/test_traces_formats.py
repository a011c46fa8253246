"""Logs in formats other than text, several logs in one file, and columns converted two ways."""

from __future__ import annotations

import struct
import sys
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rhovec.errors import MissingDependencyError, TraceError
from rhovec.traces import Log, cells, read_logs, read_traces
from rhovec.traces.matlab import read_matlab

nan = np.nan


def same(log: Log, times: list[float], **channels: list[float]) -> None:
    assert log.times.tolist() == times
    assert log.channels.keys() == channels.keys()
    for name, values in channels.items():
        np.testing.assert_array_equal(log.channels[name].values, values)


class Frame:
    """Any frame: all that is known of it is Arrow's interface."""

    def __init__(self, table: Any):
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_parquet_and_frames(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {
            "Time (ms)": [0, 100, 300],
            "v (m/s)": [1.5, None, 2.5],
            "on": [True, False, None],
            "gear": pa.array(["P", "D", "D"]).dictionary_encode(),
            "n": pa.array([1, 2, 3], pa.int8()),
            "words": ["1", "2", "x"],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    names = ["v", "on", "gear", "n"]
    for data in (tmp_path / "a.parquet", table, Frame(table)):
        (log,) = read_logs(data, variables=names, labels={"gear": {"D": 5}})
        same(log, [0, 0.1, 0.3], v=[1.5, nan, 2.5], on=[1, 0, nan], gear=[6, 5, 5], n=[1, 2, 3])
        assert [log.channels[n].kind for n in names] == ["number", "flag", "enumeration", "number"]
        assert log.units == {"v": "m/s"}
        assert log.labels == {"gear": {"D": 5, "P": 6}}
        with pytest.raises(TraceError, match=r", row 3, column 'words': 'x' is not a number"):
            next(read_logs(data, variables=["words"]))
    views = pa.table(
        {
            "id": ["a", "a", "b"],
            "g": pa.array(["P", "D", "D"], getattr(pa, "string_view", pa.string)()),
        }
    )
    a, b = read_logs(views)
    assert (a.name, b.name) == ("a", "b")
    same(a, [0, 1], g=[0, 1])
    dated = pa.table({"t": pa.array([10**9, 2 * 10**9], pa.timestamp("ns")), "x": [1, 2]})
    same(next(read_logs(dated)), [1, 2], x=[1, 2])
    same(next(read_logs(pa.table({"t": ["12:00:00", "12:00:01"], "x": [1, 2]}))), [43200, 43201],
         x=[1, 2])  # fmt: skip
    long = pa.table({"t": [0, 0, 1], "signal": ["x", "g", "x"], "value": ["1.5", "D", "2"]})
    same(next(read_logs(long)), [0, 1], x=[1.5, 2], g=[0, nan])
    with pytest.raises(TraceError, match=r"frame, row 2, column 't': missing or not finite"):
        next(read_logs(pa.table({"t": [0, float("inf")], "x": [1, 2]})))
    with pytest.raises(TraceError, match="'x': holds struct"):
        next(read_logs(pa.table({"t": [0], "x": [{"a": 1}]})))


def test_lists_are_a_log_per_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "id": ["a", "b"],
        "time": [[0.0, 0.5, 1.0], [0.0, 2.0]],
        "x": [[1.0, None, 3.0], [4.0, 5.0]],
        "g": [["P", "D", "P"], ["D", "D"]],
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    a, b = read_logs(tmp_path / "a.parquet", labels={"g": {"D": 0}})
    assert (a.name, b.name) == ("a", "b")
    same(a, [0, 0.5, 1], x=[1, nan, 3], g=[1, 0, 1])
    same(b, [0, 2], x=[4, 5], g=[0, 0])
    short = pa.table({"x": [[1, 2]], "y": [[1]]})
    with pytest.raises(TraceError, match="frame, row 1: 'x' has 2 values, but 'y' has 1"):
        next(read_logs(short))
    with pytest.raises(TraceError, match="row 1: the lists are empty"):
        next(read_logs(pa.table({"x": pa.array([[]], pa.list_(pa.float64()))})))
    with pytest.raises(TraceError, match="row 2, column 'x': nothing instead of a list"):
        list(read_logs(pa.table({"x": [[1.0], None]})))
    even = pa.table({"x": [[1.0, 2.0], [3.0, 4.0]]})
    parquet.write_table(even, tmp_path / "b.parquet")
    assert [v.tolist() for v in read_traces(tmp_path / "b.parquet").values] == [[[1, 2]], [[3, 4]]]


def test_integers_that_float64_would_round(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    time, large = [0.0, 0.1], 2**53
    for kind, values in ((pa.int64(), [1, -large - 1]), (pa.uint64(), [None, 2**64 - 1])):
        table = pa.table({"time": time, "x": pa.array(values, kind), "y": [large, -large]})
        parquet.write_table(table, tmp_path / "a.parquet")
        for data in (tmp_path / "a.parquet", table):
            with pytest.raises(
                TraceError, match=rf"row 2, column 'x': {values[1]} is beyond 2\^53"
            ):
                next(read_logs(data))
            same(next(read_logs(data, variables=["y"])), time, y=[large, -large])
        assert read_traces(tmp_path / "a.parquet", mentioned=["y"]).variables == ("y",)
    np.savez(tmp_path / "a.npz", time=time, x=np.array([1, large + 1]), y=[1, 2])
    with pytest.raises(TraceError, match=r"row 2, column 'x': 9007199254740993 is beyond"):
        next(read_logs(tmp_path / "a.npz"))
    same(next(read_logs(tmp_path / "a.npz", variables=["y"])), time, y=[1, 2])
    np.save(tmp_path / "a.npy", np.array([[1, large + 1]]))
    with pytest.raises(TraceError, match=r"point 1, column 'x_0': 9007199254740993 is beyond"):
        next(read_logs(tmp_path / "a.npy"))


def test_frames_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    frame = Frame(pa.table({"x": [1]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install .rhovec\[data\]"):
        read_logs(frame)


def test_mat_and_npz(tmp_path: Path) -> None:
    io = pytest.importorskip("scipy.io")
    vectors = {
        "time": np.arange(3) / 2,
        "x": np.array([1, 2, 3]),
        "on": np.array([True, False, True]),
    }
    gears = np.array(["P", "D", "D"], dtype=object)
    io.savemat(tmp_path / "a.mat", {**vectors, "g": gears, "note": "text", "m": np.eye(3)})
    io.savemat(tmp_path / "b.mat", {"run": {**vectors, "g": gears}})
    np.savez(tmp_path / "c.npz", **vectors, g=np.array(["P", "D", "D"]))
    for name in ("a.mat", "b.mat", "c.npz"):
        (log,) = read_logs(tmp_path / name, variables=["x", "g"], labels={"g": {"D": 3}})
        same(log, [0, 0.5, 1], x=[1, 2, 3], g=[4, 3, 3])
    (log,) = read_logs(tmp_path / "c.npz", variables=["on"])
    assert log.channels["on"].values.tolist() == [1, 0, 1]
    np.savez(tmp_path / "e.npz", time=np.arange(3), x=np.ones((3, 2)))
    with pytest.raises(TraceError, match=r"'x' has the shape \(3, 2\); give a vector per variable"):
        read_traces(tmp_path / "e.npz", variables=["x"])
    with pytest.raises(TraceError, match=r"e.npz: 'x' has the shape \(3, 2\), and no other column"):
        next(read_logs(tmp_path / "e.npz"))
    np.savez(tmp_path / "f.npz", time=np.arange(3), x=np.arange(3), G=np.eye(3))  # no variable here
    assert read_traces(tmp_path / "f.npz", mentioned=["G", "x"]).variables == ("x",)
    with pytest.raises(TraceError, match=r"no column 'y'; it has: time$"):
        read_traces(tmp_path / "e.npz", variables=["y"])
    np.savez(tmp_path / "d.npz", time=np.arange(3), x=np.arange(4))
    with pytest.raises(TraceError, match=r"'x' has 4 values, but 'time' has 3"):
        next(read_logs(tmp_path / "d.npz"))
    for suffix in (".mat", ".npz"):
        (tmp_path / f"junk{suffix}").write_bytes(b"junk" * 100)
        with pytest.raises(TraceError, match=f"junk{suffix}: not an? "):
            next(read_logs(tmp_path / f"junk{suffix}"))
    (tmp_path / "h.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(512))
    with pytest.raises(TraceError, match=r"format 7.3; save it by save\(..., '-v7'\)"):
        next(read_logs(tmp_path / "h.mat"))


def mat_files() -> dict[str, bytes]:
    """Files of several kinds, each with times and a variable `x`."""
    io = pytest.importorskip("scipy.io")
    sparse = pytest.importorskip("scipy.sparse")
    time, n = np.arange(40) / 10, 40
    plain = {
        "time": time, "x": np.sin(time), "n": np.arange(n, dtype=np.int32), "on": np.arange(n) % 2 == 0,
        "g": np.array(["P", "D"] * (n // 2), object), "note": "text",
        "rows": np.array(["ab", "cd"] * (n // 2)), "m": np.eye(3),
    }  # fmt: skip
    odd = {
        "s": np.array([(1, 2), (3, 4)], [("p", object), ("q", object)]), "z": time * 1j,
        "sparse": sparse.csc_matrix(np.eye(3)), "a": {"b": {"c": time}}, "time": time, "x": time,
    }  # fmt: skip
    info = {"Units": "m/s", "Interpolation": {"Name": "linear"}}
    series = {"Name": "x", "time": time[:, None], "x": time[:, None], "DataInfo": info,
              "Events": np.empty((0, 0))}  # fmt: skip
    old = {
        "time": time,
        "x": time,
        "z": time * 1j,
        "c": "text",
        "sparse": sparse.csc_matrix(np.eye(3)),
    }

    def saved(variables: dict[str, Any], **options: Any) -> bytes:
        stream = BytesIO()
        io.savemat(stream, variables, **options)
        return stream.getvalue()

    return {
        "plain": saved(plain),
        "compressed": saved(plain, do_compression=True),
        "struct": saved({"run": plain}),
        "odd": saved(odd),
        "series": saved({"run": series}),
        "old": saved(old, format="4"),
    }


def equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(equal(ours[k], theirs[k]) for k in theirs)
    if ours is None:
        return "sparse" in str(type(theirs)) or isinstance(theirs, list)
    return np.array_equal(np.ravel(np.real(ours)), np.ravel(np.real(theirs)))


def test_mat_is_read_as_scipy_reads_it() -> None:
    io = pytest.importorskip("scipy.io")
    for name, data in mat_files().items():
        theirs = io.loadmat(BytesIO(data), simplify_cells=True)
        ours = read_matlab(data)
        assert equal(ours, {n: v for n, v in theirs.items() if not n.startswith("__")}), name
    swapped = struct.pack(">20s", b"MATLAB 5.0").ljust(124) + struct.pack(">H2s", 0x100, b"MI")
    swapped += struct.pack(">2I", 14, 56) + struct.pack(">4I", 6, 8, 6, 0)
    swapped += struct.pack(">2I2i", 5, 8, 1, 2) + struct.pack(">2H4s", 1, 1, b"x")
    swapped += struct.pack(">2I2h4x", 3, 4, -2, 258)
    assert read_matlab(swapped)["x"].tolist() == [-2, 258]
    assert equal(read_matlab(swapped)["x"], io.loadmat(BytesIO(swapped), squeeze_me=True)["x"])


def read_or_refuse(file: Path, data: bytes, times: int, **options: Any) -> None:
    """Read a file with one or two wrong bytes, or cut off, several times."""
    random = Random(0)
    for _ in range(times):
        damaged = bytearray(data)
        for _ in range(random.randint(1, 2)):
            value = random.choice((0, 1, 128, 255, random.randrange(20), random.randrange(256)))
            damaged[random.randrange(len(data))] = value
        file.write_bytes(damaged[: random.choice((len(data), random.randrange(len(data))))])
        try:
            assert list(read_logs(file, **options))
        except TraceError as error:
            assert str(file) in str(error)


def test_damaged_mat_is_read_or_refused(tmp_path: Path) -> None:
    """A wrong byte could crash the process, as scipy's reader did with the second byte of a type."""
    for data in mat_files().values():
        read_or_refuse(tmp_path / "a.mat", data, 700, variables=["x"])


def test_damaged_arrays_are_read_or_refused(tmp_path: Path) -> None:
    """zipfile and zlib have errors of their own: packed data, methods and versions that are wrong."""
    vectors = {
        "time": np.arange(30) / 10,
        "x": np.sin(np.arange(30)),
        "g": np.array(["P", "D"] * 15),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **vectors)
        read_or_refuse(tmp_path / "a.npz", (tmp_path / "a.npz").read_bytes(), 700)
    for array in (np.ones((2, 3, 10)), np.ones((3, 10), ">f4", order="F")):
        np.save(tmp_path / "a.npy", array)
        read_or_refuse(tmp_path / "a.npy", (tmp_path / "a.npy").read_bytes(), 700)


def test_mat_variables_that_are_no_vectors(tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(mat_files()["odd"])
    for name in ("s", "sparse"):
        with pytest.raises(TraceError, match=f"{name!r} is a sparse array or .* as a vector"):
            next(read_logs(tmp_path / "a.mat", variables=[name]))
    (tmp_path / "b.mat").write_bytes(mat_files()["plain"])
    assert next(read_logs(tmp_path / "b.mat", variables=["on"])).channels["on"].kind == "flag"


@pytest.mark.parametrize("wrong", [3, None, {"x": [1]}, [{"x": ["a"]}], [np.zeros(3)]])
def test_logs_are_paths(wrong: Any) -> None:
    for read in (read_logs, read_traces):
        with pytest.raises(TraceError, match="give paths of files or folders, not "):
            read(wrong)  # type: ignore[operator]


def test_times_that_seconds_would_round_count_from_the_first(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    start = 1_700_000_000_000_000_000
    ns = [start, start + 100, start + 200]
    x = [1, 2, 3]
    np.savez(tmp_path / "a.npz", **{"t [ns]": ns, "x": x})
    (tmp_path / "a.csv").write_text(
        "t [ns],x\n" + "".join(f"{t},{i}\n" for t, i in zip(ns, x, strict=True))
    )
    (tmp_path / "b.csv").write_text("time,name,value\n" + "".join(
        f"1700000000.0000000{i},{name},{i}\n" for i in (1, 2, 3) for name in "xy"))  # fmt: skip
    np.savez(tmp_path / "texts.npz", t=np.array(["12:00:00", "12:00:00.5", "12:00:01"]), x=x)
    typed = pa.table({"t": pa.array(ns, pa.timestamp("ns")), "x": x})
    for data in (typed, pa.table({"t [ns]": ns, "x": x}), tmp_path / "a.npz", tmp_path / "a.csv"):
        (log,) = read_logs(data)
        same(log, [0, 1e-7, 2e-7], x=[1, 2, 3])
        assert log.notes == (
            "the times count from 2023-11-14 22:13:20, to keep digits that float64 would lose",
        )
    assert read_traces(tmp_path / "a.csv").dt == 1e-7
    assert read_traces(tmp_path / "b.csv").dt == 1e-8
    same(next(read_logs(tmp_path / "texts.npz")), [43200, 43200.5, 43201], x=[1, 2, 3])
    holes = pa.table({"t": pa.array([None, *ns], pa.timestamp("ns")), "x": [None, *x]})
    same(next(read_logs(holes)), [0, 1e-7, 2e-7], x=[1, 2, 3])
    far = pa.table({"t [ns]": [0, *ns], "x": [0, *x]})
    with pytest.raises(
        TraceError, match=r"row 3, column 't \[ns\]': the step from the time before"
    ):
        next(read_logs(far))
    coarse = pa.table({"t": pa.array([start, start + 10**8], pa.timestamp("ns")), "x": [1, 2]})
    (log,) = read_logs(coarse)
    assert (log.times.tolist(), log.notes) == ([1.7e9, 1.7e9 + 0.1], ())
    for unit, ticks in (("ms", 10**12), ("us", 10**15), ("ns", 10**18)):
        with pytest.raises(TraceError, match=f"'t': .*too large for .*pass time_unit=\"{unit}\""):
            next(read_logs(pa.table({"t": [ticks, ticks + 1], "x": [1, 2]})))
        np.savez(tmp_path / "b.npz", t=[ticks * 1.7, ticks * 2], x=[1, 2])
        with pytest.raises(TraceError, match=f"too large for a time in seconds; .* {unit} since"):
            read_traces(tmp_path / "b.npz")


def test_several_logs_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,t,x\nb,0,1\na,5,2\nb,3,3\n")
    (tmp_path / "r.csv").write_text("class,x_0,x_1,x_2\nup,1,2,3\nup,4,5,\ndown,6,7,8\n")
    b, a = read_logs(tmp_path / "a.csv")
    assert (b.name, a.name) == ("b", "a")
    same(b, [0, 3], x=[1, 3])
    same(a, [5], x=[2])
    rows = list(read_logs(tmp_path / "r.csv", layout="rows", id_column="class"))
    assert [log.name for log in rows] == ["up/0", "up/1", "down"]
    same(rows[1], [0, 1], x=[4, 5])
    assert not rows[0].timed
    assert next(read_logs([tmp_path / "a.csv", tmp_path / "r.csv"])).name == "a/b"


def test_the_next_file_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("x\n1\n")
    (tmp_path / "2.csv").write_text("x\noops\n1\n")
    logs = read_logs(tmp_path)
    assert next(logs).name == "1"
    with pytest.raises(TraceError, match=r"2\.csv:2"):
        next(logs)


number = st.floats(allow_nan=False, allow_infinity=False)
odd = ["", " 1", "nan", "NA", "+3", "1_0", "٣", "0x1", "x", "on", "-"]
cell = st.one_of(
    number.map(repr), number.map("{:.3f}".format), st.integers().map(str), st.sampled_from(odd)
)


@given(st.lists(cell, min_size=1, max_size=12))
def test_pyarrow_and_python_convert_alike(column: list[str]) -> None:
    pytest.importorskip("pyarrow")
    found = []
    for least in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cells, "ARROW_CELLS", least)
            made = cells.Column()
            try:
                made.add(column)
                series = made.series()
                found.append((series.kind, series.values.tobytes(), dict(series.labels)))
            except cells.CellError as error:
                found.append((error.row, error.reason))
    assert found[0] == found[1]
