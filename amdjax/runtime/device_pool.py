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

from amdjax.core.integers import round_up
from amdjax.runtime.memory import drain

__all__ = ["DevicePool", "DevicePoolStats"]

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

    def alloc(self, nbytes: int) -> tuple[int, int]:
        """The address of a block and its size, for `release`.

        Raises:
          MemoryError: the device has no memory left.
        """
        size = max(nbytes, 1) if self._exact else block_size(nbytes)
        if not self._exact:
            try:
                return self._free[size].pop(), size
            except (KeyError, IndexError):
                pass
        with self._lock:
            if self._exact or size > SMALL:
                return self._driver(size, nbytes), size
            return self._carve(size, nbytes), size

    def release(self, address: int, size: int) -> None:
        """Take a block back; the work that uses it may still wait on the device."""
        if not self._exact:
            self._free[size].append(address)
        else:
            del self._mapped[address]
            self._unmap(address)

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
        self._free.setdefault(size, []).extend(reversed(others))
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
                if length > SMALL:
                    self._free.setdefault(length, [])
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
