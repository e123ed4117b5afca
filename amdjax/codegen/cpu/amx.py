"""The matrix unit of x86 CPUs (AMX): eight registers of 16 rows of 64 bytes.

Four of them hold sums, a square of two by two; two each hold what is multiplied. Registers have
numbers in the intrinsics used here, as in assembly, so LLVM neither allocates nor spills them. A
kernel configures the unit when it is entered and releases it when it is left: between kernels, on
whatever thread and after a fork, the unit is in its initial state, which costs nothing to keep.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from amdjax import tile
from amdjax.codegen.llvm import I8, I64, VOID, Function, Value, const
from amdjax.targets.cpu import AMX_ROW_BYTES, AMX_ROWS
from amdjax.tile import ops

#: Instructions by the types of what is multiplied.
_INSTRUCTIONS = {
    ("bf16", "bf16"): "tdpbf16ps",
    ("i8", "i8"): "tdpbssd",
    ("i8", "u8"): "tdpbsud",
    ("u8", "i8"): "tdpbusd",
    ("u8", "u8"): "tdpbuud",
}
_SUMS, _LEFT, _RIGHT = 0, 4, 6  # first register of each kind

# Palette 1, and for each register 64 bytes a row and 16 rows.
_CONFIGURATION = (1, 0, 0x0040_0040_0040_0040, 0x0040_0040_0040_0040, 0, 0, 0x1010101010101010, 0)


def configure(f: Function) -> None:
    """Give all registers their full size."""
    words = f.alloca(I64, len(_CONFIGURATION))
    for i, word in enumerate(_CONFIGURATION):
        f.store(const(I64, word), f.gep(words, i, I64), 8)
    f.call("llvm.x86.ldtilecfg", VOID, words)


def release(f: Function) -> None:
    """Return the unit to its initial state."""
    f.call("llvm.x86.tilerelease", VOID)


def amx_product(
    f: Function,
    op: ops.AmxProduct,
    address: Callable[[tile.Buffer, Value], Value],
    scalar: Callable[[tile.Value], Value],
) -> None:
    """Write a `amx_product`.

    Args:
      f: the function.
      op: the op.
      address: where an element of a buffer is.
      scalar: what represents a tile of rank 0.
    """
    a_at, b_at, c_at, steps, fresh = (scalar(v) for v in op.operands)
    a, b, c = address(op.a, a_at), address(op.b, b_at), address(op.c, c_at)
    high, wide = (n // AMX_ROWS for n in op.tile)
    line = wide * AMX_ROW_BYTES  # of `b` and of accumulators

    def move_accumulators(name: str) -> list[Value]:
        for r, v in itertools.product(range(high), range(wide)):
            offset = r * AMX_ROWS * line + v * AMX_ROW_BYTES
            _move(f, name, _accumulator(r, v), f.gep(c, offset, I8), line)
        return []

    def clear() -> list[Value]:
        for r, v in itertools.product(range(high), range(wide)):
            f.call("llvm.x86.tilezero", VOID, const(I8, _accumulator(r, v)))
        return []

    def step(i: Value, _: list[Value]) -> list[Value]:
        left = f.gep(a, f.mul(i, const(I64, AMX_ROW_BYTES)), I8)
        right = f.gep(b, f.mul(i, const(I64, AMX_ROWS * line)), I8)
        _multiply(f, op, left, right, line)
        return []

    f.if_(fresh, clear, lambda: move_accumulators("tileloadd64"))
    f.rotated_loop(const(I64, 0), steps, 1, [], step)
    move_accumulators("tilestored64")


def _multiply(f: Function, op: ops.AmxProduct, left: Value, right: Value, line: int) -> None:
    """One step in depth: load the registers of both operands, multiply each with each."""
    high, wide = (n // AMX_ROWS for n in op.tile)
    a_line = op.line * tile.itemsize(op.a.dtype)
    for v in range(wide):
        _move(f, "tileloadd64", _RIGHT + v, f.gep(right, v * AMX_ROW_BYTES, I8), line)
    for r in range(high):
        _move(f, "tileloadd64", _LEFT + r, f.gep(left, r * AMX_ROWS * a_line, I8), a_line)
        for v in range(wide):
            registers = (_accumulator(r, v), _LEFT + r, _RIGHT + v)
            f.call("llvm.x86." + _INSTRUCTIONS[op.types], VOID, *(const(I8, n) for n in registers))


def _accumulator(row: int, column: int) -> int:
    """The register of accumulators at a place of the square."""
    return _SUMS + 2 * row + column


def _move(f: Function, name: str, register: int, pointer: Value, line: int) -> None:
    f.call(f"llvm.x86.{name}", VOID, const(I8, register), pointer, const(I64, line))
