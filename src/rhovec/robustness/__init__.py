"""Formulae x traces -> numbers. One definition (docs/semantics.md), several engines:

reference  the slow oracle; cpu  the exact engine on all cores; gpu  the same on CUDA;
autograd  gradients in torch. `robustness` and `satisfaction` choose by what they are given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import FormulaError, HorizonError, RhovecError, TraceError
from ..formula import operators as ops
from ..formula.printer import channel_text
from ..formula.programs import Programs
from ..formula.reader import Formulae, as_programs
from .inputs import TraceArray, as_trace_array, is_torch

__all__ = ["robustness", "satisfaction"]


def robustness(
    formulae: Formulae,
    traces: Any,
    *,
    variables: Sequence[str] | None = None,
    trace: bool = False,
    end: str = "hold",
    thresholds: Any = None,
    temperature: float | None = None,
) -> Any:
    """How strongly traces satisfy formulae: (B, N) at time 0; with trace=True (B, N, P).

    A single formula drops the first axis. traces is (N, V, P) with variables x_0, x_1, ... or
    `variables`; or a dict name -> (N, P); or a list of (V, P_i), or what `read_traces` returns, for
    which trace=True returns a list.
    NumPy in, NumPy out; torch in, torch out, on the same device, with gradients.

    end: "hold" extends a trace by its first and last sample; "strict" refuses a formula that looks
        beyond the ends, lets unbounded windows end with the trace, and with trace=True gives NaN at
        the times from which a formula looks beyond the ends.
    thresholds: overrides the atoms' constants, all formulae's atoms in print order.
    temperature: torch only; smooth minima and maxima (see autograd).
    """
    return _evaluate(formulae, traces, variables, trace, end, thresholds, temperature, False)


def satisfaction(
    formulae: Formulae,
    traces: Any,
    *,
    variables: Sequence[str] | None = None,
    trace: bool = False,
    end: str = "hold",
) -> Any:
    """Whether traces satisfy formulae, by the Boolean semantics: bool (B, N), or (B, N, P).

    Strict and non-strict comparisons differ here. Where end="strict" gives no value, it is False.
    """
    return _evaluate(formulae, traces, variables, trace, end, None, None, True)


def _evaluate(
    formulae: Formulae,
    traces: Any,
    variables: Sequence[str] | None,
    trace: bool,
    end: str,
    thresholds: Any,
    temperature: float | None,
    boolean: bool,
) -> Any:
    if end not in ("hold", "strict"):
        raise RhovecError(f'end must be "hold" or "strict", not {end!r}')
    programs, single = as_programs(formulae)
    used = list(dict.fromkeys(ops.name_of(v) for channel in programs.channels for v, _ in channel))
    given = as_trace_array(traces, variables, used)
    if end == "strict":
        _require_known(programs, min(given.lengths or [given.values.shape[2]]), trace)

    def run(part: TraceArray) -> Any:
        return _dispatch(programs, part, trace, end == "strict", thresholds, temperature, boolean)

    if given.lengths is None or (end == "hold" and not trace):
        out = run(given)
    elif end == "hold":
        whole = run(given)
        out = [whole[:, i, :n] for i, n in enumerate(given.lengths)]
    else:  # the end of each trace matters: one length at a time
        each: list[Any] = [None] * len(given.lengths)
        for length in sorted(set(given.lengths)):
            members = [i for i, n in enumerate(given.lengths) if n == length]
            part = run(TraceArray(given.values[members][:, :, :length], given.columns))
            for k, i in enumerate(members):
                each[i] = part[:, k]
        out = each if trace else _stack_last(each)
    if isinstance(out, list):
        return [o[0] for o in out] if single else out
    return out[0] if single else out


def _require_known(programs: Programs, points: int, trace: bool) -> None:
    """Refuse formulae without a value at time 0, or with trace at any time, of a strict trace."""
    back, ahead = programs.histories(), programs.horizons()
    if not trace and back.any():
        at_fault = int(back.argmax())
        raise HorizonError(
            f"formula {at_fault} looks {back[at_fault]} steps back, but nothing is known before time "
            '0; ask for its values at all times (trace=True), or give end="hold"'
        )
    both = ahead.astype(np.float64) + back
    at_fault = int(both.argmax())
    if both[at_fault] >= points:
        looks = f"{ahead[at_fault]} steps ahead"
        if back[at_fault]:
            looks = f"{back[at_fault]} steps back and {looks}"
        raise HorizonError(
            f"formula {at_fault} looks {looks}, but a trace has only {points} points; give longer "
            'traces, or end="hold"'
        )


def _dispatch(
    programs: Programs,
    traces: TraceArray,
    trace: bool,
    strict: bool,
    thresholds: Any,
    temperature: float | None,
    boolean: bool,
) -> Any:
    values = traces.values
    _require_moderate(programs, traces)
    wants_torch = traces.is_torch and (
        values.requires_grad or thresholds is not None or temperature is not None
    )
    if wants_torch and not boolean:
        from . import autograd

        return autograd.robustness(
            programs, values, traces.columns, thresholds=thresholds, trace=trace, strict=strict,
            temperature=temperature,
        )  # fmt: skip
    if temperature is not None or (is_torch(thresholds) and not traces.is_torch):
        raise RhovecError(
            "gradients and temperature need torch traces: pass torch.as_tensor(traces)"
        )
    if thresholds is not None:
        programs = _override(programs, thresholds)
    largest = float(np.abs(programs.thresholds).max())
    if values.dtype.itemsize == 4 and largest > float(np.finfo(np.float32).max):
        raise FormulaError(f"threshold {largest:g} is too large for float32 traces; use float64")
    if traces.is_torch and values.is_cuda:
        from . import gpu

        out = gpu.evaluate(
            programs, values.detach(), traces.columns, trace=trace, strict=strict, boolean=boolean
        )
        return out > 0 if boolean else out
    from . import cpu

    array = values.detach().numpy() if traces.is_torch else values
    array = cpu.evaluate(
        programs, np.ascontiguousarray(array), traces.columns,
        trace=trace, strict=strict, boolean=boolean,
    )  # fmt: skip
    if boolean:
        array = array > 0
    if traces.is_torch:
        import torch

        return torch.from_numpy(array)
    return array


def _override(programs: Programs, thresholds: Any) -> Programs:
    """The same programs with other constants, one per atom in print order."""
    atoms = ops.IS_ATOM[programs.code[:, 0]]
    try:
        values = np.asarray(thresholds, np.float64)
    except (TypeError, ValueError):
        raise FormulaError("thresholds must be numbers, one per atom in print order") from None
    if values.shape != (int(atoms.sum()),):
        raise FormulaError(
            f"thresholds must have shape ({int(atoms.sum())},), one number per atom in print order, "
            f"not {values.shape}"
        )
    if not np.isfinite(values).all():
        raise FormulaError("thresholds must be finite")
    replaced = programs.thresholds.copy()
    replaced[atoms] = values
    return dataclasses.replace(programs, thresholds=replaced)


def _require_moderate(programs: Programs, traces: TraceArray) -> None:
    """Refuse sums that could overflow: inf - inf would be NaN."""
    linear = [c for c in programs.channels if len(c) > 1 or c[0][1] != 1]
    if not linear:
        return
    values = traces.values.detach() if traces.is_torch else traces.values
    largest = {
        name: float(abs(values[:, traces.columns[name]]).max())
        for name in {ops.name_of(variable) for channel in linear for variable, _ in channel}
    }
    limit = float(np.finfo(np.float32 if values.dtype.itemsize == 4 else np.float64).max)
    for channel in linear:
        if not sum(abs(c) * largest[ops.name_of(v)] for v, c in channel) < limit:
            raise TraceError(
                f"{channel_text(channel)} is too large for {8 * values.dtype.itemsize}-bit "
                "numbers on these traces; scale them down"
            )


def _stack_last(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts, axis=-1)
    import torch

    return torch.stack(parts, dim=-1)
