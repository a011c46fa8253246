"""What the command line prints: its own words in errors, no control characters on a terminal, no cell
that a spreadsheet would run."""

from __future__ import annotations

import ast
import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import rhovec
from rhovec.cli import app, output
from rhovec.cli.messages import ARGUMENTS, HINTS, in_options
from rhovec.cli.output import printable, save_table, write_csv

runner = CliRunner()
PACKAGE = Path(rhovec.__file__).parent


def refused(*arguments: object) -> str:
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


# -- messages in the words of the command line -----------------------------------------------------

PYTHON = re.compile(
    r"\b[a-z_]\w*=(?!=)|\brv\.\w|\bSchema\b|\(dt\)"
)  # what only Python's users know
# Messages that no command can cause, and why.
PYTHON_ONLY = {
    "build a Formula with rv.parse": "commands give formulae, never call the constructor",
    "train one with tokens=prefix": "a field of --set",
    'sigma2 must be a positive number for kind="cosine"': "commands take sigma2 from the kernel",
    "parse text with rv.parse first": "commands give formulae, never other objects",
    "use a kernel with normalised=True": "commands make only such kernels",
    "pass torch.as_tensor(traces)": "no command computes gradients",
    "variables=... goes with an array": "commands read arrays, not dicts",
    "sigma2 = ": "a condition in a sentence",
    "(postgresql://?service=team)": "part of a URL",
    "schema must be a Schema": "commands read schemas from files",
    'stored="int8" needs a size': "commands measure the sizes",
    "read files with rv.read_traces": "commands read files",
}


def messages() -> Iterator[tuple[str, str]]:
    """(place, text without what is filled in) of every error in the package."""
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and re.search(r"(Error|fail)$", ast.unparse(node.func)):
                for text in texts(node):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parts[-2:-1] != ("cli",):
            yield path, ast.parse(path.read_text())


def texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def test_every_message_for_python_has_words_for_the_command_line() -> None:
    known = (*HINTS, *PYTHON_ONLY)
    found = list(messages())
    assert len(found) > 200
    missing = [
        (place, text)
        for place, text in found
        if PYTHON.search(in_options(text)) and not any(hint in text for hint in known)
    ]
    assert missing == [], "say it in options: add the words to HINTS in cli/messages.py"
    said = [
        text for _, tree in modules() for text in texts(tree)
    ]  # also parts of messages in variables
    unused = [hint for hint in known if not any(hint in text for text in said)]
    assert unused == [], "no error says this any more: take it out of the table"


def test_every_argument_is_an_option() -> None:
    options: set[str] = set()

    def add(command: Any) -> None:
        options.update(o for p in command.params for o in p.opts)
        for sub in getattr(command, "commands", {}).values():
            add(sub)

    add(get_command(app))
    assert set(ARGUMENTS.values()) <= options
    named = {option for hint in HINTS.values() for option in re.findall(r"--[a-z-]+", hint)}
    assert named <= options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["parse", "G[0,0.5] x > 0"],
            "to give bounds in seconds, give the sampling step with --dt",
        ),
        (["parse", "G[0,0.5] x > 0", "--dt", "1"], "or give --rounding nearest, down or up"),
        (["parse", "x == 0"], "give --tolerance, or name the variables with --discrete"),
        (["parse", "x > 0", "--dt", "0"], "--dt must be a positive"),
        (["compare", "x_0 > 1", "x_0 > 2", "--confidence", "2"], "--confidence must be at least"),
        (["robustness", "F[0,9] x>1", "-t", "x.csv", "--end", "strict"], "or --end hold"),
        (["embed", "speed > 1"], "give a --schema"),
    ],
)
def test_errors_name_options(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("x\n1\n2\n")
    found = refused(*arguments)
    assert words in found
    assert not PYTHON.search(found)


# -- hostile names ---------------------------------------------------------------------------------

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202ename"


def test_control_characters_are_escaped() -> None:
    assert printable(HOSTILE) == r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202ename"
    assert printable("größe\n\tü", keep="\n\t") == "größe\n\tü"
    assert printable("a\nb\r") == r"a\nb\r"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Traces whose names are hostile, of variables whose names are."""
    file = tmp_path / "t.csv"
    file.write_text(f"trace,x,{HOSTILE}\n{HOSTILE},1,0\nb,2,0\n", encoding="utf-8")
    return file


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    "arguments",
    [
        ["robustness", "x > 0"],
        ["compare", "x > 0", "x > 1.5"],
        ["robustness", "y > 0"],  # an error that lists the names
    ],
)
def test_names_cannot_control_a_terminal(arguments: list[str], hostile: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "rhovec.cli", *arguments, "-t", str(hostile)],
        stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env=environment,
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(leader)
    process.wait()
    text = shown.decode()
    # What remains are the colours of tables, and what a progress bar does with its own line.
    text = re.sub(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[\d?[AK]", "", text)
    assert re.findall("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", text) == []
    assert len(text) > 40


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted(start: str, tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", newline="") as stream:
        write_csv(stream, ["formula", "value"], [(f"{start}1", -1.5), ("x\r\x1b", True)])
    with (tmp_path / "a.csv").open(newline="") as stream:
        assert list(csv.reader(stream)) == [
            ["formula", "value"], [f"'{start}1", "-1.5"], [r"x\r\x1b", "true"],
        ]  # fmt: skip


def test_such_texts_reach_csv_and_come_back(tmp_path: Path) -> None:
    traces = tmp_path / "t.csv"
    traces.write_text("trace,x\n=1+1,1\nb,-2\n")
    out = tmp_path / "out.csv"
    result = runner.invoke(app, ["robustness", "-t", str(traces), "-o", str(out), "--", "-x > 1"])
    assert result.exit_code == 0, result.output
    rows = list(csv.reader(out.read_text().splitlines()))
    assert rows[1:] == [["'-x > 1", "'=1+1", "-2.0"], ["'-x > 1", "b", "1.0"]]
    result = runner.invoke(app, ["parse", "-F", str(out), "--json"])
    assert result.stdout.count('"formula": "x < -1"') == 2


def test_nothing_prints_past_these_guards() -> None:
    """Tables and CSV are written through cli/output.py."""
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        text = path.read_text().replace("Console(stderr=True)", "")  # bars, which show no names
        if path.name not in ("output.py", "search.py"):
            assert not re.search(r"\bConsole\(|csv\.writer", text), path.name
        if path.name not in ("output.py", "search.py", "demo.py"):  # which shows our own texts
            assert "rich.text" not in text, path.name


# -- parquet ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_types_of_columns_do_not_depend_on_the_size_of_batches(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "BATCH", batch)
    rows: list[dict[str, Any]] = [
        {"name": "a", "n": 1, "rho": None, "never": None, "held": True},
        {"name": "b", "n": 2, "rho": None, "never": None, "held": None},
        {"name": "c", "n": None, "rho": 2.5, "never": None, "held": False},
        {"name": "d", "n": 4, "rho": 3.0, "never": None, "held": True},
        {"name": "e", "n": 5, "rho": None, "never": None, "held": True},
    ]
    save_table(tmp_path / "a.parquet", rows)
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert table.to_pylist() == rows
    assert [str(kind) for kind in table.schema.types] == (
        ["string", "int64", "double", "string", "bool"]
    )
    save_table(tmp_path / "b.parquet", [], ["name", "n"])
    empty = pyarrow.parquet.read_table(tmp_path / "b.parquet")
    assert empty.num_rows == 0 and empty.column_names == ["name", "n"]
