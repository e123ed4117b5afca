"""The part of MessagePack that AMDGPU metadata notes use: maps, arrays, strings, numbers, booleans.

Source: the MessagePack specification.
"""

from __future__ import annotations

import struct
from typing import Any

_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
# First byte: (kind, format of the length).
_SIZED = {
    0xC4: ("bytes", ">B"),
    0xC5: ("bytes", ">H"),
    0xC6: ("bytes", ">I"),
    0xD9: ("str", ">B"),
    0xDA: ("str", ">H"),
    0xDB: ("str", ">I"),
    0xDC: ("array", ">H"),
    0xDD: ("array", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}


def unpack(data: bytes) -> Any:
    """The value that `data` begins with.

    Raises:
      ValueError: the data ends early, or has a type that metadata does not use.
    """
    try:
        return _Reader(data).value()
    except (struct.error, IndexError):
        raise ValueError("msgpack data ends early") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _bytes(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise IndexError
        self._at += size
        return data

    def value(self) -> Any:
        first = self._number(">B")
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first < 0x90:
            return self._sized("map", first & 0x0F)
        if first < 0xA0:
            return self._sized("array", first & 0x0F)
        if first < 0xC0:
            return self._sized("str", first & 0x1F)
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        if first in _SIZED:
            kind, form = _SIZED[first]
            return self._sized(kind, self._number(form))
        raise ValueError(f"msgpack type 0x{first:02x} is not supported")

    def _sized(self, kind: str, size: int) -> Any:
        if kind == "str":
            return self._bytes(size).decode()
        if kind == "bytes":
            return self._bytes(size)
        if kind == "array":
            return [self.value() for _ in range(size)]
        return {self.value(): self.value() for _ in range(size)}
