"""The encoder and its training loop, at a size for a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.formula.programs import Programs

torch = pytest.importorskip("torch")
from rhovec.models.encoder import Encoder, EncoderConfig  # noqa: E402
from rhovec.training.distill import Config, embed, kernel_matrix, train  # noqa: E402
from rhovec.training.optimisers import orthogonal  # noqa: E402

SMALL = {"width": 32, "layers": 2, "heads": 2, "dimension": 32}


def test_a_vector_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(**SMALL))
    torch.nn.init.normal_(encoder.relation)
    formulae = rv.random_formulae(50, seed=1)
    whole = embed(encoder, Programs.pack(formulae))
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    shuffled = np.random.default_rng(0).permutation(50)
    again = embed(encoder, Programs.pack([formulae[i] for i in shuffled]), chunk=7)
    assert np.abs(again - whole[shuffled]).max() <= 1e-5


def test_training_learns_and_is_repeatable(tmp_path: Path) -> None:
    runs = []
    for name in ("a", "b"):
        config = Config(
            out=str(tmp_path / name), steps=25, batch=64, signals=64, rows=40, warmup=5, every=1,
            lr=5e-3, adam_lr=5e-3, workers=1, **SMALL,
        )  # fmt: skip
        encoder = train(config)
        lines = [
            json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()
        ]
        runs.append((lines, torch.cat([p.flatten() for p in encoder.parameters()])))
    (lines, weights), (_, same_weights) = runs
    assert torch.equal(weights, same_weights)
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:3])


def test_the_target_is_the_kernel() -> None:
    formulae = rv.random_formulae(20, seed=2)
    x = rv.BaseMeasure().sample(500, seed=5)
    got = kernel_matrix(Programs.pack(formulae), torch.from_numpy(x), 0.2).numpy()
    want = rv.StlKernel(rv.Trajectories(x)).gram(formulae)
    assert np.abs(got - want).max() < 1e-4


def test_orthogonal() -> None:
    matrices = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(0))
    for wide in (matrices, matrices.mT):
        values = torch.linalg.svdvals(orthogonal(wide))
        assert values.min() > 0.6
        assert values.max() < 1.3
