"""Plans in machine words, made once for all sizes that a plan serves."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from amdjax import tile
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import Dim, compiled
from amdjax.core.dims.polynomial import Polynomial
from amdjax.core.instantiate import type_at
from amdjax.jit.instructions import Instruction, Label, Parallel, Plan, View, places
from amdjax.runtime import vm


class Code:
    """The words of a plan, of which some wait for sizes, for places in the arena and for addresses.

    Args:
      plan: the plan.
      kernels: the addresses of its kernels, by their ids.
      out_avals: types of its results.
    """

    def __init__(self, plan: Plan, kernels: Mapping[int, int], out_avals: Sequence[Any]):
        self.plan, self.kernels, self.out_avals = plan, kernels, out_avals
        self._numbers: dict[Polynomial, int] = {}  # of sizes
        self._words: list[int] = []
        # Places of words, with what they wait for.
        self._sized: list[tuple[int, int]] = []  # the number of a size, which is added
        self._arena: list[tuple[int, int]] = []  # the number of a storage, whose offset is added
        self._slots: list[tuple[int, int]] = []  # a slot whose address another one may tell
        self._parallel: list[tuple[int, Parallel]] = []
        self._hosts: list[tuple[int, int]] = []  # the number of a call of Python
        self.starts: list[int] = []  # of instructions, in words behind the header
        self.targets: list[int] = []  # places of words that are such starts
        self._storages = {id(s): n for n, s in enumerate(plan.storages)}
        self._write()
        self._nbytes = [self._size(s.nbytes) for s in plan.storages]
        self._shapes = [self._shape(a) for a in out_avals]
        self._known = array("q", self._words)

    @cached_property
    def values(self) -> Callable[[Mapping[str, int]], Sequence[int]]:
        """Tells all sizes that words, storages and results have, where variables have values."""
        return compiled(list(self._numbers)) if self._numbers else lambda sizes: ()

    def results(self, sizes: Mapping[str, int], values: Sequence[int]) -> list[Any]:
        """The types of the results."""
        return [
            type_at(a, sizes) if shape is None else
            a.update(shape=tuple([_at(n, values) for n in shape]))
            for a, shape in zip(self.out_avals, self._shapes)
        ]  # fmt: skip

    def arena(self, values: Sequence[int]) -> tuple[int, Sequence[int]]:
        """How long the arena is, and the offsets of the storages in it."""
        storages = self.plan.storages
        return places([_at(n, values) for n in self._nbytes], storages) if storages else (0, ())

    def words(
        self, sizes: Mapping[str, int], values: Sequence[int], offsets: Sequence[int],
        fixed: Mapping[int, tuple[int, int]], hosts: Sequence[Any],
    ) -> array[int]:  # fmt: skip
        """The program in machine words.

        Args:
          sizes: of the variables.
          values: what `values` tells of these.
          offsets: of the storages.
          fixed: slots whose address is known from that in another slot: (that slot, bytes behind).
          hosts: what calls of Python call.
        """
        words = self._known[:]
        for at, n in self._sized:
            words[at] += values[n]
        for at, n in self._arena:
            words[at] += offsets[n]
        for at, slot in self._slots:
            base = fixed.get(slot)
            if base is not None:
                words[at] = base[0]
                words[at + 1] += base[1]
        for at, parallel in self._parallel:
            words[at] = parallel.at(sizes)
        for at, n in self._hosts:
            words[at] = id(hosts[n])
        return words

    # Making it

    def _write(self) -> None:
        plan, labels, starts = self.plan, list[tuple[int, Label]](), self.starts
        self._words += vm.header(max([1, *map(_operands, plan.instructions)]), plan.constants_at)
        first = len(self._words)
        for i in plan.instructions:
            starts.append(len(self._words) - first)
            self._words.append(i.opcode)
            for n, w in enumerate(i.words):
                if isinstance(w, Label):
                    labels.append((len(self._words), w))
                    self._words.append(0)
                elif i.opcode == vm.HOST and n == 0:
                    self._hosts.append((len(self._words), w))
                    self._words.append(0)
                else:
                    self._word(w)
        starts.append(len(self._words) - first)
        for at, label in labels:
            self._words[at] = starts[label.position]
            self.targets.append(at)

    def _word(self, w: Any) -> None:
        at = len(self._words)
        if type(w) is int:  # as most are
            self._words.append(w)
        elif isinstance(w, View):
            self._operand(w)
        elif isinstance(w, tile.Kernel):
            self._words.append(self.kernels[id(w)])
        elif isinstance(w, Parallel):
            self._parallel.append((at, w))
            self._words.append(0)
        elif isinstance(w, Dim):
            self._sized.append((at, self._number(w)))
            self._words.append(0)
        else:
            self._words.append(int(w))

    def _operand(self, view: View) -> None:
        """Slot, offset, counter and stride."""
        at, slot = len(self._words), view.storage.slot
        if slot is None:
            self._arena.append((at + 1, self._storages[id(view.storage)]))
        elif slot >= self.plan.outputs:
            self._slots.append((at, slot))
        for w in (vm.ARENA if slot is None else slot, view.offset, view.counter, view.stride):
            self._word(w)

    def _number(self, dim: Dim) -> int:
        return self._numbers.setdefault(dim.polynomial, len(self._numbers))

    def _size(self, n: Any) -> Any:
        """A number, or the place among the sizes as a sequence of one."""
        return (self._number(n),) if isinstance(n, Dim) else n

    def _shape(self, aval: Any) -> list[Any] | None:
        """The shape of an array, where sizes are as `_size` gives them."""
        if type(aval) is not ShapedArray or not any(isinstance(n, Dim) for n in aval.shape):
            return None
        return list(map(self._size, aval.shape))


def _at(n: Any, values: Sequence[int]) -> int:
    """What `Code._size` gives as a number."""
    return values[n[0]] if type(n) is tuple else n


def _operands(i: Instruction) -> int:
    """For how many operands an instruction takes room."""
    if i.opcode == vm.CALLS:
        kernels = (n for n, w in enumerate(i.words) if isinstance(w, tile.Kernel))
        return vm.operands_of_calls([i.words[n + 2] for n in kernels])
    return sum(isinstance(w, View) for w in i.words)
