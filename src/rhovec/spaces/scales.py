"""One's own traces in standardised units, and formulae in the same units.

A formula that mixes channels takes minima and maxima of their margins, so a channel in rpm would drown
one in metres. Each variable is therefore divided by its standard deviation over all samples, also over
those that hold the last value of a shorter trace; flags and variables declared discrete stay as they
are. A linear expression of several variables has its own standard deviation on the traces. So robustness
is in standard deviations, whatever the units are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import FormulaError, RhovecError, TraceError
from ..formula import Schema
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.operators import Channel
from ..formula.printer import channel_text, excerpt
from ..formula.programs import Programs
from ..formula.reader import Formulae, as_programs, is_single
from ..formula.schema import SchemaChannel
from ..formula.units import same
from ..kernel import CentredKernel, StlKernel, formula_of_row
from ..robustness import robustness
from ..robustness.inputs import as_trace_array
from ..traces import TraceMeasure
from ..traces.reading import Traces, listed

MIN_DIGITS = 0.01  # share of the spread of the middle half of a channel that float32 must resolve
TOLERANCE = 0.5  # of == and != on discrete variables
MAX_ROUNDING = 0.01  # of a step, by which the one that is given may differ from that of the times


class Given(NamedTuple):
    """Traces as they were given."""

    values: np.ndarray  # (N, V, P) float32 or float64, finite
    variables: tuple[str, ...]
    dt: float | None
    units: Mapping[str, str]  # those that are known


def as_given(traces: Any, variables: Sequence[str] | None) -> Given:
    """Traces in any form that `rv.robustness` takes, or as `rv.read_traces` or a measure hold them."""
    dt: float | None = None
    units: Mapping[str, str] = {}
    if isinstance(traces, Traces):
        dt, units = traces.dt, traces.units
    if isinstance(traces, str | Path):
        raise TraceError("traces must be numbers: read files with rv.read_traces")
    used = list(traces) if isinstance(traces, Mapping) else []
    found = as_trace_array(traces, variables, used)
    if found.is_torch:
        raise TraceError("traces must be a NumPy array, not a torch tensor: give traces.numpy()")
    return Given(found.values, tuple(found.columns), dt, units)


def schema_of(
    given: Given,
    dt: float | None = None,
    units: Mapping[str, str] | None = None,
    discrete: Iterable[str] = (),
    tolerance: float | None = None,
) -> Schema:
    """A channel per variable, with mean and standard deviation from the traces.

    Variables that are discrete, or only 0 and 1 in the traces, keep their values.
    """
    units = {} if units is None else units
    if not isinstance(units, Mapping):
        raise TraceError(f"units must be a dict from variables to units, not {units!r:.80}")
    if not isinstance(discrete, Iterable):
        raise TraceError(f"discrete must be a list of variables, not {discrete!r:.80}")
    names = [discrete] if isinstance(discrete, str) else list(discrete)
    for name in [*units, *names]:
        if name not in given.variables:
            raise TraceError(
                f"the traces have no variable {name!r}; they have {listed(given.variables)}"
            )
    for name, unit in units.items():
        if not same(str(unit), header := given.units.get(name, str(unit))):
            raise TraceError(
                f"the traces have {name!r} in {header}, not in {unit}; leave out its unit, or convert "
                "its values"
            )
    units = {**given.units, **units}
    channels, constant = [], []
    for i, name in enumerate(given.variables):
        values = given.values[:, i].astype(np.float64)
        flag = name in names or bool(((values == 0) | (values == 1)).all())
        with np.errstate(over="ignore"):  # what cannot be scaled is refused below
            mean, std = (0.0, 1.0) if flag else (float(values.mean()), float(values.std()))
        low, high = float(values.min()), float(values.max())
        if not flag and high - low <= 4 * np.spacing(max(-low, high)):  # no more than rounding
            constant.append(name)
            continue
        if not 0 < std < np.inf:
            raise TraceError(f"the values of {name!r} are too large or too small to be scaled")
        _require_digits(name, values, mean, std, flag)
        text = channel_text(((name, 1.0),))
        channels.append(SchemaChannel(text, mean, std, units.get(name, ""), flag))
    if constant:
        raise TraceError(
            f"constant in the traces, so without a scale: {listed(constant)}; leave them out, give "
            "traces in which they move, or declare them discrete"
        )
    step = given.dt if dt is None else dt
    schema = Schema(tuple(channels), 1.0 if step is None else step, tolerance=tolerance)
    if given.dt is not None and abs(schema.dt - given.dt) > MAX_ROUNDING * given.dt:
        raise TraceError(
            f"the times of the traces are {given.dt:g} s apart, not {schema.dt:g} s; leave out dt"
        )
    return schema


def _round(values: np.ndarray, errors: np.ndarray) -> None:
    """Round values to fewer decimals, in place, wherever one so short is within the error."""
    decimals = np.clip(-np.ceil(np.log10(errors)), -300, 300).astype(np.int64)
    for n in np.unique(decimals).tolist():
        here = decimals == n
        short = np.round(values[here], n)
        values[here] = np.where(np.abs(short - values[here]) <= errors[here], short, values[here])


def _require_digits(name: str, values: np.ndarray, mean: float, std: float, discrete: bool) -> None:
    """Refuse values that float32, in which scaled traces are kept, would not tell apart."""
    if discrete:
        known = np.unique(values)
        apart = np.diff(known) > 4 * np.spacing(np.abs(known[1:]))
        if np.spacing(np.float32(np.abs(known).max())) > TOLERANCE:
            raise TraceError(
                f"{name!r} is discrete with values as large as {np.abs(known).max():.15g}, for which "
                "float32 has no digits after the point; replace them by smaller numbers, or leave the "
                "channel out"
            )
        lost = np.flatnonzero(apart & (np.diff(known.astype(np.float32)) == 0))
        if len(lost):
            pair = " and ".join(f"{value:.15g}" for value in known[lost[0] : lost[0] + 2])
            raise TraceError(
                f"{pair}, which are values of {name!r}, are the same in float32; replace them by "
                "smaller numbers, or leave the channel out"
            )
        return
    low, high = np.quantile(values, (0.25, 0.75)).tolist()
    scaled = max(abs(low - mean), abs(high - mean)) / std
    if 0 < (high - low) / std * MIN_DIGITS < np.spacing(np.float32(scaled)):
        raise TraceError(
            f"values of {name!r} as large as {np.abs(values).max():.3g} leave no digits for the others; "
            "replace those that stand for something else, such as a missing sample, or leave it out"
        )


@dataclass(frozen=True, eq=False)
class Scales:
    """Standardised traces (N, V, P) float32, and what lowers formulae to them."""

    values: np.ndarray
    schema: Schema  # a channel per variable, in the order of V
    _known: dict[Channel, float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, values: np.ndarray, schema: Schema) -> Scales:
        mean = np.array([c.mean for c in schema.channels])[:, None]
        std = np.array([c.std for c in schema.channels])[:, None]
        scaled = np.empty(values.shape, np.float32)
        for i, trace in enumerate(values):
            scaled[i] = (trace - mean) / std
        return cls(scaled, schema)

    @cached_property
    def measure(self) -> TraceMeasure:
        """The standardised traces."""
        return TraceMeasure(self.values, self.variables)

    def read(self, formulae: Formulae) -> tuple[Programs, bool]:
        """The formulae packed, and whether a single one was given; texts are read by the schema."""
        if isinstance(formulae, Programs) or not isinstance(formulae, Iterable):
            return self._known_in(as_programs(formulae))
        single = is_single(formulae)
        items: Any = [formulae] if single else list(formulae)
        options = self.schema.options()
        if options.pop("dt") == 1 and all(v in (None, set(), {}) for v in options.values()):
            with suppress(RhovecError):  # in the plain language there is a faster reader
                return self._known_in((as_programs(items)[0], single))
        items = [self.schema.parse(one) if isinstance(one, str) else one for one in items]
        return self._known_in((as_programs(items)[0], single))

    def _known_in(self, found: tuple[Programs, bool]) -> tuple[Programs, bool]:
        programs, known = found[0], set(self.variables)
        for i, channel in enumerate(programs.channels):
            absent = [name for v, _ in channel if (name := ops.name_of(v)) not in known]
            if absent:
                phi = formula_of_row(programs, int((programs.code[:, 3] == i).argmax()))
                raise FormulaError(
                    f"{excerpt(phi, self.schema.dt)} uses {absent[0]}, but the space has "
                    f"{listed(self.variables)}"
                )
        return found

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(c.variables[0] for c in self.schema.channels)

    def original(self) -> np.ndarray:
        """The traces in their own units, (N, V, P) float64, without digits that scaling has made up."""
        out = np.empty(self.values.shape)
        for i, channel in enumerate(self.schema.channels):
            scaled = self.values[:, i]
            out[:, i] = scaled.astype(np.float64) * channel.std + channel.mean
            if not channel.discrete:
                _round(out[:, i], np.spacing(np.abs(scaled)).astype(np.float64) * channel.std)
        return out

    def lower(self, programs: Programs) -> Programs:
        """The same formulae about standardised traces; robustness is divided by each channel's scale."""
        place = {c.variables[0]: c for c in self.schema.channels}
        channels, means, scales = [], [], []
        for channel in programs.channels:
            terms = [(v, w * place[ops.name_of(v)].std) for v, w in channel]
            scale = self._scale(channel, terms)
            channels.append(tuple((v, w / scale) for v, w in terms))
            means.append(sum(w * place[ops.name_of(v)].mean for v, w in channel))
            scales.append(scale)
        local, thresholds = programs.code[:, 3], programs.thresholds.copy()
        atoms = local >= 0
        with np.errstate(over="ignore"):
            thresholds[atoms] -= np.array(means)[local[atoms]]
            thresholds[atoms] /= np.array(scales)[local[atoms]]
        if not np.isfinite(thresholds).all():
            raise FormulaError("a threshold is too large for the scale of its channel")
        return Programs(programs.code, thresholds, programs.offsets, tuple(channels))

    def _scale(self, channel: Channel, terms: Sequence[tuple[Any, float]]) -> float:
        """Standard deviation on the traces; the size of the weight for a single variable."""
        if len(terms) == 1:
            return abs(terms[0][1])
        if channel not in self._known:
            place = {c.variables[0]: c for c in self.schema.channels}
            if all(place[ops.name_of(v)].discrete for v, _ in channel):
                self._known[channel] = 1.0
                return 1.0
            size = max(abs(w) for _, w in terms)
            code = np.array([[ops.GE, 0, 0, 0]])
            unit = tuple((v, w / size) for v, w in terms)
            atom = Formula.trusted(code, np.zeros(1), (unit,))
            found = robustness(atom, self.values, variables=self.variables, trace=True)
            std = float(found.std(dtype=np.float64))
            if not std > 1e-6:  # what rounding leaves of variables that cancel
                raise FormulaError(
                    f"{channel_text(channel)!r} is constant on the traces, or so small beside its "
                    "variables that float32 loses it, so it has no scale; leave the formula out, or "
                    "make it a variable of the traces"
                )
            self._known[channel] = size * std
        return self._known[channel]


@dataclass(frozen=True)
class _Scaled(StlKernel):
    """On standardised traces, for formulae in the user's units."""

    scales: Scales | None = None

    def check(self, formulae: Formulae) -> Programs:
        assert self.scales is not None
        return super().check(self.scales.read(formulae)[0])

    def features(self, formulae: Programs, traces: Any) -> Any:
        assert self.scales is not None
        return super().features(self.scales.lower(formulae), traces)


class ScaledKernel(_Scaled):
    """The kernel of a space: robustness in standard deviations of each channel."""


class ScaledCentredKernel(_Scaled, CentredKernel):
    """The kernel of a centred space."""


def scaled_kernel(
    scales: Scales, centred: bool, sigma2: float
) -> ScaledKernel | ScaledCentredKernel:
    kind = ScaledCentredKernel if centred else ScaledKernel
    return kind(scales.measure, sigma2=sigma2, scales=scales)
