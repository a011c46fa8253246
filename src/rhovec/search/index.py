"""A library of formulae that is searched by meaning: `Index`.

    index = Index.build(formulae, "library.rhovec")
    for hit in index.search("always (x_0 > 1)", k=10, rerank=True): ...

An index turns formulae into vectors (vectors.py), has them stored and compared by a backend (file.py,
server.py), and judges the nearest with the exact kernel. An Index is for one thread; open another one
for another thread or process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import RhovecError, whole
from ..formula import Formula, Schema
from ..formula.reader import FormulaLike, is_single
from ..formula.requirements import Requirement
from ..kernel import Progress, SampledKernel, cosine_of_kernel, kernel_of_cosine
from ..spaces.vectors import Kernel, Vectors, as_vectors, kind_of
from ..traces import BaseMeasure
from . import version1
from .arguments import (
    file_path,
    names_of,
)
from .backend import Backend, Batch, Facts, Filter, Found, is_url
from .entries import (
    Names,
    Requirements,
    Tags,
    batches_of,
    lowered,
    plain_options,
    read_all,
    reader_of,
    schema_of,
    unit_vectors,
)
from .file import FileBackend
from .numbers import Numbers, Stored, unit_rows
from .rows import REPAIR
from .vectors import describe, usual_kernel, vectors_of

JUDGE_TRACES, JUDGE_SEED = 10_000, 1  # of the kernel that re-ranks and confirms
MIN_RERANKED = 200  # hits that the kernel looks at, at least
MAX_JUDGED = 128  # possible groups that the kernel looks at in one call
MARGIN = 0.02  # below the threshold, where vectors may be wrong about a duplicate
TINY = 1e-9  # equivalent formulae may lack as much of kernel value 1


@dataclass(frozen=True)
class Hit:
    """An entry of a library, and how similar it is to the query."""

    id: int
    formula: Formula
    tags: tuple[str, ...]
    similarity: float  # by the vectors
    kernel: float | None = None  # exact similarity on the kernel's traces, if it was asked for
    standard_error: float | None = None  # of `kernel`
    requirement: str | None = None  # its identifier, e.g. "REQ-12"
    title: str = ""
    source: str = ""  # where it was written, e.g. "requirements.stl:3"


class Index:
    """A library of formulae. `Index.build` makes one, `Index.open` opens one.

    backend: where entries live; `Index(backend, vectors)` is for backends other than a file.
    vectors: what made the vectors of the library; by default found from its facts.
    """

    def __init__(self, backend: Backend, vectors: Vectors | Kernel | None = None):
        self._backend = backend
        self._closing = weakref.finalize(self, backend.close)
        facts = backend.facts
        made = vectors_of(facts) if vectors is None else as_vectors(vectors, facts.kind)
        if made and made.fingerprint != facts.fingerprint:
            recipe = facts.recipe or {}
            what = "space" if "space" in recipe else "signatures" if recipe else "model"
            remedy = "leave out vectors=, since the library holds its own" if recipe else (
                "open it with vectors=, that model"
            )  # fmt: skip
            raise RhovecError(
                f"{backend.name} holds vectors of the {what} {facts.fingerprint}, not of "
                f"{made.fingerprint}; {remedy}, or build another library"
            )
        if made and kind_of(made) != facts.kind:
            raise RhovecError(
                f'{backend.name} holds vectors of kind "{facts.kind}", not "{kind_of(made)}"; open it '
                "with those, or build another library"
            )
        self.lowering = Schema.from_json(facts.schema) if facts.schema else None  # before embedding
        self.schema = self.lowering or schema_of(made)  # how texts are read
        self.reading = facts.reading or {}  # or, without a schema, with these options of `parse`
        try:
            self._read = reader_of(self.schema, self.reading)
        except RhovecError:
            raise RhovecError(f"{backend.name}: its description is damaged; {REPAIR}") from None
        self.vectors = made  # None: unknown here, so that only vectors can be asked for
        self._kernel: Kernel | None = None

    # -- making and opening ----------------------------------------------------------------

    @classmethod
    def build(
        cls,
        formulae: Iterable[FormulaLike],
        path: str | Path | None = None,
        *,
        library: str | None = None,
        vectors: Vectors | Kernel | None = None,
        schema: Schema | None = None,
        reading: Mapping[str, Any] | None = None,
        requirements: Requirements = None,
        tags: Tags = (),
        stored: Stored = "float32",
        progress: Progress | None = None,
    ) -> Index:
        """Make a new library in memory, in a file or on a server. It appears once it is complete.

        path: of the file; or the URL of a PostgreSQL database, postgresql://user@host/database.
        library: its name on a server.
        vectors: a space, such as a model, or a kernel whose signatures are taken; by default those of
            an StlKernel with 1000 traces of mu0, in as many variables as the formulae have.
        schema: lowers formulae in names and units to channels, for vectors made on mu0.
        reading: options of `rv.parse` for texts, such as {"dt": 0.1}, now and whenever formulae are
            added or searched for; a schema or a space has its own.
        requirements: an identifier for each formula, such as "REQ-12", or None for each without one;
            those that `read_requirements` read have their own.
        tags: for all formulae; or, in a list, a list for each.
        stored: type of the stored numbers. "float16" halves the file and changes inner products by
            less than 0.001; "int8" halves it again, for libraries of millions, see
            docs/libraries.md for what it changes.
        progress: called with the share that is done, if the number of formulae is known.
        """
        create = _creator(path, library)
        if schema is not None and not isinstance(schema, Schema):
            raise RhovecError(f"schema must be a Schema, not {schema!r:.80}")
        if schema is not None and schema_of(vectors) is not None:
            raise RhovecError("the space has its own names, units and scales; leave out schema")
        if reading and (schema or schema_of(vectors)) is not None:
            raise RhovecError("the schema or the space says how texts are read; leave out reading")
        reading = plain_options(reading or {})
        read = reader_of(schema or schema_of(vectors), reading)
        items: Any = [formulae] if is_single(formulae) else formulae
        if vectors is None:
            items = list(items) if isinstance(items, Iterable) else items
            parsed = read_all(items, read)
            items = [
                item if isinstance(item, Requirement) else phi
                for item, phi in zip(items, parsed, strict=True)
            ]
            vectors = usual_kernel(lowered(parsed, schema))
        chosen = as_vectors(vectors)
        batches = batches_of(items, requirements, tags, chosen, read, schema, progress)
        first = next(batches)
        sizes = Numbers.learn(first.vectors).sizes if stored == "int8" else None
        facts = describe(chosen, first.vectors.shape[1], schema, stored, sizes, reading)
        return cls(create(facts, chain([first], batches)), chosen)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        library: str | None = None,
        vectors: Vectors | Kernel | None = None,
    ) -> Index:
        """Open a library that was built before.

        path, library: as in `build`.
        vectors: what it was built with; only a model of your own must be given. Without its model, a
            library can only be searched by vector.
        """
        if vectors is not None:
            as_vectors(vectors)  # which refuses what is none, before the file is opened
        backend: Backend
        if name := _server_library(path, library):
            from .server import ServerBackend

            backend = ServerBackend.open(str(path), name)
        else:
            backend = FileBackend.open(file_path(path))
        try:
            return cls(backend, vectors)
        except RhovecError:
            backend.close()
            raise
        except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
                ValueError):  # fmt: skip
            backend.close()
            raise RhovecError(f"{backend.name}: its description is damaged; {REPAIR}") from None

    @classmethod
    def upgrade(cls, old: str | Path, new: str | Path) -> Index:
        """Copy a library of version 1 to a new file of the current version, and open that.

        Entries are numbered anew, without gaps. The old library stays as it is.
        """
        place = file_path(new)
        with version1.reading(file_path(old)) as (facts, batches):
            return cls(FileBackend.create(place, facts, batches))

    def save(self, path: str | Path, *, library: str | None = None) -> None:
        """Copy the library, as it is now, to a new file or server. path, library: as in `build`.

        From or to a server, entries are numbered anew, without gaps.
        """
        if _server_library(path, library):
            facts = self._backend.facts
            if facts.stored == "int8":  # which servers do not have
                facts = replace(facts, stored="float16", sizes=None)
            _creator(path, library)(facts, self._backend.batches()).close()
        else:
            self._backend.copy(file_path(path))

    def close(self) -> None:
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        holds = f"{len(self)} formulae" if self._closing.alive else "closed"
        return f"Index({self._backend.name}: {holds})"

    # -- changing --------------------------------------------------------------------------

    def add(
        self,
        formulae: FormulaLike | Iterable[FormulaLike],
        *,
        requirements: Requirements = None,
        tags: Tags = (),
        progress: Progress | None = None,
    ) -> Any:
        """Add all of the formulae, or none if one is refused: their ids, or the id of a single one.

        Once this has returned, the entries are on disk. Other arguments are as in `build`.
        """
        single = is_single(formulae)
        items: Any = [formulae] if single else formulae
        vectors = self._require_vectors()
        batches = batches_of(
            items, requirements, tags, vectors, self._read, self.lowering, progress
        )
        ids = self._backend.add(batches)
        return ids[0] if single else list(ids)

    def delete(self, ids: int | Iterable[int]) -> None:
        """Remove entries: all of these, or none if one does not exist."""
        several = isinstance(ids, Iterable) and not isinstance(ids, str | bytes)
        listed: list[Any] = list(ids) if several else [ids]  # type: ignore[arg-type]
        self._backend.delete([whole(i, "ids", what="whole numbers") for i in listed])

    def flush(self) -> None:
        """Complete the approximate index now and write it, instead of at some later search.

        Entries themselves are on disk as soon as `add` returns.
        """
        self._backend.flush()

    def verify(self, progress: Progress | None = None) -> None:
        """Read the whole library; RhovecError if anything is not as it was written."""
        self._backend.verify(progress)

    # -- searching -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._backend.count()

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
        """The k most similar entries: a list of hits, best first; for several queries a list of lists.

        query: a formula, a vector (D,), a list of formulae, or vectors (Q, D).
        variables, tags: only entries that have all of these.
        max_depth: only entries that are nested no deeper.
        rerank: order the best candidates (five for each hit asked for, at least 200) by an exact
            kernel: your own; or with True the one that the vectors approximate, with 10,000 other
            traces of mu0 (or your traces).
        """
        k = whole(k, "k", least=1)
        chosen = Filter(
            names_of(variables, "variables"),
            names_of(tags, "tags"),
            None if max_depth is None else whole(max_depth, "max_depth"),
        )
        if not isinstance(rerank, bool | SampledKernel):
            raise RhovecError(f"rerank must be True, False or a kernel, not {rerank!r}")
        points, formulae, single = self._query(query)
        if rerank and not formulae:
            raise RhovecError("re-ranking needs a formula to compare with, not a vector")
        wanted = max(MIN_RERANKED, 5 * k) if rerank else k
        hits = [self._hits(found) for found in self._backend.search(points, wanted, chosen)]
        if rerank:
            kernel = None if rerank is True else rerank
            pairs = zip(formulae, hits, strict=True)
            hits = [self._reranked(phi, found, k, kernel) for phi, found in pairs]
        return hits[0] if single else hits

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
        if not isinstance(threshold, int | float) or not 0 < threshold <= 1:
            raise RhovecError(f"threshold must be above 0 and at most 1, not {threshold!r}")
        groups = list(self._groups(threshold, kernel, progress))
        return sorted(groups, key=lambda group: group[0].id)

    # -- a query ---------------------------------------------------------------------------

    def _query(self, query: Any) -> tuple[np.ndarray, list[Formula], bool]:
        """(unit vectors (Q, D) float32 as rows would come back, formulae if given, single)."""
        facts, formulae = self._backend.facts, []
        if isinstance(query, np.ndarray):
            if query.dtype.kind not in "fiu" or np.ma.is_masked(query):
                what = "masked ones" if np.ma.is_masked(query) else query.dtype
                raise RhovecError(f"a query vector must hold numbers, not {what}")
            points, single = np.atleast_2d(np.asarray(query, np.float64)), query.ndim == 1
            if points.ndim != 2 or points.shape[1] != facts.dimension:
                raise RhovecError(
                    f"the vectors of {self._backend.name} have {facts.dimension} numbers; the "
                    f"query has shape {query.shape}"
                )
            # By the largest number first: squares of very large or small ones have no float.
            with np.errstate(invalid="ignore"):
                points = unit_rows(points / abs(points).max(1, keepdims=True, initial=0))
            if not np.isfinite(points).all():
                raise RhovecError("a query vector must be finite and not zero")
        else:
            single = is_single(query)
            formulae = read_all([query] if single else query, self._read)
            points = unit_vectors(formulae, self._require_vectors(), self.lowering)
            if points.shape[1] != facts.dimension:
                raise RhovecError(
                    f"{self._backend.name} has vectors of {facts.dimension} numbers, and its model "
                    f"gave one of {points.shape[1]}"
                )
        # Rounded as stored, so that a formula is found with similarity 1. With eight bits it is so
        # nearly, to four digits, and rounding twice would lose more.
        numbers = facts.numbers if facts.stored != "int8" else Numbers("float32", facts.dimension)
        return numbers.decode(numbers.encode(points)), formulae, single

    def _require_vectors(self) -> Vectors:
        if self.vectors is None:
            raise RhovecError(
                f"{self._backend.name} has vectors of the model {self._backend.facts.fingerprint}: "
                "to search it by formula, open it with vectors=, that model"
            )
        return self.vectors

    def _hits(self, found: Sequence[Found]) -> list[Hit]:
        return [
            Hit(entry.id, one.formula, one.tags, self._similarity(product),
                requirement=one.id or None, title=one.title, source=one.source)
            for entry, product in found
            for one in [entry.requirement]
        ]  # fmt: skip

    def _similarity(self, product: float) -> float:
        """What an inner product means."""
        product, sigma2 = min(product, 1.0), self._backend.facts.sigma2
        return product if sigma2 is None else float(kernel_of_cosine(product, sigma2))

    def _product(self, similarity: float) -> float:
        """Inverse of `_similarity`."""
        sigma2 = self._backend.facts.sigma2
        return similarity if sigma2 is None else float(cosine_of_kernel(similarity, sigma2))

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
        if kernel is None and self.vectors:
            kernel = self._kernel = self._kernel or self.vectors.kernel(JUDGE_TRACES, JUDGE_SEED)
        if kernel is None or isinstance(kernel.measure, BaseMeasure):
            first, second = (lowered(each, self.lowering) for each in (first, second))
        return kernel or usual_kernel([*first, *second], JUDGE_TRACES), first, second

    def _groups(
        self, threshold: float, kernel: Kernel | None, progress: Progress | None
    ) -> Iterator[list[Hit]]:
        """Groups: entry by entry, each with the similar ones near it that are in no group yet.

        Entries whose neighbourhoods have nothing in common are judged together, in one call.
        """
        lowest = self._product(threshold - min(MARGIN, threshold / 2))
        done: set[int] = set()  # in a group, or found to be in none
        doubtful: set[int] = set()  # waiting to be judged
        waiting: list[list[Hit]] = []
        for found in self._backend.neighbours(lowest, done, progress):
            hits = self._hits(found)
            if len(waiting) >= MAX_JUDGED or any(hit.id in doubtful for hit in hits):
                yield from self._judged(waiting, threshold, kernel, done)
                doubtful.clear()
                waiting = []
                if hits[0].id in done:
                    continue
                hits = [hit for hit in hits if hit.id not in done]
            done.add(hits[0].id)
            if len(hits) > 1:
                doubtful.update(hit.id for hit in hits)
                waiting.append(hits)
        yield from self._judged(waiting, threshold, kernel, done)

    def _judged(
        self, waiting: list[list[Hit]], threshold: float, kernel: Kernel | None, done: set[int]
    ) -> Iterator[list[Hit]]:
        """Groups as the exact kernel confirms them: the first entry, and those similar to it."""
        if not waiting:
            return
        judge, firsts, others = self._judge(
            kernel,
            [hits[0].formula for hits in waiting],
            [hit.formula for hits in waiting for hit in hits[1:]],
        )
        begin = 0
        for row, hits in zip(judge.gram(firsts, others), waiting, strict=True):
            exact = row[begin : begin + len(hits) - 1]
            begin += len(exact)
            group = [
                replace(hit, kernel=float(value))
                for hit, value in zip(hits[1:], exact, strict=True)
                if value >= threshold - TINY
            ]
            done.update(hit.id for hit in group)
            if group:
                yield [replace(hits[0], kernel=1.0), *group]


# -- arguments -------------------------------------------------------------------------------------


def _creator(path: Any, library: Any) -> Callable[[Facts, Iterator[Batch]], Backend]:
    """What makes the backend of a new library."""
    if name := _server_library(path, library):
        from .server import ServerBackend

        return partial(ServerBackend.create, str(path), name)
    return partial(FileBackend.create, None if path is None else file_path(path))


def _server_library(path: Any, library: Any) -> str | None:
    """The name of a library on a server; None for one in a file or in memory."""
    if not is_url(path):
        if library is not None:
            raise RhovecError(
                "library names a library on a server; for a file, give its path alone"
            )
        return None
    if not isinstance(library, str) or not library.strip() or not library.isprintable():
        raise RhovecError(f"library must be the name of a library on the server, not {library!r}")
    return library
