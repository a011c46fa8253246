"""A head of one's own: one class, with which a model is trained, stored, loaded and asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.models import store
from rhovec.models.config import EncoderConfig
from rhovec.models.heads import HEADS, Head
from rhovec.models.layers import normalise, unit

from .tiny import save_tiny

FORMULAE = rv.random_formulae(40, seed=2)


class Bilinear(Head):
    """Directions d, and vectors (1, c * d) / |(1, c * d)|, where c is fitted: a crude kernel."""

    name = "bilinear"
    kind = "cosine"
    fitted = ("scale",)
    min_bank = 10

    @property
    def row_dimension(self) -> int:
        return self.config.dimension - 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"map.weight": (self.row_dimension, self.config.width), "scale": (1,)}

    def initial(self) -> dict[str, Any]:
        import torch

        return {"map.weight": torch.randn(self.shapes()["map.weight"]), "scale": torch.zeros(1)}

    def rows(self, tensors: Mapping[str, Any], x: Any) -> Any:
        from torch.nn import functional as F

        normed = F.layer_norm(x.float(), x.shape[-1:])
        return F.normalize(normed @ tensors["map.weight"].T, dim=-1)

    def vectors(self, tensors: Mapping[str, Any], rows: Any) -> Any:
        from torch.nn import functional as F

        return F.normalize(F.pad(tensors["scale"] * rows, (1, 0), value=1.0), dim=-1)

    def fit(self, tensors: Mapping[str, Any], rows: Any, like: Any = None) -> None:
        tensors["scale"].fill_(len(rows) ** 0.1)

    def numpy_rows(self, tensors: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        return unit(normalise(x)[:, :-1] @ tensors["map.weight"].T)

    def numpy_vectors(self, tensors: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        return unit(np.pad(tensors["scale"] * rows, ((0, 0), (1, 0)), constant_values=1))


def test_it_is_trained_stored_loaded_and_asked(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from rhovec.training.distill import Config, train
    from rhovec.training.publish import publish_encoder

    config = Config(
        steps=2, batch=64, traces=32, warmup=1, width=32, layers=1, heads=2, dimension=21,
        head="bilinear", sigma2=0.5, bank=64, workers=1, every=1, validate=2,
    )  # fmt: skip
    encoder = train(config, tmp_path)
    assert encoder.head.get_parameter("scale").item() == pytest.approx(64**0.1)
    publish_encoder(tmp_path, config, encoder, traces=32, families=2)
    model, torch_model = rv.load(tmp_path / "model"), rv.load(tmp_path / "model", device="cpu")
    assert model.encoder.head == "bilinear"
    kinds: list[tuple[Any, int]] = [("kernel", 21), ("cosine", 20)]
    for kind, dimension in kinds:
        vectors = model.embed(FORMULAE, kind=kind, warn=False)
        assert vectors.shape == (40, dimension)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        again = torch_model.embed(FORMULAE, kind=kind, warn=False)
        assert np.abs(again - vectors).max() < 1e-5
    model.save(tmp_path / "copy")
    assert (rv.load(tmp_path / "copy").embed(FORMULAE[0]) == model.embed(FORMULAE[0])).all()


def test_without_its_class_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny(tmp_path, head="bilinear")
    assert store.read(tmp_path)[0]["encoder"]["head"] == "bilinear"
    monkeypatch.delitem(HEADS, "bilinear")
    with pytest.raises(RhovecError, match="not 'bilinear'; to use a head of your own, import"):
        store.read(tmp_path)


def test_a_name_is_given_once() -> None:
    with pytest.raises(RhovecError, match="there is a head 'landmarks' already"):
        type("Other", (Bilinear,), {"name": "landmarks"})
    assert EncoderConfig(head="landmarks") == EncoderConfig(head="nystrom")
