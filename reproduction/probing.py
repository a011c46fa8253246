"""Probing: what frozen vectors reveal of a formula's average robustness and satisfaction probability.

The paper's probe, two layers with squared error, is fitted on vectors and, for reference, on kernel
rows: values of the exact kernel with as many fitting formulae as vectors have dimensions. A linear
probe is fitted, too. Formulae to fit and to validate are seeds of the training split, drawn as the
headline set is. Both kinds of features get the same probes, and the same choice of regularisation on
the validation formulae.

Targets are means over traces that are not the kernel's. The noise floor is the difference between two
such samples. Fitting and test targets share their traces, so a probe can learn what is particular to
them, and may come out below the floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rhovec.errors import RhovecError
from rhovec.evaluation.agreement import Embed, unit_rows
from rhovec.evaluation.bootstrap import LEVEL, RESAMPLES
from rhovec.evaluation.sets import FormulaSet, complete_seeds
from rhovec.formula import Formula
from rhovec.kernel import SampledKernel
from rhovec.robustness import robustness, satisfaction

TARGETS = ("average robustness", "satisfaction probability")
TRACES = 1000  # traces of each target
CHUNK = 1024  # formulae evaluated at once
CONSTANT = 1e-9  # predictions that differ by less differ by rounding
SHOWN = 500  # test formulae whose targets and predictions are kept for a figure
PENALTIES = tuple(10.0**k for k in range(-4, 5))  # of the linear probe


@dataclass(frozen=True)
class Probe:
    """Sizes of the fit; the network has one hidden layer and one output per target."""

    n_fit: int = 5000
    n_validation: int = 1000
    width: int = 256
    epochs: int = 50
    batch: int = 128
    rate: float = 1e-3  # falls to 0 along a cosine
    decays: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)  # of weights; one is chosen


QUICK = Probe(n_fit=1000, n_validation=200, width=64, epochs=30)


def probing(
    embed: Embed,
    teacher: SampledKernel,
    test: FormulaSet,
    probe: Probe | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """A row for each target, statistic (r and MAE), kind of features and probe; the noise floors; and
    the ratios of the two kinds' MAE. `n` counts test formulae, `low` to `high` is a 95 % interval.

    embed: B formulae -> unit rows (B, D). teacher: the kernel, whose measure also gives the targets'
    traces. test: formulae outside the training split. seed: of the network and the intervals.
    """
    probe = probe or Probe()
    if len(test.formulae) < 3:
        raise RhovecError("a probe needs 3 or more formulae to be tested on")
    fitting = complete_seeds(probe.n_fit + probe.n_validation, "train")
    formulae = fitting + test.formulae
    trace_seeds = [teacher.seed + 1, teacher.seed + 2]
    targets, again = (_targets(formulae, teacher, s) for s in trace_seeds)
    vectors = unit_rows(embed, formulae)
    anchors = fitting[: min(probe.n_fit, vectors.shape[1])]
    features = {"vectors": vectors, "kernel rows": teacher.gram(formulae, anchors)}
    common = {
        "claim": "probing", "set": test.name, "sha256": test.sha256, "n": len(test.formulae),
        "target_traces": TRACES, "target_seeds": trace_seeds,
        "kernel_traces": teacher.measure.count(teacher.n_traces), "kernel_seed": teacher.seed,
        "points": teacher.measure.points,
    }  # fmt: skip
    fitted = {
        "n_fit": probe.n_fit, "n_validation": probe.n_validation,
        "split": "fit and validation: training split; test: the set",
    }  # fmt: skip
    probes = {
        "two layers": (_two_layers, {"width": probe.width, "epochs": probe.epochs}),
        "linear": (_linear, {}),
    }
    tested = slice(len(fitting), None)
    draws = _draws(test.groups, seed)
    rows = []
    for j, target in enumerate(TARGETS):
        truth = targets[tested, j]
        for name, entry in _statistics(truth, again[tested, j], draws).items():
            rows.append({
                "measure": f"{target}: {name}, noise floor", "target": target, "statistic": name,
                **entry, **common,
            })  # fmt: skip
    for title, (fit, facts) in probes.items():
        chosen = {
            kind: _choose(fit(x.astype(np.float32), targets, probe, seed), targets, probe)
            for kind, x in features.items()
        }
        for j, target in enumerate(TARGETS):
            truth = targets[tested, j]
            about = {"target": target, "probe": title, **facts, **fitted, **common}
            for kind, (predicted, strengths) in chosen.items():
                guess = predicted[tested, j]
                found = _statistics(truth, guess, draws)
                step = -(-len(truth) // SHOWN)
                if (kind, title) == ("vectors", "two layers"):  # the figure shows no other
                    found["r"]["shown"] = np.stack([truth, guess], 1)[::step].round(4).tolist()
                rows += [
                    {"measure": f"{target}: {name}, {kind}, {title}", "statistic": name,
                     "features": kind, "dimension": features[kind].shape[1],
                     "regularisation": strengths[j], **entry, **about}
                    for name, entry in found.items()
                ]  # fmt: skip
            errors = [np.abs(predicted[tested, j] - truth) for predicted, _ in chosen.values()]
            rows.append({
                "measure": f"{target}: MAE, vectors / kernel rows, {title}",
                "statistic": "ratio", **_ratio(errors, draws), **about,
            })  # fmt: skip
    return rows


def _targets(formulae: list[Formula], teacher: SampledKernel, seed: int) -> np.ndarray:
    """(B, 2) float64: the means of TARGETS over TRACES traces."""
    names = teacher.measure.variables
    traces = np.concatenate(list(teacher.measure.blocks(TRACES, seed)))
    out = np.empty((len(formulae), len(TARGETS)))
    for start in range(0, len(formulae), CHUNK):
        part = formulae[start : start + CHUNK]
        out[start : start + CHUNK, 0] = robustness(part, traces, variables=names).mean(
            1, dtype=np.float64
        )
        out[start : start + CHUNK, 1] = satisfaction(part, traces, variables=names).mean(1)
    return out


# -- probes: for each strength of regularisation, predictions for all rows of x ---------------------


def _choose(
    candidates: Iterator[tuple[float, np.ndarray]], targets: np.ndarray, probe: Probe
) -> tuple[np.ndarray, list[float]]:
    """Predictions (B, T) and strengths (T) with the least squared error on validation rows."""
    checked = slice(probe.n_fit, probe.n_fit + probe.n_validation)
    strengths, predicted = zip(*candidates, strict=True)
    stacked = np.stack(predicted)  # (candidates, B, T)
    best = ((stacked - targets)[:, checked] ** 2).mean(1).argmin(0)  # (T,)
    chosen = np.stack([stacked[c, :, j] for j, c in enumerate(best)], 1)
    return chosen, [strengths[c] for c in best]


def _standardised(
    x: np.ndarray, y: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x (B, D) and y[:n] with mean 0 and deviation 1 over the first n rows; y's mean and deviation.

    Features have one deviation together: they are coordinates of one space, and to stretch those that
    hardly vary would give them a weight that they do not have in any inner product.
    """
    centred = x - x[:n].mean(0)
    z = centred / (np.sqrt((centred[:n] ** 2).mean()) + 1e-12)
    mean, deviation = y[:n].mean(0), y[:n].std(0) + 1e-12
    return z, (y[:n] - mean) / deviation, mean, deviation


def _linear(
    x: np.ndarray, y: np.ndarray, probe: Probe, seed: int
) -> Iterator[tuple[float, np.ndarray]]:
    """Ridge regression."""
    z, t, mean, deviation = _standardised(x.astype(np.float64), y, probe.n_fit)
    fitted = z[: probe.n_fit]
    values, axes = np.linalg.eigh(fitted.T @ fitted)
    along = axes.T @ (fitted.T @ t)
    z = z @ axes
    for penalty in PENALTIES:
        yield penalty, z @ (along / (values.clip(0) + penalty)[:, None]) * deviation + mean


def _two_layers(
    x: np.ndarray, y: np.ndarray, probe: Probe, seed: int
) -> Iterator[tuple[float, np.ndarray]]:
    """A ReLU network, by AdamW on the mean squared error of standardised targets, in float32."""
    z, targets, mean, deviation = _standardised(x, y, probe.n_fit)
    t = targets.astype(np.float32)
    for decay in probe.decays:
        hidden, bias, out, out_bias = _train(z[: probe.n_fit], t, probe, decay, seed)
        guess = np.maximum(z @ hidden + bias, 0) @ out + out_bias
        yield decay, guess.astype(np.float64) * deviation + mean


def _train(x: np.ndarray, t: np.ndarray, probe: Probe, decay: float, seed: int) -> list[np.ndarray]:
    """The weights (D, width), (width,), (width, T), (T,) after all epochs, x (n, D) and t (n, T)."""
    rng = np.random.default_rng(seed)
    shapes = [(x.shape[1], probe.width), (probe.width,), (probe.width, t.shape[1]), (t.shape[1],)]
    weights = [
        rng.standard_normal(shape, np.float32) * np.float32(shape[0] ** -0.5)
        if len(shape) == 2
        else np.zeros(shape, np.float32)
        for shape in shapes
    ]
    first = [np.zeros_like(w) for w in weights]  # moving means of gradients, and of their squares
    second = [np.zeros_like(w) for w in weights]
    steps = probe.epochs * -(-len(x) // probe.batch)
    step = 0
    for _ in range(probe.epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), probe.batch):
            rows = order[start : start + probe.batch]
            step += 1
            rate = probe.rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            inputs = x[rows]
            active = np.maximum(inputs @ weights[0] + weights[1], 0)
            error = (active @ weights[2] + weights[3] - t[rows]) * np.float32(2 / len(rows))
            below = (error @ weights[2].T) * (active > 0)
            gradients = [inputs.T @ below, below.sum(0), active.T @ error, error.sum(0)]
            for w, g, m, v in zip(weights, gradients, first, second, strict=True):
                m += np.float32(0.1) * (g - m)
                v += np.float32(0.001) * (g * g - v)
                if w.ndim == 2:
                    w *= np.float32(1 - rate * decay)
                root = np.sqrt(v) * np.float32((1 - 0.999**step) ** -0.5) + np.float32(1e-8)
                w -= np.float32(rate / (1 - 0.9**step)) * m / root
    return weights


# -- statistics, with intervals by drawing the test formulae (or their families) again ---------------


def _draws(groups: np.ndarray, seed: int) -> np.ndarray:
    """(RESAMPLES, n) float64: how often each formula is drawn, families as a whole."""
    names, places = np.unique(groups, return_inverse=True)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
    return drawn[:, places].astype(np.float64)


def _statistics(
    truth: np.ndarray, guess: np.ndarray, draws: np.ndarray
) -> dict[str, dict[str, Any]]:
    """r and MAE of guess against truth, (n,) each; r is None where one of the two is constant."""
    t, g = (x - x.mean() if np.ptp(x) > CONSTANT else np.zeros_like(x) for x in (truth, guess))
    moments = np.stack([np.ones_like(t), t, g, t * t, g * g, t * g, np.abs(truth - guess)], 1)

    def r(sums: np.ndarray) -> np.ndarray:
        n, t, g, tt, gg, tg, _ = sums.T
        with np.errstate(invalid="ignore", divide="ignore"):
            found: np.ndarray = (n * tg - t * g) / np.sqrt((n * tt - t * t) * (n * gg - g * g))
        return found

    sums, resampled = moments.sum(0, keepdims=True), draws @ moments
    return {
        "r": _entry(r(sums), r(resampled)),
        "MAE": _entry(sums[:, -1] / sums[:, 0], resampled[:, -1] / resampled[:, 0]),
    }


def _ratio(errors: list[np.ndarray], draws: np.ndarray) -> dict[str, Any]:
    """Ratio of the means of two errors (n,) of the same formulae, with its interval."""
    both = np.stack(errors, 1)
    sums, resampled = both.sum(0), draws @ both
    return _entry(sums[:1] / sums[1:], resampled[:, 0] / resampled[:, 1])


def _entry(value: np.ndarray, resampled: np.ndarray) -> dict[str, Any]:
    if not np.isfinite(value[0]):
        return dict.fromkeys(("value", "low", "high"))
    known = resampled[np.isfinite(resampled)]
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": float(value[0]), "low": float(low), "high": float(high)}
