"""The bytes of weights, taken out of a file before its message is parsed.

Parsing copies them, and so does each look at a tensor's `raw_data`. Here they are copied once, to
where arrays can lie, and the message that is left to parse is small. The encoding is that of
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from amdjax.core.integers import round_up

__all__ = ["split_tensors"]

#: Of `ModelProto`, `GraphProto` and `TensorProto`.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
#: Bytes of tensors that are worth it, and between which they are put.
_LEAST, _ALIGNMENT = 1 << 12, 64
_VARINT, _BYTES, _WIDTHS = 0, 2, {1: 8, 5: 4}


class _Field(NamedTuple):
    """A field of a message: it begins at its tag, and its value, of bytes, at `value`."""

    number: int
    is_bytes: bool
    start: int
    value: int
    stop: int


def split_tensors(data: memoryview) -> tuple[bytes, dict[int, np.ndarray]]:
    """A model's message without what its larger weights hold as raw data.

    Args:
      data: the encoded `ModelProto`, or anything.

    Returns:
      The message to parse, and the bytes by the numbers of the graph's initializers, which have no
      `raw_data` in it. All of the message and no bytes if it is damaged or has an unusual form.
    """
    try:
        (graph,) = (f for f in _fields(data, 0, len(data)) if f.number == _GRAPH)
        found = _raw_fields(data, graph)
    except (ValueError, IndexError):
        return bytes(data), {}
    if not found or not graph.is_bytes:
        return bytes(data), {}
    body, at = bytearray(), graph.value
    for tensor, raw in found.values():
        head, tail = data[tensor.value : raw.start], data[raw.stop : tensor.stop]
        body += data[at : tensor.start]
        body += _tag(_INITIALIZER) + _varint(len(head) + len(tail))
        body += head
        body += tail
        at = tensor.stop
    body += data[at : graph.stop]
    message = b"".join((
        data[: graph.start], _tag(_GRAPH), _varint(len(body)), body, data[graph.stop :],
    ))  # fmt: skip
    return message, _copied(data, {n: raw for n, (_, raw) in found.items()})


def _raw_fields(data: memoryview, graph: _Field) -> dict[int, tuple[_Field, _Field]]:
    """Initializers that have raw data, with the field that holds it, by their numbers."""
    found, number = {}, 0
    for field in _fields(data, graph.value, graph.stop):
        if field.number != _INITIALIZER or not field.is_bytes:
            continue
        if field.stop - field.value >= _LEAST:
            parts = [f for f in _fields(data, field.value, field.stop) if f.number == _RAW_DATA]
            if len(parts) == 1 and parts[0].is_bytes and parts[0].stop - parts[0].value >= _LEAST:
                found[number] = field, parts[0]
        number += 1
    return found


def _fields(data: memoryview, at: int, stop: int) -> Iterator[_Field]:
    """The fields of a message; raises ValueError or IndexError where it is none."""
    while at < stop:
        start = at
        tag, at = _read_varint(data, at)
        kind = tag & 7
        size = _WIDTHS.get(kind, 0)
        if kind == _VARINT:
            at = _read_varint(data, at)[1]
        elif kind == _BYTES:
            size, at = _read_varint(data, at)
        elif not size:
            raise ValueError("a group")
        if at + size > stop:
            raise ValueError("a field beyond its message")
        yield _Field(tag >> 3, kind == _BYTES, start, at, at + size)
        at += size


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number of more than 64 bits")


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)


def _copied(data: memoryview, fields: dict[int, _Field]) -> dict[int, np.ndarray]:
    """The bytes of fields side by side, in memory that is never changed again."""
    starts, size = {}, 0
    for number, field in fields.items():
        starts[number] = size
        size += round_up(field.stop - field.value, _ALIGNMENT)
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    made = {}
    with memoryview(memory) as target:
        for number, field in fields.items():
            start, count = starts[number], field.stop - field.value
            target[start : start + count] = data[field.value : field.stop]
            made[number] = np.ndarray(count, np.uint8, memory, start)
    for array in made.values():
        array.flags.writeable = False
    return made
