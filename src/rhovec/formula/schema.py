"""A Schema: the channels of a library of formulae, their units, and how time is sampled.

It lowers formulae over names, units and seconds to formulae over x_0, x_1, ... in standardised
units and steps, which is all that a model or a kernel on the base measure sees, and lifts them
back. Channels are matched by their canonical linear expression and never rescaled: `2 * x` is a
channel beside `x`, so that a formula keeps its robustness up to the unit. Vectors made under two
schemas are not comparable; store the schema with the library.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np

from ..errors import ParseError, RhovecError, SchemaError
from . import operators as ops
from .core import Formula, natural_key
from .operators import Channel
from .options import exact_step
from .parser import parse
from .printer import channel_text
from .reader import FormulaLike, is_single, without_details

LIFTED_DIGITS = 14  # a threshold that went down and up again comes back as it was written


class SharedVariableWarning(UserWarning):
    """Channels of a schema share a variable, but the base measure draws channels independently."""


@dataclass(frozen=True)
class SchemaChannel:
    """One channel: a variable or a linear expression, its scale, and what its values are."""

    expression: str  # kept in canonical form: "speed", "y5 - y4"
    mean: float = 0.0  # in the channel's unit
    std: float = 1.0  # in the channel's unit, > 0
    unit: str = ""
    discrete: bool = False  # gears, modes: == then means "within 0.5"

    def __post_init__(self) -> None:
        _require(self.expression, str, "a channel's expression")
        what = f"of channel {self.expression!r}"
        object.__setattr__(self, "expression", channel_text(self.terms))
        object.__setattr__(self, "mean", _number(self.mean, f"mean {what}"))
        object.__setattr__(self, "std", _number(self.std, f"std {what}", positive=True))
        _require(self.unit, str, f"unit {what}")
        _require(self.discrete, bool, f"discrete {what}")

    def rounded(self, value: float, decimals: int) -> float:
        """A value in the channel's unit, rounded to this many decimals of a standard deviation."""
        return round(value, decimals - math.floor(math.log10(self.std))) + 0.0

    @cached_property
    def terms(self) -> Channel:
        text = self.expression
        try:
            atom = parse(f"({text}) >= 0")
        except ParseError as error:
            raise SchemaError(f"channel {text!r} is not an expression: {error.message}") from None
        if atom.size != 1 or atom.thresholds[0] != 0:
            raise SchemaError(
                f"channel {text!r} must be one linear expression without a constant; "
                "leave out constants, abs, min and max"
            )
        if atom.code[0, 0] != ops.GE:
            raise SchemaError(
                f"channel {text!r} must be written as {channel_text(atom.channels[0])!r}, "
                "the sign that formulae use; negate its mean"
            )
        return atom.channels[0]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(ops.name_of(variable) for variable, _ in self.terms))


@dataclass(frozen=True)
class Schema:
    """Channels (channel i is x_i of a lowered formula) and one time step for a library of formulae.

    A lowered formula counts steps of `stride * dt` seconds. Bounds that are multiples of the stride
    are kept exactly, others go to the nearest multiple (halves up); what this would collapse (a
    window to one point, a positive right bound to 0, any `next`) is refused.
    """

    channels: tuple[SchemaChannel, ...]
    dt: float = 1.0  # seconds a sampling step; 1 makes seconds and steps the same
    stride: int = 1  # sampling steps a step of the lowered formula
    tolerance: float | None = None  # of == and != on variables that are not discrete
    _warned: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        channels = tuple(self.channels)
        if not channels:
            raise SchemaError("a schema needs at least one channel")
        for channel in channels:
            _require(channel, SchemaChannel, "a channel")
        object.__setattr__(self, "channels", channels)
        if len(self._index) < len(channels):
            seen = [c.expression for c in channels]
            double = next(e for e in seen if seen.count(e) > 1)
            raise SchemaError(f"channel {double!r} is given twice; keep one")
        dt = _number(self.dt, "dt", positive=True)
        try:
            exact_step(dt)
        except RhovecError as error:
            raise SchemaError(str(error)) from None
        object.__setattr__(self, "dt", dt)
        _require(self.stride, int, "stride")
        if not 1 <= self.stride <= ops.MAX_BOUND:
            raise SchemaError(f"stride must be a whole number >= 1, not {self.stride}")
        if self.tolerance is not None:
            tolerance = _number(self.tolerance, "tolerance")
            if tolerance < 0:
                raise SchemaError(f"tolerance must be >= 0, not {tolerance:g}")
            object.__setattr__(self, "tolerance", tolerance)

    @cached_property
    def _index(self) -> dict[Channel, int]:
        return {channel.terms: i for i, channel in enumerate(self.channels)}

    @classmethod
    def fit(
        cls,
        formulae: FormulaLike | Iterable[FormulaLike],
        traces: Any,
        variables: Sequence[str] | None = None,
        *,
        dt: float = 1.0,
        stride: int = 1,
        discrete: Iterable[str] = (),
        tolerance: float | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Schema:
        """A channel for every distinct channel of the formulae, with mean and std from traces.

        traces: an array (N, V, P) or a list of (V, P_i), whose variables are named by `variables`
            (x_0, x_1, ... by default), or a dict from name to an array of any shape.
        discrete, units: by variable; a channel is discrete if all its variables are, and has a unit
            if all its variables share it.

        Every sample weighs the same. A channel that is constant in the traces has no scale: if it
        is discrete its std is 1 (the distance of two modes), otherwise it is an error.
        """
        discrete, units = frozenset(discrete), units or {}
        listed: Any = [formulae] if is_single(formulae) else formulae
        found: set[Channel] = set()
        for phi in map(without_details, listed):
            if isinstance(phi, str):
                phi = parse(phi, dt=dt, discrete=discrete, tolerance=tolerance, units=units)
            found.update(phi.channels)
        columns = _columns(traces, variables)
        channels, constant = [], []
        for terms in sorted(found, key=lambda c: (len(c), [(natural_key(n), w) for n, w in c])):
            names = [ops.name_of(variable) for variable, _ in terms]
            if any(map(ops.lag_of, dict(terms))):
                raise SchemaError(
                    f"mean and std of {channel_text(terms)!r}, which is shifted in time, are not taken "
                    "from traces; write this channel of the schema by hand"
                )
            missing = [name for name in names if name not in columns]
            if missing:
                raise SchemaError(
                    f"the traces have no variable {missing[0]!r}; they have: {', '.join(columns)}"
                )
            weights = [weight for _, weight in terms]
            values = np.sum([w * columns[n] for n, w in zip(names, weights, strict=True)], axis=0)
            is_discrete = discrete.issuperset(names)
            std = float(values.std()) if values.min() < values.max() else float(is_discrete)
            if std == 0:
                constant.append(repr(channel_text(terms)))
                continue
            unit = {units.get(name, "") for name in names}
            channels.append(
                SchemaChannel(
                    channel_text(terms),
                    mean=float(values.mean()),
                    std=std,
                    unit=unit.pop() if len(unit) == 1 else "",
                    discrete=is_discrete,
                )
            )
        if constant:
            raise SchemaError(
                f"constant in the traces, so without a scale: {', '.join(constant)}; use traces in "
                "which they move, declare them discrete, or write the schema's mean and std by hand"
            )
        return cls(tuple(channels), dt=dt, stride=stride, tolerance=tolerance)

    # -- formulae --------------------------------------------------------------------------

    def parse(self, text: str, *, rounding: str | None = None) -> Formula:
        """Read a formula in names, units and seconds; the result counts sampling steps."""
        return parse(text, rounding=rounding, **self.options())

    def options(self) -> dict[str, Any]:
        """What the schema says to `parse`.

        A variable has the unit of a channel that is this variable, or adds it to others or subtracts it.
        """
        return {
            "dt": self.dt,
            "discrete": {name for c in self.channels if c.discrete for name in c.variables},
            "tolerance": self.tolerance,
            "units": {
                name: c.unit
                for c in self.channels
                if c.unit and all(abs(weight) == 1 for _, weight in c.terms)
                for name in c.variables
            },
        }

    def lower(self, phi: FormulaLike) -> Formula:
        """The formula over x_0, x_1, ... in standardised units, counting steps of stride * dt."""
        phi = without_details(phi)
        if isinstance(phi, str):
            phi = self.parse(phi)
        self._warn_of_shared_variables()
        indices = [self._index_of(channel) for channel in phi.channels]
        mean, std = self._scales(indices)
        code, thresholds = phi.code.copy(), phi.thresholds.copy()
        atoms = code[:, 3] >= 0
        local = code[atoms, 3]
        with np.errstate(over="ignore"):
            thresholds[atoms] = (thresholds[atoms] - mean[local]) / std[local] + 0.0
        _require_finite(phi, thresholds)
        if self.stride > 1:
            code[:, 1:3] = self._lower_bounds(code)
        return Formula.trusted(code, thresholds, tuple(((f"x_{i}", 1.0),) for i in indices))

    def lift(self, phi: FormulaLike, *, decimals: int | None = None) -> Formula:
        """A lowered formula in names, units and sampling steps: the inverse of `lower`.

        Thresholds are rounded to 14 digits, so that the rounding of two conversions does not show; or
        to this many decimals of the channel's standard deviation, if a formula is only about right.
        `next`, which is one lowered step, becomes eventually[stride,stride], and `prev` becomes
        once[stride,stride].
        """
        phi = without_details(phi)
        if isinstance(phi, str):
            phi = parse(phi)
        indices = [self._index_of_lowered(channel) for channel in phi.channels]
        mean, std = self._scales(indices)
        code, thresholds = phi.code.copy(), phi.thresholds.copy()
        for i in np.flatnonzero(code[:, 3] >= 0):
            c = code[i, 3]
            shift = float(thresholds[i]) * float(std[c])
            value = shift + float(mean[c])
            if decimals is None or not math.isfinite(value):
                thresholds[i] = _round(value, max(abs(shift), abs(float(mean[c]))))
            else:
                thresholds[i] = self.channels[indices[c]].rounded(value, decimals)
        _require_finite(phi, thresholds)
        if self.stride > 1:
            code[code[:, 0] == ops.NEXT, :3] = ops.EVENTUALLY, 1, 1
            code[code[:, 0] == ops.PREV, :3] = ops.ONCE, 1, 1
            self._refuse_steps(code)
            if code[:, 1:3].max() > ops.MAX_BOUND // self.stride:
                raise SchemaError(f"a time bound is larger than {ops.MAX_BOUND} steps; use inf")
            bounded = code[:, 2] != ops.UNBOUNDED
            code[:, 1] *= self.stride
            code[bounded, 2] *= self.stride
        return Formula.trusted(code, thresholds, tuple(self.channels[i].terms for i in indices))

    def to_text(self, phi: FormulaLike, *, decimals: int | None = None) -> str:
        """A lowered formula as text in names, units and seconds; decimals: as for `lift`."""
        return self.lift(phi, decimals=decimals).to_text(dt=self.dt)

    def on_traces(self) -> Schema:
        """This schema, for traces of one's own: their channels may share variables without a warning."""
        object.__setattr__(self, "_warned", True)
        return self

    def shared_variables(self) -> list[tuple[str, str]]:
        """The pairs of channels that share a variable, by their expressions.

        The base measure draws channels independently, so under it `y2 - y1` and `y3 - y2` may move
        as they never can together.
        """
        users: dict[str, list[int]] = {}
        for i, channel in enumerate(self.channels):
            for name in channel.variables:
                users.setdefault(name, []).append(i)
        pairs = {pair for shared in users.values() for pair in combinations(shared, 2)}
        return [
            (self.channels[i].expression, self.channels[j].expression) for i, j in sorted(pairs)
        ]

    def _warn_of_shared_variables(self) -> None:
        pairs = [] if self._warned else self.shared_variables()
        object.__setattr__(self, "_warned", True)
        if pairs:
            (a, b), rest = pairs[0], f" (and {len(pairs) - 1} more pairs)" if pairs[1:] else ""
            warnings.warn(
                f"channels {a!r} and {b!r}{rest} share a variable, but the base measure draws "
                "channels independently; for exact similarities use a kernel on your own "
                "traces",
                SharedVariableWarning,
                stacklevel=3,
            )

    def _index_of(self, channel: Channel) -> int:
        if channel not in self._index:
            known = ", ".join(c.expression for c in self.channels)
            raise SchemaError(
                f"the schema has no channel {channel_text(channel)!r}; it has: {known}"
            )
        return self._index[channel]

    def _index_of_lowered(self, channel: Channel) -> int:
        for i in range(len(self.channels)):
            if channel == ((f"x_{i}", 1.0),):
                return i
        raise SchemaError(
            f"{channel_text(channel)!r} is not a channel of a lowered formula; "
            f"this schema lowers to x_0 ... x_{len(self.channels) - 1}"
        )

    def _scales(self, indices: list[int]) -> tuple[np.ndarray, np.ndarray]:
        chosen = [self.channels[i] for i in indices]
        return np.array([c.mean for c in chosen]), np.array([c.std for c in chosen])

    def _lower_bounds(self, code: np.ndarray) -> np.ndarray:
        """Bounds (nodes, 2) in lowered steps, of `code` (nodes, 4) in sampling steps."""
        self._refuse_steps(code)
        bounds = code[:, 1:3]
        lowered = (2 * bounds + self.stride) // (2 * self.stride)
        lowered[bounds == ops.UNBOUNDED] = ops.UNBOUNDED
        lo, hi = bounds.T
        new_lo, new_hi = lowered.T
        collapsed = ops.IS_TIMED[code[:, 0]] & (
            ((lo < hi) & (new_lo == new_hi)) | ((hi > 0) & (new_hi == 0))
        )
        if collapsed.any():
            i = int(collapsed.argmax())
            raise SchemaError(
                f"{ops.NAMES[code[i, 0]]}[{lo[i]},{hi[i]}] would collapse to [{new_lo[i]},{new_hi[i]}] "
                f"with a stride of {self.stride} steps; use a smaller stride or a wider window"
            )
        return lowered

    def _refuse_steps(self, code: np.ndarray) -> None:
        """Refuse operators that look one sampling step ahead or back, whatever the stride is."""
        single = np.isin(code[:, 0], (ops.NEXT, ops.PREV, ops.RISE, ops.FALL))
        if single.any():
            name = ops.NAMES[code[int(single.argmax()), 0]]
            raise SchemaError(
                f"`{name}` looks one sampling step away, which a stride of {self.stride} cannot "
                "express; use a stride of 1, or a timed operator with a longer window"
            )

    # -- storage ---------------------------------------------------------------------------

    def to_json(self) -> str:
        stored = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        stored["channels"] = [asdict(channel) for channel in self.channels]
        return json.dumps(stored, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, source: str | Mapping[str, Any]) -> Schema:
        """Read what `to_json` wrote: JSON text, or the dict that it holds."""
        if isinstance(source, str):
            try:
                source = json.loads(source)
            except (json.JSONDecodeError, RecursionError) as error:
                raise SchemaError(f"the schema is not JSON: {error}") from None
        stored = _checked_keys(cls, source, "the schema")
        channels = stored["channels"]
        _require(channels, list, "channels")
        stored["channels"] = tuple(
            SchemaChannel(**_checked_keys(SchemaChannel, channel, f"channel {i}"))
            for i, channel in enumerate(channels)
        )
        return cls(**stored)


# -- checks --------------------------------------------------------------------------------------


def _checked_keys(kind: type, source: object, what: str) -> dict[str, Any]:
    """The mapping as arguments of a dataclass whose first field is the only required one."""
    if not isinstance(source, Mapping):
        raise SchemaError(f"{what} must be a JSON object, not {type(source).__name__}")
    known = [f.name for f in fields(kind) if f.init]
    for key in source:
        if key not in known:
            raise SchemaError(f"{what} has an unknown key {key!r}; known are {', '.join(known)}")
    if known[0] not in source:
        raise SchemaError(f"{what} lacks the key {known[0]!r}")
    return dict(source)


def _require(value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise SchemaError(f"{what} must be of type {kind.__name__}, not {value!r}")


def _number(value: object, what: str, positive: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SchemaError(f"{what} must be a number, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (positive and number <= 0):
        raise SchemaError(f"{what} must be a {'positive ' if positive else ''}finite number, "
                          f"not {number:g}")  # fmt: skip
    return number


def _require_finite(phi: Formula, thresholds: np.ndarray) -> None:
    if not np.isfinite(thresholds).all():
        i = int(np.isfinite(thresholds).argmin())
        channel = channel_text(phi.channels[phi.code[i, 3]])
        raise SchemaError(
            f"threshold {phi.thresholds[i]:g} of {channel!r} is too large for this schema's scale; "
            "check the channel's std"
        )


def _round(value: float, size: float) -> float:
    """value, rounded to LIFTED_DIGITS digits of a number as large as size."""
    if not 0 < size < math.inf:
        return value
    return round(value, LIFTED_DIGITS - 1 - math.floor(math.log10(size))) + 0.0


def _columns(traces: Any, variables: Sequence[str] | None) -> dict[str, np.ndarray]:
    """All samples of each variable, (samples,) float64 by name."""
    try:
        if isinstance(traces, Mapping):
            columns = {name: np.asarray(x, np.float64).ravel() for name, x in traces.items()}
        elif any(hasattr(trace, "columns") for trace in traces):
            raise TypeError("a data frame has a row per sample")
        else:
            samples = np.concatenate([np.asarray(trace, np.float64) for trace in traces], axis=1)
            names = [f"x_{i}" for i in range(len(samples))] if variables is None else variables
            columns = dict(zip(names, samples.reshape(len(samples), -1), strict=True))
    except (TypeError, ValueError):
        raise SchemaError(
            "traces must be an array (N, V, P), a list of arrays (V, P_i) with one name in "
            "`variables` for each of the V, or a dict from name to array"
        ) from None
    for name, values in columns.items():
        if values.size == 0 or not np.isfinite(values).all():
            raise SchemaError(f"variable {name!r} has no samples, or some that are not finite")
    if len({values.size for values in columns.values()}) > 1:
        raise SchemaError("the variables have different numbers of samples")
    return columns
