"""Measure the claims of the paper: `run` returns rows that are ready for JSON.

What the package can measure of any model (fidelity, agreement, reconstruction, errors outside the
training range) is called from there. Added here are the errors by depth, published requirements, and
the costs and probes of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite

import numpy as np

from rhovec.errors import RhovecError
from rhovec.evaluation.agreement import (
    FromProducts,
    agreement,
    cosines_to_kernel,
    matrices,
    pair_column,
    pair_kernel,
    pair_similarity,
)
from rhovec.evaluation.bootstrap import interval, mean_interval
from rhovec.evaluation.encoder import as_rows
from rhovec.evaluation.fidelity import fidelity
from rhovec.evaluation.metrics import neighbour_shares
from rhovec.evaluation.outside import outside
from rhovec.evaluation.reconstruction import reconstruction
from rhovec.evaluation.sets import FormulaSet, digest, equivalent_of, thin
from rhovec.formula import Formula
from rhovec.kernel import SampledKernel
from rhovec.library import requirements
from rhovec.models.heads import Kind
from rhovec.models.model import Model

from . import efficiency, probing
from .paper import CLAIMS, Row

Report = Callable[[str, float], None]  # what is being measured, and the share that is done

CELLS = 40  # per side of the map of kernel against similarity
MAX_DEPTH = 6  # deeper formulae share one row
DECODED, DECODED_QUICK = 1000, 24  # formulae of a set that are reconstructed
OF_THE_REQUESTS = ("cosine of a constant sign", "nodes of the formula")  # whatever the answers are


@dataclass(frozen=True)
class Job:
    """What is measured; `matrices` are computed once per set."""

    model: Model
    teacher: SampledKernel
    sets: Sequence[FormulaSet]
    quick: bool
    seed: int
    kind: Kind = "kernel"  # of the vectors
    _held: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def embed(self, formulae: list[Formula]) -> np.ndarray:
        """Unit rows (B, D). Without warnings: `outside` measures the error beyond the training range."""
        return self.model.embed(formulae, kind=self.kind, warn=False)

    @property
    def from_products(self) -> FromProducts | None:
        """From inner products of vectors to similarities; None if they are the same."""
        return cosines_to_kernel(self.teacher) if self.kind == "cosine" else None

    def matrices(self, formulae: FormulaSet) -> tuple[np.ndarray, np.ndarray]:
        """Kernel and similarity of a set's formulae, (B, B) each."""
        if formulae.sha256 not in self._held:
            self._held[formulae.sha256] = matrices(
                self.teacher, self.embed, formulae.formulae, self.from_products
            )
        return self._held[formulae.sha256]


def run(
    claims: Iterable[str],
    model: Model,
    sets: Sequence[FormulaSet],
    teacher: SampledKernel,
    quick: bool = False,
    seed: int = 0,
    progress: Report | None = None,
    save: Callable[[list[Row]], None] | None = None,
    kind: Kind = "kernel",
) -> list[Row]:
    """Measure claims, named as in CLAIMS: rows with claim, measure, n, value, and further facts.

    A claim that cannot be measured, say because the model has no decoder, gets a row without a value
    and with a `reason`. teacher: the kernel that vectors are compared with, on traces that no training
    saw. quick: small sizes. seed: of everything that is drawn except the teacher's traces.
    save: called with all rows so far after each part, since a run may be interrupted. kind: of the
    vectors; claims other than fidelity, agreement and library are about vectors of kind "kernel".
    """
    names = list(dict.fromkeys(claims))
    for name in names:
        if name not in CLAIMS:
            raise RhovecError(f"there is no claim {name!r}; claims are {', '.join(CLAIMS)}")
    job = Job(model, teacher, [thin(s) for s in sets] if quick else sets, quick, seed, kind)
    parts = [(name, *part) for name in names for part in _parts(name, job)]
    facts = _facts(job)
    rows: list[Row] = []
    for i, (name, title, measure) in enumerate(parts):
        if progress:
            progress(f"{name}: {title}" if title else name, i / len(parts))
        about = {"set": title} if title else {}
        try:
            rows += [{**facts, "claim": name, **about, **_finite(row)} for row in measure()]
        except RhovecError as error:
            reason = f"not measured: {error}"
            missing = {"measure": "all", "n": 0, "value": None, "reason": reason}
            rows.append({**facts, "claim": name, **about, **missing})
        if save:
            save(rows)
    if progress:
        progress("done", 1.0)
    return rows


def _parts(name: str, job: Job) -> list[tuple[str, Callable[[], Iterable[Row]]]]:
    """Sets that a claim is measured on, each with the function that measures it."""
    by_set = {
        "fidelity": _fidelity, "agreement": _agreement, "probing": _probing,
        "reconstruction": _reconstruction,
    }  # fmt: skip
    if name in by_set:
        # Fitting probes and decoding take long, so they are done only for the first set.
        sets = job.sets[:1] if name in ("probing", "reconstruction") else job.sets
        return [(s.name, partial(by_set[name], job, s)) for s in sets]
    once = {"efficiency": _efficiency, "library": _library, "outside": _outside}
    return [("", partial(once[name], job))]


def _facts(job: Job) -> Row:
    training = job.model.config.get("training", {})
    paper = {"tokens": "text", "loss": "focal", "optimiser": "adamw", "points": 1000}
    return {
        "model": job.model.fingerprint,
        "pooling": job.model.encoder.pooling,
        "trained_points": job.model.encoder.points,
        "steps": training.get("steps"),
        "onward": bool(training.get("origin")),
        "recipe": "paper" if paper.items() <= training.items() else "ours",
        "points": job.teacher.measure.points,
        "traces": job.teacher.measure.count(job.teacher.n_traces),
        "seed": job.seed,
        "device": job.model.device or "cpu",
        "quick": job.quick,
    }


def _finite(row: Row) -> Row:
    """The row with None in place of NaN and infinity, which JSON does not have."""
    odd = {key for key, value in row.items() if isinstance(value, float) and not isfinite(value)}
    return row | dict.fromkeys(odd)


def _fidelity(job: Job, formulae: FormulaSet) -> Iterator[Row]:
    """Measures of `fidelity`, the error by depth and, for the first set, counts for a map of pairs."""
    kernel, similarity = both = job.matrices(formulae)
    yield from as_rows("fidelity", formulae, fidelity(*both, formulae.groups, job.seed))
    b = len(kernel)
    gap = np.abs(kernel - similarity)
    errors = (gap.sum(1) - np.diag(gap)) / (b - 1)
    depths = np.minimum([phi.depth for phi in formulae.formulae], MAX_DEPTH + 1)
    for depth in np.unique(depths).tolist():
        chosen = depths == depth
        low, high = mean_interval(
            errors[chosen], formulae.groups[chosen], formulae.groups[chosen], job.seed
        )
        yield {
            "measure": f"mean absolute error, depth {'> ' * (depth > MAX_DEPTH)}{min(depth, MAX_DEPTH)}",
            "n": int(chosen.sum()), "value": float(errors[chosen].mean()), "low": low, "high": high,
        }  # fmt: skip
    if formulae is not job.sets[0]:
        return
    apart = ~np.eye(b, dtype=bool)
    cells = np.linspace(-0.1, 1, CELLS + 1)
    clipped = np.clip(similarity[apart], cells[0], 1)
    counts, _, _ = np.histogram2d(kernel[apart], clipped, (cells, cells))
    yield {
        "measure": "map of kernel against similarity", "n": b, "value": None,
        "counts": counts.astype(int).tolist(),
    }  # fmt: skip


def _agreement(job: Job, formulae: FormulaSet) -> list[Row]:
    both = job.matrices(formulae)
    entries = agreement(job.teacher, job.embed, formulae, *both, job.seed, job.from_products)
    return as_rows("agreement", formulae, entries)


def _library(job: Job) -> Iterator[Row]:
    """Published requirements, each lowered by the schema of its system, in pairs within a system."""
    known = {f"x_{channel}" for channel in range(job.model.encoder.channels)}
    readable = [r for r in requirements() if known.issuperset(r.lowered.variables)]
    formulae = [r.lowered for r in readable]
    names = [r.system.name for r in readable]
    systems = np.unique(names, return_inverse=True)[1]
    kernel, similarity = matrices(job.teacher, job.embed, formulae, job.from_products)
    i, j = np.nonzero(np.triu(systems[:, None] == systems, 1))
    k, s = kernel[i, j], similarity[i, j]
    facts = {
        "set": f"{len(formulae)} published requirements", "sha256": digest(formulae),
        "systems": len(np.unique(systems[i])), "left_out": len(requirements()) - len(formulae),
        "outside": len({finding.index for finding in job.model.outside(formulae)}),
    }  # fmt: skip

    def entry(measure: str, n: int, value: float, ends: tuple[float, float]) -> Row:
        low, high = ends
        return {"measure": measure, "n": n, "value": value, "low": low, "high": high, **facts}

    error = np.abs(k - s)
    yield entry(
        "mean absolute error, pairs within a system", len(k), float(error.mean()),
        mean_interval(error, i, j, job.seed),
    )  # fmt: skip
    sizes = np.bincount(systems[i])
    means = np.bincount(systems[i], error)[sizes > 0] / sizes[sizes > 0]
    places = np.arange(len(means))
    yield entry(
        "mean absolute error, mean over systems", len(means), float(means.mean()),
        mean_interval(means, places, places, job.seed),
    )  # fmt: skip
    yield entry(
        "alignment, pairs within a system", len(k), float(k @ s / np.sqrt((k @ k) * (s @ s))),
        interval(lambda ks, kk, ss: ks / np.sqrt(kk * ss), (k * s, k * k, s * s), i, j, job.seed),
    )  # fmt: skip
    larger = [
        np.flatnonzero(systems == system)
        for system in np.unique(systems)
        if (systems == system).sum() > 2
    ]
    blocks = [np.ix_(rows, rows) for rows in larger]
    shares = np.concatenate([neighbour_shares(kernel[b], similarity[b], 1) for b in blocks])
    asked = np.concatenate(larger)
    yield entry(
        "nearest of the same system found", len(asked), float(shares.mean()),
        mean_interval(shares, asked, asked, job.seed),
    )  # fmt: skip
    rewritten = [(phi, equivalent_of(phi, job.seed, place)) for place, phi in enumerate(formulae)]
    pairs = [(phi, psi) for phi, psi in rewritten if psi is not None]
    numbers = np.arange(len(pairs))
    column = pair_column(
        pair_kernel(job.teacher, pairs), pair_similarity(job.embed, pairs, job.from_products),
        numbers, numbers,
        job.seed,
    )  # fmt: skip
    yield {"measure": "mean absolute error, rewritten equivalents", **column, **facts}


def _efficiency(job: Job) -> Iterator[Row]:
    """Costs of both sides, and how many times the encoder's costs the kernel's are."""
    device = job.model.device or "cpu"
    sizes = efficiency.QUICK if job.quick else {}
    measured = efficiency.efficiency(model=job.model.folder, device=device, seed=job.seed, **sizes)
    rows = [row | {"traces": row["N"]} for row in measured]
    yield from rows
    found = {(row["side"], row["what"], row["state"], row["B"], row["N"]): row for row in rows}
    for (side, what, state, b, n), kernel in found.items():
        if side != "kernel" or state != "loaded":
            continue
        encoder = found["encoder", what, state, b, None]
        common = {key: kernel[key] for key in ("set", "sha256", "points", "device", "projected")}
        common |= {"what": what, "B": b, "N": n, "traces": n, "n": encoder["n"]}
        yield {
            "measure": f"{what}, kernel / encoder, B = {b}, N = {n}",
            "value": kernel["value"] / encoder["value"], "low": kernel["low"] / encoder["high"],
            "high": kernel["high"] / encoder["low"], **common,
        }  # fmt: skip
        if not what.endswith("parsed"):  # the memory is the same
            yield {
                "measure": f"{what}, memory, kernel / encoder, B = {b}, N = {n}",
                "value": kernel["memory_mb"] / encoder["memory_mb"], **common,
            }  # fmt: skip


def _probing(job: Job, formulae: FormulaSet) -> Iterable[Row]:
    sizes = probing.QUICK if job.quick else None
    return probing.probing(job.embed, job.teacher, formulae, sizes, job.seed)


def _reconstruction(job: Job, formulae: FormulaSet) -> Iterator[Row]:
    """From vectors: verified decoding, and the decoder's likeliest formula, as in the paper."""
    part = thin(formulae, DECODED_QUICK if job.quick else DECODED)
    vectors = job.embed(part.formulae)
    for name, samples, refine in (("", 32, True), (", decoder alone", 0, False)):
        decoded = job.model.decode(vectors, samples, refine, k=1)
        answers = [group[0] for group in decoded]
        measure, seed = job.teacher.measure, job.teacher.seed + 1
        for row in reconstruction(part.formulae, answers, measure, seed=seed):
            if not name or row["measure"] not in OF_THE_REQUESTS:
                yield row | {"measure": row["measure"] + name, "sha256": part.sha256}


def _outside(job: Job) -> Iterator[Row]:
    families = 64 if job.quick else 512
    channels = job.model.encoder.channels
    yield from outside(job.embed, job.teacher, channels, families=families, seed=job.seed)
