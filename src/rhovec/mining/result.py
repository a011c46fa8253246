"""What mining answers: a front of formulae, the chosen one, certificates, and the words for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..check import explain
from ..check.explain import Explanation
from ..errors import RhovecError
from ..formula.core import Formula
from ..formula.printer import number_text
from ..robustness import robustness
from ..robustness.inputs import TraceArray, as_trace_array
from .picture import picture

Interval = tuple[float, float]


@dataclass(frozen=True)
class Entry:
    """One formula of a front. Counts and margin are of the training traces."""

    formula: Formula
    missed: int  # positive traces that violate it
    alarms: int  # other traces that satisfy it
    accuracy: float  # on the training traces
    held_out: float  # accuracy of formulae of at most this size on traces left out of the search
    interval: Interval  # 95 % interval of it
    margin: float  # smallest distance of a right trace from the border, in channels' standard deviations

    @property
    def size(self) -> int:
        return self.formula.size


@dataclass(frozen=True)
class Certified:
    """No formula of a class, true on some training traces and false on others, has a smaller loss."""

    formulae: str  # the class
    windows: str
    thresholds: str
    complete: bool  # all windows and thresholds, no grid
    loss: float
    best: Formula

    @property
    def text(self) -> str:
        grid = "" if self.complete else " on this grid"
        return (
            f"no formula with {self.formulae}{grid}, true on some traces and false on others, has a "
            f"smaller training loss than {number_text(self.loss)} (windows: {self.windows}; "
            f"thresholds: {self.thresholds})"
        )


@dataclass(frozen=True)
class About:
    """What the traces are called: channels, their units, the step in seconds."""

    variables: tuple[str, ...]
    units: Mapping[str, str]
    dt: float | None

    def array(self, traces: Any) -> TraceArray:
        return arranged(traces, self.variables)

    def robustness(self, formulae: Formula | Sequence[Formula], traces: Any) -> np.ndarray:
        values = self.array(traces).values
        out: np.ndarray = robustness(formulae, values, variables=self.variables)
        return out

    def requirement_file(
        self, source: str, facts: str, requirement: str, others: Sequence[tuple[Formula, str]]
    ) -> str:
        """A requirement, with comments on what it was mined from and on formulae of other sizes."""
        step = "" if self.dt is None else f" Time bounds are in seconds: --dt {self.dt:g}."
        lines = [
            f"# Mined from {source}.{step}", f"# {facts[0].upper()}{facts[1:]}.", requirement,
            *(["", "# Other sizes:"] if others else []),
            *(f"# {phi.size} nodes, {words}: {phi.to_text(self.dt)}" for phi, words in others),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def arranged(traces: Any, variables: Sequence[str] | None) -> TraceArray:
    """Traces as an array; those of a file or a dict bring their names."""
    if hasattr(traces, "variables") and hasattr(traces, "values") and hasattr(traces, "ids"):
        if variables is not None and set(variables) - set(traces.variables):
            lacking = sorted(set(variables) - set(traces.variables))
            raise RhovecError(f"the traces have no channel {', '.join(lacking)}")
        found = as_trace_array(list(traces.values), traces.variables, ())
    elif isinstance(traces, Mapping):
        found = as_trace_array(traces, None, list(variables or traces))
    else:
        return as_trace_array(traces, variables, ())
    if variables is None or tuple(found.columns) == tuple(variables):
        return found
    order = [found.columns[name] for name in variables]
    return TraceArray(
        found.values[:, order], {name: i for i, name in enumerate(variables)}, found.lengths
    )


def as_labels(labels: Sequence[Any]) -> np.ndarray:
    """Labels as an array that holds them unchanged: NumPy makes texts of numbers beside texts."""
    made = np.array(labels)
    if made.ndim != 1 or made.tolist() != list(labels):
        made = np.empty(len(labels), object)
        made[:] = labels
    return made


@dataclass(frozen=True)
class Wrong:
    """A trace that the formula does not label as it was labelled, and why."""

    trace: int
    label: Any
    predicted: Any
    robustness: float
    why: Explanation


@dataclass(frozen=True)
class Mined:
    """Formulae that tell two classes of traces apart, from the smallest up.

    A trace is predicted `positive` if it satisfies the formula (robustness >= 0), otherwise `negative`.
    `formula` is the chosen one: the smallest whose held-out loss is within one standard error of the
    smallest held-out loss.
    """

    front: tuple[Entry, ...]
    chosen: int  # place in the front
    positive: Any
    negative: Any
    n_positive: int
    n_negative: int
    certificates: tuple[Certified, ...]
    about: About
    notes: tuple[str, ...]
    evaluations: int
    seconds: float
    stopped: str  # why the search ended

    @property
    def entry(self) -> Entry:
        return self.front[self.chosen]

    @property
    def formula(self) -> Formula:
        return self.entry.formula

    @property
    def chance(self) -> float:
        """Accuracy of naming the larger class always."""
        return max(self.n_positive, self.n_negative) / (self.n_positive + self.n_negative)

    @property
    def beats_chance(self) -> bool:
        """Whether the interval of the held-out accuracy lies above chance."""
        return self.entry.interval[0] > self.chance

    @property
    def text(self) -> str:
        return self.formula.to_text(self.about.dt)

    def robustness(self, traces: Any) -> np.ndarray:
        """(N,) of the chosen formula."""
        return self.about.robustness(self.formula, traces)

    def predict(self, traces: Any) -> np.ndarray:
        """(N,) labels."""
        classes = as_labels([self.negative, self.positive])
        out: np.ndarray = classes[(self.robustness(traces) >= 0).astype(int)]
        return out

    def wrong(self, traces: Any, labels: Sequence[Any]) -> list[Wrong]:
        """The traces whose label the chosen formula gets wrong, each with an explanation."""
        predicted = self.predict(traces)
        return [
            self.explained(traces, i, label, predicted[i])
            for i, label in enumerate(labels)
            if predicted[i] != label
        ]

    def explained(self, traces: Any, i: int, label: Any, predicted: Any) -> Wrong:
        """Why trace i gives the robustness that it does."""
        found = self.about.array(traces)
        points = found.lengths[i] if found.lengths else found.values.shape[2]
        why = explain(
            self.formula, found.values[i, :, :points], variables=self.about.variables,
            dt=self.about.dt, units=self.about.units,
        )  # fmt: skip
        rho = self.about.robustness(self.formula, found.values[i : i + 1])
        return Wrong(i, label, predicted, float(rho[0]), why)

    def requirements(self, name: str = "mined") -> str:
        """A requirement file that holds the chosen formula, and the rest of the front as comments."""
        return self.about.requirement_file(
            f"{self.n_positive} traces {self.positive!r} and {self.n_negative} {self.negative!r}",
            _accuracy(self.entry),
            f"{name}: {self.text}",
            [(one.formula, _accuracy(one)) for one in self.front if one is not self.entry],
        )

    def svg(self, traces: Any, labels: Sequence[Any]) -> str:
        """A picture of traces with the chosen formula drawn in, as an SVG document."""
        values = np.asarray(self.about.array(traces).values)
        positive = np.array([label == self.positive for label in labels])
        return picture(
            self.formula, values, positive, (self.negative, self.positive),
            self.about.variables, self.about.units, self.about.dt,
        )  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """The front as a table, ready for JSON."""
        return [
            {
                "size": one.size,
                "chosen": i == self.chosen,
                "accuracy": one.accuracy,
                "held_out": one.held_out,
                "low": one.interval[0],
                "high": one.interval[1],
                "missed": one.missed,
                "alarms": one.alarms,
                "margin": one.margin,
                "formula": one.formula.to_text(self.about.dt),
            }
            for i, one in enumerate(self.front)
        ]

    def __str__(self) -> str:
        lines = [
            "  nodes  training  held out (95 %)      missed  alarms  margin  formula",
            *(
                f"{'>' if row['chosen'] else ' '} {row['size']:5}  {row['accuracy']:8.4f}  "
                f"{_interval(one):19}  {row['missed']:6}  {row['alarms']:6}  {row['margin']:6.2g}  "
                f"{row['formula']}"
                for row, one in zip(self.rows(), self.front, strict=True)
            ),
        ]
        lines += [f"note: {note}" for note in self.all_notes()]
        lines += [f"certificate: {one.text}" for one in self.certificates]
        return "\n".join(lines)

    def all_notes(self) -> list[str]:
        if self.beats_chance:
            return list(self.notes)
        return [
            f"held-out accuracy is not above chance ({self.chance:.3g}): on new traces this formula "
            "may tell nothing",
            *self.notes,
        ]


def _accuracy(one: Entry) -> str:
    low, high = one.interval
    held = f"held-out {one.held_out:.4g} ({low:.4g} to {high:.4g})"
    return f"training accuracy {one.accuracy:.4g}, {held}"


def _interval(one: Entry) -> str:
    return f"{one.held_out:.3f} ({one.interval[0]:.3f}-{one.interval[1]:.3f})"


def wilson(right: int, n: int) -> Interval:
    """95 % interval of a share (Wilson)."""
    z, p = 1.959964, right / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)
