"""The student: a Transformer over tree tokens whose unit vectors have the kernel as inner product.

Attention is written out, softmax(q k / sqrt(d) + bias[relation]) v, because rows are short and the
bias, one number a head for each relation in the tree, is what tells the model the structure.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..tokens import APART, OPERATORS, RELATIONS


@dataclass(frozen=True)
class EncoderConfig:
    width: int = 384
    layers: int = 8
    heads: int = 6
    dimension: int = 1024  # of the vectors
    channels: int = 3
    points: int = 100  # of the teacher's trajectories: bounds beyond are all alike
    nodes: int = 64

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        width = config.width
        self.operator = nn.Embedding(OPERATORS, width)
        self.channel = nn.Embedding(config.channels + 1, width)
        self.left = nn.Embedding(config.points + 1, width)
        self.right = nn.Embedding(config.points + 1, width)
        self.place = nn.Embedding(config.nodes + 1, width)
        self.threshold = nn.Linear(22, width)
        self.relation = nn.Parameter(torch.zeros(RELATIONS, config.layers * config.heads))
        self.blocks = nn.ModuleList(Block(width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, config.dimension // 2)
        self.inner_norm = nn.LayerNorm(config.dimension // 2)
        self.outer = nn.Linear(config.dimension // 2, config.dimension)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and name != "relation":
                nn.init.normal_(
                    parameter, std=0.02 if "." not in name else parameter.shape[1] ** -0.5
                )

    def forward(self, node: Tensor, threshold: Tensor, relation: Tensor, cls: Tensor) -> Tensor:
        """node (R, W, 5), threshold (R, W), relation (R, W, W), cls (B,) -> unit rows (B, dimension)."""
        operator, channel, left, right, place = node.long().unbind(-1)
        x = self.operator(operator) + self.channel(channel) + self.left(left) + self.right(right)
        x = x + self.place(place) + self.threshold(threshold_features(threshold, channel > 0))
        one_hot = F.one_hot(relation.long(), RELATIONS).to(x.dtype)
        hidden = torch.zeros(RELATIONS, 1, device=x.device)
        hidden[APART] = -1e4
        bias = one_hot @ (self.relation + hidden)  # (R, W, W, layers * heads)
        biases = bias.movedim(-1, 1).chunk(self.config.layers, dim=1)
        for block, layer_bias in zip(self.blocks, biases, strict=True):
            x = block(x, layer_bias)
        pooled = self.norm(x.flatten(0, 1)[cls.long()])
        z = self.outer(self.inner_norm(F.gelu(self.inner(pooled))))
        return F.normalize(z.float(), dim=-1)


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ff_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        rows, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        mixed = (scores + bias).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        out: Tensor = x + self.down(F.gelu(self.up(self.ff_norm(x))))
        return out


def threshold_features(threshold: Tensor, is_atom: Tensor) -> Tensor:
    """A number as sines and cosines of ten scales, itself and its tanh; zero where there is none."""
    scales = 2.0 ** torch.arange(10, device=threshold.device) * (math.pi / 16)
    angle = threshold[..., None] * scales
    near = threshold.clamp(-100, 100)
    features = torch.cat([angle.sin(), angle.cos(), near[..., None], near.tanh()[..., None]], -1)
    return features * is_atom[..., None]
