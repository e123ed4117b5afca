"""Values of variables, as a SavedModel keeps them: an index, and files of bytes.

The index is a table of sorted keys in blocks, as LevelDB writes them: a block holds entries (the
number of bytes that a key shares with the one before, those that are new, the size of the value),
the places at which keys are whole, its compression and a checksum; the last 48 bytes of the file
say where the block of blocks is. The values are messages that say where in the files of bytes an
array lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amdjax.export.file_map import mapped

from .errors import TensorFlowError
from .messages import parse
from .tensors import dtype_of, known_shape

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_MAX_BLOCK = 1 << 24
_TRAILER = 5  # of a block: its compression, and a checksum
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, its bits in reverse
_MASK = 0xA282EAD8


def read_variables(folder: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays of a checkpoint, mapped into memory.

    Args:
      folder: that of the SavedModel's variables.
      keys: names of arrays.

    Raises:
      TensorFlowError: files are missing, damaged, or lack a key.
    """
    index = folder / "variables.index"
    if not index.is_file():
        raise TensorFlowError(f"variables: there is no file {str(index)!r}; freeze the graph")
    entries = dict(read_table(index.read_bytes()))
    if "" not in entries:
        raise TensorFlowError("variables.index: it has no header")
    header = parse("BundleHeader", entries[""], "variables.index: its header")
    if header.endianness != 0:
        raise TensorFlowError("variables.index: its values are big-endian, which is not read")
    shards: dict[int, np.ndarray] = {}
    found = {}
    for key in keys:
        if key not in entries:
            raise TensorFlowError(f"variables.index: it has no variable {key!r}")
        entry = parse("BundleEntry", entries[key], f"variables.index: variable {key!r}")
        found[key] = _array(folder, key, entry, header.num_shards, shards)
    return found


def read_table(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Keys and values of a table.

    Args:
      data: the bytes of its file.

    Raises:
      TensorFlowError: they are no table, or damaged.
    """
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise TensorFlowError("variables.index: truncated, damaged, or no such file")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    end = 0
    for _, value in _block(data, index):
        place, _ = _handle(value, 0)
        if place[0] < end:
            raise TensorFlowError("variables.index: blocks overlap")
        end = sum(place)
        yield from ((key.decode("utf-8", "replace"), inner) for key, inner in _block(data, place))


def _block(data: bytes, place: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block at a place of a table."""
    offset, size = place
    end = offset + size + _TRAILER
    if end > len(data) - _FOOTER:
        raise TensorFlowError("variables.index: a block lies beyond the end of the file")
    stored = int.from_bytes(data[end - 4 : end], "little")
    if masked_crc(data[offset : end - 4]) != stored:
        raise TensorFlowError("variables.index: the checksum of a block is wrong")
    block = data[offset : offset + size]
    if data[offset + size] == 1:
        block = uncompressed(block)
    elif data[offset + size]:
        raise TensorFlowError("variables.index: its compression is not known; freeze the graph")
    size = len(block)
    if size < 4:
        raise TensorFlowError("variables.index: a block is damaged")
    restarts = int.from_bytes(block[-4:], "little")
    last = size - 4 - 4 * restarts
    if last < 0:
        raise TensorFlowError("variables.index: a block is damaged")
    at, key = 0, b""
    while at < last:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + fresh + length > last:
            raise TensorFlowError("variables.index: an entry lies beyond the end of its block")
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + length]
        at += fresh + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer in groups of 7 bits, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise TensorFlowError("variables.index: a number is damaged")


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """The offset and size of a block, and where their text ends."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def uncompressed(data: bytes) -> bytes:
    """What Snappy compressed: literal bytes, and copies of bytes that were written before.

    Args:
      data: a length, and elements; the low bits of an element's first byte say what it is.

    Raises:
      TensorFlowError: they are damaged, or longer than a block of an index is.
    """
    length, at = _varint(data, 0)
    if length > _MAX_BLOCK:
        raise TensorFlowError(f"variables.index: a block of {length} bytes is too long")
    out = bytearray()
    while at < len(data) and len(out) <= length:
        tag, kind = data[at] >> 2, data[at] & 3
        at += 1
        if kind == 0:
            extra = max(tag - 59, 0)
            count = (int.from_bytes(data[at : at + extra], "little") if extra else tag) + 1
            at += extra + count
            out += data[at - count : at]
            continue
        if kind == 1:
            count, back, extra = (tag & 7) + 4, tag >> 3 << 8, 1
        else:
            count, back, extra = tag + 1, 0, 2 if kind == 2 else 4
        back += int.from_bytes(data[at : at + extra], "little")
        at += extra
        if not 0 < back <= len(out):
            break
        for _ in range(count):  # which may read what it wrote
            out.append(out[-back])
    if len(out) != length or at != len(data):
        raise TensorFlowError("variables.index: a compressed block is damaged")
    return bytes(out)


def _crc_table() -> list[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return found


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    """The checksum of bytes as tables store it: CRC-32C, rotated and with a constant added."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def _array(
    folder: Path, key: str, entry: Any, count: int, shards: dict[int, np.ndarray]
) -> np.ndarray:  # fmt: skip
    """The array that an entry describes."""
    what = f"variables.index: variable {key!r}"
    if len(entry.slices):
        raise TensorFlowError(f"{what} is saved in slices, which are not read; freeze the graph")
    dtype, shape = dtype_of(entry.dtype, what), known_shape(entry.shape, what)
    size = dtype.itemsize * math.prod(shape)
    if size != entry.size:
        raise TensorFlowError(
            f"{what}: {entry.size} bytes cannot be {list(shape)} of {dtype}, {size} bytes"
        )
    if not 0 <= entry.shard_id < count:
        raise TensorFlowError(f"{what}: it is in file {entry.shard_id} of {count}")
    if entry.shard_id not in shards:
        path = folder / f"variables.data-{entry.shard_id:05d}-of-{count:05d}"
        if not path.is_file():
            raise TensorFlowError(f"variables: there is no file {str(path)!r}")
        found = mapped(path)
        shards[entry.shard_id] = np.ndarray(len(found), np.uint8, found)
    data = shards[entry.shard_id]
    if not (entry.offset >= 0 and entry.offset + size <= len(data)):
        raise TensorFlowError(f"{what}: it lies beyond the end of its file")
    return data[entry.offset : entry.offset + size].view(dtype).reshape(shape)
