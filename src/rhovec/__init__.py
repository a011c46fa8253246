"""rhovec: Signal Temporal Logic formulae as values, and their robustness on many signals at once."""

from . import errors
from .errors import ParseError, RhovecError
from .formula import Formula, Schema, parse, random_formulae, simplify
from .robustness import robustness, satisfaction

__version__ = "0.1.0"
__all__ = [
    "Formula",
    "ParseError",
    "RhovecError",
    "Schema",
    "errors",
    "parse",
    "random_formulae",
    "robustness",
    "satisfaction",
    "simplify",
]
