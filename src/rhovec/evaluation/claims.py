"""The paper's claims as data, how ours are judged, and `run`, which measures them.

A claim has numbers: the paper's value, where it stands there, and what ours must reach. A number is
confirmed if all of our 95 % interval reaches it (the value alone, where there is no interval). For "one
thing costs less than another" there is an opposite: if all of the interval is beyond it, the claim is
reversed. Otherwise it is not confirmed. Numbers that depend on the set of formulae, as a mean
similarity does, or on something that the paper does not state are shown without a verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Literal, NamedTuple

import numpy as np

from ..errors import RhovecError
from ..formula import Formula
from ..kernel import SampledKernel
from ..library import requirements
from ..models.model import Model
from . import efficiency, probing
from .agreement import SORTS, agreement, compare, matrices, pair_kernel, pair_similarity
from .bootstrap import interval, mean_interval
from .encoder import as_rows
from .fidelity import DEEP, fidelity
from .figures import Row
from .metrics import neighbour_shares
from .outside import outside
from .reconstruction import reconstruction
from .sets import FormulaSet, equivalent_of

Verdict = Literal["confirmed", "not confirmed", "reversed", "not measured", ""]
Report = Callable[[str, float], None]  # what is being done, and the share that is done

CELLS = 40  # a side of the map of kernel against similarity
QUICK = 240  # formulae of a set
DECODED, DECODED_QUICK = 1000, 24  # formulae of a set that are reconstructed
OF_THE_REQUESTS = ("cosine of a constant sign", "nodes of the formula")  # whatever the answers are


# -- what the paper says ---------------------------------------------------------------------------


class Number(NamedTuple):
    """One number of the paper."""

    paper: float | None  # None: the paper compares, but not at this size
    where: str
    better: Literal["smaller", "larger"] | None = None  # None: shown without a verdict
    limit: float | None = None  # what ours must reach, if not the paper's value
    opposite: bool = False  # on the other side of the limit the opposite is shown
    about: str = ""  # what the paper puts before its value, or says instead


@dataclass(frozen=True)
class Claim:
    """A claim, and what is shown of its rows: `fields` names each number that a row may have.

    Those in `paired` are shown only beside a number of the paper's.
    """

    title: str
    says: str
    fields: dict[str, str]
    numbers: dict[tuple[str, str], Number] = field(default_factory=dict)  # by (measure, field)
    paired: tuple[str, ...] = ()


TABLE = (
    "similarity",
    "kernel",
    "value",
    "relative",
    "relative_kernel",
)  # rows of the paper's table
AGREEMENT = {  # pooling -> the table, whose columns are SORTS
    "cls": ((0.966, 0.182, 0.308), (0.997, 0.170, 0.225), (0.034, 0.072, 0.112),
            (0.137, 0.833, 0.770), (0.105, 0.830, 0.775)),
    "mean": ((0.954, 0.201, 0.332), (0.997, 0.163, 0.221), (0.044, 0.066, 0.143),
             (0.169, 0.833, 0.749), (0.100, 0.837, 0.779)),
    "bos": ((0.946, 0.171, 0.280), (0.997, 0.152, 0.182), (0.052, 0.070, 0.133),
            (0.186, 0.834, 0.794), (0.111, 0.848, 0.818)),
}  # fmt: skip

# Seconds to embed and to compare, and the memory in MB of each (RAM and VRAM), of the paper's kernel
# and of its Transformer, loaded and with loading, on an A100 80GB. Its last row was projected.
COSTS_HEADER = (
    "B", "N", "embed kernel", "embed loaded", "embed full", "embed kernel MB", "embed loaded MB",
    "embed full MB", "pairs kernel", "pairs loaded", "pairs full", "pairs kernel MB",
)  # fmt: skip
COSTS = """
500 500 0.61 0.62 2.06 2059 2136 2914 1.58 0.73 2.04 2059
500 1000 0.83 0.62 1.98 3061 2128 2916 2.50 0.73 1.99 3061
500 2000 1.25 0.62 2.05 5051 2128 2918 4.38 0.73 2.02 5051
500 4000 2.21 0.63 2.02 8955 2134 2918 8.21 0.73 2.02 8955
500 8000 4.53 0.62 1.98 16995 2127 2918 16.81 0.73 1.99 16995
500 16000 12.44 0.62 1.99 32442 2126 2918 40.24 0.73 1.99 32442
1000 500 1.09 1.11 2.53 3027 2139 2911 3.64 1.21 2.52 3027
1000 1000 1.54 1.11 2.54 4960 2138 2911 6.17 1.22 2.53 4960
1000 2000 2.40 1.11 2.53 8829 2138 2910 11.05 1.21 2.52 8829
1000 4000 4.63 1.11 2.48 16505 2139 2910 21.57 1.22 2.47 16505
1000 8000 9.10 1.11 2.47 32008 2139 2909 42.86 1.22 2.45 32008
1000 16000 24.70 1.11 2.56 62338 2138 2910 98.51 1.21 2.56 62338
2000 500 2.18 2.17 3.59 4907 2158 2914 10.54 2.29 3.53 4907
2000 1000 3.03 2.16 3.56 8737 2151 2914 18.33 2.28 3.59 8737
2000 2000 4.77 2.18 3.59 16464 2155 2914 33.87 2.29 3.62 16464
2000 4000 8.36 2.15 3.52 31696 2156 2915 66.37 2.27 3.53 31696
2000 8000 17.08 2.16 3.55 62384 2152 2912 132.29 2.28 3.54 62384
2000 16000 48.86 2.17 3.56 123384 2143 2913 434.57 2.29 3.55 123384
4000 500 4.33 4.45 5.91 8755 2163 2992 32.65 4.59 5.85 16776
4000 1000 6.09 4.41 5.84 16452 2162 2988 60.11 4.55 5.93 32112
4000 2000 9.47 4.42 5.88 31897 2163 2985 114.98 4.53 6.05 62653
4000 4000 17.06 4.38 5.86 62408 2162 2986 227.25 4.51 6.47 123651
4000 8000 34.30 4.42 5.84 123788 2158 2980 552.04 4.58 5.83 245724
4000 16000 232.63 4.46 6.20 246151 2157 2980 1089.28 4.65 6.01 489898
"""


def paper_costs() -> dict[tuple[int, int], dict[str, float]]:
    """(B, N) -> the paper's costs by the names of COSTS_HEADER."""
    lines = [list(map(float, line.split())) for line in COSTS.split("\n") if line]
    return {
        (int(b), int(n)): dict(zip(COSTS_HEADER[2:], rest, strict=True)) for b, n, *rest in lines
    }


def paper_errors() -> dict[str, float]:
    """Sort of pairs -> the paper's mean absolute error, with the pooling of its choice."""
    return dict(zip(SORTS, AGREEMENT["cls"][TABLE.index("value")], strict=True))


def _agreement_numbers(pooling: str) -> dict[tuple[str, str], Number]:
    where = f"table of semantic agreement, {pooling} pooling"
    judged: dict[str, Literal["smaller", "larger"]] = {"value": "smaller"}
    numbers = {
        (sort, name): Number(paper, where, judged.get(name))
        for name, values in zip(TABLE, AGREEMENT[pooling], strict=True)
        for sort, paper in zip(SORTS, values, strict=True)
    }
    high = numbers["equivalent", "similarity"]
    return numbers | {("equivalent", "similarity"): high._replace(better="larger")}


def _probing_numbers() -> dict[tuple[str, str], Number]:
    """By vectors and by kernel rows. An MAE of robustness depends on the thresholds of the set."""
    where = "section on probing"
    paper = {
        "average robustness": {"r": (0.910, 0.999), "MAE": (0.399, 0.064)},
        "satisfaction probability": {"r": (0.947, 0.994), "MAE": (0.062, 0.023)},
    }
    numbers = {}
    for target, statistics in paper.items():
        for name, values in statistics.items():
            better: Literal["smaller", "larger"] = "larger" if name == "r" else "smaller"
            judged = None if (target, name) == ("average robustness", "MAE") else better
            for kind, value in zip(("vectors", "kernel rows"), values, strict=True):
                measure = f"{target}: {name}, {kind}, two layers"
                numbers[measure, "value"] = Number(value, where, judged)
        neural, kernel = statistics["MAE"]
        numbers[f"{target}: MAE, vectors / kernel rows, two layers", "value"] = Number(
            round(neural / kernel, 1), where, "smaller"
        )
    return numbers


def _efficiency_numbers() -> dict[tuple[str, str], Number]:
    """Costs, which were another machine's, without a verdict; ratios of the two sides with one."""
    where = "appendix on time and memory, A100 80GB"
    numbers: dict[tuple[str, str], Number] = {}
    for (b, n), cost in paper_costs().items():
        size = f"B = {b}, N = {n}"
        for what in ("embed", "pairs"):
            kernel, memory = cost[f"{what} kernel"], cost[f"{what} kernel MB"]
            measure = f"{what}, kernel, loaded, {size}"
            numbers[measure, "value"] = Number(kernel, where)
            numbers[measure, "memory_mb"] = Number(memory, where)
            for state in ("loaded", "full"):  # the paper repeats them for each N: the last stands
                measure = f"{what}, encoder, {state}, B = {b}"
                numbers[measure, "value"] = Number(cost[f"{what} {state}"], where)
            ratios = {
                f"{what}, kernel / encoder, {size}": kernel / cost[f"{what} loaded"],
                f"{what}, memory, kernel / encoder, {size}": memory / cost["embed loaded MB"],
            }
            for measure, ratio in ratios.items():
                numbers[measure, "value"] = Number(
                    float(f"{ratio:.2g}"), where, "larger", limit=1.0, opposite=True
                )
    return numbers


CLAIMS = {  # the last one is measured by benchmarks/comparison.py, all others by `run`
    "fidelity": Claim(
        "Fidelity",
        "The inner products of the vectors reproduce the kernel: alignment above 0.9 for every "
        "pooling, and vectors spread over the sphere.",
        {"value": "", "kernel_value": "the kernel's own"},
        {
            ("alignment", "value"): Number(0.9, "section on adherence", "larger", about="> "),
            ("uniformity", "value"): Number(
                -2.4, "section on adherence, validation", "smaller", about="about "
            ),
        },
    ),
    "agreement": Claim(
        "Semantic agreement",
        "Equivalent formulae get nearly the same vector, and formulae that only look alike do not.",
        {
            "value": "mean absolute error",
            "similarity": "neural similarity",
            "kernel": "kernel similarity",
            "relative": "relative neural distance",
            "relative_kernel": "relative kernel distance",
            "told_apart": "share told apart",
        },
        paired=("similarity", "kernel", "relative", "relative_kernel"),
    ),
    "efficiency": Claim(
        "Efficiency",
        "The encoder needs less time and memory than the kernel, and ever less as signals grow in "
        "number.",
        {"value": "", "memory_mb": "memory, MB"},
        _efficiency_numbers(),
        paired=("memory_mb",),
    ),
    "probing": Claim(
        "Probing",
        "A small network on frozen vectors predicts a formula's average robustness and its "
        "probability of being satisfied.",
        {"value": ""},
        _probing_numbers(),
    ),
    "reconstruction": Claim(
        "Reconstruction",
        "A decoder gives back, from the vector alone, a formula of nearly the same meaning.",
        {"value": "", "lower_quartile": "lower quartile", "upper_quartile": "upper quartile"},
        {
            (name, "value"): Number(0.8688, "section on decoding, 2547 of 3000 formulae", "larger")
            for name in ("cosine", "cosine, decoder alone")
        },
    ),
    "library": Claim(
        "Published requirements",
        "Not in the paper: the same on real requirements, each system in its own schema; only "
        "pairs within a system are comparable.",
        {"value": ""},
    ),
    "outside": Claim(
        "Beyond the training range",
        "Not in the paper: what error to expect outside of what the model was trained on.",
        {"value": "", "alignment": "alignment"},
    ),
    "comparison": Claim(
        "Trainings compared",
        "Short trainings that differ in one thing each, and some that go on from the shipped "
        "weights; the paper varies the pooling alone. Recorded by benchmarks/comparison.py, which "
        "does not keep the weights, with more numbers in results/comparison.",
        {"value": "mean absolute error", "alignment": "alignment"},
    ),
}
MEASURED = tuple(CLAIMS)[:-1]


def number_of(row: Row, name: str = "value") -> Number | None:
    """The paper's number that a row's field stands beside."""
    if row["claim"] == "agreement":
        return _agreement_numbers(row.get("pooling", "cls")).get((row["measure"], name))
    number = CLAIMS[row["claim"]].numbers.get((row["measure"], name))
    if number is None and name == "value" and "kernel / encoder" in row["measure"]:
        return Number(None, "section on efficiency", "larger", 1.0, opposite=True, about="> 1")
    return number


def judge(row: Row, name: str = "value") -> Verdict:
    """What a row says about the paper's number; empty where there is nothing to judge."""
    if "reason" in row:
        return "not measured"
    number, value = number_of(row, name), row.get(name)
    if number is None or number.better is None or value is None:
        return ""
    sign = 1 if number.better == "larger" else -1
    ends = [value] if name != "value" else [row.get(end) for end in ("low", "high")]
    worst, best = sorted(sign * (value if end is None else end) for end in (ends * 2)[:2])
    limit = number.paper if number.limit is None else number.limit
    if limit is None:
        return ""
    if worst >= sign * limit:
        return "confirmed"
    return "reversed" if number.opposite and best < sign * limit else "not confirmed"


def overall(verdicts: Iterable[Verdict]) -> str:
    """A claim's verdict from those of its numbers."""
    found = [verdict for verdict in verdicts if verdict]
    counts = {v: found.count(v) for v in ("confirmed", "not confirmed", "reversed", "not measured")}
    some = {verdict: count for verdict, count in counts.items() if count}
    if not some:
        return "nothing to judge"
    if len(some) == 1:
        return next(iter(some))
    return "in part: " + ", ".join(f"{count} {verdict}" for verdict, count in some.items())


# -- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What is measured; `matrices` are computed once a set."""

    model: Model
    teacher: SampledKernel
    sets: Sequence[FormulaSet]
    quick: bool
    seed: int
    _held: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def embed(self, formulae: list[Formula]) -> np.ndarray:
        """(B, D) unit rows; sets may lie outside of the training range, and `outside` says so."""
        return self.model.embed(formulae, warn=False)

    def matrices(self, formulae: FormulaSet) -> tuple[np.ndarray, np.ndarray]:
        """Kernel and similarity of a set's formulae, (B, B) each."""
        if formulae.sha256 not in self._held:
            self._held[formulae.sha256] = matrices(self.teacher, self.embed, formulae.formulae)
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
) -> list[Row]:
    """Measure claims (of MEASURED): rows with claim, measure, n, value, and what else is known.

    What cannot be measured, say for want of a decoder, is a row without a value that has a `reason`.
    teacher: the kernel that vectors are held against, on signals that no training saw.
    quick: small sizes. seed: of all that is drawn except the teacher's signals.
    save: is given all rows so far whenever there are more, for a run may be cut short.
    """
    names = list(dict.fromkeys(claims))
    for name in names:
        if name not in MEASURED:
            raise RhovecError(f"there is no claim {name!r}; claims are {', '.join(MEASURED)}")
    job = Job(model, teacher, [thin(s) for s in sets] if quick else sets, quick, seed)
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


def thin(formulae: FormulaSet, size: int = QUICK) -> FormulaSet:
    """A small part of a set: some formulae and pairs; of a family all members or none."""
    total = len(formulae.formulae)
    if total <= size:
        return formulae
    groups = np.unique(formulae.groups)
    chosen = groups[_some(len(groups), max(1, round(size * len(groups) / total)))]
    kept = np.flatnonzero(np.isin(formulae.groups, chosen))
    part = [formulae.formulae[i] for i in kept.tolist()]
    pairs = _some(len(formulae.equivalent), min(size, len(formulae.equivalent)))
    return replace(
        formulae,
        name=f"{formulae.name} ({len(part)} of {total})",
        sha256=_digest(part),
        formulae=part,
        groups=formulae.groups[kept],
        equivalent=[formulae.equivalent[i] for i in pairs.tolist()],
        unsimplified=formulae.unsimplified[pairs],
    )


def _some(total: int, count: int) -> np.ndarray:
    """`count` of the numbers below `total`, always the same ones; sets may have an order."""
    return np.sort(np.random.default_rng(0).permutation(total)[:count])


def _parts(name: str, job: Job) -> list[tuple[str, Callable[[], Iterable[Row]]]]:
    """What a claim is measured on, and how."""
    by_set = {
        "fidelity": _fidelity, "agreement": _agreement, "probing": _probing,
        "reconstruction": _reconstruction,
    }  # fmt: skip
    if name in by_set:
        # To fit probes or to decode takes long, so that is done for the first set alone.
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
        "signals": job.teacher.measure.count(job.teacher.n_signals),
        "seed": job.seed,
        "device": job.model.device or "cpu",
        "quick": job.quick,
    }


def _finite(row: Row) -> Row:
    """The row with None for numbers that are not defined, as JSON knows no NaN."""
    odd = {key for key, value in row.items() if isinstance(value, float) and not isfinite(value)}
    return row | dict.fromkeys(odd)


def _digest(formulae: Iterable[Formula]) -> str:
    return hashlib.sha256("".join(f"{phi}\n" for phi in formulae).encode()).hexdigest()


def _fidelity(job: Job, formulae: FormulaSet) -> Iterator[Row]:
    """Beside the measures of `fidelity` the error by depth, and counts for a map of all pairs."""
    kernel, similarity = both = job.matrices(formulae)
    yield from as_rows("fidelity", formulae, fidelity(*both, formulae.groups, job.seed))
    b = len(kernel)
    gap = np.abs(kernel - similarity)
    errors = (gap.sum(1) - np.diag(gap)) / (b - 1)
    depths = np.minimum([phi.depth for phi in formulae.formulae], DEEP + 1)
    for depth in np.unique(depths).tolist():
        chosen = depths == depth
        low, high = mean_interval(
            errors[chosen], formulae.groups[chosen], formulae.groups[chosen], job.seed
        )
        yield {
            "measure": f"mean absolute error, depth {'> ' * (depth > DEEP)}{min(depth, DEEP)}",
            "n": int(chosen.sum()), "value": float(errors[chosen].mean()), "low": low, "high": high,
        }  # fmt: skip
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
    entries = agreement(job.teacher, job.embed, formulae, *both, job.seed)
    return as_rows("agreement", formulae, entries)


def _library(job: Job) -> Iterator[Row]:
    """Requirements, each lowered by its system's schema; a pair is of two of one system."""
    known = {f"x_{channel}" for channel in range(job.model.encoder.channels)}
    readable = [r for r in requirements() if known.issuperset(r.lowered.variables)]
    formulae = [r.lowered for r in readable]
    names = [r.system.name for r in readable]
    systems = np.unique(names, return_inverse=True)[1]
    kernel, similarity = matrices(job.teacher, job.embed, formulae)
    i, j = np.nonzero(np.triu(systems[:, None] == systems, 1))
    k, s = kernel[i, j], similarity[i, j]
    facts = {
        "set": f"{len(formulae)} published requirements", "sha256": _digest(formulae),
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
    column = compare(
        pair_kernel(job.teacher, pairs), pair_similarity(job.embed, pairs), numbers, numbers,
        job.seed,
    )  # fmt: skip
    yield {"measure": "mean absolute error, rewritten equivalents", **column, **facts}


def _efficiency(job: Job) -> Iterator[Row]:
    """Costs of both sides, and how many times the encoder's the kernel's are."""
    device = job.model.device or "cpu"
    sizes = efficiency.QUICK if job.quick else {}
    measured = efficiency.efficiency(model=job.model.folder, device=device, seed=job.seed, **sizes)
    rows = [row | {"signals": row["N"]} for row in measured]
    yield from rows
    found = {(row["side"], row["what"], row["state"], row["B"], row["N"]): row for row in rows}
    for (side, what, state, b, n), kernel in found.items():
        if side != "kernel" or state != "loaded":
            continue
        encoder = found["encoder", what, state, b, None]
        common = {key: kernel[key] for key in ("set", "sha256", "points", "device", "projected")}
        common |= {"what": what, "B": b, "N": n, "signals": n, "n": encoder["n"]}
        yield {
            "measure": f"{what}, kernel / encoder, B = {b}, N = {n}",
            "value": kernel["value"] / encoder["value"], "low": kernel["low"] / encoder["high"],
            "high": kernel["high"] / encoder["low"], **common,
        }  # fmt: skip
        yield {
            "measure": f"{what}, memory, kernel / encoder, B = {b}, N = {n}",
            "value": kernel["memory_mb"] / encoder["memory_mb"], **common,
        }  # fmt: skip


def _probing(job: Job, formulae: FormulaSet) -> Iterable[Row]:
    sizes = probing.QUICK if job.quick else None
    return probing.probing(job.embed, job.teacher, formulae, sizes, job.seed)


def _reconstruction(job: Job, formulae: FormulaSet) -> Iterator[Row]:
    """From vectors alone: the decoder's likeliest formula, as in the paper, and verified decoding."""
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
