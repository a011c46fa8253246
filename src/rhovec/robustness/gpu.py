"""The exact engine on a CUDA device: the same instructions as on the CPU, run by ops.cu.

The source is compiled on first use by the compiler that comes with torch, so nothing but torch with
CUDA is needed. Formulae are sorted into classes by the memory that they need, each launched with just
that much shared memory a warp, so that small formulae run many at a time; the few that do not fit use
device memory. Signals and results stay on the device; signals are taken in slices, so that memory
beyond the output stays bounded.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import MissingDependencyError
from ..formula.programs import Programs
from . import lowering

LANES = 32
SLICE_BYTES = 256 << 20  # of signals brought into the kernel's order at a time
ARENA_BYTES = 256 << 20  # of device memory for formulae that do not fit in shared memory
CLASSES = (16, 32, 48, 64, 96, 128, 192, 256, 384)  # rows of shared memory a warp, float32
_SOURCE = Path(__file__).with_name("ops.cu")


def evaluate(
    programs: Programs,
    signals: torch.Tensor,
    columns: dict[str, int],
    *,
    trace: bool = False,
    strict: bool = False,
    boolean: bool = False,
) -> torch.Tensor:
    """Robustness of B formulae on N signals: (B, N), or (B, N, P) with trace, on signals' device.

    The arguments are those of cpu.evaluate, with a CUDA tensor (N, V, P) float32 or float64.
    """
    n_signals, _, points = signals.shape
    code = lowering.lower(programs, points, trace=trace, strict=strict)
    device, real = signals.device, signals.dtype
    kernel = _kernel(device.index or 0, real)
    with torch.cuda.device(device):
        classes = memory_classes(code.arena, real.itemsize)
        integers = np.concatenate(
            [code.table.ravel(), code.offsets, *(members for _, members in classes)]
        ).astype(np.int32)
        table = torch.from_numpy(integers).to(device)
        values = torch.from_numpy(code.values).to(device, real)
        offsets = table[code.table.size :]
        length = points if trace else 1
        out = torch.empty((len(programs), n_signals, length), dtype=real, device=device)
        if trace and strict:
            out.fill_(torch.nan)

        n_channels, reach = max(1, len(programs.channels)), max(1, code.reach)
        per_signal = n_channels * reach * real.itemsize
        step = max(LANES, SLICE_BYTES // per_signal // LANES * LANES)
        for first in range(0, n_signals, step):
            part = signals[first : first + step]
            block = _tiles(programs, part, columns, reach)
            start = len(programs) + 1
            for rows, members in classes:
                _launch(
                    kernel, rows, len(members), (table, values, offsets, offsets[start:]), block, out,
                    first, boolean,
                )  # fmt: skip
                start += len(members)
    return out if trace else out[:, :, 0]


def memory_classes(arena: np.ndarray, itemsize: int) -> list[tuple[int, np.ndarray]]:
    """(rows a warp, formulae), the most demanding first; the last rows are what device memory holds."""
    limits = np.array([*(rows * 4 // itemsize for rows in CLASSES), max(1, int(arena.max()))])
    limits = np.unique(limits)
    which = np.searchsorted(limits, arena)
    return [
        (int(limits[c]), np.flatnonzero(which == c)) for c in np.unique(which)[::-1]
    ]


def _launch(
    kernel: Any,
    rows: int,
    n_members: int,
    code: tuple[torch.Tensor, ...],
    block: torch.Tensor,
    out: torch.Tensor,
    first: int,
    boolean: bool,
) -> None:
    table, values, offsets, members = code
    tiles, channels, reach, _ = block.shape
    bytes_a_warp = rows * LANES * out.element_size()
    tasks = tiles * n_members
    in_shared = rows <= CLASSES[-1] * 4 // out.element_size()
    if in_shared:
        warps = max(1, min(4, (48 << 10) // bytes_a_warp))
        blocks, shared = -(-tasks // warps), warps * bytes_a_warp
        arena = out
    else:
        warps = 4
        blocks = min(-(-tasks // warps), max(1, ARENA_BYTES // bytes_a_warp // warps))
        arena = torch.empty(blocks * warps * rows * LANES, dtype=out.dtype, device=out.device)
        shared = 0
    kernel(
        grid=(min(blocks, 1 << 30), 1, 1),
        block=(warps * LANES, 1, 1),
        args=[
            table, values, offsets, members, n_members, block, tiles, channels, reach,
            out, out.shape[1], first, out.shape[2], arena, rows, int(in_shared), int(boolean),
        ],
        shared_mem=shared,
    )  # fmt: skip


def _tiles(
    programs: Programs, signals: torch.Tensor, columns: dict[str, int], reach: int
) -> torch.Tensor:
    """Channels of n signals as (tiles, channels, reach, 32); the last signal fills the last tile."""
    x = signals[:, :, :reach]
    short = -len(x) % LANES
    if short:
        x = torch.cat([x, x[-1:].expand(short, -1, -1)])
    if all(len(c) == 1 and c[0][1] == 1.0 for c in programs.channels):
        index = [columns[c[0][0]] for c in programs.channels] or [0]
        if index != list(range(x.shape[1])):
            x = x[:, index]
    else:
        x = torch.stack([_channel(x, channel, columns) for channel in programs.channels], dim=1)
    tiles = x.reshape(-1, LANES, *x.shape[1:]).permute(0, 2, 3, 1)
    return tiles.contiguous()


def _channel(
    x: torch.Tensor, channel: tuple[tuple[str, float], ...], columns: dict[str, int]
) -> torch.Tensor:
    """A linear expression in float64, terms added in order, as on the CPU."""
    total = torch.zeros_like(x[:, 0], dtype=torch.float64)
    for name, coefficient in channel:
        total += x[:, columns[name]].to(torch.float64) * coefficient
    return total.to(x.dtype)


@lru_cache(maxsize=8)
def _kernel(device: int, real: torch.dtype) -> Any:
    """Compile ops.cu for one device and precision."""
    if not torch.cuda.is_available() or not hasattr(torch.cuda, "_compile_kernel"):
        raise MissingDependencyError(
            f"the GPU engine needs an NVIDIA GPU and torch 2.9 or newer with CUDA (this is torch "
            f"{torch.__version__}): pip install -U torch"
        )
    name = "evaluate<float>" if real == torch.float32 else "evaluate<double>"
    return torch.cuda._compile_kernel(_SOURCE.read_text(), name)
