"""Many formulae packed into flat arrays: the form that every engine and model reads.

Formula b is rows offsets[b] to offsets[b+1] of `code` and `thresholds`, in postfix order; channels
are numbered over the whole batch, so each is computed once however many formulae use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from .core import Formula
from .operators import UNBOUNDED, Channel
from .shape import shapes


@dataclass(frozen=True)
class Programs:
    code: np.ndarray  # (rows, 4) int64: operator, lo, hi, channel
    thresholds: np.ndarray  # (rows,) float64
    offsets: np.ndarray  # (B + 1,) int64
    channels: tuple[Channel, ...]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def depths(self) -> np.ndarray:
        """(B,) int64: `Formula.depth` of each."""
        depths: np.ndarray = shapes(self.code, self.channels)[1][self.offsets[1:] - 1]
        return depths

    def horizons(self) -> np.ndarray:
        """(B,) int64: `Formula.horizon` of each, or MAX_HORIZON where it is larger."""
        horizons: np.ndarray = np.maximum(self.times()[1], 0)
        return horizons

    def histories(self) -> np.ndarray:
        """(B,) int64: `Formula.history` of each, or MAX_HORIZON where it is larger."""
        histories: np.ndarray = np.maximum(-self.times()[0], 0)
        return histories

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """First and last time, relative to t, that each formula depends on: int64 (B,) each."""
        _, _, last, first = shapes(self.code, self.channels)
        roots = self.offsets[1:] - 1
        return first[roots], last[roots]

    def part(self, first: int, last: int) -> Programs:
        """Formulae first ... last - 1."""
        rows = slice(self.offsets[first], self.offsets[last])
        offsets = self.offsets[first : last + 1] - self.offsets[first]
        return Programs(self.code[rows], self.thresholds[rows], offsets, self.channels)

    def select(self, chosen: np.ndarray) -> Programs:
        """The formulae with these indices, in this order."""
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        return Programs(self.code[rows], self.thresholds[rows], offsets, self.channels)

    def replace(self, chosen: np.ndarray, others: Programs) -> Programs:
        """The batch with other formulae in the places `chosen`."""
        order = np.arange(len(self))
        order[chosen] = len(self) + np.arange(len(chosen))
        return Programs.join([self, others]).select(order)

    def stretched(self, chosen: np.ndarray, factor: float) -> Programs:
        """The batch with the finite time bounds of the formulae `chosen`, (B,) bool, times `factor`."""
        code = self.code.copy()
        bounds = code[:, 1:3]
        changed = np.repeat(chosen, np.diff(self.offsets))[:, None] & (bounds != UNBOUNDED)
        bounds[changed] = np.rint(bounds[changed] * factor)
        return Programs(code, self.thresholds, self.offsets, self.channels)

    @classmethod
    def join(cls, parts: Sequence[Programs]) -> Programs:
        """One batch after the other."""
        index: dict[Channel, int] = {}
        codes = []
        for part in parts:
            place = [index.setdefault(channel, len(index)) for channel in part.channels]
            code = part.code.copy()
            code[:, 3] = np.array([*place, -1])[code[:, 3]]  # -1, no channel, stays
            codes.append(code)
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        thresholds = np.concatenate([part.thresholds for part in parts])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return cls(np.concatenate(codes), thresholds, offsets, tuple(index))

    def unpack(self) -> list[Formula]:
        rows = zip(self.code.tolist(), self.thresholds.tolist(), strict=True)
        channels = [*self.channels, None]  # -1 is no channel
        return [
            Formula.from_rows([
                (op, lo, hi, channels[c], t) for (op, lo, hi, c), t in islice(rows, size)
            ], check=False)
            for size in np.diff(self.offsets).tolist()
        ]  # fmt: skip

    @classmethod
    def pack(cls, formulae: Sequence[Formula]) -> Programs:
        if len(formulae) == 1:
            (f,) = formulae
            return cls(f.code, f.thresholds, np.array([0, len(f.code)]), f.channels)
        index: dict[Channel, int] = {}
        offsets = np.zeros(len(formulae) + 1, np.int64)
        np.cumsum([len(f.code) for f in formulae], out=offsets[1:])
        code = np.concatenate([f.code for f in formulae])
        thresholds = np.concatenate([f.thresholds for f in formulae])
        # Local channel c of formula b stands at remap[base[b] + c]; a node without one keeps -1.
        remap: list[int] = [-1]
        base = np.empty(len(formulae), np.int64)
        for b, f in enumerate(formulae):
            base[b] = len(remap)
            remap += [index.setdefault(c, len(index)) for c in f.channels]
        local = code[:, 3]
        place = np.where(local >= 0, np.repeat(base, np.diff(offsets)) + local, 0)
        code[:, 3] = np.array(remap)[place]
        return cls(code, thresholds, offsets, tuple(index))
