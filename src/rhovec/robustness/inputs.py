"""What may be given as signals, brought into one form: an array (N, V, P) and the variables' names.

Accepted: an array (N, V, P), a dict from name to (N, P), a list of (V, P_i) of different lengths;
numpy or torch. Everything wrong with them is named here, before an engine sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SignalError

_CHECK_BLOCK = 1 << 22  # numbers tested for finiteness at a time, so that memory stays constant


@dataclass(frozen=True)
class Signals:
    values: Any  # (N, V, P) numpy array or torch tensor, float32 or float64, finite
    columns: dict[str, int]  # variable -> index in V
    lengths: list[int] | None = None  # of the traces, where a list was given

    @property
    def is_torch(self) -> bool:
        return is_torch(self.values)


def as_signals(signals: Any, variables: Sequence[str] | None, used: Sequence[str]) -> Signals:
    """Signals in one form; `used` are the variables that the formulae read."""
    lengths = None
    if isinstance(signals, Mapping):
        if variables is not None:
            raise SignalError("variables=... goes with an array; a dict names its own variables")
        if not signals:
            raise SignalError("no signals given: the dict is empty")
        _require(used, list(signals))
        variables = list(used) or list(signals)[:1]
        values = _stack_columns({name: signals[name] for name in variables})
    elif isinstance(signals, list | tuple) and (not signals or not np.isscalar(signals[0])):
        if not signals:
            raise SignalError("no signals given: the list is empty")
        values, lengths = _hold_to_one_length(signals)
    else:
        values = _as_floats(signals, "signals")
    if values.ndim != 3:
        hint = {2: "; one signal of shape (V, P) is signals[None]"}.get(values.ndim, "")
        raise SignalError(
            f"signals must have shape (signals, variables, points), not {tuple(values.shape)}{hint}"
        )
    if 0 in values.shape:
        raise SignalError(f"signals of shape {tuple(values.shape)} are empty")
    if variables is None:
        names = [f"x_{i}" for i in range(values.shape[1])]
    else:
        names = [variables] if isinstance(variables, str) else list(variables)
        if len(names) != values.shape[1]:
            raise SignalError(
                f"variables names {len(names)}, but the signals have {values.shape[1]} variables"
            )
        for name in names:
            if not isinstance(name, str):
                raise SignalError(f"variables must be names, not {name!r}")
        if len(set(names)) < len(names):
            raise SignalError("variables names one variable twice")
    _require(used, names)
    _check_finite(values, names)
    return Signals(values, {name: i for i, name in enumerate(names)}, lengths)


def is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _as_floats(values: Any, what: str) -> Any:
    """float32 stays, everything else numeric becomes float64 (half precision: float32)."""
    if is_torch(values):
        import torch

        if values.dtype in (torch.float32, torch.float64):
            return values
        if values.is_complex():
            raise SignalError(f"{what} must be real numbers, not {values.dtype}")
        return values.to(torch.float32 if values.is_floating_point() else torch.float64)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise SignalError(f"{what} have masked values; fill them first (values.filled(...))")
    try:
        array = np.asarray(values)
    except ValueError:
        raise SignalError(f"{what} must be rectangular; give a list of (V, P_i) arrays for traces"
                          " of different lengths") from None  # fmt: skip
    if array.dtype.kind not in "fiub":
        raise SignalError(f"{what} must be real numbers, not {array.dtype}")
    half = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return np.ascontiguousarray(array, np.float32 if half else np.float64)


def _stack_columns(columns: dict[str, Any]) -> Any:
    arrays = {name: _as_floats(v, f"signal {name!r}") for name, v in columns.items()}
    shapes = {name: tuple(a.shape) for name, a in arrays.items()}
    name, shape = next(iter(shapes.items()))
    for other, other_shape in shapes.items():
        if other_shape != shape:
            raise SignalError(f"{name!r} has shape {shape}, but {other!r} has {other_shape}")
    if len(shape) != 2:
        raise SignalError(f"{name!r} must have shape (signals, points), not {shape}")
    if is_torch(arrays[name]):
        import torch

        return torch.stack(list(arrays.values()), dim=1)
    return np.stack(list(arrays.values()), axis=1)


def _hold_to_one_length(signals: Sequence[Any]) -> tuple[Any, list[int]]:
    """Stack traces (V, P_i), each held at its last sample up to the longest."""
    arrays = [_as_floats(s, f"signal {i}") for i, s in enumerate(signals)]
    for i, a in enumerate(arrays):
        if a.ndim != 2 or 0 in a.shape or a.shape[0] != arrays[0].shape[0]:
            raise SignalError(
                f"signal {i} of the list must have shape ({arrays[0].shape[0]}, points), "
                f"not {tuple(a.shape)}"
            )
    lengths = [int(a.shape[1]) for a in arrays]
    longest = max(lengths)
    if is_torch(arrays[0]):
        import torch

        held = [torch.cat([a, a[:, -1:].expand(-1, longest - a.shape[1])], dim=1) for a in arrays]
        return torch.stack(held), lengths
    return np.stack(
        [np.pad(a, ((0, 0), (0, longest - a.shape[1])), "edge") for a in arrays]
    ), lengths


def _require(used: Sequence[str], names: Sequence[str]) -> None:
    known = set(names)
    missing = [name for name in used if name not in known]
    if missing:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise SignalError(
            f"a formula uses {', '.join(missing[:8])}, but the signals have {shown}; "
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
        flat = np.ascontiguousarray(values[start : start + step]).reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.dot(flat, flat)):  # three times as fast as looking at each number
                continue
        finite = np.isfinite(values[start : start + step])
        if not finite.all():
            n, v, t = (int(i) for i in np.argwhere(~finite)[0])
            raise SignalError(
                f"signals must be finite: {names[v]} of signal {start + n} is "
                f"{values[start + n, v, t]} at point {t}"
            )
