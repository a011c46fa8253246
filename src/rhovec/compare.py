"""What two formulae have to do with each other: equivalent, one implies the other, contradictory.

Two sources, kept apart. A prover over the two programs answers for every signal there is: literals
are stored once, and one entails another by rules that only ever look at smaller pairs (thresholds,
windows, and/or, until). It is sound and far from complete. Where it is silent, satisfaction on
signals of a measure counts the four cases (both hold, only a, only b, neither), and a case that was
not seen has a probability of at most so much. Those intervals are Clopper and Pearson's: they hold
at least as often as they say for every probability and every number of signals, also for the rare
cases that matter here, where approximations are at their worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from .errors import RhovecError, SignalError
from .formula import operators as ops
from .formula.core import Formula
from .formula.operators import Channel
from .formula.reader import FormulaLike, as_formulae
from .formula.simplify import simplify
from .kernel import Progress, StlKernel
from .robustness import robustness, satisfaction
from .signals import BaseMeasure, Measure

DEFAULT_SIGNALS = 10_000  # of mu0; what was never seen among them is rarer than 0.0004
MAX_VARIABLES = 1000  # of the measure that is made for formulae without one
CHUNK = 4096  # signals evaluated at once
PAIRS = 10_000  # pairs of literals that a proof may look at, beside a few for every node
TEXT = 200  # characters of a formula in a report

Relation = Literal["equivalent", "implies", "implied by", "contradicts", "overlaps"]

# The cases, and which of them a relation rules out; the first relation that fits is reported.
BOTH, ONLY_A, ONLY_B, NEITHER = range(4)
RULED_OUT: dict[Relation, tuple[int, ...]] = {
    "equivalent": (ONLY_A, ONLY_B),
    "implies": (ONLY_A,),
    "implied by": (ONLY_B,),
    "contradicts": (BOTH,),
    "overlaps": (),
}


class Share(NamedTuple):
    """The probability of a case, with its interval; `impossible` if that is proved."""

    value: float
    low: float
    high: float
    impossible: bool = False


@dataclass(frozen=True, eq=False)
class Witness:
    """The signal on which two formulae differ most."""

    signal: np.ndarray  # (V, P) float64
    variables: tuple[str, ...]  # the names of axis V
    robustness: np.ndarray  # (2, P) float64: of a and of b at every time
    satisfied: tuple[bool, bool]  # whether a and b hold at time 0


@dataclass(frozen=True, eq=False)
class Comparison:
    """How a and b are related; `print` it for a report.

    relation: "equivalent", "implies" (b holds whenever a does), "implied by" (the converse),
        "contradicts" (never both), "overlaps" (none of these).
    proved: the relation is certain: by a proof for every signal or, for "overlaps", by examples.
        Otherwise it is what the signals show, and what could refute it has a share of 0 whose
        `high` says how likely it may still be. What is proved is reported even where the signals
        show more: `x > 0` implies `x >= 0`, and no signal of mu0 tells them apart.
    both, only_a, only_b, neither: the share of signals on which both hold, and so on, each with an
        interval of its own; differ is only_a and only_b together.
    similarity, standard_error: the semantic kernel on the same signals; None where the robustness
        of a or b is 0 on all of them, so that it has no angle.
    witness: of the signals on which just one of the two holds the one with the largest difference
        in robustness; if there are none, of all; None if their robustness is the same on all.

    A formula that holds on no signal implies and contradicts all others there, and one that always
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
    n_signals: int
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
            return f"{words}: there are signals with both, with a alone, and with b alone."
        if self.proved:
            return f"{words}: proved, for all signals."
        against = {
            "equivalent": self.differ,
            "implies": self.only_a,
            "implied by": self.only_b,
            "contradicts": self.both,
        }[self.relation]
        return (
            f"{words} on these signals: none of {self.n_signals:,} is a counterexample, and the "
            f"probability of one is at most {against.high:.2g} ({self._sure})."
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else the signals show, and what makes the relation say less than it seems to."""
        out = []
        for name, alone, other in (
            ("a", self.only_a, self.only_b),
            ("b", self.only_b, self.only_a),
        ):
            held = self.both.value + alone.value
            if held == 0 or self.neither.value + other.value == 0:
                which = "no" if held == 0 else "every"
                out.append(
                    f"{name} holds on {which} signal, so the signals say little about {name}."
                )
        if not out and self.neither.value == 0:
            sure = ": proved, for all signals" if self.neither.impossible else " on these signals"
            out.append(f"At least one of the two holds{sure}.")
        if self.relation in ("implies", "implied by") and self.differ.value == 0:
            out.append(
                "No signal tells them apart: the probability that just one of them holds is at "
                f"most {self.differ.high:.2g} ({self._sure})."
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
            f"Shares of {self.n_signals:,} signals of {self.points} points (seed {self.seed}), with "
            f"intervals of {self._sure}.",
        ]
        if self.similarity is not None:
            error = f"{self.standard_error:.1g}"
            lines.append(f"Semantic kernel: {self.similarity:.4f}, standard error {error}.")
        if self.witness is None:
            lines.append("Their robustness is the same on every signal.")
        else:
            values = self.witness.robustness[:, 0]
            a, b = (
                f"{name} {'holds' if ok else 'fails'} (robustness {value:.4g})"
                for name, ok, value in zip("ab", self.witness.satisfied, values, strict=True)
            )
            lines.append(f"They differ most on a signal where {a} and {b}.")
        return "\n".join(lines)


def compare(
    a: FormulaLike,
    b: FormulaLike,
    measure: Measure | None = None,
    n_signals: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """How a and b are related: proved where possible, otherwise on signals of the measure.

    measure: by default mu0 with as many variables as the formulae need, or `Trajectories` of the
        user's own; the intervals then are about what those are a random sample of.
    n_signals: by default 10,000 of mu0, all of the user's own.
    """
    (phi, psi), _ = as_formulae([a, b])
    if not 0.5 <= confidence < 1:
        raise RhovecError(f"confidence must be at least 0.5 and below 1, not {confidence}")
    if measure is None:
        measure = default_measure([phi, psi])
    if n_signals is None and isinstance(measure, BaseMeasure):
        n_signals = DEFAULT_SIGNALS
    kernel = StlKernel(measure, n_signals, seed=seed)
    pair = kernel._check([phi, psi]).unpack()
    n = measure.count(n_signals)
    seen = _observe(pair, kernel, _third(progress, 0))
    similarity = error = None
    if seen.has_angle:
        similarity = float(kernel.gram(phi, psi, progress=_third(progress, 1))[0, 0])
        error = float(kernel.gram_errors(phi, psi, progress=_third(progress, 2))[0, 0])
    # Only what was never seen can be impossible.
    impossible = impossible_cases(phi, psi, [c for c in range(4) if not seen.counts[c]])

    def share(*cases: int) -> Share:
        if impossible.issuperset(cases):
            return Share(0.0, 0.0, 0.0, impossible=True)
        k = sum(seen.counts[case] for case in cases)
        return Share(k / n, *interval(k, n, confidence))

    relation, proved = _relation(seen.counts, impossible)
    return Comparison(
        phi, psi, relation, proved,
        share(BOTH), share(ONLY_A), share(ONLY_B), share(NEITHER), share(ONLY_A, ONLY_B),
        similarity, error, None if seen.signal is None else _witness(pair, seen.signal, measure),
        n, measure.points, seed, confidence,
    )  # fmt: skip


class _Seen(NamedTuple):
    counts: list[int]  # signals of each case
    has_angle: bool  # neither formula's robustness is 0 on all signals
    signal: np.ndarray | None  # (V, P): the witness


def _observe(pair: list[Formula], kernel: StlKernel, progress: Progress | None) -> _Seen:
    names, total = kernel.measure.variables, kernel.measure.count(kernel.n_signals)
    counts = np.zeros(4, np.int64)
    nonzero = np.zeros(2, bool)
    best, signal = (False, 0.0), None  # whether just one formula holds, and the gap
    for signals in kernel.signals():
        for start in range(0, len(signals), CHUNK):
            part = signals[start : start + CHUNK]
            # In float64 thresholds are not rounded, so that no signal contradicts a proof.
            holds = satisfaction(pair, part.astype(np.float64), variables=names)
            rho = robustness(pair, part, variables=names)
            counts += np.bincount(3 - 2 * holds[0] - holds[1], minlength=4)
            nonzero |= (rho != 0).any(axis=1)
            differs = holds[0] != holds[1]
            with np.errstate(over="ignore", invalid="ignore"):  # the kernel refuses such values
                gap = abs(rho[0] - rho[1])
            place = int(np.where(differs, gap, -1.0).argmax() if differs.any() else gap.argmax())
            key = (bool(differs[place]), float(gap[place]))
            if key > best:
                best, signal = key, part[place]
            if progress:
                progress(int(counts.sum()) / total)
    return _Seen(counts.tolist(), bool(nonzero.all()), signal)


def default_measure(formulae: Iterable[Formula], points: int = 100) -> BaseMeasure:
    """mu0 with the variables x_0, x_1, ... to the last one that the formulae use."""
    numbers = [n[2:] for phi in formulae for n in phi.variables if n[:2] == "x_"]
    n = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
    if n > MAX_VARIABLES:
        raise SignalError(
            f"x_{n - 1} would need {n} random variables; number the variables from x_0 on, "
            "or give a measure"
        )
    return BaseMeasure(n, points)


def _relation(counts: list[int], impossible: set[int]) -> tuple[Relation, bool]:
    """The first relation that is proved, otherwise the first that no signal speaks against."""
    for relation, cases in RULED_OUT.items():
        if cases and impossible.issuperset(cases):
            return relation, True
    relation = next(r for r, cases in RULED_OUT.items() if not any(counts[c] for c in cases))
    return relation, relation == "overlaps"


def _witness(pair: list[Formula], signal: np.ndarray, measure: Measure) -> Witness:
    signal = signal.astype(np.float64)
    names = measure.variables
    trace = robustness(pair, signal[None], variables=names, trace=True)[:, 0]
    a, b = satisfaction(pair, signal[None], variables=names)[:, 0].tolist()
    return Witness(signal, names, trace, (a, b))


def _third(progress: Progress | None, which: int) -> Progress | None:
    return None if progress is None else lambda share: progress((which + share) / 3)


def _cell(share: Share) -> str:
    if share.impossible:
        return "0 (proved)"
    digits = max(2, 1 - math.floor(math.log10(share.high - share.low)))  # two of the width
    value, low, high = (f"{x:.{digits}f}" if 0 < x < 1 else f"{x:g}" for x in share[:3])
    return f"{value} [{low}, {high}]"


def _shortened(phi: Formula) -> str:
    text = str(phi)
    return text if len(text) <= TEXT else text[: TEXT - 3] + "..."


# -- intervals -------------------------------------------------------------------------------------


def interval(k: int, n: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's interval for a probability of which k of n trials were hits."""
    tail = (1 - confidence) / 2
    return _lower(k, n, tail), 1 - _lower(n - k, n, tail)


def _lower(k: int, n: int, tail: float) -> float:
    """The p at which k or more hits of n have the probability `tail`, by bisection.

    Up to p = k / n each further term of that tail is smaller than the one before, by ratios that
    fall themselves, so that a multiple of sqrt(n) of them is all that a float64 can hold.
    """
    if k == 0:
        return 0.0
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    j = np.arange(k, min(n, k + 64 + 12 * math.isqrt(n)))
    ratios = (n - j) / (j + 1)
    low, high = 0.0, k / n
    while low < (p := (low + high) / 2) < high:
        odds = p / (1 - p)
        first = math.exp(choose + k * math.log(p) + (n - k) * math.log1p(-p))
        if first * (1 + float(np.cumprod(ratios * odds).sum())) < tail:
            low = p
        else:
            high = p
    return p


# -- proofs ----------------------------------------------------------------------------------------


def impossible_cases(a: Formula, b: Formula, cases: Iterable[int] = range(4)) -> set[int]:
    """Which of these cases (BOTH, ONLY_A, ONLY_B, NEITHER) are proved to occur on no signal."""
    prover = _Prover()
    # As written, formulae that differ in a few places have one shape; simplified ones may have one
    # although they were written differently.
    pairs = {
        (prover.add(a), prover.add(b)),
        (prover.add(simplify(a)), prover.add(simplify(b))),
    }
    budget = PAIRS + a.size + b.size
    signs = {BOTH: (0, 1), ONLY_A: (0, 0), ONLY_B: (1, 1), NEITHER: (1, 0)}
    return {
        case
        for case in cases
        if any(prover.entails(p ^ signs[case][0], q ^ signs[case][1], budget) for p, q in pairs)
    }


class _Node(NamedTuple):
    op: int  # GE, GT, TRUE, AND, ALWAYS, UNTIL or IFF; all others are negations of these
    lo: int = 0
    hi: int = 0
    channel: Channel | None = None
    threshold: float = 0.0
    operands: tuple[int, ...] = ()  # literals


Pair = tuple[int, int]  # literals p and q of the question whether p entails q


class _Prover:
    """Literals, and which of them entail which, at every time of every signal.

    A literal is twice a node's number, plus one if it is negated, so that `^ 1` negates it.
    """

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.ids: dict[_Node, int] = {}
        self.views: dict[int, _Node] = {}
        self.known: dict[Pair, bool] = {}

    def add(self, phi: Formula) -> int:
        stack: list[int] = []
        for op, lo, hi, channel, threshold in phi.rows():
            first = len(stack) - ops.arity(op)
            operands = tuple(stack[first:])
            del stack[first:]
            stack.append(self.literal(op, lo, hi, operands, channel, threshold))
        return stack[0]

    def literal(
        self,
        op: int,
        lo: int,
        hi: int,
        operands: tuple[int, ...],
        channel: Channel | None = None,
        threshold: float = 0.0,
    ) -> int:
        if op == ops.NOT:
            return operands[0] ^ 1
        if op in (ops.ALWAYS, ops.EVENTUALLY) and lo == hi == 0:
            return operands[0]
        negate = 0
        if op == ops.NEXT:
            op, lo, hi = ops.ALWAYS, 1, 1
        elif op == ops.UNTIL and lo == hi == 0:
            op = ops.AND
        elif op not in (ops.GE, ops.GT, ops.TRUE, ops.AND, ops.ALWAYS, ops.UNTIL, ops.IFF):
            negate = 1
            if op in (ops.OR, ops.EVENTUALLY):
                operands = tuple(o ^ 1 for o in operands)
            elif op == ops.IMPLIES:
                operands = (operands[0], operands[1] ^ 1)
            op = {
                ops.LE: ops.GT,
                ops.LT: ops.GE,
                ops.OR: ops.AND,
                ops.IMPLIES: ops.AND,
                ops.EVENTUALLY: ops.ALWAYS,
            }.get(op, ops.TRUE)
        if op == ops.IFF or (op == ops.ALWAYS and lo == hi):  # negations of operands come out
            negate ^= sum(operands) & 1
            operands = tuple(sorted(o & ~1 for o in operands))
        node = _Node(op, lo, hi, channel, threshold, operands)
        number = self.ids.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return 2 * number + negate

    def view(self, literal: int) -> _Node:
        """The node that a literal stands for, with or and eventually; NOT is a negated until."""
        node = self.views.get(literal)
        if node is None:
            node = self.nodes[literal >> 1]
            if literal & 1 and node.op == ops.UNTIL:
                node = node._replace(op=ops.NOT)
            elif literal & 1 and node.op in (ops.AND, ops.ALWAYS):
                op = ops.OR if node.op == ops.AND else ops.EVENTUALLY
                node = node._replace(op=op, operands=tuple(o ^ 1 for o in node.operands))
            self.views[literal] = node
        return node

    def entails(self, p: int, q: int, budget: int) -> bool:
        """Whether a proof that p entails q was found within so many pairs."""
        known = self.known
        limit = len(known) + budget
        goal = _canonical(p, q)
        todo = [goal]
        while todo and len(known) < limit:
            pair = todo[-1]
            if pair in known:
                todo.pop()
                continue
            for option in self.options(*pair):
                states = [known.get(_canonical(*needed)) for needed in option]
                if False in states:
                    continue
                if None in states:
                    todo.append(_canonical(*option[states.index(None)]))
                else:
                    known[pair] = True
                break
            else:
                known[pair] = False
        return known.get(goal, False)

    def options(self, p: int, q: int) -> Iterator[tuple[Pair, ...]]:
        """Sets of smaller pairs; if p entails q in every pair of one set, then p entails q here."""
        yield from self.direct(p, q)
        if ops.NOT in (self.view(p).op, self.view(q).op):  # rules about until, by contraposition
            yield from self.direct(q ^ 1, p ^ 1)

    def direct(self, p: int, q: int) -> Iterator[tuple[Pair, ...]]:
        left, right = self.view(p), self.view(q)
        if p == q or self.is_true(q) or self.is_true(p ^ 1) or self.atom_entails(p, q):
            yield ()

        # Operand by operand; this alone is enough for formulae of one shape.
        same = tuple(zip(left.operands, right.operands, strict=False))
        if left.op == right.op and left.op in (ops.AND, ops.OR):
            yield same
        elif left.op in (ops.ALWAYS, ops.EVENTUALLY) and right.op in (ops.ALWAYS, ops.EVENTUALLY):
            if _window_entails(left, right):
                yield same
        elif left.op == right.op == ops.UNTIL and _within(left, right):
            yield same

        # p or p' entails q if both do, p entails q and q' if it entails both. Nothing is lost by it.
        if parts := self.conjuncts(q):
            yield tuple((p, part) for part in parts)
            return
        if parts := self.conjuncts(p ^ 1):
            yield tuple((part ^ 1, q) for part in parts)
            return

        # One operand of p that is enough, or one operand of q that suffices.
        if left.op == ops.AND or (left.op == ops.ALWAYS and left.lo == 0):
            yield from (((operand, q),) for operand in left.operands)
        if right.op == ops.OR or (right.op == ops.EVENTUALLY and right.lo == 0):
            yield from (((p, operand),) for operand in right.operands)
        if left.op == ops.UNTIL:
            holds, comes = left.operands
            yield ((self.literal(ops.ALWAYS, 0, left.lo, (holds,)), q),)
            yield ((self.literal(ops.EVENTUALLY, left.lo, left.hi, (comes,)), q),)
        if right.op == ops.UNTIL:
            holds, comes = right.operands
            for last in (right.hi, right.lo):
                always = self.literal(ops.ALWAYS, 0, last, (holds,))
                yield (p, always), (p, self.literal(ops.EVENTUALLY, right.lo, last, (comes,)))

    def is_true(self, literal: int) -> bool:
        return literal & 1 == 0 and self.nodes[literal >> 1].op == ops.TRUE

    def atom_entails(self, p: int, q: int) -> bool:
        """x >= c entails x >= d for d <= c, and so on."""
        if p & 1:
            p, q = q ^ 1, p ^ 1
        if (p | q) & 1:
            return False
        left, right = self.nodes[p >> 1], self.nodes[q >> 1]
        return (
            left.channel is not None
            and left.channel == right.channel
            and (left.threshold, left.op == ops.GT) >= (right.threshold, right.op == ops.GT)
        )

    def conjuncts(self, literal: int) -> tuple[int, ...]:
        """Two literals whose conjunction this one is, if it is one; windows and until split, too."""
        node = self.view(literal)
        if node.op == ops.AND:
            return node.operands
        if node.op == ops.ALWAYS or (node.op == ops.EVENTUALLY and node.lo == node.hi):
            inner = self.view(node.operands[0])
            if inner.op == ops.AND:
                return tuple(self.literal(node.op, node.lo, node.hi, (o,)) for o in inner.operands)
        if node.op in (ops.UNTIL, ops.NOT):  # (p and p') until q; not (p until (q or q'))
            negated = literal & 1
            left, right = node.operands
            inner = self.view(right if negated else left)
            if inner.op == (ops.OR if negated else ops.AND):
                pairs = [(left, o) if negated else (o, right) for o in inner.operands]
                return tuple(self.literal(ops.UNTIL, node.lo, node.hi, x) ^ negated for x in pairs)
        return ()


def _canonical(p: int, q: int) -> Pair:
    """A question and its contraposition are one."""
    return min((p, q), (q ^ 1, p ^ 1))


def _end(node: _Node) -> float:
    return math.inf if node.hi == ops.UNBOUNDED else node.hi


def _within(left: _Node, right: _Node) -> bool:
    return right.lo <= left.lo and _end(left) <= _end(right)


def _window_entails(left: _Node, right: _Node) -> bool:
    """Whether left entails right once the operands do: always or eventually, over their windows."""
    if left.op == right.op:
        return _within(right, left) if left.op == ops.ALWAYS else _within(left, right)
    if left.op == ops.ALWAYS:
        return max(left.lo, right.lo) <= min(_end(left), _end(right))
    return left.lo == left.hi == right.lo == right.hi
