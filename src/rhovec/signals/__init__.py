"""Signals: the base measure mu0, and the user's own trajectories with their files."""

from .measure import BaseMeasure, Measure, Trajectories
from .traces import Traces, read_traces

__all__ = ["BaseMeasure", "Measure", "Traces", "Trajectories", "read_traces"]
