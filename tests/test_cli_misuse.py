"""The command line used wrongly, in more than a thousand ways made from its own help texts.

Every command has one right invocation; each of its options and arguments is then given values that
are wrong for what the help says they take (`<int>`, FILE, ...). All of them must end with exit code 2
and one line that names what is wrong, and must leave every file as it was.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer import Context
from typer.main import get_command
from typer.testing import CliRunner

import rhovec
from rhovec.cli import app

from .models.tiny_decoder import save_tiny_decoder

COMMAND: Any = get_command(app)
SOURCE = str(Path(rhovec.__file__).parents[1])
OLD_LIBRARY = Path(__file__).parent / "data" / "library-version-1.rhovec.gz"

# -- the right invocations: arguments, and options with their values ------------------------------

TWO = ["x_0 > 1", "always x_1 > 0"]
# A command that does two jobs has two entries, the second with the option that asks for it.
RIGHT: dict[str, tuple[list[str], dict[str, str]]] = {
    "parse": (TWO, {}),
    "check": (["always x_0 > 0", TWO[1]], {"--traces": "good.csv"}),
    "robustness": (TWO, {"--traces": "good.csv"}),
    "embed": (TWO, {"--space": "model"}),
    "similarity": (TWO, {"--space": "model", "--n-traces": "20"}),
    "similarity --by kernel": (TWO, {"--n-traces": "20"}),
    "decode": (["good.npy"], {"--space": "model", "--samples": "1"}),
    "compare": (TWO, {}),
    "mine": ([], {"--traces": "labelled.csv", "--labels": "verdict", "--budget": "5"}),
    "index build": (["new", "x_0 > 1"], {"--n-traces": "24"}),
    "index add": (["library", "x_0 > 1"], {}),
    "index delete": (["library", "1"], {}),
    "index search": (["library", "x_0 > 1"], {}),
    "index duplicates": (["library"], {}),
    "index verify": (["library"], {}),
    "index upgrade": (["old", "new"], {}),
    "index list": (["postgresql://127.0.0.1:1/nowhere"], {}),
    "index remove": (["postgresql://127.0.0.1:1/nowhere"], {"--library": "drafts"}),
    "evaluate": (["fidelity"], {"--space": "model", "--formulae": "good.stl"}),
    "bench": ([], {"--space": "model", "--count": "2", "--n-traces": "20"}),
    "demo": ([], {"--space": "space", "--formulae": "good.stl"}),
    "corpus build": (["new"], {"--families": "2"}),
    "corpus stats": (["corpus"], {}),
    "train space": ([], {"--out": "new", "--traces": "many.csv"}),
    "train encoder": ([], {"--out": "new", "--preset": "tiny", "--set": "steps=1"}),
    "train decoder": ([], {"--out": "new", "--preset": "tiny", "--set": "steps=1"}),
}
WRITTEN = {
    ("corpus build", "FOLDER"),
    ("index build", "LIBRARY"),
    ("index upgrade", "NEW"),
}  # arguments

# -- wrong values ---------------------------------------------------------------------------------


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


CONTENTS = {  # of files; those without a suffix are tried under every one
    "empty": b"",
    "blank": b"\n \n",
    "prose": b"this is not it\n",
    "binary": bytes(range(256)) * 9,
    "nul": b"x_0\0,x_1\n1,2\n",
    "latin": b"gr\xf6\xdfe > 1\n",
    "huge": b"x" * 10_000_000 + b"(",
    "nested": b"[" * 100_000,
    "number": b"7\n",
    "word": b'{"format": 1, "vector": "x", "channels": 7}',
    "zip": b"PK\x03\x04 no zip",
    "cut.npy": npy(np.ones((3, 24)))[:-9],
    "header.npy": npy(np.ones((3, 24)))[:40],
    "pickle.npy": npy(np.array([{"a": 1}], object), allow_pickle=True),
    "text.npy": npy(np.array(["a", "b"])),
    "complex.npy": npy(np.ones((2, 24), complex)),
    "none.npy": npy(np.ones((0, 24))),
    "nan.npy": npy(np.full((2, 24), np.nan)),
    "shape.npy": npy(np.ones((2, 2, 2, 2))),
    "ragged.csv": b"x_0,x_1\n1,2\n3\n",
    "words.csv": b"x_0,x_1\n1,two\n",
    "inf.csv": b"x_0,x_1\n1,inf\n",
    "double.csv": b"x_0,x_0\n1,2\n",
    "header.csv": b"x_0,x_1\n",
    "uneven.csv": b"time,x_0,x_1\n0,1,1\n1,2,2\n5,3,3\n",
    "cut.parquet": b"PAR1" + bytes(100) + b"PAR1",
}
SUFFIXES = {  # of what is read, by its option or, of an argument, its name
    "--formulae": [".stl", ".csv"], "--traces": [".csv", ".npy", ".parquet"],
    "--space": [""], "--schema": [".json"], "--start": [".stl"], "--vectors": [".npy"],
    "--add": [".json"],
    "LIBRARY": [""], "OLD": [""], "FOLDER": [""], "VECTORS|FORMULA": [".npy", ".jsonl"],
}  # fmt: skip
WORDS = {
    "FORMULA": ["", "x_0 >", "G[0,1 x_0 > 1", "always[3,1] x_0 > 1", "x_0 == 1", "grün?", "x_0 > 1 and",
                "x_0 * x_1 > 1"],
    "CLAIM": ["", "nonsense"],
    "URL": ["", "library", "http://127.0.0.1", "postgresql://127.0.0.1:x/team"],
    "--dt": ["", "x", "0", "-1", "nan", "inf", "1e999", "auto"],
    "--resample": ["", "x", "0", "-1", "nan"],
    "--max-gap": ["", "x", "-1", "nan"],
    "--hold": [",", "nonsense"],
    "--encoding": ["nonsense"],
    "--time-unit": ["", "fortnight"],
    "--id-column": ["", "nonsense"],
    "--time-column": ["", "nonsense"],
    "--variables": [",", "nonsense", "x_0,x_0"],
    "--device": ["", "abacus", "cuda:99"],
    "ID": ["", "one", "0", "-1", "99", "1.5", "1,2", "9" * 30],
    "--preset": ["", "nonsense"],
    "--units": ["", "x_0", "=m"],
    "--labels": ["", "x_0", "=P:0", "x_0=P", "x_0=P:a"],
    "--positive": ["", "nonsense"],
    "--cost": ["", "good", "nonsense=2", "good=x", "good=-1"],
    "--set": ["", "steps", "=1", "nonsense=1", "steps=x", "device=cpu"],
}  # fmt: skip
NUMBERS = ["", "x", "nan", "-7", "1 2", "1,5"]


class Case(NamedTuple):
    arguments: list[str]
    about: tuple[str, ...]  # the answer must hold one of these


def commands() -> dict[str, Any]:
    """All that do something, by name."""
    found = {}
    todo = list(COMMAND.commands.items())
    while todo:
        name, command = todo.pop()
        subcommands = getattr(command, "commands", {})
        todo += [(f"{name} {sub}", c) for sub, c in subcommands.items()]
        if not subcommands:
            found[name] = command
    return found


def plain(name: str) -> str:
    """A command's name without options."""
    return name.partition(" --")[0]


def wrong_values(kind: str, name: str, writes: bool, text: str) -> Iterator[str]:
    """What an option or argument must refuse. kind: how the help calls what it takes."""
    if writes and kind == "FILE":
        for suffix in re.findall(r"\.\w+(?= |,)", text):
            places = ("nowhere/out", "good.csv/out", "folder", "/proc/out", "n" * 300)
            yield from (f"{place}{suffix}" for place in places)
        yield from ("out.xyz", "folder")
    elif writes:
        yield from ("good.csv", "good.csv/out", "/proc/out", "n" * 300)
    elif name in SUFFIXES:
        for suffix in SUFFIXES[name]:
            yield from (f"{place}{suffix}" for place in ("missing", "good.csv/x", "n" * 300))
            fitting = (f for f in CONTENTS if "." not in f or (suffix and f.endswith(suffix)))
            yield from (f"bad/{f.removesuffix(suffix)}{suffix}" for f in fitting)
        yield "folder"
    elif name in WORDS:
        yield from WORDS[name]
    elif kind in ("<int>", "<float>", "TRACES"):
        yield from NUMBERS if kind == "<float>" else [*NUMBERS, "1.5"]
    elif "|" in kind:
        yield from ("", "sideways")


def cases(name: str) -> Iterator[Case]:
    arguments, options = RIGHT[name]
    command = commands()[plain(name)]

    def call(*more: str, without: str = "", to: list[str] = arguments) -> list[str]:
        kept = [
            w for option, value in options.items() if option != without for w in (option, value)
        ]
        return [*name.split(), *kept, *more, "--", *to]

    yield Case(call("--nonsense"), ("--nonsense",))
    yield Case(call("-?"), ("-?",))
    place = 0
    for parameter in command.params:
        kind = parameter.metavar or parameter.display_type(Context(command))
        if parameter.param_type_name == "argument":
            for value in wrong_values(kind, kind, (name, kind) in WRITTEN, ""):
                about = (kind, "formula", "claim", "server", Path(value).name)
                if name == "check" and "x_0 * x_1" in value:
                    continue  # logs have derived channels
                yield Case(call(to=[*arguments[:place], value, *arguments[place + 1 :]]), about)
            if parameter.required:
                yield Case([*name.split(), *arguments[:place]], (kind,))
            place += 1
            continue
        option = max(parameter.opts, key=len)
        if kind == "<bool>":
            yield Case(call(f"{option}=perhaps"), (option,))
            continue
        yield Case([*name.split(), *arguments, option], (option,))
        writes = option in ("--out", "--plot", "--html", "--junit", "--csv")
        for value in wrong_values(kind, option, writes, parameter.help or ""):
            word = option.split("-")[-1].rstrip("s")
            queries = name == "index search" and option == "--vectors"  # in place of formulae
            to = ["library"] if queries else arguments
            yield Case(call(option, value, without=option, to=to), (word, Path(value).name or word))


# -- what must not happen ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files and bad ones."""
    root = tmp_path_factory.mktemp("misuse")
    for name in (
        "bad",
        *(
            f"folder{s}"
            for s in (
                "",
                ".csv",
                ".json",
                ".jsonl",
                ".npy",
                ".png",
                ".html",
                ".stl",
                ".svg",
                ".xml",
                ".parquet",
            )
        ),
    ):
        (root / name).mkdir()
    suffixes = {suffix for each in SUFFIXES.values() for suffix in each}
    for name, content in CONTENTS.items():
        for suffix in {""} if "." in name else suffixes:
            (root / "bad" / f"{name}{suffix}").write_bytes(content)
    (root / "good.csv").write_text("x_0,x_1\n1,2\n2,3\n")
    rows = [
        f"{i},{t},{i % 2 + t},{t},{'good' if i % 2 else 'bad'}" for i in range(6) for t in range(3)
    ]
    (root / "labelled.csv").write_text("trace,time,x_0,x_1,verdict\n" + "\n".join(rows))
    (root / "good.stl").write_text("\n".join(TWO))
    np.save(root / "good.npy", np.eye(2, 24))
    table = np.random.default_rng(0).normal(size=(300, 2)).tolist()
    rows = [f"{i // 5},{x},{y}" for i, (x, y) in enumerate(table)]
    (root / "many.csv").write_text("\n".join(["trace,x_0,x_1", *rows]))
    save_tiny_decoder(root / "model")
    (root / "old").write_bytes(gzip.decompress(OLD_LIBRARY.read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert call("index", "build", "library", *TWO, "--n-traces", "24") == (0, "")
        assert call("corpus", "build", "corpus", "--families", "2") == (0, "")
        assert call("train", "space", "--out", "space", "--traces", "many.csv")[0] == 0
    return root


def call(*arguments: str) -> tuple[Any, str]:
    """(exit code, stderr) of a command that reads nothing from stdin."""
    errors = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(errors):
        patch.setattr(sys, "stdin", None)
        patch.setattr(sys, "stdout", io.StringIO())
        with pytest.raises(SystemExit) as end:
            COMMAND.main(list(arguments), prog_name="rhovec")
    return end.value.code, errors.getvalue()


def state(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def fault(case: Case, folder: Path, before: dict[Path, tuple[int, int]]) -> str:
    """What is wrong with the answer to a misuse; empty if nothing is."""
    try:
        code, text = call(*case.arguments)
    except Exception as error:
        return f"raised {error!r}"
    if code != 2:
        return f"exit code {code}"
    several = r"rhovec: \d+ lines are wrong:\n(  [^\n]{10,}\n){2,21}"  # each with its own reason
    note = r"(rhovec: columns without numbers, left out: [^\n]+\n)?"  # may come before
    if not re.fullmatch(rf"{note}(rhovec: [^\n]{{10,}}\n|{several})", text) or len(text) > 2000:
        return f"said {text[:200]!r}"
    if not any(word in text for word in case.about):
        return f"did not say what is wrong: {text!r}"
    return "" if state(folder) == before else "changed files"


def test_every_command_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert set(commands()) == set(map(plain, RIGHT))
    assert sum(1 for name in RIGHT for _ in cases(name)) > 1000
    for name in ("parse", "check", "robustness", "embed", "similarity", "similarity --by kernel",
                 "decode", "compare", "mine", "index search", "index duplicates", "index verify",
                 "bench", "corpus stats"):  # fmt: skip
        arguments, options = RIGHT[name]
        given = [word for pair in options.items() for word in pair]
        assert call(*name.split(), *given, *arguments) == (0, ""), name


def test_an_option_has_one_name_everywhere() -> None:
    known: dict[str, str] = {}
    for name, command in commands().items():
        for parameter in command.params:
            option = max(parameter.opts, key=len)
            assert {known.setdefault(each, option) for each in parameter.opts} == {option}, name


@pytest.mark.parametrize("name", RIGHT)
def test_misuse(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = state(folder)
    faults = {" ".join(case.arguments)[:300]: fault(case, folder, before) for case in cases(name)}
    assert {call: found for call, found in faults.items() if found} == {}


CONTRADICTIONS = """
similarity x_0>1 x_1>1 --traces good.csv --points 5
similarity x_0>1 x_1>1 --traces good.csv --n-traces 2
similarity x_0>1 x_1>1 --traces good.csv --by model
similarity x_0>1 x_1>1 --traces good.csv --model model
similarity x_0>1 x_1>1 --layout wide --model model
similarity x_0>1 x_1>1 --points 9 --model model
similarity x_0>1 x_9999>0 --by kernel
similarity x_0>1 x_1>1 --by kernel --n-traces 9 -o old.csv --json
check x_0>1
check x_0>1 --traces good.csv --resample 0.1
check x_0>1 --traces good.csv --dt 1 --resample 1
check x_2>1 --traces good.csv
check x_0>1 --traces good.csv --skip-lines 9
compare x_0>1
compare x_0>1 x_0>2 x_0>3 --n-traces 9
compare x_0>1 x_0>2 --id-column id
similarity x_0>1
robustness x_0>1
robustness x_2>1 --traces good.csv
robustness always[0,9]x_0>1 --traces good.csv --end strict
decode good.npy x_0>1 --model model
decode good.npy --formulae good.stl --model model
decode good.npy --check 10 --model model
index
index build library x_0>1
index build new x_0>1 --traces good.csv --model default
index build new x_0>1 --layout long
index add library x_0>1 -k 3
index delete library
index delete library 1 --rerank
index duplicates library x_0>1
index duplicates library --rerank
index search library x_0>1 --vectors good.npy
index search library --vectors good.npy --rerank
index search library x_0>1 --n-traces 5
index search library x_0>1 --threshold 0.9
index search library x_0>1 --model model
index search old x_0>1
index verify library x_0>1
index upgrade library new
search library x_0>1
corpus stats corpus --plot corpus
corpus
train
prase x_0>1
--nonsense
"""


@pytest.mark.parametrize("line", CONTRADICTIONS.strip().splitlines())
def test_contradictions(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert fault(Case(line.split(), ("",)), folder, state(folder)) == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check x_0>1 -t good.csv --csv good.csv", "good.csv: this command reads it"),
        ("check x_0>1 -t good.csv --csv linked.csv", "linked.csv: this command reads it"),
        ("robustness x_0>1 -t good.csv -o logs/../good.csv", "good.csv: this command reads it"),
        ("compare -F rq.csv -o rq.csv", "rq.csv: this command reads it"),
        ("check -F rq.csv -t good.csv --csv rq.csv", "rq.csv: this command reads it"),
        ("check x_0>1 -t logs --csv logs/report.csv", "could be read as one of the logs in logs"),
    ],
)
def test_what_is_read_is_not_replaced(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    for name in ("good.csv", "logs/a.csv"):
        Path(name).write_text("time,x_0\n0,1\n1,2\n")
    Path("linked.csv").symlink_to("good.csv")
    Path("rq.csv").write_text("id,formula\nA,always x_0 > 1\nB,always x_0 > 2\n")
    before = contents(tmp_path) | contents(tmp_path / "logs")
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 2 and message in result.stderr
    assert contents(tmp_path) | contents(tmp_path / "logs") == before


# -- real processes: files that grow too large, a full disk behind stdout, Ctrl-C -------------------

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from rhovec.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
main()
"""
INTERRUPTED = """
import signal
import numba
from rhovec.cli import main
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 1)
main()
"""


def in_process(code: str, *arguments: str, folder: Path, stdout: Any = None) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE}, cwd=folder, stdin=subprocess.DEVNULL,
        stdout=stdout or subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX limits")
@pytest.mark.parametrize(
    "line",
    [
        "robustness -F many.stl -t good.csv -o old.csv",
        "robustness -F many.stl -t good.csv -o old.json",
        "robustness -F many.stl -t good.csv -o old.npy",
        "similarity -F many.stl --by kernel --n-traces 20 -o old.csv --plot old.png",
        "embed -F many.stl --model model -o old.npy",
        "index build new -F many.stl --n-traces 20",
        "index add library -F many.stl",
        "corpus build corpus2 --families 2",
        "robustness -F many.stl -t good.csv --results results",
    ],
)
def test_a_write_that_fails_leaves_the_old_file(line: str, folder: Path) -> None:
    (folder / "many.stl").write_text("\n".join(f"x_0 > {i / 10}" for i in range(20)))
    for suffix in ("csv", "json", "npy", "png"):
        (folder / f"old.{suffix}").write_text("old")
    before = contents(folder)
    code, text = in_process(LIMITED, *line.split(), folder=folder)
    assert code == 2, text
    assert re.fullmatch(r"rhovec: .*(too large|disk|cannot be written|I/O error).*\n", text), text
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder but those that SQLite keeps beside a library while it is written."""
    files = (p for p in folder.iterdir() if p.is_file() and not p.name.endswith(("-wal", "-shm")))
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_closed_stdout(folder: Path) -> None:
    line = '"$0" -m rhovec.cli robustness "x_0 > 1" -t good.csv'
    for more, code, words in (
        (">&-", 2, "rhovec: cannot write: stdout is closed\n"),
        ("-o closed.csv >&-", 0, ""),
    ):
        process = subprocess.run(
            ["sh", "-c", f"{line} {more}", sys.executable],
            cwd=folder, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True,
        )  # fmt: skip
        assert (process.returncode, process.stderr) == (code, words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "line", ["parse x_0>1", "compare x_0>1 x_0>2 --n-traces 9", "index search library x_0>1"]
)
def test_a_full_disk_behind_stdout(line: str, folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        code, text = in_process("from rhovec.cli import main; main()", *line.split(), folder=folder,
                                stdout=full)  # fmt: skip
    assert (code, text) == (2, "rhovec: cannot write: No space left on device\n")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize(
    "line",
    [
        "compare x_0>1 x_1>2 --n-traces 1000000000",
        "similarity x_0>1 x_1>1 --by kernel --n-traces 20000000 -o good.npy",
        "index build new x_0>1 --n-traces 20000000",
    ],
)
def test_control_c(line: str, folder: Path) -> None:
    before = state(folder)
    assert in_process(INTERRUPTED, *line.split(), folder=folder) == (130, "")
    assert state(folder) == before


def test_control_c_while_compiled_code_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(**_: object) -> None:
        raise SystemError("<function> returned a result with an exception set") from cause

    monkeypatch.setattr(COMMAND.commands["parse"], "callback", stopped)
    cause: BaseException = KeyboardInterrupt()
    assert call("parse", "x_0 > 1") == (130, "")
    cause = ValueError()
    with pytest.raises(SystemError):
        COMMAND.main(["parse", "x_0 > 1"], prog_name="rhovec")
