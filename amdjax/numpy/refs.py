"""References to mutable arrays, as users have them: parts of them, and functions on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array_type import Array, install_methods
from amdjax.core.aval import ShapedArray, get_aval, is_valid_value
from amdjax.core.boundaries import api_boundary
from amdjax.core.context import Context, context
from amdjax.core.pytree import register_pytree_node
from amdjax.core.ref import Ref, RefPart, is_ref
from amdjax.numpy._util import canonical_shape, scalar_of
from amdjax.numpy.manipulation import computed_shape
from amdjax.numpy.ref_indices import Index, indexed_type, split_index
from amdjax.numpy.ref_primitives import (
    addupdate_p,
    empty_ref_p,
    free_ref_p,
    freeze_p,
    get_p,
    new_ref_p,
    swap_p,
    write_known,
)

__all__ = ["addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]


class View(RefPart):
    """Part of a reference, or all of it in another shape: what `ref.at[index]` is.

    Args:
      ref: the reference.
      indices: indices and shapes, each of what the one before speaks of.
      arrays: the operands in them.
    """

    __slots__ = ("arrays", "indices", "ref")

    def __init__(self, ref: Any, indices: tuple[Index, ...] = (), arrays: Sequence[Any] = ()):
        self.ref, self.indices, self.arrays = ref, indices, tuple(arrays)

    @property
    def aval(self) -> ShapedArray:
        return indexed_type(
            self.ref.aval.inner_aval, self.indices, tuple(get_aval(a).strong() for a in self.arrays)
        )

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)

    @property
    def at(self) -> At:
        """Parts of this part."""
        return At(self)

    def narrowed(self, index: Any) -> View:
        """The part of this part that an index speaks of."""
        # Of what is no array, such as a token, there is but the whole.
        form, arrays = split_index(getattr(self.aval, "shape", ()), index)
        if not form:
            return self
        arrays = [_wide_enough(a) for a in arrays]
        return View(self.ref, (*self.indices, form), (*self.arrays, *arrays))

    def reshape(self, *shape: Any) -> View:
        """The same elements in another shape, given as one tuple or as several ints."""
        new = computed_shape(self, canonical_shape(shape[0] if len(shape) == 1 else shape))
        return View(self.ref, (*self.indices, ("reshape", new)), self.arrays)

    def __getitem__(self, index: Any) -> Any:
        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        set(self, index, value)

    def get(self, idx: Any = ()) -> Any:
        return get(self, idx)

    def set(self, value: Any, idx: Any = ()) -> None:
        set(self, idx, value)

    def swap(self, value: Any, idx: Any = ()) -> Any:
        return swap(self, idx, value)

    def addupdate(self, value: Any, idx: Any = ()) -> None:
        addupdate(self, idx, value)


# Functions that are transformed take parts of references as they take references.
register_pytree_node(
    View,
    lambda view: ((view.ref, view.arrays), view.indices),
    lambda indices, children: View(children[0], indices, children[1]),
)


def _wide_enough(index: Any) -> Any:
    """An index that can count the elements of an array."""
    narrow = get_aval(index).dtype.itemsize < 4
    return lax.convert_element_type(index, np.int32) if narrow else index


class At:
    """`ref.at`, waiting for an index."""

    __slots__ = ("view",)

    def __init__(self, view: View):
        self.view = view

    def __getitem__(self, index: Any) -> View:
        return self.view.narrowed(index)


def _view(name: str, ref: Any, index: Any) -> View:
    view = ref if isinstance(ref, View) else View(ref)
    if not is_ref(view.ref):
        raise ValueError(f"Can only call `{name}` on a `Ref`: {ref}.")
    return view.narrowed(index)


@api_boundary
def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Any:
    """A reference to a new mutable array.

    Args:
      init_val: what it holds at first; stays as it is when the reference is written.
      memory_space: accepted; there is one.
      kind: "no_grad…" for one without tangents: what is written into it does not count as
        dependent on what is differentiated.

    Returns:
      A `Ref` of the shape and dtype of `init_val`.

    Raises:
      TypeError: `init_val` is not an array or a scalar.

        >>> ref = amdjax.new_ref(jnp.zeros(3))
        >>> ref[1] += 2.0
        >>> ref
        Ref([0., 2., 0.], dtype=float32)
    """
    if not is_valid_value(init_val) or is_ref(init_val):
        raise TypeError(f"new_ref: init_val must be an array, got {init_val!r}.")
    return new_ref_p.bind(init_val, memory_space=memory_space, kind=kind)


@api_boundary
def empty_ref(ty: Any, memory_space: Any = None) -> Any:
    """A reference to a new mutable array whose contents are unspecified.

    Args:
      ty: its type, anything with `shape` and `dtype`.
      memory_space: accepted; there is one.

    Returns:
      A `Ref`.

        >>> amdjax.empty_ref(amdjax.ShapeDtypeStruct((2,), "float32")).shape
        (2,)
    """
    dtype = dtypes.canonicalize_dtype(ty.dtype, allow_extended_dtype=True)
    return empty_ref_p.bind(ty=ShapedArray(ty.shape, dtype), memory_space=memory_space)


@api_boundary
def freeze(ref: Any) -> Any:
    """What a reference holds, as an array; the reference is not to be used afterwards.

    Args:
      ref: a `Ref`.

    Returns:
      An array.

    Raises:
      TypeError: `ref` is neither a reference nor an array, which is returned.

        >>> ref = amdjax.new_ref(1.0)
        >>> ref[...] = 2.0
        >>> print(amdjax.freeze(ref))
        2.0
    """
    if is_ref(ref):
        return freeze_p.bind(ref)
    if not isinstance(ref, (Array, np.ndarray, np.generic)):
        raise TypeError(f"freeze: ref must be a reference, got {ref!r}")
    return ref


@api_boundary
def free_ref(ref: Any) -> None:
    """End the life of a reference, which cannot be used afterwards.

    Args:
      ref: a `Ref`.

    Raises:
      ValueError: it was freed before.

        >>> amdjax.free_ref(amdjax.new_ref(1.0))
    """
    free_ref_p.bind(ref)


@api_boundary
def get(ref: Any, idx: Any = None) -> Any:
    """What a reference holds at an index; the same as `ref[idx]`.

    Args:
      ref: a `Ref`, or part of one, `ref.at[…]`.
      idx: a NumPy index; all of it by default.

    Returns:
      An array.

    Raises:
      ValueError: `ref` is no reference, or a known position is out of bounds.

        >>> amdjax.ref.get(amdjax.new_ref(jnp.arange(5)), slice(1, 3))
        Array([1, 2], dtype=int32)
    """
    view = _view("ref_get", ref, idx)
    return get_p.bind(view.ref, *view.arrays, indices=view.indices)


@api_boundary
def set(ref: Any, idx: Any, value: Any) -> None:
    """Write into a reference; the same as `ref[idx] = value`.

    Args:
      ref: a `Ref`, or part of one, `ref.at[…]`.
      idx: a NumPy index.
      value: an array of the shape that the index speaks of, of the dtype of the reference.

    Raises:
      ValueError: `ref` is no reference, or shape or dtype do not fit.

        >>> ref = amdjax.new_ref(jnp.zeros(2))
        >>> amdjax.ref.set(ref, 1, 10.0)
        >>> ref
        Ref([ 0., 10.], dtype=float32)
    """
    view, value = _operands("ref_set", ref, idx, value)
    if type(view.ref) is Ref and context.trace is Context.base:
        write_known(view.ref, value, view.arrays, view.indices)
        return
    swap_p.bind(view.ref, value, *view.arrays, indices=view.indices)


@api_boundary
def swap(ref: Any, idx: Any, value: Any) -> Any:
    """Write into a reference and return what it held there.

    Args:
      ref: a `Ref`, or part of one, `ref.at[…]`.
      idx: a NumPy index.
      value: an array of the shape that the index speaks of, of the dtype of the reference.

    Returns:
      What the reference held at the index before.

    Raises:
      ValueError: `ref` is no reference, or shape or dtype do not fit.

        >>> amdjax.ref.swap(amdjax.new_ref(jnp.arange(5)), 3, 10)
        Array(3, dtype=int32)
    """
    view, value = _operands("ref_swap", ref, idx, value)
    return swap_p.bind(view.ref, value, *view.arrays, indices=view.indices)


@api_boundary
def addupdate(ref: Any, idx: Any, x: Any) -> None:
    """Add to what a reference holds; as `ref[idx] += x`, in one operation.

    Args:
      ref: a `Ref`, or part of one, `ref.at[…]`.
      idx: a NumPy index; where it names a place twice, both are added.
      x: an array of the shape that the index speaks of, of the dtype of the reference.

    Raises:
      ValueError: `ref` is no reference, or shape or dtype do not fit.

        >>> ref = amdjax.new_ref(jnp.zeros(2))
        >>> amdjax.ref.addupdate(ref, 1, 10.0)
        >>> ref
        Ref([ 0., 10.], dtype=float32)
    """
    view, x = _operands("ref_addupdate", ref, idx, x)
    addupdate_p.bind(view.ref, x, *view.arrays, indices=view.indices)


def _operands(name: str, ref: Any, idx: Any, value: Any) -> tuple[View, Any]:
    view = _view(name, ref, idx)
    if not is_valid_value(value):
        raise TypeError(f"Argument '{value}' of type {type(value)} is not a valid JAX type")
    aval, inner = get_aval(value), view.ref.aval.inner_aval
    if not isinstance(inner, ShapedArray):
        return view, value
    dtype = inner.dtype
    weak_float = aval.weak_type and dtypes.issubdtype(aval.dtype, np.floating)
    if (weak_float and dtypes.issubdtype(dtype, np.floating)) or (
        dtypes.issubdtype(aval.dtype, np.integer) and dtypes.issubdtype(dtype, np.integer)
    ):
        python = isinstance(value, (int, float))
        value = scalar_of(value, dtype) if python else lax.convert_element_type(value, dtype)
    return view, value


def _as_method(update: Any) -> Any:
    def method(self: Ref, value: Any, idx: Any = ()) -> Any:
        return update(self, idx, value)

    method.__doc__ = f"As `amdjax.ref.{update.__name__}`, the index behind the value."
    return method


def _reshape(self: Ref, *shape: Any) -> View:
    """The reference seen in another shape; see `numpy.reshape`."""
    return View(self).reshape(*shape)


install_methods(
    {
        "__getitem__": get,
        "__setitem__": set,
        "get": get,
        "set": _as_method(set),
        "swap": _as_method(swap),
        "addupdate": _as_method(addupdate),
        "reshape": _reshape,
        "at": property(lambda self: At(View(self)), doc="Parts: `ref.at[index]`."),
    },
    on=Ref,
)
