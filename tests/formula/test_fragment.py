"""The fragment that models know: past operators are rewritten where that is exact, else refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import FormulaError
from rhovec.formula import operators as ops
from rhovec.formula.fragment import FRAGMENT, in_fragment, programs_in_fragment
from rhovec.formula.programs import Programs
from rhovec.robustness.reference import robustness_trace

RNG = np.random.default_rng(0)
X = {name: RNG.integers(-3, 4, size=(6, 9)).astype(float) for name in ("x_0", "x_1")}
ATOMS = ["x_0 > 0", "x_1 <= 1", "(prev x_0) > 1", "(next next x_1) < 0", "x_0 - x_1 >= 0"]


def texts() -> st.SearchStrategy[str]:
    """Formulae with past and future operators, many of which look back no further than ahead."""
    window = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda w: f"[{w[0]},{sum(w)}]")
    unary = st.sampled_from(["always", "eventually", "once", "historically"])
    return st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.one_of(
            st.builds("{0}{1} ({2})".format, unary, window, inner),
            st.builds("{0} ({1})".format, st.sampled_from(["not", "prev", "next"]), inner),
            st.builds("rise({0})".format, inner),
            st.builds("({0}) {1} ({2})".format, inner, st.sampled_from(["and", "or", "->"]), inner),
            st.builds("({0}) until{1} ({2})".format, inner, window, inner),
        ),
        max_leaves=5,
    )


@settings(max_examples=300)
@given(texts(), st.integers(0, 9))
def test_what_is_rewritten_is_equal_bit_for_bit(text: str, wait: int) -> None:
    phi = rv.parse(f"always[{wait},{wait + 2}] ({text})")
    try:
        found = in_fragment(phi)
    except FormulaError as error:
        assert "depends on earlier samples" in str(error) or "constantly" in str(error)
        assert phi.history > 0 or "until" in text  # whose operands are both stepped
        return
    assert FRAGMENT.issuperset(found.code[:, 0].tolist())
    assert all(not ops.lag_of(v) for channel in found.channels for v, _ in channel)
    assert (robustness_trace(found, X) == robustness_trace(phi, X)).all()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("prev next x_0 > 1", "x_0 > 1"),
        ("always[5,9] prev (x_0 > 1)", "always[4,8] x_0 > 1"),
        ("eventually[3,5] once[1,2] x_0 > 1", "eventually[1,4] x_0 > 1"),
        ("always[4,9] (x_0 > 1 and once[0,3] x_1 > 2)",
         "always[1,6] (eventually[3,3] x_0 > 1 and eventually[0,3] x_1 > 2)"),
        ("(next x_0) > 1", "eventually[1,1] x_0 > 1"),
        ("next (x_0 > 1 until prev (x_1 > 0))", "(eventually[1,1] x_0 > 1) until x_1 > 0"),
    ],
)  # fmt: skip
def test_rewritten(text: str, same: str) -> None:
    phi, expected = rv.parse(text), rv.parse(same)
    found = in_fragment(phi)
    assert (robustness_trace(found, X) == robustness_trace(expected, X)).all()
    assert found.size <= expected.size
    (packed,) = programs_in_fragment(Programs.pack([rv.parse("x_0 > 5"), phi])).unpack()[1:]
    assert packed == found


@pytest.mark.parametrize(
    "text",
    ["once[0,3] x_0 > 1", "always rise(x_0 > 1)", "x_0 > 1 since x_1 > 0", "always[3,5] once x_0 > 1",
     "always[3,5] (x_0 > 1 since[0,2] x_1 > 0)", "(prev x_0) > 1", "next prev prev x_0 > 1"],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(FormulaError, match=r"use exact signatures: rv\.StlKernel"):
        in_fragment(rv.parse(text))
    assert np.isfinite(rv.StlKernel(n_traces=20).signatures(text)).all()
