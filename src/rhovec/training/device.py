"""Use of a device in training: its precision, copies to a GPU, work ahead of a step, recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ..models.encoder import Packed


@cache
def has_bfloat16(kind: str) -> bool:
    """Whether products in bfloat16 are faster than in float32 on such a device: "cuda" or "cpu"."""
    if kind == "cuda":
        return True
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


def mixed(device: torch.device) -> torch.autocast:
    """A context in which products are computed in bfloat16, where that is faster."""
    return torch.autocast(device.type, torch.bfloat16, enabled=has_bfloat16(device.type))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, non_blocking=True)


def ahead(
    make: Callable[[Any], tuple[Any, ...]], items: Iterable[Any]
) -> Iterator[tuple[Any, ...]]:
    """map(make, items), but the GPU makes each result while it still works on the previous one."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    waiting = []
    for item in chain(items, [None]):
        if item is not None:
            with torch.cuda.stream(side):
                made = make(item)
            waiting.append((made, side.record_event()))
        if len(waiting) == 2 or (item is None and waiting):
            made, event = waiting.pop(0)
            here = torch.cuda.current_stream()
            here.wait_event(event)
            for tensor in chain.from_iterable(x if isinstance(x, Packed) else [x] for x in made):
                if isinstance(tensor, Tensor):
                    tensor.record_stream(here)  # keeps its memory until work here is done
            yield made


class Recorded:
    """A step as a CUDA graph: the first calls run normally, then the work is recorded and replayed.

    Inputs are copied to where the recording reads them; outputs are overwritten by the next call.
    """

    WARM_UP = 4

    def __init__(self, step: Callable[[Packed, Tensor, Tensor], tuple[Tensor, Tensor]]):
        self.step = step
        self.calls = 0
        self.graph = torch.cuda.CUDAGraph()
        self.inputs: list[Tensor] = []
        self.outputs: tuple[Tensor, Tensor]

    def __call__(self, tokens: Packed, target: Tensor, family: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        if self.calls <= self.WARM_UP:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found = self.step(tokens, target, family)
            torch.cuda.synchronize()
            return found
        given = [t for t in (*tokens, target, family) if t is not None]
        if not self.inputs:
            kept = tokens.map(torch.clone), target.clone(), family.clone()
            self.inputs = [t for t in (*kept[0], *kept[1:]) if t is not None]
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.outputs = self.step(*kept)
        for place, tensor in zip(self.inputs, given, strict=True):
            place.copy_(tensor)
        self.graph.replay()
        return self.outputs
