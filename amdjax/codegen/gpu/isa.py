"""What differs between GPUs: the intrinsics for identifiers, lane permutes and barriers.

`isa_of(target)` is the table of one target. Everything else of the generator is the same for all.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from amdjax.codegen import llvm
from amdjax.codegen.gpu import amdgpu_object
from amdjax.codegen.llvm import I1, I32, I64, VOID, Function, Type, Value
from amdjax.codegen.pointwise import dot_words
from amdjax.targets import GpuTarget

#: In bytes, behind all buffers whose elements have numbers of 32 bits.
OUTSIDE = 1 << 31
#: Number of a byte that is zero, of those of two words; see `Isa.picked`.
ZERO_BYTE = 0x0C


@dataclass(frozen=True)
class Isa(ABC):
    """The table of one target. Lane permutes are of 32-bit words; see `by_words`."""

    target: GpuTarget

    @property
    def wave(self) -> int:
        return self.target.wave_size

    #: Lanes among which `partner` is one or two instructions of the vector unit.
    row = 16
    #: Convention of kernels; the scope of atomic operations, what follows those on floats.
    convention = ""
    atomic_metadata = ""
    device_scope = ""
    #: What the target runs as instructions (`llvm.Module`).
    native = frozenset({"bf16"})
    estimates: ClassVar[Mapping[str, str]]

    @property
    def passes_nan(self) -> bool:
        """Whether one instruction has the extremum of two floats, NaN if either is one."""
        return True

    #: Whether accesses add 32 bits without a sign to a scalar address by themselves.
    adds_offsets = False

    @property
    def argument_passing(self) -> str:
        """Attribute of a kernel's arguments."""
        return ""

    #: Pointer to a table of arguments, and how a kernel gets it: the arguments themselves.
    table: ClassVar[Type]
    table_passing = ""

    def table_load(self, f: Function) -> str:
        """What follows a load from a table of arguments, which is never written."""
        return f", !invariant.load {f.module.add_metadata('!{}')}"

    @abstractmethod
    def any(self, f: Function, *conditions: Value) -> Value:
        """Whether a condition holds in any lane of the wave, all of which are on."""

    def alignment(self, nbytes: int, element: int) -> int:
        """What an access of so many bytes needs, of elements of `element` bytes."""
        return min(nbytes, 16)

    @abstractmethod
    def attributes(self, workgroup: int) -> str:
        """Attributes of a kernel."""

    @abstractmethod
    def thread(self, f: Function) -> Value:
        """Number of the thread in its workgroup."""

    @abstractmethod
    def program(self, f: Function) -> Value:
        """Number of the workgroup in the grid."""

    @abstractmethod
    def uniform(self, f: Function, x: Value) -> Value:
        """A word that is the same in all lanes, known to be."""

    @abstractmethod
    def lane(self, f: Function, x: Value, lane: int) -> Value:
        """The word of one lane, in all of them."""

    @abstractmethod
    def partner(self, f: Function, x: Value, distance: int, settled: bool) -> Value:
        """The word of the lane whose number differs in the bit `distance`.

        `settled` says that lanes which differ in lower bits only hold the same word.
        """

    @property
    def has_row_broadcasts(self) -> bool:
        """Whether `before_rows` is there."""
        return False

    def before_rows(self, f: Function, x: Value, rows: int) -> Value:
        """In the last lane of twice so many rows, the word of the last one of those before."""
        raise NotImplementedError

    @abstractmethod
    def moved(self, f: Function, x: Value, distance: int, up: bool) -> Value:
        """The word of the lane `distance` below (`up`) or above; any word where there is none."""

    @abstractmethod
    def of_eight(self, f: Function, x: Value, lane: int) -> Value:
        """The word of one lane of each eight neighbors, in all of these."""

    def dot4(self, f: Function, a: Value, b: Value, acc: Value) -> Value:
        """`acc` and the products of four bytes each: those of `a` are unsigned, of `b` signed."""
        return dot_words(f, ("u8", "i8"), a, b, acc)

    @abstractmethod
    def bytes_of(self, f: Function, x: Value, y: Value, order: tuple[int, int, int, int]) -> Value:
        """A word of bytes of two; 0 to 3 are those of `x`, 4 to 7 those of `y`."""

    def picked(self, f: Function, low: Value, high: Value, selector: Value) -> Value:
        """As `bytes_of`, with the numbers of bytes in a word; that of a zero is `ZERO_BYTE`."""
        raise NotImplementedError

    #: Whether loads add offsets of 32 bits, one of each lane, to an address that all share.
    adds_offsets = False

    #: Whether `transposed_cells` is there.
    transposes_cells = False

    def transposed_cells(self, f: Function, address: Value) -> list[Value]:
        """Four words for each lane, of cells of eight elements of 16 bits, one of each lane.

        `address` is where the lane's own cell lies in LDS. Of the cells of eight lanes, taken as
        rows, word by word for each eight, a lane gets neighbors in one column: it is `lane // 4`,
        the rows are `lane % 4 * 2` and the next.
        """
        raise NotImplementedError

    @property
    def checks_bounds(self) -> bool:
        """Whether `resource`, `offset_if` and `load_bounded` are there."""
        return False

    def resource(self, f: Function, address: Value) -> Value:
        """What names memory of `OUTSIDE` bytes from an address on; loads behind it bring zeros."""
        raise NotImplementedError

    def offset_if(self, f: Function, guard: Value, offset: Value) -> Value:
        """An offset for `load_bounded`; `OUTSIDE` where a guard is false."""
        raise NotImplementedError

    def load_bounded(
        self, f: Function, kind: Type, resource: Value, offset: Value, more: int = 0
    ) -> Value:
        """Load from an offset in bytes, to which all lanes add `more`, with any alignment."""
        raise NotImplementedError

    def keep_lds_reads(self, f: Function, arithmetic: bool = False) -> None:  # noqa: B027
        """Reads of LDS stay on the side of this where they are written; a hint for LLVM.

        Arithmetic of vector lanes too, if asked for.
        """

    def begin_region(self, f: Function) -> None:  # noqa: B027
        """LLVM's scheduler moves nothing over this."""

    def computed_here(self, f: Function, x: Value) -> Value:
        """The same value, made here: LLVM may use it neither earlier nor compute it later."""
        return x

    @abstractmethod
    def barrier(self, f: Function, waves: int, only_lds: bool) -> None:
        """All threads' accesses of memory so far come before those behind the barrier."""

    def gather(self, f: Function, waves: int) -> None:
        """A barrier behind which `release` by one thread covers what all of them stored."""
        self.barrier(f, waves, only_lds=False)

    def release(self, f: Function) -> None:
        """Other workgroups see what was stored before what follows."""
        f.emit(f"fence {self.device_scope}release")

    def acquire(self, f: Function) -> None:
        """What follows sees what other workgroups released before."""
        f.emit(f"fence {self.device_scope}acquire")

    def pause(self, f: Function) -> None:  # noqa: B027
        """What a thread does between two looks at memory that another workgroup will change."""


def by_words(f: Function, x: Value, fn: Callable[[Value], Value]) -> Value:
    """Apply a permute of 32-bit words to a scalar of any type."""
    bits = x.type.bits
    if bits == 64:
        pair = f.bitcast(x, Type("i32", 2))
        low, high = (fn(f.extract(pair, i)) for i in range(2))
        joined = f.insert(f.insert(llvm.undef(pair.type), low, 0), high, 1)
        return f.bitcast(joined, x.type)
    raw = f.bitcast(x, Type(f"i{bits}"))
    word = raw if bits == 32 else f.cast("zext", raw, "i32")
    word = fn(word)
    return f.bitcast(word if bits == 32 else f.cast("trunc", word, raw.type.elem), x.type)


_QUAD_XOR_1, _QUAD_XOR_2, _QUAD_REVERSED = 0xB1, 0x4E, 0x1B
_ROW_ROR, _ROW_XMASK = 0x120, 0x160
_ROW_MIRROR, _ROW_HALF_MIRROR = 0x140, 0x141
#: The last lane of each row to the next row, and lane 31 to the two rows behind it.
_ROW_BROADCASTS = {1: 0x142, 2: 0x143}
_SWIZZLE_XOR_16 = 0x10 << 10 | 0x1F

#: What may cross a barrier for LLVM's scheduler: arithmetic of all kinds, and global memory.
_ALL_BUT_LDS = 0x7E
_NEITHER_LDS_NOR_LANES = 0x74


class Amdgcn(Isa):
    table = Type("ptr addrspace(4)")
    table_passing = "byref"
    convention = amdgpu_object.KERNEL_CONVENTION
    device_scope = 'syncscope("agent") '
    atomic_metadata = amdgpu_object.ATOMIC_METADATA
    native = frozenset({"bf16", "ldexp", "subnormal"})
    adds_offsets = True
    estimates: ClassVar = {
        "exp2": "llvm.amdgcn.exp2.f32", "log2": "llvm.amdgcn.log.f32",
        "rcp": "llvm.amdgcn.rcp.f32", "rsqrt": "llvm.amdgcn.rsq.f32",
        "median": "llvm.amdgcn.fmed3.f32",
    }  # fmt: skip

    @property
    def passes_nan(self) -> bool:
        return self.target.ieee_minmax

    @property
    def argument_passing(self) -> str:
        # LLVM puts in front of the kernel what loads them where firmware does not.
        return "inreg" if self.target.preloads_arguments else ""

    def any(self, f: Function, *conditions: Value) -> Value:
        # One by one, lest LLVM make numbers of what is no comparison, and compare these.
        lanes = Type(f"i{self.wave}")
        ballots = [f.intrinsic("amdgcn.ballot", lanes, x) for x in conditions]
        return f.icmp("ne", functools.reduce(f.or_, ballots), llvm.zero(lanes))

    def alignment(self, nbytes: int, element: int) -> int:
        return min(nbytes, 4)

    def attributes(self, workgroup: int) -> str:
        # Lest LLVM join elements of two bytes to dwords that are not aligned.
        features = '"target-features"="-unaligned-access-mode"'
        general = amdgpu_object.kernel_attributes(workgroup, grid_rank=1, workgroup_rank=1)
        return f"{general} {features}"

    def thread(self, f: Function) -> Value:
        return f.call("llvm.amdgcn.workitem.id.x", I32)

    def program(self, f: Function) -> Value:
        return f.call("llvm.amdgcn.workgroup.id.x", I32)

    def uniform(self, f: Function, x: Value) -> Value:
        return f.intrinsic("amdgcn.readfirstlane", I32, x)

    def lane(self, f: Function, x: Value, lane: int) -> Value:
        return f.intrinsic("amdgcn.readlane", I32, x, llvm.const(I32, lane), overload=[I32])

    def _dpp(self, f: Function, x: Value, control: int) -> Value:
        rows, banks = llvm.const(I32, 15), llvm.const(I32, 15)
        operands = (llvm.undef(I32), x, llvm.const(I32, control), rows, banks, llvm.const(I1, True))
        return f.intrinsic("amdgcn.update.dpp", I32, *operands)

    @property
    def _gcn(self) -> bool:
        return self.target.dpp_row_bcast

    @property
    def has_row_broadcasts(self) -> bool:
        return self._gcn

    def before_rows(self, f: Function, x: Value, rows: int) -> Value:
        return self._dpp(f, x, _ROW_BROADCASTS[rows])

    def partner(self, f: Function, x: Value, distance: int, settled: bool) -> Value:
        if distance <= 2:
            return self._dpp(f, x, _QUAD_XOR_1 if distance == 1 else _QUAD_XOR_2)
        if distance == 4 and settled:
            return self._dpp(f, x, _ROW_HALF_MIRROR)
        if distance == 4 and self._gcn:  # reversed within 8, then within 4
            return self._dpp(f, self._dpp(f, x, _ROW_HALF_MIRROR), _QUAD_REVERSED)
        if distance == 4:
            return self._dpp(f, x, _ROW_XMASK | 4)
        if distance == 8:
            return self._dpp(f, x, _ROW_MIRROR if settled else _ROW_ROR | 8)
        if distance == 16 and self._gcn:
            pattern = llvm.const(I32, _SWIZZLE_XOR_16)
            return f.call("llvm.amdgcn.ds.swizzle", I32, x, pattern)
        if distance == 16:
            low, high = llvm.const(I32, 0x76543210), llvm.const(I32, 0xFEDCBA98)
            flags = llvm.const(I1, True), llvm.const(I1, False)
            return f.intrinsic("amdgcn.permlanex16", I32, llvm.undef(I32), x, low, high, *flags)
        return self._permuted(f, x, f.xor(self._lane_number(f), llvm.const(I32, distance)))

    def of_eight(self, f: Function, x: Value, lane: int) -> Value:
        assert not self._gcn
        selector = llvm.const(I32, sum(lane << 3 * i for i in range(8)))
        return f.intrinsic("amdgcn.mov.dpp8", I32, x, selector)

    def moved(self, f: Function, x: Value, distance: int, up: bool) -> Value:
        step = llvm.const(I32, -distance if up else distance)
        return self._permuted(f, x, f.add(self._lane_number(f), step))

    def _lane_number(self, f: Function) -> Value:
        every, none = llvm.const(I32, -1), llvm.const(I32, 0)
        low = f.call("llvm.amdgcn.mbcnt.lo", I32, every, none)
        return low if self.wave == 32 else f.call("llvm.amdgcn.mbcnt.hi", I32, every, low)

    def _permuted(self, f: Function, x: Value, lane: Value) -> Value:
        """From any lane, through the crossbar of LDS."""
        return f.call("llvm.amdgcn.ds.bpermute", I32, f.shl(lane, llvm.const(I32, 2)), x)

    def dot4(self, f: Function, a: Value, b: Value, acc: Value) -> Value:
        names = {d.intrinsic for d in self.target.dots}
        flag = llvm.const(I1, False)
        if "llvm.amdgcn.sudot4" in names:
            name, signed = "llvm.amdgcn.sudot4", llvm.const(I1, True)
            return f.call(name, I32, flag, a, signed, b, acc, flag)
        if "llvm.amdgcn.sdot4" not in names:
            return super().dot4(f, a, b, acc)
        # As signed bytes `a` is too small by 128 throughout.
        name, ones = "llvm.amdgcn.sdot4", llvm.const(I32, 0x01010101)
        total = f.call(name, I32, ones, b, llvm.const(I32, 0), flag)
        acc = f.add(acc, f.shl(total, llvm.const(I32, 7)))
        return f.call(name, I32, f.xor(a, llvm.const(I32, 0x80808080)), b, acc, flag)

    def bytes_of(self, f: Function, x: Value, y: Value, order: tuple[int, int, int, int]) -> Value:
        selector = llvm.const(I32, sum(byte << 8 * i for i, byte in enumerate(order)))
        return self.picked(f, x, y, selector)

    def picked(self, f: Function, low: Value, high: Value, selector: Value) -> Value:
        return f.call("llvm.amdgcn.perm", I32, high, low, selector)

    def computed_here(self, f: Function, x: Value) -> Value:
        bits = max(x.type.lanes, 1) * x.type.bits
        if bits < 32:
            raw = f.bitcast(x, Type(f"i{bits}"))
            word = self.computed_here(f, f.cast("zext", raw, "i32"))
            return f.bitcast(f.cast("trunc", word, raw.type.elem), x.type)
        words = f.bitcast(x, I32.with_lanes(bits // 32 if bits > 32 else 0))
        words = f.op(f'call {words.type} asm sideeffect "", "=v,0"({words})', words.type)
        return f.bitcast(words, x.type)

    @property
    def checks_bounds(self) -> bool:
        return self.target.buffer_word is not None

    def resource(self, f: Function, address: Value) -> Value:
        assert self.target.buffer_word is not None
        stride, size = llvm.const(Type("i16"), 0), llvm.const(I64, OUTSIDE)
        parts = address, stride, size, llvm.const(I32, self.target.buffer_word)
        kind = Type("ptr addrspace(8)")
        return f.intrinsic("amdgcn.make.buffer.rsrc", kind, *parts, overload=[kind, address.type])

    def offset_if(self, f: Function, guard: Value, offset: Value) -> Value:
        at = f.select(guard, offset, llvm.const(I32, OUTSIDE))
        # LLVM would let accesses add constants to what is negative without them, which is OUTSIDE.
        return f.op(f'call i32 asm "", "=v,0"({at})', I32)

    def load_bounded(
        self, f: Function, kind: Type, resource: Value, offset: Value, more: int = 0
    ) -> Value:
        bits, scalar = max(kind.lanes, 1) * kind.bits, llvm.const(I32, 0)
        most = self.target.max_load_bytes
        if bits > 8 * most:
            half = kind.with_lanes(kind.lanes // 2)
            low, high = (
                self.load_bounded(f, half, resource, offset, more + at) for at in (0, bits // 16)
            )
            return f.shuffle(low, high, range(kind.lanes))
        if more < self.target.buffer_reach:
            offset = f.add(offset, llvm.const(I32, more)) if more else offset
        else:  # a scalar register, in place of an addition for each lane
            scalar = llvm.const(I32, more)
        words = Type(f"i{bits}") if bits <= 32 else Type("i32", bits // 32)
        operands = resource, offset, scalar, llvm.const(I32, 0)
        return f.bitcast(f.intrinsic("amdgcn.raw.ptr.buffer.load", words, *operands), kind)

    def keep_lds_reads(self, f: Function, arithmetic: bool = False) -> None:
        crossing = _NEITHER_LDS_NOR_LANES if arithmetic else _ALL_BUT_LDS
        f.call("llvm.amdgcn.sched.barrier", VOID, llvm.const(I32, crossing))

    def begin_region(self, f: Function) -> None:
        f.call("llvm.amdgcn.sched.barrier", VOID, llvm.const(I32, 0))

    def barrier(self, f: Function, waves: int, only_lds: bool) -> None:
        scope = "workgroup" if waves > 1 else "wavefront"
        spaces = ""
        if only_lds:  # stores to global memory may still be on their way
            node = f.module.add_metadata('!{!"amdgpu-synchronize-as", !"local"}')
            spaces = f", !mmra {node}"
        f.emit(f'fence syncscope("{scope}") release{spaces}')
        if waves > 1:
            # LLVM 22 drops the fence's own wait at the head of a loop whose end stores to LDS.
            self._wait_for_lds(f)
        f.call("llvm.amdgcn.s.barrier" if waves > 1 else "llvm.amdgcn.wave.barrier", VOID)
        f.emit(f'fence syncscope("{scope}") acquire{spaces}')

    def gather(self, f: Function, waves: int) -> None:
        # At barriers of a workgroup LLVM has no wave wait for its stores where all share an L1,
        # but they may reach the L2 behind those of the wave that then speaks for all.
        self._wait_for_memory(f)
        self.barrier(f, waves, only_lds=False)

    def release(self, f: Function) -> None:
        super().release(f)
        # LLVM waits for the L2 to be written back only where it knows of stores on their way.
        self._wait_for_memory(f)

    def pause(self, f: Function) -> None:
        f.call("llvm.amdgcn.s.sleep", VOID, llvm.const(I32, 1))

    def _wait_for_memory(self, f: Function) -> None:
        """Wait for loads and stores where one counter counts both; elsewhere LLVM does."""
        if self._gcn:
            f.call("llvm.amdgcn.s.waitcnt", VOID, llvm.const(I32, 0x0F70))

    def _wait_for_lds(self, f: Function) -> None:
        """Wait for the accesses of LDS so far; other counters are left at their most."""
        wait = self.target.lds_wait
        if wait is None:
            f.call("llvm.amdgcn.s.wait.dscnt", VOID, llvm.const(Type("i16"), 0))
        else:
            f.call("llvm.amdgcn.s.waitcnt", VOID, llvm.const(I32, wait))


class Nvptx(Isa):
    table = llvm.PTR
    table_passing = "byval"
    row = 32
    device_scope = 'syncscope("device") '
    convention = "ptx_kernel"
    transposes_cells = True  # from sm_75
    estimates: ClassVar = {
        "exp2": "llvm.nvvm.ex2.approx.ftz.f32", "log2": "llvm.nvvm.lg2.approx.ftz.f",
        "rcp": "llvm.nvvm.rcp.approx.ftz.f", "rsqrt": "llvm.nvvm.rsqrt.approx.ftz.f",
    }  # fmt: skip

    def attributes(self, workgroup: int) -> str:
        return f'nounwind "nvvm.reqntid"="{workgroup}"'

    def thread(self, f: Function) -> Value:
        return f.call("llvm.nvvm.read.ptx.sreg.tid.x", I32)

    def program(self, f: Function) -> Value:
        return f.call("llvm.nvvm.read.ptx.sreg.ctaid.x", I32)

    def uniform(self, f: Function, x: Value) -> Value:
        return x

    def any(self, f: Function, *conditions: Value) -> Value:
        x = functools.reduce(f.or_, conditions)
        return f.call("llvm.nvvm.vote.any.sync", I1, llvm.const(I32, -1), x)

    def _shuffled(self, f: Function, kind: str, x: Value, lane: int, clamp: int) -> Value:
        every = llvm.const(I32, -1)
        operands = every, x, llvm.const(I32, lane), llvm.const(I32, clamp)
        return f.call(f"llvm.nvvm.shfl.sync.{kind}.i32", I32, *operands)

    def lane(self, f: Function, x: Value, lane: int) -> Value:
        return self._shuffled(f, "idx", x, lane, 31)

    def partner(self, f: Function, x: Value, distance: int, settled: bool) -> Value:
        return self._shuffled(f, "bfly", x, distance, 31)

    def of_eight(self, f: Function, x: Value, lane: int) -> Value:
        return self._shuffled(f, "idx", x, lane, (32 - 8) << 8 | 31)

    def moved(self, f: Function, x: Value, distance: int, up: bool) -> Value:
        return self._shuffled(f, "up" if up else "down", x, distance, 0 if up else 31)

    def dot4(self, f: Function, a: Value, b: Value, acc: Value) -> Value:
        return f.call("llvm.nvvm.idp4a.u.s", I32, a, b, acc)

    def bytes_of(self, f: Function, x: Value, y: Value, order: tuple[int, int, int, int]) -> Value:
        selector = llvm.const(I32, sum(byte << 4 * i for i, byte in enumerate(order)))
        return f.call("llvm.nvvm.prmt", I32, x, y, selector)

    def transposed_cells(self, f: Function, address: Value) -> list[Value]:
        name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3"
        found = f.call(name, Type("{i32, i32, i32, i32}"), address)
        return [f.op(f"extractvalue {found}, {i}", I32) for i in range(4)]

    def barrier(self, f: Function, waves: int, only_lds: bool) -> None:
        if waves > 1:
            f.call("llvm.nvvm.barrier.cta.sync.aligned.all", VOID, llvm.const(I32, 0))
        else:
            f.call("llvm.nvvm.bar.warp.sync", VOID, llvm.const(I32, -1))


@cache
def isa_of(target: GpuTarget) -> Isa:
    """The table of a target."""
    return Amdgcn(target) if target.is_amdgpu else Nvptx(target)
