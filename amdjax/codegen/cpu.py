"""Tile programs as LLVM IR for CPUs.

A tile of rank 1 is one LLVM vector, which LLVM spreads over as many registers as it takes; a tile
of rank 2 is a list of such rows. A kernel becomes
`void name(ptr args, i64 begin, i64 end, i64 worker)`:
`args` points to one word a parameter (an address, or the number itself for a `size`), and the
programs `begin..end` of the grid run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax import tile
from amdjax.codegen import cpu_amx, llvm
from amdjax.codegen.cpu_combinations import CpuCombinations, Rep, llvm_type
from amdjax.codegen.emitter import arrival, atomic_operation, lowers
from amdjax.codegen.engine import host
from amdjax.codegen.llvm import I64, PTR, Module, Type, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES, lower_convert, lower_pointwise
from amdjax.codegen.transpose import transpose_rows
from amdjax.tile import ops, passes
from amdjax.tile.passes import mark_positional_comparisons

KERNEL_ATTRIBUTES = (
    'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "no-trapping-math"="true"'
)

CACHE_LINE = 64
#: Bytes of scratch, which lies on the stack: threads have 8 MiB of it.
SCRATCH_LIMIT = 6 << 20
#: What is found out of a kernel before it is written.
PASSES = (mark_positional_comparisons,)


def emit_kernel(module: Module, kernel: tile.Kernel, name: str | None = None) -> None:
    """Write the function of one kernel into `module`."""
    CpuKernel(module, passes.run(kernel, PASSES), name or kernel.name).write()


def _row_of(mask: Rep | None, r: int) -> Value | None:
    return mask[r] if isinstance(mask, list) else mask


class CpuKernel(CpuCombinations):
    """Writes one kernel."""

    def __init__(self, module: Module, kernel: tile.Kernel, name: str):
        arguments = [("args", PTR), ("begin", I64), ("end", I64), ("worker", I64)]
        super().__init__(module.function(name, arguments, attributes=KERNEL_ATTRIBUTES))
        self.kernel = kernel
        self.streams: str | None = None  # metadata that marks streaming stores, once there are any
        self.addresses: dict[str, Value] = {}

    def write(self) -> None:
        f = self.f
        args, begin, end, self.worker = f.args
        for i, p in enumerate(self.kernel.params):
            slot = f.gep(args, i, I64)
            self.addresses[p.name] = f.load(I64 if p.role == "size" else PTR, slot, 8)
        wanted = sum(s.size * tile.itemsize(s.dtype) for s in self.kernel.scratch)
        if wanted > SCRATCH_LIMIT:
            raise ValueError(
                f"kernel {self.kernel.name}: {wanted} bytes of scratch; the stack of a thread has "
                f"room for {SCRATCH_LIMIT}"
            )
        for s in self.kernel.scratch:
            self.addresses[s.name] = f.alloca(Type(memory_element(s.dtype)), s.size)

        def program(pid: Value, _: list[Value]) -> list[Value]:
            self.pid = pid
            self.block(self.kernel.body)
            return []

        on_amx = cpu_amx.uses_amx(self.kernel.body)
        if on_amx:
            cpu_amx.configure(f)
        f.loop(begin, end, 1, [], program)
        if on_amx:
            cpu_amx.release(f)
        if self.streams is not None:
            f.emit("fence seq_cst")  # streaming stores are ordered with nothing else
        f.ret()

    def _streaming_node(self) -> str:
        if self.streams is None:
            self.streams = self.f.module.add_metadata("!{i32 1}")
        return self.streams

    def flatten(self, reps: Sequence[Rep], types: Sequence[tile.TileType]) -> list[Value]:
        return [v for rep in reps for v in (rep if isinstance(rep, list) else [rep])]

    def unflatten(self, flat: Sequence[Value], types: Sequence[tile.TileType]) -> list[Rep]:
        out: list[Rep] = []
        it = iter(flat)
        for t in types:
            out.append([next(it) for _ in range(t.shape[0])] if len(t.shape) == 2 else next(it))
        return out

    # Elementwise

    @lowers(ops.Elementwise)
    def lower_elementwise(self, op: ops.Elementwise) -> list[Rep]:
        result = op.results[0].type
        dtype = op.operands[-1].dtype  # `select` has its condition first
        operands = [self.rep(v) for v in op.operands]
        if isinstance(op, ops.Comparison) and op.positional:
            operands[-1] = self._hidden(operands[-1])

        def one(*xs: Value) -> Value:
            return lower_pointwise(self.f, op.name, dtype, *xs, **op.parameters)

        return [self.rowwise(result, one, *operands)]

    def _hidden(self, rep: Rep) -> Rep:
        """Bounds of lane positions, hidden from constant folding.

        A mask made with known ones would be constant, and LLVM 22 compiles some constant masks
        wrongly (a masked store of one lane takes its value past the mask of the load behind it, or
        writes a wider integer) and fails on others (loads that it splits into halves of which one
        is never read).
        """
        if isinstance(rep, list):
            return [self._hide(row) for row in rep]
        return self._hide(rep)

    def _hide(self, x: Value) -> Value:
        f = self.f
        zero = f.op('call i64 asm "", "=r,0"(i64 0)', I64)
        lanes = f.splat(f.int_resize(zero, f"i{x.type.bits}", signed=False), x.type.lanes)
        return f.bitcast(f.xor(f.bitcast(x, lanes.type), lanes), x.type)

    @lowers(ops.Convert)
    def lower_convert(self, op: ops.Convert) -> list[Rep]:
        (x,), to = op.operands, op.results[0].type
        return [
            self.rowwise(to, lambda v: lower_convert(self.f, v, x.dtype, to.dtype), self.rep(x))
        ]

    @lowers(ops.Bitcast)
    def lower_bitcast(self, op: ops.Bitcast) -> list[Rep]:
        to = op.results[0].type
        return [
            self.rowwise(to, lambda v: self.f.bitcast(v, llvm_type(to)), self.rep(op.operands[0]))
        ]

    @lowers(ops.Const)
    def lower_const(self, op: ops.Const) -> list[Rep]:
        t = op.results[0].type
        value = llvm.const(llvm_type(t), op.value.x)
        return [[value] * t.shape[0] if len(t.shape) == 2 else value]

    @lowers(ops.ProgramId)
    def lower_program_id(self, op: ops.ProgramId) -> list[Rep]:
        return [self.pid]

    @lowers(ops.Size)
    def lower_size(self, op: ops.Size) -> list[Rep]:
        return [self.addresses[op.buffer.name]]

    @lowers(ops.Iota)
    def lower_iota(self, op: ops.Iota) -> list[Rep]:
        t = op.results[0].type
        return [llvm.vector(ELEMENT_TYPES[t.dtype], range(t.shape[0]))]

    # Shapes

    @lowers(ops.Broadcast)
    def lower_broadcast(self, op: ops.Broadcast) -> list[Rep]:
        x, rep = op.operands[0], self.rep(op.operands[0])
        shape = op.results[0].type.shape
        rows = rep if isinstance(rep, list) else [rep]
        if not x.shape or x.shape[-1] != shape[-1]:
            rows = [self._spread(r, shape[-1]) for r in rows]
        if len(shape) == 1:
            return [rows[0]]
        return [rows * shape[0] if len(rows) == 1 else rows]

    def _spread(self, x: Value, lanes: int) -> Value:
        if x.type.lanes == 1:
            x = self.f.extract(x, 0)
        return self.f.splat(x, lanes)

    @lowers(ops.Expand)
    def lower_expand(self, op: ops.Expand) -> list[Rep]:
        rep = self.rep(op.operands[0])
        assert isinstance(rep, Value)
        if op.axis == 0:
            return [[rep]]
        one = rep.type.with_lanes(1)
        scalars = [self.f.extract(rep, i) for i in range(rep.type.lanes)]
        return [[self.f.insert(llvm.undef(one), s, 0) for s in scalars]]

    @lowers(ops.Reshape)
    def lower_reshape(self, op: ops.Reshape) -> list[Rep]:
        f, rep, shape = self.f, self.rep(op.operands[0]), op.results[0].shape
        rows = rep if isinstance(rep, list) else [rep]
        while len(rows) > 1:  # of a power of two
            both = range(2 * rows[0].type.lanes)
            rows = [f.shuffle(a, b, both) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        if len(shape) == 1:
            return [rows[0]]
        n = shape[1]
        return [[f.shuffle(rows[0], None, range(i * n, (i + 1) * n)) for i in range(shape[0])]]

    @lowers(ops.Transpose)
    def lower_transpose(self, op: ops.Transpose) -> list[Rep]:
        rows = self.rep(op.operands[0])
        assert isinstance(rows, list)
        return [transpose_rows(self.f, rows)]

    @lowers(ops.Extract)
    def lower_extract(self, op: ops.Extract) -> list[Rep]:
        rep = self.rep(op.operands[0])
        lane = op.lane
        return [rep[lane] if isinstance(rep, list) else self.f.extract(rep, lane)]

    @lowers(ops.Shuffle)
    def lower_shuffle(self, op: ops.Shuffle) -> list[Rep]:
        x, *other = (self.rep(v) for v in op.operands)
        assert isinstance(x, Value)
        return [self.f.shuffle(x, other[0] if other else None, op.lanes)]  # type: ignore[arg-type]

    @lowers(ops.Compress)
    def lower_compress(self, op: ops.Compress) -> list[Rep]:
        x, mask = (self.rep(v) for v in op.operands)
        assert isinstance(x, Value) and isinstance(mask, Value)
        return [self._compressed(x, mask)]

    def _compressed(self, x: Value, mask: Value) -> Value:
        """Selected lanes first.

        LLVM 22 crashes on vectors wider than a register, so halves meet in memory.
        """
        f, lanes = self.f, x.type.lanes
        if lanes * x.type.bits <= 512:
            return f.intrinsic("experimental.vector.compress", x.type, x, mask, llvm.undef(x.type))
        half = lanes // 2
        slot = f.alloca(x.type)
        places = [range(half), range(half, lanes)]
        low, high = (
            self._compressed(f.shuffle(x, None, p), f.shuffle(mask, None, p)) for p in places
        )
        first = f.cast("zext", f.shuffle(mask, None, places[0]), "i64")
        f.store(low, slot, x.type.bits // 8)
        f.store(high, f.gep(slot, f.reduce("add", first), x.type.with_lanes(0)), x.type.bits // 8)
        return f.load(x.type, slot, 64)

    # Products

    @lowers(ops.Dot)
    def lower_dot(self, op: ops.Dot) -> list[Rep]:
        a, b, acc = (self.rep(v) for v in op.operands)
        assert isinstance(a, list) and isinstance(b, list) and isinstance(acc, list)
        floating = op.operands[2].dtype in tile.FLOATS
        out = []
        for row, total in zip(a, acc, strict=True):
            for k, b_row in enumerate(b):
                x = self.f.splat(self.f.extract(row, k), b_row.type.lanes)
                if floating:
                    total = self.f.fma(x, b_row, total)
                else:
                    total = self.f.add(self.f.mul(x, b_row), total)
            out.append(total)
        return [out]

    @lowers(ops.Dot4)
    def lower_dot4(self, op: ops.Dot4) -> list[Rep]:
        a, b, acc = (self.scalar(v) for v in op.operands)
        f, t = self.f, acc.type
        if t.lanes == 16 and host().has("avx512vnni"):
            as_bytes = Type("i8", 64)
            name = "llvm.x86.avx512.vpdpbusd.512"
            return [f.call(name, t, acc, f.bitcast(a, as_bytes), f.bitcast(b, as_bytes))]
        for byte in range(4):
            up, down = llvm.const(t, 24 - 8 * byte), llvm.const(t, 24)
            x, y = f.lshr(f.shl(a, up), down), f.ashr(f.shl(b, up), down)
            acc = f.add(acc, f.mul(x, y))
        return [acc]

    @lowers(ops.AmxProduct)
    def lower_unit_product(self, op: ops.AmxProduct) -> list[Rep]:
        cpu_amx.amx_product(self.f, op, self._address, self.scalar)
        return []

    # Memory

    def _address(self, buffer: tile.Buffer, offset: Value) -> Value:
        return self.f.gep(self.addresses[buffer.name], offset, Type(memory_element(buffer.dtype)))

    def _memory_operands(
        self, op: ops.Load | ops.Store, skip: int
    ) -> tuple[list[Value | int], Rep | None]:
        """Strides of a load or store (runtime ones filled in) and the mask."""
        rest = list(op.operands[skip:])
        mask = self.rep(rest.pop()) if op.masked else None
        strides = [self.scalar(rest.pop(0)) if s is None else s for s in op.strides]
        return strides, mask

    def _step(self, offset: Value, i: int, stride: Value | int) -> Value:
        if i == 0 or stride == 0:
            return offset
        if isinstance(stride, int):
            return self.f.add(offset, llvm.const(I64, i * stride))
        return self.f.add(offset, self.f.mul(stride, llvm.const(I64, i)))

    @lowers(ops.Load)
    def lower_load(self, op: ops.Load) -> list[Rep]:
        buffer, t = op.buffer, op.results[0].type
        offset = self.scalar(op.operands[0])
        strides, mask = self._memory_operands(op, 1)
        if len(t.shape) < 2:
            stride = strides[0] if strides else 0
            row_mask = _row_of(mask, 0)
            return [self._load_row(buffer, t, offset, stride, row_mask, op.other)]
        rows, columns = t.shape
        if strides[0] == 1 and strides[1] != 1 and mask is None and rows > 1:
            sideways = tile.TileType(t.dtype, (rows,))
            loaded = [
                self._load_row(buffer, sideways, self._step(offset, c, strides[1]), 1, None, 0)
                for c in range(columns)
            ]
            return [transpose_rows(self.f, loaded)]
        out = []
        row_type = tile.TileType(t.dtype, (columns,))
        for r in range(rows):
            row_mask = _row_of(mask, r)
            start = self._step(offset, r, strides[0])
            out.append(self._load_row(buffer, row_type, start, strides[1], row_mask, op.other))
        return [out]

    def _load_row(
        self,
        buffer: tile.Buffer,
        t: tile.TileType,
        offset: Value,
        stride: Value | int,
        mask: Value | None,
        other: Any,
    ) -> Value:
        f = self.f
        kind = Type(memory_element(t.dtype), t.shape[-1] if t.shape else 0)
        align = kind.bits // 8
        if not kind.lanes:
            loaded = f.load(kind, self._address(buffer, offset), align)
        elif stride == 1:
            pointer = self._address(buffer, offset)
            if mask is None:
                loaded = f.load(kind, pointer, align)
            else:
                loaded = f.masked_load(kind, pointer, mask, llvm.const(kind, other), align)
        elif stride == 0 and mask is None:
            loaded = f.splat(
                f.load(kind.with_lanes(0), self._address(buffer, offset), align), kind.lanes
            )
        else:
            every = mask or llvm.const(kind.with_elem("i1"), True)
            pointers = self._address(buffer, self._lane_offsets(offset, stride, kind.lanes))
            loaded = f.gather(kind, pointers, every, llvm.const(kind, other), align)
        return self._from_memory(loaded, t.dtype)

    def _lane_offsets(self, offset: Value, stride: Value | int, lanes: int) -> Value:
        f = self.f
        if isinstance(stride, int):
            steps = llvm.vector("i64", [i * stride for i in range(lanes)])
        else:
            steps = f.mul(f.splat(stride, lanes), llvm.vector("i64", range(lanes)))
        return f.add(f.splat(offset, lanes), steps)

    def _from_memory(self, x: Value, dtype: str) -> Value:
        if dtype == "bool":
            return self.f.icmp("ne", x, llvm.zero(x.type))
        return self.f.bitcast(x, x.type.with_elem(ELEMENT_TYPES[dtype]))

    def _to_memory(self, x: Value, dtype: str) -> Value:
        if dtype == "bool":
            return self.f.cast("zext", x, "i8")
        return self.f.bitcast(x, x.type.with_elem(memory_element(dtype)))

    @lowers(ops.Store)
    def lower_store(self, op: ops.Store) -> list[Rep]:
        buffer, value = op.buffer, op.operands[1]
        offset, rep = self.scalar(op.operands[0]), self.rep(value)
        strides, mask = self._memory_operands(op, 2)
        streaming = op.streaming
        if isinstance(rep, Value):
            stride, row_mask = strides[0] if strides else 0, _row_of(mask, 0)
            self._store_row(buffer, value.dtype, offset, stride, rep, row_mask, streaming)
            return []
        if strides[0] == 1 and strides[1] != 1 and mask is None and len(rep) > 1:
            rep, strides = transpose_rows(self.f, rep), strides[::-1]
        for r, row in enumerate(rep):
            row_mask, start = _row_of(mask, r), self._step(offset, r, strides[0])
            self._store_row(buffer, value.dtype, start, strides[1], row, row_mask, streaming)
        return []

    def _store_row(
        self,
        buffer: tile.Buffer,
        dtype: str,
        offset: Value,
        stride: Value | int,
        x: Value,
        mask: Value | None,
        streaming: bool = False,
    ) -> None:
        f, x = self.f, self._to_memory(x, dtype)
        align = x.type.bits // 8
        if not x.type.lanes:
            f.store(x, self._address(buffer, offset), align)
        elif stride == 1:
            pointer = self._address(buffer, offset)
            if streaming:
                f.store(x, pointer, CACHE_LINE, f", !nontemporal {self._streaming_node()}")
            elif mask is None:
                f.store(x, pointer, align)
            else:
                f.masked_store(x, pointer, mask, align)
        else:
            every = mask or llvm.const(x.type.with_elem("i1"), True)
            f.scatter(
                x,
                self._address(buffer, self._lane_offsets(offset, stride, x.type.lanes)),
                every,
                align,
            )

    @lowers(ops.LoadAt)
    def lower_load_at(self, op: ops.LoadAt) -> list[Rep]:
        buffer, t = op.buffer, op.results[0].type
        mask = self.rep(op.operands[1]) if op.masked else None
        if not t.shape:
            return [self._from_memory(self._load_scalar_at(buffer, t, op, mask), t.dtype)]
        kind = Type(memory_element(t.dtype), t.shape[-1])

        def row(offsets: Value, *masks: Value) -> Value:
            every = masks[0] if masks else llvm.const(kind.with_elem("i1"), True)
            other = llvm.const(kind, op.other)
            loaded = self.f.gather(
                kind, self._address(buffer, offsets), every, other, kind.bits // 8
            )
            return self._from_memory(loaded, t.dtype)

        operands = [self.rep(op.operands[0])] + ([mask] if mask is not None else [])
        return [self.rowwise(t, row, *operands)]

    def _load_scalar_at(
        self, buffer: tile.Buffer, t: tile.TileType, op: ops.LoadAt, mask: Rep | None
    ) -> Value:
        kind = Type(memory_element(t.dtype))
        offset = self.scalar(op.operands[0])
        if mask is None:
            return self.f.load(kind, self._address(buffer, offset), kind.bits // 8)
        other = llvm.const(kind, op.other)
        assert isinstance(mask, Value)
        (loaded,) = self.f.if_(
            mask,
            lambda: [self.f.load(kind, self._address(buffer, offset), kind.bits // 8)],
            lambda: [other],
        )
        return loaded

    @lowers(ops.StoreAt)
    def lower_store_at(self, op: ops.StoreAt) -> list[Rep]:
        buffer, value = op.buffer, op.operands[1]
        offsets, rep = self.rep(op.operands[0]), self.rep(value)
        mask = self.rep(op.operands[2]) if op.masked else None
        f = self.f
        if isinstance(rep, Value) and not rep.type.lanes:

            def write() -> list[Value]:
                self._store_row(buffer, value.dtype, self.scalar(op.operands[0]), 0, rep, None)
                return []

            if isinstance(mask, Value):
                f.if_(mask, write)
            else:
                write()
            return []

        def row(where: Value, x: Value, *masks: Value) -> Value:
            x = self._to_memory(x, value.dtype)
            every = masks[0] if masks else llvm.const(x.type.with_elem("i1"), True)
            f.scatter(x, self._address(buffer, where), every, x.type.bits // 8)
            return x

        self.rowwise(value.type, row, offsets, rep, *([mask] if mask is not None else []))
        return []

    @lowers(ops.Atomic)
    def lower_atomic(self, op: ops.Atomic) -> list[Rep]:
        f, name = self.f, atomic_operation(op.combine, op.operands[1].dtype)

        def one(offset: Value, value: Value, *mask: Value) -> Value:
            pointer = self._address(op.buffer, offset)

            def combine() -> list[Value]:
                return [f.op(f"atomicrmw {name} {pointer}, {value} monotonic", value.type)]

            (old,) = f.if_(mask[0], combine, lambda: [value]) if mask else combine()
            return old

        def row(*xs: Value) -> Value:
            lanes = xs[0].type.lanes
            if not lanes:
                return one(*xs)
            out = xs[1]
            for i in range(lanes):
                out = f.insert(out, one(*(f.extract(x, i) for x in xs)), i)
            return out

        return [self.rowwise(op.results[0].type, row, *map(self.rep, op.operands))]

    @lowers(ops.Arrive)
    def lower_arrive(self, op: ops.Arrive) -> list[Rep]:
        counter = self._address(op.buffer, self.scalar(op.operands[0]))
        return [arrival(self.f, counter, op.programs, "acq_rel")]

    @lowers(ops.Prefetch)
    def lower_prefetch(self, op: ops.Prefetch) -> list[Rep]:
        pointer = self._address(op.buffer, self.scalar(op.operands[0]))
        write, locality = int(op.write), 4 - op.level
        kinds = [llvm.const(llvm.I32, x) for x in (write, locality, 1)]
        self.f.intrinsic("prefetch", llvm.VOID, pointer, *kinds, overload=[PTR])
        return []


def memory_element(dtype: str) -> str:
    """The LLVM type a dtype has in memory; booleans take a byte.

    Half precision is moved as bits: where a CPU has no instructions for it, LLVM would move lanes
    of a masked access one by one through single precision and library calls.
    """
    return {"bool": "i8", "f16": "i16", "bf16": "i16"}.get(dtype) or ELEMENT_TYPES[dtype]


__all__ = ["emit_kernel"]
