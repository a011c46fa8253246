"""Teachers: the kernel matrix of a batch, from any kernel.

A kernel is anything with `gram(formulae)`: `StlKernel`, `BooleanKernel`, `IntegratedKernel`, or your own
class. If it is a dataclass with a field `seed`, as ours are, each batch is compared with a fresh
seed, which for kernels on a measure means on fresh traces.

A `SampledKernel` on the base measure, or on your own traces, is faster: traces are drawn, and its
`features` are computed, on the device of the training. For robustness, formulae are lowered ahead, in
threads.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize, pad

from ..errors import RhovecError
from ..formula.programs import Programs
from ..kernel import CentredKernel, SampledKernel, StlKernel, kernel_of_cosine
from ..kernel import Teacher as Kernel
from ..models.heads import Head
from ..models.model import KERNELS
from ..robustness import cpu, lowering
from ..spaces.fitting import find_directions, principal, with_sketch
from ..traces import BaseMeasure, TraceMeasure
from .loop import RunConfig


class Teacher(Protocol):
    """The kernel of a batch, of which each process has a share."""

    def prepare(self, batch: Programs, share: Programs) -> Any:
        """Input of `__call__`, prepared ahead in a thread."""

    def __call__(self, prepared: Any, seed: int, times: int = 1) -> Tensor:
        """Kernel (B, B) of the whole batch, on `times` as many traces as in a step.

        Further columns, if there are any, are unit rows (B, D) that rows of the student should equal.
        """


def make_kernel(config: Any, traces: int, seed: int = 0) -> Any:
    """The kernel that a configuration describes, on the base measure."""
    if config.kernel not in KERNELS:
        raise RhovecError(
            f"kernel must be one of {', '.join(KERNELS)}, not {config.kernel!r}; pass your own "
            "kernel to `train` as an object"
        )
    measure = BaseMeasure(n_variables=config.channels, points=config.points)
    device = config.device if config.device.startswith("cuda") else "cpu"
    return KERNELS[config.kernel](measure, traces, config.sigma2, seed, device=device)


def kernel_name(kernel: Kernel) -> str:
    """Its name in KERNELS if the name, a base measure and sigma2 define it, else that of its class.

    On traces, the name has a digest of them, so that a run is not continued on others.
    """
    for name, kind in KERNELS.items():
        if type(kernel) is kind and _is_usual(kernel):
            if isinstance(kernel.measure, TraceMeasure):
                return f"{name} on traces {digest(kernel.measure.values)}"
            return name
    return f"{type(kernel).__module__}.{type(kernel).__qualname__}"


def digest(traces: np.ndarray) -> str:
    """Twelve digits that identify traces."""
    values = np.ascontiguousarray(traces, np.float32)
    return hashlib.sha256(repr(values.shape).encode() + values.tobytes()).hexdigest()[:12]


def _is_usual(kernel: SampledKernel) -> bool:
    """Whether it is exp(-(1 - k') / sigma2), with the cosine k' on a measure of ours."""
    ours = isinstance(kernel.measure, BaseMeasure | TraceMeasure)
    return ours and kernel.normalised and kernel.exponentiated


def make_teacher(kernel: Kernel, config: RunConfig, rank: int = 0, world: int = 1) -> Teacher:
    """The fastest teacher for a kernel."""
    if isinstance(kernel, SampledKernel) and _is_usual(kernel):
        kind = TraceTeacher if isinstance(kernel.measure, TraceMeasure) else OnlineTeacher
        return kind(kernel, torch.device(config.device), rank, world)
    return GramTeacher(kernel, torch.device(config.device))


def check_kernel(kernel: Kernel, config: Any, head: Head) -> None:
    """Refuse a kernel that contradicts the configuration, or that the head cannot represent."""
    if isinstance(kernel, CentredKernel):
        raise RhovecError(
            "a CentredKernel cannot be distilled, as many formulae have no correlation with others; "
            "take an StlKernel, or a centred space of your traces, which is exact and needs no training"
        )
    measure = getattr(kernel, "measure", None)
    names = tuple(f"x_{i}" for i in range(config.channels))
    said = {
        "points": (getattr(measure, "points", config.points), config.points),
        "variables": (tuple(getattr(measure, "variables", names)), names),
        "sigma2": (getattr(kernel, "sigma2", config.sigma2), config.sigma2),
    }
    for name, (has, asked) in said.items():
        if has != asked:
            raise RhovecError(
                f"the kernel has {name} {has}, but the configuration says {asked}; make them equal "
                "(variables follow from the field channels)"
            )
    if head.sigma2 is not None and config.sigma2 != head.sigma2:
        raise RhovecError(
            f"the head {head.name} is made for sigma2 = {head.sigma2:g}, not {config.sigma2:g}; for "
            "another one choose the head projector"
        )
    if head.kind == "cosine" and not (
        getattr(kernel, "normalised", True) and getattr(kernel, "exponentiated", True)
    ):
        raise RhovecError(
            f"the head {head.name} is made for k = exp(-(1 - k') / sigma2), so the kernel must be "
            "normalised and exponentiated; for others choose the head projector"
        )


class OnlineTeacher:
    """A kernel of ours on fresh traces of the base measure, all of it on the device."""

    def __init__(self, kernel: SampledKernel, device: torch.device, rank: int, world: int):
        self.kernel = kernel
        self.measure: Any = kernel.measure
        self.traces = kernel.measure.count(kernel.n_traces)
        self.rank, self.world = rank, world
        self.generator = torch.Generator(device)

    def prepare(self, batch: Programs, share: Programs) -> tuple[Programs, Any]:
        if type(self.kernel) is not StlKernel:
            return share, None
        return share, lowering.lower(share, self.measure.points, trace=False, strict=False)

    def __call__(self, prepared: tuple[Programs, Any], seed: int, times: int = 1) -> Tensor:
        self.generator.manual_seed(seed)
        traces, share = self.draw(times * self.traces)
        return jackknifed(self.features(prepared, traces), self.kernel.sigma2, share)

    def features(self, prepared: tuple[Programs, Any], traces: Tensor) -> Tensor:
        """Features (B, N) of the whole batch on traces."""
        programs, code = prepared
        if code is None:
            given = traces if traces.is_cuda else traces.numpy()
            features = torch.as_tensor(self.kernel.features(programs, given)).flatten(1).float()
        else:
            features = robustness(programs, traces, code)
        return gathered(features, self.rank, self.world)

    def draw(self, n: int) -> tuple[Tensor, float]:
        """Traces (n, V, P) on the device, and the share of the measure that they leave out."""
        return self.measure.sample_torch(n, self.generator, self.generator.device), 1.0


class TraceTeacher(OnlineTeacher):
    """A kernel of ours on your own traces: all of them, or in each step n_traces random ones.

    After `aim` it also says which directions formulae have, always on the same traces.
    """

    def __init__(self, kernel: SampledKernel, device: torch.device, rank: int, world: int):
        super().__init__(kernel, device, rank, world)
        values = np.ascontiguousarray(self.measure.values, np.float32)
        self.all = torch.from_numpy(values).to(device)
        order = np.random.default_rng(kernel.seed).permutation(len(values))
        self.aimed = self.all[np.sort(order[: self.traces])]
        self.basis: Tensor | None = None
        self.count = 0

    def __call__(self, prepared: tuple[Programs, Any], seed: int, times: int = 1) -> Tensor:
        if self.basis is None:
            return super().__call__(prepared, seed, times)
        features = self.features(prepared, self.aimed)
        if len(self.aimed) == len(self.all):
            kernel = jackknifed(features, self.kernel.sigma2, share=0.0)
        else:
            kernel = super().__call__(prepared, seed, times)
        return torch.cat([kernel, self.directions(features)], 1)

    def aim(self, features: Tensor, count: int) -> Tensor:
        """Aim at `count` directions: those that an exact space of these traces would have, fitted on
        features (B, N)."""
        rows = normalize(features, dim=1).cpu().numpy()
        self.count, size = count, min(count, rows.shape[1])
        found = find_directions(rows, np.ones(len(rows)), seed=0)[:, : principal(size)]
        self.basis = torch.from_numpy(with_sketch(found, size, seed=0)).to(features.device)
        return self.basis

    def directions(self, features: Tensor) -> Tensor:
        """Unit rows (B, count), whose inner products are nearly the cosines of these features.

        As `spaces.fitting.vectors_of`: what the principal directions miss is the length of the others.
        """
        assert self.basis is not None
        rows = normalize(features, dim=1) @ self.basis
        leading, rest = rows.tensor_split([principal(rows.shape[1])], dim=1)
        missed = (1 - leading.square().sum(1, keepdim=True)).clamp(min=0).sqrt()
        out = normalize(torch.cat([leading, missed * normalize(rest, dim=1)], 1), dim=1)
        return pad(out, (0, self.count - out.shape[1]))  # few traces have few directions

    def draw(self, n: int) -> tuple[Tensor, float]:
        total = len(self.all)
        if n >= total:
            return self.all, 0.0
        order = torch.randperm(total, generator=self.generator, device=self.all.device)
        return self.all[order[:n]], 1 - n / total


def jackknifed(features: Tensor, sigma2: float, share: float = 1.0) -> Tensor:
    """Kernel (B, B) of features (B, N) with N traces, without most of the bias that N traces have.

    The kernel is convex in the cosine, so a noisy cosine makes it too large: by up to 0.0007 on 1024
    traces, near half of the error of a good encoder. The bias falls as 1/N, so twice the estimate on
    all traces minus the mean of those on either half has none of that order. share: the share of the
    measure that is not among the traces; with all of it there, there is no bias.
    """

    def kernel(products: Tensor) -> Tensor:
        norms = products.diagonal().clamp(min=1e-24).rsqrt()
        out: Tensor = kernel_of_cosine(products * norms[:, None] * norms, sigma2)
        return out

    if share == 0:
        return kernel(features @ features.T)
    first, second = (half @ half.T for half in features.tensor_split(2, dim=1))
    whole = kernel(first + second)
    return whole + share * (whole - (kernel(first) + kernel(second)) / 2)


class GramTeacher:
    """Any kernel. Each process computes the whole matrix."""

    def __init__(self, kernel: Kernel, device: torch.device):
        self.kernel, self.device = kernel, device
        measure = getattr(kernel, "measure", None)
        self.traces = 0
        if isinstance(measure, BaseMeasure):
            self.traces = measure.count(getattr(kernel, "n_traces", None))

    def prepare(self, batch: Programs, share: Programs) -> list[Any]:
        return batch.unpack()

    def __call__(self, prepared: list[Any], seed: int, times: int = 1) -> Tensor:
        gram = reseeded(self.kernel, seed, times * self.traces).gram(prepared)
        return torch.as_tensor(gram, dtype=torch.float32, device=self.device)


def reseeded(kernel: Any, seed: int, traces: int) -> Any:
    """The kernel with another seed, if it has one, and with this number of traces of a base measure."""
    if "seed" not in getattr(kernel, "__dataclass_fields__", ()):
        return kernel
    if isinstance(getattr(kernel, "measure", None), BaseMeasure):
        kernel = replace(kernel, n_traces=traces)
    return replace(kernel, seed=seed)


def unit_robustness(
    programs: Programs, traces: Tensor, code: lowering.Instructions | None = None
) -> Tensor:
    """Robustness vectors on traces (N, V, P), scaled to length one: (B, N) float32."""
    return normalize(robustness(programs, traces, code), dim=1)


def robustness(
    programs: Programs, traces: Tensor, code: lowering.Instructions | None = None
) -> Tensor:
    """Robustness vectors on traces (N, V, P): (B, N) float32."""
    columns = {f"x_{i}": i for i in range(traces.shape[1])}
    if traces.is_cuda:
        from ..robustness import gpu

        return gpu.evaluate(programs, traces, columns, code=code)
    return torch.from_numpy(cpu.evaluate(programs, traces.numpy(), columns))


def gathered(share: Tensor, rank: int, world: int) -> Tensor:
    """The rows of all processes, with a gradient only for this process' own.

    Each process differentiates the whole loss with respect to its own rows, so gradients add up over
    processes.
    """
    if world == 1:
        return share
    rows = [torch.empty_like(share) for _ in range(world)]
    dist.all_gather(rows, share.detach().contiguous())
    rows[rank] = share
    return torch.cat(rows)
