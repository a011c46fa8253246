"""The encoder in NumPy: what models/encoder.py computes, without torch.

Formulae are laid end to end, so that no work goes to padding, and neighbours of the same length attend
in one product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..errors import MissingDependencyError
from ..formula.programs import Programs
from ..machine import cores
from ..tokens.tree import TreeTokens, tree_tokens
from .config import FAR, SCALES, EncoderConfig
from .heads import Kind, make_head
from .layers import (
    Layer,
    Room,
    attend,
    centred,
    finish_block,
    in_threads,
    normalise,
    ranges,
    read_layers,
)

MIN_CHUNK, CHUNK = 64, 512  # tokens that a thread works on at once
FREQUENCIES = np.float32(2.0) ** np.arange(SCALES, dtype=np.float32) * np.float32(math.pi / FAR)


class Group(NamedTuple):
    """Formulae of one length n in a chunk: tokens first ... last - 1, formulae begin ... end - 1."""

    first: int
    last: int
    begin: int
    end: int
    relation: np.ndarray  # (end - begin, n, n) intp: of the token in axis 1 to that in axis 2


def own_tensors(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The tensors of a part, by their names in it."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


class Runtime:
    """The encoder as a function: programs of B formulae -> unit vectors (B, D) float32."""

    def __init__(self, config: EncoderConfig, tensors: Mapping[str, np.ndarray]):
        if config.tokens != "tree":
            raise MissingDependencyError(
                'a model with text tokens requires torch: pip install "rhovec[torch]" and load it '
                'with device="cpu" or "cuda"'
            )
        self.config = config
        self.depth = config.width // config.heads  # numbers per token in an attention head
        weight = centred(tensors["inputs.weight"], axis=1)
        *self.tables, self.features = np.split(weight, np.cumsum(config.tables()))
        # What is added to scores, (heads, RELATIONS) per layer.
        self.relations = np.split(tensors["inputs.relation"], config.layers)
        self.layers = read_layers(tensors, config.layers, config.heads)
        self.head = make_head(config)
        self.head_tensors = self.head.prepare(own_tensors(tensors, "head."))

    def __call__(self, programs: Programs, kind: Kind = "kernel") -> np.ndarray:
        """Vectors of this kind; fastest if formulae of the same length are neighbours."""
        sizes = np.diff(programs.offsets) + 1
        tokens = tree_tokens(programs)
        ids = tokens.ids(self.config.points)
        self.config.check(ids, tokens.threshold)
        out = np.empty((len(sizes), self.head.dimension(kind)), np.float32)

        def work(cut: tuple[int, int]) -> None:
            part = slice(*cut)
            rows = self.head.numpy_rows(
                self.head_tensors, self._pooled(tokens, ids, part, sizes[part])
            )
            out[part] = (
                rows if kind == "cosine" else self.head.numpy_vectors(self.head_tensors, rows)
            )

        total = int(sizes.sum())
        chunks = cores() * -(-total // (cores() * CHUNK))  # the same number for each core
        in_threads(work, list(ranges(sizes, max(MIN_CHUNK, -(-total // chunks)))))
        return out

    def _pooled(
        self, tokens: TreeTokens, ids: np.ndarray, part: slice, sizes: np.ndarray
    ) -> np.ndarray:
        """What the layers make of the formulae `part`, (B, width); sizes (B,): their tokens."""
        cls = tokens.cls[part].astype(np.intp)
        starts = np.cumsum(sizes) - sizes
        flat = np.arange(sizes.sum()) + np.repeat(cls - starts, sizes)
        x = self._inputs(ids.reshape(-1, 4)[flat], tokens.threshold.reshape(-1)[flat])
        groups = list(_groups(tokens, cls, sizes, starts))
        room = Room(len(x), self.config.width)
        *layers, last = zip(self.layers, self.relations, strict=True)
        for layer, relation in layers:
            self._block(layer, relation, x, groups, room)
        if self.config.pooling == "mean":
            self._block(*last, x, groups, room)
            means: np.ndarray = np.add.reduceat(x, starts) / sizes[:, None].astype(np.float32)
            return means
        pick = starts if self.config.pooling == "cls" else starts + sizes - 1
        return self._block(*last, x, groups, room, pick)

    def _inputs(self, ids: np.ndarray, threshold: np.ndarray) -> np.ndarray:
        """Tokens (T, width) of ids (T, 4) and thresholds (T,)."""
        x: np.ndarray = self.tables[0][ids[:, 0]]
        for table, column in zip(self.tables[1:], ids.T[1:], strict=True):
            x += table[column]
        atoms = np.flatnonzero(ids[:, 1])
        x[atoms] += threshold_features(threshold[atoms].astype(np.float32)) @ self.features
        return x

    def _block(
        self,
        layer: Layer,
        relations: np.ndarray,
        x: np.ndarray,
        groups: list[Group],
        room: Room,
        pick: np.ndarray | None = None,
    ) -> np.ndarray:
        """Overwrite x (T, width) with the block's output; with pick (B,) only those, (B, width)."""
        width = x.shape[1]
        normed = normalise(x, room.normed)
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
            attend(
                q[here].reshape(shape).transpose(2, 0, 1, 3),
                k,
                v,
                relations.take(relation, axis=1),
                room.mixed[here].reshape(shape).transpose(2, 0, 1, 3),
            )
        finish_block(layer, x, room)
        return x


def threshold_features(threshold: np.ndarray) -> np.ndarray:
    """Numbers (A,) float32 as (A, FEATURES)."""
    near = threshold.clip(-FAR, FAR)[:, None]
    angles = near * FREQUENCIES
    size = np.sign(threshold) * np.log1p(np.abs(threshold))
    rest = np.stack([np.tanh(threshold), size, near[:, 0] / FAR], axis=1)
    return np.concatenate([np.sin(angles), np.cos(angles), rest], axis=1, dtype=np.float32)


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
