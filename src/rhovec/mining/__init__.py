"""From labelled traces to formulae that tell the classes apart."""

from .bounded import Bounded
from .fit import mine
from .labels import read_labelled
from .result import Mined
from .several import DecisionList

__all__ = ["Bounded", "DecisionList", "Mined", "mine", "read_labelled"]
