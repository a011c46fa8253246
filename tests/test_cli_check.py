"""`rhovec check`: summary, reports, exit status, and what it says when something is wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest
from junit2htmlreport.parser import Junit
from junitparser import JUnitXml
from pyarrow import parquet
from typer.testing import CliRunner

import rhovec
from rhovec.cli import app

from .planted import DT, MAX_GAP, REQUIREMENTS, make_logs

runner = CliRunner()
GRID = ("--resample", str(DT), "--max-gap", str(MAX_GAP))
SOURCE = str(Path(rhovec.__file__).parents[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("check")
    (root / "requirements.stl").write_text(
        REQUIREMENTS + 'IDLE "Never asked": always (torque > 1000 -> eventually[0,1] speed < 5)\n'
    )
    (root / "logs").mkdir()
    make_logs(root / "logs", 16, rows=100)
    return root


def check(*arguments: object, code: int = 0) -> tuple[str, str]:
    """stdout and stderr of `rhovec check`, which must end with this exit status."""
    result = runner.invoke(app, ["check", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def on(folder: Path) -> tuple[object, ...]:
    return ("-F", folder / "requirements.stl", "-t", folder / "logs", *GRID)


# -- the summary -----------------------------------------------------------------------------------


def test_the_summary_tells_the_most_important_first(folder: Path) -> None:
    out, _ = check(*on(folder), code=1)
    lines = out.splitlines()
    assert re.match(r"6 requirements on 16 logs: 10 violated, \d+ open, \d+ holds so far", lines[0])
    strip = {line.split()[0]: line.split()[-1] for line in lines[2:10]}
    assert len(strip["SPEED"]) == 16 and strip["SPEED"][0] == "x" and strip["SPEED"][5] == "!"
    titles = [
        line for line in lines if re.match(r"(Worst|Open|Depends|Responses|Resampling)", line)
    ]
    assert [title.split()[0] for title in titles] == [
        "Worst", "Open", "Depends", "Responses", "Resampling",
    ]  # fmt: skip
    assert "never triggered: it holds vacuously" in out
    assert "with unknown samples held it" in out
    assert re.search(r"Resampling to 0.1 s made up [\d,]+ samples of [\d,]+, in \d+ logs: ", out)
    assert not any(line.endswith(" ") for line in lines)


def test_many_logs_are_counted_and_those_that_violate_are_named(tmp_path: Path) -> None:
    for i in range(60):
        (tmp_path / f"run{i}.csv").write_text(f"time,x\n0,{i % 7}\n1,0\n")
    out, _ = check("A: always x < 6", "-t", tmp_path, code=1)
    (line,) = [line for line in out.splitlines() if line.startswith("A ")]
    assert line.split()[1:5] == ["8", "0", "52", "0"]
    assert "run6, run13, run20, run27 and 4 more" in line


def test_names_from_files_cannot_control_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.csv").write_text("time,x\n0,9\n")
    out, _ = check("A: always x < 6", "-t", tmp_path, code=1)
    assert "\x1b" not in out and "a\\x1b[31m" in out


# -- JSON and CSV ----------------------------------------------------------------------------------


def test_json_has_one_object_per_requirement_and_log(folder: Path) -> None:
    out, _ = check(*on(folder), "--json", code=1)
    records = [json.loads(line) for line in out.splitlines()]
    assert len(records) == 6 * 16
    keys = {"requirement", "title", "trace", "verdict", "robustness", "intervals", "explanation"}
    assert all(keys <= record.keys() for record in records)
    (speed,) = [r for r in records if r["requirement"] == "SPEED" and r["trace"] == "run0"]
    assert speed["verdict"] == "violated" and speed["robustness"] < 0
    assert speed["intervals"] and speed["since"] == speed["intervals"][0][0]
    vacuous = [r for r in records if r["requirement"] == "IDLE" and r["verdict"] != "open"]
    assert vacuous and all(r["vacuous"] and r["triggered"] == 0 for r in vacuous)


def test_numbers_that_json_lacks_are_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,on\n0,true\n1,false\n")
    out, _ = check("A: always on", "-t", tmp_path / "a.csv", "--json", code=1)
    record = json.loads(out, parse_constant=pytest.fail)
    assert record["robustness"] == "-inf" and record["explanation"].endswith("on fails at 1 s")


def test_csv_is_safe_and_complete(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "=1+1.csv").write_text("time,x\n0,9\n1,1\n")
    check("always x < 6", "-t", tmp_path / "=1+1.csv", "--csv", tmp_path / "out.csv", code=1)
    with (tmp_path / "out.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert row["trace"] == "'=1+1" and row["requirement"] == "always x < 6"
    assert json.loads(row["intervals"]) == [[0.0, 0.0]]
    check(*on(folder), "--csv", tmp_path / "all.csv", code=1)
    with (tmp_path / "all.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 6 * 16


def test_parquet_has_the_same_rows(folder: Path, tmp_path: Path) -> None:
    out, _ = check(*on(folder), "--csv", tmp_path / "all.parquet", "--json", code=1)
    records = [json.loads(line) for line in out.splitlines()]
    rows = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert [row["verdict"] for row in rows] == [record["verdict"] for record in records]
    assert [json.loads(row["intervals"]) for row in rows] == [r["intervals"] for r in records]
    finite = [(r["robustness"], s["robustness"]) for r, s in zip(rows, records, strict=True)]
    assert all(a == (b if b is None else float(b)) for a, b in finite)


def test_the_same_formula_twice_is_two_requirements(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n0,9\n1,1\n")
    out, _ = check("always x < 6", "always x < 6", "-t", tmp_path / "a.csv", "--json", code=1)
    names = [json.loads(line)["requirement"] for line in out.splitlines()]
    assert names == ["always x < 6", "always x < 6 (formula 2)"]
    out, _ = check("always x < 6", "always x < 6", "-t", tmp_path / "a.csv", code=1)
    assert out.startswith("2 requirements on 1 log: 2 violated")


# -- exit status -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "options", "code"),
    [
        ("always x < 6", (), 0),
        ("always x < 2", (), 1),
        ("always[0,9] x < 6", (), 0),
        ("always[0,9] x < 6", ("--fail-open",), 1),
        ("always x < 6", ("--fail-open",), 0),
        ("always x <", (), 2),
        ("always y < 6", (), 2),
    ],
)
def test_exit_status(formula: str, options: tuple[str, ...], code: int, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n0,1\n1,5\n2,1\n")
    check(formula, "-t", tmp_path / "a.csv", *options, code=code)


def test_a_spike_between_two_points_of_the_grid_counts_as_open(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n0,1\n0.9,1\n1.2,9\n1.5,1\n2,1\n3,1\n")
    arguments = ("always x < 6", "-t", tmp_path / "a.csv", "--resample", 1)
    out, _ = check(*arguments)
    assert "Depends on resampling" in out and "could violate it by up to 3 at 1 s" in " ".join(
        out.split()
    )
    check(*arguments, "--fail-open", code=1)


def test_what_cannot_be_read_is_told_and_the_rest_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n0,1\n1,9\n")
    (tmp_path / "b.csv").write_text("time,x\n0,1\n1,nine\n")
    (tmp_path / "c.csv").write_text("time,x\n0,1\n0.4,1\n1,1\n")
    reports = ("--junit", tmp_path / "r.xml", "--html", tmp_path / "r.html")
    out, errors = check("A: always x < 6", "-t", tmp_path, *reports, code=2)
    assert out.startswith("1 requirement on 1 log: 1 violated")
    first, *others = errors.splitlines()
    assert first == "rhovec: 2 problems while reading or checking:"
    assert "b.csv:3, column 'x': 'nine' is not a number" in others[0]
    assert "c.csv:4" in others[1] and "--resample" in others[1]
    assert "nine" in (tmp_path / "r.html").read_text()
    suites = JUnitXml.fromfile(str(tmp_path / "r.xml"))
    assert (suites.tests, suites.failures, suites.errors) == (3, 1, 2)


def test_if_nothing_can_be_read_there_is_no_summary(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("time,x\n0,one\n")
    out, errors = check("always x < 6", "-t", tmp_path, code=2)
    assert out == "" and len(errors.splitlines()) == 3


def test_a_killed_worker_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(4):
        (tmp_path / f"run{i}.csv").write_text("time,x\n0,1\n1,1\n")
    script = (
        "import os, sys\n"
        "import rhovec.check.report as report\n"
        "report.MIN_PARALLEL_BYTES = 0\n"
        "def ended(*arguments): os._exit(9)\n"
        "report.check_files = ended\n"
        "if __name__ == '__main__':\n"
        "    try: report.check_logs(sys.argv[1], sys.argv[2], workers=2)\n"
        "    except report.RhovecError as error: print(error)\n"
    )
    (tmp_path / "ended.py").write_text(script)
    (tmp_path / "r.stl").write_text("A: always x < 6\n")
    run = subprocess.run(
        [sys.executable, "ended.py", "r.stl", "."],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "perhaps for lack of memory" in run.stdout and "workers=1" in run.stdout


# -- JUnit -----------------------------------------------------------------------------------------

# Children and attributes that Jenkins' schema allows, * for those that must be there:
# https://github.com/jenkinsci/xunit-plugin, junit-10.xsd
MESSAGE = ((), ("type", "message"))
ALLOWED = {
    "testsuites": (("testsuite",), ("name", "time", "tests", "failures", "errors")),
    "testsuite": (
        ("testcase", "properties", "system-out", "system-err"),
        ("name*", "tests*", "failures*", "errors*", "skipped", "time", "timestamp", "hostname", "id",
         "package", "file", "group", "log", "url"),
    ),
    "testcase": (
        ("skipped", "error", "failure", "system-out", "system-err"),
        ("name*", "time", "classname", "group"),
    ),
    "failure": MESSAGE, "error": MESSAGE, "skipped": MESSAGE, "system-out": ((), ()),
}  # fmt: skip


def violations_of_schema(element: ElementTree.Element) -> list[str]:
    children, attributes = ALLOWED[element.tag]
    given = set(element.keys())
    names = {name.rstrip("*") for name in attributes}
    needed = {name.rstrip("*") for name in attributes if name.endswith("*")}
    found = [f"{element.tag}: {name}" for name in given - names | needed - given]
    found += [f"{element.tag} > {child.tag}" for child in element if child.tag not in children]
    numbers = [
        element.get(name, "0") for name in ("tests", "failures", "errors", "skipped", "time")
    ]
    found += [f"{element.tag}: {number}" for number in numbers if not number.isdigit()]
    return found + [fault for child in element for fault in violations_of_schema(child)]


def test_junit_is_what_the_schema_and_other_parsers_expect(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    out, _ = check(*on(folder), "--junit", path, "--json", code=1)
    records = [json.loads(line) for line in out.splitlines()]
    counts = [
        len(records), sum(r["verdict"] == "violated" for r in records), 0,
        sum(r["verdict"] == "open" for r in records),
    ]  # fmt: skip
    assert violations_of_schema(ElementTree.parse(path).getroot()) == []
    suites = JUnitXml.fromfile(str(path))
    assert [suites.tests, suites.failures, suites.errors, suites.skipped] == counts
    assert [suite.name for suite in suites][:2] == [
        'SPEED "Speed limit"',
        'BRAKE "Pressure after pedal"',
    ]
    other = Junit(str(path))
    cases = [case for suite in other.suites for case in suite.all()]
    assert [len(cases), sum(case.failed() for case in cases)] == counts[:2]
    assert sum(case.skipped is not None for case in cases) == counts[3]
    (failed,) = [c for c in next(iter(suites)) if c.name == "run0"]
    (result,) = failed.result
    assert result.message.startswith("violated from ") and "km/h" in result.message


def test_junit_holds_what_xml_cannot(tmp_path: Path) -> None:
    (tmp_path / "a\x01<&>.csv").write_text("time,x\n0,9\n")
    path = tmp_path / "r.xml"
    check("A: always x < 6", "-t", tmp_path, "--junit", path, code=1)
    (case,) = next(iter(JUnitXml.fromfile(str(path))))
    assert case.name == "a\\x01<&>"


# -- what strangers tried --------------------------------------------------------------------------


def test_a_step_that_no_bound_can_be_read_with_does_not_stop_other_logs(tmp_path: Path) -> None:
    (tmp_path / "huge.csv").write_text("time,x\n1e300,1\n2e300,2\n3e300,3\n")
    (tmp_path / "usual.csv").write_text("time,x\n0,1\n1,9\n")
    out, err = check("A: always x < 6", "-t", tmp_path, code=2)
    assert "1 violated" in out
    assert "huge.csv, with its step of 1e+300 s: dt must be" in err


def test_the_time_can_be_a_channel_and_still_is_the_time(tmp_path: Path) -> None:
    rows = [f"{i / 10:.1f},{i}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["time,x", *rows]))
    out, _ = check("A: always[0, 2] (time > 1 -> x > 10)", "-t", tmp_path / "a.csv", "--json")
    assert json.loads(out)["verdict"] == "holds"
    out, _ = check("A: always (time > 1 -> x > 20)", "-t", tmp_path / "a.csv", "--json", code=1)
    assert json.loads(out)["intervals"] == [[1.1, 2.0]]


def test_labels_without_given_codes_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,gear\n0,P\n1,D\n")
    both = ('A: always gear != "R"', "B: always gear < 3", "-t", tmp_path / "a.csv")
    _, err = check(*both, code=2)
    assert 'gear is compared with a number here, and elsewhere with the label "R"' in err
    assert "--labels" in err
    out, err = check(*both, "--skip-invalid")
    assert "1 requirement on 1 log" in out and "gear is compared" in err
    out, _ = check(*both, "--labels", "gear=P:0,D:1,R:2")
    assert "2 holds so far" in out


def test_labels_that_no_log_has_are_named(tmp_path: Path) -> None:
    for name, gears in (("a", "PD"), ("b", "DN")):
        rows = [f"{i},{gear}" for i, gear in enumerate(gears)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["time,gear", *rows]))
    out, _ = check('always gear != "R" and eventually (gear == "N" or gear == "d")', "-t", tmp_path)
    assert 'In no log is gear "R" or "d"; it is "D", "N" and "P".' in out
    out, _ = check('always (gear == "N" or gear == "D" or gear == "P")', "-t", tmp_path)
    assert "In no log" not in out
    given = ("--labels", "gear=P:0,D:1,R:2")
    (tmp_path / "c.csv").write_text("time,gear\n0,0\n1,1\n")
    out, _ = check('always gear != "R"', "-t", tmp_path / "c.csv", *given)
    assert 'In no log is gear "R"; it is "D" and "P".' in out


def test_requirements_without_a_channel_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n0,1\n")
    _, err = check("A: true", "-t", tmp_path / "a.csv", code=2)
    assert "name no channel" in err


def test_long_bounds_back_need_no_resampling(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n0,1\n1,2\n2,3\n")
    out, _ = check("always (x > 4 -> once[0, 2 h] x > 1)", "-t", tmp_path / "a.csv")
    assert "1 holds so far" in out


def test_reports_are_written_if_no_log_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,x\n0,1\n0.1,bad\n")
    paths = [tmp_path / f"report.{kind}" for kind in ("xml", "csv", "html")]
    for path in paths:
        path.write_text("an earlier run")
    options = zip(("--junit", "--csv", "--html"), paths, strict=True)
    _, err = check("always x < 3", "-t", tmp_path / "a.csv", *chain(*options), code=2)
    assert "'bad' is not a number" in err
    junit, table, page = (path.read_text() for path in paths)
    assert "is not a number" in junit and "is not a number" in page
    assert table.startswith("requirement,") and len(table.splitlines()) == 1
