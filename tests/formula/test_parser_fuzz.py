"""Any text is a formula that prints and reads back, or an error with a place."""

from __future__ import annotations

import multiprocessing
import random
import warnings
from typing import Any

import rhovec as rv
from rhovec.errors import ParseError
from rhovec.formula import lexer
from rhovec.formula.parser import parse

ALPHABET = '()[]<>=!&|~+-*/.,:0123456789eEinfxyGFUXYOHS_`"%° \n\t¬∧∨→↔≤≥≠□◇⊤⊥@\\'
WORDS = [
    *sorted(lexer.RESERVED), *"()()()[],:", "[0,5]", "[2,inf]", "[3,1]", "[0.5,2]", "x_0",
    "x_1 > 2", "y <= -0.3", "abs(x)", "1", "2.5", "1e9", "1e999", ".5", "speed",
    "\n", "0 < x < 1", "==", "@", "`a b`", '"D"', 'gear == "D"', "[0, 2 s]", "[500 ms, 2 s]",
    "prev x", "x - prev x > 1", "rise(", "changed(gear)", "rate(x)", "m/s", "km/h", "120 km/h", "5 degC",
    "3 %", "door", "[1, 2 min]",
]  # fmt: skip


def random_text(draw: random.Random, valid: list[str]) -> str:
    kind = draw.random()
    if kind < 0.15:
        return "".join(draw.choices(ALPHABET, k=draw.randrange(30)))
    if kind < 0.25:
        return draw.randbytes(draw.randrange(30)).decode("latin-1")
    if kind < 0.5:
        return " ".join(draw.choices(WORDS, k=draw.randrange(15)))
    text = draw.choice(valid)
    for _ in range(draw.randrange(1, 3)):
        i = draw.randrange(len(text) + 1)
        j, k = i + draw.randrange(1, 8), i + draw.randrange(8, 16)
        kind = draw.random()
        if kind < 0.25:
            text = text[:i] + text[j:]
        elif kind < 0.5:
            text = text[:i] + text[i:j] + text[i:]
        elif kind < 0.75:
            text = text[:i] + text[j:k] + text[i:j] + text[k:]
        else:
            text = f"{text[:i]} {draw.choice(WORDS)} {text[i:]}"
    return text


def fuzz(seed: int, texts: int) -> int:
    """Parse texts: a Formula that prints and reads back, or a ParseError; how many parsed."""
    warnings.simplefilter("error")
    draw = random.Random(seed)
    valid = [str(phi) for phi in rv.random_formulae(200, seed) if phi.size < 12]
    valid += 20 * [
        "abs(x - 2 * y) <= 3 and max(x, y, 1) > min(2, z) / 4",
        "0 < x < 1 -> gear = 3",
        "once[0, 2 s] `a b` > 1 since[500 ms, 1 min] door",
        'rise(gear == "D") -> changed(x) S prev door',
        "abs(rate(x)) > 36 km/h/s and x - prev next y < 120 km/h",
        "t > 30 degC U (prev t) - t < 5 degF",
    ]
    seconds: dict[str, Any] = {"dt": 0.1, "rounding": "nearest"}
    names = {"labels": {"gear": {"D": 3}}, "units": {"x": "m/s", "y": "m/s", "t": "K", "x_0": "%"}}
    options = [{}, seconds, seconds | names, names]
    parsed = 0
    for _ in range(texts):
        text = random_text(draw, valid)
        try:
            phi = parse(text, tolerance=0.5, **draw.choice(options))
        except ParseError as error:
            if min(error.line, error.column) < 1:
                raise AssertionError(f"no place in {text!r}") from error
        else:
            assert parse(str(phi)) == phi, text
            parsed += 1
    return parsed


def fuzz_in_parts(texts: int, first_seed: int = 0) -> int:
    """`fuzz` in two processes."""
    parts, each = 16, texts // 16
    jobs = [(seed, each) for seed in range(first_seed, first_seed + parts)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.starmap_async(fuzz, jobs, chunksize=1)
        return sum(results.get(timeout=3600))  # only a hang takes so long


def test_any_text_is_a_formula_or_a_parse_error() -> None:
    assert 0.03 < fuzz_in_parts(160_000) / 160_000 < 0.5  # `make soak` tries more
