"""Gathers of neighbors: elements that follow each other, each from the same places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from amdjax.tile import ops
from amdjax.tile.ir import Block, Op, Trait, Value
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import all_blocks, constant_of, makers, rewritten
from amdjax.tile.types import itemsize

_LONGEST = 4  # elements of a row that is read at once
_FEWEST_LANES = 4  # that are worth it
_LEAST_BYTES = 4  # of an element


def join_gathers(kernel: Kernel) -> Kernel:
    """Gathers whose offsets differ by constants, one after the other, become gathers of rows.

    The channels of a pixel whose place is computed are read by one access instead of as many.
    Nothing is joined across what may write memory, and no gather that has a mask.
    """
    # What few kernels have is not searched for in all of them.
    if not kernel.has(ops.LoadAt):
        return kernel
    made = makers(kernel.body)
    joined: dict[int, ops.LoadRows | None] = {}  # by number of a gather's result; None: is read
    for block in all_blocks(kernel.body):  # by another one
        for row in _rows(block, made):
            results = tuple(op.result for op in row)
            attrs = {"buffer": row[0].buffer, "count": len(row)}
            first = ops.LoadRows((row[0].offsets,), attrs, results, (), row[0].origin, row[0])
            joined |= dict.fromkeys((v.number for v in results[1:]), None)
            joined[results[0].number] = first

    def change(op: Op) -> Op | Sequence[Op]:
        if not isinstance(op, ops.LoadAt) or op.result.number not in joined:
            return op
        found = joined[op.result.number]
        return [] if found is None else found

    return rewritten(kernel, change) if joined else kernel


def _rows(block: Block, made: dict[int, Op]) -> Iterator[list[ops.LoadAt]]:
    """Gathers of a block that are a row each, the first element's first."""
    open_: dict[Any, dict[int, ops.LoadAt]] = {}
    for op in block.ops:
        if op.blocks or op.traits & Trait.WRITES:
            yield from _closed(open_)
            open_ = {}
        elif isinstance(op, ops.LoadAt) and _is_simple(op):
            base, distance = _apart(op.offsets, made)
            places = open_.setdefault((op.buffer, base, op.offsets.type), {})
            places.setdefault(distance, op)
    yield from _closed(open_)


def _is_simple(op: ops.LoadAt) -> bool:
    """Whether lanes are what a vector has, of elements that are worth it, all of them read."""
    (*outer, lanes), size = (1, *op.offsets.shape), itemsize(op.buffer.dtype)
    whole = lanes >= _FEWEST_LANES and not lanes & (lanes - 1)
    return len(outer) == 1 and whole and size >= _LEAST_BYTES and op.mask is None


def _closed(open_: dict[Any, dict[int, ops.LoadAt]]) -> Iterator[list[ops.LoadAt]]:
    """The rows among gathers by what their offsets have in common and by how they differ."""
    for places in open_.values():
        row: list[ops.LoadAt] = []
        last = None
        for distance, op in places.items():  # in the order in which they are read
            if last is None or distance != last + 1 or len(row) == _LONGEST:
                if len(row) > 1:
                    yield row
                row = []
            row.append(op)
            last = distance
        if len(row) > 1:
            yield row


def _apart(offsets: Value, made: dict[int, Op]) -> tuple[int, int]:
    """Offsets as those of another number, and a constant added to them."""
    op, distance = made.get(offsets.number), 0
    while isinstance(op, ops.Add):
        a, b = op.operands
        step = constant_of(b, made)
        if step is None:
            break
        offsets, distance = a, distance + int(step)
        op = made.get(a.number)
    return offsets.number, distance
