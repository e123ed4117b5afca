"""The memory that kernels may touch: allocations of this process by address, and their shadows."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class Memory:
    """A registry of allocations; accesses outside them are faults.

    Device addresses are addresses of this process, so buffers need no copies. An allocation whose
    contents not written yet has a shadow, a byte for each of its own: stores of kernels set
    it, the host says what it wrote by `written`, and reading the rest is a fault.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._keep: dict[int, Any] = {}
        self._shadows: dict[int, np.ndarray] = {}
        self._shadow_addresses: dict[int, int] = {}  # NumPy takes a while to tell an address
        self._table: np.ndarray | None = None
        # To tell an access to what is gone from one to what never was.
        self._released: deque[tuple[int, int]] = deque(maxlen=1024)

    def register(self, address: int, size: int, owner: Any = None, initialized: bool = True) -> int:
        """Allow accesses to `size` bytes from `address`; keeps `owner` alive meanwhile.

        Args:
            address: the first byte.
            size: in bytes.
            owner: what keeps the memory.
            initialized: False where it is not written yet.
        """
        if address not in self._sizes:
            bisect.insort(self._starts, address)
        self._sizes[address] = size
        self._keep[address] = owner
        self._drop_shadow(address)
        if not initialized:
            shadow = self._shadows[address] = np.zeros(size + 64, np.uint8)
            self._shadow_addresses[address] = shadow.ctypes.data
        self._table = None
        return address

    def release(self, address: int) -> None:
        """Forget an allocation.

        Raises:
            KeyError: nothing is registered there.
        """
        self._released.append((address, address + self._sizes.pop(address)))
        self._keep.pop(address)
        self._drop_shadow(address)
        self._starts.remove(address)
        self._table = None

    def _drop_shadow(self, address: int) -> None:
        self._shadows.pop(address, None)
        self._shadow_addresses.pop(address, None)

    def add(self, array: np.ndarray) -> int:
        """Register an array's memory; returns its address."""
        return self.register(array.ctypes.data, array.nbytes, array)

    def written(self, address: int, size: int) -> None:
        """The host wrote these bytes."""
        shadow = self._shadow(address, size)
        if shadow is not None:
            shadow[:] = 1

    def copied(self, to: int, source: int, size: int) -> None:
        """Bytes were copied on the device: what was not written stays so."""
        target, origin = self._shadow(to, size), self._shadow(source, size)
        if target is not None:
            target[:] = 1 if origin is None else origin

    def is_written(self, address: int, size: int) -> bool:
        """Whether all these bytes have been written."""
        shadow = self._shadow(address, size)
        return shadow is None or bool(shadow.all())

    def was_released(self, address: int) -> bool:
        """Whether an allocation that was there has been released, not long ago."""
        return any(start <= address < end for start, end in self._released)

    def _shadow(self, address: int, size: int) -> np.ndarray | None:
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0 or (start := self._starts[index]) not in self._shadows:
            return None
        if address + size > start + self._sizes[start]:
            return None
        return self._shadows[start][address - start : address - start + size]

    @contextmanager
    def holding(self, *arrays: np.ndarray) -> Iterator[None]:
        """Register arrays for the duration of a launch."""
        added = [self.add(a) for a in arrays if a.nbytes and a.ctypes.data not in self._sizes]
        try:
            yield
        finally:
            for address in added:
                self.release(address)

    def table(self) -> np.ndarray:
        """Sorted rows of (start, end, shadow or 0)."""
        if self._table is None:
            sizes, shadows = self._sizes, self._shadow_addresses
            rows = [(start, start + sizes[start], shadows.get(start, 0)) for start in self._starts]
            self._table = np.array(rows, np.uint64).reshape(-1, 3)
        return self._table
