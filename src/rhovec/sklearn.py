"""Formulae as features for scikit-learn: `StlVectorizer`, a space as the first step of a pipeline.

    make_pipeline(StlVectorizer(), Ridge()).fit(formulae, y)

It learns nothing from the data: a space is read when vectors are first needed, and all vectorizers of a
process share it. So clones in a cross-validation cost nothing, and a stored pipeline holds no weights.
For signatures of a kernel instead, use sklearn's FunctionTransformer(kernel.signatures).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from .errors import MissingDependencyError, RhovecError
from .formula.core import Formula
from .formula.reader import FormulaLike
from .formula.schema import Schema
from .spaces import Space, Vectors, load

try:
    from sklearn.base import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
    )
except ImportError:
    raise MissingDependencyError(
        'StlVectorizer needs scikit-learn: pip install "rhovec[sklearn]"'
    ) from None

_load = lru_cache(maxsize=2)(load)


class StlVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Transforms n formulae (text or Formula) to a space's unit vectors (n, dimension) float32.

    model: the folder of a space of your traces or of a model, "owner/name" of a model on the Hugging
        Face hub, or a space itself; None for the shipped model.
    device: of a model: None for NumPy; "cpu" or "cuda" for torch.
    schema: for a model, of formulae in names, units and seconds; a space of traces has its own.
    """

    def __init__(
        self,
        model: str | Path | Vectors | None = None,
        device: str | None = None,
        schema: Schema | None = None,
    ):
        self.model = model
        self.device = device
        self.schema = schema

    def fit(self, X: Iterable[FormulaLike], y: object = None) -> Self:
        """Do nothing: there is nothing to learn."""
        return self

    def transform(self, X: Iterable[FormulaLike]) -> np.ndarray:
        """Vectors (n, dimension) float32 of the formulae."""
        formulae = list(X)
        if isinstance(X, str) or not all(isinstance(phi, str | Formula) for phi in formulae):
            raise RhovecError("StlVectorizer takes one list of formulae, each a text or a Formula")
        space = self._space()
        if self.schema is not None:
            if isinstance(space, Space):
                raise RhovecError("the space has its own names, units and scales; leave out schema")
            formulae = [self.schema.lower(phi) for phi in formulae]
        return np.asarray(space.embed(formulae))

    def _space(self) -> Any:
        if self.model is None or isinstance(self.model, str | Path):
            return _load(self.model, self.device)
        return self.model

    @property
    def _n_features_out(self) -> int:
        return int(self._space().dimension)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags
