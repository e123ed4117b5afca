"""Launches of kernels that differ in numbers alone share one kernel, which is compiled once.

The products and convolutions of a network have few tiles and epilogues and many sizes. Each kernel
is written for its sizes; those of one structure are made one here, which launches tell the numbers
that differ. What is in registers, and how it is summed, stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from amdjax import tile
from amdjax.jit.horizontal import number
from amdjax.jit.instructions import Instruction, first_operand
from amdjax.tile.generalize import generalize, outline, structure


def may_share(kernel: tile.Kernel) -> bool:
    """Whether a kernel takes long to compile, and numbers that are read cost nothing in it."""
    return kernel.has_micro_kernel and not kernel.sizes


class SharedKernels:
    """As few kernels as there are structures of those of a program that may be shared."""

    def __init__(self) -> None:
        #: of a kernel, by its id: itself, which thus stays alive, what is compiled, and its numbers
        self._shared: dict[int, tuple[tile.Kernel, tile.Kernel, list[int]]] = {}

    def add(self, kernels: Iterable[tile.Kernel]) -> list[tile.Kernel]:
        """What is compiled for those of some kernels that may be shared and are not known yet."""
        new = {id(k): k for k in kernels if id(k) not in self._shared and may_share(k)}
        made = []
        for similar in _grouped(new.values(), outline):
            for alike in _grouped(similar, structure) if len(similar) > 1 else [similar]:
                alone = len(alike) == 1
                general, numbers = (alike[0], [[]]) if alone else generalize(alike)
                made.append(general)
                for kernel, own in zip(alike, numbers, strict=True):
                    self._shared[id(kernel)] = kernel, general, own
        return made

    def written(self, instructions: Sequence[Instruction]) -> list[Instruction]:
        """The instructions with what is compiled in place of the kernels."""
        return [self._sharing(i) for i in instructions]

    def _sharing(self, i: Instruction) -> Instruction:
        """An instruction that launches shared kernels, with their numbers behind its operands."""
        found = [n for n, w in enumerate(i.words) if id(w) in self._shared]
        words = list(i.words)
        for n in reversed(found):
            _, words[n], numbers = self._shared[id(words[n])]
            start = first_operand(i, n)
            stop = start + words[start - 1]
            words[stop:stop] = map(number, numbers)
            words[start - 1] += len(numbers)
        return Instruction(i.opcode, words, i.step) if found else i


def _grouped(
    kernels: Iterable[tile.Kernel], key: Callable[[tile.Kernel], object]
) -> Iterable[list[tile.Kernel]]:
    groups: dict[object, list[tile.Kernel]] = {}
    for kernel in kernels:
        groups.setdefault(key(kernel), []).append(kernel)
    return groups.values()
