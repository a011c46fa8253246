"""Spaces: formulae <-> unit vectors, on the measure of a model or of one's own traces.

space     `Space`, the exact space of one's own traces;
scales    traces and formulae in standardised units;
fitting   the formulae and the directions that a space is fitted with;
decoding  formulae for vectors, found by search;
store     the folder of a space;
vectors   what an index needs of a space; signatures of a kernel; `load`;
shards    vectors of formulae by the hundred million, in files.
"""

from .shards import EmbedReport, embed_files
from .space import Space
from .vectors import Signatures, Vectors, as_vectors, load

__all__ = ["EmbedReport", "Signatures", "Space", "Vectors", "as_vectors", "embed_files", "load"]
