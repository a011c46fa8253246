"""Efficiency: seconds and peak memory of the exact kernel and of an encoder, at the paper's sizes.

Jobs: `embed` returns a vector for each of B formulae (robustness on N traces, or the encoder's
vector), `pairs` all B^2 similarities, embedding included. Both start from texts, which both sides read
with the same reader. `embed parsed` and `pairs parsed` start from one parsed batch (`Programs`),
and `parse` is the reader by itself. States: in `loaded` calls the traces are drawn or the model is
loaded already; `full` includes that, and a first call on a few formulae that loads what calls need.

Every B of the encoder, and every N of the kernel with all its B, smallest first, has its own process.
There the full calls come first and then repeated loaded calls, whose peak memory is counted from the
first of them on. Importing rhovec, and compiling for the first time ever, are not counted. Memory, in
10^6 bytes, is the resident memory of the whole process plus what torch allocates on the GPU.

A cell that is expected to take longer than a budget, or that runs out of memory, is projected from the
largest smaller one: seconds of embed grow with B N, those of pairs with B^2 N (the paper says B^2 N P,
but each trace gives one number), and memory grows by the traces and the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rhovec.errors import RhovecError
from rhovec.evaluation.sets import complete_seeds
from rhovec.formula.reader import parse_programs
from rhovec.kernel import Progress, StlKernel
from rhovec.models.model import load
from rhovec.traces import BaseMeasure

SIZES = (500, 1000, 2000, 4000)  # B of the paper's appendix
TRACES = (500, 1000, 2000, 4000, 8000, 16000)  # N
POINTS = 1000
WARM_UP = 64  # formulae of the call that loads what calls need
VARIABLES = 3
QUICK: dict[str, Any] = {"sizes": (100, 200), "traces": (500, 1000), "repeats": 1}
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
OUT_OF_MEMORY = 77  # a worker's exit status; one that the system kills has -9

Size = tuple[int, int | None]  # B, and N or, for the encoder, None
Cell = dict[tuple[str, str], dict[str, Any]]  # (job, state) -> seconds and memory
Calls = dict[str, Callable[[Any], Any]]  # job -> a call on texts or Programs


def efficiency(
    texts: Sequence[str] | None = None,
    *,
    model: str | Path | None = None,
    device: str = "cpu",
    sizes: Sequence[int] = SIZES,
    traces: Sequence[int] = TRACES,
    points: int = POINTS,
    repeats: int = 3,
    budget: float = 60.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """A row for each job, side (kernel, encoder or reader), state, B and, for the kernel, N.

    texts: formulae over x_0 ... x_2, of which a cell takes the first B (default: the sequence that
    the headline set is the beginning of). model: a folder (default: the shipped model). device: "cpu"
    (the encoder in NumPy) or "cuda". budget: seconds that one call may take.

    `value` is the median of n calls in seconds, `low` and `high` the shortest and the longest;
    `memory_mb` is the sum of `ram_mb` and `vram_mb`. Where `projected` is true nothing was run, and
    `why` gives the reason.
    """
    StlKernel(device=device)  # refuses a device that is not there
    drawn = texts is None
    texts = list(map(str, complete_seeds(max(sizes)))) if texts is None else list(texts)
    if max(sizes) > len(texts):
        raise RhovecError(f"B = {max(sizes)} needs as many formulae, and there are {len(texts)}")
    used = "".join(f"{text}\n" for text in texts[: max(sizes)])
    common = {
        "claim": "efficiency", "set": "complete test seeds" if drawn else "given formulae",
        "sha256": hashlib.sha256(used.encode()).hexdigest(), "points": points, "device": device,
        "unit": "s",
    }  # fmt: skip
    order = {
        "device": device, "model": None if model is None else str(model), "points": points,
        "seed": seed,
    }  # fmt: skip
    for n in (None, WARM_UP):  # compiles once and for all what has not been compiled yet
        _measure(
            {**order, "texts": texts, "sizes": [WARM_UP], "N": n, "repeats": 1, "budget": budget}
        )
    groups: list[tuple[int | None, list[int]]] = [(None, [b]) for b in sorted(sizes)]
    groups += [(n, sorted(sizes)) for n in sorted(traces)]
    known: dict[Size, Cell] = {}
    rows = []
    for i, (n, wanted) in enumerate(groups):
        tried = [b for b in wanted if _longest(_projection(known, (b, n), points)) <= budget]
        asked = {"texts": texts[: max(sizes)], "sizes": tried, "N": n, "repeats": repeats}
        cells, fits = _measure({**order, **asked, "budget": budget}) if tried else ([], True)
        known |= {(b, n): cell for b, cell in zip(tried, cells, strict=False)}
        for b in wanted:
            found = known.get((b, n))
            cell = found or _projection(known, (b, n), points)
            if cell is None:
                raise RhovecError(f"not even B = {b} fits into memory; ask for smaller sizes")
            large = "it does not fit into memory"
            slow = f"a call might take more than {budget:g} s"
            why = {} if found else {"why": slow if fits or b not in tried else large}
            size = f"B = {b}" if n is None else f"B = {b}, N = {n}"
            for (what, state), part in cell.items():
                side = "reader" if what == "parse" else "encoder" if n is None else "kernel"
                rows.append({
                    "measure": f"{what}, {side}, {state}, {size}", "what": what, "side": side,
                    "state": state, "B": b, "N": n, **part, "projected": not found, **why, **common,
                })  # fmt: skip
        if progress:
            progress((i + 1) / len(groups))
    return rows


def _longest(cell: Cell | None) -> float:
    """Seconds of the longest call of a cell; 0 if nothing is known."""
    return max(part["value"] for part in cell.values()) if cell else 0.0


def _projection(known: dict[Size, Cell], size: Size, points: int) -> Cell | None:
    """Expected costs of a size, from the largest smaller one that was measured."""
    (b, n), encoder = size, size[1] is None
    smaller = [
        (m, k) for m, k in known if (k is None) == encoder and m <= b and (k or 1) <= (n or 1)
    ]
    if not smaller:
        return None
    m, k = max(smaller, key=lambda cell: (cell[0] * (cell[1] or 1), cell[0]))
    growth = b / m, (n or 1) / (k or 1)

    def held(b: int, n: int | None, what: str) -> float:
        """10^6 bytes of traces and of the result."""
        pairs = what.startswith("pairs")
        columns = b * (4 if encoder else 8) if pairs else 0 if n is None else 4 * n
        return ((n or 0) * VARIABLES * points * 4 + b * columns) / 1e6

    out = {}
    for (what, state), part in known[m, k].items():
        factor = growth[0] ** (2 if what.startswith("pairs") else 1) * growth[1]
        out[what, state] = {
            "n": 0, **{name: factor * part[name] for name in ("value", "low", "high")},
            "memory_mb": part["memory_mb"] + held(b, n, what) - held(m, k, what),
        }  # fmt: skip
    return out


def _measure(order: dict[str, Any]) -> tuple[list[Cell], bool]:
    """What a worker finds for the first of the order's sizes, and whether memory sufficed."""
    import rhovec

    here = [str(Path(__file__).parents[1]), str(Path(rhovec.__file__).parents[1])]
    paths = [*here, *filter(None, [os.environ.get("PYTHONPATH")])]
    run = subprocess.run(
        [sys.executable, "-m", "reproduction.efficiency"], input=json.dumps(order),
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    if run.returncode not in (0, OUT_OF_MEMORY, -9):
        raise RhovecError(
            f"measuring failed: {(run.stderr.strip() or 'no message').splitlines()[-1]}"
        )
    cells = [json.loads(line) for line in run.stdout.splitlines()]
    return [
        {(what, state): costs for what, state, costs in cell} for cell in cells
    ], not run.returncode


# -- in a process of its own -----------------------------------------------------------------------


def worker() -> None:
    """Read an order from standard input, and print a line of JSON for each cell."""
    order = json.load(sys.stdin)
    try:
        for cell in _cells(order):
            print(json.dumps([(*key, costs) for key, costs in cell.items()]), flush=True)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    except RuntimeError as error:  # torch's own has no name without torch
        if type(error).__name__ != "OutOfMemoryError":
            raise
        sys.exit(OUT_OF_MEMORY)


def _cells(order: dict[str, Any]) -> Iterator[Cell]:
    """A cell for each of the sizes until one is expected to take longer than the budget."""
    texts, encoder = order["texts"], order["N"] is None
    watch = Watch(order["device"])
    start = watch.now()
    calls = (_encoder if encoder else _kernel)(order)
    for call in calls.values():
        call(texts[:WARM_UP])
    ready = watch.now() - start

    def measured(times: list[float]) -> dict[str, Any]:
        return {
            "n": len(times), "value": statistics.median(times), "low": min(times),
            "high": max(times), **watch.peaks(),
        }  # fmt: skip

    def seconds(call: Callable[[Any], Any], formulae: Any) -> float:
        start = watch.now()
        call(formulae)
        return watch.now() - start

    def repeated(call: Callable[[Any], Any], formulae: Any) -> dict[str, Any]:
        watch.reset()
        return measured([seconds(call, formulae) for _ in range(order["repeats"])])

    found: Cell = {}
    before = 0
    for b in order["sizes"]:
        if found and _longest(found) * (b / before) ** 2 > order["budget"]:
            return
        found, before = {}, b
        for what, call in calls.items():
            found[what, "full"] = measured([ready + seconds(call, texts[:b])])
        for what, call in calls.items():
            found[what, "loaded"] = repeated(call, texts[:b])
        parsed = parse_programs(texts[:b])
        for what, call in calls.items():
            found[f"{what} parsed", "loaded"] = repeated(call, parsed)
        if encoder:
            found["parse", "loaded"] = repeated(parse_programs, texts[:b])
        yield found


def _kernel(order: dict[str, Any]) -> Calls:
    measure = BaseMeasure(n_variables=VARIABLES, points=order["points"])
    kernel = StlKernel(measure, order["N"], seed=order["seed"], device=order["device"])
    for _ in kernel.traces():  # draws them
        pass
    return {"embed": kernel.signatures, "pairs": kernel.gram}


def _encoder(order: dict[str, Any]) -> Calls:
    device = order["device"]
    model = load(order["model"], None if device == "cpu" else device)

    def embed(formulae: Any) -> Any:
        return model.embed(formulae, warn=False)

    def pairs(formulae: Any) -> Any:
        vectors = embed(formulae)
        if device == "cpu":
            return vectors @ vectors.T
        import torch

        there = torch.from_numpy(vectors).to(device)
        return (there @ there.T).cpu().numpy()

    return {"embed": embed, "pairs": pairs}


class Watch:
    """Clock that waits for the device to finish, and peak memory."""

    def __init__(self, device: str):
        self.cuda: Any = None
        if device != "cpu":
            import torch

            self.cuda = torch.cuda
            self.cuda.init()

    def now(self) -> float:
        if self.cuda:
            self.cuda.synchronize()
        return time.perf_counter()

    def reset(self) -> None:
        """Forget earlier peaks (of resident memory where the system can)."""
        if os.access(RESET, os.W_OK):
            RESET.write_text("5")
        if self.cuda:
            self.cuda.reset_peak_memory_stats()

    def peaks(self) -> dict[str, float]:
        found = re.search(r"VmHWM:\s+(\d+)", STATUS.read_text()) if STATUS.exists() else None
        if found:
            ram = int(found[1]) * 1024
        else:
            import resource

            unit = 1 if sys.platform == "darwin" else 1024  # bytes
            ram = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        vram = self.cuda.max_memory_allocated() if self.cuda else 0
        return {"memory_mb": (ram + vram) / 1e6, "ram_mb": ram / 1e6, "vram_mb": vram / 1e6}


if __name__ == "__main__":
    worker()
