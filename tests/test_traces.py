"""Traces read the same from every format, and a bad cell is named with file, line and column."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import rhovec as rv
from rhovec.check import check_logs
from rhovec.errors import MissingDependencyError, RhovecWarning, TraceError
from rhovec.formula import parse
from rhovec.traces import Traces, read_logs, read_traces

in_folder = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def assert_same(actual: Traces, expected: Traces) -> None:
    assert actual.variables == expected.variables
    assert actual.ids == expected.ids
    assert actual.dt == expected.dt
    for a, b in zip(actual.values, expected.values, strict=True):
        assert a.dtype == np.float64
        assert np.array_equal(a, b)


@st.composite
def traces(draw: st.DrawFn) -> Traces:
    names = draw(st.lists(st.sampled_from(["speed", "rpm", "x_10", "größe"]), min_size=1,
                          max_size=3, unique=True))  # fmt: skip
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = [rng.normal(size=(len(names), p)) * 10.0 ** rng.integers(-9, 9) for p in lengths]
    dt = draw(st.sampled_from([0.1, 0.25, 1.0, 0.001, 300.0])) if max(lengths) > 1 else None
    return Traces(tuple(names), values, tuple(f"run {i}" for i in range(len(lengths))), dt)


def test_traces_of_files_are_taken_as_they_are() -> None:
    made = Traces(
        ("a", "b"), [np.array([[1.0, 2], [3, 4]]), np.array([[5.0], [6]])], ("p", "q"), 0.5
    )
    phi = "always (a < 4 and b > 2)"
    expected = rv.robustness(phi, made.values, variables=made.variables)
    assert np.array_equal(rv.robustness(phi, made), expected)
    measure = rv.TraceMeasure(made)
    assert measure.variables == ("a", "b")
    assert np.array_equal(rv.robustness(phi, measure), expected)
    for take in (rv.TraceMeasure, lambda x, names: rv.robustness(phi, x, variables=names)):
        with pytest.raises(TraceError, match="leave out variables"):
            take(made, ["a", "b"])


def wide_rows(made: Traces, start: float) -> list[list[str]]:
    dt = made.dt or 0.0
    return [
        [made.ids[n], repr(round(start + dt * p, 6)), *map(repr, x[:, p].tolist())]
        for n, x in enumerate(made.values)
        for p in range(x.shape[1])
    ]


@in_folder
@given(traces(), st.sampled_from([0.0, 7.3, 1700000000.0]), st.randoms())
def test_every_format_reads_the_same(tmp_path: Path, made: Traces, start: float, random) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = wide_rows(made, start)
    header = ["trace", "time", *made.variables]
    wide = [",".join(header), *(",".join(row) for row in rows)]
    assert_same(read_traces(write(tmp_path / "a.csv", *wide)), made)
    tabs = [line.replace(",", "\t") for line in wide]
    assert_same(read_traces(write(tmp_path / "a.tsv", *tabs)), made)

    columns = {"trace": [row[0] for row in rows]}
    columns |= {h: [float(row[i]) for row in rows] for i, h in enumerate(header) if i}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert_same(read_traces(tmp_path / "a.parquet"), made)

    # The series of a long table may stand in any order, as long as each is in order of time.
    series = [
        [",".join((row[0], row[1], name, row[2 + v])) for row in rows if row[0] == trace]
        for trace in made.ids
        for v, name in enumerate(made.variables)
    ]
    merged = []
    while any(series):
        merged.append(random.choice([s for s in series if s]).pop(0))
    write(tmp_path / "long.csv", "trace,time,variable,value", *merged)
    long = read_traces(tmp_path / "long.csv", variables=made.variables)
    order = [long.ids.index(i) for i in made.ids]
    values = [long.values[i] for i in order]
    assert_same(Traces(long.variables, values, made.ids, long.dt), made)

    if len({x.shape for x in made.values}) == 1:
        np.save(tmp_path / "a.npy", np.stack(made.values))
        array = read_traces(tmp_path / "a.npy", variables=made.variables)
        ids = tuple(str(i) for i in range(len(made.ids)))
        assert_same(array, Traces(made.variables, made.values, ids, None))


def test_rows_of_several_traces_may_alternate(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "id,x", "b,1", "a,10", "b,2", "a,20", "b,3")
    found = read_traces(file)
    assert found.ids == ("b", "a")
    assert [x.tolist() for x in found.values] == [[[1, 2, 3]], [[10, 20]]]


def test_many_blocks(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(2, 10_000))
    write(tmp_path / "a.csv", "x,y", *(f"{a!r},{b!r}" for a, b in x.T.tolist()))
    assert np.array_equal(read_traces(tmp_path / "a.csv").values[0], x)


def test_a_folder_is_a_trace_a_file(tmp_path: Path) -> None:
    for i in (10, 2, 1):
        write(tmp_path / f"run{i}.csv", *(["x,y", f"{i},0"] if i > 1 else ["y,x", f"0,{i}"]))
    for name in (".run.csv", "~run.csv", ".~lock.run1.csv#"):
        write(tmp_path / name, "not a trace")
    found = read_traces(tmp_path)
    assert found.ids == ("run1", "run2", "run10")
    assert found.variables == ("y", "x")
    assert [x[:, 0].tolist() for x in found.values] == [[0, 1], [0, 2], [0, 10]]


def test_what_is_not_read_of_a_folder_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "x", "1")
    for name in ("b.csv.gz", "c.log", "e.TXT", "r.stl"):
        write(tmp_path / name, "x", "1")
    (tmp_path / "d.csv").mkdir()
    with pytest.warns(RhovecWarning, match=r": not read: b\.csv\.gz, c\.log, d\.csv/, e\.TXT$"):
        assert read_traces(tmp_path).ids == ("a",)
    (tmp_path / "a.csv").unlink()
    with pytest.warns(RhovecWarning, match=r": not read: b\.csv\.gz, c\.log, d\.csv/$"):
        assert read_traces(tmp_path).ids == ("e",)


def test_links_to_nothing_and_pipes_in_a_folder(tmp_path: Path) -> None:
    """A log that is gone is an error, not a warning; a pipe is not waited for."""
    write(tmp_path / "a.csv", "x", "1")
    os.mkfifo(tmp_path / "f.csv")
    with pytest.warns(RhovecWarning, match=r": not read: f\.csv \(a pipe or a device\)$"):
        assert read_traces(tmp_path).ids == ("a",)
    with pytest.raises(TraceError, match=r"f\.csv: a pipe or a device, but logs are read several"):
        read_traces(tmp_path / "f.csv")
    (tmp_path / "f.csv").unlink()
    (tmp_path / "b.csv").symlink_to("gone.csv")
    (tmp_path / "c.csv").symlink_to("a.csv")
    with pytest.raises(TraceError, match=r"b\.csv: cannot be read: No such file"):
        read_traces(tmp_path)
    (tmp_path / "r.stl").write_text("x > 0")
    report = check_logs(tmp_path / "r.stl", tmp_path)
    assert [one.file for one in report.unread] == [str(tmp_path / "b.csv")]
    assert [row.trace for row in report.rows] == ["a", "c"]


def test_signals_about_times_are_no_times(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "x,lap_time,response_time_ms", "1,20,5", "2,19,5")
    (log,) = read_logs(file)
    assert list(log.channels) == ["x", "lap_time", "response_time_ms"] and not log.timed
    write(file, "clock,x", "5,1", "5,2")
    (log,) = read_logs(file, variables=["x"])
    assert list(log.channels) == ["x"]
    with pytest.raises(TraceError, match="'clock' may be the times"):
        next(read_logs(file))


def test_a_first_row_that_may_be_times_is_asked_about(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "0,0.1,0.2", "1,2,130")
    with pytest.raises(TraceError, match="are these times or samples"):
        read_traces(file, layout="rows")
    assert len(read_traces(file, layout="rows", variables=["v"]).values) == 2
    for first in ("0;0,1;0,2", ",0,0.1,0.2"):
        write(file, first, first.replace("0", "7"))
        with pytest.raises(TraceError, match=r"a\.csv:1: are these times or samples"):
            read_traces(file, layout="rows")
    for first in ("0,1", "0,1,3", "1,2,3", "0,0,0"):
        write(file, first, ",".join("7" for _ in first.split(",")))
        assert len(read_traces(file, layout="rows").values) == 2
    write(file, ",1,2,3", "4,5,6,7")
    with pytest.raises(TraceError, match="the cell is empty"):
        read_traces(file, layout="rows")


def test_a_row_of_samples_may_have_decimal_commas(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "1;2,5;3", "4;5;6")
    found = read_traces(file, layout="rows")
    assert [x.tolist() for x in found.values] == [[[1, 2.5, 3]], [[4, 5, 6]]]
    assert rv.robustness("x_0 > 0", found).tolist() == [1, 4]
    write(file, "1;NA;3,5", "4;5;6")
    first, second = (log.channels["x_0"].values for log in read_logs(file, layout="rows"))
    assert np.isnan(first[1]) and first[2] == 3.5 and second[1] == 5
    write(file, "id;0;0,1;0,2", "a;1,5;2;300", "b;1,5;2;3")
    found = read_traces(file, layout="rows")
    assert (found.ids, found.dt, found.values[0].tolist()) == (("a", "b"), 0.1, [[1.5, 2, 300]])


def test_ids_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    one, two = tmp_path / "a.csv", tmp_path / "b" / "a.csv"
    write(one, "id,x", "1,0", "2,0")
    write(two, "x", "0")
    assert read_traces([one, two]).ids == (f"{one}/1", f"{one}/2", str(two))
    np.save(tmp_path / "c.npy", np.zeros((2, 1, 3)))
    found = read_traces([one, tmp_path / "c.npy"], variables=["x"])
    assert found.ids == ("a/1", "a/2", "c/0", "c/1")


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "car,clock,x,note,t", "7,0,1,ok,9", "7,2,3,ok,3", "8,0,5,-,4")
    found = read_traces(file, id_column="car", time_column="clock", variables=["t", "x"])
    assert found.variables == ("t", "x")
    assert found.ids == ("7", "8")
    assert found.dt == 2
    assert [x.tolist() for x in found.values] == [[[9, 3], [1, 3]], [[4], [5]]]
    with pytest.raises(TraceError, match=r"'note': 'ok' is not a number"):
        read_traces(file, id_column="car")


def with_units(folder: Path, suffix: str) -> Path:
    file = folder / f"a{suffix}"
    table = {
        "t": [0.0, 1.0],
        "v (km/h)": [36.0, 72.0],
        "v (m/s)": [10.0, 20.0],
        "w [m]": [1.0, 2.0],
    }
    if suffix == ".csv":
        rows = [table, *zip(*table.values(), strict=True)]
        file.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    else:
        pytest.importorskip("pyarrow.parquet").write_table(
            sys.modules["pyarrow"].table(table), file
        )
    return file


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_variables_have_the_names_of_channels(tmp_path: Path, suffix: str) -> None:
    file = with_units(tmp_path, suffix)
    found = read_traces(file)
    assert found.variables == tuple(next(read_logs(file)).channels) == ("v (km/h)", "v (m/s)", "w")
    assert found.units == next(read_logs(file)).units
    for name in ("w", "w [m]", "v (m/s)"):
        assert read_traces(file, variables=[name]).variables == (name,)
    with pytest.raises(TraceError, match="no column 'v'"):
        read_traces(file, variables=["v"])
    for mentioned in (["w [m]"], ["w", "w [m]"]):
        assert read_traces(file, mentioned=mentioned).variables[2:] == tuple(mentioned)


@pytest.mark.parametrize("column", ["variable", "signal", "channel", "name"])
def test_long_tables_are_those_of_logs(tmp_path: Path, column: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"t,{column},value\n0,w [m],1\n1,w [m],2\n0,u,3\n1,u,4\n")
    assert read_traces(file).variables == tuple(next(read_logs(file)).channels) == ("w [m]", "u")


def test_files_in_different_units_are_refused(tmp_path: Path) -> None:
    for name, header in {"a": "w", "b": "w [m]", "c": "w (cm)"}.items():
        (tmp_path / f"{name}.csv").write_text(f"{header}\n1\n")
    files = [tmp_path / f"{name}.csv" for name in "abc"]
    assert read_traces(files[:2]).units == {"w": "m"}
    with pytest.raises(TraceError, match=r"c\.csv: 'w' is in cm, but in m in .*b\.csv"):
        read_traces(files)


@pytest.mark.parametrize("n", [1, 4096, 8192])  # blocks of rows are read at once
def test_blank_lines_after_any_number_of_rows(n: int, tmp_path: Path) -> None:
    rows = [f"{i},{i}" for i in range(n)]
    (tmp_path / "a.csv").write_text("\n".join(["time,x", *rows, "", "", ""]))
    (values,) = read_traces([tmp_path / "a.csv"]).values
    assert values[0].tolist() == list(range(n))


def test_quotes_blanks_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b'\xef\xbb\xbfTime, "x"\r\n0,"1.5"\r\n1, 2e3 \r\n\r\n'.replace(b', "', b',"'))
    found = read_traces(file)
    assert found.variables == ("x",)
    assert found.dt == 1
    assert found.ids == ("a",)
    assert found.values[0].tolist() == [[1.5, 2000]]


@pytest.mark.parametrize(
    ("times", "dt"),
    [
        ([0, 1 / 3, 2 / 3, 1.0], 1 / 3),
        ([0.0, 0.033, 0.067, 0.1], 0.1 / 3),
        ([5], None),
        ([0, 0.1, 0.2, 0.30000000000000004], 0.1),
        ([1700000000.1, 1700000000.2, 1700000000.3], 0.1),
    ],
)
def test_sampling_step(tmp_path: Path, times: list[float], dt: float | None) -> None:
    found = read_traces(write(tmp_path / "a.csv", "t,x", *(f"{t!r},0" for t in times)))
    assert (
        found.dt is None or parse("G[0,0] x > 0", dt=found.dt).size == 2
    )  # a step that formulae take
    assert found.dt == (dt if dt is None else pytest.approx(dt, rel=1e-12))


def test_many_columns_take_no_quadratic_time(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(20_000)]
    ones = ",".join(["1"] * len(names))
    wide = write(tmp_path / "a.csv", ",".join(names), ones)
    turned = write(tmp_path / "b.csv", ",".join(reversed(names)), ones)
    long = write(tmp_path / "c.csv", "variable,value", *(f"{name},1" for name in names))
    bad = write(tmp_path / "d.csv", ",".join(names), ones.removesuffix("1") + "?")
    start = time.process_time()
    assert len(read_traces([wide, turned], variables=names).variables) == len(names)
    assert len(read_traces([wide, turned]).variables) == len(names)
    assert len(read_traces(long, variables=names[::-1]).variables) == len(names)
    with pytest.raises(TraceError, match=r"d.csv:2, column 'c19999'"):
        read_traces(bad)
    with pytest.raises(TraceError) as caught:
        read_traces(wide, variables=["z"])
    assert len(str(caught.value)) < 300
    assert time.process_time() - start < 5  # 20 s and more with a search per name


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["x,y", "1,2", "3,oops"], "a.csv:3, column 'y': 'oops' is not a number"),
        (["x,y", "1,2", "", "3,4"], "a.csv:3: a blank line in the table; remove it"),
        (["x,y", "1,2", "3"], "a.csv:3: 1 cell, but the header has 2"),
        (["x,y", "1,2,3", "4,5,6"], "a.csv:2: 3 cells, but the header has 2"),
        (["x,y", "1,2", "3,1_0"], "a.csv:3, column 'y': '1_0' is not a number"),
        (["x,y", "1,2", "3,٣"], "a.csv:3, column 'y': '٣' is not a number"),
        (["x,y", "1,"], "a.csv:2, column 'y': the cell is empty"),
        (["x,y", "1,", "3,4"], "a.csv:2, column 'y': the cell is empty"),
        (["x,y", "1,2", "3,nan"], "a.csv:3, column 'y': nan is not finite"),
        (["x,y", "1,2", "3,1e999"], "a.csv:3, column 'y': 1e999 is not finite"),
        (["id,x", "a,2", " ,3"], "a.csv:3, column 'id': the cell is empty"),
        (['x,"a', 'b"', '1,"2', '"', "3,z"], "a.csv:5, column 'a\\nb': 'z' is not"),
        (['x,y', '1,"2'], "a.csv:2: unexpected end of data"),
        (["1,2", "3,4"], "a.csv:1: a number, but the first line must name"),
        (["x,,y", "1,2,3"], "a.csv: column 2 has no name"),
        (["x,y,x", "1,2,3"], "a.csv: column 'x' appears twice"),
        (["x,y"], "a.csv: there is a header but no row below it"),
        ([""], "a.csv: the file is empty"),
        (["\0PNG"], "a.csv:1: binary data"),
        (["time,id", "0,a"], "a.csv: there is no column besides id and time"),
        (["t,x", "0,1", "1,1", "1,1"], "a.csv:4: the time goes from 1 to 1, but it must increase"),
        (["t,x", "0,1", "1,1", "2,1", "5,1"], "a.csv:5: the time goes from 2 to 5, but the usual"),
        (["id,t,x", "a,0,1", "a,1,1", "a,2,1", "b,0,1", "b,2,1"], "a.csv:6: the time goes from 0"),
        (["variable,value", "x,1", "y,2", "x,3"], "'x' has 2 values, but 'y' has 1"),
        (["id,variable,value", "a,x,1", "b,y,2"], "trace 'a': variable 'x' has 1 values, but 'y'"),
        (["t,variable,value", "0,x,1", "0,y,2", "1,x,3", "2,y,4"], "a.csv:5: 'y' is at time 2"),
        (["variable,value", "x,1", "y,?"], "a.csv:3, column 'value': '?' is not a number"),
        (["variable,value", ",1"], "a.csv:2, column 'variable': the cell is empty"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_traces(write(tmp_path / "a.csv", *lines))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_bad_cell_is_found_in_a_long_file(tmp_path: Path) -> None:
    lines = ["x,y", *(f"{i},{i}" for i in range(9000))]
    lines[8765] = "1,1.2.3"
    with pytest.raises(TraceError, match=r"a.csv:8766, column 'y': '1\.2\.3' is not a number"):
        read_traces(write(tmp_path / "a.csv", *lines))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "tall"}, "layout must be"),
        ({"layout": "long"}, "no column 'variable'; it has: time, x, y"),
        ({"variables": ["z"]}, "no column 'z'; it has: time, x, y"),
        ({"variables": []}, "variables must be names"),
        ({"variables": ["x", "x"]}, "each given once"),
        ({"variables": [0, 1]}, "variables must be names, not 0"),
        ({"id_column": "trace"}, "no column 'trace'"),
        ({"time_column": "clock"}, "no column 'clock'"),
        ({"time_column": "x", "variables": ["x"]}, "'x' is the id or the time"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict, message: str) -> None:
    file = write(tmp_path / "a.csv", "time,x,y", "0,1,2", "1,2,3")
    with pytest.raises(TraceError, match=message):
        read_traces(file, **options)


def test_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="this folder has no"):
        read_traces(tmp_path)
    with pytest.raises(TraceError, match="no such file"):
        read_traces(tmp_path / "a.csv")
    with pytest.raises(TraceError, match=r"must end in .csv"):
        read_traces(write(tmp_path / "a.xlsx", "x"))
    with pytest.raises(TraceError, match="no trace file given"):
        read_traces([])
    one = write(tmp_path / "1.csv", "x,y", "0,0")
    two = write(tmp_path / "2.csv", "x", "0")
    with pytest.raises(TraceError, match=r"2.csv: there is no variable 'y', which .*1.csv has"):
        read_traces([one, two])
    with pytest.raises(TraceError, match=r"2.csv: there is no variable 'y', which .*1.csv has"):
        read_traces([two, one])
    long = write(tmp_path / "l.csv", "id,variable,value", "a,x,0", "b,y,0")
    with pytest.raises(TraceError, match="trace 'b': no value of x"):
        read_traces(long, variables=["x"])
    with pytest.raises(TraceError, match="no variable 'z'; it has: x"):
        read_traces(write(tmp_path / "l.csv", "variable,value", "x,0"), variables=["z"])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), "must be"),
        (np.zeros((1, 2, 3, 4)), "must be"),
        (np.zeros((2, 0)), "without a 0"),
        (np.zeros((2, 3), complex), "complex128, not real numbers"),
        (np.array([["a"]]), "not real numbers"),
        (np.array([[None]]), "not an .npy file"),
        (np.array([[[0, 1], [2, np.inf]]]), "trace 0, variable 'x_1', point 1: inf is not finite"),
    ],
)
def test_bad_arrays(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(TraceError, match=message):
        read_traces(tmp_path / "a.npy")


def test_arrays_are_named_by_position(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    found = read_traces(tmp_path / "a.npy")
    assert_same(found, Traces(("x_0", "x_1"), [np.arange(6.0).reshape(2, 3)], ("a",), None))
    with pytest.raises(TraceError, match="2 variables, but 3 are named"):
        read_traces(tmp_path / "a.npy", variables=["a", "b", "c"])


def test_times_in_messages_differ(tmp_path: Path) -> None:
    times = ["2024-03-31 02:00:00", "2024-03-31 02:00:01", "2024-03-31 02:00:03"]
    file = write(tmp_path / "a.csv", "time,x", *(f"{time},1" for time in times))
    with pytest.raises(
        TraceError, match="from 2024-03-31 02:00:01 to 2024-03-31 02:00:03, but the us"
    ):
        read_traces(file)
    write(file, "time,x", "86399,1", "0,2")
    with pytest.raises(TraceError, match="from 86399 to 0, but it must increase; if midnight lies"):
        read_traces(file)
    write(file, "time,x", "12345678,1", "12345677,2")
    with pytest.raises(TraceError, match=r"from 12345678 to 12345677, but it must increase$"):
        read_traces(file)


def test_bad_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "a.parquet"
    for columns, message in [
        ({"x": [1, None]}, r"row 2, column 'x': missing"),
        ({"x": ["1"]}, "holds string, not real numbers"),
        ({"id": ["a", None], "x": [1, 2]}, r"row 2, column 'id': is missing"),
        ({"x": pa.array([], pa.float64())}, "no rows"),
        ({"t": [0, 1, 1], "x": [1, 2, 3]}, r"row 3: the time goes from 1 to 1"),
    ]:
        parquet.write_table(pa.table(columns), file)
        with pytest.raises(TraceError, match=message):
            read_traces(file)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "rhovec\[data\]"'):
        read_traces(file)


@in_folder
@given(st.binary(max_size=200), st.sampled_from([".csv", ".tsv", ".npy", ".parquet"]))
@example(b"x,y\n1,2\n\xff\xfe", ".csv")
@example(b"", ".npy")
@example(b"", ".parquet")
@example(b"\x93NUMPY\x01\x00\x06\x00{'a':\n", ".npy")
@example(b"\x93NUMPY\x01\x00\x06\x00('a' \n", ".npy")
@example(b"PK\x03\x04", ".npy")
@example(b"PAR1PAR1", ".parquet")
def test_junk_is_a_named_error(tmp_path: Path, data: bytes, suffix: str) -> None:
    file = tmp_path / f"junk{suffix}"
    file.write_bytes(data)
    try:
        found = read_traces(file)
    except TraceError as error:
        assert str(file) in str(error)
    else:
        assert all(np.isfinite(x).all() for x in found.values)


@in_folder
@given(st.lists(st.text("0123456789.eE+-_ naif٣x,\"'\n\r", max_size=8), max_size=6))
def test_odd_cells_are_read_or_named(tmp_path: Path, cells: list[str]) -> None:
    file = tmp_path / "odd.csv"
    file.write_bytes("\n".join(["x,y", *cells]).encode())
    try:
        found = read_traces(file)
    except TraceError as error:
        assert str(file) in str(error)
    else:
        assert len(found.variables) == 2
