"""Measures and kernels from outside: each is one class, and no module of the package knows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.formula.programs import Programs
from rhovec.kernel import SampledKernel


class Sines:
    """Sine waves of random phase and amplitude, one variable."""

    variables = ("level",)
    points = 40

    def count(self, n: int | None = None) -> int:
        return 200 if n is None else n

    def blocks(self, n: int | None = None, seed: int = 0) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(seed)
        phase, size = rng.uniform(0, 6, (2, self.count(n), 1, 1))
        yield (size * np.sin(phase + np.arange(self.points) / 4)).astype(np.float32)


class EndpointKernel(SampledKernel):
    """Robustness at the first and at the last point."""

    def features(self, formulae: Programs, traces: Any) -> Any:
        rho = rv.robustness(formulae, traces, variables=self.measure.variables, trace=True)
        return rho[:, :, [0, -1]]

    def width(self) -> int:
        return 2


FORMULAE = [
    "level > 1",
    "always level > 1",
    "eventually level > 1",
    "level < 1",
    "always[0,20] level < 3",
]


@pytest.mark.parametrize("kernel", [rv.StlKernel(Sines()), EndpointKernel(Sines(), 150, seed=3)])
def test_a_measure_and_a_kernel_of_ones_own(kernel: SampledKernel) -> None:
    gram = kernel.gram(FORMULAE)
    assert np.allclose(np.diag(gram), 1) and (gram == gram.T).all()
    assert np.linalg.eigvalsh(gram).min() > -1e-9
    assert np.allclose(gram[0, 3], np.exp(-10))  # opposite formulae
    signatures = kernel.signatures(FORMULAE)
    assert signatures.shape == (5, kernel.measure.count(kernel.n_traces) * kernel.width())
    cosines = signatures.astype(float) @ signatures.T
    assert np.allclose(np.exp((cosines - 1) / kernel.sigma2), gram, atol=1e-5)
    assert (kernel.gram_errors(FORMULAE) < 0.2).all()
    anchors = rv.AnchorEmbedding(kernel, 3).fit(FORMULAE)
    assert anchors.transform("always level > 2").shape == (3,)


def test_names_of_the_first_release_still_work() -> None:
    with pytest.warns(DeprecationWarning, match="n_signals is now called n_traces"):
        assert rv.StlKernel(n_signals=7).n_traces == 7
    with pytest.warns(DeprecationWarning, match="n_traces"):
        assert rv.compare("x_0 > 1", "x_0 > 2", n_signals=50).n_traces == 50
    with pytest.warns(DeprecationWarning, match="rv.Trajectories is now called rv.TraceMeasure"):
        assert rv.Trajectories is rv.TraceMeasure
    with pytest.warns(DeprecationWarning, match="n_traces"):
        assert rv.load().kernel(n_signals=9).n_traces == 9
    with pytest.warns(DeprecationWarning, match="n_traces"):
        assert rv.StlKernel(n_traces=7).n_signals == 7
    with pytest.raises(TypeError, match="give only n_traces"):
        rv.StlKernel(n_signals=7, n_traces=8)
    assert rv.errors.SignalError is rv.errors.TraceError


def test_what_a_measure_lacks_is_named() -> None:
    with pytest.raises(rv.RhovecError, match="uses speed, but the measure has level"):
        rv.StlKernel(Sines()).gram(["speed > 1"])
