"""What may be given as traces, brought into one form: an array (N, V, P) and the variables' names.

Accepted: an array (N, V, P), a dict from name to (N, P), a list of (V, P_i) of different lengths, numpy
or torch; and traces that were read from files. What is wrong with them is named here, before an engine
sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import TraceError
from ..traces.measure import TraceMeasure, held_to_one_length, refuse_table
from ..traces.reading import Traces

_CHECK_BLOCK = 1 << 17  # numbers tested for finiteness at a time, so that they stay in the cache


@dataclass(frozen=True)
class TraceArray:
    values: Any  # (N, V, P) numpy array or torch tensor, float32 or float64, finite
    columns: dict[str, int]  # variable -> index in V
    lengths: list[int] | None = None  # of the traces, where a list was given

    @property
    def is_torch(self) -> bool:
        return is_torch(self.values)


def as_trace_array(traces: Any, variables: Sequence[str] | None, used: Sequence[str]) -> TraceArray:
    """Traces in one form; `used` are the variables that the formulae read."""
    lengths = None
    if isinstance(traces, Traces | TraceMeasure):
        if variables is not None:
            raise TraceError("these traces have names already; leave out variables")
        traces, variables = traces.values, traces.variables
    if isinstance(traces, Mapping):
        if variables is not None:
            raise TraceError("variables=... goes with an array; a dict names its own variables")
        if not traces:
            raise TraceError("no traces given: the dict is empty")
        _require(used, list(traces))
        variables = list(used) or list(traces)[:1]
        values = _stack_columns({name: traces[name] for name in variables})
    elif isinstance(traces, list | tuple) and (not traces or not np.isscalar(traces[0])):
        if not traces:
            raise TraceError("no traces given: the list is empty")
        arrays = [_as_floats(trace, f"trace {i}") for i, trace in enumerate(traces)]
        values, lengths = held_to_one_length(arrays)
    else:
        values = _as_floats(traces, "traces")
    if values.ndim != 3:
        hint = {2: "; one trace of shape (V, P) is traces[None]"}.get(values.ndim, "")
        raise TraceError(
            f"traces must have shape (traces, variables, points), not {tuple(values.shape)}{hint}"
        )
    if 0 in values.shape:
        raise TraceError(f"traces of shape {tuple(values.shape)} are empty")
    if variables is None:
        names = [f"x_{i}" for i in range(values.shape[1])]
    else:
        names = [variables] if isinstance(variables, str) else list(variables)
        if len(names) != values.shape[1]:
            raise TraceError(
                f"variables names {len(names)}, but the traces have {values.shape[1]} variables"
            )
        for name in names:
            if not isinstance(name, str):
                raise TraceError(f"variables must be names, not {name!r}")
        if len(set(names)) < len(names):
            raise TraceError("variables names one variable twice")
    _require(used, names)
    _check_finite(values, names)
    return TraceArray(values, {name: i for i, name in enumerate(names)}, lengths)


def is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _as_floats(values: Any, what: str) -> Any:
    """float32 stays, everything else numeric becomes float64 (half precision: float32)."""
    if is_torch(values):
        import torch

        if values.dtype in (torch.float32, torch.float64):
            return values
        if values.is_complex():
            raise TraceError(f"{what} must be real numbers, not {values.dtype}")
        return values.to(torch.float32 if values.is_floating_point() else torch.float64)
    refuse_table(values, what)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise TraceError(f"{what} have masked values; fill them first (values.filled(...))")
    try:
        array = np.asarray(values)
    except ValueError:
        raise TraceError(f"{what} must be rectangular; give a list of (V, P_i) arrays for traces"
                          " of different lengths") from None  # fmt: skip
    if array.dtype.kind not in "fiub":
        raise TraceError(f"{what} must be real numbers, not {array.dtype}")
    half = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return np.ascontiguousarray(array, np.float32 if half else np.float64)


def _stack_columns(columns: dict[str, Any]) -> Any:
    arrays = {name: _as_floats(v, f"trace {name!r}") for name, v in columns.items()}
    shapes = {name: tuple(a.shape) for name, a in arrays.items()}
    name, shape = next(iter(shapes.items()))
    for other, other_shape in shapes.items():
        if other_shape != shape:
            raise TraceError(f"{name!r} has shape {shape}, but {other!r} has {other_shape}")
    if len(shape) != 2:
        raise TraceError(f"{name!r} must have shape (traces, points), not {shape}")
    if is_torch(arrays[name]):
        import torch

        return torch.stack(list(arrays.values()), dim=1)
    return np.stack(list(arrays.values()), axis=1)


def _require(used: Sequence[str], names: Sequence[str]) -> None:
    known = set(names)
    missing = [name for name in used if name not in known]
    if missing:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise TraceError(
            f"a formula uses {', '.join(missing[:8])}, but the traces have {shown}; "
            "name an array's variables with variables=[...]"
        )


def _check_finite(values: Any, names: Sequence[str]) -> None:
    if is_torch(values):
        values = values.detach()
        if values.is_cuda and bool(values.isfinite().all()):
            return
        values = values.cpu().numpy()
    step = max(1, _CHECK_BLOCK // (values.shape[1] * values.shape[2]))
    for start in range(0, len(values), step):
        finite = np.isfinite(values[start : start + step])
        if not finite.all():
            n, v, t = (int(i) for i in np.argwhere(~finite)[0])
            raise TraceError(
                f"traces must be finite: {names[v]} of trace {start + n} is "
                f"{values[start + n, v, t]} at point {t}"
            )
