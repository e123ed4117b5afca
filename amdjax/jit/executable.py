"""A compiled program: machine instructions, kernels, and how to run them on arrays."""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.kernels  # noqa: F401  (registers the shaped kernels)
from amdjax.codegen import tile
from amdjax.codegen.engine import host
from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray
from amdjax.core.config import config
from amdjax.core.dtypes import float0
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.jit.kernels import load_kernels
from amdjax.jit.plan import ALIGN, Instruction, Label, Plan, Storage, View, nbytes_of, plan_program
from amdjax.runtime import threads, vm
from amdjax.runtime.memory import Buffer, BufferPart, buffer_pool
from amdjax.targets.cpu import CpuTarget

SHARE_UP_TO = 1024  # bytes of a result that may share its allocation with others
_HOST_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))


def cpu_target() -> CpuTarget:
    """The machine this process runs on, with the threads it may use."""
    machine = host()
    return CpuTarget(
        machine.vector_bits, threads.num_threads(), machine.l1d_bytes, machine.l2_bytes
    )


def compile_jaxpr(
    closed: ClosedJaxpr,
    donated: Sequence[bool] = (),
    observe: Callable[[str, Any], None] = lambda stage, x: None,
) -> Executable:
    """Compile a program for the CPU."""
    if config.dump:
        from amdjax.jit.dump import dumping

        with dumping(config.dump, closed, observe) as observe:
            return _compile(closed, donated, observe)
    return _compile(closed, donated, observe)


def _compile(
    closed: ClosedJaxpr, donated: Sequence[bool], observe: Callable[[str, Any], None]
) -> Executable:
    plan = plan_program(closed, cpu_target(), donated, observe)
    observe("plan", plan)
    return Executable(closed, plan)


class Executable:
    """Runs a plan on concrete arrays."""

    def __init__(self, closed: ClosedJaxpr, plan: Plan):
        self.in_avals, self.out_avals = closed.in_avals, closed.out_avals
        self.plan = plan
        self.sizes = [nbytes_of(a) for a in self.out_avals]
        kernels = plan.kernels()
        addresses, self._libraries = load_kernels(kernels)
        table = {id(k): a for k, a in zip(kernels, addresses, strict=True)}
        self._hosts = [self._host_call(fn, i) for i, fn in enumerate(plan.hosts)]
        words = _Encoder(plan.instructions, table, self._hosts).words()
        self._code = array("q", words)
        self._code_address = self._code.buffer_info()[0]
        self._most = max(
            [1, *(i.words[_COUNT_AT[i.opcode]] for i in plan.instructions if i.opcode in _COUNT_AT)]
        )
        self._constants = [_constant(x) for x in plan.constants]
        constant_addresses = [a for a, _ in self._constants]
        gap = plan.constants_at - plan.outputs - len(self.out_avals)
        self._tail = [0] * gap + constant_addresses
        self._run = vm.run_program()
        self._pool = buffer_pool()
        self._arena_bytes = plan.arena_bytes
        self._without_data = [i for i, t in enumerate(self.out_avals) if t.dtype == float0]
        self._shared = _shared_layout(self.sizes)
        self._error: BaseException | None = None

    def _host_call(self, fn: Callable[[list[int]], None], i: int) -> Any:
        count = [w.words[1] for w in self.plan.instructions if w.opcode == vm.HOST][i]

        def call(addresses: Any) -> int:
            try:
                fn(addresses[:count])
                return 0
            except BaseException as e:
                self._error = e
                return 1

        return _HOST_CALL(call)

    def __call__(self, args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
        """Run on arrays that have the avals the program was compiled for."""
        slots = [0, 0]
        try:
            slots += [a.buffer.address for a in args]
        except AttributeError:
            _require_buffers(args)
            raise
        outs = self._allocate() if not self.plan.aliases else self._allocate_aliased(args)
        slots += [b.address for b in outs]
        slots += self._tail
        if self._arena_bytes:
            arena = self._pool.alloc(self._arena_bytes)
            slots[0] = arena.address
        words = array("q", slots)
        if self._run(self._code_address, words.buffer_info()[0], self._most):
            error, self._error = self._error, None
            raise error if error is not None else RuntimeError("the compiled program failed")
        for i in self.plan.aliases.values():
            args[i].buffer = None
        results: list[Any] = [ConcreteArray(t, b) for t, b in zip(self.out_avals, outs)]
        for i in self._without_data:
            results[i] = np.zeros(self.out_avals[i].shape, float0)
        return results

    def _allocate(self) -> list[Buffer]:
        """Memory for the results; many small ones share an allocation."""
        if self._shared is None:
            alloc = self._pool.alloc
            return [alloc(n) for n in self.sizes]
        total, places = self._shared
        whole = self._pool.alloc(total)
        start = whole.address
        return [BufferPart(whole, start + offset, n) for offset, n in places]

    def _allocate_aliased(self, args: Sequence[ConcreteArray]) -> list[Buffer]:
        """Memory for the results, some of it that of donated arguments."""
        aliases = self.plan.aliases
        uses = Counter(id(a.buffer) for a in args)
        outs = []
        for i, n in enumerate(self.sizes):
            donor = args[aliases[i]] if i in aliases else None
            if donor is None:
                outs.append(self._pool.alloc(n))
            elif uses[id(donor.buffer)] == 1 and _is_sole_owner(donor):
                outs.append(donor.buffer)
            else:
                outs.append(self._copied(donor.buffer, n))
        return outs

    def _copied(self, source: Buffer, nbytes: int) -> Buffer:
        """The contents of a donated argument that others still see."""
        copy = self._pool.alloc(nbytes)
        ctypes.memmove(copy.address, source.address, nbytes)
        return copy


def _references(array: ConcreteArray) -> int:
    return sys.getrefcount(array.buffer)


_ALONE = _references(ConcreteArray(ShapedArray((), np.dtype("float32")), Buffer()))


def _is_sole_owner(array: ConcreteArray) -> bool:
    """Whether no NumPy view, constant or other array uses this array's memory, nor the caller's."""
    return array.buffer.is_own and _references(array) <= _ALONE


def _require_buffers(args: Sequence[ConcreteArray]) -> None:
    """Raise for an argument that was donated or deleted."""
    for a in args:
        if a.buffer is None:
            np.asarray(a)


def _shared_layout(sizes: Sequence[int]) -> tuple[int, list[tuple[int, int]]] | None:
    """Offsets of small results in one allocation; None where sharing would not pay."""
    if len(sizes) < 4 or max(sizes) > SHARE_UP_TO:
        return None
    places, at = [], 0
    for n in sizes:
        places.append((at, n))
        at += -(-n // ALIGN) * ALIGN
    return at, places


_COUNT_AT = {vm.CALL: 3, vm.HOST: 1}


def _constant(x: Any) -> tuple[int, Any]:
    """Address of a constant's contents, and what keeps them alive."""
    if x.dtype == float0:
        return 0, None
    if isinstance(x, ConcreteArray):
        return x.buffer.address, x.buffer
    buffer = buffer_pool().alloc(max(1, np.asarray(x).nbytes))
    contents = np.asarray(x)
    buffer.as_numpy(contents.shape, contents.dtype, writable=True)[...] = contents
    return buffer.address, buffer


class _Encoder:
    """Turns symbolic instructions into words."""

    def __init__(
        self, instructions: Sequence[Instruction], kernels: dict[int, int], hosts: Sequence[Any]
    ):
        self.instructions, self.kernels, self.hosts = instructions, kernels, hosts

    def words(self) -> list[int]:
        starts, at = [], 0
        for i in self.instructions:
            starts.append(at)
            at += 1 + sum(vm.OPERAND_WORDS if isinstance(w, View) else 1 for w in i.words)
        starts.append(at)
        out: list[int] = []
        for i in self.instructions:
            out.append(i.opcode)
            for n, w in enumerate(i.words):
                if isinstance(w, View):
                    out += self.operand(w)
                elif isinstance(w, Label):
                    out.append(starts[w.position])
                elif isinstance(w, tile.Kernel):
                    out.append(self.kernels[id(w)])
                elif i.opcode == vm.HOST and n == 0:
                    address = ctypes.cast(self.hosts[w], ctypes.c_void_p).value
                    assert address is not None
                    out.append(address)
                else:
                    out.append(int(w))
        return out

    @staticmethod
    def operand(view: View) -> list[int]:
        s: Storage = view.storage
        if s.slot is None:
            return [vm.ARENA, s.offset + view.offset, view.counter, view.stride]
        return [s.slot, view.offset, view.counter, view.stride]
