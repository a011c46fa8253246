"""The decoder's training on a CPU: it learns, goes on after a kill, and its targets are right."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula.programs import Programs

from ..models.tiny import save_tiny

torch = pytest.importorskip("torch")
from rhovec.models import store  # noqa: E402
from rhovec.models.decoder import Decoder  # noqa: E402
from rhovec.models.decoder_config import DecoderConfig  # noqa: E402
from rhovec.models.generate import Generator  # noqa: E402
from rhovec.models.model import DEFAULT  # noqa: E402
from rhovec.tokens.prefix import PAD, prefix_tokens  # noqa: E402
from rhovec.training import device, invert, loop, records  # noqa: E402
from rhovec.training.invert import Config, train  # noqa: E402
from rhovec.training.publish import publish_decoder  # noqa: E402
from rhovec.training.vectors import Anchors, Neural, vector_source  # noqa: E402

from .killing import assert_same_log, stopped_and_resumed, weights_after_kills  # noqa: E402


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = save_tiny(tmp_path_factory.mktemp("model"))
    return Config(
        steps=4, batch=16, model=str(folder), traces=64, lr=5e-3, adam_lr=5e-3, warmup=3, width=32,
        layers=2, heads=2, prefix=2, dimension=24, length=100, workers=2, every=1, validate=2, shown=4,
    )  # fmt: skip


def flat(decoder: Any) -> Any:
    return torch.cat([p.detach().flatten() for p in decoder.parameters()])


def first_work(config: Config) -> invert.Work:
    stream = invert.work_ahead(config, vector_source(config))
    work = next(stream)
    stream.close()
    return work


@pytest.fixture(scope="module")
def whole(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run that was left alone, and its weights."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, flat(train(tiny, folder))


def test_training_learns(tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch, over and over: its formulae are learnt."""
    work = first_work(tiny)
    monkeypatch.setattr(invert, "work_ahead", lambda *_: (w for w in repeat(work)))
    train(replace(tiny, steps=40, validate=40, width=64), tmp_path)
    lines = records.read_log(tmp_path)
    assert lines[-1]["loss"] < 0.35 * lines[0]["loss"]
    assert lines[-1]["accuracy"] > 0.5 > lines[0]["accuracy"]
    assert {"valid_loss", "valid_accuracy", "valid_exact", "valid_cosine"} <= set(lines[-1])
    assert lines[-1]["valid_valid"] == 1
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "changes",
    [
        {"vectors": "anchors", "optimiser": "adamw", "average": 0.0},
        {"tokens": "text", "corpus": "families", "length": 240, "noise": 0.0, "channels": 3},
    ],
    ids=str,
)
def test_every_option_trains(tiny: Config, changes: dict[str, Any], tmp_path: Path) -> None:
    train(replace(tiny, steps=2, validate=2, **changes), tmp_path)
    assert [line["step"] for line in records.read_log(tmp_path)] == [1, 2]


# -- going on ----------------------------------------------------------------------------------------


def test_a_run_goes_on_from_its_checkpoint(
    tiny: Config, whole: tuple[Path, Any], tmp_path: Path
) -> None:
    assert torch.equal(flat(stopped_and_resumed(train, tiny, tmp_path)), whole[1])
    assert_same_log(tmp_path, whole[0], ("step", "loss", "accuracy", "valid_loss", "valid_cosine"))


def test_killed_at_any_moment(tiny: Config, whole: tuple[Path, Any], tmp_path: Path) -> None:
    """The parameters are those of a run that was left alone."""
    found = weights_after_kills("rhovec.training.invert", tiny, tmp_path, kills=2)
    assert torch.equal(found, whole[1])


def test_batches_are_the_stream_cut_anywhere(tiny: Config) -> None:
    source = vector_source(tiny)
    stream = invert.work_ahead(replace(tiny, workers=3), source)
    first, second = next(stream), next(stream)
    stream.close()
    again = invert.work_ahead(replace(tiny, workers=1), source, first.next)
    same = next(again)
    again.close()
    assert torch.equal(same.labels, second.labels)
    assert torch.equal(same.rows.ids, second.rows.ids)
    assert torch.equal(source(same.asked), source(second.asked))
    assert not torch.equal(first.labels, second.labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 100}, "batch must be a multiple of 16"),
        ({"vectors": "both"}, "vectors must be"),
        ({"corpus": "none"}, "corpus must be"),
        ({"optimiser": "sgd"}, "optimiser must be"),
        ({"tokens": "bytes"}, "tokens must be"),
        ({"heads": 3}, "multiple of heads"),
        ({"model": "nowhere/at/all"}, "there is no model"),
    ],
)
def test_wrong_fields_are_named(
    tiny: Config, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RhovecError, match=message):
        train(replace(tiny, **changes), tmp_path)
    with pytest.raises(RhovecError, match="preset"):
        loop.preset(invert.PRESETS, "huge")


def test_the_shape_of_the_vectors_is_the_encoders(tiny: Config) -> None:
    assert invert.for_model(replace(tiny, dimension=25, points=7)).dimension == tiny.dimension
    with pytest.raises(RhovecError, match="dimension must be the encoder's, 1024"):
        invert.DecoderTask(replace(tiny, model="", dimension=25))


def test_a_run_goes_on_with_the_same_encoder_only(tiny: Config, tmp_path: Path) -> None:
    asked = replace(tiny, model=str(save_tiny(tmp_path / "model")), steps=2)
    train(asked, tmp_path / "run")
    about, tensors = store.read(tmp_path / "model")
    facts = {name: about[name] for name in store.FACTS}
    tensors["head.norm.bias"] += 1
    store.save(tmp_path / "model", about["encoder"], tensors, facts)
    with pytest.raises(RhovecError, match=r"holds a run with fingerprint \w+, not \w+; choose"):
        train(asked, tmp_path / "run")


# -- the pieces ----------------------------------------------------------------------------------------


def test_targets_mean_what_is_given_and_are_simpler(tiny: Config) -> None:
    parts = invert.recipes(replace(tiny, batch=512))
    given, targets = invert.draw(parts, [np.arange(n) for _, n in parts], 100)
    assert len(given) == len(targets) == sum(n for _, n in parts) == 512
    x = rv.BaseMeasure(n_variables=8).sample(16, seed=0)
    assert np.array_equal(rv.robustness(given.unpack(), x), rv.robustness(targets.unpack(), x))
    sizes, simple = np.diff(given.offsets), np.diff(targets.offsets)
    assert simple.mean() < 0.75 * sizes.mean()
    rewritten = sum(n for recipe, n in parts if recipe.shares[1] == 1)
    assert rewritten == 128
    families = invert.recipes(replace(tiny, corpus="families"))
    given, targets = invert.draw(families, [np.arange(16)], 100)
    assert given.unpack() == targets.unpack()


@pytest.mark.parametrize("rows", [None, 40])
def test_packed_sequences_have_the_loss_of_single_ones(tiny: Config, rows: int | None) -> None:
    config = loop.part_of(replace(tiny, length=60), DecoderConfig)
    parts = invert.recipes(replace(tiny, batch=32))
    _, targets = invert.draw(parts, [np.arange(n) for _, n in parts], 100)
    torch.manual_seed(0)
    decoder = Decoder(config)
    torch.nn.init.normal_(decoder.output.weight)  # which begins as zero
    for block in decoder.blocks:
        torch.nn.init.normal_(block.down, std=0.2)
    vectors = torch.nn.functional.normalize(torch.randn(len(targets), config.dimension), dim=1)
    packed, labels = invert.pack_rows(targets, config, rows)
    loss, right = invert.token_loss(decoder, packed, vectors, labels)
    loss.backward()
    gradient = decoder.vector.weight.grad.clone()
    decoder.zero_grad()

    ids, lengths = prefix_tokens(targets, 200)
    fits = lengths <= config.length
    assert 0 < (~fits).sum() < len(fits)  # those are left out
    tokens = torch.from_numpy(ids[fits, : config.length]).long()
    logits = decoder(vectors[torch.from_numpy(fits)], tokens[:, :-1]).flatten(0, 1)
    wanted = tokens[:, 1:].flatten()
    want = torch.nn.functional.cross_entropy(logits, wanted, ignore_index=PAD)
    want.backward()
    assert loss.item() == pytest.approx(want.item(), rel=1e-5)
    assert torch.allclose(gradient, decoder.vector.weight.grad, atol=1e-5)
    known = wanted != PAD
    share = (logits.argmax(-1) == wanted)[known].float().mean()
    assert right.item() == pytest.approx(share.item())
    with pytest.raises(RhovecError, match="rows"):
        invert.pack_rows(targets, config, 1)


def test_vectors_are_the_models(tiny: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "has_bfloat16", lambda kind: False)
    formulae = rv.random_formulae(30, seed=1)
    source = Neural(tiny)
    want = rv.load(tiny.model).embed(formulae, warn=False)
    programs = Programs.pack(formulae)
    assert np.abs(source.embed(programs).numpy() - want).max() < 1e-5
    assert np.abs(source(source.prepare(programs)).numpy() - want).max() < 1e-5


def test_anchor_vectors_are_the_kernels(tiny: Config) -> None:
    config = replace(tiny, vectors="anchors", traces=300)
    source = Anchors(config)
    formulae = rv.random_formulae(20, seed=1)
    kernel = rv.StlKernel(rv.TraceMeasure(source.traces.numpy()), sigma2=config.sigma2)
    want = kernel.gram(formulae, source.anchors.unpack())
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    assert want.shape == (20, config.dimension)
    assert np.abs(source.embed(Programs.pack(formulae)).numpy() - want).max() < 1e-4
    assert torch.equal(source.unit, Anchors(config).unit)
    for channels in (3, 8):
        anchors = Anchors(replace(config, channels=channels)).anchors.unpack()
        assert len(set(anchors)) == config.dimension


def test_noise_has_the_length_that_is_asked_for() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(50, 1024), dim=1)
    moved = invert.disturbed(vectors, 0.1, torch.Generator().manual_seed(0))
    assert torch.allclose(moved.norm(dim=1), torch.ones(50))
    assert (moved - vectors).norm(dim=1).mean() == pytest.approx(0.1, rel=0.02)
    assert invert.disturbed(vectors, 0.0, torch.Generator()) is vectors


def test_what_is_published_is_read_back(
    tiny: Config, whole: tuple[Path, Any], tmp_path: Path
) -> None:
    decoder = Decoder(loop.part_of(tiny, DecoderConfig))
    with torch.no_grad():
        for p in decoder.parameters():
            if p.ndim > 1:
                torch.nn.init.normal_(p, std=0.5)
    figures = publish_decoder(tmp_path, tiny, decoder, shown=16)
    assert figures["valid"] == 1
    found = store.read_decoder(tmp_path / "model")
    assert found is not None
    assert found[0] == decoder.config
    generator = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(8, 24, generator=generator), dim=1)
    assert Generator(*found).greedy(vectors.numpy()) == invert.greedy(decoder, vectors)

    again = replace(tiny, origin=str(tmp_path / "model"), steps=1, lr=0.0, adam_lr=0.0)
    assert torch.equal(flat(train(again, tmp_path / "again")), flat(decoder))
    other = replace(again, width=64)
    unlike = replace(again, model=str(save_tiny(tmp_path / "unlike", dimension=32)))
    with pytest.raises(RhovecError, match="reads vectors of 24 numbers, and the model makes 32"):
        train(unlike, tmp_path / "unlike run")
    with pytest.raises(RhovecError, match=r"the origin has width .*, not 64: set"):
        train(other, tmp_path / "other")
    with pytest.raises(RhovecError, match="origin shipped reads vectors of 1024 numbers"):
        train(replace(again, origin="shipped"), tmp_path / "shipped")
    with pytest.raises(RhovecError, match="no decoder to start from"):
        train(replace(again, origin=tiny.model), tmp_path / "none")


@pytest.mark.parametrize("name", ["adapt", "adapt-cpu"])
def test_presets_for_your_own_traces_begin_with_the_shipped_decoder(
    name: str, tmp_path: Path
) -> None:
    model = save_tiny(tmp_path / "model", dimension=1024, channels=3, points=25)
    small = {
        "steps": 1,
        "batch": 16,
        "lr": 0.0,
        "adam_lr": 0.0,
        "validate": 1,
        "shown": 4,
        "average": 0.0,
    }
    config = loop.preset(invert.PRESETS, name, model=str(model), device="cpu", **small)
    found = train(config, tmp_path / "run")
    about, tensors = store.read_decoder(DEFAULT) or (None, {})
    assert found.config == about
    for key, weight in found.state_dict().items():
        np.testing.assert_array_equal(weight, tensors[key])


def test_greedy_text_is_a_formula_or_none(tiny: Config) -> None:
    config = replace(tiny, tokens="text", length=24)
    torch.manual_seed(0)
    decoder = Decoder(loop.part_of(config, DecoderConfig))
    assert invert.greedy(decoder, torch.randn(3, 24)) == [None] * 3  # `unk` all along
    ids = [2, 34, 17, 24, 34, 12, 34, 25, 34, 3, 1, 1]
    assert invert._read(ids, True) == rv.parse("x_0 >= 1")


def test_what_has_no_vector_is_no_answer(tiny: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x_0 > x_1", "x_8 > 1", "x_0 > 1e60", "( x_0 > 1 -> x_7 < 2 )"]
    written = [None, *map(rv.parse, texts)]
    assert [invert.readable(phi, 8) for phi in written] == [None] * 4 + written[4:]
    monkeypatch.setattr(invert, "greedy", lambda *_: written[1:])
    decoder = Decoder(loop.part_of(tiny, DecoderConfig))
    figures = invert.Validation(tiny, vector_source(tiny)).measure(decoder)
    assert figures["valid"] == 0.25
    assert np.isfinite(figures["cosine"])


@pytest.mark.gpu
@pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.")  # its compiler warns of itself
def test_a_recorded_step_is_the_step(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(tiny, steps=20, validate=20, device="cuda")
    train(config, tmp_path / "recorded")
    monkeypatch.setattr(device.Recorded, "WARM_UP", 10**9)
    train(config, tmp_path / "plain")
    one, other = (
        [line["loss"] for line in records.read_log(tmp_path / name)]
        for name in ("recorded", "plain")
    )
    assert len(one) == 20
    assert one == pytest.approx(other, rel=0.02)
