"""The language: formulae as values, their text, their laws, and random ones. Needs only numpy."""

from .core import Formula
from .parser import parse

__all__ = ["Formula", "parse"]
