"""Any kernel can be the teacher: ours, on any measure, or a class with `gram`."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula.programs import Programs
from rhovec.formula.reader import as_formulae
from rhovec.kernel import SampledKernel, cosine_of_kernel, kernel_of_cosine

torch = pytest.importorskip("torch")
from rhovec.training import distill, records  # noqa: E402
from rhovec.training.distill import Config, train  # noqa: E402
from rhovec.training.publish import publish_encoder  # noqa: E402
from rhovec.training.teachers import (  # noqa: E402
    GramTeacher,
    OnlineTeacher,
    jackknifed,
    make_kernel,
    make_teacher,
    robustness,
)

TINY = Config(
    steps=3, batch=64, traces=64, lr=5e-3, adam_lr=5e-3, warmup=2, width=32, layers=1, heads=2,
    dimension=32, bank=128, workers=1, every=1, validate=3, channels=3, points=20,
)  # fmt: skip
MEASURE = rv.BaseMeasure(n_variables=3, points=20)
FORMULAE = rv.random_formulae(20, seed=3)
PROGRAMS = Programs.pack(FORMULAE)


class SizeKernel:
    """Formulae are alike if they have about as many nodes."""

    def gram(self, first: Any, second: Any = None, /) -> np.ndarray:
        a, b = (
            np.array([phi.size for phi in as_formulae(x)[0]])
            for x in (first, first if second is None else second)
        )
        out: np.ndarray = np.exp(-np.abs(a[:, None] - b) / 10)
        return out


class BoundedKernel(SampledKernel):
    """Robustness, but large values count no more than 1."""

    def features(self, formulae: Programs, traces: Any) -> Any:
        return np.tanh(rv.robustness(formulae, traces, variables=self.measure.variables))


KERNELS: dict[str, Any] = {
    "boolean": rv.BooleanKernel(MEASURE, 64),
    "integrated": rv.IntegratedKernel(MEASURE, 64),
    "traces": rv.StlKernel(rv.TraceMeasure(MEASURE.sample(100, seed=8)), 64),
    "syntax": SizeKernel(),
    "bounded": BoundedKernel(MEASURE, 64),
}


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_learnt(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch, over and over, on fresh traces if there are any: its pairs are learnt."""
    stream = distill.EncoderTask(TINY, KERNELS[name]).batches(None)
    work = next(stream)
    stream.close()
    monkeypatch.setattr(distill, "work_ahead", lambda *_: (w for w in repeat(work)))
    train(replace(TINY, steps=40, validate=40), tmp_path, kernel=KERNELS[name])
    lines = records.read_log(tmp_path)
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-5:]) < 0.3 * np.mean(losses[:5])
    assert lines[-1]["alignment"] > 0.8
    assert np.isfinite(lines[-1]["valid_error"])


@pytest.mark.parametrize("name", ["boolean", "integrated"])
def test_a_name_is_the_kernel(name: str, tmp_path: Path) -> None:
    encoder = train(replace(TINY, kernel=name), tmp_path / "name")
    train(TINY, tmp_path / "object", kernel=KERNELS[name])
    logs = [
        [(line["loss"], line.get("valid_loss")) for line in records.read_log(tmp_path / folder)]
        for folder in ("name", "object")
    ]
    assert logs[0] == logs[1]
    recorded = json.loads((tmp_path / "object" / "config.json").read_text())
    assert recorded["kernel"] == name
    publish_encoder(tmp_path, replace(TINY, kernel=name), encoder, traces=32, families=2)
    judge = rv.load(tmp_path / "model").kernel(50, seed=1)
    assert judge == replace(KERNELS[name], n_traces=50, seed=1)
    assert type(judge) is type(KERNELS[name])


def test_a_kernel_that_the_config_cannot_describe_is_only_named(tmp_path: Path) -> None:
    encoder = train(replace(TINY, steps=1), tmp_path, kernel=SizeKernel())
    publish_encoder(tmp_path, TINY, encoder, families=2, kernel=SizeKernel())
    model = rv.load(tmp_path / "model")
    assert model.config["teacher"] == {"kernel": f"{__name__}.SizeKernel"}
    assert model.config["training"]["kernel"] == f"{__name__}.SizeKernel"
    with pytest.raises(RhovecError, match=r"distilled from .*\.SizeKernel, which it cannot make"):
        model.kernel()
    with pytest.raises(RhovecError, match="holds a run with kernel"):
        train(replace(TINY, steps=1), tmp_path)


@pytest.mark.parametrize(
    "kind", [rv.StlKernel, rv.BooleanKernel, rv.IntegratedKernel, BoundedKernel]
)
def test_targets_are_the_gram_matrix_on_fresh_traces(kind: Any) -> None:
    """The fast way on the device, and the way of every kernel, agree up to chance."""
    kernel, exact = kind(MEASURE, 20_000), kind(MEASURE, 20_000, seed=9).gram(FORMULAE)
    online = make_teacher(kernel, TINY)
    assert isinstance(online, OnlineTeacher)
    for teacher in (online, GramTeacher(kernel, torch.device("cpu"))):
        asked = teacher.prepare(PROGRAMS, PROGRAMS)
        first, second = teacher(asked, 1), teacher(asked, 2)
        assert first.dtype == torch.float32
        assert not torch.equal(first, second)
        assert torch.equal(first, teacher(asked, 1))
        for found in (first, second):
            assert np.abs(found.numpy() - exact).max() < 0.05


def test_few_traces_leave_hardly_a_bias() -> None:
    """The mean of many estimates on 64 traces; without the correction it is too large by far."""
    exact = torch.from_numpy(rv.StlKernel(MEASURE, 20_000, seed=9).gram(FORMULAE)).float()
    plain, corrected = torch.zeros_like(exact), torch.zeros_like(exact)
    repeats = 300
    for seed in range(repeats):
        traces = torch.from_numpy(MEASURE.sample(64, seed=seed))
        features = robustness(PROGRAMS, traces)
        unit = torch.nn.functional.normalize(features, dim=1)
        plain += kernel_of_cosine(unit @ unit.T, 0.2) / repeats
        corrected += jackknifed(features, 0.2) / repeats
    apart = ~torch.eye(len(exact), dtype=torch.bool)
    assert torch.allclose(corrected.diagonal(), torch.ones(len(exact)), atol=1e-5)
    biases = [(found - exact)[apart].mean().item() for found in (plain, corrected)]
    assert biases[0] > 0.003
    assert abs(biases[1]) < 0.4 * biases[0]


def test_a_kernel_without_a_seed_is_asked_as_it_is() -> None:
    sizes = make_teacher(SizeKernel(), TINY)
    formulae = sizes.prepare(PROGRAMS, PROGRAMS)
    assert torch.equal(sizes(formulae, 1), sizes(formulae, 2))
    assert np.allclose(sizes(formulae, 1).numpy(), SizeKernel().gram(FORMULAE))


def test_the_configured_kernel() -> None:
    assert make_kernel(TINY, 64, seed=2) == rv.StlKernel(MEASURE, 64, seed=2)


@pytest.mark.parametrize(
    ("kernel", "changes", "message"),
    [
        (rv.StlKernel(rv.BaseMeasure(3, 30)), {}, "kernel has points 30, but .* says 20"),
        (rv.StlKernel(rv.BaseMeasure(4, 20)), {}, "kernel has variables .*x_3"),
        (rv.StlKernel(MEASURE, sigma2=0.3), {}, "kernel has sigma2 0.3, but .* says 0.2"),
        (rv.StlKernel(MEASURE, sigma2=0.3), {"sigma2": 0.3}, "choose the head projector"),
        (rv.StlKernel(MEASURE, exponentiated=False), {}, "normalised and exponentiated"),
    ],
)
def test_contradictions_are_named(
    kernel: Any, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RhovecError, match=message):
        train(replace(TINY, **changes), tmp_path / "run", kernel=kernel)
    assert not (tmp_path / "run").exists()


def test_the_kernel_of_a_cosine_and_back() -> None:
    cosines = np.linspace(-1, 1, 9)
    for values in (cosines, torch.from_numpy(cosines)):
        k = kernel_of_cosine(values, 0.2)
        assert type(k) is type(values)
        assert np.allclose(np.asarray(k), np.exp(-(1 - cosines) / 0.2))
        assert np.allclose(np.asarray(cosine_of_kernel(k, 0.2)), cosines)
    assert kernel_of_cosine(0.5, 0.2) == pytest.approx(np.exp(-2.5))
    assert cosine_of_kernel(np.exp(-2.5), 0.2) == pytest.approx(0.5)
