"""The encoder in eight-bit integers: what models/runtime.py computes, several times as fast.

Weights are rounded once, with a scale per output; activations when they are made, with a scale per
token. A scale never depends on another formula, products of integers are exact, and every formula goes
through the same instructions, so a vector is the same to the last bit in every batch and on every
number of threads.

What is added to the tokens is turned by a random rotation first, which the matrices behind it undo.
Norms do not see it, and it spreads the few large numbers of a token over all of them. That makes the
rounding five times as fine.

Matrix products are written in LLVM's language through numba: on processors with AVX512-VNNI
sixty-four products per instruction, on others in plain integer vectors, with the same integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from ..errors import RhovecError
from ..formula.programs import Programs
from ..machine import cores
from ..tokens.tree import tree_tokens
from .config import FAR, FEATURES, SCALES, EncoderConfig
from .heads import Kind
from .layers import EPSILON, Layer, in_threads, ranges
from .runtime import FREQUENCIES, Runtime

PANEL = 64  # columns of a matrix that are computed together
TILE = 6  # rows, likewise: 6 x 64 sums fill the registers of a core
QUERIES, KEYS = 4, 16  # whose scores are computed together
CHUNK = 96  # tokens that a thread works on at once, unless one formula has more
BLOCK = 4  # formulae whose vectors are computed at once; see `Int8Runtime._vectors`
PLAIN, ADD, SQUARE = range(
    3
)  # what a product does: write, add to what is there, square if positive
MAX_INT = np.int32(0x7FFFFFFF)
FAST = {"reassoc", "contract", "nsz"}  # lets sums be computed in vectors
SEED = 0  # of the rotation

instructions: Any = intrinsic  # whose types say that `typing` is an argument of calls
Vector = ir.VectorType
I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
INTEGERS, FLOATS, BYTES = Vector(I32, 16), Vector(F32, 16), Vector(I8, 64)


class Int8Runtime:
    """The encoder as a function: programs of B formulae -> unit vectors (B, D) float32."""

    def __init__(self, config: EncoderConfig, tensors: Mapping[str, np.ndarray]):
        self.exact = exact = Runtime(config, tensors)
        depth = config.width // config.heads
        if config.width % PANEL or depth % 16 or config.pooling == "mean":
            raise RhovecError(
                f"precision int8 takes a width that is a multiple of {PANEL}, attention heads of 16, "
                f"32, ... numbers, and pooling cls or bos; this model has width {config.width}, heads "
                f"of {depth} and pooling {config.pooling}; load it without a precision"
            )
        self.config = config
        self.turn = rotation(config.width)
        self.inputs = np.concatenate([*exact.tables, exact.features]) @ self.turn
        self.relations = np.stack(exact.relations)
        layers = [_turned(layer, self.turn) for layer in exact.layers]
        self.matrices = tuple(
            _rounded(np.stack([getattr(layer, name) for layer in layers]), name != "down")
            for name in Layer._fields
        )
        self.tables = np.cumsum((0, *config.tables()))

    def __call__(self, programs: Programs, kind: Kind = "kernel") -> np.ndarray:
        """Vectors of this kind; fastest if formulae of about the same length are neighbours."""
        config = self.config
        sizes = np.diff(programs.offsets) + 1
        tokens = tree_tokens(programs)
        ids = tokens.ids(config.points)
        config.check(ids, tokens.threshold)
        out = np.empty((len(sizes), self.exact.head.dimension(kind)), np.float32)

        def work(cut: tuple[int, int]) -> None:
            pooled = np.zeros((-(-(cut[1] - cut[0]) // BLOCK) * BLOCK, config.width), np.float32)
            _encode(
                ids.reshape(-1, 4), tokens.threshold.reshape(-1), tokens.relation,
                tokens.cls[slice(*cut)], sizes[slice(*cut)], self.tables, FREQUENCIES, self.inputs,
                self.relations, self.matrices, config.heads, config.pooling == "cls", pooled,
            )  # fmt: skip
            for first in range(0, cut[1] - cut[0], BLOCK):
                begin, end = cut[0] + first, min(cut[0] + first + BLOCK, cut[1])
                out[begin:end] = self._vectors(pooled[first : first + BLOCK], kind)[: end - begin]

        # Several parts per core, so that none waits long for another at the end.
        share = -(-int(sizes.sum()) // (4 * cores()))
        in_threads(work, list(ranges(sizes, max(4 * CHUNK, share))))
        return out

    def _vectors(self, pooled: np.ndarray, kind: Kind) -> np.ndarray:
        """Vectors of BLOCK pooled tokens.

        Four, because every row must be rounded in the same way: in products of more, OpenBLAS's kernels
        for AVX2 treat the first rows differently from the last.
        """
        head, tensors = self.exact.head, self.exact.head_tensors
        rows = head.numpy_rows(tensors, pooled @ self.turn.T)
        return rows if kind == "cosine" else head.numpy_vectors(tensors, rows)


def rotation(width: int) -> np.ndarray:
    """A random rotation (width, width) float32."""
    normal = np.random.default_rng(SEED).standard_normal((width, width))
    return np.linalg.qr(normal)[0].astype(np.float32)


def _turned(layer: Layer, turn: np.ndarray) -> Layer:
    """The block for tokens that are multiplied by `turn`."""
    qkv, up = (
        np.concatenate([turn.T @ matrix[:-1], matrix[-1:]]) for matrix in (layer.qkv, layer.up)
    )
    shift = np.zeros((1, len(turn)), np.float32)
    out, down = (np.concatenate([matrix @ turn, shift]) for matrix in (layer.out, layer.down))
    return Layer(qkv, out, up, down)


def _rounded(matrices: np.ndarray, signed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices (layers, inputs + 1, outputs) with a shift as last row, for `_product`.

    Returns int8 (layers, outputs / PANEL, inputs / 4, PANEL, 4); scales beside shifts (layers, 2,
    outputs); and what undoes the 128 that is added to signed inputs, (layers, outputs) int32.
    """
    weight = matrices[:, :-1]
    scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True), np.float32(1e-30)) / 127
    integers = np.rint(weight / scale).astype(np.int8)
    layers, inputs, outputs = weight.shape
    panels = integers.reshape(layers, inputs // 4, 4, outputs // PANEL, PANEL)
    return (
        np.ascontiguousarray(panels.transpose(0, 3, 1, 4, 2)),
        np.ascontiguousarray(np.stack([scale[:, 0], matrices[:, -1]], axis=1), np.float32),
        (-128 if signed else 0) * integers.sum(axis=1, dtype=np.int32),
    )


# -- products --------------------------------------------------------------------------------------


def _splat(build: Any, number: Any, kind: Any) -> Any:
    """A vector that holds a number sixteen times."""
    empty = ir.Constant(kind, ir.Undefined)
    one = build.insert_element(empty, number, I32(0))
    return build.shuffle_vector(one, empty, ir.Constant(INTEGERS, [0] * 16))


def _read(build: Any, address: Any, kind: Any) -> Any:
    return build.load(build.inttoptr(address, kind.as_pointer()), align=4)


def _write(build: Any, value: Any, address: Any) -> None:
    build.store(value, build.inttoptr(address, value.type.as_pointer()), align=4)


def _sums(
    build: Any, rows: int, start: list[Any], steps: Any, read: Any, multiply: Any
) -> list[Any]:
    """rows x len(start) running sums over `steps`, kept in registers.

    read(step) gives the vectors of the right matrix, and a function that gives those of a row of the
    left one.
    """
    before, loop, after = build.block, *(build.append_basic_block() for _ in range(2))
    build.branch(loop)
    build.position_at_end(loop)
    step = build.phi(I64)
    step.add_incoming(I64(0), before)
    sums = [build.phi(initial.type) for _ in range(rows) for initial in start]
    for place, total in enumerate(sums):
        total.add_incoming(start[place % len(start)], before)
    columns, row = read(step)
    new = []
    for i in range(rows):
        left = row(i)
        for j, right in enumerate(columns):
            new.append(multiply(sums[i * len(columns) + j], left, right))
    following = build.add(step, I64(1))
    step.add_incoming(following, build.block)
    for total, value in zip(sums, new, strict=True):
        total.add_incoming(value, build.block)
    build.cbranch(build.icmp_signed("<", following, steps), loop, after)
    build.position_at_end(after)
    return new


def _has_vnni(context: Any) -> bool:
    return "+avx512vnni" in context.codegen().magic_tuple()[2].split(",")


def _multiply_bytes(context: Any, build: Any) -> Any:
    """A function (sums, unsigned bytes, signed bytes) -> sums: four products to each of 16 sums."""
    if _has_vnni(context):
        kind = ir.FunctionType(INTEGERS, [INTEGERS] * 3)
        name = "llvm.x86.avx512.vpdpbusd.512"
        instruction = build.module.declare_intrinsic(name, (), kind)
        return lambda total, a, b: build.call(instruction, [total, a, b])

    def multiply(total: Any, a: Any, b: Any) -> Any:
        for part in range(4):
            shift = ir.Constant(INTEGERS, [24 - 8 * part] * 16)
            low = ir.Constant(INTEGERS, [24] * 16)
            left = build.lshr(build.shl(a, shift), low)
            right = build.ashr(build.shl(b, shift), low)
            total = build.add(total, build.mul(left, right))
        return total

    return multiply


@instructions
def _byte_tile(  # type: ignore[no-untyped-def]
    typing, a, stride, b, steps, sums, scales, shifts, row_scales, out, out_stride, mode
):
    """TILE rows of `_product`, of PANEL columns. All arguments but strides and steps are addresses."""
    signature = types.void(*[types.intp] * 11)

    def code(context: Any, build: Any, _: Any, given: Any) -> Any:
        a, stride, b, steps, sums, scales, shifts, row_scales, out, out_stride, mode = given
        lanes = range(PANEL // 16)
        multiply = _multiply_bytes(context, build)
        start = [_read(build, build.add(sums, I64(64 * j)), INTEGERS) for j in lanes]

        def read(step: Any) -> Any:
            here = build.add(b, build.mul(step, I64(4 * PANEL)))
            columns = [_read(build, build.add(here, I64(64 * j)), INTEGERS) for j in lanes]
            left = build.add(a, build.shl(step, I64(2)))

            def row(i: int) -> Any:
                address = build.add(left, build.mul(stride, I64(i)))
                return _splat(build, _read(build, address, I32), INTEGERS)

            return columns, row

        totals = _sums(build, TILE, start, steps, read, multiply)
        plain, added, squared, end = (build.append_basic_block() for _ in range(4))
        zero = ir.Constant(FLOATS, [0.0] * 16)

        def finish(change: Any) -> None:
            for i in range(TILE):
                of_row = _read(build, build.add(row_scales, I64(4 * i)), F32)
                for j in lanes:
                    place = build.add(build.mul(out_stride, I64(i)), I64(64 * j))
                    factor = build.fmul(
                        _splat(build, of_row, FLOATS),
                        _read(build, build.add(scales, I64(64 * j)), FLOATS),
                    )
                    value = build.fmul(build.sitofp(totals[4 * i + j], FLOATS), factor)
                    value = build.fadd(value, _read(build, build.add(shifts, I64(64 * j)), FLOATS))
                    _write(build, change(value, build.add(out, place)), build.add(out, place))
            build.branch(end)

        def square(value: Any, _: Any) -> Any:
            positive = build.select(build.fcmp_ordered(">", value, zero), value, zero)
            return build.fmul(positive, positive)

        switch = build.switch(mode, plain)
        switch.add_case(I64(ADD), added)
        switch.add_case(I64(SQUARE), squared)
        for block, change in (
            (plain, lambda value, _: value),
            (added, lambda value, place: build.fadd(value, _read(build, place, FLOATS))),
            (squared, square),
        ):
            build.position_at_end(block)
            finish(change)
        build.position_at_end(end)
        return context.get_dummy_value()

    return signature, code


def _float_tile(rows: int) -> Any:
    """Make the intrinsic for rows x 16 numbers of a product of float32 matrices."""

    @instructions
    def tile(typing, a, stride, b, b_stride, steps, out, out_stride):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.intp] * 7)

        def code(context: Any, build: Any, _: Any, given: Any) -> Any:
            a, stride, b, b_stride, steps, out, out_stride = given
            fused = ("contract",)  # one rounding where the processor can do that

            def read(step: Any) -> Any:
                column = _read(build, build.add(b, build.mul(step, b_stride)), FLOATS)
                left = build.add(a, build.shl(step, I64(2)))

                def row(i: int) -> Any:
                    address = build.add(left, build.mul(stride, I64(i)))
                    return _splat(build, _read(build, address, F32), FLOATS)

                return [column], row

            zero = ir.Constant(FLOATS, [0.0] * 16)
            totals = _sums(
                build, rows, [zero], steps, read,
                lambda total, x, y: build.fadd(total, build.fmul(x, y, fused), fused),
            )  # fmt: skip
            for i, total in enumerate(totals):
                _write(build, total, build.add(out, build.mul(out_stride, I64(i))))
            return context.get_dummy_value()

        return signature, code

    return tile


@instructions
def _float_of(typing, bits):  # type: ignore[no-untyped-def]
    """The float32 that has these bits."""

    def code(context: Any, build: Any, _: Any, given: Any) -> Any:
        return build.bitcast(given[0], F32)

    return types.float32(types.int32), code


_tile_of_queries, _tile_of_one = _float_tile(QUERIES), _float_tile(1)


@njit(cache=True, nogil=True)
def _product(a, row_scales, rows, matrix, layer, first, last, out, mode):  # type: ignore[no-untyped-def]
    """Rows of a (T, inputs) uint8 times panels first ... last - 1 of a matrix; out (T, ...) float32.

    Rows are rounded up to a multiple of TILE. a, row_scales and out must have room for that.
    """
    panels, scales, sums = matrix
    steps, size = panels.shape[2], panels.strides[1]
    base = panels.ctypes.data + layer * panels.strides[0]
    of_scales = scales.ctypes.data + layer * scales.strides[0]
    of_sums = sums.ctypes.data + layer * sums.strides[0]
    for panel in range(first, last):
        wide = 4 * PANEL * panel
        for t in range(0, rows, TILE):
            _byte_tile(
                a.ctypes.data + t * a.strides[0], a.strides[0], base + panel * size, steps,
                of_sums + wide, of_scales + wide, of_scales + scales.strides[1] + wide,
                row_scales.ctypes.data + 4 * t,
                out.ctypes.data + t * out.strides[0] + wide - 4 * PANEL * first, out.strides[0], mode,
            )  # fmt: skip


@njit(cache=True, nogil=True, fastmath=FAST)
def _to_signed(x, rows, normed, out, scales):  # type: ignore[no-untyped-def]
    """Round rows of x to -127 ... 127, and write them as uint8 with 128 added.

    normed: the scale includes the division by the deviation.
    """
    width = x.shape[1]
    bits = x.view(np.int32)  # whose maximum, unlike that of floats, is computed in vectors
    for t in range(rows):
        most, squares = np.int32(0), np.float32(0)
        for j in range(width):
            most = max(most, bits[t, j] & MAX_INT)
            squares += x[t, j] * x[t, j]
        largest = _float_of(most)
        factor = np.float32(127) / max(largest, np.float32(1e-30))
        for j in range(width):
            out[t, j] = np.uint8(np.int32(x[t, j] * factor + np.float32(128.5)))
        scales[t] = largest / np.float32(127)
        if normed:
            scales[t] /= np.float32(math.sqrt(squares / np.float32(width) + np.float32(EPSILON)))


@njit(cache=True, nogil=True, fastmath=FAST)
def _to_unsigned(x, rows, out, scales):  # type: ignore[no-untyped-def]
    """Round rows of x, none of it negative, to 0 ... 255."""
    width = x.shape[1]
    bits = x.view(np.int32)
    for t in range(rows):
        most = np.int32(0)
        for j in range(width):
            most = max(most, bits[t, j])
        largest = _float_of(most)
        factor = np.float32(255) / max(largest, np.float32(1e-30))
        for j in range(width):
            out[t, j] = np.uint8(np.int32(x[t, j] * factor + np.float32(0.5)))
        scales[t] = largest / np.float32(255)


# -- layers ----------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=FAST)
def _softmax(scores, count, n, wide, relation, biases):  # type: ignore[no-untyped-def]
    """Softmax of rows of scores (count, wide), of which n columns count, in place.

    relation (count, n) says which of the biases (RELATIONS,) is added to a score.
    """
    bits = scores.view(np.int32)
    for i in range(count):
        row = scores[i]
        for j in range(n):
            row[j] += biases[relation[i, j]]
        for j in range(n, wide):
            row[j] = np.float32(-1e9)
        most = ~MAX_INT
        for j in range(wide):  # with their other bits turned, negative floats, too, are in order
            most = max(most, bits[i, j] ^ ((bits[i, j] >> 31) & MAX_INT))
        largest = _float_of(most ^ ((most >> 31) & MAX_INT))
        total = np.float32(0)
        for j in range(wide):
            # 2 ** y = 2 ** whole * 2 ** part: the latter by a polynomial with an error of 1e-7.
            y = (row[j] - largest) * np.float32(1.4426950408889634)
            y = y if y > np.float32(-126) else np.float32(-126)
            whole = np.int32(y - np.float32(0.5))  # towards zero, so that part is within 0.5
            part = y - np.float32(whole)
            p = np.float32(1.5403530e-4)
            p = p * part + np.float32(1.3333558e-3)
            p = p * part + np.float32(9.6181291e-3)
            p = p * part + np.float32(5.5504109e-2)
            p = p * part + np.float32(2.4022651e-1)
            p = p * part + np.float32(6.9314718e-1)
            p = p * part + np.float32(1)
            row[j] = p * _float_of(np.int32((whole + 127) << 23))
            total += row[j]
        for j in range(wide):
            row[j] /= total


@njit(cache=True, nogil=True)
def _attend(q, count, kv, n, heads, relation, biases, out, keys, scores):  # type: ignore[no-untyped-def]
    """Attention of q (count, width) to kv (n, 2 * width), keys beside values; out like q.

    A count above 1 is rounded up to a multiple of QUERIES: q and out must have room for that.
    keys (depth, wide) and scores (queries, wide) are work arrays, wide the n rounded up.
    """
    depth = keys.shape[0]
    width = heads * depth
    wide = -(-n // KEYS) * KEYS
    row = scores.strides[0]
    for h in range(heads):
        for j in range(n):
            for c in range(depth):
                keys[c, j] = kv[j, h * depth + c]
        place = 4 * h * depth
        for i in range(0, count, QUERIES):
            for j in range(0, wide, KEYS):
                left, right = q.ctypes.data + i * q.strides[0] + place, keys.ctypes.data + 4 * j
                target = scores.ctypes.data + i * row + 4 * j
                if count == 1:
                    _tile_of_one(left, q.strides[0], right, keys.strides[0], depth, target, row)
                else:
                    _tile_of_queries(left, q.strides[0], right, keys.strides[0], depth, target, row)
        _softmax(scores, count, n, wide, relation, biases[h])
        for i in range(0, count, QUERIES):
            for c in range(0, depth, KEYS):
                left = scores.ctypes.data + i * row
                right = kv.ctypes.data + 4 * width + place + 4 * c
                target = out.ctypes.data + i * out.strides[0] + place + 4 * c
                if count == 1:
                    _tile_of_one(left, row, right, kv.strides[0], n, target, out.strides[0])
                else:
                    _tile_of_queries(left, row, right, kv.strides[0], n, target, out.strides[0])


@njit(cache=True, nogil=True)
def _finish(x, rows, mixed, layer, out, up, down, hidden, bytes_, wide_bytes, scales):  # type: ignore[no-untyped-def]
    """Add attention's output, then the feed-forward part, to x (T, width)."""
    panels = x.shape[1] // PANEL
    _to_signed(mixed, rows, False, bytes_, scales)
    _product(bytes_, scales, rows, out, layer, 0, panels, x, ADD)
    _to_signed(x, rows, True, bytes_, scales)
    _product(bytes_, scales, rows, up, layer, 0, 4 * panels, hidden, SQUARE)
    _to_unsigned(hidden, rows, wide_bytes, scales)
    _product(wide_bytes, scales, rows, down, layer, 0, panels, x, ADD)


@njit(cache=True, nogil=True)
def _fill(x, ids, thresholds, start, n, tables, frequencies, inputs):  # type: ignore[no-untyped-def]
    """Tokens start ... start + n - 1, ids (tokens, 4) and thresholds (tokens,), to x (n, width)."""
    features = np.empty(FEATURES, np.float32)
    for i in range(n):
        row, of = x[i], ids[start + i]
        for j in range(len(row)):
            row[j] = (inputs[of[0], j] + inputs[tables[1] + of[1], j]) + (
                inputs[tables[2] + of[2], j] + inputs[tables[3] + of[3], j]
            )
        if of[1]:
            value = np.float32(thresholds[start + i])
            near = min(max(value, np.float32(-FAR)), np.float32(FAR))
            for c in range(SCALES):
                angle = near * frequencies[c]
                features[c] = math.sin(angle)
                features[SCALES + c] = math.cos(angle)
            features[2 * SCALES] = math.tanh(value)
            features[2 * SCALES + 1] = math.copysign(math.log1p(abs(value)), value)
            features[2 * SCALES + 2] = near / np.float32(FAR)
            for c in range(FEATURES):
                for j in range(len(row)):
                    row[j] += features[c] * inputs[tables[4] + c, j]


@njit(cache=True, nogil=True)
def _encode(  # type: ignore[no-untyped-def]
    ids, thresholds, relation, cls, sizes, tables, frequencies, inputs, biases, matrices, heads,
    first_token, pooled,
):  # fmt: skip
    """Pooled tokens (B, width) of the formulae whose first tokens are at cls (B,)."""
    width = inputs.shape[1]
    layers = len(biases)
    row_width = relation.shape[2]
    qkv, out, up, down = matrices
    panels = width // PANEL
    longest = 0
    for size in sizes:
        longest = max(longest, size)
    room = max(CHUNK, longest) + TILE + QUERIES
    x = np.zeros((room, width), np.float32)
    queries = np.zeros((room, width), np.float32)
    kv = np.zeros((room, 2 * width), np.float32)
    mixed = np.zeros((room, width), np.float32)
    hidden = np.zeros((room, 4 * width), np.float32)
    bytes_ = np.zeros((room, width), np.uint8)
    wide_bytes = np.zeros((room, 4 * width), np.uint8)
    scales = np.zeros(room, np.float32)
    picked = np.zeros((room, width), np.float32)
    wide = -(-longest // KEYS) * KEYS
    keys = np.zeros((width // heads, wide), np.float32)
    scores = np.zeros((longest + QUERIES, wide), np.float32)
    begin = 0
    while begin < len(sizes):
        end, rows = begin, 0
        while end < len(sizes) and (end == begin or rows + sizes[end] <= CHUNK):
            _fill(x[rows:], ids, thresholds, cls[end], sizes[end], tables, frequencies, inputs)
            rows += sizes[end]
            end += 1
        for layer in range(layers):
            last = layer == layers - 1
            _to_signed(x, rows, True, bytes_, scales)
            _product(bytes_, scales, rows, qkv, layer, panels, 3 * panels, kv, PLAIN)
            count = rows  # of queries; only the tokens that are pooled go through the last block
            if last:
                count, t = end - begin, 0
                for b in range(begin, end):
                    token = t if first_token else t + sizes[b] - 1
                    for j in range(width):
                        picked[b - begin, j] = x[token, j]
                    t += sizes[b]
                _to_signed(picked, count, True, bytes_, scales)
            _product(bytes_, scales, count, qkv, layer, 0, panels, queries, PLAIN)
            t = 0
            for b in range(begin, end):
                n = sizes[b]
                r, place = cls[b] // row_width, cls[b] % row_width
                to = b - begin if last else t
                here = place + n - 1 if last and not first_token else place
                _attend(
                    queries[to:], 1 if last else n, kv[t:], n, heads,
                    relation[r, here:, place:], biases[layer], mixed[to:], keys, scores,
                )  # fmt: skip
                t += n
            _finish(
                picked if last else x, count, mixed, layer, out, up, down, hidden, bytes_, wide_bytes,
                scales,
            )  # fmt: skip
        for b in range(begin, end):
            for j in range(width):
                pooled[b, j] = picked[b - begin, j]
        begin = end
