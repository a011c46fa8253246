"""Probability measures over traces: mu0 (`BaseMeasure`) and the user's own (`TraceMeasure`).

Random traces are drawn in blocks of 1024, and each variable of each block has its own seed (seed,
block, variable). So a sample of n traces is the beginning of any larger sample, x_0 does not change
when variables are added, and any number of traces can be streamed in constant memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import TraceError, whole
from ..machine import cores, memory
from .reading import PathLike, Traces, as_names, listed, read_traces

if TYPE_CHECKING:
    import torch

BLOCK = 1024  # traces; changing it changes what every seed draws
DEFAULT_TRACES = 1000
AHEAD = min(8, cores())  # blocks drawn at once
_whole = partial(whole, error=TraceError)
_TINY = float(np.finfo(np.float32).tiny)  # keeps a single spacing of 0 from being divided by itself


class Measure(Protocol):
    """What a kernel needs: named variables, a number of points, and traces in blocks."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of axis V."""

    @property
    def points(self) -> int: ...

    def count(self, n: int | None = None) -> int:
        """Number of traces that `blocks(n)` yields; None stands for the measure's default."""

    def blocks(self, n: int | None = None, seed: int = 0) -> Iterator[np.ndarray]:
        """The traces as arrays (at most 1024, V, P); the same traces for the same seed."""


@dataclass(frozen=True)
class BaseMeasure:
    """mu0: each variable is an independent random path with a random total variation.

    x(0) ~ N(mu0, sigma0^2). The total variation T ~ N(mu1, sigma1^2)^2 is split over the P - 1
    steps like the spacings of uniform points on [0, 1]. The first step goes up with probability q0,
    and each later step reverses the direction with probability q. Variables are x_0, x_1, ...
    """

    n_variables: int = 3
    points: int = 100
    mu0: float = 0.0
    sigma0: float = 1.0
    mu1: float = 0.0
    sigma1: float = 1.0
    q: float = 0.1
    q0: float = 0.5

    def __post_init__(self) -> None:
        if min(_whole(self.n_variables, "n_variables"), _whole(self.points, "points")) < 1:
            raise TraceError("a base measure needs at least one variable and one point")
        for name in ("mu0", "sigma0", "mu1", "sigma1", "q", "q0"):
            if not isinstance(getattr(self, name), float | int | np.number):
                raise TraceError(f"{name} must be a number, not {getattr(self, name)!r}")
        if not (0 <= self.q <= 1 and 0 <= self.q0 <= 1):
            raise TraceError(f"q and q0 are probabilities, not {self.q} and {self.q0}")
        if not all(map(math.isfinite, (self.mu0, self.sigma0, self.mu1, self.sigma1))):
            raise TraceError("mu0, sigma0, mu1 and sigma1 must be finite")
        if self.sigma0 < 0 or self.sigma1 < 0:
            raise TraceError("sigma0 and sigma1 are standard deviations: give 0 or more")

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(f"x_{i}" for i in range(self.n_variables))

    def count(self, n: int | None = None) -> int:
        return DEFAULT_TRACES if n is None else _positive(n)

    def sample(self, n: int | None = None, seed: int = 0) -> np.ndarray:
        """n traces, (n, V, P) float32: the first n of any larger sample with the same seed."""
        out = empty_floats((self.count(n), self.n_variables, self.points))
        for i, block in enumerate(self.blocks(n, seed)):
            out[i * BLOCK : (i + 1) * BLOCK] = block
        return out

    def blocks(self, n: int | None = None, seed: int = 0) -> Iterator[np.ndarray]:
        seed, n = _seed(seed), self.count(n)

        def block(i: int) -> np.ndarray:
            out = np.empty((BLOCK, self.n_variables, self.points), np.float32)
            for v in range(self.n_variables):
                self._draw(np.random.default_rng((seed, i, v)), out[:, v])
            return out[: n - i * BLOCK]

        last = -(-n // BLOCK) - 1
        if last == 0:
            yield block(0)
            return
        with ThreadPoolExecutor(AHEAD) as pool:  # numpy lets other threads run while it draws
            drawn = deque(pool.submit(block, i) for i in range(min(AHEAD, last + 1)))
            for i in range(last + 1):
                if i + AHEAD <= last:
                    drawn.append(pool.submit(block, i + AHEAD))
                yield drawn.popleft().result()

    def _draw(self, rng: np.random.Generator, out: np.ndarray) -> None:
        """Fill out (n, P) with paths of one variable."""
        n, steps = out.shape[0], out.shape[1] - 1
        start = rng.standard_normal((n, 1), np.float32) * self.sigma0 + self.mu0
        variation = (rng.standard_normal((n, 1), np.float32) * self.sigma1 + self.mu1) ** 2
        first_up = rng.random((n, 1), np.float32) < self.q0
        # Exponentials over their sum have the law of spacings of sorted uniforms, without the sort.
        spacings = rng.standard_exponential((n, steps), np.float32) + np.float32(_TINY)
        turns = rng.random((n, steps), np.float32) < self.q
        turns[:, :1] = ~first_up
        down = np.logical_xor.accumulate(turns, axis=1)
        spacings /= spacings.sum(axis=1, keepdims=True)
        spacings *= variation
        np.negative(spacings, out=spacings, where=down)
        out[:, :1] = start
        out[:, 1:] = spacings
        np.cumsum(out, axis=1, out=out)

    def sample_torch(
        self, n: int, generator: torch.Generator | None = None, device: Any = "cpu"
    ) -> torch.Tensor:
        """n traces of the same distribution, (n, V, P) float32, drawn on the device by torch."""
        import torch

        shape = (self.count(n), self.n_variables, self.points - 1)
        options: dict[str, Any] = {"generator": generator, "device": device}
        start, deviation = torch.randn((2, *shape[:2], 1), **options)
        uniform = torch.rand(shape, **options)
        # The first step turns from "up" with probability 1 - q0, every other one with q.
        chance = uniform.new_full((shape[2],), self.q)
        chance[:1] = 1 - self.q0
        signs = torch.where(uniform < chance, -1.0, 1.0).cumprod_(dim=2)
        spacings = uniform.exponential_(generator=generator) + _TINY
        variation = (deviation * self.sigma1 + self.mu1) ** 2
        steps = spacings / spacings.sum(dim=2, keepdim=True) * signs * variation
        return torch.cat([start * self.sigma0 + self.mu0, steps], dim=2).cumsum_(dim=2)


class TraceMeasure:
    """The user's own traces as a measure: each is as likely as any other.

    traces: (N, V, P), a list of (V, P_i), or what `read_traces` returns; shorter traces are extended
        to the longest one by holding their last sample.
    variables: the names of axis V (default: x_0, x_1, ...).
    """

    def __init__(
        self,
        traces: np.ndarray | Sequence[np.ndarray] | Traces,
        variables: Sequence[str] | None = None,
    ):
        if isinstance(traces, Traces):
            if variables is not None:
                raise TraceError("these traces have names already; leave out variables")
            variables, traces = traces.variables, traces.values
        if isinstance(traces, list | tuple):
            if not traces:
                raise TraceError("no traces given: the list is empty")
            values, _ = held_to_one_length([_real(x, f"trace {i}") for i, x in enumerate(traces)])
        else:
            values = _real(traces, "traces")
        self.values: np.ndarray = values
        if values.ndim != 3 or 0 in values.shape:
            raise TraceError(
                "traces must be an array (traces, variables, points) without a 0, "
                f"not of shape {values.shape}"
            )
        names = tuple(f"x_{i}" for i in range(values.shape[1]))
        self.variables: tuple[str, ...] = names if variables is None else as_names(variables)
        if len(self.variables) != len(names):
            raise TraceError(
                f"variables must be {len(names)} different names, not {listed(self.variables)}"
            )

    @classmethod
    def read(cls, paths: PathLike | Sequence[PathLike], **options: Any) -> TraceMeasure:
        """Read the traces of files; the options are those of `read_traces`."""
        return cls(read_traces(paths, **options))

    def __repr__(self) -> str:
        n, _, points = self.values.shape
        return f"TraceMeasure({n} of {points} points; {listed(self.variables)})"

    @property
    def points(self) -> int:
        return int(self.values.shape[2])

    def count(self, n: int | None = None) -> int:
        if n is None:
            return len(self.values)
        if _positive(n) > len(self.values):
            raise TraceError(f"{n} traces were asked for, but there are {len(self.values)}")
        return n

    def blocks(self, n: int | None = None, seed: int = 0) -> Iterator[np.ndarray]:
        """All traces in their order; with n, that many in a random order fixed by the seed."""
        chosen = np.arange(self.count())
        if n is not None:
            chosen = np.random.default_rng(_seed(seed)).permutation(chosen)[: self.count(n)]
        for i in range(0, len(chosen), BLOCK):
            yield self.values[chosen[i : i + BLOCK]]


MAX_TRACES = 10**15  # traces are drawn one block at a time, so memory is no limit
HOPELESS = 10  # an array of this many times the physical memory is refused


def require_memory(shape: tuple[int, ...], item: int, things: str) -> None:
    """Refuse an array of `item` bytes per number that is much larger than this machine's memory."""
    size, limit = item * math.prod(map(int, shape)), memory()
    if limit is not None and size > HOPELESS * limit:
        raise TraceError(
            f"an array of shape {shape} takes {size / 2**30:,.0f} GiB, and this machine has "
            f"{limit / 2**30:,.0f} GiB of memory; ask for fewer {things}"
        )


def empty_floats(shape: tuple[int, ...]) -> np.ndarray:
    """An empty float32 array with an axis of traces, unless no memory could hold it."""
    require_memory(shape, 4, "traces")
    return np.empty(shape, np.float32)


def _positive(n: int) -> int:
    if _whole(n, "n_traces") < 1:
        raise TraceError(f"at least one trace is needed, not {n}")
    if n > MAX_TRACES:
        raise TraceError(f"at most {MAX_TRACES:,} traces can be drawn, not {n:.3g}")
    return n


def _seed(seed: int) -> int:
    if _whole(seed, "seed") < 0:
        raise TraceError(f"seed must not be negative, not {seed}")
    return seed


def varying(values: np.ndarray) -> np.ndarray:
    """(V,) bool: which channels of traces (N, V, P) take more than one value."""
    moves: np.ndarray = values.min(axis=(0, 2)) < values.max(axis=(0, 2))
    return moves


def refuse_table(values: Any, what: str) -> None:
    """Refuse a data frame, whose samples are rows where a trace's are columns, and a dict."""
    if hasattr(values, "columns"):
        raise TraceError(
            f"{what}: a data frame has a row per sample; give frame.to_numpy().T for each trace, with "
            "the names in variables=[...], or read files with rv.read_traces"
        )
    if isinstance(values, Mapping):
        raise TraceError(
            f"{what}: a dict of one trace; give one dict for all traces, from name to an array (traces, "
            "points)"
        )


def _real(values: Any, what: str) -> np.ndarray:
    """An array of real numbers; one with masked entries is refused, as their values mean nothing."""
    refuse_table(values, what)
    if np.ma.is_masked(values):
        masked = int(np.ma.getmaskarray(values).sum())
        raise TraceError(
            f"{what}: {masked} values are masked; fill them in, or leave out the traces that lack them"
        )
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise TraceError(f"{what} must be a rectangular array of real numbers")
    return array


def held_to_one_length(arrays: Sequence[Any]) -> tuple[Any, list[int]]:
    """Traces (V, P_i) as one array (N, V, P), each extended by its last sample; and all P_i.

    arrays: all of NumPy, or all of torch.
    """
    for i, array in enumerate(arrays):
        if array.ndim != 2 or 0 in array.shape or len(array) != len(arrays[0]):
            raise TraceError(
                f"trace {i} has shape {tuple(array.shape)}; give each one as (variables, points), "
                "all with the same variables"
            )
    lengths = [int(array.shape[1]) for array in arrays]
    missing = [max(lengths) - length for length in lengths]
    pairs = list(zip(arrays, missing, strict=True))
    if isinstance(arrays[0], np.ndarray):
        return np.stack([np.pad(a, ((0, 0), (0, n)), "edge") for a, n in pairs]), lengths
    import torch

    held = [torch.cat([a, a[:, -1:].expand(-1, n)], dim=1) for a, n in pairs]
    return torch.stack(held), lengths
