"""Products of groups of rows or of depth, stated as contractions, and how programs find theirs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from amdjax import tile
from amdjax.core.dims import Dim
from amdjax.core.integers import ceil_div
from amdjax.kernels.loops import row_major
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    Groups,
    Sink,
    Source,
)
from amdjax.kernels.products.formats import operand_formats, sum_dtype
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import ShapedContext
from amdjax.schedule.values import short_dtype

Value = tile.Value


def grouped_contraction(ctx: ShapedContext) -> Contraction | None:
    """`grouped_dot` as a contraction, merged but for the loops of its batch; None if it is of
    complex numbers, or without groups.
    """
    (lhs, rhs, bounds), (out,) = ctx.inputs, ctx.outputs
    if any(x.aval.dtype.kind == "c" for x in (lhs, rhs, out)) or bounds.aval.shape[-1] == 1:
        return None
    numbers = ctx.params["numbers"]
    contract, batch = numbers.dot_dimension_numbers
    (ragged,), of_rhs = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    count, paired = bounds.aval.shape[-1] - 1, len(batch[0])
    shapes = [x.aval.shape for x in (lhs, rhs, out)]
    left, right, result = ([*map(Axis, s, row_major(s))] for s in shapes)
    free = [d for d in range(len(left)) if d not in (*contract[0], *batch[0])]
    columns = [d for d in range(len(right)) if d not in (*contract[1], *batch[1], *of_rhs)]
    group = [Axis(count, 0)] * 3
    cut = ragged not in contract[0]
    if cut:
        group[1] = right[of_rhs[0]]
        outer = [d for d in free if d < ragged]
        inner = free[len(outer) + 1 :]
    else:
        group[2] = result.pop(0)
        place = contract[0].index(ragged)
        outer, inner = [], contract[0][place + 1 :]
    still = [replace(left[d], stride=0) for d in outer]
    loops = [
        [*(left[d] for d in (*batch[0], *outer)), group[0]],
        [*(right[d] for d in batch[1]), *still, group[1]],
        [*result[: paired + len(outer)], group[2]],
    ]
    depth = [tuple(x[d] for d in dims) for x, dims in zip((left, right), contract, strict=True)]
    ends = paired + len(outer), paired + len(free)
    rows = tuple(left[d] for d in free[len(outer) :])
    lines = [rows, tuple(right[d] for d in columns)]
    a, b = (
        Source(x, short_dtype(x.aval.dtype), 0, (), lines[i], depth[i], fixed=x in ctx.fixed)
        for i, x in enumerate((lhs, rhs))
    )
    scale = math.prod(left[d].extent for d in inner)
    a = replace(a, cut="lines" if cut else "depth", granularity=scale)
    b = b if cut else replace(b, cut="depth", granularity=scale)
    sums, formats = sum_dtype(ctx), operand_formats(ctx.params["precision"])
    sink = Sink(
        out, short_dtype(out.aval.dtype), 0, (), tuple(result[ends[0] : ends[1]]),
        tuple(result[ends[1] :]),
    )  # fmt: skip
    plain = Contraction(a, b, sink, sums).merged()
    kept = [i for i, axis in enumerate(loops[0][:-1]) if axis.extent != 1] + [len(loops[0]) - 1]
    of_a, of_b, of_out = (tuple(own[i] for i in kept) for own in loops)
    steps = row_major(bounds.aval.shape)[:-1] or (0,) * (len(loops[0]) - 1)
    groups = Groups(
        bounds, count, "rows" if cut else "depth", tuple(steps[i] for i in kept[:-1]),
        scale=scale,
    )  # fmt: skip
    if not cut:
        passes = math.prod(left[d].extent for d in contract[0][:place])
        step = count + 1 if bounds.aval.ndim > 1 else 0
        groups = replace(groups, outer=passes, step=step)
    return Contraction(
        replace(plain.a, batch=of_a), replace(plain.b, batch=of_b),
        replace(plain.out, batch=of_out), sums, formats=formats, groups=groups,
    )  # fmt: skip


class GroupOfRows(NamedTuple):
    """Rows of a group that a program computes.

    Args:
      group: by which they are multiplied.
      first: the first row ...
      end: ... and where those of the group end.
      exists: whether there is a group; rows beyond the last one are zero.
    """

    group: Value
    first: Value
    end: Value
    exists: Value


class GroupBounds:
    """Where groups begin and end.

    Args:
      program: the kernel.
      problem: a contraction of groups.
    """

    def __init__(self, program: Program, problem: Contraction):
        assert problem.groups is not None
        self.program, self.k, self.problem, self.groups = (
            program,
            program.k,
            problem,
            problem.groups,
        )
        self.buffer = program.kernel.input(self.groups.owner)
        numbers = {"groups.scale": self.groups.scale, "groups.step": self.groups.step}
        numbers |= {f"groups{i}.stride": n for i, n in enumerate(self.groups.strides)}
        program.declare(numbers)

    def at(self, batch: list[Value], group: Value, turn: Value | None = None) -> Value:
        """Where a group begins, for the place along each other batch loop.

        `turn` says how often the depth was passed through.
        """
        return self._scaled(self._load(batch, group, turn))

    def _load(self, batch: list[Value], group: Value, turn: Value | None = None) -> Value:
        place = group
        for i, digit in enumerate(batch):
            place = place + digit * self.program.num(f"groups{i}.stride", self.groups.strides[i])
        if turn is not None and self.groups.step:
            place = place + turn * self.program.num("groups.step", self.groups.step)
        return self.k.load(self.buffer, place)

    def _scaled(self, bound: Value) -> Value:
        bound = self.k.convert(bound, "index")
        return bound * self.program.num("groups.scale", self.groups.scale)

    def find(self, number: Value, block: Value, batch: list[Value], bits: int = 1) -> GroupOfRows:
        """The block of rows that a number stands for, of `block` rows each.

        Group `g` has the numbers from `bounds[g] // block + g` on, of which the last one is mostly
        more than it needs: then those of a group follow from its own bounds alone. Up to `bits` of
        the group are found by accesses that do not wait for each other.
        """
        k, count = self.k, self.groups.count
        found, last = k.const("index", 0), k.const("index", count)
        stop = (number + 1) * block
        all_bits = count.bit_length()
        bits = ceil_div(all_bits, ceil_div(all_bits, bits))
        most = (1 << all_bits) - 1 if isinstance(count, Dim) else count
        for low in reversed(range(0, all_bits, bits)):
            digits = range(1, min(1 << bits, (most >> low) + 1))
            asked = [found + (digit << low) for digit in digits]
            bounds = [self._load(batch, k.min(group, last)) for group in asked]
            for group, bound in zip(asked, bounds, strict=True):
                found = k.select(self._scaled(bound) + group * block < stop, group, found)
        found = k.min(found, last)
        start = self.at(batch, found)
        exists = found < last
        following = self.at(batch, k.min(found + 1, last))
        end = k.select(exists, following, self.program.num("rows", self.problem.rows))
        place = number - (start // block + found)
        return GroupOfRows(k.min(found, last - 1), start + place * block, end, exists)


def block_numbers(problem: Contraction, block: int) -> int:
    """How many numbers of blocks of so many rows there are; see `GroupBounds.find`."""
    assert problem.groups is not None
    return problem.rows // block + problem.groups.count + 1
