"""An endless stream of formulae for training: batches of whole families, never as text.

    for batch in stream(Recipe(seed=1, channels=3), batch=2048):   # 256 families of 8
        K = teacher(batch.programs)

The batches depend only on the arguments, not on `workers`. To continue after a batch, start at
`batch.family[-1] + 1`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from threading import Event, Thread
from typing import TypeVar

import numpy as np

from ..errors import RhovecError
from .families import SPLITS, Batch, Recipe, draw_families, find_families

T = TypeVar("T")


def stream(
    recipe: Recipe | None = None,
    *,
    batch: int = 2048,
    split: str = "train",
    start: int = 0,
    workers: int = 1,
) -> Iterator[Batch]:
    """Endless batches of `batch` formulae, the families of one split from number `start` on.

    `workers` threads draw ahead; compiled code releases the interpreter's lock.
    """
    recipe = Recipe() if recipe is None else recipe
    if batch < 1 or batch % recipe.family_size:
        raise RhovecError(f"batch must be a multiple of the family size {recipe.family_size}")
    if split not in SPLITS:
        raise RhovecError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    if start < 0 or workers < 1:
        raise RhovecError("start must be 0 or more, and workers 1 or more")
    return _batches(recipe, batch // recipe.family_size, split, start, workers)


def _batches(
    recipe: Recipe, families: int, split: str, start: int, workers: int
) -> Iterator[Batch]:
    ahead: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="corpus") as pool:
        while True:
            while len(ahead) <= workers:
                numbers = find_families(recipe, start, families, split)
                start = int(numbers[-1]) + 1
                ahead.append(pool.submit(draw_families, recipe, numbers))
            yield ahead.popleft().result()


def prepared(
    parts: Sequence[tuple[Recipe, int]],
    prepare: Callable[[list[np.ndarray]], T | None],
    start: Sequence[int] | None = None,
    workers: int = 1,
) -> Generator[T, None, None]:
    """An endless stream of what `prepare` makes of batches of training families.

    parts: recipes, each with its number of families per batch.
    prepare: gets the numbers of the families, one array per recipe, and runs in threads. Results come
        in the order of the batches; None is left out.
    start: the first number of each recipe.
    """
    ahead: Queue[Future[T | None]] = Queue(workers + 2)
    stop = Event()

    def find() -> None:
        starts = list(start or [0] * len(parts))
        while not stop.is_set():
            numbers = [
                find_families(recipe, first, families, "train")
                for (recipe, families), first in zip(parts, starts, strict=True)
            ]
            starts = [int(n[-1]) + 1 for n in numbers]
            ahead.put(pool.submit(prepare, numbers))

    with ThreadPoolExecutor(workers) as pool:
        finder = Thread(target=find, daemon=True)
        finder.start()
        try:
            while True:
                result = ahead.get().result()
                if result is not None:
                    yield result
        finally:
            stop.set()
            while finder.is_alive():
                while not ahead.empty():
                    ahead.get()
                finder.join(0.01)
