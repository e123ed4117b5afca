"""How a workgroup holds tiles: layouts, elements that follow from their position, LDS.

A scalar is one LLVM value, the same in all threads. A tile is `Held`, each thread having a vector
of its elements, or `Positional`: what follows from the position of an element (counts, masks of
tails, constants) is not held but computed where it is needed, in whatever layout it is needed, and
so needs no data movement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.debug_info import SourceLines
from amdjax.codegen.emitter import Emitter, lowers
from amdjax.codegen.gpu.barriers import Access, Barriers
from amdjax.codegen.gpu.isa import Isa, by_words
from amdjax.codegen.gpu.layout import Layout, Place, Threads
from amdjax.codegen.llvm import I32, I64, Function, Module, Type, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES, lower_pointwise
from amdjax.tile import ops

__all__ = ["Coordinates", "GpuTiles", "Held", "Positional", "Rep"]

GLOBAL, LDS = Type("ptr addrspace(1)"), Type("ptr addrspace(3)")
#: Temporaries up to this size take turns in two places: one barrier for each is enough.
_SMALL = 2048


@dataclass(frozen=True, slots=True)
class Held:
    """The registers of one thread: a vector, or a scalar where it is one."""

    value: Value


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Positions along each axis of the elements that a thread holds, as vectors of i32.

    Args:
      key: equal for equal positions.
      registers: length of the vectors.
      axis: computes the positions along an axis.
    """

    key: tuple[object, ...]
    registers: int
    axis: Callable[[int], Value]


@dataclass(frozen=True, slots=True, eq=False)
class Positional:
    """A tile as a function of position."""

    at: Callable[[Coordinates], Value]


class Deferred:
    """A tile that reaches the registers of its layout where an op of its own asks for it."""


Rep = Value | Held | Positional | Deferred


class GpuTiles(Emitter[Rep]):
    """Writes one kernel for one target."""

    def __init__(self, module: Module, kernel: tile.Kernel, isa: Isa, name: str, index_bits: int):
        self.kernel, self.isa = kernel, isa
        self.workgroup = kernel.schedule.workgroup or isa.wave
        self.index = Type(f"i{index_bits}")
        super().__init__(self._function(module, name))
        self._head = self.f.lines
        self.f.start_block("body")
        with self.f.elsewhere(self._head):
            number = isa.thread(self.f)
        self.threads = Threads(self.f, number, self._at_head)
        self.barriers = Barriers()
        #: Numbers of the values that something reads.
        self.used = set(_used(kernel.body))
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._axes: dict[tuple[Layout, int, int], Value] = {}
        self._made = tile.Visible()
        self._source: SourceLines | None = None
        self._lds_sizes: dict[str, int] = {}
        self._turn = 0

    def _function(self, module: Module, name: str) -> Function:
        """The function; parameters and scratch have addresses."""
        self.addresses: dict[str, Value] = {}
        arguments = [
            (f"{p.name}.arg", I64 if p.role == "size" else GLOBAL) for p in self.kernel.params
        ]
        f = module.function(
            name,
            arguments,
            attributes=self.isa.attributes(self.workgroup),
            convention=self.isa.convention,
        )
        for p, argument in zip(self.kernel.params, f.args, strict=True):
            self.addresses[p.name] = argument
        for s in self.kernel.scratch:
            self.addresses[s.name] = Value(LDS, f"@{s.name}.lds")
            size = s.size * self.memory_type(s.dtype).bits // 8
            self._define_lds(module, f"{s.name}.lds", size)
        return f

    @staticmethod
    def _define_lds(module: Module, name: str, size: int) -> None:
        definition = f"internal addrspace(3) global [{size} x i8] poison, align 16"
        module.add_global(name, definition)

    def write(self, program: tile.Kernel | None) -> None:
        """Write the whole function; its instructions know their ops of a `program` in text."""
        if program is not None:
            text, self._lines = tile.listing(program)
            self._source = SourceLines(self.f, f"{self.kernel.name}.tile", text)
        self.block(self.kernel.body)
        self.f.ret()
        self.barriers.place()
        self._head.append("br label %body")
        for name, size in self._lds_sizes.items():
            self._define_lds(self.f.module, name, size)

    def _at_head(self, write: Callable[[], Value]) -> Value:
        with self.f.elsewhere(self._head):
            return write()

    # Scopes

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Around instructions that do not dominate what follows."""
        mark = self._made.mark()
        yield
        self._made.forget(mark)

    def block(self, block: tile.Block) -> list[Rep]:
        around = self.f.suffix
        with self.scope(), self.barriers.arm():
            reps = super().block(block)
        self.f.suffix = around
        return reps

    def writing(self, op: tile.Op) -> None:
        if self._source is not None:
            self._source.at(self._lines[id(op.source)], op.origin)

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

    def once(self, then: Callable[[], Sequence[Value]]) -> None:
        """What one thread of the workgroup does."""
        self.when(self.threads.compare("eq", self.threads.number, 0), then)

    @lowers(ops.For)
    def lower_for(self, op: ops.For) -> list[Rep]:
        (body,) = op.blocks
        with self.barriers.loop(self._barrier_here(), tile.lowest_number(body), 0):
            return super().lower_for(op)

    @lowers(ops.While)
    def lower_while(self, op: ops.While) -> list[Rep]:
        first = min(map(tile.lowest_number, op.blocks))
        with self.barriers.loop(self._barrier_here(), first, 1):
            return super().lower_while(op)

    @lowers(ops.If)
    def lower_if(self, op: ops.If) -> list[Rep]:
        with self.barriers.branch():
            return super().lower_if(op)

    # Types

    def element(self, dtype: str) -> str:
        """LLVM's type of an element in registers."""
        return self.index.elem if dtype == "index" else ELEMENT_TYPES[dtype]

    def memory_type(self, dtype: str) -> Type:
        """LLVM's type of an element in memory; booleans take a byte."""
        return Type("i8" if dtype == "bool" else self.element(dtype))

    def vector(self, dtype: str, registers: int) -> Type:
        """What `registers` elements of a thread are in LLVM."""
        return Type(self.element(dtype), registers if registers > 1 else 0)

    def register(self, x: Value, i: int) -> Value:
        return self.f.extract(x, i) if x.type.lanes else x

    def joined(self, parts: Sequence[Value]) -> Value:
        """Scalars and vectors one after the other."""
        if len(parts) == 1:
            return parts[0]
        if not any(p.type.lanes for p in parts):
            out = llvm.undef(parts[0].type.with_lanes(len(parts)))
            for i, p in enumerate(parts):
                out = self.f.insert(out, p, i)
            return out
        if len(parts) % 2:
            return self._concatenated(self.joined(parts[:-1]), parts[-1])
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return self.joined([self._concatenated(a, b) for a, b in pairs])

    def _concatenated(self, a: Value, b: Value) -> Value:
        n, m = a.type.lanes, b.type.lanes
        if not m:
            b, m = self.f.insert(llvm.undef(b.type.with_lanes(1)), b, 0), 1
        if n != m:  # LLVM joins vectors of one length
            more = [*range(m), *[-1] * (n - m)]
            b = self.f.shuffle(b, None, more)
        return self.f.shuffle(a, b, [*range(n), *range(n, n + m)])

    def splat(self, x: Value, registers: int) -> Value:
        return self.f.splat(x, registers) if registers > 1 else x

    # Layouts

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """How tiles of a shape are held in this kernel."""
        if shape not in self._layouts:
            self._layouts[shape] = Layout(shape, self.workgroup, self.kernel.schedule.vector)
        return self._layouts[shape]

    def places(self, layout: Layout) -> Sequence[tuple[Place, ...]]:
        return layout.places(self.threads)

    def guards(self, layout: Layout) -> list[Value | None]:
        """For each register: whether it holds an element; None for always."""
        t, last = self.threads, self.workgroup - 1
        bounds = [layout.last_thread(r) for r in range(layout.registers)]
        return [None if b >= last else t.compare("sle", t.number, max(b, -1)) for b in bounds]

    def owner(self, layout: Layout) -> Value | None:
        """Whether the thread is the first that holds its elements; None if it is the only one."""
        if layout.period == self.workgroup:
            return None
        return self.threads.compare("ult", self.threads.number, layout.period)

    def coordinates(self, layout: Layout) -> Coordinates:
        """The positions of the elements of a layout."""
        return self._spaced(layout, 1)

    def leaders(self, layout: Layout) -> Coordinates:
        """The positions of the first of each few elements that a thread holds side by side."""
        return self._spaced(layout, layout.width)

    def _spaced(self, layout: Layout, step: int) -> Coordinates:
        """The positions of each `step`th element of a thread."""

        def axis(a: int) -> Value:
            key = (layout, step, a)
            if key not in self._axes:
                places = [p[a] for p in self.places(layout)[::step]]
                self._axes[key] = self._at_head(lambda: self._positions(places))
            return self._axes[key]

        return Coordinates((layout, step), layout.registers // step, axis)

    def _positions(self, places: Sequence[Place]) -> Value:
        n, steps = len(places), [p.step for p in places]
        constants = llvm.vector("i32", steps) if n > 1 else llvm.const(I32, steps[0])
        bases = [p.base for p in places]
        if all(b is None for b in bases):
            return constants
        if all(b == bases[0] for b in bases):
            assert bases[0] is not None
            return self.f.add(self.splat(bases[0], n), constants)
        parts = [llvm.const(I32, 0) if b is None else b for b in bases]
        return self.f.add(self.joined(parts), constants)

    # Values

    def held(self, rep: Rep, shape: tuple[int, ...]) -> Value:
        """A tile in registers."""
        if isinstance(rep, Positional):
            return self.evaluate(rep, self.coordinates(self.layout(shape)))
        assert isinstance(rep, Held)
        return rep.value

    def in_registers(self, v: tile.Value) -> Value:
        """The tile of an SSA value, in registers."""
        return self.held(self.rep(v), v.shape)

    def evaluate(self, rep: Rep, at: Coordinates) -> Value:
        """Elements of a scalar or positional tile; known ones are used again."""
        if isinstance(rep, Value):
            return self.splat(rep, at.registers)
        assert isinstance(rep, Positional)
        key = (rep, at.key)
        found: Value | None = self._made.get(key)
        if found is None:
            found = rep.at(at)
            self._made.add(key, found)
        return found

    def flatten(self, reps: Sequence[Rep], types: Sequence[tile.TileType]) -> list[Value]:
        return [
            self.held(rep, t.shape) if t.shape else _scalar(rep)
            for rep, t in zip(reps, types, strict=True)
        ]

    def unflatten(self, flat: Sequence[Value], types: Sequence[tile.TileType]) -> list[Rep]:
        return [Held(x) if t.shape else x for x, t in zip(flat, types, strict=True)]

    def elementwise(self, name: str, dtype: str, *xs: Value, **attrs: Any) -> Value:
        """One elementwise op; GPUs have extrema that pass NaN on."""
        if name in ("min", "max") and dtype in tile.FLOATS:
            return self.f.intrinsic(name + "imum", xs[0].type, *xs)
        return lower_pointwise(self.f, name, dtype, *xs, **attrs)

    def uniform(self, x: Value) -> Value:
        """A scalar that is the same in all threads of the wave, known to be."""
        return by_words(self.f, x, lambda word: self.isa.uniform(self.f, word))

    # LDS and waiting

    def temporary(self, dtype: str, elements: int) -> tile.Buffer:
        """LDS to move data through, until the next temporary of its kind."""
        size = elements * self.memory_type(dtype).bits // 8
        if size <= _SMALL:
            self._turn ^= 1
            name = f"small.{self._turn}"
        else:
            name = "large"
        self._lds_sizes[name] = max(size, self._lds_sizes.get(name, 0))
        self.addresses[name] = Value(LDS, f"@{name}")
        return tile.Buffer(name, dtype, "scratch", elements)

    def access(
        self,
        buffer: tile.Buffer,
        kind: str,
        pattern: object = None,
        values: tuple[int, ...] = (),
        store: int | None = None,
    ) -> None:
        """Other threads' accesses that this one has to come after are waited for."""
        lds = self.addresses[buffer.name].type == LDS
        noted = Access(buffer.name, kind, lds, pattern, values, store)  # type: ignore[arg-type]
        self.barriers.access(noted, self._barrier_here())

    def _barrier_here(self) -> Callable[[bool], None]:
        """Writes a barrier at this place of the function, later."""
        lines, suffix = self.f.lines, self.f.suffix
        lines.append("")
        at = len(lines) - 1

        def write(only_lds: bool) -> None:
            barrier: list[str] = []
            with self.f.elsewhere(barrier):
                self.f.suffix = suffix
                self.isa.barrier(self.f, self.workgroup // self.isa.wave, only_lds)
            lines[at] = "\n  ".join(barrier)

        return write


def _scalar(rep: Rep) -> Value:
    assert isinstance(rep, Value)
    return rep


def _used(block: tile.Block) -> Iterator[int]:
    yield from (v.number for v in block.yields)
    for op in tile.walk(block):
        yield from (v.number for v in op.operands)
        for inner in op.blocks:
            yield from (v.number for v in inner.yields)
