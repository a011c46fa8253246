"""What logs show about requirements, where, and why."""

from .explain import Explanation, explain
from .logs import Checked, Plan, check_files
from .report import Report, check_logs, plan_of, report_of
from .rows import Row
from .sampled import Sampled
from .verdict import Outcome, Verdict, verdicts

__all__ = [
    "Checked",
    "Explanation",
    "Outcome",
    "Plan",
    "Report",
    "Row",
    "Sampled",
    "Verdict",
    "check_files",
    "check_logs",
    "explain",
    "plan_of",
    "report_of",
    "verdicts",
]
