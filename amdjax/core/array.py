"""Arrays that have been computed, on the host or on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from amdjax.core import dlpack, dtypes, transfers
from amdjax.core.array_type import Array as Array
from amdjax.core.aval import (
    ShapedArray,
    get_aval,
    is_extended,
    physical_aval,
    refuse_abstract,
    register_aval,
)
from amdjax.core.backend import get_backend
from amdjax.core.config import config
from amdjax.core.sharding import Format, Layout, Shard, Sharding, SingleDeviceSharding


class ConcreteArray(Array):
    """An array that has been computed.

    Those of exactly this type lie in host memory, and it is not said where they belong: operations
    on them look no further. Others are `PlacedArray`s.

    Args:
      aval: its shape and dtype.
      buffer: the memory that holds it; None once donated or deleted.
    """

    # Programs may hang attributes of their own on an array, as they can in JAX.
    __slots__ = ("__dict__", "aval", "buffer")

    def __init__(self, aval: ShapedArray, buffer: Any):
        self.aval = aval
        self.buffer = buffer

    # NumPy and Python

    def _view(self) -> np.ndarray:
        buffer = self.buffer
        if buffer is None:
            raise RuntimeError(f"Array has been deleted with shape={self.aval}.".replace("~", ""))
        aval = self.aval
        if isinstance(aval.dtype, dtypes.ExtendedDType):
            aval = physical_aval(aval)
        return buffer.as_numpy(aval.shape, aval.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if isinstance(self.aval.dtype, dtypes.ExtendedDType):
            raise TypeError(_no_numpy_form(self.aval.dtype))
        view = self._view()
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                raise ValueError("a change of dtype needs a copy, but copy=False was asked for")
            return view.astype(dtype)
        return view.copy() if copy else view

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        options = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        given = {name: value for name, value in options.items() if value is not None}
        return dlpack.export(self._numbers(), stream=stream, **given)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self._view().__dlpack_device__()

    def __reduce__(self) -> Any:
        aval = self.aval
        return _from_bytes, (self._view().tobytes(), aval.shape, aval.dtype, aval.weak_type)

    def stored(self) -> ConcreteArray:
        """The array of numbers that this one is stored as; `self` unless the dtype is extended."""
        aval = self.aval
        if not isinstance(aval.dtype, dtypes.ExtendedDType):
            return self
        shared = self.sharing()
        shared.aval = physical_aval(aval)
        return shared

    def __deepcopy__(self, memo: Any) -> ConcreteArray:
        return self.__copy__()

    def __copy__(self) -> ConcreteArray:
        return ConcreteArray(self.aval, get_backend().put(self._view()))

    def item(self, *index: int) -> Any:
        """The element at `index` as a Python scalar; the only one if no index is given.

        Args:
          index: one position for each axis, or none.

        Returns:
          A Python scalar.
        """
        return self._numbers().item(*index)

    def tobytes(self, order: str = "C") -> bytes:
        """The elements as bytes, in the order "C" or "F"."""
        return self._numbers().tobytes(order)  # type: ignore[arg-type]

    def __buffer__(self, flags: int, /) -> memoryview:
        # Asked for by memoryview() from Python 3.12 on.
        if self.aval.dtype == dtypes.bfloat16:
            raise BufferError(
                "Buffers of type BF16 are not supported by the Python buffer protocol."
            )
        return self._numbers().data

    def tolist(self) -> Any:
        """The array as nested lists of Python scalars."""
        return self._numbers().tolist()

    def _numbers(self) -> np.ndarray:
        """The elements, which must be numbers."""
        if isinstance(self.aval.dtype, dtypes.ExtendedDType):
            raise TypeError(_no_numpy_form(self.aval.dtype))
        return self._view()

    def __bool__(self) -> bool:
        if is_extended(self.aval):
            raise TypeError(f"key array of dtype {self.aval.dtype} cannot be converted to boolean.")
        return bool(self._view())

    def __int__(self) -> int:
        require_scalar(self)
        return int(self._numbers())

    def __float__(self) -> float:
        require_scalar(self)
        return float(self._numbers())

    def __complex__(self) -> complex:
        require_scalar(self)
        return complex(self._numbers())

    def __index__(self) -> int:
        if self.aval.shape or not dtypes.issubdtype(self.aval.dtype, np.integer):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        return int(self._view())

    def __format__(self, spec: str) -> str:
        # NumPy's error for a spec that is no number's.
        return format(self._view()[()] if not self.aval.shape else self._view(), spec)

    def __str__(self) -> str:
        return repr(self) if is_extended(self.aval) else str(self._view())

    def __repr__(self) -> str:
        if is_extended(self.aval):
            return f"Array({self.shape}, dtype={self.dtype}) overlaying:\n{self._view()}"
        return format_array(self._view(), self.aval.weak_type)

    # Devices and lifetime

    @property
    def device(self) -> Any:
        """The device that holds the array."""
        return get_backend().host_device()

    @property
    def committed(self) -> bool:
        """Whether operations must run where the array is; others move it as they need."""
        return False

    @property
    def _committed(self) -> bool:
        return self.committed

    @property
    def sharding(self) -> Sharding:
        """Which part of the array is on which device: all of it on one."""
        return SingleDeviceSharding(self.device, memory_kind=self.aval.memory_space.kind)

    @property
    def format(self) -> Any:
        """The layout in memory, row-major, and the sharding."""
        return Format(Layout(tuple(range(self.aval.ndim))), self.sharding)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts of the array, one for each device."""
        index = (slice(None),) * self.aval.ndim
        return [Shard(self.device, index, 0, self.sharing())]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts of the array, one for each device."""
        return self.addressable_shards

    def addressable_data(self, index: int) -> ConcreteArray:
        """The part of the array that a device has."""
        return self.addressable_shards[index].data

    def devices(self) -> set[Any]:
        """The set of devices that hold the array."""
        return {self.device}

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all of the array."""
        return True

    @property
    def is_fully_addressable(self) -> bool:
        return True

    def block_until_ready(self) -> ConcreteArray:
        """Wait until the contents are computed."""
        ready = getattr(self.buffer, "block_until_ready", None)
        if ready is not None:
            ready()
        return self

    def is_ready(self) -> bool:
        """Whether the contents are computed."""
        ready = getattr(self.buffer, "is_ready", None)
        return True if ready is None else ready()

    def copy_to_host_async(self) -> None:
        """Begin to copy the contents to the host, where they are not yet."""

    def delete(self) -> None:
        """Give the memory back; the array cannot be used afterwards."""
        self.buffer = None

    def is_deleted(self) -> bool:
        """Whether the array was deleted, or donated to a computation."""
        return self.buffer is None

    def sharing(self) -> ConcreteArray:
        """Another array of the same memory; each can be deleted or donated without the other."""
        return ConcreteArray(self.aval, self.buffer)

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element."""
        return self._view().ctypes.data

    def on_device_size_in_bytes(self) -> int:
        """Bytes that the array takes on its device."""
        return physical_aval(self.aval).nbytes


class PlacedArray(ConcreteArray):
    """An array on another device than the host, or one that was put where it is.

    Args:
      aval: its shape and dtype.
      buffer: the memory that holds it; None once donated or deleted.
      placement: its `device`, and whether it is `committed` to it.
      named: the sharding over a mesh that it was put under, if it was.
    """

    __slots__ = ("named", "placement")

    def __init__(self, aval: ShapedArray, buffer: Any, placement: Any, named: Any = None):
        self.aval = aval
        self.buffer = buffer
        self.placement = placement
        self.named = named

    def _view(self) -> np.ndarray:
        guarded = config.transfer_guard_device_to_host not in _UNGUARDED
        if guarded and self.placement.device.platform != "cpu":
            transfers.check("device_to_host", self.aval.str_short())
        return super()._view()

    @property
    def sharding(self) -> Sharding:
        """Which part of the array is on which device."""
        if self.named is None:
            return super().sharding
        kind = self.aval.memory_space.kind
        return self.named if self.named.memory_kind == kind else self.named.with_memory_kind(kind)

    @property
    def device(self) -> Any:
        """The device that holds the array."""
        return self.placement.device

    @property
    def committed(self) -> bool:
        """Whether operations must run where the array is; others move it as they need."""
        return self.placement.committed

    def __copy__(self) -> ConcreteArray:
        backend, place = get_backend(), self.placement
        kind = self.aval.memory_space.kind
        there = SingleDeviceSharding(place.device, memory_kind=kind)
        copy = backend.device_put(ConcreteArray(self.aval, backend.put(self._view())), there)
        assert isinstance(copy, PlacedArray)
        copy.placement, copy.named = place, self.named
        return copy

    def __buffer__(self, flags: int, /) -> memoryview:
        # NumPy asks for it first and drops what it raises: a fault of the device would be lost.
        if self.placement.device is not get_backend().host_device():
            raise BufferError(
                "the buffer protocol is for arrays in the memory of the host, not on "
                f"{self.device}: numpy.asarray(x) copies one there"
            )
        return super().__buffer__(flags)

    def sharing(self) -> ConcreteArray:
        """Another array of the same memory; each can be deleted or donated without the other."""
        return PlacedArray(self.aval, self.buffer, self.placement, self.named)

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element, in the memory of its device."""
        if self.buffer is None:
            self._view()  # raises
        return self.buffer.address


for _type in (ConcreteArray, PlacedArray):
    register_aval(_type, lambda x: x.aval)
# The name that error messages of Python, and programs that print types, have for it.
ConcreteArray.__name__ = ConcreteArray.__qualname__ = "ArrayImpl"
dtypes.register_array_type(ConcreteArray)
dtypes.register_array_type(PlacedArray)


def _no_numpy_form(dtype: Any) -> str:
    kind = "PRNGKey" if dtypes.issubdtype(dtype, dtypes.prng_key) else str(dtype)
    return (
        f"JAX array with {kind} dtype cannot be converted to a NumPy array. The array of integers "
        "beneath keys is random.key_data(keys)."
    )


def format_array(value: np.ndarray, weak_type: bool = False) -> str:
    """`value` as arrays print themselves.

    >>> format_array(np.ones(2, np.float32))
    'Array([1., 1.], dtype=float32)'
    """
    tail = f"dtype={value.dtype.name}" + (", weak_type=True" if weak_type else "") + ")"
    if value.size == 0 and value.shape != (0,):
        return f"Array([], shape={value.shape}, {tail}"
    text = np.array2string(value, prefix="Array(", suffix=",", separator=", ")
    last = len("Array(") + len(text) if "\n" not in text else len(text) - text.rfind("\n") - 1
    width = np.get_printoptions()["linewidth"]
    gap = "\n" + " " * len("Array(") if last + len(tail) + 2 > width else " "
    return f"Array({text},{gap}{tail}"


_UNGUARDED = (None, "allow")


def from_numpy(value: np.ndarray, weak_type: bool = False) -> ConcreteArray:
    """A new array with the contents of `value`, whose dtype must be canonical."""
    if config.transfer_guard_host_to_device not in _UNGUARDED:
        transfers.check("host_to_device", f"an array of {value.dtype}{list(value.shape)}")
    return get_backend().array(ShapedArray(value.shape, value.dtype, weak_type), value)


def borrowed(value: np.ndarray) -> ConcreteArray:
    """An array in the memory of `value`, whose dtype must be canonical; it must not be changed."""
    return ConcreteArray(ShapedArray(value.shape, value.dtype), get_backend().borrow(value))


def require_scalar(x: Any) -> None:
    """Raise TypeError unless an array, of known values or not, has no axes."""
    if x.aval.shape:
        raise TypeError(
            "Only scalar arrays can be converted to Python scalars. "
            f"The array has shape {x.aval.shape}."
        )


def _from_bytes(data: bytes, shape: Any, dtype: Any, weak_type: bool) -> ConcreteArray:
    aval = ShapedArray(shape, dtype, weak_type)
    stored = physical_aval(aval)
    values = np.frombuffer(data, stored.dtype).reshape(stored.shape)
    if not isinstance(dtype, dtypes.ExtendedDType):
        # 64 bits may not be enabled now.
        return from_numpy(values.astype(dtypes.canonicalize_dtype(dtype), copy=False), weak_type)
    array = from_numpy(values, weak_type)
    array.aval = aval
    return array


def asarray_concrete(x: Any) -> ConcreteArray:
    """A concrete value of any accepted type as a `ConcreteArray`, in host memory if it is new.

    Args:
      x: a Python scalar (which stays weakly typed), NumPy scalar or array, or an object with
        `__jax_array__`.

    Raises:
      TypeError: `x` is not a value that operations take.
    """
    if type(x) is ConcreteArray:
        return x
    if hasattr(x, "__jax_array__"):
        return asarray_concrete(x.__jax_array__())
    if isinstance(x, ConcreteArray):
        return x
    refuse_abstract(x)
    aval = get_aval(x)
    assert isinstance(aval, ShapedArray), aval
    if config.transfer_guard_host_to_device not in _UNGUARDED:
        transfers.check("host_to_device", f"{type(x).__name__} as {aval.str_short()}")
    value = np.asarray(x, dtype=aval.dtype)
    return ConcreteArray(aval, get_backend().put(value))


def block_until_ready(values: Iterable[Any]) -> None:
    """Wait for every array among `values`."""
    for value in values:
        wait = getattr(value, "block_until_ready", None)
        if wait is not None:
            wait()
