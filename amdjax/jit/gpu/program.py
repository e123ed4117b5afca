"""A compiled program on a GPU: the plan's instructions, run by the machine that runs the CPU's.

The machine of `runtime/vm.py` calls the driver, so that the launches of a program, its loops
included, take one native call. Only a branch on what the device has computed, and a call of Python,
are steps in Python: the one reads the device, the other gets copies.

A program without such reads has nothing to decide: when it comes again with the same addresses it
is recorded as a graph, and replayed from then on.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core.array import ConcreteArray, PlacedArray
from amdjax.core.config import config
from amdjax.core.dtypes import float0
from amdjax.core.integers import round_up
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.sharding import Space
from amdjax.jit.arrays import Runner, SizedRunner, is_sole_owner
from amdjax.jit.dispatch import DeviceMemory, NativeCall
from amdjax.jit.dump import dumping
from amdjax.jit.gpu.code import DeviceCode, Operand, Places, decides
from amdjax.jit.gpu.graphs import Replays, is_capturable
from amdjax.jit.gpu.upload import buffer_on, shared_upload
from amdjax.jit.instructions import ALIGN, Instruction, Label, Plan, Storage, View, type_at
from amdjax.jit.offloading import is_issue
from amdjax.jit.stored_variants import StoredVariant
from amdjax.runtime import vm
from amdjax.runtime.devices import Placement
from amdjax.runtime.gpu import DeviceBuffer, GpuDevice

if TYPE_CHECKING:
    from amdjax.codegen.gpu.kernel import GpuKernel

Slots = np.ndarray  # of int64: the addresses and counters of one call
Step = Callable[[Slots], int]  # issues some work; returns the number of the next step

DONE = -1
FIRST = 1  # word of a call that is a slot, behind the address of a program


def compile_for_gpu(
    closed: ClosedJaxpr,
    device: GpuDevice,
    donated: Sequence[bool] = (),
    observe: Callable[[str, Any], None] = lambda stage, x: None,
) -> GpuProgram:
    """Compile a program for a device.

    Args:
      closed: the program.
      device: where it will run.
      donated: which arguments may be overwritten.
      observe: receives (stage, object) for every intermediate form.

    Raises:
      DeviceError: the device rejects a kernel.
    """
    # late: loads the generator for GPUs
    from amdjax.jit.gpu.kernels import compile_device

    with dumping(config.dump, closed, observe) as observe:
        plan, kernels = compile_device(closed, device.target, donated, observe, _by_line(device))
    return GpuProgram(closed.out_avals, plan, kernels, device)


@dataclass(frozen=True, eq=False)
class SizedGpuProgram:
    """A compiled program whose dimensions are symbolic; a device loads its kernels once.

    Attributes:
      out_avals: types of its results.
      plan: its instructions.
      kernels: what was compiled for the tile programs in the plan, by their ids.
      device: where it runs.
      written: the plan as data, if it is wanted.
    """

    out_avals: Sequence[Any]
    plan: Plan
    kernels: Mapping[int, GpuKernel]
    device: GpuDevice
    written: bytes | None = None

    def at(self, sizes: Mapping[str, int]) -> GpuProgram:
        """The program for sizes, of which the guards of the scope have to hold."""
        out_avals = [type_at(a, sizes) for a in self.out_avals]
        return GpuProgram(out_avals, self.plan.at(sizes), self.kernels, self.device)

    def runner(self, make: Callable[[GpuProgram], Runner]) -> SizedRunner:
        """The program as a function of sizes; `make` makes of each instance one of arrays."""
        # late: loads the generator for GPUs
        from amdjax.jit.gpu.kernels import sized_runner

        at = lambda sizes: make(self.at(sizes))
        return sized_runner(self.plan, self.kernels, self.written, at)


def compile_sized_for_gpu(
    closed: ClosedJaxpr, device: GpuDevice, donated: Sequence[bool] = ()
) -> SizedGpuProgram:
    """Compile a program for a device, whose dimensions are symbolic with sizes at hand.

    Raises:
      DeviceError: the device rejects a kernel.
    """
    # late: loads the generator for GPUs
    from amdjax.jit.gpu.kernels import compile_sized_device

    with dumping(config.dump, closed, lambda stage, x: None) as observe:
        plan, kernels, written = compile_sized_device(
            closed, device.target, donated, observe, _by_line(device)
        )
    return SizedGpuProgram(closed.out_avals, plan, kernels, device, written)


def read_sized_for_gpu(
    closed: ClosedJaxpr, device: GpuDevice, donated: Sequence[bool]
) -> list[tuple[StoredVariant, SizedGpuProgram]]:
    """The variants that come with a program, without its being planned; those that are whole."""
    # late: loads the generator for GPUs
    from amdjax.jit.gpu.kernels import read_sized_device

    return [
        (variant, SizedGpuProgram(out_avals, variant.stored.plan, kernels, device))
        for variant, out_avals, kernels in read_sized_device(closed, device.target, donated)
    ]


def _by_line(device: GpuDevice) -> bool:
    """Whether code says which tile op it comes from, which an emulator names if it is wrong."""
    return bool(config.dump) or device.platform == "emulated"


class GpuProgram:
    """Runs a plan on a device.

    Args:
      out_avals: types of its results.
      plan: its instructions.
      kernels: what was compiled for the tile programs in the plan, by their ids.
      device: where it runs.
    """

    def __init__(
        self, out_avals: Sequence[Any], plan: Plan, kernels: Mapping[int, Any], device: GpuDevice
    ):
        self.out_avals, self.plan, self.device = out_avals, plan, device
        self.sizes = [a.nbytes for a in self.out_avals]
        # Where memory is exact an emulator sees intermediates one by one, not a block of all.
        self._intermediates = _intermediates(plan) if device.exact_memory else []
        self._words = FIRST + plan.constants_at  # of a call, without these
        self._literals: DeviceBuffer | None = None
        self._failures = device.failures
        constants, self._kept = self._place_constants()
        apart = {id(s): plan.constants_at + i for i, s in enumerate(self._intermediates)}
        place = Places(plan, constants, apart)
        self._steps = _Steps(plan, kernels, device, place).steps if decides(plan) else None
        self._code = None if self._steps else DeviceCode(plan.instructions, kernels, device, place)
        self._replays = Replays() if is_capturable(plan, device) else None

    def _place_constants(self) -> tuple[list[int], list[Any]]:
        """The addresses of constants, and what keeps them alive."""
        slots = [0] * len(self.plan.constants)
        kept: list[Any] = []
        for i, x in enumerate(self.plan.constants):
            if isinstance(x, ConcreteArray):
                shared = shared_upload(x, self.device)
                slots[i] = shared.address
                kept += [shared, x.buffer]
        found = self._literal_values()
        if found:
            block, offsets = _packed(list(found.values()))
            self._literals = self.device.upload(block)
            for i, offset in zip(found, offsets, strict=True):
                slots[i] = self._literals.address + offset
        return slots, kept

    def _literal_values(self) -> dict[int, np.ndarray]:
        """Constants that are this program's alone, by their numbers; kernels count in some."""
        constants = enumerate(self.plan.constants)
        return {
            i: np.asarray(x)
            for i, x in constants
            if x.dtype != float0 and not isinstance(x, ConcreteArray)
        }

    def _restore_literals(self) -> None:
        """Write them again: where work failed or was interrupted, counters are not zero."""
        failures = self.device.failures
        if self._literals is not None:
            block, _ = _packed(list(self._literal_values().values()))
            self.device.write(self._literals.address, block)
        self._failures = failures

    def runner(self, placement: Placement) -> Runner:
        """The program as a function of arrays from anywhere; results get the placement."""
        plan, device, out_avals = self.plan, self.device, self.out_avals
        count, hosted = plan.outputs - plan.inputs, plan.hosted
        spaces = [Space.Host if i in hosted else Space.Device for i in range(count)]
        without_data = [i for i, t in enumerate(out_avals) if t.dtype == float0]
        first, words = FIRST + plan.inputs, self._words
        last = first + count + len(out_avals)  # results follow arguments

        def run(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
            in_place = self._in_place(args) if plan.aliases else frozenset()
            buffers = [buffer_on(x, device, space) for x, space in zip(args, spaces)]
            outs = self._allocate(args, buffers, in_place)
            call = array("q", bytes(8 * words))
            arena = device.alloc(plan.arena_bytes) if self._has_arena else None
            if arena is not None:
                call[FIRST + vm.ARENA] = arena.address
            call[first:last] = array("q", [b.address for b in (*buffers, *outs)])
            # What this frees, later work may use at once: work on a device is in order.
            try:
                self._issue(call.tobytes())
            finally:  # what has failed may have written into them
                for i in plan.aliases.values():
                    args[i].buffer = None
            results: list[Any] = [
                PlacedArray(t, b, placement) for t, b in zip(out_avals, outs, strict=True)
            ]
            for i in without_data:
                results[i] = np.zeros(out_avals[i].shape, float0)
            return results

        run.native = self._native(placement)  # type: ignore[attr-defined]
        return run

    @property
    def _has_arena(self) -> bool:
        return self.plan.arena_bytes > 0 and not self._intermediates

    def _native(self, placement: Placement) -> NativeCall | None:
        """How machine code calls it; None where Python has a part in it besides launches."""
        plan, device = self.plan, self.device
        elsewhere = any(t.dtype == float0 or t.memory_space is Space.Host for t in self.out_avals)
        if plan.hosted or elsewhere:
            return None
        results = [(t, n, 0) for t, n in zip(self.out_avals, self.sizes, strict=True)]
        arena = plan.arena_bytes if self._has_arena else 0
        memory, aliases = DeviceMemory(device), plan.aliases
        return NativeCall(
            0, self._words, arena, results, None, self, self._issue, placement, memory, aliases
        )

    def _in_place(self, args: Sequence[ConcreteArray]) -> frozenset[int]:
        """Donated arguments whose memory is not shared."""
        uses = Counter(id(a.buffer) for a in args)
        return frozenset(
            i
            for i in self.plan.aliases.values()
            if args[i].buffer is not None
            and uses[id(args[i].buffer)] == 1
            and is_sole_owner(args[i])
        )

    def _allocate(
        self,
        args: Sequence[ConcreteArray],
        buffers: Sequence[DeviceBuffer],
        in_place: frozenset[int],
    ) -> list[DeviceBuffer]:
        """Memory for the results, some of it that of donated arguments."""
        device, aliases = self.device, self.plan.aliases
        outs = []
        for i, nbytes in enumerate(self.sizes):
            donor, space = aliases.get(i), self.out_avals[i].memory_space
            if donor is None:
                outs.append(device.alloc(nbytes, space))
                continue
            buffer = buffers[donor]
            was_here = buffer is args[donor].buffer
            if not (donor in in_place if was_here else buffer.is_own):
                buffer = device.alloc(nbytes, space)
                device.copy(buffer.address, buffers[donor].address, nbytes)
            buffer.overwritten()
            outs.append(buffer)
        return outs

    def _issue(self, call: bytes) -> None:
        """Run on the memory that a call has the addresses of, behind the word of a program."""
        if self._failures != self.device.failures:
            self._restore_literals()
        plan, device = self.plan, self.device
        separate = [device.alloc(s.nbytes, s.space) for s in self._intermediates]
        slots = call[8 * FIRST :]
        if separate:
            slots += array("q", [b.address for b in separate]).tobytes()
        elif plan.host_bytes:
            in_host, at = device.alloc(plan.host_bytes, Space.Host), 8 * plan.host_slot
            slots = slots[:at] + array("q", [in_host.address]).tobytes() + slots[at + 8 :]
        if self._code is None:
            self._decide(np.frombuffer(slots, np.int64).copy())
        elif self._replays is None:
            self._code.run(slots)
        else:
            self._replay(self._code, slots, self._replays)

    def _decide(self, slots: Slots) -> None:
        steps, at = self._steps or [], 0
        while at != DONE:
            at = steps[at](slots)

    def _replay(self, code: DeviceCode, slots: bytes, replays: Replays) -> None:
        """Run what is worth a graph."""
        graph = replays.find(slots)
        if graph is None and replays.wants(slots):
            graph = self.device.capture(lambda: code.run(slots))
            if graph is not None:
                replays.keep(slots, graph)
        if graph is not None:
            self.device.replay(graph)
        else:
            code.run(slots)


def _packed(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """Arrays as one block of bytes, and where each begins."""
    offsets, at = [], 0
    for x in arrays:
        offsets.append(at)
        at += round_up(max(x.nbytes, 1), ALIGN)
    block = np.zeros(at, np.uint8)
    for x, offset in zip(arrays, offsets, strict=True):
        block[offset : offset + x.nbytes] = np.frombuffer(x.tobytes(), np.uint8)
    return block, offsets


def _value(operand: Operand, slots: Slots) -> int:
    """The address that an operand stands for now."""
    slot, offset, counter, stride = operand
    return int(slots[slot] + offset + slots[counter] * stride)


def _intermediates(plan: Plan) -> list[Storage]:
    """What a plan keeps in its arena."""
    views = (w for i in plan.instructions for w in i.words if isinstance(w, View))
    found = {id(v.storage): v.storage for v in views if v.storage.slot is None}
    return list(found.values())


class _Steps:
    """Turns the instructions of a plan that decides into steps."""

    def __init__(
        self, plan: Plan, kernels: Mapping[int, Any], device: GpuDevice, place: Places
    ):  # fmt: skip
        self.plan, self.kernels, self.device, self.place = plan, kernels, device, place
        self.starts = self._starts()
        self.steps = [self._step(*run) for run in self._runs()]

    def _starts(self) -> dict[int, int]:
        """The number of the step that begins at an instruction, by the instruction's number."""
        targets = {w.position for i in self.plan.instructions for w in _labels(i)}
        starts: dict[int, int] = {}
        joins = False
        for n, i in enumerate(self.plan.instructions):
            if n in targets or not (joins and is_issue(i)):
                starts[n] = len(starts)
            joins = is_issue(i)
        return starts

    def _runs(self) -> list[tuple[int, int]]:
        """First and last instruction of each step."""
        firsts = [*self.starts, len(self.plan.instructions)]
        return list(pairwise(firsts))

    def _step(self, first: int, last: int) -> Step:
        instructions = self.plan.instructions[first:last]
        following = self.starts.get(last, DONE)
        if is_issue(instructions[0]):
            return self._segment(instructions, following)
        build = _BUILDERS[instructions[0].opcode]
        return build(self, instructions[0].words, following)

    def _segment(self, instructions: Sequence[Instruction], following: int) -> Step:
        """Launches and copies with nothing between them that could change an address."""
        code = DeviceCode(instructions, self.kernels, self.device, self.place)

        def step(slots: Slots) -> int:
            code.run(slots.tobytes())
            return following

        return step

    def _halt(self, words: list[Any], following: int) -> Step:
        return lambda slots: DONE

    def _jump(self, words: list[Any], following: int) -> Step:
        target = self.starts[words[0].position]
        return lambda slots: target

    def _set(self, words: list[Any], following: int) -> Step:
        slot, number = words

        def step(slots: Slots) -> int:
            slots[slot] = number
            return following

        return step

    def _add(self, words: list[Any], following: int) -> Step:
        slot, number = words

        def step(slots: Slots) -> int:
            slots[slot] += number
            return following

        return step

    def _repeat(self, words: list[Any], following: int) -> Step:
        slot, number, label = words
        target = self.starts[label.position]
        return lambda slots: target if slots[slot] < number else following

    def _swap(self, words: list[Any], following: int) -> Step:
        a, b = words

        def step(slots: Slots) -> int:
            slots[a], slots[b] = int(slots[b]), int(slots[a])
            return following

        return step

    def _address(self, words: list[Any], following: int) -> Step:
        slot, operand = words[0], self.place(words[1])

        def step(slots: Slots) -> int:
            slots[slot] = _value(operand, slots)
            return following

        return step

    def _unless(self, words: list[Any], following: int) -> Step:
        operand, target, device = (
            self.place(words[0]),
            self.starts[words[1].position],
            self.device,
        )

        def step(slots: Slots) -> int:
            flag = np.empty(1, np.uint8)
            device.read(_value(operand, slots), flag)
            return following if flag[0] else target

        return step

    def _switch(self, words: list[Any], following: int) -> Step:
        operand, device = self.place(words[0]), self.device
        targets = [self.starts[label.position] for label in words[2:]]

        def step(slots: Slots) -> int:
            index = np.empty(1, np.int32)
            device.read(_value(operand, slots), index)
            return targets[min(max(int(index[0]), 0), len(targets) - 1)]

        return step

    def _host(self, words: list[Any], following: int) -> Step:
        call, device = self.plan.hosts[words[0]], self.device
        operands = [self.place(w) for w in words[2:]]
        reads, writes = operands[: len(call.in_avals)], operands[len(call.in_avals) :]

        def step(slots: Slots) -> int:
            arrays = [np.empty(t.shape, t.dtype) for t in call.in_avals]
            for operand, x in zip(reads, arrays, strict=True):
                device.read(_value(operand, slots), x)
            results = [np.empty(t.shape, t.dtype) for t in call.out_avals]
            call.run(arrays, results)
            for operand, x in zip(writes, results, strict=True):
                device.write(_value(operand, slots), x)
            return following

        return step


_BUILDERS: dict[int, Callable[[_Steps, list[Any], int], Step]] = {
    vm.HALT: _Steps._halt,
    vm.JUMP: _Steps._jump,
    vm.UNLESS: _Steps._unless,
    vm.SET: _Steps._set,
    vm.ADD: _Steps._add,
    vm.REPEAT: _Steps._repeat,
    vm.SWAP: _Steps._swap,
    vm.ADDRESS: _Steps._address,
    vm.SWITCH: _Steps._switch,
    vm.HOST: _Steps._host,
}


def _labels(i: Instruction) -> list[Label]:
    """The labels an instruction may jump to."""
    return [w for w in i.words if isinstance(w, Label)]
