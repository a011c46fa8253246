"""How fast formulae become vectors, and what exact signatures of the same error cost.

python benchmarks/embedding.py                       2000 formulae, on this CPU
python benchmarks/embedding.py --device cuda         the same on a GPU
python benchmarks/embedding.py --formulae FILE.csv   your own formulae (column `formula`)
python benchmarks/embedding.py --curve --formulae FILE.csv   error against formulae per second, only:
    all shipped models, precisions and kinds of vectors, and signatures of 100 to 65,536 traces
python benchmarks/embedding.py --figure docs/speed.svg       draws the stored curves

Encoder and signatures are timed from the same texts, through the same reader, and from the same parsed
batch; reading the texts is a row of its own. Loaded: medians in one process, after a first call.
Fresh: a new process, from `import rhovec` to the first vector and to all vectors. Signatures are the
robustness vectors of the teacher's kernel on N traces, drawn before; their error and the model's are
mean absolute differences from the kernel on 16,384 other traces over all pairs i != j. Needs torch for
the torch rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from common import RESULTS, command, formulae, head, save, table
from rhovec import machine
from rhovec.evaluation.metrics import mean_error
from rhovec.evaluation.speed import JUDGES, Curve, timed
from rhovec.formula.programs import Programs
from rhovec.formula.reader import parse_programs
from rhovec.models.model import DEFAULT, Model, load, shipped

FORMULAE = 2000
TRACES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
TRUTH_TRACES = 16_384
CURVE_TRACES = (100, 250, 500, 1000, 2048, 4096, 8192, 16_384, 32_768, 65_536)
FRESH = """
import json, sys, time
start = time.perf_counter()
import rhovec
from rhovec.models.model import load
imported = time.perf_counter()
folder, device, texts = json.load(sys.stdin)
model = load(folder, device)
loaded = time.perf_counter()
model.embed(texts[0], warn=False)
first = time.perf_counter()
model.embed(texts, warn=False)
done = time.perf_counter()
print(json.dumps({"import_s": imported - start, "load_s": loaded - imported,
    "first_s": first - start, "all_s": done - start,
    "torch": "torch" in sys.modules}))
"""


def fresh(folder: Path, device: str | None, texts: list[str], repeats: int) -> dict[str, Any]:
    """Medians over new processes."""
    runs = []
    for _ in range(repeats):
        run = subprocess.run(
            [sys.executable, "-c", FRESH], input=json.dumps([str(folder), device, texts]),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        runs.append(json.loads(run.stdout))
    assert all(run["torch"] == (device is not None) for run in runs)
    return {key: statistics.median(run[key] for run in runs) for key in runs[0] if key != "torch"}


def both(work: Any, texts: list[str], parsed: Programs, repeats: int) -> dict[str, float]:
    """Seconds from texts, and those from formulae parsed before, named parsed_s and so on."""
    found = timed(lambda: work(parsed), repeats)
    return timed(lambda: work(texts), repeats) | {f"parsed_{k}": v for k, v in found.items()}


def embedding(
    folder: Path, device: str | None, texts: list[str], parsed: Programs, repeats: int
) -> tuple[dict[str, Any], Model]:
    model = load(folder, device)
    row: dict[str, Any] = {
        "part": "model", "device": device, "n": len(texts), "repeats": repeats,
        **both(lambda given: model.embed(given, warn=False), texts, parsed, repeats),
        "one_s": timed(lambda: model.embed(texts[len(texts) // 2], warn=False), 20)["s"],
        **{f"fresh_{k}": v for k, v in fresh(folder, device, texts, repeats).items()},
    }  # fmt: skip
    print(f"{name_of(device):14s} {row['s']:.3f} s, parsed {row['parsed_s']:.3f} s", flush=True)
    return row, model


def signatures(
    model: Model,
    truth: np.ndarray,
    texts: list[str],
    parsed: Programs,
    repeats: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Error and cost of the exact kernel for each number of traces."""
    rows = []
    for n in TRACES:
        kernel = model.kernel(n, seed)
        for _ in kernel.traces():  # draws them
            pass
        rows.append({
            "part": "signatures", "N": n, "device": kernel.device,
            "error": mean_error(truth, kernel.gram(parsed)),
            **both(kernel.signatures, texts, parsed, repeats),
        })  # fmt: skip
        r = rows[-1]
        print(
            f"N {n:6d}  error {r['error']:.4f}  {r['s']:.3f} s, parsed {r['parsed_s']:.3f} s",
            flush=True,
        )
    return rows


def curve_page(facts: dict[str, Any]) -> str:
    """The curve as a table."""
    rows = [
        [r["name"], f"{r['error']:.5f}", f"{r['per_second']:,.0f}", f"{r['cpu_s']:.3f}",
         f"{r['numbers']}"]
        for r in facts["rows"]
    ]  # fmt: skip
    heads = ("", "error", "formulae per second", "CPU seconds", "numbers per vector")
    return "\n".join([
        "# Error against speed", "", head(facts), "",
        f"{facts['formulae']}: {facts['n']} formulae, {facts['nodes']:.1f} nodes on average, from "
        f"texts, through one reader; the fastest of {facts['repeats']} calls. Mean absolute error over "
        f"all pairs against the mean of two kernels on {JUDGES:,} traces, whose own noise is "
        f"{facts['noise']:.5f}.", "", *table(heads, rows), "",
    ])  # fmt: skip


def draw_curves(path: Path, folder: Path) -> None:
    """The stored curves, one panel per device."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    found = [(d, folder / f"embedding-curve-{d}.json") for d in ("cpu", "cuda")]
    found = [(d, json.loads(file.read_text())) for d, file in found if file.exists()]
    if not found:
        sys.exit(f"{folder} has no embedding-curve-*.json; run with --curve first")
    plt.rcParams["svg.hashsalt"] = "rhovec"  # the same file from the same numbers
    figure, axes = plt.subplots(1, len(found), figsize=(6 * len(found), 4.2), squeeze=False)
    for axis, (device, facts) in zip(axes[0], found, strict=True):
        exact = [r for r in facts["rows"] if r["part"] == "signatures"]
        axis.plot([r["per_second"] for r in exact], [r["error"] for r in exact], "-o", color="0.45",
                  markersize=4, label="exact signatures, N traces")  # fmt: skip
        for r in exact:
            axis.annotate(f"{r['numbers']:,}", (r["per_second"], r["error"]), fontsize=7,
                          color="0.4", textcoords="offset points", xytext=(5, -9))  # fmt: skip
        for r in facts["rows"]:
            if r["part"] == "encoder":
                style = {"cosine": "D", "kernel": "s"}[r["kind"]]
                colour = f"C{shipped().index(r['model'])}"
                fill = "none" if r["way"] == "NumPy" else colour
                axis.plot(r["per_second"], r["error"], style, markersize=7, color=colour,
                          markerfacecolor=fill, label=r["name"])  # fmt: skip
        axis.set(
            xscale="log", yscale="log", ylabel="mean error of the kernel",
            xlabel="formulae per second, from texts (right and low is better)",
        )  # fmt: skip
        axis.xaxis.set_minor_formatter(NullFormatter())
        where = "two cores" if facts["machine"].get("cores") == 2 else "this CPU"
        axis.set_title("NVIDIA H200" if device == "cuda" else where, fontsize=10)
        axis.legend(fontsize=7)
        axis.grid(True, which="both", alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def traces_of_equal_error(rows: list[dict[str, Any]], error: float) -> float:
    """N at which signatures have this error, which falls with the square root of N."""
    scale = statistics.mean(r["error"] * r["N"] ** 0.5 for r in rows)
    return float((scale / error) ** 2)


def name_of(device: str | None) -> str:
    return "NumPy" if device is None else f"torch, {device}"


def spread(row: dict[str, Any], name: str) -> str:
    return f"{row[f'{name}s']:.3f} ({row[f'{name}s_min']:.3f} to {row[f'{name}s_max']:.3f})"


def report(facts: dict[str, Any]) -> str:
    model, b, parse = facts["model"], facts["n"], facts["parse"]
    lines = [
        "# From formulae to vectors", "", head(facts), "",
        f"{facts['formulae']}: {b} formulae, {facts['nodes']:.1f} nodes on average. Model: "
        f"{model['name']}, {model['fingerprint']}. Times in seconds, medians of {facts['repeats']}. "
        "Both sides start from the same texts, read by the same reader, or from the same "
        f"parsed batch. Reading the texts takes {spread(parse, '')} s by itself.", "",
        *table(
            (f"{b} formulae, loaded", "from texts", "parsed before", "CPU seconds", "one formula",
             "import to first vector", f"import to all {b}"),
            [
                [name_of(r["device"]), spread(r, ""), spread(r, "parsed_"), f"{r['cpu_s']:.3f}",
                 f"{r['one_s']:.4f}", f"{r['fresh_first_s']:.2f}", f"{r['fresh_all_s']:.2f}"]
                for r in facts["models"]
            ],
        ),
        "", f"Exact signatures on N traces, {facts['signatures'][0]['device']}. The error is that of "
        f"their kernel against one on {TRUTH_TRACES:,} traces. The model's error is "
        f"{model['error']:.4f}, which signatures reach at N = {facts['equal_N']:,.0f}.", "",
    ]  # fmt: skip
    rows = [
        [f"{r['N']}", f"{r['error']:.4f}", spread(r, ""), spread(r, "parsed_"), f"{r['N']}"]
        for r in facts["signatures"]
    ]
    rows.append(["model", f"{model['error']:.4f}", spread(model, ""), spread(model, "parsed_"),
                 f"{model['dimension']}"])  # fmt: skip
    heads = ("N", "error", "from texts", "parsed before", "numbers per vector")
    return "\n".join([*lines, *table(heads, rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of embedding, and of exact signatures.")
    parser.add_argument("--model", type=Path, default=DEFAULT, help="a model's folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--formulae", type=Path, help="a file (default: the corpus' test split)")
    parser.add_argument("--n", type=int, default=FORMULAE)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder")
    parser.add_argument("--curve", action="store_true", help="error against speed, only")
    parser.add_argument("--figure", type=Path, help="draw the stored curves to this file, only")
    given = parser.parse_args()
    if given.figure:
        draw_curves(given.figure, given.output)
        return
    texts, where = formulae(given.formulae, given.n)
    parsed = parse_programs(texts)
    packages = ["numpy", "numba", *(["torch"] if find_spec("torch") else [])]
    facts: dict[str, Any] = {
        "command": command(), "seed": given.seed,
        "machine": machine.facts(given.device, packages), "n": given.n, "repeats": given.repeats,
        "formulae": where, "nodes": len(parsed.code) / len(parsed),
        "parse": timed(lambda: parse_programs(texts), given.repeats),
    }  # fmt: skip
    if given.curve:
        device = None if given.device == "cpu" else given.device
        curve = Curve(shipped(), texts, device, repeats=given.repeats, seed=given.seed)
        facts |= {"noise": curve.noise, "rows": []}
        for row in curve.rows(CURVE_TRACES):
            facts["rows"].append(row)
            print(f"{row['name']:40s} {row['error']:.5f}  {row['per_second']:,.0f}/s", flush=True)
        name = f"embedding-curve-{given.device.partition(':')[0]}"
        save(name, facts, curve_page(facts), given.output)
        return
    devices = [None, *(["cpu"] if find_spec("torch") and given.device == "cpu" else [])]
    if given.device != "cpu":
        devices.append(given.device)
    measured = [embedding(given.model, d, texts, parsed, given.repeats) for d in devices]
    facts["models"] = [row for row, _ in measured]
    chosen, model = measured[0 if given.device == "cpu" else -1]
    truth = model.kernel(TRUTH_TRACES, given.seed + 1).gram(parsed)
    vectors = model.embed(parsed, warn=False).astype(np.float64)
    error = mean_error(truth, vectors @ vectors.T)
    facts["model"] = chosen | {
        "name": given.model.name, "fingerprint": model.fingerprint, "dimension": model.dimension,
        "error": error,
    }  # fmt: skip
    facts["signatures"] = signatures(model, truth, texts, parsed, given.repeats, given.seed + 2)
    facts["equal_N"] = traces_of_equal_error(facts["signatures"], error)
    save(f"embedding-{given.device.partition(':')[0]}", facts, report(facts), given.output)


if __name__ == "__main__":
    main()
