"""From a vector of a space back to formulae, without training: search, with the exact engine as judge.

Candidates are the nearest of a bank of drawn formulae, evaluated once on the traces. The search of
`models.inverse` tunes the best and changes their operators; here two changes are added. Channels are
exchanged. And the best formula is joined by `and` or `or` with each short formula of the bank at once,
as minima and maxima of robustness vectors need no engine. Everything happens in standardised units;
answers are lifted to the user's, rounded, and embedded again, so that their similarity is that of the
formula as it is printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.fragment import in_fragment
from ..formula.operators import Row
from ..formula.programs import Programs
from ..kernel import Progress
from ..models.inverse import PARSIMONY, REQUESTS, Found, Limits, Numbers, choose, plain, structure
from ..robustness import robustness
from .fitting import (
    distinct,
    draw_boxes,
    draw_formulae,
    draw_responses,
    principal,
    vectors_of,
)
from .scales import Scales

BANK, BANK_SEED, BANK_NODES = 20_000, 1, 24
NEAREST = 24  # bank formulae that a search starts from
BOXES = 2000  # further bank formulae, about boxes of two channels
JOINED, JOINT_NODES = (
    1500,
    7,
)  # other bank formulae that are joined with the best one, and their size
JOINT_TRACES, CAREFUL_TRACES = 256, 1024  # on which they are compared
JOINTS = 8  # that the engine looks at, per round
RESPONSES = 1500  # further ones, about intervals of channels
BUDGET, TUNED, CHANGED = 600, 4, 60  # formulae per request; tuned, and changed, per round
FURTHER = 700  # further formulae for a request without a close answer
SCANNED, STRUCTURES = 1000, 48  # joints and different structures that a careful proposal looks at
PARENTS, CHILDREN = 12, 12  # structures whose numbers are varied, and variants of each per round
SPREADS = (1.0, 0.5, 0.25)  # by round, in expected changes of numbers
CAREFUL = 4  # of them that are proposed
CORRELATED = 8, 4, 2, 2  # starts by correlation whose bounds are moved, by round
MIN_VARIED = 0.1  # length that the varying part of a vector should exceed
SHIFTS, ROUNDS, MIN_GAIN = (-2, -1, 1, 2), 8, 0.002  # other modes; rounds and gains of their search
MOVES = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)  # of a bound, in steps
MAX_THRESHOLD = 8.0  # standard deviations
ROWS = 2048  # formulae evaluated at once
DECIMALS = 3  # of a standard deviation, that a threshold keeps


# Formulae, their robustness (J, n) on n of the traces, which traces these are, and a number for the
# structure of each formula.
Others = tuple[Programs, np.ndarray, np.ndarray, np.ndarray]
Joint = tuple[Formula, int, float]  # second operand, and or or, closeness


class Decoder:
    """Formulae for the vectors of a space. basis (N, D): its directions."""

    def __init__(self, scales: Scales, basis: np.ndarray):
        self.scales, self.basis = scales, basis
        self._by_correlation: dict[bytes, list[Formula]] = {}  # for the requests at hand
        points = scales.values.shape[2]
        self.limits = Limits(
            MAX_THRESHOLD,
            max(1, points - 1),
            (0.3, max(1.0, 0.04 * points)),
            BUDGET,
            TUNED,
            CHANGED,
            front=True,
            further=FURTHER,
        )

    @cached_property
    def _basis(self) -> np.ndarray:
        return self.basis.astype(np.float64)  # so that answers are the same in every batch

    def embed(self, formulae: Sequence[Formula] | Programs) -> np.ndarray:
        """Unit rows (B, D) float32 of formulae about standardised traces; zero for one that is zero."""
        programs = formulae if isinstance(formulae, Programs) else Programs.pack(formulae)
        starts = range(0, len(programs), ROWS)
        parts = [programs.part(i, min(i + ROWS, len(programs))) for i in starts]
        rows = [vectors_of(_unit(self._values(part)), self._basis)[0] for part in parts]
        return np.concatenate(rows).astype(np.float32)

    def decode(
        self,
        vectors: np.ndarray,
        of: Sequence[Formula] | None = None,
        progress: Progress | None = None,
    ) -> list[list[Formula]]:
        """Formulae in the user's units for each row (B, D), of different structure, best first.

        of: the formulae whose vectors these are, about standardised traces; the search starts from them,
            too, if they are about single variables and in the operators that a search knows.
        """
        out: list[list[Formula]] = []
        for first in range(0, len(vectors), REQUESTS):
            part = vectors[first : first + REQUESTS]
            starts = self._nearest(part)
            if of is not None:
                for phi, near in zip(of[first : first + REQUESTS], starts, strict=True):
                    near += [phi] if _is_known(phi) else []
            found = choose(self.embed, part, starts, self.limits, self._proposals)
            lifted = [[self.lift(one.formula) for one in group] for group in found]
            out += [[group[i] for i in self._with_direction(group)] for group in lifted]
            self._by_correlation.clear()
            if progress:
                progress(len(out) / len(vectors))
        return out

    def lift(self, phi: Formula) -> Formula:
        """A formula about standardised traces in the user's units, with rounded thresholds."""
        phi = plain(phi, self.limits.bound)
        known = {c.variables[0]: c for c in self.scales.schema.channels}
        thresholds = phi.thresholds.copy()
        for i in np.flatnonzero(phi.code[:, 3] >= 0).tolist():
            (variable, weight), = phi.channels[phi.code[i, 3]]  # fmt: skip
            channel = known[ops.name_of(variable)]
            assert weight == 1
            value = float(thresholds[i]) * channel.std + channel.mean
            thresholds[i] = channel.rounded(value, DECIMALS)
        return Formula.trusted(phi.code.copy(), thresholds, phi.channels)

    def _with_direction(self, formulae: Sequence[Formula]) -> list[int]:
        """Which formulae in the user's units are not 0 on every trace; rounding may make them so."""
        values = self._values(self.scales.lower(Programs.pack(formulae)))
        found: list[int] = np.flatnonzero(values.any(axis=1)).tolist()
        return found

    # -- candidates ------------------------------------------------------------------------

    @cached_property
    def _bank(self) -> tuple[Programs, np.ndarray]:
        boxes = draw_boxes(self.scales, BOXES, BANK_SEED)
        responses = draw_responses(self.scales, RESPONSES, BANK_SEED)
        drawn = draw_formulae(self.scales, BANK, BANK_SEED, BANK_NODES)
        drawn = distinct(Programs.join([boxes, responses, drawn]), self.scales, False)
        return drawn, self.embed(drawn)

    @cached_property
    def _joints(self) -> Others:
        """Boxes, responses and short formulae of the bank, on a few traces."""
        bank, _ = self._bank
        sizes = np.diff(bank.offsets)
        sizes[: BOXES + RESPONSES] = 0  # some may be missing, which does not matter
        short = np.flatnonzero(sizes <= JOINT_NODES)[: BOXES + RESPONSES + JOINED]
        return self._others(bank.select(short), JOINT_TRACES)

    @cached_property
    def _careful_joints(self) -> Others:
        """Boxes and responses, on more traces."""
        return self._others(self._bank[0].part(0, BOXES + RESPONSES), CAREFUL_TRACES)

    def _others(self, programs: Programs, n: int) -> Others:
        order = np.random.default_rng(BANK_SEED).permutation(len(self.scales.values))
        traces = np.sort(order[:n])
        known: dict[object, int] = {}
        kinds = [known.setdefault(structure(phi), len(known)) for phi in programs.unpack()]
        return programs, self._values(programs, traces), traces, np.array(kinds)

    def _values(self, programs: Programs, traces: np.ndarray | slice = slice(None)) -> np.ndarray:
        values = self.scales.values[traces]
        found: np.ndarray = robustness(programs, values, variables=self.scales.variables)
        return found

    def _nearest(self, vectors: np.ndarray) -> list[list[Formula]]:
        """The nearest bank formulae, and the negations of those that are nearest to the opposite."""
        bank, places = self._bank
        products = np.stack([places @ vector for vector in vectors])  # the same in every batch
        best = np.argsort(-np.abs(products), axis=1, kind="stable")[:, :NEAREST]
        used = np.unique(best)
        formulae = dict(zip(used.tolist(), bank.select(used).unpack(), strict=True))
        signs = np.take_along_axis(products, best, axis=1)
        return [
            [
                _negated(formulae[j]) if s < 0 else formulae[j]
                for j, s in zip(row, each, strict=True)
            ]
            for row, each in zip(best.tolist(), signs.tolist(), strict=True)
        ]

    def _proposals(self, target: np.ndarray, phi: Formula, careful: bool) -> list[Formula]:
        if careful:
            key = target.tobytes()
            if key not in self._by_correlation:
                self._by_correlation[key] = self._correlated(target)
            return [*self._by_correlation[key], *self._refined(target, phi)]
        joints = self._joined(target, phi, self._joints, JOINTS)
        return [_joint(phi, psi, op) for psi, op in joints] + [*self._exchanged(phi)]

    @cached_property
    def _constant(self) -> np.ndarray:
        """(D,): the vector of a robustness that is the same on all traces."""
        n = len(self.basis)
        found: np.ndarray = vectors_of(np.full((1, n), n**-0.5), self.basis)[0][0]
        return found

    @cached_property
    def _centred_bank(self) -> np.ndarray:
        return self._centred(self._bank[1])

    def _correlated(self, target: np.ndarray) -> list[Formula]:
        """Bank formulae that correlate best with the target over the traces, with better bounds.

        A requirement that holds on most traces by the same margin is close to every other such one, so
        that the nearest formulae say nothing about it. On which traces it fails tells more. Tuning
        moves thresholds, where that brings a formula nearer, rather than bounds that are far off; so
        each bound is tried at other places first.
        """
        bank, _ = self._bank
        wanted = target - (target @ self._constant) * self._constant
        scores = self._centred_bank @ wanted
        best: dict[object, tuple[float, Formula]] = {}
        for j in np.argsort(-np.abs(scores), kind="stable")[:SCANNED].tolist():
            (psi,) = bank.part(j, j + 1).unpack()
            psi = plain(_negated(psi) if scores[j] < 0 else psi, self.limits.bound)
            best.setdefault(structure(psi), (float(abs(scores[j])), psi))
            if len(best) == CORRELATED[0]:
                break
        for kept in CORRELATED:
            parents = sorted(best.values(), key=lambda one: -one[0])[:kept]
            children = [psi for _, phi in parents for psi in (phi, *self._moved(phi))]
            scored = self._centred(self.embed(children)) @ wanted
            for score, psi in zip(scored.tolist(), children, strict=True):
                if score > best[structure(psi)][0]:
                    best[structure(psi)] = score, psi
        found = [psi for _, psi in sorted(best.values(), key=lambda one: -one[0])[:CAREFUL]]
        return [*found, *(self._for_modes(target, psi) for psi in found if self._whole(psi).any())]

    def _for_modes(self, target: np.ndarray, phi: Formula) -> Formula:
        """The conjunction or disjunction of a formula and the same about other modes.

        What is required of one gear is often required of others, with the same bounds.
        """

        def nearest(options: list[tuple[int, tuple[int, ...], Formula]]) -> tuple[float, int]:
            products = self.embed([self._family(*one) for one in options]) @ target
            return float(products.max()), int(products.argmax())

        now: tuple[int, tuple[int, ...], Formula] = ops.AND, (0,), phi
        near = nearest([now])[0]
        for _ in range(ROUNDS):
            options = [
                (op, tuple(sorted({*now[1]} ^ {shift})), now[2])
                for op in ((ops.AND, ops.OR) if len(now[1]) == 1 else now[:1])
                for shift in SHIFTS
            ]
            options += [(*now[:2], psi) for psi in self._moved(now[2])]
            value, i = nearest(options)
            if value < near + MIN_GAIN:
                break
            now, near = options[i], value
        return self._family(*now)

    def _family(self, op: int, shifts: Sequence[int], phi: Formula) -> Formula:
        """The formula about modes that are so far apart, joined."""
        whole, out = self._whole(phi), None
        for shift in shifts:
            other = Formula.trusted(phi.code, phi.thresholds + shift * whole, phi.channels)
            out = other if out is None else _joint(out, other, op)
        assert out is not None
        return out

    def _whole(self, phi: Formula) -> np.ndarray:
        """(nodes,) bool: atoms about discrete channels, whose thresholds move by whole numbers."""
        discrete = {c.variables[0] for c in self.scales.schema.channels if c.discrete}
        which = np.array([ops.name_of(channel[0][0]) in discrete for channel in phi.channels])
        return np.asarray((phi.code[:, 3] >= 0) & which[phi.code[:, 3]])

    def _moved(self, phi: Formula) -> list[Formula]:
        """The formula with one bound at another place."""
        numbers = Numbers(phi, self.limits)
        bounds = range(len(numbers.atoms), len(numbers.values))
        moves = [numbers.values + np.eye(len(numbers.values))[i] * m for i in bounds for m in MOVES]
        return list(dict.fromkeys(numbers.put(move) for move in moves))

    def _centred(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors (B, D) without their constant part, divided by their length."""
        rows = vectors - np.outer(vectors @ self._constant, self._constant)
        found: np.ndarray = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + MIN_VARIED)
        return found

    def _joined(
        self, target: np.ndarray, phi: Formula, joints: Others, n: int, different: bool = False
    ) -> list[tuple[Formula, int]]:
        """The n formulae of `joints`, each with an operator, that bring `phi` closest to the target when
        they are joined with it.

        different: only one per structure and operator, of the SCANNED closest.
        """
        chosen, others, traces, kinds = joints
        leading = principal(self.basis.shape[1])
        wanted = self.basis[traces, :leading] @ target[:leading]
        own = self._values(Programs.pack([phi]), traces)[0]
        scores = []
        for sign in (1, -1):
            for join in (np.minimum, np.maximum):
                values = join(own, others if sign > 0 else -others)
                lengths = np.sqrt(np.einsum("jn,jn->j", values, values))
                scores.append((values @ wanted) / np.maximum(lengths, 1e-9))
        order = np.argsort(-np.concatenate(scores), kind="stable")[: SCANNED if different else n]
        if different:
            _, first = np.unique(
                np.stack([order // len(others), kinds[order % len(others)]]),
                axis=1,
                return_index=True,
            )
            order = order[np.sort(first)[:n]]
        out = []
        for i in order.tolist():
            kind, j = divmod(i, len(others))
            (psi,) = chosen.part(j, j + 1).unpack()
            out.append((_negated(psi) if kind >= 2 else psi, ops.OR if kind % 2 else ops.AND))
        return out

    def _refined(self, target: np.ndarray, phi: Formula) -> list[Formula]:
        """Joints whose second part was varied to bring them closest to the target.

        The box of an obstacle, drawn at random, is never quite right, and a joint with a wrong one gains
        less than other changes. So the best of each structure are varied, and judged after that.
        """
        own = self._values(Programs.pack([phi]))[0]
        rng = np.random.default_rng(BANK_SEED)

        def judged(joints: Sequence[tuple[Formula, int]]) -> list[Joint]:
            values = self._values(Programs.pack([psi for psi, _ in joints]))
            either = np.array([op == ops.OR for _, op in joints])[:, None]
            values = np.where(either, np.maximum(own, values), np.minimum(own, values))
            scores = vectors_of(_unit(values), self.basis)[0] @ target
            return [(*joint, float(s)) for joint, s in zip(joints, scores, strict=True)]

        first = self._joined(target, phi, self._careful_joints, STRUCTURES, different=True)
        found = judged([(plain(psi, self.limits.bound), op) for psi, op in first])
        parents = _different(sorted(found, key=lambda one: -one[2]))[:PARENTS]
        for spread in SPREADS:
            children = []
            for psi, op, _ in parents:
                numbers = Numbers(psi, self.limits)
                steps = rng.standard_normal((CHILDREN, len(numbers.values)))
                steps *= numbers.scale * spread
                whole = np.flatnonzero(self._whole(psi)[numbers.atoms])
                steps[:, whole] = steps[:, whole].round()
                children += [(numbers.put(numbers.values + step), op) for step in steps]
            found = sorted([*parents, *judged(children)], key=lambda one: -one[2])
            parents = _different(found)
        return [_joint(phi, psi, op) for psi, op, _ in parents[:CAREFUL]]

    def _exchanged(self, phi: Formula) -> Iterator[Formula]:
        """Formulae with one atom about another channel, at the same threshold."""
        rows = phi.rows()
        for i, (op, lo, hi, channel, threshold) in enumerate(rows):
            if channel is None:
                continue
            for name in self.scales.variables:
                if ((name, 1.0),) != channel:
                    other: Row = (op, lo, hi, ((name, 1.0),), threshold)
                    yield Formula.from_rows([*rows[:i], other, *rows[i + 1 :]])


def front(found: Sequence[Found]) -> list[Found]:
    """From short to exact: each is closer than all shorter ones, by more than PARSIMONY per further
    node."""
    kept: list[Found] = []
    best = -math.inf
    for one in sorted(found, key=lambda one: (one.formula.size, -one.similarity)):
        value = one.similarity - PARSIMONY * one.formula.size
        if value > best:
            kept, best = [*kept, one], value
    return kept


def refuse_centred() -> RhovecError:
    return RhovecError(
        "a centred space cannot be decoded: it does not see a shift of all thresholds; fit a space "
        "without centred"
    )


def _is_known(phi: Formula) -> bool:
    try:
        in_fragment(phi)
    except RhovecError:
        return False
    return all(len(channel) == 1 and channel[0][1] == 1 for channel in phi.channels) and not any(
        ops.lag_of(channel[0][0]) for channel in phi.channels
    )


def _joint(phi: Formula, psi: Formula, op: int) -> Formula:
    return Formula.from_rows([*phi.rows(), *psi.rows(), (op, 0, 0, None, 0.0)])


def _different(joints: Sequence[Joint]) -> list[Joint]:
    """The best joint per structure, in order."""
    best: dict[object, Joint] = {}
    for psi, op, score in joints:
        best.setdefault((structure(psi), op), (psi, op, score))
    return list(best.values())


def _negated(phi: Formula) -> Formula:
    return Formula.from_rows([*phi.rows(), (ops.NOT, 0, 0, None, 0.0)])


def _unit(values: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("bn,bn->b", values, values, dtype=np.float64))
    return np.asarray(values / np.maximum(lengths, 1e-9)[:, None], np.float32)
