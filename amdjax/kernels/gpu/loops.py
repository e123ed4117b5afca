"""Pieces that kernel families for GPUs share."""

from __future__ import annotations

from amdjax.codegen.tile import Builder, Value
from amdjax.targets import GpuTarget

EACH = 4  # elements of a thread


def threads_for(target: GpuTarget, total: int, each: int = EACH) -> int:
    """Threads of a program: fewer than usual where there are few elements in all."""
    threads = target.usual_workgroup
    while threads > target.wave_size and total <= threads * each // 2:
        threads //= 2
    return threads


def element_tile(
    k: Builder, target: GpuTarget, total: int, each: int = EACH
) -> tuple[Value, Value | None, int]:
    """Deal elements to programs, a tile for each.

    Args:
      k: the kernel, which gets its number of threads.
      target: the GPU.
      total: number of elements.
      each: elements of a thread.

    Returns:
      The numbers of a program's elements as a tile, which of them exist (None if all do), and the
      number of programs.
    """
    k.workgroup = threads_for(target, total, each)
    count = k.workgroup * each
    base = k.program_id() * count
    numbers = k.iota(count) + k.broadcast(base, (count,))
    if total % count == 0:
        return numbers, None, total // count
    rest = k.convert(k.const("index", total) - base, "i32")
    return numbers, k.iota(count, "i32") < rest, -(-total // count)


def spread(k: Builder, x: Value, like: Value) -> Value:
    """A scalar in all lanes of a tile."""
    return k.broadcast(x, like.shape)
