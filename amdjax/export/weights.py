"""Arrays in the safetensors format, read where they are in memory.

The format: the length of a header, the header in JSON with the dtype, shape and place of each
array, and their bytes, without gaps. Arrays whose sizes are multiples of the alignment come first,
so that most of them are aligned. Dtypes that the format lacks are stored as bytes; the artifact's
manifest has the dtypes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from amdjax.core.dtypes import dtype_from_short_name, short_dtype_name

from .container import ALIGN, ArtifactError, Data, parsed_json

__all__ = ["described", "pack", "unpack"]

_NAMES = {
    "bool": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32",
    "u64": "U64", "i64": "I64", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64",
    "f8_e4m3fn": "F8_E4M3", "f8_e5m2": "F8_E5M2",
}  # fmt: skip
_LENGTH = 8  # bytes of the header's length


def described(arrays: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """The dtypes and shapes of arrays, as the manifest has them."""
    return {name: [short_dtype_name(x.dtype), list(x.shape)] for name, x in arrays.items()}


def pack(arrays: Mapping[str, np.ndarray]) -> list[Data]:
    """Arrays in the format, in parts, most of which are the arrays' own memory."""
    order = sorted(arrays, key=lambda n: (arrays[n].nbytes % ALIGN != 0, -arrays[n].itemsize))
    header: dict[str, Any] = {}
    at = 0
    for name in order:
        array = arrays[name]
        known = _NAMES.get(short_dtype_name(array.dtype))
        shape = list(array.shape) if known else [array.nbytes]
        header[name] = {
            "dtype": known or "U8", "shape": shape, "data_offsets": [at, at + array.nbytes],
        }  # fmt: skip
        at += array.nbytes
    told = json.dumps(header).encode()
    told += b" " * (-(_LENGTH + len(told)) % ALIGN)
    parts: list[Data] = [len(told).to_bytes(_LENGTH, "little") + told]
    for name in order:
        if arrays[name].nbytes:
            parts.append(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
    return parts


def unpack(
    data: memoryview, wanted: Mapping[str, Sequence[Any]], member: str
) -> dict[str, np.ndarray]:
    """Views of the arrays that a manifest describes.

    Args:
      data: the bytes of the member.
      wanted: dtypes and shapes by name.
      member: its name.

    Raises:
      ArtifactError: the member is damaged, or has other arrays.
    """
    try:
        return dict(_unpacked(data, wanted, member))
    except ArtifactError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as e:
        raise ArtifactError(f"{member}: {e}") from None


def _unpacked(
    data: memoryview, wanted: Mapping[str, Sequence[Any]], member: str
) -> Iterator[tuple[str, np.ndarray]]:
    length = int.from_bytes(data[:_LENGTH], "little")
    if length > len(data) - _LENGTH or len(data) < _LENGTH:
        raise ValueError("it is cut short")
    header = parsed_json(data[_LENGTH : _LENGTH + length], member)
    values = data[_LENGTH + length :]
    if header.keys() != wanted.keys():
        raise ValueError("it has other arrays than the manifest")
    at = 0
    for name, said in header.items():
        dtype, shape = _type(name, *wanted[name])
        count = math.prod(shape)
        known = _NAMES.get(short_dtype_name(dtype))
        nbytes = count * dtype.itemsize
        stored = [known, list(shape)] if known else ["U8", [nbytes]]
        if [said["dtype"], said["shape"]] != stored or said["data_offsets"] != [at, at + nbytes]:
            raise ValueError(f"what is said of {name!r} differs from the manifest, or has gaps")
        if at + nbytes > len(values):
            raise ValueError(f"{name!r} is cut short")
        array = np.frombuffer(values, dtype, count, at) if count else np.empty(0, dtype)
        if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"{name!r} of dtype bool is neither 0 nor 1")
        yield name, array.reshape(shape)
        at += nbytes
    if at != len(values):
        raise ValueError("it has more bytes than arrays")


def _type(name: str, dtype: Any, shape: Any) -> tuple[np.dtype, tuple[int, ...]]:
    found = np.dtype(dtype_from_short_name(dtype))
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in shape) or len(shape) > 32:
        raise ValueError(f"{name!r} has no shape")
    return found, tuple(shape)
