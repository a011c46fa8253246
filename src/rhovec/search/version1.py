"""Libraries of version 1, without checksums: read once, to be written as the current version."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RhovecError
from ..formula import parse
from ..formula.requirements import Requirement
from .backend import Batch, Facts, Kind
from .numbers import unit_rows
from .rows import APPLICATION, CHUNK, REPAIR, clear_errors, require_sqlite, texts_of

SCHEMA = {
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value)",
    "CREATE TABLE labels (id INTEGER PRIMARY KEY, variables TEXT, tags TEXT, "
    "UNIQUE (variables, tags))",
    "CREATE TABLE rows (id INTEGER PRIMARY KEY AUTOINCREMENT, formula TEXT, depth INTEGER, "
    "label INTEGER)",
    "CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB)",
    "CREATE TABLE sqlite_sequence(name,seq)",
    None,  # the index of a UNIQUE or PRIMARY KEY
}
ROWS = (
    "SELECT formula, tags, vector FROM rows JOIN vectors USING (id) "
    "JOIN labels ON labels.id = label ORDER BY rows.id"
)


@contextmanager
def reading(path: Path) -> Iterator[tuple[Facts, Iterator[Batch]]]:
    """The facts and all entries of a library of version 1. Vectors stay 16-bit floats."""
    require_sqlite(path)
    with clear_errors(str(path)), closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
    ) as database:  # fmt: skip
        database.execute("PRAGMA trusted_schema=OFF")
        head = [
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        ]
        tables = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master")}
        if head != [APPLICATION, 1] or tables != SCHEMA:
            raise RhovecError(f"{path}: not a rhovec library of version 1")
        found = dict(database.execute("SELECT name, value FROM facts"))
        try:
            facts = _facts(found)
            ((last,),) = database.execute("SELECT seq FROM sqlite_sequence").fetchall()
            size = last - found["deleted"]
        except (ValueError, TypeError, LookupError, RecursionError):
            raise RhovecError(f"{path}: its description is damaged; {REPAIR}") from None
        yield facts, _batches(database, path, facts.dimension, size)


def _facts(facts: dict[str, Any]) -> Facts:
    recipe = json.loads(facts["recipe"])
    sigma2 = float(recipe["sigma2"]) if recipe and recipe["exponentiated"] else None
    kind: Kind = "kernel" if sigma2 is None else "cosine"
    return Facts(
        str(facts["fingerprint"]), kind, sigma2, int(facts["dimension"]), "float16",
        facts["schema"], recipe, facts["signals"],
    )  # fmt: skip


def _batches(
    database: sqlite3.Connection, path: Path, dimension: int, size: int
) -> Iterator[Batch]:
    cursor = database.execute(ROWS)
    done = 0
    while found := cursor.fetchmany(CHUNK):
        texts, tags, blobs = zip(*found, strict=True)
        done += len(found)
        try:
            stored = np.frombuffer(b"".join(blobs), "<f2").reshape(len(found), dimension)
            vectors = unit_rows(stored.astype(np.float32))
            if not np.isfinite(vectors).all():
                raise ValueError("vector")
            read = [
                Requirement(parse(text), tags=tuple(texts_of(labels)))
                for text, labels in zip(texts, tags, strict=True)
            ]
        except (ValueError, TypeError, RecursionError):
            raise RhovecError(f"{path}: an entry is damaged; {REPAIR}") from None
        yield Batch(read, vectors)
    if done != size:
        raise RhovecError(f"{path}: entries are missing; {REPAIR}")
