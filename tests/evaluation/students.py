"""Students for tests: one that knows the kernel, and one that knows nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import rhovec as rv
from rhovec.formula import Formula


def perfect(kernel: rv.StlKernel) -> Callable[[list[Formula]], np.ndarray]:
    """Vectors whose inner products are the kernel, for the formulae of one call."""

    def embed(formulae: list[Formula]) -> np.ndarray:
        values, vectors = np.linalg.eigh(kernel.gram(formulae))
        rows = vectors * np.sqrt(np.maximum(values, 0))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    return embed


def constant(formulae: list[Formula]) -> np.ndarray:
    return np.tile(np.float32([0.6, 0.8]), (len(formulae), 1))
