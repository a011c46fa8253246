"""Many tasks, on the cores of this machine or on a Dask cluster.

`completed(function, tasks, client)` yields results as they arrive. The function and its arguments are
sent to other machines, so the function lives in a module. Only a bounded number of tasks is under way,
so that millions need no more memory than a few.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from .errors import RhovecError, needed
from .machine import cores, limited

T = TypeVar("T")
AHEAD = 4  # tasks under way per worker
LOOK = 10.0  # seconds between looks at how many workers there are
TIMEOUT = "10s"  # to reach a scheduler
RETRIES = 5  # of a task whose worker was lost


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of the Dask scheduler at an address such as tcp://10.0.0.5:8786; None without one."""
    if address is None:
        yield None
        return
    distributed = needed("distributed", "a Dask cluster", "cluster")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are raised, without traces
    try:
        client = distributed.Client(address, timeout=TIMEOUT)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise RhovecError(f"cannot connect to the scheduler at {address}: {reason}") from None
    with client:
        yield client


def completed(
    function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], client: Any = None
) -> Iterator[tuple[int, T]]:
    """Call function(*task) for all tasks: (number of the task, result), as they are done.

    client: a `distributed.Client`; without one, threads of this machine, one per core.
    """
    numbered = enumerate(tasks)
    return _here(function, numbered) if client is None else _there(function, numbered, client)


def _one_thread(function: Callable[..., T], *task: Any) -> T:
    """A task has one thread; there are as many tasks at once as cores."""
    with limited(1):
        return function(*task)


def _here(
    function: Callable[..., T], tasks: Iterator[tuple[int, tuple[Any, ...]]]
) -> Iterator[tuple[int, T]]:
    workers = cores()
    with ThreadPoolExecutor(workers) as pool:
        waiting: dict[Future[T], int] = {}
        try:
            while True:
                for number, task in islice(tasks, AHEAD * workers - len(waiting)):
                    waiting[pool.submit(_one_thread, function, *task)] = number
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield waiting.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _there(
    function: Callable[..., T], tasks: Iterator[tuple[int, tuple[Any, ...]]], client: Any
) -> Iterator[tuple[int, T]]:
    distributed = needed("distributed", "a Dask cluster", "cluster")
    if not (hasattr(client, "submit") and hasattr(client, "nthreads")):
        raise RhovecError(f"client must be a distributed.Client, not {client!r:.80}")
    waiting: dict[Any, int] = {}
    asked = -LOOK
    try:
        arrived = distributed.as_completed()
        while True:
            if time.monotonic() - asked > LOOK:  # workers come and go
                most = AHEAD * max(1, sum(client.nthreads().values()))
                asked = time.monotonic()
            for number, task in islice(tasks, max(0, most - len(waiting))):
                future = client.submit(_one_thread, function, *task, pure=False, retries=RETRIES)
                waiting[future] = number
                arrived.add(future)
            if not waiting:
                return
            future = next(arrived)
            number = waiting.pop(future)
            result = future.result()
            future.release()
            yield number, result
    except (
        distributed.CancelledError, distributed.KilledWorker, OSError, TimeoutError, StopIteration
    ) as error:  # fmt: skip
        if isinstance(error, distributed.KilledWorker):
            reason = "several workers were lost with the same task, perhaps for lack of memory"
        else:
            reason = "the connection to the scheduler was lost"
        raise RhovecError(f"{reason}; run it again: what is done is not done again") from None
    finally:
        for future in waiting:
            future.release()
