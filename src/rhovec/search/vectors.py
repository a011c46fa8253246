"""What turns formulae into unit vectors for a library: a model, or signatures of a kernel.

A signature is a formula's robustness on the kernel's signals, scaled to norm 1: there is no limit on
channels or on the size of a formula, and inner products are k'. A library keeps what it takes to
make its signatures again (parameters of the base measure, or the trajectories themselves), so that it
answers formulae wherever it is opened. Of a model it keeps the fingerprint, and refuses any other.
A model's inner products are similarities as they are.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from ..compare import default_measure
from ..errors import RhovecError
from ..formula.core import Formula
from ..kernel import BooleanKernel, IntegratedKernel, StlKernel
from ..signals import BaseMeasure, Measure, Trajectories

Kernel = StlKernel | BooleanKernel | IntegratedKernel
KERNELS: dict[str, type[Kernel]] = {
    "robustness": StlKernel, "boolean": BooleanKernel, "integrated": IntegratedKernel,
}  # fmt: skip


class Vectors(Protocol):
    """What a library needs of a model. The fingerprint tells its weights from all others."""

    @property
    def fingerprint(self) -> str: ...

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        """(B, D) float32, unit rows."""

    def kernel(self, n_signals: int | None = None, seed: int = 0) -> Kernel:
        """The exact kernel that inner products stand for, on so many signals."""


@dataclass(frozen=True)
class Signatures:
    """Monte Carlo signatures: the robustness on a kernel's signals as unit vectors."""

    source: Kernel

    def __post_init__(self) -> None:
        if not self.source.normalised:
            raise RhovecError("signatures are unit vectors: take a kernel with normalised=True")

    @property
    def fingerprint(self) -> str:
        facts, signals = self.recipe()
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        digest.update(signals or b"")
        return digest.hexdigest()[:12]

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        return self.source.signatures(formulae)

    def kernel(self, n_signals: int | None = None, seed: int = 0) -> Kernel:
        """The same kernel on so many other signals of mu0; on trajectories, itself."""
        if not isinstance(self.source.measure, BaseMeasure):
            return self.source
        return replace(self.source, n_signals=n_signals, seed=self.source.seed + seed)

    def recipe(self) -> tuple[dict[str, Any], bytes | None]:
        """What makes the same signatures again: parameters, and other signals than mu0's as npy."""
        kernel = self.source
        facts: dict[str, Any] = {
            "kernel": next(name for name, kind in KERNELS.items() if kind is type(kernel)),
            "sigma2": kernel.sigma2,
            "exponentiated": kernel.exponentiated,
        }
        measure = kernel.measure
        if isinstance(measure, BaseMeasure):
            signals = {"n_signals": measure.count(kernel.n_signals), "seed": kernel.seed}
            return facts | signals | {"measure": asdict(measure)}, None
        stream = io.BytesIO()
        drawn = np.concatenate(list(measure.blocks(kernel.n_signals, kernel.seed)))
        np.save(stream, drawn, allow_pickle=False)
        return facts | {"variables": list(measure.variables)}, stream.getvalue()

    @classmethod
    def from_recipe(cls, facts: dict[str, Any], signals: bytes | None) -> Signatures:
        """The inverse of `recipe`. KeyError, TypeError or ValueError: it is none."""
        if signals is None:
            measure: Measure = BaseMeasure(**facts["measure"])
        else:
            values = np.lib.format.read_array(io.BytesIO(signals), allow_pickle=False)
            measure = Trajectories(values, facts["variables"])
        return cls(
            KERNELS[facts["kernel"]](
                measure,
                facts.get("n_signals"),
                facts["sigma2"],
                facts.get("seed", 0),
                exponentiated=facts["exponentiated"],
            )
        )


def as_vectors(given: Vectors | Kernel) -> Vectors:
    """A kernel stands for its signatures."""
    return Signatures(given) if isinstance(given, Kernel) else given


def shipped_model(fingerprint: str) -> Vectors | None:
    """The model that comes with rhovec, if it is this one."""
    from ..models.model import DEFAULT, load

    model = load() if DEFAULT.is_dir() else None
    return model if model and model.fingerprint == fingerprint else None


def usual_kernel(formulae: Iterable[Formula], n_signals: int | None = None) -> StlKernel:
    """The kernel on mu0 with as many variables as formulae in x_0, x_1, ... need."""
    needed = default_measure(formulae)
    return StlKernel(BaseMeasure(max(3, needed.n_variables)), n_signals)
