"""One adapter a library: the same formulae and traces in each library's own objects.

peers.ask executes this file inside the library's environment: adapters.py LIBRARY JOB OUT. Formulae
arrive as postfix rows [operator, lo, hi, variable, threshold], traces as (N, V, P) float32. A task
is one method a library: it takes what the library was given and returns a callable without
arguments, and the call is what is timed. Libraries are called as their documentation shows, in
batches wherever they offer them.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Row = list[Any]
ATOMS = (">=", "<=")
TIMED = ("always", "eventually", "until", "once", "historically", "since")
UNARY = ("not", "next", "always", "eventually", "once", "historically", "prev", "rise", "fall")


class Unsupported(Exception):
    """The library has no such operator or bound."""


class Peer:
    """What a library must say: how it holds traces and formulae, and how it does each task."""

    def traces(self, x: np.ndarray, defaults: bool) -> Any:
        """(N, V, P) float32 in the library's own container."""
        raise NotImplementedError

    def atom(self, op: str, variable: str, threshold: float) -> Any:
        raise NotImplementedError

    def node(self, op: str, lo: int, hi: int | None, *operands: Any) -> Any:
        """An operator applied to operands; hi None: unbounded."""
        raise NotImplementedError

    def formula(self, rows: list[Row]) -> Any:
        stack: list[Any] = []
        for op, lo, hi, variable, threshold in rows:
            if op in ATOMS:
                stack.append(self.atom(op, variable, threshold))
            else:
                arity = 1 if op in UNARY else 2
                operands = stack[-arity:]
                del stack[-arity:]
                stack.append(self.node(op, lo, hi, *operands))
        return stack[-1]

    def robustness(
        self, formulae: list[Any], traces: Any, trace: bool, defaults: bool
    ) -> Callable[[], np.ndarray]:
        """The work: () -> (B, N), or (B, N, P) with trace."""
        raise NotImplementedError

    def gradient(
        self, phi: Any, traces: Any, temperature: float | None, thresholds: list[float] | None
    ) -> Callable[[], np.ndarray]:
        """The work: () -> the gradient of the sum over traces of the robustness at time 0.

        To the traces, (N, V, P), or, where thresholds (A,) are given, to those. With temperature T,
        minima and maxima are smooth, T log sum exp(v/T).
        """
        raise NotImplementedError


class Rhovec(Peer):
    """All formulae in one call of the public function; its layout of the traces is timed too."""

    def traces(self, x: np.ndarray, defaults: bool) -> Any:
        return x

    def formula(self, rows: list[Row]) -> Any:
        from rhovec.formula import operators as ops
        from rhovec.formula.core import Formula

        return Formula.from_rows(
            [
                (
                    ops.NAMES.index(op),
                    lo,
                    ops.UNBOUNDED if hi is None else hi,
                    ((variable, 1.0),) if variable else None,
                    threshold,
                )
                for op, lo, hi, variable, threshold in rows
            ]
        )

    def robustness(
        self, formulae: list[Any], traces: Any, trace: bool, defaults: bool
    ) -> Callable[[], np.ndarray]:
        import rhovec as rv

        return lambda: rv.robustness(formulae, traces, trace=trace)

    def gradient(
        self, phi: Any, traces: Any, temperature: float | None, thresholds: list[float] | None
    ) -> Callable[[], np.ndarray]:
        import torch

        import rhovec as rv

        x = torch.from_numpy(traces)
        levels = None if thresholds is None else torch.tensor(thresholds)
        leaf = (x if levels is None else levels).requires_grad_()

        def run() -> np.ndarray:
            rho = rv.robustness(phi, x, thresholds=levels, temperature=temperature)
            (gradient,) = torch.autograd.grad(rho.sum(), leaf)
            return gradient.numpy()

        return run


class Rtamt(Peer):
    """Discrete-time offline specifications from text; one trace a call, always the whole trace."""

    def __init__(self) -> None:
        import rtamt  # type: ignore[import-not-found]

        self.rtamt = rtamt

    def traces(self, x: np.ndarray, defaults: bool) -> Any:
        times = list(range(x.shape[2]))
        return [
            {"time": times, **{f"x_{i}": row for i, row in enumerate(single)}}
            for single in x.tolist()
        ]

    def atom(self, op: str, variable: str, threshold: float) -> Any:
        return f"({variable} {op} {threshold!r})"

    def node(self, op: str, lo: int, hi: int | None, *operands: Any) -> Any:
        window = ""
        if op in TIMED and (lo, hi) != (0, None):
            if hi is None:
                raise Unsupported(f"{op}[{lo},inf]")
            window = f"[{lo}:{hi}]"
        if op in UNARY:
            return f"({op}{window} {operands[0]})"
        return f"({operands[0]} {op}{window} {operands[1]})"

    def formula(self, rows: list[Row] | str) -> Any:
        spec = self.rtamt.StlDiscreteTimeOfflineSpecification()
        for i in range(3):
            spec.declare_var(f"x_{i}", "float")
        spec.spec = rows if isinstance(rows, str) else super().formula(rows)
        spec.parse()
        return spec

    def robustness(
        self, formulae: list[Any], traces: Any, trace: bool, defaults: bool
    ) -> Callable[[], np.ndarray]:
        def run() -> np.ndarray:
            out = np.array([[spec.evaluate(s) for s in traces] for spec in formulae])[..., 1]
            return out if trace else out[..., 0]

        return run


class Stljax(Peer):
    """Formula objects over one trace (P, V), compiled with jit, spread over traces with vmap."""

    def __init__(self) -> None:
        import jax  # type: ignore[import-not-found]
        import stljax.formula as library  # type: ignore[import-not-found]

        self.jax, self.library, self.infinity = jax, library, jax.numpy.inf

    def traces(self, x: np.ndarray, defaults: bool) -> Any:
        return self.jax.numpy.asarray(x.transpose(0, 2, 1)).block_until_ready()

    def atom(self, op: str, variable: str, threshold: float) -> Any:
        index = int(variable.removeprefix("x_"))
        predicate = self.library.Predicate(variable, lambda single: single[:, index])
        return predicate >= threshold if op == ">=" else predicate <= threshold

    def node(self, op: str, lo: int, hi: int | None, *operands: Any) -> Any:
        names = {"not": "Negation", "and": "And", "or": "Or", "->": "Implies"}
        if op in names:
            return getattr(self.library, names[op])(*operands)
        if op not in ("always", "eventually", "until"):
            raise Unsupported(op)
        return getattr(self.library, op.capitalize())(
            *operands, interval=[lo, self.infinity if hi is None else hi]
        )

    def options(self, defaults: bool) -> dict[str, str]:
        return {} if defaults else {"padding": "last"}

    def smooth(self, temperature: float | None) -> dict[str, Any]:
        """Both libraries call temperature what multiplies the values, 1/T."""
        options: dict[str, Any] = self.options(defaults=False)
        if temperature is not None:
            options |= {"approx_method": "logsumexp", "temperature": 1 / temperature}
        return options

    def robustness(
        self, formulae: list[Any], traces: Any, trace: bool, defaults: bool
    ) -> Callable[[], np.ndarray]:
        options = self.options(defaults)

        def compiled(phi: Any) -> Any:
            one = phi.robustness_trace if trace else phi.robustness
            return self.jax.jit(self.jax.vmap(lambda single: one(single, **options)))

        calls = [compiled(phi) for phi in formulae]
        return lambda: np.stack([np.asarray(call(traces)) for call in calls])

    def gradient(
        self, phi: Any, traces: Any, temperature: float | None, thresholds: list[float] | None
    ) -> Callable[[], np.ndarray]:
        if thresholds is not None:
            raise Unsupported("thresholds")
        options = self.smooth(temperature)

        def total(x: Any) -> Any:
            return self.jax.vmap(lambda single: phi.robustness(single, **options))(x).sum()

        call = self.jax.jit(self.jax.value_and_grad(total))
        return lambda: np.asarray(call(traces)[1]).transpose(0, 2, 1)


class Stlcgpp(Stljax):
    """The same classes on torch, spread over traces with torch.vmap; no gradients are recorded
    where none are asked for."""

    def __init__(self) -> None:
        import stlcgpp.formula as library  # type: ignore[import-not-found]
        import torch

        self.torch, self.library, self.infinity = torch, library, torch.inf

    def traces(self, x: np.ndarray, defaults: bool) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(x.transpose(0, 2, 1)))

    def robustness(
        self, formulae: list[Any], traces: Any, trace: bool, defaults: bool
    ) -> Callable[[], np.ndarray]:
        options = self.options(defaults)

        def batched(phi: Any) -> Any:
            one = phi.robustness_trace if trace else phi.robustness
            return self.torch.vmap(lambda single: one(single, **options))

        calls = [batched(phi) for phi in formulae]

        def run() -> np.ndarray:
            with self.torch.no_grad():
                return np.stack([call(traces).numpy() for call in calls])

        return run

    def gradient(
        self, phi: Any, traces: Any, temperature: float | None, thresholds: list[float] | None
    ) -> Callable[[], np.ndarray]:
        if thresholds is not None:
            raise Unsupported("thresholds")
        options = self.smooth(temperature)
        call = self.torch.vmap(lambda single: phi.robustness(single, **options))
        leaf = traces.requires_grad_()

        def run() -> np.ndarray:
            (gradient,) = self.torch.autograd.grad(call(leaf).sum(), leaf)
            return np.transpose(gradient.numpy(), (0, 2, 1))

        return run


class Pytelo(Peer):
    """Formula objects on a batch of traces, one time a call: only time 0 is asked for."""

    def __init__(self) -> None:
        import pytelo.stl as library  # type: ignore[import-not-found]

        self.library = library

    def traces(self, x: np.ndarray, defaults: bool) -> Any:
        names, times = [f"x_{i}" for i in range(x.shape[1])], np.arange(x.shape[2])
        options = {} if defaults else {"kind": "linear"}
        return self.library.TraceBatch(names, times, x, **options)

    def atom(self, op: str, variable: str, threshold: float) -> Any:
        relation = self.library.RelOperation.getCode(op)
        return self.library.STLFormula(
            self.library.Operation.PRED, relation=relation, variable=variable, threshold=threshold
        )

    def node(self, op: str, lo: int, hi: int | None, *operands: Any) -> Any:
        names = {
            "not": "NOT", "and": "AND", "or": "OR", "->": "IMPLIES",
            "always": "ALWAYS", "eventually": "EVENT", "until": "UNTIL",
        }  # fmt: skip
        if op not in names or hi is None:
            raise Unsupported(op if hi is not None else f"{op}[{lo},inf]")
        code = getattr(self.library.Operation, names[op])
        given: dict[str, Any] = {"child": operands[0], "left": operands[0], "right": operands[-1]}
        return self.library.STLFormula(code, **given, children=list(operands), low=lo, high=hi)

    def robustness(
        self, formulae: list[Any], traces: Any, trace: bool, defaults: bool
    ) -> Callable[[], np.ndarray]:
        if trace:
            raise Unsupported("traces")
        options = {} if defaults else {"max_robustness": math.inf}
        return lambda: np.stack([phi.robustness(traces, 0, **options) for phi in formulae])


PEERS: dict[str, type[Peer]] = {
    "rhovec": Rhovec, "rtamt": Rtamt, "stljax": Stljax, "stlcgpp": Stlcgpp, "pytelo": Pytelo,
}  # fmt: skip


def resident(field: str) -> int:
    """Bytes of memory the process holds (VmRSS) or has held since the last VmRSS (VmHWM). Linux."""
    if field == "VmRSS":
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def do(peer: Peer, item: dict[str, Any]) -> dict[str, Any]:
    """One item: convert, build, the first call (which may compile), then the timed calls."""
    x = np.array(np.load(item["traces"], mmap_mode="r")[: item["n"]])  # in memory, not a map
    start = time.perf_counter()
    traces = peer.traces(x, item["defaults"])
    converted = time.perf_counter()
    formulae = [peer.formula(rows) for rows in item["formulae"]]
    built = time.perf_counter()
    if "gradient" in item:
        run = peer.gradient(formulae[0], traces, **item["gradient"])
    else:
        run = peer.robustness(formulae, traces, item["trace"], item["defaults"])
    before = resident("VmRSS") if item["memory"] else 0
    values = run()
    first = time.perf_counter() - built
    peak = resident("VmHWM") - before if item["memory"] else None
    times: list[float] = []
    while len(times) < item["repeats"] and (len(times) < 3 or sum(times) < item["seconds"]):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    usual = statistics.median(times) if times else 0.0
    return {
        "convert_s": converted - start,
        "build_s": built - converted,
        "first_s": max(0.0, first - usual),
        "times_s": times,
        "peak_bytes": peak,
        "values": values,
    }


def main() -> None:
    library, job, out = sys.argv[1:]
    peer = PEERS[library]()
    answers: list[dict[str, Any]] = []
    for i, item in enumerate(json.loads(Path(job).read_text())):
        try:
            answer = do(peer, item)
        except Exception as error:  # a library's refusal is an answer, whatever its type
            answers.append({"error": f"{type(error).__name__}: {error}"})
            continue
        path = Path(out).with_name(f"values-{i}.npy")
        np.save(path, answer["values"])
        answers.append({**answer, "values": str(path)})
    Path(out).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
