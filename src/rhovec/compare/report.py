"""The result of a comparison, and how it is said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..formula.core import Formula
from .prover import BOTH, NEITHER, ONLY_A, ONLY_B

MAX_TEXT = 200  # characters of a formula in a report

Relation = Literal["equivalent", "implies", "implied by", "contradicts", "overlaps"]

# The cases that a relation rules out; the first relation that fits is reported.
RULED_OUT: dict[Relation, tuple[int, ...]] = {
    "equivalent": (ONLY_A, ONLY_B),
    "implies": (ONLY_A,),
    "implied by": (ONLY_B,),
    "contradicts": (BOTH,),
    "overlaps": (),
}


class Share(NamedTuple):
    """The probability of a case, with its interval; `impossible` if it is proved to be 0."""

    value: float
    low: float
    high: float
    impossible: bool = False


@dataclass(frozen=True, eq=False)
class Witness:
    """The trace on which two formulae differ most."""

    trace: np.ndarray  # (V, P) float64
    variables: tuple[str, ...]  # the names of axis V
    robustness: np.ndarray  # (2, P) float64: a and b at every time
    satisfied: tuple[bool, bool]  # whether a and b hold at time 0


@dataclass(frozen=True, eq=False)
class Comparison:
    """How a and b are related; `print` it for a report.

    relation: "equivalent", "implies" (b holds whenever a does), "implied by" (the converse),
        "contradicts" (never both), "overlaps" (none of these).
    proved: the relation is certain: proved for every trace or, for "overlaps", shown by examples.
        Otherwise it is what the traces show: none of them refutes it, and the `high` of that share
        bounds the probability of one that does. What is proved is reported even if the traces show
        more: `x > 0` implies `x >= 0`, and no trace of mu0 tells them apart.
    both, only_a, only_b, neither: the share of traces on which both hold, and so on, each with an
        interval of its own; differ is only_a and only_b together.
    similarity, standard_error: the semantic kernel on the same traces; None if the robustness of a
        or b is 0 on all of them, so that there is no angle.
    witness: among the traces on which just one of the two holds, the one with the largest
        difference in robustness; without such traces, among all; None if the robustness is the same
        on all traces.

    A formula that holds on no trace implies and contradicts all others there, and one that always
    holds is implied by all; `remarks` say so.
    """

    a: Formula
    b: Formula
    relation: Relation
    proved: bool
    both: Share
    only_a: Share
    only_b: Share
    neither: Share
    differ: Share
    similarity: float | None
    standard_error: float | None
    witness: Witness | None
    n_traces: int
    points: int
    seed: int
    confidence: float

    @property
    def statement(self) -> str:
        """The relation in a sentence, with how sure it is."""
        words = {
            "equivalent": "a and b are equivalent",
            "implies": "a implies b",
            "implied by": "a is implied by b",
            "contradicts": "a contradicts b",
            "overlaps": "a and b overlap",
        }[self.relation]
        if self.relation == "overlaps":
            return f"{words}: there are traces with both, with only a, and with only b."
        if self.proved:
            return f"{words}: proved, for all traces."
        against = {
            "equivalent": self.differ,
            "implies": self.only_a,
            "implied by": self.only_b,
            "contradicts": self.both,
        }[self.relation]
        return (
            f"{words} on these traces: none of {self.n_traces:,} is a counterexample, and the "
            f"probability of one is at most {against.high:.2g} ({self._sure})."
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else the traces show, and what makes the relation say less than it seems to."""
        out = []
        for name, only, other in (
            ("a", self.only_a, self.only_b),
            ("b", self.only_b, self.only_a),
        ):
            held = self.both.value + only.value
            if held == 0 or self.neither.value + other.value == 0:
                which = "no" if held == 0 else "every"
                out.append(f"{name} holds on {which} trace, so the traces say little about {name}.")
        if not out and self.neither.value == 0:
            sure = ": proved, for all traces" if self.neither.impossible else " on these traces"
            out.append(f"At least one of the two holds{sure}.")
        if self.relation in ("implies", "implied by") and self.differ.value == 0:
            out.append(
                "No trace tells them apart: the probability that just one of them holds is at "
                f"most {self.differ.high:.2g} ({self._sure})."
            )
        for name, phi in (("a", self.a), ("b", self.b)):
            if phi.only_looks_back:
                out.append(
                    f"{name} has no future: at time 0, where traces are judged, it reads the first "
                    "sample only. `always` in front judges it at every time."
                )
        return tuple(out)

    @property
    def _sure(self) -> str:
        return f"{100 * self.confidence:g} % confidence"

    def __str__(self) -> str:
        cells = [_cell(share) for share in (self.both, self.only_a, self.only_b, self.neither)]
        width = max(map(len, cells))
        lines = [
            f"a  {_shortened(self.a)}",
            f"b  {_shortened(self.b)}",
            "",
            self.statement,
            *self.remarks,
            "",
            f"       {'b':<{width}}  not b",
            f"a      {cells[BOTH]:<{width}}  {cells[ONLY_A]}",
            f"not a  {cells[ONLY_B]:<{width}}  {cells[NEITHER]}",
            f"Shares of {self.n_traces:,} traces of {self.points} points (seed {self.seed}), with "
            f"intervals of {self._sure}.",
        ]
        if self.similarity is not None:
            error = f"{self.standard_error:.1g}"
            lines.append(f"Semantic kernel: {self.similarity:.4f}, standard error {error}.")
        if self.witness is None:
            lines.append("Their robustness is the same on every trace.")
        else:
            values = self.witness.robustness[:, 0]
            a, b = (
                f"{name} {'holds' if ok else 'fails'} (robustness {value:.4g})"
                for name, ok, value in zip("ab", self.witness.satisfied, values, strict=True)
            )
            lines.append(f"They differ most on a trace where {a} and {b}.")
        return "\n".join(lines)


def _cell(share: Share) -> str:
    if share.impossible:
        return "0 (proved)"
    digits = max(2, 1 - math.floor(math.log10(share.high - share.low)))  # two digits of the width
    value, low, high = (f"{x:.{digits}f}" if 0 < x < 1 else f"{x:g}" for x in share[:3])
    return f"{value} [{low}, {high}]"


def _shortened(phi: Formula) -> str:
    text = str(phi)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
