"""What the tests of libraries share: damage, and seals that fit a stranger's changes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from rhovec.search import rows


def change(path: Path, *statements: tuple[str, tuple[object, ...]], sealed: bool = False) -> None:
    """Change a library behind our back; sealed: with the checksums that fit, as a stranger could."""
    database = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        database.execute(*statement)
    if sealed:
        seal(database)
    database.close()


def seal(database: sqlite3.Connection) -> None:
    """Make checksums and digests fit what the tables hold, where its types have a checksum."""
    facts = database.execute("SELECT identity, facts, traces FROM facts").fetchone()
    if facts is None or not isinstance(facts[1], str):
        return
    data = facts[2].encode() if isinstance(facts[2], str) else facts[2]
    if data is None or isinstance(data, bytes):
        checksum = rows._facts_checksum(*facts[:2], data)
        database.execute("UPDATE facts SET checksum = ?", (checksum,))
    salt, sums = bytes.fromhex(facts[0]), {"labels": 0, "rows": 0}
    for table, columns in (
        ("labels", "id, variables, tags, x''"),
        ("rows", "id, formula, requirement, title, source, depth, label, vector"),
    ):
        for *fields, data in database.execute(f"SELECT {columns} FROM {table}").fetchall():
            blob = data.encode() if isinstance(data, str) else data
            if not any(isinstance(field, bytes) for field in fields):
                checksum = rows.checksum_of(salt, table[:-1].encode(), fields, blob)
                query = f"UPDATE {table} SET checksum = ? WHERE id = ?"
                database.execute(query, (checksum, fields[0]))
                sums[table] += checksum
    totals = (rows.signed(sums["labels"]), rows.signed(sums["rows"]))
    database.execute("UPDATE state SET labels = ?, digest = ?", totals)
    query = "SELECT last, deletions, labels, digest FROM state"
    for state in database.execute(query).fetchall():
        database.execute(
            "UPDATE state SET checksum = ?", (rows.checksum_of(salt, b"state", state),)
        )
