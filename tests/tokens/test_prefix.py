"""Prefix tokens say a formula, and the grammar allows all that parses within limits and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import FormulaError
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.formula.fragment import in_fragment
from rhovec.formula.programs import Programs
from rhovec.formula.strategies import formulae
from rhovec.tokens import prefix as p

FORMULAE = rv.random_formulae(300, seed=5, n_variables=8)
TRACES = rv.BaseMeasure(n_variables=3, points=100).sample(20, seed=3)


def tokens_of(phi: Formula) -> list[int]:
    programs = Programs.pack([in_fragment(phi)])
    ids, _ = p.prefix_tokens(programs, int(p.prefix_lengths(programs)[0]))
    row: list[int] = ids[0].tolist()
    return row


def walk(grammar: p.Grammar, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sequences (B, L) of allowed tokens, drawn by weight (VOCABULARY,)."""
    out = [np.full(len(grammar.done), p.BEGIN)]
    while not grammar.done.all():
        allowed = grammar.allowed()
        ids = (rng.random(allowed.shape) * allowed * weight).argmax(axis=1)
        grammar.advance(ids)
        out.append(ids)
    return np.stack(out, axis=1)


def feed(grammar: p.Grammar, ids: list[int]) -> None:
    for token in ids[1:]:
        grammar.advance(np.array([token]))


def test_the_vocabulary_is_as_agreed() -> None:
    assert p.VOCABULARY == 3 + 6 + 16 + 100 + 101 + 200 + 100 + 100
    assert tokens_of(rv.parse("always[3,inf] x_1 >= -0.25")) == [
        p.BEGIN, 6, p.LEFT + 3, p.INF, p.ATOM + 1, p.WHOLE + 99, p.TENTHS + 25, p.LAST, p.END,
    ]  # fmt: skip
    phi = rv.parse("(not x_0 >= 99.9999 and x_7 <= -99.0003) until[0,98] (x_0 >= 0 or x_0 <= 1)")
    assert tokens_of(phi) == [
        p.BEGIN, 8, p.LEFT, p.RIGHT + 98, 4, 3, p.ATOM, p.WHOLE + 199, p.TENTHS + 99, p.LAST + 99,
        p.ATOM + 15, p.WHOLE, p.TENTHS, p.LAST + 3, 5, p.ATOM, p.WHOLE + 100, p.TENTHS, p.LAST,
        p.ATOM + 8, p.WHOLE + 101, p.TENTHS, p.LAST, p.END,
    ]  # fmt: skip


def test_formulae_in_range_come_back() -> None:
    ids, lengths = p.prefix_tokens(Programs.pack(FORMULAE), 400)
    assert ids.dtype == np.int16
    assert [p.from_prefix(row) for row in ids] == FORMULAE
    assert (lengths == (ids != p.PAD).sum(axis=1)).all()
    assert (ids[np.arange(len(ids)), lengths - 1] == p.END).all()


@given(formulae(max_bound=150, constants=False))
def test_any_formula_comes_back_as_far_as_it_can_be_told(phi: Formula) -> None:
    back = p.from_prefix(tokens_of(phi))
    phi = in_fragment(phi)
    assert back.channels == phi.channels
    for row, (op, lo, hi, channel, threshold) in zip(phi.rows(), back.rows(), strict=True):
        assert op == {ops.GT: ops.GE, ops.LT: ops.LE}.get(row[0], row[0])
        assert lo == min(row[1], 99)
        assert hi == (ops.UNBOUNDED if row[2] >= 99 else row[2])
        assert channel == row[3]
        assert threshold == round(threshold, 4)
        assert abs(threshold - np.clip(row[4], -99.9999, 99.9999)) <= 0.5001e-4
    assert p.from_prefix(tokens_of(back)) == back


@given(formulae(max_bound=150, constants=False))
def test_what_cannot_be_told_does_not_matter_on_a_hundred_points(phi: Formula) -> None:
    rounded = np.round(phi.thresholds.clip(-99, 99), 4)
    phi = Formula.trusted(phi.code.copy(), rounded, phi.channels)
    back = p.from_prefix(tokens_of(phi))
    assert (rv.robustness(back, TRACES) == rv.robustness(phi, TRACES)).all()


def test_compiled_and_plain_code_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs.pack(FORMULAE)
    compiled, lengths = p.prefix_tokens(programs, 400)
    monkeypatch.setattr(p, "COMPILED_FROM", 10**9)
    plain, others = p.prefix_tokens(programs, 400)
    assert compiled.dtype == plain.dtype
    assert (compiled == plain).all()
    assert (lengths == others).all()


def test_a_part_of_a_batch_is_read_by_itself() -> None:
    many = [*FORMULAE[:50], rv.parse("x_9 > 1 and speed > 2")]
    with pytest.raises(FormulaError, match="Schema"):
        p.prefix_tokens(Programs.pack(many), 400)
    programs = Programs.pack([*FORMULAE[:50], rv.parse("x_9 > 1")])
    ids, _ = p.prefix_tokens(programs.part(10, 50), 400)
    assert [p.from_prefix(row) for row in ids] == FORMULAE[10:50]
    with pytest.raises(FormulaError, match=r"uses x_9; prefix tokens know x_0 \.\.\. x_7"):
        p.prefix_tokens(programs, 400)


def test_what_does_not_fit_is_refused() -> None:
    phi = rv.parse("always[1,2] x_0 > 1")
    assert p.prefix_lengths(Programs.pack([phi, ~phi])).tolist() == [9, 10]
    assert p.prefix_tokens(Programs.pack([phi]), 9)[0].shape == (1, 9)
    with pytest.raises(FormulaError, match="formula 1 has 10 prefix tokens, more than 9"):
        p.prefix_tokens(Programs.pack([phi, ~phi]), 9)
    with pytest.raises(FormulaError, match="constant"):
        tokens_of(rv.parse("x_0 > 1 or true"))


def test_other_operators_are_said_by_the_six() -> None:
    for text, same in (("next x_0 >= 1", "eventually[1,1] x_0 >= 1"),
                       ("x_0 >= 1 -> x_1 >= 1", "not x_0 >= 1 or x_1 >= 1")):  # fmt: skip
        assert p.from_prefix(p.prefix_tokens(Programs.pack([rv.parse(text)]), 20)[0][0]) == (
            rv.parse(same)
        )


def test_depth_is_no_matter() -> None:
    deep = rv.parse("always[0,3] " * 100_000 + "x_0 >= 1")
    assert p.from_prefix(tokens_of(deep)) == deep


LIMITS = [(63, 20, 160), (1, 0, 6), (1, 20, 160), (63, 0, 160), (5, 2, 160), (63, 3, 160), (63, 62, 30),
          (9, 9, 14), (63, 20, 7), (63, 62, 300)]  # fmt: skip
MIXED, OPERATORS, BINARY = (np.ones(p.VOCABULARY) for _ in range(3))
OPERATORS[p.ATOM : p.LEFT] = 1e-3
BINARY[p.ATOM : p.LEFT] = 1e-9
BINARY[[3, 6, 7]] = 1e-6


@pytest.mark.parametrize("weight", [MIXED, OPERATORS, BINARY], ids=["mixed", "operators", "binary"])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_every_walk_ends_within_the_limits_and_parses(
    limits: tuple[int, int, int], weight: np.ndarray
) -> None:
    ids = walk(p.Grammar(100, *limits), weight, np.random.default_rng(7))
    nodes, depth, tokens = limits
    assert ids.shape[1] <= tokens
    for row in ids:
        phi = p.from_prefix(row)
        assert phi.size <= nodes
        assert phi.depth <= depth
        assert rv.parse(str(phi)) == phi
        assert p.from_prefix(tokens_of(phi)).size == phi.size


def test_walks_reach_the_limits() -> None:
    rng = np.random.default_rng(8)
    largest = [p.from_prefix(r) for r in walk(p.Grammar(50, 63, 62, 400), BINARY, rng)]
    assert {phi.size for phi in largest} == {63}
    deepest = [p.from_prefix(r) for r in walk(p.Grammar(50, 63, 20, 160), OPERATORS, rng)]
    assert max(phi.depth for phi in deepest) == 20
    longest = walk(p.Grammar(50, 63, 62, 101), BINARY, rng)
    assert ((longest != p.PAD).sum(axis=1) >= 97).all()


def test_the_grammar_allows_every_formula_within_its_limits() -> None:
    for phi in FORMULAE[:150]:
        ids = tokens_of(phi)
        grammar = p.Grammar(1, phi.size, phi.depth, len(ids))
        feed(grammar, ids)
        assert grammar.done.all()
        for less in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
            limits = np.array([phi.size, phi.depth, len(ids)]) - less
            tight = p.Grammar(1, *limits.tolist())
            with pytest.raises(FormulaError, match="not allowed"):
                feed(tight, ids)


def test_sequences_do_not_disturb_each_other() -> None:
    ids, _ = p.prefix_tokens(Programs.pack(FORMULAE[:40]), 400)
    rng = np.random.default_rng(0)
    grammar, rows = p.Grammar(40, 500, 20, 400), np.arange(40)
    alone = [p.Grammar(1, 500, 20, 400) for _ in range(40)]
    for t in range(1, 30):
        grammar.advance(ids[rows, t])
        for row, one in enumerate(alone):
            one.advance(ids[row : row + 1, t])
        assert (grammar.allowed() == np.concatenate([alone[r].allowed() for r in rows])).all()
        choice = rng.integers(len(rows), size=40)
        grammar.take(choice)
        rows = rows[choice]


@pytest.mark.parametrize(
    "ids",
    [
        [], [p.BEGIN], [p.END], [p.BEGIN, p.END], [p.PAD], [p.BEGIN, 3, p.END],
        [p.BEGIN, p.ATOM, p.WHOLE, p.TENTHS, p.LAST], [p.ATOM, p.WHOLE, p.TENTHS, p.LAST, p.END],
        [p.BEGIN, p.ATOM, p.WHOLE, p.LAST, p.TENTHS, p.END],
        [p.BEGIN, p.ATOM, p.WHOLE, p.TENTHS, p.END],
        [p.BEGIN, p.ATOM, p.WHOLE, p.TENTHS, p.LAST, p.LAST, p.END],
        [p.BEGIN, 4, p.ATOM, p.WHOLE, p.TENTHS, p.LAST, p.END],
        [p.BEGIN, 6, p.LEFT + 3, p.RIGHT + 2, p.ATOM, p.WHOLE, p.TENTHS, p.LAST, p.END],
        [p.BEGIN, 6, p.ATOM, p.WHOLE, p.TENTHS, p.LAST, p.END],
        [p.BEGIN, -1, p.END], [p.BEGIN, p.VOCABULARY, p.END],
        [p.BEGIN, p.PAD, p.ATOM, p.WHOLE, p.TENTHS, p.LAST, p.END],
    ],
)  # fmt: skip
def test_what_is_no_sequence_is_refused(ids: list[int]) -> None:
    with pytest.raises(FormulaError):
        p.from_prefix(ids)


@given(st.integers(0, 149), st.data())
def test_altered_tokens_parse_or_are_refused(which: int, data: st.DataObject) -> None:
    ids = tokens_of(FORMULAE[which])
    at = data.draw(st.integers(0, len(ids) - 1))
    ids[at] = data.draw(st.integers(0, p.VOCABULARY - 1))
    try:
        phi = p.from_prefix(ids)
    except FormulaError:
        return
    assert rv.parse(str(phi)) == phi


@pytest.mark.parametrize("limits", [(0, 5, 50), (5, -1, 50), (5, 5, 5)])
def test_limits_that_no_formula_keeps_are_refused(limits: tuple[int, int, int]) -> None:
    with pytest.raises(FormulaError, match="raise the limits"):
        p.Grammar(3, *limits)


def test_always_is_told_by_its_window() -> None:
    phi = p.from_prefix(tokens_of(rv.parse("always[99,200] x_0 > 1")))
    assert phi.rows()[-1][:3] == (ops.ALWAYS, 99, ops.UNBOUNDED)
