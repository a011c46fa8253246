"""Error against speed: encoders beside exact signatures, from the same texts through one reader.

The error is the mean absolute difference over all pairs i != j from the mean of two kernels, whose own
noise is told, too. Speeds are those of the fastest of several calls, after a first one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import RhovecError
from ..formula.reader import parse_programs
from ..kernel import kernel_of_cosine
from ..models.heads import Kind, make_head
from ..models.model import PRECISIONS, Model, load
from .metrics import mean_error

JUDGES = 65_536  # traces of each of the two kernels that judge


def timed(work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Seconds of repeated calls after a first one: median, shortest, longest, and CPU seconds."""
    work()
    times, cpu = [], []
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return {
        "s": statistics.median(times), "s_min": min(times), "s_max": max(times),
        "cpu_s": statistics.median(cpu),
    }  # fmt: skip


class Curve:
    """Rows of error and formulae per second.

    names: shipped models, or folders. device: None for NumPy and int8; "cpu" or "cuda" for torch.
    judges: traces of each of the two kernels. noise: the error of their mean.
    """

    def __init__(
        self,
        names: Sequence[str | None],
        texts: list[str],
        device: str | None = None,
        judges: int = JUDGES,
        repeats: int = 3,
        seed: int = 0,
    ):
        self.names, self.texts, self.device = names, texts, device
        self.repeats, self.seed = repeats, seed
        self.parsed = parse_programs(texts)
        self.teacher = load(names[0], device)
        judged = [self.teacher.kernel(judges, seed + 1 + i).gram(self.parsed) for i in range(2)]
        self.truth = (judged[0] + judged[1]) / 2
        self.noise = mean_error(*judged) / 2  # half of the difference: a mean of two has that much

    def rows(self, traces: Sequence[int]) -> Iterator[dict[str, Any]]:
        """A row for each model, precision and kind of vectors, and for each number of traces."""
        for name in self.names:
            for model, way in self._models(name):
                kinds: list[Kind] = ["cosine", "kernel"]
                for kind in kinds[make_head(model.encoder).kind != "cosine" :]:
                    yield self._encoder(name or "default", model, way, kind)
        for n in traces:
            kernel = self.teacher.kernel(n, self.seed + 3)
            for _ in kernel.traces():  # draws them
                pass
            facts = {"part": "signatures", "name": f"signatures, N = {n:,}", "numbers": n}
            yield facts | self._measured(kernel.signatures, kernel.gram(self.parsed))

    def _models(self, name: str | None) -> Iterator[tuple[Model, str]]:
        if self.device is not None:
            yield load(name, self.device), "torch"
            return
        for precision in PRECISIONS:
            with suppress(RhovecError):  # a model of a shape that int8 does not take
                yield load(name, precision=precision), "NumPy" if precision == "float32" else "int8"

    def _encoder(self, name: str, model: Model, way: str, kind: Kind) -> dict[str, Any]:
        def embed(given: Any) -> np.ndarray:
            return model.embed(given, kind=kind, warn=False)

        vectors = embed(self.parsed).astype(np.float64)
        similarity = vectors @ vectors.T
        if kind == "cosine":
            similarity = kernel_of_cosine(similarity, model.sigma2)
        facts = {
            "part": "encoder", "name": f"{name}, {way}, {kind}", "model": name, "way": way,
            "kind": kind, "numbers": vectors.shape[1],
        }  # fmt: skip
        return facts | self._measured(embed, similarity)

    def _measured(self, work: Callable[[Any], Any], similarity: np.ndarray) -> dict[str, Any]:
        found = timed(lambda: work(self.texts), self.repeats)
        error = mean_error(self.truth, similarity)
        return {"error": error, "per_second": len(self.texts) / found["s_min"], **found}
