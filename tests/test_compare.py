"""Comparisons: proofs against every trace of a small world, relations known by construction,
counts against the oracle, intervals that cover, and the witness."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest

import rhovec as rv
from rhovec.compare import Comparison, compare
from rhovec.compare.counting import interval
from rhovec.compare.prover import BOTH, NEITHER, ONLY_A, ONLY_B, impossible_cases
from rhovec.compare.report import RULED_OUT
from rhovec.compare.rules import Rules
from rhovec.errors import FormulaError, RhovecError, TraceError
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula, compose
from rhovec.formula.operators import Row
from rhovec.robustness.reference import satisfaction_trace
from rhovec.traces import BaseMeasure, TraceMeasure

# Every trace of two variables with values -1, 0, 1 on four points: thresholds are met exactly, so
# that strict and non-strict comparisons differ.
WORLD = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=8))).reshape(-1, 2, 4)


# -- random formulae, and what they can be weakened to ---------------------------------------------


def draw(rng: np.random.Generator, depth: int) -> Formula:
    """Any operator, thresholds on the grid of WORLD, short windows."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.05:
            return compose(int(rng.choice((ops.TRUE, ops.FALSE))))
        channel = ((f"x_{rng.integers(2)}", 1.0),)
        threshold = float(rng.integers(-1, 2))
        return Formula.from_rows([(int(rng.choice(ops.COMPARISONS)), 0, 0, channel, threshold)])
    op = int(rng.choice([op for op, row in enumerate(ops.TABLE) if row.arity]))
    lo = int(rng.integers(3))
    hi = ops.UNBOUNDED if rng.random() < 0.2 else lo + int(rng.integers(3))
    return compose(op, *(draw(rng, depth - 1) for _ in range(ops.arity(op))), lo=lo, hi=hi)


def polarities(phi: Formula) -> list[int]:
    """For every node 1 if a weaker node makes the formula weaker, -1 if stronger, 0 if neither."""
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    out = [0] * len(rows)
    out[-1] = 1
    for i in range(len(rows) - 1, -1, -1):
        op = rows[i][0]
        if ops.arity(op):
            out[i - 1] = out[i] * {ops.NOT: -1, ops.IFF: 0, ops.RISE: 0, ops.FALL: 0}.get(op, 1)
        if ops.arity(op) == 2:
            out[i - 1 - sizes[i - 1]] = out[i] * {ops.IMPLIES: -1, ops.IFF: 0}.get(op, 1)
    return out


def changed(row: Row, weaker: bool, rng: np.random.Generator) -> Row | None:
    """The node, weaker or stronger, or None if there is nothing to change."""
    op, lo, hi, channel, threshold = row
    coin = rng.random() < 0.5
    if op in (ops.GE, ops.GT, ops.LE, ops.LT):
        if coin and op == {True: ops.GT, False: ops.GE}[weaker]:
            return ({ops.GT: ops.GE, ops.GE: ops.GT}[op], 0, 0, channel, threshold)
        if coin and op == {True: ops.LT, False: ops.LE}[weaker]:
            return ({ops.LT: ops.LE, ops.LE: ops.LT}[op], 0, 0, channel, threshold)
        step = 1.0 if weaker == (op in (ops.LE, ops.LT)) else -1.0
        return (op, 0, 0, channel, threshold + step)
    if op in (ops.AND, ops.OR):
        return (ops.OR, 0, 0, None, 0.0) if weaker == (op == ops.AND) else None
    for strong, weak in ((ops.ALWAYS, ops.EVENTUALLY), (ops.HISTORICALLY, ops.ONCE)):
        if coin and op == (strong if weaker else weak):
            return (weak if weaker else strong, lo, hi, None, 0.0)
    if ops.is_timed(op) and op != ops.WEAK_UNTIL:
        if weaker == (op not in (ops.ALWAYS, ops.HISTORICALLY, ops.RELEASE)):  # a wider window
            wide = ops.UNBOUNDED if hi == ops.UNBOUNDED or coin else hi + int(rng.integers(2))
            return (op, int(rng.integers(lo + 1)), wide, None, 0.0)
        last = lo + 2 if hi == ops.UNBOUNDED else hi
        lo = int(rng.integers(lo, last + 1))
        return (op, lo, ops.UNBOUNDED if hi == ops.UNBOUNDED and coin else last, None, 0.0)
    return None


def weakened(phi: Formula, rng: np.random.Generator, direction: int = 1) -> Formula:
    """phi changed at one to three nodes so that it is implied by phi (direction -1: implies it).

    direction 0 changes nodes without regard for what that does to the formula.
    """
    rows = phi.rows()
    signs = polarities(phi)
    for i in rng.permutation(len(rows))[: rng.integers(1, 4)]:
        sign = signs[i] * direction if direction else int(rng.choice((-1, 1)))
        new = changed(rows[i], sign > 0, rng) if sign else None
        rows[i] = new or rows[i]
    return Formula.from_rows(rows)


def is_constant(phi: Formula) -> bool:
    return rv.simplify(phi).code[-1, 0] in (ops.TRUE, ops.FALSE)


def known_pairs(n: int, seed: int) -> list[tuple[Formula, Formula]]:
    """Formulae, each with one that it implies."""
    rng = np.random.default_rng(seed)
    out: list[tuple[Formula, Formula]] = []
    while len(out) < n:
        strong = draw(rng, int(rng.integers(1, 5)))
        weak = weakened(strong, rng)
        if strong != weak and not is_constant(strong) and not is_constant(weak):
            out.append((strong, weak))
    return out


def case_counts(a: np.ndarray, b: np.ndarray) -> list[int]:
    return [int(c.sum()) for c in (a & b, a & ~b, ~a & b, ~a & ~b)]


# -- proofs ----------------------------------------------------------------------------------------


def test_weaker_formulae_are_proved_to_be_implied() -> None:
    check_that_weaker_formulae_are_implied(200, seed=0)


def check_that_weaker_formulae_are_implied(n: int, seed: int) -> None:
    for strong, weak in known_pairs(n, seed):
        assert ONLY_A in impossible_cases(strong, weak), f"{strong} | {weak}"
        assert ONLY_B in impossible_cases(weak, strong)
        assert BOTH in impossible_cases(strong, ~weak)
        assert NEITHER in impossible_cases(~strong, weak)


def test_nothing_false_is_proved() -> None:
    check_that_nothing_false_is_proved(seed=0)


def check_that_nothing_false_is_proved(seed: int) -> None:
    """Families of near misses, judged by every trace of the small world."""
    rng = np.random.default_rng(seed)
    families = []
    for _ in range(40):
        first = draw(rng, int(rng.integers(1, 5)))
        families.append(
            [first, *(weakened(first, rng, int(rng.integers(-1, 2))) for _ in range(5))]
        )
    holds = rv.satisfaction([phi for family in families for phi in family], WORLD)
    holds = holds.reshape(40, 6, -1)
    proved = 0
    for _ in range(1500):
        (i, k), (j, m) = ((int(rng.integers(40)), int(rng.integers(6))) for _ in range(2))
        if rng.random() < 0.6:
            j = i
        a, b = families[i][k], families[j][m]
        found = impossible_cases(a, b)
        counts = case_counts(holds[i, k], holds[j, m])
        assert not any(counts[case] for case in found), f"{a} | {b}"
        proved += len(found)
    assert proved > 1000


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("always (x_0 > 0 and x_1 > 0)", "always x_1 > 0 and always x_0 > 0"),
        ("eventually[1,2] (x_0 > 0 or x_1 > 0)", "eventually[1,2] x_1 > 0 or eventually[1,2] x_0 > 0"),
        ("(x_0 > 0 and x_1 > 0) until x_1 > 1", "x_1 > 0 until x_1 > 1 and x_0 > 0 until x_1 > 1"),
        ("x_0 > 0 until (x_1 > 1 or x_0 > 1)", "x_0 > 0 until x_1 > 1 or x_0 > 0 until x_0 > 1"),
        ("not always[1,3] x_0 > 0", "eventually[1,3] x_0 <= 0"),
        ("x_0 > 0 -> next x_1 > 0", "not (x_0 > 0 and next x_1 <= 0)"),
        ("always[1,2] always[3,4] x_0 > 0", "always[4,6] x_0 > 0"),
        ("x_0 > 0 <-> x_1 > 0", "not (x_1 <= 0 <-> x_0 > 0)"),
        ("x_0 > 0 and (x_0 > 0 or x_1 > 0)", "x_0 > 0"),
        ("next next x_0 > 0 or false", "eventually[2,2] x_0 > 0"),
        ("next prev x_0 > 0", "x_0 > 0"),
        ("prev (next x_0 > 0 and x_1 > 0)", "x_0 > 0 and prev x_1 > 0"),
        ("(prev x_0) > 0", "once[1,1] x_0 > 0"),
        ("eventually[1,3] prev (x_0 > 0 and next x_1 > 0)",
         "eventually[0,2] (x_0 > 0 and next x_1 > 0)"),
        ("once[0,2] eventually[0,1] x_0 > 0", "eventually[0,1] x_0 > 0 or once[1,2] x_0 > 0"),
        ("not once[1,3] x_0 > 0", "historically[1,3] x_0 <= 0"),
        ("(x_0 > 0 and x_1 > 0) since x_1 > 1", "x_1 > 0 since x_1 > 1 and x_0 > 0 since x_1 > 1"),
        ("x_0 > 0 since x_1 > 0", "x_0 > 0 and (x_1 > 0 or prev (x_0 > 0 since x_1 > 0))"),
        ("x_0 > 0 until[0,2] x_1 > 0", "x_0 > 0 and (x_1 > 0 or next (x_0 > 0 until[0,1] x_1 > 0))"),
        ("rise(x_0 > 0)", "fall(x_0 <= 0)"),
        ("next rise(x_0 > 0)", "next x_0 > 0 and x_0 <= 0"),
        ("x_0 > 0 and (x_1 > 0 or x_1 < 0)", "(x_0 > 0 and x_1 > 0) or (x_0 > 0 and x_1 < 0)"),
    ],
)  # fmt: skip
def test_rewritten_formulae_are_proved_equivalent(a: str, b: str) -> None:
    p, q = rv.parse(a), rv.parse(b)
    assert impossible_cases(p, q) == {ONLY_A, ONLY_B}
    assert impossible_cases(p, ~q) == {BOTH, NEITHER}
    assert np.array_equal(*rv.satisfaction([p, q], WORLD))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x_0 >= 2", "x_0 >= 1"),
        ("x_0 > 1", "x_0 >= 1"),
        ("always[0,10] x_0 > 0", "always[2,5] x_0 > 0"),
        ("eventually[2,5] x_0 > 0", "eventually[0,10] x_0 > 0"),
        ("always[3,9] x_0 > 1", "eventually[9,12] x_0 > 0"),
        ("always x_0 > 0", "x_0 > 0 or x_1 > 0"),
        ("x_0 > 0", "eventually x_0 >= 0"),
        ("x_0 > 0 until[2,5] x_1 > 0", "always[0,2] x_0 > 0"),
        ("x_0 > 0 until[2,5] x_1 > 0", "eventually[1,6] x_1 > 0"),
        ("x_0 > 0 until[2,5] x_1 > 0", "x_0 >= 0"),
        ("always[0,5] x_0 > 0 and eventually[2,5] x_1 > 0", "x_0 > 0 until[2,5] x_1 > -1"),
        ("always[0,2] x_0 > 0 and always[2,2] x_1 > 0", "x_0 > 0 until[2,5] x_1 > 0"),
        ("always x_1 <= 0", "not (x_0 > 0 until x_1 > 0)"),
        ("x_0 > 1 and x_1 > 1", "x_1 > 0 or x_0 > 0"),
        ("y - x >= 2", "x - y < 0"),
        ("x_0 - prev x_0 > 1", "x_0 - prev x_0 >= 0"),
        ("historically[0,5] x_0 > 0", "once[3,9] x_0 >= 0"),
        ("x_0 > 0 since[2,5] x_1 > 0", "historically[0,2] x_0 > 0 and once[2,6] x_1 > 0"),
        ("historically[0,5] x_0 > 0 and once[2,5] x_1 > 0", "x_0 > 0 since[2,5] x_1 > 0"),
        ("x_0 > 0", "historically[3,9] eventually[0,9] x_0 > 0"),
        ("always[2,4] x_0 > 0", "always[3,3] once[0,1] x_0 > 0"),
        ("rise(x_0 > 0)", "x_0 > 0 and prev x_0 <= 0 or x_1 > 0"),
        ("always[8,20] (x_0 > 0 -> x_1 > 0) and eventually[10,12] x_0 > 0", "eventually[9,15] x_1 > 0"),
        ("once[10,inf] x_0 > 0", "not historically[8,inf] x_0 <= 0"),
    ],
)  # fmt: skip
def test_what_the_rules_prove(a: str, b: str) -> None:
    assert ONLY_A in impossible_cases(rv.parse(a), rv.parse(b))
    assert ONLY_A not in impossible_cases(rv.parse(b), rv.parse(a))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x_0 >= 0", "x_0 > 0"),
        ("eventually x_0 > 0 and eventually x_1 > 0", "eventually (x_0 > 0 and x_1 > 0)"),
        ("always (x_0 > 0 or x_1 > 0)", "always x_0 > 0 or always x_1 > 0"),
        ("x_0 > -1 until x_1 > 0 and x_0 > -1 until x_0 > 0", "x_0 > -1 until (x_1 > 0 and x_0 > 0)"),
        ("(x_0 > 0 or x_1 > 0) until x_1 < 0", "x_0 > 0 until x_1 < 0 or x_1 > 0 until x_1 < 0"),
        ("always[0,3] x_0 > 0 and eventually[1,2] x_1 > 0", "x_0 > 0 until[1,1] x_1 > 0"),
        ("always[0,1] x_0 > 0 and eventually[1,2] x_1 > 0", "x_0 > 0 until[1,2] x_1 > 0"),
        ("x_0 > 0 until[1,2] x_1 > 0", "always[0,2] x_0 > 0"),
        ("x_0 > 0 until[1,2] x_1 > 0", "eventually[1,1] x_1 > 0"),
        ("always[1,2] x_0 > 0", "x_0 > 0"),
        ("x_0 > 0", "eventually[1,2] x_0 > 0"),
        ("always[0,1] x_0 > 0", "eventually[2,3] x_0 > 0"),
        ("x_0 > 0 -> x_1 > 0", "x_1 > 0 -> x_0 > 0"),
        ("not always x_0 > 0", "always not x_0 > 0"),
        ("next x_0 > 0", "prev next x_0 > 0"),
        ("next next once[1,2] x_0 > 0", "next next once[2,2] x_0 > 0"),
        ("next next once x_0 > 0", "next next (x_0 > 0)"),
        ("next next (x_0 > 0 since x_1 > 0)", "next next once[0,1] x_1 > 0"),
        ("next once x_0 > 0 and next once x_1 > 0", "next once (x_0 > 0 and x_1 > 0)"),
    ],
)  # fmt: skip
def test_what_looks_alike_is_not_proved(a: str, b: str) -> None:
    p, q = rv.parse(a), rv.parse(b)
    first, second = rv.satisfaction([p, q], WORLD)
    assert (first & ~second).any()
    assert ONLY_A not in impossible_cases(p, q)
    assert ONLY_B not in impossible_cases(q, p)
    assert BOTH not in impossible_cases(p, ~q)


def test_windows_far_from_now_are_not_taken_for_empty_ones() -> None:
    for near, far in (("eventually[10,12]", "eventually[9,12]"), ("once[20,inf]", "once[10,inf]")):
        p, q = rv.parse(f"{near} x_0 > 0"), rv.parse(f"{far} x_0 > 0")
        assert impossible_cases(p, q) == {ONLY_A}
        assert impossible_cases(p, p) == {ONLY_A, ONLY_B}
    # The rest of an unrolled eventually was once taken for an always.
    p = rv.parse("eventually[5,12] x_0 > 0 and always[5,6] x_0 <= 0")
    assert impossible_cases(p, rv.parse("eventually[11,12] x_0 <= 0")) == set()


@pytest.mark.parametrize("op", [op for op, row in enumerate(ops.TABLE) if not ops.IS_ATOM[op]])
def test_the_prover_knows_an_operator_or_refuses_it(op: int) -> None:
    """An operator without a rule must not be taken for another one."""
    rules = Rules()
    operands = tuple(rules.atom(ops.GE, ((name, 1.0),), 0.0) for name in "xy")[: ops.arity(op)]
    if op in (ops.RELEASE, ops.WEAK_UNTIL, ops.RISE, ops.FALL):
        with pytest.raises(FormulaError, match=f"no rule speaks of {ops.NAMES[op]}"):
            rules.literal(op, 1, 2, operands)
    else:
        assert rules.literal(op, 1, 2, operands) >= 0


def test_proofs_about_formulae_of_any_depth() -> None:
    even = rv.parse("not " * 100_000 + "x_0 >= 1")
    assert impossible_cases(even, rv.parse("x_0 >= 0")) == {ONLY_A}
    windows = "always[0,3] eventually[0,4] " * 5_000
    strong, weak = rv.parse(windows + "x_0 >= 1"), rv.parse(windows + "x_0 >= 0")
    assert impossible_cases(strong, weak, [ONLY_A]) == {ONLY_A}
    assert impossible_cases(weak, strong, [ONLY_A]) == set()
    assert compare(strong, weak, n_traces=2).relation == "implies"


# -- relations -------------------------------------------------------------------------------------


def consistent(c: Comparison, counts: list[int]) -> bool:
    """The relation is the first that is proved, otherwise the first that the counts allow."""
    shares = (c.both, c.only_a, c.only_b, c.neither)
    proved = [r for r, cases in RULED_OUT.items() if cases and all(shares[i][3] for i in cases)]
    allowed = [r for r, cases in RULED_OUT.items() if not any(counts[i] for i in cases)]
    certain = bool(proved) or allowed == ["overlaps"]
    return c.relation == (proved + allowed)[0] and c.proved == certain


def test_known_relations_on_the_small_world_agree_with_brute_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure = TraceMeasure(WORLD[::5])
    traces = {name: WORLD[::5, i] for i, name in enumerate(measure.variables)}
    pairs = known_pairs(40, seed=1)
    pairs += [(b, a) for a, b in pairs[:10]] + [(a, ~b) for a, b in pairs[:10]]
    pairs += [(a, pairs[i - 1][1]) for i, (a, _) in enumerate(pairs[:10])]
    compared = [compare(a, b, measure) for a, b in pairs]
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["rhovec.compare"], "impossible_cases", lambda *_: set())
        by_traces = [compare(a, b, measure) for a, b in pairs]
    seen = set()
    for i, (a, b) in enumerate(pairs):
        holds = [satisfaction_trace(phi, traces)[:, 0] for phi in (a, b)]
        counts = case_counts(*holds)
        for c in (compared[i], by_traces[i]):
            shares = (c.both, c.only_a, c.only_b, c.neither)
            assert [s.value for s in shares] == [k / len(WORLD[::5]) for k in counts]
            assert c.differ.value == pytest.approx(c.only_a.value + c.only_b.value)
            assert consistent(c, counts)
        if i < 40:
            assert compared[i].proved
            assert compared[i].relation in ("implies", "equivalent")
            assert by_traces[i].relation in ("implies", "equivalent")
        seen |= {(c.relation, c.proved) for c in (compared[i], by_traces[i])}
    relations = ("equivalent", "implies", "implied by", "contradicts")
    assert {(r, p) for r in relations for p in (True, False)} <= seen
    assert ("overlaps", True) in seen


def test_random_traces_find_known_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["rhovec.compare"], "impossible_cases", lambda *_: set())
    a, b = "always[0,10] x_0 >= 0.5", "eventually[0,10] x_0 >= 0"
    for first, second, relation in [
        (a, b, "implies"), (b, a, "implied by"), (a, f"not {b}", "contradicts"),
        (a, "not eventually[0,10] x_0 < 0.5", "equivalent"), (a, "x_1 > 0", "overlaps"),
    ]:  # fmt: skip
        c = compare(first, second, n_traces=1000)
        assert c.relation == relation
        assert c.proved == (relation == "overlaps")
        if not c.proved:
            text = "none of 1,000 is a counterexample, and the probability of one is at most 0.0037"
            assert text in str(c)


def test_strict_and_non_strict_comparisons() -> None:
    """Equivalent almost surely on mu0, but not by logic: the proved implication is reported."""
    c = compare("x_0 > 0", "x_0 >= 0")
    assert (c.relation, c.proved) == ("implies", True)
    assert c.only_a == (0, 0, 0, True)
    assert c.only_b[:2] == (0, 0)
    assert c.only_b.high == c.differ.high == pytest.approx(3.69e-4, rel=1e-3)
    assert any("No trace tells them apart" in remark for remark in c.remarks)
    assert c.witness is None

    c = compare("x_0 > 0", "x_0 >= 0", TraceMeasure(np.array([[[1.0, 2]], [[0.0, 0]]])))
    assert (c.relation, c.only_b.value) == ("implies", 0.5)
    assert c.remarks == ("b holds on every trace, so the traces say little about b.",)
    assert c.witness is not None
    assert c.witness.satisfied == (False, True)
    assert not c.witness.trace.any()

    c = compare("x_0 > 0", "x_0 >= 0", TraceMeasure(np.zeros((3, 1, 5))))
    assert (c.similarity, c.standard_error) == (None, None)
    assert c.only_b.value == 1
    assert "Semantic kernel" not in str(c)


def test_no_trace_contradicts_a_proof_by_rounding() -> None:
    """In float32 these thresholds are the same, and a trace lies on them."""
    measure = TraceMeasure(np.ones((4, 1, 3), np.float32))
    c = compare("x_0 >= 1", "x_0 <= 0.9999999999", measure)
    assert (c.relation, c.proved) == ("contradicts", True)
    assert (c.both.value, c.only_a.value) == (0, 1)


def test_formulae_that_always_or_never_hold() -> None:
    c = compare("x_0 >= 50", "x_1 >= 50", n_traces=100)
    assert (c.relation, c.proved, c.neither.value) == ("equivalent", False, 1)
    assert c.remarks == (
        "a holds on no trace, so the traces say little about a.",
        "b holds on no trace, so the traces say little about b.",
    )
    c = compare("x_0 <= 50", "x_0 > 0 or x_0 <= 0", n_traces=100)
    assert (c.relation, c.proved, c.both.value) == ("implies", True, 1)  # b holds on every trace
    assert len(c.remarks) == 3
    c = compare("x_0 >= 50", "not x_0 >= 50", n_traces=100)  # not "implies", which is not proved
    assert (c.relation, c.proved) == ("contradicts", True)
    c = compare("x_0 > 0 or x_1 > 0", "x_0 < 1", n_traces=500)
    assert (c.relation, c.neither.impossible) == ("overlaps", True)
    assert c.remarks == ("At least one of the two holds: proved, for all traces.",)


def test_the_kernel_stands_beside() -> None:
    a, b = "always[0,20] x_0 >= 0", "eventually[0,20] x_2 >= 0"
    c = compare(a, b, n_traces=700, seed=3)
    kernel = rv.StlKernel(BaseMeasure(3), 700, seed=3)
    assert c.similarity == kernel.similarity(a, b)
    assert c.standard_error == kernel.standard_error(a, b)
    assert (c.n_traces, c.points, c.seed, c.confidence) == (700, 100, 3, 0.95)


def test_names_go_with_traces() -> None:
    rng = np.random.default_rng(0)
    own = TraceMeasure(rng.normal(60, 30, (50, 2, 8)), ["speed", "rpm"])
    c = compare("always speed < 120", "always[0,3] speed - rpm < 130", own)
    assert c.n_traces == 50
    assert c.witness is not None
    assert c.witness.variables == ("speed", "rpm")
    assert compare("speed < 1", "rpm < 1", own, n_traces=20).n_traces == 20


def test_mistakes_are_named() -> None:
    with pytest.raises(TraceError, match=r"'speed > 1' uses speed, .* Schema"):
        compare("x_0 > 1", "speed > 1")
    with pytest.raises(FormulaError, match="is constant"):
        compare("x_0 > 1", "x_1 > 0 or true")
    with pytest.raises(RhovecError, match=r"at least 0\.5 and below 1, not 95"):
        compare("x_0 > 1", "x_0 > 2", confidence=95)
    with pytest.raises(TraceError, match="x_1000 would need 1001 random variables"):
        compare("x_0 > 1", "x_1000 > 2")
    with pytest.raises(TraceError, match="at least one trace"):
        compare("x_0 > 1", "x_0 > 2", n_traces=0)
    with pytest.raises(FormulaError, match="item 1 is a int"):
        compare("x_0 > 1", 2)  # type: ignore[arg-type]


def test_the_report_and_progress() -> None:
    done: list[float] = []
    c = compare("always[0,5] x_0 > 0", "x_0 > 0", n_traces=5000, progress=done.append)
    assert done == sorted(done)
    assert done[-1] == 1
    text = str(c)
    for part in (
        "a  always[0,5] ( x_0 > 0 )", "a implies b: proved, for all traces.", "0 (proved)",
        "Shares of 5,000 traces of 100 points (seed 0), with intervals of 95 % confidence.",
        "a fails", "b holds", f"Semantic kernel: {c.similarity:.4f}",
    ):  # fmt: skip
        assert part in text
    assert len(str(compare("not " * 2000 + "x_0 > 0", "x_0 > 1", n_traces=9))) < 1500
    with pytest.raises(AttributeError):
        c.proved = False  # type: ignore[misc]


# -- the witness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [50, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_the_witness_differs_most(seed: int, n: int) -> None:
    measure = BaseMeasure(2, 30)
    traces = measure.sample(n, seed).astype(np.float64)
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(8):
        a, b = draw(rng, 3), draw(rng, 3)
        if is_constant(a) or is_constant(b):
            continue
        witness = compare(a, b, measure, n, seed).witness
        rho, holds = rv.robustness([a, b], traces), rv.satisfaction([a, b], traces)
        differs = holds[0] != holds[1]
        gap = abs(rho[0] - rho[1])
        if witness is None:
            assert not differs.any()
            assert gap.max() <= 1e-6
            continue
        found += 1
        assert witness.satisfied[0] != witness.satisfied[1] or not differs.any()
        largest = gap[differs].max() if differs.any() else gap.max()
        assert abs(np.subtract(*witness.robustness[:, 0])) == pytest.approx(largest, abs=1e-5)
        assert (traces == witness.trace).all(axis=(1, 2)).any()
        trace = rv.robustness([a, b], witness.trace[None], trace=True)[:, 0]
        assert np.array_equal(trace, witness.robustness)
    assert found > 3


# -- intervals -------------------------------------------------------------------------------------


def tail(k: int, n: int, p: float) -> float:
    """The probability of k or more hits."""
    return math.fsum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k, n + 1))


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_solve_their_definition(n: int, confidence: float) -> None:
    for k in range(n + 1):
        low, high = interval(k, n, confidence)
        assert low <= k / n <= high
        assert tail(k, n, low) == pytest.approx((1 - confidence) / 2) if k else low == 0
        missed = 1 - tail(k + 1, n, high)
        assert missed == pytest.approx((1 - confidence) / 2) if k < n else high == 1


def test_intervals_cover_every_probability() -> None:
    n = 25
    intervals = [interval(k, n, 0.9) for k in range(n + 1)]
    for p in np.linspace(0.001, 0.999, 400):
        chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        covered = sum(
            c for c, (low, high) in zip(chances, intervals, strict=True) if low <= p <= high
        )
        assert covered >= 0.9


def test_intervals_of_many_traces() -> None:
    n = 1_000_000
    assert interval(0, n, 0.95) == (0, pytest.approx(1 - 0.025 ** (1 / n), rel=1e-9))
    for k in (10_000, 300_000, 990_000):
        half = 1.959964 * math.sqrt(k / n * (1 - k / n) / n)
        low, high = interval(k, n, 0.95)
        assert low == pytest.approx(k / n - half, abs=3e-6)
        assert high == pytest.approx(k / n + half, abs=3e-6)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("always[0,10] x_0 >= 0", "eventually[0,15] x_1 > 0.5"),
        ("always x_0 >= 1.5", "always[0,5] x_1 <= -1.5"),
    ],
)
def test_intervals_cover_the_probabilities_of_the_base_measure(a: str, b: str) -> None:
    measure = BaseMeasure(2, 20)
    names = ("both", "only_a", "only_b", "neither", "differ")
    known = compare(a, b, measure, n_traces=200_000, seed=10_000)
    seeds = 150
    covered = dict.fromkeys(names, 0)
    for seed in range(seeds):
        c = compare(a, b, measure, n_traces=250, seed=seed)
        for name in names:
            share, truth = getattr(c, name), getattr(known, name).value
            covered[name] += share.low <= truth <= share.high
    # Each holds at least 95 times in 100; 8 misses too many are 3 standard deviations.
    assert min(covered.values()) >= 0.95 * seeds - 8
    assert sum(covered.values()) < len(names) * seeds  # 95 % is not 100 %
