"""Train the decoder: from vectors back to formulae.

    rhovec train decoder --preset default --out RUN --device cuda

Each step draws fresh formulae, gets their vectors from the frozen encoder (or as exact kernel values to
fixed anchors), and teaches the decoder to write the simplest equivalent of each. Many formulae share a
vector; the task can be learnt because all of them have the same target. For a rewritten formula the
target is the simplest form of its seed.

Sequences are packed into rows of a fixed width, each behind the tokens of its vector, so that there is
little padding and a step can be recorded once and replayed. Formulae are drawn, simplified and tokenised
ahead by threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..corpus.canonical import canonical
from ..corpus.families import (
    EQUIVALENT,
    KINDS,
    PERTURBED,
    SEED,
    Recipe,
    draw_families,
    find_families,
)
from ..corpus.stream import prepared
from ..errors import FormulaError, RhovecError
from ..evaluation.sets import DRAWN
from ..formula.core import Formula
from ..formula.programs import Programs
from ..formula.shape import plain_or_compiled
from ..models import store
from ..models.config import MAX_THRESHOLD
from ..models.decoder import Decoder
from ..models.decoder_config import DecoderConfig
from ..models.encoder import Packed
from ..models.inverter import as_written, in_steps
from ..tokens import prefix, text
from ..tokens.tree import first_fit
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
from .vectors import VectorSource, corpus_recipe, vector_source

IGNORED = -100  # label of a token that has no target
# Sixteenths of a batch over the first channels, and again over all: formulae of all depths equally
# often, seeds of the corpus, seeds with other numbers, and rewritten ones.
PARTS = (4, 1, 1, 2)


@dataclass(frozen=True)
class Config(RunConfig):
    """The fields of the decoder's training; a comment is the field's help on the command line."""

    steps: int = 60_000  # optimiser steps
    batch: int = 1024  # formulae per step
    vectors: str = "neural"  # neural: the encoder's; anchors: exact kernel values to fixed formulae
    model: str = ""  # the encoder: a model folder, or 'small'; the default model if empty
    fingerprint: str = ""  # of that model, which must stay the same; follows from it
    traces: int = 2048  # anchors: traces of the kernel
    sigma2: float = 0.2  # anchors: of the kernel
    noise: float = 0.05  # expected length of the noise that is added to a unit vector
    corpus: str = "simplest"  # simplest: simplest forms as targets; families: the corpus as it is
    origin: str = ""  # initial weights: a folder with a decoder, 'shipped', or empty for random
    tokens: str = "prefix"  # prefix or text
    width: int = 256  # of the decoder
    layers: int = 7  # of the decoder
    heads: int = 4  # of the decoder's attention
    prefix: int = 6  # tokens that the vector becomes
    length: int = 160  # tokens of the longest formula
    shown: int = 64  # validation formulae that are decoded


PRESETS = {
    "default": Config(),
    # For a model of your own traces.
    "adapt": Config(steps=4000, origin="shipped"),
    "adapt-cpu": Config(
        steps=500, batch=128, warmup=20, average=0.97, origin="shipped", workers=1, every=10,
        validate=250,
    ),
    "anchors": Config(vectors="anchors"),
    "text": Config(
        batch=256, noise=0.0, corpus="families", optimiser="adamw", lr=1e-4, adam_lr=1e-4, warmup=500,
        average=0.0, tokens="text", width=1024, layers=12, heads=16, prefix=1, length=512,
        channels=3,
    ),
    "tiny": Config(
        steps=300, batch=128, lr=5e-3, adam_lr=5e-3, warmup=20, width=64, layers=2, heads=2,
        workers=1, every=20, validate=100,
    ),
}  # fmt: skip


# -- batches ---------------------------------------------------------------------------------------


class Work(NamedTuple):
    """A batch, ready for the device."""

    asked: Any  # what the source of vectors prepared
    rows: Packed  # the decoder's input, as described at `pack_rows`
    labels: Tensor  # (R, W) int64: the next token, or IGNORED
    next: tuple[int, ...]  # where each recipe continues


def recipes(config: Config) -> list[tuple[Recipe, int]]:
    """The recipes of a batch, one formula per family, and the number of formulae from each."""
    if config.corpus == "families":
        return [(corpus_recipe(config, config.seed, config.channels), config.batch)]
    if config.corpus != "simplest":
        raise RhovecError(f"corpus must be simplest or families, not {config.corpus!r}")
    kinds = ((SEED, True), (SEED, False), (PERTURBED, False), (EQUIVALENT, False))
    return [
        (
            replace(
                corpus_recipe(config, 8 * config.seed + 4 * i + k, channels),
                shares=tuple(float(j == kind) for j in range(len(KINDS))), full_depth=full_depth,
            ),
            config.batch * PARTS[k] // 16,
        )
        for i, channels in enumerate(config.widths)
        for k, (kind, full_depth) in enumerate(kinds)
    ]  # fmt: skip


def draw(
    parts: list[tuple[Recipe, int]], numbers: list[np.ndarray], points: int
) -> tuple[Programs, Programs]:
    """The formulae with these numbers from each recipe, concatenated, and their targets, with bounds as
    a decoder writes them. On traces of more than DRAWN points, the windows of every second formula are
    stretched to their length.
    """
    given, targets = [], []
    for (recipe, _), chosen in zip(parts, numbers, strict=True):
        given.append(draw_families(recipe, chosen).programs)
        if recipe.shares[EQUIVALENT] == 1:
            seeds = replace(recipe, shares=(1.0, 0.0, 0.0, 0.0))
            targets.append(draw_families(seeds, chosen).programs)
        else:
            targets.append(given[-1])
    whole, asked = Programs.join(targets), Programs.join(given)
    if len(parts) == 1:
        return asked, whole
    if points > DRAWN:
        long = np.concatenate(numbers) % 2 == 1
        asked, whole = (each.stretched(long, points / DRAWN) for each in (asked, whole))
    return asked, as_written(canonical(whole, points), points)


def pack_rows(
    targets: Programs, config: DecoderConfig, rows: int | None = None
) -> tuple[Packed, Tensor]:
    """The decoder's input and labels (R, W) for B sequences; rows fixes R.

    A sequence is `prefix` places for its vector, then its tokens except END. `pick` lists those places,
    one sequence after the other. Of a sequence that is too long there are only the places of its vector.
    """
    symbols, starts, lengths = sequences(targets, config)
    lengths = np.where(lengths <= config.length, lengths - 1, 0)
    width = -(-(config.prefix + config.length - 1) // 8) * 8
    first, used = plain_or_compiled(first_fit, True)(lengths + config.prefix, width)
    if rows is None:
        rows = used
    elif used > rows:
        raise FormulaError(f"the batch needs {used} rows of {width} tokens, more than {rows}")
    ids = np.zeros((rows * width, 2), np.int16)
    owner = np.full(rows * width, -1, np.int32)
    labels = np.full(rows * width, IGNORED, np.int64)
    front = (first[:, None] + np.arange(config.prefix)).ravel()
    owner[front] = np.repeat(np.arange(len(first)), config.prefix)
    who = np.repeat(np.arange(len(first)), lengths)
    place = np.arange(len(who)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at, source = first[who] + config.prefix + place, starts[who] + place
    owner[at], labels[at] = who, symbols[source + 1]
    ids[at, 0], ids[at, 1] = symbols[source], place
    shape = (rows, width)
    packed = Packed(
        torch.from_numpy(ids).view(*shape, 2), None, None,
        torch.from_numpy(owner).view(shape), torch.from_numpy(front.astype(np.int32)),
    )  # fmt: skip
    return packed, torch.from_numpy(labels).view(shape)


def sequences(
    programs: Programs, config: DecoderConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of all formulae, the index of each formula's first (B,), and their numbers (B,)."""
    if config.tokens == "text":
        tokens = text.text_tokens(programs)
        return tokens.symbol.ravel(), tokens.bos.astype(np.int64), tokens.length.astype(np.int64)
    width = max(config.length, int(prefix.prefix_lengths(programs).max()))
    ids, lengths = prefix.prefix_tokens(programs, width)
    return ids.ravel(), np.arange(len(ids)) * width, lengths


def work_ahead(
    config: Config, source: VectorSource, start: tuple[int, ...] | None = None
) -> Generator[Work, None, None]:
    """Batches of the training split, prepared by threads, in an order that the seed fixes.

    A batch that needs more rows than are reserved is skipped, which is rare.
    """
    parts = recipes(config)
    shape = part_of(config, DecoderConfig)
    trials = [
        draw(parts, [np.arange(trial * n, trial * n + n) for _, n in parts], config.points)
        for trial in range(8)
    ]
    source.set_aside([given for given, _ in trials])
    rows = rows_to_reserve(max(len(pack_rows(targets, shape)[0].owner) for _, targets in trials))

    def prepare(numbers: list[np.ndarray]) -> Work | None:
        given, targets = draw(parts, numbers, config.points)
        try:
            asked, (packed, labels) = source.prepare(given), pack_rows(targets, shape, rows)
        except FormulaError:
            return None
        if config.device.startswith("cuda"):
            packed, labels = packed.map(Tensor.pin_memory), labels.pin_memory()
        else:  # only a recorded step needs tensors of one shape
            packed = packed.trimmed()
            labels = labels[: len(packed.owner)]
        return Work(asked, packed, labels, tuple(int(n[-1]) + 1 for n in numbers))

    return prepared(parts, prepare, start, config.workers)


# -- loss ------------------------------------------------------------------------------------------


def inputs(decoder: Decoder, rows: Packed, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (R, W, width), and whether token i may attend to token j, (R, 1, W, W)."""
    ids = rows.ids.long()
    # A product with one-hot rows: its gradient is faster than the scattered one of a look-up.
    x = F.one_hot(ids[..., 0], len(decoder.token.weight)).to(vectors.dtype) @ decoder.token.weight
    x = x + F.one_hot(ids[..., 1], len(decoder.place.weight)).to(x.dtype) @ decoder.place.weight
    front = decoder.vector(vectors).view(-1, x.shape[-1])
    flat = x.float().flatten(0, 1).index_copy(0, rows.pick.long(), front.float())
    owner = rows.owner
    causal = torch.ones(
        owner.shape[1], owner.shape[1], dtype=torch.bool, device=owner.device
    ).tril()
    visible = (owner[:, None, :, None] == owner[:, None, None, :]) & causal
    return flat.view(x.shape), visible


def outputs(decoder: Decoder, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of all labels, and the share of them that are the likeliest token."""
    logits = decoder.output(decoder.norm(x)).float().flatten(0, 1)
    wanted = labels.flatten()
    loss = F.cross_entropy(logits, wanted, ignore_index=IGNORED)
    known = wanted != IGNORED
    right = ((logits.argmax(-1) == wanted) & known).sum() / known.sum()
    return loss, right


def token_loss(
    decoder: Decoder, rows: Packed, vectors: Tensor, labels: Tensor, ends: Any = (inputs, outputs)
) -> tuple[Tensor, Tensor]:
    """Loss and accuracy per token of packed sequences; the computation is `Decoder.forward`'s.

    ends: the functions `inputs` and `outputs`, possibly compiled.
    """
    x, visible = ends[0](decoder, rows, vectors)
    for block in decoder.blocks:
        x = block(x, visible)
    loss, right = ends[1](decoder, x, labels)
    return loss, right


def disturbed(vectors: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Unit rows plus Gaussian noise of this expected length, scaled to length one again."""
    if noise == 0:
        return vectors
    random = torch.randn(vectors.shape, generator=generator, device=vectors.device)
    return F.normalize(vectors + noise * vectors.shape[1] ** -0.5 * random, dim=1)


# -- the task --------------------------------------------------------------------------------------


def train(config: Config, out: str | Path, report: Report | None = None) -> Decoder:
    """Train a decoder, or continue the run in the folder `out`; the decoder with averaged weights.

    report is called with each line of the log, which then also has the seconds left.
    """
    return run(DecoderTask(for_model(config)), out, report)


class DecoderTask(Task[Decoder]):
    """Inversion: cross-entropy of the tokens of each formula's simplest form, given its vector."""

    curves = ("loss", "accuracy", "exact", "cosine")

    def __init__(self, config: Config):
        if config.batch % 16:
            raise RhovecError(f"batch must be a multiple of 16, not {config.batch}")
        recipes(config)  # which refuses a corpus that it does not know
        self.config = config
        self.device = torch.device(config.device)
        self.source = vector_source(config)
        self.generator = torch.Generator(self.device)
        self.ends: Any = (inputs, outputs)
        torch.manual_seed(config.seed)
        self.student = Decoder(part_of(config, DecoderConfig)).to(self.device)
        if config.origin:
            stored = store.read_decoder(model_folder(config.origin))
            if stored is None:
                raise RhovecError(f"the model in {config.origin} has no decoder to start from")
            if stored[0].dimension != config.dimension:
                raise RhovecError(
                    f"the decoder of the origin {config.origin} reads vectors of {stored[0].dimension} "
                    f"numbers, and the model makes {config.dimension}; leave origin empty, to start "
                    "from random weights"
                )
            begin_with(self.student, *stored)

    def batches(self, start: tuple[int, ...] | None) -> Generator[Work, None, None]:
        return work_ahead(self.config, self.source, start)

    def to_device(self, work: Work, number: int) -> Batch:
        """Packed sequences, their vectors with noise, and labels."""
        self.generator.manual_seed((self.config.seed << 40) + number)
        vectors = disturbed(self.source(work.asked), self.config.noise, self.generator)
        rows = work.rows.map(lambda t: to_device(t, self.device))
        return rows, vectors, to_device(work.labels, self.device)

    def compile(self) -> None:
        self.ends = [torch.compile(end, dynamic=False) for end in self.ends]
        for block in self.student.blocks:
            block.compile(dynamic=False)

    def loss(self, rows: Packed, vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and accuracy per token."""
        with mixed(self.device):
            return token_loss(self.student, rows, vectors, labels, self.ends)

    def figures(self, batch: Batch, found: Tensor) -> dict[str, float]:
        return {"accuracy": found.item()}

    def validation(self) -> Callable[[list[Tensor]], dict[str, float]]:
        valid = Validation(self.config, self.source)
        return lambda averaged: valid.measure(self.finish(averaged))

    def finish(self, averaged: list[Tensor]) -> Decoder:
        return with_weights(Decoder(part_of(self.config, DecoderConfig)), averaged)


def for_model(config: Config) -> Config:
    """The configuration with the fingerprint of its encoder, and if it names one, with its channels,
    points and dimension.

    In a model of your own traces no channel comes first.
    """
    if config.vectors != "neural":
        return config
    about = store.read(model_folder(config.model))[0]
    config = replace(config, fingerprint=store.fingerprint(about))
    if not config.model:
        return config
    said = {name: about["encoder"][name] for name in ("channels", "points", "dimension")}
    if "schema" in about:
        said["focus"] = said["channels"]
    return replace(config, **said)


class Validation:
    """Fixed formulae of the validation split, with their vectors and targets."""

    def __init__(self, config: Config, source: VectorSource, count: int = 256):
        self.config, self.source = config, source
        parts = recipes(replace(config, batch=count))
        numbers = [find_families(recipe, 0, n, "valid") for recipe, n in parts]
        given, self.targets = draw(parts, numbers, config.points)
        self.vectors = source.embed(given)

    def measure(self, decoder: Decoder) -> dict[str, float]:
        """Loss and accuracy per token; for greedily written formulae, the shares that are valid and
        that are the target, and the inner product of their vectors with the given ones, 0 if not valid.
        """
        device = self.vectors.device
        rows, labels = pack_rows(self.targets, decoder.config)
        with torch.no_grad():
            loss, right = token_loss(
                decoder, rows.map(lambda t: t.to(device)), self.vectors, labels.to(device)
            )
        some = np.arange(0, len(self.targets), max(1, len(self.targets) // self.config.shown))
        channels = self.config.channels
        written = [readable(phi, channels) for phi in greedy(decoder, self.vectors[some])]
        targets = self.targets.unpack()
        cosines = np.zeros(len(some))
        valid = [i for i, phi in enumerate(written) if phi is not None]
        if valid:
            readable_ones = Programs.pack([written[i] for i in valid])  # type: ignore[misc]
            again = self.source.embed(in_steps(readable_ones, self.config.points))
            cosines[valid] = (again * self.vectors[some[valid]]).sum(1).cpu().numpy()
        exact = [phi == targets[i] for phi, i in zip(written, some.tolist(), strict=True)]
        return {
            "loss": loss.item(), "accuracy": right.item(), "valid": len(valid) / len(some),
            "exact": float(np.mean(exact)), "cosine": float(cosines.mean()),
            "median_cosine": float(np.median(cosines)),
        }  # fmt: skip


@torch.no_grad()
def greedy(decoder: Decoder, vectors: Tensor) -> list[Formula | None]:
    """Formulae of the likeliest tokens; prefix tokens follow the grammar, so they never give None."""
    config, device = decoder.config, vectors.device
    by_text = config.tokens == "text"
    module: Any = text if by_text else prefix
    padding = text.PADDING if by_text else prefix.PAD
    grammar = None if by_text else prefix.Grammar(len(vectors), 63, 20, config.length)
    ids = torch.full((len(vectors), config.length), padding, device=device)
    ids[:, 0] = module.BEGIN
    active = torch.arange(len(vectors), device=device)  # sequences that have not ended
    for t in range(1, config.length):
        logits = decoder(vectors[active], ids[active, :t])[:, -1]
        if grammar:
            allowed = torch.from_numpy(grammar.allowed()).to(device)
            logits = logits.masked_fill(~allowed, -torch.inf)
        chosen = logits.argmax(-1)
        ids[active, t] = chosen
        (going,) = (chosen != module.END).nonzero(as_tuple=True)
        active = active[going]
        if grammar:
            grammar.advance(chosen.cpu().numpy())
            grammar.take(going.cpu().numpy())
        if not len(active):
            break
    return [_read(row, by_text) for row in ids.tolist()]


def _read(ids: Sequence[int], by_text: bool) -> Formula | None:
    if not by_text:
        return prefix.from_prefix(ids)
    try:
        return text.from_tokens(ids[: ids.index(text.END) + 1])
    except ValueError:  # no END, or not a formula
        return None


def readable(phi: Formula | None, channels: int) -> Formula | None:
    """The formula, or None if it has no vector: text may hold x_0 > x_1, x_9 or 60 digits."""
    if phi is None or abs(phi.thresholds).max() > MAX_THRESHOLD:
        return None
    known = {((f"x_{i}", 1.0),) for i in range(channels)}
    return phi if known.issuperset(phi.channels) else None
