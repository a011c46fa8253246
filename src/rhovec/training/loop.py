"""The training loop of encoder and decoder; a `Task` says what differs between them.

Everything random follows from the seed and the step, so a run that is killed and started again in its
folder continues from its checkpoint and ends with the same weights. With several processes each one
works on its share of a batch, and gradients are summed.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import RhovecError
from ..models.decoder import Decoder
from ..models.encoder import Encoder, Packed
from ..models.model import DEFAULT, SHIPPED, shipped
from .device import Recorded, ahead
from .optimisers import make_optimisers, schedule
from .records import claimed, draw_curves, open_record, resume, save_checkpoint, tensors_of

Report = Callable[[dict[str, Any]], object]
Batch = tuple[Packed, Tensor, Tensor]  # inputs of a step, on the device
Student = TypeVar("Student", Encoder, Decoder)
AnyConfig = TypeVar("AnyConfig", bound="RunConfig")
Part = TypeVar("Part")


@dataclass(frozen=True)
class RunConfig:
    """The fields of every training; a comment is the field's help on the command line."""

    steps: int = 40_000  # optimiser steps
    batch: int = 2048  # formulae per batch
    optimiser: str = "muon"  # for the matrices of the layers: muon or adamw
    lr: float = 1e-3  # learning rate of the layers' matrices after warm-up
    adam_lr: float = 1e-3  # learning rate of AdamW, for all other tensors
    warmup: int = 300  # steps
    average: float = 0.999  # decay of the averaged weights, which are the result; 0: no averaging
    dimension: int = 1024  # numbers per vector
    channels: int = 8  # variables that a formula may use
    focus: int = 3  # most formulae use only the first channels, as many as this
    points: int = 100  # of a trace
    nodes: int = 63  # of the largest formula
    workers: int = 8  # threads that prepare batches
    every: int = 200  # steps between lines of the log
    validate: int = 2000  # steps between validations, and between checkpoints
    seed: int = 0  # of everything random
    device: str = "cpu"  # cpu or cuda

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if (
                isinstance(value, int)
                and value < 1
                and field.name not in ("warmup", "seed", "block")
            ):
                raise RhovecError(f"{field.name} must be 1 or more, not {value}")

    @property
    def widths(self) -> tuple[int, int]:
        """Channels that most formulae use, and that the others use."""
        return min(self.focus, self.channels), self.channels


class Work(Protocol):
    """A prepared batch."""

    @property
    def next(self) -> tuple[int, ...]:
        """Where each recipe of formulae continues after this batch."""


class Task(ABC, Generic[Student]):
    """What is trained, on what, and how it is measured."""

    config: Any  # a RunConfig
    student: Student  # on the device
    accumulate: int = 1  # batches per step
    rank: int = 0
    world: int = 1  # processes
    curves: ClassVar[tuple[str, str, str, str]]  # figures to draw

    @abstractmethod
    def batches(self, start: tuple[int, ...] | None) -> Generator[Any, None, None]:
        """Endless `Work` from where the recipes start, in an order that the seed fixes."""

    @abstractmethod
    def to_device(self, work: Any, number: int) -> Batch:
        """Batch `number` of the run, with its targets."""

    @abstractmethod
    def compile(self) -> None:
        """Compile the parts of the student, and of the loss, for a GPU."""

    @abstractmethod
    def loss(self, tokens: Packed, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the tensor that `figures` reads."""

    @abstractmethod
    def figures(self, batch: Batch, found: Tensor) -> dict[str, float]:
        """Figures about a batch for the log; found is the second result of `loss`."""

    @abstractmethod
    def validation(self) -> Callable[[list[Tensor]], dict[str, float]]:
        """A function from the averaged weights to figures on validation formulae."""

    @abstractmethod
    def finish(self, averaged: list[Tensor]) -> Student:
        """The trained student."""


def run(task: Task[Student], out: str | Path, report: Report | None = None) -> Student:
    """Train, or continue the run in the folder `out`; the student with averaged weights.

    report is called with each line of the log, which then also has the seconds left.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with claimed(folder) if task.rank == 0 else nullcontext():
        return _run(task, folder, report)


def _run(task: Task[Student], folder: Path, report: Report | None) -> Student:
    config = task.config
    device = torch.device(config.device)
    weights: list[Tensor] = list(task.student.parameters())
    averaged = [p.detach().clone() for p in weights]
    optimisers = make_optimisers(task.student, config)
    if task.rank == 0:
        open_record(folder, config)
    first, start, spent = resume(folder, task.student, averaged, optimisers)
    validate = task.validation() if task.rank == 0 else None
    began = time.perf_counter() - spent
    stream = task.batches(start)
    if device.type == "cuda":
        task.compile()

    def differentiate(*batch: Any) -> tuple[Tensor, Tensor]:
        loss, found = task.loss(*batch)
        (loss / task.accumulate).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), found.detach()

    def update() -> None:
        if task.world > 1:
            for parameter in weights:
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        for optimiser, _ in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def whole_step(*batch: Any) -> tuple[Tensor, Tensor]:
        found = differentiate(*batch)
        update()
        return found

    def prepare(number: int) -> tuple[Any, Packed, Tensor, Tensor]:
        work: Any = next(stream)
        return work, *task.to_device(work, number)

    single = device.type == "cuda" and task.world * task.accumulate == 1
    recorded = Recorded(whole_step) if single else None
    numbers = range(first * task.accumulate, config.steps * task.accumulate)
    prepared = (ahead if single else map)(prepare, numbers)

    for step in range(first, config.steps):
        share = schedule(step, config.warmup, config.steps)
        for optimiser, lr in optimisers:
            for group in optimiser.param_groups:
                group["lr"].fill_(lr * share)
        for _ in range(task.accumulate):
            work, *batch = next(prepared)
            loss, found = (recorded or differentiate)(*batch)
        if recorded is None:
            update()
        decay = min(config.average, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(averaged, weights, 1 - decay)

        done = step + 1
        save = done % config.validate == 0 or done == config.steps
        if validate is None:
            continue
        if save or done % config.every == 0:
            line = {"step": done, "seconds": time.perf_counter() - began, "loss": loss.item()}
            line |= task.figures((batch[0], batch[1], batch[2]), found)
            if save:
                line |= {f"valid_{name}": value for name, value in validate(averaged).items()}
            rate = (done - first) / (line["seconds"] - spent)
            line["formulae_per_second"] = rate * config.batch * task.accumulate
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            if report:
                passed = time.perf_counter() - began - spent  # with validations
                report({**line, "seconds_left": (config.steps - done) * passed / (done - first)})
        if save:
            state = {"next": work.next, "seconds": time.perf_counter() - began}
            save_checkpoint(folder, done, tensors_of(task.student, averaged, optimisers), state)
    stream.close()
    if validate is not None:
        draw_curves(folder, task.curves)
    return task.finish(averaged)


# -- configurations and weights ----------------------------------------------------------------------


def preset(presets: Mapping[str, AnyConfig], name: str, **changes: Any) -> AnyConfig:
    """A preset with some fields changed; None leaves a field as it is."""
    if name not in presets:
        raise RhovecError(f"preset must be one of {', '.join(presets)}, not {name!r}")
    return replace(presets[name], **{k: v for k, v in changes.items() if v is not None})


def model_folder(name: str) -> str:
    """The folder that a field names: of the default model if it is 'shipped' or empty."""
    if name in ("", "shipped"):
        return str(DEFAULT)
    return str(SHIPPED / name) if name in shipped() else name


def part_of(config: RunConfig, kind: type[Part]) -> Part:
    """The EncoderConfig or DecoderConfig among the fields of a training's configuration."""
    return kind(**{f.name: getattr(config, f.name) for f in fields(kind)})  # type: ignore[arg-type]


def begin_with(student: Encoder | Decoder, there: Any, tensors: dict[str, np.ndarray]) -> None:
    """Copy a stored model's tensors into a student of the same config; others are not changed."""
    asked = student.config
    pairs = {f.name: (getattr(there, f.name), getattr(asked, f.name)) for f in fields(asked)}
    differing = [f"{name} {a}, not {b}" for name, (a, b) in pairs.items() if a != b]
    if differing:
        raise RhovecError(
            f"the origin has {'; '.join(differing)}: set what it has, or leave origin empty"
        )
    given = {name: torch.from_numpy(array) for name, array in tensors.items()}
    student.load_state_dict(student.state_dict() | given)


def with_weights(student: Student, weights: list[Tensor]) -> Student:
    """A student that is not compiled, on the weights' device, with these weights."""
    student.to(weights[0].device)
    with torch.no_grad():
        torch._foreach_copy_(list(student.parameters()), weights)
    return student


def rows_to_reserve(most: int) -> int:
    """Rows of tokens for nearly every batch, from the most that trial batches needed: 3 % more."""
    return -(-int(1.03 * most + 1) // 8) * 8
