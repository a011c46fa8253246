"""Search over a million formulae: time, memory, disk and recall, beside other libraries.

python benchmarks/search.py                          1,000,000 formulae, signatures of 1000 traces
python benchmarks/search.py --rows 100000            a tenth, where graphs are built in minutes, too
python benchmarks/search.py --model default --rows 200000   a shipped model's directions instead

Formulae are the training split of the corpus, queries its test split, so no query is in the library.
Each engine runs in a process of its own, for its peak memory; the others get the same vectors from a
file and hold their index in memory. All store 16-bit floats. Queries are asked one at a time. Answers
are compared with exact search over the vectors in full precision, and with the ranking of the exact
kernel; since many formulae mean the same, a hit counts if it is as good as the tenth best. Engines that
are not installed are left out: pip install faiss-cpu usearch.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from common import RESULTS, command, head, save
from rhovec import machine
from rhovec.corpus import Recipe, stream
from rhovec.formula import Formula, parse
from rhovec.kernel import StlKernel
from rhovec.models.model import Directions, load
from rhovec.search import Index, Signatures
from rhovec.search.rows import Rows
from rhovec.traces import BaseMeasure

K = 10
TIES = (1e-6, 1e-4)  # of inner products
JUDGE_TRACES, JUDGED = 10_000, 1000  # the exact kernel ranks this many, the nearest by vectors
BATCH, PART = 4096, 32_768  # formulae drawn, vectors multiplied at once
ENGINES = {"faiss-ivf": "faiss-cpu", "faiss-hnsw": "faiss-cpu", "usearch": "usearch"}  # packages


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


class Timed:
    """Measure the time that vectors take, and keep them for the other engines."""

    def __init__(self, maker: Directions | Signatures, kept: IO[bytes]):
        self.maker, self.kept = maker, kept
        self.embedding = self.keeping = 0.0  # seconds
        self.embed_plainly = maker.embed
        object.__setattr__(maker, "embed", self.embed)  # whatever asks the maker asks this

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        start = time.perf_counter()
        vectors = self.embed_plainly(formulae)
        done = time.perf_counter()
        self.kept.write(vectors.tobytes())
        self.embedding += done - start
        self.keeping += time.perf_counter() - done
        return vectors


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


def build(given: argparse.Namespace) -> dict[str, Any]:
    maker = source(given)
    Index.build(list(corpus(64, given.seed, "valid")), vectors=maker).close()  # compiles
    drawn = Drawn(corpus(given.rows, given.seed, "train"))
    start = time.perf_counter()
    path = given.folder / "library.rhovec"
    with (given.folder / "vectors").open("wb") as kept:
        watch = Timed(maker, kept)
        with Index.build(drawn, path, vectors=maker, stored="float16") as index:
            total = time.perf_counter() - start - drawn.seconds - watch.keeping
            assert len(index) == given.rows
    return {
        "build_s": total, "embed_s": watch.embedding, "draw_s": drawn.seconds,
        "disk_mb": sum(f.stat().st_size for f in given.folder.glob("library*")) / 1e6,
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
    found: dict[str, Any] = {"open_s": opening}
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


def stored(given: argparse.Namespace, start: int) -> np.ndarray:
    """Vectors of the library as they were made, (n, dimension) float32, from row `start` on.

    They are read, not mapped: pages of a mapped file would count as memory of the engine.
    """
    with (given.folder / "vectors").open("rb") as stream:
        width = np.load(given.folder / "queries.npy", mmap_mode="r").shape[1]
        stream.seek(4 * start * width)
        return np.fromfile(stream, np.float32, PART * width).reshape(-1, width)


def truth(given: argparse.Namespace) -> dict[str, Any]:
    """Find the nearest by exact search over the vectors in full precision."""
    queries = np.load(given.folder / "queries.npy")
    best = np.full((len(queries), JUDGED), -np.inf, np.float32)
    ids = np.zeros((len(queries), JUDGED), np.int64)
    for start in range(0, given.rows, PART):
        scores = queries @ stored(given, start).T
        numbers = np.broadcast_to(np.arange(1, scores.shape[1] + 1) + start, scores.shape)
        scores = np.concatenate([best, scores], axis=1)
        numbers = np.concatenate([ids, numbers], axis=1)
        chosen = np.argpartition(-scores, JUDGED, axis=1)[:, :JUDGED]
        best = np.take_along_axis(scores, chosen, 1)
        ids = np.take_along_axis(numbers, chosen, 1)
    order = np.argsort(-best, axis=1)
    np.save(given.folder / "truth-ids.npy", np.take_along_axis(ids, order, 1))
    np.save(given.folder / "truth-scores.npy", np.take_along_axis(best, order, 1))
    return {}


def judge(given: argparse.Namespace) -> dict[str, Any]:
    """Compute the exact kernel, with other traces, for the nearest by vectors."""
    queries = list(corpus(given.judged, given.seed, "test"))
    ids = np.load(given.folder / "truth-ids.npy")[: given.judged]
    rows = Rows.open(given.folder / "library.rhovec")
    kernel = StlKernel(BaseMeasure(), JUDGE_TRACES, seed=given.seed + 1)
    values = np.empty(ids.shape)
    for i, phi in enumerate(queries):
        values[i] = kernel.gram([phi], [entry.formula for entry in rows.entries(ids[i])])[0]
    np.save(given.folder / "judged.npy", values)
    best = np.argsort(-values, axis=1)[:, :K]
    return {"ranks": [int(r) for r in np.quantile(best.max(1), [0.5, 0.95, 1])]}


def peer(given: argparse.Namespace) -> dict[str, Any]:
    queries = np.load(given.folder / "queries.npy")
    size, dimension = given.rows, queries.shape[1]
    file = given.folder / "peer"
    start = time.perf_counter()
    if given.engine.startswith("faiss"):
        import faiss

        lists = int(size**0.5)
        name = f"IVF{lists},SQfp16" if given.engine == "faiss-ivf" else "HNSW32,SQfp16"
        index = faiss.index_factory(dimension, name, faiss.METRIC_INNER_PRODUCT)
        step = max(1, size // (64 * lists))  # formulae are in random order, family by family
        sample = [stored(given, i)[::step].copy() for i in range(0, size, PART)]
        index.train(np.concatenate(sample))
        for i in range(0, size, PART):
            index.add(stored(given, i))
        faiss.omp_set_num_threads(1)
        if given.engine == "faiss-ivf":
            index.nprobe = 32
        else:
            index.hnsw.efSearch = 64
        faiss.write_index(index, str(file))
        ask = lambda v: index.search(v[None], K)[1][0]  # noqa: E731
    else:
        from usearch.index import Index as Usearch

        index = Usearch(ndim=dimension, metric="ip", dtype="f16")
        for i in range(0, size, PART):
            part = stored(given, i)
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


PARTS = {"build": build, "query": query, "truth": truth, "judge": judge, "peer": peer}


# -- all of it -------------------------------------------------------------------------------------


def recall(ids: list[list[int]], places: np.ndarray, values: np.ndarray, tie: float) -> float:
    """Share of hits that are as good as the tenth best, to `tie`; (Q, n) ids and their values."""
    shares = []
    for found, place, value in zip(ids, places, values, strict=False):
        good = set(place[value >= np.sort(value)[-K] - tie].tolist())
        shares.append(len(good.intersection(found)) / K)
    return float(np.mean(shares))


def run(part: str, given: argparse.Namespace, folder: str, engine: str = "") -> dict[str, Any]:
    """One part in a process of its own, with its peak memory."""
    options = ["rows", "traces", "queries", "judged", "seed"]
    command = [sys.executable, __file__, "--part", part, "--folder", folder, "--engine", engine]
    command += [str(x) for name in options for x in (f"--{name}", getattr(given, name))]
    command += ["--model", given.model] if given.model else []
    print(f"{part} {engine}", flush=True)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shown = {k: v for k, v in found.items() if not isinstance(v, dict)}
    print(f"  {shown}", flush=True)
    return found


def report(facts: dict[str, Any]) -> str:
    ours, judged = facts["rhovec"], facts["judged"]
    lines = [
        f"# Search over {facts['rows']:,} formulae", "",
        head(facts), "",
        f"Formulae of the corpus' training split, {facts['queries']} queries of its test split, one "
        f"at a time; {facts['vectors']}. Recall@{K} "
        "against exact search over the vectors in 32-bit floats, while all engines store 16 bits; many "
        f"formulae mean the same, so a hit counts if it is as good as the tenth best to {TIES[0]:g} "
        f"(last column: {TIES[1]:g}). Build is from vectors to the finished index on "
        "disk; for rhovec it includes the durable rows with their texts. Making the vectors "
        f"({ours['embed_s']:.0f} s) comes on top, for all. Memory is the peak of a process; the "
        "others build and answer in one. A hit of rhovec is a parsed formula with its tags, of the "
        "others a number. faiss-ivf: IVF with as many lists, 16-bit floats, 32 lists probed; "
        "faiss-hnsw: HNSW32, 16-bit floats, efSearch 64; usearch: its defaults in 16-bit floats; one "
        "thread for a query.", "",
        f"| | build s | memory MB, build | memory MB, query | disk MB | p50 ms | p95 ms | recall@{K} | "
        f"to {TIES[1]:g} |", "|---" * 9 + "|",
    ]  # fmt: skip
    rows = [("rhovec", ours, ours["build_s"] - ours["embed_s"], ours["query_memory_mb"])]
    rows += [(name, peer, peer["build_s"], None) for name, peer in facts["peers"].items()]
    for name, row, seconds, memory in rows:
        v = row["vectors"]
        lines.append(
            f"| {name} | {seconds:.0f} | {row['memory_mb']:.0f} | {memory or row['memory_mb']:.0f} | "
            f"{row['disk_mb']:.0f} | {v['p50_ms']:.1f} | {v['p95_ms']:.1f} | {v['recall'][0]:.3f} | "
            f"{v['recall'][1]:.3f} |"
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
        f"{ours['ranks'][2]} at most): recall@{K} {ours['vectors']['kernel_recall']:.3f} by vectors, "
        f"{ours['reranked']['kernel_recall']:.3f} re-ranked.", "",
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
    parser.add_argument("--part", choices=tuple(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        found = PARTS[given.part](given)
        found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(found))
        return
    facts: dict[str, Any] = {
        "command": command(), "seed": given.seed,
        "rows": given.rows, "queries": given.queries, "vectors": f"directions of the model "
        f"{given.model} ({source(given).fingerprint}), in int8" if given.model else
        f"signatures of {given.traces} traces (as many dimensions)",
        "judged": given.judged, "k": K, "machine": machine.facts(), "peers": {},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = run("build", given, name)
        asked = run("query", given, name)
        ours |= asked | {"memory_mb": ours["memory_mb"], "query_memory_mb": asked["memory_mb"]}
        run("truth", given, name)
        ours["ranks"] = run("judge", given, name)["ranks"]
        facts["rhovec"] = ours
        for engine in given.peers:
            try:
                facts["machine"][ENGINES[engine]] = version(ENGINES[engine])
            except PackageNotFoundError:
                print(f"{engine}: not installed")
                continue
            facts["peers"][engine] = run("peer", given, name, engine)
        places, scores, values = (
            np.load(folder / f"{part}.npy") for part in ("truth-ids", "truth-scores", "judged")
        )
        for row in (ours, *facts["peers"].values()):
            ids = row["vectors"].pop("ids")
            row["vectors"]["recall"] = [recall(ids, places, scores, tie) for tie in TIES]
            row["vectors"]["kernel_recall"] = recall(ids, places, values, TIES[0])
        ours["reranked"]["kernel_recall"] = recall(
            ours["reranked"].pop("ids"), places, values, TIES[0]
        )
    name = f"search-{Path(given.model).name}" if given.model else "search"
    name += "" if given.rows == 1_000_000 else f"-{given.rows}"
    save(name, facts, report(facts), given.output)


if __name__ == "__main__":
    main()
