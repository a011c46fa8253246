"""`make soak`: PostgreSQL killed many times during adds, writers and readers for a minute."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rhovec.search import Index

from ..servers import postgres
from .harness import Hashed, formula
from .servers import kill_server

pytestmark = pytest.mark.soak


def test_kill_postgres_fifty_times(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres() as server:
        monkeypatch.setenv("PGPASSWORD", server.password)
        print(kill_server(server, server.url(), 50, 0))


def test_two_writers_and_eight_readers_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    end = time.monotonic() + 60
    with postgres() as server:
        monkeypatch.setenv("PGPASSWORD", server.password)
        url, maker = server.url(), Hashed(200)
        Index.build(["x_0 > -1"], url, library="a", vectors=maker).close()
        lock, added = threading.Lock(), {1}

        def write(writer: int) -> int:
            number = 10**6 * writer
            with Index.open(url, library="a", vectors=maker) as index:
                while time.monotonic() < end:
                    new = index.add([formula(number + i) for i in range(10)])
                    index.delete(new[0])
                    with lock:
                        added.update(new[1:])
                    number += 10
            return number - 10**6 * writer

        def read(_: int) -> int:
            asked = 0
            with Index.open(url, library="a", vectors=maker) as index:
                while time.monotonic() < end:
                    assert index.search(f"x_0 > {asked}", 5)
                    asked += 1
            return asked

        with ThreadPoolExecutor(10) as pool:
            writers, readers = pool.map(write, (1, 2)), pool.map(read, range(8))
            print(f"{sum(writers)} entries added, {sum(readers)} searches")
        with Index.open(url, library="a", vectors=maker) as index:
            index.verify()
            assert len(index) == len(added)
