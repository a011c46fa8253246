"""The paper's claims as data, and the verdict on each of its numbers.

A claim has numbers: the paper's value, where the paper states it, and what ours must reach. A number is
confirmed if our whole 95 % interval reaches it (the value, where there is no interval). A claim that one
thing costs less than another has an opposite: if the whole interval lies beyond it, the claim is
reversed. Otherwise it is not confirmed. Numbers that depend on the set of formulae, such as a mean
similarity, or on something that the paper does not state, are shown without a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Row = dict[str, Any]  # of a record: a claim, what was measured, on what, and the numbers
Verdict = Literal["confirmed", "not confirmed", "reversed", "not measured", ""]
STEPS, POINTS = 32_000, 1000  # of the paper's training; points of its traces


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
    """A claim, and which fields of its rows are shown, with their labels.

    Fields in `paired` are shown only beside a number of the paper's.
    """

    title: str
    says: str
    fields: dict[str, str]
    numbers: dict[tuple[str, str], Number] = field(default_factory=dict)  # by (measure, field)
    paired: tuple[str, ...] = ()


SORTS = ("equivalent", "random", "lexically similar")  # columns of its table
TABLE = ("similarity", "kernel", "value", "relative", "relative_kernel")  # rows of its table
AGREEMENT = {  # pooling -> the table, whose columns are SORTS
    "cls": ((0.966, 0.182, 0.308), (0.997, 0.170, 0.225), (0.034, 0.072, 0.112),
            (0.137, 0.833, 0.770), (0.105, 0.830, 0.775)),
    "mean": ((0.954, 0.201, 0.332), (0.997, 0.163, 0.221), (0.044, 0.066, 0.143),
             (0.169, 0.833, 0.749), (0.100, 0.837, 0.779)),
    "bos": ((0.946, 0.171, 0.280), (0.997, 0.152, 0.182), (0.052, 0.070, 0.133),
            (0.186, 0.834, 0.794), (0.111, 0.848, 0.818)),
}  # fmt: skip

# Seconds to embed and to compute all pairwise similarities, and the memory of each in MB (RAM plus
# VRAM), of the paper's kernel and of its Transformer, loaded and with loading, on an A100 80GB. The
# paper projected its last row.
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
    """The paper's costs: (B, N) -> a value for each name of COSTS_HEADER."""
    lines = [list(map(float, line.split())) for line in COSTS.split("\n") if line]
    return {
        (int(b), int(n)): dict(zip(COSTS_HEADER[2:], rest, strict=True)) for b, n, *rest in lines
    }


def paper_errors() -> dict[str, float]:
    """The paper's mean absolute error for each sort of pair, with cls pooling, its choice."""
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
    """Numbers for vectors and for kernel rows.

    The MAE of average robustness has no verdict: it scales with the thresholds of the set.
    """
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
    """Costs, without a verdict because the machine was another one, and ratios, with one."""
    where = "appendix on time and memory, A100 80GB"
    numbers: dict[tuple[str, str], Number] = {}
    for (b, n), cost in paper_costs().items():
        size = f"B = {b}, N = {n}"
        for what in ("embed", "pairs"):
            kernel, memory = cost[f"{what} kernel"], cost[f"{what} kernel MB"]
            measure = f"{what}, kernel, loaded, {size}"
            numbers[measure, "value"] = Number(kernel, where)
            numbers[measure, "memory_mb"] = Number(memory, where)
            for state in ("loaded", "full"):  # the paper repeats them for each N; the last is kept
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


CLAIMS = {
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
        "The encoder needs less time and memory than the kernel, and the gap grows with the number "
        "of traces. Rows named embed and pairs start from texts, which both sides read with the same "
        "reader; rows named parsed start from the same parsed batch.",
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
        "Not in the paper: fidelity on real requirements, each lowered by the schema of its system; "
        "only pairs within one system are comparable.",
        {"value": ""},
    ),
    "outside": Claim(
        "Beyond the training range",
        "Not in the paper: the error to expect outside the range that the model was trained on.",
        {"value": "", "alignment": "alignment"},
    ),
}


def number_of(row: Row, name: str = "value") -> Number | None:
    """The paper's number for this field of a row, if it has one."""
    if row["claim"] == "agreement":
        return _agreement_numbers(row.get("pooling", "cls")).get((row["measure"], name))
    number = CLAIMS[row["claim"]].numbers.get((row["measure"], name))
    if number is None and name == "value" and "kernel / encoder" in row["measure"]:
        return Number(None, "section on efficiency", "larger", 1.0, opposite=True, about="> 1")
    return number


def judge(row: Row, name: str = "value") -> Verdict:
    """Verdict on the paper's number for this field of a row; empty if there is nothing to judge."""
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
    """Verdict on a claim, from the verdicts on its numbers."""
    found = [verdict for verdict in verdicts if verdict]
    counts = {v: found.count(v) for v in ("confirmed", "not confirmed", "reversed", "not measured")}
    some = {verdict: count for verdict, count in counts.items() if count}
    if not some:
        return "nothing to judge"
    if len(some) == 1:
        return next(iter(some))
    return "in part: " + ", ".join(f"{count} {verdict}" for verdict, count in some.items())
