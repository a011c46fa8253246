"""The training loop, at a size for a CPU: it learns, goes on after a kill, and shares its work."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula.programs import Programs

torch = pytest.importorskip("torch")
from torch.nn.functional import pad  # noqa: E402

from rhovec.kernel import kernel_of_cosine  # noqa: E402
from rhovec.models.config import EncoderConfig  # noqa: E402
from rhovec.models.encoder import Packed, pack  # noqa: E402
from rhovec.training import device, distill, loop, records  # noqa: E402
from rhovec.training.distill import Config, pair_loss, train  # noqa: E402
from rhovec.training.optimisers import Muon, orthogonal  # noqa: E402
from rhovec.training.publish import publish_encoder  # noqa: E402
from rhovec.training.teachers import unit_robustness  # noqa: E402

from .killing import assert_same_log, stopped_and_resumed, weights_after_kills  # noqa: E402

TINY = Config(
    steps=6, batch=64, traces=64, lr=5e-3, adam_lr=5e-3, warmup=3, width=32,
    layers=2, heads=2, dimension=32, bank=256, workers=2, every=1, validate=2,
)  # fmt: skip


def flat(encoder: Any) -> Any:
    return torch.cat([p.detach().flatten() for p in encoder.parameters()])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run that was left alone, and its weights."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, flat(train(TINY, folder))


def test_training_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch, over and over: its pairs are learnt."""
    stream = distill.EncoderTask(TINY).batches(None)
    work = next(stream)
    stream.close()
    monkeypatch.setattr(distill, "work_ahead", lambda *_: (w for w in repeat(work)))
    train(replace(TINY, steps=60, validate=30), tmp_path)
    lines = records.read_log(tmp_path)
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-5:]) < 0.2 * np.mean(losses[:5])
    assert lines[-1]["alignment"] > 0.8
    assert {"valid_alignment", "valid_uniformity", "valid_loss"} <= set(lines[-1])
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": "text", "pooling": "mean", "corpus": "families", "channels": 3},
        {"pooling": "bos", "loss": "focal", "optimiser": "adamw", "accumulate": 2, "average": 0.0},
        {"batch": 128, "block": 64, "late": 2},
    ],
    ids=str,
)
def test_every_option_trains(changes: dict[str, Any], tmp_path: Path) -> None:
    train(replace(TINY, steps=2, validate=1, **changes), tmp_path)
    assert [line["step"] for line in records.read_log(tmp_path)] == [1, 2]


def test_a_head_is_fitted_once_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last validation and the end of a run fitted the same head on the same formulae."""
    made = []
    fit = distill.finished
    monkeypatch.setattr(distill, "finished", lambda *given: made.append(fit(*given)) or made[-1])
    config = replace(TINY, steps=2, validate=1)
    assert train(config, tmp_path / "a") is made[1] and len(made) == 2


def test_validations_are_in_the_log_whatever_else_is(tmp_path: Path) -> None:
    train(replace(TINY, steps=6, every=4, validate=3), tmp_path)
    lines = records.read_log(tmp_path)
    assert [(line["step"], "valid_loss" in line) for line in lines] == [
        (3, True), (4, False), (6, True)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Config]:
    """An encoder whose model is stored, and a run that begins with it and learns nothing."""
    folder = tmp_path_factory.mktemp("origin")
    encoder = train(replace(TINY, steps=2), folder)
    publish_encoder(folder, TINY, encoder, traces=64, families=4)
    return encoder, replace(TINY, origin=str(folder / "model"), steps=1, lr=0.0, adam_lr=0.0)


def test_a_run_begins_with_another_models_weights(
    origin: tuple[Any, Config], tmp_path: Path
) -> None:
    first, config = origin
    again = train(config, tmp_path / "again")
    for name, p in first.named_parameters():  # rounded by publishing
        # The others are fitted again, or turned towards the origin's.
        if p.requires_grad and name != "head.direction":
            assert torch.equal(p, again.get_parameter(name)), name
    pooled = train(replace(config, pooling="mean"), tmp_path / "pooling")
    assert torch.equal(flat(pooled.blocks), flat(first.blocks))
    other = train(replace(config, head="projector"), tmp_path / "head")
    assert torch.equal(flat(other.blocks), flat(first.blocks))
    longer = train(replace(config, dimension=64), tmp_path / "dimension")
    for name, p in first.named_parameters():
        if p.requires_grad:
            assert torch.equal(p, longer.get_parameter(name)), name
    with pytest.raises(RhovecError, match="the origin has layers 2, not 3: set"):
        train(replace(config, layers=3), tmp_path / "other")


def test_vectors_are_turned_towards_the_origins(origin: tuple[Any, Config]) -> None:
    """Directions that were turned by training are turned back, and inner products do not change."""
    first, config = origin
    generator = torch.Generator().manual_seed(0)
    turned = torch.linalg.qr(torch.randn(96, 96, generator=generator))[0]
    weights = [
        turned @ p.detach() if name == "head.direction" else p.detach().clone()
        for name, p in first.named_parameters()
    ]
    found = distill.finished(weights, config, config.bank)
    alone = distill.finished(weights, replace(config, origin=""), config.bank)
    formulae = [rv.parse(f"eventually[0,{n}] x_{n % 3} > {n / 9}") for n in range(1, 20)]
    tokens = pack(Programs.pack(formulae), found.config)
    vectors, there, other = (encoder(tokens).detach() for encoder in (found, first, alone))
    assert (vectors * there).sum(1).mean() > 0.9 > (other * there).sum(1).mean() + 0.2
    assert torch.allclose(found.rows(tokens), first.rows(tokens), atol=1e-4)
    half = vectors[:, :16] @ vectors[:, :16].T  # the other half are waves, which are random
    assert torch.allclose(half, other[:, :16] @ other[:, :16].T, atol=1e-4)


def test_a_run_begins_with_a_model_for_other_points(
    origin: tuple[Any, Config], tmp_path: Path
) -> None:
    """Bounds within both lengths, and no bound, mean what they did; those beyond are the farthest."""
    first, config = origin
    within, beyond = (
        Programs.pack([rv.parse(f"always[{bounds}] x_0 > 1 until x_1 < 0") for bounds in texts])
        for texts in (("3,4", "3,18", "3,inf"), ("30,60", "40,inf"))
    )
    for points in (20, 300):
        other = train(replace(config, points=points), tmp_path / f"{points}")
        here, there = (e.rows(pack(within, e.config)) for e in (other, first))
        assert torch.allclose(here, there, atol=1e-6)
        one, two = other.rows(pack(beyond, other.config))
        assert torch.allclose(one, two, atol=1e-6) == (points == 20)


# -- going on ----------------------------------------------------------------------------------------


def test_a_run_goes_on_from_its_checkpoint(whole: tuple[Path, Any], tmp_path: Path) -> None:
    assert torch.equal(flat(stopped_and_resumed(train, TINY, tmp_path)), whole[1])
    assert_same_log(tmp_path, whole[0], ("step", "loss", "alignment", "valid_error"))


def test_killed_at_any_moment(whole: tuple[Path, Any], tmp_path: Path) -> None:
    """The parameters are those of a run that was left alone."""
    found = weights_after_kills("rhovec.training.distill", TINY, tmp_path, kills=2)
    assert torch.equal(found, whole[1])


def test_a_second_training_in_the_folder_is_refused(
    whole: tuple[Path, Any], tmp_path: Path
) -> None:
    refused = []

    def start_another(line: dict[str, Any]) -> None:
        with pytest.raises(RhovecError, match="another training is running in") as error:
            train(TINY, tmp_path)
        refused.append(error.value)

    assert torch.equal(flat(train(TINY, tmp_path, start_another)), whole[1])
    assert len(refused) > 1
    train(TINY, tmp_path)  # once it has ended, the folder is free


@pytest.mark.parametrize("damage", ["truncated", "altered", "missing", "pointer"])
def test_a_damaged_checkpoint_is_refused(
    whole: tuple[Path, Any], damage: str, tmp_path: Path
) -> None:
    copy_of(whole[0], tmp_path)
    (saved,) = tmp_path.glob("step-*.safetensors")
    data = saved.read_bytes()
    if damage == "truncated":
        saved.write_bytes(data[:-100])
    elif damage == "altered":
        saved.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "missing":
        saved.unlink()
    else:
        (tmp_path / records.POINTER).write_text("{")
    with pytest.raises(RhovecError, match=r"checkpoint\.json"):
        train(TINY, tmp_path)


def test_a_run_goes_on_if_the_last_line_of_its_log_is_cut(
    whole: tuple[Path, Any], tmp_path: Path
) -> None:
    """A full disk may leave half a line; the checkpoint is whole."""
    run = copy_of(whole[0], tmp_path)
    log = (run / "log.jsonl").read_text()
    (run / "log.jsonl").write_text(log + log.splitlines()[-1][:-30])
    assert torch.equal(flat(train(TINY, run)), whole[1])
    assert (run / "log.jsonl").read_text() == log


@pytest.mark.parametrize("name", ["config.json", "log.jsonl"])
def test_a_damaged_record_is_named(whole: tuple[Path, Any], name: str, tmp_path: Path) -> None:
    run = copy_of(whole[0], tmp_path)
    (run / name).write_text('{"steps": 4,\n')
    with pytest.raises(RhovecError, match=f"{name} is damaged"):
        train(TINY, run)


def copy_of(run: Path, folder: Path) -> Path:
    for path in run.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_another_configuration_is_refused(whole: tuple[Path, Any]) -> None:
    with pytest.raises(RhovecError, match="holds a run with width 32, not 64"):
        train(replace(TINY, width=64), whole[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 100}, "batch must be a multiple of 64"),
        ({"block": 48}, "batch must be a multiple of block, 48, not 64"),
        ({"loss": "cubic"}, "loss must be"),
        ({"corpus": "none"}, "corpus must be"),
        ({"optimiser": "sgd"}, "optimiser must be"),
        ({"pooling": "max"}, "pooling must be"),
        ({"tokens": "bytes"}, "tokens must be"),
        ({"heads": 3}, "multiple of heads"),
        ({"sigma2": 0.3}, "choose the head projector"),
        ({"bank": 100}, "bank must be 128 or more"),
        ({"kernel": "syntax"}, "kernel must be one of robustness, boolean, integrated"),
        ({"head": "tail"}, "head must be one of .*nystrom, projector"),
        ({"steps": 0}, "steps must be 1 or more"),
        ({"width": 0}, "width must be 1 or more"),
        ({"heads": 0}, "heads must be 1 or more"),
        ({"batch": 0}, "batch must be 1 or more"),
    ],
)
def test_wrong_fields_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RhovecError, match=message):
        train(replace(TINY, **changes), tmp_path)
    with pytest.raises(RhovecError, match="preset"):
        loop.preset(distill.PRESETS, "huge")


# -- several processes -------------------------------------------------------------------------------


def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    """The gradient of the first step, as the optimisers see it, for the same batch of 128."""
    script = (
        "import sys, torch; from rhovec.training import device\n"
        "device.has_bfloat16 = lambda kind: False\n"  # sums of half a batch would differ
        "from rhovec.training.distill import *\n"
        "seen = []\n"
        "clip = torch.nn.utils.clip_grad_norm_\n"
        "def spy(weights, most):\n"
        "    seen.append(torch.cat([p.grad.flatten() for p in weights if p.requires_grad]))\n"
        "    return clip(weights, most)\n"
        "torch.nn.utils.clip_grad_norm_ = spy\n"
        f"config = replace({TINY!r}, batch=128, steps=1, validate=1)\n"
        "train(config, sys.argv[1])\n"
        "torch.save(seen[0], sys.argv[2])\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for world in (1, 2):
        for rank in range(world):
            name = str(tmp_path / f"{world}-{rank}")
            environment = {
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            command = [sys.executable, "-c", script, str(tmp_path / f"run{world}"), name]
            processes.append(
                subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            )
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    one, *two = (torch.load(tmp_path / n, weights_only=True) for n in ("1-0", "2-0", "2-1"))
    assert torch.equal(*two)
    assert one.abs().max() > 1e-3
    assert (one - two[0]).abs().max() <= 1e-5 * one.abs().max()


# -- the pieces ----------------------------------------------------------------------------------------


def test_bfloat16_and_padding_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch as a GPU has it, with rows to spare, in bfloat16; and without either."""
    task = distill.EncoderTask(TINY)
    stream = task.batches(None)
    tokens, target, family = task.to_device(next(stream), 0)
    stream.close()
    assert (tokens.owner >= 0).any(1).all()
    spare = [
        pad(t, (0, 0) * (t.ndim - 1) + (0, 5), value=v)
        for t, v in zip(tokens[:4], (0, 0, 0, -1), strict=True)
    ]
    padded = Packed(*spare, tokens.pick)
    assert all(map(torch.equal, padded.trimmed(), tokens))
    found = []
    for halved, given in ((False, tokens), (False, padded), (True, padded)):
        monkeypatch.setattr(device, "has_bfloat16", lambda kind, halved=halved: halved)
        loss, rows = task.loss(given, target, family)
        assert rows.dtype == torch.float32
        found.append((loss.item(), rows))
    (loss, rows), (same, as_before), (near, rounded) = found
    assert same == pytest.approx(loss, rel=1e-5) and torch.allclose(rows, as_before, atol=1e-5)
    assert near == pytest.approx(loss, rel=0.05) and torch.allclose(rows, rounded, atol=0.05)
    assert not torch.equal(rows, rounded)


def test_operators_that_models_do_not_know_are_rewritten() -> None:
    encoder = distill.Encoder(loop.part_of(TINY, EncoderConfig))
    pairs = (
        ("( x_0 >= 1 -> x_1 <= 0 )", "( not ( x_0 >= 1 ) or x_1 <= 0 )"),
        ("next ( x_2 >= 1 )", "eventually[1,1] ( x_2 >= 1 )"),
    )
    said, written = (Programs.pack([rv.parse(pair[i]) for pair in pairs]) for i in (0, 1))
    vectors = distill.embed(encoder, written)
    assert torch.allclose(distill.embed(encoder, said), vectors, atol=1e-6)
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-2)


def test_the_target_is_the_kernel() -> None:
    formulae = rv.random_formulae(20, seed=2)
    x = rv.BaseMeasure().sample(500, seed=5)
    unit = unit_robustness(Programs.pack(formulae), torch.from_numpy(x))
    got = kernel_of_cosine(unit @ unit.T, 0.2).numpy()
    want = rv.StlKernel(rv.TraceMeasure(x)).gram(formulae)
    assert np.abs(got - want).max() < 1e-4


def test_losses() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6, 4))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    k = rng.uniform(size=(6, 6))
    family = np.array([0, 0, 1, 1, 2, 3])
    gap = z @ z.T - k
    weight = np.where(family[:, None] == family, TINY.family_weight, 1.0)
    vectors = torch.from_numpy(z).requires_grad_()
    given = vectors @ vectors.T, torch.from_numpy(k), torch.from_numpy(family)
    assert pair_loss(*given, TINY).item() == pytest.approx((weight * gap**2).mean())
    focal = replace(TINY, loss="focal", gamma=1.5, cap=1.2)
    weight = np.minimum(np.abs(gap) ** 1.5 / (np.abs(gap) ** 1.5).mean(), 1.2)
    loss = pair_loss(*given, focal)
    assert loss.item() == pytest.approx((weight * gap**2).mean())
    loss.backward()  # the weight is a constant to it
    sides = 2 * weight * gap / 36
    assert np.allclose(vectors.grad.numpy(), (sides + sides.T) @ z)


def test_blocks_of_a_batch_are_batches() -> None:
    rng = np.random.default_rng(1)
    rows = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(6, 4))), dim=1)
    target, family = torch.from_numpy(rng.uniform(size=(6, 6))), torch.tensor([0, 0, 1, 1, 2, 2])
    for loss in ("squared", "focal"):
        config = replace(TINY, loss=loss)
        parts = [
            distill.total_loss(rows[at], target[at, at], family[at], config, "cosine", 1e-5)
            for at in (slice(0, 3), slice(3, 6))
        ]
        whole = distill.total_loss(rows, target, family, replace(config, block=3), "cosine", 1e-5)
        assert whole.item() == pytest.approx((parts[0] + parts[1]).item() / 2)


def test_late_batches_have_more_traces() -> None:
    asked: list[int] = []
    task = distill.EncoderTask(replace(TINY, steps=8, late=3))
    stream = task.batches(None)
    work, teacher = next(stream), task.teacher
    stream.close()
    task.teacher = lambda given, seed, times: asked.append(times) or teacher(given, seed, times)
    for number in range(8):
        task.to_device(work, number)
    assert asked == [1, 1, 1, 1, 1, 1, 3, 3]


def test_batches_are_the_stream_cut_anywhere() -> None:
    config = replace(TINY, workers=3)
    stream = distill.EncoderTask(config).batches(None)
    first, second = next(stream), next(stream)
    stream.close()
    again = distill.EncoderTask(replace(config, workers=1)).batches(first.next)
    same = next(again)
    again.close()
    assert (same.asked[0].code == second.asked[0].code).all()
    assert (same.asked[0].thresholds == second.asked[0].thresholds).all()
    assert torch.equal(same.family, second.family)
    assert len(set(first.family.tolist()) & set(second.family.tolist())) == 0


def test_shares_of_processes_are_the_batch() -> None:
    parts = []
    for rank, world in ((0, 1), (0, 2), (1, 2)):
        teacher = distill.EncoderTask(TINY).teacher
        stream = distill.work_ahead(TINY, teacher, rank=rank, world=world)
        parts.append(next(stream))
        stream.close()
    whole, *shares = parts
    code = np.concatenate([share.asked[0].code for share in shares])
    assert (code == whole.asked[0].code).all()
    assert all(torch.equal(share.family, whole.family) for share in shares)


def test_orthogonal() -> None:
    matrices = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(0))
    for wide in (matrices, matrices.mT):
        values = torch.linalg.svdvals(orthogonal(wide).float())
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_a_stack_of_matrices_is_updated_like_single_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(2, 3, 8, 20, generator=generator)
    stack = torch.nn.Parameter(start.clone())
    single = [torch.nn.Parameter(matrix.clone()) for matrix in start]
    stack.grad = gradient.clone()
    for p, g in zip(single, gradient, strict=True):
        p.grad = g.clone()
    Muon([stack], lr=0.1).step()
    Muon(single, lr=torch.tensor(0.1)).step()
    assert torch.allclose(stack, torch.stack(single))
    step = (stack - start * (1 - 0.1 * 0.05)).detach()
    assert step.square().mean().sqrt() == pytest.approx(0.2 * 0.1, rel=0.3)


@pytest.mark.gpu
@pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.")  # its compiler warns of itself
def test_a_recorded_step_is_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(TINY, steps=20, validate=20, device="cuda")
    train(config, tmp_path / "recorded")
    monkeypatch.setattr(device.Recorded, "WARM_UP", 10**9)
    train(config, tmp_path / "plain")
    one, other = (
        [line["loss"] for line in records.read_log(tmp_path / name)]
        for name in ("recorded", "plain")
    )
    assert len(one) == 20
    assert one == pytest.approx(other, rel=0.02)
