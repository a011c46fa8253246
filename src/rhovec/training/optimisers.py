"""Optimisers of both trainings, and the schedule of their learning rates.

Muon is for the matrices of the layers: momentum, then the nearest orthogonal matrix as the update.
Matrices of one shape are orthogonalised together, so that a step is a few batched products.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import RhovecError
from ..models.decoder import Decoder
from ..models.encoder import Encoder
from .device import has_bfloat16


class Muon(torch.optim.Optimizer):
    """Muon for parameters (m, n), or stacks of such (k, m, n).

    lr, which may be a tensor, is on AdamW's scale: an update has root mean square 0.2 * lr.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float | Tensor,
        momentum: float = 0.95,
        weight_decay: float = 0.05,
    ):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape[-2:]].append(parameter)
            for shape, members in shapes.items():
                gradients = torch.cat([p.grad.reshape(-1, *shape) for p in members])  # type: ignore[union-attr]
                state = self.state[members[0]]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(gradients)
                buffer = state["momentum"].lerp_(gradients, 1 - group["momentum"])
                update = orthogonal(gradients.lerp(buffer, group["momentum"]))
                update = update.to(members[0].dtype) * (-0.2 * max(shape) ** 0.5 * group["lr"])
                torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
                matrices = [matrix for p in members for matrix in p.view(-1, *shape)]
                torch._foreach_add_(matrices, list(update))


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately U V' of each matrix U S V' in (k, m, n), by five Newton-Schulz steps."""
    x = matrices.bfloat16() if has_bfloat16(matrices.device.type) else matrices
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        b = torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, b, x, beta=3.4445)
    return x.mT if tall else x


def schedule(step: int, warmup: int, steps: int) -> float:
    """Factor of a learning rate: linear warm-up, then a cosine decay to one per cent."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))


def make_optimisers(
    student: Encoder | Decoder, config: Any
) -> list[tuple[torch.optim.Optimizer, float]]:
    """Optimisers, each with its learning rate: for the matrices of the layers, and for the rest."""
    matrices = [p for p in student.blocks.parameters() if p.ndim >= 2]
    known = {id(p) for p in matrices}
    others = [p for p in student.parameters() if p.requires_grad and id(p) not in known]
    on_gpu = config.device.startswith("cuda")

    def rate(lr: float) -> Tensor:
        return torch.tensor(lr, device=config.device)  # which a recorded step reads each time

    def adamw(parameters: Sequence[Tensor], lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters,
            rate(lr),
            betas=(0.9, 0.98),
            weight_decay=0.01,
            fused=True,
            capturable=on_gpu,
        )

    if config.optimiser == "muon":
        first: torch.optim.Optimizer = Muon(matrices, rate(config.lr))
    elif config.optimiser == "adamw":
        first = adamw(matrices, config.lr)
    else:
        raise RhovecError(f"optimiser must be muon or adamw, not {config.optimiser!r}")
    return [(first, config.lr), (adamw(others, config.adam_lr), config.adam_lr)]
