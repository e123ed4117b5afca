"""Arrays and dtypes as TensorFlow's messages hold them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from .errors import TensorFlowError

#: What NumPy calls TensorFlow's dtypes, by their numbers.
DTYPES: dict[int, np.dtype] = {
    number: np.dtype(dtype)
    for number, dtype in {
        1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8,
        8: np.complex64, 9: np.int64, 10: np.bool_, 14: ml_dtypes.bfloat16, 17: np.uint16,
        18: np.complex128, 19: np.float16, 22: np.uint32, 23: np.uint64,
        24: ml_dtypes.float8_e5m2, 25: ml_dtypes.float8_e4m3fn,
    }.items()
}  # fmt: skip
STRING, RESOURCE, VARIANT = 7, 20, 21
_OTHERS = {
    7: "string", 11: "qint8", 12: "quint8", 13: "qint32", 15: "qint16", 16: "quint16",
    20: "resource", 21: "variant",
}  # fmt: skip
_REFERENCE = 100
"""Added to the number of a dtype by references to variables."""

#: Where values of a dtype stand that are not written as bytes.
_FIELDS = {
    np.dtype(np.float32): "float_val", np.dtype(np.float64): "double_val",
    np.dtype(np.int64): "int64_val", np.dtype(np.bool_): "bool_val",
    np.dtype(np.uint32): "uint32_val", np.dtype(np.uint64): "uint64_val",
    np.dtype(np.complex64): "scomplex_val", np.dtype(np.complex128): "dcomplex_val",
    np.dtype(np.float16): "half_val", np.dtype(ml_dtypes.bfloat16): "half_val",
}  # fmt: skip
#: Bytes that all arrays of a file may take beyond those that it holds: an array may be written as
#: one value and a shape.
MAX_REPEATED = 1 << 28
_MAX_RANK = 32


def dtype_of(number: int, what: str) -> np.dtype:
    """The dtype of a number.

    Args:
      number: as in `DTYPES`, or that of a reference.
      what: has it, for errors.
    """
    number = number - _REFERENCE if number > _REFERENCE else number
    if number not in DTYPES:
        kind = _OTHERS.get(number, f"number {number}")
        raise TensorFlowError(f"{what}: dtype {kind} is not read")
    return DTYPES[number]


def shape_of(message: Any, what: str) -> tuple[int | None, ...] | None:
    """The shape that a message says; None stands for what is unknown."""
    if message.unknown_rank:
        return None
    sizes = tuple(None if d.size == -1 else d.size for d in message.dim)
    if len(sizes) > _MAX_RANK:
        raise TensorFlowError(f"{what}: {len(sizes)} axes; at most {_MAX_RANK} are read")
    if any(n is not None and not 0 <= n < 1 << 40 for n in sizes):
        raise TensorFlowError(f"{what}: {list(sizes)} is no shape")
    return sizes


def known_shape(message: Any, what: str) -> tuple[int, ...]:
    """The shape that a message says, all of whose sizes must be known."""
    sizes = shape_of(message, what)
    if sizes is None or None in sizes:
        raise TensorFlowError(f"{what}: its shape is not known")
    return tuple(n for n in sizes if n is not None)


class Reader:
    """Reads arrays from messages, and counts what they take beyond the bytes of the file."""

    def __init__(self) -> None:
        self._repeated = 0

    def array(self, tensor: Any, what: str, held: np.ndarray | None = None) -> np.ndarray:
        """The array of a message, of texts an array of bytes.

        Args:
          tensor: the message.
          what: it is, for errors.
          held: its bytes, where the message has none.

        Raises:
          TensorFlowError: its values do not fit its shape.
        """
        shape = known_shape(tensor.tensor_shape, what)
        count = math.prod(shape)
        if tensor.dtype == STRING:
            values = np.empty(len(tensor.string_val), object)
            values[:] = list(tensor.string_val)
            return self._filled(values, shape, count, what)
        dtype = dtype_of(tensor.dtype, what)
        data = tensor.tensor_content if held is None else held
        if not len(data) and dtype.itemsize == 1:
            data = tensor.float8_val
        if len(data):
            if len(data) != count * dtype.itemsize:
                raise TensorFlowError(
                    f"{what}: {len(data)} bytes cannot be {list(shape)} of {dtype}, "
                    f"{count * dtype.itemsize} bytes"
                )
            return np.frombuffer(data, dtype).reshape(shape)
        return self._filled(_values(tensor, dtype, what), shape, count, what)

    def _filled(
        self, values: np.ndarray, shape: tuple[int, ...], count: int, what: str
    ) -> np.ndarray:
        """As many values as a shape needs: the last one stands for those that are left out."""
        if len(values) == count:
            return values.reshape(shape)
        if len(values) > count:
            raise TensorFlowError(f"{what}: {len(values)} values for shape {list(shape)}")
        self._repeated += count * values.itemsize
        if self._repeated > MAX_REPEATED:
            raise TensorFlowError(
                f"{what}: {list(shape)} of {values.dtype} is written as {len(values)} values; "
                f"a file's arrays may be no more than {MAX_REPEATED} bytes longer than the file"
            )
        if not len(values):
            return np.zeros(shape, values.dtype)
        if len(values) == 1:
            return np.broadcast_to(values.reshape(()), shape)
        tail = np.broadcast_to(values[-1], count - len(values))
        return np.concatenate([values, tail]).reshape(shape)


def _values(tensor: Any, dtype: np.dtype, what: str) -> np.ndarray:
    """Values that are written one by one."""
    field = _FIELDS.get(dtype, "int_val")
    values = getattr(tensor, field)
    if field == "half_val":
        return np.array(values, np.int64).astype(np.uint16).view(dtype)
    if dtype.kind == "c":
        if len(values) % 2:
            raise TensorFlowError(f"{what}: {len(values)} numbers are no pairs of complex values")
        part = np.float32 if dtype.itemsize == 8 else np.float64
        return np.array(values, part).view(dtype)
    return np.array(values, np.int64 if field == "int_val" else dtype).astype(dtype)
