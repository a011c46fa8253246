"""Search over a million formulae or ten: time, memory, disk and recall, beside other libraries.

python benchmarks/search.py                          1,000,000 formulae, signatures of 1000 traces
python benchmarks/search.py --rows 100000            a tenth, where graphs are built in minutes, too
python benchmarks/search.py --model default          a shipped model's directions instead, in int8
python benchmarks/search.py --model small --rows 10000000 --peers faiss-ivf faiss-sq8   an hour or more

What is done is kept in build/search, 13 GB for ten million: a run that was ended goes on where it was,
at the last 100,000 vectors, when the same command is given again. The last line says what to remove.

Formulae are the training split of the corpus, queries its test split, so no query is in the library.
Each part runs in a process of its own, for its peak memory; the other engines get the same vectors from
files and hold their index in memory. Queries are asked one at a time. Answers are compared with exact
search over the vectors in full precision, and with the ranking of the exact kernel; since many formulae
mean the same, a hit counts if it is as good as the tenth best. Engines that are not installed are left
out: pip install faiss-cpu usearch.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from common import RESULTS, ROOT, command, head, save
from rhovec import machine
from rhovec.corpus import Recipe, stream
from rhovec.files import write_file
from rhovec.formula import Formula, parse
from rhovec.kernel import StlKernel
from rhovec.models.model import Directions, load
from rhovec.search import Index, Signatures
from rhovec.search.rows import Rows
from rhovec.traces import BaseMeasure

K = 10
TIES = (1e-6, 1e-4)  # of inner products
JUDGE_TRACES, JUDGED = 10_000, 1000  # the exact kernel ranks this many, the nearest by vectors
BATCH, SHARD = 4096, 100_000  # formulae drawn at once, vectors in a file
CHECKED = 4  # vectors of each file that are computed again, to see that formulae are the same
FOLDER = ROOT / "build" / "search"
FAISS = {"faiss-ivf": "IVF{},SQfp16", "faiss-sq8": "IVF{},SQ8", "faiss-hnsw": "HNSW32,SQfp16"}
ENGINES = {**dict.fromkeys(FAISS, "faiss-cpu"), "usearch": "usearch"}  # packages


def corpus(n: int, seed: int, split: str) -> Iterator[Formula]:
    """The first n formulae of a split."""
    for batch in stream(Recipe(seed=seed), batch=BATCH, split=split):
        programs = batch.programs
        for begin, end in zip(programs.offsets[:-1], programs.offsets[1:], strict=True):
            if n == 0:
                return
            n -= 1
            code = programs.code[begin:end].copy()
            used = list(dict.fromkeys(c for c in code[:, 3].tolist() if c >= 0))
            atoms = code[:, 3] >= 0
            code[atoms, 3] = [used.index(c) for c in code[atoms, 3]]
            channels = tuple(programs.channels[c] for c in used)
            yield Formula.trusted(code, programs.thresholds[begin:end].copy(), channels)


def source(given: argparse.Namespace) -> Directions | Signatures:
    """A model's directions, or signatures."""
    if given.model:
        return load(given.model, precision="int8").directions
    return Signatures(StlKernel(BaseMeasure(), given.traces, seed=given.seed))


class Kept:
    """Vectors that were made before, in the order of their formulae; else as what made them."""

    def __init__(self, maker: Directions | Signatures, folder: Path):
        self.maker, self.folder, self.given = maker, folder, 0
        self.seconds = 0.0  # of checks
        self.shard = np.empty((0, 0), np.float32)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.maker, name)

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        taken = []
        while formulae:
            place = self.given % SHARD
            if place == 0:
                self.shard = np.load(shard(self.folder, self.given))
                start = time.perf_counter()
                again = self.maker.embed(formulae[:CHECKED])
                assert np.allclose(again, self.shard[: len(again)], atol=1e-5), "other formulae"
                self.seconds += time.perf_counter() - start
            taken.append(self.shard[place : place + len(formulae)])
            formulae = formulae[len(taken[-1]) :]
            self.given += len(taken[-1])
        return np.concatenate(taken)


class Drawn:
    """Measure the time that drawing formulae takes."""

    def __init__(self, formulae: Iterator[Formula]):
        self.formulae, self.seconds = formulae, 0.0

    def __iter__(self) -> Iterator[Formula]:
        return self

    def __next__(self) -> Formula:
        start = time.perf_counter()
        phi = next(self.formulae)
        self.seconds += time.perf_counter() - start
        return phi


def timed(work: Callable[[Any], Any], items: Any) -> tuple[list[Any], dict[str, float]]:
    """Answers to single queries, and the milliseconds they took."""
    answers, times = [], []
    for item in items:
        start = time.perf_counter()
        answers.append(work(item))
        times.append(1e3 * (time.perf_counter() - start))
    low, high = np.quantile(times, [0.5, 0.95])
    return answers, {"p50_ms": float(low), "p95_ms": float(high), "queries": len(times)}


# -- the parts, each a process ---------------------------------------------------------------------


def embed(given: argparse.Namespace) -> dict[str, Any]:
    """Make the vectors, a file for each SHARD of them; those that are there already are kept."""
    maker, formulae = source(given), corpus(given.rows, given.seed, "train")
    maker.embed(list(corpus(64, given.seed, "valid")))  # compiles
    for start in range(0, given.rows, SHARD):
        drawn = list(islice(formulae, SHARD))
        file = shard(given.folder, start)
        if file.exists():
            continue
        began = time.perf_counter()
        options = {"warn": False} if isinstance(maker, Directions) else {}
        vectors = maker.embed(drawn, **options)
        seconds = time.perf_counter() - began
        write_file(file.with_suffix(".json"), json.dumps({"s": seconds, "n": len(drawn)}).encode())
        stream = io.BytesIO()
        np.save(stream, vectors)
        write_file(file, stream.getbuffer())
        print(f"  {start + len(drawn):,} vectors, {len(drawn) / seconds:,.0f} a second", flush=True)
    seconds = sum(json.loads(f.read_text())["s"] for f in given.folder.glob("vectors-*.json"))
    return {"embed_s": seconds}


def shard(folder: Path, start: int) -> Path:
    """The file of vectors start to start + SHARD."""
    return folder / f"vectors-{start // SHARD:05d}.npy"


def build(given: argparse.Namespace) -> dict[str, Any]:
    maker = source(given)
    formulae = list(corpus(64, given.seed, "valid"))
    Index.build(formulae, vectors=maker, stored=given.stored).close()  # compiles
    drawn, kept = Drawn(corpus(given.rows, given.seed, "train")), Kept(maker, given.folder)
    path = given.folder / "library.rhovec"
    for pattern in ("library.rhovec*", ".rhovec-*.tmp"):  # of a run that was ended
        for old in given.folder.glob(pattern):
            old.unlink()
    start = time.perf_counter()
    with Index.build(drawn, path, vectors=kept, stored=given.stored) as index:
        total = time.perf_counter() - start - drawn.seconds - kept.seconds
        assert len(index) == given.rows
    files = {f.name.removeprefix("library.rhovec"): f for f in given.folder.glob("library*")}
    sizes = {name: file.stat().st_size / 1e6 for name, file in files.items()}
    texts = "+".join(
        f"LENGTH(CAST({c} AS BLOB))" for c in ("formula", "requirement", "title", "source")
    )
    with sqlite3.connect(path) as database:
        ((text,),) = database.execute(f"SELECT SUM({texts}) FROM rows")
    return {
        "build_s": total, "draw_s": drawn.seconds, "disk_mb": sum(sizes.values()),
        "texts_mb": text / 1e6, "cache_mb": sizes.get(".coarse", 0.0),
    }  # fmt: skip


def query(given: argparse.Namespace) -> dict[str, Any]:
    formulae = [str(phi) for phi in corpus(given.queries, given.seed, "test")]
    start = time.perf_counter()
    index = Index.open(given.folder / "library.rhovec")
    index.search(formulae[0])
    opening = time.perf_counter() - start
    vectors = source(given).embed([parse(text) for text in formulae])
    np.save(given.folder / "queries.npy", vectors)
    for formula, vector in zip(formulae[:20], vectors, strict=False):
        index.search(vector, K), index.search(formula, K)
    found: dict[str, Any] = {"open_s": opening, "machine": machine.facts()}
    answers, found["vectors"] = timed(lambda v: index.search(v, K), vectors)
    found["vectors"]["ids"] = [[hit.id for hit in hits] for hits in answers]
    _, found["formulae"] = timed(lambda f: index.search(f, K), formulae)
    _, found["filtered"] = timed(
        lambda v: index.search(v, K, variables="x_0", max_depth=4), vectors[: given.judged]
    )
    index.search(formulae[0], K, rerank=True)
    answers, found["reranked"] = timed(
        lambda f: index.search(f, K, rerank=True), formulae[: given.judged]
    )
    found["reranked"]["ids"] = [[hit.id for hit in hits] for hits in answers]
    index.close()
    return found


def shards(given: argparse.Namespace) -> Iterator[tuple[int, np.ndarray]]:
    """Vectors of the library as they were made, float32, and the place of the first of them."""
    for start in range(0, given.rows, SHARD):
        yield start, np.load(shard(given.folder, start))


def truth(given: argparse.Namespace) -> dict[str, Any]:
    """Find the nearest by exact search over the vectors in full precision."""
    queries = np.load(given.folder / "queries.npy")
    kept = min(JUDGED, given.rows)
    best = [np.full(kept, -np.inf, np.float32) for _ in queries]
    ids = [np.zeros(kept, np.int64) for _ in queries]
    for start, vectors in shards(given):
        for first in range(0, len(vectors), BATCH):
            scores = queries @ vectors[first : first + BATCH].T
            for i, row in enumerate(scores):
                better = np.flatnonzero(row > best[i].min())
                if len(better):
                    values = np.concatenate([best[i], row[better]])
                    numbers = np.concatenate([ids[i], better + (start + first + 1)])
                    chosen = np.argpartition(-values, kept - 1)[:kept]
                    best[i], ids[i] = values[chosen], numbers[chosen]
    order = np.argsort(-np.array(best), axis=1)
    np.save(given.folder / "truth-ids.npy", np.take_along_axis(np.array(ids), order, 1))
    np.save(given.folder / "truth-scores.npy", np.take_along_axis(np.array(best), order, 1))
    return {}


def judge(given: argparse.Namespace) -> dict[str, Any]:
    """Compute the exact kernel, with other traces, for the nearest by vectors."""
    queries = list(corpus(given.judged, given.seed, "test"))
    ids = np.load(given.folder / "truth-ids.npy")[: given.judged]
    rows = Rows.open(given.folder / "library.rhovec")
    # Other traces than those of the kernel that re-ranks, whose seed is 1.
    kernel, second = (StlKernel(BaseMeasure(), JUDGE_TRACES, seed=given.seed + i) for i in (2, 3))
    values, others = np.empty(ids.shape), np.empty(ids.shape)
    for i, phi in enumerate(queries):
        candidates = [entry.requirement.formula for entry in rows.entries(ids[i])]
        values[i], others[i] = (k.gram([phi], candidates)[0] for k in (kernel, second))
    np.save(given.folder / "judged.npy", values)
    best, seen = (np.argsort(-v, axis=1, kind="stable")[:, :K] for v in (values, others))
    return {
        "ranks": [int(r) for r in np.quantile(best.max(1), [0.5, 0.95, 1])],
        "second": recalls(np.take_along_axis(ids, seen, 1).tolist(), ids, values),
    }


def peer(given: argparse.Namespace) -> dict[str, Any]:
    queries = np.load(given.folder / "queries.npy")
    size, dimension = given.rows, queries.shape[1]
    file = given.folder / "peer"
    start = time.perf_counter()
    if given.engine.startswith("faiss"):
        import faiss

        lists = int(size**0.5)
        name = FAISS[given.engine].format(lists)
        index = faiss.index_factory(dimension, name, faiss.METRIC_INNER_PRODUCT)
        step = max(1, size // (64 * lists))  # formulae are in random order, family by family
        index.train(np.concatenate([part[::step].copy() for _, part in shards(given)]))
        for _, part in shards(given):
            index.add(part)
        faiss.omp_set_num_threads(1)
        if given.engine == "faiss-hnsw":
            index.hnsw.efSearch = 64
        else:
            index.nprobe = 32
        faiss.write_index(index, str(file))
        ask = lambda v: index.search(v[None], K)[1][0]  # noqa: E731
    else:
        from usearch.index import Index as Usearch

        index = Usearch(ndim=dimension, metric="ip", dtype="f16")
        for i, part in shards(given):
            index.add(np.arange(i, i + len(part)), part)
        index.save(str(file))
        ask = lambda v: np.asarray(index.search(v, K).keys).astype(np.int64)  # noqa: E731
    found: dict[str, Any] = {"build_s": time.perf_counter() - start}
    found["disk_mb"] = file.stat().st_size / 1e6
    for vector in queries[:20]:
        ask(vector)
    answers, found["vectors"] = timed(ask, queries)
    found["vectors"]["ids"] = [[int(i) + 1 for i in row] for row in answers]
    file.unlink()
    return found


PARTS = {
    "embed": embed,
    "build": build,
    "query": query,
    "truth": truth,
    "judge": judge,
    "peer": peer,
}


# -- all of it -------------------------------------------------------------------------------------


def recall(ids: list[list[int]], places: np.ndarray, values: np.ndarray, tie: float) -> float:
    """Share of hits that are as good as the tenth best, to `tie`; (Q, n) ids and their values."""
    shares = []
    for found, place, value in zip(ids, places, values, strict=False):
        good = set(place[value >= np.sort(value)[-K] - tie].tolist())
        shares.append(len(good.intersection(found)) / K)
    return float(np.mean(shares))


def recalls(ids: list[list[int]], places: np.ndarray, values: np.ndarray) -> list[float]:
    return [recall(ids, places, values, tie) for tie in TIES]


def run(part: str, given: argparse.Namespace, engine: str = "") -> dict[str, Any]:
    """One part in a process of its own, with its peak memory; or what it found before."""
    file = given.folder / f"{part}{engine and f'-{engine}'}.json"
    if file.exists():
        return json.loads(file.read_text())
    options = ["rows", "traces", "queries", "judged", "seed", "stored", "folder"]
    command = [sys.executable, __file__, "--part", part, "--engine", engine]
    command += [str(x) for name in options for x in (f"--{name}", getattr(given, name))]
    command += ["--model", given.model] if given.model else []
    print(f"{part} {engine}", flush=True)
    subprocess.run(command, check=True)
    found: dict[str, Any] = json.loads(file.read_text())
    print(f"  { {k: v for k, v in found.items() if not isinstance(v, dict)} }", flush=True)
    return found


def either(row: dict[str, Any]) -> str:
    strict, loose = row["kernel_recall"]
    return f"{strict:.3f} ({loose:.3f} to {TIES[1]:g})"


def report(facts: dict[str, Any]) -> str:
    ours, judged = facts["rhovec"], facts["judged"]
    lines = [
        f"# Search over {facts['rows']:,} formulae", "",
        head(facts), "",
        f"Formulae of the corpus' training split, {facts['queries']} queries of its test split, one "
        f"at a time; {facts['vectors']}. Recall@{K} against exact search over the vectors in 32-bit "
        f"floats; many formulae mean the same, so a hit counts if it is as good as the tenth best to "
        f"{TIES[0]:g} (last column: {TIES[1]:g}). Build is from vectors to the finished index on "
        "disk; for rhovec it includes the durable rows with their texts. Making the vectors "
        f"({ours['embed_s']:.0f} s) comes on top, for all. Memory is the peak of a process, with what "
        "it has mapped; the others build and answer in one. Disk is without the texts, of which rhovec "
        f"also holds {ours['texts_mb']:.0f} MB. A hit of rhovec is a parsed formula with its tags, of "
        f"the others a number. rhovec stores {facts['stored']}; faiss-ivf: IVF with as many lists as "
        "the root of the rows, 16-bit floats, 32 lists probed; faiss-sq8: the same in 8 bits; "
        "faiss-hnsw: HNSW32, 16-bit floats, efSearch 64; usearch: its defaults in 16-bit floats; one "
        "thread for a query.", "",
        f"| | build s | memory MB, build | memory MB, query | disk MB | p50 ms | p95 ms | recall@{K} | "
        f"to {TIES[1]:g} |", "|---" * 9 + "|",
    ]  # fmt: skip
    rows = [("rhovec", ours, ours["query_memory_mb"])]
    rows += [(name, peer, None) for name, peer in facts["peers"].items()]
    for name, row, memory in rows:
        v, disk = row["vectors"], row["disk_mb"] - row.get("texts_mb", 0)
        lines.append(
            f"| {name} | {row['build_s']:.0f} | {row['memory_mb']:.0f} | "
            f"{memory or row['memory_mb']:.0f} | {disk:.0f} | {v['p50_ms']:.2f} | {v['p95_ms']:.2f} | "
            f"{v['recall'][0]:.4f} | {v['recall'][1]:.4f} |"
        )
    lines += [
        "", f"The first answer of a rhovec process took {ours['open_s']:.1f} s: opening, and reading "
        "and checking the cache, which the system still had in memory; imports aside.", "",
        "| query | p50 ms | p95 ms | n |", "|---|---|---|---|",
        *(
            f"| {text} | {ours[name]['p50_ms']:.1f} | {ours[name]['p95_ms']:.1f} | "
            f"{ours[name]['queries']} |"
            for name, text in (
                ("vectors", "a vector"), ("formulae", "a formula as text"),
                ("filtered", "a vector, filtered by variable and depth"),
                ("reranked", f"a formula, re-ranked by the kernel with {JUDGE_TRACES:,} traces"),
            )
        ), "",
        f"Against the exact kernel's own ranking ({JUDGE_TRACES:,} other traces, {judged} queries; "
        f"it ranked the {JUDGED} nearest by vectors, and the last of its ten best stood at vector rank "
        f"{ours['ranks'][0]} in the median, {ours['ranks'][1]} at the 95th percentile, "
        f"{ours['ranks'][2]} at most): recall@{K} {either(ours['vectors'])} by vectors, "
        f"{either(ours['reranked'])} re-ranked; {either(ours['second'])} is what a second kernel on as "
        f"many traces finds that ranks all {JUDGED}.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Search: time, memory, disk and recall.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--traces", type=int, default=1000, help="dimensions of the signatures")
    parser.add_argument("--model", default="", help="directions of this model, in int8, instead")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--judged", type=int, default=50, help="queries ranked by the exact kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peers", nargs="*", choices=tuple(ENGINES), default=list(ENGINES))
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder")
    parser.add_argument("--stored", help="type of stored numbers (default: int8 with --model)")
    parser.add_argument("--folder", type=Path, help=f"what is kept (default: in {FOLDER})")
    parser.add_argument("--part", choices=tuple(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.stored = given.stored or ("int8" if given.model else "float16")
    name = f"search-{Path(given.model).name}" if given.model else "search"
    name += "" if given.rows == 1_000_000 else f"-{given.rows}"
    given.folder = given.folder or FOLDER / name
    if given.part:
        found = PARTS[given.part](given)
        found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        file = f"{given.part}{given.engine and f'-{given.engine}'}.json"
        write_file(given.folder / file, json.dumps(found).encode())
        return
    facts: dict[str, Any] = {
        "command": command(), "seed": given.seed,
        "rows": given.rows, "queries": given.queries, "vectors": f"directions of the model "
        f"{given.model} ({source(given).fingerprint}), in int8" if given.model else
        f"signatures of {given.traces} traces (as many dimensions)", "stored": given.stored,
        "judged": given.judged, "k": K,
    }  # fmt: skip
    given.folder.mkdir(parents=True, exist_ok=True)
    about, same = given.folder / "about.json", {k: v for k, v in facts.items() if k != "command"}
    if about.exists() and json.loads(about.read_text()) != same:
        sys.exit(f"{given.folder} holds parts of another run; remove it, or give another --folder")
    write_file(about, json.dumps(same).encode())
    made = run("embed", given)
    ours = run("build", given) | {"embed_s": made["embed_s"]}
    asked = run("query", given)
    facts |= {"machine": asked.pop("machine"), "peers": {}}
    ours |= asked | {"memory_mb": ours["memory_mb"], "query_memory_mb": asked["memory_mb"]}
    run("truth", given)
    judged = run("judge", given)
    ours |= {"ranks": judged["ranks"], "second": {"kernel_recall": judged["second"]}}
    facts["rhovec"] = ours
    for engine in given.peers:
        try:
            facts["machine"][ENGINES[engine]] = version(ENGINES[engine])
        except PackageNotFoundError:
            print(f"{engine}: not installed")
            continue
        facts["peers"][engine] = run("peer", given, engine)
    places, scores, values = (
        np.load(given.folder / f"{part}.npy") for part in ("truth-ids", "truth-scores", "judged")
    )
    for row in (ours, *facts["peers"].values()):
        ids = row["vectors"].pop("ids")
        row["vectors"]["recall"] = recalls(ids, places, scores)
        row["vectors"]["kernel_recall"] = recalls(ids, places, values)
    ours["reranked"]["kernel_recall"] = recalls(ours["reranked"].pop("ids"), places, values)
    save(name, facts, report(facts), given.output)
    print(f"what was kept: {given.folder}")


if __name__ == "__main__":
    main()
