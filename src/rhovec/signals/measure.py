"""Probability measures over signals: mu0 (`BaseMeasure`) and the user's own (`Trajectories`).

Signals come in blocks of 1024, each variable of each block from its own seed (seed, block,
variable). So n signals are the first n of any larger number, x_0 does not change when variables are
added, and any number of signals can be streamed in constant memory.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import SignalError
from .traces import PathLike, read_traces

if TYPE_CHECKING:
    import torch

BLOCK = 1024  # signals; changing it changes what every seed draws
DEFAULT_SIGNALS = 1000
AHEAD = min(8, os.cpu_count() or 1)  # blocks drawn at once
_TINY = float(np.finfo(np.float32).tiny)  # keeps a lone spacing of 0 from being divided by itself


class Measure(Protocol):
    """What a kernel needs to know about signals."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of axis V."""

    @property
    def points(self) -> int: ...

    def count(self, n: int | None = None) -> int:
        """How many signals `blocks(n)` gives; None asks for the measure's usual number."""

    def blocks(self, n: int | None = None, seed: int = 0) -> Iterator[np.ndarray]:
        """The signals in arrays (at most 1024, V, P); the same ones for the same seed."""


@dataclass(frozen=True)
class BaseMeasure:
    """mu0: every variable is an independent random path with a random total variation.

    x(0) ~ N(mu0, sigma0^2). The total variation T ~ N(mu1, sigma1^2)^2 is split over the P - 1
    steps like the spacings of uniform points on [0, 1]. The first step goes up with probability q0,
    and each later one turns round with probability q. Variables are x_0, x_1, ...
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
        if self.n_variables < 1 or self.points < 1:
            raise SignalError("a base measure needs at least one variable and one point")
        if not (0 <= self.q <= 1 and 0 <= self.q0 <= 1):
            raise SignalError(f"q and q0 are probabilities, not {self.q} and {self.q0}")
        if not all(map(math.isfinite, (self.mu0, self.sigma0, self.mu1, self.sigma1))):
            raise SignalError("mu0, sigma0, mu1 and sigma1 must be finite")
        if self.sigma0 < 0 or self.sigma1 < 0:
            raise SignalError("sigma0 and sigma1 are standard deviations: give 0 or more")

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(f"x_{i}" for i in range(self.n_variables))

    def count(self, n: int | None = None) -> int:
        return DEFAULT_SIGNALS if n is None else _positive(n)

    def sample(self, n: int | None = None, seed: int = 0) -> np.ndarray:
        """n signals, (n, V, P) float32: the first n of any larger sample with the same seed."""
        out = np.empty((self.count(n), self.n_variables, self.points), np.float32)
        for i, block in enumerate(self.blocks(n, seed)):
            out[i * BLOCK : (i + 1) * BLOCK] = block
        return out

    def blocks(self, n: int | None = None, seed: int = 0) -> Iterator[np.ndarray]:
        if seed < 0:
            raise SignalError(f"seed must not be negative, not {seed}")
        n = self.count(n)

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
        """n signals of the same law, (n, V, P) float32, drawn on the device by torch."""
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


class Trajectories:
    """The user's own trajectories as a measure: each is as likely as any other.

    signals: (N, V, P), or a list of (V, P_i), which are held at their last sample to one length.
    variables: the names of axis V; x_0, x_1, ... by default.
    """

    def __init__(
        self, signals: np.ndarray | Sequence[np.ndarray], variables: Sequence[str] | None = None
    ):
        values = _held_to_one_length(signals) if isinstance(signals, list | tuple) else signals
        self.values: np.ndarray = np.asarray(values)
        if self.values.ndim != 3 or 0 in self.values.shape:
            raise SignalError(
                "trajectories must be an array (trajectories, variables, points) without a 0, "
                f"not of shape {self.values.shape}"
            )
        names = variables or [f"x_{i}" for i in range(self.values.shape[1])]
        self.variables: tuple[str, ...] = tuple(names)
        if len(set(names)) < len(names) or len(names) != self.values.shape[1]:
            raise SignalError(
                f"variables must be {self.values.shape[1]} different names, not {', '.join(names)}"
            )

    @classmethod
    def read(cls, paths: PathLike | Sequence[PathLike], **options: Any) -> Trajectories:
        """From files; the options are those of `read_traces`."""
        traces = read_traces(paths, **options)
        return cls(traces.values, traces.variables)

    def __repr__(self) -> str:
        n, _, points = self.values.shape
        return f"Trajectories({n} of {points} points; {', '.join(self.variables)})"

    @property
    def points(self) -> int:
        return int(self.values.shape[2])

    def count(self, n: int | None = None) -> int:
        if n is not None and _positive(n) > len(self.values):
            raise SignalError(f"{n} trajectories were asked for, but there are {len(self.values)}")
        return len(self.values) if n is None else n

    def blocks(self, n: int | None = None, seed: int = 0) -> Iterator[np.ndarray]:
        """All of them in their order; with n, that many in a random order that the seed fixes."""
        chosen = np.arange(self.count())
        if n is not None:
            chosen = np.random.default_rng(seed).permutation(chosen)[: self.count(n)]
        for i in range(0, len(chosen), BLOCK):
            yield self.values[chosen[i : i + BLOCK]]


def _positive(n: int) -> int:
    if n < 1:
        raise SignalError(f"at least one signal is needed, not {n}")
    return n


def _held_to_one_length(traces: Sequence[Any]) -> np.ndarray:
    arrays = [np.asarray(trace) for trace in traces]
    for i, array in enumerate(arrays):
        if array.ndim != 2 or 0 in array.shape or len(array) != len(arrays[0]):
            raise SignalError(
                f"trajectory {i} has shape {array.shape}; give each one as (variables, points), "
                "all with the same variables"
            )
    longest = max((a.shape[1] for a in arrays), default=0)
    held = [np.pad(a, ((0, 0), (0, longest - a.shape[1])), "edge") for a in arrays]
    return np.array(held)
