"""Many texts at once: the parser's answers, always."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import ParseError
from rhovec.formula import reader
from rhovec.formula.programs import Programs
from rhovec.formula.reader import as_programs, parse_programs, read_core
from rhovec.formula.strategies import formulae

FORMULAE = rv.random_formulae(2000, seed=5)


def test_the_same_formulae_as_the_parser() -> None:
    texts = list(map(str, FORMULAE))
    assert parse_programs(texts).unpack() == FORMULAE


def test_most_texts_need_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(text: str) -> rv.Formula:
        raise AssertionError(text)

    monkeypatch.setattr(reader, "parse", never)
    parse_programs(list(map(str, FORMULAE)))
    parse_programs(["G[0,10] x_0>0.3 & !(x_1<=-2 | x_12 >= 5.) U[1,inf] (x_0<1)", "x_3 < .5"])


TEXTS = [
    "x_0 > 1", "x_0>=-0", "x_0 <= -0.0", "not x_1 < 2", "! x_1 < 2", "!x_1 < 2", "x_0 > 1e3",
    "always x_0 > 1 and x_1 < 2 or x_2 > 3", "x_0 > 1 or x_1 < 2 and x_2 > 3",
    "x_0 > 1 until x_1 > 2 until[2,5] x_2 > 3", "x_0 > 1 and x_1 > 2 and x_2 > 3",
    "G F[1,2] x_0 > 1 U x_1 > 2", "always[ 3, 5 ] x_0 > 1", "always[3,5] (((x_0 > 1)))",
    "speed > 1", "x_0 + 1 > 2", "1 < x_0 < 2", "x_0 > 1 - 2", "x_0 > 1 -> x_1 > 2", "x_0 == 1",
    "x_0.a > 1", "x_01 > 1", "x_0a > 1", "x_12345 > 1", "X_0 > 1", "x > 1", "xx_0 > 1", "true",
    "x_0 > 1and x_1 > 2", "x_0 > 12345678901234567890", "x_0 > 0.1234567890123456789",
    "always[0,99999999999] x_0 > 1", "always[5,3] x_0 > 1", "always[1] x_0 > 1", "always[,2] x_0 > 1",
    "always[0,in] x_0 > 1", "always[0,1inf] x_0 > 1", "always[0,inf ] x_0 > 1", "x_0 >", "x_0", "",
    " ", "(", ")", "()", "(x_0 > 1", "x_0 > 1)", "x_0 > 1 x_1 > 2", "and x_0 > 1", "x_0 > 1 and",
    "always", "not", "x_0 > 1 & & x_1 > 2", "x_0 > 1 && x_1 > 2 || x_2 < 1", "x_0 ≥ 1", "□ x_0 > 1",
    "always_ x_0 > 1", "alwaysx_0 > 1", "x_0 >\n 1", "x_0 > 1\nand x_1 > 2", "x_0 > 1 .5",
    "x_0 > 1.2.3", "x_0 >= = 1", "x_0 => 1", "x_0 > --1", "x_0 > +1", "x_0 > 1 != 2", "! = x_0",
    "next x_0 > 1", "eventuallyeventually x_0 > 1", "x_0 > 1 unti x_1 > 2", "U x_0 > 1",
    "x_0 > .", "x_0 > -.5", "x-1 > 0", "x*2 > 1", "x 0 > 1", "x,0 > 1", "x|3 > 0.5", "x.0 > 1",
    "G[0,.5] x_0 > 1", "G[1,-2] x_0 > 1", "F[1,=2] x_0 > 1", "G[0,+5] x_0 > 1", "G[0,5 ] x_0 > 1",
    "G[0,5:] x_0 > 1", "G[0,infx] x_0 > 1", "G[0,inf", "G[0,i", "F > 0", "G[0,2] F > 0", "U > 1",
    "x_0", "G x_0", "x_0 and x_1 > 2", "x_0 > 1 and x_1", "not x_0", "(x_0)", "x_0 U x_1", "O x_0 > 1",
    "H[0,2] x_0 > 1", "x_0 > 1 S x_1 > 2", "x_0 > 1 since[1,2] x_1 > 2", "prev x_0 > 1", "Y x_0 > 1",
    "x_0 - prev x_0 > 1", "x_0 > prev x_1", "rise(x_0 > 1)", "changed(x_0)", "rate(x_0) > 1", "S > 1",
    "`x_0` > 1", '"x_0" > 1', "`x_0 > 1`", "x_0 == `x_1`", "x_0 > 1 km/h", "x_0 > 1 km", "x_0 > 1km",
    "x_0 > 1 s and x_1 > 2", "x_0 > 1 %", "x_0 > 1 °C", "x_0 > 1`", "x_0 > 1 `x_1`", "G[0,2 s] x_0 > 1",
    "G[0 s,2] x_0 > 1", "G[0,2s] x_0 > 1", "x_0 > 1 andx_1 > 2", "x_0 > 1 and.x_1 > 2", "x_0 > 1_",
    "x_0 > 1 R x_1 > 2", "x_0 > 1 W[1,2] x_1 > 2", "x_0 > 1 release x_1 < 0", "not U > 1",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_odd_texts(text: str) -> None:
    check(text)


PIECES = [
    *"x_01 ><=()[],.-&|!GFUXYOHSRW`\"%\n", "x_0", "x_1 > 2", "x_2<=-0.5", "always", "not ", " and ",
    " or ", " until", "[1,2]", "[3,inf]", "eventually", "( ", " )", "prev ", "rise(", " since",
    " km/h", " s",
]  # fmt: skip


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_text(text: str) -> None:
    check(text)


@settings(max_examples=200, deadline=None)
@given(formulae())
def test_any_formula(phi: rv.Formula) -> None:
    assert parse_programs([str(phi)]).unpack() == [phi]


def test_a_long_list_is_read_as_one_by_one() -> None:
    """Texts that an earlier reader took, or took for others."""
    for odd in ("x-1 > 0", "x*2 > 1", "G[0,.5] x_0 > 1", "F[1,=2] x_0 > 1", "x 0 > 1", "x|3 > 0.5"):
        with pytest.raises(ParseError) if odd != "x-1 > 0" and odd != "x*2 > 1" else nullcontext():
            read = as_programs(["x_5 > 1"] * 70 + [odd])[0]
            assert read.unpack()[-1] == rv.parse(odd)


def test_one_node_per_character() -> None:
    """An earlier reader set aside room for one node per two characters, and wrote past it."""
    for text in ("!!!!!!x_0>0", "!" * 3000 + "x_0>0", "G!G!G!G!x_0>0"):
        assert parse_programs([text] * 70).unpack() == [rv.parse(text)] * 70


def test_channels_are_those_in_use() -> None:
    read = parse_programs(["x_7 > 1", "x_3 > )", "x_2 > 1 and x_7 < 3"][::2])
    assert read.channels == ((("x_7", 1.0),), (("x_2", 1.0),))
    packed = Programs.pack([rv.parse("x_7 > 1"), rv.parse("x_2 > 1 and x_7 < 3")])
    assert read.channels == packed.channels and (read.code == packed.code).all()


def test_mutated_texts() -> None:
    """Printed formulae with some characters changed, in one call each of reader and parser."""
    assert mutated(20_000, seed=1) > 5000


def mutated(count: int, seed: int) -> int:
    """Compare the compiled reader with the parser on `count` texts; how many it read itself."""
    rng = np.random.default_rng(seed)
    alphabet = np.frombuffer(
        b'x_0123456789.,-+*/()[]<>=!&|`"%^GFURWXYOHSinfe \n\tand or not until always since prev km/h',
        np.uint8,
    )
    texts = [text for text in map(str, FORMULAE) if len(text) < 80]
    seen = 0
    for _ in range(0, count, 1000):
        batch = []
        for text in rng.choice(texts, 1000):
            data = bytearray(text.encode())
            for _ in range(int(rng.integers(0, 4))):
                place, kind = int(rng.integers(len(data))), rng.integers(3)
                if kind == 0:
                    data[place] = rng.choice(alphabet)
                elif kind == 1:
                    data.insert(place, rng.choice(alphabet))
                elif len(data) > 1:
                    del data[place]
            batch.append(data.decode())
        core = read_core(batch)
        read = np.flatnonzero(np.diff(core.offsets))
        assert core.select(read).unpack() == [rv.parse(batch[i]) for i in read.tolist()]
        seen += len(read)
    return seen


def check(text: str) -> None:
    """As the parser, also in the middle of other texts."""
    around = ["x_0 > 1", text, "always[0,2] x_3 <= -0.25"]
    try:
        want = [rv.parse(item) for item in around]
    except rv.RhovecError as error:
        with pytest.raises(type(error)) as caught:
            parse_programs(around)
        assert str(caught.value) == str(error)
        return
    assert parse_programs(around).unpack() == want


def test_as_programs_takes_what_as_formulae_takes() -> None:
    texts = list(map(str, FORMULAE[:100]))
    for given_, single in (
        (texts, False), (FORMULAE[:100], False), ([*texts[:50], *FORMULAE[50:100]], False),
        (texts[:3], False), (texts[0], True), (FORMULAE[0], True),
    ):  # fmt: skip
        programs, alone = as_programs(given_)
        assert alone == single
        assert programs.unpack() == FORMULAE[: len(programs)]
    with pytest.raises(ParseError):
        as_programs([*texts, "x_0 >"])


def test_select_and_join() -> None:
    one, other = FORMULAE[:7], [rv.parse("speed > 1 and x_1 < 2"), *FORMULAE[9:12]]
    whole = Programs.join([Programs.pack(one), Programs.pack(other)])
    assert whole.unpack() == one + other
    order = np.array([10, 0, 7, 7, 3])
    assert whole.select(order).unpack() == [(one + other)[i] for i in order]
    assert whole.part(5, 9).unpack() == (one + other)[5:9]
