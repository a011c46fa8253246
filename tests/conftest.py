import ast
import hashlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def compiled_sources() -> list[Path]:
    """Modules with compiled functions, and all modules of rhovec that these import."""
    todo = [path for path in SOURCE.rglob("*.py") if "njit(" in path.read_text()]
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                for place in (base, *(base / name.name for name in node.names)):
                    todo += [place.with_suffix(".py"), place / "__init__.py"]
    return sorted(found)


# numba's cache does not notice a change in a module that a compiled function calls into. So tests keep
# one cache for each state of the compiled sources (set before anything imports numba); other edits do
# not compile everything again.
STATE = hashlib.sha256(b"".join(p.read_bytes() for p in compiled_sources())).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba_cache" / STATE))

# The matrices of these tests are small, and threads of torch and of NumPy's BLAS that wait for each
# other spin: with one thread the trainings take less than half the time, far less beside other work.
# Set before they load, and for the commands that tests start.
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Compilation and loaded machines make single examples slow; that is no failure. CI repeats the same
# examples, so that a red run can be repeated.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, max_examples=15)  # make quick
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A shell's background job ignores control-C, and so would every command that a test starts and stops.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def pg() -> Iterator[Any]:
    """A PostgreSQL server; a test may kill it, and starts it again."""
    from .servers import postgres

    with postgres() as running:
        yield running


@pytest.fixture
def url(pg: Any) -> Iterator[str]:
    """A database of the test's own, and the password in the environment."""
    from .servers import execute

    name = f"test_{secrets.token_hex(6)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", pg.password)
        execute(pg.url(), f"CREATE DATABASE {name}")
        yield pg.url(database=name)
        execute(pg.url(), f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def s3() -> Iterator[int]:
    """Port of an object store with an empty bucket, and credentials in the environment."""
    from .servers import create, store

    with store() as port, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        create(port)
        yield port
