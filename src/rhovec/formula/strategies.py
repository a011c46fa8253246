"""A Hypothesis strategy for formulae, for your own property tests (needs `pip install hypothesis`).

>>> from hypothesis import given
>>> from rhovec.formula.strategies import formulae
>>> @given(formulae(variables=("speed", "rpm")))
... def test_round_trip(phi):
...     assert rv.parse(str(phi)) == phi
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from . import operators as ops
from .core import Formula, canonical_channel, compose
from .operators import Channel, Shifted


def atoms(
    variables: Sequence[str] = ("x_0", "x_1", "x_2"), *, linear: bool = False, max_lag: int = 0
) -> st.SearchStrategy[Formula]:
    """`variable comparison number`; with linear, also sums of variables with coefficients, each
    read at most `max_lag` steps earlier or later."""
    number = st.floats(-1e6, 1e6).map(lambda v: v + 0.0)
    names = st.sampled_from(list(variables))
    channels: st.SearchStrategy[Channel] = names.map(lambda name: ((name, 1.0),))
    if linear:
        coefficient = st.floats(0.125, 8) | st.floats(-8, -0.125)
        signals: st.SearchStrategy[Any] = names
        if max_lag:
            lag = st.integers(1, max_lag).flatmap(lambda steps: st.sampled_from((steps, -steps)))
            signals = names | st.builds(Shifted, names, lag)
        terms = st.dictionaries(signals, coefficient, min_size=1, max_size=3)
        channels = channels | terms.map(lambda t: canonical_channel(t)[0])
    comparison = st.sampled_from((ops.GE, ops.GT, ops.LE, ops.LT))
    return st.builds(
        lambda op, channel, threshold: Formula.from_rows([(op, 0, 0, channel, threshold)]),
        comparison, channels, number,
    )  # fmt: skip


def formulae(
    variables: Sequence[str] = ("x_0", "x_1", "x_2"),
    *,
    max_leaves: int = 10,
    max_bound: int = 20,
    constants: bool = True,
    linear: bool = False,
    past: bool = False,
    max_lag: int = 0,
) -> st.SearchStrategy[Formula]:
    """Any formula with at most `max_leaves` atoms and time bounds to `max_bound`.

    linear: sums of variables in atoms; past: operators that look back; max_lag: lags of the terms of
    linear atoms, in steps.
    """
    leaves = atoms(variables, linear=linear, max_lag=max_lag)
    if constants:
        leaves = leaves | st.sampled_from((ops.TRUE, ops.FALSE)).map(compose)

    def interval() -> st.SearchStrategy[tuple[int, int]]:
        bounded = st.tuples(st.integers(0, max_bound), st.integers(0, max_bound)).map(
            lambda pair: (min(pair), max(pair))
        )
        return bounded | st.integers(0, max_bound).map(lambda lo: (lo, ops.UNBOUNDED))

    def extend(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
        def applied(operands: int, timed: bool) -> st.SearchStrategy[Formula]:
            kind = (operands, timed)
            fitting = [
                op
                for op, row in enumerate(ops.TABLE)
                if (row.arity, row.timed) == kind and (past or not row.past)
            ]
            return st.builds(
                lambda op, window, *given: compose(op, *given, lo=window[0], hi=window[1]),
                st.sampled_from(fitting), interval(), *[inner] * operands,
            )  # fmt: skip

        return st.one_of(applied(1, False), applied(2, False), applied(1, True), applied(2, True))

    return st.recursive(leaves, extend, max_leaves=max_leaves)
