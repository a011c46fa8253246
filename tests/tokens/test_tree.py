"""Tree tokens: every formula whole, in one row, with its tree."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import FormulaError
from rhovec.formula.programs import Programs
from rhovec.tokens import tree as t

FORMULAE = rv.random_formulae(300, seed=3)


def formulae_of(tokens: t.TreeTokens) -> list[rv.Formula]:
    """The formulae that the tokens hold."""
    node, threshold = tokens.node.reshape(-1, 4).tolist(), tokens.threshold.reshape(-1).tolist()
    return [
        rv.Formula.from_rows([
            (op, lo, hi, None if channel < 0 else ((f"x_{channel}", 1.0),), value)
            for (op, lo, hi, channel), value in zip(
                node[cls + 1 : root + 1], threshold[cls + 1 : root + 1], strict=True
            )
        ])
        for cls, root in zip(tokens.cls.tolist(), tokens.root.tolist(), strict=True)
    ]  # fmt: skip


def test_tokens_round_trip() -> None:
    odd = rv.parse("always[3,4000] (x_0 > 1e30 until[7,inf] not x_11 <= -0.1234567890123)")
    for formulae in (FORMULAE, [odd], [*FORMULAE[:20], odd]):
        tokens = t.tree_tokens(Programs.pack(formulae))
        assert formulae_of(tokens) == formulae
        width = tokens.threshold.shape[1]
        assert len(set(tokens.cls.tolist())) == len(formulae)
        assert (tokens.node[..., 0] != t.PADDING).sum() == sum(f.size + 1 for f in formulae)
        assert ((tokens.owner >= 0) == (tokens.node[..., 0] != t.PADDING)).all()
        assert (tokens.cls // width == tokens.root // width).all()  # in one row
        assert (tokens.owner.reshape(-1)[tokens.root] == np.arange(len(formulae))).all()


def test_compiled_and_plain_code_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs.pack(FORMULAE)
    compiled = t.tree_tokens(programs, rows=90)
    monkeypatch.setattr(t, "COMPILED_FROM", 10**9)
    plain = t.tree_tokens(programs, rows=90)
    for field in dataclasses.fields(t.TreeTokens):
        one, other = getattr(compiled, field.name), getattr(plain, field.name)
        assert one.dtype == other.dtype
        assert (one == other).all()


def test_ids_merge_what_robustness_merges() -> None:
    def ids(text: str) -> list[list[int]]:
        tokens = t.tree_tokens(Programs.pack([rv.parse(text)]))
        return tokens.ids(100)[0, : tokens.root[0] + 1].tolist()

    assert ids("always[3,inf] x_2 > 1") == ids("always[3,120] x_2 >= 1")
    assert ids("always[3,120] x_2 > 1") != ids("always[3,98] x_2 > 1")
    assert ids("always[3,9] x_2 > 1") == [[t.CLS, 0, 0, 0], [0, 3, 0, 0], [8, 0, 4, 10]]
    assert ids("not x_0 < 0")[2] == [6, 0, 0, 0]


def test_packing_wastes_little_and_respects_limits() -> None:
    programs = Programs.pack(FORMULAE)
    tokens = t.tree_tokens(programs)
    needed = sum(f.size + 1 for f in FORMULAE)
    assert len(tokens.node) * 64 <= 1.05 * needed + 64
    assert len(t.tree_tokens(programs, rows=90).node) == 90
    with pytest.raises(FormulaError, match="rows"):
        t.tree_tokens(programs, rows=3)
    with pytest.raises(FormulaError, match="nodes"):
        t.tree_tokens(programs, width=5)
    with pytest.raises(FormulaError, match="Schema"):
        t.tree_tokens(Programs.pack([rv.parse("speed - rpm > 1")]))
    for text, name in (("x_0 > 1 release x_1 > 1", "release"), ("once x_0 > 1", "once")):
        with pytest.raises(FormulaError, match=f"a model knows no operator {name}"):
            t.tree_tokens(Programs.pack([rv.parse(text)]))


def test_relations_tell_the_tree() -> None:
    phi = rv.parse("(x_0 > 1 until x_1 > 2) and not x_2 > 3")  # postfix: 0 1 until 2 not and
    tokens = t.tree_tokens(Programs.pack([phi]))
    relation = tokens.relation[0, :7, :7]  # cls, then the six nodes
    assert (np.diag(relation) == t.SELF).all()
    assert relation[6, 0] == t.ANCESTOR  # cls is above the root
    assert relation[0, 6] == t.DESCENDANT
    assert relation[1, 0] == t.ANCESTOR + 4  # three up
    assert relation[1, 3] == t.ANCESTOR  # x_0 is the left operand of until
    assert relation[2, 3] == t.ANCESTOR + 1  # x_1 the right one
    assert relation[3, 1] == t.DESCENDANT
    assert relation[1, 6] == t.ANCESTOR + 2  # and, two up
    assert relation[4, 6] == t.ANCESTOR + 2  # whose sides are alike
    assert relation[1, 2] == t.ELSEWHERE  # the other operand
    assert relation[1, 4] == relation[1, 5] == t.ELSEWHERE + 1  # two up, then down
    assert relation[5, 1] == t.ELSEWHERE
    assert (tokens.relation[0, :7, 7:] == t.APART).all()
