"""Formulae on traces by the million: files in folders or object storage, on cores or on a cluster.

table  traces in an Arrow table -> results in an Arrow table, and what results add up to
cuts   files -> tasks: small files together, large ones cut between traces
parts  tasks -> one result file each, which a later run finds; what they add up to
run    formulae on files: the report
"""

from .run import FleetReport, evaluate_files
from .table import Summary, evaluate_table

__all__ = ["FleetReport", "Summary", "evaluate_files", "evaluate_table"]
