"""A simpler formula with exactly the same robustness (== on every held trace, bit for bit).

The rules: constants folded; double negation and negation normal form (which stops at until, since and
iff); implication as or; windows of one kind merged (G[a,b] G[c,d] = G[a+c,b+d]), also single steps, and
past with future (F[a,b] O[c,d] is the maximum from t + a - d to t + b - c, and `next prev p` is p);
G[0,0] and F[0,0] dropped; until[0,0] as and, true until as eventually, until true and phi until phi as
always, and the same for since; and/or flattened, sorted, without repeats, without an atom that
another one implies, without what another operand absorbs (a and (a or b) = a), and with windows over
one operand united (G[0,2] p and G[3,5] p = G[0,5] p). A release is written as one again, and weak
until, rise and fall stay what they are, so that no formula gets longer.

Three passes over the flat program, none of them recursive: which nodes are constant (up), which stand
under a negation (down), then the simplified nodes, each stored once (up). Then steps in time are
moved to where fewer are needed: `prev (next p and next q)` becomes `p and q`. They stay operators; a
channel takes them up only if it has lags already, since each lag is one more channel to evaluate.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import operators as ops
from .core import Formula, natural_key
from .operators import Channel, Row
from .windows import WINDOWS, Span, shifted_channel, span_of

# Negations are pushed through these, and stop at all others.
_DUAL = {
    op: dual for op, dual in ops.NEGATED.items()
    if op in (*ops.COMPARISONS, ops.AND, ops.OR, *WINDOWS)
}  # fmt: skip
# What is left of a binary operator whose right operand is true: a window over the left one.
_WHILE = {ops.UNTIL: ops.ALWAYS, ops.SINCE: ops.HISTORICALLY, ops.WEAK_UNTIL: ops.ALWAYS}
_STRICT = (ops.GT, ops.LT)
_NOW = Span(ops.ALWAYS, 0, 0)
_MAX_FRAMES = 8  # places in time that are remembered per node


class _Node(NamedTuple):
    op: int
    lo: int = 0
    hi: int = 0
    channel: Channel | None = None
    threshold: float = 0.0
    operands: tuple[int, ...] = ()


class _Group(NamedTuple):
    """The operands of an and/or that may still grow into its parent."""

    op: int
    members: list[int]


def simplify(phi: Formula) -> Formula:
    """The simplified formula, never longer; simplify(simplify(phi)) == simplify(phi)."""
    simple = _simplified(phi)
    while (moved := _moved(simple)) is not None:
        shorter = _simplified(moved)
        if shorter.size >= simple.size or _directions(shorter) - _directions(simple):
            break
        simple = shorter
    return simple


def _directions(phi: Formula) -> set[bool]:
    """Whether operators look back, for those over time: no future formula shall get a past."""
    op = phi.code[:, 0]
    return set(ops.IS_PAST[op[ops.IS_TIMED[op] | ops.IS_PAST[op]]].tolist())


def _simplified(phi: Formula) -> Formula:
    """The simplified formula, with steps in time where they were."""
    rows = phi.rows()
    sizes = phi.shape()[0].tolist()
    constants = _constants(rows, sizes)
    root = len(rows) - 1
    if constants[root] is not None:
        return Formula.from_rows([(ops.TRUE if constants[root] else ops.FALSE, 0, 0, None, 0.0)])

    # Downwards: the role of each node once constants and negations are gone. A node without a role
    # (below a constant) is skipped; NOT as a role means "pass the operand on".
    roles: list[Row | None] = [None] * len(rows)
    kept: list[tuple[int, ...]] = [()] * len(rows)  # operands that stay
    negative = [False] * len(rows)
    reached = [False] * len(rows)
    reached[root] = True
    for i in range(root, -1, -1):
        if not reached[i]:
            continue
        op, lo, hi, channel, threshold = rows[i]
        flip = negative[i]
        right = i - 1
        left = right - sizes[right] if ops.arity(op) == 2 else right
        operands = (left, right)[2 - ops.arity(op) :]
        flips = [flip] * len(operands)
        if op == ops.NOT:
            flips = [not flip]
        elif op in (*_WHILE, ops.RELEASE):
            dual = op == ops.RELEASE  # not (not left until not right)
            if dual:
                op, flip = ops.UNTIL, not flip
            if constants[left] is not None:  # otherwise the node would be a constant
                op = ops.ONCE if op == ops.SINCE else ops.EVENTUALLY
                operands, flips = (right,), flips[1:]
            elif lo == hi == 0 and op != ops.WEAK_UNTIL:
                op = ops.AND
            elif constants[right] is not None or lo == hi == 0:
                # p weak_until false is always p to the end of the window.
                last = lo if constants[right] is not False or op != ops.WEAK_UNTIL else hi
                op, lo, hi, operands, flips = _WHILE[op], 0, last, (left,), flips[:1]
            else:
                flips = [dual, dual]
        elif op in (ops.RISE, ops.FALL):
            flips = [False]
        elif op == ops.IFF:
            for constant, other in ((left, right), (right, left)):
                if constants[constant] is not None:
                    op, operands, flips = ops.NOT, (other,), [flip == constants[constant]]
            if op == ops.IFF:
                flips = [flip, False]
        elif op == ops.IMPLIES:
            op, flips = ops.OR, [not flip, flip]
        elif op in (ops.NEXT, ops.PREV):
            op, lo, hi = (ops.ALWAYS if op == ops.NEXT else ops.HISTORICALLY), 1, 1
        if op in (ops.AND, ops.OR):
            pairs = [(o, f) for o, f in zip(operands, flips, strict=True) if constants[o] is None]
            operands, flips = tuple(o for o, _ in pairs), [f for _, f in pairs]
        if flip and op in _DUAL:
            op = _DUAL[op]
        for operand, operand_flip in zip(operands, flips, strict=True):
            reached[operand] = True
            negative[operand] = operand_flip
        roles[i] = (op, lo, hi, channel, threshold)
        kept[i] = operands
        negative[i] = flip

    # Upwards: build.
    build = _Builder()
    done: list[int | _Group] = [0] * len(rows)
    for i, role in enumerate(roles):
        if role is None:
            continue
        op, lo, hi, channel, threshold = role
        results = [done[o] for o in kept[i]]
        if ops.IS_ATOM[op]:
            done[i] = build.intern(_Node(op, channel=channel, threshold=threshold))
        elif op == ops.NOT:
            done[i] = results[0]
        elif op in (ops.AND, ops.OR):
            done[i] = build.join(op, results)
        elif span := span_of(op, lo, hi):
            identity = span.first == span.last == 0
            done[i] = results[0] if identity else build.window(span, build.close(results[0]))
        else:
            closed = tuple(build.close(r) for r in results)
            if op == ops.IFF:
                done[i] = build.iff(*closed)
                continue
            if op in _WHILE and closed[0] == closed[1]:
                span = span_of(_WHILE[op], 0, lo)
                assert span is not None
                node = build.window(span, closed[0])
            elif op in (*_WHILE, ops.RISE, ops.FALL):
                node = build.intern(_Node(op, lo, hi, operands=closed))
            else:
                ops.refuse(op, "simplify")
            done[i] = build.negate(node) if negative[i] else node
    number = build.close(done[root])
    return Formula.from_rows(build.rows(number, set(phi.code[:, 0].tolist())), check=False)


def _constants(rows: list[Row], sizes: list[int]) -> list[bool | None]:
    """True, False, or None for a node that is not a constant."""
    out: list[bool | None] = [None] * len(rows)
    for i, (op, lo, hi, *_) in enumerate(rows):
        b = out[i - 1]
        a = out[i - 1 - sizes[i - 1]] if ops.arity(op) == 2 else b
        if op in (ops.TRUE, ops.FALSE):
            out[i] = op == ops.TRUE
        elif op == ops.NOT:
            out[i] = None if b is None else not b
        elif span_of(op, lo, hi):
            out[i] = b
        elif op in (ops.RISE, ops.FALL):
            out[i] = None if b is None else False
        elif op == ops.WEAK_UNTIL:
            out[i] = a
        elif op in (ops.AND, ops.UNTIL, ops.SINCE):
            out[i] = False if False in (a, b) else True if a is b is True else None
        elif op in (ops.OR, ops.IMPLIES, ops.RELEASE):
            if op == ops.IMPLIES and a is not None:
                a = not a
            out[i] = True if True in (a, b) else False if a is b is False else None
        elif op == ops.IFF:
            out[i] = None if a is None or b is None else a == b
        elif not ops.IS_ATOM[op]:
            ops.refuse(op, "simplify")
    return out


class _Builder:
    """Simplified nodes, each stored once; a node's operands are smaller numbers than its own."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.ids: dict[_Node, int] = {}
        self.keys: list[tuple[Any, ...]] = []
        self.sizes: list[int] = []
        self.digests: list[bytes] = []
        self.negations: dict[int, int] = {}
        self.steady: list[bool] = []  # has the same value at all times
        self.negated: list[bool] = []  # has a negation that could not be pushed into an atom

    def intern(self, node: _Node) -> int:
        if node in self.ids:
            return self.ids[node]
        number = len(self.nodes)
        # The order of operands must not depend on how the formula was written: atoms by their text,
        # then the rest by size and a digest of their structure.
        content = repr(node[:5]).encode() + b"".join(self.digests[o] for o in node.operands)
        digest = hashlib.blake2b(content, digest_size=16).digest()
        size = max(1, len(node.operands) - 1) + sum(self.sizes[o] for o in node.operands)
        if node.channel is not None:
            names = tuple((natural_key(n), c) for n, c in node.channel)
            key: tuple[Any, ...] = (0, names, node.op, node.threshold)
        else:
            key = (1, size, node.op, node.lo, node.hi, digest)
        self.ids[node] = number
        self.nodes.append(node)
        self.keys.append(key)
        self.sizes.append(size if node.operands else 1)
        self.digests.append(digest)
        through = node.op in (*_DUAL, ops.IFF, ops.UNTIL)
        self.negated.append(
            node.op == ops.NOT or (through and any(self.negated[o] for o in node.operands))
        )
        self.steady.append(bool(node.operands) and all(self.steady[o] for o in node.operands))
        return number

    def order(self, number: int) -> tuple[Any, ...]:
        return self.keys[number]

    def join(self, op: int, results: list[int | _Group]) -> int | _Group:
        """and/or of results; groups of the same kind are merged, the smaller into the larger."""
        if len(results) == 1:
            return results[0]
        lists = []
        for result in results:
            if isinstance(result, _Group) and result.op == op:
                lists.append(result.members)
            else:
                number = self.close(result)
                same = self.nodes[number].op == op
                lists.append(list(self.nodes[number].operands) if same else [number])
        smaller, larger = sorted(lists, key=len)
        larger += smaller
        return _Group(op, larger)

    def close(self, result: int | _Group) -> int:
        """The node of a finished group."""
        if isinstance(result, int):
            return result
        op = result.op
        members = self._drop_implied_atoms(op, set(result.members))
        members = self._unite_windows(op, members)
        dual = ops.AND if op == ops.OR else ops.OR
        members = {
            m for m in members
            if not (self.nodes[m].op == dual and any(o in members for o in self.nodes[m].operands))
        }  # fmt: skip
        if len(members) == 1:
            return members.pop()
        return self.intern(_Node(op, operands=tuple(sorted(members, key=self.order))))

    def _drop_implied_atoms(self, op: int, members: set[int]) -> set[int]:
        """Drop atoms that another on the same channel and in the same direction makes needless: `and`
        keeps the hardest one, `or` the easiest."""
        best: dict[tuple[Channel, bool], int] = {}
        rest = set()
        for m in members:
            node = self.nodes[m]
            if node.channel is None:
                rest.add(m)
                continue
            above = node.op in (ops.GE, ops.GT)

            def hardness(atom: _Node, above: bool = above) -> tuple[float, bool]:
                return (atom.threshold if above else -atom.threshold, atom.op in _STRICT)

            key = (node.channel, above)
            held = best.get(key)
            if held is None or (hardness(node) > hardness(self.nodes[held])) == (op == ops.AND):
                best[key] = m
        return rest | set(best.values())

    def _unite_windows(self, op: int, members: set[int]) -> set[int]:
        """Windows over one operand made fewer: `and` unites the times of always, and drops an
        eventually that follows from another member; `or` does the same with both exchanged."""
        united_kind = ops.ALWAYS if op == ops.AND else ops.EVENTUALLY
        by_operand: dict[int, list[Span]] = {}
        for m in members:
            span, operand = self.split(m)
            by_operand.setdefault(operand, []).append(span)
        if len(by_operand) == len(members):
            return members
        out: set[int] = set()
        for operand, spans in by_operand.items():
            united: list[Span] = []
            mine = (s for s in spans if s.is_shift or s.kind == united_kind)
            for span in sorted(mine, key=lambda s: s[1:]):
                if united and span.first <= united[-1].last + 1:
                    last = max(united[-1].last, span.last)
                    united[-1] = Span(united_kind, united[-1].first, last)
                else:
                    united.append(Span(united_kind, *span[1:]))
            others: list[Span] = []
            rest = (s for s in spans if not s.is_shift and s.kind != united_kind)
            for span in sorted(rest, key=lambda s: (s.last, -s.first)):
                place = bisect_left(united, span.first, key=lambda s: s.last)
                meets = place < len(united) and united[place].first <= span.last
                if not meets and (not others or span.first > others[-1].first):
                    others.append(span)
            out |= {self.window(span, operand) for span in (*united, *others)}
        return out

    def split(self, number: int) -> tuple[Span, int]:
        """Split a node into a span and the node under it; anything but a window has the span [0,0]."""
        span = _NOW
        while inner := span_of(*self.nodes[number][:3]):
            both = span.then(inner)
            if both is None:
                break
            span, number = both, self.nodes[number].operands[0]
        return span, number

    def window(self, span: Span, operand: int) -> int:
        """The node of a span over a node, as one window where it can be."""
        inner, innermost = self.split(operand)
        both = span.then(inner)
        if both:
            span, operand = both, innermost
        if self.steady[operand]:
            return operand
        for op, lo, hi in span.operators():
            operand = self.intern(_Node(op, lo, hi, operands=(operand,)))
        if span.is_whole:
            self.steady[operand] = True
        return operand

    def iff(self, a: int, b: int) -> int:
        """The canonical one of `a <-> b` and its equal `not a <-> not b`, with sorted operands."""
        pairs = ((a, b), (self.negate(a), self.negate(b)))
        ordered = (tuple(sorted(pair, key=self.order)) for pair in pairs)
        first = min(ordered, key=lambda pair: [self.order(o) for o in pair])
        return self.intern(_Node(ops.IFF, operands=first))

    def negate(self, number: int) -> int:
        """The negation of a node, in normal form; every node is negated at most once."""
        todo = [number]
        while todo:
            current = todo[-1]
            node = self.nodes[current]
            through = node.op in _DUAL or node.op == ops.IFF
            operands = node.operands if through else ()
            missing = [o for o in operands if o not in self.negations]
            if current in self.negations or not missing:
                todo.pop()
            if current in self.negations or missing:
                todo += [] if current in self.negations else missing
                continue
            if node.op == ops.NOT:
                opposite = node.operands[0]
            elif not through:
                opposite = self.intern(_Node(ops.NOT, operands=(current,)))
            elif node.op == ops.IFF:
                opposite = self.iff(self.negations[node.operands[0]], node.operands[1])
            elif node.op in (ops.AND, ops.OR):
                members = [self.negations[o] for o in node.operands]
                opposite = self.close(_Group(_DUAL[node.op], members))
            elif span := span_of(_DUAL[node.op], node.lo, node.hi):
                opposite = self.window(span, self.negations[node.operands[0]])
            else:
                opposite = self.intern(node._replace(op=_DUAL[node.op]))
            self.negations[current] = opposite
            self.negations.setdefault(opposite, current)
        return self.negations[number]

    def rows(self, root: int, allowed: set[int]) -> list[Row]:
        """Postfix rows of a node in the shortest of the ways to write it.

        allowed: operators that the formula was written with; -> and release are used only if it was.
        """
        best: dict[int, tuple[int, _Plan]] = {}
        todo: list[int] = [root]
        while todo:
            number = todo[-1]
            plans = list(self.plans(number, allowed))
            missing = [n for plan in plans for n in plan if isinstance(n, int) and n not in best]
            if missing:
                todo += missing
                continue
            todo.pop()
            if len(plans) > 1 and self.nodes[number].op in (ops.AND, ops.OR):
                plans += self.divided(number, allowed, best)
            costs = [sum(best[p][0] if isinstance(p, int) else 1 for p in plan) for plan in plans]
            cost = min(costs)
            best[number] = cost, plans[costs.index(cost)]
        out: list[Row] = []
        writing: _Plan = [root]
        while writing:
            part = writing.pop()
            if isinstance(part, int):
                writing += reversed(best[part][1])
            else:
                out.append(part)
        return out

    def plans(self, number: int, allowed: set[int]) -> Iterator[_Plan]:
        """Ways to write a node, the usual one first; and/or of many operands lean to the left."""
        node = self.nodes[number]
        yield _leaning(node[:5], node.operands)
        if not self.negated[number]:  # then no other way is shorter
            return
        opposite = tuple(self.negate(o) for o in node.operands)
        if node.op == ops.IFF:
            yield _leaning(node[:5], opposite)
        elif node.op in (ops.AND, ops.OR):
            yield [*_leaning(ops.node(_DUAL[node.op]), opposite), ops.node(ops.NOT)]
        elif node.op == ops.NOT and ops.RELEASE in allowed:
            inner = self.nodes[node.operands[0]]
            if inner.op == ops.UNTIL:
                release = ops.node(ops.RELEASE, inner.lo, inner.hi)
                yield [*(self.negate(o) for o in inner.operands), release]

    def divided(
        self, number: int, allowed: set[int], best: dict[int, tuple[int, _Plan]]
    ) -> Iterator[_Plan]:
        """and/or with the operands whose negations are shorter apart from the others: c or d or
        not (a and b), a -> (b -> (c or d))."""
        node = self.nodes[number]
        negated, others = [], []
        for operand in node.operands:
            opposite = self.negate(operand)
            shorter = best[opposite][0] < best[operand][0]
            negated += [opposite] if shorter else []
            others += [] if shorter else [operand]
        if not negated or not others:
            return
        rest = _leaning(node[:5], others) if len(others) > 1 else others
        if len(negated) > 1:
            both = _leaning(ops.node(_DUAL[node.op]), negated)
            yield [*rest, *both, ops.node(ops.NOT), node[:5]]
        if node.op == ops.OR and ops.IMPLIES in allowed:
            yield [*negated, *rest, *[ops.node(ops.IMPLIES)] * len(negated)]


_Plan = list[int | Row]  # nodes to write and rows, in postfix order


def _leaning(row: Row, operands: Sequence[int]) -> _Plan:
    """An operator between its operands, applied from the left; an atom has none."""
    if len(operands) < 2:
        return [*operands, row]
    return [operands[0], *(part for operand in operands[1:] for part in (operand, row))]


def _moved(phi: Formula) -> Formula | None:
    """phi with its steps in time moved to where fewer are needed; None if there are none to move.

    The frame of a node is the time at which it stands without a step: -1 for `prev p`. An atom has one
    frame; windows, and channels with lags, take up any step; of two operands the frames that suit
    both, otherwise those of either, suit the operator. So each operator needs the fewest steps below
    it (Fitch's algorithm for trees).
    """
    lagged = any(isinstance(v, ops.Shifted) for channel in phi.channels for v, _ in channel)
    op, lo, hi, _ = phi.code.T
    if not lagged and not (ops.IS_TIMED[op] & (lo == hi)).any():
        return None
    rows, sizes = phi.rows(), phi.shape()[0].tolist()
    spans = [span_of(*row[:3]) for row in rows]
    frames: list[list[int]] = []  # empty: any
    for i, (op, _, _, channel, _) in enumerate(rows):
        span = spans[i]
        if channel is not None:
            frames.append([] if any(ops.lag_of(v) for v, _ in channel) else [0])
        elif span is not None:
            frames.append([int(span.first) + k for k in frames[-1]] if span.is_shift else [])
        elif ops.arity(op) == 2:
            counts = Counter(frames[i - 1] + frames[i - 1 - sizes[i - 1]])
            best = sorted((k for k in counts if counts[k] == max(counts.values())), key=abs)
            frames.append(best[:_MAX_FRAMES])
        else:
            frames.append(frames[-1] if ops.arity(op) else [])

    asked = [0] * len(rows)  # each node is wanted at t + asked
    out: list[list[Row]] = [[] for _ in rows]
    for i in range(len(rows) - 1, -1, -1):
        op, lo, hi, channel, threshold = rows[i]
        span, want = spans[i], asked[i]
        below = want  # what is asked of the operands
        if span and span.is_shift:
            below += int(span.first)
        elif span:
            frame = min(frames[i - 1], key=abs, default=0)
            span, below = span.moved(want + frame), -frame
            if not span.fits:
                return None
            out[i] = [ops.node(*window) for window in span.operators()]
        else:
            frame = min(frames[i], key=lambda k: abs(k + want), default=-want)
            if channel is not None and not frames[i]:
                channel = shifted_channel(channel, want)
            below = -frame
            step = Span(ops.ALWAYS, frame + want, frame + want)
            if not step.fits:
                return None
            steps = [ops.node(*window) for window in step.operators()]
            out[i] = [(op, lo, hi, channel, threshold), *steps]
        if ops.arity(op) >= 1:
            asked[i - 1] = below
        if ops.arity(op) == 2:
            asked[i - 1 - sizes[i - 1]] = below
    return Formula.from_rows([row for part in out for row in part])
