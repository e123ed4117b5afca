"""References to mutable arrays: the primitives that make, read and write them.

Each primitive has a discharge rule, which works on what a reference holds (`transforms.discharge`),
and derivative and batching rules. A tangent of a reference is a reference in forward mode; where
linear programs are recorded, it is a `TangentCell`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array, asarray_concrete, install_methods
from amdjax.core.aval import ShapedArray, get_aval, is_valid_value
from amdjax.core.context import Context, context
from amdjax.core.errors import NonConcreteBooleanIndexError, api_boundary
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import register_pytree_node
from amdjax.core.ref import (
    AbstractRef,
    Ref,
    RefPart,
    accum_effect,
    evaluate_with_refs,
    is_ref,
    read_effect,
    refuse_refs,
    set_evaluation,
    write_effect,
)
from amdjax.core.slices import Slice
from amdjax.core.trace import is_concrete, trace_to_jaxpr
from amdjax.lax._rules import batch_to, map_examples, zero_tangent
from amdjax.numpy._util import canonical_shape, convert, scalar_of
from amdjax.numpy.index_syntax import parse, without_scalar_masks
from amdjax.numpy.index_updates import update_index
from amdjax.numpy.indexing import contiguous, take_index
from amdjax.numpy.manipulation import computed_shape
from amdjax.transforms.discharge import Cell, RefCell, is_control, ref_rules, run_on_refs
from amdjax.transforms.forward import jvp_flat
from amdjax.transforms.linear import TangentCell
from amdjax.transforms.zero import Zero, instantiate_zeros

__all__ = ["addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]


# Indices: a static form, which is a parameter, and the arrays in it, which are operands


class _Operand:
    """Stands in an index for an operand."""

    def __repr__(self) -> str:
        return "_"


OPERAND = _Operand()
Index = tuple[Any, ...]


def split_index(shape: Sequence[int], index: Any) -> tuple[Index, list[Any]]:
    """An index as a hashable form and the arrays in it.

    Raises:
      ValueError: there are too many indices, or a known position is out of bounds.
      TypeError: an entry is no index.
    """
    if index is None or index is Ellipsis:
        return (), []
    items = index if isinstance(index, tuple) else (index,)
    consumed = sum(_rank_of(i) for i in items)
    if consumed > len(shape):
        raise ValueError(
            f"`indices` must not be longer than `shape`: indices={items}, shape={tuple(shape)}"
        )
    static: list[Any] = []
    arrays: list[Any] = []

    def operand(value: Any) -> Any:
        arrays.append(value)
        return OPERAND

    axis = 0
    for place, item in enumerate(items):
        if item is Ellipsis:
            static.append(item)
            axis = len(shape) - sum(_rank_of(i) for i in items[place + 1 :])
        elif item is None:
            static.append(item)
        elif isinstance(item, slice):
            parts = (item.start, item.stop, item.step)
            static.append(("slice", *(p if _known(p) else operand(p) for p in parts)))
            axis += 1
        elif isinstance(item, Slice):
            start = item.start if _known(item.start) else operand(_checked_index(item.start))
            static.append(("window", start, item.size, item.stride))
            axis += 1
        elif _is_integer(item) and not isinstance(item, Array):
            static.append(_position(int(item), shape[axis]))
            axis += 1
        elif getattr(item, "dtype", None) == np.bool_:
            for positions in np.nonzero(_known_mask(item)):
                static.append(operand(positions))
            axis += np.ndim(item)
        else:
            static.append(operand(_checked_index(item)))
            axis += 1
    return tuple(static), arrays


def _rank_of(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return np.ndim(item) if getattr(item, "dtype", None) == np.bool_ else 1


def _known(part: Any) -> bool:
    return part is None or isinstance(part, (int, np.integer))


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def _position(at: int, n: int) -> int:
    if not -n <= at < n:
        raise ValueError(f"Out of bound indexer: idx={at}, dim={n}.")
    return at % n


def _known_mask(mask: Any) -> np.ndarray:
    if not is_concrete(mask):
        raise NonConcreteBooleanIndexError(mask)
    return np.asarray(mask)


def _checked_index(item: Any) -> Any:
    if not is_valid_value(item) or is_ref(item):
        raise TypeError(f"Argument '{item}' of type {type(item)} is not a valid JAX type")
    if not dtypes.issubdtype(get_aval(item).dtype, np.integer):
        raise TypeError(f"an index must be an integer, got {item!r} of {get_aval(item)}.")
    return item


def _joined(index: Index, arrays: Any) -> tuple[Any, ...]:
    """The index with operands in their places; `arrays` is an iterator."""

    def place(part: Any) -> Any:
        return next(arrays) if part is OPERAND else part

    out: list[Any] = []
    for part in index:
        if isinstance(part, tuple):
            made = slice if part[0] == "slice" else Slice
            out.append(made(*(place(p) for p in part[1:])))
        else:
            out.append(place(part))
    return tuple(out)


def _is_reshape(index: Index) -> bool:
    """Whether in place of an index there is `("reshape", shape)`: all elements in another shape."""
    return index[:1] == ("reshape",)


def _read(value: Any, indices: Sequence[Index], arrays: Any) -> Any:
    for index in indices:
        if _is_reshape(index):
            value = lax.reshape(value, index[1])
        else:
            value = take_index(value, _joined(index, arrays))
    return value


def _write(value: Any, indices: Sequence[Index], arrays: Any, new: Any, add: bool) -> Any:
    """`value` with what the last index speaks of replaced, or added to."""
    if not indices:
        return lax.add(value, new) if add else new
    if _is_reshape(indices[0]):
        part = lax.reshape(value, indices[0][1])
        return lax.reshape(_write(part, indices[1:], arrays, new, add), value.shape)
    index = _joined(indices[0], arrays)
    if len(indices) > 1:
        part = _write(take_index(value, index), indices[1:], arrays, new, add)
        return _write_at(value, index, part, False)
    return _write_at(value, index, new, add)


def _write_at(value: Any, index: tuple[Any, ...], new: Any, add: bool) -> Any:
    items, single = without_scalar_masks(value.shape, index)
    window = None if single else contiguous(value, parse(value.shape, items))
    if window is None or window.reversed:
        return update_index(value, index, new, lax.scatter_add if add else lax.scatter)
    if add:
        new = lax.add(take_index(value, index), new)
    new = lax.reshape(new, window.sizes)
    if window.sizes == value.shape:
        return new
    return lax.dynamic_update_slice_p.bind(value, new, *window.starts)


def _write_tangent(value: Any, indices: Any, arrays: Sequence[Any], t: Any, add: bool) -> Any:
    """What `_write` does to tangents; written so that it can be transposed."""

    def write(value: Any, new: Any) -> list[Any]:
        return [_write(value, indices, iter(arrays), new, add)]

    if not any(np.ndim(a) for a in arrays):
        return write(value, t)[0]
    # Of several updates of one place one wins; the derivative of a scatter finds out which.
    zeros = [lax.full_like(x, 0) for x in (value, t)]
    return jvp_flat(write, zeros, [value, t])[1][0]


@functools.lru_cache(4096)
def _indexed(inner: ShapedArray, indices: tuple[Index, ...], arrays: tuple[Any, ...]) -> Any:
    """The type of what indices speak of."""
    if not indices:
        return inner
    closed = trace_to_jaxpr(
        lambda value, *arrays: [_read(value, indices, iter(arrays))], [inner, *arrays]
    )
    return closed.out_avals[0]


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
        return _indexed(
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


# Primitives


class RefPrimitive(Primitive):
    """A primitive whose operands or results are references; eagerly it works on them at once."""

    __slots__ = ()

    def bind(self, *args: Any, **params: Any) -> Any:
        trace = context.trace
        if trace is Context.base:
            return evaluate_with_refs(self, args, params)
        return trace.process_primitive(self, args, params)


def _discharge_rule(name: str) -> Any:
    def register(rule: Any) -> Any:
        ref_rules[name] = rule
        return rule

    return register


def _check_no_tangent(primitive: Primitive, ref: Any) -> None:
    """Raise unless a value with a tangent may be written into a reference that has none."""
    if not ref.aval.has_tangents:
        return
    what = "an addupdate" if primitive.name == "addupdate" else "a set/swap"
    raise Exception(
        f"performing {what} operation with a differentiated value on a non-differentiated array "
        f"reference of type {ref.aval}. Move the array reference to be an argument of the "
        "differentiated function, or make it inside."
    )


new_ref_p = RefPrimitive("new_ref")
new_ref_p.def_abstract_eval(lambda x, *, kind, **_: AbstractRef(x, kind))
new_ref_p.def_effects(lambda *_, **__: frozenset((write_effect,)))


@_discharge_rule("new_ref")
def _new_ref_discharge(x: Any, *, kind: str | None, **_: Any) -> Cell:
    return Cell(AbstractRef(get_aval(x), kind), x)


@new_ref_p.def_jvp
def _new_ref_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    ref = new_ref_p.bind(*primals, **params)
    if not ref.aval.has_tangents:
        return ref, Zero(ref.aval.to_tangent())
    return ref, new_ref_p.bind(instantiate_zeros(tangents[0]), **params)


@new_ref_p.def_linearize
def _new_ref_linearize(nonzeros: Any, x: Any, **params: Any) -> Any:
    ref = new_ref_p.bind(x, **params)

    def tangent_fn(_: Any, t: Any) -> Any:
        return TangentCell(t) if ref.aval.has_tangents else Zero(ref.aval.to_tangent())

    return ref, [], tangent_fn


@new_ref_p.def_batch
def _new_ref_batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
    # What is written later may differ between the examples.
    return new_ref_p.bind(batch_to(args[0], dims[0], axis.size), **params), 0


empty_ref_p = RefPrimitive("empty_ref")
empty_ref_p.def_abstract_eval(lambda *, ty, memory_space: AbstractRef(ty))
empty_ref_p.def_effects(lambda **_: frozenset((write_effect,)))


@_discharge_rule("empty_ref")
def _empty_ref_discharge(*, ty: ShapedArray, memory_space: Any) -> Cell:
    return Cell(AbstractRef(ty), lax.empty(ty.shape, ty.dtype))


@empty_ref_p.def_jvp
def _empty_ref_jvp(primals: Any, tangents: Any, *, ty: ShapedArray, **params: Any) -> Any:
    ref = empty_ref_p.bind(ty=ty, **params)
    if not ref.aval.has_tangents:
        return ref, Zero(ref.aval.to_tangent())
    return ref, empty_ref_p.bind(ty=ty.to_tangent(), **params)


@empty_ref_p.def_linearize
def _empty_ref_linearize(nonzeros: Any, *, ty: ShapedArray, **params: Any) -> Any:
    ref = empty_ref_p.bind(ty=ty, **params)
    zero = Zero(ty.to_tangent())
    cell = TangentCell(zero) if ref.aval.has_tangents else Zero(ref.aval.to_tangent())
    return ref, [], lambda _: cell


@empty_ref_p.def_batch
def _empty_ref_batch(axis: Any, args: Any, dims: Any, *, ty: ShapedArray, **params: Any) -> Any:
    return empty_ref_p.bind(ty=ty.update(shape=(axis.size, *ty.shape)), **params), 0


get_p = RefPrimitive("get")
get_p.def_effects(lambda *_, **__: frozenset((read_effect,)))


@get_p.def_abstract_eval
def _get_type(ref: AbstractRef, *arrays: Any, indices: tuple[Index, ...]) -> ShapedArray:
    return _indexed(ref.inner_aval, indices, tuple(a.strong() for a in arrays))


@_discharge_rule("get")
def _get_discharge(cell: Cell, *arrays: Any, indices: Any) -> Any:
    return _read(cell.read(), indices, iter(arrays))


@get_p.def_jvp
def _get_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    arrays = primals[1:]
    out = get_p.bind(*primals, **params)
    if type(tangents[0]) is Zero:
        return out, zero_tangent(out)
    return out, get_p.bind(tangents[0], *arrays, **params)


@get_p.def_linearize
def _get_linearize(nonzeros: Any, ref: Any, *arrays: Any, indices: Any) -> Any:
    out = get_p.bind(ref, *arrays, indices=indices)

    def tangent_fn(arrays: Any, t: Any, *_: Any) -> Any:
        if type(t) is Zero or type(t.value) is Zero:
            return zero_tangent(out)
        return _read(t.value, indices, iter(arrays))

    return out, arrays, tangent_fn


@get_p.def_batch
def _get_batch(axis: Any, args: Any, dims: Any, *, indices: Any) -> Any:
    ref, *arrays = args
    value = get_p.bind(ref, indices=())
    if not indices:
        return value, dims[0]
    read = lambda value, *arrays: [_read(value, indices, iter(arrays))]
    (out,) = map_examples(read, [value, *arrays], dims, axis.size)
    return out, 0


def _update_type(name: str) -> Any:
    def rule(ref: AbstractRef, value: Any, *arrays: Any, indices: Any) -> ShapedArray:
        part = _indexed(ref.inner_aval, indices, tuple(a.strong() for a in arrays))
        if part is value:
            return part
        if part.shape != value.shape:
            raise ValueError(
                f"Invalid shape for `{name}`. Ref shape: {ref.shape}. Expected shape: "
                f"{part.shape}. Value shape: {value.shape}."
            )
        if part.dtype != value.dtype:
            raise ValueError(
                f"Invalid dtype for `{name}`. Ref dtype: {ref.dtype}. Value dtype: {value.dtype}."
            )
        return part

    return rule


def _update_batch(primitive: Primitive, add: bool) -> Any:
    """The batching rule of a write: what the reference holds is read and written as a whole."""

    def batch(axis: Any, args: Any, dims: Any, *, indices: Any) -> Any:
        ref, value, *arrays = args
        if dims[0] is None and axis.of_mesh:
            values = [x if d is None else lax.squeeze(x, (d,)) for x, d in zip(args, dims)]
            out = primitive.bind(*values, indices=indices)
            return out, [] if primitive.multiple_results else None
        if dims[0] is None:
            what = "an addupdate" if add else "a set/swap"
            raise ValueError(
                f"performing {what} operation with vmapped value on an unbatched array reference "
                f"of type {ref.aval}. Move the array reference to be an argument of the vmapped "
                "function, or make it inside."
            )
        whole = get_p.bind(ref, indices=())

        def update(whole: Any, value: Any, *arrays: Any) -> list[Any]:
            old = _read(whole, indices, iter(arrays))
            return [old, _write(whole, indices, iter(arrays), value, add)]

        old, new = map_examples(update, [whole, value, *arrays], dims, axis.size)
        swap_p.bind(ref, batch_to(new, 0, axis.size, dims[0]), indices=())
        return ([], []) if primitive.multiple_results else (old, 0)

    return batch


swap_p = RefPrimitive("swap")
swap_p.def_abstract_eval(_update_type("swap"))
swap_p.def_effects(lambda *_, **__: frozenset((write_effect,)))
swap_p.def_batch(_update_batch(swap_p, False))


@_discharge_rule("swap")
def _swap_discharge(cell: Cell, value: Any, *arrays: Any, indices: Any) -> Any:
    whole = cell.read()
    cell.write(_of_type(cell, _write(whole, indices, iter(arrays), value, False)))
    return _read(whole, indices, iter(arrays))


def _of_type(cell: Cell, value: Any) -> Any:
    """What a reference is to hold, as weakly typed as it was."""
    inner = cell.aval.inner_aval
    return convert(value, inner.dtype, inner.weak_type) if _is_number(inner) else value


def _is_number(aval: ShapedArray) -> bool:
    return not isinstance(aval.dtype, dtypes.ExtendedDType)


@swap_p.def_jvp
def _swap_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    ref, _, *arrays = primals
    ref_dot, t, *_ = tangents
    if type(ref_dot) is Zero:
        if type(t) is not Zero:
            _check_no_tangent(swap_p, ref)
        out = swap_p.bind(*primals, **params)
        return out, zero_tangent(out)
    out = swap_p.bind(*primals, **params)
    return out, swap_p.bind(ref_dot, instantiate_zeros(t), *arrays, **params)


@swap_p.def_linearize
def _swap_linearize(nonzeros: Any, ref: Any, value: Any, *arrays: Any, indices: Any) -> Any:
    if not nonzeros[0] and nonzeros[1]:
        _check_no_tangent(swap_p, ref)
    out = swap_p.bind(ref, value, *arrays, indices=indices)

    def tangent_fn(arrays: Any, cell: Any, t: Any, *_: Any) -> Any:
        if type(cell) is Zero:
            return zero_tangent(out)
        known = type(cell.value) is Zero
        old = zero_tangent(out) if known else _read(cell.value, indices, iter(arrays))
        cell.write(indices, arrays, t, False, _write_tangent)
        return old

    return out, arrays, tangent_fn


addupdate_p = RefPrimitive("addupdate", multiple_results=True)


@addupdate_p.def_abstract_eval
def _addupdate_type(*avals: Any, **params: Any) -> list[Any]:
    _update_type("addupdate")(*avals, **params)
    return []


addupdate_p.def_effects(lambda *_, **__: frozenset((accum_effect,)))
addupdate_p.def_batch(_update_batch(addupdate_p, True))


@_discharge_rule("addupdate")
def _addupdate_discharge(cell: Cell, value: Any, *arrays: Any, indices: Any) -> list[Any]:
    cell.write(_of_type(cell, _write(cell.read(), indices, iter(arrays), value, True)))
    return []


@addupdate_p.def_jvp
def _addupdate_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    ref_dot, t, *_ = tangents
    if type(t) is not Zero:
        if type(ref_dot) is Zero:
            _check_no_tangent(addupdate_p, primals[0])
        else:
            addupdate_p.bind(ref_dot, t, *primals[2:], **params)
    addupdate_p.bind(*primals, **params)
    return [], []


@addupdate_p.def_linearize
def _addupdate_linearize(nonzeros: Any, ref: Any, value: Any, *arrays: Any, indices: Any) -> Any:
    if not nonzeros[0] and nonzeros[1]:
        _check_no_tangent(addupdate_p, ref)
    addupdate_p.bind(ref, value, *arrays, indices=indices)

    def tangent_fn(arrays: Any, cell: Any, t: Any, *_: Any) -> list[Any]:
        if type(t) is not Zero and type(cell) is not Zero:
            cell.write(indices, arrays, t, True, _write_tangent)
        return []

    return [], arrays, tangent_fn


freeze_p = RefPrimitive("freeze")
freeze_p.def_abstract_eval(lambda ref: ref.inner_aval)
freeze_p.def_effects(lambda *_: frozenset((read_effect,)))
freeze_p.def_batch(lambda axis, args, dims: (freeze_p.bind(*args), dims[0]))


@_discharge_rule("freeze")
def _freeze_discharge(cell: Cell) -> Any:
    return cell.read()


@freeze_p.def_jvp
def _freeze_jvp(primals: Any, tangents: Any) -> Any:
    out = freeze_p.bind(*primals)
    zero = type(tangents[0]) is Zero
    return out, zero_tangent(out) if zero else freeze_p.bind(*tangents)


@freeze_p.def_linearize
def _freeze_linearize(nonzeros: Any, ref: Any) -> Any:
    out = freeze_p.bind(ref)
    return out, [], lambda _, t: zero_tangent(out) if type(t) is Zero else t.value


free_ref_p = RefPrimitive("free_ref", multiple_results=True)
free_ref_p.def_abstract_eval(lambda ref: [])
free_ref_p.def_effects(lambda *_: frozenset((write_effect,)))
free_ref_p.def_batch(lambda axis, args, dims: (free_ref_p.bind(*args), []))
free_ref_p.def_linearize(lambda nonzeros, ref: (free_ref_p.bind(ref), [], lambda _, t: []))


@_discharge_rule("free_ref")
def _free_ref_discharge(cell: Cell) -> list[Any]:
    cell.free()
    return []


@free_ref_p.def_jvp
def _free_ref_jvp(primals: Any, tangents: Any) -> Any:
    free_ref_p.bind(*primals)
    if type(tangents[0]) is not Zero:
        free_ref_p.bind(*tangents)
    return [], []


# Eager operations


class _Concrete(RefCell):
    """A reference whose contents are known."""

    __slots__ = ()

    def read(self) -> Any:
        if self.ref.value is None:
            raise ValueError(f"a reference of type {self.aval} is used after it was freed")
        return self.ref.value.sharing()

    def write(self, value: Any) -> None:
        self.read()
        self.ref.value = asarray_concrete(value)

    def free(self) -> None:
        self.read()
        self.ref.value = None


def _evaluate(primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
    rule = ref_rules.get(primitive.name)
    if rule is not None:
        if primitive.name in ("swap", "addupdate"):
            assert primitive.abstract_eval is not None
            primitive.abstract_eval(*map(get_aval, args), **params)
        out = rule(*(_Concrete(x) if type(x) is Ref else x for x in args), **params)
        if type(out) is Cell:
            return Ref(asarray_concrete(out.value).sharing(), out.aval.kind)
        return out
    if is_control(primitive):
        return run_on_refs(primitive, args, params, False)
    refuse_refs(primitive, list(map(get_aval, args)))
    raise AssertionError(f"{primitive} has no operand that is a reference")


set_evaluation(_evaluate)


# What users call


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

    Example:
      >>> import amdjax, amdjax.numpy as jnp
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

    Example:
      >>> import amdjax
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

    Example:
      >>> import amdjax
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

    Example:
      >>> import amdjax
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

    Example:
      >>> import amdjax, amdjax.numpy as jnp
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

    Example:
      >>> import amdjax, amdjax.numpy as jnp
      >>> ref = amdjax.new_ref(jnp.zeros(2))
      >>> amdjax.ref.set(ref, 1, 10.0)
      >>> ref
      Ref([ 0., 10.], dtype=float32)
    """
    view, value = _operands("ref_set", ref, idx, value)
    if type(view.ref) is Ref and context.trace is Context.base:
        _update_type("swap")(*map(get_aval, (view.ref, value, *view.arrays)), indices=view.indices)
        cell = _Concrete(view.ref)
        whole = _write(cell.read(), view.indices, iter(view.arrays), value, False)
        cell.write(_of_type(cell, whole))
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

    Example:
      >>> import amdjax, amdjax.numpy as jnp
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

    Example:
      >>> import amdjax, amdjax.numpy as jnp
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
