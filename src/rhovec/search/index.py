"""A library of formulae that is searched by meaning: `Index`.

    index = Index.build(formulae, "library.rhovec")
    for hit in index.search("always (x_0 > 1)", k=10, rerank=True): ...

The truth are the rows (rows.py). Up to 25 million numbers (25,000 vectors of 1000) all vectors are
held, and every one is compared. A larger library finds candidates with an approximate index first
(coarse.py), whose file beside the library is a cache: made when it is missing, damaged or too old,
and completed by an exact scan of the rows that came after it. Similarities are those of the stored
vectors in either case. An Index is for one thread; open another one for another thread or process.
"""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import RhovecError
from ..formula import Formula, Schema
from ..formula.reader import FormulaLike, as_formulae
from ..kernel import Progress
from ..signals import BaseMeasure
from .rows import Chunk, Part, Rows, appearing, unit_rows
from .vectors import Kernel, Signatures, Vectors, as_vectors, shipped_model, usual_kernel

if TYPE_CHECKING:
    from .coarse import Coarse

CHUNK = 4096  # formulae embedded at once
EXACT = 25_000_000  # numbers that are scanned exactly
JUDGE_SIGNALS, JUDGE_SEED = 10_000, 1  # of the kernel that re-ranks and confirms
RERANKED = 50  # hits that the kernel looks at, at least
JUDGED = 128  # possible groups that the kernel looks at in one call
MARGIN = 0.02  # below the threshold, where vectors may be wrong about a duplicate
ROUNDING = 3e-4  # of inner products of coarse vectors
TINY = 1e-9  # of the kernel: equivalent formulae may lack as much
UNIT = 0.01  # by how much the norm of a vector may differ from 1
MAX_SIGNALS = 500 << 20  # bytes of trajectories kept in a library

Names = str | Iterable[str]
Tags = Names | Sequence[Iterable[str]]
_Suspects = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, ids, vectors of possible duplicates
Filter = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of depths and labels (n,): which rows


@dataclass(frozen=True)
class Hit:
    """An entry of a library, and how alike it is to what was asked for."""

    id: int
    formula: Formula
    tags: tuple[str, ...]
    similarity: float  # by the vectors
    kernel: float | None = None  # exact similarity on the kernel's signals, where it was asked for
    standard_error: float | None = None  # of `kernel`


class Index:
    """Open a library with `Index.open`, make one with `Index.build`."""

    def __init__(self, rows: Rows, vectors: Vectors | None):
        self._rows = rows
        self._closing = weakref.finalize(self, rows.database.close)
        facts = rows.facts
        recipe = json.loads(facts["recipe"])  # of signatures; null for a model
        known = str(facts["fingerprint"])
        if vectors is None:
            signals = facts["signals"]
            vectors = Signatures.from_recipe(recipe, signals) if recipe else shipped_model(known)
        if vectors and vectors.fingerprint != known:
            raise RhovecError(
                f"{rows.name} holds vectors of {'signatures' if recipe else 'a model'} {known}, not of "
                f"{vectors.fingerprint}; open it with those, or build another one"
            )
        self.schema = Schema.from_json(facts["schema"]) if facts["schema"] else None
        self._vectors = vectors
        self._sigma2 = float(recipe["sigma2"]) if recipe and recipe["exponentiated"] else None
        self._kernel: Kernel | None = None
        self._forget()

    def _forget(self) -> None:
        self._coarse: Coarse | None = None
        self._coarse_last = 0  # the last id that it holds
        self._tail = _Held(self._rows.dimension)  # the rows after that one

    # -- making and opening ----------------------------------------------------------------

    @classmethod
    def build(
        cls,
        formulae: Iterable[FormulaLike],
        path: str | Path | None = None,
        *,
        vectors: Vectors | Kernel | None = None,
        schema: Schema | None = None,
        tags: Tags = (),
        progress: Progress | None = None,
    ) -> Index:
        """A new library, in memory or in a file, which appears once it is complete.

        vectors: a model, or a kernel whose signatures are taken; by default those of an StlKernel
            with 1000 signals of mu0, in as many variables as the formulae have.
        schema: lowers formulae in names and units to channels, for vectors made on mu0.
        tags: for all formulae; or, in a list, a list for each.
        progress: called with the share that is done, if the number of formulae is known.
        """
        if isinstance(formulae, Formula | str):
            formulae = [formulae]
        if vectors is None:
            formulae = _parsed(formulae, schema)
            vectors = usual_kernel(_lowered(formulae, schema))
        chosen = as_vectors(vectors)
        chunks = _embedded(formulae, tags, chosen, schema, progress)
        if path is None:
            return cls._filled(":memory:", None, chosen, schema, chunks)
        with appearing(Path(path)) as temporary:
            cls._filled(temporary, Path(path), chosen, schema, chunks).close()
        index = cls.open(path, vectors=chosen)
        index.flush()
        return index

    @classmethod
    def _filled(
        cls,
        file: Path | str,
        path: Path | None,
        vectors: Vectors,
        schema: Schema | None,
        chunks: Iterator[Chunk],
    ) -> Index:
        first = next(chunks)
        recipe, signals = vectors.recipe() if isinstance(vectors, Signatures) else (None, None)
        if signals and len(signals) > MAX_SIGNALS:
            raise RhovecError(
                f"a library keeps its signals, and these have {len(signals) >> 20} MB; take fewer "
                "of them (n_signals)"
            )
        facts = {
            "fingerprint": vectors.fingerprint, "recipe": json.dumps(recipe), "signals": signals,
            "dimension": first[2].shape[1], "schema": schema.to_json() if schema else None,
        }  # fmt: skip
        index = cls(Rows.create(file, path, facts), vectors)
        try:
            index._rows.insert(chain([first], chunks))
        except BaseException:
            index.close()
            raise
        return index

    @classmethod
    def open(cls, path: str | Path, *, vectors: Vectors | Kernel | None = None) -> Index:
        """A library that was built before.

        vectors: what it was built with; signatures and the shipped model need not be given. Without
            its model, a library answers vectors only.
        """
        try:
            rows = Rows.open(Path(path))
            try:
                return cls(rows, None if vectors is None else as_vectors(vectors))
            except BaseException:
                rows.database.close()
                raise
        except RhovecError:
            raise
        except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
                ValueError):  # fmt: skip
            raise RhovecError(f"{path}: damaged: its facts make no sense") from None

    def save(self, path: str | Path) -> None:
        """Copy the library, as it is now, to a new file."""
        self._rows.copy(Path(path))

    def close(self) -> None:
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Index({self._rows.name}: {len(self)} formulae)"

    # -- changing --------------------------------------------------------------------------

    def add(
        self,
        formulae: FormulaLike | Iterable[FormulaLike],
        *,
        tags: Tags = (),
        progress: Progress | None = None,
    ) -> Any:
        """Add all of the formulae, or none if one is refused: their ids, of a single one its id.

        Once this has returned, the entries are on disk. tags and progress are as in `build`.
        """
        single = isinstance(formulae, Formula | str)
        items: Any = [formulae] if single else formulae
        vectors = self._require_vectors()
        ids = self._rows.insert(_embedded(items, tags, vectors, self.schema, progress))
        return ids[0] if single else list(ids)

    def delete(self, ids: int | Iterable[int]) -> None:
        """Remove entries: all of these, or none if one is not there."""
        self._rows.delete([ids] if isinstance(ids, int) else map(int, ids))

    def flush(self) -> None:
        """Complete the approximate index now and write it, instead of at some later search.

        Entries themselves are on disk as soon as `add` returns.
        """
        with self._rows.reading():
            self._refresh()
            if self._coarse is not None and len(self._tail):
                self._merge()

    # -- asking ----------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._rows.reading():
            return len(self._rows)

    def search(
        self,
        query: FormulaLike | Iterable[FormulaLike] | np.ndarray,
        k: int = 10,
        *,
        variables: Names = (),
        max_depth: int | None = None,
        tags: Names = (),
        rerank: bool | Kernel = False,
    ) -> Any:
        """The k entries most alike: a list of hits, best first; for several queries a list of lists.

        query: a formula, a vector (D,), a list of formulae, or vectors (Q, D).
        variables, tags: only entries that have all of these.
        max_depth: only entries that are nested no deeper.
        rerank: order the best candidates (five for each asked for, at least 50) by an exact kernel:
            one of your own; or with True the one that the vectors stand for, with 10,000 other
            signals of mu0 (or your trajectories).
        """
        if k < 1:
            raise RhovecError(f"k must be 1 or more, not {k}")
        points, formulae, single = self._query(query)
        if rerank and not formulae:
            raise RhovecError("re-ranking needs a formula to compare with, not a vector")
        wanted = max(RERANKED, 5 * k) if rerank else k
        with self._rows.reading():
            self._refresh()
            chosen = self._filter(_names(variables), max_depth, _names(tags))
            found = [self._nearest(point, wanted, chosen) for point in points]
        if rerank:
            kernel = None if rerank is True else rerank
            pairs = zip(formulae, found, strict=True)
            found = [self._reranked(phi, hits, k, kernel) for phi, hits in pairs]
        return found[0] if single else found

    def duplicates(
        self,
        threshold: float = 0.99,
        *,
        kernel: Kernel | None = None,
        progress: Progress | None = None,
    ) -> list[list[Hit]]:
        """Groups of entries that mean nearly the same: each one but the first of its group has an
        exact similarity of at least `threshold` to that first one.

        Candidates come from the vectors, and the kernel (by default that of `search`) decides.
        """
        if not 0 < threshold <= 1:
            raise RhovecError(f"threshold must be above 0 and at most 1, not {threshold}")
        with self._rows.reading():
            self.flush()
            groups = list(self._groups(threshold, kernel, progress))
        return sorted(groups, key=lambda group: group[0].id)

    # -- a query ---------------------------------------------------------------------------

    def _query(self, query: Any) -> tuple[np.ndarray, list[Formula], bool]:
        """(unit vectors (Q, D) float32 as rows would come back, formulae if given, single)."""
        if isinstance(query, np.ndarray):
            points = np.atleast_2d(query).astype(np.float32)
            if points.ndim != 2 or points.shape[1] != self._rows.dimension:
                raise RhovecError(
                    f"the vectors of {self._rows.name} have {self._rows.dimension} numbers; the "
                    f"query has shape {query.shape}"
                )
            if not np.isfinite(unit_rows(points)).all():
                raise RhovecError("a query vector must be finite and not zero")
            return _as_stored(points), [], query.ndim == 1
        single = isinstance(query, Formula | str)
        formulae = _parsed([query] if single else query, self.schema)
        points = _vectors_of(formulae, self._require_vectors(), self.schema)
        return _as_stored(points), formulae, single

    def _require_vectors(self) -> Vectors:
        if self._vectors is None:
            raise RhovecError(
                f"{self._rows.name} has vectors of the model {self._rows.facts['fingerprint']}: open "
                "it with vectors=, that model, to give formulae"
            )
        return self._vectors

    def _filter(self, variables: set[str], max_depth: int | None, tags: set[str]) -> Filter | None:
        if not variables and not tags and max_depth is None:
            return None
        fitting = [
            label
            for label, has, tagged in self._rows.labels()
            if variables <= has and tags <= tagged
        ]
        deepest = np.iinfo(np.int32).max if max_depth is None else max_depth
        return lambda depths, labels: np.isin(labels, fitting) & (depths <= deepest)

    def _nearest(self, point: np.ndarray, k: int, chosen: Filter | None) -> list[Hit]:
        """The k nearest rows, or all if there are fewer.

        Rows that were deleted since they were read fall out at the end; then more are asked for.
        """
        coarse, allowed = self._coarse, None
        tail_ids, depths, labels, vectors = self._tail.part()
        scores = vectors @ point
        if chosen:
            fitting = chosen(depths, labels)
            tail_ids, scores = tail_ids[fitting], scores[fitting]
            allowed = chosen(coarse.depths, coarse.labels) if coarse else None
        wanted = k
        while True:
            best = _largest(scores, wanted)
            ids, cosines, complete = tail_ids[best], scores[best], wanted >= len(scores)
            if coarse:
                found = coarse.candidates(point, 4 * wanted, allowed)
                complete &= len(found) < 4 * wanted
                found, vectors = self._rows.vectors(found)
                ids = np.concatenate([ids, found])
                cosines = np.concatenate([cosines, vectors @ point])
            order = np.lexsort((ids, -cosines))[:wanted]
            hits = self._hits(ids[order], cosines[order])
            if len(hits) >= k or complete:
                return hits[:k]
            wanted *= 4

    def _hits(self, ids: np.ndarray, cosines: np.ndarray) -> list[Hit]:
        found = self._rows.entries(ids)
        pairs = zip(ids.tolist(), self._similarities(cosines).tolist(), strict=True)
        return [Hit(i, *found[i], similarity) for i, similarity in pairs if i in found]

    def _similarities(self, cosines: np.ndarray) -> np.ndarray:
        """What inner products mean: k for signatures; a model's are similarities already."""
        cosines = np.minimum(cosines, 1)
        return cosines if self._sigma2 is None else np.exp((cosines - 1) / self._sigma2)

    def _cosine(self, similarity: float) -> float:
        return similarity if self._sigma2 is None else 1 + self._sigma2 * math.log(similarity)

    # -- the exact kernel ------------------------------------------------------------------

    def _reranked(self, phi: Formula, hits: list[Hit], k: int, kernel: Kernel | None) -> list[Hit]:
        if not hits:
            return hits
        judge, one, many = self._judge(kernel, [phi], [hit.formula for hit in hits])
        exact = judge.gram(one, many)[0]
        best = np.argsort(-exact, kind="stable")[:k]
        errors = judge.gram_errors(one, [many[i] for i in best])[0]
        return [
            replace(hits[i], kernel=float(exact[i]), standard_error=float(error))
            for i, error in zip(best, errors, strict=True)
        ]

    def _judge(
        self, kernel: Kernel | None, first: list[Formula], second: list[Formula]
    ) -> tuple[Kernel, list[Formula], list[Formula]]:
        """The exact kernel, and the formulae as it reads them: on mu0 they are lowered."""
        if kernel is None and self._vectors:
            kernel = self._kernel = self._kernel or self._vectors.kernel(JUDGE_SIGNALS, JUDGE_SEED)
        if kernel is None or isinstance(kernel.measure, BaseMeasure):
            first, second = _lowered(first, self.schema), _lowered(second, self.schema)
        return kernel or usual_kernel([*first, *second], JUDGE_SIGNALS), first, second

    def _groups(
        self, threshold: float, kernel: Kernel | None, progress: Progress | None
    ) -> Iterator[list[Hit]]:
        """One row after the other takes those around it that are alike and not taken yet.

        Rows whose surroundings have nothing in common are judged together, in one call.
        """
        from .coarse import Coarse

        held = self._tail.part()
        if self._coarse is None and not len(self._tail):
            return
        coarse = self._coarse or Coarse.learn(held[3], len(self._tail)).extended([held])
        lowest = self._cosine(threshold - min(MARGIN, threshold / 2))
        done = np.zeros(len(coarse), bool)  # in a group, or found to be in none
        doubtful = np.zeros(len(coarse), bool)  # waiting to be judged
        waiting: list[_Suspects] = []
        for rows, around, products in coarse.neighbourhoods():
            near = products >= lowest - ROUNDING
            several = near.sum(1) > 1
            for row, close in zip(rows[several], near[several], strict=True):
                others = around[close]
                if doubtful[others].any() or len(waiting) >= JUDGED:
                    yield from self._judged(waiting, threshold, kernel, done)
                    doubtful[:], waiting = False, []
                if done[row]:
                    continue
                done[row] = True
                places = np.concatenate([[row], others[~done[others]]])
                ids, vectors = self._rows.vectors(coarse.ids[places])
                places = places[np.isin(coarse.ids[places], ids)]  # the others were deleted
                if len(places) and places[0] == row:
                    alike = vectors @ vectors[0] >= lowest
                    alike[0] = True
                    if alike.sum() > 1:
                        doubtful[places[alike]] = True
                        waiting.append((places[alike], ids[alike], vectors[alike]))
            if progress:
                progress((rows[-1] + 1) / len(coarse))
        yield from self._judged(waiting, threshold, kernel, done)

    def _judged(
        self, waiting: list[_Suspects], threshold: float, kernel: Kernel | None, done: np.ndarray
    ) -> Iterator[list[Hit]]:
        """The groups that the exact kernel leaves of each: the first, and who is alike to it."""
        if not waiting:
            return
        found = [
            self._hits(ids, vectors.astype(np.float64) @ vectors[0]) for _, ids, vectors in waiting
        ]
        for hits, (_, ids, _) in zip(found, waiting, strict=True):
            if len(hits) < len(ids):
                raise self._rows.damaged(ids.tolist())
        judge, firsts, others = self._judge(
            kernel,
            [hits[0].formula for hits in found],
            [hit.formula for hits in found for hit in hits[1:]],
        )
        begin = 0
        for row, hits, (places, _, _) in zip(
            judge.gram(firsts, others), found, waiting, strict=True
        ):
            exact = row[begin : begin + len(hits) - 1]
            begin += len(exact)
            alike = np.flatnonzero(exact >= threshold - TINY)
            done[places[1 + alike]] = True
            if len(alike):
                first = replace(hits[0], kernel=1.0)
                yield [first, *(replace(hits[1 + i], kernel=float(exact[i])) for i in alike)]

    # -- what is held of the rows ----------------------------------------------------------

    def _refresh(self) -> None:
        """Take in what was added since, here or by others."""
        rows, last, size = self._rows, self._rows.last(), len(self._rows)
        if len(self._tail) + (len(self._coarse) if self._coarse else 0) > 2 * size:
            self._forget()  # most were deleted
        if self._coarse is None and rows.path and size * rows.dimension > EXACT:
            from .coarse import Coarse

            loaded = Coarse.load(_cache(rows.path), rows.identity, rows.dimension)
            if loaded and loaded[1] <= last and len(loaded[0]) <= 2 * size:
                self._forget()
                self._coarse, self._coarse_last = loaded
        if min(last - self._coarse_last, size) * rows.dimension > EXACT:
            self._merge()
            return
        for part in rows.parts(max(self._coarse_last, self._tail.last), last):
            self._tail.append(part)
        self._tail.last = last

    def _merge(self) -> None:
        """All rows into the approximate index, and that into its file."""
        from .coarse import Coarse, n_sampled

        rows, last, size = self._rows, self._rows.last(), len(self._rows)
        coarse, begin = self._coarse, self._coarse_last
        if coarse is None or size > 2 * coarse.learned:
            sampled = min(n_sampled(size), size)
            ids = np.random.default_rng(0).choice(rows.ids(), sampled, replace=False)
            coarse, begin = Coarse.learn(rows.vectors(ids)[1], size), 0
        self._forget()
        self._coarse, self._coarse_last = coarse.extended(rows.parts(begin, last)), last
        if rows.path:
            with suppress(OSError):  # a cache: where it cannot be written, it is held
                self._coarse.save(_cache(rows.path), rows.identity, last)


class _Held:
    """Rows that are held whole, in arrays that grow."""

    def __init__(self, dimension: int):
        self.last = 0  # the last id that was looked at
        self._size = 0
        self._columns: Part = (
            np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32),
            np.empty((0, dimension), np.float32),
        )  # fmt: skip

    def __len__(self) -> int:
        return self._size

    def append(self, part: Part) -> None:
        size = self._size + len(part[0])
        if size > len(self._columns[0]):
            room = max(size, 2 * self._size)
            a, b, c, d = (np.resize(column, (room, *column.shape[1:])) for column in self.part())
            self._columns = a, b, c, d
        for column, new in zip(self._columns, part, strict=True):
            column[self._size : size] = new
        self._size = size

    def part(self) -> Part:
        ids, depths, labels, vectors = (column[: self._size] for column in self._columns)
        return ids, depths, labels, vectors


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` largest are, in no order."""
    if count >= len(scores):
        return np.arange(len(scores))
    return np.argpartition(-scores, count)[:count]


def _cache(path: Path) -> Path:
    return path.with_name(f"{path.name}.coarse")


# -- formulae to vectors ---------------------------------------------------------------------------


def _embedded(
    formulae: Iterable[FormulaLike],
    tags: Tags,
    vectors: Vectors,
    schema: Schema | None,
    progress: Progress | None,
) -> Iterator[Chunk]:
    """(formulae, tags of each, unit vectors (n, D)), some at a time."""
    total = len(formulae) if isinstance(formulae, Sequence) else None
    items, labels, done = iter(formulae), _tags_of_each(tags), 0
    while chunk := list(islice(items, CHUNK)):
        parsed = _parsed(chunk, schema)
        named = list(islice(labels, len(parsed)))
        if len(named) < len(parsed):
            raise RhovecError(
                f"there are more formulae than tags, which end at {done + len(named)}"
            )
        yield parsed, named, _vectors_of(parsed, vectors, schema)
        done += len(parsed)
        if progress and total:
            progress(done / total)
    if not done:
        raise RhovecError("no formula given: the list is empty")


def _parsed(formulae: Iterable[FormulaLike], schema: Schema | None) -> list[Formula]:
    """Text is read as the schema says: in its units and seconds."""
    if schema is not None:
        formulae = [schema.parse(f) if isinstance(f, str) else f for f in formulae]
    return as_formulae(formulae)[0]


def _lowered(formulae: list[Formula], schema: Schema | None) -> list[Formula]:
    return formulae if schema is None else [schema.lower(phi) for phi in formulae]


def _vectors_of(formulae: list[Formula], maker: Vectors, schema: Schema | None) -> np.ndarray:
    vectors = np.asarray(maker.embed(_lowered(formulae, schema)))
    if vectors.ndim != 2 or len(vectors) != len(formulae):
        raise RhovecError(
            f"the model gave an array {vectors.shape} for {len(formulae)} formulae; it must give a "
            "row for each"
        )
    norms = np.linalg.norm(vectors, axis=1)
    if not (abs(norms - 1) <= UNIT).all():
        raise RhovecError(f"the model gave vectors of norms {norms.min()} to {norms.max()}, not 1")
    return vectors


def _as_stored(vectors: np.ndarray) -> np.ndarray:
    """As they would come back from a library, so that a formula is found with similarity 1."""
    return unit_rows(vectors.astype("<f2").astype(np.float32))


def _names(names: Names) -> set[str]:
    return {names} if isinstance(names, str) else set(names)


def _tags_of_each(tags: Tags) -> Iterator[list[str]]:
    listed: list[Any] = [tags] if isinstance(tags, str) else list(tags)
    if all(isinstance(tag, str) for tag in listed):
        return repeat(listed)
    return (sorted(_names(each)) for each in listed)
