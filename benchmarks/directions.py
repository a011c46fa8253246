"""How well directions (kind "cosine") and vectors (kind "kernel") give the kernel, for several models.

    python benchmarks/directions.py --formulae FILE.csv                        the shipped model
    python benchmarks/directions.py --formulae FILE.csv --before FOLDER        beside another one

Sets: the file's formulae, the headline set, held-out families over three and over eight channels, and
published requirements, in pairs within a system. The judge is the exact kernel on 65,536 traces that no
training saw. Its own noise is measured, as the mean difference of two such kernels on the first set, by
the square root of two. Writes results/directions.json and .md. --quick: small sizes, to see it work.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, command, head, save, table

sys.path.insert(0, str(ROOT))  # for the claims

from reproduction.measure import run
from rhovec import machine
from rhovec.cli.evaluate import sets_of
from rhovec.evaluation.encoder import TRACES_SEED
from rhovec.models.model import Model, load

TRACES, TRACES_QUICK = 65_536, 512
SEED = 0
CLAIMS = ("fidelity", "agreement", "library")
KINDS = {"cosine": "directions", "kernel": "vectors"}
SHOWN = (  # measures, and the aim for directions on each set that has one
    ("mean absolute error", {"file": 0.0012, "8 channels": 0.002}),
    ("overlap of 10 neighbours", {}),
    ("equivalent", {}),
    ("lexically similar", {}),
    ("same family", {"families": 0.003}),
    ("always-eventually", {"file": 0.004}),
    ("mean absolute error, pairs within a system", {"": 0.004}),
    ("mean absolute error, mean over systems", {"": 0.008}),
)


class Judge:
    """A kernel that computes the matrix of the same formulae only once."""

    def __init__(self, kernel: Any):
        self.kernel = kernel
        self.known: dict[Any, np.ndarray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def gram(self, formulae: Any, others: Any = None) -> np.ndarray:
        asked = tuple(formulae), others and tuple(others)
        if asked not in self.known:
            self.known[asked] = self.kernel.gram(formulae, others)
        return self.known[asked]


def rows_of(model: Model, judge: Any, kind: Any, files: list[Path], quick: bool) -> list[Any]:
    """Rows of the claims for one kind of vectors."""
    sets = [*(sets_of(files, model, SEED) if files else []), *sets_of([], model, SEED)]
    return run(CLAIMS, model, sets, judge, quick, SEED, kind=kind)


def noise(model: Model, files: list[Path], traces: int) -> float:
    """Mean absolute error of the judge on the first set."""
    formulae = sets_of(files, model, SEED)[0].formulae
    one, two = (model.kernel(traces, seed=TRACES_SEED + i).gram(formulae) for i in (0, 1))
    return float(np.abs(one - two)[~np.eye(len(one), dtype=bool)].mean() / 2**0.5)


def aim_of(measure: str, where: str, first: str) -> str:
    """The aim for directions, if there is one for this measure and set."""
    for part, aim in dict(SHOWN)[measure].items():
        if where == first if part == "file" else part in where:
            return f"≤ {aim:g}"
    return ""


def report(facts: dict[str, Any]) -> str:
    names = list(facts["models"])
    columns = [(name, kind) for kind in KINDS for name in reversed(names)]
    found = {
        (row["set"], row["measure"], name, kind): row
        for name, kinds in facts["models"].items()
        for kind, rows in kinds.items()
        for row in rows
    }
    first = facts["sets"][0]
    lines = []
    for where in dict.fromkeys(place for place, *_ in found):
        for measure, _ in SHOWN:
            cells = []
            for name, kind in columns:
                row = found.get((where, measure, name, kind))
                if row is None or row["value"] is None:
                    cells.append("")
                elif row.get("low") is None:
                    cells.append(f"{row['value']:.5f}")
                else:
                    cells.append(f"{row['value']:.5f} [{row['low']:.5f}, {row['high']:.5f}]")
            if any(cells):
                n = next(r["n"] for k, r in found.items() if k[:2] == (where, measure))
                lines.append([where, measure, f"{n:,}", *cells, aim_of(measure, where, first)])
    heads = [f"{KINDS[kind]}, {name}" for name, kind in columns]
    return "\n".join([
        "# Directions and vectors against the kernel", "",
        head(facts), "",
        f"Mean absolute errors of the kernel against {facts['traces']:,} traces that no training saw, "
        "with 95 % bootstrap intervals over formulae or families; n counts formulae, pairs or systems. "
        f"The judge's own error is {facts['noise']:.5f} ({first}). Files by SHA-256: "
        + "; ".join(f"{name} {digest}" for name, digest in facts["files"].items()) + ".", "",
        *table(["set", "measure", "n", *heads, "aim for directions"], lines), "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Directions and vectors against the kernel.")
    parser.add_argument("--formulae", type=Path, nargs="*", default=[])
    parser.add_argument("--before", type=Path, help="folder of a model to compare with")
    parser.add_argument("--model", type=Path, help="a model's folder (default: the shipped one)")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    models = {"now": load(given.model)}
    if given.before:
        models["before"] = load(given.before)
    traces = TRACES_QUICK if given.quick else TRACES
    judge = Judge(models["now"].kernel(traces, seed=TRACES_SEED))
    facts: dict[str, Any] = {
        "command": command(), "seed": SEED, "machine": machine.facts(None), "traces": traces,
        "fingerprints": {name: model.fingerprint for name, model in models.items()},
        "models": {
            name: {kind: rows_of(model, judge, kind, given.formulae, given.quick) for kind in KINDS}
            for name, model in models.items()
        },
        "noise": noise(models["now"], given.formulae, traces),
    }  # fmt: skip
    rows = facts["models"]["now"]["cosine"]
    facts["files"] = {row["set"]: row["sha256"] for row in rows if row.get("sha256")}
    facts["sets"] = list(facts["files"])
    for kinds in facts["models"].values():
        for kind, found in kinds.items():
            kinds[kind] = [{k: v for k, v in row.items() if k != "counts"} for row in found]
    save("directions-quick" if given.quick else "directions", facts, report(facts))


if __name__ == "__main__":
    main()
