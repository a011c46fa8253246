"""Formulae as entries of a library: how texts are read, what is stored of them, and their vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import islice, repeat
from numbers import Real
from typing import Any

import numpy as np

from ..errors import RhovecError
from ..formula import Formula, Schema, parse
from ..formula.options import options_of
from ..formula.reader import FormulaLike, as_formulae
from ..formula.requirements import Requirement
from ..kernel import Progress
from ..spaces.vectors import Vectors
from .arguments import identifier_of, identifiers_of, tags_of, tags_of_each
from .backend import Batch

CHUNK = 4096  # formulae embedded at once
NORM_ERROR = 0.01  # by how much the norm of a vector may differ from 1
READING = ("dt", "rounding", "discrete", "tolerance", "units", "labels")  # that a library keeps

Reader = Callable[[str], Formula]
Names = str | Iterable[str]
Tags = Names | Sequence[Iterable[str]]
Requirements = str | Iterable[str | None] | None


def batches_of(
    formulae: Iterable[FormulaLike],
    requirements: Requirements,
    tags: Tags,
    vectors: Vectors,
    read: Reader | None,
    lowering: Schema | None,
    progress: Progress | None,
) -> Iterator[Batch]:
    """Entries with their vectors, some at a time."""
    if not isinstance(formulae, Iterable):
        raise RhovecError(f"formulae must be a formula or a list of them, not {formulae!r:.80}")
    total = len(formulae) if isinstance(formulae, Sequence) else None
    items, identifiers, labels = iter(formulae), identifiers_of(requirements), tags_of_each(tags)
    done = 0
    while chunk := list(islice(items, CHUNK)):
        parsed = read_all(chunk, read)
        known = list(islice(identifiers, len(parsed)))
        named = list(islice(labels, len(parsed)))
        for each, word in ((known, "requirements"), (named, "tags")):
            if len(each) < len(parsed):
                raise RhovecError(
                    f"there are more formulae than {word}, which end at {done + len(each)}"
                )
        entries = list(map(_entry, chunk, parsed, known, named))
        yield Batch(entries, unit_vectors(parsed, vectors, lowering))
        done += len(parsed)
        if progress and total:
            progress(done / total)
    if not done:
        raise RhovecError("no formula given: the list is empty")
    left: dict[str, Iterator[Any]] = {"requirements": identifiers, "tags": labels}
    for word, rest in left.items():
        if not isinstance(rest, repeat) and any(True for _ in rest):
            raise RhovecError(f"there are more {word} than formulae")


def _entry(item: FormulaLike, phi: Formula, name: str | None, tags: list[str]) -> Requirement:
    """The entry to store: what the item says itself, completed by the arguments."""
    if not isinstance(item, Requirement):
        return Requirement(phi, name or "", tags=tuple(tags))
    identifier = name or identifier_of(item.id or None) or ""
    return replace(item, formula=phi, id=identifier, tags=(*tags_of(item.tags), *tags))


def reader_of(schema: Schema | None, reading: Mapping[str, Any]) -> Reader | None:
    """What reads texts: the schema, or `parse` with these options; None: `parse` without any."""
    if schema is not None:
        return schema.parse
    unknown = reading.keys() - READING if isinstance(reading, Mapping) else {repr(reading)}
    if unknown:
        raise RhovecError(
            f"reading takes the options {', '.join(READING)} of parse, not {min(map(str, unknown))}"
        )
    try:
        options_of(**reading)  # which refuses wrong values
    except TypeError:
        raise RhovecError(f"reading must be options of parse, not {dict(reading)!r:.200}") from None
    return partial(parse, **reading) if reading else None


def plain_options(reading: Any) -> Any:
    """The options as a file keeps them."""

    def plain(value: Any) -> Any:
        if isinstance(value, Decimal):
            return str(value)
        if isinstance(value, Real):
            number = float(value)
            return int(number) if number.is_integer() else number
        return sorted(value) if isinstance(value, Iterable) else repr(value)

    try:
        return json.loads(json.dumps(reading, default=plain))
    except TypeError:
        raise RhovecError(f"reading must be options of parse, not {reading!r:.200}") from None


def read_all(formulae: Iterable[FormulaLike], read: Reader | None) -> list[Formula]:
    """Texts as formulae, read by `read`; None: by the parser alone."""
    if read is not None:
        formulae = [read(f) if isinstance(f, str) else f for f in formulae]
    return as_formulae(formulae)[0]


def schema_of(vectors: object) -> Schema | None:
    """The schema of a space that reads and lowers formulae by itself."""
    found = getattr(vectors, "schema", None)
    return found if isinstance(found, Schema) else None


def lowered(formulae: list[Formula], schema: Schema | None) -> list[Formula]:
    """Formulae over the channels of the schema, if there is one."""
    return formulae if schema is None else [schema.lower(phi) for phi in formulae]


def unit_vectors(formulae: list[Formula], maker: Vectors, schema: Schema | None) -> np.ndarray:
    """Their vectors (B, D), checked."""
    vectors = np.asarray(maker.embed(lowered(formulae, schema)))
    if vectors.ndim != 2 or len(vectors) != len(formulae):
        raise RhovecError(
            f"the model gave an array {vectors.shape} for {len(formulae)} formulae; it must give a "
            "row for each"
        )
    norms = np.linalg.norm(vectors, axis=1)
    if not (abs(norms - 1) <= NORM_ERROR).all():
        raise RhovecError(f"the model gave vectors of norms {norms.min()} to {norms.max()}, not 1")
    return vectors
