"""Efficiency: seconds and peak memory of the kernel and of an encoder, from texts, as in the paper.

What is done: `embed` gives a vector for each of B formulae (robustness on N signals, or the encoder's),
`pairs` all B^2 similarities, embedding included. States: `loaded` has the signals drawn or the model
loaded before, `full` includes that, and a call on a few formulae that loads what calls need. Every B of
the encoder, and every N of the kernel with all its B, the smallest first, is a process of its own. There
a full call comes first; repeated calls are the loaded ones, at peak memory since the first of them.
Importing rhovec, and compiling for the first time ever, count in none. Memory, in 10^6 bytes, is the
resident memory of the whole process and what torch allocates on the GPU.

A cell that is expected to take longer than a budget, or that runs out of memory, is projected from the
largest smaller one: seconds of embed grow with B N, of pairs with B^2 N (the paper says B^2 N P, but
trajectories end in one number each), memory by the signals and the result.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RhovecError
from ..kernel import Progress, StlKernel
from ..models.model import load
from ..pages import GREY
from ..signals import BaseMeasure
from .figures import Row, Sketch, legend
from .sets import complete_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZES = (500, 1000, 2000, 4000)  # B of the paper's appendix
SIGNALS = (500, 1000, 2000, 4000, 8000, 16000)  # N
POINTS = 1000
FEW = 64  # formulae of the call that loads
VARIABLES = 3
QUICK: dict[str, Any] = {"sizes": (100, 200), "signals": (500, 1000), "repeats": 1}
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
WORKER = "from rhovec.evaluation.efficiency import worker; worker()"
OUT_OF_MEMORY = 77  # a worker's exit status; one that the system kills has -9

Size = tuple[int, int | None]  # B, and N or, for the encoder, None
Cell = dict[str, dict[str, Any]]  # "what state" -> seconds and memory


def efficiency(
    texts: Sequence[str] | None = None,
    *,
    model: str | Path | None = None,
    device: str = "cpu",
    sizes: Sequence[int] = SIZES,
    signals: Sequence[int] = SIGNALS,
    points: int = POINTS,
    repeats: int = 3,
    budget: float = 60.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """A row for each side (kernel, encoder), what, state, B and, for the kernel, N.

    texts: formulae over x_0 ... x_2, of which a cell takes the first B (default: the sequence that
    the headline set is the beginning of). model: a folder (default: the shipped one). device: "cpu"
    (the encoder by NumPy) or "cuda". budget: seconds that one call may take.

    `value` is the median of n calls in seconds, `low` and `high` the least and the most; `memory_mb`
    is the sum of `ram_mb` and `vram_mb`. Where `projected` is true nothing was run, and `why` tells.
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
    for n in (None, FEW):  # compiles what is not compiled yet, for good
        _measure({**order, "texts": texts, "sizes": [FEW], "N": n, "repeats": 1, "budget": budget})
    groups: list[tuple[int | None, list[int]]] = [(None, [b]) for b in sorted(sizes)]
    groups += [(n, sorted(sizes)) for n in sorted(signals)]
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
            side = "encoder" if n is None else "kernel"
            size = f"B = {b}" if n is None else f"B = {b}, N = {n}"
            for key, part in cell.items():
                what, state = key.split()
                rows.append({
                    "measure": f"{what}, {side}, {state}, {size}", "what": what, "side": side,
                    "state": state, "B": b, "N": n, **part, "projected": not found, **why, **common,
                })  # fmt: skip
        if progress:
            progress((i + 1) / len(groups))
    return rows


def _longest(cell: Cell | None) -> float:
    """Seconds of a cell's longest call; 0 if nothing is known."""
    return max(part["value"] for part in cell.values()) if cell else 0.0


def _projection(known: dict[Size, Cell], size: Size, points: int) -> Cell | None:
    """What is expected of a size, from the largest smaller one that was measured."""
    (b, n), encoder = size, size[1] is None
    smaller = [
        (m, k) for m, k in known if (k is None) == encoder and m <= b and (k or 1) <= (n or 1)
    ]
    if not smaller:
        return None
    m, k = max(smaller, key=lambda cell: (cell[0] * (cell[1] or 1), cell[0]))
    growth = b / m, (n or 1) / (k or 1)

    def held(b: int, n: int | None, what: str) -> float:
        """10^6 bytes of signals and of the result."""
        columns = b * (4 if encoder else 8) if what == "pairs" else 0 if n is None else 4 * n
        return ((n or 0) * VARIABLES * points * 4 + b * columns) / 1e6

    out = {}
    for key, part in known[m, k].items():
        what = key.split()[0]
        factor = growth[0] ** (2 if what == "pairs" else 1) * growth[1]
        out[key] = {
            "n": 0, **{name: factor * part[name] for name in ("value", "low", "high")},
            "memory_mb": part["memory_mb"] + held(b, n, what) - held(m, k, what),
        }  # fmt: skip
    return out


def _measure(order: dict[str, Any]) -> tuple[list[Cell], bool]:
    """What a worker finds for the first of the order's sizes, and whether memory sufficed."""
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    run = subprocess.run(
        [sys.executable, "-c", WORKER], input=json.dumps(order), capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False,
    )  # fmt: skip
    if run.returncode not in (0, OUT_OF_MEMORY, -9):
        raise RhovecError(
            f"measuring failed: {(run.stderr.strip() or 'no message').splitlines()[-1]}"
        )
    return [json.loads(line) for line in run.stdout.splitlines()], not run.returncode


# -- in a process of its own -----------------------------------------------------------------------


def worker() -> None:
    """Read an order from standard input, and print a line for each cell."""
    order = json.load(sys.stdin)
    try:
        for cell in _cells(order):
            print(json.dumps(cell), flush=True)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    except RuntimeError as error:  # torch's own has no name without torch
        if type(error).__name__ != "OutOfMemoryError":
            raise
        sys.exit(OUT_OF_MEMORY)


def _cells(order: dict[str, Any]) -> Iterator[Cell]:
    """A cell for each of the sizes until one is expected to take longer than the budget."""
    texts, repeats = order["texts"], order["repeats"]
    watch = Watch(order["device"])
    start = watch.now()
    calls = (_encoder if order["N"] is None else _kernel)(order)
    for call in calls.values():
        call(texts[:FEW])
    ready = watch.now() - start

    def measured(times: list[float]) -> dict[str, Any]:
        return {
            "n": len(times), "value": statistics.median(times), "low": min(times),
            "high": max(times), **watch.peaks(),
        }  # fmt: skip

    def seconds(call: Callable[[list[str]], Any], b: int) -> float:
        start = watch.now()
        call(texts[:b])
        return watch.now() - start

    found: Cell = {}
    before = 0
    for b in order["sizes"]:
        if found and _longest(found) * (b / before) ** 2 > order["budget"]:
            return
        found, before = {}, b
        for what, call in calls.items():
            found[f"{what} full"] = measured([ready + seconds(call, b)])
        for what, call in calls.items():
            watch.reset()
            found[f"{what} loaded"] = measured([seconds(call, b) for _ in range(repeats)])
        yield found


def _kernel(order: dict[str, Any]) -> dict[str, Callable[[list[str]], Any]]:
    measure = BaseMeasure(n_variables=VARIABLES, points=order["points"])
    kernel = StlKernel(measure, order["N"], seed=order["seed"], device=order["device"])
    for _ in kernel.signals():  # draws them
        pass
    return {"embed": kernel.signatures, "pairs": kernel.gram}


def _encoder(order: dict[str, Any]) -> dict[str, Callable[[list[str]], Any]]:
    device = order["device"]
    model = load(order["model"], None if device == "cpu" else device)

    def embed(texts: list[str]) -> Any:
        return model.embed(texts, warn=False)

    def pairs(texts: list[str]) -> Any:
        vectors = embed(texts)
        if device == "cpu":
            return vectors @ vectors.T
        import torch

        there = torch.from_numpy(vectors).to(device)
        return (there @ there.T).cpu().numpy()

    return {"embed": embed, "pairs": pairs}


class Watch:
    """Seconds, after the device has finished, and peak memory."""

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


# -- figures ---------------------------------------------------------------------------------------


def sketches(rows: Sequence[Row], paper: dict[tuple[int, int], dict[str, float]]) -> list[Sketch]:
    """paper: its costs by (B, N)."""
    return [
        Sketch(
            "efficiency", f"{what}-{quantity}",
            f"{title}: kernel and encoder, signals and model loaded. Hollow: projected.",
            lambda axes, what=what, quantity=quantity: _costs(  # type: ignore[misc]
                axes, rows, paper, what, quantity
            ),
        )
        for what, quantity, title in (
            ("embed", "seconds", "Time to embed B formulae"),
            ("pairs", "seconds", "Time to compare B formulae pairwise, embedding included"),
            ("embed", "MB", "Peak memory to embed B formulae"),
        )
    ]  # fmt: skip


def _costs(
    axes: Axes,
    rows: Sequence[Row],
    paper: dict[tuple[int, int], dict[str, float]],
    what: str,
    quantity: str,
) -> bool:
    """Over N, for B = 2000 if there, which is the paper's own choice."""
    name = "value" if quantity == "seconds" else "memory_mb"
    rows = [r for r in rows if r.get("what") == what and r.get("state") == "loaded"]
    sizes = {row["B"] for row in rows}
    if not sizes:
        return False
    b = 2000 if 2000 in sizes else max(sizes)
    rows = [row for row in rows if row["B"] == b]
    for device in dict.fromkeys(row["device"] for row in rows):
        here = [row for row in rows if row["device"] == device]
        kernel = sorted((r["N"], r[name], r["projected"]) for r in here if r["side"] == "kernel")
        counts, values, projected = zip(*kernel, strict=True)
        level = next(row[name] for row in here if row["side"] == "encoder")
        (line,) = axes.plot(counts, values, label=f"kernel, {device}")
        axes.scatter(
            counts, values, 16, ["none" if p else line.get_color() for p in projected],
            edgecolors=line.get_color(),
        )  # fmt: skip
        axes.plot(counts, [level] * len(counts), "-s", markersize=3, label=f"encoder, {device}")
    costs = {n: cost for (size, n), cost in paper.items() if size == b}
    for side, style in (("kernel", "--"), ("loaded", ":")):
        key = f"{what} {side}" + (" MB" if quantity == "MB" else "")
        level_of = [cost[key] for cost in costs.values()]
        label = f"paper's {'kernel' if side == 'kernel' else 'Transformer'}"
        if costs:
            axes.plot(list(costs), level_of, style, color=GREY, label=label)
    axes.set(xscale="log", yscale="log", xlabel="N, signals", ylabel=quantity)
    low, high = (math.log10(end) for end in axes.get_ylim())
    axes.set_ylim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
    axes.set_xticks(sorted({row["N"] for row in rows if row["side"] == "kernel"}))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.7g}")
        axis.set_minor_formatter(lambda value, _: "")
    axes.set_title(f"B = {b} formulae", fontsize=9)
    legend(axes)
    return True
