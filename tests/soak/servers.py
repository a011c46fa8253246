"""Servers under attack; `make soak` does many attacks, the normal suite a few."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rhovec.errors import RhovecError
from rhovec.search import Index

from ..servers import Postgres
from .harness import Hashed, formula


def kill_server(server: Postgres, url: str, n: int, seed: int) -> dict[str, Any]:
    """Kill PostgreSQL n times while a client adds; all that was confirmed is there, nothing twice.

    The client repeats an add that failed. Each add has texts of its own.
    """
    rng = random.Random(seed)
    library, maker = f"kills {seed}", Hashed(200)
    confirmed: dict[int, str] = {}
    repeated = 0
    stop = threading.Event()
    Index.build(["x_0 > -1"], url, library=library, vectors=maker).close()

    def work() -> None:
        nonlocal repeated
        number = 0
        with Index.open(url, library=library, vectors=maker) as index:
            while not stop.is_set():
                texts = [formula(number + i) for i in range(rng.choice((1, 3, 40)))]
                number += len(texts)
                while True:
                    try:
                        ids = index.add(texts)
                        break
                    except RhovecError as error:
                        assert "was lost" in str(error) or "cannot connect" in str(error), error
                        repeated += 1
                confirmed.update(zip(ids, texts, strict=True))

    failures: list[BaseException] = []

    def client() -> None:
        try:
            work()
        except BaseException as error:  # told by the caller
            failures.append(error)

    thread = threading.Thread(target=client)
    thread.start()
    for _ in range(n):
        before = len(confirmed)
        while len(confirmed) < before + 20 and thread.is_alive():
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        server.kill()
        server.start()
    stop.set()
    thread.join()
    assert not failures, failures
    with Index.open(url, library=library, vectors=maker) as index:
        index.verify()
        found = index.search("x_0 > 0", len(confirmed) + 100)
        there = {hit.id: str(hit.formula) for hit in found if hit.id > 1}
        assert len(index) == len(confirmed) + 1
    assert sorted(there) == sorted(confirmed)
    assert len(set(there.values())) == len(there)
    return {"kills": n, "entries confirmed": len(confirmed), "adds repeated": repeated}


def write_and_read(url: str, seconds: float) -> dict[str, Any]:
    """Two writers and eight readers at once, none of whom meets an error."""
    maker = Hashed(200)
    Index.build(["x_0 > -1"], url, library="clients", vectors=maker).close()
    end = time.monotonic() + seconds

    def write(writer: int) -> set[int]:
        number, kept = 10**6 * writer, set()
        with Index.open(url, library="clients", vectors=maker) as index:
            while time.monotonic() < end:
                first, *new = index.add([formula(number + i) for i in range(10)])
                index.delete(first)
                kept.update(new)
                number += 10
        return kept

    def read(_: int) -> int:
        asked = 0
        with Index.open(url, library="clients", vectors=maker) as index:
            while time.monotonic() < end:
                hits = index.search(f"x_0 > {asked}", 5)
                assert hits and hits == sorted(hits, key=lambda hit: -hit.similarity)
                asked += 1
        return asked

    with ThreadPoolExecutor(10) as pool:
        writers, readers = pool.map(write, (1, 2)), pool.map(read, range(8))
        one, two = writers
        searches = list(readers)
    assert one and two and all(searches) and not one & two
    with Index.open(url, library="clients", vectors=maker) as index:
        index.verify()
        assert {hit.id for hit in index.search("x_0 > 0", 10**9)} == {1} | one | two
    return {
        "seconds": seconds, "writers": 2, "readers": len(searches),
        "entries added": len(one | two) * 10 // 9, "searches": sum(searches),
    }  # fmt: skip
