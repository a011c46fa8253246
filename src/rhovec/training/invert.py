"""Train the decoder: from vectors back to formulae.

    rhovec train decoder --preset default --out RUN --device cuda

Each step draws fresh formulae, lets the frozen encoder (or the exact kernel to fixed anchors) give
their vectors, and teaches the decoder to write the simplest equivalent of each. Many formulae share a
vector; that all of them have one target is what makes the task learnable. For a rewritten formula the
target is the simplest form of its seed.

Sequences are packed into rows of a fixed width, each with the tokens of its vector in front, so that
little goes to padding and a step is recorded once and replayed. Formulae are drawn, simplified and
tokenised ahead by threads. Everything random follows from the seed and the step, so a run that is
killed goes on from its checkpoint as if nothing had happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, fields, replace
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
from ..formula.core import Formula
from ..formula.programs import Programs
from ..formula.shape import plain_or_compiled
from ..models import store
from ..models.config import EncoderConfig
from ..models.decoder import Decoder
from ..models.decoder_config import DecoderConfig
from ..models.encoder import Encoder, Packed, pack
from ..models.model import DEFAULT
from ..robustness import lowering
from ..signals import BaseMeasure
from ..tokens import prefix, text
from ..tokens.tree import first_fit
from .device import Recorded, to_device
from .distill import BANDS, begin_with, directions, embed
from .optimisers import make_optimisers, schedule
from .records import (
    draw_curves,
    environment,
    open_record,
    resume,
    save_checkpoint,
    tensors_of,
)

IGNORED = -100  # a label that is none
ANCHOR_SEED = 20_000  # of the anchors and of the signals that they are compared on
# Sixteenths of a batch over x_0 ... x_2, and again over all channels: formulae of all depths alike,
# the corpus' seeds, those with other numbers, and rewritten ones.
PARTS = (4, 1, 1, 2)


@dataclass(frozen=True)
class Config:
    """One line of help a field; the command line is made from it."""

    steps: int = 60_000  # optimiser steps
    batch: int = 1024  # formulae a step
    vectors: str = "neural"  # neural: the encoder's; anchors: exact kernel values to fixed formulae
    model: str = ""  # folder of the encoder; empty: the shipped one
    signals: int = 2048  # anchors: trajectories of the kernel
    sigma2: float = 0.2  # anchors: of the kernel
    noise: float = 0.05  # expected length of what is added to a unit vector
    corpus: str = "simplest"  # simplest: simplest forms as targets; families: the corpus as it is
    optimiser: str = "muon"  # for the matrices of the layers: muon or adamw
    lr: float = 1e-3  # for the matrices of the layers, reached after warm-up
    adam_lr: float = 1e-3  # of AdamW, for all else
    warmup: int = 300  # steps
    average: float = 0.999  # decay of the averaged weights, which are the result; 0: the last ones
    origin: str = ""  # folder of a model whose decoder to begin with; empty: random weights
    tokens: str = "prefix"  # prefix or text
    width: int = 256  # of the decoder
    layers: int = 7  # of the decoder
    heads: int = 4  # of the decoder
    prefix: int = 6  # tokens that the vector becomes
    dimension: int = 1024  # of the vectors, which is the number of anchors
    length: int = 160  # tokens of the longest formula
    channels: int = 8  # variables a formula may use
    points: int = 100  # of a trajectory
    nodes: int = 63  # of the largest formula
    workers: int = 8  # threads that prepare batches
    every: int = 200  # steps between lines of the log
    validate: int = 2000  # steps between validations and checkpoints
    shown: int = 64  # validation formulae that are decoded
    seed: int = 0
    device: str = "cpu"


PRESETS = {
    "default": Config(),
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
    rows: Packed  # the decoder's input, as `pack_rows` says
    labels: Tensor  # (R, W) int64: the next token, or IGNORED
    next: tuple[int, ...]  # where each recipe goes on


def recipes(config: Config) -> list[tuple[Recipe, int]]:
    """What a batch is drawn from, one formula a family, and how many formulae each gives."""
    if config.corpus == "families":
        return [(_recipe(config, config.seed, config.channels), config.batch)]
    if config.corpus != "simplest":
        raise RhovecError(f"corpus must be simplest or families, not {config.corpus!r}")
    kinds = ((SEED, True), (SEED, False), (PERTURBED, False), (EQUIVALENT, False))
    return [
        (
            replace(
                _recipe(config, 8 * config.seed + 4 * i + k, channels),
                shares=tuple(float(j == kind) for j in range(len(KINDS))), full_depth=full_depth,
            ),
            config.batch * PARTS[k] // 16,
        )
        for i, channels in enumerate((min(3, config.channels), config.channels))
        for k, (kind, full_depth) in enumerate(kinds)
    ]  # fmt: skip


def _recipe(config: Config, seed: int, channels: int) -> Recipe:
    bands = BANDS if channels > 3 else 0.0
    return Recipe(seed=seed, family_size=1, channels=channels, max_nodes=config.nodes, bands=bands)


def draw(
    parts: list[tuple[Recipe, int]], numbers: list[np.ndarray], points: int
) -> tuple[Programs, Programs]:
    """The formulae with these numbers of each recipe, one after the other, and their targets."""
    given, targets = [], []
    for (recipe, _), chosen in zip(parts, numbers, strict=True):
        given.append(draw_families(recipe, chosen).programs)
        if recipe.shares[EQUIVALENT] == 1:
            seeds = replace(recipe, shares=(1.0, 0.0, 0.0, 0.0))
            targets.append(draw_families(seeds, chosen).programs)
        else:
            targets.append(given[-1])
    whole = joined(targets)
    return joined(given), canonical(whole, points) if len(parts) > 1 else whole


def joined(parts: list[Programs]) -> Programs:
    """One batch of several, whose channels must be x_0, x_1, ... in order."""
    sizes = np.concatenate([np.diff(p.offsets) for p in parts])
    return Programs(
        np.concatenate([p.code for p in parts]),
        np.concatenate([p.thresholds for p in parts]),
        np.concatenate([[0], np.cumsum(sizes)]),
        max((p.channels for p in parts), key=len),
    )


def pack_rows(
    targets: Programs, config: DecoderConfig, rows: int | None = None
) -> tuple[Packed, Tensor]:
    """Decoder input and labels (R, W) of B sequences; rows fixes R.

    A sequence is `prefix` places for its vector, then its tokens but END. `pick` are those places, of
    all sequences in turn. A sequence that is too long is left out but for the places of its vector.
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
    """(tokens of all formulae, where each formula's begin (B,), how many they are (B,))."""
    if config.tokens == "text":
        tokens = text.text_tokens(programs)
        return tokens.symbol.ravel(), tokens.bos.astype(np.int64), tokens.length.astype(np.int64)
    width = max(config.length, int(prefix.prefix_lengths(programs).max()))
    ids, lengths = prefix.prefix_tokens(programs, width)
    return ids.ravel(), np.arange(len(ids)) * width, lengths


def work_ahead(
    config: Config, source: Neural | Anchors, start: tuple[int, ...] | None = None
) -> Generator[Work, None, None]:
    """Batches of the training split, prepared by threads, in an order that the seed fixes.

    A batch that needs more rows than are set aside (rare) is passed over.
    """
    parts = recipes(config)
    shape = decoder_config(config)
    trials = [
        draw(parts, [np.arange(trial * n, trial * n + n) for _, n in parts], config.points)
        for trial in range(8)
    ]
    source.set_aside([given for given, _ in trials])
    rows = _more(max(len(pack_rows(targets, shape)[0].owner) for _, targets in trials))

    def prepare(numbers: list[np.ndarray]) -> Work | None:
        given, targets = draw(parts, numbers, config.points)
        try:
            asked, (packed, labels) = source.prepare(given), pack_rows(targets, shape, rows)
        except FormulaError:
            return None
        if config.device.startswith("cuda"):
            packed, labels = packed.map(Tensor.pin_memory), labels.pin_memory()
        return Work(asked, packed, labels, tuple(int(n[-1]) + 1 for n in numbers))

    return prepared(parts, prepare, start, config.workers)


def _more(rows: int) -> int:
    """3 % more than the most of the trial batches."""
    return -(-int(1.03 * rows + 1) // 8) * 8


# -- vectors ---------------------------------------------------------------------------------------


class Neural:
    """The vectors of a frozen encoder; on a GPU in bfloat16, whose error is below the noise."""

    def __init__(self, config: Config):
        about, tensors = store.read(config.model or DEFAULT)
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
        """Fix the rows that a batch may need."""
        self.rows = _more(max(len(pack(programs, self.config).owner) for programs in trials))

    def prepare(self, programs: Programs) -> Packed:
        tokens = pack(programs, self.config, self.rows)
        return tokens.map(Tensor.pin_memory) if self.device.type == "cuda" else tokens

    @torch.no_grad()
    def __call__(self, asked: Packed) -> Tensor:
        """Unit rows (B, dimension)."""
        cuda = self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=cuda):
            out: Tensor = self.quick(asked.map(lambda t: to_device(t, self.device)))
        return out

    def embed(self, programs: Programs) -> Tensor:
        """Of any number of formulae, in full precision."""
        return embed(self.encoder, programs)


class Anchors:
    """Exact kernel values to as many fixed formulae as a vector has numbers, of length one.

    Anchors are seeds of the corpus, half over x_0 ... x_2, half over all channels.
    """

    def __init__(self, config: Config):
        self.device = torch.device(config.device)
        self.sigma2, self.points = config.sigma2, config.points
        measure = BaseMeasure(n_variables=config.channels, points=config.points)
        signals = measure.sample(config.signals, seed=ANCHOR_SEED)
        self.signals = torch.from_numpy(signals).to(self.device)
        three, all_channels = np.array_split(np.arange(config.dimension), 2)
        self.anchors = joined([
            draw_families(
                replace(
                    _recipe(config, ANCHOR_SEED, channels), shares=(1.0, 0.0, 0.0, 0.0),
                    full_depth=True,
                ),
                numbers,
            ).programs
            for channels, numbers in (
                (min(3, config.channels), three), (config.channels, all_channels),
            )
        ])  # fmt: skip
        self.unit = directions(self.anchors, self.signals)  # (dimension, signals)

    def set_aside(self, trials: list[Programs]) -> None:
        """Nothing: the exact engine takes what comes."""

    def prepare(self, programs: Programs) -> tuple[Programs, lowering.Instructions]:
        return programs, lowering.lower(programs, self.points, trace=False, strict=False)

    def __call__(self, asked: tuple[Programs, lowering.Instructions]) -> Tensor:
        """Unit rows (B, dimension)."""
        unit = directions(asked[0], self.signals, asked[1])
        return F.normalize(torch.exp((unit @ self.unit.T - 1) / self.sigma2), dim=1)

    def embed(self, programs: Programs) -> Tensor:
        return self(self.prepare(programs))


def vector_source(config: Config) -> Neural | Anchors:
    if config.vectors not in ("neural", "anchors"):
        raise RhovecError(f"vectors must be neural or anchors, not {config.vectors!r}")
    return Neural(config) if config.vectors == "neural" else Anchors(config)


# -- the loss --------------------------------------------------------------------------------------


def inputs(decoder: Decoder, rows: Packed, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (R, W, width), and (R, 1, W, W) whether token i may see token j."""
    ids = rows.ids.long()
    # Looking up is multiplying by ones and zeros, whose gradient is quicker than a scattered one.
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
    """(mean cross-entropy, share of right first guesses) of all labels."""
    logits = decoder.output(decoder.norm(x)).float().flatten(0, 1)
    wanted = labels.flatten()
    loss = F.cross_entropy(logits, wanted, ignore_index=IGNORED)
    known = wanted != IGNORED
    right = ((logits.argmax(-1) == wanted) & known).sum() / known.sum()
    return loss, right


def token_loss(
    decoder: Decoder, rows: Packed, vectors: Tensor, labels: Tensor, ends: Any = (inputs, outputs)
) -> tuple[Tensor, Tensor]:
    """What `Decoder.forward` says of packed sequences, as loss and accuracy a token.

    ends: the functions `inputs` and `outputs`, which may be compiled.
    """
    x, visible = ends[0](decoder, rows, vectors)
    for block in decoder.blocks:
        x = block(x, visible)
    loss, right = ends[1](decoder, x, labels)
    return loss, right


def disturbed(vectors: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Unit rows with Gaussian noise of that expected length, of length one again."""
    if noise == 0:
        return vectors
    random = torch.randn(vectors.shape, generator=generator, device=vectors.device)
    return F.normalize(vectors + noise * vectors.shape[1] ** -0.5 * random, dim=1)


# -- the loop --------------------------------------------------------------------------------------


def train(
    config: Config, out: str | Path, report: Callable[[dict[str, Any]], object] | None = None
) -> Decoder:
    """Train, or go on with the run in the folder `out`; the averaged decoder.

    report gets each line of the log, with the formulae a second and the seconds left.
    """
    if config.batch % 16:
        raise RhovecError(f"batch must be a multiple of 16, not {config.batch}")
    if config.steps < 1:
        raise RhovecError(f"steps must be 1 or more, not {config.steps}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    device = torch.device(config.device)
    source = vector_source(config)
    torch.manual_seed(config.seed)
    decoder = Decoder(decoder_config(config)).to(device)
    if config.origin:
        stored = store.read_decoder(config.origin)
        if stored is None:
            raise RhovecError(f"the model in {config.origin} has no decoder to begin with")
        begin_with(decoder, decoder.config, *stored)
    weights: list[Tensor] = list(decoder.parameters())
    averaged = [p.detach().clone() for p in weights]
    optimisers = make_optimisers(decoder, config)
    open_record(folder, config)
    first, start, spent = resume(folder, decoder, averaged, optimisers)
    valid = Validation(config, source)
    generator = torch.Generator(device)
    began = time.perf_counter() - spent
    work_stream = work_ahead(config, source, start)
    ends: Any = (inputs, outputs)
    if device.type == "cuda":
        ends = [torch.compile(end, dynamic=False) for end in ends]
        for block in decoder.blocks:
            block.compile(dynamic=False)

    def step_of(rows: Packed, vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """One optimiser step; loss and accuracy a token."""
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, right = token_loss(decoder, rows, vectors, labels, ends)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        for optimiser, _ in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return loss.detach(), right

    run_step = Recorded(step_of) if device.type == "cuda" else step_of
    for step in range(first, config.steps):
        share = schedule(step, config.warmup, config.steps)
        for optimiser, lr in optimisers:
            for group in optimiser.param_groups:
                group["lr"].fill_(lr * share)
        work = next(work_stream)
        generator.manual_seed((config.seed << 40) + step)
        vectors = disturbed(source(work.asked), config.noise, generator)
        rows = work.rows.map(lambda t: to_device(t, device))
        loss, right = run_step(rows, vectors, to_device(work.labels, device))
        decay = min(config.average, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(averaged, weights, 1 - decay)

        done = step + 1
        save = done % config.validate == 0 or done == config.steps
        if save or done % config.every == 0:
            line = {"step": done, "seconds": time.perf_counter() - began, "loss": loss.item()}
            line["accuracy"] = right.item()
            if save:
                line |= valid.measure(decoder_with(averaged, config))
            rate = (done - first) / (line["seconds"] - spent)
            line["formulae_per_second"] = rate * config.batch
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            if report:
                report({**line, "seconds_left": (config.steps - done) / rate})
        if save:
            state = {"next": work.next, "seconds": time.perf_counter() - began}
            tensors = tensors_of(decoder, averaged, optimisers)
            save_checkpoint(folder, done, tensors, state)
    work_stream.close()
    draw_curves(folder, ("loss", "accuracy", "exact", "cosine"))
    return decoder_with(averaged, config)


class Validation:
    """Fixed formulae of the validation split, their vectors and targets."""

    def __init__(self, config: Config, source: Neural | Anchors, count: int = 256):
        self.config, self.source = config, source
        parts = recipes(replace(config, batch=count))
        numbers = [find_families(recipe, 0, n, "valid") for recipe, n in parts]
        given, self.targets = draw(parts, numbers, config.points)
        self.vectors = source.embed(given)

    def measure(self, decoder: Decoder) -> dict[str, float]:
        """Loss and accuracy a token; of formulae written greedily, how many are valid, how many the
        target itself, and the inner product of their vectors with those asked for, 0 if not valid.
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
            again = self.source.embed(Programs.pack([written[i] for i in valid]))  # type: ignore[misc]
            cosines[valid] = (again * self.vectors[some[valid]]).sum(1).cpu().numpy()
        exact = [phi == targets[i] for phi, i in zip(written, some.tolist(), strict=True)]
        line = {
            "loss": loss.item(), "accuracy": right.item(), "valid": len(valid) / len(some),
            "exact": float(np.mean(exact)), "cosine": float(cosines.mean()),
            "median_cosine": float(np.median(cosines)),
        }  # fmt: skip
        return {f"valid_{name}": value for name, value in line.items()}


@torch.no_grad()
def greedy(decoder: Decoder, vectors: Tensor) -> list[Formula | None]:
    """The likeliest next token each time; by prefix tokens held to the grammar, so never None."""
    config, device = decoder.config, vectors.device
    by_text = config.tokens == "text"
    module: Any = text if by_text else prefix
    padding = text.PADDING if by_text else prefix.PAD
    grammar = None if by_text else prefix.Grammar(len(vectors), 63, 20, config.length)
    ids = torch.full((len(vectors), config.length), padding, device=device)
    ids[:, 0] = module.BEGIN
    active = torch.arange(len(vectors), device=device)  # sequences without an end
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
    except ValueError:  # no end, or no formula
        return None


def readable(phi: Formula | None, channels: int) -> Formula | None:
    """The formula if it has a vector, else None: text can spell x_0 > x_1, x_9 and 60 digits."""
    if phi is None or abs(phi.thresholds).max() > np.finfo(np.float32).max:
        return None
    known = {((f"x_{i}", 1.0),) for i in range(channels)}
    return phi if known.issuperset(phi.channels) else None


def decoder_config(config: Config) -> DecoderConfig:
    return DecoderConfig(**{f.name: getattr(config, f.name) for f in fields(DecoderConfig)})


def decoder_with(weights: list[Tensor], config: Config) -> Decoder:
    """A decoder of its own (not compiled) with these weights."""
    decoder = Decoder(decoder_config(config)).to(weights[0].device)
    with torch.no_grad():
        torch._foreach_copy_(list(decoder.parameters()), weights)
    return decoder


def publish(folder: Path, config: Config, decoder: Decoder, shown: int = 1024) -> dict[str, float]:
    """Write folder/model, the encoder with this decoder, measured as it is stored; the figures."""
    tensors = {name: p.detach().cpu().numpy() for name, p in decoder.named_parameters()}
    with torch.no_grad():
        for parameter in decoder.parameters():
            if parameter.ndim > 1:
                parameter.copy_(parameter.half())
    checked = replace(config, shown=shown)
    figures = Validation(checked, vector_source(config), shown).measure(decoder)
    about, encoder = store.read(config.model or DEFAULT)
    store.save(
        folder / "model", about["encoder"], encoder, {name: about[name] for name in store.FACTS}
    )
    facts = {
        "training": {**asdict(config), **environment(config.device)},
        "evaluation": [
            {"measure": name.removeprefix("valid_"), "n": shown, "value": value}
            for name, value in figures.items()
        ],
    }
    store.save_decoder(folder / "model", decoder.config.to_dict(), tensors, facts)
    return figures


def with_overrides(preset: str, **overrides: Any) -> Config:
    """A preset with some fields changed."""
    if preset not in PRESETS:
        raise RhovecError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    return replace(PRESETS[preset], **{k: v for k, v in overrides.items() if v is not None})
