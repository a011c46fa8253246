"""Imports go downwards only, and heavy libraries load when first used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "rhovec"

# From the top down. Rooms of one layer do not import each other; any room may import from any
# layer below its own.
DOOR = "__init__"  # rhovec/__init__.py, which re-exports names from the layers below it
LAYERS = (
    ("cli",),
    (DOOR,),
    ("demo", "training"),
    ("evaluation",),
    ("search", "sklearn"),
    ("mining",),
    ("spaces",),
    ("check", "compare", "corpus", "fleet", "models"),
    ("kernel", "tokens"),
    ("library", "robustness"),
    ("traces",),
    ("formula", "tasks"),
    ("drawing", "files", "former", "machine", "pages"),
    ("errors",),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

HEAVY = {
    "psycopg",
    "distributed",
    "torch",
    "numba",
    "pyarrow",
    "matplotlib",
    "onnxruntime",
    "hypothesis",
    "pint",
    "sklearn",
}
# Where a heavy library may be imported at module level; a folder stands for all in it.
ALLOWED = {
    "robustness/cpu.py": {"numba"},
    "robustness/lowering.py": {"numba"},
    "robustness/autograd.py": {"torch"},
    "robustness/gpu.py": {"torch"},
    "models/decoder.py": {"torch"},
    "models/encoder.py": {"torch"},
    "models/int8.py": {"numba"},
    "models/module.py": {"torch"},
    "formula/strategies.py": {"hypothesis"},
    "corpus": {"numba", "torch"},
    "evaluation/edits.py": {"numba"},
    "search/scan.py": {"numba"},
    "search/database.py": {"psycopg"},
    "sklearn.py": {"sklearn"},
    "training": {"numba", "torch"},
}

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imports(source: str, path: Path, eager: bool = False) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import in a module; eager: only what runs when it loads.

    `from . import x` counts as an import of the submodule x, which may be one.
    """
    package = ["rhovec", *path.parts[:-1]]
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if eager and is_lazy(node):
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "rhovec":
                yield from ((node.lineno, f"rhovec.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def is_lazy(node: ast.AST) -> bool:
    """A function's body, or what only a type checker sees."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def rooms_imported(source: str, path: Path) -> Iterator[tuple[int, str]]:
    for line, module in imports(source, path):
        first, *rest = module.split(".")
        if first == "rhovec" and rest != ["__version__"]:
            yield line, rest[0] if rest and rest[0] in LEVEL else DOOR


def violations(source: str, path: Path) -> list[str]:
    room = room_of(path)
    return [
        f"{path}:{line} imports {other}, which is not below {room}"
        for line, other in rooms_imported(source, path)
        if other != room and LEVEL[other] <= LEVEL[room]
    ]


def early_imports(source: str, path: Path) -> list[str]:
    allowed = ALLOWED.get(path.as_posix(), set()) | ALLOWED.get(path.parts[0], set())
    return [
        f"{path}:{line} imports {module} when it loads; import it where it is used"
        for line, module in imports(source, path, eager=True)
        if module.split(".")[0] in HEAVY - allowed
    ]


def test_every_module_belongs_to_a_layer() -> None:
    assert {room_of(path) for path in MODULES} <= set(LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_downwards(path: Path) -> None:
    assert violations((PACKAGE / path).read_text(), path) == []


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_heavy_libraries_are_imported_where_they_are_used(path: Path) -> None:
    assert early_imports((PACKAGE / path).read_text(), path) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("formula/core.py", "from ..robustness import cpu"),
        ("formula/core.py", "def f():\n    from ..kernel import StlKernel"),
        ("traces/reading.py", "from ..robustness.inputs import as_trace_array"),
        ("robustness/cpu.py", "import rhovec.library"),
        ("corpus/shard.py", "from ..models.encoder import Encoder"),
        ("kernel.py", "from . import search"),
        ("errors.py", "from .formula import Formula"),
        ("search.py", "from rhovec import parse"),
        ("training/distill.py", "import rhovec as rv"),
        ("__init__.py", "from .cli import main"),
    ],
)
def test_the_layer_rule_can_fail(path: str, source: str) -> None:
    assert len(violations(source, Path(path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("cli.py", "from .formula.parser import parse\nfrom .errors import RhovecError"),
        (
            "cli/demo.py",
            "from ..search import Index\nfrom .output import table\nimport rhovec as rv",
        ),
        ("models/checkpoint.py", "from .. import __version__, errors"),
        ("corpus/shard.py", "from ..kernel import StlKernel\nfrom . import rewrite"),
        ("robustness/cpu.py", "from ..formula.core import Formula\nfrom .inputs import TraceArray"),
        ("formula/core.py", "import numpy\nfrom ..errors import FormulaError\nfrom .x import y"),
    ],
)
def test_the_layer_rule_lets_pass(path: str, source: str) -> None:
    assert violations(source, Path(path)) == []


def test_the_rule_for_heavy_libraries_can_fail() -> None:
    early = "try:\n    import torch.nn\nexcept ImportError:\n    torch = None"
    assert len(early_imports(early, Path("traces.py"))) == 1
    assert len(early_imports("class A:\n    import numba", Path("robustness/gpu.py"))) == 1
    assert early_imports("def f():\n    import torch", Path("traces.py")) == []
    assert early_imports("from numba import njit", Path("robustness/cpu.py")) == []
    assert early_imports("if TYPE_CHECKING:\n    import torch", Path("traces.py")) == []


def test_importing_rhovec_loads_nothing_heavy() -> None:
    command = "import sys, rhovec; print(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", command],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(run.stdout.split())
    assert {"rhovec", "numpy"} <= loaded
    assert not loaded & (HEAVY | {"typer", "rich"})


def test_patterns_have_no_possessive_groups() -> None:
    # (?:...)*+ consumes text even where it fails half-way, in the re of Python before 3.11.5.
    found = [path for path in PACKAGE.rglob("*.py") if re.search(r"\)[*+?]\+", path.read_text())]
    assert found == []
