"""The bytes of weights, taken out of a file before its message is parsed.

Parsing copies them, and so does each look at a field of bytes. Here they stay where they are in a
file that is mapped, and are copied once of anything else, to where arrays can lie; the message that
is left to parse is small. The encoding is that of https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from amdjax.core.integers import round_up
from amdjax.core.pages import private_pages

from .file_map import FileMap

__all__ = ["split_constants", "split_tensors"]

#: Of ONNX's `ModelProto`, `GraphProto` and `TensorProto`.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
#: Of TensorFlow's `GraphDef` and `NodeDef`; in a node's attribute `value` those that lead to bytes.
_NODE, _NAME, _ATTRIBUTE, _KEY = 1, 1, 5, 1
_TO_CONTENT = (2, 8, 4)
#: Bytes of tensors that are worth it, and between which they are put.
_LEAST, _ALIGNMENT = 1 << 12, 64
_VARINT, _BYTES, _WIDTHS = 0, 2, {1: 8, 5: 4}

_Name = TypeVar("_Name", int, str)


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
    body = _rest(data, graph.value, graph.stop, list(found.values()))
    message = b"".join((data[: graph.start], _field(_GRAPH, body), data[graph.stop :]))
    return message, _views(data, {n: chain[-1] for n, chain in found.items()})


def split_constants(data: memoryview) -> tuple[bytes, dict[str, np.ndarray]]:
    """A graph of TensorFlow without what its larger constants hold as bytes.

    Args:
      data: the encoded `GraphDef`, or anything.

    Returns:
      The message to parse, and the bytes by the names of nodes, whose `value` has no
      `tensor_content` in it. All of the message and no bytes if it is damaged or has an unusual
      form.
    """
    found: dict[str, list[_Field]] = {}
    try:
        for node in _fields(data, 0, len(data)):
            if node.number == _NODE and node.is_bytes and _is_large(node):
                name, chain = _content(data, node)
                if chain and name in found:
                    return bytes(data), {}
                found |= {name: chain} if chain else {}
    except (ValueError, IndexError):
        return bytes(data), {}
    message = bytes(_rest(data, 0, len(data), list(found.values())))
    return message, _views(data, {name: chain[-1] for name, chain in found.items()})


def _content(data: memoryview, node: _Field) -> tuple[str, list[_Field]]:
    """The name of a node, and the fields that lead from it to its bytes, if they are usual."""
    inner = list(_fields(data, node.value, node.stop))
    (name,) = (f for f in inner if f.number == _NAME)
    chain: list[_Field] = []
    for attribute in inner:
        if attribute.number != _ATTRIBUTE or not attribute.is_bytes or not _is_large(attribute):
            continue
        (key,) = (f for f in _fields(data, attribute.value, attribute.stop) if f.number == _KEY)
        if bytes(data[key.value : key.stop]) != b"value":
            continue
        if chain:
            raise ValueError("two values")
        chain = [node, attribute]
        for number in _TO_CONTENT:
            last = chain[-1]
            parts = [f for f in _fields(data, last.value, last.stop) if f.number == number]
            if len(parts) != 1 or not parts[0].is_bytes or not _is_large(parts[0]):
                return "", []
            chain.append(parts[0])
    return str(data[name.value : name.stop], "utf-8"), chain


def _rest(data: memoryview, at: int, stop: int, chains: Sequence[Sequence[_Field]]) -> bytearray:
    """A part of a message without fields, to each of which a chain leads from a field of it."""
    body = bytearray()
    for chain in chains:
        body += data[at : chain[0].start]
        inner = b""
        for outer, field in reversed(list(pairwise(chain))):
            head, tail = data[outer.value : field.start], data[field.stop : outer.stop]
            inner = _field(outer.number, b"".join((head, inner, tail)))
        body += inner
        at = chain[0].stop
    body += data[at:stop]
    return body


def _is_large(field: _Field) -> bool:
    return field.stop - field.value >= _LEAST


def _raw_fields(data: memoryview, graph: _Field) -> dict[int, list[_Field]]:
    """Initializers that have raw data, with the field that holds it, by their numbers."""
    found, number = {}, 0
    for field in _fields(data, graph.value, graph.stop):
        if field.number != _INITIALIZER or not field.is_bytes:
            continue
        if _is_large(field):
            parts = [f for f in _fields(data, field.value, field.stop) if f.number == _RAW_DATA]
            if len(parts) == 1 and parts[0].is_bytes and _is_large(parts[0]):
                found[number] = [field, parts[0]]
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


def _field(number: int, body: bytes | bytearray) -> bytes:
    return b"".join((_varint(number << 3 | _BYTES), _varint(len(body)), body))


def _views(data: memoryview, fields: Mapping[_Name, _Field]) -> dict[_Name, np.ndarray]:
    """The bytes of fields, which never change: in the file, or copied side by side."""
    memory: Any = data.obj
    starts, size = {n: field.value for n, field in fields.items()}, 0
    if not (isinstance(memory, FileMap) and memory.state is not None) and fields:
        for name, field in fields.items():
            starts[name] = size
            size += round_up(field.stop - field.value, _ALIGNMENT)
        memory = private_pages(size)
        with memoryview(memory) as target:
            for name, field in fields.items():
                part = data[field.value : field.stop]
                target[starts[name] : starts[name] + len(part)] = part
    made = {}
    for name, field in fields.items():
        count = field.stop - field.value
        made[name] = np.ndarray(count, np.uint8, memory, starts[name])
        made[name].flags.writeable = False
    return made
