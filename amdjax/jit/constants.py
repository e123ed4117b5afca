"""Launches that read constants of a program alone: they are done once, when it is loaded.

A function that closes over arrays, such as the weights of a network, is a program with constants.
What packs such an operand for a product, or computes with nothing else, writes memory that the
program keeps, up to `constants_limit` bytes of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from amdjax import tile
from amdjax.core.config import config
from amdjax.core.dims import Dim
from amdjax.jit.instructions import (
    Instruction,
    Kept,
    Label,
    Parallel,
    Plan,
    Storage,
    View,
    Zeros,
    first_operand,
    packed,
)
from amdjax.passes.switches import is_on
from amdjax.runtime import vm

#: How many times the bytes that it reads a launch may write to be done once; and how many more.
_GROWTH, _ALLOWANCE = 4, 1 << 12


def computed_once(plan: Plan) -> tuple[Plan, Plan | None]:
    """A plan in which launches that read constants alone are left out, and the plan of those.

    Args:
      plan: the plan, whose storages and labels become those of the first result.

    Returns:
      Both plans, which share constants; memory that the second one writes is among these. The plan
      itself and None where there are no such launches, none within `constants_limit`, or the pass
      is off.
    """
    once, kept = _once(plan)
    return _divided(plan, once, kept) if once else (plan, None)


def compiled_quickly(plan: Plan) -> Plan:
    """A plan in which kernels that only compute constants are marked as those that run once.

    They mostly move memory, which takes as long in code that is made in a fifth of the time. Those
    that multiply in registers are left alone. All are marked if the user asks for little effort.
    """
    effort, steps = config.exec_time_optimization_effort, range(len(plan.instructions))
    positions = frozenset(steps if effort < 0 else _once(plan)[0])
    if not positions:
        return plan
    once, often = dict[int, tile.Kernel](), set[int]()
    for position, instruction in enumerate(plan.instructions):
        for kernel, _ in launches(instruction):
            if position in positions and not kernel.has_micro_kernel:
                once[id(kernel)] = kernel
            else:
                often.add(id(kernel))
    marked = {n: replace(k, runs_once=True) for n, k in once.items() if n not in often}
    instructions = [
        replace(i, words=[marked.get(id(w), w) for w in i.words]) if n in positions else i
        for n, i in enumerate(plan.instructions)
    ]
    return replace(plan, instructions=instructions)


def _once(plan: Plan) -> tuple[list[int], list[Storage]]:
    """The launches that are done once, by their positions, and the memory that they write."""
    if not is_on("compute_constants_once") or not any(_is_data(x) for x in plan.constants):
        return [], []
    writers = Counter(id(s) for i in plan.instructions for s in _may_change(i))
    stable = {
        id(v.storage): v.storage for i in plan.instructions for v in i.words
        if isinstance(v, View) and _is_constant(v.storage, plan) and not writers[id(v.storage)]
    }  # fmt: skip
    kept: dict[int, Storage] = {}
    once: list[int] = []
    limit = math.inf if config.constants_limit is None else config.constants_limit
    for position, instruction in enumerate(plan.instructions):
        made = _made_of(instruction, stable)
        if made and all(_is_own(s) and writers[id(s)] == 1 for s in made):
            nbytes = sum(s.nbytes for s in made)
            if nbytes > limit:
                continue
            limit -= nbytes
            stable.update((id(s), s) for s in made)
            kept.update((id(s), s) for s in made)
            once.append(position)
    return once, list(kept.values())


def _divided(plan: Plan, once: list[int], kept: list[Storage]) -> tuple[Plan, Plan]:
    for label in {w for i in plan.instructions for w in i.words if isinstance(w, Label)}:
        label.position -= sum(at < label.position for at in once)
    constants = [*plan.constants, *(Kept(s.nbytes) for s in kept)]
    slots = plan.constants_at + len(constants)
    for slot, storage in enumerate(kept, plan.constants_at + len(plan.constants)):
        storage.slot = slot
    moved, ids = set(once), set(map(id, kept))
    storages = [s for s in plan.storages if id(s) not in ids]
    rest = [x for n, x in enumerate(plan.instructions) if n not in moved]
    first = [plan.instructions[n] for n in once] + [Instruction(vm.HALT, [])]
    sized = any(isinstance(s.nbytes, Dim) for s in storages)
    whole = replace(
        plan, instructions=rest, storages=storages, slots=slots, constants=constants,
        arena_bytes=0 if sized else packed(storages),
    )  # fmt: skip
    preparation = replace(
        whole, instructions=first, storages=[], arena_bytes=0, hosts=[], aliases={}
    )
    return whole, preparation


def _is_data(constant: object) -> bool:
    return not isinstance(constant, Zeros)


def _is_constant(storage: Storage, plan: Plan) -> bool:
    slot = storage.slot
    return (
        slot is not None
        and slot >= plan.constants_at
        and _is_data(plan.constants[slot - plan.constants_at])
    )


def _is_own(storage: Storage) -> bool:
    """Whether it is in the arena, and as large in every call."""
    return storage.slot is None and not isinstance(storage.nbytes, Dim)


def launches(instruction: Instruction) -> Iterator[tuple[tile.Kernel, list[View]]]:
    """The kernels of an instruction that launches some, with their operands."""
    words = instruction.words
    for n, word in enumerate(words):
        if isinstance(word, tile.Kernel):
            start = first_operand(instruction, n)
            yield word, words[start : start + words[start - 1]]


def _may_change(instruction: Instruction) -> Iterator[Storage]:
    """Memory that an instruction writes, or lets be written by telling its address."""
    if instruction.opcode in (vm.CALL, vm.CALLS):
        for kernel, views in launches(instruction):
            for parameter, view in zip(kernel.params, views, strict=True):
                if parameter.role not in ("in", "size"):
                    yield view.storage
        return
    views = [w for w in instruction.words if isinstance(w, View)]
    yield from (v.storage for v in (views[:1] if instruction.opcode == vm.COPY else views))


def _made_of(instruction: Instruction, stable: dict[int, Storage]) -> list[Storage]:
    """What a launch writes that reads nothing but memory that does not change; else nothing."""
    if instruction.opcode not in (vm.CALL, vm.CALLS) or _is_sized(instruction):
        return []
    made, read = [], 0
    for kernel, views in launches(instruction):
        for parameter, view in zip(kernel.params, views, strict=True):
            if view.counter != vm.ZERO:
                return []
            if parameter.role == "out":
                made.append(view.storage)
            elif parameter.role == "in" and id(view.storage) in stable:
                read += view.storage.nbytes
            elif parameter.role != "size":
                return []
    limit = _GROWTH * read + _ALLOWANCE
    return made if read and sum(s.nbytes for s in made if _is_own(s)) <= limit else []


def _is_sized(instruction: Instruction) -> bool:
    """Whether an instruction depends on symbolic sizes."""
    parts = [
        n for w in instruction.words
        for n in ((w.offset, w.stride) if isinstance(w, View) else
                  (w.programs, w.nanoseconds) if isinstance(w, Parallel) else (w,))
    ]  # fmt: skip
    return any(isinstance(n, Dim) for n in parts)
