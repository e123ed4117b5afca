"""Running a kernel: the initial state of its waves, the launch, what went wrong."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from amdjax.core.integers import ceil_div, round_up
from amdjax.emulator import driver, handlers as native, state, trace
from amdjax.emulator.checks import Checks
from amdjax.emulator.code_object import Kernel
from amdjax.emulator.debug import counters as counting, timing
from amdjax.emulator.debug.counters import Counters
from amdjax.emulator.debug.scopes import Inlined, chain_text
from amdjax.emulator.errors import (
    DataRace,
    DivergentBarrier,
    EmulatorError,
    KernelFault,
    MemoryFault,
    MissingWait,
    Place,
    UninitializedRead,
    UnknownInstruction,
)
from amdjax.emulator.isa import ISAS
from amdjax.emulator.memory import shadow
from amdjax.emulator.memory.allocations import Memory
from amdjax.emulator.memory.write_log import CAPACITY
from amdjax.emulator.program import Program, program_of
from amdjax.runtime.environment import requested_threads
from amdjax.targets import Occupancy, get as get_target, occupancy

_MEMORY_FAULTS = {
    state.Status.OUT_OF_BOUNDS: (MemoryFault, "access outside every allocation, at"),
    state.Status.MISALIGNED: (MemoryFault, "misaligned access at"),
    state.Status.LDS_OUT_OF_BOUNDS: (MemoryFault, "LDS access out of bounds, at"),
    state.Status.SCRATCH_OUT_OF_BOUNDS: (MemoryFault, "scratch access out of bounds, at"),
    state.Status.UNINITIALIZED: (UninitializedRead, "read of memory that was not written, at"),
    state.Status.LDS_UNINITIALIZED: (UninitializedRead, "read of LDS that was not written, at"),
    state.Status.LDS_RACE: (DataRace, "race in LDS with {other}, at"),
    state.Status.RACE: (DataRace, "race in global memory with {other}, at"),
}
# Registers start with what no kernel means, so that one read too early shows.
_POISON = 0xDEADBEEF
# Work that is worth another thread.
_INSTRUCTIONS_PER_THREAD = 50_000
_TAGGED_WORKERS = 7
# Instructions of a wave without a barrier; half a minute of them.
_LONGEST = 1 << 31
_UNEVEN = (
    "waves of the workgroup wait at different barriers, and another that has ended came to fewer"
)
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
# Rounds of turns after which workgroups are asked whether they still get somewhere, and
# instructions of each in a turn in which it only looks whether others have.
_ROUNDS, _SPIN = 1024, 64
# Workgroups of a sample.
_LEAST_SAMPLED, _MOST_SAMPLED, _GOLDEN = 6, 64, (5**0.5 - 1) / 2
# Workgroups that are traced at most, and instructions of all of them together.
_MOST_TRACED, _TRACED_LENGTH = 8, 200_000
# The trap register with the number of the wave in its workgroup, from bit 25.
_TTMP_WAVE = 116


class _Worker:
    """One thread's part of a launch: its own waves, LDS, scratch, records and context."""

    def __init__(
        self, launch: Launch, number: int, first: int, last: int, traced: bool = False
    ) -> None:
        self.launch = launch
        self.words = np.empty(trace.CAPACITY if traced else 0, np.uint64)
        kernel = launch.program.kernel
        self.records = launch.program.records(Checks.WAITS in launch.checks, launch.cooperative)
        lanes, waves = kernel.lanes, launch.waves
        self.statistics = self._statistics()
        # Who is in no position to race keeps no log, and tags of a byte are too few for all.
        self.tag = (number + 1) << 5 if launch.has_races and number < _TAGGED_WORKERS else 0
        self.log = np.empty(2 * CAPACITY if self.tag else 2, np.uint64)
        self.context = self._context()
        self.lds, self.shadow_bytes = self._local_memory()
        self.scratch = np.zeros((waves, lanes, max(kernel.private_segment, 1)), np.uint8)
        self.template = self._template()
        backing = np.empty(self.template.size + 16, np.uint32)
        skip = -backing.ctypes.data % 64 // 4
        self.states = backing[skip : skip + self.template.size]
        self.block = np.zeros(driver.LAUNCH_WORDS, np.uint64)
        self._fill_block(first, last)
        self.status = state.Status.RUNNING

    def _statistics(self) -> np.ndarray | None:
        shape = len(self.records), state.STATISTICS_WORDS
        return np.zeros(shape, np.uint64) if self.launch.profile else None

    def _context(self) -> np.ndarray:
        context, table = np.zeros(16, np.uint64), self.launch.table
        context[state.RANGES // 8] = table.ctypes.data
        context[state.RANGE_COUNT // 8] = len(table)
        context[state.LAST_LOW // 8] = 1  # a range that holds nothing
        if Checks.ALIGNMENT in self.launch.checks:
            context[state.CHECK_ALIGNMENT // 8] = 0xFFFFFFFFFFFFFFFF
        context[state.RECORDS // 8] = self.records.ctypes.data
        context[state.LOG // 8] = self.log.ctypes.data
        if self.statistics is not None:
            context[state.STATISTICS // 8] = self.statistics.ctypes.data
            context[state.BANKS // 8] = self.launch.target.lds_banks
            context[state.TRACE // 8] = self.words.ctypes.data
            context[state.TRACE_END // 8] = self.words.ctypes.data + self.words.nbytes
        return context

    def _local_memory(self) -> tuple[np.ndarray, int]:
        """LDS and behind it its three shadows, as far as they are wanted."""
        launch = self.launch
        # Reads of the shadow's end may run over by less than a wave's worth.
        stride = round_up(launch.lds_bytes, 64) + 64
        shadows = (
            3 * bool(launch.lds_bytes) * bool(launch.checks & (Checks.UNWRITTEN | Checks.RACES))
        )
        return np.zeros(stride * (1 + shadows), np.uint8), stride

    def _shadow(self, check: Checks, index: int) -> int:
        """Address of a shadow of LDS, 0 where it is not wanted."""
        alone = check == Checks.RACES and not self.launch.has_races
        if check not in self.launch.checks or not self.launch.lds_bytes or alone:
            return 0
        return int(self.lds.ctypes.data) + index * self.shadow_bytes

    def _fill_block(self, first: int, last: int) -> None:
        launch, kernel, block = self.launch, self.launch.program.kernel, self.block
        gx, gy, _ = launch.grid
        block[: driver.ID_X] = (
            self.states.ctypes.data, launch.state_bytes, launch.waves, self.template.ctypes.data,
            self.lds.ctypes.data, launch.lds_bytes, gx, gy, first, last,
        )  # fmt: skip
        block[driver.ID_X : driver.ID_Z + 1] = kernel.id_places
        for word, size, check, index, count in (
            (driver.WRITTEN, driver.WRITTEN_BYTES, Checks.UNWRITTEN, 1, 1),
            (driver.RACES, driver.RACES_BYTES, Checks.RACES, 2, 2),
        ):
            if address := self._shadow(check, index):
                block[word], block[size] = address, count * self.shadow_bytes
        block[driver.LONGEST] = _LONGEST
        block[driver.CONTEXT] = self.context.ctypes.data
        block[driver.ONE_BARRIER] = Checks.BARRIERS in launch.checks

    def _template(self) -> np.ndarray:
        """The waves of a workgroup as they start."""
        launch, kernel = self.launch, self.launch.program.kernel
        words = np.full((launch.waves, launch.state_bytes // 4), _POISON, np.uint32)
        words[:, : state.SGPRS // 4] = 0
        for w in range(launch.waves):
            row = words[w]
            wide = row[:32].view(np.uint64)
            wide[state.PC // 8] = self.records.ctypes.data + state.RECORD * launch.program.first
            row[state.LDS_SIZE // 4] = launch.lds_bytes
            row[state.SCRATCH_SIZE // 4] = kernel.private_segment
            row[state.MODE // 4] = kernel.float_mode
            row[state.WAVE // 4] = w + 1
            row[state.TAG // 4] = self.tag | w if self.tag else 1
            row[state.READS_ATOMICS // 4] = launch.program.exchanges_in_lds
            row[state.READS_ANY // 4] = Checks.UNWRITTEN not in launch.checks
            wide[state.LDS // 8] = self.lds.ctypes.data
            wide[state.LDS_WRITTEN // 8] = self._shadow(Checks.UNWRITTEN, 1)
            wide[state.LDS_RACES // 8] = self._shadow(Checks.RACES, 2)
            wide[state.LDS_STRIDE // 8] = self.shadow_bytes
            wide[state.CONTEXT // 8] = self.context.ctypes.data
            wide[state.SCRATCH // 8] = self.scratch[w].ctypes.data
            wide[state.END // 8] = launch.state_bytes
            wide[state.CODE // 8] = launch.program.code_table.ctypes.data
            wide[state.CODE_START // 8] = kernel.entry
            wide[state.CODE_SIZE // 8] = len(kernel.code)
            self._registers(row[state.SGPRS // 4 :], w)
        return words.reshape(-1)

    def _registers(self, registers: np.ndarray, wave: int) -> None:
        launch, kernel = self.launch, self.launch.program.kernel
        for name, index in kernel.user_sgprs.items():
            value = launch.user_values.get(name, 0)
            count = {"private_segment_buffer": 4, "private_segment_size": 1}.get(name, 2)
            for i in range(count):
                registers[index + i] = value >> 32 * i & 0xFFFFFFFF
        if (preload := kernel.preload) is not None:
            given = launch.kernarg[4 * preload.first :][: 4 * preload.dwords].view(np.uint32)
            registers[preload.sgpr : preload.sgpr + preload.dwords] = given
        x, y, z = launch.workgroup
        first = wave * kernel.lanes
        active = (1 << max(0, min(kernel.lanes, x * y * z - first))) - 1
        registers[state.EXEC], registers[state.EXEC + 1] = active & 0xFFFFFFFF, active >> 32
        if kernel.scratch_offset_sgpr is not None:
            registers[kernel.scratch_offset_sgpr] = 0
        if ISAS[kernel.isa].ids_in_trap_registers:
            registers[_TTMP_WAVE] = wave << 25
        vgprs = registers[(state.VGPRS - state.SGPRS) // 4 :]
        items = np.arange(first, first + kernel.lanes)
        ids = [items % x, items // x % y, items // (x * y)]
        if ISAS[kernel.isa].packed_ids:
            ids = [ids[0] | ids[1] << 10 | ids[2] << 20]
        for i, values in enumerate(ids[: kernel.workitem_ids + 1]):
            vgprs[kernel.lanes * i : kernel.lanes * (i + 1)] = values

    def run(self, function: str = driver.RUN) -> None:
        """Run all workgroups; of one that takes turns, until a wave of it sleeps."""
        if self.words.size:
            function = driver.TRACED[function]
        run = _PROTOTYPE(native.HANDLERS.driver(function))
        self.status = state.Status(run(self.block.ctypes.data))

    @property
    def group(self) -> int:
        """The workgroup that it ran last."""
        return int(self.block[driver.GROUP])

    @property
    def followed(self) -> trace.Trace:
        """What the waves of its workgroup did, where it is traced."""
        written = (int(self.context[state.TRACE // 8]) - self.words.ctypes.data) // 8
        return trace.parse(self.words[:written], self.records.ctypes.data, self.launch.waves)

    @property
    def instructions(self) -> int:
        """How many were executed so far."""
        return int(self.records[:, state.COUNT // 8].sum())

    def raise_fault(self) -> None:
        """Raise what stopped a wave, if anything did."""
        if self.status <= state.Status.BARRIER or self.status == state.Status.ASLEEP:
            return
        wave = int(self.block[driver.FAULTED]) - self.states.ctypes.data
        row = self.states[wave // 4 :]
        wide = row[:32].view(np.uint64)
        index = (int(wide[state.PC // 8]) - self.records.ctypes.data) // state.RECORD
        if self.status == state.Status.DIVERGENT_BARRIER:
            index -= 1  # the wave goes on behind its barrier
        lane = int(row[state.FAULT_LANE // 4].astype(np.int32))
        place = self._place(index, wave // self.launch.state_bytes, lane)
        if self.status in _MEMORY_FAULTS:
            kind, what = _MEMORY_FAULTS[self.status]
            other = _other_wave(int(row[state.OTHER_WAVE // 4]))
            address = int(wide[state.FAULT_ADDRESS // 8])
            outside = self.status == state.Status.OUT_OF_BOUNDS
            if outside and self.launch.memory.was_released(address):
                what = "use of memory after its release, at"
            raise kind(what.format(other=other), place, address)
        raise self._stop(index, place)

    def raise_deadlock(self) -> None:
        """Raise that workgroups wait for each other."""
        statuses = self.states.reshape(self.launch.waves, -1)[:, state.STATUS // 4]
        wave = int(np.argmax(statuses == state.Status.ASLEEP))
        row = self.states.reshape(self.launch.waves, -1)[wave]
        index = int(row[:2].view(np.uint64)[0]) - self.records.ctypes.data
        place = self._place(index // state.RECORD - 1, wave, -1)
        raise KernelFault("workgroups wait for each other, and none goes on", place)

    def _stop(self, index: int, place: Place) -> EmulatorError:
        program = self.launch.program
        if self.status == state.Status.DIVERGENT_BARRIER:
            return DivergentBarrier(_UNEVEN, place)
        if (problem := program.problems.get(index)) is not None:
            return UnknownInstruction(f"kernel {place.kernel}: {problem}")
        if self.status == state.Status.UNKNOWN and index in program.waits.hazards:
            return MissingWait(program.waits.hazards[index].text, place)
        if self.status == state.Status.JUMP:
            return KernelFault("a jump to an address outside the kernel", place)
        if self.status == state.Status.ENDLESS:
            return KernelFault(f"a wave does not end: it ran {_LONGEST:,} instructions", place)
        return KernelFault("an instruction that ends the program with an error", place)

    def _place(self, index: int, wave: int, lane: int) -> Place:
        launch, program = self.launch, self.launch.program
        group = int(self.block[driver.GROUP])
        gx, gy, _ = launch.grid
        inst = program.instructions[index]
        of_lane = self.status in _MEMORY_FAULTS
        kernel = program.kernel
        return Place(
            kernel.name, program.text(index), inst.pc, kernel.source_of(inst.pc),
            chain_text(kernel.chain_of(inst.pc)),
            (group % gx, group // gx % gy, group // (gx * gy)), wave, lane if of_lane else -1,
        )  # fmt: skip


def _other_wave(mark: int) -> str:
    """What the shadow of LDS says of the other side of a race."""
    number = mark & (shadow.ATOMIC - 1)
    if mark in (shadow.SEVERAL, shadow.MANY):
        return "several waves"
    return f"wave {number - 1}" + (" (atomic)" if mark & shadow.ATOMIC else "")


class Launch:
    """Arguments of one launch in the form the machine takes them."""

    def __init__(
        self, kernel: Kernel, grid: int | Sequence[int], workgroup: int | Sequence[int],
        kernarg: bytes, memory: Memory, shared_bytes: int = 0, sanitize: Checks | bool = True,
        profile: bool = False,
        cooperative: bool = False,
    ) -> None:  # fmt: skip
        self.cooperative = cooperative
        self.grid, self.workgroup = _three(grid), _three(workgroup)
        _check(kernel, self.grid, self.workgroup)
        self.program, self.memory, self.checks = program_of(kernel), memory, Checks.of(sanitize)
        self.sample = None if cooperative or self._exchanges() else counting.sample_size()
        if counting.sample_size() is not None:
            self.checks &= ~Checks.UNWRITTEN  # what the workgroups left out would have written
        self.executed = math.prod(self.grid)
        self.target = get_target(kernel.gfx)
        self.waves = ceil_div(math.prod(self.workgroup), kernel.lanes)
        self.state_bytes = state.VGPRS + 4 * kernel.lanes * kernel.registers
        self.lds_bytes = kernel.group_segment + shared_bytes
        self.alike = self.program, self.grid, self.workgroup, self.lds_bytes
        self.traced = self.executed > 0 and timing.wants(self.alike)
        self.profile = profile or self.traced or counting.is_recording()
        self.has_races = Checks.RACES in self.checks and self.waves > 1
        self.kernarg = np.zeros(max(len(kernarg), kernel.kernarg_size, 8) + 64, np.uint8)
        self.kernarg[: len(kernarg)] = np.frombuffer(kernarg, np.uint8)
        self.packet = _dispatch_packet(self.grid, self.workgroup, kernel, self.lds_bytes)
        self.user_values = {
            "kernarg_segment_ptr": self.kernarg.ctypes.data,
            "dispatch_ptr": self.packet.ctypes.data,
            "private_segment_size": kernel.private_segment,
            "private_segment_buffer": 0xFFFFFFFF << 64 | state.SCRATCH_RESOURCE << 32,
        }
        self.table = self._table(memory)

    def _exchanges(self) -> bool:
        """Whether workgroups tell each other something by atomic operations."""
        names = (inst.name for inst in self.program.instructions)
        return any("atomic" in name and not name.startswith("ds_") for name in names)

    def _table(self, memory: Memory) -> np.ndarray:
        """Everything that the kernel may access, sorted."""
        own = [(a.ctypes.data, a.ctypes.data + a.nbytes, 0)
               for a in (self.kernarg, self.packet, self.program.kernel.image)]  # fmt: skip
        rows = np.concatenate([memory.table(), np.array(own, np.uint64)])
        if Checks.UNWRITTEN not in self.checks and not self.has_races:
            rows[:, 2] = 0
        return np.ascontiguousarray(rows[np.argsort(rows[:, 0])])

    def run(self) -> list[_Worker]:
        """Run the kernel and wait for its end; raises what `launch` does."""
        groups = math.prod(self.grid)
        if self.cooperative:
            return self._run_together(groups)
        if self.sample is not None:
            return self._run_sample(groups, self.sample)
        return self._run_whole(groups)

    def _run_whole(self, groups: int) -> list[_Worker]:
        """Run all workgroups; some from all over the grid are traced if that is wanted.

        They are as far apart as they can be and a little more, so that they are neither all of the
        beginning nor all the first of a row.
        """
        if not self.traced:
            return self._run_span(0, groups)
        # The first one, which is at the edge, says how long they are.
        workers = self._run_span(0, 1, traced=groups <= _MOST_TRACED)
        count = self._traces(groups)
        places = {(groups * (2 * i + 1) // (2 * count) + i) % groups for i in range(count)}
        for before, at in pairwise([0, *sorted(places - {0}), groups]):
            if at - before > 1:
                workers += self._run_span(before + 1, at)
            if at < groups:
                workers += self._run_span(at, at + 1, traced=True)
        return workers

    def _traces(self, groups: int) -> int:
        """How many workgroups should be traced, by what those before took."""
        length = self.waves * max(self.program.wave_cost, 1)
        return max(1, min(groups, _MOST_TRACED, _TRACED_LENGTH // length)) if self.traced else 0

    def _run_span(self, first: int, last: int, traced: bool = False) -> list[_Worker]:
        """Run neighboring workgroups, or one that is traced."""
        program, groups = self.program, last - first
        useful = min(groups, groups * self.waves * program.wave_cost // _INSTRUCTIONS_PER_THREAD)
        # Asking how many threads there may be reads files.
        threads = min(requested_threads(), useful) if useful > 1 else 1
        bounds = [first + groups * i // threads for i in range(threads + 1)]
        workers = [_Worker(self, i, a, b, traced) for i, (a, b) in enumerate(pairwise(bounds))]
        others = [threading.Thread(target=w.run) for w in workers[1:]]
        for thread in others:
            thread.start()
        workers[0].run()
        for thread in others:
            thread.join()
        for worker in workers:
            worker.raise_fault()
        instructions = sum(w.instructions for w in workers)
        program.wave_cost = instructions // max(groups * self.waves, 1)
        return workers

    def _run_sample(self, groups: int, instructions: int) -> list[_Worker]:
        """Run workgroups from all over the grid until they have done enough; all if that is less.

        A sequence by the golden ratio keeps to no row or column of a grid, however long it is.
        """
        if groups <= _LEAST_SAMPLED:
            return self._run_whole(groups)
        workers: list[_Worker] = []
        done: list[int] = []
        executed = 0
        for group in dict.fromkeys(int(groups * (i * _GOLDEN % 1)) for i in range(_MOST_SAMPLED)):
            is_little = executed * groups <= instructions * len(done)
            if len(done) >= _LEAST_SAMPLED and (is_little or executed >= instructions):
                break
            workers += self._run_span(group, group + 1, len(done) < self._traces(groups))
            done.append(group)
            executed += workers[-1].instructions
        self.executed = len(done)
        if executed * groups <= instructions * len(done):
            self.executed = groups
            for before, behind in pairwise([-1, *sorted(done), groups]):
                if behind - before > 1:
                    workers += self._run_span(before + 1, behind)
        return workers

    @property
    def resident(self) -> int:
        """How many workgroups of it the device holds at once."""
        return _occupancy(self).workgroups * self.target.lds_units

    def _run_together(self, groups: int) -> list[_Worker]:
        """Run workgroups that are resident together; each has its turn until it sleeps."""
        most = self.resident
        if groups > most:
            raise EmulatorError(
                f"kernel {self.program.kernel.name} wants {groups} workgroups resident at once; "
                f"{self.target.device.name} holds {most}"
            )
        traced = groups // 2 if self.traced else None
        workers = [_Worker(self, i, i, i + 1, i == traced) for i in range(groups)]
        going, rounds, executed = workers, 0, 0
        while going:
            for worker in going:
                worker.run(driver.TURN)
                worker.raise_fault()
            going = [w for w in going if w.status == state.Status.ASLEEP]
            rounds += 1
            if rounds % _ROUNDS == 0:
                before, executed = executed, sum(w.instructions for w in workers)
                if executed - before < _SPIN * _ROUNDS * len(going):
                    going[0].raise_deadlock()
        return workers


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
    kernel: Kernel, grid: int | Sequence[int], workgroup: int | Sequence[int], kernarg: bytes,
    memory: Memory, shared_bytes: int = 0, sanitize: Checks | bool = True, profile: bool = False,
    cooperative: bool = False,
) -> Counters:  # fmt: skip
    """Run a kernel over a grid and wait for its end.

    Args:
        kernel: one of `CodeObject.kernels`.
        grid: workgroups in x, y, z.
        workgroup: work-items of a workgroup in x, y, z.
        kernarg: the kernel argument segment, hidden arguments included.
        memory: what the kernel may access; its code object and arguments are added.
        shared_bytes: dynamic LDS behind the kernel's own.
        sanitize: faults to look for besides accesses out of bounds; True is all, False none.
        profile: also count memory traffic and bank conflicts; `recording` asks for it too.
        cooperative: all workgroups are resident at once, and may wait for each other.

    Returns:
        What the kernel did.

    Raises:
        KernelFault: the kernel did something wrong; `MemoryFault`, `UninitializedRead`, `DataRace`,
            `MissingWait` and `DivergentBarrier` say what.
        UnknownInstruction: execution reached code that cannot be emulated.
        EmulatorError: the kernel wants what is not emulated, or the shapes are impossible; a
            cooperative grid is more than the device holds.
    """
    own = Launch(
        kernel, grid, workgroup, kernarg, memory, shared_bytes, sanitize, profile, cooperative
    )
    workers = own.run()
    result = _counted(own, workers)
    counting.record(result)
    _record_trace(own, workers)
    return result


def execute(own: Launch) -> None:
    """Run a launch; what its kernel did is counted only while `recording`."""
    workers = own.run()
    if counting.is_recording():
        counting.record(_counted(own, workers))
        _record_trace(own, workers)


def _record_trace(own: Launch, workers: list[_Worker]) -> None:
    """Enter the workgroups that were traced where traces are collected."""
    followed = sorted((w for w in workers if w.words.size), key=lambda w: w.group)
    new = None
    if followed:
        found = tuple(w.followed for w in followed)
        lines = set[int]().union(*(timing.touched_lines(own.program, x) for x in found))
        groups, resident = math.prod(own.grid), _occupancy(own).workgroups
        nbytes = _size_of_touched(own, lines)
        executed = sum(w.instructions for w in workers) / own.executed
        new = timing.Traced(own.program, own.target, found, groups, resident, nbytes, executed)
    timing.record(own.alike, new)


def _size_of_touched(own: Launch, lines: set[int]) -> int:
    """Bytes of all allocations that lines of 64 bytes are of."""
    places = np.array(sorted(lines), np.uint64) * np.uint64(64) + np.uint64(63)
    rows = np.unique(np.searchsorted(own.table[:, 0], places, "right") - 1)
    starts, ends = own.table[rows[rows >= 0], :2].T
    return int((ends - starts).sum())


def _check(kernel: Kernel, grid: tuple[int, int, int], workgroup: tuple[int, int, int]) -> None:
    if not 0 < math.prod(workgroup) <= 1024 or math.prod(grid) < 0:
        raise EmulatorError(f"workgroup {workgroup} is not of 1 to 1024 work-items")


def _counted(launch: Launch, workers: list[_Worker]) -> Counters:
    program, kernel = launch.program, launch.program.kernel
    groups = math.prod(launch.grid)
    result = Counters(
        kernel.name, launches=1, workgroups=groups, waves=groups * launch.waves,
        executed=launch.executed, occupancy=_occupancy(launch),
    )  # fmt: skip
    scale = groups / max(launch.executed, 1)
    counts = _scaled([w.records[:, state.COUNT // 8] for w in workers], scale)
    counting.count_instructions(result, program.instructions, counts, kernel.lanes)
    statistics = [w.statistics for w in workers if w.statistics is not None]
    if statistics:
        traffic = _scaled(statistics, scale)
        counting.count_traffic(result, program.instructions, traffic)
        result.by_operation = _by_operation(program, counts, traffic)
    return result


def _scaled(parts: Sequence[np.ndarray], scale: float) -> np.ndarray:
    """The sum of what workgroups that ran counted, for all workgroups."""
    total: np.ndarray = np.sum(np.asarray(parts, np.int64), axis=0)
    return total if scale == 1 else np.rint(total * scale).astype(np.int64)


def _by_operation(
    program: Program, counts: np.ndarray, traffic: np.ndarray
) -> dict[Inlined | None, Counters]:
    """The counters of a launch by what instructions were made from, in the order of the code."""
    kernel, found = program.kernel, {}
    for operation, records in program.by_operation.items():
        own = records[counts[records] > 0].tolist()
        if own:
            counters = found[operation] = Counters(kernel.name, launches=1)
            instructions = [program.instructions[i] for i in own]
            counting.count_instructions(counters, instructions, counts[own], kernel.lanes)
            counting.count_traffic(counters, instructions, traffic[own])
    return found


def _occupancy(launch: Launch) -> Occupancy:
    kernel = launch.program.kernel
    vgprs = min(kernel.vgprs, kernel.accumulators)
    return occupancy(
        launch.target, vgprs, agprs=kernel.vgprs - vgprs, lds=launch.lds_bytes,
        workgroup=math.prod(launch.workgroup),
    )  # fmt: skip
