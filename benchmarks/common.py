"""What benchmarks share: the command, formulae of a file, and their records.

A record is two files in results/: NAME.json, with the numbers, and NAME.md, a page made from them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rhovec.evaluation.sets import formulae_of, mixture

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def command() -> str:
    """The command as one types it in the root of a checkout."""
    return " ".join([f"python benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def head(facts: dict[str, Any]) -> str:
    """Line of a page that says how its numbers were made."""
    host = ", ".join(f"{name} {value}" for name, value in facts["machine"].items())
    return f"Command: `{facts['command']}`; seed {facts['seed']}. Machine: {host}."


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def save(name: str, facts: Any, text: str, folder: Path = RESULTS, quiet: bool = False) -> None:
    """Write NAME.json and NAME.md into a folder, and print the page unless quiet."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
    (folder / f"{name}.md").write_text(text)
    if not quiet:
        print(text)


def formulae(path: Path | None, n: int) -> tuple[list[str], str]:
    """Texts of n formulae and where they are from: the first of a file, or the corpus' test split."""
    if path is None:
        return [str(phi) for phi in mixture(n)], (
            "Held-out families and seeds of the corpus, over x_0 ... x_2"
        )
    found, digest = formulae_of(path)
    if len(found) < n:
        sys.exit(f"{path}: holds {len(found)} formulae, but {n} are needed")
    return [str(phi) for phi in found[:n]], f"The first of {path.name} (SHA-256 {digest})"
