"""Pinned host memory through which data moves between pageable memory and a device.

A device copies to and from pinned memory by itself, at the bus's speed, while the processor fills
or empties another piece.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from amdjax.core.integers import round_up
from amdjax.runtime.hip.driver import Driver

__all__ = ["Staging"]

PIECE = 4 << 20
_PIECES = 3
_ALIGNMENT = 64


class _Piece:
    """A range of pinned memory, with the event after which the device is done with it."""

    def __init__(self, driver: Driver) -> None:
        self.memory = driver.call("hipHostMalloc", PIECE, 0)
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
        self._up, self._down = kinds.hipMemcpyHostToDevice, kinds.hipMemcpyDeviceToHost
        self._pieces: list[_Piece] = []
        self._current = 0

    def write(self, address: int, source: int, nbytes: int) -> None:
        """Copy to the device; the source may change when this returns."""
        for offset, count in _cut(nbytes):
            piece = self._room(count)
            at = piece.address + piece.used
            ctypes.memmove(at, source + offset, count)
            self._copy(address + offset, at, count, self._up, piece)
            piece.used += round_up(count, _ALIGNMENT)

    def read(self, address: int, out: int, nbytes: int) -> None:
        """Copy from the device; waits for what was issued before, and for the copy."""
        issued: list[tuple[_Piece, int, int]] = []
        for offset, count in _cut(nbytes):
            if len(issued) == _PIECES - 1:
                self._fetch(*issued.pop(0))
            piece = self._next()
            self._copy(piece.address, address + offset, count, self._down, piece)
            issued.append((piece, out + offset, count))
        for item in issued:
            self._fetch(*item)

    def _fetch(self, piece: _Piece, out: int, count: int) -> None:
        self._driver.call("hipEventSynchronize", piece.event)
        ctypes.memmove(out, piece.address, count)

    def _copy(self, to: int, source: int, count: int, kind: Any, piece: _Piece) -> None:
        self._driver.call("hipMemcpyAsync", to, source, count, kind, self._stream)
        self._driver.call("hipEventRecord", piece.event, self._stream)

    def _room(self, count: int) -> _Piece:
        """A piece with `count` free bytes; small copies share one."""
        if self._pieces:
            piece = self._pieces[self._current]
            if piece.used + count <= PIECE:
                return piece
        return self._next()

    def _next(self) -> _Piece:
        """The piece used longest ago, once the device is done with it."""
        if len(self._pieces) < _PIECES:
            self._pieces.append(_Piece(self._driver))
            self._current = len(self._pieces) - 1
            return self._pieces[-1]
        self._current = (self._current + 1) % _PIECES
        piece = self._pieces[self._current]
        self._driver.call("hipEventSynchronize", piece.event)
        piece.used = 0
        return piece


def _cut(nbytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, nbytes, PIECE):
        yield offset, min(PIECE, nbytes - offset)
