"""The matrix unit of x86 CPUs (AMX): eight registers of 16 rows of 64 bytes.

Four of them hold sums, a square of two by two; two each hold what is multiplied. Registers have
numbers in the intrinsics used here, as in assembly, so LLVM neither allocates nor spills them. A
kernel configures the unit when it is entered and releases it when it is left: between kernels, on
whatever thread and after a fork, the unit is in its initial state, which costs nothing to keep.
"""

from __future__ import annotations

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


def uses_amx(block: tile.Block) -> bool:
    """Whether a program multiplies on the matrix unit."""
    return any(isinstance(op, ops.AmxProduct) for op in tile.nested_ops(block))


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
    a, b, c = op.a, op.b, op.c
    high, wide = op.registers
    a_line = op.line * tile.itemsize(a.dtype)
    b_line = c_line = wide * AMX_ROW_BYTES
    squares = [(_SUMS + 2 * r + v, r, v) for r in range(high) for v in range(wide)]
    a_start, b_start, c_start = address(a, a_at), address(b, b_at), address(c, c_at)

    def place(start: Value, offset: int) -> Value:
        return f.gep(start, offset, I8)

    def move(name: str, register: int, pointer: Value, line: int) -> None:
        f.call(f"llvm.x86.{name}", VOID, const(I8, register), pointer, const(I64, line))

    def sums(name: str) -> None:
        for register, r, v in squares:
            offset = r * AMX_ROWS * c_line + v * AMX_ROW_BYTES
            move(name, register, place(c_start, offset), c_line)

    def clear() -> list[Value]:
        for register, _, _ in squares:
            f.call("llvm.x86.tilezero", VOID, const(I8, register))
        return []

    def earlier() -> list[Value]:
        sums("tileloadd64")
        return []

    def step(i: Value, _: list[Value]) -> list[Value]:
        left = advanced(a_start, i, AMX_ROW_BYTES)
        right = advanced(b_start, i, AMX_ROWS * b_line)
        for v in range(wide):
            move("tileloadd64", _RIGHT + v, place(right, v * AMX_ROW_BYTES), b_line)
        for r in range(high):
            move("tileloadd64", _LEFT + r, place(left, r * AMX_ROWS * a_line), a_line)
            for v in range(wide):
                registers = (_SUMS + 2 * r + v, _LEFT + r, _RIGHT + v)
                name = "llvm.x86." + _INSTRUCTIONS[op.types]
                f.call(name, VOID, *(const(I8, n) for n in registers))
        return []

    def advanced(start: Value, steps: Value, size: int) -> Value:
        return f.gep(start, f.mul(steps, const(I64, size)), I8)

    f.if_(fresh, clear, earlier)
    f.loop(const(I64, 0), steps, 1, [], step)
    sums("tilestored64")
