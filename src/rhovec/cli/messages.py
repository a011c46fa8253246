"""Errors in the words of the command line.

The library's messages speak to Python (`pass rounding="nearest"`). This table is the only place that
knows how to say the same in options. A test reads all messages in the sources: a new one that names a
Python argument needs an entry here, or a reason why no command can cause it.
"""

from __future__ import annotations

import re

# What a message says in Python -> what to type instead.
HINTS = {
    'pass rounding="nearest", "down" or "up"': "give --rounding nearest, down or up",
    "pass the sampling step (dt)": "give the sampling step with --dt",
    "pass tolerance=..., or declare the variables discrete": (
        "give --tolerance, or name the variables with --discrete"
    ),
    "no file has the parameter": "--set: no file has the parameter",
    "pass its unit in units=...": "give its unit with --units",
    "needs the units of the variables (units=...)": "needs the unit of the variable, with --units",
    "pass labels=..., with its codes": "give them with --labels",
    "the sampling step; pass dt": "the sampling step; give it with --dt",
    'give longer traces, or end="hold"': "give longer traces, or --end hold",
    'ask for its values at all times (trace=True), or give end="hold"': (
        "ask for its values at all times with --trace, or give --end hold"
    ),
    "; name an array's variables with variables=[...]": "; --variables names those of an .npy file",
    'use device="cpu"': "give --device cpu",
    'device="cuda"': "--device cuda",
    'load it with device="cpu" or "cuda"': "give --device cpu or cuda",
    "leave out vectors=": "leave out --space",
    "open it with vectors=, that model": "name that model with --space",
    "(rv.simplify may do)": "(`rhovec parse` shows it simplified)",
    "give traces that have it, or lower the formula with a Schema": (
        "give --traces that have it, or a --schema"
    ),
    "lower the formula with a Schema first": "give a --schema",
    "bring its channel to smaller numbers with a Schema": "scale its channel with a --schema",
    "exact signatures: rv.StlKernel(...).signatures(formula)": (
        "exact signatures: `rhovec index build` without --space, or `rhovec similarity --by kernel`"
    ),
    'ask for kind="kernel"': "give --kind kernel",
    ", or in Python with rv.Index.upgrade(old, new)": "",
    "variables are named for": "--variables names those of",
    "resample the trace (rv.resample)": (
        "resample the trace (rv.resample in Python; `rhovec check` and `rhovec mine` have --resample)"
    ),
    "leave the column out with variables=[...]": "leave the column out with --variables",
    "try it with workers=1": "try it with --workers 1",
    "with time_column=..., and their unit, if it is not s, with time_unit=...;": (
        "with --time-column, and their unit, if it is not s, with --time-unit;"
    ),
    "s; leave out dt": "s; leave out --dt",
    "pass time_unit=": "give --time-unit ",
    "list it in variables, if": "list it in --variables, if",
    "or leave out held_out": "or leave out --held-out",
    "pass dt=..., the step of a log without times": "give --dt, the step of a log without times",
}
# Arguments that a message may begin with ("sigma2 must be positive"), and their options.
ARGUMENTS = {
    "budget": "--budget",
    "begin": "--begin",
    "channels": "--channels",
    "confidence": "--confidence",
    "dt": "--dt",
    "error": "--error",
    "families": "--families",
    "family_size": "--family-size",
    "folds": "--folds",
    "k": "-k",
    "layout": "--layout",
    "max_gap": "--max-gap",
    "max_nodes": "--max-nodes",
    "max_size": "--max-size",
    "missing": "--missing",
    "n_traces": "--n-traces",
    "points": "--points",
    "resample": "--resample",
    "rounding": "--rounding",
    "samples": "--samples",
    "seconds": "--seconds",
    "seed": "--seed",
    "sigma2": "--sigma2",
    "threshold": "--threshold",
    "time_unit": "--time-unit",
    "tolerance": "--tolerance",
    "variables": "--variables",
    "workers": "--workers",
}
_BEGINNING = re.compile(rf"({'|'.join(ARGUMENTS)})(?= (?:must|is|are) )")


def in_options(message: str) -> str:
    """A message of the library's, as the command line says it."""
    for python, option in HINTS.items():
        message = message.replace(python, option)
    found = _BEGINNING.match(message)
    return ARGUMENTS[found[1]] + message[found.end() :] if found else message
