"""A caching pool of device memory, shared by all kinds of GPUs.

Drivers allocate slowly, and freeing waits for the device; so what a buffer leaves is kept for the
next one of about its size. Blocks up to 128 KiB are carved out of slabs, larger ones are mapped one
by one. Work on a device is in order: memory may be given to later work while earlier work that uses
it still waits, so releasing needs no event and takes no lock, and the garbage collector may do it.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from amdjax.core.integers import round_up
from amdjax.runtime.memory import drain

GRANULE = 256  # bytes; drivers align to this at least, and so do vector accesses
SMALL = 128 << 10
SLAB = 2 << 20
LARGE = 16 << 20


@dataclass(frozen=True)
class DevicePoolStats:
    """Bytes handed out, kept for reuse, and mapped from the driver."""

    in_use: int
    cached: int
    mapped: int


class Returns(Protocol):
    """What takes an address back."""

    def append(self, address: int, /) -> None: ...


class DevicePool:
    """Hands out device addresses and keeps what comes back.

    Args:
      map: asks the driver for bytes; returns an address that is a multiple of 256, or None if
        there is no memory left.
      unmap: gives an address back to the driver, once the work that uses it is done.
      exact: whether every block is an allocation of its own, as long as was asked for, and freed
        at once; then a sanitizer sees accesses out of bounds and after the end of a buffer's life.
      kind: whose memory it is, for messages.
    """

    def __init__(
        self, map: Callable[[int], int | None], unmap: Callable[[int], None], exact: bool = False,
        kind: str = "device",
    ):  # fmt: skip
        self._kind = kind
        self._map, self._unmap, self._exact = map, unmap, exact
        self._mapped: dict[int, int] = {}  # address -> bytes of an allocation of the driver's
        self._free: dict[int, list[int]] = {}  # size of a block -> addresses of free ones
        self._slabs: dict[int, int] = {}  # address of a slab -> size of its blocks
        self._lock = threading.RLock()
        self._returned = _Returned(self)

    def alloc(self, nbytes: int) -> tuple[int, Returns]:
        """The address of a block, and what it is appended to when it is not needed any more.

        The work that uses it may still wait on the device then.

        Raises:
          MemoryError: the device has no memory left.
        """
        if self._exact:
            with self._lock:
                return self._driver(max(nbytes, 1), nbytes), self._returned
        size = block_size(nbytes)
        free = self._free.get(size)
        if free is None:
            free = self._free.setdefault(size, [])
        try:
            return free.pop(), free
        except IndexError:
            pass
        with self._lock:
            carve = self._driver if size > SMALL else self._carve
            return carve(size, nbytes), free

    def free_addresses(self, nbytes: int) -> list[int] | None:
        """Where `alloc` takes blocks from while there are any; None where all are exact."""
        return None if self._exact else self._free.setdefault(block_size(nbytes), [])

    def trim(self) -> None:
        """Give cached memory back to the driver."""
        with self._lock:
            for size, free in list(self._free.items()):
                if size > SMALL:
                    self._trim_large(free)
                else:
                    self._trim_slabs(size, free)

    def stats(self) -> DevicePoolStats:
        """What the pool holds now."""
        mapped = sum(list(self._mapped.values()))
        cached = sum(size * len(free) for size, free in list(self._free.items()))
        cached += sum(SLAB % size for size in list(self._slabs.values()))
        return DevicePoolStats(max(mapped - cached, 0), cached, mapped)

    def _carve(self, size: int, nbytes: int) -> int:
        """A block of a new slab; the others are free."""
        slab = self._driver(SLAB, nbytes)
        self._slabs[slab] = size
        first, *others = range(slab, slab + SLAB // size * size, size)
        self._free[size].extend(reversed(others))
        return first

    def _driver(self, length: int, nbytes: int) -> int:
        """Memory from the driver; what else could be freed goes first."""
        for attempt in range(3):
            if attempt == 2:
                gc.collect()
            if attempt:
                self.trim()
            address = self._map(length)
            if address is not None:
                self._mapped[address] = length
                return address
        stats = self.stats()
        raise MemoryError(
            f"out of {self._kind} memory: {nbytes:,} bytes asked for, {stats.in_use:,} in use by "
            "arrays; delete arrays that are no longer needed, or donate them"
        )

    def _trim_large(self, free: list[int]) -> None:
        for address in drain(free):
            del self._mapped[address]
            self._unmap(address)

    def _trim_slabs(self, size: int, free: list[int]) -> None:
        """Free the slabs of which all blocks are free."""
        addresses = drain(free)  # others who allocate meanwhile see none and take from elsewhere
        slabs = sorted(slab for slab, of in self._slabs.items() if of == size)
        owner = {a: next(s for s in reversed(slabs) if s <= a) for a in addresses}
        counts = Counter(owner.values())
        whole = {slab for slab, count in counts.items() if count == SLAB // size}
        free.extend(a for a in addresses if owner[a] not in whole)
        for slab in whole:
            del self._slabs[slab], self._mapped[slab]
            self._unmap(slab)


class _Returned:
    """Gives addresses back to the driver."""

    def __init__(self, pool: DevicePool):
        self._pool = pool

    def append(self, address: int) -> None:
        del self._pool._mapped[address]
        self._pool._unmap(address)


def block_size(nbytes: int) -> int:
    """The size of the blocks that serve `nbytes`: four steps to a doubling, 32 of large ones.

    Of large blocks there are few sizes, and what is rounded up is memory that a model lacks.

    >>> block_size(1), block_size(1000), block_size(1025), block_size(100_000)
    (256, 1024, 1280, 114688)
    >>> block_size(1_000_000_000) / 1e9
    1.00663296
    """
    if nbytes <= 4 * GRANULE:
        return max(GRANULE, round_up(nbytes, GRANULE))
    step = 1 << ((nbytes - 1).bit_length() - (3 if nbytes <= LARGE else 6))
    return round_up(nbytes, step)
