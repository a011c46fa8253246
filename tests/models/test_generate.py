"""Generation with NumPy says what the torch decoder says, token by token, held to the grammar."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import FormulaError, RhovecError
from rhovec.formula.core import Formula
from rhovec.formula.programs import Programs
from rhovec.models import generate
from rhovec.models.decoder_config import DecoderConfig
from rhovec.models.generate import Cache, Generator
from rhovec.models.layers import Room
from rhovec.tokens.prefix import (
    BEGIN,
    END,
    PAD,
    TENTHS,
    VOCABULARY,
    Grammar,
    from_prefix,
    prefix_tokens,
)

from .tiny_decoder import tiny_decoder

CONFIG, TENSORS = tiny_decoder()
LENGTH = CONFIG.length
GENERATOR = Generator(CONFIG, TENSORS)
RNG = np.random.default_rng(4)
VECTORS = RNG.standard_normal((30, CONFIG.dimension), np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
IDS = RNG.integers(VOCABULARY, size=(30, 20))
IDS[:, 0] = BEGIN


Logits = Callable[[np.ndarray, np.ndarray], np.ndarray]


def torch_logits(config: DecoderConfig, tensors: dict[str, np.ndarray]) -> Logits:
    torch = pytest.importorskip("torch")
    from rhovec.models.decoder import Decoder

    decoder = Decoder(config)
    decoder.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def logits(vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
        out: np.ndarray = decoder(torch.from_numpy(vectors), torch.from_numpy(ids)).numpy()
        return out

    return logits


def log_probabilities(
    vector: np.ndarray, ids: list[int], max_nodes: int = 63, logits: Logits = GENERATOR.logits
) -> np.ndarray:
    """(VOCABULARY,): of what may follow ids, computed without a cache."""
    grammar = Grammar(1, max_nodes, 20, LENGTH)
    for token in ids[1:]:
        grammar.advance(np.array([token]))
    values = logits(vector[None], np.array([ids]))[0, -1].astype(np.float64)
    values[~grammar.allowed()[0]] = -np.inf
    out: np.ndarray = values - np.logaddexp.reduce(values)
    return out


def test_logits_are_those_of_torch() -> None:
    for changes in ({}, {"width": 48, "heads": 3, "prefix": 1, "layers": 3}):
        config, tensors = tiny_decoder(**changes)
        wanted = torch_logits(config, tensors)(VECTORS, IDS)
        assert wanted.std() > 0.5
        assert np.abs(Generator(config, tensors).logits(VECTORS, IDS) - wanted).max() <= 1e-4


def test_the_cache_changes_nothing() -> None:
    """Tokens come one or several at a time, and sequences are dropped, doubled and reordered."""
    rng = np.random.default_rng(1)
    cache, room = Cache(CONFIG, 40), Room(40 * 23, CONFIG.width)
    rows, at = np.arange(12), 0
    x = GENERATOR._front(VECTORS[:12])
    while at < 19:
        new = int(rng.integers(1, 4)) if at < 16 else 1
        ids = IDS[rows, at : at + new]
        x = np.concatenate([x, GENERATOR.token[ids] + GENERATOR.place[at : at + new]], axis=1)
        GENERATOR._extend(cache, x, room)
        at += new
        wanted = GENERATOR.logits(VECTORS[rows], IDS[rows, :at])[:, -1]
        assert np.abs(GENERATOR._logits(x[:, -1]) - wanted).max() <= 1e-4
        parents = rng.integers(len(rows), size=rng.integers(5, 41))
        order = cache.settle(parents)
        assert sorted(order) == list(range(len(parents)))
        rows = rows[parents[order]]
        x = np.empty((len(rows), 0, CONFIG.width), np.float32)


def test_greedy_takes_the_likeliest_token_each_time() -> None:
    logits = torch_logits(CONFIG, TENSORS)
    for vector, phi in zip(VECTORS[:10], GENERATOR.greedy(VECTORS[:10]), strict=True):
        ids = [BEGIN]
        while ids[-1] != END:
            ids.append(int(log_probabilities(vector, ids, logits=logits).argmax()))
        assert phi == from_prefix(ids)


def reference_beam(vector: np.ndarray, width: int) -> list[Formula]:
    beams: list[tuple[float, list[int]]] = [(0.0, [BEGIN])]
    while any(ids[-1] != END for _, ids in beams):
        longer: list[tuple[float, list[int]]] = []
        for total, ids in beams:
            if ids[-1] == END:
                longer.append((total, ids))
                continue
            log_p = log_probabilities(vector, ids)
            longer += [
                (total + log_p[token], [*ids, token])
                for token in np.flatnonzero(log_p > -np.inf).tolist()
            ]
        beams = sorted(longer, key=lambda beam: -beam[0])[:width]
    return [from_prefix(ids) for _, ids in beams]


def test_beams_are_the_likeliest_of_each_length() -> None:
    for vector, found in zip(VECTORS[:3], GENERATOR.beam(VECTORS[:3], 3), strict=True):
        assert found == reference_beam(vector, 3)
    wide = GENERATOR.beam(VECTORS[:2], 40)  # wider than there are first tokens
    assert [len(set(found)) for found in wide] == [40, 40]


def test_a_beam_of_one_is_greedy() -> None:
    assert GENERATOR.beam(VECTORS, 1) == [[phi] for phi in GENERATOR.greedy(VECTORS)]


def test_samples_are_reproducible_and_do_not_depend_on_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = GENERATOR.sample(VECTORS, 7, seed=3)
    assert GENERATOR.sample(VECTORS, 7, seed=3) == whole
    assert GENERATOR.sample(VECTORS, 7, seed=4) != whole
    assert GENERATOR.sample(VECTORS[5:6], 7, seed=3) == whole[5:6]
    assert GENERATOR.sample(VECTORS[::-3], 7, seed=3) == whole[::-3]
    assert GENERATOR.sample(VECTORS, 3, seed=3) == [found[:3] for found in whole]
    greedy, beams = GENERATOR.greedy(VECTORS), GENERATOR.beam(VECTORS, 4)
    monkeypatch.setattr(generate, "LINES", 10)
    assert GENERATOR.sample(VECTORS, 7, seed=3) == whole
    assert GENERATOR.greedy(VECTORS[7:9]) == greedy[7:9]
    assert GENERATOR.beam(VECTORS[7:9], 4) == beams[7:9]


def test_decimals_can_be_left_to_the_likeliest() -> None:
    """Where lines have written the same, they then have the same decimals."""
    for vector, found in zip(VECTORS, GENERATOR.sample(VECTORS, 6, numbers=False), strict=True):
        for phi in found:
            ids, (length,) = prefix_tokens(Programs.pack([phi]), LENGTH)
            line = ids[0, :length].tolist()
            for t in (t for t, token in enumerate(line) if token >= TENTHS):
                assert line[t] == log_probabilities(vector, line[:t]).argmax()


@pytest.mark.parametrize(("temperature", "top_p"), [(1, 1), (0.5, 1), (2, 1), (1, 0.8), (2, 0.6)])
def test_samples_are_as_frequent_as_they_should_be(temperature: float, top_p: float) -> None:
    n, vector = 3000, VECTORS[2]
    (found,) = GENERATOR.sample(
        vector[None], n, temperature=temperature, top_p=top_p, seed=9, max_nodes=1
    )
    first = prefix_tokens(Programs.pack(found), 6)[0][:, 1]
    share = np.exp(log_probabilities(vector, [BEGIN], max_nodes=1) / temperature)
    share /= share.sum()
    kept = np.argsort(-share)
    kept = kept[: int((share[kept].cumsum() < top_p - 1e-9).sum()) + 1]
    wanted = np.zeros(VOCABULARY)
    wanted[kept] = share[kept] / share[kept].sum()
    seen = np.bincount(first, minlength=VOCABULARY) / n
    assert (seen[wanted == 0] == 0).all()
    assert (np.abs(seen - wanted) <= 4.5 * np.sqrt(wanted * (1 - wanted) / n) + 1e-9).all()


def test_a_low_temperature_is_greedy() -> None:
    cold = GENERATOR.sample(VECTORS, 2, temperature=1e-4)
    assert cold == [[phi, phi] for phi in GENERATOR.greedy(VECTORS)]


@pytest.mark.parametrize(
    ("nodes", "depth"), [(1, 20), (3, 20), (63, 0), (63, 1), (15, 3), (63, 20)]
)
def test_limits_are_kept(nodes: int, depth: int) -> None:
    limits = {"max_nodes": nodes, "max_depth": depth}
    found = GENERATOR.greedy(VECTORS, **limits)
    found += chain.from_iterable(GENERATOR.sample(VECTORS, 20, top_p=1, **limits))
    found += chain.from_iterable(GENERATOR.beam(VECTORS[:5], 5, **limits))
    for phi in found:
        assert phi.size <= nodes
        assert phi.depth <= depth
        assert rv.parse(str(phi)) == phi


def test_the_length_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that would go on for ever ends within its length."""
    config, tensors = tiny_decoder(length=40)
    monkeypatch.setattr(generate, "LINES", 16)
    tensors["norm.weight"][:] = 0  # so that the output is the same for all tokens
    tensors["norm.bias"][:] = 1
    tensors["output.weight"][[4, 5, 8]] += 10
    generator = Generator(config, tensors)
    found = generator.greedy(VECTORS)
    found += chain.from_iterable(generator.sample(VECTORS, 3))
    found += chain.from_iterable(generator.beam(VECTORS, 2))
    ids, lengths = prefix_tokens(Programs.pack(found), 40)
    assert lengths.min() > 40 - 5  # what another `and` needs
    assert (ids[np.arange(len(ids)), lengths - 1] == END).all()
    assert ((ids == PAD).sum(axis=1) == 40 - lengths).all()


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros((4, CONFIG.dimension), np.float32),
        1e6 * VECTORS,
        VECTORS.astype(np.float64),
        np.ones((2, CONFIG.dimension), int),
    ],
)
def test_any_finite_vector_has_formulae(vectors: np.ndarray) -> None:
    assert len(GENERATOR.greedy(vectors)) == len(vectors)
    assert len(GENERATOR.sample(vectors, 2)) == len(vectors)


def test_no_vectors_have_no_formulae() -> None:
    none = VECTORS[:0]
    assert GENERATOR.greedy(none) == GENERATOR.sample(none, 3) == GENERATOR.beam(none, 3) == []


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.zeros((4, 25)), r"shape \(B, 24\), not \(4, 25\); this decoder"),
        (np.zeros(24), r"not \(24,\)"),
        (np.zeros((2, 2, 24)), "shape"),
        (np.full((2, 24), np.nan), "finite"),
        (np.full((2, 24), np.inf), "finite"),
        (np.full((2, 24), "x"), "finite"),
    ],
)
def test_what_is_no_vector_is_refused(vectors: np.ndarray, message: str) -> None:
    calls: list[Any] = [
        lambda: GENERATOR.greedy(vectors),
        lambda: GENERATOR.sample(vectors, 2),
        lambda: GENERATOR.beam(vectors, 2),
    ]
    for call in calls:
        with pytest.raises(RhovecError, match=message):
            call()


def test_options_out_of_range_are_refused() -> None:
    for options in ({"samples": 0}, {"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}):
        with pytest.raises(RhovecError, match="samples must be 1 or more"):
            GENERATOR.sample(VECTORS, **{"samples": 2, **options})  # type: ignore[arg-type]
    with pytest.raises(RhovecError, match="GiB of memory; ask for fewer samples"):
        GENERATOR.sample(VECTORS, 10**12)
    with pytest.raises(RhovecError, match="width of a beam"):
        GENERATOR.beam(VECTORS, 0)
    with pytest.raises(FormulaError, match="raise the limits"):
        GENERATOR.greedy(VECTORS, max_nodes=0)


def test_text_decoders_are_for_comparison() -> None:
    with pytest.raises(RhovecError, match="only a decoder with prefix tokens"):
        Generator(*tiny_decoder(tokens="text"))
    with pytest.raises(RhovecError, match="tokens must be prefix or text"):
        tiny_decoder(tokens="tree")


def test_no_torch_is_needed() -> None:
    code = "import sys; sys.modules['torch'] = None; import rhovec.models.generate"
    source = str(Path(rv.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source}, check=True
    )
