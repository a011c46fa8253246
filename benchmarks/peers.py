"""The libraries that rhovec is measured beside: their environments, and one question to any of them.

Each library lives in a virtual environment of its own under .peers/ (their pins contradict each
other), made on first use from the table below. `ask` runs adapters.py inside it on a job, so that
all libraries, rhovec included, see the same formulae and traces and are timed by the same code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rhovec.formula import operators as ops
from rhovec.formula.core import Formula
from rhovec.machine import facts

ROOT = Path(__file__).resolve().parent.parent
# torch stands before stlcgpp, whose own requirement would take the newest build with CUDA.
PINS = {
    "rtamt": ["rtamt==0.4.10", "numpy==2.4.6"],
    "stljax": ["stljax==1.1.3", "jax==0.10.2", "numpy==2.4.6"],
    "stlcgpp": ["torch==2.13.0", "stlcgpp==0.0.2", "numpy==2.4.6"],
    "pytelo": ["pytelo==1.0.3", "numpy==2.4.6"],
}

Row = list[Any]  # [operator, lo, hi (None: unbounded), variable or None, threshold]
Program = list[Row]  # a formula in postfix order, as JSON carries it; to rtamt, also as its text


def environment(peer: str) -> Path:
    """The library's Python; its environment is made when missing or when the pins have changed."""
    if peer == "rhovec":
        return Path(sys.executable)
    folder = ROOT / ".peers" / peer
    python, stamp, pins = folder / "bin" / "python", folder / "pins.txt", "\n".join(PINS[peer])
    if not stamp.exists() or stamp.read_text() != pins:
        print(f"making .peers/{peer}: {' '.join(PINS[peer])}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PINS[peer]], check=True)
        stamp.write_text(pins)
    return python


def item(
    formulae: Sequence[Program | str],
    traces: Path,
    n: int,
    *,
    trace: bool,
    defaults: bool = False,
    repeats: int = 0,
    seconds: float = 0.0,
    memory: bool = False,
) -> dict[str, Any]:
    """A piece of work: formulae on the first n traces of an npy file, (N, V, P) float32.

    defaults: the library as it comes, not with the options that bring it nearest to rhovec.
    repeats, seconds: limits on the number of calls and on their total time (at least three are made).
    memory: measure by how much the first call grows the process.
    """
    return {
        "formulae": list(formulae), "traces": str(traces), "n": n, "trace": trace,
        "defaults": defaults, "repeats": repeats, "seconds": seconds, "memory": memory,
    }  # fmt: skip


def ask(peer: str, items: Sequence[dict[str, Any]], one_core: bool = False) -> list[dict[str, Any]]:
    """Do `items` in the library's environment, in order and in one process; one answer an item.

    An answer is error, or values (B, n) or (B, n, P), convert_s, build_s, first_s (the first call
    less a usual one), times_s (the timed calls), and peak_bytes where memory was asked for.
    """
    with tempfile.TemporaryDirectory() as folder:
        job, out = Path(folder, "job.json"), Path(folder, "answers.json")
        job.write_text(json.dumps(list(items)))
        pin = ["taskset", "--cpu-list", "0"] if one_core else []
        subprocess.run(
            [*pin, environment(peer), ROOT / "benchmarks" / "adapters.py", peer, job, out],
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        answers: list[dict[str, Any]] = json.loads(out.read_text())
        for answer in answers:
            if "error" not in answer:
                answer["values"] = np.load(answer["values"])
    return answers


def program(phi: Formula) -> Program:
    """A formula over single variables, in the form that a job carries."""
    return [
        [
            ops.NAMES[op],
            lo,
            None if hi == ops.UNBOUNDED else hi,
            channel[0][0] if channel else None,
            c,
        ]
        for op, lo, hi, channel, c in phi.rows()
    ]


def closed_until(rows: Program) -> Program:
    """Every `a until b` as `a until (a and b)`, and since in the same way: the same formula where a must
    still hold at t', the textbook's where it need not, so libraries of either convention agree on it."""
    stack: list[Program] = []
    for row in rows:
        if row[3] is not None:
            stack.append([row])
        elif ops.arity(ops.NAMES.index(row[0])) == 1:
            stack.append([*stack.pop(), row])
        else:
            right, left = stack.pop(), stack.pop()
            if row[0] in ("until", "since"):
                right = [*left, *right, ["and", 0, 0, None, 0.0]]
            stack.append([*left, *right, row])
    return stack[-1]


def random_walks(n: int, points: int, seed: int) -> np.ndarray:
    """(n, 3, points) float32: sums of normal steps that spread to about one by the last point."""
    steps = np.random.default_rng(seed).standard_normal((n, 3, points))
    return np.asarray(np.cumsum(steps, axis=-1) / np.sqrt(points), np.float32)


def machine() -> dict[str, Any]:
    """What a figure depends on besides the code, with the versions of all libraries."""
    pins = dict(pin.split("==") for pins in PINS.values() for pin in pins[:-1])
    versions = {name: version(name) for name in ("numpy", "numba")} | pins
    return facts(packages=()) | {"versions": versions}
