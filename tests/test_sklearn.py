"""StlVectorizer behaves as scikit-learn expects of a step of a pipeline."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula.schema import SchemaChannel
from rhovec.sklearn import StlVectorizer

from .models.tiny import save_tiny

SOURCE = Path(__file__).parents[1] / "src"
FORMULAE = rv.random_formulae(40, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny(tmp_path)


def test_vectors_are_those_of_the_model(folder: Path) -> None:
    vectorizer = StlVectorizer(folder)
    expected = rv.load(folder).embed(FORMULAE)
    assert np.array_equal(vectorizer.transform(FORMULAE), expected)
    texts = np.array([str(phi) for phi in FORMULAE])  # (n,), as a column of a table
    assert np.array_equal(vectorizer.fit_transform(texts), expected)


def test_a_schema_reads_names_units_and_seconds() -> None:
    schema = rv.Schema((SchemaChannel("speed", mean=80, std=40, unit="km/h"),), dt=0.5)
    named = StlVectorizer(schema=schema).transform(["always[0,10] speed < 100"])
    assert np.array_equal(named, StlVectorizer().transform(["always[0,20] x_0 < 0.5"]))


def test_clones_and_parameters(folder: Path) -> None:
    schema = rv.Schema((SchemaChannel("x_0"),))
    vectorizer = StlVectorizer(folder, schema=schema)
    copy = clone(vectorizer)
    assert copy is not vectorizer
    assert copy.get_params() == {"model": folder, "device": None, "schema": schema}
    assert vectorizer.transform(["x_0 > 0"]).shape == (1, 24)
    assert vectorizer.set_params(model=None).transform(["x_0 > 0"]).shape == (1, 1024)
    assert copy.transform(["x_0 > 0"]).shape == (1, 24)


def test_feature_names(folder: Path) -> None:
    names = StlVectorizer(folder).get_feature_names_out()
    assert len(names) == 24 and list(names[:2]) == ["stlvectorizer0", "stlvectorizer1"]


def test_a_stored_vectorizer_holds_no_weights(folder: Path) -> None:
    vectorizer = StlVectorizer(folder).fit(FORMULAE)
    expected = vectorizer.transform(FORMULAE)
    stored = pickle.dumps(vectorizer)
    assert len(stored) < 1000
    assert np.array_equal(pickle.loads(stored).transform(FORMULAE), expected)


def average_robustness(formulae: list[rv.Formula]) -> np.ndarray:
    return rv.robustness(formulae, rv.BaseMeasure().sample(200, seed=1)).mean(axis=1)


def test_another_space_in_the_same_folder_is_noticed(tmp_path: Path) -> None:
    traces = np.random.default_rng(0).normal(size=(60, 1, 20)).cumsum(axis=2)
    formulae = ["always x_0 < 2", "eventually x_0 > 1"]
    rv.Space.fit(traces).save(tmp_path)
    first = StlVectorizer(tmp_path)
    before = first.fit_transform(formulae)
    stored = pickle.dumps(first)
    other = rv.Space.fit(traces + 1)
    other.save(tmp_path)
    after = StlVectorizer(tmp_path).fit_transform(formulae)
    assert np.array_equal(after, other.embed(formulae)) and not np.array_equal(after, before)
    for one in (first, pickle.loads(stored)):
        with pytest.raises(RhovecError, match=r"now makes other vectors .* fit it again"):
            one.transform(formulae)
    assert np.array_equal(first.fit(formulae).transform(formulae), after)


def test_a_pipeline_predicts_average_robustness(folder: Path) -> None:
    formulae = rv.random_formulae(200, 1)
    y = average_robustness(formulae)
    train, test = slice(0, 150), slice(150, None)
    pipeline = make_pipeline(StlVectorizer(), Ridge(alpha=0.1)).fit(formulae[train], y[train])
    assert pipeline.score(formulae[test], y[test]) > 0.5
    search = GridSearchCV(
        make_pipeline(StlVectorizer(folder), Ridge()), {"ridge__alpha": [0.1, 1.0]}, cv=2
    )
    assert search.fit(formulae[train], y[train]).predict(formulae[test]).shape == (50,)


def test_signatures_of_a_kernel_need_no_class_of_their_own() -> None:
    kernel = rv.StlKernel(n_traces=100)
    pipeline = make_pipeline(FunctionTransformer(kernel.signatures), Ridge())
    assert pipeline.fit(FORMULAE, average_robustness(FORMULAE)).predict(FORMULAE).shape == (40,)


@pytest.mark.parametrize("wrong", ["x_0 > 0", [1.5], [["x_0 > 0"]], np.zeros((2, 2)), []])
def test_what_is_no_list_of_formulae(wrong: object) -> None:
    with pytest.raises(RhovecError):
        StlVectorizer().transform(wrong)


def test_what_is_no_space() -> None:
    with pytest.raises(RhovecError, match="model must be a space"):
        StlVectorizer(5).transform(["x_0 > 0"])  # type: ignore[arg-type]
    with pytest.raises(RhovecError, match="device goes with the name"):
        StlVectorizer(rv.load(), device="cpu").transform(["x_0 > 0"])


def test_without_sklearn_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import rhovec.sklearn"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert run.stderr.splitlines()[-1].endswith('needs scikit-learn: pip install "rhovec[sklearn]"')
