"""How fast formulae become vectors, from text; beside it, what exact signatures cost at equal error.

python benchmarks/embedding.py                       2000 formulae, on this CPU
python benchmarks/embedding.py --device cuda         the same on a GPU
python benchmarks/embedding.py --formulae FILE.csv   formulae of one's own (column `formula`)

Times include parsing. Loaded: medians in one process, after a first call. Fresh: a new process, from
`import rhovec` to the first vector and to all vectors. Signatures are the robustness vectors of the
teacher's kernel on N signals, drawn before; their error and the model's are mean absolute differences
from the kernel of 16,384 other signals over all pairs i != j. Without the shipped model or --model the
weights are random: times hold, the model's error does not. Needs torch for the torch rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rhovec.evaluation.claims import paper_costs

import rhovec as rv
from kernel import machine, read_formulae
from rhovec.corpus.families import Recipe, draw_families, find_families
from rhovec.corpus.text import texts as texts_of
from rhovec.evaluation.metrics import mean_error
from rhovec.models import store
from rhovec.models.config import EncoderConfig
from rhovec.models.model import DEFAULT, Model, load

RESULTS = Path(__file__).parents[1] / "results"
FORMULAE = 2000
IN_FAMILIES = 0.44  # so that formulae have 12.3 nodes on average, as the paper's test formulae
SIGNALS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
TRUTH_SIGNALS = 16_384
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


def test_formulae(n: int, seed: int) -> list[str]:
    """Texts of the corpus' test split: members of families, and single seeds."""
    alone = Recipe(seed=seed, family_size=1, shares=(1.0, 0.0, 0.0, 0.0))
    families = Recipe(seed=seed)
    found: list[str] = []
    for recipe, count in ((families, int(IN_FAMILIES * n)), (alone, n)):
        numbers = find_families(recipe, 0, -(-count // recipe.family_size), "test")
        data, ends = texts_of(draw_families(recipe, numbers).programs)
        raw = bytes(data)
        pairs = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        found += [raw[a:b].decode() for a, b in pairs][: min(count, n - len(found))]
    return found


def random_model(folder: Path) -> Path:
    """The default's shape with random weights."""
    config, rng = EncoderConfig(), np.random.default_rng(0)
    tensors = {
        name: rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
        for name, shape in config.shapes().items()
    }
    measure = asdict(rv.BaseMeasure(n_variables=config.channels, points=config.points))
    store.save(folder, config.to_dict(), tensors, {"teacher": {"measure": measure, "sigma2": 0.2}})
    return folder


def timed(work: Callable[[], Any], repeats: int) -> dict[str, float]:
    work()
    times, cpu = [], []
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return {
        "s": statistics.median(times), "s_min": min(times), "s_max": max(times),
        "cpu_s": statistics.median(cpu),
    }  # fmt: skip


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


def embedding(
    folder: Path, device: str | None, texts: list[str], repeats: int
) -> tuple[dict[str, Any], Model]:
    model = load(folder, device)
    row: dict[str, Any] = {
        "part": "model", "device": device, "n": len(texts), "repeats": repeats,
        **timed(lambda: model.embed(texts, warn=False), repeats),
        "one_s": timed(lambda: model.embed(texts[len(texts) // 2], warn=False), 20)["s"],
        **{f"fresh_{k}": v for k, v in fresh(folder, device, texts, repeats).items()},
    }  # fmt: skip
    print(f"{name_of(device):14s} {row['s']:.3f} s, {len(texts) / row['s']:,.0f} formulae/s",
          flush=True)  # fmt: skip
    return row, model


def signatures(
    model: Model, truth: np.ndarray, texts: list[str], repeats: int, seed: int
) -> list[dict[str, Any]]:
    """Error and cost of the exact kernel for each number of signals."""
    rows = []
    for n in SIGNALS:
        kernel = model.kernel(n, seed)
        for _ in kernel.signals():  # draw them
            pass
        rows.append({
            "part": "signatures", "N": n, "device": kernel.device,
            "error": mean_error(truth, kernel.gram(texts)),
            **timed(lambda kernel=kernel: kernel.signatures(texts), repeats),  # type: ignore[misc]
        })  # fmt: skip
        print(f"N {n:6d}  error {rows[-1]['error']:.4f}  {rows[-1]['s']:.3f} s", flush=True)
    return rows


def signals_of_equal_error(rows: list[dict[str, Any]], error: float) -> float:
    """N at which signatures have the error, which falls with the root of N."""
    scale = statistics.mean(r["error"] * r["N"] ** 0.5 for r in rows)
    return float((scale / error) ** 2)


def name_of(device: str | None) -> str:
    return "NumPy" if device is None else f"torch, {device}"


def report(facts: dict[str, Any]) -> str:
    host = ", ".join(f"{k} {v}" for k, v in facts["machine"].items())
    model, b, paper = facts["model"], facts["n"], paper_costs()[2000, 16000]
    lines = [
        "# From formulae to vectors", "",
        f"Command: `{facts['command']}`; seed {facts['seed']}. Machine: {host}.", "",
        f"{facts['formulae']}: {b} formulae, {facts['nodes']:.1f} nodes on average; parsing alone "
        f"takes {facts['parse_s']:.3f} s. Model: {model['name']}, {model['fingerprint']}. Times in "
        f"seconds, medians of {facts['repeats']}, from text. Paper: {paper['embed loaded']} s loaded, "
        f"{paper['embed full']} s with loading, for 2000 formulae on an A100.", "",
        f"| | {b} formulae, loaded | formulae/s | CPU seconds | one formula | import to first "
        f"vector | import to all {b} |", "|---" * 7 + "|",
    ]  # fmt: skip
    for r in facts["models"]:
        cells = [name_of(r["device"]), f"{r['s']:.3f} ({r['s_min']:.3f} to {r['s_max']:.3f})",
                 f"{b / r['s']:,.0f}", f"{r['cpu_s']:.2f}", f"{r['one_s']:.4f}",
                 f"{r['fresh_first_s']:.2f}", f"{r['fresh_all_s']:.2f}"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "", f"Exact signatures on N signals, {facts['signatures'][0]['device']}; error is that of "
        f"their kernel against one of {TRUTH_SIGNALS:,} signals. The model's error is "
        f"{model['error']:.4f}" + (" (its weights are random)." if model["random"] else
        f", which signatures have at N = {facts['equal_N']:,.0f}."), "",
        "| N | error | seconds | formulae/s | numbers a vector |", "|---" * 5 + "|",
    ]  # fmt: skip
    for r in facts["signatures"]:
        lines.append(
            f"| {r['N']} | {r['error']:.4f} | {r['s']:.3f} | {b / r['s']:,.0f} | {r['N']} |"
        )
    lines.append(f"| model | {model['error']:.4f} | {model['s']:.3f} | "
                 f"{b / model['s']:,.0f} | {model['dimension']} |")  # fmt: skip
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of embedding, and of exact signatures.")
    parser.add_argument("--model", type=Path, help="a model's folder (default: the shipped one)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--formulae", type=Path, help="a file (default: the corpus' test split)")
    parser.add_argument("--n", type=int, default=FORMULAE)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder")
    given = parser.parse_args()
    facts: dict[str, Any] = {
        "command": " ".join(["python benchmarks/embedding.py", *sys.argv[1:]]), "seed": given.seed,
        "machine": machine(given.device), "n": given.n, "repeats": given.repeats,
    }  # fmt: skip
    if given.formulae:
        texts = read_formulae(given.formulae, given.n)
        digest = hashlib.sha256(given.formulae.read_bytes()).hexdigest()
        facts["formulae"] = f"The first of {given.formulae.name} (SHA-256 {digest})"
    else:
        texts = test_formulae(given.n, given.seed)
        facts["formulae"] = "Held-out families and seeds of the corpus, over x_0 ... x_2"
    facts["nodes"] = statistics.mean(rv.parse(text).size for text in texts)
    facts["parse_s"] = timed(lambda: [rv.parse(text) for text in texts], given.repeats)["s"]

    with tempfile.TemporaryDirectory() as name:
        folder = given.model or (
            DEFAULT if DEFAULT.is_dir() else random_model(Path(name) / "model")
        )
        devices = [None, *(["cpu"] if find_spec("torch") and given.device == "cpu" else [])]
        if given.device != "cpu":
            devices.append(given.device)
        measured = [embedding(folder, device, texts, given.repeats) for device in devices]
    facts["models"] = [row for row, _ in measured]
    chosen, model = measured[0 if given.device == "cpu" else -1]
    truth = model.kernel(TRUTH_SIGNALS, given.seed + 1).gram(texts)
    vectors = model.embed(texts, warn=False).astype(np.float64)
    error = mean_error(truth, vectors @ vectors.T)
    facts["model"] = {
        "name": folder.name, "fingerprint": model.fingerprint, "dimension": model.dimension,
        "random": folder.parent == Path(name), "error": error, "s": chosen["s"],
    }  # fmt: skip
    facts["signatures"] = signatures(model, truth, texts, given.repeats, given.seed + 2)
    facts["equal_N"] = signals_of_equal_error(facts["signatures"], error)
    given.output.mkdir(parents=True, exist_ok=True)
    text = report(facts)
    target = given.output / f"embedding-{given.device.partition(':')[0]}"
    target.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    target.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
