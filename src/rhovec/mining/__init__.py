"""From labelled traces to formulae that tell the classes apart."""

from .result import Mined

__all__ = ["Mined"]
