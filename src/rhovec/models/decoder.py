"""The decoder: a causal Transformer that writes a formula, token by token, given its vector alone.

One linear map turns the vector into a few tokens that stand in front of the sequence. Blocks are the
encoder's, places are learned. The grammar is left to models/generate.py, which computes the same with
NumPy; a change here is a change there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .decoder_config import DecoderConfig
from .encoder import Block


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        width = config.width
        self.vector = nn.Linear(config.dimension, config.prefix * width)
        self.token = nn.Embedding(config.vocabulary, width)
        self.place = nn.Embedding(config.length, width)
        self.blocks = nn.ModuleList(Block(width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, config.vocabulary, bias=False)
        # Of unit vectors, the map makes tokens as large as those that are looked up.
        for table in (self.vector, self.token, self.place):
            nn.init.normal_(table.weight, std=0.05)
        nn.init.zeros_(self.vector.bias)
        nn.init.zeros_(self.output.weight)

    def forward(self, vectors: Tensor, ids: Tensor) -> Tensor:
        """vectors (B, dimension), ids (B, L) from BEGIN on -> logits (B, L, vocabulary).

        Those at place i are of token i + 1.
        """
        front = self.vector(vectors).unflatten(-1, (self.config.prefix, -1))
        x = self.token(ids.long()) + self.place.weight[: ids.shape[1]]
        x = torch.cat([front.to(x.dtype), x], 1)
        for block in self.blocks:
            x = _causal(block, x)  # type: ignore[arg-type]
        logits: Tensor = self.output(self.norm(x[:, self.config.prefix :]))
        return logits


def _causal(block: Block, x: Tensor) -> Tensor:
    """What the block does, each token attending to those up to itself; x (B, L, width)."""
    batch, length, width = x.shape
    qkv = F.linear(block.norm(x), block.qkv.flatten(0, 1))
    q, k, v = qkv.view(batch, length, 3, block.heads, -1).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, width), block.out)
    out: Tensor = x + F.linear(F.relu(F.linear(block.ff_norm(x), block.up)) ** 2, block.down)
    return out
