"""Random numbers and seed formulae inside compiled code.

The generator is splitmix64, one word of state, keyed by (seed, family, member): a family is a pure
function of its number, whichever batch, worker or machine draws it. Seeds have the distribution of
formula/sample.py, over the channels that their family uses.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ..formula import operators as ops
from ..formula.sample import LAST_BOUND, LEAF_PROBABILITY, MAX_DEPTH, OPERATORS
from .trees import CHANNEL, HI, LO, OP, THRESHOLD, TOKENS, UNIT, WRAPPING, append

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31, _32 = (np.uint64(shift) for shift in (11, 27, 30, 31, 32))


@njit(cache=True, nogil=True)
def mix(z):  # type: ignore[no-untyped-def]
    """A bijection of 64-bit words that looks random."""
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@njit(cache=True, nogil=True)
def key(state, seed, family, member):  # type: ignore[no-untyped-def]
    """Start `state` (1,) uint64 for one member of one family; member -1 is the family itself."""
    z = mix(np.uint64(seed) + _STEP)
    z = mix((z ^ np.uint64(family)) + _STEP)
    state[0] = mix((z ^ np.uint64(member + 1)) + _STEP)


@njit(cache=True, nogil=True)
def word(state):  # type: ignore[no-untyped-def]
    state[0] += _STEP
    return mix(state[0])


@njit(cache=True, nogil=True)
def uniform(state, low=0.0, high=1.0):  # type: ignore[no-untyped-def]
    return low + (high - low) * (np.float64(word(state) >> _11) * 2.0**-53)


@njit(cache=True, nogil=True)
def below(state, n):  # type: ignore[no-untyped-def]
    """An integer in 0 ... n - 1, n below 2^31."""
    return np.int64(((word(state) >> _32) * np.uint64(n)) >> _32)


@njit(cache=True, nogil=True)
def normal(state):  # type: ignore[no-untyped-def]
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(state)))
    return radius * math.cos(2.0 * math.pi * uniform(state))


@njit(cache=True, nogil=True)
def rounded(x):  # type: ignore[no-untyped-def]
    return np.int64(math.floor(x + 0.5))


@njit(cache=True, nogil=True)
def draw_interval(state):  # type: ignore[no-untyped-def]
    """(left, right): right may be UNBOUNDED, otherwise left < right <= LAST_BOUND."""
    if uniform(state) < 0.1:
        return 0, ops.UNBOUNDED
    lo = below(state, LAST_BOUND)
    if uniform(state) < 0.2:
        return lo, ops.UNBOUNDED
    return lo, lo + 1 + below(state, LAST_BOUND - lo)


@njit(cache=True, nogil=True)
def draw_atom(state, palette):  # type: ignore[no-untyped-def]
    """(comparison, channel, threshold); palette (k,) holds the family's channels."""
    channel = palette[below(state, len(palette))]
    comparison = ops.GE if uniform(state) < 0.5 else ops.LE
    return comparison, channel, rounded(UNIT * normal(state))


@njit(cache=True, nogil=True)
def draw_palette(state, n_channels):  # type: ignore[no-untyped-def]
    """The channels of a family: a random subset of 1 ... n_channels of them."""
    order = np.arange(n_channels)
    used = 1 + below(state, n_channels)
    for i in range(used):
        j = i + below(state, n_channels - i)
        order[i], order[j] = order[j], order[i]
    return order[:used]


@njit(cache=True, nogil=True)
def draw_band(state, palette, prefix, n):  # type: ignore[no-untyped-def]
    """Write three nodes to prefix[n:]: a channel lies between two thresholds, or outside of them."""
    channel = palette[below(state, len(palette))]
    inside = uniform(state) < 0.75
    middle = 0.0 if uniform(state) < 0.5 else normal(state)
    half = abs(normal(state))
    low, high = rounded(UNIT * (middle - half)), rounded(UNIT * (middle + half))
    rows = (
        (ops.AND if inside else ops.OR, -1, 0),
        (ops.LE if inside else ops.GE, channel, high),
        (ops.GE if inside else ops.LE, channel, low),
    )
    for i in range(3):
        row = prefix[n + i]
        row[LO], row[HI] = 0, 0
        row[OP], row[CHANNEL], row[THRESHOLD] = rows[i]


@njit(cache=True, nogil=True)
def draw_seed(state, palette, full, bands, max_nodes, max_tokens, prefix, out):  # type: ignore[no-untyped-def]
    """Draw a seed into out; returns its length. Seeds that are too large are drawn again.

    full: the seed reaches its depth limit, which is drawn once; half of the seeds in all branches.
    bands: the share of atoms that become a band, two atoms on one channel.
    prefix: scratch of out's shape, for the nodes root first, right operands before left ones.
    """
    todo = np.empty(max_nodes + 2, np.int64)  # depths of the nodes still to draw
    limit, leaf = 0, LEAF_PROBABILITY
    if full:
        limit = 1 + below(state, MAX_DEPTH)
        leaf = max(0.0, uniform(state, -LEAF_PROBABILITY, LEAF_PROBABILITY))
    while True:
        if not full:
            limit = 1 + below(state, MAX_DEPTH)
        n, pending, reached = 0, 1, 0
        todo[0] = 0
        while pending > 0 and n + pending <= max_nodes:
            pending -= 1
            depth = todo[pending]
            reached = max(reached, depth)
            row = prefix[n]
            n += 1
            row[LO], row[HI] = 0, 0
            if depth > 0 and (depth == limit or uniform(state) < leaf):
                if bands > 0 and uniform(state) < bands and n + pending + 2 <= max_nodes:
                    draw_band(state, palette, prefix, n - 1)
                    n += 2
                    continue
                row[OP], row[CHANNEL], row[THRESHOLD] = draw_atom(state, palette)
                continue
            op = OPERATORS[below(state, len(OPERATORS))]
            row[OP], row[CHANNEL], row[THRESHOLD] = op, -1, 0
            if ops.IS_TIMED[op]:
                row[LO], row[HI] = draw_interval(state)
            for _ in range(2 if ops.ARITY[op] == 2 else 1):
                todo[pending] = depth + 1
                pending += 1
        if pending > 0 or (full and reached < limit):
            continue
        length = 0
        for i in range(n - 1, -1, -1):
            row = prefix[i]
            length = append(out, length, row[OP], row[LO], row[HI], row[CHANNEL], row[THRESHOLD])
        if out[length - 1, TOKENS] + WRAPPING <= max_tokens:
            return length
