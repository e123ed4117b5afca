"""How long the steps of a program take: its instructions are run part by part, under a clock."""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.array import ConcreteArray
from amdjax.jit.arrays import on_host
from amdjax.jit.cpu.program import CpuProgram
from amdjax.jit.instructions import Instruction, Label, Plan, View
from amdjax.runtime import vm

_CHANGES = {vm.SET, vm.ADD, vm.REPEAT, vm.SWAP, vm.ADDRESS}


@dataclass(frozen=True)
class Timed:
    """A part of a program.

    Args:
      steps: of the whole program, whose work it is.
      launches: names of the kernels that it launches, each as often as it stands there.
      seconds: of each run, without what the call of the part takes.
    """

    steps: tuple[int, ...]
    launches: tuple[str, ...]
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of a run."""
        return statistics.median(self.seconds)


def timed(
    program: CpuProgram, args: Sequence[ConcreteArray], runs: int,
    done: Callable[[], None] = lambda: None,
) -> list[Timed]:  # fmt: skip
    """The parts of a program, in order, each timed by itself in every run.

    Args:
      program: the program; its arguments are not donated.
      args: arrays of the types that it was compiled for.
      runs: how many runs are timed, after one that is not.
      done: is called after each of them.
    """
    arrays = [on_host(x) for x in args]
    outs, workspace = program._allocate(), program._alloc(max(program._arena_bytes, 1))
    pack = program._packer(len(outs))
    places = [0, *(a.buffer.address for a in arrays), *(b.address for b in outs)]
    found = parts(program.plan)
    codes = [_code(program, first, last) for first, last in [*found, (0, 0)]]
    calls = [pack(code.buffer_info()[0], workspace.address, *places) for code in codes]
    seconds: list[list[float]] = [[] for _ in calls]
    clock, native = time.perf_counter, program._native
    for n in range(runs + 1):
        for call, times in zip(calls, seconds):
            start = clock()
            native(call)
            end = clock()
            if n:
                times.append(end - start)
        if n:
            done()
    own = statistics.median(seconds.pop())
    made = []
    for (first, last), times in zip(found, seconds):
        instructions = program.plan.instructions[first:last]
        steps = tuple(dict.fromkeys(i.step for i in instructions if i.step >= 0))
        names = tuple(w.name for i in instructions for w in i.words if isinstance(w, tile.Kernel))
        made.append(Timed(steps, names, tuple(max(t - own, 0.0) for t in times)))
    return made


def _code(program: CpuProgram, first: int, last: int) -> array[int]:
    """The words of some instructions, as a program."""
    words, header = program._code, vm.HEADER_WORDS
    start, end = (header + program.starts[i] for i in (first, last))
    made = words[:header] + words[start:end] + array("q", [vm.HALT])
    for at in program.targets:
        if start <= at < end:
            made[at - start + header] -= program.starts[first]
    return made


def parts(plan: Plan) -> list[tuple[int, int]]:
    """Ranges of instructions that can run one after the other, as calls of their own.

    Slots start anew in each call, so that what changes a slot is of one part with what reads it;
    and no part jumps into another.
    """
    count = len(plan.instructions) - 1  # the last one halts
    joined = [False] * (count + 1)  # with the instruction before

    def join(first: int, last: int) -> None:
        joined[first + 1 : last + 1] = [True] * (last - first)

    changed: dict[int, int] = {}
    for n, i in enumerate(plan.instructions[:count]):
        if n and i.step == plan.instructions[n - 1].step:
            joined[n] = True
        for label in (w for w in i.words if isinstance(w, Label)):
            join(min(n, label.position), max(n, label.position - 1))
        for slot in _slots(i):
            if slot in changed:
                join(changed[slot], n)
        for slot in _changed(i):
            changed.setdefault(slot, n)
    starts = [n for n in range(count) if not joined[n]]
    return list(zip(starts, [*starts[1:], count]))


def _changed(i: Instruction) -> list[int]:
    """Slots that an instruction changes."""
    if i.opcode not in _CHANGES:
        return []
    return [i.words[0], i.words[1]] if i.opcode == vm.SWAP else [i.words[0]]


def _slots(i: Instruction) -> list[int]:
    """Slots that it reads or changes, the arena aside."""
    views = [w for w in i.words if isinstance(w, View)]
    read = [w.counter for w in views] + [w.storage.slot for w in views if w.storage.slot]
    return [*_changed(i), *(s for s in read if s != vm.ZERO)]
