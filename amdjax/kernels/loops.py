"""What kernel families share: views of memory, loops over lanes, elements of any dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.dims import Dim, choosing, fits, surely_equal
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.arithmetic import Arithmetic
from amdjax.schedule.values import El, compute_dtype, part_dtype, short_dtype
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import Buffer, Builder, Value, itemsize

#: Elements that one program of a kernel moves, where it has the choice.
CHUNK = 8192


def row_major(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous array, in elements."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def precedes(b: Arithmetic, x: El, y: El) -> El:
    """Lexicographic order of complex numbers."""
    tied = b.compare("lt", b.imag(x), b.imag(y))
    return b.select(
        b.compare("eq", b.real(x), b.real(y)), tied, b.compare("lt", b.real(x), b.real(y))
    )


def view(buffer: Buffer, dtype: str) -> Buffer:
    """The same memory read as another dtype."""
    return Buffer(buffer.name, dtype, buffer.role, buffer.size)


def bits_dtype(dtype: str) -> tuple[str, int]:
    """The unsigned type that moves elements of `dtype`, and how many of them make one element."""
    size = itemsize(dtype)
    return (f"u{8 * size}", 1) if size <= 8 else ("u64", size // 8)


def lanes_for(target: CpuTarget, dtype: str, extent: int, registers: int = 2) -> int:
    """Lanes for a loop: a few registers full, and no more than the next power of two needs."""
    full = max(1, registers * target.vector_bits // (8 * itemsize(dtype)))
    with choosing():
        return full if extent > full // 2 else power_of_two(extent)


def tail_mask(k: Builder, base: Value, count: int, stop: Value) -> Value:
    """Which of the lanes from `base` lie before `stop`."""
    rest = k.convert(k.min(stop - base, count), "i32")
    return k.iota(count, "i32") < rest


def lane_loop(
    k: Builder, start: Value | int, stop: Value | int, count: int, body: Callable[..., Any],
    carried: Sequence[Value] = (), *, masked: bool = False,
) -> Sequence[Value]:  # fmt: skip
    """Loop over a range in tiles of `count` lanes: `carried = body(base, mask, *carried)`.

    The mask is None for whole tiles; the last, unfinished tile has one. A range of a symbolic end
    that one tile holds at the sizes at hand is written once, with masks, as others are if `masked`.
    """
    carried = list(carried)
    if isinstance(start, int) and isinstance(stop, int):
        whole = start + (stop - start) // count * count
        if whole > start:
            carried = list(_whole(k, start, whole, count, body, carried))
        if whole < stop:
            last = k.const("index", whole)
            carried = list(
                body(last, tail_mask(k, last, count, k.const("index", stop)), *carried) or ()
            )
        return carried
    low, high = k.index(start), k.index(stop)
    one = isinstance(start, int) and isinstance(stop, Dim) and fits(stop - start, count)
    if one or masked:

        def some(base: Value, *values: Value) -> Sequence[Value]:
            return body(base, tail_mask(k, base, count, high), *values) or ()

        return k.for_(low, high, count, some, carried)
    whole_end = high - ((high - low) % count)
    carried = list(_whole(k, low, whole_end, count, body, carried))
    if count == 1:
        return carried
    return k.if_(
        whole_end < high,
        lambda: body(whole_end, tail_mask(k, whole_end, count, high), *carried),
        lambda: carried,
    )


def _whole(
    k: Builder, start: Any, stop: Any, count: int, body: Any, carried: Sequence[Value]
) -> Sequence[Value]:
    return k.for_(start, stop, count, lambda base, *values: body(base, None, *values), carried)


def split_position(k: Builder, position: Value, extents: Sequence[int]) -> list[Value]:
    """The multi-index of a row-major position."""
    out: list[Value] = []
    for n in reversed(extents[1:]):
        if surely_equal(n, 1):
            out.insert(0, k.const("index", 0))
            continue
        out.insert(0, position % n)
        position = position // n
    return [position, *out] if extents else []


def offset_of(k: Builder, index: Sequence[Value], strides: Sequence[int]) -> Value:
    """`Σ index * stride`."""
    total = k.const("index", 0)
    for i, stride in zip(index, strides, strict=True):
        if stride:
            total = total + i * stride
    return total


@dataclass(frozen=True)
class Axis:
    """A loop over elements of two arrays: how long it is, and how far each step moves in them."""

    extent: int
    source: int
    target: int


def merge_axes(axes: Sequence[Axis]) -> list[Axis]:
    """Drop loops of one step, join neighbors that are one to both arrays."""
    out: list[Axis] = []
    for a in axes:
        if a.extent == 1:
            continue
        if out and out[-1].source == a.source * a.extent and out[-1].target == a.target * a.extent:
            out[-1] = Axis(out[-1].extent * a.extent, a.source, a.target)
        else:
            out.append(a)
    return out


# Elements of any dtype


def load_element(
    k: Builder, buffer: Buffer, dtype: str, offset: Value, count: int = 0, stride: int = 1,
    mask: Value | None = None,
) -> El:  # fmt: skip
    """An element, or `count` of them in lanes, in the dtype it is computed in."""
    shape, part = ((count,) if count else ()), part_dtype(dtype)
    if part == dtype:
        x = k.load(buffer, offset, shape, [stride] if count else None, mask)
        return El(dtype, k.convert(x, compute_dtype(dtype)))
    parts = view(buffer, part)
    first = offset * 2
    if count > 1 and stride == 1:  # one access of both parts, then the even and the odd lanes
        both = k.load(parts, first, (2 * count,), None, _twice(k, mask))
        return El(dtype, *(k.shuffle(both, range(j, 2 * count, 2)) for j in (0, 1)))
    strides = [2 * stride] if count else None
    return El(dtype, *(k.load(parts, first + j, shape, strides, mask) for j in (0, 1)))


def _twice(k: Builder, mask: Value | None) -> Value | None:
    """A mask of complex elements as one of their parts."""
    return None if mask is None else k.shuffle(mask, [i // 2 for i in range(2 * mask.shape[0])])


def store_element(
    k: Builder, buffer: Buffer, offset: Value, x: El, stride: int = 1, mask: Value | None = None
) -> None:
    """Write what `load_element` reads."""
    strides = [stride] if x.value.shape else None
    if not x.is_complex:
        k.store(buffer, offset, k.convert(x.value, x.dtype), strides, mask)
        return
    parts = view(buffer, part_dtype(x.dtype))
    first = offset * 2
    count = x.value.shape[0] if strides else 0
    if count > 1 and stride == 1:
        re, im = (k.broadcast(part, (count,)) for part in x.parts)
        both = k.shuffle(re, [i // 2 + i % 2 * count for i in range(2 * count)], im)
        k.store(parts, first, both, None, _twice(k, mask))
        return
    for j, part in enumerate(x.parts):
        k.store(parts, first + j, part, [2 * stride] if strides else None, mask)


def copy_call(ctx: ShapedContext, source: Any, result: Any) -> Call:
    """A copy that never shares memory, for operands that are read while the result is written."""
    dtype, parts = bits_dtype(short_dtype(source.aval.dtype))
    n = math.prod(source.aval.shape) * parts
    kernel = ctx.kernel("copy")
    k = kernel.k
    x, y = view(kernel.input(source), dtype), view(kernel.output(result), dtype)
    start = k.program_id() * CHUNK
    stop = k.min(start + CHUNK, n)
    count = lanes_for(ctx.target, dtype, n)

    def body(base: Value, mask: Value | None) -> None:
        k.store(y, base, k.load(x, base, (count,), None, mask), None, mask)

    lane_loop(k, start, stop, count, body)
    return kernel.launch(ceil_div(n, CHUNK), 0.1 * n * itemsize(dtype))
