"""The encoder as a torch module: the model's vectors, with gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError

torch = pytest.importorskip("torch")

from .tiny import save_tiny  # noqa: E402

FORMULAE = ["always[0,5] x_0 >= 1", "x_1 < 0 until[1,4] x_2 > 1", "x_0 > 0"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> rv.Model:
    return rv.load(save_tiny(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("kind", ["kernel", "cosine"])
def test_its_vectors_are_the_models(model: rv.Model, kind: str) -> None:
    module = model.module(kind=kind)  # type: ignore[arg-type]
    wanted = model.embed(FORMULAE, kind=kind)  # type: ignore[arg-type]
    found = module(FORMULAE)
    assert found.requires_grad and found.shape == (3, module.dimension)
    np.testing.assert_allclose(found.detach(), wanted, atol=2e-5)
    np.testing.assert_allclose(module(module.pack(FORMULAE)).detach(), wanted, atol=2e-5)
    one = module(FORMULAE[0])
    assert one.shape == (module.dimension,)
    np.testing.assert_allclose(one.detach(), wanted[0], atol=2e-5)


def test_gradients_reach_all_layers_and_training_changes_only_the_module(model: rv.Model) -> None:
    module = model.module(kind="cosine")
    before = model.embed(FORMULAE)
    tokens = module.pack(FORMULAE)
    target = torch.zeros(module.dimension)
    target[0] = 1
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        loss = (module(tokens) - target).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for layer in (module.encoder.inputs, *module.encoder.blocks):
        assert all(p.grad is not None and p.grad.any() for p in layer.parameters())
    assert (model.embed(FORMULAE) == before).all()
    assert model.module()(FORMULAE).detach() == pytest.approx(before, abs=2e-5)
    assert module.features(tokens).shape == (3, model.encoder.width)


def test_a_state_survives(model: rv.Model, tmp_path: Path) -> None:
    module = model.module()
    with torch.no_grad():
        next(module.parameters()).add_(0.01)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    again = model.module()
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(again(FORMULAE), module(FORMULAE))


def test_bad_input(model: rv.Model) -> None:
    with pytest.raises(RhovecError, match="kind must be"):
        model.module(kind="anchors")  # type: ignore[arg-type]
    with pytest.raises(RhovecError, match="the model knows x_0"):
        model.module()("always x_9 > 0")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_of_another_type_are_refused(model: rv.Model, dtype: torch.dtype) -> None:
    module = model.module()
    tokens = module.pack("x_0 > 0")
    module.to(dtype)
    for work in (module, module.features):
        with pytest.raises(RhovecError, match="must be float32, not "):
            work(tokens)
    vectors = module.float()("x_0 > 0")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.allclose(module("x_0 > 0").float(), vectors, atol=0.1)
