"""What commands read besides formulae and traces, and what they do with requirements before they work:
schemas, spaces, vectors, names; lowering, and errors that name the requirement."""

from __future__ import annotations

import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import FormulaError, HorizonError, Problem, RhovecError
from ..files import read_file
from ..formula import Formula, Schema
from ..formula.printer import excerpt
from ..formula.requirements import Requirement
from .output import note

if TYPE_CHECKING:
    import numpy as np

    from ..models.model import Model
    from ..traces import BaseMeasure, TraceMeasure, Traces


def read_schema(path: Path | None) -> Schema | None:
    """What --schema names; None without it."""
    if path is None:
        return None
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError:
        raise RhovecError(f"{path}: no UTF-8 text") from None
    try:
        return Schema.from_json(text)
    except RhovecError as error:
        raise RhovecError(f"{path}: {error}") from None


def schema_for(space: object, path: Path | None) -> Schema | None:
    """The schema of a space of traces, or what --schema names."""
    own = getattr(space, "schema", None)
    if own is not None and path is not None:
        raise RhovecError("--schema is for models: the space has its own names, units and scales")
    return own if own is not None else read_schema(path)


def load_model(path: str | None, device: str | None) -> Model:
    """What --model names, for a command that a space of traces does not do."""
    from ..spaces import Space, load

    found = load(path, device)
    if isinstance(found, Space):
        raise RhovecError(f"--space {path}: a space of traces; this command needs a model")
    return found


def standardised(requirements: list[Requirement], schema: Schema | None) -> list[Requirement]:
    """The formulae over x_0, x_1, ... that models and random traces are about."""
    if schema is None:
        return requirements
    with naming(requirements, lambda formulae: [schema.lower(phi) for phi in formulae]):
        return [replace(r, formula=schema.lower(r.formula)) for r in requirements]


def formulae_of(requirements: Iterable[Requirement]) -> list[Formula]:
    return [requirement.formula for requirement in requirements]


def origins(requirements: Sequence[Requirement], before: str = "") -> list[dict[str, str]]:
    """Identifier, title and source for the records of requirements, if some have a name.

    before: put before the names of the fields.
    """
    if not any(r.id or r.title for r in requirements):
        return [{} for _ in requirements]
    return [
        {f"{before}{key}": getattr(r, key) for key in ("id", "title", "source")}
        for r in requirements
    ]


@contextmanager
def naming(
    requirements: Sequence[Requirement], probe: Callable[[list[Formula]], object]
) -> Iterator[None]:
    """Work on requirements; an error that is due to one of them names it.

    probe: does the same work, or enough of it to fail in the same way, on some of the formulae.
    """

    def error_of(some: Sequence[Requirement]) -> RhovecError | None:
        try:
            probe([requirement.formula for requirement in some])
        except RhovecError as error:
            return error
        return None

    try:
        yield
    except RhovecError:
        left = list(requirements)
        found = error_of(left) if left else None
        while found and len(left) > 1:
            middle = len(left) // 2
            left = left[:middle] if error_of(left[:middle]) else left[middle:]
            found = error_of(left)
        if found is None:
            raise  # it is not about a formula, or it takes several of them
        about_formula = isinstance(found, FormulaError | HorizonError)
        if about_formula or not all(error_of([other]) for other in requirements[:2]):
            raise RhovecError(str(_problem(left[0], found))) from None
        raise


def _problem(requirement: Requirement, error: RhovecError) -> Problem:
    """What is wrong with a requirement; its formula is quoted as it was written, not in steps."""
    message = str(error).replace("formula 0", "the formula")
    message = message.replace(excerpt(requirement.formula), excerpt(requirement.text))
    return Problem(requirement.place, message)


def refused_by(
    probe: Callable[[list[Formula]], object], requirements: Sequence[Requirement]
) -> Iterator[Problem]:
    """What is wrong with the requirements on which a probe fails."""
    try:
        probe([requirement.formula for requirement in requirements])
    except RhovecError as error:
        if len(requirements) == 1:
            yield _problem(requirements[0], error)
            return
        middle = len(requirements) // 2
        yield from refused_by(probe, requirements[:middle])
        yield from refused_by(probe, requirements[middle:])


def unknown_variables(requirement: Requirement, names: Mapping[str, object]) -> Problem | None:
    """What is wrong with a formula that uses variables which the traces do not have."""
    from ..traces.reading import listed

    missing = [name for name in requirement.formula.variables if name not in names]
    if not missing:
        return None
    alike = [name for name in names if name.lower() == missing[0].lower()]
    hint = f"is it {alike[0]}?" if alike else "--variables names those of an .npy file"
    return Problem(
        requirement.place,
        f"the formula uses {listed(missing)}, but the traces have {listed(list(names))}; {hint}",
    )


def pair(text: str, option: str, example: str) -> tuple[str, str]:
    """Both sides of `speed=km/h`; names may have an equals sign, what follows has none."""
    name, _, value = (part.strip() for part in text.rpartition("="))
    if not name or not value:
        raise RhovecError(f"{option} {text}: write it as {example}")
    return name, value


def split_names(text: str) -> list[str]:
    """The names in `a, b`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise RhovecError(f"{text!r} holds no name; separate names by commas")
    return names


def read_vectors(path: Path) -> np.ndarray:
    """(n, D): the rows of an .npy file; a single vector may be given as (D,)."""
    import numpy as np

    try:
        with path.open("rb") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
        if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or not array.size:
            raise ValueError
    except OSError as error:
        raise RhovecError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError):
        raise RhovecError(f"{path}: no .npy file of numbers, one vector per row") from None
    return np.atleast_2d(array)


def tell_left_out(traces: Traces) -> None:
    """Say which columns were left out as they hold no numbers."""
    from ..traces.reading import listed

    if traces.left_out:
        note(f"columns without numbers, left out: {listed(traces.left_out)}")


def choose_measure(
    formulae: list[Formula], traces: Traces | None, points: int | None
) -> BaseMeasure | TraceMeasure:
    """The traces, or else random ones in the variables that the formulae use."""
    from ..compare import default_measure
    from ..traces import TraceMeasure

    if traces is None:
        return default_measure(formulae, 100 if points is None else points)
    if points is not None:
        raise RhovecError("--points goes with random traces; --traces have points of their own")
    return TraceMeasure(traces.values, traces.variables)
