"""From a finished run to a model folder: weights rounded as they are stored, measured, described.

The evaluation is of the rounded weights, against a kernel on signals that no training saw. The range
is what 999 of 1000 formulae of the training mixture keep to; the error beyond is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..corpus.families import find_families
from ..evaluation.encoder import evaluate_encoder
from ..evaluation.outside import outside
from ..evaluation.sets import FormulaSet, held_out, read_formulae
from ..formula.core import Formula
from ..formula.programs import Programs
from ..kernel import StlKernel
from ..models import store
from ..models.encoder import Encoder
from ..signals import BaseMeasure
from .distill import Config, draw, embed, recipes
from .records import environment, write_json

SIGNALS = 16_384  # of the kernel that vectors are held against
SEED = 1234  # of those signals
MEASURED = {  # which row of `outside` says the error beyond a range
    "threshold": "thresholds x 1000000",
    "left bound": "bounds x 10",
    "right bound": "bounds x 10",
    "nodes": "65 to 129 nodes",
    "depth": "12 deeper",
}


def publish(
    folder: Path,
    config: Config,
    encoder: Encoder,
    files: Iterable[str | Path] = (),
    signals: int = SIGNALS,
    families: int = 188,
) -> list[dict[str, Any]]:
    """Write folder/evaluation.json and the model folder/model; the rows of the evaluation.

    files: formulae to evaluate on, beside held-out families (so many) over three and all channels.
    """
    tensors = {name: p.detach().cpu().numpy() for name, p in encoder.named_parameters()}
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.ndim > 1:
                parameter.copy_(parameter.half())

    def vectors(formulae: list[Formula]) -> np.ndarray:
        return embed(encoder, Programs.pack(formulae)).cpu().numpy()

    measure = BaseMeasure(n_variables=config.channels, points=config.points)
    device = config.device if config.device.startswith("cuda") else "cpu"
    kernel = StlKernel(measure, signals, config.sigma2, SEED, device=device)
    sets: list[FormulaSet] = [
        held_out(families, channels, pairs=8 * families)
        for channels in sorted({min(3, config.channels), config.channels})
    ]
    rows = evaluate_encoder(vectors, kernel, [*sets, *map(read_formulae, files)])
    beyond = []
    if config.tokens == "tree":
        beyond = outside(vectors, kernel, config.channels, families=2 * families)
    write_json(folder / "evaluation.json", [*rows, *beyond])
    facts = {
        "teacher": {"measure": asdict(measure), "sigma2": config.sigma2},
        "corpus": {
            f"part {i + 1}": f"{count} of {config.batch}: {recipe}"
            for i, (recipe, count) in enumerate(recipes(config))
        },
        "training": {**asdict(config), **environment(config.device)},
        "evaluation": [_brief(row) for row in [*rows, *beyond]],
        "range": training_range(config, {row["measure"]: row["value"] for row in beyond}),
    }
    store.save(folder / "model", encoder.config.to_dict(), tensors, facts)
    return rows + beyond


def training_range(config: Config, errors: dict[str, float]) -> dict[str, dict[str, Any]]:
    """For each kind of `store.RANGE` the largest value in training and the error beyond."""
    parts = recipes(config)
    numbers = [find_families(r, 0, 8000 // r.family_size, "train") for r, _ in parts]
    programs, _ = draw(parts, numbers)
    starts = programs.offsets[:-1]
    values = {
        "threshold": np.maximum.reduceat(np.abs(programs.thresholds), starts),
        "left bound": np.maximum.reduceat(programs.code[:, 1], starts),
        "depth": programs.depths(),
    }
    known = {kind: round(float(np.quantile(v, 0.999)), 1) for kind, v in values.items()}
    known |= {"right bound": config.points - 1, "nodes": config.nodes}
    return {
        kind: {"largest": known[kind], "error": errors.get(MEASURED[kind])} for kind in store.RANGE
    }


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    kept = ("claim", "measure", "set", "n", "value", "low", "high", "kernel_value")
    return {key: row[key] for key in kept if key in row}
