"""Distil a kernel into the encoder.

    rhovec train encoder --preset default --out RUN --device cuda
    torchrun --nproc-per-node 2 -m rhovec.cli train encoder --out RUN --device cuda

Each step draws fresh formulae (families, and pairs of deep formulae), asks the teacher for their kernel
matrix, on fresh traces, and reduces the difference to the encoder's: the inner products of its vectors,
or the kernel of its directions if the head computes vectors from them at the end. Formulae are drawn,
tokenised and lowered ahead by threads; everything else stays on the device.

With several processes each one embeds its share of the batch, the rows are gathered, and the loss is
over all pairs of the whole batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..corpus.families import Recipe, draw_families, find_families
from ..corpus.stream import prepared
from ..errors import FormulaError, RhovecError
from ..evaluation.metrics import alignment, mean_error, uniformity
from ..evaluation.sets import DRAWN
from ..formula.fragment import programs_in_fragment
from ..formula.programs import Programs
from ..kernel import StlKernel, cosine_of_kernel, kernel_of_cosine
from ..kernel import Teacher as Kernel
from ..models import store
from ..models.config import EncoderConfig
from ..models.encoder import Encoder, Packed, pack
from ..models.heads import Kind, make_head
from .device import mixed, to_device
from .loop import (
    Batch,
    Report,
    RunConfig,
    Task,
    begin_with,
    model_folder,
    part_of,
    rows_to_reserve,
    run,
    with_weights,
)
from .teachers import (
    Teacher,
    TraceTeacher,
    check_kernel,
    gathered,
    kernel_name,
    make_kernel,
    make_teacher,
    robustness,
)

# More equivalents than in the corpus, so that a family has several formulae of the same meaning.
SHARES = (0.05, 0.30, 0.35, 0.30)
DEEP_SHARES = (0.3, 0.5, 0.2, 0.0)  # in pairs of deep formulae
# Eighths of a batch: over the first channels in families and in deep pairs, then over all channels.
PARTS = (1, 4, 2, 1)
OWN_PARTS = (1, 7)  # eighths of a batch for your own traces: in families, and seeds on their own
# Over all channels, and on your own traces: requirements often keep a channel between two thresholds.
BANDS = 0.1
# Seeds that are built as requirements, over the first channels and over all.
REQUIREMENTS = (0.1, 0.4)
OWN_REQUIREMENTS = 0.25  # on your own traces
COSINE_WEIGHT = 0.02  # of the loss on cosines
AIM_WEIGHT = 1.0  # of the loss on directions to aim at, if the teacher has them
AIMED = 8192  # formulae that say which directions these are
GLANCE = 8  # times the smallest bank, on which a head is fitted for a validation
ALIGNED = 32_768  # formulae by which vectors are turned towards those of the origin
SAMPLE = 512  # formulae of a batch whose metrics are logged


@dataclass(frozen=True)
class Config(RunConfig):
    """The fields of the encoder's training; a comment is the field's help on the command line."""

    batch: int = 2048  # formulae per batch, all pairs of which are compared
    accumulate: int = 1  # batches per step
    kernel: str = "robustness"  # the teacher: robustness, boolean or integrated
    block: int = 0  # formulae of a batch that are compared with each other; 0: all of them
    traces: int = 1024  # fresh traces per batch
    late: int = 1  # in the last quarter of the steps there are this many times as many traces
    sigma2: float = 0.2  # of the kernel
    loss: str = "squared"  # squared: pairs of a family weigh more; focal: the paper's
    family_weight: float = 128.0  # squared: weight of pairs of the same family; that of others is 1
    gamma: float = 2.0  # focal: exponent of the weight
    cap: float = 10.0  # focal: the largest weight
    corpus: str = "mixture"  # families with deep pairs (mixture), with seeds, or alone (families)
    lr: float = 2e-3  # learning rate of the layers' matrices after warm-up
    origin: str = ""  # initial weights: a model folder, 'shipped', or empty for random
    tokens: str = "tree"  # tree or text
    pooling: str = "cls"  # cls, bos or mean
    width: int = 320  # of the encoder
    layers: int = 8  # of the encoder
    heads: int = 5  # of the encoder's attention
    head: str = "nystrom"  # nystrom, projector (the paper's), or one of your own
    bank: int = 400_000  # formulae on which the head is fitted at the end


PRESETS = {
    "default": Config(),
    "paper": Config(
        steps=32_000, batch=128, accumulate=4, traces=1000, loss="focal",
        corpus="families", optimiser="adamw", lr=1e-5, adam_lr=1e-5, warmup=500, average=0.0,
        tokens="text", width=1024, layers=12, heads=16, head="projector", channels=3, points=1000,
    ),
    "adapt": Config(
        steps=4000, traces=2048, corpus="seeds", lr=1e-3, warmup=100, average=0.99, origin="shipped",
        bank=100_000, every=100, validate=2000,
    ),
    "adapt-cpu": Config(
        steps=500, batch=256, traces=512, corpus="seeds", lr=1e-3, warmup=20, average=0.97,
        origin="shipped", bank=4096, workers=1, every=10, validate=250,
    ),
    # The model that is fast on a CPU, from random weights.
    "small": Config(steps=100_000, lr=3e-3, width=256, layers=6, heads=4, dimension=512, late=4),
    # The paper's, at half its width, with the four batches of a step in one pass.
    "paper-512": Config(
        steps=32_000, batch=512, block=128, traces=1000, loss="focal",
        corpus="families", optimiser="adamw", lr=1e-5, adam_lr=1e-5, warmup=500, average=0.0,
        tokens="text", width=512, layers=12, heads=16, head="projector", channels=3, points=1000,
    ),
    "tiny": Config(
        steps=300, batch=128, traces=128, lr=5e-3, adam_lr=5e-3, warmup=20,
        width=64, layers=2, heads=2, dimension=128, bank=4096, workers=1, every=20, validate=100,
    ),
}  # fmt: skip


# -- batches ---------------------------------------------------------------------------------------


class Work(NamedTuple):
    """A batch, ready for the device: this process' share of its tokens."""

    asked: Any  # what the teacher prepared
    tokens: Packed
    family: Tensor  # (batch,) int64, of all processes
    next: tuple[int, ...]  # where each recipe continues


def recipes(config: Config) -> list[tuple[Recipe, int]]:
    """The recipes of a batch, and the number of formulae from each.

    mixture: three eighths are families. The others are pairs, most of them equivalent, with depths 1 to
    6 equally often, some of them complete trees. Most use only the first channels (config.focus).
    seeds: pairs are needed where only the kernel of pairs is taught. On your own traces each formula has
    a direction, so seven eighths are seeds, a third as large, over all channels alike. A quarter of the
    seeds, and of the families' seeds, are built as requirements.
    """
    limits: dict[str, Any] = {"max_nodes": config.nodes}
    if config.corpus == "families":
        return [(Recipe(seed=config.seed, channels=config.channels, **limits), config.batch)]
    families: dict[str, Any] = {"shares": SHARES, "opposed": 0.5}
    if config.corpus == "seeds":
        limits |= {"channels": config.channels, "bands": BANDS, "requirements": OWN_REQUIREMENTS}
        seeds: dict[str, Any] = {"family_size": 1, "shares": (1.0, 0.0, 0.0, 0.0)}
        return [
            (Recipe(seed=2 * config.seed + k, **limits, **kind), config.batch * OWN_PARTS[k] // 8)
            for k, kind in enumerate((families, seeds))
        ]
    if config.corpus != "mixture":
        raise RhovecError(f"corpus must be mixture, seeds or families, not {config.corpus!r}")
    deep: dict[str, Any] = {"family_size": 2, "shares": DEEP_SHARES, "full_depth": True}
    bands = [BANDS if channels > 3 else 0.0 for channels in config.widths]
    return [
        (
            Recipe(
                seed=4 * config.seed + 2 * i + k,
                channels=channels,
                bands=bands[i],
                requirements=REQUIREMENTS[i],
                **limits,
                **kind,
            ),
            config.batch * PARTS[2 * i + k] // 8,
        )
        for i, channels in enumerate(config.widths)
        for k, kind in enumerate((families, deep))
    ]


def work_ahead(
    config: Config,
    teacher: Teacher | None = None,
    start: tuple[int, ...] | None = None,
    rank: int = 0,
    world: int = 1,
) -> Generator[Work, None, None]:
    """Batches of the training split, prepared by threads, in an order that the seed fixes.

    A batch that needs more rows than are reserved is skipped, which is rare. Without a teacher `asked`
    is None.
    """
    parts = recipes(config)
    shape = part_of(config, EncoderConfig)
    rows = rows_needed(config, world)

    def prepare(numbers: list[np.ndarray]) -> Work | None:
        whole, family = draw(parts, numbers, config.points)
        programs = whole.part(rank * config.batch // world, (rank + 1) * config.batch // world)
        try:
            tokens = pack(programs, shape, rows)
        except FormulaError:
            return None
        asked = teacher.prepare(whole, programs) if teacher else None
        after = tuple(int(n[-1]) + 1 for n in numbers)
        families = torch.from_numpy(family)
        if config.device.startswith("cuda"):
            tokens, families = tokens.map(Tensor.pin_memory), families.pin_memory()
        else:  # only a recorded step needs tensors of one shape
            tokens = tokens.trimmed()
        return Work(asked, tokens, families, after)

    counts = [(recipe, count // recipe.family_size) for recipe, count in parts]
    return prepared(counts, prepare, start, config.workers)


def draw(
    parts: list[tuple[Recipe, int]], numbers: list[np.ndarray], points: int = DRAWN
) -> tuple[Programs, np.ndarray]:
    """The formulae with these numbers from each recipe, concatenated, and their families.

    In a mixture the thresholds of every sixteenth family are multiplied by up to a thousand, so that
    the model sees formulae that always or never hold. On traces of more than DRAWN points, the windows
    of every second family are stretched to their length.
    """
    batches = [draw_families(recipe, n) for (recipe, _), n in zip(parts, numbers, strict=True)]
    family = np.concatenate([len(parts) * b.family + i for i, b in enumerate(batches)])
    whole = Programs.join([b.programs for b in batches])
    if len(parts) > 1:
        golden = 0.6180339887  # its multiples modulo 1 fill the interval evenly
        factor = np.where(family // len(parts) % 16 == 0, 1000.0 ** (family * golden % 1), 1.0)
        thresholds = whole.thresholds * np.repeat(factor, np.diff(whole.offsets))
        whole = replace(whole, thresholds=thresholds)
        if points > DRAWN:
            whole = whole.stretched(family // len(parts) % 2 == 1, points / DRAWN)
    return whole, family


def rows_needed(config: Config, world: int) -> int:
    """Rows of tokens that suffice for a process' share of nearly every batch."""
    parts = recipes(config)
    most = 0
    for trial in range(8):
        numbers = [
            np.arange(trial * count, trial * count + count // recipe.family_size)
            for recipe, count in parts
        ]
        programs = draw(parts, numbers, config.points)[0]
        share = config.batch // world
        for first in range(0, config.batch, share):
            tokens = pack(programs.part(first, first + share), part_of(config, EncoderConfig))
            most = max(most, len(tokens.owner))
    return rows_to_reserve(most)


# -- loss ------------------------------------------------------------------------------------------


def pair_loss(similarity: Tensor, target: Tensor, family: Tensor, config: Config) -> Tensor:
    """Weighted mean of (S - K)^2 over all pairs.

    squared: pairs of the same family have the weight `family_weight`, others 1.
    focal: the weight is min(|S - K|^gamma / its mean, cap), and no gradient flows through it.
    """
    gap = similarity - target
    if config.loss == "squared":
        weight = torch.where(family[:, None] == family, config.family_weight, 1.0)
    else:
        size = gap.detach().abs() ** config.gamma
        weight = (size / size.mean()).clamp(max=config.cap)
    return (weight * gap**2).mean()


def implied_kernel(rows: Tensor, kind: Kind, sigma2: float) -> Tensor:
    """Kernel matrix (B, B) implied by unit rows of a head."""
    products = rows @ rows.T
    out: Tensor = kernel_of_cosine(products, sigma2) if kind == "cosine" else products
    return out


def total_loss(
    rows: Tensor, target: Tensor, family: Tensor, config: Config, kind: Kind, smallest: float
) -> Tensor:
    """Weighted pair loss, plus a small loss on the cosines if the rows have them.

    For unrelated formulae the kernel is nearly 0 and carries hardly any gradient. smallest: the kernel
    value of the cosine -1; smaller ones, which only a teacher without cosines has, count as this. With
    config.block the loss is the mean over blocks, as if each were a batch of its own. target: as a
    `Teacher` gives it, the kernel and perhaps directions to aim at.
    """
    kernel, aim = target.tensor_split([len(rows)], dim=1)
    if 0 < config.block < len(rows):
        whole = replace(config, block=0)
        places = [slice(i, i + config.block) for i in range(0, len(rows), config.block)]
        losses = [
            total_loss(rows[at], kernel[at, at], family[at], whole, kind, smallest) for at in places
        ]
        loss = torch.stack(losses).mean()
    else:
        loss = pair_loss(implied_kernel(rows, kind, config.sigma2), kernel, family, config)
        if kind == "cosine":
            gap = rows @ rows.T - cosine_of_kernel(kernel.clamp(min=smallest), config.sigma2)
            loss = loss + COSINE_WEIGHT * gap.square().mean()
    if aim.shape[1]:
        loss = loss + AIM_WEIGHT * (rows - aim).square().sum(1).mean()
    return loss


# -- the task --------------------------------------------------------------------------------------


def train(
    config: Config, out: str | Path, report: Report | None = None, kernel: Kernel | None = None
) -> Encoder:
    """Train an encoder, or continue the run in the folder `out`; the encoder with averaged weights.

    kernel: the teacher, any object with `gram(formulae)`; by default the one that config.kernel names.
    report is called with each line of the log, which then also has the seconds left.
    """
    return run(EncoderTask(config, kernel), out, report)


class EncoderTask(Task[Encoder]):
    """Distillation: the encoder's rows against the teacher's kernel."""

    curves = ("loss", "alignment", "uniformity", "error")

    def __init__(self, config: Config, kernel: Kernel | None = None):
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        if self.world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if config.device.startswith("cuda") else "gloo")
        if config.batch % (64 * self.world):
            raise RhovecError(f"batch must be a multiple of {64 * self.world}, not {config.batch}")
        if config.block and config.batch % config.block:
            raise RhovecError(
                f"batch must be a multiple of block, {config.block}, not {config.batch}"
            )
        if config.loss not in ("squared", "focal"):
            raise RhovecError(f"loss must be squared or focal, not {config.loss!r}")
        recipes(config)  # which refuses a corpus that it does not know
        head = make_head(part_of(config, EncoderConfig))
        if kernel is None:
            kernel = make_kernel(config, config.traces)
        else:  # so that the record of the run names it
            config = replace(config, kernel=kernel_name(kernel))
        check_kernel(kernel, config, head)
        if config.bank < head.min_bank:
            raise RhovecError(
                f"bank must be {head.min_bank} or more, as the head {head.name} is fitted on that many "
                f"formulae, not {config.bank}"
            )
        self.config = config
        self.last: tuple[list[Tensor], Encoder] | None = None  # weights, and what they became
        self.accumulate = config.accumulate
        self.device = torch.device(config.device)
        self.kernel = kernel
        self.teacher = make_teacher(kernel, config, self.rank, self.world)
        self.kind = head.kind
        self.smallest = max(float(kernel_of_cosine(-1.0, config.sigma2)), 1e-30)
        self.total_loss: Callable[..., Tensor] = total_loss
        torch.manual_seed(config.seed)
        self.student = Encoder(part_of(config, EncoderConfig)).to(self.device)
        if config.origin:
            self._begin()
        is_aimed = self.kind == "cosine" and type(kernel) is StlKernel
        if is_aimed and isinstance(self.teacher, TraceTeacher):
            self._aim(self.teacher)

    @torch.no_grad()
    def _aim(self, teacher: TraceTeacher) -> None:
        """Let the teacher say directions, and begin with the head that comes nearest to them.

        Traces that are always the same have directions of their own, as in an exact space. To aim at
        them teaches more than the kernel of pairs, of which most are nearly 0.
        """
        count = -(-min(AIMED, self.config.bank) // self.config.batch)
        stream = work_ahead(self.config, teacher)
        found, pooled = [], []
        for work in islice(stream, count):
            programs, code = work.asked
            found.append(robustness(programs, teacher.aimed, code))
            tokens = work.tokens.map(lambda t: to_device(t, self.device))
            pooled.append(self.student.pooled(tokens))
        stream.close()
        features = torch.cat(found)
        basis = teacher.aim(features, self.student.head.head.row_dimension)
        self.student.head.approach(torch.cat(pooled), teacher.directions(features))
        if self.world > 1:  # rounding must not make processes differ
            for tensor in (basis, *self.student.head.parameters()):
                dist.broadcast(tensor, 0)

    def _begin(self) -> None:
        """Start from a stored model, which may have other points, channels, pooling or another head.

        A head that is fitted may also have another dimension, as what is trained does not depend on it.
        """
        config = self.config
        about, tensors = store.read(model_folder(config.origin))
        there, tensors = with_points(EncoderConfig(**about["encoder"]), tensors, config.points)
        there, tensors = with_channels(there, tensors, config.channels)
        there = replace(there, pooling=config.pooling)  # which has no tensors of its own
        if there.head != self.student.config.head:  # keep the layers; the head starts anew
            there = replace(there, head=config.head)
            tensors = {n: t for n, t in tensors.items() if not n.startswith("head.")}
        fitted = tuple(f"head.{name}" for name in make_head(there).fitted)
        if fitted:
            there = replace(there, dimension=config.dimension)
            tensors = {n: t for n, t in tensors.items() if n not in fitted}
        begin_with(self.student, there, tensors)

    def batches(self, start: tuple[int, ...] | None) -> Generator[Work, None, None]:
        return work_ahead(self.config, self.teacher, start, self.rank, self.world)

    def to_device(self, work: Work, number: int) -> Batch:
        """Tokens, the kernel of the whole batch, and its families."""
        late = number >= 0.75 * self.config.steps * self.accumulate
        times = self.config.late if late else 1
        target = self.teacher(work.asked, (self.config.seed << 40) + number, times)
        tokens = work.tokens.map(lambda t: to_device(t, self.device))
        return tokens, target, to_device(work.family, self.device)

    def compile(self) -> None:
        for module in (self.student.inputs, *self.student.blocks):
            module.compile(dynamic=False)
        self.total_loss = torch.compile(total_loss, dynamic=False)

    def loss(self, tokens: Packed, target: Tensor, family: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the rows of the whole batch."""
        with mixed(self.device):
            rows = self.student.rows(tokens)
        rows = gathered(rows.float(), self.rank, self.world)
        loss = self.total_loss(rows, target, family, self.config, self.kind, self.smallest)
        return loss, rows

    def figures(self, batch: Batch, found: Tensor) -> dict[str, float]:
        kernel = batch[1][:, : len(found)]
        return metrics(kernel, implied_kernel(found, self.kind, self.config.sigma2))

    def validation(self) -> Callable[[list[Tensor]], dict[str, float]]:
        """Metrics of fixed formulae of the validation split, over the first channels, on many traces."""
        config = self.config
        recipe = Recipe(channels=config.widths[0], max_nodes=config.nodes)
        numbers = find_families(recipe, 0, min(config.batch, 2048) // recipe.family_size, "valid")
        drawn = draw_families(recipe, numbers)
        programs, family = drawn.programs, torch.from_numpy(drawn.family).to(self.device)
        teacher = make_teacher(self.kernel, config)  # in which other processes do not take part
        asked = teacher.prepare(programs, programs)
        target = teacher(asked, config.seed + 2**62, times=8)
        bank = min(config.bank, GLANCE * self.student.head.head.min_bank)

        def validate(averaged: list[Tensor]) -> dict[str, float]:
            encoder = finished(averaged, config, bank)
            if bank == config.bank:
                self.last = [p.clone() for p in averaged], encoder
            vectors = embed(encoder, programs)
            similarity = vectors @ vectors.T
            loss = pair_loss(similarity, target, family, config)
            found = {"loss": loss.item(), **metrics(target, similarity)}
            if self.kind == "cosine":
                rows = embed(encoder, programs, kind="cosine")
                implied = implied_kernel(rows, self.kind, config.sigma2)
                found["cosine_error"] = metrics(target, implied)["error"]
            return found

        return validate

    def finish(self, averaged: list[Tensor]) -> Encoder:
        if self.last and all(map(torch.equal, self.last[0], averaged)):
            return self.last[1]
        return finished(averaged, self.config, self.config.bank)


def metrics(target: Tensor, similarity: Tensor) -> dict[str, float]:
    """The paper's metrics over all pairs of up to SAMPLE formulae of a batch."""
    some = slice(None, None, max(1, len(target) // SAMPLE))
    k, s = (matrix[some, some].cpu().numpy() for matrix in (target, similarity))
    return {
        "alignment": alignment(k, s), "error": mean_error(k, s),
        "uniformity": uniformity(s), "kernel_uniformity": uniformity(k),
    }  # fmt: skip


# -- weights ---------------------------------------------------------------------------------------


def with_points(
    there: EncoderConfig, tensors: dict[str, np.ndarray], points: int
) -> tuple[EncoderConfig, dict[str, np.ndarray]]:
    """The encoder for traces of another number of points: new bounds are like the last one it had."""
    if there.tokens == "tree":
        parts = np.split(tensors["inputs.weight"], np.cumsum(there.tables()))
        rows = np.minimum(np.arange(points + 1), there.points)
        rows[-1] = there.points  # the last row is for its bound and all beyond
        parts[2:4] = parts[2][rows], parts[3][rows]
        tensors = tensors | {"inputs.weight": np.concatenate(parts)}
    return replace(there, points=points), tensors


def with_channels(
    there: EncoderConfig, tensors: dict[str, np.ndarray], channels: int
) -> tuple[EncoderConfig, dict[str, np.ndarray]]:
    """The encoder for another number of channels; new ones are random mixtures of those it had."""
    if there.tokens == "tree":
        parts = np.split(tensors["inputs.weight"], np.cumsum(there.tables()))
        none, known = parts[1][:1], parts[1][1:]
        middle = known.mean(axis=0)
        new = max(channels - len(known), 0)
        weights = np.random.default_rng(0).standard_normal((new, len(known)))
        mixed = middle + weights @ (known - middle) / np.sqrt(len(known))
        parts[1] = np.concatenate([none, known[:channels], mixed.astype(np.float32)])
        tensors = tensors | {"inputs.weight": np.concatenate(parts)}
    return replace(there, channels=channels), tensors


@torch.no_grad()
def finished(weights: list[Tensor], config: Config, bank: int) -> Encoder:
    """An encoder with these weights, its head fitted on the first `bank` training formulae.

    If it began with a model of the same shape, its vectors are turned towards that model's.
    """
    encoder = with_weights(Encoder(part_of(config, EncoderConfig)), weights)
    if encoder.head.head.min_bank:
        before = origin_of(config)
        rows: list[Tensor] = []
        like: list[tuple[Tensor, Tensor]] = []
        stream = work_ahead(config)
        for work in islice(stream, -(-bank // config.batch)):
            tokens = work.tokens.map(lambda t: to_device(t, weights[0].device))
            rows.append(encoder.rows(tokens))
            if before is not None and len(like) * config.batch < ALIGNED:
                like.append((before.rows(tokens), before(tokens)))
        stream.close()
        there = (torch.cat([r for r, _ in like]), torch.cat([v for _, v in like])) if like else None
        encoder.head.fit(torch.cat(rows), there)
    return encoder


def origin_of(config: Config) -> Encoder | None:
    """The encoder that a training began with, if it has the same shape."""
    if not config.origin:
        return None
    about, tensors = store.read(model_folder(config.origin))
    there, shape = EncoderConfig(**about["encoder"]), part_of(config, EncoderConfig)
    if replace(there, head=make_head(there).name) != shape:
        return None
    encoder = Encoder(shape)
    begin_with(encoder, shape, tensors)
    return encoder.to(config.device)


@torch.no_grad()
def embed(encoder: Encoder, programs: Programs, chunk: int = 1024, kind: Kind = "kernel") -> Tensor:
    """Vectors (B, D) of any number of formulae, in any operators; the kinds are `Model.embed`'s."""
    programs = programs_in_fragment(programs)
    device = next(encoder.parameters()).device
    parts = []
    for first in range(0, len(programs), chunk):
        part = programs.part(first, min(first + chunk, len(programs)))
        tokens = pack(part, encoder.config)
        compute = encoder.rows if kind == "cosine" else encoder
        parts.append(compute(tokens.map(lambda t: t.to(device))))
    return torch.cat(parts)
