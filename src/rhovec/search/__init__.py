"""Search in a library of formulae: nearest in meaning, exact re-ranking, duplicates, filters.

vectors  what turns formulae into unit vectors: a model, or Monte Carlo signatures of a kernel;
rows     the entries, durable, in one SQLite file;
coarse   the approximate index of a large library, a cache beside that file;
index    the library that a user holds.
"""

from .index import Hit, Index
from .vectors import Signatures, Vectors

__all__ = ["Hit", "Index", "Signatures", "Vectors"]
