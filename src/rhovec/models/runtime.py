"""The encoder in NumPy: what models/encoder.py computes, without torch.

Formulae are laid end to end, so that no work goes to padding, and neighbours of one length attend to
themselves in one product. When the weights are read, the scale and shift of every norm go into the
matrix behind it, and the mean is taken out of all that is added to the tokens: the norms take it out
anyway, and what is left of them is a division by a length. Each core works off chunks of tokens that
stay in its cache, with one-threaded products, which beat threads inside of the products by far.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from ..errors import FormulaError, MissingDependencyError
from ..formula.programs import Programs
from ..tokens.tree import TreeTokens, tree_tokens
from .config import FAR, MISSING, SCALES, SHARPNESS, EncoderConfig, slow_waves

EPSILON = 1e-5  # of the norms, as torch has it
SMALLEST, CHUNK = 64, 512  # tokens worked on at once by a thread
FREQUENCIES = np.float32(2.0) ** np.arange(SCALES, dtype=np.float32) * np.float32(math.pi / FAR)


class Layer(NamedTuple):
    """Matrices as products want them; the last row of those behind a norm is a shift."""

    qkv: np.ndarray  # (width + 1, 3 * width)
    relation: np.ndarray  # (heads, RELATIONS): what is added to scores
    out: np.ndarray  # (width, width)
    up: np.ndarray  # (width + 1, 4 * width)
    down: np.ndarray  # (4 * width, width)


class Group(NamedTuple):
    """Formulae of one length n in a chunk: tokens first ... last - 1, formulae begin ... end - 1."""

    first: int
    last: int
    begin: int
    end: int
    relation: np.ndarray  # (end - begin, n, n) intp: of the token in axis 1 to that in axis 2


class Runtime:
    """Programs of B formulae -> unit rows (B, dimension) float32."""

    def __init__(self, config: EncoderConfig, tensors: Mapping[str, np.ndarray]):
        if config.tokens != "tree":
            raise MissingDependencyError(
                'a model of text tokens runs with torch alone: pip install "rhovec[torch]" and load '
                'it with device="cpu" or "cuda"'
            )
        self.config = config
        self.depth = config.width // config.heads  # of a head
        weight = _centred(tensors["inputs.weight"], axis=1)
        *self.tables, self.features = np.split(weight, np.cumsum(config.tables()))
        relations = np.split(tensors["inputs.relation"], config.layers)
        self.layers = []
        for i, relation in enumerate(relations):
            t = {k: tensors[f"blocks.{i}.{k}"] for k in ("qkv", "out", "up", "down")}
            qkv = t["qkv"].copy()
            qkv[0] *= self.depth**-0.5
            self.layers.append(
                Layer(
                    _behind_norm(tensors, f"blocks.{i}.norm", qkv.reshape(-1, config.width)),
                    relation,
                    _centred(t["out"].T, axis=1),
                    _behind_norm(tensors, f"blocks.{i}.ff_norm", t["up"]),
                    _centred(t["down"].T, axis=1),
                )
            )
        self._head: Callable[[np.ndarray], np.ndarray] = (
            Landmarks if config.head == "landmarks" else Projector
        )(tensors)

    def __call__(self, programs: Programs) -> np.ndarray:
        """Quickest when formulae of one length stand together."""
        sizes = np.diff(programs.offsets) + 1
        tokens = tree_tokens(programs)
        ids = tokens.ids(self.config.points)
        self._check(ids)
        out = np.empty((len(sizes), self.config.dimension), np.float32)

        def work(cut: tuple[int, int]) -> None:
            part = slice(*cut)
            out[part] = self._chunk(tokens, ids, part, sizes[part])

        cores, total = _cores(), int(sizes.sum())
        chunks = cores * -(-total // (cores * CHUNK))  # as many for each core
        cuts = list(ranges(sizes, max(SMALLEST, -(-total // chunks))))
        with _single_threaded_products() as alone:
            if alone and len(cuts) > 1:
                with ThreadPoolExecutor(cores) as pool:
                    list(pool.map(work, cuts))
            else:
                for cut in cuts:
                    work(cut)
        return out

    def _check(self, ids: np.ndarray) -> None:
        known = int(ids[..., 1].max())
        if known > self.config.channels:
            raise FormulaError(
                f"a formula uses x_{known - 1}; the model knows x_0 ... "
                f"x_{self.config.channels - 1}"
            )

    def _chunk(
        self, tokens: TreeTokens, ids: np.ndarray, part: slice, sizes: np.ndarray
    ) -> np.ndarray:
        """Vectors (B, dimension) of the formulae `part`; sizes (B,): their tokens."""
        cls = tokens.cls[part].astype(np.intp)
        starts = np.cumsum(sizes) - sizes
        flat = np.arange(sizes.sum()) + np.repeat(cls - starts, sizes)
        x = self._inputs(ids.reshape(-1, 4)[flat], tokens.threshold.reshape(-1)[flat])
        groups = list(_groups(tokens, cls, sizes, starts))
        room = Room(len(x), self.config.width)
        *layers, last = self.layers
        for layer in layers:
            self._block(layer, x, groups, room)
        if self.config.pooling == "mean":
            self._block(last, x, groups, room)
            x = np.add.reduceat(x, starts) / sizes[:, None].astype(np.float32)
        else:
            pick = starts if self.config.pooling == "cls" else starts + sizes - 1
            x = self._block(last, x, groups, room, pick)
        return self._head(x)

    def _inputs(self, ids: np.ndarray, threshold: np.ndarray) -> np.ndarray:
        """ids (T, 4), threshold (T,) -> (T, width)."""
        x: np.ndarray = self.tables[0][ids[:, 0]]
        for table, column in zip(self.tables[1:], ids.T[1:], strict=True):
            x += table[column]
        atoms = np.flatnonzero(ids[:, 1])
        x[atoms] += threshold_features(threshold[atoms].astype(np.float32)) @ self.features
        return x

    def _block(
        self,
        layer: Layer,
        x: np.ndarray,
        groups: list[Group],
        room: Room,
        pick: np.ndarray | None = None,
    ) -> np.ndarray:
        """Tokens (T, width), overwritten; or with pick (B,) the rows (B, width) of those alone."""
        width = x.shape[1]
        normed = _normalise(x, room.normed)
        if pick is None:
            both = np.matmul(normed, layer.qkv, out=room.qkv)
            q, kv = both[:, :width], both[:, width:]
        else:
            q = normed[pick] @ layer.qkv[:, :width]
            kv = np.matmul(normed, layer.qkv[:, width:], out=room.hidden[:, : 2 * width])
            x, room = x[pick], room.first(len(pick))
        for first, last, begin, end, relation in groups:
            here, shape = slice(first, last), (end - begin, -1, self.config.heads, self.depth)
            if pick is not None:
                here = slice(begin, end)
                relation = relation[:, :, pick[begin] - first, None]
            k, v = kv[first:last].reshape(*shape[:2], 2, *shape[2:]).transpose(2, 3, 0, 1, 4)
            _attend(
                q[here].reshape(shape).transpose(2, 0, 1, 3),
                k,
                v,
                layer.relation.take(relation, axis=1),
                room.mixed[here].reshape(shape).transpose(2, 0, 1, 3),
            )
        x += np.matmul(room.mixed, layer.out, out=room.change)
        hidden = np.matmul(_normalise(x, room.normed), layer.up, out=room.hidden)
        np.maximum(hidden, 0, out=hidden)
        np.square(hidden, out=hidden)
        x += np.matmul(hidden, layer.down, out=room.change)
        return x


class Projector:
    """(B, width) of mean zero -> unit rows (B, dimension)."""

    def __init__(self, tensors: Mapping[str, np.ndarray]):
        self.inner, self.outer = (
            _behind_norm(tensors, f"head.{norm}", tensors[f"head.{name}.weight"])
            for norm, name in (("norm", "inner"), ("inner_norm", "outer"))
        )
        self.inner[-1] += tensors["head.inner.bias"]
        self.outer[-1] += tensors["head.outer.bias"]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        inner = _normalised(x) @ self.inner
        cube = inner * (1 + np.float32(0.044715) * inner * inner)
        inner *= 0.5 * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * cube))
        inner -= inner.mean(axis=1, keepdims=True)
        return _unit(_normalised(inner) @ self.outer)


class Landmarks:
    """Likewise, as models/encoder.py explains."""

    def __init__(self, tensors: Mapping[str, np.ndarray]):
        self.direction = _behind_norm(tensors, "head.norm", tensors["head.direction"])
        self.landmarks, self.outer, self.waves = (
            np.ascontiguousarray(tensors[f"head.{name}"].T)
            for name in ("landmarks", "outer", "waves")
        )

    def __call__(self, x: np.ndarray) -> np.ndarray:
        directions = _unit(_normalised(x) @ self.direction)
        near = directions @ self.landmarks
        near -= 1
        near *= np.float32(SHARPNESS)
        smooth = np.exp(near, out=near) @ self.outer
        missing = np.maximum(1 - np.einsum("bd,bd->b", smooth, smooth), 0) + np.float32(MISSING)
        angles = directions @ self.waves
        slow = slow_waves(angles.shape[1])
        quick = angles.shape[1] - slow
        share = np.minimum(missing * missing, 1)  # of what is missing, that slow waves get
        strength = np.empty_like(angles)
        strength[:, :slow] = np.sqrt(missing * share / slow)[:, None]
        strength[:, slow:] = np.sqrt(missing * (1 - share) / quick)[:, None]
        waves = [np.sin(angles) * strength, np.cos(angles) * strength]
        return _unit(np.concatenate([smooth, *waves], axis=1))


class Room:
    """Arrays that the layers of a chunk of T tokens share."""

    def __init__(self, tokens: int, width: int):
        self.normed = np.empty((tokens, width + 1), np.float32)
        self.mixed = np.empty((tokens, width), np.float32)
        self.change = np.empty((tokens, width), np.float32)
        self.qkv = np.empty((tokens, 3 * width), np.float32)
        self.hidden = np.empty((tokens, 4 * width), np.float32)

    def first(self, tokens: int) -> Room:
        """Room for so many tokens in the same memory."""
        out = object.__new__(Room)
        out.__dict__ = {name: array[:tokens] for name, array in self.__dict__.items()}
        return out


def threshold_features(threshold: np.ndarray) -> np.ndarray:
    """Numbers (A,) float32 as (A, FEATURES)."""
    near = threshold.clip(-FAR, FAR)[:, None]
    angles = near * FREQUENCIES
    size = np.sign(threshold) * np.log1p(np.abs(threshold))
    rest = np.stack([np.tanh(threshold), size, near[:, 0] / FAR], axis=1)
    return np.concatenate([np.sin(angles), np.cos(angles), rest], axis=1, dtype=np.float32)


def _unit(rows: np.ndarray) -> np.ndarray:
    rows /= np.sqrt(np.einsum("bd,bd->b", rows, rows))[:, None]
    return rows


def _normalised(x: np.ndarray) -> np.ndarray:
    return _normalise(x, np.empty((len(x), x.shape[1] + 1), np.float32))


def _normalise(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Rows x (T, width) of mean zero over their deviation; out is (T, width + 1), its end 1."""
    width = x.shape[1]
    scale = 1 / np.sqrt(np.einsum("tw,tw->t", x, x) / width + np.float32(EPSILON))
    np.multiply(x, scale[:, None], out=out[:, :width])
    out[:, width] = 1
    return out


def _attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scores: np.ndarray, out: np.ndarray
) -> None:
    """q (heads, B, m, d) scaled, k and v (heads, B, n, d), scores (heads, B, n, m) -> out as q.

    scores come as what is added to them. Keys stand before queries: maxima over the last axis are slow.
    """
    scores += k @ q.swapaxes(-1, -2)
    scores -= scores.max(axis=-2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.ones((1, scores.shape[-2]), np.float32) @ scores
    np.matmul(scores.swapaxes(-1, -2), v, out=out)


def _behind_norm(tensors: Mapping[str, np.ndarray], norm: str, matrix: np.ndarray) -> np.ndarray:
    """A matrix (outputs, inputs) with the norm's scale and shift in it, as (inputs + 1, outputs)."""
    scale, shift = tensors[f"{norm}.weight"], tensors[f"{norm}.bias"]
    return np.ascontiguousarray(np.concatenate([(matrix * scale).T, (matrix @ shift)[None]]))


def _centred(matrix: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(matrix - matrix.mean(axis=axis, keepdims=True))


def ranges(sizes: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges (begin, end) of formulae whose sizes add up to so much at most, or of a single one."""
    begin = total = 0
    for i, size in enumerate(sizes.tolist()):
        if total + size > most and i > begin:
            yield begin, i
            begin, total = i, 0
        total += size
    yield begin, len(sizes)


def _groups(
    tokens: TreeTokens, cls: np.ndarray, sizes: np.ndarray, starts: np.ndarray
) -> Iterator[Group]:
    width = tokens.relation.shape[-1]
    edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
    for begin, end in pairwise(edges):
        n = int(sizes[begin])
        row, place = (a[:, None, None] for a in np.divmod(cls[begin:end], width))
        span = np.arange(n)
        relation = tokens.relation[row, place + span, place + span[:, None]].astype(np.intp)
        first = int(starts[begin])
        yield Group(first, first + n * (end - begin), begin, end, relation)


@contextmanager
def _single_threaded_products() -> Iterator[bool]:
    """Products use one thread each meanwhile; what was set before comes back with the last leaver.

    False if that cannot be had, since NumPy has another BLAS than OpenBLAS.
    """
    found = _openblas()
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
_BEFORE: list[int] = []  # the number of threads to restore, then a mark for everyone inside


@cache
def _openblas() -> tuple[Any, Any] | None:
    """Reads and sets how many threads the OpenBLAS in NumPy's wheel uses; None with another BLAS."""
    numpy = Path(np.__file__).parent
    for path in (*numpy.parent.glob("numpy.libs/*openblas*"), *numpy.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        for before, after in (("scipy_", "64_"), ("", "64_"), ("", "")):
            names = [f"{before}openblas_{verb}_num_threads{after}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                return getattr(library, names[0]), getattr(library, names[1])
    return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
