"""The wheel and the sdist: what is in them, and that the wheel works on its own and without torch.

`make package` does the same in an environment of its own, with dependencies from the network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import rhovec

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "rhovec"
DATA = {
    "rhovec/py.typed", "rhovec/robustness/ops.cu", "rhovec/library/requirements.toml",
    "rhovec/evaluation/data/formulae.txt.gz", "rhovec/weights/default/config.json",
    "rhovec/weights/default/encoder.safetensors", "rhovec/weights/default/README.md",
}  # fmt: skip
# The wheel comes first, and nothing that is not installed by default can be imported.
WITHOUT_EXTRAS = """
import sys
sys.path.insert(0, {target!r})
sys.modules.update(dict.fromkeys(("torch", "pyarrow", "matplotlib", "hypothesis", "sklearn", "pint")))
import rhovec
assert rhovec.__file__.startswith({target!r}), rhovec.__file__
loaded = {{name.partition(".")[0] for name in sys.modules if sys.modules[name] is not None}}
assert not loaded & {{"numba", "safetensors", "typer", "rich"}}, loaded
from rhovec.cli import main
main()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist) of the working tree."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def build(source: Path, folder: Path) -> tuple[Path, Path]:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = set(contents(built[0]))
    info = f"rhovec-{rhovec.__version__}.dist-info/"
    sources = {f"rhovec/{p.relative_to(PACKAGE).as_posix()}" for p in PACKAGE.rglob("*.py")}
    inside = {name for name in names if not name.startswith(info)}
    assert sources | DATA <= inside
    others = {name for name in inside - sources if not name.startswith("rhovec/weights/")}
    assert {Path(name).suffix for name in others} <= {
        ".cu",
        ".css",
        ".gz",
        ".js",
        ".toml",
        ".typed",
    }
    assert info + "licenses/LICENSE" in names
    assert b"rhovec = rhovec.cli:main" in contents(built[0])[info + "entry_points.txt"]
    metadata = contents(built[0])[info + "METADATA"].decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert [line for line in needed if "torch" in line and "extra" not in line] == []


def test_the_sdist_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(tmp_path)
    (source,) = tmp_path.iterdir()
    there = {p.name for p in source.iterdir()}
    assert there >= {"src", "tests", "docs", "reproduction", "README.md", "Makefile"}
    again, _ = build(source, tmp_path / "dist")
    assert contents(again) == contents(wheel)


def test_the_wheel_works_without_extras(built: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "target"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    command = [
        sys.executable,
        *install,
        "--disable-pip-version-check",
        "--target",
        target,
        built[0],
    ]
    subprocess.run(command, check=True, capture_output=True)
    code = WITHOUT_EXTRAS.format(target=str(target))
    # Otherwise Typer looks for a shell among the parent processes, and there may be none.
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-I", "-c", code, *arguments], cwd=tmp_path,
                              capture_output=True, text=True, env=environment)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert run("--version") == f"rhovec {rhovec.__version__}\n"
    assert '"vector": [' in run("embed", "always[0,10] x_0 > 1")
    assert "_RHOVEC_COMPLETE=complete_bash" in run("--show-completion", "bash")
    assert "horizon     10 steps" in run("parse", "always[0,10] x_0 > 1")
