"""The memory that kernels may touch: allocations of this process by address."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class Memory:
    """A registry of allocations; accesses outside them are faults.

    Device addresses are addresses of this process, so buffers need no copies.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._keep: dict[int, Any] = {}
        self._table: np.ndarray | None = None

    def register(self, address: int, size: int, owner: Any = None) -> int:
        """Allow accesses to `size` bytes from `address`; keeps `owner` alive meanwhile."""
        if address not in self._sizes:
            bisect.insort(self._starts, address)
        self._sizes[address] = size
        self._keep[address] = owner
        self._table = None
        return address

    def release(self, address: int) -> None:
        """Forget an allocation.

        Raises:
            KeyError: nothing is registered there.
        """
        del self._sizes[address]
        self._keep.pop(address)
        self._starts.remove(address)
        self._table = None

    def add(self, array: np.ndarray) -> int:
        """Register an array's memory; returns its address."""
        return self.register(array.ctypes.data, array.nbytes, array)

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
        """Sorted rows of (start, end)."""
        if self._table is None:
            rows = [(start, start + self._sizes[start]) for start in self._starts]
            self._table = np.array(rows, np.uint64).reshape(-1, 2)
        return self._table
