"""The decoder in torch: its shape is the config's, it is causal, and all of it takes part."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rhovec.errors import RhovecError
from rhovec.models.decoder_config import DecoderConfig
from rhovec.tokens.prefix import BEGIN, VOCABULARY

from .tiny_decoder import tiny_decoder

torch = pytest.importorskip("torch")

from rhovec.models.decoder import Decoder  # noqa: E402


def decoder() -> Decoder:
    config, tensors = tiny_decoder()
    out = Decoder(config)
    out.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    return out


def inputs(batch: int = 3, length: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((batch, 24), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = rng.integers(VOCABULARY, size=(batch, length)).astype(np.int16)
    ids[:, 0] = BEGIN
    return torch.from_numpy(vectors), torch.from_numpy(ids)


def test_tensors_are_those_of_the_config() -> None:
    for config in (DecoderConfig(), tiny_decoder()[0], tiny_decoder(tokens="text")[0]):
        state = Decoder(config).state_dict()
        assert {name: tuple(tensor.shape) for name, tensor in state.items()} == config.shapes()


def test_the_default_is_small_enough_to_ship() -> None:
    shapes = DecoderConfig().shapes().values()
    assert sum(math.prod(s) * (2 if len(s) > 1 else 4) for s in shapes) < 15e6


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(RhovecError, match="multiple of heads"):
        DecoderConfig(width=30, heads=4)


@torch.no_grad()
def test_a_token_sees_what_stands_before_it() -> None:
    model = decoder()
    vectors, ids = inputs()
    logits = model(vectors, ids)
    assert logits.shape == (3, 12, VOCABULARY)
    for at in range(1, 12):
        other = ids.clone()
        other[:, at] = (other[:, at] + 1) % VOCABULARY
        changed = (model(vectors, other) - logits).abs().amax(-1)
        assert changed[:, :at].max() <= 1e-5
        assert changed[:, at:].min() > 1e-3
    assert (model(vectors, ids[:, :5]) - logits[:, :5]).abs().max() <= 1e-5
    assert (model(vectors[1:2], ids[1:2]) - logits[1:2]).abs().max() <= 1e-5
    assert (model(-vectors, ids) - logits).abs().amax(-1).min() > 1e-3


def test_all_of_it_takes_part() -> None:
    model = decoder()
    vectors, ids = inputs()
    torch.nn.functional.cross_entropy(
        model(vectors, ids)[:, :-1].flatten(0, 1), ids[:, 1:].long().flatten()
    ).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_a_new_decoder_knows_nothing_and_is_well_scaled() -> None:
    model = Decoder(DecoderConfig(layers=1))
    vectors = torch.nn.functional.normalize(torch.randn(64, 1024), dim=-1)
    assert (model(vectors, torch.full((64, 1), BEGIN)) == 0).all()
    assert 0.8 < model.vector(vectors).std() / model.token.weight.std() < 1.2
