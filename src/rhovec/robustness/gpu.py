"""The exact engine on a CUDA device: the same instructions as on the CPU, run by ops.cu.

The source is compiled on first use by the compiler that comes with torch, so nothing but torch with
CUDA is needed. Formulae are sorted into classes by the memory that they need, each launched with just
that much shared memory a warp and, the longer the formula, the fewer traces a warp, so that many warps
run at a time; what does not fit uses device memory. Traces and results stay on the device; traces
are taken in slices, so that memory beyond the output stays bounded.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..errors import MissingDependencyError
from ..formula import operators as ops
from ..formula.programs import Programs
from . import lowering

WARP = 32
TRACES_A_WARP = (32, 8, 1)
# Shared memory a warp; formulae that need more than these take fewer traces (sizes: measured).
SHARED_BYTES = (2048, 4096, 6144, 8192, 12288, 16384, 24576)
LONG_SHARED_BYTES = (32768, 49152, 65536, 98304)  # for one trace a warp
SLICE_BYTES = 256 << 20  # of traces brought into the kernel's order at a time
ARENA_BYTES = 512 << 20  # of device memory for formulae that do not fit in shared memory
_SOURCE = Path(__file__).with_name("ops.cu")


class MemoryClass(NamedTuple):
    """Formulae that are launched together."""

    traces: int  # a warp
    rows: int  # of the arena
    in_shared: bool
    members: np.ndarray  # indices of formulae


def evaluate(
    programs: Programs,
    traces: torch.Tensor,
    columns: dict[str, int],
    *,
    trace: bool = False,
    strict: bool = False,
    boolean: bool = False,
    code: lowering.Instructions | None = None,
) -> torch.Tensor:
    """Robustness of B formulae on N traces: (B, N), or (B, N, P) with trace, on traces' device.

    The arguments are those of cpu.evaluate, with a CUDA tensor (N, V, P) float32 or float64. code
    saves the lowering, if it was done ahead with the same arguments.
    """
    traces = traces.contiguous()
    n_traces, _, points = traces.shape
    code = code or lowering.lower(programs, points, trace=trace, strict=strict)
    device, real = traces.device, traces.dtype
    classes = memory_classes(code.arena, real.itemsize)
    kernels = {c.traces: _kernel(device.index or 0, real, c.traces) for c in classes}
    with torch.cuda.device(device):
        integers = [code.table.ravel(), code.offsets, *(c.members for c in classes)]
        table = _upload(np.concatenate(integers, dtype=np.int32), device)
        values = _upload(code.values, device).to(real)
        offsets = table[code.table.size :]
        length = points if trace else 1
        out = torch.empty((len(programs), n_traces, length), dtype=real, device=device)
        if trace and strict:
            out.fill_(torch.nan)

        per_trace = max(1, len(programs.channels)) * len(code.times) * real.itemsize
        step = max(WARP, SLICE_BYTES // per_trace // WARP * WARP)
        for first in range(0, n_traces, step):
            channels = _channels(programs, traces[first : first + step], columns, code)
            tiles = _tiles(channels) if {*kernels} - {1} else channels
            start = len(programs) + 1
            for group in classes:
                block = channels if group.traces == 1 else tiles
                code_on_device = (table, values, offsets, offsets[start:])
                _launch(
                    kernels[group.traces],
                    group,
                    code_on_device,
                    block,
                    len(channels),
                    out,
                    first,
                    boolean,
                )
                start += len(group.members)
    return out if trace else out[:, :, 0]


def _upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """From pinned memory, so that the host need not wait for what the device still does."""
    tensor = torch.from_numpy(array)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def memory_classes(arena: np.ndarray, itemsize: int) -> list[MemoryClass]:
    """Every formula in the class of the least memory that suffices; the most demanding class first."""
    kinds = [
        (traces, bytes_a_warp // (traces * itemsize), True)
        for traces in TRACES_A_WARP
        for bytes_a_warp in (SHARED_BYTES if traces > 1 else (*SHARED_BYTES, *LONG_SHARED_BYTES))
    ]
    kinds.append((1, max(1, int(arena.max())), False))
    out = []
    left = np.ones(len(arena), bool)
    for traces, rows, in_shared in kinds:
        fits = left & (arena <= rows)
        left &= ~fits
        if fits.any():
            out.append(MemoryClass(traces, rows, in_shared, np.flatnonzero(fits)))
    return out[::-1]


def _launch(
    kernel: Any,
    group: MemoryClass,
    code: tuple[torch.Tensor, ...],
    block: torch.Tensor,
    n_slice: int,
    out: torch.Tensor,
    first: int,
    boolean: bool,
) -> None:
    """Run one class on one slice: block is (n, channels, times) or its tiles."""
    bytes_a_warp = group.rows * group.traces * out.element_size()
    tasks = -(-n_slice // group.traces) * len(group.members)
    if group.in_shared:
        warps = max(1, min(4, (48 << 10) // bytes_a_warp))
        blocks, arena = -(-tasks // warps), out
    else:
        warps = 4
        blocks = min(-(-tasks // warps), max(1, ARENA_BYTES // bytes_a_warp // warps))
        arena = out.new_empty(blocks * warps * bytes_a_warp // out.element_size())
    if block.ndim == 4:
        tile_step, channel_step, trace_step = block.stride(0), block.stride(1), 1
    else:
        trace_step, channel_step, _ = block.stride()
        tile_step = WARP * trace_step
    kernel(
        grid=(min(blocks, (1 << 31) - 1), 1, 1),
        block=(warps * WARP, 1, 1),
        args=[
            *code, len(group.members), block, tile_step, trace_step, channel_step,
            out, out.shape[1], first, n_slice, out.shape[2],
            arena, group.rows, int(group.in_shared), int(boolean),
        ],
        shared_mem=warps * bytes_a_warp if group.in_shared else 0,
    )  # fmt: skip


def _channels(
    programs: Programs, x: torch.Tensor, columns: dict[str, int], code: lowering.Instructions
) -> torch.Tensor:
    """The channels (n, channels, times) of traces (n, variables, P), at the times that atoms read."""
    if not all(
        len(c) == 1 and c[0][1] == 1.0 and not ops.lag_of(c[0][0]) for c in programs.channels
    ):
        channels = [_channel(x, channel, columns, code) for channel in programs.channels]
        return torch.stack(channels, dim=1)
    index = [columns[ops.name_of(c[0][0])] for c in programs.channels] or [0]
    channels_at: torch.Tensor = code.read(x if index == list(range(x.shape[1])) else x[:, index])
    return channels_at


def _tiles(channels: torch.Tensor) -> torch.Tensor:
    """(n, channels, times) as (n / 32, channels, times, 32); the last trace fills the last tile."""
    short = -len(channels) % WARP
    if short:
        channels = torch.cat([channels, channels[-1:].expand(short, -1, -1)])
    return channels.reshape(-1, WARP, *channels.shape[1:]).permute(0, 2, 3, 1).contiguous()


def _channel(
    x: torch.Tensor, channel: ops.Channel, columns: dict[str, int], code: lowering.Instructions
) -> torch.Tensor:
    """A linear expression in float64, terms added in order, as on the CPU."""
    total = x.new_zeros((len(x), len(code.times)), dtype=torch.float64)
    for variable, coefficient in channel:
        samples = code.read(x[:, columns[ops.name_of(variable)]], ops.lag_of(variable))
        total += samples.to(torch.float64) * coefficient
    return total.to(x.dtype)


@lru_cache(maxsize=32)
def _kernel(device: int, real: torch.dtype, traces: int) -> Any:
    """Compile ops.cu for one device, precision and number of traces a warp."""
    if not torch.cuda.is_available() or not hasattr(torch.cuda, "_compile_kernel"):
        raise MissingDependencyError(
            f"the GPU engine needs an NVIDIA GPU and torch 2.9 or newer with CUDA (this is torch "
            f"{torch.__version__}): pip install -U torch"
        )
    name = f"evaluate<{'float' if real == torch.float32 else 'double'}, {traces}>"
    kernel = torch.cuda._compile_kernel(_SOURCE.read_text(), name)
    limits = torch.cuda.get_device_properties(device)
    kernel.set_shared_memory_config(getattr(limits, "shared_memory_per_block_optin", 48 << 10))
    return kernel
