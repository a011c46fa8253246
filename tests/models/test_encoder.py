"""The encoder in torch: attention within formulae, and the head that makes vectors of directions."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from rhovec.corpus.families import Recipe, draw_families  # noqa: E402
from rhovec.models.config import EncoderConfig  # noqa: E402
from rhovec.models.encoder import Encoder, HeadModule, Packed, pack, sequence_starts  # noqa: E402
from rhovec.models.heads import Nystrom  # noqa: E402


def test_fitted_features_give_the_kernel_of_directions() -> None:
    torch.manual_seed(0)
    head = HeadModule(Nystrom(EncoderConfig(width=32, heads=4, dimension=256)))
    x = torch.randn(6600, 4) @ torch.randn(4, 32)
    known, others = x[:6000], x[6000:]
    away = ~torch.eye(600, dtype=torch.bool)

    def errors() -> list[float]:
        found = []
        for part in (known[:600], others):
            vectors, directions = head(part), head.rows(part)
            kernel = torch.exp(5 * (directions @ directions.T - 1))
            gap = vectors @ vectors.T - kernel
            assert torch.allclose(gap.diagonal(), torch.zeros(600), atol=1e-5)
            found.append(gap[away].abs().mean().item())
        return found

    before = errors()
    head.fit(head.rows(known))
    after = errors()
    assert max(after) < 0.01 < 0.2 * min(before), (before, after)


def test_far_from_all_landmarks_low_frequencies_give_the_kernel() -> None:
    """Landmarks lie in few dimensions; what is asked for lies across them, at a cosine of 0.9."""
    torch.manual_seed(0)
    head = HeadModule(Nystrom(EncoderConfig(width=32, heads=4, dimension=256)))
    inside, across = torch.linalg.qr(torch.randn(96, 8))[0].T.split(4)
    head.fit(torch.nn.functional.normalize(torch.randn(1500, 4) @ inside, dim=1))
    head.rows = lambda x: x  # type: ignore[method-assign]
    first = torch.nn.functional.normalize(torch.randn(300, 4) @ across, dim=1)
    step = torch.randn(300, 4) @ across
    step = torch.nn.functional.normalize(step - (step * first).sum(1, keepdim=True) * first, dim=1)
    second = 0.9 * first + (1 - 0.9**2) ** 0.5 * step
    similarity = (head(first) * head(second)).sum(1)
    assert abs(similarity.mean().item() - math.exp(-0.5)) < 0.05, similarity.mean()


def text_encoder(pooling: str = "cls") -> tuple[Encoder, Packed]:
    """A small encoder of text, and formulae of one to many tokens, in rows with and without padding."""
    config = EncoderConfig(
        tokens="text", pooling=pooling, width=64, layers=2, heads=2, dimension=64, head="projector",
        channels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    encoder = Encoder(config)
    for block in encoder.blocks:  # which begin with zeros
        torch.nn.init.normal_(block.down, std=0.1)
    programs = draw_families(Recipe(seed=3), np.arange(12)).programs
    return encoder, pack(programs, config)


def test_sequences_are_the_formulae_and_the_padding() -> None:
    _, tokens = text_encoder()
    owner = tokens.owner
    starts = sequence_starts(owner, len(tokens.pick))
    assert len(starts) == len(tokens.pick) + len(owner) + 1
    assert starts[0] == 0 and starts[-1] == owner.numel()
    number = torch.searchsorted(starts, torch.arange(owner.numel()), right=True).view(owner.shape)
    same = number[:, :, None] == number[:, None, :]
    assert (same == (owner[:, :, None] == owner[:, None, :])).all()
    edges = number[1:, 0] != number[:-1, -1]
    assert edges.all()  # no sequence goes on in the next row
    whole = torch.tensor([[0, 0, 1], [2, -1, -1], [-1, -1, -1]])
    assert sequence_starts(whole, 3).tolist() == [0, 2, 3, 3, 4, 6, 9]


@pytest.mark.gpu
@pytest.mark.parametrize("pooling", ["cls", "bos", "mean"])
def test_attention_by_sequences_is_attention_by_mask(pooling: str) -> None:
    encoder, tokens = text_encoder(pooling)
    encoder.cuda()
    tokens = tokens.map(Tensor.cuda)
    exact = encoder.rows(tokens)
    exact[:, 0].sum().backward()
    gradient = encoder.blocks[0].qkv.grad.clone()
    encoder.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        found = encoder.rows(tokens)
    found[:, 0].sum().backward()
    torch.testing.assert_close(found.float(), exact, atol=0.02, rtol=0.02)
    close = torch.nn.functional.cosine_similarity
    assert close(encoder.blocks[0].qkv.grad.flatten(), gradient.flatten(), dim=0) > 0.99
