"""Memory for arrays: a caching pool of buffers, and NumPy views of them.

Fresh pages are the largest cost of a large elementwise operation, so freed memory is kept for the
next one of about its size. Blocks up to 64 KiB are carved out of slabs, larger ones are mapped
one by one, on huge pages where they span any. `alloc` and the death of a buffer are on the
dispatch path: each is a few list operations, which Python makes atomic, and takes no lock; the
garbage collector may free buffers in the midst of everything here.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from amdjax.core.integers import round_up
from amdjax.core.pages import private_pages
from amdjax.runtime.environment import memory_bytes

ALIGNMENT = 64
_SMALL = 64 << 10
_SLAB = 1 << 20
_HUGE = 2 << 20
_PAGE = mmap.PAGESIZE


class Block:
    """A piece of memory of any device, which machine code makes as well (`dispatch_ir`).

    Attributes:
        address: of the first byte.
        nbytes: as asked for.
    """

    __slots__ = ("__weakref__", "address", "nbytes")

    address: int
    nbytes: int


class Buffer(Block):
    """A piece of the host's memory; goes back where it came from when the last reference goes.

    Attributes:
        address: of the first byte; a multiple of `ALIGNMENT` unless the memory is NumPy's.
        nbytes: as asked for.
        read_only: whether writing is forbidden.
        is_own: whether the memory is the pool's, not a caller's.
    """

    __slots__ = ()

    read_only = False
    is_own = True

    @staticmethod
    def from_numpy(array: np.ndarray) -> Buffer:
        """The memory of a C-contiguous array, which lives as long as the buffer.

        Raises:
            ValueError: the array is not C-contiguous.
            TypeError: it holds Python objects.
        """
        return _NumpyBuffer(array)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # NumPy makes this object the base of the view, which keeps the memory.
        return {
            "version": 3,
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, self.read_only),
        }

    def as_numpy(
        self, shape: Sequence[int], dtype: Any, *, offset: int = 0, writable: bool = False
    ) -> np.ndarray:
        """A zero-copy view that keeps the buffer.

        Args:
            shape: of the view; its elements are consecutive (C order).
            dtype: any NumPy dtype, those of `ml_dtypes` included.
            offset: bytes before the first element.
            writable: allow writing through the view, if the buffer does.
        """
        dtype = np.dtype(dtype)
        count = 1
        for extent in shape:
            count *= extent
        end = offset + count * dtype.itemsize
        if offset < 0 or end > self.nbytes:
            raise ValueError(
                f"as_numpy: shape {tuple(shape)} of {dtype} at offset {offset} needs {end} bytes, "
                f"the buffer has {self.nbytes}"
            )
        view = np.asarray(self)[offset:end].view(dtype).reshape(shape)
        if not writable:
            view.flags.writeable = False
        return view

    def held(self) -> tuple[int, Any]:
        """An address of the contents, and what they stay for while it is there."""
        return self.address, self

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}(address={self.address:#x}, nbytes={self.nbytes})"


class BufferPart(Buffer):
    """A range of another buffer, which it keeps; several small results share one allocation."""

    __slots__ = ("whole",)

    def __init__(self, whole: Buffer, address: int, nbytes: int) -> None:
        self.whole = whole
        self.address = address
        self.nbytes = nbytes


class SmallBuffer(Buffer):
    """A buffer whose address goes back to a list of free ones."""

    __slots__ = ("_free",)

    def __init__(self, address: int, nbytes: int, free: list[int]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.address)


class _LargeBuffer(Buffer):
    __slots__ = ("_pool", "_size")

    def __init__(self, address: int, nbytes: int, size: int, pool: BufferPool) -> None:
        self.address = address
        self.nbytes = nbytes
        self._size = size
        self._pool = pool

    def __del__(self) -> None:
        self._pool._release(self.address, self._size)


class _NumpyBuffer(Buffer):
    __slots__ = ("_array", "read_only")

    is_own = False

    def __init__(self, array: np.ndarray) -> None:
        if not array.flags.c_contiguous:
            raise ValueError("Buffer.from_numpy: the array must be C-contiguous")
        if array.dtype.hasobject:
            raise TypeError("Buffer.from_numpy: the array holds Python objects")
        self.address = array.ctypes.data
        self.nbytes = array.nbytes
        self.read_only = not array.flags.writeable
        self._array = array


class LateBuffer(Buffer):
    """The contents of an array whose elements are not aligned, which never changes.

    They are copied once an address is asked for, since most are packed for products, or kept on
    disk as they are packed, and are not read again.

    Args:
        array: C-contiguous.
    """

    __slots__ = ("_array", "_memory")

    read_only = True
    is_own = False

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.nbytes = array, array.nbytes

    def __getattr__(self, name: str) -> Any:
        """The address, which is no attribute before it is asked for."""
        if name != "address":
            raise AttributeError(name)
        with _copying:
            if not hasattr(self, "_memory"):
                self._memory = _aligned(self._array)
                self.address = self._memory.ctypes.data
        return self.address

    def held(self) -> tuple[int, Any]:
        """An address of the contents, and what they stay for while it is there."""
        if hasattr(self, "_memory"):
            return self.address, self
        copy = _aligned(self._array)
        return copy.ctypes.data, copy


_copying = Lock()


def _aligned(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, where they are aligned."""
    made = np.ndarray(array.nbytes, np.uint8, private_pages(array.nbytes))
    made[:] = array.reshape(-1).view(np.uint8)
    return made


@dataclass(frozen=True)
class PoolStats:
    """Bytes of a pool: handed out, kept for reuse, mapped from the system; the limits."""

    in_use: int
    cached: int
    mapped: int
    limit: int
    keep: int


class BufferPool:
    """Allocates buffers and keeps what they leave behind.

    Args:
        limit: bytes to map at most; the memory of the machine or container by default.
        keep: bytes of large blocks to keep for reuse; a quarter of the limit by default.
    """

    def __init__(self, limit: int | None = None, keep: int | None = None) -> None:
        self.limit = memory_bytes() if limit is None else limit
        self.keep = self.limit // 4 if keep is None else keep
        self._mapped: dict[int, int] = {}  # address of a mapping -> its length
        # Small blocks: free addresses by size, and by (nbytes + 63) // 64 for speed.
        sizes = _small_sizes()
        self._small: dict[int, list[int]] = {size: [] for size in sizes}
        self._uncarved: dict[int, list[tuple[int, int]]] = {size: [] for size in sizes}
        self._slabs: dict[int, int] = {}  # address of a slab -> size of its blocks
        self._table = [self._small[_first_at_least(sizes, 64 * i)] for i in range(_SMALL // 64 + 1)]
        # Large blocks: (time of release, address) by size, oldest first.
        self._large: dict[int, list[tuple[int, int]]] = {}
        self._releases = itertools.count()
        self._cached_estimate = 0

    def alloc(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes` bytes, whose content is undefined.

        Raises:
            MemoryError: the limit would be exceeded; names what was asked for and what is in use.
        """
        if nbytes <= _SMALL:
            free = self._table[(nbytes + 63) >> 6]
            try:
                return SmallBuffer(free.pop(), nbytes, free)
            except IndexError:
                return SmallBuffer(self._carve(nbytes), nbytes, free)
        return self._alloc_large(nbytes)

    def free_addresses(self, nbytes: int) -> list[int] | None:
        """Where `alloc` takes small blocks from while there are any; None for large ones."""
        return self._table[(nbytes + 63) >> 6] if nbytes <= _SMALL else None

    def stats(self) -> PoolStats:
        """What the pool holds now."""
        mapped = sum(list(self._mapped.values()))
        cached = self._cached_large()
        for size, free in self._small.items():
            cached += size * len(free)
            cached += sum(end - start for start, end in list(self._uncarved[size]))
        cached += sum(_SLAB % size for size in list(self._slabs.values()))
        return PoolStats(max(mapped - cached, 0), cached, mapped, self.limit, self.keep)

    def trim(self, keep: int = 0) -> None:
        """Give cached memory back to the system until at most `keep` bytes of it remain."""
        self._trim_large(keep)
        if keep == 0:
            for size in self._small:
                self._trim_small(size)

    def _carve(self, nbytes: int) -> int:
        """The address of a new small block; leaves some more of them in the free list."""
        if nbytes < 0:
            raise ValueError(f"alloc: nbytes must not be negative, got {nbytes}")
        size = _class_size(nbytes)
        ranges = self._uncarved[size]
        try:
            start, end = ranges.pop()
        except IndexError:
            start = self._map(_SLAB, _SLAB, nbytes)
            self._slabs[start] = size
            end = start + _SLAB // size * size
        batch = start + size * max(1, min(64, _SMALL // size))
        # Lanes that a mask hides from a load or store take 130 ns a register, more than a small
        # kernel, if their page was never written. What lies behind is no other thread's yet.
        ctypes.memset(start, 0, min(batch + _PAGE, end) - start)
        if batch < end:
            ranges.append((batch, end))
        self._small[size].extend(range(start + size, min(batch, end), size))
        return start

    def _alloc_large(self, nbytes: int) -> Buffer:
        size = _class_size(nbytes)
        # The next two classes waste less than fresh pages cost.
        for candidate in (size, _class_size(size + 1), _class_size(_class_size(size + 1) + 1)):
            try:
                _, address = self._large[candidate].pop()
            except (KeyError, IndexError):
                continue
            self._cached_estimate -= candidate
            return _LargeBuffer(address, nbytes, candidate, self)
        alignment = _HUGE if size >= _HUGE else _PAGE
        address = self._map(round_up(size, _PAGE), alignment, nbytes)
        return _LargeBuffer(address, nbytes, size, self)

    def _release(self, address: int, size: int) -> None:
        """A large buffer died."""
        block = (next(self._releases), address)
        try:
            self._large[size].append(block)
        except KeyError:
            self._large.setdefault(size, []).append(block)
        self._cached_estimate += size
        # Threads may lose each other's updates of the estimate; the sum is exact.
        if self._cached_estimate > self.keep:
            self._cached_estimate = self._cached_large()
            if self._cached_estimate > self.keep:
                self._trim_large(self.keep)

    def _cached_large(self) -> int:
        return sum(size * len(blocks) for size, blocks in list(self._large.items()))

    def _trim_large(self, keep: int) -> None:
        while self._cached_large() > keep:
            ages = [(blocks[0][0], size) for size, blocks in self._heads()]
            if not ages:
                break
            size = min(ages)[1]
            try:
                _, address = self._large[size].pop(0)
            except IndexError:
                continue
            self._unmap(address)
        self._cached_estimate = self._cached_large()

    def _heads(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Classes with free blocks, and the oldest of these."""
        heads = ((size, blocks[:1]) for size, blocks in list(self._large.items()))
        return [(size, first) for size, first in heads if first]

    def _trim_small(self, size: int) -> None:
        """Unmap the slabs of which all blocks are free."""
        free, uncarved = self._small[size], self._uncarved[size]
        # Others may allocate meanwhile: they see an empty list and take from elsewhere.
        addresses, ranges = drain(free), drain(uncarved)
        counts = Counter(address & -_SLAB for address in addresses)
        for start, end in ranges:
            counts[start & -_SLAB] += (end - start) // size
        whole = {slab for slab, count in counts.items() if count == _SLAB // size}
        free.extend(address for address in addresses if address & -_SLAB not in whole)
        uncarved.extend(r for r in ranges if r[0] & -_SLAB not in whole)
        for slab in whole:
            del self._slabs[slab]
            self._unmap(slab)

    def _map(self, length: int, alignment: int, nbytes: int) -> int:
        """Map memory within the limit; what else could be freed goes first."""
        for attempt in range(3):
            if attempt == 2:
                gc.collect()
            if attempt:
                self.trim()
            if sum(list(self._mapped.values())) + length <= self.limit:
                address = _map_aligned(length, alignment)
                if address is not None:
                    self._mapped[address] = length
                    return address
        stats = self.stats()
        raise MemoryError(
            f"out of memory: {_text(nbytes)} asked for, {_text(stats.in_use)} in use by arrays, "
            f"limit {_text(self.limit)}; delete arrays that are no longer needed, or donate them"
        )

    def _unmap(self, address: int) -> None:
        length = self._mapped.pop(address)
        _libc().munmap(address, length)

    def __del__(self) -> None:
        # Buffers hold their pool or its lists, so nothing is in use; slabs may still be, by
        # buffers that hold a list only: they are left to them.
        if sys is not None and not sys.is_finalizing():  # at exit even modules are gone
            self._trim_large(0)


def drain(items: list[Any]) -> list[Any]:
    """Empty a list that other threads append to and pop from; returns what was in it."""
    taken = []
    try:
        while True:
            taken.append(items.pop())
    except IndexError:
        return taken


def _small_sizes() -> list[int]:
    return [*range(64, 1024, 64), *(_class_size(n) for n in _class_bounds(1024, _SMALL))]


def _class_bounds(low: int, high: int) -> list[int]:
    """Sizes from `low` to `high` with four steps to a doubling."""
    sizes = []
    while low < high:
        sizes += [low + low // 4 * step for step in range(4)]
        low *= 2
    return [*sizes, high]


def _first_at_least(sizes: list[int], nbytes: int) -> int:
    return next(size for size in sizes if size >= nbytes)


def _class_size(nbytes: int) -> int:
    """The size of the class that serves `nbytes`."""
    if nbytes <= 1024:
        return max(64, round_up(nbytes, 64))
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return round_up(nbytes, step)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, integer, integer, integer, ctypes.c_int64]
    libc.munmap.argtypes = [pointer, size]
    libc.madvise.argtypes = [pointer, size, integer]
    return libc


def _map_aligned(length: int, alignment: int) -> int | None:
    """Zeroed pages at a multiple of `alignment`; None when the system refuses."""
    libc = _libc()
    slack = alignment if alignment > _PAGE else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start = libc.mmap(None, length + slack, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        return None
    address = round_up(start, alignment)
    if slack:
        if address > start:
            libc.munmap(start, address - start)
        if (after := start + slack - address) > 0:
            libc.munmap(address + length, after)
    if alignment >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        libc.madvise(address, length, mmap.MADV_HUGEPAGE)
    return address


def _text(nbytes: int) -> str:
    """A byte count for people."""
    power = min(max(nbytes, 1).bit_length() // 10, 4)
    return f"{nbytes / 1024**power:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


@cache
def buffer_pool() -> BufferPool:
    """The pool of this process."""
    return BufferPool()
