"""Your own traces, ready to be distilled: their channels in standardised units, some held out.

    own = OwnTraces.of(traces, ["speed", "rpm"], dt=0.1)          # (N, 2, P), or rv.read_traces(...)
    config = own.configured(preset(PRESETS, "adapt", device="cuda"))
    encoder = train(config, "run", kernel=own.kernel(config))
    publish_encoder(Path("run"), config, encoder, own=own)        # evaluates, and writes run/model

The teacher is the kernel on the standardised traces, and formulae are drawn over x_0, x_1, ... in the
same units. The schema is saved in the model, which then reads formulae in names, units and seconds. The
traces that are held out are never trained on; against them the model is evaluated a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import TraceError, whole
from ..formula.schema import Schema
from ..formula.units import same
from ..kernel import StlKernel
from ..models import store
from ..robustness import robustness
from ..spaces.scales import MAX_ROUNDING, Given, as_given, schema_of
from ..traces import TraceMeasure
from .distill import Config

HELD_OUT = 0.2  # of the traces, unless others are given
MAX_BOTH = 0.1  # share of the held-out traces that may be among those to distil
FEWEST = 50  # traces that a kernel may be distilled from


@dataclass(frozen=True, eq=False)
class OwnTraces:
    """Standardised traces, and the schema that says what they are."""

    schema: Schema
    values: np.ndarray  # (N, C, P) float32
    held_out: np.ndarray  # (M, C, P) float32

    @classmethod
    def of(
        cls,
        traces: Any,
        variables: Sequence[str] | None = None,
        *,
        dt: float | None = None,
        discrete: Iterable[str] = (),
        schema: Schema | None = None,
        held_out: Any = None,
        seed: int = 0,
    ) -> OwnTraces:
        """Traces in their own units: (N, V, P), a list of (V, P_i), or what `read_traces` gives.

        discrete: variables whose values are modes or gears; a schema says so itself.
        schema: the channels, which may be expressions such as "y2 - y1"; by default one per variable,
            with mean and standard deviation from the traces, as a `Space` has it.
        held_out: other traces of the same variables, step and units; by default a fifth of the traces,
            chosen by seed, copies together.
        """
        whole(seed, "seed", least=0)
        if not isinstance(schema, Schema | None):
            raise TraceError(f"schema must be a Schema, not {schema!r:.80}")
        given = as_given(traces, variables)
        step = given.dt if dt is None else dt
        if schema is None:
            schema = schema_of(given, step, discrete=discrete)
        elif discrete:
            raise TraceError("the schema says which channels are discrete; leave out discrete")
        elif step is not None and step != schema.dt:
            raise TraceError(
                f"the traces have a step of {step:g} s, but the schema says {schema.dt:g} s; make them "
                "equal"
            )
        schema = schema.on_traces()
        values = channel_values(schema, given)
        if held_out is None:
            groups: dict[bytes, int] = {}  # of traces that are copies of each other
            group = np.array([groups.setdefault(t.tobytes(), len(groups)) for t in values])
            order = np.random.default_rng(seed).permutation(len(groups))
            chosen = np.isin(group, order[len(groups) - int(HELD_OUT * len(groups)) :])
            values, other = values[~chosen], values[chosen]
        else:
            other = channel_values(schema, as_given(held_out, variables), "the held-out traces")
            if other.shape[2] != values.shape[2]:
                raise TraceError(
                    f"the held-out traces have {other.shape[2]} points, but the others "
                    f"{values.shape[2]}; give traces of one length"
                )
        seen = {trace.tobytes() for trace in values}
        both = sum(trace.tobytes() in seen for trace in other)
        if held_out is not None and both > MAX_BOTH * len(other):
            raise TraceError(
                f"{both} of {len(other)} held-out traces are among those to distil, so they would tell "
                "little; give others, or leave out held_out"
            )
        different = len(seen)
        if different < FEWEST:
            raise TraceError(
                f"{different} different traces to distil, beside {len(other)} held out, say too little "
                f"about a kernel; give {FEWEST} or more, apart from those held out"
            )
        return cls(schema, values, other)

    def configured(self, config: Config) -> Config:
        """The configuration for the traces' channels and points; no channel comes before the others."""
        _, channels, points = self.values.shape
        return replace(config, channels=channels, focus=channels, points=points)

    def kernel(self, config: Config) -> StlKernel:
        """The teacher: the kernel on the traces, in each step on config.traces of them."""
        n = config.traces if config.traces < len(self.values) else None
        return StlKernel(TraceMeasure(self.values), n, config.sigma2, config.seed)

    def sample(self, seed: int = 0) -> np.ndarray:
        """The traces that a model's folder holds: all, or a random choice of 4,096."""
        order = np.random.default_rng(seed).permutation(len(self.values))
        return self.values[np.sort(order[: store.MAX_TRACES])]

    def judges(self, sigma2: float, device: str = "cpu") -> dict[str, StlKernel]:
        """Kernels to evaluate against: on all training traces, and on those held out."""
        place = device if device.startswith("cuda") else "cpu"
        return {
            name: StlKernel(TraceMeasure(values), sigma2=sigma2, device=place)
            for name, values in (
                ("training traces", self.values),
                ("held-out traces", self.held_out),
            )
            if len(values)
        }


def channel_values(schema: Schema, traces: Given, which: str = "the traces") -> np.ndarray:
    """The schema's channels on traces, standardised: (N, channels, P) float32."""
    if schema.stride > 1:
        raise TraceError(
            f"the schema has a stride of {schema.stride} steps; give traces that are sampled as coarsely"
        )
    missing = {n for c in schema.channels for n in c.variables} - set(traces.variables)
    if missing:
        raise TraceError(
            f"{which} have no variable {min(missing)!r}; they have {', '.join(traces.variables)}"
        )
    if traces.dt is not None and abs(traces.dt - schema.dt) > MAX_ROUNDING * schema.dt:
        raise TraceError(
            f"{which} have a step of {traces.dt:g} s, not {schema.dt:g} s; give traces of one step"
        )
    for name, unit in schema.options()["units"].items():
        if not same(traces.units.get(name, unit), unit):
            raise TraceError(
                f"{which} have {name!r} in {traces.units[name]}, not in {unit}; convert its values"
            )
    n, _, points = traces.values.shape
    out = np.empty((n, len(schema.channels), points), np.float32)
    for i, channel in enumerate(schema.channels):
        atom = f"({channel.expression}) >= {channel.mean!r}"
        found = robustness(
            atom, traces.values.astype(np.float64), variables=traces.variables, trace=True
        )
        out[:, i] = found / channel.std
    return out
