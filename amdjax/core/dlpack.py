"""DLPack for dtypes that NumPy does not exchange: their bits travel as unsigned integers.

NumPy makes and reads the capsules; here only the type code inside one is exchanged, so that it says
bfloat16 to others and uint16 to NumPy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

_UNSIGNED = 1
#: Type codes of DLPack 1.1.
_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_NAMES = {code: name for name, code in _CODES.items()}

_api = ctypes.pythonapi
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p


class _Tensor(ctypes.Structure):
    """The head of DLPack's `DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


#: Where the tensor stands in what a capsule of this name points to: first, or after version,
#: context, deleter and flags.
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}


def _tensor_in(capsule: Any) -> _Tensor:
    for name, offset in _OFFSETS.items():
        if _api.PyCapsule_IsValid(capsule, name):
            return _Tensor.from_address(_api.PyCapsule_GetPointer(capsule, name) + offset)
    raise ValueError("the capsule holds no tensor, or one that was taken out of it already")


def export(view: np.ndarray, **options: Any) -> Any:
    """A DLPack capsule of an array.

    Args:
      view: the array, in host memory.
      options: what the consumer asks for; see `numpy.ndarray.__dlpack__`.
    """
    code = _CODES.get(view.dtype.name)
    shared = view if code is None else view.view(f"uint{8 * view.dtype.itemsize}")
    try:
        capsule = shared.__dlpack__(**options)
    except BufferError:
        # Old consumers cannot be told that memory is read-only, so they get their own.
        capsule = shared.copy().__dlpack__(**options)
    if code is not None:
        _tensor_in(capsule).code = code
    return capsule


class _Capsule:
    """A capsule in hand as an object that NumPy asks for one."""

    def __init__(self, capsule: Any, device: tuple[Any, int]):
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self._device


def view_of(x: Any) -> np.ndarray:
    """The memory of an object that implements DLPack, as an array.

    Raises:
      TypeError: `x` does not implement DLPack.
      BufferError: its memory is not the host's, or of a dtype that is not exchanged.
    """
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise TypeError(
            "The array passed to from_dlpack must have __dlpack__ and __dlpack_device__ methods,"
            f" got {type(x)}"
        )
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # before version 1.0
        capsule = x.__dlpack__()
    tensor = _tensor_in(capsule)
    name = _NAMES.get(tensor.code)
    if name is not None:
        tensor.code = _UNSIGNED
    view = np.from_dlpack(_Capsule(capsule, x.__dlpack_device__()))
    return view if name is None else view.view(getattr(ml_dtypes, name))
