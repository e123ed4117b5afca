"""The tile language: small typed SSA programs over blocks.

A kernel is a program for one point of its grid. Its values are tiles: blocks of rank 0, 1 or 2 with
a static shape. On a CPU a tile becomes vector registers, on a GPU it is spread over a workgroup; a
kernel says neither. Memory is reached through parameters (flat buffers of one dtype) and an offset
plus a stride for each axis of the tile. Control flow is structured: `for`, `while`, `if`.

`Builder` writes kernels; `str(kernel)` prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core.dtypes import dtype_from_short_name
from amdjax.core.source_info import Origin

if TYPE_CHECKING:
    from amdjax.codegen.gpu.matrix import Tiling

FLOATS = ("f16", "bf16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64", "index")
UNSIGNED = ("u8", "u16", "u32", "u64")

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

#: Ops with a shorter form for results of 16 bits, see `Builder.op`.
NARROW = frozenset({
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "sinh", "cosh", "tanh", "tan",
    "atan", "rsqrt", "erf", "erfc",
})  # fmt: skip


def itemsize(dtype: str) -> int:
    """Bytes in memory of an element of a short dtype (`f32`, `bool`, `c64`, …) or of an index."""
    if dtype == "index":
        return 8
    return 1 if dtype == "bool" else dtype_from_short_name(dtype).itemsize


@dataclass(frozen=True, slots=True)
class TileType:
    """Element dtype (a short name such as `f32`, or `index`) and block shape."""

    dtype: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.shape else self.dtype


class Value:
    """One SSA value. Arithmetic operators write instructions into the kernel being built."""

    __slots__ = ("builder", "number", "type")

    def __init__(self, builder: Builder, number: int, type: TileType):
        self.builder, self.number, self.type = builder, number, type

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __repr__(self) -> str:
        return f"%{self.number}"

    def _binary(name: str, swap: bool = False) -> Callable[[Value, Any], Value]:  # type: ignore[misc]
        def method(self: Value, other: Any) -> Value:
            other = self.builder.like(other, self)
            return (
                self.builder.op(name, other, self) if swap else self.builder.op(name, self, other)
            )

        return method

    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", True)
    __floordiv__, __mod__ = _binary("div"), _binary("rem")
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", True)
    __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")
    __lshift__, __rshift__ = _binary("shl"), _binary("shr_logical")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")

    def __neg__(self) -> Value:
        return self.builder.op("neg", self)


@dataclass(slots=True)
class Op:
    """One instruction; control flow holds its bodies in `blocks`.

    `origin` is for people: it is not printed, and programs that differ in it are equal.
    """

    name: str
    operands: tuple[Value, ...]
    attrs: dict[str, Any]
    results: tuple[Value, ...]
    blocks: tuple[Block, ...] = ()
    origin: Origin | None = field(default=None, compare=False)


@dataclass(slots=True)
class Block:
    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    yields: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a kernel sees: a parameter, or scratch private to one program of the grid.

    Args:
      role: `in`, `out`, `inout`, `scratch`, or `size` for a runtime integer.
      size: number of elements, for scratch only.
    """

    name: str
    dtype: str
    role: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """An operand of `Builder.contract` as it lies in memory.

    Args:
      buffer: where it is.
      along: whether neighbours in memory are steps in `depth` or `lines` (rows of the left operand,
        columns of the right one).
      vector: how many, in aligned groups, lie side by side; a group lies inside or outside of all
        limits as a whole.
      run: elements from one step in depth to the next, if tiles of the product's depth are such
        runs; the place of a tile is then that of its first step.
      limits: extents of the coordinates that lines and depth move; zero is read outside.
      moves: by how much a step of a run moves each of them.
    """

    buffer: Buffer
    along: str
    vector: int = 1
    run: int | None = None
    limits: tuple[int, ...] = ()
    moves: tuple[int, ...] = ()

    def __str__(self) -> str:
        run = "" if self.run is None else f" run={self.run}"
        limits = f" limits={self.limits}" if self.limits else ""
        limits += f" moves={self.moves}" if any(self.moves) else ""
        return f"({self.buffer.name} {self.along}×{self.vector}{run}{limits})"


#: Of a number: the offset of that line or step, and by how much it moves each limited coordinate.
Places = Callable[[Value], Sequence[Value]]


@dataclass(slots=True)
class Kernel:
    """A finished tile program.

    Args:
      grid: number of programs; an int, or the name of a `size` parameter it is computed from as
        `ceil(size / grid_unit)`.
      cost: estimated nanoseconds of one core for one program, to decide about threads.
      workgroup: GPU threads of a program; 0 for one wave.
      vector: neighbouring elements of a tile that a GPU thread holds side by side.
      index_bits: width of an `index` on a GPU; 32 where every buffer is smaller than 2 GiB.
      align: bytes of which the addresses of all parameters are multiples.
    """

    name: str
    params: list[Buffer]
    scratch: list[Buffer]
    body: Block
    grid: int | str
    grid_unit: int = 1
    cost: float = 0.0
    workgroup: int = 0
    vector: int = 1
    index_bits: int = 64
    align: int = 16

    def __str__(self) -> str:
        return print_kernel(self)


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


class Builder:
    """Writes a kernel. Methods return SSA values; Python ints stand for constants."""

    def __init__(self, name: str):
        self.name = name
        self.params: list[Buffer] = []
        self.scratches: list[Buffer] = []
        self.workgroup, self.vector = 0, 1  # see `Kernel`
        self.origin: Origin | None = None  # of the ops to come
        self._count = 0
        self._block = Block()
        self._pure = Visible()

    # Declarations

    def param(self, name: str, dtype: str, role: str = "in") -> Buffer:
        buffer = Buffer(name, dtype, role)
        self.params.append(buffer)
        return buffer

    def scratch(self, name: str, dtype: str, size: int) -> Buffer:
        buffer = Buffer(name, dtype, "scratch", size)
        self.scratches.append(buffer)
        return buffer

    def finish(self, grid: int | str, *, grid_unit: int = 1, cost: float = 0.0) -> Kernel:
        return Kernel(
            self.name, self.params, self.scratches, self._block, grid, grid_unit, cost,
            self.workgroup, self.vector,
        )  # fmt: skip

    @contextmanager
    def made_from(self, origin: Origin) -> Iterator[None]:
        """Ops written meanwhile come from this operation, if from no inner one."""
        around, self.origin = self.origin, origin
        yield
        self.origin = around

    # Plumbing

    def value(self, type: TileType) -> Value:
        self._count += 1
        return Value(self, self._count, type)

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[TileType],
        attrs: dict[str, Any] | None = None,
        blocks: tuple[Block, ...] = (),
    ) -> tuple[Value, ...]:
        results = tuple([self.value(t) for t in types])
        op = Op(name, tuple(operands), attrs or {}, results, blocks, self.origin)
        self._block.ops.append(op)
        return results

    def _pure_op(
        self, name: str, operands: tuple[Value, ...], type: TileType, **attrs: Any
    ) -> Value:
        """An instruction without effects: an equal one already visible here is reused."""
        key = (name, type.dtype, type.shape, tuple([v.number for v in operands]), *attrs.items())
        found = self._pure.get(key)
        if found is None:
            found = self.value(type)
            self._block.ops.append(Op(name, operands, attrs, (found,), (), self.origin))
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

    def index(self, x: Value | int) -> Value:
        return x if isinstance(x, Value) else self.const("index", x)

    def like(self, x: Any, other: Value) -> Value:
        """`x` as a value; numbers become constants of the other's type."""
        return x if isinstance(x, Value) else self.const(other.dtype, x, other.shape)

    # Values

    def const(self, dtype: str, x: Any, shape: tuple[int, ...] = ()) -> Value:
        x = float(x) if dtype in FLOATS else bool(x) if dtype == "bool" else int(x)
        # repr distinguishes -0.0 from 0.0 and nan from nan in the table of known values.
        return self._pure_op("const", (), TileType(dtype, shape), value=ConstantKey(x))

    def program_id(self) -> Value:
        return self._pure_op("program_id", (), TileType("index"))

    def size(self, param: Buffer) -> Value:
        """The value of a runtime integer parameter."""
        return self._pure_op("size", (), TileType("index"), buffer=param)

    def iota(self, n: int, dtype: str = "index") -> Value:
        return self._pure_op("iota", (), TileType(dtype, (n,)))

    def op(self, name: str, *operands: Value, rounded: str = "") -> Value:
        """An elementwise tile op; all operands have one shape (scalars are broadcast).

        `rounded`, which the ops in `NARROW` have, says that the result counts as an element of
        `f16` or `bf16` although its type has more bits: as many as those need suffice.
        """
        shape = operands[0].type.shape
        if any([v.type.shape != shape for v in operands]):
            shape = max([v.type.shape for v in operands], key=len)
            operands = tuple([self.broadcast(v, shape) for v in operands])
        first = operands[1] if name == "select" else operands[0]
        dtype = "bool" if name in COMPARISONS or name == "is_finite" else first.dtype
        attrs = {"rounded": rounded} if rounded else {}
        return self._pure_op(name, operands, TileType(dtype, shape), **attrs)

    def integer_pow(self, x: Value, n: int) -> Value:
        return self._pure_op("integer_pow", (x,), x.type, n=n)

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        return self.op("select", cond, a, b)

    def convert(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self._pure_op("convert", (x,), TileType(dtype, x.shape))

    def bitcast(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self._pure_op("bitcast", (x,), TileType(dtype, x.shape))

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        """Scalars to any shape; axes of length one to the given length."""
        if x.shape == shape:
            return x
        return self._pure_op("broadcast", (x,), TileType(x.dtype, shape))

    def expand(self, x: Value, axis: int) -> Value:
        """Insert an axis of length one into a rank-1 tile."""
        shape = (1, *x.shape) if axis == 0 else (*x.shape, 1)
        return self._pure_op("expand", (x,), TileType(x.dtype, shape), axis=axis)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """The same elements in row-major order as a tile of another shape, of rank 1 or 2."""
        return x if x.shape == shape else self._pure_op("reshape", (x,), TileType(x.dtype, shape))

    def transpose(self, x: Value) -> Value:
        return self._pure_op("transpose", (x,), TileType(x.dtype, x.shape[::-1]))

    def reduce(self, combine: str, x: Value, axis: int = -1) -> Value:
        """Combine along an axis, which disappears."""
        axis %= len(x.shape)
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        return self._pure_op("reduce", (x,), TileType(x.dtype, shape), combine=combine, axis=axis)

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
        axis %= len(tiles[0].shape)
        shape = tiles[0].shape[:axis] + tiles[0].shape[axis + 1 :]
        block = self._body([TileType(v.dtype) for v in (*tiles, *tiles)], fn)
        types = [TileType(v.dtype, shape) for v in tiles]
        return self.emit("reduce_by", [*tiles, *neutral], types, {"axis": axis}, (block,))

    def cumulative(self, combine: str, x: Value, reverse: bool = False) -> Value:
        """Inclusive prefix combination along the last axis."""
        return self._pure_op("cumulative", (x,), x.type, combine=combine, reverse=reverse)

    def extract(self, x: Value, lane: int) -> Value:
        """One element of a rank-1 tile, or one row of a rank-2 tile."""
        return self._pure_op("extract", (x,), TileType(x.dtype, x.shape[1:]), lane=lane)

    def shuffle(self, x: Value, lanes: Sequence[int], other: Value | None = None) -> Value:
        """A rank-1 tile whose lane `i` is lane `lanes[i]` of `x` followed by `other`."""
        operands = (x,) if other is None else (x, other)
        return self._pure_op(
            "shuffle", operands, TileType(x.dtype, (len(lanes),)), lanes=tuple(lanes)
        )

    def compress(self, x: Value, mask: Value) -> Value:
        """Lanes of a rank-1 tile where `mask` is true, moved to the front; others are undefined."""
        return self._pure_op("compress", (x, mask), x.type)

    def dot(self, a: Value, b: Value, acc: Value) -> Value:
        """`acc + a @ b` for tiles (M, K), (K, N), (M, N)."""
        return self._pure_op("dot", (a, b, acc), acc.type)

    def dot4(self, a: Value, b: Value, acc: Value) -> Value:
        """`acc` plus the dot products of four bytes in 32-bit lanes: `a` unsigned, `b` signed."""
        return self._pure_op("dot4", (a, b, acc), acc.type)

    def contract(
        self,
        tiling: Tiling,
        dtype: str,
        sides: tuple[Side, Side],
        lines: tuple[Places, Places],
        depth: tuple[Places, Places],
        origins: Sequence[tuple[Value | int, Value | int]],
        start: Value | int,
        stop: Value | int,
        ragged: bool,
    ) -> Value:
        """`Σ a[i, k] b[k, j]` for `k` in `range(start, stop)`: a loop over tiles in memory.

        For GPUs; the loop is theirs, with what it takes to keep a matrix unit busy. The result is
        a tile that only `collect` can use.

        Args:
          tiling: how the workgroup divides the work; gives the shape of the result.
          dtype: of the result.
          sides: how `a` and `b` lie in memory.
          lines: places of rows of `a` and columns of `b`, counted from the tile's first.
          depth: places of steps in depth in `a` and `b`.
          origins: for each operand an offset of all elements, and the last line that exists.
          start: first step in depth.
          stop: the end of the depth; a multiple of the tiling's from `start` unless `ragged`.
          ragged: the last tile reaches past `stop`.
        """
        number = [TileType("index")]
        blocks = tuple(self._body(number, fn) for fn in (*lines, *depth))
        operands = [self.index(x) for x in (start, stop, *origins[0], *origins[1])]
        attrs = {"sides": sides, "tiling": tiling, "ragged": ragged}
        result = TileType(dtype, (tiling.rows, tiling.columns))
        (v,) = self.emit("contract", operands, [result], attrs, blocks)
        return v

    def collect(self, sums: Value, slices: int) -> Iterator[Value]:
        """The result of `contract` in slices, one below the other.

        A slice leaves the matrix unit where it is asked for; what is computed of it is best
        stored before the next.

        Args:
          sums: the result, which is collected once.
          slices: as many, of at least a vector of every thread.
        """
        rows, columns = sums.shape
        for _ in range(slices):
            yield self.emit("collect", [sums], [TileType(sums.dtype, (rows // slices, columns))])[0]

    def unit_product(
        self,
        types: tuple[str, str],
        a: tuple[Buffer, Value, int],
        b: tuple[Buffer, Value],
        c: tuple[Buffer, Value],
        units: tuple[int, int],
        steps: Value,
        fresh: Value,
    ) -> None:
        """`c += a @ b` on the matrix unit of a CPU, in memory; from zero if `fresh`.

        Args:
          types: of the elements of `a` and `b`, which the buffers hold as bits.
          a: buffer, offset and elements from one row to the next; rows are 64 bytes a step.
          b: buffer and offset; a step is 16 rows of 32-bit words, each of which holds neighbours
            in depth of one column.
          c: buffer and offset of the sums, row by row.
          units: rows and columns of the result, in units of 16.
          steps: the depth, in units of 64 bytes of a row of `a`.
          fresh: whether sums start here.
        """
        attrs = {"types": types, "a": a[0], "b": b[0], "c": c[0], "line": a[2], "units": units}
        self.emit("unit_product", [a[1], b[1], c[1], steps, fresh], [], attrs)

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

        `dtype` reads the memory as another type of the same width. `eager` lets a GPU read the
        first elements of the buffer where the mask is false, rather than branch: there must be as
        many as a thread holds side by side.
        """
        dynamic, static = self._strides(strides, shape)
        operands = [self.index(offset), *dynamic] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "strides": static, "masked": mask is not None, "other": other}
        attrs["eager"] = eager
        (v,) = self.emit("load", operands, [TileType(dtype or buffer.dtype, shape)], attrs)
        return v

    def store(
        self,
        buffer: Buffer,
        offset: Value | int,
        value: Value,
        strides: Sequence[Value | int] | None = None,
        mask: Value | None = None,
        streaming: bool = False,
    ) -> None:
        """Write a tile; `streaming` writes past the caches, from a cache line on."""
        dynamic, static = self._strides(strides, value.shape)
        operands = [self.index(offset), value, *dynamic] + ([mask] if mask is not None else [])
        attrs = {
            "buffer": buffer,
            "strides": static,
            "masked": mask is not None,
            "streaming": streaming,
        }
        self.emit("store", operands, [], attrs)

    def load_at(
        self, buffer: Buffer, offsets: Value, mask: Value | None = None, other: Any = 0
    ) -> Value:
        """Gather: each element from its own offset."""
        operands = [offsets] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "masked": mask is not None, "other": other}
        (v,) = self.emit("load_at", operands, [TileType(buffer.dtype, offsets.shape)], attrs)
        return v

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
        self.emit("store_at", operands, [], attrs)

    def atomic(
        self, combine: str, buffer: Buffer, offset: Value, value: Value, mask: Value | None = None
    ) -> Value:
        """Atomically combine a scalar, or each element of a tile, into memory.

        Returns what was there, as far as `mask` is true.
        """
        operands = [offset, value] + ([mask] if mask is not None else [])
        attrs = {"buffer": buffer, "combine": combine, "masked": mask is not None}
        (v,) = self.emit("atomic", operands, [value.type], attrs)
        return v

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
        (v,) = self.emit("arrive", [self.index(offset)], [TileType("bool")], attrs)
        return v

    def prefetch(self, buffer: Buffer, offset: Value, write: bool = False, level: int = 1) -> None:
        """Ask for the cache line of an element, to be in the cache of `level` when it is needed."""
        self.emit("prefetch", [offset], [], {"buffer": buffer, "write": write, "level": level})

    def _strides(
        self, strides: Sequence[Value | int] | None, shape: tuple[int, ...]
    ) -> tuple[list[Value], tuple[int | None, ...]]:
        """Split strides into runtime values and static ones (None marks a runtime stride)."""
        if strides is None:
            strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        static = tuple(s if isinstance(s, int) else None for s in strides)
        return [s for s in strides if isinstance(s, Value)], static

    # Control flow

    def for_(
        self,
        start: Value | int,
        stop: Value | int,
        step: Value | int,
        fn: Callable[..., Any],
        init: Iterable[Value] = (),
    ) -> tuple[Value, ...]:
        """`for i in range(start, stop, step): carried = fn(i, *carried)`."""
        init = tuple(init)
        block = self._body([TileType("index"), *(v.type for v in init)], fn)
        operands = (self.index(start), self.index(stop), self.index(step), *init)
        return self.emit("for", operands, [v.type for v in init], blocks=(block,))

    def while_(
        self, cond: Callable[..., Value], fn: Callable[..., Any], init: Iterable[Value]
    ) -> tuple[Value, ...]:
        init = tuple(init)
        types = [v.type for v in init]
        return self.emit(
            "while", init, types, blocks=(self._body(types, cond), self._body(types, fn))
        )

    def if_(
        self, cond: Value, then: Callable[[], Any], other: Callable[[], Any] = lambda: None
    ) -> tuple[Value, ...]:
        """Branch on a scalar; both arms return values of the same types."""
        yes, no = self._body([], then), self._body([], other)
        return self.emit("if", (cond,), [v.type for v in yes.yields], blocks=(yes, no))


class ConstantKey:
    """A number compared by bits, so that tables tell -0.0 from 0.0 and find NaN again."""

    __slots__ = ("x",)

    def __init__(self, x: float | int | bool):
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantKey) and repr(self.x) == repr(other.x)

    def __hash__(self) -> int:
        return hash(repr(self.x))

    def __repr__(self) -> str:
        return repr(self.x)


# Printing


def print_kernel(kernel: Kernel) -> str:
    """The kernel as text; values are renumbered so that equal kernels print equal."""
    return listing(kernel)[0]


def listing(kernel: Kernel) -> tuple[str, dict[int, int]]:
    """The kernel as text, and the line of each op, from 1, by the `id` of the op."""
    names: dict[int, str] = {}

    def name(v: Value) -> str:
        return names.setdefault(v.number, f"%{len(names)}")

    def attrs(op: Op) -> str:
        shown = []
        for key, x in op.attrs.items():
            if isinstance(x, Buffer):
                shown.append(x.name)
            elif key == "strides":
                shown.append("strides=(" + ",".join("?" if s is None else str(s) for s in x) + ")")
            elif key == "sides":
                shown += map(str, x)
            elif x is not False and not (key == "other" and not op.attrs.get("masked")):
                shown.append(str(x) if key == "value" else f"{key}={x}")
        return " ".join(shown)

    def block(b: Block, indent: str) -> None:
        for op in b.ops:
            places[id(op)] = len(lines) + 1
            operands = ", ".join(name(v) for v in op.operands)
            head = " ".join(x for x in (op.name, attrs(op), operands) if x)
            if op.results:
                head = ", ".join(f"{name(v)}: {v.type}" for v in op.results) + " = " + head
            for i, inner in enumerate(op.blocks):
                args = ", ".join(f"{name(a)}: {a.type}" for a in inner.args)
                head += (
                    (f" ({args}) {{" if args else " {")
                    if i == 0
                    else (f" }} ({args}) {{" if args else " } {")
                )
                lines.append(indent + head)
                block(inner, indent + "  ")
                if inner.yields:
                    lines.append(indent + "  yield " + ", ".join(name(v) for v in inner.yields))
                head = ""
            lines.append(indent + ("}" if op.blocks else head))

    params = ", ".join(f"{p.name}: {p.role} {p.dtype}" for p in kernel.params)
    grid = (
        kernel.grid if isinstance(kernel.grid, int) else f"ceil({kernel.grid}/{kernel.grid_unit})"
    )
    layout = {"workgroup": (kernel.workgroup, 0), "vector": (kernel.vector, 1)}
    layout["index_bits"], layout["align"] = (kernel.index_bits, 64), (kernel.align, 16)
    shown = "".join(f" {key}={x}" for key, (x, usual) in layout.items() if x != usual)
    lines = [f"kernel {kernel.name}({params}) grid={grid}{shown} {{"]
    lines += [f"  {s.name}: scratch {s.dtype}[{s.size}]" for s in kernel.scratch]
    places: dict[int, int] = {}
    block(kernel.body, "  ")
    return "\n".join([*lines, "}"]), places


def origins(kernel: Kernel, lines: Mapping[int, int]) -> dict[int, Origin]:
    """What the lines of a kernel's text were made from, as far as that is known.

    Args:
      kernel: the program.
      lines: of its ops, from `listing`.
    """
    found = {lines[id(op)]: op.origin for op in _ops(kernel.body)}
    return {line: origin for line, origin in found.items() if origin is not None}


def _ops(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from _ops(inner)
