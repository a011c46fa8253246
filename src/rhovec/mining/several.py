"""More than two classes: a short decision list, one formula per class but the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..traces.measure import varying
from .data import Data, Scale
from .result import About, Interval, Mined, Wrong, as_labels
from .scan import one_operator
from .search import NoDifferenceError

QUICK_TIMES = 24  # bounds of the scan that decides which class comes next


@dataclass(frozen=True)
class DecisionList:
    """The first formula that a trace satisfies names its class; without one it is `otherwise`.

    Each rule was mined on the traces that no earlier rule takes.
    """

    rules: tuple[Mined, ...]
    otherwise: Any
    accuracy: float  # on the training traces
    held_out: float | None  # accuracy of lists on traces that were left out when they were mined
    interval: Interval | None  # 95 % interval of it
    chance: float  # accuracy of naming the largest class always
    about: About
    notes: tuple[str, ...]

    @property
    def classes(self) -> list[Any]:
        return [*(rule.positive for rule in self.rules), self.otherwise]

    def rule_of(self, label: Any) -> Mined | None:
        return next((rule for rule in self.rules if rule.positive == label), None)

    def robustness(self, traces: Any) -> np.ndarray:
        """(N, classes) in the order of `classes`: by how much each class is the answer.

        min(rho_j, -rho_1, ..., -rho_(j-1)): of all classes, only the answer's number is >= 0.
        """
        columns, earlier = [], np.full(len(self.about.array(traces).values), np.inf)
        formulae = [rule.formula for rule in self.rules]
        for row in self.about.robustness(formulae, traces) if formulae else ():
            columns.append(np.minimum(row, earlier))
            earlier = np.minimum(earlier, -row)
        return np.stack([*columns, earlier], axis=1)

    def predict(self, traces: Any) -> np.ndarray:
        """(N,) labels."""
        places = np.argmax(self.robustness(traces) >= 0, axis=1)
        out: np.ndarray = as_labels(self.classes)[places]
        return out

    def places(self, traces: Any, classes: Sequence[Any]) -> np.ndarray:
        """(N,) places of the predicted labels among `classes`."""
        return np.array([classes.index(label) for label in self.predict(traces).tolist()])

    def wrong(self, traces: Any, labels: Sequence[Any]) -> list[Wrong]:
        """The traces that get another class, explained by the rule that took them, or should have."""
        predicted = self.predict(traces)
        out = []
        for i, label in enumerate(labels):
            if predicted[i] != label:
                classes = (predicted[i], label)
                rule = next((r for r in self.rules if r.positive in classes), self.rules[-1])
                out.append(rule.explained(traces, i, label, predicted[i]))
        return out

    def requirements(self, name: str = "mined") -> str:
        """A requirement file with one formula per rule, in the order in which they apply."""
        classes = ", ".join(map(repr, self.classes[:-1]))
        held = "" if self.held_out is None else f", held-out {self.held_out:.4g}"
        lines = [
            f"# Training accuracy {self.accuracy:.4g}{held}.",
            f"# A decision list: the first that holds names the class ({classes}); otherwise "
            f"{self.otherwise!r}.",
        ]
        for i, rule in enumerate(self.rules, 1):
            lines += [f"# {rule.positive!r}", f"{name}-{i}: {rule.text}"]
        return "\n".join(lines) + "\n"

    def rows(self) -> list[dict[str, Any]]:
        return [{"class": str(rule.positive), **row} for rule in self.rules for row in rule.rows()]

    def __str__(self) -> str:
        lines = [f"training accuracy {self.accuracy:.4f}"]
        if self.held_out is not None and self.interval is not None:
            low, high = self.interval
            lines[0] += f", held out {self.held_out:.3f} (95 %: {low:.3f}-{high:.3f})"
            if low <= self.chance:
                lines.append(
                    f"note: held-out accuracy is not above chance ({self.chance:.3g}): on new traces "
                    "this list may tell nothing"
                )
        for i, rule in enumerate(self.rules):
            lines += ["", f"{'otherwise ' * (i > 0)}{rule.positive!r} if", str(rule)]
        lines += ["", f"otherwise {self.otherwise!r}"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def decide(
    values: np.ndarray, labels: Sequence[Any], classes: Sequence[Any], about: About, notes: list[str],
    mine_two: Callable[..., Mined],
) -> DecisionList:  # fmt: skip
    """Mine a decision list; mine_two(values, is_positive, (others, class)) mines one rule.

    The next rule is always for the class that one operator over one atom tells best from the rest.
    Without rules, nothing tells the traces apart.
    """
    given = np.array([classes.index(label) for label in labels])
    left, taken = list(range(len(classes))), np.zeros(len(values), bool)
    rules = []
    while len(left) > 1:
        here = ~taken & np.isin(given, left)
        counts = {c: int((given[here] == c).sum()) for c in left}
        few = [c for c in left if counts[c] < 2]
        if few:  # what earlier rules left over is too little to learn from
            keep = max(left, key=lambda c: counts[c])
            few = [c for c in few if c != keep]
            notes.append(
                f"no rule for {', '.join(repr(classes[c]) for c in few)}: earlier rules took all traces "
                "but one at most"
            )
            left = [c for c in left if c not in few]
            continue
        chosen = min(left, key=lambda c: _quick_loss(values[here], given[here] == c))
        others = "other" if len(left) > 2 else classes[next(c for c in left if c != chosen)]
        try:
            rule = mine_two(values[here], given[here] == chosen, (others, classes[chosen]))
        except NoDifferenceError:
            keep = max(left, key=lambda c: counts[c])
            names = ", ".join(repr(classes[c]) for c in left if c != keep)
            notes.append(
                f"no rule for {names}: the traces that earlier rules left are all the same"
            )
            left = [keep]
            break
        rules.append(rule)
        taken |= about.robustness(rule.formula, values) >= 0
        left.remove(chosen)
    found = DecisionList(
        tuple(rules), classes[left[0]], 0.0, None, None, float(np.bincount(given).max() / len(given)),
        about, tuple(notes),
    )  # fmt: skip
    return replace(found, accuracy=float((found.places(values, classes) == given).mean()))


def _quick_loss(values: np.ndarray, positive: np.ndarray) -> float:
    values = values[:, varying(values)]
    if not values.shape[1]:
        return float("inf")
    scale = Scale.of(values, [""] * values.shape[1])
    n, n_positive = len(values), int(positive.sum())
    data = Data(
        scale.standardise(values), positive, (1 / n_positive, 1 / (n - n_positive)), scale.flags
    )
    best = one_operator(data, QUICK_TIMES).best
    return best[0][0] if best else float("inf")
