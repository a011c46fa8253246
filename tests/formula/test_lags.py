"""Variables read at earlier or later samples (`ops.Shifted`), and the limits of looking back."""

from __future__ import annotations

import pickle

import pytest

import rhovec as rv
from rhovec.errors import FormulaError
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula, canonical_channel, compose, natural_key
from rhovec.formula.operators import Shifted
from rhovec.formula.programs import Programs


def atom(*terms: tuple[ops.Variable, float]) -> Formula:
    channel, _ = canonical_channel(dict(terms))
    return Formula.from_rows([(ops.GE, 0, 0, channel, 1.0)])


def test_order_is_by_name_then_time() -> None:
    variables = ["y", Shifted("x", -1), "x_10", Shifted("x", 2), "x_2", "x", Shifted("x", 1)]
    assert sorted(variables, key=natural_key) == [
        Shifted("x", 2), Shifted("x", 1), "x", Shifted("x", -1), "x_2", "x_10", "y"
    ]  # fmt: skip


def test_of_a_difference_the_later_sample_is_positive() -> None:
    change = {"x": 1.0, Shifted("x", 1): -1.0}
    assert canonical_channel(change) == ((("x", 1.0), (Shifted("x", 1), -1.0)), 1)
    assert canonical_channel({v: -c for v, c in change.items()})[1] == -1
    coming = canonical_channel({"x": 1.0, Shifted("x", -1): -1.0})
    assert coming == (((Shifted("x", -1), 1.0), ("x", -1.0)), -1)


def test_a_lag_counts_as_history_and_a_lead_as_horizon() -> None:
    phi = atom(("x", 1.0), (Shifted("x", 2), -1.0), (Shifted("y", -3), 1.0))
    assert phi.variables == ("x", "y")
    assert (phi.history, phi.horizon) == (2, 3)
    later = compose(ops.ALWAYS, phi, lo=1, hi=4)
    assert (later.history, later.horizon) == (1, 7)
    earlier = compose(ops.SINCE, atom(("x", 1.0)), later, lo=5, hi=9)
    assert (earlier.history, earlier.horizon) == (10, 2)
    batch = [phi, later, earlier, atom(("y", 1.0))] * 100  # many, so that compiled code counts
    programs = Programs.pack(batch)
    assert programs.histories().tolist() == [f.history for f in batch]
    assert programs.horizons().tolist() == [f.horizon for f in batch]
    assert programs.unpack() == batch
    assert pickle.loads(pickle.dumps(phi)) == phi


@pytest.mark.parametrize(
    "variable",
    [("x", 1), Shifted("x", 0), Shifted("x", ops.MAX_PAST + 1), Shifted("x", True), Shifted("a\nb", 1),
     Shifted(3, 1), Shifted("x", 1.0), 3],
)  # fmt: skip
def test_what_is_no_variable_is_refused(variable: object) -> None:
    assert atom((Shifted("x", 1), 1.0)).variables == ("x",)  # which equals ("x", 1)
    with pytest.raises(FormulaError, match="row 0: a channel is"):
        Formula.from_rows([(ops.GE, 0, 0, ((variable, 1.0),), 1.0)])  # type: ignore[arg-type]
    assert atom((Shifted("x", 1), 1.0)).variables == ("x",)


def test_past_bounds_have_a_limit() -> None:
    p = rv.parse("x > 0")
    for op, operands in ((ops.ONCE, 1), (ops.HISTORICALLY, 1), (ops.SINCE, 2)):
        compose(op, *[p] * operands, lo=ops.MAX_PAST)
        for lo, hi in ((0, ops.MAX_PAST + 1), (ops.MAX_PAST + 1, ops.UNBOUNDED)):
            with pytest.raises(FormulaError, match=f"{ops.NAMES[op]} is larger than 1000000 steps"):
                compose(op, *[p] * operands, lo=lo, hi=hi)
            with pytest.raises(FormulaError, match=r"row [12]: time bound"):
                Formula.from_rows([*p.rows() * operands, ops.node(op, lo, hi)])
    compose(ops.ALWAYS, p, lo=0, hi=ops.MAX_PAST + 1)
