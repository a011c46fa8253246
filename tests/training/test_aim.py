"""Training on traces of one's own: what it aims at, the formulae of a batch, and the first weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.corpus.families import Recipe, draw_families
from rhovec.errors import RhovecError
from rhovec.formula.programs import Programs
from rhovec.kernel import kernel_of_cosine
from rhovec.spaces.fitting import vectors_of

torch = pytest.importorskip("torch")
from rhovec.models import store  # noqa: E402
from rhovec.models.config import EncoderConfig  # noqa: E402
from rhovec.models.encoder import Encoder  # noqa: E402
from rhovec.training import device, invert  # noqa: E402
from rhovec.training.distill import Config, EncoderTask, draw, recipes, with_channels  # noqa: E402
from rhovec.training.own import OwnTraces  # noqa: E402
from rhovec.training.teachers import TraceTeacher, jackknifed  # noqa: E402

from ..models.tiny import save_tiny, tiny  # noqa: E402
from .drives import NAMES, drives  # noqa: E402


def test_the_teacher_takes_all_traces_or_a_fresh_part() -> None:
    values = drives(120).astype(np.float32) / 50
    measure = rv.TraceMeasure(values)
    formulae = rv.random_formulae(24, seed=1, n_variables=2)
    programs = Programs.pack(formulae)
    exact = rv.StlKernel(measure).gram(formulae)
    whole = TraceTeacher(rv.StlKernel(measure), torch.device("cpu"), 0, 1)
    asked = whole.prepare(programs, programs)
    np.testing.assert_allclose(whole(asked, 0), exact, atol=2e-5)
    part = TraceTeacher(rv.StlKernel(measure, 40), torch.device("cpu"), 0, 1)
    drawn = [part(asked, seed).numpy() for seed in range(400)]
    assert (drawn[0] == part(asked, 0).numpy()).all() and (drawn[0] != drawn[1]).any()
    plain = []
    for seed in range(400):
        part.generator.manual_seed(seed)
        features = torch.from_numpy(
            rv.robustness(formulae, part.draw(40)[0].numpy(), variables=measure.variables)
        )
        plain.append(jackknifed(features, 0.2, 0.0).numpy())
    bias, before = (abs(np.mean(found, axis=0) - exact).mean() for found in (drawn, plain))
    assert bias < 0.7 * before  # towards the kernel on all 120 traces


def test_the_teacher_says_directions_after_it_aimed() -> None:
    measure = rv.TraceMeasure(drives(120).astype(np.float32) / 50)
    seen, unseen = (Programs.pack(rv.random_formulae(n, seed=n, n_variables=2)) for n in (600, 80))
    exact = rv.StlKernel(measure).gram(unseen.unpack())
    for traces, atol in ((None, 2e-5), (100, 0.2)):
        kernel = rv.StlKernel(measure, traces)
        teacher, plain = (TraceTeacher(kernel, torch.device("cpu"), 0, 1) for _ in range(2))
        assert len(teacher.aimed) == (traces or 120)
        teacher.aim(teacher.features(teacher.prepare(seen, seen), teacher.aimed), 96)
        asked = teacher.prepare(unseen, unseen)
        both = teacher(asked, 7)
        assert both.shape == (80, 80 + 96)
        torch.testing.assert_close(both[:, :80], plain(asked, 7))
        rows = both[:, 80:]
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(80))
        found = kernel_of_cosine((rows @ rows.T).numpy(), 0.2)
        assert abs(found - exact).mean() < (0.003 if traces is None else 0.03)
        features = teacher.features(asked, teacher.aimed).numpy()
        units = features / np.linalg.norm(features, axis=1, keepdims=True)
        as_in_a_space = vectors_of(units, teacher.basis.numpy())[0]
        np.testing.assert_allclose(rows, as_in_a_space, atol=2e-3)  # float32 and float64
        np.testing.assert_allclose(both[:, :80], exact, atol=atol)


def test_few_traces_have_few_directions() -> None:
    teacher = TraceTeacher(
        rv.StlKernel(rv.TraceMeasure(drives(60).astype(np.float32))), torch.device("cpu"), 0, 1
    )
    programs = Programs.pack(rv.random_formulae(100, seed=1, n_variables=2))
    asked = teacher.prepare(programs, programs)
    basis = teacher.aim(teacher.features(asked, teacher.aimed), 96)
    assert basis.shape == (60, 60)
    rows = teacher(asked, 0)[:, 100:]
    assert rows.shape == (100, 96) and not rows[:, 60:].any()
    exact = rv.StlKernel(teacher.measure).gram(programs.unpack())
    np.testing.assert_allclose(kernel_of_cosine((rows @ rows.T).numpy(), 0.2), exact, atol=1e-4)


def test_a_training_begins_with_the_head_that_comes_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "has_bfloat16", lambda kind: False)
    own = OwnTraces.of(drives(100), NAMES)
    shape = {"width": 32, "layers": 1, "heads": 2, "dimension": 24, "bank": 1024, "batch": 256}
    config = own.configured(Config(workers=1, **shape))  # type: ignore[arg-type]
    task = EncoderTask(config, own.kernel(config))
    torch.manual_seed(config.seed)
    before = Encoder(task.student.config)
    stream = task.batches(None)
    tokens, target, family = task.to_device(next(stream), 0)
    stream.close()
    aim = target[:, 256:]
    with torch.no_grad():
        gaps = [(e.rows(tokens) - aim).square().sum(1).mean() for e in (before, task.student)]
        assert gaps[1] < 0.75 * gaps[0]  # of random layers
        loss, rows = task.loss(tokens, target, family)
        pairs, _ = task.loss(tokens, target[:, :256], family)
    assert loss - pairs == pytest.approx(gaps[1].item(), rel=1e-4)
    assert task.figures((tokens, target, family), rows) == task.figures(
        (tokens, target[:, :256], family), rows
    )


def test_what_aims_at_nothing() -> None:
    """The paper's head has no directions, and other kernels than that of robustness none to aim at."""
    own = OwnTraces.of(drives(80), NAMES)
    shape = {"width": 32, "layers": 1, "heads": 2, "dimension": 24, "bank": 128, "batch": 64}
    for head, kind in (("projector", rv.StlKernel), ("nystrom", rv.BooleanKernel)):
        config = own.configured(Config(workers=1, head=head, **shape))  # type: ignore[arg-type]
        task = EncoderTask(config, kind(rv.TraceMeasure(own.values)))
        assert isinstance(task.teacher, TraceTeacher) and task.teacher.basis is None
    with pytest.raises(RhovecError, match="a CentredKernel cannot be distilled"):
        EncoderTask(config, rv.CentredKernel(rv.TraceMeasure(own.values)))


def test_weights_for_other_channels() -> None:
    config, tensors = tiny(channels=4)
    for channels in (2, 4, 7):
        there, changed = with_channels(config, tensors, channels)
        assert there == EncoderConfig(**config.to_dict() | {"channels": channels})
        encoder = Encoder(there)
        encoder.load_state_dict({k: torch.from_numpy(v) for k, v in changed.items()})
        rows = changed["inputs.weight"]
        first = there.tables()[0]
        kept = 1 + min(channels, 4)
        assert (rows[first : first + kept] == tensors["inputs.weight"][first : first + kept]).all()
        assert len(np.unique(rows[first : first + channels + 1], axis=0)) == channels + 1
        assert (rows[-30:] == tensors["inputs.weight"][-30:]).all()


def test_the_task_starts_from_weights_of_other_channels_and_points(tmp_path: Path) -> None:
    origin = save_tiny(tmp_path / "origin")
    own = OwnTraces.of(drives(80), NAMES)
    shape = {"width": 32, "layers": 2, "heads": 4, "dimension": 24, "bank": 128, "batch": 64}
    config = own.configured(Config(origin=str(origin), workers=1, **shape))  # type: ignore[arg-type]
    task = EncoderTask(config, own.kernel(config))
    assert (task.student.config.channels, task.student.config.points) == (2, 25)


def test_seeds_beside_families_are_short() -> None:
    config = Config(batch=2048, channels=5, corpus="seeds")
    (families, n), (seeds, m) = recipes(config)
    assert (n, m) == (256, 1792) and (families.family_size, seeds.family_size) == (8, 1)
    programs, family = draw([(families, n), (seeds, m)], [np.arange(n // 8), np.arange(m)])
    sizes = np.diff(programs.offsets)
    assert 2 * np.median(sizes[n:]) < np.median(sizes[:n])
    assert families.requirements == seeds.requirements == 0.25
    assert len(np.unique(family)) == n // 8 + m


def test_all_channels_of_a_system_are_used_equally_often(tmp_path: Path) -> None:
    """In the shipped recipe most formulae use the three channels that the paper's formulae have."""
    own = OwnTraces.of(np.random.default_rng(0).normal(size=(80, 6, 20)).cumsum(2))

    def last(parts: list[tuple[Recipe, int]]) -> float:
        """The share of atoms on the last three of six channels."""
        drawn = [draw_families(r, np.arange(64 * n // r.family_size)).programs for r, n in parts]
        channels = np.concatenate([d.code[d.code[:, 3] >= 0, 3] for d in drawn])
        return float(np.mean(channels >= 3))

    config = Config(batch=64, channels=6)
    assert 0.1 < last(recipes(config)) < 0.25
    assert 0.45 < last(recipes(own.configured(config))) < 0.55
    assert 0.45 < last(recipes(replace(config, corpus="seeds"))) < 0.55
    shipped = save_tiny(tmp_path / "shipped", channels=6)
    asked = invert.Config(batch=64, channels=6, model=str(shipped))
    assert 0.15 < last(invert.recipes(invert.for_model(asked))) < 0.35
    about = shipped / "config.json"
    facts = json.loads(about.read_text()) | {"schema": json.loads(own.schema.to_json())}
    facts[store.DIGEST] = store.digest_of(facts)
    about.write_text(json.dumps(facts))
    assert 0.45 < last(invert.recipes(invert.for_model(asked))) < 0.55


def test_windows_of_long_traces_are_stretched() -> None:
    config = Config(batch=64, channels=2, points=300)
    parts = recipes(config)
    numbers = [np.arange(count // recipe.family_size) for recipe, count in parts]
    short, family = draw(parts, numbers)
    long, _ = draw(parts, numbers, 300)
    assert (short.code[:, 2].max() <= 110) and (long.code[:, 2].max() > 150)
    for phi, psi, number in zip(short.unpack(), long.unpack(), family // len(parts), strict=True):
        factor = 3 if number % 2 else 1
        bounded = phi.code[:, 2] >= 0
        assert (psi.code[bounded, 2] == factor * phi.code[bounded, 2]).all()
        assert (psi.code[:, 1] == factor * phi.code[:, 1]).all()
