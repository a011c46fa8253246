"""What logs show about requirements, where, and why."""

from .explain import Explanation, explain
from .sampled import Sampled
from .verdict import Outcome, Verdict, verdicts

__all__ = ["Explanation", "Outcome", "Sampled", "Verdict", "explain", "verdicts"]
