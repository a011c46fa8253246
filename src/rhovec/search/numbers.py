"""How the numbers of a unit vector are stored: as floats, or in eight bits (`Numbers`).

In eight bits, x_j = t a_j (c_j + d_j / 256), with whole numbers c_j from -127 to 127. The a_j are the
usual sizes of the numbers; they are learned when a library is built, and belong to it. t makes the
largest |c_j| 127; it is not stored, since the vectors have length one. Only the sixth of the numbers
that are usually largest have a d_j: vectors of a model have few large numbers, which would otherwise
make up most of the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Stored = Literal["float32", "float16", "int8"]
TYPES = {"float32": "<f4", "float16": "<f2", "int8": "<i1"}
FINE = 6  # one of this many numbers has eight more bits
EVEN = 0.01  # share of the vectors that are taken to be of no direction when sizes are learned


@dataclass(frozen=True)
class Numbers:
    """How vectors of `dimension` numbers are stored. sizes: the a_j, for int8 only."""

    stored: Stored
    dimension: int
    sizes: tuple[float, ...] | None = None

    @classmethod
    def learn(cls, sample: np.ndarray) -> Numbers:
        """Eight bits for vectors like those of a sample (m, D)."""
        count, dimension = sample.shape
        even = max(EVEN, 1 / (1 + count))  # so that numbers which the sample lacks have a size
        squares = np.einsum("ij,ij->j", sample, sample, dtype=np.float64) / max(count, 1)
        sizes = np.sqrt((1 - even) * squares + even / dimension)
        return cls("int8", dimension, tuple((sizes / sizes.max()).astype(np.float32).tolist()))

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(TYPES[self.stored])

    @property
    def width(self) -> int:
        """Numbers stored per vector."""
        return self.dimension + len(self._fine)

    @cached_property
    def _sizes(self) -> np.ndarray:
        return np.array(self.sizes or (), np.float32)

    @cached_property
    def _fine(self) -> np.ndarray:
        """Numbers with eight more bits, whose bytes come after those of all numbers."""
        order = np.argsort(-self._sizes, kind="stable")
        chosen: np.ndarray = order[: self.dimension // FINE] if self.sizes else order
        return chosen

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """What is stored of vectors (n, D): an array (n, width)."""
        if self.stored != "int8":
            return vectors.astype(self.dtype)
        scaled = vectors / self._sizes
        scaled *= 127 / np.abs(scaled).max(1, keepdims=True, initial=1e-30)
        codes = np.empty((len(vectors), self.width), np.int8)
        codes[:, : self.dimension] = np.rint(scaled)
        both = np.rint(256 * scaled[:, self._fine]).astype(np.int16)  # c_j and d_j in sixteen bits
        high = (both + 128) >> 8
        codes[:, self._fine] = high
        codes[:, self.dimension :] = both - (high << 8)
        return codes

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """Unit vectors (n, D) float32 of stored rows (n, width); NaN where a row is zero."""
        return unit_rows(self._unscaled(rows))

    def weights(self, point: np.ndarray) -> np.ndarray:
        """Numbers (width,) float32 whose products with int8 rows are those of `point` (D,) with the
        vectors, up to a factor per row: `scales`."""
        whole = point.astype(np.float32) * self._sizes
        return np.concatenate([whole, whole[self._fine] / np.float32(256)])

    def scales(self, rows: np.ndarray) -> np.ndarray:
        """That factor, (n,) float32."""
        norms = np.linalg.norm(self._unscaled(rows), axis=1)
        with np.errstate(divide="ignore"):
            factors: np.ndarray = np.float32(1) / norms
        return factors

    def _unscaled(self, rows: np.ndarray) -> np.ndarray:
        """The vectors without t, (n, D) float32."""
        vectors: np.ndarray = rows[:, : self.dimension].astype(np.float32)
        if self.stored == "int8":
            vectors[:, self._fine] += rows[:, self.dimension :] / np.float32(256)
            vectors *= self._sizes
        return vectors


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Divide the rows (n, D) by their norms, in place; a zero row becomes NaN."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    with np.errstate(invalid="ignore"):
        vectors /= norms[:, None]
    return vectors
