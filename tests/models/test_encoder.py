"""The head that makes vectors of directions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rhovec.models.config import EncoderConfig  # noqa: E402
from rhovec.models.encoder import Landmarks  # noqa: E402


def test_settled_landmarks_give_the_kernel_of_directions() -> None:
    torch.manual_seed(0)
    head = Landmarks(EncoderConfig(width=32, heads=4, dimension=256))
    x = torch.randn(6600, 4) @ torch.randn(4, 32)
    known, others = x[:6000], x[6000:]
    away = ~torch.eye(600, dtype=torch.bool)

    def errors() -> list[float]:
        found = []
        for part in (known[:600], others):
            vectors, directions = head(part), head.directions(part)
            kernel = torch.exp(5 * (directions @ directions.T - 1))
            gap = vectors @ vectors.T - kernel
            assert torch.allclose(gap.diagonal(), torch.zeros(600), atol=1e-5)
            found.append(gap[away].abs().mean().item())
        return found

    before = errors()
    head.settle(head.directions(known))
    after = errors()
    assert max(after) < 0.01 < 0.2 * min(before), (before, after)
