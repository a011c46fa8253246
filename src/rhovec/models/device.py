"""The encoder in torch on a device, called like `runtime.Runtime`. torch is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import MissingDependencyError, RhovecError, needed
from ..formula.programs import Programs
from .config import EncoderConfig
from .heads import Kind

if TYPE_CHECKING:
    import torch


def torch_device(device: str) -> torch.device:
    """A torch device that exists here."""
    needed("torch", "a device", "torch", "load without a device")
    import torch

    try:
        place = torch.device(device)
    except RuntimeError:
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise RhovecError(f'device must be "cpu" or "cuda", not {device!r}')
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise MissingDependencyError(
            f"torch finds no CUDA device {device!r} here; leave the device out"
        )
    return place


def torch_runtime(
    config: EncoderConfig, tensors: Mapping[str, np.ndarray], device: str
) -> Callable[[Programs, Kind], np.ndarray]:
    """The encoder in torch on a device, called like `Runtime`."""
    place = torch_device(device)
    import torch

    from .encoder import Encoder, pack

    encoder = Encoder(config)
    encoder.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    encoder.to(place).eval()

    @torch.inference_mode()
    def encode(programs: Programs, kind: Kind) -> np.ndarray:
        tokens = pack(programs, config).map(lambda t: t.to(place))
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")  # a lower one changes values by 1e-3
        try:
            rows = encoder.rows(tokens) if kind == "cosine" else encoder(tokens)
            out: np.ndarray = rows.cpu().numpy()
        finally:
            torch.set_float32_matmul_precision(precision)
        return out

    return encode
