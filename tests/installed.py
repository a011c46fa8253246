"""What must hold where rhovec is installed with its default dependencies alone: `make package`.

Run by the Python of that environment. Prints the installed size and the time of `import rhovec`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
PACKAGES = Path(sysconfig.get_path("purelib"))
MOST = 450e6  # bytes, the weights included


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def python(code: str) -> str:
    return run(sys.executable, "-I", "-c", code)


def rhovec(*arguments: str) -> str:
    return run(str(Path(sysconfig.get_path("scripts")) / "rhovec"), *arguments)


def main() -> None:
    assert find_spec("torch") is None, "torch came along"
    assert Path(python("import rhovec; print(rhovec.__file__)")).is_relative_to(PACKAGES)
    size = sum(file.lstat().st_size for file in PACKAGES.rglob("*") if file.is_file())
    assert size < MOST, f"{size / 1e6:.0f} MB"

    assert re.fullmatch(r"rhovec \d+\.\d+\.\d+\n", rhovec("--version"))
    vector = json.loads(rhovec("embed", "always[0,10] x_0 > 1"))["vector"]
    assert abs(sum(x * x for x in vector) - 1) < 1e-5
    pair = rhovec("similarity", "always x_0 > 1", "not eventually x_0 <= 1", "--json")
    values = json.loads(pair)
    assert abs(values["kernel"] - 1) < 1e-6, pair
    assert values["model"] > 0.99, pair
    assert "always" in rhovec("parse", "G x_0 > 1")

    block = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)[0]
    expected = re.findall(r"^# (.*)$", block, re.MULTILINE)
    assert python(block).splitlines() == expected, "README's first lines print something else"

    clock = "from time import perf_counter as t; s = t(); import rhovec; print(t() - s)"
    seconds = min(float(python(clock)) for _ in range(7))
    print(f"Python {sys.version.split()[0]}: {size / 1e6:.0f} MB, import rhovec {seconds:.2f} s")


if __name__ == "__main__":
    main()
