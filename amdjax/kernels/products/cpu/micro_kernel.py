"""The loop over depth that keeps a tile of the result in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amdjax import tile
from amdjax.kernels.products.contraction import TileShape

Value = tile.Value
Rows = list[list[Value]]
Add = Callable[[tile.Builder, Value, Value, Value], Value]

PREFETCH = 16  # steps in depth


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
    `multiply_add`. What is far apart in `prefetch` is asked for `PREFETCH` steps ahead.
    """
    add = add or multiply_add
    rows, vectors, lanes = shape.rows, shape.vectors, (shape.lanes,)
    zero = k.const(accumulate, 0, lanes)
    flat = [zero] * (rows * vectors) if init is None else [x for row in init for x in row]

    def step(i: Value, *accumulators: Value) -> list[Value]:
        b = [load_b(i, v) for v in range(vectors)]
        out = []
        for r in range(rows):
            a = k.broadcast(load_a(i, r), lanes)
            out += [add(k, a, b[v], accumulators[r * vectors + v]) for v in range(vectors)]
        return out

    distance = PREFETCH if prefetch else 0
    accumulators = k.for_(0, steps, 1, step, flat, prefetch=prefetch, prefetch_distance=distance)
    return [list(accumulators[r * vectors : (r + 1) * vectors]) for r in range(rows)]


def multiply_add(k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
    if total.dtype in tile.FLOATS:
        return k.op("fma", a, b, total)
    return (a * b) + total
