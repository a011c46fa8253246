"""Random candidates and random changes to them. All randomness of the search is here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..formula import operators as ops
from .data import ATOMS, BINARY, Candidate, Data, Node, atom, start_of

SHIFT = -1  # instead of an atom to tune: all thresholds move together
UNARY = (ops.ALWAYS, ops.EVENTUALLY)
TIMED = (*UNARY, ops.UNTIL, ops.RELEASE)
Proposal = tuple[Candidate, int]  # a candidate, and the row of the atom to tune, or SHIFT


class Moves:
    def __init__(self, data: Data, max_size: int, seed: int):
        self.random = random.Random(seed)
        self.points, self.max_size = data.points, max_size
        shares = np.linspace(0.02, 0.98, 49)
        self.quantiles = [
            [0.0] if flag else np.unique(np.quantile(data.values[:, v], shares)).tolist()
            for v, flag in enumerate(data.flags)
        ]
        weights = {
            self._bound: 6, self._graft: 6, self._cross: 4, self._exchange: 3, self._drop: 3,
            self._wrap: 3, self._tune: 2, self._swap: 2, self._until: 2, self._fresh: 2,
        }  # fmt: skip
        self._moves, self._weights = list(weights), list(weights.values())

    def propose(self, parents: Sequence[Candidate]) -> Proposal | None:
        """A change of a parent; None if the move does not apply or the result is too large."""
        (move,) = self.random.choices(self._moves, self._weights)
        found = move(self.random.choice(parents), parents)
        if found is None or len(found[0]) > self.max_size or not _sensible(found[0]):
            return None
        return found

    # -- parts -----------------------------------------------------------------------------

    def _fresh(self, _: Candidate, __: Sequence[Candidate]) -> Proposal:
        """A random formula of one to three operators."""
        inside: Candidate = (self._atom(),)
        if self.random.random() < 0.5:
            inside = (*inside, self._window(inner=True))
        if self.random.random() < 0.4:
            op = self.random.choice((ops.AND, ops.OR, ops.UNTIL))
            inside = (*inside, self._atom(), self._binary(op))
        phi = inside if inside[-1][0] in BINARY[2:] else (*inside, self._window())
        return phi, 0

    def _atom(self) -> Node:
        channel = self.random.randrange(len(self.quantiles))
        threshold = self.random.choice(self.quantiles[channel])
        return atom(self.random.choice(ATOMS), channel, threshold)

    def _bounds(self, inner: bool) -> tuple[int, int]:
        last, style = self.points - 1, self.random.random()
        if inner:
            hi = int(last ** self.random.random())
            return (0, hi) if style < 0.7 else (min(hi, int(last ** self.random.random())), hi)
        if style < 0.25:
            return 0, last
        lo, hi = sorted((self.random.randint(0, last), self.random.randint(0, last)))
        return (0, hi) if style < 0.45 else (lo, last) if style < 0.6 else (lo, hi)

    def _window(self, inner: bool = False) -> Node:
        return (self.random.choice(UNARY), *self._bounds(inner), -1, 0.0)

    def _binary(self, op: int) -> Node:
        timed = op in (ops.UNTIL, ops.RELEASE)
        return (op, *(self._bounds(False) if timed else (0, 0)), -1, 0.0)

    def _focus(self, phi: Candidate) -> int:
        atoms = [i for i, node in enumerate(phi) if node[0] in ATOMS]
        return SHIFT if self.random.random() < 0.25 else self.random.choice(atoms)

    def neighbours(self, phi: Candidate) -> list[Candidate]:
        """Each bound of each window moved by 1, 2, 4, ... steps."""
        last, out = self.points - 1, []
        for i, (op, lo, hi, *_) in enumerate(phi):
            if op not in TIMED:
                continue
            step = 1
            while step <= last:
                for a, b in ((lo - step, hi), (lo + step, hi), (lo, hi - step), (lo, hi + step)):
                    if 0 <= a <= b <= last:
                        out.append(self._changed(phi, i, (op, a, b, -1, 0.0)))
                step *= 2
        return out

    # -- moves -----------------------------------------------------------------------------

    def _tune(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal:
        return phi, self._focus(phi)

    def _window_of(self, node: Node) -> Node:
        """The node with other bounds: one moved a little, both moved together, or drawn anew."""
        op, lo, hi, *_ = node
        style, last = self.random.random(), self.points - 1
        if style < 0.2:
            return (op, *self._bounds(self.random.random() < 0.5), -1, 0.0)
        step = int(max(1, last) ** (0.9 * self.random.random())) * self.random.choice((-1, 1))
        if style < 0.5:
            lo += step
        elif style < 0.8:
            hi += step
        else:
            lo, hi = lo + step, hi + step
        lo, hi = min(max(lo, 0), last), min(max(hi, 0), last)
        return (op, min(lo, hi), max(lo, hi), -1, 0.0)

    def _changed(self, phi: Candidate, i: int, node: Node) -> Candidate:
        return (*phi[:i], node, *phi[i + 1 :])

    def _bound(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal | None:
        places = [i for i, n in enumerate(phi) if n[0] in TIMED]
        if not places:
            return None
        i = self.random.choice(places)
        new = self._changed(phi, i, self._window_of(phi[i]))
        return new, self._focus(new)

    def _exchange(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal:
        """Another atom."""
        i = self.random.choice([i for i, n in enumerate(phi) if n[0] in ATOMS])
        return self._changed(phi, i, self._atom()), i

    def _swap(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal | None:
        """Another operator of the same kind."""
        places = [i for i, n in enumerate(phi) if n[0] not in ATOMS]
        if not places:
            return None
        i = self.random.choice(places)
        op, lo, hi, *_rest = phi[i]
        if op in UNARY:
            node: Node = (ops.ALWAYS + ops.EVENTUALLY - op, lo, hi, -1, 0.0)
        else:
            node = self._binary(self.random.choice([b for b in BINARY if b != op]))
        new = self._changed(phi, i, node)
        return new, self._focus(new)

    def _graft(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal:
        """A node joined by and/or with a new atom, or with an operator over one."""
        i = self.random.randrange(len(phi))
        new: Candidate = (self._atom(),)
        if self.random.random() < 0.6:
            new = (*new, self._window(inner=i < len(phi) - 1))
        joint = self._binary(self.random.choice((ops.AND, ops.OR)))
        return (*phi[: i + 1], *new, joint, *phi[i + 1 :]), i + 1

    def _wrap(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal:
        i = self.random.randrange(len(phi))
        new = (*phi[: i + 1], self._window(inner=i < len(phi) - 1), *phi[i + 1 :])
        return new, self._focus(new)

    def _until(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal:
        """A node becomes one side of an until or a release; the other is a new atom."""
        i = self.random.randrange(len(phi))
        start = start_of(phi, i)
        joint = self._binary(self.random.choice((ops.UNTIL, ops.RELEASE)))
        if self.random.random() < 0.5:
            return (*phi[: i + 1], self._atom(), joint, *phi[i + 1 :]), i + 1
        return (*phi[:start], self._atom(), *phi[start : i + 1], joint, *phi[i + 1 :]), start

    def _drop(self, phi: Candidate, _: Sequence[Candidate]) -> Proposal | None:
        """A node is replaced by one of its operands."""
        places = [i for i, n in enumerate(phi) if n[0] not in ATOMS]
        if not places:
            return None
        i = self.random.choice(places)
        start, right = start_of(phi, i), start_of(phi, i - 1)
        kept = phi[right:i]
        if phi[i][0] in BINARY and self.random.random() < 0.5:
            kept = phi[start:right]
        new = (*phi[:start], *kept, *phi[i + 1 :])
        return new, self._focus(new)

    def _cross(self, phi: Candidate, parents: Sequence[Candidate]) -> Proposal:
        """A sub-formula is replaced by, or the whole joined with, one of another candidate."""
        other = self.random.choice(parents)
        j = self.random.randrange(len(other))
        part = other[start_of(other, j) : j + 1]
        if self.random.random() < 0.5:
            joint = self._binary(self.random.choice((ops.AND, ops.OR)))
            new = (*phi, *part, joint)
        else:
            i = self.random.randrange(len(phi))
            new = (*phi[: start_of(phi, i)], *part, *phi[i + 1 :])
        return new, self._focus(new)


def _sensible(phi: Candidate) -> bool:
    """Whether no operator stands directly over one that it absorbs."""
    return not any(a[0] == b[0] and a[0] in UNARY for a, b in pairwise(phi))
