"""A model of random weights, small enough for tests, large enough that everything in it matters."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rhovec.models import store
from rhovec.models.config import EncoderConfig
from rhovec.traces import BaseMeasure

SHAPE: dict[str, Any] = {"width": 32, "layers": 2, "heads": 4, "dimension": 24}
FACTS: dict[str, Any] = {
    "teacher": {"measure": asdict(BaseMeasure(n_variables=8)), "sigma2": 0.2},
    "range": {
        "threshold": {"largest": 6.5, "error": 0.034},
        "left bound": {"largest": 75, "error": None},
        "depth": {"largest": 9, "error": 0.05},
    },
    "evaluation": [{"measure": "alignment", "set": "a | b", "n": 7, "value": 0.987654321}],
}


def tiny(**changes: Any) -> tuple[EncoderConfig, dict[str, np.ndarray]]:
    config = EncoderConfig(**SHAPE | changes)
    rng = np.random.default_rng(0)
    tensors = {}
    for name, shape in config.shapes().items():
        spread = 0.3 if len(shape) == 1 else 1.0 if name.startswith("inputs") else shape[-1] ** -0.5
        tensors[name] = rng.standard_normal(shape, np.float32) * np.float32(spread)
        if name == "head.waves":
            tensors[name] *= 20
        if "norm.weight" in name:
            tensors[name] += 1
    return config, tensors


def save_tiny(folder: Path, **changes: Any) -> Path:
    config, tensors = tiny(**changes)
    measure = asdict(BaseMeasure(config.channels, config.points))
    teacher = {"teacher": {"measure": measure, "sigma2": 0.2}}
    store.save(folder, config.to_dict(), tensors, FACTS | teacher)
    return folder
