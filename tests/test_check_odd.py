"""Odd files through `rhovec check`: the right answer, or one message that says where and what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.check import check_logs
from rhovec.check.page import page
from rhovec.cli import app
from rhovec.errors import TraceError
from rhovec.formula.lexer import is_bare
from rhovec.formula.requirements import read_data

from .test_traces_odd import CASES, Answer

runner = CliRunner()
LIMIT = 1e9  # beyond all values of these files


def names_in(options: dict[str, Any], expected: Answer | str) -> list[str]:
    """The channels that requirements are about."""
    if "variables" in options:
        return list(options["variables"])
    if isinstance(expected, dict):
        return [name for name in expected if name != "t"]
    if "has 2 values" in expected:
        return ["x", "y"]
    named = re.search(r"(?:column|variable) '(?!t'|value|name|clock|variable)(\w+)'", expected)
    return [named[1] if named else "x"]


def arguments_of(options: dict[str, Any]) -> list[str]:
    out = []
    for key, value in options.items():
        option = f"--{key.replace('_', '-')}"
        if key == "labels":
            out += [option, *(f"{n}=" + ",".join(f"{k}:{c}" for k, c in v.items())
                              for n, v in value.items())]  # fmt: skip
        elif value is True:
            out.append(option)
        elif key == "variables" and options.get("layout") == "rows":
            out += [option, ",".join(value)]
        elif key not in ("variables", "coded"):
            out += [option, str(value)]
    return out


def check(
    file: Path, names: list[str], extra: list[str], named_modes: bool
) -> tuple[int, list[dict[str, Any]], str]:
    """Exit status, rows and stderr."""
    shown = [name if is_bare(name) else f"`{name}`" for name in names]
    formulae = [f"always {name} < {LIMIT:.0f}" for name in shown]
    if named_modes:
        formulae = ['always g != "none"' if f.startswith("always g ") else f for f in formulae]
    result = runner.invoke(app, ["check", *formulae, "-t", str(file), "--json", *extra])
    assert result.exit_code in (0, 1, 2), result.exception
    return result.exit_code, [json.loads(x) for x in result.stdout.splitlines()], result.stderr


@pytest.mark.parametrize("case", range(len(CASES)))
def test_odd_files(tmp_path: Path, case: int) -> None:
    data, options, expected = CASES[case]
    file = tmp_path / "odd.csv"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    names, extra = names_in(options, expected), arguments_of(options)
    grid = ["--resample", "0.5", "--missing", "interpolate"]
    named_modes = isinstance(expected, dict) or "labels" in options
    code, rows, errors = check(file, names, [*extra, *grid], named_modes)
    if "there are no times" in errors:
        code, rows, errors = check(file, names, extra, named_modes)
    if code == 2:
        (line,) = errors.splitlines()
        assert rows == []
        if isinstance(expected, dict):
            assert max(expected["t"]) > 1e8 and "take a longer one" in line
        else:
            wanted = expected.format(file).replace("time_unit must", "--time-unit must")
            if wanted.endswith("but the header has 1; quote a cell"):
                wanted = "skip what is above by --skip-lines"
            assert wanted.split("; it has")[0] in line
            assert len(line) < 400 + len(str(file))
        return
    assert isinstance(expected, dict), rows
    assert [row["trace"] for row in rows] == [rows[0]["trace"]] * len(names)
    for name, row in zip(names, rows, strict=True):
        values = np.array(expected[name])
        known = values[~np.isnan(values)]
        if not len(known):
            assert row["verdict"] == "open"
        elif name == "g" or set(known) <= {0, 1}:  # modes and flags have no margin
            assert row["verdict"] in ("holds so far", "open")
        else:
            margins = [row[key] for key in ("robustness", "doubt", "robustness_greatest")]
            least = min(float(margin) for margin in margins if margin is not None)
            assert least == LIMIT - known.max()


@pytest.mark.parametrize("header", ["Zeit", "Zeit [s]", "ts", "elapsed time", "stamp [s]"])
def test_times_of_another_name_are_asked_for(tmp_path: Path, header: str) -> None:
    """Otherwise `[0,2]` would be the first two samples, and the log would hold."""
    rows = [f"{i / 10},{2 if i < 15 else 0}" for i in range(31)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join([f"{header},v", *rows]))
    command = ["check", "always[0,2] v > 1", "-t", str(path)]
    result = runner.invoke(app, command)
    assert result.exit_code == 2 and f"{header!r} may be the times" in result.output
    assert "--time-column" in result.output and "--dt" in result.output
    for more in (["--time-column", header], ["--dt", "0.1"]):
        result = runner.invoke(app, [*command, *more])
        assert result.exit_code == 1 and "1 violated" in result.output
    assert runner.invoke(app, [*command, "--dt", "1"]).exit_code == 0  # samples, on request


def test_rows_go_by_the_same_names_as_for_robustness(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text, known, unknown in (
        ("x_0,x_1,x_2\n1,2,130\n", "x", "x_0"), ("1,2,130\n", "x_0", "x"),
    ):  # fmt: skip
        path.write_text(text)
        for command in ("check", "robustness"):
            base = [command, "-t", str(path), "--layout", "rows"]
            assert runner.invoke(app, [*base, f"always {known} < 200"]).exit_code == 0
            assert runner.invoke(app, [*base, f"always {unknown} < 200"]).exit_code == 2
            named = runner.invoke(app, [*base, "always v < 200", "--variables", "v"])
            assert named.exit_code == (0 if known == "x_0" else 2)
    path.write_text("id,time,x\n7,0,1\n8,0,130\n9,0,3\n")  # one sample each
    assert runner.invoke(app, ["robustness", "x > 0", "-t", str(path)]).exit_code == 0
    path.write_text("id,time,x\n7,0,1\n8,1,130\n9,2,3\n")
    one_each = ["robustness", "x > 0", "-t", str(path)]
    assert runner.invoke(app, one_each).exit_code == 2
    assert runner.invoke(app, [*one_each, "--id-column", "id"]).exit_code == 0


def test_a_single_sample_has_the_step_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    for text in ("time,v\n0,5\n", "v\n5\n"):
        path.write_text(text)
        command = ["check", "eventually[0.1,0.2] v > 6", "-t", str(path), "--json"]
        result = runner.invoke(app, [*command, "--dt", "0.1"])
        assert result.exit_code == 0, result.output
        (row,) = map(json.loads, result.stdout.splitlines())
        assert row["verdict"] == "open"
    path.write_text("time,v\n0,5\n")
    result = runner.invoke(app, [*command, "v > 6"])  # the second needs no step
    assert result.exit_code == 2 and "not a whole number of steps" in result.stderr
    (row,) = map(json.loads, result.stdout.splitlines())
    assert row["verdict"] == "violated"
    assert runner.invoke(app, ["check", "always v < 6", "-t", str(path)]).exit_code == 0
    result = runner.invoke(app, ["robustness", "v > 6", "-t", str(path), "--dt", "auto"])
    assert result.exit_code == 2 and "at least two samples" in result.stderr


def test_a_column_of_times_may_be_what_a_requirement_is_about(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("elapsed,v\n1,2\n2,2\n3,2\n")
    assert runner.invoke(app, ["check", "always elapsed > v - 5", "-t", str(path)]).exit_code == 0


def test_the_step_of_a_log_without_times_makes_seconds(tmp_path: Path) -> None:
    """As if the log had them: in verdicts, intervals, answers, rates and sentences."""
    a, b = ([int(i in at) for i in range(16)] for at in ((3, 10), (6, 12)))
    cells = [f"{x},{y},{i % 5}" for i, (x, y) in enumerate(zip(a, b, strict=True))]
    timed = [f"{0.5 * i}," + text for i, text in enumerate(cells)]
    (tmp_path / "timed.csv").write_text("\n".join(["time,a,b,speed", *timed]))
    (tmp_path / "plain.csv").write_text("\n".join(["a,b,speed", *cells]))
    formulae = ["always (a -> eventually[0,2] b)", "always speed < 4", "always rate(speed) < 3"]

    def rows(file: str, *extra: str) -> list[dict[str, Any]]:
        given = ["check", *formulae, "-t", str(tmp_path / file), "--json", *extra]
        result = runner.invoke(app, given)
        assert result.exit_code == 1, result.output
        found = [json.loads(line) for line in result.stdout.splitlines()]
        return [{k: v for k, v in row.items() if k not in ("trace", "file")} for row in found]

    assert rows("plain.csv", "--dt", "0.5") == rows("timed.csv")
    assert [row["slowest"] for row in rows("timed.csv")] == [1.5, None, None]
    counted = ["check", formulae[0].replace("2]", "4]"), "-t", str(tmp_path / "plain.csv")]
    assert "3 samples" in runner.invoke(app, counted).output


def test_a_log_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,v [km/h],gear\n5,1,P\n5.5,,D\n6,3,D\n")
    (log,) = rv.read_logs(path)
    told = str(rv.explain("always v < 2 km/h", log))
    assert told == "violated at 6 s: v < 2 fails by 1 km/h at 6 s"
    assert "holds" in str(rv.explain('eventually gear == "D"', log))
    path.write_text("time,v\n0,1\n1,2\n5,3\n")
    with pytest.raises(TraceError, match="the time goes from 1 to 5, but the usual step is 1"):
        rv.explain("always v < 2", next(rv.read_logs(path)))
    for trace in ({"v": ["a"]}, [log], "v"):
        with pytest.raises(TraceError, match="must be real numbers; "):
            rv.explain("always v < 2", trace)
    statements = read_data(b"always v < 2", "a.stl")
    for wrong in ([pa.table({"v": [1]})], {"v": ["a"]}, log):
        with pytest.raises(TraceError, match="give paths of files or folders, not "):
            check_logs(statements, wrong)


def test_what_only_check_can_do_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,x,y,gear\n0,1,2,P\n1,2,3,D\n")
    for formula in ('always gear == "D"', "always x * y < 3"):
        told = ["robustness", formula, "--labels", "gear=P:0,D:1", "-t", str(path)]
        result = runner.invoke(app, told)
        assert result.exit_code == 2 and "`rhovec check`" in result.stderr
        assert runner.invoke(app, ["check", formula, "-t", str(path)]).exit_code == 1


def test_dates_are_named_to_the_last_digit(tmp_path: Path) -> None:
    rows = [f"{1704067200 + 0.1 * i:.1f},{i}" for i in range(9)]
    (tmp_path / "log.csv").write_text("\n".join(["time,speed", *rows]))
    result = runner.invoke(app, ["check", "always speed < 7", "-t", str(tmp_path / "log.csv")])
    assert "at 1704067200.7 s" in result.output.replace("from", "at")


@pytest.mark.parametrize("formula", ["always[0,0.3] x > 0", "eventually[0,0.3] x > 3.5"])
def test_a_verdict_does_not_depend_on_when_the_log_began(formula: str, tmp_path: Path) -> None:
    outcomes, statements = [], read_data(formula.encode(), "a.stl")
    for start in (0.0, 1717171717.0):
        rows = [f"{start + 0.1 * i:.1f},{i + 1}" for i in range(4)]
        (tmp_path / "log.csv").write_text("\n".join(["time,x", *rows]))
        (row,) = check_logs(statements, tmp_path / "log.csv", resample=0.1).rows
        outcomes.append(row.verdict)
        assert row.robustness == pytest.approx(1 if "always" in formula else 0.5, abs=1e-5)
    assert outcomes == ["holds"] * 2


def test_separators_of_thousands_get_a_hint(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time;x\n0;1.234,5\n1;1.234,6\n")
    (tmp_path / "b.csv").write_text("time;x\n0;north\n1;south\n")
    result = runner.invoke(app, ["check", "always x > 2", "-t", str(tmp_path)])
    assert result.exit_code == 2
    assert "'1.234,5' is not a number; write numbers as in 1234.5, without" in result.output
    assert "'north' is not a number; a requirement compares names as in x ==" in result.output


def test_samples_of_any_size_are_checked(tmp_path: Path) -> None:
    columns = [[1, 1e200], [-1e154, 1e154, 1], [1.7e308, 1.7e308, -1.7e308], [1, 3]]
    for i, column in enumerate(columns):
        rows = [f"{t},{value}" for t, value in enumerate(column)]
        (tmp_path / f"{i}.csv").write_text("\n".join(["time,x", *rows]))
    report = check_logs(read_data(b"always x > 2", "a.stl"), tmp_path)
    assert [row.verdict for row in report.rows] == ["violated"] * 4 and not report.unread
    assert "nan" not in page(report)


@pytest.mark.parametrize(
    "header", ["Zeit", "t_ms", "seconds", "epoch", "Datum", "ts", "sec", "clock_s", "UTC"]
)
def test_columns_that_may_be_the_times(header: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("\n".join([f"{header},speed", "0,1", "1,2", "2,3"]))
    command = ["check", "always[0,1] speed < 9", "-t", str(tmp_path / "log.csv")]
    result = runner.invoke(app, command)
    assert result.exit_code == 2 and f"{header!r} may be the times" in result.output
    assert runner.invoke(app, [*command, "--dt", "1"]).exit_code == 0
