"""Loops of a plan that become one launch on a GPU (`schedule/gpu/persistent.py` says how).

A loop can if its body, as instructions, is launches and copies: what a round reads and writes is
then an address for each argument, and how it advances from round to round. A copy of what a launch
stores is a second store of that launch, any other one a kernel.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from amdjax import tile
from amdjax.core.dims import divisor, is_multiple, size_hint
from amdjax.core.integers import ceil_div
from amdjax.core.sharding import Space
from amdjax.core.source_info import Origin
from amdjax.jit.horizontal import number
from amdjax.jit.instructions import Instruction, Storage, View
from amdjax.jit.plan import Planner
from amdjax.kernels.gpu_loops import EACH, threads_for
from amdjax.runtime import vm
from amdjax.schedule.gpu.calls import NARROW_INDEX
from amdjax.schedule.gpu.persistent import (
    STILL,
    LaunchedRounds,
    Shift,
    Stage,
    Wait,
    plan_persistent,
)
from amdjax.targets import GpuTarget
from amdjax.tile import ops

LOOKED_AT = 4  # rounds: what halves hold comes back after two


class Alternation(NamedTuple):
    """What a slot that loops exchange holds: the halves of a storage in turn.

    Args:
      storage: of both halves.
      half: bytes from the first to the second.
      phase: 1 if the second comes first.
      nbytes: of the value in each.
    """

    storage: Storage
    half: int
    phase: int
    nbytes: int


def persist(
    p: Planner,
    start: int,
    counter: int,
    rounds: int | None,
    alternating: Mapping[int, Alternation],
    again: View | None = None,
    origin: Origin | None = None,
) -> LaunchedRounds | None:
    """Write a loop as one launch in place of the instructions of its body, if that pays.

    Args:
      p: the planner.
      start: the number of the body's first instruction; it ends with the last one there is.
      counter: the slot that counts rounds.
      rounds: how many there are; None if they are not counted.
      alternating: by the slots that the loop exchanges.
      again: where rounds that are not counted say whether there is another one.
      origin: of a loop whose rounds are not counted, which the one launch asks for the flag.

    Returns:
      Why it is not written; None if it is.
    """
    assert isinstance(p.target, GpuTarget)
    loop = _Loop(p.target, counter, start, alternating)
    if not all(map(loop.take, p.instructions[start:])):
        return LaunchedRounds(rounds, "not all of a round is launches and copies at known places")
    stages, arguments = loop.stages(again)
    ends = [] if again is None else loop.ends()
    arguments += [x for launch in ends for x in launch.arguments]
    copies = [launch.stage(None) for launch in ends]
    aligns = [s.kernel.align for s in (*stages, *copies)]
    aligns += [x.align for x in arguments if not x.is_number]
    plan = plan_persistent(p.target, rounds, stages, min(aligns, default=1), copies)
    if isinstance(plan, LaunchedRounds):
        return plan
    kernel = plan.emit(origin)
    if not _fits_lds(kernel, p.target):
        return LaunchedRounds(rounds, "its kernel would take more LDS than there is")
    p.observe("schedule", plan)
    del p.instructions[start:]
    counts = p.constant("arrivals of grid barriers", np.zeros(1, np.uint32), 4)
    memory = [x.view for x in arguments]
    flag = [] if again is None else [again]
    views = [number(plan.programs), *memory, counts, *flag, *map(number, kernel.sizes)]
    p.emit(vm.CALL, kernel, plan.programs, 1, len(views), *views)
    return None


def _fits_lds(kernel: tile.Kernel, target: GpuTarget) -> bool:
    """Whether the LDS holds scratch and what elements change threads through."""
    if not kernel.scratch:  # elements of all stages change threads through the same LDS
        return True
    # late: loads the generator for GPUs
    from amdjax.codegen.gpu.writer import kernel_ir

    text = kernel_ir(kernel, target, debug=False)
    sizes = re.findall(r"addrspace\(3\) global \[(\d+) x i8\]", text)
    return sum(map(int, sizes)) + target.lds_reserved <= target.lds_bytes


class _Argument(NamedTuple):
    """Where an argument of a launch is: at the first round, and how it advances."""

    view: View
    shift: Shift

    @property
    def memory(self) -> tuple[int, int]:
        """Equal for arguments that may be of one value of a round."""
        return id(self.view.storage), self.shift.phase if self.shift.half else 0

    @property
    def is_number(self) -> bool:
        """Whether it is a number and no memory."""
        return self.view.storage.slot == vm.ZERO

    @property
    def align(self) -> int:
        """Bytes of which its address is a multiple in all rounds."""
        bits = divisor(self.view.align, self.shift.stride, self.shift.half)
        return bits & -bits


@dataclass
class _Launch:
    """A launch of a round; arguments are those that are no symbolic dimensions."""

    kernel: tile.Kernel
    grid: int
    arguments: list[_Argument]
    copies: list[tuple[int, _Argument]]

    def accesses(self) -> list[_Access]:
        """What it touches, apart from numbers."""
        parts = self.kernel.parts
        owned = [parts if p.name in self.kernel.own else None for p in self.kernel.given]
        writes = {i for i, _ in self.written()}
        found = [
            _Access(x, i in writes, own)
            for i, (x, own) in enumerate(zip(self.arguments, owned, strict=True))
            if not x.is_number
        ]
        return found + [_Access(x, True, owned[i]) for i, x in self.copies]

    def stage(self, wait: Wait) -> Stage:
        """It as a part of a round, and what it waits for."""
        shifts = tuple(x.shift for x in self.arguments)
        copies = tuple((i, x.shift) for i, x in sorted(self.copies, key=lambda c: c[0]))
        return Stage(self.kernel, self.grid, shifts, copies, wait)

    def written(self) -> Iterator[tuple[int, _Argument]]:
        for i, (p, x) in enumerate(zip(self.kernel.given, self.arguments, strict=True)):
            if p.role in ("out", "inout"):
                yield i, x


def _stores(launch: _Launch, number: int) -> bool:
    """Whether plain stores are all that changes a parameter, which none read before."""
    name, role = launch.kernel.params[number].name, launch.kernel.params[number].role
    writers = (
        op
        for op in tile.nested_ops(launch.kernel.body)
        if op.traits & tile.Trait.WRITES and any(b.name == name for b in op.buffers())
    )
    return role == "out" and all(isinstance(op, (ops.Store, ops.StoreAt)) for op in writers)


def _copying(target: GpuTarget, nbytes: int) -> tuple[tile.Kernel, int]:
    """A kernel that copies its first parameter to its second, and its grid."""
    k = tile.Builder("copy")
    dtype = "u32" if is_multiple(nbytes, 4) else "u8"
    source, to = k.param("x", dtype), k.param("y", dtype, "out")
    total = nbytes // tile.itemsize(dtype)
    threads = threads_for(target, size_hint(total))
    bits = 32 if nbytes <= NARROW_INDEX else 64
    k.schedule = tile.Schedule(threads, EACH, bits)
    count = threads * EACH
    base = k.program_id() * count
    rest = k.convert(k.const("index", total) - base, "i32")
    mask = None if is_multiple(total, count) else k.iota(count, "i32") < rest
    k.store(to, base, k.load(source, base, (count,), mask=mask), mask=mask)
    grid = ceil_div(total, count)
    return k.finish(grid), grid


class _Loop:
    """The launches of a round."""

    def __init__(
        self, target: GpuTarget, counter: int, start: int, alternating: Mapping[int, Alternation]
    ):
        self.target = target
        self.counter, self.start, self.alternating = counter, start, alternating
        self.launches: list[_Launch] = []
        self.exchanged: set[int] = set()  # slots, so far in the round

    def take(self, instruction: Instruction) -> bool:
        """Take the next instruction; whether that is possible."""
        words = instruction.words
        if instruction.opcode == vm.SWAP:
            self.exchanged ^= {*words}
            return all(slot in self.alternating for slot in words)
        if instruction.opcode == vm.COPY:
            between = any(v.storage.space is Space.Host for v in words[:2])
            return not between and self._copy(*words)
        if instruction.opcode != vm.CALL:
            return False
        kernel, grid, _, _, *views = words
        given = views[: len(kernel.given)]
        arguments = [x for v in given if (x := self._argument(v)) is not None]
        if len(arguments) < len(given) or kernel.cooperative or kernel.batch > 1:
            return False
        self.launches.append(_Launch(kernel, grid, arguments, []))
        return True

    def _argument(self, view: View) -> _Argument | None:
        """An argument of each round; None for one that cannot be told beforehand."""
        storage = view.storage
        found = None if storage.slot is None else self.alternating.get(storage.slot)
        if found is not None:
            still = view.counter == vm.ZERO
            place = View(found.storage, view.offset)
            phase = found.phase ^ (storage.slot in self.exchanged)
            return _Argument(place, Shift(0, found.half, phase)) if still else None
        if view.counter == self.counter:
            return _Argument(View(storage, view.offset), Shift(view.stride))
        return _Argument(view, STILL)

    def _copy(self, to: View, source: View, nbytes: int) -> bool:
        """A copy, by the launch that made what is copied or by one of its own."""
        place, wanted = self._argument(to), self._argument(source)
        if place is None or wanted is None:
            return False
        maker = self._maker(place, wanted) if nbytes == self._fresh_bytes(source) else None
        if maker is None:
            self.launches.append(_Launch(*_copying(self.target, nbytes), [wanted, place], []))
        else:
            launch, i = maker
            launch.copies.append((i, place))
        return True

    def _maker(self, place: _Argument, wanted: _Argument) -> tuple[_Launch, int] | None:
        """The launch that may store all of a value to another place too, and its parameter."""
        writers = [
            (n, i)
            for n, launch in enumerate(self.launches)
            for i, x in launch.written()
            if x.memory == wanted.memory
        ]
        if len(writers) != 1:
            return None
        ((n, i),) = writers
        launch = self.launches[n]
        since = [x.memory for other in self.launches[n:] for x in other.arguments]
        if launch.arguments[i] != wanted or place.memory in since or not _stores(launch, i):
            return None
        return launch, i

    def _fresh_bytes(self, view: View) -> int | None:
        """Bytes of a value of which a round keeps nothing that was there before; None if it may."""
        storage = view.storage
        if view.counter != vm.ZERO or view.offset:
            return None
        if storage.slot is not None:
            found = self.alternating.get(storage.slot)
            return None if found is None else found.nbytes
        return storage.nbytes if storage.first >= self.start else None

    def stages(self, again: View | None = None) -> tuple[list[Stage], list[_Argument]]:
        """Stages, and what the parameters of all of them are, in the order of the kernel's.

        Args:
          again: what all programs read behind a round.
        """
        stages, arguments = [], []
        read = [] if again is None else [[_Access(_Argument(again, STILL), False, None)]]
        waits = _waits([*(launch.accesses() for launch in self.launches), *read])
        for launch, wait in zip(self.launches, waits):
            stages.append(launch.stage(wait))
            for i, x in enumerate(launch.arguments):
                arguments += [x, *(c for at, c in launch.copies if at == i)]
        return stages, arguments

    def ends(self) -> list[_Launch]:
        """Copies of what is carried from the second halves to the first ones."""
        pairs = {id(a.storage): a for a in self.alternating.values()}
        launches = []
        for a in pairs.values():
            second, first = (_Argument(View(a.storage, n), STILL) for n in (a.half, 0))
            launches.append(_Launch(*_copying(self.target, a.nbytes), [second, first], []))
        return launches


class _Access(NamedTuple):
    """Memory that a stage touches.

    Args:
      writes: whether it does.
      own: the parts of which programs touch their own alone, as in any stage of equal parts;
        None if they touch others'.
    """

    argument: _Argument
    writes: bool
    own: object

    def meets(self, earlier: _Access, rounds: int) -> bool:
        """Whether it touches what one did that was so many rounds before, and either wrote."""
        a, b = self.argument, earlier.argument
        if a.view.storage is not b.view.storage or not (self.writes or earlier.writes):
            return False
        if a.shift.half and b.shift.half:  # the halves change places in each round
            return (a.shift.phase + b.shift.phase + rounds) % 2 == 0
        # Slices of different rounds lie apart.
        return not (rounds and a.shift.stride and a == b)

    def belongs_with(self, other: _Access) -> bool:
        """Whether what a program touches of one memory no other one does in either of the two."""
        return self.own is not None and self.own == other.own


def _waits(stages: Sequence[Sequence[_Access]]) -> list[Wait]:
    """What the stages of a round, which follow each other again and again, have to wait for.

    Grid barriers are few: none before a stage is needed that the next one would not need as well.
    """
    waits: list[Wait] = [None] * len(stages)
    changed = True
    while changed:
        changed = False
        since: list[tuple[int, bool, _Access]] = []  # by round; whether the program has met there
        for t, i in itertools.product(range(LOOKED_AT), range(len(stages))):
            if waits[i] == "grid":
                since.clear()
            elif waits[i] == "program":
                since = [(s, True, x) for s, _, x in since]
            met = [(known, x, y) for s, known, y in since for x in stages[i] if x.meets(y, t - s)]
            if any(not x.belongs_with(y) for _, x, y in met):
                waits[i], changed = "grid", True
                break
            if any(not known for known, _, _ in met):
                waits[i], changed = "program", True
                break
            since += [(t, False, x) for x in stages[i]]
    return waits
