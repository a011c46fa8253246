"""MATLAB files of versions 4 to 7 (save's -v4, -v6, -v7) as arrays by name.

Every size and type is checked against the data, so that a damaged file is an error. The reader of scipy
follows them unchecked, and a single wrong byte can crash the process.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import numpy as np

# How data is stored (mi...), and what it means (mx...), by the numbers of the format.
INT8, UINT8, UINT16, INT32, UINT32, MATRIX, COMPRESSED = 1, 2, 4, 5, 6, 14, 15
UTF8, UTF16, UTF32 = 16, 17, 18
CELL, STRUCT, TEXT, OPAQUE = 1, 2, 4, 17
NUMBERS = range(6, 16)
STORED = {
    INT8: "i1", UINT8: "u1", 3: "i2", UINT16: "u2", INT32: "i4", UINT32: "u4", 7: "f4", 9: "f8",
    12: "i8", 13: "u8",
}  # fmt: skip
STORED_4 = ("f8", "f4", "i4", "i2", "u2", "u1")  # in version 4
LOGICAL, COMPLEX = 1 << 9, 1 << 11  # flags of a matrix

HEADER = 128  # bytes, from version 5 on
LEAST = 8  # bytes of an element


class DamagedError(ValueError):
    """Data that does not follow the format."""


def read_matlab(data: bytes) -> dict[str, Any]:
    """The variables of a file, without axes of length 1: numbers, texts, cells as arrays of objects,
    and structs as dicts. Anything else, such as a sparse array, a timeseries or a table, is None.

    NotImplementedError if this is version 7.3.
    """
    try:
        if 0 in data[:4]:
            return _version_4(memoryview(data))
        order = {b"IM": "<", b"MI": ">"}[data[126:HEADER]]
        (version,) = struct.unpack(order + "H", data[124:126])
        if version >> 8 == 2:
            raise NotImplementedError
        return _version_5(memoryview(data)[HEADER:], order)
    except (KeyError, ValueError, RecursionError, struct.error, zlib.error) as error:
        raise DamagedError(str(error)) from None


def _version_5(data: memoryview, order: str) -> dict[str, Any]:
    found = {}
    elements = _Elements(data, order)
    while elements.left > 0:
        kind, content = elements.next()
        if kind == COMPRESSED:
            unpacking = zlib.decompressobj()  # as some files lack the end of the stream
            unpacked = _Elements(memoryview(unpacking.decompress(content)), order)
            kind, content = unpacked.next()
            if unpacked.left or unpacking.unused_data:
                raise DamagedError("compressed data is left over")
        if kind != MATRIX:
            raise DamagedError(f"{kind} is not a variable")
        name, value = _Elements(content, order).matrix()
        if name:  # what objects share has none
            found[name] = value
    return found


class _Elements:
    """The elements of a part of a file, one after the other."""

    def __init__(self, data: memoryview, order: str):
        self._data = data
        self._order = order
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.left:
            raise DamagedError("the data ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def next(self) -> tuple[int, memoryview]:
        """The kind of the next element, and its data."""
        head = self.take(LEAST)
        kind, size = struct.unpack(self._order + "2I", head)
        if kind >> 16:  # up to four bytes stand in the head
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise DamagedError("a small element is too large")
            return kind, head[4 : 4 + size]
        content = self.take(size)
        if kind not in (MATRIX, COMPRESSED):
            self._at += -size % 8
        return kind, content

    def numbers(self) -> np.ndarray:
        kind, content = self.next()
        stored = np.dtype(self._order + STORED[kind])
        array = np.frombuffer(content, stored) if content else np.empty(0, stored)
        return array.astype(stored.newbyteorder("="), copy=False)

    def integers(self) -> list[int]:
        numbers = self.numbers()
        if numbers.dtype.itemsize != 4 or numbers.dtype.kind == "f":
            raise DamagedError(f"{numbers.dtype} where 32-bit integers were expected")
        return [int(number) for number in numbers]

    def name(self) -> bytes:
        kind, content = self.next()
        if kind not in (INT8, UTF8):
            raise DamagedError(f"a name of kind {kind}")
        return bytes(content)

    def texts(self, shape: list[int]) -> Any:
        kind, content = self.next()
        end = "-le" if self._order == "<" else "-be"
        encodings = {
            INT8: "latin-1", UINT8: "latin-1", UINT16: "utf-16" + end,
            UTF8: "utf-8", UTF16: "utf-16" + end, UTF32: "utf-32" + end,
        }  # fmt: skip
        return _rows_of(bytes(content).decode(encodings[kind], "replace"), shape)

    def value(self) -> Any:
        kind, content = self.next()
        if kind != MATRIX:
            raise DamagedError(f"{kind} where a matrix was expected")
        return _Elements(content, self._order).matrix()[1] if content else np.empty(0)

    def values(self, count: int) -> list[Any]:
        if count * LEAST > self.left:
            raise DamagedError("the data ends too early")
        return [self.value() for _ in range(count)]

    def matrix(self) -> tuple[str, Any]:
        """Name and value of a matrix, whose content these elements are."""
        flags, _ = self.integers()
        kind = flags & 0xFF
        if kind == OPAQUE:
            return self.name().decode("latin-1"), None
        shape = self.integers()
        if min(shape) < 0:
            raise DamagedError(f"the shape {shape}")
        name, size = self.name().decode("latin-1"), math.prod(shape)
        if kind in NUMBERS:
            return name, _squeezed(self._numeric(flags, size), shape)
        if kind == TEXT:
            return name, self.texts(shape)
        if kind == CELL:
            values = self.values(size)
            cells = np.empty(size, object)
            for i, value in enumerate(values):  # at once, NumPy would look into them
                cells[i] = value
            return name, _squeezed(cells, shape)
        if kind == STRUCT and size == 1:
            (length,) = self.integers()
            names = self.name()
            fields = [
                names[i : i + length].partition(b"\0")[0].decode("latin-1")
                for i in range(0, len(names), length)
            ]
            return name, dict(zip(fields, self.values(len(fields)), strict=True))
        return name, None

    def _numeric(self, flags: int, size: int) -> np.ndarray:
        numbers = self.numbers()
        if len(numbers) != size:
            raise DamagedError(f"{len(numbers)} numbers in the place of {size}")
        if flags & LOGICAL:
            return numbers.astype(np.bool_)
        # The imaginary part is not read: such numbers are no signal.
        return numbers.astype(np.complex128) if flags & COMPLEX else numbers


def _version_4(data: memoryview) -> dict[str, Any]:
    found: dict[str, Any] = {}
    (first,) = struct.unpack("<i", data[:4])
    order = "<" if 0 <= first < 5000 else ">"
    elements = _Elements(data, order)
    while elements.left:
        code, rows, columns, imaginary, length = struct.unpack(order + "5i", elements.take(20))
        machine, stored, kind = code // 1000, code // 10 % 100, code % 10
        if machine != (order == ">") or stored >= len(STORED_4) or kind > 2:
            raise DamagedError(f"the code {code}")
        name = bytes(elements.take(length)).rstrip(b"\0").decode("latin-1")
        dtype = np.dtype(order + STORED_4[stored])
        content = elements.take(rows * columns * dtype.itemsize)
        numbers = np.frombuffer(content, dtype) if content else np.empty(0, dtype)
        numbers = numbers.astype(dtype.newbyteorder("="), copy=False)
        if imaginary:
            elements.take(len(content))
            numbers = numbers.astype(np.complex128)
        if kind == 0:
            found[name] = _squeezed(numbers, [rows, columns])
        elif kind == 1:
            with np.errstate(invalid="ignore"):
                text = numbers.real.astype(np.uint8).tobytes().decode("latin-1")
            found[name] = _rows_of(text, [rows, columns])
        else:
            found[name] = None
    return found


def _squeezed(values: np.ndarray, shape: list[int]) -> Any:
    """An array, or the single value in it."""
    return values.reshape(shape, order="F").squeeze()[()]


def _rows_of(text: str, shape: list[int]) -> Any:
    """The texts in the rows of a matrix of letters, or the one text."""
    *rows, columns = shape
    if math.prod(rows) <= 1:
        return text
    if len(text) != math.prod(shape):
        return None
    letters = np.array(list(text), "U1").reshape(shape, order="F").reshape(-1, columns)
    return np.array(["".join(row) for row in letters.tolist()]).reshape(rows).squeeze()[()]
