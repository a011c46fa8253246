"""From a model's vectors back to formulae: candidates of its decoder, and the search from there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..errors import RhovecError
from ..formula.core import Formula
from ..formula.parser import parse
from ..formula.programs import Programs
from ..kernel import Progress
from ..tokens.prefix import BOUNDS, CHANNELS
from .inverse import (
    BUDGET,
    MAX_BOUND,
    MAX_THRESHOLD,
    REQUESTS,
    SCALES,
    Embed,
    Found,
    Limits,
    choose,
)

TOP_P = 0.75  # draw from fewer tokens than by default: these formulae are closer
ENOUGH = 0.999  # similarity at which no more candidates are drawn; the encoder's error is larger


class Decoder(Protocol):
    """The interface of `models.generate.Generator`."""

    def greedy(self, vectors: np.ndarray, /) -> list[Formula]: ...

    def sample(
        self,
        vectors: np.ndarray,
        samples: int,
        /,
        *,
        top_p: float = ...,
        numbers: bool = ...,
        seed: int = ...,
    ) -> list[list[Formula]]: ...


class Inverter:
    """Formulae for unit vectors (B, D).

    channels: number of channels that `embed` knows. largest: limit of thresholds; a search beyond it
    would find formulae that are close only by accident. points: of the traces that `embed` is about.
    """

    def __init__(
        self,
        embed: Embed,
        decoder: Decoder,
        channels: int = CHANNELS,
        largest: float = MAX_THRESHOLD,
        points: int = BOUNDS,
    ):
        self.embed = embed
        self.decoder = decoder
        self.channels = channels
        self.largest = largest
        self.points = points

    def decode(
        self,
        vectors: np.ndarray,
        samples: int = 16,
        refine: bool = True,
        seed: int = 0,
        channels: int | None = None,
        progress: Progress | None = None,
    ) -> list[list[Found]]:
        """Up to ANSWERS different formulae per row, the best first.

        samples: candidates that the decoder draws where its likeliest one is not close enough; their
        numbers are the likeliest, as tuning finds better ones. channels: answer only in terms of
        x_0 ... x_(channels - 1).
        """
        if samples < 0:
            raise RhovecError(f"samples must be 0 or more, not {samples}")
        out: list[list[Found]] = []
        for first in range(0, len(vectors), REQUESTS):
            part = vectors[first : first + REQUESTS]
            known = min(self.channels, channels or self.channels)
            candidates = [[phi] for phi in self._in_steps(self.decoder.greedy(part))]
            unsure = self._unsure(part, candidates, known)
            if samples and len(unsure):
                drawn = self.decoder.sample(
                    part[unsure], samples, top_p=TOP_P, numbers=False, seed=seed
                )
                for i, more in zip(unsure.tolist(), drawn, strict=True):
                    candidates[i] += self._in_steps(more)
            candidates = [_within(group, known) for group in candidates]
            last = max(1, self.points - 1)
            scales = SCALES[0], SCALES[1] * max(1.0, last / MAX_BOUND)
            limits = Limits(self.largest, last, scales, BUDGET if refine else 0)
            out += choose(self.embed, part, candidates, limits)
            if progress:
                progress(len(out) / len(vectors))
        return out

    def _in_steps(self, formulae: Sequence[Formula]) -> list[Formula]:
        formulae = [_folded(phi, self.channels) for phi in formulae]
        return in_steps(Programs.pack(formulae), self.points).unpack() if formulae else []

    def _unsure(
        self, vectors: np.ndarray, likeliest: Sequence[Sequence[Formula]], channels: int
    ) -> np.ndarray:
        """Indices of the requests whose only candidate is not close, or needs more channels."""
        known = _names(channels)
        enough = np.array([known.issuperset(phi.variables) for (phi,) in likeliest])
        (places,) = np.nonzero(enough)
        if len(places):
            found = self.embed([likeliest[i][0] for i in places.tolist()])
            enough[places] = np.einsum("bd,bd->b", found, vectors[places]) >= ENOUGH
        return np.flatnonzero(~enough)


def in_steps(programs: Programs, points: int) -> Programs:
    """Formulae as a decoder for traces of this length writes them, with bounds in steps.

    A decoder has a hundred words for bounds. For longer traces they count 99ths of the length, and
    tuning finds the steps.
    """
    return _scaled(programs, points, (points - 1) / MAX_BOUND)


def as_written(programs: Programs, points: int) -> Programs:
    """Inverse of `in_steps`, up to rounding."""
    return _scaled(programs, points, MAX_BOUND / max(1, points - 1))


def _scaled(programs: Programs, points: int, factor: float) -> Programs:
    if points <= BOUNDS:
        return programs
    return programs.stretched(np.ones(len(programs), bool), factor)


def _names(channels: int) -> set[str]:
    return {f"x_{i}" for i in range(channels)}


def _folded(phi: Formula, channels: int) -> Formula:
    """The formula in channels that there are: a decoder has words for more than its model may have."""
    if _names(channels).issuperset(phi.variables):
        return phi
    return parse(re.sub(r"x_(\d+)", lambda found: f"x_{int(found[1]) % channels}", str(phi)))


def _within(formulae: Sequence[Formula], channels: int) -> list[Formula]:
    known = _names(channels)
    kept = [phi for phi in formulae if known.issuperset(phi.variables)]
    if not kept:
        names = sorted({name for phi in formulae for name in phi.variables} - known)
        raise RhovecError(
            f"the vector is of a formula in {names[0]}, but answers must be in x_0 ... "
            f"x_{channels - 1}; draw more samples, or decode without a schema"
        )
    return kept
