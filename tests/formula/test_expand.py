"""The fragment that models read: exactly the same robustness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import rhovec as rv
from rhovec.errors import FormulaError
from rhovec.formula import operators as ops
from rhovec.formula.fragment import in_fragment
from rhovec.formula.strategies import formulae


@settings(max_examples=200, deadline=None)
@given(formulae())
def test_the_same_robustness_by_six_operators(phi: rv.Formula) -> None:
    try:
        plain = in_fragment(phi)
    except FormulaError:
        assert str(rv.simplify(phi)) in ("true", "false")
        return
    operators = plain.code[:, 0]
    assert np.isin(
        operators[~ops.IS_ATOM[operators]],
        (ops.NOT, ops.ALWAYS, ops.EVENTUALLY, ops.AND, ops.OR, ops.UNTIL),
    ).all()
    x = np.random.default_rng(0).normal(size=(5, max(1, len(phi.variables)), 12))
    names = list(phi.variables) or ["x_0"]
    got, want = (rv.robustness(f, x, variables=names, trace=True) for f in (plain, phi))
    assert (got == want).all()


def test_the_fragment_itself_is_left_alone() -> None:
    for phi in rv.random_formulae(50, seed=1):
        assert in_fragment(phi) is phi


def test_examples_and_limits() -> None:
    assert str(in_fragment(rv.parse("x_0 > 1 -> next x_1 > 2"))) == str(
        rv.parse("not (x_0 > 1) or eventually[1,1] (x_1 > 2)")
    )
    with pytest.raises(FormulaError, match="constantly true"):
        in_fragment(rv.parse("x_0 > 1 or true"))
    deep = "x_0 > 1"
    for i in range(40):
        deep = f"({deep}) <-> x_{i} > 0"
    with pytest.raises(FormulaError, match="nodes"):
        in_fragment(rv.parse(deep))
