"""What is said of a model's inputs and outputs, and arguments that fit it."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import amdjax
from amdjax.core.array import ConcreteArray, borrowed, from_numpy
from amdjax.core.backend import get_backend
from amdjax.core.contents import tell_contents
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.dtypes import canonicalize_dtype, dtype_from_short_name, short_dtype_name
from amdjax.core.errors import did_you_mean

from .file_map import contents, root_of

__all__ = [
    "Value", "as_array", "bound", "checked_dims", "read_value", "refuse_pointer", "told",
    "value_of",
]  # fmt: skip


@dataclass(frozen=True)
class Value:
    """What is said of a value: its name, dtype and shape.

    Args:
      name: as the model has it.
      dtype: of its elements; None where nothing is said.
      shape: sizes, names of symbolic dimensions, or None for dimensions without a name; None where
        nothing is said.
      kind: `"tensor"`, or `"sequence(tensor)"` and the like.
    """

    name: str
    dtype: np.dtype | None = None
    shape: tuple[int | str | None, ...] | None = None
    kind: str = "tensor"

    def __str__(self) -> str:
        if self.shape is None:
            shape = "..."
        else:
            shape = ",".join("?" if n is None else str(n) for n in self.shape)
        dtype = "?" if self.dtype is None else np.dtype(self.dtype).name
        return f"{self.name}: {dtype}[{shape}]" + ("" if self.kind == "tensor" else f" {self.kind}")


def value_of(name: str, aval: Any) -> Value:
    """What is said of a value of a type."""
    shape = tuple(n if isinstance(n, int) else str(n) for n in aval.shape)
    return Value(name, aval.dtype, shape)


def told(value: Value) -> dict[str, Any]:
    """A value in JSON."""
    assert value.dtype is not None
    assert value.shape is not None
    shape = list(value.shape)
    return {"name": value.name, "dtype": short_dtype_name(value.dtype), "shape": shape}


def read_value(said: Any) -> Value:
    """The value that `told` wrote; any exception tells that it is none."""
    shape = said["shape"]
    if not all(type(n) in (int, str) for n in shape):
        raise ValueError("a shape has neither sizes nor names")
    return Value(str(said["name"]), np.dtype(dtype_from_short_name(said["dtype"])), tuple(shape))


def bound(
    values: Sequence[Value], args: Sequence[Any], inputs: Mapping[str, Any], *, whose: str,
    optional: Collection[str] = (), names_are_equal: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Inputs by name, whose dtypes and shapes are those of a model.

    Args:
      values: what the model says of its inputs.
      args, inputs: what is given, in their order or by name.
      whose: what errors call the model.
      optional: names of inputs that may be missing, or given though `values` have them not.
      names_are_equal: whether dimensions of one name are of one size.

    Raises:
      ValueError: an input is missing, unknown, given twice, or of another dtype or shape.
    """
    if len(args) > len(values):
        raise ValueError(f"{whose} takes {len(values)} inputs, got {len(args)}")
    given = dict(zip((v.name for v in values), args))
    known = {v.name for v in values}.union(optional)
    for name, value in inputs.items():
        if name in given:
            raise ValueError(f"input {name!r} is given twice")
        if name not in known:
            hint = did_you_mean(name, known)
            told = f"Its inputs are {_shown(values)}"
            raise ValueError(f"{whose} has no input {name!r}.{hint} {told}")
        given[name] = value
    sizes: dict[str, Any] | None = {} if names_are_equal else None
    for value in values:
        if value.name in given:
            given[value.name] = _fitting(value, given[value.name], sizes)
        elif "optional" in value.kind:
            given[value.name] = None
        elif value.name not in optional:
            told = f"the inputs are {_shown(values)}"
            raise ValueError(f"input {value.name!r} is missing; {told}")
    return given


def _shown(values: Sequence[Value]) -> str:
    return "; ".join(map(str, values))


def _fitting(value: Value, given: Any, sizes: dict[str, Any] | None) -> Any:
    """An input that has the dtype and the shape that the model says."""
    if value.kind != "tensor":
        return given
    if not isinstance(getattr(given, "dtype", None), np.dtype):
        given = _converted(value, given)
    if value.dtype == object:
        return given
    said = value.dtype
    if given.dtype.kind in "OSU" and said is not None:
        raise ValueError(f"input {value} must be {said}, got {given.dtype}")
    if not given.dtype.isnative:
        given = given.astype(given.dtype.newbyteorder("="))
    if said is not None and given.dtype != said:
        with amdjax.enable_x64(False):
            narrow = canonicalize_dtype(said)  # that of arrays which are made without 64 bits
        if given.dtype != narrow:
            raise ValueError(f"input {value} must be {said}, got {given.dtype}")
        given = given.astype(canonicalize_dtype(said))
    if value.shape is not None:
        _check_shape(value, value.shape, given.shape, sizes)
    return given


def _converted(value: Value, given: Any) -> Any:
    """An array of numbers, of lists, or of what another library has as one."""
    try:
        if given is None:
            raise TypeError("it must be an array")
        return np.asarray(given, None if hasattr(given, "dtype") else value.dtype)
    except (TypeError, ValueError) as e:
        raise ValueError(f"input {value} cannot be {type(given).__name__}: {e}") from None


def _check_shape(
    value: Value, wanted: Sequence[int | str | None], shape: Sequence[Any],
    sizes: dict[str, Any] | None,
) -> None:  # fmt: skip
    if len(shape) != len(wanted):
        raise ValueError(f"input {value} has {len(wanted)} axes, got shape {tuple(shape)}")
    for axis, (said, size) in enumerate(zip(wanted, shape)):
        if said is None or is_symbolic_dim(size):
            continue
        if isinstance(said, str):
            said = size if sizes is None else sizes.setdefault(said, size)
        if said != size:
            raise ValueError(
                f"input {value}: axis {axis} must have {said} elements, got shape {tuple(shape)}"
            )


def as_array(x: Any, dtype: Any = None) -> Any:
    """What `numpy.asarray` makes of a value, which loads for other values than plain arrays."""
    if dtype is None or getattr(x, "dtype", None) == dtype:
        if isinstance(x, ConcreteArray) and not x.aval.weak_type:
            return x
        plain = type(x) is np.ndarray and x.dtype.kind in "biufc"
        on_host = plain and get_backend().program_placement() is None
        if on_host and canonicalize_dtype(x.dtype) == x.dtype:
            return _in_place(x) if _stays(x) else from_numpy(x)
    # late: see above
    from amdjax.numpy import asarray

    return asarray(x, dtype)


def _in_place(x: np.ndarray) -> ConcreteArray:
    made = borrowed(x)
    tell_contents(made, functools.partial(contents, x))
    return made


def _stays(x: np.ndarray) -> bool:
    """Whether an array never changes: it is a view of bytes, or of a file mapped to be read."""
    flags = x.flags
    is_fixed = isinstance(root_of(x), (bytes, mmap.mmap))
    return is_fixed and not flags.writeable and flags.c_contiguous and x.size > 0


def checked_dims(dims: Any, what: str = "a positive integer or a name") -> dict[str, Any]:
    """Sizes or names that users give dimensions, by their names.

    Args:
      dims: None or a mapping; whole shapes, sequences, are checked each.
      what: what each may be, in words.

    Raises:
      TypeError: it is no mapping.
      ValueError: there is something else in it.
    """
    if dims is not None and not isinstance(dims, Mapping):
        raise TypeError(f"dims must be sizes by names of dimensions, got {dims!r}")
    for name, size in (dims or {}).items():
        whole = isinstance(size, (tuple, list))
        for n in size if whole else (size,):
            is_size = isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0
            is_name = (n is None and whole) or (isinstance(n, str) and n.isidentifier())
            if not (is_size or is_name):
                raise ValueError(f"dims: {name!r} must be {what}, got {size!r}")
    return dict(dims or {})


def refuse_pointer(data: bytes) -> None:
    """Raise ValueError where a file is what Git LFS puts in the place of large files."""
    if data.startswith(b"version https://git-lfs"):
        raise ValueError("model: the file is a pointer of Git LFS; fetch what it points to")
