"""Libraries in PostgreSQL under stress: lost connections, a server that is killed, many clients."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.search import Index, database

from .servers import Postgres, execute, value
from .soak.harness import Hashed
from .soak.servers import kill_server, write_and_read


class Proxy:
    """A way to the server that can break: it looks at what is sent, and drops the connection."""

    def __init__(self, port: int):
        self.target = port
        self.cut: Callable[[bytes], str] = lambda _: ""  # "before" or "after" sending it on
        self.refusing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            upstream = socket.create_connection(("127.0.0.1", self.target))
            lost = threading.Event()
            for one, two, watched in ((client, upstream, True), (upstream, client, False)):
                args = (one, two, watched, lost)
                threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(self, one: socket.socket, two: socket.socket, watched: bool, lost: Any) -> None:
        try:
            while data := one.recv(1 << 16):
                when = self.cut(data) if watched else ""
                if when:
                    lost.set()
                if when == "before":
                    break
                if lost.is_set() and not watched:
                    break
                two.sendall(data)
                if when == "after":
                    break
        except OSError:
            pass
        for each in (one, two):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        one.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def proxy(pg: Postgres) -> Iterator[Proxy]:
    made = Proxy(pg.port)
    yield made
    made.close()


def once(words: list[bytes], when: str) -> Callable[[bytes], str]:
    """Cut when the last of these words passes, in their order."""
    left = list(words)

    def cut(data: bytes) -> str:
        if left and left[0] in data:
            left.pop(0)
            return "" if left else when
        return ""

    return cut


CONFIRMED = [b"INSERT INTO rhovec.changes", b"COMMIT"]


def test_a_database_that_cannot_be_used_is_left_at_once(
    url: str, pg: Postgres, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url.replace(str(pg.port), str(proxy.port))
    with Index.build(["x > 1"], place, library="a", vectors=Hashed()) as index:
        proxy.cut = once([b"SELECT"], "before")
        monkeypatch.setattr(database, "PGVECTOR", (99, 0))
        began = time.monotonic()
        with pytest.raises(RhovecError, match="is needed; update the extension"):
            index.search("x > 1")
        assert time.monotonic() - began < database.WAIT / 2
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rhovec'"
    while value(url, query):  # the server notices a moment later
        assert time.monotonic() - began < 20
    monkeypatch.undo()
    proxy.cut = once([b"pg_extension"], "before")
    with pytest.raises(RhovecError, match="cannot connect to the server: "):
        Index.open(place, library="a", vectors=Hashed())


def test_a_lost_confirmation_is_looked_up(
    url: str, pg: Postgres, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url.replace(str(pg.port), str(proxy.port))
    with Index.build(["x > 1"], place, library="a", vectors=Hashed()) as index:
        proxy.cut = once(CONFIRMED, "after")
        assert index.add(["x > 2", "x > 3"]) == [2, 3]
        proxy.cut = once(CONFIRMED, "after")
        index.delete(2)
        assert len(index) == 2
        proxy.cut = once(CONFIRMED, "before")
        with pytest.raises(RhovecError, match="was lost; nothing was changed; try again"):
            index.add("x > 4")
        assert len(index) == 2
        proxy.cut = once([b"nextval"], "before")
        with pytest.raises(RhovecError, match="nothing was changed"):
            index.add("x > 4")
        assert len(index) == 2
        proxy.cut = once([b"SELECT count"], "before")
        assert len(index.search("x > 1")) == 2  # reading is repeated
        # The server stays away: nobody knows. A repeated call finds out, and does nothing twice.
        monkeypatch.setattr(database, "WAIT", 0.3)

        def cut() -> Callable[[bytes], str]:
            inner = once(CONFIRMED, "after")

            def outer(data: bytes) -> str:
                proxy.refusing = proxy.refusing or bool(when := inner(data))
                return when

            return outer

        for change, answer, expected in (
            (lambda: index.add(["x > 5", "x > 6"]), [5, 6], 4), (lambda: index.delete(1), None, 3)
        ):  # fmt: skip
            proxy.cut = cut()
            with pytest.raises(RhovecError, match="repeat the call on this index"):
                change()
            proxy.cut, proxy.refusing = (lambda _: ""), False
            assert change() == answer
            assert len(index) == expected
        assert index.add(["x > 5", "x > 6"])[0] > 6  # but a new call adds anew
        assert len(index) == 5
        index.verify()
    proxy.cut = once(CONFIRMED, "after")
    with Index.build(["x > 1"], place, library="b", vectors=Hashed()) as index:
        assert len(index) == 1
    proxy.cut = once(CONFIRMED, "before")
    with pytest.raises(RhovecError, match="nothing was changed"):
        Index.build(["x > 1"], place, library="c", vectors=Hashed())
    assert database.libraries(url) == {"a": 5, "b": 1}


@pytest.mark.parametrize("seed", range(2))
def test_kill_the_server(url: str, pg: Postgres, seed: int) -> None:
    assert kill_server(pg, url, 1, seed)["kills"] == 1


def test_two_writers_and_eight_readers(url: str) -> None:
    assert write_and_read(url, 3)["searches"] > 0


def test_a_connection_that_was_lost_while_idle_is_no_error(url: str, tmp_path: Path) -> None:
    """As by a firewall, or a server that was restarted overnight."""
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rhovec'"
    kernel = rv.StlKernel(n_traces=50)
    texts = ["x_0 > 1", "not x_0 <= 1"]
    with Index.build(texts, url, library="a", vectors=kernel) as index:
        uses: list[Callable[[], object]] = [
            lambda: len(index), lambda: index.search("x_0 > 1"), lambda: index.add("x_1 > 1"),
            lambda: index.delete(3), index.verify, index.flush, lambda: index.save(tmp_path / "copy"),
        ]  # fmt: skip
        for use in uses:
            execute(url, end)
            use()
        execute(url, end)
        assert [[hit.id for hit in group] for group in index.duplicates()] == [[1, 2]]


def test_an_index_is_for_one_thread(url: str) -> None:
    with Index.build(["x_0 > 1"], url, library="a", vectors=Hashed()) as index:
        backend: Any = index._backend
        with (
            backend._database.reading(),
            ThreadPoolExecutor(1) as pool,
            pytest.raises(RhovecError, match="another thread is using this index; open one"),
        ):
            pool.submit(index.search, "x_0 > 1").result()
        assert len(index.search("x_0 > 1")) == 1
