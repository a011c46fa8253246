"""Names: words of operators, quotes, labels of values, and variables that stand alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rhovec.errors import ParseError
from rhovec.formula import Formula, lexer
from rhovec.formula import operators as ops
from rhovec.formula.core import canonical_channel
from rhovec.formula.operators import Shifted
from rhovec.formula.parser import parse
from rhovec.formula.printer import channel_text
from rhovec.formula.strategies import formulae


@pytest.mark.parametrize(
    "letter", sorted(lexer.UNARY_WORDS | lexer.BINARY_WORDS | lexer.FUNCTION_WORDS)
)
@pytest.mark.parametrize(
    "text",
    ["{} > 0", "not {} >= 1", "1 < {}", "x + {} > 1", "2 * {} <= 3", "{} * 2 <= 3", "({}) > 1",
     "max(x, {}) > 1", "abs({}) < 2", "G[0,3] {} < 1 and x > 0", "x > {} and y < {}",
     "x > 1 U {} > 2", "F {} > 1"],
)  # fmt: skip
def test_a_letter_is_a_name_where_only_a_name_can_stand(letter: str, text: str) -> None:
    plain = [(op, lo, hi, channel and tuple((letter if n == "speed" else n, c) for n, c in channel), t)
             for op, lo, hi, channel, t in parse(text.replace("{}", "speed")).rows()]  # fmt: skip
    phi = parse(text.replace("{}", letter))
    assert {name for channel in phi.channels for name, _ in channel} >= {letter}
    if (
        "max" not in text and "x + " not in text and "x > {}" not in text
    ):  # the order of terms is by name
        assert phi.rows() == plain
    assert parse(str(phi)) == phi


@pytest.mark.parametrize("text", ["1 * F + x >= 0", "1 * G - y > 1", "U - x > 0", "x - F > 0"])
def test_sums_with_letters_print_as_they_are_read(text: str) -> None:
    phi = parse(text)
    assert parse(str(phi)) == phi
    assert len(phi.channels[0]) == 2


def test_a_letter_before_a_formula_is_an_operator() -> None:
    assert parse("F -x > 0") == parse("eventually (-x > 0)")
    assert parse("F F > 0") == parse("eventually (1 * F > 0)")
    with pytest.raises(ParseError, match="'F' means eventually; write the variable as `F`"):
        parse("F + 1 > 0")


def test_a_letter_alone_is_an_operator_unless_quoted() -> None:
    assert parse("F and x > 1") == parse("`F` >= 0.5 and x > 1")
    assert parse("(G)") == parse("`G`") == parse("`G` >= 0.5")
    assert parse("x > 1 and S") == parse("x > 1 and `S` >= 0.5")
    with pytest.raises(ParseError, match="'F' means eventually; write the variable as `F`"):
        parse("x > 1 and F")


# -- quotes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("`Engine Speed (rpm)`", "Engine Speed (rpm)"),
        ('"Engine Speed (rpm)"', "Engine Speed (rpm)"),
        ("`a``b`", "a`b"),
        ('"a""b"', 'a"b'),
        ("""`a"b`""", 'a"b'),
        ('"a`b"', "a`b"),
        ("````", "`"),
        ("` x `", " x "),
        ("`always`", "always"),
        ("`1st`", "1st"),
        ("`x`", "x"),
        ("`Δp [Pa] ≥ 3`", "Δp [Pa] ≥ 3"),
        ("`a.b`", "a.b"),
    ],
)
def test_quoted_names(text: str, name: str) -> None:
    phi = parse(f"always[0,2] {text} > 1 and 2 * {text} - y < 3")
    assert set(phi.variables) == {name, "y"}
    assert parse(str(phi)) == phi
    assert parse(text) == parse(f"{text} >= 0.5")


def test_a_name_is_quoted_only_where_it_must_be() -> None:
    for text in (
        "x > 1",
        "a.b > 1",
        "F > 1",
        "rate > 1",
        "2 * F + x > 1",
        "U - x > 1",
        "x - prev y > 1",
    ):
        assert "`" not in str(parse(text))
    for text in (
        "`a b` > 1",
        "`always` > 1",
        "`F` + x > 1",
        "x - prev `F` > 1",
        "`2x` > 1",
        "`x.` > 1",
    ):
        assert str(parse(text)) == text


NASTY = [*sorted(lexer.RESERVED), "a b", " ", "`", '"', "``", "x ", "1", "-x", "1e5", "x.", ".x",
         "é", "東京", "a#b", "\u00a0", "\u200b", "x > 1", ")", "prev x", "\U0001f600",
         "e\u0301"]  # fmt: skip
name_texts = st.sampled_from(NASTY) | st.text(min_size=1, max_size=6).filter(lexer.is_name)
variables = name_texts | st.builds(Shifted, name_texts, st.integers(-3, 3).filter(bool))
channels = st.dictionaries(
    variables, st.sampled_from([1.0, -1.0, 2.0, -0.25]), min_size=1, max_size=3
).map(lambda terms: canonical_channel(terms)[0])


@given(channels, st.sampled_from(["", "always ", "not ", "prev ", "next ", "O", "x > 1 since "]))
@example(((Shifted("x", 1), 1.0),), "")
@example(((Shifted("x", -1), 1.0), ("x", -1.0)), "")
def test_any_channel_reads_back(channel: ops.Channel, before: str) -> None:
    phi = Formula.from_rows([(ops.GT, 0, 0, channel, 1.0)])
    assert parse(str(phi)) == phi
    assert parse(f"2 > ({channel_text(channel)})").channels == (channel,)
    assert parse(f"{before}({phi})").rows()[-2:][0] == phi.rows()[0] or not before


@given(st.data())
def test_formulae_over_any_names_read_back(data: st.DataObject) -> None:
    names = data.draw(st.lists(name_texts, min_size=3, max_size=3, unique=True))
    phi = data.draw(formulae(tuple(names), linear=True))
    assert parse(str(phi)) == phi


@pytest.mark.parametrize("name", ["", "a\nb", "\t", "\x00", "\x7f", "\x85", "\u2028", "\ud800"])
def test_names_without_line_breaks_and_control_characters(name: str) -> None:
    assert not lexer.is_name(name)
    with pytest.raises(ParseError, match="on the same line"):
        parse(f"`{name}` > 1")


# -- labels ----------------------------------------------------------------------------------------

GEARS = {"gear": {"P": 0, "D": 3}, "Drive Mode": {"sport": 7}}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('gear == "D"', "gear == 3"),
        ('gear != "P"', "gear != 0"),
        ('not gear = "D"', "not gear = 3"),
        ('prev gear == "P" and gear == "D"', "prev gear == 0 and gear == 3"),
        ('(prev gear) == "P"', "(prev gear) == 0"),
        ('`Drive Mode` == "sport"', "`Drive Mode` == 7"),
        ('"gear" == "D"', "gear == 3"),
    ],
)
def test_labels(text: str, same: str) -> None:
    assert parse(text, labels=GEARS) == parse(same, discrete=["gear", "Drive Mode"])


def test_labels_that_are_not_known() -> None:
    with pytest.raises(ParseError, match="\"N\" is a label, and gear has only the labels 'P', 'D'"):
        parse('gear == "N"', labels=GEARS)
    with pytest.raises(
        ParseError, match=r"x has no labels; .* or write a variable in backticks: `D`"
    ):
        parse('x == "D"', labels=GEARS)
    assert parse('"D" > 1 and x - "D" < 2') == parse("D > 1 and x - D < 2")
    assert parse("x == `D`", tolerance=1) == parse("x == D", tolerance=1)


# -- flags -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("door", "door >= 0.5"),
        ("(door)", "door >= 0.5"),
        ("not door", "not door >= 0.5"),
        ("always[0,3] door and not lamp", "(always[0,3] door >= 0.5) and not lamp >= 0.5"),
        ("door until lamp", "door >= 0.5 until lamp >= 0.5"),
        ("rise(door) -> lamp since door", "rise(door >= 0.5) -> (lamp >= 0.5 since door >= 0.5)"),
        ("door -> x > 1", "door >= 0.5 -> x > 1"),
        ("prev door", "prev (door >= 0.5)"),
        ("next prev door", "door >= 0.5"),
        ("door <-> prev prev door", "door >= 0.5 <-> prev prev (door >= 0.5)"),
    ],
)
def test_a_variable_alone_is_a_flag(text: str, same: str) -> None:
    assert parse(text) == parse(same)
