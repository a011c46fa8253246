"""The decoder in NumPy: what models/decoder.py computes, with tokens restricted to the grammar.

Greedy decoding, sampling and beam search are one loop that differs in how the next tokens are chosen.
The lines of a vector (its samples, or its beams) share one sequence, with its cache of keys and values,
as long as they have written the same tokens; a sequence that ends leaves the batch. So no work is done
twice.

The random numbers of a line depend only on the seed and on its number among the vector's lines. So,
except for rounding, the answers to a vector do not depend on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import RhovecError
from ..formula.core import Formula
from ..machine import cores
from ..tokens.prefix import BEGIN, END, PAD, TENTHS, VOCABULARY, Grammar, from_prefix
from ..traces.measure import require_memory
from .decoder_config import DecoderConfig
from .layers import (
    Room,
    attend,
    behind_norm,
    centred,
    finish_block,
    in_threads,
    normalise,
    read_layers,
)

MAX_NODES, MAX_DEPTH = 63, 20
LINES = 256  # that a thread works on at once
BLOCK = 32  # positions by which a cache grows

# From (position t, log-probabilities (R, VOCABULARY) of the sequences' next tokens, the sequence of each
# line (L,) or -1 if it has ended, log-probability (L,) of what it has written) to (the line that each
# line continues (L,), its next token (L,), which is PAD if it has ended).
Choose = Callable[[int, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Generator:
    """Writes formulae for unit vectors (B, dimension); max_nodes and max_depth limit each of them."""

    def __init__(self, config: DecoderConfig, tensors: Mapping[str, np.ndarray]):
        if config.tokens != "prefix":
            raise RhovecError(
                "only a decoder with prefix tokens can write formulae here; train one with tokens=prefix"
            )
        self.config = config
        width, self.depth = config.width, config.width // config.heads
        front = tensors["vector.weight"].reshape(config.prefix, width, -1)
        self.front = centred(front, axis=1).reshape(-1, config.dimension).T
        self.front_bias = centred(tensors["vector.bias"].reshape(config.prefix, width), axis=1)
        self.token = centred(tensors["token.weight"], axis=1)
        self.place = centred(tensors["place.weight"], axis=1)
        self.layers = read_layers(tensors, config.layers, config.heads)
        self.output = behind_norm(tensors, "norm", tensors["output.weight"])

    def greedy(
        self, vectors: np.ndarray, *, max_nodes: int = MAX_NODES, max_depth: int = MAX_DEPTH
    ) -> list[Formula]:
        """B formulae, always taking the likeliest next token."""

        def choose(
            t: int, log_p: np.ndarray, sequence: np.ndarray, total: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray]:
            token = np.where(sequence < 0, PAD, log_p.argmax(axis=1)[sequence])
            return np.arange(len(token)), token

        ids = self._write(vectors, 1, choose, max_nodes, max_depth)
        return [from_prefix(line) for line in ids[:, 0].tolist()]

    def sample(
        self,
        vectors: np.ndarray,
        samples: int,
        *,
        temperature: float = 1.0,
        top_p: float = 0.95,
        numbers: bool = True,
        seed: int = 0,
        max_nodes: int = MAX_NODES,
        max_depth: int = MAX_DEPTH,
    ) -> list[list[Formula]]:
        """B lists of `samples` formulae, not necessarily distinct.

        top_p: draw only from the likeliest tokens, those that together have this probability.
        numbers: draw decimals too, instead of taking the likeliest. The first samples of many are
        the same as those of a few.
        """
        if samples < 1 or temperature <= 0 or not 0 < top_p <= 1:
            raise RhovecError(
                f"samples must be 1 or more, temperature above 0, top_p above 0 and at most 1, not "
                f"{samples}, {temperature} and {top_p}"
            )
        shape = (samples, self.config.length)
        require_memory(shape, 8, "samples")
        uniform = np.random.default_rng(seed).random(shape)

        def choose(
            t: int, log_p: np.ndarray, sequence: np.ndarray, total: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray]:
            weight = _nucleus(log_p, temperature, top_p)
            if not numbers:
                likeliest = log_p.argmax(axis=1)
                (rows,) = np.nonzero(likeliest >= TENTHS)
                weight[rows] = 0
                weight[rows, likeliest[rows]] = 1
            mass = weight.cumsum(axis=1, dtype=np.float64)
            token = np.full(len(sequence), PAD)
            (lines,) = np.nonzero(sequence >= 0)
            own = mass[sequence[lines]]
            point = uniform[lines % samples, t] * own[:, -1]
            token[lines] = (own <= point[:, None]).sum(axis=1)
            return np.arange(len(token)), token

        ids = self._write(vectors, samples, choose, max_nodes, max_depth)
        return [list(map(from_prefix, lines)) for lines in ids.tolist()]

    def beam(
        self,
        vectors: np.ndarray,
        width: int,
        *,
        max_nodes: int = MAX_NODES,
        max_depth: int = MAX_DEPTH,
    ) -> list[list[Formula]]:
        """B lists of `width` formulae, the likeliest first."""
        if width < 1:
            raise RhovecError(f"the width of a beam must be 1 or more, not {width}")

        def choose(
            t: int, log_p: np.ndarray, sequence: np.ndarray, total: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray]:
            if t == 1:  # all lines are still the same: the first one represents them
                total = np.where(np.arange(len(total)) % width == 0, 0, -np.inf)
            value = total[:, None] + log_p[sequence]
            ended = sequence < 0
            value[ended] = -np.inf
            value[ended, PAD] = total[ended]
            value = value.reshape(-1, width * VOCABULARY)
            best = np.argpartition(-value, width - 1, axis=1)[:, :width]
            order = np.argsort(-np.take_along_axis(value, best, axis=1), axis=1, kind="stable")
            line, token = np.divmod(np.take_along_axis(best, order, axis=1), VOCABULARY)
            return (line + width * np.arange(len(line))[:, None]).ravel(), token.ravel()

        ids = self._write(vectors, width, choose, max_nodes, max_depth)
        return [list(map(from_prefix, lines)) for lines in ids.tolist()]

    def logits(self, vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Logits (B, L, VOCABULARY) of the next tokens, after ids (B, L), which start with BEGIN."""
        vectors = self._check(vectors)
        count, length = ids.shape
        tokens = self.config.prefix + length
        cache = Cache(self.config, count)
        x = np.concatenate([self._front(vectors), self.token[ids] + self.place[:length]], axis=1)
        self._extend(cache, x, Room(count * tokens, self.config.width))
        return self._logits(x[:, self.config.prefix :])

    def _check(self, vectors: np.ndarray) -> np.ndarray:
        vectors = np.asarray(vectors)
        wanted = self.config.dimension
        if vectors.ndim != 2 or vectors.shape[1] != wanted:
            raise RhovecError(
                f"vectors must have shape (B, {wanted}), not {vectors.shape}; this decoder reads "
                "only those of the model that it was trained for"
            )
        if vectors.dtype.kind not in "fiu" or not np.isfinite(vectors).all():
            raise RhovecError("vectors must hold finite numbers")
        return vectors.astype(np.float32)

    def _write(
        self, vectors: np.ndarray, lines: int, choose: Choose, max_nodes: int, max_depth: int
    ) -> np.ndarray:
        """Ids (B, lines, length) int16."""
        vectors = self._check(vectors)
        length = self.config.length
        ids = np.empty((len(vectors), lines, length), np.int16)

        step = max(1, min(LINES // lines, -(-len(vectors) // cores())))
        firsts = range(0, len(vectors), step)

        def work(firsts: range) -> None:
            cache = Cache(self.config, step * lines)  # one for all, as fresh memory is slow
            for first in firsts:
                grammar = Grammar(len(vectors[first : first + step]), max_nodes, max_depth, length)
                part = slice(first, first + step)
                ids[part] = self._write_part(vectors[part], lines, choose, grammar, cache)

        in_threads(work, [firsts[i :: cores()] for i in range(min(cores(), len(firsts)))])
        return ids

    def _write_part(
        self, vectors: np.ndarray, lines: int, choose: Choose, grammar: Grammar, cache: Cache
    ) -> np.ndarray:
        count, length = len(vectors), self.config.length
        ids = np.full((count * lines, length), PAD, np.int16)
        ids[:, 0] = BEGIN
        total = np.zeros(len(ids))
        sequence = np.repeat(np.arange(count), lines)
        cache.length = 0
        room = Room(max(len(ids), count * (self.config.prefix + 1)), self.config.width)
        begin = np.broadcast_to(self.token[BEGIN] + self.place[0], (count, 1, self.config.width))
        x = np.concatenate([self._front(vectors), begin], axis=1)
        for t in range(1, length):
            self._extend(cache, x, room)
            log_p = _log_softmax(self._logits(x[:, -1]), grammar.allowed())
            line, token = choose(t, log_p, sequence, total)
            sequence = sequence[line]
            total = total[line] + np.where(sequence < 0, 0, log_p[sequence, token])
            ids = ids[line]
            ids[:, t] = token
            # Beams in excess of the number of candidates have probability zero: end them too.
            (going,) = np.nonzero((sequence >= 0) & (token != END) & (total > -np.inf))
            if not len(going):
                break
            pairs, own = np.unique(sequence[going] * VOCABULARY + token[going], return_inverse=True)
            parents, tokens = np.divmod(pairs, VOCABULARY)
            order = cache.settle(parents)
            grammar.take(parents[order])
            grammar.advance(tokens[order])
            sequence = np.full(len(ids), -1)
            sequence[going] = np.argsort(order)[own]
            x = (self.token[tokens[order]] + self.place[t])[:, None]
        return ids.reshape(count, lines, length)

    def _front(self, vectors: np.ndarray) -> np.ndarray:
        """Tokens that the vectors become, (B, prefix, width)."""
        front: np.ndarray = vectors @ self.front
        front = front.reshape(len(vectors), *self.front_bias.shape)
        front += self.front_bias
        return front

    def _extend(self, cache: Cache, x: np.ndarray, room: Room) -> None:
        """Append tokens x (R, m, width) to the sequences, and overwrite x with the layers' output."""
        rows, new, width = x.shape
        keys, values = cache.extend(rows, new)  # each (layers, heads, R, n, d)
        n = keys.shape[3]
        later = np.arange(n)[:, None] > np.arange(n - new, n)
        mask = np.where(later, np.float32(-1e9), np.float32(0))
        shape = (rows, new, self.config.heads, self.depth)
        tokens = x.reshape(-1, width)
        room = room.first(len(tokens))
        for layer, k, v in zip(self.layers, keys, values, strict=True):
            qkv = np.matmul(normalise(tokens, room.normed), layer.qkv, out=room.qkv)
            q, k[:, :, n - new :], v[:, :, n - new :] = (
                part.reshape(shape).transpose(2, 0, 1, 3) for part in np.split(qkv, 3, axis=1)
            )
            scores = np.empty((self.config.heads, rows, n, new), np.float32)
            scores[...] = mask
            attend(q, k, v, scores, room.mixed.reshape(shape).transpose(2, 0, 1, 3))
            finish_block(layer, tokens, room)

    def _logits(self, x: np.ndarray) -> np.ndarray:
        """Logits (..., VOCABULARY) of tokens (..., width)."""
        flat = x.reshape(-1, x.shape[-1])
        logits: np.ndarray = normalise(flat) @ self.output
        return logits.reshape(*x.shape[:-1], -1)


class Cache:
    """Keys and values of all layers for up to `most` sequences, all of the same length."""

    def __init__(self, config: DecoderConfig, most: int):
        self.length = 0
        depth = config.width // config.heads
        self.room = np.empty((config.layers, 2, config.heads, most, 0, depth), np.float32)

    def extend(self, rows: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values (layers, heads, rows, length, d); the last `count` are still to be filled."""
        before, self.length = self.length, self.length + count
        if self.length > self.room.shape[4]:
            shape = list(self.room.shape)
            shape[4] = -(-self.length // BLOCK) * BLOCK
            larger = np.empty(shape, np.float32)
            larger[:, :, :, :rows, :before] = self.room[:, :, :, :rows, :before]
            self.room = larger
        filled = self.room[:, :, :, :rows, : self.length]
        return filled[:, 0], filled[:, 1]

    def settle(self, parents: np.ndarray) -> np.ndarray:
        """Continue the sequences `parents` (R,), in an order that leaves most of them in place.

        Returns that order (R,): sequence i is now the former parents[order[i]].
        """
        order = np.full(len(parents), -1)
        stays, first = np.unique(parents, return_index=True)
        inside = stays < len(parents)
        order[stays[inside]] = first[inside]
        free = np.flatnonzero(order < 0)
        order[free] = np.setdiff1d(np.arange(len(parents)), order)
        filled = self.room[..., : self.length, :]
        filled[:, :, :, free] = filled[:, :, :, parents[order[free]]]
        return order


def _log_softmax(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Log-softmax over the allowed entries of the last axis; the others are -inf."""
    out = np.where(allowed, logits, np.float32(-np.inf))
    out -= out.max(axis=1, keepdims=True)
    out -= np.log(np.exp(out).sum(axis=1, keepdims=True))
    return out


def _nucleus(log_p: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """Weights (R, VOCABULARY), zero except for the likeliest tokens, which have the share top_p."""
    weight: np.ndarray = np.exp(
        (log_p - log_p.max(axis=1, keepdims=True)) / np.float32(temperature)
    )
    if top_p < 1:
        ordered = np.sort(weight, axis=1)[:, ::-1]
        mass = ordered.cumsum(axis=1)
        last = (mass >= top_p * mass[:, -1:]).argmax(axis=1)
        weight[weight < np.take_along_axis(ordered, last[:, None], axis=1)] = 0
    return weight
