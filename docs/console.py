"""Runs the commands in the console blocks of pages, and rewrites the output that the pages show.

python docs/console.py docs/first-minute.md

In a console block `$ ` starts a command of rhovec, and the lines below it, if any, are its output. The
commands of a page run in one folder, in order, and so do its Python blocks, which stay as they are.
tests/test_docs.py runs them with the same code and compares, so that no page shows what rhovec no
longer prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, the output shown below it) of a console block."""
    entries = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (e.partition("\n") for e in entries)]


def run_command(command: str, folder: Path) -> str:
    """What a shell line that starts with `rhovec` prints in a folder, without blanks at the ends of
    lines; it must succeed."""
    assert command.startswith("rhovec "), f"a console block runs only rhovec, not {command!r}"
    tools = folder / ".bin"
    if not tools.exists():
        tools.mkdir()
        program = tools / "rhovec"
        run = "from rhovec.cli import main; main()"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{run}" "$@"\n')
        program.chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(SOURCE),
        "COLUMNS": "80",
    }  # fmt: skip
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"$ {command}\n{done.stderr}"
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def rewritten(page: str, folder: Path) -> str:
    """The page with the output of today; a command that shows none is run all the same."""

    namespace: dict[str, object] = {"__name__": "page"}

    def again(block: re.Match[str]) -> str:
        if block[1] == "python":
            with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
                exec(block[2], namespace)
        if block[1] != "console":
            return block[0]
        parts = []
        for command, shown in commands(block[2]):
            printed = run_command(command, folder)
            parts.append(f"$ {command}\n{printed if shown else ''}")
        return f"```console\n{''.join(parts)}```"

    return BLOCK.sub(again, page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            path = Path(name)
            path.write_text(rewritten(path.read_text(), Path(place)))
