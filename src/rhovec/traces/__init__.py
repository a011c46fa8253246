"""Traces: the base measure mu0, and the user's own traces with their files."""

from .measure import BaseMeasure, Measure, TraceMeasure
from .reading import Traces, read_traces

__all__ = ["BaseMeasure", "Measure", "TraceMeasure", "Traces", "read_traces"]
