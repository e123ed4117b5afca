"""Registers that are used before the load into them was waited for.

Memory instructions return later; until a wait says so, their destination must not be touched. What
is outstanding is followed over the control flow of a kernel: a queue of destinations for each kind
of access, which a wait shortens. Where paths meet, queues are laid over each other from the newest
end, as LLVM does when it places the waits, so that what it emits has no hazards.

A wait for `n` leaves the last `n` of a queue. Scalar loads return in any order: only a wait for 0
says anything of them. No machine emulated here needs to wait before it overwrites what a store
reads.

Stores to global memory have no destination, but where the waves of a workgroup have caches of their
own a barrier does not show others what was stored before it, unless that was waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from amdjax.emulator.isa import ISAS
from amdjax.emulator.isa.access import Access, access_of
from amdjax.emulator.isa.decode import Instruction
from amdjax.emulator.operands import register_name, registers
from amdjax.emulator.records import Lowered, Wave

# Mark stores among the destinations.
_LDS_STORE, _GLOBAL_STORE = 1 << 1023, 1 << 1022
#: What may come back in another order; only a wait for 0 says that it came.
UNORDERED = ("scalar", "flat", "flat_lds")
_LONGEST = 64  # no counter goes further
#: What goes on elsewhere and comes back, and what stands at the end of functions and kernels.
CALLS = ("s_swappc_b64", "s_call_b64")
FUNCTION_ENDS = ("s_setpc_b64", "s_endpgm")
_JUMPS = ("s_branch", "s_trap", *FUNCTION_ENDS)

Queues = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Hazard:
    """What a record must not do yet."""

    text: str


def _gfx9(simm: int) -> dict[str, int]:
    return {"vm": simm & 15 | (simm >> 14 & 3) << 4, "lgkm": simm >> 8 & 15}


def _gfx10(simm: int) -> dict[str, int]:
    return {"vm": simm & 15 | (simm >> 14 & 3) << 4, "lgkm": simm >> 8 & 63}


def _gfx11(simm: int) -> dict[str, int]:
    return {"vm": simm >> 10 & 63, "lgkm": simm >> 4 & 63}


# What one counter stands for. A flat access is in two of them.
_OLD = {"vm": ("vector", "flat"), "vs": ("stores",), "lgkm": ("lds", "scalar", "flat_lds")}
_NEW = {"load": ("vector", "flat"), "store": ("stores",), "ds": ("lds", "flat_lds"),
        "km": ("scalar",)}  # fmt: skip
_WAITCNT = {9: _gfx9, 10: _gfx10, 11: _gfx11}
_SINGLE = {"s_waitcnt_vmcnt": "vm", "s_waitcnt_vscnt": "vs", "s_waitcnt_lgkmcnt": "lgkm",
           "s_wait_loadcnt": "load", "s_wait_storecnt": "store", "s_wait_dscnt": "ds",
           "s_wait_kmcnt": "km"}  # fmt: skip
_DOUBLE = {"s_wait_loadcnt_dscnt": ("load", "ds"), "s_wait_storecnt_dscnt": ("store", "ds")}


def counters_of(isa: str) -> dict[str, tuple[str, ...]]:
    """By counter, the queues that it stands for."""
    return _NEW if ISAS[isa].generation >= 12 else _OLD


def counts_waited_for(isa: str, inst: Instruction) -> dict[str, int]:
    """By counter, how many accesses a wait leaves outstanding."""
    if "wait" not in inst.name:
        return {}
    simm = inst.fields.get("simm16", 0)
    if inst.name == "s_waitcnt":
        return _WAITCNT[ISAS[isa].generation](simm)
    if inst.name in _SINGLE:
        return {_SINGLE[inst.name]: simm}
    if inst.name in _DOUBLE:
        first, second = _DOUBLE[inst.name]
        return {first: simm >> 8 & 63, second: simm & 63}
    return dict.fromkeys(counters_of(isa), 0) if inst.name == "s_wait_idle" else {}


@dataclass(frozen=True)
class Findings:
    """Indices of instructions: what is wrong with them; barriers that stores are outstanding at."""

    hazards: dict[int, Hazard]
    unsettled: frozenset[int]


@dataclass
class Step:
    """What an instruction means here; `result` is what it leaves in its queues."""

    index: int
    reads: int = 0
    writes: int = 0
    queues: tuple[str, ...] = ()
    result: int = 0
    waits: dict[str, int] = field(default_factory=dict)
    barrier: bool = False
    forgets: bool = False


def step_of(wave: Wave, inst: Instruction, lowered: Lowered, index: int = 0) -> Step:
    """What an instruction means for what is outstanding."""
    name = inst.name
    if name.startswith("s_"):
        waits = counts_waited_for(wave.isa, inst)
        if waits:
            return Step(index, waits=waits)
        if name.startswith("s_barrier"):
            return Step(index, barrier=True)
        if name in CALLS:
            return Step(index, forgets=True)
    reads, writes = registers(wave, lowered)
    step = Step(index, reads, writes)
    what = None if name.startswith("v_") else access_of(name)
    if what is not None:
        # Loads and stores share a counter on GCN.
        shared = ISAS[wave.isa].generation == 9
        step.queues = _queues(what, writes, shared)
        step.result = writes | (_LDS_STORE if _stores_to_lds(what) else 0)
        if what.kind == "store" and what.space in ("global", "flat", "buffer"):
            step.result |= _GLOBAL_STORE
    elif name.startswith("ds_"):
        step.queues, step.result = ("lds",), writes
    return step


def _queues(what: Access, writes: int, shared: bool) -> tuple[str, ...]:
    if what.kind == "scalar":
        return ("scalar",)
    if what.space == "lds":
        return ("lds",)
    if what.space == "flat":
        # In order with the others from gfx10 on.
        return ("flat", "flat_lds") if shared else ("vector", "lds")
    return ("vector",) if writes or shared or what.to_lds else ("stores",)


def find_hazards(
    wave: Wave, instructions: list[Instruction], lowered: list[Lowered], first: int = 0
) -> Findings:
    """What instructions use too early on some path to them, from the first or from a call."""
    return _Analysis(wave, instructions, lowered, first).run()


class _Analysis:
    def __init__(
        self, wave: Wave, instructions: list[Instruction], lowered: list[Lowered], first: int
    ) -> None:
        self.wave, self.instructions, self.lowered = wave, instructions, lowered
        names = [inst.name for inst in instructions]
        self.entries = {first}
        if any(name in CALLS for name in names):
            self.entries |= {0, *(i + 1 for i, x in enumerate(names[:-1]) if x in FUNCTION_ENDS)}
        self.groups = counters_of(wave.isa)
        self.found: dict[int, Hazard] = {}
        self.unsettled: set[int] = set()

    def run(self) -> Findings:
        blocks = self._blocks()
        entry: dict[int, Queues] = {at: {} for at in self.entries}
        work = list(entry)
        while work:
            at = min(work)
            work.remove(at)
            steps, successors = blocks[at]
            after = self._run_block(steps, dict(entry[at]))
            for target in successors:
                before = entry.get(target)
                merged = after if before is None else _merged(before, after)
                if merged != before:
                    entry[target] = merged
                    if target not in work:
                        work.append(target)
        return Findings(self.found, frozenset(self.unsettled))

    def _blocks(self) -> dict[int, tuple[list[Step], list[int]]]:
        """Steps and successors of each block, by the index of its first instruction."""
        index = {inst.pc: i for i, inst in enumerate(self.instructions)}
        last = len(self.instructions) - 1
        targets = {i: index.get(low.target, last)
                   for i, low in enumerate(self.lowered) if low.target is not None}  # fmt: skip
        ends = {i for i, inst in enumerate(self.instructions)
                if i in targets or inst.name in _JUMPS}  # fmt: skip
        starts = sorted({0, *self.entries, *targets.values(), *(i + 1 for i in ends if i < last)})
        blocks = {}
        for start, following in zip(starts, [*starts[1:], last + 1]):
            steps = [s for i in range(start, following) if (s := self._step(i)) is not None]
            end = following - 1
            successors = [targets[end]] if end in targets else []
            if self.instructions[end].name not in _JUMPS and following <= last:
                successors.append(following)
            blocks[start] = steps, successors
        return blocks

    def _step(self, index: int) -> Step | None:
        step = step_of(self.wave, self.instructions[index], self.lowered[index], index)
        says = step.reads or step.writes or step.queues or step.waits
        return step if says or step.barrier or step.forgets else None

    def _run_block(self, steps: list[Step], queues: Queues) -> Queues:
        pending = _pending(queues)
        for step in steps:
            if step.waits:
                for counter, count in step.waits.items():
                    self._wait(queues, counter, count)
                pending = _pending(queues)
            elif step.forgets:
                queues, pending = {}, 0
            elif step.barrier:
                if pending & _LDS_STORE:
                    text = "a barrier is reached with stores to LDS that were not waited for"
                    self.found[step.index] = Hazard(text)
                if pending & _GLOBAL_STORE:
                    self.unsettled.add(step.index)
            else:
                if pending & (step.reads | step.writes):
                    self._conflict(step, queues)
                if step.queues:
                    for queue in step.queues:
                        queues[queue] = (*queues.get(queue, ()), step.result)[-_LONGEST:]
                    pending |= step.result
        return queues

    def _wait(self, queues: Queues, counter: str, count: int) -> None:
        for queue in self.groups.get(counter, ()):
            held = queues.get(queue)
            if held and (count == 0 or queue not in UNORDERED):
                queues[queue] = held[-count:] if count else ()

    def _conflict(self, step: Step, queues: Queues) -> None:
        """Note a register in use that is outstanding; returns in order may overwrite their like."""
        for queue, held in queues.items():
            outstanding = _union(held)
            in_order = queue in step.queues and queue not in UNORDERED
            touched = step.reads if in_order else step.reads | step.writes
            if bad := outstanding & touched:
                name = register_name(self.wave, (bad & -bad).bit_length() - 1)
                verb = "reads" if bad & step.reads else "overwrites"
                self.found[step.index] = Hazard(f"{verb} {name}, whose load was not waited for")
                return


def _stores_to_lds(what: Access) -> bool:
    return what.to_lds or (what.space == "lds" and what.kind != "load")


def _union(held: tuple[int, ...]) -> int:
    found = 0
    for mask in held:
        found |= mask
    return found


def _pending(queues: Queues) -> int:
    return _union(tuple(_union(held) for held in queues.values()))


def _merged(a: Queues, b: Queues) -> Queues:
    result = {}
    for queue in a.keys() | b.keys():
        x, y = a.get(queue, ()), b.get(queue, ())
        if x == y:
            result[queue] = x
            continue
        size = max(len(x), len(y))
        x, y = ((0,) * (size - len(q)) + q for q in (x, y))
        result[queue] = tuple(m | n for m, n in zip(x, y))
    return result
