"""The encoder in torch: a Transformer whose unit vectors have the kernel as their inner products.

Tokens come packed, several formulae per row, and attention stays within a formula. With `tree` tokens
the only sign of a formula's structure is a learned number per attention head and relation in the tree,
which is added to the scores. Rows are short, so attention is written out. The last layer computes only
the tokens that are pooled.

models/runtime.py does the same in NumPy: change both together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn

from ..formula.programs import Programs
from ..tokens.text import CLS as TEXT_CLS
from ..tokens.text import MAX_TOKENS, text_tokens
from ..tokens.tree import APART, RELATIONS, tree_tokens
from .config import FAR, FEATURES, SCALES, EncoderConfig
from .heads import Head, Like, make_head

HIDDEN = -1e4  # added to scores between formulae


class Packed(NamedTuple):
    """Tensors of B formulae in R rows of W tokens."""

    ids: Tensor  # tree: (R, W, 4) operator, channel, bounds; text: (R, W, 2) symbol, place
    threshold: Tensor | None  # (R, W) float32
    relation: Tensor | None  # (R, W, W) uint8
    owner: Tensor  # (R, W) int32: the token's formula, -1 for padding
    pick: Tensor  # (B,) int32: index in the R * W tokens of the one that stands for each formula

    def map(self, change: Callable[[Tensor], Tensor]) -> Packed:
        return Packed(*(t if t is None else change(t) for t in self))  # type: ignore[arg-type]

    def trimmed(self) -> Packed:
        """Without rows of padding only, which come last."""
        used = int((self.owner >= 0).any(1).sum())
        return self.map(lambda t: t[:used])._replace(pick=self.pick)


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.inputs = (TreeInputs if config.tokens == "tree" else TextInputs)(config)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.head = HeadModule(make_head(config))

    def forward(self, tokens: Packed) -> Tensor:
        """Unit vectors (B, dimension) whose inner products are the kernel."""
        out: Tensor = self.head(self.pooled(tokens))
        return out

    def rows(self, tokens: Packed) -> Tensor:
        """Unit rows (B, row_dimension) of the head's kind, which training compares."""
        return self.head.rows(self.pooled(tokens))

    def pooled(self, tokens: Packed) -> Tensor:
        """What the layers make of each formula, (B, width)."""
        x, biases = self.inputs(tokens)
        last = None if self.config.pooling == "mean" else tokens.pick
        for block, bias in zip(self.blocks, biases, strict=True):
            x = block(x, bias, last if block is self.blocks[-1] else None)
        return mean_by_owner(x, tokens.owner, len(tokens.pick)) if last is None else x


class TreeInputs(nn.Module):
    """Tokens (R, W, width), and per layer what is added to its scores, (R, heads, W, W)."""

    apart: Tensor

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.layers = config.layers
        self.tables = config.tables()
        self.weight = nn.Parameter(torch.randn(sum(self.tables) + FEATURES, config.width) * 0.05)
        self.relation = nn.Parameter(torch.zeros(config.layers * config.heads, RELATIONS))
        apart = torch.zeros(RELATIONS)
        apart[APART] = HIDDEN
        self.register_buffer("apart", apart, persistent=False)

    def forward(self, tokens: Packed) -> tuple[Tensor, tuple[Tensor, ...]]:
        ids, threshold, relation = tokens.ids, tokens.threshold, tokens.relation
        assert threshold is not None and relation is not None
        # A product with one-hot rows: its gradient is faster than the scattered one of a look-up.
        chosen = [F.one_hot(ids[..., i].long(), n) for i, n in enumerate(self.tables)]
        features = threshold_features(threshold) * (ids[..., 1:2] > 0)
        x = torch.cat([*(c.to(features.dtype) for c in chosen), features], -1) @ self.weight
        rows, width, _ = relation.shape
        one_hot = relation.view(rows, 1, -1) == torch.arange(RELATIONS, device=x.device)[:, None]
        bias = (self.relation + self.apart) @ one_hot.to(x.dtype)  # (R, layers * heads, W * W)
        return x.float(), bias.view(rows, -1, width, width).chunk(self.layers, dim=1)


class TextInputs(nn.Module):
    """Symbols and learned positions, and per layer which tokens belong together.

    That is where sequences begin, (B + R + 1,) int32, if a GPU computes in half precision, as its
    kernel for sequences needs; otherwise a mask, (R, 1, W, W) bool.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.layers = config.layers
        self.symbol = nn.Embedding(TEXT_CLS + 1, config.width)
        self.place = nn.Embedding(MAX_TOKENS + 1, config.width)
        for table in (self.symbol, self.place):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, tokens: Packed) -> tuple[Tensor, tuple[Tensor, ...]]:
        symbol, place = tokens.ids.long().unbind(-1)
        if symbol.is_cuda and torch.is_autocast_enabled("cuda"):
            together = sequence_starts(tokens.owner, len(tokens.pick))
        else:
            together = tokens.owner[:, None, :, None] == tokens.owner[:, None, None, :]
        return self.symbol(symbol) + self.place(place), (together,) * self.layers


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm, each added to its input."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Parameter(torch.randn(3, width, width) * width**-0.5)
        self.out = nn.Parameter(torch.randn(width, width) * 0.1 * width**-0.5)
        self.ff_norm = nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(4 * width, width) * width**-0.5)
        self.down = nn.Parameter(torch.zeros(width, 4 * width))

    def forward(self, x: Tensor, bias: Tensor | None, pick: Tensor | None = None) -> Tensor:
        """Tokens x (R, W, width) -> the same shape, or with pick (B,) only those tokens, (B, width).

        bias: as for `attend`.
        """
        rows, length, width = x.shape
        qkv = F.linear(self.norm(x), self.qkv.flatten(0, 1))
        q, k, v = qkv.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = attend(q, k, v, bias).transpose(1, 2).reshape(rows, length, width)
        if pick is not None:
            x, mixed = x.flatten(0, 1)[pick], mixed.flatten(0, 1)[pick]
        x = x + F.linear(mixed, self.out)
        out: Tensor = x + F.linear(F.relu(F.linear(self.ff_norm(x), self.up)) ** 2, self.down)
        return out


class HeadModule(nn.Module):
    """A head's tensors as parameters, and its two torch stages."""

    def __init__(self, head: Head):
        super().__init__()
        self.head = head
        for name, tensor in head.initial().items():
            place: nn.Module = self
            *path, last = name.split(".")
            for part in path:
                if not hasattr(place, part):
                    place.add_module(part, nn.Module())
                place = getattr(place, part)
            trained = name not in head.fitted
            place.register_parameter(last, nn.Parameter(tensor, requires_grad=trained))

    def forward(self, x: Tensor) -> Tensor:
        """Unit vectors (B, dimension) from pooled tokens (B, width)."""
        return self.head.vectors(dict(self.named_parameters()), self.rows(x))

    def rows(self, x: Tensor) -> Tensor:
        """Unit rows (B, row_dimension) from pooled tokens (B, width)."""
        return self.head.rows(dict(self.named_parameters()), x)

    @torch.no_grad()
    def approach(self, x: Tensor, rows: Tensor) -> None:
        """Change tensors so that pooled tokens x give rows near these; see `Head.approach`."""
        self.head.approach(dict(self.named_parameters()), x, rows)

    @torch.no_grad()
    def fit(self, rows: Tensor, like: Like = None) -> None:
        """Compute the tensors that are not trained, from the rows of many formulae; see `Head.fit`."""
        self.head.fit(dict(self.named_parameters()), rows, like)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of q, k, v (R, heads, W, d).

    bias: numbers to add to the scores; or True where attention is allowed; or where sequences begin,
    int32, if all rows are laid end to end; None: each token attends to itself and those before.
    """
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if bias.dtype == torch.bool:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    if bias.dtype == torch.int32:
        rows, _, longest, _ = q.shape
        q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (q, k, v))
        mixed: Any = varlen_attn(q, k, v, bias, bias, longest, longest)
        out: Tensor = mixed.unflatten(0, (rows, longest)).transpose(1, 2)
        return out
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores + bias).softmax(-1) @ v


def sequence_starts(owner: Tensor, count: int) -> Tensor:
    """First tokens of `count` formulae, and of the padding that ends each row, in order; then the end.

    owner: (R, W) as in Packed. The result, (count + R + 1,) int32, counts tokens over all rows; where
    a row has no padding a sequence is empty.
    """
    rows, width = owner.shape
    places = torch.arange(rows * width, device=owner.device)
    first = places.new_full((count + 1,), rows * width)  # the last is for padding, and left out
    first = first.scatter_reduce(0, owner.flatten().long() % (count + 1), places, "amin")[:count]
    ends = places[::width] + width
    padded = ends - (owner < 0).sum(1)
    return torch.cat([first, padded, ends[-1:]]).sort().values.int()


def threshold_features(threshold: Tensor) -> Tensor:
    """Numbers (...) as (..., FEATURES): sines and cosines at ten scales, tanh, logarithm, share."""
    near = threshold.clamp(-FAR, FAR)[..., None]
    scales = 2.0 ** torch.arange(SCALES, device=threshold.device) * (math.pi / FAR)
    size = threshold.abs().log1p()
    rest = torch.stack([threshold.tanh(), threshold.sign() * size, near[..., 0] / FAR], -1)
    return torch.cat([(near * scales).sin(), (near * scales).cos(), rest], -1)


def mean_by_owner(x: Tensor, owner: Tensor, count: int) -> Tensor:
    """Mean over each formula's tokens: (R, W, width) -> (count, width)."""
    place = owner.flatten() % (count + 1)  # padding, -1, goes last
    sums = x.new_zeros(count + 1, x.shape[-1]).index_add(0, place, x.flatten(0, 1))
    sizes = x.new_zeros(count + 1).index_add(0, place, torch.ones_like(place, dtype=x.dtype))
    return sums[:count] / sizes[:count, None]


def pack(programs: Programs, config: EncoderConfig, rows: int | None = None) -> Packed:
    """The encoder's input, on the CPU; rows fixes R."""
    if config.tokens == "text":
        text = text_tokens(programs, rows)
        ids = np.stack([text.symbol, text.place], -1)
        owner = np.full(text.symbol.size, -1, np.int32)
        ends = text.cls + text.length + 1
        for b, (first, end) in enumerate(zip(text.cls.tolist(), ends.tolist(), strict=True)):
            owner[first:end] = b
        pick = text.bos if config.pooling == "bos" else text.cls
        return Packed(*_tensors(ids, None, None, owner.reshape(text.symbol.shape), pick))
    tree = tree_tokens(programs, rows)
    ids = tree.ids(config.points)
    config.check(ids, tree.threshold)
    pick = tree.root if config.pooling == "bos" else tree.cls
    return Packed(
        *_tensors(ids, tree.threshold.astype(np.float32), tree.relation, tree.owner, pick)
    )


def _tensors(*arrays: np.ndarray | None) -> list[Any]:
    return [None if a is None else torch.from_numpy(a) for a in arrays]
