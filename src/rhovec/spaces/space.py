"""The space of one's own traces: exact vectors of formulae, made in seconds on a CPU.

    space = rv.Space.fit(traces, names)              # traces (N, V, P), in any units
    space.embed(["always speed < 120", ...])         # (B, D), D of 32 ... 256
    space.similarity("always speed < 120", "always speed < 110")
    space.decode(vector)                             # formulae in names, units and steps
    space.save("car"), rv.load("car")

A vector is the formula's signature, its robustness on the traces scaled to length one, cut to the
directions in which signatures of formulae vary most, with a sketch of the rest. Inner products are the
cosine k' on these traces, up to an error that is measured and stated.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import RhovecError, RhovecWarning, TraceError, whole
from ..files import as_folder
from ..formula import Formula
from ..formula.programs import Programs
from ..formula.reader import Formulae, FormulaLike, is_single
from ..formula.simplify import simplify
from ..kernel import MIN_SPREAD, CentredKernel, Progress, StlKernel, drop_axes, kernel_of_cosine
from ..models.inverse import Found, unit_rows
from ..models.model import Step, interpolated
from ..traces import TraceMeasure
from . import store
from .decoding import Decoder, front, refuse_centred
from .fitting import cut, distinct, draw_formulae, find_directions, vectors_of
from .scales import Scales, as_given, scaled_kernel, schema_of
from .store import MAX_TRACES, MIN_TRACES, Content

FITTED, PROBES = 4000, 1000  # drawn formulae that find the directions, and that measure the error
ERRED = 200  # of them whose Monte Carlo error is measured
MAX_WEIGHT = 50  # drawn formulae that one of the user's may stand against
ROWS = 2048  # formulae evaluated at once
MAX_COPIES = 0.1  # share of the traces that may be copies without a warning
MISSED = 0.5  # residual that is worth a warning


class Space:
    """Formulae <-> unit vectors on the traces of a system; `Space.fit` makes one, `rv.load` reads one.

    schema: names, units, scales and time step of the system.
    error: mean error of K that the cut to `dimension` directions causes.
    standard_error: mean Monte Carlo error of K, as there are only N traces.
    """

    kind: Literal["cosine"] = "cosine"  # inner products are k'

    def __init__(self, content: Content):
        self._content = content
        self.schema = content.schema
        self.scales = Scales(content.values, content.schema)
        self.sigma2 = content.sigma2
        self.error = float(content.facts["error"])
        self.standard_error = float(content.facts["standard_error"])
        self._kernel = scaled_kernel(self.scales, self.centred, self.sigma2)

    def __repr__(self) -> str:
        n, _, points = self._content.values.shape
        what = "centred, " if self.centred else ""
        return (
            f"Space({self.dimension} directions, {what}{n} traces of {points} points; error "
            f"{self.error:.4f}, standard error {self.standard_error:.4f})"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Space:
        return self  # it never changes

    # -- making ----------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        traces: Any,
        variables: Sequence[str] | None = None,
        *,
        dt: float | None = None,
        units: Mapping[str, str] | None = None,
        discrete: Iterable[str] = (),
        tolerance: float | None = None,
        formulae: Formulae = (),
        error: float = 0.001,
        sigma2: float = 0.2,
        centred: bool = False,
        seed: int = 0,
    ) -> Space:
        """The space of these traces.

        traces: an array (N, V, P), a list of (V, P_i), a dict from name to (N, P), or what
            `read_traces` returns. At least 33; of more than 4096 a random choice, fixed by the seed.
        variables: the names of axis V (default: x_0, x_1, ...).
        dt: seconds per sampling step (default: that of files read, otherwise 1).
        units, discrete, tolerance: what texts of formulae need, as for `rv.parse`. Channels that are
            discrete, or only 0 and 1, keep their values; others are divided by their standard deviation.
        formulae: your own, for which the directions should be good, beside 4000 that are drawn.
        error: mean error of K that the cut may cause; the fewest directions that reach it are taken.
        centred: compare by correlation over traces (`rv.CentredKernel`) instead of the cosine; such a
            space cannot be decoded.
        """
        if not isinstance(error, int | float | np.floating) or not 0 < error < 1:
            raise RhovecError(f"error must be above 0 and below 1, not {error!r}")
        seed = whole(seed, "seed", least=0)
        if not isinstance(centred, bool):
            raise RhovecError(f"centred must be True or False, not {centred!r:.80}")
        given = as_given(traces, variables)
        n = len(given.values)
        different = len({trace.tobytes() for trace in given.values})
        if different < MIN_TRACES:
            raise TraceError(
                f"a space needs {MIN_TRACES} different traces or more, and there are {different}; "
                "record more, or compare formulae by the kernel on these"
            )
        if n - different > MAX_COPIES * n:
            warnings.warn(
                f"{n - different} of {n} traces are copies of others, and the standard errors count "
                "them as independent; give each trace once",
                RhovecWarning, stacklevel=2,
            )  # fmt: skip
        if n > MAX_TRACES:
            chosen = np.sort(np.random.default_rng(seed).permutation(n)[:MAX_TRACES])
            given = given._replace(values=given.values[chosen])
        scales = Scales.of(given.values, schema_of(given, dt, units, discrete, tolerance))
        kernel = (CentredKernel if centred else StlKernel)(scales.measure, sigma2=sigma2)
        drawn = distinct(draw_formulae(scales, FITTED + PROBES, int(seed)), scales, centred)
        if len(drawn) < 2 * PROBES:
            raise TraceError("the traces hardly differ from each other, so they make no space")
        signatures = kernel.signatures(drawn)
        fitted, weights = signatures[:-PROBES], np.ones(len(drawn) - PROBES)
        if is_single(formulae) or not isinstance(formulae, Sequence) or len(formulae):
            own = scaled_kernel(scales, centred, sigma2).signatures(scales.read(formulae)[0])
            weight = max(1.0, min(MAX_WEIGHT, len(fitted) / len(own)))
            fitted = np.concatenate([fitted, own])
            weights = np.concatenate([weights, np.full(len(own), weight**0.5)])
        principal = find_directions(fitted, weights, int(seed))
        found = cut(principal, signatures[-PROBES:], sigma2, error, int(seed))
        if found.error > error:
            warnings.warn(
                f"{found.basis.shape[1]} directions, the most, reach an error of {found.error:.2g}, not "
                f"{error:g}; similarities on these traces are off by that much on average",
                RhovecWarning, stacklevel=2,
            )  # fmt: skip
        errors = kernel.gram_errors(drawn.part(len(drawn) - ERRED, len(drawn)))
        facts = {
            "error": found.error, "standard_error": float(errors[np.triu_indices(ERRED, 1)].mean()),
            "formulae": len(fitted), "seed": int(seed), "traces": n,
        }  # fmt: skip
        name = "centred" if centred else "robustness"
        return cls(Content(scales.values, found.basis, scales.schema, name, float(sigma2), facts))

    @classmethod
    def load(cls, folder: str | Path) -> Space:
        """Read the space in a folder; `rv.load` reads spaces and models."""
        return cls(store.read(as_folder(folder, "a space")))

    def save(self, folder: str | Path) -> None:
        """Write the space to a folder, atomically: after a kill there is the old space or this one."""
        store.save(as_folder(folder, "a space"), self._content)

    # -- facts -----------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        return int(self._content.basis.shape[1])

    @property
    def centred(self) -> bool:
        return self._content.kernel == "centred"

    @cached_property
    def fingerprint(self) -> str:
        """Twelve digits: vectors of spaces with different ones are not comparable."""
        return store.fingerprint(store.pack(self._content)[0])

    @cached_property
    def measure(self) -> TraceMeasure:
        """The traces of the space in their own units."""
        return TraceMeasure(self.scales.original(), self.scales.variables)

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> StlKernel:
        """The exact kernel on all traces of the space, whatever the arguments: there are no others."""
        return self._kernel

    def recipe(self) -> tuple[dict[str, Any], bytes]:
        """What makes the same space again, for `from_recipe`: a library stores it."""
        description, data = store.pack(self._content)
        return {"space": description}, data

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any], data: bytes) -> Space:
        return cls(store.unpack(recipe["space"], data, "the library's space"))

    # -- formulae to vectors ---------------------------------------------------------------

    def parse(self, text: str, *, rounding: str | None = None) -> Formula:
        """Read a formula in the system's names, units and seconds; the result counts steps."""
        return self.schema.parse(text, rounding=rounding)

    def embed(
        self, formulae: Formulae, *, warn: bool = True, progress: Progress | None = None
    ) -> np.ndarray:
        """Unit vectors (B, D) float32; of a single formula (D,). Inner products are the cosine k'.

        Texts are in the system's names, units and seconds; Formula objects count steps.
        warn: issue a RhovecWarning if the directions miss much of a formula, see `residual`.
        """
        programs, single = self.scales.read(formulae)
        rows, missed = self._vectors(programs, progress)
        if warn and missed.max() > MISSED:
            warnings.warn(
                f"the space misses much of {(missed > MISSED).sum()} of {len(rows)} formulae (residual "
                f"up to {missed.max():.2f}); fit it with these as formulae, or ask its kernel",
                RhovecWarning, stacklevel=2,
            )  # fmt: skip
        return np.asarray(rows[0] if single else rows, np.float32)

    def residual(self, target: Any) -> Any:
        """Length of what the principal directions miss of each unit signature, (B,) in 0 ... 1; of a
        single one a float. The cosine of two formulae is off by less than the product of theirs.

        target: formulae, or an array of robustness on the space's traces, (N,) or (B, N).
        """
        if not isinstance(target, np.ndarray):
            programs, single = self.scales.read(target)
            missed = self._vectors(programs)[1]
        else:
            rows = self._unit_rows(target)
            if rows.shape[-1] != len(self._basis):
                raise RhovecError(
                    "what the directions miss is not in a vector; give formulae, or robustness on the "
                    f"space's {len(self._basis)} traces"
                )
            missed, single = vectors_of(np.atleast_2d(rows), self._basis)[1], rows.ndim == 1
        return float(missed[0]) if single else missed

    def similarity(self, first: Formulae, second: Formulae, *, warn: bool = True) -> Any:
        """K of every pair, (A, B), from the vectors; a single formula drops its axis."""
        a, b = (np.atleast_2d(self.embed(each, warn=warn)) for each in (first, second))
        values = kernel_of_cosine(np.clip(a @ b.T, -1, 1), self.sigma2)
        return drop_axes(values, first, second)

    def project(self, values: Any) -> np.ndarray:
        """Unit vectors (D,) or (B, D) of robustness on the space's traces, (N,) or (B, N).

        It need not be any formula's. Vectors (D,) or (B, D) are scaled to length one.
        """
        rows = self._unit_rows(values)
        if rows.shape[-1] == len(self._basis):
            flat = vectors_of(np.atleast_2d(rows), self._basis)[0]
            rows = flat.reshape((*rows.shape[:-1], self.dimension))
        return np.asarray(rows, np.float32)

    def _unit_rows(self, values: Any) -> np.ndarray:
        """What `project` takes, of length one; robustness in a centred space also has mean 0."""
        n = len(self._basis)
        wanted = f"this space's have {self.dimension}; robustness on its traces has {n}"
        rows = unit_rows(values, (n, self.dimension), wanted)
        if self.centred and rows.shape[-1] == n:
            rows = rows - rows.mean(axis=-1, keepdims=True)
            spread = np.linalg.norm(np.atleast_2d(rows), axis=1)
            if (spread <= MIN_SPREAD).any():
                raise RhovecError(
                    f"vector {int(spread.argmin())} is nearly the same on every trace, so it has no "
                    "correlation with others; leave it out, or take a space that is not centred"
                )
            rows = unit_rows(rows, (n,), wanted)
        return rows

    # -- vectors to formulae ---------------------------------------------------------------

    def decode(self, target: Any, k: int = 5, *, progress: Progress | None = None) -> Any:
        """Up to k formulae for a vector (D,), the closest first, then shorter ones; for rows (B, D) a
        list of such lists. They are in the system's names and units, and count steps.

        target: vectors of this space, robustness on its traces, (N,) or (B, N), which need not be any
            formula's, or formulae. `front` gives the same with similarities.
        """
        k = whole(k, "k", least=1)
        found = self.front(target, progress=progress)
        single = not found or isinstance(found[0], Found)
        groups = [
            [one.formula for one in group[::-1][:k]] for group in ([found] if single else found)
        ]
        return groups[0] if single else groups

    def front(self, target: Any, *, progress: Progress | None = None) -> Any:
        """Formulae for a vector from short to exact, each with its similarity K: a list of
        `Found(formula, similarity)`; for several vectors a list of such lists.

        target: as in `decode`. Similarities to robustness are exact. Others are those of vectors, as in
            `similarity`: for a formula with a large `residual` they may be too high, and `kernel()` has
            the exact ones.
        """
        if self.centred:
            raise refuse_centred()
        given = lowered = robustness = None
        several = isinstance(target, Sequence) and len(target) and is_single(target[0])
        if is_single(target) or several:
            programs, single = self.scales.read(target)
            vectors = np.asarray(self._vectors(programs)[0], np.float32)
            given, lowered = programs.unpack(), self.scales.lower(programs).unpack()
        else:
            rows = self._unit_rows(target)
            vectors, single = np.atleast_2d(self.project(rows)), rows.ndim == 1
            if rows.shape[-1] == len(self._basis):
                robustness = np.atleast_2d(rows)
        found = self._decoder.decode(vectors, lowered, progress)
        out = []
        for i, (vector, group) in enumerate(zip(vectors, found, strict=True)):
            formulae = [*group, *([simplify(given[i])] if given else [])]
            if robustness is None:
                products = self.embed(formulae, warn=False) @ vector
            else:
                products = self._kernel.signatures(formulae) @ robustness[i]
            near = np.clip(products, -1, 1).astype(np.float64)
            kept = front([Found(*one) for one in zip(formulae, near.tolist(), strict=True)])
            out.append([
                Found(one.formula, float(kernel_of_cosine(one.similarity, self.sigma2))) for one in kept
            ])  # fmt: skip
        return out[0] if single else out

    def interpolate(self, first: FormulaLike, second: FormulaLike, steps: int = 7) -> list[Step]:
        """Formulae on the way from one to the other on the sphere: `steps` of them, with both ends.

        The ends are the given formulae, those between them are decoded. Similarities are K.
        """
        if self.centred:
            raise refuse_centred()
        ends = self.scales.read([first, second])[0].unpack()
        return interpolated(self, ends, steps)

    @cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self.scales, self._content.basis)

    @cached_property
    def _basis(self) -> np.ndarray:
        return self._content.basis.astype(np.float64)

    def _vectors(
        self, programs: Programs, progress: Progress | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Vectors (B, D) float64, and what the principal directions miss of each signature, (B,)."""
        out, missed = np.empty((len(programs), self.dimension)), np.empty(len(programs))
        for start in range(0, len(out), ROWS):
            part = programs.part(start, min(start + ROWS, len(out)))
            here = slice(start, start + len(part))
            out[here], missed[here] = vectors_of(self._kernel.signatures(part), self._basis)
            if progress:
                progress(here.stop / len(out))
        return out, missed
