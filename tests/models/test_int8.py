"""Eight-bit products: exact integers, close to NumPy, and the same bits in every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.formula.programs import Programs
from rhovec.models import int8
from rhovec.models.model import PRECISIONS
from rhovec.models.runtime import Runtime

from .tiny import save_tiny, tiny

FORMULAE = rv.random_formulae(60, seed=3)
LONG = rv.parse(" and ".join(f"eventually[0,{i}] x_{i % 3} > {i}" for i in range(1, 90)))
SHAPE: dict[str, Any] = {"width": 64, "heads": 4, "dimension": 24}


@pytest.mark.parametrize("portable", [False, True])
def test_products_are_those_of_integers(portable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    product = int8._product
    if portable:  # what a processor without AVX512-VNNI gets
        monkeypatch.setattr(int8, "_has_vnni", lambda context: False)
        product = njit(int8._product.py_func)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((2, 65, 192), np.float32)
    panels, scales, sums = int8._rounded(weight, True)
    a = rng.integers(0, 256, (12, 64), np.uint8)
    a[0], a[1] = 255, 0
    row_scales = rng.random(12, np.float32)
    out = np.full((12, 128), 7, np.float32)
    product(a, row_scales, 9, (panels, scales, sums), 1, 1, 3, out, int8.ADD)

    whole = np.rint(weight[1, :64] / scales[1, 0]).astype(np.int64)
    exact = (a.astype(np.int64) - 128) @ whole[:, 64:]
    want = exact * (row_scales[:, None] * scales[1, 0, 64:]) + weight[1, 64, 64:] + 7
    assert np.abs(out - want).max() <= 1e-5 * np.abs(want).max()
    # With scales of 1 the sums themselves come out, to the last digit.
    scales[:, 0], scales[:, 1] = 1, 0
    product(a, np.ones(12, np.float32), 12, (panels, scales, sums), 1, 1, 3, out, int8.PLAIN)
    assert np.array_equal(out, exact)
    product(a, np.ones(12, np.float32), 12, (panels, scales, sums), 1, 1, 3, out, int8.SQUARE)
    assert np.array_equal(out, np.maximum(exact, 0).astype(np.float32) ** 2)


@pytest.mark.parametrize("pooling", ["cls", "bos"])
def test_a_vector_is_the_same_in_every_batch_and_on_any_number_of_threads(
    pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = int8.Int8Runtime(*tiny(**SHAPE, pooling=pooling))
    whole = embed(Programs.pack(FORMULAE), "cosine")
    assert np.abs(whole - whole[0]).max() > 0.1
    order = np.random.default_rng(0).permutation(len(FORMULAE))
    for threads, others in ((1, []), (3, [LONG]), (8, FORMULAE[:7])):
        monkeypatch.setattr(int8, "cores", lambda threads=threads: threads)
        batch = Programs.pack([*others, *(FORMULAE[i] for i in order)])
        assert np.array_equal(embed(batch, "cosine")[len(others) :], whole[order])
    alone = [embed(Programs.pack([phi]), "cosine")[0] for phi in FORMULAE[:20]]
    assert np.array_equal(alone, whole[:20])


@pytest.mark.parametrize("pooling", ["cls", "bos"])
def test_small_models_are_close_to_numpy(pooling: str) -> None:
    given = tiny(**SHAPE, pooling=pooling)
    programs = Programs.pack([*FORMULAE, LONG])
    for kind in ("cosine", "kernel"):
        want = Runtime(*given)(programs, kind)
        got = int8.Int8Runtime(*given)(programs, kind)
        if kind == "cosine":
            gap = np.linalg.norm(got - want, axis=1)
            assert gap.max() <= 0.1 and gap.mean() <= 0.03  # random weights forget little
        assert np.allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)


def test_the_shipped_model_is_close_to_numpy() -> None:
    """The bounds that the documentation states."""
    formulae = rv.random_formulae(300, seed=5)
    exact, fast = rv.load(), rv.load(precision="int8")
    want, got = (m.embed(formulae, kind="cosine", warn=False) for m in (exact, fast))
    gap = np.linalg.norm(got - want, axis=1)
    assert gap.max() <= 0.03 and gap.mean() <= 0.008
    kernels = [np.exp((rows @ rows.T - 1) / 0.2) for rows in (want, got)]
    assert np.abs(kernels[0] - kernels[1]).mean() <= 0.0005
    vectors = [m.embed(formulae, warn=False) for m in (exact, fast)]
    assert np.abs(vectors[0] @ vectors[0].T - vectors[1] @ vectors[1].T).mean() <= 0.001
    assert "int8" in repr(fast)


def test_fingerprints_differ_for_each_model_precision_and_kind(tmp_path: Path) -> None:
    prints = {}
    for seed in range(2):
        folder = save_tiny(tmp_path / str(seed), **SHAPE, layers=1 + seed)
        for precision in PRECISIONS:
            model = rv.load(folder, precision=precision)
            again = rv.load(folder, precision=precision)
            for kind, vectors in (("kernel", model), ("cosine", model.directions)):
                prints[seed, precision, kind] = vectors.fingerprint
            assert again.directions.fingerprint == prints[seed, precision, "cosine"]
    assert len(set(prints.values())) == len(prints) == 8


def test_a_library_is_opened_with_the_precision_that_it_was_built_with(tmp_path: Path) -> None:
    path = tmp_path / "library"
    exact, fast = rv.load(), rv.load(precision="int8")
    rv.Index.build(FORMULAE[:3], path, vectors=fast).close()
    with rv.Index.open(path) as index:
        assert index.vectors.model.precision == "int8"
        assert index.search(FORMULAE[1], 1)[0].similarity == pytest.approx(1, abs=1e-6)
    with pytest.raises(RhovecError, match=rf"not of {exact.directions.fingerprint}"):
        rv.Index.open(path, vectors=exact)


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    with pytest.raises(RhovecError, match=r"multiple of 64.*width 32"):
        rv.load(folder, precision="int8")
    with pytest.raises(RhovecError, match=r"float32.*int8.*'int4'"):
        rv.load(folder, precision="int4")  # type: ignore[arg-type]
    with pytest.raises(RhovecError, match="without a device"):
        rv.load(folder, "cpu", "int8")
