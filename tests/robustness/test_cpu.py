"""The CPU engine: the contract in both precisions, its Boolean face, its inputs, and its mutants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.formula.operators import Row
from rhovec.formula.programs import Programs
from rhovec.robustness import reference
from rhovec.robustness.lowering import lower

from .contract import NAMES, EngineContract, random_text, random_traces


class TestFloat32(EngineContract):
    formulae = 2400

    def evaluate(
        self,
        formulae: list[Formula],
        traces: np.ndarray,
        trace: bool,
        end: str,
        boolean: bool = False,
    ) -> np.ndarray:
        out = (rv.satisfaction if boolean else rv.robustness)(
            formulae, traces, trace=trace, end=end
        )
        assert out.dtype == (bool if boolean else self.dtype)
        return out


class TestFloat64(TestFloat32):
    dtype = np.float64
    formulae = 600


class TestSimplified(TestFloat32):
    """The simplifier preserves robustness, so simplified formulae meet the same contract."""

    formulae = 600

    def evaluate(
        self,
        formulae: list[Formula],
        traces: np.ndarray,
        trace: bool,
        end: str,
        boolean: bool = False,
    ) -> np.ndarray:
        if end == "hold":
            formulae = [rv.simplify(f) for f in formulae]
        return super().evaluate(formulae, traces, trace, end, boolean)


# -- the contract can fail ---------------------------------------------------------------------


Change = Callable[[Row, list[list[Row]]], list[Row]]  # of an operator and the rows of its operands


def changed(phi: Formula, change: Change) -> Formula:
    stack: list[list[Row]] = []
    for row in phi.rows():
        operands = [stack.pop() for _ in range(ops.arity(row[0]))][::-1]
        stack.append(change(row, operands))
    return Formula.from_rows(stack[0])


def unchanged(row: Row, operands: list[list[Row]]) -> list[Row]:
    return [*(r for rows in operands for r in rows), row]


def without_left_operand(row: Row, operands: list[list[Row]]) -> list[Row]:
    """`a until b` becomes `eventually b`, `a since b` becomes `once b`."""
    window = {ops.UNTIL: ops.EVENTUALLY, ops.SINCE: ops.ONCE}.get(row[0])
    return unchanged(row, operands) if window is None else [*operands[1], (window, *row[1:])]


def half_open(row: Row, operands: list[list[Row]]) -> list[Row]:
    """[a,b] loses its far end."""
    op, lo, hi, *rest = row
    return unchanged((op, lo, hi - (hi > lo), *rest), operands)


def left_operand_late(row: Row, operands: list[list[Row]]) -> list[Row]:
    """`a since[l,h] b` asks for a only after b, as some other tools do."""
    op, lo, hi, *rest = row
    if op != ops.SINCE or lo == 0:
        return unchanged(row, operands)
    shifted = [*operands[1], ops.node(ops.PREV)]
    return unchanged((op, lo - 1, hi - (hi > 0), *rest), [operands[0], shifted])


def from_now_on(row: Row, operands: list[list[Row]]) -> list[Row]:
    """`a since[l,h] b` becomes `a since[0,h] b`."""
    return unchanged((row[0], 0, *row[2:]) if row[0] == ops.SINCE else row, operands)


def forwards(row: Row, operands: list[list[Row]]) -> list[Row]:
    """Since becomes until."""
    return unchanged((ops.UNTIL, *row[1:]) if row[0] == ops.SINCE else row, operands)


class Mutant(EngineContract):
    """An engine that evaluates changed formulae."""

    def __init__(self, change: Change):
        self.change = change

    def evaluate(
        self,
        formulae: list[Formula],
        traces: np.ndarray,
        trace: bool,
        end: str,
        boolean: bool = False,
    ) -> np.ndarray:
        value = rv.satisfaction if boolean else rv.robustness
        return value([changed(f, self.change) for f in formulae], traces, trace=trace, end=end)


@pytest.mark.parametrize("change", [without_left_operand, half_open])
def test_contract_finds_changed_semantics(change: Change) -> None:
    with pytest.raises(AssertionError):
        Mutant(change).test_golden_traces()
    with pytest.raises(AssertionError):
        Mutant(change).test_equals_the_oracle("hold")


def test_an_unchanged_engine_keeps_the_contract() -> None:
    Mutant(unchanged).test_past_and_future_equal_the_oracle("hold")


@pytest.mark.parametrize(
    "change", [without_left_operand, half_open, left_operand_late, from_now_on, forwards]
)
def test_contract_finds_changed_past(change: Change) -> None:
    with pytest.raises(AssertionError):
        Mutant(change).test_past_and_future_equal_the_oracle("hold")


def clipped_windows(
    child: reference.Values, lo: int, hi: int, past: bool, held: bool
) -> dict[int, range]:
    """A window that starts past the end sees what is left of the trace, not the held sample."""
    length = len(child)
    return {
        t: range(
            t + lo if t + lo < length else t,
            length if hi == ops.UNBOUNDED else min(t + hi + 1, length),
        )
        for t in range(length)
    }


def not_extended(phi: Formula) -> tuple[int, int]:
    """Sub-formulae have values at the times of the trace only, and windows are clipped there."""
    return 0, 0


@pytest.mark.parametrize(
    ("name", "mutant", "check"),
    [
        ("_windows", clipped_windows, "test_golden_traces"),
        ("_windows", clipped_windows, "test_windows_far_beyond_the_end"),
        ("_extension", not_extended, "test_past_windows_far_beyond_the_ends"),
        ("_extension", not_extended, "test_held_samples_may_be_stored"),
    ],
)
def test_contract_finds_clipped_windows(
    name: str, mutant: Callable[..., Any], check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clipped(EngineContract):
        def evaluate(
            self,
            formulae: list[Formula],
            traces: np.ndarray,
            trace: bool,
            end: str,
            boolean: bool = False,
        ) -> np.ndarray:
            columns = {name: traces[:, i] for i, name in enumerate(NAMES)}
            value = reference.satisfaction_trace if boolean else reference.robustness_trace
            with monkeypatch.context() as patch:
                patch.setattr(reference, name, mutant)
                found = np.array([value(f, columns, end) for f in formulae])
            return found if trace else found[:, :, 0]

    with pytest.raises(AssertionError):
        getattr(Clipped(), check)()


# -- Boolean satisfaction ------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["hold", "strict"])
def test_satisfaction_equals_the_oracle(end: str) -> None:
    rng = np.random.default_rng(7)
    for points in (1, 4, 20, 50):
        formulae = [rv.parse(random_text(rng, int(rng.integers(1, 6)))) for _ in range(150)]
        formulae = [f for f in formulae if end == "hold" or f.horizon < points]
        x = np.round(random_traces(rng, 4, points, np.float64), 1)  # so that x == c happens
        formulae = [half_step(f) for f in formulae]
        holds = rv.satisfaction(formulae, x, trace=True, end=end)
        rho = rv.robustness(formulae, x, trace=True, end=end)
        assert holds.dtype == bool
        columns = {name: x[:, i] for i, name in enumerate(NAMES)}
        for phi, got, value in zip(formulae, holds, rho, strict=True):
            assert np.array_equal(got, reference.satisfaction_trace(phi, columns, end)), str(phi)
            decided = np.isfinite(value) & (value != 0)
            assert np.array_equal(got[decided], value[decided] > 0), str(phi)


def half_step(phi: Formula) -> Formula:
    """Thresholds rounded to one decimal, so that they meet rounded traces exactly."""
    return Formula.from_rows([(*row[:4], round(row[4], 1)) for row in phi.rows()])


def test_strict_and_non_strict_comparisons_differ_in_satisfaction_only() -> None:
    x = np.zeros((1, 1, 3))
    texts = ["x_0 >= 0", "x_0 > 0", "x_0 <= 0", "x_0 < 0", "not x_0 >= 0", "not x_0 > 0"]
    assert rv.satisfaction(texts, x)[:, 0].tolist() == [True, False, True, False, False, True]
    assert (rv.robustness(texts, x) == 0).all()


# -- what goes in and out --------------------------------------------------------------------------


def test_shapes_and_kinds() -> None:
    x = random_traces(np.random.default_rng(8), 5, 9, np.float32)
    assert rv.robustness("x_0 > 0", x).shape == (5,)
    assert rv.robustness(["x_0 > 0"], x).shape == (1, 5)
    assert rv.robustness(rv.parse("x_0 > 0"), x, trace=True).shape == (5, 9)
    assert rv.robustness(["x_0 > 0", "x_1 > 0"], x, trace=True).shape == (2, 5, 9)
    assert rv.robustness("x_0 > 0", x.astype(np.int64)).dtype == np.float64
    assert rv.robustness("x_0 > 0", x.astype(np.float16)).dtype == np.float32
    assert rv.robustness("x_0 > 0", x.tolist()).dtype == np.float64
    assert np.array_equal(rv.robustness("x_0 > 0", x[:, ::-1]), rv.robustness("x_2 > 0", x))


def test_named_variables_dicts_and_linear_channels() -> None:
    x = random_traces(np.random.default_rng(9), 5, 9, np.float64)
    named = rv.robustness("always speed - 2 * rpm >= 0.5", x, variables=["speed", "rpm", "gear"])
    assert np.array_equal(named, (x[:, 0] - 2 * x[:, 1] - 0.5).min(-1))
    columns = {"rpm": x[:, 1], "speed": x[:, 0], "unused": "not even numbers"}
    assert np.array_equal(rv.robustness("always speed - 2 * rpm >= 0.5", columns), named)


@pytest.mark.parametrize("end", ["hold", "strict"])
def test_traces_of_different_lengths(end: str) -> None:
    rng = np.random.default_rng(10)
    traces = [rng.normal(size=(3, n)) for n in (30, 7, 18, 7)]
    texts = ["always[0,4] x_0 > 0", "x_0 > 0 until x_1 > 0", "eventually[2,inf] x_2 > 1",
             "always once x_0 > 1", "eventually[0,3] prev ( x_0 > 0 since x_1 > 0 )"]  # fmt: skip
    start = rv.robustness(texts[: 4 if end == "strict" else 5], traces, end=end)
    whole = rv.robustness(texts, traces, end=end, trace=True)
    for i, x in enumerate(traces):
        at_start = rv.robustness(texts[: len(start)], x[None], end=end)
        assert np.array_equal(start[:, i], at_start[:, 0])
        expected = rv.robustness(texts, x[None], end=end, trace=True)[:, 0]
        assert np.array_equal(whole[i], expected, equal_nan=True)
    assert rv.robustness(texts[0], traces, trace=True)[1].shape == (7,)


def test_thresholds_override_constants_in_print_order() -> None:
    x = random_traces(np.random.default_rng(11), 4, 12, np.float64)
    other = rv.robustness(["x_0 > 9 until[1,3] x_1 < 9", "x_2 >= 9"], x, thresholds=[0.25, -0.5, 2])
    assert np.array_equal(other, rv.robustness(["x_0 > 0.25 until[1,3] x_1 < -0.5", "x_2 >= 2"], x))


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    x = random_traces(np.random.default_rng(12), 4, 12, np.float32)
    out = rv.robustness(["x_0 > 0", "x_1 > 0"], torch.from_numpy(x), trace=True)
    assert isinstance(out, torch.Tensor)
    assert np.array_equal(out.numpy(), rv.robustness(["x_0 > 0", "x_1 > 0"], x, trace=True))
    assert rv.satisfaction("x_0 > 0", torch.from_numpy(x)).dtype == torch.bool


GOOD = np.zeros((2, 3, 10))
NAN, INF = GOOD.copy(), GOOD.copy()
NAN[1, 2, 3] = np.nan
INF[0, 0, 9] = -np.inf


@pytest.mark.parametrize(
    ("error", "message", "formulae", "traces", "options"),
    [
        (rv.errors.TraceError, "x_2 of trace 1 is nan at point 3", "x_0 > 0", NAN, {}),
        (rv.errors.TraceError, "x_0 of trace 0 is -inf at point 9", "x_0 > 0", INF, {}),
        (rv.errors.TraceError, "uses x_3, but the traces have x_0, x_1, x_2", "x_3 > 0", GOOD, {}),
        (rv.errors.TraceError, "uses speed", "speed > 0", {"rpm": GOOD[0]}, {}),
        (rv.errors.TraceError, r"variables, points\), not \(3, 10\)", "x_0 > 0", GOOD[0], {}),
        (rv.errors.TraceError, "empty", "x_0 > 0", GOOD[:0], {}),
        (rv.errors.TraceError, "empty", "x_0 > 0", GOOD[:, :, :0], {}),
        (rv.errors.TraceError, "the list is empty", "x_0 > 0", [], {}),
        (rv.errors.TraceError, "the dict is empty", "x_0 > 0", {}, {}),
        (rv.errors.TraceError, "real numbers", "x_0 > 0", np.full((1, 1, 1), "a"), {}),
        (rv.errors.TraceError, "real numbers", "x_0 > 0", GOOD.astype(complex), {}),
        (rv.errors.TraceError, "names 2", "x_0 > 0", GOOD, {"variables": ["x_0", "x_1"]}),
        (rv.errors.TraceError, "twice", "x_0 > 0", GOOD, {"variables": ["x_0", "x_0", "y"]}),
        (rv.errors.TraceError, "has shape", "x_0 > x_1", {"x_0": GOOD[0], "x_1": GOOD[0, :1]}, {}),
        (rv.errors.TraceError, "trace 1 has shape", "x_0 > 0", [GOOD[0], GOOD[0, :2]], {}),
        (rv.errors.FormulaError, "the list is empty", [], GOOD, {}),
        (rv.errors.FormulaError, "item 1 is a int", ["x_0 > 0", 3], GOOD, {}),
        (rv.errors.FormulaError, r"shape \(1,\)", "x_0 > 0", GOOD, {"thresholds": [1, 2]}),
        (rv.errors.FormulaError, "finite", "x_0 > 0", GOOD, {"thresholds": [np.nan]}),
        (rv.errors.FormulaError, "float64", "x_0 > 1e200", GOOD.astype(np.float32), {}),
        (rv.errors.HorizonError, "looks 10 steps ahead", "F[0,10] x_0 > 0", GOOD, {"end": "strict"}),
        (rv.errors.HorizonError, "looks 3 steps back, but nothing .*trace=True", "O[0,3] x_0 > 0", GOOD,
         {"end": "strict"}),
        (rv.errors.HorizonError, "looks 6 steps back and 4 steps ahead, but a trace has only 10",
         "O[0,6] x_0 > 0 and F[2,4] x_0 > 0", GOOD, {"end": "strict", "trace": True}),
        (rv.errors.HorizonError, "more than 1000000 steps beyond the ends .* shorter bounds",
         "once F[0,1000001] x_0 > 0", GOOD, {}),
        (rv.errors.RhovecError, '"hold" or "strict"', "x_0 > 0", GOOD, {"end": "clip"}),
        (rv.errors.RhovecError, "torch traces", "x_0 > 0", GOOD, {"temperature": 0.1}),
    ],
)  # fmt: skip
def test_wrong_input_is_named(error, message, formulae, traces, options) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        rv.robustness(formulae, traces, **options)


class Frame:
    """What pandas and polars have in common."""

    columns = ("speed", "rpm")

    def to_numpy(self) -> np.ndarray:
        return np.array([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])

    def __array__(self, *_: object, **options: object) -> np.ndarray:
        return self.to_numpy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


def test_data_frames_are_refused() -> None:
    """A list of them was read with samples as channels."""
    frame = Frame()
    says = r"a data frame has a row per sample; give frame.to_numpy\(\).T for each trace"
    for traces in (frame, [frame, frame], [frame.to_numpy().T, frame]):
        for read in (
            lambda given: rv.robustness("x_0 > 3", given),
            rv.Space.fit,
            rv.TraceMeasure,
            lambda given: rv.mine(given, ["a", "b"]),
        ):
            with pytest.raises(rv.errors.TraceError, match=says):
                read(traces)
        with pytest.raises(rv.errors.SchemaError, match="must be an array"):
            rv.Schema.fit("x_0 > 3", traces)
    arrays = [frame.to_numpy().T] * 2
    assert rv.robustness("rpm > 3", arrays, variables=["speed", "rpm"]).tolist() == [1.0, 1.0]
    for read in (rv.Space.fit, rv.TraceMeasure):
        with pytest.raises(
            rv.errors.TraceError, match="trace 0: a dict of one trace; give one dict"
        ):
            read([{"speed": [1.0, 2.0]}])


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opening", "levels"),
    [("not ", 100_000), ("always[0,1] ", 100_000), ("x_0 > 1 and not ", 20_000),
     ("x_1 < 2 until[1,2] ", 20_000)],
)  # fmt: skip
def test_deep_formulae(opening: str, levels: int) -> None:
    text = "".join(f"{opening}( " for _ in range(levels)) + "x_0 > 0" + " )" * levels
    phi = rv.parse(text)
    again = rv.parse(str(phi))
    assert phi == again
    assert hash(phi) == hash(again)
    assert phi.depth >= levels
    x = np.array([[[0.5, 1.5, -1.0, 3.0], [1.0, 5.0, 0.0, 0.5]]])
    simple = rv.simplify(phi)
    assert rv.robustness(phi, x) == rv.robustness(simple, x)
    assert np.array_equal(rv.satisfaction(phi, x), rv.robustness(phi, x) > 0)


def test_balanced_formulae_need_little_room() -> None:
    """The arena grows with the logarithm of the size, whichever side is the deeper one."""
    text = "x_0 > 0"
    for i in range(10):
        text = f"( {text} <-> {text} )" if i % 2 else f"( always[0,1] {text} or {text} )"
    (rows,) = lower(Programs.pack([rv.parse(text)]), 4, trace=True, strict=False).arena
    assert rows <= 4 * 14
    chain = "x_0 > 0" + " and ( x_1 > 0" * 5000 + " )" * 5000
    (rows,) = lower(Programs.pack([rv.parse(chain)]), 4, trace=True, strict=False).arena
    assert rows <= 8


def test_time_zero_reads_only_the_prefix_it_needs() -> None:
    code = lower(
        Programs.pack([rv.parse("F[2,5] G[1,3] x_0 > 0")]), 1000, trace=False, strict=False
    )
    assert code.times.tolist() == list(range(9))
    assert int(code.arena[0]) <= 7


def test_memory_beyond_the_output_does_not_grow() -> None:
    """Eight times the formulae and traces: the peak grows by little more than the output."""
    script = """
import resource, sys
import numpy as np, rhovec as rv
rv.robustness(rv.random_formulae(8, 0), np.zeros((8, 3, 300), np.float32))
small = rv.robustness(rv.random_formulae(50, 0), np.zeros((500, 3, 300), np.float32))
formulae, x = rv.random_formulae(400, 0), np.zeros((4000, 3, 300), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = rv.robustness(formulae, x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, out.nbytes // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    growth, output = map(int, done.stdout.split())
    assert growth <= output + 40_000  # KiB; a B x N x P tensor would take 1.9 GB
