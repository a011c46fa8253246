"""The encoder as a torch module: formulae in, tensors with gradients out.

    module = rv.load().module()
    vectors = module(["always x_0 >= 1", "eventually x_1 < 0"])      # (2, 1024), with gradients
    tokens = module.pack(formulae)                                   # once, for many passes
    loss = head(module(tokens)).square().mean(); loss.backward()

All weights are parameters and require gradients, apart from those of the head that are computed rather
than trained (Nyström features): what is fine-tuned are the layers below. `module.requires_grad_(False)`
freezes the encoder, whose vectors are then features of a fixed size. The module starts with the model's
weights and does not share memory with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import RhovecError
from ..formula.programs import Programs
from ..formula.reader import Formulae, is_single
from .config import EncoderConfig
from .encoder import Encoder, Packed, pack
from .heads import Kind

Read = Callable[[Formulae], tuple[Programs, bool]]


class FormulaEncoder(nn.Module):
    """What `model.module()` returns."""

    def __init__(
        self, config: EncoderConfig, tensors: Mapping[str, np.ndarray], kind: Kind, read: Read
    ):
        super().__init__()
        self.kind: Kind = kind
        self.encoder = Encoder(config)
        self.encoder.load_state_dict(
            {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
        )
        self._read = read  # formulae as the model reads them: by its schema, if it has one
        self.dimension = self.encoder.head.head.dimension(kind)

    def pack(self, formulae: Formulae) -> Packed:
        """The tokens of formulae, on the module's device; a single formula is a batch of one."""
        device = next(self.parameters()).device
        return pack(self._read(formulae)[0], self.encoder.config).map(lambda t: t.to(device))

    def forward(self, formulae: Formulae | Packed) -> Tensor:
        """Unit vectors (B, dimension) float32; of a single formula (dimension,).

        formulae: texts or formulae, as for `Model.embed`, or what `pack` returned.
        """
        self._require_float32()
        tokens = formulae if isinstance(formulae, Packed) else self.pack(formulae)
        rows = self.encoder.rows(tokens) if self.kind == "cosine" else self.encoder(tokens)
        out: Tensor = rows[0] if is_single(formulae) else rows
        return out

    def features(self, tokens: Packed) -> Tensor:
        """What the layers make of each formula before the head, (B, width)."""
        self._require_float32()
        return self.encoder.pooled(tokens)

    def _require_float32(self) -> None:
        found = {p.dtype for p in self.parameters()} - {torch.float32}
        if found:
            raise RhovecError(
                f"the module's weights must be float32, not {str(found.pop()).removeprefix('torch.')}; "
                "call module.float(), and use torch.autocast for less precision"
            )
