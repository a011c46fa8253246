"""Files from a stranger are data: nothing in the package unpickles or evaluates what it reads.

Models, libraries, arrays and schemas with hostile content are refused with one of our errors. The
pickle among them would make the folder `caught`, if anything ever loaded it.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.search.rows import SCHEMA

from .libraries import change
from .models.tiny import save_tiny

# -- the package ------------------------------------------------------------------------------------

PACKAGE = Path(rv.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "np.load",
    "numpy.load",
    "os.system",
}
OPTIONS = {("allow_pickle", "True"), ("weights_only", "False"), ("shell", "True")}


def forbidden(source: str) -> list[str]:
    """What a module must not do, with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            names = {module, *(alias.name for alias in node.names)}
            if MODULES & {name.split(".")[0] for name in names}:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            options = {(k.arg, ast.unparse(k.value)) for k in node.keywords}
            unsafe = called in CALLS and ("allow_pickle", "False") not in options
            if unsafe or options & OPTIONS or "load_extension" in called:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_nothing_unpickles_or_evaluates() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 50
    assert {str(file): found for file in files if (found := forbidden(file.read_text()))} == {}


def test_the_search_for_it_can_fail() -> None:
    for line in ("import pickle", "from joblib import load", "np.load(f)", "eval('1')",
                 "np.lib.format.read_array(f, allow_pickle=True)", "torch.load(f)",
                 "subprocess.run(x, shell=True)", "database.enable_load_extension(True)"):  # fmt: skip
        assert len(forbidden(line)) == 1, line
    assert forbidden("np.load(f, allow_pickle=False)\nmodel.eval()\nre.compile('x')") == []


# -- what a stranger may send -----------------------------------------------------------------------


class Trap:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("caught",)


def zipped(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


PICKLE = pickle.dumps(Trap())
OBJECTS = io.BytesIO()
np.save(OBJECTS, np.array([Trap()], object), allow_pickle=True)
PICKLES = (PICKLE, OBJECTS.getvalue(), zipped(data_pkl=PICKLE, x_npy=OBJECTS.getvalue()))
NESTED = "[" * 200_000


@pytest.fixture(autouse=True)
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    pickle.loads(PICKLE)
    Path("caught").rmdir()  # it works
    yield
    assert not Path("caught").exists()


def refused(read: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(rv.RhovecError) as error:
        read(*arguments)
    return str(error.value)


@pytest.mark.parametrize("content", PICKLES, ids=["pickle", "objects", "zip"])
def test_arrays(content: bytes) -> None:
    for name in ("x.npy", "x.parquet", "x.csv"):
        Path(name).write_bytes(content)
        assert name in refused(rv.read_traces, name)


def test_a_schema() -> None:
    for text in (NESTED, '{"channels": ' * 100_000, "{}", "7", '{"channels": [{"name": 7}]}'):
        refused(rv.Schema.from_json, text)


# -- models -----------------------------------------------------------------------------------------

WEIGHTS, CONFIG, DIGEST = "encoder.safetensors", "config.json", "digest"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "model")


def config_of(model: Path) -> dict[str, Any]:
    """Without its digest, which a stranger may leave out."""
    config: dict[str, Any] = json.loads((model / CONFIG).read_text())
    del config[DIGEST]
    return config


def test_weights_that_are_something_else(model: Path) -> None:
    config, weights = config_of(model), (model / WEIGHTS).read_bytes()
    moved = weights.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1)
    endless = (2**62).to_bytes(8, "little") + weights[8:]
    for content in (*PICKLES, b"", weights[:999], weights[:-1], moved, endless):
        (model / WEIGHTS).write_bytes(content)
        (model / CONFIG).write_text(json.dumps(config))
        assert WEIGHTS in refused(rv.load, model)
        digest = hashlib.sha256(content).hexdigest()  # the config may vouch for them
        (model / CONFIG).write_text(json.dumps(config | {"sha256": {WEIGHTS: digest}}))
        assert WEIGHTS in refused(rv.load, model)


@pytest.mark.parametrize(
    "content",
    [PICKLE, NESTED, '{"a":' * 100_000, "[]", "7", "null", b"\xff\xfe", "{}"],
    ids=range(8),
)
def test_a_config_that_is_something_else(model: Path, content: bytes | str) -> None:
    (model / CONFIG).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert CONFIG in refused(rv.load, model)


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": {"../model/encoder.safetensors": "0" * 64}},
        {"sha256": {"/etc/passwd": "0" * 64}},
        {"sha256": {WEIGHTS: 7}},
        {"sha256": []},
        {"encoder": {"width": 2**40}},
        {"encoder": {"layers": -1}},
        {"encoder": {"layers": 65_536, "width": 65_536}},
        {"encoder": {"heads": 7}},
        {"encoder": {"tokens": "__import__('os').mkdir('caught')"}},
        {"encoder": {"pooling": "../../x"}},
        {"encoder": {"code": "import os"}},
        {"encoder": NESTED},
        {"range": {"threshold": {"largest": "x"}}},
        {"format": 1e308},
        {"decoder": {"config": {}}},
        {"teacher": {"measure": {"n_variables": "x"}, "sigma2": []}},
        {"teacher": {"measure": {"stranger": 1}, "sigma2": 0.2}},
        {"teacher": {"measure": 7, "sigma2": 0.2}},
    ],
    ids=str,
)
def test_a_config_that_asks_for_something_else(model: Path, change: dict[str, Any]) -> None:
    config = config_of(model)
    if isinstance(change.get("encoder"), dict):
        change = {"encoder": config["encoder"] | change["encoder"]}
    (model / CONFIG).write_text(json.dumps(config | change))
    refused(lambda: rv.load(model).kernel())


def test_code_and_links_beside_a_model(model: Path, tmp_path: Path) -> None:
    (model / "modeling.py").write_text("import os; os.mkdir('caught')")
    (model / WEIGHTS).rename(tmp_path / "elsewhere")
    (model / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    assert rv.load(model).embed("x_0 > 1").shape == (24,)
    (model / WEIGHTS).unlink()
    (model / WEIGHTS).symlink_to(model / WEIGHTS)
    assert WEIGHTS in refused(rv.load, model)


# -- libraries ----------------------------------------------------------------------------------------

TABLES = [
    "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END",
    "CREATE VIEW v AS SELECT load_extension('stranger')",
    "CREATE TABLE x (a, b AS (a || 'x'))",
    "CREATE INDEX i ON rows (abs(depth))",
    "CREATE VIRTUAL TABLE f USING fts5(a)",
    "DROP TABLE labels",
    "PRAGMA user_version=7",
    "PRAGMA application_id=7",
]
FIELD = "UPDATE facts SET facts = json_set(facts, '$.{}', {})"
VALUES = [
    *(
        (FIELD.format(name, "?"), value)
        for name in ("recipe", "schema", "dimension", "kind", "stored", "sigma2", "fingerprint")
        for value in ("x", NESTED, "[]", "7", -1, 2**40, 1e300)
        if (name, value) not in (("sigma2", 2**40), ("sigma2", 1e300))  # another scale, no more
    ),
    *((FIELD.format("recipe", "json(?)"), value) for value in ("[]", "{}", '{"kernel": []}')),
    *(("UPDATE facts SET facts = ?", value) for value in (PICKLE, NESTED, "[]", "{}", "", 7)),
    *(("UPDATE facts SET traces = ?", value) for value in (*PICKLES, "x", 7)),
    ("DELETE FROM facts WHERE id > ?", 0),
    ("DELETE FROM state WHERE id > ?", 0),
    ("UPDATE state SET last = ?", 2**40),
    ("UPDATE state SET deletions = ?", -(2**40)),
    *(("UPDATE rows SET vector = ?", value) for value in (PICKLE, bytes(96), b"\xff" * 96, "x")),
    *(("UPDATE rows SET formula = ?", value) for value in (PICKLE, NESTED, "", 7)),
    *(("UPDATE rows SET depth = ?", value) for value in (PICKLE, "x", 2**40)),
    *(("UPDATE rows SET label = ?", value) for value in (PICKLE, "x", 2**40, 0, -1, 99)),
    *(
        (f"UPDATE labels SET {name} = ? WHERE id = 1", v)
        for name in ("variables", "tags")
        for v in (PICKLE, NESTED, "{'a'", "7", 7, "[7]", '"x"')
    ),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "library"
    rv.Index.build(TEXTS, path, vectors=rv.StlKernel(n_traces=24)).close()
    return path.read_bytes()


TEXTS = ["x_0 > 1", "always x_1 < 2"]


@pytest.fixture
def library(stored: bytes, tmp_path: Path) -> Path:
    (tmp_path / "library").write_bytes(stored)
    return tmp_path / "library"


def use(library: Path) -> None:
    with rv.Index.open(library) as index:
        index.search(TEXTS[0], tags="a", variables="x_0")
        index.search(TEXTS)
        index.duplicates()
        index.add("x_0 > 3")
        index.delete(1)


def test_a_library_as_it_should_be(library: Path) -> None:
    use(library)
    for content in PICKLES:  # a cache that is none is made again
        Path(f"{library}.coarse").write_bytes(content)
        use_again = rv.Index.open(library)
        assert len(use_again.search(TEXTS[0])) == 2
        use_again.close()


@pytest.mark.parametrize("statement", TABLES)
def test_a_library_with_more_than_our_tables(library: Path, statement: str) -> None:
    change(library, (statement, ()))
    assert "library" in refused(use, library)


def test_a_library_with_tables_that_compute(library: Path) -> None:
    sql = SCHEMA[3].replace("depth INTEGER", "depth AS (load_extension('stranger'))")
    change(library, ("PRAGMA writable_schema=ON", ()),
           ("UPDATE sqlite_master SET sql = ? WHERE name = 'rows'", (sql,)))  # fmt: skip
    refused(use, library)


@pytest.mark.parametrize(("statement", "value"), VALUES, ids=range(len(VALUES)))
def test_a_library_with_other_values(library: Path, statement: str, value: Any) -> None:
    """With checksums that fit: a stranger can compute them, too."""
    change(library, (statement, (value,)), sealed=True)
    refused(use, library)


@pytest.mark.parametrize("size", [0, 15, 100, 20_000, 60_000])
def test_a_library_cut_short(library: Path, stored: bytes, size: int) -> None:
    assert size < len(stored)
    for content in (
        stored[:size],
        stored[:size] + PICKLE,
        stored[:size] + bytes(len(stored) - size),
    ):
        library.write_bytes(content)
        refused(use, library)
