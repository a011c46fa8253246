"""Distil the kernel into the encoder.

    rhovec train encoder --preset default --out RUN --device cuda
    torchrun --nproc-per-node 2 -m rhovec.cli train encoder --out RUN --device cuda

Each step draws fresh formulae (families, and deep pairs) and fresh signals, lets the exact engine
compute the kernel of the batch, and moves towards it what the encoder says of it: by the inner products
of its vectors, or by its directions where landmarks make vectors of them at the end. Formulae are drawn,
tokenised and lowered ahead by threads; all else stays on the device.

Everything random follows from the seed and the step, so a run that is killed and started again in its
folder continues from its checkpoint as if nothing had happened. With several processes each one embeds
its share of the batch, vectors and robustness are gathered, and the pair matrix spans the whole batch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize

from ..corpus.families import Recipe, draw_families, find_families
from ..corpus.stream import prepared
from ..errors import FormulaError, RhovecError
from ..evaluation.metrics import alignment, mean_error, uniformity
from ..formula.fragment import programs_in_fragment
from ..formula.programs import Programs
from ..models import store
from ..models.config import SHARPNESS, EncoderConfig
from ..models.encoder import Encoder, Landmarks, Packed, pack
from ..models.model import DEFAULT
from ..robustness import cpu, lowering
from ..signals import BaseMeasure
from .device import Recorded, ahead, to_device
from .optimisers import make_optimisers, schedule
from .records import draw_curves, open_record, resume, save_checkpoint, tensors_of

# More equivalents than the corpus has: a family then has several formulae of one meaning.
SHARES = (0.05, 0.30, 0.35, 0.30)
DEEP_SHARES = (0.3, 0.5, 0.2, 0.0)  # of pairs of deep formulae
# Eighths of a batch over x_0 ... x_2 in families and in deep pairs, then over all channels.
PARTS = (2, 3, 2, 1)
BANDS = 0.1  # over all channels: requirements often hold a channel between two thresholds
COSINES = 0.02  # weight of the error of cosines
GLANCE = 8  # formulae of the bank for each landmark that a validation looks at
SAMPLE = 512  # formulae of a batch whose metrics are logged


@dataclass(frozen=True)
class Config:
    """One line of help a field; the command line is made from it."""

    steps: int = 40_000  # optimiser steps
    batch: int = 2048  # formulae whose pairs are compared
    accumulate: int = 1  # batches a step
    signals: int = 1024  # fresh trajectories a batch
    sigma2: float = 0.2  # of the kernel
    loss: str = "squared"  # squared: same-family pairs weighted up; focal: the paper's
    family_weight: float = 128.0  # of pairs of one family, against 1 for the others
    gamma: float = 2.0  # focal: exponent of the weight
    cap: float = 10.0  # focal: the largest weight
    corpus: str = "mixture"  # mixture: families and deep pairs; families: the corpus as it is
    optimiser: str = "muon"  # for the matrices of the layers: muon or adamw
    lr: float = 2e-3  # for the matrices of the layers, reached after warm-up
    adam_lr: float = 1e-3  # of AdamW, for all else
    warmup: int = 300  # steps
    average: float = 0.999  # decay of the averaged weights, which are the result; 0: the last ones
    origin: str = ""  # model whose weights to begin with, a folder or: shipped; empty: random ones
    tokens: str = "tree"  # tree or text
    pooling: str = "cls"  # cls, bos or mean
    width: int = 320  # of the encoder
    layers: int = 8  # of the encoder
    heads: int = 5  # of the encoder
    dimension: int = 1024  # of the vectors
    head: str = "landmarks"  # landmarks or projector, the paper's
    bank: int = 400_000  # formulae by which landmarks are put in place at the end
    channels: int = 8  # variables a formula may use
    points: int = 100  # of a trajectory
    nodes: int = 63  # of the largest formula
    workers: int = 8  # threads that prepare batches
    every: int = 200  # steps between lines of the log
    validate: int = 2000  # steps between validations and checkpoints
    seed: int = 0
    device: str = "cpu"


PRESETS = {
    "default": Config(),
    "paper": Config(
        steps=32_000, batch=128, accumulate=4, signals=1000, loss="focal",
        corpus="families", optimiser="adamw", lr=1e-5, adam_lr=1e-5, warmup=500, average=0.0,
        tokens="text", width=1024, layers=12, heads=16, head="projector", channels=3, points=1000,
    ),
    "tiny": Config(
        steps=300, batch=128, signals=128, lr=5e-3, adam_lr=5e-3, warmup=20,
        width=64, layers=2, heads=2, dimension=128, bank=4096, workers=1, every=20, validate=100,
    ),
}  # fmt: skip


# -- batches ---------------------------------------------------------------------------------------


class Work(NamedTuple):
    """A batch, ready for the device: this process' share of it, and what is needed of the whole."""

    programs: Programs
    code: lowering.Instructions
    tokens: Packed
    family: Tensor  # (batch,) int64, of all processes
    next: tuple[int, ...]  # where each recipe goes on


def recipes(config: Config) -> list[tuple[Recipe, int]]:
    """What a batch is drawn from, and how many formulae each gives.

    mixture: half in families, half in pairs, most of one meaning, of depths 1 ... 6 alike, some of
    them complete trees; most over x_0 ... x_2 alone, the others over all channels.
    """
    limits: dict[str, Any] = {"max_nodes": config.nodes}
    if config.corpus == "families":
        return [(Recipe(seed=config.seed, channels=config.channels, **limits), config.batch)]
    if config.corpus != "mixture":
        raise RhovecError(f"corpus must be mixture or families, not {config.corpus!r}")
    families: dict[str, Any] = {"shares": SHARES, "opposed": 0.5}
    bands = (0.0, BANDS if config.channels > 3 else 0.0)
    deep: dict[str, Any] = {"family_size": 2, "shares": DEEP_SHARES, "full_depth": True}
    return [
        (
            Recipe(
                seed=4 * config.seed + 2 * i + k,
                channels=channels,
                bands=bands[i],
                **limits,
                **kind,
            ),
            config.batch * PARTS[2 * i + k] // 8,
        )
        for i, channels in enumerate((min(3, config.channels), config.channels))
        for k, kind in enumerate((families, deep))
    ]


def work_ahead(
    config: Config, start: tuple[int, ...] | None = None, rank: int = 0, world: int = 1
) -> Generator[Work, None, None]:
    """Batches of the training split, prepared by threads, in an order that the seed fixes.

    A batch that needs more rows than are set aside (rare) is passed over.
    """
    parts = recipes(config)
    shape = encoder_config(config)
    rows = rows_needed(config, world)

    def prepare(numbers: list[np.ndarray]) -> Work | None:
        whole, family = draw(parts, numbers)
        share = slice(rank * config.batch // world, (rank + 1) * config.batch // world)
        programs = whole.part(share.start, share.stop)
        try:
            tokens = pack(programs, shape, rows)
        except FormulaError:
            return None
        code = lowering.lower(programs, config.points, trace=False, strict=False)
        after = tuple(int(n[-1]) + 1 for n in numbers)
        work = Work(programs, code, tokens, torch.from_numpy(family), after)
        return pinned(work) if config.device.startswith("cuda") else work

    families = [(recipe, count // recipe.family_size) for recipe, count in parts]
    return prepared(families, prepare, start, config.workers)


def draw(parts: list[tuple[Recipe, int]], numbers: list[np.ndarray]) -> tuple[Programs, np.ndarray]:
    """The formulae with these numbers of each recipe, one after the other, and their families.

    In a mixture every sixteenth family has its thresholds stretched, up to a thousandfold, so that
    the model learns what becomes of formulae that always or never hold.
    """
    batches = [draw_families(recipe, n) for (recipe, _), n in zip(parts, numbers, strict=True)]
    family = np.concatenate([len(parts) * b.family + i for i, b in enumerate(batches)])
    whole = Programs.join([b.programs for b in batches])
    if len(parts) > 1:
        golden = 0.6180339887  # its multiples fill the interval from 0 to 1 evenly
        factor = np.where(family // len(parts) % 16 == 0, 1000.0 ** (family * golden % 1), 1.0)
        thresholds = whole.thresholds * np.repeat(factor, np.diff(whole.offsets))
        whole = replace(whole, thresholds=thresholds)
    return whole, family


def rows_needed(config: Config, world: int) -> int:
    """Rows that hold a process' share of nearly every batch: 3 % more than of eight trial batches."""
    parts = recipes(config)
    most = 0
    for trial in range(8):
        numbers = [
            np.arange(trial * count, trial * count + count // recipe.family_size)
            for recipe, count in parts
        ]
        programs = draw(parts, numbers)[0]
        share = config.batch // world
        for first in range(0, config.batch, share):
            tokens = pack(programs.part(first, first + share), encoder_config(config))
            most = max(most, len(tokens.owner))
    return -(-int(1.03 * most + 1) // 8) * 8


def pinned(work: Work) -> Work:
    """In memory from which copies to the device do not make the host wait."""
    return work._replace(tokens=work.tokens.map(Tensor.pin_memory), family=work.family.pin_memory())


# -- teacher and loss ------------------------------------------------------------------------------


def directions(
    programs: Programs, signals: Tensor, code: lowering.Instructions | None = None
) -> Tensor:
    """Robustness vectors on `signals` (N, V, P), of length one: (B, N) float32."""
    columns = {f"x_{i}": i for i in range(signals.shape[1])}
    if signals.is_cuda:
        from ..robustness import gpu

        rho = gpu.evaluate(programs, signals, columns, code=code)
    else:
        rho = torch.from_numpy(cpu.evaluate(programs, signals.numpy(), columns))
    return normalize(rho, dim=1)


def kernel_of(unit: Tensor, sigma2: float) -> Tensor:
    """k = exp(-(1 - k') / sigma2), (B, B), of robustness vectors of length one."""
    return torch.exp((unit @ unit.T - 1) / sigma2)


def pair_loss(similarity: Tensor, target: Tensor, family: Tensor, config: Config) -> Tensor:
    """Weighted mean of (S - K)^2 over all pairs.

    squared: pairs of one family weigh `family_weight`.
    focal: min(|S - K|^gamma / its mean, cap), without a gradient of its own.
    """
    gap = similarity - target
    if config.loss == "squared":
        weight = torch.where(family[:, None] == family, config.family_weight, 1.0)
    else:
        size = gap.detach().abs() ** config.gamma
        weight = (size / size.mean()).clamp(max=config.cap)
    return (weight * gap**2).mean()


def similarity_of(rows: Tensor, config: Config) -> Tensor:
    """What rows that `Encoder.taught` gave say of the kernel, (B, B)."""
    return kernel_of(rows, config.sigma2) if config.head == "landmarks" else rows @ rows.T


def whole_loss(rows: Tensor, target: Tensor, family: Tensor, config: Config) -> Tensor:
    """Of the pairs; of directions a little also of their cosines, which the kernel of unlike formulae
    hardly shows.
    """
    loss = pair_loss(similarity_of(rows, config), target, family, config)
    if config.head == "landmarks":
        cosine = 1 + config.sigma2 * target.clamp(min=1e-30).log()
        gap = (rows @ rows.T - cosine) * (target > 1e-30)
        loss = loss + COSINES * gap.square().mean()
    return loss


# -- several processes -----------------------------------------------------------------------------


def gathered(share: Tensor, rank: int, world: int) -> Tensor:
    """The rows of all processes; a gradient flows to one's own alone.

    Each process differentiates the whole loss by its own rows, so gradients add up over processes.
    """
    if world == 1:
        return share
    rows = [torch.empty_like(share) for _ in range(world)]
    dist.all_gather(rows, share.detach().contiguous())
    rows[rank] = share
    return torch.cat(rows)


def add_gradients(parameters: list[Tensor], world: int) -> None:
    if world > 1:
        for parameter in parameters:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)


# -- the loop --------------------------------------------------------------------------------------


def train(
    config: Config, out: str | Path, report: Callable[[dict[str, Any]], object] | None = None
) -> Encoder:
    """Train, or go on with the run in the folder `out`; the averaged encoder.

    report gets each line of the log, with the formulae a second and the seconds left.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if config.device.startswith("cuda") else "gloo")
    if config.batch % (8 * 8 * world):
        raise RhovecError(f"batch must be a multiple of {64 * world}, not {config.batch}")
    if config.loss not in ("squared", "focal"):
        raise RhovecError(f"loss must be squared or focal, not {config.loss!r}")
    if config.steps < 1:
        raise RhovecError(f"steps must be 1 or more, not {config.steps}")
    if config.head == "landmarks" and config.sigma2 * SHARPNESS != 1:
        raise RhovecError(
            f"landmarks are made for sigma2 = {1 / SHARPNESS:g}, not {config.sigma2:g}; "
            "for another one choose the head projector"
        )
    if config.head == "landmarks" and config.bank < 4 * config.dimension:
        raise RhovecError(
            f"bank must have a formula for each of {4 * config.dimension} landmarks, not {config.bank}"
        )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    device = torch.device(config.device)
    torch.manual_seed(config.seed)
    encoder = Encoder(encoder_config(config)).to(device)
    if config.origin:
        about, tensors = store.read(DEFAULT if config.origin == "shipped" else config.origin)
        there, tensors = with_points(EncoderConfig(**about["encoder"]), tensors, config.points)
        there = replace(there, pooling=config.pooling)  # which has no tensors of its own
        if there.head != config.head:  # the layers go on, and the head begins anew
            there = replace(there, head=config.head)
            tensors = {n: t for n, t in tensors.items() if not n.startswith("head.")}
        begin_with(encoder, encoder.config, there, tensors)
    weights: list[Tensor] = list(encoder.parameters())
    averaged = [p.detach().clone() for p in weights]
    optimisers = make_optimisers(encoder, config)
    if rank == 0:
        open_record(folder, config)
    first, start, spent = resume(folder, encoder, averaged, optimisers)
    valid = Validation(config, device) if rank == 0 else None
    measure = BaseMeasure(n_variables=config.channels, points=config.points)
    generator = torch.Generator(device)
    began = time.perf_counter() - spent
    work_stream = work_ahead(config, start, rank, world)
    loss_of = whole_loss
    if device.type == "cuda":
        for module in (encoder.inputs, *encoder.blocks, encoder.head):
            module.compile(dynamic=False)
        loss_of = torch.compile(whole_loss, dynamic=False)

    def differentiate(tokens: Packed, target: Tensor, family: Tensor) -> tuple[Tensor, Tensor]:
        """Add a batch's gradients; its loss and rows."""
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            rows = encoder.taught(tokens)
        rows = gathered(rows, rank, world)
        loss = loss_of(rows, target, family, config)
        (loss / config.accumulate).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), rows.detach()

    def update() -> None:
        add_gradients(weights, world)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        for optimiser, _ in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def whole_step(tokens: Packed, target: Tensor, family: Tensor) -> tuple[Tensor, Tensor]:
        found = differentiate(tokens, target, family)
        update()
        return found

    def teach(step: int, part: int) -> tuple[Work, Packed, Tensor, Tensor]:
        """The next batch on the device, with its kernel on fresh signals."""
        work = next(work_stream)
        generator.manual_seed((config.seed << 40) + step * config.accumulate + part)
        signals = measure.sample_torch(config.signals, generator, device)
        unit = directions(work.programs, signals, work.code)
        target = kernel_of(gathered(unit, rank, world), config.sigma2)
        tokens = work.tokens.map(lambda t: to_device(t, device))
        return work, tokens, target, to_device(work.family, device)

    alone = device.type == "cuda" and world * config.accumulate == 1
    recorded = Recorded(whole_step) if alone else None
    batches = ((s, p) for s in range(first, config.steps) for p in range(config.accumulate))
    taught = (ahead if alone else map)(lambda batch: teach(*batch), batches)

    for step in range(first, config.steps):
        share = schedule(step, config.warmup, config.steps)
        for optimiser, lr in optimisers:
            for group in optimiser.param_groups:
                group["lr"].fill_(lr * share)
        for _ in range(config.accumulate):
            work, tokens, target, family = next(taught)
            loss, rows = (recorded or differentiate)(tokens, target, family)
        if recorded is None:
            update()
        decay = min(config.average, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(averaged, weights, 1 - decay)

        done = step + 1
        save = done % config.validate == 0 or done == config.steps
        if valid is None:
            continue
        if save or done % config.every == 0:
            line = {"step": done, "seconds": time.perf_counter() - began, "loss": loss.item()}
            line |= metrics(target, similarity_of(rows, config))
            if save:
                line |= valid.measure(averaged)
            rate = (done - first) / (line["seconds"] - spent)
            line["formulae_per_second"] = rate * config.batch * config.accumulate
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            if report:
                report({**line, "seconds_left": (config.steps - done) / rate})
        if save:
            state = {"next": work.next, "seconds": time.perf_counter() - began}
            save_checkpoint(folder, done, tensors_of(encoder, averaged, optimisers), state)
    work_stream.close()
    if valid is not None:
        draw_curves(folder, ("loss", "alignment", "uniformity", "error"))
    return finished(averaged, config, config.bank)


class Validation:
    """Fixed formulae of the validation split over x_0 ... x_2, and their kernel on many signals."""

    def __init__(self, config: Config, device: torch.device):
        self.config = config
        recipe = Recipe(channels=min(3, config.channels), max_nodes=config.nodes)
        numbers = find_families(recipe, 0, min(config.batch, 2048) // recipe.family_size, "valid")
        batch = draw_families(recipe, numbers)
        self.programs, self.family = batch.programs, torch.from_numpy(batch.family).to(device)
        generator = torch.Generator(device).manual_seed(config.seed + 2**62)
        measure = BaseMeasure(n_variables=config.channels, points=config.points)
        signals = measure.sample_torch(8 * config.signals, generator, device)
        self.target = kernel_of(directions(self.programs, signals), config.sigma2)

    def measure(self, averaged: list[Tensor]) -> dict[str, float]:
        """The metrics of the averaged weights."""
        config = self.config
        bank = min(config.bank, GLANCE * 4 * config.dimension)
        vectors = embed(finished(averaged, config, bank), self.programs)
        similarity = vectors @ vectors.T
        loss = pair_loss(similarity, self.target, self.family, config)
        line = {"loss": loss.item(), **metrics(self.target, similarity)}
        return {f"valid_{name}": value for name, value in line.items()}


def metrics(target: Tensor, similarity: Tensor) -> dict[str, float]:
    """The paper's metrics over all pairs of SAMPLE formulae of a batch."""
    some = slice(None, None, max(1, len(target) // SAMPLE))
    k, s = (matrix[some, some].cpu().numpy() for matrix in (target, similarity))
    return {
        "alignment": alignment(k, s), "error": mean_error(k, s),
        "uniformity": uniformity(s), "kernel_uniformity": uniformity(k),
    }  # fmt: skip


def encoder_config(config: Config) -> EncoderConfig:
    return EncoderConfig(**{f.name: getattr(config, f.name) for f in fields(EncoderConfig)})


# -- weights ---------------------------------------------------------------------------------------


def with_points(
    there: EncoderConfig, tensors: dict[str, np.ndarray], points: int
) -> tuple[EncoderConfig, dict[str, np.ndarray]]:
    """An encoder for signals of so many points: bounds that were unknown are as the farthest one."""
    if there.tokens == "tree":
        parts = np.split(tensors["inputs.weight"], np.cumsum(there.tables()))
        rows = np.minimum(np.arange(points + 1), there.points)
        rows[-1] = there.points  # the last row is of its bound and all beyond
        parts[2:4] = parts[2][rows], parts[3][rows]
        tensors = tensors | {"inputs.weight": np.concatenate(parts)}
    return replace(there, points=points), tensors


def begin_with(
    module: torch.nn.Module, asked: Any, there: Any, tensors: dict[str, np.ndarray]
) -> None:
    """Copy a stored model's tensors into a module of the same configuration; others stay."""
    pairs = {f.name: (getattr(there, f.name), getattr(asked, f.name)) for f in fields(asked)}
    differing = [f"{name} {a}, not {b}" for name, (a, b) in pairs.items() if a != b]
    if differing:
        raise RhovecError(f"the origin has {'; '.join(differing)}: set what it has, or begin anew")
    given = {name: torch.from_numpy(array) for name, array in tensors.items()}
    module.load_state_dict(module.state_dict() | given)


def encoder_with(weights: list[Tensor], config: Config) -> Encoder:
    """An encoder of its own (not compiled) with these weights."""
    encoder = Encoder(encoder_config(config)).to(weights[0].device)
    with torch.no_grad():
        torch._foreach_copy_(list(encoder.parameters()), weights)
    return encoder


@torch.no_grad()
def finished(weights: list[Tensor], config: Config, bank: int) -> Encoder:
    """Likewise, with landmarks put in place by the first formulae of the training stream, so many."""
    encoder = encoder_with(weights, config)
    if isinstance(encoder.head, Landmarks):
        device = weights[0].device
        stream = work_ahead(config)
        rows = [
            encoder.taught(work.tokens.map(lambda t: to_device(t, device)))
            for work in islice(stream, -(-bank // config.batch))
        ]
        stream.close()
        encoder.head.settle(torch.cat(rows))
    return encoder


@torch.no_grad()
def embed(encoder: Encoder, programs: Programs, chunk: int = 1024) -> Tensor:
    """Vectors (B, dimension) of a batch of any size, in any operators."""
    programs = programs_in_fragment(programs)
    device = next(encoder.parameters()).device
    parts = []
    for first in range(0, len(programs), chunk):
        part = programs.part(first, min(first + chunk, len(programs)))
        tokens = pack(part, encoder.config)
        parts.append(encoder(tokens.map(lambda t: t.to(device))))
    return torch.cat(parts)


def with_overrides(preset: str, **overrides: Any) -> Config:
    """A preset with some fields changed."""
    if preset not in PRESETS:
        raise RhovecError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    return replace(PRESETS[preset], **{k: v for k, v in overrides.items() if v is not None})
