"""The student: a Transformer whose unit vectors have the kernel as their inner product.

Tokens come packed, several formulae to a row; attention stays within a formula. With `tree` tokens each
head adds to its scores one number for each relation in the tree, which is all that tells the structure.
Rows are short, so attention is written out. The last layer works on the tokens that are pooled alone.

models/runtime.py computes the same with NumPy; a change here is a change there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import FormulaError
from ..formula.programs import Programs
from ..tokens.text import CLS as TEXT_CLS
from ..tokens.text import MAX_TOKENS, text_tokens
from ..tokens.tree import APART, RELATIONS, tree_tokens
from .config import FAR, FEATURES, MISSING, SCALES, SHARPNESS, EncoderConfig, slow_waves

HIDDEN = -1e4  # added to scores between formulae


class Packed(NamedTuple):
    """Tensors of B formulae in R rows of W tokens; text has no relations, tree no places."""

    ids: Tensor  # tree: (R, W, 4) operator, channel, bounds; text: (R, W, 2) symbol, place
    threshold: Tensor | None  # (R, W) float32
    relation: Tensor | None  # (R, W, W) uint8
    owner: Tensor  # (R, W) int32: the token's formula, -1 for padding
    pick: Tensor  # (B,) int32: the token that stands for each formula, in the R * W

    def map(self, change: Callable[[Tensor], Tensor]) -> Packed:
        return Packed(*(t if t is None else change(t) for t in self))  # type: ignore[arg-type]


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.inputs = (TreeInputs if config.tokens == "tree" else TextInputs)(config)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.head: Landmarks | Projector = (
            Landmarks(config) if config.head == "landmarks" else Projector(config)
        )

    def forward(self, tokens: Packed) -> Tensor:
        """Unit rows (B, dimension)."""
        out: Tensor = self.head(self.pooled(tokens))
        return out

    def taught(self, tokens: Packed) -> Tensor:
        """Unit rows that training compares: directions if landmarks make vectors of them, or vectors."""
        x, head = self.pooled(tokens), self.head
        out: Tensor = head.directions(x) if isinstance(head, Landmarks) else head(x)
        return out

    def pooled(self, tokens: Packed) -> Tensor:
        """(B, width): what the layers make of each formula."""
        *_, owner, pick = tokens
        x, biases = self.inputs(tokens)
        last = None if self.config.pooling == "mean" else pick
        for block, bias in zip(self.blocks, biases, strict=True):
            x = block(x, bias, last if block is self.blocks[-1] else None)
        return mean_by_owner(x, owner, len(pick)) if last is None else x


class TreeInputs(nn.Module):
    """Tokens (R, W, width), and for each layer what is added to its scores, (R, heads, W, W)."""

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
        # Looking up is multiplying by ones and zeros: a product is quicker than its scattered gradient.
        chosen = [F.one_hot(ids[..., i].long(), n) for i, n in enumerate(self.tables)]
        features = threshold_features(threshold) * (ids[..., 1:2] > 0)
        x = torch.cat([*(c.to(features.dtype) for c in chosen), features], -1) @ self.weight
        rows, width, _ = relation.shape
        one_hot = relation.view(rows, 1, -1) == torch.arange(RELATIONS, device=x.device)[:, None]
        bias = (self.relation + self.apart) @ one_hot.to(x.dtype)  # (R, layers * heads, W * W)
        return x.float(), bias.view(rows, -1, width, width).chunk(self.layers, dim=1)


class TextInputs(nn.Module):
    """Symbols and learned places; scores are masked between formulae."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.layers = config.layers
        self.symbol = nn.Embedding(TEXT_CLS + 1, config.width)
        self.place = nn.Embedding(MAX_TOKENS + 1, config.width)
        for table in (self.symbol, self.place):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, tokens: Packed) -> tuple[Tensor, tuple[Tensor, ...]]:
        symbol, place = tokens.ids.long().unbind(-1)
        same = tokens.owner[:, None, :, None] == tokens.owner[:, None, None, :]
        return self.symbol(symbol) + self.place(place), (same,) * self.layers


class Block(nn.Module):
    """Attention and feed-forward, each after a norm, each added to its input."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Parameter(torch.randn(3, width, width) * width**-0.5)
        self.out = nn.Parameter(torch.randn(width, width) * 0.1 * width**-0.5)
        self.ff_norm = nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(4 * width, width) * width**-0.5)
        self.down = nn.Parameter(torch.zeros(width, 4 * width))

    def forward(self, x: Tensor, bias: Tensor, pick: Tensor | None = None) -> Tensor:
        """x (R, W, width) -> the same, or with pick (B,) the rows (B, width) of those tokens."""
        rows, length, width = x.shape
        qkv = F.linear(self.norm(x), self.qkv.flatten(0, 1))
        q, k, v = qkv.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = attend(q, k, v, bias).transpose(1, 2).reshape(rows, length, width)
        if pick is not None:
            x, mixed = x.flatten(0, 1)[pick], mixed.flatten(0, 1)[pick]
        x = x + F.linear(mixed, self.out)
        out: Tensor = x + F.linear(F.relu(F.linear(self.ff_norm(x), self.up)) ** 2, self.down)
        return out


class Projector(nn.Module):
    """The paper's: width -> dimension / 2 (GELU, norm) -> dimension, of length one."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        inner = config.dimension // 2
        self.norm = nn.LayerNorm(config.width)
        self.inner = nn.Linear(config.width, inner)
        self.inner_norm = nn.LayerNorm(inner)
        self.outer = nn.Linear(inner, config.dimension)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner_norm(F.gelu(self.inner(self.norm(x)), approximate="tanh"))
        return F.normalize(self.outer(inner).float(), dim=-1)


class Landmarks(nn.Module):
    """From directions, whose inner products are the cosines of robustness, to vectors of the kernel.

    Directions are learned; how they become vectors is computed, by `settle`. Half of the dimensions
    suffice for the kernel of any two different formulae: how near a direction is to each of many
    landmarks, weighted. But in this smooth part a formula is not quite alike to itself: a sixth of its
    length is missing, more or less. That goes into waves in the other half, so quick that they agree for
    formulae of nearly one direction alone. Far from all landmarks nearly all is missing; then it
    goes into other waves, as slow as the kernel itself.
    """

    FREQUENCY = 6.0  # of quick waves: radians a unit, along what directions differ in most
    STEADY = 0.005  # variance of directions along which waves are much slower
    SHARED = 0.09  # of the squared length, given to all smooth dimensions alike
    SMALLEST = 1e-3  # eigenvalue of the landmarks' kernel; lower ones count as this
    SEED = 0  # of the waves
    BLOCK = 8192  # directions looked at together

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        shapes = config.shapes()
        self.direction = nn.Parameter(torch.randn(shapes["head.direction"]) * config.width**-0.5)
        landmarks = F.normalize(torch.randn(shapes["head.landmarks"]), dim=1)
        outer = torch.randn(shapes["head.outer"]) * config.dimension**-0.5
        waves = torch.randn(shapes["head.waves"]) * self.FREQUENCY
        self.landmarks, self.outer, self.waves = (
            nn.Parameter(tensor, requires_grad=False) for tensor in (landmarks, outer, waves)
        )

    def directions(self, x: Tensor) -> Tensor:
        """Unit rows (B, DIRECTIONS)."""
        with torch.autocast(x.device.type, enabled=False):
            return F.normalize(F.linear(self.norm(x.float()), self.direction), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        directions = self.directions(x)
        with torch.autocast(x.device.type, enabled=False):
            smooth = F.linear(kernel(directions, self.landmarks), self.outer)
            missing = F.relu(1 - smooth.square().sum(-1, keepdim=True)) + MISSING
            slow = slow_waves(len(self.waves))
            quick = len(self.waves) - slow
            share = missing.square().clamp(max=1)  # of what is missing, that slow waves get
            slowly = (missing * share / slow).sqrt().expand(-1, slow)
            quickly = (missing * (1 - share) / quick).sqrt().expand(-1, quick)
            strength = torch.cat([slowly, quickly], -1)
            angles = F.linear(directions, self.waves)
            waves = [angles.sin() * strength, angles.cos() * strength]
            return F.normalize(torch.cat([smooth, *waves], -1), dim=-1)

    @torch.no_grad()
    def settle(self, directions: Tensor) -> None:
        """Make landmarks, weights and waves of the directions (N, DIRECTIONS) of many formulae.

        Landmarks are some of them, evenly chosen. Their kernel spans a space (Nyström's method), and of
        this the smooth dimensions are those that the N vary in most. A unit vector cannot keep to the
        spectrum alone: the length that is missing must go somewhere, and the error is least if smooth
        dimensions get some of it.
        """
        n, count, inner = len(directions), len(self.landmarks), len(self.outer)
        chosen = directions[torch.arange(count, device=directions.device) * n // count]
        values, vectors = torch.linalg.eigh(kernel(chosen.double(), chosen.double()))
        whiten = vectors / values.clamp(min=self.SMALLEST).sqrt()
        covariance = torch.zeros_like(vectors)
        for block in torch.split(directions, self.BLOCK):
            inside = kernel(block, chosen) @ whiten.float()
            covariance += inside.T @ inside
        values, vectors = torch.linalg.eigh(covariance / n)
        values, vectors = values[-inner:].clamp(min=1e-12), vectors[:, -inner:]
        raised = (1 + self.SHARED / (2 * inner) / values).sqrt()
        self.landmarks.copy_(chosen)
        self.outer.copy_((whiten @ (vectors * raised)).T)

        spread, axes = torch.linalg.eigh(directions.T.double() @ directions.double() / n)
        slowed = (spread.clamp(min=0) / (spread.clamp(min=0) + self.STEADY)).sqrt()
        generator = torch.Generator().manual_seed(self.SEED)
        waves = torch.randn(self.waves.shape, generator=generator).to(axes)
        slow = slow_waves(len(waves))
        self.waves.copy_(waves @ (axes * slowed) @ axes.T * self.FREQUENCY)
        self.waves[:slow] = (waves[:slow] * SHARPNESS**0.5).to(self.waves)


def kernel(a: Tensor, b: Tensor) -> Tensor:
    """Of unit rows (n, d) and (m, d): (n, m)."""
    return torch.exp(SHARPNESS * (a @ b.T - 1))


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """q, k, v (R, heads, W, d); bias as numbers, or True where attention is allowed."""
    if bias.dtype == torch.bool:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores + bias).softmax(-1) @ v


def threshold_features(threshold: Tensor) -> Tensor:
    """A number (...) as (..., FEATURES): sines and cosines at ten scales, tanh, logarithm, share."""
    near = threshold.clamp(-FAR, FAR)[..., None]
    scales = 2.0 ** torch.arange(SCALES, device=threshold.device) * (math.pi / FAR)
    size = threshold.abs().log1p()
    rest = torch.stack([threshold.tanh(), threshold.sign() * size, near[..., 0] / FAR], -1)
    return torch.cat([(near * scales).sin(), (near * scales).cos(), rest], -1)


def mean_by_owner(x: Tensor, owner: Tensor, count: int) -> Tensor:
    """(R, W, width) -> (count, width): the mean over each formula's tokens."""
    place = owner.flatten() % (count + 1)  # padding, -1, comes last
    sums = x.new_zeros(count + 1, x.shape[-1]).index_add(0, place, x.flatten(0, 1))
    sizes = x.new_zeros(count + 1).index_add(0, place, torch.ones_like(place, dtype=x.dtype))
    return sums[:count] / sizes[:count, None]


def pack(programs: Programs, config: EncoderConfig, rows: int | None = None) -> Packed:
    """Model input, on the CPU; rows fixes R."""
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
    known = int(ids[..., 1].max())
    if known > config.channels:
        raise FormulaError(
            f"a formula uses x_{known - 1}; the model knows x_0 ... x_{config.channels - 1}"
        )
    pick = tree.root if config.pooling == "bos" else tree.cls
    return Packed(
        *_tensors(ids, tree.threshold.astype(np.float32), tree.relation, tree.owner, pick)
    )


def _tensors(*arrays: np.ndarray | None) -> list[Any]:
    return [None if a is None else torch.from_numpy(a) for a in arrays]
