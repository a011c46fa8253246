"""A model is a folder, laid out as on the Hugging Face hub.

    config.json          all that is known of the model, and the SHA-256 of its weights
    encoder.safetensors  the weights: matrices in float16, vectors in float32
    README.md            the model card, written from config.json

Nothing in it is code or pickle. Files are written aside, flushed and renamed, config.json last, and
reading checks the hash and the name and shape of every tensor: a folder that is cut short, altered or
a mixture of two is refused, never half read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RhovecError
from ..files import write_file
from .config import EncoderConfig

FORMAT = 1
MOST = 65_536  # of any number that describes an encoder
CONFIG, WEIGHTS, CARD = "config.json", "encoder.safetensors", "README.md"
FACTS: dict[str, type] = {
    "teacher": dict,  # of the kernel: "measure", the fields of BaseMeasure, and "sigma2"
    "corpus": dict,
    "training": dict,
    "evaluation": list,  # rows of rhovec.evaluation
    "range": dict,  # kind of RANGE -> {"largest": number, "error": mean error beyond it or None}
}
RANGE = ("threshold", "left bound", "right bound", "nodes", "depth")


def save(
    folder: str | Path,
    encoder_config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
) -> None:
    """Write a model. encoder_config: the fields of EncoderConfig; facts: what `FACTS` names."""
    from safetensors.numpy import save as to_bytes

    unknown = sorted(set(facts) - set(FACTS))
    if unknown:
        raise RhovecError(f"a model has no {unknown[0]}; its facts are {', '.join(FACTS)}")
    config: dict[str, Any] = {"format": FORMAT, "encoder": dict(encoder_config)}
    config |= {name: facts.get(name, kind()) for name, kind in FACTS.items()}
    _check_facts(config, "the model")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused
        stored = {
            name: np.ascontiguousarray(array, np.float16 if array.ndim > 1 else np.float32)
            for name, array in tensors.items()
        }
    _check_tensors(stored, _encoder_config(config, "the model"), "the model")
    data = to_bytes(stored)
    config["sha256"] = {WEIGHTS: hashlib.sha256(data).hexdigest()}
    text = json.dumps(config, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (
            (WEIGHTS, data), (CARD, model_card(config, data).encode()), (CONFIG, text.encode()),
        ):  # fmt: skip
            write_file(folder / name, content)
    except OSError as error:
        raise RhovecError(f"{folder}: cannot be written: {error.strerror}") from None


def read(folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(the config, the tensors in float32) of a model that is whole."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    folder = Path(folder)
    config = _read_config(folder)
    encoder = _encoder_config(config, str(folder))
    data = _read_file(folder / WEIGHTS)
    if hashlib.sha256(data).hexdigest() != config["sha256"][WEIGHTS]:
        raise RhovecError(
            f"{folder / WEIGHTS} is not the file that was saved, its SHA-256 differs; "
            "get the model again"
        )
    try:
        stored = from_bytes(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RhovecError(
            f"{folder / WEIGHTS} is no safetensors file of numbers: {error}"
        ) from None
    _check_tensors(stored, encoder, str(folder / WEIGHTS))
    return config, {name: array.astype(np.float32) for name, array in stored.items()}


def model_card(config: Mapping[str, Any], data: bytes) -> str:
    """README.md, with the front matter that the hub reads."""
    encoder = EncoderConfig(**config["encoder"])
    count = sum(int(np.prod(shape)) for shape in encoder.shapes().values())
    lines = [
        "---", "library_name: rhovec", "license: mit", "tags:", "- signal-temporal-logic",
        "- embeddings", "---", "", "# An encoder of Signal Temporal Logic formulae", "",
        "Unit vectors of formulae whose inner products are the formulae's semantic similarity.", "",
        "```python", "import rhovec as rv", "", "model = rv.load(\"this folder\")",
        "model.embed([\"always[0,10] x_0 >= 0.3\", \"eventually x_1 < 2\"])"
        f"  # (2, {encoder.dimension})",
        "```", "",
        f"{count / 1e6:.1f} million parameters, {len(data) / 1e6:.1f} MB, SHA-256 "
        f"`{config['sha256'][WEIGHTS]}`.",
    ]  # fmt: skip
    for name in ("encoder", "teacher", "corpus", "training"):
        if config[name]:
            lines += ["", f"## {name.capitalize()}", "", *_table(("", ""), config[name].items())]
    if config["evaluation"]:
        columns = list(dict.fromkeys(key for row in config["evaluation"] for key in row))
        rows = [[row.get(key, "") for key in columns] for row in config["evaluation"]]
        lines += ["", "## Evaluation", "", *_table(columns, rows)]
    if config["range"]:
        rows = [[k, v.get("largest"), v.get("error")] for k, v in config["range"].items()]
        lines += ["", "## What it was trained on, and the mean error beyond", ""]
        lines += _table(("", "largest", "mean error beyond"), rows)
    return "\n".join([*lines, ""])


def _table(head: Any, rows: Any) -> list[str]:
    def cell(value: Any) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [head, ["---"] * len(list(head)), *rows]
    return [f"| {' | '.join(map(cell, line))} |" for line in lines]


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise RhovecError(f"there is no model: {folder} is no folder")
    path = folder / CONFIG
    try:
        config = json.loads(_read_file(path))
    except ValueError as error:
        raise RhovecError(f"{path} is no JSON, get the model again: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise RhovecError(f"{path} does not describe a rhovec model: it has no format")
    if config["format"] != FORMAT:
        raise RhovecError(
            f"{path} has format {config['format']}, and this rhovec reads {FORMAT}; "
            "install a rhovec that fits"
        )
    _check_facts(config, str(path))
    if not isinstance(config.get("sha256"), dict) or list(config["sha256"]) != [WEIGHTS]:
        raise RhovecError(f"{path}: sha256 must name {WEIGHTS} and nothing else")
    return config


def _check_facts(config: Mapping[str, Any], where: str) -> None:
    for name, kind in {"encoder": dict, **FACTS}.items():
        if not isinstance(config.get(name), kind):
            raise RhovecError(f"{where}: {name} is missing or no {kind.__name__}")
    for name, entry in config["range"].items():
        if name not in RANGE:
            raise RhovecError(f"{where}: range has {name}, but its kinds are {', '.join(RANGE)}")
        if not isinstance(entry, dict) or not isinstance(entry.get("largest"), int | float):
            raise RhovecError(f"{where}: range must say the largest {name}")
        if not isinstance(entry.get("error"), int | float | None):
            raise RhovecError(f"{where}: the error of {name} must be a number or null")


def _encoder_config(config: Mapping[str, Any], where: str) -> EncoderConfig:
    given = config["encoder"]
    for field in fields(EncoderConfig):
        value = given.get(field.name)
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST
        if not (isinstance(value, str) if field.type == "str" else whole):
            raise RhovecError(
                f"{where}: the encoder's {field.name} must be a "
                f"{'word' if field.type == 'str' else f'whole number from 1 to {MOST}'}, not {value!r}"
            )
    unknown = sorted(set(given) - {field.name for field in fields(EncoderConfig)})
    if unknown:
        raise RhovecError(f"{where}: an encoder has no {unknown[0]}")
    return EncoderConfig(**given)


def _check_tensors(tensors: Mapping[str, np.ndarray], encoder: EncoderConfig, where: str) -> None:
    shapes = encoder.shapes()
    for name in sorted(set(shapes) ^ set(tensors)):
        what = "lacks" if name in shapes else "has, against its config,"
        raise RhovecError(f"{where} {what} the tensor {name}")
    for name, shape in shapes.items():
        array = tensors[name]
        if array.shape != shape:
            raise RhovecError(f"{where}: {name} must have shape {shape}, not {array.shape}")
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise RhovecError(f"{where}: {name} must hold finite numbers, in float16 if a matrix")


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
