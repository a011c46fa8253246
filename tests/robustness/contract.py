"""What every engine must do: agree with the oracle on random formulae, and obey the laws of STL.

An engine is a function (formulae, traces, trace, end, boolean) -> (B, N) or (B, N, P). Its test class
inherits `EngineContract` and says how it is called.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula, canonical_channel
from rhovec.formula.expand import expand
from rhovec.formula.operators import Row, Shifted
from rhovec.robustness.reference import robustness_trace, satisfaction_trace

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden.json").read_text())
NAMES = ("x_0", "x_1", "x_2")


def random_text(rng: np.random.Generator, depth: int, bound: int = 12, past: bool = False) -> str:
    """Any construct of the language, nested to `depth`; with past, also those that look back."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.04:
            return str(rng.choice(["true", "false"]))
        compare = rng.choice([">=", "<=", "<", ">"])
        name = rng.choice(NAMES)
        if rng.random() < 0.1:
            first, second = rng.choice(NAMES, 2, replace=False)
            name = f"{first} - 0.5 * {second}"
        return f"{name} {compare} {rng.normal():.3f}"

    def inner() -> str:
        return f"( {random_text(rng, depth - 1, bound, past)} )"

    def interval() -> str:
        kind = rng.random()
        lo = rng.integers(0, bound)
        if kind < 0.15:
            return ""
        return f"[{lo},inf]" if kind < 0.3 else f"[{lo},{lo + rng.integers(0, bound + 3)}]"

    if past and rng.random() < 0.5:
        kind = rng.integers(8)
        if kind < 5:
            unary = ("prev", "rise", "fall", f"once{interval()}", f"historically{interval()}")
            return unary[kind] + inner()
        return f"{inner()} since{interval()} {inner()}"
    kind = rng.integers(13)
    if kind < 4:
        return ("not", "next", f"always{interval()}", f"eventually{interval()}")[kind] + inner()
    if kind < 8:
        return f"{inner()} {('and', 'or', '->', '<->')[kind - 4]} {inner()}"
    name = ("until", "until", "until", "release", "weak_until")[kind - 8]
    return f"{inner()} {name}{interval()} {inner()}"


def lagged(phi: Formula, rng: np.random.Generator, lag: int) -> Formula:
    """phi with terms of some atoms read up to `lag` steps earlier or later."""
    rows: list[Row] = []
    for op, lo, hi, channel, c in phi.rows():
        if channel is not None and rng.random() < 0.3:
            terms: dict[ops.Variable, float] = {}
            for name in rng.choice(NAMES, rng.integers(1, 3)).tolist():
                steps = int(rng.integers(-lag, lag + 1))
                terms[Shifted(name, steps) if steps else name] = float(rng.choice([1, -0.5]))
            channel, _ = canonical_channel(terms)
        rows.append((op, lo, hi, channel, c))
    return Formula.from_rows(rows)


def random_mixture(rng: np.random.Generator, depth: int, bound: int = 12) -> Formula:
    """A formula that looks ahead and back.

    Thresholds are sixteenths: on the traces of `exact_traces` single precision rounds nothing.
    """
    phi = lagged(rv.parse(random_text(rng, depth, bound, past=True)), rng, lag=3)
    return Formula.from_rows([(*row[:4], round(16 * row[4]) / 16) for row in phi.rows()])


MIRROR = {ops.ALWAYS: ops.HISTORICALLY, ops.EVENTUALLY: ops.ONCE, ops.UNTIL: ops.SINCE,
          ops.NEXT: ops.PREV}  # fmt: skip
MIRROR |= {back: ahead for ahead, back in MIRROR.items()}


def mirrored(phi: Formula) -> Formula:
    """The formula that looks back where phi looks ahead, and ahead where phi looks back."""
    rows: list[Row] = []
    for op, lo, hi, channel, c in expand(phi).rows():
        op = MIRROR.get(op, op)
        if channel is not None:
            channel, sign = canonical_channel({
                Shifted(ops.name_of(v), -ops.lag_of(v)) if ops.lag_of(v) else v: coefficient
                for v, coefficient in channel
            })  # fmt: skip
            if sign < 0:
                op, c = {ops.GE: ops.LE, ops.GT: ops.LT, ops.LE: ops.GE, ops.LT: ops.GT}[op], -c
        rows.append((op, lo, hi, channel, c))
    return Formula.from_rows(rows)


def random_traces(rng: np.random.Generator, n: int, points: int, dtype: type) -> np.ndarray:
    """(n, 3, points): random walks, with ties and plateaus in some."""
    x = rng.normal(size=(n, 3, points)).cumsum(-1) / 3
    x = np.where(rng.random((n, 1, 1)) < 0.3, np.round(x), x)
    return x.astype(np.float32).astype(dtype)  # the same numbers in either precision


def exact_traces(rng: np.random.Generator, n: int, points: int, dtype: type) -> np.ndarray:
    """Such traces in sixteenths."""
    return np.round(16 * random_traces(rng, n, points, dtype)) / 16


# Engines are asked the same questions.
_ANSWERS: dict[tuple[Formula, bytes, str, bool], np.ndarray] = {}


def oracle(phi: Formula, x: np.ndarray, end: str, boolean: bool = False) -> np.ndarray:
    x = x.astype(np.float64)
    key = (phi, hashlib.sha256(x.tobytes()).digest(), end, boolean)
    if key not in _ANSWERS:
        columns = {name: x[:, i] for i, name in enumerate(NAMES)}
        _ANSWERS[key] = (satisfaction_trace if boolean else robustness_trace)(phi, columns, end)
    return _ANSWERS[key]


def known_times(phi: Formula, points: int) -> range:
    """Those of a strict trace at which phi has a value."""
    return range(phi.history, points - phi.horizon)


class EngineContract(ABC):
    dtype: type = np.float32
    formulae = 300  # per check
    lengths = (1, 2, 3, 5, 17, 33, 64, 100)

    @abstractmethod
    def evaluate(
        self,
        formulae: list[Formula],
        traces: np.ndarray,
        trace: bool,
        end: str,
        boolean: bool = False,
    ) -> np.ndarray:
        """Robustness, or with boolean satisfaction, (B, N) at time 0 or with trace (B, N, P)."""

    # -- agreement with the oracle -----------------------------------------------------------

    def check(self, formulae: list[Formula], x: np.ndarray, end: str) -> int:
        """Compare traces and time 0 with the oracle's; returns how many formulae were checked."""
        points = x.shape[2]
        formulae = [f for f in formulae if end == "hold" or f.horizon < points]
        if not formulae:
            return 0
        traces = self.evaluate(formulae, x, True, end)
        starts = self.evaluate(formulae, x, False, end)
        for phi, got, start in zip(formulae, traces, starts, strict=True):
            want = oracle(phi, x, end)
            largest = max(1.0, np.abs(phi.thresholds).max(), np.abs(x).max())
            finite = np.isfinite(want)
            assert got.shape == want.shape
            assert np.array_equal(
                np.where(finite, 0, got), np.where(finite, 0, want), equal_nan=True
            )
            assert np.abs(got[finite] - want[finite]).max(initial=0) <= 1e-6 * largest, str(phi)
            assert np.array_equal(start, got[:, 0]), str(phi)
        return len(formulae)

    def check_mixtures(self, formulae: list[Formula], x: np.ndarray, end: str) -> int:
        """Compare robustness and satisfaction, at all times and at time 0, with the oracle's by ==;
        returns how many formulae were checked."""
        if end == "strict":
            formulae = [f for f in formulae if known_times(f, x.shape[2])]
        at_start = [f for f in formulae if end == "hold" or 0 in known_times(f, x.shape[2])]
        for boolean in (False, True):
            for chosen, trace in ((formulae, True), (at_start, False)):
                found = self.evaluate(chosen, x, trace, end, boolean) if chosen else ()
                for phi, got in zip(chosen, found, strict=True):
                    want = oracle(phi, x, end, boolean)
                    want = want if trace else want[:, 0]
                    assert np.array_equal(got, want, equal_nan=not boolean), phi.rows()
        return len(formulae)

    @pytest.mark.parametrize("end", ["hold", "strict"])
    def test_equals_the_oracle(self, end: str) -> None:
        rng = np.random.default_rng(1)
        checked = 0
        for points in self.lengths:
            each = self.formulae // len(self.lengths)
            texts = [random_text(rng, int(rng.integers(1, 6))) for _ in range(each)]
            checked += self.check(
                [rv.parse(t) for t in texts], random_traces(rng, 3, points, self.dtype), end
            )
        assert checked >= (self.formulae // 10 if end == "strict" else len(self.lengths))

    def test_equals_the_oracle_on_long_traces(self) -> None:
        rng = np.random.default_rng(2)
        texts = [random_text(rng, 3, bound=400) for _ in range(4)]
        texts += ["( x_0 >= 0 until[100,700] x_1 <= 0 )", "always eventually[300,2000] x_2 > 0"]
        x = random_traces(rng, 2, 1000, self.dtype)
        assert self.check([rv.parse(t) for t in texts], x, "hold") == len(texts)

    @pytest.mark.parametrize("end", ["hold", "strict"])
    def test_lagged_samples_without_past_operators_equal_the_oracle(self, end: str) -> None:
        """Rows of an until that its operands do not reach are held, also under a negation."""
        rng = np.random.default_rng(12)

        def atom() -> str:
            lag = str(rng.choice(["next x_0", "next next x_1", "prev x_0", "x_1"]))
            return f"({lag}) {rng.choice(['>', '<', '>=', '<='])} {rng.integers(-2, 3)}"

        def window() -> str:
            near = int(rng.integers(0, 3))
            return str(
                rng.choice(["", f"[{near},{near + int(rng.integers(0, 3))}]", f"[{near},inf]"])
            )

        def until() -> str:
            return f"( {atom()} until{window()} {atom()} )"

        texts = [
            text
            for _ in range(8)
            for text in (
                f"{until()} -> always{window()} {atom()}",
                f"always( {until()} -> eventually{window()} {atom()} )",
                f"not {until()} until{window()} not {until()}",
                f"{until()} weak_until{window()} ( {until()} -> always{window()} {until()} )",
            )
        ]
        for points in (3, 7):
            x = exact_traces(rng, 3, points, self.dtype)
            for text in texts:  # one at a time, as others would leave room in the table
                self.check_mixtures([rv.parse(text)], x, end)

    @pytest.mark.parametrize("end", ["hold", "strict"])
    def test_past_and_future_equal_the_oracle(self, end: str) -> None:
        rng = np.random.default_rng(7)
        checked = 0
        for points in self.lengths:
            depth, bound = (4, 12) if points > 5 else (3, 4)
            each = max(6, self.formulae // (10 * len(self.lengths)))
            formulae = [
                random_mixture(rng, int(rng.integers(1, depth + 1)), bound) for _ in range(each)
            ]
            checked += self.check_mixtures(formulae, exact_traces(rng, 3, points, self.dtype), end)
        assert checked >= (20 if end == "strict" else 6 * len(self.lengths))

    def test_past_and_future_equal_the_oracle_on_long_traces(self) -> None:
        texts = [
            "( x_0 >= 0 since[100,300] x_1 <= 0 )", "historically once[300,2000] x_2 > 0",
            "always[20,50] ( x_0 > 0 or once[100,400] x_1 > 0 )",
            "( x_0 >= 0 since[0,40] eventually[0,30] x_1 <= 0 )",
        ]  # fmt: skip
        x = exact_traces(np.random.default_rng(8), 2, 1000, self.dtype)
        for end in ("hold", "strict"):
            assert self.check_mixtures([rv.parse(text) for text in texts], x, end) >= 3

    def test_past_windows_far_beyond_the_ends(self) -> None:
        texts = [
            "historically[10,20] x_0 > 0", "once[7,1000000] x_0 > 0", "once[1000000,inf] x_1 > 0",
            "( x_0 > 0 since[9,30] x_1 > 0 )", "( x_0 > 0 since[5,inf] x_1 > 0 )",
            "always[40,50] historically[40,60] x_0 > 0", "once[30,30] eventually[0,45] x_0 > 0",
            "once eventually[3,9] x_0 > 0", "always once[9,40] ( x_0 > 0 until[9,12] x_1 > 0 )",
            "eventually[200,inf] ( x_0 > 0 since[6,8] always[50,60] x_2 > 0 )",
            "prev next prev prev next next x_0 > 0", "( prev x_0 > 0 ) until next x_1 > 0",
            "once[50,50] x_0 > 0", "once eventually[50,50] x_0 > 0", "eventually once[50,50] x_0 > 0",
        ]  # fmt: skip
        x = exact_traces(np.random.default_rng(9), 5, 7, self.dtype)
        assert self.check_mixtures([rv.parse(t) for t in texts], x, "hold") == len(texts)

    def test_windows_far_beyond_the_end(self) -> None:
        texts = [
            "always[10,20] x_0 > 0", "eventually[7,1000000000000] x_0 > 0",
            "always[999999999999,inf] x_1 > 0",
            "( x_0 > 0 until[9,30] x_1 > 0 )", "( x_0 > 0 until[5,inf] x_1 > 0 )",
            "next next next next next next next next x_0 > 0",
            "eventually[3,4] ( x_0 > 0 until[6,8] always[50,60] x_2 > 0 )",
        ]  # fmt: skip
        x = random_traces(np.random.default_rng(3), 5, 7, self.dtype)
        assert self.check([rv.parse(t) for t in texts], x, "hold") == len(texts)

    def test_constants(self) -> None:
        texts = [
            "true",
            "false",
            "x_0 > 0 until true",
            "true <-> x_0 > 1",
            "always ( x_0 > 0 or false )",
        ]
        x = random_traces(np.random.default_rng(4), 3, 5, self.dtype)
        assert self.check([rv.parse(t) for t in texts], x, "hold") == len(texts)

    def test_golden_traces(self) -> None:
        x = np.array(GOLDEN["signals"], self.dtype)
        got = self.evaluate([rv.parse(t) for t in GOLDEN["formulae"]], x, True, "hold")
        assert np.abs(got - np.array(GOLDEN["trace"])).max() <= 1e-6 * max(1, np.abs(x).max())

    def test_a_batch_is_its_members(self) -> None:
        """Nothing depends on what else is evaluated, nor on how many traces there are."""
        rng = np.random.default_rng(5)
        formulae = [rv.parse(random_text(rng, 4)) for _ in range(40)]
        x = random_traces(rng, 150, 30, self.dtype)
        whole = self.evaluate(formulae, x, False, "hold")
        for b in (0, 7, 39):
            assert np.array_equal(self.evaluate([formulae[b]], x, False, "hold")[0], whole[b])
        for n in (0, 63, 64, 149):
            assert np.array_equal(
                self.evaluate(formulae, x[n : n + 1], False, "hold")[:, 0], whole[:, n]
            )

    # -- laws, with == -------------------------------------------------------------------------

    LAWS = (
        ("not not {a}", "{a}"),
        ("not ( {a} and {b} )", "( not {a} ) or ( not {b} )"),
        ("not ( {a} or {b} )", "( not {a} ) and ( not {b} )"),
        ("not always{i} {a}", "eventually{i} not {a}"),
        ("not eventually{i} {a}", "always{i} not {a}"),
        ("{a} -> {b}", "( not {a} ) or {b}"),
        ("{a} <-> {b}", "( {a} -> {b} ) and ( {b} -> {a} )"),
        ("{a} and ( {b} or {c} )", "( {a} and {b} ) or ( {a} and {c} )"),
        ("{a} or ( {a} and {b} )", "{a}"),
        ("always{i} ( {a} and {b} )", "always{i} {a} and always{i} {b}"),
        ("eventually{i} ( {a} or {b} )", "eventually{i} {a} or eventually{i} {b}"),
        ("always[3,9] {a}", "always[3,5] {a} and always[5,9] {a}"),
        ("eventually[3,inf] {a}", "eventually[3,8] {a} or eventually[9,inf] {a}"),
        ("always[2,5] always[1,7] {a}", "always[3,12] {a}"),
        ("eventually[2,5] eventually[4,inf] {a}", "eventually[6,inf] {a}"),
        ("next {a}", "always[1,1] {a}"),
        ("always[0,0] {a}", "{a}"),
        ("true until{i} {a}", "eventually{i} {a}"),
        ("{a} until[0,0] {b}", "{a} and {b}"),
        ("{a} until[0,6] {a}", "{a}"),
        ("{a} until[4,inf] {b}", "always[0,4] ( {a} until {b} )"),
        ("{a} until[3,9] {b}", "( eventually[3,9] {b} ) and ( {a} until[3,inf] {b} )"),
        ("{a} until{i} {b}", "{a} until{i} ( {a} and {b} )"),
        ("{a} until{i} ( {b} or {c} )", "( {a} until{i} {b} ) or ( {a} until{i} {c} )"),
        ("( {a} and {b} ) until{i} {c}", "( {a} until{i} {c} ) and ( {b} until{i} {c} )"),
        ("{a} until {b}", "{a} and ( {b} or next ( {a} until {b} ) )"),
        ("not once{i} {a}", "historically{i} not {a}"),
        ("not historically{i} {a}", "once{i} not {a}"),
        ("once{i} ( {a} or {b} )", "once{i} {a} or once{i} {b}"),
        ("once[3,inf] {a}", "once[3,8] {a} or once[9,inf] {a}"),
        ("historically[2,5] historically[1,7] {a}", "historically[3,12] {a}"),
        ("prev {a}", "historically[1,1] {a}"),
        ("next prev {a}", "{a}"),
        ("prev next {a}", "{a}"),
        ("rise {a}", "{a} and not prev {a}"),
        ("fall {a}", "rise ( not {a} )"),
        ("once[4,4] eventually[1,9] {a}", "once[0,3] {a} or eventually[0,5] {a}"),
        ("always[4,4] historically[1,9] {a}", "historically[0,5] {a} and always[0,3] {a}"),
        ("once eventually {a}", "eventually once {a}"),
        ("eventually once {a}", "once {a} or eventually {a}"),
        ("true since{i} {a}", "once{i} {a}"),
        ("{a} since[0,0] {b}", "{a} and {b}"),
        ("{a} since[4,inf] {b}", "historically[0,4] ( {a} since {b} )"),
        ("{a} since[3,9] {b}", "( once[3,9] {b} ) and ( {a} since[3,inf] {b} )"),
        ("{a} since{i} ( {b} or {c} )", "( {a} since{i} {b} ) or ( {a} since{i} {c} )"),
        ("{a} since {b}", "{a} and ( {b} or prev ( {a} since {b} ) )"),
        ("{a} since[0,9] {b}", "{a} and ( {b} or prev ( {a} since[0,8] {b} ) )"),
        ("{a} since[3,9] {b}", "{a} and prev ( {a} since[2,8] {b} )"),
    )

    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law[0])
    def test_law(self, law: tuple[str, str]) -> None:
        rng = np.random.default_rng(6)
        sides: tuple[list[Formula], list[Formula]] = ([], [])
        for past in (False, True) * 6:
            lo = rng.integers(0, 8)
            fill = {k: f"( {random_text(rng, int(rng.integers(0, 4)), past=past)} )" for k in "abc"}
            fill["i"] = ("", f"[{lo},inf]", f"[{lo},{lo + rng.integers(0, 9)}]")[rng.integers(3)]
            for side, template in zip(sides, law, strict=True):
                side.append(rv.parse(template.format(**fill)))
        x = random_traces(rng, 5, 24, self.dtype)
        left, right = (self.evaluate(side, x, True, "hold") for side in sides)
        assert np.array_equal(left, right)

    # -- laws of time, with == ---------------------------------------------------------------

    def mixtures(self, n: int, seed: int) -> list[Formula]:
        rng = np.random.default_rng(seed)
        return [random_mixture(rng, int(rng.integers(1, 5)), bound=7) for _ in range(n)]

    def test_held_samples_may_be_stored(self) -> None:
        """Padding a trace by its own end samples changes nothing."""
        formulae = self.mixtures(40, seed=10)
        for before, points, after in ((0, 9, 4), (5, 9, 0), (20, 1, 20), (13, 24, 7)):
            x = exact_traces(np.random.default_rng(points), 3, points, self.dtype)
            padded = np.pad(x, ((0, 0), (0, 0), (before, after)), "edge")
            whole = self.evaluate(formulae, padded, True, "hold")
            part = self.evaluate(formulae, x, True, "hold")
            assert np.array_equal(whole[:, :, before : before + points], part)

    @pytest.mark.parametrize("end", ["hold", "strict"])
    def test_mirror_symmetry(self, end: str) -> None:
        """Looking back on a trace is looking ahead on the reversed trace."""
        x = exact_traces(np.random.default_rng(12), 3, 40, self.dtype)
        formulae = [f for f in self.mixtures(60, seed=11) if end == "hold" or known_times(f, 40)]
        assert len(formulae) >= 30
        back = self.evaluate([mirrored(f) for f in formulae], x[:, :, ::-1].copy(), True, end)
        ahead = self.evaluate(formulae, x, True, end)
        assert np.array_equal(back[:, :, ::-1], ahead, equal_nan=True)

    def test_strict_is_hold_where_it_has_a_value(self) -> None:
        """Without unbounded windows, which end with a strict trace."""
        formulae = [
            Formula.from_rows([(op, lo, lo + 3 if hi == ops.UNBOUNDED else hi, channel, c)
                               for op, lo, hi, channel, c in phi.rows()])
            for phi in self.mixtures(60, seed=13)
        ]  # fmt: skip
        formulae = [f for f in formulae if known_times(f, 50)]
        assert len(formulae) >= 40
        x = exact_traces(np.random.default_rng(14), 3, 50, self.dtype)
        strict = self.evaluate(formulae, x, True, "strict")
        held = self.evaluate(formulae, x, True, "hold")
        for phi, got, want in zip(formulae, strict, held, strict=True):
            known = known_times(phi, 50)
            assert np.array_equal(got[:, known], want[:, known])
            assert np.isnan(np.delete(got, known, axis=1)).all()

    def test_a_lagged_term_is_a_shifted_atom(self) -> None:
        x = exact_traces(np.random.default_rng(15), 3, 12, self.dtype)
        for steps in (-20, -2, 1, 3, 20):
            ahead = "eventually" if steps < 0 else "once"
            around = (f"{ahead}[{abs(steps)},{abs(steps)}]", "always[2,4]", "historically[0,3]")
            shifted = rv.parse(f"{around[1]} {around[2]} {around[0]} x_1 >= 0.25")
            lagged = Formula.from_rows([
                (ops.GE, 0, 0, ((Shifted("x_1", steps), 1.0),), 0.25),
                ops.node(ops.HISTORICALLY, 0, 3), ops.node(ops.ALWAYS, 2, 4),
            ])  # fmt: skip
            left, right = self.evaluate([lagged, shifted], x, True, "hold")
            assert np.array_equal(left, right)

    def test_nothing_rises_or_falls_at_the_first_sample(self) -> None:
        x = exact_traces(np.random.default_rng(16), 40, 5, self.dtype)
        formulae = [rv.parse(f"{op} ( x_0 {sign} 0 )") for op in ("rise", "fall") for sign in "<>"]
        assert not self.evaluate(formulae, x, False, "hold", True).any()
        assert self.evaluate(formulae, x, True, "hold", True).any()
