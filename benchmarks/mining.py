"""Mining requirements from labelled traces: accuracy, size and time, beside other classifiers.

python benchmarks/mining.py unseen                        sets that ship with aeon, own train/test split
python benchmarks/mining.py protocol --data FOLDER        repeated cross-validation on NAME.npz files
python benchmarks/mining.py planted --tasks 200           formulae found again in traces that they label
python benchmarks/mining.py vectors --data FOLDER         what proposals from the decoder are worth
python benchmarks/mining.py peers --data FOLDER           other classifiers on the same folds

Each writes results/mining-PART.md and .json. A file NAME.npz holds `signals` (N, V, P), `labels` (N,)
bool, `variables` and `dt`. All choices are made inside the training fold, and no setting differs between
sets. The interval of repeated cross-validation is that of Nadeau and Bengio, which knows that folds
share training traces. `unseen` needs aeon, `peers` scikit-learn.

`protocol` and `planted` write each row when it is finished. The same command goes on from there;
`--sets` and `--tasks` choose what is added, and `--fresh` begins again. On a machine with many cores
`NUMBA_NUM_THREADS=2 python benchmarks/mining.py planted --processes 4` gives each process two of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rhovec as rv
from common import RESULTS, command, head, save, table
from rhovec import machine
from rhovec.formula import Formula
from rhovec.mining.centre import centred
from rhovec.mining.data import Data, Scale, candidate_of
from rhovec.mining.fit import stratified

BUDGET = 20_000
SEEDS = "0, 1, ..., one per repeat"
T_95 = {4: 2.776, 9: 2.262, 49: 2.010, 99: 1.984}  # Student's t by degrees of freedom
PUBLISHED = {"GunPoint": "STELLE 0.92", "BasicMotions": "STELLE 0.99"}
# Sets inside aeon that the miner was not developed on: classification, equal lengths, not too long.
UNSEEN = (
    "GunPoint", "ItalyPowerDemand", "BasicMotions", "ArrowHead", "OSULeaf", "UnitTest", "ACSF1",
    "JapaneseVowels", "PickupGestureWiimoteZ",
)  # fmt: skip
MAX_LENGTH = 1500


class Fold(NamedTuple):
    accuracy: float
    leaky: float  # with the shift chosen on the test traces
    nodes: int
    seconds: float
    cpu: float  # seconds of all threads
    formula: str


# -- repeated cross-validation ---------------------------------------------------------------------


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, list[str], float]:
    with np.load(folder / f"{name}.npz") as file:
        return (
            file["signals"].astype(np.float64), file["labels"].astype(bool),
            file["variables"].tolist(), float(file["dt"]),
        )  # fmt: skip


def best_shift(rho: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy when all thresholds shift by the best amount for these very traces."""
    cuts = np.concatenate([[-np.inf], np.unique(rho)])
    return max(float(((rho > cut) == labels).mean()) for cut in cuts)


def corrected(scores: Sequence[float], folds: int) -> float:
    """Half of the 95 % interval of the mean: test folds over training folds is 1 / (folds - 1)."""
    n = len(scores)
    t = T_95.get(n - 1, 1.96)
    return float(t * np.sqrt((1 / n + 1 / (folds - 1)) * np.var(scores, ddof=1)))


def cross_validate(
    values: np.ndarray, labels: np.ndarray, names: list[str], dt: float, folds: int, repeats: int
) -> list[list[Fold]]:
    out = []
    for seed in range(repeats):
        fold = stratified(labels, folds, seed)
        found = []
        for k in range(folds):
            seen = fold != k
            began, began_cpu = time.perf_counter(), time.process_time()
            mined = rv.mine(
                values[seen], labels[seen], variables=names, dt=dt, budget=BUDGET, seed=seed
            )
            seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
            rho = mined.robustness(values[~seen])
            right = (rho >= 0) == labels[~seen]
            leaky = best_shift(rho, labels[~seen])
            size = mined.formula.size
            found.append(Fold(float(right.mean()), leaky, size, seconds, cpu, mined.text))
        print(seed, [round(one.accuracy, 4) for one in found], flush=True)
        out.append(found)
    return out


def in_processes(work: Callable[[Any], Any], items: Iterable[Any], processes: int) -> Iterator[Any]:
    """The results as they come, from this process or from several."""
    if processes == 1:
        yield from map(work, items)
    else:
        with get_context("spawn").Pool(processes) as pool:
            yield from pool.imap_unordered(work, items)


def protocol(args: argparse.Namespace) -> None:
    facts = before("protocol", args)
    done = {fact["set"] for fact in facts}
    sets = [name for name in args.sets.split(",") if name not in done]
    work = partial(protocol_of, args.data, args.repeats)
    for fact in in_processes(work, sets, args.processes):
        facts.append(fact)
        write_protocol(facts)
    write_protocol(facts)


def protocol_of(folder: Path, repeats: int, name: str) -> dict[str, Any]:
    values, labels, names, dt = read(folder, name)
    folds, repeats = (10, 1) if name == "fuel" else (5, repeats)
    found = cross_validate(values, labels, names, dt, folds, repeats)
    scores = [one._asdict() for repeat in found for one in repeat]
    return {
        "set": name, "shape": values.shape, "folds": folds, "repeats": repeats, "scores": scores,
    }  # fmt: skip


def write_protocol(facts: list[dict[str, Any]]) -> None:
    rows = []
    for fact in facts:
        flat, folds = [Fold(**one) for one in fact["scores"]], fact["folds"]
        scores = [one.accuracy for one in flat]
        repeats = [flat[i : i + folds] for i in range(0, len(flat), folds)]
        means = [float(np.mean([one.accuracy for one in repeat])) for repeat in repeats]
        best = max(float(np.mean([one.leaky for one in repeat])) for repeat in repeats)
        texts = [one.formula for one in flat]
        common = max(texts, key=texts.count)
        nodes, (n, channels, points) = [one.nodes for one in flat], fact["shape"]
        seconds, cpu = [one.seconds for one in flat], [one.cpu / 2 for one in flat]
        rows.append([
            f"{fact['set']} ({n}, {channels} × {points})", f"{len(repeats)} × {folds}",
            f"{np.mean(scores):.4f} ± {corrected(scores, folds):.4f}", f"{np.std(scores):.4f}",
            " ".join(f"{m:.4f}" for m in means), f"{best:.4f}", f"{np.median(nodes):g} ({max(nodes)})",
            f"{np.median(seconds):.1f} ({max(seconds):.1f})",
            f"{np.median(cpu):.1f} ({max(cpu):.1f})", f"`{common}`",
        ])  # fmt: skip
    heads = ("set (traces, channels × points)", "folds", "test accuracy", "sd of folds", "by seed",
             "2025 protocol", "nodes (most)", "seconds a fit (most)", "half of its CPU seconds",
             "most frequent formula")  # fmt: skip
    write(
        "protocol",
        facts,
        [
            "# Mining: repeated cross-validation",
            "These sets were seen while the miner was developed; for others see "
            "[mining-unseen.md](mining-unseen.md). ± is the 95 % interval of Nadeau and Bengio. The "
            "column of the 2025 protocol chooses the shift of all thresholds on the labels of the test "
            "fold and keeps the best seed. It is there to compare with published numbers, and says "
            "nothing of new traces. Half of the CPU seconds is what two quiet cores would take at "
            "best.",
            *table(heads, rows),
        ],
    )


# -- sets that were not seen -----------------------------------------------------------------------


def unseen(args: argparse.Namespace) -> None:
    from aeon.classification.interval_based import (  # type: ignore[import-not-found]
        TimeSeriesForestClassifier,
    )
    from aeon.classification.shapelet_based import (  # type: ignore[import-not-found]
        ShapeletTransformClassifier,
    )
    from aeon.datasets import load_classification  # type: ignore[import-not-found]

    rows, facts = [], []
    for name in args.sets.split(",") if args.sets else UNSEEN:
        try:
            (X, y), (T, u) = (load_classification(name, split=s) for s in ("train", "test"))
        except Exception as error:  # whatever aeon raises where a set is not inside it
            print(name, "left out:", str(error).partition("\n")[0][:200], flush=True)
            continue
        if isinstance(X, list) or X.shape[2] > MAX_LENGTH:
            print(name, "left out: unequal or long traces", flush=True)
            continue
        labels = np.unique(y)
        began = time.perf_counter()
        mined = rv.mine(X, y.tolist(), budget=BUDGET)
        seconds = time.perf_counter() - began
        ours = float((mined.predict(T) == u).mean())
        formulae = (
            [mined.formula]
            if isinstance(mined, rv.mining.Mined)
            else [r.formula for r in mined.rules]
        )
        held = mined.entry.held_out if isinstance(mined, rv.mining.Mined) else None
        others = {}
        for peer, make in (
            ("time series forest", lambda: TimeSeriesForestClassifier(random_state=0)),
            (
                "shapelets",
                lambda: ShapeletTransformClassifier(
                    n_shapelet_samples=args.shapelets, random_state=0
                ),
            ),
        ):
            start = time.perf_counter()
            others[peer] = (
                float((make().fit(X, y).predict(T) == u).mean()),
                time.perf_counter() - start,
            )
        facts.append({
            "set": name, "train": X.shape, "test": T.shape, "classes": len(labels), "accuracy": ours,
            "held_out": held, "seconds": seconds, "formulae": list(map(str, formulae)), "peers": others,
        })  # fmt: skip
        print(name, ours, others, flush=True)
        rows.append([
            f"{name} ({len(X)} + {len(T)}, {X.shape[1]} × {X.shape[2]}, {len(labels)} classes)",
            f"{ours:.3f}", *(f"{score:.3f}" for score, _ in others.values()), PUBLISHED.get(name, "–"),
            str(sum(phi.size for phi in formulae)), f"{seconds:.1f}",
            *[" / ".join(f"{s:.1f}" for _, s in others.values())],
            "; ".join(f"`{phi}`" for phi in formulae),
        ])  # fmt: skip
    heads = ("set (train + test, channels × points)", "rhovec", "time series forest", "shapelets",
             "published", "nodes", "seconds", "seconds of the others", "formulae")  # fmt: skip
    write(
        "unseen",
        facts,
        [
            "# Mining: sets that the miner was not developed on",
            "Sets that ship inside aeon, with their own split of training and test traces; nothing "
            "in the miner was chosen by them. The forest has 200 trees over intervals, the shapelet "
            f"classifier {args.shapelets:,} candidates and a rotation forest. More than two "
            "classes are a decision list, so `nodes` is the sum of its formulae.",
            *table(heads, rows),
        ],
    )


# -- planted formulae ------------------------------------------------------------------------------


def planted_formula(
    rng: np.random.Generator, operators: int, channels: int, points: int
) -> Formula:
    """A random formula over x_0 ... with this number of operators; thresholds and windows at random."""

    def window(last: int) -> str:
        lo, hi = sorted(rng.integers(0, last, 2).tolist())
        return f"[{lo},{hi}]"

    def draw(left: int, last: int) -> str:
        if left == 0:
            op = rng.choice([">=", "<="])
            return f"x_{rng.integers(channels)} {op} {rng.normal():.3f}"
        kind = rng.choice(["always", "eventually", "and", "or", "until"])
        if kind in ("always", "eventually"):
            return f"{kind}{window(last)} ({draw(left - 1, max(2, last // 2))})"
        first = int(rng.integers(0, left))
        between = f"until{window(last)}" if kind == "until" else kind
        return f"(({draw(first, last)}) {between} ({draw(left - 1 - first, last)}))"

    return rv.parse(draw(operators, points))


def traces_of(
    rng: np.random.Generator, correlated: bool, n: int, channels: int, points: int
) -> np.ndarray:
    measure = rv.BaseMeasure(n_variables=channels, points=points)
    values = np.asarray(measure.sample(n, seed=int(rng.integers(1 << 31))), np.float64)
    if correlated:  # each channel shares half of its variance with one that all share
        shared = np.asarray(
            rv.BaseMeasure(n_variables=1, points=points).sample(n, seed=int(rng.integers(1 << 31)))
        )
        values = (values + shared) / np.sqrt(2)
    return values


FLIPPED = (0.0, 0.05, 0.1)
N_TRAIN, N_TEST, POINTS = 500, 1000, 50


def known_structure(phi: Formula, values: np.ndarray, given: np.ndarray, seed: int) -> Formula:
    """The planted formula with windows and thresholds fitted, from the true ones on.

    That is what a miner could do that guesses the structure and searches perfectly.
    """
    scale = Scale.of(values, [f"x_{i}" for i in range(values.shape[1])])
    data = Data(scale.standardise(values), given, (1.0, 1.0), scale.flags)
    candidate = candidate_of(phi, scale, values.shape[2])
    assert candidate is not None
    middle = centred(candidate, data, seed)
    assert middle is not None  # there is no deadline
    return scale.formula(middle)


def planted_task(task: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng([seed, task])
    operators, channels = task % 4 + 1, int(rng.choice([1, 2, 4, 8]))
    while True:  # a formula that splits the traces
        phi = planted_formula(rng, operators, channels, POINTS)
        values = traces_of(rng, task % 8 >= 4, N_TRAIN + N_TEST, channels, POINTS)
        labels = rv.satisfaction(phi, values)
        if 0.2 <= labels.mean() <= 0.8:
            break
    train, test, truth = values[:N_TRAIN], values[N_TRAIN:], labels[N_TRAIN:]
    out = []
    for flipped in FLIPPED:
        given = labels[:N_TRAIN] ^ (rng.random(N_TRAIN) < flipped)
        began, began_cpu = time.perf_counter(), time.process_time()
        mined = rv.mine(train, given, budget=BUDGET, seed=task)
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        known = rv.satisfaction(known_structure(phi, train, given, task), test)
        out.append({
            "task": task, "operators": operators, "channels": channels, "flipped": flipped,
            "accuracy": float((mined.predict(test) == truth).mean()),
            "known": float((known == truth).mean()), "share": float(labels.mean()),
            "planted": str(phi), "found": mined.text, "size": phi.size,
            "found_size": mined.formula.size, "seconds": seconds, "cpu": cpu,
            "correlated": task % 8 >= 4,
        })  # fmt: skip
    return out


def planted(args: argparse.Namespace) -> None:
    facts = before("planted", args, args.seed)
    done = {fact["task"] for fact in facts}
    tasks = [task for task in range(args.tasks) if task not in done]
    for found in in_processes(partial(planted_task, seed=args.seed), tasks, args.processes):
        facts += found
        scores = [(round(f["accuracy"], 4), round(f["known"], 4)) for f in found]
        print(found[0]["task"], scores, flush=True)
        write_planted(facts, args.seed, quiet=True)
    write_planted(facts, args.seed)


def write_planted(facts: list[dict[str, Any]], seed: int, quiet: bool = False) -> None:
    rows = []
    for flipped in FLIPPED:
        for operators in ((1,), (2,), (1, 2), (3,), (4,)):
            chosen = [f for f in facts if f["operators"] in operators and f["flipped"] == flipped]
            if not chosen:
                continue
            ours, known = ([f[who] for f in chosen] for who in ("accuracy", "known"))
            rows.append([
                f"{flipped:.0%}", " or ".join(map(str, operators)), str(len(chosen)),
                *(f"{np.mean([s >= 0.99 for s in scores]):.2f}" for scores in (ours, known)),
                *(f"{np.mean(scores):.4f}" for scores in (ours, known)),
                f"{np.mean([f['size'] for f in chosen]):.1f}",
                f"{np.mean([f['found_size'] for f in chosen]):.1f}",
                f"{np.median([f['seconds'] for f in chosen]):.1f}",
                f"{np.median([f['cpu'] for f in chosen]) / 2:.1f}",
            ])  # fmt: skip
    heads = ("labels flipped", "operators planted", "tasks", "share with accuracy ≥ 0.99",
             "structure known", "mean accuracy", "structure known", "nodes planted", "nodes found",
             "seconds (median)", "half of the CPU seconds")  # fmt: skip
    write(
        "planted",
        facts,
        [
            "# Mining: planted formulae",
            f"Random formulae of 1 to 4 operators over 1, 2, 4 or 8 channels label {N_TRAIN} random "
            f"traces of {POINTS} points, half of the tasks on mu0, half on channels that share half of "
            "their variance. Between 20 % and 80 % of the traces satisfy each. Accuracy is on "
            f'{N_TEST} other traces with clean labels. "Structure known" fits only windows and '
            "thresholds, in the planted structure and from the planted ones on: what is missing there "
            f"cannot be learned from {N_TRAIN} traces.",
            *table(heads, rows),
        ],
        seed=seed,
        quiet=quiet,
    )


# -- what vectors are worth ------------------------------------------------------------------------


def neighbours(
    formulae: Sequence[Formula], mean: np.ndarray, std: np.ndarray, samples: int
) -> list[Formula]:
    """Formulae that the decoder gives for vectors of these, in the units of the traces."""
    from rhovec.formula.schema import SchemaChannel

    scales = enumerate(zip(mean.tolist(), std.tolist(), strict=True))
    schema = rv.Schema(tuple(SchemaChannel(f"x_{i}", mean=m, std=s) for i, (m, s) in scales))
    space: Any = rv.load()
    vectors = space.embed([schema.lower(phi) for phi in formulae])
    answers = space.decode(vectors, samples=samples, schema=schema, k=samples)
    return [phi for group in answers for phi in group]


def vectors(args: argparse.Namespace) -> None:
    facts, rows = [], []
    for name in args.sets.split(","):
        values, labels, _, _ = read(args.data, name)
        mean, std = values.mean(axis=(0, 2)), values.std(axis=(0, 2))
        for seed in range(args.repeats):
            seen = stratified(labels, 5, seed) != 0
            half = args.budget // 2

            def losses(found: rv.mining.Mined) -> dict[int, int]:
                return {one.size: one.missed + one.alarms for one in found.front}

            first = rv.mine(values[seen], labels[seen], budget=half, seed=seed, folds=2)
            began = time.perf_counter()
            without = rv.mine(
                values[seen], labels[seen], budget=half, seed=seed + 1, folds=2, start=first
            )
            plain_s = time.perf_counter() - began
            began = time.perf_counter()
            formulae = [one.formula for one in first.front]
            proposals = neighbours(formulae, mean, std, args.samples)
            decode_s = time.perf_counter() - began
            with_them = rv.mine(
                values[seen], labels[seen], budget=max(0, half - len(proposals)), seed=seed + 1, folds=2,
                start=[*formulae, *proposals],
            )  # fmt: skip
            fact = {
                "set": name, "seed": seed, "proposals": len(proposals), "without": losses(without),
                "with": losses(with_them), "seconds_without": plain_s, "seconds_decoding": decode_s,
            }  # fmt: skip
            facts.append(fact)
            print(fact, flush=True)
            rows.append([
                name, str(seed), str(len(proposals)), _front(fact["without"]), _front(fact["with"]),
                f"{plain_s:.1f}", f"{decode_s:.1f}",
            ])  # fmt: skip
    heads = ("set", "seed", "proposals", "wrong by size, without", "with", "seconds of the search",
             "seconds of decoding")  # fmt: skip
    write(
        "vectors",
        facts,
        [
            "# Mining: what the vectors are worth",
            f"A search of {args.budget // 2:,} evaluations gives a front. Then either the same number "
            "again from that front, or formulae that the shipped decoder gives around the vectors of "
            "the front (standardised channels), counted as evaluations, and the rest from both. Wrong "
            "training traces by size; equal seconds would take the seconds of decoding off the search.",
            *table(heads, rows),
        ],
    )


def _front(losses: Any) -> str:
    return ", ".join(f"{size}: {loss}" for size, loss in losses.items())


# -- peers -----------------------------------------------------------------------------------------


def peers(args: argparse.Namespace) -> None:
    from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]
    from sklearn.tree import DecisionTreeClassifier  # type: ignore[import-untyped]

    makers: dict[str, Callable[[], Any]] = {
        "decision tree": lambda: DecisionTreeClassifier(random_state=0),
        "decision tree, 9 nodes": lambda: DecisionTreeClassifier(max_leaf_nodes=5, random_state=0),
        "random forest": lambda: RandomForestClassifier(200, random_state=0),
    }
    facts, rows = [], []
    for name in args.sets.split(","):
        values, labels, names, dt = read(args.data, name)
        flat = values.reshape(len(values), -1)
        scores: dict[str, list[tuple[float, float]]] = {peer: [] for peer in ("rhovec", *makers)}
        for seed in range(args.repeats):
            fold = stratified(labels, 5, seed)
            for k in range(5):
                seen = fold != k
                began = time.perf_counter()
                mined = rv.mine(
                    values[seen], labels[seen], variables=names, dt=dt, budget=BUDGET, seed=seed
                )
                seconds = time.perf_counter() - began
                scores["rhovec"].append(
                    (float((mined.predict(values[~seen]) == labels[~seen]).mean()), seconds)
                )
                for peer, make in makers.items():
                    began = time.perf_counter()
                    model = make().fit(flat[seen], labels[seen])
                    score = float(model.score(flat[~seen], labels[~seen]))
                    scores[peer].append((score, time.perf_counter() - began))
        facts.append({"set": name, "scores": scores})
        rows.append([
            name, *(f"{np.mean([s for s, _ in some]):.4f} ({np.mean([t for _, t in some]):.2f} s)"
                    for some in scores.values()),
        ])  # fmt: skip
        print(rows[-1], flush=True)
    write(
        "peers",
        facts,
        [
            "# Mining: other classifiers on the same folds",
            f"{args.repeats} × 5-fold, accuracy and seconds a fit. Trees see every sample as a feature. "
            "TeLEx and templogic are not on the package index; PyTeLo 1.0.3 from there has no learner.",
            *table(("set", "rhovec", *makers), rows),
        ],
    )


def before(part: str, args: argparse.Namespace, seed: Any = SEEDS) -> list[dict[str, Any]]:
    """Rows of an earlier run, which this one adds to; seed: as `write` records it."""
    path = RESULTS / f"mining-{part}.json"
    if args.fresh or not path.is_file():
        return []
    text = path.read_text()
    if '"cpu":' not in text:
        sys.exit(f"{path} is of an older version of this file; begin again with --fresh")
    found = json.loads(text)
    if found["seed"] != seed:
        sys.exit(f"{path} has rows of seed {found['seed']}, not {seed}; begin again with --fresh")
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def write(
    part: str,
    rows: Any,
    lines: list[str],
    seed: Any = SEEDS,
    quiet: bool = False,
) -> None:
    where = re.sub(r"--data \S+", "--data FOLDER", command()).replace(" --fresh", "")
    facts = {"command": where, "seed": seed, "machine": machine.facts(), "rows": rows}
    title, text, *rest = lines
    page = "\n".join([title, "", head(facts), "", text, "", *rest, ""])
    save(f"mining-{part}", facts, page, quiet=quiet)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=("unseen", "protocol", "planted", "vectors", "peers"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--sets", default="")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--budget", type=int, default=4000, help="of `vectors`")
    parser.add_argument("--samples", type=int, default=32, help="decoded formulae per vector")
    parser.add_argument("--shapelets", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="of `protocol` and `planted`")
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    args = parser.parse_args()
    if not args.sets and args.part != "unseen":
        args.sets = (
            "train,fuel" if args.part == "vectors" else "human,linear,robot,train,naval,fuel"
        )
    parts = {
        "unseen": unseen,
        "protocol": protocol,
        "planted": planted,
        "vectors": vectors,
        "peers": peers,
    }
    parts[args.part](args)


if __name__ == "__main__":
    main()
