"""Distil the kernel into the encoder.

    python -m rhovec.training.distill --out RUN [--steps 20000] [--device cuda]

Each step draws fresh formulae (whole families) and fresh signals, lets the exact engine compute the
kernel of the batch, and moves the vectors' inner products towards it. Formulae are drawn, tokenised and
lowered ahead by threads; everything else stays on the device. The folder RUN gets config.json,
log.jsonl (a line every `every` steps) and model.safetensors (the average of the weights over time).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..corpus.families import Batch, Recipe
from ..corpus.stream import stream
from ..evaluation.metrics import alignment, mean_error, uniformity
from ..formula.programs import Programs
from ..models.encoder import Encoder, EncoderConfig
from ..robustness import cpu, lowering
from ..signals import BaseMeasure
from ..tokens import TreeTokens, tree_tokens
from .optimisers import Muon


@dataclass(frozen=True)
class Config:
    """One line of help a field; the command line is made from it."""

    out: str = "run"  # the folder of the run
    steps: int = 1000  # optimiser steps
    batch: int = 2048  # formulae a step
    signals: int = 2048  # fresh trajectories a step
    sigma2: float = 0.2  # of the kernel
    lr: float = 1e-3  # of Muon, reached after warm-up
    adam_lr: float = 1e-3  # of AdamW, for what is no matrix of a layer
    warmup: int = 300  # steps
    family_weight: float = 64.0  # of pairs of one family, against 1 for the others
    average: float = 0.999  # decay of the averaged weights
    width: int = 384  # of the encoder
    layers: int = 8  # of the encoder
    heads: int = 6  # of the encoder
    dimension: int = 1024  # of the vectors
    channels: int = 3  # variables a formula may use
    points: int = 100  # of a trajectory
    rows: int = 736  # of 65 tokens, into which a batch is packed
    workers: int = 6  # threads that prepare batches
    every: int = 100  # steps between lines of the log
    seed: int = 0
    device: str = "cpu"


class Work(NamedTuple):
    """A batch, ready for the device."""

    batch: Batch
    tokens: TreeTokens
    code: lowering.Instructions


def work_ahead(config: Config, start: int = 0) -> Iterator[Work]:
    """Batches of the training split, prepared by threads in the order of the stream."""
    recipe = Recipe(seed=config.seed, channels=config.channels)
    batches = stream(recipe, batch=config.batch, start=start, workers=config.workers)

    def prepare(batch: Batch) -> Work:
        tokens = tree_tokens(batch.programs, config.points, rows=config.rows)
        code = lowering.lower(batch.programs, config.points, trace=False, strict=False)
        return Work(batch, tokens, code)

    ahead: deque[Any] = deque()
    with ThreadPoolExecutor(config.workers) as pool:
        for batch in batches:
            ahead.append(pool.submit(prepare, batch))
            if len(ahead) > config.workers:
                yield ahead.popleft().result()


def kernel_matrix(
    programs: Programs, signals: Tensor, sigma2: float, code: lowering.Instructions | None = None
) -> Tensor:
    """k = exp(-(1 - k') / sigma2), (B, B), from the robustness on `signals` (N, V, P)."""
    columns = {f"x_{i}": i for i in range(signals.shape[1])}
    if signals.is_cuda:
        from ..robustness import gpu

        rho = gpu.evaluate(programs, signals, columns, code=code)
    else:
        rho = torch.from_numpy(cpu.evaluate(programs, signals.numpy(), columns))
    unit = torch.nn.functional.normalize(rho, dim=1)
    return torch.exp((unit @ unit.T - 1) / sigma2)


def to_device(tokens: TreeTokens, device: torch.device) -> tuple[Tensor, ...]:
    arrays = (tokens.node, tokens.threshold, tokens.relation, tokens.cls)
    return tuple(torch.from_numpy(a).to(device, non_blocking=True) for a in arrays)


def train(config: Config) -> Encoder:
    torch.manual_seed(config.seed)
    device = torch.device(config.device)
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(asdict(config), indent=1) + "\n")
    shape = {
        f.name: getattr(config, f.name) for f in fields(EncoderConfig) if hasattr(config, f.name)
    }
    encoder = Encoder(EncoderConfig(**shape)).to(device)
    matrices = [p for p in encoder.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in encoder.parameters() if id(p) not in chosen]
    optimisers: list[tuple[torch.optim.Optimizer, float]] = [
        (Muon(matrices, lr=config.lr), config.lr),
        (torch.optim.AdamW(others, lr=config.adam_lr, betas=(0.9, 0.98), weight_decay=0.01),
         config.adam_lr),
    ]  # fmt: skip
    weights: list[Tensor] = list(encoder.parameters())
    averaged = [p.detach().clone() for p in weights]
    forward = torch.compile(encoder, dynamic=False) if device.type == "cuda" else encoder
    measure = BaseMeasure(n_variables=config.channels, points=config.points)
    generator = torch.Generator(device).manual_seed(config.seed)
    began = time.perf_counter()

    with (out / "log.jsonl").open("w") as log:
        for step, work in enumerate(work_ahead(config)):
            if step == config.steps:
                break
            signals = measure.sample_torch(config.signals, generator, device)
            target = kernel_matrix(work.batch.programs, signals, config.sigma2, work.code)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                vectors = forward(*to_device(work.tokens, device))
            similarity = vectors @ vectors.T
            family = torch.from_numpy(work.batch.family).to(device, non_blocking=True)
            weight = torch.where(family[:, None] == family, config.family_weight, 1.0)
            loss = (weight * (similarity - target) ** 2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            for optimiser, lr in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = lr * schedule(step, config)
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            decay = min(config.average, (step + 1) / (step + 10))
            with torch.no_grad():
                torch._foreach_lerp_(averaged, weights, 1 - decay)
            if step % config.every == 0 or step == config.steps - 1:
                k, s = target.cpu().numpy(), similarity.detach().cpu().numpy()
                line = {
                    "step": step, "seconds": time.perf_counter() - began, "loss": loss.item(),
                    "alignment": alignment(k, s), "error": mean_error(k, s),
                    "uniformity": uniformity(s), "kernel_uniformity": uniformity(k),
                }  # fmt: skip
                log.write(json.dumps(line) + "\n")
                log.flush()
    with torch.no_grad():
        torch._foreach_copy_(weights, averaged)
    return encoder


def schedule(step: int, config: Config) -> float:
    """Linear warm-up, then a cosine to one per cent."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))


@torch.no_grad()
def embed(encoder: Encoder, programs: Programs, chunk: int = 512) -> np.ndarray:
    """Vectors (B, dimension) of a batch of any size."""
    device = next(encoder.parameters()).device
    parts = []
    for first in range(0, len(programs), chunk):
        last = min(first + chunk, len(programs))
        rows = slice(programs.offsets[first], programs.offsets[last])
        offsets = programs.offsets[first : last + 1] - programs.offsets[first]
        part = Programs(programs.code[rows], programs.thresholds[rows], offsets, programs.channels)
        tokens = tree_tokens(part, encoder.config.points)
        parts.append(encoder(*to_device(tokens, device)).cpu().numpy())
    return np.concatenate(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for field in fields(Config):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default),
                            default=field.default)  # fmt: skip
    config = Config(**vars(parser.parse_args()))
    encoder = train(config)
    from safetensors.torch import save_file

    state = {name: value.contiguous() for name, value in encoder.state_dict().items()}
    save_file(state, str(Path(config.out) / "model.safetensors"))


if __name__ == "__main__":
    main()
