"""What a planned program is: instructions, and where in memory the values are that they name."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.runtime import vm

__all__ = ["ALIGN", "HostCall", "Instruction", "Label", "Launch", "Plan", "Storage", "View", "Word"]

ALIGN = 64


@dataclass(eq=False)
class Storage:
    """A range of memory; `slot` is None for the arena, where `offset` is decided last.

    Attributes:
      align: bytes of which its address is a multiple.
    """

    nbytes: int
    slot: int | None = None
    writable: bool = True
    offset: int = 0
    align: int = ALIGN
    first: int = 1 << 60
    last: int = -1


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
        bits = self.storage.align | self.offset | self.stride
        return bits & -bits


@dataclass(eq=False)
class Label:
    position: int = -1


Word = Any  # an int, a View, a Label or a kernel


@dataclass
class Instruction:
    opcode: int
    words: list[Word]


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
      slots: how many slots there are; arguments start at `inputs`, results at `outputs`.
      constants: arrays whose addresses fill the slots from `constants_at`.
      aliases: results that reuse the memory of a donated argument.
    """

    instructions: list[Instruction]
    arena_bytes: int
    slots: int
    inputs: int
    outputs: int
    constants_at: int
    constants: list[Any]
    hosts: list[HostCall]
    aliases: dict[int, int] = field(default_factory=dict)

    def kernels(self) -> list[tile.Kernel]:
        return [w for i in self.instructions for w in i.words if isinstance(w, tile.Kernel)]


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


def array_at(address: int, aval: Any) -> np.ndarray:
    """A NumPy view of memory; an empty array where there is none."""
    nbytes = aval.nbytes
    if nbytes == 0:
        return np.empty(aval.shape, aval.dtype)
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    return np.frombuffer(memory, dtype=aval.dtype).reshape(aval.shape)
