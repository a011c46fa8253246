"""A simpler formula with exactly the same robustness (== on every held trace, bit for bit).

The rules: constants folded; double negation and negation normal form (which stops at until and iff);
implication as or; windows of one kind merged (G[a,b] G[c,d] = G[a+c,b+d]), also single steps;
G[0,0], F[0,0] dropped; until[0,0] as and, true until as eventually, until true as always, phi until
phi as phi; and/or flattened, sorted, without repeats, without an atom that another one implies, and
without what another operand absorbs (a and (a or b) = a).

Three passes over the flat program, none of them recursive: which nodes are constant (up), which stand
under a negation (down), then the simplified nodes, each stored once (up).
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from . import operators as ops
from .core import Formula, natural_key
from .expand import expand
from .operators import Channel, Row

# Negations are pushed through these; they stop at until and iff.
_DUAL = {
    op: dual for op, dual in ops.NEGATED.items() if op not in (ops.UNTIL, ops.RELEASE, ops.NEXT)
}
_STRICT = (ops.GT, ops.LT)


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
    """The simplified formula; simplify(simplify(phi)) == simplify(phi)."""
    phi = expand(phi)
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
            op, flips = ops.NOT, [not flip]
        elif op == ops.NEXT:
            op, lo, hi = ops.ALWAYS, 1, 1
        elif op == ops.UNTIL:
            if constants[left] is True:
                op, operands, flips = ops.EVENTUALLY, (right,), [flip]
            elif constants[right] is True:
                op, lo, hi, operands, flips = ops.ALWAYS, 0, lo, (left,), [flip]
            elif lo == hi == 0:
                op = ops.AND
            else:
                flips = [False, False]
        elif op == ops.IFF:
            for constant, other in ((left, right), (right, left)):
                if constants[constant] is not None:
                    op, operands, flips = ops.NOT, (other,), [flip == constants[constant]]
            if op == ops.IFF:
                flips = [flip, False]
        elif op == ops.IMPLIES:
            op, flips = ops.OR, [not flip, flip]
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
        elif op in (ops.ALWAYS, ops.EVENTUALLY):
            done[i] = (
                results[0] if lo == hi == 0 else build.window(op, lo, hi, build.close(results[0]))
            )
        else:
            a, b = (build.close(r) for r in results)
            if op == ops.IFF:
                done[i] = build.iff(a, b)
            elif op == ops.UNTIL:
                same = a == b and lo == 0
                node = a if same else build.intern(_Node(op, lo, hi, operands=(a, b)))
                done[i] = build.negate(node) if negative[i] else node
            else:
                ops.refuse(op, "simplify")
    return Formula.from_rows(build.rows(build.close(done[root])))


def _constants(rows: list[Row], sizes: list[int]) -> list[bool | None]:
    """True, False, or None for a node that is no constant."""
    out: list[bool | None] = [None] * len(rows)
    for i, (op, *_) in enumerate(rows):
        b = out[i - 1]
        a = out[i - 1 - sizes[i - 1]] if ops.arity(op) == 2 else b
        if op in (ops.TRUE, ops.FALSE):
            out[i] = op == ops.TRUE
        elif op == ops.NOT:
            out[i] = None if b is None else not b
        elif op in (ops.NEXT, ops.ALWAYS, ops.EVENTUALLY):
            out[i] = b
        elif op in (ops.AND, ops.UNTIL):
            out[i] = False if False in (a, b) else True if a is b is True else None
        elif op in (ops.OR, ops.IMPLIES):
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

    def window(self, op: int, lo: int, hi: int, operand: int) -> int:
        if lo == hi:
            op = ops.ALWAYS  # a window of one step is both
        inner = self.nodes[operand]
        if inner.op in (ops.ALWAYS, ops.EVENTUALLY):
            single = inner.lo == inner.hi
            if inner.op == op or single or lo == hi:
                merged_lo = lo + inner.lo
                merged_hi = ops.UNBOUNDED if ops.UNBOUNDED in (hi, inner.hi) else hi + inner.hi
                if max(merged_lo, merged_hi) <= ops.MAX_BOUND:
                    op = op if single else inner.op
                    return self.window(op, merged_lo, merged_hi, inner.operands[0])
        return self.intern(_Node(op, lo, hi, operands=(operand,)))

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
            operands = () if node.op in (ops.UNTIL, ops.NOT) else node.operands
            missing = [o for o in operands if o not in self.negations]
            if current in self.negations or not missing:
                todo.pop()
            if current in self.negations or missing:
                todo += [] if current in self.negations else missing
                continue
            if node.op == ops.NOT:
                opposite = node.operands[0]
            elif node.op == ops.UNTIL:
                opposite = self.intern(_Node(ops.NOT, operands=(current,)))
            elif node.op == ops.IFF:
                opposite = self.iff(self.negations[node.operands[0]], node.operands[1])
            elif node.op in (ops.AND, ops.OR):
                members = [self.negations[o] for o in node.operands]
                opposite = self.close(_Group(_DUAL[node.op], members))
            elif node.op in (ops.ALWAYS, ops.EVENTUALLY):
                inner = self.negations[node.operands[0]]
                opposite = self.window(_DUAL[node.op], node.lo, node.hi, inner)
            else:
                opposite = self.intern(node._replace(op=_DUAL[node.op]))
            self.negations[current] = opposite
            self.negations.setdefault(opposite, current)
        return self.negations[number]

    def rows(self, root: int) -> list[Row]:
        """Postfix rows of a node; and/or of many operands lean to the left."""
        out: list[Row] = []
        todo: list[tuple[int, bool]] = [(root, False)]
        while todo:
            number, ready = todo.pop()
            node = self.nodes[number]
            row: Row = (node.op, node.lo, node.hi, node.channel, node.threshold)
            if ready or not node.operands:
                out.append(row)
                continue
            if len(node.operands) == 1:
                todo += [(number, True), (node.operands[0], False)]
                continue
            for operand in reversed(node.operands[1:]):
                todo += [(number, True), (operand, False)]
            todo.append((node.operands[0], False))
        return out
