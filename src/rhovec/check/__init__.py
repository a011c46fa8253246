"""What logs show about requirements, where, and why."""

from .explain import Explanation, explain
from .logs import Log
from .verdict import Outcome, Verdict, verdicts

__all__ = ["Explanation", "Log", "Outcome", "Verdict", "explain", "verdicts"]
