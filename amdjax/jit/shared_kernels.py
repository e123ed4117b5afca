"""Launches of kernels that differ in numbers alone share one kernel, which is compiled once.

The products and convolutions of a network have few tiles and epilogues and many sizes. Each kernel
is written for its sizes; those of one structure are made one here, which launches tell the numbers
that differ. What is in registers, and how it is summed, stays as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdjax import tile
from amdjax.jit.horizontal import number
from amdjax.jit.instructions import Instruction, first_operand
from amdjax.tile.generalize import generalize, structure

__all__ = ["may_share", "share_kernels"]


def may_share(kernel: tile.Kernel) -> bool:
    """Whether a kernel takes long to compile, and numbers that are read cost nothing in it."""
    return kernel.has_micro_kernel and not kernel.sizes


def share_kernels(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The instructions with as few kernels as there are structures of those that may be shared."""
    groups: dict[object, dict[int, tile.Kernel]] = {}
    seen: dict[int, tile.Kernel] = {}
    for kernel in (w for i in instructions for w in i.words if isinstance(w, tile.Kernel)):
        if id(kernel) not in seen and may_share(kernel):
            seen[id(kernel)] = kernel
            groups.setdefault(structure(kernel), {})[id(kernel)] = kernel
    shared: dict[int, tuple[tile.Kernel, list[int]]] = {}
    for alike in groups.values():
        if len(alike) > 1:
            general, numbers = generalize(list(alike.values()))
            shared |= {key: (general, own) for key, own in zip(alike, numbers, strict=True)}
    return [_sharing(i, shared) for i in instructions] if shared else list(instructions)


def _sharing(i: Instruction, shared: dict[int, tuple[tile.Kernel, list[int]]]) -> Instruction:
    """An instruction that launches shared kernels, with their numbers behind its operands."""
    words = list(i.words)
    for n in reversed(range(len(words))):
        if id(words[n]) in shared:
            words[n], numbers = shared[id(words[n])]
            start = first_operand(i, n)
            stop = start + words[start - 1]
            words[stop:stop] = map(number, numbers)
            words[start - 1] += len(numbers)
    return Instruction(i.opcode, words, i.step)
