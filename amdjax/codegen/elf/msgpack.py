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


def pack(value: Any) -> bytes:
    """The shortest encoding of dicts, lists, strings, bytes, numbers, booleans and None."""
    if value is None or isinstance(value, bool):
        return bytes([next(code for code, x in _CONSTANTS.items() if x is value)])
    if isinstance(value, int):
        return _pack_int(value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, str):
        data = value.encode()
        return _head(len(data), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + data
    if isinstance(value, bytes):
        return _head(len(value), 0, 0, (0xC4, 0xC5, 0xC6)) + value
    if isinstance(value, dict):
        items = (pack(key) + pack(item) for key, item in value.items())
        return _head(len(value), 0x80, 16, (None, 0xDE, 0xDF)) + b"".join(items)
    if isinstance(value, (list, tuple)):
        return _head(len(value), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(pack, value))
    raise TypeError(f"msgpack does not hold {type(value).__name__}")


def _pack_int(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack("b" if value < 0 else "B", value)
    codes = range(0xCC, 0xD0) if value > 0 else range(0xD0, 0xD4)
    for code in codes:
        try:
            return bytes([code]) + struct.pack(_NUMBERS[code], value)
        except struct.error:
            continue
    raise ValueError(f"{value} does not fit 64 bits")


def _head(size: int, short: int, short_limit: int, codes: tuple[int | None, int, int]) -> bytes:
    """First byte and length: within the first byte below `short_limit`, else 1, 2 or 4 bytes."""
    if size < short_limit:
        return bytes([short | size])
    for code, form, limit in zip(codes, ("B", "H", "I"), (1 << 8, 1 << 16, 1 << 32)):
        if code is not None and size < limit:
            return struct.pack(f">B{form}", code, size)
    raise ValueError("too long for msgpack")
