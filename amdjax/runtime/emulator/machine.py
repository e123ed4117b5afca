"""Running a kernel: its records, the initial state of its waves, the launch."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np

from amdjax.runtime.emulator import handlers as native, state
from amdjax.runtime.emulator.builder import Variant
from amdjax.runtime.emulator.code_object import Kernel
from amdjax.runtime.emulator.decode import Instruction, decoder
from amdjax.runtime.emulator.errors import EmulatorError, MemoryFault, UnknownInstruction
from amdjax.runtime.emulator.lower import Lowered, Wave, lower
from amdjax.runtime.emulator.memory import Memory

_FAULTS = {
    state.Status.OUT_OF_BOUNDS: "access outside every allocation",
    state.Status.MISALIGNED: "misaligned access",
    state.Status.LDS_OUT_OF_BOUNDS: "LDS access out of bounds",
    state.Status.SCRATCH_OUT_OF_BOUNDS: "scratch access out of bounds",
}
# Registers start with what no kernel means, so that one read too early shows.
_POISON = 0xDEADBEEF
_GROUPS_PER_THREAD = 32
# Float modes: round to nearest, denormals everywhere or everywhere but in f32.
_KEEP, _FLUSH = 0xF0, 0xC0


@dataclass
class Counters:
    """How many instructions waves ran, by mnemonic; `by_class` sums them up."""

    by_mnemonic: Counter[str] = field(default_factory=Counter)
    by_class: Counter[str] = field(default_factory=Counter)

    @property
    def instructions(self) -> int:
        """Instructions of all waves together."""
        return self.by_mnemonic.total()


class Program:
    """A kernel as records, ready to run."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.instructions: list[Instruction] = []
        self.problems: dict[int, str] = {}
        wave = Wave(
            kernel.isa, kernel.lanes, kernel.entry, kernel.accumulators, kernel.name,
            flushes=kernel.float_mode == _FLUSH,
        )  # fmt: skip
        lowered = self._decode(wave)
        addresses = native.HANDLERS.addresses(x.variant for x in lowered)
        self.records = np.zeros((len(lowered) + 1, state.RECORD // 8), np.uint64)
        self._targets: list[tuple[int, int]] = []
        index = {inst.pc: i for i, inst in enumerate(self.instructions)}
        for i, x in enumerate(lowered):
            row = self.records[i]
            row[state.HANDLER // 8] = addresses[x.variant]
            for slot, value in x.slots.items():
                row[state.SLOTS // 8 + slot] = value & 0xFFFFFFFFFFFFFFFF
            if x.target is not None:
                self._targets.append((i, index.get(x.target, len(lowered) - 1)))

    def _decode(self, wave: Wave) -> list[Lowered]:
        code, pc = self.kernel.code, 0
        lowered: list[Lowered] = []
        decode = decoder(self.kernel.isa).decode
        furthest = 0
        while pc < len(code):
            inst = Instruction("unknown", "", {}, pc, 4)
            try:
                inst = decode(code, pc)
                low = lower(wave, inst)
            except EmulatorError as error:
                # An error only if it is reached: constants may lie behind the code.
                word = int.from_bytes(code[pc : pc + 4], "little")
                self.problems[len(lowered)] = f"{error} (0x{word:08x})"
                low = self._unknown(wave)
            self.instructions.append(inst)
            lowered.append(low)
            furthest = max(furthest, low.target or 0)
            pc = inst.next_pc
            if inst.name == "s_endpgm" and furthest < pc:
                break
        # Where code runs off its end.
        self.problems[len(lowered)] = "the program counter left the kernel"
        self.instructions.append(Instruction("unknown", "", {}, pc, 4))
        lowered.append(self._unknown(wave))
        return lowered

    @staticmethod
    def _unknown(wave: Wave) -> Lowered:
        return Lowered(Variant("unknown", wave.isa, wave.lanes))

    def copy_of_records(self) -> np.ndarray:
        """Records with branches into the copy itself; counts start at zero."""
        records = self.records.copy()
        base = records.ctypes.data
        for i, target in self._targets:
            records[i, state.SLOTS // 8 + state.TARGET] = base + state.RECORD * target
        return records


@lru_cache(maxsize=256)
def _program(kernel: Kernel) -> Program:
    return Program(kernel)


class _Worker:
    """One thread's part of a launch: its own waves, LDS, scratch, records and context."""

    def __init__(self, launch: Launch, first: int, last: int) -> None:
        self.launch = launch
        kernel = launch.program.kernel
        self.records = launch.program.copy_of_records()
        lanes, waves = kernel.lanes, launch.waves
        self.context = np.zeros(8, np.uint64)
        table = launch.table
        self.context[:5] = (table.ctypes.data, len(table), 1, 0, launch.alignment_mask)
        self.lds = np.zeros(launch.lds_bytes + 64, np.uint8)
        self.scratch = np.zeros((waves, lanes, max(kernel.private_segment, 1)), np.uint8)
        self.template = self._template()
        backing = np.zeros(self.template.size + 16, np.uint32)
        skip = -backing.ctypes.data % 64 // 4
        self.states = backing[skip : skip + self.template.size]
        gx, gy, _ = launch.grid
        sgpr = kernel.user_sgpr_count
        places = []
        for enabled in kernel.workgroup_ids:
            # An id that is not asked for goes to the unused part of the header.
            places.append(state.SGPRS + 4 * sgpr if enabled else 128)
            sgpr += enabled
        self.block = np.zeros(native.LAUNCH_WORDS, np.uint64)
        self.block[:] = (
            self.states.ctypes.data, launch.state_bytes, waves, self.template.ctypes.data,
            self.lds.ctypes.data, launch.lds_bytes, gx, gy, first, last, *places, 0,
        )  # fmt: skip
        self.status = state.Status.RUNNING

    def _template(self) -> np.ndarray:
        """The waves of a workgroup as they start."""
        launch, kernel = self.launch, self.launch.program.kernel
        words = np.full((launch.waves, launch.state_bytes // 4), _POISON, np.uint32)
        words[:, : state.SGPRS // 4] = 0
        for w in range(launch.waves):
            row = words[w]
            wide = row[:32].view(np.uint64)
            wide[state.PC // 8] = self.records.ctypes.data
            row[state.LDS_SIZE // 4] = launch.lds_bytes
            row[state.SCRATCH_SIZE // 4] = kernel.private_segment
            row[state.MODE // 4] = kernel.float_mode
            wide[state.LDS // 8] = self.lds.ctypes.data
            wide[state.CONTEXT // 8] = self.context.ctypes.data
            wide[state.SCRATCH // 8] = self.scratch[w].ctypes.data
            self._registers(row[state.SGPRS // 4 :], w)
        return words.reshape(-1)

    def _registers(self, registers: np.ndarray, wave: int) -> None:
        launch, kernel = self.launch, self.launch.program.kernel
        for name, index in kernel.user_sgprs.items():
            value = launch.user_values.get(name, 0)
            count = {"private_segment_buffer": 4, "private_segment_size": 1}.get(name, 2)
            for i in range(count):
                registers[index + i] = value >> 32 * i & 0xFFFFFFFF
        x, y, z = launch.workgroup
        ids = wave * kernel.lanes + np.arange(kernel.lanes)
        active = int(((ids < x * y * z) << np.arange(kernel.lanes, dtype=object)).sum())
        registers[state.EXEC], registers[state.EXEC + 1] = active & 0xFFFFFFFF, active >> 32
        vgprs = registers[(state.VGPRS - state.SGPRS) // 4 :]
        packed = ids % x | ids // x % y << 10 | ids // (x * y) << 20
        vgprs[: kernel.lanes] = packed

    def run(self) -> None:
        driver = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(native.HANDLERS.driver)
        self.status = state.Status(driver(self.block.ctypes.data))

    def raise_fault(self) -> None:
        """Raise what stopped a wave, if anything did."""
        if self.status <= state.Status.BARRIER:
            return
        program, kernel = self.launch.program, self.launch.program.kernel
        wave = int(self.block[native.FAULTED]) - self.states.ctypes.data
        row = self.states[wave // 4 :]
        wide = row[:32].view(np.uint64)
        index = (int(wide[state.PC // 8]) - self.records.ctypes.data) // state.RECORD
        inst = program.instructions[index]
        lane = int(row[state.FAULT_LANE // 4].astype(np.int32))
        if self.status in _FAULTS:
            address = int(wide[state.FAULT_ADDRESS // 8])
            what = _FAULTS[self.status]
            raise MemoryFault(what, kernel.name, inst.name, inst.pc, lane, address)
        problem = program.problems.get(index)
        if problem is not None:
            raise UnknownInstruction(f"kernel {kernel.name}: {problem}")
        raise EmulatorError(f"kernel {kernel.name}: {inst.name} at +0x{inst.pc:x} was reached")


class Launch:
    """Arguments of one launch in the form the machine takes them."""

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        workgroup: tuple[int, int, int],
        kernarg: bytes,
        memory: Memory,
        shared_bytes: int,
        sanitize: bool,
    ) -> None:
        kernel = program.kernel
        self.program, self.grid, self.workgroup = program, grid, workgroup
        self.waves = -(-math.prod(workgroup) // kernel.lanes)
        registers = max(kernel.vgprs, kernel.accumulators if kernel.isa == "cdna3" else 0)
        self.state_bytes = state.VGPRS + 4 * kernel.lanes * registers
        self.lds_bytes = kernel.group_segment + shared_bytes
        self.alignment_mask = 0xFFFFFFFFFFFFFFFF if sanitize else 0
        self.kernarg = np.zeros(max(len(kernarg), kernel.kernarg_size, 8) + 64, np.uint8)
        self.kernarg[: len(kernarg)] = np.frombuffer(kernarg, np.uint8)
        self.packet = _dispatch_packet(grid, workgroup, kernel, self.lds_bytes)
        self.user_values = {
            "kernarg_segment_ptr": self.kernarg.ctypes.data,
            "dispatch_ptr": self.packet.ctypes.data,
            "private_segment_size": kernel.private_segment,
        }
        own = [(a.ctypes.data, a.ctypes.data + a.nbytes)
               for a in (self.kernarg, self.packet, kernel.image)]  # fmt: skip
        rows = np.concatenate([memory.table(), np.array(own, np.uint64)])
        self.table = np.ascontiguousarray(rows[np.argsort(rows[:, 0])])


def _dispatch_packet(
    grid: tuple[int, int, int], workgroup: tuple[int, int, int], kernel: Kernel, lds: int
) -> np.ndarray:
    """hsa_kernel_dispatch_packet_t as far as kernels read it."""
    packet = np.zeros(64, np.uint8)
    packet[4:10].view(np.uint16)[:] = workgroup
    sizes = [g * w for g, w in zip(grid, workgroup)]
    packet[12:32].view(np.uint32)[:] = (*sizes, kernel.private_segment, lds)
    return packet


def _three(shape: int | Sequence[int]) -> tuple[int, int, int]:
    values = (shape,) if isinstance(shape, int) else tuple(shape)
    x, y, z = (*values, 1, 1, 1)[:3]
    return x, y, z


def launch(
    kernel: Kernel,
    grid: int | Sequence[int],
    workgroup: int | Sequence[int],
    kernarg: bytes,
    memory: Memory,
    shared_bytes: int = 0,
    sanitize: bool = True,
) -> Counters:
    """Run a kernel over a grid and wait for its end.

    Args:
        kernel: one of `CodeObject.kernels`.
        grid: workgroups in x, y, z.
        workgroup: work-items of a workgroup in x, y, z.
        kernarg: the kernel argument segment, hidden arguments included.
        memory: what the kernel may access; its code object and arguments are added.
        shared_bytes: dynamic LDS behind the kernel's own.
        sanitize: also report misaligned accesses.

    Raises:
        MemoryFault: an access was out of bounds or misaligned.
        UnknownInstruction: execution reached code that cannot be emulated.
    """
    shape, items = _three(grid), _three(workgroup)
    _check(kernel, shape, items)
    program = _program(kernel)
    prepared = Launch(program, shape, items, kernarg, memory, shared_bytes, sanitize)
    groups = math.prod(shape)
    threads = max(1, min(os.cpu_count() or 1, groups // _GROUPS_PER_THREAD))
    bounds = [groups * i // threads for i in range(threads + 1)]
    workers = [_Worker(prepared, a, b) for a, b in pairwise(bounds)]
    others = [threading.Thread(target=w.run) for w in workers[1:]]
    for thread in others:
        thread.start()
    workers[0].run()
    for thread in others:
        thread.join()
    for worker in workers:
        worker.raise_fault()
    return _counted(program, workers)


def _check(kernel: Kernel, grid: tuple[int, int, int], workgroup: tuple[int, int, int]) -> None:
    if kernel.float_mode not in (_KEEP, _FLUSH):
        raise EmulatorError(
            f"kernel {kernel.name}: float mode 0x{kernel.float_mode:02x} is not emulated "
            "(round to nearest with all denormals, 0xf0, or without those of f32, 0xc0, are)"
        )
    if kernel.kernarg_preload:
        raise EmulatorError(f"kernel {kernel.name} wants preloaded arguments: no emulation")
    if not 0 < math.prod(workgroup) <= 1024 or math.prod(grid) < 0:
        raise EmulatorError(f"workgroup {workgroup} is not of 1 to 1024 work-items")


def _counted(program: Program, workers: list[_Worker]) -> Counters:
    counts = sum(w.records[:, state.COUNT // 8].astype(np.int64) for w in workers)
    counters = Counters()
    for inst, count in zip(program.instructions, np.asarray(counts).tolist()):
        if count:
            counters.by_mnemonic[inst.name] += count
            counters.by_class[_class_of(inst)] += count
    return counters


def _class_of(inst: Instruction) -> str:
    name, form = inst.name, inst.format
    if "mfma" in name or "wmma" in name:
        return "matrix"
    if form == "SOPP":
        return "branch" if "branch" in name else "control"
    if form.startswith("SOP"):
        return "salu"
    if form.startswith("VOP"):
        return "valu"
    return {"SMEM": "smem", "DS": "lds"}.get(form, "vmem")
