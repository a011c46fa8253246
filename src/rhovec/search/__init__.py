"""Search in a library of formulae: nearest in meaning, exact re-ranking, duplicates, filters.

index    the library that a user holds;
arguments  its arguments, checked;
vectors  the facts that say what made the vectors: a space, a model, or signatures of a kernel;
backend  where entries live and are searched, as one class to derive from;
file     the backend in one file: rows in SQLite, an approximate index beside them;
rows     the SQLite file, every row with a checksum;
numbers  how the numbers of a vector are stored: as floats, or in eight bits;
coarse   the approximate index of a large library;
compact  short vectors that stand for long ones when candidates are searched;
server   the backend in PostgreSQL with pgvector;
database its connections, transactions, roles and versions.
"""

from ..spaces.vectors import Signatures, Vectors
from .backend import Backend, Batch, Entry, Facts, Filter
from .index import Hit, Index
from .vectors import describe

__all__ = [
    "Backend",
    "Batch",
    "Entry",
    "Facts",
    "Filter",
    "Hit",
    "Index",
    "Signatures",
    "Vectors",
    "describe",
]
