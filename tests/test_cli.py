"""The command line: formulae in by three ways, tables, CSV, JSON and arrays out, mistakes named."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec
from rhovec.cli import app
from rhovec.cli.robustness import show_summary
from rhovec.cli.shared import Reading
from rhovec.formula import Requirement, parse
from rhovec.formula.sample import random_formulae
from rhovec.robustness import robustness, satisfaction

from .models.tiny_decoder import save_tiny_decoder

runner = CliRunner()
SOURCE = str(Path(rhovec.__file__).parents[1])


def run(*arguments: object, stdin: str | bytes | None = None) -> str:
    result = runner.invoke(app, [str(a) for a in arguments], input=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object, stdin: str | bytes | None = None) -> str:
    """The one line on stderr of a command that ends with exit code 2."""
    result = runner.invoke(app, [str(a) for a in arguments], input=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("rhovec: ")
    return line.removeprefix("rhovec: ")


def command(*arguments: str, **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen(
        [sys.executable, "-m", "rhovec.cli", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """Two traces of different lengths, sampled every 0.5 s."""
    file = tmp_path / "drive.csv"
    file.write_text(
        "trace,time,speed,gear\na,0,10,1\na,0.5,20,2\na,1,40,3\na,1.5,30,3\nb,0,5,1\nb,0.5,6,1\n"
    )
    return file


# -- formulae in -------------------------------------------------------------------------------


def test_formulae_come_by_argument_file_and_stdin(tmp_path: Path) -> None:
    file = tmp_path / "r.stl"
    file.write_bytes(b"\xef\xbb\xbf# requirements\r\n\r\n  x_0 > 1\r\n\t# no\r\nx_1 < 2")
    assert [r.text for r in Reading([str(file)]).requirements()] == ["x_0 > 1", "x_1 < 2"]
    both = Reading([str(file)], formulae=["true"]).requirements()
    assert [r.source for r in both] == ["formula 1", f"{file}:3", f"{file}:5"]
    by_file = run("parse", "-F", file, "--json")
    assert by_file == run("parse", "x_0 > 1", "x_1 < 2", "--json")
    assert by_file == run("parse", "--json", stdin="x_0 > 1\nx_1 < 2\n")
    assert by_file == run("parse", "-F", "-", "--json", stdin="x_0 > 1\n\n# x\nx_1 < 2")


def test_requirement_files_have_identifiers_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "r.stl"
    file.write_text("# all\nR1.a: x_0 > 1  # why\nx_1 < 2 # no identifier\nR-2 :always x_0>1\n")
    found = Reading([str(file)]).requirements()
    assert [(one.id, one.text) for one in found] == [
        ("R1.a", "x_0 > 1"), ("", "x_1 < 2"), ("R-2", "always x_0>1"),
    ]  # fmt: skip
    assert [json.loads(t).get("id") for t in run("parse", "-F", file, "--json").splitlines()] == [
        "R1.a", None, "R-2",
    ]  # fmt: skip
    file.write_text("\nR1: x_0 >\n")
    assert refused("parse", "-F", file).startswith(f"{file}:2, column 10: expected")
    file.write_text("R1:\n")
    assert refused("parse", "-F", file).startswith(f"{file}:1, column 4: expected")


def test_formulae_of_a_table(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text('name,formula\na,"x_0 > 1"\n,\nc,"\'-x_0 > 1"\n')
    assert [r.text for r in Reading([str(file)]).requirements()] == ["x_0 > 1", "-x_0 > 1"]
    file.write_text('name,formula\na,"x_0 > 1"\nc,"x_0 >"\n')
    assert refused("parse", "-F", file).startswith(f"{file}:3, column 6: expected")
    file.write_text("name\na\n")
    assert "no column `formula`" in refused("parse", "-F", file)


def test_mistakes_in_formulae_are_named(tmp_path: Path) -> None:
    file = tmp_path / "r.stl"
    file.write_text("x_0 > 1\n\n  G[0,1 x_0 > 1\n")
    assert refused("parse", "-F", file).startswith(f"{file}:3, column 9: x_0 is not a unit of time")
    assert refused("parse", stdin="x_0 >\n").startswith("stdin:1, column 6: expected")
    assert refused("parse", "true", "x_0 + 1").startswith("formula 2, column 1: expected a formula")
    assert refused("parse", "true and\n x >").startswith("formula 1, line 2, column 5: expected")
    assert "stdin: there is no formula" in refused("parse", stdin="# nothing\n")
    assert "there is no formula" in refused("parse", "-F", os.devnull)
    assert "No such file" in refused("parse", "-F", tmp_path / "missing")
    assert "directory" in refused("parse", "-F", tmp_path)
    assert "stdin:2, column 1: byte 0xff is not UTF-8 text" in refused("parse", stdin=b"true\n\xff")
    with pytest.raises(ValueError, match="formula 1, column 1"):
        Reading(formulae=["and"]).requirements()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parse", "--dt", "abc", "true"], "--dt"),
        (["parse", "--dt", "0", "true"], "--dt must be a positive decimal number"),
        (["parse", "--rounding", "sideways", "true"], "--rounding"),
        (["parse", "--nonsense"], "--nonsense (see rhovec parse --help)"),
        (["prase", "true"], "Did you mean 'parse'?"),
        (["robustness", "true"], "no traces given"),
        (["robustness", "true", "--traces", "missing.csv"], "missing.csv: no such file"),
    ],
)
def test_mistakes_in_options_are_named(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


# -- parse -------------------------------------------------------------------------------------


def test_parse_shows_the_formula() -> None:
    text = run("parse", "G[0,1](speed > 3 & abs(gear - 2) <= 0.5)", "--dt", "0.1")
    lines = dict(line.split(maxsplit=1) for line in text.splitlines() if line[:1].strip())
    assert lines["formula"].startswith("always[0,10] ( ( speed > 3 and ")
    assert "always[0,1] ( ( speed" in lines["in"]
    assert lines["horizon"] == "10 steps (1 s)"
    assert lines["depth"] == "3"
    assert lines["size"] == "6"
    assert lines["variables"] == "gear, speed"
    assert lines["tree"] == "always[0,10]"
    assert "└─ and" in text
    assert "├─ speed > 3" in text


def test_parse_json_reads_back() -> None:
    formulae = random_formulae(20, seed=0)
    text = "\n".join(str(phi) for phi in formulae)
    found = [json.loads(line) for line in run("parse", "--json", stdin=text).splitlines()]
    assert [rhovec.parse(f["formula"]) for f in found] == formulae
    for phi, facts in zip(formulae, found, strict=True):
        assert facts["horizon"] == phi.horizon
        assert facts["depth"] == phi.depth
        assert facts["size"] == phi.size
        assert tuple(facts["variables"]) == phi.variables
        assert rhovec.parse(facts["simplified"]).size <= phi.size
    (facts,) = map(json.loads, run("parse", "--json", "--dt", 2, "X gear == 3", "--discrete",
                                   "mode, gear").splitlines())  # fmt: skip
    assert facts["in_seconds"] == facts["formula"] == "next ( ( gear >= 2.5 and gear <= 3.5 ) )"


def test_a_schema_reads_names_units_and_seconds(tmp_path: Path) -> None:
    schema = rhovec.Schema.from_json({
        "channels": [{"expression": "speed", "mean": 50, "std": 25, "unit": "km/h"}], "dt": 0.5
    })  # fmt: skip
    file = tmp_path / "schema.json"
    file.write_text(schema.to_json())
    facts = json.loads(run("parse", "G[0,1] speed < 100", "--schema", file, "--json"))
    assert facts["formula"] == "always[0,2] ( speed < 100 )"
    assert facts["in_seconds"] == "always[0,1] ( speed < 100 )"
    assert facts["lowered"] == "always[0,2] ( x_0 < 2 )"
    run("parse", "speed > 1", "--schema", file, "--dt", "0.50")
    assert "--dt: the schema" in refused("parse", "speed > 1", "--schema", file, "--dt", 1)
    file.write_text("{")
    assert refused("parse", "speed > 1", "--schema", file).startswith(f"{file}: ")


def test_parse_options_reach_the_parser() -> None:
    assert "always[0,2]" in run("parse", "G[0,1.9] x > 0", "--dt", 1, "--rounding", "nearest")
    assert "x >= 2.75" in run("parse", "x == 3", "--tolerance", 0.25)


def test_parse_takes_a_hundred_thousand_levels() -> None:
    text = run("parse", stdin="next " * 100_000 + "x_0 > 0")
    assert "depth       100000" in text
    assert "not drawn" in text
    assert len(text) < 10_000_000


# -- robustness --------------------------------------------------------------------------------


REQUIREMENTS = ["always[0,1] speed < 50", "eventually (gear == 3)", "next speed > 5.5"]
OPTIONS = ["--dt", "auto", "--discrete", "gear"]


def values_by_hand() -> tuple[np.ndarray, np.ndarray]:
    formulae = [rhovec.parse(text, dt=0.5, discrete=["gear"]) for text in REQUIREMENTS]
    traces = [np.array([[10, 20, 40, 30], [1, 2, 3, 3]]), np.array([[5, 6], [1, 1]])]
    names = ["speed", "gear"]
    return (
        robustness(formulae, traces, variables=names),
        satisfaction(formulae, traces, variables=names),
    )


def test_robustness_as_csv_json_and_array(drive: Path, tmp_path: Path) -> None:
    rho, holds = values_by_hand()
    base = ["robustness", *REQUIREMENTS, "--traces", drive, *OPTIONS]
    text = run(*base)
    rows = list(csv.DictReader(text.splitlines()))
    assert list(rows[0]) == ["formula", "trace", "robustness"]
    assert [row["formula"] for row in rows] == [r for r in REQUIREMENTS for _ in "ab"]
    assert [row["trace"] for row in rows] == ["a", "b"] * 3
    assert [float(row["robustness"]) for row in rows] == rho.ravel().tolist()
    records = [json.loads(line) for line in run(*base, "--json").splitlines()]
    assert [r["robustness"] for r in records] == rho.ravel().tolist()
    satisfied = list(csv.DictReader(run(*base, "--satisfaction").splitlines()))
    assert [row["satisfied"] == "true" for row in satisfied] == holds.ravel().tolist()

    for suffix in ("csv", "json", "jsonl", "npy"):
        assert run(*base, "-o", tmp_path / f"out.{suffix}") == ""
    assert (tmp_path / "out.csv").read_text() == text
    assert json.loads((tmp_path / "out.json").read_text()) == records
    assert (tmp_path / "out.jsonl").read_text() == run(*base, "--json")
    assert np.array_equal(np.load(tmp_path / "out.npy"), rho)
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "drive.csv", "out.csv", "out.json", "out.jsonl", "out.npy",
    ]  # fmt: skip


def test_robustness_at_every_step(drive: Path, tmp_path: Path) -> None:
    base = ["robustness", "eventually[0,1] speed > 15", "-t", drive, "--trace"]
    rows = list(csv.reader(run(*base).splitlines()))
    assert rows[0] == ["formula", "trace", "step", "seconds", "robustness"]
    assert [(t, s, float(v)) for _, t, s, _, v in rows[1:]] == [
        ("a", "0", 5), ("a", "1", 25), ("a", "2", 25), ("a", "3", 15), ("b", "0", -9),
        ("b", "1", -9),
    ]  # fmt: skip
    strict = [json.loads(r) for r in run(*base, "--end", "strict", "--json").splitlines()]
    assert [r["robustness"] for r in strict] == [[5, 25, 25, None], [-9, None]]
    assert "differ in length" in refused(*base, "-o", tmp_path / "x.npy")
    x = np.random.default_rng(0).normal(size=(3, 2, 7))
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "y.npy"
    run("robustness", "F[0,2] a > 0", "true", "-t", tmp_path / "x.npy", "--variables", "b,a",
        "--trace", "-o", out)  # fmt: skip
    expected = robustness(["F[0,2] x_1 > 0", "true"], x, trace=True)
    assert np.array_equal(np.load(out), expected)


def test_robustness_says_when_a_formula_sees_one_sample(drive: Path) -> None:
    def notes(*arguments: str) -> str:
        result = runner.invoke(app, ["robustness", *arguments, "-t", str(drive)])
        assert result.exit_code == 0, result.output
        return result.stderr

    said = notes("once speed > 20", "speed > 0", "speed > 0 since gear > 0")
    assert said.startswith("rhovec: formula 1, formula 3: without a future, a formula reads only")
    assert len(said.splitlines()) == 1
    assert notes("once speed > 20", "--trace") == ""
    assert notes("always once speed > 20", "speed > 0", "next gear > 1") == ""
    assert "ask for its values at all times with --trace" in refused(
        "robustness", "once[0,9] speed > 20", "-t", drive, "--end", "strict"
    )


def test_robustness_of_constants_is_json(drive: Path) -> None:
    text = run("robustness", "true", "not true", "-t", drive, "--json")
    assert [json.loads(line)["robustness"] for line in text.splitlines()] == [
        "inf", "inf", "-inf", "-inf",
    ]  # fmt: skip


def test_mistakes_about_traces_are_named(drive: Path, tmp_path: Path) -> None:
    base = ["robustness", "always[0,9] speed < 50", "-t", drive]
    assert "looks 9 steps ahead" in refused(*base, "--end", "strict")
    file = tmp_path / "r.stl"
    file.write_text("speed > 1\n# comment\nrpm < 1\n")
    assert refused("robustness", "-F", file, "-t", drive).startswith(
        f"{file}:3: the formula uses rpm, but the traces have speed, gear; --variables names"
    )
    assert "must end in .csv, .json, .jsonl, .parquet, .npy" in refused(
        *base, "-o", tmp_path / "a.txt"
    )
    assert "cannot be written" in refused(*base, "-o", tmp_path / "no" / "a.csv")
    assert "cannot be written" in refused(*base, "-o", drive / "a.csv")
    drive.write_text("time,speed\n0,1\n1,x\n")
    assert refused(*base) == f"{drive}:3, column 'speed': 'x' is not a number"
    drive.write_text("speed\n0\n")
    assert "--dt auto needs a time column" in refused(*base, "--dt", "auto")
    assert refused(*base, "--dt", "x").startswith("--dt must be a positive decimal number")


def test_a_step_that_the_times_contradict_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("time,speed\n0,1\n1,2\n2,3\n")
    for dt, said in (("0.1", "--dt 0.1, but the times of the traces are 1 s apart"), ("1.0", "")):
        result = runner.invoke(app, ["robustness", "always speed > 0", "-t", str(file), "--dt", dt])
        assert result.exit_code == 0 and said in result.stderr and bool(said) == bool(result.stderr)
    fleet = ("--results", tmp_path / "out", "--dt", "auto")
    assert "give the step in seconds" in refused("robustness", "speed > 0", "-t", file, *fleet)


def test_times_in_other_units_than_seconds(tmp_path: Path) -> None:
    (named := tmp_path / "named.csv").write_text("time_ms,x\n0,1\n100,2\n200,130\n300,4\n")
    formula = "always[0,0.1] x < 120"
    told = run("robustness", formula, "-t", named, "--time-column", "time_ms", "--dt", "auto")
    assert "118.0" in told
    (odd := tmp_path / "odd.csv").write_text("time [ticks],x\n0,1\n100,2\n200,130\n300,4\n")
    for arguments in (
        ["robustness", formula, "--dt", "auto"],
        ["robustness", formula, "--dt", "0.1", "--results", tmp_path / "out"],
        ["compare", formula, formula, "--dt", "auto"],
        ["similarity", formula, formula, "--dt", "auto"],
        ["check", formula],
        ["mine", "--budget", "5"],
        ["index", "build", tmp_path / "library", formula, "--dt", "auto"],
        ["train", "space", "-o", tmp_path / "space"],
        ["train", "encoder", "--preset", "tiny", "--out", tmp_path / "run", "--fields"],
    ):
        given = [*map(str, arguments), "-t", str(odd)]
        assert "with --time-unit" in runner.invoke(app, given).stderr
        assert "time-unit" not in runner.invoke(app, [*given, "--time-unit", "ms"]).stderr
    assert "--time-unit go with --traces" in refused(
        "compare", "x > 1", "x > 2", "--time-unit", "ms"
    )


def test_columns_that_no_formula_uses_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("time,speed,note,note,\n0,1,ok,ok,\n1,2,0x1,,7\n")
    on_it = ("-t", file, "--dt", "auto")
    formula = "always[0,1] speed > 0"
    assert run("robustness", formula, *on_it).splitlines()[-1].endswith(",1.0")
    assert run("robustness", *on_it, stdin=formula).splitlines()[-1].endswith(",1.0")
    assert "implies" in run("compare", formula, "always[0,1] speed > -1", *on_it)
    run("similarity", formula, "always speed < 9", *on_it)
    run("index", "build", tmp_path / "library", formula, *on_it)
    assert "column 5 has no name" in refused("train", "space", "-t", file, "-o", tmp_path / "space")
    assert "'note' appears twice" in refused("robustness", "note > 0", *on_it)


def test_a_failed_write_leaves_the_old_file(drive: Path, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")

    def interrupted(stream, records, header) -> None:
        stream.write("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["rhovec.cli.output"], "write_records", interrupted)
    result = runner.invoke(app, ["robustness", "true", "-t", str(drive), "-o", str(out)])
    assert result.exit_code == 130
    assert out.read_text() == "old"
    assert sorted(f.name for f in tmp_path.iterdir()) == ["drive.csv", "out.csv"]


def test_the_summary_of_a_terminal(capsys: pytest.CaptureFixture) -> None:
    phi = parse("always x > 0")
    some = [Requirement(phi, "R-1", "Title"), Requirement(phi, text="x > 0")]
    values = [np.array([2.5, 0.0]), np.array([-1.0, 0.0]), np.array([1.0, 4.0])]
    holds = [np.array([True, True]), np.array([False, False]), np.array([True, True])]
    show_summary(some, ["a", "b", "c"], values, holds, None)
    rows = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert len(rows) == 2
    assert [word.strip() for word in rows[0].split("│")[1:-1]] == [
        'R-1 "Title"', "3", "1", "1", "-1", "b",
    ]  # fmt: skip
    # Robustness 0 is told apart by satisfaction.
    assert [word.strip() for word in rows[1].split("│")[1:-1]] == ["x > 0", "3", "1", "0", "0", "a"]
    nan = float("nan")
    show_summary(
        some[:1], ["a", "b"], [np.array([[3.0, -2, nan]]), np.array([[1.0, 2, nan]])],
        [np.array([[True, False, False]]), np.array([[True, True, False]])], Fraction(1, 10),
    )  # fmt: skip
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if "R-1" in line)
    assert [word.strip() for word in row.split("│")[1:-1]] == [
        'R-1 "Title"', "2", "1", "1.5", "-2", "a, step 1 (0.1 s)",
    ]  # fmt: skip


def test_seconds_stand_beside_steps(drive: Path, tmp_path: Path) -> None:
    base = ["robustness", "eventually[0,1] speed > 15", "-t", drive, "--trace", "--dt", 0.1]
    rows = list(csv.DictReader(run(*base).splitlines()))
    assert list(rows[0]) == ["formula", "trace", "step", "seconds", "robustness"]
    assert [row["seconds"] for row in rows[:4]] == ["0.0", "0.1", "0.2", "0.3"]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(*base, "-o", tmp_path / "r.parquet") == ""
    stored = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert [{name: str(value) for name, value in row.items()} for row in stored] == rows


# -- help, and real processes ------------------------------------------------------------------


def test_help_and_version() -> None:
    assert "robustness" in run()
    assert run().strip() == run("--help").strip()
    assert "--rounding" in run("parse", "-h")
    assert run("--version") == f"rhovec {rhovec.__version__}\n"


def test_help_is_light() -> None:
    """One process prints the help of every command, and no heavy library is loaded by then."""
    code = (
        "import sys; from typer.main import get_command; from rhovec.cli import app\n"
        "def show(words, command):\n"
        "    try: app([*words, '--help'])\n"
        "    except SystemExit: pass\n"
        "    for name, sub in getattr(command, 'commands', {}).items(): show([*words, name], sub)\n"
        "show([], get_command(app))\n"
        "heavy = ('numba', 'torch', 'pyarrow', 'matplotlib')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert result.stderr.decode().strip() == "[]"
    shown = result.stdout.decode()
    for words in ("parse", "robustness", "similarity", "corpus build", "train encoder", "demo"):
        assert f"rhovec {words} " in shown or f" {words} [OPTIONS]" in shown
    assert "<bool>" not in shown and "list[" not in shown  # neither flags nor arguments show a type


def test_a_defect_has_a_status_of_its_own() -> None:
    code = "from rhovec import cli; cli.app = lambda **_: [][0]; cli.main()"
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True
    )
    assert result.returncode == 3  # not 1, which says that a requirement is violated
    assert b"IndexError" in result.stderr and b"defect of rhovec" in result.stderr


def test_a_mistake_in_a_real_process() -> None:
    process = command("parse", stdin=subprocess.PIPE)
    out, err = process.communicate(b"x_0 > 1\nx_0 >> 1\n")
    assert (process.returncode, out) == (2, b"")
    assert err == b"rhovec: stdin:2, column 6: expected a formula or an expression, found '>'\n"


def test_a_warning_in_a_real_process_is_one_line(tmp_path: Path) -> None:
    channels = [{"expression": e, "mean": 0, "std": 1} for e in ("y2 - y1", "y3 - y2")]
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"channels": channels}))
    process = command("parse", "y2 - y1 > 1", "--schema", str(file))
    out, err = process.communicate()
    assert (process.returncode, b"lowered     x_0 > 1" in out) == (0, True)
    assert err.startswith(b"rhovec: warning: channels 'y2 - y1' and 'y3 - y2' share a variable")
    assert err.count(b"\n") == 1


def test_commands_pipe_and_a_closed_pipe_is_quiet() -> None:
    process = command("parse", "--json", stdin=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(b"always[0,10] x_0 > 1\n" * 3000)
    process.stdin.close()
    assert json.loads(process.stdout.readline())["horizon"] == 10
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141  # SIGPIPE


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_control_c(tmp_path: Path) -> None:
    fifo = tmp_path / "formulae"
    os.mkfifo(fifo)
    process = command("parse", "-F", str(fifo))
    with fifo.open("wb"):  # which waits until the command has opened it for reading
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_ascii_output_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = command("parse", "not größe > 1")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"\\xf6" in out


def test_bench_times_every_job(tmp_path: Path) -> None:
    small = ["bench", "--model", str(save_tiny_decoder(tmp_path / "model")), "--n-traces", "20"]
    result = runner.invoke(app, [*small, "--count", "3", "--json"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    words = [row["job"].split()[0] for row in rows]
    assert words == [
        "parse", *["robustness"] * 2, *["exact"] * 2, "embed", *["decode,"] * 2, *["vectors:"] * 8
    ]  # fmt: skip
    curve = {row["job"].removeprefix("vectors: "): row["error"] for row in rows[8:]}
    assert 0 < curve["signatures, N = 16,384"] < curve["signatures, N = 512"] < 0.1
    assert {row["numbers"] for row in rows[8:10]} == {24, 96} and all(
        "NumPy" in n for n in list(curve)[:2]
    )
    assert all(0 < r["fastest"] <= r["seconds"] <= r["slowest"] for r in rows)
    table = runner.invoke(app, [*small, "--count", "2"])
    assert all(word in table.stdout for word in ("parse", "kernel", "greedy", "verified"))
