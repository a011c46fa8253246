"""The language: formulae as values, their text, their laws, and random ones. Needs only numpy."""

from .core import Formula
from .parser import parse
from .requirements import Requirement, read_requirements
from .sample import random_formulae
from .schema import Schema
from .simplify import simplify

__all__ = [
    "Formula",
    "Requirement",
    "Schema",
    "parse",
    "random_formulae",
    "read_requirements",
    "simplify",
]
