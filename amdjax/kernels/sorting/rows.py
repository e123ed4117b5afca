"""What all ways of sorting share: the rows of an array, and writing them in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.kernels.loops import (
    bits_dtype,
    split_position,
    view,
)
from amdjax.kernels.shaped import ShapedContext, ShapedKernel
from amdjax.kernels.sorting.keys import Key
from amdjax.schedule.element import short_dtype
from amdjax.tile import Builder, Value


@dataclass(frozen=True)
class Geometry:
    """Rows of an array: along an axis of length `n`, with `inner` elements between neighbours."""

    outer: int
    n: int
    inner: int

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> Geometry:
        return Geometry(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    def start(self, k: Builder, row: Value, n: int | None = None) -> Value:
        """Offset of the first element of a row, in an array whose axis has length `n`."""
        n = self.n if n is None else n
        if self.inner == 1:
            return row * n
        outer, inside = split_position(k, row, (self.outer, self.inner))
        return outer * (n * self.inner) + inside


class SortedRows:
    """Writes sorted rows: from keys where these are enough, else by gathering operands."""

    def __init__(
        self,
        ctx: ShapedContext,
        geometry: Geometry,
        keys: list[tuple[Any, Key]],
        outputs: list[tuple[Any, Any]],
        taken: int | None,
    ):
        self.ctx, self.geometry, self.keys, self.outputs = ctx, geometry, keys, outputs
        self.taken = geometry.n if taken is None else taken
        self.single = keys[0][1] if len(keys) == 1 else None

    @property
    def needs_position(self) -> bool:
        """Whether records carry where they come from."""
        by_key = self.single is not None and self.single.reversible
        return not by_key or any(source is not self.keys[0][0] for source, _ in self.outputs)

    def gather(
        self,
        kernel: ShapedKernel,
        source: Any,
        target: Any,
        where: Value,
        start: Value,
        position: Value,
        count: int,
        stride: int,
        mask: Value | None,
    ) -> None:
        """Write the elements of one operand whose positions within the row are known."""
        k = kernel.k
        position = k.convert(position, "index")
        if source is None:
            dtype = short_dtype(target.aval.dtype)
            k.store(
                kernel.output(target),
                where,
                k.convert(position, dtype),
                [stride] if count else None,
                mask,
            )
            return
        dtype, parts = bits_dtype(short_dtype(source.aval.dtype))
        offsets = position * self.geometry.inner + start
        read, write = view(kernel.input(source), dtype), view(kernel.output(target), dtype)
        for j in range(parts):
            at = offsets if parts == 1 else offsets * parts + j
            to = where if parts == 1 else where * parts + j
            x = k.load_at(read, at, mask)
            k.store(write, to, x, [stride * parts] if count else None, mask)

    def scatter(
        self,
        kernel: ShapedKernel,
        source: Any,
        target: Any,
        to: Value,
        start: Value,
        position: Value,
        exists: Value,
    ) -> None:
        """Write elements to places `to` of their own; positions are indices within the row."""
        k = kernel.k
        if source is None:
            number = k.convert(position, short_dtype(target.aval.dtype))
            k.store_at(kernel.output(target), to, number, exists, unique=True)
            return
        dtype, parts = bits_dtype(short_dtype(source.aval.dtype))
        at = start + position * self.geometry.inner
        read, write = view(kernel.input(source), dtype), view(kernel.output(target), dtype)
        for j in range(parts):
            x = k.load_at(read, at * parts + j, exists)
            k.store_at(write, to * parts + j, x, exists, unique=True)
