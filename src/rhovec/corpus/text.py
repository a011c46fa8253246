"""Canonical text and horizon of many formulae at once: what `str(phi)` and `phi.horizon` give.

A compiled twin of formula/printer.py, since a corpus holds millions of formulae; a test compares the
two. Bottom up, each subtree gets its length; top down, each node gets its position and writes its own
pieces there. For corpus programs: channel i is x_i, thresholds have at most four decimals.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..formula import operators as ops
from ..formula.programs import Programs
from .trees import UNIT, digits, number_length

_NAMES = np.zeros((len(ops.NAMES), max(map(len, ops.NAMES))), np.uint8)
for _i, _name in enumerate(ops.NAMES):
    _NAMES[_i, : len(_name)] = list(_name.encode())
_NAME_LENGTHS = np.array([len(name) for name in ops.NAMES])
_INF = np.frombuffer(b"inf", np.uint8)
_SPACE, _OPEN, _CLOSE, _COMMA, _MINUS, _POINT, _ZERO, _LEFT, _RIGHT, _X, _LINE = b" (),-.0[]x_"


def texts(programs: Programs) -> tuple[np.ndarray, np.ndarray]:
    """(all texts joined, (bytes,) uint8; where each begins, (B + 1,) int32)."""
    return _texts(programs.code, programs.thresholds, programs.offsets)  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _texts(code, thresholds, offsets):  # type: ignore[no-untyped-def]
    rows = len(code)
    size = np.ones(rows, np.int64)
    length = np.empty(rows, np.int64)  # characters of a subtree
    ends = np.zeros(len(offsets), np.int32)
    for b in range(len(offsets) - 1):
        for i in range(offsets[b], offsets[b + 1]):
            op = code[i, 0]
            if ops.IS_ATOM[op]:
                number = number_length(_units(thresholds[i]))
                length[i] = 4 + digits(code[i, 3]) + _NAME_LENGTHS[op] + number
                continue
            right = i - 1
            size[i] += size[right]
            length[i] = length[right] + 5 + _label_length(op, code[i, 1], code[i, 2])
            if ops.ARITY[op] == 2:
                left = right - size[right]
                size[i] += size[left]
                length[i] += length[left] + 1
        ends[b + 1] = ends[b] + length[offsets[b + 1] - 1]
    data = np.empty(ends[-1], np.uint8)
    start = np.empty(rows, np.int64)
    for b in range(len(offsets) - 1):
        start[offsets[b + 1] - 1] = ends[b]
        for i in range(offsets[b + 1] - 1, offsets[b] - 1, -1):
            op, at = code[i, 0], start[i]
            if ops.IS_ATOM[op]:
                data[at], data[at + 1] = _X, _LINE
                at = _write_integer(data, at + 2, code[i, 3])
                data[at] = _SPACE
                at = _write_name(data, at + 1, op)
                data[at] = _SPACE
                _write_number(data, at + 1, _units(thresholds[i]))
                continue
            right = i - 1
            if ops.ARITY[op] == 2:  # `( left label right )`
                left = right - size[right]
                data[at], data[at + 1] = _OPEN, _SPACE
                start[left] = at + 2
                at += 2 + length[left]
                data[at] = _SPACE
                at = _write_label(data, at + 1, op, code[i, 1], code[i, 2])
                data[at] = _SPACE
                at += 1
            else:  # `label ( right )`
                at = _write_label(data, at, op, code[i, 1], code[i, 2])
                data[at], data[at + 1], data[at + 2] = _SPACE, _OPEN, _SPACE
                at += 3
            start[right] = at
            at += length[right]
            data[at], data[at + 1] = _SPACE, _CLOSE
    return data, ends


@njit(cache=True, nogil=True)
def _units(threshold):  # type: ignore[no-untyped-def]
    return np.int64(np.rint(threshold * UNIT))


@njit(cache=True, nogil=True)
def _has_window(op, lo, hi):  # type: ignore[no-untyped-def]
    return ops.IS_TIMED[op] and (lo != 0 or hi != ops.UNBOUNDED)


@njit(cache=True, nogil=True)
def _label_length(op, lo, hi):  # type: ignore[no-untyped-def]
    length = _NAME_LENGTHS[op]
    if _has_window(op, lo, hi):
        length += 3 + digits(lo) + (3 if hi == ops.UNBOUNDED else digits(hi))
    return length


@njit(cache=True, nogil=True)
def _write_label(data, at, op, lo, hi):  # type: ignore[no-untyped-def]
    at = _write_name(data, at, op)
    if _has_window(op, lo, hi):
        data[at] = _LEFT
        at = _write_integer(data, at + 1, lo)
        data[at] = _COMMA
        at += 1
        if hi == ops.UNBOUNDED:
            data[at : at + 3] = _INF
            at += 3
        else:
            at = _write_integer(data, at, hi)
        data[at] = _RIGHT
        at += 1
    return at


@njit(cache=True, nogil=True)
def _write_name(data, at, op):  # type: ignore[no-untyped-def]
    for i in range(_NAME_LENGTHS[op]):
        data[at + i] = _NAMES[op, i]
    return at + _NAME_LENGTHS[op]


@njit(cache=True, nogil=True)
def _write_integer(data, at, value):  # type: ignore[no-untyped-def]
    end = at + digits(value)
    for i in range(end - 1, at - 1, -1):
        data[i] = _ZERO + value % 10
        value //= 10
    return end


@njit(cache=True, nogil=True)
def _write_number(data, at, threshold):  # type: ignore[no-untyped-def]
    end = at + number_length(threshold)
    if threshold < 0:
        data[at] = _MINUS
        at += 1
    at = _write_integer(data, at, abs(threshold) // UNIT)
    rest = abs(threshold) % UNIT
    if at < end:
        data[at] = _POINT
        for i in range(at + 1, end):
            rest *= 10
            data[i] = _ZERO + rest // UNIT
            rest %= UNIT
