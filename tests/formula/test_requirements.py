"""Files of formulae: identifiers, comments, tables; mistakes named with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rhovec.errors import RhovecError
from rhovec.formula import parse
from rhovec.formula.lines import Line, parse_lines, read_data, read_file
from rhovec.formula.strategies import formulae

CONTENT = b"""\xef\xbb\xbf# requirements
R1: always[0,10] speed < 120   # why
  x_0 > 1
car/REQ-2.b :x_1 < 2\r
"""


def test_identifiers_and_comments() -> None:
    lines = read_data(CONTENT, "r.stl")
    assert [(line.id, line.label, line.place) for line in lines] == [
        ("R1", "always[0,10] speed < 120", "r.stl:2"),
        ("", "x_0 > 1", "r.stl:3"),
        ("car/REQ-2.b", "x_1 < 2", "r.stl:4"),
    ]
    assert [str(phi) for phi in parse_lines(lines)][1:] == ["x_0 > 1", "x_1 < 2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.stl", b"x_0 > 1\n\nR1:  x_0 >", "r.stl:3, column 11: expected"),
        ("r.stl", b"R1:", "r.stl:1, column 4: expected"),
        ("r.stl", b"# no\n\n", "r.stl: there is no formula in it"),
        ("r.stl", b"x_0 > 1\n\xff", "r.stl:2: no UTF-8 text"),
        ("r.csv", b'formula\nx_0 > 1\n"x_0\n >"\n', "r.csv:4, line 2, column 3: expected"),
        ("r.csv", b"text\nx_0 > 1\n", "r.csv: there is no column `formula`"),
        ("r.csv", b"", "r.csv: there is no column `formula`"),
    ],
)
def test_mistakes_are_named(name: str, content: bytes, message: str) -> None:
    with pytest.raises(RhovecError) as caught:
        parse_lines(read_data(content, name))
    assert str(caught.value).startswith(message)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RhovecError, match=r"none\.stl: cannot be read: No such file"):
        read_file(tmp_path / "none.stl")


@given(st.lists(formulae(), min_size=1, max_size=4))
def test_what_is_written_is_read(written) -> None:
    lines = read_data("\n".join(map(str, written)).encode(), "r.stl")
    assert parse_lines(lines) == written
    named = "\n".join(f"R{i}: {phi} # {phi}" for i, phi in enumerate(written))
    lines = read_data(named.encode(), "r.stl")
    assert [line.id for line in lines] == [f"R{i}" for i in range(len(written))]
    assert parse_lines(lines) == written


@given(st.binary(max_size=60), st.sampled_from(["r.stl", "r.csv"]))
@example(b'formula\n"', "r.csv")
@example(b"formula\n\0", "r.csv")
def test_junk_is_read_or_named(data: bytes, name: str) -> None:
    try:
        parse_lines(read_data(data, name))
    except RhovecError as error:
        assert str(error).startswith("r.")


def test_options_are_those_of_parse() -> None:
    (phi,) = parse_lines([Line("G[0,1] x == 1", "here")], dt=0.5, tolerance=0.25)
    assert phi == parse("G[0,2] (x >= 0.75 and x <= 1.25)")
