"""How long a launch takes on hardware, estimated: what its waves did is replayed by a model.

The model has one compute unit (on RDNA a pair of them that share LDS) with as many workgroups as it
holds at once, doing what the traced ones did. Waves issue in order, the one that could go first
goes first; each SIMD takes an instruction of each class in a turn. Results are there after the
latency of their kind; what memory instructions bring is in the queues of `waits`, and a wait goes
on when they are short enough. LDS and the first-level cache serve one access after the other, LDS
for as many cycles as its banks conflict. The first-level cache is simulated line by line. Of lines
that a workgroup touches first, as many come from further levels as the launch touches lines at all,
for each that it asks for: workgroups are taken to run so close to each other that the others find
them one level nearer. Each level gives a compute unit its share of its bandwidth.

Constants are those of `amdjax.targets.timing`, which says what of them is public. Left out are the
instruction cache, the starting of workgroups, banks of registers, address translation and clocks
that fall under load.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from amdjax.core.integers import ceil_div
from amdjax.emulator.alu import matrix
from amdjax.emulator.debug.timing import CAUSES, UNITS, Estimate, Traced, Wait, touched_lines
from amdjax.emulator.isa.access import access_of
from amdjax.emulator.isa.decode import Instruction
from amdjax.emulator.program import Program
from amdjax.emulator.trace import Trace
from amdjax.emulator.waits import UNORDERED, Step, counters_of, step_of
from amdjax.targets import GpuTarget
from amdjax.targets.timing import (
    Timing,
    double_clocks,
    matrix_clocks,
    memory_rate,
    simds_of_cu,
    timing_of,
)

(_ISSUE, _DEPENDENCY, _MATRIX, _LDS, _MEMORY, _CONSTANTS, _BARRIER) = range(len(CAUSES))
_QUEUES = {"vector": _MEMORY, "stores": _MEMORY, "flat": _MEMORY, "lds": _LDS, "flat_lds": _LDS,
           "scalar": _CONSTANTS}  # fmt: skip
# Instructions that are replayed; of longer launches fewer workgroups, or their beginnings.
_BUDGET = 400_000
# Clocks of work that units accept ahead of what they do.
_BACKLOG = 64
_TRANSCENDENTAL = ("rcp", "rsq", "sqrt", "exp", "log", "sin", "cos")


def estimate(launch: Traced) -> Estimate:
    """What a launch takes, by the model."""
    return _Unit(launch).run()


@dataclass(slots=True)
class _Op:
    """A record as the model sees it."""

    port: int
    cost: int  # clocks for which its port of the SIMD is taken
    latency: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    following: int  # clocks until the wave's next instruction
    matrix: int = 0  # clocks of the matrix unit
    queues: tuple[int, ...] = ()
    waits: tuple[tuple[int, int], ...] = ()
    arrives: bool = False
    blocks: bool = False
    to_l2: bool = False  # stores and atomic operations, which nothing of is kept before
    nbytes: int = 0  # of all lanes together


_VALU, _TRANS, _SALU, _SMEM, _VMEM, _LDS_PORT, _CONTROL, _PORTS = range(8)


class _Costs:
    """Records as operations of the model."""

    def __init__(self, program: Program, target: GpuTarget) -> None:
        self.program, self.target, self.timing = program, target, timing_of(target)
        self.counters = counters_of(program.kernel.isa)
        self.number = {queue: i for i, queue in enumerate(_QUEUES)}
        self.ops: dict[int, _Op] = {}

    def of(self, index: int) -> _Op:
        op = self.ops.get(index)
        if op is None:
            op = self.ops[index] = self._op(index)
        return op

    def _op(self, index: int) -> _Op:
        inst = self.program.instructions[index]
        step = step_of(self.program.wave, inst, self.program.lowered[index])
        issue = self.timing.issue
        op = _Op(_CONTROL, issue, issue, _ends(step.reads), _ends(step.writes), issue)
        if step.waits:
            op.waits = tuple((self.number[queue], count) for name, count in step.waits.items()
                             for queue in self.counters.get(name, ()))  # fmt: skip
            op.following = 1
        elif step.barrier:
            op.arrives = inst.name != "s_barrier_wait"
            op.blocks = inst.name != "s_barrier_signal"
        elif step.queues:
            self._memory(op, inst, step)
        elif inst.format.startswith("VOP"):
            self._vector(op, inst, step)
        elif inst.format == "SOPP":
            self._control(op, inst)
        else:
            op.port, op.latency = _SALU, self.timing.scalar
        return op

    def _memory(self, op: _Op, inst: Instruction, step: Step) -> None:
        what, t = access_of(inst.name), self.timing
        op.queues = tuple(self.number[queue] for queue in step.queues)
        op.reads, op.writes = _ends(step.reads), ()
        if step.queues == ("scalar",):
            op.port, op.latency = _SMEM, t.constant
        elif inst.format == "DS":
            op.port, op.latency = _LDS_PORT, t.lds
        else:
            op.port, op.latency = _VMEM, t.l1
            op.to_l2 = what is None or what.kind != "load"
        op.nbytes = self.target.wave_size * (what.size if what else 4)

    def _control(self, op: _Op, inst: Instruction) -> None:
        simm = inst.fields.get("simm16", 0)
        if inst.name == "s_nop":
            op.following = self.timing.issue * ((simm & 15) + 1)
        elif inst.name == "s_sleep":
            op.following = 64 * max(simm & 127, 1)
        elif "branch" in inst.name:
            op.following = self.timing.branch

    def _vector(self, op: _Op, inst: Instruction, step: Step) -> None:
        t, name = self.timing, inst.name
        op.port, op.latency = _VALU, t.arithmetic
        if (shape := matrix.shape_of(name, self.program.kernel.isa)) is not None:
            operand = shape.a.replace("iu", "i")
            clocks = matrix_clocks(self.target, operand, (shape.m, shape.n, shape.k), shape.blocks)
            op.matrix, op.latency = clocks, clocks + t.matrix_extra
            # Sums stay in the unit.
            op.reads = _ends(step.reads & ~step.writes)
        elif "_f64" in name:
            op.cost = max(double_clocks(self.target), t.issue)
            op.latency = max(t.double, op.cost)
        elif any(word in _TRANSCENDENTAL for word in name.split("_")):
            op.port, op.cost = (_TRANS, 4) if t.issue == 1 else (_VALU, t.transcendental)
            op.latency = t.transcendental
        elif "mul_lo_u32" in name or "mul_hi" in name or "mad_u64_u32" in name:
            op.cost, op.latency = 4 * t.issue, t.multiply


def _ends(registers: int) -> tuple[int, ...]:
    """Registers of a set; of long runs, which are written and read together, the ends."""
    found: list[int] = []
    while registers:
        low = (registers & -registers).bit_length() - 1
        run = (~(registers >> low) & (registers >> low) + 1).bit_length() - 1
        found += range(low, low + run) if run <= 4 else (low, low + run - 1)
        registers &= ~(((1 << run) - 1) << low)
    return tuple(found)


class _Wave:
    """A wave that is replayed."""

    def __init__(
        self, group: _Group, trace: Trace, number: int, simd: int, start: float, part: float
    ) -> None:
        self.group, self.simd, self.ready, self.at = group, simd, start, 0
        self.records, self.touched = trace.records[number], trace.details[number]
        self.end = math.ceil(len(self.records) * part)
        self.registers: dict[int, float] = {}
        # For each queue when what is in it comes, and which record brings it.
        self.held: list[list[tuple[float, int]]] = [[] for _ in _QUEUES]
        self.arrived = self.passed = 0


class _Group:
    """A workgroup that is replayed."""

    def __init__(self, number: int, waves: int) -> None:
        self.number, self.going = number, waves
        # When waves came to each barrier, and who stands there.
        self.arrivals: Counter[int] = Counter()
        self.latest: dict[int, float] = {}
        self.standing: dict[int, list[tuple[_Wave, int]]] = {}
        self.constants: set[int] = set()
        self.lines: set[int] = set()


class _Unit:
    """A compute unit, or on RDNA a pair of them, while it replays a launch."""

    def __init__(self, launch: Traced) -> None:
        self.launch, self.target = launch, launch.target
        self.timing: Timing = timing_of(launch.target)
        self.costs = _Costs(launch.program, launch.target)
        units = launch.target.lds_units
        self.groups = ceil_div(launch.workgroups, units)
        self.active = min(units, launch.workgroups)
        self.resident = min(launch.resident, self.groups)
        self.simds = launch.target.simds
        self.ports = [[0.0] * _PORTS for _ in range(self.simds)]
        self.matrix = [0.0] * self.simds
        cus = self.simds // simds_of_cu(self.target)
        self.cus = cus
        self.lds, self.l1 = [0.0] * cus, [0.0] * cus
        self.lines: list[dict[int, None]] = [{} for _ in range(cus)]
        self.spent = [0.0] * len(CAUSES)
        self.stood: dict[int, list[float]] = {}  # by record: clocks, times, cause
        self.behind: dict[int, dict[int, float]] = {}
        self.work = dict.fromkeys(UNITS, 0.0)
        self._levels()

    def _levels(self) -> None:
        """How much of what a workgroup touches first comes from each level."""
        per_line = self.timing.l1_line // 64
        program, traces = self.launch.program, self.launch.traces
        mine = [len({line // per_line for line in touched_lines(program, x)}) for x in traces]
        asked = sum(mine) * self.timing.l1_line * self.launch.workgroups // len(traces)
        whole = min(self.launch.nbytes, asked)
        unique = whole / asked if asked else 0.0
        levels = self.timing.levels
        holds = lambda x: not x.nbytes or (x.keeps and self.launch.nbytes <= x.nbytes)
        home = next(i for i, level in enumerate(levels) if holds(level))
        used = levels[: home + 1]
        # The share that goes beyond a level: once for each of its parts.
        beyond = [1.0, *(min(1.0, unique * level.parts) for level in used[:-1]), 0.0]
        self.shares = [a - b for a, b in pairwise(beyond)]
        self.credit = [0.0] * len(used)
        cu_share = self.target.compute_units / (self.active * self.cus)
        most = self.timing.l1_rate * self.cus
        self.rates = [
            min((level.rate or memory_rate(self.target)) * self.cus * max(cu_share, 1.0), most)
            for level in used
        ]
        self.latencies = [level.latency for level in used]
        self.level_free = [0.0] * len(used)
        self.level_work = [0.0] * len(used)

    # Replaying

    def run(self) -> Estimate:
        lengths = [sum(map(len, x.records)) for x in self.launch.traces]
        length = max(sum(lengths) // len(lengths), 1)
        self.longest = self.launch.traces[lengths.index(max(lengths))]
        # Twice what is resident shows how ends and beginnings overlap.
        resident, wanted = self.resident, min(self.groups, 2 * self.resident)
        if wanted * length > _BUDGET:
            wanted = resident
        # Of what is longer still, the beginning, as traces have of what is longest.
        self.part = min(1.0, _BUDGET / (wanted * length))
        whole = all(x.whole for x in self.launch.traces)
        scale = (1.0 if whole else self.launch.instructions / length) / self.part
        ends = sorted(self._replay(wanted))
        last = ends[-1]
        first = ends[resident - 1] if wanted > resident else 0.0
        each = (last - first) / (wanted - resident or resident)
        total = last + (self.groups - wanted) * each
        # Waves end before what they stored is in memory.
        total = max(total, max(self.level_work) * self.groups / wanted)
        return self._estimate(total * scale, max(last, *self.level_free))

    def _replay(self, wanted: int) -> list[float]:
        """When each of so many workgroups ends."""
        self.heap: list[tuple[float, float, int, _Wave]] = []
        self.order = 0
        self.started, self.wanted = 0, wanted
        self.load = [0] * self.simds
        ends: list[float] = []
        for _ in range(min(self.resident, wanted)):
            self._start(0.0)
        heap = self.heap
        while heap:
            time, _, _, wave = heapq.heappop(heap)
            if wave.at == wave.end:
                group = wave.group
                group.going -= 1
                self.load[wave.simd] -= 1
                self._release_all(group, time)
                if not group.going:
                    ends.append(time)
                    if self.started < wanted:
                        self._start(time)
                continue
            self._step(wave, time)
        return ends

    def _start(self, time: float) -> None:
        traces = self.launch.traces
        self.started += 1
        # As they come in the grid; the unit that ends last has the longest.
        trace = traces[(2 * self.started - 1) * len(traces) // (2 * self.wanted)]
        if self.started == self.groups:
            trace = self.longest
        group = _Group(self.started, len(trace.records))
        for number in range(len(trace.records)):
            simd = min(range(self.simds), key=self.load.__getitem__)
            self.load[simd] += 1
            self._push(_Wave(group, trace, number, simd, time, self.part), time)

    def _push(self, wave: _Wave, time: float, since: float = 0.0) -> None:
        """Look at a wave again at some time; first at those that could go on for longest."""
        self.order += 1
        heapq.heappush(self.heap, (time, since or time, self.order, wave))

    def _step(self, wave: _Wave, time: float) -> None:
        """Issue the next instruction of a wave, or put it off to when that may be possible."""
        record = wave.records[wave.at]
        op = self.costs.of(record)
        if op.waits:
            self._wait(wave, op, record)
            return
        registers, needed = wave.registers, wave.ready
        for register in op.reads:
            there = registers.get(register, 0.0)
            if there > needed:
                needed = there
        ports = self.ports[wave.simd]
        start = max(needed, ports[op.port])
        if op.matrix:
            start = max(start, self.matrix[wave.simd])
        elif op.port == _LDS_PORT:
            start = max(start, self.lds[wave.simd % self.cus] - _BACKLOG)
        elif op.port == _VMEM:
            start = max(start, self.l1[wave.simd % self.cus] - _BACKLOG)
        if start > time:
            self._push(wave, start, needed)
            return
        self._account(wave, op, record, needed, start)
        ports[op.port] = start + op.cost
        if op.matrix:
            self._matrix(wave, op, start)
        if op.queues:
            self._access(wave, op, record, start)
        else:
            for register in op.writes:
                registers[register] = start + op.latency
        wave.at += 1
        wave.ready = start + op.following
        self.spent[_ISSUE] += op.following
        if op.arrives:
            self._arrive(wave, start)
        if op.blocks:
            self._block(wave, record)
        else:
            self._push(wave, wave.ready)

    def _account(self, wave: _Wave, op: _Op, record: int, needed: float, start: float) -> None:
        spent = self.spent
        spent[_DEPENDENCY] += needed - wave.ready
        cause = _MATRIX if op.matrix else {_LDS_PORT: _LDS, _VMEM: _MEMORY}.get(op.port, _ISSUE)
        spent[cause] += start - needed
        if op.port in (_VALU, _TRANS):
            self.work["valu"] += op.cost if op.port == _VALU else self.timing.issue

    def _matrix(self, wave: _Wave, op: _Op, start: float) -> None:
        self.matrix[wave.simd] = start + op.matrix
        self.work["matrix"] += op.matrix
        if self.timing.issue == 1:
            # WMMA is computed by the vector unit itself.
            self.ports[wave.simd][_VALU] = start + op.matrix

    # Memory

    def _access(self, wave: _Wave, op: _Op, record: int, start: float) -> None:
        touched = wave.touched[wave.at]
        if op.port == _SMEM:
            there = start + op.latency
            if record not in wave.group.constants:
                wave.group.constants.add(record)
                there += self.timing.constant_miss
        elif op.port == _LDS_PORT:
            cycles = sum(touched) or ceil_div(op.nbytes, 4 * self.target.lds_banks)
            cu = wave.simd % self.cus
            begin = max(start, self.lds[cu])
            self.lds[cu] = begin + cycles
            self.work["LDS"] += cycles
            there = begin + cycles - 1 + op.latency
        else:
            there = self._global(wave, op, touched, start)
        for queue in op.queues:
            held = wave.held[queue]
            if held and queue in _ORDERED:
                there = max(there, held[-1][0])
            held.append((there, record))

    def _global(self, wave: _Wave, op: _Op, touched: Sequence[int], start: float) -> float:
        t, cu, group = self.timing, wave.simd % self.cus, wave.group
        shift = (t.l1_line // 64).bit_length() - 1
        lines = {line >> shift for line in touched} if shift else touched
        # Lines go through one at a time, and no more than so many bytes of them.
        cycles = max(len(lines) * t.l1_line / t.l1_rate if len(lines) > 1 else 1,
                     op.nbytes / t.l1_rate, 1)  # fmt: skip
        begin = max(start, self.l1[cu])
        self.l1[cu] = begin + cycles
        self.work["memory"] += cycles
        there = begin + cycles - 1 + t.l1
        cache, mark = self.lines[cu], group.number << 58
        for line in lines:
            own = line ^ mark
            if own in cache and not op.to_l2:
                del cache[own]
                cache[own] = None
                continue
            arrives = self._fetch(group, line, begin)
            if op.to_l2:
                arrives = begin + self.latencies[0]
            else:
                cache[own] = None
                if len(cache) * t.l1_line > t.l1_bytes:
                    del cache[next(iter(cache))]
            there = max(there, arrives)
        return there

    def _fetch(self, group: _Group, line: int, time: float) -> float:
        """When a line comes that is not in the first-level cache."""
        level = 0
        if line not in group.lines:
            group.lines.add(line)
            level = self._level()
        # What comes from further off passes all levels before.
        begin = time
        for i in range(level + 1):
            clocks = self.timing.l1_line / self.rates[i]
            begin = max(begin, self.level_free[i])
            self.level_free[i] = begin + clocks
            self.level_work[i] += clocks
        return begin + self.latencies[level]

    def _level(self) -> int:
        """The level that the next line comes from, so that all get their shares."""
        credit = self.credit
        for i, share in enumerate(self.shares):
            credit[i] += share
        level = max(range(len(credit)), key=credit.__getitem__)
        credit[level] -= 1
        return level

    # Waiting

    def _wait(self, wave: _Wave, op: _Op, record: int) -> None:
        ready, until, last, cause = wave.ready, wave.ready, -1, _MEMORY
        for queue, count in op.waits:
            held = wave.held[queue]
            if len(held) <= count:
                continue
            gone = held if not count else held[:-count]
            there, who = max(gone)
            if there > until:
                until, last, cause = there, who, _CAUSE_OF_QUEUE[queue]
            wave.held[queue] = held[len(gone) :]
        self._stand(record, until - ready, cause, last)
        wave.at += 1
        wave.ready = until + op.following
        self.spent[_ISSUE] += op.following
        self._push(wave, wave.ready)

    def _stand(self, record: int, clocks: float, cause: int, last: int) -> None:
        self.spent[cause] += clocks
        stood = self.stood.setdefault(record, [0.0, 0.0, cause])
        stood[0] += clocks
        stood[1] += 1
        if clocks:
            stood[2] = cause
            behind = self.behind.setdefault(record, {})
            behind[last] = behind.get(last, 0.0) + clocks

    def _arrive(self, wave: _Wave, time: float) -> None:
        group, number = wave.group, wave.arrived
        wave.arrived += 1
        group.arrivals[number] += 1
        group.latest[number] = max(group.latest.get(number, 0.0), time)
        self._release(group, number, time)

    def _block(self, wave: _Wave, record: int) -> None:
        wave.group.standing.setdefault(wave.passed, []).append((wave, record))
        wave.passed += 1
        self._release(wave.group, wave.passed - 1, wave.ready)

    def _release(self, group: _Group, number: int, time: float) -> None:
        """Let waves go on once all that go on at all have come."""
        if group.arrivals[number] < group.going or number not in group.standing:
            return
        until = max(group.latest.get(number, 0.0), time) + self.timing.barrier
        for wave, record in group.standing.pop(number):
            self._stand(record, max(until - wave.ready, 0.0), _BARRIER, -1)
            wave.ready = max(wave.ready, until)
            self._push(wave, wave.ready)

    def _release_all(self, group: _Group, time: float) -> None:
        """After the end of a wave, which others need not wait for."""
        for number in list(group.standing):
            self._release(group, number, time)

    # Results

    def _estimate(self, total: float, replayed: float) -> Estimate:
        spent = sum(self.spent) or 1.0
        clock = self.target.device.clock
        counts = self.simds, self.simds, self.cus, self.cus
        busy = {name: self.work[name] / (n * replayed) for name, n in zip(UNITS, counts)}
        return Estimate(
            self.launch.program.kernel.name, total, total / clock,
            {name: x / spent for name, x in zip(CAUSES, self.spent)}, busy,
            tuple(self._waits(spent)),
        )  # fmt: skip

    def _waits(self, spent: float) -> list[Wait]:
        program, found = self.launch.program, []
        for record, (clocks, count, cause) in self.stood.items():
            if not clocks:
                continue
            inst = program.instructions[record]
            last = max(self.behind[record], key=self.behind[record].__getitem__)
            found.append(Wait(
                program.text(record), inst.pc, program.kernel.source_of(inst.pc),
                program.kernel.chain_of(inst.pc), CAUSES[int(cause)],
                program.text(last) if last >= 0 else "", int(count), clocks / count,
                clocks / spent,
            ))  # fmt: skip
        return sorted(found, key=lambda wait: -wait.share)


# By the number of a queue: what its waits are for, and whether it returns in order.
_CAUSE_OF_QUEUE = tuple(_QUEUES.values())
_ORDERED = frozenset(i for i, queue in enumerate(_QUEUES) if queue not in UNORDERED)
