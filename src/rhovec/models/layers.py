"""Transformer layers in NumPy, shared by the encoder (runtime.py) and the decoder (generate.py).

When weights are read, the scale and shift of each layer norm are folded into the matrix behind it, and
the mean is removed from everything that is added to the tokens. Norms would remove that mean anyway, so
all that is left of a norm is a division by the length of its input.

Work is split over threads, each with single-threaded matrix products on chunks that stay in the cache
of its core. That is much faster than threads inside the products.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..machine import cores

EPSILON = 1e-5  # added to a variance by layer norms; torch's default
Part = TypeVar("Part")


class Layer(NamedTuple):
    """Matrices of a block, transposed; those behind a norm have its shift as their last row."""

    qkv: np.ndarray  # (width + 1, 3 * width), queries scaled
    out: np.ndarray  # (width, width)
    up: np.ndarray  # (width + 1, 4 * width)
    down: np.ndarray  # (4 * width, width)


def read_layers(tensors: Mapping[str, np.ndarray], layers: int, heads: int) -> list[Layer]:
    """Blocks of an encoder or a decoder, from the tensors `blocks.0.norm.weight` etc."""
    out = []
    for name in (f"blocks.{i}" for i in range(layers)):
        qkv = tensors[f"{name}.qkv"].copy()  # (3, width, width)
        width = qkv.shape[-1]
        qkv[0] *= (width // heads) ** -0.5
        out.append(
            Layer(
                behind_norm(tensors, f"{name}.norm", qkv.reshape(-1, width)),
                centred(tensors[f"{name}.out"].T, axis=1),
                behind_norm(tensors, f"{name}.ff_norm", tensors[f"{name}.up"]),
                centred(tensors[f"{name}.down"].T, axis=1),
            )
        )
    return out


class Room:
    """Work arrays for T tokens, reused by all layers."""

    def __init__(self, tokens: int, width: int):
        self.normed = np.empty((tokens, width + 1), np.float32)
        self.mixed = np.empty((tokens, width), np.float32)
        self.change = np.empty((tokens, width), np.float32)
        self.qkv = np.empty((tokens, 3 * width), np.float32)
        self.hidden = np.empty((tokens, 4 * width), np.float32)

    def first(self, tokens: int) -> Room:
        """Room for fewer tokens, in the same memory."""
        out = object.__new__(Room)
        out.__dict__ = {name: array[:tokens] for name, array in self.__dict__.items()}
        return out


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scores: np.ndarray, out: np.ndarray
) -> None:
    """Attention of q (heads, B, m, d), scaled, to k and v (heads, B, n, d); out has the shape of q.

    scores (heads, B, n, m) holds what is added to the scores, and is overwritten. Keys come before
    queries in it because a maximum over the last axis is slow.
    """
    scores += k @ q.swapaxes(-1, -2)
    scores -= scores.max(axis=-2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.ones((1, scores.shape[-2]), np.float32) @ scores
    np.matmul(scores.swapaxes(-1, -2), v, out=out)


def finish_block(layer: Layer, x: np.ndarray, room: Room) -> None:
    """Add attention's output, which is in room.mixed, then the feed-forward part, to x (T, width)."""
    x += np.matmul(room.mixed, layer.out, out=room.change)
    hidden = np.matmul(normalise(x, room.normed), layer.up, out=room.hidden)
    np.maximum(hidden, 0, out=hidden)
    np.square(hidden, out=hidden)
    x += np.matmul(hidden, layer.down, out=room.change)


def normalise(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Rows x (T, width) of mean zero, divided by their deviation, and a 1 each: (T, width + 1)."""
    width = x.shape[1]
    if out is None:
        out = np.empty((len(x), width + 1), np.float32)
    scale = 1 / np.sqrt(np.einsum("tw,tw->t", x, x) / width + np.float32(EPSILON))
    np.multiply(x, scale[:, None], out=out[:, :width])
    out[:, width] = 1
    return out


def behind_norm(tensors: Mapping[str, np.ndarray], norm: str, matrix: np.ndarray) -> np.ndarray:
    """A matrix (outputs, inputs) with the norm's scale and shift folded in: (inputs + 1, outputs)."""
    scale, shift = tensors[f"{norm}.weight"], tensors[f"{norm}.bias"]
    return np.ascontiguousarray(np.concatenate([(matrix * scale).T, (matrix @ shift)[None]]))


def centred(matrix: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(matrix - matrix.mean(axis=axis, keepdims=True))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows (B, D), scaled in place to length one."""
    rows /= np.sqrt(np.einsum("bd,bd->b", rows, rows))[:, None]
    return rows


def gelu(x: np.ndarray) -> np.ndarray:
    """GELU in its tanh approximation, as torch has it."""
    cube = x * (1 + np.float32(0.044715) * x * x)
    out: np.ndarray = x * (0.5 * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * cube)))
    return out


def ranges(sizes: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges (begin, end) with sizes of at most `most` in total, or of a single item."""
    begin = total = 0
    for i, size in enumerate(sizes.tolist()):
        if total + size > most and i > begin:
            yield begin, i
            begin, total = i, 0
        total += size
    yield begin, len(sizes)


# -- threads ---------------------------------------------------------------------------------------


def in_threads(work: Callable[[Part], None], parts: Sequence[Part]) -> None:
    """Call work(part) for every part, in a thread per core where products can be single-threaded."""
    with single_threaded_products() as possible:
        if possible and len(parts) > 1:
            with ThreadPoolExecutor(cores()) as pool:
                list(pool.map(work, parts))
        else:
            for part in parts:
                work(part)


@contextmanager
def single_threaded_products() -> Iterator[bool]:
    """Let each matrix product use one thread; the last to leave restores the number from before.

    Yields False if NumPy's BLAS is not OpenBLAS, which is then left as it is.
    """
    found = openblas()
    if found is None:
        yield False
        return
    read, write = found
    with _LOCK:
        if not _BEFORE:
            _BEFORE.append(read())
            write(1)
        _BEFORE.append(0)
    try:
        yield True
    finally:
        with _LOCK:
            _BEFORE.pop()
            if len(_BEFORE) == 1:
                write(_BEFORE.pop())


_LOCK = Lock()
_BEFORE: list[int] = []  # the number of threads to restore, then a mark per caller inside


@cache
def openblas() -> tuple[Any, Any] | None:
    """Functions that read and set the number of threads of NumPy's OpenBLAS; None with another BLAS."""
    numpy = Path(np.__file__).parent
    for path in (*numpy.parent.glob("numpy.libs/*openblas*"), *numpy.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        for before, after in (("scipy_", "64_"), ("", "64_"), ("", "")):
            names = [f"{before}openblas_{verb}_num_threads{after}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                return getattr(library, names[0]), getattr(library, names[1])
    return None
