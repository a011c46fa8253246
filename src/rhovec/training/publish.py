"""From a finished run to a model folder: weights rounded as they are stored, measured, described.

The figures are those of the rounded weights. An encoder is evaluated against a kernel on traces that no
training has seen. Its range is the one that 999 of 1000 formulae of the training mixture keep to, and
the error beyond is measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..corpus.families import find_families
from ..evaluation.agreement import cosines_to_kernel
from ..evaluation.encoder import TRACES, TRACES_SEED, evaluate_encoder
from ..evaluation.outside import outside
from ..evaluation.sets import FormulaSet, held_out, read_formulae
from ..formula.core import Formula
from ..formula.programs import Programs
from ..kernel import Teacher as Kernel
from ..models import store
from ..models.decoder import Decoder
from ..models.encoder import Encoder
from ..models.heads import Kind
from ..traces import BaseMeasure
from . import distill, invert
from .loop import model_folder
from .own import OwnTraces
from .records import environment, write_json
from .teachers import kernel_name, make_kernel, reseeded
from .vectors import vector_source

MEASURED = {  # which row of `outside` gives the error beyond a range
    "threshold": "thresholds x 1000000",
    "left bound": "bounds x 10",
    "right bound": "bounds x 10",
    "nodes": "65 to 129 nodes",
    "depth": "12 deeper",
}


def publish_encoder(
    folder: Path,
    config: distill.Config,
    encoder: Encoder,
    files: Iterable[str | Path] = (),
    traces: int = TRACES,
    families: int = 188,
    kernel: Kernel | None = None,
    own: OwnTraces | None = None,
) -> list[dict[str, Any]]:
    """Write folder/evaluation.json and the model folder/model; the rows of the evaluation.

    files: formulae to evaluate on, in addition to held-out families (`families` of them) over the first
    and over all channels. kernel: the one that was given to `train`, if any. own: the traces that it is
    on; then vectors and directions are compared with the kernel on the training traces and on those
    held out, and the model has their schema.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = round_weights(encoder)

    def vectors(formulae: list[Formula]) -> np.ndarray:
        return distill.embed(encoder, Programs.pack(formulae)).cpu().numpy()

    if kernel is None:
        kernel = make_kernel(config, traces) if own is None else own.kernel(config)
    config = replace(config, kernel=kernel_name(kernel))
    judge = reseeded(kernel, TRACES_SEED, traces)
    sets: list[FormulaSet] = [
        held_out(families, channels, pairs=8 * families, points=config.points)
        for channels in sorted(set(config.widths))
    ]
    if own is None:
        rows = evaluate_encoder(vectors, judge, [*sets, *map(read_formulae, files)])
    else:
        sets += [read_formulae(path, schema=own.schema) for path in files]
        rows = evaluate_own(encoder, own, sets, config)
        judge = own.judges(config.sigma2, config.device)["training traces"]
    beyond = []
    if config.tokens == "tree":
        beyond = outside(vectors, judge, config.channels, families=2 * families)
    write_json(folder / "evaluation.json", [*rows, *beyond])
    facts: dict[str, Any] = {
        "teacher": teacher_facts(judge),
        "corpus": {
            f"part {i + 1}": f"{count} of {config.batch}: {recipe}"
            for i, (recipe, count) in enumerate(distill.recipes(config))
        },
        "training": {**asdict(config), **environment(config.device)},
        "evaluation": [_brief(row) for row in [*rows, *beyond]],
        "range": training_range(config, {row["measure"]: row["value"] for row in beyond}),
    }
    if own is not None:
        facts["schema"] = json.loads(own.schema.to_json())
        facts["teacher"] |= {"traces": len(own.values), "points": config.points}
    kept = None if own is None else own.sample(config.seed)
    store.save(folder / "model", encoder.config.to_dict(), tensors, facts, kept)
    return rows + beyond


def evaluate_own(
    encoder: Encoder, own: OwnTraces, sets: list[FormulaSet], config: distill.Config
) -> list[dict[str, Any]]:
    """Rows of `evaluate_encoder`, for each kind of vectors against each of the own kernels."""
    rows = []
    for name, judge in own.judges(config.sigma2, config.device).items():
        kinds: tuple[Kind, ...] = ("kernel",)
        if encoder.head.head.kind == "cosine":
            kinds = ("cosine", "kernel")
        for kind in kinds:

            def embed(formulae: list[Formula], kind: Kind = kind) -> np.ndarray:
                return distill.embed(encoder, Programs.pack(formulae), kind=kind).cpu().numpy()

            words = "directions" if kind == "cosine" else "vectors"
            named = [replace(s, name=f"{s.name}; {words} against the {name}") for s in sets]
            implied = cosines_to_kernel(judge) if kind == "cosine" else None
            rows += evaluate_encoder(embed, judge, named, from_products=implied)
    return rows


def publish_decoder(
    folder: Path, config: invert.Config, decoder: Decoder, shown: int = 1024
) -> dict[str, float]:
    """Write folder/model, the encoder with this decoder; the figures on `shown` formulae."""
    config = invert.for_model(config)
    tensors = round_weights(decoder)
    checked = replace(config, shown=shown)
    figures = invert.Validation(checked, vector_source(config), shown).measure(decoder)
    about, encoder = store.read(model_folder(config.model))
    store.save(
        folder / "model",
        about["encoder"],
        encoder,
        {name: about[name] for name in (*store.FACTS, *store.OPTIONAL) if name in about},
        store.read_traces(model_folder(config.model)),
    )
    facts: dict[str, Any] = {
        "training": {**asdict(config), **environment(config.device)},
        "evaluation": [
            {"measure": name, "n": shown, "value": value} for name, value in figures.items()
        ],
    }
    store.save_decoder(folder / "model", decoder.config.to_dict(), tensors, facts)
    return figures


def round_weights(student: Encoder | Decoder) -> dict[str, np.ndarray]:
    """Round the student's matrices as they are stored, and return its tensors."""
    tensors = {name: p.detach().cpu().numpy() for name, p in student.named_parameters()}
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if parameter.ndim > 1 and isinstance(student, Decoder):
                rounded = store.from_int8(*store.to_int8(tensors[name]))
                parameter.copy_(torch.from_numpy(rounded))
            elif parameter.ndim > 1:
                parameter.copy_(parameter.half())
    return tensors


def teacher_facts(kernel: Any) -> dict[str, Any]:
    """What a model's config says about its teacher; with a measure, it can be made again."""
    facts: dict[str, Any] = {"kernel": kernel_name(kernel)}
    if isinstance(getattr(kernel, "measure", None), BaseMeasure):
        facts["measure"] = asdict(kernel.measure)
    if hasattr(kernel, "sigma2"):
        facts["sigma2"] = kernel.sigma2
    return facts


def training_range(config: distill.Config, errors: dict[str, float]) -> dict[str, dict[str, Any]]:
    """The largest value in training, and the error beyond, for each kind of `store.RANGE`."""
    parts = distill.recipes(config)
    numbers = [find_families(r, 0, 8000 // r.family_size, "train") for r, _ in parts]
    programs, _ = distill.draw(parts, numbers, config.points)
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
