"""The semantic kernel: how alike two formulae are, judged by their robustness on random traces.

    k'(a, b) = <rho_a, rho_b> / (|rho_a| |rho_b|)        k(a, b) = exp(-(1 - k'(a, b)) / sigma2)

where rho_a is the vector of a's robustness on N traces of a measure. Robustness is computed in the
traces' precision (float32 for mu0), products and sums in float64 on every device: a Gram matrix is
exact to about 1e-6 for its traces. A few traces (to 256 MB) are held between calls, more are drawn
block by block each time, so memory does not grow with N. Kernels differ only in what they compute
from a trace (`features`); anchors, kernel PCA and a model's training need nothing but `gram`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from .errors import FormulaError, MissingDependencyError, RhovecError, TraceError, needed
from .former import former_arguments, warn
from .formula import operators as ops
from .formula.core import Formula
from .formula.printer import excerpt
from .formula.programs import Programs
from .formula.reader import Formulae, as_formulae, as_programs, is_single
from .formula.simplify import simplify
from .robustness import robustness, satisfaction
from .robustness.inputs import is_torch
from .traces import BaseMeasure, Measure
from .traces.measure import empty_floats

Progress = Callable[[float], object]  # called with the share of the work that is done

HELD_BYTES = 256 << 20  # traces up to this size are kept between calls, more are drawn anew
ROWS = 4096  # formulae evaluated at once where their number is free
FEATURES = {"cpu": 1 << 22, "cuda": 1 << 25}  # numbers in a block of features
PRODUCTS = 1 << 22  # products of single traces held at once for a standard error
MAX_FEATURE = 1e75  # fourth powers of features can still be added up
MIN_SPREAD = 1e-4  # standard deviation over size: below it, float32 robustness is mostly rounding
DISTINCT = 1e-8  # squared distance from the other anchors, as a share of the largest norm


class Teacher(Protocol):
    """Anything that says how alike formulae are; anchors and models are made from it.

    gram(first) is (A, A), symmetric and positive semidefinite; gram(first, second) is (A, B).
    """

    def gram(self, first: Formulae, second: Formulae | None = None, /) -> np.ndarray: ...


def kernel_of_cosine(cosine: Any, sigma2: float) -> Any:
    """Kernel value k for the cosine k': a number, a NumPy array or a torch tensor."""
    return _exp((cosine - 1) * (1 / sigma2))  # 1 / 0.2 is exact in float32, 0.2 is not


def cosine_of_kernel(kernel: Any, sigma2: float) -> Any:
    """Cosine k' for the kernel value k > 0: the inverse of `kernel_of_cosine`."""
    return 1 + sigma2 * _log(kernel)


# -- kernels on traces ----------------------------------------------------------------------------


@former_arguments(n_signals="n_traces")
@dataclass(frozen=True)
class SampledKernel(ABC):
    """Base of the kernels on traces: inner products of features over a measure's traces.

    To define a kernel, derive a class with `features`, what it computes from each trace, and with
    `width` if that is more than one number.
    """

    measure: Measure = field(default_factory=BaseMeasure)
    n_traces: int | None = None
    sigma2: float = 0.2
    seed: int = 0
    normalised: bool = True
    exponentiated: bool = True
    device: str = "cpu"
    _held: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        number = isinstance(self.sigma2, int | float | np.number)
        if not number or not 0 < self.sigma2 < np.inf or 1 / float(self.sigma2) == np.inf:
            raise RhovecError(f"sigma2 must be positive and finite, not {self.sigma2!r}")
        if not all(hasattr(self.measure, n) for n in ("variables", "points", "count", "blocks")):
            raise RhovecError(f"measure must be a measure over traces, not {self.measure!r:.80}")
        self.measure.count(self.n_traces)
        if self.device != "cpu":
            _require_cuda(self.device)

    @property
    def n_signals(self) -> int | None:
        """Former name of `n_traces`."""
        warn("n_signals", "n_traces")
        return self.n_traces

    @abstractmethod
    def features(self, formulae: Programs, traces: Any) -> Any:
        """Features of each formula on each of the traces (n, V, P): (B, n), or (B, n, T).

        traces are a NumPy array, or a tensor on the kernel's device; the features are of the same kind.
        """

    def width(self) -> int:
        """T, the number of features per trace."""
        return 1

    def gram(
        self, first: Formulae, second: Formulae | None = None, *, progress: Progress | None = None
    ) -> np.ndarray:
        """Similarities (A, B) float64; without a second list (A, A), symmetric."""
        rows, columns = self.check(first), None if second is None else self.check(second)
        return _by_rows(self._gram, rows, columns, progress)

    def gram_errors(
        self, first: Formulae, second: Formulae | None = None, *, progress: Progress | None = None
    ) -> np.ndarray:
        """The standard errors of `gram`, (A, B) float64."""
        rows, columns = self.check(first), None if second is None else self.check(second)
        return _by_rows(self._errors, rows, columns, progress)

    def similarity(self, first: Formulae, second: Formulae) -> Any:
        """Kernel value of each pair, (A, B); a single formula drops its axis, so two give a float."""
        return drop_axes(self.gram(first, second), first, second)

    def standard_error(self, first: Formulae, second: Formulae) -> Any:
        """The Monte Carlo standard error of `similarity`, in the same shape.

        By the delta method: k plus or minus 1.96 standard errors covers the value for infinitely many
        traces with probability 0.95. For equivalent formulae it is about 0.
        """
        return drop_axes(self.gram_errors(first, second), first, second)

    def signatures(self, formulae: Formulae) -> np.ndarray:
        """Unit vectors whose inner products are k': (B, N) float32, of a single formula (N,).

        A kernel with T features per trace has N * T columns.
        """
        checked = self.check(formulae)
        columns = self.measure.count(self.n_traces) * self.width()
        out = empty_floats((len(checked), columns))
        for start in range(0, len(checked), ROWS):
            place = out[start : start + ROWS]
            part = checked.part(start, start + len(place))
            squares: Any = 0.0
            done = 0
            for f in self._stream(part):
                flat = f.reshape(len(part), -1)
                squares = squares + (_float64(flat) ** 2).sum(1)
                place[:, done : done + flat.shape[1]] = _numpy(flat)
                done += flat.shape[1]
            norms = np.sqrt(_require_direction(part, _numpy(squares)))
            np.divide(place, norms[:, None], out=place, casting="same_kind")  # in float64
        return out[0] if is_single(formulae) else out

    def traces(self) -> Iterator[Any]:
        """The kernel's traces on its device, in blocks (n, V, P); a single block if held."""
        n = self.measure.count(self.n_traces)
        if 4 * n * len(self.measure.variables) * self.measure.points > HELD_BYTES:
            yield from map(self._to_device, self.measure.blocks(self.n_traces, self.seed))
            return
        if not self._held:
            blocks = list(self.measure.blocks(self.n_traces, self.seed))
            self._held.append(self._to_device(np.concatenate(blocks)))
        yield self._held[0]

    def _to_device(self, block: np.ndarray) -> Any:
        if self.device == "cpu":
            return block
        import torch

        return torch.from_numpy(block).to(self.device)

    def check(self, formulae: Formulae) -> Programs:
        """The formulae packed; an error if the measure lacks a variable or a formula is constant."""
        programs, _ = as_programs(formulae)
        known = set(self.measure.variables)
        for c, channel in enumerate(programs.channels):
            names = dict.fromkeys(ops.name_of(variable) for variable, _ in channel)
            unknown = [name for name in names if name not in known]
            if unknown:
                phi = formula_of_row(programs, int((programs.code[:, 3] == c).argmax()))
                raise TraceError(
                    f"{excerpt(phi)} uses {', '.join(unknown[:8])}, but the measure has "
                    f"{', '.join(self.measure.variables[:8])}; give traces that have it, or "
                    "lower the formula with a Schema"
                )
        for row in np.flatnonzero(ops.IS_CONSTANT[programs.code[:, 0]]).tolist():
            phi = formula_of_row(programs, row)
            if simplify(phi).code[-1, 0] in (ops.TRUE, ops.FALSE):
                raise FormulaError(
                    f"{excerpt(phi)} is constant, so no kernel can compare it; leave it out"
                )
        return programs

    def _stream(self, formulae: Programs, progress: Progress | None = None) -> Iterator[Any]:
        """Features (B, n, T) of one part of the traces after another, in their precision."""
        room = FEATURES[self.device.partition(":")[0]]
        step = max(1, room // (len(formulae) * self.width()))
        total, done = self.measure.count(self.n_traces), 0
        for traces in self.traces():
            for start in range(0, len(traces), step):
                part = traces[start : start + step]
                f = self.features(formulae, part).reshape(len(formulae), len(part), -1)
                if not float(abs(f).max()) < MAX_FEATURE:
                    moderate = abs(_float64(_numpy(f))) < MAX_FEATURE
                    b = int(moderate.all(axis=(1, 2)).argmin())
                    (phi,) = formulae.part(b, b + 1).unpack()
                    raise FormulaError(f"the robustness of {excerpt(phi)} is too large to add up")
                yield f
                done += len(part)
                if progress:
                    progress(done / total)

    def _gram(
        self, rows: Programs, columns: Programs | None, progress: Progress | None
    ) -> np.ndarray:
        both = rows if columns is None else Programs.join([rows, columns])
        cross: Any = 0.0
        squares: Any = 0.0
        for f in self._stream(both, progress):
            flat = _float64(f).reshape(len(both), -1)
            left = flat[: len(rows)]
            cross = cross + left @ (left if columns is None else flat[len(rows) :]).T
            squares = squares + (flat * flat).sum(1)
        if self.normalised:
            _require_direction(both, _numpy(squares))
        n = self.measure.count(self.n_traces)
        a, b = squares[: len(rows), None] / n, squares[None, -cross.shape[1] :] / n
        out = _numpy(self._value(cross / n, a, b))
        if columns is None:
            out = (out + out.T) / 2  # a product on a GPU need not be symmetric to the last bit
            if self.normalised or self.exponentiated:
                np.fill_diagonal(out, 1.0)
        return out

    def _errors(
        self, rows: Programs, columns: Programs | None, progress: Progress | None
    ) -> np.ndarray:
        """k is a function of the means of w = <a, b>, p = <a, a>, q = <b, b>, each of one trace.

        Its variance is that of the sum of the three times their slopes, so the second moments of
        the three are added up beside the means.
        """
        both = rows if columns is None else Programs.join([rows, columns])
        sums: Any = [0.0] * 9
        for f in self._stream(both, progress):
            f = _float64(f)
            a = f[: len(rows)]
            b = a if columns is None else f[len(rows) :]
            p, q = (a * a).sum(2), (b * b).sum(2)
            flat_a, flat_b = a.reshape(len(a), -1), b.reshape(len(b), -1)
            weighted_a = (a * p[:, :, None]).reshape(len(a), -1)
            weighted_b = (b * q[:, :, None]).reshape(len(b), -1)
            pq = p @ q.T
            block = (
                flat_a @ flat_b.T, p.sum(1)[:, None], q.sum(1)[None],
                pq if f.shape[2] == 1 else _squared_products(a, b), weighted_a @ flat_b.T,
                flat_a @ weighted_b.T, (p * p).sum(1)[:, None], pq, (q * q).sum(1)[None],
            )  # fmt: skip
            sums = [s + x for s, x in zip(sums, block, strict=True)]
        n = self.measure.count(self.n_traces)
        w, p, q, ww, wp, wq, pp, pq, qq = (s / n for s in sums)
        if self.normalised:
            _require_direction(rows, _numpy(p)[:, 0])
            _require_direction(columns or rows, _numpy(q)[0])
        by_w, by_p, by_q = self._slopes(w, p, q)
        variance = (
            (ww - w * w) * by_w**2 + (pp - p * p) * by_p**2 + (qq - q * q) * by_q**2
            + 2 * ((wp - w * p) * by_w * by_p + (wq - w * q) * by_w * by_q)
            + 2 * (pq - p * q) * by_p * by_q
        )  # fmt: skip
        errors: np.ndarray = np.sqrt(np.maximum(_numpy(variance), 0) / n)
        return errors

    def _value(self, cross: Any, a: Any, b: Any) -> Any:
        """The kernel (A, B) of the mean products (A, B) and the mean squares (A, 1) and (1, B)."""
        if self.normalised:
            cosine = (cross / (a * b) ** 0.5).clip(-1, 1)
            return kernel_of_cosine(cosine, self.sigma2) if self.exponentiated else cosine
        return _exp(-(a + b - 2 * cross) / (2 * self.sigma2)) if self.exponentiated else cross

    def _slopes(self, cross: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
        """The derivatives of `_value` by its three arguments, each (A, B)."""
        slope = self._value(cross, a, b) / self.sigma2 if self.exponentiated else 1 + 0 * cross
        if self.normalised:
            norm = (a * b) ** 0.5
            cosine = cross / norm
            return slope / norm, -slope * cosine / (2 * a), -slope * cosine / (2 * b)
        share = -slope / 2 if self.exponentiated else 0 * slope
        return slope, share, share


class StlKernel(SampledKernel):
    """The kernel of robustness at time 0.

    measure: mu0, or `TraceMeasure` of the user's own.
    n_traces: by default 1000 of mu0, all of the user's own.
    normalised: the cosine k' instead of the mean product.
    exponentiated: exp(-d^2 / (2 sigma2)) of the distance d that goes with the inner product; for
        unit vectors that is k above.
    device: where robustness is computed, "cpu" or "cuda"; answers are NumPy arrays in any case.
    """

    def features(self, formulae: Programs, traces: Any) -> Any:
        return robustness(formulae, traces, variables=self.measure.variables)


class BooleanKernel(SampledKernel):
    """The kernel of satisfaction, +1 or -1, instead of robustness: k' is 1 - 2 P(they differ).

    The arguments are those of StlKernel.
    """

    def features(self, formulae: Programs, traces: Any) -> Any:
        return 2 * _float64(satisfaction(formulae, traces, variables=self.measure.variables)) - 1


class CentredKernel(StlKernel):
    """The kernel of the correlation of robustness over traces: K = exp(-(1 - corr) / sigma2).

    For requirements that hold on nearly all traces, which the plain cosine finds all alike. It does
    not see a constant added to robustness, so not a shift of all thresholds either, and refuses
    formulae whose robustness hardly differs between traces. The arguments are those of StlKernel.
    """

    def _stream(self, formulae: Programs, progress: Progress | None = None) -> Iterator[Any]:
        """Features less their mean over all traces. The traces are gone through twice."""
        sums: Any = 0.0
        squares: Any = 0.0
        for f in super()._stream(formulae, progress and (lambda share: progress(share / 2))):
            sums, squares = sums + _float64(f).sum(1), squares + (_float64(f) ** 2).sum(1)
        n = self.measure.count(self.n_traces)
        means, size = sums / n, _numpy(squares / n)[:, 0]
        spread = size - _numpy(means)[:, 0] ** 2
        if not (spread > MIN_SPREAD**2 * size).all():
            b = int((spread <= MIN_SPREAD**2 * size).argmax())
            (phi,) = formulae.part(b, b + 1).unpack()
            raise FormulaError(
                f"the robustness of {excerpt(phi)} is nearly the same on every trace, so it has no "
                "correlation with others; leave it out, or take an StlKernel"
            )
        for f in super()._stream(formulae, progress and (lambda share: progress((1 + share) / 2))):
            yield _float64(f) - means[:, None]


class IntegratedKernel(SampledKernel):
    """The kernel of the whole robustness trace: inner products over traces and mean over time.

    The arguments are those of StlKernel.
    """

    def features(self, formulae: Programs, traces: Any) -> Any:
        trace = robustness(formulae, traces, variables=self.measure.variables, trace=True)
        return trace / self.measure.points**0.5

    def width(self) -> int:
        return self.measure.points


def _by_rows(
    method: Callable[..., np.ndarray],
    rows: Programs,
    columns: Programs | None,
    progress: Progress | None,
) -> np.ndarray:
    """A long list against a shorter one is done in pieces, so that features stay bounded."""
    if columns is None or max(len(rows), len(columns)) <= ROWS:
        return method(rows, columns, progress)
    if len(columns) > len(rows):
        return _by_rows(method, columns, rows, progress).T
    starts = range(0, len(rows), ROWS)
    parts = []
    for i, start in enumerate(starts):
        parts.append(method(rows.part(start, min(start + ROWS, len(rows))), columns, None))
        if progress:
            progress((i + 1) / len(starts))
    return np.concatenate(parts)


def _squared_products(a: Any, b: Any) -> Any:
    """Sum over traces of <a, b>^2, (A, B), for features (A, n, T) and (B, n, T)."""
    total: Any = 0.0
    step = max(1, PRODUCTS // (len(a) * len(b)))
    for start in range(0, a.shape[1], step):
        left = a[:, start : start + step].swapaxes(0, 1)
        right = b[:, start : start + step].swapaxes(0, 1).swapaxes(1, 2)
        total = total + ((left @ right) ** 2).sum(0)
    return total


def _require_direction(formulae: Programs, squares: np.ndarray) -> np.ndarray:
    if not squares.all():
        b = int((squares == 0).argmax())
        (phi,) = formulae.part(b, b + 1).unpack()
        raise FormulaError(
            f"the robustness of {excerpt(phi)} is 0 on every trace, so it has no angle with others; "
            "leave it out"
        )
    return squares


def _require_cuda(device: str) -> None:
    if not isinstance(device, str) or device.partition(":")[0] != "cuda":
        raise RhovecError(f'device must be "cpu" or "cuda", not {device!r}')
    torch = needed("torch", 'device="cuda"', "torch")
    if not torch.cuda.is_available():
        raise MissingDependencyError('torch finds no CUDA device here; use device="cpu"')


def drop_axes(values: np.ndarray, first: Formulae, second: Formulae) -> Any:
    if is_single(second):
        values = values[:, 0]
    if is_single(first):
        values = values[0]
    return values if values.ndim else float(values)


def formula_of_row(programs: Programs, row: int) -> Formula:
    b = int(np.searchsorted(programs.offsets, row, side="right")) - 1
    (phi,) = programs.part(b, b + 1).unpack()
    return phi


# What NumPy and torch spell differently.


def _float64(values: Any) -> Any:
    return values.astype(np.float64) if isinstance(values, np.ndarray) else values.double()


def _numpy(values: Any) -> np.ndarray:
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def _exp(values: Any) -> Any:
    return values.exp() if is_torch(values) else np.exp(values)


def _log(values: Any) -> Any:
    return values.log() if is_torch(values) else np.log(values)


# -- vectors from a kernel -------------------------------------------------------------------------


class AnchorEmbedding:
    """A formula as its similarities to D anchors, which are chosen to differ in meaning."""

    def __init__(self, kernel: Teacher, n_anchors: int, seed: int = 0):
        self.kernel = kernel
        self.n_anchors = n_anchors
        self.seed = seed
        self.anchors: list[Formula] = []

    def fit(self, formulae: Formulae) -> Self:
        """Choose anchors among the formulae by pivoted Cholesky: each is the one farthest from the
        span of those before, the seed chooses the first. The Gram matrix (B, B) is held meanwhile.
        """
        candidates, _ = as_formulae(formulae)
        gram = self.kernel.gram(candidates)
        residual = np.diag(gram).copy()
        smallest = DISTINCT * residual.max()
        factor = np.zeros((self.n_anchors, len(candidates)))
        chosen = []
        pivot = int(np.random.default_rng(self.seed).integers(len(candidates)))
        for i in range(self.n_anchors):
            if residual[pivot] <= smallest:
                raise FormulaError(
                    f"only {i} of {len(candidates)} formulae differ in meaning; ask for fewer than "
                    f"{self.n_anchors} anchors, or give more formulae"
                )
            chosen.append(pivot)
            explained = factor[:i].T @ factor[:i, pivot]
            factor[i] = (gram[pivot] - explained) / np.sqrt(residual[pivot])
            residual -= factor[i] ** 2
            residual[chosen] = 0
            pivot = int(residual.argmax())
        self.anchors = [candidates[i] for i in chosen]
        return self

    def transform(self, formulae: Formulae) -> np.ndarray:
        """(B, D) float64; of a single formula (D,)."""
        if not self.anchors:
            raise RhovecError("there are no anchors yet: call fit first")
        out = self.kernel.gram(formulae, self.anchors)
        return out[0] if is_single(formulae) else out


class KernelPCA:
    """The directions of a kernel's feature space in which formulae vary most.

    Nyström: features are taken in the span of D anchors (all distinct directions if D is the number
    of formulae), then centred and rotated.
    """

    def __init__(self, kernel: Teacher, n_components: int, n_anchors: int, seed: int = 0):
        self.embedding = AnchorEmbedding(kernel, n_anchors, seed)
        self.n_components = n_components
        if not 0 < n_components <= n_anchors:
            raise RhovecError(
                f"n_components must be 1 to {n_anchors}, the number of anchors, not {n_components}"
            )

    def fit(self, formulae: Formulae) -> Self:
        candidates, _ = as_formulae(formulae)
        anchors = self.embedding.fit(candidates).anchors
        values, vectors = np.linalg.eigh(self.embedding.kernel.gram(anchors))
        whiten = vectors / np.sqrt(np.maximum(values, DISTINCT * values[-1]))
        features = self.embedding.transform(candidates) @ whiten
        mean = features.mean(axis=0)
        centred = features - mean
        variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
        axes = axes[:, ::-1][:, : self.n_components]
        self.explained_variance = variances[::-1][: self.n_components]  # (n_components,)
        self._rotate, self._shift = whiten @ axes, mean @ axes
        return self

    def transform(self, formulae: Formulae) -> np.ndarray:
        """(B, n_components) float64; of a single formula (n_components,)."""
        return np.asarray(self.embedding.transform(formulae) @ self._rotate - self._shift)
