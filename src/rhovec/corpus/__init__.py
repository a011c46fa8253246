"""Formulae by the million: seeds, exact rewrites, perturbations; as training batches or as shards.

draw: random numbers and seeds; rules: the table of exact rewrites; perturb: other numbers, duality;
families: a seed and its variants; stream: endless batches; build: parquet shards; stats: their
statistics. All of it is compiled code on flat postfix rows (trees). Where it repeats a job of
formula/ for speed (canonical text, depth and horizon, simplifying), a test compares the two on
random formulae.
"""

from .families import CHANGES, KINDS, SPLITS, Batch, Recipe, draw_families
from .stream import stream

__all__ = ["CHANGES", "KINDS", "SPLITS", "Batch", "Recipe", "draw_families", "stream"]
