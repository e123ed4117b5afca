"""What a planned program is: instructions, and where in memory the values are that they name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.core.dims import Dim, at_sizes, compiled, divisor
from amdjax.core.instantiate import params_at, type_at
from amdjax.core.integers import round_up
from amdjax.core.sharding import Space
from amdjax.runtime import vm
from amdjax.targets.cpu import PARALLEL_FROM

ALIGN = 64
MANY = 200  # parts of an arena from which on a table of them is faster than a list
COMPARED = 1 << 16  # bytes of constants that may be equal without being one object


@dataclass(eq=False)
class Storage:
    """A range of memory; `slot` is None for the arena, where `offset` is decided last.

    Attributes:
      align: bytes of which its address is a multiple.
      space: whether it is in the device's memory or, on a GPU, in the host's; each has an arena.
    """

    nbytes: int
    slot: int | None = None
    writable: bool = True
    offset: int = 0
    align: int = ALIGN
    first: int = 1 << 60
    last: int = -1
    space: Space = Space.Device


@dataclass(frozen=True)
class View:
    """Where a value is: an address that may advance with a loop counter."""

    storage: Storage
    offset: int = 0
    counter: int = vm.ZERO
    stride: int = 0

    @property
    def align(self) -> int:
        """Bytes of which the address is a multiple, however far it advances."""
        bits = divisor(self.storage.align, self.offset, self.stride)
        return bits & -bits


@dataclass(eq=False)
class Label:
    position: int = -1


@dataclass(frozen=True)
class Parallel:
    """Whether waking other threads pays, which depends on sizes."""

    programs: int
    nanoseconds: float

    def at(self, sizes: Mapping[str, int]) -> int:
        alone = at_sizes(self.programs, sizes) <= 1
        return 0 if alone else int(at_sizes(self.nanoseconds, sizes) > PARALLEL_FROM)


@dataclass(frozen=True)
class Kept:
    """A constant of some bytes that is computed when a program is loaded."""

    nbytes: int


@dataclass(frozen=True)
class Zeros:
    """A constant of zero bytes."""

    nbytes: int


Word = Any  # a size, a View, a Label, a kernel or whether a launch is parallel


@dataclass
class Instruction:
    opcode: int
    words: list[Word]
    step: int = -1  # of the whole program, for which it works; -1 where it copies results


def first_operand(launch: Instruction, n: int) -> int:
    """Where the operands begin of the kernel at a place among the words; their number is before."""
    return n + (4 if launch.opcode == vm.CALL else 3)


@dataclass(frozen=True, eq=False)
class HostCall:
    """A call of Python: `fn(*operands, **params)` with arrays of these types."""

    fn: Callable[..., Any]
    params: dict[str, Any]
    in_avals: list[Any]
    out_avals: list[Any]

    def __call__(self, addresses: Sequence[int]) -> None:
        """Call with views of the operands; copy the results behind them."""
        n = len(self.in_avals)
        operands = [array_at(a, t) for a, t in zip(addresses, self.in_avals)]
        self.run(operands, [array_at(a, t) for a, t in zip(addresses[n:], self.out_avals)])

    def at(self, sizes: Mapping[str, int]) -> HostCall:
        """The call for given sizes of the variables of its dimensions."""
        params = params_at(self.params, sizes)
        ins, outs = ([type_at(a, sizes) for a in t] for t in (self.in_avals, self.out_avals))
        return replace(self, params=params, in_avals=ins, out_avals=outs)

    def run(self, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Call with arrays and fill others with the results."""
        for array in operands:
            array.flags.writeable = False
        values = self.fn(*operands, **self.params)
        for result, value in zip(results, values or [], strict=True):
            result[...] = value


@dataclass
class Plan:
    """A program for the machine, kernels and arena offsets still symbolic.

    Attributes:
      instructions: in order.
      storages: the parts of the arena; where sizes are symbolic, they have no places yet.
      slots: how many slots there are; arguments start at `inputs`, results at `outputs`.
      constants: arrays whose addresses fill the slots from `constants_at`.
      aliases: results that reuse the memory of a donated argument.
      hosted: arguments that are in the host's memory.
      host_bytes: how long the arena in the host's memory is, and
      host_slot: which slot has its address.
    """

    instructions: list[Instruction]
    storages: list[Storage]
    arena_bytes: int
    slots: int
    inputs: int
    outputs: int
    constants_at: int
    constants: list[Any]
    hosts: list[HostCall]
    aliases: dict[int, int] = field(default_factory=dict)
    hosted: frozenset[int] = frozenset()
    host_bytes: int = 0
    host_slot: int = vm.ZERO

    def kernels(self) -> list[tile.Kernel]:
        return [w for i in self.instructions for w in i.words if isinstance(w, tile.Kernel)]

    def launches(self, of_kernel: Callable[[tile.Kernel], Any]) -> list[tuple[str, Any, Word]]:
        """Of each launch the kernel's name, what `of_kernel` is of it, and how many programs."""
        pairs = (pair for i in self.instructions for pair in pairwise(i.words))
        return [(w.name, of_kernel(w), n) for w, n in pairs if isinstance(w, tile.Kernel)]

    def peaks(self) -> list[list[Any]]:
        """The sizes of parts of the arena that are needed at once, by moments without a greater."""
        used = [s for s in self.storages if s.last >= 0 and s.space is Space.Device]
        live = [{id(s): s for s in used if s.first <= t.first <= s.last} for t in used]
        most = {tuple(x): x for x in live if not any(x.keys() < y.keys() for y in live)}
        return [[s.nbytes for s in x.values()] for x in most.values()]

    def identity(self, of_kernel: Callable[[tile.Kernel], Any]) -> Any:
        """What equals that of plans that do the same for all sizes, estimates left out.

        Args:
          of_kernel: what equals that of kernels that compute the same.
        """
        return _Identity(of_kernel).plan(self)

    def at(self, sizes: Mapping[str, int]) -> Plan:
        """The plan for given sizes of the variables of its dimensions."""
        dims, evaluated = self._dims
        return _Instance(sizes, dict(zip(dims, evaluated(sizes)))).plan(self)

    @cached_property
    def _dims(self) -> tuple[list[int], Callable[[Mapping[str, int]], tuple[int, ...]]]:
        """The dimensions of storages and instructions, by id, and what evaluates them."""
        words = [w for i in self.instructions for w in i.words]
        views = [w for w in words if isinstance(w, View)]
        storages = (*self.storages, *(w.storage for w in views))
        places = (n for w in views for n in (w.offset, w.stride))
        sizes = (*(s.nbytes for s in storages), *places, *words)
        dims = {id(n): n for n in sizes if isinstance(n, Dim)}
        return [*dims], compiled([dim.polynomial for dim in dims.values()])


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch of a kernel.

    Attributes:
      kernel: the tile program.
      grid: number of programs.
      views: where its parameters are.
      nanoseconds: estimate for one thread.
    """

    kernel: tile.Kernel
    grid: int
    views: tuple[View, ...]
    nanoseconds: float


class _Identity:
    """What plans have in common that do the same; scopes and names of memory do not count."""

    def __init__(self, of_kernel: Callable[[tile.Kernel], Any]):
        self.of_kernel = of_kernel
        self._numbers: dict[int, int] = {}  # of storages, by id

    def plan(self, plan: Plan) -> Any:
        return (
            tuple(map(self.storage, plan.storages)),
            tuple((i.opcode, *map(self.word, i.words)) for i in plan.instructions),
            (plan.slots, plan.inputs, plan.outputs, plan.constants_at),
            tuple(map(self.constant, plan.constants)),
            tuple(sorted(plan.aliases.items())),
            plan.hosted,
            tuple(plan.hosts),  # of which none equals another
        )

    def storage(self, s: Storage) -> Any:
        """A number, with all that it stands for where it is new."""
        known = self._numbers.get(id(s))
        if known is not None:
            return known
        number = self._numbers[id(s)] = len(self._numbers)
        return number, self.word(s.nbytes), s.slot, s.writable, s.align, s.first, s.last, s.space

    def word(self, w: Word) -> Any:
        if isinstance(w, View):
            offset, stride = self.word(w.offset), self.word(w.stride)
            return self.storage(w.storage), offset, w.counter, stride
        if isinstance(w, tile.Kernel):
            return self.of_kernel(w)
        if isinstance(w, Parallel):
            return (self.word(w.programs),)
        if isinstance(w, Label):
            return w.position
        return w.polynomial if isinstance(w, Dim) else w

    def constant(self, x: Any) -> Any:
        if isinstance(x, Zeros | Kept):
            return type(x).__name__, self.word(x.nbytes)
        if isinstance(x, np.ndarray) and x.nbytes <= COMPARED:
            return x.dtype, x.shape, x.tobytes()
        return id(x)  # which the plan keeps alive


class _Instance:
    """What a plan with symbolic sizes is where they are known."""

    def __init__(self, sizes: Mapping[str, int], known: Mapping[int, int]):
        self.sizes, self.known = sizes, known
        self._storages: dict[int, Storage] = {}

    def plan(self, plan: Plan) -> Plan:
        storages = list(map(self.storage, plan.storages))
        hosts = [call.at(self.sizes) for call in plan.hosts]
        constants = [
            np.zeros(at_sizes(x.nbytes, self.sizes), np.uint8) if isinstance(x, Zeros) else x
            for x in plan.constants
        ]
        instructions = [
            Instruction(i.opcode, list(map(self.word, i.words)), i.step) for i in plan.instructions
        ]
        return replace(
            plan, instructions=instructions, storages=storages, constants=constants, hosts=hosts,
            arena_bytes=packed(storages), host_bytes=packed(storages, Space.Host),
        )  # fmt: skip

    def storage(self, s: Storage) -> Storage:
        found = self._storages.get(id(s))
        if found is None:
            found = self._storages[id(s)] = object.__new__(
                type(s)
            )  # `copy` takes three times as long
            found.__dict__.update(s.__dict__)
            found.nbytes = self.size(s.nbytes)
        return found

    def word(self, w: Word) -> Word:
        if isinstance(w, View):
            offset, stride = self.size(w.offset), self.size(w.stride)
            return View(self.storage(w.storage), offset, w.counter, stride)
        return w.at(self.sizes) if isinstance(w, Parallel) else self.size(w)

    def size(self, x: Any) -> Any:
        """A dimension of the plan as the number that it is; anything else as it is."""
        return self.known[id(x)] if isinstance(x, Dim) else x


def packed(storages: Sequence[Storage], space: Space = Space.Device) -> int:
    """Give parts of the arena in a memory space their offsets. How long it is."""
    storages = [s for s in storages if s.space is space]
    total, offsets = places([s.nbytes for s in storages], storages)
    for s, offset in zip(storages, offsets):
        s.offset = offset
    return total


def places(nbytes: Sequence[int], storages: Sequence[Storage]) -> tuple[int, list[int]]:
    """Where parts of the arena of given sizes go: first fit, the largest first.

    Returns:
      How long the arena is, and the offsets.
    """
    used = [i for i, s in enumerate(storages) if s.last >= 0 and nbytes[i]]
    used.sort(key=lambda i: (-nbytes[i], storages[i].first))
    placed = _Many(len(used)) if len(used) > MANY else _Few()
    offsets = [0] * len(storages)
    total = 0
    for i in used:
        at = offsets[i] = placed.place(nbytes[i], storages[i].first, storages[i].last)
        total = max(total, at + nbytes[i])
    return total, offsets


class _Few:
    """Parts of the arena that have their places."""

    def __init__(self) -> None:
        self._placed: list[tuple[int, int, int, int]] = []  # start, end, first, last

    def place(self, nbytes: int, first: int, last: int) -> int:
        """Where one more goes that is needed from `first` to `last`."""
        at = 0
        for start, end, *_ in sorted(x for x in self._placed if x[2] <= last and first <= x[3]):
            if at + nbytes <= start:
                break
            at = max(at, end)
        self._placed.append((at, round_up(at + nbytes, ALIGN), first, last))
        return at


class _Many:
    """The same as a table in the order of starts, which is looked through at once."""

    def __init__(self, count: int) -> None:
        self._table, self._count = np.empty((4, count), np.int64), 0

    def place(self, nbytes: int, first: int, last: int) -> int:
        starts, ends, firsts, lasts = self._table[:, : self._count]
        beside = np.flatnonzero((firsts <= last) & (first <= lasts))
        free = np.maximum.accumulate(np.concatenate([[0], ends[beside]]))  # from where, so far
        fits = np.flatnonzero(free[:-1] + nbytes <= starts[beside])
        at = int(free[fits[0] if fits.size else -1])
        place = int(np.searchsorted(starts, at))
        self._table[:, place + 1 : self._count + 1] = self._table[:, place : self._count]
        self._table[:, place] = at, round_up(at + nbytes, ALIGN), first, last
        self._count += 1
        return at


def array_at(address: int, aval: Any) -> np.ndarray:
    """A NumPy view of memory; an empty array where there is none."""
    nbytes = aval.nbytes
    if nbytes == 0:
        return np.empty(aval.shape, aval.dtype)
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    return np.frombuffer(memory, dtype=aval.dtype).reshape(aval.shape)
