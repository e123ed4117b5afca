"""Arrays that compiled programs take: copies in the host's memory, and whether they are shared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray, refuse_abstract
from amdjax.runtime.memory import Buffer, buffer_pool

#: A compiled program as a function of arrays.
Runner = Callable[[Sequence[ConcreteArray]], list[ConcreteArray]]


@dataclass(frozen=True, eq=False)
class SizedRunner:
    """A compiled program whose dimensions are symbolic.

    Attributes:
      make: the program for sizes of its dimension variables.
      identity: equals that of any program that computes the same in the same way.
      launches: of each the name of the kernel, what equals that of kernels of the same code, and
        the number of its programs.
      peaks: makes, of each moment at which most memory may be live, the sizes of what is, in bytes.
      aliases: results that take over the memory of donated arguments.
      written: its plan as data, where what is compiled is recorded.
    """

    make: Callable[[Mapping[str, int]], Runner]
    identity: Any
    launches: Sequence[tuple[str, Any, Any]] = ()
    peaks: Callable[[], Sequence[Sequence[Any]]] = list
    aliases: Sequence[int] = ()
    written: bytes | None = None


def host_buffer(value: np.ndarray) -> Buffer:
    """A buffer of our own with the contents of `value`."""
    refuse_abstract(value)
    value = np.asarray(value)
    buffer = buffer_pool().alloc(value.nbytes)
    if value.nbytes:
        buffer.as_numpy(value.shape, value.dtype, writable=True)[...] = value
    return buffer


def on_host(x: ConcreteArray) -> ConcreteArray:
    """An array in host memory: `x` if it is there, else a copy."""
    return x if isinstance(x.buffer, Buffer) else ConcreteArray(x.aval, host_buffer(x._view()))


def _references(array: ConcreteArray) -> int:
    return sys.getrefcount(array.buffer)


_ALONE = _references(ConcreteArray(ShapedArray((), np.dtype("float32")), Buffer()))


def is_sole_owner(array: ConcreteArray) -> bool:
    """Whether no NumPy view, constant or other array uses this array's memory, nor the caller's."""
    return array.buffer.is_own and _references(array) <= _ALONE


def require_buffers(args: Sequence[ConcreteArray]) -> None:
    """Raise for an argument that was donated or deleted."""
    for a in args:
        if a.buffer is None:
            np.asarray(a)
