"""rhovec: Signal Temporal Logic formulae as values, as numbers on traces, and as a kernel."""

from typing import Any

from . import errors
from .check import explain
from .compare import Comparison, SetComparison, compare, compare_sets
from .errors import ParseError, RhovecError, RhovecWarning
from .fleet import evaluate_files
from .former import warn
from .formula import (
    Formula,
    Requirement,
    Schema,
    parse,
    random_formulae,
    read_requirements,
    simplify,
)
from .kernel import (
    AnchorEmbedding,
    BooleanKernel,
    CentredKernel,
    IntegratedKernel,
    KernelPCA,
    StlKernel,
)
from .mining import mine
from .models.model import Model
from .robustness import robustness, satisfaction
from .search import Hit, Index
from .spaces import Space, embed_files, load
from .traces import BaseMeasure, TraceMeasure, derive, read_logs, read_traces, resample

__version__ = "0.2.0.dev0"
_FORMER = {"Trajectories": TraceMeasure}  # names of the first release, and what they are now


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        now = _FORMER[name]
        warn(f"rv.{name}", f"rv.{now.__name__}")
        return now
    raise AttributeError(f"module 'rhovec' has no attribute {name!r}")


__all__ = [
    "AnchorEmbedding",
    "BaseMeasure",
    "BooleanKernel",
    "CentredKernel",
    "Comparison",
    "Formula",
    "Hit",
    "Index",
    "IntegratedKernel",
    "KernelPCA",
    "Model",
    "ParseError",
    "Requirement",
    "RhovecError",
    "RhovecWarning",
    "Schema",
    "SetComparison",
    "Space",
    "StlKernel",
    "TraceMeasure",
    "compare",
    "compare_sets",
    "derive",
    "embed_files",
    "errors",
    "evaluate_files",
    "explain",
    "load",
    "mine",
    "parse",
    "random_formulae",
    "read_logs",
    "read_requirements",
    "read_traces",
    "resample",
    "robustness",
    "satisfaction",
    "simplify",
]
