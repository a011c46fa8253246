"""Requirement files: headers, definitions, parameters, continuation; all mistakes named at once."""

from __future__ import annotations

import pickle
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rhovec as rv
from rhovec.errors import Problem, RequirementError, RhovecError
from rhovec.formula import requirements
from rhovec.formula.requirements import Requirement, read_data, resolve
from rhovec.formula.strategies import formulae

FILE = """\
# The brakes.
param T = 3            # steps
param top = 120
fast := speed > top or
    rpm > 4500         # a second line
slip := abs(wheel - speed)

BRAKE-7 "Pressure # after the pedal" [safety, brake]:
    always (pedal > 0.5 -> eventually[0,T] pressure > 20)
car/R2.b [safety]: always not fast and (
speed > 0 and
# a comment between
rpm > 0
)
eventually (fast and slip < 2)
    and rpm > T
R3 "No tags":always slip <= top
"""
MORE = (  # lines for mutation that need more of the language
    "param wait = 2 s", "param fastest = 120 km/h", "late := eventually[0, wait] `Engine Speed` > 1",
    'P-1 "Past": always (rise(door) -> once[0, 500 ms] not late)', "P-2: x - prev x < fastest",
    "P-3: always[0,4] (ready since rate(x) > 3)",
)  # fmt: skip
PLACE = re.compile(r"r\.(stl|csv):\d+(, line \d+)?, column \d+")


def read(text: str | bytes, name: str = "r.stl", **options: Any) -> list[Requirement]:
    """The requirements in the content of a file; RequirementError if something is wrong."""
    data = text if isinstance(text, bytes) else text.encode()
    found, problems = resolve(read_data(data, name), **options)
    if problems:
        raise RequirementError(problems)
    return found


def problems(text: str | bytes, name: str = "r.stl", **options: Any) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    return [str(problem) for problem in resolve(read_data(data, name), **options)[1]]


# -- the format ------------------------------------------------------------------------------------


def test_the_format() -> None:
    brake, second, plain, third = read(FILE)
    fast = "(speed > 120 or rpm > 4500)"
    assert brake == Requirement(
        rv.parse("always (pedal > 0.5 -> eventually[0,3] pressure > 20)"),
        "BRAKE-7", "Pressure # after the pedal", ("safety", "brake"),
        "always (pedal > 0.5 -> eventually[0,T] pressure > 20)", "r.stl:8",
    )  # fmt: skip
    assert (second.id, second.tags, second.source) == ("car/R2.b", ("safety",), "r.stl:10")
    assert second.formula == rv.parse(f"always not {fast} and (speed > 0 and rpm > 0)")
    assert (plain.id, plain.label, plain.source) == ("", plain.text, "r.stl:15")
    assert plain.formula == rv.parse(f"eventually ({fast} and abs(wheel - speed) < 2) and rpm > 3")
    assert third.formula == rv.parse("always abs(wheel - speed) <= 120")
    assert third.label == 'R3 "No tags"'
    assert third.place == "R3 (r.stl:17)"


def test_definitions_bind_as_if_in_parentheses() -> None:
    (one,) = read("a := x > 0 or y > 0\nb := x + 1\nnot a and 2 * b > 0")
    assert one.formula == rv.parse("not (x > 0 or y > 0) and 2 * (x + 1) > 0")
    (two,) = read("a := x > 0\nb := a until y > 0\nc := not b\nc until c")
    assert two.formula == rv.parse("(not (x > 0 until y > 0)) until (not (x > 0 until y > 0))")
    same = read("e := x - 1\nR1: e > 0\nR2: e + y > 0\nR3: e > 0")  # no use changes a definition
    assert same[0].formula == same[2].formula == rv.parse("x > 1")


@given(
    formulae(), formulae(), st.sampled_from(["not {}", "always[0,3] {}", "{} until {}", "{} -> {}"])
)
def test_a_definition_is_its_formula(phi: rv.Formula, psi: rv.Formula, template: str) -> None:
    text = template.format("it", "it")
    written = f"({psi}) and {template.format(f'({phi})', f'({phi})')}"
    assert read(f"it := {phi}\n({psi}) and {text}")[0].formula == rv.parse(written)


def test_parameters_are_numbers_that_can_be_replaced(tmp_path: Path) -> None:
    text = "param T = 0.5\nparam limit = -3\nR1: always[0,T] x > 2 * limit"
    (given_,) = read(text, dt=0.25)
    assert given_.formula == rv.parse("always[0,2] x > -6")
    (other,) = read(text, parameters={"T": 1, "limit": "4e1"}, dt=0.25)
    assert other.formula == rv.parse("always[0,4] x > 80")
    assert problems(text)[0].startswith("r.stl:3, column 14: time bound 0.5 is not a whole number")
    with pytest.raises(RhovecError, match="no file has the parameter U: there are T, limit"):
        read(text, parameters={"U": 1})
    with pytest.raises(RhovecError, match="parameter T=x, column 1: a parameter is a number"):
        read(text, parameters={"T": "x"})


def test_files_share_definitions(tmp_path: Path) -> None:
    (tmp_path / "common.stl").write_text("param T = 2\nhigh := x > 1\n")
    (tmp_path / "more.csv").write_text('ID, Title ,formula\nR1,"One\n line",\'-x < T and high\n')
    (one,) = rv.read_requirements([tmp_path / "common.stl", tmp_path / "more.csv"])
    assert (one.id, one.title) == ("R1", "One line")
    assert one.formula == rv.parse("-x < 2 and x > 1")
    with pytest.raises(RhovecError, match=r"common\.stl: there is no formula in it"):
        rv.read_requirements(tmp_path / "common.stl")
    with pytest.raises(RhovecError, match=r"none\.stl: cannot be read: No such file"):
        rv.read_requirements(tmp_path / "none.stl")


def test_tables() -> None:
    text = 'formula,tags,id\nx > 1,"a; b,a",R 1\n, ,\n"x\n> 2",,\nx > 3\n'
    first, second, third = read(text, "r.csv")
    assert (first.id, first.tags, first.source) == ("R 1", ("a", "b"), "r.csv:2")
    assert (second.id, second.text, second.source) == ("", "x > 2", "r.csv:4")
    assert third.source == "r.csv:6"
    assert problems('id,formula\nR1,x >\nR1,"x\n >"\n', "r.csv") == [
        "r.csv:2, column 4: expected a formula or an expression, found the end of the text",
        "r.csv:3, line 1, column 1: the identifier R1 is taken by r.csv:2; change one",
    ]
    assert problems("id,formula\nR1,x > 1\nR2,\n\nR3,x > 1\n", "r.csv") == [
        "r.csv:3, column 1: expected a formula or an expression, found the end of the text"
    ]
    assert problems('formula\n"x\n >"\n', "r.csv")[0].startswith("r.csv:2, line 2, column 3: ")
    for text in (
        "id;formula\r\nA1;always[0,3] x < 5\r\n",
        "id\tformula\nA1\talways[0,3] x < 5\n",
        'id,formula\nA1,"always[0,3] x < 5"\n',
    ):
        (one,) = read(text, "r.csv")
        assert (one.id, one.text) == ("A1", "always[0,3] x < 5")
    for wrong in ("", "text\nx > 1\n"):
        with pytest.raises(RhovecError, match="no column `formula`; name it in the first line"):
            read(wrong, "r.csv")


def test_blocks_may_be_indented_as_a_whole() -> None:
    assert [r.id for r in read("  R1: x > 0\n  R2: y > 0\n      and x > 0\n\tR3: z > 0")] == [
        "R1", "R2", "R3",
    ]  # fmt: skip


def test_an_open_parenthesis_ends_where_a_requirement_starts() -> None:
    assert problems("R1: (x > 0\nR2: y > 0\nd := (z > 0\n\ny > 0") == [
        "r.stl:1, column 5: expected ')' to close the one opened here, found the end of the text",
        "r.stl:3, column 6: expected ')' to close the one opened here, found the end of the text",
    ]


@given(st.lists(formulae(), min_size=1, max_size=4))
def test_what_is_written_is_read(written: list[rv.Formula]) -> None:
    assert [r.formula for r in read("\n".join(map(str, written)))] == written
    named = "\n".join(f'R{i} "{i}": {phi}' for i, phi in enumerate(written))
    folded = named.replace(" (", "  # (\n  (")
    for text in (named, folded, "\ufeff" + folded.replace("\n", "\r\n") + "\r\n"):
        found = read(text)
        assert [r.formula for r in found] == written
        assert [r.id for r in found] == [f"R{i}" for i in range(len(written))]


def test_requirements_stand_for_their_formulae(tmp_path: Path) -> None:
    found = read("R1 [a]: x_0 > 1\nx_1 < 2\nR3: always x_0 > 1")
    plain = [r.formula for r in found]
    x = np.random.default_rng(0).normal(size=(5, 2, 8))
    kernel = rv.StlKernel(n_traces=50)
    assert (rv.robustness(found, x) == rv.robustness(plain, x)).all()
    assert rv.robustness(found[0], x).shape == (5,)
    assert (kernel.gram(found) == kernel.gram(plain)).all()
    assert kernel.signatures(found[0]).ndim == 1
    assert rv.compare(found[2], found[0], n_traces=20).relation == "implies"
    with rv.Index.build(found, tags=["b"]) as index:
        (hit,) = index.search(found[2], 1)
        assert (hit.requirement, hit.tags, hit.source) == ("R3", ("b",), "r.stl:3")
        index.add(found[0], requirements="OTHER", tags="c")
        assert {hit.requirement: hit.tags for hit in index.search(found[0], 5)} == {
            "R1": ("a", "b"), None: ("b",), "R3": ("b",), "OTHER": ("a", "c"),
        }  # fmt: skip


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x > 1\n\nR1:  x >", "r.stl:3, column 9: expected a formula or an expression"),
        ("R1:", "r.stl:1, column 4: expected a formula or an expression"),
        ("R1: x > 0\n   and (y > 0 y)", "r.stl:2, column 15: expected an operator"),
        ("R1: x > 0\n\nR1: y > 0", "r.stl:3, column 1: the identifier R1 is taken by r.stl:1;"),
        ("a := x > 0\na := y > 0", "r.stl:2, column 1: the name a is taken by r.stl:1;"),
        ("param a = 1\na := y > 0", "r.stl:2, column 1: the name a is taken by r.stl:1;"),
        ("a := a and x > 0", "r.stl:1, column 6: a is defined by itself;"),
        ("R1: a\na := x > 0", "r.stl:1, column 5: a is defined in a later line, r.stl:2; move"),
        ("a := b > 0\nb := a and x > 0", "r.stl:1, column 6: b is defined in a later line"),
        ("always := x > 0", "r.stl:1, column 1: always is a word of the language; choose"),
        ("param a = x", "r.stl:1, column 11: a parameter is a number"),
        ("param a = 1 > 0", "r.stl:1, column 11: this comparison has no variable"),
        ("param a =", "r.stl:1, column 10: expected a formula or an expression"),
        ("a := x > 0\nR1: a + 1 > 0", "r.stl:2, column 5: '+' takes numbers and variables, but"),
        ("a := x > 0\nR1: always[0,a] x > 0", "r.stl:2, column 14: a time bound is a number"),
        ("param a = -1\nR1: F[0,a] x > 0", "r.stl:2, column 9: a time bound is a number, 0 or more"),
        ("a := x + 1\nR1: always a", "r.stl:2, column 12: expected a formula, but this is an exp"),
        ("R 1: x > 0", "r.stl:1, column 3: expected an operator or the end of the text, found '1' "
         "(before a colon stands an identifier of letters"),
        ("limit = 130", "r.stl:1, column 1: == and != on limit need a tolerance: pass tolerance=..., or "
         "declare the variables discrete (a parameter is `param limit = 130`, a definition"),
        ("limit=-1.5e-3", "r.stl:1, column 1: == and != on limit need a tolerance: pass tolerance=..., "
         "or declare the variables discrete (a parameter is `param limit=-1.5e-3`, a definition"),
        ("two words := x > 0", "r.stl:1, column 5: expected an operator or the end of the text, "
         "found 'words' (a definition is `name := formula`, with one name)"),
        ("\x00", "r.stl:1, column 1: unexpected character"),
        ("x > 0\0", "r.stl:1, column 6: unexpected character"),
        (b"# \xe4\nR1: x > 0\nR2: \xe4 > 0", "r.stl:3, column 5: byte 0xe4 is not UTF-8 text; save"),
        (b'R1 "\xe4": x > 0', "r.stl:1, column 1: the header is not UTF-8 text; save the file"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: str | bytes, message: str) -> None:
    assert problems(text)[0].startswith(message)


def test_a_file_in_another_encoding() -> None:
    with pytest.raises(RhovecError, match=r"r\.stl:1, column 1: this is UTF-16; save the file as"):
        read("R1: x > 0".encode("utf-16"))


def test_all_mistakes_are_one_error() -> None:
    text = "a := x >\nR1: x > 0\nR2: a\nR3: x + 1\nR4: y > 0\nR1: z > 0"
    with pytest.raises(RequirementError) as caught:
        read(text)
    assert str(caught.value).splitlines() == [
        "4 lines are wrong:",
        "  r.stl:1, column 9: expected a formula or an expression, found the end of the text",
        "  r.stl:4, column 5: expected a formula, but this is an expression; compare it with "
        "something (only a variable may stand alone, as a flag)",
        "  r.stl:6, column 1: the identifier R1 is taken by r.stl:2; change one",
        "  r.stl:3, column 5: a is wrong where it is defined, r.stl:1",
    ]
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
    many = RequirementError([Problem(f"r.stl:{i}, column 1", "wrong") for i in range(1, 1030)])
    assert str(many).splitlines()[0] == "1,029 lines are wrong:"
    assert str(many).splitlines()[-2:] == ["  r.stl:20, column 1: wrong", "  and 1,009 more"]


def test_wrong_lines_can_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "r.stl"
    file.write_text("R1: x >\nR2: x > 0\nR3: y + 1")
    with pytest.warns(rv.RhovecWarning, match="left out: 2 lines are wrong"):
        (left,) = rv.read_requirements(file, skip_invalid=True)
    assert left.id == "R2"
    file.write_text("R1: x >")
    with pytest.warns(rv.RhovecWarning), pytest.raises(RhovecError, match="all are wrong"):
        rv.read_requirements(file, skip_invalid=True)


@pytest.mark.parametrize("text", ["", "\ufeff", "# only\n  # comments", "\r\n\r\n", "\n \t \n"])
def test_files_without_a_formula(tmp_path: Path, text: str) -> None:
    file = tmp_path / "r.stl"
    file.write_bytes(text.encode())
    with pytest.raises(RhovecError, match=r"r\.stl: there is no formula in it"):
        rv.read_requirements(file)


# -- sizes -----------------------------------------------------------------------------------------


def test_many_lines_take_little_time() -> None:
    lines = [f'R{i} "title {i}" [tag]: always[0,{i % 9}] x > {i}' for i in range(100_000)]
    start = time.perf_counter()
    found = read("\n".join(lines))
    assert time.perf_counter() - start < 60
    assert (len(found), found[-1].source) == (100_000, "r.stl:100000")
    names = "\n".join(f"d{i} := x > {i}" for i in range(20_000))  # not the square of their number
    start = time.perf_counter()
    assert len(read(f"{names}\nR1: d7")) == 1
    assert time.perf_counter() - start < 30


def test_definitions_do_not_blow_up() -> None:
    (one,) = read("a := x > 0\nR1: " + " and ".join(["a"] * 10_000))
    assert one.formula.size == 2 * 10_000 - 1
    doubled = "a0 := x > 0 and y > 0\n"
    doubled += "".join(f"a{i + 1} := a{i} and a{i}\n" for i in range(60))
    start = time.perf_counter()
    first, *others = problems(doubled + "R1: a60")
    assert time.perf_counter() - start < 10
    assert first.startswith("r.stl:16, column 16: with a14 and other definitions written out, the")
    assert first.endswith("has over 100,000 nodes; use fewer or smaller definitions")
    assert len(others) == 46  # the definitions above it, and R1


def test_the_formulae_of_a_file_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "MAX_WRITTEN_OUT", 5000)
    text = "a := " + " and ".join(["x > 0"] * 1000) + "\n" + "".join(f"R{i}: a\n" for i in range(9))
    found = problems(text)
    assert len(found) == 7
    assert "the formulae have over 5,000 nodes" in found[0]


# -- anything at all -------------------------------------------------------------------------------


def test_every_position_is_that_of_the_file() -> None:
    """A character that no formula has, put anywhere in a formula, is named where it is."""
    lines = FILE.split("\n")
    tried = 0
    for row, line in enumerate(lines):
        body = line.split("#")[0] if "Pressure" not in line else ""
        start = max(body.rfind(":") + 1, body.find("=") + 1 if ":=" in body else 0, 0)
        if body.startswith("param") or not body.strip():
            continue
        for column in range(start, len(body.rstrip()) + 1):
            before, after = line[column - 1 : column], line[column : column + 1]
            if column == 0 or (before.isalnum() and after.isalnum()):
                continue  # it would split a name that is then another mistake
            changed = [*lines[:row], f"{line[:column]}${line[column:]}", *lines[row + 1 :]]
            place = f"r.stl:{row + 1}, column {column + 1}: unexpected character '$'"
            assert problems("\n".join(changed))[0].startswith(place)
            tried += 1
    assert tried > 100


def test_mutated_files() -> None:
    good, wrong = mutated_files(10_000, seed=0)
    assert good > 500
    assert wrong > 5000


def mutated_files(count: int, seed: int) -> tuple[int, int]:
    """Read `count` files with mistakes of all sorts: how many are right, and how many are wrong.

    All errors must be ours, and name a line, a column and something to change.
    """
    rng = np.random.default_rng(seed)
    table = 'id,title,tags,formula\nR1,One,"a;b",x > 0\nR2,,,"always (y > 0\n or x > 0)"\n'
    lines = [*FILE.splitlines(), *MORE]
    pieces = [
        *'x_0.,-+*/()[]<>=!&|GFURWX#"`:;$\0\t\n\r\ufeff\xa0é ', ":=", "param ", "R1: ", "\n\n", "\r\n",
        " always ", "T", "fast", "a := ", "\n  ", "[0,T]", "1e999", "-", "''", " until ", "\u2028",
        "2 s", "km/h", "once", "prev ", "rise(", '"a b"', "`T`",
    ]  # fmt: skip
    good = wrong = 0
    for number in range(count):
        if number % 4 == 0:
            name, text = "r.csv", table
        else:
            chosen = rng.integers(len(lines), size=int(rng.integers(1, 7)))
            name, text = "r.stl", "\n".join(lines[i] for i in sorted(chosen.tolist()))
        for _ in range(int(rng.integers(0, 5))):
            place, kind = int(rng.integers(len(text) + 1)), int(rng.integers(4))
            piece = pieces[int(rng.integers(len(pieces)))]
            if kind == 0:
                text = text[:place] + piece + text[place:]
            elif kind == 1:
                text = text[:place] + piece + text[place + 1 :]
            elif kind == 2:
                text = text[:place] + text[place + int(rng.integers(1, 9)) :]
            else:
                text = text[place:] + text[:place]
        data = text.encode("latin-1" if number % 50 == 1 else "utf-8", "replace")
        found = check(data, name, dt=0.5 if number % 3 else None)
        good, wrong = good + (not found), wrong + found
    return good, wrong


def check(data: bytes, name: str, **options: Any) -> bool:
    """Whether something is wrong with the content of a file; all errors must say where and what."""
    try:
        _, wrong = resolve(read_data(data, name), **options)
    except RhovecError as error:
        if str(error) == f"{name}: there is no formula in it; write one per line":
            return True
        place, _, message = str(error).partition(": ")
        wrong = [Problem(place, message)]
    for problem in wrong:
        assert PLACE.fullmatch(problem.place), problem
        assert len(problem.message) > 10, problem
    return bool(wrong)


@given(st.binary(max_size=60), st.sampled_from(["r.stl", "r.csv"]))
@example(b'formula\n"', "r.csv")
@example(b"formula\n\0", "r.csv")
def test_junk_is_read_or_named(data: bytes, name: str) -> None:
    check(data, name)
