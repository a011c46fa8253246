"""What every engine must do: agree with the oracle on random formulae, and obey the laws of STL.

An engine is a function (formulae, traces, trace, end) -> (B, N) or (B, N, P). Its test class
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
from rhovec.formula.core import Formula
from rhovec.robustness.reference import robustness_trace

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden.json").read_text())
NAMES = ("x_0", "x_1", "x_2")


def random_text(rng: np.random.Generator, depth: int, bound: int = 12) -> str:
    """Any construct of the language, nested to `depth`."""
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
        return f"( {random_text(rng, depth - 1, bound)} )"

    def interval() -> str:
        kind = rng.random()
        lo = rng.integers(0, bound)
        if kind < 0.15:
            return ""
        return f"[{lo},inf]" if kind < 0.3 else f"[{lo},{lo + rng.integers(0, bound + 3)}]"

    kind = rng.integers(13)
    if kind < 4:
        return ("not", "next", f"always{interval()}", f"eventually{interval()}")[kind] + inner()
    if kind < 8:
        return f"{inner()} {('and', 'or', '->', '<->')[kind - 4]} {inner()}"
    name = ("until", "until", "until", "release", "weak_until")[kind - 8]
    return f"{inner()} {name}{interval()} {inner()}"


def random_traces(rng: np.random.Generator, n: int, points: int, dtype: type) -> np.ndarray:
    """(n, 3, points): random walks, with ties and plateaus in some."""
    x = rng.normal(size=(n, 3, points)).cumsum(-1) / 3
    x = np.where(rng.random((n, 1, 1)) < 0.3, np.round(x), x)
    return x.astype(np.float32).astype(dtype)  # the same numbers in either precision


_ANSWERS: dict[tuple[Formula, bytes, str], np.ndarray] = {}  # engines are asked the same questions


def oracle(phi: Formula, x: np.ndarray, end: str) -> np.ndarray:
    x = x.astype(np.float64)
    key = (phi, hashlib.sha256(x.tobytes()).digest(), end)
    if key not in _ANSWERS:
        columns = {name: x[:, i] for i, name in enumerate(NAMES)}
        _ANSWERS[key] = robustness_trace(phi, columns, end)
    return _ANSWERS[key]


class EngineContract(ABC):
    dtype: type = np.float32
    formulae = 300  # per check
    lengths = (1, 2, 3, 5, 17, 33, 64, 100)

    @abstractmethod
    def evaluate(
        self, formulae: list[Formula], traces: np.ndarray, trace: bool, end: str
    ) -> np.ndarray: ...

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
    )

    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law[0])
    def test_law(self, law: tuple[str, str]) -> None:
        rng = np.random.default_rng(6)
        sides: tuple[list[Formula], list[Formula]] = ([], [])
        for _ in range(12):
            lo = rng.integers(0, 8)
            fill = {k: f"( {random_text(rng, int(rng.integers(0, 4)))} )" for k in "abc"}
            fill["i"] = ("", f"[{lo},inf]", f"[{lo},{lo + rng.integers(0, 9)}]")[rng.integers(3)]
            for side, template in zip(sides, law, strict=True):
                side.append(rv.parse(template.format(**fill)))
        x = random_traces(rng, 5, 24, self.dtype)
        left, right = (self.evaluate(side, x, True, "hold") for side in sides)
        assert np.array_equal(left, right)
