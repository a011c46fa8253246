"""Statistics of a corpus on disk: counts and distributions, as numbers and as one figure.

Shards are read one at a time, so memory does not grow with the corpus. Everything is counted over all
formulae, except thresholds, which are taken from the first formulae of each shard.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import RhovecError, needed
from .build import import_parquet, read_manifest
from .families import CHANGES, KINDS, SPLITS

MEASURES = ("depth", "nodes", "tokens", "horizon")
_OPERATORS = {
    "always": "always", "eventually": "eventually", "until": "until", "and": " and ", "or": " or ",
    "not": "not (", ">=": ">=", ">": "> ", "<=": "<=", "<": "< ",
}  # fmt: skip
_THRESHOLD = re.compile(r"[<>]=? (-?[\d.]+)")
_THRESHOLD_SAMPLE = 1024  # formulae of each shard
_THRESHOLD_BINS = np.linspace(-10, 10, 81)


def corpus_stats(
    folder: str | Path, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Counts over the shards of a folder; progress is called with the shards done and their total.

    kinds, splits, operators, changes: name -> count; depth, nodes, tokens, horizon: (largest + 1,)
    int64, the number of formulae with each value; thresholds: counts in 80 bins from -10 to 10.
    """
    parquet = import_parquet()
    import pyarrow as pa
    import pyarrow.compute as pc

    manifest = read_manifest(folder)
    shards = sorted(Path(folder).glob("shard-*.parquet"))
    if not shards:
        raise RhovecError(f"{folder} holds no shard yet; run: rhovec corpus build {folder}")
    formulae = 0
    kinds, splits = dict.fromkeys(KINDS, 0), dict.fromkeys(SPLITS, 0)
    operators, changes = dict.fromkeys(_OPERATORS, 0), dict.fromkeys(CHANGES, 0)
    measures = {name: np.zeros(0, np.int64) for name in MEASURES}
    thresholds = np.zeros(len(_THRESHOLD_BINS) - 1, np.int64)
    for done, shard in enumerate(shards, 1):
        try:
            table = parquet.read_table(shard)
        except (OSError, pa.ArrowException) as error:
            raise RhovecError(f"cannot read {shard}: {error}; delete it and build again") from None
        formulae += len(table)
        for column, counts in (("kind", kinds), ("split", splits)):
            for item in pc.value_counts(table[column]).to_pylist():
                counts[item["values"]] += item["counts"]
        for name in MEASURES:
            more = np.bincount(table[name].to_numpy(), minlength=len(measures[name]))
            more[: len(measures[name])] += measures[name]
            measures[name] = more
        for name, text in _OPERATORS.items():
            operators[name] += pc.sum(pc.count_substring(table["formula"], text)).as_py()
        for name in CHANGES:
            changes[name] += pc.sum(pc.struct_field(table["changes"], name)).as_py()
        sample = " ".join(table["formula"][:_THRESHOLD_SAMPLE].to_pylist())
        numbers = np.array(_THRESHOLD.findall(sample), np.float64)
        thresholds += np.histogram(numbers, _THRESHOLD_BINS)[0]
        if progress is not None:
            progress(done, len(shards))
    return {
        "manifest": manifest, "shards": len(shards), "formulae": formulae, "kinds": kinds,
        "splits": splits, **measures, "operators": operators, "changes": changes,
        "thresholds": thresholds,
    }  # fmt: skip


def quantiles(counts: np.ndarray) -> dict[str, int]:
    """min, 5 %, median, 95 % and max of values that occur counts[value] times."""
    cumulative = np.cumsum(counts)
    points = {"min": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "max": 1.0}
    ranks = {name: max(1, np.ceil(q * cumulative[-1])) for name, q in points.items()}
    return {name: int(np.searchsorted(cumulative, rank)) for name, rank in ranks.items()}


def plot_stats(stats: dict[str, Any], file: str | Path | IO[bytes]) -> None:
    """Draw the distributions into one PNG."""
    drawing = needed("matplotlib.figure", "drawing", "plots")
    figure = drawing.Figure(figsize=(14, 10), layout="constrained")
    figure.suptitle(f"{stats['formulae']:,} formulae, seed {stats['manifest']['seed']}")
    axes = figure.subplots(3, 3).ravel()
    for ax, name in zip(axes, MEASURES, strict=False):
        ax.bar(np.arange(len(stats[name])), stats[name], width=1.0)
        ax.set(xlabel=name, ylabel="formulae")
    axes[4].stairs(stats["thresholds"], _THRESHOLD_BINS, fill=True)
    axes[4].set(xlabel="threshold", ylabel="atoms of a sample")
    for ax, name in zip(axes[5:], ("kinds", "splits", "operators", "changes"), strict=True):
        counts = stats[name]
        ax.barh(list(counts), list(counts.values()))
        ax.invert_yaxis()
        ax.tick_params(axis="y", labelsize=7)
        ax.set(xlabel="formulae" if name in ("kinds", "splits") else "occurrences", title=name)
    figure.savefig(file, dpi=120, format="png")
