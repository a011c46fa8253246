"""The Hypothesis strategies: valid formulae, as asked, that reach all of the language."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, given, settings

from rhovec.formula import Formula, parse
from rhovec.formula import operators as ops
from rhovec.formula.core import canonical_channel
from rhovec.formula.strategies import atoms, formulae

VARIABLES = ("speed", "rpm")
any_example = settings(max_examples=2000, database=None, phases=[Phase.generate])


@given(formulae(VARIABLES, max_leaves=6, max_bound=4, linear=True))
def test_formulae_keep_to_what_was_asked(phi: Formula) -> None:
    rows = phi.rows()
    assert set(phi.variables) <= set(VARIABLES)
    assert sum(ops.arity(row[0]) == 0 for row in rows) <= 6
    for op, lo, hi, channel, _ in rows:
        assert (channel is not None) == ops.IS_ATOM[op]
        if channel is not None:
            assert canonical_channel(dict(channel)) == (channel, 1)
        if ops.is_timed(op):
            assert 0 <= lo <= 4
            assert hi == ops.UNBOUNDED or lo <= hi <= 4
        else:
            assert (lo, hi) == (0, 0)
    assert parse(str(phi)) == phi


@given(formulae(constants=False))
def test_constants_can_be_left_out(phi: Formula) -> None:
    assert all(row[0] not in (ops.TRUE, ops.FALSE) for row in phi.rows())


@given(formulae(linear=False))
def test_channels_are_plain_variables_unless_asked(phi: Formula) -> None:
    assert all(len(channel) == 1 and channel[0][1] == 1 for channel in phi.channels)


@given(atoms(VARIABLES, linear=True))
def test_atoms(phi: Formula) -> None:
    assert phi.size == 1
    assert phi.rows()[0][3] is not None


@pytest.mark.parametrize("op", range(len(ops.NAMES)), ids=ops.NAMES)
def test_every_operator_is_drawn(op: int) -> None:
    find(formulae(past=True), lambda phi: op in phi.code[:, 0], settings=any_example)


@given(formulae(linear=True))
def test_nothing_looks_back_unless_asked(phi: Formula) -> None:
    assert not ops.IS_PAST[phi.code[:, 0]].any()
    assert phi.history == 0


@given(formulae(linear=True, past=True, max_lag=5))
def test_lags_keep_to_what_was_asked(phi: Formula) -> None:
    lags = [ops.lag_of(variable) for channel in phi.channels for variable, _ in channel]
    assert all(-5 <= lag <= 5 for lag in lags)
    assert Formula.from_rows(phi.rows()) == phi


def test_linear_channels_and_open_windows_are_drawn() -> None:
    find(atoms(linear=True), lambda phi: len(phi.variables) == 3, settings=any_example)
    find(formulae(), lambda phi: ops.UNBOUNDED in phi.code[:, 2], settings=any_example)
    find(atoms(linear=True, max_lag=3), lambda phi: phi.history == 3, settings=any_example)
