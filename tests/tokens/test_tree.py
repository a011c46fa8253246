"""Tree tokens: every formula whole, in one row, with its tree."""

from __future__ import annotations

import numpy as np
import pytest

import rhovec as rv
from rhovec import tokens as t
from rhovec.errors import FormulaError
from rhovec.formula.core import GE, GT, LE, LT, is_timed
from rhovec.formula.programs import Programs

FORMULAE = rv.random_formulae(300, seed=3)


def test_tokens_hold_the_formulae() -> None:
    programs = Programs.pack(FORMULAE)
    tokens = t.tree_tokens(programs, points=100)
    rows, width = tokens.threshold.shape
    node = tokens.node.reshape(rows * width, 5)
    threshold = tokens.threshold.reshape(-1)
    assert len(set(tokens.cls.tolist())) == len(FORMULAE)
    assert (node[:, 0] != t.PADDING).sum() == sum(f.size + 1 for f in FORMULAE)
    for phi, cls in zip(FORMULAE, tokens.cls.tolist(), strict=True):
        assert cls // width == (cls + phi.size) // width  # in one row
        assert node[cls, 0] == t.CLS
        for i, (op, lo, hi, channel, value) in enumerate(phi.rows(), start=cls + 1):
            assert node[i, 0] == {GT: GE, LT: LE}.get(op, op)
            assert node[i, 1] == (0 if channel is None else 1 + int(channel[0][0][2:]))
            assert threshold[i] == np.float32(value)
            if is_timed(op):
                assert node[i, 2] == 1 + lo
                assert node[i, 3] == 1 + (hi if hi >= 0 else 99)


def test_packing_wastes_little_and_respects_limits() -> None:
    programs = Programs.pack(FORMULAE)
    tokens = t.tree_tokens(programs, points=100)
    needed = sum(f.size + 1 for f in FORMULAE)
    assert len(tokens.node) * 65 <= 1.05 * needed + 65
    assert len(t.tree_tokens(programs, points=100, rows=60).node) == 60
    with pytest.raises(FormulaError, match="rows"):
        t.tree_tokens(programs, points=100, rows=3)
    with pytest.raises(FormulaError, match="nodes"):
        t.tree_tokens(programs, points=100, width=5)
    with pytest.raises(FormulaError, match="Schema"):
        t.tree_tokens(Programs.pack([rv.parse("speed - rpm > 1")]), points=100)


def test_relations_tell_the_tree() -> None:
    phi = rv.parse("(x_0 > 1 until x_1 > 2) and not x_2 > 3")  # postfix: 0 1 until 2 not and
    tokens = t.tree_tokens(Programs.pack([phi]), points=10)
    relation = tokens.relation[0, :7, :7]  # cls, then the six nodes
    assert (np.diag(relation) == t.SELF).all()
    assert (relation[1:, 0] == t.TO_CLS).all()
    assert (relation[0, 1:] == t.FROM_CLS).all()
    assert relation[1, 3] == t.ANCESTOR  # x_0 is the left operand of until
    assert relation[2, 3] == t.ANCESTOR + 1  # x_1 the right one
    assert relation[3, 1] == t.DESCENDANT
    assert relation[1, 6] == t.ANCESTOR + 2  # and, two up, on its left
    assert relation[4, 6] == t.ANCESTOR + 3
    assert relation[1, 2] == t.ELSEWHERE
    assert (tokens.relation[0, :7, 7:] == t.APART).all()
