"""What the functions that write operations for GPUs are given: the kernel and its parts so far.

`layouts` says which thread holds what, `types` and `registers` what that is in LLVM, `buffers`
where memory is and who waits for whom, `isa` what the target has. The emitter itself knows what
represents each SSA value, and in which block it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.debug_info import SourceLines
from amdjax.codegen.emitter import Emitter, Lowerings
from amdjax.codegen.gpu.buffers import GLOBAL, Buffers
from amdjax.codegen.gpu.copied_tiles import copied_tiles
from amdjax.codegen.gpu.early_exit import early_exit
from amdjax.codegen.gpu.isa import Isa, by_words
from amdjax.codegen.gpu.layout import Threads
from amdjax.codegen.gpu.layout_assignment import assigned_layouts
from amdjax.codegen.gpu.positions import AnyLayout, Coordinates, Held, Layouts, Positional, Rep
from amdjax.codegen.gpu.registers import Types, splat
from amdjax.codegen.llvm import I32, I64, Function, Module, Type, Value
from amdjax.tile import ops
from amdjax.tile.passes.ranges import not_negative

__all__ = ["GpuEmitter", "Move"]

#: Blocks of a kernel whose threads may end early.
_IN, _OUT = "inside", "out"

#: What moves a tile: the kernel, the tile's registers, its dtype, its layout, the wanted one.
Move = Callable[["GpuEmitter", Value, str, AnyLayout, AnyLayout], Value]


class GpuEmitter(Emitter[Rep]):
    """Writes one kernel for one target.

    Args:
      module: what the function and its LDS are added to.
      kernel: the program, with what passes found.
      isa: the table of the target.
      lowerings: what writes each operation.
      name: of the function.
      index_bits: of an index.
      move: `move(emitter, registers, dtype, layout, wanted)`: registers of another layout.
      wait: `wait(emitter)`: at the begin of a loop's round, until its copied tiles are there.
    """

    def __init__(
        self,
        module: Module,
        kernel: tile.Kernel,
        isa: Isa,
        lowerings: Lowerings,
        name: str,
        index_bits: int,
        move: Move,
        wait: Callable[[GpuEmitter], None],
    ):
        self.kernel, self.isa, self._move, self._wait = kernel, isa, move, wait
        self.workgroup = kernel.schedule.workgroup or isa.wave
        self.types = Types(Type(f"i{index_bits}"))
        super().__init__(_function(module, kernel, isa, self.workgroup, name), lowerings)
        self._head = self.f.lines
        self.f.start_block("body")
        with self.f.inserting_into(self._head):
            number = isa.thread(self.f)
            #: Of the program among those of its launch, and the kernel's arguments.
            self.program, arguments = _program(self.f, kernel, isa)
        #: Addresses that the kernel was given, known at its head.
        self.pointers = [x for x in arguments if x.type == GLOBAL]
        self.threads = Threads(self.f, number, self._at_head)
        self.layouts = Layouts(self.threads, self.workgroup, kernel.schedule.vector)
        self.buffers = Buffers(
            self.f, isa, kernel, self.workgroup, self.types, self.threads, arguments
        )
        #: Whether tiles are multiplied.
        self.has_dots = any(isinstance(op, ops.Dot) for op in tile.nested_ops(kernel.body))
        #: Tiles that are no registers but places in LDS.
        #: Offsets of tiles that are better added to those of threads than to addresses: not
        #: negative, and in no loop, in which scalars move beside what vectors do.
        self.added_offsets = self._added_offsets()
        self.copied = copied_tiles(kernel, isa.target)
        assigned = assigned_layouts(kernel, isa.target)
        self._assigned = {v: x for v, x in assigned.items() if v not in self.copied.tiles}
        #: Where threads end whose elements are outside; None if they may not.
        self.exit = early_exit(kernel, self.workgroup)
        #: Numbers of the values that something reads.
        self.used = frozenset(_used(kernel.body))
        self._computed = tile.Visible()
        self._source: SourceLines | None = None
        self._lines: dict[int, int] = {}

    def write(self, program: tile.Kernel | None) -> None:
        """Write the whole function; its instructions know their ops of a `program` in text."""
        if program is not None:
            text, self._lines = tile.listing(program)
            self._source = SourceLines(self.f, f"{self.kernel.name}.tile", text)
        self.block(self.kernel.body)
        if self.exit is not None:
            self.f.br(_OUT)
            self.f.start_block(_OUT)
        self.f.ret()
        self.buffers.barriers.place()
        self._head.append("br label %body")
        self.buffers.define_temporaries()

    def _added_offsets(self) -> frozenset[int]:
        body, fits = self.kernel.body, self.isa.adds_offsets and self.types.index == I32
        if not fits or any(isinstance(op, ops.For | ops.While) for op in tile.nested_ops(body)):
            return frozenset()
        return not_negative(body)

    def _at_head(self, write: Callable[[], Value]) -> Value:
        with self.f.inserting_into(self._head):
            return write()

    # Blocks

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Around instructions that do not dominate what follows."""
        mark = self._computed.mark()
        yield
        self._computed.forget(mark)

    @contextmanager
    def vectors_of(self, vector: int) -> Iterator[None]:
        """Within, threads hold so many neighbors of tiles side by side."""
        outer = self.layouts
        self.layouts = Layouts(self.threads, self.workgroup, vector)
        yield
        self.layouts = outer

    @contextmanager
    def _inside(self) -> Iterator[None]:
        suffix, reservations = self.f.suffix, self.buffers.reservations
        with self.scope(), self.buffers.barriers.arm():
            yield
        self.f.suffix, self.buffers.reservations = suffix, reservations

    def block(self, block: tile.Block) -> list[Rep]:
        with self._inside():
            return super().block(block)

    def flat_block(
        self, block: tile.Block, args: Sequence[Value], like: Sequence[tile.Value] = ()
    ) -> list[Value]:
        self.bind(block.args, self.unflatten(args, [a.type for a in block.args]))
        with self._inside():
            if id(block) in self.copied.waiting:
                self._wait(self)
            super().block(block)
            return self.flat(block.yields, like or block.yields)

    def inlined(self, block: tile.Block, args: Sequence[Value]) -> list[Value]:
        """Write a block of numbers that accesses no memory, so that barriers need no arm."""
        self.bind(block.args, args)
        with self.scope():
            super().block(block)
        return [self.scalar(v) for v in block.yields]

    def writing(self, op: tile.Op) -> None:
        if self._source is not None:
            self._source.at(self._lines[id(op.source)], op.origin)
        if self.exit is not None and op is self.exit.place:
            first = self.evaluate(self.rep(self.exit.mask), self.layouts.leaders(self.exit.layout))
            self.f.cond_br(first, _IN, _OUT)
            self.f.start_block(_IN)

    def when(
        self,
        cond: Value,
        then: Callable[[], Sequence[Value]],
        other: Callable[[], Sequence[Value]] = lambda: (),
    ) -> list[Value]:
        """A branch that threads may take differently."""

        def scoped(arm: Callable[[], Sequence[Value]]) -> Callable[[], Sequence[Value]]:
            def run() -> Sequence[Value]:
                with self.scope():
                    return arm()

            return run

        return self.f.if_(cond, scoped(then), scoped(other))

    def not_unrolled(self, form: str = "") -> str:
        """Of a loop that stays one: products unrolled would load more tiles than registers hold.

        Args:
          form: "runtime" if it is one unless the number of rounds is known.
        """
        module, kind = self.f.module, ".".join(filter(None, ("unroll", form, "disable")))
        disable = module.add_metadata(f'!{{!"llvm.loop.{kind}"}}')
        node = f"!{len(module.metadata)}"
        return f", !llvm.loop {module.add_metadata(f'distinct !{{{node}, {disable}}}')}"

    # Values

    def held(self, rep: Rep, shape: tuple[int, ...]) -> Value:
        """A tile in registers."""
        if isinstance(rep, Positional):
            return self.evaluate(rep, self.layouts.coordinates(self.layouts.of(shape)))
        assert isinstance(rep, Held)
        return rep.value

    def layout(self, v: tile.Value) -> AnyLayout:
        """How the tile of an SSA value is held, if it is."""
        return self._assigned.get(v.number) or self.layouts.of(v.shape)

    def in_layout(self, v: tile.Value, layout: AnyLayout) -> Value:
        """The tile of an SSA value, in the registers of a layout."""
        rep, own = self.rep(v), self.layout(v)
        if isinstance(rep, Positional):
            return self.evaluate(rep, self.layouts.coordinates(layout))
        assert isinstance(rep, Held)
        if own == layout:
            return rep.value
        key = (v.number, layout)
        found: Value | None = self._computed.get(key)
        if found is None:
            found = self._move(self, rep.value, v.dtype, own, layout)
            self._computed.add(key, found)
        return found

    def in_registers(self, v: tile.Value) -> Value:
        """The tile of an SSA value, in registers of the layout of its shape."""
        return self.in_layout(v, self.layouts.of(v.shape))

    def where_held(self, v: tile.Value) -> Value:
        """The tile of an SSA value, in registers of its own layout."""
        return self.in_layout(v, self.layout(v))

    def evaluate(self, rep: Rep, at: Coordinates) -> Value:
        """Elements of a scalar or positional tile; known ones are used again."""
        if isinstance(rep, Value):
            return splat(self.f, rep, at.registers)
        assert isinstance(rep, Positional)
        key = (rep, at.key)
        found: Value | None = self._computed.get(key)
        if found is None:
            found = rep.at(at)
            self._computed.add(key, found)
        return found

    def once_in_block(self, key: tuple[object, ...], write: Callable[[], Value]) -> Value:
        """What is written, if it was not yet in the same block."""
        key = (*key, self.f.block)
        found: Value | None = self._computed.get(key)
        if found is None:
            found = write()
            self._computed.add(key, found)
        return found

    def flat(self, values: Sequence[tile.Value], like: Sequence[tile.Value]) -> list[Value]:
        return [
            self.in_layout(v, self.layout(to)) if v.shape else self.scalar(v)
            for v, to in zip(values, like, strict=True)
        ]

    def flatten(self, reps: Sequence[Rep], types: Sequence[tile.TileType]) -> list[Value]:
        return [
            self.held(rep, t.shape) if t.shape else _scalar(rep)
            for rep, t in zip(reps, types, strict=True)
        ]

    def unflatten(self, flat: Sequence[Value], types: Sequence[tile.TileType]) -> list[Rep]:
        return [Held(x) if t.shape else x for x, t in zip(flat, types, strict=True)]

    # Threads and waves

    def lane_number(self) -> Value:
        """Of the thread in its wave."""
        return self.threads.apply("and", self.threads.number, self.isa.wave - 1)

    def wave_number(self) -> Value:
        """Of the wave in the workgroup."""
        return self.threads.apply("lshr", self.threads.number, self.isa.wave.bit_length() - 1)

    def from_lane(self, x: Value, lane: int) -> Value:
        """The value of one lane, in all lanes of its wave."""
        return by_words(self.f, x, lambda word: self.isa.lane(self.f, word, lane))

    def uniform(self, x: Value) -> Value:
        """A scalar that is the same in all threads of the wave, known to be."""
        return by_words(self.f, x, lambda word: self.isa.uniform(self.f, word))


def _function(module: Module, kernel: tile.Kernel, isa: Isa, workgroup: int, name: str) -> Function:
    attributes = isa.attributes(workgroup)
    arguments = [(f"{p.name}.arg", _argument(p)) for p in kernel.params]
    passed = [isa.argument_passing] * len(arguments)
    if kernel.batch > 1:
        words = kernel.batch * (1 + len(arguments))
        arguments = [("table.arg", isa.table)]
        passed = [f"{isa.table_passing}([{words} x i64]) align 8"]
    return module.function(
        name,
        arguments,
        attributes=attributes,
        arg_attributes=passed,
        convention=isa.convention,
    )


def _argument(parameter: tile.Buffer) -> Type:
    return I64 if parameter.role == "size" else GLOBAL


def _program(f: Function, kernel: tile.Kernel, isa: Isa) -> tuple[Value, Sequence[Value]]:
    """The number of the program and its arguments, which a launch of a batch lists.

    A row of the table is the first program of a list and its arguments. The row of a program is
    the last that does not begin behind it, found by halving.
    """
    program = isa.program(f)
    if kernel.batch == 1:
        return program, f.args
    (table,) = f.args
    words = 1 + len(kernel.params)
    whole = f.cast("zext", program, "i64")

    def word(row: Value, column: int, type: Type) -> Value:
        at = f.add(f.mul(row, llvm.const(I64, words)), llvm.const(I64, column))
        return f.load(type, f.gep(table, at, I64), 8, isa.table_load(f))

    row = llvm.const(I64, 0)
    step = 1 << (kernel.batch - 1).bit_length() - 1
    while step:
        tried = f.add(row, llvm.const(I64, step))
        inside = f.icmp("slt", tried, llvm.const(I64, kernel.batch))
        bounded = f.select(inside, tried, row)
        begun = f.icmp("sle", word(bounded, 0, I64), whole)
        row = f.select(begun, bounded, row)
        step //= 2
    own = f.cast("trunc", f.sub(whole, word(row, 0, I64)), "i32")
    return own, [word(row, 1 + i, _argument(p)) for i, p in enumerate(kernel.params)]


def _scalar(rep: Rep) -> Value:
    assert isinstance(rep, Value)
    return rep


def _used(block: tile.Block) -> Iterator[int]:
    yield from (v.number for v in block.yields)
    for op in tile.nested_ops(block):
        yield from (v.number for v in op.operands)
        for inner in op.blocks:
            yield from (v.number for v in inner.yields)
