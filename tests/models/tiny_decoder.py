"""A decoder of random weights for the vectors of `tiny`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rhovec.models import store
from rhovec.models.decoder_config import DecoderConfig

from .tiny import save_tiny

SHAPE: dict[str, Any] = {
    "width": 32, "layers": 2, "heads": 4, "prefix": 3, "dimension": 24, "length": 80,
}  # fmt: skip


def tiny_decoder(**changes: Any) -> tuple[DecoderConfig, dict[str, np.ndarray]]:
    config = DecoderConfig(**SHAPE | changes)
    rng = np.random.default_rng(1)
    tensors = {}
    for name, shape in config.shapes().items():
        spread = 0.3 if len(shape) == 1 else shape[-1] ** -0.5
        if name in ("vector.weight", "token.weight", "place.weight"):
            spread = 1.0
        tensors[name] = rng.standard_normal(shape, np.float32) * np.float32(spread)
        if "norm.weight" in name:
            tensors[name] += 1
    tensors["output.weight"] *= 2
    return config, tensors


def save_tiny_decoder(folder: Path, **changes: Any) -> Path:
    """A model with a decoder."""
    save_tiny(folder)
    config, tensors = tiny_decoder(**changes)
    store.save_decoder(folder, config.to_dict(), tensors, {})
    return folder
