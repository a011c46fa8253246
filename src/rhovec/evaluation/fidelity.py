"""Fidelity: how well the inner products of vectors are the kernel, over all pairs of one set.

The measures of the paper (loss, alignment, uniformity), those that a constant matrix cannot please
(centred alignment, error), and those that a search depends on (rank correlation, neighbours).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RhovecError
from ..pages import BLUE, GREY, ORANGE
from .bootstrap import ends, mean_interval, resampled
from .figures import Row, Sketch, legend, points, short
from .metrics import (
    alignment,
    centred_alignment,
    mean_error,
    neighbour_shares,
    rank_correlation,
    uniformity,
    weighted_loss,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEIGHBOURS = 10
DEEP = 6  # depths beyond are one row


def fidelity(
    kernel: np.ndarray, similarity: np.ndarray, groups: np.ndarray | None = None, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Each measure of the kernel matrix (B, B) against the inner products (B, B) by name.

    groups: (B,) int, formulae of one number are variants of one another (default: none are).
    An entry has `n` = B and `value`; alignment, error, uniformity and overlap also `low` and `high`,
    uniformity also `kernel_value`, the kernel's own. A value that is not defined is None.
    """
    b = len(kernel)
    if b <= NEIGHBOURS:
        raise RhovecError(f"fidelity needs more than {NEIGHBOURS} formulae, not {b}")
    groups = np.arange(b) if groups is None else groups
    first, second = (groups[x.ravel()] for x in np.indices((b, b)))
    k, s = kernel.ravel(), similarity.ravel()
    apart = 1.0 - np.eye(b).ravel()
    values = (k * s, k * k, s * s, apart * np.abs(k - s), apart, np.exp(4 * s - 4), np.ones(b * b))
    ks, kk, ss, gap, pairs, near, all_pairs = resampled(values, first, second, seed)
    shares = neighbour_shares(kernel, similarity, NEIGHBOURS)
    overlap = f"overlap of {NEIGHBOURS} neighbours"
    intervals = {
        "alignment": ends(ks / np.sqrt(kk * ss)),
        "mean absolute error": ends(gap / pairs),
        "uniformity": ends(np.log(near / all_pairs)),
        overlap: mean_interval(shares, groups, groups, seed),
    }
    found: dict[str, dict[str, Any]] = {
        "mean absolute error": {"value": mean_error(kernel, similarity)},
        "alignment": {"value": alignment(kernel, similarity)},
        "centred alignment": {"value": centred_alignment(kernel, similarity)},
        "uniformity": {"value": uniformity(similarity), "kernel_value": uniformity(kernel)},
        "weighted loss": {"value": weighted_loss(kernel, similarity)},
        "rank correlation": {"value": rank_correlation(kernel, similarity)},
        overlap: {"value": float(shares.mean())},
    }
    for name, (low, high) in intervals.items():
        found[name] |= {"low": low, "high": high}
    for entry in found.values():
        entry["n"] = b
        if np.isnan(entry["value"]):
            entry["value"] = None
    return found


# -- figures ---------------------------------------------------------------------------------------


def sketches(rows: Sequence[Row], log: Sequence[Row]) -> list[Sketch]:
    """Curves of the log, and two figures of the rows."""
    curves = {
        "loss": "The paper gives no figure.",
        "alignment": "Dashed: the paper's 0.9.",
        "uniformity": "Dashed: the paper's −3.0 (training) and −2.4 (validation).",
    }
    return [
        *(
            Sketch(
                "fidelity", f"curve-{name}", f"Training of the encoder: {name}. {note}",
                lambda axes, name=name: _curve(axes, log, name),  # type: ignore[misc]
            )
            for name, note in curves.items()
        ),
        Sketch("fidelity", "map", "Pairs of formulae by exact kernel and by inner product.",
               lambda axes: _map(axes, rows)),
        Sketch("fidelity", "depth", "Mean absolute error by depth of the formula, 95 % intervals.",
               lambda axes: _depth(axes, rows)),
    ]  # fmt: skip


def _curve(axes: Axes, log: Sequence[Row], name: str) -> bool:
    for part, label, colour in (("", "training", BLUE), ("valid_", "validation", ORANGE)):
        chosen = [line for line in log if line.get(part + name) is not None]
        steps, values = [line["step"] for line in chosen], [line[part + name] for line in chosen]
        axes.plot(steps, values, color=colour, label=label)
    levels = {"alignment": ((0.9, GREY),), "uniformity": ((-3.0, BLUE), (-2.4, ORANGE))}
    for level, colour in levels.get(name, ()):
        axes.axhline(level, color=colour, linestyle="--", linewidth=1)
    if name == "loss":
        axes.set_yscale("log")
    axes.set(xlabel="step", ylabel=name)
    legend(axes)
    return bool(log)


def _map(axes: Axes, rows: Sequence[Row]) -> bool:
    row = next((row for row in rows if "counts" in row), None)
    if row is None:
        return False
    counts = np.array(row["counts"], float)
    counts[counts == 0] = np.nan
    picture = axes.imshow(
        np.log10(counts).T, origin="lower", extent=(-0.1, 1, -0.1, 1), cmap="viridis"
    )
    axes.plot([-0.1, 1], [-0.1, 1], color=GREY, linewidth=0.8)
    axes.set(xlabel="kernel", ylabel="inner product")
    axes.set_title(short(row["set"]), fontsize=9)
    colours = axes.figure.colorbar(picture, ax=axes, shrink=0.8)
    colours.set_label("log10 of pairs")
    return True


def _depth(axes: Axes, rows: Sequence[Row]) -> bool:
    prefix = "mean absolute error, depth "
    chosen = [row for row in rows if row["measure"].startswith(prefix)]
    for where in dict.fromkeys(row["set"] for row in chosen):
        here = [row for row in chosen if row["set"] == where]
        depths = [row["measure"].removeprefix(prefix) for row in here]
        places = [DEEP + 1 if depth.startswith(">") else int(depth) for depth in depths]
        points(axes, places, here, label=short(where))
    axes.set(xlabel=f"depth ({DEEP + 1}: more than {DEEP})", ylabel="mean absolute error")
    axes.set_ylim(bottom=0)
    legend(axes)
    return bool(chosen)
