"""Search over structures: thresholds exact, windows and operators by random changes.

Every candidate is evaluated with one of its atoms free (the others true or false) or with all of its
thresholds shifting together. In negation normal form its truth is monotone in that one number, so that
each trace has a critical value, which is what the engine computes; sorting these gives the best
threshold. An archive keeps the best candidates of each size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.operators import Channel
from ..formula.programs import Programs
from .cuts import MAX_NUMBER, cut_values
from .data import DUAL, Candidate, Data, Node, atom, dual, has_empty_band, plain, start_of
from .moves import SHIFT, Moves, Proposal
from .scan import Certificate, Scan, one_operator, two_operators, untils

TRUTH = 1e20  # factor that makes an atom's distance true or false, beyond all distances
BATCH = 384  # candidates per call of the engine
ARCHIVE = 24  # candidates kept per size
CLOSE = 0.02  # standard deviations of the channel
JOIN_TIMES = 24  # bounds tried where a candidate is joined with another operator
PATIENCE = 0.4  # share of the budget without a better front after which the search ends


class NoDifferenceError(RhovecError):
    def __init__(self) -> None:
        super().__init__("all traces are the same: no formula tells them apart")


@dataclass(frozen=True)
class Scored:
    """A candidate on the training traces."""

    candidate: Candidate
    loss: float  # summed cost of wrong traces
    risk: float  # the same, and of right ones that are CLOSE to the border
    margin: float  # smallest distance of a right trace from the border, in scales of the channels
    truth: bytes  # predictions, packed

    @property
    def size(self) -> int:
        return len(self.candidate)

    @property
    def level(self) -> int:
        """Its place in the archive: a comparison at time 0 competes with operators over one."""
        return level_of(self.candidate)

    @property
    def key(self) -> tuple[float, float, float]:
        """Smaller is better. A formula that gets one trace right by a hair is not better for it."""
        return self.risk, self.loss, -self.margin


def level_of(candidate: Candidate) -> int:
    return max(2, len(candidate))


# -- evaluation ------------------------------------------------------------------------------------


def numbers(
    data: Data, proposals: Sequence[Proposal], dtype: type[np.floating] = np.float32
) -> np.ndarray:
    """One number per candidate and trace (B, N): critical values of an atom, or robustness.

    The candidate holds with its free atom at threshold c if the number is at least c (for <=: -c), or
    with all thresholds shifted by c if robustness is at least c.
    """
    from ..robustness import cpu

    code: list[tuple[int, int, int, int]] = []
    thresholds: list[float] = []
    offsets = [0]
    n, flags = data.n_channels, data.flags.tolist()
    for candidate, free in proposals:
        for op, lo, hi, channel, threshold, place in _without_release(candidate):
            if channel < 0:
                code.append((op, lo, hi, -1))
                thresholds.append(0.0)
                continue
            exact = place == free
            if not exact and (free != SHIFT or flags[channel]):
                channel, threshold = channel + n, threshold * TRUTH
            code.append((op, 0, 0, channel))
            thresholds.append(0.0 if exact else threshold)
        offsets.append(len(code))
    names = [f"x_{i}" for i in range(n)]
    channels: list[Channel] = [((name, factor),) for factor in (1.0, TRUTH) for name in names]
    programs = Programs(
        np.array(code, np.int64), np.array(thresholds), np.array(offsets, np.int64), tuple(channels)
    )
    traces = data.engine if dtype is np.float32 else data.values
    return cpu.evaluate(programs, traces, {name: i for i, name in enumerate(names)})


def _without_release(candidate: Candidate) -> Iterator[tuple[int, int, int, int, float, int]]:
    """Rows with p release q written as not (not p until not q), the inner negations pushed down.

    Each row comes with its place in the candidate.
    """
    if not any(node[0] == ops.RELEASE for node in candidate):
        yield from ((*node, i) for i, node in enumerate(candidate))
        return
    negated = [False] * len(candidate)
    for i in range(len(candidate) - 1, -1, -1):
        op = DUAL[candidate[i][0]] if negated[i] else candidate[i][0]
        if op == ops.RELEASE:
            for j in range(start_of(candidate, i), i):
                negated[j] = not negated[j]
    for i, (op, lo, hi, channel, threshold) in enumerate(candidate):
        op = DUAL[op] if negated[i] else op
        if op == ops.RELEASE:
            yield ops.UNTIL, lo, hi, -1, 0.0, i
            yield ops.NOT, 0, 0, -1, 0.0, i
        else:
            yield op, lo, hi, channel, threshold, i


def settled(proposal: Proposal, at: float, direction: int, flags: np.ndarray) -> Candidate:
    """The candidate with its free threshold, or all but those of flags, set; direction 1: negated."""
    candidate, free = proposal
    rows: list[Node] = []
    for i, (op, lo, hi, channel, threshold) in enumerate(candidate):
        if channel >= 0 and i == free:
            threshold = at if op == ops.GE else -at
        elif channel >= 0 and free == SHIFT and not flags[channel]:
            threshold += at if op == ops.GE else -at
        rows.append((op, lo, hi, channel, threshold))
    return dual(tuple(rows)) if direction else tuple(rows)


def measured(data: Data, candidates: Sequence[Candidate]) -> list[Scored]:
    """Candidates as they are, on the training traces."""
    out = []
    for start in range(0, len(candidates), BATCH):
        some = candidates[start : start + BATCH]
        rho = numbers(data, [(candidate, SHIFT) for candidate in some])
        holds = rho >= 0
        wrong = holds != data.positive
        loss, risk = (
            data.costs[0] * (bad & data.positive).sum(axis=1)
            + data.costs[1] * (bad & ~data.positive).sum(axis=1)
            for bad in (wrong, wrong | (np.abs(rho) < CLOSE))
        )
        distance = np.where(wrong, np.inf, np.abs(rho)).min(axis=1)
        packed = np.packbits(holds, axis=1)
        out += [
            Scored(c, float(one), float(r), min(float(m), MAX_NUMBER), bits.tobytes())
            for c, one, r, m, bits in zip(some, loss, risk, distance, packed, strict=True)
        ]
    return out


# -- the search ------------------------------------------------------------------------------------


class Search:
    """One search on one set of training traces.

    max_size: nodes of the largest formula. budget: candidates evaluated after the scans. deadline: of
    time.monotonic(), or None.
    """

    def __init__(
        self, data: Data, max_size: int, budget: int, seed: int, deadline: float | None = None,
        start: Sequence[Candidate] = (),
    ):  # fmt: skip
        self.data, self.budget, self.deadline, self.start = data, budget, deadline, start
        self.max_size = max_size
        self.moves = Moves(data, max_size, seed)
        self.archive: dict[int, list[Scored]] = {}
        self.certificates: list[Certificate] = []
        self.floor = data.floor
        self.spent, self.stopped = 0, "budget"
        self._seen: set[int] = set()
        self._joined: set[Candidate] = set()

    def run(self) -> None:
        self._scan()
        self.offer(self.start)
        last_gain, front = 0, self._losses()
        round_ = 0
        while self._goes_on(last_gain):
            if round_ % 6 == 0:
                self._join()
            self._round()
            round_ += 1
            if self._losses() != front:
                front, last_gain = self._losses(), self.spent
        for one in self.front():
            self._polish(one)

    def _goes_on(self, last_gain: int) -> bool:
        best = min(
            (one for found in self.archive.values() for one in found),
            key=lambda one: (one.loss, one.size),
        )
        if best.loss <= self.floor:  # nothing larger can be better
            self.moves.max_size = min(self.moves.max_size, best.level - 1)
        exhausted = 2 if self.certificates[0].complete else 0
        if self.moves.max_size <= exhausted:
            self.stopped = "no formula can do better"
        elif self.spent - last_gain > PATIENCE * self.budget:
            self.stopped = f"no gain in {self.spent - last_gain:,} evaluations"
        elif self.deadline is not None and time.monotonic() > self.deadline:
            self.stopped = "time limit"
        else:
            return self.spent < self.budget
        return False

    def front(self) -> list[Scored]:
        """The best of each size that is better than all smaller ones."""
        out: list[Scored] = []
        for size in sorted(self.archive):
            best = self.archive[size][0]
            if not out or (best.loss < out[-1].loss and best.risk < out[-1].risk):
                out.append(best)
        return out

    def _losses(self) -> list[tuple[int, float]]:
        return [(one.size, one.loss) for one in self.front()]

    def offer(self, candidates: Sequence[Candidate]) -> None:
        """Put candidates into the archive if they are good enough."""
        fitting = [
            plain(c) for c in candidates if len(c) <= self.max_size and not has_empty_band(c)
        ]
        for one in measured(self.data, fitting):
            found = self.archive.setdefault(one.level, [])
            same = next((i for i, other in enumerate(found) if other.truth == one.truth), None)
            if same is not None:
                if found[same].key <= one.key:
                    continue
                del found[same]
            found.append(one)
            found.sort(key=lambda other: other.key)
            del found[ARCHIVE:]

    def tuned(self, proposals: Sequence[Proposal]) -> list[Candidate]:
        """Candidates with their best threshold, if they are as good as those in the archive."""
        out = []
        for start in range(0, len(proposals), BATCH):
            some = proposals[start : start + BATCH]
            values = numbers(self.data, some)
            loss, _, at = cut_values(values, self.data.positive, self.data.costs)
            for i, proposal in enumerate(some):
                found = self.archive.get(level_of(proposal[0]), [])
                limit = max(one.loss for one in found) if len(found) == ARCHIVE else np.inf
                out += [
                    settled(proposal, float(at[i, d]), d, self.data.flags)
                    for d in (0, 1)
                    if np.isfinite(loss[i, d]) and loss[i, d] <= limit
                ]
        self.spent += len(proposals)
        return out

    # -- its steps -------------------------------------------------------------------------

    def _scan(self) -> None:
        scans: list[tuple[Callable[[Data], Scan | None], int]]
        scans = [(one_operator, 2), (two_operators, 3), (untils, 3)]
        for scan, size in scans:
            if self.certificates and (
                self.max_size < size
                or (self.certificates[0].complete and self.certificates[0].loss <= self.floor)
            ):
                break
            found = scan(self.data)
            if not self.certificates and found and not found.best:
                raise NoDifferenceError
            if found is None or not found.best:  # on this grid, none is true on some traces only
                continue
            self.certificates.append(found.certificate())
            self.offer(found.candidates())
        atoms = [((atom(ops.GE, v, 0.0),), 0) for v in range(self.data.n_channels)]
        self.offer(self.tuned(atoms))

    def _parents(self) -> list[Candidate]:
        out: list[Candidate] = []
        least = np.inf
        for size in sorted(self.archive):
            found = self.archive[size]
            kept = ARCHIVE if found[0].loss < least else ARCHIVE // 4
            least = min(least, found[0].loss)
            out += [one.candidate for one in found[:kept]]
            out += [one.candidate for one in found[: kept // 4] for _ in range(3)]
        return out

    def _round(self) -> None:
        parents, proposals = self._parents(), []
        for _ in range(4 * BATCH):
            proposal = self.moves.propose(parents)
            if proposal is None:
                continue
            key = hash(proposal)
            if key in self._seen:
                continue
            self._seen.add(key)
            proposals.append(proposal)
            if len(proposals) == min(BATCH, self.budget - self.spent):
                break
        self.spent += not proposals  # a space that is used up ends, too
        self.offer(self.tuned(proposals))

    def _join(self) -> None:
        """The best candidate not yet taken, joined with every operator over an atom by and/or."""
        ranked = sorted(
            (one for found in self.archive.values() for one in found[:4]),
            key=lambda one: (one.loss, one.size),
        )
        for one in ranked:
            if one.candidate not in self._joined and one.size + 3 <= self.moves.max_size:
                self._joined.add(one.candidate)
                holds = np.unpackbits(np.frombuffer(one.truth, np.uint8))[: self.data.n_traces] == 1
                for op, chosen in ((ops.AND, holds), (ops.OR, ~holds)):
                    labels = self.data.positive[chosen]
                    if labels.all() or not labels.any():
                        continue
                    node: Node = (op, 0, 0, -1, 0.0)
                    more = one_operator(self.data.part(chosen), JOIN_TIMES).candidates(8)
                    self.offer([(*one.candidate, *new, node) for new in more])
                return

    def _polish(self, one: Scored) -> None:
        """Bounds and thresholds by turns, until nothing is gained."""
        for _ in range(8):
            phi = one.candidate
            frees = [SHIFT, *(i for i, node in enumerate(phi) if node[3] >= 0)]
            forms = [phi, *self.moves.neighbours(phi)]
            self.offer(self.tuned([(form, free) for form in forms for free in frees]))
            best = self.archive[one.level][0]
            if best.key >= one.key:
                return
            one = best
