"""The head that makes vectors of directions: Nyström and random Fourier features."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from rhovec.models.config import EncoderConfig  # noqa: E402
from rhovec.models.encoder import HeadModule  # noqa: E402
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
