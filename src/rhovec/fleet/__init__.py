"""Formulae on traces by the million: files in folders or object storage, on cores or on a cluster.

table  traces in an Arrow table -> results in an Arrow table, and what results add up to
cuts   files -> tasks: small files together, large ones cut between traces
run    tasks -> one result file each, and a report
"""

from .run import FleetReport, evaluate_files
from .table import Summary, evaluate_table

__all__ = ["FleetReport", "Summary", "evaluate_files", "evaluate_table"]
