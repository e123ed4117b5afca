"""The memory of a kernel: where its buffers are, LDS to exchange elements through, waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from amdjax import tile
from amdjax.codegen.gpu.barriers import Access, Barriers, Kind
from amdjax.codegen.gpu.isa import Isa
from amdjax.codegen.gpu.layout import Threads
from amdjax.codegen.gpu.registers import Types
from amdjax.codegen.llvm import I32, I64, Function, Module, Type, Value
from amdjax.core.integers import ceil_div

__all__ = ["GLOBAL", "LDS", "Buffers"]

GLOBAL, LDS = Type("ptr addrspace(1)"), Type("ptr addrspace(3)")
#: Temporaries up to this size take turns in two places: one barrier for each is enough.
_SMALL = 2048


class Buffers:
    """Addresses, temporaries in LDS, and accesses for which other threads are waited for.

    Args:
      f: the function.
      isa: how its target waits.
      kernel: whose parameters and scratch they are.
      workgroup: threads.
      types: of elements.
      threads: of the workgroup.
      arguments: one for each parameter of the kernel.
    """

    def __init__(
        self,
        f: Function,
        isa: Isa,
        kernel: tile.Kernel,
        workgroup: int,
        types: Types,
        threads: Threads,
        arguments: Sequence[Value],
    ):
        self.f, self.isa, self.types, self.threads = f, isa, types, threads
        self.waves = workgroup // isa.wave
        self.barriers = Barriers()
        self._addresses: dict[str, Value] = {}
        self._low: dict[str, Value] = {}
        self._resources: dict[str, Value] = {}
        self._shifted: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._turn, self._places = 0, kernel.schedule.places
        #: Of the blocks that are open; the emitter forgets those of a block at its end.
        self.reservations = 0
        for p, argument in zip(kernel.params, arguments, strict=True):
            self._addresses[p.name] = argument
        for s in kernel.scratch:
            self._addresses[s.name] = Value(LDS, f"@{s.name}.lds")
            _define(f.module, f"{s.name}.lds", s.size * types.bytes(s.dtype))

    def define_temporaries(self) -> None:
        """Declare the LDS of temporaries; the kernel is complete."""
        for name, size in self._sizes.items():
            _define(self.f.module, name, size)

    def address(self, buffer: tile.Buffer) -> Value:
        """Where a buffer begins."""
        return self._addresses[buffer.name]

    def element(self, buffer: tile.Buffer, offset: Value | int) -> Value:
        """The address of an element, which all threads share."""
        return self.f.gep(self.address(buffer), offset, self.types.memory(buffer.dtype))

    @contextmanager
    def shifted(self, buffers: Sequence[tile.Buffer], offsets: Sequence[Value]) -> Iterator[None]:
        """Within, parameters begin so many bytes later."""
        before = {b.name: self.address(b) for b in buffers}
        for buffer, offset in zip(buffers, offsets, strict=True):
            self._addresses[buffer.name] = self.f.gep(before[buffer.name], offset, Type("i8"))
        self._shifted |= before.keys()
        yield
        self._addresses |= before
        self._shifted -= before.keys()

    def is_shifted(self, buffer: tile.Buffer) -> bool:
        """Whether a parameter begins elsewhere here, and may be accessed in front of that."""
        return buffer.name in self._shifted

    def resource(self, buffer: tile.Buffer) -> Value | None:
        """What names a parameter for loads of which those at `isa.OUTSIDE` bring zeros, if any can.

        LLVM has to know that it is the same in all lanes.
        """
        small = self.types.index == I32 and self.address(buffer).type == GLOBAL
        if not (self.isa.checks_bounds and small) or self.is_shifted(buffer):
            return None
        if buffer.name not in self._resources:
            make = lambda: self.isa.resource(self.f, self.address(buffer))
            self._resources[buffer.name] = self.threads.at_head(make)
        return self._resources[buffer.name]

    def low_bits(self, buffer: tile.Buffer) -> Value:
        """The low half of a parameter's address."""
        address = self.address(buffer)

        def low() -> Value:
            return self.f.cast("trunc", self.f.op(f"ptrtoint {address} to i64", I64), "i32")

        if self.is_shifted(buffer):
            return low()
        if buffer.name not in self._low:
            self._low[buffer.name] = self.threads.at_head(low)
        return self._low[buffer.name]

    def temporary(self, dtype: str, elements: int) -> tile.Buffer:
        """LDS to move data through, until the next temporary of its kind."""
        size = elements * self.types.bytes(dtype)
        if size <= _SMALL:
            self._turn ^= 1
            name = f"small.{self._turn}"
        else:
            name = "large"
        self._sizes[name] = max(size, self._sizes.get(name, 0))
        self._addresses[name] = Value(LDS, f"@{name}")
        return tile.Buffer(name, dtype, "scratch", elements)

    def reserved(self, nbytes: int) -> tile.Buffer:
        """LDS that one operation of a block has for itself, or takes in turn with others."""
        name = f"own.{self.reservations % self._places if self._places else self.reservations}"
        self.reservations += 1
        self._sizes[name] = max(nbytes, self._sizes.get(name, 0))
        self._addresses[name] = Value(LDS, f"@{name}")
        return tile.Buffer(name, "u8", "scratch", nbytes)

    def shared(self, name: str, nbytes: int) -> tile.Buffer:
        """LDS that several operations of the kernel use."""
        self._sizes[name] = max(nbytes, self._sizes.get(name, 0))
        self._addresses[name] = Value(LDS, f"@{name}")
        return tile.Buffer(name, "u8", "scratch", nbytes)

    def temporaries(
        self, dtypes: Sequence[str], elements: int
    ) -> tuple[tile.Buffer, list[tile.Buffer]]:
        """LDS for a tile of each dtype: what accesses are noted of, and where each tile is."""
        if len(dtypes) == 1:
            buffer = self.temporary(dtypes[0], elements)
            return buffer, [buffer]
        sizes = [ceil_div(elements * self.types.memory(d).bits, 128) * 16 for d in dtypes]
        whole = self.temporary("u8", sum(sizes))
        buffers = []
        for i, dtype in enumerate(dtypes):
            part = tile.Buffer(f"{whole.name}.{i}", dtype, "scratch", elements)
            at = self.f.gep(self.address(whole), sum(sizes[:i]), Type("i8"))
            self._addresses[part.name] = at
            buffers.append(part)
        return whole, buffers

    def access(
        self,
        buffer: tile.Buffer,
        kind: Kind,
        pattern: object = None,
        values: tuple[int, ...] = (),
        store: int | None = None,
    ) -> None:
        """Other threads' accesses that this one has to come after are waited for."""
        lds = self.address(buffer).type == LDS
        noted = Access(buffer.name, kind, lds, pattern, values, store)
        self.barriers.access(noted, self.barrier_here())

    def barrier_here(self) -> Callable[[bool], None]:
        """Writes a barrier at this place of the function, later."""
        lines, suffix = self.f.lines, self.f.suffix
        lines.append("")
        at = len(lines) - 1

        def write(only_lds: bool) -> None:
            barrier: list[str] = []
            with self.f.inserting_into(barrier):
                self.f.suffix = suffix
                self.isa.barrier(self.f, self.waves, only_lds)
            lines[at] = "\n  ".join(barrier)

        return write


def _define(module: Module, name: str, size: int) -> None:
    definition = f"internal addrspace(3) global [{size} x i8] poison, align 16"
    module.add_global(name, definition)
