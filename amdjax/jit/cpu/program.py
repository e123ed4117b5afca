"""A compiled program: machine instructions, kernels, and how to run them on arrays."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from struct import Struct
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np

from amdjax.codegen.engine import Library, host
from amdjax.core.array import ConcreteArray, PlacedArray
from amdjax.core.collector import rare_collections
from amdjax.core.config import config
from amdjax.core.dims import at_sizes
from amdjax.core.dtypes import float0
from amdjax.core.integers import round_up
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.arrays import (
    Runner,
    SizedRunner,
    host_buffer,
    is_sole_owner,
    on_host,
    require_buffers,
)
from amdjax.jit.constants import computed_once
from amdjax.jit.cpu.code import Code
from amdjax.jit.cpu.kernels import SYMBOL, cpu_kernels
from amdjax.jit.dispatch import NativeCall
from amdjax.jit.dump import dumping
from amdjax.jit.instructions import ALIGN, Kept, Plan, View, Zeros
from amdjax.jit.kept_constants import keep_constants, kept_constants, kept_key
from amdjax.jit.kernels import KernelLoader
from amdjax.jit.stored_variants import StoredVariant
from amdjax.runtime import amx, threads, vm
from amdjax.runtime.devices import Placement
from amdjax.runtime.memory import Buffer, BufferPart, buffer_pool
from amdjax.targets.cpu import CpuTarget

SHARE_UP_TO = 1024  # bytes of a result that may share its allocation with others


def cpu_target() -> CpuTarget:
    """The machine this process runs on, with the threads it may use."""
    machine = host()
    return CpuTarget(
        machine.vector_bits, threads.num_threads(), machine.l1d_bytes, machine.l2_bytes,
        machine.l3_bytes, dot_dtypes=machine.dot_dtypes, matrix_dtypes=amx.dtypes(),
    )  # fmt: skip


def plan_program(*args: Any) -> Plan:
    """`jit.plan.plan_program`."""
    # late: programs whose plans are kept need nothing that plans
    from amdjax.jit import plan

    return plan.plan_program(*args)


@rare_collections
def compile_for_cpu(
    closed: ClosedJaxpr,
    donated: Sequence[bool] = (),
    observe: Callable[[str, Any], None] = lambda stage, x: None,
) -> CpuProgram:
    """Compile a program for the CPU."""
    return CpuProgram(_compiled(closed, donated, observe))


@rare_collections
def compile_sized_for_cpu(closed: ClosedJaxpr, donated: Sequence[bool] = ()) -> LoadedPlan:
    """Compile a program whose dimensions are symbolic with sizes at hand."""
    loader = cpu_kernels()
    plan, libraries = _planned(closed, donated, lambda stage, x: None, loader)
    written = loader.written(plan, closed.consts)  # which loading changes
    return LoadedPlan(closed.out_avals, plan, libraries, written)


def read_sized_for_cpu(
    closed: ClosedJaxpr, donated: Sequence[bool]
) -> list[tuple[StoredVariant, LoadedPlan]]:
    """The variants that come with a program, as `KernelLoader.variants` finds them."""
    return [
        (variant, LoadedPlan(out_avals, variant.stored.plan, kernels))
        for variant, out_avals, kernels in cpu_kernels().variants(closed, donated, cpu_target())
    ]


def plan_for_cpu(
    closed: ClosedJaxpr, donated: Sequence[bool], observe: Callable[[str, Any], None]
) -> Plan:
    """The plan of a program as it is run, whether or not one is kept."""
    plan = plan_program(closed, cpu_target(), donated, observe)
    return computed_once(plan)[0]


def _compiled(
    closed: ClosedJaxpr, donated: Sequence[bool], observe: Callable[[str, Any], None]
) -> LoadedPlan:
    """The plan of a program, and its kernels."""
    loader = cpu_kernels()
    key = loader.key(closed, donated, cpu_target())
    made = None if key is None else loader.read(key, closed.consts)
    if made is None:
        made = _planned(closed, donated, observe, loader)
        if key is not None:
            loader.keep(key, made[0], closed.consts)
    kept = None if loader.is_recording else lambda: kept_key(key, closed)
    return LoadedPlan(closed.out_avals, *made, kept=kept)


def _planned(
    closed: ClosedJaxpr, donated: Sequence[bool], observe: Callable[[str, Any], None],
    loader: KernelLoader[Library],
) -> tuple[Plan, dict[int, Library]]:  # fmt: skip
    """The same, whether or not a plan is kept."""
    try:
        with dumping(config.dump, closed, observe) as observe:
            plan = plan_program(closed, cpu_target(), donated, observe, loader)
            observe("plan", plan)
            return plan, loader.load()
    except BaseException:
        loader.cancel()
        raise


class LoadedPlan:
    """A plan and its machine code: what the programs of all sizes share.

    Args:
      out_avals: types of the results.
      plan: the plan, of which dimensions may be symbolic.
      libraries: its kernels, by their ids.
      written: the plan as data, if it is wanted.
      kept: tells under what it is kept on disk what is computed of constants once, if anywhere.
    """

    def __init__(
        self, out_avals: Sequence[Any], plan: Plan, libraries: dict[int, Library],
        written: bytes | None = None, kept: Callable[[], bytes | None] | None = None,
    ):  # fmt: skip
        self.written, self._kept = written, kept
        plan, first = computed_once(plan)
        self.plan, self.libraries = plan, libraries
        addresses = {number: library[SYMBOL] for number, library in libraries.items()}
        self.code = Code(plan, addresses, out_avals)
        used = _used(plan)
        self.constants = [
            _constant(x) if slot in used and not isinstance(x, Zeros | Kept) else None
            for slot, x in enumerate(plan.constants, plan.constants_at)
        ]
        self._preparation = None if first is None else (first, Code(first, addresses, ()))
        self._lock = Lock()

    def at(self, sizes: Mapping[str, int]) -> CpuProgram:
        """The program for sizes, of which the guards of the scope have to hold."""
        return CpuProgram(self, sizes)

    def prepare(self) -> None:
        """Compute what is kept, once: threads that come meanwhile wait for it."""
        if self._preparation is None:
            return
        with self._lock:
            if self._preparation is not None:
                self._prepare(*self._preparation)
                self._preparation = None

    def _prepare(self, first: Plan, code: Code) -> None:
        """Have what is kept, from the disk or computed."""
        plan, key = self.plan, None if self._kept is None else self._kept()
        places = [i for i, x in enumerate(plan.constants) if isinstance(x, Kept)]
        sizes = [plan.constants[i].nbytes for i in places]
        found = None if key is None else kept_constants(key, sizes)
        if found is None:
            made = [buffer_pool().alloc(n) for n in sizes]
            known = {i: (b.address, b) for i, b in zip(places, made)}
            for slot in _used(first):
                i = slot - plan.constants_at
                if i not in known and not isinstance(plan.constants[i], Zeros):
                    known[i] = self.constants[i] or _constant(plan.constants[i], once=True)
            self._run(code, known)
            if key is not None:
                keep_constants(key, made)
        else:
            made = list(map(Buffer.from_numpy, found))
        for i, buffer in zip(places, made):
            self.constants[i] = buffer.address, buffer

    def _run(self, code: Code, constants: Mapping[int, tuple[int, Any]]) -> None:
        """Run what takes nothing but constants, of which these are there."""
        slots = self.plan.constants_at
        fixed = {slots + i: (vm.ZERO, address) for i, (address, _) in constants.items()}
        words = code.words({}, (), (), fixed, ())
        vm.run_program()(Struct(f"={slots + 1}q").pack(words.buffer_info()[0], *[0] * slots))

    def runner(self, make: Callable[[CpuProgram], Runner]) -> SizedRunner:
        """The program as a function of sizes; `make` makes of each instance one of arrays."""
        code = lambda kernel: self.libraries[id(kernel)]
        identity, launches = self.plan.identity(code), self.plan.launches(code)
        peaks, aliases = self.plan.peaks, list(self.plan.aliases)
        at = lambda sizes: make(self.at(sizes))
        return SizedRunner(at, identity, launches, peaks, aliases, self.written)


class CpuProgram:
    """Runs a plan on concrete arrays.

    What is common (one result, or many small ones) has a closure of its own, since attribute
    look-ups are much of what a small call costs. It keeps the memory that it uses, not this
    object: the arrays that a program holds go when it is dropped, without a garbage collection.

    Args:
      loaded: the plan and its machine code.
      sizes: of the variables of its dimensions.
    """

    def __init__(self, loaded: LoadedPlan, sizes: Mapping[str, int] = MappingProxyType({})):
        loaded.prepare()
        code, plan = loaded.code, loaded.plan
        values = code.values(sizes)
        self.plan, self.out_avals = plan, code.results(sizes, values)
        self.sizes = [a.nbytes for a in self.out_avals]
        hosts = [call.at(sizes) for call in plan.hosts] if sizes else plan.hosts
        self._hosts = [self._host_call(fn, i) for i, fn in enumerate(hosts)]
        self._constants = [
            _constant(np.zeros(at_sizes(x.nbytes, sizes), np.uint8))
            if isinstance(x, Zeros)
            else known or (0, None)
            for known, x in zip(loaded.constants, plan.constants)
        ]
        self._shared = None if plan.aliases else _shared_layout(self.sizes)
        self._arena_bytes, offsets = code.arena(values)
        self._code = code.words(sizes, values, offsets, self._fixed(), self._hosts)
        self._native, self._alloc = vm.run_program(), buffer_pool().alloc
        self._without_data = [i for i, t in enumerate(self.out_avals) if t.dtype == float0]
        self.starts, self.targets = code.starts, code.targets
        self._held = loaded.libraries, self._hosts, self._constants, self._code
        self._closure = self._choose_closure()

    @property
    def run(self) -> Runner:
        """The program as a function of arrays that have the avals it was compiled for."""
        return self._closure or self._run_general

    @cached_property
    def native(self) -> NativeCall | None:
        """How it is run without Python; None where Python has a part in it."""
        plan = self.plan
        if plan.hosts or self._without_data:
            return None
        whole, places = self._shared or (None, [(0, n) for n in self.sizes])
        results = [(t, n, at) for t, (at, n) in zip(self.out_avals, places, strict=True)]
        code = self._code.buffer_info()[0]
        return NativeCall(
            code,
            1 + plan.constants_at,
            self._arena_bytes,
            results,
            whole,
            self._held,
            aliases=plan.aliases,
        )

    def _fixed(self) -> dict[int, tuple[int, int]]:
        """Slots whose address is known from that in another one: (that slot, bytes behind it)."""
        plan = self.plan
        fixed = {plan.constants_at + i: (vm.ZERO, a) for i, (a, _) in enumerate(self._constants)}
        if self._shared is not None:
            for i, (offset, _) in enumerate(self._shared[1]):
                fixed[plan.outputs + i] = plan.outputs, offset
        return fixed

    def _host_call(self, fn: Callable[[list[int]], None], i: int) -> Callable[[int], None]:
        """What the machine calls with the place of the addresses."""
        count = [w.words[1] for w in self.plan.instructions if w.opcode == vm.HOST][i]
        addresses = ctypes.c_int64 * count
        return lambda place: fn(addresses.from_address(place)[:])

    def __call__(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """Run on arrays from anywhere that have the avals the program was compiled for."""
        return self.run([on_host(x) for x in args])

    def runner(self, placement: Placement | None) -> Runner:
        """The program as a function of arrays.

        Args:
          placement: what results get; None where all arguments are in host memory and results
            are committed to no device.
        """
        if placement is None:
            run: Any = self._closure or partial(self._run_general)
            run.native = self.native
            return run
        if not placement.committed:
            return self

        def placed(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
            return [
                PlacedArray(x.aval, x.buffer, placement) if isinstance(x, ConcreteArray) else x
                for x in self(args)
            ]

        if self.native is not None:
            placed.native = replace(self.native, placement=placement)  # type: ignore[attr-defined]
        return placed

    # The ways to run

    def _choose_closure(self) -> Runner | None:
        plan = self.plan
        if not (plan.aliases or self._arena_bytes or self._without_data):
            if self._shared is not None:
                return self._run_shared()
            if len(self.sizes) == 1:
                return self._run_single()
        self._pack = self._packer(len(self.sizes))
        return None

    def _packer(self, outputs: int) -> Callable[..., bytes]:
        """Packs `program, arena, zero, *inputs, *outputs`; other slots start as zeros."""
        plan = self.plan
        given = plan.outputs + outputs
        return Struct(f"={1 + given}q{8 * (plan.constants_at - given)}x").pack

    def _run_single(self) -> Runner:
        """One result, no workspace."""
        pack, native, alloc = self._packer(1), self._native, self._alloc
        code, aval, size = self._code.buffer_info()[0], self.out_avals[0], self.sizes[0]

        def run(args: Sequence[ConcreteArray], held: Any = self._held) -> list[ConcreteArray]:
            try:
                addresses = [a.buffer.address for a in args]
            except AttributeError:
                require_buffers(args)
                raise
            out = alloc(size)
            native(pack(code, 0, 0, *addresses, out.address))
            return [ConcreteArray(aval, out)]

        return run

    def _run_shared(self) -> Runner:
        """Small results in one allocation, no workspace."""
        assert self._shared is not None
        pack, native, alloc = self._packer(1), self._native, self._alloc
        code, (total, places) = self._code.buffer_info()[0], self._shared
        results = [(t, at, n) for t, (at, n) in zip(self.out_avals, places, strict=True)]
        new = object.__new__

        def run(args: Sequence[ConcreteArray], held: Any = self._held) -> list[ConcreteArray]:
            try:
                addresses = [a.buffer.address for a in args]
            except AttributeError:
                require_buffers(args)
                raise
            whole = alloc(total)
            start = whole.address
            native(pack(code, 0, 0, *addresses, start))
            outs = []
            for aval, at, n in results:
                # Written out: calling two constructors an array takes twice as long.
                part = new(BufferPart)
                part.whole, part.address, part.nbytes = whole, start + at, n
                out = new(ConcreteArray)
                out.aval, out.buffer = aval, part
                outs.append(out)
            return outs

        return run

    def _run_general(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        try:
            addresses = [a.buffer.address for a in args]
        except AttributeError:
            require_buffers(args)
            raise
        aliases, arena = self.plan.aliases, 0
        outs = self._allocate_aliased(args) if aliases else self._allocate()
        if self._arena_bytes:
            workspace = self._alloc(self._arena_bytes)
            arena = workspace.address
        call = self._pack(
            self._code.buffer_info()[0], arena, 0, *addresses, *[b.address for b in outs]
        )
        try:
            self._native(call)
        finally:  # a program that was interrupted may have written into them
            for i in aliases.values():
                args[i].buffer = None
        results: list[Any] = list(map(ConcreteArray, self.out_avals, outs))
        for i in self._without_data:
            results[i] = np.zeros(self.out_avals[i].shape, float0)
        return results

    def _allocate(self) -> list[Buffer]:
        """Memory for the results; many small ones share an allocation."""
        if self._shared is None:
            return list(map(self._alloc, self.sizes))
        total, places = self._shared
        whole = self._alloc(total)
        start = whole.address
        return [BufferPart(whole, start + offset, n) for offset, n in places]

    def _allocate_aliased(self, args: Sequence[ConcreteArray]) -> list[Buffer]:
        """Memory for the results, some of it that of donated arguments."""
        aliases = self.plan.aliases
        # Numbers, for another name of a buffer would be one more owner.
        places = [id(a.buffer) for a in args]
        uses = None if len(set(places)) == len(places) else Counter(places)
        outs = []
        for i, n in enumerate(self.sizes):
            if i not in aliases:
                outs.append(self._alloc(n))
                continue
            donor = args[aliases[i]]
            if (uses is None or uses[id(donor.buffer)] == 1) and is_sole_owner(donor):
                outs.append(donor.buffer)
            else:
                outs.append(self._copied(donor.buffer, n))
        return outs

    def _copied(self, source: Buffer, nbytes: int) -> Buffer:
        """The contents of a donated argument that others still see."""
        copy = self._alloc(nbytes)
        ctypes.memmove(copy.address, source.address, nbytes)
        return copy


def _shared_layout(sizes: Sequence[int]) -> tuple[int, list[tuple[int, int]]] | None:
    """Offsets of small results in one allocation; None where sharing would not pay."""
    if len(sizes) < 4 or max(sizes) > SHARE_UP_TO:
        return None
    places, at = [], 0
    for n in sizes:
        places.append((at, n))
        at += round_up(n, ALIGN)
    return at, places


def _used(plan: Plan) -> set[int]:
    """The slots of constants that a plan reads, or tells the address of."""
    views = (w for i in plan.instructions for w in i.words if isinstance(w, View))
    slots = {view.storage.slot for view in views}
    return {slot for slot in slots if slot is not None and slot >= plan.constants_at}


def _constant(x: Any, once: bool = False) -> tuple[int, Any]:
    """Address of a constant's contents, and what keeps them alive; `once` if they are read once."""
    if x.dtype == float0:
        return 0, None
    buffer = on_host(x).buffer if isinstance(x, ConcreteArray) else host_buffer(x)
    return buffer.held() if once else (buffer.address, buffer)
