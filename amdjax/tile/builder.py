"""Writing kernels: a method for each operation that returns its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from amdjax.core.dims import Dim, divisor
from amdjax.core.source_info import Origin
from amdjax.tile import ops
from amdjax.tile.attributes import Side
from amdjax.tile.ir import Block, Op, Value
from amdjax.tile.kernel import Kernel
from amdjax.tile.schedule import MatrixTiling, Schedule
from amdjax.tile.types import INDEX, Buffer, Number, TileType

__all__ = ["Builder", "Places", "Visible"]

#: Elements that the widest accesses move: of what divides a size no more need be known.
ALIGN = 64

#: Of a number: the offset of that line or step, and by how much it moves each limited coordinate.
Places = Callable[[Value], Sequence[Value]]


class Visible(dict[Any, Any]):
    """What is known by key in a block; the blocks inside it see it too.

    One table for all blocks, of which the end of a block drops what came in it: keys are long to
    hash, and are looked up more often than blocks end.
    """

    def __init__(self) -> None:
        self._added: list[Any] = []

    def add(self, key: Any, value: Any) -> None:
        self[key] = value
        self._added.append(key)

    def mark(self) -> int:
        """Begin a block; `forget` takes the result."""
        return len(self._added)

    def forget(self, mark: int) -> None:
        """End the block begun by `mark`."""
        for key in self._added[mark:]:
            self.pop(key, None)
        del self._added[mark:]


#: Kinds of most attributes, and of what tuples among them have.
_PLAIN = frozenset((int, bool, str, float, type(None), Buffer, Number))


def _settle(attrs: dict[str, Any]) -> None:
    """Make integers of symbolic dimensions: attributes are part of the code, the same for all."""
    for name, value in attrs.items():
        if type(value) in _PLAIN or (type(value) is tuple and _PLAIN.issuperset(map(type, value))):
            continue
        if isinstance(value, Dim):
            attrs[name] = int(value)
        elif type(value) is tuple:
            attrs[name] = tuple(int(x) if isinstance(x, Dim) else x for x in value)


class Builder:
    """Writes a kernel. Methods return SSA values; Python ints stand for constants.

    Args:
      name: of the kernel.
      count: the highest number of a value that there is already.
    """

    def __init__(self, name: str, count: int = 0):
        self.name = name
        self.params: list[Buffer] = []
        self.scratches: list[Buffer] = []
        self.sizes: dict[Dim, Buffer] = {}  # symbolic dimensions, which launches pass as numbers
        self.schedule = Schedule()
        self.origin: Origin | None = None  # of the ops to come
        self._count = count
        self._block = Block()
        self._pure = Visible()

    @property
    def block(self) -> Block:
        """The block that is being written."""
        return self._block

    # Declarations

    def param(self, name: str, dtype: str, role: str = "in") -> Buffer:
        buffer = Buffer(name, dtype, role)
        self.params.append(buffer)
        return buffer

    def scratch(self, name: str, dtype: str, size: int) -> Buffer:
        buffer = Buffer(name, dtype, "scratch", int(size))
        self.scratches.append(buffer)
        return buffer

    def finish(self, grid: int | str, *, grid_unit: int = 1, cost: float = 0.0) -> Kernel:
        return Kernel(
            self.name, [*self.params, *self.sizes.values()], self.scratches, self._block, grid,
            grid_unit, cost, replace(self.schedule), sizes=tuple(self.sizes),
        )  # fmt: skip

    @contextmanager
    def made_from(self, origin: Origin) -> Iterator[None]:
        """Ops written meanwhile come from this operation, if from no inner one."""
        outer, self.origin = self.origin, origin
        yield
        self.origin = outer

    # Plumbing

    def value(self, type: TileType) -> Value:
        self._count += 1
        return Value(self, self._count, type)

    def emit(
        self,
        kind: type[Op],
        operands: Sequence[Value],
        types: Sequence[TileType] | None = None,
        attrs: dict[str, Any] | None = None,
        blocks: tuple[Block, ...] = (),
    ) -> tuple[Value, ...]:
        """Write an operation, whose results have the given types or those that follow."""
        if attrs:
            _settle(attrs)
        op = kind(tuple(operands), attrs or {}, (), blocks, self.origin)
        if types is None:
            types = op.result_types()
            assert types is not None
        self._block.ops.append(op)
        first, made = self._count + 1, len(types)
        self._count += made
        if made == 1:  # of most
            op.results = (Value(self, first, types[0]),)
        elif made:
            op.results = tuple([Value(self, first + i, t) for i, t in enumerate(types)])
        return op.results

    def _pure_op(
        self,
        kind: type[Op],
        operands: tuple[Value, ...],
        type: TileType | None = None,
        **attrs: Any,
    ) -> Value:
        """An operation without effects: an equal one already visible here is reused."""
        key = (kind, type, tuple([v.number for v in operands]), *attrs.items())
        found: Value | None = self._pure.get(key)
        if found is None:
            (found,) = self.emit(kind, operands, None if type is None else (type,), attrs)
            self._pure.add(key, found)
        return found

    def _body(
        self, arg_types: Sequence[TileType], fn: Callable[..., Sequence[Value] | Value | None]
    ) -> Block:
        outer, self._block = self._block, Block([self.value(t) for t in arg_types])
        mark = self._pure.mark()
        result = fn(*self._block.args)
        block, self._block = self._block, outer
        self._pure.forget(mark)
        block.yields = (
            () if result is None else (result,) if isinstance(result, Value) else tuple(result)
        )
        return block

    def written(self, fn: Callable[[], Any]) -> list[Op]:
        """The operations that `fn` writes, for a pass to put where it likes."""
        return self._body([], fn).ops

    def index(self, x: Value | int) -> Value:
        return x if isinstance(x, Value) else self.const("index", x)

    def like(self, x: Any, other: Value) -> Value:
        """`x` as a value; numbers become constants of the other's type."""
        return x if isinstance(x, Value) else self.const(other.dtype, x, other.shape)

    # Values

    def const(self, dtype: str, x: Any, shape: tuple[int, ...] = ()) -> Value:
        if isinstance(x, Dim):
            return self._dimension(x, dtype, shape)
        number = Number.of(dtype, x)
        key = (ops.Const, dtype, shape, repr(number.x))  # quicker to hash than the number
        found: Value | None = self._pure.get(key)
        if found is None:
            (found,) = self.emit(ops.Const, (), (TileType(dtype, shape),), {"value": number})
            self._pure.add(key, found)
        return found

    def _dimension(self, dim: Dim, dtype: str, shape: tuple[int, ...]) -> Value:
        """A symbolic dimension as a value: a parameter, of which launches know the number."""
        buffer = self.sizes.get(dim)
        if buffer is None:
            buffer = self.sizes[dim] = Buffer(f"size{len(self.sizes)}", "index", "size")
        size = self.size(buffer, divisor(dim, ALIGN))
        return self.broadcast(self.convert(size, dtype), shape)

    def program_id(self) -> Value:
        return self._pure_op(ops.ProgramId, ())

    def size(self, param: Buffer, divisor: int = 1) -> Value:
        """The value of a runtime integer parameter, and what divides it, whatever it is."""
        return self._pure_op(ops.Size, (), buffer=param, divisor=divisor)

    def iota(self, n: int, dtype: str = "index") -> Value:
        return self._pure_op(ops.Iota, (), TileType(dtype, (n,)))

    def op(self, name: str, *operands: Value, rounded: str = "", relaxed: bool = False) -> Value:
        """An elementwise operation by name; all operands have one shape (scalars are broadcast).

        `rounded` is for the operations in `NARROW`, see `ops.elementwise.Rounded`, `relaxed` for
        those in `RELAXED`, see `ops.elementwise.Elementwise`.
        """
        shape = operands[0].shape
        for v in operands:
            if v.shape != shape:
                shape = max([v.shape for v in operands], key=len)
                operands = tuple([self.broadcast(v, shape) for v in operands])
                break
        key = (name, rounded, relaxed, *[v.number for v in operands])
        found: Value | None = self._pure.get(key)
        if found is None:
            attrs = {"rounded": rounded} if rounded else {"relaxed": True} if relaxed else None
            (found,) = self.emit(ops.ELEMENTWISE[name], operands, None, attrs)
            self._pure.add(key, found)
        return found

    def eq(self, a: Value, b: Value | float) -> Value:
        return self.op("eq", a, self.like(b, a))

    def ne(self, a: Value, b: Value | float) -> Value:
        return self.op("ne", a, self.like(b, a))

    def min(self, a: Value, b: Value | float) -> Value:
        return self.op("min", a, self.like(b, a))

    def max(self, a: Value, b: Value | float) -> Value:
        return self.op("max", a, self.like(b, a))

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        return self.op("select", cond, a, b)

    def convert(self, x: Value, dtype: str, nsz: bool = False) -> Value:
        if x.dtype == dtype:
            return x
        attrs = {"nsz": True} if nsz else {}
        return self._pure_op(ops.Convert, (x,), TileType(dtype, x.shape), **attrs)

    def bitcast(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self._pure_op(ops.Bitcast, (x,), TileType(dtype, x.shape))

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        """Scalars to any shape; axes of length one to the given length."""
        if x.shape == shape:
            return x
        return self._pure_op(ops.Broadcast, (x,), TileType(x.dtype, shape))

    def expand(self, x: Value, axis: int) -> Value:
        """Insert an axis of length one into a rank-1 tile."""
        return self._pure_op(ops.Expand, (x,), axis=axis)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """The same elements in row-major order as a tile of another shape, of rank 1 or 2."""
        return x if x.shape == shape else self._pure_op(ops.Reshape, (x,), TileType(x.dtype, shape))

    def transpose(self, x: Value) -> Value:
        return self._pure_op(ops.Transpose, (x,))

    def reduce(self, combine: str, x: Value, axis: int = -1) -> Value:
        """Combine along an axis, which disappears."""
        return self._pure_op(ops.Reduce, (x,), combine=combine, axis=axis % len(x.shape))

    def reduce_by(
        self,
        fn: Callable[..., Sequence[Value]],
        tiles: Sequence[Value],
        neutral: Sequence[Value],
        axis: int = -1,
    ) -> tuple[Value, ...]:
        """Combine several tiles together along an axis, which disappears.

        Args:
          fn: `fn(*left, *right)`, of the elements at two places: what stands for both. Elementwise
            ops of scalars; associative and commutative.
          tiles: of one shape.
          neutral: a scalar for each of them, which together change nothing.
          axis: the axis.
        """
        block = self._body([TileType(v.dtype) for v in (*tiles, *tiles)], fn)
        attrs = {"axis": axis % len(tiles[0].shape)}
        return self.emit(ops.ReduceBy, [*tiles, *neutral], None, attrs, (block,))

    def cumulative(self, combine: str, x: Value, reverse: bool = False) -> Value:
        """Inclusive prefix combination along the last axis."""
        return self._pure_op(ops.Cumulative, (x,), combine=combine, reverse=reverse)

    def extract(self, x: Value, lane: int) -> Value:
        """One element of a rank-1 tile, or one row of a rank-2 tile."""
        return self._pure_op(ops.Extract, (x,), lane=lane)

    def shuffle(self, x: Value, lanes: Sequence[int], other: Value | None = None) -> Value:
        """A rank-1 tile whose lane `i` is lane `lanes[i]` of `x` followed by `other`."""
        operands = (x,) if other is None else (x, other)
        return self._pure_op(ops.Shuffle, operands, lanes=tuple(lanes))

    def lookup(self, table: Value, index: Value) -> Value:
        """The lanes of `table`, a power of two of them, that the low bits of `index` name."""
        return self._pure_op(ops.Lookup, (table, index))

    def interleave(self, x: Value, other: Value, axis: int = -1) -> Value:
        """Two tiles of one type in turns along an axis, which becomes twice as long."""
        return self._pure_op(ops.Interleave, (x, other), axis=axis % len(x.shape))

    def compress(self, x: Value, mask: Value) -> Value:
        """Lanes of a rank-1 tile where `mask` is true, moved to the front; others are undefined."""
        return self._pure_op(ops.Compress, (x, mask))

    # Products

    def dot(self, a: Value, b: Value, acc: Value, tiling: MatrixTiling | None = None) -> Value:
        """`acc + a @ b` for tiles (M, K), (K, N), (M, N), by the matrix unit with a `tiling`."""
        if tiling is None:
            return self._pure_op(ops.Dot, (a, b, acc))
        return self._pure_op(ops.Dot, (a, b, acc), tiling=tiling)

    def dot_words(self, types: tuple[str, str], a: Value, b: Value, acc: Value) -> Value:
        """`acc` plus the dot products of what 32-bit lanes hold; see `ops.DotWords`."""
        return self._pure_op(ops.DotWords, (a, b, acc), types=types)

    def contract(
        self,
        tiling: MatrixTiling,
        result: TileType,
        sides: tuple[Side, Side],
        lines: tuple[Places, Places],
        depth: tuple[Places, Places],
        origins: Sequence[tuple[Value | int, Value | int]],
        start: Value | int,
        stop: Value | int,
        ragged: bool,
        limits: Sequence[Value] = (),
        next_tile: Sequence[Value] = (),
    ) -> Value:
        """`Σ a[i, k] b[k, j]` for `k` in `range(start, stop)`: a loop over tiles in memory.

        For GPUs; the loop is theirs, with what it takes to keep a matrix unit busy. The result is
        a tile that only `collect` can use.

        Args:
          tiling: how the work is divided.
          result: type of the tile that is computed.
          sides: how `a` and `b` lie in memory.
          lines: places of rows of `a` and columns of `b`, counted from the tile's first.
          depth: places of steps in depth of `a` and `b`.
          origins: for each operand an offset of all elements, and the last line that exists.
          start: first step in depth.
          stop: the end of the depth; a multiple of the tiling's from `start` unless `ragged`.
          ragged: the last tile reaches past `stop`.
          limits: those of the sides that are told, in order.
          next_tile: what is known of the next round; see `ops.Contract`.
        """
        blocks = tuple(self._body([INDEX], fn) for fn in (*lines, *depth))
        known = (start, stop, *origins[0], *origins[1], *limits, *next_tile)
        operands = [self.index(x) for x in known]
        attrs = {"sides": sides, "tiling": tiling, "ragged": ragged, "prefetch": bool(next_tile)}
        (v,) = self.emit(ops.Contract, operands, [result], attrs, blocks)
        return v

    def collect(
        self, sums: Value, slices: int, columns: int = 0, column: int = 0, dtype: str = ""
    ) -> Iterator[Value]:
        """The result of `contract` in slices, one below the other.

        A slice leaves the matrix unit where it is asked for; what is computed of it is best
        stored before the next.

        Args:
          sums: the result, which is collected once.
          slices: as many, of at least a vector of every thread.
          columns: of a slice; all if 0.
          column: the first.
          dtype: to which sums are rounded; theirs if empty.
        """
        part = TileType(dtype or sums.dtype, (sums.shape[0] // slices, columns or sums.shape[1]))
        for _ in range(slices):
            yield self.emit(ops.Collect, [sums], [part], {"column": column})[0]

    def scratch_product(
        self,
        a: Buffer,
        b: Buffer,
        offset: Value | int,
        shape: tuple[int, int],
        pitches: tuple[int, int],
        depth: int,
        lanes: tuple[int, int, int],
        groups: int = 1,
    ) -> list[Value]:
        """`Σ a[i, k] b[j, offset + k]` for `k` in `range(depth)`; see `ops.ScratchProduct`.

        `shape` is of one of `groups` tiles, which lie side by side.
        """
        attrs = {"a": a, "b": b, "pitches": pitches, "depth": depth, "lanes": lanes}
        types = [TileType(a.dtype, shape)] * groups
        return list(self.emit(ops.ScratchProduct, [self.index(offset)], types, attrs))

    def resident_product(
        self,
        a: Buffer,
        b: Buffer,
        place: tuple[Value | int, Value | int],
        shape: tuple[int, int],
        pitches: tuple[int, int],
        depth: int,
        tiling: MatrixTiling,
        groups: int = 1,
    ) -> list[Value]:
        """`Σ a[i, k] b[j, k]` for `k` in `range(depth)`; see `ops.ResidentProduct`.

        `shape` is of one of `groups` tiles, which lie side by side; `place` is where the first line
        of `a` begins and the number of the last one from there.
        """
        attrs = {"a": a, "b": b, "pitches": pitches, "depth": depth, "tiling": tiling}
        types = [TileType("f32", shape)] * groups
        return list(self.emit(ops.ResidentProduct, [self.index(x) for x in place], types, attrs))

    def amx_product(
        self,
        types: tuple[str, str],
        a: tuple[Buffer, Value, int],
        b: tuple[Buffer, Value],
        c: tuple[Buffer, Value],
        tile: tuple[int, int],
        steps: Value,
        fresh: Value,
    ) -> None:
        """`c += a @ b` on the matrix unit of a CPU, in memory; from zero if `fresh`.

        Args:
          types: of the elements of `a` and `b`, which the buffers hold as bits.
          a: buffer, offset and elements from one row to the next; rows are 64 bytes a step.
          b: buffer and offset; a step is 16 rows of 32-bit words, each of which holds neighbors
            in depth of one column.
          c: buffer and offset of the sums, row by row.
          tile: rows and columns of the result, each 16 or 32.
          steps: the depth, in units of 64 bytes of a row of `a`.
          fresh: whether sums start here.
        """
        attrs = {
            "types": types,
            "a": a[0],
            "b": b[0],
            "c": c[0],
            "line": a[2],
            "tile": tile,
        }
        self.emit(ops.AmxProduct, [a[1], b[1], c[1], steps, fresh], None, attrs)

    # Memory

    def load(
        self,
        buffer: Buffer,
        offset: Value | int,
        shape: tuple[int, ...] = (),
        strides: Sequence[Value | int] | None = None,
        mask: Value | None = None,
        other: Any = 0,
        dtype: str | None = None,
        eager: bool = False,
    ) -> Value:
        """Elements `offset + Σ i_axis * strides[axis]`; where `mask` is false, `other`.

        `dtype` reads the memory as another type of the same width. `eager` lets the first elements
        of the buffer be read where the mask is false, rather than branch: there must be as many as
        move at once.
        """
        dynamic, static = self._strides(strides, shape)
        operands = [self.index(offset), *dynamic] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "strides": static, "masked": mask is not None, "other": other}
        attrs["eager"] = eager
        (v,) = self.emit(ops.Load, operands, [TileType(dtype or buffer.dtype, shape)], attrs)
        return v

    def store(
        self,
        buffer: Buffer,
        offset: Value | int,
        value: Value,
        strides: Sequence[Value | int] | None = None,
        mask: Value | None = None,
        streaming: bool | Value = False,
    ) -> None:
        """Write a tile; `streaming` writes past the caches, from a cache line on."""
        if isinstance(streaming, Value):
            write = partial(self.store, buffer, offset, value, strides, mask)
            self.if_(streaming, partial(write, True), partial(write, False))
            return
        dynamic, static = self._strides(strides, value.shape)
        operands = [self.index(offset), value, *dynamic] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "strides": static, "masked": mask is not None}
        attrs["streaming"] = streaming
        self.emit(ops.Store, operands, (), attrs)

    def load_at(
        self, buffer: Buffer, offsets: Value, mask: Value | None = None, other: Any = 0
    ) -> Value:
        """Gather: each element from its own offset."""
        operands = [offsets] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "masked": mask is not None, "other": other}
        return self.emit(ops.LoadAt, operands, None, attrs)[0]

    def store_at(
        self,
        buffer: Buffer,
        offsets: Value,
        value: Value,
        mask: Value | None = None,
        unique: bool = False,
    ) -> None:
        """Scatter: where offsets coincide the last element of the tile wins.

        `unique` says that none do, which spares a GPU to find out.
        """
        operands = [offsets, value] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "masked": mask is not None, "unique": unique}
        self.emit(ops.StoreAt, operands, (), attrs)

    def atomic(
        self, combine: str, buffer: Buffer, offset: Value, value: Value, mask: Value | None = None
    ) -> Value:
        """Atomically combine a scalar, or each element of a tile, into memory.

        Returns what was there, as far as `mask` is true.
        """
        operands = [offset, value] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "combine": combine, "masked": mask is not None}
        return self.emit(ops.Atomic, operands, None, attrs)[0]

    def arrive(self, counter: Buffer, offset: Value | int, programs: int) -> Value:
        """Whether this program is the last of `programs` to get here, by a counter that they share.

        What the others stored before they arrived is visible to the last one behind this. No
        program waits; which one is last differs from run to run.

        Args:
          counter: `u32` in memory that all see; zero before the first of them arrives, and zero
            again behind the last.
          offset: of the counter.
          programs: how many arrive, each once.

        Returns:
          A `bool`.
        """
        attrs = {"buffer": counter, "programs": programs}
        return self.emit(ops.Arrive, [self.index(offset)], None, attrs)[0]

    def program_barrier(self) -> None:
        """Threads of the program wait for each other; see `ops.ProgramBarrier`."""
        self.emit(ops.ProgramBarrier, (), ())

    def grid_barrier(
        self, counter: Buffer, offset: Value | int, number: Value | int, programs: Value,
        times: Value | int,
    ) -> None:  # fmt: skip
        """All programs wait for each other, which takes a grid that is resident as a whole.

        Args:
          counter: `u32` in memory that all see; zero before the first barrier and behind the last.
          offset: of the counter.
          number: of this barrier in the launch, from 0.
          programs: how many there are.
          times: how many barriers the launch has.
        """
        operands = [self.index(offset), self.index(number), programs, self.index(times)]
        self.emit(ops.GridBarrier, operands, (), {"buffer": counter})

    def prefetch(self, buffer: Buffer, offset: Value, write: bool = False, level: int = 1) -> None:
        """Ask for the cache line of an element, to be in the cache of `level` when it is needed."""
        self.emit(ops.Prefetch, [offset], (), {"buffer": buffer, "write": write, "level": level})

    def _strides(
        self, strides: Sequence[Value | int] | None, shape: tuple[int, ...]
    ) -> tuple[list[Value], tuple[int | None, ...]]:
        """Split strides into runtime values and static ones (None marks a runtime stride)."""
        if strides is None:
            strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        static = tuple(s if isinstance(s, int) else None for s in strides)
        return [self.index(s) for s in strides if not isinstance(s, int)], static

    # Control flow

    def for_(
        self,
        start: Value | int,
        stop: Value | int,
        step: Value | int,
        fn: Callable[..., Any],
        init: Iterable[Value] = (),
        users: bool = False,
        prefetch: Iterable[Buffer] = (),
        prefetch_distance: int = 0,
    ) -> tuple[Value, ...]:
        """`for i in range(start, stop, step): carried = fn(i, *carried)`; see `ops.For`.

        `prefetch` is not looked at before the body is written.
        """
        init = tuple(init)
        block = self._body([INDEX, *(v.type for v in init)], fn)
        operands = (self.index(start), self.index(stop), self.index(step), *init)
        attrs = {
            "users": users,
            "prefetch": tuple(prefetch),
            "prefetch_distance": prefetch_distance,
        }
        return self.emit(ops.For, operands, None, attrs, (block,))

    def while_(
        self,
        cond: Callable[..., Value],
        fn: Callable[..., Any],
        init: Iterable[Value],
        users: bool = False,
    ) -> tuple[Value, ...]:
        init = tuple(init)
        types = [v.type for v in init]
        blocks = self._body(types, cond), self._body(types, fn)
        return self.emit(ops.While, init, None, {"users": users}, blocks)

    def if_(
        self, cond: Value, then: Callable[[], Any], other: Callable[[], Any] = lambda: None
    ) -> tuple[Value, ...]:
        """Branch on a scalar; both arms return values of the same types."""
        yes, no = self._body([], then), self._body([], other)
        return self.emit(ops.If, (cond,), None, None, (yes, no))

    def shift(
        self,
        moved: Sequence[Buffer],
        offsets: Sequence[Value],
        vector: int,
        fn: Callable[[], None],
    ) -> None:
        """A block in which buffers begin so many bytes later; see `ops.Shift`."""
        attrs = {"moved": tuple(moved), "vector": vector}
        self.emit(ops.Shift, offsets, (), attrs, (self._body([], fn),))

    def once(self, fn: Callable[[], None]) -> None:
        """A block that fills scratch with the same in every launch; see `ops.Once`."""
        self.emit(ops.Once, (), (), {}, (self._body([], fn),))
