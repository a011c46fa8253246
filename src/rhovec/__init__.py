"""rhovec: Signal Temporal Logic formulae as values, as numbers on signals, and as a kernel."""

from . import errors
from .compare import Comparison, compare
from .errors import ParseError, RhovecError
from .formula import Formula, Schema, parse, random_formulae, simplify
from .kernel import AnchorEmbedding, BooleanKernel, IntegratedKernel, KernelPCA, StlKernel
from .models.model import Model, RhovecWarning, load
from .robustness import robustness, satisfaction
from .search import Hit, Index
from .signals import BaseMeasure, Trajectories, read_traces

__version__ = "0.1.0"
__all__ = [
    "AnchorEmbedding",
    "BaseMeasure",
    "BooleanKernel",
    "Comparison",
    "Formula",
    "Hit",
    "Index",
    "IntegratedKernel",
    "KernelPCA",
    "Model",
    "ParseError",
    "RhovecError",
    "RhovecWarning",
    "Schema",
    "StlKernel",
    "Trajectories",
    "compare",
    "errors",
    "load",
    "parse",
    "random_formulae",
    "read_traces",
    "robustness",
    "satisfaction",
    "simplify",
]
