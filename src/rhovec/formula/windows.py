"""Windows of time on both sides of t: always, eventually and their mirror images in the past as one.

A span is (kind, first, last): the minimum (kind ALWAYS) or the maximum (kind EVENTUALLY) over the times
t + first ... t + last, which may be infinite. Since traces are held at both ends, spans of one kind
add up, a span of a single time is a shift, and shifts of opposite directions cancel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from . import operators as ops
from .operators import Channel, Shifted

_FUTURE_OF = {ops.HISTORICALLY: ops.ALWAYS, ops.ONCE: ops.EVENTUALLY}
_PAST_OF = {future: past for past, future in _FUTURE_OF.items()}
WINDOWS = (*_FUTURE_OF, *_PAST_OF)


class Span(NamedTuple):
    kind: int
    first: float  # a whole number or -inf
    last: float  # a whole number or inf

    @property
    def is_shift(self) -> bool:
        return self.first == self.last

    @property
    def is_whole(self) -> bool:
        return self[1:] == (-math.inf, math.inf)

    @property
    def fits(self) -> bool:
        """Whether operators may have these bounds."""
        reach = [abs(bound) for bound in self[1:] if math.isfinite(bound)]
        limit = ops.MAX_BOUND if self.first >= 0 else ops.MAX_PAST
        return max(reach, default=0) <= limit

    def then(self, inner: Span) -> Span | None:
        """One span for this one over `inner`, or None where there is none."""
        if self.kind != inner.kind and not (self.is_shift or inner.is_shift):
            return None
        kind = self.kind if inner.is_shift else inner.kind
        both = Span(kind, self.first + inner.first, self.last + inner.last)
        return both if both.fits else None

    def moved(self, steps: int) -> Span:
        return Span(self.kind, self.first + steps, self.last + steps)

    def operators(self) -> list[tuple[int, int, int]]:
        """(operator, lo, hi), the inner one first: none for [0,0], two if it reaches to both sides.

        A shift is written with always and historically.
        """
        kind = ops.ALWAYS if self.is_shift else self.kind
        if self.first == self.last == 0:
            return []
        if self.last <= 0:
            return [(_PAST_OF[kind], -_whole(self.last), _bound(-self.first))]
        if self.first >= 0:
            return [(kind, _whole(self.first), _bound(self.last))]
        return [(_PAST_OF[kind], 0, _bound(-self.first)), (kind, 0, _bound(self.last))]


def span_of(op: int, lo: int, hi: int) -> Span | None:
    """The span of a window operator; None for all others."""
    if op in (ops.NEXT, ops.PREV):
        steps = 1 if op == ops.NEXT else -1
        return Span(ops.ALWAYS, steps, steps)
    end = math.inf if hi == ops.UNBOUNDED else hi
    if op in _PAST_OF:
        return Span(op, lo, end)
    if op in _FUTURE_OF:
        return Span(_FUTURE_OF[op], -end, -lo)
    return None


def shifted_channel(channel: Channel, steps: int) -> Channel:
    """The channel at t + steps, as a channel at t."""
    terms = ((ops.name_of(v), ops.lag_of(v) - steps, c) for v, c in channel)
    return tuple((Shifted(name, lag) if lag else name, c) for name, lag, c in terms)


def _whole(bound: float) -> int:
    return int(bound)


def _bound(bound: float) -> int:
    return ops.UNBOUNDED if math.isinf(bound) else int(bound)
