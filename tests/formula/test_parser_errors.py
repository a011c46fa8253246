"""Text that is no formula: the place, and what to change; limits of size."""

from __future__ import annotations

import pickle

import pytest

from rhovec.errors import ParseError, RhovecError
from rhovec.formula.operators import Shifted
from rhovec.formula.parser import parse

DEEP = 100_000

ERRORS = [
    ("", (1, 1), "expected a formula or an expression, found the end of the text"),
    (" \n\t\n ", (3, 2), "found the end of the text"),
    ("3", (1, 1), "expected a formula, but this is an expression; compare it"),
    ("x + y", (1, 1), "expected a formula, but this is an expression; compare it"),
    ("x > 1 and (y + 2)", (1, 11), "expected a formula, but this is an expression"),
    ("not 2 * x", (1, 5), "only a variable may stand alone, as a flag"),
    ("x + 1 until y > 1", (1, 1), "expected a formula, but this is an expression"),
    ("always abs(x)", (1, 8), "expected a formula, but this is an expression"),
    ("x > ", (1, 5), "expected a formula or an expression, found the end of the text"),
    ("x > 1 and", (1, 10), "found the end of the text"),
    ("x > 1\nand\n  > 2", (3, 3), "expected a formula or an expression, found '>'"),
    ("x > 1 y < 2", (1, 7), "expected an operator or the end of the text, found 'y'; a product is"),
    ("2 x > 1", (1, 3), "found 'x'; a product is written with *, and a unit needs the units"),
    ("x > 1 not y < 2", (1, 7), "expected an operator or the end of the text, found 'not'"),
    ("alway x > 1", (1, 7), "the end of the text, found 'x'; is alway meant to be 'always'?"),
    ("Eventually[0,3] x > 1", (1, 11), "found '['; is Eventually meant to be 'eventually'?"),
    ("x > 1 untill[0,3] y > 2", (1, 7), "found 'untill'; is untill meant to be 'until'?"),
    ("x" * 60 + "alway" + " " * 35 + "x > 1", (1, 101), "the end of the text, found 'x'"),
    ("x > 1 and " + "y" * 99 + " z", (1, 111), "found 'z'"),
    ("x > 1 " + "a" * 99, (1, 7), f"found '{'a' * 37}...'; a product"),
    ("x > 1 AND y > 2", (1, 7), "found 'AND'; is AND meant to be 'and'?"),
    ("x 5 > 1", (1, 3), "expected an operator or the end of the text, found '5'"),
    ("x > 1 and\n y # 2", (2, 4), "unexpected character '#'"),
    ("x . y", (1, 3), "unexpected character '.'"),
    ("(x > 1", (1, 1), "expected ')' to close the one opened here"),
    ("a > 1 and ((x > 1) or y > 2", (1, 11), "expected ')' to close the one opened here"),
    ("abs(x > 1", (1, 1), "expected ')' to close the one opened here"),
    ("x > 1)", (1, 6), "')' closes nothing"),
    ("()", (1, 2), "expected a formula or an expression, found ')'"),
    ("x > 1, y > 2", (1, 6), "unexpected ','"),
    ("(x, y) > 1", (1, 3), "unexpected ','"),
    ("always[5,2] x > 1", (1, 7), "interval [5,2] ends before it starts; write the smaller"),
    ("x > 1 until[3, 1] y > 1", (1, 12), "interval [3, 1] ends before it starts"),
    ("always[-1,2] x > 1", (1, 8), "a time bound must not be negative or signed"),
    ("always[0,-2] x > 1", (1, 10), "a time bound must not be negative or signed"),
    ("always[0.5,2] x > 1", (1, 8), "time bound 0.5 is not a whole number of steps"),
    ("always[0,2.0] x > 1", (1, 10), "pass the sampling step (dt)"),
    ("always[0,1e3] x > 1", (1, 10), "time bound 1e3 is not a whole number of steps"),
    ("always[0,1000000000000001] x > 1", (1, 10), "larger than 1000000000000000 steps; use inf"),
    ("always[0,99999999999999999999] x>1", (1, 10), "larger than 1000000000000000 steps; use inf"),
    ("always[inf,inf] x > 1", (1, 8), "expected a number as left bound, found 'inf'"),
    ("always[0,y] x > 1", (1, 10), "expected a number as right bound, found 'y'"),
    ("always[0,", (1, 10), "expected a number as right bound, found the end of the text"),
    ("always[0 2] x > 1", (1, 10), "expected ',' between the bounds, found '2'"),
    ("always[0,2) x > 1", (1, 11), "expected ']' after the right bound, found ')'"),
    ("always[0,2]", (1, 12), "found the end of the text"),
    ("next[0,1] x > 1", (1, 5), "expected a formula or an expression, found '['"),
    ("x > inf", (1, 5), "('inf' may only stand in an interval)"),
    ("inf > x", (1, 1), "('inf' may only stand in an interval)"),
    ("x == 3", (1, 1), "== and != on x need a tolerance: pass tolerance=..., or declare"),
    ("y > 1 and x - y != 3", (1, 11), "== and != on x, y need a tolerance"),
    ("x > 1e999", (1, 5), "number 1e999 is too large"),
    ("x > -1e999", (1, 6), "number 1e999 is too large"),
    ("x > " + "9" * 400, (1, 5), "is too large"),
    ("1e400 * x > 1", (1, 1), "number 1e400 is too large"),
    ("1e300 * 1e300 * x > 1", (1, 1), "a number here is too large or too small for float64"),
    ("1e-300 * 1e-300 * x > 1", (1, 1), "a number here is too large or too small for float64"),
    ("x * y > 1", (1, 3), "a product of signals is not linear; make it a channel of the traces"),
    ("x * abs(y) > 1", (1, 3), "a product of signals is not linear"),
    ("1 / x > 1", (1, 3), "a quotient of signals is not linear; make it a channel of the traces"),
    ("x / y > 1", (1, 3), "a quotient of signals is not linear"),
    ("prev x * x > 1", (1, 8), "a product of signals is not linear"),
    ("x / 0 > 1", (1, 3), "division by zero"),
    ("x / (1 - 1) > 1", (1, 3), "division by zero"),
    ("1 > 2", (1, 1), "this comparison has no variable (left); write true or false instead"),
    ("x - x > 1", (1, 1), "this comparison has no variable"),
    ("until > 1", (1, 1), "found 'until' (a variable with this name is written `until`, in backticks)"),
    ("x > 5 W", (1, 8), "(here 'W' means weak_until; write the variable as `W`, in backticks)"),
    ("x > `a", (1, 5), "a name that starts with ` ends with another ` on the same line"),
    ('"a\nb" > 1', (1, 1), 'a name that starts with " ends with another " on the same line'),
    ("`` > 1", (1, 1), "a name that starts with ` ends with another `"),
    ('gear == "D"', (1, 9), '"D" is a label, and gear has no labels; pass labels=..., with its codes'),
    ('2 * x == "D"', (1, 10), '"D" is a label, and what it is compared with has no labels'),
    ("rate(x) > 1", (1, 1), "rate needs the sampling step; pass dt"),
    ("rise(x, y)", (1, 1), "rise takes one argument, not 2"),
    ("changed(x, y)", (1, 1), "changed takes one argument, not 2"),
    ("changed(x > 1)", (1, 9), "'changed' takes numbers and variables, but this is a formula"),
    ("rise(x) > 1", (1, 1), "'>' compares numbers, but its left side is a formula"),
    ("rise(x + 1)", (1, 6), "expected a formula, but this is an expression"),
    ("prev x > y", (1, 1), "prev may take the first variable here or all that follows; write (prev x)"),
    ("a > 1 and prev x - x > 0", (1, 11), "prev may take the first variable here or all that follows"),
    ("(next x - y) > 0", (1, 2), "next may take the first variable here or all that follows"),
    ("next x - x > 0", (1, 6), "no variable (left); write true or false instead (next takes the whole"),
    ("x - prev (y > 1) > 0", (1, 10), "'prev' takes numbers and variables, but this is a formula"),
    ("x + and > 1", (1, 5), "expected a formula or an expression, found 'and'"),
    ("abs > 1", (1, 5), "expected '(' after abs, found '>'"),
    ("abs(x, y) > 1", (1, 1), "abs takes one argument, not 2"),
    ("max() > 1", (1, 5), "expected a formula or an expression, found ')'"),
    ("min(x, ) > 1", (1, 8), "expected a formula or an expression, found ')'"),
    ("abs(x > 1) > 1", (1, 5), "'abs' takes numbers and variables, but this is a formula"),
    ("max(x, true) > 1", (1, 8), "'max' takes numbers and variables, but this is a formula"),
    ("(x > 1) + 1 > 2", (1, 1), "'+' takes numbers and variables, but this is a formula"),
    ("-(x > 1)", (1, 2), "'-' takes numbers and variables, but this is a formula"),
    ("2 * not x > 1", (1, 5), "'*' takes numbers and variables, but this is a formula"),
    ("(x > 1) > 1", (1, 1), "'>' compares numbers, but its left side is a formula"),
    ("brake == false", (1, 10), "but this is a formula (for formulae write <->; a flag stands alone"),
    ("true != brake", (1, 1), "left side is a formula (for formulae write not (a <-> b); a flag"),
    ("1 < (x > 1)", (1, 5), "'<' takes numbers and variables, but this is a formula"),
    (" + ".join(f"x_{i}" for i in range(300)) + " > 1", (1, 1937), "at most 256 variables"),
    ("max(" + ", ".join(f"x_{i}" for i in range(300)) + ") > 1", (1, 1), "more than 256 linear"),
    ("abs(a) + abs(b) + abs(c) + abs(d) + abs(e) + abs(f) + abs(g) + abs(h) + abs(i) > 1", (1, 71),
     "this expands to more than 256 linear expressions"),
    ("abs(" * 9 + "x" + ")" * 9 + " > 1", (1, 1), "more than 256 linear"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "message"), ERRORS, ids=lambda value: str(value)[:30])
def test_errors_say_where_and_what(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == place, error
    assert message in error.message
    assert str(error).startswith(f"line {place[0]}, column {place[1]}: {error.message}\n")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.line, copy.column) == (str(error), error.line, error.column)


def test_errors_point_at_the_place() -> None:
    with pytest.raises(ParseError) as caught:
        parse("always (x > 1 and\n  eventually[7,3] y < 2)")
    *_, excerpt, pointer = str(caught.value).split("\n")
    assert excerpt[pointer.index("^") :].startswith("[7,3]")


def test_a_bound_between_two_steps_is_an_error() -> None:
    with pytest.raises(
        ParseError, match=r"0\.25 s is not a whole number of steps of 0\.1 s"
    ) as caught:
        parse("always[0,0.25] x > 1", dt=0.1)
    assert caught.value.column == 10
    with pytest.raises(ParseError, match="use inf"):
        parse("always[0,1e14] x > 1", dt=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounding": "towards zero"}, "rounding must be"),
        ({"tolerance": -1}, "tolerance of == must be a number >= 0"),
        ({"tolerance": float("nan")}, "tolerance of == must be a number >= 0"),
        ({"tolerance": "much"}, "tolerance of == must be a number >= 0"),
        ({"discrete": "gear"}, r"discrete takes a list of names; write \['gear'\]"),
        ({"dt": "1/3"}, "dt must be a positive decimal number"),
        ({"units": {"x": 3}}, "units must be a dict such as"),
        ({"units": "m/s"}, "units must be a dict such as"),
        ({"labels": {"x": "D"}}, "labels must be a dict such as"),
        ({"labels": {"x": {"D": 1.5}}}, "with whole numbers"),
        ({"labels": {"x": {"D": float("inf")}}}, "with whole numbers"),
        ({"labels": {"x": {"D": float("nan")}}}, "with whole numbers"),
        ({"labels": {"x": {"D": "3"}}}, "with whole numbers"),
        ({"labels": ["x"]}, "labels must be a dict such as"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(RhovecError, match=message):
        parse("x == 1", **options)  # type: ignore[arg-type]


def test_the_limit_of_a_sum_is_named_as_what_it_is() -> None:
    with pytest.raises(ParseError, match="at most 256 variables"):
        parse(" + ".join(f"v{i}" for i in range(20_000)) + " > 0")
    with pytest.raises(ParseError, match="more than 256 linear expressions"):
        parse(" + ".join(f"abs(v{i})" for i in range(20)) + " > 0")
    with pytest.raises(ParseError, match="more than 256 linear expressions"):
        parse("changed(" + " + ".join(f"abs(v{i})" for i in range(5)) + ")")


def test_only_text_is_parsed() -> None:
    with pytest.raises(RhovecError, match="parse takes text, not bytes"):
        parse(b"x > 1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("(" * DEEP + "x > 1" + ")" * DEEP, 1),
        ("(" * DEEP + "x" + ")" * DEEP + " > 1", 1),
        ("not " * DEEP + "x > 1", DEEP + 1),
        ("always[0,1] (" * DEEP + "x > 1" + ")" * DEEP, DEEP + 1),
        ("x > 1 -> " * DEEP + "x > 1", 2 * DEEP + 1),
        ("x > 1 until[0,1] " * DEEP + "x > 1", 2 * DEEP + 1),
        ("(" * DEEP + "x > 1" + " and y > 2)" * DEEP, 2 * DEEP + 1),
        ("x + 0 > 1 or " * DEEP + "x > 1", 2 * DEEP + 1),
        ("-" * DEEP + "x > 1", 1),
        ("0" + " < x" * DEEP, 0),
        ("x" + " + 1" * DEEP + " > 1", 1),
        ("max(" * DEEP + "x" + ")" * DEEP + "> 1", 1),
    ],
    ids=lambda value: str(value)[:20],
)
def test_size_is_limited_by_memory_alone(text: str, size: int) -> None:
    if size:
        assert parse(text).size == size
    else:
        with pytest.raises(ParseError, match="no variable"):
            parse(text)


def test_shifts_nest_without_limit() -> None:
    assert parse("x - " + "prev " * DEEP + "x > 1").channels[0][1][0] == Shifted("x", DEEP)
    assert parse("prev " * DEEP + "x > 1").size == parse("prev " * DEEP + "x").size == DEEP + 1


def test_expressions_nest_to_their_limit() -> None:
    text = "x"
    for i in range(255):
        text = f"{('min', 'max')[i % 2]}({text}, y_{i})"
    phi = parse(f"-({text}) / 2 + z <= 0")
    assert phi.size == 2 * 256 - 1
