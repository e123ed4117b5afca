"""The loop over depth that keeps a tile of the result in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from amdjax import tile
from amdjax.kernels.products.contraction import TileShape

Value = tile.Value
Rows = list[list[Value]]
Add = Callable[[tile.Builder, Value, Value, Value], Value]

PREFETCH = 16  # steps in depth
LEAST_ADDS = 24  # multiply-adds of vectors in a turn of the loop, which hide what turning costs


def multiply(
    k: tile.Builder,
    shape: TileShape,
    accumulate: str,
    steps: Value | int,
    load_a: Callable[[Value, int], Value],
    load_b: Callable[[Value, int], Value],
    init: Rows | None,
    add: Add | None = None,
    prefetch: Sequence[tile.Buffer] = (),
) -> Rows:
    """The micro-kernel: `init + Σ a[:, i] b[i, :]` for `i` in `range(steps)`, all in registers.

    `load_a(i, row)` gives a scalar, `load_b(i, vector)` a vector; `add` takes the place of
    `multiply_add`. What is far apart in `prefetch` is asked for `PREFETCH` steps ahead. A turn of
    the loop is several steps of a small tile.
    """
    add = add or multiply_add
    rows, vectors, lanes = shape.rows, shape.vectors, (shape.lanes,)
    zero = k.const(accumulate, 0, lanes)
    flat = [zero] * (rows * vectors) if init is None else [x for row in init for x in row]

    def step(i: Value, accumulators: Sequence[Value]) -> list[Value]:
        b = [load_b(i, v) for v in range(vectors)]
        out = []
        for r in range(rows):
            a = k.broadcast(load_a(i, r), lanes)
            out += [add(k, a, b[v], accumulators[r * vectors + v]) for v in range(vectors)]
        return out

    def turn(i: Value, *accumulators: Value) -> list[Value]:
        out = list(accumulators)
        for n in range(unroll):
            out = step(i + n if n else i, out)
        return out

    unroll = steps_of_turn(shape)
    whole = steps - steps % unroll
    distance = PREFETCH // unroll if prefetch else 0
    if not isinstance(whole, int) or whole:
        flat = list(
            k.for_(0, whole, unroll, turn, flat, prefetch=prefetch, prefetch_distance=distance)
        )
    if unroll > 1 and (not isinstance(whole, int) or whole < steps):
        flat = list(k.for_(whole, steps, 1, lambda i, *sums: step(i, sums), flat))
    return [list(flat[r * vectors : (r + 1) * vectors]) for r in range(rows)]


def each_tile(
    k: tile.Builder,
    rows: Value,
    shape: TileShape,
    body: Callable[[Value, Value, TileShape], None],
) -> None:
    """`body(i, row, shape)` for the tiles that cover rows, see `TileShape.covering`."""
    high = shape.rows
    tiles = (rows + (high - 1)) // high
    if not shape.even:
        k.for_(0, tiles, 1, lambda i: body(i, i * high, shape))
        return
    tall = tiles - k.min(tiles * high - rows, tiles)
    k.for_(0, tall, 1, lambda i: body(i, i * high, replace(shape, even=False)))
    k.for_(tall, tiles, 1, lambda i: body(i, i * (high - 1) + tall, shape.lower))


def steps_of_turn(shape: TileShape) -> int:
    """Steps in depth that are written one after the other: 1, 2 or 4."""
    adds = shape.rows * shape.vectors
    return 1 if adds >= LEAST_ADDS else 2 if 2 * adds >= LEAST_ADDS else 4


def multiply_add(k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
    if total.dtype in tile.FLOATS:
        return k.op("fma", a, b, total)
    return (a * b) + total
