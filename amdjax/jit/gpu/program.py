"""A compiled program on a GPU: the plan's instructions, run by Python.

The machine of `runtime/vm.py` runs a plan on the CPU in one native call. On a device the same
instructions are issued from here. What lies between two places where control flow goes on is a
`_Segment`: the addresses of all its launches are one sum of arrays, and the bytes of that are what
the kernels take. Loops count and exchange addresses on the host without waiting for the device; a
branch on what the device has computed reads it back, and a call of Python gets copies.

A program without such reads has nothing to decide: when it comes again with the same addresses it
is recorded as a graph, and replayed from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from amdjax import tile
from amdjax.core.array import ConcreteArray, PlacedArray
from amdjax.core.config import config
from amdjax.core.dtypes import float0
from amdjax.core.integers import round_up
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.sharding import Space
from amdjax.jit.arrays import Runner, SizedRunner, is_sole_owner
from amdjax.jit.dump import dumping
from amdjax.jit.gpu.graphs import Replays, is_capturable
from amdjax.jit.gpu.upload import buffer_on, shared_upload
from amdjax.jit.instructions import ALIGN, Instruction, Label, Plan, Storage, View, type_at
from amdjax.jit.offloading import is_issue
from amdjax.jit.stored_variants import StoredVariant
from amdjax.runtime import vm
from amdjax.runtime.devices import Placement
from amdjax.runtime.gpu import DeviceBuffer, Function, GpuDevice

if TYPE_CHECKING:
    from amdjax.codegen.gpu.kernel import GpuKernel

Slots = np.ndarray  # of int64: the addresses and counters of one call
Step = Callable[[Slots], int]  # issues some work; returns the number of the next step

DONE = -1


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
        self._template = np.zeros(plan.slots + len(self._intermediates), np.int64)
        self._literals: DeviceBuffer | None = None
        self._failures = device.failures
        self._kept = self._place_constants()
        slots = {id(s): plan.slots + i for i, s in enumerate(self._intermediates)}
        self._steps = _Steps(plan, kernels, device, slots).steps
        self._replays = Replays() if is_capturable(plan, device) else None

    def _place_constants(self) -> list[Any]:
        """Write the addresses of constants into their slots; returns what keeps them alive."""
        slots = self._template[self.plan.constants_at :]
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
        return kept

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
        first, last = plan.inputs, plan.outputs + len(out_avals)  # results follow arguments
        count, hosted = plan.outputs - plan.inputs, plan.hosted
        spaces = [Space.Host if i in hosted else Space.Device for i in range(count)]
        without_data = [i for i, t in enumerate(out_avals) if t.dtype == float0]

        def run(args: Sequence[ConcreteArray]) -> list[ConcreteArray]:
            if self._failures != device.failures:
                self._restore_literals()
            in_place = self._in_place(args) if plan.aliases else frozenset()
            buffers = [buffer_on(x, device, space) for x, space in zip(args, spaces)]
            outs = self._allocate(args, buffers, in_place)
            slots = self._template.copy()
            separate = [device.alloc(s.nbytes, s.space) for s in self._intermediates]
            slots[plan.slots :] = [b.address for b in separate]
            arena = device.alloc(plan.arena_bytes) if plan.arena_bytes and not separate else None
            if arena is not None:
                slots[vm.ARENA] = arena.address
            in_host = None
            if plan.host_bytes and not separate:
                in_host = device.alloc(plan.host_bytes, Space.Host)
                slots[plan.host_slot] = in_host.address
            slots[first:last] = [b.address for b in (*buffers, *outs)]
            # What this frees, later work may use at once: work on a device is in order.
            self._issue(slots)
            for i in plan.aliases.values():
                args[i].buffer = None
            results: list[Any] = [
                PlacedArray(t, b, placement) for t, b in zip(out_avals, outs, strict=True)
            ]
            for i in without_data:
                results[i] = np.zeros(out_avals[i].shape, float0)
            return results

        return run

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

    def _issue(self, slots: Slots) -> None:
        replays = self._replays
        if replays is None:
            self._execute(slots)
            return
        key = slots.tobytes()
        graph = replays.find(key)
        if graph is None and replays.wants(key):
            graph = self.device.capture(lambda: self._execute(slots))
            if graph is not None:
                replays.keep(key, graph)
        if graph is not None:
            self.device.replay(graph)
        else:
            self._execute(slots)

    def _execute(self, slots: Slots) -> None:
        steps, at = self._steps, 0
        while at != DONE:
            at = steps[at](slots)


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


class _Operand(NamedTuple):
    """`slots[slot] + offset + slots[counter] * stride`; numbers and addresses alike."""

    slot: int
    offset: int
    counter: int
    stride: int

    def value(self, slots: Slots) -> int:
        """What the operand stands for now."""
        return int(slots[self.slot] + self.offset + slots[self.counter] * self.stride)


def _intermediates(plan: Plan) -> list[Storage]:
    """What a plan keeps in its arena."""
    views = (w for i in plan.instructions for w in i.words if isinstance(w, View))
    found = {id(v.storage): v.storage for v in views if v.storage.slot is None}
    return list(found.values())


class _Launch(NamedTuple):
    function: Function
    grid: int
    workgroup: int
    begin: int  # of its arguments among the words of the segment, in bytes
    end: int


class _Copy(NamedTuple):
    nbytes: int
    at: int  # of its two addresses among the words of the segment
    ticket: int | None = None  # of one that runs beside what follows, until that is awaited


class _Await(NamedTuple):
    ticket: int


_Item = _Launch | _Copy | _Await


class _Segment:
    """Launches and copies with nothing between them that could change an address."""

    def __init__(
        self, device: GpuDevice, items: Sequence[_Item], operands: Sequence[_Operand],
        following: int,
    ):  # fmt: skip
        table = np.array(operands, np.int64).reshape(len(operands), 4)
        self.device, self.items, self.following = device, list(items), following
        self.slot, self.offset = table[:, 0].copy(), table[:, 1].copy()
        self.advances = bool(table[:, 3].any())
        self.counter, self.stride = table[:, 2].copy(), table[:, 3].copy()

    def __call__(self, slots: Slots) -> int:
        words = slots[self.slot]
        words += self.offset
        if self.advances:
            words += slots[self.counter] * self.stride
        data = words.tobytes()
        device = self.device
        beside: dict[int, Any] = {}
        with device.lock:  # another thread may be recording a graph
            try:
                for item in self.items:
                    if isinstance(item, _Launch):
                        function, grid, workgroup, begin, end = item
                        device.launch(function, grid, workgroup, 0, data[begin:end])
                    elif isinstance(item, _Await):
                        device.await_copy(beside.pop(item.ticket, None))
                    else:
                        to, source = int(words[item.at]), int(words[item.at + 1])
                        if item.ticket is None:
                            device.copy(to, source, item.nbytes)
                        else:
                            copy = device.copy_beside(to, source, item.nbytes)
                            beside[item.ticket] = copy
            finally:
                for copy in beside.values():  # of a launch that failed
                    device.await_copy(copy)
        return self.following


class _Steps:
    """Turns the instructions of a plan into steps."""

    def __init__(
        self,
        plan: Plan,
        kernels: Mapping[int, Any],
        device: GpuDevice,
        storage_slots: Mapping[int, int],
    ):
        self.plan, self.kernels, self.device = plan, kernels, device
        self.storage_slots = storage_slots  # slots, by id, of storage that is not in the arena
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

    def _operand(self, view: View) -> _Operand:
        s = view.storage
        slot, start = self.storage_slots.get(id(s), s.slot), 0
        if slot is None:
            slot = vm.ARENA if s.space is Space.Device else self.plan.host_slot
            start = s.offset
        return _Operand(slot, start + view.offset, view.counter, view.stride)

    def _step(self, first: int, last: int) -> Step:
        instructions = self.plan.instructions[first:last]
        following = self.starts.get(last, DONE)
        if is_issue(instructions[0]):
            return self._segment(instructions, following)
        build = _BUILDERS[instructions[0].opcode]
        return build(self, instructions[0].words, following)

    def _segment(self, instructions: Sequence[Instruction], following: int) -> Step:
        items: list[_Item] = []
        operands: list[_Operand] = []
        for i in instructions:
            begin = len(operands)
            operands += [self._operand(w) for w in i.words if isinstance(w, View)]
            if i.opcode in (vm.COPY, vm.ASIDE):
                items.append(_Copy(i.words[2], begin, *i.words[3:]))
            elif i.opcode == vm.AWAIT:
                items.append(_Await(i.words[0]))
            elif i.opcode == vm.CALL:
                items.append(self._launch(i.words[0], i.words[1], operands, begin, len(operands)))
            for n, w in enumerate(i.words if i.opcode == vm.CALLS else ()):
                if isinstance(w, tile.Kernel):
                    grid, count = i.words[n + 1 : n + 3]
                    items.append(self._launch(w, grid, operands, begin, begin + count))
                    begin += count
        return _Segment(self.device, items, operands, following)

    def _launch(
        self, program: tile.Kernel, grid: int, operands: list[_Operand], begin: int, end: int
    ) -> _Launch:
        """The launch of a kernel on a range of operands."""
        kernel = self.kernels[id(program)]
        function = self.device.function(kernel)
        if kernel.cooperative:  # its first parameter says how many programs there are
            most = self.device.resident_workgroups(function, kernel.workgroup)
            grid = min(grid, max(most, 1))
            operands[begin] = operands[begin]._replace(offset=grid)
        return _Launch(function, grid, kernel.workgroup, 8 * begin, 8 * end)

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
        slot, operand = words[0], self._operand(words[1])

        def step(slots: Slots) -> int:
            slots[slot] = operand.value(slots)
            return following

        return step

    def _unless(self, words: list[Any], following: int) -> Step:
        operand, target, device = (
            self._operand(words[0]),
            self.starts[words[1].position],
            self.device,
        )

        def step(slots: Slots) -> int:
            flag = np.empty(1, np.uint8)
            device.read(operand.value(slots), flag)
            return following if flag[0] else target

        return step

    def _switch(self, words: list[Any], following: int) -> Step:
        operand, device = self._operand(words[0]), self.device
        targets = [self.starts[label.position] for label in words[2:]]

        def step(slots: Slots) -> int:
            index = np.empty(1, np.int32)
            device.read(operand.value(slots), index)
            return targets[min(max(int(index[0]), 0), len(targets) - 1)]

        return step

    def _host(self, words: list[Any], following: int) -> Step:
        call, device = self.plan.hosts[words[0]], self.device
        operands = [self._operand(w) for w in words[2:]]
        reads, writes = operands[: len(call.in_avals)], operands[len(call.in_avals) :]

        def step(slots: Slots) -> int:
            arrays = [np.empty(t.shape, t.dtype) for t in call.in_avals]
            for operand, array in zip(reads, arrays, strict=True):
                device.read(operand.value(slots), array)
            results = [np.empty(t.shape, t.dtype) for t in call.out_avals]
            call.run(arrays, results)
            for operand, array in zip(writes, results, strict=True):
                device.write(operand.value(slots), array)
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
