"""A corpus on disk: parquet shards that depend only on the parameters.

Shard k holds families k * shard ... of the recipe's sequence: any number of workers and of
interruptions gives the same bytes. Shards are written atomically; `_manifest.json` holds the
parameters, and a folder with other parameters is refused.

Columns: family, kind, split, depth, nodes, tokens, horizon, formula, and changes (how often each
rewrite was applied).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RhovecError, needed
from ..files import filling, write_file
from .families import CHANGES, KINDS, SPLITS, Recipe, draw_families
from .text import texts

MANIFEST = "_manifest.json"  # readers of a folder of parquet files skip names with _
GENERATION = 1  # raised when a recipe starts to mean other formulae
SHARD = 4096  # families
MAX_SHARDS = 100_000  # so that their names are in order


def build(
    folder: str | Path,
    recipe: Recipe | None = None,
    *,
    families: int,
    workers: int = 1,
    shard: int = SHARD,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write the first `families` families of a recipe into a folder; the shards' paths, in order.

    Existing shards are kept, so an interrupted build continues. `progress` is called with the number
    of shards done and their total.
    """
    recipe = Recipe() if recipe is None else recipe
    if families < 1 or shard < 1 or workers < 1:
        raise RhovecError("families, shard and workers must be 1 or more")
    if families > MAX_SHARDS * shard:
        raise RhovecError(f"families must be at most {MAX_SHARDS * shard:,}, not {families:,}")
    import_parquet()
    folder = Path(folder)
    parameters = {**dataclasses.asdict(recipe), "families": families, "shard": shard}
    parameters["shares"] = list(recipe.shares)  # as JSON gives them back
    _claim(folder, {"generation": GENERATION, **parameters})
    starts = range(0, families, shard)
    paths = [folder / f"shard-{k:05d}.parquet" for k in range(len(starts))]

    def work(k: int) -> None:
        numbers = np.arange(starts[k], min(starts[k] + shard, families))
        if not paths[k].exists():
            with filling(paths[k]) as temporary:
                _write_shard(str(temporary), recipe, numbers)

    with ThreadPoolExecutor(workers) as pool:
        tasks = [pool.submit(work, k) for k in range(len(starts))]
        try:
            for done, task in enumerate(as_completed(tasks), 1):
                task.result()
                if progress is not None:
                    progress(done, len(tasks))
        except BaseException:  # Ctrl-C, too: finish what runs, start no more
            pool.shutdown(cancel_futures=True)
            raise
    return paths


def read_manifest(folder: str | Path) -> dict[str, Any]:
    path = Path(folder) / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise RhovecError(f"{folder} holds no corpus: {MANIFEST} is missing") from None
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RhovecError(f"{path} is not JSON: {error}") from None
    if not isinstance(manifest, dict):
        raise RhovecError(f"{path} holds no parameters of a corpus")
    return manifest


def import_parquet() -> Any:
    return needed("pyarrow.parquet", "a corpus on disk", "data")


def _claim(folder: Path, parameters: dict[str, Any]) -> None:
    """Claim an empty folder for this corpus, or check that it already belongs to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(p.suffix != ".tmp" for p in folder.iterdir())
    except OSError as error:
        raise RhovecError(f"cannot use {folder} as a folder: {error.strerror}") from None
    if not occupied:
        write_file(folder / MANIFEST, (json.dumps(parameters, indent=2) + "\n").encode())
        return
    if not (folder / MANIFEST).exists():
        raise RhovecError(f"{folder} is not empty and holds no corpus; choose another folder")
    there = read_manifest(folder)
    for name, value in parameters.items():
        if there.get(name) != value:
            raise RhovecError(
                f"{folder} holds a corpus with {name} {there.get(name)}, not {value}; "
                "choose another folder, or the same parameters to complete it"
            )


def _write_shard(target: str, recipe: Recipe, numbers: np.ndarray) -> None:
    parquet = import_parquet()
    import pyarrow as pa

    batch = draw_families(recipe, numbers)
    data, ends = texts(batch.programs)
    formula = pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(data))

    def named(indices: np.ndarray, names: tuple[str, ...]) -> Any:
        return pa.DictionaryArray.from_arrays(indices, pa.array(names))

    columns = {
        "family": batch.family,
        "kind": named(batch.kind, KINDS),
        "split": named(batch.split, SPLITS),
        "depth": batch.depth,
        "nodes": np.diff(batch.programs.offsets).astype(np.int16),
        "tokens": batch.tokens,
        "horizon": batch.programs.horizons().astype(np.int32),
        "formula": formula,
        "changes": pa.StructArray.from_arrays(
            [pa.array(batch.changes[:, i]) for i in range(len(CHANGES))], names=list(CHANGES)
        ),
    }
    parquet.write_table(
        pa.table(columns), target, compression="zstd", use_dictionary=["kind", "split"]
    )
