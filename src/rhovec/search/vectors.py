"""What turns formulae into unit vectors for a library: anything with the methods of `Vectors`.

A trained model is one. Signatures are another: the robustness of a formula on a kernel's traces,
scaled to norm 1. They have no limit on variables or on the size of a formula, and their inner products
are k'. A library stores what it takes to make its signatures again (the parameters of the base measure,
or the traces themselves), so that it can be searched by formula wherever it is opened. For anything
else it stores the fingerprint, and refuses vectors with another one.
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
from ..formula import Formula, Schema
from ..kernel import BooleanKernel, IntegratedKernel, StlKernel
from ..traces import BaseMeasure, Measure, TraceMeasure
from .backend import Facts, Kind, Stored

Kernel = StlKernel | BooleanKernel | IntegratedKernel
KERNELS: dict[str, type[Kernel]] = {
    "robustness": StlKernel, "boolean": BooleanKernel, "integrated": IntegratedKernel,
}  # fmt: skip
MAX_TRACES = 500 << 20  # bytes of traces stored in a library


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
    def from_recipe(cls, facts: dict[str, Any], traces: bytes | None) -> Signatures:
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


def as_vectors(given: Vectors | Kernel) -> Vectors:
    """The signatures of a kernel; anything else as it is."""
    if isinstance(given, Kernel):
        return Signatures(given)
    if not all(hasattr(given, name) for name in ("fingerprint", "embed", "kernel")):
        raise RhovecError(f"vectors must be a model or a kernel, not {given!r:.80}")
    return given


def kind_of(vectors: Vectors) -> Kind:
    """Meaning of the inner products of these vectors."""
    kind: Kind = getattr(vectors, "kind", "kernel")
    return kind


def describe(
    vectors: Vectors, dimension: int, schema: Schema | None = None, stored: Stored = "float32"
) -> Facts:
    """The facts of a library with these vectors."""
    recipe, traces = vectors.recipe() if isinstance(vectors, Signatures) else (None, None)
    if traces and len(traces) > MAX_TRACES:
        raise RhovecError(
            f"a library stores the traces of its signatures, and these have {len(traces) >> 20} MB; "
            "use fewer traces"
        )
    kind = kind_of(vectors)
    sigma2 = float(vectors.kernel().sigma2) if kind == "cosine" else None
    text = schema.to_json() if schema else None
    return Facts(vectors.fingerprint, kind, sigma2, dimension, stored, text, recipe, traces)


def vectors_of(facts: Facts) -> Vectors | None:
    """The maker of a library's vectors, if it is known without asking the user."""
    if facts.recipe is not None:
        return Signatures.from_recipe(facts.recipe, facts.traces)
    from ..models.model import DEFAULT, load

    model = load() if DEFAULT.is_dir() and facts.kind == "kernel" else None
    return model if model and model.fingerprint == facts.fingerprint else None


def usual_kernel(formulae: Iterable[Formula], n_traces: int | None = None) -> StlKernel:
    """The kernel on mu0 with as many variables as formulae in x_0, x_1, ... need."""
    needed = default_measure(formulae)
    return StlKernel(BaseMeasure(max(3, needed.n_variables)), n_traces)
