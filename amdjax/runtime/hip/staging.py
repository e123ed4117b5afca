"""Pinned host memory through which data moves between pageable memory and a device.

A device copies to and from pinned memory by itself, at the bus's speed, while the processor fills
or empties another chunk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from amdjax.core.integers import round_up
from amdjax.runtime.hip.driver import Driver

CHUNK = 4 << 20
_CHUNKS = 3
_ALIGNMENT = 64


class _Chunk:
    """A range of pinned memory, with the event after which the device is done with it."""

    def __init__(self, driver: Driver) -> None:
        self.memory = driver.call("hipHostMalloc", CHUNK, 0)
        self.address = int(self.memory)
        self.event = driver.call("hipEventCreateWithFlags", driver.hip.hipEventDisableTiming)
        self.used = 0


class Staging:
    """Copies between pageable memory and a device, in the order of a stream.

    Args:
      driver: the library.
      stream: that orders the copies.

    The caller sees to it that one thread at a time copies.
    """

    def __init__(self, driver: Driver, stream: Any) -> None:
        self._driver, self._stream = driver, stream
        kinds = driver.hip.hipMemcpyKind
        self._to_device, self._to_host = kinds.hipMemcpyHostToDevice, kinds.hipMemcpyDeviceToHost
        self._chunks: list[_Chunk] = []
        self._current = 0

    def write(self, address: int, source: int, nbytes: int) -> None:
        """Copy to the device; the source may change when this returns."""
        for offset, count in _cut(nbytes):
            chunk = self._room(count)
            at = chunk.address + chunk.used
            ctypes.memmove(at, source + offset, count)
            self._copy(address + offset, at, count, self._to_device, chunk)
            chunk.used += round_up(count, _ALIGNMENT)

    def read(self, address: int, out: int, nbytes: int) -> None:
        """Copy from the device; waits for what was issued before, and for the copy."""
        issued: list[tuple[_Chunk, int, int]] = []
        for offset, count in _cut(nbytes):
            if len(issued) == _CHUNKS - 1:
                self._finish(*issued.pop(0))
            chunk = self._next()
            self._copy(chunk.address, address + offset, count, self._to_host, chunk)
            issued.append((chunk, out + offset, count))
        for item in issued:
            self._finish(*item)

    def _finish(self, chunk: _Chunk, out: int, count: int) -> None:
        self._driver.call("hipEventSynchronize", chunk.event)
        ctypes.memmove(out, chunk.address, count)

    def _copy(self, to: int, source: int, count: int, kind: Any, chunk: _Chunk) -> None:
        self._driver.call("hipMemcpyAsync", to, source, count, kind, self._stream)
        self._driver.call("hipEventRecord", chunk.event, self._stream)

    def _room(self, count: int) -> _Chunk:
        """A chunk with `count` free bytes; small copies share one."""
        if self._chunks:
            chunk = self._chunks[self._current]
            if chunk.used + count <= CHUNK:
                return chunk
        return self._next()

    def _next(self) -> _Chunk:
        """The chunk used longest ago, once the device is done with it."""
        if len(self._chunks) < _CHUNKS:
            self._chunks.append(_Chunk(self._driver))
            self._current = len(self._chunks) - 1
            return self._chunks[-1]
        self._current = (self._current + 1) % _CHUNKS
        chunk = self._chunks[self._current]
        self._driver.call("hipEventSynchronize", chunk.event)
        chunk.used = 0
        return chunk


def _cut(nbytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, nbytes, CHUNK):
        yield offset, min(CHUNK, nbytes - offset)
