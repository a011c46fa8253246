"""Families: a seed formula and its variants, drawn in bulk as ready `Programs`.

Each member has one kind: the seed itself, an equivalent rewrite, a perturbation, or a hybrid (a
rewrite, then a perturbation). 40 % of all variants are also dualised, if the result is within the
limits. Family i of a recipe is always the same, however batches, shards and workers cut the sequence.

Validation is exact and almost free: on a constant trace temporal operators are identities and until
is a minimum, so one pass of a stack machine gives the robustness on all probes. A formula that is
constant or not finite there is drawn again. (With held traces nothing is undefined, and minima and
maxima of atoms are never constant: this guards the generator and rejects nothing today.)

The split depends on a hash of the seed formula, so all variants of a seed, and of an equal seed drawn
under another number, are in the same split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from ..errors import RhovecError
from ..formula import operators as ops
from ..formula.programs import Programs
from .draw import draw_palette, draw_seed, key, mix, uniform
from .perturb import DUALITY, dualise, oppose, perturb
from .requirements import draw_requirement
from .rules import FORMS, rewrite
from .trees import CHANNEL, COLUMNS, DEPTH, HI, LO, OP, THRESHOLD, TOKENS, UNIT, WRAPPING, copy

KINDS = ("seed", "equivalent", "perturbed", "hybrid")
SEED, EQUIVALENT, PERTURBED, HYBRID = range(4)
# The paper's text gives these shares; its appendix's "65 % altered" contradicts 43.4 + 45.7 %. The
# missing 0.5 % are the seeds themselves.
SHARES = (0.005, 0.104, 0.434, 0.457)
SPLITS = ("train", "valid", "test")
SPLIT_SHARES = (0.96, 0.02, 0.02)
CHANGES = (*(form.name for form in FORMS), "duality")  # what is counted for each formula

MAX_TOKENS = 512  # of the text, with its wrapping
SEED_SHARE = 0.75  # of the limits: what a seed may use, so that all variants have room
MAX_CHANNELS = 1000
_PROBES = 8

_SPLIT_ENDS = np.cumsum(SPLIT_SHARES)


@dataclass(frozen=True)
class Recipe:
    """What determines the families: same recipe, same formulae."""

    seed: int = 0
    family_size: int = 8
    channels: int = 3  # a family uses a random subset of them
    max_nodes: int = 64
    shares: tuple[float, ...] = SHARES  # of KINDS
    opposed: float = 0.0  # share of perturbations that are one operator's opposite instead
    full_depth: bool = False  # seeds reach their depth limits, half of them in all branches
    bands: float = 0.0  # share of a seed's atoms that become a band, two atoms on one channel
    requirements: float = 0.0  # share of seeds that are built as requirements are

    def __post_init__(self) -> None:
        limits = {
            "seed": (0, 2**63 - 1),
            "family_size": (1, 4096),
            "channels": (1, MAX_CHANNELS),
            "max_nodes": (16, 128),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise RhovecError(
                    f"{name} must be a whole number from {low} to {high}, not {value!r}"
                )
        if len(self.shares) != len(KINDS) or min(self.shares) < 0 or sum(self.shares) <= 0:
            raise RhovecError(f"shares must be a number for each of {', '.join(KINDS)}")
        for name in ("opposed", "bands", "requirements"):
            if not 0 <= getattr(self, name) <= 1:
                raise RhovecError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")

    def probes(self) -> np.ndarray:
        """(probes, channels) float64: constant traces."""
        return np.random.default_rng(0).standard_normal((_PROBES, self.channels))


@dataclass(frozen=True)
class Batch:
    """Whole families, one after the other. Arrays have one entry per formula."""

    programs: Programs  # channel i is x_i; thresholds have at most four decimals
    family: np.ndarray  # (B,) int64: the family's number
    kind: np.ndarray  # (B,) int8: an index of KINDS
    split: np.ndarray  # (B,) int8: an index of SPLITS
    depth: np.ndarray  # (B,) int16
    tokens: np.ndarray  # (B,) int16: of the text, wrapped
    changes: np.ndarray  # (B, len(CHANGES)) int16: how often each change was made


def draw_families(recipe: Recipe, numbers: np.ndarray) -> Batch:
    """The families with these numbers, (F,) int64: a batch of F * family_size formulae."""
    size = recipe.family_size
    code, thresholds, offsets, kind, split, depth, tokens, changes = _draw(
        numbers, recipe.seed, size, recipe.channels, recipe.full_depth, recipe.bands,
        recipe.requirements, recipe.max_nodes, np.cumsum(recipe.shares) / sum(recipe.shares),
        recipe.opposed, recipe.probes(),
    )  # fmt: skip
    channels = tuple(((f"x_{i}", 1.0),) for i in range(recipe.channels))
    programs = Programs(code, thresholds, offsets, channels)
    return Batch(programs, np.repeat(numbers, size), kind, split, depth, tokens, changes)


def find_families(recipe: Recipe, start: int, count: int, split: str) -> np.ndarray:
    """(count,) int64: the first numbers from `start` on whose families are in the split."""
    place = SPLITS.index(split)
    found = _find(
        start, count, place, recipe.seed, recipe.channels, recipe.full_depth, recipe.bands,
        recipe.requirements, recipe.max_nodes,
    )  # fmt: skip
    return found  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _draw(  # type: ignore[no-untyped-def]
    numbers,
    seed,
    size,
    channels,
    full_depth,
    bands,
    requirements,
    max_nodes,
    kind_ends,
    opposed,
    probes,
):
    count = len(numbers) * size
    code = np.empty((count * max_nodes, 4), np.int64)  # pages that stay unused cost nothing
    thresholds = np.empty(count * max_nodes)
    offsets = np.zeros(count + 1, np.int64)
    kinds = np.empty(count, np.int8)
    splits = np.empty(count, np.int8)
    depths = np.empty(count, np.int16)
    tokens = np.empty(count, np.int16)
    changes = np.zeros((count, len(CHANGES)), np.int16)

    state = np.empty(1, np.uint64)
    # A rewrite may triple a formula before it is found too large; duality may, too.
    room = 4 * max_nodes + 16
    origin = np.empty((room, COLUMNS), np.int64)
    a, b, old = np.empty_like(origin), np.empty_like(origin), np.empty_like(origin)
    stack = np.empty((room, len(probes)))
    for f in range(len(numbers)):
        key(state, seed, numbers[f], -1)
        palette = draw_palette(state, channels)
        length = _seed(state, palette, full_depth, bands, requirements, max_nodes, old, origin)
        split = _split(origin, length)
        for member in range(size):
            at = f * size + member
            key(state, seed, numbers[f], member)
            kind = _slot(uniform(state), kind_ends)
            result, n = _member(
                state, kind, opposed, origin, length, palette, max_nodes, a, b, old, probes, stack,
                changes[at],
            )  # fmt: skip
            first = offsets[at]
            for i in range(n):
                row = result[i]
                code[first + i, 0], code[first + i, 1] = row[OP], row[LO]
                code[first + i, 2], code[first + i, 3] = row[HI], row[CHANNEL]
                thresholds[first + i] = row[THRESHOLD] / UNIT
            offsets[at + 1] = first + n
            kinds[at], splits[at] = kind, split
            depths[at] = result[n - 1, DEPTH]
            tokens[at] = result[n - 1, TOKENS] + WRAPPING
    used = offsets[count]
    code, thresholds = code[:used].copy(), thresholds[:used].copy()
    return code, thresholds, offsets, kinds, splits, depths, tokens, changes


@njit(cache=True, nogil=True)
def _member(  # type: ignore[no-untyped-def]
    state, kind, opposed, origin, length, palette, max_nodes, a, b, old, probes, stack, changes
):
    """(buffer, length) of one member of the family of origin[:length]."""
    while True:
        changes[:] = 0
        n = copy(a, 0, origin, length - 1)
        if kind in (EQUIVALENT, HYBRID):
            a, b, n = rewrite(state, a, n, b, old, palette, max_nodes, MAX_TOKENS, changes)
            if n == 0:
                continue
        if kind in (PERTURBED, HYBRID):
            if opposed > 0 and uniform(state) < opposed:
                n = oppose(state, a, n, b)
            else:
                n = perturb(state, a, n, b)
            a, b = b, a
        if kind != SEED and uniform(state) < DUALITY:
            dual = dualise(a, n, b)
            if dual > n and _fits(b, dual, max_nodes):
                a, b, n = b, a, dual
                changes[-1] = 1
        if _fits(a, n, max_nodes) and varies(a, n, probes, stack):
            return a, n


@njit(cache=True, nogil=True)
def _seed(state, palette, full_depth, bands, requirements, max_nodes, prefix, out):  # type: ignore[no-untyped-def]
    nodes, tokens = int(SEED_SHARE * max_nodes), int(SEED_SHARE * MAX_TOKENS)
    if requirements > 0 and uniform(state) < requirements:
        return draw_requirement(state, palette, nodes, tokens, prefix, out)
    return draw_seed(state, palette, full_depth, bands, nodes, tokens, prefix, out)


@njit(cache=True, nogil=True)
def _fits(rows, n, max_nodes):  # type: ignore[no-untyped-def]
    return n <= max_nodes and rows[n - 1, TOKENS] + WRAPPING <= MAX_TOKENS


@njit(cache=True, nogil=True)
def varies(rows, n, probes, stack):  # type: ignore[no-untyped-def]
    """Whether the robustness on constant traces, probes (K, V), is finite and not constant.

    It is left in stack[0]; stack (n or more, K).
    """
    top = 0
    for i in range(n):
        op, channel, threshold = rows[i, OP], rows[i, CHANNEL], rows[i, THRESHOLD] / UNIT
        if ops.IS_ATOM[op]:
            for k in range(len(probes)):
                value = probes[k, channel] - threshold
                stack[top, k] = value if op in (ops.GE, ops.GT) else -value
            top += 1
        elif op == ops.NOT:
            for k in range(len(probes)):
                stack[top - 1, k] = -stack[top - 1, k]
        elif ops.ARITY[op] == 2:
            top -= 1
            for k in range(len(probes)):
                x, y = stack[top - 1, k], stack[top, k]
                if op in (ops.AND, ops.UNTIL):
                    stack[top - 1, k] = min(x, y)
                elif op == ops.OR:
                    stack[top - 1, k] = max(x, y)
    low, high = stack[0, 0], stack[0, 0]
    for k in range(len(probes)):
        if not np.isfinite(stack[0, k]):
            return False
        low, high = min(low, stack[0, k]), max(high, stack[0, k])
    return high > low


@njit(cache=True, nogil=True)
def _split(rows, n):  # type: ignore[no-untyped-def]
    z = np.uint64(n)
    for i in range(n):
        for column in (OP, LO, HI, CHANNEL, THRESHOLD):
            z = mix(z + np.uint64(rows[i, column]))
    return _slot(np.float64(z >> np.uint64(11)) * 2.0**-53, _SPLIT_ENDS)


@njit(cache=True, nogil=True)
def _slot(u, ends):  # type: ignore[no-untyped-def]
    slot = 0
    while slot < len(ends) - 1 and u >= ends[slot]:
        slot += 1
    return slot


@njit(cache=True, nogil=True)
def _find(start, count, split, seed, channels, full_depth, bands, requirements, max_nodes):  # type: ignore[no-untyped-def]
    numbers = np.empty(count, np.int64)
    state = np.empty(1, np.uint64)
    prefix = np.empty((4 * max_nodes, COLUMNS), np.int64)
    out = np.empty_like(prefix)
    number, found = start, 0
    while found < count:
        key(state, seed, number, -1)
        palette = draw_palette(state, channels)
        length = _seed(state, palette, full_depth, bands, requirements, max_nodes, prefix, out)
        if _split(out, length) == split:
            numbers[found] = number
            found += 1
        number += 1
    return numbers
