"""The vectors that a decoder learns to read: a frozen encoder's, or exact kernel values to anchors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..corpus.families import Recipe, draw_families
from ..errors import RhovecError
from ..formula.programs import Programs
from ..kernel import kernel_of_cosine
from ..models import store
from ..models.config import EncoderConfig
from ..models.encoder import Encoder, Packed, pack
from ..robustness import lowering
from ..traces import BaseMeasure
from .device import mixed, to_device
from .distill import BANDS, embed
from .loop import model_folder, rows_to_reserve
from .teachers import unit_robustness

ANCHOR_SEED = 20_000  # of the anchors, and of the traces that they are compared on


class VectorSource(Protocol):
    """Vectors of formulae."""

    def set_aside(self, trials: list[Programs]) -> None:
        """Look at trial batches, to reserve memory for those that `prepare` will be given."""

    def prepare(self, programs: Programs) -> Any:
        """Input of `__call__`, prepared ahead in a thread."""

    def __call__(self, asked: Any) -> Tensor:
        """Unit rows (B, dimension) of a prepared batch."""

    def embed(self, programs: Programs) -> Tensor:
        """Unit rows (B, dimension) of any number of formulae."""


def vector_source(config: Any) -> VectorSource:
    if config.vectors not in ("neural", "anchors"):
        raise RhovecError(f"vectors must be neural or anchors, not {config.vectors!r}")
    return Neural(config) if config.vectors == "neural" else Anchors(config)


class Neural:
    """Vectors of a frozen encoder, `mixed` in precision, as its error is smaller than the noise."""

    def __init__(self, config: Any):
        about, tensors = store.read(model_folder(config.model))
        self.config = EncoderConfig(**about["encoder"])
        if config.dimension != self.config.dimension:
            raise RhovecError(
                f"dimension must be the encoder's, {self.config.dimension}, not {config.dimension}"
            )
        self.device = torch.device(config.device)
        self.encoder = Encoder(self.config)
        self.encoder.load_state_dict({k: torch.from_numpy(v) for k, v in tensors.items()})
        self.encoder.to(self.device).requires_grad_(False)
        self.quick = Encoder(self.config).to(self.device).requires_grad_(False)
        self.quick.load_state_dict(self.encoder.state_dict())
        if self.device.type == "cuda":
            for module in (self.quick.inputs, *self.quick.blocks, self.quick.head):
                module.compile(dynamic=False)
        self.rows: int | None = None

    def set_aside(self, trials: list[Programs]) -> None:
        """Fix the number of rows of tokens that a batch may need."""
        self.rows = rows_to_reserve(
            max(len(pack(programs, self.config).owner) for programs in trials)
        )

    def prepare(self, programs: Programs) -> Packed:
        tokens = pack(programs, self.config, self.rows)
        return tokens.map(Tensor.pin_memory) if self.device.type == "cuda" else tokens.trimmed()

    @torch.no_grad()
    def __call__(self, asked: Packed) -> Tensor:
        """Unit rows (B, dimension)."""
        with mixed(self.device):
            out: Tensor = self.quick(asked.map(lambda t: to_device(t, self.device)))
        return out

    def embed(self, programs: Programs) -> Tensor:
        """Vectors of any number of formulae, in full precision."""
        return embed(self.encoder, programs)


class Anchors:
    """Exact kernel values to `dimension` fixed formulae, scaled to length one.

    The anchors are seeds of the corpus, half over the first channels, half over all.
    """

    def __init__(self, config: Any):
        self.device = torch.device(config.device)
        self.sigma2, self.points = config.sigma2, config.points
        measure = BaseMeasure(n_variables=config.channels, points=config.points)
        traces = measure.sample(config.traces, seed=ANCHOR_SEED)
        self.traces = torch.from_numpy(traces).to(self.device)
        halves = np.array_split(np.arange(config.dimension), 2)
        self.anchors = Programs.join([
            draw_families(
                replace(
                    corpus_recipe(config, ANCHOR_SEED, channels), shares=(1.0, 0.0, 0.0, 0.0),
                    full_depth=True,
                ),
                numbers,
            ).programs
            for channels, numbers in zip(config.widths, halves, strict=True)
        ])  # fmt: skip
        self.unit = unit_robustness(self.anchors, self.traces)  # (dimension, N)

    def set_aside(self, trials: list[Programs]) -> None:
        """Do nothing: the exact engine takes batches of any size."""

    def prepare(self, programs: Programs) -> tuple[Programs, lowering.Instructions]:
        return programs, lowering.lower(programs, self.points, trace=False, strict=False)

    def __call__(self, asked: tuple[Programs, lowering.Instructions]) -> Tensor:
        """Unit rows (B, dimension)."""
        unit = unit_robustness(asked[0], self.traces, asked[1])
        return F.normalize(kernel_of_cosine(unit @ self.unit.T, self.sigma2), dim=1)

    def embed(self, programs: Programs) -> Tensor:
        return self(self.prepare(programs))


def corpus_recipe(config: Any, seed: int, channels: int) -> Recipe:
    """A recipe of one formula per family."""
    bands = BANDS if channels > 3 else 0.0
    return Recipe(seed=seed, family_size=1, channels=channels, max_nodes=config.nodes, bands=bands)
