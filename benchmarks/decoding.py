"""Quality and speed of decoding vectors to formulae, compared with retrieval from the corpus.

python benchmarks/decoding.py corpus vectors.npy --n 1000000 --device cuda    once, 2 GB
python benchmarks/decoding.py --corpus vectors.npy                            all rows
python benchmarks/decoding.py --formulae FILE.csv --corpus vectors.npy        your own requests

Requests are vectors in an .npy file, read by `rhovec decode` in a fresh process: greedy, and verified;
the latter from directions, too.
Answers are judged by the robustness of request and answer on fresh traces, without leaving any out.
Retrieval takes the closest of N seeds of the corpus' train split, by an exact scan; "tuned" starts the
search of verified decoding from the few closest. A model without a decoder has only the rows of
retrieval. Requires numpy and numba; torch for --device.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

import rhovec as rv
from common import RESULTS, command, formulae, head, save
from rhovec import machine
from rhovec.corpus.families import Recipe, draw_families, find_families
from rhovec.evaluation.reconstruction import constant_sign, reconstruction, spread
from rhovec.formula import Formula
from rhovec.models.inverse import BUDGET, Found, Limits, choose
from rhovec.models.model import Model, load

CORPUS = Recipe(seed=20, family_size=1, shares=(1.0, 0.0, 0.0, 0.0))
SCANNED = 1 << 14  # corpus vectors compared at once
NEAREST = 16  # corpus formulae from which tuning starts
TIMED = 100  # requests of the timed runs
# Kind of the vectors, and options of the command.
WAYS: dict[str, tuple[Literal["kernel", "cosine"], tuple[str, ...]]] = {
    "greedy": ("kernel", ("--samples", "0", "--no-refine")),
    "verified": ("kernel", ()),
    "verified, from directions": ("cosine", ()),
}
PAPER = "0.8688 [0.465, 0.980]"  # cosine, 453 of 3000 formulae left out
SHOWN = ("cosine", "centred correlation", "L2 / sqrt(N)")


def write_corpus(path: Path, n: int, model: Model) -> None:
    """Vectors (n, D) float16 of the first n seeds."""
    out = np.lib.format.open_memmap(path, "w+", np.float16, (n, model.dimension))
    numbers = find_families(CORPUS, 0, n, "train")
    for first in range(0, n, SCANNED):
        part = slice(first, first + SCANNED)
        out[part] = model.embed(draw_families(CORPUS, numbers[part]).programs, warn=False)
        print(f"\r{min(part.stop, n):,} of {n:,}", end="", flush=True)
    out.flush()
    print()


def nearest(vectors: np.ndarray, corpus: np.ndarray, k: int) -> np.ndarray:
    """Indices (B, k) of the closest rows, the best first."""
    best = np.full((len(vectors), 1), -np.inf, np.float32)
    places = np.zeros((len(vectors), 1), np.int64)
    for first in range(0, len(corpus), SCANNED):
        block = vectors @ corpus[first : first + SCANNED].astype(np.float32).T
        here = np.broadcast_to(np.arange(first, first + block.shape[1]), block.shape)
        best, places = np.hstack([best, block]), np.hstack([places, here])
        kept = np.argpartition(-best, min(k, best.shape[1]) - 1, axis=1)[:, :k]
        best, places = (np.take_along_axis(a, kept, axis=1) for a in (best, places))
    return np.take_along_axis(places, np.argsort(-best, axis=1), axis=1)


def retrieve(
    model: Model, vectors: np.ndarray, corpus: np.ndarray
) -> dict[str, tuple[list[Found], float]]:
    """The best answers of retrieval, without and with tuning, and the seconds."""
    places = nearest(vectors, corpus, NEAREST)
    used, back = np.unique(places, return_inverse=True)
    numbers = find_families(CORPUS, 0, len(corpus), "train")[used]
    formulae = draw_families(CORPUS, numbers).programs.unpack()
    candidates = [[formulae[i] for i in row] for row in back.reshape(places.shape)]
    out = {}

    def embed(formulae: list[Formula]) -> np.ndarray:
        return model.embed(formulae, warn=False)

    for name, starts, budget in (
        ("retrieval", [c[:1] for c in candidates], 0),
        ("retrieval, tuned", candidates, BUDGET),
    ):
        begin = time.perf_counter()
        found = [
            group[0]
            for i in range(0, len(vectors), TIMED)
            for group in choose(
                embed,
                vectors[i : i + TIMED],
                starts[i : i + TIMED],
                Limits(model.largest_threshold, budget=budget),
            )
        ]
        out[name] = found, time.perf_counter() - begin
    return out


def decode(
    path: Path, given: argparse.Namespace, options: tuple[str, ...]
) -> tuple[list[Found], float]:
    """The best answers of `rhovec decode` in a fresh process, and the seconds that it took."""
    command = [sys.executable, "-m", "rhovec.cli", "decode", str(path), "--json", *options]
    command += ["--model", str(given.model)] if given.model else []
    command += ["--device", given.device] if given.device else []
    begin = time.perf_counter()
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    return [Found(rv.parse(row["formula"]), row["similarity"]) for row in rows], seconds


def hostile(model: Model, vectors: np.ndarray, seed: int) -> dict[str, Any]:
    """Requests that are no formula's vector: the share of valid answers, and how close they come."""
    rng = np.random.default_rng(seed)
    few = vectors[:20]
    noise = rng.standard_normal(few.shape) / few.shape[1] ** 0.5
    sorts = {
        "random unit vectors": noise,
        "halfway between two": few + np.roll(few, 1, axis=0),
        "noise of equal length added": few + noise,
        "negated": -few,
    }
    out = {}
    for name, rows in sorts.items():
        found = model.inverter.decode(model.unit_rows(rows))
        valid = [all(rv.parse(str(f.formula)) == f.formula for f in group) for group in found]
        similarity = float(np.median([group[0].similarity for group in found]))
        out[name] = {"n": len(found), "valid": float(np.mean(valid)), "similarity": similarity}
    return out


def report(facts: dict[str, Any]) -> str:
    lines = [
        "# From vectors to formulae", "",
        head(facts), "",
        f"{facts['formulae']}: {facts['n']} requests, none left out. Model {facts['model']}. Cosine, "
        f"correlation and distance of robustness vectors on {facts['traces']} fresh traces: medians "
        "with 95 % intervals, quartiles in brackets. Similarity is the model's, of answer and "
        "request.", "",
        f"| | {' | '.join(SHOWN)} | valid | nodes, in and out | similarity | seconds for {TIMED} |",
        "|---" * (len(SHOWN) + 5) + "|",
        f"| paper, 453 of 3000 left out | {PAPER} | | | 84.9 % | | | |",
    ]  # fmt: skip
    for name, way in facts["ways"].items():
        rows = {row["measure"]: row for row in way["rows"]}
        cells = [spread(rows[m]) for m in SHOWN]
        nodes = [rows[f"nodes of the {what}"]["value"] for what in ("formula", "answer")]
        cells += [f"{rows['valid']['value']:.1%}", f"{nodes[0]:g}, {nodes[1]:g}",
                  f"{way['similarity']:.4f}", f"{way['seconds']:.1f}"]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", constant_sign(rows)]
    if "nearer" in facts:
        lines += ["", f"Verified answers are closer to the request than the best of "
                  f"{facts['corpus']:,} corpus formulae for {facts['nearer']:.1%} of the requests, "
                  f"and as close for {facts['as_near']:.1%} more."]  # fmt: skip
    if "hostile" in facts:
        lines += [
            "",
            "| requests that are no formula's vector | n | valid | similarity |",
            "|---" * 4 + "|",
        ]
        lines += [f"| {name} | {r['n']} | {r['valid']:.1%} | {r['similarity']:.3f} |"
                  for name, r in facts["hostile"].items()]  # fmt: skip
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Verified decoding, compared with retrieval.")
    parser.add_argument(
        "task", nargs="*", help="nothing, or: corpus FILE, to write the corpus' vectors"
    )
    parser.add_argument("--model", type=Path, help="a model's folder (default: the shipped one)")
    parser.add_argument("--device", help="cpu or cuda, for torch (default: NumPy)")
    parser.add_argument("--formulae", type=Path, help="a file (default: the corpus' test split)")
    parser.add_argument("--corpus", type=Path, help="vectors that `corpus` wrote")
    parser.add_argument("--n", type=int, default=500, help="requests, or corpus formulae")
    parser.add_argument("--n-traces", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1, help="of the traces")
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder")
    given = parser.parse_args()
    if given.task:
        write_corpus(Path(given.task[1]), given.n, load(given.model, given.device))
        return
    facts: dict[str, Any] = {
        "command": command(), "seed": given.seed, "machine": machine.facts(given.device),
        "traces": given.n_traces, "ways": {},
    }  # fmt: skip
    texts, facts["formulae"] = formulae(given.formulae, given.n)
    requests = [rv.parse(text) for text in texts]
    model = load(given.model, given.device)
    vectors = model.embed(requests, warn=False)
    facts |= {"n": len(requests), "model": model.fingerprint}
    answers: dict[str, tuple[list[Found], float]] = {}
    if "decoder" in model.config:
        with tempfile.TemporaryDirectory() as folder:
            path, part = Path(folder) / "all.npy", Path(folder) / "part.npy"
            for name, (kind, options) in WAYS.items():
                given_rows = model.embed(requests, kind=kind, warn=False)
                np.save(path, given_rows)
                np.save(part, given_rows[:: max(1, len(requests) // TIMED)][:TIMED])
                answers[name] = decode(path, given, options)[0], decode(part, given, options)[1]
        facts["hostile"] = hostile(model, vectors, given.seed)
    if given.corpus:
        corpus = np.load(given.corpus, mmap_mode="r")
        facts["corpus"] = len(corpus)
        for name, (found, seconds) in retrieve(model, vectors, corpus).items():
            answers[name] = found, seconds * TIMED / len(vectors)
    measure = model.kernel().measure
    for name, (found, seconds) in answers.items():
        rows = reconstruction(
            requests, [one.formula for one in found], measure, given.n_traces, given.seed
        )
        similarity = float(np.median([one.similarity for one in found]))
        facts["ways"][name] = {"rows": rows, "seconds": seconds, "similarity": similarity}
        print(f"{name:18s} cosine {rows[0]['value']:.4f} [{rows[0]['lower_quartile']:.4f}]  "
              f"{seconds:.1f} s for {TIMED}", flush=True)  # fmt: skip
    if {"verified", "retrieval"} <= set(answers):
        gap = np.subtract(*([one.similarity for one in answers[name][0]]
                            for name in ("verified", "retrieval")))  # fmt: skip
        facts["nearer"] = float((gap > 1e-5).mean())
        facts["as_near"] = float((np.abs(gap) <= 1e-5).mean())
    save("decoding", facts, report(facts), given.output)


if __name__ == "__main__":
    main()
