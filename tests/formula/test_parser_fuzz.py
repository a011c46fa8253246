"""Any text is a formula that prints and reads back, or an error with a place."""

from __future__ import annotations

import multiprocessing
import random
import warnings

import rhovec as rv
from rhovec.errors import ParseError
from rhovec.formula import lexer
from rhovec.formula.parser import parse

FUZZ = 1_000_000  # texts
ALPHABET = "()[]<>=!&|~+-*/.,:0123456789eEinfxyGFUX_ \n\t¬∧∨→↔≤≥≠□◇⊤⊥@\\"
WORDS = [
    *sorted(lexer.RESERVED), *"()()()[],:", "[0,5]", "[2,inf]", "[3,1]", "[0.5,2]", "x_0",
    "x_1 > 2", "y <= -0.3", "abs(x)", "1", "2.5", "1e9", "1e999", ".5", "speed",
    "\n", "0 < x < 1", "==", "@",
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
    valid += ["abs(x - 2 * y) <= 3 and max(x, y, 1) > min(2, z) / 4", "0 < x < 1 -> gear = 3"]
    parsed = 0
    for _ in range(texts):
        text = random_text(draw, valid)
        try:
            phi = parse(text, tolerance=0.5)
        except ParseError as error:
            if min(error.line, error.column) < 1:
                raise AssertionError(f"no place in {text!r}") from error
        else:
            assert parse(str(phi)) == phi, text
            parsed += 1
    return parsed


def test_any_text_is_a_formula_or_a_parse_error() -> None:
    parts, each = 16, FUZZ // 16
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.starmap_async(fuzz, [(seed, each) for seed in range(parts)], chunksize=1)
        parsed = sum(results.get(timeout=3600))  # only a hang takes so long
    assert 0.03 < parsed / (parts * each) < 0.5
