"""What a decoder is, in a few numbers, and the names and shapes of its tensors; no torch needed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import RhovecError
from ..tokens.prefix import VOCABULARY
from ..tokens.text import SYMBOLS


@dataclass(frozen=True)
class DecoderConfig:
    tokens: str = "prefix"  # or "text", the paper's, for comparison
    width: int = 256
    layers: int = 7
    heads: int = 4
    prefix: int = 6  # tokens in front that the vector becomes
    dimension: int = 1024  # of the vectors
    length: int = 160  # of the longest sequence, with BEGIN and END

    def __post_init__(self) -> None:
        if self.tokens not in ("prefix", "text"):
            raise RhovecError(f"tokens must be prefix or text, not {self.tokens!r}")
        if self.width % self.heads:
            raise RhovecError(
                f"width must be a multiple of heads, not {self.width} and {self.heads}"
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def vocabulary(self) -> int:
        return VOCABULARY if self.tokens == "prefix" else len(SYMBOLS)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The decoder's tensors by name."""
        width = self.width
        out: dict[str, tuple[int, ...]] = {
            "vector.weight": (self.prefix * width, self.dimension),
            "vector.bias": (self.prefix * width,),
            "token.weight": (self.vocabulary, width),
            "place.weight": (self.length, width),
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
        return out | {
            "norm.weight": (width,),
            "norm.bias": (width,),
            "output.weight": (self.vocabulary, width),
        }
