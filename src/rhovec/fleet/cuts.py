"""Files as tasks: small files together, large parquet files cut between traces.

A task is a list of pieces, each a file or some row groups of one. Where a row is a trace, a file may be
cut between any row groups. Where rows are samples, it is cut only if the statistics of its id column
show that identifiers never decrease from one row group to the next: then a trace that lies across a
border belongs to the piece in which it begins, and the next piece leaves its rows out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from ..errors import TraceError
from ..machine import cores
from ..traces.logs import READERS
from ..traces.remote import Stored, file_system, first_line, local_copy, patient, remote_name
from ..traces.tables import Options, find_roles
from .table import as_arrays, traces_of

TASK_BYTES = 64 << 20  # of files or row groups, as they are stored
TASK_FILES = 1000
T = TypeVar("T")

Arrays = tuple[list[str], Any, tuple[str, ...]]  # identifiers, values for the engine, variables


class Piece(NamedTuple):
    """A file, or its row groups first ... last - 1."""

    file: str
    first: int = 0
    last: int | None = None  # None: the whole file


def tasks_of(files: Sequence[Stored], options: Options) -> Iterator[list[Piece]]:
    """All files as tasks, in their order."""

    def pieces() -> Iterator[tuple[Piece, int]]:
        for file in files:
            if file.size > TASK_BYTES and file.suffix == ".parquet":
                yield from ((piece, TASK_BYTES) for piece in _cut(file, options))
            else:
                yield Piece(file.name), file.size

    return grouped(pieces(), TASK_BYTES)


def grouped(pieces: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """Pieces, each given with its bytes, as tasks of at most that many bytes, or of one piece."""
    waiting: list[T] = []
    size = 0
    for piece, own in pieces:
        if waiting and (size + own > most or len(waiting) >= TASK_FILES):
            yield waiting
            waiting, size = [], 0
        waiting.append(piece)
        size += own
    if waiting:
        yield waiting


def _cut(file: Stored, options: Options) -> list[Piece]:
    """A large parquet file in pieces. One that cannot be read is left to a task, which says why."""
    try:
        with opened(file.name) as found:
            groups, header = found.num_row_groups, found.schema_arrow.names
            roles = find_roles(file.name, header, options)
            sizes = [found.metadata.row_group(i).total_byte_size for i in range(groups)]
            if not _is_listed(found, roles) and not _may_cut(_borders(found, roles)):
                return [Piece(file.name)]
    except (TraceError, OSError, ValueError):
        return [Piece(file.name)]
    scale = file.size / max(1, sum(sizes))  # sizes of row groups are those before compression
    pieces, first, size = [], 0, 0.0
    for group, own in enumerate(sizes):
        if group > first and size + own * scale > TASK_BYTES:
            pieces.append(Piece(file.name, first, group))
            first, size = group, 0.0
        size += own * scale
    return [*pieces, Piece(file.name, first, groups)]


def opened(name: str) -> Any:
    """A parquet file, to be closed."""
    from pyarrow import parquet

    system, path = file_system(name)
    far = remote_name(name) is not None  # then many small reads are slower than a few large ones
    return parquet.ParquetFile(system.open_input_file(path), pre_buffer=far)


def _is_listed(found: Any, roles: Any) -> bool:
    """Whether a row is a trace."""
    import pyarrow.types as kinds

    types = [found.schema_arrow.types[place] for place in roles.variables.values()]
    return any(
        kinds.is_list(t) or kinds.is_large_list(t) or kinds.is_fixed_size_list(t) for t in types
    )


def _borders(found: Any, roles: Any) -> list[tuple[Any, Any] | None]:
    """Least and greatest identifier of each row group, if the file says so."""
    if roles.id is None or roles.name is not None:
        return [None] * found.num_row_groups
    name = found.schema_arrow.names[roles.id]
    columns = [found.metadata.schema.column(i).path for i in range(found.metadata.num_columns)]
    borders: list[tuple[Any, Any] | None] = []
    for group in range(found.num_row_groups):
        held = found.metadata.row_group(group).column(columns.index(name)).statistics
        whole = held is not None and held.has_min_max and not held.null_count
        borders.append((held.min, held.max) if whole else None)
    return borders


def _may_cut(borders: Sequence[tuple[Any, Any] | None]) -> bool:
    known = [border for border in borders if border is not None]
    return len(known) == len(borders) and all(one[1] <= two[0] for one, two in pairwise(known))


def read_piece(piece: Piece, options: Options) -> Arrays:
    """The traces of a piece. TraceError if it cannot be read."""
    if not piece.file.partition("?")[0].lower().endswith(".parquet"):
        with local_copy(piece.file) as path:
            try:
                return as_arrays(READERS[path.suffix.lower()](path, options), options.dt)
            except TraceError as error:
                raise TraceError(str(error).replace(str(path), piece.file)) from None
    import pyarrow

    try:
        arrays: Arrays = patient(piece.file, partial(_read_parquet, piece, options))
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise TraceError(f"{piece.file}: no readable parquet file: {first_line(error)}") from None
    return arrays


def _read_parquet(piece: Piece, options: Options) -> Arrays:
    with opened(piece.file) as found:
        header = found.schema_arrow.names
        roles = find_roles(piece.file, header, options)
        used = list(dict.fromkeys(header[place] for place in roles.used))
        if piece.last is None:
            table = found.read(columns=used, use_threads=cores() > 1)
            return traces_of(table, piece.file, options)
        table = found.read_row_groups(
            range(piece.first, piece.last), columns=used, use_threads=cores() > 1
        )
        before = sum(found.metadata.row_group(i).num_rows for i in range(piece.first))
        if not _is_listed(found, roles):
            n_rows = table.num_rows
            table, more = _between_traces(found, piece, table, roles)
            before += n_rows + more - table.num_rows
        return traces_of(table, piece.file, options, before) if table.num_rows else ([], None, ())


def _between_traces(found: Any, piece: Piece, table: Any, roles: Any) -> tuple[Any, int]:
    """Row groups without the rows of a trace that began before, and with the end of the last one: the
    table, and the number of rows at its end that are not of the piece."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert piece.last is not None
    borders = [border for border in _borders(found, roles) if border is not None]
    name = found.schema_arrow.names[roles.id]
    if piece.first and borders[piece.first - 1][1] == borders[piece.first][0]:
        table = table.filter(pc.not_equal(table.column(name), borders[piece.first][0]))
    last, group = borders[piece.last - 1][1], piece.last
    if piece.first and borders[piece.first - 1][1] == last:
        return table, 0  # all of it belongs to a trace that began before
    own = table.num_rows
    while group < len(borders) and borders[group][0] == last:
        more = found.read_row_group(group, columns=table.column_names)
        table = pa.concat_tables([table, more.filter(pc.equal(more.column(name), last))])
        group += 1
    return table, table.num_rows - own
