"""Where the entries of an index live: `Backend`, the seam between `Index` and its storage.

`Index` turns formulae into vectors and judges them with the exact kernel. A backend stores entries
with their vectors and finds the nearest by inner product. There is one that keeps a library in a file
(file.py) and one for PostgreSQL (server.py). To use another one, derive a class from `Backend` and
hand an instance to `Index`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..errors import RhovecError
from ..formula.requirements import Requirement
from .numbers import Numbers, Stored

Kind = Literal["kernel", "cosine"]
MAX_DIMENSION = 10_000_000  # numbers per vector


@dataclass(frozen=True)
class Facts:
    """What is fixed for a whole library, and what it takes to compare its vectors with others."""

    fingerprint: str  # identifies what made the vectors
    kind: Kind  # inner products are the kernel K, or k' with K = exp(-(1 - k') / sigma2)
    sigma2: float | None  # for k' only
    dimension: int
    stored: Stored = "float32"
    schema: str | None = None  # JSON
    recipe: dict[str, Any] | None = None  # makes the vectors again, see vectors.py
    traces: bytes | None = None  # the traces that the recipe needs, as npy
    sizes: tuple[float, ...] | None = None  # usual sizes of the numbers, for int8, see numbers.py
    reading: dict[str, Any] | None = None  # options of `parse` for texts, without a schema

    def __post_init__(self) -> None:
        for name, value, known in (
            ("kind", self.kind, get_args(Kind)), ("stored", self.stored, get_args(Stored))
        ):  # fmt: skip
            if value not in known:
                words = ", ".join(f'"{word}"' for word in known[:-1])
                raise RhovecError(f'{name} must be {words} or "{known[-1]}", not {value!r}')
        if (self.kind == "cosine") != (self.sigma2 is not None and 0 < self.sigma2 < np.inf):
            raise RhovecError('sigma2 must be a positive number for kind="cosine", else None')
        if type(self.dimension) is not int or not 0 < self.dimension <= MAX_DIMENSION:
            raise RhovecError(f"dimension must be 1 to {MAX_DIMENSION}, not {self.dimension}")
        known_sizes = self.sizes is not None and len(self.sizes) == self.dimension
        if known_sizes and not all(type(a) is float and 0 < a <= 1 for a in self.sizes or ()):
            raise RhovecError("sizes must be above 0 and at most 1")
        if (self.stored == "int8") != known_sizes:
            raise RhovecError('stored="int8" needs a size for each number, and others have none')

    @property
    def numbers(self) -> Numbers:
        """How vectors are stored."""
        return Numbers(self.stored, self.dimension, self.sizes)

    def to_json(self) -> str:
        """All but the traces."""
        known = asdict(self) | {"traces": None}
        for name in ("sizes", "reading"):  # which many libraries never had
            if known[name] is None:
                del known[name]
        return json.dumps(known, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, traces: bytes | None) -> Facts:
        known = json.loads(text)
        if isinstance(known.get("sizes"), list):
            known["sizes"] = tuple(known["sizes"])
        return cls(**(known | {"traces": traces}))


class Batch(NamedTuple):
    """Entries to add: n requirements, and their unit vectors (n, D)."""

    requirements: list[Requirement]
    vectors: np.ndarray


def require_dimension(batch: Batch, facts: Facts, name: str) -> None:
    """Refuse vectors that are longer or shorter than those of the library called `name`."""
    width = batch.vectors.shape[1]
    if width != facts.dimension:
        raise RhovecError(f"{name} has vectors of {facts.dimension} numbers, not of {width}")


@dataclass(frozen=True)
class Entry:
    """What a library holds about one formula, besides its vector."""

    id: int
    requirement: Requirement  # without the text that it was written as; its tags are sorted


class Filter(NamedTuple):
    """Which entries a search may return: those with all of the variables and tags."""

    variables: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    max_depth: int | None = None


Found = tuple[Entry, float]  # and its inner product with what was asked for
Progress = Callable[[float], object]


def is_url(place: object) -> bool:
    """Whether a library's place is a server: any URL, and settings with a password, which no message
    may repeat as the name of a file."""
    return re.match(r"\s*[A-Za-z][\w+.-]+:/|.*password\s*=", str(place), re.DOTALL) is not None


class Backend(ABC):
    """Storage of entries and nearest-neighbour search. Ids are positive and never used twice."""

    name: str  # in messages
    facts: Facts

    @abstractmethod
    def add(self, batches: Iterator[Batch]) -> Sequence[int]:
        """Add all batches, durably, or none of them: the ids."""

    @abstractmethod
    def delete(self, ids: Collection[int]) -> None:
        """Remove all of these entries; RhovecError, and no change, if one does not exist."""

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def search(self, points: np.ndarray, k: int, chosen: Filter) -> list[list[Found]]:
        """The k entries nearest to each of the unit vectors (Q, D) float32, nearest first."""

    @abstractmethod
    def neighbours(
        self, lowest: float, done: Collection[int], progress: Progress | None = None
    ) -> Iterator[list[Found]]:
        """For each entry in turn: itself and its neighbours, whose inner product with it is at least
        `lowest`.

        Entries without neighbours are left out, and so are the ids in `done`, to which the caller adds
        while it iterates.
        """

    @abstractmethod
    def flush(self) -> None:
        """Bring search structures up to date now instead of at a later search."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; called once or more."""

    def verify(self, progress: Progress | None = None) -> None:
        """Read everything; RhovecError if anything is not as it was written."""
        raise RhovecError(f"{self.name} cannot be verified")

    def batches(self) -> Iterator[Batch]:
        """All entries, some at a time, to be copied to another backend."""
        raise RhovecError(f"{self.name} cannot be copied")

    def copy(self, path: Path) -> None:
        """Write the library to a new file."""
        raise RhovecError(f"{self.name} cannot be copied to a file")
