"""The facts of a library that say what made its vectors, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

from ..compare import default_measure
from ..errors import RhovecError
from ..formula import Formula, Schema
from ..kernel import StlKernel
from ..models.model import PRECISIONS, load, shipped
from ..spaces.vectors import Vectors, from_recipe, kind_of
from ..traces import BaseMeasure
from .backend import Facts
from .numbers import Stored

MAX_DATA = 500 << 20  # bytes of traces stored in a library


def describe(
    vectors: Vectors,
    dimension: int,
    schema: Schema | None = None,
    stored: Stored = "float32",
    sizes: tuple[float, ...] | None = None,
    reading: Mapping[str, Any] | None = None,
) -> Facts:
    """The facts of a library with these vectors. sizes: `Numbers.learn` gives them, for int8."""
    recipe, data = vectors.recipe() if hasattr(vectors, "recipe") else (None, None)
    if data and len(data) > MAX_DATA:
        raise RhovecError(
            f"a library stores the traces of its vectors, and these have {len(data) >> 20} MB; take "
            "fewer traces"
        )
    kind = kind_of(vectors)
    sigma2 = _sigma2(vectors) if kind == "cosine" else None
    text = schema.to_json() if schema else None
    return Facts(
        vectors.fingerprint, kind, sigma2, dimension, stored, text, recipe, data, sizes,
        dict(reading) if reading else None,
    )  # fmt: skip


def vectors_of(facts: Facts) -> Vectors | None:
    """What made a library's vectors, if it can be had without asking the user."""
    if facts.recipe is not None:
        return from_recipe(facts.recipe, facts.traces)
    for precision, name in product(PRECISIONS, shipped()):
        with suppress(RhovecError):  # a model of a shape that int8 does not take
            model = load(name, precision=precision)
            vectors: Vectors = model if facts.kind == "kernel" else model.directions
            if vectors.fingerprint == facts.fingerprint:
                return vectors
    return None


def usual_kernel(formulae: Iterable[Formula], n_traces: int | None = None) -> StlKernel:
    """The kernel on mu0 with as many variables as formulae in x_0, x_1, ... need."""
    needed = default_measure(formulae)
    return StlKernel(BaseMeasure(max(3, needed.n_variables)), n_traces)


def _sigma2(vectors: Vectors) -> float:
    """The bandwidth that vectors of cosines are meant for; they may not be able to make their kernel."""
    own = getattr(vectors, "sigma2", None)
    return float(vectors.kernel().sigma2 if own is None else own)
