"""The numbers that define a decoder, and the names and shapes of its tensors; needs no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import RhovecError
from ..tokens.prefix import VOCABULARY
from ..tokens.text import SYMBOLS
from .config import block_shapes, check_heads


@dataclass(frozen=True)
class DecoderConfig:
    tokens: str = "prefix"  # or "text", the paper's, for comparison
    width: int = 256
    layers: int = 7
    heads: int = 4
    prefix: int = 6  # tokens that the vector becomes, before all others
    dimension: int = 1024  # of the vectors
    length: int = 160  # of the longest sequence, including BEGIN and END

    def __post_init__(self) -> None:
        if self.tokens not in ("prefix", "text"):
            raise RhovecError(f"tokens must be prefix or text, not {self.tokens!r}")
        check_heads(self.width, self.heads)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def vocabulary(self) -> int:
        return VOCABULARY if self.tokens == "prefix" else len(SYMBOLS)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the decoder's tensors, by name."""
        return {
            "vector.weight": (self.prefix * self.width, self.dimension),
            "vector.bias": (self.prefix * self.width,),
            "token.weight": (self.vocabulary, self.width),
            "place.weight": (self.length, self.width),
            **block_shapes(self.layers, self.width),
            "norm.weight": (self.width,),
            "norm.bias": (self.width,),
            "output.weight": (self.vocabulary, self.width),
        }
