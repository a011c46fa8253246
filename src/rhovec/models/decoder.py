"""The decoder in torch: a causal Transformer that writes a formula, token by token, from its vector.

A linear map turns the vector into a few tokens before the sequence. Blocks are the encoder's, positions
are learned. models/generate.py does the same in NumPy, where the grammar is enforced: change both
together.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
        # This map gives unit vectors tokens as large as those that are looked up.
        for table in (self.vector, self.token, self.place):
            nn.init.normal_(table.weight, std=0.05)
        nn.init.zeros_(self.vector.bias)
        nn.init.zeros_(self.output.weight)

    def forward(self, vectors: Tensor, ids: Tensor) -> Tensor:
        """Logits (B, L, vocabulary) of vectors (B, dimension) and ids (B, L), which start with BEGIN.

        Those at position i are for token i + 1.
        """
        front = self.vector(vectors).unflatten(-1, (self.config.prefix, -1))
        x = self.token(ids.long()) + self.place.weight[: ids.shape[1]]
        x = torch.cat([front.to(x.dtype), x], 1)
        for block in self.blocks:
            x = block(x, None)
        logits: Tensor = self.output(self.norm(x[:, self.config.prefix :]))
        return logits
