"""A Formula is a value: frozen, hashable, compared by structure, combined by operators."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import FormulaError
from rhovec.formula import Formula, parse
from rhovec.formula import operators as ops
from rhovec.formula.core import canonical_channel, compose, natural_key
from rhovec.formula.operators import Shifted
from rhovec.formula.programs import Programs
from rhovec.formula.shape import shapes
from rhovec.formula.strategies import formulae

DEEP = 100_000


class Facts(NamedTuple):
    size: int
    depth: int
    last: int  # steps after t that the value at t depends on
    first: int
    variables: set[str]
    sizes: list[int]
    depths: list[int]


def facts_of(phi: Formula) -> Facts:
    """What the properties should say, by recursion from the root."""
    rows = phi.rows()

    def visit(end: int) -> tuple[int, Facts]:
        """Facts of the subtree whose root is row `end`, and where it starts."""
        op, lo, hi, channel, _ = rows[end]
        names = {ops.name_of(variable) for variable, _ in channel or ()}
        lags = [ops.lag_of(variable) for variable, _ in channel or ()] or [0]
        start, below = end, []
        for _ in range(ops.arity(op)):
            start, facts = visit(start - 1)
            below.insert(0, facts)
        size = 1 + sum(f.size for f in below)
        depth = max((f.depth + 1 for f in below), default=0)
        window = offsets(op, lo, hi)
        reached = [(-min(lags), -max(lags))] if not below else []
        for i, f in enumerate(below):
            at = [0, *window] if i < len(below) - 1 else window  # a left operand counts from t on
            reached.append((f.last + max(at), f.first + min(at)))
        return start, Facts(
            size,
            depth,
            max(last for last, _ in reached),
            min(first for _, first in reached),
            names.union(*(f.variables for f in below)),
            [n for f in below for n in f.sizes] + [size],
            [n for f in below for n in f.depths] + [depth],
        )

    start, facts = visit(len(rows) - 1)
    assert start == 0
    return facts


def offsets(op: int, lo: int, hi: int) -> list[int]:
    """Ends of the times at which an operator evaluates its right operand, relative to t."""
    if op in (ops.NEXT, ops.PREV):
        return [-1 if op == ops.PREV else 1]
    if op in (ops.RISE, ops.FALL):
        return [-1, 0]
    sign = -1 if ops.TABLE[op].past else 1
    return [sign * lo, sign * (lo if hi == ops.UNBOUNDED else hi)]


@given(formulae(("x_10", "x_9", "speed"), linear=True, max_leaves=20))
def test_facts_agree_with_the_recursive_definition(phi: Formula) -> None:
    expected = facts_of(phi)
    assert (phi.size, phi.depth) == expected[:2]
    assert (phi.horizon, phi.history) == (max(0, expected.last), max(0, -expected.first))
    assert set(phi.variables) == expected.variables
    assert list(phi.variables) == [n for n in ("speed", "x_9", "x_10") if n in expected.variables]
    sizes, depths, *times = phi.shape()
    assert (sizes.tolist(), depths.tolist()) == (expected.sizes, expected.depths)
    assert times == [expected.last, expected.first]


def test_facts_of_random_formulae() -> None:
    for phi in rv.random_formulae(300, seed=8):
        assert (phi.size, phi.depth, phi.horizon) == facts_of(phi)[:3]


def test_horizon() -> None:
    assert parse("x > 0").horizon == 0
    assert parse("next always[2,5] x > 0").horizon == 6
    assert parse("always[7,inf] eventually[0,2] x > 0").horizon == 9
    assert parse("always[0,3] x > 0 until[1,4] next y > 0").horizon == 7
    far = parse(f"always[0,{ops.MAX_BOUND}] " * 20_000 + "x > 0")
    assert far.horizon == 20_000 * ops.MAX_BOUND  # more than 64 bits hold
    assert parse("once[2,5] x - prev x > 0").history == 6
    assert parse("x > 0 since[1,4] prev y > 0").history == 5
    assert parse("next next prev rise(x > 0)").horizon == 1


@given(formulae(linear=True), formulae(linear=True))
def test_equality_is_structural(a: Formula, b: Formula) -> None:
    assert (a == b) == (str(a) == str(b))
    assert (a != b) == (str(a) != str(b))
    again = Formula.from_rows(a.rows())
    assert again == a
    assert again is not a
    assert hash(again) == hash(a)
    assert {a: 1}[again] == 1
    assert a != str(a)


@given(formulae(linear=True))
def test_copies_are_equal_and_frozen(phi: Formula) -> None:
    for other in (pickle.loads(pickle.dumps(phi)), copy.copy(phi), copy.deepcopy([phi])[0]):
        assert other == phi
        assert hash(other) == hash(phi)
        assert str(other) == str(phi)
        assert not other.code.flags.writeable
        assert not other.thresholds.flags.writeable


def test_differences_that_must_be_seen() -> None:
    texts = ["x > 1", "x >= 1", "y > 1", "x > 2", "2 * x > 1", "not x > 1", "always x > 1",
             "always[1,inf] x > 1", "always[0,1] x > 1", "eventually x > 1", "x > 1 and y > 1",
             "y > 1 and x > 1"]  # fmt: skip
    assert len({parse(text) for text in texts}) == len(texts)


def test_minus_zero_is_zero() -> None:
    (row,) = parse("x > 0").rows()
    negative = Formula.from_rows([(*row[:4], -0.0)])
    assert negative == parse("x > 0")
    assert hash(negative) == hash(parse("x > 0"))
    assert not np.signbit(negative.thresholds).any()


def test_a_formula_is_frozen() -> None:
    phi = parse("x > 1")
    with pytest.raises(AttributeError, match="frozen"):
        phi.channels = ()  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del phi.code
    with pytest.raises(AttributeError):
        phi.note = "new"  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="read-only"):
        phi.thresholds[0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        phi.code[0, 0] = 2


def test_operators() -> None:
    a, b = parse("x > 1"), parse("y - x < 2")
    assert ~a == parse("not x > 1")
    assert a & b == parse("x > 1 and y - x < 2")
    assert a | b == parse("x > 1 or y - x < 2")
    assert a >> b == parse("x > 1 -> y - x < 2")
    assert ~(a & b) | a == parse("(not (x > 1 and y - x < 2)) or x > 1")
    assert compose(ops.UNTIL, a, b, lo=2, hi=5) == parse("x > 1 until[2,5] y - x < 2")
    assert compose(ops.ALWAYS, a, lo=3) == parse("always[3,inf] x > 1")


def test_a_formula_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="combine formulae with &"):
        assert parse("x > 1")


def test_misuse_is_named() -> None:
    a = parse("x > 1")
    with pytest.raises(FormulaError, match=r"parse text with rv\.parse first"):
        a & "y > 1"  # type: ignore[operator]
    with pytest.raises(FormulaError, match="and takes 2 operand"):
        compose(ops.AND, a)
    with pytest.raises(FormulaError, match="0 <= left <= right"):
        compose(ops.ALWAYS, a, lo=3, hi=2)
    with pytest.raises(FormulaError, match="0 <= left <= right"):
        compose(ops.ALWAYS, a, lo=-1, hi=2)
    with pytest.raises(FormulaError, match="use inf"):
        compose(ops.ALWAYS, a, lo=0, hi=ops.MAX_BOUND + 1)


def test_every_operator_has_a_name_and_an_arity() -> None:
    assert [ops.arity(op) for op in range(len(ops.NAMES))] == (
        [0] * 6 + [1] * 4 + [2] * 7 + [1, 1, 2, 1, 1, 1]
    )
    assert [name for op, name in enumerate(ops.NAMES) if ops.is_timed(op)] == [
        "always", "eventually", "until", "release", "weak_until", "once", "historically", "since",
    ]  # fmt: skip


coefficients = st.dictionaries(
    st.sampled_from(["x_2", "x_10", "a", "b", "y4", "y5"]),
    st.floats(-8, 8).filter(lambda c: abs(c) > 1e-3),
    min_size=1,
)


@given(coefficients)
def test_channels_have_one_order_and_sign(terms: dict[str, float]) -> None:
    channel, sign = canonical_channel(terms)
    assert {n: sign * c for n, c in channel} == terms
    opposite, other_sign = canonical_channel({n: -c for n, c in reversed(terms.items())})
    assert (opposite, other_sign) == (channel, -sign)
    positive = [n for n, c in channel if c > 0]
    assert 2 * len(positive) >= len(channel)
    assert [n for n, _ in channel[: len(positive)]] == positive
    assert positive == sorted(positive, key=natural_key)


def test_natural_order() -> None:
    names = ["x_10", "x_2", "b", "x_1", "a2b10", "a2b9", "x"]
    assert sorted(names, key=natural_key) == ["a2b9", "a2b10", "b", "x", "x_1", "x_2", "x_10"]


def test_depth_is_limited_by_memory_alone() -> None:
    phi = parse("not " * DEEP + "x > 1")
    assert (phi.size, phi.depth, phi.horizon) == (DEEP + 1, DEEP, 0)
    assert pickle.loads(pickle.dumps(phi)) == copy.deepcopy(phi) == phi
    assert hash(phi) == hash(parse("not " * DEEP + "x > 1"))
    assert compose(ops.NOT, phi).depth == DEEP + 1


ATOM_ROW = (ops.GE, 0, 0, (("x", 1.0),), 0.5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([ATOM_ROW, (ops.UNTIL, 0, 3, None, 0.0)], "row 1: until needs 2 operand"),
        ([ATOM_ROW, ATOM_ROW], "2 formulae side by side"),
        ([ATOM_ROW, (99, 0, 0, None, 0.0)], "row 1: there is no operator with number 99"),
        ([ATOM_ROW, (-1, 0, 0, None, 0.0)], "no operator with number -1"),
        ([ATOM_ROW, (ops.ALWAYS, 3, 1, None, 0.0)], r"row 1: interval \[3,1\]"),
        ([ATOM_ROW, (ops.ALWAYS, 0, 10**16, None, 0.0)], "larger than"),
        ([ATOM_ROW, (ops.ALWAYS, 0.5, 1, None, 0.0)], "whole numbers"),
        ([ATOM_ROW, (ops.NOT, 0, 1, None, 0.0)], "not has no time bounds"),
        ([(ops.TRUE, 0, 0, (("x", 1.0),), 0.0)], "true has no channel"),
        ([(ops.GE, 0, 0, None, 0.5)], "a channel is a tuple"),
        ([(ops.GE, 0, 0, (("x", -1.0),), 0.5)], "canonical"),
        ([(ops.GE, 0, 0, (("x", float("nan")),), 0.5)], "canonical"),
        ([(ops.GE, 0, 0, (("x", 1.0),), float("inf"))], "finite"),
        ([(ops.GE, 0, 0, (("x", 1.0),), "1")], "finite"),
        ([(ops.GE, 0, 0)], "row 0 must be"),
        ([None], "row 0 must be"),
        (5, "rows must be a list"),
        ([(ops.GE, 0, 0, (["x", 1.0],), 1.0)], "row 0: a channel"),
        ([(ops.GE, 0, 0, (("a\nb", 1.0),), 1.0)], "read back"),
        ([(ops.GE, 0, 0, (("", 1.0),), 1.0)], "read back"),
        ([(ops.GE, 0, 0, (("x\x07", 1.0),), 1.0)], "read back"),
        ([(ops.GE, 0, 0, ((Shifted("x", 0), 1.0),), 1.0)], "row 0: a channel"),
        ([(ops.GE, 0, 0, ((Shifted("x", 1.5), 1.0),), 1.0)], "row 0: a channel"),
        ([(ops.GE, 0, 0, (("x", 1.0), (Shifted("x", 1), 1.0)), 1.0)], "row 0: a channel"),
        ([(ops.GE, 0, 0, (("x", 10**400),), 1.0)], "row 0: a channel"),
        ([(ops.GE, 0, 0, (("x", 1.0),), 10**400)], "finite"),
        ([(ops.GE, 0, 0, (("x", 1.0),), True)], "finite"),
        ([ATOM_ROW, (ops.NOT, 0, 0, None, np.array([1.0, 2.0]))], "not has no channel"),
    ],
)  # fmt: skip
def test_rows_that_are_no_formula_are_refused(rows: list[Any], message: str) -> None:
    with pytest.raises(FormulaError, match=message):
        Formula.from_rows(rows)


def test_expansions_use_only_primitive_operators() -> None:
    for row in ops.TABLE:
        used = [step[0] for step in row.expansion or () if not isinstance(step, str)]
        assert all(ops.TABLE[op].expansion is None for op in used)


def test_duals_are_mutual() -> None:
    assert all(ops.NEGATED[dual] == op for op, dual in ops.NEGATED.items())


def test_one_formula_and_a_batch_have_the_same_shapes() -> None:
    """Lists in plain Python and arrays in compiled code, also where a horizon passes 64 bits."""
    batch = [
        *rv.random_formulae(200, seed=8),
        parse(f"always[0,{ops.MAX_BOUND}] " * 10_000 + "x > 0"),
    ]
    batch += [parse("next next x > 0 release[2,7] y < 1"), parse("x > 0 weak_until[3,inf] true")]
    batch += [parse("x > 0 since[2,7] prev y < 1"), parse("once[3,9] next x - prev x > 0")]
    programs = Programs.pack(batch)
    assert programs.depths().tolist() == [phi.depth for phi in batch]
    assert programs.horizons().tolist() == [min(phi.horizon, 1 << 62) for phi in batch]
    assert programs.histories().tolist() == [phi.history for phi in batch]
    sizes = shapes(programs.code, programs.channels)[0]
    assert sizes.tolist() == [size for phi in batch for size in phi.shape()[0].tolist()]
