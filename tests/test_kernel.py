"""The kernels: one contract that each inherits, then standard errors, known values and anchors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec import kernel as module
from rhovec.errors import FormulaError, MissingDependencyError, RhovecError, TraceError
from rhovec.formula.core import Formula
from rhovec.kernel import (
    AnchorEmbedding,
    BooleanKernel,
    CentredKernel,
    IntegratedKernel,
    KernelPCA,
    StlKernel,
    Teacher,
)
from rhovec.robustness.reference import robustness_trace, satisfaction_trace
from rhovec.traces import BaseMeasure, TraceMeasure

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())
FORMULAE = rv.random_formulae(14, seed=5)


class KernelContract:
    """What every kernel promises. `kernel` makes one."""

    def kernel(self, **options: Any) -> Any:
        raise NotImplementedError

    def test_gram_is_symmetric_positive_semidefinite_with_unit_diagonal(self) -> None:
        gram = self.kernel().gram(FORMULAE)
        assert gram.shape == (14, 14)
        assert gram.dtype == np.float64
        assert np.array_equal(gram, gram.T)
        assert np.abs(np.diag(gram) - 1).max() <= 1e-15
        assert np.linalg.eigvalsh(gram).min() >= -1e-12
        assert gram.min() >= 0
        assert gram.max() <= 1

    def test_a_batch_is_its_pairs(self) -> None:
        kernel = self.kernel()
        gram = kernel.gram(FORMULAE)
        assert np.abs(kernel.gram(FORMULAE, FORMULAE[3:8]) - gram[:, 3:8]).max() <= 1e-12
        assert np.abs(kernel.gram(FORMULAE[:2], FORMULAE) - gram[:2]).max() <= 1e-12
        for i, j in ((0, 1), (5, 5), (12, 3)):
            pair = kernel.gram([FORMULAE[i]], [FORMULAE[j]])
            assert np.abs(pair - gram[i, j]).max() <= 1e-12

    def test_text_is_accepted(self) -> None:
        kernel = self.kernel()
        texts = [str(phi) for phi in FORMULAE[:4]]
        assert np.array_equal(kernel.gram(texts), kernel.gram(FORMULAE[:4]))

    def test_it_teaches(self) -> None:
        """Anchors need nothing but gram."""
        teacher: Teacher = self.kernel()
        vectors = AnchorEmbedding(teacher, n_anchors=5).fit(FORMULAE).transform(FORMULAE)
        assert vectors.shape == (14, 5)

    def test_an_empty_list_is_refused(self) -> None:
        with pytest.raises(FormulaError, match="empty"):
            self.kernel().gram([])


class SampledContract(KernelContract):
    """Kernels on traces: equal to their definition, however the work is cut."""

    kind: type = StlKernel
    device = "cpu"
    width = 1

    def kernel(self, **options: Any) -> Any:
        options = {"measure": BaseMeasure(points=20), "n_traces": 150, **options}
        return self.kind(**options, device=self.device)

    def features(self, phi: Formula, traces: dict[str, np.ndarray]) -> np.ndarray:
        """By the oracle, (N, T) float64."""
        return robustness_trace(phi, traces)[:, :1]

    def definition(self, kernel: Any, formulae: list[Formula]) -> tuple[np.ndarray, np.ndarray]:
        """(k', k) from the oracle's features."""
        x = np.concatenate(list(kernel.measure.blocks(kernel.n_traces, kernel.seed)))
        traces = {name: x[:, i] for i, name in enumerate(kernel.measure.variables)}
        rows = np.array([self.features(phi, traces).ravel() for phi in formulae])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        cosine = rows @ rows.T
        return cosine, np.exp((cosine - 1) / kernel.sigma2)

    @pytest.mark.parametrize("options", [{}, {"sigma2": 0.7, "seed": 3}], ids=["default", "other"])
    def test_gram_is_the_definition(self, options: dict) -> None:
        kernel = self.kernel(**options)
        cosine, k = self.definition(kernel, FORMULAE)
        assert np.abs(kernel.gram(FORMULAE) - k).max() <= 1e-6
        plain = self.kernel(**options, exponentiated=False)
        assert np.abs(plain.gram(FORMULAE) - cosine).max() <= 1e-6
        vectors = kernel.signatures(FORMULAE)
        assert vectors.shape == (14, 150 * self.width)
        assert vectors.dtype == np.float32
        assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() <= 1e-6
        assert np.abs(vectors @ vectors.T - cosine).max() <= 2e-6

    def test_own_traces(self) -> None:
        x = np.random.default_rng(0).normal(size=(40, 3, 9))
        kernel = self.kernel(measure=TraceMeasure(x), n_traces=None)
        assert np.abs(kernel.gram(FORMULAE) - self.definition(kernel, FORMULAE)[1]).max() <= 1e-12

    def test_values_are_positive(self) -> None:
        assert self.kernel().gram(FORMULAE).min() >= np.exp(-10)

    def test_how_the_work_is_cut_does_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        measure = BaseMeasure(points=5)
        options = {"measure": measure, "n_traces": 1100}
        gram = self.kernel(**options).gram(FORMULAE)
        errors = self.kernel(**options).gram_errors(FORMULAE)
        vectors = self.kernel(**options).signatures(FORMULAE)
        monkeypatch.setattr(module, "FEATURES", {"cpu": 5000, "cuda": 5000})
        monkeypatch.setattr(module, "HELD_BYTES", 0)
        monkeypatch.setattr(module, "ROWS", 5)
        monkeypatch.setattr(module, "PRODUCTS", 100)
        other = self.kernel(**options)
        assert np.abs(other.gram(FORMULAE) - gram).max() <= 1e-12
        assert np.abs(other.gram(FORMULAE, FORMULAE[:6]) - gram[:, :6]).max() <= 1e-12
        assert np.abs(other.gram(FORMULAE[:6], FORMULAE) - gram[:6]).max() <= 1e-12
        assert np.abs(other.gram_errors(FORMULAE, FORMULAE) - errors).max() <= 1e-7
        assert np.abs(other.signatures(FORMULAE) - vectors).max() <= 1e-7

    def test_traces_are_a_prefix_of_more_traces(self) -> None:
        few = self.kernel(n_traces=60).gram(FORMULAE)
        x = np.concatenate(list(self.kernel(n_traces=500).traces_on_host()))[:60]
        same = self.kernel(measure=TraceMeasure(x), n_traces=None)
        assert np.array_equal(same.gram(FORMULAE), few)

    def test_a_rewritten_formula_has_the_same_vector(self) -> None:
        formulae = rv.random_formulae(60, seed=8)
        kernel = self.kernel()
        simple = [rv.simplify(phi) for phi in formulae]
        assert simple != formulae
        assert np.array_equal(kernel.signatures(simple), kernel.signatures(formulae))

    def test_a_single_formula_drops_its_axis(self) -> None:
        kernel = self.kernel()
        a, b = FORMULAE[0], FORMULAE[1]
        for method in (kernel.similarity, kernel.standard_error):
            assert method([a], [a, b]).shape == (1, 2)
            assert method(a, [a, b]).shape == (2,)
            assert method([a, b], b).shape == (2,)
            assert isinstance(method(str(a), b), float)
        assert kernel.signatures(a).shape == (150 * self.width,)

    def test_progress_is_told(self) -> None:
        shares: list[float] = []
        self.kernel().gram(FORMULAE, progress=shares.append)
        assert shares == sorted(shares)
        assert shares[-1] == 1

    # -- standard errors -----------------------------------------------------------------------

    @pytest.mark.parametrize("normalised", [True, False])
    @pytest.mark.parametrize("exponentiated", [True, False])
    def test_standard_error_is_the_jackknife(self, normalised: bool, exponentiated: bool) -> None:
        """Leaving out a trace at a time: a second way to the same error, with no formula in it."""
        n = 1000
        kernel = self.kernel(
            measure=BaseMeasure(points=6), n_traces=n, sigma2=0.5,
            normalised=normalised, exponentiated=exponentiated,
        )  # fmt: skip
        x = np.concatenate(list(kernel.traces_on_host()))
        traces = {name: x[:, i] for i, name in enumerate(kernel.measure.variables)}
        formulae = FORMULAE[:6]
        f = np.array([self.features(phi, traces) for phi in formulae])  # (B, n, T)
        products = np.einsum("int,jnt->ijn", f, f)
        means = (products.sum(axis=2, keepdims=True) - products) / (n - 1)  # one left out
        squares = np.einsum("iin->in", means)
        if normalised:
            means = means / np.sqrt(squares[:, None] * squares[None])
            squares = np.ones_like(squares)
        if exponentiated:
            means = np.exp(-(squares[:, None] + squares[None] - 2 * means) / (2 * kernel.sigma2))
        jackknife = np.sqrt((n - 1) * means.var(axis=2))
        errors = kernel.gram_errors(formulae)
        scale = jackknife.max()
        assert np.abs(errors - jackknife).max() <= 0.05 * scale
        assert np.abs(errors - errors.T).max() <= 1e-7 * scale

    # -- mistakes ------------------------------------------------------------------------------

    def test_constants_are_refused(self) -> None:
        for text in ("true", "x_0 > 0 or true", "always false", "x_1 > 0 and not true"):
            with pytest.raises(FormulaError, match="is constant"):
                self.kernel().gram(["x_0 > 0", text])
        assert self.kernel().similarity("x_0 > 0", "x_0 > 0 and true") == pytest.approx(1)

    def test_unknown_variables_are_named(self) -> None:
        with pytest.raises(TraceError, match="'speed > 1' uses speed, but the measure has x_0"):
            self.kernel().similarity("x_0 > 0", "speed > 1")

    def test_bad_options(self) -> None:
        with pytest.raises(RhovecError, match="sigma2 must be positive"):
            self.kernel(sigma2=0)
        with pytest.raises(TraceError, match="at least one trace"):
            self.kernel(n_traces=0)
        with pytest.raises(TraceError, match="there are 3"):
            self.kernel(measure=TraceMeasure(np.zeros((3, 1, 2))), n_traces=4)


def on_host(kind: type) -> type:
    """The kind with its traces as NumPy arrays, for the tests to look at."""

    class OnHost(kind):  # type: ignore[misc, valid-type]
        def traces_on_host(self) -> Any:
            return self.measure.blocks(self.n_traces, self.seed)

    return OnHost


def with_torch(kind: type) -> type:
    """The kind as it runs on a device, with torch's tensors, but on the CPU."""

    class WithTorch(on_host(kind)):  # type: ignore[misc]
        def _to_device(self, block: np.ndarray) -> Any:
            return pytest.importorskip("torch").from_numpy(block)

    return WithTorch


class TestStlKernel(SampledContract):
    kind = on_host(StlKernel)

    def test_a_formula_without_robustness_is_named(self) -> None:
        kernel = self.kernel(measure=TraceMeasure(np.ones((5, 1, 3))), n_traces=None)
        for method in (kernel.gram, kernel.gram_errors, kernel.signatures):
            with pytest.raises(FormulaError, match="'x_0 > 1' is 0 on every trace"):
                method(["x_0 > 0", "x_0 > 1"])
        plain = self.kernel(
            measure=TraceMeasure(np.ones((5, 1, 3))), n_traces=None, normalised=False,
            exponentiated=False,
        )  # fmt: skip
        assert plain.gram(["x_0 > 0", "x_0 > 1"]).tolist() == [[1, 0], [0, 0]]

    def test_robustness_that_overflows_is_named(self) -> None:
        kernel = self.kernel(measure=TraceMeasure(np.ones((5, 2, 3))), n_traces=None)
        with pytest.raises(FormulaError, match=r"robustness of 'x_0 > 1e\+200' is too large"):
            kernel.gram(["x_1 > 0", "x_0 > 1e200"])

    def test_past_formulae_at_time_zero(self) -> None:
        kernel = self.kernel(n_traces=50)
        pairs = {"once[0,3] x_0 > 0": "x_0 > 0", "F[2,2] once[0,2] x_1 > 0": "F[0,2] x_1 > 0"}
        for past, future in pairs.items():
            assert kernel.similarity(past, future) == pytest.approx(1)

    def test_a_hundred_thousand_levels(self) -> None:
        deep = rv.parse("not " * 100_000 + "x_0 > 0")
        assert self.kernel(n_traces=5).similarity(deep, "x_0 > 0") == pytest.approx(1)


class TestBooleanKernel(SampledContract):
    kind = on_host(BooleanKernel)

    def features(self, phi: Formula, traces: dict[str, np.ndarray]) -> np.ndarray:
        return 2.0 * satisfaction_trace(phi, traces)[:, :1] - 1

    def test_agreement_is_a_probability(self) -> None:
        kernel = self.kernel(exponentiated=False, n_traces=1000)
        (x,) = kernel.traces_on_host()
        differ = np.mean((x[:, 0, 0] > 0) != (x[:, 1, 0] > 0.5))
        assert kernel.similarity("x_0 > 0", "x_1 > 0.5") == pytest.approx(1 - 2 * differ)


class TestCentredKernel(SampledContract):
    kind = on_host(CentredKernel)

    def features(self, phi: Formula, traces: dict[str, np.ndarray]) -> np.ndarray:
        values = robustness_trace(phi, traces)[:, :1]
        return values - values.mean()

    def test_a_shift_of_all_thresholds_is_invisible(self) -> None:
        a, b = "always[0,5] (x_0 > 0 and x_1 > 1)", "always[0,5] (x_0 > -3 and x_1 > -2)"
        assert self.kernel().similarity(a, b) == pytest.approx(1, abs=1e-5)
        assert StlKernel(n_traces=150).similarity(a, b) < 0.9

    def test_requirements_that_hold_everywhere_differ(self) -> None:
        pair = "always x_0 <= 50", "always x_1 <= 50"
        assert StlKernel(n_traces=150).similarity(*pair) > 0.99
        assert self.kernel().similarity(*pair) < 0.1

    def test_what_hardly_varies_is_refused(self) -> None:
        for text in ("x_0 > 1e6", "x_0 > 0 or x_0 <= 1e9"):
            for ask in (self.kernel().gram, self.kernel().gram_errors, self.kernel().signatures):
                with pytest.raises(FormulaError, match="nearly the same on every trace"):
                    ask(["x_1 > 0", text])


class TestIntegratedKernel(SampledContract):
    kind = on_host(IntegratedKernel)
    width = 20

    def features(self, phi: Formula, traces: dict[str, np.ndarray]) -> np.ndarray:
        trace = robustness_trace(phi, traces)
        return trace / np.sqrt(trace.shape[1])


class TestWithTorch(SampledContract):
    kind = with_torch(StlKernel)


class TestIntegratedWithTorch(TestIntegratedKernel):
    kind = with_torch(IntegratedKernel)


class TestBooleanWithTorch(TestBooleanKernel):
    kind = with_torch(BooleanKernel)


@pytest.mark.gpu
class TestOnCuda(TestStlKernel):
    device = "cuda"


@pytest.mark.gpu
class TestBooleanOnCuda(TestBooleanKernel):
    device = "cuda"


@pytest.mark.gpu
class TestIntegratedOnCuda(TestIntegratedKernel):
    device = "cuda"


# -- known values ----------------------------------------------------------------------------------


def test_golden_pairs() -> None:
    kernel = StlKernel(n_traces=20_000, seed=1)
    gram = kernel.gram(GOLDEN["formulae"])
    errors = kernel.gram_errors(GOLDEN["formulae"])
    for pair in GOLDEN["kernel"]:
        i, j = pair["i"], pair["j"]
        rounding = 1e-6  # golden values have six decimals
        error = np.hypot(errors[i, j], pair["standard_error_of_k"]) + rounding
        assert abs(gram[i, j] - pair["k"]) <= 4 * error, (i, j)


def test_the_traces_length_changes_what_the_kernel_sees() -> None:
    pair = ("always[0,30] x_0 >= 0", "eventually[0,30] x_0 >= 0")
    short = StlKernel(BaseMeasure(points=100), n_traces=4000).similarity(*pair)
    long = StlKernel(BaseMeasure(points=1000), n_traces=4000).similarity(*pair)
    assert short == pytest.approx(0.752, abs=0.03)
    assert long == pytest.approx(0.997, abs=0.002)


def test_standard_errors_are_honest() -> None:
    """Pairs with traces of their own: the errors they state are the errors they make."""
    pairs = 150
    formulae = rv.random_formulae(2 * pairs, seed=11)
    measure = BaseMeasure(points=40)
    sums = np.zeros((3, pairs))
    for x in measure.blocks(60_000, seed=0):
        rho = rv.robustness(formulae, x).astype(np.float64)
        a, b = rho[:pairs], rho[pairs:]
        sums += [(a * b).sum(axis=1), (a * a).sum(axis=1), (b * b).sum(axis=1)]
    truth = np.exp((sums[0] / np.sqrt(sums[1] * sums[2]) - 1) / 0.2)
    scores = np.empty(pairs)
    for i in range(pairs):
        kernel = StlKernel(measure, n_traces=1000, seed=i + 1)
        pair = (formulae[i], formulae[pairs + i])
        scores[i] = (kernel.similarity(*pair) - truth[i]) / kernel.standard_error(*pair)
    assert 0.89 <= np.mean(abs(scores) <= 1.96) <= 0.99
    assert 0.85 <= scores.std() <= 1.2
    assert abs(scores.mean()) <= 0.35


# -- anchors ---------------------------------------------------------------------------------------


def test_anchors_differ_in_meaning() -> None:
    formulae = rv.random_formulae(40, seed=4)
    kernel = StlKernel()
    embedding = AnchorEmbedding(kernel, n_anchors=20, seed=1)
    doubled = [*formulae, *(rv.simplify(phi) for phi in formulae)]
    anchors = embedding.fit(doubled).anchors
    gram = kernel.gram(anchors)
    assert np.abs(embedding.transform(anchors) - gram).max() <= 1e-12
    assert (gram - np.eye(20)).max() < 1 - 1e-6
    # Farther apart than anchors drawn by chance: a larger determinant.
    rng = np.random.default_rng(0)
    whole = kernel.gram(formulae)
    by_chance = []
    for _ in range(20):
        chosen = rng.permutation(40)[:20]
        by_chance.append(np.linalg.slogdet(whole[np.ix_(chosen, chosen)])[1])
    assert np.linalg.slogdet(gram)[1] > max(by_chance)
    assert embedding.transform(formulae[0]).shape == (20,)
    assert AnchorEmbedding(kernel, 20, seed=1).fit(doubled).anchors == anchors


def test_too_many_anchors_are_refused() -> None:
    same = ["x_0 > 0", "not x_0 <= 0", "x_1 > 0", "x_1 > 0 and x_1 > -1"]
    with pytest.raises(FormulaError, match="only 2 of 4 formulae differ in meaning"):
        AnchorEmbedding(StlKernel(), n_anchors=3).fit(same)
    with pytest.raises(RhovecError, match="call fit first"):
        AnchorEmbedding(StlKernel(), n_anchors=3).transform(same)
    with pytest.raises(RhovecError, match="n_components must be 1 to 3"):
        KernelPCA(StlKernel(), n_components=4, n_anchors=3)


def test_kernel_pca_with_all_formulae_is_exact() -> None:
    n = len(FORMULAE)
    kernel = StlKernel()
    pca = KernelPCA(kernel, n_components=n, n_anchors=n).fit(FORMULAE)
    vectors = pca.transform(FORMULAE)
    centre = np.eye(n) - 1 / n
    centred = centre @ kernel.gram(FORMULAE) @ centre
    assert np.abs(vectors @ vectors.T - centred).max() <= 1e-6
    assert np.abs(vectors.mean(axis=0)).max() <= 1e-7
    covariance = vectors.T @ vectors / n
    assert np.abs(covariance - np.diag(pca.explained_variance)).max() <= 1e-7
    assert (np.diff(pca.explained_variance) <= 1e-12).all()
    fewer = KernelPCA(kernel, n_components=3, n_anchors=n).fit(FORMULAE).transform(FORMULAE[0])
    assert np.abs(abs(fewer) - abs(vectors[0, :3])).max() <= 1e-7


def test_devices_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RhovecError, match='device must be "cpu" or "cuda", not \'tpu\''):
        StlKernel(device="tpu")
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingDependencyError, match="no CUDA device"):
        StlKernel(device="cuda")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match="needs torch"):
        StlKernel(device="cuda")


@pytest.mark.parametrize("wrong", ["0.2", None, [0.2], np.inf, np.nan, 1e-320, -1, 0])
def test_sigma2_is_a_positive_number(wrong: Any) -> None:
    """1 / 1e-320 is infinite: the kernel of a formula and itself was NaN."""
    with pytest.raises(RhovecError, match="sigma2 must be positive and finite, not"):
        rv.StlKernel(sigma2=wrong)


@pytest.mark.parametrize("name", ["measure", "device"])
def test_arguments_of_the_wrong_type_are_named(name: str) -> None:
    for wrong in (3, None):
        with pytest.raises(RhovecError, match=f"{name} must be"):
            rv.StlKernel(**{name: wrong})


def test_what_no_memory_can_hold_is_refused_before_it_is_drawn() -> None:
    measure = rv.BaseMeasure(1, 10)
    kernel = rv.StlKernel(measure, 10**14)
    for call in (lambda: kernel.signatures("x_0 > 0"), lambda: measure.sample(10**14)):
        with pytest.raises(RhovecError, match=r"GiB of memory; ask for fewer traces"):
            call()
    assert len(next(measure.blocks(10**14))) == 1024  # streams know no such limit
