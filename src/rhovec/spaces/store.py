"""A space is a folder of two files.

    space.json                      the schema, the kernel, what was measured, and the other's name
    space-XXXXXXXXXXXX.safetensors  the standardised traces and the directions, both float32

Nothing in it is code or pickle. The data file is named by its SHA-256 and written first; then space.json
takes its place in one step. So a kill leaves the old space or the new one. Data files that space.json
does not name, and temporary files of savers that were killed, are removed when the next space is saved.
Programs that save at once wait for each other. On file systems without locks, where one may remove
another's data, each looks at what is there at the end, and saves again if it is not complete. Reading
checks hashes, shapes, numbers and schema.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import RhovecError
from ..files import locked, read_file, remove_leftovers, write_file
from ..formula import Schema
from ..models.store import CONFIG, DIGEST, SPACE, check_digest, digest_of, tensors_in

FORMAT = 1
DESCRIPTION = SPACE
KERNELS = ("robustness", "centred")
MIN_TRACES, MAX_TRACES = 33, 4096  # more than the fewest directions
MAX_DIMENSION = 256
MAX_ERROR = 1e-3  # of the directions' inner products; float32 leaves about 1e-6
FACTS = ("error", "standard_error", "formulae", "seed", "traces")
ATTEMPTS = 20  # to read a folder into which others save


class Content(NamedTuple):
    """What a space consists of."""

    values: np.ndarray  # (N, V, P) float32: standardised traces
    basis: np.ndarray  # (N, D) float32: orthonormal directions
    schema: Schema
    kernel: str
    sigma2: float
    facts: dict[str, float]


def pack(content: Content) -> tuple[dict[str, Any], bytes]:
    """A description for JSON, and the arrays as safetensors."""
    from safetensors.numpy import save as to_bytes

    data = to_bytes({"traces": content.values, "directions": content.basis})
    digest = hashlib.sha256(data).hexdigest()
    description = {
        "format": FORMAT, "kernel": content.kernel, "sigma2": content.sigma2,
        "schema": json.loads(content.schema.to_json()), "facts": content.facts,
        "data": f"space-{digest[:12]}.safetensors", "sha256": digest,
    }  # fmt: skip
    return description | {DIGEST: digest_of(description)}, data


def fingerprint(description: Mapping[str, Any]) -> str:
    """Twelve digits that identify the measure, the kernel and the directions."""
    used = {name: description[name] for name in ("kernel", "sigma2", "schema", "sha256")}
    return hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:12]


def unpack(description: Any, data: bytes, where: str) -> Content:
    """Inverse of `pack`, for what may come from anybody."""
    _check(description, where)
    if hashlib.sha256(data).hexdigest() != description["sha256"]:
        raise RhovecError(f"{where}: the data are not those that were saved; get the space again")
    arrays = tensors_in(data, where)
    if set(arrays) != {"traces", "directions"}:
        raise RhovecError(f"{where}: a space holds traces and directions, not {sorted(arrays)}")
    try:
        schema = Schema.from_json(description["schema"])
    except RhovecError as error:
        raise RhovecError(f"{where}: {error}") from None
    values, basis = arrays["traces"], arrays["directions"]
    if values.ndim != 3 or basis.ndim != 2:
        raise RhovecError(f"{where}: traces have three axes and directions two")
    plain = [len(c.terms) == 1 and c.terms[0] == (c.variables[0], 1.0) for c in schema.channels]
    if not all(plain) or schema.stride != 1:
        raise RhovecError(
            f"{where}: the schema of a space has a channel per variable, and no stride"
        )
    for name, array, shape in (
        ("traces", values, (len(values), len(plain), values.shape[-1])),
        ("directions", basis, (len(values), basis.shape[-1])),
    ):
        if array.shape != shape or not array.size:
            raise RhovecError(f"{where}: {name} of shape {array.shape} do not fit the rest")
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise RhovecError(f"{where}: {name} must hold finite numbers in float32")
    n, dimension = basis.shape
    if not (MIN_TRACES <= n <= MAX_TRACES and 0 < dimension < n and dimension <= MAX_DIMENSION):
        raise RhovecError(
            f"{where}: a space has {MIN_TRACES} to {MAX_TRACES} traces and up to {MAX_DIMENSION} "
            f"directions, fewer than traces, not {n} and {dimension}"
        )
    if np.abs(basis.T @ basis - np.eye(dimension)).max() > MAX_ERROR:
        raise RhovecError(f"{where}: the directions are not orthonormal; get the space again")
    sigma2, facts = float(description["sigma2"]), description["facts"]
    return Content(values, basis, schema, description["kernel"], sigma2, dict(facts))


def save(folder: Path, content: Content) -> None:
    description, data = pack(content)
    text = json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder) as held:
            if (folder / CONFIG).exists():
                raise RhovecError(
                    f"{folder}: there is a model in this folder; save the space in another one"
                )
            remove_leftovers(folder, held)
            complete = False
            while not complete:
                write_file(folder / description["data"], data, locked=held)
                write_file(folder / DESCRIPTION, text.encode(), locked=held)
                for old in folder.glob("space-*.safetensors"):
                    if old.name != description["data"] and _is_data(old.name):
                        with suppress(OSError):  # somebody else has removed it
                            old.unlink()
                named = json.loads((folder / DESCRIPTION).read_bytes())["data"]
                complete = (folder / named).exists()
    except OSError as error:
        raise RhovecError(f"{folder}: cannot be written: {error.strerror}") from None


def read(folder: Path) -> Content:
    where = str(folder / DESCRIPTION)
    if not os.path.isdir(folder):
        raise RhovecError(f"there is no space: {folder} is not a folder")
    if not os.path.exists(where):
        raise RhovecError(f"{folder}: there is no space in this folder, as it has no {DESCRIPTION}")
    for left in reversed(range(ATTEMPTS)):  # a space that is saved meanwhile has a new data file
        content = read_file(where)
        try:
            description = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise RhovecError(f"{where} is not JSON, get the space again: {error}") from None
        _check(description, where)
        path = folder / description["data"]
        try:
            data = read_file(path)
            break
        except RhovecError:
            if not left:
                raise
            time.sleep(0.02)
    return unpack(description, data, str(folder))


def _check(description: Any, where: str) -> None:
    if not isinstance(description, dict) or not isinstance(description.get("format"), int):
        raise RhovecError(f"{where} does not describe a space: it has no format")
    if description["format"] != FORMAT:
        raise RhovecError(
            f"{where} has format {description['format']}, and this rhovec reads {FORMAT}; install a "
            "version of rhovec that reads it"
        )
    if description.get("kernel") not in KERNELS:
        raise RhovecError(f"{where}: kernel must be one of {', '.join(KERNELS)}")
    if not _is_number(description.get("sigma2")) or not 0 < description["sigma2"] < np.inf:
        raise RhovecError(f"{where}: sigma2 must be a positive number")
    facts = description.get("facts")
    if not isinstance(facts, dict) or set(facts) != set(FACTS) or not all(
        _is_number(value) and value >= 0 for value in facts.values()
    ):  # fmt: skip
        raise RhovecError(f"{where}: facts must be the numbers {', '.join(FACTS)}, 0 or more")
    digest = description.get("sha256")
    if not isinstance(digest, str) or not _is_data(description.get("data")):
        raise RhovecError(f"{where}: data and sha256 must name a file of this folder and its hash")
    if "schema" not in description:
        raise RhovecError(f"{where}: there is no schema in it; get the space again")
    check_digest(description, where, "space")


def _is_data(name: Any) -> bool:
    return isinstance(name, str) and bool(re.fullmatch(r"space-[0-9a-f]{12}\.safetensors", name))


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value)
    except (TypeError, OverflowError):  # no number, or a whole one beyond float64
        return False
