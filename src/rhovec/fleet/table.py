"""Traces in an Arrow table and formulae in, results out: `evaluate_table`, a function without state.

A table has one row per trace with lists as cells, or one row per sample with a column that names the
trace. Results have one row per formula and trace. `Summary` is what they add up to: per formula the
number of traces, how many satisfy and violate it, the sum and the least robustness, and the worst
traces. Summaries of parts are combined in the order of the parts, so that sums do not depend on which
part was done first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np

from ..errors import TraceError, needed
from ..formula.reader import Formulae, as_formulae
from ..machine import limited
from ..robustness import robustness
from ..traces.binary import read_frame
from ..traces.logs import as_names
from ..traces.reading import in_order, sampling_step
from ..traces.tables import Options, Part, find_roles

ROWS = ("formula", "trace", "robustness")  # columns of results
BLOCK = 1 << 21  # numbers converted at once: they fit into the cache, and malloc keeps their memory
WORST = 10  # traces per formula that a summary names


class Worst(NamedTuple):
    """A trace on which a formula has a low robustness."""

    robustness: float
    trace: str
    file: str


@dataclass(frozen=True)
class Summary:
    """What the results of one formula add up to."""

    n: int = 0  # traces
    satisfied: int = 0  # robustness above 0
    violated: int = 0  # below 0; at 0, it depends on whether comparisons are strict
    total: float = 0.0  # sum of the robustness
    worst: tuple[Worst, ...] = ()  # the lowest, lowest first; of equal ones, the earliest traces

    @property
    def minimum(self) -> float | None:
        return self.worst[0].robustness if self.worst else None

    @property
    def mean(self) -> float | None:
        return self.total / self.n if self.n else None

    def plus(self, other: Summary) -> Summary:
        """The summary of both; the traces of `other` come after."""
        return Summary(
            self.n + other.n, self.satisfied + other.satisfied, self.violated + other.violated,
            self.total + other.total,
            tuple(nsmallest(WORST, (*self.worst, *other.worst), key=lambda one: one.robustness)),
        )  # fmt: skip

    @classmethod
    def of(cls, values: np.ndarray, traces: Sequence[str], file: str) -> Summary:
        """The summary of robustness values (N,)."""
        low = np.arange(len(values))
        if len(values) > WORST:  # sorting all of them would take a quarter of the time of a task
            low = np.flatnonzero(values <= np.partition(values, WORST - 1)[WORST - 1])
        first = low[np.argsort(values[low], kind="stable")[:WORST]]
        return cls(
            len(values), int((values > 0).sum()), int((values < 0).sum()), float(values.sum()),
            tuple(Worst(float(values[i]), traces[i], file) for i in first),
        )  # fmt: skip


def evaluate_table(
    formulae: Formulae,
    table: Any,
    *,
    file: str = "table",
    variables: Sequence[str] | None = None,
    id_column: str | None = None,
    time_column: str | None = None,
    end: str = "hold",
    threads: int = 1,
) -> Any:
    """Robustness as an Arrow table with the columns formula, trace and robustness.

    table: an Arrow table, or anything with its interface. See `read_traces` for the other options.
    threads: cores that the engine may use.
    """
    names = None if variables is None else as_names(variables)
    options = Options("auto", names, id_column, time_column, strict=True)
    parsed = as_formulae(formulae)[0]
    ids, arrays, known = traces_of(table, file, options)
    with limited(threads):
        values = robustness_of(parsed, arrays, known, end)
    return as_rows([str(phi) for phi in parsed], ids, values)


def as_rows(formulae: Sequence[str], traces: Sequence[str], values: np.ndarray) -> Any:
    """Robustness (B, N) as an Arrow table, formula by formula."""
    import pyarrow as pa

    b, n = values.shape
    places = np.repeat(np.arange(b, dtype=np.int32), n), np.tile(np.arange(n, dtype=np.int32), b)
    named = (pa.DictionaryArray.from_arrays(pa.array(place), pa.array(names, pa.string()))
             for place, names in zip(places, (formulae, traces), strict=True))  # fmt: skip
    return pa.table([*named, pa.array(values.astype(np.float64).reshape(-1))], names=ROWS)


def joined(tables: Sequence[Any]) -> Any:
    """Tables of results as one."""
    import pyarrow as pa

    return pa.concat_tables(tables).unify_dictionaries()


def traces_of(
    table: Any, file: str, options: Options, before: int = 0
) -> tuple[list[str], Any, tuple[str, ...]]:
    """The traces of an Arrow table: identifiers, values for the engine, and variables.

    Identifiers are those of the id column; without one, numbers of rows, or "" for a single trace.
    before: rows of the file above the table.
    """
    pyarrow = needed("pyarrow", "reading Arrow tables", "data")
    try:
        whole = pyarrow.table(table)
    except (TypeError, ValueError):
        raise TraceError(f"{file}: no readable table") from None
    quick = _equal_lists(whole, file, options, before)
    if quick is not None:
        return quick
    return as_arrays(read_frame(whole, file, options, before), options.dt)


class Columns(NamedTuple):
    """Traces of one length as they were read, an array (N, P) per variable."""

    columns: list[np.ndarray]


def robustness_of(formulae: Formulae, values: Any, names: tuple[str, ...], end: str) -> np.ndarray:
    """Robustness (B, N) of traces. Columns are converted in blocks, in memory that does not grow."""
    if not isinstance(values, Columns):
        whole: np.ndarray = robustness(formulae, values, variables=names, end=end)
        return whole
    n, points = values.columns[0].shape
    step = max(1, BLOCK // (len(values.columns) * points))
    blocks = []
    for first in range(0, n, step):
        chosen = [column[first : first + step] for column in values.columns]
        traces = np.stack(chosen, axis=1, dtype=np.float64)  # as `read_traces` has them
        blocks.append(robustness(formulae, traces, variables=names, end=end))
    return np.concatenate(blocks, axis=1)


def as_arrays(
    parts: Sequence[Part], dt: float | None = None
) -> tuple[list[str], Any, tuple[str, ...]]:
    """The same for traces that were read from a file. dt: the step that they must have."""
    values = [in_order(part, parts[0]) for part in parts]
    step = sampling_step(parts)  # refuses times that are not even
    for part in parts:
        if part.times is not None and dt is not None and _is_off(part.times, dt):
            raise TraceError(
                f"{part.source.name}: its times are {step:g} s apart, but the bounds of the formulae "
                f"count steps of {dt:g} s; evaluate files with another step by themselves"
            )
    lengths = {one.shape[1] for one in values}
    return (
        [part.id for part in parts], np.stack(values) if len(lengths) == 1 else values,
        tuple(parts[0].series),
    )  # fmt: skip


def _is_off(times: np.ndarray, dt: float) -> bool:
    """Whether a sample is not the one nearest to its place in steps of dt."""
    places = (times - times[0]) / dt
    return bool((abs(places - np.arange(len(times))) >= 0.5).any())


def _equal_lists(
    table: Any, file: str, options: Options, before: int
) -> tuple[list[str], Columns, tuple[str, ...]] | None:
    """Lists of one length, without gaps and times, at once; None for all other tables."""
    import pyarrow as pa
    import pyarrow.types as kinds

    roles = find_roles(file, table.column_names, options)
    places = list(roles.variables.values())
    types = [table.schema.types[place] for place in places]
    if roles.time is not None or roles.name is not None or not table.num_rows or not all(
        (kinds.is_list(t) or kinds.is_large_list(t) or kinds.is_fixed_size_list(t))
        and kinds.is_floating(t.value_type) for t in types
    ):  # fmt: skip
        return None
    columns = []
    for place in places:
        chunks = table.column(place).combine_chunks()
        flat = chunks.flatten()
        if not len(flat) or chunks.null_count or flat.null_count or len(flat) % table.num_rows:
            return None
        if not kinds.is_fixed_size_list(chunks.type):
            lengths = pa.compute.list_value_length(chunks).to_numpy(zero_copy_only=False)
            if (lengths != lengths[0]).any():
                return None
        numbers = flat.to_numpy()
        if not np.isfinite((numbers.min(), numbers.max())).all():
            return None
        columns.append(numbers.reshape(table.num_rows, -1))
    if len({column.shape for column in columns}) > 1:
        return None
    if roles.id is None:
        ids = [str(before + row) for row in range(table.num_rows)]
    else:
        found = table.column(roles.id)
        if found.null_count:
            return None
        ids = [str(one) for one in found.to_pylist()]
        if len(set(ids)) < len(ids):
            return None
    return ids, Columns(columns), tuple(roles.variables)
