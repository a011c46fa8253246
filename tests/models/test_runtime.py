"""The NumPy runtime is the torch encoder, whatever stands beside a formula in its batch."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import FormulaError, MissingDependencyError
from rhovec.formula.programs import Programs
from rhovec.models import layers, runtime
from rhovec.models.layers import ranges
from rhovec.models.runtime import Runtime

from .tiny import tiny

FORMULAE = [
    *rv.random_formulae(150, seed=5, n_variables=8),
    rv.parse("always[3,4000] (x_0 > 1e30 until[7,inf] not x_7 <= -0.1234567890123)"),
    rv.parse("x_0 >= 0"),
]
LONG = rv.parse(" and ".join(f"x_{i % 8} > {i}" for i in range(60)))


@pytest.mark.parametrize("head", ["nystrom", "projector"])
@pytest.mark.parametrize("pooling", ["cls", "bos", "mean"])
def test_it_is_the_torch_encoder(pooling: str, head: str) -> None:
    torch = pytest.importorskip("torch")
    from rhovec.models.encoder import Encoder, EncoderConfig, pack

    config, tensors = tiny(pooling=pooling, head=head)
    encoder = Encoder(EncoderConfig(**config.to_dict()))
    assert {n: tuple(t.shape) for n, t in encoder.state_dict().items()} == config.shapes()
    encoder.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    for formulae in (FORMULAE, [LONG], FORMULAE[:1]):
        programs = Programs.pack(formulae)
        with torch.inference_mode():
            want = encoder(pack(programs, encoder.config)).numpy()
        got = Runtime(config, tensors)(programs)
        assert got.dtype == np.float32
        assert np.abs(got - want).max() <= 1e-5


def test_text_models_are_told_to_take_torch() -> None:
    with pytest.raises(MissingDependencyError, match="device="):
        Runtime(*tiny(tokens="text"))


def test_shapes_of_text_models() -> None:
    pytest.importorskip("torch")
    from rhovec.models.encoder import Encoder, EncoderConfig

    config, _ = tiny(tokens="text")
    state = Encoder(EncoderConfig(**config.to_dict())).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == config.shapes()


@pytest.mark.parametrize("pooling", ["cls", "bos", "mean"])
def test_a_vector_depends_neither_on_its_batch_nor_on_the_number_of_threads(
    pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = Runtime(*tiny(pooling=pooling))
    whole = embed(Programs.pack(FORMULAE))
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    assert np.abs(whole - whole[0]).max() > 0.1
    order = np.random.default_rng(0).permutation(len(FORMULAE))
    for formulae, chunk, threads in (([LONG], 512, 1), ([], 64, 3), ([], 7, 8)):
        for module in (runtime, layers):
            monkeypatch.setattr(module, "cores", lambda threads=threads: threads)
        monkeypatch.setattr(runtime, "MIN_CHUNK", min(64, chunk))
        monkeypatch.setattr(runtime, "CHUNK", chunk)
        again = embed(Programs.pack([*(FORMULAE[i] for i in order), *formulae]))
        assert np.abs(again[: len(order)] - whole[order]).max() <= 1e-5
    alone = [embed(Programs.pack([phi]))[0] for phi in FORMULAE[:20]]
    assert np.abs(alone - whole[:20]).max() <= 1e-5


def test_without_openblas_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    embed = Runtime(*tiny())
    programs = Programs.pack(FORMULAE)
    whole = embed(programs)
    monkeypatch.setattr(layers, "openblas", lambda: None)
    assert np.abs(embed(programs) - whole).max() <= 1e-5


def test_the_number_of_threads_comes_back() -> None:
    found = layers.openblas()
    if found is None:
        pytest.skip("NumPy has no OpenBLAS of its own here")
    read, _ = found
    before = read()
    inside, seen, go_on = threading.Event(), [], threading.Event()

    def other() -> None:
        with layers.single_threaded_products():
            inside.set()
            go_on.wait()
            seen.append(read())

    thread = threading.Thread(target=other)
    with layers.single_threaded_products():
        thread.start()
        inside.wait()
        assert read() == 1
    go_on.set()  # the other one leaves last
    thread.join()
    assert seen == [1]
    assert read() == before
    with pytest.raises(ZeroDivisionError), layers.single_threaded_products():
        1 / 0  # noqa: B018
    assert read() == before


def test_unknown_channels_are_refused() -> None:
    embed = Runtime(*tiny(channels=3))
    with pytest.raises(FormulaError, match=r"uses x_3; the model knows x_0 \.\.\. x_2"):
        embed(Programs.pack([rv.parse("x_3 > 1")]))


def test_ranges() -> None:
    assert list(ranges(np.array([3, 3, 3, 9, 1, 1]), 6)) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(ranges(np.array([3]), 1)) == [(0, 1)]
