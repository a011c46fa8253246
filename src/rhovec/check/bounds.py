"""Bounds on the robustness of formulae on logs with unknown samples.

In a formula where every atom pulls in one direction only, robustness is least if every atom is least.
So two runs of the exact engine, with each atom at its worst and at its best, bound the robustness for
all values that the unknown samples may have (robust interval semantics). Samples before the log,
after it and inside gaps lie anywhere between -inf and inf.

Each atom is one column, ready for the engine: the distance to its threshold, positive exactly where it
holds. At a distance of zero the column has the smallest number of float64 with the sign of the truth
value, which minima, maxima and negations carry up to the root, so that one run decides > against >= as
well. Atoms over discrete variables have no distance; they are inf where they hold, otherwise -inf.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from ..errors import TraceError
from ..formula import operators as ops
from ..formula.core import Formula
from ..formula.operators import Channel, Row
from ..formula.printer import channel_text
from ..formula.programs import Programs
from ..machine import memory
from .parts import AFTER, INSIDE, negative, reach
from .sampled import Sampled

TINY = float(np.nextafter(0.0, 1.0))

# What a run assumes. Of the unknown samples: the worst, the best, or what was last known; then the worst
# and the best of all samples in the range that they had before resampling.
WORST, BEST, HELD, LEAST, GREATEST = range(5)
_OPPOSITE = [BEST, WORST, HELD, GREATEST, LEAST]

_BUDGET = 1 << 27  # bytes of columns and results at once
_LANES = 64  # traces that the engine takes at once
LONG = 1 << 15  # points from which on a trace is cut into pieces
PIECE = 1 << 12  # points of such a piece


class Lanes:
    """Logs under every assumption, as columns for the engine: arrays (assumptions * logs, points).

    before, after: how many times are added before the first sample and after the last one of the
        longest log. Index `before` is the first sample.
    """

    def __init__(
        self, logs: Sequence[Sampled], names: Collection[str], before: int, after: int, begin: str
    ):
        self.before = before
        self.points = before + max(log.points for log in logs) + after
        self.assumptions = assumptions_of(logs, names)
        self._logs = logs
        self._ends = np.array([[before + log.points] for log in logs])
        self._low, self._high = {}, {}
        for name in names:
            stacked = self._stack(name, begin)
            self._low[name] = stacked.reshape(-1, self.points)
            self._high[name] = stacked[_OPPOSITE[: self.assumptions]].reshape(-1, self.points)

    def column(self, row: Row, negated: bool, discrete: Collection[str]) -> np.ndarray:
        """The column of an atom; a negated one is worst for the formula where it is best itself."""
        op, _, _, channel, threshold = row
        assert channel is not None
        if channel in (AFTER, INSIDE):
            return self._end(channel == INSIDE)
        try:
            with np.errstate(over="raise"):
                value = self._distance(op, channel, threshold, negated)
        except FloatingPointError:
            raise TraceError(
                f"{channel_text(channel)} is too large for 64-bit numbers on these logs; scale "
                "them down"
            ) from None
        value[value == 0] = TINY if op in (ops.GE, ops.LE) else -TINY
        if all(ops.name_of(variable) in discrete for variable, _ in channel):
            value = np.where(value > 0, np.inf, -np.inf)
        return value

    def _distance(self, op: int, channel: Channel, threshold: float, negated: bool) -> np.ndarray:
        rising = op in (ops.GE, ops.GT)
        total: np.ndarray | None = None
        for variable, coefficient in channel:
            low = (coefficient > 0) == (rising != negated)
            x = (self._low if low else self._high)[ops.name_of(variable)]
            if lag := ops.lag_of(variable):
                x = x[:, np.clip(np.arange(self.points) - lag, 0, self.points - 1)]
            if coefficient != 1:
                x = coefficient * x
            total = x if total is None else total + x
        assert total is not None
        return total - threshold if rising else threshold - total

    def _end(self, inside: bool) -> np.ndarray:
        """The columns of AFTER and INSIDE."""
        after = np.arange(self.points) >= self._ends
        best = np.isin(np.arange(self.assumptions), (BEST, GREATEST))[:, None, None]
        positive = ~after | best if inside else np.repeat(after[None], self.assumptions, axis=0)
        return np.where(positive, np.inf, -np.inf).reshape(-1, self.points)

    def _stack(self, name: str, begin: str) -> np.ndarray:
        """The least that a variable can be, under each assumption: (assumptions, logs, points)."""
        x = self._padded(name, lambda log: log.samples, begin)
        unknown = np.isnan(x)
        stacked = [np.where(unknown, -np.inf, x), np.where(unknown, np.inf, x), _held(x, unknown)]
        if self.assumptions > HELD + 1:
            least = np.fmin(x, self._padded(name, lambda log: log.least, begin))
            greatest = np.fmax(x, self._padded(name, lambda log: log.greatest, begin))
            stacked += [np.where(unknown, -np.inf, least), np.where(unknown, np.inf, greatest)]
        return np.stack(stacked)

    def _padded(
        self, name: str, columns_of: Callable[[Sampled], Mapping[str, np.ndarray]], begin: str
    ) -> np.ndarray:
        out = np.full((len(self._logs), self.points), np.nan)
        for row, log in zip(out, self._logs, strict=True):
            column = columns_of(log).get(name)
            if column is not None:
                row[self.before : self.before + log.points] = column
                if begin == "held":
                    row[: self.before] = column[0]
        return out


def _held(x: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """x with unknown samples as the last known one before them, or the first one; 0 without any."""
    times = np.arange(x.shape[1])
    last = np.maximum.accumulate(np.where(unknown, -1, times), axis=1)
    first = np.where(unknown.all(1), 0, (~unknown).argmax(1))
    held: np.ndarray = np.take_along_axis(x, np.maximum(last, first[:, None]), 1)
    return np.where(np.isnan(held), 0.0, held)


def evaluate(
    formulae: Sequence[Formula], logs: Sequence[Sampled], begin: str, discrete: Collection[str]
) -> Iterator[tuple[int, np.ndarray]]:
    """Bounds on formulae in CORE at every time: blocks of logs, as the number of the first log and
    values (formulae, assumptions, logs of the block, times from the first sample on).

    The values end later than the longest log does, with those that hold for ever after. Their sign is
    the truth value.
    """
    atoms: dict[tuple[Row, bool], int] = {}
    code = [_with_columns(phi, atoms) for phi in formulae]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in code])])
    channels = tuple(((str(k), 1.0),) for k in range(max(1, len(atoms))))
    programs = Programs(np.concatenate(code), np.zeros(offsets[-1]), offsets, channels)
    names, window = names_of(formulae), _window(formulae)
    after = 1 + max(reach(phi)[1] for phi in formulae)
    before = 1 + max((max(0, -_least_lag(row)) for row, _ in atoms), default=0)
    longest = max(log.points for log in logs) + before + after
    lanes_at_once = min(_LANES, _BUDGET // (8 * longest * (len(atoms) + len(formulae))))
    at_once = max(1, lanes_at_once // assumptions_of(logs, names))
    for first in range(0, len(logs), at_once):
        block = logs[first : first + at_once]
        lanes = Lanes(block, names, before, after, begin)
        columns = np.zeros((lanes.assumptions * len(block), len(channels), lanes.points))
        for (row, negated), k in atoms.items():
            columns[:, k] = lanes.column(row, negated, discrete)
        values = run(programs, columns, window)[..., before:]
        yield first, values.reshape(len(formulae), lanes.assumptions, len(block), -1)


def assumptions_of(logs: Sequence[Sampled], names: Collection[str]) -> int:
    """How many assumptions there are: without ranges, only those about unknown samples."""
    return 5 if any(name in log.least for log in logs for name in names) else 3


def run(
    programs: Programs, columns: np.ndarray, window: tuple[int, int] | None = None
) -> np.ndarray:
    """Formulae over numbered columns, (traces, columns, points), at every time.

    window: how many steps the formulae look back and ahead at most, if that is bounded. The engine takes
    memory for 64 traces of any length; so a few long ones are cut into pieces, which overlap by as much
    as the formulae see, and are its traces.
    """
    from ..robustness import cpu

    names = {str(k): k for k in range(columns.shape[1])}

    def evaluated(traces: np.ndarray) -> np.ndarray:
        traces = np.ascontiguousarray(traces)
        return cpu.evaluate(programs, traces, names, trace=True, workers=1)

    n, _, points = columns.shape
    if points < LONG or window is None or 4 * sum(window) > points:
        _require_memory(columns.shape)
        return evaluated(columns)
    back, ahead = window
    size = max(PIECE, 2 * (back + ahead))
    out = np.empty((len(programs), n, points))
    for trace in range(n):
        for first in range(0, points, _LANES * size):
            last = min(points, first + _LANES * size)
            pieces = -(-(last - first) // size)
            around = np.arange(-back, size + ahead) + first + size * np.arange(pieces)[:, None]
            cut = columns[trace][:, np.clip(around, 0, points - 1)]  # (columns, pieces, times)
            values = evaluated(cut.swapaxes(0, 1))[..., back : back + size]
            out[:, trace, first:last] = values.reshape(len(programs), -1)[:, : last - first]
    return out


def _window(formulae: Sequence[Formula]) -> tuple[int, int] | None:
    """How many steps formulae look back and ahead; None if one of them looks without end."""
    for phi in formulae:
        if any(ops.is_timed(op) and hi == ops.UNBOUNDED for op, _, hi, _, _ in phi.rows()):
            return None
    ahead, back = zip(*map(reach, formulae), strict=True)
    return max(back), max(ahead)


def _require_memory(shape: tuple[int, ...]) -> None:
    """Refuse what the engine would take more memory for than the machine has."""
    _, columns, points = shape
    needed, there = 8 * _LANES * points * (columns + 3), memory()
    if there is not None and needed > there:
        raise TraceError(
            f"{points:,} samples would take {needed / 1e9:,.0f} GB with a formula that looks ahead or "
            "back without end; give its operators bounds, resample to a longer step, or split the log"
        )


def names_of(formulae: Sequence[Formula]) -> list[str]:
    """The variables of all formulae."""
    names = dict.fromkeys(name for phi in formulae for name in phi.variables)
    return [name for name in names if name not in (AFTER[0][0], INSIDE[0][0])]


def _with_columns(phi: Formula, atoms: dict[tuple[Row, bool], int]) -> np.ndarray:
    """The program of phi with `column >= 0` for each atom; `atoms` numbers the columns."""
    code: np.ndarray = phi.code.copy()
    for node, (row, negated) in enumerate(zip(phi.rows(), negative(phi), strict=True)):
        if row[3] is not None:
            code[node] = ops.GE, 0, 0, atoms.setdefault((row, negated), len(atoms))
    return code


def _least_lag(row: Row) -> int:
    return min(ops.lag_of(variable) for variable, _ in row[3] or ())
