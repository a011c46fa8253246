"""What turns formulae into unit vectors for a library: anything with the methods of `Vectors`.

A model is one, and a space of one's own traces another. So are signatures, the robustness of a formula
on a kernel's traces scaled to norm 1: they are as long as there are traces, and exact on any kernel.
What has a `recipe` is stored in a library, which then answers formulae wherever it is opened. For
anything else a library stores the fingerprint, and refuses what has another one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np

from ..errors import RhovecError
from ..files import as_folder
from ..formula import Formula
from ..kernel import BooleanKernel, CentredKernel, IntegratedKernel, StlKernel
from ..models import model as models
from ..models.heads import Kind, make_head
from ..models.model import Model, Precision
from ..models.store import CONFIG
from ..traces import BaseMeasure, Measure, TraceMeasure
from .space import Space
from .store import DESCRIPTION

Kernel = StlKernel | BooleanKernel | IntegratedKernel
KERNELS: dict[str, type[Kernel]] = {**models.KERNELS, "centred": CentredKernel}


class Vectors(Protocol):
    """Maker of unit vectors.

    Inner products are the kernel K itself. If they are k' instead, with K = exp(-(1 - k') / sigma2),
    an attribute `kind = "cosine"` says so, and the kernel's `sigma2` counts.
    """

    @property
    def fingerprint(self) -> str:
        """A text that is the same if and only if the vectors are comparable."""

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        """Unit rows (B, D) float32."""

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> Kernel:
        """The exact kernel that inner products approximate, on `n_traces` traces."""


@dataclass(frozen=True)
class Signatures:
    """Monte Carlo signatures: robustness on a kernel's traces, as unit vectors."""

    source: Kernel

    def __post_init__(self) -> None:
        if not self.source.normalised:
            raise RhovecError("signatures are unit vectors: use a kernel with normalised=True")

    @property
    def fingerprint(self) -> str:
        facts, traces = self.recipe()
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        digest.update(traces or b"")
        return digest.hexdigest()[:12]

    @property
    def kind(self) -> Kind:
        return "cosine" if self.source.exponentiated else "kernel"

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        return self.source.signatures(formulae)

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> Kernel:
        """The same kernel on `n_traces` other traces of mu0; on traces, itself."""
        if not isinstance(self.source.measure, BaseMeasure):
            return self.source
        return replace(self.source, n_traces=n_traces, seed=self.source.seed + seed)

    def recipe(self) -> tuple[dict[str, Any], bytes | None]:
        """Parameters that make the same signatures again, and traces other than mu0's as npy."""
        kernel = self.source
        facts: dict[str, Any] = {
            "kernel": next(name for name, kind in KERNELS.items() if kind is type(kernel)),
            "sigma2": kernel.sigma2,
            "exponentiated": kernel.exponentiated,
        }
        measure = kernel.measure
        if isinstance(measure, BaseMeasure):
            traces = {"n_signals": measure.count(kernel.n_traces), "seed": kernel.seed}
            return facts | traces | {"measure": asdict(measure)}, None
        stream = io.BytesIO()
        drawn = np.concatenate(list(measure.blocks(kernel.n_traces, kernel.seed)))
        np.save(stream, drawn, allow_pickle=False)
        return facts | {"variables": list(measure.variables)}, stream.getvalue()

    @classmethod
    def from_recipe(cls, facts: Mapping[str, Any], traces: bytes | None) -> Signatures:
        """Inverse of `recipe`. Raises KeyError, TypeError or ValueError if this is none."""
        if traces is None:
            measure: Measure = BaseMeasure(**facts["measure"])
        else:
            values = np.lib.format.read_array(io.BytesIO(traces), allow_pickle=False)
            measure = TraceMeasure(values, facts["variables"])
        return cls(
            KERNELS[facts["kernel"]](
                measure,
                facts.get("n_signals"),
                facts["sigma2"],
                facts.get("seed", 0),
                exponentiated=facts["exponentiated"],
            )
        )


def as_vectors(given: Vectors | Kernel, kind: Kind | None = None) -> Vectors:
    """The signatures of a kernel; of a model the vectors of this kind; anything else as it is.

    By default a model's vectors are its directions, if it has them: neighbours by these are closer to
    those of the exact kernel.
    """
    if isinstance(given, Kernel):
        return Signatures(given)
    if isinstance(given, Model):
        chosen = make_head(given.encoder).kind if kind is None else kind
        return given.directions if chosen == "cosine" else given
    if not all(hasattr(given, name) for name in ("fingerprint", "embed", "kernel")):
        raise RhovecError(f"vectors must be a space, a model or a kernel, not {given!r:.80}")
    return given


def kind_of(vectors: Vectors) -> Kind:
    """What inner products of these vectors are."""
    kind: Kind = getattr(vectors, "kind", "kernel")
    return kind


def from_recipe(recipe: Mapping[str, Any], data: bytes | None) -> Vectors:
    """What made a recipe. Raises KeyError, TypeError, ValueError or RhovecError if this is none."""
    if "space" in recipe:
        return Space.from_recipe(recipe, data or b"")
    return Signatures.from_recipe(recipe, data)


@overload
def load(
    path: None = None, device: str | None = None, precision: Precision = "float32"
) -> Model: ...


@overload
def load(
    path: str | Path, device: str | None = None, precision: Precision = "float32"
) -> Model | Space: ...


def load(
    path: str | Path | None = None, device: str | None = None, precision: Precision = "float32"
) -> Model | Space:
    """Load a space: a shipped model (the default one, or "small"), one in a folder, or "owner/name" of
    the Hugging Face hub; or the space of your own traces in a folder.

    path: a single word is the name of a shipped model if there is one: to read a folder `default` of
        your own, write "./default".
    device: for a model, None for NumPy; "cpu", "cuda" or "cuda:1" for torch.
    precision: for a model without a device, "int8" for products of small integers. On processors with
        AVX512-VNNI that is three to four times as fast; vectors of kind cosine move by about 0.005. A
        vector is then the same to the last bit in every batch.
    """
    if path is None or not os.path.exists(as_folder(path, "a space") / DESCRIPTION):
        if path is not None and os.path.isdir(path) and not os.path.exists(Path(path) / CONFIG):
            raise RhovecError(
                f"{path}: no space in this folder, as it has neither {DESCRIPTION}, of a space of "
                f"traces, nor {CONFIG}, of a model"
            )
        return models.load(path, device, precision)
    if device is not None or precision != "float32":
        raise RhovecError(
            "a space of traces has no network: load it without a device and a precision"
        )
    return Space.load(path)
