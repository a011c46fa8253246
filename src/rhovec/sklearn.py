"""For scikit-learn: `StlVectorizer`, formulae as features, and `StlClassifier`, which mines them.

    make_pipeline(StlVectorizer(), Ridge()).fit(formulae, y)
    cross_val_score(StlClassifier(), traces, labels)

The vectorizer learns nothing from the data: a space is read when vectors are first needed, and all
vectorizers of a process share it. So clones in a cross-validation cost nothing, and a stored pipeline
holds no weights, only the fingerprint of the space that it was fitted with. Only a space or model that
was given itself, not by name, is stored in the pipeline: with its traces.
For signatures of a kernel instead, use sklearn's FunctionTransformer(kernel.signatures).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from .errors import MissingDependencyError, RhovecError
from .formula.core import Formula
from .formula.reader import FormulaLike
from .formula.schema import Schema
from .mining import DecisionList, mine
from .mining.fit import BUDGET, FOLDS, MAX_SIZE
from .models.store import CONFIG, SPACE
from .spaces import Space, Vectors, load

try:
    from sklearn.base import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
    )
    from sklearn.utils.multiclass import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        check_classification_targets,
    )
    from sklearn.utils.validation import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise MissingDependencyError(
        'rhovec.sklearn needs scikit-learn: pip install "rhovec[sklearn]"'
    ) from None


@lru_cache(maxsize=2)
def _load(model: str | Path | None, device: str | None, description: object) -> Any:
    return load(model, device)


def _description(model: str | Path | None) -> object:
    """What changes when another space or model is saved in the same folder: its description, which is
    written last."""
    found = []
    for name in (CONFIG, SPACE) if model is not None else ():
        with suppress(OSError):
            facts = os.stat(Path(model or "") / name)
            found.append((name, facts.st_ino, facts.st_mtime_ns, facts.st_size))
    return tuple(found)


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
        """Remember which space this is: `transform` refuses another one in its place."""
        self.fingerprint_ = self._space().fingerprint
        return self

    def transform(self, X: Iterable[FormulaLike]) -> np.ndarray:
        """Vectors (n, dimension) float32 of the formulae."""
        formulae = list(X)
        if isinstance(X, str) or not all(isinstance(phi, str | Formula) for phi in formulae):
            raise RhovecError("StlVectorizer takes one list of formulae, each a text or a Formula")
        space = self._space()
        fitted = getattr(self, "fingerprint_", space.fingerprint)
        if fitted != space.fingerprint:
            raise RhovecError(
                f"{self.model} now makes other vectors ({space.fingerprint}) than those that this was "
                f"fitted with ({fitted}); fit it again"
            )
        if self.schema is not None:
            if getattr(space, "schema", None) is not None:
                what = "space" if isinstance(space, Space) else "model"
                raise RhovecError(
                    f"the {what} has its own names, units and scales; leave out schema"
                )
            formulae = [self.schema.lower(phi) for phi in formulae]
        return np.asarray(space.embed(formulae))

    def _space(self) -> Any:
        if self.model is None or isinstance(self.model, str | Path):
            return _load(self.model, self.device, _description(self.model))
        if self.device is not None:
            raise RhovecError("device goes with the name of a model; a space or model has its own")
        if not hasattr(self.model, "embed"):
            raise RhovecError(f"model must be a space, a model or its name, not {self.model!r:.80}")
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


class StlClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Tells classes of traces apart by a formula, or by a short list of them; see `rv.mine`.

    X is (n, channels, points), or (n, points) for one channel, or a list of (channels, points_i). With
    two classes, `decision_function` is the robustness of `formula_`, and classes_[1] is predicted where
    it is >= 0. With more, it has one column per class.

    variables, dt, units: names of the channels, step in seconds, units by name.
    costs: of a wrong trace by its label, or "balanced".
    warm_start: fit again starts from the previous front.
    """

    def __init__(
        self,
        variables: Sequence[str] | None = None,
        dt: float | None = None,
        units: Mapping[str, str] | None = None,
        costs: Mapping[Any, float] | str | None = None,
        max_size: int = MAX_SIZE,
        budget: int = BUDGET,
        seconds: float | None = None,
        folds: int = FOLDS,
        random_state: int = 0,
        warm_start: bool = False,
    ):
        self.variables = variables
        self.dt = dt
        self.units = units
        self.costs = costs
        self.max_size = max_size
        self.budget = budget
        self.seconds = seconds
        self.folds = folds
        self.random_state = random_state
        self.warm_start = warm_start

    def fit(self, X: Any, y: Any) -> Self:
        """Mine formulae. Sets mined_, formula_, front_, classes_ and n_features_in_."""
        check_classification_targets(y)
        traces = self._traces(X, reset=True)
        labels = column_or_1d(y, warn=True)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise RhovecError(
                f"StlClassifier needs two classes or more; there is 1 class in y: {self.classes_}"
            )
        start = getattr(self, "mined_", None) if self.warm_start else None
        self.mined_ = mine(
            traces, labels, variables=self.variables, dt=self.dt, units=self.units, costs=self.costs,
            max_size=self.max_size, budget=self.budget, seconds=self.seconds, folds=self.folds,
            seed=self.random_state, start=start,
        )  # fmt: skip
        if isinstance(self.mined_, DecisionList):
            self.formula_: Any = [rule.formula for rule in self.mined_.rules]
            self.front_: Any = [rule.front for rule in self.mined_.rules]
        else:
            self.formula_, self.front_ = self.mined_.formula, self.mined_.front
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Robustness (n,), or (n, classes)."""
        check_is_fitted(self)
        traces = self._traces(X, reset=False)
        rho = self.mined_.robustness(traces)
        if isinstance(self.mined_, DecisionList):
            out = np.full((len(rho), len(self.classes_)), -np.inf)
            out[:, np.searchsorted(self.classes_, self.mined_.classes)] = rho
            return out
        return rho

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels."""
        rho = self.decision_function(X)
        columns = (rho >= 0).astype(int) if rho.ndim == 1 else rho.argmax(axis=1)
        labels: np.ndarray = self.classes_[columns]
        return labels

    def _traces(self, X: Any, reset: bool) -> Any:
        if isinstance(X, list) and X and getattr(X[0], "ndim", 0) == 2:  # of different lengths
            if reset:
                self.n_features_in_ = len(X[0])
            return X
        array = validate_data(self, X, reset=reset, allow_nd=True, dtype=[np.float64, np.float32])
        return array[:, None, :] if array.ndim == 2 else array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
