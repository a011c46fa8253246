"""What an encoder is, in a few numbers, and the names and shapes of its tensors; no torch needed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import RhovecError
from ..tokens.text import CLS as TEXT_CLS
from ..tokens.text import MAX_TOKENS
from ..tokens.tree import OPERATORS, RELATIONS

SCALES = 10  # of the sines and cosines of a threshold
FAR = 16.0  # thresholds beyond are told apart by their logarithm alone
FEATURES = 2 * SCALES + 3
DIRECTIONS = 96  # dimensions of directions: more do not make them more exact
SHARPNESS = 5.0  # of landmarks: 1 / sigma2 of the paper's kernel
MISSING = 1e-4  # of a vector's squared length that waves have at least


def slow_waves(count: int) -> int:
    """How many of so many waves, the first ones, are slow."""
    return max(1, count // 4)


@dataclass(frozen=True)
class EncoderConfig:
    tokens: str = "tree"  # or "text"
    pooling: str = "cls"  # or "bos" (of a tree: its root), or "mean"
    width: int = 320
    layers: int = 8
    heads: int = 5
    dimension: int = 1024  # of the vectors
    head: str = "landmarks"  # or "projector", the paper's
    channels: int = 8
    points: int = 100  # of the teacher's trajectories: bounds beyond are all alike
    nodes: int = 63  # of the largest formula in training

    def __post_init__(self) -> None:
        if self.tokens not in ("tree", "text"):
            raise RhovecError(f"tokens must be tree or text, not {self.tokens!r}")
        if self.pooling not in ("cls", "bos", "mean"):
            raise RhovecError(f"pooling must be cls, bos or mean, not {self.pooling!r}")
        if self.head not in ("landmarks", "projector"):
            raise RhovecError(f"head must be landmarks or projector, not {self.head!r}")
        if self.dimension % 4:
            raise RhovecError(f"dimension must be a multiple of 4, not {self.dimension}")
        if self.width % self.heads:
            raise RhovecError(
                f"width must be a multiple of heads, not {self.width} and {self.heads}"
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> tuple[int, ...]:
        """How many rows of `inputs.weight` each column of the tree tokens' ids chooses from."""
        return OPERATORS, self.channels + 1, self.points + 1, self.points + 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The encoder's tensors by name."""
        width = self.width
        out: dict[str, tuple[int, ...]]
        if self.tokens == "tree":
            out = {
                "inputs.weight": (sum(self.tables()) + FEATURES, width),
                "inputs.relation": (self.layers * self.heads, RELATIONS),
            }
        else:
            out = {
                "inputs.symbol.weight": (TEXT_CLS + 1, width),
                "inputs.place.weight": (MAX_TOKENS + 1, width),
            }
        for i in range(self.layers):
            out |= {
                f"blocks.{i}.{name}": shape
                for name, shape in (
                    ("norm.weight", (width,)),
                    ("norm.bias", (width,)),
                    ("qkv", (3, width, width)),
                    ("out", (width, width)),
                    ("ff_norm.weight", (width,)),
                    ("ff_norm.bias", (width,)),
                    ("up", (4 * width, width)),
                    ("down", (width, 4 * width)),
                )
            }
        out |= {"head.norm.weight": (width,), "head.norm.bias": (width,)}
        inner = self.dimension // 2
        if self.head == "landmarks":
            return out | {
                "head.direction": (DIRECTIONS, width),
                "head.landmarks": (4 * self.dimension, DIRECTIONS),
                "head.outer": (inner, 4 * self.dimension),
                "head.waves": (inner // 2, DIRECTIONS),
            }
        return out | {
            "head.inner.weight": (inner, width),
            "head.inner.bias": (inner,),
            "head.inner_norm.weight": (inner,),
            "head.inner_norm.bias": (inner,),
            "head.outer.weight": (self.dimension, inner),
            "head.outer.bias": (self.dimension,),
        }
