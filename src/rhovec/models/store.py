"""A model is a folder, laid out as on the Hugging Face hub.

    config.json          all facts about the model, the SHA-256 of its weights, and one of its own
    encoder.safetensors  the weights: matrices in float16, vectors in float32
    decoder.safetensors  the weights of the decoder for this encoder's vectors, if it has one: matrices
                         in int8 with scales, NAME.int8_scale; in format 2 as the encoder's
    traces.safetensors   standardised traces of a model on your own traces, for its exact kernel
    README.md            the model card, written from config.json

Nothing in it is code or pickle. A file of weights is first written as .new-NAME; config.json, which is
replaced atomically, then names it by its hash; at last it takes its place. Reading looks in both places,
so a kill leaves the old model or the new one, and whoever saves next tidies up. Programs that save at
once wait for each other, where the file system has locks. Reading checks the hashes and the name and
shape of every tensor. So a folder that is incomplete, altered or a mixture of two is refused, and
nothing is allocated by the numbers of a config that its weights do not confirm.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import RhovecError, SchemaError
from ..files import as_folder, locked, read_file, remove_leftovers, write_file
from ..formula.schema import Schema
from .config import EncoderConfig
from .decoder_config import DecoderConfig
from .heads import make_head

FORMAT, FORMAT_INT8 = 2, 3  # the latter has a decoder in int8
SCALE, GROUP = (
    ".int8_scale",
    32,
)  # added to the name of a matrix in int8; numbers of a row per scale
MAX_SIZE = 65_536  # of any number in the config of an encoder or a decoder
CONFIG, WEIGHTS, DECODER = "config.json", "encoder.safetensors", "decoder.safetensors"
TRACES, MAX_TRACES = "traces.safetensors", 4096
CARD = "README.md"
NEW = ".new-"  # before the name of a file that is about to take its place
SPACE = "space.json"  # what the folder of a space has instead of CONFIG
DIGEST = "digest"  # in the description of a model or a space: of the rest of it
FACTS: dict[str, type] = {
    "teacher": dict,  # "kernel": a name; "measure": the fields of BaseMeasure; "sigma2"
    "corpus": dict,
    "training": dict,
    "evaluation": list,  # rows of rhovec.evaluation
    "range": dict,  # kind of RANGE -> {"largest": number, "error": mean error beyond it or None}
}
OPTIONAL = ("schema",)  # facts of a model on your own traces: its channels, as a schema has them
RANGE = ("threshold", "left bound", "right bound", "nodes", "depth")
DECODER_FACTS: dict[str, type] = {"training": dict, "evaluation": list}
Config = TypeVar("Config", EncoderConfig, DecoderConfig)


def save(
    folder: str | Path,
    encoder_config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    traces: np.ndarray | None = None,
) -> None:
    """Write a model. encoder_config: the fields of EncoderConfig; facts: those that `FACTS` names.
    traces: (N, channels, points) float32 that the kernel of the teacher is on, if they are your own.

    A decoder in the folder is removed, as it was for another encoder's vectors.
    """
    from safetensors.numpy import save as to_bytes

    _check_names(facts, {**FACTS, **dict.fromkeys(OPTIONAL, dict)}, "a model")
    config: dict[str, Any] = {"format": FORMAT, "encoder": dict(encoder_config)}
    config |= {name: facts.get(name, kind()) for name, kind in FACTS.items()}
    config |= {name: facts[name] for name in OPTIONAL if name in facts}
    _check_facts(config, "the model")
    encoder = _config(EncoderConfig, config["encoder"], "encoder", "the model")
    read_schema(config, encoder, "the model")
    data = _encoder_bytes(tensors, encoder.shapes())
    files = {WEIGHTS: data}
    if traces is not None:
        files[TRACES] = to_bytes({"traces": np.ascontiguousarray(traces, np.float32)})
        _read_traces(files[TRACES], encoder, "the model")
    config["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    _write(Path(folder), files, config)


def save_decoder(
    folder: str | Path,
    decoder_config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
) -> None:
    """Add a decoder to the model in a folder, or replace the one it has.

    decoder_config: the fields of DecoderConfig; facts: those that `DECODER_FACTS` names.
    """
    _check_names(facts, DECODER_FACTS, "a decoder")
    folder = Path(folder)
    _read_config(folder)  # is there a model?
    with _held(folder) as held:  # nobody saves another model between reading and writing
        config, _ = read(folder)
        config["decoder"] = {"config": dict(decoder_config)}
        config["decoder"] |= {name: facts.get(name, kind()) for name, kind in DECODER_FACTS.items()}
        decoder = _decoder_config(config, "the decoder")
        _check_tensors(tensors, decoder.shapes(), "the decoder")
        config["format"] = FORMAT_INT8
        data = _decoder_bytes(tensors)
        config["sha256"][DECODER] = hashlib.sha256(data).hexdigest()
        _put(folder, {DECODER: data}, config, held)


def copy(source: str | Path, folder: str | Path, config: dict[str, Any]) -> None:
    """Write the model that was read from `source`, with this config, into another folder.

    Its traces may be missing, as somebody may have handed it on without them.
    """
    target = as_folder(folder, "a model")
    paths = [Path(source) / name for name in config["sha256"]]
    files = {
        path.name: _checked_file(path, config)
        for path in paths
        if path.name != TRACES or _has(path)
    }
    _write(target, files, config)


def read(folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The config of a complete model, and its encoder's tensors in float32."""
    folder = Path(folder)
    config = _read_config(folder)
    encoder = _config(EncoderConfig, config["encoder"], "encoder", str(folder))
    _check_measure(config["teacher"], encoder, str(folder / CONFIG))
    read_schema(config, encoder, str(folder / CONFIG))
    return config, _read_weights(folder / WEIGHTS, config, encoder.shapes())


def read_decoder(folder: str | Path) -> tuple[DecoderConfig, dict[str, np.ndarray]] | None:
    """The decoder's config and its tensors in float32; None if the model has no decoder."""
    folder = Path(folder)
    config = _read_config(folder)
    if "decoder" not in config:
        return None
    decoder = _decoder_config(config, str(folder / CONFIG))
    return decoder, _read_weights(folder / DECODER, config, decoder.shapes())


def read_traces(folder: str | Path) -> np.ndarray | None:
    """The traces (N, channels, points) float32 of a model on your own traces; None without them."""
    folder = Path(folder)
    config = _read_config(folder)
    if TRACES not in config["sha256"]:
        return None
    if not _has(folder / TRACES):
        raise RhovecError(
            f"{folder}: this model was handed on without its traces, which its exact kernel needs; put "
            f"{TRACES} back, or use its vectors only"
        )
    encoder = _config(EncoderConfig, config["encoder"], "encoder", str(folder))
    return _read_traces(_checked_file(folder / TRACES, config), encoder, str(folder / TRACES))


def _read_traces(data: bytes, encoder: EncoderConfig, where: str) -> np.ndarray:
    values = tensors_in(data, where).get("traces", np.empty(0))
    n = len(values) if values.ndim else 0
    if not 0 < n <= MAX_TRACES or values.shape[1:] != (encoder.channels, encoder.points):
        raise RhovecError(
            f"{where}: traces of shape {values.shape} must be (1 ... {MAX_TRACES}, {encoder.channels}, "
            f"{encoder.points})"
        )
    if values.dtype != np.float32 or not np.isfinite(values).all():
        raise RhovecError(f"{where}: traces must be finite numbers in float32")
    return values


def read_schema(config: Mapping[str, Any], encoder: EncoderConfig, where: str) -> Schema | None:
    """The schema of a model on your own traces; None if it has none."""
    if "schema" not in config:
        return None
    try:
        schema = Schema.from_json(config["schema"])
    except SchemaError as error:
        raise RhovecError(f"{where}: {error}") from None
    if len(schema.channels) != encoder.channels:
        raise RhovecError(
            f"{where}: the schema has {len(schema.channels)} channels, but the encoder was made for "
            f"{encoder.channels}; get the model again"
        )
    return schema.on_traces()


def model_card(config: Mapping[str, Any]) -> str:
    """README.md, with the front matter that the hub reads."""
    encoder = EncoderConfig(**config["encoder"])
    examples = ["always[0,10] x_0 >= 0.3", "eventually x_1 < 2"]
    if "schema" in config:
        texts = ("always {expression} >= {mean:.4g}", "eventually {expression} < {mean:.4g}")
        channels = (config["schema"]["channels"] * 2)[:2]
        examples = [text.format(**one) for text, one in zip(texts, channels, strict=True)]
    lines = [
        "---", "library_name: rhovec", "license: mit", "tags:", "- signal-temporal-logic",
        "- embeddings", "---", "", "# An encoder of Signal Temporal Logic formulae", "",
        "Unit vectors of formulae whose inner products are the formulae's semantic similarity.", "",
        "```python", "import rhovec as rv", "", "model = rv.load(\"this folder\")",
        f"model.embed({json.dumps(examples, ensure_ascii=False)})  # (2, {encoder.dimension})",
        "```", "",
        *_cosines(encoder, config["teacher"].get("sigma2")),
        _size(encoder, config["sha256"][WEIGHTS]),
    ]  # fmt: skip
    for name in ("encoder", "teacher", "corpus", "training"):
        facts = encoder.to_dict() if name == "encoder" else config[name]
        if facts:
            lines += ["", f"## {name.capitalize()}", "", *_table(("", ""), facts.items())]
    if config["evaluation"]:
        lines += ["", "## Evaluation", "", *_rows(config["evaluation"])]
    if "schema" in config:
        names = ("expression", "unit", "mean", "std", "discrete")
        rows = [[channel[name] for name in names] for channel in config["schema"]["channels"]]
        lines += ["", f"## Channels, every {config['schema']['dt']:g} s", "", *_table(names, rows)]
    if config["range"]:
        rows = [[k, v.get("largest"), v.get("error")] for k, v in config["range"].items()]
        lines += ["", "## Range of the training, and the mean error beyond", ""]
        lines += _table(("", "largest", "mean error beyond"), rows)
    if "decoder" in config:
        facts = config["decoder"]
        int8 = config["format"] == FORMAT_INT8
        size = _size(DecoderConfig(**facts["config"]), config["sha256"][DECODER], int8)
        about = {**facts["config"], **facts["training"]}
        lines += ["", "## Decoder", "", size, "", *_table(("", ""), about.items())]
        if facts["evaluation"]:
            lines += ["", *_rows(facts["evaluation"])]
    return "\n".join([*lines, ""])


def _cosines(encoder: EncoderConfig, sigma2: float | None) -> list[str]:
    """A paragraph about the vectors of kind "cosine", if the model has them."""
    head = make_head(encoder)
    if head.kind != "cosine":
        return []
    return [
        f'`model.embed(formulae, kind="cosine")` gives the {head.row_dimension} numbers from which '
        "these vectors are computed: unit vectors whose inner products are the cosine k' of the "
        "formulae's robustness. The similarity is "
        f"exp(-(1 - k') / {sigma2 or head.sigma2:g}). They are shorter, and their similarities are "
        "closer to the exact kernel.", "",
    ]  # fmt: skip


def _size(config: EncoderConfig | DecoderConfig, digest: str, int8: bool = False) -> str:
    shapes = config.shapes().values()
    count = sum(math.prod(shape) for shape in shapes)
    stored = sum(math.prod(shape) * (2 if len(shape) > 1 else 4) for shape in shapes)
    if int8:
        stored = sum(
            math.prod(s) + 4 * math.prod(_scales_shape(s)) if len(s) > 1 else 4 * s[0]
            for s in shapes
        )
    return f"{count / 1e6:.1f} million parameters, {stored / 1e6:.1f} MB, SHA-256 `{digest}`."


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    """A table of rows, which may have different columns."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return _table(columns, [[row.get(key, "") for key in columns] for row in rows])


def _table(head: Any, rows: Any) -> list[str]:
    def cell(value: Any) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [head, ["---"] * len(list(head)), *rows]
    return [f"| {' | '.join(map(cell, line))} |" for line in lines]


def _read_config(folder: Path) -> dict[str, Any]:
    if not os.path.isdir(folder):
        raise RhovecError(f"there is no model: {folder} is not a folder")
    path = folder / CONFIG
    if not path.exists():
        raise RhovecError(f"{folder}: there is no model in this folder, as it has no {CONFIG}")
    data = read_file(path)
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RhovecError(f"{path} is not JSON, get the model again: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise RhovecError(f"{path} does not describe a rhovec model: it has no format")
    if config["format"] not in (FORMAT, FORMAT_INT8):
        raise RhovecError(
            f"{path} has format {config['format']}, and this rhovec reads {FORMAT} and {FORMAT_INT8}; "
            "install a version of rhovec that reads it"
        )
    _check_facts(config, str(path))
    files = [WEIGHTS, DECODER] if "decoder" in config else [WEIGHTS]
    known = config.get("sha256")
    if not isinstance(known, dict) or [name for name in known if name != TRACES] != files:
        raise RhovecError(f"{path}: sha256 must name {' and '.join(files)} and nothing else")
    if DIGEST in config:  # older models have none
        check_digest(config, str(path), "model")
    for name in files:
        if not _has(folder / name):
            raise RhovecError(f"{folder}: {name} is missing; get the model again")
    return config


def fingerprint(config: Mapping[str, Any]) -> str:
    """Twelve digits of the weights and, as it says what a formula means, of the schema."""
    digest: str = config["sha256"][WEIGHTS][:12]
    if "schema" not in config:
        return digest
    return short_digest(f"{digest} {json.dumps(config['schema'], sort_keys=True)}")


def short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_of(description: Mapping[str, Any]) -> str:
    """What a description must hold as DIGEST, so that damage to it is noticed."""
    rest = {name: value for name, value in description.items() if name != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_digest(description: Mapping[str, Any], where: str, what: str) -> None:
    if description.get(DIGEST) != digest_of(description):
        raise RhovecError(f"{where} is not as it was saved; get the {what} again")


def _check_facts(config: Mapping[str, Any], where: str) -> None:
    for name, kind in {"encoder": dict, **FACTS}.items():
        if not isinstance(config.get(name), kind):
            raise RhovecError(f"{where}: {name} is missing or not a {kind.__name__}")
    for name, entry in config["range"].items():
        if name not in RANGE:
            raise RhovecError(f"{where}: range has {name}, but only {', '.join(RANGE)} are known")
        if not isinstance(entry, dict) or not isinstance(entry.get("largest"), int | float):
            raise RhovecError(f"{where}: range must give the largest {name}")
        if not isinstance(entry.get("error"), int | float | None):
            raise RhovecError(f"{where}: the error of {name} must be a number or null")


def _check_measure(teacher: Mapping[str, Any], encoder: EncoderConfig, where: str) -> None:
    """Refuse a teacher whose traces do not have the size that the encoder was made for."""
    measure = teacher.get("measure")
    if isinstance(measure, dict):
        for name, known in (("points", encoder.points), ("n_variables", encoder.channels)):
            if measure.get(name) != known:
                raise RhovecError(
                    f"{where}: the teacher's measure has {name} {measure.get(name)!r}, but the "
                    f"encoder was made for {known}; get the model again"
                )


def _check_names(facts: Mapping[str, Any], known: Mapping[str, type], what: str) -> None:
    for name in sorted(set(facts) - set(known)):
        raise RhovecError(f"{what} has no {name}; it has {', '.join(known)}")


def _config(kind: type[Config], given: Mapping[str, Any], what: str, where: str) -> Config:
    """An EncoderConfig or a DecoderConfig from its fields."""
    for field in fields(kind):
        value = given.get(field.name)
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_SIZE
        if not (isinstance(value, str) if field.type == "str" else whole):
            raise RhovecError(
                f"{where}: the {what}'s {field.name} must be a "
                f"{'word' if field.type == 'str' else f'whole number from 1 to {MAX_SIZE}'}, "
                f"not {value!r}"
            )
    unknown = sorted(set(given) - {field.name for field in fields(kind)})
    if unknown:
        raise RhovecError(f"{where}: the {what} has no {unknown[0]}")
    return kind(**given)


def _decoder_config(config: Mapping[str, Any], where: str) -> DecoderConfig:
    given = config["decoder"]
    for name, kind in {"config": dict, **DECODER_FACTS}.items():
        if not isinstance(given, dict) or not isinstance(given.get(name), kind):
            raise RhovecError(f"{where}: {name} of the decoder is missing or not a {kind.__name__}")
    decoder = _config(DecoderConfig, given["config"], "decoder", where)
    if decoder.dimension != config["encoder"]["dimension"]:
        raise RhovecError(
            f"{where}: the decoder reads vectors of {decoder.dimension} numbers, but the encoder "
            f"makes vectors of {config['encoder']['dimension']}"
        )
    return decoder


def _check_tensors(
    tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    for name in sorted(set(shapes) ^ set(tensors)):
        what = "lacks" if name in shapes else "has, contrary to its config,"
        raise RhovecError(f"{where} {what} the tensor {name}")
    for name, shape in shapes.items():
        array = tensors[name]
        if array.shape != shape:
            raise RhovecError(f"{where}: {name} must have shape {shape}, not {array.shape}")
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise RhovecError(f"{where}: {name} must hold finite numbers, in float16 if a matrix")


def _encoder_bytes(
    tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> bytes:
    """The content of a safetensors file: matrices in float16, vectors in float32."""
    from safetensors.numpy import save as to_bytes

    with np.errstate(over="ignore"):  # numbers too large become infinite, which is refused
        stored = {
            name: np.ascontiguousarray(array, np.float16 if array.ndim > 1 else np.float32)
            for name, array in tensors.items()
        }
    _check_tensors(stored, shapes, "the model")
    return to_bytes(stored)


def to_int8(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from -127 to 127, and float32 scales, one per GROUP numbers of a row."""
    parts = matrix.reshape(*matrix.shape[:-1], -1, _group(matrix.shape))
    scales = np.abs(parts).max(-1, initial=1e-30).astype(np.float32) / np.float32(127)
    return np.rint(parts / scales[..., None]).astype(np.int8).reshape(matrix.shape), scales


def from_int8(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Inverse of `to_int8`, up to rounding, in float32."""
    parts = codes.reshape(*scales.shape, -1) * scales[..., None].astype(np.float32)
    matrix: np.ndarray = parts.reshape(codes.shape)
    return matrix


def _group(shape: tuple[int, ...]) -> int:
    """Numbers per scale: the whole row where groups do not fill it."""
    return shape[-1] if shape[-1] % GROUP else GROUP


def _scales_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], shape[-1] // _group(shape))


def _decoder_bytes(tensors: Mapping[str, np.ndarray]) -> bytes:
    """The content of a safetensors file: matrices in int8 with their scales, vectors in float32."""
    from safetensors.numpy import save as to_bytes

    stored = {}
    for name, array in tensors.items():
        if array.ndim > 1:
            stored[name], stored[name + SCALE] = to_int8(array)
        else:
            stored[name] = np.ascontiguousarray(array, np.float32)
    return to_bytes(stored)


def _without_int8(stored: dict[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file, with floats in place of int8 and scales."""
    found = {name: array for name, array in stored.items() if not name.endswith(SCALE)}
    for name in stored.keys() - found.keys():
        codes, scales = stored.get(name.removesuffix(SCALE)), stored[name]
        whole = codes is not None and codes.dtype == np.int8 and codes.ndim and codes.size
        if codes is None or not whole or scales.shape != _scales_shape(codes.shape):
            raise RhovecError(f"{path}: {name} does not fit the matrix that it belongs to")
        found[name.removesuffix(SCALE)] = from_int8(codes, scales)
    return found


def _read_weights(
    path: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The tensors, in float32, of a file that must have the hash in the config."""
    stored = _without_int8(tensors_in(_checked_file(path, config), str(path)), path)
    _check_tensors(stored, shapes, str(path))
    return {name: array.astype(np.float32) for name, array in stored.items()}


def tensors_in(data: bytes, where: str) -> dict[str, np.ndarray]:
    """The arrays in the content of a safetensors file, by name."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        return from_bytes(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RhovecError(f"{where}: not a safetensors file of numbers: {error}") from None


def _write(folder: Path, weights: dict[str, bytes], config: dict[str, Any]) -> None:
    """Write a model whose weights are these. Those of another one are removed, and its traces, which
    may be confidential."""
    with _held(folder, make=True) as held:
        _put(folder, weights, config, held)
        for old in {WEIGHTS, DECODER, TRACES} - weights.keys():
            (folder / old).unlink(missing_ok=True)


@contextmanager
def _held(folder: Path, make: bool = False) -> Iterator[bool]:
    """Keep others from writing into a folder. make: the folder too, if it is not there."""
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        with locked(folder) as held:
            if (folder / SPACE).exists():
                raise RhovecError(
                    f"{folder}: there is a space in this folder; save the model in another one"
                )
            remove_leftovers(folder, held)
            if held:
                _settle(folder)
            yield held
    except OSError as error:
        raise RhovecError(f"{folder}: cannot be written: {error.strerror}") from None


def _put(folder: Path, weights: dict[str, bytes], config: dict[str, Any], held: bool) -> None:
    """Write weights beside those that are there, the config that names them, and the card."""
    config = json.loads(json.dumps(config, allow_nan=False))  # as it will be read
    config[DIGEST] = digest_of(config)
    text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    for name, content in weights.items():
        write_file(folder / f"{NEW}{name}", content, locked=held)
    write_file(folder / CONFIG, text.encode(), locked=held)
    for name in weights:
        (folder / f"{NEW}{name}").replace(folder / name)
    write_file(folder / CARD, model_card(config).encode(), locked=held)


def _settle(folder: Path) -> None:
    """Put new files in their place if a saver was killed after the config named them; else remove
    them."""
    for path in folder.glob(f"{NEW}*"):
        name = path.name.removeprefix(NEW)
        try:
            known = _read_config(folder)["sha256"].get(name)
        except RhovecError:  # no model yet
            known = None
        if known == hashlib.sha256(path.read_bytes()).hexdigest():
            path.replace(folder / name)
        else:
            path.unlink()


def _has(path: Path) -> bool:
    """Whether a model has this file, in its place or on the way there."""
    return path.with_name(NEW + path.name).exists() or path.exists()


def _checked_file(path: Path, config: Mapping[str, Any]) -> bytes:
    """A file of the model, from its place or on the way there."""
    for place in (path, path.with_name(NEW + path.name), path):  # it may just have moved
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() == config["sha256"][path.name]:
            return data
    raise RhovecError(
        f"{path} is not the file that was saved, its SHA-256 differs; get the model again"
    )
