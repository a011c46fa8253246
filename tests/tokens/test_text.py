"""Text tokens: the symbols of the canonical text, and back to the same formula."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.corpus import Recipe, draw_families
from rhovec.corpus.families import MAX_TOKENS
from rhovec.corpus.text import texts
from rhovec.errors import FormulaError
from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.formula.fragment import in_fragment
from rhovec.formula.programs import Programs
from rhovec.formula.strategies import formulae
from rhovec.tokens import text as t

FORMULAE = rv.random_formulae(300, seed=3)
SPACE = t.SYMBOLS.index("@")


def greedy(text: str) -> list[int]:
    """The paper's rule as it is said: wrap, write @ for a space, take the longest symbol."""
    left = f"/s {text} s".replace(" ", "@")
    ids = []
    while left:
        longest = max(filter(left.startswith, t.SYMBOLS), key=len)
        ids.append(t.SYMBOLS.index(longest))
        left = left[len(longest) :]
    return ids


def positional(phi: Formula) -> str:
    """The canonical text, exponents written out."""
    return re.sub(r"[\d.]+e[-+]\d+", lambda number: f"{Decimal(number[0]):f}", str(phi))


def atom(threshold: float) -> Formula:
    return Formula.from_rows([(ops.GE, 0, 0, (("x_0", 1.0),), threshold)])


def unpacked(tokens: t.TextTokens) -> Iterator[list[int]]:
    flat = tokens.symbol.reshape(-1)
    for bos, length in zip(tokens.bos.tolist(), tokens.length.tolist(), strict=True):
        yield flat[bos : bos + length].tolist()


def test_the_vocabulary_has_35_symbols_and_one_of_our_own() -> None:
    assert len(t.SYMBOLS) == len(set(t.SYMBOLS)) == t.CLS == 35
    names = [t.SYMBOLS[i] for i in (t.PADDING, t.BEGIN, t.END, SPACE)]
    assert names == ["pad", "/s", "s", "@"]
    assert t.MAX_TOKENS == MAX_TOKENS  # the corpus' limit


def test_a_string_of_the_paper() -> None:
    text = "always[12,18] ( eventually ( ( x_0 <= 0.5 and x_1 >= -0.2 ) ) )"
    symbols = [
        "/s",
        "@",
        "always",
        "[",
        "1",
        "2",
        ",",
        "1",
        "8",
        "]",
        "@",
        "(",
        "@",
        "eventually",
        "@",
        "(",
        "@",
        "(",
        "@",
        "x_",
        "0",
        "@",
        "<=",
        "@",
        "0",
        ".",
        "5",
        "@",
        "and",
        "@",
        "x_",
        "1",
        "@",
        ">=",
        "@",
        "-",
        "0",
        ".",
        "2",
        "@",
        ")",
        "@",
        ")",
        "@",
        ")",
        "@",
        "s",
    ]
    ids = t.encode(text)
    assert [t.SYMBOLS[i] for i in ids] == symbols
    assert t.decode(ids) == t.decode([t.CLS, *ids]) == text
    assert t.encode("G[12, 18] F (x_0 <= .5 & x_1 >= -2e-1)") == ids


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("x_0 >= 1", "x_ 0 @ >= @ 1"),
        ("x_10 > -1.25", "x_ 1 0 @ > @ - 1 . 2 5"),
        ("always[3,inf] ( x_0 < 0 )", "always [ 3 , inf ] @ ( @ x_ 0 @ < @ 0 @ )"),
        ("( x_0 <= 1 until x_1 >= 2 )", "( @ x_ 0 @ <= @ 1 @ until @ x_ 1 @ >= @ 2 @ )"),
    ],
)
def test_the_longest_symbol_wins(text: str, symbols: str) -> None:
    ids = t.encode(text)
    assert " ".join(t.SYMBOLS[i] for i in ids) == f"/s @ {symbols} @ s"
    assert ids == greedy(text)


@given(formulae(("x_0", "x_7", "x_123"), max_leaves=8, max_bound=1000))
def test_every_formula_reads_back_or_is_refused_for_what_it_holds(phi: Formula) -> None:
    outside = {ops.NAMES[op] for op in phi.code[:, 0]} - set(t.SYMBOLS)
    if outside:
        with pytest.raises(FormulaError, match=f"contains ({'|'.join(outside)}), .*in_fragment"):
            t.encode(phi)
    elif len(greedy(positional(phi))) > t.MAX_TOKENS:
        with pytest.raises(FormulaError, match="more than 512"):
            t.encode(phi)
    else:
        ids = t.encode(phi)
        assert ids == greedy(positional(phi)) == t.encode(str(phi))
        assert t.decode(ids) == positional(phi)
        assert t.from_tokens(ids) == phi


@given(
    st.integers(-(10**16), 10**16).map(lambda units: units / 1e4)
    | st.integers(-(10**6), 10**6).map(lambda units: np.nextafter(units / 1e4, 9.0))
    | st.floats(-1e300, 1e300).filter(lambda value: value == 0 or abs(value) > 1e-300)
)
@example(-0.0)
@example(0.0001)
@example(1e-5)
@example(0.1 + 0.2)
@example(99_999_999_999.9999)
@example(1e15)
@example(1e22)
def test_numbers_are_exact_and_without_exponent(value: float) -> None:
    phi = atom(value)
    ids = t.encode(phi)
    assert ids == greedy(positional(phi))
    assert t.from_tokens(ids) == phi


@pytest.mark.parametrize("channels", [3, 120])
def test_a_corpus_in_bulk(channels: int) -> None:
    batch = draw_families(Recipe(seed=5, channels=channels), np.arange(500))
    tokens = t.text_tokens(batch.programs)
    assert np.array_equal(tokens.length, batch.tokens)
    data, ends = texts(batch.programs)
    decoded = [t.decode(ids) for ids in unpacked(tokens)]
    assert "".join(decoded) == data.tobytes().decode()
    assert np.array_equal(np.cumsum([len(text) for text in decoded]), ends[1:])


def test_formulae_their_texts_and_programs_give_the_same_tokens() -> None:
    tokens = t.text_tokens(FORMULAE)
    for other in ([str(phi) for phi in FORMULAE], Programs.pack(FORMULAE)):
        assert np.array_equal(t.text_tokens(other).symbol, tokens.symbol)
    assert [t.from_tokens(ids) for ids in unpacked(tokens)] == FORMULAE
    single = t.text_tokens(FORMULAE[0])
    assert next(unpacked(single)) == t.encode(FORMULAE[0])


def test_compiled_and_plain_code_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [atom(value) for value in (1e-9, -0.1 - 0.2, 1e30, 7.0)]
    formulae = [*FORMULAE[:100], *odd, *FORMULAE[100:]]
    compiled = t.text_tokens(formulae, rows=90)
    monkeypatch.setattr(t, "COMPILED_FROM", 10**9)
    plain = t.text_tokens(formulae, rows=90)
    assert [t.from_tokens(ids) for ids in unpacked(plain)] == formulae
    for field in dataclasses.fields(t.TextTokens):
        one, other = getattr(compiled, field.name), getattr(plain, field.name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_packing_keeps_formulae_whole_and_apart() -> None:
    tokens = t.text_tokens(FORMULAE)
    rows, width = tokens.symbol.shape
    assert width == 520
    owner = np.full(rows * width, -1)
    segment, place = tokens.segment.reshape(-1), tokens.place.reshape(-1)
    for b, (cls, length) in enumerate(zip(tokens.cls, tokens.length, strict=True)):
        own = np.arange(cls, cls + length + 1)
        assert cls // width == own[-1] // width  # in one row
        assert (owner[own] == -1).all()  # nobody else's
        owner[own] = b
        assert tokens.symbol.reshape(-1)[cls] == t.CLS
        assert np.array_equal(place[own], np.arange(length + 1))
        assert len(set(segment[own].tolist())) == 1
    padding = owner == -1
    assert np.array_equal(padding, segment == -1)
    assert np.array_equal(padding, tokens.symbol.reshape(-1) == t.PADDING)
    for row in range(rows):  # segments 0, 1, 2, ... from the left, a formula each
        own = owner.reshape(rows, width)[row]
        own = own[own >= 0]
        changes = np.concatenate([[0], np.cumsum(np.diff(own) != 0)])
        assert np.array_equal(tokens.segment[row, : len(own)], changes)
    assert rows * width <= 1.05 * (tokens.length + 1).sum() + width


def test_rows_can_be_fixed() -> None:
    tokens = t.text_tokens(FORMULAE)
    more = t.text_tokens(FORMULAE, rows=len(tokens.symbol) + 2)
    assert np.array_equal(more.symbol[:-2], tokens.symbol)
    assert (more.symbol[-2:] == t.PADDING).all() and (more.segment[-2:] == -1).all()
    with pytest.raises(FormulaError, match="rows"):
        t.text_tokens(FORMULAE, rows=3)
    with pytest.raises(FormulaError, match="wider rows"):
        t.text_tokens(FORMULAE, width=40)


def test_512_tokens_are_read_and_513_refused() -> None:
    longest = "not " * 83 + "x_0 >= 12345"
    assert len(t.encode(longest)) == 512
    assert t.text_tokens(longest).symbol.shape == (1, 520)
    with pytest.raises(FormulaError, match="formula 1 has 513 tokens as text, more than 512"):
        t.text_tokens([longest, longest + "6"])
    with pytest.raises(FormulaError, match="600010 tokens"):
        t.encode("not " * 100_000 + "x_0 >= 1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x_0 > 1 -> x_1 > 2", "formula 1 contains ->, .*in_fragment"),
        ("always next x_0 > 1", "formula 1 contains next, .*in_fragment"),
        ("true until x_0 > 1", "formula 1 contains true, .*in_fragment"),
        ("x_0 > 1 or false", "formula 1 contains false, .*in_fragment"),
        ("x_0 > 1 <-> x_1 > 2", "formula 1 contains <->, .*in_fragment"),
        ("always once[0,3] x_0 > 1", "formula 1 contains once, .*in_fragment"),
        ("x_0 - prev x_0 > 1", "x_0 - prev x_0 depends on two times, .*signatures"),
        ("speed > 1", "not speed; .* Schema"),
        ("x_0 - x_1 > 1", "not x_1 - x_0; .* Schema"),
        ("2 * x_0 > 1", r"not 2 \* x_0; .* Schema"),
        ("x_01 > 1", "not x_01; .* Schema"),
    ],
)
def test_what_is_refused_and_why(text: str, message: str) -> None:
    with pytest.raises(FormulaError, match=message):
        t.text_tokens(["x_0 > 0 and x_1 > 0", text])


@given(formulae(max_leaves=6))
def test_the_advice_in_the_messages_helps(phi: Formula) -> None:
    try:
        plain = in_fragment(phi)
    except FormulaError as error:
        assert "constantly" in str(error)
        return
    assert {ops.NAMES[op] for op in plain.code[:, 0]} <= set(t.SYMBOLS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids[1:], "wrapped"),
        (lambda ids: ids[:-1], "wrapped"),
        (lambda ids: [t.BEGIN, SPACE, t.END], "wrapped"),
        (lambda ids: [], "wrapped"),
        (lambda ids: [*ids[:2], 0, *ids[3:]], "token 2 is not a symbol of a formula but unk"),
        (lambda ids: [*ids[:3], t.CLS, *ids[4:]], "token 3 .* number 35"),
        (lambda ids: [*ids[:3], -1, *ids[4:]], "token 3 .* number -1"),
    ],
)
def test_tokens_that_are_no_text_are_refused(change: object, message: str) -> None:
    assert callable(change)
    with pytest.raises(FormulaError, match=message):
        t.decode(change(t.encode("x_0 >= 1")))


def test_tokens_that_spell_no_formula_are_a_parse_error() -> None:
    ids = t.encode("x_0 >= 1")
    with pytest.raises(rv.ParseError):
        t.from_tokens([*ids[:2], *ids[4:]])
