"""Traces: the base measure mu0, the user's own traces, and logs as their files have them."""

from .derived import derive
from .logs import Channel, Log, read_logs
from .measure import BaseMeasure, Measure, TraceMeasure
from .reading import Traces, read_traces
from .resampling import Filled, Grid, resample

__all__ = [
    "BaseMeasure",
    "Channel",
    "Filled",
    "Grid",
    "Log",
    "Measure",
    "TraceMeasure",
    "Traces",
    "derive",
    "read_logs",
    "read_traces",
    "resample",
]
