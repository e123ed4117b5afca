"""When values are copied between the host's memory and a GPU's.

Steps of a program are put in an order in which little is on the device (`copy_near_use`). Of the
instructions, copies begin early and end late: while a kernel computes with one argument, the next
comes, and what was made goes (`prefetch_copies`). Such a copy is two instructions, `ASIDE`, from
where it runs beside what follows, and `AWAIT`, from where its result is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from amdjax import tile
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import Var
from amdjax.core.sharding import Space
from amdjax.jit.instructions import Instruction, Label, Storage, View
from amdjax.passes import is_on
from amdjax.runtime import vm
from amdjax.schedule.fusion import Fusion, Region, Single, step_reads, step_writes
from amdjax.transforms.transfers import device_put_p

Step = Region | Single
SMALL = 1 << 16  # bytes that are copied sooner than a copy beside other work is arranged


def copy_near_use(fusion: Fusion) -> Fusion:
    """The program that copies to the device right before the copy is read, and from it at once."""
    copies = {id(s): _result(s) for s in fusion.steps if _is_copy(s)}
    if not copies or not is_on("copy_near_use"):
        return fusion
    waiting = {copies[id(s)]: s for s in fusion.steps if id(s) in copies}  # by results
    leaving: dict[Var, list[Step]] = {}  # copies from the device, by what they copy
    for v, step in waiting.items():
        if v.aval.memory_space is Space.Host:
            leaving.setdefault(step_reads(step)[0], []).append(step)
    made = {v for s in fusion.steps for v in step_writes(s)}
    steps: list[Step] = []

    def add(step: Step) -> None:
        copy_to(step_reads(step))
        steps.append(step)
        for v in step_writes(step):
            copy_to([copies[id(s)] for s in leaving.get(v, ())])

    def copy_to(variables: Iterable[Any]) -> None:
        for v in variables:
            if isinstance(v, Var) and (copy := waiting.pop(v, None)) is not None:
                add(copy)

    for step in fusion.steps:
        if id(step) not in copies:
            add(step)
        elif _result(step).aval.memory_space is Space.Host and step_reads(step)[0] not in made:
            copy_to([_result(step)])  # of an argument
    copy_to(list(waiting))  # results
    return replace(fusion, steps=steps)


def _is_copy(step: Step) -> bool:
    if not isinstance(step, Single) or step.eqn.primitive is not device_put_p:
        return False
    (source, *more), (result, *_) = step.eqn.invars, step.eqn.outvars
    changes = source.aval.memory_space is not result.aval.memory_space
    return changes and not more and isinstance(source, Var)


def _result(step: Step) -> Var:
    return step_writes(step)[0]


def is_issue(i: Instruction) -> bool:
    """Whether an instruction gives the device something to do."""
    return i.opcode in (vm.CALL, vm.CALLS, vm.COPY, vm.ASIDE, vm.AWAIT)


def prefetch_copies(
    instructions: Sequence[Instruction], storages: Sequence[Storage]
) -> list[Instruction]:
    """Instructions of which copies between memories run beside kernels.

    A copy to the device begins when the one before it has ended, so that two arguments are there at
    a time; a copy from it is waited for before the next one, or what overwrites its source.

    Args:
      instructions: those of a program; their labels are told where they are then.
      storages: the parts of the arenas, which are told when they are in use then.
    """
    if not is_on("prefetch_copies") or not any(map(_is_transfer, instructions)):
        return list(instructions)
    found = _Asides(instructions)
    for first, last in _segments(instructions):
        found.segment(first, last)
    return found.placed(storages)


def _is_transfer(i: Instruction) -> bool:
    """Whether an instruction is a copy between memories that is worth a place beside kernels."""
    if i.opcode != vm.COPY:
        return False
    to, source, nbytes = i.words
    known = not isinstance(nbytes, Dim) and all(type(v.storage) is Storage for v in (to, source))
    return to.storage.space is not source.storage.space and known and nbytes >= SMALL


def _segments(instructions: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    """Where there are instructions that follow each other, whatever the program decides."""
    targets = {w.position for i in instructions for w in i.words if isinstance(w, Label)}
    first = 0
    for n, i in enumerate(instructions):
        if n in targets or not is_issue(i):
            yield first, n
            first = n if is_issue(i) else n + 1
    yield first, len(instructions)


@dataclass
class _Asides:
    """Copies that begin or end elsewhere than where they were written.

    Attributes:
      ending, beginning: what is written before an instruction, and before and after labels there.
      instead: what is written in place of a copy.
      first, last: where memory is in use besides, by id, among the instructions as they were.
    """

    instructions: Sequence[Instruction]
    ending: dict[int, list[Instruction]] = field(default_factory=lambda: defaultdict(list))
    beginning: dict[int, list[Instruction]] = field(default_factory=lambda: defaultdict(list))
    instead: dict[int, Instruction] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    tickets: Iterator[int] = field(default_factory=count)

    def segment(self, first: int, last: int) -> None:
        copies = [n for n in range(first, last) if _is_transfer(self.instructions[n])]
        earliest, group = first, first
        sent = None
        for n in copies:
            i = self.instructions[n]
            if any(k.opcode in (vm.CALL, vm.CALLS) for k in self.instructions[group:n]):
                earliest = group
            to_device = i.words[0].storage.space is Space.Device
            if to_device:
                self._fetch(n, earliest)
                group = n + 1
                continue
            if sent is not None:
                self._send(*sent, n)
            sent = (n,)
        if sent is not None:
            self._send(*sent, last)

    def _fetch(self, n: int, earliest: int) -> None:
        """Begin a copy to the device as early as its memory is free and its source is there."""
        i = self.instructions[n]
        to, source = (v.storage for v in i.words[:2])
        touched = (k for k in range(n - 1, earliest - 1, -1)
                   if any(_touches(self.instructions[k], s) for s in (to, source)))  # fmt: skip
        at = next(touched, earliest - 1) + 1
        aside, done = self._aside(i)
        self.beginning[at].append(aside)
        self.instead[n] = done
        self.first[id(to)] = at

    def _send(self, n: int, latest: int) -> None:
        """End a copy from the device once it must be."""
        i = self.instructions[n]
        to, source = (v.storage for v in i.words[:2])
        at = next((k for k in range(n + 1, latest) if _disturbs(self.instructions[k], to, source)),
                  latest)  # fmt: skip
        self.instead[n], done = self._aside(i)
        self.ending[at].append(done)
        self.last[id(source)] = max(self.last.get(id(source), -1), at)

    def _aside(self, i: Instruction) -> tuple[Instruction, Instruction]:
        ticket = next(self.tickets)
        aside = Instruction(vm.ASIDE, [*i.words, ticket], i.step)
        return aside, Instruction(vm.AWAIT, [ticket], i.step)

    def placed(self, storages: Sequence[Storage]) -> list[Instruction]:
        """The instructions in their places, of which labels and memory are told."""
        made: list[Instruction] = []
        places: list[tuple[int, int]] = []  # of each one's label and of itself
        for n, i in enumerate(self.instructions):
            made += self.ending[n]
            start = len(made)
            made += self.beginning[n]
            places.append((start, len(made)))
            made.append(self.instead.get(n, i))
        places.append((len(made), len(made)))  # until where results may be in use
        for label in {w for i in self.instructions for w in i.words if isinstance(w, Label)}:
            label.position = places[label.position][0]
        for s in storages:
            if s.last < 0:
                continue
            first = places[s.first][1]
            if id(s) in self.first:
                first = min(first, places[self.first[id(s)]][0])
            s.first, s.last = first, max(places[s.last][1], places[self.last.get(id(s), s.last)][0])
        return made


def _touches(i: Instruction, storage: Storage) -> bool:
    return any(isinstance(w, View) and w.storage is storage for w in i.words)


def _disturbs(i: Instruction, copied: Storage, source: Storage) -> bool:
    """Whether an instruction may change the source of a copy, or needs the result."""
    if i.opcode == vm.CALL and i.words[0].batch == 1:
        kernel: tile.Kernel = i.words[0]
        views: Sequence[Any] = i.words[4:]
        changed = (v for p, v in zip(kernel.params, views, strict=True) if p.role != "in")
        return any(v.storage in (source, copied) for v in changed) or any(
            v.storage is copied for v in views
        )
    if i.opcode == vm.COPY and _is_transfer(i):  # after it, as all such copies are in order
        return i.words[0].storage is source
    return _touches(i, source) or _touches(i, copied)
