"""`make soak`: many kills, flipped bits and cuts, a million rows and a million texts.

The record goes to results/soak.json and results/soak.md.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rhovec.machine import facts
from rhovec.spaces import Space

from ..formula.test_parser_fuzz import fuzz_in_parts
from ..formula.test_reader import mutated
from ..formula.test_requirements import mutated_files
from ..servers import Postgres
from ..spaces.plant import NAMES, drives
from ..spaces.test_folder import kill_while_saving
from . import fleets, harness
from .servers import kill_server, write_and_read

RESULTS = Path(__file__).parents[2] / "results"
COMMAND = "make soak"
SEED = 0
TITLES = {
    "kills": "SIGKILL at random moments of build, add, delete and compaction; nothing confirmed lost",
    "flips": "Single flipped bits, each noticed or without effect on any answer",
    "cuts": "The file cut at every page and within every page, each noticed when it is opened",
    "spaces": "SIGKILL while a space is saved over another one; one of the two is there",
    "savers": "SIGKILL of two programs that save spaces into one folder; one of the two is there",
    "server": "SIGKILL of PostgreSQL while a client adds; what was confirmed is there, nothing twice",
    "clients": "Writers and readers of one library in PostgreSQL at once",
    "fleet workers": "SIGKILL of a worker during a run over many files; result files stay the same",
    "fleet schedulers": "SIGKILL of the scheduler; the resumed run has the bytes of an undisturbed one",
    "fleet clients": "SIGKILL of the client; the resumed run has the bytes of an undisturbed one",
    "million": "A million rows with a checksum each",
    "texts": "Mutated texts, read by compiled code only if the parser gives the same formula",
    "files": "Mutated requirement files: read, or every mistake with line, column and what to change",
    "parser": "Any text: a formula that reads back from its print, or an error with a place",
}

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def record() -> Iterator[dict[str, Any]]:
    """What the tests found, one entry per test; a test that was not run keeps its last record."""
    found: dict[str, Any] = {}
    yield found
    before = json.loads((RESULTS / "soak.json").read_text())
    parts = {name: part for name, part in {**before["parts"], **found}.items() if name in TITLES}
    content = {"command": COMMAND, "seed": SEED, "parts": parts}
    (RESULTS / "soak.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "soak.md").write_text(page(parts))


def test_kills(tmp_path: Path, record: dict[str, Any]) -> None:
    keep(record, "kills", harness.kills(tmp_path, 300, SEED))


def test_flips(tmp_path: Path, record: dict[str, Any]) -> None:
    keep(record, "flips", harness.flips(tmp_path, 1000, SEED))


def test_cuts(tmp_path: Path, record: dict[str, Any]) -> None:
    keep(record, "cuts", harness.cuts(tmp_path, 3000, seed=SEED))


def test_spaces(tmp_path: Path, record: dict[str, Any]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for seed, folder in enumerate((one, two)):
        Space.fit(drives(seed=seed), NAMES).save(folder)
    keep(record, "spaces", kill_while_saving(one, two, tmp_path / "target", 200, SEED))


def test_savers(tmp_path: Path, record: dict[str, Any]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for seed, folder in enumerate((one, two)):
        Space.fit(drives(seed=seed), NAMES).save(folder)
    keep(record, "savers", kill_while_saving(one, two, tmp_path / "target", 50, SEED, savers=2))


def test_server(pg: Postgres, url: str, record: dict[str, Any]) -> None:
    keep(record, "server", kill_server(pg, url, 50, SEED))


def test_clients(url: str, record: dict[str, Any]) -> None:
    keep(record, "clients", write_and_read(url, 60))


def test_fleet_workers(tmp_path: Path, record: dict[str, Any]) -> None:
    keep(record, "fleet workers", fleets.kill_workers(fleets.Runs(tmp_path), 20, SEED))


def test_fleet_schedulers(tmp_path: Path, record: dict[str, Any]) -> None:
    keep(record, "fleet schedulers", fleets.kill_schedulers(fleets.Runs(tmp_path), 20, SEED))


def test_fleet_clients(tmp_path: Path, record: dict[str, Any]) -> None:
    keep(record, "fleet clients", fleets.kill_clients(fleets.Runs(tmp_path), 20, SEED))


def test_million(tmp_path: Path, record: dict[str, Any]) -> None:
    keep(record, "million", harness.million(tmp_path))


def test_texts(record: dict[str, Any]) -> None:
    keep(record, "texts", {"texts": 1_000_000, "read by compiled code": mutated(1_000_000, SEED)})


def test_files(record: dict[str, Any]) -> None:
    right, wrong = mutated_files(1_000_000, SEED)
    keep(record, "files", {"files": right + wrong, "without a mistake": right})


def test_parser(record: dict[str, Any]) -> None:
    keep(record, "parser", {"texts": 1_600_000, "parsed": fuzz_in_parts(1_600_000, first_seed=100)})


def keep(record: dict[str, Any], name: str, outcome: dict[str, Any]) -> None:
    record[name] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {**facts(), "sqlite": sqlite3.sqlite_version},
        "outcome": outcome,
    }
    print(f"\n{TITLES[name]}:", *harness.lines(outcome), sep="\n  ")


def page(parts: dict[str, Any]) -> str:
    text = [f"# Soak test\n\nCommand: `{COMMAND}`; seed {SEED}.\n"]
    for name in filter(parts.__contains__, TITLES):
        host = ", ".join(f"{key} {value}" for key, value in parts[name]["machine"].items())
        text.append(f"## {TITLES[name]}\n\n{parts[name]['date']}. {host}.\n")
        text += [f"- {line}" for line in harness.lines(parts[name]["outcome"])]
        text.append("")
    return "\n".join(text)
