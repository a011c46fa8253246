"""StlClassifier behaves as scikit-learn expects of a classifier."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import rhovec as rv
from rhovec.sklearn import StlClassifier

from .test_mine import NAMES, drives


def test_it_passes_the_checks_of_scikit_learn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(StlClassifier(budget=30, folds=2, max_size=3), on_fail=None)
    failed = [one["check_name"] for one in results if one["status"] == "failed"]
    assert not failed and len(results) > 40


def test_traces_of_several_channels() -> None:
    X, y = drives()
    names = np.where(y, "good", "bad")
    classifier = StlClassifier(variables=NAMES, dt=0.1, budget=200).fit(X, names)
    assert classifier.classes_.tolist() == ["bad", "good"]
    fresh, truth = drives(seed=1)
    assert (classifier.predict(fresh) == np.where(truth, "good", "bad")).all()
    rho = rv.robustness(classifier.formula_, fresh, variables=NAMES)
    assert np.array_equal(classifier.decision_function(fresh), rho)
    assert classifier.front_[-1].accuracy == 1
    assert cross_val_score(clone(classifier), X, names, cv=3).mean() > 0.95
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict(fresh), classifier.predict(fresh))


def test_unequal_lengths_and_one_channel() -> None:
    X, y = drives()
    pressure = StlClassifier(budget=100).fit(X[:, 1], y)
    assert pressure.score(X[:, 1], y) == 1 and pressure.formula_.variables == ("x_0",)
    ragged = [trace[:, : 30 - i % 2] for i, trace in enumerate(X)]
    assert StlClassifier(budget=100).fit(ragged, y).score(ragged, y) > 0.9


def test_several_classes_have_one_column_each() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([3, 1, 2], 20)
    X = rng.normal(size=(60, 1, 8)) + 6 * y[:, None, None]
    classifier = StlClassifier(budget=100).fit(X, y)
    assert classifier.decision_function(X).shape == (60, 3)
    assert classifier.score(X, y) == 1 and len(classifier.formula_) == 2


def test_warm_start_goes_on_from_the_previous_front() -> None:
    X, y = drives(flipped=8)
    classifier = StlClassifier(variables=NAMES, budget=1000, max_size=5, warm_start=True).fit(X, y)
    before = classifier.front_[-1]
    after = classifier.set_params(budget=0).fit(X, y).front_[-1]
    assert (after.missed + after.alarms) <= (before.missed + before.alarms)
    cold = clone(classifier).set_params(warm_start=False).fit(X, y).front_[-1]
    assert (cold.missed + cold.alarms) > (before.missed + before.alarms)


def test_one_class_is_refused() -> None:
    with pytest.raises(rv.RhovecError, match="two classes or more"):
        StlClassifier().fit(np.zeros((10, 4)), np.ones(10))
