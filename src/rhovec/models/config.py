"""The numbers that define an encoder, and the names and shapes of its tensors; needs no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import FormulaError, RhovecError
from ..tokens.text import CLS as TEXT_CLS
from ..tokens.text import MAX_TOKENS
from ..tokens.tree import OPERATORS, RELATIONS
from .heads import make_head

SCALES = 10  # of the sines and cosines of a threshold
FAR = 16.0  # larger thresholds are told apart only by their logarithm
FEATURES = 2 * SCALES + 3  # numbers that describe a threshold
MAX_THRESHOLD = float(np.finfo(np.float32).max)  # that a model can read


@dataclass(frozen=True)
class EncoderConfig:
    tokens: str = "tree"  # or "text"
    pooling: str = "cls"  # or "bos" (in a tree: the root), or "mean"
    width: int = 320
    layers: int = 8
    heads: int = 5
    dimension: int = 1024  # of the vectors
    head: str = "nystrom"  # or "projector", the paper's, or any name that `heads` knows
    channels: int = 8
    points: int = 100  # of the teacher's traces: all bounds beyond are alike
    nodes: int = 63  # of the largest formula in training

    def __post_init__(self) -> None:
        if self.tokens not in ("tree", "text"):
            raise RhovecError(f"tokens must be tree or text, not {self.tokens!r}")
        if self.pooling not in ("cls", "bos", "mean"):
            raise RhovecError(f"pooling must be cls, bos or mean, not {self.pooling!r}")
        check_heads(self.width, self.heads)
        object.__setattr__(
            self, "head", make_head(self).name
        )  # which may be stored by a former name

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> tuple[int, ...]:
        """Number of rows of `inputs.weight` that each column of the tree tokens' ids chooses from."""
        return OPERATORS, self.channels + 1, self.points + 1, self.points + 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the encoder's tensors, by name."""
        if self.tokens == "tree":
            inputs: dict[str, tuple[int, ...]] = {
                "inputs.weight": (sum(self.tables()) + FEATURES, self.width),
                "inputs.relation": (self.layers * self.heads, RELATIONS),
            }
        else:
            inputs = {
                "inputs.symbol.weight": (TEXT_CLS + 1, self.width),
                "inputs.place.weight": (MAX_TOKENS + 1, self.width),
            }
        head = {f"head.{name}": shape for name, shape in make_head(self).shapes().items()}
        return inputs | block_shapes(self.layers, self.width) | head

    def check(self, ids: np.ndarray, threshold: np.ndarray) -> None:
        """Refuse tree tokens, ids (..., 4) and thresholds (...), that the encoder cannot read."""
        known = int(ids[..., 1].max())
        if known > self.channels:
            raise FormulaError(
                f"a formula uses x_{known - 1}; the model knows x_0 ... x_{self.channels - 1}"
            )
        largest = threshold.flat[np.abs(threshold).argmax()]
        if abs(largest) > MAX_THRESHOLD:
            raise FormulaError(
                f"a formula has the threshold {largest:g}, and a model reads up to "
                f"{MAX_THRESHOLD:.2g}; bring its channel to smaller numbers with a Schema, or "
                "compare with the exact kernel"
            )


def check_heads(width: int, heads: int) -> None:
    if width % heads:
        raise RhovecError(f"width must be a multiple of heads, not {width} and {heads}")


def block_shapes(layers: int, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of Transformer blocks, in an encoder or a decoder."""
    shapes = {
        "norm.weight": (width,),
        "norm.bias": (width,),
        "qkv": (3, width, width),
        "out": (width, width),
        "ff_norm.weight": (width,),
        "ff_norm.bias": (width,),
        "up": (4 * width, width),
        "down": (width, 4 * width),
    }
    return {f"blocks.{i}.{name}": shape for i in range(layers) for name, shape in shapes.items()}
