"""Writes the kernel of a region: its parameters, loops over lanes, and the launch in the end.

Plans decide, emitters say what a program does; a `RegionWriter` is what they write it with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amdjax import tile
from amdjax.core.dims import Dim, choosing, fits, is_multiple, same_shape
from amdjax.core.integers import power_of_two
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call
from amdjax.schedule.domain import Domain, region_producers
from amdjax.schedule.element import ElementBuilder, Reader
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.streaming import STREAM_FROM
from amdjax.schedule.values import El, Lanes, short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget
from amdjax.tile.types import CACHE_LINE

Machine = CpuTarget | GpuTarget

#: Bytes until what is asked for is read, of memory that is read as it lies: two pages, and not the
#: very set of the nearest cache that is being read.
PREFETCH_DISTANCE = 2 * 4096 - CACHE_LINE


class RegionWriter:
    """The kernel of a region while it is written.

    Args:
      region: what is computed.
      fusion: of the program.
      target: the machine.
      domain: the loops.
      name: of the kernel.
      elements: what writes elements.
      special: the values that the kernel holds itself; asked before memory is.
    """

    def __init__(
        self, region: Region, fusion: Fusion, target: Machine, domain: Domain, name: str = "kernel",
        elements: type[ElementBuilder] = ElementBuilder, special: Reader | None = None,
    ):  # fmt: skip
        self.region, self.fusion, self.target, self.domain = region, fusion, target, domain
        self.k = tile.Builder(name)
        self.args: list[Any] = []
        self.buffers: dict[Any, tile.Buffer] = {}
        self.b = elements(self.k, region_producers(region, fusion), self.memory, special)
        self.b.alias = domain.alias
        self.b.result = lambda v: self.output(v) if v in fusion.stored else None

    def param(self, owner: Any, dtype: str, role: str) -> tile.Buffer:
        found = self.buffers.get(owner)
        if found is None:
            name = f"{'x' if role == 'in' else 'y' if role == 'out' else 'n'}{len(self.args)}"
            found = self.buffers[owner] = self.k.param(name, dtype, role)
            self.args.append(owner)
        return found

    def memory(self, var: Var) -> tile.Buffer:
        return self.param(var, short_dtype(var.aval.dtype), "in")

    def output(self, var: Var) -> tile.Buffer:
        buffer = self.param(var, short_dtype(var.aval.dtype), "out")
        if (
            is_multiple(var.aval.nbytes, CACHE_LINE)
            and isinstance(self.target, CpuTarget)
            and not any(v is var for r in self.region.roots for v, _ in r.reads)
        ):
            self.b.streaming[buffer] = var.aval.nbytes
        return buffer

    def store_steps(self, places: Mapping[tuple[Root, Var], Sequence[tuple[Index, El]]]) -> None:
        """Write results: for each, places and elements of some steps of a loop."""
        for (root, v), steps in places.items():
            with self.k.made_from(root.eqn.origin):
                self.b.store_steps(self.output(v), steps, self.target.vectors.vector_bits)

    def with_lanes(self, lanes: Sequence[Lanes], fn: Callable[[], Any]) -> Any:
        self.b.lanes += lanes
        try:
            return fn()
        finally:
            del self.b.lanes[-len(lanes) :]

    def mask(
        self, base: tile.Value, count: int, stop: tile.Value, *, last: bool = True
    ) -> tile.Value:
        """Which of the lanes from `base` lie before `stop`; of tiles that are not the last, all."""
        left = stop - base
        remaining = self.k.convert(left if last else self.k.min(left, count), "i32")
        return self.k.iota(count, "i32") < remaining

    def lane_loop(
        self, var: LoopVar, count: int, start: tile.Value | int, stop: tile.Value | int,
        carried: Sequence[tile.Value], body: Callable[..., Sequence[tile.Value]],
        *, masked: bool = False, streamed: Sequence[Var] = (),
    ) -> Sequence[tile.Value]:  # fmt: skip
        """Loop over `range(start, stop)` in tiles of `count`; the last, unfinished one is masked.

        `body(lanes, *carried)` returns the next carried values. Of a length known at run time it
        is written twice, with masks and without; once, with masks, if `masked`, or where the length
        at hand is that of one tile. What is read of `streamed` in whole tiles is asked for ahead.
        """
        k = self.k

        def run(
            base: tile.Value, mask: tile.Value | None, values: Sequence[tile.Value]
        ) -> Sequence[tile.Value]:
            lanes = Lanes(var, count, 0, base, mask)
            return self.with_lanes([lanes], lambda: body(lanes, *values))

        if isinstance(start, int) and isinstance(stop, int):
            whole = start + (stop - start) // count * count
            if whole > start:
                carried = self._whole_tiles(start, whole, count, carried, run, streamed)
            if whole < stop:
                last = k.const("index", whole)
                carried = self.b.nested(run)(
                    last, self.mask(last, count, k.const("index", stop)), carried
                )
            return carried
        low, high = k.index(start), k.index(stop)
        is_part = isinstance(stop, tile.Value)
        whole = not is_part and is_multiple(var.extent, count)
        if not whole and (masked or (not is_part and fits(var.extent, count))):

            def some(base: tile.Value, *values: tile.Value) -> Sequence[tile.Value]:
                return run(base, self.mask(base, count, high, last=False), values)

            return k.for_(low, high, count, self.b.nested(some), carried)
        span = high - low
        end = high - (span % count)
        carried = self._whole_tiles(low, end, count, carried, run, streamed)
        if whole:
            return carried

        def tail() -> Sequence[tile.Value]:
            return self.b.nested(run)(end, self.mask(end, count, high), carried)

        return k.if_(end < high, tail, lambda: carried)

    def _whole_tiles(
        self, start: Any, stop: Any, count: int, carried: Any, run: Any, streamed: Sequence[Var]
    ) -> Any:
        if isinstance(start, int) and isinstance(stop, int) and stop - start == count:
            return self.b.nested(run)(self.k.const("index", start), None, carried)  # no loop
        body = self.b.nested(lambda base, *values: run(base, None, values))
        size = min((v.aval.dtype.itemsize for v in streamed), default=PREFETCH_DISTANCE)
        rounds = PREFETCH_DISTANCE // (count * size)
        memory = (self.buffers[v] for v in streamed if v in self.buffers)  # once it is written
        return self.k.for_(start, stop, count, body, carried, False, memory, rounds)

    def bind_outer(self, variables: Sequence[LoopVar], position: tile.Value) -> None:
        """Give scalar values to variables from their row-major position."""
        k = self.k
        for var in reversed(variables[1:]):
            n = k.const("index", var.extent)
            self.b.scalars[var] = position % n
            position = position // n
        if variables:
            self.b.scalars[variables[0]] = position

    def finish(self, grid: int, elements: int, **options: Any) -> Call:
        """The launch of what was written, with an estimate of its time from its elements."""
        per_element = 0.02 * self.domain.cost + 0.06 * len(self.args)
        kernel = self.k.finish(**options) if options else self.k.finish(grid)
        return Call(kernel, self.args, grid, elements * per_element, self.in_place_pairs())

    def in_place_pairs(self) -> list[tuple[int, int]]:
        """Inputs whose every element is read only by the program point that writes its place."""
        pairs = []
        by_var: dict[Var, list[Index]] = {}
        for v, o in self.domain.loads:
            by_var.setdefault(v, []).append(o)
        if self.region.axes is not None or self.domain.irregular:
            return []
        for out, offset in self.domain.stores:
            for v, offsets in by_var.items():
                same = v.aval.dtype.itemsize == out.aval.dtype.itemsize and same_shape(
                    v.aval.shape, out.aval.shape
                )
                if same and all(o == offset for o in offsets) and v in self.buffers:
                    pairs.append((self.args.index(v), self.args.index(out)))
        return pairs


def is_large(var: Var) -> bool:
    """Whether an array lies beyond the caches."""
    with choosing():
        return var.aval.nbytes >= STREAM_FROM


def lane_count(domain: Domain, target: Machine, extent: int, steps: int = 1) -> int:
    """Elements in a tile: four registers of the widest dtype, fewer where much is alive.

    A short loop has fewer, of a symbolic length a register's. `steps` of a loop are written out.
    """
    operations = domain.operations * steps
    registers = 4 if operations < 60 else 2 if operations < 200 else 1
    if steps > 1 and any(o.is_dynamic for _, o in domain.loads):
        registers = 1  # rows are gathered lane by lane, and all that is read of them is alive
    full = max(4, registers * target.vectors.vector_bits // max(domain.widest, 8))
    full = min(full, 128)
    if not isinstance(extent, Dim):
        return full if extent > full // 2 else power_of_two(extent)
    with choosing():
        while extent <= full // 2 and full > target.vectors.vector_bits // max(domain.widest, 8):
            full //= 2
    return full
