"""Values at the edge of what numbers hold, arguments of the wrong kind: an answer or a clear error."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import FormulaError, TraceError


def test_signatures_of_huge_thresholds_are_unit_vectors() -> None:
    signature = rv.StlKernel(n_traces=100).signatures("x_0 > 1e38")
    assert np.linalg.norm(signature) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_that_overflows_is_refused(dtype: type) -> None:
    x = np.full((3, 2, 5), 0.9 * np.finfo(dtype).max, dtype)
    with pytest.raises(TraceError, match=r"2 \* x_0 - 2 \* x_1|2 \* x_1 - 2 \* x_0"):
        rv.robustness("2*x_0 - 2*x_1 >= 0", x)
    assert np.isfinite(rv.robustness("x_0 - 2*x_1 >= 0", x / 8)).all()


def test_masked_values_are_not_taken_for_numbers() -> None:
    x = np.ma.masked_greater(np.arange(12.0).reshape(1, 2, 6), 10)
    with pytest.raises(TraceError, match="masked"):
        rv.robustness("x_0 > 1", x)
    assert rv.robustness("x_0 > 1", np.ma.array(np.ones((1, 1, 3)))) == 0  # nothing is masked


@pytest.mark.parametrize("formulae", [None, 3, object(), [None], [3]])
def test_what_is_no_formula(formulae: Any) -> None:
    with pytest.raises(FormulaError, match="formula"):
        rv.robustness(formulae, np.ones((1, 1, 3)))
    with pytest.raises(FormulaError, match="formula"):
        rv.StlKernel(n_traces=10).gram(formulae)


@pytest.mark.parametrize("thresholds", [["a"], [1j], "a", object()])
def test_thresholds_are_numbers(thresholds: Any) -> None:
    with pytest.raises(FormulaError, match="thresholds must"):
        rv.robustness("x_0 > 0", np.ones((1, 1, 3)), thresholds=thresholds)


def test_absurd_numbers_of_traces_are_refused() -> None:
    with pytest.raises(TraceError, match="at most"):
        rv.StlKernel(n_traces=10**30)


def test_names_of_variables_are_text() -> None:
    with pytest.raises(TraceError, match="names"):
        rv.robustness("x_0 > 1", np.ones((1, 1, 3)), variables=[0])  # type: ignore[list-item]


def test_many_names_take_no_time() -> None:
    names = [f"v{i}" for i in range(100_000)]
    x = np.ones((1, len(names), 1), np.float32)
    text = " and ".join(f"{name} > 0" for name in names[::10])
    start = time.perf_counter()
    assert rv.robustness(text, x, variables=names) == 1
    assert time.perf_counter() - start < 60  # it did not end before
