"""The language: every spelling and precedence, exact numbers, expressions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import ParseError
from rhovec.formula import lexer
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.formula.parser import parse
from rhovec.library import requirements
from rhovec.robustness.reference import robustness_trace, satisfaction_trace

# -- spellings -------------------------------------------------------------------------------------

UNARY_SPELLINGS = {
    "not": ("!", "~", "¬"),
    "next": ("X",),
    "always": ("globally", "alw", "alw_", "G", "□"),
    "eventually": ("finally", "ev", "ev_", "F", "◇"),
    "once": ("once_", "O"),
    "historically": ("hist", "hist_", "H"),
    "prev": ("Y",),
}
BINARY_SPELLINGS = {
    "and": ("&", "&&", "/\\", "∧"),
    "or": ("|", "||", "\\/", "∨"),
    "->": ("implies", "=>", "→"),
    "<->": ("iff", "<=>", "↔"),
    "until": ("until_", "U"),
    "release": ("R",),
    "weak_until": ("W", "unless"),
    "since": ("since_", "S"),
}
COMPARISON_SPELLINGS = {">=": ("≥",), "<=": ("≤",), "==": ("=",), "!=": ("≠",)}


@pytest.mark.parametrize(
    ("name", "spelling"), [(n, s) for n, others in UNARY_SPELLINGS.items() for s in others]
)
def test_spellings_of_unary_operators(name: str, spelling: str) -> None:
    assert parse(f"{spelling} (x > 1)") == parse(f"{name} ( x > 1 )")
    assert parse(f"a < 2 & {spelling}(x > 1)") == parse(f"a < 2 and {name} x > 1")
    if name in ("always", "eventually", "once", "historically"):
        assert parse(f"{spelling}[2,7](x > 1)") == parse(f"{name} [ 2 , 7 ] x > 1")


@pytest.mark.parametrize(
    ("name", "spelling"), [(n, s) for n, others in BINARY_SPELLINGS.items() for s in others]
)
def test_spellings_of_binary_operators(name: str, spelling: str) -> None:
    expected = parse(f"( x > 1 {name} y < 2 )")
    assert parse(f"x > 1 {spelling} y < 2") == expected
    assert parse(f"(x > 1){spelling}(y < 2)") == expected
    assert parse(f"x + 1 > 2 {spelling} 2 > y") == expected
    if name in ("until", "since", "release", "weak_until"):
        assert parse(f"(x > 1) {spelling}[2:7] (y < 2)") == parse(f"x > 1 {name}[2,7] y < 2")


@pytest.mark.parametrize(
    ("name", "spelling"), [(n, s) for n, others in COMPARISON_SPELLINGS.items() for s in others]
)
def test_spellings_of_comparisons(name: str, spelling: str) -> None:
    assert parse(f"x{spelling}1", tolerance=0.5) == parse(f"x {name} 1", tolerance=0.5)


def test_the_lists_above_are_all_there_is() -> None:
    listed = {"⊤", "⊥", "true", "false", "inf", *"+-*/", ">", "<", *lexer.FUNCTIONS}
    assert set(lexer.FUNCTIONS) == {"abs", "min", "max", "rate", "changed", "rise", "fall"}
    for spellings in (UNARY_SPELLINGS, BINARY_SPELLINGS, COMPARISON_SPELLINGS):
        listed |= {*spellings, *(s for others in spellings.values() for s in others)}
    assert listed == lexer.RESERVED
    assert set(ops.NAMES) <= listed


def test_the_text_of_the_design() -> None:
    phi = parse("always[0,10] ( eventually ( x_0 >= 0.3 ) and not ( x_1 < 2 ) )")
    assert phi == parse("G[0,10](F x_0>=.3&!x_1<2)")
    assert str(phi) == "always[0,10] ( ( eventually ( x_0 >= 0.3 ) and not ( x_1 < 2 ) ) )"


def test_constants_and_window_defaults() -> None:
    assert parse("⊤") == parse("true")
    assert parse("⊥") == parse("( false )")
    assert parse("always x > 1") == parse("always[0,inf] x > 1")
    assert parse("true until x > 1") == parse("true until[0, inf] x > 1")
    assert parse("next x > 1").rows()[-1][1:3] == (0, 0)


@pytest.mark.parametrize(
    "number", ["0.5", ".5", "5e-1", "5E-1", "50e-02", "+.5", "0.50", "0000.5", "5.e-1"]
)
def test_numbers_in_any_notation(number: str) -> None:
    expected = parse("x >= 0.5")
    for text in (f"x >= {number}", f"x>={number}", f"{number} <= x", f"x - {number} >= 0"):
        assert parse(text) == expected
    assert parse(f"x >= -{number.lstrip('+')}") == parse("-0.5 <= x")


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}(\.[a-z]\w{0,3})?", fullmatch=True).filter(
    lambda name: name not in lexer.RESERVED
)
numbers = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.decimals(
    -(10**9), 10**9, allow_nan=False, places=12
).map(str)


@given(
    names, st.sampled_from([">=", ">", "<=", "<", "≥", "≤"]), numbers, st.sampled_from([" ", ""])
)
def test_the_shortcut_for_plain_atoms_changes_nothing(
    name: str, comparison: str, number: str, space: str
) -> None:
    plain = parse(f"{name}{space}{comparison}{space}{number}")
    general = parse(f"{name} + 0 {comparison} {number}")  # arithmetic, so read the long way
    assert plain == general
    assert plain.rows()[0][3:] == (((name, 1.0),), float(number) + 0.0)


def test_the_shortcut_for_plain_atoms_sees_what_follows() -> None:
    for text, same in {
        "x < 1 <= y": "x < 1 and y >= 1",
        "x < 1<y": "x < 1 and y > 1",
        "x < 1 = y": "x < 1 and 1 = y",
        "x < 1 != y": "x < 1 and 1 != y",
        "x < 1 ≥ y ≤ 3": "x < 1 and 1 >= y and y <= 3",
        "x < 1 + y": "x - y < 1",
        "x < 1-y": "x + y < 1",
        "x < 3 * y": "x - 3 * y < 0",
        "x < 6 / 2": "x < 3",
        "x < 1->y > 1": "(x < 1) -> (y > 1)",
        "x < 1<->y > 1": "(x < 1) <-> (y > 1)",
        "x < 1=>y > 1": "(x < 1) -> (y > 1)",
        "x < 1<=>y > 1": "(x < 1) <-> (y > 1)",
        "x < 1/\\y > 1": "(x < 1) and (y > 1)",
        "2 * x < 1 and 3 - x < 1": "(2 * x < 1) and (x > 2)",
        "0 < x < 1 or -x < 1": "(x > 0 and x < 1) or (x > -1)",
    }.items():
        assert parse(text, tolerance=0.5) == parse(same, tolerance=0.5), text


def test_published_requirements_keep_their_rows() -> None:
    """All texts of the library mean what they meant before there were past operators."""
    rows = [requirement.formula.rows() for requirement in requirements()]
    assert len(rows) == 169
    assert hashlib.sha256(repr(rows).encode()).hexdigest()[:16] == "1062225e75b5af99"


def test_names() -> None:
    for name in ("engine.rpm", "_a", "Grün", "F1", "always_on", "x_0"):
        assert parse(f"{name} > 1 and 2 < {name}").variables == (name,)


# -- precedence ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("a>0 <-> b>0 -> c>0", "a>0 <-> (b>0 -> c>0)"),
        ("a>0 -> b>0 <-> c>0", "(a>0 -> b>0) <-> c>0"),
        ("a>0 <-> b>0 <-> c>0", "(a>0 <-> b>0) <-> c>0"),
        ("a>0 -> b>0 -> c>0", "a>0 -> (b>0 -> c>0)"),
        ("a>0 or b>0 -> c>0", "(a>0 or b>0) -> c>0"),
        ("a>0 -> b>0 or c>0", "a>0 -> (b>0 or c>0)"),
        ("a>0 or b>0 and c>0", "a>0 or (b>0 and c>0)"),
        ("a>0 and b>0 or c>0", "(a>0 and b>0) or c>0"),
        ("a>0 or b>0 or c>0", "(a>0 or b>0) or c>0"),
        ("a>0 and b>0 and c>0", "(a>0 and b>0) and c>0"),
        ("a>0 and b>0 until c>0", "a>0 and (b>0 until c>0)"),
        ("a>0 until b>0 and c>0", "(a>0 until b>0) and c>0"),
        ("a>0 until b>0 until[1,2] c>0", "a>0 until (b>0 until[1,2] c>0)"),
        ("not a>0 until b>0", "(not (a>0)) until b>0"),
        ("a>0 until not b>0", "a>0 until (not (b>0))"),
        ("always a>0 and b>0", "(always (a>0)) and b>0"),
        ("always[1,2] a>0 until b>0", "(always[1,2] (a>0)) until b>0"),
        ("a>0 until eventually b>0 until c>0", "a>0 until ((eventually (b>0)) until c>0)"),
        ("not next always not a>0", "not (next (always (not (a>0))))"),
        ("not prev once historically not a>0", "not (prev (once (historically (not (a>0)))))"),
        ("a>0 since b>0 since[1,2] c>0", "a>0 since (b>0 since[1,2] c>0)"),
        ("a>0 since b>0 until c>0", "a>0 since (b>0 until c>0)"),
        ("once a>0 since b>0 and c>0", "((once (a>0)) since b>0) and c>0"),
        ("not a>0 -> b>0", "(not (a>0)) -> b>0"),
        ("not a + 1 > 2 * b", "not (a + 1 > 2 * b)"),
        ("a - b - c > 0", "(a - b) - c > 0"),
        ("a - 2 * b + c > 0", "(a - (2 * b)) + c > 0"),
        ("-a * 2 + b > 0", "((-a) * 2) + b > 0"),
        ("a / 2 / 4 > 1", "(a / 2) / 4 > 1"),
        ("a / 2 * 4 > 1", "(a / 2) * 4 > 1"),
        ("- - a > 1", "a > 1"),
        ("2 * -a > 1", "2 * (-a) > 1"),
        ("+a > + 1", "a > 1"),
    ],
)
def test_precedence_and_associativity(text: str, grouped: str) -> None:
    assert parse(text) == parse(grouped)


def test_chains_are_conjunctions_of_neighbours() -> None:
    assert parse("1.75 < pos < 2.25") == parse("pos > 1.75 and pos < 2.25")
    assert parse("a < b <= c > 3") == parse("(a < b and b <= c) and c > 3")
    assert parse("not 0 < a < 1") == parse("not (a > 0 and a < 1)")
    assert parse("0 < a < 1 until b > 0") == parse("(a > 0 and a < 1) until b > 0")


# -- expressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("y4 - y5 <= -8", "y5 - y4 >= 8"),
        ("8 <= y5 - y4", "y5 - y4 >= 8"),
        ("-y4 > -y5 + 8", "y5 - y4 > 8"),
        ("-x >= 1", "x <= -1"),
        ("-x - y < 1", "x + y > -1"),
        ("x_10 + x_2 > 0", "x_2 + x_10 > 0"),
        ("b - 3 * c + a > 0", "a + b - 3 * c > 0"),
        ("-a - b + c <= 2", "a + b - c >= -2"),
        ("a + a + a > 3 * 2", "3 * a > 6"),
        ("x + 0.1 >= 0.4", "x >= 0.3"),
        ("0.1 + 0.2 <= x", "x >= 0.3"),
        ("3 * x / 3 >= 1 / 3", "x >= 0.3333333333333333"),
        ("x + y - y > 1e-300 * 1e300", "x > 1"),
        ("x >= -0.0", "x >= 0"),
        ("2 * (x - (1 - y) / 4) < 0", "2 * x + 0.5 * y < 0.5"),
        ("abs(x - 1) <= 2", "( x <= 3 and x >= -1 )"),
        ("abs(x - 1) > 2", "( x > 3 or x < -1 )"),
        ("0.5*(x + y)/3 > 1", "0.16666666666666666 * x + 0.16666666666666666 * y > 1"),
        ("-(x)/2 < 3", "0.5 * x > -3"),
        ("(x - 1) * 2 / 4 >= 3 * (2 / (1 + 3))", "0.5 * x >= 2"),
        ("abs(x) / -2 > -1", "( 0.5 * x < 1 and 0.5 * x > -1 )"),
        ("3 * min(x, y) / 6 > 1", "( 0.5 * x > 1 and 0.5 * y > 1 )"),
        ("max(x, y) > min(1, z)", "( ( ( x > 1 or z - x < 0 ) or y > 1 ) or z - y < 0 )"),
    ],
)
def test_atoms_have_one_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


SAMPLES = np.random.default_rng(0).normal(0, 3, (3, 40, 1))  # variable, trace, point
TRACES = dict(zip("abc", SAMPLES, strict=True))
Evaluated = tuple[str, np.ndarray]  # the text of an expression, its value on TRACES (40, 1)


def expressions() -> st.SearchStrategy[Evaluated]:
    """Any expression of the language, with its value computed directly."""
    constant = st.integers(-80, 80).map(lambda k: k / 8)
    leaves = st.sampled_from(sorted(TRACES)).map(lambda n: (n, TRACES[n])) | constant.map(
        lambda c: (f"({c!r})", np.full((40, 1), c))
    )

    def extend(inner: st.SearchStrategy[Evaluated]) -> st.SearchStrategy[Evaluated]:
        nonzero = constant.filter(bool)
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            st.builds(lambda x, y: (f"({x[0]} + {y[0]})", x[1] + y[1]), inner, inner),
            st.builds(lambda x, y: (f"({x[0]} - {y[0]})", x[1] - y[1]), inner, inner),
            st.builds(lambda x, c: (f"{c!r} * {x[0]}", c * x[1]), inner, constant),
            st.builds(lambda x, c: (f"({x[0]} / {c!r})", x[1] / c), inner, nonzero),
            inner.map(lambda x: (f"(-{x[0]})", -x[1])),
            inner.map(lambda x: (f"abs({x[0]})", abs(x[1]))),
            several.map(lambda xs: _function("min", np.minimum.reduce, xs)),
            several.map(lambda xs: _function("max", np.maximum.reduce, xs)),
        )

    return st.recursive(leaves, extend, max_leaves=6)


def _function(name: str, reduce: Callable[..., np.ndarray], parts: list[Evaluated]) -> Evaluated:
    return f"{name}({', '.join(text for text, _ in parts)})", reduce([value for _, value in parts])


def parse_or_skip(text: str, **options: float) -> Formula:
    """Random expressions may lose their variables, or grow too large; both have their own tests."""
    try:
        return parse(text, **options)
    except ParseError as error:
        assume("no variable" not in error.message and "expands to more" not in error.message)
        raise


@given(expressions(), st.sampled_from(["<", "<=", ">", ">="]), expressions())
def test_expressions_mean_what_numpy_computes(
    left: Evaluated, comparison: str, right: Evaluated
) -> None:
    phi = parse_or_skip(f"{left[0]} {comparison} {right[0]}")
    difference = left[1] - right[1] if comparison[0] == ">" else right[1] - left[1]
    size = 1 + abs(left[1]) + abs(right[1])
    assert (abs(robustness_trace(phi, TRACES) - difference) <= 1e-9 * size).all()


@given(expressions(), expressions(), st.integers(0, 40).map(lambda k: k / 8))
def test_equality_is_within_the_tolerance(
    left: Evaluated, right: Evaluated, tolerance: float
) -> None:
    phi = parse_or_skip(f"{left[0]} == {right[0]}", tolerance=tolerance)
    distance = abs(left[1] - right[1])
    size = 1 + abs(left[1]) + abs(right[1])
    rho = robustness_trace(phi, TRACES)
    assert (abs(rho - (tolerance - distance)) <= 1e-9 * size).all()
    other = parse(f"{left[0]} != {right[0]}", tolerance=tolerance)
    assert (robustness_trace(other, TRACES) == -rho).all()
    assert (satisfaction_trace(other, TRACES) == ~satisfaction_trace(phi, TRACES)).all()


def test_tolerances() -> None:
    assert parse("gear == 3", discrete=["gear"]) == parse("gear >= 2.5 and gear <= 3.5")
    assert parse("gear != 3", discrete=["gear"]) == parse("gear < 2.5 or gear > 3.5")
    assert parse("a == b", discrete=["a", "b"]) == parse("b - a <= 0.5 and b - a >= -0.5")
    by_name = {"x": 0.1, "y": 0.2, "z": 0.1}
    assert parse("x = 1", tolerance=by_name) == parse("x >= 0.9 and x <= 1.1")
    assert parse("z - x = 1", tolerance=by_name) == parse("z - x == 1", tolerance=0.1)
    assert parse("1 == x", tolerance=0) == parse("x <= 1 and x >= 1")
    for conflict in ("x == y", "w == 1"):
        with pytest.raises(ParseError, match="need a tolerance"):
            parse(conflict, tolerance=by_name)
    with pytest.raises(ParseError, match="need a tolerance"):
        parse("gear == x", discrete=["gear"])


# -- release and weak until ------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["", "[0,4]", "[2,7]", "[3,inf]"])
def test_release_and_weak_until_by_their_laws(window: str) -> None:
    rng = np.random.default_rng(3)
    x = {name: rng.normal(size=(40, 15)) for name in ("x", "y")}
    a, b = "x > 0.2", "y >= -0.1"
    to_end = "always" + (window.replace("[2", "[0").replace("[3", "[0"))
    for written, same in (
        (f"{a} release{window} {b}", f"not (not {a} until{window} not {b})"),
        (f"{a} weak_until{window} {b}", f"({a} until{window} {b}) or {to_end} {a}"),
        (f"not ({a} release{window} {b})", f"not {a} until{window} not {b}"),
    ):
        one, other = parse(written), parse(same)
        assert one.horizon == other.horizon
        assert (robustness_trace(one, x) == robustness_trace(other, x)).all()
        assert (satisfaction_trace(one, x) == satisfaction_trace(other, x)).all()
        assert parse(str(one)) == one and one != other
        got = rv.robustness(one, x, trace=True)
        assert (got == robustness_trace(one, x)).all()
        assert (rv.satisfaction(one, x, trace=True) == satisfaction_trace(one, x)).all()
