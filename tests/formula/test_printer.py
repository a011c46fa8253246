"""Text out of formulae: the canonical form reads back as the same formula, in steps and seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.formula import Formula, parse
from rhovec.formula.printer import bound_text, channel_text, number_text, to_tree
from rhovec.formula.strategies import formulae

DEEP = 100_000


@given(formulae(("speed", "x_10", "x_9", "a.b"), linear=True))
def test_text_reads_back_as_the_same_formula(phi: Formula) -> None:
    assert parse(str(phi)) == phi
    assert str(parse(str(phi))) == str(phi)


def test_random_formulae_read_back() -> None:
    for phi in rv.random_formulae(2000, seed=3):
        assert parse(str(phi)) == phi


@given(formulae(), st.sampled_from([0.1, 0.3, 1, 2.5, 1e-6, 1e6, "0.00125", "1e-3"]))
def test_text_in_seconds_reads_back_as_the_same_formula(phi: Formula, dt: float | str) -> None:
    assert parse(phi.to_text(dt=dt), dt=dt) == phi


@pytest.mark.parametrize(
    "text",
    [
        "x_0 >= 0.3",
        "true",
        "not ( true )",
        "next ( x > 0 )",
        "( x_0 <= 0.5 and x_1 >= -0.2 )",
        "always[12,18] ( eventually ( ( x_0 <= 0.5 and x_1 >= -0.2 ) ) )",
        "( x > 1 until[0,3] ( y > 1 -> always[4,inf] ( false ) ) )",
        "( x > 1 until ( y > 1 <-> z < -1e-07 ) )",
        "y5 - y4 >= 8",
        "0.5 * a + 2 * b - c < 1e+22",
    ],
)
def test_canonical_text(text: str) -> None:
    assert str(parse(text)) == text
    assert repr(parse(text)) == f"Formula({text!r})"


@pytest.mark.parametrize(
    ("steps", "dt", "text"),
    [(3, "0.1", "0.3"), (10, "0.1", "1"), (0, "0.1", "0"), (7, "2.5", "17.5"), (4, "0.125", "0.5"),
     (10**15, "1e-15", "1"), (1, "1e-15", "0.000000000000001"), (10**15, "1e14", "1" + "0" * 29)],
)  # fmt: skip
def test_seconds_are_exact_decimals(steps: int, dt: str, text: str) -> None:
    assert parse(f"always[0,{steps}] x > 0").to_text(dt=dt) == (f"always[0,{text}] ( x > 0 )")


def test_steps_stay_as_they_are_without_dt() -> None:
    assert bound_text(12, None) == "12"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back(value: float) -> None:
    assert float(number_text(value)) == value
    assert not number_text(value).endswith(".0")


def test_channels() -> None:
    assert channel_text((("x", 1.0),)) == "x"
    assert channel_text((("y5", 1.0), ("y4", -1.0))) == "y5 - y4"
    assert channel_text((("a", 0.5), ("b", 2.0), ("c", -3.0))) == "0.5 * a + 2 * b - 3 * c"
    assert channel_text((("a", -2.0),)) == "-2 * a"


def test_tree() -> None:
    tree = to_tree(parse("always[0,3] (x > 1 and not (y < 2 until z > 3))"))
    assert tree.split("\n") == [
        "always[0,3]",
        "└─ and",
        "   ├─ x > 1",
        "   └─ not",
        "      └─ until",
        "         ├─ y < 2",
        "         └─ z > 3",
    ]


def test_depth_is_limited_by_memory_alone() -> None:
    text = "not ( " * DEEP + "x > 1" + " )" * DEEP
    phi = parse(text)
    assert str(phi) == text
    assert len(repr(phi)) < 220
    leaning = "( " * DEEP + "x > 1" + " and y > 2 )" * DEEP
    assert str(parse(leaning)) == leaning
