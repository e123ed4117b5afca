"""What instructions of a plan give a device to do, as programs of the machine of `runtime/vm`."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax import tile
from amdjax.core.config import config
from amdjax.core.sharding import Space
from amdjax.jit.instructions import Instruction, Label, Plan, View
from amdjax.runtime import vm
from amdjax.runtime.gpu import SUSPECTS, GpuDevice, Launches

Operand = tuple[int, int, int, int]  # as the machine takes it
DECIDING = frozenset((vm.UNLESS, vm.SWITCH, vm.HOST))  # what needs results of the device


@dataclass(frozen=True)
class Places:
    """Where the machine finds what a plan has in memory.

    Attributes:
      plan: the plan.
      constants: addresses of its constants.
      storage_slots: slots, by id, of storage that is not in the arena.
    """

    plan: Plan
    constants: Sequence[int]
    storage_slots: Mapping[int, int]

    @property
    def slots(self) -> int:
        """How many there are."""
        return self.plan.constants_at + len(self.storage_slots)

    def __call__(self, view: View) -> Operand:
        """The operand that a view is."""
        s, first = view.storage, self.plan.constants_at
        slot, start = self.storage_slots.get(id(s), s.slot), 0
        if slot is None:
            slot = vm.ARENA if s.space is Space.Device else self.plan.host_slot
            start = s.offset
        elif slot >= first and id(s) not in self.storage_slots:
            slot, start = vm.ZERO, self.constants[slot - first]
        return slot, start + view.offset, view.counter, view.stride


class DeviceCode:
    """Some instructions of a plan, none of them `DECIDING`, as one call.

    Args:
      instructions: the instructions.
      kernels: what was compiled for the tile programs in them, by their ids.
      device: where they run.
      place: where the machine finds views.
    """

    def __init__(
        self, instructions: Sequence[Instruction], kernels: Mapping[int, Any], device: GpuDevice,
        place: Places,
    ):  # fmt: skip
        self._otherwise = lambda: DeviceCode(instructions, kernels, device, place)
        self._waits = config.sync
        self._kernels, self._device, self._place = kernels, device, place
        self._launches = Launches(device)
        self._most = 1
        self._copies: dict[int, Any] = {}  # copies that run beside kernels, by their tickets
        starts, labels = [], list[tuple[int, Label]]()
        words = self._launches.words
        for i in instructions:
            starts.append(len(words))
            write = _WRITERS.get(i.opcode)
            if write is not None:
                write(self, i.words)
                continue
            words.append(i.opcode)
            for w in i.words:
                if isinstance(w, Label):
                    labels.append((len(words), w))
                words.extend(
                    place(w) if isinstance(w, View) else [0 if isinstance(w, Label) else w]
                )
        starts.append(len(words))
        for at, label in labels:
            words[at] = starts[label.position]
        self._program = self._launches.program(place.slots, self._most)
        self._head = array("q", [self._program.buffer_info()[0]]).tobytes()
        self._late = self._launches.late[-SUSPECTS:]

    def run(self, slots: bytes) -> None:
        """Run it on what slots hold.

        Raises:
          DeviceError: the device refuses something.
        """
        if config.sync != self._waits:
            self._otherwise().run(slots)
            return
        device, call, late = self._device, self._head + slots, self._late
        if not self._copies:
            device.run(call, late)
            return
        with device.lock:
            try:
                device.run(call, late)
            finally:
                for ticket in self._copies:  # of a launch that failed
                    self._await(ticket)

    def _copy(self, words: list[Any]) -> None:
        self._launches.copy(self._place(words[0]), self._place(words[1]), words[2])

    def _call(self, words: list[Any]) -> None:
        program, grid, *_ = words
        self._launch(program, grid, [w for w in words if isinstance(w, View)])

    def _calls(self, words: list[Any]) -> None:
        for n, w in enumerate(words):
            if isinstance(w, tile.Kernel):
                grid, count = words[n + 1 : n + 3]
                self._launch(w, grid, words[n + 3 : n + 3 + count])

    def _launch(self, program: tile.Kernel, grid: int, views: Sequence[View]) -> None:
        kernel, device = self._kernels[id(program)], self._device
        function, operands = device.function(kernel), list(map(self._place, views))
        if kernel.cooperative:  # its first parameter says how many programs there are
            most = device.resident_workgroups(function, kernel.workgroup)
            grid = min(grid, max(most, 1))
            slot, _, counter, stride = operands[0]
            operands[0] = slot, grid, counter, stride
        self._most = max(self._most, len(operands))
        self._launches.launch(function, grid, kernel.workgroup, 0, operands)

    def _aside(self, words: list[Any]) -> None:
        to, source, nbytes, ticket = words
        self._copies[ticket] = None

        def begin(place: int) -> None:
            there, here = (ctypes.c_int64 * 2).from_address(place)
            self._copies[ticket] = self._device.copy_beside(there, here, nbytes)

        self._python(begin, [self._place(to), self._place(source)])

    def _awaited(self, words: list[Any]) -> None:
        self._copies[words[0]] = None
        self._python(lambda _: self._await(words[0]), ())

    def _await(self, ticket: int) -> None:
        copy, self._copies[ticket] = self._copies[ticket], None
        self._device.await_copy(copy)

    def _python(self, function: Callable[[int], None], operands: Sequence[Operand]) -> None:
        self._most = max(self._most, len(operands))
        call = self._launches.call(function)
        self._launches.words.extend((vm.HOST, call, len(operands)))
        for operand in operands:
            self._launches.words.extend(operand)


_WRITERS: dict[int, Callable[[DeviceCode, list[Any]], None]] = {
    vm.CALL: DeviceCode._call,
    vm.CALLS: DeviceCode._calls,
    vm.COPY: DeviceCode._copy,
    vm.ASIDE: DeviceCode._aside,
    vm.AWAIT: DeviceCode._awaited,
}


def decides(plan: Plan) -> bool:
    """Whether what a plan does depends on what the device has computed."""
    return any(i.opcode in DECIDING for i in plan.instructions)
